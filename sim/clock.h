/* True time, and the events in it. Only the simulator knows true time: clients and servers have
 * their own clocks, which run at their own rates and may be set.
 *
 * Events happen in the order of their times and, if those are equal, in the order in which
 * they were set. So a history is the same each time it is run. Each user of chance has its own
 * stream of random numbers, so leaving one thing out of a history does not change the random
 * numbers of the others. */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include "base/heap.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_time {
    int64_t now_us;
    struct heap events;
    uint64_t last_event;
    size_t event_count; /* how many there is room for */
};

struct sim_event {
    struct heap_node node;
    void (*fn)(struct sim_event *event);
};

void sim_time_init(struct sim_time *time);
void sim_time_free(struct sim_time *time);

/* An event may be set and cleared between add and drop, and needs no memory then. */
void sim_event_add(struct sim_time *time, struct sim_event *event, void (*fn)(struct sim_event *));
void sim_event_drop(struct sim_time *time, struct sim_event *event);
void sim_event_set(struct sim_time *time, struct sim_event *event, int64_t at_us);
void sim_event_clear(struct sim_time *time, struct sim_event *event);

/* Runs the next event. If none is due by until_us, moves the time there and returns false. */
bool sim_time_step(struct sim_time *time, int64_t until_us);

/* A clock that showed `shown_us` at `since_us` of true time, and runs fast by `ppm`
 * millionths. */
struct sim_clock {
    int64_t since_us, shown_us;
    int64_t ppm;
};

int64_t sim_clock_read(const struct sim_clock *clock, int64_t true_us);
/* The first true time at which it shows at least this. */
int64_t sim_clock_when(const struct sim_clock *clock, int64_t shown_us);
void sim_clock_step(struct sim_clock *clock, int64_t true_us, int64_t by_us);
void sim_clock_set_rate(struct sim_clock *clock, int64_t true_us, int64_t ppm);

struct sim_random {
    uint64_t state;
};

struct sim_random sim_random_of(uint64_t seed, uint64_t what, uint64_t which);
uint64_t sim_random_next(struct sim_random *random);
uint64_t sim_random_below(struct sim_random *random, uint64_t limit);
int64_t sim_random_between(struct sim_random *random, int64_t least, int64_t most);
bool sim_random_one_in(struct sim_random *random, uint64_t n);

#endif
