/* Design notes.
 *
 * The clock was read before the engine put the operation out (asked_us); all nodes are asked at once, and the
 * decision falls as soon as a quorum granted or no longer can, so that a node that hangs costs nothing. Leases at
 * the nodes begin after that reading: what is left for the holder is lease - elapsed - drift, as for any store.
 *
 * Tokens. t is the largest token of the grants that are counted, which are those that were there when a quorum had
 * granted. Counted nodes below t are raised to it, each only if it still holds for this attempt. When a quorum of
 * counted nodes hold exactly t, the lock is held with t. A later grant is not counted: it may have a larger
 * token, and is kept as a spare. So of two successive holders, the later one counts a node that the earlier one
 * had counted, whose counter was at least t by then. The floor makes nodes agree at once, as a rule.
 *
 * Whatever fails is released on all nodes, also on those that did not answer: over the same connection, and so
 * after the request that it takes back; and again, until a node confirms or the lease must have ended. */
#include "store/quorum/quorum.h"

#include "base/error.h"
#include "store/drivers.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PARTING_RETRY_US = 250000, SPLIT_JITTER_US = 20000 };

static int64_t now_us(const struct quorum *q) {
    return world_now_us(q->host->world);
}

static void set_timer(struct quorum *q) {
    int64_t at_us = list_empty(&q->partings) ? WORLD_NEVER : now_us(q) + PARTING_RETRY_US;
    if (!list_empty(&q->rounds)) {
        int64_t first_us = container_of(q->rounds.next, struct round, link)->decide_by_us;
        at_us = first_us < at_us ? first_us : at_us;
    }
    if (at_us != WORLD_NEVER && (!q->timer.node.place || at_us < q->timer.node.at))
        world_timer_set(q->host->world, &q->timer, at_us);
}

/* ---- Rounds ---- */

void *round_new(struct quorum *q, struct store_op *op, size_t size) {
    size_t room = (size + 15) & ~(size_t)15;
    struct round *round = calloc(1, room + q->node_count * sizeof(struct errand));
    if (!round)
        return NULL;
    round->quorum = q;
    round->op = op;
    round->decide_by_us = now_us(q) + q->node_timeout_us;
    round->errands = (struct errand *)((char *)round + room);
    for (size_t i = 0; i < q->node_count; i++) {
        round->errands[i].node = &q->nodes[i];
        round->errands[i].round = round;
        list_init(&round->errands[i].op.link);
    }
    list_init(&round->link);
    return round;
}

/* (A parting that waits to be repeated is kept by being in that list.) */
static bool is_kept(const struct round *round) {
    return round->kept && round->kept(round);
}

static void free_if_over(struct round *round) {
    if (round->in_flight || round->op || !list_empty(&round->link) || is_kept(round))
        return;
    if (round->free)
        round->free(round);
    free(round);
}

void round_ask(struct round *round, struct errand *errand) {
    struct node *node = errand->node;
    assert(!errand->in_flight);
    errand->in_flight = true;
    round->in_flight++;
    free(errand->op.text);
    errand->op.text = NULL;
    errand->op.reason = 0;
    errand->op.outcome = 0;
    if (round->quorum->ending)
        store_complete(&node->host, &errand->op, STORE_UNKNOWN); /* there are no nodes any more */
    else
        node->store->driver->submit(node->store, &errand->op);
}

/* By the time at which it must be decided, which as a rule is last. */
static void await(struct round *round) {
    struct quorum *q = round->quorum;
    list_remove(&round->link);
    struct list *after = q->rounds.prev;
    while (after != &q->rounds &&
           container_of(after, struct round, link)->decide_by_us > round->decide_by_us)
        after = after->prev;
    list_insert_before(after->next, &round->link);
    set_timer(q);
}

/* An answer may come while the question is still being put to others: the round is kept until that is done. */
void round_ask_all(struct round *round) {
    struct quorum *q = round->quorum;
    round->in_flight++;
    await(round);
    for (size_t i = 0; i < q->node_count; i++)
        round_ask(round, &round->errands[i]);
    round->in_flight--;
    free_if_over(round);
}

void round_decided(struct round *round) {
    round->op = NULL;
    list_remove(&round->link);
}

/* A node may say this from within its `submit`, in which it must not be asked something else: answers are worked
 * off when whoever is asking has asked, or else when the bell is heard. */
static void node_completed(struct store_host *host, struct store_op *op) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    list_append(&q->answers, &op->link);
    if (!q->busy)
        world_bell_ring(&q->bell);
}

static void take_answers(struct quorum *q) {
    struct list *first;
    while ((first = list_pop(&q->answers))) {
        struct errand *errand = container_of(first, struct errand, op.link);
        struct round *round = errand->round;
        errand->in_flight = false; /* (and the round's count stays while the answer is looked at) */
        round->answered(round, errand);
        if (!list_empty(&round->link))
            round->decide(round, false);
        round->in_flight--;
        free_if_over(round);
    }
}

/* Around everything that asks. */
static void begin(struct quorum *q) {
    q->busy = true;
}

static void finish(struct quorum *q) {
    take_answers(q);
    q->busy = false;
}

static void bell_rang(struct world_bell *bell) {
    struct quorum *q = container_of(bell, struct quorum, bell);
    begin(q);
    finish(q);
}

/* ---- Who waits ---- */

struct waiting {
    struct map_node node;
    uint64_t seq;
};

static uint64_t hash_of(const char *name) {
    return map_hash(name, strlen(name), 0);
}

/* Without memory nobody is noted: who waits asks again by itself. */
static void note_waiting(struct quorum *q, const struct store_op *op) {
    struct waiting *waiting = malloc(sizeof(*waiting));
    if (!waiting)
        return;
    waiting->seq = op->seq;
    map_add(&q->waiting, &waiting->node, hash_of(op->name));
}

static void forget_waiting(struct quorum *q, const struct store_op *op) {
    for (struct map_node *node = map_find(&q->waiting, hash_of(op->name)), *next; node; node = next) {
        next = map_find_next(node);
        struct waiting *waiting = container_of(node, struct waiting, node);
        if (waiting->seq == op->seq) {
            map_remove(&q->waiting, node);
            free(waiting);
        }
    }
}

/* A node says that somebody let it go. The first to say so wakes: they go, and come back when refused again. */
static void node_freed(struct store_host *host, const char *name) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    for (struct map_node *node = map_find(&q->waiting, hash_of(name)), *next; node; node = next) {
        next = map_find_next(node);
        struct waiting *waiting = container_of(node, struct waiting, node);
        map_remove(&q->waiting, node);
        q->host->wake(q->host, waiting->seq);
        free(waiting);
    }
}

/* A node was cut off, or told nothing for a while. */
static void node_wake(struct store_host *host, uint64_t seq) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    q->host->wake(q->host, seq);
}

/* One node's word that a hold ended there is not the set's: the next renewal counts. */
static void node_gone(struct store_host *host, uint64_t seq) {
    (void)host;
    (void)seq;
}

/* ---- Parting: releases that must reach every node ---- */

struct parting {
    struct round round;
    struct list waiting; /* in the quorum's partings, while a node has not confirmed */
    int64_t until_us;    /* by when the nodes have forgotten by themselves */
    size_t yes, no;
    char name[];
};

static bool is_confirmed(const struct errand *errand) {
    return errand->op.outcome == STORE_DONE || errand->op.outcome == STORE_NOT_YOURS;
}

static void parting_answered(struct round *round, struct errand *errand) {
    struct parting *parting = container_of(round, struct parting, round);
    struct quorum *q = round->quorum;
    parting->yes += errand->op.outcome == STORE_DONE;
    parting->no += errand->op.outcome == STORE_NOT_YOURS;
    if (parting->yes + parting->no == q->node_count || now_us(q) >= parting->until_us)
        list_remove(&parting->waiting);
    else if (!is_confirmed(errand) && list_empty(&parting->waiting))
        list_append(&q->partings, &parting->waiting);
    set_timer(q);
}

static void parting_decide(struct round *round, bool time_is_up) {
    struct parting *parting = container_of(round, struct parting, round);
    struct quorum *q = round->quorum;
    bool nothing_left = round->in_flight <= 1; /* the one that is being looked at */
    enum store_outcome outcome = 0;
    if (parting->yes >= q->quorum)
        outcome = STORE_DONE;
    else if (parting->no > q->node_count - q->quorum)
        outcome = STORE_NOT_YOURS; /* it had no quorum any more */
    else if (time_is_up || nothing_left)
        outcome = STORE_UNKNOWN;
    if (!outcome)
        return;
    struct store_op *op = round->op;
    round_decided(round);
    if (op)
        store_complete(q->host, op, outcome);
}

static bool parting_kept(const struct round *round) {
    return !list_empty(&container_of(round, struct parting, round)->waiting);
}

static void parting_free(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++)
        free(round->errands[i].op.text);
}

/* Releases what `of` has or may have, on all nodes; `op` is completed by it, if there is one. False: no memory. */
static bool part(struct quorum *q, const struct store_op *of, struct store_op *op) {
    size_t name_size = strlen(of->name) + 1;
    struct parting *parting = round_new(q, op, sizeof(*parting) + name_size);
    if (!parting)
        return false;
    memcpy(parting->name, of->name, name_size);
    list_init(&parting->waiting);
    parting->until_us = now_us(q) + of->lease_us + q->node_timeout_us;
    parting->round.answered = parting_answered;
    parting->round.decide = parting_decide;
    parting->round.kept = parting_kept;
    parting->round.free = parting_free;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &parting->round.errands[i].op;
        errand->type = STORE_RELEASE;
        errand->flags = STORE_VOTE;
        errand->kind = of->kind;
        errand->capacity = of->capacity;
        errand->weight = of->weight;
        errand->seq = of->seq;
        errand->name = parting->name;
        errand->lease_us = of->lease_us;
    }
    round_ask_all(&parting->round);
    return true;
}

/* Asks the nodes again that have not confirmed; what must have ended by itself is given up. */
static void retry_partings(struct quorum *q) {
    struct list now;
    list_move(&q->partings, &now);
    struct list *node;
    while ((node = list_pop(&now))) {
        struct parting *parting = container_of(node, struct parting, waiting);
        struct round *round = &parting->round;
        bool over = now_us(q) >= parting->until_us;
        round->in_flight++;
        for (size_t i = 0; i < q->node_count && !over; i++) {
            struct errand *errand = &round->errands[i];
            if (!errand->in_flight && !is_confirmed(errand))
                round_ask(round, errand);
        }
        round->in_flight--;
        free_if_over(round); /* else an answer that confirms nothing puts it back into the list */
    }
}

static void quorum_release(struct quorum *q, struct store_op *op) {
    forget_waiting(q, op);
    if (!part(q, op, op))
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
}

/* ---- Acquire ---- */

struct ballot {
    struct round round;
    bool counted[QUORUM_NODES_MAX]; /* granted when there was a quorum: these are raised to `token` */
    uint64_t tokens[QUORUM_NODES_MAX]; /* 0: not granted */
    bool raising;
    uint64_t token;
    size_t granted, busy;
    int64_t left_us; /* of those who have it */
    bool foreign;
    uint64_t floor;
    char *why; /* the last failure of a node, for people */
    int reason;
    size_t label_at;
    char text[]; /* name, label */
};

static void note_failure(struct ballot *ballot, struct errand *errand) {
    struct store_op *op = &errand->op;
    bool busy = op->outcome == STORE_REFUSED && op->reason == HF_BUSY;
    ballot->busy += busy;
    if (busy) {
        ballot->foreign |= op->flags & STORE_FOREIGN;
        if (op->left_us > ballot->left_us)
            ballot->left_us = op->left_us;
        return;
    }
    free(ballot->why);
    ballot->reason = op->outcome == STORE_REFUSED ? op->reason : HF_UNKNOWN;
    ballot->why = error_format("%s: %s%s%s", errand->node->name,
                               hf_error_string(ballot->reason), op->text ? ": " : "",
                               op->text ? op->text : "");
}

/* The same server under two names would have two votes. */
static bool is_listed_twice(struct quorum *q, struct errand *errand) {
    struct node *node = errand->node;
    node->number = errand->op.left_us;
    for (size_t i = 0; i < q->node_count && node->number; i++) {
        if (&q->nodes[i] != node && q->nodes[i].number == node->number)
            return true;
    }
    return false;
}

static void ballot_answered(struct round *round, struct errand *errand) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    size_t index = errand->node->index;
    if (errand->op.outcome != STORE_DONE) {
        if (ballot->tokens[index])
            ballot->granted--; /* it could not be raised */
        ballot->tokens[index] = 0;
        ballot->counted[index] = false;
        note_failure(ballot, errand);
        return;
    }
    if (is_listed_twice(round->quorum, errand)) {
        ballot->reason = HF_BAD_URL;
        free(ballot->why);
        ballot->why = error_format("%s is the same server as another of the set", errand->node->name);
        return;
    }
    ballot->granted += !ballot->tokens[index];
    ballot->tokens[index] = errand->op.token;
}

static void ballot_free(struct round *round) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    free(ballot->why);
    for (size_t i = 0; i < round->quorum->node_count; i++)
        free(round->errands[i].op.text);
}

static uint64_t random_below(struct quorum *q, uint64_t limit) {
    uint32_t random;
    world_random(q->host->world, &random, sizeof(random));
    return random % limit;
}

/* No quorum. What was granted is given back at once, so that others may get theirs; who waits comes again: soon
 * and at a time of its own if the votes were split, else when the holder must have ended or lets go. */
static void ballot_lost(struct ballot *ballot) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    bool held_by_others = ballot->granted + ballot->busy >= q->quorum && ballot->busy > 0;
    bool split = ballot->granted > 0;
    char *why = ballot->why;
    round_decided(round);
    part(q, op, NULL);
    if (ballot->reason == HF_BAD_URL || ballot->reason == HF_WRONG_KIND || ballot->reason == HF_CLOCK ||
        ballot->reason == HF_BAD_STORE || !held_by_others) {
        ballot->why = NULL;
        store_refuse(q->host, op, ballot->reason == HF_UNKNOWN ? HF_UNREACHABLE : ballot->reason, why);
        return;
    }
    op->flags |= ballot->foreign ? STORE_FOREIGN : 0;
    op->left_us = ballot->left_us;
    if (!(op->flags & STORE_WAIT)) {
        store_refuse(q->host, op, HF_BUSY, NULL);
        return;
    }
    if (split)
        op->left_us = (int64_t)random_below(q, SPLIT_JITTER_US);
    op->flags |= STORE_HEAD; /* there is no queue */
    note_waiting(q, op);
    store_complete(q->host, op, STORE_QUEUED);
}

/* There is a quorum: its largest token is the lock's, and those below are raised. */
static void ballot_won(struct ballot *ballot) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    ballot->raising = true;
    for (size_t i = 0; i < q->node_count; i++) {
        ballot->counted[i] = ballot->tokens[i] > 0;
        if (ballot->counted[i] && ballot->tokens[i] > ballot->token)
            ballot->token = ballot->tokens[i];
    }
    round->decide_by_us = now_us(q) + q->node_timeout_us;
    await(round);
    for (size_t i = 0; i < q->node_count; i++) {
        struct errand *errand = &round->errands[i];
        if (!ballot->counted[i] || ballot->tokens[i] == ballot->token || errand->in_flight)
            continue;
        errand->op.floor = ballot->token;
        errand->op.flags = STORE_VOTE | STORE_MINE;
        round_ask(round, errand);
    }
}

static void ballot_decide(struct round *round, bool time_is_up) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    struct quorum *q = round->quorum;
    size_t pending = 0, agreed = 0;
    if (ballot->reason == HF_BAD_URL)
        time_is_up = true;
    else if (!ballot->raising && ballot->granted >= q->quorum)
        ballot_won(ballot);
    if (list_empty(&round->link))
        return; /* an answer that came within ballot_won decided it */
    for (size_t i = 0; i < q->node_count; i++) {
        bool counts = !ballot->raising || ballot->counted[i];
        agreed += ballot->raising && counts && ballot->tokens[i] == ballot->token;
        pending += counts && round->errands[i].in_flight;
    }
    if (agreed >= q->quorum) {
        struct store_op *op = round->op;
        round_decided(round);
        forget_waiting(q, op);
        op->token = ballot->token;
        store_complete(q->host, op, STORE_DONE);
    } else if (time_is_up || (ballot->raising ? agreed : ballot->granted) + pending < q->quorum) {
        ballot_lost(ballot);
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
    ballot->reason = HF_UNREACHABLE;
    ballot->round.answered = ballot_answered;
    ballot->round.decide = ballot_decide;
    ballot->round.free = ballot_free;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &ballot->round.errands[i].op;
        errand->type = STORE_ACQUIRE;
        errand->flags = STORE_VOTE;
        errand->kind = op->kind;
        errand->seq = op->seq;
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
    forget_waiting(q, op);
    struct ballot *ballot = ballot_new(q, op);
    if (ballot)
        round_ask_all(&ballot->round);
    else
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
}

/* ---- Renew ---- */

struct renewing {
    struct round round;
    struct store_renewal *items; /* of all nodes, one behind the other */
    uint8_t *yes, *no;           /* of each hold */
};

/* Takes a node's vote again for a hold that a quorum has, if nobody was there since: nobody waits for that. */
static void take_again(struct quorum *q, const struct store_op *of, struct node *node);

static void renewing_answered(struct round *round, struct errand *errand) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    for (size_t i = 0; i < errand->op.renewal_count; i++) {
        struct store_renewal *item = &errand->op.renewals[i];
        enum store_outcome outcome =
            errand->op.outcome == STORE_DONE ? item->outcome : (enum store_outcome)errand->op.outcome;
        renewing->yes[i] = (uint8_t)(renewing->yes[i] + (outcome == STORE_DONE));
        renewing->no[i] = (uint8_t)(renewing->no[i] + (outcome == STORE_NOT_YOURS));
        item->outcome = outcome;
    }
}

static enum store_outcome outcome_of(const struct renewing *renewing, size_t index) {
    const struct quorum *q = renewing->round.quorum;
    return renewing->yes[index] >= q->quorum                    ? STORE_DONE
           : renewing->no[index] > q->node_count - q->quorum ? STORE_NOT_YOURS
                                                              : STORE_UNKNOWN;
}

static void renewing_decide(struct round *round, bool time_is_up) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    bool all = time_is_up || round->in_flight <= 1;
    for (size_t i = 0; i < op->renewal_count && !all; i++) {
        if (op->renewals[i].of && outcome_of(renewing, i) == STORE_UNKNOWN)
            return;
    }
    for (size_t i = 0; i < op->renewal_count; i++) {
        op->renewals[i].outcome = outcome_of(renewing, i);
        const struct store_op *of = op->renewals[i].of;
        for (size_t n = 0; of && op->renewals[i].outcome == STORE_DONE && n < q->node_count; n++) {
            if (round->errands[n].op.renewals[i].outcome == STORE_NOT_YOURS)
                take_again(q, of, &q->nodes[n]);
        }
    }
    round_decided(round);
    store_complete(q->host, op, STORE_DONE);
}

static void renewing_free(struct round *round) {
    struct renewing *renewing = container_of(round, struct renewing, round);
    for (size_t i = 0; i < round->quorum->node_count; i++)
        free(round->errands[i].op.text);
    free(renewing->items);
    free(renewing->yes);
}

static void quorum_renew(struct quorum *q, struct store_op *op) {
    struct renewing *renewing = round_new(q, op, sizeof(*renewing));
    if (renewing) {
        renewing->items = calloc(q->node_count * op->renewal_count + 1, sizeof(struct store_renewal));
        renewing->yes = calloc(op->renewal_count + 1, 2);
        renewing->no = renewing->yes ? renewing->yes + op->renewal_count : NULL;
    }
    if (!renewing || !renewing->items || !renewing->yes) {
        if (renewing) {
            free(renewing->items);
            free(renewing->yes);
            free(renewing);
        }
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    renewing->round.answered = renewing_answered;
    renewing->round.decide = renewing_decide;
    renewing->round.free = renewing_free;
    for (size_t n = 0; n < q->node_count; n++) {
        struct store_op *errand = &renewing->round.errands[n].op;
        errand->type = STORE_RENEW;
        errand->renewals = renewing->items + n * op->renewal_count;
        errand->renewal_count = op->renewal_count;
        for (size_t i = 0; i < op->renewal_count; i++)
            errand->renewals[i].of = op->renewals[i].of;
    }
    round_ask_all(&renewing->round);
}

/* ---- Taking again ---- */

struct again {
    struct round round;
    char name[];
};

static void ignore_answer(struct round *round, struct errand *errand) {
    (void)round;
    (void)errand;
}

static void ignore_time(struct round *round, bool time_is_up) {
    (void)time_is_up;
    round_decided(round);
}

static void again_free(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++)
        free(round->errands[i].op.text);
}

static void take_again(struct quorum *q, const struct store_op *of, struct node *node) {
    size_t name_size = strlen(of->name) + 1;
    struct again *again = round_new(q, NULL, sizeof(*again) + name_size);
    if (!again)
        return; /* the next renewal comes by here, too */
    memcpy(again->name, of->name, name_size);
    again->round.answered = ignore_answer;
    again->round.decide = ignore_time;
    again->round.free = again_free;
    struct errand *errand = &again->round.errands[node->index];
    errand->op.type = STORE_ACQUIRE;
    errand->op.flags = STORE_VOTE;
    errand->op.kind = of->kind;
    errand->op.seq = of->seq;
    errand->op.name = again->name;
    errand->op.capacity = of->capacity;
    errand->op.weight = of->weight;
    errand->op.lease_us = of->lease_us;
    errand->op.floor = errand->op.below = of->token;
    again->round.in_flight++;
    round_ask(&again->round, errand);
    again->round.in_flight--;
    free_if_over(&again->round);
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
    struct store_op *op = round->op;
    enum store_outcome outcome = 0;
    if (breaking->yes > q->node_count - q->quorum)
        outcome = STORE_DONE;
    else if (breaking->no >= q->quorum)
        outcome = STORE_NOT_YOURS;
    else if (time_is_up || round->in_flight <= 1)
        outcome = STORE_UNKNOWN;
    if (!outcome)
        return;
    round_decided(round);
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
    breaking->round.free = again_free;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &breaking->round.errands[i].op;
        errand->type = STORE_BREAK;
        errand->name = breaking->text;
        errand->label = op->label ? breaking->text + name_size : NULL;
        errand->token = op->token;
    }
    round_ask_all(&breaking->round);
}

/* ---- The driver ---- */

static void timer_due(struct world_timer *timer) {
    struct quorum *q = container_of(timer, struct quorum, timer);
    int64_t now = now_us(q);
    begin(q);
    while (!list_empty(&q->rounds)) {
        struct round *round = container_of(q->rounds.next, struct round, link);
        if (round->decide_by_us > now)
            break;
        round->in_flight++;
        round->decide(round, true);
        round->in_flight--;
        assert(list_empty(&round->link) || round->decide_by_us > now);
        free_if_over(round);
    }
    retry_partings(q);
    finish(q);
    set_timer(q);
}

static void quorum_submit(struct store *store, struct store_op *op) {
    static void (*const operations[])(struct quorum *, struct store_op *) = {
        [STORE_ACQUIRE] = quorum_acquire, [STORE_RENEW] = quorum_renew,
        [STORE_RELEASE] = quorum_release, [STORE_BREAK] = quorum_break,
        [STORE_INSPECT] = quorum_look,    [STORE_LIST] = quorum_look,
        [STORE_EXAMINE] = quorum_examine,
    };
    struct quorum *q = container_of(store, struct quorum, store);
    begin(q);
    operations[op->type](q, op);
    finish(q);
}

void quorum_join(struct quorum *q, struct node *node) {
    node->host = *q->host;
    node->host.set = q->set;
    node->host.founds = q->founds;
    node->host.completed = node_completed;
    node->host.wake = node_wake;
    node->host.gone = node_gone;
    node->host.freed = node_freed;
}

int quorum_start(struct quorum *q) {
    list_init(&q->rounds);
    list_init(&q->partings);
    list_init(&q->answers);
    map_init(&q->waiting);
    world_bell_add(q->host->world, &q->bell, bell_rang);
    return world_timer_add(q->host->world, &q->timer, timer_due);
}

/* The nodes complete what is in flight; then every round is over, if it is told that its time is up. */
void quorum_end(struct quorum *q) {
    q->ending = true;
    begin(q);
    for (size_t i = 0; i < q->node_count; i++) {
        if (q->nodes[i].store)
            q->nodes[i].store->driver->close(q->nodes[i].store);
    }
    finish(q);
    while (!list_empty(&q->rounds)) {
        struct round *round = container_of(q->rounds.next, struct round, link);
        round->in_flight++;
        if (round->op) {
            store_complete(q->host, round->op, STORE_UNKNOWN);
            round_decided(round);
        }
        list_remove(&round->link);
        round->in_flight--;
        free_if_over(round);
    }
    while (!list_empty(&q->partings)) {
        struct parting *parting = container_of(q->partings.next, struct parting, waiting);
        list_remove(&parting->waiting);
        free_if_over(&parting->round);
    }
    for (struct map_node *node = map_first(&q->waiting), *next; node; node = next) {
        next = map_after(&q->waiting, node);
        map_remove(&q->waiting, node);
        free(container_of(node, struct waiting, node));
    }
    map_free(&q->waiting);
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
    .info = {sizeof(hf_store_info), "quorum+redis", "a majority of independent Redis servers (Redlock)",
             "strict", 1, ""},
    .capabilities = STORE_CAN_RW | STORE_CAN_LOOK | STORE_CAN_EXAMINE,
    .open = quorum_open,
    .submit = quorum_submit,
    .close = quorum_close,
};
