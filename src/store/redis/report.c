/* The report of an examination: findings about the server, each with its meaning for locks and its
 * fix. */
#include "store/redis/examine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SKEW_ODD_US = 1000000,
    MEMORY_NEAR = 90, /* per cent */
    EXPIRY_WARNING_DAYS = 30,
    EXPIRY_PROBLEM_DAYS = 3,
};

static const double DAY_US = 86400e6;

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

/* ---- What INFO says ---- */

/* The value in a line "key:value"; false, and "", if there is none. */
static bool info_text(const struct examining *x, const char *key, char ret[EXAMINE_VALUE_SIZE]) {
    size_t size = strlen(key);
    ret[0] = 0;
    for (const char *line = x->info; line && *line; line += strspn(line, "\r\n")) {
        size_t length = strcspn(line, "\r\n");
        if (length > size && strncmp(line, key, size) == 0 && line[size] == ':') {
            snprintf(ret, EXAMINE_VALUE_SIZE, "%.*s", (int)(length - size - 1), line + size + 1);
            return true;
        }
        line += length;
    }
    return false;
}

static int64_t info_number(const struct examining *x, const char *key, int64_t otherwise) {
    char text[EXAMINE_VALUE_SIZE], *end;
    if (!info_text(x, key, text))
        return otherwise;
    long long number = strtoll(text, &end, 10);
    return end == text ? otherwise : number;
}

static bool info_is(const struct examining *x, const char *key, const char *value) {
    char text[EXAMINE_VALUE_SIZE];
    return info_text(x, key, text) && strcmp(text, value) == 0;
}

static void report_version(struct examining *x) {
    char version[EXAMINE_VALUE_SIZE], own[EXAMINE_VALUE_SIZE];
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

/* Whether the server takes locks at all, and what a fail-over does to them. */
static void report_role(struct examining *x) {
    char host[EXAMINE_VALUE_SIZE], port[EXAMINE_VALUE_SIZE];
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

/* A node of a set that has forgotten everything does not vote for a while. One that has forgotten
 * only a part keeps voting. */
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
                "holders work on until the next renewal; only the clocks keep tokens rising",
                "a restart forgets all votes, and the node does not vote for max_lease; if too few "
                "nodes for a quorum remember, only the clocks keep tokens rising"),
            fix, "nothing is kept on disk (no appendonly, no save)");
    else
        ADD(x, HF_WARNING, "persistence",
            for_locks(x,
                      "a crash forgets the locks since the last snapshot and brings back older "
                      "ones; only the clocks keep tokens rising",
                      "a crash forgets the votes since the last snapshot and brings back older "
                      "ones, unnoticed"),
            fix, "only snapshots are kept on disk%s%s",
            x->known[SAVE] ? ", save " : ", if that: what save is set to cannot be seen",
            x->settings[SAVE]);
}

static void report_memory(struct examining *x) {
    char policy[EXAMINE_VALUE_SIZE];
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

/* ---- Everything else ---- */

/* K turns on the channels of keys. The other letters say for which events; A means all of them. */
static void report_key_events(struct examining *x) {
    const char *classes = x->settings[KEY_EVENTS];
    bool all = strchr(classes, 'A') || (strchr(classes, 'g') && strchr(classes, '$') &&
                                        strchr(classes, 'x') && strchr(classes, 'e'));
    if (!x->known[KEY_EVENTS] || (x->redis->route && x->redis->route->kind->has_slots))
        return;
    if (strchr(classes, 'K') && all)
        ADD(x, HF_FINE, "key-events",
            "a holder is notified at once if somebody deletes or overwrites its lock", "",
            "the server publishes what happens to keys");
    else
        ADD(x, HF_NOTE, "key-events",
            "if somebody deletes or overwrites a lock (DEL, SET, eviction), its holder notices at "
            "its next renewal, within a third of its lease; a break is reported at once",
            "set notify-keyspace-events Kg$xe, in redis.conf or by CONFIG SET; each change of a "
            "key then costs the server a little more",
            "the server does not publish what happens to keys (notify-keyspace-events \"%s\")",
            classes);
}

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

/* How far away the farthest server is. */
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

static void report_writes(struct examining *x) {
    if (x->refusal && !info_is(x, "role", "slave")) /* a replica was reported already */
        ADD(x, HF_PROBLEM, "write", "no lock can be acquired now, and perhaps none renewed",
            x->refusal == HF_STORE_FULL ? "raise maxmemory, or find out what fills the server"
                                        : "fix that; the server's log may say more",
            "the server accepts no writes: %s", x->refused ? x->refused : "");
    findings_measured(x->out, x->us, x->writes);
}

/* What the set compares between its nodes, as far as it is known. */
static void fill_facts(struct examining *x, struct store_facts *facts) {
    const struct redis *redis = x->redis;
    char value[EXAMINE_VALUE_SIZE];
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

void examine_report(struct examining *x) {
    const struct redis_route *route = x->redis->route;
    x->out = findings_new(route ? route->kind->tier : x->redis->store.driver->tier);
    if (!x->out) {
        x->no_memory = true;
        return;
    }
    if (x->known[MIN_REPLICAS])
        x->deployment.min_replicas = strtol(x->settings[MIN_REPLICAS], NULL, 10);
    if (route && x->info && !route->kind->has_slots)
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
    report_key_events(x);
    report_unseen(x);
    report_clock(x);
    report_access(x);
    report_way(x);
    x->no_memory |= !rights_report(&x->rights, x->redis, !x->info, x->out);
    report_writes(x);
    if (x->facts)
        fill_facts(x, x->facts);
}
