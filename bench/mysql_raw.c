/* See sql_raw.h: MariaDB and MySQL, with libmariadb. */
#include "result.h"
#include "sql_raw.h"

#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_SIZE = 400, DUPLICATE = 1062, DEADLOCK = 1213 };

struct raw_connection {
    MYSQL *conn;
    unsigned long seq;
};

const char *const raw_way_names[] = {
    "the same requests bare",
    "insert and delete bare",
    "GET_LOCK bare",
    "two empty statements bare",
};

const char *const raw_store = "mysql";

static struct {
    char user[64], password[64], host[64], name[64];
    unsigned port;
} database;

/* Runs a statement, and returns the first column of its first row as a number; 0: there is none.
 * The errors of a naive lock that others want too are passed on: the row is there already, or
 * InnoDB found a deadlock, which it does if many insert and delete one row. */
static double run(struct raw_connection *to, const char *sql, unsigned *ret_error) {
    double number = 0;
    unsigned error = mysql_query(to->conn, sql) ? mysql_errno(to->conn) : 0;
    bool more = !error;
    while (more) {
        MYSQL_RES *result = mysql_store_result(to->conn);
        MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
        if (row && row[0])
            number = atof(row[0]);
        mysql_free_result(result);
        more = mysql_next_result(to->conn) == 0;
    }
    if (error && ((error != DUPLICATE && error != DEADLOCK) || !ret_error))
        result_die(sql, mysql_error(to->conn));
    if (ret_error)
        *ret_error = error;
    return number;
}

struct raw_connection *raw_connect(void) {
    struct raw_connection *to = calloc(1, sizeof(*to));
    if (!to)
        result_die("connect", "no memory");
    to->conn = mysql_init(NULL);
    if (!mysql_real_connect(to->conn, database.host, database.user, database.password,
                            database.name, database.port, NULL, CLIENT_MULTI_RESULTS))
        result_die("connect", mysql_error(to->conn));
    run(to, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", NULL);
    return to;
}

void raw_close(struct raw_connection *to) {
    mysql_close(to->conn);
    free(to);
}

/* mysql://USER:PASSWORD@HOST:PORT/NAME */
void raw_find_server(const char *url) {
    if (sscanf(url, "mysql://%63[^:]:%63[^@]@%63[^:]:%u/%63[^?]", database.user, database.password,
               database.host, &database.port, database.name) != 5)
        result_die("not a URL that is understood", url);
    struct raw_connection *to = raw_connect();
    run(to, "CREATE TABLE IF NOT EXISTS bench_locks (name VARCHAR(64) PRIMARY KEY) ENGINE = InnoDB",
        NULL);
    run(to, "TRUNCATE bench_locks", NULL);
    raw_close(to);
}

/* ---- The store's requests, as it sends them (src/store/mysql/claims.c) ---- */

/* The id is the connection's own: its number. */
static void same_take(struct raw_connection *to, const char *name) {
    char sql[SQL_SIZE];
    snprintf(sql, sizeof(sql),
             "CALL holdfast_acquire('%s', 2, 2147483647, 2147483647, X'%032lx', %lu, 30000000, 0, "
             "0, 1, 0, 1, 'host', 'command', '')",
             name, mysql_thread_id(to->conn), ++to->seq);
    run(to, sql, NULL);
}

static void same_give(struct raw_connection *to, const char *name) {
    char sql[SQL_SIZE];
    snprintf(sql, sizeof(sql), "CALL holdfast_release('%s', X'%032lx', %lu)", name,
             mysql_thread_id(to->conn), to->seq);
    run(to, sql, NULL);
}

/* ---- What people use instead ---- */

/* The quoted name comes before the end. */
static const struct {
    const char *take, *take_end, *give;
} statements[] = {
    [RAW_INSERT] = {"INSERT INTO bench_locks VALUES (", ")",
                    "DELETE FROM bench_locks WHERE name = ("},
    [RAW_SESSION] = {"SELECT GET_LOCK(", ", 3600)", "SELECT RELEASE_LOCK("},
    [RAW_EMPTY] = {"SELECT (", ")", "SELECT ("},
};

bool raw_take(struct raw_connection *to, enum raw_way way, const char *name) {
    char sql[SQL_SIZE];
    unsigned error;
    if (way == RAW_SAME) {
        same_take(to, name);
        return true;
    }
    snprintf(sql, sizeof(sql), "%s'%s'%s", statements[way].take, name, statements[way].take_end);
    run(to, sql, &error);
    return !error;
}

void raw_give(struct raw_connection *to, enum raw_way way, const char *name) {
    char sql[SQL_SIZE];
    unsigned error;
    if (way == RAW_SAME) {
        same_give(to, name);
        return;
    }
    snprintf(sql, sizeof(sql), "%s'%s')", statements[way].give, name);
    do
        run(to, sql, &error);
    while (error);
}

/* ---- Costs ---- */

static double status(struct raw_connection *to, const char *name) {
    char sql[SQL_SIZE];
    snprintf(sql, sizeof(sql),
             "SELECT variable_value FROM information_schema.global_status "
             "WHERE variable_name = '%s'",
             name);
    return run(to, sql, NULL);
}

/* A renewal is an update, and everything else a call. */
struct raw_cost raw_cost(struct raw_connection *to) {
    return (struct raw_cost){
        .statements = status(to, "com_call_procedure"),
        .renewals = status(to, "com_update"),
        .log_bytes = status(to, "innodb_os_log_written"),
    };
}
