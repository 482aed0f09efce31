/* One history: a plan, lived through. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "sim/check.h"
#include "sim/plan.h"

struct history_result {
    enum verdict verdict;
    char what[256];
    uint64_t hash; /* of all that happened */
    uint64_t requests, grants, losses, events;
    int64_t lasted_us;
    uint64_t faults[FAULT_KINDS]; /* that took place */
};

/* With `story`, every event is told in a line. */
void history_run(const struct plan *plan, bool story, struct history_result *ret_result);

#endif
