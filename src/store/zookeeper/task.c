#include "base/error.h"
#include "store/zookeeper/zookeeper.h"

#include <stdlib.h>

struct zk_task *task_new(struct zookeeper *zk, struct store_op *op, zk_step *again) {
    struct zk_task *task = calloc(1, sizeof(*task));
    if (!task) {
        if (op)
            store_refuse(zk->host, op, HF_NO_MEMORY, NULL);
        return NULL;
    }
    task->zk = zk;
    task->op = op;
    task->again = again;
    task->started_us = world_now_us(zk->host->world);
    task->give_up_us = op ? task->started_us + zk->setup.timeout_us : WORLD_NEVER;
    list_append(&zk->tasks, &task->link);
    return task;
}

/* The owner of a refused acquire expects nothing at the server, so it will not release what the
 * acquire has created by then. */
static void settle(struct zk_task *task, enum store_outcome outcome) {
    struct zk_claim *claim = task->claim;
    bool acquires = task->op && task->op->type == STORE_ACQUIRE;
    claim->is_expected |= acquires && outcome != STORE_REFUSED;
    bool stays = (claim->path || claim->may_exist) && !task->zk->is_closing;
    claim_settle(claim);
    if (stays && claim->doomed)
        claim_end_later(claim);
    else if (stays && acquires && !claim->is_expected)
        claim_end(claim);
}

static void end(struct zk_task *task, enum store_outcome outcome, int reason, char *text) {
    struct store_host *host = task->zk->host;
    struct store_op *op = task->op;
    list_remove(&task->link);
    if (task->claim)
        settle(task, outcome);
    if (task->free_work)
        task->free_work(task->work);
    free(task);
    if (!op) {
        free(text);
        return;
    }
    op->reason = reason;
    op->text = text;
    store_complete(host, op, outcome);
}

void task_done(struct zk_task *task, enum store_outcome outcome) {
    end(task, outcome, 0, NULL);
}

void task_refuse(struct zk_task *task, int reason, char *text) {
    end(task, STORE_REFUSED, reason, text);
}

/* An earlier request without a reply may have acted, so "refused" would claim too much. */
static void fail(struct zk_task *task, int reason, char *text) {
    end(task, task->uncertain ? STORE_UNKNOWN : STORE_REFUSED, reason, text);
}

void task_fail(struct zk_task *task, int32_t error) {
    static const struct {
        int32_t error;
        int reason;
    } reasons[] = {
        {ZK_NO_AUTH, HF_DENIED},
        {ZK_AUTH_FAILED, HF_DENIED},
        {ZK_INVALID_ACL, HF_DENIED},
        {ZK_QUOTA, HF_STORE_FULL},
        {ZK_UNIMPLEMENTED, HF_UNSUPPORTED},
        {ZK_EXPIRED, HF_UNREACHABLE},
        {ZK_MOVED, HF_UNREACHABLE},
        {ZK_THROTTLED, HF_UNREACHABLE},
    };
    int reason = HF_BAD_STORE;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].error == error)
            reason = reasons[i].reason;
    }
    const char *text = codec_error_text(error);
    fail(task, reason,
         text ? error_format("%s", text) : error_format("the server's error is %d", (int)error));
}

static char *why(const struct zookeeper *zk) {
    return zk->session.why[0] ? error_format("%s", zk->session.why) : NULL;
}

/* A deletion continues until it is confirmed, but nobody waits for it any longer. */
static void leave_alone(struct zk_task *task) {
    struct zookeeper *zk = task->zk;
    struct store_op *op = task->op;
    task->op = NULL;
    task->give_up_us = WORLD_NEVER;
    op->reason = zk->session.reason;
    op->text = why(zk);
    store_complete(zk->host, op, task->uncertain ? STORE_UNKNOWN : STORE_REFUSED);
}

static void start_over(struct zk_task *task) {
    struct zookeeper *zk = task->zk;
    bool in_time =
        task->give_up_us > world_now_us(zk->host->world) && (task->was_sent || !task->op);
    task->uncertain |= task->was_sent;
    if (zk->is_closing || (!in_time && !(task->claim && task->claim->doomed))) {
        fail(task, zk->session.reason, why(zk));
        return;
    }
    if (!in_time)
        leave_alone(task);
    task->again(task);
}

void task_step(struct zk_task *task, zk_step *next) {
    task->next = next;
    task->pending = 1;
    task->lost = false;
}

struct zk_request *task_request(struct zk_task *task, zk_answered *answered, uint64_t part) {
    struct zk_request *request = zk_request_new(&task->zk->session, answered, task, part);
    if (!request)
        task->no_memory = true;
    return request;
}

void task_send(struct zk_task *task, struct zk_request *request) {
    request->give_up_us = task->give_up_us;
    task->pending++;
    zk_session_submit(&task->zk->session, request);
}

void task_sent(struct zk_task *task) {
    task_answered(task);
}

static void caught_up(struct zk_request *request, const struct codec_header *header,
                      struct codec_in *in) {
    (void)in;
    task_has_reply(request, header);
    task_answered(request->context);
}

/* A write that changes nothing. It has its place in the order of all writes even if it fails
 * because this client may not read the node that it checks. A `sync` would not be enough: a leader
 * answers its own clients at once, while its proposals are still under way, and so does a leader
 * that was replaced and does not know it. */
void task_catch_up(struct zk_task *task) {
    struct zk_request *request = task_request(task, caught_up, 0);
    if (!request)
        return;
    request->writes = true;
    codec_multi_begin(&request->out, request->xid);
    codec_multi_check(&request->out, "/", ANY_VERSION);
    codec_multi_end(&request->out);
    task_send(task, request);
}

bool task_has_reply(struct zk_request *request, const struct codec_header *header) {
    struct zk_task *task = request->context;
    task->was_sent |= request->was_sent;
    /* The session has moved or ended meanwhile: the next connection will show which. */
    bool is_void = !header || header->error == ZK_EXPIRED || header->error == ZK_MOVED;
    task->lost |= is_void;
    return !is_void;
}

void task_answered(struct zk_task *task) {
    if (--task->pending > 0)
        return;
    if (task->no_memory)
        fail(task, HF_NO_MEMORY, NULL);
    else if (task->lost)
        start_over(task);
    else
        task->next(task);
}
