/* Pending releases: those that a node has not confirmed.
 *
 * A hold that is released, and a ballot that was lost, are released at all nodes that may have a
 * vote of them, including those that did not answer. A release is repeated until each node confirms
 * it or every lease must have ended: at longer and longer intervals, and as soon as a silent node
 * answers again. A silent node may receive the request for its vote late and start the lease only
 * then, so leases count from the last time that it was silent.
 *
 * A request may have to be sent twice (NOSCRIPT), so a vote may be given after its release. The
 * order of the answers shows that, and the vote is given back when its own answer arrives. */
#include "store/quorum/quorum.h"

#include "base/error.h"

#include <string.h>

enum {
    RELEASE_RETRY_US = 250000,  /* doubled each time, up to a quarter of max_lease */
    PENDING_RELEASES_MAX = 256, /* beyond that, the oldest is no longer repeated */
};

struct pending_release {
    struct round round;
    struct list repeated; /* in the quorum's list, if it must be repeated */
    int64_t until_us;     /* when every lease must have ended */
    int64_t retry_at_us, delay_us;
    enum store_outcome result; /* of a lost ballot; 0: the operation is a RELEASE */
    uint32_t granted;          /* nodes that must confirm before a lost ballot completes */
    uint32_t unknown; /* nodes that left a release unanswered: it may be why they say "not yours" */
    size_t yes, no;
    char name[];
};

static void stop_repeating(struct pending_release *pending) {
    if (!pending->round.kept)
        return;
    list_remove(&pending->repeated);
    pending->round.kept = false;
    pending->round.quorum->pending_release_count--;
}

static void repeat_later(struct pending_release *pending) {
    struct quorum *q = pending->round.quorum;
    if (pending->round.kept)
        return;
    if (q->pending_release_count == PENDING_RELEASES_MAX) {
        struct pending_release *oldest =
            container_of(q->pending_releases.next, struct pending_release, repeated);
        stop_repeating(oldest);
        quorum_round_free_if_over(&oldest->round);
    }
    pending->round.kept = true;
    pending->retry_at_us = quorum_now_us(q) + pending->delay_us;
    if (pending->delay_us < q->host->max_lease_us / 4)
        pending->delay_us *= 2;
    list_append(&q->pending_releases, &pending->repeated);
    q->pending_release_count++;
    quorum_wake_by(q, pending->retry_at_us);
}

static bool is_confirmed(const struct node_request *request) {
    return request->op.outcome == STORE_DONE || request->op.outcome == STORE_NOT_YOURS;
}

/* A node has answered a release. Votes of that ballot that it has not answered yet will come after
 * it. */
static void give_up_votes(struct quorum *q, const struct node_request *release) {
    size_t index = release->node->index;
    for (struct round *round = NULL; (round = quorum_ballot_round(q, release->op.seq, round));)
        round->given_up |= round->requests[index].in_flight ? 1u << index : 0;
}

static void release_answered(struct round *round, struct node_request *request) {
    struct pending_release *pending = container_of(round, struct pending_release, round);
    struct quorum *q = round->quorum;
    uint32_t bit = 1u << request->node->index;
    give_up_votes(q, request);
    pending->yes += request->op.outcome == STORE_DONE;
    pending->no += request->op.outcome == STORE_NOT_YOURS && !(pending->unknown & bit);
    if (is_confirmed(request) || q->ending)
        return;
    if (request->op.outcome == STORE_UNKNOWN) {
        request->node->owed = true;
        pending->unknown |= bit;
        pending->until_us = quorum_now_us(q) + q->host->max_lease_us;
    }
    if (quorum_now_us(q) < pending->until_us)
        repeat_later(pending);
}

static enum store_outcome release_outcome(const struct pending_release *pending, bool over) {
    const struct round *round = &pending->round;
    const struct quorum *q = round->quorum;
    if (!pending->result)
        return pending->yes >= q->quorum                 ? STORE_DONE
               : pending->no > q->node_count - q->quorum ? STORE_NOT_YOURS /* it had no quorum */
               : over                                    ? STORE_UNKNOWN
                                                         : 0;
    for (size_t i = 0; i < q->node_count && !over; i++) {
        if (pending->granted & 1u << i && round->requests[i].in_flight)
            return 0;
    }
    return pending->result;
}

static void release_decide(struct round *round, bool time_is_up) {
    struct pending_release *pending = container_of(round, struct pending_release, round);
    struct quorum *q = round->quorum;
    bool over = pending->result
                    ? time_is_up || !round->in_flight /* the next ballot waits for this one */
                    : !quorum_round_waits_on(round, time_is_up, q->quorum, QUORUM_PATIENCE_US);
    enum store_outcome outcome = release_outcome(pending, over);
    if (!outcome)
        return;
    struct store_op *op = quorum_round_decided(round);
    if (outcome == STORE_UNKNOWN && !pending->result)
        op->text = quorum_round_explain(round, "too few nodes confirmed it");
    if (!pending->result && (outcome == STORE_DONE || outcome == STORE_NOT_YOURS))
        quorum_attempt_end(q, quorum_attempt_find(q, op->seq));
    if (outcome == STORE_QUEUED && !(op->flags & STORE_WAIT))
        quorum_retry_later(q, op);
    else
        store_complete(q->host, op, outcome);
}

/* A release of the votes of a ballot, on all nodes. `of` says what the ballot was for. NULL: no
 * memory. */
static struct pending_release *pending_release_new(struct quorum *q, struct store_op *op,
                                                   const struct store_op *of, uint64_t ballot_id) {
    size_t name_size = strlen(of->name) + 1;
    struct pending_release *pending = quorum_round_new(q, op, sizeof(*pending) + name_size);
    if (!pending)
        return NULL;
    memcpy(pending->name, of->name, name_size);
    list_init(&pending->repeated);
    pending->until_us =
        quorum_now_us(q) + q->host->max_lease_us; /* its lease may have been longer once */
    pending->delay_us = RELEASE_RETRY_US;
    pending->round.answered = release_answered;
    pending->round.decide = release_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *request = &pending->round.requests[i].op;
        request->type = STORE_RELEASE;
        request->kind = of->kind;
        request->capacity = of->capacity;
        request->weight = of->weight;
        request->seq = ballot_id;
        request->name = pending->name;
        request->lease_us = of->lease_us;
        pending->round.requests[i].quiet = true;
    }
    return pending;
}

/* A node that refused the ballot has nothing to give back. */
bool quorum_take_back(struct quorum *q, struct store_op *op, enum store_outcome result,
                      uint32_t granted, uint32_t refused) {
    struct quorum_attempt *attempt = quorum_attempt_find(q, op->seq);
    struct pending_release *pending = pending_release_new(q, op, op, attempt->ballot_id);
    if (!pending)
        return false;
    attempt->ballot_id = 0;
    if (result == STORE_REFUSED)
        quorum_attempt_end(q, attempt);
    pending->result = result;
    pending->granted = granted;
    quorum_round_await(&pending->round, q->node_timeout_us);
    for (size_t i = 0; i < q->node_count; i++) {
        struct node_request *request = &pending->round.requests[i];
        if (refused & 1u << i)
            request->op.outcome = STORE_NOT_YOURS;
        else
            quorum_round_ask(&pending->round, request);
    }
    if (!granted)
        release_decide(&pending->round, false);
    quorum_round_free_if_over(&pending->round);
    return true;
}

static bool is_unconfirmed(const struct node_request *request) {
    bool asked = request->op.outcome;
    return asked && !request->in_flight && !is_confirmed(request);
}

void quorum_retry_releases(struct quorum *q) {
    int64_t now = quorum_now_us(q);
    list_each_safe(link, &q->pending_releases) {
        struct pending_release *pending = container_of(link, struct pending_release, repeated);
        struct round *round = &pending->round;
        bool over = now >= pending->until_us;
        if (!over && now < pending->retry_at_us)
            continue;
        stop_repeating(pending); /* if it is not confirmed, it is put back into the list */
        for (size_t i = 0; i < q->node_count && !over; i++) {
            if (is_unconfirmed(&round->requests[i]))
                quorum_round_ask(round, &round->requests[i]);
        }
        quorum_round_free_if_over(round);
    }
}

void quorum_retry_releases_at(struct node *node) {
    node->owed = false;
    list_each(link, &node->quorum->pending_releases) {
        struct round *round = &container_of(link, struct pending_release, repeated)->round;
        if (is_unconfirmed(&round->requests[node->index]))
            quorum_round_ask(round, &round->requests[node->index]);
    }
}

void quorum_give_back(struct quorum *q, const struct store_op *vote, const struct node *at) {
    struct pending_release *pending = pending_release_new(q, NULL, vote, vote->seq);
    if (!pending)
        return;
    for (size_t i = 0; i < q->node_count; i++) {
        if (!at || at->index == i)
            quorum_round_ask(&pending->round, &pending->round.requests[i]);
    }
}

void quorum_give_back_if_late(struct round *round, struct node_request *request) {
    if (round->given_up & 1u << request->node->index && request->op.outcome == STORE_DONE)
        quorum_give_back(round->quorum, &request->op, request->node);
}

void quorum_release(struct quorum *q, struct store_op *op) {
    struct quorum_attempt *attempt = quorum_attempt_find(q, op->seq);
    if (!attempt || !attempt->ballot_id) { /* its last ballot was lost, and taken back */
        quorum_attempt_end(q, attempt);
        store_complete(q->host, op, STORE_NOT_YOURS);
        return;
    }
    quorum_forget_gone(q, attempt->ballot_id);
    quorum_end_renewals(q, attempt->ballot_id);
    quorum_end_votes(q, attempt->ballot_id);
    quorum_attempt_released(q, attempt);
    struct pending_release *pending = pending_release_new(q, op, op, attempt->ballot_id);
    if (!pending) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    for (size_t i = 0; i < q->node_count; i++)
        pending->round.requests[i].quiet = false;
    quorum_round_ask_all(&pending->round);
}

void quorum_end_releases(struct quorum *q) {
    while (!list_empty(&q->pending_releases)) {
        struct pending_release *pending =
            container_of(q->pending_releases.next, struct pending_release, repeated);
        stop_repeating(pending);
        quorum_round_free_if_over(&pending->round);
    }
}

int64_t quorum_next_release_us(const struct quorum *q) {
    int64_t at_us = WORLD_NEVER;
    list_each(link, &q->pending_releases) {
        int64_t one_us = container_of(link, struct pending_release, repeated)->retry_at_us;
        at_us = one_us < at_us ? one_us : at_us;
    }
    return at_us;
}
