/* Threads that each take a lock and give it back until a slice is over. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { CREW_MAX = 64 };

struct crew {
    int count;
    bool one_name;     /* of all; else a name for each */
    const char *names; /* what they begin with */
    /* Takes the lock, calls crew_holds, and gives it back. */
    void (*pair)(struct crew *crew, int index, const char *name);
    void *arg;
    /* The rest is the crew's. */
    atomic_int last;   /* the last holder */
    atomic_long pairs; /* of all */
    long changes;      /* of holder; whoever holds the lock counts */
    pthread_barrier_t start;
    atomic_bool stop;
};

void crew_holds(struct crew *crew, int index);

/* Of a contender (compare.h), with the crew: pairs, or changes of holder, in a second. */
double crew_slice(void *crew);

#endif
