/* The rules of store.h, on whatever store the URL names: what every store must do, whether it
 * has a server or not.
 *
 *     contract [-t words] URL
 *
 * The store is asked through its contract, in the real world. Tests of features that a store does
 * not declare are left out. Times are bounded from below exactly (a lock is not given away before
 * its lease has ended), from above by PATIENCE_US, which allows for a busy machine and is no
 * promise. */
#include "contract/asker.h"

#include <time.h>

enum {
    LONG_US = MAX_LEASE_US, /* does not end while a test runs */
    SHORT_US = 300 * MS,    /* ends while a test waits for it */
    EARLY_US = 2 * MS       /* by which a store may round a lease down; clients subtract it */
};

/* ---- What the program was given ---- */

static const char *contract_url(void) {
    if (test_args_count < 1)
        test_fail(__FILE__, __LINE__, "usage: contract [-t words] URL");
    return test_args[0];
}

/* ---- Which tests the store can pass ---- */

enum {
    RULES_MAX = 100,
    /* Repeats are tested by asking again for what was granted, as if the answer had been lost. A
     * set always answers its caller, so it is never asked again; its nodes are. */
    ANSWER_CAN_BE_LOST = 1 << 30,
    CAN_PROPOSE = 1 << 29,               /* `floor` counts: it has no tokens of its own */
    CAN_BARGE = 1 << 28,                 /* not STORE_IN_ORDER */
    HOLDS_OUTLIVE_CONNECTIONS = 1 << 27, /* rule 12 */
    REMEMBERS_ANSWERS = 1 << 26          /* rule 13: it may answer UNKNOWN */
};
static struct {
    struct test_case *test;
    unsigned needs; /* enum store_capability, and the above */
} rules[RULES_MAX];
static size_t rule_count;

static void add_rule(unsigned needs) {
    struct test_case *last = container_of(test_end, struct test_case, next);
    if (rule_count == RULES_MAX)
        test_fail(__FILE__, __LINE__, "there are more than %d rules", RULES_MAX);
    rules[rule_count].test = last;
    rules[rule_count++].needs = needs;
}

/* A test of a feature that not every store has. */
#define RULE(name, needs)                                            \
    static void rule_##name(void);                                   \
    TEST(name) {                                                     \
        rule_##name();                                               \
    }                                                                \
    __attribute__((constructor)) static void add_rule_##name(void) { \
        add_rule(needs);                                             \
    }                                                                \
    static void rule_##name(void)

static void leave_out(const struct test_case *test) {
    struct test_case **at = &test_first;
    while (*at != test)
        at = &(*at)->next;
    *at = test->next;
}

static struct asker *asker_new(void);

static void leave_out_what_the_store_lacks(void) {
    struct url url;
    parse(contract_url(), &url);
    bool is_set = strcmp(driver_of(&url)->scheme, "quorum") == 0;
    struct asker *asker = asker_new(); /* the URL's options may have chosen another driver */
    unsigned can = asker->store->driver->capabilities;
    asker_free(asker);
    can |= is_set ? 0 : ANSWER_CAN_BE_LOST;
    can |= strcmp(url.scheme, "memory") == 0 ? 0 : REMEMBERS_ANSWERS;
    can |= can & STORE_OWN_TOKENS ? 0 : CAN_PROPOSE;
    can |= can & STORE_IN_ORDER ? 0 : CAN_BARGE;
    can |= can & STORE_SESSION_BOUND ? 0 : HOLDS_OUTLIVE_CONNECTIONS;
    url_free(&url);
    for (size_t i = 0; i < rule_count; i++) {
        if (rules[i].needs & ~can)
            leave_out(rules[i].test);
    }
}

__attribute__((constructor)) static void prepare(void) {
    test_prepare = leave_out_what_the_store_lacks;
}

/* ---- Askers and what they ask for ---- */

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void wait_until_us(int64_t us) {
    while (now_us() < us)
        nanosleep(&(struct timespec){.tv_nsec = MS * 1000}, NULL);
}

static struct asker *waiter_new(int64_t wait_lease_us) {
    struct world *world;
    CHECK_EQ_INT(world_open_real(&world), HF_OK);
    return asker_open(world, contract_url(), wait_lease_us, 0);
}

static struct asker *asker_new(void) {
    return waiter_new(LONG_US);
}

/* The lock of this test, which no other test and no earlier run has used. */
static const char *the_name(void) {
    static char name[64];
    if (!*name)
        snprintf(name, sizeof name, "contract-%lld-%d", (long long)now_us(), (int)getpid());
    return name;
}

static struct store_op exclusive(uint64_t seq, uint8_t flags, int64_t lease_us) {
    return (struct store_op){.type = STORE_ACQUIRE,
                             .kind = STORE_LOCK,
                             .flags = flags,
                             .seq = seq,
                             .name = the_name(),
                             .capacity = STORE_ALL,
                             .weight = STORE_ALL,
                             .lease_us = lease_us};
}

static struct store_op shared(uint64_t seq) {
    struct store_op op = exclusive(seq, 0, LONG_US);
    op.weight = 1;
    return op;
}

static struct store_op permits(uint64_t seq, uint8_t flags, uint32_t weight, uint32_t capacity) {
    struct store_op op = exclusive(seq, flags, LONG_US);
    op.kind = STORE_PERMITS;
    op.weight = weight;
    op.capacity = capacity;
    return op;
}

static void check_busy(struct asker *asker, struct store_op op) {
    op.flags = 0;
    CHECK_EQ_INT(ask(asker, &op), STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_BUSY);
    CHECK(op.left_us > 0 && op.left_us <= MAX_LEASE_US);
}

/* Keeps asking until the lock is granted; returns when that was. */
static int64_t get_when_free(struct asker *asker, struct store_op *op) {
    uint8_t flags = op->flags;
    int64_t lease_us = op->lease_us, until_us = now_us() + PATIENCE_US;
    while (ask(asker, op) != STORE_DONE) {
        CHECK(now_us() < until_us);
        listen_for_us(asker, 5 * MS);
        op->flags = flags;
        op->lease_us = lease_us;
    }
    return now_us();
}

/* ---- Rule 1: completion ---- */

TEST(an_operation_in_flight_completes_once_when_the_store_is_closed) {
    struct asker *a = asker_new();
    struct store_op op = exclusive(1, 0, SHORT_US);
    submit(a, &op);
    a->store->driver->close(a->store);
    CHECK_EQ_INT(a->completed, 1);
    CHECK(op.outcome == STORE_DONE || op.outcome == STORE_UNKNOWN || op.outcome == STORE_REFUSED);
    world_close(a->host.world);
    free(op.text);
    free(a);
}

/* ---- Rule 3: repeats ---- */

RULE(a_repeat_finds_its_own_hold_with_the_same_token, ANSWER_CAN_BE_LOST) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US), next = exclusive(2, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    uint64_t token = op.token;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
        CHECK_EQ_INT(op.token, token);
        check_busy(b, exclusive(1, 0, LONG_US));
    }
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    CHECK_EQ_INT(ask(a, &next), STORE_DONE);
    CHECK(next.token > token);
    asker_free(a);
    asker_free(b);
}

RULE(a_repeat_raises_the_token_to_its_floor, CAN_PROPOSE | ANSWER_CAN_BE_LOST) {
    struct asker *a = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US), next = exclusive(2, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    uint64_t token = op.token;
    op.floor = token + 100;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(op.token, token + 100);
    op.floor = token; /* an older repeat, which was delayed */
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(op.token, token + 100);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    CHECK_EQ_INT(ask(a, &next), STORE_DONE);
    CHECK(next.token > token + 100);
    asker_free(a);
}

RULE(a_repeat_and_a_renewal_never_shorten_a_lease, STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op op = exclusive(1, 0, SECOND), other = exclusive(1, 0, LONG_US);
    int64_t asked_us = now_us();
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    int64_t granted_us = op.lease_us;
    op.lease_us = 20 * MS;
    ask(a, &op);
    op.lease_us = 20 * MS;
    renew(a, &op);
    CHECK(get_when_free(b, &other) >= asked_us + granted_us - EARLY_US);
    CHECK(other.token > op.token);
    asker_free(a);
    asker_free(b);
}

RULE(a_repeat_makes_a_lease_longer, STORE_CAN_LEASE_EACH | ANSWER_CAN_BE_LOST) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op op = exclusive(1, 0, SHORT_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    int64_t over_us = now_us() + SHORT_US;
    op.lease_us = LONG_US;
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    wait_until_us(over_us + 10 * MS);
    check_busy(b, exclusive(1, 0, LONG_US));
    asker_free(a);
    asker_free(b);
}

/* ---- Rule 4: the queue ---- */

RULE(a_release_reserves_the_lock_for_the_first_and_wakes_it, STORE_CAN_QUEUE) {
    struct asker *a = asker_new(), *b = asker_new(), *c = asker_new();
    struct store_op held = exclusive(1, 0, LONG_US), first = exclusive(7, STORE_WAIT, LONG_US),
                    second = exclusive(8, STORE_WAIT, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &first), STORE_QUEUED);
    CHECK(first.flags & STORE_HEAD);
    CHECK(first.left_us > 0 && first.left_us <= LONG_US);
    CHECK_EQ_INT(ask(c, &second), STORE_QUEUED);
    CHECK(!(second.flags & STORE_HEAD));
    CHECK_EQ_INT(release(a, &held), STORE_DONE);
    for (int64_t until_us = now_us() + PATIENCE_US; !b->wakes; listen_for_us(b, SECOND))
        CHECK(now_us() < until_us);
    CHECK(b->last_wake == 7 || b->last_wake == STORE_ALL_WAITING);
    check_busy(a, exclusive(2, 0, LONG_US)); /* reserved: a newcomer does not get it */
    second.flags = STORE_WAIT;
    CHECK_EQ_INT(ask(c, &second), STORE_QUEUED);
    CHECK(second.flags & STORE_HEAD);
    first.flags = STORE_WAIT;
    CHECK_EQ_INT(ask(b, &first), STORE_DONE);
    CHECK(first.token > held.token);
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

RULE(a_reservation_that_is_not_taken_goes_on_when_its_place_is_leased_no_more,
     STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = waiter_new(SECOND), *c = asker_new();
    struct store_op held = exclusive(1, 0, LONG_US), dead = exclusive(1, STORE_WAIT, LONG_US),
                    alive = exclusive(1, STORE_WAIT, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    int64_t asked_us = now_us();
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED);
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    CHECK_EQ_INT(release(a, &held), STORE_DONE);
    alive.flags = STORE_WAIT;
    CHECK(get_when_free(c, &alive) >= asked_us + SECOND - EARLY_US);
    dead.flags = STORE_WAIT;
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED); /* from the end again */
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

RULE(a_waiter_that_fell_silent_is_passed_over, STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = waiter_new(SHORT_US), *c = asker_new();
    struct store_op held = exclusive(1, 0, LONG_US), dead = exclusive(1, STORE_WAIT, LONG_US),
                    alive = exclusive(1, STORE_WAIT, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &dead), STORE_QUEUED);
    int64_t over_us = now_us() + SHORT_US;
    CHECK_EQ_INT(ask(c, &alive), STORE_QUEUED);
    wait_until_us(over_us + 10 * MS);
    CHECK_EQ_INT(release(a, &held), STORE_DONE);
    alive.flags = STORE_WAIT;
    get_when_free(c, &alive); /* a server may round a wait lease up */
    asker_free(a);
    asker_free(b);
    asker_free(c);
}

RULE(a_withdrawal_lets_those_behind_in, STORE_CAN_QUEUE | STORE_CAN_PERMITS) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op three = permits(1, 0, 3, 4), four = permits(1, STORE_WAIT, 4, 4),
                    one = permits(2, STORE_WAIT, 1, 4);
    CHECK_EQ_INT(ask(a, &three), STORE_DONE);
    CHECK_EQ_INT(ask(b, &four), STORE_QUEUED);
    CHECK_EQ_INT(ask(b, &one), STORE_QUEUED);    /* it would fit, and does not overtake */
    CHECK_EQ_INT(release(b, &four), STORE_DONE); /* the one in front leaves */
    one.flags = STORE_WAIT;
    CHECK_EQ_INT(ask(b, &one), STORE_DONE);
    asker_free(a);
    asker_free(b);
}

RULE(who_barges_overtakes_the_queue_and_not_the_holders,
     STORE_CAN_QUEUE | STORE_CAN_PERMITS | CAN_BARGE) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op three = permits(1, 0, 3, 4), four = permits(1, STORE_WAIT, 4, 4),
                    one = permits(2, STORE_BARGE, 1, 4), another = permits(3, STORE_BARGE, 1, 4);
    CHECK_EQ_INT(ask(a, &three), STORE_DONE);
    CHECK_EQ_INT(ask(b, &four), STORE_QUEUED);
    CHECK_EQ_INT(ask(b, &one), STORE_DONE);
    CHECK_EQ_INT(ask(b, &another), STORE_REFUSED);
    CHECK_EQ_INT(another.reason, HF_BUSY);
    asker_free(a);
    asker_free(b);
}

/* ---- Rule 6: tokens ---- */

RULE(a_floor_raises_the_token, CAN_PROPOSE) {
    struct asker *a = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US), next = exclusive(2, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.token >= 1);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    next.floor = op.token + 5000;
    CHECK_EQ_INT(ask(a, &next), STORE_DONE);
    CHECK_EQ_INT(next.token, op.token + 5000);
    asker_free(a);
}

RULE(a_floor_a_day_ahead_is_a_clock_error_or_cut, CAN_PROPOSE) {
    struct asker *a = asker_new();
    uint64_t wall = (uint64_t)world_wall_us(a->host.world);
    struct store_op op = exclusive(1, 0, LONG_US), next = exclusive(2, 0, LONG_US);
    op.floor = wall + (uint64_t)STORE_FLOOR_AHEAD_US + (uint64_t)PATIENCE_US;
    CHECK_EQ_INT(ask(a, &op), STORE_REFUSED); /* no counter to judge it by */
    CHECK_EQ_INT(op.reason, HF_CLOCK);
    op.floor = wall;
    get_when_free(a, &op); /* a refused session may release a row only after its answer */
    CHECK_EQ_INT(op.token, wall);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    next.floor = STORE_TOKEN_LIMIT - 1;
    CHECK_EQ_INT(ask(a, &next), STORE_DONE);
    wall = (uint64_t)world_wall_us(a->host.world);
    CHECK(next.token > wall);
    CHECK(next.token < wall + (uint64_t)STORE_FLOOR_AHEAD_US + SECOND); /* the clock is coarse */
    asker_free(a);
}

/* ---- Rule 7: never another's ---- */

RULE(what_comes_after_the_lease_does_not_touch_the_next_owner, STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op op = exclusive(1, 0, SHORT_US), other = exclusive(1, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    wait_until_us(now_us() + op.lease_us + 10 * MS);
    CHECK_EQ_INT(renew(a, &op), STORE_NOT_YOURS); /* over, although nobody took it yet */
    get_when_free(b, &other);                     /* with the same seq: another client's */
    CHECK_EQ_INT(renew(a, &op), STORE_NOT_YOURS);
    CHECK_EQ_INT(release(a, &op), STORE_NOT_YOURS);
    CHECK_EQ_INT(renew(b, &other), STORE_DONE);
    CHECK_EQ_INT(release(b, &other), STORE_DONE);
    asker_free(a);
    asker_free(b);
}

TEST(a_renewal_of_a_hold_that_ended_meanwhile_renews_the_others) {
    struct asker *a = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    struct store_renewal renewals[] = {
        {.of = NULL}, {.of = &op, .lease_us = LONG_US}, {.of = NULL}};
    struct store_op renewal = {.type = STORE_RENEW, .renewals = renewals, .renewal_count = 3};
    CHECK_EQ_INT(ask(a, &renewal), STORE_DONE);
    CHECK_EQ_INT(renewals[1].outcome, STORE_DONE);
    asker_free(a);
}

TEST(a_break_ends_the_hold_with_that_token_and_no_other) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op held = exclusive(4, 0, LONG_US), next = exclusive(1, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    struct store_op op = {.type = STORE_BREAK, .name = the_name(), .token = held.token + 1};
    CHECK_EQ_INT(ask(b, &op), STORE_NOT_YOURS);
    CHECK_EQ_INT(renew(a, &held), STORE_DONE);
    op.token = held.token;
    CHECK_EQ_INT(ask(b, &op), STORE_DONE);
    CHECK_EQ_INT(renew(a, &held), STORE_NOT_YOURS);
    get_when_free(b, &next);
    CHECK(next.token > held.token);
    asker_free(a);
    asker_free(b);
}

/* ---- Rule 8: kinds ---- */

RULE(a_lock_has_many_holders_who_share_it_or_one, STORE_CAN_SHARE) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op first = shared(1), second = shared(1), all = exclusive(2, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &first), STORE_DONE);
    CHECK_EQ_INT(ask(b, &second), STORE_DONE);
    check_busy(a, all);
    CHECK_EQ_INT(release(a, &first), STORE_DONE);
    check_busy(a, all);
    CHECK_EQ_INT(release(b, &second), STORE_DONE);
    get_when_free(a, &all);
    check_busy(b, shared(3));
    asker_free(a);
    asker_free(b);
}

RULE(a_name_changes_its_kind_when_nobody_has_it, STORE_CAN_PERMITS) {
    struct asker *a = asker_new();
    struct store_op as_lock = exclusive(1, 0, LONG_US), as_permits = permits(2, 0, 1, 3),
                    others = permits(3, 0, 1, 4);
    CHECK_EQ_INT(ask(a, &as_lock), STORE_DONE);
    CHECK_EQ_INT(ask(a, &as_permits), STORE_REFUSED);
    CHECK_EQ_INT(as_permits.reason, HF_WRONG_KIND);
    CHECK_EQ_INT(release(a, &as_lock), STORE_DONE);
    CHECK_EQ_INT(ask(a, &as_permits), STORE_DONE);
    CHECK(as_permits.token > as_lock.token);
    CHECK_EQ_INT(ask(a, &others), STORE_REFUSED);
    CHECK_EQ_INT(others.reason, HF_WRONG_KIND);
    asker_free(a);
}

/* ---- Rule 9: the last break ---- */

RULE(the_last_break_is_kept, STORE_CAN_LOOK) {
    struct asker *a = asker_new();
    struct store_op held = exclusive(1, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    struct store_op op = {
        .type = STORE_BREAK, .name = the_name(), .token = held.token, .label = "it hangs"};
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    struct store_op look = {.type = STORE_INSPECT, .name = the_name()};
    CHECK_EQ_INT(ask(a, &look), STORE_DONE);
    const hf_lock_info *info = hf_locks_at(look.locks, 0);
    CHECK(info != NULL);
    CHECK_EQ_INT(info->holder_count, 0);
    CHECK_EQ_INT(info->broken_token, held.token);
    CHECK_EQ_STR(info->broken_reason, "it hangs");
    CHECK(strstr(info->broken_by, "here") != NULL);
    hf_locks_free(look.locks);
    asker_free(a);
}

/* ---- Rule 10: leases ---- */

RULE(nobody_else_gets_the_lock_before_the_granted_lease_ends, STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op op = exclusive(1, 0, SHORT_US), other = exclusive(1, 0, LONG_US);
    int64_t asked_us = now_us();
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK(op.lease_us > 0 && op.lease_us <= MAX_LEASE_US);
    CHECK(get_when_free(b, &other) >= asked_us + op.lease_us - EARLY_US);
    asker_free(a);
    asker_free(b);
}

RULE(nobody_else_gets_the_lock_before_the_renewed_lease_ends, STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = asker_new();
    int64_t asked_us;
    struct store_op op;
    uint64_t seq = 0;
    do { /* a busy machine may be too late to renew */
        op = exclusive(++seq, 0, SECOND);
        get_when_free(a, &op);
        wait_until_us(now_us() + op.lease_us / 2);
        asked_us = now_us();
    } while (renew(a, &op) != STORE_DONE);
    struct store_op other = exclusive(1, 0, LONG_US);
    CHECK(get_when_free(b, &other) >= asked_us + op.lease_us - EARLY_US);
    asker_free(a);
    asker_free(b);
}

RULE(a_lock_outlives_the_store_that_was_closed, HOLDS_OUTLIVE_CONNECTIONS) {
    struct asker *a = asker_new(), *b = asker_new();
    struct store_op held = exclusive(1, 0, LONG_US), other = exclusive(1, 0, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    asker_free(a);
    check_busy(b, other);
    struct store_op op = {.type = STORE_BREAK, .name = the_name(), .token = held.token};
    CHECK_EQ_INT(ask(b, &op), STORE_DONE); /* nobody is left to notify */
    get_when_free(b, &other);
    asker_free(b);
}

RULE(who_closes_with_a_place_in_the_queue_is_in_nobodys_way_for_ever,
     STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH) {
    struct asker *a = asker_new(), *b = waiter_new(SHORT_US);
    struct store_op held = exclusive(1, 0, LONG_US), waits = exclusive(1, STORE_WAIT, LONG_US),
                    next = exclusive(2, STORE_WAIT, LONG_US);
    CHECK_EQ_INT(ask(a, &held), STORE_DONE);
    CHECK_EQ_INT(ask(b, &waits), STORE_QUEUED);
    asker_free(b);
    CHECK_EQ_INT(release(a, &held), STORE_DONE);
    get_when_free(a, &next);
    asker_free(a);
}

/* ---- Rule 11: watching ---- */

static void listen_until_changes(struct asker *asker, int count) {
    int64_t until_us = now_us() + PATIENCE_US;
    while (asker->changes < count) {
        CHECK(now_us() < until_us);
        listen_for_us(asker, 50 * MS);
    }
    CHECK_EQ_INT(asker->changes, count);
}

static void start_watching(struct asker *asker) {
    struct store_op op = {.type = STORE_WATCH, .name = the_name()};
    int64_t until_us = now_us() + PATIENCE_US;
    asker->watched = the_name();
    CHECK_EQ_INT(ask(asker, &op), STORE_DONE);
    while (!asker->watching) {
        CHECK(now_us() < until_us);
        listen_for_us(asker, 50 * MS);
    }
}

RULE(what_happens_is_reported_once_however_often_it_is_asked_for, STORE_CAN_PUSH) {
    struct asker *a = asker_new(), *w = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US);
    start_watching(w);
    for (int i = 0; i < 3; i++)
        CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    listen_until_changes(w, 2);
    CHECK(w->types[0] == HF_CHANGE_ACQUIRED && w->types[1] == HF_CHANGE_RELEASED);
    asker_free(a);
    asker_free(w);
}

RULE(who_waits_is_reported_once_and_when_it_gets_the_lock, STORE_CAN_PUSH | STORE_CAN_QUEUE) {
    struct asker *a = asker_new(), *b = asker_new(), *w = asker_new();
    struct store_op holds = exclusive(1, 0, LONG_US), waits;
    start_watching(w);
    CHECK_EQ_INT(ask(a, &holds), STORE_DONE);
    for (int i = 0; i < 3; i++) {
        waits = exclusive(1, STORE_WAIT, LONG_US);
        CHECK_EQ_INT(ask(b, &waits), STORE_QUEUED);
    }
    CHECK_EQ_INT(release(a, &holds), STORE_DONE);
    waits = exclusive(1, STORE_WAIT, LONG_US);
    CHECK_EQ_INT(ask(b, &waits), STORE_DONE);
    CHECK_EQ_INT(release(b, &waits), STORE_DONE);
    listen_until_changes(w, 5);
    static const hf_change_type types[] = {HF_CHANGE_ACQUIRED, HF_CHANGE_WAITING,
                                           HF_CHANGE_RELEASED, HF_CHANGE_ACQUIRED,
                                           HF_CHANGE_RELEASED};
    for (int i = 0; i < 5; i++)
        CHECK_EQ_INT(w->types[i], types[i]);
    asker_free(a);
    asker_free(b);
    asker_free(w);
}

RULE(a_release_of_what_is_not_held_is_not_reported, STORE_CAN_PUSH) {
    struct asker *a = asker_new(), *b = asker_new(), *w = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US), other = exclusive(1, 0, LONG_US);
    start_watching(w);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    CHECK_EQ_INT(release(b, &other), STORE_NOT_YOURS);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    release(a, &op); /* a repeat, which a store may recognise */
    listen_until_changes(w, 2);
    listen_for_us(w, 50 * MS);
    CHECK_EQ_INT(w->changes, 2);
    asker_free(a);
    asker_free(b);
    asker_free(w);
}

RULE(a_watch_that_was_stopped_reports_nothing, STORE_CAN_PUSH) {
    struct asker *a = asker_new(), *w = asker_new(), *other = asker_new();
    struct store_op op = exclusive(1, 0, LONG_US);
    struct store_op stop = {.type = STORE_UNWATCH, .name = ""};
    start_watching(w);
    start_watching(other);
    CHECK_EQ_INT(ask(w, &stop), STORE_DONE);
    CHECK_EQ_INT(ask(a, &op), STORE_DONE);
    listen_until_changes(other, 1);
    listen_for_us(w, 50 * MS);
    CHECK_EQ_INT(w->changes, 0);
    CHECK_EQ_INT(release(a, &op), STORE_DONE);
    asker_free(a);
    asker_free(w);
    asker_free(other);
}

/* ---- Counters (rule 13) ---- */

static struct store_op counting(uint64_t seq, enum store_count what, int64_t number) {
    return (struct store_op){.type = STORE_COUNT,
                             .kind = (uint8_t)what,
                             .seq = seq,
                             .name = the_name(),
                             .number = number};
}

/* Each is asked for twice, as if the first answer had been lost. Somebody else adds a million after
 * the first time, which the second must neither report nor undo. */
RULE(a_repeated_count_happens_once_and_gives_the_same_answer, STORE_CAN_COUNT | REMEMBERS_ANSWERS) {
    enum { MILLION = 1000000 };
    struct asker *a = asker_new(), *b = asker_new();
    static const struct {
        enum store_count what;
        int64_t number, value, left;
    } steps[] = {
        {STORE_COUNT_ADD, 5, 5, 5},
        {STORE_COUNT_SWAP, 7, MILLION + 5, 7},
        {STORE_COUNT_CAS, 8, 8, 8},
        {STORE_COUNT_REMOVE, 0, MILLION + 8, 0},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (uint64_t again = 0; again < 2; again++) {
            struct store_op op = counting(i + 1, steps[i].what, steps[i].number);
            op.expected = MILLION + 7;
            CHECK_EQ_INT(ask(a, &op), STORE_DONE);
            CHECK_EQ_INT(op.value, steps[i].value);
            CHECK_EQ_INT(op.flags & STORE_MISMATCH, 0);
            struct store_op other =
                counting(2 * i + again + 1, STORE_COUNT_ADD, again ? 0 : MILLION);
            CHECK_EQ_INT(ask(b, &other), STORE_DONE);
            CHECK_EQ_INT(other.value, steps[i].left + MILLION);
        }
    }
    asker_free(a);
    asker_free(b);
}
