/* What the parts of the conformance suite share: clients on the URL that the program was given,
 * names that have never been used before (so the suite may run repeatedly on one store), and the
 * two forms.
 *
 * A test written with BOTH_FORMS runs twice: once with the calls that block, once with those that
 * only start something, driven by a poll loop over the descriptors of all its clients. It uses the
 * lower-case helpers here (acquire, release, …) in place of the hf_ calls, and is otherwise the
 * same.
 *
 * Time is bounded from below exactly (the contract), from above generously: PATIENCE_MS allows for
 * a busy machine under a sanitizer and is not a promise of the library. A busy machine may also
 * stop this program between any two statements: a lock that must still be held later has a lease of
 * LEASE_MS at least, and a deadline is computed from a clock that was read before the time left
 * (where something must not happen before it) or after (where something must have happened). */
#ifndef TESTS_CONFORMANCE_SUITE_H
#define TESTS_CONFORMANCE_SUITE_H

#define TEST_TIMEOUT_S 300
#include "check.h"
#include "support/fork_safely.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    PATIENCE_MS = 30000,
    LONG_LEASE_MS = 60000, /* not the reason for anything that happens within PATIENCE_MS */
    LEASE_MS = 3000,       /* the shortest that renewals can keep on a busy machine */
    TRIES = 20,            /* if the machine may be too slow for what is to be shown */
    LONG_TRIES = 5         /* the same, if a try takes seconds */
};

/* True if the test may make another try, the i-th from 0 on. Each one after the first is reported:
 * the machine was too slow. */
static bool may_try(int i, int most) {
    if (i > 0 && i < most) {
        printf("# again: %s\n", test_current->name);
        fflush(stdout);
    }
    return i < most;
}

/* ---- What the program was given ----------------------------------------------------------- */

static const char *suite_url(void) {
    if (test_args_count < 1)
        test_fail(__FILE__, __LINE__, "usage: conformance [-t words] URL [SCALE]");
    return test_args[0];
}

/* HOLDFAST_TEST_MORE=5: five times as many repetitions, up to the full number, and both forms
 * wherever the whole suite runs. */
static double more(void) {
    const char *text = getenv("HOLDFAST_TEST_MORE");
    return text ? atof(text) : 1;
}

/* `count`, made smaller by the scale for stores (or machines) that are slow: 0.1 is a tenth. */
static int times(int count) {
    double scale = (test_args_count > 1 ? atof(test_args[1]) : 1) * more();
    int scaled = (int)(count * (scale < 1 ? scale : 1));
    return scaled > 0 ? scaled : 1;
}

/* ---- Waiting and errors ------------------------------------------------------------------- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void idle(int64_t since_ms);

/* Waits for a condition that no call waits for. */
#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int64_t await_since = now_ms(); !(condition); idle(await_since))                  \
            if (now_ms() > await_since + PATIENCE_MS)                                          \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

/* The text of the last failure of one of the helpers below, in either form. */
static _Thread_local char failure[1024];

static int noted(int status) {
    if (status < 0)
        snprintf(failure, sizeof failure, "%s", hf_last_error());
    return status;
}

#define CHECK_IS(actual, expected)                                                        \
    do {                                                                                  \
        int check_status = (actual);                                                      \
        if (check_status != (expected))                                                   \
            test_fail(__FILE__, __LINE__, "%s is %s, not %s (last failure: %s)", #actual, \
                      hf_error_name(check_status), #expected, failure);                   \
    } while (0)

/* ---- Names and clients -------------------------------------------------------------------- */

enum { NAMES = 256, NAME_SIZE = 96 };

/* A name that no test and no earlier run has used. */
static const char *fresh_name(const char *what) {
    static char names[NAMES][NAME_SIZE];
    static atomic_uint used;
    unsigned index = atomic_fetch_add(&used, 1);
    CHECK(index < NAMES);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(names[index], NAME_SIZE, "%s-%lx%05lx-%d-%u", what, (unsigned long)now.tv_sec,
             (unsigned long)now.tv_nsec / 1000, (int)getpid(), index);
    return names[index];
}

enum { CLIENTS = 16 };
static hf_client *clients[CLIENTS];
static size_t client_count;

static void close_clients(void) {
    while (client_count > 0)
        hf_client_close(clients[--client_count]);
}

/* Clients are closed when the test ends, if not before by close_client. */
static hf_client *open_client_with(const hf_client_options *options) {
    hf_client *client;
    CHECK_IS(noted(hf_client_open(suite_url(), options, &client)), HF_OK);
    CHECK(client_count < CLIENTS);
    if (client_count == 0)
        atexit(close_clients);
    clients[client_count++] = client;
    return client;
}

enum { WAIT_LEASE_MS = 120000 }; /* a third of it is above PATIENCE_MS */

/* Opens a client with a long wait lease: a waiter asks again so rarely that a missed hand-off or
 * wake-up is not repaired before the test has failed. */
static hf_client *open_client(void) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.wait_lease_ms = WAIT_LEASE_MS;
    return open_client_with(&options);
}

static void close_client(hf_client *client) {
    size_t index = 0;
    while (clients[index] != client)
        index++;
    clients[index] = clients[--client_count];
    CHECK(hf_client_close(client) == NULL);
}

/* Closes a client, and returns whether the store has confirmed its releases: a close waits for that
 * for a second at most. */
static bool is_closed_in_time(hf_client *client) {
    int64_t before = now_ms();
    close_client(client);
    return now_ms() < before + 900;
}

/* ---- The two forms ------------------------------------------------------------------------ */

static enum { BLOCKING, LOOPING } form;

#define BOTH_FORMS(name)           \
    static void both_##name(void); \
    TEST(name) {                   \
        form = BLOCKING;           \
        both_##name();             \
    }                              \
    TEST(name##_in_a_poll_loop) {  \
        form = LOOPING;            \
        both_##name();             \
    }                              \
    static void both_##name(void)

/* One turn of the loop: waits until a client has something to do, and lets it run. */
static int loop_once(int wait_ms) {
    struct pollfd fds[CLIENTS];
    for (size_t i = 0; i < client_count; i++) {
        fds[i] = (struct pollfd){.fd = hf_fd(clients[i]), .events = POLLIN};
        CHECK(fds[i].fd >= 0);
    }
    int ready = poll(fds, client_count, wait_ms);
    for (size_t i = 0; i < client_count; i++)
        if (ready > 0 && fds[i].revents)
            CHECK_IS(hf_process(clients[i]), HF_OK);
    return ready;
}

/* Pauses before the next look, for longer the longer it has taken so far: looking also costs
 * time. */
static void idle(int64_t since_ms) {
    int64_t taken_ms = now_ms() - since_ms;
    int pause_ms = taken_ms < 20 ? 1 : taken_ms > 400 ? 20 : (int)(taken_ms / 20);
    int64_t until = now_ms() + pause_ms;
    if (form == BLOCKING)
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000L}, NULL);
    else
        for (int64_t now = now_ms(); now < until; now = now_ms())
            loop_once((int)(until - now));
}

/* Drives the loop until the call has completed. The descriptors must announce it: this looks at the
 * call only after one of them was readable. */
static int finish(hf_call *call) {
    int status;
    int64_t until = now_ms() + PATIENCE_MS;
    while ((status = hf_call_status(call)) == HF_PENDING) {
        if (loop_once(PATIENCE_MS) == 0)
            test_fail(__FILE__, __LINE__, "a call is pending and no descriptor becomes readable");
        if (now_ms() > until)
            test_fail(__FILE__, __LINE__, "a call is pending after %d ms", PATIENCE_MS);
    }
    return status;
}

/* The result of a call that the test started itself. */
static int outcome(hf_call *call) {
    return form == BLOCKING ? hf_call_wait(call, PATIENCE_MS) : finish(call);
}

static int finish_and_free(int started, hf_call *call, hf_hold **ret_hold, hf_locks **ret_locks) {
    if (started < 0)
        return noted(started);
    int status = finish(call);
    if (status < 0)
        snprintf(failure, sizeof failure, "%s", hf_call_error(call));
    if (status == HF_OK && ret_hold)
        *ret_hold = hf_call_take_hold(call);
    if (status == HF_OK && ret_locks)
        *ret_locks = hf_call_take_locks(call);
    CHECK(hf_call_free(call) == NULL);
    return status;
}

static int acquire(hf_client *client, const char *name, hf_acquire_options options,
                   hf_hold **ret_hold) {
    if (form == BLOCKING)
        return noted(hf_acquire(client, name, &options, ret_hold));
    hf_call *call = NULL;
    int started = hf_acquire_start(client, name, &options, &call);
    return finish_and_free(started, call, ret_hold, NULL);
}

static int acquire_all(hf_client *client, const hf_want *const *wants, size_t count,
                       hf_acquire_options options, hf_hold **ret_hold) {
    if (form == BLOCKING)
        return noted(hf_acquire_all(client, wants, count, &options, ret_hold));
    hf_call *call = NULL;
    int started = hf_acquire_all_start(client, wants, count, &options, &call);
    return finish_and_free(started, call, ret_hold, NULL);
}

static int renew(hf_hold *hold, int64_t lease_ms) {
    if (form == BLOCKING)
        return noted(hf_renew(hold, lease_ms));
    hf_call *call = NULL;
    int started = hf_renew_start(hold, lease_ms, &call);
    return finish_and_free(started, call, NULL, NULL);
}

static int release(hf_hold *hold) {
    if (form == BLOCKING)
        return noted(hf_release(hold));
    hf_call *call = NULL;
    int started = hf_release_start(hold, &call);
    return finish_and_free(started, call, NULL, NULL);
}

static int break_hold_because(hf_client *client, const char *name, uint64_t token,
                              const char *reason) {
    if (form == BLOCKING)
        return noted(hf_break(client, name, token, reason));
    hf_call *call = NULL;
    int started = hf_break_start(client, name, token, reason, &call);
    return finish_and_free(started, call, NULL, NULL);
}

static int break_hold(hf_client *client, const char *name, uint64_t token) {
    return break_hold_because(client, name, token, NULL);
}

static int inspect(hf_client *client, const char *name, hf_locks **ret_locks) {
    if (form == BLOCKING)
        return noted(hf_inspect(client, name, ret_locks));
    hf_call *call = NULL;
    int started = hf_inspect_start(client, name, &call);
    return finish_and_free(started, call, NULL, ret_locks);
}

static int list(hf_client *client, const char *prefix, const char *after, size_t limit,
                hf_locks **ret_locks) {
    if (form == BLOCKING)
        return noted(hf_list(client, prefix, after, limit, ret_locks));
    hf_call *call = NULL;
    int started = hf_list_start(client, prefix, after, limit, &call);
    return finish_and_free(started, call, NULL, ret_locks);
}

/* ---- Words of the tests ------------------------------------------------------------------- */

static hf_acquire_options as_kind(hf_kind kind, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = kind;
    options.wait_ms = wait_ms;
    options.lease_ms = LONG_LEASE_MS;
    return options;
}

static hf_acquire_options as_exclusive(int64_t wait_ms) {
    return as_kind(HF_EXCLUSIVE, wait_ms);
}

static hf_acquire_options as_shared(int64_t wait_ms) {
    return as_kind(HF_SHARED, wait_ms);
}

static hf_acquire_options as_permits(uint32_t permits, uint32_t capacity, int64_t wait_ms) {
    hf_acquire_options options = as_kind(HF_PERMITS, wait_ms);
    options.permits = permits;
    options.capacity = capacity;
    return options;
}

static hf_acquire_options with_flags(hf_acquire_options options, unsigned flags) {
    options.flags |= flags;
    return options;
}

static hf_acquire_options with_label(hf_acquire_options options, const char *label) {
    options.label = label;
    return options;
}

/* A lease that ends unless the test renews it. */
static hf_acquire_options for_only(hf_acquire_options options, int64_t lease_ms) {
    options.lease_ms = lease_ms;
    return with_flags(options, HF_NO_RENEW);
}

/* A lease for a hold that is to be broken. It does not end by itself before that, and a store that
 * cannot notify the holder at once does so at the next renewal, which is soon. */
static hf_acquire_options breakable(hf_acquire_options options) {
    options.lease_ms = 3 * LEASE_MS;
    return options;
}

/* An acquire that must succeed. On a busy machine, the lease may be over before the answer is read.
 * It then acquires again, once the lease has also ended for the store; and with a longer lease if
 * that does not help, because the store itself is as slow. */
static hf_hold *get(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *hold = NULL;
    int status = acquire(client, name, options, &hold);
    for (int i = 1; status == HF_SHORT && may_try(i, TRIES); i++) {
        options.wait_ms = PATIENCE_MS;
        if (i > TRIES / 2 && options.lease_ms < LEASE_MS)
            options.lease_ms *= 2;
        status = acquire(client, name, options, &hold);
    }
    CHECK_IS(status, HF_OK);
    CHECK(hold != NULL);
    return hold;
}

static void let_go(hf_hold *hold) {
    CHECK_IS(release(hold), HF_OK);
    CHECK(hf_hold_free(hold) == NULL);
}

/* What an acquire would return now: a granted lock is released at once. A failure must leave the
 * hold untouched. */
static int attempt(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *const untouched = (hf_hold *)(uintptr_t)1;
    hf_hold *hold = untouched;
    int status = acquire(client, name, options, &hold);
    if (status == HF_OK)
        let_go(hold);
    else
        CHECK(hold == untouched);
    return status;
}

/* What an acquire returns that waits in vain. On a busy machine, the wait may end before the
 * store's first answer, which gives HF_UNKNOWN; it is then tried with a longer wait. */
static int attempt_in_vain(hf_client *client, const char *name, hf_acquire_options options) {
    int status = attempt(client, name, options);
    for (int i = 1; status == HF_UNKNOWN && options.wait_ms < PATIENCE_MS / 4 && may_try(i, TRIES);
         i++) {
        options.wait_ms *= 4;
        status = attempt(client, name, options);
    }
    return status;
}

/* ---- Requests that wait ------------------------------------------------------------------- */

/* An acquire that is under way: a thread that blocks in it, or a call in the loop. */
struct ask {
    hf_client *client;
    const char *name;
    const hf_want *const *wants; /* several names, instead of `name` */
    size_t want_count;
    hf_acquire_options options;
    pthread_t thread;
    hf_call *call;
    atomic_bool is_done;
    int status;
    hf_hold *hold;
};

static void *ask_thread(void *arg) {
    struct ask *ask = arg;
    ask->status =
        ask->wants ? acquire_all(ask->client, ask->wants, ask->want_count, ask->options, &ask->hold)
                   : acquire(ask->client, ask->name, ask->options, &ask->hold);
    atomic_store(&ask->is_done, true);
    return NULL;
}

static struct ask *ask_begin(struct ask request) {
    struct ask *ask = malloc(sizeof *ask);
    CHECK(ask != NULL);
    *ask = request;
    if (form == BLOCKING)
        CHECK(pthread_create(&ask->thread, NULL, ask_thread, ask) == 0);
    else if (ask->wants)
        CHECK_IS(hf_acquire_all_start(ask->client, ask->wants, ask->want_count, &ask->options,
                                      &ask->call),
                 HF_OK);
    else
        CHECK_IS(hf_acquire_start(ask->client, ask->name, &ask->options, &ask->call), HF_OK);
    return ask;
}

static struct ask *ask_for(hf_client *client, const char *name, hf_acquire_options options) {
    return ask_begin((struct ask){.client = client, .name = name, .options = options});
}

static bool is_answered(struct ask *ask) {
    return form == BLOCKING ? atomic_load(&ask->is_done) : hf_call_status(ask->call) != HF_PENDING;
}

/* Waits for the end of the request and frees it. */
static int answer(struct ask *ask, hf_hold **ret_hold) {
    if (form == BLOCKING) {
        AWAIT(atomic_load(&ask->is_done));
        CHECK(pthread_join(ask->thread, NULL) == 0);
    } else {
        ask->status = finish_and_free(HF_OK, ask->call, &ask->hold, NULL);
    }
    int status = ask->status;
    if (status == HF_OK)
        *ret_hold = ask->hold;
    free(ask);
    return status;
}

static hf_hold *granted(struct ask *ask) {
    hf_hold *hold = NULL;
    CHECK_IS(answer(ask, &hold), HF_OK);
    return hold;
}

/* ---- Looking ------------------------------------------------------------------------------ */

/* Counts the holders or the waiters of a name; 0 if the store does not know the name. */
static size_t count_parties(hf_client *client, const char *name, bool is_waiters) {
    hf_locks *locks = NULL;
    CHECK_IS(inspect(client, name, &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    size_t count = !info ? 0 : is_waiters ? info->waiter_count : info->holder_count;
    hf_locks_free(locks);
    return count;
}

static size_t waiters(hf_client *client, const char *name) {
    return count_parties(client, name, true);
}

static size_t holders(hf_client *client, const char *name) {
    return count_parties(client, name, false);
}

/* Where the queue cannot be seen, every request that was started counts as waiting. */
static bool are_waiting(hf_client *client, const char *name, size_t count) {
    return !hf_client_store(client)->queues || waiters(client, name) == count;
}

/* A request that is in the queue when this returns, as the `place`-th (from 1). */
static struct ask *queue_up(hf_client *client, const char *name, hf_acquire_options options,
                            size_t place) {
    struct ask *ask = ask_for(client, name, options);
    AWAIT(are_waiting(client, name, place));
    return ask;
}

/* ---- Losses ------------------------------------------------------------------------------- */

/* An on_lost for tests that only want to know how often it was called. */
static void count_loss(hf_hold *hold, void *count) {
    CHECK_IS(hf_check(hold, 0), HF_LOST);
    atomic_fetch_add((atomic_int *)count, 1);
}

static hf_acquire_options telling(hf_acquire_options options, atomic_int *losses) {
    options.on_lost = count_loss;
    options.on_lost_arg = losses;
    return options;
}

static bool is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void check_child_ends_well(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ_INT(status, 0);
}

#endif
