/* The hash table: what was added is found, equal hashes are walked. Without memory to grow, it gets
 * slow but stays correct. */
#include "base/map.h"
#include "check.h"
#include "support/failing.h"

enum { NODES = 1000 };

static struct map map;
static struct map_node nodes[NODES];
static bool added[NODES];

static void add(int i, uint64_t hash) {
    map_add(&map, &nodes[i], hash);
    added[i] = true;
}

static void remove_node(int i) {
    map_remove(&map, &nodes[i]);
    added[i] = false;
}

/* Every node in the map is found by its hash and met once in a walk; no other node is. */
static void check_map(void) {
    size_t in = 0, walked = 0;
    for (int i = 0; i < NODES; i++) {
        struct map_node *found = added[i] ? map_find(&map, nodes[i].hash) : NULL;
        while (found && found != &nodes[i])
            found = map_find_next(found);
        CHECK_EQ_INT(found != NULL, added[i]);
        in += added[i];
    }
    for (struct map_node *node = map_first(&map); node; node = map_after(&map, node)) {
        CHECK(added[node - nodes]);
        walked++;
    }
    CHECK_EQ_INT(walked, in);
    CHECK_EQ_INT(map.count, in);
}

static void fill_and_empty(void) {
    map_init(&map);
    for (int i = 0; i < NODES; i++)
        add(i, map_hash_number((uint64_t)i));
    check_map();
    for (int i = 0; i < NODES; i += 3)
        remove_node(i);
    check_map();
    CHECK(!map_find(&map, map_hash_number(NODES)));
    for (int i = 0; i < NODES; i++) {
        if (added[i])
            remove_node(i);
    }
    check_map();
    CHECK(!map_first(&map));
    map_free(&map);
}

TEST(an_empty_map_finds_nothing) {
    map_init(&map);
    CHECK(!map_find(&map, 0));
    CHECK(!map_first(&map));
    map_free(&map);
}

TEST(what_was_added_is_found_until_it_is_removed) {
    fill_and_empty();
}

TEST(nodes_of_one_hash_are_all_found) {
    map_init(&map);
    for (int i = 0; i < 50; i++)
        add(i, 42);
    add(50, 42 + 1024);
    check_map();
    for (int i = 0; i < 50; i += 2)
        remove_node(i);
    check_map();
    int found = 0;
    for (struct map_node *node = map_find(&map, 42); node; node = map_find_next(node))
        found++;
    CHECK_EQ_INT(found, 25);
    map_free(&map);
}

TEST(without_memory_to_grow_everything_is_still_found) {
    for (int failures = 1; failures <= 5; failures++) {
        fail_from_to(0, failures - 1);
        fill_and_empty();
    }
    fail_from_to(0, FAIL_TO_THE_END);
    fill_and_empty();
}

TEST(a_walk_may_remove_the_node_whose_successor_it_knows) {
    map_init(&map);
    for (int i = 0; i < NODES; i++)
        add(i, map_hash_number((uint64_t)i));
    for (struct map_node *node = map_first(&map), *next; node; node = next) {
        next = map_after(&map, node);
        remove_node((int)(node - nodes));
    }
    check_map();
    map_free(&map);
}

TEST(a_hash_depends_on_every_byte_the_length_and_the_seed) {
    uint64_t hash = map_hash("nightly-report", 14, 0);
    CHECK(hash == map_hash("nightly-report", 14, 0));
    CHECK(hash != map_hash("nightly-report", 13, 0));
    CHECK(hash != map_hash("nightly-report", 14, 1));
    CHECK(map_hash("", 0, 0) != map_hash("\0", 1, 0));
    for (int i = 0; i < 14; i++) {
        char name[] = "nightly-report";
        name[i] ^= 1;
        CHECK(hash != map_hash(name, 14, 0));
    }
}
