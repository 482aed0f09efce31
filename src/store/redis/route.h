/* Which of several servers a request goes to. With one server there is no route, and requests go to
 * its link. A route knows the servers: sentinel.c one master, which may change; cluster.c the
 * master of each slot.
 *
 * A request is placed on the link of the server that serves it. If none is known, or that server is
 * gone or turns it away, the request waits at the route while the route asks again, and is placed
 * again, until its time is up. If nobody can be asked, requests that were never sent are refused.
 *
 * The client is notified of a fail-over (store_host.forgot) before anything is sent to the new
 * server. */
#ifndef REDIS_ROUTE_H
#define REDIS_ROUTE_H

#include "store/redis/link.h"

enum { ROUTE_WHY_SIZE = 600, ROUTE_HOST_SIZE = 256 };

struct redis_route;
struct store_op;
struct url;

struct route_kind {
    const char *tier, *what; /* for doctor */
    bool has_slots;          /* all keys of a request must be in one slot */
    /* Finds the servers; ends with route_found or route_not_found. */
    void (*ask)(struct redis_route *route);
    /* The link for a request; NULL: not known. */
    struct redis_link *(*link_for)(struct redis_route *route, const struct redis_request *request);
    /* The masters one by one, from 0; NULL after the last. */
    struct redis_link *(*master)(struct redis_route *route, size_t index);
    /* For doctor: the sentinels one by one, from 0, and the question for them. NULL: there are
     * none. */
    struct redis_link *(*watcher)(struct redis_route *route, size_t index);
    void (*build_question)(struct redis_route *route);
    /* The subscription is wanted from now on: directs it to a server. */
    void (*subscribe)(struct redis_route *route);
    /* Closes its links and frees it. */
    void (*close)(struct redis_route *route);
};

struct redis_route {
    struct redis *redis;
    const struct route_kind *kind;
    struct list pending; /* requests that are on no link */
    struct world_timer timer;
    int64_t ask_at_us, asked_us; /* when to ask next, WORLD_NEVER: not at all; the last time */
    bool asking;
    struct net_backoff backoff; /* after failures to find the servers */
    char why[ROUTE_WHY_SIZE];   /* the last thing that went wrong */
};

/* For the store. If the servers must be found first, a request gets the time to connect in addition
 * to its own. */
void route_start(struct redis_route *route, struct redis_request *request);
void route_close(struct redis_route *route);

/* For the kinds. */
void route_place(struct redis_route *route, struct redis_request *request);
int route_init(struct redis_route *route, struct redis *redis, const struct route_kind *kind);
void route_ask(struct redis_route *route);
void route_ask_later(struct redis_route *route, int64_t delay_us);
/* Has `ask` called again soon, since those asked so far did not know. */
void route_ask_others(struct redis_route *route);
void route_found(struct redis_route *route);
void route_not_found(struct redis_route *route, int reason);
/* Lets a request wait: until the servers are found (WORLD_NEVER), or for this long. */
void route_hold(struct redis_route *route, struct redis_request *request, int64_t delay_us);
/* Takes the requests of a link that went down. */
void route_take_back(struct redis_route *route, struct redis_link *link, const char *why);

int sentinel_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                  char **ret_text);
int cluster_open(struct redis *redis, const struct url *url, struct redis_route **ret_route,
                 char **ret_text);

#endif
