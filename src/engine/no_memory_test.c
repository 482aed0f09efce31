/* The engine without memory. A scenario that contains everything that allocates runs twice for each
 * of its allocations: once only this allocation fails, and once this one and all after it fail.
 * Each run must end in a clear result, with nothing leaked and nothing forgotten. */
#include "engine/story_test.h"

enum { HOLDS = 40 };

static int result_of(struct actor *actor, enum request_type type) {
    struct told *told = &actor->told[type];
    REQUIRE(told->read < told->count, "there is no result");
    return told->results[told->read++];
}

/* Forty holds, so that the heap and the maps grow. A hold for which there is no memory is
 * skipped. */
static size_t acquire_many(struct actor *ret_actors[HOLDS]) {
    size_t count = 0;
    for (int i = 0; i < HOLDS; i++) {
        struct actor *actor = make("x");
        actor->hold->reentry = &scene_of(actor->hold)->reentry;
        int r = story_go(actor, FOREVER, 0);
        REQUIRE(r == HF_OK || r == HF_NO_MEMORY, "a strange error: %d", r);
        if (r < 0)
            continue;
        expect_op(actor, STORE_ACQUIRE);
        answer_done(actor, 7);
        expect_acquired(actor, HF_OK);
        ret_actors[count++] = actor;
    }
    return count;
}

static void refuse_with_texts(void) {
    struct actor *late = make("y"), *ahead = make("z");
    if (story_go(late, FOREVER, VALID_MS * INT64_C(1000) + 1) == HF_OK) {
        expect_op(late, STORE_ACQUIRE);
        answer_done(late, 8);
        expect_acquired(late, HF_SHORT);
        expect_op(late, STORE_RELEASE);
        answer_released(late);
    }
    if (story_go(ahead, TRY, 0) == HF_OK) {
        expect_op(ahead, STORE_ACQUIRE);
        answer_busy(ahead, 100000, 0);
        expect_acquired(ahead, HF_CLOCK);
    }
}

static void renew_by_hand(struct actor *actor) {
    renew(actor, LEASE_MS);
    if (!list_empty(&story.fresh))
        HERE(complete(expect_renewal(1), STORE_REFUSED, HF_DENIED, "no"));
    int r = result_of(actor, REQUEST_RENEW);
    REQUIRE(r == HF_DENIED || r == HF_NO_MEMORY, "a strange error: %d", r);
    expect_state(actor, HOLD_SUSPECT);
}

/* The renewals at a third of the lease, until every hold has been renewed. */
static void renew_many(struct actor *const *holders, size_t count) {
    at_ms(100);
    HERE(say_yes_to_all(&story.fresh)); /* the one that was tried by hand */
    at_ms(THIRD_MS);
    fail_pause(); /* there is memory again */
    at_ms(THIRD_MS + 5000);
    HERE(say_yes_to_all(&story.fresh));
    for (size_t i = 0; i < count; i++) {
        expect_state(holders[i], HOLD_HELD);
        CHECK(engine_left_us(&story.engine, holders[i]->hold) >= (VALID_MS - 5000) * 1000);
    }
}

static void scenario(void) {
    struct actor *holders[HOLDS];
    story_begin();
    size_t count = acquire_many(holders);
    refuse_with_texts();
    if (count)
        renew_by_hand(holders[0]);
    renew_many(holders, count);
    for (size_t i = 0; i < count; i++) {
        release(holders[i]);
        expect_op(holders[i], STORE_RELEASE);
        answer_released(holders[i]);
        expect_released(holders[i], HF_OK);
    }
    expect_nothing();
    CHECK_EQ_INT(story.engine.hold_count, 0);
    story_end();
}

TEST(failed_allocations_are_reported_and_leave_nothing_behind) {
    fail_at_every_index(scenario);
}

STORY(without_memory_nothing_is_acquired) {
    fail_from_to(0, FAIL_TO_THE_END);
    struct actor *a = make("x");
    CHECK_EQ_INT(story_go(a, FOREVER, 0), HF_NO_MEMORY);
    expect_nothing();
}

STORY(without_memory_renewals_are_tried_again_until_the_deadline) {
    struct actor *a = held("x");
    fail_from_to(0, FAIL_TO_THE_END);
    at_ms(VALID_MS - 1);
    CHECK(fail_calls() > 8);
    CHECK(fail_calls() < 40);
    expect_state(a, HOLD_SUSPECT);
    at_ms(VALID_MS);
    expect_lost(a);
}

STORY(a_renewal_without_memory_is_not_retried_at_once) {
    struct actor *a = held("x");
    fail_from_to(0, FAIL_TO_THE_END);
    at_ms(THIRD_MS);
    CHECK_EQ_INT(fail_calls(), 1);
    expect_state(a, HOLD_SUSPECT);
    expect_left_ms(a, VALID_MS - THIRD_MS);
}
