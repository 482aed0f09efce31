#ifndef STORE_MEMORY_COUNTERS_H
#define STORE_MEMORY_COUNTERS_H

#include "base/heap.h"
#include "base/map.h"
#include "store/store.h"

/* The counters of a space. To initialise it, set it to zero and call map_init for `by_name`. */
struct counters {
    struct map by_name;
    struct heap expiring;
};

/* Completes a COUNT. */
void counters_count(struct counters *counters, struct store_host *host, struct store_op *op,
                    int64_t now_us);
void counters_free(struct counters *counters);

#endif
