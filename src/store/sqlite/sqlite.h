/* What the files of the sqlite store share. sqlite.c has the driver and its design notes; path.c
 * says where the file may be; database.c opens it and runs statements; claims.c has the operations
 * that change locks, and look.c those that read them; counters.c has counters; changes.c reports
 * changes to watchers; examine.c checks the file for doctor; wake.c wakes waiters in other
 * processes; process.c tells living processes from dead ones. */
#ifndef STORE_SQLITE_SQLITE_H
#define STORE_SQLITE_SQLITE_H

#include "base/list.h"
#include "store/store.h"
#include "world/world.h"

#include <sqlite3.h>
#include <sys/types.h>

/* ---- path.c: the file ---- */

struct file {
    char *path; /* absolute, without symbolic links */
    int folder; /* a descriptor of the folder that it is in */
    dev_t device;
    ino_t inode;
    mode_t mode;
};

/* Finds the file that the URL's path names ("": the default one) and checks that it may be used.
 * Creates it, empty, if it does not exist; in the default place, also its folder. On failure an
 * hf_error and particulars. No other thread of this process may open or close the file meanwhile
 * (POSIX locks: FAILURES.md 38). */
int file_find(const char *url_path, struct file *ret, char **ret_text);
void file_drop(struct file *file);

/* Whether the path still leads to the same file. */
bool file_is_there(const struct file *file);

/* ---- database.c: statements ---- */

enum claim_state { HELD = 1, RESERVED = 2, WAITING = 3 };

enum statement {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_READ_LOCK,
    SQL_ADD_LOCK,
    SQL_GRANT,
    SQL_BREAK,
    SQL_SET_DAY,
    SQL_FIRST_WAITING,
    SQL_WAITING_BEFORE,
    SQL_LAST_TICKET,
    SQL_OWN_WAITING,
    SQL_ADD_CLAIM,
    SQL_TAKE,
    SQL_RESERVE,
    SQL_KEEP_PLACE,
    SQL_RENEW,
    SQL_END_CLAIM,
    SQL_END_HOLD,
    SQL_IS_CLAIMED,
    SQL_IS_HELD,
    SQL_OLD_LOCKS,
    SQL_FORGET_CLAIMS,
    SQL_FORGET_LOCK,
    SQL_INSPECT,
    SQL_LIST,
    SQL_EXTEND_WATCH,
    SQL_ADD_WATCHER,
    SQL_END_WATCH,
    SQL_END_WATCHES,
    SQL_WATCHERS,
    SQL_LAST_CHANGE,
    SQL_LOG_CHANGE,
    SQL_TRIM_CHANGES,
    SQL_FORGET_CHANGES,
    SQL_READ_CHANGES,
    SQL_READ_COUNTER,
    SQL_SET_COUNTER,
    SQL_REMOVE_COUNTER,
    SQL_END_COUNTERS,
    SQL_READ_ANSWER,
    SQL_KEEP_ANSWER,
    SQL_END_ANSWERS,
    SQL_COUNT
};

/* A connection. `failed` keeps the first failure (an extended SQLite result) of a transaction: from
 * then on statements do nothing, so only the end needs to check. */
struct database {
    sqlite3 *handle;
    struct world *world;
    sqlite3_stmt *statements[SQL_COUNT];
    int failed, error; /* the system's error, if any */
    int64_t busy_since_us;
    int log_pages; /* in the write-ahead log, after our last commit */
};

/* Opens the file. Creates its schema if it is empty, or checks it; raises the token base to
 * `token_floor`. */
int database_open(struct database *db, struct world *world, const struct file *file,
                  uint64_t token_floor, char **ret_text);

/* Before closing: empties a long log, because a process that opens the file while nobody else has
 * it open must read all of the log, and cannot know how much of it has been written back. This may
 * wait for the disk, but makes nobody else wait: if others are using the log, it stays as it is. */
void database_shorten_log(struct database *db);

/* Closes the connection, even one that was inherited through a fork, without touching the file. */
void database_drop(struct database *db);

/* The statement with its parameters bound, by letters: 's' text (NULL is ""), 'i' int64_t, 'u'
 * uint64_t, 'c' a client's id. NULL after a failure. */
sqlite3_stmt *database_use(struct database *db, enum statement which, const char *types, ...);

/* True if there is a row; false resets the statement. NULL: false. */
bool database_next(struct database *db, sqlite3_stmt *statement);

/* Runs a statement that gives no rows. */
void database_run(struct database *db, sqlite3_stmt *statement);

/* Ends a statement of which not all rows were wanted. */
void database_done(sqlite3_stmt *statement);

/* Undoes the transaction; the failure is kept for database_explain. */
void database_rollback(struct database *db);

/* What a failure means to the caller: an hf_error and particulars. */
int database_explain(struct database *db, const char *path, char **ret_text);

/* A row has the columns of its claim first, then those that look.c reads, then any others. */
enum { CLAIM_COLUMNS = 15, LOOK_COLUMNS = 11 };

/* ---- process.c: which processes are alive ---- */

/* A process as others can recognise it. Without evidence (spaces are 0) only its leases count. If
 * it has a guard, the guard must also be dead before the process counts as dead. */
struct process {
    int64_t pid;
    uint64_t started;               /* from /proc/PID/stat */
    uint64_t pid_space, time_space; /* namespaces */
    int64_t guard_pid;              /* 0: none; HF_LEASE_ONLY: its death proves nothing */
    uint64_t guard_started;
};

struct host_facts {
    struct process self;
    int64_t clock_offset_us; /* what this time namespace adds to CLOCK_BOOTTIME */
};

/* HF_OK, or an error with particulars. */
int process_read_facts(const struct store_identity *who, struct host_facts *ret, char **ret_text);

bool process_is_same(const struct process *a, const struct process *b);

/* True only if the process has certainly ended. */
bool process_is_dead(const struct host_facts *facts, const struct process *who);

/* A descriptor that becomes readable when the process ends (or its guard, if the process has
 * already ended); -1 if nothing can be proved. */
int process_open(const struct host_facts *facts, const struct process *who);

/* ---- sqlite.c: a client's session ---- */

struct claim {
    int64_t ticket;
    uint64_t seq, token;
    int64_t until_us;   /* when the lease, or the wait lease, ends on the host's clock */
    int64_t written_us; /* when that was written, by the same clock */
    int64_t since_us;   /* wall clock */
    struct process process;
    uint32_t weight;
    uint8_t state; /* 0: there is no such claim */
    uint8_t client[16];
};

/* What is known about the name of an operation. */
struct lock {
    const char *name;
    bool exists;
    uint8_t kind;
    uint32_t capacity, used;
    uint64_t token, token_base;
    int64_t used_day;
    bool is_watched;       /* by somebody who may have died */
    struct claim *holders; /* held and reserved */
    size_t holder_count, holder_room;
    struct claim first; /* of the waiters */
};

enum note_kind { NOTE_WAKE = 1, NOTE_GONE, NOTE_CHANGED };

/* A notification for a client, to be sent once the transaction is committed. */
struct note {
    uint8_t client[16];
    uint64_t seq;
    enum note_kind kind;
    int64_t until_us; /* when it is no longer worth sending; 0: not sent yet */
};

enum { WATCHES_MAX = 64, WATCHES_EACH = 8 };

/* A waiter's watch on the process in front of it. */
struct watch {
    struct world_watch world;
    struct session *session;
    struct process process;
    uint64_t seq; /* 0: not in use */
};

/* This client's watch on all locks. */
struct watching {
    struct world_timer timer;
    bool is_on;   /* and the timer is added */
    bool is_live; /* WATCHING was reported, and MISSED was not */
    int64_t extend_us;
    int64_t last; /* the number of the last change that was reported */
};

struct session {
    struct store store;
    struct store_host *host;
    struct list link; /* in the process's sessions */
    uint64_t epoch;
    char *url_path;
    struct file file;
    struct database db;
    struct host_facts facts;
    int64_t wall_us; /* when the transaction started: `since` and the lease start together */
    struct lock lock;
    struct note *notes;
    size_t note_count, note_room;
    size_t unsent_count; /* at the front of `notes`: those that did not fit earlier */
    struct world_timer resend_timer;
    bool resend_added;
    struct process in_front[WATCHES_EACH]; /* of the waiter that was queued */
    size_t in_front_count;
    struct watch watches[WATCHES_MAX];
    size_t watch_count;
    struct watching watching;
    int wake_folder, wake_fd; /* -1: none */
    struct world_watch wake_watch;
    bool wake_bound, wake_failed;
    struct world_timer listen_timer;
    bool listen_added;
    uint64_t unheard; /* a hold that we could not be notified about so far; 0: none */
};

/* Every use of SQLite is between these two; they do not nest. */
void session_enter(void);
void session_leave(void);

/* Between them: opens what is there now, if the file was deleted or replaced. */
int session_find_file(struct session *s, char **ret_text);

static inline int64_t session_now_us(struct session *s) {
    return world_host_us(s->host->world) - s->facts.clock_offset_us;
}

/* How far ahead of us a claim may have been written: readers read the clock before the file. */
#define CLOCK_SLACK_US 1000000

/* Whether the claim has ended by itself: its lease has ended, or it is from an earlier boot of the
 * host. (Only then can it have been written at a time that is still in the future.) */
static inline bool claim_has_ended(const struct claim *claim, int64_t now_us) {
    return claim->until_us <= now_us || claim->written_us > now_us + CLOCK_SLACK_US;
}

/* ---- claims.c, look.c, counters.c: the operations, inside a transaction ---- */

enum store_outcome claims_acquire(struct session *s, struct store_op *op, int64_t now_us);
enum store_outcome claims_renew(struct session *s, struct store_op *op, int64_t now_us);
enum store_outcome claims_release(struct session *s, struct store_op *op, int64_t now_us);
enum store_outcome claims_break(struct session *s, struct store_op *op, int64_t now_us);
enum store_outcome sqlite_look(struct session *s, struct store_op *op, int64_t now_us);
enum store_outcome sqlite_count(struct session *s, struct store_op *op, int64_t now_us);

/* The lock of a row and its one claim; NULL if there is no memory. */
struct hf_locks *look_at_row(sqlite3_stmt *row, int64_t now_us);

/* examine.c: not inside a transaction. */
enum store_outcome sqlite_examine(struct session *s, struct store_op *op);

/* Whether this client holds something under `seq`; true also if that cannot be determined. */
bool claims_is_held(struct session *s, uint64_t seq);

/* ---- changes.c: watching ---- */

/* WATCH and UNWATCH; not inside a transaction. */
void changes_watch(struct session *s, struct store_op *op);
void changes_unwatch(struct session *s, struct store_op *op);

/* Logs a change of a claim of s->lock for the watchers. Call it before the claim ends, or after it
 * was written. */
void changes_log(struct session *s, const struct claim *claim, hf_change_type type, int64_t now_us);

/* Called when something may have been logged: reads the log soon. */
void changes_hint(struct session *s);

/* Ends the watch, if there is one. */
void changes_end(struct session *s);

/* ---- wake.c: notifications, and watches on processes ---- */

/* Makes the client reachable for notifications. Does nothing if it already is, or cannot be. */
void wake_listen(struct session *s);

/* The client got a hold, so it must be reachable soon; or it has released that hold. */
void wake_granted(struct session *s, uint64_t seq);
void wake_released(struct session *s, uint64_t seq);

/* Notes a notification for a client, to be sent by wake_send or dropped by wake_forget. */
void wake_note(struct session *s, const struct claim *claim, enum note_kind kind);
void wake_forget(struct session *s);
void wake_send(struct session *s);

/* Wakes `seq` when one of the processes in s->in_front ends. */
void wake_watch(struct session *s, uint64_t seq);
void wake_unwatch(struct session *s, uint64_t seq);

/* How many clients can be woken, and how many sockets dead ones left behind; checks a few hundred
 * at most. False if the folder cannot be used. */
bool wake_count(struct session *s, size_t *ret_living, size_t *ret_dead);

/* Closes everything. `inherited`: in a forked child, so that the files are the parent's. */
void wake_close(struct session *s, bool inherited);

#endif
