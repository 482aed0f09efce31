/* The rate limiter. */
#include "suite.h"

enum { RATE = 3, WINDOW_MS = 2000 };

static hf_limit_options at_most(uint32_t rate, int64_t window_ms, int64_t wait_ms) {
    hf_limit_options options = HF_LIMIT_OPTIONS_INIT;
    options.rate = rate;
    options.window_ms = window_ms;
    options.wait_ms = wait_ms;
    return options;
}

static hf_limit_options in_fixed_windows(uint32_t rate, int64_t window_ms) {
    hf_limit_options options = at_most(rate, window_ms, 0);
    options.fixed = 1;
    return options;
}

static int limit(hf_client *client, const char *name, hf_limit_options options,
                 int64_t *ret_wait_ms) {
    return noted(hf_limit(client, name, &options, ret_wait_ms));
}

TEST(a_limiter_lets_its_rate_through_and_says_how_long_to_wait) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("limit");
    hf_limit_options now = at_most(RATE, LONG_LEASE_MS, 0);
    int64_t wait_ms = -1, begin = now_ms();
    CHECK_IS(limit(a, name, now, &wait_ms), HF_OK);
    int64_t first = now_ms();
    CHECK_IS(limit(b, name, now, NULL), HF_OK);
    CHECK_IS(limit(a, name, now, NULL), HF_OK);
    CHECK_EQ_INT(wait_ms, -1);
    for (int i = 0; i < 3; i++) {
        int64_t asked = now_ms();
        CHECK_IS(limit(i % 2 ? a : b, name, now, &wait_ms), HF_BUSY);
        CHECK(asked + wait_ms <= now_ms() + LONG_LEASE_MS - (asked - first) + 1);
        CHECK(now_ms() + wait_ms >= begin + LONG_LEASE_MS - 1);
    }
    CHECK(strstr(failure, "3 in 60000 ms have been let through") != NULL);
}

TEST(a_limiter_does_not_get_back_what_a_closed_client_used) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("closed");
    CHECK_IS(limit(a, name, at_most(1, LONG_LEASE_MS, 0), NULL), HF_OK);
    close_client(a);
    CHECK_IS(limit(b, name, at_most(1, LONG_LEASE_MS, 0), NULL), HF_BUSY);
}

/* Twice the rate: the callers in the second round are let through a window after the first. The
 * times are taken before the first of each pair was let through, and after the second was. */
TEST(a_limiter_lets_nobody_through_early) {
    enum { ROUNDS = 3 };
    hf_client *a = open_client();
    const char *name = fresh_name("early");
    int64_t before[ROUNDS * RATE], after[ROUNDS * RATE];
    for (int i = 0; i < ROUNDS * RATE; i++) {
        int status = HF_SHORT;
        while (status == HF_SHORT) { /* a busy machine may read the answer too late */
            before[i] = now_ms();
            status = limit(a, name, at_most(RATE, WINDOW_MS, HF_FOREVER), NULL);
            after[i] = now_ms();
        }
        CHECK_IS(status, HF_OK);
        CHECK(i < RATE || after[i] - before[i - RATE] >= WINDOW_MS - WINDOW_MS / 100);
    }
}

TEST(a_limiter_that_is_waited_for_in_vain_says_how_long_it_would_take) {
    hf_client *a = open_client();
    const char *name = fresh_name("in-vain");
    int64_t wait_ms = 0;
    CHECK_IS(limit(a, name, at_most(1, LONG_LEASE_MS, 0), NULL), HF_OK);
    int status = limit(a, name, at_most(1, LONG_LEASE_MS, 300), &wait_ms);
    CHECK(status == HF_TIMEOUT || status == HF_UNKNOWN);
    if (status == HF_TIMEOUT) /* its own place in the queue may still exist */
        CHECK(wait_ms > 0 && wait_ms <= 2 * LONG_LEASE_MS + 1);
}

TEST(a_limiter_with_another_rate_is_refused_while_the_first_is_in_use) {
    hf_client *a = open_client();
    const char *name = fresh_name("rates");
    CHECK_IS(limit(a, name, at_most(2, LONG_LEASE_MS, 0), NULL), HF_OK);
    CHECK_IS(limit(a, name, at_most(3, LONG_LEASE_MS, 0), NULL), HF_WRONG_KIND);
}

TEST(a_window_beyond_the_longest_lease_needs_a_client_that_permits_it) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.max_lease_ms = INT64_C(3600000);
    hf_client *a = open_client(), *b = open_client_with(&options);
    const char *name = fresh_name("hour");
    int64_t wait_ms;
    CHECK_IS(limit(a, name, at_most(1, 3600000, 0), NULL), HF_BAD_LEASE);
    CHECK_IS(limit(b, name, at_most(1, 3600000, 0), NULL), HF_OK);
    CHECK_IS(limit(b, name, at_most(1, 3600000, 0), &wait_ms), HF_BUSY);
    CHECK(wait_ms > 3600000 - PATIENCE_MS);
    CHECK_IS(attempt(a, fresh_name("other"), as_exclusive(0)), HF_OK);
}

TEST(a_limiter_with_bad_arguments_is_refused) {
    hf_client *a = open_client();
    const char *name = fresh_name("bad");
    hf_limit_options empty = {0};
    CHECK_IS(limit(a, name, at_most(0, 1000, 0), NULL), HF_BAD_WEIGHT);
    CHECK_IS(limit(a, name, at_most(HF_LIMIT_RATE_MAX + 1, 1000, 0), NULL), HF_BAD_WEIGHT);
    CHECK_IS(limit(a, name, at_most(1, 0, 0), NULL), HF_BAD_LEASE);
    CHECK_IS(limit(a, name, at_most(1, 1000, -2), NULL), HF_BAD_ARGUMENT);
    CHECK_IS(limit(a, name, empty, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(limit(a, "", at_most(1, 1000, 0), NULL), HF_BAD_NAME);
}

TEST(a_limiter_on_a_store_that_keeps_no_permits_is_refused) {
    hf_client *a = open_client();
    CHECK_IS(limit(a, fresh_name("refused"), at_most(1, 1000, 0), NULL), HF_UNSUPPORTED);
}

/* ---- Fixed windows ---- */

TEST(a_fixed_window_lets_its_rate_through_and_says_when_it_ends) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("fixed");
    hf_limit_options options = in_fixed_windows(RATE, LONG_LEASE_MS);
    int64_t wait_ms = 0;
    for (int i = 0; i < RATE; i++)
        CHECK_IS(limit(i % 2 ? a : b, name, options, NULL), HF_OK);
    CHECK_IS(limit(a, name, options, &wait_ms), HF_BUSY);
    CHECK(wait_ms > LONG_LEASE_MS - PATIENCE_MS && wait_ms <= LONG_LEASE_MS + 1);
}

/* Shows what it cannot promise, unlike the limiter above: twice the rate may pass around the end of
 * a window. */
TEST(a_fixed_window_lets_twice_the_rate_through_around_its_end) {
    hf_client *a = open_client();
    int64_t took_ms = WINDOW_MS;
    for (int i = 0; took_ms >= WINDOW_MS && may_try(i, TRIES); i++) {
        const char *name = fresh_name("edge");
        int64_t wait_ms = 0;
        CHECK_IS(limit(a, name, in_fixed_windows(RATE, WINDOW_MS), NULL), HF_OK);
        int64_t begin = now_ms();
        AWAIT(now_ms() - begin > WINDOW_MS * 3 / 4);
        begin = now_ms();
        for (int passed = 1; passed < 2 * RATE; passed++) {
            while (limit(a, name, in_fixed_windows(RATE, WINDOW_MS), &wait_ms) == HF_BUSY)
                idle(0);
        }
        took_ms = now_ms() - begin; /* for all but the first */
    }
    CHECK(took_ms < WINDOW_MS);
}

TEST(a_fixed_window_cannot_be_waited_for) {
    hf_client *a = open_client();
    hf_limit_options options = in_fixed_windows(1, 1000);
    options.wait_ms = 1000;
    CHECK_IS(limit(a, fresh_name("wait"), options, NULL), HF_BAD_ARGUMENT);
}

TEST(a_counter_without_an_end_is_no_limiter) {
    hf_client *a = open_client();
    const char *name = fresh_name("endless");
    hf_count_options add = HF_COUNT_OPTIONS_INIT;
    add.op = HF_COUNT_ADD;
    add.number = 1;
    CHECK_IS(noted(hf_count(a, name, &add, NULL)), HF_OK);
    CHECK_IS(limit(a, name, in_fixed_windows(5, 1000), NULL), HF_WRONG_KIND);
}
