/* The server's life, its connections, and what checkers see. */
#include "sim/redis/redis.h"

#include "sim/redis/model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Life ---- */

struct model_redis *model_new(const struct model_config *config) {
    struct model_redis *redis = bytes_allocate(NULL, sizeof(*redis));
    *redis = (struct model_redis){.config = *config};
    list_init(&redis->connections);
    redis->scripts = scripts_new(redis);
    return redis;
}

struct model_redis *model_free(struct model_redis *redis) {
    if (!redis)
        return NULL;
    list_each_safe(node, &redis->connections)
        model_disconnect(container_of(node, struct model_connection, link));
    keyspace_clear(&redis->keys);
    keyspace_clear(&redis->saved);
    scripts_free(redis->scripts);
    text_free(&redis->answer);
    free(redis->words);
    free(redis);
    return NULL;
}

void model_reset(struct model_redis *redis) {
    assert(list_empty(&redis->connections));
    keyspace_clear(&redis->keys);
    keyspace_clear(&redis->saved);
    scripts_forget(redis->scripts);
    redis->mode = MODEL_OK;
    redis->now_us = 0;
    redis->run = 0;
}

void model_set_time(struct model_redis *redis, int64_t wall_us) {
    assert(wall_us >= 0);
    redis->now_us = wall_us;
}

void model_set_mode(struct model_redis *redis, enum model_mode mode) {
    redis->mode = mode;
}

void model_expire(struct model_redis *redis) {
    if (redis->mode == MODEL_READONLY)
        return;
    for (size_t i = redis->keys.count; i > 0; i--)
        if (model_has_expired(redis, redis->keys.entries[i - 1]))
            keyspace_delete(&redis->keys, redis->keys.entries[i - 1]);
}

void model_flush_all(struct model_redis *redis) {
    keyspace_clear(&redis->keys);
}

static uint64_t random_of(struct model_redis *redis) {
    return redis->config.random(redis->config.random_context);
}

bool model_evict(struct model_redis *redis, const char *name) {
    struct keyspace *keys = &redis->keys;
    struct entry *entry = NULL;
    if (name)
        entry = keyspace_find(keys, slice_of(name));
    else if (keys->count)
        entry = keys->entries[random_of(redis) % keys->count];
    if (entry)
        keyspace_delete(keys, entry);
    return entry;
}

void model_save(struct model_redis *redis) {
    keyspace_clear(&redis->saved);
    keyspace_copy(&redis->keys, &redis->saved);
}

void model_restart(struct model_redis *redis, enum model_keep keep) {
    struct keyspace *keys = &redis->keys;
    assert(list_empty(&redis->connections));
    redis->run++;
    scripts_forget(redis->scripts);
    if (keep == MODEL_KEEP_NONE || keep == MODEL_KEEP_SAVED)
        keyspace_clear(keys);
    if (keep == MODEL_KEEP_SAVED)
        keyspace_copy(&redis->saved, keys);
    for (size_t i = keys->count; i > 0; i--) {
        struct entry *entry = keys->entries[i - 1];
        bool lost = keep == MODEL_KEEP_SOME && random_of(redis) % 2;
        if (lost || model_has_expired(redis, entry))
            keyspace_delete(keys, entry);
    }
}

const char *model_run_id(const struct model_redis *redis) {
    static char id[41];
    snprintf(id, sizeof(id), "%040" PRIx64, redis->run);
    return id;
}

/* ---- Connections ---- */

struct model_connection *model_connect(struct model_redis *redis, void *context) {
    struct model_connection *connection = bytes_allocate(NULL, sizeof(*connection));
    *connection = (struct model_connection){
        .redis = redis, .context = context, .authenticated = !redis->config.password};
    list_append(&redis->connections, &connection->link);
    return connection;
}

void model_unsubscribe(struct model_connection *connection, size_t place) {
    slice_free(connection->channels[place]);
    connection->channel_count--;
    memmove(&connection->channels[place], &connection->channels[place + 1],
            (connection->channel_count - place) * sizeof(*connection->channels));
}

void model_disconnect(struct model_connection *connection) {
    if (!connection)
        return;
    list_remove(&connection->link);
    while (connection->channel_count)
        model_unsubscribe(connection, connection->channel_count - 1);
    free(connection->channels);
    text_free(&connection->input);
    free(connection);
}

/* ---- Requests ---- */

enum { WORDS_MOST = 1024 * 1024, WORD_SIZE_MOST = 512 * 1024 * 1024, LINE_MOST = 64 * 1024 };

enum parsed { PARSED, UNFINISHED, BROKEN };

/* Takes a line "<type><number>" from the start of the rest. */
static enum parsed take_number(struct slice *rest, char type, int64_t *ret_number,
                               struct text *answer) {
    if (rest->size == 0)
        return UNFINISHED;
    if (rest->bytes[0] != type) {
        answer_error(answer, "ERR Protocol error: expected '%c', got '%c'", type, rest->bytes[0]);
        return BROKEN;
    }
    const char *end = memchr(rest->bytes, '\r', rest->size);
    size_t size = end ? (size_t)(end - rest->bytes) : rest->size;
    if (size <= LINE_MOST && (!end || size + 2 > rest->size))
        return UNFINISHED;
    if (!slice_to_integer((struct slice){rest->bytes + 1, size - 1}, ret_number) ||
        *ret_number > (type == '$' ? WORD_SIZE_MOST : WORDS_MOST)) {
        answer_error(answer, "ERR Protocol error: invalid %s length",
                     type == '$' ? "bulk" : "multibulk");
        return BROKEN;
    }
    *rest = (struct slice){rest->bytes + size + 2, rest->size - size - 2};
    return PARSED;
}

static enum parsed take_word(struct slice *rest, struct slice *ret_word, struct text *answer) {
    int64_t size;
    enum parsed parsed = take_number(rest, '$', &size, answer);
    if (parsed != PARSED)
        return parsed;
    if (size < 0) {
        answer_error(answer, "ERR Protocol error: invalid bulk length");
        return BROKEN;
    }
    if (rest->size < (size_t)size + 2)
        return UNFINISHED;
    *ret_word = (struct slice){rest->bytes, (size_t)size};
    *rest = (struct slice){rest->bytes + size + 2, rest->size - (size_t)size - 2};
    return PARSED;
}

/* Takes a whole request from the start of the rest; its words go to redis->words. */
static enum parsed take_request(struct model_redis *redis, struct slice *rest, size_t *ret_count) {
    struct slice left = *rest;
    int64_t count;
    enum parsed parsed = take_number(&left, '*', &count, &redis->answer);
    if (parsed != PARSED)
        return parsed;
    *ret_count = count > 0 ? (size_t)count : 0;
    if (redis->words_room < *ret_count) {
        redis->words_room = 2 * *ret_count;
        redis->words = bytes_allocate(redis->words, redis->words_room * sizeof(*redis->words));
    }
    for (size_t i = 0; i < *ret_count; i++) {
        parsed = take_word(&left, &redis->words[i], &redis->answer);
        if (parsed != PARSED)
            return parsed;
    }
    *rest = left;
    return PARSED;
}

static void send_answer(struct model_connection *connection) {
    struct text *answer = &connection->redis->answer;
    connection->redis->config.output(connection->context, answer->bytes, answer->size);
    answer->size = 0;
}

bool model_feed(struct model_connection *connection, const char *bytes, size_t size) {
    struct model_redis *redis = connection->redis;
    struct text *input = &connection->input;
    text_add(input, bytes, size);
    struct slice rest = {input->bytes, input->size};
    size_t count;
    enum parsed parsed;
    while ((parsed = take_request(redis, &rest, &count)) == PARSED) {
        struct call call = {redis, connection, redis->words, count, &redis->answer};
        if (count == 0)
            continue;
        model_serve(&call);
        send_answer(connection);
    }
    if (rest.size)
        memmove(input->bytes, rest.bytes, rest.size);
    input->size = rest.size;
    if (parsed == BROKEN)
        send_answer(connection); /* which says why */
    return parsed != BROKEN;
}

/* ---- What is in it ---- */

static struct model_key describe(const struct model_redis *redis, const struct entry *entry) {
    return (struct model_key){entry->name.bytes, entry->name.size, entry->type, entry->expires_ms,
                              model_has_expired(redis, entry)};
}

static const struct entry *look(const struct model_redis *redis, const char *name) {
    const struct entry *entry = keyspace_find(&redis->keys, slice_of(name));
    return entry && !model_has_expired(redis, entry) ? entry : NULL;
}

bool model_key_at(const struct model_redis *redis, size_t place, struct model_key *ret_key) {
    if (place >= redis->keys.count)
        return false;
    *ret_key = describe(redis, redis->keys.entries[place]);
    return true;
}

bool model_find_key(const struct model_redis *redis, const char *name, struct model_key *ret_key) {
    const struct entry *entry = look(redis, name);
    if (entry)
        *ret_key = describe(redis, entry);
    return entry;
}

const char *model_find_string(const struct model_redis *redis, const char *name, size_t *ret_size) {
    const struct entry *entry = look(redis, name);
    if (!entry || entry->type != MODEL_STRING)
        return NULL;
    if (ret_size)
        *ret_size = entry->string.size;
    return entry->string.bytes;
}

const char *model_find_field(const struct model_redis *redis, const char *name, const char *field) {
    const struct entry *entry = look(redis, name);
    const struct field *found =
        entry && entry->type == MODEL_HASH ? hash_find(entry, slice_of(field)) : NULL;
    return found ? found->value.bytes : NULL;
}

bool model_field_at(const struct model_redis *redis, const char *name, size_t place,
                    struct model_field *ret_field) {
    const struct entry *entry = look(redis, name);
    if (!entry || entry->type != MODEL_HASH || place >= entry->count)
        return false;
    const struct field *field = &entry->fields[place];
    *ret_field = (struct model_field){field->name.bytes, field->value.bytes, field->name.size,
                                      field->value.size};
    return true;
}

bool model_member_at(const struct model_redis *redis, const char *name, size_t place,
                     struct model_member *ret_member) {
    const struct entry *entry = look(redis, name);
    if (!entry || entry->type != MODEL_SORTED_SET || place >= entry->count)
        return false;
    const struct member *member = &entry->members[place];
    *ret_member = (struct model_member){member->name.bytes, member->name.size, member->score};
    return true;
}
