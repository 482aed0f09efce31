/* A system call that fails (no descriptors, no threads, no kernel memory), at every index: a clear
 * error, nothing left open, no lock that stays held. */
#include "check.h"
#include "support/failing.h"

#include <dirent.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>

FAILING_CALL(int, epoll_create1, EMFILE, -1, (int flags), (flags))
FAILING_CALL(int, epoll_ctl, ENOSPC, -1, (int set, int what, int fd, struct epoll_event *event),
             (set, what, fd, event))
FAILING_CALL(int, eventfd, EMFILE, -1, (unsigned value, int flags), (value, flags))
FAILING_CALL(int, timerfd_create, EMFILE, -1, (int clock, int flags), (clock, flags))
FAILING_CALL(void *, mmap64, ENOMEM, MAP_FAILED,
             (void *at, size_t size, int protection, int flags, int fd, off_t offset),
             (at, size, protection, flags, fd, offset))
FAILING_CALL(int, pthread_create, EAGAIN, EAGAIN,
             (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *),
              void *arg),
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

static void fail_at_every_call(void (*story)(void)) {
    int fds = count_fds(), failures = 0;
    while (fail_next(FAIL_ONE)) {
        story();
        CHECK_EQ_INT(count_fds(), fds);
        failures += fail_happened();
    }
    CHECK(failures > 0);
    printf("# %d calls\n", failures);
}

static bool done(int r) {
    if (r < 0 && r != HF_SYSTEM)
        test_fail(__FILE__, __LINE__, "%s: %s", hf_error_name(r), hf_last_error());
    CHECK(r >= 0 || strstr(hf_last_error(), "a system call failed: "));
    return r >= 0;
}

static hf_client *open_unfailing(void) {
    fail_pause();
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:no-system", NULL, &client), HF_OK);
    fail_resume();
    return client;
}

static void check_free(const char *name) {
    hf_client *other = open_unfailing();
    fail_pause();
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(other, name, &options, &hold), HF_OK);
    hf_hold_free(hold);
    hf_client_close(other);
    fail_resume();
}

static void open_and_close(void) {
    hf_client *client;
    if (done(hf_client_open("memory:no-system", NULL, &client)))
        hf_client_close(client);
}

/* The first in its process, so that the page that a fork wipes is also made here. */
TEST(opening_a_client_survives_failed_system_calls) {
    fail_at_every_call(open_and_close);
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

TEST(acquiring_and_releasing_survive_failed_system_calls) {
    fail_at_every_call(acquire_and_release);
}

static void have_a_loop(void) {
    hf_client *a = open_unfailing();
    done(hf_fd(a));
    fail_pause();
    CHECK(hf_fd(a) >= 0); /* it may be asked for again */
    CHECK_EQ_INT(hf_process(a), HF_OK);
    hf_client_close(a);
}

TEST(hf_fd_can_be_called_again_after_a_failed_system_call) {
    fail_at_every_call(have_a_loop);
}
