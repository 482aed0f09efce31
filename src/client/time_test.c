/* The client on a clock that the test moves: waiting, leases, renewal, suspends, clocks that
 * differ. The store is the memory store, whose clock is the host's. */
#include "check.h"
#include "support/virtual_world.h"

#include <stdbool.h>
#include <time.h>

enum { MS = 1000, SECOND = 1000 * MS };
#define HOUR (INT64_C(3600) * SECOND)

static hf_client *open_client(void) {
    hf_client *client = virtual_client("memory:", NULL);
    CHECK(client != NULL);
    return client;
}

static hf_acquire_options lease_of(int64_t lease_ms, unsigned flags) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    options.flags = flags;
    options.wait_ms = 0;
    return options;
}

static int try_for(hf_client *client, const char *name, int64_t wait_ms, hf_hold **ret_hold) {
    hf_acquire_options options = lease_of(10000, 0);
    options.wait_ms = wait_ms;
    return hf_acquire(client, name, &options, ret_hold);
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

static void count_call(hf_hold *hold, void *count) {
    (void)hold;
    ++*(int *)count;
}

static hf_acquire_options telling(hf_acquire_options options, int *losses) {
    options.on_lost = count_call;
    options.on_lost_arg = losses;
    return options;
}

/* D of a lease: 1 % for drift, and 2 ms. */
static int64_t validity_us(int64_t lease_us) {
    return lease_us - lease_us / 100 - 2 * MS;
}

#define CHECK_BETWEEN(actual, low, high)                                                         \
    do {                                                                                         \
        long long check_actual = (long long)(actual);                                            \
        if (check_actual < (long long)(low) || check_actual > (long long)(high))                 \
            test_fail(__FILE__, __LINE__, "%s is %lld, not %lld to %lld", #actual, check_actual, \
                      (long long)(low), (long long)(high));                                      \
    } while (0)

/* ---- Waiting ---- */

TEST(waiting_for_an_hour_takes_no_real_time) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x", lease_of(10000, 0)), *other;
    time_t began = time(NULL);
    CHECK_EQ_INT(try_for(b, "x", HOUR / MS, &other), HF_TIMEOUT);
    CHECK_EQ_INT(virtual_now_us(), HOUR);
    CHECK(time(NULL) - began < 30);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK); /* it was renewed meanwhile */
    let_go(hold);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_wait_for_a_call_ends_at_its_time_limit) {
    hf_client *a = open_client();
    hf_hold *hold = get(a, "x", lease_of(10000, 0));
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(a, "x", NULL, &call), HF_OK);
    CHECK_EQ_INT(hf_call_wait(call, 12345), HF_PENDING);
    CHECK_EQ_INT(virtual_now_us(), 12345 * MS);
    hf_call_free(call);
    let_go(hold);
    hf_client_close(a);
}

TEST(the_longest_waits_do_not_overflow) {
    hf_client *a = open_client();
    hf_acquire_options options = lease_of(10000, 0);
    options.wait_ms = INT64_MAX;
    let_go(get(a, "x", options));
    hf_hold *hold = get(a, "x", lease_of(10000, HF_NO_RENEW));
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(a, "x", &options, &call), HF_OK);
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    CHECK_EQ_INT(hf_call_wait(call, INT64_MAX), HF_OK); /* when the first lease has ended */
    hf_call_free(call);
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(absurd_times_are_refused_and_do_not_overflow) {
    hf_client *a = open_client();
    hf_hold *hold;
    hf_acquire_options options = lease_of(INT64_MAX, 0);
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &hold), HF_BAD_LEASE);
    options = lease_of(10000, 0);
    options.min_left_ms = INT64_MAX;
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &hold), HF_BAD_ARGUMENT);
    hold = get(a, "x", lease_of(10000, 0));
    CHECK_EQ_INT(hf_renew(hold, INT64_MAX), HF_BAD_LEASE);
    CHECK_EQ_INT(hf_check(hold, INT64_MAX), HF_SHORT);
    let_go(hold);
    hf_client_close(a);
}

TEST(a_waiter_gets_the_lock_in_the_moment_of_the_release) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x", lease_of(10000, 0));
    hf_call *call;
    hf_acquire_options options = lease_of(10000, 0);
    options.wait_ms = HF_FOREVER;
    CHECK_EQ_INT(hf_acquire_start(b, "x", &options, &call), HF_OK);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    let_go(hold);
    virtual_pass_us(0);
    CHECK_EQ_INT(hf_call_status(call), HF_OK);
    hf_call_free(call);
    hf_client_close(a);
    hf_client_close(b);
}

/* ---- Leases that the store cuts short ---- */

static hf_client *open_limited(const char *url) {
    hf_client *client = virtual_client(url, NULL);
    CHECK(client != NULL);
    return client;
}

TEST(a_lock_is_kept_by_renewals_in_time_for_the_lease_that_was_granted) {
    hf_client *a = open_limited("memory:?lease_limit=2000"), *b = open_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0)), *other;
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_us(2 * SECOND) / MS);
    CHECK_EQ_INT(try_for(b, "x", HOUR / MS, &other), HF_TIMEOUT);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    virtual_pause(a);
    virtual_pass_us(2 * SECOND);
    CHECK_EQ_INT(try_for(b, "x", 0, &other), HF_OK);
    let_go(other);
    virtual_resume(a);
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_set_holds_for_the_shortest_lease_of_its_nodes) {
    hf_client *a = open_limited("quorum+memory:a,b,c?lease_limit=2000");
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_us(2 * SECOND) / MS);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    let_go(hold);
    hf_client_close(a);
}

TEST(a_limit_of_leases_is_a_number_of_milliseconds) {
    CHECK(virtual_client("memory:?lease_limit=0", NULL) == NULL);
    CHECK(strstr(hf_last_error(), "lease_limit is not a number from 1 to ") != NULL);
    CHECK(virtual_client("memory:?lease_limit=2s", NULL) == NULL);
    CHECK(virtual_client("memory:?lease_limit=2000&lease=2000", NULL) == NULL);
    CHECK(strstr(hf_last_error(), "no other option than lease_limit") != NULL);
    CHECK(virtual_client("memory:?lease=2000", NULL) == NULL);
}

/* ---- Leases ---- */

TEST(a_lease_without_renewal_ends_at_its_deadline) {
    hf_client *a = open_client();
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(10000, HF_NO_RENEW), &losses));
    int64_t deadline_us = validity_us(10 * SECOND);
    CHECK_EQ_INT(hf_hold_left_ms(hold), deadline_us / MS);
    virtual_pass_us(deadline_us - 1 * MS);
    CHECK_EQ_INT(hf_check(hold, 1), HF_OK);
    CHECK_EQ_INT(hf_check(hold, 2), HF_SHORT);
    CHECK_EQ_INT(losses, 0);
    virtual_pass_us(1 * MS);
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    CHECK_EQ_INT(losses, 1);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(a);
}

/* FAILURES.md 1, seen from the next in the queue */
TEST(a_paused_holder_is_succeeded_when_its_lease_ends) {
    hf_client *a = open_client(), *b = open_client();
    int losses = 0;
    hf_hold *first = get(a, "x", telling(lease_of(10000, 0), &losses)), *second;
    virtual_pass_us(HOUR);
    int64_t paused_at_us = virtual_now_us();
    virtual_pause(a);
    CHECK_EQ_INT(try_for(b, "x", HF_FOREVER, &second), HF_OK);
    CHECK_BETWEEN(virtual_now_us() - paused_at_us, 6500 * MS, 10001 * MS);
    CHECK(hf_hold_token(second) > hf_hold_token(first));
    CHECK_EQ_INT(losses, 0);
    CHECK_EQ_INT(hf_check(first, 0), HF_LOST); /* at its first check */
    virtual_resume(a);
    virtual_pass_us(0);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(hf_release(first), HF_LOST);
    CHECK_EQ_INT(hf_check(second, 0), HF_OK);
    hf_hold_free(first);
    let_go(second);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_paused_waiter_costs_the_others_its_wait_lease) {
    hf_client *a = open_client(), *b = open_client(), *c = open_client();
    hf_hold *hold = get(a, "x", lease_of(10000, 0));
    hf_call *of_b, *of_c;
    CHECK_EQ_INT(hf_acquire_start(b, "x", NULL, &of_b), HF_OK);
    CHECK_EQ_INT(hf_acquire_start(c, "x", NULL, &of_c), HF_OK);
    virtual_pass_us(60 * SECOND);
    virtual_pause(b);
    let_go(hold);
    int64_t released_us = virtual_now_us();
    CHECK_EQ_INT(hf_call_wait(of_c, HF_FOREVER), HF_OK);
    CHECK_BETWEEN(virtual_now_us() - released_us, 1 * SECOND, 4 * SECOND);
    hf_call_free(of_c);
    virtual_resume(b);
    CHECK_EQ_INT(hf_call_wait(of_b, HF_FOREVER), HF_OK);
    hf_call_free(of_b);
    hf_client_close(a);
    hf_client_close(b);
    hf_client_close(c);
}

TEST(a_lock_is_held_for_a_simulated_month) {
    hf_client *a = open_client(), *b = open_client();
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(30000, 0), &losses)), *other;
    for (int hour = 0; hour < 30 * 24; hour++) {
        virtual_pass_us(HOUR);
        /* Two thirds of the lease are left at the worst. */
        CHECK_BETWEEN(hf_hold_left_ms(hold), 19000, 30000);
        CHECK_EQ_INT(try_for(b, "x", 0, &other), HF_BUSY);
    }
    CHECK_EQ_INT(losses, 0);
    let_go(hold);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_renewal_by_hand_sets_the_lease_and_never_shortens_it) {
    hf_client *a = open_client();
    hf_hold *hold = get(a, "x", lease_of(20000, HF_NO_RENEW));
    CHECK_EQ_INT(hf_renew(hold, 5000), HF_OK);
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_us(20 * SECOND) / MS);
    CHECK_EQ_INT(hf_renew(hold, 40000), HF_OK);
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_us(40 * SECOND) / MS);
    virtual_pass_us(validity_us(40 * SECOND));
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(a);
}

/* ---- Several names ---- */

TEST(several_names_share_one_time_limit) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *x = get(a, "x", lease_of(10000, 0)), *y = get(a, "y", lease_of(10000, 0)), *both;
    const hf_want wants[2] = {{sizeof(hf_want), "y", HF_EXCLUSIVE, 1, 1},
                              {sizeof(hf_want), "x", HF_EXCLUSIVE, 1, 1}};
    const hf_want *const pointers[] = {&wants[0], &wants[1]};
    hf_acquire_options options = lease_of(10000, 0);
    options.wait_ms = 60000;
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_all_start(b, pointers, 2, &options, &call), HF_OK);
    virtual_pass_us(40 * SECOND);
    let_go(x);
    virtual_pass_us(20 * SECOND - 1);
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    virtual_pass_us(1);
    CHECK_EQ_INT(hf_call_status(call), HF_TIMEOUT);
    CHECK(strstr(hf_call_error(call), "\"y\"") != NULL);
    CHECK_EQ_INT(try_for(a, "x", 0, &x), HF_OK); /* what was acquired was released */
    let_go(x);
    let_go(y);
    CHECK_EQ_INT(hf_acquire_all(b, pointers, 2, &options, &both), HF_OK);
    virtual_pass_us(HOUR);
    let_go(both);
    hf_call_free(call);
    hf_client_close(a);
    hf_client_close(b);
}

/* ---- Clocks that part ways ---- */

/* FAILURES.md 3 */
static void check_long_suspend(const char *url) {
    hf_client *a = virtual_client(url, NULL), *b = virtual_client(url, NULL);
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(10000, 0), &losses)), *other;
    virtual_pass_us(HOUR);
    virtual_suspend_us(HOUR);
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    CHECK_EQ_INT(hf_hold_left_ms(hold), 0);
    virtual_pass_us(0);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(try_for(b, "x", 0, &other), HF_OK);
    CHECK(hf_hold_token(other) > hf_hold_token(hold));
    hf_hold_free(hold);
    CHECK_EQ_INT(hf_check(other, 0), HF_OK);
    let_go(other);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_suspend_longer_than_the_lease_loses_the_lock) {
    check_long_suspend("memory:");
}

TEST(a_suspend_longer_than_the_lease_loses_the_lock_of_a_set) {
    check_long_suspend("quorum+memory:a,b,c,d,e");
}

TEST(a_suspend_shorter_than_what_is_left_keeps_the_lock) {
    hf_client *a = open_client();
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(10000, 0), &losses));
    virtual_suspend_us(9 * SECOND);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(hf_check(hold, 5000), HF_OK);
    CHECK_EQ_INT(losses, 0);
    let_go(hold);
    hf_client_close(a);
}

/* FAILURES.md 4: the store's clock steps forward, and its lease ends early */
TEST(a_step_of_the_stores_clock_is_reported_at_the_next_renewal_and_fenced) {
    hf_client *a = open_client(), *b = open_client();
    int losses = 0;
    hf_hold *first = get(a, "x", telling(lease_of(9000, 0), &losses)), *second;
    virtual_step_host_us(60 * SECOND);
    CHECK_EQ_INT(try_for(b, "x", 0, &second), HF_OK);
    CHECK(hf_hold_token(second) > hf_hold_token(first));
    virtual_pass_us(3 * SECOND);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(hf_check(first, 0), HF_LOST);
    CHECK_EQ_INT(hf_release(first), HF_LOST);
    CHECK_EQ_INT(hf_check(second, 0), HF_OK);
    hf_hold_free(first);
    let_go(second);
    hf_client_close(a);
    hf_client_close(b);
}

/* FAILURES.md 5 */
TEST(a_step_back_of_the_stores_clock_is_a_clock_error_and_not_busy) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x", lease_of(10000, HF_NO_RENEW)), *other;
    virtual_step_host_us(-HOUR / 2);
    CHECK_EQ_INT(try_for(b, "x", 0, &other), HF_CLOCK);
    CHECK_EQ_INT(try_for(b, "x", 5000, &other), HF_CLOCK);
    CHECK(strstr(hf_last_error(), "max_lease") != NULL);
    virtual_step_host_us(HOUR / 2);
    CHECK_EQ_INT(try_for(b, "x", 0, &other), HF_BUSY);
    let_go(hold);
    hf_client_close(a);
    hf_client_close(b);
}

/* Whether a still thinks that it holds the lock when b gets it. */
static bool overlaps(hf_client *a, hf_client *b) {
    hf_hold *first = get(a, "x", lease_of(10000, HF_NO_RENEW)), *second;
    while (try_for(b, "x", 0, &second) != HF_OK)
        virtual_pass_us(1 * MS);
    bool both = hf_check(first, 0) == HF_OK;
    hf_hold_free(first);
    let_go(second);
    return both;
}

/* FAILURES.md 6 */
TEST(clocks_that_run_apart_within_drift_never_let_two_in) {
    hf_client *a = open_client(), *b = open_client();
    for (int ppm = -10000; ppm <= 10000; ppm += 2500) {
        virtual_set_host_rate_ppm(ppm);
        CHECK(!overlaps(a, b));
    }
    virtual_set_host_rate_ppm(80000); /* slewed: above what the default allows for */
    CHECK(overlaps(a, b));
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.drift_ppm = 80000;
    hf_client *wary = virtual_client("memory:", &options);
    CHECK(!overlaps(wary, b));
    hf_client_close(a);
    hf_client_close(b);
    hf_client_close(wary);
}

static uint64_t next_token(hf_client *client, const char *name, uint64_t above) {
    hf_hold *hold = get(client, name, lease_of(10000, 0));
    uint64_t token = hf_hold_token(hold);
    CHECK(token > above);
    CHECK(token < UINT64_C(1) << 53);
    let_go(hold);
    return token;
}

TEST(tokens_rise_whatever_the_wall_clock_does) {
    hf_client *a = open_client(), *b = open_client();
    static const int64_t steps_us[] = {HOUR, -2 * HOUR, 100, -HOUR * 24 * 365 * 20,
                                       HOUR, HOUR * 25};
    uint64_t token = 0;
    for (size_t i = 0; i < sizeof steps_us / sizeof *steps_us; i++) {
        token = next_token(a, "x", token);
        virtual_step_wall_us(steps_us[i]);
        token = next_token(b, "x", token);
        hf_client *late = open_client(); /* which has seen nothing before */
        token = next_token(late, "x", token);
        hf_client_close(late);
        virtual_pass_us(SECOND);
    }
    hf_client_close(a);
    hf_client_close(b);
}

TEST(tokens_rise_after_the_counter_was_forgotten) {
    hf_client *a = open_client();
    uint64_t token = next_token(a, "x", 0);
    hf_client *b = open_client(); /* keeps the space, and has seen nothing */
    hf_client_close(a);
    virtual_pass_us(HOUR * 24 * 8);
    next_token(b, "y", 0); /* any request sweeps what is old */
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(b, "x", &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 0);
    hf_locks_free(locks);
    next_token(b, "x", token);
    hf_client_close(b);
}

TEST(tokens_far_ahead_of_one_name_do_not_affect_other_names) {
    hf_client *client = open_client();
    virtual_step_wall_us(240 * HOUR);
    let_go(get(client, "ahead", lease_of(10000, 0)));
    virtual_step_wall_us(-240 * HOUR);
    hf_hold *hold = get(client, "new", lease_of(10000, 0));
    hf_hold *ahead = get(client, "ahead", lease_of(10000, 0));
    CHECK(hf_hold_token(ahead) > hf_hold_token(hold) + 239 * HOUR);
    let_go(hold);
    let_go(ahead);
    hf_client_close(client);
}

TEST(a_token_floor_holds_for_every_name) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.token_floor = UINT64_C(1) << 52;
    hf_client *a = virtual_client("memory:", &options), *b = open_client();
    next_token(a, "x", options.token_floor - 1);
    next_token(b, "y", options.token_floor - 1);
    hf_client_close(a);
    hf_client_close(b);
}
