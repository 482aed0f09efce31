/* A binary heap of times: the earliest first. Nodes live inside the objects that are due and know
 * their place, so a change costs at most the logarithm of the size. Only heap_reserve allocates: an
 * object for which room was reserved can be scheduled at any time without failing. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t at;
    size_t place; /* 0: not in the heap */
};

struct heap {
    struct heap_node **nodes; /* nodes[1] is the earliest; nodes[0] is unused */
    size_t count, room;
};

/* Makes room for `count` nodes at once; false when there is no memory. */
bool heap_reserve(struct heap *heap, size_t count);

/* Puts the node in, or moves it, to the time `at`. Room must have been reserved. */
void heap_set(struct heap *heap, struct heap_node *node, int64_t at);

/* Takes the node out if it is in. */
void heap_remove(struct heap *heap, struct heap_node *node);

void heap_free(struct heap *heap);

static inline struct heap_node *heap_first(const struct heap *heap) {
    return heap->count ? heap->nodes[1] : NULL;
}

#endif
