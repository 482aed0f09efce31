/* The memory store by the rules of store.h, asked directly: what the client never asks in this order, or
 * never at all, and the conformance suite thus cannot see. The clock is virtual. */
#include "base/url.h"
#include "check.h"
#include "store/voting.h"
#include "support/virtual_world.h"

#include <stdbool.h>
#include <time.h>

enum { MS = 1000, SECOND = 1000 * MS, LEASE_US = 10 * SECOND, WAIT_LEASE_US = 3 * SECOND };

/* ---- A client that notes what it hears ---- */

struct asker {
    struct store_host host;
    struct store *store;
    int completed, wakes, gones, freed;
    uint64_t last_wake, last_gone;
};

static void note_completed(struct store_host *host, struct store_op *op) {
    (void)op;
    container_of(host, struct asker, host)->completed++;
}

static void note_wake(struct store_host *host, uint64_t seq) {
    struct asker *asker = container_of(host, struct asker, host);
    asker->wakes++;
    asker->last_wake = seq;
}

static void note_gone(struct store_host *host, uint64_t seq) {
    struct asker *asker = container_of(host, struct asker, host);
    asker->gones++;
    asker->last_gone = seq;
}

static const struct store_driver *driver_of(const char *scheme) {
    const struct store_driver *driver;
    char *text = NULL;
    CHECK_EQ_INT(store_find(scheme, &driver, &text), HF_OK);
    return driver;
}

static struct asker *asker_new(uint64_t token_floor) {
    struct asker *asker = calloc(1, sizeof *asker);
    asker->host = (struct store_host){.world = virtual_world(),
                                      .identity = {.host = "here", .command = "test", .pid = 1},
                                      .wait_lease_us = WAIT_LEASE_US,
                                      .max_lease_us = 6 * LEASE_US,
                                      .token_floor = token_floor,
                                      .completed = note_completed,
                                      .wake = note_wake,
                                      .gone = note_gone};
    world_random(asker->host.world, asker->host.identity.id, sizeof asker->host.identity.id);
    struct url url;
    const char *why;
    CHECK_EQ_INT(url_parse("memory:rules", &url, &why), HF_OK);
    char *text = NULL;
    CHECK_EQ_INT(driver_of("memory")->open(&asker->host, &url, &asker->store, &text), HF_OK);
    url_free(&url);
    return asker;
}

static void asker_free(struct asker *asker) {
    asker->store->driver->close(asker->store);
    world_close(asker->host.world);
    free(asker);
}

/* What the bell brings. */
static void listen(struct asker *asker) {
    world_wait_for(asker->host.world, 0);
    world_dispatch(asker->host.world);
}

static enum store_outcome ask(struct asker *asker, struct store_op *op) {
    int before = asker->completed;
    list_init(&op->link);
    op->outcome = 0;
    asker->store->driver->submit(asker->store, op);
    CHECK_EQ_INT(asker->completed, before + 1); /* exactly once, inside submit */
    free(op->text);
    op->text = NULL;
    return op->outcome;
}

static struct store_op mutex(uint64_t seq, uint8_t flags) {
    return (struct store_op){.type = STORE_ACQUIRE,
                             .kind = STORE_LOCK,
                             .flags = flags,
                             .seq = seq,
                             .name = "x",
                             .capacity = STORE_ALL,
                             .weight = STORE_ALL,
                             .lease_us = LEASE_US};
}

static struct store_op permits(uint64_t seq, uint32_t weight, uint32_t capacity) {
    struct store_op op = mutex(seq, STORE_WAIT);
    op.kind = STORE_PERMITS;
    op.weight = weight;
    op.capacity = capacity;
    return op;
}

static enum store_outcome release(struct asker *asker, uint64_t seq) {
    struct store_op op = mutex(seq, 0);
    op.type = STORE_RELEASE;
    return ask(asker, &op);
}

static enum store_outcome renew(struct asker *asker, const struct store_op *of) {
    struct store_renewal renewal = {.of = of, .lease_us = of->lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    CHECK_EQ_INT(ask(asker, &op), STORE_DONE);
    return renewal.outcome;
}

/* ---- Rule 3: repeats ---- */

TEST(a_repeat_finds_its_own_hold_with_the_same_token) {
    struct asker *a = asker_new(0);
    struct store_op op = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    uint64_t token = op.token;
    for (int i = 0; i < 3; i++) {
        virtual_pass_us(SECOND);
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
        CHECK(op.token == token);
    }
    op.floor = token + 100; /* the quorum raises a node that is behind */
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.token == token + 100);
    op.floor = token;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.token == token + 100);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    struct store_op next = mutex(2, 0);
    CHECK_EQ_INT(ask(a, &next), STORE_DONE);
    CHECK(next.token > token + 100);
    asker_free(a);
}

TEST(a_repeat_moves_the_expiry_later_and_never_earlier) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op op = mutex(1, 0), other = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    op.lease_us = SECOND; /* a shorter repeat, or a delayed one */
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(renew(a, &op), STORE_DONE);
    virtual_pass_us(LEASE_US - 1);
    CHECK_EQ_INT(ask(b, &other), STORE_REFUSED);
    CHECK_EQ_INT(other.reason, HF_BUSY);
    CHECK_EQ_INT(other.left_us, 1);
    virtual_pass_us(1);
    CHECK_EQ_INT(ask(b, &other), STORE_DONE);
    CHECK(other.token > op.token);
    asker_free(a);
    asker_free(b);
}

/* failures.md 19 */
TEST(what_comes_after_the_lease_does_not_touch_the_next_owner) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op op = mutex(1, 0), other = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    virtual_pass_us(LEASE_US);
    CHECK_EQ_INT(renew(a, &op), STORE_NOT_YOURS); /* over, although nobody took it yet */
    CHECK_EQ_INT(ask(b, &other), STORE_DONE);     /* with the same seq: another client's */
    CHECK_EQ_INT(renew(a, &op), STORE_NOT_YOURS);
    CHECK_EQ_INT(release(a, 1), STORE_NOT_YOURS);
    CHECK_EQ_INT(renew(b, &other), STORE_DONE);
    CHECK_EQ_INT(release(b, 1), STORE_DONE);
    CHECK_EQ_INT(release(b, 1), STORE_NOT_YOURS);
    asker_free(a);
    asker_free(b);
}

TEST(a_renewal_of_a_hold_that_ended_meanwhile_renews_the_others) {
    struct asker *a = asker_new(0);
    struct store_op op = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    struct store_renewal renewals[] = {
        {.of = NULL}, {.of = &op, .lease_us = LEASE_US}, {.of = NULL}};
    struct store_op renewal = {.type = STORE_RENEW, .renewals = renewals, .renewal_count = 3};
    CHECK_EQ_INT(ask(a, &renewal), STORE_DONE);
    CHECK_EQ_INT(renewals[1].outcome, STORE_DONE);
    asker_free(a);
}

/* ---- Rule 4: the queue ---- */

TEST(a_release_reserves_the_lock_for_the_first_and_wakes_it) {
    struct asker *a = asker_new(0), *b = asker_new(0), *c = asker_new(0);
    struct store_op held = mutex(1, 0), first = mutex(7, STORE_WAIT), second = mutex(8, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &first), STORE_QUEUED);
    CHECK(first.flags & STORE_HEAD);
    CHECK_EQ_INT(first.left_us, LEASE_US);
    CHECK_EQ_INT(ask(c, &second), STORE_QUEUED);
    CHECK(!(second.flags & STORE_HEAD));
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    listen(b);
    listen(c);
    CHECK(b->wakes == 1 && b->last_wake == 7 && c->wakes == 0);
    struct store_op late = mutex(2, 0); /* it is reserved, so not for who comes now */
    CHECK_EQ_INT(ask(a, &late), STORE_REFUSED);
    second.flags = STORE_WAIT;
    CHECK_EQ_INT(ask(c, &second), STORE_QUEUED);
    CHECK(second.flags & STORE_HEAD);
    CHECK_EQ_INT(ask(b, &first), STORE_DONE);
    CHECK(first.token > held.token);
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

TEST(a_reservation_that_is_not_taken_goes_on_after_the_wait_lease) {
    struct asker *a = asker_new(0), *b = asker_new(0), *c = asker_new(0);
    struct store_op held = mutex(1, 0), dead = mutex(1, STORE_WAIT), alive = mutex(1, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED);
    virtual_pass_us(SECOND);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    virtual_pass_us(WAIT_LEASE_US - SECOND - 1);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    CHECK_EQ_INT(alive.left_us, 1); /* until the reservation ends */
    virtual_pass_us(1);
    CHECK_EQ_INT(ask(c, &alive), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED); /* from the end again */
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

TEST(a_waiter_that_fell_silent_is_passed_over) {
    struct asker *a = asker_new(0), *b = asker_new(0), *c = asker_new(0);
    struct store_op held = mutex(1, 0), dead = mutex(1, STORE_WAIT), alive = mutex(1, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    virtual_pass_us(WAIT_LEASE_US - 1);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED); /* keeps its own place by asking */
    virtual_pass_us(1);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    listen(b);
    listen(c);
    CHECK(b->wakes == 0 && c->wakes == 1);
    CHECK_EQ_INT(ask(c, &alive), STORE_DONE);
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

TEST(a_withdrawal_lets_those_behind_in) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op three = permits(1, 3, 4), four = permits(1, 4, 4), one = permits(2, 1, 4);
    CHECK_EQ_INT(ask(a, &three), STORE_DONE);
    CHECK_EQ_INT(ask(b, &four), STORE_QUEUED);
    CHECK_EQ_INT(ask(b, &one), STORE_QUEUED); /* it would fit, and does not overtake */
    CHECK_EQ_INT(release(b, 1), STORE_DONE);  /* the one in front leaves */
    CHECK_EQ_INT(b->wakes, 1);                /* told inside submit: its own client asked */
    CHECK_EQ_INT(ask(b, &one), STORE_DONE);
    asker_free(a);
    asker_free(b);
}

TEST(who_barges_overtakes_the_queue_and_not_the_holders) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op three = permits(1, 3, 4), four = permits(1, 4, 4), one = permits(2, 1, 4);
    CHECK_EQ_INT(ask(a, &three), STORE_DONE);
    CHECK_EQ_INT(ask(b, &four), STORE_QUEUED);
    one.flags = STORE_BARGE;
    CHECK_EQ_INT(ask(b, &one), STORE_DONE);
    struct store_op another = permits(3, 1, 4);
    another.flags = STORE_BARGE;
    CHECK_EQ_INT(ask(b, &another), STORE_REFUSED);
    asker_free(a);
    asker_free(b);
}

/* ---- Rule 6: tokens ---- */

TEST(a_floor_raises_the_token) {
    struct asker *a = asker_new(0);
    struct store_op op = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.token >= 1);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    op = mutex(2, 0);
    op.floor = 5000;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(op.token, 5000);
    asker_free(a);
}

TEST(a_floor_a_day_ahead_is_a_clock_error_or_cut) {
    struct asker *a = asker_new(0);
    uint64_t wall = (uint64_t)world_wall_us(a->host.world);
    struct store_op op = mutex(1, 0);
    op.floor = wall + (uint64_t)STORE_FLOOR_AHEAD_US + 1;
    CHECK_EQ_INT(ask(a, &op), STORE_REFUSED); /* no counter to judge it by */
    CHECK_EQ_INT(op.reason, HF_CLOCK);
    op.floor = wall;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    op = mutex(2, 0);
    op.floor = STORE_TOKEN_LIMIT - 1;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.token > wall && op.token <= wall + (uint64_t)STORE_FLOOR_AHEAD_US);
    asker_free(a);
}

TEST(a_refused_token_gives_the_lock_to_the_next) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op held = mutex(1, 0), first = mutex(1, STORE_WAIT), second = mutex(2, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &first), STORE_QUEUED);
    CHECK_EQ_INT(ask(b, &second), STORE_QUEUED);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    struct asker *c = asker_new(STORE_TOKEN_LIMIT); /* from now on no token is left */
    CHECK_EQ_INT(ask(b, &first), STORE_REFUSED);
    CHECK_EQ_INT(first.reason, HF_CLOCK);
    CHECK_EQ_INT(b->last_wake, 2);
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

/* ---- Voting (voting.h) ---- */

static void note_freed(struct store_host *host, const char *name) {
    CHECK_EQ_STR(name, "x");
    container_of(host, struct asker, host)->freed++;
}

static const struct store_set set = {.name = "a/3/2/60000", .freed = note_freed};

static struct asker *node_new(const struct store_set *joined) {
    struct asker *asker = asker_new(0);
    char *text = NULL;
    CHECK_EQ_INT(asker->store->driver->voting->join(asker->store, joined, &text), HF_OK);
    return asker;
}

static int vote(struct asker *asker, struct store_vote *vote, enum store_vote_type type,
                uint64_t token) {
    list_init(&vote->op.link);
    vote->type = type;
    vote->token = token;
    vote->op.reason = 0;
    asker->store->driver->voting->vote(asker->store, vote);
    free(vote->op.text);
    vote->op.text = NULL;
    CHECK(vote->op.outcome == STORE_DONE || vote->op.outcome == STORE_REFUSED);
    return vote->op.reason;
}

TEST(a_vote_is_given_or_refused_and_never_queues) {
    struct asker *a = node_new(&set), *b = node_new(&set);
    struct store_vote first = {.op = mutex(1, 0)}, second = {.op = mutex(1, 0)};
    CHECK_EQ_INT(vote(a, &first, STORE_GIVE, 0), HF_OK);
    CHECK_EQ_INT(vote(b, &second, STORE_GIVE, 0), HF_BUSY);
    CHECK_EQ_INT(second.op.left_us, LEASE_US);
    CHECK_EQ_INT(release(b, 1), STORE_NOT_YOURS);
    asker_free(a);
    asker_free(b);
}

TEST(a_node_votes_in_one_set_only) {
    static const struct store_set other = {.name = "a/5/3/60000", .freed = note_freed};
    struct asker *a = node_new(&set), *b = node_new(&other);
    struct store_vote one = {.op = mutex(1, 0)};
    CHECK_EQ_INT(vote(b, &one, STORE_GIVE, 0), HF_BAD_URL);
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    asker_free(a);
    asker_free(b);
}

TEST(a_vote_is_raised_only_for_who_has_it_and_then_whatever_the_clock_says) {
    struct asker *a = node_new(&set), *b = node_new(&set);
    struct store_vote mine = {.op = mutex(1, 0)}, other = {.op = mutex(1, 0)};
    uint64_t ahead = (uint64_t)world_wall_us(a->host.world) + 2 * (uint64_t)STORE_FLOOR_AHEAD_US;
    CHECK_EQ_INT(vote(a, &mine, STORE_RAISE, 70), HF_NOT_YOURS);
    CHECK_EQ_INT(vote(a, &mine, STORE_GIVE, 0), HF_OK);
    CHECK_EQ_INT(vote(b, &other, STORE_RAISE, 70), HF_NOT_YOURS);
    CHECK_EQ_INT(vote(a, &mine, STORE_RAISE, ahead), HF_OK);
    CHECK_EQ_INT(mine.op.token, ahead);
    CHECK_EQ_INT(vote(a, &mine, STORE_RAISE, 70), HF_OK);
    CHECK_EQ_INT(mine.op.token, ahead);
    asker_free(a);
    asker_free(b);
}

TEST(a_vote_is_retaken_with_its_token_unless_the_counter_is_above_it) {
    struct asker *a = node_new(&set);
    struct store_vote one = {.op = mutex(1, 0)};
    one.op.floor = 5000;
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    CHECK_EQ_INT(vote(a, &one, STORE_RETAKE, 4999), HF_NOT_YOURS);
    CHECK_EQ_INT(vote(a, &one, STORE_RETAKE, 5000), HF_OK); /* the refusal left nothing behind */
    CHECK_EQ_INT(one.op.token, 5000);
    CHECK_EQ_INT(vote(a, &one, STORE_RETAKE, 4999), HF_NOT_YOURS); /* also of a repeat */
    asker_free(a);
}

TEST(a_release_and_a_break_are_announced_to_the_set_and_a_vote_given_back_is_not) {
    struct asker *a = node_new(&set), *b = node_new(&set), *alone = asker_new(0);
    struct store_vote one = {.op = mutex(1, 0)};
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    struct store_op back = mutex(1, 0);
    back.type = STORE_RELEASE;
    list_init(&back.link);
    a->store->driver->voting->give_back(a->store, &back);
    CHECK_EQ_INT(back.outcome, STORE_DONE);
    listen(b);
    CHECK_EQ_INT(b->freed, 0);
    CHECK_EQ_INT(release(a, 1), STORE_NOT_YOURS);
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    listen(b);
    CHECK_EQ_INT(b->freed, 1);
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    struct store_op end = {.type = STORE_BREAK, .name = "x", .token = one.op.token};
    CHECK_EQ_INT(ask(b, &end), STORE_DONE);
    CHECK_EQ_INT(b->freed, 2);
    struct store_op plain = mutex(1, 0);
    CHECK_EQ_INT(ask(alone, &plain), STORE_DONE);
    CHECK_EQ_INT(release(alone, 1), STORE_DONE); /* it is not the set's */
    listen(b);
    CHECK_EQ_INT(b->freed, 2);
    asker_free(a);
    asker_free(b);
    asker_free(alone);
}

/* ---- Breaks ---- */

TEST(a_break_moves_the_token_on_and_tells_the_holder) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op held = mutex(4, 0), next = mutex(1, 0);
    held.floor = 1000;
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    struct store_op op = {.type = STORE_BREAK, .name = "x", .token = held.token + 1};
    CHECK_EQ_INT(ask(b, &op), STORE_NOT_YOURS);
    op.token = held.token;
    CHECK_EQ_INT(ask(b, &op), STORE_DONE);
    listen(a);
    CHECK(a->gones == 1 && a->last_gone == 4);
    CHECK_EQ_INT(renew(a, &held), STORE_NOT_YOURS);
    CHECK_EQ_INT(ask(b, &next), STORE_DONE);
    CHECK(next.token > held.token + 1);
    asker_free(a);
    asker_free(b);
}

/* ---- The ends of things ---- */

TEST(a_lock_outlives_the_store_that_was_closed_until_its_lease_ends) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op held = mutex(1, 0), other = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    asker_free(a);
    CHECK_EQ_INT(ask(b, &other), STORE_REFUSED);
    struct store_op op = {.type = STORE_BREAK, .name = "x", .token = held.token};
    CHECK_EQ_INT(ask(b, &op), STORE_DONE); /* nobody is left to be told */
    CHECK_EQ_INT(ask(b, &other), STORE_DONE);
    asker_free(b);
    b = asker_new(0);
    struct store_op waits = mutex(1, STORE_WAIT);
    a = asker_new(0);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &waits), STORE_QUEUED);
    asker_free(b); /* with a place in the queue */
    CHECK_EQ_INT(release(a, 1), STORE_DONE);
    asker_free(a);
}

TEST(a_name_changes_its_kind_when_nobody_has_it) {
    struct asker *a = asker_new(0);
    struct store_op as_mutex = mutex(1, 0), as_permits = permits(2, 1, 3),
                    others = permits(3, 1, 4);
    CHECK_EQ_INT(ask(a, &as_mutex), STORE_DONE);
    CHECK_EQ_INT(ask(a, &as_permits), STORE_REFUSED);
    CHECK_EQ_INT(as_permits.reason, HF_WRONG_KIND);
    virtual_pass_us(LEASE_US); /* its holder is dead: the name is free for any kind */
    CHECK_EQ_INT(ask(a, &as_permits), STORE_DONE);
    CHECK(as_permits.token > as_mutex.token);
    CHECK_EQ_INT(ask(a, &others), STORE_REFUSED);
    CHECK_EQ_INT(others.reason, HF_WRONG_KIND);
    asker_free(a);
}

TEST(unused_counters_are_forgotten_after_a_week) {
    struct asker *a = asker_new(0);
    for (uint64_t i = 1; i <= 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)i);
        struct store_op op = mutex(i, 0);
        op.name = name;
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
        op.type = STORE_RELEASE;
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    }
    struct store_op look = {.type = STORE_INSPECT, .name = "50"};
    virtual_pass_us(STORE_COUNTER_IDLE_US - 1);
    CHECK_EQ_INT(ask(a, &look), STORE_DONE);
    CHECK_EQ_INT(hf_locks_count(look.locks), 1);
    hf_locks_free(look.locks);
    virtual_pass_us(1);
    struct store_op op = mutex(101, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(ask(a, &look), STORE_DONE);
    CHECK_EQ_INT(hf_locks_count(look.locks), 0);
    hf_locks_free(look.locks);
    asker_free(a);
}

/* Nanoseconds of CPU for each name, of closing a space that remembers so many. */
static double cost_of_closing(int count) {
    struct asker *a = asker_new(0);
    for (int i = 1; i <= count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        struct store_op op = mutex((uint64_t)i, 0);
        op.name = name;
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
        op.type = STORE_RELEASE;
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    }
    clock_t began = clock();
    asker_free(a);
    return (double)(clock() - began) * 1e9 / CLOCKS_PER_SEC / count;
}

TEST(closing_costs_no_more_for_each_name_when_there_are_many) {
    double few, many;
    int tries = 0;
    do { /* a busy machine may be in the way of one */
        few = cost_of_closing(5000);
        many = cost_of_closing(100000);
    } while (many > 8 * few + 1000 && ++tries < 5);
    if (tries == 5)
        test_fail(__FILE__, __LINE__, "%.0f ns each of 5,000, %.0f ns each of 100,000", few, many);
}
