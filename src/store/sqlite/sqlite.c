/* The sqlite store: locks among the processes of one host, in a file, with no server.
 *
 * Design notes.
 *
 * The model is memory.c's. The database has a row for each name and one for each claim
 * (database.c); each operation is one transaction, even a renewal of many holds. BEGIN IMMEDIATE
 * takes the file's one write lock, for about ten microseconds. No notification is sent before the
 * commit. All operations complete inside `submit`.
 *
 * Time is the host's CLOCK_BOOTTIME. Wall clocks are for tokens, the expiry of counters, and
 * people. CLOCK_BOOTTIME also tells boots apart, since it starts at 0 with each. A claim that was
 * written at a time still in the future is from an earlier boot, and void. Any other claim from an
 * earlier boot looks like a current one, and ends with its lease. (The boot id would not work: a
 * container sees its own, and would void what the host's processes hold.)
 *
 * SQLite does not survive a fork. The child's copy of its memory says that it has locks on the
 * file, but the kernel does not pass locks on to a child, and a connection that the child opened
 * would rely on them. So each use of SQLite is inside `gate`, which a fork closes: then no
 * connection is in the middle of anything. The first client that the child opens drops the
 * inherited connections without touching the file, and SQLite forgets them. A child that opens none
 * never touches them. A fork does not wait for a disk: after FORK_PATIENCE_US it goes ahead, and
 * the child then cannot use SQLite.
 *
 * The next operation notices if the file was deleted or replaced, and opens what is there now. The
 * earlier holds are lost with the old file; their next renewal reports that. */
#include "store/sqlite/sqlite.h"

#include "base/error.h"
#include "base/url.h"
#include "store/schemes.h"
#include "world/epoch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FORK_PATIENCE_US = 10000 };

static struct list sessions = {&sessions, &sessions};
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_once_t gate_once = PTHREAD_ONCE_INIT;

/* ---- Forks ---- */

static _Thread_local bool closed_gate; /* by this thread, to fork */
static bool forked_amid; /* this process was forked while SQLite was working in its parent */

static void close_gate(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + FORK_PATIENCE_US * 1000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    closed_gate = pthread_rwlock_timedwrlock(&gate, &until) == 0;
}

static void open_gate(void) {
    if (closed_gate)
        pthread_rwlock_unlock(&gate);
}

/* In the child the lock belongs to a thread that does not exist: the child gets a new lock. */
static void renew_gate(void) {
    forked_amid |= !closed_gate;
    gate = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
}

void session_enter(void) {
    pthread_rwlock_rdlock(&gate);
}

void session_leave(void) {
    pthread_rwlock_unlock(&gate);
}

static void guard_forks(void) {
    pthread_atfork(close_gate, open_gate, renew_gate);
}

static void session_free(struct session *s) {
    list_remove(&s->link);
    free(s->lock.holders);
    free(s->url_path);
    free(s);
}

/* The sessions of our parent process. */
static void drop_inherited(void) {
    uint64_t epoch = world_epoch();
    list_each_safe(node, &sessions) {
        struct session *s = container_of(node, struct session, link);
        if (s->epoch == epoch)
            continue;
        database_drop(&s->db);
        wake_close(s, true);
        file_drop(&s->file);
        session_free(s);
    }
}

/* ---- Opening and closing the file ---- */

/* With the gate closed: no other thread may open or close the file while it is being found. */
static int open_file(struct session *s, char **ret_text) {
    struct store_host *host = s->host;
    int r = file_find(s->url_path, &s->file, ret_text);
    if (r < 0)
        return r;
    r = database_open(&s->db, host->world, &s->file, host->token_floor, ret_text);
    if (r < 0)
        file_drop(&s->file);
    return r;
}

static void close_file(struct session *s) {
    wake_close(s, false);
    database_drop(&s->db);
    file_drop(&s->file);
}

/* Opens what is there now. Called inside the gate, which must be closed for this. */
static int reopen(struct session *s, char **ret_text) {
    session_leave();
    pthread_rwlock_wrlock(&gate);
    close_file(s);
    int r = open_file(s, ret_text);
    pthread_rwlock_unlock(&gate);
    session_enter();
    return r;
}

int session_find_file(struct session *s, char **ret_text) {
    return s->db.handle && file_is_there(&s->file) ? HF_OK : reopen(s, ret_text);
}

/* ---- Operations ---- */

static void run(struct session *s, enum statement statement) {
    database_run(&s->db, database_use(&s->db, statement, ""));
}

/* A commit that could not write its last page did not happen. If it failed after that, nobody sees
 * it now, but it may reappear when the log is recovered. */
static bool is_unknown(int failed, bool committing) {
    return committing && (failed & 0xff) != SQLITE_FULL && (failed & 0xff) != SQLITE_BUSY &&
           failed != SQLITE_IOERR_WRITE;
}

/* Reports why nothing was done, or that the outcome is unknown. */
static void complete_failed(struct session *s, struct store_op *op, bool committing) {
    bool unknown = is_unknown(s->db.failed, committing);
    database_rollback(&s->db);
    wake_forget(s);
    free(op->text);
    op->text = NULL;
    op->reason = database_explain(&s->db, s->file.path, &op->text);
    store_complete(s->host, op, unknown ? STORE_UNKNOWN : STORE_REFUSED);
}

static void finish(struct session *s, struct store_op *op, enum store_outcome outcome) {
    if (outcome == STORE_QUEUED)
        wake_watch(s, op->seq);
    else if (op->type == STORE_ACQUIRE || op->type == STORE_RELEASE)
        wake_unwatch(s, op->seq);
    if (op->type == STORE_RELEASE)
        wake_released(s, op->seq);
    bool granted = op->type == STORE_ACQUIRE && outcome == STORE_DONE;
    uint64_t seq = op->seq; /* a completed operation must not be read */
    store_complete(s->host, op, outcome);
    wake_send(s);
    if (granted)
        wake_granted(s, seq);
}

static void change(struct session *s, struct store_op *op) {
    static enum store_outcome (*const operations[])(struct session *, struct store_op *,
                                                    int64_t) = {
        [STORE_ACQUIRE] = claims_acquire, [STORE_RENEW] = claims_renew,
        [STORE_RELEASE] = claims_release, [STORE_BREAK] = claims_break,
        [STORE_COUNT] = sqlite_count,
    };
    enum store_outcome outcome = STORE_REFUSED;
    run(s, SQL_BEGIN);
    if (!s->db.failed) { /* read now: BEGIN may have waited */
        s->wall_us = world_wall_us(s->host->world);
        outcome = operations[op->type](s, op, session_now_us(s));
    }
    bool committing = !s->db.failed;
    run(s, SQL_COMMIT);
    if (s->db.failed)
        complete_failed(s, op, committing);
    else
        finish(s, op, outcome);
}

static void look_at(struct session *s, struct store_op *op) {
    enum store_outcome outcome =
        op->type == STORE_EXAMINE ? sqlite_examine(s, op) : sqlite_look(s, op, session_now_us(s));
    if (s->db.failed)
        complete_failed(s, op, false);
    else
        store_complete(s->host, op, outcome);
}

static void sqlite_submit(struct store *store, struct store_op *op) {
    struct session *s = container_of(store, struct session, store);
    char *text = NULL;
    int r = HF_OK;
    session_enter();
    /* Releasing what is gone is harmless and should cost nothing. */
    if (!s->db.handle || op->type != STORE_RELEASE)
        r = session_find_file(s, &text);
    s->db.failed = 0;
    if (r < 0)
        store_refuse(s->host, op, r, text);
    else if (op->type == STORE_INSPECT || op->type == STORE_LIST || op->type == STORE_EXAMINE)
        look_at(s, op);
    else if (op->type == STORE_WATCH)
        changes_watch(s, op);
    else if (op->type == STORE_UNWATCH)
        changes_unwatch(s, op);
    else
        change(s, op);
    session_leave();
}

/* ---- The driver ---- */

static void sqlite_close(struct store *store) {
    struct session *s = container_of(store, struct session, store);
    session_enter();
    changes_end(s);
    database_shorten_log(&s->db); /* not with the gate closed: other clients go on meanwhile */
    session_leave();
    pthread_rwlock_wrlock(&gate);
    close_file(s);
    session_free(s);
    pthread_rwlock_unlock(&gate);
}

static int sqlite_open(struct store_host *host, const struct url *url, struct store **ret_store,
                       char **ret_text) {
    if (url->host_count || url->option_count || url->user) {
        *ret_text = error_format("sqlite: takes the path of a file and nothing else, as in "
                                 "sqlite:/var/lib/app/locks.db");
        return HF_BAD_URL;
    }
    if (forked_amid) {
        *ret_text = error_format("this process was forked while its parent waited for the disk; "
                                 "only a program that it executes can use sqlite:");
        return HF_SYSTEM;
    }
    struct session *s = calloc(1, sizeof(*s));
    if (!s || !(s->url_path = strdup(url->path))) {
        free(s);
        return HF_NO_MEMORY;
    }
    s->store.driver = &store_sqlite;
    s->host = host;
    s->epoch = world_epoch();
    s->wake_folder = s->wake_fd = s->file.folder = -1;
    list_init(&s->link);
    int r = process_read_facts(&host->identity, &s->facts, ret_text);
    pthread_once(&gate_once, guard_forks);
    pthread_rwlock_wrlock(&gate);
    drop_inherited();
    if (!r)
        r = open_file(s, ret_text);
    if (r < 0)
        session_free(s);
    else
        list_append(&sessions, &s->link);
    pthread_rwlock_unlock(&gate);
    if (!r)
        *ret_store = &s->store;
    return r;
}

const struct store_driver store_sqlite = {
    .abi = STORE_ABI,
    .scheme = "sqlite",
    .tier = "timed",
    .capabilities = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH |
                    STORE_CAN_FLOOR | STORE_CAN_LOOK | STORE_CAN_EXAMINE | STORE_BLOCKS |
                    STORE_CAN_PUSH | STORE_CAN_COUNT | STORE_CAN_KEEP,
    .open = sqlite_open,
    .submit = sqlite_submit,
    .close = sqlite_close,
};
