/* The counters of the memory store (rule 13 of store.h). It answers each COUNT inside `submit`, so
 * no answer is ever lost, nothing is repeated, and it need not remember answers.
 *
 * Nothing watches the clock: each request first frees the counters that have expired. */
#include "store/memory/counters.h"

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

static void describe(struct store_op *op, const struct counter *counter, int64_t now_us) {
    op->flags = counter ? 0 : STORE_ABSENT;
    op->value = counter ? counter->value : 0;
    op->life_us = counter && counter->expiry.place ? counter->expiry.at - now_us : -1;
}

/* Sets the counter, which is created if it is NULL; NULL: no memory. */
static struct counter *set(struct counters *counters, struct counter *counter,
                           const struct store_op *op, int64_t value, int64_t now_us) {
    if (!counter)
        counter = counter_new(counters, op, now_us);
    if (counter)
        counter->value = value;
    return counter;
}

static bool is_expected(const struct store_op *op, const struct counter *counter) {
    bool expects_one = !(op->flags & STORE_ABSENT);
    return expects_one ? counter && counter->value == op->expected : !counter;
}

/* HF_OK, HF_RANGE or HF_NO_MEMORY. */
static int count(struct counters *counters, struct store_op *op, int64_t now_us) {
    struct counter *counter = find(counters, op->name);
    int64_t value = op->number;
    bool matches;
    switch ((enum store_count)op->kind) {
    case STORE_COUNT_GET:
        describe(op, counter, now_us);
        return HF_OK;
    case STORE_COUNT_ADD:
        if (__builtin_add_overflow(counter ? counter->value : 0, op->number, &value))
            return HF_RANGE;
        counter = set(counters, counter, op, value, now_us);
        describe(op, counter, now_us);
        return counter ? HF_OK : HF_NO_MEMORY;
    case STORE_COUNT_SWAP:
        describe(op, counter, now_us);
        return set(counters, counter, op, value, now_us) ? HF_OK : HF_NO_MEMORY;
    case STORE_COUNT_CAS:
        matches = is_expected(op, counter);
        if (matches && !(counter = set(counters, counter, op, value, now_us)))
            return HF_NO_MEMORY;
        describe(op, counter, now_us);
        op->flags |= matches ? 0 : STORE_MISMATCH;
        return HF_OK;
    case STORE_COUNT_REMOVE:
        describe(op, counter, now_us);
        if (counter)
            counter_remove(counters, counter);
        return HF_OK;
    }
    abort(); /* the client checks the operation */
}

void counters_count(struct counters *counters, struct store_host *host, struct store_op *op,
                    int64_t now_us) {
    remove_expired(counters, now_us);
    int r = count(counters, op, now_us);
    if (r < 0)
        store_refuse(host, op, r, NULL);
    else
        store_complete(host, op, STORE_DONE);
}

void counters_free(struct counters *counters) {
    for (struct map_node *node = map_first(&counters->by_name), *next; node; node = next) {
        next = map_after(&counters->by_name, node);
        counter_remove(counters, container_of(node, struct counter, by_name));
    }
    map_free(&counters->by_name);
    heap_free(&counters->expiring);
}
