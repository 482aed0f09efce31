/* Examining: finding out what the server, its settings and our permissions mean for locks. report.c
 * turns that into findings.
 *
 * Everything whose order does not matter is asked first, in one write: INFO, the settings that INFO
 * lacks, and whether each command that the store uses is permitted. Then come, one by one, the
 * clock, some writes that are measured, and a subscription. No request changes anything: commands
 * are tried with arguments that they refuse, or on keys that do not exist; the key that is written
 * is nobody's lock, expires, and is deleted. Anything that may not be asked is reported as unknown;
 * nothing depends on permission to see a server's configuration.
 *
 * SUBSCRIBE turns a connection into one that takes no other commands. So it comes last, and the
 * link is broken afterwards, which sends again whatever else was under way. */
#include "store/redis/examine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WRITING_LIMIT_US = 1000000,
    PROBE_MS = 10000,     /* after which the probe key is gone in any case */
    WALL_TICK_US = 10000, /* the world's wall clock moves in steps of up to this */
};

static const char *const settings[EXAMINE_SETTINGS] = {
    "appendfsync", "save", "min-replicas-to-write", "notify-keyspace-events"};

/* ---- The job ---- */

static void proceed(struct examining *x);

static void finish(struct examining *x) {
    struct store_host *host = x->redis->host;
    struct store_op *op = x->op;
    enum store_outcome outcome = x->outcome;
    if (!outcome && !x->no_memory)
        examine_report(x);
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

/* A request was answered, or could not be sent. After the last one comes the next step, or the
 * end. */
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

/* Without a reply, or a login, nothing can be examined. */
static bool has_failed(struct examining *x, struct redis_request *request,
                       const struct reply *reply, const char *why) {
    if (reply && !reply_is_error(reply, "NOAUTH"))
        return false;
    if (!x->outcome)
        x->outcome = redis_explain(request, reply, why, &x->op->reason, &x->op->text);
    return true;
}

/* Sends what is in redis->command: to the given server and no other, or (NULL) to the one that
 * serves it. */
static void send_to(struct examining *x, struct redis_link *link, redis_answered *answered,
                    size_t item) {
    struct redis_request *request = redis_new_request(x->redis, x->op, -1, answered, x, 1);
    x->pending++;
    if (!request) {
        x->no_memory = true;
        step_done(x);
        return;
    }
    request->items[0] = (uint16_t)item;
    request->pinned = link;
    if (link)
        link_submit(link, request);
    else
        route_submit(x->redis, request);
}

static void send(struct examining *x, redis_answered *answered, size_t item) {
    send_to(x, NULL, answered, item);
}

/* The probe is a name that nobody locks: the client's own id. */
static void add_keys(struct examining *x, const char *begin, const char *which) {
    char id[LOCKS_OWNER_SIZE], name[LOCKS_OWNER_SIZE + 8];
    locks_format_owner(x->redis->host->identity.id, 0, id);
    snprintf(name, sizeof(name), "%s%.32s", begin, id);
    command_add_keys(&x->redis->command, x->redis->prefix, name, which);
}

static void add_channel(struct examining *x) {
    char id[LOCKS_OWNER_SIZE];
    locks_format_owner(x->redis->host->identity.id, 0, id);
    command_add_text(&x->redis->command, x->redis->channels);
    command_append(&x->redis->command, id, 32);
}

/* Builds a command from words as rights_words has them. */
static void start_command(struct examining *x, const char *words) {
    struct command *command = &x->redis->command;
    command_start(command);
    while (*words) {
        size_t size = strcspn(words, " |");
        if (size == 1 && *words == '@')
            add_channel(x);
        else if (size == 1 && *words == '#')
            redis_add_key_channel(x->redis, "@");
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
        } else if (!rights_is_denial(reply) && !x->outcome) {
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
        snprintf(x->settings[which], EXAMINE_VALUE_SIZE, "%s", reply_at(reply, 1)->text);
        x->known[which] = true;
    }
    redis_request_free(request);
    step_done(x);
}

/* An address in CLIENT INFO, without its port: "addr=10.0.0.7:4711 laddr=10.0.0.9:6379". */
static void find_address(const char *text, const char *key, char ret[EXAMINE_VALUE_SIZE]) {
    const char *found = strstr(text, key);
    snprintf(ret, EXAMINE_VALUE_SIZE, "%.*s", found ? (int)strcspn(found + strlen(key), " ") : 0,
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
        char ours[EXAMINE_VALUE_SIZE], theirs[EXAMINE_VALUE_SIZE];
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
        x->rights.denied_set = rights_is_denial(reply) && strstr(reply->text, "key");
        if (set->type == REPLY_STRING)
            snprintf(facts->set, sizeof(facts->set), "%s", set->text);
        x->set_since_us = reply_number(reply_at(reply, 1), 0);
        facts->node_id = reply_number(reply_at(reply, 2), 0);
    }
    redis_request_free(request);
    step_done(x);
}

static void right_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    (void)redis;
    if (!has_failed(x, request, reply, why))
        rights_note(&x->rights, request->items[0], reply);
    redis_request_free(request);
    step_done(x);
}

static bool has_slots(const struct examining *x) {
    return x->redis->route && x->redis->route->kind->has_slots;
}

/* ---- Several servers ---- */

enum question { WATCHER_PING, WATCHER_MASTER, WATCHER_NEWS, WATCHER_QUESTIONS };

static void watcher_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct examining *x = request->context;
    struct deployment *d = &x->deployment;
    bool is_refused = reply && rights_is_denial(reply);
    (void)redis;
    (void)why; /* those that answer are counted */
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

/* A master that cannot be reached is reported elsewhere. */
static void visited(struct redis *redis, struct redis_request *request, const struct reply *reply,
                    const char *why) {
    struct examining *x = request->context;
    (void)redis;
    (void)why;
    if (reply && request->items[0] < RIGHTS)
        rights_note(&x->rights, request->items[0], reply);
    else if (reply && reply->type == REPLY_STRING)
        deployment_note_info(&x->deployment, reply->text);
    redis_request_free(request);
    step_done(x);
}

/* Each master of a Cluster has its own users, certificate and replicas. Permission for a key can be
 * seen on any of them, whichever serves it. */
static void visit_masters(struct examining *x) {
    struct redis_route *route = x->redis->route;
    struct redis_link *master;
    x->pending = 1; /* until all have been sent */
    for (size_t i = 0; has_slots(x) && (master = route->kind->master(route, i)); i++) {
        for (size_t j = 0; j < RIGHTS_TO_SUBSCRIBE; j++) {
            if (!rights_needs(x->redis, j))
                continue;
            start_command(x, rights_words(j));
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
    for (size_t i = 0; i < EXAMINE_SETTINGS; i++) {
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
    for (size_t i = 0; i < RIGHTS_TO_SUBSCRIBE && !has_slots(x); i++) {
        if (!rights_needs(x->redis, i))
            continue;
        start_command(x, rights_words(i));
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
        if (!x->wrote && !rights_is_denial(reply)) /* a missing permission is reported as such */
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
        rights_note(&x->rights, request->items[0], reply);
        x->subscribed |= reply->type != REPLY_ERROR;
        if (x->pending == 1 && x->subscribed)
            link_break(request->via, HF_UNREACHABLE, "the connection was given up");
    }
    redis_request_free(request);
    step_done(x);
}

static void subscribe(struct examining *x) {
    x->pending = 1; /* until all have been sent */
    for (size_t i = RIGHTS_TO_SUBSCRIBE; i < RIGHTS; i++) {
        if (!rights_needs(x->redis, i))
            continue;
        start_command(x, rights_words(i));
        send(x, subscribed, i);
    }
    step_done(x);
}

static bool writes_on(const struct examining *x) {
    int64_t spent_us = 0;
    for (size_t i = 0; i < x->writes; i++)
        spent_us += x->us[i];
    return x->writes < EXAMINE_WRITES && x->wrote && spent_us < WRITING_LIMIT_US;
}

/* Takes the next step, which may end the job and free it. */
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
        subscribe(x);
    } else {
        finish(x);
    }
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
