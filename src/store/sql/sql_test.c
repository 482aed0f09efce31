/* What a database's answers, as texts, mean; tested without a database. */
#include "store/sql/sql.h"

#include "check.h"
#include "support/failing.h"

static int completed;

static void count_completed(struct store_host *host, struct store_op *op) {
    (void)host, (void)op;
    completed++;
}

static struct store_host host = {.completed = count_completed};

static struct store_op answered(const char *word, const char *number, const char *is_head) {
    const char *values[SQL_ANSWER_COLUMNS] = {word, number, is_head, "3", "5"};
    struct store_op op = {.type = STORE_ACQUIRE, .floor = 7};
    list_init(&op.link);
    completed = 0;
    CHECK(sql_acquire_answered(&host, &op, values));
    CHECK_EQ_INT(completed, 1);
    return op;
}

TEST(each_word_is_an_outcome) {
    struct store_op op = answered("done", "9007199254740991", "");
    CHECK_EQ_INT(op.outcome, STORE_DONE);
    CHECK_EQ_INT(op.token, 9007199254740991);
    op = answered("queued", "1500", "f");
    CHECK(op.outcome == STORE_QUEUED && op.left_us == 1500 && !(op.flags & STORE_HEAD));
    CHECK(answered("queued", "", "t").flags & STORE_HEAD);
    CHECK(answered("queued", "0", "1").flags & STORE_HEAD);
    op = answered("busy", "20", "");
    CHECK(op.outcome == STORE_REFUSED && op.reason == HF_BUSY && op.left_us == 20);
}

static void refused(const char *word, int reason, const char *text) {
    struct store_op op = answered(word, "42", "");
    CHECK_EQ_INT(op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, reason);
    CHECK(op.text && strstr(op.text, text));
    free(op.text);
}

TEST(a_refusal_says_why) {
    refused("kind", HF_WRONG_KIND, "5");
    refused("clock", HF_CLOCK, "the token 7");
    refused("spent", HF_CLOCK, "at 42");
}

TEST(an_unknown_word_completes_nothing) {
    const char *values[SQL_ANSWER_COLUMNS] = {"perhaps", "", "", "", ""};
    struct store_op op = {.type = STORE_ACQUIRE};
    completed = 0;
    CHECK(!sql_acquire_answered(&host, &op, values));
    CHECK(!sql_count_answered(&host, &op, values));
    CHECK_EQ_INT(completed, 0);
}

static struct store_op counted(const char *word, const char *value, const char *left_us) {
    const char *values[SQL_COUNT_COLUMNS] = {word, value, left_us};
    struct store_op op = {.type = STORE_COUNT, .flags = STORE_ABSENT};
    list_init(&op.link);
    completed = 0;
    CHECK(sql_count_answered(&host, &op, values));
    CHECK_EQ_INT(completed, 1);
    return op;
}

TEST(each_word_is_an_outcome_of_a_count) {
    struct store_op op = counted("done", "-9223372036854775808", "1500");
    CHECK(op.outcome == STORE_DONE && op.value == INT64_MIN && op.life_us == 1500 && !op.flags);
    op = counted("done", "", "-1");
    CHECK(op.outcome == STORE_DONE && op.flags == STORE_ABSENT && op.life_us == -1);
    op = counted("mismatch", "0", "-1");
    CHECK(op.outcome == STORE_DONE && op.flags == STORE_MISMATCH && op.value == 0);
    CHECK_EQ_INT(counted("mismatch", "", "-1").flags, STORE_MISMATCH | STORE_ABSENT);
    op = counted("range", "9", "-1");
    CHECK(op.outcome == STORE_REFUSED && op.reason == HF_RANGE);
    CHECK_EQ_INT(counted("late", "", "").outcome, STORE_UNKNOWN);
}

TEST(only_holds_that_the_database_names_were_renewed) {
    struct store_op holds[3] = {{.seq = 1}, {.seq = 2}, {.seq = 3}};
    struct store_renewal renewals[4] = {
        {.of = &holds[0], .lease_us = 10}, {.of = NULL}, {.of = &holds[1]}, {.of = &holds[2]}};
    struct store_op op = {.type = STORE_RENEW, .renewals = renewals, .renewal_count = 4};
    list_init(&op.link);
    struct sql_renewing *renewing = sql_renewing_new(&op);
    CHECK(renewing && renewing->renewals[0].lease_us == 10);
    sql_renewing_note(renewing, 1);
    sql_renewing_note(renewing, 3);
    sql_renewing_note(renewing, 99);
    sql_renewing_finish(&host, &op, renewing);
    CHECK_EQ_INT(op.outcome, STORE_DONE);
    CHECK_EQ_INT(renewals[0].outcome, STORE_DONE);
    CHECK_EQ_INT(renewals[1].outcome, 0);
    CHECK_EQ_INT(renewals[2].outcome, STORE_NOT_YOURS);
    CHECK_EQ_INT(renewals[3].outcome, STORE_DONE);
}

static const char *const holder[SQL_LOOK_COLUMNS] = {
    "a",    "2", "5",  "77", "1000", "70", "jo", "why",  "00112233-4455-6677-8899-AABBccddeeff",
    "1",    "1", "77", "5",  "10",   "20", "30", "host", "command",
    "label"};

static bool add(struct hf_locks *locks, const char *name, const char *client, const char *state) {
    const char *values[SQL_LOOK_COLUMNS];
    memcpy(values, holder, sizeof(values));
    values[SQL_LOCK_NAME] = name;
    values[SQL_CLIENT] = client;
    values[SQL_STATE] = state;
    return sql_add_row(locks, values);
}

static void add_rows(void) {
    fail_pause();
    struct hf_locks *locks = locks_new();
    fail_resume();
    bool ok = add(locks, "a", holder[SQL_CLIENT], "1") && add(locks, "a", "", "") &&
              add(locks, "a", "ff", "3") && add(locks, "b", "", "");
    CHECK(ok == !fail_happened());
    if (ok) {
        CHECK_EQ_INT(hf_locks_count(locks), 2);
        const hf_lock_info *a = hf_locks_at(locks, 0);
        CHECK(a->holder_count == 1 && a->waiter_count == 1);
        CHECK_EQ_STR(a->holders[0]->command, "command");
        CHECK_EQ_STR(a->broken_by, "jo");
        CHECK_EQ_INT(a->broken_token, 70);
        CHECK_EQ_INT(hf_locks_at(locks, 1)->holder_count, 0);
    }
    hf_locks_free(locks);
}

TEST(rows_are_locks_and_their_parties) {
    fail_at_every_index(add_rows);
}

static void check_end(const char *prefix, const char *end) {
    char text[16];
    snprintf(text, sizeof(text), "%s", prefix);
    sql_end_of_prefix(text);
    CHECK_EQ_STR(text, end);
}

TEST(the_end_of_a_prefix_sorts_after_all_that_begin_with_it) {
    check_end("jobs/", "jobs0");
    check_end("a\xff", "b");
    check_end("\xff\xff", "");
    check_end("", "");
    check_end("\x7f", "\x80");
}
