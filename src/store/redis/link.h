/* A connection to the server that is restored whenever it is lost: requests go in, and each comes
 * out once, with its reply or without.
 *
 * A link opens when there is something to send (or when it is `wanted`). Its owner greets the
 * server; once that is answered, the link sends what waits in one write, and matches replies to
 * requests by their order. When the connection is lost, requests without a reply are sent again
 * over the next one until their time is up; every request may be repeated. After a failure to
 * connect, the link waits before it tries again (net/backoff.h).
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

/* Takes the request, and must free it (redis_request_free). `reply` is NULL if there is none: then
 * `why` and request->reason (an hf_error) say why, and request->sends whether the server may have
 * acted. */
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
    int script;       /* enum redis_script_id; -1: none */
    unsigned sends;   /* how often it was sent */
    bool greets;      /* part of a connection's greeting: not sent again */
    bool stands_in;   /* for one that was given up: not sent again, and its reply is dropped */
    bool pinned;      /* to its connection: over another it would mean something else */
    bool is_whole;    /* its bytes have the text of the script */
    uint8_t refusals; /* in a row that say "not now" */
    int slot;         /* of a Cluster; -1: any of its nodes will do */
    int64_t again_us; /* while it waits at the route: when it is due */
    struct redis_link *via; /* the link it was last sent over */
    uint32_t count;
    uint16_t items[]; /* RENEW: which renewals it carries */
};

/* For a link that a route (route.h) directs. */
struct link_guide {
    /* Called with each answer to the greeting, which then includes ROLE. Returns why this is the
     * wrong server, or NULL. If `refuses` is NULL, any server will do. */
    const char *(*refuses)(struct redis_link *link, const struct reply *reply);
    /* The reply is an error. True: the guide has taken the request. */
    bool (*turned)(struct redis_link *link, struct redis_request *request,
                   const struct reply *error);
    /* The connection was lost. Requests without a reply are in link->waiting; the guide may take
     * them. */
    void (*down)(struct redis_link *link, const char *why);
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_GREETING, LINK_READY };

/* What links to servers of the same kind have in common. It lives as long as they do. */
struct link_setup {
    struct redis *redis; /* passed on to `answered` */
    struct world *world;
    const struct net_security *security;
    int64_t timeout_us; /* to wait for a reply */
    /* Greets a server, with link_greet, when a connection is open. False: no memory. */
    bool (*greet)(struct redis_link *link);
    /* Looks at an answer to that. HF_OK, or an hf_error and malloc'd particulars: the connection is
     * given up. */
    int (*greeted)(struct redis_link *link, const struct reply *reply, char **ret_text);
    const struct net_login *login; /* for the greeting */
    uint64_t database;
};

struct redis_link {
    struct redis *redis;
    const struct link_setup *setup;
    const struct link_guide *guide; /* NULL: none */
    struct net_wire wire;
    struct world_timer timer;
    struct reply_reader reader;
    struct list waiting; /* requests to send */
    struct list sent;    /* requests without a reply, in order */
    enum link_state state;
    bool wanted;                /* keep it open even if nothing waits */
    bool heard;                 /* this connection has been of use */
    bool doubted;               /* nothing came over the last connection */
    bool pinged;                /* a ping was sent, and nothing has come since */
    struct net_backoff backoff; /* after failures to connect */
    int64_t retry_at_us;        /* DOWN: when to connect again */
    int reason;                 /* of the last failure */
    int64_t early_us;           /* when a request behind the first one in `sent` may be overdue */
    char why[200];              /* how the last connection ended; "": something came since */
    int64_t heard_us;           /* `pushed`: when the last bytes came */
    /* Called when the greeting is answered, instead of sending what waits. NULL: what waits is
     * sent. */
    void (*ready)(struct redis_link *link);
    /* For a link whose replies do not answer requests. */
    void (*pushed)(struct redis_link *link, const struct reply *reply);
    /* The connection was lost after it was ready. May be NULL. */
    void (*lost)(struct redis_link *link, const char *why);
};

/* HF_OK or HF_NO_MEMORY. `setup` and `peer` live as long as the link. */
int link_init(struct redis_link *link, const struct link_setup *setup,
              const struct world_peer *peer);

/* Every request that is left comes back without a reply. */
void link_close(struct redis_link *link);

/* Sends a request, now or as soon as it can. It calls nothing back before it returns, unless there
 * is no memory. */
void link_submit(struct redis_link *link, struct redis_request *request);

/* Opens the link if it is down, and is wanted or has something to send; not before retry_at_us. */
void link_want(struct redis_link *link);

/* Sends a part of the greeting over the link, which must be connected. Takes ownership of the
 * malloc'd bytes, which are wiped later. No request is sent until it is answered. False: no
 * memory. */
bool link_greet(struct redis_link *link, char *bytes, size_t size);

/* Sends bytes without a request over the link, which must be READY. False: no memory. */
bool link_send(struct redis_link *link, const char *bytes, size_t size);

static inline const struct world_peer *link_peer(const struct redis_link *link) {
    return link->wire.stream.peer;
}

static inline bool link_is_connected(const struct redis_link *link) {
    return link->state == LINK_GREETING || link->state == LINK_READY;
}

/* Closes the connection; the next one goes to `peer`. Requests stay. */
void link_direct(struct redis_link *link, const struct world_peer *peer);

/* Closes the connection and drops its requests. */
void link_rest(struct redis_link *link);

/* Gives the connection up; the next one is opened as after any loss. */
void link_break(struct redis_link *link, int reason, const char *why);

void redis_request_free(struct redis_request *request);

/* A redis_answered that ignores the reply. */
void redis_ignore_reply(struct redis *redis, struct redis_request *request,
                        const struct reply *reply, const char *why);

#endif
