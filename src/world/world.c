/* Timers and bells, which are the same in every world. */
#include "world/world.h"

#include "base/cancel.h"

#include <assert.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <unistd.h>

void world_init(struct world *world, const struct world_ops *ops) {
    *world = (struct world){.ops = ops, .fd = -1, .armed_us = WORLD_NEVER};
    list_init(&world->bells);
    list_init(&world->flushers);
}

void world_close(struct world *world) {
    heap_free(&world->timers);
    world->ops->close(world);
}

int world_timer_add(struct world *world, struct world_timer *timer,
                    void (*fn)(struct world_timer *)) {
    *timer = (struct world_timer){.fn = fn};
    if (!heap_reserve(&world->timers, world->timer_count + 1))
        return HF_NO_MEMORY;
    world->timer_count++;
    return HF_OK;
}

void world_timer_drop(struct world *world, struct world_timer *timer) {
    heap_remove(&world->timers, &timer->node);
    world->timer_count--;
}

void world_timer_set(struct world *world, struct world_timer *timer, int64_t at_us) {
    heap_set(&world->timers, &timer->node, at_us);
    if (at_us < world->armed_us) {
        world->armed_us = at_us;
        world->ops->arm(world, at_us);
    }
}

void world_timer_clear(struct world *world, struct world_timer *timer) {
    heap_remove(&world->timers, &timer->node);
}

int world_watch(struct world *world, struct world_watch *watch) {
    return world->ops->watch(world, watch);
}

int world_watch_change(struct world *world, struct world_watch *watch, uint32_t events) {
    return watch->events == events ? HF_OK : world->ops->change_watch(world, watch, events);
}

void world_unwatch(struct world *world, struct world_watch *watch) {
    world->ops->unwatch(world, watch);
}

void world_bell_add(struct world *world, struct world_bell *bell, void (*fn)(struct world_bell *)) {
    bell->world = world;
    bell->fn = fn;
    atomic_init(&bell->rung, false);
    list_append(&world->bells, &bell->link);
}

void world_bell_drop(struct world_bell *bell) {
    list_remove(&bell->link);
}

void world_bell_ring(struct world_bell *bell) {
    if (!atomic_exchange(&bell->rung, true))
        bell->world->ops->ring(bell->world);
}

void world_bell_ring_within(struct world_bell *bell) {
    if (bell->world->will_hear)
        atomic_store(&bell->rung, true);
    else
        world_bell_ring(bell);
}

void world_signal(int event_fd) {
    uint64_t one = 1;
    int cancelling = cancel_disable();
    /* EAGAIN: the counter is full, so the eventfd is readable anyway. */
    if (write(event_fd, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN);
    cancel_restore(cancelling);
}

int world_stream_open(struct world_stream *stream) {
    stream->reach = WORLD_THIS_HOST;
    return stream->world->ops->open_stream(stream);
}

int world_stream_send(struct world_stream *stream, const void *bytes, size_t size) {
    return stream->world->ops->send(stream, bytes, size);
}

void world_stream_close(struct world_stream *stream) {
    if (stream->state)
        stream->world->ops->close_stream(stream);
}

void world_flusher_init(struct world_flusher *flusher, void (*fn)(struct world_flusher *)) {
    list_init(&flusher->link);
    flusher->fn = fn;
}

void world_flusher_drop(struct world_flusher *flusher) {
    list_remove(&flusher->link);
}

void world_flusher_ask(struct world *world, struct world_flusher *flusher) {
    if (list_empty(&flusher->link))
        list_append(&world->flushers, &flusher->link);
}

int world_look_up(struct world *world, struct world_lookup *lookup, const char *host,
                  int64_t timeout_us) {
    return world->ops->look_up(world, lookup, host, timeout_us);
}

void world_lookup_stop(struct world *world, struct world_lookup *lookup) {
    if (lookup->state)
        world->ops->stop_lookup(world, lookup);
}

void world_flush(struct world *world) {
    struct list asked, *node;
    list_move(&world->flushers,
              &asked); /* one that asks again in its fn is called at the next flush */
    while ((node = list_pop(&asked))) {
        struct world_flusher *flusher = container_of(node, struct world_flusher, link);
        flusher->fn(flusher);
    }
    if (world->ops->flush)
        world->ops->flush(world);
}

static void run_bells(struct world *world) {
    list_each_safe(node, &world->bells) {
        struct world_bell *bell = container_of(node, struct world_bell, link);
        if (atomic_exchange(&bell->rung, false) && bell->fn)
            bell->fn(bell);
    }
}

static void run_timers(struct world *world) {
    int64_t now_us = world_now_us(world);
    struct heap_node *first;
    while ((first = heap_first(&world->timers)) && first->at <= now_us) {
        heap_remove(&world->timers, first);
        struct world_timer *timer = container_of(first, struct world_timer, node);
        timer->fn(timer);
    }
    /* Timers set by those that ran are already armed if they are earlier. */
    int64_t next_us = first ? first->at : WORLD_NEVER;
    if (world->armed_us <= now_us || next_us < world->armed_us) {
        world->armed_us = next_us;
        world->ops->arm(world, next_us);
    }
}

void world_dispatch(struct world *world) {
    world->will_hear = true;
    world->ops->dispatch(world);
    run_bells(world);
    run_timers(world);
    world->will_hear = false;
    run_bells(world);
}
