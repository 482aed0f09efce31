/* Design notes.
 *
 * The owner may close the wire, and open it again, in each of its event functions. `number` shows
 * whether the connection is still the one that was being read.
 *
 * Bytes that were encrypted must be sent, or the connection cannot be used any more. If there is no
 * memory to send it, the wire is broken. The timer reports that, because no call to the wire calls
 * its owner. */
#include "net/wire.h"

#include "base/error.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <string.h>

enum { READ_SIZE = 16384, WHY_SIZE = 600, ALERT = 0x15 };

static struct net_wire *wire_of(struct world_stream *stream) {
    return container_of(stream, struct net_wire, stream);
}

/* ---- Ending ---- */

static void forget_connection(struct net_wire *wire) {
    struct net_tls_channel *channel = wire->channel;
    wire->channel = NULL;
    wire->broken = false;
    wire->number++;
    if (channel)
        channel->tls->module->end(channel);
    if (wire->security->tls)
        world_timer_clear(wire->stream.world, &wire->timer);
}

void net_wire_close(struct net_wire *wire) {
    world_stream_close(&wire->stream);
    forget_connection(wire);
}

/* Closes it and reports that; only while the world dispatches. `why` may be the channel's own. */
static void fail(struct net_wire *wire, int reason, const char *why) {
    char text[WHY_SIZE];
    snprintf(text, sizeof(text), "%s", why ? why : "");
    net_wire_close(wire);
    wire->events->closed(wire, reason, *text ? text : NULL);
}

/* ---- TLS ---- */

static bool send_pending(struct net_wire *wire) {
    const struct net_tls_module *module = wire->security->tls->module;
    const char *bytes;
    size_t size = module->pending(wire->channel, &bytes);
    if (size && world_stream_send(&wire->stream, bytes, size) < 0)
        return false;
    module->sent(wire->channel);
    return true;
}

static void begin_handshake(struct net_wire *wire) {
    struct world *world = wire->stream.world;
    const struct world_peer *peer = wire->stream.peer;
    struct net_tls *tls = wire->security->tls;
    wire->channel = tls->module->start(tls, peer->host, peer->port, world_wall_us(world));
    if (wire->channel && wire->channel->reason)
        fail(wire, wire->channel->reason, wire->channel->why);
    else if (!wire->channel || !send_pending(wire))
        fail(wire, HF_NO_MEMORY, NULL);
    else
        world_timer_set(world, &wire->timer, wire->deadline_us);
}

void net_wire_start_tls(struct net_wire *wire, const void *request, size_t size) {
    assert(wire->security->tls && !wire->channel);
    if (world_stream_send(&wire->stream, request, size) < 0)
        fail(wire, HF_NO_MEMORY, NULL);
    else
        begin_handshake(wire);
}

/* Sends the server an alert as well, if that is possible at once. */
static void channel_failed(struct net_wire *wire) {
    if (send_pending(wire))
        world_flush(wire->stream.world);
    fail(wire, wire->channel->reason, wire->channel->why);
}

static void decrypt(struct net_wire *wire, const char *bytes, size_t size) {
    const struct net_tls_module *module = wire->security->tls->module;
    unsigned number = wire->number;
    bool was_open = wire->channel->open;
    char said[READ_SIZE];
    bool ok = module->feed(wire->channel, bytes, size);
    int got = 1;
    while (ok && got > 0) {
        got = module->read(wire->channel, said, sizeof(said));
        if (got < 0) {
            channel_failed(wire);
            return;
        }
        ok = send_pending(wire);
        if (ok && !was_open && wire->channel->open) {
            was_open = true;
            world_timer_clear(wire->stream.world, &wire->timer);
            wire->events->opened(wire);
        }
        if (ok && got > 0 && wire->number == number)
            wire->events->received(wire, said, (size_t)got);
        if (wire->number != number)
            return;
    }
    if (!ok)
        fail(wire, HF_NO_MEMORY, NULL);
}

static void timer_came(struct world_timer *timer) {
    struct net_wire *wire = container_of(timer, struct net_wire, timer);
    if (wire->broken)
        fail(wire, HF_NO_MEMORY, NULL);
    else
        fail(wire, HF_UNREACHABLE,
             "the server did not complete the TLS handshake in time; is this its TLS port?");
}

/* ---- Events of the stream ---- */

static void stream_opened(struct world_stream *stream) {
    struct net_wire *wire = wire_of(stream);
    wire->connected = true;
    if (wire->security->tls && wire->events->before_tls)
        world_timer_set(stream->world, &wire->timer, wire->deadline_us);
    else if (wire->security->tls)
        begin_handshake(wire);
    else
        wire->events->opened(wire);
}

static void fail_expecting_tls(struct net_wire *wire) {
    char text[WHY_SIZE];
    snprintf(text, sizeof(text), "the server expects TLS: use a URL that begins with %s",
             wire->security->tls_scheme);
    fail(wire, HF_UNREACHABLE, text);
}

static void stream_received(struct world_stream *stream, const char *bytes, size_t size) {
    struct net_wire *wire = wire_of(stream);
    bool is_first = !wire->heard;
    wire->heard = true;
    if (wire->security->tls && !wire->channel)
        wire->events->before_tls(wire, bytes, size);
    else if (wire->security->tls)
        decrypt(wire, bytes, size);
    else if (is_first && bytes[0] == ALERT)
        fail_expecting_tls(wire);
    else
        wire->events->received(wire, bytes, size);
}

static void stream_closed(struct world_stream *stream, const char *why) {
    struct net_wire *wire = wire_of(stream);
    bool in_handshake = wire->channel && !wire->channel->open;
    /* Servers with TLS often just hang up on a client that does not use it. */
    bool in_vain = wire->connected && !wire->security->tls && !wire->heard && stream->peer->host;
    bool too_far = stream->reach > stream->farthest;
    const char *scheme = wire->security->tls_scheme;
    char text[WHY_SIZE];
    snprintf(text, sizeof(text), "%s", why);
    if (too_far)
        error_append(text, sizeof(text),
                     ": in plaintext, anybody on the network path could read the password and "
                     "change locks; use TLS (%s), or plaintext=yes if the path is safe",
                     scheme);
    else if (in_handshake)
        error_append(text, sizeof(text), ", in the TLS handshake");
    else if (in_vain)
        error_append(text, sizeof(text),
                     " without an answer; if it expects TLS, use a URL that begins with %s",
                     scheme);
    forget_connection(wire);
    wire->events->closed(wire, too_far ? HF_BAD_URL : HF_UNREACHABLE, text);
}

static const struct world_stream_events stream_events = {stream_opened, stream_received,
                                                         stream_closed};

/* ---- The owner's calls ---- */

int net_wire_open(struct net_wire *wire) {
    struct world *world = wire->stream.world;
    wire->connected = wire->heard = false;
    wire->deadline_us = world_now_us(world) + wire->stream.peer->timeout_us / 10 * 9;
    return world_stream_open(&wire->stream);
}

int net_wire_send(struct net_wire *wire, const void *bytes, size_t size) {
    if (!wire->security->tls)
        return world_stream_send(&wire->stream, bytes, size);
    assert(wire->channel && wire->channel->open);
    if (wire->broken)
        return HF_OK; /* `closed` will follow */
    if (wire->security->tls->module->write(wire->channel, bytes, size) && send_pending(wire))
        return HF_OK;
    wire->broken = true;
    world_timer_set(wire->stream.world, &wire->timer, world_now_us(wire->stream.world));
    return HF_NO_MEMORY;
}

int net_wire_init(struct net_wire *wire, struct world *world, const struct world_peer *peer,
                  const struct net_security *security, const struct net_wire_events *events) {
    bool anywhere = security->tls || security->exposed;
    *wire = (struct net_wire){
        .stream = {.world = world,
                   .events = &stream_events,
                   .peer = peer,
                   .farthest = anywhere ? WORLD_PUBLIC : WORLD_PRIVATE},
        .events = events,
        .security = security,
    };
    return security->tls ? world_timer_add(world, &wire->timer, timer_came) : HF_OK;
}

void net_wire_drop(struct net_wire *wire) {
    net_wire_close(wire);
    if (wire->security->tls)
        world_timer_drop(wire->stream.world, &wire->timer);
}
