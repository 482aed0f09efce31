/* The store over TLS: what leaves, what is reported when it fails, and that each request comes back
 * once. The streams lead to a server in memory. */
#include "check.h"
#include "support/fake_redis.h"
#include "support/tls_server.h"

#define DONE "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n"
#define QUEUED "*4\r\n$6\r\nqueued\r\n:100\r\n:0\r\n:0\r\n"

enum { S = 1000000, DAY_S = 86400, STREAMS_MAX = 16 };

static const int64_t now_s = 1700000000; /* the fake world's wall clock at its beginning */

static struct rig rig;
static struct asked a, b;
static struct tls_server server;
static struct tls_peer *peers[STREAMS_MAX]; /* of each stream */
static const char *acquired;                /* the answer to an acquire */

/* Opens the URL. If it ends with "ca=", the server's CA is appended. */
static void open_store(const char *begin) {
    char url[256];
    setenv("HOLDFAST_MODULE_PATH", TLS_MODULE_DIR, 1);
    tls_server_open(&server, "DNS:db.example", now_s - DAY_S, now_s + DAY_S);
    bool trusts = strcmp(begin + strlen(begin) - 3, "ca=") == 0;
    snprintf(url, sizeof(url), "%s%s", begin, trusts ? server.ca : "");
    rig_open(&rig, url);
    acquired = DONE;
}

static void over(void) {
    rig_close(&rig);
    for (size_t i = 0; i < STREAMS_MAX; i++)
        tls_peer_free(peers[i]);
    tls_server_close(&server);
    asked_clear(&a);
    asked_clear(&b);
}

static size_t index_of(const struct fake_stream *stream) {
    size_t i = 0;
    while (fake_stream(rig.world, i) != stream)
        i++;
    CHECK(i < STREAMS_MAX);
    return i;
}

static bool hears(struct tls_peer *peer, const char *word) {
    return memmem(peer->said, peer->said_size, word, strlen(word));
}

static void answer(struct tls_peer *peer) {
    static const struct {
        const char *word, *answer;
    } answers[] = {{"AUTH", "+OK\r\n"}, {"PING", "+PONG\r\n"}};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (hears(peer, answers[i].word))
            tls_peer_say(peer, answers[i].answer, strlen(answers[i].answer));
    if (hears(peer, "EVAL"))
        tls_peer_say(peer, acquired, strlen(acquired));
    peer->said_size = 0;
}

static void take_over(struct fake_stream *stream) {
    struct tls_peer **peer = &peers[index_of(stream)];
    if (!*peer)
        *peer = tls_peer_new(&server);
    tls_peer_feed(*peer, stream->bytes + stream->read, stream->written - stream->read);
    stream->read = stream->written;
}

static void send_all(struct fake_stream *stream) {
    size_t size;
    char *bytes = tls_peer_take(peers[index_of(stream)], &size);
    if (size && stream->owner)
        fake_answer(stream, bytes, size);
    free(bytes);
}

/* Says yes to everything. */
static void serve(struct fake_stream *stream) {
    if (!stream->accepted)
        fake_accept(stream);
    take_over(stream);
    answer(peers[index_of(stream)]);
    send_all(stream);
}

static void check_refused(int reason, const char *words) {
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_STR(hf_error_name(a.op.reason), hf_error_name(reason));
    if (!a.op.text || !strstr(a.op.text, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", a.op.text ? a.op.text : "",
                  words);
}

static bool has_left(size_t index, const char *word) {
    struct fake_stream *stream = fake_stream(rig.world, index);
    return memmem(stream->bytes, stream->size, word, strlen(word));
}

/* ---- What leaves ---- */

TEST(what_is_asked_goes_through_tls_and_not_a_word_beside_it) {
    open_store("rediss://jo:hunter2@db.example?ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "name", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK(!has_left(0, "AUTH") && !has_left(0, "hunter2") && !has_left(0, "name"));
    over();
}

TEST(nothing_leaves_to_a_server_that_speaks_no_tls) {
    open_store("rediss://jo:hunter2@db.example?ca=");
    ask_acquire(&rig, &a, "name", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_answer_text(fake_stream(rig.world, 0), "-ERR unknown command\r\n");
    check_refused(HF_UNREACHABLE, "does not speak TLS");
    fake_pass_us(rig.world, 10 * S);
    for (size_t i = 0; i < fake_stream_count(rig.world); i++)
        CHECK(!has_left(i, "AUTH") && !has_left(i, "hunter2") && !has_left(i, "name"));
    over();
}

TEST(nothing_leaves_to_a_server_with_another_name) {
    open_store("rediss://jo:hunter2@db.example?server_name=other.example&ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "name", 0);
    check_refused(HF_DENIED, "is not for other.example, but for db.example");
    take_over(fake_stream(rig.world, 0));
    CHECK(peers[0]->failed); /* the server was sent an alert */
    over();
}

TEST(without_a_password_the_greeting_is_a_ping) {
    open_store("rediss://db.example?ca=");
    ask_acquire(&rig, &a, "x", 0);
    struct fake_stream *stream = fake_stream(rig.world, 0);
    fake_accept(stream);
    for (int i = 0; i < 3; i++) {
        take_over(stream);
        send_all(stream);
    }
    CHECK(hears(peers[0], "PING") && !hears(peers[0], "EVAL"));
    peers[0]->said_size = 0;
    tls_peer_say(peers[0], "+PONG\r\n", 7);
    send_all(stream);
    take_over(stream);
    CHECK(hears(peers[0], "EVAL"));
    over();
}

/* ---- Failures ---- */

TEST(a_client_certificate_that_is_missing_is_reported_at_once) {
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < 2; i++) {
        memset(peers, 0, sizeof(peers));
        open_store("rediss://db.example?ca=");
        SSL_CTX_set_max_proto_version(server.context, versions[i]);
        SSL_CTX_set_verify(server.context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        fake_serve(rig.world, serve, &rig);
        ask_acquire(&rig, &a, "x", 0);
        check_refused(HF_DENIED, "client certificate");
        over();
    }
}

TEST(a_server_that_accepts_and_says_nothing_is_left_in_time) {
    open_store("rediss://jo:hunter2@db.example?ca=");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_pass_us(rig.world, 1700000);
    CHECK_EQ_INT(a.completions, 0);
    fake_pass_us(rig.world, 100000);
    check_refused(HF_UNREACHABLE, "did not complete the TLS handshake in time");
    CHECK(!fake_stream(rig.world, 0)->owner && !has_left(0, "AUTH"));
    over();
}

TEST(a_server_that_hangs_up_in_the_handshake_is_reported) {
    open_store("rediss://db.example?ca=");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_hang_up(fake_stream(rig.world, 0), "the server closed the connection");
    check_refused(HF_UNREACHABLE, "the server closed the connection, in the TLS handshake");
    over();
}

/* The first request was sent before anything came, so it may have been done; what follows is not
 * sent. */
TEST(plaintext_to_a_server_that_hangs_up_for_want_of_tls_is_reported) {
    open_store("redis://localhost?timeout=300");
    ask_acquire(&rig, &b, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_hang_up(fake_stream(rig.world, 0), "the server closed the connection");
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(b.op.outcome, STORE_UNKNOWN);
    CHECK(strstr(b.op.text, "a URL that begins with rediss"));
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_last(rig.world));
    CHECK_EQ_STR(next_command(fake_last(rig.world)), "PING");
    CHECK_EQ_STR(next_command(fake_last(rig.world)), "");
    fake_hang_up(fake_last(rig.world), "the server closed the connection");
    check_refused(HF_UNREACHABLE, "a URL that begins with rediss");
    over();
}

TEST(plaintext_to_a_server_that_answers_with_an_alert_is_reported) {
    open_store("redis://jo:hunter2@localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_answer(fake_stream(rig.world, 0), "\x15\x03\x03\0\x02\x02\x46", 7);
    check_refused(HF_UNREACHABLE, "a URL that begins with rediss");
    over();
}

TEST(an_end_that_is_announced_is_a_lost_connection) {
    open_store("rediss://db.example?ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    SSL_shutdown(peers[0]->ssl);
    send_all(fake_stream(rig.world, 0));
    CHECK(!fake_stream(rig.world, 0)->owner);
    ask_acquire(&rig, &b, "x", 0);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    over();
}

/* What had no answer is sent again over the next connection, which also starts with a TLS
 * handshake. */
TEST(a_record_that_is_cut_is_a_lost_connection_and_what_was_sent_is_sent_again) {
    open_store("rediss://db.example?ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "x", 0);
    asked_clear(&a);
    fake_serve(rig.world, NULL, NULL);
    ask_acquire(&rig, &a, "x", 0);
    struct fake_stream *stream = fake_stream(rig.world, 0);
    take_over(stream);
    tls_peer_say(peers[0], DONE, strlen(DONE));
    size_t size;
    char *bytes = tls_peer_take(peers[0], &size);
    fake_answer(stream, bytes, size - 1);
    free(bytes);
    CHECK_EQ_INT(a.completions, 0);
    fake_hang_up(stream, "cut");
    fake_serve(rig.world, serve, &rig);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(no_memory_to_send_is_reported_and_ends_the_connection) {
    open_store("rediss://db.example?ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "x", 0);
    asked_clear(&a);
    fake_fail_send(rig.world, HF_NO_MEMORY);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_NO_MEMORY);
    CHECK(!fake_stream(rig.world, 0)->owner);
    fake_fail_send(rig.world, HF_OK);
    ask_acquire(&rig, &b, "x", 0);
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(nothing_follows_what_could_not_be_sent) {
    open_store("rediss://db.example?ca=");
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "x", 0);
    asked_clear(&a);
    fake_fail_send(rig.world, HF_NO_MEMORY);
    make_acquire(&a, "x", 0);
    rig_submit(&rig, &a);
    fake_fail_send(rig.world, HF_OK);
    size_t before = fake_stream(rig.world, 0)->size;
    make_acquire(&b, "y", 0);
    rig_submit(&rig, &b);
    CHECK_EQ_INT(fake_stream(rig.world, 0)->size, before);
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(a.op.reason, HF_NO_MEMORY);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(no_memory_for_the_handshake_is_reported) {
    open_store("rediss://db.example?ca=");
    ask_acquire(&rig, &a, "x", 0);
    fake_fail_send(rig.world, HF_NO_MEMORY);
    fake_accept(fake_stream(rig.world, 0));
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_NO_MEMORY);
    over();
}

/* ---- Sessions ---- */

TEST(the_subscription_resumes_the_session_of_the_commands) {
    open_store("rediss://db.example?ca=");
    acquired = QUEUED;
    fake_serve(rig.world, serve, &rig);
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    CHECK_EQ_INT(a.op.outcome, STORE_QUEUED);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    CHECK(!SSL_session_reused(peers[0]->ssl) && SSL_session_reused(peers[1]->ssl));
    fake_hang_up(fake_stream(rig.world, 0), "cut");
    fake_pass_us(rig.world, S);
    ask_acquire(&rig, &b, "y", 0);
    CHECK_EQ_INT(fake_stream_count(rig.world), 3);
    CHECK(SSL_session_reused(peers[2]->ssl));
    over();
}

TEST(closing_is_possible_at_every_moment) {
    for (int moment = 0; moment < 4; moment++) {
        memset(peers, 0, sizeof(peers));
        open_store("rediss://jo:hunter2@db.example?ca=");
        ask_acquire(&rig, &a, "x", 0);
        if (moment > 0)
            fake_accept(fake_stream(rig.world, 0));
        for (int i = 1; i < moment; i++) {
            take_over(fake_stream(rig.world, 0));
            send_all(fake_stream(rig.world, 0));
        }
        rig_close_store(&rig);
        CHECK_EQ_INT(a.completions, 1);
        over();
    }
}
