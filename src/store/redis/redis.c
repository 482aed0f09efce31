/* The store: its URL, opening and closing, and what its two links have in common.
 *
 *    rediss://[user[:password]@]host[:port][/database]
 *    redis://[user[:password]@]host[:port][/database]
 *    redis+unix://[user[:password]@]/path/of/the/socket
 *    rediss+sentinel://[user[:password]@]host[:port],.../service[/database], or redis+sentinel://
 *    rediss+cluster://[user[:password]@]host[:port],...[/0], or redis+cluster://
 *
 * with the options in the table below; times are in ms. rediss is TLS. The options of TLS and
 * plaintext are in net/security.h, those that name the source of a password in net/login.h. */
#include "store/redis/redis.h"

#include "base/error.h"
#include "base/url.h"
#include "net/options.h"
#include "store/redis/capabilities.h"
#include "store/redis/greeting.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 6379, DEFAULT_TIMEOUT_MS = 2000, TIMEOUT_MAX_MS = 3600000, PREFIX_MAX = 50 };
#define DEFAULT_PREFIX "holdfast:"

/* ---- Requests ---- */

struct redis_request *redis_new_request(struct redis *redis, struct store_op *op, int script,
                                        redis_answered *answered, void *context, size_t items) {
    struct redis_request *request = malloc(sizeof(*request) + items * sizeof(request->items[0]));
    if (!request)
        return NULL;
    *request = (struct redis_request){0};
    list_init(&request->link);
    request->bytes = command_bytes(&redis->command, &request->size);
    if (!request->bytes) {
        free(request);
        return NULL;
    }
    request->op = op;
    request->script = script;
    request->answered = answered;
    request->context = context;
    request->count = (uint32_t)items;
    request->slot = redis->route ? command_first_slot(&redis->command) : -1;
    request->give_up_us = world_now_us(redis->host->world) + redis->links.timeout_us;
    return request;
}

struct redis_request *redis_new_wait(struct redis *redis, struct store_op *op,
                                     redis_answered *answered, void *context) {
    command_start(&redis->command);
    command_add_text(&redis->command, "WAIT");
    command_add_number(&redis->command, redis->wait_replicas);
    command_add_number(&redis->command, redis->wait_timeout_ms);
    struct redis_request *request = redis_new_request(redis, op, -1, answered, context, 0);
    if (request)
        request->pinned = true;
    return request;
}

/* The meaning of the server's errors. Each says that the server did nothing, because a script fails
 * at its first write or not at all. Errors that are not in the table are shown as they are. */
static const struct {
    const char *code;
    int reason;
    const char *text;
} errors[] = {
    {"WRONGTYPE", HF_BAD_STORE, "its key is not a string, so it is not a lock"},
    {"OOM", HF_STORE_FULL, "the server is at its maxmemory"},
    {"NOPERM", HF_DENIED, NULL},
    {"NOAUTH", HF_DENIED, "the server asks for a password"},
    {"ERR Protocol error: unauthenticated", HF_DENIED, "the server asks for a password"},
    {"WRONGPASS", HF_DENIED, "the server does not know this user and password"},
    {"ERR AUTH <password> called without", HF_DENIED, "the server has no password for its users"},
    {"ERR DB index is out of range", HF_BAD_URL, "the server has no database with this number"},
    {"ERR unknown command 'SENTINEL'", HF_DENIED, "the server is not a sentinel"},
    {"ERR unknown command `SENTINEL`", HF_DENIED, "the server is not a sentinel"}, /* before 7.0 */
    {"READONLY", HF_UNREACHABLE, "the server is a replica and takes no locks"},
    {"LOADING", HF_UNREACHABLE, "the server is still loading its data"},
    {"BUSY ", HF_UNREACHABLE, "the server is busy with a script"},
    {"MISCONF", HF_UNREACHABLE, "the server cannot save its data and takes no writes"},
    {"NOREPLICAS", HF_UNREACHABLE, "the server has fewer replicas than it asks for"},
    {"MASTERDOWN", HF_UNREACHABLE, "the server is a replica that has lost its master"},
    {"CLUSTERDOWN", HF_UNREACHABLE, NULL},
    {"ERR max number of clients", HF_UNREACHABLE, NULL},
    {"ERR Error running script", HF_BAD_STORE, NULL},
    {"ERR user_script", HF_BAD_STORE, NULL},
};

bool redis_says(const struct reply *reply, const char *code) {
    return reply_is_error(reply, code) ||
           (reply_is_error(reply, "ERR Error running script") && strstr(reply->text, code));
}

/* How much of a server's error may be shown. It may end with the words of our command, and those of
 * AUTH contain a password. */
static int size_to_tell(const char *error) {
    const char *repeated = strstr(error, ", with args");
    return (int)(repeated ? (size_t)(repeated - error) : strlen(error));
}

static enum store_outcome explain_error(const struct reply *reply, int *ret_reason,
                                        char **ret_text) {
    *ret_reason = HF_DENIED;
    const char *text = NULL;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (redis_says(reply, errors[i].code)) {
            *ret_reason = errors[i].reason;
            text = errors[i].text;
            break;
        }
    }
    *ret_text = text
                    ? error_format("%s", text)
                    : error_format("the server says: %.*s", size_to_tell(reply->text), reply->text);
    return STORE_REFUSED;
}

enum store_outcome redis_explain(const struct redis_request *request, const struct reply *reply,
                                 const char *why, int *ret_reason, char **ret_text) {
    if (reply && reply->type == REPLY_ERROR) {
        enum store_outcome outcome = explain_error(reply, ret_reason, ret_text);
        /* The error says that the last send did nothing. An earlier one, whose reply was lost, may
         * have acted. So may a script that found data that no script of ours has written. */
        bool unsure = *ret_reason == HF_BAD_STORE && !reply_is_error(reply, "WRONGTYPE");
        return unsure || (request && request->sends > 1) ? STORE_UNKNOWN : outcome;
    }
    why = reply ? "the server's answer makes no sense" : why;
    *ret_text = why ? error_format("%s", why) : NULL;
    *ret_reason = reply ? HF_BAD_STORE : request->reason;
    return request->sends ? STORE_UNKNOWN : STORE_REFUSED;
}

void redis_fail(struct redis *redis, struct redis_request *request, const struct reply *reply,
                const char *why) {
    struct store_op *op = request->op;
    enum store_outcome outcome = redis_explain(request, reply, why, &op->reason, &op->text);
    redis_request_free(request);
    store_complete(redis->host, op, outcome);
}

/* ---- The URL ---- */

static bool copy(char **ret, const char *text) {
    return !text || (*ret = strdup(text));
}

/* A scheme is redis, or rediss for TLS, and perhaps + and a kind. */
static bool is_tls(const struct url *url) {
    return url->scheme[5] == 's';
}

static bool is_kind(const struct url *url, const char *kind) {
    const char *found = strchr(url->scheme, '+');
    return found && strcmp(found + 1, kind) == 0;
}

static bool is_sentinel(const struct url *url) {
    return is_kind(url, "sentinel");
}

static bool is_cluster(const struct url *url) {
    return is_kind(url, "cluster");
}

/* With several servers, the path has the database: after the service of a Sentinel; 0 in a
 * Cluster. */
static int read_routed(struct redis *redis, const struct url *url, char **ret_text) {
    const char *path = url->path + (url->path[0] == '/');
    const char *behind = is_sentinel(url) ? strchr(path, '/') : path - 1;
    if (!behind || (url->path[0] == 0 && is_cluster(url)) || !behind[1])
        return HF_OK;
    return net_parse_number(behind + 1, "the database", 0, is_cluster(url) ? 0 : INT32_MAX,
                            &redis->links.database, ret_text);
}

static int read_server(struct redis *redis, const struct url *url, char **ret_text) {
    if (is_sentinel(url) || is_cluster(url))
        return read_routed(redis, url, ret_text);
    bool is_socket = is_kind(url, "unix");
    const char *database = url_option(url, "database");
    if (is_socket) {
        if (url->host_count || url->path[0] != '/') {
            *ret_text = error_format("the URL of a socket is redis+unix:///path/of/the/socket");
            return HF_BAD_URL;
        }
        if (!copy(&redis->server_path, url->path))
            return HF_NO_MEMORY;
    } else {
        if (url->host_count != 1) {
            *ret_text =
                error_format("%s:// takes one host, as in rediss://db.example:6379/0", url->scheme);
            return HF_BAD_URL;
        }
        if (url->path[0] && url->path[1]) {
            if (database) {
                *ret_text = error_format("the database is given twice");
                return HF_BAD_URL;
            }
            database = url->path + 1;
        }
        if (!copy(&redis->server_host, url->hosts[0].host))
            return HF_NO_MEMORY;
    }
    redis->peer.host = redis->server_host;
    redis->peer.path = redis->server_path;
    redis->peer.port = !is_socket && url->hosts[0].port ? url->hosts[0].port : DEFAULT_PORT;
    return database ? net_parse_number(database, "the database", 0, INT32_MAX,
                                       &redis->links.database, ret_text)
                    : HF_OK;
}

static int read_prefix(struct redis *redis, const struct url *url, char **ret_text) {
    const char *prefix = url_option(url, "prefix");
    prefix = prefix ? prefix : DEFAULT_PREFIX;
    const char *tag_end = prefix[0] == '{' ? strchr(prefix, '}') : NULL;
    bool ok = strlen(prefix) <= PREFIX_MAX && !strstr(prefix, "}.") &&
              (prefix[0] != '{' || (tag_end && tag_end[1]));
    if (!ok) {
        *ret_text = error_format("the prefix must have at most %d bytes, must not contain \"}.\", "
                                 "and must have something after a {tag} at its start",
                                 PREFIX_MAX);
        return HF_BAD_URL;
    }
    snprintf(redis->channels, sizeof(redis->channels), "%s@", prefix);
    return copy(&redis->prefix, prefix) ? HF_OK : HF_NO_MEMORY;
}

/* Which schemes have an option: those of a FOR_, and only with or without TLS if there is an
 * IF_. */
enum {
    FOR_HOST = 1,
    FOR_SOCKET = 2,
    FOR_SENTINEL = 4,
    FOR_CLUSTER = 8,
    FOR_ONE = FOR_HOST | FOR_SOCKET,
    FOR_SEVERAL = FOR_SENTINEL | FOR_CLUSTER,
    FOR_ALL = FOR_ONE | FOR_SEVERAL,
    IF_TLS = 16,
    IF_PLAIN = 32
};

static const struct {
    const char *key;
    int schemes;
} options[] = {
    {"prefix", FOR_ALL},
    {"database", FOR_ONE},
    {"timeout", FOR_ALL},
    {"connect_timeout", FOR_ALL},
    {"password_file", FOR_ALL},
    {"password_env", FOR_ALL},
    {"password_fd", FOR_ALL},
    {"ca", FOR_ALL | IF_TLS},
    {"cert", FOR_ALL | IF_TLS},
    {"key", FOR_ALL | IF_TLS},
    {"server_name", FOR_ALL | IF_TLS},
    {"plaintext", FOR_HOST | FOR_SEVERAL | IF_PLAIN},
    {"sentinel_user", FOR_SENTINEL},
    {"sentinel_password", FOR_SENTINEL},
    {"sentinel_password_file", FOR_SENTINEL},
    {"sentinel_password_env", FOR_SENTINEL},
    {"sentinel_password_fd", FOR_SENTINEL},
    {"wait_replicas", FOR_SEVERAL},
    {"wait_timeout", FOR_SEVERAL},
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

static int scheme_of(const struct url *url) {
    int kind = is_sentinel(url)       ? FOR_SENTINEL
               : is_cluster(url)      ? FOR_CLUSTER
               : is_kind(url, "unix") ? FOR_SOCKET
                                      : FOR_HOST;
    return kind | (is_tls(url) ? IF_TLS : IF_PLAIN);
}

static bool has_option(int scheme, size_t option) {
    int both = options[option].schemes & scheme, ifs = IF_TLS | IF_PLAIN;
    return (both & FOR_ALL) && (!(options[option].schemes & ifs) || (both & ifs));
}

static int unknown_option(const struct url *url, const char *key, int scheme, char **ret_text) {
    char known[300] = "";
    for (size_t i = 0; i < OPTIONS; i++) {
        if (strcmp(options[i].key, key) == 0 && options[i].schemes & IF_TLS) {
            *ret_text = error_format(
                "the option \"%s\" is for TLS: it needs a URL that begins with rediss", key);
            return HF_BAD_URL;
        }
    }
    for (size_t i = 0, used = 0; i < OPTIONS && used < sizeof(known); i++) {
        if (has_option(scheme, i))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
                                     options[i].key);
    }
    *ret_text = error_format("%s has no option \"%s\"; it has %s", url->scheme, key, known);
    return HF_BAD_URL;
}

static int check_options(const struct url *url, char **ret_text) {
    int scheme = scheme_of(url);
    for (size_t i = 0; i < url->option_count; i++) {
        const char *key = url->options[i].key;
        size_t j = 0;
        while (j < OPTIONS && (strcmp(options[j].key, key) != 0 || !has_option(scheme, j)))
            j++;
        if (j == OPTIONS)
            return unknown_option(url, key, scheme, ret_text);
    }
    return HF_OK;
}

/* How long to wait for replies and connections; how many replicas must have a grant, and how long
 * to wait for them, which is less than for a reply. */
static int read_times(struct redis *redis, const struct url *url, char **ret_text) {
    redis->links.timeout_us = redis->peer.timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    int r = net_option_ms(url, "timeout", TIMEOUT_MAX_MS, &redis->links.timeout_us, ret_text);
    if (!r)
        r = net_option_ms(url, "connect_timeout", TIMEOUT_MAX_MS, &redis->peer.timeout_us,
                          ret_text);
    uint64_t most_ms = (uint64_t)redis->links.timeout_us / 1000;
    redis->wait_timeout_ms = most_ms / 4 ? most_ms / 4 : 1;
    if (!r)
        r = net_option_number(url, "wait_replicas", 1, 100, &redis->wait_replicas, ret_text);
    if (!r)
        r = net_option_number(url, "wait_timeout", 1, most_ms, &redis->wait_timeout_ms, ret_text);
    return r;
}

/* The TLS variant of a scheme begins with rediss; the rest of it is the same. */
static int read_security(struct redis *redis, const struct url *url, char **ret_text) {
    char tls_scheme[NET_SCHEME_SIZE];
    const char *kind = strchr(url->scheme, '+');
    snprintf(tls_scheme, sizeof(tls_scheme), "rediss%s", kind ? kind : "");
    return net_security_open(&redis->security, url, tls_scheme, NULL, ret_text);
}

static int read_url(struct redis *redis, const struct url *url, char **ret_text) {
    int r = check_options(url, ret_text);
    if (!r)
        r = read_server(redis, url, ret_text);
    if (!r)
        r = net_login_read(&redis->login, url, "", ret_text);
    if (!r)
        r = read_prefix(redis, url, ret_text);
    if (!r)
        r = read_times(redis, url, ret_text);
    return r < 0 ? r : read_security(redis, url, ret_text);
}

/* ---- The drivers: that of one server and of Sentinel, and that of a Cluster ---- */

extern const struct store_driver holdfast_store_driver;
static const struct store_driver cluster_driver;

static bool refuse_name(struct redis *redis, struct store_op *op) {
    if (redis->prefix[0] || !op->name || !command_is_companion(op->name))
        return false;
    store_refuse(redis->host, op, HF_UNSUPPORTED,
                 error_format("with an empty prefix this name would be a key in which holdfast "
                              "keeps something else: it must not begin like \"{x}.\""));
    return true;
}

static void examine(struct redis *redis, struct store_op *op) {
    redis_examine(redis, op, NULL);
}

static void redis_submit(struct store *store, struct store_op *op) {
    static void (*const operations[])(struct redis *, struct store_op *) = {
        [STORE_ACQUIRE] = redis_acquire, [STORE_RENEW] = redis_renew,
        [STORE_RELEASE] = redis_release, [STORE_BREAK] = redis_break,
        [STORE_INSPECT] = redis_inspect, [STORE_LIST] = redis_list,
        [STORE_EXAMINE] = examine,       [STORE_WATCH] = redis_watch,
        [STORE_UNWATCH] = redis_unwatch, [STORE_COUNT] = redis_count,
    };
    struct redis *redis = container_of(store, struct redis, store);
    bool is_prefix = op->type == STORE_LIST || op->type == STORE_WATCH;
    if (is_prefix || !refuse_name(redis, op))
        operations[op->type](redis, op);
}

static int join(struct store *store, const struct store_set *set, char **ret_text) {
    struct redis *redis = container_of(store, struct redis, store);
    if (redis->route) {
        *ret_text = error_format("a node of a set is one server: a replica that takes over may not "
                                 "have its votes");
        return HF_BAD_URL;
    }
    redis->set = set;
    return HF_OK;
}

static void vote(struct store *store, struct store_vote *vote) {
    struct redis *redis = container_of(store, struct redis, store);
    if (!refuse_name(redis, &vote->op))
        redis_vote(redis, vote);
}

static void give_back(struct store *store, struct store_op *op) {
    struct redis *redis = container_of(store, struct redis, store);
    if (!refuse_name(redis, op))
        redis_give_back(redis, op);
}

static void examine_node(struct store *store, struct store_op *op, struct store_facts *facts) {
    redis_examine(container_of(store, struct redis, store), op, facts);
}

static const struct store_voting voting = {
    .join = join,
    .vote = vote,
    .give_back = give_back,
    .examine = examine_node,
};

static void redis_free(struct redis *redis) {
    net_security_close(&redis->security);
    command_free(&redis->command);
    net_login_clear(&redis->login);
    free(redis->prefix);
    free(redis->server_host);
    free(redis->server_path);
    free(redis->particulars);
    free(redis);
}

static void redis_close(struct store *store) {
    struct redis *redis = container_of(store, struct redis, store);
    redis->is_closing = true;
    link_close(&redis->commands);
    link_close(&redis->subscription);
    if (redis->route)
        route_close(redis->route);
    redis_close_subscription(redis);
    redis_close_watch(redis);
    redis_free(redis);
}

static int open_route(struct redis *redis, const struct url *url, char **ret_text) {
    if (is_sentinel(url))
        return sentinel_open(redis, url, &redis->route, ret_text);
    return is_cluster(url) ? cluster_open(redis, url, &redis->route, ret_text) : HF_OK;
}

static int open_links(struct redis *redis) {
    redis->links.redis = redis;
    redis->links.world = redis->host->world;
    redis->links.security = &redis->security;
    redis->links.login = &redis->login;
    redis->links.greet = redis_greet;
    redis->links.greeted = redis_greeted;
    int r = link_init(&redis->commands, &redis->links, &redis->peer);
    if (r < 0)
        return r;
    r = link_init(&redis->subscription, &redis->links, &redis->peer);
    if (!r && (r = redis_open_subscription(redis)) < 0)
        link_close(&redis->subscription);
    if (!r && (r = redis_open_watch(redis)) < 0) {
        link_close(&redis->subscription);
        redis_close_subscription(redis);
    }
    if (r < 0)
        link_close(&redis->commands);
    return r;
}

static int redis_open(struct store_host *host, const struct url *url, struct store **ret_store,
                      char **ret_text) {
    struct redis *redis = calloc(1, sizeof(*redis));
    if (!redis)
        return HF_NO_MEMORY;
    redis->store.driver = is_cluster(url) ? &cluster_driver : &holdfast_store_driver;
    redis->host = host;
    redis->keep_from_us = world_now_us(host->world) + INT64_C(86400000000);
    world_random(host->world, &redis->number, sizeof(redis->number));
    const struct store_identity *who = &host->identity;
    locks_format_owner(who->id, 0, redis->owner);
    redis->particulars = error_format("%" PRId64 " %zu %zu %s%s", who->pid, strlen(who->host),
                                      strlen(who->command), who->host, who->command);
    int r = redis->particulars ? read_url(redis, url, ret_text) : HF_NO_MEMORY;
    if (!r)
        r = open_links(redis);
    if (r < 0) {
        redis_free(redis);
        return r;
    }
    r = open_route(redis, url, ret_text);
    if (r < 0) {
        redis_close(&redis->store);
        return r;
    }
    *ret_store = &redis->store;
    return HF_OK;
}

const struct store_driver holdfast_store_driver __attribute__((visibility("default"))) = {
    .abi = STORE_ABI,
    .scheme = "redis",
    .tier = "timed",
    .port = DEFAULT_PORT,
    .capabilities = REDIS_CAPABILITIES,
    .voting = &voting,
    .open = redis_open,
    .submit = redis_submit,
    .close = redis_close,
};

static const struct store_driver cluster_driver = {
    .abi = STORE_ABI,
    .scheme = "redis+cluster",
    .tier = "best effort",
    .port = DEFAULT_PORT,
    .capabilities = REDIS_CLUSTER_CAPABILITIES,
    .voting = &voting, /* which says why it cannot be a node */
    .open = redis_open,
    .submit = redis_submit,
    .close = redis_close,
};
