/* Who drives.
 *
 * Somebody must wait for the outside: for answers of the store, for timers. Handing every call to a thread
 * of its own for that, and back, would cost two wake-ups for each. So the threads that wait for their
 * calls do it: one of them, the driver, waits in the world for everybody; the others sleep on their own
 * condition. Whoever leaves hands the drive on to the first who still waits, and whoever wakes looks
 * again whether its call is done and whether there is a driver: so no wake-up is lost and at no time do
 * two drive. models/drive.pml shows that, and what goes wrong without.
 *
 * When no thread of the program waits for anything, the keeper, a thread of the client's, sees to the
 * renewals. It keeps out of the way of those who drive: it takes the drive only when nobody has had it
 * for some 10 ms and the world has something ready.
 *
 * Nothing here calls the program: callbacks are for notice.c. */
#include "client/client.h"

#include "base/error.h"

#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { KEEPER_PATIENCE_US = 10000 };

void client_tell_time(hf_client *c) {
    engine_set_time(&c->engine, world_now_us(c->world), world_wall_us(c->world));
}

/* ---- Working off what was put out ---- */

void client_take_completed(hf_client *c) {
    struct list *node;
    if (list_empty(&c->completed))
        return;
    client_tell_time(c); /* the answers are as old as now, whenever they were asked for */
    while ((node = list_pop(&c->completed))) {
        struct store_op *op = container_of(node, struct store_op, link);
        if (op->type == STORE_ACQUIRE || op->type == STORE_RELEASE || op->type == STORE_RENEW)
            engine_completed(&c->engine, op);
        else
            call_op_completed(op);
    }
}

static void take_finished(hf_client *c) {
    struct list *node;
    while ((node = list_pop(&c->engine.news)))
        hold_had_news(container_of(node, struct hold, link));
    while ((node = list_pop(&c->engine.finished)))
        call_request_finished(container_of(node, struct request, link));
}

static bool submit_out(hf_client *c) {
    struct list out, *node;
    list_move(&c->engine.out, &out);
    bool any = !list_empty(&out);
    while ((node = list_pop(&out)))
        c->store->driver->submit(c->store, container_of(node, struct store_op, link));
    return any;
}

/* The kernel's timer is left alone when it is early enough: it then wakes somebody for nothing, once. */
static void set_timer(hf_client *c) {
    int64_t due_us = engine_due_us(&c->engine);
    if (due_us != ENGINE_NEVER && (!c->timer.node.place || due_us < c->timer.node.at))
        world_timer_set(c->world, &c->timer, due_us);
}

void client_take_answers(hf_client *c) {
    while (!list_empty(&c->completed) || !list_empty(&c->engine.finished) ||
           !list_empty(&c->engine.news)) {
        client_take_completed(c);
        take_finished(c);
    }
}

void client_pump(hf_client *c) {
    if (!c->world)
        return; /* closed */
    do
        client_take_answers(c);
    while (submit_out(c));
    world_flush(c->world);
    set_timer(c);
}

/* ---- Driving ---- */

/* Waits for the world, for everybody. */
static void drive(hf_client *c, struct waiter *me, int64_t at_most_us) {
    c->driver = me;
    c->driver_waits = true;
    pthread_mutex_unlock(&c->mutex);
    world_wait_for(c->world, at_most_us);
    pthread_mutex_lock(&c->mutex);
    c->driver_waits = false;
    client_tell_time(c);
    world_dispatch(c->world);
    client_pump(c);
    c->driver = NULL;
    c->drove_us = c->engine.now_us;
}

/* Wakes a thread: out of its sleep, or out of the world's wait if it drives. */
void client_signal(hf_client *c, struct waiter *waiter) {
    if (c->driver != waiter)
        pthread_cond_signal(&waiter->cond);
    else if (c->driver_waits)
        world_bell_ring(&c->bell);
}

/* Somebody stops driving: the next who waits shall, or else the keeper know that nobody does. */
static void hand_on(hf_client *c) {
    if (c->driver)
        return;
    if (!list_empty(&c->waiting))
        client_signal(c, container_of(c->waiting.next, struct waiter, link));
    else if (c->keeper_sleeps)
        pthread_cond_signal(&c->keeper_cond);
}

static void add_us(struct timespec *time, int64_t us) {
    int64_t ns = time->tv_nsec + us % 1000000 * 1000;
    time->tv_sec += us / 1000000 + ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
}

/* Sleeps until the condition is signalled or `us` have passed (WORLD_NEVER: only then). */
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
    struct waiter me;
    client_init_cond(&me.cond);
    list_append(&c->waiting, &me.link);
    list_append(&call->waiters, &me.of_call);
    int64_t left;
    while (call->result == HF_PENDING && (left = left_us(c, until_us)) > 0) {
        if (c->driver)
            sleep_on(c, &me.cond, left);
        else
            drive(c, &me, left);
    }
    list_remove(&me.link);
    list_remove(&me.of_call);
    hand_on(c);
    pthread_cond_destroy(&me.cond);
}

void client_drain(hf_client *c, int64_t until_us) {
    struct waiter me;
    client_init_cond(&me.cond);
    list_append(&c->waiting, &me.link);
    while ((c->engine.hold_count && left_us(c, until_us) > 0) || c->driver ||
           c->waiting.next->next != &c->waiting) {
        /* Those whose calls were completed by the closing have been signalled and leave by themselves. */
        if (c->driver || c->waiting.next->next != &c->waiting)
            sleep_on(c, &me.cond, KEEPER_PATIENCE_US);
        else
            drive(c, &me, left_us(c, until_us));
    }
    list_remove(&me.link);
    pthread_cond_destroy(&me.cond);
}

/* ---- The keeper ---- */

static void keeper_sleep(hf_client *c, int64_t us) {
    c->keeper_sleeps = true;
    sleep_on(c, &c->keeper_cond, us);
    c->keeper_sleeps = false;
}

static void wait_until_ready(hf_client *c) {
    pthread_mutex_unlock(&c->mutex);
    struct pollfd world = {.fd = c->world->fd, .events = POLLIN};
    poll(&world, 1, -1);
    pthread_mutex_lock(&c->mutex);
}

static int64_t idle_us(hf_client *c) {
    return world_now_us(c->world) - c->drove_us;
}

static void *keeper_main(void *arg) {
    hf_client *c = arg;
    struct waiter me = {0}; /* it never waits for a call, and so needs no condition */
    pthread_mutex_lock(&c->mutex);
    while (!c->keeper_stops) {
        if (c->driver) {
            keeper_sleep(c, WORLD_NEVER);
        } else if (idle_us(c) < KEEPER_PATIENCE_US) {
            sleep_on(c, &c->keeper_cond, KEEPER_PATIENCE_US);
        } else {
            wait_until_ready(c);
            if (!c->driver && idle_us(c) >= KEEPER_PATIENCE_US && !c->keeper_stops) {
                drive(c, &me, 0);
                c->drove_us = 0; /* its own turns do not count: what is due next is its business */
                hand_on(c);
            }
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* With all signals blocked: they belong to the program's threads. */
int client_start_thread(pthread_t *ret_thread, void *(*main)(void *), hf_client *c) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret_thread, NULL, main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? error_set(HF_SYSTEM, "cannot start a thread: %s", strerror(error)) : HF_OK;
}

int client_start_keeper(hf_client *c) {
    if (c->keeper_runs || !c->world->threads)
        return HF_OK;
    int r = client_start_thread(&c->keeper, keeper_main, c);
    c->keeper_runs = r == HF_OK;
    return r;
}

void client_stop_keeper(hf_client *c) {
    if (!c->keeper_runs)
        return;
    pthread_mutex_lock(&c->mutex);
    c->keeper_stops = true;
    pthread_cond_signal(&c->keeper_cond);
    world_bell_ring(&c->bell);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->keeper, NULL);
}
