/* Names and their addresses: looked up without blocking anything, and tried one after the other.
 *
 * The linker sends getaddrinfo through here (--wrap, in tests/meson.build), to return chosen
 * addresses and to hang; and pthread_mutex_lock, to see that a child does not use it. */
#include "world/stream_test.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

/* TSan refuses to go on in the child of a process with threads, unless told otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

/* ---- A name service ---- */

/* The name "chosen.test" has these addresses; "slow.test" is 127.0.0.1, but its answer waits until
 * it is released. */
static const char *chosen[4];
static sem_t slow_asked, slow_released, slow_answered;
static pthread_t asked_on;
static sigset_t asked_with;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

static int chosen_addresses(const char *service, const struct addrinfo *hints,
                            struct addrinfo **ret_found) {
    for (size_t i = 0; i < 4 && chosen[i]; i++) {
        int failure = __real_getaddrinfo(chosen[i], service, hints, ret_found);
        if (failure)
            return failure;
        ret_found = &(*ret_found)->ai_next; /* glibc frees node by node */
    }
    return 0;
}

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found) {
    if (!(hints->ai_flags & AI_NUMERICHOST)) {
        asked_on = pthread_self();
        pthread_sigmask(SIG_SETMASK, NULL, &asked_with);
    }
    if (strcmp(host, "chosen.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST))
        return chosen_addresses(service, hints, ret_found);
    if (strcmp(host, "slow.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
        sem_post(&slow_asked);
        while (sem_wait(&slow_released) < 0) {}
        int failure = __real_getaddrinfo("127.0.0.1", service, hints, ret_found);
        sem_post(&slow_answered);
        return failure;
    }
    return __real_getaddrinfo(host, service, hints, ret_found);
}

static void await(sem_t *semaphore) {
    while (sem_wait(semaphore) < 0)
        CHECK(errno == EINTR);
}

static void init_slow_names(void) {
    sem_init(&slow_asked, 0, 0);
    sem_init(&slow_released, 0, 0);
    sem_init(&slow_answered, 0, 0);
}

/* ---- Names ---- */

TEST(a_name_is_looked_up_on_another_thread_without_signals) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "localhost", port);
    int server = meet(&owner, listener);
    CHECK(!pthread_equal(asked_on, pthread_self()));
    CHECK(sigismember(&asked_with, SIGINT) && sigismember(&asked_with, SIGUSR1));
    sigset_t own_signals;
    pthread_sigmask(SIG_SETMASK, NULL, &own_signals);
    CHECK(!sigismember(&own_signals, SIGUSR1));
    close(server);
    world_close(world);
}

TEST(a_name_is_looked_up_in_place_where_there_may_be_no_threads) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    world->threads = false;
    own(&owner, world, "localhost", port);
    int server = meet(&owner, listener);
    CHECK(pthread_equal(asked_on, pthread_self()));
    close(server);
    world_close(world);
}

/* The name service of this host may answer anything, or not at all. */
TEST(a_name_that_does_not_exist_is_reported) {
    struct owner owner;
    struct world *world = open_world();
    own(&owner, world, "nosuch.invalid", 1);
    owner.peer.timeout_us = 5 * SECOND;
    open_it(&owner);
    until(world, owner.closed);
    printf("# %s\n", owner.why);
    CHECK(strncmp(owner.why, "cannot look up \"nosuch.invalid\": ", 33) == 0);
    CHECK(strlen(owner.why) > 40);
    world_close(world);
}

TEST(the_next_address_is_tried_when_one_refuses) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.3";
    chosen[2] = "127.0.0.1";
    own(&owner, open_world(), "chosen.test", port);
    check_both_ways(&owner, listener);
}

/* If the machine stalls for longer than the second address's share, that address is never tried,
 * and the test repeats. */
TEST(the_next_address_is_tried_when_one_does_not_answer_in_its_share_of_the_time) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    listen_on("127.0.0.2", port, 0, &port);
    fill_queue("127.0.0.2", port);
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.1";
    struct world *world = open_world();
    int64_t began_us = 0;
    for (int i = 0; i < 5 && (i == 0 || owner.closed); i++) {
        own(&owner, world, "chosen.test", port);
        owner.peer.timeout_us = 2 * SECOND;
        began_us = world_now_us(world);
        open_it(&owner);
        until(world, owner.opened || owner.closed);
    }
    CHECK(owner.opened && world_now_us(world) - began_us >= 900 * MS);
    close(listener);
    world_close(world);
}

TEST(when_all_addresses_fail_the_last_error_and_their_number_are_reported) {
    uint16_t port = dead_port();
    char why[200];
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.3";
    chosen[2] = "127.0.0.1";
    snprintf(why, sizeof(why),
             "cannot connect to chosen.test:%u: Connection refused (the last of 3 addresses)",
             port);
    check_unconnected("chosen.test", port, why);
}

TEST(a_name_service_that_hangs_does_not_hold_up_a_stream) {
    struct owner slow, other;
    uint16_t port;
    int listener = serve(&port);
    init_slow_names();
    struct world *world = open_world();
    own(&slow, world, "slow.test", port);
    own(&other, world, "127.0.0.1", port);
    open_it(&slow);
    await(&slow_asked);
    int server = meet(&other, listener);
    put(server, "still here");
    until(world, other.received == 10);
    CHECK(slow.opened == 0 && slow.closed == 0);
    sem_post(&slow_released);
    until(world, slow.opened);
    close(server);
    world_close(world);
}

TEST(a_name_service_that_hangs_is_given_up_at_its_time) {
    struct owner owner;
    init_slow_names();
    struct world *world = open_world();
    own(&owner, world, "slow.test", 1);
    owner.peer.timeout_us = 50 * MS;
    open_it(&owner);
    check_closed(&owner, "cannot look up \"slow.test\": no answer within 50 ms");
    sem_post(&slow_released);
    await(&slow_answered);
    quiet_turns(world);
    CHECK(owner.closed == 1 && owner.opened == 0);
    world_close(world);
}

/* The answer comes before, while or after the stream, or the world with it, is closed. */
TEST(closing_during_a_look_up_neither_waits_nor_leaves_anything_behind) {
    enum { BEFORE, WHILE, AFTER };
    init_slow_names();
    for (int i = 0; i < 60; i++) {
        struct owner owner;
        struct world *world = open_world();
        struct pollfd ready = {.fd = world->fd, .events = POLLIN};
        own(&owner, world, "slow.test", 1);
        open_it(&owner);
        await(&slow_asked);
        if (i % 3 != AFTER)
            sem_post(&slow_released);
        if (i % 3 == BEFORE)
            CHECK(poll(&ready, 1, -1) == 1);
        if (i % 2)
            close_it(&owner);
        world_close(world);
        CHECK(!owner.stream.state && owner.opened + owner.closed == 0);
        if (i % 3 == AFTER)
            sem_post(&slow_released);
        await(&slow_answered);
    }
}

/* ---- Addresses for others to connect to ---- */

struct asker {
    struct world_lookup lookup;
    struct world *world;
    int done;
    bool again; /* `done` starts another look-up */
    char addresses[200], why[200];
};

static void note_addresses(struct world_lookup *lookup, const char *const *addresses, size_t count,
                           const char *why) {
    struct asker *asker = container_of(lookup, struct asker, lookup);
    asker->done++;
    asker->addresses[0] = 0;
    for (size_t i = 0; i < count; i++) {
        strcat(asker->addresses, addresses[i]);
        strcat(asker->addresses, " ");
    }
    snprintf(asker->why, sizeof(asker->why), "%s", why ? why : "");
    CHECK(!count == !!why && !lookup->state);
    if (asker->again) {
        asker->again = false;
        CHECK_EQ_INT(world_look_up(asker->world, lookup, "127.0.0.9", SECOND), HF_OK);
    }
}

static void ask(struct asker *asker, struct world *world, const char *host, int64_t timeout_us) {
    *asker = (struct asker){.lookup = {.done = note_addresses}, .world = world};
    CHECK_EQ_INT(world_look_up(world, &asker->lookup, host, timeout_us), HF_OK);
    CHECK_EQ_INT(asker->done, 0); /* never within the call */
}

TEST(all_addresses_of_a_name_are_handed_out_as_text) {
    struct asker asker;
    struct world *world = open_world();
    chosen[0] = "127.0.0.2";
    chosen[1] = "::1";
    chosen[2] = "127.0.0.1";
    ask(&asker, world, "chosen.test", 30 * SECOND);
    until(world, asker.done);
    CHECK_EQ_STR(asker.addresses, "127.0.0.2 ::1 127.0.0.1 ");
    ask(&asker, world, "::1", 30 * SECOND);
    asker.again = true;
    until(world, asker.done == 2);
    CHECK_EQ_STR(asker.addresses, "127.0.0.9 ");
    world_close(world);
}

TEST(a_look_up_that_fails_says_why) {
    struct asker asker;
    struct world *world = open_world();
    ask(&asker, world, "nosuch.invalid", 5 * SECOND);
    until(world, asker.done);
    CHECK(strncmp(asker.why, "cannot look up \"nosuch.invalid\": ", 33) == 0);
    init_slow_names();
    ask(&asker, world, "slow.test", 50 * MS);
    until(world, asker.done);
    CHECK_EQ_STR(asker.why, "cannot look up \"slow.test\": no answer within 50 ms");
    sem_post(&slow_released);
    await(&slow_answered);
    quiet_turns(world);
    CHECK_EQ_INT(asker.done, 1);
    world_close(world);
}

TEST(a_look_up_that_was_stopped_is_silent_and_leaves_nothing_behind) {
    init_slow_names();
    for (int i = 0; i < 20; i++) {
        struct asker asker;
        struct world *world = open_world();
        ask(&asker, world, "slow.test", 30 * SECOND);
        await(&slow_asked);
        if (i % 2)
            sem_post(&slow_released);
        if (i % 4 < 2)
            world_lookup_stop(world, &asker.lookup);
        world_close(world);
        CHECK(!asker.lookup.state && !asker.done);
        if (i % 2 == 0)
            sem_post(&slow_released);
        await(&slow_answered);
    }
}

/* What another thread may have left locked must not be touched. */
static bool is_child;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    CHECK(!is_child);
    return __real_pthread_mutex_lock(mutex);
}

/* FAILURES.md 39. The child has the look-up but not its thread. */
TEST(a_child_that_closes_its_copy_of_the_world_does_not_disturb_a_look_up) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    init_slow_names();
    struct world *world = open_world();
    own(&owner, world, "slow.test", port);
    open_it(&owner);
    await(&slow_asked);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        is_child = true;
        world_close(world);
        _exit(owner.stream.state != NULL);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sem_post(&slow_released);
    until(world, owner.opened);
    close(take(listener));
    world_close(world);
}
