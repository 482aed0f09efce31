/* scheme=for-update: a hold is the lock on a row, in a transaction that stays open on a connection
 * of its own, its session. PostgreSQL ends all three together.
 *
 * Design notes.
 *
 * A session is IDLE → LOCKING → (WAITING →) LOCKED → TAKING → HELD → ENDING → IDLE, for the next
 * attempt. The row is first asked for without a wait. Who wants to wait for it is told QUEUED, and
 * its session waits in the server's own queue; when it has the row, the attempt is woken, and its
 * next ACQUIRE takes the lock. A waiting session is ended by cancelling its statement, through the
 * connection for requests, since libpq's own cancel blocks.
 *
 * The token is drawn through the connection for requests, once the row is locked: what the session
 * itself writes is not there for others before it releases the lock. The function that draws it
 * makes sure that the session's transaction is still open; see schema.sql.
 *
 * The server ends a session that has been silent for the lease (or the wait lease, before the lock
 * is taken), by idle_in_transaction_session_timeout. Each renewal is a statement that sets this
 * anew, so the time counts from when the server has received it, later than the engine counts. It
 * is the longest lease that was asked for: a renewal must not shorten it.
 *
 * A session that is over stays in memory until the reaper comes, because its link is still at work
 * when it says so. Requests that others than the session's own link have keep a pointer to it, in
 * their context, which is cleared when the session ends. */
#include "base/error.h"
#include "store/locks.h"
#include "store/postgres/postgres.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIES_MAX = 5,      /* to begin an attempt in another session */
    IDLE_MAX = 4,       /* sessions that are kept for the next attempts */
    LATER_US = 1000000, /* when the row may be free: nobody knows */
};

enum session_state { IDLE, LOCKING, WAITING, LOCKED, TAKING, HELD, ENDING };

struct session {
    struct list node; /* in the store's `sessions` or `ended` */
    struct pg_link link;
    enum session_state state;
    bool is_shared;
    bool was_used;            /* by another attempt before, so its connection may be an old one */
    int tries;                /* sessions that the attempt had before */
    uint64_t seq;             /* whose it is */
    char *name;               /* of the lock */
    struct store_op *op;      /* that waits for it: an ACQUIRE, or a RELEASE */
    struct pg_request *aside; /* on the connection for requests: that draws, or that cancels */
    bool has_beaten;          /* TAKING: the session has answered … */
    uint64_t token;           /* … and the token, 0 if it is not there yet */
    bool has_left;            /* ENDING: the server may have ended the transaction for us */
    int64_t lease_us;         /* the longest that was asked for */
    char xact[24];            /* the number of its transaction */
};

static struct session *session_of(struct list *node) {
    return container_of(node, struct session, node);
}

/* ---- The life of a session ---- */

static void reap(struct world_timer *timer) {
    struct postgres *pg = container_of(timer, struct postgres, reaper);
    struct list *node;
    while ((node = list_pop(&pg->ended))) {
        struct session *s = session_of(node);
        pg_link_close(&s->link);
        free(s->name);
        free(s);
    }
}

/* Nothing refers to it any more, and its connection will be closed. The operation that waited for
 * it is the caller's. */
static struct store_op *retire(struct session *s) {
    struct postgres *pg = s->link.pg;
    struct store_op *op = s->op;
    if (s->aside)
        s->aside->context = NULL;
    s->aside = NULL;
    s->op = NULL;
    s->link.is_over = true;
    list_remove(&s->node);
    list_append(&pg->ended, &s->node);
    world_timer_set(pg->host->world, &pg->reaper, world_now_us(pg->host->world));
    return op;
}

/* Takes `text` over. */
static void retire_with(struct session *s, enum store_outcome outcome, int reason, char *text) {
    struct store_host *host = s->link.pg->host;
    struct store_op *op = retire(s);
    if (!op) {
        free(text);
        return;
    }
    op->reason = reason;
    op->text = text;
    store_complete(host, op, outcome);
}

static void start(struct postgres *pg, struct store_op *op, int tries);

/* The session ended while nobody needed it, or its lease did, before it had its token. In both
 * cases the lock can still be had. */
static bool can_start_again(const struct session *s) {
    return s->op && s->link.reason == HF_UNREACHABLE && s->tries < TRIES_MAX &&
           (s->state == TAKING || s->was_used);
}

/* The connection has ended, and with it whatever the session had. */
static void ended(struct pg_link *link) {
    struct session *s = container_of(link, struct session, link);
    struct store_host *host = link->pg->host;
    uint64_t seq = s->seq;
    switch (s->state) {
    case WAITING:
    case LOCKED:
        retire(s);
        host->wake(host, seq);
        break;
    case HELD:
        retire(s);
        host->gone(host, seq);
        break;
    case LOCKING:
    case TAKING:
        if (can_start_again(s))
            start(link->pg, retire(s), s->tries + 1);
        else
            retire_with(s, STORE_REFUSED, link->reason, error_format("%s", link->why));
        break;
    case IDLE:
        retire(s);
        break;
    case ENDING:
        retire_with(s, link->was_ended && !s->has_left ? STORE_NOT_YOURS : STORE_UNKNOWN,
                    HF_UNREACHABLE, NULL);
    }
}

static struct session *session_new(struct postgres *pg) {
    struct session *s = calloc(1, sizeof(*s));
    if (!s || pg_link_init(&s->link, pg) < 0) {
        free(s);
        return NULL;
    }
    s->link.ended = ended;
    list_init(&s->node);
    list_append(&pg->sessions, &s->node);
    return s;
}

static struct session *idle_session(struct postgres *pg) {
    list_each(node, &pg->sessions) {
        if (session_of(node)->state == IDLE)
            return session_of(node);
    }
    return session_new(pg);
}

static struct session *find(struct postgres *pg, uint64_t seq) {
    list_each(node, &pg->sessions) {
        struct session *s = session_of(node);
        if (s->seq == seq && s->state != IDLE && s->state != ENDING)
            return s;
    }
    return NULL;
}

/* It has ended its transaction, and is kept for another attempt unless there are enough. */
static void become_idle(struct session *s) {
    struct postgres *pg = s->link.pg;
    int count = 0;
    list_each(node, &pg->sessions)
        count += session_of(node)->state == IDLE;
    free(s->name);
    s->name = NULL;
    s->state = IDLE;
    s->was_used = true;
    if (count >= IDLE_MAX)
        retire(s);
}

/* ---- Statements of a session ---- */

static struct session *session_of_request(struct pg_request *request) {
    return request->context;
}

/* Sends a statement. False: the session is over, for lack of memory or because its connection ended
 * here or before. */
static bool tell(struct session *s, struct pg_request *request) {
    if (s->link.is_over) {
        free(request);
        return false;
    }
    if (!request) {
        retire_with(s, STORE_REFUSED, HF_NO_MEMORY, NULL);
        return false;
    }
    request->context = s;
    pg_link_submit(&s->link, request);
    return !s->link.is_over;
}

/* What the server says to a statement whose result does not matter. An error ends the transaction,
 * and with that the session. */
static void step_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    struct session *s = session_of_request(request);
    int reason;
    char *text;
    if (s->link.is_over || (result && PQresultStatus(result) != PGRES_FATAL_ERROR))
        return;
    (void)pg;
    postgres_explain(request, result, why, &reason, &text);
    retire_with(s, STORE_REFUSED, reason, text);
}

/* How long the server keeps the session if it hears nothing: text for the setting, in ms. */
static const char *silence(char *text, size_t size, int64_t us) {
    snprintf(text, size, "%" PRId64, (us + 999) / 1000);
    return text;
}

/* ---- Taking the lock ---- */

static void taken(struct session *s) {
    struct store_op *op = s->op;
    if (!s->has_beaten || !s->token)
        return;
    s->op = NULL;
    s->state = HELD;
    op->token = s->token;
    store_complete(s->link.pg->host, op, STORE_DONE);
}

/* It is not known whether the lock was taken, and the session may still have the row. */
static void taking_failed(struct session *s, int reason, char *text) {
    struct store_op *op = s->op;
    s->op = NULL;
    s->state = LOCKED;
    if (s->aside)
        s->aside->context = NULL;
    s->aside = NULL;
    op->reason = reason;
    op->text = text;
    store_complete(s->link.pg->host, op, STORE_UNKNOWN);
}

static void taking_beaten(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    struct session *s = session_of_request(request);
    if (!s->link.is_over && s->state == TAKING && !result) {
        taking_failed(s, HF_UNREACHABLE, error_format("%s", why));
        return;
    }
    step_answered(pg, request, result, why);
    if (s->link.is_over || s->state != TAKING)
        return;
    s->has_beaten = true;
    taken(s);
}

static int reason_not_drawn(const struct store_op *op, const char *answer, int64_t number,
                            char **ret_text) {
    if (strcmp(answer, "clock") == 0) {
        *ret_text = error_format("the client's clock proposes the token %" PRIu64
                                 ", more than a day ahead of the server's clock, %" PRId64,
                                 op->floor, number);
        return HF_CLOCK;
    }
    if (strcmp(answer, "spent") == 0) {
        *ret_text = error_format("the name has used up its tokens, at %" PRId64, number);
        return HF_CLOCK;
    }
    if (strcmp(answer, "scheme") == 0) {
        *ret_text = error_format("it is held with a lease, and this client uses "
                                 "scheme=for-update");
        return HF_WRONG_KIND;
    }
    *ret_text = error_format("the server ended the session that had locked the row");
    return HF_UNREACHABLE;
}

static void drawn(struct postgres *pg, struct pg_request *request, const PGresult *result,
                  const char *why) {
    struct session *s = session_of_request(request);
    int reason;
    char *text;
    (void)pg;
    if (!s)
        return;
    s->aside = NULL;
    if (!postgres_has_rows(result, 2) || PQntuples(result) != 1) {
        if (postgres_explain(request, result, why, &reason, &text) == STORE_UNKNOWN)
            taking_failed(s, reason, text);
        else
            retire_with(s, STORE_REFUSED, reason, text);
        return;
    }
    int64_t number = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
    if (strcmp(PQgetvalue(result, 0, 0), "done") != 0) {
        reason = reason_not_drawn(s->op, PQgetvalue(result, 0, 0), number, &text);
        retire_with(s, STORE_REFUSED, reason, text);
        return;
    }
    s->token = (uint64_t)number;
    taken(s);
}

static const char beat_sql[] = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)";

static struct pg_request *new_beat(struct session *s, int64_t lease_us, pg_answered *answered) {
    char text[24];
    s->lease_us = s->lease_us > lease_us ? s->lease_us : lease_us;
    return pg_request_new(s->link.pg, NULL, answered, beat_sql, "s",
                          silence(text, sizeof(text), s->lease_us));
}

static void take(struct session *s, struct store_op *op) {
    struct postgres *pg = s->link.pg;
    const struct store_identity *who = &pg->host->identity;
    s->op = op;
    s->state = TAKING;
    s->has_beaten = false;
    s->token = 0;
    if (!tell(s, new_beat(s, op->lease_us, taking_beaten)))
        return;
    s->aside = pg_request_new(
        pg, NULL, drawn,
        "SELECT * FROM holdfast.draw($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        "bicusiuuibbb", op->name, (int64_t)op->weight, op->seq, s->xact,
        (int64_t)PQbackendPID(s->link.conn), op->floor, pg->host->token_floor, who->pid, who->host,
        who->command, op->label);
    if (!s->aside) {
        retire_with(s, STORE_REFUSED, HF_NO_MEMORY, NULL);
        return;
    }
    s->aside->context = s;
    pg_link_submit(&pg->commands, s->aside);
}

/* ---- Locking the row ---- */

#define LOCK_SQL(how)                                                                    \
    "SELECT txid_current(), set_config('idle_in_transaction_session_timeout', $2, true)" \
    " FROM (SELECT FROM holdfast.rows WHERE name = $1 FOR " how ") AS locked"

static void lock(struct session *s);
static void row_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                         const char *why);

static void ask_for_row(struct session *s, bool waits) {
    static const char *const sql[2][2] = {
        {LOCK_SQL("UPDATE SKIP LOCKED"), LOCK_SQL("UPDATE")},
        {LOCK_SQL("SHARE SKIP LOCKED"), LOCK_SQL("SHARE")},
    };
    struct postgres *pg = s->link.pg;
    char text[24];
    struct pg_request *request =
        pg_request_new(pg, NULL, row_answered, sql[s->is_shared][waits], "bs", s->name,
                       silence(text, sizeof(text), pg->host->wait_lease_us));
    if (request && waits)
        request->give_up_us = WORLD_NEVER;
    s->state = waits ? WAITING : LOCKING;
    tell(s, request);
}

static void rolled_back(struct postgres *pg, struct pg_request *request, const PGresult *result,
                        const char *why) {
    struct session *s = session_of_request(request);
    step_answered(pg, request, result, why);
    if (!s->link.is_over)
        become_idle(s);
}

/* Somebody else has the row. */
static void row_is_busy(struct session *s) {
    struct store_host *host = s->link.pg->host;
    struct store_op *op = s->op;
    s->op = NULL;
    op->left_us = LATER_US;
    if (op->flags & STORE_WAIT) {
        ask_for_row(s, true);
        store_complete(host, op, STORE_QUEUED);
        return;
    }
    s->state = ENDING;
    tell(s, pg_request_new(s->link.pg, NULL, rolled_back, "ROLLBACK", ""));
    store_refuse(host, op, HF_BUSY, NULL);
}

static void row_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                         const char *why) {
    struct session *s = session_of_request(request);
    if (s->link.is_over || s->state == ENDING) /* it is withdrawn */
        return;
    if (!postgres_has_rows(result, 2)) {
        step_answered(pg, request, result, why);
        return;
    }
    if (PQntuples(result) == 1) {
        snprintf(s->xact, sizeof(s->xact), "%s", PQgetvalue(result, 0, 0));
        bool was_waiting = s->state == WAITING;
        s->state = LOCKED;
        if (was_waiting)
            pg->host->wake(pg->host, s->seq);
        else
            take(s, s->op);
    } else if (s->state == WAITING) { /* nobody used the name for long, and its row was deleted */
        uint64_t seq = s->seq;
        retire(s);
        pg->host->wake(pg->host, seq);
    } else {
        row_is_busy(s);
    }
}

static void lock(struct session *s) {
    struct postgres *pg = s->link.pg;
    if (tell(s, pg_request_new(pg, NULL, step_answered,
                               "INSERT INTO holdfast.rows VALUES ($1) ON CONFLICT DO NOTHING", "b",
                               s->name)) &&
        tell(s, pg_request_new(pg, NULL, step_answered,
                               "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", "")))
        ask_for_row(s, false);
}

static void start(struct postgres *pg, struct store_op *op, int tries) {
    struct session *s = idle_session(pg);
    char *name = s ? strdup(op->name) : NULL;
    if (!name) {
        store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    s->tries = tries;
    s->seq = op->seq;
    s->name = name;
    s->op = op;
    s->is_shared = op->weight != STORE_ALL;
    s->lease_us = 0;
    s->state = LOCKING;
    lock(s);
}

/* ---- Acquire, renew, release, break ---- */

static void withdraw(struct session *s, struct store_op *op);

void postgres_session_acquire(struct postgres *pg, struct store_op *op) {
    struct session *s = find(pg, op->seq);
    assert(!s || !s->op);
    if (op->flags & STORE_BARGE) {
        store_refuse(pg->host, op, HF_UNSUPPORTED,
                     error_format("the server's queue for a row has an order of its own"));
    } else if (!s) {
        start(pg, op, 0);
    } else if (s->state == LOCKED || s->state == HELD) {
        take(s, op);
    } else if (op->flags & STORE_WAIT) {
        op->left_us = LATER_US;
        store_complete(pg->host, op, STORE_QUEUED);
    } else {
        withdraw(s, NULL);
        store_refuse(pg->host, op, HF_BUSY, NULL);
    }
}

/* A RENEW in flight: a beat of each session. */
struct round {
    struct store_op *op;
    size_t left; /* beats without an answer */
    struct beat {
        struct round *round;
        struct session *session; /* that of the beat: its answer says if it is over */
        size_t index;
    } beats[];
};

static void count_beat(struct postgres *pg, struct round *round) {
    if (--round->left > 0)
        return;
    struct store_op *op = round->op;
    free(round);
    store_complete(pg->host, op, STORE_DONE);
}

static void beaten(struct postgres *pg, struct pg_request *request, const PGresult *result,
                   const char *why) {
    struct beat *beat = request->context;
    struct session *s = beat->session;
    struct store_renewal *item = &beat->round->op->renewals[beat->index];
    (void)why;
    bool failed = result && PQresultStatus(result) == PGRES_FATAL_ERROR;
    item->outcome = s->link.is_over || failed ? STORE_NOT_YOURS
                    : result                  ? STORE_DONE
                                              : STORE_UNKNOWN;
    if (failed && !s->link.is_over)
        retire(s);
    count_beat(pg, beat->round);
}

static void beat_session(struct postgres *pg, struct round *round, size_t index) {
    struct store_renewal *item = &round->op->renewals[index];
    const struct store_op *of = item->of;
    struct session *s = of ? find(pg, of->seq) : NULL;
    if (!s || s->state != HELD) {
        item->outcome = STORE_NOT_YOURS;
        return;
    }
    struct pg_request *request = new_beat(s, item->lease_us, beaten);
    item->outcome = STORE_UNKNOWN;
    item->reason = HF_NO_MEMORY;
    if (!request)
        return;
    struct beat *beat = &round->beats[index];
    *beat = (struct beat){round, s, index};
    request->context = beat;
    round->left++;
    pg_link_submit(&s->link, request);
}

void postgres_session_renew(struct postgres *pg, struct store_op *op) {
    struct round *round = calloc(1, sizeof(*round) + op->renewal_count * sizeof(round->beats[0]));
    if (!round) {
        store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    round->op = op;
    round->left = 1; /* until all have been sent */
    for (size_t i = 0; i < op->renewal_count; i++)
        beat_session(pg, round, i);
    count_beat(pg, round);
}

static void cancelled(struct postgres *pg, struct pg_request *request, const PGresult *result,
                      const char *why) {
    struct session *s = session_of_request(request);
    (void)pg, (void)why;
    if (!s)
        return;
    s->aside = NULL;
    retire_with(s, result ? STORE_DONE : STORE_UNKNOWN, 0, NULL);
}

/* Leaves the server's queue. `op` completes when that is done; NULL: nobody waits for it. */
static void withdraw(struct session *s, struct store_op *op) {
    struct postgres *pg = s->link.pg;
    s->state = ENDING;
    s->op = op;
    s->has_left = true;
    if (s->link.state != PG_READY) {
        retire_with(s, STORE_DONE, 0, NULL); /* it has not come that far */
        return;
    }
    s->aside = pg_request_new(pg, NULL, cancelled, "SELECT pg_cancel_backend($1)", "i",
                              (int64_t)PQbackendPID(s->link.conn));
    if (!s->aside) {
        retire_with(s, STORE_UNKNOWN, HF_NO_MEMORY, NULL); /* the server notices by itself */
        return;
    }
    s->aside->context = s;
    pg_link_submit(&pg->commands, s->aside);
}

static void committed(struct postgres *pg, struct pg_request *request, const PGresult *result,
                      const char *why) {
    struct session *s = session_of_request(request);
    (void)why;
    if (s->link.is_over)
        return;
    if (!result || PQresultStatus(result) != PGRES_COMMAND_OK) {
        retire_with(s, STORE_UNKNOWN, HF_UNREACHABLE, NULL);
        return;
    }
    struct store_op *op = s->op;
    s->op = NULL;
    become_idle(s);
    store_complete(pg->host, op, STORE_DONE);
}

/* An error of it ends the transaction, which is what the COMMIT behind it does, too. If the server
 * ends the session before it answers this, the COMMIT was not executed. */
static void forgotten(struct postgres *pg, struct pg_request *request, const PGresult *result,
                      const char *why) {
    (void)pg, (void)why;
    session_of_request(request)->has_left = result != NULL;
}

void postgres_session_release(struct postgres *pg, struct store_op *op) {
    struct session *s = find(pg, op->seq);
    assert(!s || !s->op);
    if (!s) {
        store_complete(pg->host, op, STORE_NOT_YOURS);
    } else if (s->state != LOCKED && s->state != HELD) {
        withdraw(s, op);
    } else {
        s->state = ENDING;
        s->op = op;
        s->has_left = false;
        if (tell(s, pg_request_new(pg, NULL, forgotten,
                                   "DELETE FROM holdfast.sessions WHERE client = $1 AND seq = $2",
                                   "cu", op->seq)))
            tell(s, pg_request_new(pg, NULL, committed, "COMMIT", ""));
    }
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

/* ---- Opening and closing ---- */

int postgres_open_sessions(struct postgres *pg) {
    list_init(&pg->sessions);
    list_init(&pg->ended);
    return world_timer_add(pg->host->world, &pg->reaper, reap);
}

void postgres_close_sessions(struct postgres *pg) {
    while (!list_empty(&pg->sessions))
        retire_with(session_of(pg->sessions.next), STORE_UNKNOWN, HF_CLOSED, NULL);
    reap(&pg->reaper);
    world_timer_drop(pg->host->world, &pg->reaper);
}
