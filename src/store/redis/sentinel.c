/* One master, as the sentinels name it.
 *
 * All sentinels are asked at once, each over its own connection, which is closed again. As soon as
 * more than half of all sentinels name the same master, that one is used, so a sentinel that hangs
 * costs nothing. Otherwise, when all have answered or LATE_US has passed, the master is the one
 * that more than half of the answers name. If none has answered by then, which can happen on a busy
 * machine, the first answer decides, until the time to connect is over. Before anything is sent to
 * the server, it must itself report that it is a master (ROLE, in the greeting).
 *
 * They are asked when the connection to the master is lost, when it turns out to be a replica
 * (READONLY), and when a sentinel announces a switch; a client listens for that while it holds
 * something or waits. A master at another address than the last one is a fail-over: all holds are
 * lost, whatever the new master has of them. A server that restarted at its address is the same
 * server. */
#include "base/error.h"
#include "base/url.h"
#include "store/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTINEL_PORT = 26379, LATE_US = 1000000 };

struct address {
    char host[ROUTE_HOST_SIZE];
    uint16_t port;
};

enum answer { SILENT, DENIES, ASKED, NAMES, KNOWS_NONE };

struct sentinel {
    struct sentinels *all;
    char host[ROUTE_HOST_SIZE];
    struct world_peer peer;
    struct redis_link asking, news, examined;
    enum answer answer;
    struct address names;
};

struct sentinels {
    struct redis_route route;
    struct world_timer late; /* LATE_US after asking */
    char *service;
    struct net_login login;
    struct link_setup links; /* to the sentinels */
    bool known;              /* `master` is the current one */
    struct address master;   /* the last one that was named: redis->peer */
    struct address verified; /* the last one that was used; host "": none yet */
    struct sentinel *each;
    size_t count;
};

static struct sentinels *of_route(struct redis_route *route) {
    return container_of(route, struct sentinels, route);
}

static struct sentinels *of_link(struct redis_link *link) {
    return of_route(link->redis->route);
}

static bool is_same(const struct address *a, const struct address *b) {
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* ---- The master ---- */

static void use_master(struct sentinels *all, const struct address *named) {
    struct redis *redis = all->route.redis;
    if (!is_same(&all->master, named)) {
        if (redis->commands.state != LINK_DOWN)
            link_break(&redis->commands, HF_UNREACHABLE, "another server is the master now");
        link_direct(&redis->subscription, &redis->peer);
        link_direct(&redis->commands, &redis->peer);
        all->master = *named;
        redis->peer.port = named->port;
    }
    all->known = true;
    /* A client that holds something must know whether this is the server that granted it. */
    redis->commands.wanted = redis->subscription.wanted && redis->commands.state != LINK_READY;
    link_want(&redis->commands);
    link_want(&redis->subscription);
    route_found(&all->route);
}

static const char *master_refuses(struct redis_link *link, const struct reply *reply) {
    struct sentinels *all = of_link(link);
    struct store_host *host = link->redis->host;
    if (reply->type != REPLY_ARRAY)
        return NULL; /* it answers another part of the greeting */
    if (!reply_is(reply_at(reply, 0), "master")) {
        snprintf(all->route.why, sizeof(all->route.why),
                 "%s:%u, which the sentinels name, is not a master (now)", all->master.host,
                 (unsigned)all->master.port);
        return all->route.why;
    }
    bool is_another = all->verified.host[0] && !is_same(&all->verified, &all->master);
    all->verified = all->master;
    link->wanted = false;
    if (is_another) {
        host->forgot(host, NULL, NULL);
        host->wake(host, STORE_ALL_WAITING);
    }
    return NULL;
}

static bool master_turned(struct redis_link *link, struct redis_request *request,
                          const struct reply *error) {
    if (!redis_says(error, "READONLY"))
        return false;
    request->sends--; /* it did nothing */
    if (request->pinned)
        return false;
    route_hold(link->redis->route, request, WORLD_NEVER);
    link_break(link, HF_UNREACHABLE, "the server is a replica now");
    return true;
}

static void master_down(struct redis_link *link, const char *why) {
    struct sentinels *all = of_link(link);
    char text[ROUTE_WHY_SIZE];
    snprintf(text, sizeof(text), "%s", why ? why : ""); /* `why` may be route.why */
    all->known = false;
    link->wanted = false;
    route_take_back(&all->route, link, text);
    if (!list_empty(&all->route.pending) || link->redis->subscription.wanted)
        route_ask(&all->route);
}

static void subscription_down(struct redis_link *link, const char *why) {
    (void)why;
    route_ask(link->redis->route);
}

static const struct link_guide master_guide = {master_refuses, master_turned, master_down};
static const struct link_guide subscription_guide = {NULL, NULL, subscription_down};

/* ---- Asking ---- */

static void list_names(const struct sentinels *all, char ret[ROUTE_WHY_SIZE]) {
    size_t used = 0;
    ret[0] = 0;
    for (size_t i = 0; i < all->count && used + 1 < ROUTE_WHY_SIZE; i++) {
        int more = snprintf(ret + used, ROUTE_WHY_SIZE - used, "%s%s:%u", i ? ", " : "",
                            all->each[i].host, (unsigned)all->each[i].peer.port);
        used += more > 0 ? (size_t)more : 0;
    }
}

static void end_asking(struct sentinels *all) {
    for (size_t i = 0; i < all->count; i++) {
        link_rest(&all->each[i].asking);
        if (all->each[i].answer == ASKED)
            all->each[i].answer = SILENT;
    }
}

static size_t count_answers(const struct sentinels *all, enum answer answer) {
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        count += all->each[i].answer == answer;
    return count;
}

/* The master that more than half of `of` sentinels name; NULL: none. */
static const struct address *find_majority(const struct sentinels *all, size_t of) {
    for (size_t i = 0; i < all->count; i++) {
        const struct sentinel *one = &all->each[i];
        size_t votes = 0;
        for (size_t j = 0; j < all->count && one->answer == NAMES; j++)
            votes += all->each[j].answer == NAMES && is_same(&all->each[j].names, &one->names);
        if (votes * 2 > of)
            return &one->names;
    }
    return NULL;
}

static bool is_late(const struct sentinels *all) {
    const struct redis_route *route = &all->route;
    return world_now_us(route->redis->host->world) >= route->asked_us + LATE_US;
}

static void decide(struct sentinels *all) {
    size_t naming = count_answers(all, NAMES), knowing_none = count_answers(all, KNOWS_NONE);
    bool waits = count_answers(all, ASKED) > 0 && !(is_late(all) && naming + knowing_none > 0);
    const struct address *found = find_majority(all, waits ? all->count : naming + knowing_none);
    if (!found && waits)
        return;
    end_asking(all);
    if (found) {
        struct address master = *found;
        use_master(all, &master);
        return;
    }
    char names[ROUTE_WHY_SIZE], last[ROUTE_WHY_SIZE];
    list_names(all, names);
    snprintf(last, sizeof(last), "%s", all->route.why);
    if (knowing_none)
        snprintf(all->route.why, sizeof(all->route.why),
                 "the sentinels (%.300s) know no master named \"%.100s\"", names, all->service);
    else if (naming)
        snprintf(all->route.why, sizeof(all->route.why),
                 "the sentinels (%.300s) do not agree on a master", names);
    else
        snprintf(all->route.why, sizeof(all->route.why), "no sentinel of %.300s answers: %.200s",
                 names, last);
    bool all_deny = count_answers(all, DENIES) == all->count;
    route_not_found(&all->route, all_deny ? HF_DENIED : HF_UNREACHABLE);
}

static void sentinel_answered(struct redis *redis, struct redis_request *request,
                              const struct reply *reply, const char *why) {
    struct sentinel *sentinel = request->context;
    struct sentinels *all = sentinel->all;
    int64_t port = reply ? reply_number(reply_at(reply, 1), 0) : 0;
    const struct reply *host = reply ? reply_at(reply, 0) : NULL;
    (void)redis;
    sentinel->answer = SILENT;
    if (reply && reply->type == REPLY_NIL) {
        sentinel->answer = KNOWS_NONE;
    } else if (host && host->type == REPLY_STRING && host->size < ROUTE_HOST_SIZE && port > 0 &&
               port <= UINT16_MAX) {
        sentinel->answer = NAMES;
        memset(&sentinel->names, 0, sizeof(sentinel->names));
        strcpy(sentinel->names.host, host->text);
        sentinel->names.port = (uint16_t)port;
    } else {
        int reason;
        char *text;
        redis_explain(request, reply, why, &reason, &text);
        sentinel->answer = reason == HF_DENIED ? DENIES : SILENT;
        snprintf(all->route.why, sizeof(all->route.why), "%s", text ? text : "");
        free(text);
    }
    redis_request_free(request);
    if (all->route.asking)
        decide(all);
}

static void late_due(struct world_timer *timer) {
    struct sentinels *all = container_of(timer, struct sentinels, late);
    if (all->route.asking)
        decide(all);
}

static void sentinels_ask(struct redis_route *route) {
    struct sentinels *all = of_route(route);
    struct command *command = &route->redis->command;
    int64_t until_us = route->asked_us + route->redis->peer.timeout_us;
    world_timer_set(route->redis->host->world, &all->late, route->asked_us + LATE_US);
    for (size_t i = 0; i < all->count; i++)
        all->each[i].answer = ASKED;
    for (size_t i = 0; i < all->count && route->asking; i++) {
        struct sentinel *sentinel = &all->each[i];
        command_start(command);
        command_add_text(command, "SENTINEL");
        command_add_text(command, "GET-MASTER-ADDR-BY-NAME");
        command_add_text(command, all->service);
        struct redis_request *request =
            redis_new_request(route->redis, NULL, -1, sentinel_answered, sentinel, 0);
        if (!request) {
            sentinel->answer = SILENT;
            continue;
        }
        request->give_up_us = until_us;
        link_rest(&sentinel->asking);
        link_submit(&sentinel->asking, request);
    }
    if (route->asking)
        decide(all);
}

/* ---- News ---- */

static void news_ready(struct redis_link *link) {
    struct command *command = &link->redis->command;
    size_t size;
    command_start(command);
    command_add_text(command, "SUBSCRIBE");
    command_add_text(command, "+switch-master");
    char *bytes = command_bytes(command, &size);
    if (!bytes || !link_send(link, bytes, size))
        link_break(link, HF_NO_MEMORY, NULL);
    free(bytes);
}

/* "orders 10.0.0.7 6379 10.0.0.8 6379": `orders` has another master. */
static void news_pushed(struct redis_link *link, const struct reply *reply) {
    struct sentinels *all = of_link(link);
    const struct reply *message = reply_at(reply, 2);
    size_t size = strlen(all->service);
    link->heard |= !reply_is(reply_at(reply, 0), "subscribe");
    if (reply->type == REPLY_ERROR) {
        link->heard = false;
        link_break(link, HF_DENIED, reply->text);
    } else if (message->type == REPLY_STRING && message->size > size &&
               strncmp(message->text, all->service, size) == 0 && message->text[size] == ' ') {
        route_ask(&all->route);
    }
}

static void sentinels_subscribe(struct redis_route *route) {
    struct sentinels *all = of_route(route);
    for (size_t i = 0; i < all->count; i++) {
        all->each[i].news.wanted = true;
        link_want(&all->each[i].news);
    }
}

/* ---- The route ---- */

static struct redis_link *sentinels_link_for(struct redis_route *route,
                                             const struct redis_request *request) {
    (void)request;
    return of_route(route)->known ? &route->redis->commands : NULL;
}

static struct redis_link *sentinels_master(struct redis_route *route, size_t index) {
    return index == 0 ? &route->redis->commands : NULL;
}

static struct redis_link *sentinels_watcher(struct redis_route *route, size_t index) {
    struct sentinels *all = of_route(route);
    return index < all->count ? &all->each[index].examined : NULL;
}

static void build_question(struct redis_route *route) {
    struct command *command = &route->redis->command;
    command_start(command);
    command_add_text(command, "SENTINEL");
    command_add_text(command, "MASTER");
    command_add_text(command, of_route(route)->service);
}

static void sentinels_free(struct sentinels *all) {
    net_login_clear(&all->login);
    free(all->service);
    free(all->each);
    free(all);
}

static void sentinels_close(struct redis_route *route) {
    struct sentinels *all = of_route(route);
    world_timer_drop(route->redis->host->world, &all->late);
    for (size_t i = 0; i < all->count; i++) {
        link_rest(&all->each[i].asking);
        link_close(&all->each[i].asking);
        link_close(&all->each[i].news);
        link_close(&all->each[i].examined);
    }
    sentinels_free(all);
}

static const struct route_kind kind = {
    .tier = "best effort",
    .what = "a master that sentinels watch",
    .ask = sentinels_ask,
    .link_for = sentinels_link_for,
    .master = sentinels_master,
    .watcher = sentinels_watcher,
    .build_question = build_question,
    .subscribe = sentinels_subscribe,
    .close = sentinels_close,
};

/* ---- Opening ---- */

static int open_sentinel(struct sentinels *all, struct sentinel *sentinel,
                         const struct url_host *at) {
    struct redis *redis = all->route.redis;
    sentinel->all = all;
    snprintf(sentinel->host, sizeof(sentinel->host), "%s", at->host);
    sentinel->peer.host = sentinel->host;
    sentinel->peer.port = at->port ? at->port : SENTINEL_PORT;
    sentinel->peer.timeout_us = redis->peer.timeout_us;
    struct redis_link *links[] = {&sentinel->asking, &sentinel->news, &sentinel->examined};
    for (int i = 0; i < 3; i++) {
        int r = link_init(links[i], &all->links, &sentinel->peer);
        while (r < 0 && i > 0)
            link_close(links[--i]);
        if (r < 0)
            return r;
    }
    sentinel->news.ready = news_ready;
    sentinel->news.pushed = news_pushed;
    return HF_OK;
}

static int fill(struct sentinels *all, const struct url *url, char **ret_text) {
    const char *service = url->path + 1;
    all->service = strndup(service, strcspn(service, "/"));
    all->each = calloc(url->host_count, sizeof(*all->each));
    if (!all->service || !all->each)
        return HF_NO_MEMORY;
    int r = net_login_read(&all->login, url, "sentinel_", ret_text);
    all->links = all->route.redis->links;
    all->links.login = &all->login;
    all->links.database = 0;
    while (r == HF_OK && all->count < url->host_count) {
        r = open_sentinel(all, &all->each[all->count], &url->hosts[all->count]);
        all->count += r == HF_OK;
    }
    return r;
}

int sentinel_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                  char **ret_text) {
    if (!url->host_count || url->path[0] != '/' || !url->path[1] || url->path[1] == '/') {
        *ret_text =
            error_format("the URL must be %s://a:26379,b,c/SERVICE, where SERVICE is the name of "
                         "the master",
                         url->scheme);
        return HF_BAD_URL;
    }
    struct sentinels *all = calloc(1, sizeof(*all));
    if (!all)
        return HF_NO_MEMORY;
    int r = world_timer_add(redis->host->world, &all->late, late_due);
    if (!r && (r = route_init(&all->route, redis, &kind)) < 0)
        world_timer_drop(redis->host->world, &all->late);
    if (r < 0) {
        free(all);
        return r;
    }
    r = fill(all, url, ret_text);
    if (r < 0) {
        route_close(&all->route);
        return r;
    }
    redis->peer.host = all->master.host;
    redis->commands.guide = &master_guide;
    redis->subscription.guide = &subscription_guide;
    *ret_route = &all->route;
    return HF_OK;
}
