/* Counters: a key with the number in decimal digits, and for each client that changes it a key with
 * the client's last answer.
 *
 * etcd cannot add. So both keys are read, and written in one transaction, provided that neither has
 * changed since. If one has, the transaction returns both as they are, and the step is decided
 * again. A request whose reply was lost is recognised by its number in the answer. Every operation
 * except a read writes its answer, even one that changes nothing. If one of its requests, or of an
 * earlier operation's, is still under way, it then finds a different answer than it expects, and
 * does nothing.
 *
 * Answers have a lease that is not kept alive, and exist for as long as a repeat may come. A
 * counter has its own lease. It is granted before the counter is created, and revoked if the
 * counter was not created with it. If that is not known, it is left to expire.
 *
 * A read of the counter is linearizable: a majority confirms it. How much of its life is left is
 * the leader's word alone. */
#include "base/error.h"
#include "net/backoff.h"
#include "store/counts.h"
#include "store/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

/* The lease of answers. An answer is written with one that has at least half of this left. */
#define ANSWER_SECONDS (2 * STORE_COUNT_KEPT_US / 1000000)

enum { PAUSE_US = 1000, PAUSE_DOUBLINGS = 5 };

struct counting {
    struct list link; /* in the store's list while it pauses */
    struct etcd_tenant tenant;
    struct world_timer timer;
    struct etcd *etcd;
    struct store_op *op;
    int64_t give_up_us;
    unsigned conflicts;
    bool may_have_acted;
    struct etcd_key counter, answers;
    int64_t counter_mod, answer_mod, counter_lease; /* as they were found; 0: there is none */
    struct counts_number after;                     /* what is to be written … */
    bool changes;                                   /* … unless it is there already */
    struct counts_answer answer; /* its lease is that of the counter that is left, or removed */
    int64_t new_lease;           /* granted for a counter that this creates; 0: none */
    int64_t answer_lease;        /* that the answer is written with */
};

/* ---- The end ---- */

static void ignore_answer(struct etcd *etcd, struct etcd_call *call) {
    (void)etcd, (void)call;
}

/* Nobody waits for this: if it fails, the lease expires. */
static void revoke(struct counting *job, int64_t lease) {
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    request.id = lease;
    struct etcd_call *call =
        etcd_call_new("/etcdserverpb.Lease/LeaseRevoke", &request.base, ignore_answer, NULL);
    if (call)
        etcd_send(job->etcd, call, job->give_up_us);
}

static void counting_free(struct counting *job) {
    if (job->new_lease && !job->may_have_acted)
        revoke(job, job->new_lease);
    list_remove(&job->link);
    world_timer_drop(job->etcd->host->world, &job->timer);
    free(job);
}

static void fail(struct counting *job, int reason, const char *why) {
    struct store_host *host = job->etcd->host;
    struct store_op *op = job->op;
    enum store_outcome outcome = job->may_have_acted ? STORE_UNKNOWN : STORE_REFUSED;
    op->reason = reason;
    op->text = why && *why ? error_format("%s", why) : NULL;
    counting_free(job);
    store_complete(host, op, outcome);
}

static void fail_call(struct counting *job, const struct etcd_call *call) {
    fail(job, call->reason ? call->reason : HF_BAD_STORE, call->why);
}

static void complete(struct counting *job, int64_t life_us) {
    struct store_host *host = job->etcd->host;
    struct store_op *op = job->op;
    struct counts_answer answer = job->answer;
    counting_free(job);
    counts_complete(host, op, &answer, life_us);
}

static void time_answered(struct etcd *etcd, struct etcd_call *call) {
    struct counting *job = call->context;
    int64_t seconds;
    (void)etcd;
    if (!etcd_time_left(call, &seconds)) {
        job->may_have_acted = true; /* it did act; a repeat gets its answer */
        fail_call(job, call);
        return;
    }
    complete(job, seconds > 0 ? seconds * 1000000 : 0);
}

/* The answer is final. */
static void finish(struct counting *job) {
    const struct counts_answer *answer = &job->answer;
    job->may_have_acted = false;
    if (answer->lease == job->new_lease)
        job->new_lease = 0; /* the counter was created with it */
    if (!answer->lease || answer->reason || answer->flags & STORE_ABSENT) {
        complete(job, -1);
        return;
    }
    struct etcd_call *call = etcd_ask_time(answer->lease, time_answered, job);
    if (call) {
        etcd_send(job->etcd, call, job->give_up_us);
    } else {
        job->may_have_acted = true;
        fail(job, HF_NO_MEMORY, NULL);
    }
}

/* ---- What is there ---- */

static void read_both(struct counting *job);
static void get_leases(struct counting *job);

/* The keys of an answer; NULL: it has none there. */
static const Etcd__KeyValue *kv_at(const Etcd__TxnResponse *answer, size_t index) {
    const Etcd__ResponseOp *response = answer->responses[index];
    return response->range->n_kvs ? response->range->kvs[0] : NULL;
}

static bool has_both(const Etcd__TxnResponse *answer) {
    return answer->n_responses == 2 &&
           answer->responses[0]->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE &&
           answer->responses[1]->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE;
}

/* What is to be written, and answered. */
static void decide(struct counting *job, const Etcd__KeyValue *counter) {
    struct counts_number before = {.exists = counter};
    bool is_number =
        !counter || counts_read_number(counter->value.data, counter->value.len, &before.value);
    job->answer = counts_step(job->op, before, &job->after);
    job->counter_mod = counter ? counter->mod_revision : 0;
    job->counter_lease = counter ? counter->lease : 0;
    job->changes = job->after.exists != before.exists || job->after.value != before.value;
    if (!is_number) {
        job->answer = (struct counts_answer){.seq = job->op->seq, .reason = HF_WRONG_KIND};
        job->changes = false;
    }
    job->answer.lease = job->counter_lease;
}

/* Takes the step from here, unless it has been taken already. */
static void found(struct counting *job, const Etcd__TxnResponse *both) {
    const Etcd__KeyValue *counter = kv_at(both, 0), *kv = kv_at(both, 1);
    struct counts_answer last = {0};
    bool is_sound = !kv || counts_read_answer(kv->value.data, kv->value.len, &last);
    job->answer_mod = kv ? kv->mod_revision : 0;
    decide(job, counter);
    if (!is_sound) {
        fail(job, HF_BAD_STORE, "this client's last answer cannot be read");
    } else if (job->op->kind == STORE_COUNT_GET) {
        finish(job);
    } else if (last.seq == job->op->seq) {
        job->answer = last;
        finish(job);
    } else if (last.seq > job->op->seq) {
        job->may_have_acted = true;
        fail(job, 0, "this client has taken a later step");
    } else {
        get_leases(job);
    }
}

static void paused(struct world_timer *timer) {
    struct counting *job = container_of(timer, struct counting, timer);
    list_remove(&job->link);
    read_both(job);
}

/* Another client was faster. The first time, what the transaction returned is used at once. After
 * that clients pause, each for a random time, so that they do not keep colliding; what was returned
 * is outdated by then. */
static void collided(struct counting *job, const Etcd__TxnResponse *both) {
    const Etcd__KeyValue *kv = kv_at(both, 1);
    struct counts_answer last = {0};
    bool is_done =
        kv && counts_read_answer(kv->value.data, kv->value.len, &last) && last.seq >= job->op->seq;
    unsigned doublings = job->conflicts < PAUSE_DOUBLINGS ? job->conflicts : PAUSE_DOUBLINGS;
    if (++job->conflicts == 1 || is_done) {
        found(job, both);
        return;
    }
    struct world *world = job->etcd->host->world;
    int64_t until_us = etcd_now_us(job->etcd) + net_jitter_us(world, PAUSE_US << doublings);
    if (until_us >= job->give_up_us) {
        fail(job, HF_UNREACHABLE, "other clients kept changing the counter");
        return;
    }
    list_append(&job->etcd->counting, &job->link);
    world_timer_set(world, &job->timer, until_us);
}

/* ---- Requests ---- */

/* NULL: it cannot be read, or is not what was asked for. */
static Etcd__TxnResponse *unpack(const struct etcd_call *call) {
    Etcd__TxnResponse *answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    if (!answer || answer->succeeded || has_both(answer))
        return answer;
    etcd__txn_response__free_unpacked(answer, NULL);
    return NULL;
}

static void were_read(struct etcd *etcd, struct etcd_call *call) {
    struct counting *job = call->context;
    Etcd__TxnResponse *both = unpack(call);
    (void)etcd;
    if (both && has_both(both))
        found(job, both);
    else
        fail_call(job, call);
    if (both)
        etcd__txn_response__free_unpacked(both, NULL);
}

static void read_both(struct counting *job) {
    struct txn *txn = txn_new(2);
    if (txn) {
        txn_get(txn, true, &job->counter, NULL);
        txn_get(txn, true, &job->answers, NULL);
    }
    struct etcd_call *call = txn_call(txn, were_read, job);
    if (call)
        etcd_send(job->etcd, call, job->give_up_us);
    else
        fail(job, HF_NO_MEMORY, NULL);
}

/* A lease that the transaction names is over: the counter's, in which case the counter is gone too,
 * or one of those that were granted. */
static void lease_is_over(struct counting *job) {
    struct etcd_lease *lease = etcd_lease_find(job->etcd, job->answer_lease);
    if (lease)
        lease->is_over = true;
    job->new_lease = 0;
    read_both(job);
}

static void was_written(struct etcd *etcd, struct etcd_call *call) {
    struct counting *job = call->context;
    Etcd__TxnResponse *answer = unpack(call);
    (void)etcd;
    job->may_have_acted |=
        call->reason ? etcd_call_may_have_acted(call) : !answer || call->sends > 1;
    if (call->status == GRPC_NOT_FOUND)
        lease_is_over(job);
    else if (!answer)
        fail_call(job, call);
    else if (answer->succeeded)
        finish(job);
    else
        collided(job, answer);
    if (answer)
        etcd__txn_response__free_unpacked(answer, NULL);
}

static bool creates(const struct counting *job) {
    return job->after.exists && !job->counter_mod;
}

/* A counter that exists keeps the lease that it was found with: if it has another by now, it has
 * changed. */
static void write_both(struct counting *job) {
    struct txn *txn = txn_new(4);
    char number[COUNTS_NUMBER_SIZE], answer[COUNTS_ANSWER_SIZE];
    if (creates(job))
        job->answer.lease = job->new_lease;
    counts_write_number(job->after.value, number);
    counts_write_answer(&job->answer, answer);
    if (txn) {
        txn_if_mod(txn, &job->counter, NULL, ETCD__COMPARE__RESULT__EQUAL, job->counter_mod);
        txn_if_mod(txn, &job->answers, NULL, ETCD__COMPARE__RESULT__EQUAL, job->answer_mod);
        if (job->changes && job->after.exists)
            txn_put(txn, &job->counter, number, strlen(number), job->answer.lease);
        else if (job->changes)
            txn_delete(txn, &job->counter);
        txn_put(txn, &job->answers, answer, strlen(answer), job->answer_lease);
        txn_get(txn, false, &job->counter, NULL);
        txn_get(txn, false, &job->answers, NULL);
    }
    struct etcd_call *call = txn_call(txn, was_written, job);
    if (call)
        etcd_send(job->etcd, call, job->give_up_us);
    else
        fail(job, HF_NO_MEMORY, NULL);
}

/* ---- Leases ---- */

static void got_answer_lease(struct etcd *etcd, struct etcd_tenant *tenant,
                             struct etcd_lease *lease, const struct etcd_call *failed) {
    struct counting *job = container_of(tenant, struct counting, tenant);
    (void)etcd;
    if (!lease) {
        if (failed)
            fail_call(job, failed);
        else
            fail(job, HF_NO_MEMORY, NULL);
        return;
    }
    job->answer_lease = lease->id;
    write_both(job);
}

static void get_answer_lease(struct counting *job) {
    etcd_lease_get(job->etcd, &job->tenant, ANSWER_SECONDS, STORE_COUNT_KEPT_US, 0,
                   job->give_up_us);
}

static void lease_granted(struct etcd *etcd, struct etcd_call *call) {
    struct counting *job = call->context;
    Etcd__LeaseGrantResponse *response =
        call->reason ? NULL
                     : etcd__lease_grant_response__unpack(NULL, call->message_size, call->message);
    (void)etcd;
    job->new_lease = response ? response->id : 0;
    if (response)
        etcd__lease_grant_response__free_unpacked(response, NULL);
    if (job->new_lease)
        get_answer_lease(job);
    else
        fail_call(job, call);
}

static void get_leases(struct counting *job) {
    if (!creates(job) || !job->op->lease_us || job->new_lease) {
        get_answer_lease(job);
        return;
    }
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    request.ttl = etcd_seconds(job->op->lease_us);
    struct etcd_call *call =
        etcd_call_new("/etcdserverpb.Lease/LeaseGrant", &request.base, lease_granted, job);
    if (call)
        etcd_send(job->etcd, call, job->give_up_us);
    else
        fail(job, HF_NO_MEMORY, NULL);
}

/* ---- The operation ---- */

void etcd_count(struct etcd *etcd, struct store_op *op) {
    struct counting *job = calloc(1, sizeof(*job));
    if (!job || world_timer_add(etcd->host->world, &job->timer, paused) < 0) {
        free(job);
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    list_init(&job->link);
    list_init(&job->tenant.link);
    job->tenant.granted = got_answer_lease;
    job->etcd = etcd;
    job->op = op;
    job->give_up_us = etcd_now_us(etcd) + etcd->timeout_us;
    etcd_counter_keys(etcd, op->name, &job->counter, &job->answers);
    read_both(job);
}

void etcd_counters_close(struct etcd *etcd) {
    list_each_safe(node, &etcd->counting)
        fail(container_of(node, struct counting, link), HF_UNREACHABLE, "the client was closed");
}
