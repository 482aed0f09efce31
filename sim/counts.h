/* The checker of counters. Each step happens once, or at most once if its client does not know; and
 * each sees what happened before it.
 *
 * Every step adds a different number: two bits, which say how often it happened. So a value of the
 * counter shows which steps it is made of. The demands are:
 *
 *  - No step happened twice, and none that was refused, or failed to match, happened at all.
 *  - A client that gets an answer sees its own step and all that were answered before it began.
 *  - Of two values, one contains all the steps of the other: the counter had one after the other.
 *  - A counter that expires has its expiry from the start.
 *
 * If a server forgets something, only one thing is demanded of the steps that had begun by then:
 * each happens at most once. (The server may then get a copy of a request that it had refused, and
 * do it.) If it forgets some keys and keeps others, nothing is demanded. */
#ifndef SIM_COUNTS_H
#define SIM_COUNTS_H

#include "sim/check.h"

enum counts_state { COUNTS_PLANNED, COUNTS_STARTED, COUNTS_ENDED };

struct counts_step {
    const struct plan_count *plan;
    enum counts_state state;
    struct sim_event due;
    hf_call *call;
    int64_t since_us; /* when it entered its state, in true time */
    int result;       /* ENDED: an hf_error */
    bool forgotten;   /* it had begun when the server forgot something */
};

/* What a client saw last. */
struct counts_seen {
    bool exists;
    int64_t value;
};

struct counts {
    struct check *check;
    int count;
    struct counts_step steps[PLAN_COUNTS_MAX];
    struct counts_seen seen[PLAN_CLIENTS_MAX];
    int64_t values[PLAN_COUNTS_MAX]; /* that were answered since the server last forgot something */
    int value_count;
    bool torn;      /* the server has forgotten some keys, and not others */
    bool went_back; /* the server's clock */
};

void counts_init(struct counts *counts, struct check *check);

/* A step begins. Returns the options for hf_count_start. */
hf_count_options counts_begin(struct counts *counts, struct counts_step *step);

/* It has ended. `answer` counts if the result is HF_OK or HF_MISMATCH. */
void counts_end(struct counts *counts, struct counts_step *step, int result,
                const hf_counter *answer);

/* The server has forgotten what it had acknowledged: all of a period, or (`torn`) some of its
 * keys. */
void counts_forgot(struct counts *counts, bool torn);
void counts_time_went_back(struct counts *counts);

/* At the end: looks at the counter itself. */
void counts_finish(struct counts *counts, struct sim_server *server);

#endif
