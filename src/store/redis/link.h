/* A connection to the server that is always being restored: requests go in, and each comes out once, with
 * its reply or without.
 *
 * A link opens when something is to be sent (or when it is `wanted`), greets (AUTH, SELECT or PING), sends what waits
 * in one write, and matches replies to requests by their order. When the connection is lost, whatever had
 * no reply is sent again over the next one, as all requests may be, until its time is over. After a
 * failure to connect it waits, longer each time and with jitter, before it tries again.
 *
 * It sees bytes and the world's time, and nothing else. */
#ifndef REDIS_LINK_H
#define REDIS_LINK_H

#include "net/backoff.h"
#include "net/login.h"
#include "net/wire.h"
#include "store/redis/reply.h"

struct redis;
struct redis_request;

/* Takes the request, and must free it (redis_request_free). `reply` is NULL where there is none: then
 * `why` and request->reason (an hf_error) say why, and request->sends whether the server may have acted. */
typedef void redis_answered(struct redis *redis, struct redis_request *request,
                            const struct reply *reply, const char *why);

struct redis_request {
    struct list link;
    redis_answered *answered;
    struct store_op *op;
    void *context;
    char *bytes;
    size_t size;
    int64_t give_up_us;
    int64_t sent_us; /* when it was sent last */
    int reason;
    int script;     /* enum redis_script_id; -1: none */
    unsigned sends; /* how often it was sent */
    bool greets;    /* part of the greeting of one connection: not sent again */
    bool stands_in; /* for one that was given up: not sent again, and its reply is dropped */
    bool pinned;    /* to its connection: over another it means something else (a route's links) */
    bool is_whole;  /* its bytes have the text of the script */
    uint8_t refusals;       /* in a row that say "not now" */
    int slot;               /* of a Cluster; -1: any of its nodes will do */
    int64_t again_us;       /* while it waits at the route: not before */
    struct redis_link *via; /* over which it was sent last */
    uint32_t count;
    uint16_t items[]; /* RENEW: which renewals it carries */
};

/* For a link that a route (route.h) directs. */
struct link_guide {
    /* Another word to the greeting, which then has ROLE in it: why this server is not the one, or NULL. */
    const char *(*refuses)(struct redis_link *link, const struct reply *reply);
    /* An error was answered. True: the guide took the request. */
    bool (*turned)(struct redis_link *link, struct redis_request *request,
                   const struct reply *error);
    /* The connection was lost; whatever had no reply is in link->waiting, to be taken. */
    void (*down)(struct redis_link *link, const char *why);
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_GREETING, LINK_READY };

struct redis_link {
    struct redis *redis;
    const struct link_guide *guide; /* NULL: none */
    const struct net_login *login;  /* to greet with */
    uint64_t database;
    struct net_wire wire;
    struct world_timer timer;
    struct reply_reader reader;
    struct list waiting; /* requests that are to be sent */
    struct list sent;    /* those without a reply, in order */
    enum link_state state;
    bool wanted;                /* to be open also when nothing waits */
    bool heard;                 /* this connection has been of use */
    bool doubted;               /* over the last connection nothing came */
    bool pinged;                /* and something must come soon */
    struct net_backoff backoff; /* after failures to connect */
    int64_t retry_at_us;        /* DOWN: not before */
    int reason;       /* of the last failure: HF_UNREACHABLE, or what the greeting was answered */
    int64_t early_us; /* when the time of one behind the first that was sent may be over */
    char why[200];    /* how the last connection ended; "": something came since */
    int64_t heard_us; /* when the last bytes came */
    void (*ready)(struct redis_link *link);
    /* For a link whose replies answer no requests. */
    void (*pushed)(struct redis_link *link, const struct reply *reply);
};

/* HF_OK or HF_NO_MEMORY. */
int link_init(struct redis_link *link, struct redis *redis, const struct world_peer *peer);

/* Every request that is left comes back without a reply. */
void link_close(struct redis_link *link);

/* Sends a request, now or as soon as it can. Nothing is called back from within, unless there is no memory. */
void link_submit(struct redis_link *link, struct redis_request *request);

/* Opens the link, if it is wanted and not open. */
void link_want(struct redis_link *link);

/* Sends bytes that have no request; the link is READY. False when there is no memory. */
bool link_send(struct redis_link *link, const char *bytes, size_t size);

static inline const struct world_peer *link_peer(const struct redis_link *link) {
    return link->wire.stream.peer;
}

/* From now on its connections, also the one that it has, begin with boot.lua: until then, who only looks does not need
 * the right to it, and changes nothing. */
void link_begin_to_vote(struct redis_link *link);

/* Closes the connection, for another place or a new start. Requests stay. */
void link_direct(struct redis_link *link, const struct world_peer *peer);

/* Closes the connection and forgets its requests. */
void link_rest(struct redis_link *link);

/* Gives the connection up and starts anew. */
void link_break(struct redis_link *link, int reason, const char *why);

void redis_request_free(struct redis_request *request);

#endif
