/* What the files of the model share.
 *
 * Design notes.
 *
 * All members share one log, which is cut back when a leader is elected that has less of it. A
 * member has written down the first `logged` entries and applied the first `applied` of them to
 * its tree. The leader decides what a request does when it proposes it, using `ahead`: the tree as
 * it will be when the whole log has been applied. A transaction is committed when a majority has it
 * in its log.
 *
 * A member and its leader send each other messages, each direction in order. A member touches no
 * session at its leader: it notes which were active, and reports them when the leader pings it. A
 * connection between them that was broken stays broken, whatever was on its way is lost, and each
 * side notices at some time within the sync limit. Until then it serves its clients. */
#ifndef SIM_ZOOKEEPER_MODEL_H
#define SIM_ZOOKEEPER_MODEL_H

#include "base/list.h"
#include "sim/zookeeper/ensemble.h"
#include "sim/zookeeper/frame.h"

enum { SESSIONS_MAX = 1024, PASSWORD_SIZE = 16 };

#define NEVER INT64_MAX
#define NOWHERE SIZE_MAX

enum model_error {
    MODEL_OK = 0,
    MODEL_INCONSISTENT = -2,
    MODEL_MARSHALLING = -5,
    MODEL_UNIMPLEMENTED = -6,
    MODEL_BAD_ARGUMENTS = -8,
    MODEL_NO_NODE = -101,
    MODEL_NO_AUTH = -102,
    MODEL_BAD_VERSION = -103,
    MODEL_EPHEMERAL_PARENT = -108,
    MODEL_NODE_EXISTS = -110,
    MODEL_NOT_EMPTY = -111,
    MODEL_EXPIRED = -112,
    MODEL_INVALID_ACL = -114,
    MODEL_MOVED = -118,
};

struct session {
    int64_t id;
    int32_t timeout_ms;
    size_t created_at, closed_at; /* in the log; NOWHERE: not there */
    int owner;                    /* the member that it is at, as the leader knows; -1: any */
    int64_t expires_us;           /* as the leader counts */
};

struct session_set {
    uint64_t bits[SESSIONS_MAX / 64];
};

/* What a client asks for. It waits at its connection, and goes to the leader as a copy. */
struct request {
    struct list link;
    uint64_t connection;
    int member, session;
    int32_t xid, op;
    char *user;
    size_t size;
    char body[];
};

enum message_type {
    /* To the leader. */
    SEND_REQUEST,
    SEND_ACK,
    SEND_REPORT,
    SEND_VALIDATE,
    /* To a member. */
    SEND_PROPOSAL,
    SEND_COMMIT,
    SEND_PING,
    SEND_VALIDATED,
};

struct message {
    struct list link;
    enum message_type type;
    int64_t due_us;
    size_t place; /* in the log */
    uint64_t connection;
    int session;
    bool valid;
    struct request *request;
    struct session_set sessions;
};

enum role { DOWN, LOOKING, FOLLOWING, LEADING };

struct member {
    int number;
    enum role role;
    int cuts;    /* faults that cut it off */
    int leader;  /* that it follows */
    bool broken; /* the connection to its leader */
    int64_t notices_us, joins_us;
    int64_t lag_us;
    struct tree tree;
    size_t logged, applied;
    size_t acknowledged; /* of the log, as its leader knows */
    struct list up, down, late;
    struct session_set noted;
    struct list connections;
};

struct ensemble {
    struct ensemble_config config;
    int64_t now_us;
    struct member members[ENSEMBLE_MEMBERS_MAX];
    int leader; /* the last that was elected */
    int64_t zxid;
    struct ensemble_txn *log;
    size_t log_count, log_room;
    size_t committed, reported;
    struct tree ahead;
    struct session sessions[SESSIONS_MAX];
    int session_count;
    uint64_t last_connection;
    int64_t pings_us, looks_us, elects_us;
};

struct watch {
    struct list link;
    bool of_children;
    char path[];
};

struct ensemble_connection {
    struct list link;
    struct ensemble *e;
    int member;
    uint64_t id;
    void *context;
    int session; /* -1: none yet */
    bool is_asked, is_greeted, is_closed;
    int32_t timeout_ms;
    char *user;
    struct list requests, watches;
};

/* ---- members.c ---- */

bool session_is_alive(const struct ensemble *e, int session);
int session_find(const struct ensemble *e, int64_t id);
void session_touch(struct ensemble *e, int member, int session);
/* To the leader of this member; takes ownership of the message. */
void send_up(struct ensemble *e, int member, struct message *message);
struct message *message_new(enum message_type type);
bool member_serves(const struct member *member);

/* ---- transactions.c ---- */

/* Decides what a request does, and adds that to the log and to `ahead`. */
struct ensemble_txn *log_request(struct ensemble *e, const struct request *request);
struct ensemble_txn *log_new(struct ensemble *e, int32_t op);
void log_part(struct ensemble *e, struct ensemble_txn *txn, int32_t op, const char *path);
void log_close_session(struct ensemble *e, struct ensemble_txn *txn, int session);
void log_cut(struct ensemble *e, size_t count);
/* If a multi fails, no part of it is done. */
bool txn_is_done(const struct ensemble_txn *txn);
void txn_apply(struct tree *tree, const struct ensemble_txn *txn,
               void (*done)(void *context, const struct ensemble_part *part,
                            const struct tree_node *node),
               void *context);

/* ---- connections.c ---- */

void connection_close(struct ensemble_connection *connection);
void connections_close(struct member *member);
struct request *request_copy(const struct request *request);
void request_free(struct request *request);
/* The member applies the transaction: watches fire, and the client that asked is answered. */
void connections_apply(struct ensemble *e, struct member *member, const struct ensemble_txn *txn);
void connection_validated(struct ensemble *e, struct member *member, uint64_t id, int session,
                          bool valid);

#endif
