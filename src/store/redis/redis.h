/* The Redis store: locks for all clients of a server, in the published format. Its parts:
 *
 *   redis.c    the store: its URL, opening, closing, the two links
 *   claims.c   acquire, renew, release, break: operations become requests, replies become outcomes
 *   counters.c count: the same for counters
 *   subscription.c  messages from others to this client, and which of its holds they are about
 *   watch.c    reports changes of locks to watchers, and knows whether anybody watches
 *   look.c     inspect and list
 *   examine.c  what doctor asks: rights.c, about permissions; deployment.c, about several servers
 *   report.c   what doctor says about it
 *   link.c     a connection that is restored whenever it is lost; greeting.c: how it starts
 *   route.c    which of several servers a request goes to; sentinel.c, cluster.c: how to find out
 *   command.c  requests as bytes, and the keys of a lock
 *   reply.c    replies from bytes
 *   scripts/   what the server runs: the rules of a lock are there */
#ifndef REDIS_REDIS_H
#define REDIS_REDIS_H

#include "base/map.h"
#include "store/locks.h"
#include "store/redis/command.h"
#include "store/redis/link.h"
#include "store/redis/route.h"
#include "store/voting.h"

enum { REDIS_COMPANIONS = 6 };
#define REDIS_KEYS "KSQWHI"

/* The holds of this client, as the subscription needs them. (subscription.c) */
struct listening {
    struct map by_name;
    struct list young, older; /* held since the last turn of the timer, and the previous one */
    struct world_timer timer;
    bool confirmed; /* the server has answered the subscription */
};

enum watch_state {
    WATCH_OFF,
    WATCH_SUBSCRIBING, /* the server has not confirmed it, or there is no connection */
    WATCH_MARKING,     /* V is being written */
    WATCH_SETTLING,    /* clients that think that nobody watches will soon ask again */
    WATCH_LIVE,        /* all changes are published */
};

/* (watch.c) */
struct watching {
    enum watch_state state;
    struct world_timer timer; /* when to go on */
    bool is_asked;            /* a request about V has no answer yet */
    bool others;              /* as a client: somebody watches */
    int64_t known_until_us;   /* how long `others` is valid */
};

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
    uint64_t wait_replicas; /* that must have a grant before it counts; 0: none */
    uint64_t wait_timeout_ms;
    const struct store_set *set; /* that the server is a node of; NULL: none */
    bool votes;                  /* the server was asked for a vote */
    struct listening listening;
    struct watching watching;
    struct command command;
    char channels[64];            /* the prefix of the channels of all clients */
    char owner[LOCKS_OWNER_SIZE]; /* this client, and the last attempt that was named */
    char *particulars;            /* of this client, for its records; followed by a label */
    uint32_t number;              /* the next to propose to a server without a number in its set */
    int64_t keep_from_us;         /* when renewals next extend the life of counters */
    bool is_closing;              /* requests come back without a reply, and none may follow */
};

/* Makes a request of what is in redis->command, as part of `op`, with room for `items` numbers in
 * its array; script -1: none. NULL: no memory. */
struct redis_request *redis_new_request(struct redis *redis, struct store_op *op, int script,
                                        redis_answered *answered, void *context, size_t items);

/* A WAIT for the replicas that wait_replicas asks for. It covers the writes of one connection, so
 * submit it to that link. NULL: no memory. */
struct redis_request *redis_new_wait(struct redis *redis, struct store_op *op,
                                     redis_answered *answered, void *context);

/* The meaning of an error reply, or of no reply: the outcome REFUSED or UNKNOWN, with the hf_error
 * and malloc'd particulars. */
enum store_outcome redis_explain(const struct redis_request *request, const struct reply *reply,
                                 const char *why, int *ret_reason, char **ret_text);

/* Whether an error has this code: at its beginning, or where servers before 7.0 put the code of a
 * command in a script. */
bool redis_says(const struct reply *reply, const char *code);

/* Turns a release into one that names only the lock's own key, and does only what that key
 * permits. */
void redis_release_one_key(struct redis *redis, struct redis_request *request);

/* Completes the operation with what redis_explain says, and frees the request. */
void redis_fail(struct redis *redis, struct redis_request *request, const struct reply *reply,
                const char *why);

/* Sends a request to the server that serves it. */
static inline void route_submit(struct redis *redis, struct redis_request *request) {
    if (redis->route)
        route_start(redis->route, request);
    else
        link_submit(&redis->commands, request);
}

/* Adds the key that says in which set the server votes. */
void redis_add_set_key(struct redis *redis);

/* Opens the subscription, if it is not open: from now on, others may send messages to this
 * client. */
void redis_subscribe(struct redis *redis);

/* Called when the hold that `op` asked for was granted; if it lasts longer than a moment, the
 * client listens for messages about it. The second is called when it is being released, or is no
 * longer ours. */
void redis_note_hold(struct redis *redis, const struct store_op *op);
void redis_forget_hold(struct redis *redis, const struct store_op *op);

/* Adds the channel on which the server publishes events of a lock's key. */
void redis_add_key_channel(struct redis *redis, const char *name);

/* Adds V to a script's arguments, if the script must check whether somebody watches. The second
 * notes what it found, from the answer to an acquire. */
void redis_add_watch_key(struct redis *redis);
void redis_note_watched(struct redis *redis, const struct redis_request *request,
                        const struct reply *watched);

/* The channel of watchers. The first adds it to a command; the subscription calls the others. */
void redis_add_watch_channel(struct redis *redis);
bool redis_is_watch_channel(const struct redis *redis, const struct reply *channel);
void redis_watch_confirmed(struct redis *redis);
void redis_watch_message(struct redis *redis, const struct reply *message);
void redis_watch_lost(struct redis *redis, const char *why);
int redis_open_watch(struct redis *redis);
void redis_close_watch(struct redis *redis);
/* Subscribes to the channel of watchers as well: now, or as soon as the subscription is up. */
void redis_subscribe_to_watch(struct redis *redis);

/* Parse parts of what scripts say about a lock. (look.c) */
int64_t redis_take_number(const char **text);
bool redis_add_party(struct hf_locks *locks, enum locks_role role, const char *owner,
                     const char *record, uint64_t token, int64_t left_us);
bool redis_add_break(struct hf_locks *locks, const char *text);
enum store_kind redis_parse_kind(const char *text, uint32_t *ret_capacity); /* or NULL */

int redis_open_subscription(struct redis *redis);
void redis_close_subscription(struct redis *redis);

/* The operations. Each completes the op, now or later. */
void redis_acquire(struct redis *redis, struct store_op *op);
void redis_renew(struct redis *redis, struct store_op *op);
void redis_release(struct redis *redis, struct store_op *op);
void redis_break(struct redis *redis, struct store_op *op);
void redis_inspect(struct redis *redis, struct store_op *op);
void redis_list(struct redis *redis, struct store_op *op);
void redis_watch(struct redis *redis, struct store_op *op);
void redis_unwatch(struct redis *redis, struct store_op *op);
void redis_count(struct redis *redis, struct store_op *op);
/* For a node of a set (voting.h), `facts` are filled in; otherwise it is NULL. */
void redis_examine(struct redis *redis, struct store_op *op, struct store_facts *facts);
void redis_vote(struct redis *redis, struct store_vote *vote);
void redis_give_back(struct redis *redis, struct store_op *op);

#endif
