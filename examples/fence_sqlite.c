/* Fencing in a SQLite database: it refuses a writer that has lost the lock without knowing it. Two
 * workers add to an account's balance. The first takes the lock and pauses for longer than its
 * lease, so the second gets the lock and writes. When the first goes on, its transaction fails,
 * because the database has seen a larger token.
 *
 *    fence_sqlite LOCKS DATABASE
 *
 * LOCKS is the URL of any store, DATABASE a file, which is created. */
#include <holdfast/holdfast.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>

struct worker {
    const char *name;
    hf_client *client;
    hf_hold *hold;
    sqlite3 *database;
    char guard[HF_FENCE_SQL_SIZE]; /* the statement that checks the token */
};

static bool run(const struct worker *w, const char *sql) {
    if (sqlite3_exec(w->database, sql, NULL, NULL, NULL) == SQLITE_OK)
        return true;
    printf("%s: %s\n", w->name, sqlite3_errmsg(w->database));
    return false;
}

static bool start(struct worker *w, const char *locks, const char *database) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 1000;
    options.flags = HF_NO_RENEW; /* as if the worker were paused from here on */
    if (sqlite3_open(database, &w->database) != SQLITE_OK ||
        sqlite3_extended_result_codes(w->database, 1) != SQLITE_OK ||
        !run(w, HF_FENCE_SQLITE_TABLE))
        return false;
    if (hf_client_open(locks, NULL, &w->client) == HF_OK &&
        hf_acquire(w->client, "account", &options, &w->hold) == HF_OK &&
        hf_fence_sql(w->hold, HF_SQLITE, w->guard, sizeof(w->guard)) == HF_OK)
        return true;
    fprintf(stderr, "%s: %s\n", w->name, hf_last_error());
    return false;
}

/* The transaction: the check comes first, then what the lock guards. Returns the error code. */
static int add(const struct worker *w, int amount) {
    char update[100];
    snprintf(update, sizeof(update), "UPDATE accounts SET balance = balance + %d", amount);
    if (run(w, "BEGIN") && run(w, w->guard) && run(w, update) && run(w, "COMMIT")) {
        printf("%s: has added %d\n", w->name, amount);
        return SQLITE_OK;
    }
    int error = sqlite3_extended_errcode(w->database);
    sqlite3_exec(w->database, "ROLLBACK", NULL, NULL, NULL);
    return error;
}

static void stop(struct worker *w) {
    hf_hold_free(w->hold);
    hf_client_close(w->client);
    sqlite3_close(w->database);
}

int main(int argc, char **argv) {
    struct worker first = {.name = "first"}, second = {.name = "second"};
    if (argc != 3) {
        fprintf(stderr, "usage: fence_sqlite LOCKS DATABASE\n");
        return 64;
    }
    /* The second waits until the first one's lease has ended. */
    bool right = start(&first, argv[1], argv[2]) && start(&second, argv[1], argv[2]) &&
                 run(&first, "CREATE TABLE accounts AS SELECT 0 AS balance");
    right = right && add(&second, 10) == SQLITE_OK && add(&first, 1) == SQLITE_CONSTRAINT_CHECK;
    stop(&first);
    stop(&second);
    return right ? 0 : 1;
}
