/* Watching: when scripts check whether somebody watches, when a watch is complete, what messages
 * say, and that nothing is missed silently. */
#include "check.h"
#include "support/fake_redis.h"

#define V "{holdfast:}.v"
#define OWNER "00112233445566778899aabbccddeeff-1"
#define DONE(watched) "*3\r\n$4\r\ndone\r\n$1\r\n5\r\n:" watched "\r\n"

enum { MS = 1000, S = 1000000 };

static struct rig rig;
static struct asked a, b;

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
}

/* ---- Whether somebody watches ---- */

static bool next_names_the_key(struct fake_stream *server) {
    static struct seen seen;
    CHECK(next_seen(server, &seen));
    CHECK_EQ_STR(seen.arguments[2], "6");
    return strcmp(seen.arguments[seen.count - 1], V) == 0;
}

static bool acquire_names_the_key(struct fake_stream *server, const char *answer) {
    asked_clear(&a);
    ask_acquire(&rig, &a, "x", 0);
    if (!server->accepted)
        fake_accept(server);
    bool names = next_names_the_key(server);
    fake_answer_text(server, answer);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    return names;
}

static bool release_names_the_key(struct fake_stream *server) {
    asked_clear(&b);
    ask_release(&rig, &b, "x");
    bool names = next_names_the_key(server);
    fake_answer_text(server, ":1\r\n");
    return names;
}

/* The first to ask opens the connection. */
static struct fake_stream *open_server(const char *url) {
    rig_open(&rig, url);
    ask_inspect(&rig, &b, "x");
    fake_accept(fake_stream(rig.world, 0));
    CHECK_EQ_STR(next_command(fake_stream(rig.world, 0)), "look holdfast:x");
    fake_answer_text(fake_stream(rig.world, 0), "-ERR\r\n");
    return fake_stream(rig.world, 0);
}

TEST(while_nobody_watches_scripts_look_once_a_second) {
    struct fake_stream *server = open_server("redis://localhost");
    for (int i = 0; i < 3; i++) {
        CHECK(acquire_names_the_key(server, DONE("0")));
        CHECK(!release_names_the_key(server));
        for (int j = 0; j < 9; j++) {
            fake_pass_us(rig.world, 100 * MS);
            CHECK(!acquire_names_the_key(server, "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n"));
            CHECK(!release_names_the_key(server));
        }
        fake_pass_us(rig.world, 100 * MS);
        CHECK(release_names_the_key(server));
    }
    over();
}

TEST(while_somebody_watches_every_script_looks) {
    struct fake_stream *server = open_server("redis://localhost");
    CHECK(acquire_names_the_key(server, DONE("1")));
    for (int i = 0; i < 3; i++) {
        CHECK(release_names_the_key(server));
        CHECK(acquire_names_the_key(server, DONE("1")));
    }
    CHECK(release_names_the_key(server));
    CHECK(acquire_names_the_key(server, DONE("0")));
    CHECK(!release_names_the_key(server));
    over();
}

/* ---- A watch ---- */

#define CHECK_CHANGES(...)                               \
    check_changes((const hf_change_type[]){__VA_ARGS__}, \
                  sizeof((const hf_change_type[]){__VA_ARGS__}) / sizeof(hf_change_type))

/* Checks that these changes, and no others, have been reported since the last check. */
static void check_changes(const hf_change_type *types, size_t count) {
    CHECK_EQ_INT(rig.change_count, count);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ_INT(rig.changes[i], types[i]);
    rig.change_count = 0;
}

static void start_watch(struct asked *asked) {
    *asked = (struct asked){.op = {.type = STORE_WATCH, .name = ""}};
    rig_submit(&rig, asked);
    fake_settle(rig.world);
    CHECK_EQ_INT(asked->op.outcome, STORE_DONE);
}

static void stop_watch(struct asked *asked) {
    *asked = (struct asked){.op = {.type = STORE_UNWATCH, .name = ""}};
    rig_submit(&rig, asked);
    fake_settle(rig.world);
    CHECK_EQ_INT(asked->op.outcome, STORE_DONE);
}

/* The watch is complete, on a server that says yes to everything. */
static void watch(const char *url) {
    rig_open(&rig, url);
    fake_serve(rig.world, rig_serve, &rig);
    start_watch(&a);
    fake_pass_us(rig.world, 5 * S);
    CHECK_CHANGES(HF_CHANGE_WATCHING);
}

static struct fake_stream *subscription(void) {
    for (size_t i = fake_stream_count(rig.world); i-- > 0;) {
        struct fake_stream *stream = fake_stream(rig.world, i);
        if (stream->owner && memmem(stream->bytes, stream->written, "@watch", 6))
            return stream;
    }
    test_fail(__FILE__, __LINE__, "nobody subscribes");
}

static void message(const char *text) {
    char head[128];
    snprintf(head, sizeof(head), "*3\r\n$7\r\nmessage\r\n$15\r\nholdfast:@watch\r\n$%zu\r\n",
             strlen(text));
    fake_answer_text(subscription(), head);
    fake_answer_text(subscription(), text);
    fake_answer_text(subscription(), "\r\n");
}

/* As announce.lua writes it. */
static void change(const char *numbers, const char *key, const char *record, const char *last) {
    char text[400];
    snprintf(text, sizeof(text), "%s " OWNER " %zu %zu %s%s%s", numbers, strlen(key),
             strlen(record), key, record, last);
    message(text);
}

TEST(a_watch_is_complete_once_no_client_can_think_that_nobody_watches) {
    rig_open(&rig, "redis://localhost");
    fake_serve(rig.world, rig_serve, &rig);
    start_watch(&a);
    fake_pass_us(rig.world, 1150 * MS);
    CHECK_EQ_INT(rig.change_count, 0);
    fake_pass_us(rig.world, 100 * MS);
    CHECK_CHANGES(HF_CHANGE_WATCHING);
    over();
}

#define RECORD "2 1699999999000000 411 4 6 web3deploywhy it is held"

TEST(messages_are_reported_with_all_that_they_say) {
    watch("redis://localhost");
    change("a 1700000000123456 p5 77 30000", "holdfast:x y", RECORD, "");
    CHECK_CHANGES(HF_CHANGE_ACQUIRED);
    CHECK_EQ_STR(rig.change,
                 "x y at 1700000000123456: 3 2 of 5, 00112233-1 web3 411 deploy, why it "
                 "is held, token 77, left 30000, since 1699999999000, broken by \"\"");
    change("r 1700000000123457 rw 78 0", "holdfast:x", RECORD, "");
    change("w 1700000000123457 rw 0 3000", "holdfast:x", RECORD, "");
    change("l 1700000000123457 rw 0 0", "holdfast:x", RECORD, "");
    CHECK_CHANGES(HF_CHANGE_RELEASED, HF_CHANGE_WAITING, HF_CHANGE_LEFT);
    change("b 1700000000123458 rw 79 0", "holdfast:x", RECORD, "1700000000123458 79 3 evewhy not");
    CHECK_CHANGES(HF_CHANGE_BROKEN);
    CHECK(strstr(rig.change, "token 79") && strstr(rig.change, "broken by eve\"why not\""));
    over();
}

TEST(a_message_that_cannot_be_read_is_one_that_was_missed) {
    watch("redis://localhost");
    static const char *const wrong[] = {"",
                                        "a",
                                        "x 1 rw 1 1 " OWNER " 10 0 holdfast:x",
                                        "a 1 rw 1 1 " OWNER " 10 1 holdfast:x",
                                        "a 1 rw 1 1 " OWNER " 9 0 holdfast:x",
                                        "a 1 rw 1 1 " OWNER " 10 0 somebody:x",
                                        "a 1 rw 1 1 " OWNER " -1 0 holdfast:x",
                                        "a 1 rw 1 1 " OWNER " 99999999999999999999 0 holdfast:x",
                                        "a 1 a-kind-that-is-long 1 1 " OWNER " 10 0 holdfast:x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        message(wrong[i]);
        CHECK_CHANGES(HF_CHANGE_MISSED, HF_CHANGE_WATCHING);
    }
    over();
}

TEST(a_lost_connection_is_reported_and_the_watch_goes_on) {
    watch("redis://localhost");
    fake_hang_up(subscription(), "reset");
    CHECK_CHANGES(HF_CHANGE_MISSED);
    CHECK(strstr(rig.change, "reset"));
    fake_pass_us(rig.world, 5 * S);
    CHECK_CHANGES(HF_CHANGE_WATCHING);
    change("r 1 rw 78 0", "holdfast:x", RECORD, "");
    CHECK_CHANGES(HF_CHANGE_RELEASED);
    over();
}

TEST(a_server_that_fails_over_is_watched_again) {
    watch("redis+sentinel://s1,s2,s3/orders?plaintext=yes");
    rig.failed_over = true;
    for (size_t i = fake_stream_count(rig.world); i-- > 0;) {
        if (fake_stream(rig.world, i)->owner)
            fake_hang_up(fake_stream(rig.world, i), "reset");
    }
    fake_pass_us(rig.world, 20 * S);
    CHECK_CHANGES(HF_CHANGE_MISSED, HF_CHANGE_WATCHING);
    over();
}

TEST(a_key_that_was_deleted_is_written_again_and_something_may_be_missing) {
    watch("redis://localhost");
    rig.extended = ":0\r\n";
    fake_pass_us(rig.world, 5 * S);
    CHECK_CHANGES(HF_CHANGE_MISSED, HF_CHANGE_WATCHING);
    rig.extended = "-NOPERM no\r\n";
    fake_pass_us(rig.world, 6 * S);
    CHECK_CHANGES(HF_CHANGE_MISSED, HF_CHANGE_WATCHING);
    over();
}

TEST(a_watch_that_was_stopped_reports_nothing_and_another_may_begin) {
    watch("redis://localhost");
    stop_watch(&b);
    change("r 1 rw 78 0", "holdfast:x", RECORD, "");
    fake_pass_us(rig.world, 60 * S);
    fake_hang_up(subscription(), "reset");
    CHECK_EQ_INT(rig.change_count, 0);
    start_watch(&b);
    fake_pass_us(rig.world, 5 * S);
    CHECK_CHANGES(HF_CHANGE_WATCHING);
    change("r 1 rw 78 0", "holdfast:x", RECORD, "");
    CHECK_CHANGES(HF_CHANGE_RELEASED);
    over();
}
