/* Looking at locks: what ls, inspect, watch and break share. It walks through the pages of a list,
 * and shows a lock and its parties to people and to programs. */
#ifndef CLI_LOOK_H
#define CLI_LOOK_H

#include "cli/cli.h"
#include "cli/json.h"

/* A walk through the locks whose names begin with `prefix` (NULL: all), in the order of the
 * names. */
struct look {
    hf_client *client;
    const char *prefix;
    char after[256];
    bool begun;
};

/* Returns the next page, which the caller frees; NULL after the last. HF_OK, or an error of the
 * library. One page at a time is in memory, however many locks there are. */
int look_next(struct look *look, hf_locks **ret_page);

/* Calls `fn` for each lock until it returns false. */
typedef bool look_fn(void *arg, const hf_lock_info *info);
int look_each(hf_client *client, const char *prefix, look_fn *fn, void *arg);

/* Milliseconds since the epoch, as hf_party has them. */
int64_t look_wall_ms(void);

/* The holder that has had the lock for longest; NULL: nobody holds it. */
const hf_party *look_first_holder(const hf_lock_info *info);
/* In a set: of those with too few votes, the one with the most; NULL: there is none. */
const hf_party *look_most_votes(const hf_lock_info *info);
const hf_party *look_holder_with(const hf_lock_info *info, uint64_t token); /* NULL: none */

/* ---- For people ---- */

enum { LOOK_PARTY_SIZE = 2600, LOOK_NAME_SIZE = 1100 };

/* Whether it is no process of holdfast's: the store knows only that somebody has the lock. */
bool look_is_foreign(const hf_party *party);

/* "web3 pid 411", or what is known of somebody foreign. Safe on a terminal. Returns `ret`. */
char *look_process(char *ret, size_t size, const hf_party *party);

/* The same with what it does: "web3 pid 411 (deploy.sh)". */
char *look_party(char *ret, size_t size, const hf_party *party);

/* "exclusive", "shared", or what is held out of what, "permits 2/5". Returns `ret`. */
char *look_kind(char *ret, size_t size, const hf_lock_info *info);

/* "2026-08-02 14:03:11", local time. Returns `ret`. */
char *look_time(char *ret, size_t size, int64_t wall_ms);

/* ---- For programs ---- */

/* Writes the fields of a lock into the current object; writes a party as an object. */
void look_put_lock(struct json *json, const hf_lock_info *info);
void look_put_party(struct json *json, const char *key, const hf_lock_info *info,
                    const hf_party *party);

#endif
