/* The sessions of scheme=for-update: what each step is in PostgreSQL. How an attempt uses its
 * session is in store/sql/sessions.c.
 *
 * The server ends a silent session by idle_in_transaction_session_timeout, which every statement
 * that locks the row, and every beat, sets again. The function that draws the token makes sure that
 * the session's transaction is still open; see schema.sql. A wait is cancelled by
 * pg_cancel_backend, through the connection for requests, since libpq's own cancel blocks. */
#include "base/error.h"
#include "store/locks.h"
#include "store/postgres/postgres.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    struct sql_session base;
    struct pg_link link;
    char xact[24]; /* the number of its transaction */
};

static struct session *session_of(struct sql_session *base) {
    return container_of(base, struct session, base);
}

static struct postgres *postgres_of(struct sql_sessions *sessions) {
    return container_of(sessions, struct postgres, sessions);
}

/* ---- Answers ---- */

static struct sql_reply reply_to(const struct pg_request *request, const PGresult *result,
                                 const char *why) {
    struct sql_reply reply = {.said = SQL_DONE, .is_repeat = request->sends > 1};
    if (result && PQresultStatus(result) != PGRES_FATAL_ERROR)
        return reply;
    enum store_outcome outcome = postgres_explain(request, result, why, &reply.reason, &reply.text);
    reply.said = outcome == STORE_REFUSED ? SQL_FAILED : SQL_SILENT;
    return reply;
}

static void answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                     const char *why) {
    struct sql_call *call = request->context;
    struct sql_reply reply = reply_to(request, result, why);
    bool is_of_session = call->step < SQL_DRAW;
    (void)pg;
    if (is_of_session && session_of(call->session)->link.is_over)
        reply.said = SQL_ENDED;
    sql_answered(call, reply);
}

/* A statement that is not the last of its step. Its result does not matter. */
static void prepared(struct postgres *pg, struct pg_request *request, const PGresult *result,
                     const char *why) {
    struct session *s = request->context;
    struct sql_reply reply = reply_to(request, result, why);
    (void)pg;
    if (reply.said == SQL_DONE || s->link.is_over)
        free(reply.text);
    else
        sql_session_failed(&s->base, reply.reason, reply.text);
}

static void row_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                         const char *why) {
    struct sql_call *call = request->context;
    struct session *s = session_of(call->session);
    if (!postgres_has_rows(result, 2)) {
        answered(pg, request, result, why);
        return;
    }
    bool has_row = PQntuples(result) == 1;
    if (has_row)
        snprintf(s->xact, sizeof(s->xact), "%s", PQgetvalue(result, 0, 0));
    sql_answered(call, (struct sql_reply){.said = SQL_DONE, .has_row = has_row});
}

static void drawn(struct postgres *pg, struct pg_request *request, const PGresult *result,
                  const char *why) {
    (void)pg;
    struct sql_reply reply = reply_to(request, result, why);
    if (reply.said == SQL_DONE && postgres_has_rows(result, 2) && PQntuples(result) == 1) {
        reply.answer = PQgetvalue(result, 0, 0);
        reply.number = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
    } else if (reply.said == SQL_DONE) {
        reply.said = SQL_SILENT;
        reply.reason = HF_BAD_STORE;
    }
    sql_answered(request->context, reply);
}

/* If this statement fails, that ends the transaction, as the COMMIT after it does. If the server
 * ends the session before it answers this, the COMMIT was not executed. */
static void forgotten(struct postgres *pg, struct pg_request *request, const PGresult *result,
                      const char *why) {
    struct session *s = request->context;
    (void)pg, (void)why;
    s->base.has_left = result != NULL;
}

/* ---- Steps ---- */

static bool submit(struct pg_link *link, struct pg_request *request, void *context) {
    if (!request)
        return false;
    request->context = context;
    pg_link_submit(link, request);
    return true;
}

/* The last statement of a step, whose answer is the call's. */
static bool submit_last(struct session *s, struct pg_request *request, struct sql_call *call) {
    if (request && s->link.is_over) { /* it ended with the previous statement */
        free(request);
        sql_answered(call, (struct sql_reply){.said = SQL_ENDED});
        return true;
    }
    return submit(&s->link, request, call);
}

/* How long the server keeps a silent session: text for the setting, in ms. */
static const char *silence(char *text, size_t size, int64_t us) {
    snprintf(text, size, "%" PRId64, (us + 999) / 1000);
    return text;
}

#define LOCK_SQL(how)                                                                    \
    "SELECT txid_current(), set_config('idle_in_transaction_session_timeout', $2, true)" \
    " FROM (SELECT FROM holdfast.rows WHERE name = $1 FOR " how ") AS locked"

static bool ask_for_row(struct session *s, struct sql_call *call) {
    static const char *const sql[2][2] = {
        {LOCK_SQL("UPDATE SKIP LOCKED"), LOCK_SQL("UPDATE")},
        {LOCK_SQL("SHARE SKIP LOCKED"), LOCK_SQL("SHARE")},
    };
    struct postgres *pg = s->link.pg;
    bool waits = call->step == SQL_AWAIT;
    char text[24];
    struct pg_request *request =
        pg_request_new(pg, NULL, row_answered, sql[s->base.is_shared][waits], "bs", s->base.name,
                       silence(text, sizeof(text), pg->host->wait_lease_us));
    if (request && waits)
        request->give_up_us = WORLD_NEVER;
    return submit_last(s, request, call);
}

static bool lock_row(struct session *s, struct sql_call *call) {
    struct postgres *pg = s->link.pg;
    bool ok = submit(&s->link,
                     pg_request_new(pg, NULL, prepared,
                                    "INSERT INTO holdfast.rows VALUES ($1) ON CONFLICT DO NOTHING",
                                    "b", s->base.name),
                     s);
    if (ok && !s->link.is_over)
        ok = submit(&s->link,
                    pg_request_new(pg, NULL, prepared,
                                   "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", ""),
                    s);
    return ok && ask_for_row(s, call);
}

static bool beat(struct session *s, struct sql_call *call) {
    char text[24];
    return submit_last(
        s,
        pg_request_new(s->link.pg, NULL, answered,
                       "SELECT set_config('idle_in_transaction_session_timeout', $1, true)", "s",
                       silence(text, sizeof(text), s->base.lease_us)),
        call);
}

static bool commit(struct session *s, struct sql_call *call) {
    struct postgres *pg = s->link.pg;
    return submit(&s->link,
                  pg_request_new(pg, NULL, forgotten,
                                 "DELETE FROM holdfast.sessions WHERE client = $1 AND seq = $2",
                                 "cu", s->base.seq),
                  s) &&
           submit_last(s, pg_request_new(pg, NULL, answered, "COMMIT", ""), call);
}

static bool roll_back(struct session *s, struct sql_call *call) {
    return submit_last(s, pg_request_new(s->link.pg, NULL, answered, "ROLLBACK", ""), call);
}

static bool draw(struct session *s, struct sql_call *call) {
    struct postgres *pg = s->link.pg;
    const struct store_identity *who = &pg->host->identity;
    const struct store_op *op = s->base.op;
    return submit(
        &pg->commands,
        pg_request_new(
            pg, NULL, drawn,
            "SELECT * FROM holdfast.draw($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            "bicusiuuibbb", op->name, (int64_t)op->weight, op->seq, s->xact,
            (int64_t)PQbackendPID(s->link.conn), op->floor, pg->host->token_floor, who->pid,
            who->host, who->command, op->label),
        call);
}

static bool cancel(struct session *s, struct sql_call *call) {
    struct postgres *pg = s->link.pg;
    return submit(&pg->commands,
                  pg_request_new(pg, NULL, answered, "SELECT pg_cancel_backend($1)", "i",
                                 (int64_t)PQbackendPID(s->link.conn)),
                  call);
}

static bool send_step(struct sql_session *base, struct sql_call *call) {
    static bool (*const steps[])(struct session *, struct sql_call *) = {
        [SQL_LOCK] = lock_row, [SQL_AWAIT] = ask_for_row,  [SQL_BEAT] = beat,
        [SQL_COMMIT] = commit, [SQL_ROLLBACK] = roll_back, [SQL_DRAW] = draw,
        [SQL_CANCEL] = cancel,
    };
    return steps[call->step](session_of(base), call);
}

/* ---- The life of a session ---- */

static void link_ended(struct pg_link *link) {
    struct session *s = container_of(link, struct session, link);
    sql_session_ended(&s->base, link->reason, link->why, link->was_ended);
}

static struct sql_session *open_session(struct sql_sessions *sessions) {
    struct session *s = calloc(1, sizeof(*s));
    if (!s || pg_link_init(&s->link, postgres_of(sessions)) < 0) {
        free(s);
        return NULL;
    }
    s->link.ended = link_ended;
    return &s->base;
}

static void close_session(struct sql_session *base) {
    struct session *s = session_of(base);
    s->link.is_over = true;
    pg_link_close(&s->link);
    free(s);
}

static bool is_connected(const struct sql_session *base) {
    return container_of(base, struct session, base)->link.state == PG_READY;
}

const struct sql_session_driver postgres_sessions = {
    .open = open_session,
    .close = close_session,
    .send = send_step,
    .is_connected = is_connected,
    .draw_proves = true,
};

/* ---- Operations ---- */

void postgres_session_acquire(struct postgres *pg, struct store_op *op) {
    sql_session_acquire(&pg->sessions, op);
}

void postgres_session_renew(struct postgres *pg, struct store_op *op) {
    sql_session_renew(&pg->sessions, op);
}

void postgres_session_release(struct postgres *pg, struct store_op *op) {
    sql_session_release(&pg->sessions, op);
}

void postgres_session_break(struct postgres *pg, struct store_op *op) {
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&pg->host->identity, by);
    postgres_send(pg,
                  pg_request_new(pg, op, postgres_ended,
                                 "SELECT holdfast.break_session($1, $2, $3, $4)", "bubb", op->name,
                                 op->token, by, op->label),
                  op);
}
