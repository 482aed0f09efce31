/* Rounds: a request to all nodes at once, and their answers.
 *
 * A node may answer inside `submit`, and must not be called again there. So answers are put into a
 * list and processed when all requests are out (quorum_finish), or when the bell rings. So no
 * answer is processed while requests are being sent, and a round exists at least until all of them
 * have been sent.
 *
 * Requests to a node that hangs would pile up, here and at the node, until its store gives up. So a
 * node that is behind (it has not replied for node_timeout) is skipped until it replies or its
 * store gives up, unless too few others would be left, as after a pause of this process. */
#include "base/error.h"
#include "store/quorum/quorum.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLD_US = 500000 };

void *quorum_round_new(struct quorum *q, struct store_op *op, size_t size) {
    size_t room = (size + 15) & ~(size_t)15;
    struct round *round = calloc(1, room + q->node_count * sizeof(struct node_request));
    if (!round)
        return NULL;
    round->quorum = q;
    round->op = op;
    round->requests = (struct node_request *)((char *)round + room);
    for (size_t i = 0; i < q->node_count; i++) {
        round->requests[i].node = &q->nodes[i];
        round->requests[i].round = round;
        list_init(&round->requests[i].op.link);
    }
    list_init(&round->link);
    return round;
}

void quorum_round_votes(struct round *round, uint64_t ballot_id) {
    round->ballot_id = ballot_id;
    map_add(&round->quorum->votes, &round->voting, map_hash_number(ballot_id));
}

size_t quorum_text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

char *quorum_copy_text(char **at, const char *text) {
    if (!text)
        return NULL;
    size_t size = quorum_text_size(text);
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

/* Ids need not be compared: the hash is a bijection. */
struct round *quorum_ballot_round(struct quorum *q, uint64_t ballot_id, const struct round *round) {
    struct map_node *node =
        round ? map_find_next(&round->voting) : map_find(&q->votes, map_hash_number(ballot_id));
    return node ? container_of(node, struct round, voting) : NULL;
}

bool quorum_is_above_token(const struct node *node, uint64_t ballot_id) {
    for (struct round *round = NULL;
         (round = quorum_ballot_round(node->quorum, ballot_id, round));) {
        if (round->above & 1u << node->index)
            return true;
    }
    return false;
}

void quorum_end_votes(struct quorum *q, uint64_t ballot_id) {
    struct round *round = quorum_ballot_round(q, ballot_id, NULL);
    while (round) {
        struct round *next = quorum_ballot_round(q, ballot_id, round);
        round->over = true;
        round->kept = false;
        quorum_round_free_if_over(round);
        round = next;
    }
}

void quorum_round_free_if_over(struct round *round) {
    if (round->in_flight || round->kept || !list_empty(&round->link))
        return;
    if (round->clear)
        round->clear(round);
    if (round->ballot_id)
        map_remove(&round->quorum->votes, &round->voting);
    for (size_t i = 0; i < round->quorum->node_count; i++)
        free(round->requests[i].op.text);
    free(round);
}

static bool is_behind(const struct node *node, int64_t now_us) {
    return node->in_flight && now_us - node->silent_us >= node->quorum->node_timeout_us;
}

static bool should_skip(const struct node_request *request) {
    const struct quorum *q = request->round->quorum;
    int type = request->op.type;
    if (!request->node->in_flight ||
        (type != STORE_ACQUIRE && type != STORE_RENEW && type != STORE_RELEASE))
        return false;
    int64_t now_us = quorum_now_us(q);
    size_t others = 0;
    for (size_t i = 0; i < q->node_count; i++)
        others += !is_behind(&q->nodes[i], now_us);
    return is_behind(request->node, now_us) && others >= q->quorum;
}

/* There is nothing to release at a node that was skipped in the ballot. (If only its RAISE was
 * skipped, it has voted before.) */
static void skip(struct node_request *request) {
    struct node *node = request->node;
    struct store_op *op = &request->op;
    uint64_t ballots = node->quorum->ballots;
    uint64_t ballot = ballots - ((ballots - op->seq) & ((1u << BALLOT_BITS) - 1));
    bool was_skipped = node->skipped_since && ballot >= node->skipped_since;
    bool was_asked_to_vote = op->type == STORE_ACQUIRE && request->vote.type == STORE_GIVE;
    if (was_asked_to_vote && ballot == ballots && !node->skipped_since)
        node->skipped_since = ballot;
    store_complete(&node->host, op,
                   op->type == STORE_RELEASE && was_skipped ? STORE_NOT_YOURS : STORE_UNKNOWN);
}

static void submit(struct node_request *request) {
    struct store *store = request->node->store;
    const struct store_voting *voting = store->driver->voting;
    if (request->op.type == STORE_ACQUIRE)
        voting->vote(store, &request->vote);
    else if (request->op.type == STORE_RELEASE && request->quiet)
        voting->give_back(store, &request->op);
    else if (request->op.type == STORE_EXAMINE)
        voting->examine(store, &request->op, request->facts);
    else
        store->driver->submit(store, &request->op);
}

static void ask(struct node_request *request) {
    struct node *node = request->node;
    if (!node->in_flight++)
        node->silent_us = quorum_now_us(node->quorum);
    if (request->op.type == STORE_ACQUIRE)
        node->skipped_since = 0;
    submit(request);
}

void quorum_round_ask(struct round *round, struct node_request *request) {
    assert(!request->in_flight);
    request->in_flight = true;
    round->in_flight++;
    free(request->op.text);
    request->op.text = NULL;
    request->op.reason = 0;
    request->op.outcome = 0;
    request->skipped = round->quorum->ending || should_skip(request);
    if (request->skipped)
        skip(request);
    else
        ask(request);
}

/* Nodes have more time while too few have ever answered: the client must connect to them, and they
 * must learn the scripts. */
static int64_t time_for(const struct quorum *q) {
    size_t met = 0;
    for (size_t i = 0; i < q->node_count; i++)
        met += q->nodes[i].met;
    return met < q->quorum && q->node_timeout_us < COLD_US ? COLD_US : q->node_timeout_us;
}

void quorum_round_ask_all(struct round *round) {
    struct quorum *q = round->quorum;
    quorum_round_await(round, time_for(q));
    for (size_t i = 0; i < q->node_count; i++)
        quorum_round_ask(round, &round->requests[i]);
}

/* The list is sorted by that time. A new round usually comes last. */
void quorum_round_await(struct round *round, int64_t within_us) {
    struct quorum *q = round->quorum;
    round->within_us = within_us;
    round->decide_by_us = quorum_now_us(q) + within_us;
    list_remove(&round->link);
    struct list *after = q->rounds.prev;
    while (after != &q->rounds &&
           container_of(after, struct round, link)->decide_by_us > round->decide_by_us)
        after = after->prev;
    list_insert_before(after->next, &round->link);
    quorum_wake_by(q, round->decide_by_us);
}

struct store_op *quorum_round_decided(struct round *round) {
    struct store_op *op = round->op;
    round->op = NULL;
    list_remove(&round->link);
    return op;
}

void quorum_completed(struct store_host *host, struct store_op *op) {
    struct quorum *q = container_of(host, struct node, host)->quorum;
    list_append(&q->answers, &op->link);
    if (!q->busy)
        world_bell_ring_within(&q->bell);
}

/* Notes the state of the node, which is reported if it falls silent. Only a vote shows that it
 * votes. True if the node itself has answered. */
static bool note_answer(struct node_request *request) {
    const struct store_op *op = &request->op;
    struct node *node = request->node;
    char *why = node->why;
    node->in_flight--;
    if (op->outcome != STORE_UNKNOWN) {
        node->silent_us = quorum_now_us(node->quorum);
        node->skipped_since = 0;
    }
    bool heard = op->outcome != STORE_UNKNOWN && op->reason != HF_UNREACHABLE;
    node->met |= heard;
    bool answered =
        op->outcome != STORE_UNKNOWN && (op->outcome != STORE_REFUSED || op->reason == HF_BUSY ||
                                         op->reason == HF_NOT_YOURS || op->reason == HF_WRONG_KIND);
    if (!answered)
        snprintf(why, sizeof(node->why), "%s",
                 op->text ? op->text : hf_error_string(op->reason ? op->reason : HF_UNREACHABLE));
    else if (op->type == STORE_ACQUIRE)
        why[0] = 0;
    return heard;
}

static void take_answers(struct quorum *q) {
    struct list *first;
    while ((first = list_pop(&q->answers))) {
        struct node_request *request = container_of(first, struct node_request, op.link);
        struct round *round = request->round;
        request->in_flight = false;
        round->in_flight--;
        struct node *node = request->node;
        bool heard = !request->skipped && note_answer(request);
        round->answered(round, request);
        if (!list_empty(&round->link))
            round->decide(round, false);
        quorum_round_free_if_over(round);
        if (heard && node->owed)
            quorum_retry_releases_at(node);
    }
}

void quorum_begin(struct quorum *q) {
    q->busy = true;
}

void quorum_finish(struct quorum *q) {
    take_answers(q);
    q->busy = false;
}

void quorum_bell_rang(struct world_bell *bell) {
    struct quorum *q = container_of(bell, struct quorum, bell);
    quorum_begin(q);
    quorum_finish(q);
}

/* ---- Rounds that may take longer, and those that only read ---- */

void quorum_round_ignore(struct round *round, struct node_request *request) {
    (void)round;
    (void)request;
}

size_t quorum_round_answers(const struct round *round) {
    size_t count = 0;
    for (size_t i = 0; i < round->quorum->node_count; i++)
        count += round->requests[i].op.outcome == STORE_DONE;
    return count;
}

bool quorum_round_waits_on(struct round *round, bool time_is_up, size_t needed, int64_t longer_us) {
    if (!round->in_flight ||
        (time_is_up && (quorum_round_answers(round) >= needed || round->waited)))
        return false;
    if (time_is_up) {
        round->waited = true;
        quorum_round_await(round, longer_us);
    }
    return true;
}

/* ---- Why it failed ---- */

int quorum_round_reason(const struct round *round, size_t least) {
    int best = HF_UNREACHABLE;
    size_t most = least - 1;
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct store_op *op = &round->requests[i].op;
        bool is_taken = op->reason == HF_BUSY || op->reason == HF_NOT_YOURS;
        size_t count = 0;
        for (size_t j = 0; j < round->quorum->node_count; j++) {
            const struct store_op *other = &round->requests[j].op;
            count += other->outcome == STORE_REFUSED && other->reason == op->reason;
        }
        if (op->outcome == STORE_REFUSED && !is_taken && count > most) {
            most = count;
            best = op->reason;
        }
    }
    return best;
}

int quorum_round_final_reason(const struct round *round) {
    const struct quorum *q = round->quorum;
    return quorum_round_reason(round, q->node_count - q->quorum + 1);
}

const char *quorum_request_failure(const struct node_request *request,
                                   char ret[REQUEST_FAILURE_SIZE]) {
    const struct round *round = request->round;
    const struct store_op *op = &request->op;
    const char *before = request->node->why;
    bool time_is_up = quorum_now_us(round->quorum) >= round->decide_by_us;
    bool busy = op->outcome == STORE_REFUSED && op->reason == HF_BUSY;
    ret[0] = 0;
    if (request->skipped || (request->in_flight && time_is_up))
        snprintf(ret, REQUEST_FAILURE_SIZE, "no answer within %" PRId64 " ms%s%s",
                 round->within_us / 1000, *before ? ", and before that: " : "", before);
    else if (request->in_flight && *before)
        snprintf(ret, REQUEST_FAILURE_SIZE, "no answer yet, and before that: %s", before);
    else if (op->outcome == STORE_UNKNOWN || (op->outcome == STORE_REFUSED && !busy))
        snprintf(ret, REQUEST_FAILURE_SIZE, "%s",
                 op->text ? op->text : hf_error_string(op->reason ? op->reason : HF_UNKNOWN));
    return ret;
}

char *quorum_round_explain(const struct round *round, const char *words) {
    char text[1500] = "", failure[REQUEST_FAILURE_SIZE];
    error_append(text, sizeof(text), "%s", words);
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        const struct node_request *request = &round->requests[i];
        if (*quorum_request_failure(request, failure))
            error_append(text, sizeof(text), "; %s: %s", request->node->name, failure);
    }
    return error_format("%s", text);
}
