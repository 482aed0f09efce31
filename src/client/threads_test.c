/* Threads that share a client: the races in the life of a lock, on the real clock. They are meant
 * for ThreadSanitizer; each is bounded in count and in time. HOLDFAST_TEST_ROUNDS scales the counts
 * (1 by default; 5 makes the first test a million acquires). */
#define TEST_TIMEOUT_S 240
#include "check.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum {
    PATIENCE_MS = 60000,
    KEPT_MS = 3000, /* a lease that can nearly always be kept even on a busy machine … */
    KEPT_TRIES = 5  /* … and one that is not renewed is lost each time */
};

/* ---- Words of the tests ---- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void sleep_us(long us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static int times(int count) {
    const char *scale = getenv("HOLDFAST_TEST_ROUNDS");
    double scaled = count * (scale ? strtod(scale, NULL) : 1);
    return scaled < 1 ? 1 : (int)scaled;
}

#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int64_t await_until = now_ms() + PATIENCE_MS; !(condition); sleep_us(500))        \
            if (now_ms() > await_until)                                                        \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

static hf_client *open_client(void) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:threads", NULL, &client), HF_OK);
    return client;
}

static hf_acquire_options lease_of(int64_t lease_ms, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    options.wait_ms = wait_ms;
    return options;
}

static hf_hold *get(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *hold = NULL;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

static void let_go(hf_hold *hold) {
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
}

/* Releases what must have been kept; HF_LOST if it was not. */
static int release_kept(hf_hold *hold) {
    int r = hf_check(hold, 0);
    if (r == HF_OK)
        r = hf_release(hold);
    hf_hold_free(hold);
    return r;
}

static size_t waiters(hf_client *client, const char *name) {
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(client, name, &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    size_t count = info ? info->waiter_count : 0;
    hf_locks_free(locks);
    return count;
}

/* Everything was released: another client can take the name at once. */
static void check_free(const char *name) {
    hf_client *other = open_client();
    let_go(get(other, name, lease_of(10000, PATIENCE_MS)));
    CHECK_EQ_INT(waiters(other, name), 0);
    hf_client_close(other);
}

enum { THREADS_MAX = 32, NAMES_MAX = 8 };

/* Threads that all do the same; `index` tells them apart. */
struct crew {
    hf_client *clients[THREADS_MAX];
    int client_count, name_count, rounds;
    int64_t until_ms;
    hf_acquire_options options;
    atomic_bool stop;
    atomic_long done;
    /* A witness for each name, without a lock of its own: TSan reports two threads that enter at
     * the same time. */
    struct {
        long entries;
        uint64_t last_token;
    } rooms[NAMES_MAX];
};

struct member {
    struct crew *crew;
    int index;
    pthread_t thread;
};

static void run_crew(struct crew *crew, int count, void *(*work)(void *)) {
    struct member members[THREADS_MAX];
    for (int i = 0; i < count; i++) {
        members[i] = (struct member){.crew = crew, .index = i};
        CHECK(pthread_create(&members[i].thread, NULL, work, &members[i]) == 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
}

static const char *name_of(int index) {
    static const char *const names[NAMES_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    return names[index % NAMES_MAX];
}

static void *enter_rooms(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    hf_client *client = crew->clients[me->index % crew->client_count];
    for (int i = 0; i < crew->rounds && now_ms() < crew->until_ms; i++) {
        int room = (me->index + i) % crew->name_count;
        hf_hold *hold = get(client, name_of(room), crew->options);
        CHECK(hf_hold_token(hold) > crew->rooms[room].last_token);
        crew->rooms[room].last_token = hf_hold_token(hold);
        crew->rooms[room].entries++;
        CHECK_EQ_INT(hf_release(hold), HF_OK);
        hf_hold_free(hold);
        atomic_fetch_add(&crew->done, 1);
    }
    return NULL;
}

static void enter_rooms_with(int threads, int clients, int names, int rounds) {
    struct crew crew = {.client_count = clients,
                        .name_count = names,
                        .rounds = times(rounds),
                        .until_ms = now_ms() + times(40000),
                        .options = lease_of(10000, HF_FOREVER)};
    for (int i = 0; i < clients; i++)
        crew.clients[i] = open_client();
    run_crew(&crew, threads, enter_rooms);
    long entries = 0;
    for (int i = 0; i < names; i++)
        entries += crew.rooms[i].entries;
    CHECK_EQ_INT(entries, atomic_load(&crew.done));
    CHECK(entries > threads);
    for (int i = 0; i < names; i++)
        check_free(name_of(i));
    for (int i = 0; i < clients; i++)
        hf_client_close(crew.clients[i]);
    printf("# %ld acquires\n", entries);
}

/* ---- Many threads ---- */

/* FAILURES.md 24 */
TEST(eight_threads_acquire_and_release_without_end) {
    enter_rooms_with(8, 1, 8, 25000);
}

/* The driver wakes only the first of the queue: no wake-up may be lost. */
TEST(thirty_two_threads_share_four_names_through_one_client) {
    enter_rooms_with(32, 1, 4, 300);
}

TEST(thirty_two_threads_share_four_names_through_several_clients) {
    enter_rooms_with(32, 6, 4, 200);
}

TEST(two_threads_hand_one_name_back_and_forth_between_clients) {
    enter_rooms_with(2, 2, 1, 3000);
}

/* ---- A renewal beside the end of its hold ---- */

/* Until the time has passed, and until something has been done: the machine may be busy. */
static bool goes_on(struct crew *crew, long enough) {
    int64_t over_ms = now_ms() - crew->until_ms;
    return over_ms < 0 || (atomic_load(&crew->done) <= enough && over_ms < PATIENCE_MS);
}

static void *hold_briefly(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    unsigned seed = (unsigned)me->index;
    while (goes_on(crew, 8)) {
        hf_hold *hold;
        int r = hf_acquire(crew->clients[0], name_of(me->index), &crew->options, &hold);
        if (r == HF_SHORT)
            continue; /* a busy machine took more than the lease to grant it */
        CHECK_EQ_INT(r, HF_OK);
        sleep_us(rand_r(&seed) % 8000);
        if (me->index % 2) {
            r = hf_renew(hold, 0);
            CHECK(r == HF_OK || r == HF_LOST);
        }
        r = hf_check(hold, 0);
        CHECK(r == HF_OK || r == HF_LOST);
        if (me->index % 3) {
            r = hf_release(hold);
            CHECK(r == HF_OK || r == HF_LOST);
        }
        hf_hold_free(hold);
        atomic_fetch_add(&crew->done, 1);
    }
    return NULL;
}

/* FAILURES.md 24: leases of a few ms, so that the standby thread renews all the time */
TEST(a_release_may_race_a_renewal) {
    struct crew crew = {.clients = {open_client()},
                        .client_count = 1,
                        .until_ms = now_ms() + times(3000),
                        .options = lease_of(6, HF_FOREVER)};
    run_crew(&crew, 8, hold_briefly);
    CHECK(atomic_load(&crew.done) > 8);
    for (int i = 0; i < 8; i++)
        check_free(name_of(i));
    hf_client_close(crew.clients[0]);
}

struct race {
    hf_hold *hold;
    atomic_int ready;
};

static void *release_with_others(void *arg) {
    struct race *race = arg;
    atomic_fetch_add(&race->ready, 1);
    while (atomic_load(&race->ready) < 3)
        ;
    int r = hf_release(race->hold);
    CHECK(r == HF_OK);
    r = hf_check(race->hold, 0);
    CHECK_EQ_INT(r, HF_RELEASED);
    return NULL;
}

TEST(many_threads_may_release_one_hold) {
    hf_client *a = open_client();
    for (int i = 0; i < times(300); i++) {
        struct race race = {.hold = get(a, "x", lease_of(10000, 0))};
        pthread_t threads[3];
        for (size_t j = 0; j < 3; j++)
            CHECK(pthread_create(&threads[j], NULL, release_with_others, &race) == 0);
        for (size_t j = 0; j < 3; j++)
            pthread_join(threads[j], NULL);
        hf_hold_free(race.hold);
    }
    check_free("x");
    hf_client_close(a);
}

/* ---- Cancelling ---- */

struct cancel {
    hf_call *call;
    long after_us;
};

static void *cancel_later(void *arg) {
    struct cancel *cancel = arg;
    sleep_us(cancel->after_us);
    CHECK_EQ_INT(hf_call_cancel(cancel->call), HF_OK);
    return NULL;
}

struct release {
    hf_hold *hold;
    long after_us;
};

static void *release_later(void *arg) {
    struct release *release = arg;
    sleep_us(release->after_us);
    let_go(release->hold);
    return NULL;
}

/* The delay of the cancel walks over the whole life of the acquire, which is granted after 1 ms. */
TEST(an_acquire_may_be_cancelled_at_any_point_of_its_life) {
    hf_client *a = open_client(), *b = open_client();
    int granted = 0, cancelled = 0;
    int64_t until_ms = now_ms() + 60000;
    for (int i = 0; i < times(600) && now_ms() < until_ms; i++) {
        struct release release = {get(a, "x", lease_of(10000, PATIENCE_MS)), 1000};
        struct cancel cancel = {.after_us = i % 200 * 10};
        hf_acquire_options options = lease_of(10000, HF_FOREVER);
        pthread_t releaser, canceller;
        CHECK(pthread_create(&releaser, NULL, release_later, &release) == 0);
        CHECK_EQ_INT(hf_acquire_start(b, "x", &options, &cancel.call), HF_OK);
        CHECK(pthread_create(&canceller, NULL, cancel_later, &cancel) == 0);
        int r = hf_call_wait(cancel.call, PATIENCE_MS);
        CHECK(r == HF_OK || r == HF_CANCELLED);
        granted += r == HF_OK;
        cancelled += r == HF_CANCELLED;
        pthread_join(releaser, NULL);
        pthread_join(canceller, NULL);
        CHECK_EQ_INT(hf_call_status(cancel.call), r);
        hf_hold *hold = hf_call_take_hold(cancel.call);
        CHECK((hold != NULL) == (r == HF_OK));
        hf_hold_free(hold);
        hf_call_free(cancel.call);
    }
    CHECK(granted > 0 && cancelled > 0);
    check_free("x");
    hf_client_close(a);
    hf_client_close(b);
}

/* The delay also walks over the life of the hold: requested, granted, taken, renewed, released. */
TEST(a_client_may_be_closed_at_any_point_of_an_acquire) {
    hf_client *a = open_client();
    int64_t until_ms = now_ms() + 60000;
    for (int i = 0; i < times(300) && now_ms() < until_ms; i++) {
        hf_client *b = open_client();
        struct release release = {get(a, "x", lease_of(10000, PATIENCE_MS)), 1000};
        hf_acquire_options options = lease_of(10000, HF_FOREVER);
        pthread_t releaser;
        hf_call *call;
        CHECK(pthread_create(&releaser, NULL, release_later, &release) == 0);
        CHECK_EQ_INT(hf_acquire_start(b, "x", &options, &call), HF_OK);
        sleep_us(i % 200 * 10);
        hf_client_close(b);
        int r = hf_call_status(call);
        CHECK(r == HF_OK || r == HF_CLOSED);
        hf_hold *hold = hf_call_take_hold(call);
        if (hold)
            CHECK_EQ_INT(hf_check(hold, 0), HF_CLOSED);
        hf_hold_free(hold);
        hf_call_free(call);
        pthread_join(releaser, NULL);
    }
    check_free("x");
    hf_client_close(a);
}

/* ---- Closing ---- */

static void *use_until_closed(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    hf_client *client = crew->clients[0];
    const char *name = name_of(me->index % 2);
    for (;;) {
        hf_hold *hold = NULL;
        hf_locks *locks = NULL;
        int r;
        if (me->index % 4 == 3)
            r = hf_inspect(client, name, &locks);
        else
            r = hf_acquire(client, name, &crew->options, &hold);
        atomic_fetch_add(&crew->done, 1);
        hf_locks_free(locks);
        hf_hold_free(hold);
        if (r == HF_OK)
            continue;
        CHECK_EQ_INT(r, HF_CLOSED);
        return NULL;
    }
}

static void *close_soon(void *arg) {
    struct crew *crew = arg;
    AWAIT(atomic_load(&crew->done) > 50);
    hf_client_close(crew->clients[0]);
    return NULL;
}

/* The handle must outlive the calls that use it: the hold that the test keeps ensures that. */
TEST(closing_ends_the_calls_that_other_threads_are_in) {
    for (int i = 0; i < times(30); i++) {
        struct crew crew = {.clients = {open_client()}, .options = lease_of(10000, HF_FOREVER)};
        hf_hold *keeps = get(crew.clients[0], "keeps", lease_of(10000, 0));
        pthread_t closer;
        CHECK(pthread_create(&closer, NULL, close_soon, &crew) == 0);
        run_crew(&crew, 8, use_until_closed);
        pthread_join(closer, NULL);
        CHECK_EQ_INT(hf_check(keeps, 0), HF_CLOSED);
        hf_hold_free(keeps);
        check_free("keeps");
        check_free(name_of(0));
    }
}

static void *open_and_close(void *arg) {
    struct crew *crew = ((struct member *)arg)->crew;
    for (int i = 0; i < crew->rounds; i++) {
        hf_client *client = open_client();
        hf_hold *hold = get(client, "x", lease_of(10000, HF_FOREVER));
        if (i % 2)
            CHECK_EQ_INT(hf_release(hold), HF_OK);
        if (i % 3)
            hf_hold_free(hold);
        hf_client_close(client);
        if (i % 3 == 0)
            hf_hold_free(hold);
    }
    return NULL;
}

TEST(clients_of_one_memory_space_may_open_and_close_at_once) {
    struct crew crew = {.rounds = times(100)};
    run_crew(&crew, 4, open_and_close);
    check_free("x");
}

/* ---- Who drives ---- */

/* FAILURES.md 25, the other way round: nobody calls the library, and the lock stays */
TEST(the_standby_thread_renews_while_the_program_does_nothing) {
    hf_client *a = open_client(), *b = open_client();
    int released = HF_LOST;
    for (int i = 0; i < KEPT_TRIES && released == HF_LOST; i++) {
        hf_hold *hold = get(a, "x", lease_of(KEPT_MS, PATIENCE_MS)), *other;
        hf_acquire_options options = lease_of(KEPT_MS, 0);
        int r = HF_BUSY;
        for (int64_t until_ms = now_ms() + 2 * KEPT_MS; r == HF_BUSY && now_ms() < until_ms;
             sleep_us(50000))
            r = hf_acquire(b, "x", &options, &other);
        if (r == HF_OK)
            let_go(other);
        else
            CHECK_EQ_INT(r, HF_BUSY);
        released = release_kept(hold);
        CHECK(r == HF_BUSY || released == HF_LOST);
    }
    CHECK_EQ_INT(released, HF_OK);
    hf_client_close(a);
    hf_client_close(b);
}

/* Whether the lock stays held for 2 s, and the longest that a sleep of 5 ms took meanwhile. */
static bool stays_held(hf_hold *hold, int64_t *ret_longest_ms) {
    int64_t before_ms = now_ms(), until_ms = before_ms + 2000;
    *ret_longest_ms = 0;
    while (before_ms < until_ms) {
        sleep_us(5000);
        int64_t slept_ms = now_ms() - before_ms;
        before_ms += slept_ms;
        *ret_longest_ms = slept_ms > *ret_longest_ms ? slept_ms : *ret_longest_ms;
        if (hf_check(hold, 0) != HF_OK)
            return false;
    }
    return true;
}

/* To keep a lease as short as this, the machine must run the standby thread within 37 ms. A try in
 * which even this thread ran late shows nothing. Sometimes only the standby thread is late, so
 * there are several tries. */
TEST(a_lease_of_60_ms_is_kept) {
    enum { TRIES = 20 };
    hf_client *a = open_client();
    hf_acquire_options options = lease_of(60, PATIENCE_MS);
    bool held = false;
    int quiet = 0;
    for (int i = 0; i < TRIES && !held; i++) {
        hf_hold *hold;
        int r = hf_acquire(a, "x", &options, &hold);
        if (r == HF_SHORT)
            continue; /* it took more than the lease to grant it */
        CHECK_EQ_INT(r, HF_OK);
        int64_t longest_ms;
        held = stays_held(hold, &longest_ms);
        quiet += longest_ms <= 15;
        hf_hold_free(hold);
    }
    CHECK(held || quiet < TRIES / 2);
    if (!held)
        printf("# the machine is too busy to tell\n");
    hf_client_close(a);
}

/* One thread of the program waits all the time and drives; the others' holds are renewed by it. */
TEST(a_driver_renews_what_others_hold) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *in_the_way = get(b, "x", lease_of(PATIENCE_MS, 0));
    int released = HF_LOST;
    for (int i = 0; i < KEPT_TRIES && released == HF_LOST; i++) {
        hf_hold *hold = get(a, "y", lease_of(KEPT_MS, PATIENCE_MS)), *never;
        hf_acquire_options options = lease_of(10000, KEPT_MS);
        for (int j = 0; j < 2; j++)
            CHECK_EQ_INT(hf_acquire(a, "x", &options, &never), HF_TIMEOUT);
        released = release_kept(hold);
    }
    CHECK_EQ_INT(released, HF_OK);
    let_go(in_the_way);
    hf_client_close(a);
    hf_client_close(b);
}

/* Threads that drive briefly, again and again, must not keep the standby thread from what is
 * due. */
TEST(the_standby_thread_and_drivers_take_turns) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *in_the_way = get(b, "x", lease_of(PATIENCE_MS, 0));
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(a, "x", NULL, &call), HF_OK);
    unsigned seed = 1;
    int released = HF_LOST;
    for (int i = 0; i < KEPT_TRIES && released == HF_LOST; i++) {
        hf_hold *hold = get(a, "y", lease_of(KEPT_MS, PATIENCE_MS));
        int64_t until_ms = now_ms() + 2 * KEPT_MS;
        while (hf_check(hold, 0) == HF_OK && now_ms() < until_ms) {
            CHECK_EQ_INT(hf_call_wait(call, rand_r(&seed) % 20), HF_PENDING);
            sleep_us(rand_r(&seed) % 30000);
        }
        released = release_kept(hold);
    }
    CHECK_EQ_INT(released, HF_OK);
    let_go(in_the_way);
    CHECK_EQ_INT(hf_call_wait(call, PATIENCE_MS), HF_OK);
    hf_call_free(call);
    hf_client_close(a);
    hf_client_close(b);
}

/* Nobody waits, and nobody has asked for a descriptor: the call still completes. */
TEST(a_call_completes_while_nobody_waits_for_it) {
    hf_client *a = open_client(), *b = open_client();
    for (int i = 0; i < 20; i++) {
        hf_hold *hold = get(b, "x", lease_of(10000, PATIENCE_MS));
        hf_call *call;
        CHECK_EQ_INT(hf_acquire_start(a, "x", NULL, &call), HF_OK);
        let_go(hold);
        AWAIT(hf_call_status(call) == HF_OK);
        CHECK(hf_call_next(a) == NULL);
        CHECK_EQ_INT(hf_call_queue(call, NULL), HF_OK);
        CHECK(hf_call_next(a) == call);
        hf_call_free(call);
    }
    hf_client_close(a);
    hf_client_close(b);
}

/* hf_call_wait with a limit, while others read the clock: the world's anchor moves each second. */
TEST(waits_with_a_limit_run_beside_everything_else) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *in_the_way = get(b, "x", lease_of(10000, 0));
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(a, "x", NULL, &call), HF_OK);
    struct crew crew = {.clients = {a},
                        .client_count = 1,
                        .name_count = 1,
                        .rounds = 1000000,
                        .until_ms = now_ms() + 2500,
                        .options = lease_of(10000, HF_FOREVER)};
    struct member member = {.crew = &crew};
    CHECK(pthread_create(&member.thread, NULL, enter_rooms, &member) == 0);
    while (now_ms() < crew.until_ms)
        CHECK_EQ_INT(hf_call_wait(call, 300), HF_PENDING);
    pthread_join(member.thread, NULL);
    hf_call_free(call);
    let_go(in_the_way);
    hf_client_close(a);
    hf_client_close(b);
}

static void *wait_briefly(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    unsigned seed = (unsigned)me->index;
    while (goes_on(crew, 10)) {
        hf_hold *hold;
        hf_acquire_options options = lease_of(10000, rand_r(&seed) % 4);
        int r = hf_acquire(crew->clients[me->index % 2], name_of(0), &options, &hold);
        CHECK(r == HF_OK || r == HF_TIMEOUT || r == HF_BUSY);
        if (r != HF_OK)
            continue;
        crew->rooms[0].entries++;
        sleep_us(rand_r(&seed) % 2000);
        let_go(hold);
        atomic_fetch_add(&crew->done, 1);
    }
    return NULL;
}

/* Drivers give up again and again: each must hand over, or the others would sleep forever. */
TEST(drivers_that_time_out_hand_the_drive_on) {
    struct crew crew = {.clients = {open_client(), open_client()},
                        .until_ms = now_ms() + times(3000)};
    run_crew(&crew, 12, wait_briefly);
    CHECK(crew.rooms[0].entries > 10);
    check_free(name_of(0));
    hf_client_close(crew.clients[0]);
    hf_client_close(crew.clients[1]);
}

/* ---- Both forms at once ---- */

static void *acquire_blocking(void *arg) {
    struct member *me = arg;
    let_go(get(me->crew->clients[0], "blocking", me->crew->options));
    return NULL;
}

static void note_time(hf_call *call, void *arg) {
    (void)call;
    atomic_store((atomic_llong *)arg, now_ms());
}

static hf_call *start_to_wait(struct crew *crew, const char *name, atomic_llong *ret_done_ms) {
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(crew->clients[0], name, &crew->options, &call), HF_OK);
    CHECK_EQ_INT(hf_call_notify(call, note_time, ret_done_ms), HF_OK);
    AWAIT(waiters(crew->clients[1], name) == 1);
    return call;
}

/* How long calls that were only started take to complete: an early one while a thread waits beside
 * the standby thread, and a late one just after that thread has driven. */
static void time_started_calls(struct crew *crew, int64_t *ret_early_ms, int64_t *ret_late_ms) {
    hf_client *b = crew->clients[1];
    hf_hold *blocking = get(b, "blocking", crew->options), *early = get(b, "early", crew->options),
            *late = get(b, "late", crew->options);
    struct member member = {.crew = crew};
    CHECK(pthread_create(&member.thread, NULL, acquire_blocking, &member) == 0);
    AWAIT(waiters(b, "blocking") == 1);
    atomic_llong early_ms = 0, late_ms = 0;
    hf_call *early_call = start_to_wait(crew, "early", &early_ms);
    sleep_us(30000); /* nobody has driven for a while, so the standby thread watches as well */
    int64_t released_ms = now_ms();
    let_go(early);
    AWAIT(atomic_load(&early_ms));
    *ret_early_ms = atomic_load(&early_ms) - released_ms;
    hf_call_free(early_call);
    let_go(blocking);
    pthread_join(member.thread, NULL);
    hf_call *late_call = start_to_wait(crew, "late", &late_ms);
    released_ms = now_ms();
    let_go(late);
    AWAIT(atomic_load(&late_ms));
    hf_call_free(late_call);
    *ret_late_ms = atomic_load(&late_ms) - released_ms;
}

/* If nobody woke the standby thread, half of the late calls would be slow. On a busy machine calls
 * are slow anyway, so there are several tries; and if all are slow, the early calls show how many
 * that may be. */
TEST(a_started_call_completes_soon_though_others_have_just_driven) {
    enum { TRIES = 10, ROUNDS = 30, SOON_MS = 25 };
    struct crew crew = {.clients = {open_client(), open_client()},
                        .options = lease_of(10000, PATIENCE_MS)};
    int slow = ROUNDS, all_slow = 0, all_slow_early = 0;
    for (int i = 0; i < TRIES && slow > ROUNDS / 5; i++) {
        slow = 0;
        for (int j = 0; j < ROUNDS; j++) {
            int64_t early_ms, late_ms;
            time_started_calls(&crew, &early_ms, &late_ms);
            slow += late_ms > SOON_MS;
            all_slow_early += early_ms > SOON_MS;
        }
        all_slow += slow;
    }
    if (slow > ROUNDS / 5 && all_slow > all_slow_early + TRIES * ROUNDS / 5)
        test_fail(__FILE__, __LINE__, "%d of %d calls are slow, and %d of those before", all_slow,
                  TRIES * ROUNDS, all_slow_early);
    hf_client_close(crew.clients[0]);
    hf_client_close(crew.clients[1]);
}

static void *run_loop(void *arg) {
    struct crew *crew = arg;
    hf_client *client = crew->clients[0];
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    CHECK(fd.fd >= 0);
    for (int left = crew->rounds; left > 0;) {
        hf_call *call;
        CHECK_EQ_INT(hf_acquire_start(client, name_of(left % 2), &crew->options, &call), HF_OK);
        CHECK_EQ_INT(hf_call_queue(call, NULL), HF_OK);
        hf_call *next = NULL;
        while (!(next = hf_call_next(client))) {
            CHECK(poll(&fd, 1, PATIENCE_MS) == 1 || errno == EINTR);
            CHECK_EQ_INT(hf_process(client), HF_OK);
        }
        CHECK(next == call);
        CHECK_EQ_INT(hf_call_status(call), HF_OK);
        crew->rooms[left % 2].entries++;
        hf_call_free(call); /* with its hold */
        left--;
    }
    return NULL;
}

static void *block_beside_loop(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    for (int i = 0; i < crew->rounds; i++) {
        hf_hold *hold = get(crew->clients[me->index % 2], name_of(i % 2), crew->options);
        crew->rooms[i % 2].entries++;
        let_go(hold);
    }
    return NULL;
}

static bool is_readable(int fd, int wait_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, wait_ms) == 1;
}

TEST(hf_fd_stays_readable_until_hf_process) {
    hf_client *client = open_client();
    hf_acquire_options options = lease_of(10000, 0);
    hf_call *call;
    int fd = hf_fd(client);
    hf_process(client);
    CHECK_EQ_INT(hf_acquire_start(client, "x", &options, &call), HF_OK);
    CHECK_EQ_INT(hf_call_queue(call, NULL), HF_OK);
    for (int i = 0; i < 3; i++)
        CHECK(is_readable(fd, PATIENCE_MS)); /* nobody did anything */
    hf_process(client);
    CHECK(hf_call_next(client) == call);
    hf_call_free(call);
    CHECK(!hf_call_next(client));
    AWAIT((hf_process(client), !is_readable(fd, 0)));
    hf_client_close(client);
}

/* A loop that takes what is ready must not run again for nothing. (It may if the standby thread was
 * quicker, which happens now and then.) */
TEST(hf_fd_is_not_readable_again_for_what_hf_process_has_completed) {
    hf_client *a = open_client(), *b = open_client();
    int fd = hf_fd(a), again = 0;
    for (int i = 0; i < 20; i++) {
        hf_hold *hold = get(b, "x", lease_of(10000, PATIENCE_MS));
        hf_call *call, *next;
        CHECK_EQ_INT(hf_acquire_start(a, "x", NULL, &call), HF_OK);
        CHECK_EQ_INT(hf_call_queue(call, NULL), HF_OK);
        hf_process(a);
        let_go(hold);
        while (!(next = hf_call_next(a))) {
            CHECK(is_readable(fd, PATIENCE_MS));
            hf_process(a);
        }
        CHECK(next == call);
        again += is_readable(fd, 0);
        hf_call_free(call);
        hf_process(a);
    }
    CHECK(again < 20);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_poll_loop_and_blocking_threads_share_a_client) {
    struct crew crew = {.clients = {open_client(), open_client()},
                        .rounds = times(400),
                        .options = lease_of(10000, HF_FOREVER)};
    pthread_t loop;
    CHECK(pthread_create(&loop, NULL, run_loop, &crew) == 0);
    run_crew(&crew, 6, block_beside_loop);
    pthread_join(loop, NULL);
    CHECK_EQ_INT(crew.rooms[0].entries + crew.rooms[1].entries, 7L * crew.rounds);
    hf_client_close(crew.clients[0]);
    hf_client_close(crew.clients[1]);
}

static void *take_several(void *arg) {
    struct member *me = arg;
    struct crew *crew = me->crew;
    unsigned seed = (unsigned)me->index;
    for (int i = 0; i < crew->rounds && now_ms() < crew->until_ms; i++) {
        hf_want wants[5];
        const hf_want *pointers[5];
        int offset = rand_r(&seed) % NAMES_MAX, step = rand_r(&seed) % 4 * 2 + 1;
        for (int j = 0; j < 5; j++) { /* an odd step visits each of the 8 names once */
            wants[j] = (hf_want){sizeof(hf_want), name_of(offset + j * step), HF_EXCLUSIVE, 1, 1};
            pointers[j] = &wants[j];
        }
        hf_hold *hold;
        hf_client *client = crew->clients[me->index % 2];
        CHECK_EQ_INT(hf_acquire_all(client, pointers, 5, &crew->options, &hold), HF_OK);
        for (int j = 0; j < 5; j++)
            crew->rooms[(offset + j * step) % NAMES_MAX].entries++;
        let_go(hold);
        atomic_fetch_add(&crew->done, 1);
    }
    return NULL;
}

TEST(several_names_in_any_order_never_deadlock) {
    struct crew crew = {.clients = {open_client(), open_client()},
                        .rounds = times(125),
                        .until_ms = now_ms() + times(60000),
                        .options = lease_of(10000, HF_FOREVER)};
    run_crew(&crew, 8, take_several);
    long entries = 0;
    for (int i = 0; i < NAMES_MAX; i++) {
        entries += crew.rooms[i].entries;
        check_free(name_of(i));
    }
    CHECK_EQ_INT(entries, 5 * atomic_load(&crew.done));
    hf_client_close(crew.clients[0]);
    hf_client_close(crew.clients[1]);
}
