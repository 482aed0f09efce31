/* Observing the leader, as a program with threads does it. tests/conformance/recipes.c has what
 * every store must show. */
#include "check.h"
#include "client/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { PATIENCE_MS = 30000 };

static hf_client *open_client(void) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:election", NULL, &client), HF_OK);
    return client;
}

static hf_hold *elect(hf_client *client, const char *name, const char *value) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.label = value;
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

/* ---- Arguments ---- */

TEST(what_cannot_be_observed_is_refused) {
    hf_client *client = open_client();
    hf_leader leader = HF_LEADER_INIT, no_size = {0};
    CHECK_EQ_INT(hf_observe(NULL, "x", 0, 0, &leader), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_observe(client, "x", 0, 0, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_observe(client, "x", 0, 0, &no_size), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_observe(client, "x", 0, -2, &leader), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_observe(client, NULL, 0, 0, &leader), HF_BAD_NAME);
    CHECK_EQ_INT(hf_observe(client, "", 0, 0, &leader), HF_BAD_NAME);
    hf_client_close(client);
}

TEST(a_program_with_a_smaller_struct_gets_what_fits) {
    hf_client *client = open_client();
    hf_hold *hold = elect(client, "x", "value");
    hf_leader leader = HF_LEADER_INIT;
    leader.size = offsetof(hf_leader, since_ms);
    leader.since_ms = 17;
    CHECK_EQ_INT(hf_observe(client, "x", 0, 0, &leader), HF_OK);
    CHECK_EQ_INT(leader.size, offsetof(hf_leader, since_ms));
    CHECK(leader.token == hf_hold_token(hold));
    CHECK_EQ_INT(leader.since_ms, 17);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(a_time_out_says_so) {
    hf_client *client = open_client();
    hf_leader leader = HF_LEADER_INIT;
    CHECK_EQ_INT(hf_observe(client, "x", 0, 30, &leader), HF_TIMEOUT);
    CHECK_EQ_STR(hf_last_error(), "it did not happen in time");
    hf_client_close(client);
}

/* ---- Pauses ---- */

TEST(a_pause_ends_when_it_is_cancelled_and_when_its_client_is_or_closes) {
    hf_client *client = open_client();
    hf_call *one, *two, *three;
    CHECK_EQ_INT(hf_pause_start(client, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_pause_start(client, &one), HF_OK);
    CHECK_EQ_INT(hf_pause_start(client, &two), HF_OK);
    CHECK_EQ_INT(hf_call_wait(one, 20), HF_PENDING);
    CHECK_EQ_INT(hf_call_cancel(one), HF_OK);
    CHECK_EQ_INT(hf_call_wait(one, HF_FOREVER), HF_CANCELLED);
    CHECK_EQ_INT(hf_call_status(two), HF_PENDING);
    CHECK_EQ_INT(hf_client_cancel(client), HF_OK);
    CHECK_EQ_INT(hf_call_wait(two, HF_FOREVER), HF_CANCELLED);
    CHECK_EQ_INT(hf_pause_start(client, &three), HF_OK);
    hf_client_close(client);
    CHECK_EQ_INT(hf_call_wait(three, HF_FOREVER), HF_CLOSED);
    hf_call_free(one);
    hf_call_free(two);
    hf_call_free(three);
}

/* ---- Threads ---- */

struct observer {
    hf_client *client;
    atomic_ulong token; /* of the last leader seen; 0: none */
    atomic_bool stops;
    pthread_t thread;
};

/* Follows the leaders until it is told to stop. Their tokens must rise. */
static void *follow(void *arg) {
    struct observer *o = arg;
    hf_leader leader = HF_LEADER_INIT;
    uint64_t largest = 0;
    while (!atomic_load(&o->stops)) {
        int r = hf_observe(o->client, "x", leader.token, HF_FOREVER, &leader);
        CHECK(r == HF_OK || r == HF_CANCELLED);
        CHECK(leader.token == 0 || leader.token >= largest);
        largest = leader.token ? leader.token : largest;
        atomic_store(&o->token, leader.token);
    }
    return NULL;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int await_ms = 0; !(condition); await_ms++, sleep_ms(1))                          \
            if (await_ms > PATIENCE_MS)                                                        \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

/* Two observers share a client: one has the client's watch, the other polls. */
TEST(observers_in_threads_follow_the_leaders_until_they_are_cancelled) {
    enum { OBSERVERS = 3, TERMS = 20 };
    hf_client *client = open_client(), *shared = open_client(), *own = open_client();
    struct observer observers[OBSERVERS] = {
        {.client = shared}, {.client = shared}, {.client = own}};
    for (int i = 0; i < OBSERVERS; i++)
        CHECK(pthread_create(&observers[i].thread, NULL, follow, &observers[i]) == 0);
    for (int term = 0; term < TERMS; term++) {
        hf_hold *hold = elect(client, "x", "value");
        for (int i = 0; i < OBSERVERS && term % 5 == 0; i++)
            AWAIT(atomic_load(&observers[i].token) == hf_hold_token(hold));
        hf_hold_free(hold);
    }
    for (int i = 0; i < OBSERVERS; i++) {
        atomic_store(&observers[i].stops, true);
        for (void *result; pthread_tryjoin_np(observers[i].thread, &result) != 0; sleep_ms(1))
            hf_client_cancel(observers[i].client);
    }
    hf_client_close(own);
    hf_client_close(shared);
    hf_client_close(client);
}

static void *observe_once(void *arg) {
    struct observer *o = arg;
    hf_leader leader = HF_LEADER_INIT;
    CHECK_EQ_INT(hf_observe(o->client, "nobody", 0, HF_FOREVER, &leader), HF_CLOSED);
    return NULL;
}

static bool has_calls(hf_client *client) {
    pthread_mutex_lock(&client->mutex);
    bool has = !list_empty(&client->calls);
    pthread_mutex_unlock(&client->mutex);
    return has;
}

/* Wherever the other thread is within the call. */
TEST(a_client_that_is_closed_ends_the_observing) {
    for (int i = 0; i < 30; i++) {
        struct observer o = {.client = open_client()};
        CHECK(pthread_create(&o.thread, NULL, observe_once, &o) == 0);
        AWAIT(has_calls(o.client));
        sleep_ms(i);
        hf_client_close(o.client);
        CHECK(pthread_join(o.thread, NULL) == 0);
    }
}
