/* Examining: what the server, its settings and our rights there do to locks.
 *
 * First everything is asked that has an order of no importance, in one write: INFO, what INFO lacks of the
 * settings, and whether each command that the store uses is permitted. Then, one after the other: the clock, some
 * writes that are measured, and a subscription. Every request is one that changes nothing: commands are tried with
 * arguments that they refuse, or on keys that are not there; the key that is written is nobody's lock, expires,
 * and is deleted. What may not be asked is not known, and noted; nothing depends on a server's configuration being
 * open to us.
 *
 * SUBSCRIBE turns a connection into one that takes no other commands. It comes last, and the link is then broken,
 * which sends again whatever else was under way. */
#include "base/error.h"
#include "store/redis/deployment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WRITES = 10,
    WRITING_LIMIT_US = 1000000,
    PROBE_MS = 10000, /* after which the probe key is gone in any case */
    SKEW_ODD_US = 1000000,
    WALL_TICK_US = 10000, /* the world's wall clock goes in steps, of so much at most */
    MEMORY_NEAR = 90,     /* per cent */
    VALUE_SIZE = 80,
    RIGHTS_SIZE = 1024,
    EXPIRY_WARNING_DAYS = 30,
    EXPIRY_PROBLEM_DAYS = 3,
};

static const double DAY_US = 86400e6;

/* ---- What the store needs ---- */

enum purpose { FOR_LOCKS, FOR_WAKING, FOR_OPERATORS };

enum when { ALWAYS, IN_CLUSTER, WITH_REPLICAS };

/* The commands that the store sends, or its scripts call, each in a form that does nothing. K, S and B are keys
 * that are not there: of a lock, its companion, and a companion of a name with braces; @ is our channel. ROLE, which a
 * master with sentinels is greeted with, is not here: without that right there is no connection to ask over. */
static const struct right {
    enum purpose purpose;
    const char *words;
    enum when when;
} rights[] = {
    {FOR_LOCKS, "EVAL return 0"},
    {FOR_LOCKS, "EVALSHA none 0"},
    {FOR_LOCKS, "TIME"},
    {FOR_LOCKS, "GET K"},
    {FOR_LOCKS, "SET K x PX 0"},
    {FOR_LOCKS, "SETRANGE K 0 ''"},
    {FOR_LOCKS, "DEL K"},
    {FOR_LOCKS, "PTTL K"},
    {FOR_LOCKS, "PEXPIRE K x"},
    {FOR_LOCKS, "HGET S x"},
    {FOR_LOCKS, "HMGET S x"},
    {FOR_LOCKS, "HSET S x x x"},
    {FOR_LOCKS, "HDEL S x"},
    {FOR_LOCKS, "HINCRBY S x x"},
    {FOR_LOCKS, "ZADD S x x"},
    {FOR_LOCKS, "ZREM B x"},
    {FOR_LOCKS, "ZRANGE S 0 0"},
    {FOR_LOCKS, "ZRANGEBYSCORE S 0 0"},
    {FOR_LOCKS, "ZRANK S x"},
    {FOR_LOCKS, "ZSCORE S x"},
    {FOR_LOCKS, "PUBLISH @ ''"},
    {FOR_WAKING, "PING"},
    {FOR_OPERATORS, "SCAN 0"},
    {FOR_OPERATORS, "HGETALL S"},
    {FOR_LOCKS, "CLUSTER|SLOTS", IN_CLUSTER},
    {FOR_LOCKS, "ASKING", IN_CLUSTER},
    {FOR_LOCKS, "WAIT 0 0", WITH_REPLICAS},
    {FOR_WAKING, "SUBSCRIBE @"},
};

enum {
    RIGHTS = sizeof(rights) / sizeof(rights[0]),
    RIGHT_TO_SUBSCRIBE = RIGHTS - 1, /* which is not tried with the others */
};

enum setting { APPENDFSYNC, SAVE, MIN_REPLICAS, SETTINGS };

static const char *const settings[SETTINGS] = {"appendfsync", "save", "min-replicas-to-write"};

/* ---- The job ---- */

enum step { ASKING, VISITING, CLOCK, WRITING, FORGETTING, SUBSCRIBING };

struct examining {
    struct redis *redis;
    struct store_op *op;
    struct store_facts *facts; /* for a set; NULL: it is in none */
    enum step step;
    size_t pending;             /* requests without an answer */
    enum store_outcome outcome; /* of the first that failed; 0: none did */
    bool no_memory;
    char *info;                          /* NULL: it may not be seen */
    char settings[SETTINGS][VALUE_SIZE]; /* "": unknown, or empty */
    bool known[SETTINGS], from_elsewhere;
    bool denied[RIGHTS], denied_key[3], denied_channel, denied_set;
    int64_t set_since_us;           /* when it began to vote, by its clock */
    int64_t asked_us;               /* the request that is measured */
    int64_t ahead_us, uncertain_us; /* the server's clock before ours; -1: not known */
    int64_t us[WRITES];
    size_t writes;
    bool wrote;  /* the last write was done */
    int refusal; /* why not, 0 where a right is missing; and particulars */
    char *refused;
    struct deployment deployment;
    hf_examination *out;
};

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

static void report(struct examining *x);
static void proceed(struct examining *x);

static void finish(struct examining *x) {
    struct store_host *host = x->redis->host;
    struct store_op *op = x->op;
    enum store_outcome outcome = x->outcome;
    if (!outcome && !x->no_memory)
        report(x);
    if (!outcome && !x->no_memory) {
        op->examination = x->out;
        x->out = NULL;
        outcome = STORE_DONE;
    } else if (!outcome) {
        op->reason = HF_NO_MEMORY;
        outcome = STORE_REFUSED;
    }
    hf_examination_free(x->out);
    free(x->info);
    free(x->refused);
    deployment_free(&x->deployment);
    free(x);
    store_complete(host, op, outcome);
}

/* A request has been answered, or was never sent. What follows the last of them may be the job's end. */
static void step_done(struct examining *x) {
    if (--x->pending > 0)
        return;
    if (x->redis->is_closing && !x->outcome)
        x->outcome = STORE_UNKNOWN;
    if (x->outcome || x->no_memory)
        finish(x);
    else
        proceed(x);
}

/* ---- Requests ---- */

static bool is_denied(const struct reply *reply) {
    return reply_is_error(reply, "NOPERM") || reply_is_error(reply, "ERR unknown command");
}

/* Without a reply, or at the door, nothing can be examined. */
static bool has_failed(struct examining *x, struct redis_request *request,
                       const struct reply *reply, const char *why) {
    if (reply && !reply_is_error(reply, "NOAUTH"))
        return false;
    if (!x->outcome)
        x->outcome = redis_explain(request, reply, why, &x->op->reason, &x->op->text);
    return true;
}

static void send(struct examining *x, redis_answered *answered, size_t item) {
    struct redis_request *request;
    x->pending++;
    if (redis_send(x->redis, x->op, -1, answered, x, 1, &request) < 0) {
        x->no_memory = true;
        step_done(x);
        return;
    }
    request->items[0] = (uint16_t)item;
    route_submit(x->redis, request);
}

/* The probe: a name that nobody locks, for it is the client's own id. */
static void add_keys(struct examining *x, const char *braces, const char *which) {
    char id[LOCKS_OWNER_SIZE], name[LOCKS_OWNER_SIZE + 8];
    locks_format_owner(x->redis->host->identity.id, 0, id);
    snprintf(name, sizeof(name), "%s%.32s", braces, id);
    command_add_keys(&x->redis->command, x->redis->prefix, name, which);
}

static void add_channel(struct examining *x) {
    char id[LOCKS_OWNER_SIZE];
    locks_format_owner(x->redis->host->identity.id, 0, id);
    command_add_text(&x->redis->command, x->redis->channels);
    command_append(&x->redis->command, id, 32);
}

/* Builds a command from words with spaces between them, or |, as in the table of rights. */
static void start_command(struct examining *x, const char *words) {
    struct command *command = &x->redis->command;
    command_start(command);
    while (*words) {
        size_t size = strcspn(words, " |");
        if (size == 1 && *words == '@')
            add_channel(x);
        else if (size == 1 && *words == 'B')
            add_keys(x, "{@}", "S");
        else if (size == 1 && strchr("KS", *words))
            add_keys(x, "@", *words == 'K' ? "K" : "S");
        else
            command_add(command, words, memcmp(words, "''", 2) == 0 ? 0 : size);
        words += size + (words[size] != 0);
    }
}

/* ---- Answers to what is asked at once ---- */

static void info_answered(struct redis *redis, struct redis_request *request,
                          const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    (void)redis;
    if (!has_failed(x, request, reply, why)) {
        if (reply->type == REPLY_STRING) {
            x->info = strdup(reply->text);
            x->no_memory |= !x->info;
        } else if (!is_denied(reply) && !x->outcome) {
            x->outcome = redis_explain(request, reply, why, &x->op->reason, &x->op->text);
        }
    }
    redis_request_free(request);
    step_done(x);
}

static void setting_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    size_t which = request->items[0];
    (void)redis;
    if (!has_failed(x, request, reply, why) && reply_at(reply, 1)->type == REPLY_STRING) {
        snprintf(x->settings[which], VALUE_SIZE, "%s", reply_at(reply, 1)->text);
        x->known[which] = true;
    }
    redis_request_free(request);
    step_done(x);
}

/* The address behind a key of CLIENT INFO, without its port: "addr=10.0.0.7:4711 laddr=10.0.0.9:6379". */
static void find_address(const char *text, const char *key, char ret[VALUE_SIZE]) {
    const char *found = strstr(text, key);
    snprintf(ret, VALUE_SIZE, "%.*s", found ? (int)strcspn(found + strlen(key), " ") : 0,
             found ? found + strlen(key) : "");
    char *port = strrchr(ret, ':');
    if (port)
        *port = 0;
}

static void client_answered(struct redis *redis, struct redis_request *request,
                            const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    (void)redis;
    if (!has_failed(x, request, reply, why) && reply->type == REPLY_STRING) {
        char ours[VALUE_SIZE], theirs[VALUE_SIZE];
        find_address(reply->text, " addr=", ours);
        find_address(reply->text, " laddr=", theirs);
        x->from_elsewhere = !x->redis->login.password && *ours && *theirs &&
                            strcmp(ours, theirs) != 0 && strncmp(ours, "127.", 4) != 0;
        if (x->facts)
            snprintf(x->facts->address, sizeof(x->facts->address), "%.63s", theirs);
    }
    redis_request_free(request);
    step_done(x);
}

/* In which set it votes, since when, and as which number. */
static void set_answered(struct redis *redis, struct redis_request *request,
                         const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    struct store_facts *facts = x->facts;
    (void)redis;
    if (!has_failed(x, request, reply, why)) {
        const struct reply *set = reply_at(reply, 0);
        facts->set_known = reply->type == REPLY_ARRAY;
        x->denied_set = is_denied(reply) && strstr(reply->text, "key");
        if (set->type == REPLY_STRING)
            snprintf(facts->set, sizeof(facts->set), "%s", set->text);
        x->set_since_us = reply_number(reply_at(reply, 1), 0);
        facts->node_id = reply_number(reply_at(reply, 2), 0);
    }
    redis_request_free(request);
    step_done(x);
}

/* What the refusal of a right was about: the command itself, the key in it, or the channel. */
static void note_denial(struct examining *x, size_t which, const struct reply *reply) {
    const char *keys = "KSB", *argument = strchr(rights[which].words, ' ');
    const char *key = argument ? strchr(keys, argument[1]) : NULL;
    if (!is_denied(reply))
        return;
    bool of_key = strstr(reply->text, "access a key") || strstr(reply->text, "of the keys");
    bool of_channel = strstr(reply->text, "a channel") || strstr(reply->text, "of the channels");
    if (of_key && key)
        x->denied_key[key - keys] = true;
    else if (of_channel && argument && argument[1] == '@')
        x->denied_channel = true;
    else
        x->denied[which] = true;
}

static void right_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    (void)redis;
    if (!has_failed(x, request, reply, why))
        note_denial(x, request->items[0], reply);
    redis_request_free(request);
    step_done(x);
}

static bool has_slots(const struct examining *x) {
    return x->redis->route && x->redis->route->kind->has_slots;
}

static bool is_needed(const struct examining *x, const struct right *right) {
    return right->when == ALWAYS || (right->when == IN_CLUSTER && has_slots(x)) ||
           (right->when == WITH_REPLICAS && x->redis->wait_replicas);
}

/* ---- Several servers ---- */

enum question { WATCHER_PING, WATCHER_MASTER, WATCHER_NEWS, WATCHER_QUESTIONS };

static void watcher_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    struct deployment *d = &x->deployment;
    bool is_refused = reply && is_denied(reply);
    (void)redis;
    (void)why; /* who does not answer is counted */
    if (request->items[0] == WATCHER_MASTER) {
        deployment_note_sentinel(d, reply, is_refused);
    } else if (is_refused && request->items[0] == WATCHER_PING) {
        d->lacks_ping = true;
    } else if (is_refused) {
        bool of_channel = strstr(reply->text, "channel");
        d->lacks_channel |= of_channel;
        d->lacks_subscribe |= !of_channel;
    } else if (reply && request->items[0] == WATCHER_NEWS) {
        link_break(request->via, HF_UNREACHABLE, "the connection was given up");
    }
    redis_request_free(request);
    step_done(x);
}

static void cluster_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    char **to = request->items[0] ? &x->deployment.cluster_nodes : &x->deployment.cluster_info;
    (void)redis;
    if (!has_failed(x, request, reply, why) && reply->type == REPLY_STRING) {
        *to = strdup(reply->text);
        x->no_memory |= !*to;
    }
    redis_request_free(request);
    step_done(x);
}

/* Sends what is in redis->command to this server and no other. */
static void send_to(struct examining *x, struct redis_link *link, redis_answered *answered,
                    size_t item) {
    struct redis_request *request;
    x->pending++;
    if (redis_send(x->redis, x->op, -1, answered, x, 1, &request) < 0) {
        x->no_memory = true;
        step_done(x);
        return;
    }
    request->items[0] = (uint16_t)item;
    request->pinned = true;
    link_submit(link, request);
}

static void ask_watcher(struct examining *x, struct redis_link *watcher) {
    x->deployment.sentinels++;
    x->deployment.sentinel_user =
        watcher->setup->login->user ? watcher->setup->login->user : "default";
    start_command(x, "PING");
    send_to(x, watcher, watcher_answered, WATCHER_PING);
    x->redis->route->kind->build_question(x->redis->route);
    send_to(x, watcher, watcher_answered, WATCHER_MASTER);
    start_command(x, "SUBSCRIBE +switch-master");
    send_to(x, watcher, watcher_answered, WATCHER_NEWS);
}

/* A master that cannot be reached is told elsewhere. */
static void visited(struct redis *redis, struct redis_request *request, const struct reply *reply,
                    const char *why) {
    struct examining *x = request->context;
    (void)redis;
    (void)why;
    if (reply && request->items[0] < RIGHTS)
        note_denial(x, request->items[0], reply);
    else if (reply && reply->type == REPLY_STRING)
        deployment_note_info(&x->deployment, reply->text);
    redis_request_free(request);
    step_done(x);
}

/* Each master of a Cluster has users, a certificate and replicas of its own. A key that another serves is one that may be named
 * all the same. */
static void visit_masters(struct examining *x) {
    struct redis_route *route = x->redis->route;
    struct redis_link *master;
    x->pending = 1; /* until all have been sent */
    for (size_t i = 0; has_slots(x) && (master = route->kind->master(route, i)); i++) {
        for (size_t j = 0; j < RIGHT_TO_SUBSCRIBE; j++) {
            if (!is_needed(x, &rights[j]))
                continue;
            start_command(x, rights[j].words);
            send_to(x, master, visited, j);
        }
        start_command(x, "INFO replication");
        send_to(x, master, visited, RIGHTS);
    }
    step_done(x);
}

static void ask_deployment(struct examining *x) {
    struct redis_route *route = x->redis->route;
    struct redis_link *watcher;
    for (size_t i = 0; route->kind->watcher && (watcher = route->kind->watcher(route, i)); i++)
        ask_watcher(x, watcher);
    if (!route->kind->has_slots)
        return;
    start_command(x, "CLUSTER INFO");
    send(x, cluster_answered, 0);
    start_command(x, "CLUSTER NODES");
    send(x, cluster_answered, 1);
}

static void ask(struct examining *x) {
    struct command *command = &x->redis->command;
    x->pending = 1; /* until all have been sent */
    start_command(x, "INFO");
    send(x, info_answered, 0);
    for (size_t i = 0; i < SETTINGS; i++) {
        start_command(x, "CONFIG GET");
        command_add_text(command, settings[i]);
        send(x, setting_answered, i);
    }
    if (x->facts) {
        start_command(x, "HMGET");
        redis_add_set_key(x->redis);
        command_add_text(command, "f");
        command_add_text(command, "s");
        command_add_text(command, "n");
        send(x, set_answered, 0);
    }
    if ((!x->redis->login.password || x->facts) && !x->redis->server_path) {
        start_command(x, "CLIENT INFO");
        send(x, client_answered, 0);
    }
    for (size_t i = 0; i < RIGHT_TO_SUBSCRIBE && !has_slots(x); i++) {
        if (!is_needed(x, &rights[i]))
            continue;
        start_command(x, rights[i].words);
        send(x, right_answered, i);
    }
    if (x->redis->route)
        ask_deployment(x);
    step_done(x);
}

/* ---- One after the other ---- */

static void clock_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    struct world *world = redis->host->world;
    if (!has_failed(x, request, reply, why) && reply->type == REPLY_ARRAY) {
        int64_t half_us = (world_now_us(world) - x->asked_us) / 2;
        int64_t server_us =
            reply_number(reply_at(reply, 0), 0) * 1000000 + reply_number(reply_at(reply, 1), 0);
        x->ahead_us = server_us - (world_wall_us(world) - half_us);
        x->uncertain_us = half_us + WALL_TICK_US;
    }
    redis_request_free(request);
    step_done(x);
}

static void write_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    if (!has_failed(x, request, reply, why)) {
        x->wrote = reply->type != REPLY_ERROR;
        if (!x->wrote && !is_denied(reply)) /* which is told as a right */
            redis_explain(request, reply, why, &x->refusal, &x->refused);
        else if (x->wrote)
            x->us[x->writes++] = world_now_us(redis->host->world) - x->asked_us;
    }
    redis_request_free(request);
    step_done(x);
}

static void forgotten(struct redis *redis, struct redis_request *request, const struct reply *reply,
                      const char *why) {
    struct examining *x = request->context;
    (void)redis;
    has_failed(x, request, reply, why);
    redis_request_free(request);
    step_done(x);
}

static void subscribed(struct redis *redis, struct redis_request *request,
                       const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    (void)redis;
    if (!has_failed(x, request, reply, why)) {
        note_denial(x, RIGHT_TO_SUBSCRIBE, reply);
        if (reply->type != REPLY_ERROR)
            link_break(request->via, HF_UNREACHABLE, "the connection was given up");
    }
    redis_request_free(request);
    step_done(x);
}

static bool writes_on(const struct examining *x) {
    int64_t spent_us = 0;
    for (size_t i = 0; i < x->writes; i++)
        spent_us += x->us[i];
    return x->writes < WRITES && x->wrote && spent_us < WRITING_LIMIT_US;
}

/* The next step; the job may be gone behind it. */
static void proceed(struct examining *x) {
    x->asked_us = world_now_us(x->redis->host->world);
    if (x->step == ASKING) {
        x->step = VISITING;
        visit_masters(x);
    } else if (x->step == VISITING) {
        x->step = CLOCK;
        start_command(x, "TIME");
        send(x, clock_answered, 0);
    } else if (x->step == CLOCK || (x->step == WRITING && writes_on(x))) {
        x->step = WRITING;
        start_command(x, "SET S x PX");
        command_add_number(&x->redis->command, PROBE_MS);
        send(x, write_answered, 0);
    } else if (x->step == WRITING) {
        x->step = FORGETTING;
        start_command(x, "DEL S");
        send(x, forgotten, 0);
    } else if (x->step == FORGETTING) {
        x->step = SUBSCRIBING;
        start_command(x, rights[RIGHT_TO_SUBSCRIBE].words);
        send(x, subscribed, 0);
    } else {
        finish(x);
    }
}

/* ---- What INFO says ---- */

/* The value of a line "key:value"; false, and "", where there is none. */
static bool info_text(const struct examining *x, const char *key, char ret[VALUE_SIZE]) {
    size_t size = strlen(key);
    ret[0] = 0;
    for (const char *line = x->info; line && *line; line += strspn(line, "\r\n")) {
        size_t length = strcspn(line, "\r\n");
        if (length > size && strncmp(line, key, size) == 0 && line[size] == ':') {
            snprintf(ret, VALUE_SIZE, "%.*s", (int)(length - size - 1), line + size + 1);
            return true;
        }
        line += length;
    }
    return false;
}

static int64_t info_number(const struct examining *x, const char *key, int64_t otherwise) {
    char text[VALUE_SIZE], *end;
    if (!info_text(x, key, text))
        return otherwise;
    long long number = strtoll(text, &end, 10);
    return end == text ? otherwise : number;
}

static bool info_is(const struct examining *x, const char *key, const char *value) {
    char text[VALUE_SIZE];
    return info_text(x, key, text) && strcmp(text, value) == 0;
}

static void report_version(struct examining *x) {
    char version[VALUE_SIZE], own[VALUE_SIZE];
    if (!info_text(x, "redis_version", version))
        return;
    bool is_valkey = info_text(x, "valkey_version", own);
    unsigned major = 0, minor = 0;
    const char *name = is_valkey ? "Valkey" : "Redis", *shown = is_valkey ? own : version;
    sscanf(version, "%u.%u", &major, &minor);
    if (!is_valkey && (major < 6 || (major == 6 && minor < 2)))
        ADD(x, HF_PROBLEM, "version",
            "it lacks commands that holdfast needs, and is no longer maintained",
            "update the server to Redis 6.2 or later, or to Valkey", "the server is %s %s", name,
            shown);
    else
        ADD(x, HF_FINE, "version", "it has all that holdfast needs", "", "the server is %s %s",
            name, shown);
}

/* Whether the server takes locks at all, and keeps them when its place is taken by another. */
static void report_role(struct examining *x) {
    char host[VALUE_SIZE], port[VALUE_SIZE];
    int64_t replicas = info_number(x, "connected_slaves", 0);
    if (info_is(x, "redis_mode", "sentinel")) {
        ADD(x, HF_PROBLEM, "role", "no lock can be acquired there",
            "name the server that it watches", "this is a Sentinel, which keeps no data");
    } else if (info_is(x, "role", "slave")) {
        info_text(x, "master_host", host);
        info_text(x, "master_port", port);
        ADD(x, HF_PROBLEM, "role",
            "no lock can be acquired or renewed there, and what it shows may be old",
            "name the master in the URL", "the server is a replica, of %s port %s", host, port);
    } else if (replicas > 0) {
        x->out->tier = "best effort";
        ADD(x, HF_WARNING, "role",
            "replicas lag behind: a fail-over to one of them loses the most recent locks, which "
            "others can then acquire while their holders still work",
            "pass tokens to whatever you write to; or keep locks on a server without fail-over",
            "the server has %" PRId64 " replica%s", replicas, replicas == 1 ? "" : "s");
    } else {
        ADD(x, HF_FINE, "role", "no fail-over can lose a lock", "",
            "the server is a master without replicas");
    }
    if (info_is(x, "cluster_enabled", "1"))
        ADD(x, HF_PROBLEM, "cluster", "names in slots of other nodes cannot be locked here",
            "name a server that is not part of a Cluster", "the server is a node of a Cluster");
}

/* A node of a set that has forgotten everything does not vote for a while; one that has forgotten a part does. */
static const char *for_locks(const struct examining *x, const char *alone, const char *in_set) {
    return x->redis->set ? in_set : alone;
}

static void report_appended(struct examining *x) {
    const char *fsync = x->settings[APPENDFSYNC];
    const char *fix =
        "set appendfsync always (each acquire and release then waits for the disk), or "
        "check tokens at whatever you write to";
    if (!x->known[APPENDFSYNC])
        ADD(x, HF_NOTE, "persistence",
            "with appendfsync always no lock is lost; with everysec, the default, a power failure "
            "loses up to a second of them",
            "permit CONFIG GET to the user who runs doctor: +config|get",
            "commands are appended to a file; how often that is synced cannot be seen");
    else if (strcmp(fsync, "always") == 0)
        ADD(x, HF_FINE, "persistence", "locks survive a restart and a power failure", "",
            "commands are appended to a file, which is synced each time");
    else if (strcmp(fsync, "everysec") == 0)
        ADD(x, HF_WARNING, "persistence",
            for_locks(x,
                      "a restart loses nothing; a power failure or a crash of its host loses up to "
                      "a second (two at worst) of locks and tokens, which others can then acquire",
                      "a restart loses nothing; a power failure or a crash of its host loses up to "
                      "a second (two at worst) of votes and tokens, unnoticed"),
            fix, "commands are appended to a file, which is synced each second");
    else
        ADD(x, HF_WARNING, "persistence",
            for_locks(x,
                      "a restart loses nothing; a power failure or a crash of its host loses "
                      "what the kernel had not written yet, about 30 seconds of locks and tokens",
                      "a restart loses nothing; a power failure or a crash of its host loses "
                      "what the kernel had not written yet, about 30 seconds of votes and "
                      "tokens, unnoticed"),
            fix, "commands are appended to a file, which is not synced (appendfsync %s)", fsync);
}

static void report_persistence(struct examining *x) {
    const char *fix = "set appendonly yes and appendfsync always, in redis.conf or by CONFIG SET";
    if (info_number(x, "aof_enabled", 0) == 1) {
        report_appended(x);
        return;
    }
    x->out->tier = "best effort";
    if (x->known[SAVE] && !x->settings[SAVE][0])
        ADD(x, HF_WARNING, "persistence",
            for_locks(
                x,
                "a restart forgets all locks, which others can then acquire while their "
                "holders work on until the next renewal; tokens rise only by the clocks",
                "a restart forgets all votes, and the node does not vote for max_lease; if too few "
                "nodes for a quorum remember, tokens rise only by the clocks"),
            fix, "nothing is kept on disk (no appendonly, no save)");
    else
        ADD(x, HF_WARNING, "persistence",
            for_locks(x,
                      "a crash forgets the locks since the last snapshot and brings back older "
                      "ones; tokens rise only by the clocks",
                      "a crash forgets the votes since the last snapshot and brings back older "
                      "ones, unnoticed"),
            fix, "only snapshots are kept on disk%s%s",
            x->known[SAVE] ? ", save " : ", if that: what save is set to cannot be seen",
            x->settings[SAVE]);
}

static void report_memory(struct examining *x) {
    char policy[VALUE_SIZE];
    int64_t most = info_number(x, "maxmemory", 0), used = info_number(x, "used_memory", 0);
    bool evicts = info_text(x, "maxmemory_policy", policy) && strcmp(policy, "noeviction") != 0;
    if (evicts && most > 0)
        ADD(x, HF_PROBLEM, "eviction",
            "at its limit the server drops locks, which others can then acquire while their "
            "holders work on until the next renewal",
            "set maxmemory-policy noeviction, or use a server for locks only",
            "keys are evicted (maxmemory-policy %s) beyond %" PRId64 " MB", policy, most >> 20);
    else if (evicts)
        ADD(x, HF_NOTE, "eviction", "with a maxmemory the server would drop locks",
            "set maxmemory-policy noeviction, before somebody sets maxmemory",
            "maxmemory-policy is %s, but there is no maxmemory", policy);
    else
        ADD(x, HF_FINE, "eviction", "the server drops no lock", "", "no key is evicted");
    if (most > 0 && used / MEMORY_NEAR >= most / 100)
        ADD(x, HF_WARNING, "memory",
            "at its limit no lock can be acquired; held locks can still be renewed and released",
            "raise maxmemory, or find out what fills the server",
            "%" PRId64 " KB of %" PRId64 " KB maxmemory are used", used >> 10, most >> 10);
}

static void report_min_replicas(struct examining *x) {
    const char *least = x->settings[MIN_REPLICAS];
    if (strtol(least, NULL, 10) > 0)
        ADD(x, HF_NOTE, "min-replicas",
            "with fewer of them no lock can be acquired or renewed; and a fail-over can still lose "
            "locks, since replicas lag behind",
            "", "writes need %s connected replica%s (min-replicas-to-write)", least,
            strcmp(least, "1") == 0 ? "" : "s");
}

/* ---- What else was found ---- */

static void report_unseen(struct examining *x) {
    if (!x->info) {
        x->out->tier = "best effort";
        ADD(x, HF_NOTE, "configuration", "this is the tier at worst; it may be better",
            "run holdfast doctor as a user with that permission, or give it to this one: +info "
            "+config|get",
            "INFO is not permitted: version, replicas, persistence and eviction cannot be seen");
    } else if (!x->known[APPENDFSYNC] && !x->known[SAVE] && !x->known[MIN_REPLICAS]) {
        ADD(x, HF_NOTE, "configuration", "the finding about persistence assumes the worst",
            "run holdfast doctor as a user with that permission, or give it to this one: "
            "+config|get",
            "CONFIG GET is not permitted: appendfsync, save and min-replicas-to-write cannot be "
            "seen");
    }
}

static void report_clock(struct examining *x) {
    int64_t size_us = x->ahead_us < 0 ? -x->ahead_us : x->ahead_us;
    double seconds = (double)size_us / 1e6;
    const char *where = x->ahead_us < 0 ? "behind" : "ahead of";
    const char *fix = "find out which of the two is wrong, and slew it instead of stepping it "
                      "(chrony)";
    if (x->uncertain_us < 0)
        return;
    size_us -= x->uncertain_us;
    if (size_us > STORE_FLOOR_AHEAD_US && x->ahead_us < 0)
        ADD(x, HF_PROBLEM, "clock",
            "locks with new names are refused (\"a clock is wrong\"), since their tokens would be "
            "far "
            "ahead; a step that corrects the server ends all leases at once",
            fix, "the server's clock is %.0f s behind this host's", seconds);
    else if (size_us > STORE_FLOOR_AHEAD_US)
        ADD(x, HF_PROBLEM, "clock",
            "leases and tokens are unaffected until a step corrects the server; the locks of dead "
            "holders are then kept longer by that much",
            fix, "the server's clock is %.0f s ahead of this host's", seconds);
    else if (size_us > SKEW_ODD_US)
        ADD(x, HF_WARNING, "clock",
            "leases, which the server's clock measures, and tokens, which rise by counting, are "
            "unaffected; but a step that corrects the server moves the end of each lease by the "
            "difference, and if this host is wrong, its tokens may be too small or too large after "
            "a "
            "loss of counters",
            fix, "the server's clock is %.1f s %s this host's", seconds, where);
    else
        ADD(x, HF_FINE, "clock",
            "the server's clock measures leases, and this host's clock is the floor of tokens", "",
            "the server's clock and this host's differ by less than %.2f s",
            (double)(size_us + 2 * x->uncertain_us) / 1e6 + 0.005);
}

static void report_access(struct examining *x) {
    if (x->from_elsewhere)
        ADD(x, HF_WARNING, "access",
            "anybody who reaches the server can take, keep and break every lock, and delete all "
            "data",
            "create a user with a password and few permissions: docs/stores/redis.md has its ACL",
            "the server asks for no password, and is reached over the network");
}

/* What of the way to the server is known to everybody on it, and for how long it is not. */
static void report_certificate(struct examining *x, const char *id, const char *whose,
                               int64_t expires_us) {
    int64_t left_us = expires_us - world_wall_us(x->redis->host->world);
    double days = (double)left_us / DAY_US;
    const char *means = "once it has expired nobody can connect; held locks are then lost "
                        "with the next broken connection";
    const char *fix = "renew the certificate, and monitor its renewal";
    if (!expires_us)
        return;
    if (left_us <= 0)
        ADD(x, HF_PROBLEM, id, "nobody can connect; only existing connections still work", fix,
            "%s has expired", whose);
    else if (days < EXPIRY_PROBLEM_DAYS || days < EXPIRY_WARNING_DAYS)
        ADD(x, days < EXPIRY_PROBLEM_DAYS ? HF_PROBLEM : HF_WARNING, id, means, fix,
            "%s expires in %.1f days", whose, days);
    else
        ADD(x, HF_FINE, id, "it is verified for each connection, and is valid for long enough", "",
            "%s expires in %.0f days", whose, days);
}

/* How far away the farthest of the servers is that were connected to. */
static enum world_reach farthest_of(const struct redis *redis) {
    enum world_reach farthest = redis->commands.wire.stream.reach;
    const struct route_kind *kind = redis->route ? redis->route->kind : NULL;
    struct redis_link *link;
    for (size_t i = 0; kind && (link = kind->master(redis->route, i)); i++) {
        if (link->wire.stream.reach > farthest)
            farthest = link->wire.stream.reach;
    }
    for (size_t i = 0; kind && kind->watcher && (link = kind->watcher(redis->route, i)); i++) {
        if (link->wire.stream.reach > farthest)
            farthest = link->wire.stream.reach;
    }
    return farthest;
}

static void report_plaintext(struct examining *x, enum world_reach reach) {
    if (reach == WORLD_THIS_HOST)
        return;
    ADD(x, reach == WORLD_PUBLIC ? HF_WARNING : HF_NOTE, "plaintext",
        "anybody on the network path can read the password, and take and break every lock",
        "use TLS, with rediss:// in the URL: docs/stores/redis.md",
        reach == WORLD_PUBLIC
            ? "the server has a public address, and the connection is not encrypted"
            : "the server is another host of a private network, and the connection is not "
              "encrypted");
}

static void report_way(struct examining *x) {
    struct net_tls *tls = x->redis->security.tls;
    if (tls) {
        struct net_tls_expiries expiries;
        tls->module->expiries(tls, &expiries);
        report_certificate(x, "certificate",
                           x->redis->route ? "the first certificate in the servers' chains"
                                           : "the server's certificate, or one in its chain,",
                           expiries.server_us);
        report_certificate(x, "client-certificate", "the client certificate", expiries.own_us);
    } else {
        report_plaintext(x, farthest_of(x->redis));
    }
}

/* ---- Rights ---- */

/* The rights for a purpose that are missing, as ACL SETUSER has them, with a space before each. */
static void list_denied(const struct examining *x, enum purpose purpose, char ret[RIGHTS_SIZE]) {
    const char *prefix = x->redis->prefix;
    const char *open = strchr(prefix, '{'), *close = open ? strchr(open, '}') : NULL;
    bool has_tag = close && close > open + 1; /* then companions have it, too */
    ret[0] = 0;
    for (size_t i = 0; i < RIGHTS; i++) {
        if (!x->denied[i] || rights[i].purpose != purpose)
            continue;
        error_append(ret, RIGHTS_SIZE, " +");
        for (const char *c = rights[i].words; *c && *c != ' '; c++)
            error_append(ret, RIGHTS_SIZE, "%c", *c | 0x20);
    }
    if (purpose != FOR_LOCKS)
        return;
    if (x->denied_key[0])
        error_append(ret, RIGHTS_SIZE, " ~%s*", prefix);
    if (x->denied_key[1] && !has_tag)
        error_append(ret, RIGHTS_SIZE, " ~{%s*}.?", prefix);
    if (x->denied_key[2] || (x->denied_key[1] && has_tag))
        error_append(ret, RIGHTS_SIZE, " ~{*}.?.%s*", prefix);
    if (x->redis->set && !x->info) /* which boot.lua asks for */
        error_append(ret, RIGHTS_SIZE, " +info");
    if (x->denied_set)
        error_append(ret, RIGHTS_SIZE, " ~{%s}.set", prefix);
    if (x->denied_channel)
        error_append(ret, RIGHTS_SIZE, " &%s*", x->redis->channels);
}

static bool report_denied(struct examining *x, enum purpose purpose, hf_severity severity,
                          const char *id, const char *means) {
    char denied[RIGHTS_SIZE], fix[RIGHTS_SIZE] = "ACL SETUSER ";
    const char *user = x->redis->login.user ? x->redis->login.user : "default";
    list_denied(x, purpose, denied);
    if (!denied[0])
        return false;
    error_append(fix, RIGHTS_SIZE, "%s%s%s", user, denied, has_slots(x) ? ", on each node" : "");
    ADD(x, severity, id, means, fix, "the user \"%s\" lacks%s", user, denied);
    return true;
}

static void report_rights(struct examining *x) {
    bool any = report_denied(x, FOR_LOCKS, HF_PROBLEM, "rights",
                             "some or all locks fail; if a script is refused halfway, the next one "
                             "cleans up");
    any |=
        report_denied(x, FOR_WAKING, HF_WARNING, "wake-ups",
                      "waiters are not notified that a lock is free: they ask once a second; and a "
                      "broken hold is noticed only at its next renewal");
    any |= report_denied(x, FOR_OPERATORS, HF_WARNING, "looking",
                         "ls and watch fail (+scan), or the break of a shared lock (+hgetall)");
    if (!any)
        ADD(x, HF_FINE, "rights", "the server refuses nothing that holdfast does", "",
            "the user \"%s\" has all permissions that are needed",
            x->redis->login.user ? x->redis->login.user : "default");
}

static void report_writes(struct examining *x) {
    if (x->refusal && !info_is(x, "role", "slave")) /* which was told */
        ADD(x, HF_PROBLEM, "write", "no lock can be acquired now, and perhaps none renewed",
            x->refusal == HF_STORE_FULL ? "raise maxmemory, or find out what fills the server"
                                        : "fix that; the server's log may say more",
            "the server accepts no writes: %s", x->refused ? x->refused : "");
    findings_measured(x->out, x->us, x->writes);
}

/* What the set wants to compare, as far as it is seen. */
static void fill_facts(struct examining *x, struct store_facts *facts) {
    const struct redis *redis = x->redis;
    char value[VALUE_SIZE];
    int64_t up_s = info_number(x, "uptime_in_seconds", -1);
    if (x->uncertain_us >= 0) {
        facts->ahead_us = x->ahead_us;
        facts->uncertain_us = x->uncertain_us;
        int64_t since_us = world_wall_us(redis->host->world) + x->ahead_us - x->set_since_us;
        if (x->set_since_us && since_us < redis->host->max_lease_us)
            facts->silent_us = redis->host->max_lease_us - since_us;
    }
    facts->up_us = (up_s + 1) * 1000000;
    facts->durable = strcmp(x->out->tier, "timed") == 0 && info_number(x, "aof_enabled", 0) == 1 &&
                     strcmp(x->settings[APPENDFSYNC], "always") == 0;
    facts->local = redis->commands.wire.stream.reach == WORLD_THIS_HOST;
    if (redis->server_host)
        snprintf(facts->host, sizeof(facts->host), "%s", redis->server_host);
    info_text(x, "run_id", value);
    snprintf(facts->run, sizeof(facts->run), "%.63s", value);
    if (!info_text(x, "valkey_version", value))
        info_text(x, "redis_version", value);
    snprintf(facts->version, sizeof(facts->version), "%.63s", value);
}

static void report(struct examining *x) {
    const struct redis_route *route = x->redis->route;
    x->out = findings_new(route ? route->kind->tier : x->redis->store.driver->tier);
    if (!x->out) {
        x->no_memory = true;
        return;
    }
    if (x->known[MIN_REPLICAS])
        x->deployment.min_replicas = strtol(x->settings[MIN_REPLICAS], NULL, 10);
    if (route && x->info && !has_slots(x))
        deployment_note_info(&x->deployment, x->info);
    if (route)
        x->no_memory |= !deployment_report(&x->deployment, route, x->out);
    if (x->info) {
        report_version(x);
        if (!route)
            report_role(x);
        report_persistence(x);
        report_memory(x);
        report_min_replicas(x);
    }
    report_unseen(x);
    report_clock(x);
    report_access(x);
    report_way(x);
    report_rights(x);
    report_writes(x);
    if (x->facts)
        fill_facts(x, x->facts);
}

void redis_examine(struct redis *redis, struct store_op *op, struct store_facts *facts) {
    struct examining *x = calloc(1, sizeof(*x));
    if (!x) {
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    x->redis = redis;
    x->op = op;
    x->facts = facts;
    x->uncertain_us = -1;
    deployment_init(&x->deployment);
    ask(x);
}
