/* One history: what happens when a plan is carried out. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "sim/check.h"
#include "sim/plan.h"

enum { HISTORY_FAULTS_MAX = 64 };

struct history_result {
    enum verdict verdict;
    char what[256];
    uint64_t hash; /* of everything that happened */
    uint64_t requests, grants, losses, counts, events;
    int64_t lasted_us;
    uint64_t faults[HISTORY_FAULTS_MAX]; /* that took place, in the service's order */
};

/* With `story`, prints a line for every event. */
void history_run(const struct plan *plan, bool story, struct history_result *ret_result);

#endif
