/* Attempts: what the set knows about each, from its first ballot until it has nothing at the nodes;
 * which of them wait; and which holds were ended at nodes by others.
 *
 * When a lock becomes free, that is announced to all waiting clients. If they all asked at once,
 * they would split its votes again and again. So each asks after a random delay, from a range that
 * doubles with each split vote and halves with each ballot that is won. If two contend, the range
 * is next to nothing; if many do, the first has its votes before the second asks.
 *
 * The engine repeats a release until it is confirmed or every lease must have ended. It does not
 * report when it gives up, so an attempt whose release nobody confirmed is forgotten after that
 * time. */
#include "store/quorum/quorum.h"

#include <stdlib.h>
#include <string.h>

enum {
    BALLOT_LEAST_US = 500,
    SCATTER_MOST_US = 640000,
};

int64_t quorum_scatter_us(struct quorum *q) {
    int64_t most_us = (q->ballot_us > BALLOT_LEAST_US ? q->ballot_us : BALLOT_LEAST_US) << q->crowd;
    if (most_us > SCATTER_MOST_US)
        most_us = SCATTER_MOST_US;
    uint32_t random;
    world_random(q->host->world, &random, sizeof(random));
    return random % most_us;
}

static uint64_t hash_of(const char *name) {
    return map_hash(name, strlen(name), 0);
}

struct quorum_attempt *quorum_attempt_find(struct quorum *q, uint64_t seq) {
    struct map_node *entry = map_find(&q->attempts, map_hash_number(seq)); /* a bijection */
    return entry ? container_of(entry, struct quorum_attempt, by_seq) : NULL;
}

static struct quorum_attempt *attempt_new(struct quorum *q, uint64_t seq) {
    struct quorum_attempt *attempt = calloc(1, sizeof(*attempt));
    if (!attempt)
        return NULL;
    attempt->seq = seq;
    attempt->since_us = quorum_now_us(q);
    list_init(&attempt->woken);
    list_init(&attempt->released);
    list_init(&attempt->retry);
    map_add(&q->attempts, &attempt->by_seq, map_hash_number(seq));
    return attempt;
}

struct quorum_attempt *quorum_attempt_ask(struct quorum *q, const struct store_op *op) {
    struct quorum_attempt *attempt = quorum_attempt_find(q, op->seq);
    if (!attempt && !(attempt = attempt_new(q, op->seq)))
        return NULL;
    if (!attempt->asks)
        map_add(&q->asking, &attempt->by_name, hash_of(op->name));
    list_remove(&attempt->woken);
    attempt->asks = true;
    attempt->waits = op->flags & STORE_WAIT;
    attempt->shares = op->weight < op->capacity;
    attempt->refused = attempt->freed = 0;
    attempt->ballot_id = op->seq << BALLOT_BITS | (++q->ballots & ((1u << BALLOT_BITS) - 1));
    return attempt;
}

void quorum_attempt_stop_asking(struct quorum *q, struct quorum_attempt *attempt) {
    if (attempt->asks)
        map_remove(&q->asking, &attempt->by_name);
    list_remove(&attempt->woken);
    attempt->asks = false;
}

void quorum_attempt_end(struct quorum *q, struct quorum_attempt *attempt) {
    if (!attempt)
        return;
    quorum_attempt_stop_asking(q, attempt);
    list_remove(&attempt->released);
    list_remove(&attempt->retry);
    map_remove(&q->attempts, &attempt->by_seq);
    free(attempt);
}

void quorum_attempt_released(struct quorum *q, struct quorum_attempt *attempt) {
    int64_t now_us = quorum_now_us(q), kept_us = 2 * q->host->max_lease_us + q->host->wait_lease_us;
    quorum_attempt_stop_asking(q, attempt);
    if (list_empty(&attempt->released)) {
        attempt->released_us = now_us;
        list_append(&q->released, &attempt->released);
    }
    struct quorum_attempt *first;
    while ((first = container_of(q->released.next, struct quorum_attempt, released)) != attempt &&
           now_us - first->released_us > kept_us)
        quorum_attempt_end(q, first);
}

static void wake(struct quorum *q, struct quorum_attempt *attempt) {
    list_remove(&attempt->woken);
    attempt->refused = 0;
    q->host->wake(q->host, attempt->seq);
}

static void wake_later(struct quorum *q, struct quorum_attempt *attempt) {
    attempt->refused = 0;
    if (!list_empty(&attempt->woken))
        return;
    attempt->wake_at_us = quorum_now_us(q) + quorum_scatter_us(q);
    list_append(&q->woken, &attempt->woken);
    quorum_wake_by(q, attempt->wake_at_us);
}

void quorum_wake_due(struct quorum *q) {
    int64_t now_us = quorum_now_us(q);
    list_each_safe(link, &q->woken) {
        struct quorum_attempt *attempt = container_of(link, struct quorum_attempt, woken);
        if (attempt->wake_at_us <= now_us)
            wake(q, attempt);
        else
            quorum_wake_by(q, attempt->wake_at_us);
    }
}

/* The announcement may have arrived before the refusal, because a node has two connections; or it
 * is of the release for which this attempt was woken already. */
void quorum_attempt_refused(struct quorum *q, uint64_t seq, const struct node *by) {
    struct quorum_attempt *attempt = quorum_attempt_find(q, seq);
    uint32_t bit = 1u << by->index;
    if (attempt && attempt->waits && attempt->freed & bit)
        wake_later(q, attempt);
    else if (attempt)
        attempt->refused |= bit;
}

/* The next attempt that a node's announcement wakes: the first, or one that shares with it. (Names
 * with the same hash are treated as one.) */
static struct quorum_attempt *first_refused(struct quorum *q, const struct node *by,
                                            const char *name, bool shares) {
    struct quorum_attempt *first = NULL;
    for (struct map_node *entry = map_find(&q->asking, hash_of(name)); entry;
         entry = map_find_next(entry)) {
        struct quorum_attempt *attempt = container_of(entry, struct quorum_attempt, by_name);
        if (!attempt->waits)
            continue;
        if (!(attempt->refused & 1u << by->index))
            attempt->freed |= 1u << by->index;
        else if ((attempt->shares || !shares) && (!first || attempt->seq < first->seq))
            first = attempt;
    }
    return first;
}

/* The attempts after the first are not woken with it, since they would be refused at once. Other
 * nodes will announce the same release, which is enough for them. */
void quorum_attempts_freed(struct quorum *q, const struct node *node, const char *name) {
    struct quorum_attempt *first = first_refused(q, node, name, false);
    bool shares = first && first->shares;
    void (*const call)(struct quorum *, struct quorum_attempt *) = q->crowd > 1 ? wake_later : wake;
    if (first)
        call(q, first);
    while (shares && (first = first_refused(q, node, name, true)))
        call(q, first);
}

/* ---- Holds that were ended ---- */

enum { ENDED_MAX = 1024 };

struct ended_hold {
    struct map_node by_ballot;
    uint64_t ballot_id;
    uint32_t nodes; /* that reported it */
};

static struct ended_hold *find_ended(struct quorum *q, uint64_t ballot_id) {
    struct map_node *entry = map_find(&q->ended, map_hash_number(ballot_id));
    return entry ? container_of(entry, struct ended_hold, by_ballot)
                 : NULL; /* the hash is a bijection */
}

static void forget_ended(struct quorum *q, struct ended_hold *ended) {
    map_remove(&q->ended, &ended->by_ballot);
    free(ended);
}

/* A hold has ended when so many nodes report it that the others are not a quorum. The last reports
 * may come after the hold was released; such notes stay, and their number is bounded. */
void quorum_gone(struct store_host *host, uint64_t ballot_id) {
    struct node *node = container_of(host, struct node, host);
    struct quorum *q = node->quorum;
    struct ended_hold *ended = find_ended(q, ballot_id);
    if (!ended) {
        if (q->ended.count >= ENDED_MAX)
            forget_ended(q, container_of(map_first(&q->ended), struct ended_hold, by_ballot));
        ended = calloc(1, sizeof(*ended));
        if (!ended)
            return;
        ended->ballot_id = ballot_id;
        map_add(&q->ended, &ended->by_ballot, map_hash_number(ballot_id));
    }
    ended->nodes |= 1u << node->index;
    if ((size_t)__builtin_popcount(ended->nodes) > q->node_count - q->quorum) {
        quorum_forget_gone(q, ballot_id);
        quorum_end_votes(q, ballot_id);
        q->host->gone(q->host, ballot_id >> BALLOT_BITS);
    }
}

void quorum_forget_gone(struct quorum *q, uint64_t ballot_id) {
    struct ended_hold *ended = find_ended(q, ballot_id);
    if (ended)
        forget_ended(q, ended);
}

void quorum_attempts_clear(struct quorum *q) {
    struct map_node *entry;
    while ((entry = map_first(&q->attempts)))
        quorum_attempt_end(q, container_of(entry, struct quorum_attempt, by_seq));
    while ((entry = map_first(&q->ended)))
        forget_ended(q, container_of(entry, struct ended_hold, by_ballot));
    map_free(&q->attempts);
    map_free(&q->asking);
    map_free(&q->ended);
}
