/* The port to the outside. The library gets time, randomness and I/O only through a world: the real
 * one (real.c), or another that a test or the simulator substitutes. No layer above it reads a
 * clock or a descriptor in any other way.
 *
 * A world belongs to one client and is not thread-safe: like the store, it is used by one thread at
 * a time. The exceptions: any thread may read the clocks and call world_bell_ring, and
 * world_wait_for is called by the one thread that drives, while others may set timers and watches.
 *
 * Clocks, all in microseconds:
 *   now   for deadlines: over any interval never slower than CLOCK_BOOTTIME nor than
 *         CLOCK_MONOTONIC_RAW. So it counts suspends and does not trust a slewed clock. Its zero
 *         is arbitrary.
 *   host  plain CLOCK_BOOTTIME, which the processes and threads of this host share: the "server's
 *         clock" of the stores on this host.
 *   wall  the time since the Unix epoch, as the host knows it. */
#ifndef WORLD_WORLD_H
#define WORLD_WORLD_H

#include "base/heap.h"
#include "base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WORLD_NEVER INT64_MAX

struct world;

/* Calls fn once when the time comes. */
struct world_timer {
    struct heap_node node;
    void (*fn)(struct world_timer *timer);
};

/* Calls fn while the descriptor is ready for one of `events` (EPOLLIN, EPOLLOUT), or on error. */
struct world_watch {
    int fd;
    uint32_t events;
    void (*fn)(struct world_watch *watch, uint32_t events);
    uint32_t slot;
};

/* Calls fn once, on the thread that drives, after any number of rings from anywhere. A bell without
 * fn only ends a wait. */
struct world_bell {
    struct list link;
    struct world *world;
    atomic_bool rung;
    void (*fn)(struct world_bell *bell);
};

/* Calls fn once, at the start of the next flush, however often it was asked for before that. That
 * is the time to send what the operations of many threads have left in a library's buffer. */
struct world_flusher {
    struct list link;
    void (*fn)(struct world_flusher *flusher);
};

/* Finds the addresses of a host for a library that connects on its own and would block everybody
 * while it resolves the name. `done` is called once, while the world dispatches: with numeric
 * addresses, or with none and a sentence that says why. Both are valid during the call. */
struct world_lookup {
    void (*done)(struct world_lookup *lookup, const char *const *addresses, size_t count,
                 const char *why);
    void *state; /* the world's; NULL: nothing is being looked up */
};

/* How far away an address is. Private: RFC 1918, unique local (fc00::/7) or link local. */
enum world_reach { WORLD_THIS_HOST, WORLD_PRIVATE, WORLD_PUBLIC };

struct sockaddr;
enum world_reach world_reach_of(const struct sockaddr *address);

/* The same of a host that is written as an address; false for a name. */
bool world_reach_of_text(const char *host, enum world_reach *ret_reach);

/* A stream of bytes to a server: a TCP connection, a unix socket, or what another world makes of
 * it. Its owner fills in `events`, `peer` and `farthest` before opening it; they must live as long
 * as the stream. The functions are called while the world dispatches, never from within a call to
 * the stream: `opened` once when bytes can flow, `received` for what came, `closed` once when it
 * could not be opened or has ended, with a sentence. Bytes and sentence are valid during the call.
 * After `closed` it may be opened again. The owner may close the stream in each of them. */
struct world_stream {
    struct world *world;
    const struct world_stream_events *events;
    const struct world_peer *peer;
    enum world_reach farthest; /* addresses that are farther away are never connected to */
    enum world_reach reach; /* of the address that was connected to, or refused; set by the world */
    void *state;            /* the world's; NULL: it is not open */
};

struct world_stream_events {
    void (*opened)(struct world_stream *stream);
    void (*received)(struct world_stream *stream, const char *bytes, size_t size);
    void (*closed)(struct world_stream *stream, const char *why);
};

/* Where a stream goes. A name is resolved each time the stream is opened, without blocking anybody;
 * its addresses are tried in turn, each for its share of the time. Those beyond `farthest` are left
 * out, and if there are no others the stream is closed, with `reach` above `farthest`. */
struct world_peer {
    const char *host; /* a name or an address; NULL: see path */
    uint16_t port;
    const char *path;   /* of a unix socket */
    int64_t timeout_us; /* for looking up and connecting together */
};

struct world_ops {
    int64_t (*now_us)(struct world *world);
    int64_t (*host_us)(struct world *world);
    int64_t (*wall_us)(struct world *world);
    void (*random)(struct world *world, void *bytes, size_t size);
    void (*arm)(struct world *world, int64_t at_us); /* end a wait at this time of `now` */
    int (*watch)(struct world *world, struct world_watch *watch);
    int (*change_watch)(struct world *world, struct world_watch *watch, uint32_t events);
    void (*unwatch)(struct world *world, struct world_watch *watch);
    void (*ring)(struct world *world);                         /* end the wait; from any thread */
    void (*wait_for)(struct world *world, int64_t at_most_us); /* until something is ready */
    void (*dispatch)(struct world *world);           /* call the watches that were ready */
    int (*open_stream)(struct world_stream *stream); /* these four: NULL without streams */
    int (*send)(struct world_stream *stream, const void *bytes, size_t size);
    void (*flush)(struct world *world);
    void (*close_stream)(struct world_stream *stream);
    /* These two: NULL in a world that no library connects from. */
    int (*look_up)(struct world *world, struct world_lookup *lookup, const char *host,
                   int64_t timeout_us);
    void (*stop_lookup)(struct world *world, struct world_lookup *lookup);
    void (*close)(struct world *world);
};

struct world {
    const struct world_ops *ops;
    int fd; /* readable when world_wait_for would not block; -1 where there are no descriptors */
    bool threads; /* whether the client may start threads of its own */
    struct heap timers;
    size_t timer_count; /* that were added, set or not */
    int64_t armed_us;
    struct list bells;
    struct list flushers; /* that are to be called at the next flush */
    bool will_hear;       /* it is dispatching, and will check the bells again */
};

/* The real world. HF_OK, HF_SYSTEM or HF_NO_MEMORY. */
int world_open_real(struct world **ret_world);
void world_close(struct world *world);

/* Initialises what all worlds have in common; for code that implements one. */
void world_init(struct world *world, const struct world_ops *ops);

static inline int64_t world_now_us(struct world *world) {
    return world->ops->now_us(world);
}
static inline int64_t world_host_us(struct world *world) {
    return world->ops->host_us(world);
}
static inline int64_t world_wall_us(struct world *world) {
    return world->ops->wall_us(world);
}
static inline void world_random(struct world *world, void *bytes, size_t size) {
    world->ops->random(world, bytes, size);
}

/* A timer must be added before it is set (HF_NO_MEMORY), and dropped before it goes away. Setting
 * and clearing cannot fail. The kernel is asked only when a timer becomes the earliest: an early
 * wake-up is harmless, a system call for each lock is not. */
int world_timer_add(struct world *world, struct world_timer *timer,
                    void (*fn)(struct world_timer *));
void world_timer_drop(struct world *world, struct world_timer *timer);
void world_timer_set(struct world *world, struct world_timer *timer, int64_t at_us);
void world_timer_clear(struct world *world, struct world_timer *timer);

/* HF_OK, HF_SYSTEM or HF_NO_MEMORY; after a failed change the watch is unchanged. A watch may be
 * removed at any time, even in its own fn, and its descriptor closed after that. A library may also
 * have closed the descriptor itself, and the number may be in use again, even for another watch:
 * removing a watch never touches another. */
int world_watch(struct world *world, struct world_watch *watch);
int world_watch_change(struct world *world, struct world_watch *watch, uint32_t events);
void world_unwatch(struct world *world, struct world_watch *watch);

void world_bell_add(struct world *world, struct world_bell *bell, void (*fn)(struct world_bell *));
void world_bell_drop(struct world_bell *bell);
void world_bell_ring(struct world_bell *bell);
/* The same, but only for the thread that uses the world: a ring while it dispatches is handled
 * before that ends, so it need not end a wait. */
void world_bell_ring_within(struct world_bell *bell);

/* Makes an eventfd readable. It is not a cancellation point. */
void world_signal(int event_fd);

/* HF_OK: it is being opened, and `opened` or `closed` follows. HF_SYSTEM or HF_NO_MEMORY: nothing
 * was started. */
int world_stream_open(struct world_stream *stream);

/* Queues bytes, all or (HF_NO_MEMORY) none of them. The stream must be open. They go out, with
 * everything else that was queued for this stream, in one write at the next flush. `closed` reports
 * a failure to write. */
int world_stream_send(struct world_stream *stream, const void *bytes, size_t size);

/* Closes it at once, in any state, and without an event. Bytes that were not flushed are lost. */
void world_stream_close(struct world_stream *stream);

/* A flusher must be initialised once, and dropped before it goes away. */
void world_flusher_init(struct world_flusher *flusher, void (*fn)(struct world_flusher *));
void world_flusher_drop(struct world_flusher *flusher);
/* Makes the next flush call it. */
void world_flusher_ask(struct world *world, struct world_flusher *flusher);

/* Calls the flushers that were asked for, then writes what was queued for all streams. */
void world_flush(struct world *world);

/* HF_OK: `done` will be called, after timeout_us at the latest, unless it is stopped. HF_SYSTEM or
 * HF_NO_MEMORY: nothing was started. Stopping never waits for the name service. */
int world_look_up(struct world *world, struct world_lookup *lookup, const char *host,
                  int64_t timeout_us);
void world_lookup_stop(struct world *world, struct world_lookup *lookup);

/* Waits until something is ready, but not longer than at_most_us (0: does not wait; WORLD_NEVER: no
 * limit). Then world_dispatch calls what is ready: watches, bells, timers. */
static inline void world_wait_for(struct world *world, int64_t at_most_us) {
    world->ops->wait_for(world, at_most_us);
}
void world_dispatch(struct world *world);

#endif
