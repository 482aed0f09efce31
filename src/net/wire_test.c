/* A wire, in plaintext and over TLS: what leaves, what its owner is notified of, and when. The
 * streams lead to a server in memory. */
#include "net/wire.h"

#include "check.h"
#include "support/fake_streams.h"
#include "support/tls_server.h"

#include <holdfast/holdfast.h>

enum { S = 1000000, DAY_S = 86400 };

static const int64_t now_s = 1700000000; /* the fake world's wall clock at its beginning */

static struct world *world;
static struct tls_server server;
static struct tls_peer *tls_end; /* the server's end of the last connection */
static struct net_security security;
static const char *const *protocols; /* that the client offers */
static struct world_peer peer = {.host = "db.example", .port = 7, .timeout_us = 2 * S};
static struct net_wire wire;

static int opened, closed;
static int reason;
static char why[800];
static char received[1 << 16];
static size_t received_size;
static bool closes_when_opened, closes_when_received;

/* ---- The owner ---- */

static void wire_opened(struct net_wire *w) {
    opened++;
    if (closes_when_opened)
        net_wire_close(w);
}

static void wire_received(struct net_wire *w, const char *bytes, size_t size) {
    memcpy(received + received_size, bytes, size);
    received_size += size;
    if (closes_when_received)
        net_wire_close(w);
}

static void wire_closed(struct net_wire *w, int with_reason, const char *text) {
    CHECK(!net_wire_is_open(w));
    closed++;
    reason = with_reason;
    snprintf(why, sizeof(why), "%s", text ? text : "");
}

/* Of a protocol in which TLS starts when the client asks for it. */
static void wire_before_tls(struct net_wire *w, const char *bytes, size_t size) {
    wire_received(w, bytes, size);
    net_wire_start_tls(w, "STARTTLS", 8);
}

static const struct net_wire_events events = {wire_opened, wire_received, wire_closed, NULL};
static const struct net_wire_events asking = {wire_opened, wire_received, wire_closed,
                                              wire_before_tls};
static const struct net_wire_events *owner = &events;

static void check_closed(int with_reason, const char *words) {
    CHECK_EQ_INT(closed, 1);
    CHECK_EQ_STR(hf_error_name(reason), hf_error_name(with_reason));
    if (!strstr(why, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", why, words);
}

static bool has_received(const char *text) {
    return received_size == strlen(text) && memcmp(received, text, received_size) == 0;
}

static void say(const char *text) {
    CHECK_EQ_INT(net_wire_send(&wire, text, strlen(text)), HF_OK);
    fake_settle(world);
}

/* ---- A wire and its server ---- */

/* Opens a wire as the URL says. If the URL ends with "ca=", the server's CA is appended. */
static void begin(const char *url_text) {
    char whole[256], *text = NULL;
    struct url url;
    const char *url_why;
    setenv("HOLDFAST_MODULE_PATH", TLS_MODULE_DIR, 1);
    world = fake_world();
    tls_server_open(&server, "DNS:db.example", now_s - DAY_S, now_s + DAY_S);
    bool trusts = strcmp(url_text + strlen(url_text) - 3, "ca=") == 0;
    snprintf(whole, sizeof(whole), "%s%s", url_text, trusts ? server.ca : "");
    CHECK_EQ_INT(url_parse(whole, &url, &url_why), HF_OK);
    CHECK_EQ_INT(net_security_open(&security, &url, "anys", protocols, &text), HF_OK);
    url_free(&url);
    CHECK_EQ_INT(net_wire_init(&wire, world, &peer, &security, owner), HF_OK);
    CHECK_EQ_INT(net_wire_open(&wire), HF_OK);
    fake_settle(world);
}

static void over(void) {
    net_wire_drop(&wire);
    tls_peer_free(tls_end);
    tls_server_close(&server);
    net_security_close(&security);
    world_close(world);
}

static struct fake_stream *stream(void) {
    return fake_last(world);
}

static void take_sent(void) {
    struct fake_stream *s = fake_stream(world, fake_stream_count(world) - 1);
    tls_peer_feed(tls_end, s->bytes + s->read, s->written - s->read);
    s->read = s->written;
}

/* One turn of the server: it takes what was sent, and sends what it has to say. False: it had
 * nothing. */
static bool answer(void) {
    size_t size;
    take_sent();
    char *bytes = tls_peer_take(tls_end, &size);
    if (size && stream())
        fake_answer(stream(), bytes, size);
    free(bytes);
    return size;
}

static void accept_tls(void) {
    tls_peer_free(tls_end);
    tls_end = tls_peer_new(&server);
    fake_accept(stream());
    while (answer()) {}
}

static void say_back(const char *text) {
    tls_peer_say(tls_end, text, strlen(text));
    answer();
}

static bool has_left(const char *word) {
    struct fake_stream *s = fake_stream(world, fake_stream_count(world) - 1);
    return memmem(s->bytes, s->size, word, strlen(word));
}

/* ---- Plaintext ---- */

TEST(in_plaintext_bytes_go_through_as_they_are) {
    begin("any://db.example");
    CHECK_EQ_INT(opened, 0);
    fake_accept(stream());
    CHECK_EQ_INT(opened, 1);
    say("question");
    CHECK(has_left("question"));
    fake_answer_text(stream(), "answer");
    CHECK(has_received("answer"));
    fake_hang_up(stream(), "the server closed the connection");
    check_closed(HF_UNREACHABLE, "the server closed the connection");
    CHECK(!strstr(why, "TLS"));
    over();
}

TEST(in_plaintext_a_wire_goes_no_farther_than_private_networks) {
    begin("any://db.example");
    CHECK_EQ_INT(wire.stream.farthest, WORLD_PRIVATE);
    wire.stream.reach = WORLD_PUBLIC;
    fake_hang_up(stream(), "203.0.113.5 is a public address");
    check_closed(HF_BAD_URL,
                 "203.0.113.5 is a public address: in plaintext, anybody on the network "
                 "path could read the password and change locks; use TLS (anys)");
    over();
}

TEST(with_tls_or_by_request_a_wire_goes_anywhere) {
    begin("any://db.example?plaintext=yes");
    CHECK_EQ_INT(wire.stream.farthest, WORLD_PUBLIC);
    over();
    begin("anys://db.example?ca=");
    CHECK_EQ_INT(wire.stream.farthest, WORLD_PUBLIC);
    over();
}

TEST(in_plaintext_an_alert_means_that_the_server_expects_tls) {
    begin("any://db.example");
    fake_accept(stream());
    fake_answer(stream(), "\x15\x03\x03\0\x02\x02\x46", 7);
    check_closed(HF_UNREACHABLE, "the server expects TLS: use a URL that begins with anys");
    CHECK_EQ_INT(received_size, 0);
    over();
}

TEST(in_plaintext_the_byte_of_an_alert_means_nothing_later) {
    begin("any://db.example");
    fake_accept(stream());
    fake_answer_text(stream(), "a");
    fake_answer_text(stream(), "\x15");
    CHECK(has_received("a\x15"));
    over();
}

TEST(in_plaintext_a_server_that_hangs_up_without_a_word_may_expect_tls) {
    begin("any://db.example");
    fake_accept(stream());
    fake_hang_up(stream(), "the server closed the connection");
    check_closed(HF_UNREACHABLE, "without an answer; if it expects TLS, use a URL that begins with "
                                 "anys");
    over();
}

/* ---- TLS ---- */

TEST(with_tls_nothing_is_readable_on_the_way) {
    begin("anys://db.example?ca=");
    fake_accept(stream());
    CHECK_EQ_INT(opened, 0);
    tls_end = tls_peer_new(&server);
    while (answer()) {}
    CHECK_EQ_INT(opened, 1);
    say("question");
    CHECK(!has_left("question"));
    take_sent();
    CHECK(tls_end->said_size == 8 && memcmp(tls_end->said, "question", 8) == 0);
    say_back("answer");
    CHECK(has_received("answer"));
    over();
}

TEST(tls_can_begin_when_the_client_asks_for_it) {
    owner = &asking;
    begin("anys://db.example?ca=");
    fake_accept(stream());
    CHECK(fake_stream(world, 0)->size == 0);
    fake_answer(stream(), "hello", 5);
    CHECK(has_received("hello") && has_left("STARTTLS"));
    CHECK_EQ_INT(opened, 0);
    fake_stream(world, 0)->read = 8;
    tls_end = tls_peer_new(&server);
    while (answer()) {}
    CHECK_EQ_INT(opened, 1);
    say("a secret");
    CHECK(!has_left("secret"));
    take_sent();
    CHECK(tls_end->said_size == 8 && memcmp(tls_end->said, "a secret", 8) == 0);
    over();
}

TEST(a_server_that_says_nothing_before_tls_is_given_up) {
    owner = &asking;
    begin("anys://db.example?ca=");
    fake_accept(stream());
    fake_pass_us(world, 2 * S);
    check_closed(HF_UNREACHABLE, "did not complete the TLS handshake in time");
    over();
}

TEST(a_certificate_for_another_name_ends_the_wire_and_the_server_gets_an_alert) {
    begin("anys://db.example?server_name=other.example&ca=");
    accept_tls();
    check_closed(HF_DENIED, "is not for other.example, but for db.example");
    CHECK_EQ_INT(opened, 0);
    CHECK(tls_end->failed);
    over();
}

TEST(a_server_that_does_not_speak_tls_is_reported) {
    begin("anys://db.example?ca=");
    fake_accept(stream());
    fake_answer_text(stream(), "-ERR unknown command\r\n");
    check_closed(HF_UNREACHABLE, "does not speak TLS at this port");
    CHECK_EQ_INT(opened, 0);
    over();
}

TEST(a_handshake_that_takes_too_long_ends_before_the_time_to_connect) {
    begin("anys://db.example?ca=");
    fake_accept(stream());
    fake_pass_us(world, 1799999);
    CHECK_EQ_INT(closed, 0);
    fake_pass_us(world, 1);
    check_closed(HF_UNREACHABLE, "did not complete the TLS handshake in time");
    over();
}

TEST(once_it_is_open_silence_does_not_end_it) {
    begin("anys://db.example?ca=");
    accept_tls();
    fake_pass_us(world, 3600LL * S);
    CHECK_EQ_INT(closed, 0);
    over();
}

TEST(a_server_that_hangs_up_in_the_handshake_is_reported) {
    begin("anys://db.example?ca=");
    fake_accept(stream());
    fake_hang_up(stream(), "the server closed the connection");
    check_closed(HF_UNREACHABLE, "the server closed the connection, in the TLS handshake");
    over();
}

TEST(an_end_that_is_announced_is_the_end) {
    begin("anys://db.example?ca=");
    accept_tls();
    SSL_shutdown(tls_end->ssl);
    answer();
    check_closed(HF_UNREACHABLE, "the server closed the connection");
    over();
}

TEST(half_a_record_is_nothing) {
    begin("anys://db.example?ca=");
    accept_tls();
    tls_peer_say(tls_end, "answer", 6);
    size_t size;
    char *bytes = tls_peer_take(tls_end, &size);
    fake_answer(stream(), bytes, size - 1);
    CHECK_EQ_INT(received_size, 0);
    fake_answer(stream(), bytes + size - 1, 1);
    CHECK(has_received("answer"));
    free(bytes);
    over();
}

TEST(a_wire_can_be_opened_again_and_resumes_its_session) {
    begin("anys://db.example?ca=");
    accept_tls();
    say_back("x"); /* with it, the server's session tickets */
    fake_hang_up(stream(), "cut");
    CHECK_EQ_INT(closed, 1);
    CHECK_EQ_INT(net_wire_open(&wire), HF_OK);
    fake_settle(world);
    accept_tls();
    CHECK_EQ_INT(opened, 2);
    CHECK(SSL_session_reused(tls_end->ssl));
    over();
}

TEST(no_memory_for_the_handshake_is_reported) {
    begin("anys://db.example?ca=");
    fake_fail_send(world, HF_NO_MEMORY);
    fake_accept(stream());
    check_closed(HF_NO_MEMORY, "");
    over();
}

/* Nothing may follow bytes that were encrypted but not sent, since the sequence would have a
 * gap. */
TEST(no_memory_to_send_ends_the_wire_from_the_dispatch_and_nothing_follows) {
    begin("anys://db.example?ca=");
    accept_tls();
    size_t before = stream()->size;
    fake_fail_send(world, HF_NO_MEMORY);
    CHECK_EQ_INT(net_wire_send(&wire, "first", 5), HF_NO_MEMORY);
    fake_fail_send(world, HF_OK);
    CHECK_EQ_INT(closed, 0); /* no call to a wire calls its owner */
    CHECK_EQ_INT(net_wire_send(&wire, "second", 6), HF_OK);
    CHECK_EQ_INT(fake_stream(world, 0)->size, before);
    fake_settle(world);
    check_closed(HF_NO_MEMORY, "");
    over();
}

TEST(the_protocol_that_the_server_chose_is_known_once_the_wire_is_open) {
    static const char *const offered[] = {"h2", "http/1.1", NULL};
    protocols = offered;
    begin("anys://db.example?ca=");
    tls_server_choose(&server, "h2");
    CHECK(!net_wire_protocol(&wire));
    accept_tls();
    CHECK_EQ_STR(net_wire_protocol(&wire), "h2");
    fake_hang_up(stream(), "cut");
    CHECK(!net_wire_protocol(&wire));
    over();
}

TEST(a_plaintext_wire_has_no_protocol) {
    begin("any://db.example");
    fake_accept(stream());
    CHECK(!net_wire_protocol(&wire));
    over();
}

/* ---- Closing from within ---- */

TEST(the_owner_may_close_it_when_it_is_opened) {
    closes_when_opened = true;
    begin("anys://db.example?ca=");
    accept_tls();
    CHECK_EQ_INT(opened, 1);
    CHECK(!net_wire_is_open(&wire));
    CHECK_EQ_INT(closed, 0);
    over();
}

TEST(the_owner_may_close_it_when_bytes_come_and_hears_no_more_of_them) {
    closes_when_received = true;
    begin("anys://db.example?ca=");
    accept_tls();
    tls_peer_say(tls_end, "one", 3);
    tls_peer_say(tls_end, "two", 3);
    answer();
    CHECK(has_received("one"));
    CHECK_EQ_INT(closed, 0);
    over();
}
