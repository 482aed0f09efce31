/* Who was refused and waits; and which holds were ended at nodes by others. Both are hints: who is not noted here
 * for want of memory asks again, or renews, by itself.
 *
 * All clients that wait hear that a lock is free, and if they asked at once they would split its votes again and
 * again. So they ask each at a time of its own, within a stretch that doubles with each split and halves with each
 * ballot that was won: where two contend it is nothing, and where many do, the first has its votes before the second
 * asks. */
#include "store/quorum/quorum.h"

#include <stdlib.h>
#include <string.h>

enum {
    BALLOT_LEAST_US = 500,
    SCATTER_MOST_US = 640000,
};

int64_t waiting_scatter_us(struct quorum *q) {
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

struct waiting *waiting_find(struct quorum *q, const struct store_op *op) {
    for (struct map_node *node = map_find(&q->waiting, hash_of(op->name)); node;
         node = map_find_next(node)) {
        struct waiting *waiting = container_of(node, struct waiting, node);
        if (waiting->seq == op->seq)
            return waiting;
    }
    return NULL;
}

struct waiting *waiting_note(struct quorum *q, const struct store_op *op) {
    struct waiting *waiting = waiting_find(q, op);
    if (!waiting && (waiting = calloc(1, sizeof(*waiting)))) {
        map_add(&q->waiting, &waiting->node, hash_of(op->name));
        list_init(&waiting->woken);
        waiting->since_us = quorum_now_us(q);
    }
    if (waiting) {
        list_remove(&waiting->woken);
        waiting->seq = op->seq;
        waiting->waits = op->flags & STORE_WAIT;
        waiting->shares = op->weight < op->capacity;
        waiting->refused = waiting->freed = 0;
    }
    return waiting;
}

static void forget(struct map *map, struct map_node *node, void *memory) {
    map_remove(map, node);
    free(memory);
}

void waiting_forget(struct quorum *q, const struct store_op *op) {
    struct waiting *waiting = waiting_find(q, op);
    if (!waiting)
        return;
    list_remove(&waiting->woken);
    forget(&q->waiting, &waiting->node, waiting);
}

static void wake(struct quorum *q, struct waiting *waiting) {
    list_remove(&waiting->woken);
    waiting->refused = 0;
    q->host->wake(q->host, waiting->seq);
}

static void wake_later(struct quorum *q, struct waiting *waiting) {
    waiting->refused = 0;
    if (!list_empty(&waiting->woken))
        return;
    waiting->wake_at_us = quorum_now_us(q) + waiting_scatter_us(q);
    list_append(&q->woken, &waiting->woken);
    quorum_wake_by(q, waiting->wake_at_us);
}

void waiting_wake_due(struct quorum *q) {
    int64_t now_us = quorum_now_us(q);
    list_each_safe(node, &q->woken) {
        struct waiting *waiting = container_of(node, struct waiting, woken);
        if (waiting->wake_at_us <= now_us)
            wake(q, waiting);
        else
            quorum_wake_by(q, waiting->wake_at_us);
    }
}

/* What a node says over two connections may come in another order than it said it; or it is free because of the same
 * release that this attempt has been woken by already. */
void waiting_refused(struct quorum *q, const struct store_op *op, const struct node *by) {
    struct waiting *waiting = waiting_find(q, op);
    uint32_t bit = 1u << by->index;
    if (waiting && waiting->waits && waiting->freed & bit)
        wake_later(q, waiting);
    else if (waiting)
        waiting->refused |= bit;
}

/* Whom a node's word concerns: the first come, or whoever shares with it. (Names with one hash are as one.) */
static struct waiting *first_refused(struct quorum *q, const struct node *by, const char *name,
                                     bool shares) {
    struct waiting *first = NULL;
    for (struct map_node *node = map_find(&q->waiting, hash_of(name)); node;
         node = map_find_next(node)) {
        struct waiting *waiting = container_of(node, struct waiting, node);
        if (!waiting->waits)
            continue;
        if (!(waiting->refused & 1u << by->index))
            waiting->freed |= 1u << by->index;
        else if ((waiting->shares || !shares) && (!first || waiting->seq < first->seq))
            first = waiting;
    }
    return first;
}

/* Those behind the first are not woken with it, to be refused at once; the other nodes will say the same, and that
 * is enough for those who are not as quick. */
void waiting_freed(struct quorum *q, const struct node *node, const char *name) {
    struct waiting *first = first_refused(q, node, name, false);
    bool shares = first && first->shares;
    void (*const call)(struct quorum *, struct waiting *) = q->crowd > 1 ? wake_later : wake;
    if (first)
        call(q, first);
    while (shares && (first = first_refused(q, node, name, true)))
        call(q, first);
}

/* ---- Holds that were ended ---- */

enum { GOING_MAX = 1024 };

struct going {
    struct map_node node;
    uint64_t mark;
    uint32_t nodes;
};

static struct going *find_going(struct quorum *q, uint64_t mark) {
    struct map_node *node = map_find(&q->going, map_hash_number(mark));
    return node ? container_of(node, struct going, node) : NULL; /* the hash is a bijection */
}

static void forget_going(struct quorum *q, struct going *going) {
    forget(&q->going, &going->node, going);
}

/* One node's word that a hold was ended there is not the set's: it takes as many as leave no quorum. The last ones'
 * word may come when the hold is over; such notes are left behind, and are not let grow to many. */
void quorum_gone(struct store_host *host, uint64_t mark) {
    struct node *node = container_of(host, struct node, host);
    struct quorum *q = node->quorum;
    struct going *going = find_going(q, mark);
    if (!going) {
        if (q->going.count >= GOING_MAX)
            forget_going(q, container_of(map_first(&q->going), struct going, node));
        going = calloc(1, sizeof(*going));
        if (!going)
            return;
        going->mark = mark;
        map_add(&q->going, &going->node, map_hash_number(mark));
    }
    going->nodes |= 1u << node->index;
    if ((size_t)__builtin_popcount(going->nodes) > q->node_count - q->quorum) {
        quorum_forget_gone(q, mark);
        votes_are_over(q, mark);
        q->host->gone(q->host, mark >> MARK_BITS);
    }
}

void quorum_forget_gone(struct quorum *q, uint64_t mark) {
    struct going *going = find_going(q, mark);
    if (going)
        forget_going(q, going);
}

void waiting_forget_all(struct quorum *q) {
    struct map_node *node;
    while ((node = map_first(&q->waiting)))
        forget(&q->waiting, node, container_of(node, struct waiting, node));
    while ((node = map_first(&q->going)))
        forget_going(q, container_of(node, struct going, node));
    map_free(&q->waiting);
    map_free(&q->going);
}
