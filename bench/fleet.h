/* Processes of threads that each repeat a step. They are forked once and pause between slices, so
 * that slices of several fleets can be interleaved. Whatever fails ends the program. */
#ifndef BENCH_FLEET_H
#define BENCH_FLEET_H

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdint.h>

enum { FLEET_PROCESSES_MAX = 64 };

struct fleet_member {
    const struct fleet_plan *plan;
    struct fleet *fleet;
    int index;         /* in the whole fleet */
    hf_client *client; /* NULL: the plan has no URL */
    void *own;         /* for the steps */
    uint64_t random;   /* never 0, and different for each */
};

struct fleet_plan {
    const char *url;        /* NULL: the steps need no client */
    int processes, threads; /* threads in each process */
    bool client_each;       /* for each thread, not for each process */
    void (*prepare)(struct fleet_member *member);
    void (*step)(struct fleet_member *member);
    void (*finish)(struct fleet_member *member); /* each may be NULL */
    int count;                                   /* for the steps: of names, or of holds */
};

/* Since the fleet was started. */
struct fleet_sample {
    double steps, changes; /* changes of holder, as noted */
    double us, cpu_us;     /* time, and CPU time of the processes */
};

/* Forks, opens the clients and prepares. The calling process must have no threads. */
struct fleet *fleet_start(const struct fleet_plan *plan);
/* Lets the members run. Returns when each has made a step, so everybody who waits in a queue is
 * there. */
void fleet_go(struct fleet *fleet);
struct fleet_sample fleet_sample(const struct fleet *fleet);
/* Returns when each member has finished its step. */
void fleet_pause(struct fleet *fleet);
void fleet_end(struct fleet *fleet);

/* Called by a step that has the lock which all members share. */
void fleet_note_holder(struct fleet_member *member);

#endif
