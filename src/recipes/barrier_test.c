/* Latch and barrier in threads that share a client. tests/conformance/recipes.c has what every
 * store must show. */
#include "check.h"

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>

enum { PATIENCE_MS = 60000, PARTIES = 4, ROUNDS = 10 };

static hf_client *client;

static void open_client(void) {
    CHECK_EQ_INT(hf_client_open("memory:barrier", NULL, &client), HF_OK);
}

TEST(what_cannot_be_waited_for_is_refused) {
    open_client();
    hf_latch_options latch = HF_LATCH_OPTIONS_INIT, no_size = {0};
    hf_barrier_options barrier = HF_BARRIER_OPTIONS_INIT, no_size_either = {0};
    hf_barrier *entered = NULL;
    CHECK_EQ_INT(hf_latch_await(NULL, "x", NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_latch_await(client, "x", &no_size), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_latch_await(client, NULL, NULL), HF_BAD_NAME);
    latch.wait_ms = -2;
    CHECK_EQ_INT(hf_latch_await(client, "x", &latch), HF_BAD_ARGUMENT);
    latch = (hf_latch_options)HF_LATCH_OPTIONS_INIT;
    latch.count = 0;
    CHECK_EQ_INT(hf_latch_count_down(client, "x", &latch, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_barrier_wait(NULL, "x", NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_barrier_wait(client, NULL, NULL), HF_BAD_NAME);
    CHECK_EQ_INT(hf_barrier_wait(client, "x", &no_size_either), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_barrier_enter(client, "x", &barrier, NULL), HF_BAD_ARGUMENT);
    barrier.parties = 0;
    CHECK_EQ_INT(hf_barrier_enter(client, "x", &barrier, &entered), HF_BAD_ARGUMENT);
    barrier.parties = 1;
    barrier.lease_ms = 0;
    CHECK_EQ_INT(hf_barrier_enter(client, "x", &barrier, &entered), HF_BAD_LEASE);
    CHECK_EQ_INT(hf_barrier_leave(NULL, 0), HF_BAD_ARGUMENT);
    CHECK(entered == NULL && hf_barrier_hold(NULL) == NULL && hf_barrier_free(NULL) == NULL);
    hf_client_close(client);
}

TEST(a_barrier_for_one_opens_at_once) {
    open_client();
    hf_barrier *barrier = NULL;
    CHECK_EQ_INT(hf_barrier_wait(client, "x", NULL), HF_OK);
    CHECK_EQ_INT(hf_barrier_enter(client, "x", NULL, &barrier), HF_OK);
    CHECK_EQ_INT(hf_barrier_leave(barrier, PATIENCE_MS), HF_OK);
    CHECK_EQ_INT(hf_barrier_leave(barrier, PATIENCE_MS), HF_OK); /* again */
    hf_barrier_free(barrier);
    hf_client_close(client);
}

/* ---- Threads ---- */

static atomic_int arrived[ROUNDS], inside;

/* Single and double barriers in turn: nobody passes before all are there. */
static void *take_part(void *arg) {
    hf_barrier_options options = HF_BARRIER_OPTIONS_INIT;
    options.parties = PARTIES;
    options.wait_ms = PATIENCE_MS;
    hf_barrier *barrier;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&arrived[i], 1);
        CHECK_EQ_INT(hf_barrier_wait(client, "single", &options), HF_OK);
        CHECK_EQ_INT(atomic_load(&arrived[i]), PARTIES);
        CHECK_EQ_INT(hf_barrier_enter(client, "double", &options, &barrier), HF_OK);
        atomic_fetch_add(&inside, 1);
        CHECK_EQ_INT(hf_check(hf_barrier_hold(barrier), 0), HF_OK);
        atomic_fetch_sub(&inside, 1);
        CHECK_EQ_INT(hf_barrier_leave(barrier, PATIENCE_MS), HF_OK);
        CHECK_EQ_INT(atomic_load(&inside), 0); /* all have left */
        CHECK(hf_barrier_free(barrier) == NULL);
        CHECK_EQ_INT(hf_barrier_wait(client, "end of the round", &options), HF_OK);
    }
    CHECK_EQ_INT(hf_latch_count_down(client, "latch", arg, NULL), HF_OK);
    CHECK_EQ_INT(hf_latch_await(client, "latch", arg), HF_OK);
    return NULL;
}

TEST(threads_meet_at_barriers_and_wait_for_a_latch) {
    open_client();
    hf_latch_options latch = HF_LATCH_OPTIONS_INIT;
    latch.count = PARTIES + 1;
    pthread_t threads[PARTIES];
    for (int i = 0; i < PARTIES; i++)
        CHECK(pthread_create(&threads[i], NULL, take_part, &latch) == 0);
    CHECK_EQ_INT(hf_latch_count_down(client, "latch", &latch, NULL), HF_OK);
    for (int i = 0; i < PARTIES; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    hf_client_close(client);
}
