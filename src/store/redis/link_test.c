/* The link: requests that each come back once, whatever happens to connections. The tests play the
 * server, over streams that lead nowhere. The failures are rows 14, 15, 17 and 19 of
 * FAILURES.md. */
#include "check.h"
#include "support/fake_redis.h"

#define CHECK_COMMAND(stream, expected) CHECK_EQ_STR(next_command(stream), expected)
#define DONE(token) "*2\r\n$4\r\ndone\r\n$1\r\n" token "\r\n"
#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

enum { MS = 1000, S = 1000000 };

static struct rig rig;
static struct asked a, b, c;

/* A store with a connection that has been used. If it is lost, the store connects again at once. */
static struct fake_stream *connected(const char *url) {
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "first", 0);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "acquire holdfast:first");
    fake_answer_text(stream, "*3\r\n$4\r\nbusy\r\n:50\r\n:0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    asked_clear(&a);
    return stream;
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
    asked_clear(&c);
}

/* ---- Requests and replies ---- */

TEST(nothing_is_connected_before_something_is_asked) {
    rig_open(&rig, "redis://localhost");
    fake_pass_us(rig.world, 60 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 0);
    over();
}

TEST(what_waits_for_the_connection_goes_out_in_one_write) {
    rig_open(&rig, "redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    ask_acquire(&rig, &b, "y", 0);
    ask_release(&rig, &c, "z");
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    struct fake_stream *stream = fake_stream(rig.world, 0);
    fake_accept(stream);
    CHECK_EQ_INT(stream->writes, 1);
    CHECK_COMMAND(stream, "acquire holdfast:x");
    CHECK_COMMAND(stream, "acquire holdfast:y");
    CHECK_COMMAND(stream, "release holdfast:z");
    CHECK_COMMAND(stream, "");
    over();
}

TEST(what_is_submitted_together_goes_out_in_one_write) {
    struct fake_stream *stream = connected("redis://localhost");
    size_t writes = stream->writes;
    make_acquire(&a, "x", 0);
    make_acquire(&b, "y", 0);
    rig_submit(&rig, &a);
    rig_submit(&rig, &b);
    fake_settle(rig.world);
    CHECK_EQ_INT(stream->writes, writes + 1);
    CHECK_COMMAND(stream, "acquire holdfast:x");
    CHECK_COMMAND(stream, "acquire holdfast:y");
    over();
}

TEST(replies_answer_requests_in_their_order) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    ask_release(&rig, &b, "y");
    ask_acquire(&rig, &c, "z", 0);
    fake_answer_text(stream, DONE("5") ":0\r\n*2\r\n$4\r\ndo");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(a.op.token, 5);
    CHECK_EQ_INT(b.op.outcome, STORE_NOT_YOURS);
    CHECK_EQ_INT(c.completions, 0);
    fake_answer_text(stream, "ne\r\n$1\r\n7\r\n");
    CHECK_EQ_INT(c.op.token, 7);
    over();
}

TEST(a_script_that_the_server_does_not_know_is_sent_whole) {
    struct fake_stream *stream = connected("redis://localhost");
    static struct seen first, second;
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    ask_release(&rig, &b, "y");
    CHECK(next_seen(stream, &first));
    char *arguments[SEEN_ARGUMENTS_MAX];
    for (size_t i = 0; i < first.count; i++)
        CHECK((arguments[i] = strdup(first.arguments[i])));
    fake_answer_text(stream, NOSCRIPT ":1\r\n");
    CHECK_EQ_INT(a.completions, 0);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    CHECK_COMMAND(stream, "release holdfast:y");
    CHECK(next_seen(stream, &second));
    CHECK_EQ_STR(second.arguments[0], "EVAL");
    CHECK_EQ_INT(second.count, first.count);
    for (size_t i = 2; i < second.count; i++)
        CHECK_EQ_STR(second.arguments[i], arguments[i]);
    for (size_t i = 0; i < first.count; i++)
        free(arguments[i]);
    fake_answer_text(stream, DONE("5"));
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(a_script_is_called_by_its_digest_again_after_it_was_sent_whole) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_answer_text(stream, NOSCRIPT);
    fake_answer_text(stream, DONE("5"));
    ask_acquire(&rig, &b, "y", 0);
    CHECK_COMMAND(stream, "acquire holdfast:x");
    CHECK_COMMAND(stream, "EVAL acquire holdfast:x");
    CHECK_COMMAND(stream, "acquire holdfast:y");
    over();
}

/* ---- Time ---- */

TEST(a_request_without_an_answer_is_unknown_when_its_time_is_over_and_not_before) {
    struct fake_stream *stream = connected("redis://localhost?timeout=300");
    ask_release(&rig, &a, "x");
    fake_pass_us(rig.world, 300 * MS - 1);
    CHECK_EQ_INT(a.completions, 0);
    CHECK(stream->owner);
    fake_pass_us(rig.world, 1);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(a.op.text, "no answer within 300 ms");
    CHECK(!stream->owner); /* so no late answer is taken for another's */
    over();
}

TEST(an_answer_in_time_is_taken) {
    struct fake_stream *stream = connected("redis://localhost?timeout=300");
    ask_release(&rig, &a, "x");
    fake_pass_us(rig.world, 300 * MS - 1);
    fake_answer_text(stream, ":0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_NOT_YOURS);
    fake_pass_us(rig.world, 60 * S);
    CHECK(stream->owner); /* and silence afterwards is no reason to hang up */
    over();
}

TEST(requests_of_different_times_end_each_at_its_own) {
    struct fake_stream *stream = connected("redis://localhost");
    fake_hang_up(stream, "gone"); /* there was an answer: it connects at once */
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 500 * MS);
    ask_acquire(&rig, &b, "y", 0);
    fake_accept(fake_last(rig.world));
    fake_pass_us(rig.world, 1500 * MS);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(b.completions, 0);
    fake_pass_us(rig.world, 500 * MS);
    CHECK_EQ_INT(b.completions, 1);
    CHECK_EQ_INT(b.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(a_script_that_was_sent_whole_still_has_its_own_time) {
    struct fake_stream *stream = connected("redis://localhost?timeout=2000");
    ask_release(&rig, &a, "x");
    fake_pass_us(rig.world, 1500 * MS);
    ask_release(&rig, &b, "y");
    fake_answer_text(stream, NOSCRIPT); /* it is sent again, behind b */
    fake_pass_us(rig.world, 500 * MS);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK_EQ_INT(b.completions, 0);
    fake_pass_us(rig.world, 1500 * MS);
    CHECK_EQ_INT(b.completions, 1);
    over();
}

/* Otherwise a link that is slow and never idle would give up each connection before an answer can
 * arrive. */
TEST(what_was_sent_again_does_not_end_the_next_connection_before_that_had_its_time) {
    struct fake_stream *stream = connected("redis://localhost?timeout=300");
    ask_release(&rig, &a, "x");
    fake_pass_us(rig.world, 200 * MS);
    fake_hang_up(stream, "reset");
    stream = fake_last(rig.world);
    fake_accept(stream);
    ask_release(&rig, &b, "y");
    fake_pass_us(rig.world, 100 * MS);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(a.op.text, "no answer within 300 ms: reset");
    CHECK(stream->owner);
    fake_answer_text(stream, ":1\r\n"); /* a's, which nobody waits for any more */
    CHECK_EQ_INT(b.completions, 0);
    fake_answer_text(stream, ":0\r\n");
    CHECK_EQ_INT(b.op.outcome, STORE_NOT_YOURS);
    ask_release(&rig, &c, "z");
    fake_pass_us(rig.world, 300 * MS);
    CHECK_EQ_INT(c.op.outcome, STORE_UNKNOWN);
    CHECK(!stream->owner);
    over();
}

TEST(those_behind_what_was_given_up_end_each_at_its_own_time) {
    struct fake_stream *stream = connected("redis://localhost?timeout=300");
    ask_release(&rig, &a, "x");
    fake_pass_us(rig.world, 100 * MS);
    ask_release(&rig, &b, "y");
    fake_pass_us(rig.world, 100 * MS);
    fake_hang_up(stream, "reset");
    stream = fake_last(rig.world);
    fake_accept(stream); /* at 200 ms */
    fake_pass_us(rig.world, 100 * MS);
    CHECK_EQ_INT(a.completions, 1);
    fake_pass_us(rig.world, 99 * MS);
    CHECK_EQ_INT(b.completions, 0);
    fake_pass_us(rig.world, 1 * MS);
    CHECK_EQ_INT(b.completions, 1);
    CHECK(stream->owner);
    fake_pass_us(rig.world, 100 * MS);
    CHECK(!stream->owner);
    over();
}

/* ---- Connections that are lost ---- */

TEST(what_had_no_answer_is_sent_again_over_the_next_connection_and_completes_once) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    ask_release(&rig, &b, "y");
    ask_break(&rig, &c, "z", 5);
    fake_hang_up(stream, "reset");
    stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_EQ_INT(a.completions + b.completions + c.completions, 0);
    CHECK_EQ_INT(stream->writes, 1);
    CHECK_COMMAND(stream, "acquire holdfast:x");
    CHECK_COMMAND(stream, "release holdfast:y");
    CHECK_COMMAND(stream, "break holdfast:z");
    CHECK_COMMAND(stream, "");
    fake_answer_text(stream, DONE("5") ":1\r\n:1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    CHECK_EQ_INT(c.op.outcome, STORE_DONE);
    over();
}

TEST(what_was_answered_is_not_sent_again) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    ask_acquire(&rig, &b, "y", 0);
    fake_answer_text(stream, DONE("5") "*2\r\n$4\r\ndone\r\n"); /* and half of the second */
    fake_hang_up(stream, "reset");
    stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "acquire holdfast:y");
    CHECK_COMMAND(stream, "");
    fake_answer_text(stream, DONE("6"));
    CHECK_EQ_INT(b.op.token, 6);
    over();
}

TEST(a_connection_that_served_is_replaced_at_once) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_hang_up(stream, "reset");
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    over();
}

TEST(a_connection_that_nobody_needs_is_not_replaced) {
    struct fake_stream *stream = connected("redis://localhost");
    fake_hang_up(stream, "idle for too long");
    fake_pass_us(rig.world, 60 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    ask_acquire(&rig, &a, "x", 0); /* until somebody does */
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    over();
}

TEST(what_was_never_sent_is_refused_as_soon_as_connecting_fails_with_the_reason) {
    rig_open(&rig, "redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    ask_release(&rig, &b, "y");
    fake_hang_up(fake_last(rig.world), "cannot connect to h:6379: Connection refused");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(a.op.text, "cannot connect to h:6379: Connection refused");
    CHECK_EQ_INT(b.op.outcome, STORE_REFUSED);
    fake_pass_us(rig.world, 60 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1); /* nothing waits any more */
    over();
}

TEST(what_was_never_sent_is_refused_and_not_unknown_when_connecting_takes_too_long) {
    rig_open(&rig, "redis://localhost?timeout=300");
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 300 * MS);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    over();
}

TEST(what_was_sent_outlives_failures_to_connect_until_its_time_is_over) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_release(&rig, &a, "x");
    fake_hang_up(stream, "reset");
    for (int64_t passed_us = 0; passed_us < 2 * S; passed_us += 10 * MS) {
        CHECK_EQ_INT(a.completions, 0);
        if (fake_last(rig.world))
            fake_hang_up(fake_last(rig.world), "Connection refused");
        fake_pass_us(rig.world, 10 * MS);
    }
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(what_comes_after_a_lost_connection_is_refused_if_there_is_no_other_while_what_was_sent_waits) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_release(&rig, &a, "x");
    fake_hang_up(stream, "reset");
    ask_release(&rig, &b, "y");
    fake_hang_up(fake_last(rig.world), "Connection refused");
    CHECK_EQ_INT(a.completions, 0);
    CHECK_EQ_INT(b.op.outcome, STORE_REFUSED);
    fake_pass_us(rig.world, 20 * MS);
    fake_accept(fake_last(rig.world));
    fake_answer_text(fake_last(rig.world), ":1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(protocol_garbage_costs_the_connection_and_the_request_is_repeated) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_answer_text(stream, "HTTP/1.1 400 Bad Request\r\n");
    CHECK(!stream->owner);
    CHECK_EQ_INT(a.completions, 0);
    fake_pass_us(rig.world, 20 * MS);
    stream = fake_last(rig.world);
    CHECK(stream);
    fake_accept(stream);
    CHECK_COMMAND(stream, "acquire holdfast:x");
    fake_answer_text(stream, DONE("5"));
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(an_answer_to_nothing_costs_the_connection) {
    struct fake_stream *stream = connected("redis://localhost");
    fake_answer_text(stream, "+OK\r\n");
    CHECK(!stream->owner);
    over();
}

/* ---- What a repeat may and may not say ---- */

/* Loses the connection, and with it the answer to what was sent; answers the repeat. */
static void answer_repeat(const char *text) {
    fake_hang_up(fake_last(rig.world), "reset");
    fake_accept(fake_last(rig.world));
    fake_answer_text(fake_last(rig.world), text);
}

TEST(a_repeated_release_that_finds_nothing_is_unknown_for_the_first_may_have_released) {
    connected("redis://localhost");
    ask_release(&rig, &a, "x");
    answer_repeat(":0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    ask_release(&rig, &b, "x");
    answer_repeat(":1\r\n");
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(a_repeated_break_that_finds_nothing_is_unknown_for_the_first_may_have_broken) {
    connected("redis://localhost");
    ask_break(&rig, &a, "x", 5);
    answer_repeat(":0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(a_release_that_was_sent_whole_for_want_of_the_script_is_no_repeat) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_release(&rig, &a, "x");
    fake_answer_text(stream, NOSCRIPT);
    fake_answer_text(stream, ":0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_NOT_YOURS);
    over();
}

/* REFUSED means "certainly not done". That is true of the repeat, but the first request, whose
 * answer was lost, may have been done. */
TEST(an_error_in_answer_to_a_repeated_release_leaves_it_unknown) {
    connected("redis://localhost");
    ask_release(&rig, &a, "x");
    answer_repeat("-READONLY You can't write against a read only replica.\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(an_error_in_answer_to_a_repeated_acquire_leaves_it_unknown) {
    connected("redis://localhost");
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    answer_repeat("-LOADING Redis is loading the dataset in memory\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(an_error_in_answer_to_a_repeated_break_leaves_it_unknown) {
    connected("redis://localhost");
    ask_break(&rig, &a, "x", 5);
    answer_repeat("-MISCONF Redis is configured to save RDB snapshots\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

/* A repeat finds its own grant, so what the script says of it is certain. */
TEST(a_repeated_acquire_may_still_be_told_that_it_is_busy) {
    connected("redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    answer_repeat("*3\r\n$4\r\nbusy\r\n:50\r\n:0\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_BUSY);
    over();
}

/* ---- Trying again ---- */

static void refuse(struct fake_stream *stream) {
    fake_hang_up(stream, "Connection refused");
}

/* When it tried, from its first failure on. */
static size_t attempts(int64_t *times_us, size_t room, int64_t for_us) {
    struct fake_stream *stream = connected("redis://localhost?timeout=3600000");
    ask_release(&rig, &a, "x"); /* it was sent, so it waits for an hour */
    fake_hang_up(stream, "reset");
    fake_serve(rig.world, refuse, NULL);
    fake_pass_us(rig.world, for_us);
    size_t count = fake_stream_count(rig.world) - 1;
    for (size_t i = 0; i < count && i < room; i++)
        times_us[i] = fake_stream(rig.world, i + 1)->opened_us;
    CHECK(count <= room);
    return count;
}

TEST(the_time_between_attempts_to_connect_grows_with_jitter_and_has_a_limit) {
    int64_t times_us[200], most_us = 20 * MS;
    bool differ = false;
    size_t count = attempts(times_us, 200, 60 * S);
    CHECK(count > 60 && count < 130);
    for (size_t i = 0; i + 1 < count; i++) {
        int64_t gap_us = times_us[i + 1] - times_us[i];
        CHECK(gap_us >= most_us / 2);
        CHECK(gap_us <= most_us);
        differ |= i > 10 && gap_us != times_us[i] - times_us[i - 1];
        most_us = 2 * most_us < S ? 2 * most_us : S;
    }
    CHECK(differ);
    over();
}

TEST(after_a_connection_that_served_it_starts_from_the_shortest_time_again) {
    int64_t times_us[100];
    size_t count = attempts(times_us, 100, 10 * S);
    CHECK(count >= 2);
    CHECK(times_us[count - 1] - times_us[count - 2] >= 500 * MS);
    fake_serve(rig.world, rig_serve, &rig);
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    fake_serve(rig.world, NULL, NULL);
    ask_release(&rig, &b, "y");
    fake_hang_up(fake_last(rig.world), "reset");
    size_t before = fake_stream_count(rig.world);
    fake_serve(rig.world, refuse, NULL);
    fake_pass_us(rig.world, 20 * MS);
    CHECK(fake_stream_count(rig.world) > before);
    over();
}

/* ---- Servers that would make it spin ---- */

static const char *last_words;

static void accept_and_hang_up(struct fake_stream *stream) {
    if (!stream->accepted)
        fake_accept(stream);
    if (stream->owner && *last_words)
        fake_answer_text(stream, last_words);
    if (stream->owner)
        fake_hang_up(stream, "the server hung up");
}

static void check_calm(const char *words, size_t at_most) {
    last_words = words;
    struct fake_stream *stream = connected("redis://localhost?timeout=10000");
    ask_release(&rig, &a, "x");
    fake_hang_up(stream, "reset");
    fake_serve(rig.world, accept_and_hang_up, NULL);
    fake_pass_us(rig.world, 10 * S);
    if (fake_stream_count(rig.world) > at_most)
        test_fail(__FILE__, __LINE__, "%zu connections in 10 s", fake_stream_count(rig.world));
    over();
}

TEST(a_server_that_accepts_and_hangs_up_is_not_stormed) {
    check_calm("", 30);
}

TEST(a_server_that_answers_garbage_is_not_stormed) {
    check_calm("HTTP/1.1 400 Bad Request\r\n", 30);
}

TEST(a_server_that_hangs_up_in_the_middle_of_an_answer_is_not_stormed) {
    check_calm("*2\r\n$4\r\n", 30);
}

TEST(a_server_that_wants_no_more_clients_is_not_stormed) {
    check_calm("-ERR max number of clients reached\r\n", 30);
}

/* ---- The greeting ---- */

TEST(nothing_is_sent_before_the_server_has_accepted_password_and_database) {
    rig_open(&rig, "redis://jo:secret@localhost/3");
    ask_acquire(&rig, &a, "x", 0);
    struct fake_stream *stream = fake_last(rig.world);
    for (int connection = 0; connection < 2; connection++) {
        fake_accept(stream);
        CHECK_COMMAND(stream, "AUTH jo secret");
        CHECK_COMMAND(stream, "SELECT 3");
        CHECK_COMMAND(stream, "");
        CHECK_EQ_INT(stream->writes, 1);
        fake_answer_text(stream, "+OK\r\n");
        CHECK_COMMAND(stream, "");
        ask_release(&rig, connection ? &c : &b, "y");
        CHECK_COMMAND(stream, "");
        fake_answer_text(stream, "+OK\r\n");
        CHECK_COMMAND(stream, "acquire holdfast:x");
        CHECK_COMMAND(stream, "release holdfast:y");
        if (connection == 0)
            fake_answer_text(stream, "*2\r\n"); /* it has heard something */
        fake_hang_up(stream, "reset");
        fake_pass_us(rig.world, 20 * MS); /* and connects again */
        stream = fake_last(rig.world);
    }
    over();
}

static void open_node(void) {
    rig_open(&rig, "redis://localhost");
    rig_join(&rig, NULL);
}

TEST(a_server_of_a_set_is_asked_before_its_vote_whether_it_was_restarted) {
    open_node();
    ask_vote(&rig, &a, STORE_GIVE, 0);
    for (int connection = 0; connection < 2; connection++) {
        struct fake_stream *stream = fake_last(rig.world);
        fake_accept(stream);
        CHECK_COMMAND(stream, "EVAL boot {holdfast:}.set");
        CHECK_COMMAND(stream, "");
        fake_answer_text(stream, ":1\r\n");
        CHECK_COMMAND(stream, "vote holdfast:x");
        fake_answer_text(stream, "*2\r\n"); /* it has heard something */
        fake_hang_up(stream, "reset");
        fake_pass_us(rig.world, 20 * MS);
    }
    over();
}

TEST(who_only_looked_until_now_asks_that_over_the_connection_it_has) {
    open_node();
    ask_break(&rig, &a, "x", 5);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "break holdfast:x");
    ask_vote(&rig, &b, STORE_GIVE, 0);
    CHECK_COMMAND(stream, "EVAL boot {holdfast:}.set");
    CHECK_COMMAND(stream, "");
    fake_answer_text(stream, "-NOSCRIPT No matching script.\r\n");
    CHECK_COMMAND(stream, "EVAL break holdfast:x"); /* sent again, so it comes after the boot */
    CHECK_COMMAND(stream, "");
    fake_answer_text(stream, ":1\r\n");
    CHECK_COMMAND(stream, "vote holdfast:x");
    over();
}

TEST(without_an_answer_to_that_nobody_votes) {
    open_node();
    ask_vote(&rig, &a, STORE_GIVE, 0);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "EVAL boot {holdfast:}.set");
    fake_answer_text(stream, "-NOPERM User jo has no permissions to run the 'info' command\r\n");
    CHECK_COMMAND(stream, "");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_DENIED);
    over();
}

TEST(a_password_without_a_user_is_sent_alone) {
    rig_open(&rig, "redis://:secret@localhost");
    ask_acquire(&rig, &a, "x", 0);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "AUTH secret");
    CHECK_COMMAND(stream, "");
    fake_answer_text(stream, "+OK\r\n");
    CHECK_COMMAND(stream, "acquire holdfast:x");
    over();
}

static void check_greeting_refused(const char *url, const char *error, int reason) {
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "x", 0);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    size_t greeted = stream->written;
    fake_answer_text(stream, error);
    CHECK_EQ_INT(stream->written, greeted);
    CHECK(!stream->owner);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(a.op.reason), hf_error_name(reason));
    CHECK(a.op.text && *a.op.text);
    CHECK(!strstr(a.op.text, "secr"));
    over();
}

TEST(a_wrong_password_is_denied) {
    check_greeting_refused("redis://jo:secret@localhost",
                           "-WRONGPASS invalid username-password pair\r\n", HF_DENIED);
    check_greeting_refused("redis://:secret@localhost",
                           "-ERR AUTH <password> called without any password configured\r\n",
                           HF_DENIED);
    check_greeting_refused("redis://:secret@localhost/3", "-ERR invalid password\r\n", HF_DENIED);
}

TEST(a_server_that_repeats_the_password_is_not_quoted) {
    check_greeting_refused("redis://:secret@localhost",
                           "-ERR unknown command 'AUTH', with args beginning with: 'secr\r\n",
                           HF_DENIED);
    check_greeting_refused("redis://:secret@localhost", "-ERR who is secret?\r\n", HF_DENIED);
}

TEST(a_database_that_asks_for_a_password_is_denied) {
    check_greeting_refused("redis://localhost/3", "-NOAUTH Authentication required.\r\n",
                           HF_DENIED);
}

TEST(a_database_that_may_not_be_used_is_denied) {
    check_greeting_refused("redis://jo:secret@localhost/3",
                           "+OK\r\n-NOPERM this user has no permissions to run 'select'\r\n",
                           HF_DENIED);
}

TEST(a_server_that_is_loading_when_greeted_is_unreachable) {
    check_greeting_refused("redis://localhost/3",
                           "-LOADING Redis is loading the dataset in memory\r\n", HF_UNREACHABLE);
    check_greeting_refused("redis://localhost/3", "-ERR max number of clients reached\r\n",
                           HF_UNREACHABLE);
}

TEST(a_wrong_password_is_not_tried_without_pause) {
    rig_open(&rig, "redis://:secret@localhost");
    last_words = "-WRONGPASS invalid username-password pair\r\n";
    fake_serve(rig.world, accept_and_hang_up, NULL);
    for (int i = 0; i < 1000; i++) {
        ask_acquire(&rig, &a, "x", 0);
        fake_pass_us(rig.world, 10 * MS);
        if (a.completions) {
            CHECK_EQ_INT(a.op.reason, HF_DENIED);
            asked_clear(&a);
            continue;
        }
        fake_pass_us(rig.world, S);
        CHECK_EQ_INT(a.completions, 1);
        asked_clear(&a);
    }
    CHECK(fake_stream_count(rig.world) <= 1001);
    over();
}

TEST(a_greeting_without_an_answer_ends_with_its_time) {
    rig_open(&rig, "redis://:secret@localhost?timeout=300");
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 200 * MS);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    fake_pass_us(rig.world, 100 * MS);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED); /* its time counts from when it was asked */
    fake_pass_us(rig.world, 200 * MS);
    CHECK(!stream->owner);
    over();
}

TEST(garbage_in_answer_to_the_greeting_refuses_what_waits) {
    rig_open(&rig, "redis://:secret@localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_last(rig.world));
    fake_answer_text(fake_last(rig.world), "220 mail.example ESMTP\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    over();
}

/* ---- Without memory ---- */

TEST(what_cannot_be_sent_for_want_of_memory_is_refused_for_that) {
    struct fake_stream *stream = connected("redis://localhost");
    fake_fail_send(rig.world, HF_NO_MEMORY);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(a.op.reason), "HF_NO_MEMORY");
    fake_fail_send(rig.world, HF_OK);
    ask_acquire(&rig, &b, "y", 0);
    fake_answer_text(stream, DONE("5"));
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

/* A repeat that cannot be sent was sent before. */
TEST(what_cannot_be_sent_again_for_want_of_memory_is_unknown) {
    struct fake_stream *stream = connected("redis://localhost");
    ask_release(&rig, &a, "x");
    fake_hang_up(stream, "reset");
    fake_fail_send(rig.world, HF_NO_MEMORY);
    fake_accept(fake_last(rig.world));
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(what_waits_for_a_stream_that_cannot_be_opened_is_refused) {
    rig_open(&rig, "redis://localhost");
    fake_fail_open(rig.world, HF_NO_MEMORY);
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(a.op.reason), "HF_NO_MEMORY");
    over();
}

TEST(a_reason_is_that_of_the_last_failure_and_not_of_one_before) {
    rig_open(&rig, "redis://localhost");
    fake_fail_open(rig.world, HF_NO_MEMORY);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_STR(hf_error_name(a.op.reason), "HF_NO_MEMORY");
    fake_fail_open(rig.world, HF_OK);
    fake_pass_us(rig.world, 20 * MS);
    ask_acquire(&rig, &b, "x", 0);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1); /* now it connects, which takes too long */
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(b.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(b.op.reason), "HF_UNREACHABLE");
    over();
}

/* ---- Closing ---- */

enum moment { CONNECTING, REFUSED, GREETING, SENT, HALF_ANSWERED, SENT_WHOLE, LOST, MOMENTS };

static void come_to(enum moment moment) {
    struct fake_stream *stream = fake_last(rig.world);
    if (moment == REFUSED)
        fake_hang_up(stream, "Connection refused");
    if (moment <= REFUSED)
        return;
    fake_accept(stream);
    if (moment == GREETING)
        return;
    fake_answer_text(stream, "+OK\r\n");
    if (moment == HALF_ANSWERED)
        fake_answer_text(stream, "*2\r\n$4\r\ndone\r\n");
    if (moment == SENT_WHOLE)
        fake_answer_text(stream, NOSCRIPT NOSCRIPT);
    if (moment == LOST)
        fake_hang_up(stream, "reset");
}

TEST(closing_completes_each_operation_once_at_every_moment) {
    static struct asked all[7];
    for (enum moment moment = 0; moment < MOMENTS; moment++) {
        rig_open(&rig, "redis://:secret@localhost");
        make_acquire(&a, "held", 0);
        make_acquire(&b, "shared", 0);
        make_share(&b);
        ask_acquire(&rig, &all[0], "x", STORE_WAIT);
        ask_release(&rig, &all[1], "y");
        ask_break(&rig, &all[2], "z", 5);
        ask_inspect(&rig, &all[3], "x");
        ask_list(&rig, &all[4], "", 10);
        come_to(moment);
        ask_renew(&rig, &all[5], (struct asked *[]){&a, &b, NULL}, 3);
        ask_acquire(&rig, &all[6], "late", 0);
        rig_close_store(&rig);
        for (int i = 0; i < 7; i++) {
            CHECK_EQ_INT(all[i].completions, 1);
            bool was_sent = moment >= SENT && i < 4; /* (a list has done nothing) */
            CHECK(all[i].op.outcome == STORE_UNKNOWN || !was_sent);
            CHECK(all[i].op.outcome == STORE_UNKNOWN || all[i].op.outcome == STORE_REFUSED);
            asked_clear(&all[i]);
        }
        over();
    }
}
