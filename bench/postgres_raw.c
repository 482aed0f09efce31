/* See sql_raw.h: PostgreSQL, with libpq. */
#include "result.h"
#include "sql_raw.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_SIZE = 400 };

struct raw_connection {
    PGconn *conn;
    unsigned long seq;
};

const char *const raw_way_names[] = {
    "the same requests bare",
    "insert and delete bare",
    "pg_advisory_lock bare",
    "two empty statements bare",
};

const char *const raw_store = "postgres";

static const char *url;
static const char *const setup[] = {
    "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
    "CREATE TABLE IF NOT EXISTS bench_locks (name text PRIMARY KEY)",
    "TRUNCATE bench_locks",
};

/* Returns the SQLSTATE of an error, or "". */
static void run(struct raw_connection *to, const char *sql, char ret_state[6]) {
    PGresult *result = PQexec(to->conn, sql);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool failed = PQresultStatus(result) == PGRES_FATAL_ERROR;
    snprintf(ret_state, 6, "%s", failed ? state ? state : "08000" : "");
    PQclear(result);
}

static void must_run(struct raw_connection *to, const char *sql) {
    char state[6];
    run(to, sql, state);
    if (*state)
        result_die(sql, PQerrorMessage(to->conn));
}

struct raw_connection *raw_connect(void) {
    struct raw_connection *to = calloc(1, sizeof(*to));
    if (!to)
        result_die("connect", "no memory");
    to->conn = PQconnectdb(url);
    if (PQstatus(to->conn) != CONNECTION_OK)
        result_die("connect", PQerrorMessage(to->conn));
    return to;
}

void raw_close(struct raw_connection *to) {
    PQfinish(to->conn);
    free(to);
}

void raw_find_server(const char *database) {
    url = database;
    struct raw_connection *to = raw_connect();
    for (size_t i = 0; i < sizeof(setup) / sizeof(setup[0]); i++)
        must_run(to, setup[i]);
    raw_close(to);
}

/* ---- The store's requests, as it sends them (src/store/postgres/claims.c) ---- */

static const char acquire_sql[] =
    "SELECT * FROM holdfast.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
    "$15)";
static const char release_sql[] =
    "SELECT holdfast.release($1, $2, $3) FROM set_config('synchronous_commit', 'off', true)";

static void ask(struct raw_connection *to, const char *sql, int count, const char *const *values) {
    PGresult *result = PQexecParams(to->conn, sql, count, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        result_die(sql, PQerrorMessage(to->conn));
    PQclear(result);
}

/* An id of the connection's own: its backend's number. */
static void attempt(const struct raw_connection *to, char client[40], char seq[24]) {
    snprintf(client, 40, "%032x", (unsigned)PQbackendPID(to->conn));
    snprintf(seq, 24, "%lu", to->seq);
}

static void same_take(struct raw_connection *to, const char *name) {
    char client[40], seq[24];
    to->seq++;
    attempt(to, client, seq);
    const char *const values[] = {name, "2",        "2147483647", "2147483647", client,
                                  seq,  "30000000", "0",          "f",          "1",
                                  "0",  "1",        "host",       "command",    ""};
    ask(to, acquire_sql, 15, values);
}

static void same_give(struct raw_connection *to, const char *name) {
    char client[40], seq[24];
    attempt(to, client, seq);
    ask(to, release_sql, 3, (const char *const[]){name, client, seq});
}

/* ---- What people use instead ---- */

/* The quoted name comes before the end. */
static const struct {
    const char *take, *give, *end;
} statements[] = {
    [RAW_INSERT] = {"INSERT INTO bench_locks VALUES (", "DELETE FROM bench_locks WHERE name = (",
                    ")"},
    [RAW_SESSION] = {"SELECT pg_advisory_lock(hashtext(", "SELECT pg_advisory_unlock(hashtext(",
                     "))"},
    [RAW_EMPTY] = {"SELECT (", "SELECT (", ")"},
};

bool raw_take(struct raw_connection *to, enum raw_way way, const char *name) {
    char sql[SQL_SIZE], state[6];
    if (way == RAW_SAME) {
        same_take(to, name);
        return true;
    }
    snprintf(sql, sizeof(sql), "%s'%s'%s", statements[way].take, name, statements[way].end);
    run(to, sql, state);
    if (*state && strcmp(state, "23505") != 0)
        result_die(sql, PQerrorMessage(to->conn));
    return !*state;
}

void raw_give(struct raw_connection *to, enum raw_way way, const char *name) {
    char sql[SQL_SIZE];
    if (way == RAW_SAME) {
        same_give(to, name);
        return;
    }
    snprintf(sql, sizeof(sql), "%s'%s'%s", statements[way].give, name, statements[way].end);
    must_run(to, sql);
}

/* ---- Costs ---- */

struct raw_cost raw_cost(struct raw_connection *to) {
    PGresult *result = PQexec(
        to->conn, "SELECT coalesce(sum(calls), 0), coalesce(sum(calls) FILTER (WHERE query LIKE"
                  " '%holdfast.renew%'), 0), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
                  " FROM pg_stat_statements WHERE query LIKE '%holdfast.%'");
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        result_die("cost", PQerrorMessage(to->conn));
    struct raw_cost cost = {
        .statements = atof(PQgetvalue(result, 0, 0)),
        .renewals = atof(PQgetvalue(result, 0, 1)),
        .log_bytes = atof(PQgetvalue(result, 0, 2)),
    };
    PQclear(result);
    return cost;
}
