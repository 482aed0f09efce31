#include "sim/clock.h"

#include "base/list.h"
#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>

enum { ORDER_BITS = 20 };

void sim_time_init(struct sim_time *time) {
    *time = (struct sim_time){0};
}

void sim_time_free(struct sim_time *time) {
    heap_free(&time->events);
}

void sim_event_add(struct sim_time *time, struct sim_event *event, void (*fn)(struct sim_event *)) {
    *event = (struct sim_event){.fn = fn};
    if (!heap_reserve(&time->events, ++time->event_count)) {
        fprintf(stderr, "sim: out of memory\n");
        exit(70);
    }
}

void sim_event_drop(struct sim_time *time, struct sim_event *event) {
    heap_remove(&time->events, &event->node);
    time->event_count--;
}

void sim_event_set(struct sim_time *time, struct sim_event *event, int64_t at_us) {
    int64_t at = at_us > time->now_us ? at_us : time->now_us;
    heap_set(&time->events, &event->node,
             at << ORDER_BITS | (int64_t)(++time->last_event & ((1 << ORDER_BITS) - 1)));
}

void sim_event_clear(struct sim_time *time, struct sim_event *event) {
    heap_remove(&time->events, &event->node);
}

bool sim_time_step(struct sim_time *time, int64_t until_us) {
    struct heap_node *first = heap_first(&time->events);
    if (!first || first->at >> ORDER_BITS > until_us) {
        time->now_us = until_us > time->now_us ? until_us : time->now_us;
        return false;
    }
    time->now_us = first->at >> ORDER_BITS;
    heap_remove(&time->events, first);
    struct sim_event *event = container_of(first, struct sim_event, node);
    event->fn(event);
    return true;
}

/* ---- Clocks ---- */

int64_t sim_clock_read(const struct sim_clock *clock, int64_t true_us) {
    int64_t passed_us = true_us - clock->since_us;
    return clock->shown_us + passed_us + passed_us * clock->ppm / 1000000;
}

int64_t sim_clock_when(const struct sim_clock *clock, int64_t shown_us) {
    int64_t to_show_us = shown_us - clock->shown_us;
    int64_t at_us = clock->since_us + to_show_us * 1000000 / (1000000 + clock->ppm);
    while (sim_clock_read(clock, at_us) < shown_us)
        at_us++;
    return at_us;
}

void sim_clock_step(struct sim_clock *clock, int64_t true_us, int64_t by_us) {
    clock->shown_us = sim_clock_read(clock, true_us) + by_us;
    clock->since_us = true_us;
}

void sim_clock_set_rate(struct sim_clock *clock, int64_t true_us, int64_t ppm) {
    sim_clock_step(clock, true_us, 0);
    clock->ppm = ppm;
}

/* ---- Chance ---- */

struct sim_random sim_random_of(uint64_t seed, uint64_t what, uint64_t which) {
    return (struct sim_random){map_hash_number(map_hash_number(seed * 1000003 + what) + which)};
}

uint64_t sim_random_next(struct sim_random *random) {
    random->state += 0x9e3779b97f4a7c15u;
    return map_hash_number(random->state);
}

uint64_t sim_random_below(struct sim_random *random, uint64_t limit) {
    return sim_random_next(random) % limit;
}

int64_t sim_random_between(struct sim_random *random, int64_t least, int64_t most) {
    return least + (int64_t)sim_random_below(random, (uint64_t)(most - least + 1));
}

bool sim_random_one_in(struct sim_random *random, uint64_t n) {
    return sim_random_below(random, n) == 0;
}
