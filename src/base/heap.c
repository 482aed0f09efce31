#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>

bool heap_reserve(struct heap *heap, size_t count) {
    if (count <= heap->room)
        return true;
    size_t room = heap->room ? heap->room : 16;
    while (room < count)
        room *= 2;
    struct heap_node **nodes = realloc(heap->nodes, (room + 1) * sizeof(*nodes));
    if (!nodes)
        return false;
    heap->nodes = nodes;
    heap->room = room;
    return true;
}

static void put(struct heap *heap, struct heap_node *node, size_t place) {
    heap->nodes[place] = node;
    node->place = place;
}

static void move_up(struct heap *heap, struct heap_node *node) {
    size_t place = node->place;
    for (; place > 1 && heap->nodes[place / 2]->at > node->at; place /= 2)
        put(heap, heap->nodes[place / 2], place);
    put(heap, node, place);
}

static void move_down(struct heap *heap, struct heap_node *node) {
    size_t place = node->place;
    for (size_t child; (child = place * 2) <= heap->count; place = child) {
        if (child < heap->count && heap->nodes[child + 1]->at < heap->nodes[child]->at)
            child++;
        if (heap->nodes[child]->at >= node->at)
            break;
        put(heap, heap->nodes[child], place);
    }
    put(heap, node, place);
}

void heap_set(struct heap *heap, struct heap_node *node, int64_t at) {
    node->at = at;
    if (!node->place) {
        assert(heap->count < heap->room);
        put(heap, node, ++heap->count);
    }
    move_up(heap, node);
    move_down(heap, node);
}

void heap_remove(struct heap *heap, struct heap_node *node) {
    if (!node->place)
        return;
    size_t place = node->place;
    struct heap_node *last = heap->nodes[heap->count--];
    node->place = 0;
    if (last == node)
        return;
    put(heap, last, place);
    move_up(heap, last);
    move_down(heap, last);
}

void heap_free(struct heap *heap) {
    free(heap->nodes);
    *heap = (struct heap){0};
}
