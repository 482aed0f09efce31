/* EXAMINE: what the server's settings mean for locks. It leaves nothing behind: to measure how long
 * a commit takes, a name is added and deleted again. */
#include "base/error.h"
#include "store/findings.h"
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES = 5, SKEW_US = 500000 };

/* Each one is a row with its name and value, if this server has it. */
static const char settings_sql[] =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog',"
    " 'innodb_doublewrite', 'log_bin', 'binlog_format', 'rpl_semi_sync_master_enabled',"
    " 'rpl_semi_sync_source_enabled', 'wsrep_on')";

enum { CLOCK_US, NAMES, REPLICAS, ENGINES, PROCEDURES, STATE_COLUMNS };
enum { PROCEDURE_COUNT = 8 };
static const char state_sql[] =
    "SELECT " MYSQL_NOW ", (SELECT COUNT(*) FROM holdfast_locks),"
    " (SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'),"
    " (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
    " AND table_name IN ('holdfast_locks', 'holdfast_claims', 'holdfast_rows', 'holdfast_sessions',"
    " 'holdfast_counters', 'holdfast_answers') AND engine <> 'InnoDB'),"
    " (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE()"
    " AND routine_name IN ('holdfast_acquire', 'holdfast_release', 'holdfast_break',"
    " 'holdfast_draw', 'holdfast_break_session',"
    " 'holdfast_acquire_free', 'holdfast_release_quiet', 'holdfast_count'))";

struct examining {
    hf_examination *out;
    bool no_memory;
    bool flushes, doublewrites, logs, syncs, is_semi_sync, is_galera, by_statement;
    char flush[8], sync[24];
    int64_t asked_us; /* the host's wall clock */
    int64_t began_us;
    int64_t us[WRITES];
    size_t writes;
};

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

static void finish(struct mysql *my, struct my_request *request, struct examining *x) {
    struct store_op *op = request->op;
    op->examination = x->out;
    if (x->writes)
        findings_measured(x->out, x->us, x->writes);
    bool no_memory = x->no_memory;
    free(x);
    if (!no_memory) {
        store_complete(my->host, op, STORE_DONE);
        return;
    }
    op->examination = hf_examination_free(op->examination);
    store_refuse(my->host, op, HF_NO_MEMORY, NULL);
}

static void fail(struct mysql *my, struct my_request *request, const struct my_result *result,
                 const char *why, struct examining *x) {
    hf_examination_free(x->out);
    free(x);
    mysql_fail(my, request, result, why);
}

/* ---- What is found ---- */

/* The value of a setting; "" if this server does not have it. */
static const char *setting(const struct my_result *rows, const char *name) {
    for (size_t i = 0; i < rows->rows; i++) {
        if (strcmp(my_value(rows, i, 0), name) == 0)
            return my_value(rows, i, 1);
    }
    return "";
}

static bool is_on(const struct my_result *rows, const char *name) {
    return strcmp(setting(rows, name), "ON") == 0;
}

static void read_settings(struct examining *x, const struct my_result *rows) {
    const char *flush = setting(rows, "innodb_flush_log_at_trx_commit");
    const char *sync = setting(rows, "sync_binlog");
    error_append(x->flush, sizeof(x->flush), "%s", flush);
    error_append(x->sync, sizeof(x->sync), "%s", sync);
    x->flushes = strcmp(flush, "1") == 0 || strcmp(flush, "3") == 0;
    x->doublewrites = strcmp(setting(rows, "innodb_doublewrite"), "OFF") != 0;
    x->logs = is_on(rows, "log_bin");
    x->syncs = strcmp(sync, "1") == 0;
    x->by_statement = x->logs && strcmp(setting(rows, "binlog_format"), "STATEMENT") == 0;
    x->is_semi_sync =
        is_on(rows, "rpl_semi_sync_master_enabled") || is_on(rows, "rpl_semi_sync_source_enabled");
    x->is_galera = is_on(rows, "wsrep_on");
}

static const char *tier_of(const struct mysql *my, const struct examining *x, int64_t replicas) {
    bool keeps_all =
        x->flushes && x->doublewrites && !x->is_galera && (!replicas || x->is_semi_sync);
    return keeps_all ? my->store.driver->tier : "best effort";
}

static bool is_older(const char *version, int major, int minor) {
    char *end;
    long number = strtol(version, &end, 10);
    return number < major || (number == major && *end == '.' && atoi(end + 1) < minor);
}

static void examine_version(struct examining *x, const struct my_greeting *server) {
    const char *name = server->is_mariadb ? "MariaDB" : "MySQL";
    if (server->is_mariadb ? is_older(server->version, 10, 6) : is_older(server->version, 8, 0))
        ADD(x, HF_PROBLEM, "version", "the server lacks SKIP LOCKED, and every acquire fails",
            "use MariaDB 10.6 or MySQL 8.0, or later", "%s %s", name, server->version);
    else
        ADD(x, HF_FINE, "version", "holdfast is tested with MariaDB 10.11", "", "%s %s", name,
            server->version);
}

static void examine_durability(struct examining *x) {
    if (!x->doublewrites)
        ADD(x, HF_PROBLEM, "durability",
            "after a crash of its host the database may be damaged, and two may hold a lock",
            "set innodb_doublewrite to ON", "innodb_doublewrite is OFF");
    else if (!x->flushes)
        ADD(x, HF_WARNING, "durability",
            "a crash of the server's host forgets locks that were granted within the last second: "
            "two "
            "may hold one",
            "set innodb_flush_log_at_trx_commit to 1", "innodb_flush_log_at_trx_commit is %s",
            x->flush);
    else
        ADD(x, HF_FINE, "durability", "a crash of the server loses no lock that was granted", "",
            "innodb_flush_log_at_trx_commit is %s", x->flush);
}

static void examine_replication(struct examining *x, int64_t replicas) {
    if (x->by_statement)
        ADD(x, HF_PROBLEM, "replication",
            "InnoDB cannot log statements at the isolation level READ COMMITTED: every acquire "
            "fails",
            "set binlog_format to MIXED or ROW", "binlog_format is STATEMENT");
    else if (replicas && !x->is_semi_sync)
        ADD(x, HF_WARNING, "replication",
            "a replica that is promoted may not have the last locks: two may hold one",
            "use semi-synchronous replication, and promote only a replica that was in sync",
            "%" PRId64 " replica%s asynchronously", replicas,
            replicas == 1 ? " follows" : "s follow");
    else if (x->logs && !x->syncs)
        ADD(x, HF_NOTE, "replication",
            "after a crash of the server's host, replicas may lack the last locks",
            "set sync_binlog to 1", "sync_binlog is %s", x->sync);
    else
        ADD(x, HF_FINE, "replication",
            "nothing takes over if the server fails; locks are then out of reach", "",
            "no replica follows the server asynchronously, as far as this user may see");
}

static void examine_cluster(struct examining *x) {
    if (x->is_galera)
        ADD(x, HF_WARNING, "cluster",
            "nodes have clocks of their own, and row locks are not shared between them: clients "
            "that "
            "use different nodes may both hold a lock when its lease ends",
            "let all clients use the same node", "the server is a node of a Galera cluster");
}

/* The server does not show procedures that the user may not call. */
static void examine_procedures(struct examining *x, const struct my_greeting *server,
                               int64_t count) {
    if (count < PROCEDURE_COUNT && server->is_mariadb)
        ADD(x, HF_NOTE, "procedures",
            "each request carries the text of its procedure, which the server parses each time: an "
            "acquire takes longer",
            "let an administrator run what `holdfast schema --dialect mariadb` prints",
            "this user may call %" PRId64 " of the %d procedures of holdfast", count,
            PROCEDURE_COUNT);
    else if (count < PROCEDURE_COUNT)
        ADD(x, HF_PROBLEM, "procedures", "every acquire is refused",
            "let an administrator run what `holdfast schema --dialect mysql` prints",
            "this user may call %" PRId64 " of the %d procedures of holdfast", count,
            PROCEDURE_COUNT);
    else
        ADD(x, HF_FINE, "procedures", "an operation is one call", "",
            "this user may call the procedures of holdfast");
}

static void examine_engine(struct examining *x, int64_t others) {
    if (others)
        ADD(x, HF_PROBLEM, "engine", "without row locks and transactions two may hold a lock",
            "ALTER TABLE holdfast_locks ENGINE = InnoDB, and the same for the other tables",
            "%" PRId64 " table%s not in InnoDB", others,
            others == 1 ? " of holdfast is" : "s of holdfast are");
}

static void examine_clock(struct examining *x, int64_t server_us, int64_t now_us) {
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

/* ---- Asking ---- */

static bool ask(struct mysql *my, struct store_op *op, struct examining *x, my_answered *answered,
                char *sql) {
    struct my_request *request = my_request_new(my, op, answered, sql);
    if (!request)
        return false;
    request->context = x;
    my_link_submit(&my->commands, request);
    return true;
}

static void write_once(struct mysql *my, struct my_request *of, struct examining *x);

static void written(struct mysql *my, struct my_request *request, const struct my_result *result,
                    const char *why) {
    struct examining *x = request->context;
    (void)why;
    if (!result || result->error) { /* not permitted: nothing is measured */
        finish(my, request, x);
        return;
    }
    x->us[x->writes++] = (world_now_us(my->host->world) - x->began_us) / 2;
    write_once(my, request, x);
}

static void write_once(struct mysql *my, struct my_request *of, struct examining *x) {
    uint8_t id[8];
    char name[2 * sizeof(id) + 1] = "";
    world_random(my->host->world, id, sizeof(id));
    for (size_t i = 0; i < sizeof(id); i++)
        error_append(name, sizeof(name), "%02x", id[i]);
    x->began_us = world_now_us(my->host->world);
    if (x->writes == WRITES ||
        !ask(my, of->op, x, written,
             mysql_write("INSERT INTO holdfast_locks (name, kind, capacity, used_day)"
                         " VALUES ('holdfast doctor %s', 2, 1, 0);"
                         "DELETE FROM holdfast_locks WHERE name = 'holdfast doctor %s'",
                         name, name)))
        finish(my, of, x);
}

static void state_answered(struct mysql *my, struct my_request *request,
                           const struct my_result *result, const char *why) {
    struct examining *x = request->context;
    if (!mysql_has_rows(result, STATE_COLUMNS) || result->rows != 1) {
        fail(my, request, result, why, x);
        return;
    }
    int64_t replicas = my_number(result, 0, REPLICAS);
    x->out = findings_new(tier_of(my, x, replicas));
    if (!x->out) {
        x->no_memory = true;
        finish(my, request, x);
        return;
    }
    examine_version(x, &my->commands.greeting);
    examine_durability(x);
    examine_replication(x, replicas);
    examine_cluster(x);
    if (mysql_for_update(my))
        x->no_memory |= !sql_find_for_update(x->out);
    examine_engine(x, my_number(result, 0, ENGINES));
    examine_procedures(x, &my->commands.greeting, my_number(result, 0, PROCEDURES));
    examine_clock(x, my_number(result, 0, CLOCK_US), world_wall_us(my->host->world));
    ADD(x, HF_FINE, "size", "a name is forgotten a week after its last use", "", "%s name%s",
        my_value(result, 0, NAMES), my_number(result, 0, NAMES) == 1 ? "" : "s");
    write_once(my, request, x);
}

static void settings_answered(struct mysql *my, struct my_request *request,
                              const struct my_result *result, const char *why) {
    struct examining *x = request->context;
    if (!mysql_has_rows(result, 2)) {
        fail(my, request, result, why, x);
        return;
    }
    read_settings(x, result);
    x->asked_us = world_wall_us(my->host->world);
    if (!ask(my, request->op, x, state_answered, strdup(state_sql))) {
        x->no_memory = true;
        finish(my, request, x);
    }
}

void mysql_examine(struct mysql *my, struct store_op *op) {
    struct examining *x = calloc(1, sizeof(*x));
    if (!x || !ask(my, op, x, settings_answered, strdup(settings_sql))) {
        free(x);
        store_refuse(my->host, op, HF_NO_MEMORY, NULL);
    }
}
