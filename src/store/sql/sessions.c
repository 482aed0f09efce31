/* Design notes.
 *
 * A session is IDLE → LOCKING → (WAITING →) LOCKED → TAKING → HELD → ENDING → IDLE, for the next
 * attempt. It first asks for the row without waiting. If somebody else has it and the attempt wants
 * to wait, the answer is QUEUED, and the session waits in the server's own queue. When it has the
 * row, the attempt is woken, and its next ACQUIRE takes the lock. A wait is ended by cancelling its
 * statement, through the connection for requests.
 *
 * The token is drawn through the connection for requests, once the row is locked: nothing that the
 * session itself writes is visible to others before it releases the lock. The lock counts as held
 * only if the row was still locked after that. So the next session that locks the row draws a
 * larger token.
 *
 * The server ends a session that has been silent for the lease (or the wait lease, before the lock
 * is taken). Each renewal is a BEAT, which restarts this time when the server receives it, so later
 * than the engine's own count starts. The time is the longest lease that was asked for, since a
 * renewal must not shorten it. The server may be late, or count whole seconds, so it may still have
 * a session whose lease has ended. Such a session is no longer renewed.
 *
 * A session that is over stays in memory until the reaper comes, because the code of its connection
 * may still be running when it reports the end. Calls on the connection for requests outlive the
 * session; then their `session` is cleared. */
#include "store/sql/sessions.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIES_MAX = 5,      /* to begin an attempt in another session */
    IDLE_MAX = 4,       /* sessions that are kept for the next attempts */
    LATER_US = 1000000, /* when the row may be free is not known */
};

static struct sql_session *session_of(struct list *node) {
    return container_of(node, struct sql_session, node);
}

/* ---- The life of a session ---- */

static void reap(struct world_timer *timer) {
    struct sql_sessions *sessions = container_of(timer, struct sql_sessions, reaper);
    struct list *node;
    while ((node = list_pop(&sessions->ended))) {
        struct sql_session *s = session_of(node);
        free(s->name);
        s->name = NULL;
        sessions->driver->close(s);
    }
}

/* Nothing refers to the session any more, and its connection will be closed. The operation that
 * waited for it belongs to the caller. */
static struct store_op *retire(struct sql_session *s) {
    struct sql_sessions *sessions = s->of;
    struct store_op *op = s->op;
    assert(!s->is_over);
    if (s->aside)
        s->aside->session = NULL;
    s->aside = NULL;
    s->op = NULL;
    s->is_over = true;
    list_remove(&s->node);
    list_append(&sessions->ended, &s->node);
    world_timer_set(sessions->host->world, &sessions->reaper, world_now_us(sessions->host->world));
    return op;
}

/* Takes ownership of `text`. */
static void retire_with(struct sql_session *s, enum store_outcome outcome, int reason, char *text) {
    struct store_host *host = s->of->host;
    struct store_op *op = retire(s);
    if (!op) {
        free(text);
        return;
    }
    op->reason = reason;
    op->text = text;
    store_complete(host, op, outcome);
}

void sql_session_failed(struct sql_session *s, int reason, char *text) {
    struct store_host *host = s->of->host;
    bool asks_again = s->state == SQL_WAITING || s->state == SQL_LOCKED;
    uint64_t seq = s->seq;
    if (s->is_over) {
        free(text);
        return;
    }
    /* A release takes effect with the end of the connection, if not before. */
    retire_with(s, s->state == SQL_ENDING ? STORE_UNKNOWN : STORE_REFUSED, reason, text);
    if (asks_again)
        host->wake(host, seq);
}

static void start(struct sql_sessions *sessions, struct store_op *op, int tries);

/* The session had ended while it was idle, or its lease ended before it had its token. In both
 * cases the lock can still be acquired. */
static bool can_start_again(const struct sql_session *s, int reason) {
    return s->op && reason == HF_UNREACHABLE && s->tries < TRIES_MAX &&
           (s->state == SQL_TAKING || s->was_used);
}

void sql_session_ended(struct sql_session *s, int reason, const char *why, bool is_certain) {
    struct sql_sessions *sessions = s->of;
    struct store_host *host = sessions->host;
    uint64_t seq = s->seq;
    if (s->is_over)
        return;
    switch (s->state) {
    case SQL_WAITING:
    case SQL_LOCKED:
        retire(s);
        host->wake(host, seq);
        break;
    case SQL_HELD:
        retire(s);
        host->gone(host, seq);
        break;
    case SQL_LOCKING:
    case SQL_TAKING:
        if (can_start_again(s, reason))
            start(sessions, retire(s), s->tries + 1);
        else
            retire_with(s, STORE_REFUSED, reason, error_format("%s", why));
        break;
    case SQL_IDLE:
        retire(s);
        break;
    case SQL_ENDING:
        retire_with(s, is_certain && !s->has_left ? STORE_NOT_YOURS : STORE_UNKNOWN, HF_UNREACHABLE,
                    NULL);
    }
}

static struct sql_session *idle_session(struct sql_sessions *sessions) {
    list_each(node, &sessions->open) {
        if (session_of(node)->state == SQL_IDLE)
            return session_of(node);
    }
    struct sql_session *s = sessions->driver->open(sessions);
    if (!s)
        return NULL;
    s->of = sessions;
    list_init(&s->node);
    list_append(&sessions->open, &s->node);
    return s;
}

static struct sql_session *find(struct sql_sessions *sessions, uint64_t seq) {
    list_each(node, &sessions->open) {
        struct sql_session *s = session_of(node);
        if (s->seq == seq && s->state != SQL_IDLE && s->state != SQL_ENDING)
            return s;
    }
    return NULL;
}

/* The session has ended its transaction, and is kept for another attempt unless there are
 * enough. */
static void become_idle(struct sql_session *s) {
    int count = 0;
    list_each(node, &s->of->open)
        count += session_of(node)->state == SQL_IDLE;
    free(s->name);
    s->name = NULL;
    s->state = SQL_IDLE;
    s->was_used = true;
    if (count >= IDLE_MAX || s->is_spoilt)
        retire(s);
}

/* ---- Steps ---- */

static bool is_aside(enum sql_step step) {
    return step == SQL_DRAW || step == SQL_CANCEL;
}

/* False: no memory. By the time this returns, the call may have been answered, and the session may
 * be over. */
static bool send_call(struct sql_session *s, struct sql_call call) {
    struct sql_call *sent = malloc(sizeof(*sent));
    if (!sent)
        return false;
    *sent = call;
    sent->session = s;
    if (is_aside(call.step))
        s->aside = sent;
    if (s->of->driver->send(s, sent))
        return true; /* cppcheck-suppress memleak ; the driver has it */
    if (is_aside(call.step))
        s->aside = NULL;
    free(sent);
    return false;
}

/* False: the session is over, for lack of memory or because its connection ended here or before. */
static bool tell(struct sql_session *s, enum sql_step step) {
    if (!s->is_over && !send_call(s, (struct sql_call){.step = step}))
        sql_session_failed(s, HF_NO_MEMORY, NULL);
    return !s->is_over;
}

/* ---- Leases ---- */

static void keep_for(struct sql_session *s, int64_t lease_us) {
    s->lease_us = s->lease_us > lease_us ? s->lease_us : lease_us;
}

/* The server has answered a beat. */
static void was_kept(struct sql_session *s) {
    s->over_us = world_now_us(s->of->host->world) + s->lease_us;
}

/* ---- Taking the lock ---- */

static void taken(struct sql_session *s) {
    struct store_op *op = s->op;
    if (!s->has_beaten || !s->token)
        return;
    s->op = NULL;
    s->state = SQL_HELD;
    op->token = s->token;
    store_complete(s->of->host, op, STORE_DONE);
}

/* It is not known whether the lock was taken, and the session may still have the row. */
static void taking_failed(struct sql_session *s, int reason, char *text) {
    struct store_op *op = s->op;
    s->op = NULL;
    s->state = SQL_LOCKED;
    s->is_spoilt = true;
    if (s->aside)
        s->aside->session = NULL;
    s->aside = NULL;
    op->reason = reason;
    op->text = text;
    store_complete(s->of->host, op, STORE_UNKNOWN);
}

static void taking_beaten(struct sql_session *s, struct sql_reply *reply) {
    if (s->state != SQL_TAKING)
        return;
    if (reply->said == SQL_SILENT) {
        taking_failed(s, HF_UNREACHABLE, reply->text);
        reply->text = NULL;
        return;
    }
    s->has_beaten = true;
    was_kept(s);
    taken(s);
}

static int reason_not_drawn(const struct store_op *op, const struct sql_reply *reply,
                            char **ret_text) {
    if (strcmp(reply->answer, "clock") == 0) {
        *ret_text = error_format("the client's clock proposes the token %" PRIu64
                                 ", more than a day ahead of the server's clock, %" PRId64,
                                 op->floor, reply->number);
        return HF_CLOCK;
    }
    if (strcmp(reply->answer, "spent") == 0) {
        *ret_text = error_format("the name has used up its tokens, at %" PRId64, reply->number);
        return HF_CLOCK;
    }
    if (strcmp(reply->answer, "scheme") == 0) {
        *ret_text = error_format("it is held with a lease, and this client uses "
                                 "scheme=for-update");
        return HF_WRONG_KIND;
    }
    *ret_text = error_format("the server ended the session that had locked the row");
    return HF_UNREACHABLE;
}

static void drawn(struct sql_session *s, struct sql_reply *reply) {
    char *text = reply->text;
    s->aside = NULL;
    s->is_spoilt |= reply->is_repeat;
    if (reply->said != SQL_DONE) {
        reply->text = NULL;
        if (reply->said == SQL_FAILED)
            retire_with(s, STORE_REFUSED, reply->reason, text);
        else
            taking_failed(s, reply->reason, text);
        return;
    }
    if (strcmp(reply->answer, "done") != 0) {
        int reason = reason_not_drawn(s->op, reply, &text);
        retire_with(s, STORE_REFUSED, reason, text);
        return;
    }
    s->token = (uint64_t)reply->number;
    if (s->of->driver->draw_proves)
        taken(s);
    else
        tell(s, SQL_BEAT);
}

static void take(struct sql_session *s, struct store_op *op) {
    s->op = op;
    s->state = SQL_TAKING;
    s->has_beaten = false;
    s->token = 0;
    keep_for(s, op->lease_us);
    if (!s->of->driver->draw_proves || tell(s, SQL_BEAT))
        tell(s, SQL_DRAW);
}

/* ---- Locking the row ---- */

/* Somebody else has the row. */
static void row_is_busy(struct sql_session *s) {
    struct store_host *host = s->of->host;
    struct store_op *op = s->op;
    s->op = NULL;
    op->left_us = LATER_US;
    if (op->flags & STORE_WAIT) {
        s->state = SQL_WAITING;
        tell(s, SQL_AWAIT);
        store_complete(host, op, STORE_QUEUED);
        return;
    }
    s->state = SQL_ENDING;
    tell(s, SQL_ROLLBACK);
    store_refuse(host, op, HF_BUSY, NULL);
}

static void row_answered(struct sql_session *s, const struct sql_reply *reply) {
    struct store_host *host = s->of->host;
    if (s->state == SQL_ENDING) /* it is withdrawn */
        return;
    if (reply->has_row) {
        bool was_waiting = s->state == SQL_WAITING;
        s->state = SQL_LOCKED;
        if (was_waiting)
            host->wake(host, s->seq);
        else
            take(s, s->op);
    } else if (s->state == SQL_WAITING) { /* the name was unused for long: its row was deleted */
        uint64_t seq = s->seq;
        retire(s);
        host->wake(host, seq);
    } else {
        row_is_busy(s);
    }
}

static void start(struct sql_sessions *sessions, struct store_op *op, int tries) {
    struct sql_session *s = idle_session(sessions);
    char *name = s ? strdup(op->name) : NULL;
    if (!name) {
        store_refuse(sessions->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    s->tries = tries;
    s->seq = op->seq;
    s->name = name;
    s->op = op;
    s->is_shared = op->weight != STORE_ALL;
    s->lease_us = 0;
    s->state = SQL_LOCKING;
    tell(s, SQL_LOCK);
}

/* ---- Acquire ---- */

static void withdraw(struct sql_session *s, struct store_op *op);

void sql_session_acquire(struct sql_sessions *sessions, struct store_op *op) {
    struct store_host *host = sessions->host;
    struct sql_session *s = find(sessions, op->seq);
    assert(!s || !s->op);
    if (op->flags & STORE_BARGE) {
        store_refuse(host, op, HF_UNSUPPORTED,
                     error_format("the server's queue for a row has an order of its own"));
    } else if (!s) {
        start(sessions, op, 0);
    } else if (s->state == SQL_LOCKED || s->state == SQL_HELD) {
        take(s, op);
    } else if (op->flags & STORE_WAIT) {
        op->left_us = LATER_US;
        store_complete(host, op, STORE_QUEUED);
    } else {
        withdraw(s, NULL);
        store_refuse(host, op, HF_BUSY, NULL);
    }
}

/* ---- Renew ---- */

/* A RENEW in flight: a beat of each session. */
struct sql_round {
    struct store_op *op;
    struct store_host *host;
    size_t left; /* beats without an answer */
};

static void count_beat(struct sql_round *round) {
    if (--round->left > 0)
        return;
    struct store_op *op = round->op;
    struct store_host *host = round->host;
    free(round);
    store_complete(host, op, STORE_DONE);
}

static void beaten(struct sql_session *s, const struct sql_call *call,
                   const struct sql_reply *reply) {
    struct store_renewal *item = &call->round->op->renewals[call->index];
    bool was_sent = reply->said != SQL_FAILED || reply->reason != HF_NO_MEMORY;
    bool has_failed = reply->said == SQL_FAILED && was_sent;
    bool is_silent = reply->said == SQL_SILENT || !was_sent;
    item->outcome = s->is_over || reply->said == SQL_ENDED || has_failed ? STORE_NOT_YOURS
                    : is_silent                                          ? STORE_UNKNOWN
                                                                         : STORE_DONE;
    if (item->outcome == STORE_DONE)
        was_kept(s);
    if (has_failed && !s->is_over)
        retire(s);
    count_beat(call->round);
}

static void beat_session(struct sql_sessions *sessions, struct sql_round *round, size_t index) {
    struct store_renewal *item = &round->op->renewals[index];
    const struct store_op *of = item->of;
    struct sql_session *s = of ? find(sessions, of->seq) : NULL;
    item->outcome = STORE_NOT_YOURS;
    if (!s || s->state != SQL_HELD)
        return;
    if (s->over_us <= world_now_us(sessions->host->world)) {
        retire(s);
        return;
    }
    keep_for(s, item->lease_us);
    round->left++;
    if (send_call(s, (struct sql_call){.step = SQL_BEAT, .round = round, .index = index}))
        return;
    round->left--;
    item->outcome = STORE_UNKNOWN;
    item->reason = HF_NO_MEMORY;
}

void sql_session_renew(struct sql_sessions *sessions, struct store_op *op) {
    struct sql_round *round = calloc(1, sizeof(*round));
    if (!round) {
        store_refuse(sessions->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    *round = (struct sql_round){op, sessions->host, 1}; /* 1: until all have been sent */
    for (size_t i = 0; i < op->renewal_count; i++)
        beat_session(sessions, round, i);
    count_beat(round);
}

/* ---- Release ---- */

/* Leaves the server's queue. `op` completes when that is done; NULL: nobody waits for it. If there
 * is no memory to cancel the wait, the server will notice the end of the connection. */
static void withdraw(struct sql_session *s, struct store_op *op) {
    s->state = SQL_ENDING;
    s->op = op;
    s->has_left = true;
    if (!s->of->driver->is_connected(s))
        retire_with(s, STORE_DONE, 0, NULL); /* it was not connected yet */
    else if (!send_call(s, (struct sql_call){.step = SQL_CANCEL}))
        retire_with(s, STORE_UNKNOWN, HF_NO_MEMORY, NULL);
}

void sql_session_release(struct sql_sessions *sessions, struct store_op *op) {
    struct sql_session *s = find(sessions, op->seq);
    assert(!s || !s->op);
    if (!s) {
        store_complete(sessions->host, op, STORE_NOT_YOURS);
    } else if (s->state != SQL_LOCKED && s->state != SQL_HELD) {
        withdraw(s, op);
    } else {
        s->state = SQL_ENDING;
        s->op = op;
        s->has_left = false;
        tell(s, SQL_COMMIT);
    }
}

static void committed(struct sql_session *s, const struct sql_reply *reply) {
    struct store_host *host = s->of->host;
    if (reply->said != SQL_DONE) {
        retire_with(s, STORE_UNKNOWN, HF_UNREACHABLE, NULL);
        return;
    }
    struct store_op *op = s->op;
    s->op = NULL;
    become_idle(s);
    store_complete(host, op, STORE_DONE);
}

/* ---- Answers ---- */

/* An error ends the transaction, and with it the session. So does silence, except in answer to a
 * BEAT: the row may still be locked. */
static bool has_failed(const struct sql_call *call, const struct sql_reply *reply) {
    return reply->said == SQL_FAILED || (reply->said == SQL_SILENT && call->step != SQL_BEAT);
}

static void session_answered(struct sql_session *s, const struct sql_call *call,
                             struct sql_reply *reply) {
    if (call->step == SQL_COMMIT) {
        committed(s, reply);
    } else if (has_failed(call, reply)) {
        sql_session_failed(s, reply->reason, reply->text);
        reply->text = NULL;
    } else if (call->step == SQL_BEAT) {
        taking_beaten(s, reply);
    } else if (call->step == SQL_ROLLBACK) {
        become_idle(s);
    } else {
        row_answered(s, reply);
    }
}

void sql_answered(struct sql_call *call, struct sql_reply reply) {
    struct sql_session *s = call->session;
    if (call->round)
        beaten(s, call, &reply);
    else if (s && call->step == SQL_DRAW)
        drawn(s, &reply);
    else if (s && call->step == SQL_CANCEL)
        retire_with(s, reply.said == SQL_SILENT ? STORE_UNKNOWN : STORE_DONE, 0, NULL);
    else if (s && !s->is_over && reply.said != SQL_ENDED)
        session_answered(s, call, &reply);
    free(reply.text);
    free(call);
}

/* ---- Opening and closing ---- */

int sql_sessions_open(struct sql_sessions *sessions, struct store_host *host,
                      const struct sql_session_driver *driver) {
    sessions->host = host;
    sessions->driver = driver;
    list_init(&sessions->open);
    list_init(&sessions->ended);
    return world_timer_add(host->world, &sessions->reaper, reap);
}

void sql_sessions_close(struct sql_sessions *sessions) {
    while (!list_empty(&sessions->open))
        retire_with(session_of(sessions->open.next), STORE_UNKNOWN, HF_CLOSED, NULL);
    reap(&sessions->reaper);
    world_timer_drop(sessions->host->world, &sessions->reaper);
}
