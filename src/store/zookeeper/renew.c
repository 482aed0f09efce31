/* Renew: one write that checks that the nodes of all these holds exist. Its answer moves the
 * session's deadline (session.c), and with it that of each hold. */
#include "store/zookeeper/zookeeper.h"

#include <stdlib.h>

struct renewing {
    int32_t error;
    size_t failed; /* which check failed */
    size_t count;
    uint64_t seqs[]; /* in the order of the operation's list; 0: it has its outcome, and no check */
};

static void renew_start(struct zk_task *task);

/* The node of the hold whose check failed is gone. It may have been reported and dropped while the
 * answer was under way. False: there was no such check. */
static bool drop_failed(struct zk_task *task) {
    struct renewing *r = task->work;
    size_t place = 0, checks = 0;
    while (place < r->count && (!r->seqs[place] || checks++ < r->failed))
        place++;
    if (place == r->count)
        return false;
    struct zk_claim *claim = claim_find(task->zk, r->seqs[place]);
    if (claim) {
        claim_forget_node(claim);
        if (!claim->task)
            claim_settle(claim);
    }
    return true;
}

static void renewed(struct zk_task *task) {
    struct renewing *r = task->work;
    struct store_op *op = task->op;
    if (r->error == ZK_NO_NODE && drop_failed(task)) {
        renew_start(task); /* without this one */
        return;
    }
    if (r->error != ZK_OK) {
        task_fail(task, r->error);
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        struct zk_claim *claim = r->seqs[i] ? claim_find(task->zk, r->seqs[i]) : NULL;
        op->renewals[i].outcome = STORE_NOT_YOURS;
        if (!claim || !claim->path || claim->doomed)
            continue;
        op->renewals[i].outcome = STORE_DONE;
        op->renewals[i].lease_us = claim_lease_us(task, op->renewals[i].lease_us);
        claim_hold_until(claim, task->started_us + op->renewals[i].lease_us);
        if (!claim->own.path)
            claim_watch(claim);
    }
    task_done(task, STORE_DONE);
}

static void renew_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct renewing *r = task->work;
    if (task_has_reply(request, header))
        r->error = header->error ? header->error : codec_multi_result(in, &r->failed);
    task_answered(task);
}

/* A hold that is not among the checks is not ours (any more). */
static void renew_start(struct zk_task *task) {
    struct renewing *r = task->work;
    struct zk_request *request = task_request(task, renew_answered, 0);
    size_t checks = 0;
    r->error = ZK_OK;
    task_step(task, renewed);
    if (request)
        codec_multi_begin(&request->out, request->xid);
    for (size_t i = 0; request && i < r->count; i++) {
        struct zk_claim *claim = r->seqs[i] ? claim_find(task->zk, r->seqs[i]) : NULL;
        if (claim && claim->path && !claim->doomed) {
            codec_multi_check(&request->out, claim->path, ANY_VERSION);
            checks++;
        } else {
            task->op->renewals[i].outcome = STORE_NOT_YOURS;
            r->seqs[i] = 0;
        }
    }
    if (request && checks) {
        request->writes = true;
        codec_multi_end(&request->out);
        task_send(task, request);
    } else if (request) {
        codec_out_free(&request->out);
        free(request);
    }
    task_sent(task);
}

void zookeeper_renew(struct zookeeper *zk, struct store_op *op) {
    struct zk_task *task = task_new(zk, op, renew_start);
    if (!task)
        return;
    struct renewing *r = calloc(1, sizeof(*r) + op->renewal_count * sizeof(r->seqs[0]));
    task->work = r;
    task->free_work = free;
    if (!r) {
        task_refuse(task, HF_NO_MEMORY, NULL);
        return;
    }
    r->count = op->renewal_count;
    for (size_t i = 0; i < op->renewal_count; i++) {
        const struct store_op *of = op->renewals[i].of;
        r->seqs[i] = of ? of->seq : 0;
    }
    renew_start(task);
}
