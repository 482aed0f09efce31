#include "sim/redis/keyspace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arrays ---- */

/* Makes a gap of one item at `place`. */
static void *open_gap(void *items, size_t item_size, size_t *count, size_t *room, size_t place) {
    if (*count == *room) {
        *room = 2 * *room + 4;
        items = bytes_allocate(items, *room * item_size);
    }
    char *gap = (char *)items + place * item_size;
    memmove(gap + item_size, gap, (*count - place) * item_size);
    ++*count;
    return items;
}

static void close_gap(void *items, size_t item_size, size_t *count, size_t place) {
    assert(items && place < *count);
    char *gap = (char *)items + place * item_size;
    --*count;
    memmove(gap, gap + item_size, (*count - place) * item_size);
}

/* ---- Keys ---- */

/* Where the name is, or would be. */
static size_t find_place(const struct keyspace *keys, struct slice name, bool *ret_found) {
    size_t low = 0, high = keys->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = slice_compare(name, keys->entries[middle]->name);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    *ret_found = false;
    return low;
}

struct entry *keyspace_find(const struct keyspace *keys, struct slice name) {
    bool found;
    size_t place = find_place(keys, name, &found);
    return found ? keys->entries[place] : NULL;
}

struct entry *keyspace_add(struct keyspace *keys, struct slice name, enum model_type type) {
    bool found;
    size_t place = find_place(keys, name, &found);
    assert(!found);
    struct entry *entry = bytes_allocate(NULL, sizeof(*entry));
    *entry = (struct entry){.name = slice_copy(name), .type = type, .expires_ms = -1};
    keys->entries =
        open_gap(keys->entries, sizeof(struct entry *), &keys->count, &keys->room, place);
    keys->entries[place] = entry;
    return entry;
}

static void entry_free(struct entry *entry) {
    for (size_t i = 0; i < entry->count; i++) {
        if (entry->type == MODEL_HASH) {
            slice_free(entry->fields[i].name);
            slice_free(entry->fields[i].value);
        } else {
            slice_free(entry->members[i].name);
        }
    }
    free(entry->fields);
    free(entry->members);
    text_free(&entry->string);
    slice_free(entry->name);
    free(entry);
}

void keyspace_delete(struct keyspace *keys, struct entry *entry) {
    bool found;
    size_t place = find_place(keys, entry->name, &found);
    assert(found);
    entry_free(entry);
    close_gap(keys->entries, sizeof(struct entry *), &keys->count, place);
}

void keyspace_clear(struct keyspace *keys) {
    for (size_t i = 0; i < keys->count; i++)
        entry_free(keys->entries[i]);
    free(keys->entries);
    *keys = (struct keyspace){NULL, 0, 0};
}

void keyspace_copy(const struct keyspace *from, struct keyspace *to) {
    assert(!to->count);
    for (size_t i = 0; i < from->count; i++) {
        const struct entry *entry = from->entries[i];
        struct entry *copy = keyspace_add(to, entry->name, entry->type);
        copy->expires_ms = entry->expires_ms;
        if (entry->type == MODEL_STRING)
            string_set(copy, (struct slice){entry->string.bytes, entry->string.size});
        for (size_t j = 0; j < entry->count; j++) {
            if (entry->type == MODEL_HASH)
                hash_set(copy, entry->fields[j].name, entry->fields[j].value);
            else
                zset_set(copy, entry->members[j].name, entry->members[j].score);
        }
    }
}

/* ---- Values ---- */

void string_set(struct entry *entry, struct slice value) {
    entry->string.size = 0;
    text_add(&entry->string, value.bytes, value.size);
}

struct field *hash_find(const struct entry *entry, struct slice name) {
    for (size_t i = 0; i < entry->count; i++)
        if (slice_compare(entry->fields[i].name, name) == 0)
            return &entry->fields[i];
    return NULL;
}

bool hash_set(struct entry *entry, struct slice name, struct slice value) {
    struct field *field = hash_find(entry, name);
    if (field) {
        struct slice old = field->value;
        field->value = slice_copy(value);
        slice_free(old);
        return false;
    }
    size_t place = entry->count;
    entry->fields =
        open_gap(entry->fields, sizeof(*entry->fields), &entry->count, &entry->room, place);
    entry->fields[place] = (struct field){slice_copy(name), slice_copy(value)};
    return true;
}

void hash_delete(struct entry *entry, struct field *field) {
    slice_free(field->name);
    slice_free(field->value);
    close_gap(entry->fields, sizeof(*field), &entry->count, (size_t)(field - entry->fields));
}

struct member *zset_find(const struct entry *entry, struct slice name) {
    for (size_t i = 0; i < entry->count; i++)
        if (slice_compare(entry->members[i].name, name) == 0)
            return &entry->members[i];
    return NULL;
}

static bool stands_before(const struct member *member, double score, struct slice name) {
    if (member->score != score)
        return member->score < score;
    return slice_compare(member->name, name) < 0;
}

bool zset_set(struct entry *entry, struct slice name, double score) {
    struct member *old = zset_find(entry, name);
    struct slice kept = old ? old->name : slice_copy(name);
    if (old)
        close_gap(entry->members, sizeof(*old), &entry->count, (size_t)(old - entry->members));
    size_t place = 0;
    while (place < entry->count && stands_before(&entry->members[place], score, kept))
        place++;
    entry->members =
        open_gap(entry->members, sizeof(*entry->members), &entry->count, &entry->room, place);
    entry->members[place] =
        (struct member){kept, score + 0.0}; /* -0 is 0, as in small sets of Redis */
    return !old;
}

void zset_delete(struct entry *entry, struct member *member) {
    slice_free(member->name);
    close_gap(entry->members, sizeof(*member), &entry->count, (size_t)(member - entry->members));
}
