/* The store: its URL, opening and closing.
 *
 *    zookeeper://[user:password@]host[:port],...[/chroot][?options]
 *
 * zookeepers:// is the same over TLS. The hosts are members of one ensemble. Options: timeout and
 * connect_timeout in ms, password_file, password_env and password_fd; with TLS ca, cert, key and
 * server_name; without it plaintext=yes. layout names the library whose locks are excluded. */
#include "store/zookeeper/zookeeper.h"

#include "base/error.h"
#include "base/url.h"
#include "net/options.h"
#include "store/zookeeper/capabilities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_PORT = 2181,
    DEFAULT_TLS_PORT = 2281,
    DEFAULT_TIMEOUT_MS = 2000,
    TIMEOUT_MAX_MS = 3600000,
    DEFAULT_SESSION_US = 75000000 /* until a lease is known */
};

extern const struct store_driver holdfast_store_driver;
static const struct store_driver foreign_driver, mutex_driver;

char *zookeeper_lock_path(const struct zookeeper *zk, const char *name) {
    char node[NAMES_LOCK_SIZE];
    names_encode(name, node);
    return error_format(zk->layout->is_foreign ? "%s/%s" : "%s/locks/%s", zk->root, node);
}

char *zookeeper_locks_path(const struct zookeeper *zk) {
    return zk->layout->is_foreign ? strdup(*zk->root ? zk->root : "/")
                                  : error_format("%s/locks", zk->root);
}

char *zookeeper_base_path(const struct zookeeper *zk) {
    return error_format("%s/token-base", zk->root);
}

/* ---- The URL ---- */

enum { FOR_ALL, FOR_TLS, FOR_PLAIN };

static const struct {
    const char *key;
    int scheme;
} options[] = {
    {"timeout", FOR_ALL},       {"connect_timeout", FOR_ALL},
    {"password_file", FOR_ALL}, {"password_env", FOR_ALL},
    {"password_fd", FOR_ALL},   {"ca", FOR_TLS},
    {"cert", FOR_TLS},          {"key", FOR_TLS},
    {"server_name", FOR_TLS},   {"plaintext", FOR_PLAIN},
    {"layout", FOR_ALL},
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

static bool is_tls(const struct url *url) {
    return strcmp(url->scheme, "zookeepers") == 0;
}

static bool has_option(const struct url *url, size_t option) {
    return options[option].scheme == FOR_ALL ||
           options[option].scheme == (is_tls(url) ? FOR_TLS : FOR_PLAIN);
}

static int check_options(const struct url *url, char **ret_text) {
    for (size_t i = 0; i < url->option_count; i++) {
        const char *key = url->options[i].key;
        size_t j = 0;
        while (j < OPTIONS && (strcmp(options[j].key, key) != 0 || !has_option(url, j)))
            j++;
        if (j < OPTIONS)
            continue;
        char known[300] = "";
        for (j = 0; j < OPTIONS; j++) {
            if (has_option(url, j))
                error_append(known, sizeof(known), "%s%s", *known ? ", " : "", options[j].key);
        }
        *ret_text = error_format("%s has no option \"%s\"; it has %s", url->scheme, key, known);
        return HF_BAD_URL;
    }
    return HF_OK;
}

static int read_layout(struct zookeeper *zk, const struct url *url, char **ret_text) {
    const char *word = url_option(url, "layout");
    zk->layout = names_layouts;
    while (word && zk->layout->word && strcmp(zk->layout->word, word) != 0)
        zk->layout++;
    if (!zk->layout->word) {
        char known[100] = "";
        for (const struct names_layout *each = names_layouts; each->word; each++)
            error_append(known, sizeof(known), "%s%s", *known ? ", " : "", each->word);
        *ret_text = error_format("there is no layout \"%s\"; there are %s", word, known);
        return HF_BAD_URL;
    }
    if (zk->layout->is_foreign && zk->host->token_floor) {
        *ret_text = error_format("layout=%s has no place for a token base, so tokens cannot be "
                                 "given a floor",
                                 word);
        return HF_UNSUPPORTED;
    }
    return HF_OK;
}

static bool is_chroot(const char *path) {
    for (const unsigned char *at = (const unsigned char *)path; *at; at++) {
        bool ends_word = *at == '/';
        if (*at <= ' ' || *at > '~' || (ends_word && (at[1] == '/' || at[1] == '.')))
            return false;
    }
    return true;
}

static int read_chroot(struct zookeeper *zk, const struct url *url, char **ret_text) {
    size_t size = strlen(url->path);
    while (size > 0 && url->path[size - 1] == '/')
        size--;
    if (!is_chroot(url->path)) {
        *ret_text = error_format("the path (the chroot) must be printable ASCII, without empty "
                                 "parts and parts that begin with a dot");
        return HF_BAD_URL;
    }
    zk->root =
        error_format("%.*s%s", (int)size, url->path, zk->layout->is_foreign ? "" : "/holdfast");
    return zk->root ? HF_OK : HF_NO_MEMORY;
}

static int read_members(struct zookeeper *zk, const struct url *url, char **ret_text) {
    if (!url->host_count) {
        *ret_text = error_format("it names no server: %s://HOST:PORT", url->scheme);
        return HF_BAD_URL;
    }
    zk->setup.peers = calloc(url->host_count, sizeof(*zk->setup.peers));
    if (!zk->setup.peers)
        return HF_NO_MEMORY;
    for (size_t i = 0; i < url->host_count; i++) {
        struct world_peer *peer = &zk->setup.peers[zk->setup.peer_count++];
        peer->host = strdup(url->hosts[i].host);
        peer->port = url->hosts[i].port ? url->hosts[i].port
                     : is_tls(url)      ? DEFAULT_TLS_PORT
                                        : DEFAULT_PORT;
        if (!peer->host)
            return HF_NO_MEMORY;
    }
    return HF_OK;
}

static int read_login(struct zookeeper *zk, const struct url *url, char **ret_text) {
    int r = net_login_read(&zk->login, url, "", ret_text);
    if (r < 0 || !zk->login.password)
        return r;
    if (!zk->login.user) {
        *ret_text = error_format("a password needs a user: %s://USER@HOST", url->scheme);
        return HF_BAD_URL;
    }
    zk->credentials = error_format("%s:%s", zk->login.user, zk->login.password);
    zk->setup.credentials = zk->credentials;
    zk->acl = ACL_CREATOR;
    return zk->credentials ? HF_OK : HF_NO_MEMORY;
}

static int read_times(struct zookeeper *zk, const struct url *url, char **ret_text) {
    zk->setup.timeout_us = zk->setup.connect_timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    int r = net_option_ms(url, "timeout", TIMEOUT_MAX_MS, &zk->setup.timeout_us, ret_text);
    return r < 0 ? r
                 : net_option_ms(url, "connect_timeout", TIMEOUT_MAX_MS,
                                 &zk->setup.connect_timeout_us, ret_text);
}

static int read_url(struct zookeeper *zk, const struct url *url, char **ret_text) {
    int r = check_options(url, ret_text);
    if (!r)
        r = read_members(zk, url, ret_text);
    if (!r)
        r = read_layout(zk, url, ret_text);
    if (!r)
        r = read_chroot(zk, url, ret_text);
    if (!r)
        r = read_login(zk, url, ret_text);
    if (!r)
        r = read_times(zk, url, ret_text);
    return r < 0 ? r : net_security_open(&zk->security, url, "zookeepers", NULL, ret_text);
}

/* ---- The driver ---- */

static void zookeeper_submit(struct store *store, struct store_op *op) {
    static void (*const operations[])(struct zookeeper *, struct store_op *) = {
        [STORE_ACQUIRE] = zookeeper_acquire, [STORE_RENEW] = zookeeper_renew,
        [STORE_RELEASE] = zookeeper_release, [STORE_BREAK] = zookeeper_break,
        [STORE_INSPECT] = zookeeper_look,    [STORE_LIST] = zookeeper_look,
        [STORE_EXAMINE] = zookeeper_examine, [STORE_COUNT] = zookeeper_count,
    };
    operations[op->type](container_of(store, struct zookeeper, store), op);
}

static void session_ended(void *context) {
    zookeeper_ended(context);
}

static void expiry_due(struct world_timer *timer) {
    zookeeper_expire(container_of(timer, struct zookeeper, expiry));
}

static void zookeeper_free(struct zookeeper *zk) {
    for (size_t i = 0; i < zk->setup.peer_count; i++)
        free((char *)zk->setup.peers[i].host);
    free(zk->setup.peers);
    if (zk->credentials)
        explicit_bzero(zk->credentials, strlen(zk->credentials));
    free(zk->credentials);
    net_security_close(&zk->security);
    net_login_clear(&zk->login);
    map_free(&zk->claims);
    free(zk->root);
    free(zk);
}

static bool holds_any(const struct zookeeper *zk) {
    list_each(node, &zk->claim_list) {
        if (container_of(node, struct zk_claim, link)->until_us)
            return true;
    }
    return false;
}

/* Without holds, the session is ended, and remaining claims go with it. With holds, it is left to
 * expire. */
static void zookeeper_close(struct store *store) {
    struct zookeeper *zk = container_of(store, struct zookeeper, store);
    zk->is_closing = true;
    list_each_safe(node, &zk->tasks) {
        struct zk_task *task = container_of(node, struct zk_task, link);
        if (task->cancel)
            task->cancel(task);
    }
    zk_session_close(&zk->session, !holds_any(zk));
    zookeeper_drop_claims(zk);
    world_timer_drop(zk->host->world, &zk->expiry);
    zookeeper_free(zk);
}

static int start(struct zookeeper *zk) {
    zk->setup.world = zk->host->world;
    zk->setup.security = &zk->security;
    zk->setup.context = zk;
    zk->setup.ended = session_ended;
    zk->session.wanted_timeout_us = DEFAULT_SESSION_US;
    int r = world_timer_add(zk->host->world, &zk->expiry, expiry_due);
    if (r < 0)
        return r;
    r = zk_session_init(&zk->session, &zk->setup);
    if (r < 0)
        world_timer_drop(zk->host->world, &zk->expiry);
    return r;
}

static const struct store_driver *driver_of(const struct names_layout *layout) {
    return !layout->is_foreign     ? &holdfast_store_driver
           : layout->shared.before ? &foreign_driver
                                   : &mutex_driver;
}

static int zookeeper_open(struct store_host *host, const struct url *url, struct store **ret_store,
                          char **ret_text) {
    struct zookeeper *zk = calloc(1, sizeof(*zk));
    if (!zk)
        return HF_NO_MEMORY;
    zk->host = host;
    map_init(&zk->claims);
    list_init(&zk->claim_list);
    list_init(&zk->tasks);
    int r = read_url(zk, url, ret_text);
    if (!r)
        r = start(zk);
    if (r < 0) {
        zookeeper_free(zk);
        return r;
    }
    zk->store.driver = driver_of(zk->layout);
    *ret_store = &zk->store;
    return HF_OK;
}

#define DRIVER(can, why)                                                                           \
    {                                                                                              \
        .abi = STORE_ABI, .scheme = "zookeeper", .tier = "strict", .port = DEFAULT_PORT,           \
        .capabilities = (can), .lacks = (why), .open = zookeeper_open, .submit = zookeeper_submit, \
        .close = zookeeper_close                                                                   \
    }

const struct store_driver holdfast_store_driver __attribute__((visibility("default"))) =
    DRIVER(ZOOKEEPER_CAPABILITIES,
           "a session has one timeout, and its claims are granted in the order in which they came");

static const struct store_driver foreign_driver =
    DRIVER(ZOOKEEPER_FOREIGN_CAPABILITIES, "the locks of Curator and kazoo have none");

static const struct store_driver mutex_driver =
    DRIVER(ZOOKEEPER_FOREIGN_CAPABILITIES & ~(unsigned)STORE_CAN_SHARE,
           "layout=curator is Curator's InterProcessMutex, which has none; layout=curator-rw has "
           "readers and writers");
