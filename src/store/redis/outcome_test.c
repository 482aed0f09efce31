/* What answers become: an outcome for each operation, and never a guess. (FAILURES.md: 15, 44) */
#include "check.h"
#include "store/locks.h"
#include "support/fake_redis.h"

#define CHECK_COMMAND(stream, expected) CHECK_EQ_STR(next_command(stream), expected)
#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"
#define OWNER "00112233445566778899aabbccddeeff-1"
/* What look.lua says about a lock that is held exclusively, with this token. */
#define LOOK(token)                                                                    \
    "*6\r\n$16\r\n1700000000000000\r\n$34\r\n" OWNER "\r\n:5000\r\n*6\r\n$1\r\n" token \
    "\r\n$34\r\n" OWNER                                                                \
    "\r\n$1\r\nm\r\n$33\r\n1 1700000000000000 7 4 4 heretest\r\n$-1\r\n$-1\r\n*0\r\n*0\r\n"

enum { S = 1000000 };

static struct rig rig;
static struct asked a, b, c;
static struct fake_stream *server;

/* Every test has a store whose first connection is open. */
static void begin(void) {
    rig_open(&rig, "redis://localhost");
    ask_release(&rig, &a, "first");
    server = fake_last(rig.world);
    fake_accept(server);
    CHECK_COMMAND(server, "release holdfast:first");
    fake_answer_text(server, ":1\r\n");
    asked_clear(&a);
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
    asked_clear(&c);
}

/* ---- Errors ---- */

static const struct {
    const char *error;
    int reason;
} errors[] = {
    {"WRONGTYPE Operation against a key holding the wrong kind of value", HF_BAD_STORE},
    {"OOM command not allowed when used memory > 'maxmemory'.", HF_STORE_FULL},
    {"NOPERM this user has no permissions to run the 'evalsha' command", HF_DENIED},
    {"NOAUTH Authentication required.", HF_DENIED},
    {"ERR Protocol error: unauthenticated multibulk length", HF_DENIED},
    {"ERR DB index is out of range", HF_BAD_URL},
    {"WRONGPASS invalid username-password pair or user is disabled.", HF_DENIED},
    {"DENIED Redis is running in protected mode", HF_DENIED},
    {"READONLY You can't write against a read only replica.", HF_UNREACHABLE},
    {"LOADING Redis is loading the dataset in memory", HF_UNREACHABLE},
    {"BUSY Redis is busy running a script.", HF_UNREACHABLE},
    {"MISCONF Redis is configured to save RDB snapshots", HF_UNREACHABLE},
    {"NOREPLICAS Not enough good replicas to write.", HF_UNREACHABLE},
    {"MASTERDOWN Link with MASTER is down", HF_UNREACHABLE},
    {"CLUSTERDOWN The cluster is down", HF_UNREACHABLE},
    {"ERR max number of clients reached", HF_UNREACHABLE},
    {"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: "
     "-OOM command not allowed when used memory > 'maxmemory'.",
     HF_STORE_FULL}, /* as before 7.0 */
    {"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: "
     "-READONLY You can't write against a read only replica.",
     HF_UNREACHABLE},
    {"ERR unknown command 'EVALSHA'", 0}, /* 0: any */
    {"BUSYKEY Target key name already exists.", 0},
    {"MOVED 3999 127.0.0.1:6381", 0},
    {"", 0},
};

static void answer_error(size_t i) {
    char text[300];
    snprintf(text, sizeof(text), "-%s\r\n", errors[i].error);
    fake_answer_text(server, text);
}

/* Refused, for this reason, with words: certainly not done, and in particular not "not yours". */
static void check_error(const struct asked *asked, size_t i) {
    CHECK_EQ_INT(asked->completions, 1);
    if (asked->op.outcome != STORE_REFUSED)
        test_fail(__FILE__, __LINE__, "\"%s\" is outcome %d", errors[i].error, asked->op.outcome);
    if (errors[i].reason && asked->op.reason != errors[i].reason)
        test_fail(__FILE__, __LINE__, "\"%s\" is %s", errors[i].error,
                  hf_error_name(asked->op.reason));
    CHECK(asked->op.reason < 0 && asked->op.reason != HF_NOT_YOURS && asked->op.reason != HF_BUSY);
    CHECK(asked->op.text && *asked->op.text);
}

enum { ERRORS = sizeof(errors) / sizeof(errors[0]) };

TEST(every_error_refuses_an_acquire) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_acquire(&rig, &a, "x", STORE_WAIT);
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_a_release) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_release(&rig, &a, "x");
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_a_break) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_break(&rig, &a, "x", 5);
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_an_inspection) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_inspect(&rig, &a, "x");
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_a_count) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_a_renewal_and_ends_no_hold) {
    begin();
    make_acquire(&b, "x", 0);
    make_acquire(&c, "y", 0);
    make_share(&c);
    for (size_t i = 0; i < ERRORS; i++) {
        ask_renew(&rig, &a, (struct asked *[]){&b, &c}, 2);
        answer_error(i);
        answer_error(i);
        check_error(&a, i);
        CHECK_EQ_INT(a.renewals[0].outcome, STORE_REFUSED);
        CHECK_EQ_INT(a.renewals[1].outcome, STORE_REFUSED);
        asked_clear(&a);
    }
    over();
}

TEST(every_error_refuses_a_list) {
    begin();
    for (size_t i = 0; i < ERRORS; i++) {
        ask_list(&rig, &a, "", 10);
        answer_error(i);
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

/* A key that is not a lock (WRONGTYPE) is left out; any other error refuses the list. */
TEST(every_error_of_a_look_refuses_the_whole_list) {
    begin();
    for (size_t i = 1; i < ERRORS; i++) {
        ask_list(&rig, &a, "", 10);
        fake_answer_text(server,
                         "*2\r\n$1\r\n0\r\n*2\r\n$10\r\nholdfast:x\r\n$10\r\nholdfast:y\r\n");
        answer_error(i);
        CHECK_EQ_INT(a.completions, 0);
        fake_answer_text(server, LOOK("5"));
        check_error(&a, i);
        asked_clear(&a);
    }
    over();
}

/* ---- Acquire ---- */

static void answer_acquire(const char *text) {
    asked_clear(&a);
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    fake_answer_text(server, text);
    CHECK_EQ_INT(a.completions, 1);
}

TEST(an_acquire_sends_what_the_script_needs) {
    begin();
    static struct seen seen;
    rig.host.token_floor = 77;
    make_acquire(&a, "x{t}", STORE_WAIT | STORE_BARGE);
    make_share(&a);
    a.op.floor = 9007199254740991;
    a.op.seq = 0xabc;
    rig_submit(&rig, &a);
    fake_settle(rig.world);
    CHECK(next_seen(server, &seen));
    static const char *const expected[] = {"6",
                                           "holdfast:x{t}",
                                           "{t}.s.holdfast:x{t}",
                                           "{t}.q.holdfast:x{t}",
                                           "{t}.w.holdfast:x{t}",
                                           "{t}.h.holdfast:x{t}",
                                           "{t}.i.holdfast:x{t}",
                                           "00112233445566778899aabbccddeeff-abc",
                                           "30000",
                                           "15000",
                                           "9007199254740991",
                                           "77",
                                           "1",
                                           "p5",
                                           "5",
                                           "1",
                                           "7 4 4 heretesta label",
                                           "holdfast:@",
                                           "{holdfast:}.v"};
    CHECK_EQ_INT(seen.count, 2 + sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 2; i < seen.count; i++)
        CHECK_EQ_STR(seen.arguments[i], expected[i - 2]);
    over();
}

TEST(an_acquire_is_done_with_its_token) {
    begin();
    answer_acquire("*2\r\n$4\r\ndone\r\n$16\r\n9007199254740991\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(a.op.token, 9007199254740991);
    over();
}

TEST(a_place_in_the_queue_says_who_is_ahead_and_how_long) {
    begin();
    answer_acquire("*4\r\n$6\r\nqueued\r\n:1500\r\n:0\r\n:0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_QUEUED);
    CHECK_EQ_INT(a.op.left_us, 1500000);
    CHECK_EQ_INT(a.op.flags, STORE_WAIT | STORE_HEAD);
    answer_acquire("*4\r\n$6\r\nqueued\r\n:1500\r\n:1\r\n:3\r\n");
    CHECK_EQ_INT(a.op.flags, STORE_WAIT | STORE_FOREIGN);
    answer_acquire("*4\r\n$6\r\nqueued\r\n:-1\r\n:1\r\n:0\r\n"); /* it has no expiry */
    CHECK(a.op.left_us > 60 * S);
    over();
}

TEST(refusals_of_the_script_have_their_reasons) {
    begin();
    answer_acquire("*3\r\n$4\r\nbusy\r\n:20\r\n:1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_BUSY);
    CHECK_EQ_INT(a.op.left_us, 20000);
    CHECK(a.op.flags & STORE_FOREIGN);
    answer_acquire("*2\r\n$4\r\nkind\r\n$2\r\nrw\r\n");
    CHECK_EQ_INT(a.op.reason, HF_WRONG_KIND);
    CHECK_EQ_STR(a.op.text, "it is a lock");
    answer_acquire("*2\r\n$4\r\nkind\r\n$3\r\np12\r\n");
    CHECK_EQ_STR(a.op.text, "it is permits out of 12");
    answer_acquire("*2\r\n$5\r\nclock\r\n$16\r\n1700000000000000\r\n");
    CHECK_EQ_INT(a.op.reason, HF_CLOCK);
    answer_acquire("*2\r\n$5\r\nspent\r\n$16\r\n9007199254740992\r\n");
    CHECK_EQ_INT(a.op.reason, HF_CLOCK);
    over();
}

/* ---- Votes ---- */

static void begin_to_vote(void) {
    begin();
    rig_join(&rig, NULL);
    ask_vote(&rig, &a, STORE_GIVE, 0);
    fake_answer_text(server, ":1\r\n*3\r\n$4\r\ndone\r\n$2\r\n50\r\n$2\r\n77\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    static struct seen seen;
    while (next_seen(server, &seen)) {}
}

static void answer_vote(const char *text) {
    asked_clear(&a);
    ask_vote(&rig, &a, STORE_GIVE, 0);
    fake_answer_text(server, text);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
}

TEST(a_vote_says_which_server_gave_it) {
    begin_to_vote();
    CHECK_EQ_INT(a.op.token, 50);
    CHECK_EQ_INT(a.vote.node_id, 77);
    over();
}

TEST(each_type_of_vote_sends_its_token_where_the_script_looks_for_it) {
    static const struct {
        enum store_vote_type type;
        uint64_t token;
        const char *floor, *below, *mine;
    } cases[] = {{STORE_GIVE, 0, "0", "0", "0"},
                 {STORE_RAISE, 60, "60", "0", "1"},
                 {STORE_RETAKE, 60, "60", "60", "0"}};
    begin_to_vote();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct seen seen;
        ask_vote(&rig, &b, cases[i].type, cases[i].token);
        CHECK(next_seen(server, &seen));
        const char *const *arguments = seen.arguments + 3 + 7; /* behind the keys */
        CHECK_EQ_STR(arguments[2], cases[i].floor);
        CHECK_EQ_STR(arguments[3], cases[i].below);
        CHECK_EQ_STR(arguments[5], cases[i].mine);
        fake_answer_text(server, "*1\r\n$4\r\nlost\r\n");
        asked_clear(&b);
    }
    over();
}

TEST(refusals_of_a_vote_have_their_reasons) {
    begin_to_vote();
    answer_vote("*1\r\n$4\r\nlost\r\n");
    CHECK_EQ_INT(a.op.reason, HF_NOT_YOURS);
    answer_vote("*2\r\n$5\r\nbelow\r\n$1\r\n9\r\n");
    CHECK_EQ_INT(a.op.reason, HF_NOT_YOURS);
    CHECK_EQ_STR(a.op.text, "its token is now 9");
    answer_vote("*2\r\n$3\r\nset\r\n$14\r\ntest/5/3/60000\r\n");
    CHECK_EQ_INT(a.op.reason, HF_BAD_URL);
    CHECK_EQ_STR(a.op.text, "it votes in the set test/5/3/60000, not in test/3/2/60000: the number "
                            "of servers is 5 there and 3 here, the quorum is 3 there and 2 here");
    answer_vote("*2\r\n$10\r\nquarantine\r\n:1500\r\n");
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK(strstr(a.op.text, "will not vote for another 1500 ms"));
    over();
}

TEST(a_release_is_announced_to_the_set_and_a_vote_that_is_given_back_is_not) {
    static struct seen seen;
    begin_to_vote();
    ask_release(&rig, &b, "x");
    CHECK(next_seen(server, &seen));
    CHECK_EQ_STR(seen.arguments[seen.count - 1], "x");
    ask_give_back(&rig, &c, "x");
    CHECK(next_seen(server, &seen));
    CHECK_EQ_STR(seen.arguments[seen.count - 1], "");
    over();
}

/* ---- Answers that make no sense ---- */

TEST(an_answer_that_makes_no_sense_is_unknown_for_the_script_ran) {
    static const char *const answers[] = {
        ":1\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*1\r\n$4\r\nDONE\r\n",
        "*1\r\n*0\r\n",
        "*2\r\n-ERR x\r\n$1\r\n5\r\n",
        "*2\r\n:1\r\n:2\r\n",
    };
    begin();
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        answer_acquire(answers[i]);
        CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    }
    over();
}

/* A hold without a token would fence nothing. */
TEST(a_grant_without_a_token_is_unknown) {
    static const char *const answers[] = {
        "*1\r\n$4\r\ndone\r\n",
        "*2\r\n$4\r\ndone\r\n$-1\r\n",
        "*2\r\n$4\r\ndone\r\n$1\r\n0\r\n",
        "*2\r\n$4\r\ndone\r\n$1\r\nx\r\n",
        "*2\r\n$4\r\ndone\r\n$0\r\n\r\n",
        "*2\r\n$4\r\ndone\r\n$2\r\n-1\r\n",
        "*2\r\n$4\r\ndone\r\n$16\r\n9007199254740992\r\n",
        "*2\r\n$4\r\ndone\r\n$8\r\n1.78e+15\r\n",
    };
    begin();
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        answer_acquire(answers[i]);
        if (a.op.outcome != STORE_UNKNOWN)
            test_fail(__FILE__, __LINE__, "number %zu is outcome %d with token %llu", i,
                      a.op.outcome, (unsigned long long)a.op.token);
    }
    over();
}

TEST(times_that_no_honest_server_says_are_no_undefined_ones) {
    static const char *const answers[] = {
        "*4\r\n$6\r\nqueued\r\n:9223372036854775807\r\n:0\r\n:0\r\n",
        "*4\r\n$6\r\nqueued\r\n:-9223372036854775808\r\n:0\r\n:0\r\n",
        "*4\r\n$6\r\nqueued\r\n$7\r\n9.1e+18\r\n:0\r\n:0\r\n",
        "*3\r\n$4\r\nbusy\r\n:9223372036854775807\r\n:0\r\n",
    };
    begin();
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        answer_acquire(answers[i]);
        CHECK(a.op.left_us >= 0);
    }
    over();
}

/* ---- Renew ---- */

TEST(holds_of_each_kind_are_renewed_and_each_has_its_outcome) {
    begin();
    struct asked holds[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        make_acquire(&holds[i], names[i], 0);
    make_share(&holds[1]);
    make_share(&holds[3]);
    ask_renew(&rig, &a, (struct asked *[]){&holds[0], NULL, &holds[1], &holds[2], &holds[3]}, 5);
    CHECK_COMMAND(server, "renew_share holdfast:b");
    CHECK_COMMAND(server, "renew_share holdfast:d");
    CHECK_COMMAND(server, "renew holdfast:a holdfast:c");
    CHECK_COMMAND(server, "");
    fake_answer_text(server, ":1\r\n:0\r\n");
    a.renewals[4].of = NULL; /* it ends meanwhile */
    CHECK_EQ_INT(a.completions, 0);
    fake_answer_text(server, "*2\r\n:0\r\n:1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(a.renewals[0].outcome, STORE_NOT_YOURS);
    CHECK_EQ_INT(a.renewals[1].outcome, 0);
    CHECK_EQ_INT(a.renewals[2].outcome, STORE_DONE);
    CHECK_EQ_INT(a.renewals[3].outcome, STORE_DONE);
    CHECK_EQ_INT(a.renewals[4].outcome, STORE_NOT_YOURS);
    over();
}

TEST(many_holds_are_renewed_in_portions_that_complete_once) {
    enum { COUNT = 300 };
    static struct asked holds[COUNT];
    static struct asked *all[COUNT];
    static char names[COUNT][8];
    begin();
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        make_acquire(&holds[i], names[i], 0);
        all[i] = &holds[i];
    }
    fake_serve(rig.world, rig_serve, &rig);
    ask_renew(&rig, &a, all, COUNT);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK(rig.served >= 3 && rig.served < 8);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ_INT(a.renewals[i].outcome, STORE_DONE);
    over();
}

TEST(a_renewal_of_nothing_is_done) {
    begin();
    ask_renew(&rig, &a, NULL, 0);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    ask_renew(&rig, &b, (struct asked *[]){NULL, NULL}, 2);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(a_part_of_a_renewal_that_fails_leaves_the_others_their_outcome) {
    begin();
    make_acquire(&b, "x", 0);
    make_acquire(&c, "y", 0);
    make_share(&c);
    ask_renew(&rig, &a, (struct asked *[]){&b, &c}, 2);
    fake_answer_text(server, "-BUSY Redis is busy running a script.\r\n*1\r\n:1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(a.renewals[0].outcome, STORE_DONE);
    CHECK_EQ_INT(a.renewals[1].outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.renewals[1].reason, HF_UNREACHABLE);
    over();
}

TEST(a_renewal_answered_with_nonsense_is_unknown_and_ends_no_hold) {
    static const char *const answers[] = {
        "*1\r\n:1\r\n",
        "*3\r\n:1\r\n:1\r\n:1\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*2\r\n:1\r\n-ERR x\r\n",
        "*2\r\n$-1\r\n:1\r\n",
        "*2\r\n*0\r\n:1\r\n",
        "*2\r\n:7\r\n:1\r\n",
    };
    begin();
    make_acquire(&b, "x", 0);
    make_acquire(&c, "y", 0);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        ask_renew(&rig, &a, (struct asked *[]){&b, &c}, 2);
        fake_answer_text(server, answers[i]);
        CHECK_EQ_INT(a.completions, 1);
        if (a.renewals[0].outcome == STORE_NOT_YOURS || a.renewals[1].outcome == STORE_NOT_YOURS)
            test_fail(__FILE__, __LINE__, "answer %zu is \"not yours\"", i);
        asked_clear(&a);
    }
    over();
}

/* The counter of a lock that is held for weeks must not be forgotten. So once a day, for as long as
 * the longest lease, renewals extend its life. */
TEST(counters_are_kept_once_a_day_while_a_lock_is_held) {
    rig_open(&rig, "redis://localhost");
    rig.host.max_lease_us = 60 * (int64_t)S;
    make_acquire(&b, "x", 0);
    fake_serve(rig.world, rig_serve, &rig);
    for (int day = 0; day < 3; day++) {
        ask_renew(&rig, &a, (struct asked *[]){&b}, 1);
        size_t before = rig.served;
        asked_clear(&a);
        ask_renew(&rig, &a, (struct asked *[]){&b}, 1);
        CHECK_EQ_INT(a.op.outcome, STORE_DONE);
        CHECK_EQ_INT(rig.served - before, 1); /* only the renewal */
        asked_clear(&a);
        fake_pass_us(rig.world, INT64_C(90000) * S);
        before = rig.served;
        ask_renew(&rig, &a, (struct asked *[]){&b}, 1);
        CHECK_EQ_INT(rig.served - before, 2);
        asked_clear(&a);
    }
    over();
}

/* ---- Looking ---- */

TEST(an_inspection_shows_who_has_it) {
    begin();
    ask_inspect(&rig, &a, "x");
    fake_answer_text(server, LOOK("5"));
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(hf_locks_count(a.op.locks), 1);
    const hf_lock_info *lock = hf_locks_at(a.op.locks, 0);
    CHECK_EQ_STR(lock->name, "x");
    CHECK_EQ_INT(lock->holder_count, 1);
    CHECK_EQ_INT(lock->holders[0]->token, 5);
    CHECK_EQ_STR(lock->holders[0]->host, "here");
    CHECK_EQ_STR(lock->holders[0]->command, "test");
    CHECK_EQ_INT(lock->holders[0]->left_ms, 5000);
    over();
}

TEST(a_name_that_is_unknown_is_an_empty_list) {
    begin();
    ask_inspect(&rig, &a, "x");
    fake_answer_text(server, "*6\r\n$16\r\n1700000000000000\r\n$-1\r\n:-2\r\n"
                             "*6\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n*0\r\n*0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(hf_locks_count(a.op.locks), 0);
    over();
}

/* Records that somebody else has written, or nobody. */
TEST(records_that_make_no_sense_do_no_harm) {
    static const char *const records[] = {"",
                                          " ",
                                          "x",
                                          "1",
                                          "1 2",
                                          "1 2 3 999999 5 ab",
                                          "1 2 3 -1 -1 ab",
                                          "99999999999999999999999 9 9 9 9 9",
                                          "-9223372036854775808 1 1 1 1 ab",
                                          "1 9223372036854775807 3 1 1 ab",
                                          "1 2 3 18446744073709551615 1 ab"};
    begin();
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        char text[600];
        size_t size = strlen(records[i]);
        ask_inspect(&rig, &a, "x");
        snprintf(text, sizeof(text),
                 "*6\r\n$16\r\n1700000000000000\r\n$34\r\n" OWNER "\r\n:5000\r\n"
                 "*6\r\n$1\r\n5\r\n$34\r\n" OWNER
                 "\r\n$1\r\nm\r\n$%zu\r\n%s\r\n$-1\r\n$%zu\r\n%s\r\n"
                 "*3\r\n$34\r\n" OWNER "\r\n$16\r\n1800000000000000\r\n$%zu\r\n%s\r\n"
                 "*2\r\n$34\r\n" OWNER "\r\n$%zu\r\n%s\r\n",
                 size, records[i], size, records[i], size, records[i], size, records[i]);
        fake_answer_text(server, text);
        CHECK_EQ_INT(a.op.outcome, STORE_DONE);
        asked_clear(&a);
    }
    over();
}

TEST(times_in_a_look_that_no_honest_server_says_are_no_undefined_ones) {
    static const char *const looks[] = {
        "*6\r\n:0\r\n$34\r\n" OWNER "\r\n:9223372036854775807\r\n*0\r\n*0\r\n*0\r\n",
        "*6\r\n:0\r\n$34\r\n" OWNER "\r\n:-9223372036854775808\r\n*0\r\n*0\r\n*0\r\n",
        "*6\r\n:-9223372036854775808\r\n$-1\r\n:0\r\n*1\r\n$1\r\n5\r\n"
        "*3\r\n$34\r\n" OWNER "\r\n:9223372036854775807\r\n$5\r\n1 1 1\r\n*0\r\n",
        "*6\r\n:-9223372036854775808\r\n$-1\r\n:0\r\n*1\r\n$1\r\n5\r\n*0\r\n"
        "*2\r\n$34\r\n" OWNER "\r\n$23\r\n9223372036854775807 1 1\r\n",
    };
    begin();
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        ask_inspect(&rig, &a, "x");
        fake_answer_text(server, looks[i]);
        CHECK_EQ_INT(a.completions, 1);
        asked_clear(&a);
    }
    over();
}

/* ---- Listing ---- */

#define SCANNED(cursor, ...) "*2\r\n$1\r\n" cursor "\r\n" __VA_ARGS__

static const char *names_of(const struct asked *asked) {
    static char text[256];
    text[0] = 0;
    for (size_t i = 0; i < hf_locks_count(asked->op.locks); i++) {
        const hf_lock_info *lock = hf_locks_at(asked->op.locks, i);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s:%llu", i ? " " : "",
                 lock->name, (unsigned long long)lock->token);
    }
    return text;
}

TEST(a_list_has_the_smallest_names_in_order_each_once) {
    begin();
    ask_list(&rig, &a, "", 2);
    CHECK_COMMAND(server, "SCAN 0 MATCH holdfast:* COUNT 1000 TYPE string");
    fake_answer_text(server, SCANNED("7", "*3\r\n$10\r\nholdfast:d\r\n$10\r\nholdfast:c\r\n"
                                          "$10\r\nholdfast:d\r\n"));
    CHECK_COMMAND(server, "SCAN 7 MATCH holdfast:* COUNT 1000 TYPE string");
    static const char keys[] =
        SCANNED("0", "*5\r\n$10\r\nholdfast:b\r\n$10\r\nholdfast:c\r\n"
                     "$9\r\nholdfast:\r\n$5\r\nother\r\n$12\r\nholdfast:\0a\0\r\n");
    fake_answer(server, keys, sizeof(keys) - 1);
    CHECK_COMMAND(server, "look holdfast:b");
    CHECK_COMMAND(server, "look holdfast:c");
    CHECK_COMMAND(server, "");
    fake_answer_text(server, LOOK("1") LOOK("2"));
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_STR(names_of(&a), "b:1 c:2");
    over();
}

TEST(what_means_something_in_a_pattern_is_escaped) {
    begin();
    ask_list(&rig, &a, "a*b?[c]\\^-{", 10);
    CHECK_COMMAND(server,
                  "SCAN 0 MATCH holdfast:a\\*b\\?\\[c\\]\\\\\\^\\-{* COUNT 1000 TYPE string");
    over();
}

TEST(a_key_that_is_no_lock_is_left_out_of_a_list) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_answer_text(
        server,
        SCANNED("0", "*3\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:b\r\n$10\r\nholdfast:c\r\n"));
    fake_answer_text(server, LOOK("1") "-WRONGTYPE Operation against a key\r\n" LOOK("3"));
    CHECK_EQ_STR(names_of(&a), "a:1 c:3");
    over();
}

/* What look.lua says about a name whose K is a number, with this token (in a bulk) and waiters. */
#define NUMBER(token, waiters)                                         \
    "*6\r\n$16\r\n1700000000000000\r\n$2\r\n-7\r\n:-1\r\n*6\r\n" token \
    "\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n*0\r\n" waiters

/* A number may also be the lock of a client that is not holdfast: it is one if others lock it. */
TEST(a_counter_is_left_out_of_a_list) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_answer_text(
        server,
        SCANNED("0", "*3\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:b\r\n$10\r\nholdfast:c\r\n"));
    fake_answer_text(server, NUMBER("$-1", "*0\r\n"));
    fake_answer_text(server, NUMBER("$1\r\n5", "*0\r\n"));
    fake_answer_text(server, NUMBER("$-1", "*2\r\n$34\r\n" OWNER "\r\n$-1\r\n"));
    CHECK_EQ_STR(names_of(&a), "b:5 c:0");
    over();
}

/* Another client may load the script between two of the looks. */
TEST(a_list_names_each_lock_rightly_when_only_some_looks_knew_their_script) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_answer_text(
        server,
        SCANNED("0", "*3\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:b\r\n$10\r\nholdfast:c\r\n"));
    fake_answer_text(server, NOSCRIPT LOOK("2") LOOK("3"));
    CHECK_EQ_INT(a.completions, 0);
    fake_answer_text(server, LOOK("1")); /* the first, sent whole */
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_STR(names_of(&a), "a:1 b:2 c:3");
    over();
}

TEST(a_list_goes_on_over_another_connection) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_answer_text(server, SCANNED("0", "*2\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:b\r\n"));
    fake_answer_text(server, LOOK("1"));
    fake_hang_up(server, "reset");
    server = fake_last(rig.world);
    fake_accept(server);
    CHECK_COMMAND(server, "look holdfast:b");
    CHECK_COMMAND(server, "");
    fake_answer_text(server, LOOK("2"));
    CHECK_EQ_STR(names_of(&a), "a:1 b:2");
    over();
}

TEST(a_list_whose_looks_cannot_be_sent_for_want_of_memory_is_refused) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_fail_send(rig.world, HF_NO_MEMORY);
    fake_answer_text(server, SCANNED("0", "*2\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:b\r\n"));
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(a.op.reason), "HF_NO_MEMORY");
    over();
}

TEST(a_scan_answered_with_nonsense_ends_the_list) {
    static const char *const answers[] = {":1\r\n", "*0\r\n", "*1\r\n$1\r\n0\r\n",
                                          "*2\r\n$1\r\n0\r\n$-1\r\n", "*2\r\n$1\r\n0\r\n:5\r\n"};
    begin();
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        ask_list(&rig, &a, "", 10);
        fake_answer_text(server, answers[i]);
        CHECK_EQ_INT(a.completions, 1);
        CHECK(a.op.outcome != STORE_DONE);
        asked_clear(&a);
    }
    over();
}

TEST(keys_of_nonsense_in_a_scan_are_left_out) {
    begin();
    ask_list(&rig, &a, "", 10);
    fake_answer_text(server, SCANNED("0", "*4\r\n:1\r\n$-1\r\n*0\r\n-ERR x\r\n"));
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(hf_locks_count(a.op.locks), 0);
    over();
}
