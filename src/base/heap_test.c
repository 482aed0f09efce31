/* The heap of times: the earliest first whatever is put in, moved and taken out; nothing but the
 * reservation needs memory. */
#include "base/heap.h"
#include "check.h"
#include "support/failing.h"

enum { NODES = 500 };

static struct heap heap;
static struct heap_node nodes[NODES];

static void check_order(void) {
    for (size_t i = 1; i <= heap.count; i++) {
        CHECK(heap.nodes[i]->place == i);
        CHECK(i == 1 || heap.nodes[i / 2]->at <= heap.nodes[i]->at);
    }
}

TEST(an_empty_heap_has_no_first) {
    CHECK(!heap_first(&heap));
    heap_remove(&heap, &nodes[0]);
    heap_free(&heap);
}

TEST(the_earliest_comes_first) {
    CHECK(heap_reserve(&heap, 3));
    heap_set(&heap, &nodes[0], 20);
    heap_set(&heap, &nodes[1], 10);
    heap_set(&heap, &nodes[2], 30);
    CHECK(heap_first(&heap) == &nodes[1]);
    heap_remove(&heap, &nodes[1]);
    CHECK(heap_first(&heap) == &nodes[0]);
    CHECK_EQ_INT(heap_first(&heap)->at, 20);
    heap_free(&heap);
}

TEST(a_node_that_is_in_moves_earlier_or_later) {
    CHECK(heap_reserve(&heap, 3));
    for (int i = 0; i < 3; i++)
        heap_set(&heap, &nodes[i], i);
    heap_set(&heap, &nodes[2], -5);
    CHECK(heap_first(&heap) == &nodes[2]);
    heap_set(&heap, &nodes[2], 50);
    CHECK(heap_first(&heap) == &nodes[0]);
    CHECK_EQ_INT(heap.count, 3);
    heap_free(&heap);
}

TEST(a_node_that_was_removed_can_be_removed_again_and_come_back) {
    CHECK(heap_reserve(&heap, 1));
    heap_set(&heap, &nodes[0], 7);
    heap_remove(&heap, &nodes[0]);
    heap_remove(&heap, &nodes[0]);
    CHECK_EQ_INT(heap.count, 0);
    heap_set(&heap, &nodes[0], 8);
    CHECK(heap_first(&heap) == &nodes[0]);
    heap_free(&heap);
}

TEST(any_order_of_changes_keeps_the_order_of_times) {
    unsigned random = 1;
    CHECK(heap_reserve(&heap, NODES));
    for (int step = 0; step < 20000; step++) {
        random = random * 1103515245u + 12345u;
        struct heap_node *node = &nodes[(random >> 8) % NODES];
        if (random >> 20 & 1)
            heap_set(&heap, node, (int64_t)(random >> 4) % 1000 - 500);
        else
            heap_remove(&heap, node);
        if (step % 100 == 0)
            check_order();
    }
    int64_t last = INT64_MIN;
    for (struct heap_node *first; (first = heap_first(&heap)); heap_remove(&heap, first)) {
        CHECK(first->at >= last);
        last = first->at;
    }
    heap_free(&heap);
}

TEST(without_memory_a_reservation_fails_and_what_is_in_stays) {
    CHECK(heap_reserve(&heap, 1));
    heap_set(&heap, &nodes[0], 1);
    fail_from_to(0, FAIL_TO_THE_END);
    CHECK(heap_reserve(&heap, 2)); /* there was room for some more */
    CHECK(!heap_reserve(&heap, 100000));
    CHECK(heap_first(&heap) == &nodes[0]);
    fail_pause();
    CHECK(heap_reserve(&heap, 100000));
    CHECK(heap_first(&heap) == &nodes[0]);
    heap_free(&heap);
    CHECK(!heap_first(&heap));
}
