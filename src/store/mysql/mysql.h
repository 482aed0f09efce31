/* The MySQL and MariaDB store: what its files share. */
#ifndef MYSQL_MYSQL_H
#define MYSQL_MYSQL_H

#include "net/login.h"
#include "store/mysql/link.h"
#include "store/sql/sessions.h"

/* schema.sql, made into a constant by tools/embed_text. */
extern const char mysql_schema[];
enum { MYSQL_SCHEMA = 7 }; /* its version */

/* The server's time in microseconds since 1970; the same within a statement. */
#define MYSQL_NOW "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

struct mysql {
    struct store store;
    struct store_host *host;
    struct my_link commands, listener;
    struct world_peer peer;
    struct net_security security;
    struct net_login login;
    char *server, *database, *socket; /* server: the name in `peer` */
    struct sql_sessions sessions;     /* with scheme=for-update */
    int64_t timeout_us;
    bool spells_out; /* the procedures do not exist, or are not permitted */
    char client[33]; /* its id, in hex as the server writes it: user locks are case-sensitive */
};

/* statement.c */

/* A query, from pieces: format is as for printf. NULL: no memory. */
char *mysql_write(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "X'616263'" for "abc", NULL for no memory; the text may be NULL, which is "". */
char *mysql_quote(const char *text);

enum my_procedure {
    MY_ACQUIRE,
    MY_RELEASE,
    MY_BREAK,
    MY_DRAW,
    MY_BREAK_SESSION,
    MY_ACQUIRE_FREE,
    MY_RELEASE_QUIET,
    MY_COUNT,
};

/* The call of a procedure, whose arguments are lines; or, if the user may not call or make
 * procedures, its text with the arguments in it. NULL: no memory. */
char *mysql_write_call(const struct mysql *my, enum my_procedure procedure, const char *arguments);

/* claims.c */
void mysql_acquire(struct mysql *my, struct store_op *op);
void mysql_renew(struct mysql *my, struct store_op *op);
void mysql_release(struct mysql *my, struct store_op *op);
void mysql_break(struct mysql *my, struct store_op *op);
/* Completes a release or a break. `was_there`: there was something for it to end. */
void mysql_end(struct mysql *my, struct my_request *request, bool was_there);

/* Calls a procedure on the connection for requests; takes `arguments`. */
void mysql_call(struct mysql *my, struct store_op *op, my_answered *answered,
                enum my_procedure procedure, char *arguments);
/* The arguments of a break; NULL: no memory. */
char *mysql_write_break(const struct mysql *my, const struct store_op *op);
/* The answer to a release or a break: 0 or 1. */
void mysql_ended(struct mysql *my, struct my_request *request, const struct my_result *result,
                 const char *why);

/* sessions.c: the same with scheme=for-update, where each hold has its own session. */
extern const struct sql_session_driver mysql_sessions;
void mysql_session_acquire(struct mysql *my, struct store_op *op);
void mysql_session_renew(struct mysql *my, struct store_op *op);
void mysql_session_release(struct mysql *my, struct store_op *op);
void mysql_session_break(struct mysql *my, struct store_op *op);

/* look.c */
void mysql_look(struct mysql *my, struct store_op *op);

/* count.c */
void mysql_count(struct mysql *my, struct store_op *op);

/* examine.c */
void mysql_examine(struct mysql *my, struct store_op *op);

/* listen.c */

/* A wake-up or the end of a hold may be announced from now on. */
void mysql_expect_wakes(struct mysql *my);
/* The listener is connected. */
void mysql_listen(struct mysql *my);

/* mysql.c */

/* Whether the URL says scheme=for-update. */
bool mysql_for_update(const struct mysql *my);

/* Sends the request, or refuses its operation if it is NULL. */
void mysql_send(struct mysql *my, struct my_request *request, struct store_op *op);

/* What an error of the server means for the request. */
enum my_fault {
    MY_FINE,         /* there was none */
    MY_REFUSED,      /* it was not done */
    MY_CONFLICT,     /* it was not done, and can be tried again */
    MY_NO_TABLE,     /* it was not done, since a table is missing */
    MY_NO_PROCEDURE, /* the same, with a procedure */
    MY_UNCLEAR,      /* it may have been done, or a part of it */
};
enum my_fault mysql_fault_of(unsigned error);

/* Whether the user may not log in, or may not do something. */
bool mysql_is_denied(unsigned error);

/* The procedures are missing, or not permitted. Returns whether requests are spelled out from now
 * on. */
bool mysql_spells_out(struct mysql *my);

/* The meaning of an error result, or of no result. */
enum store_outcome mysql_explain(const struct my_request *request, const struct my_result *result,
                                 const char *why, int *ret_reason, char **ret_text);
/* Completes the operation with that. */
void mysql_fail(struct mysql *my, struct my_request *request, const struct my_result *result,
                const char *why);

/* Whether the result has rows, with this number of columns. */
bool mysql_has_rows(const struct my_result *result, unsigned columns);

#endif
