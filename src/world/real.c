/* The real world: epoll, a timerfd on CLOCK_BOOTTIME, an eventfd for the bells. All code that
 * depends on Linux is in this folder.
 *
 * Design notes.
 *
 * `now` must run no slower than BOOTTIME (which counts suspends but is slewed by NTP) and no slower
 * than MONOTONIC_RAW (which is not slewed, but stops in suspend). So it adds up, interval by
 * interval, the larger of what the two have counted since an anchor. If a thread is preempted
 * between the two readings, they must not become an anchor: its pause would be counted twice. So
 * the anchor is moved at most once a second, and only by a reading that was not interrupted. Any
 * thread may read `now`: if the anchor is being moved, it reads again.
 *
 * A near server answers sooner than a sleeping core wakes up. So a wait that follows a write spins
 * for a moment before it sleeps: it checks whether something is ready, and yields its core between
 * checks. If the answer takes longer, or if somebody else used the core, it skips the next spin,
 * then two, four and so on up to 1024. So a slow server or a busy core costs next to nothing.
 *
 * epoll returns a slot and a generation, not a pointer: between the wait, without the mutex, and
 * the dispatch, with it, a watch may have been removed and its slot reused. */
#include "world/real.h"

#include <assert.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    ANCHOR_US = 1000000,
    INTERRUPTED_US = 1000,
    SPIN_US = 50,
    SHARED_US = 5, /* a yield takes this long if others use the core, else less than 1 */
    SPINS_MISSED_MOST = 10,
};

static int64_t clock_us(clockid_t id) {
    struct timespec time;
    clock_gettime(id, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static bool was_interrupted(int64_t since_boot_us) {
    return clock_us(CLOCK_BOOTTIME) - since_boot_us > INTERRUPTED_US;
}

static int64_t load(_Atomic int64_t *value) {
    return atomic_load_explicit(value, memory_order_acquire);
}

static void store(_Atomic int64_t *value, int64_t to) {
    atomic_store_explicit(value, to, memory_order_release);
}

/* Moves the anchor, unless another thread has moved it since it was read at `turn`. */
static void move_anchor(struct real *real, unsigned turn, int64_t boot_us, int64_t raw_us,
                        int64_t now_us) {
    if (!atomic_compare_exchange_strong(&real->anchoring, &turn, turn + 1))
        return;
    store(&real->anchor_boot_us, boot_us);
    store(&real->anchor_raw_us, raw_us);
    store(&real->now_us, now_us);
    atomic_store_explicit(&real->anchoring, turn + 2, memory_order_release);
}

static int64_t real_now_us(struct world *world) {
    struct real *real = real_of(world);
    unsigned turn;
    int64_t boot_us, raw_us, boot_passed, raw_passed, anchor_us;
    do {
        turn = atomic_load_explicit(&real->anchoring, memory_order_acquire);
        boot_us = clock_us(CLOCK_BOOTTIME);
        raw_us = clock_us(CLOCK_MONOTONIC_RAW);
        boot_passed = boot_us - load(&real->anchor_boot_us);
        raw_passed = raw_us - load(&real->anchor_raw_us);
        anchor_us = load(&real->now_us);
    } while (turn % 2 || turn != atomic_load_explicit(&real->anchoring, memory_order_relaxed));
    int64_t passed = boot_passed > raw_passed ? boot_passed : raw_passed;
    if (passed >= ANCHOR_US && !was_interrupted(boot_us))
        move_anchor(real, turn, boot_us, raw_us, anchor_us + passed);
    return anchor_us + passed;
}

static int64_t real_host_us(struct world *world) {
    (void)world;
    return clock_us(CLOCK_BOOTTIME);
}

/* Not the coarse clock, which moves only with the kernel's tick: the floor of a token should be
 * above the last token, even if that is a few microseconds old. Then stores need not read their own
 * clock (fast.lua). */
static int64_t real_wall_us(struct world *world) {
    (void)world;
    return clock_us(CLOCK_REALTIME);
}

static void real_random(struct world *world, void *bytes, size_t size) {
    (void)world;
    assert(size <= 256); /* up to this size getrandom never returns less */
    ssize_t got;
    do
        got = getrandom(bytes, size, 0);
    while (got < 0 && errno == EINTR);
    assert(got == (ssize_t)size);
}

/* The timer is relative, on the clock that runs in suspend. Because BOOTTIME is slewed, it may come
 * a little late or early; the thread that it wakes checks `now`. */
static void real_arm(struct world *world, int64_t at_us) {
    struct itimerspec spec = {0};
    if (at_us != WORLD_NEVER) {
        int64_t delay_us = at_us - real_now_us(world);
        if (delay_us < 1)
            delay_us = 1; /* 0 would disarm it */
        spec.it_value.tv_sec = delay_us / 1000000;
        spec.it_value.tv_nsec = delay_us % 1000000 * 1000;
    }
    int failed = timerfd_settime(real_of(world)->timer_fd, 0, &spec, NULL);
    assert(!failed);
    (void)failed;
}

static int free_slot(struct real *real, uint32_t *ret_slot) {
    for (uint32_t i = 0; i < real->slot_count; i++) {
        if (!real->slots[i].watch) {
            *ret_slot = i;
            return HF_OK;
        }
    }
    uint32_t count = real->slot_count ? real->slot_count * 2 : 8;
    struct real_slot *slots = realloc(real->slots, count * sizeof(*slots));
    if (!slots)
        return HF_NO_MEMORY;
    memset(slots + real->slot_count, 0, (count - real->slot_count) * sizeof(*slots));
    *ret_slot = real->slot_count;
    real->slots = slots;
    real->slot_count = count;
    return HF_OK;
}

static int update_epoll(struct real *real, int what, const struct world_watch *watch,
                        uint32_t events) {
    struct epoll_event event = {
        .events = events,
        .data.u64 = (uint64_t)watch->slot << 32 | real->slots[watch->slot].generation,
    };
    if (epoll_ctl(real->world.fd, what, watch->fd, &event) < 0)
        return errno == ENOMEM ? HF_NO_MEMORY : HF_SYSTEM;
    return HF_OK;
}

static int real_watch(struct world *world, struct world_watch *watch) {
    struct real *real = real_of(world);
    int r = free_slot(real, &watch->slot);
    if (r < 0)
        return r;
    struct real_slot *slot = &real->slots[watch->slot];
    slot->generation++;
    r = update_epoll(real, EPOLL_CTL_ADD, watch, watch->events);
    if (!r)
        slot->watch = watch;
    return r;
}

static int real_change_watch(struct world *world, struct world_watch *watch, uint32_t events) {
    struct real *real = real_of(world);
    assert(real->slots[watch->slot].watch == watch);
    int r = update_epoll(real, EPOLL_CTL_MOD, watch, events);
    if (!r)
        watch->events = events;
    return r;
}

/* Only one watch of a descriptor can be in the kernel's set. If there is a later one, this watch's
 * descriptor was closed, which removed it from the set, and its number was reused. */
static bool is_watched_again(const struct real *real, const struct world_watch *watch) {
    for (uint32_t i = 0; i < real->slot_count; i++) {
        const struct world_watch *other = real->slots[i].watch;
        if (other && other != watch && other->fd == watch->fd)
            return true;
    }
    return false;
}

static void real_unwatch(struct world *world, struct world_watch *watch) {
    struct real *real = real_of(world);
    struct real_slot *slot = &real->slots[watch->slot];
    assert(slot->watch == watch);
    slot->watch = NULL;
    if (!is_watched_again(real, watch))
        epoll_ctl(world->fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

static void real_ring(struct world *world) {
    world_signal(real_of(world)->ring_fd);
}

static void drain(struct world_watch *watch, uint32_t events) {
    (void)events;
    uint64_t count;
    if (read(watch->fd, &count, sizeof(count)) < 0)
        return; /* another thread was faster: nothing to drain */
}

/* The kernel's timer has expired, early or not, and is no longer set. */
static void timer_came(struct world_watch *watch, uint32_t events) {
    drain(watch, events);
    container_of(watch, struct real, timer_watch)->world.armed_us = WORLD_NEVER;
}

/* In the milliseconds of epoll_wait, rounded up; a minute at most, so that nothing overflows. */
static int timeout_ms(int64_t at_most_us) {
    int64_t most_us = 60 * INT64_C(1000000);
    if (at_most_us == WORLD_NEVER)
        return -1;
    if (at_most_us <= 0)
        return 0;
    return (int)(((at_most_us < most_us ? at_most_us : most_us) + 999) / 1000);
}

static void poll_events(struct real *real, int most_ms) {
    int count = epoll_wait(real->world.fd, real->events, REAL_EVENTS_AT_ONCE, most_ms);
    real->event_count = count > 0 ? count : 0; /* EINTR: a signal is for the program */
}

/* Looks for an answer for a moment. A spin has missed if no answer came, or if something else ran
 * on the core when this thread yielded it: then sleeping is cheaper, even if that was the
 * server. */
static void spin(struct real *real) {
    poll_events(real, 0);
    if (real->event_count)
        return; /* the server was faster than this thread, which says nothing about the next time */
    int64_t began_us = clock_us(CLOCK_MONOTONIC), now_us = began_us, before_us;
    do {
        before_us = now_us;
        sched_yield();
        poll_events(real, 0);
        now_us = clock_us(CLOCK_MONOTONIC);
    } while (!real->event_count && now_us - before_us < SHARED_US && now_us - began_us < SPIN_US);
    if (real->event_count && now_us - before_us < SHARED_US) {
        real->spins_missed = 0;
    } else {
        real->spins_left_out = 1u << real->spins_missed;
        real->spins_missed += real->spins_missed < SPINS_MISSED_MOST;
    }
}

static bool should_spin(struct real *real, int64_t at_most_us) {
    bool sent = atomic_exchange_explicit(&real->sent, false, memory_order_relaxed);
    if (!sent || at_most_us < SPIN_US)
        return false;
    if (!real->spins_left_out)
        return true;
    real->spins_left_out--;
    return false;
}

static void real_wait_for(struct world *world, int64_t at_most_us) {
    struct real *real = real_of(world);
    real->event_count = 0;
    if (should_spin(real, at_most_us))
        spin(real);
    if (!real->event_count)
        poll_events(real, timeout_ms(at_most_us));
}

static void real_dispatch(struct world *world) {
    struct real *real = real_of(world);
    for (int i = 0; i < real->event_count; i++) {
        uint64_t data = real->events[i].data.u64;
        struct real_slot *slot = &real->slots[data >> 32];
        if (slot->watch && slot->generation == (uint32_t)data)
            slot->watch->fn(slot->watch, real->events[i].events);
    }
    real->event_count = 0;
}

static void close_fd(int fd) {
    if (fd >= 0)
        close(fd);
}

static void looked_up(struct world_bell *bell) {
    struct real *real = container_of(bell, struct real, looked_up);
    stream_looked_up(real);
    search_looked_up(real);
}

static void real_close(struct world *world) {
    struct real *real = real_of(world);
    stream_discard_all(real);
    search_discard_all(real);
    close_fd(real->timer_fd);
    close_fd(real->ring_fd);
    close_fd(world->fd);
    free(real->slots);
    free(real);
}

static const struct world_ops real_ops = {
    .now_us = real_now_us,
    .host_us = real_host_us,
    .wall_us = real_wall_us,
    .random = real_random,
    .arm = real_arm,
    .watch = real_watch,
    .change_watch = real_change_watch,
    .unwatch = real_unwatch,
    .ring = real_ring,
    .wait_for = real_wait_for,
    .dispatch = real_dispatch,
    .open_stream = stream_open,
    .send = stream_send,
    .flush = stream_flush,
    .close_stream = stream_close,
    .look_up = search_start,
    .stop_lookup = search_stop,
    .close = real_close,
};

static int watch_own(struct real *real, struct world_watch *watch, int fd,
                     void (*fn)(struct world_watch *, uint32_t)) {
    *watch = (struct world_watch){.fd = fd, .events = EPOLLIN, .fn = fn};
    return fd < 0 ? HF_SYSTEM : world_watch(&real->world, watch);
}

int world_open_real(struct world **ret_world) {
    struct real *real = calloc(1, sizeof(*real));
    if (!real)
        return HF_NO_MEMORY;
    world_init(&real->world, &real_ops);
    real->world.threads = true;
    list_init(&real->streams);
    list_init(&real->searches);
    list_init(&real->unflushed);
    world_bell_add(&real->world, &real->looked_up, looked_up);
    do {
        real->anchor_boot_us = clock_us(CLOCK_BOOTTIME);
        real->anchor_raw_us = clock_us(CLOCK_MONOTONIC_RAW);
    } while (was_interrupted(real->anchor_boot_us));
    real->world.fd = epoll_create1(EPOLL_CLOEXEC);
    real->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    real->ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = real->world.fd < 0 ? HF_SYSTEM : HF_OK;
    if (!r)
        r = watch_own(real, &real->timer_watch, real->timer_fd, timer_came);
    if (!r)
        r = watch_own(real, &real->ring_watch, real->ring_fd, drain);
    if (r < 0) {
        world_close(&real->world);
        return r;
    }
    *ret_world = &real->world;
    return HF_OK;
}
