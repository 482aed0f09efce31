/* Design notes.
 *
 * A message is a byte that says whether it is compressed, four bytes with its length, and its
 * bytes. A call's answer is response headers, messages and trailers, which have the status; an
 * answer without messages may have only trailers. A missing status counts as GRPC_UNKNOWN, a stream
 * that was reset as GRPC_UNAVAILABLE.
 *
 * Everything that the server sends is bounded: a message by GRPC_MESSAGE_MAX, headers by HTTP/2's
 * own limits (nghttp2 ends a connection whose headers exceed 64 kB). */
#include "store/etcd/grpc.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_SIZE = 16 << 20, HEADERS_MAX = 10, HOST_SIZE = 300 };

struct grpc {
    nghttp2_session *session;
    struct list calls, ended;
    bool no_memory; /* in a callback */
    bool going;
    char host[HOST_SIZE];
};

/* ---- Buffers ---- */

static bool append(struct grpc_buffer *buffer, const void *bytes, size_t size) {
    if (buffer->size + size > buffer->room) {
        size_t room = (buffer->size + size) * 2;
        uint8_t *grown = realloc(buffer->bytes, room);
        if (!grown)
            return false;
        buffer->bytes = grown;
        buffer->room = room;
    }
    if (size)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return true;
}

static void drop_front(struct grpc_buffer *buffer, size_t size) {
    buffer->size -= size;
    memmove(buffer->bytes, buffer->bytes + size, buffer->size);
}

static void empty(struct grpc_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (struct grpc_buffer){0};
}

static bool append_message(struct grpc_buffer *buffer, const uint8_t *message, size_t size) {
    uint8_t prefix[GRPC_PREFIX_SIZE] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                        (uint8_t)(size >> 8), (uint8_t)size};
    size_t before = buffer->size;
    if (append(buffer, prefix, sizeof(prefix)) && append(buffer, message, size))
        return true;
    buffer->size = before;
    return false;
}

static size_t message_size(const struct grpc_buffer *buffer) {
    const uint8_t *b = buffer->bytes;
    return (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
}

/* ---- What the server sends ---- */

static void fail_call(struct grpc_call *call, int status, const char *why) {
    call->status = status;
    snprintf(call->why, sizeof(call->why), "%s", why);
    nghttp2_submit_rst_stream(call->grpc->session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
}

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream) {
    return nghttp2_session_get_stream_user_data(session, stream);
}

static bool is_name(const uint8_t *name, size_t size, const char *text) {
    return size == strlen(text) && memcmp(name, text, size) == 0;
}

static int digit(uint8_t c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Text with %XX; what is not printable becomes '?'. */
static void decode_text(const uint8_t *value, size_t size, char ret[GRPC_WHY_SIZE]) {
    size_t used = 0;
    for (size_t i = 0; i < size && used < GRPC_WHY_SIZE - 1; i++) {
        int c = value[i];
        if (c == '%' && i + 2 < size && digit(value[i + 1]) >= 0 && digit(value[i + 2]) >= 0) {
            c = digit(value[i + 1]) << 4 | digit(value[i + 2]);
            i += 2;
        }
        ret[used++] = c >= ' ' && c != 0x7f ? (char)c : '?';
    }
    ret[used] = 0;
}

static int status_of(const uint8_t *value, size_t size) {
    int status = 0;
    for (size_t i = 0; i < size; i++) {
        if (digit(value[i]) < 0 || digit(value[i]) > 9 || i == 3)
            return GRPC_UNKNOWN;
        status = status * 10 + digit(value[i]);
    }
    return size ? status : GRPC_UNKNOWN;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    (void)flags, (void)context;
    if (!call)
        return 0;
    if (is_name(name, name_size, "grpc-status"))
        call->status = status_of(value, value_size);
    else if (is_name(name, name_size, "grpc-message"))
        decode_text(value, value_size, call->why);
    else if (is_name(name, name_size, ":status") && !is_name(value, value_size, "200"))
        fail_call(call, GRPC_UNAVAILABLE, "the server's answer is HTTP, but not gRPC");
    else if (is_name(name, name_size, "content-type"))
        call->has_answer = value_size >= 16 && memcmp(value, "application/grpc", 16) == 0;
    return 0;
}

/* Passes on the messages of a stream that are whole. False: the call has failed. */
static bool read_messages(struct grpc_call *call) {
    while (call->in.size >= GRPC_PREFIX_SIZE) {
        size_t size = message_size(&call->in);
        if (call->in.bytes[0] != 0 || size > GRPC_MESSAGE_MAX ||
            (call->has_message && !call->message)) {
            fail_call(call, GRPC_INTERNAL, "the server's answer is compressed, or too long");
            return false;
        }
        if (call->in.size < GRPC_PREFIX_SIZE + size)
            return true;
        call->has_message = true;
        if (!call->message) {
            /* If something follows the message, the call fails. */
            return call->in.size == GRPC_PREFIX_SIZE + size;
        }
        call->message(call, call->in.bytes + GRPC_PREFIX_SIZE, size);
        if (!call->grpc)
            return false; /* it was cancelled */
        drop_front(&call->in, GRPC_PREFIX_SIZE + size);
    }
    return true;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t size, void *context) {
    struct grpc *grpc = context;
    struct grpc_call *call = call_of(session, stream);
    (void)flags;
    if (!call || call->status >= 0)
        return 0;
    if (!call->has_answer) {
        fail_call(call, GRPC_UNAVAILABLE, "the server's answer is HTTP, but not gRPC");
        return 0;
    }
    if (!append(&call->in, bytes, size)) {
        grpc->no_memory = true;
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (!read_messages(call) && call->grpc && call->status < 0)
        fail_call(call, GRPC_INTERNAL, "the server sent two answers");
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *context) {
    struct grpc *grpc = context;
    struct grpc_call *call = call_of(session, stream);
    if (!call)
        return 0;
    if (call->status < 0) {
        call->status = error ? GRPC_UNAVAILABLE : GRPC_UNKNOWN;
        snprintf(call->why, sizeof(call->why), "the server ended the request without an answer");
    }
    if (call->status == GRPC_OK && !call->message) {
        if (call->has_message && call->in.size == GRPC_PREFIX_SIZE + message_size(&call->in)) {
            drop_front(&call->in, GRPC_PREFIX_SIZE);
        } else {
            call->status = GRPC_INTERNAL;
            snprintf(call->why, sizeof(call->why), "the server's answer is cut off");
        }
    }
    nghttp2_session_set_stream_user_data(session, stream, NULL);
    list_remove(&call->link);
    list_append(&grpc->ended, &call->link);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    struct grpc *grpc = context;
    bool has_content = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    struct grpc_call *call = has_content ? call_of(session, frame->hd.stream_id) : NULL;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        grpc->going = true;
    if (call && frame->hd.flags & NGHTTP2_FLAG_END_STREAM && !call->half_closed)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
    return 0;
}

/* ---- What is sent ---- */

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *room, size_t size,
                        uint32_t *flags, nghttp2_data_source *source, void *context) {
    struct grpc_call *call = call_of(session, stream);
    (void)source, (void)context;
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (!call->out.size && !call->half_closed) {
        call->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t given = call->out.size < size ? call->out.size : size;
    if (given)
        memcpy(room, call->out.bytes, given);
    drop_front(&call->out, given);
    if (!call->out.size && call->half_closed)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)given;
}

static nghttp2_nv header(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)value,
                        .valuelen = strlen(value)};
}

bool grpc_start(struct grpc *grpc, struct grpc_call *call, const struct grpc_request *request) {
    char timeout[32];
    size_t count = 0;
    nghttp2_nv headers[HEADERS_MAX];
    headers[count++] = header(":method", "POST");
    headers[count++] = header(":scheme", "http");
    headers[count++] = header(":path", request->path);
    headers[count++] = header(":authority", grpc->host);
    headers[count++] = header("te", "trailers");
    headers[count++] = header("content-type", "application/grpc");
    headers[count++] = header("hasleader", "true"); /* or a member that is cut off would wait */
    if (request->token) {
        headers[count] = header("token", request->token);
        headers[count++].flags = NGHTTP2_NV_FLAG_NO_INDEX;
    }
    if (request->timeout_us) {
        snprintf(timeout, sizeof(timeout), "%lldm", (long long)request->timeout_us / 1000 + 1);
        headers[count++] = header("grpc-timeout", timeout);
    }
    if (grpc->going)
        return false;
    if (request->message && !append_message(&call->out, request->message, request->size))
        return false;
    call->half_closed = !call->message;
    call->status = -1;
    nghttp2_data_provider source = {.read_callback = read_out};
    call->stream = nghttp2_submit_request(grpc->session, NULL, headers, count, &source, call);
    if (call->stream < 0) {
        empty(&call->out);
        return false;
    }
    call->grpc = grpc;
    list_append(&grpc->calls, &call->link);
    return true;
}

bool grpc_send(struct grpc_call *call, const uint8_t *message, size_t size) {
    if (!append_message(&call->out, message, size))
        return false;
    if (call->is_deferred) {
        call->is_deferred = false;
        nghttp2_session_resume_data(call->grpc->session, call->stream);
    }
    return true;
}

void grpc_cancel(struct grpc_call *call) {
    struct grpc *grpc = call->grpc;
    if (grpc) {
        list_remove(&call->link);
        if (call_of(grpc->session, call->stream) == call) {
            nghttp2_session_set_stream_user_data(grpc->session, call->stream, NULL);
            nghttp2_submit_rst_stream(grpc->session, NGHTTP2_FLAG_NONE, call->stream,
                                      NGHTTP2_CANCEL);
        }
    }
    empty(&call->in);
    empty(&call->out);
    *call = (struct grpc_call){.message = call->message};
}

ptrdiff_t grpc_output(struct grpc *grpc, const uint8_t **ret_bytes) {
    ptrdiff_t size = nghttp2_session_mem_send(grpc->session, ret_bytes);
    bool is_over = !nghttp2_session_want_read(grpc->session) &&
                   !nghttp2_session_want_write(grpc->session) && list_empty(&grpc->ended);
    return size == 0 && is_over ? -1 : size;
}

bool grpc_feed(struct grpc *grpc, const char *bytes, size_t size) {
    ssize_t taken = nghttp2_session_mem_recv(grpc->session, (const uint8_t *)bytes, size);
    return taken == (ssize_t)size && !grpc->no_memory &&
           (nghttp2_session_want_read(grpc->session) || !list_empty(&grpc->ended));
}

struct grpc_call *grpc_take_ended(struct grpc *grpc) {
    struct list *node = list_pop(&grpc->ended);
    if (!node)
        return NULL;
    struct grpc_call *call = container_of(node, struct grpc_call, link);
    call->grpc = NULL;
    return call;
}

bool grpc_is_going(const struct grpc *grpc) {
    return grpc->going;
}

/* ---- Making and freeing ---- */

static bool start_session(struct grpc *grpc) {
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_SIZE},
    };
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks))
        return false;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    int r = nghttp2_session_client_new(&grpc->session, callbacks, grpc);
    nghttp2_session_callbacks_del(callbacks);
    return !r &&
           !nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings,
                                    sizeof(settings) / sizeof(settings[0])) &&
           !nghttp2_session_set_local_window_size(grpc->session, NGHTTP2_FLAG_NONE, 0, WINDOW_SIZE);
}

struct grpc *grpc_new(const char *host) {
    struct grpc *grpc = calloc(1, sizeof(*grpc));
    if (!grpc)
        return NULL;
    snprintf(grpc->host, sizeof(grpc->host), "%s", host);
    list_init(&grpc->calls);
    list_init(&grpc->ended);
    if (start_session(grpc))
        return grpc;
    grpc_free(grpc);
    return NULL;
}

static void forget(struct list *calls) {
    struct list *node;
    while ((node = list_pop(calls))) {
        struct grpc_call *call = container_of(node, struct grpc_call, link);
        call->grpc = NULL;
    }
}

void grpc_free(struct grpc *grpc) {
    if (!grpc)
        return;
    forget(&grpc->calls);
    forget(&grpc->ended);
    nghttp2_session_del(grpc->session);
    free(grpc);
}
