/* Design notes.
 *
 * A hold has at most one operation in flight (its op), besides a renewal, which is batched with
 * those of other holds. A program that gives up while its request is in flight gets its result at
 * once. The hold stays with the engine as RELEASING until the store has answered and what it
 * granted has been released.
 *
 * D is counted from asked_us, the time at which the operation was put out or, if that was later,
 * submitted to the store (engine_submitting): never from an answer.
 *
 * Each hold has one place in the heap, the earlier of two times: when it will act next (act_at_us),
 * and when its current state ends on its own (limit_us). Everything that changes either ends with
 * schedule(). */
#include "engine/engine.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 256,            /* renewals in one operation */
    BATCHES_AT_ONCE = 4,    /* in one tick */
    MARGIN_US = 2000,       /* taken off the lease besides the drift: timers, rounding */
    FIRST_RETRY_US = 20000, /* after a failure; doubled each time */
    INQUIRY_US = 500000     /* how long the report of a loss may wait for its cause */
};

/* A RENEW in flight. The client submits its op; it comes back through engine_completed. */
struct renewals {
    struct store_op op;
    int64_t asked_us;
    struct store_renewal items[BATCH];
};

/* An INSPECT in flight that asks why the store does not have a hold. */
struct inquiry {
    struct store_op op;
    struct hold *of; /* NULL: nobody waits for the answer any more */
    char name[];
};

static struct hold *hold_of_op(const struct store_op *op) {
    return container_of(op, struct hold, op);
}

static struct hold *hold_of_due(struct heap_node *node) {
    return container_of(node, struct hold, due);
}

/* ---- Time ---- */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

void engine_set_time(struct engine *e, int64_t now_us, int64_t wall_us) {
    e->now_us = max(e->now_us, now_us);
    e->wall_us = wall_us;
}

static int64_t margin_us(const struct engine *e, int64_t lease_us) {
    return lease_us * (int64_t)e->config.drift_ppm / 1000000 + MARGIN_US;
}

int64_t engine_validity_us(const struct engine *e, int64_t lease_us) {
    return lease_us - margin_us(e, lease_us);
}

static bool is_held(const struct hold *hold) {
    return hold->state == HOLD_HELD || hold->state == HOLD_SUSPECT;
}

int64_t engine_left_us(const struct engine *e, const struct hold *hold) {
    return is_held(hold) ? max(0, hold->deadline_us - e->now_us) : 0;
}

static struct request *acquire_request(const struct hold *hold) {
    struct request *request = hold->requests;
    while (request && request->type != REQUEST_ACQUIRE)
        request = request->next;
    return request;
}

/* When the hold's current state ends on its own. */
static int64_t limit_us(const struct hold *hold) {
    if (is_held(hold))
        return hold->deadline_us;
    struct request *request = acquire_request(hold);
    /* A try has no time limit of its own: it takes as long as the store's one answer. */
    return request && request->give_up_us ? request->give_up_us : ENGINE_NEVER;
}

static void schedule(struct engine *e, struct hold *hold) {
    int64_t at = min(hold->act_at_us, limit_us(hold));
    if (at == ENGINE_NEVER)
        heap_remove(&e->due, &hold->due);
    else
        heap_set(&e->due, &hold->due, at);
}

int64_t engine_due_us(const struct engine *e) {
    struct heap_node *first = heap_first(&e->due);
    return first ? first->at : ENGINE_NEVER;
}

static uint64_t random_below(struct engine *e, uint64_t limit) {
    e->config.random = map_hash_number(e->config.random + 1);
    return limit ? e->config.random % limit : 0;
}

/* When to retry after a failure. The delay doubles each time up to a limit, and is partly random so
 * that clients do not retry in step. */
static int64_t retry_at_us(struct engine *e, struct hold *hold, int64_t cap_us) {
    int64_t delay = min((int64_t)FIRST_RETRY_US << min(hold->failures, 10), max(cap_us, 1000));
    if (hold->failures < UINT8_MAX)
        hold->failures++;
    return e->now_us + delay / 2 + (int64_t)random_below(e, (uint64_t)delay / 2 + 1);
}

/* ---- What goes out to the client ---- */

static void put_out(struct engine *e, struct store_op *op) {
    list_append(&e->out, &op->link);
}

void engine_submitting(struct engine *e, struct store_op *op) {
    if (op->type == STORE_RENEW)
        container_of(op, struct renewals, op)->asked_us = e->now_us;
    else if (op->type == STORE_ACQUIRE || op->type == STORE_RELEASE)
        hold_of_op(op)->asked_us = e->now_us;
}

static char *take_text(struct store_op *op) {
    char *text = op->text;
    op->text = NULL;
    return text;
}

static void send(struct engine *e, struct hold *hold, enum store_op_type type) {
    assert(!hold->in_flight);
    hold->in_flight = true;
    hold->asked_us = e->now_us;
    hold->act_at_us = ENGINE_NEVER;
    hold->op.type = type;
    hold->op.outcome = 0;
    hold->op.reason = 0;
    free(take_text(&hold->op)); /* left over from the last answer: nobody took it */
    put_out(e, &hold->op);
    schedule(e, hold);
}

/* Records how the last request or renewal failed (0: it did not). Takes ownership of `text`. */
static void note_failure(struct hold *hold, int error, char *text) {
    free(hold->failure_text);
    hold->failure = error;
    hold->failure_text = text;
}

static char *take_failure_text(struct hold *hold) {
    char *text = hold->failure_text;
    hold->failure_text = NULL;
    return text;
}

static void add_news(struct engine *e, struct hold *hold, enum hold_news news) {
    hold->news |= news;
    if (list_empty(&hold->link))
        list_append(&e->news, &hold->link);
}

static void notify_watcher(struct engine *e, struct hold *hold, enum hold_news news) {
    if (hold->watched)
        add_news(e, hold, news);
}

static void add_request(struct hold *hold, struct request *request) {
    request->hold = hold;
    request->next = hold->requests;
    hold->requests = request;
}

/* Finishes one request. Takes ownership of `text`. */
static void finish(struct engine *e, struct request *request, int result, char *text) {
    struct request **link = &request->hold->requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    request->hold = NULL;
    request->result = result;
    request->text = text;
    list_append(&e->finished, &request->link);
}

/* Finishes all requests of a type. Takes ownership of `text`, which goes to the first of them. */
static void finish_all(struct engine *e, struct hold *hold, enum request_type type, int result,
                       char *text) {
    for (struct request *request = hold->requests, *next; request; request = next) {
        next = request->next;
        if (request->type == type) {
            finish(e, request, result, text);
            text = NULL;
        }
    }
    free(text);
}

/* ---- The ends of a hold ---- */

static void cancel_renewal(struct hold *hold) {
    if (hold->renewal)
        hold->renewal->of = NULL;
    hold->renewal = NULL;
}

static void forbid_reentry(struct engine *e, struct hold *hold) {
    if (hold->reentry)
        map_remove(&e->by_owner, &hold->reentry->node);
    hold->reentry = NULL;
}

static void end(struct engine *e, struct hold *hold) {
    finish_all(e, hold, REQUEST_RELEASE, HF_OK, NULL); /* there was nothing to release */
    assert(!hold->in_flight && !hold->requests && !hold->renewal && !hold->inquiry);
    free(take_text(&hold->op));
    hold->state = HOLD_OVER;
    heap_remove(&e->due, &hold->due);
    map_remove(&e->by_seq, &hold->by_seq);
    forbid_reentry(e, hold);
    e->hold_count--;
    add_news(e, hold, HOLD_ENDED);
}

/* ---- Losing ----
 *
 * A hold that the store no longer has is lost at once. The engine then asks the store for the
 * cause; no other case costs a second request. The program is notified when the answer has come,
 * after INQUIRY_US, or at the deadline, whichever is first. */

static void release(struct engine *e, struct hold *hold);

static char *copy(const char *text) {
    return text ? error_format("%s", text) : NULL;
}

static void report_loss(struct engine *e, struct hold *hold) {
    hold->act_at_us = ENGINE_NEVER;
    schedule(e, hold);
    finish_all(e, hold, REQUEST_RENEW, HF_LOST, copy(hold->failure_text));
    add_news(e, hold, HOLD_WAS_LOST);
}

/* The cause is known, or nobody waits for it any longer. */
static void end_inquiry(struct engine *e, struct hold *hold) {
    hold->inquiry->of = NULL;
    hold->inquiry = NULL;
    if (hold->state == HOLD_LOST) {
        report_loss(e, hold);
        finish_all(e, hold, REQUEST_RELEASE, HF_LOST, copy(hold->failure_text));
        if (hold->is_done_with)
            release(e, hold);
    } else { /* its release found it gone */
        finish_all(e, hold, REQUEST_RELEASE, HF_LOST, copy(hold->failure_text));
        end(e, hold);
    }
}

static bool inquire(struct engine *e, struct hold *hold) {
    size_t size = strlen(hold->op.name) + 1;
    struct inquiry *inquiry = e->config.can_look ? malloc(sizeof(*inquiry) + size) : NULL;
    hold->cause = LOSS_GONE;
    note_failure(hold, HF_LOST, error_format("the store no longer has it"));
    if (!inquiry)
        return false;
    inquiry->op = (struct store_op){.type = STORE_INSPECT,
                                    .seq = hold->op.seq,
                                    .name = memcpy(inquiry->name, hold->op.name, size)};
    list_init(&inquiry->op.link);
    inquiry->of = hold;
    hold->inquiry = inquiry;
    add_news(e, hold, HOLD_IS_GONE);
    hold->act_at_us = min(e->now_us + INQUIRY_US, hold->deadline_us);
    put_out(e, &inquiry->op);
    schedule(e, hold);
    return true;
}

static void explain(struct hold *hold, const hf_lock_info *info) {
    bool was_broken = info && info->broken_token && info->broken_token == hold->op.token;
    if (was_broken)
        hold->cause = LOSS_BROKEN;
    note_failure(hold, HF_LOST,
                 was_broken ? error_format("broken by %s%s%s", info->broken_by,
                                           *info->broken_reason ? ": " : "", info->broken_reason)
                            : error_format("the store no longer has it: it was deleted there, or "
                                           "expired by the store's clock"));
}

static void inquiry_answered(struct engine *e, struct inquiry *inquiry) {
    struct store_op *op = &inquiry->op;
    hf_locks *locks = op->outcome == STORE_DONE ? op->locks : NULL;
    if (inquiry->of) {
        if (op->outcome == STORE_DONE)
            explain(inquiry->of, hf_locks_at(locks, 0));
        end_inquiry(e, inquiry->of);
    }
    hf_locks_free(locks);
    free(op->text);
    free(inquiry);
}

/* What is known when nothing confirmed the hold in time. */
static char *expiry_text(const struct engine *e, const struct hold *hold) {
    int64_t confirmed_us = hold->deadline_us - engine_validity_us(e, hold->granted_us);
    const char *error = hold->failure ? hf_error_string(hold->failure) : NULL;
    return error_format("not renewed for %" PRId64 " ms%s%s%s%s", (e->now_us - confirmed_us) / 1000,
                        error ? ": " : "", error ? error : "", hold->failure_text ? ": " : "",
                        hold->failure_text ? hold->failure_text : "");
}

static void lose(struct engine *e, struct hold *hold, enum loss_cause cause) {
    hold->state = HOLD_LOST;
    hold->was_lost = true;
    hold->cause = cause;
    cancel_renewal(hold);
    if (cause == LOSS_GONE && inquire(e, hold))
        return;
    if (cause == LOSS_EXPIRED)
        note_failure(hold, HF_LOST, expiry_text(e, hold));
    else if (cause == LOSS_FORGOTTEN)
        note_failure(hold, HF_LOST,
                     error_format("the store may have forgotten it: another server took over"));
    report_loss(e, hold);
}

static void send_release(struct engine *e, struct hold *hold) {
    hold->failures = 0;
    send(e, hold, STORE_RELEASE);
}

/* The program is done with the hold. Whatever the store may still have of it is released; the
 * release is repeated until the store confirms it or must have forgotten the hold by itself. */
static void release(struct engine *e, struct hold *hold) {
    int64_t longest_us = max(hold->longest_lease_us, e->config.wait_lease_us);
    if (hold->inquiry) {
        hold->is_done_with = false;
        end_inquiry(e, hold);
    }
    if (is_held(hold))
        notify_watcher(e, hold, HOLD_RELEASED);
    hold->state = HOLD_RELEASING;
    hold->deadline_us = e->now_us + longest_us + 2 * margin_us(e, e->config.max_lease_us);
    hold->act_at_us = ENGINE_NEVER;
    cancel_renewal(hold);
    forbid_reentry(e, hold);
    schedule(e, hold);
    if (hold->in_flight)
        return; /* the answer decides */
    if (hold->may_exist)
        send_release(e, hold);
    else
        end(e, hold);
}

/* The program is done with the hold. One that `keeps` stays in the store until its lease ends. */
static void release_or_leave(struct engine *e, struct hold *hold) {
    if (!hold->keeps || !is_held(hold)) {
        release(e, hold);
        return;
    }
    notify_watcher(e, hold, HOLD_RELEASED);
    cancel_renewal(hold);
    end(e, hold);
}

/* Gives up acquiring. Takes ownership of `text`. */
static void withdraw(struct engine *e, struct hold *hold, int result, char *text) {
    finish(e, acquire_request(hold), result, text);
    release(e, hold);
}

/* ---- Tokens that were seen ----
 *
 * The floor of a name is above the largest token that was seen for it, in case the store lost the
 * counter and the clock went back. It must not be above the tokens of other names: a single counter
 * far ahead would drag all of them along, and the store refuses such a floor for a name without a
 * counter. Memory is bounded: in a full row, the entry with the smallest token is replaced. */

static struct seen_token *find_seen(struct engine *e, const char *name) {
    uint64_t hash = map_hash(name, strlen(name), 0);
    struct seen_token *row = e->seen[hash % ENGINE_SEEN_ROWS], *oldest = row;
    for (struct seen_token *seen = row; seen < row + ENGINE_SEEN_IN_ROW; seen++) {
        if (seen->name == hash)
            return seen;
        if (seen->token < oldest->token)
            oldest = seen;
    }
    *oldest = (struct seen_token){.name = hash};
    return oldest;
}

static void note_token(struct engine *e, const struct store_op *op) {
    struct seen_token *seen = find_seen(e, op->name);
    seen->token = seen->token > op->token ? seen->token : op->token;
}

static uint64_t floor_for(struct engine *e, const char *name) {
    uint64_t wall = e->wall_us > 0 ? (uint64_t)e->wall_us : 0, next = find_seen(e, name)->token + 1;
    return wall > next ? wall : next;
}

/* ---- Acquiring ---- */

static void ask(struct engine *e, struct hold *hold) {
    struct request *request = acquire_request(hold);
    hold->state = HOLD_ASKING;
    hold->woken = false;
    hold->op.floor = floor_for(e, hold->op.name);
    hold->op.lease_us = hold->lease_us;
    hold->op.flags = (uint8_t)((request->give_up_us ? STORE_WAIT : 0) |
                               (hold->barges ? STORE_BARGE : 0) | (hold->keeps ? STORE_KEEP : 0));
    send(e, hold, STORE_ACQUIRE);
}

static uint64_t owner_hash(const char *name, const struct owner *owner) {
    return map_hash(name, strlen(name), owner->key);
}

int engine_acquire(struct engine *e, struct hold *hold, struct request *request) {
    if (!heap_reserve(&e->due, e->hold_count + 1))
        return HF_NO_MEMORY;
    e->hold_count++;
    list_init(&hold->link);
    list_init(&hold->op.link);
    hold->op.seq = ++e->last_seq;
    hold->lease_us = hold->longest_lease_us = hold->op.lease_us;
    map_add(&e->by_seq, &hold->by_seq, map_hash_number(hold->op.seq));
    struct reentry *reentry = hold->reentry;
    if (reentry) {
        reentry->hold = hold;
        reentry->entered = 1;
        map_add(&e->by_owner, &reentry->node, owner_hash(hold->op.name, &reentry->owner));
    }
    request->answer_by_us = request->give_up_us;
    if (request->give_up_us == ENGINE_NEVER && e->config.store_wait_us != ENGINE_NEVER)
        request->answer_by_us = e->now_us + e->config.store_wait_us;
    add_request(hold, request);
    ask(e, hold);
    return HF_OK;
}

static void ask_later(struct engine *e, struct hold *hold, int64_t at_us) {
    hold->state = HOLD_QUEUED;
    hold->act_at_us = at_us;
    schedule(e, hold);
}

static void note_lease(struct hold *hold, int64_t lease_us) {
    hold->granted_us = lease_us;
    hold->longest_lease_us = max(hold->longest_lease_us, lease_us);
}

static void granted(struct engine *e, struct hold *hold) {
    struct request *request = acquire_request(hold);
    note_lease(hold, hold->op.lease_us);
    int64_t deadline_us = hold->asked_us + engine_validity_us(e, hold->granted_us);
    int64_t left_us = deadline_us - e->now_us;
    if (left_us <= 0 || left_us < request->min_left_us) {
        withdraw(
            e, hold, HF_SHORT,
            error_format("%" PRId64 " ms were left when it was granted", max(left_us, 0) / 1000));
        return;
    }
    hold->state = HOLD_HELD;
    hold->failures = 0;
    note_failure(hold, HF_OK, NULL);
    hold->deadline_us = deadline_us;
    hold->act_at_us = hold->renews ? hold->asked_us + hold->granted_us / 3 : ENGINE_NEVER;
    schedule(e, hold);
    finish(e, request, HF_OK, NULL);
}

/* The holder has more time left than any lease or wait lease of ours can have: a clock was set
 * back, or the holder's max_lease is longer. */
static bool is_clock_error(const struct engine *e, const struct store_op *op) {
    int64_t longest_us = max(e->config.max_lease_us, e->config.wait_lease_us);
    return !(op->flags & STORE_FOREIGN) && op->left_us > longest_us;
}

static char *clock_text(const struct engine *e, const struct store_op *op) {
    return error_format("its holder's lease has %" PRId64 " s left, and this client's max_lease is "
                        "%" PRId64 " s: either the holder has a longer max_lease, which must be "
                        "the same for all clients, or a clock was set back",
                        op->left_us / 1000000, e->config.max_lease_us / 1000000);
}

static void queued(struct engine *e, struct hold *hold) {
    bool is_head = hold->op.flags & STORE_HEAD, foreign = hold->op.flags & STORE_FOREIGN;
    if (!is_head || !foreign)
        hold->failures = 0;
    hold->had_answer = true;
    note_failure(hold, HF_OK, NULL);
    if (is_clock_error(e, &hold->op)) {
        withdraw(e, hold, HF_CLOCK, clock_text(e, &hold->op));
        return;
    }
    if (hold->woken) {
        ask(e, hold);
        return;
    }
    /* Ask often enough to keep the place in the queue. The head also asks when the hold in front of
     * it must have ended. A foreign client notifies nobody when it releases, so the head polls it,
     * less and less often. */
    int64_t again_us = e->config.wait_lease_us / 3;
    if (is_head)
        again_us = min(again_us, max(hold->op.left_us, 0) + 1000);
    int64_t at_us = e->now_us + again_us;
    if (is_head && foreign)
        at_us = min(at_us, retry_at_us(e, hold, e->config.wait_lease_us / 12));
    ask_later(e, hold, at_us);
}

/* The result of a wait that ends without the lock. HF_UNKNOWN: the store may have acted. */
static int result_of_waiting(const struct hold *hold) {
    bool may_have_acted = !hold->had_answer && (hold->may_exist || !hold->failure);
    if (may_have_acted || hold->failure == HF_UNKNOWN)
        return HF_UNKNOWN;
    return hold->had_answer ? HF_TIMEOUT : HF_UNREACHABLE;
}

/* The store cannot be reached or did not answer: wait for it, as for a lock that is held. */
static void store_is_away(struct engine *e, struct hold *hold, int error) {
    struct request *request = acquire_request(hold);
    int64_t until_us = hold->had_answer ? request->give_up_us : request->answer_by_us;
    note_failure(hold, error, take_text(&hold->op));
    if (e->now_us < until_us)
        ask_later(e, hold, min(retry_at_us(e, hold, e->config.wait_lease_us / 3), until_us));
    else
        withdraw(e, hold, result_of_waiting(hold), take_failure_text(hold));
}

static void refused(struct engine *e, struct hold *hold) {
    int reason = hold->op.reason;
    if (reason == HF_UNREACHABLE) {
        store_is_away(e, hold, HF_UNREACHABLE);
    } else if (reason == HF_BUSY && is_clock_error(e, &hold->op)) {
        free(take_text(&hold->op));
        withdraw(e, hold, HF_CLOCK, clock_text(e, &hold->op));
    } else {
        withdraw(e, hold, reason, take_text(&hold->op));
    }
}

static void acquire_answered(struct engine *e, struct hold *hold) {
    enum store_outcome outcome = hold->op.outcome;
    /* REFUSED: this request was not executed, but an unanswered one before it may have been. BUSY:
     * the store does not have this attempt. */
    if (outcome != STORE_REFUSED)
        hold->may_exist = true;
    else if (hold->op.reason == HF_BUSY)
        hold->may_exist = false;
    if (outcome == STORE_DONE)
        note_token(e, &hold->op);
    if (hold->state == HOLD_RELEASING) { /* given up meanwhile */
        release(e, hold);
        return;
    }
    switch (outcome) {
    case STORE_DONE:
        granted(e, hold);
        break;
    case STORE_QUEUED:
        queued(e, hold);
        break;
    case STORE_UNKNOWN:
        store_is_away(e, hold, HF_UNKNOWN);
        break;
    default:
        refused(e, hold);
    }
}

/* The time to wait has passed, in the queue or while the store was away. */
static void give_up(struct engine *e, struct hold *hold) {
    withdraw(e, hold, result_of_waiting(hold), take_failure_text(hold));
}

/* ---- Reentrancy ---- */

static int check_reentry(const struct store_op *held, const struct store_op *wanted) {
    if (held->kind != wanted->kind || held->capacity != wanted->capacity)
        return HF_WRONG_KIND;
    if (wanted->weight > held->weight)
        return held->kind == STORE_LOCK ? HF_WRONG_KIND : HF_BAD_WEIGHT;
    return HF_OK;
}

static bool same_owner(const struct owner *a, const struct owner *b) {
    return a->key == b->key && a->is_thread == b->is_thread;
}

int engine_reenter(struct engine *e, const struct store_op *wanted, const struct owner *owner,
                   struct hold **ret_hold) {
    *ret_hold = NULL;
    for (struct map_node *node = map_find(&e->by_owner, owner_hash(wanted->name, owner)); node;
         node = map_find_next(node)) {
        struct reentry *reentry = container_of(node, struct reentry, node);
        struct hold *hold = reentry->hold;
        if (!same_owner(&reentry->owner, owner) || strcmp(hold->op.name, wanted->name) != 0 ||
            engine_left_us(e, hold) == 0)
            continue;
        int r = check_reentry(&hold->op, wanted);
        if (r < 0)
            return r;
        reentry->entered++;
        *ret_hold = hold;
        return HF_OK;
    }
    return HF_OK;
}

/* ---- Renewing ---- */

static void flush_batch(struct engine *e) {
    if (e->batch)
        put_out(e, &e->batch->op);
    e->batch = NULL;
}

static bool open_batch(struct engine *e) {
    if (e->batch)
        return true;
    struct renewals *batch = malloc(sizeof(*batch));
    if (!batch)
        return false;
    batch->op = (struct store_op){.type = STORE_RENEW, .renewals = batch->items};
    list_init(&batch->op.link);
    batch->asked_us = e->now_us;
    e->batch = batch;
    return true;
}

/* Takes ownership of `text`. */
static void renewal_failed(struct engine *e, struct hold *hold, int reason, char *text) {
    finish_all(e, hold, REQUEST_RENEW, reason, copy(text));
    note_failure(hold, reason, text);
    hold->state = HOLD_SUSPECT;
    notify_watcher(e, hold, HOLD_RENEWAL_FAILED);
    if (hold->renews)
        hold->act_at_us = retry_at_us(e, hold, hold->granted_us / 6);
    schedule(e, hold);
}

/* Puts the hold into the batch that is being filled. */
static void add_renewal(struct engine *e, struct hold *hold, int64_t lease_us) {
    if (!open_batch(e)) {
        renewal_failed(e, hold, HF_NO_MEMORY, NULL);
        return;
    }
    struct renewals *batch = e->batch;
    hold->renewal = &batch->items[batch->op.renewal_count++];
    *hold->renewal = (struct store_renewal){.of = &hold->op, .lease_us = lease_us};
    hold->doubted = false;
    hold->act_at_us = ENGINE_NEVER;
    schedule(e, hold);
    if (batch->op.renewal_count == BATCH)
        flush_batch(e);
}

static void renewed(struct engine *e, struct hold *hold, int64_t asked_us, int64_t lease_us) {
    note_lease(hold, lease_us);
    if (hold->deadline_us <= e->now_us) {
        lose(e, hold, LOSS_EXPIRED); /* the program may have seen that it is lost, which is final */
        return;
    }
    hold->deadline_us = max(hold->deadline_us, asked_us + engine_validity_us(e, lease_us));
    hold->state = HOLD_HELD;
    hold->failures = 0;
    note_failure(hold, HF_OK, NULL);
    notify_watcher(e, hold, HOLD_RENEWED);
    if (hold->doubted)
        hold->act_at_us = e->now_us;
    else if (hold->renews)
        hold->act_at_us = asked_us + lease_us / 3;
    schedule(e, hold);
    finish_all(e, hold, REQUEST_RENEW, HF_OK, NULL);
}

static void renewals_answered(struct engine *e, struct renewals *batch) {
    struct store_op *op = &batch->op;
    for (size_t i = 0; i < op->renewal_count; i++) {
        struct store_renewal *item = &batch->items[i];
        if (!item->of)
            continue;
        struct hold *hold = hold_of_op(item->of);
        bool for_all = op->outcome != STORE_DONE;
        enum store_outcome outcome = for_all ? (enum store_outcome)op->outcome : item->outcome;
        hold->renewal = NULL;
        if (outcome == STORE_DONE) {
            renewed(e, hold, batch->asked_us, item->lease_us);
        } else if (outcome == STORE_NOT_YOURS) {
            hold->may_exist = false;
            lose(e, hold, LOSS_GONE);
        } else {
            int reason = for_all ? op->reason : item->reason;
            renewal_failed(e, hold, outcome == STORE_REFUSED ? reason : HF_UNKNOWN, copy(op->text));
        }
    }
    free(op->text);
    free(batch);
}

void engine_renew(struct engine *e, struct hold *hold, struct request *request, int64_t lease_us) {
    add_request(hold, request);
    if (is_held(hold) && engine_left_us(e, hold) == 0)
        lose(e, hold, LOSS_EXPIRED); /* its timer has not fired yet; this finishes the request */
    else if (!is_held(hold))
        finish(e, request, hold->state == HOLD_LOST ? HF_LOST : HF_RELEASED,
               hold->state == HOLD_LOST ? copy(hold->failure_text) : NULL);
    if (!is_held(hold))
        return;
    cancel_renewal(hold); /* of an older lease; this one replaces it */
    hold->lease_us = lease_us;
    hold->longest_lease_us = max(hold->longest_lease_us, lease_us);
    add_renewal(e, hold, lease_us);
    flush_batch(e);
}

/* ---- Releasing ---- */

void engine_release(struct engine *e, struct hold *hold, struct request *request) {
    if (is_held(hold) && engine_left_us(e, hold) == 0)
        lose(e, hold, LOSS_EXPIRED);
    if (request)
        add_request(hold, request);
    if (is_held(hold) && hold->reentry && --hold->reentry->entered > 0) {
        finish_all(e, hold, REQUEST_RELEASE, HF_OK, NULL);
        return; /* the owner is still inside */
    }
    finish_all(e, hold, REQUEST_RENEW, HF_RELEASED, NULL);
    if (hold->inquiry && hold->was_lost && request) {
        hold->is_done_with = true;
        return; /* the release finishes with the cause of the loss */
    }
    if (hold->was_lost)
        finish_all(e, hold, REQUEST_RELEASE, HF_LOST, copy(hold->failure_text));
    switch ((enum hold_state)hold->state) {
    case HOLD_ASKING:
    case HOLD_QUEUED:
        withdraw(e, hold, HF_CANCELLED, NULL);
        break;
    case HOLD_HELD:
    case HOLD_SUSPECT:
    case HOLD_LOST:
        if (request)
            release(e, hold);
        else
            release_or_leave(e, hold);
        break;
    case HOLD_RELEASING: /* the answer also finishes this request */
        break;
    case HOLD_OVER:
        finish_all(e, hold, REQUEST_RELEASE, HF_RELEASED, NULL);
    }
}

static void release_answered(struct engine *e, struct hold *hold) {
    struct store_op *op = &hold->op;
    bool confirmed = op->outcome == STORE_DONE || op->outcome == STORE_NOT_YOURS;
    if (op->outcome == STORE_NOT_YOURS && hold->may_be_released)
        op->outcome = STORE_UNKNOWN; /* the earlier release or somebody else ended it */
    hold->may_be_released |= op->outcome == STORE_UNKNOWN;
    bool found_gone = op->outcome == STORE_NOT_YOURS && !hold->was_lost;
    if (found_gone && (hold->requests || hold->watched) && inquire(e, hold))
        return;
    int result = op->outcome == STORE_DONE        ? HF_OK
                 : op->outcome == STORE_NOT_YOURS ? HF_LOST
                 : op->outcome == STORE_REFUSED   ? op->reason
                                                  : HF_UNKNOWN;
    finish_all(e, hold, REQUEST_RELEASE, result, take_text(op));
    if (confirmed || e->now_us >= hold->deadline_us) {
        end(e, hold);
        return;
    }
    hold->act_at_us = retry_at_us(e, hold, e->config.wait_lease_us / 3);
    schedule(e, hold);
}

void engine_cancel(struct engine *e, struct request *request, int reason) {
    if (request->type == REQUEST_ACQUIRE)
        withdraw(e, request->hold, reason, NULL);
    else
        finish(e, request, reason, NULL);
}

void engine_shutdown(struct engine *e) {
    for (struct map_node *node = map_first(&e->by_seq), *next; node; node = next) {
        next = map_after(&e->by_seq, node);
        struct hold *hold = container_of(node, struct hold, by_seq);
        finish_all(e, hold, REQUEST_RENEW, HF_CLOSED, NULL);
        finish_all(e, hold, REQUEST_RELEASE, HF_CLOSED, NULL);
        if (acquire_request(hold))
            withdraw(e, hold, HF_CLOSED, NULL);
        else if (hold->state != HOLD_RELEASING)
            release_or_leave(e, hold);
    }
}

void engine_abandon(struct engine *e) {
    for (struct map_node *node = map_first(&e->by_seq), *next; node; node = next) {
        next = map_after(&e->by_seq, node);
        end(e, container_of(node, struct hold, by_seq));
    }
}

/* ---- Events ---- */

static struct hold *find(const struct engine *e, uint64_t seq) {
    /* The hash is a bijection, so equal hashes mean equal numbers. */
    struct map_node *node = map_find(&e->by_seq, map_hash_number(seq));
    return node ? container_of(node, struct hold, by_seq) : NULL;
}

static void wake(struct engine *e, struct hold *hold) {
    if (hold->state == HOLD_QUEUED)
        ask(e, hold);
    else if (hold->state == HOLD_ASKING)
        hold->woken = true;
}

static void wake_all(struct engine *e) {
    for (struct map_node *node = map_first(&e->by_seq); node; node = map_after(&e->by_seq, node))
        wake(e, container_of(node, struct hold, by_seq));
}

void engine_wake(struct engine *e, uint64_t seq) {
    struct hold *hold = find(e, seq);
    if (seq == STORE_ALL_WAITING)
        wake_all(e);
    else if (hold)
        wake(e, hold);
}

/* Some servers of a set may still have the hold: may_exist stays, so that it is released there. */
void engine_gone(struct engine *e, uint64_t seq) {
    struct hold *hold = find(e, seq);
    if (hold && is_held(hold))
        lose(e, hold, LOSS_GONE);
}

/* Makes the hold due for a renewal now. One that the program does not want renewed is renewed only
 * for the time that it has left (see engine_tick), so its lease does not change. */
static void check(struct engine *e, struct hold *hold) {
    if (!is_held(hold))
        return;
    hold->doubted = hold->renewal;
    if (hold->renewal)
        return;
    hold->act_at_us = e->now_us;
    schedule(e, hold);
}

static void check_all(struct engine *e) {
    for (struct map_node *node = map_first(&e->by_seq); node; node = map_after(&e->by_seq, node))
        check(e, container_of(node, struct hold, by_seq));
}

void engine_check(struct engine *e, uint64_t seq) {
    struct hold *hold = find(e, seq);
    if (seq == STORE_ALL_HELD)
        check_all(e);
    else if (hold)
        check(e, hold);
}

/* As for engine_gone: whatever the store still has of these holds is released. */
void engine_forgot(struct engine *e, store_concerns *concerns, void *context) {
    for (struct map_node *node = map_first(&e->by_seq); node; node = map_after(&e->by_seq, node)) {
        struct hold *hold = container_of(node, struct hold, by_seq);
        if (is_held(hold) && (!concerns || concerns(context, hold->op.name)))
            lose(e, hold, LOSS_FORGOTTEN);
    }
}

void engine_completed(struct engine *e, struct store_op *op) {
    if (op->type == STORE_RENEW) {
        renewals_answered(e, container_of(op, struct renewals, op));
        return;
    }
    if (op->type == STORE_INSPECT) {
        inquiry_answered(e, container_of(op, struct inquiry, op));
        return;
    }
    struct hold *hold = hold_of_op(op);
    assert(hold->in_flight);
    hold->in_flight = false;
    if (op->type == STORE_ACQUIRE)
        acquire_answered(e, hold);
    else
        release_answered(e, hold);
}

/* True if the hold can join a batch that goes out now: its renewal is due, or will be within a
 * small part of its lease. A retry is never early. */
static bool may_renew_now(const struct engine *e, const struct hold *hold) {
    int64_t early_us = hold->failures ? 0 : hold->granted_us / 64;
    return is_held(hold) && hold->deadline_us > e->now_us &&
           hold->act_at_us <= e->now_us + early_us;
}

static void act(struct engine *e, struct hold *hold) {
    bool ended = limit_us(hold) <= e->now_us;
    if (hold->inquiry) {
        end_inquiry(e, hold);
        return;
    }
    switch ((enum hold_state)hold->state) {
    case HOLD_ASKING:
        give_up(e, hold);
        break;
    case HOLD_QUEUED:
        if (ended)
            give_up(e, hold);
        else
            ask(e, hold);
        break;
    case HOLD_HELD:
    case HOLD_SUSPECT:
        lose(e, hold, LOSS_EXPIRED);
        break;
    case HOLD_RELEASING:
        send(e, hold, STORE_RELEASE);
        break;
    case HOLD_LOST:
    case HOLD_OVER:
        assert(!"nothing is due for a hold that has ended");
    }
}

void engine_tick(struct engine *e) {
    struct heap_node *first;
    for (int renewals = 0; renewals < BATCH * BATCHES_AT_ONCE && (first = heap_first(&e->due));) {
        struct hold *hold = hold_of_due(first);
        if (may_renew_now(e, hold)) {
            add_renewal(e, hold, hold->renews ? hold->lease_us : engine_left_us(e, hold));
            renewals++;
        } else if (first->at <= e->now_us) {
            act(e, hold);
        } else {
            break;
        }
    }
    flush_batch(e);
}

void engine_init(struct engine *e, const struct engine_config *config) {
    *e = (struct engine){.config = *config};
    list_init(&e->out);
    list_init(&e->finished);
    list_init(&e->news);
    map_init(&e->by_seq);
    map_init(&e->by_owner);
}

void engine_free(struct engine *e) {
    heap_free(&e->due);
    map_free(&e->by_seq);
    map_free(&e->by_owner);
}
