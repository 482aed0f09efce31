/* Looking at a set: what its nodes say, put together. A party is shown once, with the number of nodes that know it;
 * one that has a quorum of the votes holds the lock, the others are on their way there, or what is left of them. */
#include "base/error.h"
#include "store/findings.h"
#include "store/locks.h"
#include "store/quorum/quorum.h"

#include <stdlib.h>
#include <string.h>

struct looking {
    struct round round;
    char text[]; /* name, after */
};

static void looked(struct round *round, struct errand *errand) {
    (void)round;
    (void)errand;
}

/* The lock of that name in what a node said; NULL: it knows none. */
static const hf_lock_info *find(const struct errand *errand, const char *name) {
    const hf_lock_info *info;
    if (errand->op.outcome != STORE_DONE)
        return NULL;
    for (size_t i = 0; (info = hf_locks_at(errand->op.locks, i)); i++) {
        if (strcmp(info->name, name) == 0)
            return info;
    }
    return NULL;
}

static const hf_party *find_party(const hf_lock_info *info, const char *owner) {
    for (size_t i = 0; info && i < info->holder_count; i++) {
        if (strcmp(info->holders[i]->owner, owner) == 0)
            return info->holders[i];
    }
    return NULL;
}

/* Adds a party of node `first`, unless an earlier node has it: what is left of it is the least that any of a quorum
 * of its nodes gives. */
static bool add_party(struct round *round, struct hf_locks *locks, const char *name, size_t first,
                      const hf_party *party) {
    struct quorum *q = round->quorum;
    hf_party sum = *party;
    size_t nodes = 0;
    for (size_t i = 0; i < q->node_count; i++) {
        const hf_party *same = find_party(find(&round->errands[i], name), party->owner);
        if (same && i < first)
            return true;
        nodes += same != NULL;
        if (same && same->left_ms < sum.left_ms)
            sum.left_ms = same->left_ms;
        if (same && same->token < sum.token)
            sum.token = same->token;
    }
    char *label = error_format("%s%son %zu of %zu nodes", party->label, *party->label ? ", " : "",
                               nodes, q->node_count);
    sum.label = label ? label : party->label;
    bool ok = locks_copy_party(locks, nodes >= q->quorum ? LOCKS_HOLDER : LOCKS_WAITER, &sum);
    free(label);
    return ok;
}

static bool add_lock(struct round *round, struct hf_locks *locks, const char *name) {
    struct quorum *q = round->quorum;
    const hf_lock_info *newest = NULL;
    for (size_t i = 0; i < q->node_count; i++) {
        const hf_lock_info *info = find(&round->errands[i], name);
        if (info && (!newest || info->token > newest->token))
            newest = info;
    }
    enum store_kind kind = newest->kind == HF_MUTEX ? STORE_MUTEX
                           : newest->kind == HF_PERMITS ? STORE_PERMITS
                                                        : STORE_RW;
    bool ok = locks_add(locks, name, kind, newest->capacity, newest->token);
    if (ok && newest->broken_ms)
        ok = locks_set_break(locks, &(struct locks_break){.at_us = newest->broken_ms * 1000,
                                                          .token = newest->broken_token,
                                                          .by = newest->broken_by,
                                                          .reason = newest->broken_reason});
    for (size_t i = 0; ok && i < q->node_count; i++) {
        const hf_lock_info *info = find(&round->errands[i], name);
        for (size_t j = 0; ok && info && j < info->holder_count; j++)
            ok = add_party(round, locks, name, i, info->holders[j]);
    }
    return ok;
}

/* The smallest name behind `after` that any node has. */
static const char *next_name(struct round *round, const char *after) {
    const char *next = NULL;
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct errand *errand = &round->errands[i];
        const hf_lock_info *info;
        for (size_t j = 0; errand->op.outcome == STORE_DONE && (info = hf_locks_at(errand->op.locks, j));
             j++) {
            if ((!after || strcmp(info->name, after) > 0) && (!next || strcmp(info->name, next) < 0))
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

static size_t answers(struct round *round) {
    size_t count = 0;
    for (size_t i = 0; i < round->quorum->node_count; i++)
        count += round->errands[i].op.outcome == STORE_DONE;
    return count;
}

/* Whoever looks waits for all nodes, as long as they have time: it is what each says that is of interest. */
static void looking_decide(struct round *round, bool time_is_up) {
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    if (!time_is_up && round->in_flight > 1)
        return;
    if (answers(round) < q->quorum) {
        round_decided(round);
        store_refuse(q->host, op, HF_UNREACHABLE,
                     error_format("%zu of %zu nodes answered, and %zu are needed", answers(round),
                                  q->node_count, q->quorum));
        return;
    }
    struct hf_locks *locks = locks_new();
    bool ok = locks && merge(round, locks);
    round_decided(round);
    if (ok) {
        op->locks = locks;
        store_complete(q->host, op, STORE_DONE);
    } else {
        hf_locks_free(locks);
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
    }
}

static void looking_free(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        struct store_op *op = &round->errands[i].op;
        if (op->outcome == STORE_DONE)
            hf_locks_free(op->locks);
        free(op->text);
    }
}

void quorum_look(struct quorum *q, struct store_op *op) {
    size_t name_size = strlen(op->name) + 1;
    const char *after = op->type == STORE_LIST ? op->after : NULL;
    size_t after_size = after ? strlen(after) + 1 : 0;
    struct looking *looking = round_new(q, op, sizeof(*looking) + name_size + after_size);
    if (!looking) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    memcpy(looking->text, op->name, name_size);
    if (after)
        memcpy(looking->text + name_size, after, after_size);
    looking->round.answered = looked;
    looking->round.decide = looking_decide;
    looking->round.free = looking_free;
    looking->round.decide_by_us += 2000000; /* a walk over many names takes its time */
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *errand = &looking->round.errands[i].op;
        errand->type = op->type;
        errand->name = looking->text;
        if (op->type == STORE_LIST) {
            errand->after = after ? looking->text + name_size : NULL;
            errand->limit = op->limit;
        }
    }
    round_ask_all(&looking->round);
}

/* ---- Examine ---- */

static bool add_findings(struct round *round, hf_examination *sum) {
    struct quorum *q = round->quorum;
    bool ok = true;
    for (size_t i = 0; ok && i < q->node_count; i++) {
        const struct errand *errand = &round->errands[i];
        if (errand->op.outcome != STORE_DONE) {
            ok = findings_add(sum, HF_PROBLEM, "node", "it does not vote, and the set can lose one node less",
                              "start it, or look at what it says", "%s does not answer: %s",
                              errand->node->name, errand->op.text ? errand->op.text : "");
            continue;
        }
        const hf_examination *found = errand->op.examination;
        for (size_t j = 0; ok && j < found->count; j++) {
            const hf_finding *one = found->findings[j];
            ok = findings_add(sum, one->severity, one->id, one->means, one->fix, "%s: %s",
                              errand->node->name, one->found);
        }
    }
    return ok;
}

/* A set is as strict as its nodes are durable. */
static const char *tier_of(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct errand *errand = &round->errands[i];
        if (errand->op.outcome == STORE_DONE && strcmp(errand->op.examination->tier, "timed") != 0)
            return "timed";
    }
    return "strict";
}

static void examining_decide(struct round *round, bool time_is_up) {
    struct quorum *q = round->quorum;
    struct store_op *op = round->op;
    if (!time_is_up && round->in_flight > 1)
        return;
    hf_examination *sum = findings_new(tier_of(round));
    bool ok = sum && add_findings(round, sum);
    round_decided(round);
    if (ok) {
        op->examination = sum;
        store_complete(q->host, op, STORE_DONE);
    } else {
        hf_examination_free(sum);
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
    }
}

static void examining_free(struct round *round) {
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        struct store_op *op = &round->errands[i].op;
        if (op->outcome == STORE_DONE)
            hf_examination_free(op->examination);
        free(op->text);
    }
}

void quorum_examine(struct quorum *q, struct store_op *op) {
    struct looking *looking = round_new(q, op, sizeof(*looking));
    if (!looking) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    looking->round.answered = looked;
    looking->round.decide = examining_decide;
    looking->round.free = examining_free;
    looking->round.decide_by_us += 5000000;
    for (size_t i = 0; i < q->node_count; i++)
        looking->round.errands[i].op.type = STORE_EXAMINE;
    round_ask_all(&looking->round);
}
