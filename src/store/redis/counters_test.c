/* Counters: what is sent, and what each answer means. (The script itself: sim/redis.) */
#include "check.h"
#include "support/fake_redis.h"

#define OK ":1\r\n"

enum { S = 1000000 };

static struct rig rig;
static struct asked a;
static struct fake_stream *server;

static void begin(void) {
    rig_open(&rig, "redis://localhost");
    ask_release(&rig, &a, "first");
    server = fake_last(rig.world);
    fake_accept(server);
    CHECK_EQ_STR(next_command(server), "release holdfast:first");
    fake_answer_text(server, OK);
    asked_clear(&a);
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
}

/* The outcome of an ADD that is answered like this. */
static enum store_outcome answer(const char *text) {
    char bulk[100];
    snprintf(bulk, sizeof(bulk), "$%zu\r\n%s\r\n", strlen(text), text);
    asked_clear(&a);
    ask_count(&rig, &a, "n", STORE_COUNT_ADD, 1);
    next_command(server);
    fake_answer_text(server, bulk);
    CHECK_EQ_INT(a.completions, 1);
    return a.op.outcome;
}

TEST(a_count_sends_what_the_script_needs) {
    static const char *const expected[] = {
        "2",
        "holdfast:n{t}",
        "{t}.a.holdfast:n{t}.00112233445566778899aabbccddeeff",
        "18446744073709551615",
        "cas",
        "-9223372036854775808",
        "9223372036854775807",
        "2",
        "120000",
    };
    static struct seen seen;
    begin();
    a = (struct asked){.op = {.type = STORE_COUNT, .name = "n{t}", .kind = STORE_COUNT_CAS}};
    a.op.seq = UINT64_MAX;
    a.op.number = INT64_MIN;
    a.op.expected = INT64_MAX;
    a.op.lease_us = 1001; /* rounded up, so that it does not end too early */
    rig_submit(&rig, &a);
    fake_settle(rig.world);
    CHECK(next_seen(server, &seen));
    CHECK_EQ_INT(seen.count, 2 + sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 2; i < seen.count; i++)
        CHECK_EQ_STR(seen.arguments[i], expected[i - 2]);
    over();
}

TEST(a_counter_that_must_not_be_there_is_sent_as_such) {
    static struct seen seen;
    begin();
    a = (struct asked){.op = {.type = STORE_COUNT, .name = "n", .kind = STORE_COUNT_CAS}};
    a.op.flags = STORE_ABSENT;
    rig_submit(&rig, &a);
    fake_settle(rig.world);
    CHECK(next_seen(server, &seen));
    CHECK_EQ_STR(seen.arguments[4], "{holdfast:n}.a.holdfast:n.00112233445566778899aabbccddeeff");
    CHECK_EQ_STR(seen.arguments[8], "-");
    over();
}

TEST(an_answer_has_the_value_and_what_is_left_of_its_life) {
    begin();
    CHECK_EQ_INT(answer("done 9223372036854775807 1500"), STORE_DONE);
    CHECK_EQ_INT(a.op.value, INT64_MAX);
    CHECK_EQ_INT(a.op.life_us, 1500000);
    CHECK_EQ_INT(a.op.flags, 0);
    CHECK_EQ_INT(answer("done -9223372036854775808 -1"), STORE_DONE);
    CHECK_EQ_INT(a.op.value, INT64_MIN);
    CHECK_EQ_INT(a.op.life_us, -1);
    CHECK_EQ_INT(answer("done - -2"), STORE_DONE);
    CHECK_EQ_INT(a.op.flags, STORE_ABSENT);
    CHECK_EQ_INT(answer("mismatch 7 -1"), STORE_DONE);
    CHECK_EQ_INT(a.op.flags, STORE_MISMATCH);
    CHECK_EQ_INT(a.op.value, 7);
    CHECK_EQ_INT(answer("mismatch - -2"), STORE_DONE);
    CHECK_EQ_INT(a.op.flags, STORE_MISMATCH | STORE_ABSENT);
    over();
}

TEST(refusals_of_the_script_have_their_reasons) {
    begin();
    CHECK_EQ_INT(answer("range"), STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_RANGE);
    CHECK_EQ_INT(answer("kind"), STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_WRONG_KIND);
    CHECK(a.op.text && *a.op.text);
    over();
}

/* It is not known what such a server did, nor, after "late", what became of earlier sends of the
 * request. */
TEST(other_answers_are_not_taken_for_an_outcome) {
    static const char *const answers[] = {"late",
                                          "",
                                          "done",
                                          "done ",
                                          "done 1",
                                          "done x -1",
                                          "done 1 x",
                                          "done 1 -1 1",
                                          "ranges",
                                          "done 9223372036854775808 -1",
                                          "done 1 9223372036854775807",
                                          "mismatch",
                                          "5"};
    begin();
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (answer(answers[i]) != STORE_UNKNOWN)
            test_fail(__FILE__, __LINE__, "\"%s\" is outcome %d", answers[i], a.op.outcome);
    }
    over();
}

TEST(a_count_without_an_answer_is_sent_again_as_it_was) {
    static struct seen seen;
    char first[200];
    begin();
    ask_count(&rig, &a, "n", STORE_COUNT_ADD, 1);
    CHECK(next_seen(server, &seen));
    snprintf(first, sizeof(first), "%s %s %s", seen.arguments[1], seen.arguments[4],
             seen.arguments[5]);
    fake_hang_up(server, "reset");
    fake_pass_us(rig.world, S);
    server = fake_last(rig.world);
    fake_accept(server);
    fake_settle(rig.world);
    CHECK(next_seen(server, &seen));
    char again[200];
    snprintf(again, sizeof(again), "%s %s %s", seen.arguments[1], seen.arguments[4],
             seen.arguments[5]);
    CHECK_EQ_STR(again, first);
    /* The first may have been done, so an error no longer proves that nothing was. */
    fake_answer_text(server, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

/* ---- Replicas ---- */

static void begin_with_replicas(void) {
    rig_open(&rig, "redis+cluster://seed?plaintext=yes&wait_replicas=2&wait_timeout=300");
    fake_serve(rig.world, rig_serve, &rig);
    ask_release(&rig, &a, "n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    asked_clear(&a);
    server = fake_last(rig.world);
    fake_serve(rig.world, NULL, NULL);
}

static void count_and_wait(const char *replicas) {
    asked_clear(&a);
    ask_count(&rig, &a, "n", STORE_COUNT_ADD, 1);
    CHECK_EQ_STR(next_command(server), "count holdfast:n");
    fake_answer_text(server, "$9\r\ndone 5 -1\r\n");
    fake_settle(rig.world);
    CHECK_EQ_INT(a.completions, 0);
    CHECK_EQ_STR(next_command(server), "WAIT 2 300");
    fake_answer_text(server, replicas);
    CHECK_EQ_INT(a.completions, 1);
}

TEST(a_count_that_too_few_replicas_have_is_not_known_to_last) {
    begin_with_replicas();
    count_and_wait(":2\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(a.op.value, 5);
    count_and_wait(":1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(a.op.text, "1 of the 2 replicas that wait_replicas asks for had it after 300 ms");
    count_and_wait("-ERR no\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    asked_clear(&a);
    ask_count(&rig, &a, "n", STORE_COUNT_GET, 0); /* changes nothing, so nobody waits */
    next_command(server);
    fake_answer_text(server, "$9\r\ndone 5 -1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}
