/* The contract between the client and a store.
 *
 * A store is whatever keeps the locks. The client submits operations, which are data, and the store
 * completes them. It may also send WAKE (a hint that an attempt should ask again), GONE (somebody
 * else ended a hold in the store), CHECK (a hint that somebody may have), FORGOT (holds that it
 * may have lost) and CHANGED (what happened to a lock, for clients that watch). A store is one
 * `struct store_driver`: built in, or the one symbol of a module.
 * The rules:
 *
 *  1. Every operation that was submitted completes exactly once, also when the store is closed
 *     (then as UNKNOWN, or with its real outcome). It may complete inside `submit`. Of two
 *     operations of one attempt, the one that completes first was done first.
 *  2. An outcome is DONE, QUEUED, NOT_YOURS, REFUSED with a reason (certainly not done), or
 *     UNKNOWN (sent, but not answered). UNKNOWN is never turned into one of the others.
 *  3. An operation whose outcome is QUEUED or UNKNOWN may be repeated: it carries its attempt id
 *     (the client's id and `seq`), by which the store recognises a repeat. An ACQUIRE by
 *     an attempt that already holds the lock answers DONE with its token, raised to `floor` if
 *     that is larger, and extends its lease, but never shortens it. (The caller has seen no token
 *     yet, or one that is not below an older repeat's floor: a token that was reported never
 *     changes.)
 *  4. A place in the queue is leased for `wait_lease_us` from the last ACQUIRE that asked for it
 *     or, where all holds of a client share one lease, by that lease. When the lock is released,
 *     it is reserved for the next live waiter for as long as that waiter's place is leased, and
 *     WAKE is sent. The waiter's next ACQUIRE takes it, with token and lease. So a dead waiter
 *     costs the rest of its lease, and nothing depends on WAKE. A WAKE may come before the QUEUED
 *     that it follows. The queue is first in, first out: a waiter is not overtaken, except by
 *     STORE_BARGE, which takes the lock if there is room and waits ahead of those without it.
 *  5. One thread at a time calls a store. A store does not log, and calls nothing but the
 *     functions in `struct store_host`, on the thread that called it. It does not block, unless
 *     it declares that (STORE_BLOCKS: it waits for a disk). Such a store is called without the
 *     client's mutex, so that nobody else waits for it: the program may end holds at the same time.
 *  6. Tokens: a grant takes token' = max(token + 1, floor, base) in the very step that grants.
 *     `floor` is the client's proposal. If it is more than a day ahead of the store's clock (or
 *     base), it is cut to that limit if the name has a counter, and the request is refused with
 *     HF_CLOCK if it has none. A counter that nobody used for a week may be forgotten. No token
 *     reaches 2^53. A store with its own number that rises with every grant, whatever the name,
 *     adds `base` to that number instead (STORE_OWN_TOKENS), and `floor` does not count.
 *  7. A release, a renewal and a break compare and act in one step, and never touch another's
 *     hold.
 *  8. A name has the kind and capacity of its holders and waiters; a request for any other is
 *     refused with HF_WRONG_KIND.
 *  9. With a name's counter the store keeps its last break: when, of which token, by whom, why.
 * 10. A lease is negotiated: a request asks for one (`lease_us`), and DONE answers with the one
 *     granted, which may be shorter or longer, but not longer than `max_lease_us`. It starts no
 *     earlier than the request was sent. A RENEW is DONE if each of its renewals has an outcome,
 *     a reason and a lease of its own; any other outcome of the operation applies to all of them.
 * 11. A client has one watch at most. From WATCH to UNWATCH the store reports changes of names that
 *     begin with `name`, and maybe of others. The changes of one name come in the order in which
 *     they happened. They are complete after HF_CHANGE_WATCHING, which may come after WATCH is
 *     DONE, and until HF_CHANGE_MISSED. Changes that nobody made, such as the end of a lease, need
 *     not be reported. While nobody watches, this has no measurable cost for clients.
 * 12. A hold lasts until its lease ends, whatever happens to the connection or the store object.
 *     If it ends with the client's connection (STORE_SESSION_BOUND), its lease says how long the
 *     server keeps it for a client that has fallen silent. When the connection ends, the store
 *     sends GONE; somebody else may already hold the lock by then. Such a store cannot honour
 *     `guard_pid`, and refuses to be opened with one.
 * 13. A counter is a number with a name; it is not a lock. COUNT is one step on it. A COUNT
 *     whose outcome is UNKNOWN may be repeated under its attempt id for STORE_COUNT_REPEAT_US from
 *     when it was first submitted: it then happened once, and every repeat gives the same answer. A
 *     client has one COUNT of a name at a time, with rising `seq`, so the store remembers the last
 *     answer for each client and name. A request below that `seq` comes too late, and does
 *     nothing. A store that never answers UNKNOWN need not remember answers.
 * 14. A hold that was asked for with STORE_KEEP (the same in each repeat) may end without a RELEASE
 *     or a RENEW, so the store must not need one to forget it. The death of its process does not
 *     end it; the end of its lease does, or a RELEASE. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/list.h"

#include <holdfast/holdfast.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct url;
struct world;

enum store_kind { STORE_LOCK = 2, STORE_PERMITS = 3 }; /* stores keep these numbers */

/* The capacity of a lock, and the weight of an exclusive hold of it. A shared hold weighs 1. */
#define STORE_ALL 0x7fffffffu
/* For `wake`: every attempt that waits should ask again. For `check`: every hold is meant. No
 * attempt has this number. */
#define STORE_ALL_WAITING 0
#define STORE_ALL_HELD 0
#define STORE_TOKEN_LIMIT (UINT64_C(1) << 53)
#define STORE_FLOOR_AHEAD_US (INT64_C(24) * 3600 * 1000000)
#define STORE_COUNTER_IDLE_US (INT64_C(7) * 24 * 3600 * 1000000)
#define STORE_COUNT_REPEAT_US (INT64_C(60) * 1000000)
/* How long a store remembers an answer, by its own clock. This is longer than a client may repeat,
 * because clocks differ and a request may be delayed on its way. */
#define STORE_COUNT_KEPT_US (2 * STORE_COUNT_REPEAT_US)

enum store_op_type {
    STORE_ACQUIRE, /* take the lock, or queue; sent again while waiting */
    STORE_RENEW,   /* many holds */
    STORE_RELEASE, /* a hold, or a place in the queue */
    STORE_BREAK,   /* the hold of `name` that has `token` */
    STORE_INSPECT, /* one name */
    STORE_LIST,    /* names that begin with `name` and come after `after` */
    STORE_EXAMINE, /* the store itself: what its configuration does to locks */
    STORE_WATCH,   /* names that begin with `name` (rule 11) */
    STORE_UNWATCH,
    STORE_COUNT, /* a counter (rule 13) */
};

/* What a COUNT does; its `kind`. Each answers with the value and what is left of its life. */
enum store_count {
    STORE_COUNT_GET = 1,
    STORE_COUNT_ADD,    /* `number`, to 0 if there is no counter; HF_RANGE beyond int64_t */
    STORE_COUNT_SWAP,   /* sets it to `number`; answers with what was there before */
    STORE_COUNT_CAS,    /* sets it to `number` if it is `expected` */
    STORE_COUNT_REMOVE, /* answers with what was there before */
};

enum store_outcome { STORE_DONE = 1, STORE_QUEUED, STORE_NOT_YOURS, STORE_REFUSED, STORE_UNKNOWN };

enum store_flags {
    STORE_WAIT = 1,    /* ACQUIRE: queue if it is busy (without: REFUSED with HF_BUSY) */
    STORE_BARGE = 2,   /* ACQUIRE: ahead of the waiters */
    STORE_HEAD = 4,    /* QUEUED: nobody waits in front of this attempt */
    STORE_FOREIGN = 8, /* QUEUED, BUSY: held by a client that is not holdfast */
    /* COUNT: in, for CAS: none is expected; out: there is no counter (GET, CAS that did not match),
     * or was none (SWAP, REMOVE). A counter that ADD or CAS has set exists, whatever this says. */
    STORE_ABSENT = 16,
    STORE_MISMATCH = 32, /* CAS, DONE: it was not as expected, and `value` is what it is */
    STORE_KEEP = 64,     /* ACQUIRE: see rule 14 */
};

/* One hold of a RENEW. `of` is the operation that acquired it (name, kind, seq); it becomes NULL if
 * the hold ends while the renewal is in flight; there is then nothing to renew. A store may use
 * what it has read from `of` until it calls its host. */
struct store_renewal {
    _Atomic(const struct store_op *) of;
    int64_t lease_us; /* in: asked for; out, when DONE: granted (rule 10) */
    enum store_outcome outcome;
    int reason; /* as in an operation */
};

struct store_op {
    struct list link;   /* for its owner: the store's, between submit and completion */
    uint8_t type;       /* enum store_op_type */
    uint8_t outcome;    /* enum store_outcome, set by the store */
    uint8_t kind;       /* enum store_kind */
    uint8_t flags;      /* enum store_flags: in and out */
    int reason;         /* REFUSED: the hf_error; UNKNOWN: the same, or 0 */
    char *text;         /* particulars of the failure or NULL; malloc'd, the submitter frees it */
    uint64_t seq;       /* with the client's id, the attempt id */
    uint64_t owner_seq; /* ACQUIRE: out, what the store's records have instead of `seq`; 0: `seq` */
    const char *name;
    const char *label; /* what operators see; BREAK: why; NULL: nothing */
    uint32_t capacity, weight;
    /* ACQUIRE: in, asked for; out, when DONE: granted (rule 10). COUNT: in, the life of a counter
     * that this creates (0: no end); one that exists keeps what it has. */
    int64_t lease_us;
    union {
        uint64_t floor; /* ACQUIRE */
        struct {        /* RENEW */
            struct store_renewal *renewals;
            size_t renewal_count;
        };
        struct { /* LIST */
            const char *after;
            size_t limit;
        };
        struct { /* COUNT */
            int64_t number, expected;
        };
    };
    union {
        struct {
            uint64_t token;  /* ACQUIRE: out, granted; BREAK: in */
            int64_t left_us; /* QUEUED, BUSY: when the head of the queue should retry */
        };
        struct { /* COUNT: out */
            int64_t value;
            int64_t life_us; /* what is left of its life; -1: it has no end */
        };
        struct hf_locks *locks;      /* INSPECT, LIST: out; the submitter frees it */
        hf_examination *examination; /* EXAMINE: the same; see findings.h */
    };
};

/* Who the client is: the attempt id's first part, and what operators see. */
struct store_identity {
    uint8_t id[16];
    const char *host;
    const char *command;
    int64_t pid;
    int64_t
        guard_pid; /* must also be dead before the client counts as dead; 0: none; HF_LEASE_ONLY */
};

/* What happened to a lock (rule 11). */
struct store_change {
    hf_change_type type;
    int64_t at_us; /* wall clock: the store's if it has one */
    /* One lock with one holder (ACQUIRED, RELEASED, BROKEN) or waiter (WAITING, LEFT), and its last
     * break (BROKEN). The host takes it over. NULL: WATCHING, MISSED. */
    struct hf_locks *locks;
    const char *text; /* MISSED: why; NULL otherwise */
};

typedef bool store_concerns(void *context, const char *name);

/* What the client gives to its store. The functions never call the store, so it may call them at
 * any point; `op` is the client's again when `completed` is called. */
struct store_host {
    struct world *world;
    struct store_identity identity;
    int64_t wait_lease_us, max_lease_us;
    uint32_t drift_ppm;   /* how much clocks may run apart */
    uint64_t token_floor; /* raise the store's token base to this */
    void (*completed)(struct store_host *host, struct store_op *op);
    void (*wake)(struct store_host *host, uint64_t seq);
    void (*gone)(struct store_host *host, uint64_t seq);
    /* Something may have happened to this hold (or STORE_ALL_HELD): it is renewed at once, and the
     * answer decides. So it does no harm if this comes late or for no reason. */
    void (*check)(struct store_host *host, uint64_t seq);
    /* The store may have forgotten what it had granted, as in a fail-over: every hold whose name
     * `concerns` accepts (NULL: every hold) is lost, even if the store still has it; its release
     * then frees it there. */
    void (*forgot)(struct store_host *host, store_concerns *concerns, void *context);
    void (*changed)(struct store_host *host, const struct store_change *change);
};

enum store_capability {
    STORE_CAN_SHARE = 1, /* shared holds */
    STORE_CAN_PERMITS = 2,
    STORE_CAN_QUEUE = 4,      /* rule 4; without it, waiters poll */
    STORE_CAN_LEASE_EACH = 8, /* a lease for each hold; without it, a client's holds share one */
    STORE_CAN_FLOOR = 16,     /* `token_floor` and `floor` raise tokens */
    STORE_CAN_LOOK = 32,
    STORE_CAN_EXAMINE = 64,
    STORE_BLOCKS = 128,         /* see rule 5 */
    STORE_QUICK = 256,          /* it makes no system calls, which might be cancellation points */
    STORE_CAN_PUSH = 512,       /* WATCH and UNWATCH */
    STORE_OWN_TOKENS = 1024,    /* of the server: `token_floor` raises them, `floor` does not */
    STORE_IN_ORDER = 2048,      /* its order is fixed: it refuses STORE_BARGE */
    STORE_SESSION_BOUND = 4096, /* rule 12 */
    STORE_CAN_COUNT = 8192,     /* rule 13 */
    STORE_CAN_KEEP = 16384,     /* rule 14 */
};

/* The driver is that of the URL's scheme, or another if the URL's options chose one. */
struct store {
    const struct store_driver *driver;
};

#define STORE_ABI 11

struct store_driver {
    unsigned abi; /* STORE_ABI of the tree that it was built in */
    const char *scheme;
    const char *tier;                  /* as in hf_store_info */
    uint16_t port;                     /* of its servers, if a URL names none; 0: it has no ports */
    unsigned capabilities;             /* enum store_capability */
    const char *lacks;                 /* why it cannot do the rest, for people; may be NULL */
    const struct store_voting *voting; /* voting.h; NULL: its stores cannot be nodes of a set */
    /* Opens without waiting for a server. On failure an hf_error and, maybe, malloc'd
     * particulars. */
    int (*open)(struct store_host *host, const struct url *url, struct store **ret_store,
                char **ret_text);
    void (*submit)(struct store *store, struct store_op *op);
    /* Completes what is in flight, then frees. Locks are not released by this. */
    void (*close)(struct store *store);
};

/* The symbol of a module, a `const struct store_driver`. */
#define STORE_MODULE_SYMBOL "holdfast_store_driver"

static inline void store_complete(struct store_host *host, struct store_op *op,
                                  enum store_outcome outcome) {
    op->outcome = outcome;
    host->completed(host, op);
}

/* Takes ownership of `text`, which may be NULL. */
static inline void store_refuse(struct store_host *host, struct store_op *op, int reason,
                                char *text) {
    op->reason = reason;
    op->text = text;
    store_complete(host, op, STORE_REFUSED);
}

/* The driver for a URL's scheme: built in, or loaded from a module. On failure HF_NO_STORE and,
 * maybe, malloc'd particulars. (registry.c) */
int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text);

/* Describes, for people, the store that a scheme names and this driver implements. (registry.c) */
hf_store_info store_describe(const char *scheme, const struct store_driver *driver);

/* The token of a grant by rule 6. `counter` is the name's, 0 where it has none; for a repeat it is
 * the token that the hold has. (rules.c) */
int store_next_token(uint64_t counter, bool repeats, uint64_t floor, uint64_t base,
                     int64_t server_wall_us, uint64_t *ret_token, char **ret_text);

/* For HF_WRONG_KIND: malloc'd "it is a lock", "it is permits out of 5"; maybe NULL. (rules.c) */
char *store_describe_kind(enum store_kind kind, uint32_t capacity);

#endif
