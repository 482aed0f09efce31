/* Holding: renewing, failing to renew, losing. */
#include "engine/story_test.h"

#include "store/locks.h"

/* The store answers no renewal until this time. Returns how often it was asked. */
static int nobody_answers_until_us(int64_t us) {
    int asked = 0;
    while (engine_due_us(&story.engine) <= us) {
        at_us(engine_due_us(&story.engine));
        while (!list_empty(&story.fresh)) {
            fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
            asked++;
        }
    }
    at_us(us);
    return asked;
}

/* ---- Renewing ----------------------------------------------------------------------------- */

STORY(a_hold_is_renewed_at_each_third_of_its_lease) {
    struct actor *a = held("x");
    for (int i = 1; i <= 5; i++) {
        at_us(i * THIRD_MS * INT64_C(1000) - 1);
        expect_nothing();
        at_ms(i * THIRD_MS);
        struct store_op *op = expect_renewal(1);
        CHECK(op->renewals[0].of == &a->hold->op);
        answer_renewal(op, STORE_DONE);
        expect_state(a, HOLD_HELD);
        expect_left_ms(a, VALID_MS);
    }
}

STORY(a_renewal_moves_the_deadline_from_its_request_and_not_from_its_reply) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    at_ms(THIRD_MS + 4000);
    expect_left_ms(a, VALID_MS - 14000);
    answer_renewal(op, STORE_DONE);
    expect_left_ms(a, VALID_MS - 4000);
    at_us(2 * THIRD_MS * 1000 - 1);
    expect_nothing();
    at_ms(2 * THIRD_MS);
    expect_renewal(1);
}

STORY(three_hundred_holds_are_renewed_with_two_operations) {
    for (int i = 0; i < 300; i++)
        held("x");
    at_ms(THIRD_MS);
    struct store_op *first = expect_renewal(256), *second = expect_renewal(44);
    expect_nothing();
    answer_renewal(first, STORE_DONE);
    answer_renewal(second, STORE_DONE);
    CHECK_EQ_INT(engine_due_us(&story.engine), 2 * THIRD_MS * 1000);
}

STORY(five_thousand_holds_are_renewed_in_portions) {
    for (int i = 0; i < 5000; i++)
        held("x");
    wakes_up_at_ms(THIRD_MS);
    size_t renewed_count = 0;
    for (int portion = 0; renewed_count < 5000; portion++) {
        size_t in_portion = 0;
        while (!list_empty(&story.fresh)) {
            size_t count = container_of(story.fresh.next, struct store_op, link)->renewal_count;
            CHECK(count <= 256);
            answer_renewal(expect_renewal(count), STORE_DONE);
            in_portion += count;
        }
        CHECK_EQ_INT(in_portion, portion < 4 ? 1024 : 5000 - 4 * 1024);
        renewed_count += in_portion;
        CHECK_EQ_INT(engine_due_us(&story.engine) <= story.engine.now_us, renewed_count < 5000);
        tick();
    }
    list_each(node, &story.actors)
        expect_left_ms(container_of(node, struct actor, link), VALID_MS);
}

STORY(a_hold_that_is_nearly_due_goes_along_with_one_that_is) {
    held("x");
    at_ms(400);
    held("y");
    at_ms(1000);
    held("z");
    at_ms(THIRD_MS);
    answer_renewal(expect_renewal(2), STORE_DONE);
    at_ms(THIRD_MS + 999);
    expect_nothing();
    at_ms(THIRD_MS + 1000);
    expect_renewal(1);
}

STORY(a_hold_that_is_not_to_be_renewed_ends_with_its_lease) {
    struct actor *a = make("x");
    a->hold->renews = false;
    held_by(a);
    at_us(VALID_MS * 1000 - 1);
    expect_nothing();
    expect_left_us(a, 1);
    at_ms(VALID_MS);
    expect_lost(a);
    expect_nothing();
}

/* ---- Renewals that fail ------------------------------------------------------------------- */

STORY(a_hold_whose_renewals_fail_is_suspect_and_lost_exactly_at_its_deadline) { /* row 23 */
    struct actor *a = held("x");
    int asked = nobody_answers_until_us(VALID_MS * 1000 - 1);
    CHECK(asked > 8); /* 20, 40, … 5000 ms apart */
    CHECK(asked < 25);
    expect_state(a, HOLD_SUSPECT);
    expect_left_us(a, 1);
    expect_nothing();
    at_ms(VALID_MS);
    expect_state(a, HOLD_LOST);
    expect_lost(a);
    expect_nothing();
    at_ms(VALID_MS * 3);
    expect_nothing();
}

STORY(a_failed_renewal_is_tried_again_after_a_while_that_doubles) {
    held("x");
    at_ms(THIRD_MS);
    int64_t longest_us = 20000;
    for (int i = 0; i < 8; i++) {
        int64_t failed_us = story.engine.now_us;
        fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
        at_us(failed_us + longest_us / 2 - 1);
        expect_nothing();
        at_us(failed_us + longest_us);
        longest_us *= 2;
    }
    expect_renewal(1);
}

/* As if the timers of other holds expired all the time. */
STORY(a_failed_renewal_is_not_retried_at_once) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    fail_renewal(expect_renewal(1), STORE_REFUSED, HF_UNREACHABLE);
    expect_state(a, HOLD_SUSPECT);
    tick();
    expect_nothing();
}

/* Between D and the tick that notices it, hf_check says that the lock is lost. */
STORY(an_answer_that_comes_after_the_deadline_does_not_bring_the_lock_back) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *renewal = expect_renewal(1);
    wakes_up_to_an_answer_at_us(VALID_MS * INT64_C(1000));
    answer_renewal(renewal, STORE_DONE);
    expect_lost(a);
}

STORY(a_renewal_that_succeeds_after_failures_makes_the_hold_sound_again) { /* row 23 */
    struct actor *a = held("x");
    nobody_answers_until_us(VALID_MS * 1000 / 2);
    expect_state(a, HOLD_SUSPECT);
    at_us(engine_due_us(&story.engine));
    int64_t asked_us = story.engine.now_us;
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_state(a, HOLD_HELD);
    expect_left_ms(a, VALID_MS);
    at_us(asked_us + THIRD_MS * 1000 - 1);
    expect_nothing();
    at_us(asked_us + THIRD_MS * 1000);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    at_us(asked_us + THIRD_MS * 1000 + 20000); /* and the backoff starts again */
    expect_renewal(1);
}

STORY(a_refused_renewal_is_no_loss) { /* row 15 */
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    fail_renewal(expect_renewal(1), STORE_REFUSED, HF_STORE_FULL);
    expect_state(a, HOLD_SUSPECT);
    expect_left_ms(a, VALID_MS - THIRD_MS);
    at_ms(THIRD_MS + 20);
    expect_renewal(1);
}

STORY(each_hold_of_a_renewal_has_its_own_outcome) {
    struct actor *a = held("x"), *b = held("y"), *c = held("z");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(3);
    for (int i = 0; i < 3; i++) {
        struct actor *actor = actor_of(op->renewals[i].of);
        op->renewals[i].outcome = actor == a   ? STORE_DONE
                                  : actor == b ? STORE_UNKNOWN
                                               : STORE_NOT_YOURS;
    }
    HERE(complete(op, STORE_DONE, 0, NULL));
    expect_state(a, HOLD_HELD);
    expect_state(b, HOLD_SUSPECT);
    expect_state(c, HOLD_LOST);
    expect_lost(c);
}

STORY(a_renewal_that_is_never_answered_loses_the_hold_at_its_deadline) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    at_us(VALID_MS * 1000 - 1);
    expect_nothing();
    at_ms(VALID_MS);
    expect_lost(a);
    CHECK(!op->renewals[0].of);
    answer_renewal(op, STORE_DONE); /* a loss is final */
    expect_state(a, HOLD_LOST);
}

STORY(an_answer_that_is_older_than_what_it_gave_comes_too_late) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    wakes_up_to_an_answer_at_ms(THIRD_MS + VALID_MS);
    answer_renewal(op, STORE_DONE);
    expect_lost(a);
}

/* ---- Losing ------------------------------------------------------------------------------- */

STORY(a_hold_whose_process_slept_past_its_deadline_is_lost) {
    struct actor *a = held("x");
    wakes_up_at_ms(VALID_MS);
    expect_lost(a);
    expect_nothing();
    wakes_up_at_ms(VALID_MS * 2);
    gone(a);
    expect_nothing(); /* it is reported once */
}

STORY(a_process_that_wakes_just_before_the_deadline_renews) {
    struct actor *a = held("x");
    wakes_up_at_ms(VALID_MS - 1);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_left_ms(a, VALID_MS);
}

STORY(a_hold_shows_no_time_left_from_its_deadline_on_even_before_the_timer) {
    struct actor *a = held("x");
    HERE(set_clock(VALID_MS * 1000));
    expect_left_us(a, 0);
    HERE(set_clock(VALID_MS * 2000));
    expect_left_us(a, 0);
    tick();
    expect_lost(a);
}

STORY(a_renewal_of_what_is_not_ours_any_more_loses_the_hold_at_once) { /* rows 10, 12, 13 */
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
    expect_lost(a);
    at_ms(VALID_MS * 2);
    expect_nothing();
}

STORY(a_hold_that_is_gone_at_the_store_is_lost_at_once) {
    struct actor *a = held("x");
    at_ms(100);
    gone(a);
    expect_lost(a);
    gone(a);
    at_ms(VALID_MS * 2);
    expect_nothing();
}

STORY(a_hold_that_is_gone_ignores_the_renewal_in_flight) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    gone(a);
    expect_lost(a);
    answer_renewal(op, STORE_DONE);
    expect_state(a, HOLD_LOST);
}

STORY(a_gone_notification_is_ignored_by_an_attempt_that_holds_nothing) {
    struct actor *leaving = held("y"), *waiting = acquire("x", FOREVER);
    expect_op(waiting, STORE_ACQUIRE);
    gone(waiting);
    answer_queued(waiting, 20000, 0);
    gone(waiting);
    release_without_waiting(leaving);
    expect_op(leaving, STORE_RELEASE);
    gone(leaving);
    engine_gone(&story.engine, 12345);
    expect_nothing();
}

STORY(a_hold_that_is_to_be_checked_is_renewed_at_once_and_the_answer_decides) {
    struct actor *a = held("x"), *b = held("y");
    at_ms(100);
    check(a);
    tick();
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_left_ms(a, VALID_MS);
    expect_left_ms(b, VALID_MS - 100);
    check(a);
    expect_state(a, HOLD_HELD);
    tick();
    answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
    expect_lost(a);
    expect_state(b, HOLD_HELD);
}

STORY(a_check_during_a_renewal_asks_once_more_for_the_answer_may_be_older) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(1);
    check(a);
    check(a);
    tick();
    expect_nothing();
    answer_renewal(op, STORE_DONE);
    tick();
    answer_renewal(expect_renewal(1), STORE_DONE);
    tick();
    expect_nothing();
    wakes_up_at_ms(2 * THIRD_MS);
    expect_renewal(1);
}

STORY(a_check_does_not_move_the_deadline_of_a_hold_that_is_not_to_be_renewed) {
    struct actor *a = make("x");
    a->hold->renews = false;
    held_by(a);
    at_ms(100);
    check(a);
    tick();
    struct store_op *op = expect_renewal(1);
    CHECK_EQ_INT(op->renewals[0].lease_us, (VALID_MS - 100) * INT64_C(1000));
    answer_renewal(op, STORE_DONE);
    expect_left_ms(a, VALID_MS - 100);
    at_ms(VALID_MS);
    expect_lost(a);
    expect_nothing();
}

STORY(a_check_is_ignored_by_an_attempt_that_holds_nothing) {
    struct actor *leaving = held("y"), *waiting = acquire("x", FOREVER);
    expect_op(waiting, STORE_ACQUIRE);
    check(waiting);
    answer_queued(waiting, 20000, 0);
    check(waiting);
    release_without_waiting(leaving);
    expect_op(leaving, STORE_RELEASE);
    check(leaving);
    engine_check(&story.engine, 12345);
    tick();
    expect_nothing();
}

STORY(a_check_of_everything_renews_every_hold) {
    struct actor *waiting = acquire("x", FOREVER);
    expect_op(waiting, STORE_ACQUIRE);
    answer_queued(waiting, 20000, 0);
    held("y");
    held("z");
    engine_check(&story.engine, STORE_ALL_HELD);
    tick();
    answer_renewal(expect_renewal(2), STORE_DONE);
    expect_nothing();
}

static bool is_x(void *context, const char *name) {
    (void)context;
    return strcmp(name, "x") == 0;
}

STORY(what_the_store_may_have_forgotten_is_lost_and_still_released_there) { /* row 10 */
    struct actor *a = held("x"), *b = held("y");
    at_ms(100);
    forgot(is_x);
    expect_lost(a);
    expect_state(b, HOLD_HELD);
    release_without_waiting(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    forgot(NULL);
    expect_lost(b);
}

STORY(a_store_that_forgot_does_not_affect_an_attempt_that_holds_nothing) {
    struct actor *waiting = acquire("x", FOREVER);
    expect_op(waiting, STORE_ACQUIRE);
    forgot(NULL);
    answer_queued(waiting, 20000, 0);
    forgot(NULL);
    expect_nothing();
}

/* ---- Leases that the store negotiates ----------------------------------------------------- */

STORY(deadline_and_renewals_follow_the_lease_that_was_granted) {
    struct actor *a = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->lease_us, LEASE_MS * 1000);
    answer_done_for(a, 7, 12000);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, 12000 - 120 - 2);
    at_ms(3999);
    expect_nothing();
    at_ms(4000);
    struct store_op *op = expect_renewal(1);
    CHECK_EQ_INT(op->renewals[0].lease_us, LEASE_MS * 1000); /* as the program asked for */
    op->renewals[0].lease_us = 15000000;
    answer_renewal(op, STORE_DONE);
    expect_left_ms(a, 15000 - 150 - 2);
    at_ms(8999);
    expect_nothing();
    at_ms(9000);
    expect_renewal(1);
}

STORY(a_lease_longer_than_asked_for_is_used_to_its_end) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_done_for(a, 7, 45000);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, 45000 - 450 - 2);
    at_ms(14999);
    expect_nothing();
    at_ms(15000);
    expect_renewal(1);
}

STORY(a_lease_too_short_for_the_time_needed_is_given_back) {
    struct actor *a = make("x");
    go_for_at_least_ms(a, 20000);
    expect_op(a, STORE_ACQUIRE);
    answer_done_for(a, 7, 20000);
    expect_acquired(a, HF_SHORT);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
}

/* The longer lease was not granted: only the old one can still be kept. */
STORY(a_failed_renewal_is_retried_at_the_pace_of_the_lease_it_has) {
    struct actor *a = make("x");
    a->hold->op.lease_us = 3000000;
    held_by(a);
    renew(a, 60000);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    expect_renewed(a, HF_UNKNOWN);
    for (int64_t last_us = 0; engine_due_us(&story.engine) < 2968000;) {
        at_us(engine_due_us(&story.engine));
        CHECK(story.engine.now_us - last_us <= 500000);
        last_us = story.engine.now_us;
        fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    }
    at_us(2968000);
    expect_lost(a);
}

STORY(who_asks_again_asks_for_the_lease_of_the_program) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE)->lease_us = 1; /* whatever a lost answer may have put there */
    answer_unknown(a);
    at_ms(1000);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->lease_us, LEASE_MS * 1000);
}

/* That is, until the store must have forgotten the hold, which is after the end of the lease that
 * was asked for. */
STORY(a_release_is_repeated_for_as_long_as_the_granted_lease_lasts) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_done_for(a, 7, 60000);
    expect_acquired(a, HF_OK);
    release_without_waiting(a);
    for (int i = 0; story.engine.now_us < 60000000; i++) {
        expect_op(a, STORE_RELEASE);
        answer_unknown(a);
        expect_not_over(a);
        at_us(engine_due_us(&story.engine));
    }
    expect_op(a, STORE_RELEASE);
}

STORY(each_renewal_of_an_operation_fails_for_its_own_reason) {
    struct actor *a = held("x"), *b = held("y"), *c = held("z");
    at_ms(THIRD_MS);
    struct store_op *op = expect_renewal(3);
    struct store_renewal *items = op->renewals;
    items[0].outcome = STORE_REFUSED;
    items[0].reason = HF_UNREACHABLE;
    items[1].outcome = STORE_DONE;
    items[2].outcome = STORE_REFUSED;
    items[2].reason = HF_DENIED;
    HERE(complete(op, STORE_DONE, 0, NULL));
    expect_state(a, HOLD_SUSPECT);
    CHECK_EQ_INT(a->hold->failure, HF_UNREACHABLE);
    expect_state(b, HOLD_HELD);
    expect_state(c, HOLD_SUSPECT);
    CHECK_EQ_INT(c->hold->failure, HF_DENIED);
}

/* ---- Renewing by hand --------------------------------------------------------------------- */

STORY(a_renewal_by_hand_goes_out_at_once_and_changes_the_lease_for_good) {
    struct actor *a = held("x");
    at_ms(1000);
    renew(a, 60000);
    struct store_op *op = expect_renewal(1);
    CHECK_EQ_INT(op->renewals[0].lease_us, 60000000);
    at_ms(1200);
    expect_nothing();
    answer_renewal(op, STORE_DONE);
    expect_renewed(a, HF_OK);
    expect_left_ms(a, 59398 - 200);
    at_ms(20999);
    expect_nothing();
    at_ms(21000);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_left_ms(a, 59398);
}

STORY(a_renewal_never_shortens_a_lease) {
    struct actor *a = held("x");
    at_ms(1000);
    renew(a, 3000);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_renewed(a, HF_OK);
    expect_left_ms(a, VALID_MS - 1000);
    at_ms(1999);
    expect_nothing();
    at_ms(2000);
    expect_renewal(1);
}

STORY(a_renewal_by_hand_replaces_the_one_in_flight) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    struct store_op *old = expect_renewal(1);
    at_ms(THIRD_MS + 50);
    renew(a, 60000);
    struct store_op *new = expect_renewal(1);
    CHECK(!old->renewals[0].of);
    answer_renewal(old, STORE_NOT_YOURS);
    expect_nothing();
    expect_left_ms(a, VALID_MS - THIRD_MS - 50);
    answer_renewal(new, STORE_DONE);
    expect_renewed(a, HF_OK);
    expect_left_ms(a, 59398);
}

STORY(the_answer_to_the_last_renewal_by_hand_is_that_to_all_of_them) {
    struct actor *a = held("x");
    renew(a, 10000);
    struct store_op *first = expect_renewal(1);
    renew(a, 20000);
    struct store_op *second = expect_renewal(1);
    answer_renewal(first, STORE_DONE);
    expect_nothing();
    answer_renewal(second, STORE_DONE);
    expect_renewed(a, HF_OK);
    expect_renewed(a, HF_OK);
}

STORY(a_renewal_by_hand_that_fails_says_so_and_the_hold_goes_on) {
    struct actor *a = held("x");
    renew(a, LEASE_MS);
    HERE(complete(expect_renewal(1), STORE_REFUSED, HF_UNREACHABLE, "connection refused"));
    expect_renewed(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection refused");
    expect_state(a, HOLD_SUSPECT);
    expect_left_ms(a, VALID_MS);
    at_ms(20);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_state(a, HOLD_HELD);
    renew(a, LEASE_MS);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    expect_renewed(a, HF_UNKNOWN);
    expect_state(a, HOLD_SUSPECT);
}

STORY(a_renewal_by_hand_that_alone_was_refused_gets_its_own_reason) {
    struct actor *a = held("x");
    renew(a, LEASE_MS);
    struct store_op *op = expect_renewal(1);
    op->renewals[0].outcome = STORE_REFUSED; /* the operation was done, this hold was not renewed */
    op->renewals[0].reason = HF_DENIED;
    HERE(complete(op, STORE_DONE, 0, NULL));
    expect_renewed(a, HF_DENIED);
}

STORY(a_renewal_by_hand_that_finds_the_hold_gone_says_lost) {
    struct actor *a = held("x");
    renew(a, LEASE_MS);
    answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
    expect_renewed(a, HF_LOST);
    expect_lost(a);
    renew(a, LEASE_MS);
    expect_renewed(a, HF_LOST);
    expect_nothing();
}

STORY(a_loss_ends_a_renewal_by_hand_that_is_in_flight) {
    struct actor *a = held("x");
    at_ms(THIRD_MS - 1);
    renew(a, LEASE_MS);
    expect_renewal(1);
    at_ms(VALID_MS);
    expect_renewed(a, HF_LOST);
    expect_lost(a);
}

STORY(a_hold_past_its_deadline_is_not_renewed_even_before_the_timer) {
    struct actor *a = held("x");
    HERE(set_clock(VALID_MS * 1000));
    renew(a, LEASE_MS);
    expect_renewed(a, HF_LOST);
    expect_lost(a);
    expect_nothing();
}

STORY(a_released_hold_is_not_renewed) {
    struct actor *a = held("x");
    release_without_waiting(a);
    expect_op(a, STORE_RELEASE);
    renew(a, LEASE_MS);
    expect_renewed(a, HF_RELEASED);
    expect_nothing();
}

STORY(a_hold_that_is_not_renewed_by_itself_can_be_by_hand) {
    struct actor *a = make("x");
    a->hold->renews = false;
    held_by(a);
    at_ms(20000);
    renew(a, LEASE_MS);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_renewed(a, HF_OK);
    expect_left_ms(a, VALID_MS);
    renew(a, LEASE_MS);
    fail_renewal(expect_renewal(1), STORE_UNKNOWN, 0);
    expect_renewed(a, HF_UNKNOWN);
    at_us((20000 + VALID_MS) * 1000 - 1);
    expect_nothing(); /* nor is a failure repeated */
    at_ms(20000 + VALID_MS);
    expect_lost(a);
}

STORY(a_renewal_goes_on_when_the_wait_for_it_is_cancelled) {
    struct actor *a = held("x");
    at_ms(1000);
    struct request *request = renew(a, LEASE_MS);
    HERE((engine_cancel(&story.engine, request, HF_CANCELLED), settle()));
    expect_renewed(a, HF_CANCELLED);
    answer_renewal(expect_renewal(1), STORE_DONE);
    expect_left_ms(a, VALID_MS);
}

/* ---- Why it was lost ---------------------------------------------------------------------- */

/* What the store reports about "x": its hold with this token was broken. 0: it knows of no
 * break. */
static hf_locks *found_broken(uint64_t token) {
    hf_locks *locks = locks_new();
    CHECK(locks && locks_add(locks, "x", STORE_LOCK, STORE_ALL, token + 1));
    if (token)
        CHECK(locks_set_break(locks, &(struct locks_break){.at_us = 1,
                                                           .token = token,
                                                           .by = "web3 pid 411 (eve)",
                                                           .reason = "it is stuck"}));
    return locks;
}

static void expect_cause(const struct actor *a, enum loss_cause cause, const char *text) {
    CHECK_EQ_INT(a->hold->cause, cause);
    CHECK_EQ_STR(a->hold->failure_text, text);
}

#define GONE "the store no longer has it: it was deleted there, or expired by the store's clock"

STORY(a_hold_that_the_store_does_not_have_is_lost_with_the_cause_that_the_store_knows) {
    static const struct {
        uint64_t broken;
        enum loss_cause cause;
        const char *text;
    } cases[] = {
        {7, LOSS_BROKEN, "broken by web3 pid 411 (eve): it is stuck"},
        {6, LOSS_GONE, GONE}, /* an earlier hold was broken */
        {0, LOSS_GONE, GONE},
    };
    story.engine.config.can_look = true;
    for (size_t i = 0; i < 3; i++) {
        struct actor *a = held("x");
        renew(a, LEASE_MS);
        answer_renewal(expect_renewal(1), STORE_NOT_YOURS);
        struct store_op *op = expect_inquiry();
        CHECK_EQ_STR(op->name, "x");
        expect_state(a, HOLD_LOST); /* at once; the program is notified with the answer */
        expect_nothing();
        answer_inquiry(op, found_broken(cases[i].broken));
        expect_lost(a);
        expect_renewed(a, HF_LOST);
        CHECK_EQ_STR(a->text, cases[i].text);
        expect_cause(a, cases[i].cause, cases[i].text);
    }
}

STORY(a_loss_is_reported_without_its_cause_if_the_store_does_not_answer) {
    story.engine.config.can_look = true;
    struct actor *a = held("x"), *late = make("x");
    late->hold->renews = false;
    held_by(late);
    gone(a);
    struct store_op *op = expect_inquiry();
    at_ms(499);
    expect_nothing();
    at_ms(500);
    expect_lost(a);
    expect_cause(a, LOSS_GONE, "the store no longer has it");
    answer_inquiry(op, found_broken(7)); /* too late */
    expect_cause(a, LOSS_GONE, "the store no longer has it");
    at_ms(VALID_MS - 40);
    gone(late);
    expect_inquiry();
    at_ms(VALID_MS - 1);
    expect_nothing();
    at_ms(VALID_MS); /* not later than its deadline */
    expect_lost(late);
}

STORY(a_release_waits_for_the_cause_of_a_loss) {
    story.engine.config.can_look = true;
    struct actor *a = held("x"), *nobody = held("x"), *leaves = held("x");
    gone(a);
    struct store_op *op = expect_inquiry();
    release(a);
    expect_nothing();
    answer_inquiry(op, found_broken(7));
    expect_lost(a);
    expect_released(a, HF_LOST);
    CHECK_EQ_STR(a->text, "broken by web3 pid 411 (eve): it is stuck");
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
    gone(nobody);
    op = expect_inquiry();
    release_without_waiting(nobody); /* does not wait */
    expect_lost(nobody);
    expect_op(nobody, STORE_RELEASE);
    answer_released(nobody);
    expect_over(nobody);
    answer_inquiry(op, found_broken(7)); /* nobody waits for it */
    gone(leaves);
    op = expect_inquiry();
    release(leaves);
    engine_cancel(&story.engine, leaves->releasing, HF_CANCELLED);
    settle();
    expect_released(leaves, HF_CANCELLED);
    answer_inquiry(op, found_broken(7));
    expect_lost(leaves);
    expect_op(leaves, STORE_RELEASE); /* it was asked for */
}

STORY(a_release_that_finds_the_hold_gone_asks_why) {
    story.engine.config.can_look = true;
    struct actor *a = held("x"), *silent = held("x"), *nobody = held("x");
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_not_yours(a);
    struct store_op *op = expect_inquiry();
    expect_nothing();
    answer_inquiry(op, found_broken(7));
    expect_released(a, HF_LOST);
    CHECK_EQ_STR(a->text, "broken by web3 pid 411 (eve): it is stuck");
    expect_over(a);
    release(silent);
    expect_op(silent, STORE_RELEASE);
    answer_not_yours(silent);
    expect_inquiry();
    at_ms(500);
    expect_released(silent, HF_LOST);
    expect_over(silent);
    release_without_waiting(nobody);
    expect_op(nobody, STORE_RELEASE);
    answer_not_yours(nobody);
    expect_over(nobody);
}

STORY(a_hold_that_was_not_renewed_is_lost_with_the_last_error) {
    struct actor *a = held("x");
    at_ms(THIRD_MS);
    fail_renewal(expect_renewal(1), STORE_REFUSED, HF_UNREACHABLE);
    while (!a->lost) {
        at_us(engine_due_us(&story.engine));
        if (!list_empty(&story.fresh))
            fail_renewal(expect_renewal(1), STORE_REFUSED, HF_UNREACHABLE);
    }
    expect_lost(a);
    expect_cause(a, LOSS_EXPIRED, "not renewed for 29698 ms: the store cannot be reached");
}

STORY(a_hold_that_the_store_forgot_says_so) {
    struct actor *a = held("x");
    forgot(NULL);
    expect_lost(a);
    expect_cause(a, LOSS_FORGOTTEN, "the store may have forgotten it: another server took over");
}
