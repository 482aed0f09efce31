/* TLS as a filter: the module, loaded as the store loads it, against a server in memory. */
#include "base/module.h"
#include "check.h"
#include "net/tls.h"
#include "support/tls_server.h"

#include <holdfast/holdfast.h>

#define NAMES "DNS:db.example,DNS:*.wild.example,IP:10.0.0.7,IP:fe80::1"

enum { DAY_S = 86400, AT_ONCE = 1 << 30 };

static const int64_t now_s = 1700000000, hour_us = INT64_C(3600000000);

static struct tls_server server;
static const struct net_tls_module *module;
static struct net_tls *tls;
static struct net_tls_channel *channel;
static struct tls_peer *peer;
static const char *const *protocols; /* that the client offers */
static char said[1 << 21];           /* by the server */
static size_t said_size;
static bool ended; /* the channel said so */

static int open_as(const char *name, const char *ca, char **ret_text) {
    const void *symbol;
    setenv("HOLDFAST_MODULE_PATH", TLS_MODULE_DIR, 1);
    CHECK_EQ_INT(module_load(NET_TLS_MODULE, NET_TLS_MODULE_SYMBOL, &symbol, ret_text), HF_OK);
    module = symbol;
    CHECK_EQ_INT(module->abi, NET_TLS_ABI);
    struct net_tls_settings settings = {.name = name, .ca = ca, .protocols = protocols};
    return module->open(&settings, &tls, ret_text);
}

static void open_named(const char *name) {
    char *text = NULL;
    tls_server_open(&server, NAMES, now_s - DAY_S, now_s + 30 * DAY_S);
    CHECK_EQ_INT(open_as(name, server.ca, &text), HF_OK);
}

static void over(void) {
    if (channel)
        module->end(channel);
    module->close(tls);
    tls_peer_free(peer);
    tls_server_close(&server);
}

static void connect_to(const char *host, uint16_t port, int64_t wall_us) {
    if (channel)
        module->end(channel);
    tls_peer_free(peer);
    channel = module->start(tls, host, port, wall_us);
    CHECK(channel && !channel->open);
    peer = tls_peer_new(&server);
    said_size = 0;
    ended = false;
}

static void connect_at(int64_t wall_us) {
    connect_to("localhost", 6379, wall_us);
}

static void read_all(void) {
    int got = 1;
    while (!ended && got > 0) {
        got = module->read(channel, said + said_size, sizeof(said) - said_size);
        said_size += got > 0 ? (size_t)got : 0;
    }
    ended |= got < 0;
}

static bool send_pending(size_t piece) {
    const char *bytes;
    size_t size = module->pending(channel, &bytes);
    for (size_t at = 0; at < size; at += piece)
        tls_peer_feed(peer, bytes + at, size - at < piece ? size - at : piece);
    module->sent(channel);
    return size;
}

static bool deliver(size_t first, size_t piece) {
    size_t size, at = 0;
    char *bytes = tls_peer_take(peer, &size);
    while (at < size && !ended) {
        size_t part = at == 0 && first ? first : piece;
        part = size - at < part ? size - at : part;
        CHECK(module->feed(channel, bytes + at, part));
        read_all();
        at += part;
    }
    free(bytes);
    return size;
}

/* Lets bytes flow in both directions until there are none left, in pieces of this size. Each time
 * the server sends something, the first piece of it has the size `first`, unless that is 0. */
static void flow(size_t first, size_t piece) {
    bool more = true;
    while (more && !ended) {
        more = send_pending(piece);
        more |= deliver(first, piece);
    }
    send_pending(piece); /* an alert */
}

static void say(const char *text) {
    CHECK(module->write(channel, text, strlen(text)));
}

/* A question and its answer. */
static void talk(size_t first, size_t piece) {
    size_t before = said_size;
    peer->said_size = 0;
    say("the question");
    flow(first, piece);
    CHECK(peer->said_size == 12 && memcmp(peer->said, "the question", 12) == 0);
    tls_peer_say(peer, "the answer", 10);
    flow(first, piece);
    CHECK(said_size == before + 10 && memcmp(said + before, "the answer", 10) == 0);
}

static void check_open(void) {
    if (!channel->open || ended)
        test_fail(__FILE__, __LINE__, "not open: %s", channel->why);
}

static void check_refused(int reason, const char *words) {
    CHECK(ended);
    CHECK_EQ_STR(hf_error_name(channel->reason), hf_error_name(reason));
    if (!strstr(channel->why, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", channel->why, words);
    CHECK_EQ_INT(peer->said_size, 0);
}

static void only_version(int version) {
    CHECK(SSL_CTX_set_min_proto_version(server.context, version));
    CHECK(SSL_CTX_set_max_proto_version(server.context, version));
}

/* ---- Bytes ---- */

static void talk_in_pieces(int version) {
    open_named("db.example");
    only_version(version);
    for (size_t piece = 1; piece < 3000; piece = piece * 3 / 2 + 1) {
        connect_at(now_s * 1000000);
        flow(0, piece);
        check_open();
        talk(0, piece);
        CHECK_EQ_INT(SSL_version(peer->ssl), version);
    }
    over();
}

TEST(pieces_of_every_size_make_the_same_conversation_in_tls_1_3) {
    talk_in_pieces(TLS1_3_VERSION);
}

TEST(pieces_of_every_size_make_the_same_conversation_in_tls_1_2) {
    talk_in_pieces(TLS1_2_VERSION);
}

TEST(a_cut_after_every_byte_of_what_the_server_sends_is_nothing) {
    open_named("db.example");
    SSL_CTX_set_num_tickets(server.context, 0); /* so that each handshake is a whole one */
    for (size_t first = 1; first < 1000; first++) {
        connect_at(now_s * 1000000);
        flow(first, AT_ONCE);
        check_open();
        CHECK(!channel->resumed);
        talk(first % 40 + 1, AT_ONCE);
    }
    over();
}

TEST(a_mebibyte_goes_each_way) {
    open_named("db.example");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_open();
    enum { SIZE = 1 << 20 };
    char *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 >> 3);
    CHECK(module->write(channel, bytes, SIZE));
    flow(0, 1000);
    CHECK(peer->said_size == SIZE && memcmp(peer->said, bytes, SIZE) == 0);
    tls_peer_say(peer, bytes, SIZE);
    flow(0, 1000);
    CHECK(said_size == SIZE && memcmp(said, bytes, SIZE) == 0);
    free(bytes);
    over();
}

TEST(new_keys_change_nothing) {
    open_named("db.example");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    for (int i = 0; i < 5; i++) {
        CHECK(SSL_key_update(peer->ssl, SSL_KEY_UPDATE_REQUESTED));
        talk(0, 1);
    }
    over();
}

TEST(a_new_handshake_within_the_connection_is_declined) {
    open_named("db.example");
    only_version(TLS1_2_VERSION);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_open();
    SSL_renegotiate(peer->ssl);
    SSL_do_handshake(peer->ssl);
    flow(0, AT_ONCE);
    CHECK(peer->failed && ended); /* OpenSSL's server wants it or nothing */
    over();
}

/* ---- Ends ---- */

TEST(an_end_that_is_announced_is_one) {
    open_named("db.example");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    talk(0, AT_ONCE);
    SSL_shutdown(peer->ssl);
    flow(0, AT_ONCE);
    CHECK(ended && channel->reason == HF_UNREACHABLE);
    CHECK_EQ_STR(channel->why, "the server closed the connection");
    over();
}

TEST(what_is_no_tls_is_reported) {
    open_named("db.example");
    const char *answers[] = {"-ERR unknown command\r\n", "+PONG\r\n",
                             "HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\0\0\0\0\0\0"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        connect_at(now_s * 1000000);
        CHECK(module->feed(channel, answers[i], i == 3 ? 8 : strlen(answers[i])));
        read_all();
        check_refused(HF_UNREACHABLE, "does not speak TLS");
    }
    over();
}

TEST(what_was_changed_on_the_way_is_not_believed) {
    open_named("db.example");
    size_t size = 1, failures = 0;
    for (size_t place = 0; place < size; place++) {
        connect_at(now_s * 1000000);
        send_pending(AT_ONCE);
        char *bytes = tls_peer_take(peer, &size);
        if (place < size) /* a signature may be a byte shorter than the last */
            bytes[place] ^= 1;
        CHECK(module->feed(channel, bytes, size));
        free(bytes);
        read_all();
        flow(0, AT_ONCE);
        failures += !channel->open; /* some bytes do not matter, such as the version of a record */
        if (channel->open)
            talk(0, AT_ONCE);
    }
    CHECK(failures + 30 > size && size > 500);
    printf("# %zu of %zu\n", failures, size);
    over();
}

TEST(a_server_of_old_versions_alone_is_refused) {
    open_named("db.example");
    SSL_CTX_set_cipher_list(server.context, "DEFAULT@SECLEVEL=0");
    only_version(TLS1_1_VERSION);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_refused(HF_UNREACHABLE, "no TLS of version 1.2 or later");
    over();
}

/* ---- Certificates ---- */

TEST(the_time_is_the_one_that_is_told) {
    open_named("db.example");
    connect_at((now_s + 31 * DAY_S) * 1000000);
    flow(0, AT_ONCE);
    check_refused(HF_DENIED, "the server's certificate expired at 2023-12-14 22:13 UTC");
    connect_at((now_s - 2 * DAY_S) * 1000000);
    flow(0, AT_ONCE);
    check_refused(HF_DENIED, "the server's certificate is not valid before 2023-11-13 22:13 UTC");
    connect_at((now_s + 29 * DAY_S) * 1000000);
    flow(0, AT_ONCE);
    check_open();
    over();
}

static void check_name(const char *name, const char *refused_with) {
    channel = NULL;
    peer = NULL;
    open_named(name);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    if (refused_with)
        check_refused(HF_DENIED, refused_with);
    else
        check_open();
    over();
}

TEST(the_certificate_must_be_for_the_name) {
    check_name("db.example", NULL);
    check_name("DB.Example", NULL);
    check_name("db.example.", NULL);
    check_name("a.wild.example", NULL);
    check_name("10.0.0.7", NULL);
    check_name("fe80::1", NULL);
    check_name("fe80::1%eth0", NULL);
    check_name("example",
               "is not for example, but for db.example, *.wild.example, 10.0.0.7, fe80::1");
    check_name("a.b.wild.example", "is not for");
    check_name("wild.example", "is not for");
    check_name("x.db.example", "is not for");
    check_name("10.0.0.8", "is not for 10.0.0.8");
    check_name("fe80::2", "is not for fe80::2");
    check_name("test",
               "is not for test"); /* its common name, which counts only where there are no names */
}

TEST(what_openssl_would_take_for_any_name_is_refused) {
    static const char *const names[] = {"", ".", ".example", ".db.example"};
    tls_server_open(&server, NAMES, now_s - DAY_S, now_s + DAY_S);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *text = NULL;
        CHECK_EQ_INT(open_as(names[i], server.ca, &text), HF_BAD_URL);
        CHECK(text && strstr(text, "is not a name that a certificate can have"));
        free(text);
    }
    char name[300], *text = NULL;
    memset(name, 'x', sizeof(name));
    name[299] = 0;
    CHECK_EQ_INT(open_as(name, server.ca, &text), HF_BAD_URL);
    free(text);
    tls_server_close(&server);
}

TEST(who_is_not_trusted_is_notified) {
    struct tls_server other;
    char *text = NULL;
    tls_server_open(&server, NAMES, now_s - DAY_S, now_s + DAY_S);
    tls_server_open(&other, NAMES, now_s - DAY_S, now_s + DAY_S);
    CHECK_EQ_INT(open_as("db.example", other.ca, &text), HF_OK);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_refused(HF_DENIED, "the server's certificate is self-signed");
    CHECK(peer->failed); /* it got an alert */
    tls_server_close(&other);
    over();
}

/* ---- Sessions ---- */

static void resume(int version) {
    open_named("db.example");
    only_version(version);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    talk(0, AT_ONCE);
    CHECK(!channel->resumed);
    for (int64_t i = 1; i <= 5; i++) {
        connect_at(now_s * 1000000 + i * hour_us / 5 -
                   1); /* each leads to the next, but not forever */
        flow(0, AT_ONCE);
        check_open();
        CHECK(channel->resumed && SSL_session_reused(peer->ssl));
        talk(0, AT_ONCE);
    }
    connect_at(now_s * 1000000 + hour_us);
    flow(0, AT_ONCE);
    check_open();
    CHECK(!channel->resumed);
    connect_at(now_s * 1000000 + hour_us + 1);
    flow(0, AT_ONCE);
    CHECK(channel->resumed);
    connect_at(now_s * 1000000); /* the clock went back */
    flow(0, AT_ONCE);
    check_open();
    CHECK(!channel->resumed);
    over();
}

TEST(a_session_is_resumed_for_an_hour_after_the_certificate_was_verified) {
    resume(TLS1_3_VERSION);
}

TEST(a_session_is_resumed_for_an_hour_in_tls_1_2) {
    resume(TLS1_2_VERSION);
}

TEST(a_session_that_did_not_lead_to_a_connection_is_not_tried_again) {
    open_named("db.example");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    talk(0, AT_ONCE);
    connect_at(now_s * 1000000); /* with the session, but the server never answers */
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_open();
    CHECK(!channel->resumed);
    over();
}

TEST(a_session_of_another_key_of_the_server_makes_a_whole_handshake) {
    open_named("db.example");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    talk(0, AT_ONCE);
    unsigned char keys[80] = {1};
    CHECK_EQ_INT(SSL_CTX_set_tlsext_ticket_keys(server.context, keys, sizeof(keys)), 1);
    connect_at(now_s * 1000000 + 1);
    flow(0, AT_ONCE);
    check_open();
    CHECK(!channel->resumed);
    over();
}

TEST(the_first_expiry_is_known_and_kept) {
    struct net_tls_expiries expiries;
    open_named("db.example");
    module->expiries(tls, &expiries);
    CHECK(expiries.server_us == 0 && expiries.own_us == 0);
    for (int i = 0; i < 2; i++) {
        connect_at(now_s * 1000000);
        flow(0, AT_ONCE);
        check_open();
        module->expiries(tls, &expiries);
        CHECK_EQ_INT(expiries.server_us, (now_s + 30 * DAY_S) * 1000000);
    }
    over();
}

/* ---- Several servers ---- */

static void open_nameless(void) {
    char *text = NULL;
    tls_server_open(&server, NAMES, now_s - DAY_S, now_s + 30 * DAY_S);
    CHECK_EQ_INT(open_as(NULL, server.ca, &text), HF_OK);
}

static void shake_hands_with(const char *host, uint16_t port) {
    connect_to(host, port, now_s * 1000000);
    flow(0, AT_ONCE);
}

TEST(without_a_name_each_certificate_must_be_for_its_host) {
    open_nameless();
    shake_hands_with("db.example", 1);
    check_open();
    shake_hands_with("10.0.0.7", 1);
    check_open();
    shake_hands_with("10.0.0.8", 1);
    check_refused(HF_DENIED, "is not for 10.0.0.8");
    over();
}

TEST(a_host_that_no_certificate_could_be_for_is_refused) {
    open_nameless();
    channel = module->start(tls, ".example", 1, now_s * 1000000);
    CHECK(channel && !channel->open);
    CHECK_EQ_STR(hf_error_name(channel->reason), "HF_DENIED");
    CHECK(strstr(channel->why, "is not a name that a certificate can have"));
    over();
}

/* A session would be accepted in place of a certificate. */
static void keep_apart(int version) {
    open_nameless();
    only_version(version);
    shake_hands_with("db.example", 1);
    talk(0, AT_ONCE);
    shake_hands_with("elsewhere.example", 1);
    check_refused(HF_DENIED, "is not for elsewhere.example");
    shake_hands_with("10.0.0.7", 1);
    check_open();
    CHECK(!channel->resumed);
    shake_hands_with("db.example", 2);
    check_open();
    CHECK(!channel->resumed);
    shake_hands_with("db.example", 1);
    check_open();
    CHECK(channel->resumed);
    over();
}

TEST(a_session_is_not_resumed_with_another_server) {
    keep_apart(TLS1_3_VERSION);
}

TEST(a_session_is_not_resumed_with_another_server_in_tls_1_2) {
    keep_apart(TLS1_2_VERSION);
}

TEST(servers_of_long_ago_are_forgotten_even_while_connected) {
    open_nameless();
    shake_hands_with("db.example", 1);
    struct net_tls_channel *first = channel;
    channel = NULL;
    for (uint16_t port = 2; port < 300; port++)
        shake_hands_with("db.example", port);
    talk(0, AT_ONCE);
    shake_hands_with("db.example", 299);
    CHECK(channel->resumed);
    shake_hands_with("db.example", 1);
    check_open();
    CHECK(!channel->resumed);
    module->end(first);
    over();
}

/* ---- Protocols ---- */

static const char *const two[] = {"h2", "http/1.1", NULL};

static void offer_to_server_that_chooses(const char *protocol) {
    protocols = two;
    open_named("db.example");
    tls_server_choose(&server, protocol);
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
}

TEST(the_protocol_is_the_one_that_the_server_chose) {
    offer_to_server_that_chooses("http/1.1");
    check_open();
    CHECK_EQ_STR(channel->protocol, "http/1.1");
    talk(0, AT_ONCE);
    over();
}

TEST(protocols_are_chosen_in_tls_1_2_too) {
    protocols = two;
    open_named("db.example");
    only_version(TLS1_2_VERSION);
    tls_server_choose(&server, "h2");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_open();
    CHECK_EQ_STR(channel->protocol, "h2");
    over();
}

TEST(a_resumed_session_has_a_protocol) {
    offer_to_server_that_chooses("h2");
    talk(0, AT_ONCE);
    connect_at(now_s * 1000000);
    CHECK(!channel->protocol);
    flow(0, AT_ONCE);
    check_open();
    CHECK(channel->resumed);
    CHECK_EQ_STR(channel->protocol, "h2");
    over();
}

TEST(a_server_that_ignores_the_offer_has_chosen_none) {
    offer_to_server_that_chooses(NULL);
    check_open();
    CHECK(!channel->protocol);
    over();
}

/* Recent versions of OpenSSL also end the connection. */
TEST(a_protocol_that_was_not_offered_does_not_count_as_chosen) {
    offer_to_server_that_chooses("h3");
    CHECK(!channel->protocol);
    if (!channel->open)
        check_refused(HF_UNREACHABLE, "TLS failed: bad extension");
    over();
}

TEST(a_server_that_speaks_none_of_the_protocols_is_reported) {
    offer_to_server_that_chooses("");
    check_refused(HF_UNREACHABLE, "the server speaks none of the protocols");
    over();
}

TEST(without_an_offer_there_is_no_protocol) {
    open_named("db.example");
    tls_server_choose(&server, "h2");
    connect_at(now_s * 1000000);
    flow(0, AT_ONCE);
    check_open();
    CHECK(!channel->protocol);
    over();
}
