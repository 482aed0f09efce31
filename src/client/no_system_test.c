/* A system call that fails (no descriptors, no threads, no memory of the kernel's), at every index:
 * a clear error, nothing left open, no lock that stays held.
 *
 * The linker sends the library's calls through here (--wrap, in tests/meson.build). */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>

enum { NEVER = -1 };

static _Thread_local long calls, fail_at = NEVER;

static bool fails(int error) {
    if (fail_at == NEVER || calls++ != fail_at)
        return false;
    errno = error;
    return true;
}

#define WRAP(type, name, error, failure, parameters, arguments)    \
    type __real_##name parameters;                                 \
    type __wrap_##name parameters;                                 \
    type __wrap_##name parameters {                                \
        return fails(error) ? (failure) : __real_##name arguments; \
    }

WRAP(int, epoll_create1, EMFILE, -1, (int flags), (flags))
WRAP(int, epoll_ctl, ENOSPC, -1, (int set, int what, int fd, struct epoll_event *event),
     (set, what, fd, event))
WRAP(int, eventfd, EMFILE, -1, (unsigned value, int flags), (value, flags))
WRAP(int, timerfd_create, EMFILE, -1, (int clock, int flags), (clock, flags))
WRAP(void *, mmap64, ENOMEM, MAP_FAILED,
     (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg),
     (thread, attributes, start, arg))

static int count_fds(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void fail_at_every_index(void (*story)(void)) {
    long index = 0;
    int fds = count_fds();
    for (bool more = true; more; index++) {
        calls = 0;
        fail_at = index;
        story();
        more = calls > index;
        fail_at = NEVER;
        CHECK_EQ_INT(count_fds(), fds);
    }
    CHECK(index > 1);
    printf("# %ld calls\n", index - 1);
}

static bool done(int r) {
    if (r < 0 && r != HF_SYSTEM)
        test_fail(__FILE__, __LINE__, "%s: %s", hf_error_name(r), hf_last_error());
    CHECK(r >= 0 || strstr(hf_last_error(), "a system call failed: "));
    return r >= 0;
}

static hf_client *open_unfailing(void) {
    long before = fail_at;
    fail_at = NEVER;
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:no-system", NULL, &client), HF_OK);
    fail_at = before;
    return client;
}

static void check_free(const char *name) {
    hf_client *other = open_unfailing();
    long before = fail_at;
    fail_at = NEVER;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(other, name, &options, &hold), HF_OK);
    hf_hold_free(hold);
    hf_client_close(other);
    fail_at = before;
}

static void open_and_close(void) {
    hf_client *client;
    if (done(hf_client_open("memory:no-system", NULL, &client)))
        hf_client_close(client);
}

/* The first in its process, so that the page that a fork wipes is made here as well. */
TEST(opening_a_client) {
    fail_at_every_index(open_and_close);
}

static void ignore(hf_hold *hold, void *arg) {
    (void)hold;
    (void)arg;
}

static void ignore_call(hf_call *call, void *arg) {
    (void)call;
    (void)arg;
}

static void acquire_and_release(void) {
    hf_client *a = open_unfailing(), *b = open_unfailing(); /* b keeps the space */
    hf_hold *hold = NULL;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.on_lost = ignore;
    if (done(hf_acquire(a, "x", &options, &hold))) {
        done(hf_hold_fd(hold));
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        CHECK_EQ_INT(hf_release(hold), HF_OK);
        hf_hold_free(hold);
    }
    check_free("x");
    hf_call *call;
    if (done(hf_acquire_start(a, "x", NULL, &call))) {
        done(hf_call_notify(call, ignore_call, NULL));
        hf_call_free(call);
    }
    check_free("x");
    hf_client_close(a);
    hf_client_close(b);
}

TEST(acquiring_and_releasing) {
    fail_at_every_index(acquire_and_release);
}

static void have_a_loop(void) {
    hf_client *a = open_unfailing();
    done(hf_fd(a));
    fail_at = NEVER;
    CHECK(hf_fd(a) >= 0); /* it may be asked for again */
    CHECK_EQ_INT(hf_process(a), HF_OK);
    hf_client_close(a);
}

TEST(asking_for_a_descriptor) {
    int fds = count_fds();
    for (fail_at = 0; fail_at < 4;) {
        long index = fail_at;
        calls = 0;
        have_a_loop();
        fail_at = index + 1;
        CHECK_EQ_INT(count_fds(), fds);
    }
}
