/* A connection to the server, by libpq, that is restored whenever it is lost: requests go in, and
 * each comes out once, with a result or without.
 *
 * libpq never waits here. Names are looked up by the world, the addresses are tried in turn, each
 * for its share of the time, and the world watches the socket. Once the schema has been found or
 * made, the connection is in pipeline mode, so that the operations of many threads share a round
 * trip. Each request has its own sync, which makes it a separate transaction: if it fails, the
 * others are not affected.
 *
 * Acquires and releases take turns (turn.h).
 *
 * When the connection is lost, requests without a result are sent again over the next one until
 * their time is over; every request may be repeated. The link of a session (see sessions.c) is not
 * restored: what it has locked ended with its connection. */
#ifndef POSTGRES_LINK_H
#define POSTGRES_LINK_H

#include "net/backoff.h"
#include "store/store.h"
#include "world/world.h"

#include <libpq-fe.h>

struct postgres;
struct pg_batch;
struct pg_link;
struct pg_request;

/* `result` is NULL if there is none: then `why` and request->reason (an hf_error) say why, and
 * request->sends whether the server may have acted. Both belong to the link. */
typedef void pg_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                         const char *why);

enum { PG_VALUES_MAX = 15 };

struct pg_request {
    struct list link;
    bool shares;                 /* an acquire or release: it waits for its turn */
    bool in_turn;                /* the next turn waits for its result */
    struct list members;         /* of a batch: the requests that it is for … */
    const struct pg_batch *type; /* … and what it does */
    pg_answered *answered;       /* NULL: it was abandoned, and keeps its place among the replies */
    struct store_op *op;
    void *context;
    const char *sql;
    int count;
    const char *values[PG_VALUES_MAX]; /* in `bytes` */
    int sizes[PG_VALUES_MAX];
    int formats[PG_VALUES_MAX]; /* 1: the bytes themselves, for a bytea */
    PGresult *result;           /* that came, but is not committed yet */
    int64_t give_up_us;         /* WORLD_NEVER: it may take any time */
    int64_t sent_us;            /* when it was sent last */
    int reason;
    unsigned sends; /* how often it was sent */
    char bytes[];
};

/* Where to connect to. */
struct pg_target {
    char *
        host; /* for libpq, which checks certificates against it; a folder: that of a unix socket */
    char *address; /* numeric; NULL: none */
    char *port;
};

struct pg_targets {
    struct pg_target *list;
    size_t count, room;
};

enum pg_state { PG_DOWN, PG_SEARCHING, PG_CONNECTING, PG_GREETING, PG_READY };

struct pg_link {
    struct postgres *pg;
    PGconn *conn;
    enum pg_state state;
    struct world_watch watch;
    bool watched;
    struct world_timer timer;
    struct world_flusher flusher;
    struct world_lookup lookup;
    struct pg_targets targets; /* of this attempt to connect */
    size_t host, target;       /* that is being looked up; that is being connected to */
    int64_t connect_by_us;     /* the whole attempt */
    int64_t target_by_us;      /* this target */
    struct list waiting;       /* requests to send */
    struct list sent;          /* requests without a result, in order */
    unsigned in_turn;          /* how many of both belong to this turn */
    bool wanted;               /* keep it open even if nothing waits, and ping the server */
    bool listens;              /* to notifications */
    bool was_ready;            /* it has been open before */
    bool is_over;              /* of a session: its connection has ended … */
    bool was_ended;            /* … by the server, which announced it */
    /* Of a session: called once, after all requests have been returned. NULL: no session. */
    void (*ended)(struct pg_link *link);
    bool heard;      /* this connection has been useful */
    bool creating;   /* GREETING: the schema is being made */
    bool created;    /* it has tried to make the schema */
    bool incomplete; /* a request has found a part of the schema missing */
    struct net_backoff backoff;
    int64_t retry_at_us; /* DOWN: when to connect again */
    int64_t heard_us;
    int reason; /* of the last failure */
    char why[300];
};

/* HF_OK or HF_NO_MEMORY. */
int pg_link_init(struct pg_link *link, struct postgres *pg);

/* Every remaining request is returned without a result. */
void pg_link_close(struct pg_link *link);

/* Opens the link if it is down, and is wanted or has something to send; not before retry_at_us. */
void pg_link_want(struct pg_link *link);

/* Sends a request, now or as soon as it can, and frees it when it was answered. */
void pg_link_submit(struct pg_link *link, struct pg_request *request);

/* The same, ahead of those that wait: the request was not done, and can be tried again. */
void pg_link_try_again(struct pg_link *link, struct pg_request *request);

/* A request. `types` has a letter for each parameter: i int64_t, u uint64_t, f bool (as int), s
 * text, b bytes of a string (NULL: none), and c, which takes nothing and is the client's id. NULL:
 * no memory. */
struct pg_request *pg_request_new(struct postgres *pg, struct store_op *op, pg_answered *answered,
                                  const char *sql, const char *types, ...);

/* A request with `count` parameters, which are texts; each ends with a zero. NULL: no memory. */
struct pg_request *pg_request_of(struct postgres *pg, pg_answered *answered, const char *sql,
                                 int count, const char *texts, size_t size);
void pg_request_free(struct pg_request *request);

/* Ends a request, with its result or without, and frees it. `reason` counts if there is none. */
void pg_request_end(struct postgres *pg, struct pg_request *request, const PGresult *result,
                    int reason, const char *why);

/* The SQLSTATE of a result that is an error; "" for any other. */
const char *pg_sqlstate(const PGresult *result);

#endif
