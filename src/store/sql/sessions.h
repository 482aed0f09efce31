/* scheme=for-update: a hold is the lock on a row, in a transaction that stays open on a separate
 * connection, its session. The database ends all three together.
 *
 * This code does what an attempt needs from its session, in any database. The database's part is to
 * send the statements of a step, and to report their answers and the end of a connection. */
#ifndef SQL_SESSIONS_H
#define SQL_SESSIONS_H

#include "store/store.h"
#include "world/world.h"

struct sql_session;

/* What a session is asked to do. The last two are sent on the connection for requests. */
enum sql_step {
    SQL_LOCK,     /* begin a transaction, and lock the row if it is free */
    SQL_AWAIT,    /* the same, but wait for the row in the server's queue */
    SQL_BEAT,     /* keep the session for another `lease_us` of silence */
    SQL_COMMIT,   /* remove the holder's record, and end the transaction */
    SQL_ROLLBACK, /* end the transaction */
    SQL_DRAW,     /* take the token for `op`, and write the holder's record */
    SQL_CANCEL,   /* end the statement of SQL_AWAIT */
};

/* A step under way. */
struct sql_call {
    struct sql_session *session; /* NULL: it has ended meanwhile */
    enum sql_step step;
    struct sql_round *round; /* BEAT: the renewal that it is part of, if any … */
    size_t index;            /* … and which of its holds is meant */
};

enum sql_said {
    SQL_DONE,
    SQL_FAILED, /* the database reports that it was not done */
    SQL_SILENT, /* it may have been done: there was no answer in time */
    SQL_ENDED,  /* the session's connection has ended */
};

struct sql_reply {
    enum sql_said said;
    bool has_row;       /* LOCK, AWAIT: the row is locked */
    const char *answer; /* DRAW: "done", "clock", "spent", "scheme", "gone" */
    int64_t number;     /* DRAW: the token, or the server's time */
    bool is_repeat;     /* DRAW: it was sent more than once, and may still be executed again */
    int reason;         /* FAILED, SILENT: an hf_error … */
    char *text;         /* … and particulars, malloc'd; or NULL */
};

struct sql_sessions;

struct sql_session_driver {
    /* A session that is not connected yet. NULL: no memory. */
    struct sql_session *(*open)(struct sql_sessions *sessions);
    /* Ends its connection. Calls without an answer are answered before it returns. */
    void (*close)(struct sql_session *session);
    /* Sends the statements of a step; sql_answered is called once, maybe before it returns. False:
     * no memory, and it is not called. */
    bool (*send)(struct sql_session *session, struct sql_call *call);
    bool (*is_connected)(const struct sql_session *session);
    /* Whether a DRAW that is done proves that the row was still locked after the token was taken.
     * Otherwise a BEAT that is sent after it does. */
    bool draw_proves;
};

struct sql_sessions {
    struct store_host *host;
    const struct sql_session_driver *driver;
    struct list open, ended;
    struct world_timer reaper; /* frees sessions that have ended */
};

enum sql_session_state {
    SQL_IDLE,
    SQL_LOCKING,
    SQL_WAITING,
    SQL_LOCKED,
    SQL_TAKING,
    SQL_HELD,
    SQL_ENDING
};

/* A driver's session begins with this, and finds here what a step needs. */
struct sql_session {
    struct list node; /* in `open` or `ended` */
    struct sql_sessions *of;
    enum sql_session_state state;
    bool is_over;
    bool is_shared;
    bool was_used;          /* by an earlier attempt, so its connection may be an old one */
    bool is_spoilt;         /* a DRAW of this attempt may come late: no other attempt can use it */
    bool has_beaten;        /* TAKING: the session has answered … */
    uint64_t token;         /* … and the token, 0 if it is not there yet */
    bool has_left;          /* ENDING: the server may have ended the transaction for us */
    int tries;              /* sessions that the attempt has used before */
    uint64_t seq;           /* whose it is */
    char *name;             /* of the lock */
    struct store_op *op;    /* that waits for it: an ACQUIRE, or a RELEASE */
    struct sql_call *aside; /* on the connection for requests: DRAW, or CANCEL */
    int64_t lease_us;       /* the longest that was asked for … */
    int64_t over_us;        /* … and when it ends without a beat */
};

/* HF_OK or HF_NO_MEMORY. */
int sql_sessions_open(struct sql_sessions *sessions, struct store_host *host,
                      const struct sql_session_driver *driver);
void sql_sessions_close(struct sql_sessions *sessions);

void sql_session_acquire(struct sql_sessions *sessions, struct store_op *op);
void sql_session_renew(struct sql_sessions *sessions, struct store_op *op);
void sql_session_release(struct sql_sessions *sessions, struct store_op *op);

/* Reports the answer to a call. Frees the call and the reply's text. */
void sql_answered(struct sql_call *call, struct sql_reply reply);

/* A part of a step, or of connecting, has failed. Takes `text`, which may be NULL. */
void sql_session_failed(struct sql_session *session, int reason, char *text);

/* The connection has ended, and with it everything the session had. `is_certain`: what the server
 * has not answered was not done. */
void sql_session_ended(struct sql_session *session, int reason, const char *why, bool is_certain);

#endif
