/* The server's end of gRPC over one HTTP/2 connection, as a filter of bytes: what a client sent
 * goes in, what to send it comes out. It knows no socket, clock or thread. */
#ifndef SIM_ETCD_FRONT_H
#define SIM_ETCD_FRONT_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;

struct front_buffer {
    uint8_t *bytes;
    size_t size, room;
};

/* A call of the client: one request and its answer, or messages both ways. */
struct front_stream {
    struct list link;
    struct front *front;
    int32_t id;
    char path[64];
    int64_t timeout_us; /* that the client gives it; 0: none */
    bool wants_leader;
    bool answered; /* headers were sent */
    bool finished; /* the status was given */
    int status;
    const char *why;
    struct front_buffer in, out;
    bool is_deferred;
};

struct front_events {
    /* A whole message has arrived. */
    void (*message)(void *context, struct front_stream *stream, const uint8_t *bytes, size_t size);
    /* The stream is freed after this. */
    void (*closed)(void *context, struct front_stream *stream);
};

struct front *front_new(const struct front_events *events, void *context);
/* Does not call `closed` for its streams. */
void front_free(struct front *front);

/* Takes bytes up to the end of the first message. Returns how many. */
size_t front_feed(struct front *front, const char *bytes, size_t size);

void front_send(struct front_stream *stream, const uint8_t *message, size_t size);
/* The end of the call: a status of gRPC, and words for it, which must stay valid. */
void front_finish(struct front_stream *stream, int status, const char *why);

/* The next bytes for the client, valid until the next call; 0: none. */
size_t front_output(struct front *front, const uint8_t **ret_bytes);

#endif
