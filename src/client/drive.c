/* Which thread drives.
 *
 * Some thread must wait for the store's answers and for timers. A dedicated thread would cost two
 * wake-ups for each call: one there and one back. So the threads that are blocked in calls do it
 * themselves. One of them, the driver, waits in the world for all; the others sleep, each on its
 * own word. When the driver leaves, it hands over to the first thread that is still blocked. A
 * thread that wakes checks again whether its call is done and whether there is a driver. So no
 * wake-up is lost, and two threads never drive at once. models/drive.pml shows that, and what goes
 * wrong without each step.
 *
 * When a driver has completed calls of other threads, it wakes those threads after it has released
 * the mutex, since each of them needs it next. Then it lets them run before it goes on, and sends
 * what they put out in one write. With 64 threads, a write carries the requests of dozens.
 *
 * While no thread of the program is blocked in a call, the standby thread, which is the client's
 * own, renews the holds. It stays out of the way of other drivers: it drives only if nobody has for
 * about 10 ms and the world has something ready. When it finds another thread driving, it sleeps
 * for 50 ms; if the same thread is then still driving, it sleeps until that thread leaves. During
 * the 50 ms it is woken only if something is due before they end, or if a call is pending that no
 * thread waits for: a wake-up would cost each hand-off of a contended lock two switches between
 * threads.
 *
 * One thread at a time is inside: it calls the store and its world. Before it leaves, it submits
 * the operations that others put out meanwhile. A store that blocks (STORE_BLOCKS) is called
 * without the mutex. Three rules keep other threads from waiting for it:
 *   - calls that do not block never go inside; the standby thread submits what they put out. The
 *     same holds for threads that wait for a limited time;
 *   - the guard, another thread of the client, never goes inside. It makes the engine do what is
 *     due if nobody else does: deadlines need no store;
 *   - a thread that finds another inside sleeps, and is woken if its call is done meanwhile.
 *
 * Nothing here calls the program: notice.c runs its callbacks. */
#include "client/client.h"

#include "base/cancel.h"
#include "base/error.h"
#include "world/sleep.h"

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    STANDBY_PATIENCE_US = 10000,
    STANDBY_BREAK_US = 50000, /* the standby thread's sleep when others drive */
    GUARD_PATIENCE_US = 5000, /* how long the guard leaves what is due to other threads */
    ROUNDS_INSIDE = 64        /* to submit other threads' operations; then another takes over */
};

void client_update_time(hf_client *c) {
    engine_set_time(&c->engine, world_now_us(c->world), world_wall_us(c->world));
}

static int64_t client_due_us(const hf_client *c) {
    int64_t engine_us = engine_due_us(&c->engine), count_us = count_due_us(c);
    return engine_us < count_us ? engine_us : count_us;
}

void client_tick(hf_client *c) {
    engine_tick(&c->engine);
    count_tick(c);
}

/* ---- Processing what was put out ---- */

void client_take_completed(hf_client *c) {
    struct list *link;
    if (list_empty(&c->completed))
        return;
    /* Answers are judged by the current time. (The wall clock matters only for new requests; the
     * thread has read it when it entered the client or drove.) */
    engine_set_time(&c->engine, world_now_us(c->world), c->engine.wall_us);
    while ((link = list_pop(&c->completed))) {
        struct store_op *op = container_of(link, struct store_op, link);
        if (op->type == STORE_COUNT)
            count_op_completed(op);
        else if (op->type == STORE_RENEW || op->seq)
            engine_completed(&c->engine, op);
        else if (op == &c->watch_op)
            watch_op_completed(c);
        else
            call_op_completed(op);
    }
}

static void take_finished(hf_client *c) {
    struct list *link;
    while (!list_empty(&c->engine.news) || !list_empty(&c->engine.finished)) {
        while ((link = list_pop(&c->engine.news)))
            hold_had_news(container_of(link, struct hold, link));
        while ((link = list_pop(&c->engine.finished)))
            call_request_finished(container_of(link, struct request, link));
    }
}

/* Operations may have waited for another thread to leave the store: their time counts from now. */
static void update_times(hf_client *c, struct list *out) {
    client_update_time(c);
    list_each(link, out)
        engine_submitting(&c->engine, container_of(link, struct store_op, link));
}

static bool submit_out(hf_client *c) {
    struct list out, *link;
    if (list_empty(&c->engine.out))
        return false;
    list_move(&c->engine.out, &out);
    if (c->store_blocks)
        update_times(c, &out);
    client_to_store(c);
    while ((link = list_pop(&out)))
        c->store->driver->submit(c->store, container_of(link, struct store_op, link));
    client_from_store(c);
    return true;
}

/* Does not touch the kernel's timer if it is early enough: that costs one needless wake-up at
 * most. */
static void set_timer(hf_client *c) {
    int64_t due_us = client_due_us(c);
    if (due_us != ENGINE_NEVER && (!c->timer.node.place || due_us < c->timer.node.at))
        world_timer_set(c->world, &c->timer, due_us);
}

void client_take_answers(hf_client *c) {
    do {
        client_take_completed(c);
        take_finished(c);
    } while (!list_empty(&c->completed));
}

/* ---- Inside ---- */

/* A thread that takes the mutex meanwhile must not see a lost hold in a group that is not lost. */
void client_to_store(hf_client *c) {
    if (!c->store_blocks)
        return;
    take_finished(c);
    pthread_mutex_unlock(&c->mutex);
}

void client_from_store(hf_client *c) {
    if (c->store_blocks)
        pthread_mutex_lock(&c->mutex);
}

static bool may_go_inside(const hf_client *c) {
    return !c->inside && !list_empty(&c->engine.out);
}

static void wake_standby(hf_client *c) {
    pthread_cond_signal(&c->standby_cond);
    if (c->standby_polls)
        world_bell_ring(&c->bell);
}

/* Wakes the guard if something is due earlier than what it waits for. */
static void set_guard(hf_client *c) {
    int64_t due_us = client_due_us(c);
    if (due_us >= c->guarded_us)
        return;
    c->guarded_us = due_us;
    pthread_cond_signal(&c->guard_cond);
}

/* Nobody drives any more: wakes the standby thread, unless it will wake by itself by due_us. */
static void rouse_standby(hf_client *c, int64_t due_us) {
    bool looks = c->standby_wakes_us != WORLD_NEVER && c->standby_wakes_us <= due_us;
    if (c->standby_sleeps && !looks)
        pthread_cond_signal(&c->standby_cond);
}

/* The same, but wakes it at once if calls are pending: perhaps no thread waits for them, and their
 * answers may come now. */
static void leave_to_standby(hf_client *c) {
    rouse_standby(c, list_empty(&c->calls) ? client_due_us(c) : 0);
}

static void hand_on(hf_client *c);

static void go_inside(hf_client *c, bool dispatches) {
    int cancelling = c->store_is_quick ? 0 : cancel_disable();
    c->inside = true;
    if (dispatches) {
        client_to_store(c);
        world_dispatch(c->world);
        client_from_store(c);
    }
    int rounds = 0;
    do
        client_take_answers(c);
    while (rounds++ < ROUNDS_INSIDE && submit_out(c));
    if (!c->driver_flushes) {
        client_to_store(c);
        world_flush(c->world);
        client_from_store(c);
    }
    set_timer(c);
    c->inside = false;
    if (c->store_blocks) {
        if (!list_empty(&c->engine.out))
            wake_standby(c);
        hand_on(c);
    }
    if (!c->store_is_quick)
        cancel_restore(cancelling);
}

void client_pump(hf_client *c) {
    if (!c->world)
        return; /* closed */
    if (c->inside)
        take_finished(c);
    else
        go_inside(c, false);
    if (!c->driver)
        rouse_standby(c, client_due_us(c));
    if (c->store_blocks)
        set_guard(c);
}

void client_post(hf_client *c) {
    if (!c->store_blocks) {
        client_pump(c);
        if (!c->driver)
            leave_to_standby(c);
        return;
    }
    take_finished(c);
    if (may_go_inside(c))
        wake_standby(c);
    set_guard(c);
}

/* ---- Driving ---- */

/* Wakes threads whose calls are done, without the mutex, which they need next. Lets them run, and
 * then sends everything that they have put out in one write. */
static void wake(hf_client *c, const struct waking *waking) {
    c->driver_flushes = true;
    pthread_mutex_unlock(&c->mutex);
    world_wake_all(waking->words, waking->count);
    sched_yield();
    pthread_mutex_lock(&c->mutex);
    c->driver_flushes = false;
    go_inside(c, false);
}

/* Wakes the threads of completed calls together at the end. If the store blocks they are woken at
 * once, because this thread may be stuck in the store. */
static void dispatch(hf_client *c) {
    struct waking waking;
    waking.count = 0;
    c->waking = c->store_blocks ? NULL : &waking;
    go_inside(c, true);
    c->waking = NULL;
    if (waking.count)
        wake(c, &waking);
}

/* Waits in the world on behalf of all threads, and dispatches what is ready. */
static void drive(hf_client *c, struct blocked_thread *me, int64_t at_most_us) {
    c->driver = me;
    c->driver_waits = true;
    pthread_mutex_unlock(&c->mutex);
    world_wait_for(c->world, at_most_us);
    pthread_mutex_lock(&c->mutex);
    c->driver_waits = false;
    client_update_time(c);
    if (!c->inside) /* else what is ready stays ready */
        dispatch(c);
    c->driver = NULL;
    c->drove_us = c->engine.now_us;
}

/* Wakes a thread from its sleep, or from its wait in the world if it drives. */
void client_signal(hf_client *c, struct blocked_thread *thread) {
    struct waking *waking = c->waking;
    if (c->driver == thread) {
        if (c->driver_waits)
            world_bell_ring(&c->bell);
    } else if (!atomic_exchange(&thread->is_awake, 1)) {
        if (waking && waking->count < sizeof(waking->words) / sizeof(waking->words[0]))
            waking->words[waking->count++] = &thread->is_awake;
        else
            world_wake(&thread->is_awake);
    }
}

/* After driving: wakes the next blocked thread to drive, or else the standby thread. */
static void hand_on(hf_client *c) {
    if (c->driver)
        return;
    if (!list_empty(&c->blocked))
        client_signal(c, container_of(c->blocked.next, struct blocked_thread, link));
    else
        leave_to_standby(c);
}

static void add_us(struct timespec *time, int64_t us) {
    int64_t ns = time->tv_nsec + us % 1000000 * 1000;
    time->tv_sec += us / 1000000 + ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
}

/* Sleeps until the condition is signalled or `us` have passed (WORLD_NEVER: no limit). */
static void sleep_on(hf_client *c, pthread_cond_t *cond, int64_t us) {
    if (us == WORLD_NEVER) {
        pthread_cond_wait(cond, &c->mutex);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    add_us(&until, us);
    pthread_cond_timedwait(cond, &c->mutex, &until);
}

/* Sleeps until it is signalled or `us` have passed. */
static void sleep_in_call(hf_client *c, struct blocked_thread *me, int64_t us) {
    atomic_store(&me->is_awake, 0);
    pthread_mutex_unlock(&c->mutex);
    world_sleep(&me->is_awake, us);
    pthread_mutex_lock(&c->mutex);
    atomic_store(&me->is_awake, 1);
}

static int64_t left_us(hf_client *c, int64_t until_us) {
    return until_us == WORLD_NEVER ? WORLD_NEVER : until_us - world_now_us(c->world);
}

void client_init_cond(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

void client_await(hf_client *c, hf_call *call, int64_t until_us) {
    if (call->result != HF_PENDING)
        return;
    int cancelling = cancel_disable();
    bool drives = !c->store_blocks || until_us == WORLD_NEVER;
    struct blocked_thread me = {.is_awake = 1};
    list_init(&me.link);
    if (drives)
        list_append(&c->blocked, &me.link);
    list_append(&call->blocked, &me.of_call);
    int64_t left;
    while (call->result == HF_PENDING && (left = left_us(c, until_us)) > 0) {
        if (drives && may_go_inside(c))
            client_pump(c);
        else if (!drives || c->driver || c->inside)
            sleep_in_call(c, &me, left);
        else
            drive(c, &me, left);
    }
    list_remove(&me.link);
    list_remove(&me.of_call);
    hand_on(c);
    cancel_restore(cancelling);
}

static bool others_are_here(const hf_client *c) {
    return c->driver || c->inside || c->blocked.next->next != &c->blocked;
}

void client_drain(hf_client *c, int64_t until_us) {
    struct blocked_thread *me = &c->closer;
    list_append(&c->blocked, &me->link);
    while ((c->engine.hold_count && left_us(c, until_us) > 0) || others_are_here(c)) {
        /* Threads whose calls the closing completed have been signalled and will leave. */
        if (others_are_here(c))
            sleep_in_call(c, me, STANDBY_PATIENCE_US);
        else if (may_go_inside(c))
            client_pump(c);
        else
            drive(c, me, left_us(c, until_us));
    }
    list_remove(&me->link);
}

/* ---- The standby thread ---- */

static void standby_sleep(hf_client *c, int64_t us) {
    c->standby_wakes_us = us == WORLD_NEVER ? WORLD_NEVER : world_now_us(c->world) + us;
    c->standby_sleeps = true;
    sleep_on(c, &c->standby_cond, us);
    c->standby_sleeps = false;
}

static void wait_until_ready(hf_client *c) {
    c->standby_polls = true;
    pthread_mutex_unlock(&c->mutex);
    struct pollfd world = {.fd = c->world->fd, .events = POLLIN};
    poll(&world, 1, -1);
    pthread_mutex_lock(&c->mutex);
    c->standby_polls = false;
}

static int64_t idle_us(hf_client *c) {
    return world_now_us(c->world) - c->drove_us;
}

static void *standby_main(void *arg) {
    hf_client *c = arg;
    struct blocked_thread me = {0}; /* it never sleeps on its word */
    int64_t drove_us = -1;          /* c->drove_us when it last found somebody driving */
    cancel_disable();
    pthread_mutex_lock(&c->mutex);
    while (!c->standby_stops) {
        if (c->store_blocks && may_go_inside(c)) {
            client_pump(c);
            notice_signal(c); /* the program's loop does not watch this world */
        } else if (c->driver || c->inside) {
            bool for_long = drove_us == c->drove_us;
            drove_us = c->drove_us;
            standby_sleep(c, for_long ? WORLD_NEVER : STANDBY_BREAK_US);
        } else if (idle_us(c) < STANDBY_PATIENCE_US) {
            sleep_on(c, &c->standby_cond, STANDBY_PATIENCE_US);
        } else {
            wait_until_ready(c);
            if (!c->driver && idle_us(c) >= STANDBY_PATIENCE_US && !c->standby_stops) {
                drive(c, &me, 0);
                c->drove_us = 0; /* its own turns do not count: it also does what is due next */
                if (c->store_blocks)
                    notice_signal(c);
                hand_on(c);
            }
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- The guard ---- */

static void *guard_main(void *arg) {
    hf_client *c = arg;
    cancel_disable();
    pthread_mutex_lock(&c->mutex);
    while (!c->standby_stops) {
        client_update_time(c);
        int64_t due_us = client_due_us(c);
        int64_t early_us =
            due_us == ENGINE_NEVER ? WORLD_NEVER : due_us + GUARD_PATIENCE_US - c->engine.now_us;
        if (early_us > 0) {
            c->guarded_us = due_us;
            sleep_on(c, &c->guard_cond, early_us);
        } else {
            client_tick(c);
            client_post(c);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- Threads ---- */

/* With all signals blocked: they belong to the program's threads. */
int client_start_thread(pthread_t *ret_thread, void *(*main)(void *), hf_client *c) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret_thread, NULL, main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? error_set(HF_SYSTEM, "cannot start a thread: %s", strerror(error)) : HF_OK;
}

int client_start_standby(hf_client *c) {
    if (c->standby_runs || !c->world->threads)
        return HF_OK;
    int r = HF_OK;
    if (c->store_blocks && !c->guard_runs) {
        r = client_start_thread(&c->guard, guard_main, c);
        c->guard_runs = r == HF_OK;
    }
    if (!r)
        r = client_start_thread(&c->standby, standby_main, c);
    c->standby_runs = r == HF_OK;
    return r;
}

void client_stop_standby(hf_client *c) {
    pthread_mutex_lock(&c->mutex);
    c->standby_stops = true;
    wake_standby(c);
    pthread_cond_signal(&c->guard_cond);
    pthread_mutex_unlock(&c->mutex);
    if (c->standby_runs)
        pthread_join(c->standby, NULL);
    if (c->guard_runs)
        pthread_join(c->guard, NULL);
}
