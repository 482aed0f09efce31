/* gRPC over one HTTP/2 connection, as a filter of bytes: what the server sent goes in (grpc_feed),
 * what to send comes out (grpc_output). It knows no socket, clock or thread. libnghttp2 does HTTP/2
 * itself: flow control, header compression, settings, GOAWAY.
 *
 * A call is one request to the server. Its answer is one message and a status. A call with
 * `message` set is a stream instead: each message is passed on when it comes, and more can be sent.
 * A call that has ended waits in a list until its owner takes it (grpc_take_ended), so that the
 * only callback while bytes are processed is `message`. */
#ifndef ETCD_GRPC_H
#define ETCD_GRPC_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* gRPC's status codes, as far as they are treated differently. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
};

enum { GRPC_MESSAGE_MAX = 64 << 20, GRPC_WHY_SIZE = 200, GRPC_PREFIX_SIZE = 5 };

struct grpc;

struct grpc_buffer {
    uint8_t *bytes;
    size_t size, room;
};

struct grpc_call {
    /* Of a stream: called for each message. It may call only grpc_start, grpc_send and
     * grpc_cancel. */
    void (*message)(struct grpc_call *call, const uint8_t *bytes, size_t size);
    /* The rest belongs to the connection. */
    struct list link;  /* among the calls, or those that have ended */
    struct grpc *grpc; /* NULL: not sent, or ended and taken */
    int32_t stream;
    int status;              /* enum grpc_status; below 0: the server has not sent it */
    char why[GRPC_WHY_SIZE]; /* the server's words, or our own */
    struct grpc_buffer in;   /* what has arrived; of a call that ended with GRPC_OK, its message */
    struct grpc_buffer out;  /* what is still to be sent */
    bool has_answer;         /* the server has answered with the right headers */
    bool has_message;
    bool half_closed; /* nothing follows what is in `out` */
    bool is_deferred; /* HTTP/2 waits for more to send */
};

/* NULL: no memory. `host` is the server's name in requests. */
struct grpc *grpc_new(const char *host);
/* Calls that are left are forgotten; their owner still has them. */
void grpc_free(struct grpc *grpc);

/* What a call starts with. */
struct grpc_request {
    const char *path;       /* "/etcdserverpb.KV/Txn" */
    const char *token;      /* of the login; NULL: none */
    int64_t timeout_us;     /* for the server; 0: none */
    const uint8_t *message; /* NULL: none yet, of a stream */
    size_t size;
};

/* Starts a call, which the caller has zeroed. False: no memory, or the server accepts no more calls
 * on this connection. */
bool grpc_start(struct grpc *grpc, struct grpc_call *call, const struct grpc_request *request);

/* Sends another message on a stream. False: no memory; nothing was sent. */
bool grpc_send(struct grpc_call *call, const uint8_t *message, size_t size);

/* Ends the call, if it has not ended, and frees its memory. It may be used again. */
void grpc_cancel(struct grpc_call *call);

/* Takes bytes from the server. False: it does not speak HTTP/2, or there is no memory; the
 * connection is no longer usable. */
bool grpc_feed(struct grpc *grpc, const char *bytes, size_t size);

/* The next bytes to send, valid until the next call; 0: none. Below 0: as for grpc_feed. */
ptrdiff_t grpc_output(struct grpc *grpc, const uint8_t **ret_bytes);

/* The next call that has ended, NULL: none. `status` and `why` say how; of GRPC_OK, `in` is the
 * message. It belongs to the caller again, and must be cancelled to free its memory. */
struct grpc_call *grpc_take_ended(struct grpc *grpc);

/* The server accepts no new calls, and will hang up. */
bool grpc_is_going(const struct grpc *grpc);

#endif
