/* Watching: the channel on which scripts publish what happens to locks (scripts/announce.lua), and
 * the key V that says whether anybody listens there.
 *
 * Design notes.
 *
 * A message costs the server time, so scripts publish only while somebody watches, which V shows.
 * Even reading V would cost each acquire a few per cent. So a client remembers for a second that
 * nobody watches, and does not name V to its scripts meanwhile. Otherwise it does; the script then
 * looks, and the answer to an acquire says what it found.
 *
 * A watcher subscribes, writes V, and waits until no client can still think that nobody watches.
 * From then on nothing is missed. V is leased, so a dead watcher leaves nothing behind; each
 * watcher extends it, and nobody deletes it, since there may be others. If V is gone when it should
 * be extended (it was deleted, the server has restarted, or the watcher was stopped for too long),
 * something may have been missed, and the watcher starts again.
 *
 * In a Cluster a script can read V only if it is in the slot of the lock. So nobody can watch
 * there. */
#include "base/error.h"
#include "store/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KNOWN_US = 1000000,  /* for which a client remembers that nobody watches */
    SETTLE_US = 1200000, /* longer, for clocks that differ and requests under way */
    EXTEND_US = 3000000,
    RETRY_US = 1000000,
    LEASE_MS = 10000, /* of V */
};

/* ---- Whether somebody watches ---- */

/* No lock has this key: it is built like a companion of a lock whose name is empty. */
static void add_key(struct redis *redis) {
    command_add(&redis->command, "{", 1);
    command_append(&redis->command, redis->prefix, strlen(redis->prefix));
    command_append(&redis->command, "}.v", 3);
}

static bool can_watch(const struct redis *redis) {
    return !redis->set && !(redis->route && redis->route->kind->has_slots);
}

void redis_add_watch_key(struct redis *redis) {
    const struct watching *w = &redis->watching;
    bool is_known = world_now_us(redis->host->world) < w->known_until_us;
    if (can_watch(redis) && (w->others || !is_known))
        add_key(redis);
}

void redis_note_watched(struct redis *redis, const struct redis_request *request,
                        const struct reply *watched) {
    if (watched->type != REPLY_INTEGER)
        return; /* it did not look */
    redis->watching.others = watched->integer;
    redis->watching.known_until_us = request->sent_us + KNOWN_US;
}

/* ---- The watch ---- */

static void say(struct redis *redis, hf_change_type type, const char *text) {
    struct store_change change = {
        .type = type, .at_us = world_wall_us(redis->host->world), .text = text};
    redis->host->changed(redis->host, &change);
}

static void set_timer(struct redis *redis, int64_t in_us) {
    struct world *world = redis->host->world;
    world_timer_set(world, &redis->watching.timer, world_now_us(world) + in_us);
}

/* Back to a state from which the watch starts again. */
static void fall_back(struct redis *redis, enum watch_state state, const char *why) {
    enum watch_state before = redis->watching.state;
    redis->watching.state = state;
    if (before == WATCH_LIVE)
        say(redis, HF_CHANGE_MISSED, why);
}

static void key_answered(struct redis *redis, struct redis_request *request,
                         const struct reply *reply, const char *why) {
    struct watching *w = &redis->watching;
    bool is_marked =
        reply && (reply_is(reply, "OK") || (reply->type == REPLY_INTEGER && reply->integer == 1));
    bool was_gone = reply && reply->type == REPLY_INTEGER && reply->integer == 0;
    char *text = NULL;
    int reason;
    w->is_asked = false;
    if (!is_marked && !was_gone)
        redis_explain(request, reply, why, &reason, &text);
    redis_request_free(request);
    if (!redis->is_closing && w->state >= WATCH_MARKING) {
        if (!is_marked)
            fall_back(redis, WATCH_MARKING, text ? text : "the server forgot this watch");
        else if (w->state == WATCH_MARKING)
            w->state = WATCH_SETTLING;
        set_timer(redis, w->state == WATCH_SETTLING ? SETTLE_US
                         : w->state == WATCH_LIVE   ? EXTEND_US
                         : was_gone                 ? 0
                                                    : RETRY_US);
    }
    free(text);
}

/* Writes V or, if it should exist, extends it. */
static void mark(struct redis *redis) {
    struct watching *w = &redis->watching;
    bool extends = w->state == WATCH_LIVE;
    if (w->is_asked)
        return; /* its answer continues from here */
    command_start(&redis->command);
    command_add_text(&redis->command, extends ? "PEXPIRE" : "SET");
    add_key(redis);
    if (!extends) {
        command_add_text(&redis->command, "1");
        command_add_text(&redis->command, "PX");
    }
    command_add_number(&redis->command, LEASE_MS);
    struct redis_request *request = redis_new_request(redis, NULL, -1, key_answered, NULL, 0);
    if (!request) {
        set_timer(redis, RETRY_US);
        return;
    }
    w->is_asked = true;
    route_submit(redis, request);
}

static void timer_due(struct world_timer *timer) {
    struct redis *redis = container_of(timer, struct redis, watching.timer);
    struct watching *w = &redis->watching;
    if (w->state == WATCH_SETTLING) {
        w->state = WATCH_LIVE;
        say(redis, HF_CHANGE_WATCHING, NULL);
    }
    if (w->state >= WATCH_MARKING)
        mark(redis);
}

void redis_watch_confirmed(struct redis *redis) {
    if (redis->watching.state != WATCH_SUBSCRIBING)
        return;
    redis->watching.state = WATCH_MARKING;
    mark(redis);
}

void redis_watch_lost(struct redis *redis, const char *why) {
    if (redis->watching.state > WATCH_SUBSCRIBING)
        fall_back(redis, WATCH_SUBSCRIBING, why ? why : "the connection was lost");
}

void redis_watch(struct redis *redis, struct store_op *op) {
    if (!can_watch(redis)) {
        store_refuse(redis->host, op, HF_UNSUPPORTED,
                     error_format("a Redis Cluster does not announce changes"));
        return;
    }
    redis->watching.state = WATCH_SUBSCRIBING;
    store_complete(redis->host, op, STORE_DONE);
    redis_subscribe_to_watch(redis);
}

/* Stays subscribed: messages are ignored from now on, and end when V expires. */
void redis_unwatch(struct redis *redis, struct store_op *op) {
    redis->watching.state = WATCH_OFF;
    store_complete(redis->host, op, STORE_DONE);
}

int redis_open_watch(struct redis *redis) {
    return world_timer_add(redis->host->world, &redis->watching.timer, timer_due);
}

void redis_close_watch(struct redis *redis) {
    world_timer_drop(redis->host->world, &redis->watching.timer);
}

/* ---- Messages ---- */

void redis_add_watch_channel(struct redis *redis) {
    command_add_text(&redis->command, redis->channels);
    command_append(&redis->command, "watch", 5);
}

bool redis_is_watch_channel(const struct redis *redis, const struct reply *channel) {
    size_t size = strlen(redis->channels);
    return channel->type == REPLY_STRING && channel->size == size + 5 &&
           memcmp(channel->text, redis->channels, size) == 0 &&
           memcmp(channel->text + size, "watch", 5) == 0;
}

static const struct {
    char word;
    hf_change_type type;
    enum locks_role role;
} words[] = {
    {'a', HF_CHANGE_ACQUIRED, LOCKS_HOLDER}, {'r', HF_CHANGE_RELEASED, LOCKS_HOLDER},
    {'b', HF_CHANGE_BROKEN, LOCKS_HOLDER},   {'w', HF_CHANGE_WAITING, LOCKS_WAITER},
    {'l', HF_CHANGE_LEFT, LOCKS_WAITER},
};

/* Takes a word of a message; a space ends it. False: it is too long. */
static bool take_word(const char **text, char *ret, size_t size) {
    size_t used = strcspn(*text, " ");
    if (used >= size || !(*text)[used])
        return false;
    memcpy(ret, *text, used);
    ret[used] = 0;
    *text += used + 1;
    return true;
}

/* What a message of scripts/announce.lua says, as one lock with one party. NULL: it is not one of
 * ours, or there is no memory. */
static struct hf_locks *parse(const struct redis *redis, const char *text, enum locks_role role,
                              int64_t *ret_at_us) {
    char kind[16], owner[LOCKS_OWNER_SIZE], name[COMMAND_NAME_SIZE];
    uint32_t capacity;
    *ret_at_us = redis_take_number(&text);
    if (!take_word(&text, kind, sizeof(kind)))
        return NULL;
    uint64_t token = (uint64_t)redis_take_number(&text);
    int64_t left_ms = redis_take_number(&text);
    if (!take_word(&text, owner, sizeof(owner)))
        return NULL;
    size_t key_size = (size_t)redis_take_number(&text),
           record_size = (size_t)redis_take_number(&text), prefix_size = strlen(redis->prefix),
           size = strlen(text);
    if (key_size <= prefix_size || key_size > size || record_size > size - key_size ||
        key_size - prefix_size >= sizeof(name) || memcmp(text, redis->prefix, prefix_size) != 0)
        return NULL;
    snprintf(name, sizeof(name), "%.*s", (int)(key_size - prefix_size), text + prefix_size);
    const char *last = text + key_size + record_size;
    char *record = strndup(text + key_size, record_size);
    struct hf_locks *locks = record ? locks_new() : NULL;
    enum store_kind parsed = redis_parse_kind(kind, &capacity);
    bool ok = locks && locks_add(locks, name, parsed, capacity, token) &&
              redis_add_break(locks, *last ? last : NULL) &&
              redis_add_party(locks, role, owner, record, token, left_ms * 1000);
    free(record);
    return ok ? locks : hf_locks_free(locks);
}

void redis_watch_message(struct redis *redis, const struct reply *message) {
    struct store_change change = {0};
    if (redis->watching.state != WATCH_LIVE)
        return;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (message->size < 2 || message->text[0] != words[i].word || message->text[1] != ' ')
            continue;
        change.type = words[i].type;
        change.locks = parse(redis, message->text + 2, words[i].role, &change.at_us);
    }
    if (change.locks) {
        redis->host->changed(redis->host, &change);
    } else {
        say(redis, HF_CHANGE_MISSED, "a message was lost for lack of memory, or is not ours");
        say(redis, HF_CHANGE_WATCHING, NULL);
    }
}
