/* INSPECT and LIST, each in one statement. They change nothing: expired claims are left out, and
 * the next request for the lock removes them. */
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                \
    "l.name, l.kind, l.capacity, l.token, l.broken_us, l.broken_token, l.broken_by,"           \
    " l.broken_reason, HEX(c.client), c.seq, c.state, c.token, c.weight, c.since_us DIV 1000," \
    " (c.until_us - " MYSQL_NOW ") DIV 1000, c.pid, c.host, c.command, c.label"
#define LIVES "c.name = l.name AND c.state < 4 AND c.until_us > " MYSQL_NOW

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

static char *write_inspect(const struct store_op *op) {
    char *name = mysql_quote(op->name);
    char *sql = name ? mysql_write("SELECT " COLUMNS
                                   " FROM holdfast_locks l LEFT JOIN holdfast_claims c ON " LIVES
                                   " WHERE l.name = %s ORDER BY c.state, c.ticket",
                                   name)
                     : NULL;
    free(name);
    return sql;
}

static char *write_list(const struct store_op *op) {
    char *end = strdup(op->name), *sql = NULL;
    if (end)
        sql_end_of_prefix(end);
    char *prefix = mysql_quote(op->name), *after = mysql_quote(op->after);
    char *beyond = end ? mysql_quote(end) : NULL;
    if (prefix && after && beyond)
        sql =
            mysql_write("SELECT " COLUMNS " FROM (SELECT * FROM holdfast_locks l WHERE l.name >= %s"
                        " AND (l.name < %s OR %s = '') AND l.name > %s"
                        " AND EXISTS (SELECT 1 FROM holdfast_claims c WHERE " LIVES ")"
                        " ORDER BY l.name LIMIT %zu) l JOIN holdfast_claims c ON " LIVES
                        " ORDER BY l.name, c.state, c.ticket",
                        prefix, beyond, beyond, after, op->limit);
    free(end);
    free(prefix);
    free(after);
    free(beyond);
    return sql;
}

void mysql_look(struct mysql *my, struct store_op *op) {
    char *sql = op->type == STORE_INSPECT ? write_inspect(op) : write_list(op);
    mysql_send(my, my_request_new(my, op, look_answered, sql), op);
}
