/* The store: its URL, opening and closing, keys and errors.
 *
 *    etcds://[user[:password]@]host[:port],...[?options]
 *    etcd://[user[:password]@]host[:port],...[?options]
 *
 * with the options in the table below; times are in ms. etcds is TLS. The options of TLS and
 * plaintext are in net/security.h, those that name the source of a password in net/login.h. */
#include "store/etcd/etcd.h"

#include "base/error.h"
#include "net/options.h"
#include "store/etcd/capabilities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 2379, DEFAULT_TIMEOUT_MS = 5000, TIMEOUT_MAX_MS = 3600000 };
#define DEFAULT_PREFIX "holdfast/"

extern const struct store_driver holdfast_store_driver;

/* ---- Keys ---- */

void etcd_key_set(struct etcd *etcd, struct etcd_key *ret, const char *kind, const char *name,
                  const char *end) {
    int size =
        snprintf((char *)ret->bytes, sizeof(ret->bytes), "%s%s%s%s", etcd->prefix, kind, name, end);
    ret->size = (size_t)size < sizeof(ret->bytes) ? (size_t)size : sizeof(ret->bytes) - 1;
}

static void own_key(struct etcd *etcd, struct etcd_key *ret, const char *kind, const char *name) {
    char rest[ETCD_KEY_MAX];
    size_t at = strlen(etcd->prefix);
    int size = snprintf(rest, sizeof(rest), "%s%s", kind, name);
    memcpy(ret->bytes, etcd->prefix, at);
    ret->bytes[at++] = 0;
    memcpy(ret->bytes + at, rest, (size_t)size);
    ret->size = at + (size_t)size;
}

void etcd_base_key(struct etcd *etcd, struct etcd_key *ret) {
    own_key(etcd, ret, "base", "");
}

void etcd_break_key(struct etcd *etcd, const char *name, struct etcd_key *ret) {
    own_key(etcd, ret, "broken/", name);
}

void etcd_counter_keys(struct etcd *etcd, const char *name, struct etcd_key *ret_counter,
                       struct etcd_key *ret_answer) {
    char owner[LOCKS_OWNER_SIZE], rest[ETCD_KEY_MAX];
    locks_format_owner(etcd->host->identity.id, 0, owner);
    snprintf(rest, sizeof(rest), "%s/%.32s", name, owner);
    own_key(etcd, ret_counter, "count/", name);
    own_key(etcd, ret_answer, "counted/", rest);
}

/* ---- Calls ---- */

int64_t etcd_now_us(const struct etcd *etcd) {
    return world_now_us(etcd->host->world);
}

void etcd_send(struct etcd *etcd, struct etcd_call *call, int64_t give_up_us) {
    etcd_link_submit(&etcd->link, call, give_up_us);
}

void etcd_fail(struct etcd *etcd, struct store_op *op, const struct etcd_call *call,
               bool may_have_acted) {
    op->reason = call->reason ? call->reason : HF_BAD_STORE;
    op->text = *call->why ? error_format("%s", call->why) : NULL;
    store_complete(etcd->host, op, may_have_acted ? STORE_UNKNOWN : STORE_REFUSED);
}

/* ---- The URL ---- */

static bool is_tls(const struct url *url) {
    return strcmp(url->scheme, "etcds") == 0;
}

enum { ALWAYS, IF_TLS, IF_PLAIN };

static const struct {
    const char *key;
    int when;
} options[] = {
    {"prefix", ALWAYS},
    {"timeout", ALWAYS},
    {"connect_timeout", ALWAYS},
    {"password_file", ALWAYS},
    {"password_env", ALWAYS},
    {"password_fd", ALWAYS},
    {"ca", IF_TLS},
    {"cert", IF_TLS},
    {"key", IF_TLS},
    {"server_name", IF_TLS},
    {"plaintext", IF_PLAIN},
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

static bool has_option(const struct url *url, size_t option) {
    int when = options[option].when;
    return when == ALWAYS || (when == IF_TLS) == is_tls(url);
}

static int check_options(const struct url *url, char **ret_text) {
    for (size_t i = 0; i < url->option_count; i++) {
        const char *key = url->options[i].key;
        char known[300] = "";
        bool found = false;
        for (size_t j = 0; j < OPTIONS; j++) {
            if (!has_option(url, j))
                continue;
            found |= strcmp(options[j].key, key) == 0;
            error_append(known, sizeof(known), "%s%s", *known ? ", " : "", options[j].key);
        }
        if (!found) {
            *ret_text = error_format("%s has no option \"%s\"; it has %s", url->scheme, key, known);
            return HF_BAD_URL;
        }
    }
    return HF_OK;
}

static int read_prefix(struct etcd *etcd, const struct url *url, char **ret_text) {
    const char *prefix = url_option(url, "prefix");
    prefix = prefix ? prefix : DEFAULT_PREFIX;
    if (strlen(prefix) > ETCD_PREFIX_MAX) {
        *ret_text = error_format("the prefix must have at most %d bytes", ETCD_PREFIX_MAX);
        return HF_BAD_URL;
    }
    etcd->prefix = strdup(prefix);
    return etcd->prefix ? HF_OK : HF_NO_MEMORY;
}

/* All members share the time to connect, so that a member that is away leaves time for the
 * others. */
static int read_peers(struct etcd *etcd, const struct url *url, char **ret_text) {
    int64_t connect_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    if (!url->host_count || (url->path[0] && url->path[1])) {
        *ret_text = error_format("%s:// takes hosts and no path, as in %s://etcd1:2379,etcd2,etcd3",
                                 url->scheme, url->scheme);
        return HF_BAD_URL;
    }
    int r = net_option_ms(url, "connect_timeout", TIMEOUT_MAX_MS, &connect_us, ret_text);
    if (r < 0)
        return r;
    etcd->host_count = url->host_count;
    etcd->hosts = calloc(url->host_count, sizeof(*etcd->hosts));
    etcd->peers = calloc(url->host_count, sizeof(*etcd->peers));
    if (!etcd->hosts || !etcd->peers)
        return HF_NO_MEMORY;
    for (size_t i = 0; i < url->host_count; i++) {
        etcd->hosts[i] = strdup(url->hosts[i].host);
        if (!etcd->hosts[i])
            return HF_NO_MEMORY;
        etcd->peers[i] =
            (struct world_peer){.host = etcd->hosts[i],
                                .port = url->hosts[i].port ? url->hosts[i].port : DEFAULT_PORT,
                                .timeout_us = connect_us / (int64_t)url->host_count};
    }
    return HF_OK;
}

static int read_url(struct etcd *etcd, const struct url *url, char **ret_text) {
    static const char *const protocols[] = {"h2", NULL};
    int r = check_options(url, ret_text);
    if (!r)
        r = read_prefix(etcd, url, ret_text);
    if (!r)
        r = read_peers(etcd, url, ret_text);
    etcd->timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    if (!r)
        r = net_option_ms(url, "timeout", TIMEOUT_MAX_MS, &etcd->timeout_us, ret_text);
    if (!r)
        r = net_login_read(&etcd->login, url, "", ret_text);
    if (!r && etcd->login.password && !etcd->login.user) {
        *ret_text = error_format("there is a password, but no user");
        r = HF_BAD_URL;
    }
    if (!r)
        r = net_security_open(&etcd->security, url, "etcds", protocols, ret_text);
    return r;
}

/* ---- The driver ---- */

/* Whether it must wait for a release. */
static bool must_wait(const struct etcd *etcd, const struct store_op *op) {
    if (op->type == STORE_LIST)
        return etcd->releasing.count > 0;
    return (op->type == STORE_ACQUIRE || op->type == STORE_INSPECT) &&
           map_find(&etcd->releasing, map_hash(op->name, strlen(op->name), 0));
}

static void carry_out(struct etcd *etcd, struct store_op *op) {
    static void (*const operations[])(struct etcd *, struct store_op *) = {
        [STORE_ACQUIRE] = etcd_acquire,
        [STORE_RENEW] = etcd_renew,
        [STORE_RELEASE] = etcd_release,
        [STORE_BREAK] = etcd_break,
        [STORE_INSPECT] = etcd_look,
        [STORE_LIST] = etcd_look,
        [STORE_EXAMINE] = etcd_examine,
        [STORE_WATCH] = etcd_watch_changes,
        [STORE_UNWATCH] = etcd_unwatch_changes,
        [STORE_COUNT] = etcd_count,
    };
    if (must_wait(etcd, op))
        list_append(&etcd->held_back, &op->link);
    else
        operations[op->type](etcd, op);
}

void etcd_resume(struct etcd *etcd) {
    struct list ops, *node;
    list_move(&etcd->held_back, &ops);
    while ((node = list_pop(&ops)))
        carry_out(etcd, container_of(node, struct store_op, link));
}

static void submit(struct store *store, struct store_op *op) {
    carry_out(container_of(store, struct etcd, store), op);
}

static void etcd_free(struct etcd *etcd) {
    for (size_t i = 0; etcd->hosts && i < etcd->host_count; i++)
        free(etcd->hosts[i]);
    free(etcd->hosts);
    free(etcd->peers);
    free(etcd->prefix);
    net_login_clear(&etcd->login);
    net_security_close(&etcd->security);
    free(etcd);
}

static struct etcd_link *probe_new(struct etcd *etcd, size_t host) {
    struct etcd_link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->login = &etcd->login;
    link->timeout_us = etcd->timeout_us;
    if (etcd_link_init(link, etcd, &etcd->peers[host], 1, &etcd->security) == HF_OK)
        return link;
    free(link);
    return NULL;
}

bool etcd_probe(struct etcd *etcd, size_t host, struct etcd_call *call) {
    if (!etcd->probes && !etcd->is_closing)
        etcd->probes = calloc(etcd->host_count, sizeof(struct etcd_link *));
    if (etcd->probes && !etcd->probes[host])
        etcd->probes[host] = probe_new(etcd, host);
    if (!etcd->probes || !etcd->probes[host]) {
        etcd_call_free(call);
        return false;
    }
    etcd_link_submit(etcd->probes[host], call, etcd_now_us(etcd) + etcd->timeout_us);
    return true;
}

void etcd_probe_done(struct etcd *etcd, size_t host) {
    etcd_link_hang_up(etcd->probes[host]);
}

static void close_probes(struct etcd *etcd) {
    for (size_t i = 0; etcd->probes && i < etcd->host_count; i++) {
        if (etcd->probes[i])
            etcd_link_close(etcd->probes[i]);
        free(etcd->probes[i]);
    }
    free(etcd->probes);
    etcd->probes = NULL;
}

static void close_store(struct store *store) {
    struct etcd *etcd = container_of(store, struct etcd, store);
    etcd_watch_down(etcd);
    etcd_changes_close(etcd);
    etcd_counters_close(etcd);
    etcd->is_closing = true;
    close_probes(etcd);
    etcd_link_close(&etcd->link);
    for (struct map_node *node; (node = map_first(&etcd->attempts));)
        etcd_attempt_free(etcd, container_of(node, struct etcd_attempt, by_seq));
    etcd_watch_close(etcd);
    etcd_lease_free_all(etcd);
    map_free(&etcd->attempts);
    map_free(&etcd->releasing);
    etcd_free(etcd);
}

static int open_store(struct store_host *host, const struct url *url, struct store **ret_store,
                      char **ret_text) {
    struct etcd *etcd = calloc(1, sizeof(*etcd));
    if (!etcd)
        return HF_NO_MEMORY;
    etcd->store.driver = &holdfast_store_driver;
    etcd->host = host;
    map_init(&etcd->attempts);
    map_init(&etcd->releasing);
    list_init(&etcd->held_back);
    list_init(&etcd->leases);
    list_init(&etcd->late);
    list_init(&etcd->counting);
    int r = read_url(etcd, url, ret_text);
    if (!r)
        r = etcd_watch_init(etcd);
    if (r < 0) {
        etcd_free(etcd);
        return r;
    }
    r = etcd_changes_init(etcd);
    if (r < 0) {
        etcd_watch_close(etcd);
        etcd_free(etcd);
        return r;
    }
    etcd->link.login = &etcd->login;
    etcd->link.timeout_us = etcd->timeout_us;
    r = etcd_link_init(&etcd->link, etcd, etcd->peers, etcd->host_count, &etcd->security);
    if (r < 0) {
        etcd_changes_close(etcd);
        etcd_watch_close(etcd);
        etcd_free(etcd);
        return r;
    }
    *ret_store = &etcd->store;
    return HF_OK;
}

const struct store_driver holdfast_store_driver __attribute__((visibility("default"))) = {
    .abi = STORE_ABI,
    .scheme = "etcd",
    .tier = "strict",
    .port = DEFAULT_PORT,
    .capabilities = ETCD_CAPABILITIES,
    .open = open_store,
    .submit = submit,
    .close = close_store,
};
