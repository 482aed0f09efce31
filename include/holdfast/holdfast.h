/* SPDX-License-Identifier: MIT
 *
 * holdfast: locks shared by threads, processes and machines.
 *
 * This header is the manual of the library. Read this first page before you rely on a lock.
 *
 * WHAT IS PROMISED
 *
 *  Exclusion   After an acquire returned HF_OK with a deadline D (hf_hold_left_ms counts down
 *              to it), no other acquire of a conflicting kind returns HF_OK before D passes, you
 *              release, or an operator breaks the lock or deletes it at the store; provided that
 *              the store keeps what it acknowledged and its clock runs within `drift_ppm`.
 *  Fencing     Each grant carries a token. Tokens of successive exclusive grants of one name
 *              strictly increase, whatever the clocks of the holders do.
 *  Ownership   A release or a renewal never touches somebody else's lock.
 *  Honesty     HF_OK is said only while time is left. The loss of a lock is told once, by each
 *              of the means that you asked for, and late only if your process did not run.
 *  Liveness    The lock of a dead holder is free after its lease at the latest, while the store
 *              answers. A waiter that died costs the others its wait lease at most.
 *
 * WHAT NO LOCK CAN PROMISE
 *
 *  A process can be stopped (SIGSTOP, a suspended laptop, a paused virtual machine, swapping)
 *  between hf_check() and the write that follows it, for longer than the time that was left. The
 *  next holder then works at the same time, and no lock service on earth can prevent it. What
 *  can is the resource itself: hand it the token with every write and let it refuse a token that
 *  is smaller than the largest that it has seen. That is what tokens are for. Only tokens of
 *  exclusive holds (HF_MUTEX, HF_WRITE) order their holders; see hf_hold_is_exclusive.
 *
 * CONVENTIONS
 *
 *  - A call returns HF_OK (0) or a negative hf_error; hf_error_string() has a sentence for each
 *    code, and hf_last_error() the text of this thread's last failure. `ret_` parameters come
 *    last and are untouched on failure.
 *  - Types are opaque. Option structs begin with their size: initialise them with their _INIT
 *    macro and change what you need; NULL means all defaults. What the library hands out as
 *    `const struct *` may grow at its end in later versions: do not copy such structs.
 *  - Every call may be used from every thread, on the same objects too, except that an object
 *    must not be used during or after the call that frees it. Calls that free take NULL, and
 *    return NULL so that you can write `hold = hf_hold_free(hold)`.
 *  - The library does not log, does not install signal handlers, and calls your functions only
 *    as said at hf_process.
 *  - After fork() every handle in the child answers HF_FORKED; freeing them there frees memory
 *    and nothing else. The child may open clients of its own.
 *  - Times are milliseconds on a clock that counts suspends. Strings are UTF-8 by convention,
 *    bytes in fact.
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
#define HF_ERROR_MAP(X)                                                                  \
    X(BUSY, -1, "the lock is held by somebody else")                                     \
    X(TIMEOUT, -2, "the lock was not acquired in the time given")                        \
    X(CANCELLED, -3, "the call was cancelled")                                           \
    X(SHORT, -4, "less time is left on the lock than was asked for")                     \
    X(LOST, -5, "the lock was lost")                                                     \
    X(RELEASED, -6, "the lock has been released")                                        \
    X(UNKNOWN, -7, "the store did not answer; whether it acted is unknown")              \
    X(NOT_YOURS, -8, "no hold with this token exists")                                   \
    X(WRONG_KIND, -9, "the name is in use as another kind of lock")                      \
    X(BAD_NAME, -10, "a name must have 1 to 255 bytes and no NUL")                       \
    X(BAD_WEIGHT, -11, "the permits asked for do not fit the capacity")                  \
    X(BAD_LEASE, -12, "the lease must be above 0 and at most max_lease")                 \
    X(BAD_URL, -13, "the URL of the store is not valid")                                 \
    X(BAD_ARGUMENT, -14, "an argument is not valid")                                     \
    X(NO_STORE, -15, "there is no store for this kind of URL")                           \
    X(UNSUPPORTED, -16, "the store cannot do this soundly")                              \
    X(UNREACHABLE, -17, "the store cannot be reached")                                   \
    X(DENIED, -18, "the store does not permit it")                                       \
    X(BAD_STORE, -19, "what is in the store was not written by holdfast, or is damaged") \
    X(STORE_FULL, -20, "the store has no room left")                                     \
    X(CLOCK, -21, "a clock is wrong")                                                    \
    X(NO_MEMORY, -22, "out of memory")                                                   \
    X(SYSTEM, -23, "the operating system refused")                                       \
    X(CLOSED, -24, "the client has been closed")                                         \
    X(FORKED, -25, "this handle belongs to the parent process")                          \
    X(PENDING, -26, "the call has not completed yet")

typedef enum hf_error {
    HF_OK = 0,
#define HF_ERROR_CODE(name, number, sentence) HF_##name = (number),
    HF_ERROR_MAP(HF_ERROR_CODE)
#undef HF_ERROR_CODE
} hf_error;

/* The sentence of a code; for a number that is none, a sentence that says so. Never NULL. */
HF_API const char *hf_error_string(int code);

/* The name of a code as it is written in programs ("HF_BUSY"), for logs. Never NULL. */
HF_API const char *hf_error_name(int code);

/* What went wrong in the last call of the calling thread that failed: the code's sentence and the
 * particulars of the case. Yours to read until this thread's next call into the library. Never
 * NULL; "" when nothing has failed. */
HF_API const char *hf_last_error(void);

/* ---- The client --------------------------------------------------------------------------- */

/* A client is a connection to one store, shared by all threads of a program; one is enough. */
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
    int64_t max_lease_ms;  /* no lease may be longer; the same for all clients of a store */
    int64_t wait_lease_ms; /* how long a waiter that fell silent keeps its place in the queue */
    uint32_t drift_ppm;    /* how much the store's clock and ours may differ in rate */
    uint64_t token_floor;  /* no token below this: for those who restored a backup or moved */
    const char *command;   /* what operators see as this client's program; NULL: its own name */
    /* A store on this host frees the locks of a process that has died, without waiting for their
     * leases. If other processes do the work that the locks guard, name the one that outlives them
     * all: the locks are then freed only once that process is dead as well. HF_LEASE_ONLY: none is
     * sure to outlive them, so only a release or the end of the lease frees a lock. 0: the client's
     * own process does the work. */
    int64_t guard_pid;
    /* Told of everything that happens to the client's locks, as said at hf_event. NULL: nobody. */
    void (*on_event)(const struct hf_event *event, void *arg);
    void *on_event_arg;
} hf_client_options;

#define HF_CLIENT_OPTIONS_INIT \
    { sizeof(hf_client_options), 60000, 3000, 10000, 0, NULL, 0, NULL, NULL }

/* Opens a client on the store that `url` names ("memory:", "sqlite:PATH", …; hf_store_at lists
 * what this build has). NULL stands for "sqlite:", the embedded store: a file of the user's own, for
 * the processes of one host. Does not wait for a server: a store
 * that cannot be reached says so at the first call.
 * Errors: BAD_URL, NO_STORE (and which package has it), BAD_ARGUMENT, UNSUPPORTED, BAD_STORE,
 * DENIED, UNREACHABLE, NO_MEMORY, SYSTEM. */
HF_API int hf_client_open(const char *url, const hf_client_options *options,
                          hf_client **ret_client);

/* Ends everything that goes on in the client: calls in flight complete with HF_CLOSED, locks that
 * are still held are released (waiting at most a second for the store's answer), threads are
 * joined; callbacks that are still due run in this call. Holds and calls stay valid as handles that answer HF_CLOSED, and must still be freed.
 * Must not be called from one of the client's own callbacks. Returns NULL; NULL does nothing. */
HF_API hf_client *hf_client_close(hf_client *client);

/* ---- Acquiring ---------------------------------------------------------------------------- */

/* Every lock is a name with a capacity, and holds that weigh something. A name has its kind and
 * capacity while it is held or queued for; to use it as another kind meanwhile is HF_WRONG_KIND.
 * Requests are served first in, first out: one that came later never overtakes one that waits,
 * so readers cannot starve a writer (HF_BARGE opts out). */
typedef enum hf_kind {
    HF_MUTEX = 1,   /* one holder */
    HF_READ = 2,    /* read/write lock: with other readers */
    HF_WRITE = 3,   /* read/write lock: alone */
    HF_PERMITS = 4, /* `permits` out of `capacity` */
} hf_kind;

/* Take the lock as soon as it fits, ahead of those who wait. */
#define HF_BARGE 0x1u
/* If this owner (the calling thread, or `owner_key`) has the lock already through a request with
 * this flag, count up instead of waiting for oneself. Each such acquire gives a hold of its own;
 * the lock is let go with the last of them. A reader cannot become a writer this way
 * (HF_WRONG_KIND), nor k permits more than k (HF_BAD_WEIGHT). */
#define HF_REENTRANT 0x2u
/* Do not renew: the lock ends with its lease unless you call hf_renew. */
#define HF_NO_RENEW 0x4u

typedef struct hf_acquire_options {
    size_t size;
    hf_kind kind;
    uint32_t permits;    /* HF_PERMITS: how many are wanted … */
    uint32_t capacity;   /* … of how many; other kinds ignore both */
    int64_t wait_ms;     /* 0: try once; HF_FOREVER: wait for as long as it takes */
    int64_t lease_ms;    /* after this long without a renewal, the store lets somebody else in */
    int64_t min_left_ms; /* at most the lease; with less left when granted: let go, say HF_SHORT */
    unsigned flags;      /* HF_BARGE, HF_REENTRANT, HF_NO_RENEW */
    uint64_t owner_key;  /* HF_REENTRANT: who is asking; 0: the calling thread */
    const char *label;   /* what operators see beside the lock; at most 255 bytes, or NULL */
    /* Called once if the lock is lost, as said at hf_process. The hold is valid in it. */
    void (*on_lost)(hf_hold *hold, void *arg);
    void *on_lost_arg;
} hf_acquire_options;

#define HF_ACQUIRE_OPTIONS_INIT                                                               \
    {                                                                                         \
        sizeof(hf_acquire_options), HF_MUTEX, 1, 1, HF_FOREVER, HF_DEFAULT_LEASE_MS, 0, 0, 0, \
            NULL, NULL, NULL                                                                  \
    }

/* Acquires the lock `name` and gives a hold that the caller must free. While the lock is held it
 * is renewed in the background (by the client's own thread, at a third of the lease) until it is
 * released or lost. To be able to cancel a wait from another thread, use hf_acquire_start and
 * hf_call_wait.
 *
 * A request whose reply was lost is repeated under the same attempt id and finds its own effect,
 * so a grant is never taken twice nor forgotten.
 *
 * Errors: BUSY (wait_ms 0, and somebody has it), TIMEOUT, SHORT, WRONG_KIND, BAD_NAME, BAD_WEIGHT,
 * BAD_LEASE, BAD_ARGUMENT, UNSUPPORTED, UNREACHABLE, UNKNOWN (the store fell silent; whatever it
 * granted is being released and ends with its lease at the latest), CLOCK, DENIED, BAD_STORE,
 * STORE_FULL, NO_MEMORY, SYSTEM, CLOSED, FORKED. After every error nothing is held. */
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
    { sizeof(hf_want), NULL, HF_MUTEX, 1, 1 }

/* Acquires all of the `count` (1 to 64) names, or none, within one wait_ms. They are taken in the
 * order of their names, so no two callers deadlock whatever order they give. The one hold that
 * comes back checks, renews and releases all of them; the loss of one is the loss of all (the others
 * are then released), and hf_hold_name says which one it was. A name given twice is HF_BAD_ARGUMENT,
 * HF_REENTRANT is HF_UNSUPPORTED, and one that was lost while others
 * were waited for is HF_LOST. `wants` are pointers to structs of your own; kind, permits
 * and capacity of `options` are ignored. Otherwise as hf_acquire. */
HF_API int hf_acquire_all(hf_client *client, const hf_want *const *wants, size_t count,
                          const hf_acquire_options *options, hf_hold **ret_hold);

/* ---- The hold ----------------------------------------------------------------------------- */

/* HF_OK: the lock is held and at least `need_ms` are left before its deadline (0: any). Ask for as
 * long as the next step of your work takes. HF_SHORT: held, but not that long. HF_LOST, HF_RELEASED,
 * HF_CLOSED, HF_FORKED: not held. Never asks the store; does not block. */
HF_API int hf_check(hf_hold *hold, int64_t need_ms);

/* Milliseconds until the deadline; 0 when the lock is not held (any more). */
HF_API int64_t hf_hold_left_ms(hf_hold *hold);

/* The fencing token of this grant: above 0, below 2^53. Of several names, the index-th in the
 * order given (hf_hold_token is the first); 0 for an index that does not exist. */
HF_API uint64_t hf_hold_token(const hf_hold *hold);
HF_API uint64_t hf_hold_token_at(const hf_hold *hold, size_t index);

/* 1 if the token fences, which is to say if nobody else can hold the lock with it at the same time
 * (HF_MUTEX, HF_WRITE, all of the permits); 0 for shared holds. Of several names: if all do. */
HF_API int hf_hold_is_exclusive(const hf_hold *hold);

/* The name of the lock. Of several names: the one that was lost, if one was, else the first. */
HF_API const char *hf_hold_name(const hf_hold *hold);

/* The owner id under which the store has the lock: 128 random bits and a counter, as text. Whoever
 * knows it can release the lock; everywhere else it is shown abbreviated. */
HF_API const char *hf_hold_owner(hf_hold *hold);

/* Renews now, for `lease_ms` (0: the lease that the hold has), instead of waiting for the automatic
 * renewal; later automatic renewals use the same length. A renewal never shortens what is left.
 * Errors: LOST, RELEASED, BAD_LEASE, UNKNOWN or UNREACHABLE (still held until the deadline that it
 * had), CLOSED, FORKED, NO_MEMORY. */
HF_API int hf_renew(hf_hold *hold, int64_t lease_ms);

/* Lets the lock go. Returns HF_OK if it was released; HF_LOST if it was already lost; HF_UNKNOWN or
 * HF_UNREACHABLE if the store did not confirm (the release is repeated in the background until it
 * does or the lease has ended). Whatever the answer, the lock is no longer held by this hold and
 * no renewal of it is sent any more. May be repeated: the answer stays the same. */
HF_API int hf_release(hf_hold *hold);

/* Releases, if that has not been done, without waiting for the answer, and frees the hold. When
 * this returns, its on_lost does not run and will not (unless it is on_lost that calls). */
HF_API hf_hold *hf_hold_free(hf_hold *hold);

/* A descriptor that becomes readable when the lock is lost, for poll() and friends. It belongs to
 * the hold: do not read or close it. Errors (negative): SYSTEM, NO_MEMORY, CLOSED, FORKED. */
HF_API int hf_hold_fd(hf_hold *hold);

/* ---- Looking ------------------------------------------------------------------------------ */

/* Somebody who holds a lock or waits for it. */
typedef struct hf_party {
    size_t size;
    const char *owner;   /* abbreviated owner id */
    const char *host;    /* "" when the store does not know, as for all these strings */
    const char *command; /* the program */
    const char *label;
    int64_t pid;    /* 0 when unknown */
    uint64_t token; /* 0 for those who wait */
    uint32_t weight;
    int64_t since_ms; /* wall clock, since the epoch: held since, waiting since; 0 unknown */
    int64_t left_ms;  /* of the lease, or of the wait lease; -1: a foreign lock without an end */
    uint32_t votes;   /* in a set: how many of its nodes are with it; 0: the store is no set */
} hf_party;

/* What one node of a set says of a lock. */
typedef struct hf_node {
    size_t size;
    const char *name;    /* its host and port, as in the URL */
    const char *failure; /* why it did not answer; "": it did */
    uint64_t token; /* the largest ever granted that it remembers; 0: it does not know the lock */
    size_t holder_count;
    const hf_party *const *holders; /* who has its vote: one, or several who share the lock */
} hf_node;

typedef struct hf_lock_info {
    size_t size;
    const char *name;
    hf_kind kind;      /* HF_MUTEX, HF_PERMITS, or HF_WRITE for a read/write lock of either use */
    uint32_t capacity; /* HF_PERMITS: the number of permits */
    uint64_t token;    /* the largest ever granted that the store remembers */
    size_t holder_count;
    const hf_party *const *holders;
    size_t waiter_count;
    const hf_party *const *waiters; /* in the order of the queue */
    /* The last hf_break of this name, while the store remembers it: for as long as the token. */
    int64_t broken_ms;         /* wall clock, since the epoch; 0: none */
    uint64_t broken_token;     /* of the hold that was ended; 0: none */
    const char *broken_by;     /* "web3 pid 411 (holdfast break by eve)"; "": none */
    const char *broken_reason; /* "" when none was given */
    /* In a set (a quorum store) a holder is who has the votes of a quorum; who has fewer is among the
     * waiters: on its way there, or what is left of it. */
    uint32_t quorum;             /* how many votes that is; 0: the store is no set */
    size_t node_count;           /* by hf_inspect: all nodes of the set; by hf_list: 0 */
    const hf_node *const *nodes; /* in the order of the URL */
} hf_lock_info;

/* What a look found: locks in the order of their names. */
typedef struct hf_locks hf_locks;

/* Looks at one name. A lock that nobody holds or waits for is there as an entry without holders
 * while the store remembers its token, and else not at all (hf_locks_count is 0, HF_OK).
 * Errors: BAD_NAME, UNSUPPORTED, and those of any request. */
HF_API int hf_inspect(hf_client *client, const char *name, hf_locks **ret_locks);

/* Lists the locks that are held or waited for and whose name begins with `prefix` ("" or NULL: all),
 * in pages: at most `limit` (1 to 1000) of them that sort after `after` (NULL: from the start).
 * The next page starts after the last name of this one; an empty page is the end. A snapshot in
 * each page, not across pages. */
HF_API int hf_list(hf_client *client, const char *prefix, const char *after, size_t limit,
                   hf_locks **ret_locks);

HF_API size_t hf_locks_count(const hf_locks *locks);
HF_API const hf_lock_info *hf_locks_at(const hf_locks *locks, size_t index); /* NULL: none */
HF_API hf_locks *hf_locks_free(hf_locks *locks);

/* Ends somebody's hold of `name`: the one with exactly this `token` (in a set of servers, two readers may
 * have the same: then both). Its holder is told that the lock is lost; the name's token moves on, so that
 * writes under the old one are fenced. The holder may still be at work: this is for operators who know that
 * it is not, or do not care. When, by whom and why (`reason`: at most 255 bytes, or NULL) is kept with the
 * name; hf_lock_info tells it.
 * Errors: NOT_YOURS (nobody has it with that token), BAD_ARGUMENT, and those of any request. */
HF_API int hf_break(hf_client *client, const char *name, uint64_t token, const char *reason);

/* ---- Examining the store ------------------------------------------------------------------ */

typedef enum hf_severity {
    HF_FINE = 0,    /* as it should be */
    HF_NOTE = 1,    /* good to know; nothing has to be done */
    HF_WARNING = 2, /* locks are worth less, or will be when something else goes wrong */
    HF_PROBLEM = 3, /* locks fail, or do not exclude */
} hf_severity;

/* One thing that the store's configuration does to its locks. The strings are never NULL. */
typedef struct hf_finding {
    size_t size;
    hf_severity severity;
    const char *id;    /* a word for programs that stays the same: "file-system", "free-space" */
    const char *found; /* what is so */
    const char *means; /* what that means for locks */
    const char *fix;   /* what to do about it; "" when there is nothing to do */
} hf_finding;

typedef struct hf_examination {
    size_t size;
    const char *tier; /* what these locks are worth, as configured: as in hf_store_info */
    int64_t write_us; /* how long a write to the store takes: the median of some, measured now, … */
    int64_t slowest_us; /* … and the slowest of them; both -1: not measured */
    size_t count;
    const hf_finding *const *findings;
} hf_examination;

/* Asks the store what its configuration does to locks: what `holdfast doctor` prints. Some small writes
 * are made, which change nothing. The caller frees the result with hf_examination_free.
 * Errors: UNSUPPORTED (a store that cannot tell), and those of any request. */
HF_API int hf_examine(hf_client *client, hf_examination **ret_examination);
HF_API hf_examination *hf_examination_free(hf_examination *examination);

/* ---- Events ------------------------------------------------------------------------------- */

/* For logs and metrics. Each lock that was asked for has its own events, in this order: ACQUIRED or
 * NOT_ACQUIRED; after ACQUIRED any number of RENEWED and RENEWAL_FAILED; then LOST or RELEASED, once.
 * Several names at once are several locks; a lock that is entered again (HF_REENTRANT) is the same one.
 * What is refused before the store was asked (a bad argument) has no events. */
typedef enum hf_event_type {
    HF_EVENT_ACQUIRED = 1,
    HF_EVENT_NOT_ACQUIRED = 2,   /* `error` says why */
    HF_EVENT_RENEWED = 3,        /* the store has confirmed it */
    HF_EVENT_RENEWAL_FAILED = 4, /* `error` says why; held until its deadline, and tried again */
    HF_EVENT_LOST = 5,
    HF_EVENT_RELEASED = 6, /* `error` is HF_UNKNOWN if the store has not confirmed it */
} hf_event_type;

/* What on_event of hf_client_options is called with, as said at hf_process; valid during the call. */
typedef struct hf_event {
    size_t size;
    hf_event_type type;
    int error; /* HF_OK where there is none */
    const char *name;
    uint64_t token;          /* 0: NOT_ACQUIRED */
    int64_t wait_ms;         /* from asking for it to its being granted, or not */
    int64_t held_ms;         /* since it was granted, until it was let go */
    uint64_t renewals;       /* that the store has confirmed */
    int64_t least_margin_ms; /* the least time that was left before the deadline when a renewal was
                                confirmed, the lock let go, or (0) lost in time; -1: none of these yet */
    uint64_t dropped;        /* events before this one for which there was no memory */
} hf_event;

/* ---- Calls that do not block -------------------------------------------------------------- */

/* Each of the calls above that may wait for the store has a form that only starts it. A call
 * completes exactly once, also when it is cancelled or its client is closed. Nothing here needs a
 * callback: wait for a call, ask for its status, or have it put in a queue of completed ones. The same
 * client may be used in both ways at once. */
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

/* HF_PENDING, or how the call ended. hf_call_error is then the text of its failure: the call's to
 * keep, "" when there is none. */
HF_API int hf_call_status(hf_call *call);
HF_API const char *hf_call_error(hf_call *call);

/* Blocks until the call has completed and returns how; HF_PENDING when `wait_ms` (HF_FOREVER: no
 * limit) passed before. Any number of threads may wait for one call. */
HF_API int hf_call_wait(hf_call *call, int64_t wait_ms);

/* Ends a pending acquire with HF_CANCELLED (its place in the queue is given up), and the waiting for
 * any other call (what it asked of the store may still happen). A call that has completed keeps
 * its outcome. From any thread. HF_OK, or HF_FORKED. */
HF_API int hf_call_cancel(hf_call *call);

/* Takes the result out of a call that completed with HF_OK: the hold of an acquire, what a look found.
 * Once: then it is the caller's, and the call has it no more (NULL). What is not taken is freed with
 * the call, which for a hold means released. */
HF_API hf_hold *hf_call_take_hold(hf_call *call);
HF_API hf_locks *hf_call_take_locks(hf_call *call);
HF_API hf_examination *hf_call_take_examination(hf_call *call);

/* How a program with many calls learns which have completed: either of these, once for each call, and at
 * any time before it is freed; a call that has completed already is announced at once.
 * hf_call_notify: `fn` is called, as said at hf_process.
 * hf_call_queue: hf_call_next will return the call.
 * Errors: BAD_ARGUMENT (a second one), SYSTEM, NO_MEMORY, CLOSED, FORKED. */
HF_API int hf_call_notify(hf_call *call, void (*fn)(hf_call *call, void *arg), void *arg);
HF_API int hf_call_queue(hf_call *call, void *data);

/* The next completed call of those for which hf_call_queue asked, each once; NULL when there is none at
 * present. hf_call_data is the pointer that was given with it. */
HF_API hf_call *hf_call_next(hf_client *client);
HF_API void *hf_call_data(const hf_call *call);

/* Cancels, if pending, and frees the call with what was not taken out of it. When this returns, its
 * notify function does not run and will not (unless it is that function that calls). */
HF_API hf_call *hf_call_free(hf_call *call);

/* For programs with a loop of their own: a descriptor that is readable when there is something for
 * hf_process or hf_call_next to do, or a call has completed. It belongs to the client. Calling this once says that the program's callbacks
 * shall run in hf_process from now on. Errors (negative): SYSTEM, CLOSED, FORKED. */
HF_API int hf_fd(hf_client *client);

/* Does what is due and runs the callbacks that are: on_lost, notify, on_event. Does not block.
 *
 * Callbacks run here if hf_fd has been called, and else on a thread of the library's that does nothing
 * but run them, one at a time; never on a thread that renews locks, and never with a lock of
 * the library's taken: they may block, call the library, and free the very object that they are
 * called for. HF_OK, CLOSED or FORKED. */
HF_API int hf_process(hf_client *client);

/* ---- The library -------------------------------------------------------------------------- */

#define HF_VERSION "0.1.0"

/* The version of the library that runs, as text ("0.1.0"). */
HF_API const char *hf_version(void);

/* A store that this build can use. */
typedef struct hf_store_info {
    size_t size;
    const char *scheme;  /* "memory" */
    const char *summary; /* one line */
    const char *tier;    /* what its locks are worth: "strict", "timed", "best effort" */
    int available;       /* 0: a module that is not installed */
    const char *package; /* which package has it; "" for what is built in */
} hf_store_info;

/* The index-th store, NULL after the last. */
HF_API const hf_store_info *hf_store_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif
