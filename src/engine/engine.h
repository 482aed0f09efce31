/* What a lock does over time: asking, waiting, retrying, holding, renewing, losing, releasing.
 *
 * The engine is pure. Its inputs are the time (engine_set_time) and what happened: a request of the
 * program, an answer or a notification from the store. It changes its own state and three lists
 * that the client processes after each call: `out`, operations to submit to the store; `finished`,
 * requests that have their result; `news`, holds that were lost or that the engine is done with. It
 * does no I/O, reads no clock, starts no thread and calls nobody, so a test can drive it by hand.
 *
 * The caller owns the memory. A hold must live from engine_acquire until the news HOLD_ENDED, a
 * request until it is finished. engine_acquire reserves room for scheduling, so it is the only call
 * that can fail for lack of memory. (A renewal that gets none is retried, like one that the store
 * did not answer.) */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

#define ENGINE_NEVER INT64_MAX

enum hold_state {
    HOLD_ASKING,    /* an ACQUIRE is in flight */
    HOLD_QUEUED,    /* waiting; asks again at act_at_us, or when woken */
    HOLD_HELD,      /* granted, with time left */
    HOLD_SUSPECT,   /* held, but the last renewal failed */
    HOLD_LOST,      /* final, until it is released */
    HOLD_RELEASING, /* the program is done with it; the store may not know that yet */
    HOLD_OVER,      /* the engine no longer knows it */
};

/* Why a hold was lost. */
enum loss_cause {
    LOSS_EXPIRED = 1, /* it was not renewed in time */
    LOSS_GONE,        /* the store no longer had it */
    LOSS_BROKEN,      /* by somebody, on purpose */
    LOSS_FORGOTTEN,   /* the store may have lost it */
};

enum hold_news {
    HOLD_WAS_LOST = 1,
    HOLD_ENDED = 2,
    /* Only of holds that are `watched`. A hold has one renewal at a time, so none is missed. */
    HOLD_RENEWED = 4,
    HOLD_RENEWAL_FAILED = 8, /* why is in `failure` */
    HOLD_RELEASED = 16,      /* by the program, while it was held */
    HOLD_IS_GONE = 32,       /* HOLD_WAS_LOST follows when the cause is known, or soon */
};

enum request_type { REQUEST_ACQUIRE, REQUEST_RENEW, REQUEST_RELEASE };

/* Who may reenter a lock: the thread that holds it, or any caller with the program's key. */
struct owner {
    uint64_t key;
    bool is_thread;
};

/* What only a reentrant hold has. */
struct reentry {
    struct map_node node; /* in by_owner, from asking until the release */
    struct hold *hold;
    struct owner owner;
    uint32_t entered;
};

/* What the program waits for. */
struct request {
    struct list link;     /* in the engine's `finished` */
    struct request *next; /* of the same hold */
    struct hold *hold;    /* NULL when it is not pending */
    void *context;        /* the client's */
    enum request_type type;
    int result;         /* once finished */
    char *text;         /* particulars of the result or NULL; the client frees it */
    int64_t give_up_us; /* ACQUIRE: until when to wait; ENGINE_NEVER; 0: try once */
    int64_t
        answer_by_us; /* ACQUIRE: the engine's; until when to retry a store that never answered */
    int64_t min_left_us; /* ACQUIRE: release if less is left */
};

/* An attempt to acquire, and what it becomes. */
struct hold {
    struct store_op op; /* its one operation, which always describes what is acquired */
    struct heap_node due;
    struct map_node by_seq;
    struct list link; /* in `news` */
    struct request *requests;
    struct store_renewal *renewal; /* in flight */
    struct reentry *reentry;       /* NULL: not reentrant */
    struct inquiry *inquiry;       /* in flight: it asks why the store does not have the hold */
    int64_t asked_us;              /* when the operation was sent */
    int64_t act_at_us;             /* when to ask again, to renew, to repeat the release */
    int64_t lease_us;              /* the lease that the program asks for */
    int64_t granted_us;            /* the lease that the store granted last */
    int64_t longest_lease_us;      /* ever asked for (the answer may be lost) or granted */
    int64_t deadline_us;           /* held: D; releasing: when the store has forgotten it */
    uint8_t state;
    uint8_t news;     /* enum hold_news */
    uint8_t failures; /* in a row, for the backoff */
    uint8_t cause;    /* enum loss_cause; 0: it was not lost */
    bool barges : 1, renews : 1;
    bool keeps : 1;      /* without a release, it is left to its lease */
    bool in_flight : 1;  /* op is with the store */
    bool woken : 1;      /* a WAKE came while the request was in flight */
    bool doubted : 1;    /* a CHECK came while a renewal was in flight, whose answer may be older */
    bool may_exist : 1;  /* the store may know this attempt, so it must be released there */
    bool had_answer : 1; /* the store has put it into its queue at least once */
    bool was_lost : 1;
    bool may_be_released : 1; /* a release was not answered, so the store may have done it */
    bool is_done_with : 1;    /* released while the cause of its loss is asked for */
    bool watched : 1;         /* the client wants to know more: see enum hold_news */
    int failure;        /* the error of the last request or renewal if that failed, or 0 … */
    char *failure_text; /* … and its particulars, or NULL; once it is lost, those of the loss. The
                           caller frees it with the hold */
};

struct engine_config {
    int64_t wait_lease_us, max_lease_us;
    int64_t store_wait_us; /* how long an unlimited acquire retries a store that never answered */
    uint32_t drift_ppm;
    bool can_look;   /* the store can be asked why a hold is gone */
    uint64_t random; /* a seed, for jitter */
};

/* The largest token that was seen for a name, by the hash of the name. */
enum { ENGINE_SEEN_ROWS = 256, ENGINE_SEEN_IN_ROW = 4 };
struct seen_token {
    uint64_t name, token;
};

struct engine {
    struct engine_config config;
    int64_t now_us, wall_us;
    struct list out, finished, news;
    struct heap due;
    struct map by_seq, by_owner;
    uint64_t last_seq;
    struct seen_token seen[ENGINE_SEEN_ROWS][ENGINE_SEEN_IN_ROW];
    size_t hold_count;
    struct renewals *batch; /* being filled */
};

void engine_init(struct engine *engine, const struct engine_config *config);
void engine_free(struct engine *engine);

/* The time of the calls that follow. A now_us before the last one is ignored. */
void engine_set_time(struct engine *engine, int64_t now_us, int64_t wall_us);

/* How long a lease is valid from when the request was sent: the lease minus the drift of clocks and
 * a small margin. */
int64_t engine_validity_us(const struct engine *engine, int64_t lease_us);

/* Starts to acquire what hold->op describes (name, label, kind, capacity, weight, lease_us), with
 * the hold's barges, renews, keeps, watched and reentry (its owner); everything else must be zero.
 * The request says how long to wait. HF_OK or HF_NO_MEMORY. */
int engine_acquire(struct engine *engine, struct hold *hold, struct request *request);

/* Enters this owner's hold of the name again; *ret_hold is NULL if there is none. HF_WRONG_KIND or
 * HF_BAD_WEIGHT if the hold does not cover what `wanted` asks for. */
int engine_reenter(struct engine *engine, const struct store_op *wanted, const struct owner *owner,
                   struct hold **ret_hold);

/* Finishes a pending request with `reason`: HF_CANCELLED or another. An acquire is withdrawn. */
void engine_cancel(struct engine *engine, struct request *request, int reason);

/* Renews now, for lease_us. HF_LOST and the like come as the request's result. */
void engine_renew(struct engine *engine, struct hold *hold, struct request *request,
                  int64_t lease_us);

/* Releases (or leaves once, if it was reentered). `request` may be NULL: nobody waits, and a hold
 * that `keeps` is left to its lease. After the last release the hold belongs to the engine until
 * HOLD_ENDED. */
void engine_release(struct engine *engine, struct hold *hold, struct request *request);

/* The end: every request finishes with HF_CLOSED, every hold is released, or left to its lease.
 * Call engine_abandon once the store is closed and nothing is in flight: it ends the holds whose
 * release the store did not confirm. */
void engine_shutdown(struct engine *engine);
void engine_abandon(struct engine *engine);

/* An operation that was put out earlier goes to the store only now: its time counts from now. */
void engine_submitting(struct engine *engine, struct store_op *op);

/* From the store. An INSPECT is the engine's if it has a seq. */
void engine_completed(struct engine *engine, struct store_op *op);
void engine_wake(struct engine *engine, uint64_t seq); /* or STORE_ALL_WAITING */
void engine_gone(struct engine *engine, uint64_t seq);
void engine_check(struct engine *engine, uint64_t seq); /* or STORE_ALL_HELD */
void engine_forgot(struct engine *engine, store_concerns *concerns, void *context);

/* Does what is due. Submit its operations and call it again while engine_due_us is not later than
 * now: a very large number of renewals is sent in portions. */
void engine_tick(struct engine *engine);
int64_t engine_due_us(const struct engine *engine); /* ENGINE_NEVER: nothing */

/* Time left until D; 0 if it is not held. */
int64_t engine_left_us(const struct engine *engine, const struct hold *hold);

#endif
