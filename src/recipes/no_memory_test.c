/* Recipes without memory: a clear error, and nothing leaks (AddressSanitizer looks). */
#include "check.h"
#include "support/failing.h"

#include <holdfast/holdfast.h>
#include <stdbool.h>

static hf_client *client;

static void open_client(void) {
    CHECK_EQ_INT(hf_client_open("memory:recipes", NULL, &client), HF_OK);
}

/* If the watch cannot be started, hf_observe works without it. */
static void observe_until_time_is_up(void) {
    hf_leader leader = HF_LEADER_INIT;
    int r = hf_observe(client, "x", 0, 30, &leader);
    CHECK(r == HF_TIMEOUT || r == HF_NO_MEMORY);
    CHECK(r == HF_TIMEOUT || strstr(hf_last_error(), "out of memory"));
    CHECK(leader.token == 0);
}

TEST(observing_survives_failed_allocations) {
    open_client();
    fail_at_every_index(observe_until_time_is_up);
    hf_client_close(client);
}

static bool is_clear(int r) {
    return r == HF_OK || r == HF_NO_MEMORY || r == HF_TIMEOUT || r == HF_UNKNOWN;
}

/* The place is given up, with memory or without. */
static void pass_barrier(void) {
    hf_barrier_options options = HF_BARRIER_OPTIONS_INIT;
    hf_barrier *barrier = NULL;
    hf_locks *locks = NULL;
    options.wait_ms = 100;
    int r = hf_barrier_enter(client, "barrier", &options, &barrier);
    CHECK(is_clear(r) && !r == !!barrier);
    if (barrier)
        CHECK(is_clear(hf_barrier_leave(barrier, 100)));
    hf_barrier_free(barrier);
    fail_pause();
    CHECK_EQ_INT(hf_inspect(client, "barrier", &locks), HF_OK);
    CHECK(hf_locks_count(locks) == 0 || hf_locks_at(locks, 0)->holder_count == 0);
    hf_locks_free(locks);
    fail_resume();
}

TEST(a_barrier_survives_failed_allocations) {
    open_client();
    fail_at_every_index(pass_barrier);
    hf_client_close(client);
}

static void use_latch(void) {
    hf_latch_options options = HF_LATCH_OPTIONS_INIT;
    options.wait_ms = 50;
    CHECK(is_clear(hf_latch_count_down(client, "latch", &options, NULL)));
    CHECK(is_clear(hf_latch_await(client, "latch", &options)));
}

TEST(a_latch_survives_failed_allocations) {
    open_client();
    fail_at_every_index(use_latch);
    hf_client_close(client);
}
