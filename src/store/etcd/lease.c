/* The leases of this client, and renewals.
 *
 * Attempts that ask for leases of the same length, in whole seconds, share a lease of etcd. So a
 * client with a hundred thousand holds sends one keep-alive. Each attempt still has its own time
 * (until_us): if it is not renewed while the others are, its key is deleted with the next
 * keep-alive (sweep). If the client dies, the lease ends for all.
 *
 * What a keep-alive is worth. etcd's leader keeps the times of leases on its own, without a
 * majority. A leader that is cut off, or whose disk stalls, keeps answering keep-alives while a
 * successor counts the lease down. So a keep-alive counts, from when it was sent, only together
 * with a linearizable answer of the same member that was also asked for after that time, and whose
 * term is not above the term in the answer to the keep-alive. The reasons:
 *
 *  - A member writes the term of the last entry that it has applied into its answers, and into the
 *    answer to a keep-alive before it passes that on. So the keep-alive went to the leader of that
 *    term, or of a later one: a leader of an earlier term that has applied an entry of this one has
 *    ceased to be leader.
 *  - A linearizable answer with the term T that was asked for after t0 had a majority that
 *    followed the leader of T after t0. So no leader of a later term was elected before t0.
 *  - A leader that is elected after t0 gives all leases their full time from then on.
 *
 * A transaction is also a linearizable answer. A grant of a lease needs none of this: it is an
 * entry in the log, and each leader counts it from when it applied it, or from its election. */
#include "base/error.h"
#include "store/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 }; /* operations in a transaction; etcd's limit is 128 unless it is changed */

/* ---- Leases ---- */

int64_t etcd_seconds(int64_t lease_us) {
    return (lease_us + 999999) / 1000000;
}

struct etcd_lease *etcd_lease_find(struct etcd *etcd, int64_t id) {
    list_each(node, &etcd->leases) {
        struct etcd_lease *lease = container_of(node, struct etcd_lease, link);
        if (id && lease->id == id)
            return lease;
    }
    return NULL;
}

void etcd_lease_attach(struct etcd_lease *lease, struct etcd_attempt *attempt) {
    list_remove(&attempt->link);
    attempt->lease = lease;
    list_append(&lease->attempts, &attempt->link);
}

static void lease_free(struct etcd_lease *lease) {
    list_remove(&lease->link);
    list_each_safe(node, &lease->attempts) {
        container_of(node, struct etcd_attempt, link)->lease = NULL;
        list_remove(node);
    }
    free(lease);
}

void etcd_lease_free_all(struct etcd *etcd) {
    list_each_safe(node, &etcd->leases)
        lease_free(container_of(node, struct etcd_lease, link));
}

static bool may_be_over(const struct etcd_lease *lease, int64_t now_us) {
    return lease->is_over || (lease->id && lease->until_us <= now_us);
}

/* Forgets leases that have ended and are not needed. */
static void forget_old(struct etcd *etcd, int64_t now_us) {
    list_each_safe(node, &etcd->leases) {
        struct etcd_lease *lease = container_of(node, struct etcd_lease, link);
        if (may_be_over(lease, now_us) && list_empty(&lease->attempts) &&
            list_empty(&lease->waiting))
            lease_free(lease);
    }
}

static void serve(struct etcd *etcd, struct list *waiting, struct etcd_lease *lease,
                  const struct etcd_call *failed) {
    struct list tenants, *node;
    list_move(waiting, &tenants);
    while ((node = list_pop(&tenants))) {
        struct etcd_tenant *tenant = container_of(node, struct etcd_tenant, link);
        tenant->granted(etcd, tenant, lease, failed);
    }
}

static void lease_granted(struct etcd *etcd, struct etcd_call *call) {
    struct etcd_lease *lease = call->context;
    Etcd__LeaseGrantResponse *response =
        call->reason ? NULL
                     : etcd__lease_grant_response__unpack(NULL, call->message_size, call->message);
    if (response && response->id && response->ttl > 0 && response->ttl < INT32_MAX) {
        lease->id = response->id;
        lease->granted_us = lease->kept_us = call->sent_us;
        lease->until_us = call->sent_us + response->ttl * 1000000;
        serve(etcd, &lease->waiting, lease, NULL);
    } else {
        struct list waiting;
        list_move(&lease->waiting, &waiting);
        lease_free(lease);
        serve(etcd, &waiting, NULL, call);
    }
    if (response)
        etcd__lease_grant_response__free_unpacked(response, NULL);
}

static struct etcd_lease *lease_new(struct etcd *etcd, int64_t seconds, int64_t give_up_us) {
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    request.ttl = seconds;
    struct etcd_lease *lease = calloc(1, sizeof(*lease));
    struct etcd_call *call =
        lease ? etcd_call_new("/etcdserverpb.Lease/LeaseGrant", &request.base, lease_granted, lease)
              : NULL;
    if (!call) {
        free(lease);
        return NULL;
    }
    lease->seconds = seconds;
    lease->granted_us = etcd_now_us(etcd);
    list_init(&lease->attempts);
    list_init(&lease->waiting);
    list_append(&etcd->leases, &lease->link);
    etcd_send(etcd, call, give_up_us);
    return lease;
}

void etcd_lease_get(struct etcd *etcd, struct etcd_tenant *tenant, int64_t seconds, int64_t left_us,
                    int64_t since_us, int64_t give_up_us) {
    int64_t now_us = etcd_now_us(etcd);
    struct etcd_lease *found = NULL;
    forget_old(etcd, now_us);
    list_each(node, &etcd->leases) {
        struct etcd_lease *lease = container_of(node, struct etcd_lease, link);
        if (lease->seconds == seconds && lease->granted_us >= since_us &&
            !may_be_over(lease, now_us + left_us))
            found = lease;
    }
    if (!found)
        found = lease_new(etcd, seconds, give_up_us);
    if (found && !found->id)
        list_append(&found->waiting, &tenant->link);
    else
        tenant->granted(etcd, tenant, found, NULL);
}

/* ---- Keep-alives ---- */

/* Ends attempts whose own time is over, because their lease is about to be kept alive for others.
 * Places in the queue are left alone: their owners may ask again. */
static void sweep(struct etcd *etcd, struct list *attempts) {
    int64_t now_us = etcd_now_us(etcd);
    list_each_safe(node, attempts) {
        struct etcd_attempt *attempt = container_of(node, struct etcd_attempt, link);
        bool is_done_with = attempt->held || attempt->is_released;
        if (is_done_with && attempt->until_us <= now_us && !attempt->users && !attempt->ending)
            etcd_attempt_end(etcd, attempt);
    }
}

int64_t etcd_lease_kept(struct etcd *etcd, int64_t id, const struct etcd_call *call) {
    Etcd__LeaseKeepAliveResponse *response =
        call->reason
            ? NULL
            : etcd__lease_keep_alive_response__unpack(NULL, call->message_size, call->message);
    struct etcd_lease *lease = etcd_lease_find(etcd, id);
    int64_t term = -1;
    if (response && response->id == id && response->header) {
        bool is_alive = response->ttl > 0;
        if (lease && is_alive)
            lease->until_us = call->sent_us + response->ttl * 1000000;
        else if (lease)
            lease->is_over = true;
        term = is_alive ? (int64_t)response->header->raft_term : 0;
    }
    if (response)
        etcd__lease_keep_alive_response__free_unpacked(response, NULL);
    return term;
}

bool etcd_lease_counts(int64_t kept, uint64_t term) {
    return kept > 0 && term && (uint64_t)kept >= term;
}

static void kept_by_the_way(struct etcd *etcd, struct etcd_call *call) {
    Etcd__LeaseKeepAliveRequest *request =
        etcd__lease_keep_alive_request__unpack(NULL, call->size, call->bytes);
    if (!request)
        return;
    etcd_lease_kept(etcd, request->id, call);
    etcd__lease_keep_alive_request__free_unpacked(request, NULL);
}

bool etcd_lease_keep(struct etcd *etcd, struct etcd_lease *lease, etcd_answered *answered,
                     void *context, int64_t give_up_us) {
    Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    request.id = lease->id;
    struct etcd_call *call = etcd_call_new("/etcdserverpb.Lease/LeaseKeepAlive", &request.base,
                                           answered ? answered : kept_by_the_way, context);
    if (!call)
        return false;
    sweep(etcd, &lease->attempts);
    sweep(etcd, &etcd->late);
    lease->kept_us = etcd_now_us(etcd);
    etcd_send(etcd, call, give_up_us);
    return true;
}

/* ---- The time that is left ---- */

struct etcd_call *etcd_ask_time(int64_t lease, etcd_answered *answered, void *context) {
    Etcd__LeaseTimeToLiveRequest request = ETCD__LEASE_TIME_TO_LIVE_REQUEST__INIT;
    request.id = lease;
    return etcd_call_new("/etcdserverpb.Lease/LeaseTimeToLive", &request.base, answered, context);
}

bool etcd_time_left(const struct etcd_call *call, int64_t *ret_seconds) {
    Etcd__LeaseTimeToLiveResponse *response =
        call->reason
            ? NULL
            : etcd__lease_time_to_live_response__unpack(NULL, call->message_size, call->message);
    bool ok = response && response->ttl < INT32_MAX;
    if (ok)
        *ret_seconds = response->ttl;
    if (response)
        etcd__lease_time_to_live_response__free_unpacked(response, NULL);
    return ok;
}

/* ---- Renewals ---- */

struct renewing;

/* A keep-alive of a renewal. */
struct kept {
    struct renewing *job;
    int64_t id;
    int64_t term; /* as of etcd_lease_kept */
};

/* A transaction that reads some of the keys. */
struct chunk {
    struct renewing *job;
    size_t first;
    uint64_t term; /* 0: not answered */
};

struct item {
    uint64_t seq; /* 0: it ended before */
    int64_t lease;
    bool is_asked; /* in its chunk's transaction */
    bool is_there;
    uint8_t outcome; /* already decided; 0: not yet */
    int reason;      /* for that */
};

struct renewing {
    struct store_op *op;
    size_t pending, count, kept_count;
    int64_t asked_us, give_up_us;
    int reason; /* of the first failure */
    bool was_sent;
    char *why;
    struct kept *kept;
    struct chunk *chunks;
    struct item *items;
};

static void renewing_free(struct renewing *job) {
    if (!job)
        return;
    free(job->kept);
    free(job->chunks);
    free(job->items);
    free(job->why);
    free(job);
}

static struct renewing *renewing_new(struct etcd *etcd, struct store_op *op) {
    struct renewing *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->op = op;
    job->count = op->renewal_count;
    job->asked_us = etcd_now_us(etcd);
    job->give_up_us = job->asked_us + etcd->timeout_us;
    job->kept = calloc(job->count + 1, sizeof(*job->kept));
    job->chunks = calloc(job->count / CHUNK + 1, sizeof(*job->chunks));
    job->items = calloc(job->count + 1, sizeof(*job->items));
    if (job->kept && job->chunks && job->items)
        return job;
    renewing_free(job);
    return NULL;
}

static const struct kept *kept_of(const struct renewing *job, int64_t id) {
    for (size_t i = 0; i < job->kept_count; i++) {
        if (job->kept[i].id == id)
            return &job->kept[i];
    }
    return NULL;
}

static enum store_outcome outcome_of(const struct renewing *job, size_t index) {
    const struct item *item = &job->items[index];
    const struct chunk *chunk = &job->chunks[index / CHUNK];
    const struct kept *kept = kept_of(job, item->lease);
    if (item->outcome)
        return item->outcome;
    if (chunk->term && !item->is_there)
        return STORE_NOT_YOURS;
    bool counts = kept && etcd_lease_counts(kept->term, chunk->term);
    return counts ? STORE_DONE : job->was_sent || !job->reason ? STORE_UNKNOWN : STORE_REFUSED;
}

static void note_outcome(struct etcd *etcd, struct renewing *job, size_t index) {
    struct store_renewal *renewal = &job->op->renewals[index];
    struct etcd_attempt *attempt = etcd_attempt_find(etcd, job->items[index].seq);
    renewal->outcome = outcome_of(job, index);
    renewal->reason = job->items[index].reason ? job->items[index].reason : job->reason;
    if (!attempt)
        return;
    if (renewal->outcome == STORE_DONE && attempt->until_us < job->asked_us + renewal->lease_us)
        attempt->until_us = job->asked_us + renewal->lease_us;
    else if (renewal->outcome == STORE_NOT_YOURS && !attempt->users)
        etcd_attempt_end(etcd, attempt);
}

static void renewed_some(struct etcd *etcd, struct renewing *job) {
    if (--job->pending > 0)
        return;
    struct store_op *op = job->op;
    for (size_t i = 0; i < job->count; i++) {
        if (job->items[i].seq && op->renewals[i].of)
            note_outcome(etcd, job, i);
    }
    op->text = job->why ? error_format("%s", job->why) : NULL;
    renewing_free(job);
    store_complete(etcd->host, op, STORE_DONE);
}

static void note_failure(struct renewing *job, const struct etcd_call *call) {
    job->was_sent |= call->sends > 0;
    if (job->reason)
        return;
    job->reason = call->reason ? call->reason : HF_BAD_STORE;
    job->why = strdup(call->why);
}

static void kept_alive(struct etcd *etcd, struct etcd_call *call) {
    struct kept *kept = call->context;
    kept->term = etcd_lease_kept(etcd, kept->id, call);
    if (kept->term < 0)
        note_failure(kept->job, call);
    renewed_some(etcd, kept->job);
}

/* The lease that its key has; 0: there is no key. */
static int64_t lease_of(const Etcd__ResponseOp *response) {
    bool is_there =
        response->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE && response->range->n_kvs;
    return is_there ? response->range->kvs[0]->lease : 0;
}

/* The answer to a request that moved it to another lease was lost: the next renewal keeps that
 * lease alive. */
static void find_moved(struct etcd *etcd, struct etcd_attempt *attempt, struct item *item,
                       int64_t id) {
    struct etcd_lease *lease = etcd_lease_find(etcd, id);
    if (!lease || !attempt || !attempt->held)
        return;
    etcd_lease_attach(lease, attempt);
    item->outcome = STORE_UNKNOWN;
}

/* A hold that exists is watched, even if it was acquired before the stream was lost. */
static void read_keys(struct etcd *etcd, struct chunk *chunk, const Etcd__TxnResponse *response) {
    struct renewing *job = chunk->job;
    size_t at = 0;
    for (size_t i = chunk->first; i < job->count && i < chunk->first + CHUNK; i++) {
        struct item *item = &job->items[i];
        struct etcd_attempt *attempt = etcd_attempt_find(etcd, item->seq);
        if (!item->is_asked || at == response->n_responses)
            continue;
        int64_t lease = lease_of(response->responses[at++]);
        item->is_there = lease && lease == item->lease;
        if (!item->is_there)
            find_moved(etcd, attempt, item, lease);
        if (item->is_there && attempt)
            etcd_watch_again(etcd, attempt, response->header->revision);
    }
    chunk->term = response->header->raft_term;
}

static void keys_read(struct etcd *etcd, struct etcd_call *call) {
    struct chunk *chunk = call->context;
    Etcd__TxnResponse *response =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    if (response && response->header)
        read_keys(etcd, chunk, response);
    else
        note_failure(chunk->job, call);
    if (response)
        etcd__txn_response__free_unpacked(response, NULL);
    renewed_some(etcd, chunk->job);
}

/* ---- What a renewal sends ---- */

static void lengthened(struct etcd *etcd, void *context, size_t index, enum store_outcome how,
                       int reason) {
    struct renewing *job = context;
    job->items[index].outcome = (uint8_t)how;
    job->items[index].reason = reason;
    renewed_some(etcd, job);
}

/* Decides what to do with one of the holds. */
static void sort_out(struct etcd *etcd, struct renewing *job, size_t index) {
    struct store_renewal *renewal = &job->op->renewals[index];
    const struct store_op *of = renewal->of;
    struct item *item = &job->items[index];
    struct etcd_attempt *attempt = of ? etcd_attempt_find(etcd, of->seq) : NULL;
    if (!of)
        return;
    item->seq = of->seq;
    if (!attempt || !attempt->held || !attempt->lease || attempt->until_us <= job->asked_us) {
        item->outcome = STORE_NOT_YOURS;
    } else if (attempt->lease->seconds < etcd_seconds(renewal->lease_us)) {
        job->pending++;
        if (!etcd_lengthen(etcd, attempt, renewal->lease_us, lengthened, job, index)) {
            job->pending--;
            item->outcome = STORE_UNKNOWN;
        }
    } else {
        item->is_asked = true;
        item->lease = attempt->lease->id;
        if (!kept_of(job, item->lease))
            job->kept[job->kept_count++] = (struct kept){.job = job, .id = item->lease, .term = -1};
    }
}

static void send_keep_alives(struct etcd *etcd, struct renewing *job) {
    for (size_t i = 0; i < job->kept_count; i++) {
        struct etcd_lease *lease = etcd_lease_find(etcd, job->kept[i].id);
        job->pending +=
            lease && etcd_lease_keep(etcd, lease, kept_alive, &job->kept[i], job->give_up_us);
    }
}

static void send_chunk(struct etcd *etcd, struct renewing *job, size_t first) {
    struct chunk *chunk = &job->chunks[first / CHUNK];
    struct txn *txn = txn_new(CHUNK);
    *chunk = (struct chunk){.job = job, .first = first};
    for (size_t i = first; txn && i < job->count && i < first + CHUNK; i++) {
        struct etcd_attempt *attempt = etcd_attempt_find(etcd, job->items[i].seq);
        job->items[i].is_asked = job->items[i].is_asked && attempt;
        if (job->items[i].is_asked)
            txn_get(txn, true, &attempt->key, NULL);
    }
    if (!txn || !txn->used) {
        txn_free(txn);
        return;
    }
    struct etcd_call *call = txn_call(txn, keys_read, chunk);
    if (call) {
        job->pending++;
        etcd_send(etcd, call, job->give_up_us);
    }
}

void etcd_renew(struct etcd *etcd, struct store_op *op) {
    struct renewing *job = renewing_new(etcd, op);
    if (!job) {
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    job->pending = 1; /* until everything is sent */
    for (size_t i = 0; i < job->count; i++)
        sort_out(etcd, job, i);
    send_keep_alives(etcd, job);
    for (size_t first = 0; first < job->count; first += CHUNK)
        send_chunk(etcd, job, first);
    renewed_some(etcd, job);
}
