/* Design notes.
 *
 * The owner may close a wire in each of its functions, and open it again: `number` tells whether the connection is
 * still the one that was being read.
 *
 * What was encrypted must be sent, or the connection is of no more use: when there is no memory for it, the wire is
 * broken, which is told by the timer, as no call calls its owner. */
#include "store/redis/wire.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <string.h>

enum { READ_SIZE = 16384, WHY_SIZE = 600, ALERT = 0x15 };

static struct wire *wire_of(struct world_stream *stream) {
    return container_of(stream, struct wire, stream);
}

/* ---- Ending ---- */

static void forget_connection(struct wire *wire) {
    struct tls_channel *channel = wire->channel;
    wire->channel = NULL;
    wire->broken = false;
    wire->number++;
    if (channel)
        channel->tls->module->end(channel);
    if (wire->tls)
        world_timer_clear(wire->stream.world, &wire->timer);
}

void wire_close(struct wire *wire) {
    world_stream_close(&wire->stream);
    forget_connection(wire);
}

/* Ends it and tells the owner; only while the world dispatches. `why` may be the channel's own. */
static void fail(struct wire *wire, int reason, const char *why) {
    char text[WHY_SIZE];
    snprintf(text, sizeof(text), "%s", why ? why : "");
    wire_close(wire);
    wire->events->closed(wire, reason, *text ? text : NULL);
}

/* ---- TLS ---- */

static bool send_pending(struct wire *wire) {
    const struct tls_module *module = wire->tls->module;
    const char *bytes;
    size_t size = module->pending(wire->channel, &bytes);
    if (size && world_stream_send(&wire->stream, bytes, size) < 0)
        return false;
    module->sent(wire->channel);
    return true;
}

static void begin_handshake(struct wire *wire) {
    struct world *world = wire->stream.world;
    const struct world_peer *peer = wire->stream.peer;
    wire->channel =
        wire->tls->module->start(wire->tls, peer->host, peer->port, world_wall_us(world));
    if (wire->channel && wire->channel->reason)
        fail(wire, wire->channel->reason, wire->channel->why);
    else if (!wire->channel || !send_pending(wire))
        fail(wire, HF_NO_MEMORY, NULL);
    else
        world_timer_set(world, &wire->timer, wire->deadline_us);
}

/* The server is told why, too, if that can be done at once. */
static void channel_failed(struct wire *wire) {
    if (send_pending(wire))
        world_flush(wire->stream.world);
    fail(wire, wire->channel->reason, wire->channel->why);
}

static void decrypt(struct wire *wire, const char *bytes, size_t size) {
    const struct tls_module *module = wire->tls->module;
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
    struct wire *wire = container_of(timer, struct wire, timer);
    if (wire->broken)
        fail(wire, HF_NO_MEMORY, NULL);
    else
        fail(wire, HF_UNREACHABLE,
             "the server did not answer to TLS in time; is this its port for TLS?");
}

/* ---- What the stream tells ---- */

static void stream_opened(struct world_stream *stream) {
    struct wire *wire = wire_of(stream);
    wire->connected = true;
    if (wire->tls)
        begin_handshake(wire);
    else
        wire->events->opened(wire);
}

static void stream_received(struct world_stream *stream, const char *bytes, size_t size) {
    struct wire *wire = wire_of(stream);
    bool is_first = !wire->heard;
    wire->heard = true;
    if (wire->tls)
        decrypt(wire, bytes, size);
    else if (is_first && bytes[0] == ALERT)
        fail(wire, HF_UNREACHABLE, "the server expects TLS: use a URL that begins with rediss");
    else
        wire->events->received(wire, bytes, size);
}

/* Servers with TLS often just hang up on who does not speak it. */
static void stream_closed(struct world_stream *stream, const char *why) {
    struct wire *wire = wire_of(stream);
    bool in_handshake = wire->channel && !wire->channel->open;
    bool in_vain = wire->connected && !wire->tls && !wire->heard && stream->peer->host;
    bool too_far = stream->reach > stream->farthest;
    char text[WHY_SIZE];
    snprintf(text, sizeof(text), "%s%s", why,
             too_far
                 ? ": in plaintext, anybody on the network path could read the password and change "
                   "locks; use TLS (rediss), or plaintext=yes if the path is safe"
             : in_handshake ? ", in the TLS handshake"
             : in_vain ? " without an answer; if it expects TLS, use a URL that begins with rediss"
                       : "");
    forget_connection(wire);
    wire->events->closed(wire, too_far ? HF_BAD_URL : HF_UNREACHABLE, text);
}

static const struct world_stream_events stream_events = {stream_opened, stream_received,
                                                         stream_closed};

/* ---- The door ---- */

int wire_open(struct wire *wire) {
    struct world *world = wire->stream.world;
    wire->connected = wire->heard = false;
    wire->deadline_us = world_now_us(world) + wire->stream.peer->timeout_us / 10 * 9;
    return world_stream_open(&wire->stream);
}

int wire_send(struct wire *wire, const void *bytes, size_t size) {
    if (!wire->tls)
        return world_stream_send(&wire->stream, bytes, size);
    assert(wire->channel && wire->channel->open);
    if (wire->broken)
        return HF_OK; /* `closed` is to come */
    if (wire->tls->module->write(wire->channel, bytes, size) && send_pending(wire))
        return HF_OK;
    wire->broken = true;
    world_timer_set(wire->stream.world, &wire->timer, world_now_us(wire->stream.world));
    return HF_NO_MEMORY;
}

int wire_init(struct wire *wire, struct world *world, const struct world_peer *peer,
              struct tls *tls, bool exposed, const struct wire_events *events) {
    *wire = (struct wire){
        .stream = {.world = world,
                   .events = &stream_events,
                   .peer = peer,
                   .farthest = tls || exposed ? WORLD_PUBLIC : WORLD_PRIVATE},
        .events = events,
        .tls = tls,
    };
    return tls ? world_timer_add(world, &wire->timer, timer_came) : HF_OK;
}

void wire_drop(struct wire *wire) {
    wire_close(wire);
    if (wire->tls)
        world_timer_drop(wire->stream.world, &wire->timer);
}
