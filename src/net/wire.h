/* The bytes between a client and a server: a stream of the world, with TLS over it if the URL asks
 * for that.
 *
 * A wire keeps the promises of a world_stream (world.h), with two differences. It is open once the
 * TLS handshake is done. Connecting and the handshake together may take nine tenths of the peer's
 * timeout, so that a failure is reported before the owner gives up. And `closed` also gives an
 * hf_error.
 *
 * With TLS, nothing is sent in plaintext except the request to start TLS, in a protocol that has
 * one. Without TLS, public addresses are never connected to, unless the URL permits that. */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include "net/security.h"
#include "world/world.h"

struct net_wire {
    struct world_stream stream;
    const struct net_wire_events *events;
    const struct net_security *security;
    struct net_tls_channel *channel; /* of the current connection; NULL: none */
    struct world_timer timer; /* TLS: ends the handshake, or reports that the wire is broken */
    int64_t deadline_us;      /* of the handshake */
    unsigned number;          /* of the connection */
    bool connected, heard;    /* the stream is open; bytes have come */
    bool broken;              /* and not reported yet */
};

/* `why` may be NULL: the error's own sentence says it all. */
struct net_wire_events {
    void (*opened)(struct net_wire *wire);
    void (*received)(struct net_wire *wire, const char *bytes, size_t size);
    void (*closed)(struct net_wire *wire, int reason, const char *why);
    /* For a protocol in which the server speaks first, and TLS starts when the client asks for it:
     * what came before that. NULL: TLS comes first. */
    void (*before_tls)(struct net_wire *wire, const char *bytes, size_t size);
};

/* HF_OK or HF_NO_MEMORY. `peer`, `security` and `events` must live as long as the wire. */
int net_wire_init(struct net_wire *wire, struct world *world, const struct world_peer *peer,
                  const struct net_security *security, const struct net_wire_events *events);
void net_wire_drop(struct net_wire *wire);

int net_wire_open(struct net_wire *wire);
int net_wire_send(struct net_wire *wire, const void *bytes, size_t size);
/* Only within `before_tls`, once for a connection: asks for TLS with these bytes, in plaintext.
 * Then `opened` or `closed` follows, the second maybe from within the call. */
void net_wire_start_tls(struct net_wire *wire, const void *request, size_t size);
void net_wire_close(struct net_wire *wire);

static inline bool net_wire_is_open(const struct net_wire *wire) {
    return wire->stream.state;
}

/* The protocol that the server chose from those that were offered; NULL: none, or the wire is not
 * open. */
static inline const char *net_wire_protocol(const struct net_wire *wire) {
    return wire->channel ? wire->channel->protocol : NULL;
}

#endif
