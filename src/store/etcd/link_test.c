/* The link: each call is returned once, whatever happens to connections and members. The failures
 * are rows 15 and 17 of FAILURES.md. */
#include "store/etcd/etcd_test.h"

static struct rig rig;
static struct asked a, b;

/* A store that is connected to the first of its members. */
static void connected(const char *url) {
    server_start();
    rig_open(&rig, url);
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &a, "first", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    asked_clear(&a);
}

static void over(void) {
    rig_close(&rig);
    server_stop();
    asked_clear(&a);
    asked_clear(&b);
}

static const char *host_of_last(void) {
    return fake_last(rig.world)->owner->peer->host;
}

TEST(nothing_is_connected_before_something_is_asked) {
    rig_open(&rig, "etcd://a,b");
    fake_pass_us(rig.world, 60 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 0);
    over();
}

TEST(what_waits_for_the_connection_goes_out_in_one_write) {
    server_start();
    rig_open(&rig, "etcd://a");
    ask_inspect(&rig, &a, "x");
    ask_inspect(&rig, &b, "y");
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    fake_accept(fake_last(rig.world));
    CHECK_EQ_INT(fake_last(rig.world)->writes, 1);
    over();
}

TEST(a_call_without_an_answer_is_sent_again_to_the_next_member) {
    connected("etcd://a,b");
    server.is_silent = true;
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.completions, 0);
    server.is_silent = false;
    fake_hang_up(fake_last(rig.world), "reset");
    CHECK_EQ_STR(host_of_last(), "b");
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(what_was_never_sent_is_refused_when_all_members_have_failed) {
    rig_open(&rig, "etcd://a,b");
    fake_fail_open(rig.world, HF_UNREACHABLE);
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 10 * S);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    over();
}

TEST(what_was_sent_is_unknown_when_its_time_is_over) {
    connected("etcd://a,b?timeout=1000");
    server.is_silent = true;
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    over();
}

TEST(a_member_that_stops_answering_is_given_up) {
    connected("etcd://a,b?timeout=1000");
    server.is_silent = true;
    ask_acquire(&rig, &a, "x", 0);
    fake_pass_us(rig.world, 2 * S);
    server.is_silent = false;
    ask_acquire(&rig, &b, "y", 0);
    CHECK_EQ_STR(host_of_last(), "b");
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

static void refuse_txns(const char *status, const char *why) {
    server.refused = "KV/Txn";
    server.status = status;
    server.why = why;
}

static void left_for_the_next(const char *status, const char *why) {
    connected("etcd://a,b");
    refuse_txns(status, why);
    server.refuses_once = true;
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_STR(host_of_last(), "b");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(a_member_that_cannot_serve_is_left_for_the_next) {
    left_for_the_next("14", "etcdserver: no leader");
}

/* What etcd answers when its own time-out ends a request, for example while a leader is elected. */
TEST(a_member_that_gave_up_is_left_for_the_next) {
    left_for_the_next("2", "context deadline exceeded");
}

TEST(a_member_that_gave_up_under_another_name_is_left_for_the_next) {
    left_for_the_next("2", "context canceled");
}

TEST(what_the_server_refuses_is_refused) {
    static const struct {
        const char *status, *why;
        int reason;
    } cases[] = {
        {"7", "etcdserver: permission denied", HF_DENIED},
        {"8", "etcdserver: mvcc: database space exceeded", HF_STORE_FULL},
        {"11", "something else", HF_BAD_STORE},
    };
    connected("etcd://a,b");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refuse_txns(cases[i].status, cases[i].why);
        ask_acquire(&rig, &a, "x", 0);
        CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
        CHECK_EQ_INT(a.op.reason, cases[i].reason);
        CHECK_EQ_STR(a.op.text, cases[i].why);
        asked_clear(&a);
    }
    CHECK_EQ_STR(host_of_last(), "a");
    over();
}

TEST(a_login_is_repeated_when_the_server_does_not_know_the_token) {
    connected("etcd://jo:secret@a");
    CHECK_EQ_INT(server.logins, 1);
    refuse_txns("16", "etcdserver: invalid auth token");
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.reason, HF_DENIED); /* after a few logins, and not forever */
    CHECK_EQ_INT(server.logins, 3);
    server.refused = NULL;
    ask_acquire(&rig, &b, "y", 0);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    over();
}

TEST(a_server_without_authentication_needs_no_login) {
    server_start();
    server.refused = "Authenticate";
    server.status = "9";
    server.why = "etcdserver: authentication is not enabled";
    rig_open(&rig, "etcd://jo:secret@a");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(a_wrong_password_is_reported) {
    server_start();
    server.refused = "Authenticate";
    server.status = "3";
    server.why = "etcdserver: authentication failed, invalid user ID or password";
    rig_open(&rig, "etcd://jo:secret@a,b");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.reason, HF_DENIED);
    CHECK(strstr(a.op.text, "invalid user"));
    over();
}

TEST(bytes_that_are_not_grpc_break_the_connection) {
    connected("etcd://a,b");
    fake_serve(rig.world, NULL, NULL);
    ask_acquire(&rig, &a, "x", 0);
    fake_answer_text(fake_last(rig.world), "HTTP/1.1 400 Bad Request\r\n\r\n");
    fake_serve(rig.world, serve_etcd, NULL);
    CHECK_EQ_STR(host_of_last(), "b");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}
