/* EXAMINE: what the server's settings mean for locks. It changes nothing: the writes that it
 * measures are messages in the server's write-ahead log, which nobody reads. */
#include "store/findings.h"
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES = 10, SKEW_US = 500000, DEAD_ROWS = 50000 };

enum {
    VERSION,
    COMMIT,
    FSYNC,
    PAGES,
    STANDBYS,
    REPLICAS,
    ISOLATION,
    CLOCK_US,
    NAMES,
    DEAD,
    OLDEST_S,
    RECOVERY,
    MISSING,
    COLUMN_COUNT
};

static const char settings_sql[] =
    "SELECT current_setting('server_version'), current_setting('synchronous_commit'),"
    " current_setting('fsync'), current_setting('full_page_writes'),"
    " current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),"
    " current_setting('default_transaction_isolation'),"
    " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,"
    " (SELECT count(*) FROM holdfast.locks),"
    " (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'holdfast'),"
    " (SELECT coalesce(extract(epoch FROM max(now() - xact_start)), 0)::bigint FROM "
    "pg_stat_activity"
    "  WHERE datname = current_database()),"
    " pg_is_in_recovery(),"
    " (SELECT coalesce(string_agg(word || ' on ' || tab, ', '), '')"
    "  FROM unnest(ARRAY['locks', 'claims', 'watchers', 'rows', 'sessions',"
    "  'counters', 'answers']) AS tab,"
    "  unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS word"
    "  WHERE NOT has_table_privilege('holdfast.' || tab, word))";

struct examining {
    hf_examination *out;
    bool no_memory;
    int64_t asked_us; /* the host's wall clock */
    int64_t began_us;
    int64_t us[WRITES];
    size_t writes;
};

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

static void finish(struct postgres *pg, struct pg_request *request, struct examining *x) {
    struct store_op *op = request->op;
    op->examination = x->out;
    if (x->writes)
        findings_measured(x->out, x->us, x->writes);
    bool no_memory = x->no_memory;
    free(x);
    if (!no_memory) {
        store_complete(pg->host, op, STORE_DONE);
        return;
    }
    op->examination = hf_examination_free(op->examination);
    store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
}

static void fail(struct postgres *pg, struct pg_request *request, const PGresult *result,
                 const char *why, struct examining *x) {
    hf_examination_free(x->out);
    free(x);
    postgres_fail(pg, request, result, why);
}

/* ---- What is found ---- */

static const char *text(const PGresult *row, int column) {
    return PQgetvalue(row, 0, column);
}

static int64_t number(const PGresult *row, int column) {
    return strtoll(text(row, column), NULL, 10);
}

/* Whether a lock that was granted survives a crash. */
static bool is_durable(const PGresult *row) {
    return strcmp(text(row, FSYNC), "on") == 0 && strcmp(text(row, PAGES), "on") == 0 &&
           strcmp(text(row, COMMIT), "off") != 0;
}

static bool is_synchronous(const PGresult *row) {
    return *text(row, STANDBYS) && strcmp(text(row, COMMIT), "local") != 0 && is_durable(row);
}

static const char *tier_of(const struct postgres *pg, const PGresult *row) {
    bool keeps_all = !postgres_for_update(pg) && is_durable(row) &&
                     (!number(row, REPLICAS) || is_synchronous(row));
    return keeps_all ? pg->store.driver->tier : "best effort";
}

static void examine_durability(struct examining *x, const PGresult *row) {
    if (strcmp(text(row, FSYNC), "on") != 0 || strcmp(text(row, PAGES), "on") != 0)
        ADD(x, HF_PROBLEM, "durability",
            "after a crash of its host the database may be damaged, and two may hold a lock",
            "set fsync and full_page_writes to on", "fsync is %s, full_page_writes is %s",
            text(row, FSYNC), text(row, PAGES));
    else if (strcmp(text(row, COMMIT), "off") == 0)
        ADD(x, HF_WARNING, "durability",
            "a crash of the server forgets locks that were granted within the last second: two may "
            "hold one",
            "set synchronous_commit to on, at least for this user: ALTER ROLE ... SET "
            "synchronous_commit = on",
            "synchronous_commit is off");
    else
        ADD(x, HF_FINE, "durability", "a crash of the server loses no lock that was granted", "",
            "synchronous_commit is %s, fsync is on", text(row, COMMIT));
}

static void examine_replication(struct examining *x, const PGresult *row) {
    if (number(row, REPLICAS) && !is_synchronous(row))
        ADD(x, HF_WARNING, "replication",
            "a standby that is promoted may not have the last locks: two may hold one",
            "name the standbys in synchronous_standby_names, and promote only one that was in sync",
            "%s standby%s asynchronously", text(row, REPLICAS),
            number(row, REPLICAS) == 1 ? " follows" : "s follow");
    else if (is_synchronous(row))
        ADD(x, HF_FINE, "replication", "a standby that was in sync has every lock that was granted",
            "", "synchronous_standby_names is \"%s\"", text(row, STANDBYS));
    else
        ADD(x, HF_FINE, "replication",
            "nothing takes over if the server fails; locks are then out of reach", "",
            "no standby follows the server, as far as this user may see");
}

static void examine_isolation(struct examining *x, const PGresult *row) {
    if (strcmp(text(row, ISOLATION), "read committed") != 0)
        ADD(x, HF_PROBLEM, "isolation", "every acquire is refused",
            "ALTER ROLE ... SET default_transaction_isolation = 'read committed'",
            "default_transaction_isolation is %s", text(row, ISOLATION));
    else
        ADD(x, HF_FINE, "isolation", "an operation sees the last committed state", "",
            "default_transaction_isolation is read committed");
}

static void examine_connection(struct examining *x, const struct postgres *pg) {
    if (pg->pooled)
        ADD(x, HF_NOTE, "connection",
            "a pooler does not pass notifications on: waiters ask again about three times a second",
            "if hand-offs should be immediate, name the server itself in the URL",
            "there is a pooler between this client and the server");
    else
        ADD(x, HF_FINE, "connection", "the server notifies the client whose turn it is", "",
            "the client is connected to the server itself");
}

static void examine_clock(struct examining *x, const PGresult *row, int64_t now_us) {
    int64_t server_us = number(row, CLOCK_US);
    int64_t ahead_us = server_us > now_us        ? server_us - now_us
                       : server_us < x->asked_us ? server_us - x->asked_us
                                                 : 0;
    if (ahead_us > SKEW_US || ahead_us < -SKEW_US)
        ADD(x, HF_WARNING, "clock",
            "tokens and displayed times are affected; leases only if a clock is set while locks "
            "are held",
            "synchronise both clocks (chrony, systemd-timesyncd)",
            "the server's clock is %" PRId64 " ms %s this host's",
            (ahead_us < 0 ? -ahead_us : ahead_us) / 1000, ahead_us < 0 ? "behind" : "ahead of");
    else
        ADD(x, HF_FINE, "clock", "the clocks of the server and this host agree", "",
            "the server's clock differs by %" PRId64 " ms at most", (now_us - x->asked_us) / 1000);
}

static void examine_size(struct examining *x, const PGresult *row) {
    if (number(row, OLDEST_S) > 600)
        ADD(x, HF_WARNING, "size",
            "while a transaction is open, old versions of rows cannot be removed: each operation "
            "on a lock takes longer",
            "end the transaction (pg_stat_activity shows whose it is)",
            "the oldest transaction of this database has been open for %s s", text(row, OLDEST_S));
    else if (number(row, DEAD) > DEAD_ROWS)
        ADD(x, HF_WARNING, "size",
            "each operation on a lock reads past rows that have been deleted, and takes longer",
            "see why autovacuum does not keep up; VACUUM holdfast.locks, holdfast.claims",
            "%s name%s and %s dead rows", text(row, NAMES), number(row, NAMES) == 1 ? "" : "s",
            text(row, DEAD));
    else
        ADD(x, HF_FINE, "size", "a name is forgotten a week after its last use", "", "%s name%s",
            text(row, NAMES), number(row, NAMES) == 1 ? "" : "s");
}

static void examine_role(struct examining *x, const PGresult *row) {
    if (strcmp(text(row, RECOVERY), "f") != 0)
        ADD(x, HF_PROBLEM, "role", "every acquire is refused",
            "name the primary, or all servers: postgres://a,b/db?target_session_attrs=read-write",
            "the server is a standby");
    else
        ADD(x, HF_FINE, "role", "it can grant locks", "", "the server is a primary");
}

static void examine_rights(struct examining *x, const PGresult *row) {
    if (*text(row, MISSING))
        ADD(x, HF_PROBLEM, "rights", "some requests are refused",
            "grant what docs/stores/postgres.md lists: holdfast schema --dialect postgres",
            "the user lacks %s", text(row, MISSING));
    else
        ADD(x, HF_FINE, "rights", "the user may do all that locks need", "", "no right is missing");
}

/* ---- Asking ---- */

static void write_once(struct postgres *pg, struct pg_request *of, struct examining *x);

static void written(struct postgres *pg, struct pg_request *request, const PGresult *result,
                    const char *why) {
    struct examining *x = request->context;
    (void)why;
    if (!postgres_has_rows(result, 1)) { /* not permitted: nothing is measured */
        finish(pg, request, x);
        return;
    }
    x->us[x->writes++] = world_now_us(pg->host->world) - x->began_us;
    write_once(pg, request, x);
}

static void write_once(struct postgres *pg, struct pg_request *of, struct examining *x) {
    struct pg_request *request =
        x->writes < WRITES
            ? pg_request_new(pg, of->op, written,
                             "SELECT pg_logical_emit_message(true, 'holdfast', '')", "")
            : NULL;
    if (!request) {
        finish(pg, of, x);
        return;
    }
    request->context = x;
    x->began_us = world_now_us(pg->host->world);
    pg_link_submit(&pg->commands, request);
}

static void settings_answered(struct postgres *pg, struct pg_request *request,
                              const PGresult *result, const char *why) {
    struct examining *x = request->context;
    if (!postgres_has_rows(result, COLUMN_COUNT) || PQntuples(result) != 1) {
        fail(pg, request, result, why, x);
        return;
    }
    x->out = findings_new(tier_of(pg, result));
    if (!x->out) {
        x->no_memory = true;
        finish(pg, request, x);
        return;
    }
    ADD(x, HF_FINE, "version", "holdfast is tested with PostgreSQL 15", "", "PostgreSQL %s",
        text(result, VERSION));
    examine_role(x, result);
    examine_rights(x, result);
    examine_durability(x, result);
    examine_replication(x, result);
    examine_isolation(x, result);
    examine_connection(x, pg);
    if (postgres_for_update(pg))
        x->no_memory |= !sql_find_for_update(x->out);
    examine_clock(x, result, world_wall_us(pg->host->world));
    examine_size(x, result);
    write_once(pg, request, x);
}

void postgres_examine(struct postgres *pg, struct store_op *op) {
    struct examining *x = calloc(1, sizeof(*x));
    struct pg_request *request =
        x ? pg_request_new(pg, op, settings_answered, settings_sql, "") : NULL;
    if (!request) {
        free(x);
        store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    x->asked_us = world_wall_us(pg->host->world);
    request->context = x;
    pg_link_submit(&pg->commands, request);
}
