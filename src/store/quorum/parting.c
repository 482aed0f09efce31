/* Parting: releases that must reach every node.
 *
 * Whatever is released, or was lost, is released on all nodes that may have it, including those that did
 * not answer. That is repeated until a node confirms or every lease must have ended: at longer and longer
 * intervals, and as soon as a node that was silent answers again. A silent node may still get the vote
 * that it was sent, and begin its lease only then, so the leases count from the last time that it was
 * silent.
 *
 * As a node may have to be sent a request twice (NOSCRIPT), a vote may come behind its release. The order
 * of the answers shows it, and the vote is given back when its own answer comes. */
#include "store/quorum/quorum.h"

#include "base/error.h"

#include <string.h>

enum {
    PARTING_RETRY_US = 250000, /* doubling, up to a quarter of the longest lease */
    PARTINGS_MAX = 256,        /* that are repeated: beyond, the oldest is left to its lease */
};

struct parting {
    struct round round;
    struct list waiting; /* in the quorum's partings, to be repeated */
    int64_t until_us;    /* by when the nodes have forgotten by themselves */
    int64_t retry_at_us, delay_us;
    enum store_outcome result; /* of a ballot that was lost; 0: the release is what was asked for */
    uint32_t granted;          /* by which nodes: they must have confirmed that before it is told */
    uint32_t unknown;          /* who left one unanswered: its "not yours" may be due to that one */
    size_t yes, no;
    char name[];
};

static void stop_repeating(struct parting *parting) {
    if (!parting->round.kept)
        return;
    list_remove(&parting->waiting);
    parting->round.kept = false;
    parting->round.quorum->parting_count--;
}

static void repeat_later(struct parting *parting) {
    struct quorum *q = parting->round.quorum;
    if (parting->round.kept)
        return;
    if (q->parting_count == PARTINGS_MAX) {
        struct parting *oldest = container_of(q->partings.next, struct parting, waiting);
        stop_repeating(oldest);
        round_free_if_over(&oldest->round);
    }
    parting->round.kept = true;
    parting->retry_at_us = quorum_now_us(q) + parting->delay_us;
    if (parting->delay_us < q->host->max_lease_us / 4)
        parting->delay_us *= 2;
    list_append(&q->partings, &parting->waiting);
    q->parting_count++;
    quorum_wake_by(q, parting->retry_at_us);
}

static bool is_confirmed(const struct errand *errand) {
    return errand->op.outcome == STORE_DONE || errand->op.outcome == STORE_NOT_YOURS;
}

/* A node has answered a release: votes of that ballot that it has not answered yet come behind it. */
static void give_up_votes(struct quorum *q, const struct errand *release) {
    size_t index = release->node->index;
    for (struct round *round = NULL; (round = round_of_mark(q, release->op.seq, round));)
        round->given_up |= round->errands[index].in_flight ? 1u << index : 0;
}

static void parting_answered(struct round *round, struct errand *errand) {
    struct parting *parting = container_of(round, struct parting, round);
    struct quorum *q = round->quorum;
    uint32_t bit = 1u << errand->node->index;
    give_up_votes(q, errand);
    parting->yes += errand->op.outcome == STORE_DONE;
    parting->no += errand->op.outcome == STORE_NOT_YOURS && !(parting->unknown & bit);
    if (is_confirmed(errand) || q->ending)
        return;
    if (errand->op.outcome == STORE_UNKNOWN) {
        errand->node->owed = true;
        parting->unknown |= bit;
        parting->until_us = quorum_now_us(q) + q->host->max_lease_us;
    }
    if (quorum_now_us(q) < parting->until_us)
        repeat_later(parting);
}

static enum store_outcome parting_outcome(const struct parting *parting, bool over) {
    const struct round *round = &parting->round;
    const struct quorum *q = round->quorum;
    if (!parting->result)
        return parting->yes >= q->quorum                 ? STORE_DONE
               : parting->no > q->node_count - q->quorum ? STORE_NOT_YOURS /* it had no quorum */
               : over                                    ? STORE_UNKNOWN
                                                         : 0;
    for (size_t i = 0; i < q->node_count && !over; i++) {
        if (parting->granted & 1u << i && round->errands[i].in_flight)
            return 0;
    }
    return parting->result;
}

/* Of who does not wait: the votes were split. */
static void try_later(struct quorum *q, struct store_op *op) {
    op->left_us += quorum_now_us(q);
    list_append(&q->tries, &op->link);
    quorum_wake_by(q, op->left_us);
}

static void parting_decide(struct round *round, bool time_is_up) {
    struct parting *parting = container_of(round, struct parting, round);
    enum store_outcome outcome = parting_outcome(parting, time_is_up || !round->in_flight);
    if (!outcome)
        return;
    struct store_op *op = round_decided(round);
    if (outcome == STORE_UNKNOWN && !parting->result)
        op->text = round_explain(round, "too few nodes confirmed it");
    if (outcome == STORE_QUEUED && !(op->flags & STORE_WAIT))
        try_later(round->quorum, op);
    else
        store_complete(round->quorum->host, op, outcome);
}

/* A release of what `of` has or may have, on all nodes; NULL: no memory. */
static struct parting *parting_new(struct quorum *q, struct store_op *of) {
    size_t name_size = strlen(of->name) + 1;
    struct parting *parting = round_new(q, of, sizeof(*parting) + name_size);
    if (!parting)
        return NULL;
    memcpy(parting->name, of->name, name_size);
    list_init(&parting->waiting);
    parting->until_us =
        quorum_now_us(q) + q->host->max_lease_us; /* (a lease may have been longer once) */
    parting->delay_us = PARTING_RETRY_US;
    parting->round.answered = parting_answered;
    parting->round.decide = parting_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &parting->round.errands[i].op;
        errand->type = STORE_RELEASE;
        errand->kind = of->kind;
        errand->capacity = of->capacity;
        errand->weight = of->weight;
        errand->seq = of->mark;
        errand->name = parting->name;
        errand->lease_us = of->lease_us;
        parting->round.errands[i].quiet = true;
    }
    return parting;
}

/* (A node that the ballot was refused by has nothing to give back.) */
bool take_back(struct quorum *q, struct store_op *op, enum store_outcome result, uint32_t granted,
               uint32_t refused) {
    struct parting *parting = parting_new(q, op);
    if (!parting)
        return false;
    op->mark = 0;
    parting->result = result;
    parting->granted = granted;
    round_await(&parting->round, q->node_timeout_us);
    for (size_t i = 0; i < q->node_count; i++) {
        struct errand *errand = &parting->round.errands[i];
        if (refused & 1u << i)
            errand->op.outcome = STORE_NOT_YOURS;
        else
            round_ask(&parting->round, errand);
    }
    if (!granted)
        parting_decide(&parting->round, false);
    round_free_if_over(&parting->round);
    return true;
}

static bool is_unconfirmed(const struct errand *errand) {
    bool asked = errand->op.outcome;
    return asked && !errand->in_flight && !is_confirmed(errand);
}

/* Asks the nodes again that have not confirmed; what must have ended by itself is given up. */
void retry_partings(struct quorum *q) {
    int64_t now = quorum_now_us(q);
    list_each_safe(node, &q->partings) {
        struct parting *parting = container_of(node, struct parting, waiting);
        struct round *round = &parting->round;
        bool over = now >= parting->until_us;
        if (!over && now < parting->retry_at_us)
            continue;
        stop_repeating(parting); /* an answer that confirms nothing puts it back into the list */
        for (size_t i = 0; i < q->node_count && !over; i++) {
            if (is_unconfirmed(&round->errands[i]))
                round_ask(round, &round->errands[i]);
        }
        round_free_if_over(round);
    }
}

void retry_partings_at(struct node *node) {
    node->owed = false;
    list_each(link, &node->quorum->partings) {
        struct round *round = &container_of(link, struct parting, waiting)->round;
        if (is_unconfirmed(&round->errands[node->index]))
            round_ask(round, &round->errands[node->index]);
    }
}

/* Nobody wants the votes of a ballot any more, or waits for their return: gives them back where `at` is, or on all
 * nodes. Without memory they are left to their leases. */
void give_back(struct quorum *q, const struct store_op *vote, const struct node *at) {
    struct store_op of = *vote;
    of.mark = vote->seq;
    struct parting *parting = parting_new(q, &of);
    if (!parting)
        return;
    parting->round.op = NULL;
    for (size_t i = 0; i < q->node_count; i++) {
        if (!at || at->index == i)
            round_ask(&parting->round, &parting->round.errands[i]);
    }
}

void give_back_if_late(struct round *round, struct errand *errand) {
    if (round->given_up & 1u << errand->node->index && errand->op.outcome == STORE_DONE)
        give_back(round->quorum, &errand->op, errand->node);
}

void quorum_release(struct quorum *q, struct store_op *op) {
    waiting_forget(q, op);
    quorum_forget_gone(q, op->mark);
    end_renewals(q, op->mark);
    votes_are_over(q, op->mark);
    if (!op->mark) { /* its last ballot was lost, and taken back */
        store_complete(q->host, op, STORE_NOT_YOURS);
        return;
    }
    struct parting *parting = parting_new(q, op);
    if (!parting) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    for (size_t i = 0; i < q->node_count; i++)
        parting->round.errands[i].quiet = false;
    round_ask_all(&parting->round);
}

void end_partings(struct quorum *q) {
    while (!list_empty(&q->partings)) {
        struct parting *parting = container_of(q->partings.next, struct parting, waiting);
        stop_repeating(parting);
        round_free_if_over(&parting->round);
    }
}

int64_t next_parting_us(const struct quorum *q) {
    int64_t at_us = WORLD_NEVER;
    list_each(node, &q->partings) {
        int64_t one_us = container_of(node, struct parting, waiting)->retry_at_us;
        at_us = one_us < at_us ? one_us : at_us;
    }
    return at_us;
}
