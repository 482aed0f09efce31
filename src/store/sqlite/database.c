/* The database: its schema, how it is opened, and its statements.
 *
 * One connection for each client, in WAL mode, with synchronous=NORMAL: a commit is written, not
 * synced. If the host goes down, the last commits may be missing, but nothing else. That loses no
 * lock, since leases end with the boot anyway, and no token goes back, since the wall clock gives
 * them a floor. With OFF the file itself might be damaged; with FULL each acquire would wait for
 * the disk, for nothing.
 *
 * Pages are 1 KB, since the cost of a transaction is mostly the pages that it writes.
 *
 * One process at a time creates the schema: the one that holds a flock on the folder. Switching to
 * WAL is the one thing that SQLite cannot do while others use the file. */
#include "base/error.h"
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

enum {
    APPLICATION_ID = 0x486f4c64, /* "HoLd" */
    SCHEMA_VERSION = 4,
    PAGE_SIZE = 1024,
    CHECKPOINT_PAGES = 2000, /* the log is written back at about 2 MB */
    CLOSE_PAGES = 200,       /* when closing, so that the next to open has little to read */
    LOG_SIZE_MAX = 4 << 20,
    BUSY_LIMIT_US = 3000000, /* a transaction takes microseconds: some process is stopped */
    CREATE_LIMIT_US = 5000000,
    OPEN_TRIES = 100,
};

/* The watchers, and the log of changes that they read (changes.c). After its own, a change has some
 * columns of its lock, and then those of its claim. */
#define WATCH_TABLES                                                                      \
    "CREATE TABLE watchers ("                                                             \
    " client BLOB NOT NULL PRIMARY KEY,"                                                  \
    " until_us INTEGER NOT NULL"                                                          \
    ") WITHOUT ROWID;"                                                                    \
    "CREATE TABLE changes ("                                                              \
    " number INTEGER PRIMARY KEY AUTOINCREMENT,"                                          \
    " type INTEGER NOT NULL,"                                                             \
    " at_us INTEGER NOT NULL,"                                                            \
    " kind, capacity, last_token, broken_us, broken_token, broken_by, broken_reason,"     \
    " name, state, ticket, weight, until_us, client, seq, token, since_us, pid, started," \
    " pid_space, time_space, guard_pid, guard_started, host, command, label, written_us"  \
    ");"

/* Counters, and the answers to the requests that changed them (counters.c). */
#define COUNTER_TABLES                                                        \
    "CREATE TABLE counters ("                                                 \
    " name TEXT NOT NULL PRIMARY KEY,"                                        \
    " value INTEGER NOT NULL,"                                                \
    " until_us INTEGER NOT NULL" /* wall clock; 0: no end */                  \
    ") WITHOUT ROWID;"                                                        \
    "CREATE INDEX counters_by_end ON counters (until_us) WHERE until_us > 0;" \
    "CREATE TABLE answers ("                                                  \
    " client BLOB NOT NULL,"                                                  \
    " name TEXT NOT NULL,"                                                    \
    " seq INTEGER NOT NULL,"                                                  \
    " flags INTEGER NOT NULL,"                                                \
    " value INTEGER NOT NULL,"                                                \
    " life_us INTEGER NOT NULL,"                                              \
    " until_us INTEGER NOT NULL," /* CLOCK_BOOTTIME of the host */            \
    " PRIMARY KEY (client, name)"                                             \
    ") WITHOUT ROWID;"                                                        \
    "CREATE INDEX answers_by_end ON answers (until_us);"

static const char schema[] =
    "CREATE TABLE meta ("
    " id INTEGER PRIMARY KEY CHECK (id = 1),"
    " token_base INTEGER NOT NULL" /* no token is below it */
    ");"
    "CREATE TABLE locks (" /* the names that are in use, or were within a week */
    " name TEXT NOT NULL PRIMARY KEY,"
    " kind INTEGER NOT NULL," /* enum store_kind */
    " capacity INTEGER NOT NULL,"
    " token INTEGER NOT NULL,"               /* the largest ever granted */
    " used_day INTEGER NOT NULL,"            /* when it was last used, in days since the epoch */
    " broken_us INTEGER NOT NULL DEFAULT 0," /* the last break: wall clock; 0: none */
    " broken_token INTEGER NOT NULL DEFAULT 0,"
    " broken_by TEXT NOT NULL DEFAULT '',"
    " broken_reason TEXT NOT NULL DEFAULT ''"
    ") WITHOUT ROWID;"
    "CREATE INDEX locks_by_day ON locks (used_day);"
    "CREATE TABLE claims (" /* somebody's hold, or place in the queue */
    " name TEXT NOT NULL,"
    " state INTEGER NOT NULL,"  /* 1 held, 2 reserved, 3 waiting */
    " ticket INTEGER NOT NULL," /* the order of the queue; below 0: barges */
    " weight INTEGER NOT NULL,"
    " until_us INTEGER NOT NULL," /* end of the lease or wait lease, CLOCK_BOOTTIME of the host */
    " client BLOB NOT NULL,"      /* with seq, the attempt's id */
    " seq INTEGER NOT NULL,"
    " token INTEGER NOT NULL,"
    " since_us INTEGER NOT NULL," /* wall clock */
    " pid INTEGER NOT NULL,"      /* the process, for those in the same namespaces */
    " started INTEGER NOT NULL,"
    " pid_space INTEGER NOT NULL,"
    " time_space INTEGER NOT NULL,"
    " guard_pid INTEGER NOT NULL," /* a process that must also be dead; 0: none */
    " guard_started INTEGER NOT NULL,"
    " host TEXT NOT NULL," /* for people */
    " command TEXT NOT NULL,"
    " label TEXT NOT NULL,"
    " written_us INTEGER NOT NULL," /* when until_us was written, by the same clock */
    " PRIMARY KEY (name, state, ticket)"
    ") WITHOUT ROWID;"
    "INSERT INTO meta VALUES (1, 0);" WATCH_TABLES COUNTER_TABLES;

/* Each upgrades from the schema of that number to the next. Existing holds last until their leases
 * end. */
static const char *const upgrades[SCHEMA_VERSION] = {
    /* Schema 1 had the boot id, and mutexes (kind 1). */
    [1] = "ALTER TABLE meta DROP COLUMN boot_id;"
          "ALTER TABLE claims ADD COLUMN written_us INTEGER NOT NULL DEFAULT 0;"
          "UPDATE claims SET weight = 2147483647"
          " WHERE name IN (SELECT name FROM locks WHERE kind = 1);"
          "UPDATE locks SET kind = 2, capacity = 2147483647 WHERE kind = 1;",
    [2] = WATCH_TABLES,
    [3] = COUNTER_TABLES,
};

/* The columns of a claim, as claims.c reads them: CLAIM_COLUMNS. */
#define CLAIM                                                                                \
    "c.state, c.ticket, c.weight, c.until_us, c.client, c.seq, c.token, c.since_us, c.pid, " \
    "c.started, c.pid_space, c.time_space, c.guard_pid, c.guard_started, c.written_us"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* True if a claim has not ended at the time ?2; the same rule as claim_has_ended. */
#define LIVES "(c.until_us > ?2 AND c.written_us <= ?2 + " TEXT(CLOCK_SLACK_US) ")"

/* The columns that look.c reads after them. */
#define LOOK                                                                          \
    "l.name, l.kind, l.capacity, l.token, l.broken_us, l.broken_token, l.broken_by, " \
    "l.broken_reason, c.host, c.command, c.label"

static const char *const sql[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    /* At least one row: if there is no lock, its columns are NULL; likewise for the claim. */
    [SQL_READ_LOCK] = "SELECT " CLAIM ", m.token_base, l.kind, l.capacity, l.token, l.used_day,"
                      " EXISTS (SELECT 1 FROM watchers)"
                      " FROM meta m LEFT JOIN locks l ON l.name = ?1"
                      " LEFT JOIN claims c ON c.name = ?1"
                      " WHERE m.id = 1 ORDER BY c.state, c.ticket",
    [SQL_ADD_LOCK] = "INSERT INTO locks (name, kind, capacity, token, used_day)"
                     " VALUES (?1, ?2, ?3, ?4, ?5)",
    [SQL_GRANT] = "UPDATE locks SET kind = ?2, capacity = ?3, token = ?4 WHERE name = ?1",
    [SQL_BREAK] = "UPDATE locks SET token = ?2, used_day = ?3, broken_us = ?4, broken_token = ?5,"
                  " broken_by = ?6, broken_reason = ?7 WHERE name = ?1",
    [SQL_SET_DAY] = "UPDATE locks SET used_day = ?2 WHERE name = ?1",
    [SQL_FIRST_WAITING] = "SELECT " CLAIM " FROM claims c WHERE name = ?1 AND state = 3"
                          " ORDER BY ticket LIMIT 1",
    [SQL_WAITING_BEFORE] = "SELECT " CLAIM " FROM claims c WHERE name = ?1 AND state = 3"
                           " AND ticket < ?2 ORDER BY ticket DESC LIMIT 1",
    [SQL_LAST_TICKET] =
        "SELECT max(ticket) FROM claims WHERE name = ?1 AND state = 3 AND ticket < ?2",
    [SQL_OWN_WAITING] = "SELECT " CLAIM " FROM claims c WHERE name = ?1 AND state = 3"
                        " AND seq = ?2 AND client = ?3",
    [SQL_ADD_CLAIM] = "INSERT INTO claims VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,"
                      " ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    [SQL_TAKE] = "UPDATE claims SET state = 1, until_us = ?4, token = ?5, since_us = ?6,"
                 " written_us = ?7 WHERE name = ?1 AND state = ?2 AND ticket = ?3",
    [SQL_RESERVE] = "UPDATE claims SET state = 2 WHERE name = ?1 AND state = 3 AND ticket = ?2",
    [SQL_KEEP_PLACE] = "UPDATE claims SET until_us = ?3, written_us = ?4"
                       " WHERE name = ?1 AND state = 3 AND ticket = ?2",
    [SQL_RENEW] = "UPDATE claims SET until_us = max(until_us, ?4), written_us = ?5"
                  " WHERE name = ?1 AND state = 1 AND seq = ?2 AND client = ?3 AND until_us > ?5",
    [SQL_END_CLAIM] = "DELETE FROM claims WHERE name = ?1 AND state = ?2 AND ticket = ?3",
    [SQL_END_HOLD] = "DELETE FROM claims WHERE name = ?1 AND state = 1 AND seq = ?2"
                     " AND client = ?3 AND until_us > ?4 AND since_us >= ?5"
                     " AND NOT EXISTS (SELECT 1 FROM watchers)",
    [SQL_IS_CLAIMED] = "SELECT 1 FROM claims WHERE name = ?1 LIMIT 1",
    [SQL_IS_HELD] = "SELECT 1 FROM claims WHERE state = 1 AND seq = ?1 AND client = ?2",
    [SQL_OLD_LOCKS] = "SELECT name, token FROM locks WHERE used_day < ?1 ORDER BY used_day LIMIT 4",
    [SQL_FORGET_CLAIMS] = "DELETE FROM claims AS c WHERE name = ?1 AND NOT " LIVES,
    [SQL_FORGET_LOCK] = "DELETE FROM locks WHERE name = ?1"
                        " AND NOT EXISTS (SELECT 1 FROM claims WHERE name = ?1)",
    [SQL_INSPECT] =
        "SELECT " CLAIM ", " LOOK " FROM locks l LEFT JOIN claims c ON c.name = l.name AND " LIVES
        " WHERE l.name = ?1 ORDER BY c.state, c.ticket",
    [SQL_LIST] =
        "SELECT " CLAIM ", " LOOK " FROM claims c CROSS JOIN locks l ON l.name = c.name"
        " WHERE c.name >= ?1 AND " LIVES " AND c.name <> ?3 ORDER BY c.name, c.state, c.ticket",
    [SQL_EXTEND_WATCH] = "UPDATE watchers SET until_us = ?2 WHERE client = ?1",
    [SQL_ADD_WATCHER] = "INSERT INTO watchers VALUES (?1, ?2)",
    [SQL_END_WATCH] = "DELETE FROM watchers WHERE client = ?1",
    [SQL_END_WATCHES] = "DELETE FROM watchers WHERE NOT (until_us > ?1 AND until_us <= ?2)",
    [SQL_WATCHERS] = "SELECT client FROM watchers WHERE until_us > ?1 AND until_us <= ?2",
    [SQL_LAST_CHANGE] = "SELECT seq FROM sqlite_sequence WHERE name = 'changes'",
    [SQL_LOG_CHANGE] = "INSERT INTO changes SELECT NULL, ?4, ?5, l.kind, l.capacity, l.token,"
                       " l.broken_us, l.broken_token, l.broken_by, l.broken_reason, c.*"
                       " FROM claims c JOIN locks l ON l.name = c.name"
                       " WHERE c.name = ?1 AND c.state = ?2 AND c.ticket = ?3",
    [SQL_TRIM_CHANGES] = "DELETE FROM changes WHERE number <= last_insert_rowid() - ?1",
    [SQL_FORGET_CHANGES] = "DELETE FROM changes WHERE NOT EXISTS (SELECT 1 FROM watchers)",
    [SQL_READ_CHANGES] =
        "SELECT " CLAIM ", c.name, c.kind, c.capacity, c.last_token, c.broken_us, c.broken_token,"
        " c.broken_by, c.broken_reason, c.host, c.command, c.label, c.number, c.type, c.at_us"
        " FROM changes c WHERE c.number > ?1"
        " AND EXISTS (SELECT 1 FROM watchers WHERE client = ?2) ORDER BY c.number",
    [SQL_READ_COUNTER] = "SELECT value, until_us FROM counters"
                         " WHERE name = ?1 AND (until_us = 0 OR until_us > ?2)",
    [SQL_SET_COUNTER] = "INSERT OR REPLACE INTO counters VALUES (?1, ?2, ?3)",
    [SQL_REMOVE_COUNTER] = "DELETE FROM counters WHERE name = ?1",
    [SQL_END_COUNTERS] = "DELETE FROM counters WHERE name IN (SELECT name FROM counters"
                         " WHERE until_us > 0 AND until_us <= ?1 LIMIT 4)",
    [SQL_READ_ANSWER] = "SELECT flags, value, life_us FROM answers"
                        " WHERE client = ?1 AND name = ?2 AND seq = ?3",
    [SQL_KEEP_ANSWER] = "INSERT OR REPLACE INTO answers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    /* Those beyond ?2 are from an earlier boot. */
    [SQL_END_ANSWERS] = "DELETE FROM answers WHERE (client, name) IN (SELECT client, name"
                        " FROM answers WHERE until_us <= ?1 OR until_us > ?2 LIMIT 4)",
};

/* ---- Statements ---- */

static void fail(struct database *db, int result) {
    if (db->failed)
        return;
    db->failed = result;
    db->error = sqlite3_system_errno(db->handle);
    if (!db->error)
        db->error = errno; /* SQLite does not record a COMMIT's system error */
}

static int bind(sqlite3_stmt *statement, const char *types, va_list values) {
    int r = SQLITE_OK;
    for (int i = 0; types[i] && r == SQLITE_OK; i++) {
        const char *text;
        switch (types[i]) {
        case 's':
            text = va_arg(values, const char *);
            r = sqlite3_bind_text(statement, i + 1, text ? text : "", -1, SQLITE_STATIC);
            break;
        case 'c':
            r = sqlite3_bind_blob(statement, i + 1, va_arg(values, const void *), 16,
                                  SQLITE_STATIC);
            break;
        case 'u':
            r = sqlite3_bind_int64(statement, i + 1, (int64_t)va_arg(values, uint64_t));
            break;
        default:
            r = sqlite3_bind_int64(statement, i + 1, va_arg(values, int64_t));
        }
    }
    return r;
}

sqlite3_stmt *database_use(struct database *db, enum statement which, const char *types, ...) {
    sqlite3_stmt **statement = &db->statements[which];
    int r = db->failed;
    if (!r && !*statement)
        r = sqlite3_prepare_v3(db->handle, sql[which], -1, SQLITE_PREPARE_PERSISTENT, statement,
                               NULL);
    if (!r) {
        va_list values;
        va_start(values, types);
        r = bind(*statement, types, values);
        va_end(values);
    }
    if (r)
        fail(db, r);
    return r ? NULL : *statement;
}

bool database_next(struct database *db, sqlite3_stmt *statement) {
    if (!statement)
        return false;
    errno = 0;
    int r = sqlite3_step(statement);
    if (r == SQLITE_ROW)
        return true;
    if (r != SQLITE_DONE)
        fail(db, r);
    sqlite3_reset(statement);
    return false;
}

void database_run(struct database *db, sqlite3_stmt *statement) {
    while (database_next(db, statement))
        ;
}

void database_done(sqlite3_stmt *statement) {
    sqlite3_reset(statement);
}

void database_rollback(struct database *db) {
    if (!sqlite3_get_autocommit(db->handle))
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
}

/* ---- Failures ---- */

static int explain_system(int error, const char *path, char **ret_text) {
    *ret_text = error_format("%s: %s", path, error ? strerror(error) : "input or output failed");
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return HF_STORE_FULL;
    case EACCES:
    case EPERM:
    case EROFS:
        return HF_DENIED;
    case ENOMEM:
        return HF_NO_MEMORY;
    default:
        return HF_SYSTEM;
    }
}

int database_explain(struct database *db, const char *path, char **ret_text) {
    if (db->failed == SQLITE_IOERR_NOMEM)
        return HF_NO_MEMORY;
    switch (db->failed & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        *ret_text = error_format("another process has kept %s locked for %d s; is it stopped?",
                                 path, BUSY_LIMIT_US / 1000000);
        return HF_UNREACHABLE;
    case SQLITE_FULL:
        *ret_text = error_format("no room is left for %s; free some", path);
        return HF_STORE_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        *ret_text = error_format("%s cannot be written to; look at its modes, its folder's, and "
                                 "how the file system is mounted",
                                 path);
        return HF_DENIED;
    case SQLITE_NOMEM:
        return HF_NO_MEMORY;
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        return explain_system(db->error, path, ret_text);
    default:
        *ret_text = error_format("%s: %s; it is left as it is: stop the programs that use it, then "
                                 "move it away with its -wal and -shm, and a new one is created",
                                 path, sqlite3_errstr(db->failed));
        return HF_BAD_STORE;
    }
}

/* ---- Waiting ---- */

static void pause_us(int64_t us) {
    struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, NULL);
}

/* SQLite calls this repeatedly while another connection has what it needs. It sleeps for
 * microseconds, since that is what a transaction takes. */
static int wait_busy(void *arg, int count) {
    struct database *db = arg;
    int64_t now_us = world_host_us(db->world);
    if (count == 0)
        db->busy_since_us = now_us;
    if (now_us - db->busy_since_us > BUSY_LIMIT_US)
        return 0;
    if (count < 4)
        sched_yield();
    else
        pause_us(count < 20 ? 50 : count < 60 ? 250 : 2000);
    return 1;
}

/* ---- Opening ---- */

static void execute(struct database *db, const char *text) {
    int r = db->failed ? db->failed : sqlite3_exec(db->handle, text, NULL, NULL, NULL);
    if (r)
        fail(db, r);
}

/* The one number that a query returns; -1 if there is none. */
static int64_t number(struct database *db, const char *text) {
    sqlite3_stmt *statement = NULL;
    int64_t value = -1;
    int r = db->failed ? db->failed : sqlite3_prepare_v2(db->handle, text, -1, &statement, NULL);
    if (r)
        fail(db, r);
    else if (database_next(db, statement))
        value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

/* 1: the database is ours; 0: it is empty, or has an earlier schema; otherwise an error. */
static int recognise(struct database *db, const char *path, char **ret_text) {
    execute(db, "BEGIN"); /* if another process is creating it, see all of that or nothing */
    int64_t application = number(db, "PRAGMA application_id");
    int64_t version = number(db, "PRAGMA user_version");
    int64_t things = number(db, "SELECT count(*) FROM sqlite_schema");
    database_rollback(db);
    if (db->failed)
        return database_explain(db, path, ret_text);
    if (application == APPLICATION_ID && version == SCHEMA_VERSION)
        return 1;
    if (application == APPLICATION_ID && 0 < version && version < SCHEMA_VERSION)
        return 0;
    if (application == APPLICATION_ID) {
        *ret_text = error_format("%s was written by another version of holdfast (schema %lld, not "
                                 "%d); use that one, or another file",
                                 path, (long long)version, SCHEMA_VERSION);
        return HF_BAD_STORE;
    }
    if (application == 0 && version == 0 && things == 0)
        return 0;
    *ret_text = error_format("%s is the database of another program; name another file", path);
    return HF_BAD_STORE;
}

/* Switches to WAL; others may have the file open for a moment. */
static void switch_to_log(struct database *db) {
    int64_t give_up_us = world_host_us(db->world) + CREATE_LIMIT_US;
    for (;;) {
        execute(db, "PRAGMA journal_mode = WAL");
        if ((db->failed & 0xff) != SQLITE_BUSY || world_host_us(db->world) > give_up_us)
            return;
        db->failed = 0;
        pause_us(1000);
    }
}

static void make_schema(struct database *db) {
    char version[128];
    snprintf(version, sizeof(version), "PRAGMA application_id = %d; PRAGMA user_version = %d",
             APPLICATION_ID, SCHEMA_VERSION);
    execute(db, "BEGIN IMMEDIATE");
    int64_t before = number(db, "PRAGMA user_version");
    if (before == 0)
        execute(db, schema);
    for (int64_t i = before; 0 < i && i < SCHEMA_VERSION; i++)
        execute(db, upgrades[i]);
    execute(db, version);
    execute(db, "COMMIT");
    if (db->failed)
        database_rollback(db);
}

static bool lock_folder(struct database *db, int folder) {
    int64_t give_up_us = world_host_us(db->world) + CREATE_LIMIT_US;
    while (flock(folder, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        if (world_host_us(db->world) > give_up_us) {
            errno = EWOULDBLOCK;
            return false;
        }
        pause_us(1000);
    }
    return true;
}

/* Creates the schema unless another process just did. */
static int create(struct database *db, const struct file *file, char **ret_text) {
    if (!lock_folder(db, file->folder)) {
        *ret_text = error_format("cannot lock the folder of %s to create it: %s", file->path,
                                 strerror(errno));
        return HF_UNREACHABLE;
    }
    int r = recognise(db, file->path, ret_text);
    if (r == 0) {
        switch_to_log(db);
        make_schema(db);
        r = db->failed ? database_explain(db, file->path, ret_text) : 1;
    }
    flock(file->folder, LOCK_UN);
    return r;
}

static void raise_token_base(struct database *db, uint64_t floor) {
    char text[128];
    if (!floor || number(db, "SELECT token_base FROM meta") >= (int64_t)floor)
        return;
    snprintf(text, sizeof(text), "UPDATE meta SET token_base = max(token_base, %llu)",
             (unsigned long long)floor);
    execute(db, text);
}

/* Writes the log back as far as it can without waiting for others. True if that was all of it. */
static bool write_back(struct database *db) {
    int pages = 0, written = 0; /* both -1 if it fails */
    int r =
        sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &written);
    return r == SQLITE_OK && pages == written;
}

static int committed(void *arg, sqlite3 *handle, const char *name, int log_pages) {
    struct database *db = arg;
    (void)handle;
    (void)name;
    db->log_pages = log_pages;
    if (log_pages > CHECKPOINT_PAGES)
        write_back(db);
    return SQLITE_OK;
}

static void set_up(struct database *db) {
    char text[128];
    sqlite3_busy_handler(db->handle, wait_busy, db);
    sqlite3_wal_hook(db->handle, committed, db);
    snprintf(text, sizeof(text),
             "PRAGMA page_size = %d; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = %d",
             PAGE_SIZE, LOG_SIZE_MAX);
    execute(db, text);
}

/* The log stays when the last process closes. Otherwise each short command would wait for the disk
 * four times, to write the log back and start a new one. database_shorten_log does that now and
 * then. */
static void keep_log(struct database *db) {
    int yes = 1;
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_PERSIST_WAL, &yes);
}

static int open_checked(struct database *db, const struct file *file, uint64_t token_floor,
                        char **ret_text) {
    set_up(db);
    int r = recognise(db, file->path, ret_text);
    if (r == 0)
        r = create(db, file, ret_text);
    if (r < 0)
        return r;
    if (sqlite3_db_readonly(db->handle, "main") == 1)
        fail(db, SQLITE_READONLY);
    raise_token_base(db, token_floor);
    database_rollback(db);
    keep_log(db);
    return db->failed ? database_explain(db, file->path, ret_text) : HF_OK;
}

static int try_to_open(struct database *db, const struct file *file, uint64_t token_floor,
                       char **ret_text) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
    int r = sqlite3_open_v2(file->path, &db->handle, flags, "unix");
    if (!r)
        return open_checked(db, file, token_floor, ret_text);
    db->failed = r;
    db->error = db->handle ? sqlite3_system_errno(db->handle) : 0;
    return database_explain(db, file->path, ret_text);
}

int database_open(struct database *db, struct world *world, const struct file *file,
                  uint64_t token_floor, char **ret_text) {
    int r = HF_SYSTEM;
    bool again = true;
    for (int tries = 0; again && tries < OPEN_TRIES; tries++) {
        *db = (struct database){.world = world};
        r = try_to_open(db, file, token_floor, ret_text);
        /* A file that was deleted leaves its log behind. If several processes then create a new one
         * at once, each tries to remove the old log, and all but one find it gone. */
        again = r < 0 && db->failed == SQLITE_IOERR_DELETE_NOENT;
        if (r < 0)
            database_drop(db); /* leave the file as it was */
        if (again) {
            free(*ret_text);
            *ret_text = NULL;
        }
    }
    return r;
}

/* ---- Closing ---- */

void database_drop(struct database *db) {
    if (db->handle)
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->handle);
    *db = (struct database){0};
}

void database_shorten_log(struct database *db) {
    if (!db->handle || db->log_pages <= CLOSE_PAGES || !write_back(db))
        return;
    sqlite3_busy_handler(db->handle, NULL, NULL);
    sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}
