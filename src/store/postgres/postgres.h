/* The PostgreSQL store: what its files share. */
#ifndef POSTGRES_POSTGRES_H
#define POSTGRES_POSTGRES_H

#include "base/url.h"
#include "store/postgres/link.h"
#include "store/sql/sessions.h"

/* schema.sql, made into a constant by tools/embed_text. */
extern const char postgres_schema[];
enum { POSTGRES_SCHEMA = 8 }; /* its version */

/* The parameters of a URL, and some more; PG_TARGET_PARAMETERS of them are for a target and the
 * NULL at the end. */
enum { PG_TARGET_PARAMETERS = 5, PG_PARAMETERS_MAX = URL_OPTIONS_MAX + 16 + PG_TARGET_PARAMETERS };

/* The state of a watch; see watch.c. From LISTENING to SETTLING, changes may be missed. */
enum watch_state { WATCH_OFF, WATCH_LISTENING, WATCH_MARKING, WATCH_SETTLING, WATCH_LIVE };

struct watching {
    enum watch_state state;
    uintptr_t round;          /* how often it started; answers from earlier rounds are ignored */
    struct world_timer timer; /* LIVE: the lease must be extended; otherwise: start again */
};

struct postgres {
    struct store store;
    struct store_host *host;
    struct pg_link commands, listener;
    struct watching watching;
    struct world_timer poll;      /* without notifications: when to ask again */
    struct sql_sessions sessions; /* with scheme=for-update */
    int64_t timeout_us, connect_timeout_us;
    bool exposed;    /* plaintext=yes */
    bool pooled;     /* the connection is to a pooler, which forbids LISTEN */
    bool is_deaf;    /* there was no memory to listen: it is tried again with the next poll */
    char client[33]; /* its id */
    char listen[64]; /* the statement */
    /* Parameters for libpq, without those of a target. */
    char *keys[PG_PARAMETERS_MAX], *values[PG_PARAMETERS_MAX];
    size_t parameter_count;
    /* What libpq makes of them, of the environment and of a service file. */
    struct pg_target *hosts;
    size_t host_count;
    char sslmode[16];
};

/* claims.c */

/* In the FROM list of a statement: its commit waits neither for the disk nor for standbys. */
#define PG_NO_FLUSH "set_config('synchronous_commit', 'off', true)"

void postgres_acquire(struct postgres *pg, struct store_op *op);
void postgres_renew(struct postgres *pg, struct store_op *op);
void postgres_release(struct postgres *pg, struct store_op *op);
void postgres_break(struct postgres *pg, struct store_op *op);
/* Completes a release or a break. `was_there`: there was something for it to end. */
void postgres_end(struct postgres *pg, struct pg_request *request, bool was_there);
/* The answer to one of them: a boolean. */
void postgres_ended(struct postgres *pg, struct pg_request *request, const PGresult *result,
                    const char *why);

/* sessions.c: the same with scheme=for-update, where each hold has its own session. */
extern const struct sql_session_driver postgres_sessions;
void postgres_session_acquire(struct postgres *pg, struct store_op *op);
void postgres_session_renew(struct postgres *pg, struct store_op *op);
void postgres_session_release(struct postgres *pg, struct store_op *op);
void postgres_session_break(struct postgres *pg, struct store_op *op);

/* look.c */
void postgres_look(struct postgres *pg, struct store_op *op);
/* Converts a bytea, which the server sends as "\\x" and hex digits, into its bytes, in place. */
const char *postgres_bytes(char *text);

/* count.c */
void postgres_count(struct postgres *pg, struct store_op *op);

/* watch.c */
int postgres_open_watch(struct postgres *pg);
void postgres_close_watch(struct postgres *pg);
void postgres_watch(struct postgres *pg, struct store_op *op);
void postgres_unwatch(struct postgres *pg, struct store_op *op);
/* Called when the listener is connected, and when it has lost its connection. */
void postgres_watch_connected(struct postgres *pg);
void postgres_watch_lost(struct postgres *pg, const char *why);
/* A change has been reported. */
void postgres_watch_notified(struct postgres *pg, char *text);

/* examine.c */
void postgres_examine(struct postgres *pg, struct store_op *op);

/* postgres.c */

/* Whether the URL says scheme=for-update. */
bool postgres_for_update(const struct postgres *pg);

/* Sends the request, or refuses its operation if it is NULL. */
void postgres_send(struct postgres *pg, struct pg_request *request, struct store_op *op);

/* The meaning of an error result, or of no result. */
enum store_outcome postgres_explain(const struct pg_request *request, const PGresult *result,
                                    const char *why, int *ret_reason, char **ret_text);
/* Completes the operation with that. */
void postgres_fail(struct postgres *pg, struct pg_request *request, const PGresult *result,
                   const char *why);

/* Whether the result has rows, with this number of columns. */
bool postgres_has_rows(const PGresult *result, int columns);

/* A wake-up or the end of a hold may be announced from now on. */
void postgres_expect_wakes(struct postgres *pg);
/* A lock has been granted: from now on the client notices when the server goes away. */
void postgres_granted(struct postgres *pg);
/* Requests have a connection again, perhaps to another server. */
void postgres_restored(struct postgres *pg);
/* The listener is connected: asks it to listen. */
void postgres_listen(struct postgres *pg);
/* The server has sent a notification. */
void postgres_notified(struct postgres *pg, const char *channel, char *text);

#endif
