#include "sim/etcd/front.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_SIZE = 5, FRAME_HEAD_SIZE = 9, PREFACE_SIZE = 24 };

struct front {
    nghttp2_session *session;
    const struct front_events *events;
    void *context;
    size_t preface; /* how much of it has come */
    bool has_message;
    struct list streams;
};

/* ---- Buffers ---- */

static void append(struct front_buffer *buffer, const void *bytes, size_t size) {
    if (buffer->size + size > buffer->room) {
        buffer->room = 2 * (buffer->size + size);
        buffer->bytes = realloc(buffer->bytes, buffer->room);
        assert(buffer->bytes);
    }
    if (size)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

static void drop_front(struct front_buffer *buffer, size_t size) {
    buffer->size -= size;
    if (buffer->size)
        memmove(buffer->bytes, buffer->bytes + size, buffer->size);
}

static size_t number_at(const uint8_t *bytes, size_t size) {
    size_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* ---- What the client sends ---- */

static struct front_stream *stream_of(nghttp2_session *session, int32_t id) {
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    struct front *front = context;
    struct front_stream *stream = calloc(1, sizeof(*stream));
    assert(stream);
    stream->front = front;
    stream->id = frame->hd.stream_id;
    stream->why = "";
    list_append(&front->streams, &stream->link);
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
    struct front_stream *stream = stream_of(session, frame->hd.stream_id);
    (void)name_size, (void)value_size, (void)flags, (void)context; /* both end with a NUL */
    if (strcmp((const char *)name, ":path") == 0)
        snprintf(stream->path, sizeof(stream->path), "%s", (const char *)value);
    else if (strcmp((const char *)name, "grpc-timeout") == 0) /* "17m": the store uses no other */
        stream->timeout_us = strtoll((const char *)value, NULL, 10) * 1000;
    else if (strcmp((const char *)name, "hasleader") == 0)
        stream->wants_leader = true;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t size, void *context) {
    struct front *front = context;
    struct front_stream *stream = stream_of(session, id);
    (void)flags;
    append(&stream->in, bytes, size);
    while (stream->in.size >= PREFIX_SIZE) {
        size_t message = number_at(stream->in.bytes + 1, 4);
        if (stream->in.size < PREFIX_SIZE + message)
            break;
        front->has_message = true;
        front->events->message(front->context, stream, stream->in.bytes + PREFIX_SIZE, message);
        drop_front(&stream->in, PREFIX_SIZE + message);
    }
    return 0;
}

static void stream_free(struct front_stream *stream) {
    list_remove(&stream->link);
    free(stream->in.bytes);
    free(stream->out.bytes);
    free(stream);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *context) {
    struct front *front = context;
    struct front_stream *stream = stream_of(session, id);
    (void)error;
    if (stream) {
        front->events->closed(front->context, stream);
        stream_free(stream);
    }
    return 0;
}

/* Where the first frame ends, or the client's preface. */
static size_t first_size(struct front *front, const char *bytes, size_t size) {
    size_t whole = size;
    if (front->preface < PREFACE_SIZE) {
        whole = PREFACE_SIZE - front->preface;
        front->preface += whole < size ? whole : size;
    } else if (size >= FRAME_HEAD_SIZE) {
        whole = FRAME_HEAD_SIZE + number_at((const uint8_t *)bytes, 3);
    }
    return whole < size ? whole : size;
}

size_t front_feed(struct front *front, const char *bytes, size_t size) {
    size_t used = 0;
    front->has_message = false;
    while (used < size && !front->has_message) {
        size_t some = first_size(front, bytes + used, size - used);
        ssize_t taken =
            nghttp2_session_mem_recv(front->session, (const uint8_t *)bytes + used, some);
        assert(taken == (ssize_t)some);
        used += some;
    }
    return used;
}

/* ---- What it gets ---- */

static nghttp2_nv header(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)value,
                        .valuelen = strlen(value)};
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *room, size_t size,
                        uint32_t *flags, nghttp2_data_source *source, void *context) {
    struct front_stream *stream = stream_of(session, id);
    (void)source, (void)context;
    if (!stream->out.size && !stream->finished) {
        stream->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t given = stream->out.size < size ? stream->out.size : size;
    if (given)
        memcpy(room, stream->out.bytes, given);
    drop_front(&stream->out, given);
    if (!stream->out.size && stream->finished) {
        char status[12];
        snprintf(status, sizeof(status), "%d", stream->status);
        nghttp2_nv trailers[] = {header("grpc-status", status),
                                 header("grpc-message", stream->why)};
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, trailers, 2);
    }
    return (ssize_t)given;
}

static void resume(struct front_stream *stream) {
    nghttp2_session *session = stream->front->session;
    if (!stream->answered) {
        nghttp2_nv headers[] = {header(":status", "200"),
                                header("content-type", "application/grpc")};
        nghttp2_data_provider source = {.read_callback = read_out};
        stream->answered = true;
        nghttp2_submit_response(session, stream->id, headers, 2, &source);
    } else if (stream->is_deferred) {
        stream->is_deferred = false;
        nghttp2_session_resume_data(session, stream->id);
    }
}

void front_send(struct front_stream *stream, const uint8_t *message, size_t size) {
    uint8_t prefix[PREFIX_SIZE] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                   (uint8_t)(size >> 8), (uint8_t)size};
    append(&stream->out, prefix, sizeof(prefix));
    append(&stream->out, message, size);
    resume(stream);
}

void front_finish(struct front_stream *stream, int status, const char *why) {
    stream->finished = true;
    stream->status = status;
    stream->why = why;
    resume(stream);
}

size_t front_output(struct front *front, const uint8_t **ret_bytes) {
    ssize_t size = nghttp2_session_mem_send(front->session, ret_bytes);
    assert(size >= 0);
    return (size_t)size;
}

/* ---- Making and freeing ---- */

struct front *front_new(const struct front_events *events, void *context) {
    struct front *front = calloc(1, sizeof(*front));
    nghttp2_session_callbacks *callbacks;
    assert(front);
    front->events = events;
    front->context = context;
    list_init(&front->streams);
    int r = nghttp2_session_callbacks_new(&callbacks);
    assert(!r);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    r = nghttp2_session_server_new(&front->session, callbacks, front);
    nghttp2_session_callbacks_del(callbacks);
    assert(!r);
    nghttp2_submit_settings(front->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return front;
}

void front_free(struct front *front) {
    list_each_safe(node, &front->streams)
        stream_free(container_of(node, struct front_stream, link));
    nghttp2_session_del(front->session);
    free(front);
}
