/* Inspect and list. A name is inspected by one script. A page of a list takes a SCAN over the whole
 * database, in portions, and then a look at each name of the page. SCAN has no order, so the
 * smallest names after `after` are kept while all keys pass by; that takes the memory of one page.
 *
 * The keys K are scanned. With an empty prefix, any string in the database might be a K, so the
 * keys S are scanned instead, which only locks of holdfast have. */
#include "base/error.h"
#include "store/locks.h"
#include "store/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_COUNT = 1000 };

/* ---- What look.lua answers ---- */

static bool parse_owner(const char *text, uint8_t ret_id[16], uint64_t *ret_seq) {
    if (strlen(text) < 34 || text[32] != '-')
        return false;
    for (int i = 0; i < 16; i++) {
        char pair[] = {text[2 * i], text[2 * i + 1], 0}, *end;
        ret_id[i] = (uint8_t)strtoul(pair, &end, 16);
        if (*end)
            return false;
    }
    char *end;
    *ret_seq = strtoull(text + 33, &end, 16);
    return !*end;
}

/* Times and tokens are below 2^53. No script of ours has written anything larger. */
static int64_t sane(int64_t number) {
    return number < 0 || number >= (int64_t)STORE_TOKEN_LIMIT ? 0 : number;
}

/* Takes one of the numbers before a record. */
int64_t redis_take_number(const char **text) {
    char *end;
    int64_t number = strtoll(*text, &end, 10);
    *text = *end == ' ' ? end + 1 : end;
    return sane(number);
}

/* A record as acquire.lua writes it: "weight since pid host-size command-size " host command
 * label. */
bool redis_add_party(struct hf_locks *locks, enum locks_role role, const char *owner,
                     const char *record, uint64_t token, int64_t left_us) {
    uint8_t id[16] = {0};
    uint64_t seq = 0;
    hf_party party = {.token = token, .left_ms = left_us / 1000};
    char strings[2048] = "", *command = strings, *label;
    if (parse_owner(owner, id, &seq) && record) {
        party.weight = (uint32_t)redis_take_number(&record);
        party.since_ms = redis_take_number(&record) / 1000;
        party.pid = redis_take_number(&record);
        size_t host_size = (size_t)redis_take_number(&record);
        size_t command_size = (size_t)redis_take_number(&record), size = strlen(record);
        if (host_size > size || command_size > size - host_size || size + 3 > sizeof(strings))
            host_size = command_size = size = 0; /* not a record of ours */
        command = mempcpy(strings, record, host_size);
        *command++ = 0;
        label = mempcpy(command, record + host_size, command_size);
        *label++ = 0;
        memcpy(label, record + host_size + command_size, size - host_size - command_size + 1);
    } else {
        label = strcpy(strings + 1, "a client that is not holdfast");
        party.weight = STORE_ALL;
    }
    party.host = strings;
    party.command = command;
    party.label = label;
    return locks_add_party(locks, role, &party, id, seq);
}

static const char *text_of(const struct reply *reply) {
    return reply->type == REPLY_STRING ? reply->text : NULL;
}

bool redis_add_break(struct hf_locks *locks, const char *text) {
    if (!text)
        return true;
    struct locks_break last = {.at_us = redis_take_number(&text)};
    last.token = (uint64_t)redis_take_number(&text);
    size_t by_size = (size_t)redis_take_number(&text);
    char by[LOCKS_BREAKER_SIZE] = "";
    if (by_size < sizeof(by) && by_size <= strlen(text)) {
        memcpy(by, text, by_size);
        last.by = by;
        last.reason = text + by_size;
    }
    return locks_set_break(locks, &last);
}

/* The exclusive holder, or the waiter that the lock is reserved for. */
static bool add_alone(struct hf_locks *locks, const struct reply *reply, uint64_t token) {
    const struct reply *state = reply_at(reply, 3);
    const char *k = text_of(reply_at(reply, 1)), *owner = k[0] == '?' ? k + 1 : k;
    const char *record = text_of(reply_at(state, 3));
    int64_t left_ms = reply_number(reply_at(reply, 2), 0);
    int64_t left_us = left_ms < 0 ? -1000 : sane(left_ms) * 1000; /* without an end: -1 ms */
    uint8_t id[16];
    uint64_t seq;
    if (!parse_owner(owner, id, &seq))
        return redis_add_party(locks, LOCKS_HOLDER, k, NULL, 0, left_us);
    if (owner == k)
        return redis_add_party(locks, LOCKS_HOLDER, k, record, token, left_us);
    return redis_add_party(locks, LOCKS_WAITER, owner, record, 0, left_us);
}

static bool add_sharing(struct hf_locks *locks, const struct reply *sharing, int64_t now_us) {
    bool ok = true;
    for (size_t i = 0; ok && i + 2 < sharing->count; i += 3) {
        const char *owner = text_of(reply_at(sharing, i)),
                   *record = text_of(reply_at(sharing, i + 2));
        int64_t left_us = sane(reply_number(reply_at(sharing, i + 1), 0)) - now_us;
        if (!owner || !record || left_us <= 0)
            continue;
        uint64_t token = (uint64_t)redis_take_number(&record);
        ok = redis_add_party(locks, token ? LOCKS_HOLDER : LOCKS_WAITER, owner, record, token,
                             left_us);
    }
    return ok;
}

static bool add_waiting(struct hf_locks *locks, const struct reply *waiting, int64_t now_us) {
    bool ok = true;
    for (size_t i = 0; ok && i + 1 < waiting->count; i += 2) {
        const char *owner = text_of(reply_at(waiting, i)),
                   *record = text_of(reply_at(waiting, i + 1));
        int64_t left_us = record ? redis_take_number(&record) - now_us : 0;
        if (owner && left_us > 0)
            ok = redis_add_party(locks, LOCKS_WAITER, owner, record, 0, left_us);
    }
    return ok;
}

enum store_kind redis_parse_kind(const char *text, uint32_t *ret_capacity) {
    if (text && text[0] == 'p') {
        *ret_capacity = (uint32_t)strtoul(text + 1, NULL, 10);
        return STORE_PERMITS;
    }
    *ret_capacity = STORE_ALL;
    return STORE_LOCK;
}

static enum store_kind kind_of(const struct reply *reply, uint32_t *ret_capacity) {
    const char *k = text_of(reply_at(reply, 1)), *kind = text_of(reply_at(reply_at(reply, 3), 2));
    if (k && k[0] == '=' && reply_at(reply, 4)->count > 0)
        kind = k + 1;
    return redis_parse_kind(kind, ret_capacity);
}

static bool is_number(const char *text) {
    const char *digits = text && text[0] == '-' ? text + 1 : text;
    return digits && digits[0] && !digits[strspn(digits, "0123456789")];
}

/* Adds what a look found. With `in_use_only`, names without holders and waiters are left out, and
 * so are numbers that nobody has ever locked: they are counters. */
static bool add_lock(struct hf_locks *locks, const char *name, const struct reply *reply,
                     bool in_use_only) {
    const struct reply *state = reply_at(reply, 3);
    const char *k = text_of(reply_at(reply, 1)), *counter = text_of(reply_at(state, 0));
    uint64_t token = counter ? strtoull(counter, NULL, 10) : 0;
    int64_t now_us = sane(reply_number(reply_at(reply, 0), 0));
    bool has_queue = reply_at(reply, 5)->count > 0;
    if (!has_queue && !k && (in_use_only || !counter))
        return true;
    if (!has_queue && in_use_only && !counter && is_number(k))
        return true;
    uint32_t capacity;
    enum store_kind kind = kind_of(reply, &capacity);
    return locks_add(locks, name, kind, capacity, token) &&
           redis_add_break(locks, text_of(reply_at(state, 4))) &&
           (!k || reply_at(reply, 4)->count > 0 || add_alone(locks, reply, token)) &&
           add_sharing(locks, reply_at(reply, 4), now_us) &&
           add_waiting(locks, reply_at(reply, 5), now_us);
}

/* ---- Inspect ---- */

static void look_at(struct redis *redis, const char *name) {
    command_start_script(&redis->command, REDIS_LOOK, REDIS_COMPANIONS);
    command_add_keys(&redis->command, redis->prefix, name, REDIS_KEYS);
}

static void inspect_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct store_op *op = request->op;
    if (!reply || reply->type != REPLY_ARRAY) {
        redis_fail(redis, request, reply, why);
        return;
    }
    redis_request_free(request);
    op->locks = locks_new();
    if (op->locks && add_lock(op->locks, op->name, reply, false)) {
        store_complete(redis->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
}

void redis_inspect(struct redis *redis, struct store_op *op) {
    look_at(redis, op->name);
    struct redis_request *request =
        redis_new_request(redis, op, REDIS_LOOK, inspect_answered, NULL, 0);
    if (request)
        route_submit(redis, request);
    else
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
}

/* ---- List ---- */

struct listing {
    struct store_op *op;
    struct hf_locks *locks;
    size_t count, looked;
    size_t master;              /* the index of the one that is scanned */
    enum store_outcome outcome; /* of the first look that failed, and why */
    int reason;
    char *text;
    char after[COMMAND_NAME_SIZE]; /* "": from the start */
    char *names[];                 /* the smallest after `after`, sorted; room for op->limit + 1 */
};

static void listing_free(struct listing *listing) {
    for (size_t i = 0; i < listing->count; i++)
        free(listing->names[i]);
    hf_locks_free(listing->locks);
    free(listing->text);
    free(listing);
}

static void listing_fail(struct redis *redis, struct listing *listing, enum store_outcome outcome,
                         int reason, char *text) {
    struct store_op *op = listing->op;
    listing_free(listing);
    op->reason = reason;
    op->text = text;
    store_complete(redis->host, op, outcome);
}

/* Keeps a name if it belongs on this page so far. SCAN may return it twice. False: no memory. */
static bool keep_name(struct listing *listing, const char *name) {
    const struct store_op *op = listing->op;
    if (strcmp(name, listing->after) <= 0)
        return true;
    size_t low = 0, high = listing->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, listing->names[middle]);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == op->limit)
        return true;
    char *copy = strdup(name);
    if (!copy)
        return false;
    memmove(&listing->names[low + 1], &listing->names[low],
            (listing->count - low) * sizeof(char *));
    listing->names[low] = copy;
    if (++listing->count > op->limit)
        free(listing->names[--listing->count]);
    return true;
}

static void scan(struct redis *redis, struct listing *listing, const char *cursor);

/* An empty page would mean the end. So if none of these names is in use, the next ones are looked
 * at. */
static bool listing_goes_on(struct redis *redis, struct listing *listing) {
    if (hf_locks_count(listing->locks) || listing->count < listing->op->limit)
        return false;
    snprintf(listing->after, sizeof(listing->after), "%s", listing->names[listing->count - 1]);
    while (listing->count)
        free(listing->names[--listing->count]);
    listing->locks = hf_locks_free(listing->locks);
    listing->looked = listing->master = 0;
    scan(redis, listing, "0");
    return true;
}

static void listing_done(struct redis *redis, struct listing *listing) {
    struct store_op *op = listing->op;
    if (listing->outcome) {
        char *text = listing->text;
        listing->text = NULL;
        listing_fail(redis, listing, listing->outcome, listing->reason, text);
        return;
    }
    if (listing_goes_on(redis, listing))
        return;
    locks_sort(listing->locks); /* a look that had to be sent again with its script came last */
    op->locks = listing->locks;
    listing->locks = NULL;
    listing_free(listing);
    store_complete(redis->host, op, STORE_DONE);
}

static void listed_one(struct redis *redis, struct redis_request *request,
                       const struct reply *reply, const char *why) {
    struct listing *listing = request->context;
    const char *name = listing->names[request->items[0]];
    listing->looked++;
    if (reply && reply->type == REPLY_ARRAY) {
        if (!listing->outcome && !add_lock(listing->locks, name, reply, true)) {
            listing->outcome = STORE_REFUSED;
            listing->reason = HF_NO_MEMORY;
        }
    } else if (!listing->outcome && !(reply && reply_is_error(reply, "WRONGTYPE"))) {
        listing->outcome = redis_explain(request, reply, why, &listing->reason, &listing->text);
    }
    redis_request_free(request);
    if (listing->looked == listing->count)
        listing_done(redis, listing);
}

static void look_at_all(struct redis *redis, struct listing *listing) {
    struct list requests;
    list_init(&requests);
    listing->locks = locks_new();
    bool ok = listing->locks;
    for (size_t i = 0; ok && i < listing->count; i++) {
        look_at(redis, listing->names[i]);
        struct redis_request *request =
            redis_new_request(redis, listing->op, REDIS_LOOK, listed_one, listing, 1);
        ok = request;
        if (request) {
            request->items[0] = (uint16_t)i;
            list_append(&requests, &request->link);
        }
    }
    bool none = listing->count == 0; /* each may be answered at once, if there is no memory */
    struct list *node;
    while ((node = list_pop(&requests))) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (ok)
            route_submit(redis, request);
        else
            redis_request_free(request);
    }
    if (!ok)
        listing_fail(redis, listing, STORE_REFUSED, HF_NO_MEMORY, NULL);
    else if (none)
        listing_done(redis, listing);
}

/* The name of the lock that a key belongs to; false: it is not ours. */
static bool name_of(const struct redis *redis, const char *key, char ret_name[COMMAND_NAME_SIZE]) {
    size_t prefix_size = strlen(redis->prefix), size = strlen(key);
    if (!prefix_size)
        return command_name_of_state(key, ret_name);
    if (size <= prefix_size || size - prefix_size >= COMMAND_NAME_SIZE ||
        memcmp(key, redis->prefix, prefix_size) != 0)
        return false;
    strcpy(ret_name, key + prefix_size);
    return true;
}

static void scanned(struct redis *redis, struct redis_request *request, const struct reply *reply,
                    const char *why) {
    struct listing *listing = request->context;
    const struct reply *keys = reply ? reply_at(reply, 1) : NULL;
    if (!reply || reply->type != REPLY_ARRAY || keys->type != REPLY_ARRAY) {
        int reason;
        char *text;
        enum store_outcome outcome = redis_explain(request, reply, why, &reason, &text);
        redis_request_free(request);
        listing_fail(redis, listing, outcome, reason, text);
        return;
    }
    redis_request_free(request);
    const char *begin = listing->op->name;
    for (size_t i = 0; i < keys->count; i++) {
        const char *key = text_of(reply_at(keys, i));
        char name[COMMAND_NAME_SIZE];
        if (!key || strlen(key) != reply_at(keys, i)->size)
            continue; /* it has a NUL in it, so it is not ours */
        if (!name_of(redis, key, name) || strncmp(name, begin, strlen(begin)) != 0)
            continue;
        if (!keep_name(listing, name)) {
            listing_fail(redis, listing, STORE_REFUSED, HF_NO_MEMORY, NULL);
            return;
        }
    }
    const char *cursor = text_of(reply_at(reply, 0));
    if (cursor && strcmp(cursor, "0") != 0)
        scan(redis, listing, cursor);
    else if (redis->route && redis->route->kind->master(redis->route, ++listing->master))
        scan(redis, listing, "0");
    else
        look_at_all(redis, listing);
}

/* Adds text to a pattern; bytes with a meaning there are escaped. */
static void add_pattern(struct command *command, const char *text) {
    for (; *text; text++) {
        if (strchr("*?[]\\^-", *text))
            command_append(command, "\\", 1);
        command_append(command, text, 1);
    }
}

static void scan(struct redis *redis, struct listing *listing, const char *cursor) {
    struct command *command = &redis->command;
    command_start(command);
    command_add_text(command, "SCAN");
    command_add_text(command, cursor);
    command_add_text(command, "MATCH");
    if (redis->prefix[0]) {
        command_add_text(command, "");
        add_pattern(command, redis->prefix);
        add_pattern(command, listing->op->name);
        command_append(command, "*", 1);
    } else {
        command_add_text(command, "{*}.s*");
    }
    command_add_text(command, "COUNT");
    command_add_number(command, SCAN_COUNT);
    command_add_text(command, "TYPE");
    command_add_text(command, redis->prefix[0] ? "string" : "hash");
    struct redis_request *request = redis_new_request(redis, listing->op, -1, scanned, listing, 0);
    if (!request) {
        listing_fail(redis, listing, STORE_REFUSED, HF_NO_MEMORY, NULL);
        return;
    }
    struct redis_link *link =
        redis->route ? redis->route->kind->master(redis->route, listing->master) : &redis->commands;
    request->pinned = redis->route;
    if (link) {
        link_submit(link, request);
        return;
    }
    redis_request_free(request);
    listing_fail(redis, listing, STORE_REFUSED, HF_UNREACHABLE,
                 error_format("the servers changed during the listing"));
}

/* If there are several servers, they must be found first. */
static void found_servers(struct redis *redis, struct redis_request *request,
                          const struct reply *reply, const char *why) {
    struct listing *listing = request->context;
    int reason;
    char *text = NULL;
    enum store_outcome outcome = reply ? 0 : redis_explain(request, reply, why, &reason, &text);
    redis_request_free(request);
    if (outcome)
        listing_fail(redis, listing, outcome, reason, text);
    else
        scan(redis, listing, "0");
}

static void find_servers(struct redis *redis, struct listing *listing) {
    command_start(&redis->command);
    command_add_text(&redis->command, "PING");
    struct redis_request *request =
        redis_new_request(redis, listing->op, -1, found_servers, listing, 0);
    if (request)
        route_submit(redis, request);
    else
        listing_fail(redis, listing, STORE_REFUSED, HF_NO_MEMORY, NULL);
}

void redis_list(struct redis *redis, struct store_op *op) {
    struct listing *listing = calloc(1, sizeof(*listing) + (op->limit + 1) * sizeof(char *));
    if (!listing) {
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    listing->op = op;
    snprintf(listing->after, sizeof(listing->after), "%s", op->after ? op->after : "");
    if (redis->route)
        find_servers(redis, listing);
    else
        scan(redis, listing, "0");
}
