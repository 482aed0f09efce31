#include "base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void map_init(struct map *map) {
    *map = (struct map){0};
    map->buckets = &map->only;
}

void map_free(struct map *map) {
    if (map->buckets != &map->only)
        free(map->buckets);
    map_init(map);
}

static void insert(struct map *map, struct map_node *node) {
    struct map_node **bucket = &map->buckets[node->hash & map->mask];
    node->next = *bucket;
    *bucket = node;
}

static void grow(struct map *map) {
    size_t room = map->mask ? (map->mask + 1) * 2 : 16;
    struct map_node **buckets = calloc(room, sizeof(*buckets));
    if (!buckets)
        return;
    struct map old = *map;
    if (old.buckets == &map->only)
        old.buckets = &old.only;
    map->buckets = buckets;
    map->mask = room - 1;
    for (size_t i = 0; i <= old.mask; i++) {
        for (struct map_node *node = old.buckets[i], *next; node; node = next) {
            next = node->next;
            insert(map, node);
        }
    }
    if (old.buckets != &old.only)
        free(old.buckets);
}

void map_add(struct map *map, struct map_node *node, uint64_t hash) {
    if (map->count > map->mask)
        grow(map);
    node->hash = hash;
    insert(map, node);
    map->count++;
}

void map_remove(struct map *map, struct map_node *node) {
    struct map_node **link = &map->buckets[node->hash & map->mask];
    while (*link != node) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = node->next;
    map->count--;
}

static struct map_node *with_hash(struct map_node *node, uint64_t hash) {
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

struct map_node *map_find(const struct map *map, uint64_t hash) {
    return with_hash(map->buckets[hash & map->mask], hash);
}

struct map_node *map_find_next(const struct map_node *node) {
    return with_hash(node->next, node->hash);
}

static struct map_node *from_bucket(const struct map *map, size_t bucket) {
    for (; bucket <= map->mask; bucket++) {
        if (map->buckets[bucket])
            return map->buckets[bucket];
    }
    return NULL;
}

struct map_node *map_first(const struct map *map) {
    return from_bucket(map, 0);
}

struct map_node *map_after(const struct map *map, const struct map_node *node) {
    return node->next ? node->next : from_bucket(map, (node->hash & map->mask) + 1);
}

uint64_t map_hash(const void *bytes, size_t size, uint64_t seed) {
    const unsigned char *p = bytes;
    uint64_t hash = map_hash_number(seed ^ size);
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = map_hash_number(hash ^ word);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, size);
    return map_hash_number(hash ^ tail);
}
