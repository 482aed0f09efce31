/* Counts whose requests or answers are lost. The store has a single counter and remembers its last
 * answer. It treats each request as the test has planned; the clock is virtual. */
#include "check.h"
#include "client/client.h"
#include "support/virtual_world.h"

enum { MS = 1000, SECOND = 1000 * MS, SEEN_MAX = 200 };

/* What happens to one request. */
enum fate {
    ANSWERED,
    AWAY,         /* refused: nothing was sent */
    REQUEST_LOST, /* UNKNOWN, and not done */
    REPLY_LOST,   /* UNKNOWN, and done */
    DENIED,       /* refused, before anything was looked at */
    KEPT,         /* neither done nor answered until the test says so */
};

struct number_store {
    struct store store;
    struct store *replaced;
    struct store_host *host;
    const enum fate *plan; /* of the next requests; the last counts for all that follow */
    uint64_t seen[SEEN_MAX];
    int64_t seen_us[SEEN_MAX];
    size_t seen_count;
    int64_t value;
    uint64_t last_seq;
    int64_t last_value;
    struct list kept;
    int64_t *closing_value; /* where the value goes when it is closed; NULL: nowhere */
};

static struct number_store *store_of(hf_client *client) {
    return container_of(client->store, struct number_store, store);
}

/* Adds once for each `seq`. */
static void act(struct number_store *self, struct store_op *op) {
    if (op->seq != self->last_seq) {
        CHECK(op->seq > self->last_seq);
        self->last_seq = op->seq;
        self->last_value = self->value += op->number;
    }
    op->flags = 0;
    op->value = self->last_value;
    op->life_us = -1;
}

static void number_submit(struct store *store, struct store_op *op) {
    struct number_store *self = container_of(store, struct number_store, store);
    CHECK_EQ_INT(op->type, STORE_COUNT);
    CHECK(self->seen_count < SEEN_MAX);
    self->seen[self->seen_count] = op->seq;
    self->seen_us[self->seen_count++] = virtual_now_us();
    enum fate fate = *self->plan;
    if (fate == ANSWERED || fate == REPLY_LOST)
        act(self, op);
    if (fate == KEPT)
        list_append(&self->kept, &op->link);
    else if (fate == AWAY || fate == DENIED)
        store_refuse(self->host, op, fate == AWAY ? HF_UNREACHABLE : HF_DENIED, NULL);
    else
        store_complete(self->host, op, fate == ANSWERED ? STORE_DONE : STORE_UNKNOWN);
    if (self->plan[1] != (enum fate) - 1)
        self->plan++;
}

static void number_close(struct store *store) {
    struct number_store *self = container_of(store, struct number_store, store);
    struct list *link;
    while ((link = list_pop(&self->kept)))
        store_complete(self->host, container_of(link, struct store_op, link), STORE_UNKNOWN);
    if (self->closing_value)
        *self->closing_value = self->value;
    self->replaced->driver->close(self->replaced);
    free(self);
}

#define PLAN(...) ((const enum fate[]){__VA_ARGS__, (enum fate) - 1})

static hf_client *open_client(const enum fate *plan) {
    static struct store_driver driver;
    hf_client *client = virtual_client("memory:", NULL);
    CHECK(client != NULL);
    struct number_store *self = calloc(1, sizeof *self);
    driver = *client->store->driver;
    driver.submit = number_submit;
    driver.close = number_close;
    self->store.driver = &driver;
    self->replaced = client->store;
    self->host = &client->host;
    self->plan = plan;
    list_init(&self->kept);
    client->store = &self->store;
    return client;
}

/* Answers what was kept. */
static void answer_kept(hf_client *client) {
    struct number_store *self = store_of(client);
    struct list *link;
    client_lock(client);
    while ((link = list_pop(&self->kept))) {
        struct store_op *op = container_of(link, struct store_op, link);
        act(self, op);
        store_complete(self->host, op, STORE_DONE);
    }
    client_pump(client);
    client_unlock(client);
}

static hf_count_options adding(int64_t number, int64_t wait_ms) {
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_ADD;
    options.number = number;
    options.wait_ms = wait_ms;
    return options;
}

static int add(hf_client *client, int64_t wait_ms, int64_t *ret_value) {
    hf_count_options options = adding(1, wait_ms);
    hf_counter counter = HF_COUNTER_INIT;
    int r = hf_count(client, "x", &options, &counter);
    if (ret_value && r == HF_OK)
        *ret_value = counter.value;
    return r;
}

static hf_call *start(hf_client *client, const char *name, int64_t wait_ms) {
    hf_count_options options = adding(1, wait_ms);
    hf_call *call = NULL;
    CHECK_EQ_INT(hf_count_start(client, name, &options, &call), HF_OK);
    return call;
}

/* ---- Repeats ---- */

TEST(an_answer_that_is_lost_once_is_asked_for_again_under_the_same_number) {
    hf_client *a = open_client(PLAN(REPLY_LOST, ANSWERED));
    int64_t value = 0;
    CHECK_EQ_INT(add(a, 10000, &value), HF_OK);
    struct number_store *store = store_of(a);
    CHECK_EQ_INT(value, 1);
    CHECK_EQ_INT(store->value, 1);
    CHECK_EQ_INT(store->seen_count, 2);
    CHECK_EQ_INT(store->seen[0], store->seen[1]);
    CHECK(store->seen_us[1] - store->seen_us[0] >= 10 * MS);
    CHECK_EQ_INT(add(a, 10000, &value), HF_OK);
    CHECK_EQ_INT(value, 2);
    CHECK(store->seen[2] > store->seen[1]);
    hf_client_close(a);
}

TEST(whatever_is_lost_it_happens_once) {
    hf_client *a =
        open_client(PLAN(REQUEST_LOST, AWAY, REPLY_LOST, AWAY, REPLY_LOST, REQUEST_LOST, ANSWERED));
    int64_t value = 0;
    CHECK_EQ_INT(add(a, 10000, &value), HF_OK);
    CHECK_EQ_INT(value, 1);
    CHECK_EQ_INT(store_of(a)->value, 1);
    CHECK_EQ_INT(store_of(a)->seen_count, 7);
    hf_client_close(a);
}

/* A minute of retries, less and less often, for exactly as long as was asked for. */
TEST(a_store_that_is_away_is_retried_until_the_time_is_over) {
    hf_client *a = open_client(PLAN(AWAY));
    int64_t began_us = virtual_now_us();
    CHECK_EQ_INT(add(a, 60000, NULL), HF_UNREACHABLE);
    CHECK_EQ_INT(virtual_now_us() - began_us, 60 * SECOND);
    struct number_store *store = store_of(a);
    CHECK(store->seen_count > 50 && store->seen_count < 150);
    for (size_t i = 1; i < store->seen_count; i++)
        CHECK_EQ_INT(store->seen[i], store->seen[0]);
    hf_client_close(a);
}

TEST(what_is_never_answered_stays_unknown) {
    hf_client *a = open_client(PLAN(REPLY_LOST));
    CHECK_EQ_INT(add(a, 5000, NULL), HF_UNKNOWN);
    CHECK(strstr(hf_last_error(), "\"x\""));
    CHECK_EQ_INT(store_of(a)->value, 1);
    hf_client_close(a);
}

/* It may have happened the first time. */
TEST(what_was_unknown_once_is_never_reported_as_not_done) {
    static const enum fate fates[] = {AWAY, DENIED};
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        hf_client *a = open_client(PLAN(REPLY_LOST, fates[i]));
        CHECK_EQ_INT(add(a, 5000, NULL), HF_UNKNOWN);
        hf_client_close(a);
    }
}

TEST(a_refusal_is_reported_at_once) {
    hf_client *a = open_client(PLAN(AWAY, DENIED));
    CHECK_EQ_INT(add(a, 5000, NULL), HF_DENIED);
    CHECK_EQ_INT(store_of(a)->seen_count, 2);
    hf_client_close(a);
}

/* ---- Silence ---- */

/* The next operation on the name waits until the store is done with the first, and is then sent. */
TEST(a_silent_store_is_waited_for_as_long_as_was_asked_for) {
    hf_client *a = open_client(PLAN(KEPT, ANSWERED));
    int64_t began_us = virtual_now_us(), value = 0;
    CHECK_EQ_INT(add(a, 5000, NULL), HF_UNKNOWN);
    CHECK_EQ_INT(virtual_now_us() - began_us, 5 * SECOND);
    CHECK_EQ_INT(add(a, 3000, NULL), HF_UNREACHABLE); /* it was not sent */
    CHECK_EQ_INT(virtual_now_us() - began_us, 8 * SECOND);
    CHECK_EQ_INT(store_of(a)->seen_count, 1);
    hf_call *next = start(a, "x", 10000);
    virtual_pass_us(SECOND);
    CHECK_EQ_INT(hf_call_status(next), HF_PENDING);
    answer_kept(a);
    CHECK_EQ_INT(hf_call_status(next), HF_OK);
    hf_call_free(next);
    CHECK_EQ_INT(add(a, 1000, &value), HF_OK);
    CHECK_EQ_INT(value, 3);
    hf_client_close(a);
}

TEST(another_counter_does_not_wait) {
    hf_client *a = open_client(PLAN(KEPT, ANSWERED));
    hf_call *first = start(a, "x", 10000), *other = start(a, "y", 10000);
    CHECK_EQ_INT(hf_call_status(first), HF_PENDING);
    CHECK_EQ_INT(hf_call_status(other), HF_OK);
    hf_call_free(other);
    hf_call_free(first);
    hf_client_close(a);
}

TEST(a_count_that_waits_can_be_cancelled_and_the_others_keep_their_order) {
    hf_client *a = open_client(PLAN(KEPT, ANSWERED));
    hf_call *calls[4];
    for (int i = 0; i < 4; i++)
        calls[i] = start(a, "x", 10000);
    CHECK_EQ_INT(hf_call_cancel(calls[1]), HF_OK);
    CHECK_EQ_INT(hf_call_cancel(calls[0]), HF_OK); /* which is with the store */
    CHECK_EQ_INT(store_of(a)->seen_count, 1);
    answer_kept(a);
    CHECK_EQ_INT(hf_call_status(calls[0]), HF_CANCELLED);
    CHECK_EQ_INT(hf_call_status(calls[1]), HF_CANCELLED);
    for (int i = 2; i < 4; i++) {
        hf_counter counter = HF_COUNTER_INIT;
        CHECK_EQ_INT(hf_call_counter(calls[i], &counter), HF_OK);
        CHECK_EQ_INT(counter.value, i);
    }
    CHECK_EQ_INT(store_of(a)->value, 3);
    for (int i = 0; i < 4; i++)
        hf_call_free(calls[i]);
    hf_client_close(a);
}

TEST(a_count_between_two_tries_can_be_cancelled_and_the_next_goes_on) {
    hf_client *a = open_client(PLAN(AWAY, ANSWERED));
    hf_call *first = start(a, "x", 10000), *second = start(a, "x", 10000);
    CHECK_EQ_INT(hf_call_status(second), HF_PENDING);
    CHECK_EQ_INT(hf_call_cancel(first), HF_OK);
    CHECK_EQ_INT(hf_call_status(second), HF_OK);
    virtual_pass_us(60 * SECOND);
    CHECK_EQ_INT(store_of(a)->seen_count, 2);
    hf_call_free(first);
    hf_call_free(second);
    hf_client_close(a);
}

/* The next one does not become the first and get sent, not even for a moment. */
TEST(counts_that_are_all_cancelled_at_once_are_not_sent) {
    hf_client *a = open_client(PLAN(AWAY, ANSWERED));
    hf_call *calls[3];
    for (int i = 0; i < 3; i++)
        calls[i] = start(a, "x", 10000);
    CHECK_EQ_INT(hf_client_cancel(a), HF_OK);
    CHECK_EQ_INT(store_of(a)->seen_count, 1);
    CHECK_EQ_INT(store_of(a)->value, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(hf_call_status(calls[i]), HF_CANCELLED);
        hf_call_free(calls[i]);
    }
    hf_client_close(a);
}

TEST(a_client_that_closes_sends_no_counts_that_waited) {
    hf_client *a = open_client(PLAN(AWAY, ANSWERED));
    int64_t value = 0;
    store_of(a)->closing_value = &value;
    hf_call *calls[3];
    for (int i = 0; i < 3; i++)
        calls[i] = start(a, "x", 10000);
    hf_client_close(a);
    CHECK_EQ_INT(value, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(hf_call_status(calls[i]), HF_CLOSED);
        hf_call_free(calls[i]);
    }
}

/* Freed in each state, or open when the client closes: nothing is left behind, and nothing is
 * completed twice (AddressSanitizer looks). */
TEST(counts_may_be_freed_and_clients_closed_in_every_state) {
    for (int freed = 0; freed < 8; freed++) {
        hf_client *a = open_client(PLAN(KEPT, AWAY));
        hf_call *calls[] = {start(a, "x", 10000), start(a, "x", 10000), start(a, "y", 10000)};
        for (int i = 0; i < 3; i++) {
            if (freed & 1 << i)
                calls[i] = hf_call_free(calls[i]);
        }
        if (freed & 1)
            answer_kept(a);
        hf_client_close(a);
        for (int i = 0; i < 3; i++) {
            if (calls[i])
                CHECK_EQ_INT(hf_call_status(calls[i]), HF_CLOSED);
            hf_call_free(calls[i]);
        }
    }
}
