/* What each operation makes of a counter, and how numbers and answers are written. */
#include "check.h"

#include "store/counts.h"

#include <string.h>

static const struct counts_number none;

static struct counts_number some(int64_t value) {
    return (struct counts_number){true, value};
}

static struct store_op op(enum store_count kind, int64_t number) {
    return (struct store_op){
        .type = STORE_COUNT, .kind = (uint8_t)kind, .number = number, .seq = 7};
}

static struct store_op cas(struct counts_number expected, int64_t number) {
    struct store_op made = op(STORE_COUNT_CAS, number);
    made.expected = expected.value;
    made.flags = expected.exists ? 0 : STORE_ABSENT;
    return made;
}

/* Checks the step: what there was, what there is then, what is reported, with which flags. */
static void check_step(struct store_op asked, struct counts_number before,
                       struct counts_number after, struct counts_number reported, unsigned flags,
                       int reason) {
    struct counts_number left;
    struct counts_answer answer = counts_step(&asked, before, &left);
    CHECK_EQ_INT(left.exists, after.exists);
    CHECK_EQ_INT(left.value, after.value);
    CHECK_EQ_INT(answer.value, reported.value);
    CHECK_EQ_INT(answer.flags, flags | (reported.exists ? 0 : STORE_ABSENT));
    CHECK_EQ_INT(answer.reason, reason);
    CHECK_EQ_INT(answer.seq, 7);
    CHECK_EQ_INT(answer.lease, 0);
}

TEST(a_read_changes_nothing) {
    check_step(op(STORE_COUNT_GET, 0), some(5), some(5), some(5), 0, 0);
    check_step(op(STORE_COUNT_GET, 0), none, none, none, 0, 0);
}

TEST(what_is_added_is_added_to_0_if_there_is_no_counter) {
    check_step(op(STORE_COUNT_ADD, 3), some(5), some(8), some(8), 0, 0);
    check_step(op(STORE_COUNT_ADD, -3), none, some(-3), some(-3), 0, 0);
}

TEST(a_sum_that_does_not_fit_changes_nothing) {
    check_step(op(STORE_COUNT_ADD, 1), some(INT64_MAX), some(INT64_MAX), some(INT64_MAX), 0,
               HF_RANGE);
    check_step(op(STORE_COUNT_ADD, -1), some(INT64_MIN), some(INT64_MIN), some(INT64_MIN), 0,
               HF_RANGE);
}

TEST(a_swap_and_a_removal_report_what_was_there) {
    check_step(op(STORE_COUNT_SWAP, 9), some(5), some(9), some(5), 0, 0);
    check_step(op(STORE_COUNT_SWAP, 9), none, some(9), none, 0, 0);
    check_step(op(STORE_COUNT_REMOVE, 0), some(5), none, some(5), 0, 0);
    check_step(op(STORE_COUNT_REMOVE, 0), none, none, none, 0, 0);
}

TEST(a_compare_and_set_needs_what_it_expects) {
    check_step(cas(some(5), 9), some(5), some(9), some(9), 0, 0);
    check_step(cas(some(4), 9), some(5), some(5), some(5), STORE_MISMATCH, 0);
    check_step(cas(some(0), 9), none, none, none, STORE_MISMATCH, 0);
    check_step(cas(none, 9), none, some(9), some(9), 0, 0);
    check_step(cas(none, 9), some(0), some(0), some(0), STORE_MISMATCH, 0);
}

TEST(numbers_are_read_as_they_are_written) {
    const int64_t numbers[] = {0, 1, -1, 42, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char text[COUNTS_NUMBER_SIZE];
        int64_t value;
        counts_write_number(numbers[i], text);
        CHECK(counts_read_number(text, strlen(text), &value));
        CHECK_EQ_INT(value, numbers[i]);
    }
}

TEST(nothing_else_is_a_number) {
    const char *others[] = {"",
                            " 1",
                            "1 ",
                            "+1",
                            "01",
                            "-0",
                            "0x10",
                            "1a",
                            "a",
                            "-",
                            "1.0",
                            "9223372036854775808",
                            "-9223372036854775809",
                            "11111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        int64_t value = 77;
        CHECK(!counts_read_number(others[i], strlen(others[i]), &value));
        CHECK_EQ_INT(value, 77);
    }
    int64_t value;
    CHECK(!counts_read_number("1\0", 2, &value));
}

TEST(answers_are_read_as_they_are_written) {
    const struct counts_answer answers[] = {
        {.seq = 1},
        {UINT64_MAX, HF_RANGE, STORE_ABSENT | STORE_MISMATCH, INT64_MIN, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct counts_answer answer;
        char text[COUNTS_ANSWER_SIZE];
        counts_write_answer(&answers[i], text);
        CHECK(counts_read_answer(text, strlen(text), &answer));
        CHECK_EQ_INT(answer.seq, answers[i].seq);
        CHECK_EQ_INT(answer.reason, answers[i].reason);
        CHECK_EQ_INT(answer.flags, answers[i].flags);
        CHECK_EQ_INT(answer.value, answers[i].value);
        CHECK_EQ_INT(answer.lease, answers[i].lease);
        CHECK(!counts_read_answer("nothing", 7, &answer));
    }
}
