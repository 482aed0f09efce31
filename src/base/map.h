/* A hash table whose nodes live inside the objects that it finds. The table knows hashes only: the
 * caller walks the nodes with a hash and compares. Adding never fails: without memory to grow,
 * chains get longer. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
    struct map_node *next;
    uint64_t hash;
};

struct map {
    struct map_node **buckets;
    struct map_node *only; /* the one bucket of a map that could not get memory yet */
    size_t mask, count;
};

void map_init(struct map *map);
void map_free(struct map *map);
void map_add(struct map *map, struct map_node *node, uint64_t hash);
void map_remove(struct map *map, struct map_node *node);

/* The first node with this hash, and the next one with the same. */
struct map_node *map_find(const struct map *map, uint64_t hash);
struct map_node *map_find_next(const struct map_node *node);

/* Walk all nodes, in no particular order; NULL at the end. The map must not change meanwhile. One
 * exception: you may remove a node once you have its successor. */
struct map_node *map_first(const struct map *map);
struct map_node *map_after(const struct map *map, const struct map_node *node);

/* Hashes of bytes and of a number. They do not resist deliberate collisions: names come from the
 * program itself. */
uint64_t map_hash(const void *bytes, size_t size, uint64_t seed);

static inline uint64_t map_hash_number(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

#endif
