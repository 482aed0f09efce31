/* The inside of the real world: what its files share. real.c has clocks, timers, watches and bells;
 * stream.c the streams; lookup.c resolves names for them; search.c for callers that want only the
 * addresses. */
#ifndef WORLD_REAL_H
#define WORLD_REAL_H

#include "world/world.h"

#include <netdb.h>
#include <sys/epoll.h>

enum { REAL_EVENTS_AT_ONCE = 64 };

struct real_slot {
    struct world_watch *watch; /* NULL: free */
    uint32_t generation;
};

struct real {
    struct world world;
    int timer_fd, ring_fd;
    struct world_watch timer_watch, ring_watch;
    struct real_slot *slots;
    uint32_t slot_count;
    atomic_uint anchoring; /* odd while the anchor is being moved */
    _Atomic int64_t now_us, anchor_boot_us, anchor_raw_us;
    struct epoll_event events[REAL_EVENTS_AT_ONCE];
    int event_count;

    atomic_bool sent; /* something was sent since the last wait started: an answer may be near */
    unsigned spins_missed, spins_left_out; /* in a row; and to be skipped because of that */

    struct list streams, searches;
    struct list unflushed;       /* streams that something was queued for */
    struct world_bell looked_up; /* a look-up has ended */
    struct stream *reading;      /* whose `received` is running; NULL if that closed it */
    char *bytes;                 /* the streams' buffer for reading; NULL: no stream yet */
};

static inline struct real *real_of(struct world *world) {
    return container_of(world, struct real, world);
}

/* ---- Streams ---- */

int stream_open(struct world_stream *owner);
int stream_send(struct world_stream *owner, const void *bytes, size_t size);
void stream_flush(struct world *world);
void stream_close(struct world_stream *owner);
void stream_looked_up(struct real *real);

/* Called when the world closes; it has no timers any more. In a forked child this closes only the
 * child's copies of the descriptors: it does not affect the connections, nor the epoll, which the
 * parent shares. */
void stream_discard_all(struct real *real);

/* ---- Searches: world_look_up ---- */

int search_start(struct world *world, struct world_lookup *owner, const char *host,
                 int64_t timeout_us);
void search_stop(struct world *world, struct world_lookup *owner);
void search_looked_up(struct real *real);
void search_discard_all(struct real *real); /* as stream_discard_all */

/* ---- Looking up names ---- */

struct lookup;

/* Reads a numeric address ("10.0.0.1", "fe80::1%eth0"); *ret_found is NULL if it is not one. HF_OK
 * or HF_NO_MEMORY. Free the result with freeaddrinfo. */
int lookup_literal(const char *host, uint16_t port, struct addrinfo **ret_found);

/* Starts to look up a name, on a thread of its own if threads are allowed, and rings when that is
 * done. HF_OK, HF_SYSTEM or HF_NO_MEMORY. */
int lookup_start(struct world_bell *bell, bool threads, const char *host, uint16_t port,
                 struct lookup **ret_lookup);

/* False: it is still running. True: it has ended and is freed. *ret_found is the caller's to free;
 * it is NULL after a failure, and *ret_why says why. */
bool lookup_take(struct lookup *lookup, struct addrinfo **ret_found, const char **ret_why);

/* Discards the result. Never waits for the name service; the bell is not used afterwards. */
void lookup_abandon(struct lookup *lookup);

#endif
