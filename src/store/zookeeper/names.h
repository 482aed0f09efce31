/* How locks and claims are named in ZooKeeper. The node of a lock is the lock's name, with %XX for
 * bytes that are not printable ASCII and for '/' and '%'. A claim on it, held or waiting, is a
 * child of it:
 *
 *    x-CLIENT-SEQ-NUMBER             exclusive
 *    s-CLIENT-SEQ-NUMBER             shared
 *    p3of5-CLIENT-SEQ-NUMBER         three permits of five
 *
 * CLIENT and SEQ are the attempt id in hex. The server adds NUMBER, which gives the order.
 *
 * Other libraries have the same recipe with different names. To exclude their locks, and be
 * excluded by them, our claims are named like theirs (struct names_layout):
 *
 *    _c_CLIENT-SEQ-lock-NUMBER       Curator's InterProcessMutex
 *    _c_CLIENT-SEQ-__WRIT__NUMBER    Curator's InterProcessReadWriteLock, __READ__ for readers
 *    CLIENT-SEQ__lock__NUMBER        kazoo's Lock and WriteLock, __rlock__ for ReadLock
 *
 * They have a UUID there instead of CLIENT-SEQ, and look only at what follows it. */
#ifndef ZOOKEEPER_NAMES_H
#define ZOOKEEPER_NAMES_H

#include "store/store.h"
#include "store/zookeeper/codec.h"

struct names_form {
    const char *before, *after; /* the attempt id; `after` says whose claim this is */
};

struct names_layout {
    const char *word; /* in the URL */
    struct names_form exclusive, shared;
    bool is_foreign;  /* clients other than holdfast have claims here */
    bool keeps_locks; /* the nodes of locks are not containers: they stay */
};

/* The first is our own; the last has no word. */
extern const struct names_layout names_layouts[];

enum { NAMES_LOCK_SIZE = 3 * 255 + 1, NAMES_CLAIM_SIZE = 96 };

/* `name` has at most 255 bytes. */
void names_encode(const char *name, char ret_node[NAMES_LOCK_SIZE]);
/* False: not a name that was encoded. */
bool names_decode(struct codec_text node, char ret_name[256]);

/* A claim without its number, for the server to add. */
void names_format_claim(const struct names_layout *layout, const struct store_op *op,
                        const uint8_t client[16], char ret_claim[NAMES_CLAIM_SIZE]);

struct names_claim {
    uint8_t kind;    /* enum store_kind */
    bool is_foreign; /* not holdfast's: it has no attempt id */
    bool is_unknown; /* not of this layout either: its client ignores our claims */
    uint32_t capacity, weight;
    uint8_t client[16];
    uint64_t seq;
    int32_t number;
    char node[NAMES_CLAIM_SIZE];
};

/* False: not a claim. */
bool names_parse_claim(const struct names_layout *layout, struct codec_text node,
                       struct names_claim *ret);

/* The claims among a lock's children, in the order in which they came; to be freed. (Numbers wrap
 * around after 2^31.) HF_OK or HF_NO_MEMORY; a broken reply sets in->failed. */
int names_read_claims(const struct names_layout *layout, struct codec_in *in,
                      struct names_claim **ret_claims, size_t *ret_count);

/* How many of these hold the lock: as many as fit, starting with the first, and none after a claim
 * of another kind. So a holder keeps holding it when claims before it go away. */
size_t names_holders(const struct names_claim *claims, size_t count);

#endif
