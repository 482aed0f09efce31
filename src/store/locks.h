/* How a store builds the hf_locks that INSPECT and LIST return. Strings are copied; NULL means "".
 * Each call returns false if there is no memory; the list is then still valid and must be freed. */
#ifndef STORE_LOCKS_H
#define STORE_LOCKS_H

#include "store/store.h"

struct hf_locks *locks_new(void);

/* Adds a lock; the parties added after it belong to it. */
bool locks_add(struct hf_locks *locks, const char *name, enum store_kind kind, uint32_t capacity,
               uint64_t token);

/* Records that the lock added last belongs to a set in which a hold needs `quorum` votes. */
void locks_set_quorum(struct hf_locks *locks, uint32_t quorum);

/* Adds what a node of the set reports about the lock added last: why it did not answer, or its
 * token. Who has the node's vote is added after this, with LOCKS_VOTE. */
bool locks_add_node(struct hf_locks *locks, const char *name, const char *failure, uint64_t token);

/* Sorts the locks by name. */
void locks_sort(struct hf_locks *locks);

/* A break of a hold, as a store keeps it with the name. */
struct locks_break {
    int64_t at_us; /* wall clock; 0: there was none */
    uint64_t token;
    const char *by, *reason;
};

/* Sets the last break of the lock added last. */
bool locks_set_break(struct hf_locks *locks, const struct locks_break *last);

/* Who breaks, for `by`: "web3 pid 411 (psql)". */
enum { LOCKS_BREAKER_SIZE = 600 };
void locks_format_breaker(const struct store_identity *who, char ret_text[LOCKS_BREAKER_SIZE]);

/* LOCKS_VOTE: of the node added last. */
enum locks_role { LOCKS_HOLDER, LOCKS_WAITER, LOCKS_VOTE };

/* Adds somebody to the lock added last: `party` with the owner id in full in `id` and `seq`, which
 * is abbreviated here (party->owner is ignored). */
bool locks_add_party(struct hf_locks *locks, enum locks_role role, const hf_party *party,
                     const uint8_t id[16], uint64_t seq);

/* Adds a party that comes from another hf_locks, unchanged. */
bool locks_copy_party(struct hf_locks *locks, enum locks_role role, const hf_party *party);

/* An owner id in full: 32 hex digits, '-', the sequence number in hex. */
enum { LOCKS_ID_SIZE = 32 + 1, LOCKS_OWNER_SIZE = LOCKS_ID_SIZE + 16 + 1 };
void locks_format_owner(const uint8_t id[16], uint64_t seq, char ret_text[LOCKS_OWNER_SIZE]);
/* Writes only the sequence number, which follows the first LOCKS_ID_SIZE bytes of an owner id.
 * Returns the end of the text. */
char *locks_put_seq(char *end, uint64_t seq);

#endif
