/* Release: a claim is deleted, whether it holds or waits. Nobody else could do that while this
 * client's session lives. So once a release was requested (or a hold has ended because it was not
 * renewed), the deletion is tried again on every connection until the ensemble confirms it or the
 * session ends, even if nobody waits for it any more. */
#include "store/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

struct releasing {
    int32_t error;
};

static void released(struct zk_task *task) {
    int32_t error = ((struct releasing *)task->work)->error;
    if (error != ZK_OK && error != ZK_NO_NODE) {
        task_fail(task, error);
        return;
    }
    claim_forget_node(task->claim);
    /* If the reply to an earlier request was lost, that request may be why the node is gone. */
    task_done(task, error == ZK_OK    ? STORE_DONE
                    : task->uncertain ? STORE_UNKNOWN
                                      : STORE_NOT_YOURS);
}

static void release_answered(struct zk_request *request, const struct codec_header *header,
                             struct codec_in *in) {
    struct zk_task *task = request->context;
    (void)in;
    if (task_has_reply(request, header))
        ((struct releasing *)task->work)->error = header->error;
    task_answered(task);
}

static void release_start(struct zk_task *task);

static void searched(struct zk_task *task) {
    release_start(task);
}

static void search_answered(struct zk_request *request, const struct codec_header *header,
                            struct codec_in *in) {
    struct zk_task *task = request->context;
    if (task_has_reply(request, header) && (header->error == ZK_OK || header->error == ZK_NO_NODE))
        task->no_memory |= !claim_found(task->claim, header, in);
    task_answered(task);
}

/* A create was sent and not answered: a member that has caught up knows whether it was done. */
static void search(struct zk_task *task) {
    task_step(task, searched);
    task_catch_up(task);
    struct zk_request *list = task_request(task, search_answered, 0);
    if (list) {
        codec_get_children(&list->out, list->xid, task->claim->lock, false);
        task_send(task, list);
    }
    task_sent(task);
}

static void release_start(struct zk_task *task) {
    struct zk_claim *claim = task->claim;
    if (!claim->path && !claim->may_exist) {
        task_done(task, task->uncertain ? STORE_UNKNOWN : STORE_NOT_YOURS);
        return;
    }
    if (!claim->path) {
        search(task);
        return;
    }
    task_step(task, released);
    struct zk_request *request = task_request(task, release_answered, 0);
    if (request) {
        request->writes = true;
        codec_delete(&request->out, request->xid, claim->path);
        task_send(task, request);
    }
    task_sent(task);
}

static void start(struct zk_claim *claim, struct store_op *op) {
    claim->doomed = true;
    claim->until_us = 0;
    struct zk_task *task = task_new(claim->zk, op, release_start);
    if (!task) {
        claim_end_later(claim);
        return;
    }
    claim->task = task;
    task->claim = claim;
    task->work = calloc(1, sizeof(struct releasing));
    task->free_work = free;
    if (task->work)
        release_start(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}

void claim_end(struct zk_claim *claim) {
    start(claim, NULL);
}

void zookeeper_release(struct zookeeper *zk, struct store_op *op) {
    struct zk_claim *claim = claim_find(zk, op->seq);
    if (!claim) {
        store_complete(zk->host, op, STORE_NOT_YOURS);
    } else if (claim->task) { /* a task is already deleting it, and nobody waits for that */
        claim->task->op = op;
        claim->task->give_up_us = world_now_us(zk->host->world) + zk->setup.timeout_us;
    } else {
        start(claim, op);
    }
}
