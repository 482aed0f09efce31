/* How long to wait before the next attempt, after some have failed: 20 ms at first, twice as long
 * each time, and a second at most. A random part of up to a half is left off, so that many clients
 * do not come back to a server at the same moment. */
#ifndef NET_BACKOFF_H
#define NET_BACKOFF_H

#include "world/world.h"

struct net_backoff {
    unsigned failures; /* in a row; set it to 0 after a success */
};

/* Notes one more failure. Returns the time to wait. */
int64_t net_backoff_us(struct net_backoff *backoff, struct world *world);

/* A time of about this length, from a half of it to one and a half, for clients that must not act
 * in step. */
int64_t net_jitter_us(struct world *world, int64_t about_us);

#endif
