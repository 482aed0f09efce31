#include "net/backoff.h"

enum { FIRST_US = 20000, MOST_US = 1000000, DOUBLINGS_MAX = 6 };

static int64_t random_below(struct world *world, int64_t limit) {
    uint32_t random;
    world_random(world, &random, sizeof(random));
    return random % limit;
}

int64_t net_backoff_us(struct net_backoff *backoff, struct world *world) {
    int doublings = backoff->failures < DOUBLINGS_MAX ? (int)backoff->failures : DOUBLINGS_MAX;
    int64_t most_us = (int64_t)FIRST_US << doublings;
    if (most_us > MOST_US)
        most_us = MOST_US;
    backoff->failures++;
    return most_us / 2 + random_below(world, most_us / 2);
}

int64_t net_jitter_us(struct world *world, int64_t about_us) {
    return about_us / 2 + random_below(world, about_us + 1);
}
