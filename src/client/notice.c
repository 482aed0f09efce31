/* The program's callbacks, and its own loop.
 *
 * A callback that is due is a notice in the client's list. Notices run without the mutex, one at a
 * time. hf_process runs them if the program has called hf_fd, or else the dispatcher, a thread that
 * does nothing else. A thread that drives never runs them: a callback that blocks must not delay a
 * renewal. A callback may end its thread (pthread_exit); others then run the rest.
 *
 * hf_fd is an epoll descriptor that watches two others: the world's own (something is ready to be
 * driven) and an eventfd (callbacks or completed calls are ready for the program). One would not
 * do, because any driver empties the first, and only the program empties the second. What
 * hf_process itself completes needs no signal: the program calls hf_call_next after it. With a
 * store that blocks there is only the eventfd: the standby thread drives, since hf_process must not
 * wait. */
#include "client/client.h"

#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool has_loop(const hf_client *c) {
    return c->loop_fd >= 0 || !c->world->threads;
}

static void has_run(hf_client *c) {
    c->running = NULL;
    pthread_cond_broadcast(&c->ran);
}

static void exited(void *arg) {
    hf_client *c = arg;
    if (!client_lock(c))
        return;
    has_run(c);
    client_unlock(c);
}

/* Runs the first notice, without the mutex. False, and the mutex is not held, in a child that the
 * callback has forked and that returns here. */
static bool run_first(hf_client *c) {
    c->running = container_of(list_pop(&c->notices), struct notice, link);
    c->runner = pthread_self();
    struct notice *notice = c->running;
    pthread_mutex_unlock(&c->mutex);
    pthread_cleanup_push(exited, c);
    notice->run(notice); /* after this it may have been freed */
    pthread_cleanup_pop(0);
    if (!client_lock(c))
        return false;
    has_run(c);
    return true;
}

bool notice_run_all(hf_client *c) {
    while (!c->running && !list_empty(&c->notices)) {
        if (!run_first(c))
            return false;
    }
    return true;
}

/* A callback ended the dispatcher: starts another. */
static void dispatcher_exited(void *arg) {
    hf_client *c = arg;
    if (!client_lock(c))
        return;
    if (!c->dispatcher_stops) { /* else notice_stop joins it */
        pthread_detach(pthread_self());
        c->dispatcher_runs = false;
        notice_prepare(c);
    }
    client_unlock(c);
}

static void dispatch(hf_client *c) {
    pthread_mutex_lock(&c->mutex);
    while (!c->dispatcher_stops) {
        if (c->loop_fd < 0 && !notice_run_all(c))
            return;
        if (!c->dispatcher_stops)
            pthread_cond_wait(&c->dispatcher_cond, &c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
}

static void *dispatcher_main(void *arg) {
    cancel_disable();
    pthread_cleanup_push(dispatcher_exited, arg);
    dispatch(arg);
    pthread_cleanup_pop(0);
    return NULL;
}

int notice_prepare(hf_client *c) {
    if (c->closed || has_loop(c) || c->dispatcher_runs)
        return HF_OK;
    int r = client_start_thread(&c->dispatcher, dispatcher_main, c);
    c->dispatcher_runs = r == HF_OK;
    return r;
}

void notice_signal(hf_client *c) {
    if (c->signal_fd < 0 || c->signalled || c->processing)
        return;
    world_signal(c->signal_fd);
    c->signalled = true;
}

void notice_add(hf_client *c, struct notice *notice, void (*run)(struct notice *)) {
    notice->run = run;
    list_append(&c->notices, &notice->link);
    if (c->dispatcher_runs)
        pthread_cond_signal(&c->dispatcher_cond);
    notice_signal(c);
}

void notice_drop(hf_client *c, struct notice *notice) {
    static struct notice freed; /* stands for a notice that freed itself while it ran */
    list_remove(&notice->link);
    if (c->running != notice)
        return;
    int cancelling = cancel_disable();
    while (c->running == notice && !pthread_equal(c->runner, pthread_self()))
        pthread_cond_wait(&c->ran, &c->mutex);
    cancel_restore(cancelling);
    if (c->running == notice)
        c->running = &freed; /* another notice may soon have its address */
}

void notice_stop(hf_client *c) {
    pthread_mutex_lock(&c->mutex);
    c->dispatcher_stops = true;
    if (c->dispatcher_runs) {
        pthread_cond_signal(&c->dispatcher_cond);
        pthread_mutex_unlock(&c->mutex);
        pthread_join(c->dispatcher, NULL);
        pthread_mutex_lock(&c->mutex);
    }
    while (c->running)
        pthread_cond_wait(&c->ran, &c->mutex);
    if (notice_run_all(c))
        pthread_mutex_unlock(&c->mutex);
}

/* ---- The program's loop ---- */

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void notice_close_fds(hf_client *c) {
    close_fd(&c->loop_fd);
    close_fd(&c->signal_fd);
}

static int add_to(int epoll_fd, int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int open_loop(hf_client *c) {
    int loop_fd = epoll_create1(EPOLL_CLOEXEC);
    c->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop_fd < 0 || c->signal_fd < 0 || add_to(loop_fd, c->signal_fd) < 0 ||
        (!c->store_blocks && add_to(loop_fd, c->world->fd) < 0)) {
        int error = errno;
        close_fd(&loop_fd);
        close_fd(&c->signal_fd);
        return error_set(HF_SYSTEM, "cannot make a descriptor for hf_fd: %s", strerror(error));
    }
    c->loop_fd = loop_fd;
    notice_signal(c); /* calls may have completed before this descriptor existed */
    return HF_OK;
}

int hf_fd(hf_client *c) {
    int r = client_enter(c);
    if (r < 0)
        return r;
    if (c->world->fd < 0)
        r = error_set(HF_SYSTEM, "this world has no descriptors");
    else if (c->loop_fd < 0)
        r = open_loop(c);
    int fd = r < 0 ? r : c->loop_fd;
    client_unlock(c);
    return fd;
}

static void clear_signal(hf_client *c) {
    uint64_t count;
    if (c->signalled && read(c->signal_fd, &count, sizeof(count)) > 0)
        c->signalled = false;
}

/* False, and the mutex is not held, in a child that a callback has forked. */
static bool process(hf_client *c) {
    clear_signal(c);
    if (!c->store_blocks && !c->driver) {
        c->processing = true; /* the program is here: it needs no signal */
        world_wait_for(c->world, 0);
        world_dispatch(c->world);
        client_pump(c);
        c->processing = false;
        c->drove_us = c->engine.now_us;
    }
    return !has_loop(c) || notice_run_all(c);
}

static void leave(hf_client *c) {
    if (!list_empty(&c->notices))
        notice_signal(c); /* this call could not run them all */
    client_unref(c);
}

/* A callback ended the thread, so it will not call hf_call_next: signals, so that another thread
 * does. */
static void process_exited(void *arg) {
    hf_client *c = arg;
    if (client_lock(c))
        notice_signal(c);
    client_unref(c);
}

int hf_process(hf_client *c) {
    int r = client_enter(c);
    if (r < 0)
        return r;
    int cancelling = cancel_disable();
    client_ref(c);
    pthread_cleanup_push(process_exited, c);
    if (!process(c))
        r = error_set_text(HF_FORKED, NULL);
    pthread_cleanup_pop(0);
    if (r < 0)
        client_unref(c);
    else
        leave(c);
    cancel_restore(cancelling);
    return r;
}
