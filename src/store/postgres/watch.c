/* Watching: the channel on which the functions of schema.sql report what happens to locks, and the
 * row in `watchers` that makes them do so.
 *
 * Design notes.
 *
 * A watcher listens to the channel, writes its row, and then waits for the transactions that may
 * have looked before the row existed. Those have read `watchers`, and have a number, since they
 * locked the row of a name before that. From then on nothing is missed. The row is leased, so a
 * dead watcher soon costs nothing. If its time has passed when it should be extended (the watcher
 * was stopped for too long, the server's clock has stepped, somebody deleted it), something may
 * have been missed, and the watcher starts again. It also starts again on a new connection.
 *
 * The operation itself also writes the row, over the other link: so a missing right is reported,
 * the schema is made if there is none, and a pooler is noticed. */
#include "base/error.h"
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"

#include <stdlib.h>
#include <string.h>

enum { EXTEND_US = 3000000, RETRY_US = 1000000 };
#define UNTIL "clock_timestamp() + interval '10 s'"

static const char listen_sql[] = "LISTEN holdfast_watch";

/* Also removes rows of others whose time has passed. */
static const char mark_sql[] =
    "WITH ended AS (DELETE FROM holdfast.watchers w USING ("
    "SELECT client FROM holdfast.watchers WHERE until <= clock_timestamp() AND client <> $1"
    " FOR UPDATE SKIP LOCKED) e WHERE w.client = e.client)"
    " INSERT INTO holdfast.watchers VALUES ($1, " UNTIL ")"
    " ON CONFLICT (client) DO UPDATE SET until = excluded.until";

/* The transactions that we must wait for: among those in $1, or among all if it is '', as at first.
 * If there are any, the answer takes a moment. */
static const char settle_sql[] =
    "SELECT string_agg(DISTINCT l.virtualtransaction, ' ') FROM pg_locks l, pg_sleep(0.02)"
    " WHERE l.relation = 'holdfast.watchers'::regclass AND l.virtualtransaction IN"
    " (SELECT virtualtransaction FROM pg_locks WHERE locktype = 'transactionid')"
    " AND ($1 = '' OR l.virtualtransaction = ANY (string_to_array($1, ' ')))";

static const char extend_sql[] = "UPDATE holdfast.watchers SET until = " UNTIL
                                 " WHERE client = $1 AND until > clock_timestamp()";

/* ---- The watch ---- */

static void say(struct postgres *pg, hf_change_type type, const char *text) {
    struct store_change change = {
        .type = type, .at_us = world_wall_us(pg->host->world), .text = text};
    pg->host->changed(pg->host, &change);
}

static void set_timer(struct postgres *pg, int64_t in_us) {
    struct world *world = pg->host->world;
    world_timer_set(world, &pg->watching.timer, world_now_us(world) + in_us);
}

/* The watch will start again. */
static void fall_back(struct postgres *pg, const char *why) {
    enum watch_state before = pg->watching.state;
    pg->watching.state = WATCH_LISTENING;
    if (before == WATCH_LIVE)
        say(pg, HF_CHANGE_MISSED, why);
}

static void step_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why);

/* `types` and `value` are those of the statement's one parameter, if it has one. */
static void step(struct postgres *pg, const char *sql, const char *types, const char *value) {
    struct pg_request *request = pg_request_new(pg, NULL, step_answered, sql, types, value);
    if (!request) {
        fall_back(pg, "out of memory");
        set_timer(pg, RETRY_US);
        return;
    }
    request->context = (void *)pg->watching.round;
    pg_link_submit(&pg->listener, request);
}

static void begin(struct postgres *pg) {
    pg->watching.round++;
    pg->watching.state = WATCH_LISTENING;
    step(pg, listen_sql, "", NULL);
}

static bool is_done(const PGresult *result) {
    return result && PQresultStatus(result) == PGRES_COMMAND_OK;
}

/* Continues according to the answer to the present step. False: it failed. */
static bool go_on(struct postgres *pg, const PGresult *result) {
    struct watching *w = &pg->watching;
    switch (w->state) {
    case WATCH_LISTENING:
        if (!is_done(result))
            return false;
        w->state = WATCH_MARKING;
        step(pg, mark_sql, "c", NULL);
        return true;
    case WATCH_MARKING:
        if (!is_done(result))
            return false;
        w->state = WATCH_SETTLING;
        step(pg, settle_sql, "s", "");
        return true;
    case WATCH_SETTLING:
        if (!postgres_has_rows(result, 1) || PQntuples(result) != 1)
            return false;
        if (!PQgetisnull(result, 0, 0)) {
            step(pg, settle_sql, "s", PQgetvalue(result, 0, 0));
            return true;
        }
        w->state = WATCH_LIVE;
        set_timer(pg, EXTEND_US);
        say(pg, HF_CHANGE_WATCHING, NULL);
        return true;
    default:
        set_timer(pg, EXTEND_US);
        return is_done(result) && strcmp(PQcmdTuples((PGresult *)result), "1") == 0;
    }
}

static void step_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    struct watching *w = &pg->watching;
    int reason;
    char *text = NULL;
    if (w->state == WATCH_OFF || (uintptr_t)request->context != w->round || go_on(pg, result))
        return;
    if (!is_done(result))
        postgres_explain(request, result, why, &reason, &text);
    fall_back(pg, text ? text : "the server forgot this watch");
    free(text);
    set_timer(pg, RETRY_US);
}

/* If the link is down, the watch starts again when it is connected. */
static void timer_due(struct world_timer *timer) {
    struct postgres *pg = container_of(timer, struct postgres, watching.timer);
    if (pg->watching.state == WATCH_OFF || pg->listener.state != PG_READY)
        return;
    if (pg->watching.state == WATCH_LIVE)
        step(pg, extend_sql, "c", NULL);
    else
        begin(pg);
}

void postgres_watch_connected(struct postgres *pg) {
    if (pg->watching.state != WATCH_OFF)
        begin(pg);
}

void postgres_watch_lost(struct postgres *pg, const char *why) {
    if (pg->watching.state != WATCH_OFF)
        fall_back(pg, why && *why ? why : "the connection was lost");
}

/* ---- The operations ---- */

static void watch_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                           const char *why) {
    if (!is_done(result)) {
        postgres_fail(pg, request, result, why);
        return;
    }
    if (pg->pooled) {
        store_refuse(pg->host, request->op, HF_UNSUPPORTED,
                     error_format("the server is behind a pooler, which does not announce "
                                  "changes"));
        return;
    }
    pg->watching.state = WATCH_LISTENING;
    store_complete(pg->host, request->op, STORE_DONE);
    if (pg->listener.state == PG_READY)
        begin(pg);
    else
        postgres_expect_wakes(pg);
}

void postgres_watch(struct postgres *pg, struct store_op *op) {
    postgres_send(pg, pg_request_new(pg, op, watch_answered, mark_sql, "c"), op);
}

/* The row stays until its lease ends, and the link keeps listening: its messages are ignored. */
void postgres_unwatch(struct postgres *pg, struct store_op *op) {
    pg->watching.state = WATCH_OFF;
    store_complete(pg->host, op, STORE_DONE);
}

int postgres_open_watch(struct postgres *pg) {
    return world_timer_add(pg->host->world, &pg->watching.timer, timer_due);
}

void postgres_close_watch(struct postgres *pg) {
    world_timer_drop(pg->host->world, &pg->watching.timer);
}

/* ---- Changes ---- */

static const struct {
    char word;
    hf_change_type type;
} words[] = {
    {'a', HF_CHANGE_ACQUIRED}, {'r', HF_CHANGE_RELEASED}, {'b', HF_CHANGE_BROKEN},
    {'w', HF_CHANGE_WAITING},  {'l', HF_CHANGE_LEFT},
};

/* Splits the text at its spaces. False: it does not have `count` parts. */
static bool split(char *text, char *ret_parts[], size_t count) {
    size_t n = 0;
    for (char *part; n < count && (part = strsep(&text, " ")); n++)
        ret_parts[n] = part;
    return n == count && !text;
}

/* What holdfast.report wrote. False: it is something else, or there is no memory. */
static bool read_change(char *text, struct store_change *ret_change) {
    enum { WORD, AT_US, LOOK, PARTS = LOOK + SQL_LOOK_COLUMNS };
    char *parts[PARTS];
    const char *values[SQL_LOOK_COLUMNS];
    if (!split(text, parts, PARTS))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (parts[WORD][0] == words[i].word)
            ret_change->type = words[i].type;
    }
    ret_change->at_us = strtoll(parts[AT_US], NULL, 10);
    for (int i = 0; i < SQL_LOOK_COLUMNS; i++)
        values[i] = postgres_bytes(parts[LOOK + i]);
    ret_change->locks = ret_change->type ? locks_new() : NULL;
    if (ret_change->locks && sql_add_row(ret_change->locks, values))
        return true;
    hf_locks_free(ret_change->locks);
    return false;
}

void postgres_watch_notified(struct postgres *pg, char *text) {
    struct store_change change = {0};
    if (pg->watching.state != WATCH_LIVE)
        return;
    if (read_change(text, &change)) {
        pg->host->changed(pg->host, &change);
    } else {
        say(pg, HF_CHANGE_MISSED, "a message was lost for lack of memory, or is not ours");
        say(pg, HF_CHANGE_WATCHING, NULL);
    }
}
