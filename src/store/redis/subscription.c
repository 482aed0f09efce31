/* The subscription: a connection on which the server sends what concerns this client.
 *
 * The client's own channel carries the messages of other clients: it is this client's turn (w), or
 * somebody broke its hold (g). Where the server publishes keyspace events, the channel of a lock's
 * key says that somebody deleted or overwrote it, or that it expired.
 *
 * Design notes.
 *
 * Messages are hints: one that is missed costs time, and nothing else. A message on the client's
 * own channel names an attempt, whose number is never used again, so it cannot be about another
 * hold. One about a key does not say whose hold it was, and may be late, so the hold is checked: it
 * is renewed at once, and the server's answer decides.
 *
 * A hold that lasts a moment is not worth a subscription. So a new hold is young. The timer finds
 * those that have lasted from one of its turns to the next, which is half a second to a second. It
 * runs only while there are young holds: a lock that is taken and released all the time costs two
 * turns a second.
 *
 * There may be many holds, so they are found in one way only, by name: a few that have the same
 * name are distinguished by their numbers.
 *
 * Whatever happened before the server confirmed the subscription was missed. So then all waiters
 * ask again, and all holds are checked.
 *
 * Keyspace events are published by the node that has the key, and only there. In a Cluster the
 * subscription is at any node, so keys are not listened to. */
#include "store/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN_US = 500000, KEYS_AT_ONCE = 128, KEY_CHANNEL_SIZE = 40 };

struct noted_hold {
    struct map_node by_name;
    struct list young; /* or empty: the client listens for this hold */
    uint64_t seq;
    char name[];
};

static struct noted_hold *hold_of(struct map_node *node) {
    return container_of(node, struct noted_hold, by_name);
}

static uint64_t hash_name(const char *name) {
    return map_hash(name, strlen(name), 0);
}

static struct noted_hold *find_hold(struct redis *redis, const struct store_op *op) {
    struct map_node *node = map_find(&redis->listening.by_name, hash_name(op->name));
    while (node && hold_of(node)->seq != op->seq)
        node = map_find_next(node);
    return node ? hold_of(node) : NULL;
}

static bool is_listened_for(const struct noted_hold *hold) {
    return list_empty(&hold->young);
}

/* The next hold of this name that the client listens for: after `last`, or (NULL) the first. */
static struct noted_hold *next_named(struct redis *redis, const char *name,
                                     const struct noted_hold *last) {
    struct map_node *node =
        last ? map_find_next(&last->by_name) : map_find(&redis->listening.by_name, hash_name(name));
    while (node && (!is_listened_for(hold_of(node)) || strcmp(hold_of(node)->name, name) != 0))
        node = map_find_next(node);
    return node ? hold_of(node) : NULL;
}

/* ---- What is sent ---- */

static bool hears_keys(const struct redis *redis) {
    return !redis->route || !redis->route->kind->has_slots;
}

static void format_key_channel(const struct redis *redis, char ret_start[KEY_CHANNEL_SIZE]) {
    snprintf(ret_start, KEY_CHANNEL_SIZE, "__keyspace@%" PRIu64 "__:", redis->links.database);
}

void redis_add_key_channel(struct redis *redis, const char *name) {
    char start[KEY_CHANNEL_SIZE];
    format_key_channel(redis, start);
    command_add_text(&redis->command, start);
    command_append(&redis->command, redis->prefix, strlen(redis->prefix));
    command_append(&redis->command, name, strlen(name));
}

/* Sends the command that was built. False: no memory. */
static bool send_command(struct redis *redis) {
    size_t size;
    char *bytes = command_bytes(&redis->command, &size);
    bool ok = bytes && link_send(&redis->subscription, bytes, size);
    free(bytes);
    return ok;
}

static void start_command(struct redis *redis, const char *word) {
    command_start(&redis->command);
    command_add_text(&redis->command, word);
}

static bool subscribe_to_messages(struct redis *redis) {
    char id[LOCKS_OWNER_SIZE];
    locks_format_owner(redis->host->identity.id, 0, id);
    start_command(redis, "SUBSCRIBE");
    command_add_text(&redis->command, redis->channels);
    command_append(&redis->command, id, 32);
    if (redis->set) {
        command_add_text(&redis->command, redis->channels);
        command_append(&redis->command, "votes", 5);
    }
    if (redis->watching.state != WATCH_OFF)
        redis_add_watch_channel(redis);
    return send_command(redis);
}

/* Adds a key to the SUBSCRIBE that is being built. Many are sent in portions, because the builder
 * keeps its memory. False: no memory. */
static bool subscribe_to_key(struct redis *redis, const char *name) {
    if (redis->command.count > KEYS_AT_ONCE) {
        if (!send_command(redis))
            return false;
        start_command(redis, "SUBSCRIBE");
    }
    redis_add_key_channel(redis, name);
    return true;
}

/* A separate command, since a user who may not listen to keys is refused the whole command. */
static bool subscribe_to_keys(struct redis *redis) {
    const struct map *holds = &redis->listening.by_name;
    bool ok = true;
    start_command(redis, "SUBSCRIBE");
    for (struct map_node *node = map_first(holds); node; node = map_after(holds, node)) {
        if (ok && hears_keys(redis) && is_listened_for(hold_of(node)))
            ok = subscribe_to_key(redis, hold_of(node)->name);
    }
    return ok && (redis->command.count == 1 || send_command(redis));
}

static void subscription_lost(struct redis_link *link, const char *why) {
    redis_watch_lost(link->redis, why);
}

static void subscription_ready(struct redis_link *link) {
    struct redis *redis = link->redis;
    redis_watch_lost(redis, NULL); /* the link may have been directed to another server */
    redis->listening.confirmed = false;
    if (!subscribe_to_messages(redis) || !subscribe_to_keys(redis))
        link_break(link, HF_NO_MEMORY, NULL);
}

void redis_subscribe(struct redis *redis) {
    if (redis->subscription.wanted)
        return;
    redis->subscription.wanted = true;
    if (redis->route)
        redis->route->kind->subscribe(redis->route);
    link_want(&redis->subscription);
}

/* Without memory, the subscription starts again. */
void redis_subscribe_to_watch(struct redis *redis) {
    redis_subscribe(redis);
    if (redis->subscription.state != LINK_READY)
        return;
    start_command(redis, "SUBSCRIBE");
    redis_add_watch_channel(redis);
    if (!send_command(redis))
        link_break(&redis->subscription, HF_NO_MEMORY, NULL);
}

/* ---- What arrives ---- */

/* The channel on which a node announces released locks. */
static bool ends_with_votes(const struct reply *channel) {
    return channel->type == REPLY_STRING && channel->size >= 6 &&
           strcmp(channel->text + channel->size - 6, "@votes") == 0;
}

/* The name of the lock whose key this channel is about; NULL: it is another channel. */
static const char *name_of_key(struct redis *redis, const struct reply *channel) {
    char start[KEY_CHANNEL_SIZE];
    format_key_channel(redis, start);
    size_t start_size = strlen(start), prefix_size = strlen(redis->prefix);
    bool is_key = channel->type == REPLY_STRING && channel->size > start_size + prefix_size &&
                  memcmp(channel->text, start, start_size) == 0 &&
                  memcmp(channel->text + start_size, redis->prefix, prefix_size) == 0;
    return is_key ? channel->text + start_size + prefix_size : NULL;
}

/* Up to 16 hex digits and nothing else. 0, which no attempt has, if it is not ours. */
static uint64_t parse_seq(const char *text, size_t size) {
    return size <= 16 && strspn(text, "0123456789abcdef") == size ? strtoull(text, NULL, 16) : 0;
}

static void confirmed(struct redis *redis) {
    const struct map *holds = &redis->listening.by_name;
    redis->listening.confirmed = true; /* from now on, an error answers something else */
    redis->host->wake(redis->host, STORE_ALL_WAITING);
    for (struct map_node *node = map_first(holds); node; node = map_after(holds, node)) {
        if (is_listened_for(hold_of(node)))
            redis->host->check(redis->host, hold_of(node)->seq);
    }
}

/* A renewal moves the expiry, which is an event as well. */
static void key_changed(struct redis *redis, const char *name, const struct reply *event) {
    if (reply_is(event, "expire"))
        return;
    for (struct noted_hold *hold = NULL; (hold = next_named(redis, name, hold));)
        redis->host->check(redis->host, hold->seq);
}

static void message_arrived(struct redis *redis, const struct reply *message) {
    uint64_t seq = parse_seq(message->text + 1, message->size - 1);
    if (seq && message->text[0] == 'g')
        redis->host->gone(redis->host, seq);
    else if (seq && message->text[0] == 'w')
        redis->host->wake(redis->host, seq);
}

static void subscription_pushed(struct redis_link *link, const struct reply *reply) {
    struct redis *redis = link->redis;
    const struct reply *word = reply_at(reply, 0), *channel = reply_at(reply, 1),
                       *message = reply_at(reply, 2);
    const char *name = name_of_key(redis, channel);
    link->heard |=
        !reply_is(word, "subscribe"); /* only others show that the connection is of use */
    if (reply->type == REPLY_ERROR && !redis->listening.confirmed) {
        link->heard = false;
        link_break(link, HF_DENIED, reply->text);
    } else if (reply_is(word, "subscribe") && redis_is_watch_channel(redis, channel)) {
        redis_watch_confirmed(redis);
    } else if (reply_is(word, "subscribe") && !name) {
        confirmed(redis);
    } else if (!reply_is(word, "message") || message->type != REPLY_STRING) {
        return;
    } else if (name) {
        key_changed(redis, name, message);
    } else if (redis_is_watch_channel(redis, channel)) {
        redis_watch_message(redis, message);
    } else if (redis->set && ends_with_votes(channel)) {
        redis->set->freed(redis->host, message->text);
    } else if (message->size > 1) {
        message_arrived(redis, message);
    }
}

/* ---- Which holds it is about ---- */

static void set_timer(struct redis *redis) {
    struct world *world = redis->host->world;
    world_timer_set(world, &redis->listening.timer, world_now_us(world) + TURN_US);
}

/* Listens for the holds that were young at the last turn and still exist. Without memory for the
 * command, their keys are not listened to until the next connection. */
static void timer_due(struct world_timer *timer) {
    struct redis *redis = container_of(timer, struct redis, listening.timer);
    struct listening *l = &redis->listening;
    struct list lasted;
    list_move(&l->older, &lasted);
    list_move(&l->young, &l->older);
    if (!list_empty(&l->older))
        set_timer(redis);
    if (list_empty(&lasted))
        return;
    bool ok = redis->subscription.state == LINK_READY && hears_keys(redis);
    start_command(redis, "SUBSCRIBE");
    while (!list_empty(&lasted)) {
        struct noted_hold *hold = container_of(lasted.next, struct noted_hold, young);
        if (ok && !next_named(redis, hold->name, NULL))
            ok = subscribe_to_key(redis, hold->name);
        list_remove(&hold->young);
    }
    if (ok && redis->command.count > 1)
        send_command(redis);
    redis_subscribe(redis);
}

void redis_note_hold(struct redis *redis, const struct store_op *op) {
    struct listening *l = &redis->listening;
    size_t size = strlen(op->name) + 1;
    struct noted_hold *hold =
        find_hold(redis, op) ? NULL : malloc(sizeof(struct noted_hold) + size);
    if (!hold)
        return; /* it is known already; without memory, the next renewal finds out */
    hold->seq = op->seq;
    memcpy(hold->name, op->name, size);
    map_add(&l->by_name, &hold->by_name, hash_name(op->name));
    list_init(&hold->young);
    list_append(&l->young, &hold->young);
    if (!l->timer.node.place)
        set_timer(redis);
}

static void stop_listening(struct redis *redis, const struct noted_hold *hold) {
    if (redis->subscription.state != LINK_READY || !hears_keys(redis) ||
        next_named(redis, hold->name, NULL))
        return;
    start_command(redis, "UNSUBSCRIBE");
    redis_add_key_channel(redis, hold->name);
    send_command(redis); /* without memory, its messages find no hold */
}

void redis_forget_hold(struct redis *redis, const struct store_op *op) {
    struct noted_hold *hold = find_hold(redis, op);
    if (!hold)
        return;
    map_remove(&redis->listening.by_name, &hold->by_name);
    if (is_listened_for(hold))
        stop_listening(redis, hold);
    list_remove(&hold->young);
    free(hold);
}

int redis_open_subscription(struct redis *redis) {
    struct listening *l = &redis->listening;
    redis->subscription.ready = subscription_ready;
    redis->subscription.pushed = subscription_pushed;
    redis->subscription.lost = subscription_lost;
    map_init(&l->by_name);
    list_init(&l->young);
    list_init(&l->older);
    return world_timer_add(redis->host->world, &l->timer, timer_due);
}

void redis_close_subscription(struct redis *redis) {
    struct listening *l = &redis->listening;
    for (struct map_node *node = map_first(&l->by_name), *next; node; node = next) {
        next = map_after(&l->by_name, node);
        free(hold_of(node));
    }
    map_free(&l->by_name);
    world_timer_drop(redis->host->world, &l->timer);
}
