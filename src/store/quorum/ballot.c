/* Ballots: acquiring.
 *
 * The engine read the clock before it submitted the operation. All nodes are asked at once, and the
 * ballot is decided as soon as a quorum has granted or no longer can, so a node that hangs costs
 * nothing. Leases at the nodes start after that reading: the holder has lease - elapsed - drift
 * left, as with any store.
 *
 * Each ballot has its own id at the nodes. So a release that takes a ballot back, and arrives late
 * or twice, never affects the next ballot of the same attempt.
 *
 * Tokens. Only the grants that had arrived when a quorum had granted are counted; t is the largest
 * of their tokens. Counted nodes below t are raised to it, each only if it still has the vote of
 * this ballot. When a quorum of counted nodes have exactly t, the lock is held with t. So of two
 * successive holders, the later one counts a node that the earlier one had counted, whose counter
 * was at least t by then. A grant that arrives later is not counted; if its token is above t, it is
 * given back. Usually the floor makes the nodes agree at once.
 *
 * A ballot that was lost completes when the nodes that had granted it have confirmed its release.
 * This release wakes nobody. After split votes the loser retries soon, after a random delay;
 * attempts that got no vote wait until a holder releases. */
#include "store/quorum/quorum.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CROWD_MOST = 6,
    TRIES = 5 /* then an attempt that does not wait gets HF_BUSY, although the votes were split */
};

struct ballot {
    struct round round;
    bool counted[QUORUM_NODES_MAX];    /* it had granted when there was a quorum */
    uint64_t tokens[QUORUM_NODES_MAX]; /* 0: not granted */
    int64_t left_us[QUORUM_NODES_MAX]; /* of the leases of others; sorted when it is lost */
    bool raising, foreign;
    int64_t asked_us;
    struct node *twice; /* it is the same server as another node */
    uint64_t token;
    size_t granted, busy;
    char text[]; /* name, label */
};

/* Somebody else has the vote, or had it before it could be raised. */
static bool is_taken(const struct store_op *op) {
    return op->outcome == STORE_REFUSED && (op->reason == HF_BUSY || op->reason == HF_NOT_YOURS);
}

static void note_refusal(struct ballot *ballot, const struct node_request *request) {
    const struct store_op *op = &request->op;
    struct quorum *q = ballot->round.quorum;
    if (ballot->round.op)
        quorum_attempt_refused(q, ballot->round.op->seq, request->node);
    ballot->foreign |= op->reason == HF_BUSY && op->flags & STORE_FOREIGN;
    ballot->left_us[ballot->busy++] = op->reason == HF_BUSY ? op->left_us : 0;
}

void quorum_on_reply(struct node_request *request) {
    request->node->node_id = request->vote.node_id;
    request->node->identified = true;
}

/* The same server under two names would have two votes. */
static bool is_listed_twice(const struct quorum *q, const struct node *node) {
    for (size_t i = 0; i < q->node_count && node->node_id; i++) {
        if (&q->nodes[i] != node && q->nodes[i].node_id == node->node_id)
            return true;
    }
    return false;
}

/* A hold may have been granted before a ballot noticed that two nodes are one server. */
bool quorum_is_distinct(const struct quorum *q, const struct node *node) {
    for (size_t i = 0; i < node->index && node->node_id; i++) {
        if (q->nodes[i].node_id == node->node_id)
            return false;
    }
    return node->identified;
}

/* A vote that arrived after the lock's token was chosen, with a larger token. Somebody may have
 * held the lock with a token in between, and renewals at this node would hide that from the current
 * holder. */
static bool is_above(const struct ballot *ballot, const struct node_request *request) {
    return ballot->raising && !ballot->counted[request->node->index] &&
           request->op.token > ballot->token;
}

static void ballot_answered(struct round *round, struct node_request *request) {
    struct ballot *ballot = container_of(round, struct ballot, round);
    size_t index = request->node->index;
    bool had = ballot->tokens[index] > 0;
    bool done = request->op.outcome == STORE_DONE;
    if (done)
        quorum_on_reply(request);
    if (done && is_above(ballot, request) && !round->over) {
        round->above |= 1u << index;
        round->kept = true; /* until the hold is over */
        quorum_give_back(round->quorum, &request->op, request->node);
        done = false;
    } else {
        quorum_give_back_if_late(round, request);
    }
    ballot->tokens[index] = done ? request->op.token : 0;
    ballot->granted = ballot->granted + done - had;
    if (done && is_listed_twice(round->quorum, request->node))
        ballot->twice = request->node;
    else if (is_taken(&request->op))
        note_refusal(ballot, request);
}

/* True if a node that worked before has fallen silent: it may come back while the attempt waits. (A
 * node that still has time is not silent. The ballot does not wait for it because its answer would
 * not matter.) A node that was skipped certainly has no vote of this ballot, although its outcome
 * is UNKNOWN; it is silent unless it failed the last time. If only its RAISE was skipped, it has
 * one. */
static bool is_silent(const struct ballot *ballot, bool time_is_up) {
    for (size_t i = 0; i < ballot->round.quorum->node_count; i++) {
        const struct node_request *request = &ballot->round.requests[i];
        bool was_asked = !request->skipped || ballot->counted[i];
        bool hangs = !was_asked || (request->in_flight && time_is_up);
        if ((was_asked && request->op.outcome == STORE_UNKNOWN) || (hangs && !*request->node->why))
            return true;
    }
    return false;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* How long until enough leases of others must have ended for a quorum to be possible. After split
 * votes: a short, random delay. */
static int64_t when_again_us(struct ballot *ballot) {
    struct quorum *q = ballot->round.quorum;
    size_t others = ballot->granted + ballot->round.in_flight; /* those may still grant it */
    size_t missing = others < q->quorum ? q->quorum - others : 1;
    qsort(ballot->left_us, ballot->busy, sizeof(ballot->left_us[0]), by_size);
    int64_t left_us = missing <= ballot->busy ? ballot->left_us[missing - 1] : 0;
    bool exceeds_max_lease = left_us > q->host->max_lease_us; /* a clock is wrong: reported */
    if ((!ballot->granted && !ballot->raising) || exceeds_max_lease)
        return left_us;
    q->crowd += q->crowd < CROWD_MOST;
    quorum_attempt_find(q, ballot->round.op->seq)->splits++;
    int64_t scatter_us = quorum_scatter_us(q);
    return scatter_us < left_us || ballot->raising ? scatter_us : left_us;
}

/* If several attempts have some votes each, perhaps nobody gets the lock, and "busy" would be wrong
 * for all of them. So an attempt that does not wait is repeated here, while there is time. */
static bool retries(const struct ballot *ballot, int64_t in_us) {
    const struct round *round = &ballot->round;
    struct quorum_attempt *attempt = quorum_attempt_find(round->quorum, round->op->seq);
    int64_t after_us = quorum_now_us(round->quorum) + in_us - attempt->since_us;
    if (!ballot->granted && !ballot->raising)
        return false;
    attempt->retry_in_us = in_us;
    return attempt->splits < TRIES && after_us < round->op->lease_us / 4;
}

/* True if it was lost because others have votes, and not only because nodes failed: the nodes that
 * did not fail are a quorum. A node that has not answered this time counts unless it failed the
 * last time. */
static bool is_contended(const struct ballot *ballot, bool time_is_up) {
    const struct quorum *q = ballot->round.quorum;
    size_t able = ballot->granted + ballot->busy;
    for (size_t i = 0; i < q->node_count && !time_is_up; i++)
        able += ballot->round.requests[i].in_flight && !*q->nodes[i].why;
    return ballot->busy && able >= q->quorum;
}

/* The outcome of a ballot that was lost. */
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
        bool again = waits || retries(ballot, op->left_us);
        op->flags |= (uint8_t)((ballot->foreign ? STORE_FOREIGN : 0) | (waits ? STORE_HEAD : 0));
        op->reason = again ? 0 : HF_BUSY;
        return again ? STORE_QUEUED : STORE_REFUSED; /* (without a queue, each is its head) */
    }
    char words[80];
    snprintf(words, sizeof(words), "%zu of %zu nodes granted it, and %zu are needed",
             ballot->granted, q->node_count, q->quorum);
    op->text = quorum_round_explain(round, words);
    op->reason = quorum_round_reason(round, 1);
    bool may_come_back = op->reason == HF_UNREACHABLE && is_silent(ballot, time_is_up);
    return waits && may_come_back ? STORE_UNKNOWN : STORE_REFUSED;
}

/* True: the node certainly has no vote of this ballot. */
static bool has_only_refused(const struct ballot *ballot, size_t index) {
    const struct node_request *request = &ballot->round.requests[index];
    return !request->in_flight && request->op.outcome == STORE_REFUSED && !ballot->counted[index];
}

/* No quorum. The votes are given back at once, so that others may get them. */
static void ballot_lost(struct ballot *ballot, bool time_is_up) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    enum store_outcome result = ballot_result(ballot, time_is_up);
    struct store_op *op = quorum_round_decided(round);
    uint32_t granted = 0, refused = 0;
    round->over = true;
    round->kept = false;
    for (size_t i = 0; i < q->node_count; i++) {
        granted |= ballot->tokens[i] ? 1u << i : 0;
        refused |= has_only_refused(ballot, i) ? 1u << i : 0;
    }
    if (!quorum_take_back(q, op, result, granted, refused)) { /* the client must release it */
        op->reason = HF_NO_MEMORY;
        store_complete(q->host, op, STORE_UNKNOWN);
    }
}

/* There is a quorum: the largest token is the lock's, and the others are raised to it. */
static void ballot_won(struct ballot *ballot) {
    struct round *round = &ballot->round;
    struct quorum *q = round->quorum;
    ballot->raising = true;
    for (size_t i = 0; i < q->node_count; i++) {
        ballot->counted[i] = ballot->tokens[i] > 0;
        if (ballot->tokens[i] > ballot->token)
            ballot->token = ballot->tokens[i];
    }
    quorum_round_await(round, q->node_timeout_us);
    for (size_t i = 0; i < q->node_count; i++) {
        struct node_request *request = &round->requests[i];
        if (!ballot->counted[i] || ballot->tokens[i] == ballot->token)
            continue;
        request->vote.type = STORE_RAISE;
        request->vote.token = ballot->token;
        request->op.flags = 0;
        quorum_round_ask(round, request);
    }
}

/* True if others have votes that this ballot needs, unless nodes vote now that did not vote the
 * last time. It then gives way at once, because the others may need the votes that it has. */
static bool gives_way(const struct ballot *ballot, size_t hopeful) {
    size_t quorum = ballot->round.quorum->quorum;
    return ballot->busy && hopeful < quorum && hopeful + ballot->busy >= quorum;
}

/* The shortest lease of the nodes that granted it with the lock's token: until it ends, a quorum
 * has the lock. */
static int64_t shortest_lease_us(const struct ballot *ballot) {
    int64_t shortest_us = INT64_MAX;
    for (size_t i = 0; i < ballot->round.quorum->node_count; i++) {
        const struct node_request *request = &ballot->round.requests[i];
        bool agrees = ballot->counted[i] && ballot->tokens[i] == ballot->token;
        if (agrees && !request->in_flight && request->op.lease_us < shortest_us)
            shortest_us = request->op.lease_us;
    }
    return shortest_us;
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
        bool may = round->requests[i].in_flight && (!ballot->raising || ballot->counted[i]);
        agreed += agrees && !may;
        possible += agrees || may;
        hopeful += agrees || (may && !*q->nodes[i].why);
    }
    if (ballot->twice || time_is_up || possible < q->quorum || gives_way(ballot, hopeful)) {
        ballot_lost(ballot, time_is_up);
    } else if (ballot->raising && agreed >= q->quorum) {
        struct store_op *op = quorum_round_decided(round);
        quorum_attempt_stop_asking(q, quorum_attempt_find(q, op->seq));
        q->crowd -= q->crowd > 0;
        q->ballot_us += (quorum_now_us(q) - ballot->asked_us - q->ballot_us) / 8;
        op->token = ballot->token;
        op->owner_seq = round->ballot_id;
        op->lease_us = shortest_lease_us(ballot);
        store_complete(q->host, op, STORE_DONE);
    }
}

static struct ballot *ballot_new(struct quorum *q, struct store_op *op, uint64_t ballot_id) {
    size_t texts = quorum_text_size(op->name) + quorum_text_size(op->label);
    struct ballot *ballot = quorum_round_new(q, op, sizeof(*ballot) + texts);
    if (!ballot)
        return NULL;
    char *text = ballot->text;
    const char *name = quorum_copy_text(&text, op->name);
    const char *label = quorum_copy_text(&text, op->label);
    quorum_round_votes(&ballot->round, ballot_id);
    ballot->asked_us = quorum_now_us(q);
    ballot->round.answered = ballot_answered;
    ballot->round.decide = ballot_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *request = &ballot->round.requests[i].op;
        request->type = STORE_ACQUIRE;
        request->kind = op->kind;
        request->seq = ballot_id;
        request->name = name;
        request->label = label;
        request->capacity = op->capacity;
        request->weight = op->weight;
        request->lease_us = op->lease_us;
        request->floor = op->floor;
    }
    return ballot;
}

void quorum_acquire(struct quorum *q, struct store_op *op) {
    struct quorum_attempt *attempt = quorum_attempt_ask(q, op);
    struct ballot *ballot = attempt ? ballot_new(q, op, attempt->ballot_id) : NULL;
    if (!ballot) {
        quorum_attempt_end(q, attempt);
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    quorum_round_ask_all(&ballot->round);
}

void quorum_retry_later(struct quorum *q, struct store_op *op) {
    struct quorum_attempt *attempt = quorum_attempt_find(q, op->seq);
    attempt->op = op;
    attempt->retry_at_us = quorum_now_us(q) + attempt->retry_in_us;
    list_append(&q->retries, &attempt->retry);
    quorum_wake_by(q, attempt->retry_at_us);
}

void quorum_retry_ballots(struct quorum *q) {
    int64_t now_us = quorum_now_us(q);
    list_each_safe(link, &q->retries) {
        struct quorum_attempt *attempt = container_of(link, struct quorum_attempt, retry);
        if (attempt->retry_at_us > now_us)
            continue;
        list_remove(&attempt->retry);
        quorum_acquire(q, attempt->op);
    }
}
