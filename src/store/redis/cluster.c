/* The masters of a Cluster, and which of them serves each slot, by CLUSTER SLOTS.
 *
 * Some of the known nodes, and of those in the URL, are asked at once, and the first answer counts;
 * the next time, others are asked. That happens when a node is lost, when a node reports that a
 * slot has MOVED (then the node that it moved to is asked), when the Cluster is down, and now and
 * then while something is held. ASK sends a request once to the node that its key has already moved
 * to. TRYAGAIN, which every request with several keys gets while its slot migrates, makes the
 * request wait; a release then makes do with one key (claims.c).
 *
 * If a slot has another master than before, it was either migrated between two masters, or a
 * replica was promoted: a fail-over, in which the holds in that slot are lost. It was a migration
 * if the old master still has slots. A promotion takes all slots of a master; which node has them
 * now proves nothing, since the promoted node may have passed them on. So no loss goes unnoticed,
 * and a hold is given up without need only if a master gave away its last slots since the last
 * answer. A node is identified by its id: at another address it is still the same node. */
#include "base/error.h"
#include "base/url.h"
#include "store/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 16384,
    NODES_MAX = 4096,
    CLUSTER_PORT = 6379,
    SCOUTS = 3, /* nodes that are asked at once */
    ID_SIZE = 41,
    LOOK_AGAIN_US = 5000000, /* while something is held or waited for */
    TRY_AGAIN_US = 30000,
    DOWN_AGAIN_US = 100000,
    RELEASE_TRIES = 3, /* before it makes do with one key */
};

struct node {
    struct cluster *cluster;
    char host[ROUTE_HOST_SIZE], id[ID_SIZE]; /* id "": not known yet */
    struct world_peer peer;
    struct redis_link commands;
    size_t slots, new_slots; /* that it serves; 0: it is not a master, or has none */
};

/* A node that is asked. */
struct scout {
    struct cluster *cluster;
    char host[ROUTE_HOST_SIZE];
    struct world_peer peer;
    struct redis_link link;
    bool is_asked;
};

struct cluster {
    struct redis_route route;
    struct node **nodes; /* a node's place in it never changes */
    size_t count;
    uint16_t owners[SLOTS], new_owners[SLOTS]; /* a node's place + 1; 0: nobody */
    struct scout scouts[SCOUTS];
    struct world_peer *seeds;
    size_t seed_count, open_scouts;
    size_t next, tried; /* which to ask next; how many were asked since the last answer */
    char hint_host[ROUTE_HOST_SIZE];
    uint16_t hint_port; /* 0: none */
};

static struct cluster *of_route(struct redis_route *route) {
    return container_of(route, struct cluster, route);
}

static struct cluster *of_link(struct redis_link *link) {
    return of_route(link->redis->route);
}

/* ---- Nodes ---- */

static bool is_at(const struct node *node, const char *host, uint16_t port) {
    return node->peer.port == port && strcmp(node->host, host) == 0;
}

static bool is_unused(const struct node *node) {
    return !node->slots && !node->new_slots && node->commands.state == LINK_DOWN &&
           list_empty(&node->commands.waiting);
}

static const struct link_guide node_guide;

static void set_address(struct node *node, const char *host, uint16_t port) {
    if (node->commands.state != LINK_DOWN)
        link_break(&node->commands, HF_UNREACHABLE, "the node is at another address now");
    snprintf(node->host, sizeof(node->host), "%s", host);
    node->peer.port = port;
    link_direct(&node->commands, &node->peer);
}

static struct node *new_node(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->count; i++) {
        if (is_unused(cluster->nodes[i]))
            return cluster->nodes[i];
    }
    struct node *node = calloc(1, sizeof(*node));
    struct node **grown = cluster->count < NODES_MAX
                              ? realloc(cluster->nodes, (cluster->count + 1) * sizeof(*grown))
                              : NULL;
    if (grown)
        cluster->nodes = grown;
    if (!node || !grown ||
        link_init(&node->commands, &cluster->route.redis->links, &node->peer) < 0) {
        free(node);
        return NULL;
    }
    node->cluster = cluster;
    node->commands.guide = &node_guide;
    node->peer.host = node->host;
    node->peer.timeout_us = cluster->route.redis->peer.timeout_us;
    cluster->nodes[cluster->count++] = node;
    return node;
}

static struct node *find_by_id(struct cluster *cluster, const char *id) {
    for (size_t i = 0; i < cluster->count; i++) {
        if (strcmp(cluster->nodes[i]->id, id) == 0)
            return cluster->nodes[i];
    }
    return NULL;
}

static struct node *find_by_address(struct cluster *cluster, const char *host, uint16_t port) {
    struct node *found = NULL;
    for (size_t i = 0; i < cluster->count; i++) {
        struct node *node = cluster->nodes[i];
        if (is_at(node, host, port) && (!found || node->slots))
            found = node;
    }
    return found;
}

/* The node with this id, or (if the id is "") at this address; NULL: no memory. */
static struct node *get_node(struct cluster *cluster, const char *id, const char *host,
                             uint16_t port) {
    struct node *node = id[0] ? find_by_id(cluster, id) : find_by_address(cluster, host, port);
    if (!node && id[0]) { /* it may have been named only by its address */
        node = find_by_address(cluster, host, port);
        node = node && !node->id[0] ? node : NULL;
    }
    bool is_new = !node;
    node = node ? node : new_node(cluster);
    if (!node)
        return NULL;
    if (is_new || !is_at(node, host, port))
        set_address(node, host, port);
    if (is_new || id[0])
        snprintf(node->id, sizeof(node->id), "%s", id);
    return node;
}

static size_t place_of(const struct cluster *cluster, const struct node *node) {
    size_t place = 0;
    while (cluster->nodes[place] != node)
        place++;
    return place;
}

/* ---- What CLUSTER SLOTS says: {{first, last, {host, port, id, ...}, replicas ...}, ...} ---- */

static bool read_range(struct cluster *cluster, const struct reply *range, const char *asked_host) {
    const struct reply *master = reply_at(range, 2), *host = reply_at(master, 0);
    int64_t first = reply_number(reply_at(range, 0), -1),
            last = reply_number(reply_at(range, 1), -1);
    int64_t port = reply_number(reply_at(master, 1), 0);
    const struct reply *id = reply_at(master, 2);
    bool has_host = host->type == REPLY_STRING && host->size > 0 && host->text[0] != '?';
    if (first < 0 || last < first || last >= SLOTS || port <= 0 || port > UINT16_MAX ||
        id->type != REPLY_STRING || !id->size || id->size >= ID_SIZE ||
        (has_host && host->size >= ROUTE_HOST_SIZE))
        return true; /* it is of no use */
    struct node *node =
        get_node(cluster, id->text, has_host ? host->text : asked_host, (uint16_t)port);
    if (!node)
        return false;
    uint16_t owner = (uint16_t)(place_of(cluster, node) + 1);
    for (int64_t slot = first; slot <= last; slot++)
        cluster->new_owners[slot] = owner;
    node->new_slots += (size_t)(last - first + 1);
    return true;
}

static bool read_slots(struct cluster *cluster, const struct reply *reply, const char *asked_host) {
    bool ok = true;
    memset(cluster->new_owners, 0, sizeof(cluster->new_owners));
    for (size_t i = 0; i < cluster->count; i++)
        cluster->nodes[i]->new_slots = 0;
    for (size_t i = 0; ok && i < reply->count; i++)
        ok = read_range(cluster, reply_at(reply, i), asked_host);
    return ok;
}

static bool was_promoted(const struct cluster *cluster, unsigned slot) {
    uint16_t was = cluster->owners[slot], is = cluster->new_owners[slot];
    return was && is && was != is && cluster->nodes[was - 1]->new_slots == 0;
}

static bool is_promoted_name(void *context, const char *name) {
    struct cluster *cluster = context;
    char key[512];
    int size = snprintf(key, sizeof(key), "%s%s", cluster->route.redis->prefix, name);
    return was_promoted(cluster, command_slot(key, (size_t)size));
}

static bool tell_promotions(struct cluster *cluster) {
    struct store_host *host = cluster->route.redis->host;
    unsigned slot = 0;
    while (slot < SLOTS && !was_promoted(cluster, slot))
        slot++;
    if (slot == SLOTS)
        return false;
    host->forgot(host, is_promoted_name, cluster);
    return true;
}

/* A slot that nobody serves now keeps its last owner, to be compared with the next one. */
static void take_over(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->count; i++)
        cluster->nodes[i]->slots = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        uint16_t owner = cluster->new_owners[slot];
        if (owner)
            cluster->owners[slot] = owner;
        if (cluster->owners[slot])
            cluster->nodes[cluster->owners[slot] - 1]->slots++;
    }
    for (size_t i = 0; i < cluster->count; i++) {
        struct redis_link *link = &cluster->nodes[i]->commands;
        if (cluster->nodes[i]->slots)
            continue;
        link->wanted = false;
        if (!list_empty(&link->sent) || !list_empty(&link->waiting))
            link_break(link, HF_UNREACHABLE, "the node no longer serves any slots");
    }
}

/* ---- The subscription ---- */

/* Directs it to any master, but not to the same one as before if there is another. */
static void direct_subscription(struct cluster *cluster) {
    struct redis_link *link = &cluster->route.redis->subscription;
    uint32_t random;
    struct node *found = NULL;
    world_random(cluster->route.redis->host->world, &random, sizeof(random));
    for (size_t i = 0; i < cluster->count; i++) {
        struct node *node = cluster->nodes[(i + random) % cluster->count];
        if (node->slots && (!found || link_peer(link) == &found->peer))
            found = node;
    }
    if (found && link_peer(link) != &found->peer)
        link_direct(link, &found->peer);
}

static void subscription_down(struct redis_link *link, const char *why) {
    struct cluster *cluster = of_link(link);
    (void)why;
    route_ask(&cluster->route);
    direct_subscription(cluster);
}

static const struct link_guide subscription_guide = {NULL, NULL, subscription_down};

/* Moves the subscription if its node is no longer a master. */
static void check_subscription(struct cluster *cluster) {
    struct redis_link *link = &cluster->route.redis->subscription;
    if (!link->wanted)
        return;
    for (size_t i = 0; i < cluster->count; i++) {
        if (link_peer(link) == &cluster->nodes[i]->peer && cluster->nodes[i]->slots)
            return;
    }
    direct_subscription(cluster);
    link_want(link);
}

/* ---- Asking ---- */

static void end_asking(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->open_scouts; i++) {
        cluster->scouts[i].is_asked = false;
        link_rest(&cluster->scouts[i].link);
    }
}

static void found(struct cluster *cluster) {
    struct redis *redis = cluster->route.redis;
    bool any_lost = tell_promotions(cluster);
    cluster->tried = 0;
    take_over(cluster);
    check_subscription(cluster);
    if (any_lost)
        redis->host->wake(redis->host, STORE_ALL_WAITING);
    route_found(&cluster->route);
    if (redis->subscription.wanted)
        route_ask_later(&cluster->route, LOOK_AGAIN_US);
}

static void not_found(struct cluster *cluster, int reason) {
    for (size_t i = 0; i < SCOUTS; i++) {
        if (cluster->scouts[i].is_asked)
            return;
    }
    if (cluster->tried < cluster->count + cluster->seed_count) {
        route_ask_others(&cluster->route);
        return;
    }
    char last[ROUTE_WHY_SIZE];
    snprintf(last, sizeof(last), "%s", cluster->route.why);
    snprintf(cluster->route.why, sizeof(cluster->route.why),
             "no node of the Cluster says which node serves which slot: %.500s", last);
    cluster->tried = 0;
    route_not_found(&cluster->route, reason);
}

static void slots_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct scout *scout = request->context;
    struct cluster *cluster = scout->cluster;
    int reason = HF_UNREACHABLE;
    (void)redis;
    scout->is_asked = false;
    if (reply && reply->type == REPLY_ARRAY && reply->count > 0) {
        redis_request_free(request);
        end_asking(cluster);
        if (read_slots(cluster, reply, scout->host)) {
            found(cluster);
            return;
        }
        reason = HF_NO_MEMORY;
        cluster->tried = SIZE_MAX / 2;
    } else if (reply && reply->type == REPLY_ARRAY) {
        redis_request_free(request);
        snprintf(cluster->route.why, sizeof(cluster->route.why), "%s:%u serves no slots",
                 scout->host, (unsigned)scout->peer.port);
    } else {
        char *text;
        redis_explain(request, reply, why, &reason, &text);
        redis_request_free(request);
        snprintf(cluster->route.why, sizeof(cluster->route.why), "%s", text ? text : "");
        free(text);
    }
    if (cluster->route.asking)
        not_found(cluster, reason);
}

static bool is_asked(const struct cluster *cluster, const char *host, uint16_t port) {
    for (size_t i = 0; i < SCOUTS; i++) {
        if (cluster->scouts[i].is_asked && cluster->scouts[i].peer.port == port &&
            strcmp(cluster->scouts[i].host, host) == 0)
            return true;
    }
    return false;
}

/* NULL: all are in use. That can also be so when it is time to ask again, if some failed at once
 * while others were still being asked. */
static struct scout *free_scout(struct cluster *cluster) {
    for (size_t i = 0; i < SCOUTS; i++) {
        if (!cluster->scouts[i].is_asked)
            return &cluster->scouts[i];
    }
    return NULL;
}

static void ask_at(struct cluster *cluster, const char *host, uint16_t port) {
    struct redis *redis = cluster->route.redis;
    struct scout *scout = free_scout(cluster);
    if (!scout)
        return;
    link_rest(&scout->link);
    snprintf(scout->host, sizeof(scout->host), "%s", host);
    scout->peer.port = port;
    command_start(&redis->command);
    command_add_text(&redis->command, "CLUSTER");
    command_add_text(&redis->command, "SLOTS");
    struct redis_request *request = redis_new_request(redis, NULL, -1, slots_answered, scout, 0);
    if (!request)
        return;
    request->give_up_us = world_now_us(redis->host->world) + redis->peer.timeout_us;
    scout->is_asked = true;
    link_submit(&scout->link, request);
}

/* Asks the next ones in turn: known nodes, then those in the URL. */
static void ask_some(struct cluster *cluster) {
    size_t all = cluster->count + cluster->seed_count;
    if (cluster->hint_port) {
        uint16_t port = cluster->hint_port;
        cluster->hint_port = 0;
        ask_at(cluster, cluster->hint_host, port);
    }
    for (size_t i = 0; i < all && free_scout(cluster); i++, cluster->tried++) {
        size_t place = cluster->next++ % all;
        const struct world_peer *peer = place < cluster->count
                                            ? &cluster->nodes[place]->peer
                                            : &cluster->seeds[place - cluster->count];
        if (!is_asked(cluster, peer->host, peer->port))
            ask_at(cluster, peer->host, peer->port);
    }
    not_found(cluster, HF_NO_MEMORY); /* if nobody could be asked */
}

static void cluster_ask(struct redis_route *route) {
    ask_some(of_route(route));
}

/* ---- What nodes answer ---- */

/* "MOVED 3999 10.0.0.7:6381"; without a host, it is the host that was asked. */
static bool read_address(struct redis_link *link, const struct reply *error,
                         char ret_host[ROUTE_HOST_SIZE], uint16_t *ret_port) {
    const char *address = strrchr(error->text, ' '), *colon = strrchr(error->text, ':');
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (!address || !colon || colon < address || colon - address > ROUTE_HOST_SIZE || port <= 0 ||
        port > UINT16_MAX)
        return false;
    if (colon == address + 1 || address[1] == '?')
        snprintf(ret_host, ROUTE_HOST_SIZE, "%s", link_peer(link)->host);
    else
        snprintf(ret_host, ROUTE_HOST_SIZE, "%.*s", (int)(colon - address - 1), address + 1);
    *ret_port = (uint16_t)port;
    return true;
}

static void moved(struct redis_link *link, struct redis_request *request,
                  const struct reply *error) {
    struct cluster *cluster = of_link(link);
    char host[ROUTE_HOST_SIZE];
    uint16_t port;
    if (read_address(link, error, host, &port)) {
        memcpy(cluster->hint_host, host, sizeof(host));
        cluster->hint_port = port;
    }
    route_hold(&cluster->route, request, WORLD_NEVER);
    route_ask(&cluster->route);
}

/* The other node accepts a request only right after ASKING, so the text of its script cannot follow
 * later: the request must contain it. */
static bool make_whole(struct redis_request *request) {
    if (request->is_whole || request->script < 0)
        return true;
    size_t size;
    char *bytes = command_as_eval(request->bytes, request->size, request->script, &size);
    if (!bytes)
        return false;
    free(request->bytes);
    request->bytes = bytes;
    request->size = size;
    request->is_whole = true;
    return true;
}

static void ask_there(struct redis_link *link, struct redis_request *request,
                      const struct reply *error) {
    struct cluster *cluster = of_link(link);
    struct redis *redis = link->redis;
    struct redis_request *asking = NULL;
    char host[ROUTE_HOST_SIZE];
    uint16_t port;
    struct node *node =
        read_address(link, error, host, &port) ? get_node(cluster, "", host, port) : NULL;
    command_start(&redis->command);
    command_add_text(&redis->command, "ASKING");
    if (node && make_whole(request))
        asking = redis_new_request(redis, NULL, -1, redis_ignore_reply, NULL, 0);
    if (!asking) {
        route_hold(&cluster->route, request, net_jitter_us(redis->host->world, TRY_AGAIN_US));
        return;
    }
    asking->pinned = true;
    link_submit(&node->commands, asking);
    link_submit(&node->commands, request);
}

static void wait_for_migration(struct redis_link *link, struct redis_request *request) {
    struct redis_route *route = link->redis->route;
    request->refusals += request->refusals < UINT8_MAX;
    if (request->script == REDIS_RELEASE && request->refusals % RELEASE_TRIES == 0)
        redis_release_one_key(link->redis, request);
    snprintf(route->why, sizeof(route->why), "its slot is being moved to another node");
    route_hold(route, request, net_jitter_us(link->redis->host->world, TRY_AGAIN_US));
}

static bool node_turned(struct redis_link *link, struct redis_request *request,
                        const struct reply *error) {
    struct redis_route *route = link->redis->route;
    bool is_moved = reply_is_error(error, "MOVED "), is_asked = reply_is_error(error, "ASK ");
    bool is_later = reply_is_error(error, "TRYAGAIN"),
         is_down = reply_is_error(error, "CLUSTERDOWN");
    if (request->pinned || (!is_moved && !is_asked && !is_later && !is_down))
        return false;
    request->sends--; /* it did nothing */
    if (is_moved) {
        moved(link, request, error);
    } else if (is_asked) {
        ask_there(link, request, error);
    } else if (is_later) {
        wait_for_migration(link, request);
    } else {
        snprintf(route->why, sizeof(route->why), "the server says: %.300s", error->text);
        route_hold(route, request, net_jitter_us(link->redis->host->world, DOWN_AGAIN_US));
        route_ask(route);
    }
    return true;
}

/* A client that holds something must know when the node is back, or another has taken its place. */
static void node_down(struct redis_link *link, const char *why) {
    struct node *node = container_of(link, struct node, commands);
    struct redis_route *route = &node->cluster->route;
    route_take_back(route, link, why);
    link->wanted = node->slots && link->redis->subscription.wanted;
    if (link->wanted || !list_empty(&route->pending))
        route_ask(route);
}

static const struct link_guide node_guide = {NULL, node_turned, node_down};

/* ---- The route ---- */

static struct redis_link *cluster_master(struct redis_route *route, size_t index) {
    struct cluster *cluster = of_route(route);
    for (size_t i = 0; i < cluster->count; i++) {
        if (cluster->nodes[i]->slots && index-- == 0)
            return &cluster->nodes[i]->commands;
    }
    return NULL;
}

/* Any master will do, preferably one that is connected, or at least has not failed. */
static struct redis_link *any_link(struct redis_route *route) {
    struct redis_link *link, *best = NULL;
    for (size_t i = 0; (link = cluster_master(route, i)); i++) {
        if (link->state == LINK_READY)
            return link;
        if (!best || (best->backoff.failures && !link->backoff.failures))
            best = link;
    }
    return best;
}

static struct redis_link *cluster_link_for(struct redis_route *route,
                                           const struct redis_request *request) {
    struct cluster *cluster = of_route(route);
    if (request->slot < 0)
        return any_link(route);
    uint16_t owner = cluster->owners[request->slot];
    return owner ? &cluster->nodes[owner - 1]->commands : NULL;
}

static void cluster_subscribe(struct redis_route *route) {
    direct_subscription(of_route(route));
    route_ask_later(route, LOOK_AGAIN_US);
}

static void cluster_close(struct redis_route *route) {
    struct cluster *cluster = of_route(route);
    for (size_t i = 0; i < cluster->open_scouts; i++) {
        link_rest(&cluster->scouts[i].link);
        link_close(&cluster->scouts[i].link);
    }
    for (size_t i = 0; i < cluster->count; i++) {
        link_close(&cluster->nodes[i]->commands);
        free(cluster->nodes[i]);
    }
    for (size_t i = 0; i < cluster->seed_count; i++)
        free((char *)cluster->seeds[i].host);
    free(cluster->nodes);
    free(cluster->seeds);
    free(cluster);
}

static const struct route_kind kind = {
    .tier = "best effort",
    .what = "a Redis Cluster",
    .has_slots = true,
    .ask = cluster_ask,
    .link_for = cluster_link_for,
    .master = cluster_master,
    .subscribe = cluster_subscribe,
    .close = cluster_close,
};

/* ---- Opening ---- */

static int fill(struct cluster *cluster, const struct url *url) {
    struct redis *redis = cluster->route.redis;
    cluster->seeds = calloc(url->host_count, sizeof(*cluster->seeds));
    if (!cluster->seeds)
        return HF_NO_MEMORY;
    for (size_t i = 0; i < url->host_count; i++) {
        char *host = strdup(url->hosts[i].host);
        if (!host)
            return HF_NO_MEMORY;
        uint16_t port = url->hosts[i].port ? url->hosts[i].port : CLUSTER_PORT;
        cluster->seeds[cluster->seed_count++] = (struct world_peer){.host = host, .port = port};
    }
    while (cluster->open_scouts < SCOUTS) {
        struct scout *scout = &cluster->scouts[cluster->open_scouts];
        scout->cluster = cluster;
        scout->peer.host = scout->host;
        scout->peer.timeout_us = redis->peer.timeout_us;
        if (link_init(&scout->link, &redis->links, &scout->peer) < 0)
            return HF_NO_MEMORY;
        cluster->open_scouts++;
    }
    return HF_OK;
}

int cluster_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                 char **ret_text) {
    if (!url->host_count) {
        *ret_text = error_format("a Cluster is written %s://a:6379,b,c, with some of its nodes",
                                 url->scheme);
        return HF_BAD_URL;
    }
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    if (!cluster)
        return HF_NO_MEMORY;
    int r = route_init(&cluster->route, redis, &kind);
    if (r < 0) {
        free(cluster);
        return r;
    }
    r = fill(cluster, url);
    if (r < 0) {
        route_close(&cluster->route);
        return r;
    }
    redis->subscription.guide = &subscription_guide;
    *ret_route = &cluster->route;
    return HF_OK;
}
