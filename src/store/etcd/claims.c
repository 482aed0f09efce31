/* Acquire, release, break: what an attempt asks for, step by step.
 *
 * Each step of an acquire is one transaction, and none depends on what the client remembers: a
 * repeat, after any of them, finds out what was done.
 *
 *   TRY      nobody is at the name: take it. One round trip, the usual case.
 *   LOOK     who is at the name?
 *   QUEUE    write the own key, as one that waits, and look
 *   TAKE     it is our turn: write the own key, as one that is held, if nothing has changed that
 *            could change that
 *   FOLLOW   the claim in front is gone: take the lock, if nobody is ahead any more. Only a claim
 *            to the whole lock can express that as a condition. So a hand-off is one round trip,
 *            and costs the same however many wait.
 *   CONFIRM  the own key is held already, by a request whose answer was lost: is its lease alive?
 *   MOVE     the same, and put it on a lease of the right length
 *
 * A step that takes, confirms or moves also keeps the lease alive, so that the hold has its full
 * time from when it was asked for (lease.c). A lease that turns out to be over is replaced, and the
 * attempt starts again.
 *
 * Tokens. A hold's token is the revision of the transaction that granted it, plus the base. Each
 * grant also requires that the base is the one that the client knows. So tokens of successive
 * grants rise with the revisions, and are not below a base that was raised before. */
#include "base/error.h"
#include "store/etcd/etcd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATE_US = 60000000, BREAK_SECONDS = 7 * 24 * 3600, ROUNDS_MAX = 1000 };

enum phase { TRY, LOOK, QUEUE, TAKE, FOLLOW, CONFIRM, MOVE };

struct job {
    struct etcd_tenant tenant;
    struct etcd *etcd;
    struct store_op *op; /* NULL: it lengthens a lease, for a renewal */
    etcd_lengthened *lengthened;
    void *context;
    size_t index;
    struct etcd_attempt *attempt;
    enum phase phase;
    int64_t asked_us, give_up_us, lease_us;
    int64_t lease; /* the id of the lease that it will have */
    bool is_fresh; /* that lease was granted after the job began */
    unsigned rounds;
    unsigned pending; /* calls without an answer */
    int64_t kept;     /* as of etcd_lease_kept */
    bool may_have_acted;
    int reason; /* of a failure; HF_OK: none */
    char *why;
    bool lease_is_over;
    Etcd__TxnResponse *answer;
    struct etcd_key range, end, base; /* of the name */
    Etcd__Claim *own;                 /* MOVE: what to write; CONFIRM: what was found */
    int64_t own_mod;
    int64_t seen; /* the revision at which it was looked */
};

/* ---- Attempts ---- */

struct etcd_attempt *etcd_attempt_find(struct etcd *etcd, uint64_t seq) {
    struct map_node *node = seq ? map_find(&etcd->attempts, map_hash_number(seq)) : NULL;
    return node ? container_of(node, struct etcd_attempt, by_seq) : NULL;
}

static struct etcd_attempt *attempt_new(struct etcd *etcd, const struct store_op *op) {
    struct etcd_attempt *attempt = calloc(1, sizeof(*attempt));
    char owner[LOCKS_OWNER_SIZE], end[LOCKS_OWNER_SIZE + 2];
    if (!attempt)
        return NULL;
    locks_format_owner(etcd->host->identity.id, op->seq, owner);
    snprintf(end, sizeof(end), "/%s%s", op->flags & STORE_BARGE ? "!" : "", owner);
    etcd_key_set(etcd, &attempt->key, "", op->name, end);
    attempt->range_size = strlen(etcd->prefix) + strlen(op->name) + 1;
    attempt->seq = op->seq;
    list_init(&attempt->link);
    list_init(&attempt->young);
    map_add(&etcd->attempts, &attempt->by_seq, map_hash_number(op->seq));
    return attempt;
}

void etcd_attempt_free(struct etcd *etcd, struct etcd_attempt *attempt) {
    if (attempt->ending)
        attempt->ending->context = NULL;
    etcd_watch_stop(etcd, attempt);
    list_remove(&attempt->link);
    map_remove(&etcd->attempts, &attempt->by_seq);
    free(attempt);
}

/* Nobody wants it any more. After `until_us`, its key is deleted with the next keep-alive of any
 * lease: a late request may have put it on any of them. */
static void retire(struct etcd *etcd, struct etcd_attempt *attempt, int64_t until_us) {
    etcd_watch_stop(etcd, attempt);
    attempt->held = attempt->queued = false;
    attempt->is_released = true;
    attempt->until_us = until_us;
    if (!attempt->lease)
        return; /* it was never written, or is in that list already */
    attempt->lease = NULL;
    list_remove(&attempt->link);
    list_append(&etcd->late, &attempt->link);
}

/* Its key is deleted. But a request whose answer was lost may still be under way, and write it
 * again. So it is deleted a second time, after the longest time that this can take. */
static void forget(struct etcd *etcd, struct etcd_attempt *attempt) {
    bool may_come_back = attempt->may_be_late && !list_empty(&attempt->link);
    attempt->may_be_late = false;
    if (may_come_back)
        retire(etcd, attempt, etcd_now_us(etcd) + LATE_US);
    else if (!attempt->users)
        etcd_attempt_free(etcd, attempt);
}

static void ended(struct etcd *etcd, struct etcd_call *call) {
    struct etcd_attempt *attempt = call->context;
    if (!attempt)
        return;
    attempt->ending = NULL;
    bool may_be_there = call->reason && !list_empty(&attempt->link); /* tried again later */
    if (!may_be_there)
        forget(etcd, attempt);
}

static struct etcd_call *delete_call(const struct etcd_key *key, etcd_answered *answered,
                                     void *context) {
    Etcd__DeleteRangeRequest request = ETCD__DELETE_RANGE_REQUEST__INIT;
    request.key = etcd_bytes(key);
    return etcd_call_new("/etcdserverpb.KV/DeleteRange", &request.base, answered, context);
}

void etcd_attempt_end(struct etcd *etcd, struct etcd_attempt *attempt) {
    int64_t now_us = etcd_now_us(etcd);
    retire(etcd, attempt, now_us);
    if (attempt->ending)
        return; /* a deletion is under way, and is repeated if it fails */
    attempt->ending = delete_call(&attempt->key, ended, attempt);
    if (attempt->ending)
        etcd_send(etcd, attempt->ending, now_us + etcd->timeout_us);
}

/* ---- The end of a job ---- */

static void job_free(struct job *job) {
    if (job->answer)
        etcd__txn_response__free_unpacked(job->answer, NULL);
    if (job->own)
        etcd__claim__free_unpacked(job->own, NULL);
    free(job->why);
    free(job);
}

/* Completes its operation with the outcome that is in it, or its part of a renewal. */
static void finish(struct job *job, enum store_outcome outcome) {
    struct etcd *etcd = job->etcd;
    struct store_op *op = job->op;
    struct etcd_attempt *attempt = job->attempt;
    etcd_lengthened *done = job->lengthened;
    void *context = job->context;
    size_t index = job->index;
    int reason = job->reason;
    attempt->users--;
    attempt->may_be_late |= outcome == STORE_UNKNOWN;
    bool is_there = attempt->held || attempt->queued || attempt->may_be_late;
    if (op && outcome == STORE_REFUSED && !is_there && !attempt->users)
        etcd_attempt_free(etcd, attempt);
    job_free(job);
    if (op)
        store_complete(etcd->host, op, outcome);
    else
        done(etcd, context, index, outcome, reason);
}

static void fail(struct job *job) {
    if (job->op) {
        job->op->reason = job->reason;
        job->op->text = job->why && *job->why ? error_format("%s", job->why) : NULL;
    }
    finish(job, job->may_have_acted ? STORE_UNKNOWN : STORE_REFUSED);
}

static void fail_with(struct job *job, int reason, const char *why) {
    job->reason = reason;
    free(job->why);
    job->why = why ? strdup(why) : NULL;
    fail(job);
}

static void note_call(struct job *job, const struct etcd_call *call, bool writes) {
    job->may_have_acted |= writes && call->reason && etcd_call_may_have_acted(call);
    job->attempt->may_be_late |= writes && call->sends > 1;
    if (!call->reason || job->reason)
        return;
    job->reason = call->reason;
    job->why = strdup(call->why);
}

/* ---- Steps ---- */

static void step(struct job *job, enum phase phase);
static void set_floor(struct job *job, bool write, int64_t revision);
static void evaluate(struct job *job);

static void hold(struct job *job, uint64_t token) {
    struct etcd_attempt *attempt = job->attempt;
    struct etcd_lease *lease = etcd_lease_find(job->etcd, job->lease);
    if (lease)
        etcd_lease_attach(lease, attempt);
    if (attempt->until_us < job->asked_us + job->lease_us || !attempt->held)
        attempt->until_us = job->asked_us + job->lease_us;
    attempt->held = true;
    attempt->queued = attempt->is_released = false;
    etcd_watch_hold(job->etcd, attempt, job->seen);
    if (job->op)
        job->op->token = token;
    finish(job, STORE_DONE);
}

/* The transaction that grants, confirms or moves was done. Does it count? */
static void granted(struct job *job) {
    const Etcd__Header *header = job->answer->header;
    uint64_t token = job->own && (job->phase == CONFIRM || job->phase == MOVE)
                         ? job->own->token
                         : job->etcd->base + (uint64_t)header->revision;
    job->seen = header->revision;
    job->may_have_acted = true;
    if (token >= STORE_TOKEN_LIMIT) {
        job->may_have_acted = false;
        job->attempt->users--;
        etcd_attempt_end(job->etcd, job->attempt);
        job->attempt = NULL;
        struct store_op *op = job->op;
        struct etcd *etcd = job->etcd;
        job_free(job);
        store_refuse(etcd->host, op, HF_CLOCK,
                     error_format("the tokens are used up, at %" PRIu64, token));
        return;
    }
    if (job->is_fresh || etcd_lease_counts(job->kept, header->raft_term))
        hold(job, token);
    else
        step(job, LOOK); /* the leader has changed, or the lease is over: see what is left */
}

static void advance(struct job *job) {
    if (job->pending > 0)
        return;
    if (!job->op && job->attempt->is_released) {
        finish(job, STORE_NOT_YOURS);
        return;
    }
    bool over = job->lease_is_over || job->kept == 0;
    job->lease_is_over = false;
    if (over) {
        struct etcd_lease *lease = etcd_lease_find(job->etcd, job->lease);
        if (lease)
            lease->is_over = true;
        if (!job->answer) {
            free(job->why);
            job->why = NULL;
            job->reason = HF_OK;
            step(job, job->op && !job->attempt->queued ? TRY : LOOK);
            return;
        }
    }
    if (!job->answer)
        fail(job);
    else if (job->answer->succeeded && job->phase != LOOK && job->phase != QUEUE)
        granted(job);
    else
        evaluate(job);
}

static void kept_alive(struct etcd *etcd, struct etcd_call *call) {
    struct job *job = call->context;
    job->kept = etcd_lease_kept(etcd, job->lease, call);
    job->pending--;
    advance(job);
}

static void answered(struct etcd *etcd, struct etcd_call *call) {
    struct job *job = call->context;
    (void)etcd;
    bool writes = job->phase != LOOK && job->phase != CONFIRM;
    job->lease_is_over = call->status == GRPC_NOT_FOUND; /* the transaction names it */
    note_call(job, call, writes);
    job->answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    /* An answer that cannot be read, for lack of memory, may say that it was done. */
    job->may_have_acted |= writes && !call->reason && (!job->answer || job->answer->succeeded);
    if (job->answer && !job->answer->header) {
        etcd__txn_response__free_unpacked(job->answer, NULL);
        job->answer = NULL;
    }
    if (!job->answer && !job->reason)
        job->reason = HF_BAD_STORE;
    job->pending--;
    advance(job);
}

/* The value of the attempt's key. False: no memory. */
static bool pack_claim(struct job *job, bool held, ProtobufCBinaryData *ret) {
    const struct store_identity *who = &job->etcd->host->identity;
    const struct store_op *op = job->op;
    Etcd__Claim claim = ETCD__CLAIM__INIT;
    if (job->phase == MOVE) {
        claim = *job->own;
    } else {
        const char *label = op->label ? op->label : "";
        claim.format = (char *)"holdfast";
        claim.kind = op->kind;
        claim.capacity = op->capacity;
        claim.weight = op->weight;
        claim.held = held;
        claim.token_base = job->etcd->base;
        claim.since_ms = world_wall_us(job->etcd->host->world) / 1000;
        claim.pid = who->pid;
        claim.host = (ProtobufCBinaryData){strlen(who->host), (uint8_t *)who->host};
        claim.command = (ProtobufCBinaryData){strlen(who->command), (uint8_t *)who->command};
        claim.label = (ProtobufCBinaryData){strlen(label), (uint8_t *)label};
    }
    claim.lease_ms = (held ? job->lease_us : job->etcd->host->wait_lease_us) / 1000;
    ret->len = etcd__claim__get_packed_size(&claim);
    ret->data = malloc(ret->len);
    if (ret->data)
        etcd__claim__pack(&claim, ret->data);
    return ret->data;
}

/* Makes the range that of the claims that barge. */
static void narrow_range(struct job *job) {
    job->range.bytes[job->range.size++] = '!';
    etcd_end_of(&job->range, &job->end);
}

/* The conditions of a step, and what it writes. `all` are the keys of the name. */
static void fill(struct job *job, struct txn *txn, const ProtobufCBinaryData *value,
                 const struct etcd_key *all, const struct etcd_key *all_end) {
    struct etcd_attempt *attempt = job->attempt;
    bool takes = job->phase == TRY || job->phase == TAKE || job->phase == FOLLOW;
    if (takes)
        txn_if_mod(txn, &job->base, NULL, ETCD__COMPARE__RESULT__EQUAL, job->etcd->base_revision);
    switch (job->phase) {
    case LOOK:
        break;
    case TRY: /* no key at all */
        txn_if_mod(txn, &job->range, &job->end, ETCD__COMPARE__RESULT__EQUAL, 0);
        break;
    case QUEUE:
        txn_if_create(txn, &attempt->key, NULL, ETCD__COMPARE__RESULT__EQUAL, 0);
        break;
    case TAKE:
        /* A claim that is in the queue is overtaken only by those that barge, whose keys are in a
         * separate range. A claim that is not in it must find everything unchanged. */
        if (attempt->queued && attempt->key.bytes[attempt->range_size] != '!') {
            txn_if_create(txn, &attempt->key, NULL, ETCD__COMPARE__RESULT__GREATER, 0);
            narrow_range(job);
        }
        txn_if_mod(txn, &job->range, &job->end, ETCD__COMPARE__RESULT__LESS, job->seen + 1);
        break;
    case FOLLOW:
        /* Claims that were created before it, and those that barge, could be ahead of it. A later
         * claim that does not barge cannot be held: this one is ahead of it. */
        txn_if_create(txn, &attempt->key, NULL, ETCD__COMPARE__RESULT__EQUAL, attempt->create);
        txn_if_create(txn, all, all_end, ETCD__COMPARE__RESULT__GREATER, attempt->create - 1);
        narrow_range(job);
        txn_if_mod(txn, &job->range, &job->end, ETCD__COMPARE__RESULT__EQUAL, 0);
        break;
    case CONFIRM:
    case MOVE:
        txn_if_mod(txn, &attempt->key, NULL, ETCD__COMPARE__RESULT__EQUAL, job->own_mod);
        break;
    }
    if (value)
        txn_put(txn, &attempt->key, value->data, value->len, job->lease);
}

static void set_range(struct job *job) {
    job->range.size = job->attempt->range_size;
    memcpy(job->range.bytes, job->attempt->key.bytes, job->range.size);
    etcd_end_of(&job->range, &job->end);
}

static struct etcd_call *make_call(struct job *job) {
    struct etcd_key all, all_end;
    ProtobufCBinaryData value = {0};
    bool writes = job->phase != LOOK && job->phase != CONFIRM;
    if (writes && !pack_claim(job, job->phase != QUEUE, &value))
        return NULL;
    struct txn *txn = txn_new(8);
    set_range(job);
    all = job->range;
    all_end = job->end;
    if (txn) {
        fill(job, txn, writes ? &value : NULL, &all, &all_end);
        for (int then = job->phase == LOOK || job->phase == QUEUE; then >= 0; then--) {
            txn_get(txn, then, &all, &all_end);
            txn_get(txn, then, &job->base, NULL);
        }
    }
    struct etcd_call *call = txn_call(txn, answered, job);
    free(value.data);
    return call;
}

/* Only LOOK has no lease. */
static void send_step(struct job *job, struct etcd_lease *lease) {
    struct etcd *etcd = job->etcd;
    struct etcd_call *call = make_call(job);
    bool needs_time = lease && job->phase != QUEUE;
    if (!call) {
        fail_with(job, HF_NO_MEMORY, NULL);
        return;
    }
    job->kept = -1;
    job->pending = 1;
    if (needs_time && !job->is_fresh)
        job->pending += etcd_lease_keep(etcd, lease, kept_alive, job, job->give_up_us);
    if (lease && job->phase != MOVE)
        etcd_lease_attach(lease, job->attempt); /* a hold is moved when that is done */
    etcd_send(etcd, call, job->give_up_us);
}

static void got_lease(struct etcd *etcd, struct etcd_tenant *tenant, struct etcd_lease *lease,
                      const struct etcd_call *failed) {
    struct job *job = container_of(tenant, struct job, tenant);
    (void)etcd;
    if (!lease) {
        if (failed)
            note_call(job, failed, false);
        if (!job->reason)
            job->reason = failed ? HF_BAD_STORE : HF_NO_MEMORY;
        fail(job);
        return;
    }
    job->lease = lease->id;
    job->is_fresh = lease->granted_us >= job->asked_us;
    send_step(job, lease);
}

/* Also keeps a place in the queue alive, if that has not been done for a while. */
static void keep_place(struct job *job) {
    struct etcd_lease *lease = job->attempt->lease;
    int64_t now_us = etcd_now_us(job->etcd);
    if (job->attempt->queued && lease && !lease->is_over &&
        now_us - lease->kept_us > lease->seconds * 1000000 / 6)
        etcd_lease_keep(job->etcd, lease, NULL, NULL, job->give_up_us);
}

static void step(struct job *job, enum phase phase) {
    struct etcd *etcd = job->etcd;
    if (job->answer)
        etcd__txn_response__free_unpacked(job->answer, NULL);
    job->answer = NULL;
    job->phase = phase;
    if (++job->rounds > ROUNDS_MAX || etcd_now_us(etcd) >= job->give_up_us) {
        fail_with(job, HF_UNREACHABLE, "other clients kept changing the lock");
        return;
    }
    if (phase == LOOK) {
        keep_place(job);
        send_step(job, NULL);
        return;
    }
    struct etcd_lease *lease = etcd_lease_find(etcd, job->lease);
    if (phase == CONFIRM && lease) {
        job->is_fresh = lease->granted_us >= job->asked_us;
        send_step(job, lease);
        return;
    }
    int64_t seconds = etcd_seconds(phase == QUEUE ? etcd->host->wait_lease_us : job->lease_us);
    /* A hold that counts is moved only to a lease that is new: another may be near its end, and the
     * hold would end with it, before its time. */
    int64_t since_us = phase == MOVE ? job->asked_us : 0;
    job->tenant.granted = got_lease;
    etcd_lease_get(etcd, &job->tenant, seconds, 0, since_us, job->give_up_us);
}

/* ---- What was found ---- */

static const Etcd__RangeResponse *range_at(const Etcd__TxnResponse *answer, size_t from_end) {
    if (answer->n_responses < from_end)
        return NULL;
    const Etcd__ResponseOp *response = answer->responses[answer->n_responses - from_end];
    return response->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE ? response->range : NULL;
}

void etcd_note_base(struct etcd *etcd, const Etcd__RangeResponse *range) {
    const Etcd__KeyValue *kv = range->n_kvs ? range->kvs[0] : NULL;
    etcd->floor_is_set &= etcd->base_revision == (kv ? kv->mod_revision : 0);
    etcd->base = 0;
    etcd->base_revision = 0;
    if (!kv)
        return;
    char text[24];
    snprintf(text, sizeof(text), "%.*s", (int)(kv->value.len < 20 ? kv->value.len : 20),
             kv->value.data ? (const char *)kv->value.data : "");
    etcd->base = strtoull(text, NULL, 10) % STORE_TOKEN_LIMIT;
    etcd->base_revision = kv->mod_revision;
}

/* The own key is held. It counts if its lease is alive and long enough. */
static void found_held(struct job *job, const struct claim *own) {
    struct etcd_lease *lease = etcd_lease_find(job->etcd, own->kv->lease);
    if (job->own)
        etcd__claim__free_unpacked(job->own, NULL);
    job->own = etcd__claim__unpack(NULL, own->kv->value.len, own->kv->value.data);
    if (!job->own) {
        fail_with(job, HF_NO_MEMORY, NULL);
        return;
    }
    job->own->token = claim_token(job->etcd, own);
    job->own_mod = own->kv->mod_revision;
    bool is_long_enough = lease && !lease->is_over && lease->seconds >= etcd_seconds(job->lease_us);
    if (is_long_enough)
        job->lease = lease->id;
    step(job, is_long_enough ? CONFIRM : MOVE);
}

static int64_t left_us(const struct job *job, const struct claim *blocker) {
    int64_t most_us = job->etcd->host->max_lease_us;
    int64_t left_us = blocker && blocker->value ? blocker->value->lease_ms * 1000 : most_us;
    return left_us > 0 && left_us < most_us ? left_us : most_us;
}

static void refuse(struct job *job, int reason, char *text) {
    job->op->reason = reason;
    job->op->text = text;
    job->attempt->users--;
    if (job->attempt->queued)
        etcd_attempt_end(job->etcd, job->attempt);
    else
        forget(job->etcd, job->attempt);
    struct etcd *etcd = job->etcd;
    struct store_op *op = job->op;
    job_free(job);
    store_complete(etcd->host, op, STORE_REFUSED);
}

static void queue_up(struct job *job, const struct verdict *verdict) {
    struct etcd_attempt *attempt = job->attempt;
    const struct claim *blocker = verdict->blocker;
    attempt->is_released = false;
    attempt->until_us = job->asked_us + job->etcd->host->wait_lease_us;
    if (verdict->is_head)
        job->op->flags |= STORE_HEAD;
    job->op->left_us = left_us(job, blocker);
    etcd_watch_blocker(job->etcd, attempt, verdict->any || !blocker ? NULL : blocker->kv,
                       job->op->kind == STORE_PERMITS, job->seen);
    finish(job, STORE_QUEUED);
}

static void decide(struct job *job, const struct claims *claims, const struct claim *own) {
    struct store_op *op = job->op;
    struct wish wish = {.kind = op->kind,
                        .capacity = op->capacity,
                        .weight = op->weight,
                        .barges = op->flags & STORE_BARGE,
                        .own = own};
    struct verdict verdict;
    claims_judge(claims, &wish, &verdict);
    job->attempt->queued = own;
    job->attempt->create = own ? own->kv->create_revision : 0;
    struct etcd_lease *lease = own ? etcd_lease_find(job->etcd, own->kv->lease) : NULL;
    if (lease)
        etcd_lease_attach(lease, job->attempt);
    if (verdict.other_kind) {
        const Etcd__Claim *other = verdict.other_kind->value;
        refuse(job, HF_WRONG_KIND,
               store_describe_kind((enum store_kind)other->kind, other->capacity));
    } else if (verdict.fits) {
        step(job, TAKE);
    } else if (own) {
        queue_up(job, &verdict);
    } else if (op->flags & STORE_WAIT) {
        step(job, QUEUE);
    } else {
        op->left_us = left_us(job, verdict.blocker);
        refuse(job, HF_BUSY, NULL);
    }
}

static const struct claim *find_own(const struct job *job, const struct claims *claims) {
    for (size_t i = 0; i < claims->count; i++) {
        const ProtobufCBinaryData *key = &claims->list[i].kv->key;
        if (claims->list[i].value && key->len == job->attempt->key.size &&
            memcmp(key->data, job->attempt->key.bytes, key->len) == 0)
            return &claims->list[i];
    }
    return NULL;
}

static void evaluate(struct job *job) {
    const Etcd__RangeResponse *range = range_at(job->answer, 2), *base = range_at(job->answer, 1);
    struct claims claims;
    if (!range || !base) {
        fail_with(job, HF_BAD_STORE, "the server's answer makes no sense");
        return;
    }
    if (!claims_read(job->etcd, range, job->attempt->range_size, &claims)) {
        fail_with(job, HF_NO_MEMORY, NULL);
        return;
    }
    /* The answer is freed by the next step, and the claims are parts of it. */
    Etcd__TxnResponse *answer = job->answer;
    job->answer = NULL;
    job->seen = answer->header->revision;
    etcd_note_base(job->etcd, base);
    const struct claim *own = find_own(job, &claims);
    if (job->op && job->etcd->host->token_floor && !job->etcd->floor_is_set)
        set_floor(job, false, 0); /* a backup was restored, or somebody has raised it further */
    else if (own && own->value->held)
        found_held(job, own);
    else if (job->op)
        decide(job, &claims, own);
    else
        finish(job, STORE_NOT_YOURS);
    claims_free(&claims);
    etcd__txn_response__free_unpacked(answer, NULL);
}

/* ---- The base of tokens ---- */

static void floor_read(struct etcd *etcd, struct etcd_call *call);

static void start(struct job *job) {
    struct etcd_attempt *attempt = job->attempt;
    const struct store_op *op = job->op;
    bool follows = op && attempt->queued && attempt->is_woken && op->weight == op->capacity &&
                   !(op->flags & STORE_BARGE);
    attempt->is_woken = false;
    step(job, follows ? FOLLOW : op && !attempt->queued && !attempt->held ? TRY : LOOK);
}

/* Raises the base, if need be, so that the next token is not below the floor. */
static void set_floor(struct job *job, bool write, int64_t revision) {
    struct etcd *etcd = job->etcd;
    uint64_t floor = etcd->host->token_floor;
    struct txn *txn = txn_new(2);
    char text[24];
    if (txn && write) {
        snprintf(text, sizeof(text), "%" PRIu64, floor - (uint64_t)revision);
        txn_if_mod(txn, &job->base, NULL, ETCD__COMPARE__RESULT__EQUAL, etcd->base_revision);
        txn_put(txn, &job->base, text, strlen(text), 0);
        txn_get(txn, false, &job->base, NULL);
    } else if (txn) {
        txn_get(txn, true, &job->base, NULL);
    }
    struct etcd_call *call = txn_call(txn, floor_read, job);
    if (call)
        etcd_send(etcd, call, job->give_up_us);
    else
        fail_with(job, HF_NO_MEMORY, NULL);
}

static void floor_read(struct etcd *etcd, struct etcd_call *call) {
    struct job *job = call->context;
    Etcd__TxnResponse *answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    const Etcd__RangeResponse *base = answer ? range_at(answer, 1) : NULL;
    int64_t revision = answer && answer->header ? answer->header->revision : 0;
    bool has_written = answer && answer->succeeded && !base;
    if (base)
        etcd_note_base(etcd, base);
    if (answer)
        etcd__txn_response__free_unpacked(answer, NULL);
    if (!revision) {
        note_call(job, call, false);
        if (!job->reason)
            job->reason = HF_BAD_STORE;
        fail(job);
    } else if (has_written) {
        set_floor(job, false, 0); /* and read it */
    } else if (etcd->base + (uint64_t)revision >= etcd->host->token_floor) {
        etcd->floor_is_set = true;
        start(job);
    } else {
        set_floor(job, true, revision);
    }
}

/* ---- The operations ---- */

static struct job *job_new(struct etcd *etcd, struct etcd_attempt *attempt, int64_t lease_us) {
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->etcd = etcd;
    job->attempt = attempt;
    job->lease_us = lease_us;
    job->asked_us = etcd_now_us(etcd);
    job->give_up_us = job->asked_us + etcd->timeout_us;
    etcd_base_key(etcd, &job->base);
    list_init(&job->tenant.link);
    attempt->users++;
    return job;
}

void etcd_acquire(struct etcd *etcd, struct store_op *op) {
    struct etcd_attempt *attempt = etcd_attempt_find(etcd, op->seq);
    if (!attempt)
        attempt = attempt_new(etcd, op);
    struct job *job = attempt ? job_new(etcd, attempt, op->lease_us) : NULL;
    if (!job) {
        if (attempt && !attempt->queued && !attempt->held)
            etcd_attempt_free(etcd, attempt);
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    job->op = op;
    if (etcd->host->token_floor && !etcd->floor_is_set)
        set_floor(job, false, 0);
    else
        start(job);
}

bool etcd_lengthen(struct etcd *etcd, struct etcd_attempt *attempt, int64_t lease_us,
                   etcd_lengthened *done, void *context, size_t index) {
    struct job *job = attempt->users ? NULL : job_new(etcd, attempt, lease_us);
    if (!job)
        return false;
    job->lengthened = done;
    job->context = context;
    job->index = index;
    start(job);
    return true;
}

static void released(struct etcd *etcd, struct etcd_call *call) {
    struct store_op *op = call->context;
    struct etcd_attempt *attempt = etcd_attempt_find(etcd, op->seq);
    Etcd__DeleteRangeResponse *response =
        call->reason ? NULL
                     : etcd__delete_range_response__unpack(NULL, call->message_size, call->message);
    assert(attempt); /* it has been in use since */
    attempt->users--;
    map_remove(&etcd->releasing, &attempt->by_name);
    if (!response) {
        etcd_fail(etcd, op, call, etcd_call_may_have_acted(call));
        etcd_resume(etcd);
        return;
    }
    bool was_there = response->deleted > 0;
    etcd__delete_range_response__free_unpacked(response, NULL);
    forget(etcd, attempt);
    store_complete(etcd->host, op,
                   was_there         ? STORE_DONE
                   : call->sends > 1 ? STORE_UNKNOWN
                                     : STORE_NOT_YOURS);
    etcd_resume(etcd);
}

void etcd_release(struct etcd *etcd, struct store_op *op) {
    struct etcd_attempt *attempt = etcd_attempt_find(etcd, op->seq);
    if (!attempt) /* it was refused, or its time was over */
        attempt = attempt_new(etcd, op);
    struct etcd_call *call = attempt ? delete_call(&attempt->key, released, op) : NULL;
    if (!call) {
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    retire(etcd, attempt, etcd_now_us(etcd));
    attempt->users++;
    map_add(&etcd->releasing, &attempt->by_name, map_hash(op->name, strlen(op->name), 0));
    etcd_send(etcd, call, etcd_now_us(etcd) + etcd->timeout_us);
}

/* ---- Breaks ----
 *
 * The holder is read first. Then, in one step, its key is deleted if it is still that hold, and a
 * record of the break is written, with a lease of a week. */

struct breaking {
    struct etcd_tenant tenant;
    struct etcd *etcd;
    struct store_op *op;
    int64_t give_up_us;
    struct etcd_key key, record, base, range, end;
    size_t range_size;
    int64_t mod;
    bool was_sent;
};

static void breaking_end(struct breaking *job, enum store_outcome outcome) {
    struct etcd *etcd = job->etcd;
    struct store_op *op = job->op;
    free(job);
    store_complete(etcd->host, op, outcome);
}

static void breaking_failed(struct breaking *job, const struct etcd_call *call) {
    struct etcd *etcd = job->etcd;
    struct store_op *op = job->op;
    bool may_be_broken = job->was_sent && etcd_call_may_have_acted(call);
    free(job);
    etcd_fail(etcd, op, call, may_be_broken);
}

static void broken(struct etcd *etcd, struct etcd_call *call) {
    struct breaking *job = call->context;
    Etcd__TxnResponse *answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    (void)etcd;
    if (!answer) {
        breaking_failed(job, call);
        return;
    }
    bool done = answer->succeeded;
    etcd__txn_response__free_unpacked(answer, NULL);
    breaking_end(job, done ? STORE_DONE : call->sends > 1 ? STORE_UNKNOWN : STORE_NOT_YOURS);
}

static void break_it(struct etcd *etcd, struct etcd_tenant *tenant, struct etcd_lease *lease,
                     const struct etcd_call *failed) {
    struct breaking *job = container_of(tenant, struct breaking, tenant);
    Etcd__Break record = ETCD__BREAK__INIT;
    char by[LOCKS_BREAKER_SIZE];
    uint8_t value[LOCKS_BREAKER_SIZE + 400];
    if (!lease && failed) {
        breaking_failed(job, failed);
        return;
    }
    const char *reason = job->op->label ? job->op->label : "";
    locks_format_breaker(&etcd->host->identity, by);
    record.at_us = world_wall_us(etcd->host->world);
    record.token = job->op->token;
    record.by = (ProtobufCBinaryData){strlen(by), (uint8_t *)by};
    record.reason = (ProtobufCBinaryData){strlen(reason), (uint8_t *)reason};
    struct txn *txn = lease ? txn_new(2) : NULL;
    if (txn) {
        txn_if_mod(txn, &job->key, NULL, ETCD__COMPARE__RESULT__EQUAL, job->mod);
        txn_delete(txn, &job->key);
        txn_put(txn, &job->record, value, etcd__break__pack(&record, value), lease->id);
    }
    struct etcd_call *call = txn_call(txn, broken, job);
    if (!call) {
        job->op->reason = HF_NO_MEMORY;
        breaking_end(job, STORE_REFUSED);
        return;
    }
    job->was_sent = true;
    etcd_send(etcd, call, job->give_up_us);
}

static void break_looked(struct etcd *etcd, struct etcd_call *call) {
    struct breaking *job = call->context;
    Etcd__TxnResponse *answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    const Etcd__RangeResponse *range = answer ? range_at(answer, 2) : NULL,
                              *base = answer ? range_at(answer, 1) : NULL;
    struct claims claims = {0};
    bool found = false;
    if (!range || !base || !claims_read(etcd, range, job->range_size, &claims)) {
        if (answer)
            etcd__txn_response__free_unpacked(answer, NULL);
        breaking_failed(job, call);
        return;
    }
    etcd_note_base(etcd, base);
    for (size_t i = 0; i < claims.count && !found; i++) {
        const struct claim *claim = &claims.list[i];
        found = claim_is_held(claim) && claim_token(etcd, claim) == job->op->token &&
                claim->kv->key.len <= ETCD_KEY_MAX;
        if (found) {
            job->key.size = claim->kv->key.len;
            memcpy(job->key.bytes, claim->kv->key.data, job->key.size);
            job->mod = claim->kv->mod_revision;
        }
    }
    claims_free(&claims);
    etcd__txn_response__free_unpacked(answer, NULL);
    if (found)
        etcd_lease_get(etcd, &job->tenant, BREAK_SECONDS, 0, 0, job->give_up_us);
    else
        breaking_end(job, STORE_NOT_YOURS);
}

void etcd_break(struct etcd *etcd, struct store_op *op) {
    struct breaking *job = calloc(1, sizeof(*job));
    struct txn *txn = job ? txn_new(2) : NULL;
    if (txn) {
        job->etcd = etcd;
        job->op = op;
        job->give_up_us = etcd_now_us(etcd) + etcd->timeout_us;
        job->tenant.granted = break_it;
        list_init(&job->tenant.link);
        etcd_key_set(etcd, &job->range, "", op->name, "/");
        etcd_end_of(&job->range, &job->end);
        job->range_size = job->range.size;
        etcd_break_key(etcd, op->name, &job->record);
        etcd_base_key(etcd, &job->base);
        txn_get(txn, true, &job->range, &job->end);
        txn_get(txn, true, &job->base, NULL);
    }
    struct etcd_call *call = txn ? txn_call(txn, break_looked, job) : NULL;
    if (call) {
        etcd_send(etcd, call, job->give_up_us);
        return;
    }
    free(job);
    store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
}
