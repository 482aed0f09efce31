/* Acquiring: asking, waiting, asking again, being granted, giving up. */
#include "engine/story_test.h"

/* ---- Granted ------------------------------------------------------------------------------ */

STORY(an_uncontended_acquire_is_one_request_and_one_reply) {
    struct actor *a = acquire("x", FOREVER);
    struct store_op *op = expect_op(a, STORE_ACQUIRE);
    CHECK_EQ_STR(op->name, "x");
    CHECK_EQ_INT(op->flags, STORE_WAIT);
    CHECK_EQ_INT(op->lease_us, 30000000);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    CHECK_EQ_INT(a->hold->op.token, 7);
    expect_state(a, HOLD_HELD);
    expect_nothing();
}

STORY(a_lease_is_valid_for_itself_minus_one_percent_and_two_ms) {
    CHECK_EQ_INT(engine_validity_us(&story.engine, 30000000), 29698000);
    CHECK_EQ_INT(engine_validity_us(&story.engine, 1000000), 988000);
    CHECK_EQ_INT(engine_validity_us(&story.engine, 60000000), 59398000);
    story.engine.config.drift_ppm = 0;
    CHECK_EQ_INT(engine_validity_us(&story.engine, 1000000), 998000);
}

STORY(the_deadline_counts_from_the_request_and_not_from_the_reply) {
    at_ms(1000);
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    at_ms(1500);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, VALID_MS - 500);
}

STORY(the_deadline_of_a_waiter_counts_from_the_request_that_was_granted) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    at_ms(1000);
    expect_op(a, STORE_ACQUIRE);
    at_ms(1200);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, VALID_MS - 200);
}

STORY(an_answer_just_before_the_deadline_is_held) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    wakes_up_to_an_answer_at_us(VALID_MS * 1000 - 1);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_us(a, 1);
}

STORY(an_answer_at_the_deadline_is_too_late_and_what_it_granted_is_released) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    wakes_up_to_an_answer_at_ms(VALID_MS);
    answer_done(a, 7);
    expect_acquired(a, HF_SHORT);
    CHECK_EQ_STR(a->text, "0 ms were left when it was granted");
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_over(a);
}

STORY(a_lock_with_less_time_left_than_asked_for_is_released) {
    struct actor *enough = make("x"), *less = make("y");
    go_for_at_least_ms(enough, VALID_MS - 100);
    go_for_at_least_ms(less, VALID_MS - 99);
    expect_op(enough, STORE_ACQUIRE);
    expect_op(less, STORE_ACQUIRE);
    wakes_up_to_an_answer_at_ms(100);
    answer_done(enough, 7);
    expect_acquired(enough, HF_OK);
    answer_done(less, 8);
    expect_acquired(less, HF_SHORT);
    CHECK_EQ_STR(less->text, "29598 ms were left when it was granted");
    expect_op(less, STORE_RELEASE);
}

STORY(a_barging_acquire_is_sent_as_such) {
    struct actor *a = make("x");
    a->hold->barges = true;
    go(a, FOREVER);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->flags, STORE_WAIT | STORE_BARGE);
}

/* ---- Waiting ------------------------------------------------------------------------------ */

STORY(a_waiter_asks_again_each_third_of_the_wait_lease_as_the_same_attempt) {
    struct actor *a = acquire("x", FOREVER);
    uint64_t seq = expect_op(a, STORE_ACQUIRE)->seq;
    answer_queued(a, 20000, 0);
    for (int ms = 1000; ms <= 5000; ms += 1000) {
        at_ms(ms - 1);
        expect_nothing();
        at_ms(ms);
        CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->seq, seq);
        answer_queued(a, 20000 - ms, 0);
    }
    expect_nothing();
}

STORY(the_head_of_the_queue_asks_when_the_holder_must_have_ended) {
    struct actor *head = acquire("x", FOREVER), *second = acquire("x", FOREVER);
    expect_op(head, STORE_ACQUIRE);
    expect_op(second, STORE_ACQUIRE);
    answer_queued(head, 400, STORE_HEAD);
    answer_queued(second, 400, 0);
    at_ms(400);
    expect_nothing();
    at_ms(401);
    expect_op(head, STORE_ACQUIRE);
    at_ms(999);
    expect_nothing();
    at_ms(1000);
    expect_op(second, STORE_ACQUIRE);
}

STORY(the_head_keeps_its_place_while_the_holder_has_long_to_go) {
    struct actor *head = acquire("x", FOREVER);
    expect_op(head, STORE_ACQUIRE);
    answer_queued(head, 20000, STORE_HEAD);
    at_ms(999);
    expect_nothing();
    at_ms(1000);
    expect_op(head, STORE_ACQUIRE);
}

STORY(a_waiter_that_is_no_longer_the_head_retries_less_often) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 400, STORE_HEAD);
    at_ms(401);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->flags, STORE_WAIT);
    answer_queued(a, 400, 0); /* somebody barged in front */
    at_ms(1400);
    expect_nothing();
    at_ms(1401);
    expect_op(a, STORE_ACQUIRE);
}

STORY(a_woken_waiter_asks_at_once) {
    struct actor *a = acquire("x", FOREVER);
    uint64_t seq = expect_op(a, STORE_ACQUIRE)->seq;
    answer_queued(a, 20000, 0);
    at_ms(100);
    wake(a);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->seq, seq);
    wake(a);
    expect_nothing();
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, VALID_MS);
}

STORY(a_wake_up_may_come_before_the_reply_that_it_follows) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    wake(a);
    expect_nothing();
    answer_queued(a, 20000, 0);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0); /* it was not its turn: one wake-up makes one request */
    expect_nothing();
    at_ms(1000);
    expect_op(a, STORE_ACQUIRE);
}

STORY(a_wake_up_of_a_holder_or_of_who_gave_up_is_ignored) {
    struct actor *a = held("x"), *b = held("y");
    release(b);
    expect_op(b, STORE_RELEASE);
    wake(a);
    wake(b);
    answer_released(b);
    expect_released(b, HF_OK);
    wake(b);
    engine_wake(&story.engine, 12345);
    expect_nothing();
}

/* ---- Answers that are lost ---------------------------------------------------------------- */

STORY(a_lost_reply_is_asked_for_again_as_the_same_attempt_with_a_fresh_floor) { /* row 17 */
    struct actor *a = acquire("x", FOREVER);
    struct store_op *op = expect_op(a, STORE_ACQUIRE);
    uint64_t seq = op->seq;
    CHECK_EQ_INT(op->floor, WALL_US);
    at_ms(5000);
    answer_unknown(a);
    at_ms(5009);
    expect_nothing();
    at_ms(5020);
    op = expect_op(a, STORE_ACQUIRE);
    CHECK_EQ_INT(op->seq, seq);
    CHECK_EQ_INT(op->floor, WALL_US + a->sent_us);
    int64_t asked_us = a->sent_us;
    at_ms(5100);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_us(a, asked_us + VALID_MS * 1000 - 5100000);
}

STORY(lost_replies_are_asked_for_less_and_less_often) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    int64_t longest_us = 20000;
    for (int i = 0; i < 12; i++) {
        int64_t failed_us = story.engine.now_us;
        answer_unknown(a);
        at_us(failed_us + longest_us / 2 - 1);
        expect_nothing();
        at_us(failed_us + longest_us);
        expect_op(a, STORE_ACQUIRE);
        longest_us = longest_us * 2 < 1000000 ? longest_us * 2 : 1000000;
    }
    answer_queued(a, 20000, 0); /* all is well again */
    int64_t now_us = story.engine.now_us;
    at_us(now_us + 1000000);
    expect_op(a, STORE_ACQUIRE);
    answer_unknown(a);
    at_us(now_us + 1020000);
    expect_op(a, STORE_ACQUIRE);
}

STORY(the_particulars_of_lost_replies_do_not_pile_up) {
    struct actor *a = acquire("x", FOREVER);
    for (int i = 0; i < 3; i++) {
        expect_op(a, STORE_ACQUIRE);
        answer_unknown_with(a, "the connection was reset");
        at_us(story.engine.now_us + 1000000);
    }
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    release(a);
    expect_op(a, STORE_RELEASE);
    answer_released(a);
    expect_released(a, HF_OK);
    CHECK_EQ_STR(a->text, NULL);
}

STORY(the_particulars_of_an_answer_that_nobody_waits_for_are_freed) {
    struct actor *a = acquire("x", FOREVER), *b = acquire("y", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    expect_op(b, STORE_ACQUIRE);
    cancel(a);
    cancel(b);
    expect_acquired(a, HF_CANCELLED);
    expect_acquired(b, HF_CANCELLED);
    answer_refused_with(a, HF_WRONG_KIND, "it is a mutex");
    expect_over(a);
    answer_unknown_with(b, "the connection was reset");
    expect_op(b, STORE_RELEASE);
    answer_unknown_with(b, "the connection was reset again");
}

STORY(a_store_that_fell_silent_is_not_called_a_timeout) {
    struct actor *silent = acquire("x", for_ms(500)), *lost = acquire("y", for_ms(500));
    expect_op(silent, STORE_ACQUIRE);
    expect_op(lost, STORE_ACQUIRE);
    at_ms(490);
    answer_unknown(lost);
    at_ms(499);
    expect_nothing();
    at_ms(500);
    expect_acquired(silent, HF_UNKNOWN);
    expect_acquired(lost, HF_UNKNOWN);
    expect_op(lost, STORE_RELEASE);
    expect_nothing();
}

STORY(a_try_that_was_not_answered_is_unknown_and_released_until_that_is_confirmed) {
    struct actor *a = acquire("x", TRY);
    expect_op(a, STORE_ACQUIRE);
    at_ms(2000);
    answer_unknown_with(a, "no answer in 2 s");
    expect_acquired(a, HF_UNKNOWN);
    CHECK_EQ_STR(a->text, "no answer in 2 s");
    expect_op(a, STORE_RELEASE);
    answer_unknown(a);
    at_ms(2020);
    expect_op(a, STORE_RELEASE);
    answer_refused(a, HF_UNREACHABLE);
    at_ms(2060);
    expect_op(a, STORE_RELEASE);
    expect_not_over(a);
    answer_not_yours(a);
    expect_over(a);
}

STORY(what_may_have_been_granted_is_released_until_the_store_must_have_forgotten_it) {
    struct actor *a = acquire("x", TRY);
    expect_op(a, STORE_ACQUIRE);
    at_ms(2000);
    answer_unknown(a);
    expect_acquired(a, HF_UNKNOWN);
    while (!a->ended) {
        CHECK(story.engine.now_us < INT64_C(37000000));
        expect_op(a, STORE_RELEASE);
        int64_t sent_us = story.engine.now_us;
        answer_unknown(a);
        if (sent_us < (2000 + LEASE_MS) * INT64_C(1000))
            expect_not_over(a);
        if (!a->ended)
            at_us(engine_due_us(&story.engine));
    }
}

STORY(a_refusal_after_a_lost_reply_still_releases_what_may_have_been_granted) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_unknown(a);
    at_ms(20);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_DENIED, "the password was changed");
    expect_acquired(a, HF_DENIED);
    CHECK_EQ_STR(a->text, "the password was changed");
    expect_op(a, STORE_RELEASE);
}

STORY(a_refusal_after_a_lost_reply_releases_for_who_has_left_meanwhile) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_unknown(a);
    at_ms(20);
    expect_op(a, STORE_ACQUIRE);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    answer_refused(a, HF_UNREACHABLE);
    expect_op(a, STORE_RELEASE);
}

/* ---- Refused ------------------------------------------------------------------------------ */

STORY(a_try_that_finds_the_lock_busy_leaves_nothing_behind) {
    struct actor *a = acquire("x", TRY);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->flags, 0);
    answer_busy(a, 5000, 0);
    expect_acquired(a, HF_BUSY);
    expect_over(a);
    expect_nothing();
}

STORY(a_try_waits_for_its_answer_however_long_that_takes) {
    struct actor *a = acquire("x", TRY);
    expect_op(a, STORE_ACQUIRE);
    at_ms(20000);
    expect_nothing();
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
    expect_left_ms(a, VALID_MS - 20000);
}

STORY(a_refusal_is_reported_with_its_particulars_and_nothing_is_released) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_WRONG_KIND, "it is a read/write lock");
    expect_acquired(a, HF_WRONG_KIND);
    CHECK_EQ_STR(a->text, "it is a read/write lock");
    expect_over(a);
    expect_nothing();
}

/* ---- A store that is away ------------------------------------------------------------------- */

STORY(a_try_fails_at_once_if_the_store_cannot_be_reached) {
    struct actor *a = acquire("x", TRY);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    expect_acquired(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection refused");
    expect_over(a);
}

/* Asks whenever it is due, and each time the store cannot be reached. Ends with a request put out
 * or a result. */
static void is_away_until_ms(struct actor *a, int64_t ms) {
    for (int64_t due_us; a->acquiring && (due_us = engine_due_us(&story.engine)) <= ms * 1000;) {
        at_us(due_us);
        if (!a->acquiring)
            return;
        expect_op(a, STORE_ACQUIRE);
        answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    }
    if (a->acquiring)
        at_ms(ms);
}

STORY(who_may_wait_outlasts_a_store_that_is_away_from_the_start) {
    struct actor *a = acquire("x", for_ms(60000));
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, 50000);
    at_ms(51000);
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
}

STORY(a_wait_that_ends_while_the_store_is_away_fails_with_the_last_reason) {
    struct actor *a = acquire("x", for_ms(2000));
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, 1999);
    expect_nothing();
    is_away_until_ms(a, 2000);
    expect_acquired(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection refused");
    expect_over(a);
}

STORY(a_wait_that_ends_in_the_next_request_to_a_store_that_is_away_fails_in_the_same_way) {
    struct actor *a = acquire("x", for_ms(100));
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    at_ms(20);
    expect_op(a, STORE_ACQUIRE);
    at_ms(100);
    expect_acquired(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection refused");
    answer_done(a, 7); /* the store was back, too late */
    expect_op(a, STORE_RELEASE);
}

STORY(a_wait_for_a_store_that_is_away_ends_with_unknown_if_it_may_have_acted) {
    struct actor *a = acquire("x", for_ms(100));
    expect_op(a, STORE_ACQUIRE);
    answer_unknown_with(a, "no answer in 2 s");
    at_ms(20);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    at_us(engine_due_us(&story.engine));
    expect_op(a, STORE_ACQUIRE);
    at_ms(100);
    expect_acquired(a, HF_UNKNOWN);
    CHECK_EQ_STR(a->text, "connection refused");
    answer_refused(a, HF_UNREACHABLE);
    expect_op(a, STORE_RELEASE);
}

STORY(an_unlimited_wait_gives_up_on_a_store_that_stays_away) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, STORE_WAIT_MS - 1);
    expect_nothing();
    at_ms(STORE_WAIT_MS);
    expect_op(a, STORE_ACQUIRE); /* again at the very end */
    answer_refused_with(a, HF_UNREACHABLE, "connection timed out");
    expect_acquired(a, HF_UNREACHABLE);
    CHECK_EQ_STR(a->text, "connection timed out");
    expect_over(a);
}

STORY(an_unlimited_wait_gives_up_on_a_store_that_stays_silent) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    at_ms(STORE_WAIT_MS + 500);
    expect_nothing(); /* a request that the store still has is not given up */
    answer_unknown_with(a, "no answer");
    expect_acquired(a, HF_UNKNOWN);
    CHECK_EQ_STR(a->text, "no answer");
    expect_op(a, STORE_RELEASE);
}

STORY(an_unlimited_wait_has_no_limit_once_the_store_has_answered) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, 5000);
    at_ms(6000);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 30000, 0);
    at_ms(7000);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, 60000); /* it has been in the queue: no limit any more */
    at_ms(61000);
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
}

STORY(an_unlimited_wait_fails_at_once_if_a_store_that_is_away_gets_no_time) {
    story.engine.config.store_wait_us = 0;
    struct actor *unlimited = acquire("x", FOREVER), *limited = acquire("y", for_ms(1000));
    expect_op(unlimited, STORE_ACQUIRE);
    expect_op(limited, STORE_ACQUIRE);
    answer_refused(unlimited, HF_UNREACHABLE);
    answer_refused(limited, HF_UNREACHABLE);
    expect_acquired(unlimited, HF_UNREACHABLE);
    expect_nothing();
    at_ms(20);
    expect_op(limited, STORE_ACQUIRE);
}

STORY(a_wait_that_ends_while_the_store_has_gone_away_says_why) {
    struct actor *a = acquire("x", for_ms(1500));
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    at_ms(1000);
    expect_op(a, STORE_ACQUIRE);
    answer_refused_with(a, HF_UNREACHABLE, "connection refused");
    is_away_until_ms(a, 1500);
    expect_acquired(a, HF_TIMEOUT);
    CHECK_EQ_STR(a->text, "connection refused");
    expect_op(a, STORE_RELEASE);
}

STORY(who_waits_in_a_queue_outlasts_a_store_that_goes_away) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    for (int i = 0; i < 10; i++) {
        at_us(story.engine.now_us + 1000000);
        expect_op(a, STORE_ACQUIRE);
        answer_refused_with(a, HF_UNREACHABLE, "connection refused");
        expect_nothing();
    }
    at_us(story.engine.now_us + 1000000);
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, 7);
    expect_acquired(a, HF_OK);
}

/* ---- Giving up ---------------------------------------------------------------------------- */

STORY(a_waiter_that_is_cancelled_withdraws) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    at_ms(100);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    expect_op(a, STORE_RELEASE);
    expect_nothing();
    answer_released(a);
    expect_over(a);
}

STORY(a_cancel_while_the_request_is_in_flight_is_answered_at_once) {
    struct actor *granted_later = acquire("x", FOREVER), *queued_later = acquire("y", FOREVER);
    struct actor *refused_later = acquire("z", FOREVER);
    expect_op(granted_later, STORE_ACQUIRE);
    expect_op(queued_later, STORE_ACQUIRE);
    expect_op(refused_later, STORE_ACQUIRE);
    cancel(granted_later);
    cancel(queued_later);
    cancel(refused_later);
    expect_acquired(granted_later, HF_CANCELLED);
    expect_acquired(queued_later, HF_CANCELLED);
    expect_acquired(refused_later, HF_CANCELLED);
    expect_nothing();
    at_ms(10);
    answer_done(granted_later, 7);
    expect_op(granted_later, STORE_RELEASE);
    answer_queued(queued_later, 20000, 0);
    expect_op(queued_later, STORE_RELEASE);
    answer_refused(refused_later, HF_STORE_FULL);
    expect_over(refused_later);
    expect_nothing();
}

STORY(a_wake_up_does_not_revive_a_cancelled_acquire) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    wake(a);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    wake(a);
    answer_queued(a, 20000, 0);
    expect_op(a, STORE_RELEASE);
    wake(a);
    expect_nothing();
}

STORY(a_waiter_whose_time_is_up_withdraws) {
    struct actor *a = acquire("x", for_ms(2500));
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    at_ms(1000);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 19000, 0);
    at_ms(2000);
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 18000, 0);
    at_us(2499999);
    expect_nothing();
    at_ms(2500);
    expect_acquired(a, HF_TIMEOUT);
    expect_op(a, STORE_RELEASE);
}

STORY(a_timeout_while_the_request_is_in_flight_is_reported_at_once) {
    struct actor *a = acquire("x", for_ms(1200));
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    at_ms(1000);
    expect_op(a, STORE_ACQUIRE);
    at_ms(1200);
    expect_acquired(a, HF_TIMEOUT);
    expect_nothing();
    answer_done(a, 7); /* too late for the caller, who has left */
    expect_op(a, STORE_RELEASE);
}

STORY(a_waiter_that_slept_past_its_time_gives_up_and_does_not_ask_again) {
    struct actor *a = acquire("x", for_ms(2500));
    expect_op(a, STORE_ACQUIRE);
    answer_queued(a, 20000, 0);
    wakes_up_at_ms(60000);
    expect_acquired(a, HF_TIMEOUT);
    expect_op(a, STORE_RELEASE);
}

/* ---- Clocks and floors -------------------------------------------------------------------- */

STORY(a_holder_with_more_left_than_any_lease_is_a_clock_error) { /* not "busy" */
    struct actor *a = acquire("x", FOREVER), *b = acquire("y", TRY);
    expect_op(a, STORE_ACQUIRE);
    expect_op(b, STORE_ACQUIRE);
    answer_queued(a, 60001, 0);
    expect_acquired(a, HF_CLOCK);
    CHECK_EQ_STR(a->text,
                 "its holder's lease has 60 s left, and this client's max_lease is 60 s: either "
                 "the holder has a longer max_lease, which must be the same for all "
                 "clients, or a clock was set back");
    expect_op(a, STORE_RELEASE);
    answer_busy(b, 7200000, 0);
    expect_acquired(b, HF_CLOCK);
    CHECK_EQ_STR(b->text,
                 "its holder's lease has 7200 s left, and this client's max_lease is 60 s: either "
                 "the holder has a longer max_lease, which must be the same for all "
                 "clients, or a clock was set back");
    expect_over(b);
}

STORY(the_longest_lease_and_a_foreign_holder_are_no_clock_errors) {
    struct actor *longest = acquire("x", FOREVER), *foreign = acquire("y", FOREVER);
    struct actor *foreign_try = acquire("y", TRY);
    expect_op(longest, STORE_ACQUIRE);
    expect_op(foreign, STORE_ACQUIRE);
    expect_op(foreign_try, STORE_ACQUIRE);
    answer_queued(longest, 60000, 0);
    answer_queued(foreign, 7200000, STORE_FOREIGN);
    answer_busy(foreign_try, 7200000, STORE_FOREIGN);
    expect_acquired(foreign_try, HF_BUSY);
    expect_nothing();
}

STORY(the_floor_is_the_wall_clock) {
    at_ms(250);
    struct actor *a = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->floor, WALL_US + 250000);
}

STORY(the_floor_is_above_the_largest_token_seen_of_the_name) {
    struct actor *a = acquire("x", FOREVER), *b = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    expect_op(b, STORE_ACQUIRE);
    answer_done(a, WALL_US + 9000);
    expect_acquired(a, HF_OK);
    answer_done(b, 5);
    expect_acquired(b, HF_OK);
    struct actor *c = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(c, STORE_ACQUIRE)->floor, WALL_US + 9001);
}

STORY(a_high_token_of_one_name_is_no_floor_of_another) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    answer_done(a, STORE_TOKEN_LIMIT - 1000);
    expect_acquired(a, HF_OK);
    struct actor *b = acquire("y", FOREVER);
    CHECK_EQ_INT(expect_op(b, STORE_ACQUIRE)->floor, WALL_US);
    struct actor *c = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(c, STORE_ACQUIRE)->floor, STORE_TOKEN_LIMIT - 999);
}

static uint64_t floor_of(struct actor *a) {
    uint64_t floor = expect_op(a, STORE_ACQUIRE)->floor;
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    answer_busy(a, 0, 0);
    expect_over(a);
    return floor;
}

STORY(the_tokens_of_many_names_are_remembered_but_not_of_any_number) {
    enum { NAMES = 2 * ENGINE_SEEN_ROWS * ENGINE_SEEN_IN_ROW, RECENT = 100 };
    static char names[NAMES][8];
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        struct actor *a = acquire(names[i], FOREVER);
        expect_op(a, STORE_ACQUIRE);
        answer_done(a, WALL_US + (uint64_t)i);
        expect_acquired(a, HF_OK);
        release_without_waiting(a);
        expect_op(a, STORE_RELEASE);
        answer_released(a);
        expect_over(a);
    }
    story.wall_us = 0;
    at_ms(1);
    for (int i = NAMES - RECENT; i < NAMES; i++)
        CHECK_EQ_INT(floor_of(acquire(names[i], FOREVER)), WALL_US + i + 1);
    for (int i = 0; i < 10; i++)
        CHECK_EQ_INT(floor_of(acquire(names[i], FOREVER)), 1000); /* the wall clock */
}

STORY(a_token_of_a_cancelled_acquire_raises_the_floor) {
    struct actor *a = acquire("x", FOREVER);
    expect_op(a, STORE_ACQUIRE);
    cancel(a);
    expect_acquired(a, HF_CANCELLED);
    answer_done(a, WALL_US + 9000);
    expect_op(a, STORE_RELEASE);
    struct actor *b = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(b, STORE_ACQUIRE)->floor, WALL_US + 9001);
}

STORY(a_wall_clock_that_goes_back_does_not_take_the_floor_along) {
    struct actor *a = acquire("x", FOREVER);
    uint64_t floor = expect_op(a, STORE_ACQUIRE)->floor;
    answer_done(a, floor);
    expect_acquired(a, HF_OK);
    story.wall_us = WALL_US - 86400000000;
    at_ms(1);
    struct actor *b = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(b, STORE_ACQUIRE)->floor, floor + 1);
}

STORY(a_wall_clock_before_the_epoch_is_no_floor) {
    story.wall_us = -5000;
    at_ms(1);
    struct actor *a = acquire("x", FOREVER);
    CHECK_EQ_INT(expect_op(a, STORE_ACQUIRE)->floor, 1);
}

STORY(time_that_goes_back_stands_still) {
    at_ms(1000);
    struct actor *a = held("x");
    wakes_up_at_ms(400);
    CHECK_EQ_INT(story.engine.now_us, 1000000);
    expect_left_ms(a, VALID_MS);
    struct actor *b = acquire("y", for_ms(100));
    expect_op(b, STORE_ACQUIRE);
    at_ms(1099);
    expect_nothing();
    at_ms(1100);
    expect_acquired(b, HF_UNKNOWN);
}

STORY(each_attempt_has_an_id_of_its_own) {
    struct actor *a = acquire("x", FOREVER), *b = acquire("x", FOREVER);
    uint64_t seq = expect_op(a, STORE_ACQUIRE)->seq;
    CHECK(expect_op(b, STORE_ACQUIRE)->seq != seq);
}
