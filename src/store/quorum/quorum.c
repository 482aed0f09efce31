/* The driver: which file answers which operation, when something is due, and the nodes' side of the
 * host. */
#include "store/quorum/quorum.h"

#include "base/error.h"
#include "store/schemes.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Break ---- */

struct breaking {
    struct round round;
    size_t yes, no;
    char text[];
};

static void breaking_answered(struct round *round, struct node_request *request) {
    struct breaking *breaking = container_of(round, struct breaking, round);
    breaking->yes += request->op.outcome == STORE_DONE;
    breaking->no += request->op.outcome == STORE_NOT_YOURS;
}

/* It is broken when the nodes that may still have it are not a quorum. */
static void breaking_decide(struct round *round, bool time_is_up) {
    struct breaking *breaking = container_of(round, struct breaking, round);
    struct quorum *q = round->quorum;
    size_t needed = q->node_count - q->quorum + 1;
    bool over = !quorum_round_waits_on(round, time_is_up, needed, QUORUM_PATIENCE_US);
    enum store_outcome outcome = breaking->yes >= needed     ? STORE_DONE
                                 : breaking->no >= q->quorum ? STORE_NOT_YOURS
                                 : over                      ? STORE_UNKNOWN
                                                             : 0;
    if (!outcome)
        return;
    struct store_op *op = quorum_round_decided(round);
    if (outcome == STORE_UNKNOWN)
        op->text = quorum_round_explain(round, "too few nodes broke it");
    store_complete(q->host, op, outcome);
}

static void quorum_break(struct quorum *q, struct store_op *op) {
    size_t texts = quorum_text_size(op->name) + quorum_text_size(op->label);
    struct breaking *breaking = quorum_round_new(q, op, sizeof(*breaking) + texts);
    if (!breaking) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    char *text = breaking->text;
    const char *name = quorum_copy_text(&text, op->name);
    const char *label = quorum_copy_text(&text, op->label);
    breaking->round.answered = breaking_answered;
    breaking->round.decide = breaking_decide;
    for (size_t i = 0; i < q->node_count; i++) {
        struct store_op *request = &breaking->round.requests[i].op;
        request->type = STORE_BREAK;
        request->name = name;
        request->label = label;
        request->token = op->token;
    }
    quorum_round_ask_all(&breaking->round);
}

/* ---- Time ---- */

void quorum_wake_by(struct quorum *q, int64_t at_us) {
    if (!q->timer.node.place || at_us < q->timer.node.at)
        world_timer_set(q->host->world, &q->timer, at_us);
}

static void timer_due(struct world_timer *timer) {
    struct quorum *q = container_of(timer, struct quorum, timer);
    int64_t now = quorum_now_us(q);
    quorum_begin(q);
    while (!list_empty(&q->rounds)) {
        struct round *round = container_of(q->rounds.next, struct round, link);
        if (round->decide_by_us > now)
            break;
        round->decide(round, true);
        assert(list_empty(&round->link) || round->decide_by_us > now);
        quorum_round_free_if_over(round);
    }
    quorum_retry_releases(q);
    quorum_retry_ballots(q);
    quorum_finish(q);
    quorum_wake_due(q);
    if (!list_empty(&q->rounds))
        quorum_wake_by(q, container_of(q->rounds.next, struct round, link)->decide_by_us);
    if (!list_empty(&q->pending_releases))
        quorum_wake_by(q, quorum_next_release_us(q));
    list_each(link, &q->retries)
        quorum_wake_by(q, container_of(link, struct quorum_attempt, retry)->retry_at_us);
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

void quorum_freed(struct store_host *host, const char *name) {
    struct node *node = container_of(host, struct node, host);
    quorum_attempts_freed(node->quorum, node, name);
}

/* The node was cut off for a while, so we may have missed its announcements. */
static void node_wake(struct store_host *host, uint64_t seq) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    if (seq == STORE_ALL_WAITING)
        q->host->wake(q->host, seq);
}

/* The hold is renewed at all nodes, and the quorum decides. */
static void node_check(struct store_host *host, uint64_t ballot_id) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    q->host->check(q->host, ballot_id >> BALLOT_BITS);
}

/* Without this node's vote a hold may no longer have a majority, so it counts as lost. */
static void node_forgot(struct store_host *host, store_concerns *concerns, void *context) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    q->host->forgot(q->host, concerns, context);
}

void quorum_join(struct quorum *q, struct node *node) {
    node->host = *q->host;
    node->host.completed = quorum_completed;
    node->host.wake = node_wake;
    node->host.gone = quorum_gone;
    node->host.check = node_check;
    node->host.forgot = node_forgot;
}

int quorum_start(struct quorum *q) {
    list_init(&q->rounds);
    list_init(&q->pending_releases);
    list_init(&q->retries);
    list_init(&q->released);
    list_init(&q->answers);
    list_init(&q->renewals);
    map_init(&q->votes);
    map_init(&q->attempts);
    map_init(&q->asking);
    list_init(&q->woken);
    map_init(&q->ended);
    int r = world_timer_add(q->host->world, &q->timer, timer_due);
    if (!r)
        world_bell_add(q->host->world, &q->bell, quorum_bell_rang);
    return r;
}

/* The nodes complete what is in flight. After that no round is left, and no request is sent. */
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
    quorum_end_releases(q);
    struct list *link;
    while ((link = list_pop(&q->retries)))
        store_refuse(q->host, container_of(link, struct quorum_attempt, retry)->op, HF_BUSY, NULL);
    quorum_attempts_clear(q);
    struct map_node *voting;
    while ((voting = map_first(&q->votes)))
        quorum_end_votes(q, container_of(voting, struct round, voting)->ballot_id);
    map_free(&q->votes);
    world_bell_drop(&q->bell);
    world_timer_drop(q->host->world, &q->timer);
}

static void quorum_close(struct store *store) {
    struct quorum *q = container_of(store, struct quorum, store);
    quorum_end(q);
    free(q->set_name);
    free(q);
}

const struct store_driver store_quorum = {
    .abi = STORE_ABI,
    .scheme = "quorum",
    .tier = "strict",
    .capabilities = STORE_CAN_SHARE | STORE_CAN_LEASE_EACH | STORE_CAN_FLOOR | STORE_CAN_LOOK |
                    STORE_CAN_EXAMINE,
    .lacks = "a majority of nodes cannot count: two majorities share a node, but three need not",
    .open = quorum_open,
    .submit = quorum_submit,
    .close = quorum_close,
};
