#include "support/fake_streams.h"

#include "base/map.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any test does without time passing. */
enum { ROUNDS_AT_ONCE = 20000, LOOKS_AT_CLOCK = 1000000 };

struct fake {
    struct world world;
    int64_t now_us;
    int rounds, looks; /* since time passed */
    uint64_t random_state;
    int open_error, send_error;
    struct fake_stream **streams;
    size_t count, room;
    bool serving;
    void (*server)(struct fake_stream *stream);
    void *context;
};

static struct fake *fake_of(struct world *world) {
    return container_of(world, struct fake, world);
}

static void die(const struct fake *fake, const char *why) {
    printf("# fake world at %.6f s: %s\n", (double)fake->now_us / 1e6, why);
    fflush(stdout);
    abort();
}

/* ---- The world ---- */

static int64_t get_now_us(struct world *world) {
    struct fake *fake = fake_of(world);
    if (++fake->looks > LOOKS_AT_CLOCK)
        die(fake, "somebody looks at the clock for ever");
    return fake->now_us;
}

static int64_t get_wall_us(struct world *world) {
    return INT64_C(1700000000) * 1000000 + fake_of(world)->now_us;
}

/* The same in each run, and different at each call. */
static void get_random(struct world *world, void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(map_hash_number(++fake_of(world)->random_state) >> 32);
}

static void arm(struct world *world, int64_t at_us) {
    (void)world;
    (void)at_us; /* the heap says it too */
}

static void no_dispatch(struct world *world) {
    (void)world; /* the test does what happens to streams */
}

static void end(struct world *world) {
    struct fake *fake = fake_of(world);
    for (size_t i = 0; i < fake->count; i++) {
        assert(!fake->streams[i]->owner); /* the owner of a stream closes it */
        free(fake->streams[i]->bytes);
        free(fake->streams[i]);
    }
    free(fake->streams);
    free(fake);
}

/* ---- Streams ---- */

static int open_stream(struct world_stream *owner) {
    struct fake *fake = fake_of(owner->world);
    assert(!owner->state);
    if (fake->open_error)
        return fake->open_error;
    if (fake->count == fake->room) {
        size_t room = 2 * fake->room + 8;
        struct fake_stream **grown = realloc(fake->streams, room * sizeof(struct fake_stream *));
        if (!grown)
            return HF_NO_MEMORY;
        fake->streams = grown;
        fake->room = room;
    }
    struct fake_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return HF_NO_MEMORY;
    stream->owner = owner;
    stream->opened_us = fake->now_us;
    fake->streams[fake->count++] = stream;
    owner->state = stream;
    return HF_OK;
}

static int send_bytes(struct world_stream *owner, const void *bytes, size_t size) {
    struct fake *fake = fake_of(owner->world);
    struct fake_stream *stream = owner->state;
    assert(stream && stream->accepted);
    if (fake->send_error)
        return fake->send_error;
    if (stream->size + size > stream->room) {
        size_t room = stream->size + size; /* at first each send needs memory, and so may fail */
        room = room > 4096 ? 2 * room : room;
        char *grown = realloc(stream->bytes, room);
        if (!grown)
            return HF_NO_MEMORY;
        stream->bytes = grown;
        stream->room = room;
    }
    memcpy(stream->bytes + stream->size, bytes, size);
    stream->size += size;
    return HF_OK;
}

static void flush(struct world *world) {
    struct fake *fake = fake_of(world);
    for (size_t i = 0; i < fake->count; i++) {
        struct fake_stream *stream = fake->streams[i];
        stream->writes += stream->size > stream->written;
        stream->written = stream->size;
    }
}

static void forget(struct fake_stream *stream) {
    stream->owner->state = NULL;
    stream->owner = NULL;
    stream->size = stream->written; /* the rest never went out */
}

static void close_stream(struct world_stream *owner) {
    forget(owner->state);
}

static const struct world_ops fake_ops = {
    .now_us = get_now_us,
    .host_us = get_now_us,
    .wall_us = get_wall_us,
    .random = get_random,
    .arm = arm,
    .dispatch = no_dispatch,
    .open_stream = open_stream,
    .send = send_bytes,
    .flush = flush,
    .close_stream = close_stream,
    .close = end,
};

/* ---- For the test ---- */

struct world *fake_world(void) {
    struct fake *fake = calloc(1, sizeof(*fake));
    if (!fake)
        return NULL;
    world_init(&fake->world, &fake_ops);
    return &fake->world;
}

size_t fake_stream_count(struct world *world) {
    return fake_of(world)->count;
}

struct fake_stream *fake_stream(struct world *world, size_t index) {
    assert(index < fake_of(world)->count);
    return fake_of(world)->streams[index];
}

struct fake_stream *fake_last(struct world *world) {
    struct fake *fake = fake_of(world);
    for (size_t i = fake->count; i-- > 0;)
        if (fake->streams[i]->owner)
            return fake->streams[i];
    return NULL;
}

static bool has_news(const struct fake_stream *stream) {
    return stream->owner && (!stream->shown || stream->read < stream->written);
}

/* Runs what is due, writes what was sent, and lets the server answer, until nothing more
 * happens. */
void fake_settle(struct world *world) {
    struct fake *fake = fake_of(world);
    bool more = true;
    if (fake->serving)
        return; /* the call that runs the server goes on with it */
    while (more) {
        if (++fake->rounds > ROUNDS_AT_ONCE)
            die(fake, "it goes round and round: a busy loop");
        world_dispatch(world);
        world_flush(world);
        more = false;
        for (size_t i = 0; fake->server && i < fake->count; i++) {
            if (!has_news(fake->streams[i]))
                continue;
            more = true;
            fake->streams[i]->shown = true;
            fake->streams[i]->context = fake->context;
            fake->serving = true;
            fake->server(fake->streams[i]);
            fake->serving = false;
        }
        struct heap_node *first = heap_first(&world->timers);
        more |= first && first->at <= fake->now_us;
    }
}

void fake_serve(struct world *world, void (*server)(struct fake_stream *stream), void *context) {
    fake_of(world)->server = server;
    fake_of(world)->context = context;
    fake_settle(world);
}

void fake_pass_us(struct world *world, int64_t us) {
    struct fake *fake = fake_of(world);
    int64_t until_us = fake->now_us + us;
    fake_settle(world);
    while (fake->now_us < until_us) {
        struct heap_node *first = heap_first(&world->timers);
        fake->now_us = first && first->at < until_us ? first->at : until_us;
        fake->rounds = fake->looks = 0;
        fake_settle(world);
    }
}

void fake_accept(struct fake_stream *stream) {
    struct world_stream *owner = stream->owner;
    assert(owner && !stream->accepted);
    stream->accepted = true;
    owner->events->opened(owner);
    fake_settle(owner->world);
}

void fake_answer(struct fake_stream *stream, const void *bytes, size_t size) {
    struct world_stream *owner = stream->owner;
    assert(owner && stream->accepted);
    owner->events->received(owner, bytes, size);
    fake_settle(owner->world);
}

void fake_answer_text(struct fake_stream *stream, const char *text) {
    fake_answer(stream, text, strlen(text));
}

void fake_hang_up(struct fake_stream *stream, const char *why) {
    struct world_stream *owner = stream->owner;
    assert(owner);
    forget(stream);
    owner->events->closed(owner, why);
    fake_settle(owner->world);
}

void fake_fail_open(struct world *world, int error) {
    fake_of(world)->open_error = error;
}

void fake_fail_send(struct world *world, int error) {
    fake_of(world)->send_error = error;
}
