/* Commands of hashes. */
#include "sim/redis/model.h"

#include <inttypes.h>
#include <stdio.h>

static void answer_field(struct call *call, const struct entry *entry, struct slice name) {
    const struct field *field = entry ? hash_find(entry, name) : NULL;
    if (field)
        answer_bulk(call->answer, field->value);
    else
        answer_nil(call->answer);
}

void serve_hget(struct call *call) {
    struct entry *entry;
    if (model_find_typed(call, MODEL_HASH, &entry))
        answer_field(call, entry, call->words[2]);
}

void serve_hmget(struct call *call) {
    struct entry *entry;
    if (!model_find_typed(call, MODEL_HASH, &entry))
        return;
    answer_array(call->answer, call->count - 2);
    for (size_t i = 2; i < call->count; i++)
        answer_field(call, entry, call->words[i]);
}

void serve_hgetall(struct call *call) {
    struct entry *entry;
    if (!model_find_typed(call, MODEL_HASH, &entry))
        return;
    size_t count = entry ? entry->count : 0;
    answer_array(call->answer, 2 * count);
    for (size_t i = 0; i < count; i++) {
        answer_bulk(call->answer, entry->fields[i].name);
        answer_bulk(call->answer, entry->fields[i].value);
    }
}

void serve_hset(struct call *call) {
    struct entry *entry;
    int64_t created = 0;
    if (call->count % 2) {
        answer_wrong_arity(call, "hset");
        return;
    }
    if (!model_find_typed(call, MODEL_HASH, &entry))
        return;
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_HASH);
    for (size_t i = 2; i < call->count; i += 2)
        created += hash_set(entry, call->words[i], call->words[i + 1]);
    answer_integer(call->answer, created);
}

void serve_hdel(struct call *call) {
    struct entry *entry;
    int64_t deleted = 0;
    if (!model_find_typed(call, MODEL_HASH, &entry))
        return;
    for (size_t i = 2; entry && i < call->count; i++) {
        struct field *field = hash_find(entry, call->words[i]);
        if (field) {
            hash_delete(entry, field);
            deleted++;
        }
    }
    if (entry)
        model_drop_if_empty(call->redis, entry);
    answer_integer(call->answer, deleted);
}

void serve_hincrby(struct call *call) {
    struct entry *entry;
    int64_t by, number = 0;
    char digits[24];
    if (!slice_to_integer(call->words[3], &by)) {
        answer_not_integer(call);
        return;
    }
    if (!model_find_typed(call, MODEL_HASH, &entry))
        return;
    const struct field *field = entry ? hash_find(entry, call->words[2]) : NULL;
    if (field && !slice_to_integer(field->value, &number)) {
        answer_error(call->answer, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(number, by, &number)) {
        answer_error(call->answer, "ERR increment or decrement would overflow");
        return;
    }
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_HASH);
    snprintf(digits, sizeof(digits), "%" PRId64, number);
    hash_set(entry, call->words[2], slice_of(digits));
    answer_integer(call->answer, number);
}
