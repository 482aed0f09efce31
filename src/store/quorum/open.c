/* Opening a set of nodes:
 *
 *    quorum+SCHEME://[user[:password]@]h1[:port],h2,h3,h4,h5[/path][?options]
 *    quorum+SCHEME:path1,path2,path3[?options]
 *
 * The set's own options are quorum, node_timeout (ms), id, durable=yes, init=yes, and those that
 * say where the password is (password_file= and so on), since a descriptor can be read only once.
 * All others are passed on to each node. */
#include "base/error.h"
#include "base/url.h"
#include "net/login.h"
#include "net/options.h"
#include "store/quorum/quorum.h"
#include "store/schemes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_MS = 50, TIMEOUT_MAX_MS = 10000, HOST_SIZE = 256 };

static bool is_of_set(const struct url *url, const char *key) {
    return strcmp(key, "quorum") == 0 || strcmp(key, "node_timeout") == 0 ||
           strcmp(key, "id") == 0 || strcmp(key, "init") == 0 || strcmp(key, "durable") == 0 ||
           (url->host_count && strncmp(key, "password_", 9) == 0);
}

/* How many paths are in the URL, if it has no hosts. */
static size_t count_paths(const char *path) {
    size_t count = 1;
    for (; *path; path++)
        count += *path == ',';
    return count;
}

static size_t count_nodes(const struct url *url) {
    return url->host_count ? url->host_count : count_paths(url->path);
}

/* FNV-1a: servers keep it, so it is the same on every machine. */
static uint64_t hash(uint64_t seed, const char *text, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The same server, however it is written, is the same node: an IPv6 address has many forms, a
 * name's case and its last dot mean nothing, and "localhost" is 127.0.0.1 (::1 may be another
 * server). Names are not looked up, since they may lead elsewhere tomorrow. */
static void normalise_host(const char *host, char ret[HOST_SIZE]) {
    struct in6_addr six;
    size_t size = strlen(host);
    if (inet_pton(AF_INET6, host, &six) == 1) {
        bool is_four = IN6_IS_ADDR_V4MAPPED(&six);
        inet_ntop(is_four ? AF_INET : AF_INET6, is_four ? six.s6_addr + 12 : six.s6_addr, ret,
                  HOST_SIZE);
        return;
    }
    if (size > 1 && host[size - 1] == '.')
        size--;
    snprintf(ret, HOST_SIZE, "%.*s", (int)size, host);
    for (char *c = ret; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (strcmp(ret, "localhost") == 0)
        strcpy(ret, "127.0.0.1");
}

/* The id of a set that was given none: a hash of its nodes, in any order. So clients with different
 * lists, whose quorums need not overlap, are not in one set. */
static uint64_t hash_nodes(const struct url *url, uint16_t usual_port) {
    uint64_t sum = 0;
    for (size_t i = 0; i < url->host_count; i++) {
        char host[HOST_SIZE];
        normalise_host(url->hosts[i].host, host);
        uint16_t port = url->hosts[i].port == usual_port ? 0 : url->hosts[i].port;
        sum += hash(port, host, strlen(host));
    }
    for (const char *path = url->path; !url->host_count && *path; path += *path == ',') {
        size_t size = strcspn(path, ",");
        sum += hash(0, path, size);
        path += size;
    }
    return sum;
}

/* The URL of one node, in separate memory, with the options that are not the set's. */
static int make_url(const struct url *url, size_t index, struct url *ret, char **ret_memory) {
    size_t options = url->option_count * sizeof(struct url_option);
    char *memory = malloc(options + strlen(url->path) + 1);
    if (!memory)
        return HF_NO_MEMORY;
    *ret = *url;
    *ret_memory = memory;
    ret->scheme = url->scheme + strlen("quorum+");
    ret->options = (struct url_option *)memory;
    ret->option_count = 0;
    for (size_t i = 0; i < url->option_count; i++) {
        if (!is_of_set(url, url->options[i].key))
            ret->options[ret->option_count++] = url->options[i];
    }
    if (url->host_count) {
        ret->hosts = &url->hosts[index];
        ret->host_count = 1;
        return HF_OK;
    }
    const char *path = url->path;
    for (; index; index--)
        path = strchr(path, ',') + 1;
    ret->path = memory + options;
    size_t size = strcspn(path, ",");
    memcpy(ret->path, path, size);
    ret->path[size] = 0;
    return HF_OK;
}

/* Without voting.h, a node would vote again after it has lost its votes, or in two sets. */
static int find_driver(const struct url *url, const struct store_driver **ret_driver,
                       char **ret_text) {
    int r = store_find(url->scheme + strlen("quorum+"), ret_driver, ret_text);
    if (r < 0 || (*ret_driver)->voting)
        return r;
    *ret_text = error_format("%s: cannot be a node of a set: it does not record which set it votes "
                             "in, and would vote again right after it has lost its votes",
                             (*ret_driver)->scheme);
    return HF_UNSUPPORTED;
}

static int open_node(struct quorum *q, struct node *node, const struct store_driver *driver,
                     const struct url *url, char **ret_text) {
    struct url own;
    char *memory;
    int r = make_url(url, node->index, &own, &memory);
    if (r < 0)
        return r;
    if (own.host_count)
        snprintf(node->name, sizeof(node->name), own.hosts[0].port ? "%s:%u" : "%s",
                 own.hosts[0].host, (unsigned)own.hosts[0].port);
    else
        snprintf(node->name, sizeof(node->name), "%s", own.path);
    quorum_join(q, node);
    r = driver->open(&node->host, &own, &node->store, ret_text);
    if (!r)
        r = driver->voting->join(node->store, &q->set, ret_text);
    free(memory);
    return r;
}

static int read_set(struct quorum *q, const struct store_driver *driver, const struct url *url,
                    char **ret_text) {
    uint64_t majority = q->node_count / 2 + 1, quorum = majority;
    const char *id = url_option(url, "id");
    char name[24];
    q->node_timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    int r = net_option_number(url, "quorum", majority, q->node_count, &quorum, ret_text);
    if (!r)
        r = net_option_ms(url, "node_timeout", TIMEOUT_MAX_MS, &q->node_timeout_us, ret_text);
    if (!r)
        r = net_option_yes(url, "init", &q->set.founds, ret_text);
    if (!r)
        r = net_option_yes(url, "durable", &q->set.durable, ret_text);
    if (r < 0)
        return r;
    q->quorum = (size_t)quorum;
    /* What all clients of a set must agree on. */
    snprintf(name, sizeof(name), "%016" PRIx64, hash_nodes(url, driver->port));
    q->set_name = error_format("%s/%zu/%zu/%" PRId64 "%s", id ? id : name, q->node_count, q->quorum,
                               q->host->max_lease_us / 1000, q->set.durable ? "/durable" : "");
    q->set.name = q->set_name;
    q->set.freed = quorum_freed;
    return q->set_name ? HF_OK : HF_NO_MEMORY;
}

static int open_nodes(struct quorum *q, const struct store_driver *driver, const struct url *url,
                      char **ret_text) {
    struct net_login login = {0};
    struct url own = *url;
    int r = HF_OK;
    if (url->host_count) {
        r = net_login_read(&login, url, "", ret_text);
        own.password = login.password;
    }
    for (size_t i = 0; i < q->node_count && !r; i++) {
        q->nodes[i].quorum = q;
        q->nodes[i].index = i;
        r = open_node(q, &q->nodes[i], driver, &own, ret_text);
    }
    net_login_clear(&login);
    return r;
}

int quorum_open(struct store_host *host, const struct url *url, struct store **ret_store,
                char **ret_text) {
    const struct store_driver *driver;
    int r = find_driver(url, &driver, ret_text);
    if (r < 0)
        return r;
    size_t count = count_nodes(url);
    if (count < 3 || count > QUORUM_NODES_MAX) {
        *ret_text =
            error_format("a set has 3 to %d nodes; this one has %zu", QUORUM_NODES_MAX, count);
        return HF_BAD_URL;
    }
    struct quorum *q = calloc(1, sizeof(*q) + count * sizeof(q->nodes[0]));
    if (!q)
        return HF_NO_MEMORY;
    q->store.driver = &store_quorum;
    q->host = host;
    q->node_count = count;
    r = read_set(q, driver, url, ret_text);
    if (!r)
        r = quorum_start(q);
    if (r < 0) {
        free(q->set_name);
        free(q);
        return r;
    }
    r = open_nodes(q, driver, url, ret_text);
    if (r < 0) {
        quorum_end(q);
        free(q->set_name);
        free(q);
        return r;
    }
    *ret_store = &q->store;
    return HF_OK;
}
