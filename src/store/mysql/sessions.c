/* The sessions of scheme=for-update: what each step is in MySQL and MariaDB. How an attempt uses
 * its session is in store/sql/sessions.c.
 *
 * The server ends a silent session by wait_timeout, in whole seconds, which is set again when the
 * row is asked for, and by every beat. A beat also returns to a savepoint, which changes nothing,
 * but fails if the transaction that has locked the row has ended. So a beat after the token has
 * been drawn proves that the row was still locked then.
 *
 * The server does not notice that the client of a session that waits for a row has gone. So a
 * session waits for at most LONG_WAIT wait leases at a time, and then asks again.
 *
 * Inserting a row that exists waits for the session that has locked it. So the row is inserted only
 * if it cannot be seen. If another session inserts and locks it at the same moment, the wait is
 * limited to a second: the step is then repeated, and finds the row. */
#include "base/error.h"
#include "store/locks.h"
#include "store/mysql/mysql.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_WAIT = 20 /* wait leases */,
    LOCK_TIMEOUT = 1205,
    NO_SAVEPOINT = 1305,
    SECOND_US = 1000000
};

struct session {
    struct sql_session base;
    struct my_link link;
};

static struct session *session_of(struct sql_session *base) {
    return container_of(base, struct session, base);
}

/* ---- Answers ---- */

static struct sql_reply reply_to(const struct my_request *request, const struct my_result *result,
                                 const char *why) {
    struct sql_reply reply = {.said = SQL_DONE, .is_repeat = request->sends > 1};
    if (result && !result->error)
        return reply;
    enum store_outcome outcome = mysql_explain(request, result, why, &reply.reason, &reply.text);
    reply.said = outcome == STORE_REFUSED ? SQL_FAILED : SQL_SILENT;
    return reply;
}

/* On the session's own connection, any error means that the row is not locked, or soon will not be:
 * the session is ended. */
static void answered(struct mysql *my, struct my_request *request, const struct my_result *result,
                     const char *why) {
    struct sql_call *call = request->context;
    struct session *s = session_of(call->session);
    struct sql_reply reply = reply_to(request, result, why);
    (void)my;
    if (s->link.is_over)
        reply.said = SQL_ENDED;
    else if (result && result->error)
        reply.said = SQL_FAILED;
    if (result && result->error == NO_SAVEPOINT) {
        free(reply.text);
        reply.reason = HF_UNREACHABLE;
        reply.text = error_format("the server ended the transaction that had locked the row");
    }
    reply.has_row = reply.said == SQL_DONE && mysql_has_rows(result, 1) && result->rows == 1;
    sql_answered(call, reply);
}

static bool send_step(struct sql_session *base, struct sql_call *call);

static void row_answered(struct mysql *my, struct my_request *request,
                         const struct my_result *result, const char *why) {
    struct sql_call *call = request->context;
    bool is_timeout = result && result->error == LOCK_TIMEOUT && !call->session->is_over &&
                      call->session->state != SQL_ENDING;
    if (!is_timeout || !send_step(call->session, call))
        answered(my, request, result, why);
}

static void drawn(struct mysql *my, struct my_request *request, const struct my_result *result,
                  const char *why) {
    struct sql_reply reply = reply_to(request, result, why);
    (void)my;
    if (reply.said == SQL_DONE && mysql_has_rows(result, 2) && result->rows == 1) {
        reply.answer = my_value(result, 0, 0);
        reply.number = my_number(result, 0, 1);
    } else if (reply.said == SQL_DONE) {
        reply.said = SQL_SILENT;
        reply.reason = HF_BAD_STORE;
    }
    sql_answered(request->context, reply);
}

static void cancelled(struct mysql *my, struct my_request *request, const struct my_result *result,
                      const char *why) {
    (void)my;
    sql_answered(request->context, reply_to(request, result, why));
}

/* ---- Steps ---- */

static bool submit(struct my_link *link, my_answered *answered_, char *sql, struct sql_call *call) {
    struct my_request *request = my_request_new(link->my, NULL, answered_, sql);
    if (!request)
        return false;
    request->context = call;
    if (call->step == SQL_AWAIT)
        request->give_up_us = WORLD_NEVER;
    if (call->step == SQL_DRAW)
        request->procedure = MY_DRAW;
    my_link_submit(link, request);
    return true;
}

/* Only now is the transaction ended. So if the connection ends before this, it was the server that
 * took the lock away; it was not released. */
static void forgotten(struct mysql *my, struct my_request *request, const struct my_result *result,
                      const char *why) {
    struct sql_call *call = request->context;
    struct session *s = session_of(call->session);
    bool is_done = result && !result->error && !s->base.is_over;
    s->base.has_left |= is_done;
    if (!is_done)
        answered(my, request, result, why);
    else if (!submit(&s->link, answered, strdup("COMMIT"), call))
        sql_answered(call, (struct sql_reply){.said = SQL_SILENT, .reason = HF_NO_MEMORY});
}

static int64_t whole_seconds(int64_t us) {
    return (us + SECOND_US - 1) / SECOND_US;
}

/* MySQL and MariaDB have different words for a shared lock that must not wait. */
static const char *lock_words(bool is_shared, bool waits) {
    if (waits)
        return is_shared ? "LOCK IN SHARE MODE" : "FOR UPDATE";
    return is_shared ? "/*!80000 FOR SHARE */ /*M! LOCK IN SHARE MODE */ SKIP LOCKED"
                     : "FOR UPDATE SKIP LOCKED";
}

static char *write_lock(struct session *s, bool waits) {
    char *name = mysql_quote(s->base.name);
    char *insert = name && !waits
                       ? mysql_write("INSERT IGNORE INTO holdfast_rows SELECT %s FROM DUAL"
                                     " WHERE NOT EXISTS (SELECT 1 FROM holdfast_rows"
                                     " WHERE name = %s);",
                                     name, name)
                       : strdup("");
    int64_t wait_us = s->link.my->host->wait_lease_us;
    char *sql = NULL;
    if (name && insert)
        sql = mysql_write("SET SESSION innodb_lock_wait_timeout = %" PRId64
                          ", wait_timeout = %" PRId64 "; %s START TRANSACTION;"
                          "SELECT 1 FROM holdfast_rows WHERE name = %s %s; SAVEPOINT holdfast",
                          waits ? whole_seconds(LONG_WAIT * wait_us) : 1, whole_seconds(wait_us),
                          insert, name, lock_words(s->base.is_shared, waits));
    free(name);
    free(insert);
    return sql;
}

static char *write_draw(const struct session *s) {
    const struct mysql *my = s->link.my;
    const struct store_op *op = s->base.op;
    const struct store_identity *who = &my->host->identity;
    char *name = mysql_quote(op->name), *host = mysql_quote(who->host);
    char *command = mysql_quote(who->command), *label = mysql_quote(op->label), *arguments = NULL;
    if (name && host && command && label)
        arguments = mysql_write("%s\n%" PRIu32 "\nX'%s'\n%" PRIu64 "\n%" PRIu32 "\n%" PRIu64
                                "\n%" PRIu64 "\n%" PRId64 "\n%s\n%s\n%s",
                                name, op->weight, my->client, op->seq, s->link.greeting.session,
                                op->floor, my->host->token_floor, who->pid, host, command, label);
    free(name);
    free(host);
    free(command);
    free(label);
    return arguments;
}

static bool send_step(struct sql_session *base, struct sql_call *call) {
    struct session *s = session_of(base);
    struct mysql *my = s->link.my;
    switch (call->step) {
    case SQL_LOCK:
    case SQL_AWAIT:
        return submit(&s->link, row_answered, write_lock(s, call->step == SQL_AWAIT), call);
    case SQL_BEAT:
        return submit(&s->link, answered,
                      mysql_write("ROLLBACK TO SAVEPOINT holdfast;"
                                  "SET SESSION wait_timeout = %" PRId64,
                                  whole_seconds(base->lease_us)),
                      call);
    case SQL_COMMIT:
        return submit(&s->link, forgotten,
                      mysql_write("DELETE FROM holdfast_sessions WHERE client = X'%s' AND seq = "
                                  "%" PRIu64,
                                  my->client, base->seq),
                      call);
    case SQL_ROLLBACK:
        return submit(&s->link, answered, strdup("ROLLBACK"), call);
    case SQL_DRAW:
        return submit(&my->commands, drawn, write_draw(s), call);
    case SQL_CANCEL:
        return submit(&my->commands, cancelled,
                      mysql_write("KILL QUERY IS_USED_LOCK('holdfast.%s.%" PRIu32 "')", my->client,
                                  s->link.greeting.session),
                      call);
    }
    return false;
}

/* ---- The life of a session ---- */

static void link_ended(struct my_link *link) {
    struct session *s = container_of(link, struct session, link);
    sql_session_ended(&s->base, link->reason, link->why, true);
}

static struct sql_session *open_session(struct sql_sessions *sessions) {
    struct session *s = calloc(1, sizeof(*s));
    if (!s || my_link_init(&s->link, container_of(sessions, struct mysql, sessions)) < 0) {
        free(s);
        return NULL;
    }
    s->link.ended = link_ended;
    return &s->base;
}

static void close_session(struct sql_session *base) {
    struct session *s = session_of(base);
    s->link.is_over = true;
    my_link_close(&s->link);
    free(s);
}

static bool is_connected(const struct sql_session *base) {
    return container_of(base, struct session, base)->link.state == MY_READY;
}

const struct sql_session_driver mysql_sessions = {
    .open = open_session,
    .close = close_session,
    .send = send_step,
    .is_connected = is_connected,
};

/* ---- Operations ---- */

void mysql_session_acquire(struct mysql *my, struct store_op *op) {
    sql_session_acquire(&my->sessions, op);
}

void mysql_session_renew(struct mysql *my, struct store_op *op) {
    sql_session_renew(&my->sessions, op);
}

void mysql_session_release(struct mysql *my, struct store_op *op) {
    sql_session_release(&my->sessions, op);
}

void mysql_session_break(struct mysql *my, struct store_op *op) {
    mysql_call(my, op, mysql_ended, MY_BREAK_SESSION, mysql_write_break(my, op));
}
