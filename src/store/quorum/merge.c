/* Inspecting a set: what its nodes have, merged; for a single lock also side by side. A party is
 * shown once, with the number of its votes. One that has a quorum of votes holds the lock. The
 * others are about to get or to lose it. */
#include "store/locks.h"
#include "store/quorum/quorum.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct looking {
    struct round round;
    char text[]; /* name, after */
};

/* The lock of that name at a node; NULL: it has none. */
static const hf_lock_info *find(const struct node_request *request, const char *name) {
    const hf_lock_info *info;
    if (request->op.outcome != STORE_DONE)
        return NULL;
    for (size_t i = 0; (info = hf_locks_at(request->op.locks, i)); i++) {
        if (strcmp(info->name, name) == 0)
            return info;
    }
    return NULL;
}

/* The same party at another node; NULL: it is not there. */
static const hf_party *find_party(const hf_lock_info *info, const char *owner) {
    for (size_t i = 0; info && i < info->holder_count; i++) {
        if (strcmp(info->holders[i]->owner, owner) == 0)
            return info->holders[i];
    }
    return NULL;
}

/* At how many nodes the party has this token. */
static size_t count_token(struct round *round, const char *name, const char *owner,
                          uint64_t token) {
    size_t count = 0;
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const hf_party *same = find_party(find(&round->requests[i], name), owner);
        count += same && same->token == token;
    }
    return count;
}

/* The largest first. */
static int by_left(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Adds a party of node `first`, unless an earlier node has it. Its token is the most frequent one.
 * Its remaining lease is the one that a quorum of nodes has. */
static bool add_party(struct round *round, struct hf_locks *locks, const char *name, size_t first,
                      const hf_party *party) {
    struct quorum *q = round->quorum;
    hf_party sum = *party;
    int64_t left_ms[QUORUM_NODES_MAX] = {0};
    size_t nodes = 0, agree = 0;
    for (size_t i = 0; i < q->node_count; i++) {
        const hf_party *same = find_party(find(&round->requests[i], name), party->owner);
        if (same && i < first)
            return true;
        if (!same)
            continue;
        left_ms[nodes++] = same->left_ms;
        size_t count = count_token(round, name, party->owner, same->token);
        if (count > agree) {
            agree = count;
            sum.token = same->token;
        }
    }
    qsort(left_ms, nodes, sizeof(left_ms[0]), by_left);
    sum.left_ms = left_ms[(nodes < q->quorum ? nodes : q->quorum) - 1];
    bool holds = nodes >= q->quorum;
    if (!holds)
        sum.token = 0;
    sum.votes = (uint32_t)nodes;
    return locks_copy_party(locks, holds ? LOCKS_HOLDER : LOCKS_WAITER, &sum);
}

static bool add_node(const struct node_request *request, struct hf_locks *locks, const char *name) {
    char failure[REQUEST_FAILURE_SIZE];
    const hf_lock_info *info = find(request, name);
    bool ok = locks_add_node(locks, request->node->name, quorum_request_failure(request, failure),
                             info ? info->token : 0);
    for (size_t i = 0; ok && info && i < info->holder_count; i++)
        ok = locks_copy_party(locks, LOCKS_VOTE, info->holders[i]);
    return ok;
}

static bool add_lock(struct round *round, struct hf_locks *locks, const char *name) {
    struct quorum *q = round->quorum;
    const hf_lock_info *newest = NULL;
    for (size_t i = 0; i < q->node_count; i++) {
        const hf_lock_info *info = find(&round->requests[i], name);
        if (info && (!newest || info->token > newest->token))
            newest = info;
    }
    assert(newest); /* the name is one that a node has */
    enum store_kind kind = newest->kind == HF_PERMITS ? STORE_PERMITS : STORE_LOCK;
    bool ok = locks_add(locks, name, kind, newest->capacity, newest->token);
    if (ok)
        locks_set_quorum(locks, (uint32_t)q->quorum);
    if (ok && newest->broken_ms)
        ok = locks_set_break(locks, &(struct locks_break){.at_us = newest->broken_ms * 1000,
                                                          .token = newest->broken_token,
                                                          .by = newest->broken_by,
                                                          .reason = newest->broken_reason});
    for (size_t i = 0; ok && i < q->node_count; i++) {
        const hf_lock_info *info = find(&round->requests[i], name);
        for (size_t j = 0; ok && info && j < info->holder_count; j++)
            ok = add_party(round, locks, name, i, info->holders[j]);
    }
    for (size_t i = 0; ok && round->op->type == STORE_INSPECT && i < q->node_count; i++)
        ok = add_node(&round->requests[i], locks, name);
    return ok;
}

/* The first name after `after` that any node has. */
static const char *next_name(struct round *round, const char *after) {
    const char *next = NULL;
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct node_request *request = &round->requests[i];
        const hf_lock_info *info;
        for (size_t j = 0;
             request->op.outcome == STORE_DONE && (info = hf_locks_at(request->op.locks, j)); j++) {
            if ((!after || strcmp(info->name, after) > 0) &&
                (!next || strcmp(info->name, next) < 0))
                next = info->name;
        }
    }
    return next;
}

static bool merge(struct round *round, struct hf_locks *locks) {
    const struct store_op *op = round->op;
    size_t limit = op->type == STORE_LIST ? op->limit : 1;
    const char *name = NULL;
    for (size_t i = 0; i < limit && (name = next_name(round, name)); i++) {
        if (!add_lock(round, locks, name))
            return false;
    }
    return true;
}

static void looking_decide(struct round *round, bool time_is_up) {
    struct quorum *q = round->quorum;
    if (quorum_round_waits_on(round, time_is_up, q->quorum, QUORUM_PATIENCE_US))
        return;
    struct store_op *op = round->op;
    size_t answers = quorum_round_answers(round);
    if (answers < q->quorum) {
        char words[80];
        snprintf(words, sizeof(words), "%zu of %zu nodes answered, and %zu are needed", answers,
                 q->node_count, q->quorum);
        char *text = quorum_round_explain(round, words);
        int reason = quorum_round_final_reason(round);
        store_refuse(q->host, quorum_round_decided(round), reason, text);
        return;
    }
    struct hf_locks *locks = locks_new();
    bool ok = locks && merge(round, locks);
    quorum_round_decided(round);
    if (ok) {
        op->locks = locks;
        store_complete(q->host, op, STORE_DONE);
    } else {
        hf_locks_free(locks);
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
    }
}

static void looking_clear(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        struct store_op *op = &round->requests[i].op;
        if (op->outcome == STORE_DONE)
            hf_locks_free(op->locks);
    }
}

void quorum_look(struct quorum *q, struct store_op *op) {
    const char *after = op->type == STORE_LIST ? op->after : NULL;
    size_t texts = quorum_text_size(op->name) + quorum_text_size(after);
    struct looking *looking = quorum_round_new(q, op, sizeof(*looking) + texts);
    if (!looking) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    char *text = looking->text;
    const char *name = quorum_copy_text(&text, op->name);
    after = quorum_copy_text(&text, after);
    looking->round.answered = quorum_round_ignore;
    looking->round.decide = looking_decide;
    looking->round.clear = looking_clear;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *request = &looking->round.requests[i].op;
        request->type = op->type;
        request->name = name;
        if (op->type == STORE_LIST) {
            request->after = after;
            request->limit = op->limit;
        }
    }
    quorum_round_ask_all(&looking->round);
}
