/* The Redis store: locks among all who reach one server, in the published format. Its parts:
 *
 *   redis.c    the store: its URL, opening, closing, the two links
 *   claims.c   acquire, renew, release, break: operations become requests, replies become outcomes
 *   look.c     inspect and list
 *   examine.c  what doctor asks: rights.c, which permissions there are; deployment.c, several servers
 *   report.c   what doctor says about it
 *   link.c     a connection that is restored whenever it is lost; greeting.c: how it begins
 *   route.c    which of several servers a request goes to; sentinel.c, cluster.c: how that is found out
 *   command.c  requests as bytes, and the keys of a lock
 *   reply.c    replies from bytes
 *   scripts/   what the server runs; the rules of the lock are there
 */
#ifndef REDIS_REDIS_H
#define REDIS_REDIS_H

#include "store/locks.h"
#include "store/redis/command.h"
#include "store/redis/link.h"
#include "store/redis/route.h"
#include "store/voting.h"

enum { REDIS_COMPANIONS = 6 };
#define REDIS_KEYS "KSQWHI"

struct redis {
    struct store store;
    struct store_host *host;
    struct net_login login;
    char *prefix;
    char *server_host, *server_path;
    struct world_peer peer;
    struct redis_route *route; /* NULL: there is one server */
    struct net_security security;
    struct link_setup links;
    struct redis_link commands, subscription;
    uint64_t wait_replicas,
        wait_timeout_ms;         /* that must have a grant before it is believed; 0: none */
    const struct store_set *set; /* that it is a node of; NULL: none */
    bool votes;                  /* it was asked for a vote */
    bool subscribed;             /* and the server has confirmed it */
    struct command command;
    char channels[64];    /* the prefix of the channels of all clients */
    char *particulars;    /* of this client, for its records; a label is added */
    uint32_t number;      /* what is proposed to a server that has no number in its set, next */
    int64_t keep_from_us; /* when counters of what is held are kept from being forgotten, next */
    bool is_closing;      /* what comes back now has no reply, and nothing may follow it */
};

/* Makes a request of what is in redis->command, as part of `op`, with room for so many `items`; script
 * -1: none. NULL: no memory. */
struct redis_request *redis_new_request(struct redis *redis, struct store_op *op, int script,
                                        redis_answered *answered, void *context, size_t items);

/* What a reply that is an error means, or why there is none: the outcome REFUSED or UNKNOWN, with the
 * hf_error and malloc'd particulars. */
enum store_outcome redis_explain(const struct redis_request *request, const struct reply *reply,
                                 const char *why, int *ret_reason, char **ret_text);

/* If an error has this code, in front or where servers before 7.0 put that of a script's command. */
bool redis_says(const struct reply *reply, const char *code);

/* Makes of a release one that names the key of the lock alone, and does only what is certain from that. */
void redis_release_one_key(struct redis *redis, struct redis_request *request);

/* Completes the operation with what redis_explain says, and frees the request. */
void redis_fail(struct redis *redis, struct redis_request *request, const struct reply *reply,
                const char *why);

/* Sends a request to who serves it. */
static inline void route_submit(struct redis *redis, struct redis_request *request) {
    if (redis->route)
        route_start(redis->route, request);
    else
        link_submit(&redis->commands, request);
}

/* Adds the key that says in which set the server votes. */
void redis_add_set_key(struct redis *redis);

/* Opens the subscription: from now on others may have something to tell. */
void redis_subscribe(struct redis *redis);

/* The operations. Each completes the op, now or later. */
void redis_acquire(struct redis *redis, struct store_op *op);
void redis_renew(struct redis *redis, struct store_op *op);
void redis_release(struct redis *redis, struct store_op *op);
void redis_break(struct redis *redis, struct store_op *op);
void redis_inspect(struct redis *redis, struct store_op *op);
void redis_list(struct redis *redis, struct store_op *op);
/* For a node of a set (voting.h), `facts` are filled in; otherwise it is NULL. */
void redis_examine(struct redis *redis, struct store_op *op, struct store_facts *facts);
void redis_vote(struct redis *redis, struct store_vote *vote);
void redis_give_back(struct redis *redis, struct store_op *op);

#endif
