/* The counters of the memory store (rule 13 of store.h). It answers each COUNT inside `submit`, so
 * no answer is ever lost, nothing is repeated, and it need not remember answers.
 *
 * Nothing watches the clock: each request first frees the counters that have expired. */
#include "store/memory/counters.h"

#include "store/counts.h"

#include <stdlib.h>
#include <string.h>

struct counter {
    struct map_node by_name;
    struct heap_node expiry; /* in `expiring`, unless it has no end */
    int64_t value;
    char name[];
};

static struct counter *find(struct counters *counters, const char *name) {
    for (struct map_node *node = map_find(&counters->by_name, map_hash(name, strlen(name), 0));
         node; node = map_find_next(node)) {
        struct counter *counter = container_of(node, struct counter, by_name);
        if (strcmp(counter->name, name) == 0)
            return counter;
    }
    return NULL;
}

static void counter_remove(struct counters *counters, struct counter *counter) {
    map_remove(&counters->by_name, &counter->by_name);
    heap_remove(&counters->expiring, &counter->expiry);
    free(counter);
}

static void remove_expired(struct counters *counters, int64_t now_us) {
    struct heap_node *first;
    while ((first = heap_first(&counters->expiring)) && first->at <= now_us)
        counter_remove(counters, container_of(first, struct counter, expiry));
}

/* NULL: no memory. */
static struct counter *counter_new(struct counters *counters, const struct store_op *op,
                                   int64_t now_us) {
    size_t size = strlen(op->name) + 1;
    struct counter *counter = calloc(1, sizeof(*counter) + size);
    if (!counter || !heap_reserve(&counters->expiring, counters->expiring.count + 1)) {
        free(counter);
        return NULL;
    }
    memcpy(counter->name, op->name, size);
    map_add(&counters->by_name, &counter->by_name, map_hash(op->name, size - 1, 0));
    if (op->lease_us)
        heap_set(&counters->expiring, &counter->expiry, now_us + op->lease_us);
    return counter;
}

static int64_t life_us(const struct counter *counter, int64_t now_us) {
    return counter && counter->expiry.place ? counter->expiry.at - now_us : -1;
}

void counters_count(struct counters *counters, struct store_host *host, struct store_op *op,
                    int64_t now_us) {
    remove_expired(counters, now_us);
    struct counter *counter = find(counters, op->name);
    struct counts_number before = {counter, counter ? counter->value : 0}, after;
    struct counts_answer answer = counts_step(op, before, &after);
    if (after.exists && !counter && !(counter = counter_new(counters, op, now_us))) {
        store_refuse(host, op, HF_NO_MEMORY, NULL);
        return;
    }
    int64_t left_us = life_us(counter, now_us);
    if (after.exists)
        counter->value = after.value;
    else if (counter)
        counter_remove(counters, counter);
    counts_complete(host, op, &answer, left_us);
}

void counters_free(struct counters *counters) {
    for (struct map_node *node = map_first(&counters->by_name), *next; node; node = next) {
        next = map_after(&counters->by_name, node);
        counter_remove(counters, container_of(node, struct counter, by_name));
    }
    map_free(&counters->by_name);
    heap_free(&counters->expiring);
}
