/* A session with a ZooKeeper ensemble, over one connection at a time. Requests go in, and each
 * comes out once, with a reply or without.
 *
 * A session opens when there is something to send. It tries the members of the ensemble in turn.
 * When a connection is lost, the session continues at another member, watches included, as long as
 * the ensemble has not ended it. Requests without a reply are returned then: a create must not be
 * sent twice. An open connection is kept alive by pings.
 *
 * It also knows until when the ensemble keeps the session (zk_session_valid_until_us); session.c
 * says how. */
#ifndef ZOOKEEPER_SESSION_H
#define ZOOKEEPER_SESSION_H

#include "base/list.h"
#include "base/map.h"
#include "net/backoff.h"
#include "net/wire.h"
#include "store/zookeeper/codec.h"

struct zk_session;
struct zk_request;

/* `header` is NULL if there is no reply: then the session's `reason` and `why` say why, and
 * request->was_sent whether the server may have acted. The request is freed by the caller. */
typedef void zk_answered(struct zk_request *request, const struct codec_header *header,
                         struct codec_in *in);

struct zk_request {
    struct list link;
    zk_answered *answered;
    void *context;
    uint64_t part; /* of the context's work */
    int32_t xid;
    bool writes; /* a majority has it when it is answered */
    bool was_sent;
    int64_t sent_us, give_up_us;
    struct codec_out out;
};

/* A watch that the server has, or will have on the next connection. It is gone once it has
 * fired. */
struct zk_watch {
    struct map_node node;
    char *path; /* NULL: it is not set */
    void *context;
    void (*fired)(struct zk_watch *watch, enum codec_event_type type);
    bool of_children;
};

enum zk_state { ZK_DOWN, ZK_CONNECTING, ZK_GREETING, ZK_LOGGING_IN, ZK_READY };

/* An exchange with a server on the present connection. */
struct zk_exchange {
    int64_t sent_us, answered_us;
};
enum { ZK_EXCHANGES = 64 };

struct zk_session_setup {
    struct world *world;
    const struct net_security *security;
    const char *credentials; /* "user:password" for digest authentication; NULL: none */
    int64_t timeout_us;      /* to wait for a reply */
    int64_t connect_timeout_us;
    struct world_peer *peers; /* the members */
    size_t peer_count;
    void *context;
    /* The session has ended, and with it every ephemeral node and every watch. */
    void (*ended)(void *context);
};

struct zk_session {
    const struct zk_session_setup *setup;
    struct net_wire wire;
    struct world_timer timer;
    struct codec_frames frames;
    enum zk_state state;
    struct codec_session id;
    struct list waiting, sent;
    struct map watches;
    int64_t wanted_timeout_us; /* of a new session */
    int32_t next_xid;
    size_t peer;     /* the one that is connected, or is next */
    size_t failures; /* to connect, since the last success */
    struct net_backoff backoff;
    int64_t retry_at_us;
    int64_t greeted_us;   /* when this connection's session was asked for */
    int64_t last_sent_us; /* anything */
    int64_t pinged_us;    /* a ping without an answer; 0: none */
    int64_t anchor_us;    /* the ensemble keeps the session at least for its timeout from here */
    struct zk_exchange exchanges[ZK_EXCHANGES]; /* a ring */
    size_t exchange_count;
    bool keeps; /* there is something to lose: reconnect even if nothing waits */
    bool is_new;
    int reason; /* of the last failure */
    char why[300];
};

/* HF_OK or HF_NO_MEMORY. */
int zk_session_init(struct zk_session *session, const struct zk_session_setup *setup);
/* Every request is returned without a reply. `end`: tell the server that the session is over, if
 * that is possible without waiting. */
void zk_session_close(struct zk_session *session, bool end);

/* A request to fill in (`out`, with this xid); NULL: no memory. */
struct zk_request *zk_request_new(struct zk_session *session, zk_answered *answered, void *context,
                                  uint64_t part);
/* Sends the request, now or as soon as it can, and frees it when it was answered. */
void zk_session_submit(struct zk_session *session, struct zk_request *request);

/* Whether to reconnect even if nothing waits to be sent, so that the session does not expire. */
void zk_session_keep(struct zk_session *session, bool keep);

/* The session timeout that the server granted; 0: there is no session. */
int64_t zk_session_timeout_us(const struct zk_session *session);
/* Before this time, no other session can own what this one's ephemeral nodes stand for. */
int64_t zk_session_valid_until_us(const struct zk_session *session);

/* The server is being asked to set this watch. False: no memory. */
bool zk_watch_set(struct zk_session *session, struct zk_watch *watch, const char *path);
void zk_watch_clear(struct zk_session *session, struct zk_watch *watch);

#endif
