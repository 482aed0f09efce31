/* Fencing in PostgreSQL: the database refuses a writer that has lost the lock without knowing it.
 * Two workers add to an account's balance. The first takes the lock and pauses for longer than its
 * lease, so the second gets the lock and writes. When the first goes on, its whole transaction
 * fails, because the database has seen a larger token.
 *
 *    fence_postgres LOCKS DATABASE
 *
 * LOCKS is the URL of any store, such as that of a Redis; DATABASE is the URL of a PostgreSQL
 * database with the schema of holdfast, which `holdfast --url DATABASE doctor` makes. */
#include <holdfast/holdfast.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct worker {
    const char *name;
    hf_client *client;
    hf_hold *hold;
    PGconn *database;
    char guard[HF_FENCE_SQL_SIZE]; /* the statement that checks the token */
};

static bool start(struct worker *w, const char *locks, const char *database) {
    w->database = PQconnectdb(database);
    if (PQstatus(w->database) != CONNECTION_OK)
        fprintf(stderr, "%s", PQerrorMessage(w->database));
    else if (hf_client_open(locks, NULL, &w->client) < 0)
        fprintf(stderr, "%s\n", hf_last_error());
    else
        return true;
    return false;
}

static bool take_lock(struct worker *w) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 2000;
    options.flags = HF_NO_RENEW; /* as if the worker were paused from here on */
    if (hf_acquire(w->client, "account", &options, &w->hold) == HF_OK &&
        hf_fence_sql(w->hold, HF_POSTGRES, w->guard, sizeof(w->guard)) == HF_OK)
        return true;
    fprintf(stderr, "%s: %s\n", w->name, hf_last_error());
    return false;
}

/* Runs a statement; returns the SQLSTATE of its error, or "". */
static const char *run(const struct worker *w, const char *sql) {
    static char state[6];
    PGresult *result = PQexec(w->database, sql);
    const char *error = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof(state), "%s", error ? error : "");
    if (error)
        printf("%s: %s\n", w->name, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
    PQclear(result);
    return state;
}

/* The transaction: the check comes first, then what the lock guards. */
static const char *add(const struct worker *w, int amount) {
    char update[100];
    snprintf(update, sizeof(update), "UPDATE accounts SET balance = balance + %d", amount);
    const char *const statements[] = {"BEGIN", w->guard, update, "COMMIT"};
    for (size_t i = 0; i < 4; i++) {
        const char *state = run(w, statements[i]);
        if (*state) {
            PQclear(PQexec(w->database, "ROLLBACK"));
            return state;
        }
    }
    printf("%s: has added %d\n", w->name, amount);
    return "";
}

static void stop(struct worker *w) {
    hf_hold_free(w->hold);
    hf_client_close(w->client);
    PQfinish(w->database);
}

static bool play(struct worker *first, struct worker *second) {
    run(first, "CREATE TABLE accounts (balance integer NOT NULL)");
    run(first, "INSERT INTO accounts VALUES (0)");
    if (!take_lock(first))
        return false;
    printf("first: has token %llu, and pauses\n", (unsigned long long)hf_hold_token(first->hold));
    if (!take_lock(second)) /* which waits until the first one's lease has ended */
        return false;
    bool written = !*add(second, 10);
    bool refused = strcmp(add(first, 1), HF_FENCE_SQLSTATE) == 0;
    run(first, "DROP TABLE accounts");
    return written && refused;
}

int main(int argc, char **argv) {
    struct worker first = {.name = "first"}, second = {.name = "second"};
    if (argc != 3) {
        fprintf(stderr, "usage: fence_postgres LOCKS DATABASE\n");
        return 64;
    }
    bool right = start(&first, argv[1], argv[2]) && start(&second, argv[1], argv[2]) &&
                 play(&first, &second);
    stop(&first);
    stop(&second);
    return right ? 0 : 1;
}
