/* A program that adds 1 to a number in a database, under a lock, and may stop itself on the way:
 *
 *    writer LOCKS DATABASE NAME fenced|blind STOP ISOLATION
 *
 * LOCKS is the store, DATABASE has the table numbers (name, value), NAME is the lock and the row.
 * A blind writer does not check its token. STOP says when it stops itself (SIGSTOP): `never`,
 * `first`, when the transaction has begun, or `later`, between reading and writing. ISOLATION is
 * the transaction's level, with underscores. Its lease is short. It ends as if it had crashed,
 * without releasing anything, so the lock goes to the next writer when the lease has ended.
 *
 * It ends with 0 if it has committed, 3 if its token was refused, 4 if the transaction must be
 * tried again, and 1 if anything else went wrong. */
#include <holdfast/holdfast.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 1000, SQL_SIZE = 1000, EXIT_REFUSED = 3, EXIT_AGAIN = 4 };

static PGconn *database;
static char value[32];

static int status_of(const PGresult *result) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (state && strcmp(state, HF_FENCE_SQLSTATE) == 0)
        return EXIT_REFUSED;
    if (state && strcmp(state, "40001") == 0)
        return EXIT_AGAIN;
    fprintf(stderr, "%s", PQresultErrorMessage(result));
    return EXIT_FAILURE;
}

/* Runs a statement, and ends the program if it fails. */
__attribute__((format(printf, 1, 2))) static void sql(const char *format, ...) {
    char text[SQL_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    PGresult *result = PQexec(database, text);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        _Exit(status_of(result));
    if (PQntuples(result) > 0)
        snprintf(value, sizeof(value), "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
}

static void must(int r) {
    if (r == HF_OK)
        return;
    fprintf(stderr, "%s\n", hf_last_error());
    _Exit(EXIT_FAILURE);
}

/* Takes the lock; tries again if a slow machine got it too late or lost it before there was a
 * statement. */
static void acquire(const char *url, const char *name, char guard[HF_FENCE_SQL_SIZE]) {
    hf_client *client;
    hf_hold *hold;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    must(hf_client_open(url, NULL, &client));
    int r;
    do {
        r = hf_acquire(client, name, &options, &hold);
        if (r == HF_OK)
            r = hf_fence_sql(hold, HF_POSTGRES, guard, HF_FENCE_SQL_SIZE);
    } while (r == HF_LOST || r == HF_SHORT);
    must(r);
}

int main(int argc, char **argv) {
    char guard[HF_FENCE_SQL_SIZE];
    if (argc != 7)
        return EXIT_FAILURE;
    const char *name = argv[3], *stop = argv[5];
    char *isolation = argv[6];
    for (char *at = isolation; (at = strchr(at, '_'));)
        *at = ' ';
    database = PQconnectdb(argv[2]);
    acquire(argv[1], name, guard);
    sql("BEGIN ISOLATION LEVEL %s", isolation);
    if (strcmp(stop, "first") == 0)
        raise(SIGSTOP);
    if (strcmp(argv[4], "fenced") == 0)
        sql("%s", guard);
    sql("SELECT value FROM numbers WHERE name = '%s'", name);
    if (strcmp(stop, "later") == 0)
        raise(SIGSTOP);
    sql("UPDATE numbers SET value = %s + 1 WHERE name = '%s'", value, name);
    sql("COMMIT");
    _Exit(EXIT_SUCCESS);
}
