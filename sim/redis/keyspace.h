/* The keys of a server and their values. Keys are sorted; the fields of a hash are in the
 * order in which they came; the members of a sorted set are in the order of their scores. No
 * order depends on an address or a hash function. All are arrays, as a simulated server has
 * tens of keys. This file does not look at the time: every key stays until it is deleted, and
 * the caller asks whether it has expired. */
#ifndef MODEL_KEYSPACE_H
#define MODEL_KEYSPACE_H

#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"

struct field {
    struct slice name, value;
};
struct member {
    struct slice name;
    double score;
};

struct entry {
    struct slice name;
    enum model_type type;
    int64_t expires_ms; /* -1: never */
    struct text string;
    struct field *fields;
    struct member *members;
    size_t count, room; /* of fields or members; empty hashes and sorted sets do not exist */
};

struct keyspace {
    struct entry **entries;
    size_t count, room;
};

struct entry *keyspace_find(const struct keyspace *keys, struct slice name);
/* The name must be new. */
struct entry *keyspace_add(struct keyspace *keys, struct slice name, enum model_type type);
void keyspace_delete(struct keyspace *keys, struct entry *entry);
void keyspace_clear(struct keyspace *keys);
/* `to` is empty. */
void keyspace_copy(const struct keyspace *from, struct keyspace *to);

void string_set(struct entry *entry, struct slice value);

struct field *hash_find(const struct entry *entry, struct slice name);
/* True: the field is new. */
bool hash_set(struct entry *entry, struct slice name, struct slice value);
void hash_delete(struct entry *entry, struct field *field);

struct member *zset_find(const struct entry *entry, struct slice name);
/* True: the member is new. */
bool zset_set(struct entry *entry, struct slice name, double score);
void zset_delete(struct entry *entry, struct member *member);

#endif
