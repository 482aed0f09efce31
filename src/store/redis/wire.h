/* The bytes between a link and its server: a stream of the world, and TLS over it where the URL asks for that. It
 * keeps the promises of a world_stream (world.h), except that it is opened when the handshake is done, which must
 * be within nine tenths of the time to connect (so that it is told before who waits for it gives up), and that `closed`
 * comes with an hf_error.
 *
 * With `tls` nothing leaves but through it: there is no way from there to plaintext. */
#ifndef REDIS_WIRE_H
#define REDIS_WIRE_H

#include "store/redis/tls.h"
#include "world/world.h"

struct wire {
    struct world_stream stream;
    const struct wire_events *events;
    struct tls *tls;             /* NULL: plaintext */
    struct tls_channel *channel; /* of the present connection; NULL: none */
    struct world_timer timer;    /* TLS: for the handshake, and to tell that it is broken */
    int64_t deadline_us;         /* of the handshake */
    unsigned number;             /* of the connection */
    bool connected, heard;       /* bytes can flow over it; some have come */
    bool broken;                 /* and that is still to be told */
};

/* `why` may be NULL: there is no more to say than the error's own sentence. */
struct wire_events {
    void (*opened)(struct wire *wire);
    void (*received)(struct wire *wire, const char *bytes, size_t size);
    void (*closed)(struct wire *wire, int reason, const char *why);
};

/* HF_OK or HF_NO_MEMORY. `tls`, `peer` and `events` live as long as the wire does. Without TLS, and unless it is
 * `exposed`, nothing is connected to but private addresses: no peer that anybody names can change that. */
int wire_init(struct wire *wire, struct world *world, const struct world_peer *peer,
              struct tls *tls, bool exposed, const struct wire_events *events);
void wire_drop(struct wire *wire);

int wire_open(struct wire *wire);
int wire_send(struct wire *wire, const void *bytes, size_t size);
void wire_close(struct wire *wire);

static inline bool wire_is_open(const struct wire *wire) {
    return wire->stream.state;
}

#endif
