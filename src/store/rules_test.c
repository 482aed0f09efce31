/* The rule for tokens, one clause after the other, and what a kind is called. */
#include "check.h"

#include "store/store.h"

#define DAY_US STORE_FLOOR_AHEAD_US
#define NOW_US INT64_C(1700000000000000)

struct question {
    uint64_t counter, floor, base;
    bool repeats;
    int64_t server_us;
};

static char *text;

static int ask(const struct question *q, uint64_t *ret_token) {
    return store_next_token(q->counter, q->repeats, q->floor, q->base, q->server_us, ret_token,
                            &text);
}

/* The token, which must be granted. */
static uint64_t token(struct question q) {
    uint64_t got = 0;
    CHECK_EQ_INT(ask(&q, &got), HF_OK);
    CHECK(!text);
    return got;
}

static void check_refused(struct question q, int code, const char *expected) {
    uint64_t got = 77;
    CHECK_EQ_INT(ask(&q, &got), code);
    CHECK_EQ_STR(text, expected);
    CHECK_EQ_INT(got, 77);
    free(text);
    text = NULL;
}

#define ASK(...) ((struct question){.server_us = NOW_US, __VA_ARGS__})

TEST(a_token_is_one_more_than_the_counter) {
    CHECK_EQ_INT(token(ASK(.counter = 41)), 42);
    CHECK_EQ_INT(token(ASK(.counter = 0)), 1);
}

TEST(a_token_is_not_below_the_floor) {
    CHECK_EQ_INT(token(ASK(.counter = 41, .floor = 42)), 42);
    CHECK_EQ_INT(token(ASK(.counter = 41, .floor = 1000)), 1000);
    CHECK_EQ_INT(token(ASK(.counter = 41, .floor = 10)), 42);
    CHECK_EQ_INT(token(ASK(.floor = NOW_US)), NOW_US);
}

TEST(a_token_is_not_below_the_base) {
    CHECK_EQ_INT(token(ASK(.counter = 41, .base = 5000)), 5000);
    CHECK_EQ_INT(token(ASK(.counter = 41, .base = 10)), 42);
    CHECK_EQ_INT(token(ASK(.floor = 600, .base = 500)), 600);
}

TEST(a_floor_up_to_a_day_ahead_is_taken_as_it_is) {
    CHECK_EQ_INT(token(ASK(.floor = NOW_US + DAY_US)), NOW_US + DAY_US);
    CHECK_EQ_INT(token(ASK(.counter = 5, .floor = NOW_US + DAY_US)), NOW_US + DAY_US);
}

TEST(a_floor_further_ahead_is_cut_where_there_is_a_counter) {
    CHECK_EQ_INT(token(ASK(.counter = 5, .floor = NOW_US + DAY_US + 1)), NOW_US + DAY_US);
    CHECK_EQ_INT(token(ASK(.counter = 5, .floor = UINT64_MAX)), NOW_US + DAY_US);
    CHECK_EQ_INT(token(ASK(.counter = NOW_US + 2 * DAY_US, .floor = UINT64_MAX)),
                 NOW_US + 2 * DAY_US + 1);
}

TEST(a_floor_further_ahead_is_a_clock_error_where_there_is_none) {
    check_refused(
        ASK(.floor = NOW_US + DAY_US + 1), HF_CLOCK,
        "the client's clock proposes the token 1700086400000001, more than a day ahead of "
        "the store's clock");
}

TEST(a_day_ahead_counts_from_the_base_if_that_is_ahead_of_the_clock) {
    uint64_t base = NOW_US + 10 * DAY_US;
    CHECK_EQ_INT(token(ASK(.floor = base + 1, .base = base)), base + 1);
    CHECK_EQ_INT(token(ASK(.counter = 5, .floor = UINT64_MAX, .base = base)), base + DAY_US);
}

TEST(a_clock_before_the_epoch_counts_as_the_epoch) {
    CHECK_EQ_INT(token((struct question){.counter = 5, .floor = UINT64_MAX, .server_us = -1}),
                 DAY_US);
}

TEST(a_repeat_has_its_token_again_or_a_larger_floor) {
    CHECK_EQ_INT(token(ASK(.counter = 42, .repeats = true)), 42);
    CHECK_EQ_INT(token(ASK(.counter = 42, .repeats = true, .floor = 50)), 50);
    CHECK_EQ_INT(token(ASK(.counter = 1, .repeats = true, .floor = UINT64_MAX)), NOW_US + DAY_US);
}

TEST(no_token_reaches_two_to_the_53) { /* row 44 */
    uint64_t limit = UINT64_C(9007199254740992);
    CHECK_EQ_INT(token(ASK(.counter = limit - 2)), limit - 1);
    check_refused(ASK(.counter = limit - 1), HF_CLOCK,
                  "the name has used up its tokens, at 9007199254740992");
    check_refused(ASK(.counter = 5, .base = limit), HF_CLOCK,
                  "the name has used up its tokens, at 9007199254740992");
}

static void check_described(enum store_kind kind, uint32_t capacity, const char *expected) {
    char *described = store_describe_kind(kind, capacity);
    CHECK_EQ_STR(described, expected);
    free(described);
}

TEST(a_kind_is_described_in_words) {
    check_described(STORE_LOCK, STORE_ALL, "it is a lock");
    check_described(STORE_PERMITS, 5, "it is permits out of 5");
}
