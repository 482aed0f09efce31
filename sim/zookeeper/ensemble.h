/* A model of a ZooKeeper ensemble, or of one server: sessions, nodes, watches, members that follow
 * a leader, and elections. It is pure: bytes, the time and random numbers go in, and bytes come
 * out.
 *
 * It leaves out what locks do not use: quotas, observers, reconfiguration, local sessions, ACLs
 * other than "everybody" and "the creator". It answers unknown requests as unimplemented. */
#ifndef SIM_ZOOKEEPER_ENSEMBLE_H
#define SIM_ZOOKEEPER_ENSEMBLE_H

#include "sim/zookeeper/tree.h"

#include <stdbool.h>

enum { ENSEMBLE_MEMBERS_MAX = 5 };

struct ensemble;
struct ensemble_connection;

/* One change of a transaction. */
struct ensemble_part {
    int32_t op, error;
    char *path, *data, *user;
    int64_t owner;
};

/* A transaction in the log that all members share. */
struct ensemble_txn {
    int64_t zxid, time_ms;
    int64_t session;     /* the one that asked for it; 0: none, or the ensemble itself */
    int member;          /* the one that it was sent to; -1: none */
    uint64_t connection; /* there */
    int32_t xid, op, error;
    size_t count;
    struct ensemble_part *parts;
    bool by_operator; /* a session was ended by somebody other than its client and the leader */
};

enum ensemble_op {
    OP_CREATE_SESSION = -10,
    OP_CLOSE_SESSION = -11,
    OP_NONE = 0,
    OP_CREATE_PLAIN = 1, /* in a multi */
    OP_DELETE = 2,
    OP_EXISTS = 3,
    OP_GET_DATA = 4,
    OP_SET_DATA = 5,
    OP_PING = 11,
    OP_GET_CHILDREN = 12, /* with the stat */
    OP_CHECK = 13,
    OP_MULTI = 14,
    OP_CREATE = 15, /* with the stat */
    OP_CREATE_CONTAINER = 19,
    OP_DELETE_CONTAINER = 20,
    OP_AUTH = 100,
    OP_SET_WATCHES = 101,
};

struct ensemble_events {
    /* To a client, whose connection was made with this context. */
    void (*send)(void *context, const char *bytes, size_t size, bool pushed);
    /* The member closes the connection. The caller disconnects it later. */
    void (*close)(void *context);
    void (*executed)(void *context, const char *line, bool minor);
    /* A transaction is committed; the tree of ensemble_tree has it already. */
    void (*committed)(void *owner, const struct ensemble_txn *txn);
    void (*note)(void *owner, const char *line);
    uint64_t (*random)(void *owner);
};

struct ensemble_config {
    const struct ensemble_events *events;
    void *owner;
    int member_count;
    int64_t tick_us, containers_us;
    int sync_limit;                         /* in ticks */
    int64_t delay_us[ENSEMBLE_MEMBERS_MAX]; /* between the leader and a member, at most a quarter of
                                             * a tick: a leader keeps its rhythm */
};

struct ensemble *ensemble_new(const struct ensemble_config *config, int64_t now_us);
void ensemble_free(struct ensemble *e);

void ensemble_set_time(struct ensemble *e, int64_t now_us);
/* Does what is due, and returns when the next thing is due. */
int64_t ensemble_run(struct ensemble *e);

struct ensemble_connection *ensemble_connect(struct ensemble *e, int member, void *context);
void ensemble_disconnect(struct ensemble_connection *connection);
/* Takes the first frame, which is complete; returns its size. ensemble_run does the rest. */
size_t ensemble_feed(struct ensemble_connection *connection, const char *bytes, size_t size);

/* ---- Faults ---- */

/* These members and the others no longer reach each other; or they do again. Several such faults
 * add up. */
void ensemble_cut(struct ensemble *e, unsigned members, bool begins);
/* A member's process ends; it starts again, with its data. */
void ensemble_stop(struct ensemble *e, int member);
void ensemble_start(struct ensemble *e, int member);
/* -1: there is none. */
int ensemble_leader(const struct ensemble *e);
/* A member applies what it receives this much later. */
void ensemble_lag(struct ensemble *e, int member, int64_t us);
/* An operator ends a session, or deletes a node. False: it cannot be done now. */
bool ensemble_end_session(struct ensemble *e, int64_t session);
bool ensemble_delete(struct ensemble *e, const char *path);

/* ---- State ---- */

/* What has been committed. */
const struct tree *ensemble_tree(const struct ensemble *e);
/* The earliest time at which the ensemble may end this session, if nothing more is heard from
 * it. */
int64_t ensemble_session_until_us(const struct ensemble *e, int64_t session);
size_t ensemble_session_count(const struct ensemble *e);

#endif
