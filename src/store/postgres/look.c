/* INSPECT and LIST, each in one statement. They change nothing: expired claims are left out, and
 * the next request for the lock removes them. */
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                \
    "l.name, l.kind, l.capacity, l.token, extract(epoch FROM l.broken_at) * 1000000,"          \
    " l.broken_token, l.broken_by, l.broken_reason,"                                           \
    " c.client, c.seq, c.state, c.token, c.weight, extract(epoch FROM c.since) * 1000,"        \
    " CASE WHEN isfinite(c.until) THEN extract(epoch FROM c.until - clock_timestamp()) * 1000" \
    " ELSE -1 END, c.pid, c.host, c.command, c.label"

static const char inspect_sql[] =
    "SELECT " COLUMNS " FROM holdfast.locks l LEFT JOIN holdfast.claims c"
    " ON c.name = l.name AND c.until > clock_timestamp()"
    " WHERE l.name = $1 ORDER BY c.state, c.ticket";

/* $1 is the prefix; $2 sorts after all names that begin with it ('': nothing does); the list begins
 * after $3. */
static const char list_sql[] =
    "SELECT " COLUMNS " FROM ("
    "SELECT * FROM holdfast.locks WHERE name >= $1 AND (name < $2 OR $2 = '') AND name > $3"
    " AND EXISTS (SELECT FROM holdfast.claims"
    " WHERE claims.name = locks.name AND until > clock_timestamp())"
    " ORDER BY name LIMIT $4) l"
    " JOIN holdfast.claims c ON c.name = l.name AND c.until > clock_timestamp()"
    " ORDER BY l.name, c.state, c.ticket";

/* The same with scheme=for-update. A break ends the session before it commits its own changes, so
 * INSPECT waits for that commit, by locking the row. */
#define SESSIONS                                                                               \
    "(SELECT client, seq, name, 1 AS state, token, weight, since, NULL::timestamptz AS until," \
    " pid, host, command, label FROM holdfast.sessions WHERE holdfast.is_open(xact)) c"

static const char inspect_sessions_sql[] =
    "SELECT " COLUMNS " FROM holdfast.locks l LEFT JOIN " SESSIONS " ON c.name = l.name"
    " WHERE l.name = $1 ORDER BY c.since FOR SHARE OF l";

static const char list_sessions_sql[] =
    "SELECT " COLUMNS " FROM ("
    "SELECT * FROM holdfast.locks WHERE name >= $1 AND (name < $2 OR $2 = '') AND name > $3"
    " AND EXISTS (SELECT FROM holdfast.sessions"
    " WHERE sessions.name = locks.name AND holdfast.is_open(xact))"
    " ORDER BY name LIMIT $4) l"
    " JOIN " SESSIONS " ON c.name = l.name"
    " ORDER BY l.name, c.since";

static int digit(char c) {
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

const char *postgres_bytes(char *text) {
    if (text[0] != '\\' || text[1] != 'x')
        return text; /* NULL is "" */
    size_t size = strlen(text + 2) / 2;
    for (size_t i = 0; i < size; i++)
        text[i] = (char)(digit(text[2 + 2 * i]) << 4 | digit(text[3 + 2 * i]));
    text[size] = 0;
    return text;
}

static bool add_rows(struct hf_locks *locks, const PGresult *rows) {
    const char *values[SQL_LOOK_COLUMNS];
    bool ok = true;
    for (int row = 0; ok && row < PQntuples(rows); row++) {
        for (int i = 0; i < SQL_LOOK_COLUMNS; i++)
            values[i] = postgres_bytes(PQgetvalue(rows, row, i));
        ok = sql_add_row(locks, values);
    }
    return ok;
}

static void look_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    struct store_op *op = request->op;
    if (!postgres_has_rows(result, SQL_LOOK_COLUMNS)) {
        postgres_fail(pg, request, result, why);
        return;
    }
    op->locks = locks_new();
    if (op->locks && add_rows(op->locks, result)) {
        store_complete(pg->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
}

void postgres_look(struct postgres *pg, struct store_op *op) {
    struct pg_request *request = NULL;
    bool sessions = postgres_for_update(pg);
    if (op->type == STORE_INSPECT) {
        request = pg_request_new(pg, op, look_answered,
                                 sessions ? inspect_sessions_sql : inspect_sql, "b", op->name);
    } else {
        char *end = strdup(op->name);
        if (end) {
            sql_end_of_prefix(end);
            request = pg_request_new(pg, op, look_answered, sessions ? list_sessions_sql : list_sql,
                                     "bbbi", op->name, end, op->after, (int64_t)op->limit);
        }
        free(end);
    }
    postgres_send(pg, request, op);
}
