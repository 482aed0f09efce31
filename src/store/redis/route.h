/* Who serves a request. With one server there is nothing to find out, and no route: requests go to its link. Else a
 * route knows the servers: sentinel.c one master, which may become another; cluster.c the master of each slot.
 *
 * A request is placed on the link of who serves it. Where nobody is known to, or who does has gone or turned it away, it
 * waits at the route while that asks who does now, and is placed again, until its time is over. When
 * nobody can be asked, what was never sent is refused.
 *
 * A fail-over is told to the client (store_host.forgot) before anything is sent to the new server. */
#ifndef REDIS_ROUTE_H
#define REDIS_ROUTE_H

#include "store/redis/link.h"

enum { ROUTE_WHY_SIZE = 600, ROUTE_HOST_SIZE = 256 };

struct redis_route;
struct store_op;
struct url;

struct route_kind {
    const char *tier, *what; /* for doctor */
    bool has_slots;          /* a request may name keys of one slot alone */
    /* Finds out who serves, and ends with route_found or route_not_found. */
    void (*ask)(struct redis_route *route);
    /* NULL: it must be asked for. */
    struct redis_link *(*link_for)(struct redis_route *route, const struct redis_request *request);
    /* The masters one by one, from 0 on; NULL behind the last. */
    struct redis_link *(*master)(struct redis_route *route, size_t index);
    /* Those who watch over the servers, from 0 on, for doctor; and what they are asked. NULL: there are none. */
    struct redis_link *(*watcher)(struct redis_route *route, size_t index);
    void (*build_question)(struct redis_route *route);
    /* The subscription is wanted from now on: say where. */
    void (*subscribe)(struct redis_route *route);
    /* Closes its links and frees it. */
    void (*close)(struct redis_route *route);
};

struct redis_route {
    struct redis *redis;
    const struct route_kind *kind;
    struct list pending; /* requests that are on no link */
    struct world_timer timer;
    int64_t ask_at_us, asked_us; /* WORLD_NEVER: nobody wants to know */
    bool asking;
    struct net_backoff backoff; /* after failures to find out */
    char why[ROUTE_WHY_SIZE];   /* the last thing that went wrong */
};

/* For the stores. Finding out who serves a request has a time of its own, as long as connecting may take. */
void route_start(struct redis_route *route, struct redis_request *request);
void route_close(struct redis_route *route);

/* For the kinds. */
void route_place(struct redis_route *route, struct redis_request *request);
int route_init(struct redis_route *route, struct redis *redis, const struct route_kind *kind);
void route_ask(struct redis_route *route);
void route_ask_later(struct redis_route *route, int64_t delay_us);
/* While it is asking, and those that it asked did not know: it will be called again. */
void route_ask_others(struct redis_route *route);
void route_found(struct redis_route *route);
void route_not_found(struct redis_route *route, int reason);
/* Lets a request wait: until something is found out (WORLD_NEVER), or for so long. */
void route_hold(struct redis_route *route, struct redis_request *request, int64_t delay_us);
/* Takes what a link that went down had. */
void route_take_back(struct redis_route *route, struct redis_link *link, const char *why);

int sentinel_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                  char **ret_text);
int cluster_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                 char **ret_text);

#endif
