/* Releasing: releases and their outcomes, reentering and leaving a lock, the end of the engine. */
#include "engine/story_test.h"

/* The store does not answer any release. Returns when the engine stopped asking. */
static int64_t nobody_confirms(struct actor *actor) {
    for (int i = 0; !actor->ended; i++) {
        CHECK(i < 1000);
        expect_op(actor, STORE_RELEASE);
        answer_unknown(actor);
        if (!actor->ended)
            at_us(engine_due_us(&story.engine));
    }
    return story.engine.now_us;
}

/* ---- Releasing ---------------------------------------------------------------------------- */

STORY(a_release_is_reported_when_the_store_has_done_it) {
    struct actor *a = held("x");
    release(a);
    struct store_op *op = expect_op(a, STORE_RELEASE);
    CHECK_EQ_STR(op->name, "x");
    CHECK_EQ_INT(op->seq, a->seq);
    expect_state(a, HOLD_RELEASING);
    expect_left_us(a, 0);
    expect_nothing();
    answer_released(a);
    expect_released(a, HF_OK);
    expect_over(a);
}

STORY(a_release_of_what_was_not_ours_any_more_says_lost) { /* row 19 */
    struct actor *a = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_not_yours(a);
    expect_released(a, HF_LOST);
    expect_over(a);
}

STORY(an_unanswered_release_is_reported_and_repeated_until_it_is_confirmed) {
    struct actor *a = held("x");
    at_ms(1000);
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_unknown_with(a, "no answer in 2 s");
    expect_released(a, HF_UNKNOWN);
    CHECK_EQ_STR(a->text, "no answer in 2 s");
    at_ms(1009);
    expect_nothing();
    at_ms(1020);
    expect_op(a, STORE_RELEASE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    at_ms(1060);
    expect_op(a, STORE_RELEASE);
    expect_not_over(a);
    answer_released(a);
    expect_over(a);
    expect_nothing();
}

STORY(a_repeated_release_that_finds_nothing_does_not_say_lost) { /* row 17 */
    struct actor *a = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_unknown(a); /* the store may have done it */
    expect_released(a, HF_UNKNOWN);
    release(a);
    at_ms(20);
    expect_op(a, STORE_RELEASE);
    answer_refused(a, HF_UNREACHABLE);
    expect_released(a, HF_UNREACHABLE);
    release(a);
    at_ms(60);
    expect_op(a, STORE_RELEASE);
    answer_not_yours(a);
    expect_released(a, HF_UNKNOWN);
    expect_over(a);
    expect_nothing();
}

STORY(a_refused_release_is_reported_with_its_reason_and_repeated) {
    struct actor *a = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    expect_released(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection refused");
    at_ms(20);
    expect_op(a, STORE_RELEASE);
}

STORY(an_unanswered_release_is_repeated_until_the_lease_has_passed) {
    struct actor *a = held("x");
    at_ms(1000);
    release(a);
    int64_t ended_us = nobody_confirms(a);
    expect_released(a, HF_UNKNOWN);
    CHECK(ended_us >= (1000 + LEASE_MS) * INT64_C(1000));
    CHECK(ended_us < (1000 + LEASE_MS + 5000) * INT64_C(1000));
}

/* A renewal never shortens a lease, so the store has the longer one. The time of the last repeat is
 * random, so this runs with many seeds. */
TEST(a_release_is_repeated_until_the_longest_lease_that_was_given_has_passed) {
    for (uint64_t chance = 1; chance <= 50; chance++) {
        story_begin();
        story.engine.config.random = story.seed = chance;
        struct actor *a = held("x");
        renew(a, 1000);
        answer_renewal(expect_renewal(1), STORE_DONE);
        expect_renewed(a, HF_OK);
        at_ms(100);
        release(a);
        int64_t ended_us = nobody_confirms(a);
        expect_released(a, HF_UNKNOWN);
        HERE(must(ended_us >= LEASE_MS * INT64_C(1000), "given up before the lease has passed"));
        story_end();
    }
}

STORY(a_second_release_joins_the_first) {
    struct actor *a = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    release(a);
    release_without_waiting(a);
    expect_nothing();
    answer_released(a);
    expect_released(a, HF_OK);
    expect_released(a, HF_OK);
}

STORY(a_second_release_after_the_first_has_ended_says_so) {
    struct actor *a = held("x");
    a->keep = true;
    release_without_waiting(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
    release(a);
    expect_released(a, HF_RELEASED);
    release_without_waiting(a);
    expect_nothing();
}

STORY(a_release_goes_on_when_the_wait_for_it_is_cancelled) {
    struct actor *a = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    HERE((engine_cancel(&story.engine, a->releasing, HF_CANCELLED), settle()));
    expect_released(a, HF_CANCELLED);
    answer_unknown(a);
    at_ms(20);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
}

/* ---- Releasing what is lost --------------------------------------------------------------- */

STORY(what_was_lost_by_time_is_still_released_at_the_store) {
    struct actor *a = held("x");
    wakes_up_at_ms(VALID_MS);
    expect_lost(a);
    release(a);
    expect_released(a, HF_LOST);
    expect_op(a, STORE_RELEASE);
    answer_not_yours(a);
    expect_over(a);
}

STORY(what_was_ended_by_others_is_still_released_at_the_store) {
    struct actor *a = held("x");
    gone(a);
    expect_lost(a);
    release(a);
    expect_released(a, HF_LOST);
    expect_op(a, STORE_RELEASE); /* some servers of a set may have it */
    answer_not_yours(a);
    expect_over(a);
}

STORY(what_a_renewal_found_gone_is_not_released) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
    expect_lost(a);
    release(a);
    expect_released(a, HF_LOST);
    expect_over(a);
    expect_nothing();
}

STORY(a_release_past_the_deadline_says_lost_even_before_the_timer) {
    struct actor *a = held("x");
    HERE(set_clock(VALID_MS * 1000));
    release(a);
    expect_lost(a);
    expect_released(a, HF_LOST);
    expect_op(a, STORE_RELEASE);
}

/* ---- Releases and renewals ---------------------------------------------------------------- */

STORY(a_release_cancels_the_renewal_in_flight) { /* row 24 */
    struct actor *a = held("x"), *b = held("y");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(2);
    release(a);
    expect_op(a, STORE_RELEASE);
    CHECK(!op->renewals[0].of != !op->renewals[1].of);
    answer_renewal(op, STORE_DONE);
    expect_state(a, HOLD_RELEASING);
    expect_left_ms(b, VALID_MS);
    answer_released(a);
    expect_released(a, HF_OK);
    at_ms(THIRD_MS * 2 - 1);
    expect_nothing();
}

STORY(a_renewal_may_be_answered_after_its_hold_has_ended) { /* row 24 */
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
    expect_over(a);
    answer_renewal(op, STORE_NOT_YOURS);
    expect_nothing();
}

STORY(a_release_ends_a_renewal_by_hand) {
    struct actor *a = held("x");
    renew(a, LEASE_MS);
    struct store_op *op = expect_renewal(1);
    release(a);
    expect_renewed(a, HF_RELEASED);
    expect_op(a, STORE_RELEASE);
    answer_renewal(op, STORE_DONE);
    answer_released(a);
    expect_released(a, HF_OK);
}

STORY(a_suspect_hold_is_released_as_any_other) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    release(a);
    expect_op(a, STORE_RELEASE);
    at_ms(THIRD_MS * 2);
    expect_nothing();
    answer_released(a);
    expect_released(a, HF_OK);
}

STORY(a_release_is_repeated_soon_however_often_renewals_have_failed) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    for (int i = 0; i < 6; i++) {
        fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
        at_us(engine_due_us(&story.engine));
    }
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_unknown(a);
    expect_released(a, HF_UNKNOWN);
    at_us(story.engine.now_us + 20000);
    expect_op(a, STORE_RELEASE);
}

/* ---- Releasing what is not held yet ------------------------------------------------------- */

STORY(releasing_a_waiter_withdraws_it) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    release_without_waiting(a);
    expect_acquired(a, HF_CANCELLED);
    expect_op(a, STORE_RELEASE);
}

STORY(the_release_of_a_waiter_is_reported_when_its_place_is_given_up) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    release(a);
    expect_acquired(a, HF_CANCELLED);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
    expect_over(a);
}

STORY(a_release_while_the_acquire_is_in_flight_is_reported_after_its_reply) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    release(a);
    expect_acquired(a, HF_CANCELLED);
    answer_done(a, 7);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
}

STORY(a_release_of_a_cancelled_acquire_that_is_then_refused_is_reported) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    release(a);
    expect_nothing();
    answer_refused(a, HF_UNREACHABLE);
    CHECK_EQ_INT(a->told[REQUEST_RELEASE].count, 1);
    a->told[REQUEST_RELEASE].read++;
    expect_over(a);
}

/* ---- Entering again ----------------------------------------------------------------------- */

static const struct owner thread_5 = {5, true}, thread_6 = {6, true}, key_5 = {5, false};

static struct actor *reentrant(const char *name, struct owner owner) {
    struct actor *actor = make(name);
    struct scene *scene = scene_of(actor->hold);
    scene->reentry.owner = owner;
    actor->hold->reentry = &scene->reentry;
    return actor;
}

static struct store_op wanted(const char *name, enum store_kind kind, uint32_t capacity,
                              uint32_t weight) {
    return (struct store_op){
        .name = name, .kind = (uint8_t)kind, .capacity = capacity, .weight = weight};
}

/* The hold that the owner enters again, or NULL. */
static struct hold *entered(const char *name, struct owner owner) {
    struct store_op op = wanted(name, STORE_LOCK, STORE_ALL, STORE_ALL);
    struct hold *hold = NULL;
    CHECK_EQ_INT(engine_reenter(&story.engine, &op, &owner, &hold), HF_OK);
    settle();
    return hold;
}

STORY(a_lock_entered_three_times_is_released_with_the_third_release) {
    struct actor *a = held_by(reentrant("x", thread_5));
    CHECK(entered("x", thread_5) == a->hold);
    CHECK(entered("x", thread_5) == a->hold);
    release(a);
    expect_released(a, HF_OK);
    release(a);
    expect_released(a, HF_OK);
    expect_state(a, HOLD_HELD);
    expect_nothing();
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
    expect_over(a);
}

STORY(only_the_same_owner_enters_again_and_only_the_same_name) {
    struct actor *thread = held_by(reentrant("x", thread_5));
    struct actor *key = held_by(reentrant("x", key_5));
    held("y");
    CHECK(entered("x", thread_5) == thread->hold);
    CHECK(entered("x", key_5) == key->hold);
    CHECK(!entered("x", thread_6));
    CHECK(!entered("y", thread_5));
    CHECK(!entered("xx", thread_5));
}

STORY(what_was_not_asked_for_as_reentrant_is_not_entered_again) {
    held("x");
    CHECK(!entered("x", (struct owner){0, true}));
}

STORY(what_is_not_held_is_not_entered_again) {
    struct actor *a = reentrant("x", thread_5);
    go(a, FOREVER);
    expect_op(a, STORE_ACQUIRE);
    CHECK(!entered("x", thread_5));
    answer_queued(a, 20000, 0);
    CHECK(!entered("x", thread_5));
    wake(a);
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    CHECK(entered("x", thread_5) == a->hold);
    release(a);
    expect_released(a, HF_OK);
    release(a);
    expect_op(a, STORE_RELEASE);
    CHECK(!entered("x", thread_5));
    answer_released(a);
    expect_released(a, HF_OK);
    CHECK(!entered("x", thread_5));
}

STORY(what_was_lost_is_not_entered_again) {
    struct actor *by_time = held_by(reentrant("x", thread_5));
    struct actor *by_word = held_by(reentrant("y", thread_5));
    gone(by_word);
    expect_lost(by_word);
    CHECK(!entered("y", thread_5));
    HERE(set_clock(VALID_MS * 1000)); /* its timer has not fired yet */
    CHECK(!entered("x", thread_5));
    tick();
    expect_lost(by_time);
    CHECK(!entered("x", thread_5));
    struct actor *again = held_by(reentrant("x", thread_5));
    CHECK(entered("x", thread_5) == again->hold);
}

STORY(a_suspect_hold_is_entered_again_while_it_has_time_left) {
    struct actor *a = held_by(reentrant("x", thread_5));
    at_ms(THIRD_MS);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    CHECK(entered("x", thread_5) == a->hold);
}

STORY(each_release_of_a_reentered_lock_that_was_lost_says_so) {
    struct actor *a = held_by(reentrant("x", thread_5));
    a->keep = true;
    entered("x", thread_5);
    entered("x", thread_5);
    wakes_up_at_ms(VALID_MS);
    expect_lost(a);
    release(a);
    expect_released(a, HF_LOST);
    expect_op(a, STORE_RELEASE);
    release(a);
    answer_released(a); /* nobody had taken it meanwhile */
    expect_released(a, HF_LOST);
    release(a);
    expect_released(a, HF_LOST);
}

/* The result for an owner that holds `has` and asks for `wants`. */
static int enters_for(struct store_op has, struct store_op wants) {
    story_begin();
    struct actor *a = reentrant("x", thread_5);
    a->hold->op.kind = has.kind;
    a->hold->op.capacity = has.capacity;
    a->hold->op.weight = has.weight;
    held_by(a);
    struct hold *hold = NULL;
    int r = engine_reenter(&story.engine, &wants, &thread_5, &hold);
    CHECK_EQ_INT(hold == a->hold, r == HF_OK);
    CHECK_EQ_INT(a->hold->reentry->entered, r == HF_OK ? 2 : 1);
    story_end();
    return r;
}

TEST(a_reentrant_hold_covers_the_same_request_and_smaller_ones) {
    struct store_op reader = wanted("x", STORE_LOCK, STORE_ALL, 1);
    struct store_op writer = wanted("x", STORE_LOCK, STORE_ALL, STORE_ALL);
    struct store_op two = wanted("x", STORE_PERMITS, 5, 2);
    struct store_op three = wanted("x", STORE_PERMITS, 5, 3);
    struct store_op of_six = wanted("x", STORE_PERMITS, 6, 2);
    CHECK_EQ_INT(enters_for(writer, writer), HF_OK);
    CHECK_EQ_INT(enters_for(writer, reader), HF_OK);
    CHECK_EQ_INT(enters_for(reader, reader), HF_OK);
    CHECK_EQ_INT(enters_for(three, two), HF_OK);
    CHECK_EQ_INT(enters_for(reader, writer), HF_WRONG_KIND);
    CHECK_EQ_INT(enters_for(reader, two), HF_WRONG_KIND);
    CHECK_EQ_INT(enters_for(two, writer), HF_WRONG_KIND);
    CHECK_EQ_INT(enters_for(two, of_six), HF_WRONG_KIND);
    CHECK_EQ_INT(enters_for(two, three), HF_BAD_WEIGHT);
}

/* ---- Leaving a lock to its lease ---------------------------------------------------------- */

static struct actor *kept(const char *name) {
    struct actor *actor = make(name);
    actor->hold->keeps = true;
    go(actor, FOREVER);
    CHECK_EQ_INT(expect_op(actor, STORE_ACQUIRE)->flags, STORE_WAIT | STORE_KEEP);
    answer_done(actor, 7);
    expect_acquired(actor, HF_OK);
    return actor;
}

STORY(a_kept_hold_that_is_dropped_is_left_to_its_lease) {
    struct actor *a = kept("x");
    release_without_waiting(a);
    expect_over(a);
    expect_nothing();
    CHECK_EQ_INT(story.engine.hold_count, 0);
}

STORY(a_kept_hold_is_left_while_its_renewal_is_in_flight) {
    struct actor *a = kept("x");
    wakes_up_at_ms(LEASE_MS / 2);
    struct store_op *op = expect_renewal(1);
    release_without_waiting(a);
    expect_over(a);
    answer_renewal(op, STORE_DONE);
    expect_nothing();
}

STORY(a_kept_hold_is_released_for_who_waits_for_that) {
    struct actor *a = kept("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
    expect_over(a);
}

STORY(a_kept_hold_that_came_too_late_is_released) {
    struct actor *a = make("x");
    a->hold->keeps = true;
    go(a, FOREVER);
    expect_op(a, STORE_ACQUIRE);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    answer_done(a, 7);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
}

/* ---- The end ------------------------------------------------------------------------------ */

static void shut_down(void) {
    engine_shutdown(&story.engine);
    settle();
}

STORY(a_shutdown_releases_every_hold) {
    struct actor *a = held("x"), *lost = held_by(reentrant("y", thread_5));
    entered("y", thread_5);
    wakes_up_at_ms(VALID_MS - 1);
    struct store_op *op = expect_renewal(2);
    at_ms(VALID_MS);
    expect_lost(a);
    expect_lost(lost);
    struct actor *b = held("z");
    HERE(shut_down());
    CHECK_EQ_INT(a->with_store + lost->with_store + b->with_store, 3);
    answer_renewal(op, STORE_DONE);
    list_each(node, &story.fresh) {
        CHECK_EQ_INT(container_of(node, struct store_op, link)->type, STORE_RELEASE);
    }
    HERE(say_yes_to_all(&story.fresh));
    CHECK_EQ_INT(story.engine.hold_count, 0);
}

STORY(a_shutdown_leaves_what_is_kept) {
    struct actor *a = kept("x"), *b = held("y");
    HERE(shut_down());
    expect_over(a);
    expect_op(b, STORE_RELEASE);
    answer_released(b);
    expect_nothing();
}

STORY(a_shutdown_finishes_every_request) {
    struct actor *renewing = held("z"), *releasing = held("w");
    struct actor *asking = acquire("x", FOREVER), *waiting = acquire("y", FOREVER);
    expect_op(asking, STORE_ACQUIRE);
    expect_op(waiting, STORE_ACQUIRE);
    answer_queued(waiting, 20000, 0);
    renew(renewing, LEASE_MS);
    struct store_op *renewal = expect_renewal(1);
    release(releasing);
    expect_op(releasing, STORE_RELEASE);
    HERE(shut_down());
    expect_acquired(asking, HF_CLOSED);
    expect_acquired(waiting, HF_CLOSED);
    expect_renewed(renewing, HF_CLOSED);
    expect_released(releasing, HF_CLOSED);
    CHECK(waiting->with_store && renewing->with_store);
    HERE(say_yes_to_all(&story.fresh));
    expect_over(waiting);
    expect_over(renewing);
    answer_renewal(renewal, STORE_DONE);
    answer_released(releasing);
    expect_over(releasing);
    answer_done(asking, 7); /* a grant that nobody wants any more */
    expect_op(asking, STORE_RELEASE);
    answer_released(asking);
    CHECK_EQ_INT(story.engine.hold_count, 0);
}

STORY(a_shutdown_does_not_release_what_a_renewal_found_gone) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
    expect_lost(a);
    HERE(shut_down());
    expect_over(a);
    expect_nothing();
}

STORY(what_the_store_never_confirmed_is_abandoned_when_it_was_closed) {
    struct actor *a = held("x"), *b = acquire("y", FOREVER);
    expect_op(b, STORE_ACQUIRE);
    HERE(shut_down());
    expect_acquired(b, HF_CLOSED);
    expect_op(a, STORE_RELEASE);
    answer_unknown(a); /* the closing store completes what it has */
    answer_unknown(b);
    expect_op(b, STORE_RELEASE);
    answer_unknown(b);
    expect_not_over(a);
    HERE((engine_abandon(&story.engine), settle()));
    expect_over(a);
    expect_over(b);
    CHECK_EQ_INT(engine_due_us(&story.engine), ENGINE_NEVER);
}
