/* gRPC as bytes: calls, streams, refusals by the server, and malicious servers. The server is
 * libnghttp2's, or bytes made up by a test. */
#include "store/etcd/grpc.h"

#include "check.h"

#include <nghttp2/nghttp2.h>

/* ---- A server ---- */

struct answer {
    const uint8_t *bytes; /* of messages, with their prefixes */
    size_t size, sent;
    const char *status, *text; /* trailers; NULL: there are none */
};

struct server {
    nghttp2_session *session;
    struct grpc *grpc;
    char seen[2000]; /* "name: value;" of the last request's headers */
    uint8_t body[1 << 21];
    size_t body_size;
    int32_t stream;
    bool is_complete; /* the client has sent everything */
    uint32_t reset;   /* the client has ended the stream with this */
    struct answer answer;
    size_t piece; /* the size in which the client gets its bytes; 0: as they come */
};

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
    struct server *server = context;
    (void)session, (void)flags;
    size_t used = strlen(server->seen);
    snprintf(server->seen + used, sizeof server->seen - used, "%.*s: %.*s;", (int)name_size, name,
             (int)value_size, value);
    server->stream = frame->hd.stream_id;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t size, void *context) {
    struct server *server = context;
    (void)session, (void)flags, (void)stream;
    CHECK(server->body_size + size <= sizeof server->body);
    memcpy(server->body + server->body_size, bytes, size);
    server->body_size += size;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    struct server *server = context;
    (void)session;
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        server->reset = frame->rst_stream.error_code;
    bool has_content = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    server->is_complete |= has_content && frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    return 0;
}

static struct server *server_new(void) {
    struct server *server = calloc(1, sizeof *server);
    nghttp2_session_callbacks *callbacks;
    CHECK(server && (server->grpc = grpc_new("etcd:2379")));
    CHECK_EQ_INT(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    CHECK_EQ_INT(nghttp2_session_server_new(&server->session, callbacks, server), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(server->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return server;
}

static void server_free(struct server *server) {
    grpc_free(server->grpc);
    nghttp2_session_del(server->session);
    free(server);
}

static bool feed(struct server *server, const uint8_t *bytes, size_t size) {
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = server->piece && server->piece < size - at ? server->piece : size - at;
        if (!grpc_feed(server->grpc, (const char *)bytes + at, piece))
            return false;
    }
    return true;
}

/* Passes bytes on until neither side has anything to send. */
static void pump(struct server *server) {
    const uint8_t *bytes;
    for (bool is_busy = true; is_busy;) {
        ptrdiff_t size = grpc_output(server->grpc, &bytes);
        CHECK(size >= 0);
        is_busy = size > 0;
        if (size > 0)
            CHECK_EQ_INT(nghttp2_session_mem_recv(server->session, bytes, (size_t)size), size);
        size = nghttp2_session_mem_send(server->session, &bytes);
        CHECK(size >= 0);
        is_busy |= size > 0;
        if (size > 0)
            CHECK(feed(server, bytes, (size_t)size));
    }
}

static nghttp2_nv header(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)value,
                        .valuelen = strlen(value)};
}

static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *room, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *context) {
    struct answer *answer = &((struct server *)context)->answer;
    (void)source;
    size_t left = answer->size - answer->sent, given = left < size ? left : size;
    if (given)
        memcpy(room, answer->bytes + answer->sent, given);
    answer->sent += given;
    if (answer->sent < answer->size)
        return (ssize_t)given;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (answer->status) {
        nghttp2_nv trailers[] = {header("grpc-status", answer->status),
                                 header("grpc-message", answer->text ? answer->text : "")};
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, stream, trailers, 2);
    }
    return (ssize_t)given;
}

static void answer_with(struct server *server, const char *http, const char *type,
                        const void *bytes, size_t size, const char *status) {
    nghttp2_nv headers[] = {header(":status", http), header("content-type", type)};
    nghttp2_data_provider source = {.read_callback = read_answer};
    server->answer = (struct answer){.bytes = bytes, .size = size, .status = status};
    CHECK_EQ_INT(nghttp2_submit_response(server->session, server->stream, headers, 2, &source), 0);
    pump(server);
}

static void answer_grpc(struct server *server, const void *bytes, size_t size, const char *status) {
    answer_with(server, "200", "application/grpc", bytes, size, status);
}

/* ---- A client ---- */

static void start(struct server *server, struct grpc_call *call) {
    struct grpc_request request = {.path = "/etcdserverpb.KV/Txn",
                                   .token = "tok.1",
                                   .timeout_us = 1500000,
                                   .message = (const uint8_t *)"hello",
                                   .size = 5};
    CHECK(grpc_start(server->grpc, call, &request));
    pump(server);
}

static void check_ended(struct server *server, struct grpc_call *call, int status,
                        const char *text) {
    CHECK(grpc_take_ended(server->grpc) == call);
    CHECK_EQ_INT(call->status, status);
    CHECK_EQ_STR(call->why, text);
    CHECK(!grpc_take_ended(server->grpc));
    grpc_cancel(call);
}

static char messages[100];

static void note_message(struct grpc_call *call, const uint8_t *bytes, size_t size) {
    (void)call;
    size_t used = strlen(messages);
    snprintf(messages + used, sizeof messages - used, "%.*s;", (int)size, bytes);
}

static void cancel_it(struct grpc_call *call, const uint8_t *bytes, size_t size) {
    note_message(call, bytes, size);
    grpc_cancel(call);
}

/* ---- Calls ---- */

static void check_a_call(size_t piece) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    server->piece = piece;
    start(server, &call);
    CHECK(strstr(server->seen, ":method: POST;"));
    CHECK(strstr(server->seen, ":path: /etcdserverpb.KV/Txn;"));
    CHECK(strstr(server->seen, "te: trailers;content-type: application/grpc;"));
    CHECK(strstr(server->seen, "hasleader: true;token: tok.1;grpc-timeout: 1501m;"));
    CHECK_EQ_INT(server->body_size, 10);
    CHECK(memcmp(server->body, "\0\0\0\0\5hello", 10) == 0);
    CHECK(server->is_complete);
    CHECK(!grpc_take_ended(server->grpc));
    answer_grpc(server, "\0\0\0\0\3abc", 8, "0");
    CHECK(grpc_take_ended(server->grpc) == &call);
    CHECK_EQ_INT(call.status, GRPC_OK);
    CHECK_EQ_INT(call.in.size, 3);
    CHECK(memcmp(call.in.bytes, "abc", 3) == 0);
    grpc_cancel(&call);
    server_free(server);
}

TEST(a_call_has_its_answer) {
    check_a_call(0);
}

TEST(a_call_has_its_answer_whose_bytes_come_one_by_one) {
    check_a_call(1);
}

TEST(an_answer_may_be_empty) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    start(server, &call);
    answer_grpc(server, "\0\0\0\0\0", 5, "0");
    CHECK(grpc_take_ended(server->grpc) == &call);
    CHECK_EQ_INT(call.status, GRPC_OK);
    CHECK_EQ_INT(call.in.size, 0);
    grpc_cancel(&call);
    server_free(server);
}

TEST(a_refusal_has_the_servers_status_and_words) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    start(server, &call);
    nghttp2_nv headers[] = {header(":status", "200"), header("content-type", "application/grpc"),
                            header("grpc-status", "5"),
                            header("grpc-message", "etcdserver: no%20such%0Alease %zz")};
    CHECK_EQ_INT(nghttp2_submit_response(server->session, server->stream, headers, 4, NULL), 0);
    pump(server);
    check_ended(server, &call, GRPC_NOT_FOUND, "etcdserver: no such?lease %zz");
    server_free(server);
}

TEST(messages_may_be_larger_than_the_windows_of_flow_control) {
    enum { SIZE = 1 << 20 };
    struct server *server = server_new();
    struct grpc_call call = {0};
    uint8_t *message = calloc(1, SIZE), *answer = calloc(1, SIZE + 5);
    struct grpc_request request = {.path = "/x", .message = message, .size = SIZE};
    CHECK(message && answer);
    CHECK(grpc_start(server->grpc, &call, &request));
    pump(server);
    CHECK_EQ_INT(server->body_size, SIZE + 5);
    answer[2] = SIZE >> 16;
    answer_grpc(server, answer, SIZE + 5, "0");
    CHECK(grpc_take_ended(server->grpc) == &call);
    CHECK_EQ_INT(call.status, GRPC_OK);
    CHECK_EQ_INT(call.in.size, SIZE);
    grpc_cancel(&call);
    server_free(server);
    free(message);
    free(answer);
}

TEST(a_call_that_is_cancelled_is_reset_and_its_answer_is_dropped) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    start(server, &call);
    grpc_cancel(&call);
    pump(server);
    CHECK_EQ_INT(server->reset, NGHTTP2_CANCEL);
    CHECK(!grpc_take_ended(server->grpc));
    start(server, &call); /* it can be used again */
    answer_grpc(server, "\0\0\0\0\3abc", 8, "0");
    check_ended(server, &call, GRPC_OK, "");
    server_free(server);
}

TEST(a_stream_that_the_server_resets_is_unavailable) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    start(server, &call);
    nghttp2_submit_rst_stream(server->session, 0, server->stream, NGHTTP2_REFUSED_STREAM);
    pump(server);
    check_ended(server, &call, GRPC_UNAVAILABLE, "the server ended the request without an answer");
    server_free(server);
}

TEST(a_server_that_says_goodbye_gets_no_more_calls_and_answers_those_it_has) {
    struct server *server = server_new();
    struct grpc_call call = {0}, next = {0};
    start(server, &call);
    nghttp2_submit_goaway(server->session, 0, server->stream, NGHTTP2_NO_ERROR, NULL, 0);
    pump(server);
    CHECK(grpc_is_going(server->grpc));
    CHECK(!grpc_start(server->grpc, &next, &(struct grpc_request){.path = "/x"}));
    answer_grpc(server, "\0\0\0\0\3abc", 8, "0");
    check_ended(server, &call, GRPC_OK, "");
    server_free(server);
}

TEST(calls_that_are_left_when_the_connection_ends_are_forgotten) {
    struct server *server = server_new();
    struct grpc_call call = {0};
    start(server, &call);
    server_free(server);
    CHECK(!call.grpc);
    grpc_cancel(&call);
}

/* ---- Streams ---- */

TEST(a_stream_passes_messages_both_ways) {
    struct server *server = server_new();
    struct grpc_call call = {.message = note_message};
    server->piece = 3;
    CHECK(grpc_start(server->grpc, &call,
                     &(struct grpc_request){.path = "/etcdserverpb.Watch/Watch"}));
    pump(server);
    CHECK_EQ_INT(server->body_size, 0);
    CHECK(grpc_send(&call, (const uint8_t *)"one", 3));
    CHECK(grpc_send(&call, (const uint8_t *)"two", 3));
    pump(server);
    CHECK_EQ_INT(server->body_size, 16);
    CHECK(memcmp(server->body, "\0\0\0\0\3one\0\0\0\0\3two", 16) == 0);
    CHECK(!server->is_complete);
    answer_grpc(server, "\0\0\0\0\1a\0\0\0\0\0\0\0\0\0\2bc", 18, "14");
    CHECK_EQ_STR(messages, "a;;bc;");
    check_ended(server, &call, GRPC_UNAVAILABLE, "");
    server_free(server);
}

TEST(a_stream_may_be_cancelled_from_within_its_message) {
    struct server *server = server_new();
    struct grpc_call call = {.message = cancel_it};
    CHECK(grpc_start(server->grpc, &call, &(struct grpc_request){.path = "/x"}));
    pump(server);
    answer_grpc(server, "\0\0\0\0\1a\0\0\0\0\1b", 12, "0");
    CHECK_EQ_STR(messages, "a;");
    CHECK(!grpc_take_ended(server->grpc));
    server_free(server);
}

/* ---- Servers that are malicious, or no gRPC servers ---- */

TEST(an_answer_that_is_not_one_message_is_refused) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *status;
    } answers[] = {
        {"\1\0\0\0\3abc", 8, "0"},               /* compressed */
        {"\0\377\377\377\377abc", 8, "0"},       /* too long */
        {"\0\0\0\0\3ab", 7, "0"},                /* cut off */
        {"\0\0\0", 3, "0"},                      /* cut off earlier */
        {"", 0, "0"},                            /* nothing */
        {"\0\0\0\0\3abc\0\0\0\0\3abc", 16, "0"}, /* two */
        {"\0\0\0\0\3abcd", 9, "0"},              /* with something after it */
        {"\0\0\0\0\3abc", 8, NULL},              /* without a status */
        {"\0\0\0\0\3abc", 8, "0x"},              /* a status that is no number */
        {"\0\0\0\0\3abc", 8, "999999999999999"}, /* or that does not exist */
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        for (size_t piece = 0; piece < 3; piece++) {
            struct server *server = server_new();
            struct grpc_call call = {0};
            server->piece = piece;
            start(server, &call);
            answer_grpc(server, answers[i].bytes, answers[i].size, answers[i].status);
            CHECK(grpc_take_ended(server->grpc) == &call);
            CHECK(call.status == GRPC_INTERNAL || call.status == GRPC_UNKNOWN);
            grpc_cancel(&call);
            server_free(server);
        }
    }
}

TEST(a_web_server_is_no_etcd) {
    static const char *const kinds[][2] = {
        {"404", "text/html"}, {"200", "text/html"}, {"503", "application/grpc"}};
    for (size_t i = 0; i < 3; i++) {
        struct server *server = server_new();
        struct grpc_call call = {0};
        start(server, &call);
        answer_with(server, kinds[i][0], kinds[i][1], "<html>", 6, NULL);
        check_ended(server, &call, GRPC_UNAVAILABLE, "the server's answer is HTTP, but not gRPC");
        server_free(server);
    }
}

TEST(what_is_not_http_2_ends_the_connection) {
    static const char *const greetings[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                            "-ERR unknown command\r\n",
                                            "\x15\x03\x01\0\2\2\x46 and so on"};
    for (size_t i = 0; i < 3; i++) {
        struct grpc *grpc = grpc_new("x");
        const uint8_t *bytes;
        ptrdiff_t size = grpc_feed(grpc, greetings[i], 20) ? 1 : -1;
        while (size > 0)
            size = grpc_output(grpc, &bytes);
        CHECK(size < 0);
        grpc_free(grpc);
    }
}
