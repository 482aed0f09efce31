/* A system call or an allocation that fails, at every index of what is done with a stream: the
 * owner is notified, at once or by an event, and nothing is left behind. */
#include "support/failing.h"
#include "world/stream_test.h"

#include "world/epoch.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/epoll.h>

FAILING_CALL(int, socket, EMFILE, -1, (int family, int type, int protocol),
             (family, type, protocol))
FAILING_CALL(int, epoll_ctl, ENOSPC, -1, (int set, int what, int fd, struct epoll_event *event),
             (set, what, fd, event))
FAILING_CALL(ssize_t, recv, ENOMEM, -1, (int fd, void *bytes, size_t size, int flags),
             (fd, bytes, size, flags))
FAILING_CALL(int, pthread_create, EAGAIN, EAGAIN,
             (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *),
              void *arg),
             (thread, attributes, start, arg))

FAILING_CALL(ssize_t, send, ENOBUFS, -1, (int fd, const void *bytes, size_t size, int flags),
             (fd, bytes, size, flags))
FAILING_CALL(int, connect, ENETUNREACH, -1,
             (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))

TEST(a_write_that_the_kernel_has_no_room_for_is_reported) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    say(&owner, "a question");
    fail_from_to(0, 0);
    world_flush(world);
    fail_pause();
    char why[200];
    snprintf(why, sizeof(why), "the connection to 127.0.0.1:%u broke: No buffer space available",
             port);
    check_closed(&owner, why);
    close(server);
    world_close(world);
}

static int count_fds(void) {
    int count = 0;
    DIR *here = opendir("/proc/self/fd");
    CHECK(here != NULL);
    while (readdir(here))
        count++;
    closedir(here);
    return count;
}

static bool done(int r) {
    CHECK(r == HF_OK || r == HF_NO_MEMORY || r == HF_SYSTEM);
    return r == HF_OK;
}

static int serve_unfailing(uint16_t *ret_port) {
    fail_pause();
    int listener = serve(ret_port);
    fail_resume();
    return listener;
}

/* Whatever fails, the owner is notified, at once or by an event. */
static void say_and_hear(struct world *world, const char *host) {
    static char question[8 * 1024 * 1024]; /* more than the kernel takes at once */
    uint16_t port;
    int listener = serve_unfailing(&port), server = -1;
    struct owner owner;
    own(&owner, world, host, port);
    if (done(world_stream_open(&owner.stream)))
        until(world, owner.opened || owner.closed);
    if (owner.opened && !owner.closed &&
        done(world_stream_send(&owner.stream, question, sizeof(question)))) {
        world_flush(world);
        server = take(listener);
        put(server, "answer");
        until(world, owner.received || owner.closed);
        close(server);
    }
    CHECK(owner.closed <= 1);
    close_it(&owner);
    close(listener);
}

static void story(void) {
    struct world *world;
    if (!done(world_open_real(&world)))
        return;
    say_and_hear(world, "127.0.0.1");
    say_and_hear(world, "localhost");
    world_close(world);
}

TEST(each_call_that_fails_is_reported_and_leaves_nothing_behind) {
    CHECK(world_epoch_start() != 0);
    int fds = count_fds();
    int failures = 0;
    while (fail_next(FAIL_ONE)) {
        story();
        fail_pause();
        CHECK_EQ_INT(count_fds(), fds);
        failures += fail_happened();
    }
    CHECK(failures > 15);
    printf("# %d calls\n", failures);
}
