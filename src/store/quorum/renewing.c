/* Renewing.
 *
 * A hold may end while its renewal is in flight, and the nodes may still read it then. So each
 * renewal uses a copy of the hold. If a quorum renews a hold, a node that has lost its vote is
 * asked to retake it, even if its answer comes late; but not if the hold was released in the
 * meantime, because the vote would come after its release. */
#include "store/quorum/quorum.h"

struct renewing {
    struct round round;
    struct list link; /* in the quorum's renewals */
    size_t count;
    struct store_op *holds;      /* copies */
    struct store_renewal *items; /* of all nodes, one after the other */
    uint8_t *yes, *no;           /* of each hold */
    bool *renewed;               /* by a quorum, and not released since */
    char text[];                 /* all of this, and the names and labels */
};

struct again {
    struct round round;
    char text[]; /* name, label */
};

static void taken_again(struct round *round, struct node_request *request) {
    if (request->op.outcome == STORE_DONE)
        quorum_on_reply(request);
    quorum_give_back_if_late(round, request);
}

/* Retakes a node's vote for a hold that a quorum has. Nobody waits for that. */
static void take_again(struct quorum *q, const struct store_op *hold, struct node *node) {
    size_t texts = quorum_text_size(hold->name) + quorum_text_size(hold->label);
    struct again *again = quorum_round_new(q, NULL, sizeof(*again) + texts);
    if (!again)
        return; /* the next renewal tries it again */
    char *text = again->text;
    quorum_round_votes(&again->round, hold->seq);
    again->round.answered = taken_again;
    struct node_request *request = &again->round.requests[node->index];
    request->op = *hold;
    list_init(&request->op.link);
    request->op.type = STORE_ACQUIRE;
    request->vote.type = STORE_RETAKE;
    request->vote.token = hold->token;
    request->op.name = quorum_copy_text(&text, hold->name);
    request->op.label = quorum_copy_text(&text, hold->label);
    quorum_round_ask(&again->round, request);
}

/* The node has lost its vote, or it is not known which node it is, so that its renewals do not
 * count. A vote fixes both. */
static bool wants_vote(const struct node_request *request, size_t index) {
    return request->op.outcome == STORE_DONE &&
           (request->op.renewals[index].outcome == STORE_NOT_YOURS || !request->node->identified);
}

static void renewing_answered(struct round *round, struct node_request *request) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    for (size_t i = 0; i < renewing->count; i++) {
        struct store_renewal *item = &request->op.renewals[i];
        if (request->op.outcome != STORE_DONE)
            item->outcome = request->op.outcome;
        else if (item->outcome == STORE_DONE &&
                 (!quorum_is_distinct(round->quorum, request->node) ||
                  quorum_is_above_token(request->node, renewing->holds[i].seq)))
            item->outcome = STORE_UNKNOWN;
        renewing->yes[i] = (uint8_t)(renewing->yes[i] + (item->outcome == STORE_DONE));
        renewing->no[i] = (uint8_t)(renewing->no[i] + (item->outcome == STORE_NOT_YOURS));
        if (renewing->renewed[i] && wants_vote(request, i))
            take_again(round->quorum, &renewing->holds[i], request->node);
    }
}

static enum store_outcome outcome_of(const struct renewing *renewing, size_t index) {
    const struct quorum *q = renewing->round.quorum;
    return renewing->yes[index] >= q->quorum                 ? STORE_DONE
           : renewing->no[index] > q->node_count - q->quorum ? STORE_NOT_YOURS
                                                             : STORE_UNKNOWN;
}

/* The shortest lease of the nodes that renewed it: until it ends, a quorum has the lock. */
static int64_t shortest_lease_us(const struct renewing *renewing, size_t index) {
    int64_t shortest_us = INT64_MAX;
    for (size_t n = 0; n < renewing->round.quorum->node_count; n++) {
        const struct node_request *request = &renewing->round.requests[n];
        const struct store_renewal *item = &request->op.renewals[index];
        if (!request->in_flight && item->outcome == STORE_DONE && item->lease_us < shortest_us)
            shortest_us = item->lease_us;
    }
    return shortest_us;
}

static void renewed(struct renewing *renewing, size_t index) {
    struct round *round = &renewing->round;
    renewing->renewed[index] = true;
    for (size_t n = 0; n < round->quorum->node_count; n++) {
        struct node_request *request = &round->requests[n];
        if (!request->in_flight && wants_vote(request, index))
            take_again(round->quorum, &renewing->holds[index], request->node);
    }
}

/* Some nodes may still have it. Their votes stay until the program releases the hold, or until they
 * end: the program counts on the time that it has left, and may not know of the loss yet. If the
 * votes were given back now, somebody else could get the lock before that time is up. */
static void lost(struct renewing *renewing, size_t index) {
    struct quorum *q = renewing->round.quorum;
    quorum_end_votes(q, renewing->holds[index].seq);
    q->host->gone(q->host, renewing->holds[index].seq >> BALLOT_BITS);
}

static void renewing_decide(struct round *round, bool time_is_up) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    bool over = time_is_up || !round->in_flight, unknown = false;
    for (size_t i = 0; i < op->renewal_count; i++)
        unknown |= op->renewals[i].of && outcome_of(renewing, i) == STORE_UNKNOWN;
    if (unknown && !over)
        return;
    quorum_round_decided(round);
    for (size_t i = 0; i < op->renewal_count; i++) {
        op->renewals[i].outcome = outcome_of(renewing, i);
        op->renewals[i].lease_us = shortest_lease_us(renewing, i);
        if (op->renewals[i].of && op->renewals[i].outcome == STORE_DONE)
            renewed(renewing, i);
        else if (op->renewals[i].of && op->renewals[i].outcome == STORE_NOT_YOURS)
            lost(renewing, i);
    }
    if (unknown)
        op->text = quorum_round_explain(round, "too few nodes renewed it");
    store_complete(q->host, op, STORE_DONE);
}

static void renewing_clear(struct round *round) {
    list_remove(&container_of(round, struct renewing, round)->link);
}

void quorum_end_renewals(struct quorum *q, uint64_t ballot_id) {
    list_each(link, &q->renewals) {
        struct renewing *renewing = container_of(link, struct renewing, link);
        for (size_t i = 0; i < renewing->count; i++) {
            if (renewing->holds[i].seq == ballot_id)
                renewing->renewed[i] = false;
        }
    }
}

/* Everything is one allocation, with the most strictly aligned parts first. */
static struct renewing *renewing_new(struct quorum *q, struct store_op *op) {
    size_t count = op->renewal_count;
    size_t of_holds = count * sizeof(struct store_op);
    size_t of_items = q->node_count * count * sizeof(struct store_renewal);
    size_t size = sizeof(struct renewing) + of_holds + of_items + 3 * count;
    for (size_t i = 0; i < count; i++) {
        const struct store_op *of = op->renewals[i].of;
        size += of ? quorum_text_size(of->name) + quorum_text_size(of->label) : 0;
    }
    struct renewing *renewing = quorum_round_new(q, op, size);
    if (!renewing)
        return NULL;
    renewing->count = count;
    renewing->holds = (struct store_op *)(renewing + 1);
    renewing->items = (struct store_renewal *)(renewing->holds + count);
    renewing->yes = (uint8_t *)(renewing->items + q->node_count * count);
    renewing->no = renewing->yes + count;
    renewing->renewed = (bool *)(renewing->no + count);
    char *text = (char *)(renewing->renewed + count);
    for (size_t i = 0; i < count; i++) {
        const struct store_op *of = op->renewals[i].of;
        if (!of)
            continue;
        const struct quorum_attempt *attempt = quorum_attempt_find(q, of->seq);
        renewing->holds[i] = (struct store_op){.kind = of->kind,
                                               .seq = attempt ? attempt->ballot_id : 0,
                                               .name = quorum_copy_text(&text, of->name),
                                               .label = quorum_copy_text(&text, of->label),
                                               .capacity = of->capacity,
                                               .weight = of->weight,
                                               .lease_us = op->renewals[i].lease_us,
                                               .token = of->token};
    }
    list_append(&q->renewals, &renewing->link);
    return renewing;
}

void quorum_renew(struct quorum *q, struct store_op *op) {
    struct renewing *renewing = renewing_new(q, op);
    if (!renewing) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    renewing->round.answered = renewing_answered;
    renewing->round.decide = renewing_decide;
    renewing->round.clear = renewing_clear;
    for (size_t n = 0; n < q->node_count; n++) {
        struct store_op *request = &renewing->round.requests[n].op;
        request->type = STORE_RENEW;
        request->renewals = renewing->items + n * op->renewal_count;
        request->renewal_count = op->renewal_count;
        for (size_t i = 0; i < op->renewal_count; i++) {
            request->renewals[i].of = op->renewals[i].of ? &renewing->holds[i] : NULL;
            request->renewals[i].lease_us = op->renewals[i].lease_us;
        }
    }
    quorum_round_ask_all(&renewing->round);
}
