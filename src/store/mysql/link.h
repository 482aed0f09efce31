/* A connection to the server that is restored whenever it is lost: requests go in, and each comes
 * out once, with a result or without.
 *
 * A link opens when there is something to send (or when it is `wanted`). It logs in, prepares the
 * session, and finds or makes the schema. Then it sends all waiting requests in one write. The
 * server executes queries in order, each in its own transaction, and results are matched to
 * requests by their order. Acquires and releases take turns (turn.h).
 *
 * When the connection is lost, requests without a result are sent again over the next one until
 * their time is over; every request may be repeated. The link of a session (see sessions.c) is not
 * restored: what it has locked ended with its connection. */
#ifndef MYSQL_LINK_H
#define MYSQL_LINK_H

#include "net/backoff.h"
#include "net/wire.h"
#include "store/mysql/packet.h"
#include "store/store.h"
#include "world/world.h"

struct mysql;
struct my_batch;
struct my_link;
struct my_request;

/* `result` is NULL if there is none: then `why` and request->reason (an hf_error) say why, and
 * request->sends whether the server may have acted. Both belong to the link. */
typedef void my_answered(struct mysql *my, struct my_request *request,
                         const struct my_result *result, const char *why);

struct my_request {
    struct list link;
    bool shares;                 /* an acquire or release: it waits for its turn */
    bool in_turn;                /* the next turn waits for its result */
    struct list members;         /* of a batch: the requests that it is for … */
    const struct my_batch *type; /* … and what it does */
    my_answered *answered;       /* NULL: it was abandoned, and keeps its place among the results */
    struct store_op *op;
    void *context;
    char *sql;           /* the query, or the arguments of a call */
    int procedure;       /* enum my_procedure; -1: it is not a call */
    int64_t patience_us; /* the time it needs beyond the timeout */
    int64_t give_up_us;
    int64_t sent_us; /* when it was sent last */
    int reason;
    unsigned sends; /* how often it was sent */
};

enum my_state { MY_DOWN, MY_CONNECTING, MY_LOGIN, MY_GREETING, MY_READY };

struct my_link {
    struct mysql *my;
    struct net_wire wire;
    struct world_timer timer;
    struct world_flusher flusher;
    enum my_state state;
    struct my_reader reader;
    struct my_answer answer;
    struct my_greeting greeting;
    bool greeted;          /* LOGIN: the server has sent its greeting */
    uint8_t number;        /* LOGIN: of the next packet */
    int step;              /* GREETING: which */
    const char *statement; /* GREETING: of the schema, to be executed next */
    int64_t connect_by_us;
    struct list waiting; /* requests to send */
    struct list sent;    /* requests without a result, in order */
    unsigned in_turn;    /* how many of both belong to this turn */
    bool wanted;         /* keep it open even if nothing waits */
    bool listens;        /* to wake-ups: needs no schema */
    bool is_over;        /* of a session: its connection has ended */
    /* Of a session: called once, after all requests have been returned. NULL: no session. */
    void (*ended)(struct my_link *link);
    bool heard;      /* this connection has been useful */
    bool incomplete; /* a request has found a table of the schema missing */
    struct net_backoff backoff;
    int64_t retry_at_us; /* DOWN: when to connect again */
    int reason;          /* of the last failure */
    char why[300];
};

/* HF_OK or HF_NO_MEMORY. */
int my_link_init(struct my_link *link, struct mysql *my);

/* Every remaining request is returned without a result. */
void my_link_close(struct my_link *link);

/* Opens the link if it is down, and is wanted or has something to send; not before retry_at_us. */
void my_link_want(struct my_link *link);

/* Abandons the connection; the next one is opened as after any loss. */
void my_link_break(struct my_link *link, int reason, const char *why);

/* Sends a request, now or as soon as it can, and frees it when it was answered. */
void my_link_submit(struct my_link *link, struct my_request *request);

/* The same, ahead of those that wait. */
void my_link_submit_first(struct my_link *link, struct my_request *request);

/* Ends a request, with its result or without, and frees it. `reason` counts if there is none. */
void my_request_end(struct mysql *my, struct my_request *request, const struct my_result *result,
                    int reason, const char *why);
void my_request_free(struct my_request *request);

/* Makes a request; takes `sql`, which is malloc'd. NULL: no memory, or `sql` is NULL. */
struct my_request *my_request_new(struct mysql *my, struct store_op *op, my_answered *answered,
                                  char *sql);

#endif
