/* Design notes.
 *
 * The clock was read before the engine put the operation out (asked_us); all nodes are asked at once, and the
 * decision falls as soon as a quorum granted or no longer can, so that a node that hangs costs nothing. Leases at
 * the nodes begin after that reading: what is left for the holder is lease - elapsed - drift, as for any store.
 *
 * Each ballot has a number of its own, and that is what the nodes know it by (op->mark): a release that takes one
 * back, and comes late or twice, never meets the next ballot of the same attempt.
 *
 * Tokens. t is the largest token of the grants that are counted, which are those that were there when a quorum had
 * granted. Counted nodes below t are raised to it, each only if it still holds for this ballot. When a quorum of
 * counted nodes hold exactly t, the lock is held with t. A later grant is not counted: it may have a larger
 * token, and is kept as a spare. So of two successive holders, the later one counts a node that the earlier one
 * had counted, whose counter was at least t by then. The floor makes nodes agree at once, as a rule.
 *
 * Whatever fails is released on all nodes that have not refused it, also on those that did not answer; and again,
 * until a node confirms or the lease must have ended. As a node may have to be sent a request twice (NOSCRIPT), a vote
 * may come behind its release, which is seen from the order of the answers: then it is given back when its own comes.
 * A loser is told when the nodes that had granted have confirmed. That wakes nobody: who lost comes back by itself,
 * soon and at a time of its own if the votes were split, and those who got no vote wait for a holder's release. */
#include "store/quorum/quorum.h"

#include "base/error.h"
#include "store/drivers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTING_RETRY_US = 250000, /* doubling */
    PARTINGS_MAX = 256,        /* that are repeated: beyond, the oldest is left to its lease */
    CROWD_MOST = 6,
    TRIES = 5 /* after which who does not wait is told that the votes were split */
};

static int64_t now_us(const struct quorum *q) {
    return world_now_us(q->host->world);
}

/* ---- Parting: releases that must reach every node ---- */

struct parting {
    struct round round;
    struct list waiting; /* in the quorum's partings, to be repeated */
    int64_t until_us;    /* by when the nodes have forgotten by themselves */
    int64_t retry_at_us, delay_us;
    enum store_outcome result; /* of a ballot that was lost; 0: the release is what was asked for */
    uint32_t granted;          /* by which nodes: they must have confirmed that before it is told */
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
    parting->retry_at_us = now_us(q) + parting->delay_us;
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
    for (struct map_node *node = map_find(&q->votes, map_hash_number(release->op.seq)); node;
         node = map_find_next(node)) { /* (the hash is a bijection) */
        struct round *round = container_of(node, struct round, voting);
        round->given_up |= round->errands[index].in_flight ? 1u << index : 0;
    }
}

static void parting_answered(struct round *round, struct errand *errand) {
    struct parting *parting = container_of(round, struct parting, round);
    struct quorum *q = round->quorum;
    give_up_votes(q, errand);
    parting->yes += errand->op.outcome == STORE_DONE;
    parting->no += errand->op.outcome == STORE_NOT_YOURS;
    if (!is_confirmed(errand) && !q->ending && now_us(q) < parting->until_us)
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
    op->left_us += now_us(q);
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
    parting->until_us = now_us(q) + q->host->max_lease_us; /* (a lease may have been longer once) */
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
    }
    return parting;
}

/* Asks the nodes again that have not confirmed; what must have ended by itself is given up. */
static void retry_partings(struct quorum *q) {
    int64_t now = now_us(q);
    list_each_safe(node, &q->partings) {
        struct parting *parting = container_of(node, struct parting, waiting);
        struct round *round = &parting->round;
        bool over = now >= parting->until_us;
        if (!over && now < parting->retry_at_us)
            continue;
        stop_repeating(parting); /* an answer that confirms nothing puts it back into the list */
        for (size_t i = 0; i < q->node_count && !over; i++) {
            struct errand *errand = &round->errands[i];
            bool asked = errand->op.outcome;
            if (asked && !errand->in_flight && !is_confirmed(errand))
                round_ask(round, errand);
        }
        round_free_if_over(round);
    }
}

/* Nobody wants the votes of a ballot any more, or waits for their return: gives them back where `at` is, or on all
 * nodes. Without memory they are left to their leases. */
static void give_back(struct quorum *q, const struct store_op *vote, const struct node *at) {
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

static void give_back_if_late(struct round *round, struct errand *errand) {
    if (round->given_up & 1u << errand->node->index && errand->op.outcome == STORE_DONE)
        give_back(round->quorum, &errand->op, errand->node);
}

static void end_renewals(struct quorum *q, uint64_t mark);

static void quorum_release(struct quorum *q, struct store_op *op) {
    waiting_forget(q, op);
    quorum_forget_gone(q, op->mark);
    end_renewals(q, op->mark);
    forget_above(q, op->mark);
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
        parting->round.errands[i].op.flags = STORE_VOTE; /* so that the nodes say that it is free */
    round_ask_all(&parting->round);
}

/* ---- Acquire ---- */

struct ballot {
    struct round round;
    bool counted
        [QUORUM_NODES_MAX]; /* granted when there was a quorum: these are raised to `token` */
    uint64_t tokens[QUORUM_NODES_MAX]; /* 0: not granted */
    int64_t left_us[QUORUM_NODES_MAX]; /* of who has it; sorted when it is lost */
    bool raising, foreign;
    int64_t asked_us;
    struct node *twice; /* the same server as another of the set */
    uint64_t token;
    size_t granted, busy;
    char text[]; /* name, label */
};

/* Another has it; or, where it was to be raised, had it meanwhile. */
static bool is_taken(const struct store_op *op) {
    return op->outcome == STORE_REFUSED && (op->reason == HF_BUSY || op->reason == HF_NOT_YOURS);
}

static void note_refusal(struct ballot *ballot, const struct errand *errand) {
    const struct store_op *op = &errand->op;
    struct quorum *q = ballot->round.quorum;
    if (ballot->round.op)
        waiting_refused(q, ballot->round.op, errand->node);
    ballot->foreign |= op->reason == HF_BUSY && op->flags & STORE_FOREIGN;
    ballot->left_us[ballot->busy++] = op->reason == HF_BUSY ? op->left_us : 0;
}

/* A vote says who the node is. */
static void hear(struct errand *errand) {
    errand->node->number = errand->op.left_us;
    errand->node->heard = true;
}

/* The same server under two names would have two votes. */
static bool is_listed_twice(const struct quorum *q, const struct node *node) {
    for (size_t i = 0; i < q->node_count && node->number; i++) {
        if (&q->nodes[i] != node && q->nodes[i].number == node->number)
            return true;
    }
    return false;
}

/* What it says to a renewal counts: it is known to be another than those before it. (A hold may have been granted
 * before a ballot noticed that it is not.) */
static bool is_another(const struct quorum *q, const struct node *node) {
    for (size_t i = 0; i < node->index && node->number; i++) {
        if (q->nodes[i].number == node->number)
            return false;
    }
    return node->heard;
}

/* A vote that came when the lock's token had been chosen, above that: somebody may have held it with one in between,
 * and renewals there would hide that from who holds it now. */
static bool is_above(const struct ballot *ballot, const struct errand *errand) {
    return ballot->raising && !ballot->counted[errand->node->index] &&
           errand->op.token > ballot->token;
}

static void ballot_answered(struct round *round, struct errand *errand) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    size_t index = errand->node->index;
    bool had = ballot->tokens[index] > 0;
    bool done = errand->op.outcome == STORE_DONE;
    if (done)
        hear(errand);
    if (done && is_above(ballot, errand)) {
        round->above |= 1u << index;
        round->kept = true; /* until the hold is over */
        give_back(round->quorum, &errand->op, errand->node);
        done = false;
    } else {
        give_back_if_late(round, errand);
    }
    ballot->tokens[index] = done ? errand->op.token : 0;
    ballot->granted = ballot->granted + done - had;
    if (done && is_listed_twice(round->quorum, errand->node))
        ballot->twice = errand->node;
    else if (is_taken(&errand->op))
        note_refusal(ballot, errand);
}

/* Why there is no quorum, if it is not that others have it: what most of the nodes that failed say. */
static int reason_of(const struct round *round) {
    int best = HF_UNREACHABLE;
    size_t most = 0;
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct store_op *op = &round->errands[i].op;
        size_t count = 0;
        for (size_t j = 0; j < round->quorum->node_count; j++) {
            const struct store_op *other = &round->errands[j].op;
            count += other->outcome == STORE_REFUSED && other->reason == op->reason;
        }
        if (op->outcome == STORE_REFUSED && !is_taken(op) && count > most) {
            most = count;
            best = op->reason;
        }
    }
    return best;
}

/* Some node fell silent of which nothing bad was known: it may come back while somebody waits. (One that still has
 * time is not silent: it is not waited for, since it would not matter.) */
static bool is_silent(const struct round *round, bool time_is_up) {
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct errand *errand = &round->errands[i];
        bool hangs = errand->in_flight && time_is_up && !*errand->node->why;
        if (errand->op.outcome == STORE_UNKNOWN || hangs)
            return true;
    }
    return false;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* When so many of those who have it must have ended that there may be a quorum; after split votes soon, and at a
 * time that is this attempt's own. */
static int64_t when_again_us(struct ballot *ballot) {
    struct quorum *q = ballot->round.quorum;
    size_t others = ballot->granted + ballot->round.in_flight; /* those may still grant it */
    size_t missing = others < q->quorum ? q->quorum - others : 1;
    qsort(ballot->left_us, ballot->busy, sizeof(ballot->left_us[0]), by_size);
    int64_t left_us = missing <= ballot->busy ? ballot->left_us[missing - 1] : 0;
    bool is_mad = left_us > q->host->max_lease_us; /* a clock: to be told, not to be tried again */
    if ((!ballot->granted && !ballot->raising) || is_mad)
        return left_us;
    q->crowd += q->crowd < CROWD_MOST;
    struct waiting *waiting = waiting_find(q, ballot->round.op);
    if (waiting)
        waiting->splits++;
    int64_t scatter_us = waiting_scatter_us(q);
    return scatter_us < left_us || ballot->raising ? scatter_us : left_us;
}

/* Several have some votes each, and perhaps nobody gets the lock: then to say that it is busy would be wrong of all.
 * So who only tries does that again, too, while there is time. */
static bool tries_again(const struct ballot *ballot, int64_t when_us) {
    const struct round *round = &ballot->round;
    struct waiting *waiting = waiting_find(round->quorum, round->op);
    bool split = ballot->granted || ballot->raising;
    return split && waiting && waiting->splits < TRIES &&
           now_us(round->quorum) + when_us - waiting->since_us < round->op->lease_us / 4;
}

/* It would have been won, if others had not had it; and not only that nodes failed. */
static bool is_contended(const struct ballot *ballot, bool time_is_up) {
    const struct round *round = &ballot->round;
    size_t able = ballot->granted + ballot->busy + (time_is_up ? 0 : round->in_flight);
    return ballot->busy && able >= round->quorum->quorum;
}

/* What is to be told of a ballot that was lost. */
static enum store_outcome ballot_result(struct ballot *ballot, bool time_is_up) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    bool waits = op->flags & STORE_WAIT;
    if (ballot->twice) {
        op->reason = HF_BAD_URL;
        op->text = error_format("%s is the same server as another of the set", ballot->twice->name);
        return STORE_REFUSED;
    }
    if (is_contended(ballot, time_is_up)) {
        op->left_us = when_again_us(ballot);
        bool again = waits || tries_again(ballot, op->left_us);
        op->flags |= (uint8_t)((ballot->foreign ? STORE_FOREIGN : 0) | (waits ? STORE_HEAD : 0));
        op->reason = again ? 0 : HF_BUSY;
        return again ? STORE_QUEUED : STORE_REFUSED; /* (there is no queue: each is its head) */
    }
    char words[80];
    snprintf(words, sizeof(words), "%zu of %zu nodes granted it, and %zu are needed",
             ballot->granted, q->node_count, q->quorum);
    op->text = round_explain(round, words);
    op->reason = reason_of(round);
    bool may_come_back = op->reason == HF_UNREACHABLE && is_silent(round, time_is_up);
    return waits && may_come_back ? STORE_UNKNOWN : STORE_REFUSED;
}

/* So the node has no vote of it, for certain. */
static bool has_only_refused(const struct ballot *ballot, size_t index) {
    const struct errand *errand = &ballot->round.errands[index];
    return !errand->in_flight && errand->op.outcome == STORE_REFUSED && !ballot->counted[index];
}

/* No quorum. What was granted is given back at once, so that others may get theirs. */
static void ballot_lost(struct ballot *ballot, bool time_is_up) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    enum store_outcome result = ballot_result(ballot, time_is_up);
    struct store_op *op = round_decided(round);
    struct parting *parting = parting_new(q, op);
    if (result == STORE_REFUSED)
        waiting_forget(q, op);
    if (!parting) { /* whoever asked has to take it back */
        op->reason = HF_NO_MEMORY;
        store_complete(q->host, op, STORE_UNKNOWN);
        return;
    }
    op->mark = 0;
    parting->result = result;
    for (size_t i = 0; i < q->node_count; i++)
        parting->granted |= ballot->tokens[i] ? 1u << i : 0;
    round_await(&parting->round, q->node_timeout_us);
    for (size_t i = 0; i < q->node_count; i++) {
        struct errand *errand = &parting->round.errands[i];
        if (has_only_refused(ballot, i))
            errand->op.outcome = STORE_NOT_YOURS;
        else
            round_ask(&parting->round, errand);
    }
    if (!parting->granted)
        parting_decide(&parting->round, false);
    round_free_if_over(&parting->round);
}

/* There is a quorum: its largest token is the lock's, and those below are raised. */
static void ballot_won(struct ballot *ballot) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    ballot->raising = true;
    for (size_t i = 0; i < q->node_count; i++) {
        ballot->counted[i] = ballot->tokens[i] > 0;
        if (ballot->tokens[i] > ballot->token)
            ballot->token = ballot->tokens[i];
    }
    round_await(round, q->node_timeout_us);
    for (size_t i = 0; i < q->node_count; i++) {
        struct errand *errand = &round->errands[i];
        if (!ballot->counted[i] || ballot->tokens[i] == ballot->token)
            continue;
        errand->op.floor = ballot->token;
        errand->op.flags = STORE_VOTE | STORE_MINE;
        round_ask(round, errand);
    }
}

/* Others have votes that it needs, as long as nodes that did not vote the last time do not: it gives way at once, for
 * meanwhile those others would miss the votes that it has. */
static bool gives_way(const struct ballot *ballot, size_t hopeful) {
    size_t quorum = ballot->round.quorum->quorum;
    return ballot->busy && hopeful < quorum && hopeful + ballot->busy >= quorum;
}

static void ballot_decide(struct round *round, bool time_is_up) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    struct quorum *q = round->quorum;
    if (!ballot->twice && !ballot->raising && ballot->granted >= q->quorum)
        ballot_won(ballot);
    size_t possible = 0, hopeful = 0, agreed = 0;
    for (size_t i = 0; i < q->node_count; i++) {
        bool agrees = ballot->raising ? ballot->counted[i] && ballot->tokens[i] == ballot->token
                                      : ballot->tokens[i] > 0;
        bool may = round->errands[i].in_flight && (!ballot->raising || ballot->counted[i]);
        agreed += agrees && !may;
        possible += agrees || may;
        hopeful += agrees || (may && !*q->nodes[i].why);
    }
    if (ballot->twice || time_is_up || possible < q->quorum || gives_way(ballot, hopeful)) {
        ballot_lost(ballot, time_is_up);
    } else if (ballot->raising && agreed >= q->quorum) {
        struct store_op *op = round_decided(round);
        waiting_forget(q, op);
        q->crowd -= q->crowd > 0;
        q->ballot_us += (now_us(q) - ballot->asked_us - q->ballot_us) / 8;
        op->token = ballot->token;
        store_complete(q->host, op, STORE_DONE);
    }
}

static struct ballot *ballot_new(struct quorum *q, struct store_op *op) {
    size_t name_size = strlen(op->name) + 1, label_size = op->label ? strlen(op->label) + 1 : 0;
    struct ballot *ballot = round_new(q, op, sizeof(*ballot) + name_size + label_size);
    if (!ballot)
        return NULL;
    memcpy(ballot->text, op->name, name_size);
    if (op->label)
        memcpy(ballot->text + name_size, op->label, label_size);
    round_votes(&ballot->round, op->mark);
    ballot->asked_us = now_us(q);
    ballot->round.answered = ballot_answered;
    ballot->round.decide = ballot_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &ballot->round.errands[i].op;
        errand->type = STORE_ACQUIRE;
        errand->flags = STORE_VOTE;
        errand->kind = op->kind;
        errand->seq = op->mark;
        errand->name = ballot->text;
        errand->label = op->label ? ballot->text + name_size : NULL;
        errand->capacity = op->capacity;
        errand->weight = op->weight;
        errand->lease_us = op->lease_us;
        errand->floor = op->floor;
        errand->below = op->below;
    }
    return ballot;
}

static void quorum_acquire(struct quorum *q, struct store_op *op) {
    op->mark = op->seq << MARK_BITS | (++q->ballots & ((1u << MARK_BITS) - 1));
    struct ballot *ballot = ballot_new(q, op);
    if (!ballot) {
        op->mark = 0;
        waiting_forget(q, op);
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    waiting_note(q, op);
    round_ask_all(&ballot->round);
}

static void try_again(struct quorum *q) {
    int64_t now = now_us(q);
    list_each_safe(node, &q->tries) {
        struct store_op *op = container_of(node, struct store_op, link);
        if (op->left_us > now)
            continue;
        list_remove(&op->link);
        quorum_acquire(q, op);
    }
}

/* ---- Renew ----
 *
 * A hold may end while its renewal is in flight, and the nodes may look at it as long as that is: each renewal is of
 * a copy. A node that has lost its vote is asked for it again if nobody was there since, also when it is late; not
 * for a hold that has been let go meanwhile: that would be after its release. */

struct renewing {
    struct round round;
    struct list link; /* in the quorum's renewals */
    size_t count;
    struct store_op *holds;      /* copies */
    struct store_renewal *items; /* of all nodes, one behind the other */
    uint8_t *yes, *no;           /* of each hold */
    bool *renewed;               /* by a quorum, and not ended since */
    char text[];                 /* all of this, and the names and labels */
};

struct again {
    struct round round;
    char text[]; /* name, label */
};

static void taken_again(struct round *round, struct errand *errand) {
    if (errand->op.outcome == STORE_DONE)
        hear(errand);
    give_back_if_late(round, errand);
}

/* Takes a node's vote again for a hold that a quorum has, if nobody was there since: nobody waits for that. */
static void take_again(struct quorum *q, const struct store_op *hold, struct node *node) {
    size_t name_size = strlen(hold->name) + 1;
    size_t label_size = hold->label ? strlen(hold->label) + 1 : 0;
    struct again *again = round_new(q, NULL, sizeof(*again) + name_size + label_size);
    if (!again)
        return; /* the next renewal comes by here, too */
    memcpy(again->text, hold->name, name_size);
    if (hold->label)
        memcpy(again->text + name_size, hold->label, label_size);
    round_votes(&again->round, hold->seq);
    again->round.answered = taken_again;
    struct errand *errand = &again->round.errands[node->index];
    errand->op = *hold;
    list_init(&errand->op.link);
    errand->op.type = STORE_ACQUIRE;
    errand->op.flags = STORE_VOTE;
    errand->op.name = again->text;
    errand->op.label = hold->label ? again->text + name_size : NULL;
    errand->op.floor = errand->op.below = hold->token;
    round_ask(&again->round, errand);
}

/* A vote is missing there, or the word who the node is, without which its own does not count: voting brings both. */
static bool wants_vote(const struct errand *errand, size_t index) {
    return errand->op.outcome == STORE_DONE &&
           (errand->op.renewals[index].outcome == STORE_NOT_YOURS || !errand->node->heard);
}

static void renewing_answered(struct round *round, struct errand *errand) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    for (size_t i = 0; i < renewing->count; i++) {
        struct store_renewal *item = &errand->op.renewals[i];
        if (errand->op.outcome != STORE_DONE)
            item->outcome = errand->op.outcome;
        else if (item->outcome == STORE_DONE &&
                 (!is_another(round->quorum, errand->node) ||
                  is_above_token(errand->node, renewing->holds[i].seq)))
            item->outcome = STORE_UNKNOWN;
        renewing->yes[i] = (uint8_t)(renewing->yes[i] + (item->outcome == STORE_DONE));
        renewing->no[i] = (uint8_t)(renewing->no[i] + (item->outcome == STORE_NOT_YOURS));
        if (renewing->renewed[i] && wants_vote(errand, i))
            take_again(round->quorum, &renewing->holds[i], errand->node);
    }
}

static enum store_outcome outcome_of(const struct renewing *renewing, size_t index) {
    const struct quorum *q = renewing->round.quorum;
    return renewing->yes[index] >= q->quorum                 ? STORE_DONE
           : renewing->no[index] > q->node_count - q->quorum ? STORE_NOT_YOURS
                                                             : STORE_UNKNOWN;
}

static void renewed(struct renewing *renewing, size_t index) {
    struct round *round = &renewing->round;
    renewing->renewed[index] = true;
    for (size_t n = 0; n < round->quorum->node_count; n++) {
        struct errand *errand = &round->errands[n];
        if (!errand->in_flight && wants_vote(errand, index))
            take_again(round->quorum, &renewing->holds[index], errand->node);
    }
}

/* Nobody will let go of what is left of it. */
static void lost(struct renewing *renewing, size_t index) {
    forget_above(renewing->round.quorum, renewing->holds[index].seq);
    give_back(renewing->round.quorum, &renewing->holds[index], NULL);
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
    round_decided(round);
    for (size_t i = 0; i < op->renewal_count; i++) {
        op->renewals[i].outcome = outcome_of(renewing, i);
        if (op->renewals[i].of && op->renewals[i].outcome == STORE_DONE)
            renewed(renewing, i);
        else if (op->renewals[i].of && op->renewals[i].outcome == STORE_NOT_YOURS)
            lost(renewing, i);
    }
    if (unknown)
        op->text = round_explain(round, "too few nodes renewed it");
    store_complete(q->host, op, STORE_DONE);
}

static void renewing_clear(struct round *round) {
    list_remove(&container_of(round, struct renewing, round)->link);
}

static void end_renewals(struct quorum *q, uint64_t mark) {
    list_each(node, &q->renewals) {
        struct renewing *renewing = container_of(node, struct renewing, link);
        for (size_t i = 0; i < renewing->count; i++) {
            if (renewing->holds[i].seq == mark)
                renewing->renewed[i] = false;
        }
    }
}

static char *copy_text(char **at, const char *text) {
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

static size_t size_of_text(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

/* Everything in one piece: the largest of each comes first. */
static struct renewing *renewing_new(struct quorum *q, struct store_op *op) {
    size_t count = op->renewal_count;
    size_t of_holds = count * sizeof(struct store_op);
    size_t of_items = q->node_count * count * sizeof(struct store_renewal);
    size_t size = sizeof(struct renewing) + of_holds + of_items + 3 * count;
    for (size_t i = 0; i < count; i++) {
        const struct store_op *of = op->renewals[i].of;
        size += of ? size_of_text(of->name) + size_of_text(of->label) : 0;
    }
    struct renewing *renewing = round_new(q, op, size);
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
        renewing->holds[i] = (struct store_op){.kind = of->kind,
                                               .seq = of->mark,
                                               .name = copy_text(&text, of->name),
                                               .label = copy_text(&text, of->label),
                                               .capacity = of->capacity,
                                               .weight = of->weight,
                                               .lease_us = of->lease_us,
                                               .token = of->token};
    }
    list_append(&q->renewals, &renewing->link);
    return renewing;
}

static void quorum_renew(struct quorum *q, struct store_op *op) {
    struct renewing *renewing = renewing_new(q, op);
    if (!renewing) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    renewing->round.answered = renewing_answered;
    renewing->round.decide = renewing_decide;
    renewing->round.clear = renewing_clear;
    for (size_t n = 0; n < q->node_count; n++) {
        struct store_op *errand = &renewing->round.errands[n].op;
        errand->type = STORE_RENEW;
        errand->renewals = renewing->items + n * op->renewal_count;
        errand->renewal_count = op->renewal_count;
        for (size_t i = 0; i < op->renewal_count; i++)
            errand->renewals[i].of = op->renewals[i].of ? &renewing->holds[i] : NULL;
    }
    round_ask_all(&renewing->round);
}

/* ---- Break ---- */

struct breaking {
    struct round round;
    size_t yes, no;
    char text[];
};

static void breaking_answered(struct round *round, struct errand *errand) {
    struct breaking *breaking = container_of(round, struct breaking, round);
    breaking->yes += errand->op.outcome == STORE_DONE;
    breaking->no += errand->op.outcome == STORE_NOT_YOURS;
}

/* It is broken when what is left is no quorum any more. */
static void breaking_decide(struct round *round, bool time_is_up) {
    struct breaking *breaking = container_of(round, struct breaking, round);
    struct quorum *q = round->quorum;
    bool over = time_is_up || !round->in_flight;
    enum store_outcome outcome = breaking->yes > q->node_count - q->quorum ? STORE_DONE
                                 : breaking->no >= q->quorum               ? STORE_NOT_YOURS
                                 : over                                    ? STORE_UNKNOWN
                                                                           : 0;
    if (!outcome)
        return;
    struct store_op *op = round_decided(round);
    if (outcome == STORE_UNKNOWN)
        op->text = round_explain(round, "too few nodes broke it");
    store_complete(q->host, op, outcome);
}

static void quorum_break(struct quorum *q, struct store_op *op) {
    size_t name_size = strlen(op->name) + 1, label_size = op->label ? strlen(op->label) + 1 : 0;
    struct breaking *breaking = round_new(q, op, sizeof(*breaking) + name_size + label_size);
    if (!breaking) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    memcpy(breaking->text, op->name, name_size);
    if (op->label)
        memcpy(breaking->text + name_size, op->label, label_size);
    breaking->round.answered = breaking_answered;
    breaking->round.decide = breaking_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &breaking->round.errands[i].op;
        errand->type = STORE_BREAK;
        errand->flags = STORE_VOTE;
        errand->name = breaking->text;
        errand->label = op->label ? breaking->text + name_size : NULL;
        errand->token = op->token;
    }
    round_ask_all(&breaking->round);
}

/* ---- Time ---- */

void quorum_wake_by(struct quorum *q, int64_t at_us) {
    if (!q->timer.node.place || at_us < q->timer.node.at)
        world_timer_set(q->host->world, &q->timer, at_us);
}

static void timer_due(struct world_timer *timer) {
    struct quorum *q = container_of(timer, struct quorum, timer);
    int64_t now = now_us(q);
    quorum_begin(q);
    while (!list_empty(&q->rounds)) {
        struct round *round = container_of(q->rounds.next, struct round, link);
        if (round->decide_by_us > now)
            break;
        round->decide(round, true);
        assert(list_empty(&round->link) || round->decide_by_us > now);
        round_free_if_over(round);
    }
    retry_partings(q);
    try_again(q);
    quorum_finish(q);
    waiting_wake_due(q);
    if (!list_empty(&q->rounds))
        quorum_wake_by(q, container_of(q->rounds.next, struct round, link)->decide_by_us);
    list_each(node, &q->partings)
        quorum_wake_by(q, container_of(node, struct parting, waiting)->retry_at_us);
    list_each(node, &q->tries)
        quorum_wake_by(q, container_of(node, struct store_op, link)->left_us);
}

/* ---- The driver ---- */

static void quorum_submit(struct store *store, struct store_op *op) {
    static void (*const operations[])(struct quorum *, struct store_op *) = {
        [STORE_ACQUIRE] = quorum_acquire, [STORE_RENEW] = quorum_renew,
        [STORE_RELEASE] = quorum_release, [STORE_BREAK] = quorum_break,
        [STORE_INSPECT] = quorum_look,    [STORE_LIST] = quorum_look,
        [STORE_EXAMINE] = quorum_examine,
    };
    struct quorum *q = container_of(store, struct quorum, store);
    quorum_begin(q);
    operations[op->type](q, op);
    quorum_finish(q);
}

static void node_freed(struct store_host *host, const char *name) {
    struct node *node = container_of(host, struct node, host);
    waiting_freed(node->quorum, node, name);
}

/* A node was cut off, or told nothing for a while. */
static void node_wake(struct store_host *host, uint64_t seq) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    if (seq == STORE_ALL_WAITING)
        q->host->wake(q->host, seq);
}

void quorum_join(struct quorum *q, struct node *node) {
    node->host = *q->host;
    node->host.set = q->set;
    node->host.founds = q->founds;
    node->host.durable = q->durable;
    node->host.completed = quorum_completed;
    node->host.wake = node_wake;
    node->host.gone = quorum_gone;
    node->host.freed = node_freed;
}

int quorum_start(struct quorum *q) {
    list_init(&q->rounds);
    list_init(&q->partings);
    list_init(&q->tries);
    list_init(&q->answers);
    list_init(&q->renewals);
    map_init(&q->votes);
    map_init(&q->waiting);
    list_init(&q->woken);
    map_init(&q->going);
    int r = world_timer_add(q->host->world, &q->timer, timer_due);
    if (!r)
        world_bell_add(q->host->world, &q->bell, quorum_bell_rang);
    return r;
}

/* The nodes complete what is in flight; then every round is over, and nothing is asked any more. */
void quorum_end(struct quorum *q) {
    world_flush(q->host->world); /* releases */
    quorum_begin(q);
    for (size_t i = 0; i < q->node_count; i++) {
        if (q->nodes[i].store)
            q->nodes[i].store->driver->close(q->nodes[i].store);
    }
    q->ending = true;
    quorum_finish(q);
    assert(list_empty(&q->rounds) && list_empty(&q->renewals));
    while (!list_empty(&q->partings)) {
        struct parting *parting = container_of(q->partings.next, struct parting, waiting);
        stop_repeating(parting);
        round_free_if_over(&parting->round);
    }
    struct list *link;
    while ((link = list_pop(&q->tries)))
        store_refuse(q->host, container_of(link, struct store_op, link), HF_BUSY, NULL);
    waiting_forget_all(q);
    struct map_node *voting;
    while ((voting = map_first(&q->votes)))
        forget_above(q, container_of(voting, struct round, voting)->mark);
    map_free(&q->votes);
    world_bell_drop(&q->bell);
    world_timer_drop(q->host->world, &q->timer);
}

static void quorum_close(struct store *store) {
    struct quorum *q = container_of(store, struct quorum, store);
    quorum_end(q);
    free(q->set);
    free(q);
}

const struct store_driver store_quorum = {
    .abi = STORE_ABI,
    .info = {sizeof(hf_store_info), "quorum+redis",
             "a majority of independent Redis servers (Redlock)", "strict", 1, ""},
    .capabilities = STORE_CAN_RW | STORE_CAN_LOOK | STORE_CAN_EXAMINE,
    .lacks = "a majority of nodes cannot count them: any two share a node, and three need not",
    .open = quorum_open,
    .submit = quorum_submit,
    .close = quorum_close,
};
