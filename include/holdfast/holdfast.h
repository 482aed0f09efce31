/* SPDX-License-Identifier: MIT
 *
 * holdfast: locks shared by threads, processes and machines.
 *
 * This header is the manual of the library. Read this first page before you rely on a lock.
 *
 * WHAT IS PROMISED
 *
 *  Exclusion   Once an acquire has returned HF_OK with a deadline D (hf_hold_left_ms counts down
 *              to it), no conflicting acquire returns HF_OK until D passes, you release the lock,
 *              or an operator breaks it or deletes it in the store. This requires that the store
 *              keeps what it acknowledged and that its clock runs within `drift_ppm` of yours.
 *  Fencing     Each grant carries a token. Tokens of successive exclusive grants of one name
 *              strictly increase, whatever the clocks of the holders do.
 *  Ownership   A release or a renewal never touches somebody else's lock.
 *  Honesty     HF_OK is returned only while the lease is still valid. If a lock is lost, you are
 *              notified once in each way that you asked for: within 50 ms of its deadline,
 *              whatever the store does, and later only if your process was not running.
 *  Liveness    The lock of a dead holder is free when its lease ends, as long as the store
 *              answers. A dead waiter delays the others by its wait lease at most.
 *
 * WHAT NO LOCK CAN PROMISE
 *
 *  A process can be stopped (SIGSTOP, a suspended laptop, a paused virtual machine, swapping)
 *  between hf_check() and the write that follows it, for longer than the lease had left. The
 *  next holder then works at the same time. No lock service can prevent that, but the resource
 *  can: pass it the token with every write, and let it refuse any token smaller than the largest it
 *  has seen. Only tokens of exclusive holds can be used that way; see hf_hold_is_exclusive.
 *  "Fencing: the resource's side" below has the calls for files and databases.
 *
 * CONVENTIONS
 *
 *  - A call returns HF_OK (0) or a negative hf_error; hf_error_string() has a sentence for each
 *    code, and hf_last_error() the text of this thread's last failure. `ret_` parameters come
 *    last and are untouched on failure.
 *  - Types are opaque. Option structs begin with their size: initialise them with their _INIT
 *    macro and change what you need; NULL means all defaults. Structs that the library returns as
 *    `const struct *` may get more fields in later versions: do not copy them.
 *  - Any thread may make any call, even on the same object at the same time. But no call on an
 *    object may begin once the call that frees it has begun, and only hf_client_close may be called
 *    while other calls on its object are running. Calls that free accept NULL, and return NULL so
 *    that you can write `hold = hf_hold_free(hold)`.
 *  - The library does not log and does not install signal handlers. See hf_process for where it
 *    calls your functions.
 *  - Only calls that have a _start form, hf_call_wait, hf_limit and the recipes (leader, latch,
 *    barrier) wait for the store; opening and closing a client may wait for a local disk, and so
 *    may the calls for a fenced file. All other calls return at once, even while other threads
 *    wait.
 *    With sqlite: a call waits for as long as the disk takes, and for up to 3 seconds if another
 *    process keeps the file locked.
 *  - No call is a cancellation point: a thread that is cancelled (pthread_cancel) while it waits
 *    in the library finishes its call first.
 *  - After fork() every call on a handle in the child returns HF_FORKED; freeing a handle there
 *    frees its memory and does nothing else. The child may open clients of its own. fork() waits
 *    10 ms at most for a local disk; if the disk takes longer, the child cannot open sqlite:
 *    (HF_SYSTEM), but a program that it executes can.
 *  - Times are in milliseconds, on a clock that keeps running while the host is suspended.
 *    Strings are arbitrary bytes, UTF-8 by convention.
 *
 * A SMALL PROGRAM
 *
 *    hf_client *client;
 *    if (hf_client_open("memory:", NULL, &client) < 0) die(hf_last_error());
 *    hf_hold *hold;
 *    if (hf_acquire(client, "nightly-report", NULL, &hold) < 0) die(hf_last_error());
 *    write_report(hf_hold_token(hold));
 *    hf_release(hold);
 *    hf_hold_free(hold);
 *    hf_client_close(client);
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HF_API __attribute__((visibility("default")))
#else
#define HF_API
#endif

/* ---- Errors ------------------------------------------------------------------------------- */

/* X(name, number, sentence). Numbers are part of the ABI: new ones are added at the end. */
#define HF_ERROR_MAP(X)                                                             \
    X(BUSY, -1, "the lock is held by somebody else")                                \
    X(TIMEOUT, -2, "it did not happen in time")                                     \
    X(CANCELLED, -3, "the call was cancelled")                                      \
    X(SHORT, -4, "less time is left on the lock than was asked for")                \
    X(LOST, -5, "the lock was lost")                                                \
    X(RELEASED, -6, "the lock has been released")                                   \
    X(UNKNOWN, -7, "the store did not answer; whether it acted is unknown")         \
    X(NOT_YOURS, -8, "no hold with this token exists")                              \
    X(WRONG_KIND, -9, "the name is in use as another kind of lock")                 \
    X(BAD_NAME, -10, "a name must have 1 to 255 bytes and no NUL")                  \
    X(BAD_WEIGHT, -11, "the permits asked for do not fit the capacity")             \
    X(BAD_LEASE, -12, "the lease must be above 0 and at most max_lease")            \
    X(BAD_URL, -13, "the URL of the store is not valid")                            \
    X(BAD_ARGUMENT, -14, "an argument is not valid")                                \
    X(NO_STORE, -15, "there is no store for this kind of URL")                      \
    X(UNSUPPORTED, -16, "this store cannot do that safely")                         \
    X(UNREACHABLE, -17, "the store cannot be reached")                              \
    X(DENIED, -18, "the store does not permit it")                                  \
    X(BAD_STORE, -19, "the store's data is damaged or was not written by holdfast") \
    X(STORE_FULL, -20, "the store has no room left")                                \
    X(CLOCK, -21, "a clock is wrong, or clients differ in max_lease")               \
    X(NO_MEMORY, -22, "out of memory")                                              \
    X(SYSTEM, -23, "a system call failed")                                          \
    X(CLOSED, -24, "the client has been closed")                                    \
    X(FORKED, -25, "this handle belongs to the parent process")                     \
    X(PENDING, -26, "the call has not completed yet")                               \
    X(MISMATCH, -27, "the counter is not what was expected")                        \
    X(RANGE, -28, "the counter would leave its range")

typedef enum hf_error {
    HF_OK = 0,
#define HF_ERROR_CODE(name, number, sentence) HF_##name = (number),
    HF_ERROR_MAP(HF_ERROR_CODE)
#undef HF_ERROR_CODE
} hf_error;

/* The sentence for a code, or one that says that the code is unknown. Never NULL. */
HF_API const char *hf_error_string(int code);

/* The name of a code as it is written in programs ("HF_BUSY"), for logs. Never NULL. */
HF_API const char *hf_error_name(int code);

/* Why the calling thread's last failed call failed: the sentence of its code, and the details.
 * Valid until this thread's next call into the library. Never NULL; "" if nothing has failed. */
HF_API const char *hf_last_error(void);

/* ---- The client --------------------------------------------------------------------------- */

/* A client is a connection to one store. All threads of a program can share one. */
typedef struct hf_client hf_client;

/* A lock that was granted; see "The hold". */
typedef struct hf_hold hf_hold;

/* A call that was started and may not have completed yet; see "Calls that do not block". */
typedef struct hf_call hf_call;

/* Something that happened to a lock; see "Events". */
struct hf_event;

#define HF_FOREVER (-1)
#define HF_LEASE_ONLY (-1) /* for hf_client_options.guard_pid */
#define HF_DEFAULT_LEASE_MS 30000

typedef struct hf_client_options {
    size_t size;
    int64_t max_lease_ms;  /* the longest lease allowed; the same for all clients of a store */
    int64_t wait_lease_ms; /* how long a silent waiter keeps its place in the queue */
    uint32_t drift_ppm;    /* by how much the rates of the store's clock and ours may differ */
    uint64_t token_floor;  /* no token below this: for use after restoring or moving a store */
    const char *command;   /* what operators see as this client's program; NULL: its own name */
    /* A store on this host frees the locks of a dead process at once, without waiting for their
     * leases. If other processes do the work under the lock, name the one that outlives the rest:
     * the locks are then freed only once that process is dead as well. HF_LEASE_ONLY: none is sure
     * to outlive the rest, so only a release or the end of the lease frees a lock. 0: the client's
     * own process does the work. */
    int64_t guard_pid;
    /* Called for everything that happens to the client's locks; see hf_event. May be NULL. */
    void (*on_event)(const struct hf_event *event, void *arg);
    void *on_event_arg;
    /* How long an acquire without a limit (HF_FOREVER) retries while the store is unavailable: it
     * cannot be reached, or does not answer. 0: it fails at once; HF_FOREVER: no limit. Once the
     * store has answered, the acquire waits as long as it takes, even if the store becomes
     * unavailable again. */
    int64_t store_wait_ms;
} hf_client_options;

#define HF_CLIENT_OPTIONS_INIT \
    { sizeof(hf_client_options), 60000, 3000, 10000, 0, NULL, 0, NULL, NULL, 10000 }

/* Opens a client for the store that `url` names ("memory:", "sqlite:PATH", …; hf_store_at lists
 * what this build has). NULL means "sqlite:", the embedded store: a file that belongs to the user,
 * shared by the processes of one host. Does not wait for a server: if the store cannot be reached,
 * the first call that needs it waits or fails.
 * Errors: BAD_URL, NO_STORE (the text names the package that has it), BAD_ARGUMENT, UNSUPPORTED,
 * BAD_STORE, DENIED, UNREACHABLE, NO_MEMORY, SYSTEM. */
HF_API int hf_client_open(const char *url, const hf_client_options *options,
                          hf_client **ret_client);

/* Closes the client. Pending calls complete with HF_CLOSED, including those that other threads are
 * blocked in. Locks that are still held are released, except those with HF_KEEP; the call waits at
 * most a second for the store to confirm that, or until a local disk is done. Callbacks that are
 * still due run in this call and must return. Threads are joined. Holds and calls remain valid
 * handles: calls on them return HF_CLOSED, and they must still be freed. Must not be called from
 * one of the client's own callbacks. Returns NULL; NULL does nothing. */
HF_API hf_client *hf_client_close(hf_client *client);

/* Completes every pending call of the client with HF_CANCELLED, as hf_call_cancel does: those that
 * were started, and those that other threads are blocked in. Locks stay held and are still renewed,
 * except those that were being released: their releases go on.
 * Calls that begin later are not affected, so to stop a thread you also need a flag of your own:
 * set the flag first, and call this until the thread has ended. May be called from any thread and
 * any callback, but not from a signal handler: let the handler write to a pipe, and call this where
 * the pipe is read. Errors: CLOSED, FORKED. */
HF_API int hf_client_cancel(hf_client *client);

/* ---- Acquiring ---------------------------------------------------------------------------- */

/* A name is either a lock, which is held exclusively (a mutex, a writer) or shared (readers), or a
 * number of permits. Its current holders and waiters decide which; a request for the other kind, or
 * for another capacity, fails with HF_WRONG_KIND. Requests are served first in, first out: a later
 * one never overtakes one that waits, so shared requests cannot starve an exclusive one (HF_BARGE
 * opts out). The holdfast command uses the same names: `run` and `acquire` take HF_EXCLUSIVE, with
 * -s HF_SHARED, with -p K/N HF_PERMITS. */
typedef enum hf_kind {
    HF_EXCLUSIVE = 1, /* a lock, one holder; the default */
    HF_SHARED = 2,    /* a lock, together with others who share it */
    HF_PERMITS = 3,   /* `permits` out of `capacity` */
} hf_kind;

/* Take the lock as soon as there is room, ahead of the queue. */
#define HF_BARGE 0x1u
/* If this owner (the calling thread, or `owner_key`) already holds the lock through a request with
 * this flag, succeed at once and count. Each acquire returns its own hold; the lock is released
 * with the last of them. A shared hold cannot become exclusive this way (HF_WRONG_KIND), and k
 * permits cannot become more (HF_BAD_WEIGHT). */
#define HF_REENTRANT 0x2u
/* No automatic renewal: the lock ends with its lease unless you call hf_renew. */
#define HF_NO_RENEW 0x4u
/* Leave the lock to its lease: freeing the hold, closing the client and the death of the process do
 * not release it, only hf_release does. Until then it is renewed as usual. HF_UNSUPPORTED on stores
 * whose locks depend on their client (keeps in hf_store_info), and in hf_acquire_all. */
#define HF_KEEP 0x8u

typedef struct hf_acquire_options {
    size_t size;
    hf_kind kind;
    uint32_t permits;    /* HF_PERMITS: how many are wanted … */
    uint32_t capacity;   /* … of how many; other kinds ignore both */
    int64_t wait_ms;     /* 0: try once; HF_FOREVER: no limit */
    int64_t lease_ms;    /* after this long without a renewal, the lock can go to somebody else */
    int64_t min_left_ms; /* if less of the lease is left when it is granted: release, HF_SHORT */
    unsigned flags;      /* HF_BARGE, HF_REENTRANT, HF_NO_RENEW, HF_KEEP */
    uint64_t owner_key;  /* HF_REENTRANT: who is asking; 0: the calling thread */
    const char *label;   /* what operators see beside the lock; at most 255 bytes, or NULL */
    /* Called once if the lock is lost (hf_process says where). The hold is still valid then, and
     * hf_last_error says why it was lost. */
    void (*on_lost)(hf_hold *hold, void *arg);
    void *on_lost_arg;
} hf_acquire_options;

#define HF_ACQUIRE_OPTIONS_INIT                                                                   \
    {                                                                                             \
        sizeof(hf_acquire_options), HF_EXCLUSIVE, 1, 1, HF_FOREVER, HF_DEFAULT_LEASE_MS, 0, 0, 0, \
            NULL, NULL, NULL                                                                      \
    }

/* Acquires the lock `name`. The caller must free the hold. The client's own thread renews the lock
 * in the background, whenever a third of the lease has passed, until it is released or lost. To
 * cancel the wait from another thread, use hf_client_cancel, or hf_acquire_start and
 * hf_call_cancel.
 *
 * A store may grant a shorter or longer lease than you asked for. The deadline and the renewals
 * follow what was granted; hf_hold_left_ms says how much is left.
 *
 * If a reply is lost, the request is repeated with the same attempt id and the store recognises
 * it, so the lock is never granted twice and no grant is forgotten.
 *
 * If the store is unavailable, as during a restart, the call waits for it as for a lock that is
 * held: for wait_ms, or, if that is HF_FOREVER, for the client's store_wait_ms. A try (wait_ms is
 * 0) fails at once.
 *
 * Errors: BUSY (wait_ms is 0 and somebody holds it), TIMEOUT, SHORT, WRONG_KIND, BAD_NAME,
 * BAD_WEIGHT, BAD_LEASE, BAD_ARGUMENT, UNSUPPORTED, UNREACHABLE (throughout that time), UNKNOWN
 * (the store did not answer; whatever it granted is being released, and ends with its lease at the
 * latest), CLOCK, DENIED, BAD_STORE, STORE_FULL, NO_MEMORY, SYSTEM, CLOSED, FORKED. After any error
 * nothing is held. */
HF_API int hf_acquire(hf_client *client, const char *name, const hf_acquire_options *options,
                      hf_hold **ret_hold);

/* One of several names for hf_acquire_all. */
typedef struct hf_want {
    size_t size;
    const char *name;
    hf_kind kind;
    uint32_t permits;
    uint32_t capacity;
} hf_want;

#define HF_WANT_INIT \
    { sizeof(hf_want), NULL, HF_EXCLUSIVE, 1, 1 }

/* Acquires all of the `count` (1 to 64) names or none, within one wait_ms. They are acquired in the
 * byte order of their names, so two callers cannot deadlock, whatever order they give. The call
 * returns a single hold, which checks, renews and releases all of them. If one is lost, all are
 * (the others are then released), and hf_hold_name says which one it was. A name given twice fails
 * with HF_BAD_ARGUMENT, HF_REENTRANT and HF_KEEP with HF_UNSUPPORTED, and the loss of one name
 * while waiting for the others with HF_LOST. kind, permits and capacity of `options` are ignored.
 * Otherwise like hf_acquire. */
HF_API int hf_acquire_all(hf_client *client, const hf_want *const *wants, size_t count,
                          const hf_acquire_options *options, hf_hold **ret_hold);

/* ---- The hold ----------------------------------------------------------------------------- */

/* HF_OK: the lock is held, with at least `need_ms` left before its deadline (0: any time at all).
 * Ask for as long as the next step of your work takes. HF_SHORT: held, but with less time left.
 * HF_LOST, HF_RELEASED, HF_CLOSED, HF_FORKED: not held. Does not ask the store, and never waits for
 * it.
 *
 * After HF_LOST, hf_last_error says why: who broke the lock and why, that it is gone from the
 * store, or for how long it was not renewed and with which error. HF_LOST does not mean that
 * somebody else has the lock now, or had it meanwhile: it may be free. HF_OK does not rule out that
 * the lock was broken or deleted a moment ago: you are notified when the store says so, at the next
 * renewal at the latest. */
HF_API int hf_check(hf_hold *hold, int64_t need_ms);

/* Milliseconds until the deadline; 0 if the lock is not held. Never waits for the store.
 *
 * If holds end with their connection (session_bound in hf_store_info), this time is not guaranteed.
 * The server frees the lock as soon as the connection or the server itself ends, and you are
 * notified when this host sees that, by the deadline at the latest. */
HF_API int64_t hf_hold_left_ms(hf_hold *hold);

/* The fencing token of this grant: above 0 and below 2^53. With several names, hf_hold_token_at
 * returns the token of the index-th name in the order given, or 0 if there is no such index;
 * hf_hold_token returns that of the first name. */
HF_API uint64_t hf_hold_token(const hf_hold *hold);
HF_API uint64_t hf_hold_token_at(const hf_hold *hold, size_t index);

/* 1 if nobody else can hold the lock at the same time (HF_EXCLUSIVE, all of the permits), so
 * that the token fences; 0 for shared holds. With several names: 1 if that is true for all. */
HF_API int hf_hold_is_exclusive(const hf_hold *hold);

/* The name of the lock. With several names: the one that was lost, or else the first. */
HF_API const char *hf_hold_name(const hf_hold *hold);

/* The owner id that the store keeps for this hold: 128 random bits and a counter, as text. Anybody
 * who knows it can release the lock; everywhere else it is shown abbreviated. */
HF_API const char *hf_hold_owner(hf_hold *hold);

/* Renews now instead of at the next automatic renewal, for `lease_ms` (0: the current lease);
 * automatic renewals then use the new length. A renewal never shortens what is left.
 * Errors: LOST, RELEASED, BAD_LEASE, UNKNOWN or UNREACHABLE (still held, until the old deadline),
 * CLOSED, FORKED, NO_MEMORY. */
HF_API int hf_renew(hf_hold *hold, int64_t lease_ms);

/* Releases the lock. Returns HF_OK if it was released; HF_LOST if it had already been lost;
 * HF_UNKNOWN or HF_UNREACHABLE if the store did not confirm; HF_CANCELLED if you did not wait for
 * that. In the last three cases the release is repeated in the background until it is confirmed or
 * the lease has ended. Whatever it returns, this hold no longer holds the lock and sends no more
 * renewals. May be called again, and then returns the same, or HF_UNKNOWN after HF_CANCELLED. */
HF_API int hf_release(hf_hold *hold);

/* Frees the hold. If it was not released, releases it without waiting for the answer, unless it was
 * acquired with HF_KEEP. May be called right after hf_release_start: the call goes on without the
 * hold. Once this has returned, on_lost is not running and will not run (unless on_lost itself made
 * the call). */
HF_API hf_hold *hf_hold_free(hf_hold *hold);

/* A descriptor for poll() that becomes readable when the lock is lost. It belongs to the hold: do
 * not read or close it. Errors (negative): SYSTEM, NO_MEMORY, CLOSED, FORKED. */
HF_API int hf_hold_fd(hf_hold *hold);

/* ---- Fencing: the resource's side --------------------------------------------------------- */

/* A token protects a resource that does two things. It registers the token before you first read
 * from it, and with each write, in one atomic step, it refuses a token smaller than the largest it
 * has seen. The calls below do that for files and databases; docs/fencing.md also covers Redis,
 * etcd, ZooKeeper, services that speak HTTP and object stores.
 *
 * hf_fence_token: the token to hand to the resource, if the lock is held and the token fences. With
 * several names: that of the first.
 * Errors: LOST, RELEASED, CLOSED, FORKED as from hf_check; WRONG_KIND (the hold is not exclusive,
 * so its token does not fence); BAD_ARGUMENT. */
HF_API int hf_fence_token(hf_hold *hold, uint64_t *ret_token);

/* A file on this host, or anything else that only processes of this host write to. `path` names
 * it. The largest token of each name is kept in a file beside it, `path` with ".fence" added, and
 * a lock on that file (flock) makes the check and the write one step. `holdfast fence` uses the
 * same files. Use a local file system.
 *
 *    if (hf_fence_open(hold, "/srv/app/state") < 0) die(hf_last_error());
 *    read, work, and then:
 *    if (hf_fence_write(hold, "/srv/app/state", data, size) < 0) die(hf_last_error());
 *
 * hf_fence_open: registers the token. Call it before the first read.
 * hf_fence_write: checks the token and replaces the whole content of the file. Readers see the old
 * content or the new one, even after a crash. When it returns HF_OK, the new content is on the
 * disk. Permissions and group of the file stay, and so does the owner if this process may set it. A
 * symbolic link is refused.
 * hf_fence_check: checks the token and calls `write`, in one step, for what hf_fence_write cannot
 * do. Returns what `write` returned, which must not call these functions for the same path.
 *
 * These calls wait for the disk, and for any other process that is writing: one that was stopped in
 * the middle of its write keeps the next holder waiting until it goes on or is killed.
 * Errors: LOST (also if the token is refused; nothing was written), RELEASED, CLOSED, FORKED,
 * WRONG_KIND, BAD_ARGUMENT, BAD_STORE (the file of tokens is damaged), SYSTEM (the file has its old
 * content or the new one; hf_last_error says what failed). */
HF_API int hf_fence_open(hf_hold *hold, const char *path);
HF_API int hf_fence_write(hf_hold *hold, const char *path, const void *data, size_t size);
HF_API int hf_fence_check(hf_hold *hold, const char *path, int (*write)(void *arg), void *arg);

/* A database can check the token in the transaction that makes the guarded write. If a writer has
 * lost the lock without knowing it, its whole transaction then fails. On your own connection:
 *
 *    BEGIN;
 *    the statement from hf_fence_sql
 *    what you read and write under the lock
 *    COMMIT;
 *
 * The statement keeps the largest token of each name in a table of the database, and fails if it
 * has seen a larger one: roll back and stop, since the lock is lost. Until the transaction ends,
 * other transactions that check the same name wait. It must be the first statement of a
 * transaction, before anything is read and before any savepoint. PostgreSQL and MySQL need the
 * schema of their store, wherever the locks are; docs/stores/postgres.md and docs/stores/mysql.md
 * list the rights that are needed, and the errors. In SQLite, create the table once, with
 * HF_FENCE_SQLITE_TABLE; the error is SQLITE_CONSTRAINT_CHECK. */
typedef enum hf_dialect {
    HF_POSTGRES = 1, /* PostgreSQL */
    HF_MYSQL = 2,    /* MySQL and MariaDB */
    HF_SQLITE = 3,   /* SQLite */
} hf_dialect;

#define HF_FENCE_SQL_SIZE 768     /* bytes that the statement needs at most, for each name */
#define HF_FENCE_SQLSTATE "ZF001" /* PostgreSQL's error for a token that is not the largest */

#define HF_FENCE_SQLITE_TABLE                                                 \
    "CREATE TABLE IF NOT EXISTS holdfast_fences (name PRIMARY KEY NOT NULL, " \
    "token INTEGER NOT NULL CONSTRAINT holdfast_token_is_stale CHECK (token > 0)) WITHOUT ROWID"

/* Writes the statement for this hold into `ret_statement`, which has `size` bytes. With several
 * names it checks all of them. It is ASCII, needs no parameters, and stays the same for as long as
 * the hold. Does not ask the store.
 * Errors: LOST, RELEASED, CLOSED, FORKED as from hf_check; WRONG_KIND (the hold is not exclusive,
 * so its token does not fence); BAD_ARGUMENT (an unknown dialect, or `size` is too small). */
HF_API int hf_fence_sql(hf_hold *hold, hf_dialect dialect, char *ret_statement, size_t size);

/* A Redis server checks the token with this script, and executes a command of yours in the same
 * step. On your own connection:
 *
 *    EVAL script 1 KEY NAME TOKEN COMMAND ARGUMENT...
 *
 * KEY is a hash of your choice, which keeps the largest token of each lock's NAME. TOKEN comes from
 * hf_fence_token. Without a COMMAND the token is only registered: do that before the first read.
 * The error for a token that is not the largest begins with "FENCED". In a Cluster, the keys of the
 * command must be in the slot of KEY ("{report}fence", "{report}data"). */
#define HF_FENCE_REDIS                                                                       \
    "local seen = redis.call('HGET', KEYS[1], ARGV[1]) "                                     \
    "if seen and tonumber(ARGV[2]) < tonumber(seen) then "                                   \
    "return redis.error_reply('FENCED token ' .. ARGV[2] .. ' of ' .. ARGV[1] .. "           \
    "' is refused (a later holder came with ' .. seen .. '); the lock was lost: stop') end " \
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) "                                         \
    "if #ARGV > 2 then return redis.call(unpack(ARGV, 3)) end "                              \
    "return redis.status_reply('OK')"

/* ---- Limiting a rate ---------------------------------------------------------------------- */

/* A limiter lets at most `rate` callers through in any time of length `window_ms`, wherever they
 * are, in the order in which they asked. A caller that was let through gives nothing back when it
 * ends or is killed. A limiter needs permits and HF_KEEP (hf_store_info: permits, keeps).
 *
 * What counts is when the store lets a caller through, by its own clock. The caller may act later,
 * so a little more than `rate` may arrive elsewhere in one window. If the store's clock is set
 * forward, or the store forgets its data, up to `rate` more are let through early; if the clock is
 * set back, callers wait longer, or fail with HF_CLOCK.
 *
 * The name is in use as that number of permits (hf_inspect shows who was let through), so a request
 * with another `rate` fails with HF_WRONG_KIND until a window has passed. */
#define HF_LIMIT_RATE_MAX 10000 /* the largest `rate`, except in fixed windows */

typedef struct hf_limit_options {
    size_t size;
    uint32_t rate;     /* how many are let through … */
    int64_t window_ms; /* … in any time of this length; the same in all requests for a name */
    int64_t wait_ms;   /* 0: do not wait for your turn; HF_FOREVER: no limit */
    const char *label; /* what operators see beside the name; at most 255 bytes, or NULL */
    /* 1: count in fixed windows instead, with hf_count: a window begins with the first caller after
     * the last one ended. This costs the least and needs counters only, but it lets up to twice the
     * rate through around the end of a window. It has no queue: wait_ms must be 0. */
    int fixed;
} hf_limit_options;

#define HF_LIMIT_OPTIONS_INIT \
    { sizeof(hf_limit_options), 1, 1000, HF_FOREVER, NULL, 0 }

/* Returns HF_OK when the caller is let through. HF_BUSY (wait_ms is 0) and HF_TIMEOUT mean that it
 * is not; *ret_wait_ms then says how many ms it would have to wait from now, if all who wait are
 * served before it. Other errors do not set it. Finding that out takes a second request, whose cost
 * grows with `rate`; pass NULL if you do not need it.
 *
 * A window longer than the client's max_lease_ms fails with HF_BAD_LEASE: open another client with
 * a larger max_lease_ms for it. Clients that differ in max_lease_ms do not disturb each other as
 * long as they use different names. HF_SHORT means that the store's answer took longer than the
 * window; the caller is not let through. Other errors: those of hf_acquire.
 *
 * Programs that must not block call hf_acquire_start instead, for 1 of `rate` HF_PERMITS with a
 * lease of window_ms, HF_NO_RENEW and HF_KEEP, and free the hold. */
HF_API int hf_limit(hf_client *client, const char *name, const hf_limit_options *options,
                    int64_t *ret_wait_ms);

/* ---- Looking ------------------------------------------------------------------------------ */

/* Somebody who holds a lock or waits for it. */
typedef struct hf_party {
    size_t size;
    const char *owner;   /* abbreviated owner id */
    const char *host;    /* this and the other strings are "" if the store does not know */
    const char *command; /* the program */
    const char *label;
    int64_t pid;    /* 0 when unknown */
    uint64_t token; /* 0 for those who wait */
    uint32_t weight;
    int64_t since_ms; /* held or waiting since: wall clock, since the epoch; 0: unknown */
    int64_t left_ms;  /* of the lease or wait lease; -1: it has none that the store knows */
    uint32_t votes;   /* in a quorum: how many nodes voted for it; 0: the store is not a quorum */
} hf_party;

/* What one node of a quorum store reports about a lock. */
typedef struct hf_node {
    size_t size;
    const char *name;    /* its host and port, as in the URL */
    const char *failure; /* why it did not answer; "" if it did */
    uint64_t token;      /* the largest granted that it remembers; 0: it does not know the lock */
    size_t holder_count;
    const hf_party *const *holders; /* who has its vote: one, or several who share the lock */
} hf_node;

typedef struct hf_lock_info {
    size_t size;
    const char *name;
    hf_kind kind;      /* HF_SHARED: a lock whose holders share it; HF_EXCLUSIVE: any other lock */
    uint32_t capacity; /* HF_PERMITS: the number of permits */
    uint64_t token;    /* the largest granted that the store remembers */
    size_t holder_count;
    const hf_party *const *holders;
    size_t waiter_count;
    const hf_party *const *waiters; /* in the order of the queue */
    /* The last hf_break of this name. The store remembers it for as long as the token. */
    int64_t broken_ms;         /* wall clock, since the epoch; 0: none */
    uint64_t broken_token;     /* of the hold that was broken; 0: none */
    const char *broken_by;     /* "web3 pid 411 (holdfast break by eve)"; "": none */
    const char *broken_reason; /* "" when none was given */
    /* In a quorum store, a holder has the votes of a quorum. Anybody with fewer votes is listed as
     * a waiter: it is still collecting votes, or has lost some. `token` above may be that of a vote
     * that was given back. */
    uint32_t quorum;             /* how many votes are needed; 0: the store is not a quorum */
    size_t node_count;           /* from hf_inspect: the nodes of the store; from hf_list: 0 */
    const hf_node *const *nodes; /* in the order of the URL */
} hf_lock_info;

/* The locks that hf_inspect or hf_list found, in the order of their names. */
typedef struct hf_locks hf_locks;

/* Looks up one name. A lock that nobody holds or waits for is an entry without holders while the
 * store remembers its token; after that there is no entry (HF_OK, and hf_locks_count is 0).
 * Errors: BAD_NAME, UNSUPPORTED, and those of any request. */
HF_API int hf_inspect(hf_client *client, const char *name, hf_locks **ret_locks);

/* Lists the locks that are held or waited for and whose name begins with `prefix` ("" or NULL:
 * all), in pages: at most `limit` (1 to 1000) names that sort after `after` (NULL: from the start).
 * To get the next page, pass the last name of this one; an empty page is the end. Each page is a
 * snapshot, but two pages may be from different times. */
HF_API int hf_list(hf_client *client, const char *prefix, const char *after, size_t limit,
                   hf_locks **ret_locks);

HF_API size_t hf_locks_count(const hf_locks *locks);
HF_API const hf_lock_info *hf_locks_at(const hf_locks *locks, size_t index); /* NULL: none */
HF_API hf_locks *hf_locks_free(hf_locks *locks);

/* Ends somebody else's hold of `name`: the one with exactly this `token` (in a quorum, two readers
 * may have the same token; both holds then end). Its holder is notified that the lock is lost, and
 * the name gets a larger token, so that writes with the old one are refused. The holder may still
 * be working: this is for operators who know that it is not, or accept that it is. The store keeps
 * when, by whom and why (`reason`: at most 255 bytes, or NULL) for hf_lock_info.
 * Errors: NOT_YOURS (nobody holds it with that token), BAD_ARGUMENT, and those of any request. */
HF_API int hf_break(hf_client *client, const char *name, uint64_t token, const char *reason);

/* ---- Watching ----------------------------------------------------------------------------- */

/* What happens to locks, whoever holds them, as the store announces it. */
typedef enum hf_change_type {
    HF_CHANGE_WATCHING = 1, /* from here on, changes are reported as they happen */
    HF_CHANGE_MISSED = 2,   /* changes may be missing from here to the next WATCHING; see `text` */
    HF_CHANGE_ACQUIRED = 3,
    HF_CHANGE_RELEASED = 4,
    HF_CHANGE_BROKEN = 5,  /* with hf_break */
    HF_CHANGE_WAITING = 6, /* somebody began to wait for it */
    HF_CHANGE_LEFT = 7,    /* somebody stopped waiting without getting it */
} hf_change_type;

/* The argument of on_change; valid during that call. */
typedef struct hf_change {
    size_t size;
    hf_change_type type;
    int64_t at_ms; /* when it happened, by the store's clock: wall clock, since the epoch */
    /* The lock, and who did it: `lock` lists only this holder or waiter, even if there are others.
     * BROKEN: `lock` says by whom and why. NULL: WATCHING, MISSED. */
    const hf_lock_info *lock;
    const hf_party *party;
    const char *text; /* MISSED: why, for people; "" otherwise */
} hf_change;

/* Calls `on_change` (hf_process says where) for what happens to the locks whose name begins with
 * `prefix` ("" or NULL: all), in the order in which it happened to each name. The call is pending
 * until you cancel or free it; a client has one watch at a time (BAD_ARGUMENT).
 *
 * The first change is WATCHING, once the store has been reached; what happened before it is not
 * reported, so list the locks then. If the store becomes unavailable, or changes come faster than
 * on_change takes them, MISSED and later WATCHING are reported: list the locks again. Nobody
 * announces the end of a lease, and older versions of holdfast and other programs announce nothing,
 * so also list the locks now and then.
 * Errors: BAD_NAME, and UNSUPPORTED if this store cannot announce changes. */
HF_API int hf_watch_start(hf_client *client, const char *prefix,
                          void (*on_change)(const hf_change *change, void *arg), void *arg,
                          hf_call **ret_call);

/* ---- Leader election ---------------------------------------------------------------------- */

/* The leader is the holder of an exclusive lock. To campaign, acquire it; the label is the value
 * that others see, such as your address. You are elected when the acquire returns HF_OK. To resign,
 * release it. `holdfast elect` does this for a command, and examples/election.c for a program.
 *
 * If leadership is lost, on_lost is called, and hf_check no longer returns HF_OK. Before each step
 * as the leader, ask hf_check for the time that the step takes: then you have stopped by the time
 * the next leader can begin, and two leaders never both have time left. hf_hold_token fences what
 * you write. If a leader dies or is paused, the next one is elected when its lease ends; the paused
 * one finds HF_LOST when it runs again. */
typedef struct hf_leader {
    size_t size;
    uint64_t token;   /* of its grant; 0: nobody leads, and the rest is empty */
    int64_t since_ms; /* when it was elected: wall clock, since the epoch; 0: unknown */
    int64_t left_ms;  /* of its lease, when the store answered; -1: it has none */
    int64_t pid;      /* 0 when unknown */
    char host[256];   /* "" when unknown */
    char value[256];  /* its label */
} hf_leader;

#define HF_LEADER_INIT \
    { sizeof(hf_leader), 0, 0, 0, 0, "", "" }

/* Waits until the leader of `name` is no longer the one with `known_token`, and says who leads now.
 * 0 stands for nobody: the call then waits until there is a leader. To follow the leaders, pass the
 * token that the last call returned. What changed between two calls is reported by the second, but
 * leaders that came and went in between are not. If wait_ms is 0, it looks once.
 *
 * Blocks for wait_ms at most (HF_FOREVER: no limit), and hf_client_cancel ends it. A store that
 * pushes reports a change at once, if the client is not watching already (hf_watch_start);
 * otherwise the call polls, at least once a second. If the store is unavailable, the call retries
 * until the time is up; without a limit, for 10 seconds if the store has never answered. So the
 * leader may have changed long before you learn of it: an observer only knows who led a moment ago.
 * Errors: TIMEOUT (it is still the same), WRONG_KIND (the name is shared or has permits), BAD_NAME,
 * BAD_ARGUMENT, UNREACHABLE, UNKNOWN, CANCELLED, and those of any request. */
HF_API int hf_observe(hf_client *client, const char *name, uint64_t known_token, int64_t wait_ms,
                      hf_leader *ret_leader);

/* ---- Examining the store ------------------------------------------------------------------ */

typedef enum hf_severity {
    HF_FINE = 0,    /* as it should be */
    HF_NOTE = 1,    /* good to know; nothing to do */
    HF_WARNING = 2, /* locks are weaker, or will be if something else goes wrong */
    HF_PROBLEM = 3, /* locks fail or do not exclude */
} hf_severity;

/* One way in which the store's configuration affects its locks. The strings are never NULL. */
typedef struct hf_finding {
    size_t size;
    hf_severity severity;
    const char *id;    /* a stable word for programs: "file-system", "free-space" */
    const char *found; /* what was found */
    const char *means; /* what that means for locks */
    const char *fix;   /* what to do about it; "" if there is nothing to do */
} hf_finding;

typedef struct hf_examination {
    size_t size;
    const char *tier;   /* what these locks are worth as configured; see hf_store_info */
    int64_t write_us;   /* how long a write to the store took just now: the median of a few, … */
    int64_t slowest_us; /* … and the slowest of them; both are -1 if not measured */
    size_t count;
    const hf_finding *const *findings;
} hf_examination;

/* Asks the store how its configuration affects locks; `holdfast doctor` prints the result. Makes a
 * few small writes, which change nothing. The caller frees the result with hf_examination_free.
 * Errors: UNSUPPORTED (the store cannot be examined), and those of any request. */
HF_API int hf_examine(hf_client *client, hf_examination **ret_examination);
HF_API hf_examination *hf_examination_free(hf_examination *examination);

/* ---- Counters ----------------------------------------------------------------------------- */

/* A counter is a number with a name. Use one instead of a lock where a single step at the store is
 * enough: to count, limit, hand out numbers, elect by compare-and-set. Give it a name that no lock
 * has: some stores (Redis) keep both in one place, and refuse the second with HF_WRONG_KIND.
 * hf_store_info says whether a store has counters. */
typedef enum hf_count_op {
    HF_COUNT_GET = 1,
    HF_COUNT_ADD = 2,    /* adds `number`, to 0 if there is no counter */
    HF_COUNT_SWAP = 3,   /* sets it to `number`, and returns what was there before */
    HF_COUNT_CAS = 4,    /* sets it to `number` if it is as expected */
    HF_COUNT_REMOVE = 5, /* returns what was there before */
} hf_count_op;

typedef struct hf_count_options {
    size_t size;
    hf_count_op op;
    int64_t number;
    int64_t expected;  /* CAS: the value that it must have … */
    int expect_none;   /* … or 1: there must be no counter, whatever `expected` is */
    int64_t expiry_ms; /* how long a counter created by this lasts; 0: until it is removed */
    int64_t wait_ms;   /* 1 to 60000: how long to wait for the store, and to retry */
} hf_count_options;

#define HF_COUNT_OPTIONS_INIT \
    { sizeof(hf_count_options), HF_COUNT_GET, 0, 0, 0, 0, 10000 }

typedef struct hf_counter {
    size_t size;
    int exists;      /* 0: there is no such counter, or was none (SWAP, REMOVE) */
    int64_t value;   /* 0 if there is none */
    int64_t left_ms; /* until it expires; -1: it does not; 0 if there is none */
} hf_counter;

#define HF_COUNTER_INIT \
    { sizeof(hf_counter), 0, 0, 0 }

/* Does one operation on the counter `name`, in one step: nobody sees it half done, and the expiry
 * of a counter is set in the step that creates it. A counter that exists keeps its expiry, whatever
 * `expiry_ms` says. If `options` is NULL, reads it. `ret_counter` may be NULL; initialise it with
 * HF_COUNTER_INIT.
 *
 * If a reply is lost, the operation is repeated under the same number and the store recognises it,
 * so it happens once. Operations of one client on one name happen in the order in which they were
 * asked for.
 *
 * Errors: MISMATCH (CAS: it was not as expected; *ret_counter is then set to what it is), RANGE
 * (ADD: the sum does not fit int64_t; nothing was changed), UNKNOWN (no answer came within wait_ms:
 * it may have happened, or may still happen), UNREACHABLE (it has not happened), WRONG_KIND (the
 * store has something else under this name), BAD_NAME, BAD_ARGUMENT, UNSUPPORTED (the store has no
 * counters, or none that expire; the text says why), and those of any request. */
HF_API int hf_count(hf_client *client, const char *name, const hf_count_options *options,
                    hf_counter *ret_counter);

/* ---- Latch and barrier -------------------------------------------------------------------- */

/* Both need counters, and barriers also need permits (hf_store_info); elsewhere the calls fail with
 * HF_UNSUPPORTED, and say why. A counter keeps what has happened: it has the latch's name, or the
 * barrier's name with "/opened" added. It stays until you remove it (HF_COUNT_REMOVE), so use a
 * name for one job, or clean up. A barrier's name has 248 bytes at most.
 *
 * A latch opens once `count` calls have counted it down, and then stays open: those who look later
 * find it open, however long they were paused. Each call that returns HF_OK has counted once, even
 * if a reply was lost and the request was repeated. A latch does not know who has not counted yet:
 * if one of them dies, somebody else must do its part and count down for it. So do each part under
 * its own lock, and skip it if a note says that it has been done. */
typedef struct hf_latch_options {
    size_t size;
    int64_t count;     /* how many must count down: 1 or more, the same in all calls */
    int64_t expiry_ms; /* if this call is the first: how long the latch lasts; 0: no end */
    int64_t wait_ms;   /* how long to wait; count_down: 1 to 60000, for the store */
} hf_latch_options;

#define HF_LATCH_OPTIONS_INIT \
    { sizeof(hf_latch_options), 1, 0, HF_FOREVER }

/* Counts down once, and reports how many are still missing (`ret_left` may be NULL). Counting more
 * often than `count` does no harm.
 * Errors: UNKNOWN (no answer came in time: it may or may not have counted), BAD_ARGUMENT, and those
 * of hf_count. */
HF_API int hf_latch_count_down(hf_client *client, const char *name, const hf_latch_options *options,
                               int64_t *ret_left);

/* Waits until the latch is open. It polls, at least once a second; hf_client_cancel ends the wait.
 * Errors: TIMEOUT (it is still closed), BAD_ARGUMENT, CANCELLED, UNREACHABLE, UNKNOWN, and those of
 * hf_count. */
HF_API int hf_latch_await(hf_client *client, const char *name, const hf_latch_options *options);

/* At a barrier, `parties` wait for each other. It opens once all of them are there at the same
 * time, and closes behind them: it can be used again at once. Once it has opened, that is final: a
 * party that was paused meanwhile also passes.
 *
 * There are as many permits under the barrier's name as there are parties. Each party has one of
 * them (`holdfast inspect` shows who is there), with a lease that is renewed. A party that dies
 * while it waits counts until its lease ends; then another can take its place. A party that is
 * paused for longer than its lease takes a new place when it runs again, if the barrier has not
 * opened. If there are more parties than places, the rest wait until it opens the next time. */
typedef struct hf_barrier_options {
    size_t size;
    uint32_t parties; /* 1 or more, the same for all of them (HF_WRONG_KIND) */
    int64_t lease_ms;
    int64_t wait_ms;
} hf_barrier_options;

#define HF_BARRIER_OPTIONS_INIT \
    { sizeof(hf_barrier_options), 1, HF_DEFAULT_LEASE_MS, HF_FOREVER }

/* Waits until all parties are there. hf_client_cancel ends the wait; after an error this party is
 * no longer there. Errors: TIMEOUT, WRONG_KIND, BAD_ARGUMENT, those of hf_acquire and hf_count. */
HF_API int hf_barrier_wait(hf_client *client, const char *name, const hf_barrier_options *options);

/* A double barrier: parties begin together, and end together. */
typedef struct hf_barrier hf_barrier;

/* Like hf_barrier_wait, but the party keeps its place, and the others cannot leave until it leaves
 * or dies. The caller frees the barrier. Also fails with HF_LOST: the barrier has opened, but the
 * lease had ended before this party learned of it, and the others may have left already. */
HF_API int hf_barrier_enter(hf_client *client, const char *name, const hf_barrier_options *options,
                            hf_barrier **ret_barrier);

/* The hold that is the party's place between entering and leaving: check it like any other hold. It
 * belongs to the barrier; do not release or free it. */
HF_API hf_hold *hf_barrier_hold(const hf_barrier *barrier);

/* Gives up the place, and waits until all parties that entered with this one have done so or are
 * dead: the place of a dead party is free when its lease ends. May be called again after HF_TIMEOUT
 * or HF_CANCELLED. Errors: LOST (this party's lease has ended; the others may have left without
 * it), TIMEOUT, CANCELLED, and those of any request. */
HF_API int hf_barrier_leave(hf_barrier *barrier, int64_t wait_ms);

/* Frees the barrier, and gives up the place if the party still has it. */
HF_API hf_barrier *hf_barrier_free(hf_barrier *barrier);

/* ---- Events ------------------------------------------------------------------------------- */

/* For logs and metrics. Each lock has its own events, in this order: ACQUIRED or NOT_ACQUIRED;
 * after ACQUIRED any number of RENEWED and RENEWAL_FAILED; then LOST or RELEASED, once. Several
 * names at once are several locks; acquiring a lock again with HF_REENTRANT is still one lock. A
 * request that is refused before the store is asked (a bad argument) has no events. */
typedef enum hf_event_type {
    HF_EVENT_ACQUIRED = 1,
    HF_EVENT_NOT_ACQUIRED = 2,   /* `error` says why */
    HF_EVENT_RENEWED = 3,        /* confirmed by the store */
    HF_EVENT_RENEWAL_FAILED = 4, /* `error` says why; still held until the deadline, and retried */
    HF_EVENT_LOST = 5,
    HF_EVENT_RELEASED = 6, /* `error` is HF_UNKNOWN if the store did not confirm it; also comes when
                              a hold with HF_KEEP is left to its lease */
} hf_event_type;

/* The argument of on_event in hf_client_options; valid during that call. */
typedef struct hf_event {
    size_t size;
    hf_event_type type;
    int error; /* HF_OK if there is none */
    const char *name;
    uint64_t token;    /* 0: NOT_ACQUIRED */
    int64_t wait_ms;   /* from the request until it was granted or failed */
    int64_t held_ms;   /* since the grant, or from the grant to the release */
    uint64_t renewals; /* confirmed by the store */
    int64_t
        least_margin_ms; /* the least time left before the deadline at any confirmed renewal or at
                                the release; 0 if lost at the deadline; -1: none of these yet */
    uint64_t dropped;    /* events before this one that were dropped for lack of memory */
    /* LOST: "broken" (hf_break), "gone" (the store no longer had it: deleted, or expired by the
     * store's clock), "expired" (not renewed in time), "forgotten" (the store may have lost it, as
     * in a fail-over). "" for other events. */
    const char *cause;
    const char *text; /* LOST, RENEWAL_FAILED: details, for people; "": none */
} hf_event;

/* ---- Calls that do not block -------------------------------------------------------------- */

/* Each call above that may wait for the store has a form that only starts it, except the recipes:
 * they make several requests. A call completes exactly once, even if it is cancelled or its client
 * is closed. You do not need callbacks: wait for a call, ask for its status, or have it put into a
 * queue of completed calls. A client may be used in all these ways at the same time. */
HF_API int hf_acquire_start(hf_client *client, const char *name, const hf_acquire_options *options,
                            hf_call **ret_call);
HF_API int hf_acquire_all_start(hf_client *client, const hf_want *const *wants, size_t count,
                                const hf_acquire_options *options, hf_call **ret_call);
HF_API int hf_renew_start(hf_hold *hold, int64_t lease_ms, hf_call **ret_call);
HF_API int hf_release_start(hf_hold *hold, hf_call **ret_call);
HF_API int hf_inspect_start(hf_client *client, const char *name, hf_call **ret_call);
HF_API int hf_list_start(hf_client *client, const char *prefix, const char *after, size_t limit,
                         hf_call **ret_call);
HF_API int hf_break_start(hf_client *client, const char *name, uint64_t token, const char *reason,
                          hf_call **ret_call);
HF_API int hf_examine_start(hf_client *client, hf_call **ret_call);
HF_API int hf_count_start(hf_client *client, const char *name, const hf_count_options *options,
                          hf_call **ret_call);

/* A call that asks nothing of the store and stays pending until it is cancelled. For a thread that
 * must wait between two requests: if it waits for this call (hf_call_wait), hf_client_cancel and
 * hf_client_close end its wait. Errors: NO_MEMORY, CLOSED, FORKED. */
HF_API int hf_pause_start(hf_client *client, hf_call **ret_call);

/* HF_PENDING, or the result of the call. hf_call_error is the text of its failure, "" if there is
 * none; it is valid as long as the call. */
HF_API int hf_call_status(hf_call *call);
HF_API const char *hf_call_error(hf_call *call);

/* Blocks until the call has completed and returns its result, or HF_PENDING if that takes longer
 * than `wait_ms` (HF_FOREVER: no limit), whatever the store does. Any number of threads may wait
 * for one call. */
HF_API int hf_call_wait(hf_call *call, int64_t wait_ms);

/* Completes a pending call with HF_CANCELLED. An acquire gives up its place in the queue; what
 * other calls asked of the store may still happen. A call that has completed keeps its result. May
 * be called from any thread. Returns HF_OK or HF_FORKED. */
HF_API int hf_call_cancel(hf_call *call);

/* Takes the result of a call that completed with HF_OK: the hold, the locks found, the examination.
 * Ownership moves to the caller; a second take returns NULL. A result that was not taken is freed
 * with the call; a hold is also released, unless it was acquired with HF_KEEP. */
HF_API hf_hold *hf_call_take_hold(hf_call *call);
HF_API hf_locks *hf_call_take_locks(hf_call *call);
HF_API hf_examination *hf_call_take_examination(hf_call *call);

/* The answer of a call of hf_count_start that completed with HF_OK or HF_MISMATCH. Otherwise
 * returns what hf_call_status does, or HF_BAD_ARGUMENT for a call of another kind. */
HF_API int hf_call_counter(hf_call *call, hf_counter *ret_counter);

/* For programs with many calls: be notified when a call has completed. Use one of these, once for
 * each call, at any time before it is freed. If the call has already completed, you are notified at
 * once.
 * hf_call_notify: `fn` is called (hf_process says where).
 * hf_call_queue: hf_call_next will return the call.
 * Errors: BAD_ARGUMENT (already done for this call), SYSTEM, NO_MEMORY, CLOSED, FORKED. */
HF_API int hf_call_notify(hf_call *call, void (*fn)(hf_call *call, void *arg), void *arg);
HF_API int hf_call_queue(hf_call *call, void *data);

/* The next completed call among those passed to hf_call_queue, each once; NULL if there is none
 * now. hf_call_data is the pointer that was passed with it. */
HF_API hf_call *hf_call_next(hf_client *client);
HF_API void *hf_call_data(const hf_call *call);

/* Frees the call and any result that was not taken; cancels it if it is pending. Once this has
 * returned, its notify function is not running and will not run (unless that function made the
 * call). */
HF_API hf_call *hf_call_free(hf_call *call);

/* For programs with their own event loop: a descriptor that is readable when hf_process or
 * hf_call_next has something to do, or a call has completed. It is level-triggered: it stays
 * readable until hf_process has been called, so watch it without EPOLLET. After each hf_process,
 * call hf_call_next until it returns NULL, since the descriptor does not become readable again for
 * calls that have been left there. It belongs to the client. Calling this makes callbacks run in
 * hf_process from then on. Errors (negative): SYSTEM, CLOSED, FORKED. */
HF_API int hf_fd(hf_client *client);

/* Does the work that is due and runs the callbacks that are due: on_lost, notify, on_event,
 * on_change. Does not block itself.
 *
 * Callbacks run here once hf_fd has been called; until then they run one at a time on a thread of
 * the library that does nothing else. They never run on a thread that renews locks, nor with a
 * mutex of the library locked: they may block, call the library, free the object they are called
 * for, and end their thread (pthread_exit). Returns HF_OK, CLOSED or FORKED. */
HF_API int hf_process(hf_client *client);

/* ---- The library -------------------------------------------------------------------------- */

#define HF_VERSION "0.1.0"

/* The version of the library in use, as text ("0.1.0"). */
HF_API const char *hf_version(void);

/* A store of this version, and whether it can be used here. */
typedef struct hf_store_info {
    size_t size;
    const char *scheme;  /* "memory" */
    const char *summary; /* one line; "" for a store that is not listed */
    const char *tier;    /* what its locks are worth: "strict", "timed", "best effort" */
    int available;       /* 0: a module that it needs is missing */
    const char *missing; /* which one, where it was looked for, and what would bring it; or "" */
    int shares;          /* 1: locks can be shared, … */
    int permits;         /* … there are permits, … */
    int queues;          /* … and a queue: first come, first served */
    int lease_each;      /* 1: each hold has a lease of its own; 0: one for all holds of a client */
    int token_floor;     /* 1: there can be a token floor (hf_client_options) */
    int pushes;          /* 1: it announces changes (hf_watch_start) */
    int barges;          /* 1: HF_BARGE is possible */
    int session_bound;   /* 1: a hold ends with its client's connection, maybe before D */
    int counts;          /* 1: it has counters (hf_count) */
    int keeps;           /* 1: HF_KEEP is possible */
} hf_store_info;

/* The index-th store; NULL after the last. Valid until this thread asks for another. */
HF_API const hf_store_info *hf_store_at(size_t index);

/* The store of this client; NULL for NULL. Valid until the client is closed. */
HF_API const hf_store_info *hf_client_store(const hf_client *client);

#ifdef __cplusplus
}
#endif

#endif
