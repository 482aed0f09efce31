/* What holdfast watch knows: who holds which lock and who waits for it, as polls and changes have
 * shown so far. A party is identified by its lock and its owner id, which belongs to one attempt:
 * it stays the same when a waiter becomes the holder. */
#ifndef CLI_WATCH_KNOWN_H
#define CLI_WATCH_KNOWN_H

#include "cli/cli.h"

struct known_party {
    hf_party info;
    bool holds;         /* else it waits */
    bool is_missing;    /* the last poll did not find it */
    bool is_over;       /* its end was reported; the store may still announce it */
    int64_t updated_ms; /* CLOCK_BOOTTIME; info.left_ms was true then or a little earlier */
    char strings[];
};

struct known_lock {
    hf_lock_info info; /* name, kind, capacity */
    struct known_party **parties;
    size_t count, room;
    size_t at;             /* where to look first: most are asked for in their order */
    uint64_t changed_poll; /* the last poll that had begun when the last change came */
    char name[];
};

/* The locks, in the order of their names. */
struct known {
    struct known_lock **locks;
    size_t count, room;
};

void known_free(struct known *known);

struct known_lock *known_find(const struct known *known, const char *name); /* NULL: none */
/* The same, and adds one that is not known, without parties. NULL: no memory. */
struct known_lock *known_get(struct known *known, const hf_lock_info *info);
void known_remove(struct known *known, size_t index);

struct known_party *known_party(struct known_lock *lock, const char *owner); /* NULL: none */
/* Adds a copy. NULL: no memory. */
struct known_party *known_add(struct known_lock *lock, const hf_party *party, bool holds);
void known_drop(struct known_lock *lock, const struct known_party *party);

#endif
