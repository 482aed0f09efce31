/* A set of five nodes that a test plays: it sees what each was asked, and answers in any order,
 * late, or never. */
#ifndef QUORUM_SET_TEST_H
#define QUORUM_SET_TEST_H

#include "check.h"
#include "store/quorum/quorum.h"
#include "store/schemes.h"
#include "support/virtual_world.h"

#include <stdbool.h>

/* Not every test uses every word. */
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
    NODES = 5,
    MS = 1000,
    TIMEOUT_US = 50 * MS,
    LEASE_US = 10000 * MS,
    WAKES = 16,
};

struct fake {
    struct store store;
    struct list asked;                 /* operations without an answer */
    const struct store_op *given_back; /* the last release that is not announced */
    bool closed;
};

struct set {
    struct store_host host;
    struct quorum *quorum;
    struct fake nodes[NODES];
    int completed, gone, checked;
    struct store_facts *facts[NODES]; /* that the last examination asked for */
    uint64_t wakes[WAKES];
    size_t wake_count;
};

static struct set set;

static void fake_submit(struct store *store, struct store_op *op) {
    struct fake *fake = container_of(store, struct fake, store);
    CHECK(!fake->closed);
    list_append(&fake->asked, &op->link);
}

static void fake_close(struct store *store) {
    struct fake *fake = container_of(store, struct fake, store);
    struct store_host *host = &set.quorum->nodes[fake - set.nodes].host;
    struct list *link;
    fake->closed = true;
    while ((link = list_pop(&fake->asked)))
        store_complete(host, container_of(link, struct store_op, link), STORE_UNKNOWN);
}

static void fake_vote(struct store *store, struct store_vote *vote) {
    CHECK_EQ_INT(vote->op.type, STORE_ACQUIRE);
    fake_submit(store, &vote->op);
}

static void fake_give_back(struct store *store, struct store_op *op) {
    CHECK_EQ_INT(op->type, STORE_RELEASE);
    container_of(store, struct fake, store)->given_back = op;
    fake_submit(store, op);
}

static void fake_examine(struct store *store, struct store_op *op, struct store_facts *facts) {
    set.facts[container_of(store, struct fake, store) - set.nodes] = facts;
    fake_submit(store, op);
}

static const struct store_voting fake_voting = {
    .vote = fake_vote, .give_back = fake_give_back, .examine = fake_examine};

static const struct store_driver fake_driver = {
    .abi = STORE_ABI, .voting = &fake_voting, .submit = fake_submit, .close = fake_close};

static void note_completed(struct store_host *host, struct store_op *op) {
    (void)host;
    (void)op;
    set.completed++;
}

static void note_wake(struct store_host *host, uint64_t seq) {
    (void)host;
    CHECK(set.wake_count < WAKES);
    set.wakes[set.wake_count++] = seq;
}

static void note_gone(struct store_host *host, uint64_t seq) {
    (void)host;
    CHECK_EQ_INT(seq, 1);
    set.gone++;
}

static void note_check(struct store_host *host, uint64_t seq) {
    (void)host;
    CHECK_EQ_INT(seq, 1);
    set.checked++;
}

static void set_host(struct store_host *host) {
    *host = (struct store_host){.world = virtual_world(),
                                .identity = {.host = "here", .command = "test", .pid = 1},
                                .wait_lease_us = 3000 * MS,
                                .max_lease_us = 60000 * MS,
                                .completed = note_completed,
                                .wake = note_wake,
                                .gone = note_gone,
                                .check = note_check};
}

static void set_open(void) {
    set_host(&set.host);
    struct quorum *q = calloc(1, sizeof(*q) + NODES * sizeof(q->nodes[0]));
    CHECK(q);
    set.quorum = q;
    q->store.driver = &store_quorum;
    q->host = &set.host;
    q->node_count = NODES;
    q->quorum = 3;
    q->node_timeout_us = TIMEOUT_US;
    q->set_name = strdup("default/5/3/60000");
    CHECK(q->set_name);
    q->set = (struct store_set){.name = q->set_name, .freed = quorum_freed};
    CHECK_EQ_INT(quorum_start(q), HF_OK);
    for (size_t i = 0; i < NODES; i++) {
        q->nodes[i].quorum = q;
        q->nodes[i].index = i;
        q->nodes[i].met = true;
        snprintf(q->nodes[i].name, sizeof(q->nodes[i].name), "n%zu", i);
        quorum_join(q, &q->nodes[i]);
        set.nodes[i].store.driver = &fake_driver;
        list_init(&set.nodes[i].asked);
        q->nodes[i].store = &set.nodes[i].store;
    }
}

static void set_close(void) {
    store_quorum.close(&set.quorum->store);
    world_close(set.host.world);
}

static void submit(struct store_op *op) {
    list_init(&op->link);
    op->outcome = 0;
    op->reason = 0;
    store_quorum.submit(&set.quorum->store, op);
}

/* ---- What nodes say ---- */

static size_t asked_count(size_t node) {
    size_t count = 0;
    list_each(link, &set.nodes[node].asked) {
        count++;
    }
    return count;
}

/* The first operation that the node has not answered: it must be of this type. */
static struct store_op *asked(size_t node, enum store_op_type type) {
    CHECK(asked_count(node) > 0);
    struct store_op *op = container_of(set.nodes[node].asked.next, struct store_op, link);
    CHECK_EQ_INT(op->type, type);
    return op;
}

/* The vote that the node was asked for first, and has not answered. */
static struct store_vote *asked_vote(size_t node) {
    return container_of(asked(node, STORE_ACQUIRE), struct store_vote, op);
}

/* Whether the node was asked to announce the release that it has not answered. */
static bool is_announced(size_t node) {
    return asked(node, STORE_RELEASE) != set.nodes[node].given_back;
}

static void listen(void) {
    world_wait_for(set.host.world, 0);
    world_dispatch(set.host.world);
}

static void answer(size_t node, enum store_op_type type, enum store_outcome outcome) {
    struct store_op *op = asked(node, type);
    list_remove(&op->link);
    store_complete(&set.quorum->nodes[node].host, op, outcome);
    listen();
}

static void grant(size_t node, uint64_t token) {
    struct store_vote *vote = asked_vote(node);
    vote->op.token = token;
    vote->node_id = (int64_t)node + 100;
    answer(node, STORE_ACQUIRE, STORE_DONE);
}

static void refuse(size_t node, int reason, int64_t left_us) {
    struct store_op *op = asked(node, STORE_ACQUIRE);
    op->reason = reason;
    op->left_us = left_us;
    answer(node, STORE_ACQUIRE, STORE_REFUSED);
}

static void confirm(size_t node) {
    answer(node, STORE_RELEASE, STORE_DONE);
}

/* The node answers a renewal with this outcome for each hold. */
static void answer_renewal(size_t node, enum store_outcome outcome) {
    struct store_op *op = asked(node, STORE_RENEW);
    for (size_t i = 0; i < op->renewal_count; i++) {
        if (op->renewals[i].of)
            op->renewals[i].outcome = outcome;
    }
    answer(node, STORE_RENEW, STORE_DONE);
}

static void freed(size_t node) {
    set.quorum->set.freed(&set.quorum->nodes[node].host, "x");
}

static void pass_us(int64_t us) {
    virtual_pass_us(us);
    listen();
}

/* ---- What is asked ---- */

static struct store_op mutex(uint64_t seq, uint8_t flags) {
    return (struct store_op){.type = STORE_ACQUIRE,
                             .kind = STORE_LOCK,
                             .flags = flags,
                             .seq = seq,
                             .name = "x",
                             .capacity = STORE_ALL,
                             .weight = STORE_ALL,
                             .lease_us = LEASE_US,
                             .floor = 50};
}

static void check_done(const struct store_op *op, enum store_outcome outcome) {
    CHECK_EQ_INT(op->outcome, outcome);
}

/* A hold that the first `nodes` nodes have granted; the others have not answered. */
static struct store_op held(size_t nodes) {
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < nodes; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    return op;
}

#endif
