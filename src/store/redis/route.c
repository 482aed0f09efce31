/* What all routes have in common: the requests that wait, when to ask, and when to stop waiting.
 *
 * Links are opened, and servers asked, only from the timer, never within a callback of a link,
 * because that callback may still look at its connection. */
#include "store/redis/route.h"

#include "store/redis/redis.h"

#include <stdio.h>
#include <string.h>

enum { ASK_APART_US = 10000 };

static struct world *world_of(const struct redis_route *route) {
    return route->redis->host->world;
}

static void be_back(struct redis_route *route, int64_t at_us) {
    if (at_us != WORLD_NEVER && (!route->timer.node.place || at_us < route->timer.node.at))
        world_timer_set(world_of(route), &route->timer, at_us);
}

static void return_request(struct redis_route *route, struct redis_request *request, int reason,
                           const char *why) {
    list_remove(&request->link);
    request->reason = reason;
    request->answered(route->redis, request, NULL, why);
}

void route_hold(struct redis_route *route, struct redis_request *request, int64_t delay_us) {
    int64_t now_us = world_now_us(world_of(route));
    request->again_us = delay_us == WORLD_NEVER ? WORLD_NEVER : now_us + delay_us;
    list_append(&route->pending, &request->link);
    be_back(route,
            request->give_up_us < request->again_us ? request->give_up_us : request->again_us);
}

void route_take_back(struct redis_route *route, struct redis_link *link, const char *why) {
    snprintf(route->why, sizeof(route->why), "%s", why ? why : "");
    struct list taken, *node;
    list_move(&link->waiting, &taken);
    while ((node = list_pop(&taken))) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        bool is_over = request->pinned || (!request->sends && link->reason != HF_UNREACHABLE);
        if (is_over)
            return_request(route, request, link->reason, why);
        else
            route_hold(route, request, WORLD_NEVER);
    }
}

void route_place(struct redis_route *route, struct redis_request *request) {
    struct redis_link *link = route->kind->link_for(route, request);
    if (link) {
        link_submit(link, request);
    } else {
        route_hold(route, request, WORLD_NEVER);
        route_ask(route);
    }
}

void route_start(struct redis_route *route, struct redis_request *request) {
    if (!route->kind->link_for(route, request))
        request->give_up_us += route->redis->peer.timeout_us;
    route_place(route, request);
}

/* ---- Asking ---- */

void route_ask(struct redis_route *route) {
    int64_t now_us = world_now_us(world_of(route)), next_us = route->asked_us + ASK_APART_US;
    int64_t at_us = next_us > now_us ? next_us : now_us;
    if (route->asking || route->backoff.failures) /* the back-off decides when */
        return;
    if (at_us < route->ask_at_us)
        route->ask_at_us = at_us;
    be_back(route, route->ask_at_us);
}

void route_ask_later(struct redis_route *route, int64_t delay_us) {
    int64_t at_us = world_now_us(world_of(route)) + delay_us;
    if (!route->asking && at_us < route->ask_at_us)
        route->ask_at_us = at_us;
    be_back(route, route->ask_at_us);
}

void route_ask_others(struct redis_route *route) {
    route->asking = false;
    route->ask_at_us = world_now_us(world_of(route));
    be_back(route, route->ask_at_us);
}

/* Places requests that are due; with `all`, also those that waited for an answer. Overdue ones come
 * back. */
static void place_due(struct redis_route *route, bool all) {
    int64_t now_us = world_now_us(world_of(route));
    struct list taken, *node;
    list_move(&route->pending, &taken);
    while ((node = list_pop(&taken))) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (request->give_up_us <= now_us) {
            return_request(route, request, HF_UNREACHABLE, route->why);
        } else if (request->again_us <= now_us || (all && request->again_us == WORLD_NEVER)) {
            route_place(route, request);
        } else {
            list_append(&route->pending, &request->link);
            be_back(route, request->give_up_us < request->again_us ? request->give_up_us
                                                                   : request->again_us);
        }
    }
}

void route_found(struct redis_route *route) {
    route->asking = false;
    route->backoff.failures = 0;
    place_due(route, true);
}

void route_not_found(struct redis_route *route, int reason) {
    int64_t delay_us = net_backoff_us(&route->backoff, world_of(route));
    route->asking = false;
    struct list taken, *node;
    list_move(&route->pending, &taken);
    while ((node = list_pop(&taken))) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (request->sends)
            route_hold(route, request, WORLD_NEVER);
        else
            return_request(route, request, reason, route->why);
    }
    if (list_empty(&route->pending) && !route->redis->subscription.wanted) {
        route->backoff.failures = 0; /* the next request asks at once */
        return;
    }
    route->ask_at_us = world_now_us(world_of(route)) + delay_us;
    be_back(route, route->ask_at_us);
}

static void timer_due(struct world_timer *timer) {
    struct redis_route *route = container_of(timer, struct redis_route, timer);
    int64_t now_us = world_now_us(world_of(route));
    place_due(route, false);
    if (!route->asking && route->ask_at_us <= now_us) {
        route->ask_at_us = WORLD_NEVER;
        route->asked_us = now_us;
        route->asking = true;
        route->kind->ask(route);
    }
    if (!route->asking)
        be_back(route, route->ask_at_us);
}

int route_init(struct redis_route *route, struct redis *redis, const struct route_kind *kind) {
    route->redis = redis;
    route->kind = kind;
    route->asked_us = -ASK_APART_US;
    route->ask_at_us = WORLD_NEVER;
    list_init(&route->pending);
    return world_timer_add(redis->host->world, &route->timer, timer_due);
}

/* The kind then closes its links and frees the route. */
void route_close(struct redis_route *route) {
    struct list *node;
    world_timer_drop(world_of(route), &route->timer);
    while ((node = list_pop(&route->pending)))
        return_request(route, container_of(node, struct redis_request, link), HF_UNREACHABLE,
                       "the client was closed");
    route->kind->close(route);
}
