/* Commands of keys of any type, and of strings. */
#include "sim/redis/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t now_ms(const struct model_redis *redis) {
    return redis->now_us / 1000;
}

/* ---- Finding keys ---- */

/* A key lives through its last millisecond, as in Redis: with 1 ms to live, it exists for 1 to 2
 * ms. */
bool model_has_expired(const struct model_redis *redis, const struct entry *entry) {
    return entry->expires_ms >= 0 && now_ms(redis) > entry->expires_ms;
}

/* A replica waits for its master to delete what has expired. */
struct entry *model_find(struct model_redis *redis, struct slice name) {
    struct entry *entry = keyspace_find(&redis->keys, name);
    if (!entry || !model_has_expired(redis, entry))
        return entry;
    if (redis->mode != MODEL_READONLY)
        keyspace_delete(&redis->keys, entry);
    return NULL;
}

bool model_find_typed(struct call *call, enum model_type type, struct entry **ret_entry) {
    struct entry *entry = model_find(call->redis, call->words[1]);
    if (entry && entry->type != type) {
        answer_error(call->answer,
                     "WRONGTYPE Operation against a key holding the wrong kind of value");
        return false;
    }
    *ret_entry = entry;
    return true;
}

void model_drop_if_empty(struct model_redis *redis, struct entry *entry) {
    if (entry->count == 0)
        keyspace_delete(&redis->keys, entry);
}

/* ---- Keys of any type ---- */

void serve_del(struct call *call) {
    int64_t deleted = 0;
    for (size_t i = 1; i < call->count; i++) {
        struct entry *entry = model_find(call->redis, call->words[i]);
        if (entry) {
            keyspace_delete(&call->redis->keys, entry);
            deleted++;
        }
    }
    answer_integer(call->answer, deleted);
}

void serve_exists(struct call *call) {
    int64_t found = 0;
    for (size_t i = 1; i < call->count; i++)
        found += model_find(call->redis, call->words[i]) != NULL;
    answer_integer(call->answer, found);
}

void serve_pttl(struct call *call) {
    const struct entry *entry = model_find(call->redis, call->words[1]);
    answer_integer(call->answer, !entry                  ? -2
                                 : entry->expires_ms < 0 ? -1
                                                         : entry->expires_ms - now_ms(call->redis));
}

void serve_pexpire(struct call *call) {
    int64_t ms, at_ms;
    if (call->count > 3) {
        answer_unknown_option(call, call->words[3]);
        return;
    }
    if (!slice_to_integer(call->words[2], &ms)) {
        answer_not_integer(call);
        return;
    }
    if (__builtin_add_overflow(ms, now_ms(call->redis), &at_ms)) {
        answer_error(call->answer, "ERR invalid expire time in 'pexpire' command");
        return;
    }
    struct entry *entry = model_find(call->redis, call->words[1]);
    if (entry && at_ms <= now_ms(call->redis))
        keyspace_delete(&call->redis->keys, entry);
    else if (entry)
        entry->expires_ms = at_ms;
    answer_integer(call->answer, entry != NULL);
}

void serve_flushall(struct call *call) {
    bool plain = call->count == 1 || (call->count == 2 && (slice_is(call->words[1], "sync") ||
                                                           slice_is(call->words[1], "async")));
    if (!plain) {
        answer_syntax_error(call);
        return;
    }
    keyspace_clear(&call->redis->keys);
    answer_status(call->answer, "OK");
}

/* ---- SCAN ---- */

struct scan {
    struct slice pattern;
    const struct slice *type; /* NULL: any */
};

static bool read_scan(struct call *call, struct scan *ret_scan) {
    const struct slice *words = call->words;
    for (size_t i = 2; i < call->count; i += 2) {
        int64_t count = 1;
        bool has_value = i + 1 < call->count;
        if (has_value && slice_is(words[i], "count")) {
            if (!slice_to_integer(words[i + 1], &count)) {
                answer_not_integer(call);
                return false;
            }
        } else if (has_value && slice_is(words[i], "match")) {
            ret_scan->pattern = words[i + 1];
        } else if (has_value && slice_is(words[i], "type")) {
            ret_scan->type = &words[i + 1];
        } else {
            count = 0;
        }
        if (count < 1) {
            answer_syntax_error(call);
            return false;
        }
    }
    return true;
}

static bool scan_finds(const struct call *call, const struct scan *scan,
                       const struct entry *entry) {
    static const char *const types[] = {
        [MODEL_STRING] = "string", [MODEL_HASH] = "hash", [MODEL_SORTED_SET] = "zset"};
    return !model_has_expired(call->redis, entry) && slice_matches(entry->name, scan->pattern) &&
           (!scan->type || slice_is(*scan->type, types[entry->type]));
}

/* SCAN visits all keys that match the pattern, and deletes those that have expired. */
static void expire_scanned(struct call *call, const struct scan *scan) {
    const struct keyspace *keys = &call->redis->keys;
    for (size_t i = keys->count; i > 0; i--)
        if (slice_matches(keys->entries[i - 1]->name, scan->pattern))
            model_find(call->redis, keys->entries[i - 1]->name);
}

void serve_scan(struct call *call) {
    int64_t cursor;
    struct scan scan = {slice_of("*"), NULL};
    const struct keyspace *keys = &call->redis->keys;
    if (!slice_to_integer(call->words[1], &cursor)) {
        answer_error(call->answer, "ERR invalid cursor");
        return;
    }
    if (cursor != 0) { /* no other was ever returned */
        answer_unknown_option(call, call->words[1]);
        return;
    }
    if (!read_scan(call, &scan))
        return;
    expire_scanned(call, &scan);
    size_t found = 0;
    for (size_t i = 0; i < keys->count; i++)
        found += scan_finds(call, &scan, keys->entries[i]);
    answer_array(call->answer, 2);
    answer_bulk(call->answer, slice_of("0"));
    answer_array(call->answer, found);
    for (size_t i = 0; i < keys->count; i++)
        if (scan_finds(call, &scan, keys->entries[i]))
            answer_bulk(call->answer, keys->entries[i]->name);
}

/* ---- Strings ---- */

static struct slice string_of(const struct entry *entry) {
    return (struct slice){entry->string.bytes, entry->string.size};
}

void serve_get(struct call *call) {
    struct entry *entry;
    if (!model_find_typed(call, MODEL_STRING, &entry))
        return;
    if (entry)
        answer_bulk(call->answer, string_of(entry));
    else
        answer_nil(call->answer);
}

struct set_options {
    bool if_new, if_there, keep_time;
    int64_t unit_ms; /* of the time to live; 0: none */
    struct slice time;
};

static bool read_set(struct call *call, struct set_options *ret) {
    const struct slice *words = call->words;
    for (size_t i = 3; i < call->count; i++) {
        bool in_ms = slice_is(words[i], "px"), has_value = i + 1 < call->count;
        if (slice_is(words[i], "nx") && !ret->if_there) {
            ret->if_new = true;
        } else if (slice_is(words[i], "xx") && !ret->if_new) {
            ret->if_there = true;
        } else if (slice_is(words[i], "keepttl") && !ret->unit_ms) {
            ret->keep_time = true;
        } else if ((in_ms || slice_is(words[i], "ex")) && has_value && !ret->unit_ms &&
                   !ret->keep_time) {
            ret->unit_ms = in_ms ? 1 : 1000;
            ret->time = words[++i];
        } else if (slice_is(words[i], "get") || slice_is(words[i], "exat") ||
                   slice_is(words[i], "pxat")) {
            answer_unknown_option(call, words[i]);
            return false;
        } else {
            answer_syntax_error(call);
            return false;
        }
    }
    return true;
}

static bool read_end(struct call *call, const struct set_options *options, int64_t *ret_at_ms) {
    int64_t time, ms;
    *ret_at_ms = -1;
    if (!options->unit_ms)
        return true;
    if (!slice_to_integer(options->time, &time)) {
        answer_not_integer(call);
        return false;
    }
    if (time <= 0 || __builtin_mul_overflow(time, options->unit_ms, &ms) ||
        __builtin_add_overflow(ms, now_ms(call->redis), ret_at_ms)) {
        answer_error(call->answer, "ERR invalid expire time in 'set' command");
        return false;
    }
    return true;
}

void serve_set(struct call *call) {
    struct set_options options = {.unit_ms = 0};
    int64_t at_ms;
    if (!read_set(call, &options) || !read_end(call, &options, &at_ms))
        return;
    struct entry *entry = model_find(call->redis, call->words[1]);
    if (entry ? options.if_new : options.if_there) {
        answer_nil(call->answer);
        return;
    }
    if (entry && options.keep_time)
        at_ms = entry->expires_ms;
    if (entry && entry->type != MODEL_STRING) {
        keyspace_delete(&call->redis->keys, entry);
        entry = NULL;
    }
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_STRING);
    string_set(entry, call->words[2]);
    entry->expires_ms = at_ms;
    answer_status(call->answer, "OK");
}

void serve_incrby(struct call *call) {
    struct entry *entry;
    int64_t by, number = 0;
    char digits[24];
    if (!slice_to_integer(call->words[2], &by)) {
        answer_not_integer(call);
        return;
    }
    if (!model_find_typed(call, MODEL_STRING, &entry))
        return;
    if (entry && !slice_to_integer(string_of(entry), &number)) {
        answer_not_integer(call);
        return;
    }
    if (__builtin_add_overflow(number, by, &number)) {
        answer_error(call->answer, "ERR increment or decrement would overflow");
        return;
    }
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_STRING);
    snprintf(digits, sizeof(digits), "%" PRId64, number);
    string_set(entry, slice_of(digits));
    answer_integer(call->answer, number);
}

static void set_range(struct entry *entry, size_t offset, struct slice value) {
    size_t end = offset + value.size;
    struct text *string = &entry->string;
    for (char zero = 0; string->size < end;)
        text_add(string, &zero, 1);
    memcpy(string->bytes + offset, value.bytes, value.size);
}

void serve_setrange(struct call *call) {
    int64_t offset;
    struct slice value = call->words[3];
    struct entry *entry;
    if (!slice_to_integer(call->words[2], &offset)) {
        answer_not_integer(call);
        return;
    }
    if (offset < 0) {
        answer_error(call->answer, "ERR offset is out of range");
        return;
    }
    if (!model_find_typed(call, MODEL_STRING, &entry))
        return;
    if (value.size == 0) {
        answer_integer(call->answer, entry ? (int64_t)entry->string.size : 0);
        return;
    }
    if (offset > 512 * 1024 * 1024 - (int64_t)value.size) {
        answer_error(call->answer, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return;
    }
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_STRING);
    set_range(entry, (size_t)offset, value);
    answer_integer(call->answer, (int64_t)entry->string.size);
}
