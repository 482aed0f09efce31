/* The client with a store that falls silent: requests that never arrive, answers that never come or
 * come late. The store is the memory store behind a door that the test opens and shuts; the clock
 * is virtual. */
#include "check.h"
#include "client/client.h"
#include "support/virtual_world.h"

#include <poll.h>

enum { MS = 1000, SECOND = 1000 * MS };
#define HOUR (INT64_C(3600) * SECOND)

/* ---- A door in front of the store ---- */

enum door {
    OPEN,
    UNREACHABLE,   /* refuses: nothing was sent */
    LOSES_REQUEST, /* UNKNOWN, and not done */
    LOSES_REPLY,   /* UNKNOWN, and done */
    KEEPS_REQUEST, /* neither done nor answered until open_door */
    KEEPS_REPLY,   /* done, and not answered until open_door */
};

struct door_store {
    struct store store;
    hf_client *client;
    struct store *behind;
    void (*completed)(struct store_host *host, struct store_op *op);
    enum door door;
    struct list requests, replies;                  /* that are kept */
    int count[STORE_LIST + 1];                      /* operations that arrived, by type */
    int renewals;                                   /* holds in the RENEWs */
    int64_t last_renew_us, shortest_us, longest_us; /* between one RENEW and the next */
};

static struct door_store *door_of(hf_client *client) {
    return container_of(client->store, struct door_store, store);
}

static void note(struct door_store *self, const struct store_op *op) {
    self->count[op->type]++;
    if (op->type != STORE_RENEW)
        return;
    self->renewals += (int)op->renewal_count;
    int64_t since_us = virtual_now_us() - self->last_renew_us;
    self->last_renew_us = virtual_now_us();
    if (self->count[STORE_RENEW] == 1)
        self->shortest_us = since_us;
    self->shortest_us = since_us < self->shortest_us ? since_us : self->shortest_us;
    self->longest_us = since_us > self->longest_us ? since_us : self->longest_us;
}

static void door_submit(struct store *store, struct store_op *op) {
    struct door_store *self = container_of(store, struct door_store, store);
    note(self, op);
    switch (self->door) {
    case UNREACHABLE:
        op->reason = HF_UNREACHABLE;
        op->outcome = STORE_REFUSED;
        self->completed(&self->client->host, op);
        break;
    case LOSES_REQUEST:
        op->outcome = STORE_UNKNOWN;
        self->completed(&self->client->host, op);
        break;
    case KEEPS_REQUEST:
        list_append(&self->requests, &op->link);
        break;
    default:
        self->behind->driver->submit(self->behind, op);
    }
}

/* The memory store calls this when it has done an operation. */
static void door_completed(struct store_host *host, struct store_op *op) {
    struct door_store *self = door_of(container_of(host, hf_client, host));
    if (self->door == KEEPS_REPLY) {
        list_append(&self->replies, &op->link);
        return;
    }
    if (self->door == LOSES_REPLY)
        op->outcome = STORE_UNKNOWN;
    self->completed(host, op);
}

static void door_close(struct store *store) {
    struct door_store *self = container_of(store, struct door_store, store);
    struct list *link;
    self->client->host.completed = self->completed;
    while ((link = list_pop(&self->requests)))
        store_complete(&self->client->host, container_of(link, struct store_op, link),
                       STORE_UNKNOWN);
    while ((link = list_pop(&self->replies)))
        self->completed(&self->client->host, container_of(link, struct store_op, link));
    self->behind->driver->close(self->behind);
    free(self);
}

static struct store_driver door_driver;

static hf_client *open_client(void) {
    hf_client *client = virtual_client("memory:", NULL);
    CHECK(client != NULL);
    return client;
}

/* A client with a door in front of its store. */
static hf_client *open_door_client_with(const hf_client_options *options) {
    hf_client *client = virtual_client("memory:", options);
    CHECK(client != NULL);
    struct door_store *self = calloc(1, sizeof *self);
    door_driver = *client->store->driver;
    door_driver.submit = door_submit;
    door_driver.close = door_close;
    self->store.driver = &door_driver;
    self->client = client;
    self->behind = client->store;
    self->completed = client->host.completed;
    list_init(&self->requests);
    list_init(&self->replies);
    client->store = &self->store;
    client->host.completed = door_completed;
    return client;
}

static hf_client *open_door_client(void) {
    return open_door_client_with(NULL);
}

static void set_door(hf_client *client, enum door door) {
    door_of(client)->door = door;
}

/* Opens the door and passes on what it kept. */
static void open_door(hf_client *client) {
    struct door_store *self = door_of(client);
    struct list *link;
    client_lock(client);
    self->door = OPEN;
    while ((link = list_pop(&self->requests)))
        self->behind->driver->submit(self->behind, container_of(link, struct store_op, link));
    while ((link = list_pop(&self->replies)))
        self->completed(&client->host, container_of(link, struct store_op, link));
    client_pump(client);
    client_unlock(client);
}

/* ---- Words of the tests ---- */

static hf_acquire_options lease_of(int64_t lease_ms, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    options.wait_ms = wait_ms;
    return options;
}

static void count_loss(hf_hold *hold, void *count) {
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    ++*(int *)count;
}

static hf_acquire_options telling(hf_acquire_options options, int *losses) {
    options.on_lost = count_loss;
    options.on_lost_arg = losses;
    return options;
}

static hf_hold *get(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *hold = NULL;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

static hf_call *start(hf_client *client, const char *name, hf_acquire_options options) {
    hf_call *call = NULL;
    CHECK_EQ_INT(hf_acquire_start(client, name, &options, &call), HF_OK);
    return call;
}

static int attempt(hf_client *client, const char *name) {
    hf_hold *hold;
    hf_acquire_options options = lease_of(10000, 0);
    int r = hf_acquire(client, name, &options, &hold);
    if (r == HF_OK) {
        CHECK_EQ_INT(hf_release(hold), HF_OK);
        hf_hold_free(hold);
    }
    return r;
}

static bool is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static int64_t validity_ms(int64_t lease_ms) {
    return lease_ms - lease_ms / 100 - 2;
}

/* ---- Renewal ---- */

TEST(a_renewal_goes_out_each_third_of_the_lease) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    virtual_pass_us(24 * HOUR);
    struct door_store *door = door_of(a);
    CHECK_EQ_INT(door->count[STORE_RENEW], 24 * 360);
    CHECK(door->shortest_us >= 9500 * MS && door->longest_us <= 10000 * MS);
    int before = door->count[STORE_RENEW];
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(door->count[STORE_RENEW], before); /* a hold's end ends its renewals */
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(a_thousand_holds_are_renewed_in_a_few_requests) {
    enum { COUNT = 1000 };
    hf_client *a = open_door_client();
    hf_hold *holds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        holds[i] = get(a, name, lease_of(30000, 0));
        virtual_pass_us(100);
    }
    virtual_pass_us(300 * SECOND);
    struct door_store *door = door_of(a);
    CHECK(door->renewals >= 29 * COUNT && door->renewals <= 31 * COUNT);
    CHECK(door->count[STORE_RENEW] <= 31 * 8);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(hf_check(holds[i], 0), HF_OK);
        hf_hold_free(holds[i]);
    }
    hf_client_close(a);
}

TEST(looking_at_a_hold_never_asks_the_store) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    set_door(a, KEEPS_REQUEST);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ_INT(hf_check(hold, 1000), HF_OK);
        CHECK(hf_hold_left_ms(hold) > 0);
    }
    CHECK_EQ_INT(door_of(a)->count[STORE_RENEW], 0);
    hf_hold_free(hold);
    open_door(a);
    hf_client_close(a);
}

/* FAILURES.md 25: the notice comes at D, by every means that was asked for, and once */
static void check_lost_at_deadline(enum door door) {
    hf_client *a = open_door_client();
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(9000, 0), &losses));
    int fd = hf_hold_fd(hold);
    set_door(a, door);
    for (int64_t ms = 0; ms < validity_ms(9000); ms++) {
        CHECK_EQ_INT(hf_hold_left_ms(hold), validity_ms(9000) - ms);
        CHECK_EQ_INT(hf_check(hold, validity_ms(9000) - ms), HF_OK);
        CHECK(losses == 0 && !is_readable(fd));
        virtual_pass_us(1 * MS);
    }
    CHECK_EQ_INT(losses, 1);
    CHECK(is_readable(fd));
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    CHECK_EQ_INT(hf_hold_left_ms(hold), 0);
    CHECK_EQ_INT(hf_renew(hold, 0), HF_LOST);
    open_door(a);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST); /* final, also when the store is back */
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(a_lock_is_lost_at_its_deadline_when_no_renewal_is_answered) {
    check_lost_at_deadline(KEEPS_REQUEST);
}

TEST(a_lock_is_lost_at_its_deadline_when_renewals_end_unknown) {
    check_lost_at_deadline(LOSES_REQUEST);
}

TEST(a_lock_is_lost_at_its_deadline_when_the_store_is_unreachable) {
    check_lost_at_deadline(UNREACHABLE);
}

/* A renewal counts only when its answer has arrived: until then D stays. */
TEST(a_lock_is_lost_at_its_deadline_when_the_answers_are_lost) {
    check_lost_at_deadline(LOSES_REPLY);
}

/* FAILURES.md 23 */
TEST(a_hold_survives_an_outage_of_half_a_lease) {
    static const enum door doors[] = {UNREACHABLE, LOSES_REQUEST, LOSES_REPLY};
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
        hf_client *a = open_door_client();
        int losses = 0;
        hf_hold *hold = get(a, "x", telling(lease_of(9000, 0), &losses));
        virtual_pass_us(2900 * MS);
        set_door(a, doors[i]);
        virtual_pass_us(4500 * MS);
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        CHECK(hf_hold_left_ms(hold) < 2000);
        int tried = door_of(a)->count[STORE_RENEW];
        CHECK(tried >= 3 && tried < 100); /* again and again, with backoff */
        set_door(a, OPEN);
        virtual_pass_us(1500 * MS);
        CHECK(hf_hold_left_ms(hold) > 7000);
        virtual_pass_us(HOUR);
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        CHECK_EQ_INT(losses, 0);
        hf_hold_free(hold);
        hf_client_close(a);
    }
}

TEST(a_renewal_that_fails_says_so_and_the_lock_is_still_held) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(9000, 0));
    set_door(a, LOSES_REQUEST);
    CHECK_EQ_INT(hf_renew(hold, 0), HF_UNKNOWN);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    set_door(a, UNREACHABLE);
    CHECK_EQ_INT(hf_renew(hold, 0), HF_UNREACHABLE);
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    set_door(a, OPEN);
    CHECK_EQ_INT(hf_renew(hold, 0), HF_OK);
    hf_hold_free(hold);
    hf_client_close(a);
}

/* A renewal counts from when it was sent: a late answer gives no more time. */
TEST(a_late_answer_to_a_renewal_counts_from_its_sending) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(9000, 0));
    set_door(a, KEEPS_REPLY);
    virtual_pass_us(8000 * MS); /* it was sent after 3 s */
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_ms(9000) - 8000);
    open_door(a);
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_ms(9000) - 5000);
    hf_hold_free(hold);
    hf_client_close(a);
}

/* FAILURES.md 24 */
TEST(an_answer_that_outlives_its_hold_touches_nothing) {
    hf_client *a = open_door_client(), *b = open_client();
    hf_hold *hold = get(a, "x", lease_of(9000, 0));
    set_door(a, KEEPS_REPLY);
    virtual_pass_us(3100 * MS);
    CHECK_EQ_INT(door_of(a)->count[STORE_RENEW], 1);
    hf_hold_free(hold); /* the release is also done; its answer waits behind */
    CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    open_door(a);
    hf_hold *next = get(a, "x", lease_of(9000, 0));
    CHECK_EQ_INT(hf_check(next, 0), HF_OK);
    hf_hold_free(next);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_broken_lock_is_lost_at_once) {
    hf_client *a = open_door_client(), *b = open_client();
    int losses = 0;
    hf_hold *hold = get(a, "x", telling(lease_of(9000, 0), &losses));
    CHECK_EQ_INT(hf_break(b, "x", hf_hold_token(hold), NULL), HF_OK);
    virtual_pass_us(0);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_INT(virtual_now_us(), 0);
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(a);
    hf_client_close(b);
}

/* ---- Acquiring ---- */

/* FAILURES.md 17 */
TEST(a_grant_whose_answer_was_lost_is_found_again) {
    hf_client *a = open_door_client(), *b = open_client();
    set_door(a, LOSES_REPLY);
    hf_call *call = start(a, "x", lease_of(9000, 5000));
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    CHECK_EQ_INT(attempt(b, "x"), HF_BUSY); /* a has the lock and does not know it */
    set_door(a, OPEN);
    CHECK_EQ_INT(hf_call_wait(call, HF_FOREVER), HF_OK);
    hf_hold *hold = hf_call_take_hold(call);
    CHECK_EQ_INT(hf_check(hold, 8000), HF_OK);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    hf_hold_free(hold);
    hf_call_free(call);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_try_whose_answer_was_lost_leaves_nothing_behind) {
    hf_client *a = open_door_client(), *b = open_client();
    set_door(a, LOSES_REPLY);
    CHECK_EQ_INT(attempt(a, "x"), HF_UNKNOWN);
    set_door(a, OPEN);
    virtual_pass_us(SECOND);
    CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_wait_for_a_silent_store_ends_in_time_and_a_late_grant_is_released) {
    static const enum door doors[] = {KEEPS_REQUEST, KEEPS_REPLY};
    for (size_t i = 0; i < 2; i++) {
        hf_client *a = open_door_client(), *b = open_client();
        int64_t began_us = virtual_now_us();
        set_door(a, doors[i]);
        hf_acquire_options options = lease_of(9000, 5000);
        hf_hold *hold;
        CHECK_EQ_INT(hf_acquire(a, "x", &options, &hold), HF_UNKNOWN);
        CHECK_EQ_INT(virtual_now_us() - began_us, 5000 * MS);
        open_door(a);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
        hf_client_close(a);
        hf_client_close(b);
    }
}

/* FAILURES.md 2, 7 */
TEST(the_deadline_counts_from_the_sending_of_the_request) {
    hf_client *a = open_door_client(), *b = open_client();
    set_door(a, KEEPS_REPLY);
    hf_call *call = start(a, "x", lease_of(9000, HF_FOREVER));
    virtual_pass_us(4 * SECOND);
    open_door(a); /* its first renewal is due at once, and has not been sent yet */
    CHECK_EQ_INT(hf_call_status(call), HF_OK);
    hf_hold *hold = hf_call_take_hold(call);
    CHECK_EQ_INT(hf_hold_left_ms(hold), validity_ms(9000) - 4000);
    hf_hold_free(hold);
    hf_call_free(call);
    hf_acquire_options options = lease_of(9000, HF_FOREVER);
    options.min_left_ms = 6000;
    int64_t delays_us[] = {4 * SECOND, 20 * SECOND}; /* leaves less than 6 s; leaves nothing */
    for (size_t i = 0; i < 2; i++) {
        set_door(a, KEEPS_REPLY);
        call = start(a, "x", options);
        options.min_left_ms = 0;
        virtual_pass_us(delays_us[i]);
        open_door(a);
        CHECK_EQ_INT(hf_call_status(call), HF_SHORT);
        hf_call_free(call);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    }
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_waiter_survives_an_outage) {
    hf_client *a = open_door_client(), *b = open_client();
    hf_hold *hold = get(b, "x", lease_of(9000, 0));
    hf_call *call = start(a, "x", lease_of(9000, HF_FOREVER));
    virtual_pass_us(10 * SECOND);
    set_door(a, UNREACHABLE);
    virtual_pass_us(60 * SECOND);
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    set_door(a, OPEN);
    CHECK_EQ_INT(hf_call_wait(call, 2000), HF_OK);
    CHECK_EQ_INT(attempt(b, "x"), HF_BUSY);
    hf_hold_free(hold);
    hf_call_free(call);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(an_acquire_that_may_wait_outlasts_a_store_that_is_away_from_the_start) {
    static const int64_t waits_ms[] = {60000, HF_FOREVER};
    for (size_t i = 0; i < 2; i++) {
        hf_client *a = open_door_client();
        set_door(a, UNREACHABLE);
        hf_call *call = start(a, "x", lease_of(9000, waits_ms[i]));
        virtual_pass_us(9 * SECOND);
        CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
        set_door(a, OPEN);
        CHECK_EQ_INT(hf_call_wait(call, 2000), HF_OK);
        hf_call_free(call);
        hf_client_close(a);
    }
}

/* How long it took to fail. */
static int64_t unreachable_after_us(hf_client *client, int64_t wait_ms) {
    hf_acquire_options options = lease_of(9000, wait_ms);
    hf_hold *hold;
    int64_t before_us = virtual_now_us();
    CHECK_EQ_INT(hf_acquire(client, "x", &options, &hold), HF_UNREACHABLE);
    return virtual_now_us() - before_us;
}

TEST(an_acquire_waits_for_a_store_that_is_away_as_long_as_its_options_say) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    hf_client *a = open_door_client();
    set_door(a, UNREACHABLE);
    CHECK_EQ_INT(unreachable_after_us(a, 0), 0);
    CHECK_EQ_INT(unreachable_after_us(a, 2000), 2 * SECOND);
    CHECK_EQ_INT(unreachable_after_us(a, 60000), 60 * SECOND);
    CHECK_EQ_INT(unreachable_after_us(a, HF_FOREVER), options.store_wait_ms * MS);
    hf_client_close(a);
    options.store_wait_ms = HF_FOREVER;
    a = open_door_client_with(&options);
    set_door(a, UNREACHABLE);
    hf_call *call = start(a, "x", lease_of(9000, HF_FOREVER));
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
    set_door(a, OPEN);
    CHECK_EQ_INT(hf_call_wait(call, 2000), HF_OK);
    hf_call_free(call);
    hf_client_close(a);
    options.store_wait_ms = 0;
    a = open_door_client_with(&options);
    set_door(a, UNREACHABLE);
    CHECK_EQ_INT(unreachable_after_us(a, HF_FOREVER), 0);
    CHECK_EQ_INT(unreachable_after_us(a, 2000), 2 * SECOND);
    hf_client_close(a);
}

TEST(a_cancelled_acquire_whose_grant_comes_late_is_released) {
    static const enum door doors[] = {KEEPS_REQUEST, KEEPS_REPLY};
    for (size_t i = 0; i < 4; i++) {
        hf_client *a = open_door_client(), *b = open_client();
        set_door(a, doors[i % 2]);
        hf_call *call = start(a, "x", lease_of(9000, i / 2 ? HF_FOREVER : 0));
        virtual_pass_us(HOUR / 2);
        CHECK_EQ_INT(hf_call_status(call), HF_PENDING);
        CHECK_EQ_INT(hf_call_cancel(call), HF_OK);
        CHECK_EQ_INT(hf_call_status(call), HF_CANCELLED);
        hf_call_free(call);
        open_door(a);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
        hf_client_close(a);
        hf_client_close(b);
    }
}

TEST(cancelling_a_client_ends_whatever_waits_for_a_silent_store) {
    hf_client *a = open_door_client();
    hf_hold *renewed = get(a, "renewed", lease_of(9000, 0));
    hf_hold *released = get(a, "released", lease_of(9000, 0));
    hf_call *calls[5];
    set_door(a, KEEPS_REQUEST);
    CHECK_EQ_INT(hf_renew_start(renewed, 0, &calls[0]), HF_OK);
    CHECK_EQ_INT(hf_release_start(released, &calls[1]), HF_OK);
    CHECK_EQ_INT(hf_release_start(released, &calls[2]), HF_OK);
    CHECK_EQ_INT(hf_inspect_start(a, "renewed", &calls[3]), HF_OK);
    calls[4] = start(a, "renewed", lease_of(9000, HF_FOREVER));
    CHECK_EQ_INT(hf_client_cancel(a), HF_OK);
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ_INT(hf_call_status(calls[i]), HF_CANCELLED);
        hf_call_free(calls[i]);
    }
    open_door(a);
    CHECK_EQ_INT(hf_check(renewed, 0), HF_OK);
    CHECK_EQ_INT(attempt(a, "released"), HF_OK); /* what was asked of the store happened */
    hf_hold_free(renewed);
    hf_hold_free(released);
    hf_client_close(a);
}

/* ---- Releasing, looking, closing ---- */

TEST(a_hold_may_be_freed_right_after_its_release_was_started) {
    static const enum door doors[] = {OPEN, KEEPS_REQUEST, KEEPS_REPLY};
    for (size_t i = 0; i < 3; i++) {
        hf_client *a = open_door_client(), *b = open_client();
        hf_hold *hold = get(a, "x", lease_of(9000, 0));
        hf_call *call;
        set_door(a, doors[i]);
        CHECK_EQ_INT(hf_release_start(hold, &call), HF_OK);
        hf_hold_free(hold);
        open_door(a);
        CHECK_EQ_INT(hf_call_wait(call, 1000), HF_OK);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
        hf_call_free(call);
        hf_client_close(a);
        hf_client_close(b);
    }
}

TEST(that_a_lock_is_lost_does_not_tell_whether_anybody_has_it) {
    hf_client *a = open_door_client(), *b = open_client();
    for (int others = 0; others < 3; others++) { /* nobody, one who has it, one who had it */
        hf_hold *hold = get(a, "x", lease_of(9000, 0)), *next = NULL;
        set_door(a, UNREACHABLE);
        virtual_pass_us(9 * SECOND);
        if (others)
            next = get(b, "x", lease_of(9000, 0));
        if (others == 2)
            next = hf_hold_free(next);
        CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
        set_door(a, OPEN);
        hf_hold_free(hold);
        hf_hold_free(next);
        virtual_pass_us(SECOND);
    }
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_release_that_was_not_confirmed_is_repeated) {
    static const enum door doors[] = {UNREACHABLE, LOSES_REQUEST};
    for (size_t i = 0; i < 2; i++) {
        hf_client *a = open_door_client(), *b = open_client();
        hf_hold *hold = get(a, "x", lease_of(30000, 0));
        set_door(a, doors[i]);
        int expected = i ? HF_UNKNOWN : HF_UNREACHABLE;
        CHECK_EQ_INT(hf_release(hold), expected);
        CHECK_EQ_INT(hf_check(hold, 0), HF_RELEASED);
        CHECK_EQ_INT(hf_release(hold), expected); /* the answer stays the same */
        hf_hold_free(hold);
        virtual_pass_us(5 * SECOND);
        CHECK_EQ_INT(attempt(b, "x"), HF_BUSY);
        set_door(a, OPEN);
        virtual_pass_us(2 * SECOND);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
        hf_client_close(a);
        hf_client_close(b);
    }
}

TEST(a_release_is_given_up_when_the_lease_must_have_ended) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    set_door(a, LOSES_REQUEST);
    hf_hold_free(hold);
    virtual_pass_us(60 * SECOND);
    int before = door_of(a)->count[STORE_RELEASE];
    CHECK(before > 5);
    virtual_pass_us(HOUR);
    CHECK_EQ_INT(door_of(a)->count[STORE_RELEASE], before);
    CHECK_EQ_INT(a->engine.hold_count, 0);
    hf_client_close(a);
}

TEST(two_releases_of_one_hold_share_the_answer) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    set_door(a, KEEPS_REPLY);
    hf_call *calls[4];
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ_INT(hf_release_start(hold, &calls[i]), HF_OK);
    CHECK_EQ_INT(hf_call_cancel(calls[2]), HF_OK);
    CHECK_EQ_INT(hf_call_status(calls[2]), HF_CANCELLED);
    CHECK_EQ_INT(hf_call_status(calls[0]), HF_PENDING);
    open_door(a);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ_INT(hf_call_status(calls[i]), i == 2 ? HF_CANCELLED : HF_OK);
        hf_call_free(calls[i]);
    }
    CHECK_EQ_INT(door_of(a)->count[STORE_RELEASE], 1);
    hf_hold_free(hold);
    hf_client_close(a);
}

/* Cancelling the release that the others joined ends only the caller's own wait. */
TEST(cancelling_the_first_of_two_releases_leaves_the_other_its_answer) {
    hf_client *a = open_door_client();
    hf_hold *hold = get(a, "x", lease_of(30000, 0));
    set_door(a, KEEPS_REPLY);
    hf_call *first, *second;
    CHECK_EQ_INT(hf_release_start(hold, &first), HF_OK);
    CHECK_EQ_INT(hf_release_start(hold, &second), HF_OK);
    CHECK_EQ_INT(hf_call_cancel(first), HF_OK);
    CHECK_EQ_INT(hf_call_status(first), HF_CANCELLED);
    CHECK_EQ_INT(hf_call_status(second), HF_PENDING);
    open_door(a);
    CHECK_EQ_INT(hf_call_status(second), HF_OK);
    hf_call_free(first);
    hf_call_free(second);
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(a_release_that_is_cancelled_still_frees_the_lock) {
    static const enum door doors[] = {KEEPS_REQUEST, KEEPS_REPLY};
    for (size_t i = 0; i < 2; i++) {
        hf_client *a = open_door_client(), *b = open_client();
        hf_hold *hold = get(a, "x", lease_of(30000, 0));
        set_door(a, doors[i]);
        hf_call *call;
        CHECK_EQ_INT(hf_release_start(hold, &call), HF_OK);
        CHECK_EQ_INT(hf_client_cancel(a), HF_OK);
        CHECK_EQ_INT(hf_call_status(call), HF_CANCELLED);
        CHECK_EQ_INT(hf_check(hold, 0), HF_RELEASED);
        CHECK_EQ_INT(hf_release(hold), HF_UNKNOWN);
        open_door(a);
        CHECK_EQ_INT(attempt(b, "x"), HF_OK);
        hf_call_free(call);
        hf_hold_free(hold);
        hf_client_close(a);
        hf_client_close(b);
    }
}

TEST(a_look_may_be_cancelled_or_freed_while_the_store_has_it) {
    hf_client *a = open_door_client();
    hf_call *cancelled, *freed, *answered;
    set_door(a, KEEPS_REPLY);
    CHECK_EQ_INT(hf_inspect_start(a, "x", &cancelled), HF_OK);
    CHECK_EQ_INT(hf_list_start(a, "", NULL, 10, &freed), HF_OK);
    CHECK_EQ_INT(hf_list_start(a, "", NULL, 10, &answered), HF_OK);
    CHECK_EQ_INT(hf_call_cancel(cancelled), HF_OK);
    CHECK_EQ_INT(hf_call_status(cancelled), HF_CANCELLED);
    hf_call_free(freed);
    open_door(a);
    CHECK_EQ_INT(hf_call_status(cancelled), HF_CANCELLED);
    CHECK(hf_call_take_locks(cancelled) == NULL);
    CHECK_EQ_INT(hf_call_status(answered), HF_OK);
    hf_call_free(cancelled);
    hf_call_free(answered);
    hf_client_close(a);
}

static void check_close(enum door door) {
    hf_client *a = open_door_client(), *b = open_client();
    hf_hold *held = get(a, "held", lease_of(30000, 0)), *lost = get(a, "lost", lease_of(3000, 0));
    virtual_pause(a);
    virtual_pass_us(3 * SECOND);
    virtual_resume(a);
    set_door(a, door);
    hf_call *calls[] = {start(a, "x", lease_of(9000, HF_FOREVER)),
                        start(a, "y", lease_of(9000, 0)),
                        NULL,
                        NULL,
                        NULL,
                        NULL};
    CHECK_EQ_INT(hf_renew_start(held, 0, &calls[2]), HF_OK);
    CHECK_EQ_INT(hf_inspect_start(a, "x", &calls[3]), HF_OK);
    CHECK_EQ_INT(hf_list_start(a, "", NULL, 9, &calls[4]), HF_OK);
    CHECK_EQ_INT(hf_release_start(held, &calls[5]), HF_OK);
    hf_call *freed;
    CHECK_EQ_INT(hf_inspect_start(a, "z", &freed), HF_OK);
    hf_call_free(freed);
    int64_t began_us = virtual_now_us();
    hf_client_close(a);
    CHECK(virtual_now_us() - began_us <= SECOND);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        /* The release ends the renewal with an error of its own. */
        CHECK_EQ_INT(hf_call_status(calls[i]), i == 2 ? HF_RELEASED : HF_CLOSED);
        hf_call_free(calls[i]);
    }
    CHECK_EQ_INT(hf_check(held, 0), HF_CLOSED);
    CHECK_EQ_INT(hf_check(lost, 0), HF_CLOSED);
    hf_hold_free(held);
    hf_hold_free(lost);
    virtual_pass_us(31 * SECOND);
    CHECK_EQ_INT(attempt(b, "held"), HF_OK);
    CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    hf_client_close(b);
}

TEST(closing_waits_a_second_for_a_store_that_does_not_answer) {
    check_close(KEEPS_REQUEST);
    check_close(KEEPS_REPLY);
}

/* ---- Several names ---- */

static void check_group_loss(bool in_background) {
    hf_client *a = open_door_client(), *b = open_client();
    hf_want wants[3] = {HF_WANT_INIT, HF_WANT_INIT, HF_WANT_INIT};
    const hf_want *const pointers[] = {&wants[0], &wants[1], &wants[2]};
    wants[0].name = "y";
    wants[1].name = "z";
    wants[2].name = "x";
    int losses = 0;
    hf_acquire_options options = telling(lease_of(9000, 0), &losses);
    hf_hold *group = NULL;
    CHECK_EQ_INT(hf_acquire_all(a, pointers, 3, &options, &group), HF_OK);
    CHECK_EQ_INT(hf_break(b, "z", hf_hold_token_at(group, 1), NULL), HF_OK);
    virtual_pass_us(in_background ? 0 : 4 * SECOND);
    CHECK_EQ_INT(losses, 1);
    CHECK_EQ_STR(hf_hold_name(group), "z");
    CHECK_EQ_INT(hf_check(group, 0), HF_LOST);
    CHECK_EQ_INT(hf_renew(group, 0), HF_LOST);
    CHECK_EQ_INT(attempt(b, "x"), HF_OK);
    CHECK_EQ_INT(attempt(b, "y"), HF_OK);
    CHECK_EQ_INT(hf_release(group), HF_LOST);
    hf_hold_free(group);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(the_loss_of_one_of_several_names_is_the_loss_of_all) {
    check_group_loss(true);
    check_group_loss(false);
}

TEST(a_name_lost_while_others_are_waited_for_ends_the_wait) {
    hf_client *a = open_door_client(), *b = open_client();
    hf_hold *y = get(b, "y", lease_of(9000, 0));
    hf_want wants[2] = {HF_WANT_INIT, HF_WANT_INIT};
    const hf_want *const pointers[] = {&wants[0], &wants[1]};
    wants[0].name = "x";
    wants[1].name = "y";
    hf_acquire_options options = lease_of(9000, HF_FOREVER);
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_all_start(a, pointers, 2, &options, &call), HF_OK);
    virtual_pass_us(60 * SECOND);
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(b, "x", &locks), HF_OK);
    CHECK_EQ_INT(hf_break(b, "x", hf_locks_at(locks, 0)->token, NULL), HF_OK);
    hf_locks_free(locks);
    virtual_pass_us(0);
    CHECK_EQ_INT(hf_call_status(call), HF_LOST);
    CHECK(strstr(hf_call_error(call), "\"x\"") != NULL);
    hf_call_free(call);
    CHECK_EQ_INT(hf_release(y), HF_OK);
    hf_hold_free(y);
    CHECK_EQ_INT(attempt(b, "y"), HF_OK); /* it is no longer in the queue */
    hf_client_close(a);
    hf_client_close(b);
}
