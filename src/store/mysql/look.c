/* INSPECT and LIST, each in one statement. They change nothing: expired claims are left out, and
 * the next request for the lock removes them. */
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                \
    "l.name, l.kind, l.capacity, l.token, l.broken_us, l.broken_token, l.broken_by,"           \
    " l.broken_reason, HEX(c.client), c.seq, c.state, c.token, c.weight, c.since_us DIV 1000," \
    " COALESCE((c.until_us - " MYSQL_NOW ") DIV 1000, -1), c.pid, c.host, c.command, c.label"

/* The table of holders and waiters, and which of its rows count. */
struct claims {
    const char *table, *lives;
};

static const struct claims leases = {"holdfast_claims c",
                                     "c.name = l.name AND c.state < 4 AND c.until_us > " MYSQL_NOW};

static const struct claims sessions = {
    "(SELECT client, seq, name, 1 AS state, 0 AS ticket, token, weight, since_us, NULL AS until_us,"
    " pid, host, command, label FROM holdfast_sessions"
    " WHERE IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)) = session) c",
    "c.name = l.name"};

static const struct claims *claims_of(const struct mysql *my) {
    return mysql_for_update(my) ? &sessions : &leases;
}

static void look_answered(struct mysql *my, struct my_request *request,
                          const struct my_result *result, const char *why) {
    struct store_op *op = request->op;
    const char *values[SQL_LOOK_COLUMNS];
    if (!mysql_has_rows(result, SQL_LOOK_COLUMNS)) {
        mysql_fail(my, request, result, why);
        return;
    }
    op->locks = locks_new();
    bool ok = op->locks;
    for (size_t row = 0; ok && row < result->rows; row++) {
        for (unsigned i = 0; i < SQL_LOOK_COLUMNS; i++)
            values[i] = my_value(result, row, i);
        ok = sql_add_row(op->locks, values);
    }
    if (ok) {
        store_complete(my->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(my->host, op, HF_NO_MEMORY, NULL);
}

/* A break ends the session before it commits its own changes. So with scheme=for-update, the first
 * statement waits for that commit. */
static char *write_inspect(const struct claims *claims, const struct store_op *op) {
    char *name = mysql_quote(op->name), *sql = NULL, *wait = strdup("");
    if (name && claims == &sessions) {
        free(wait);
        wait =
            mysql_write("SELECT 1 FROM holdfast_locks WHERE name = %s LOCK IN SHARE MODE;", name);
    }
    if (name && wait)
        sql = mysql_write("%s SELECT " COLUMNS " FROM holdfast_locks l LEFT JOIN %s ON %s"
                          " WHERE l.name = %s ORDER BY c.state, c.ticket, c.since_us",
                          wait, claims->table, claims->lives, name);
    free(name);
    free(wait);
    return sql;
}

static char *write_list(const struct claims *claims, const struct store_op *op) {
    char *end = strdup(op->name), *sql = NULL;
    if (end)
        sql_end_of_prefix(end);
    char *prefix = mysql_quote(op->name), *after = mysql_quote(op->after);
    char *beyond = end ? mysql_quote(end) : NULL;
    if (prefix && after && beyond)
        sql =
            mysql_write("SELECT " COLUMNS " FROM (SELECT * FROM holdfast_locks l WHERE l.name >= %s"
                        " AND (l.name < %s OR %s = '') AND l.name > %s"
                        " AND EXISTS (SELECT 1 FROM %s WHERE %s)"
                        " ORDER BY l.name LIMIT %zu) l JOIN %s ON %s"
                        " ORDER BY l.name, c.state, c.ticket, c.since_us",
                        prefix, beyond, beyond, after, claims->table, claims->lives, op->limit,
                        claims->table, claims->lives);
    free(end);
    free(prefix);
    free(after);
    free(beyond);
    return sql;
}

void mysql_look(struct mysql *my, struct store_op *op) {
    const struct claims *claims = claims_of(my);
    char *sql = op->type == STORE_INSPECT ? write_inspect(claims, op) : write_list(claims, op);
    mysql_send(my, my_request_new(my, op, look_answered, sql), op);
}
