/* Threads that each take a lock and give it back until a slice is over. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { CREW_MAX = 64 };

struct crew {
    int count;
    bool one_name;     /* that all share; otherwise each has its own */
    const char *names; /* what they begin with */
    /* Takes the lock, calls crew_holds, and gives it back. */
    void (*pair)(struct crew *crew, int index, const char *name);
    /* After a pair: whether this one leaves. NULL: it does when it is time to stop. */
    bool (*leaves)(struct crew *crew, int index);
    void *arg;
    int slice_ms; /* 0: 200 */
    /* The rest is the crew's; it may be read between slices. */
    atomic_int last;      /* the last holder */
    long pairs[CREW_MAX]; /* of each in the last slice */
    long changes;         /* of holder; counted while holding the lock */
    pthread_barrier_t start;
    atomic_bool stop;
};

void crew_holds(struct crew *crew, int index);

/* Of a contender (result.h), with the crew: pairs, or changes of holder, in a second. */
double crew_slice(void *crew);

/* How often the thread with the fewest pairs had the lock, compared with the one with the most, in
 * the last slice. */
double crew_least_to_most(const struct crew *crew);

#endif
