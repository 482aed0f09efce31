/* A connection to one member of the cluster that is restored whenever it is lost: calls go in, and
 * each comes out once, with an answer or without.
 *
 * The link opens when there is something to send. If it cannot connect, or if its member does not
 * answer in time or reports that it cannot serve, the link moves on to the next member of the URL.
 * Calls without an answer are sent again there until their time is over; every call may be
 * repeated. With a user, the link logs in first; it does so again when the server no longer knows
 * its token, or has started to require one. */
#ifndef ETCD_LINK_H
#define ETCD_LINK_H

#include "net/backoff.h"
#include "net/login.h"
#include "net/wire.h"
#include "store/etcd/grpc.h"

#include <protobuf-c/protobuf-c.h>

struct etcd;
struct etcd_call;

/* The link frees the call afterwards. */
typedef void etcd_answered(struct etcd *etcd, struct etcd_call *call);

struct etcd_call {
    struct list link;
    struct grpc_call grpc;
    etcd_answered *answered;
    void *context;
    const char *path;
    int64_t give_up_us;
    int64_t sent_us; /* when it was sent last */
    unsigned sends;  /* how often it was sent, and may have been executed */
    unsigned logins; /* logins that it has caused */
    /* The answer. */
    int reason;      /* an hf_error; HF_OK: `message` is it */
    int status;      /* the server's, enum grpc_status; below 0: there was no answer */
    const char *why; /* words for a failure; never NULL */
    const uint8_t *message;
    size_t message_size;
    size_t size;
    uint8_t bytes[];
};

enum etcd_link_state { ETCD_DOWN, ETCD_CONNECTING, ETCD_LOGIN, ETCD_READY };

struct etcd_link {
    struct etcd *etcd;
    struct world *world;
    enum etcd_link_state state;
    struct net_wire wire;
    struct grpc *grpc; /* of the present connection; NULL: none */
    struct world_timer timer;
    struct world_flusher flusher;
    const struct world_peer *peers;
    size_t peer_count, peer;
    const struct net_login *login;
    char *token;
    int64_t timeout_us;
    struct list waiting, sent;
    size_t sent_count;
    struct net_backoff backoff;
    unsigned failures;   /* in a row, of this or other members */
    int64_t retry_at_us; /* DOWN: when to connect again */
    int reason;          /* of the last failure */
    bool unfit;          /* the member has said that it cannot serve */
    char why[GRPC_WHY_SIZE + 100];
};

/* HF_OK or HF_NO_MEMORY. `peers`, `security` and `login` live as long as the link. */
int etcd_link_init(struct etcd_link *link, struct etcd *etcd, const struct world_peer *peers,
                   size_t peer_count, const struct net_security *security);
/* Every remaining call is returned without an answer. */
void etcd_link_close(struct etcd_link *link);

/* A call with this request. NULL: no memory. */
struct etcd_call *etcd_call_new(const char *path, const ProtobufCMessage *request,
                                etcd_answered *answered, void *context);

/* Of a call that has failed, or whose answer cannot be read for lack of memory: whether the server
 * may have done it. */
bool etcd_call_may_have_acted(const struct etcd_call *call);

/* Sends the call, now or as soon as it can, and frees it when it was answered. It makes no callback
 * before it returns. `give_up_us` is when to return it without an answer. */
void etcd_link_submit(struct etcd_link *link, struct etcd_call *call, int64_t give_up_us);

/* Closes the connection as soon as the caller returns to the link; a remaining call opens
 * another. */
void etcd_link_hang_up(struct etcd_link *link);

/* Frees a call that was not submitted. */
void etcd_call_free(struct etcd_call *call);

/* Sends what waits on streams with the next flush. */
void etcd_link_flush(struct etcd_link *link);

#endif
