/* The memory store beyond the rules of store.h, which tests/contract tests: exact times, on a
 * virtual clock; voting; what it forgets, and what it costs. */
#include "contract/asker.h"
#include "store/voting.h"
#include "support/virtual_world.h"

#include <time.h>

enum { LEASE_US = 10 * SECOND, WAIT_LEASE_US = 3 * SECOND };

static struct asker *asker_at(const char *url, uint64_t token_floor) {
    return asker_open(virtual_world(), url, WAIT_LEASE_US, token_floor);
}

static struct asker *asker_new(uint64_t token_floor) {
    return asker_at("memory:rules", token_floor);
}

/* Receives what the bell announces. */
static void listen(struct asker *asker) {
    listen_for_us(asker, 0);
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

static enum store_outcome let_go(struct asker *asker, uint64_t seq) {
    struct store_op op = mutex(seq, 0);
    return release(asker, &op);
}

/* ---- Exact times ---- */

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

TEST(a_reservation_that_is_not_taken_goes_on_after_the_wait_lease) {
    struct asker *a = asker_new(0), *b = asker_new(0), *c = asker_new(0);
    struct store_op held = mutex(1, 0), dead = mutex(1, STORE_WAIT), alive = mutex(1, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED);
    virtual_pass_us(SECOND);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    CHECK_EQ_INT(let_go(a, 1), STORE_DONE);
    virtual_pass_us(WAIT_LEASE_US - SECOND - 1);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    CHECK_EQ_INT(alive.left_us, 1); /* until the reservation ends */
    virtual_pass_us(1);
    CHECK_EQ_INT(ask(c, &alive), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED); /* at the end of the queue */
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

TEST(a_lease_is_granted_up_to_the_limit) {
    struct asker *a = asker_at("memory:rules?lease_limit=2000", 0), *b = asker_new(0);
    struct store_op op = mutex(1, 0), other = mutex(1, 0);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(op.lease_us, 2 * SECOND);
    virtual_pass_us(SECOND);
    op.lease_us = LEASE_US;
    CHECK_EQ_INT(renew(a, &op), STORE_DONE);
    CHECK_EQ_INT(op.lease_us, 2 * SECOND);
    virtual_pass_us(2 * SECOND - 1);
    CHECK_EQ_INT(ask(b, &other), STORE_REFUSED);
    CHECK_EQ_INT(other.left_us, 1);
    virtual_pass_us(1);
    CHECK_EQ_INT(ask(b, &other), STORE_DONE);
    CHECK_EQ_INT(other.lease_us, LEASE_US); /* the limit is only in a's URL */
    asker_free(a);
    asker_free(b);
}

/* ---- Whose turn it is ---- */

TEST(a_release_wakes_the_first_alone) {
    struct asker *a = asker_new(0), *b = asker_new(0), *c = asker_new(0);
    struct store_op held = mutex(1, 0), first = mutex(7, STORE_WAIT), second = mutex(8, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &first), STORE_QUEUED);
    CHECK_EQ_INT(ask(c, &second), STORE_QUEUED);
    CHECK_EQ_INT(let_go(a, 1), STORE_DONE);
    CHECK_EQ_INT(let_go(a, 1), STORE_NOT_YOURS);
    listen(b);
    listen(c);
    CHECK(b->wakes == 1 && b->last_wake == 7 && c->wakes == 0);
    struct store_op behind = mutex(9, STORE_WAIT);
    CHECK_EQ_INT(ask(c, &behind), STORE_QUEUED);
    CHECK_EQ_INT(release(b, &first), STORE_DONE); /* it gives its reservation up */
    listen(c);
    CHECK(c->wakes == 1 && c->last_wake == 8);
    CHECK_EQ_INT(release(c, &second), STORE_DONE);
    CHECK(c->wakes == 2 && c->last_wake == 9); /* inside submit: its own client asked */
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

TEST(a_refused_token_gives_the_lock_to_the_next) {
    struct asker *a = asker_new(0), *b = asker_new(0);
    struct store_op held = mutex(1, 0), first = mutex(1, STORE_WAIT), second = mutex(2, STORE_WAIT);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &first), STORE_QUEUED);
    CHECK_EQ_INT(ask(b, &second), STORE_QUEUED);
    CHECK_EQ_INT(let_go(a, 1), STORE_DONE);
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
    CHECK_EQ_INT(let_go(b, 1), STORE_NOT_YOURS);
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
    CHECK_EQ_INT(let_go(a, 1), STORE_DONE);
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
    CHECK_EQ_INT(let_go(a, 1), STORE_NOT_YOURS);
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    CHECK_EQ_INT(let_go(a, 1), STORE_DONE);
    listen(b);
    CHECK_EQ_INT(b->freed, 1);
    CHECK_EQ_INT(vote(a, &one, STORE_GIVE, 0), HF_OK);
    struct store_op end = {.type = STORE_BREAK, .name = "x", .token = one.op.token};
    CHECK_EQ_INT(ask(b, &end), STORE_DONE);
    CHECK_EQ_INT(b->freed, 2);
    struct store_op plain = mutex(1, 0);
    CHECK_EQ_INT(ask(alone, &plain), STORE_DONE);
    CHECK_EQ_INT(let_go(alone, 1), STORE_DONE); /* this hold is not the set's */
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

/* The CPU time for closing a space that remembers `count` names, in nanoseconds for each name. */
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
    do { /* on a busy machine, one try may fail */
        few = cost_of_closing(5000);
        many = cost_of_closing(100000);
    } while (many > 8 * few + 1000 && ++tries < 5);
    if (tries == 5)
        test_fail(__FILE__, __LINE__, "%.0f ns each of 5,000, %.0f ns each of 100,000", few, many);
}
