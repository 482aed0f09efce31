/* Acquire.
 *
 * A claim is an ephemeral sequential node below the lock's node, with a unique id in its name. The
 * claims on a lock hold it from the first on, as many as fit; the others wait. So a claim that was
 * once among those that fit stays there: claims before it can only go, and new ones come after it.
 *
 * A grant needs no write of its own. The create (or, after a wait, a check that the node exists) is
 * a write, whose answer determines the session's deadline, and the list is requested together with
 * it. A server that lags behind may show claims that are already gone, but never one too few. So an
 * attempt that does not wait is refused only after the server has caught up.
 *
 * Each waiter has one watch: a writer on the claim before it, a reader on the last writer before
 * it. A claim that waits for permits behind other waiters watches the one before it, which changes
 * its node when it takes its permits. The first claim that waits for permits watches the lock's
 * children, since any holder may make room for it. So one change wakes one waiter.
 *
 * A token is the transaction that created the node (czxid) plus the token base, which is read after
 * the claim was seen to hold. The claim before it was deleted in a transaction that is part of that
 * view, and its owner had read the base before; so the base that is read is at least as large. The
 * base is written into the node before the grant counts, unless it is there already, since it may
 * be raised while the lock is held. */
#include "base/error.h"
#include "store/zookeeper/look.h"
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 20 }; /* of one request, while others change the same lock */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

enum {
    PART_CREATE,
    PART_CHECK,
    PART_OWN,
    PART_CHILDREN,
    PART_BASE,
    PART_FIND,
    PART_WATCH,
    PART_PLAIN
};

struct acquiring {
    struct names_claim *claims;
    size_t count;
    int32_t error;          /* of the step's first request */
    int32_t children_error; /* ZK_NO_NODE: there is no such lock */
    int32_t base_error, base_version;
    uint64_t base;
    unsigned rounds;
    bool peeked;    /* the lock looked free */
    bool caught_up; /* what it saw is not older than the request */
    bool has_base;  /* the last step read the base, and wrote: the session's deadline is recent */
    bool was_taken; /* the claim that it waits for has taken its permits */
    bool is_old;    /* the claim's node belongs to an earlier session */
    int refusal;    /* withdrawing: why */
    char *text;
};

static void free_acquiring(void *work) {
    struct acquiring *a = work;
    if (!a)
        return;
    free(a->claims);
    free(a->text);
    free(a);
}

static void acquire_start(struct zk_task *task);
static void judge(struct zk_task *task);

static void note_created(struct zk_task *task, const struct codec_header *header,
                         struct codec_in *in) {
    struct zk_claim *claim = task->claim;
    struct codec_text path = codec_text(in);
    struct codec_stat stat = codec_stat(in);
    if (header->error != ZK_OK)
        return;
    claim->path = in->failed ? NULL : strndup(path.bytes, path.size);
    claim->czxid = stat.czxid;
    claim->may_exist = !claim->path;
    task->no_memory |= !claim->path;
}

static void note_own(struct zk_task *task, const struct codec_header *header, struct codec_in *in) {
    struct acquiring *a = task->work;
    if (header->error != ZK_OK)
        return;
    task->claim->base = look_base(codec_text(in));
    struct codec_stat stat = codec_stat(in);
    task->claim->czxid = stat.czxid;
    a->is_old = stat.owner != task->zk->session.id.id;
}

static void note_children(struct zk_task *task, struct codec_in *in) {
    struct acquiring *a = task->work;
    free(a->claims);
    a->claims = NULL;
    a->count = 0;
    if (names_read_claims(task->zk->layout, in, &a->claims, &a->count) < 0)
        task->no_memory = true;
}

static void note_base(struct zk_task *task, const struct codec_header *header,
                      struct codec_in *in) {
    struct acquiring *a = task->work;
    struct codec_text text = codec_text(in);
    a->base_version = codec_stat(in).version;
    a->base_error = header->error;
    a->base = task->zk->base = header->error == ZK_OK ? look_number(text) : 0;
}

static void acquire_answered(struct zk_request *request, const struct codec_header *header,
                             struct codec_in *in) {
    struct zk_task *task = request->context;
    struct acquiring *a = task->work;
    size_t index;
    if (!task_has_reply(request, header)) {
        if (request->part == PART_CREATE)
            task->claim->may_exist |= request->was_sent;
        task_answered(task);
        return;
    }
    switch (request->part) {
    case PART_CREATE:
        a->error = header->error;
        note_created(task, header, in);
        break;
    case PART_CHECK:
        a->error = header->error ? header->error : codec_multi_result(in, &index);
        break;
    case PART_OWN:
        note_own(task, header, in);
        break;
    case PART_CHILDREN:
        a->children_error = header->error;
        if (header->error == ZK_OK)
            note_children(task, in);
        break;
    case PART_BASE:
        note_base(task, header, in);
        break;
    case PART_FIND:
        task->no_memory |= !claim_found(task->claim, header, in);
        break;
    case PART_WATCH:
        a->error = header->error;
        codec_text(in);
        a->was_taken = header->error == ZK_OK && codec_stat(in).version > 0;
        break;
    default:
        if (header->error != ZK_OK && header->error != ZK_NODE_EXISTS)
            a->error = header->error;
    }
    task_answered(task);
}

static void ask_children(struct zk_task *task, bool watch) {
    struct zk_request *request = task_request(task, acquire_answered, PART_CHILDREN);
    if (request) {
        codec_get_children(&request->out, request->xid, task->claim->lock, watch);
        task_send(task, request);
    }
}

static void ask_base(struct zk_task *task) {
    if (task->zk->layout->is_foreign)
        return; /* there is none */
    struct zk_request *request = task_request(task, acquire_answered, PART_BASE);
    char *path = zookeeper_base_path(task->zk);
    task->no_memory |= !path;
    if (request && path) {
        codec_get_data(&request->out, request->xid, path, false);
        task_send(task, request);
    } else {
        free(request);
    }
    free(path);
}

static void parents_created(struct zk_task *task) {
    struct acquiring *a = task->work;
    /* A parent may exist although we may not create it. What matters is the last one, the lock's
     * node. */
    if (a->error == ZK_OK)
        acquire_start(task);
    else
        task_fail(task, a->error);
}

static void parent_answered(struct zk_request *request, const struct codec_header *header,
                            struct codec_in *in) {
    struct zk_task *task = request->context;
    struct acquiring *a = task->work;
    (void)in;
    if (task_has_reply(request, header))
        a->error = header->error == ZK_NODE_EXISTS ? ZK_OK : header->error;
    task_answered(task);
}

/* Creates the parents of the lock's node that are missing, from the root down, and the node. */
static void create_parents(struct zk_task *task) {
    struct zookeeper *zk = task->zk;
    char *path = strdup(task->claim->lock);
    task_step(task, parents_created);
    task->no_memory |= !path;
    for (char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        struct zk_request *request = task_request(task, parent_answered, PART_PLAIN);
        if (!request)
            break;
        if (slash)
            *slash = 0;
        request->writes = true;
        if (slash || zk->layout->keeps_locks)
            codec_create(&request->out, request->xid, path, "", zk->acl);
        else
            codec_create_container(&request->out, request->xid, path, zk->acl);
        if (slash)
            *slash = '/';
        task_send(task, request);
    }
    free(path);
    task_sent(task);
}

static void created(struct zk_task *task) {
    struct acquiring *a = task->work;
    if (a->error == ZK_NO_NODE) {
        create_parents(task);
    } else if (a->error != ZK_OK) {
        task_fail(task, a->error);
    } else {
        a->has_base = true;
        judge(task);
    }
}

static void create(struct zk_task *task) {
    struct zookeeper *zk = task->zk;
    struct zk_claim *claim = task->claim;
    char *path = error_format("%s/%s", claim->lock, claim->prefix);
    char *data = look_format_party(zk->host, task->op, zk->base);
    claim->base = zk->base;
    task_step(task, created);
    struct zk_request *request = task_request(task, acquire_answered, PART_CREATE);
    task->no_memory |= !path || !data;
    if (request && path && data) {
        request->writes = true;
        codec_create_claim(&request->out, request->xid, path, data, zk->acl);
        task_send(task, request);
        ask_children(task, false);
        ask_base(task);
    } else {
        free(request);
    }
    free(path);
    free(data);
    task_sent(task);
}

/* There may be another claim with the same id, of an earlier session: a leader that was replaced
 * may report that a session has expired, while its successor keeps the session for another
 * timeout. */
static struct names_claim *own_of(const struct zk_task *task) {
    const struct acquiring *a = task->work;
    const char *node = task->claim->path ? strrchr(task->claim->path, '/') + 1 : "";
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->claims[i].node, node) == 0)
            return &a->claims[i];
    }
    return NULL;
}

/* A create was sent and not answered: a member that has caught up knows whether it was done. */
static void find(struct zk_task *task) {
    task_step(task, acquire_start);
    task_catch_up(task);
    struct zk_request *list = task_request(task, acquire_answered, PART_FIND);
    if (list) {
        codec_get_children(&list->out, list->xid, task->claim->lock, false);
        task_send(task, list);
    }
    task_sent(task);
}

static void asked(struct zk_task *task) {
    struct acquiring *a = task->work;
    if (a->error == ZK_NO_NODE || a->children_error == ZK_NO_NODE || a->is_old) {
        claim_forget_node(task->claim); /* somebody has deleted it, or will */
        acquire_start(task);
    } else if (a->error != ZK_OK || a->children_error != ZK_OK) {
        task_fail(task, a->error ? a->error : a->children_error);
    } else {
        judge(task);
    }
}

/* Looks at the queue: with a write, so that the answer may be a grant; or without, if it is
 * unlikely that anything has changed. */
static void ask(struct zk_task *task, bool write) {
    struct acquiring *a = task->work;
    struct zk_claim *claim = task->claim;
    task_step(task, asked);
    claim->woken = a->is_old = false;
    a->error = ZK_OK;
    a->has_base = write;
    struct zk_request *request = write ? task_request(task, acquire_answered, PART_CHECK) : NULL;
    if (request) {
        request->writes = true;
        codec_multi_begin(&request->out, request->xid);
        codec_multi_check(&request->out, claim->path, ANY_VERSION);
        codec_multi_end(&request->out);
        task_send(task, request);
    }
    if (!claim->czxid && (request = task_request(task, acquire_answered, PART_OWN))) {
        codec_get_data(&request->out, request->xid, claim->path, false);
        task_send(task, request);
    }
    ask_children(task, false);
    if (write)
        ask_base(task);
    task_sent(task);
}

/* The claim must not stay in the queue. */
static void withdrawn(struct zk_task *task) {
    struct acquiring *a = task->work;
    if (a->error != ZK_OK && a->error != ZK_NO_NODE) {
        task_fail(task, a->error);
        return;
    }
    int refusal = a->refusal;
    char *text = a->text;
    a->text = NULL;
    claim_forget_node(task->claim);
    task_refuse(task, refusal, text);
}

static void withdraw(struct zk_task *task, int refusal, char *text) {
    struct acquiring *a = task->work;
    free(a->text);
    a->refusal = refusal;
    a->text = text;
    a->error = ZK_OK;
    task_step(task, withdrawn);
    struct zk_request *request = task_request(task, acquire_answered, PART_PLAIN);
    if (request) {
        codec_delete(&request->out, request->xid, task->claim->path);
        task_send(task, request);
    }
    task_sent(task);
}

static void ignore_answer(struct zk_request *request, const struct codec_header *header,
                          struct codec_in *in) {
    (void)request, (void)header, (void)in;
}

/* For a claim that waited for permits: those after it may also fit, now that this one does. */
static void announce_taken(struct zk_claim *claim, const struct store_op *op) {
    struct zookeeper *zk = claim->zk;
    char *data = look_format_party(zk->host, op, claim->base);
    struct zk_request *request = zk_request_new(&zk->session, ignore_answer, NULL, 0);
    if (data && request) {
        request->give_up_us = WORLD_NEVER;
        codec_set_data(&request->out, request->xid, claim->path, data, ANY_VERSION);
        zk_session_submit(&zk->session, request);
    } else {
        free(request); /* waiters ask again now and then */
    }
    free(data);
}

static void raised(struct zk_task *task) {
    struct acquiring *a = task->work;
    if (a->error != ZK_OK && a->error != ZK_BAD_VERSION && a->error != ZK_NO_NODE)
        task_fail(task, a->error);
    else
        acquire_start(task); /* this reads it again */
}

/* Raises the token base, so that this claim's token reaches the floor. */
static void raise_base(struct zk_task *task) {
    struct zookeeper *zk = task->zk;
    struct acquiring *a = task->work;
    char *path = zookeeper_base_path(zk), data[32];
    snprintf(data, sizeof(data), "%" PRIu64, zk->host->token_floor - (uint64_t)task->claim->czxid);
    a->error = ZK_OK;
    task_step(task, raised);
    struct zk_request *request = task_request(task, acquire_answered, PART_PLAIN);
    task->no_memory |= !path;
    if (path && request) {
        request->writes = true;
        if (a->base_error == ZK_NO_NODE)
            codec_create(&request->out, request->xid, path, data, zk->acl);
        else
            codec_set_data(&request->out, request->xid, path, data, a->base_version);
        task_send(task, request);
    } else {
        free(request);
    }
    free(path);
    task_sent(task);
}

static void grant(struct zk_task *task);

static void base_written(struct zk_task *task) {
    struct acquiring *a = task->work;
    if (a->error == ZK_NO_NODE) {
        claim_forget_node(task->claim); /* somebody has deleted it */
        acquire_start(task);
    } else if (a->error != ZK_OK) {
        task_fail(task, a->error);
    } else {
        task->claim->base = a->base;
        grant(task);
    }
}

/* Writes into the node which base its token is counted from. */
static void write_base(struct zk_task *task) {
    struct acquiring *a = task->work;
    char *data = look_format_party(task->zk->host, task->op, a->base);
    a->error = ZK_OK;
    task_step(task, base_written);
    struct zk_request *request = task_request(task, acquire_answered, PART_PLAIN);
    task->no_memory |= !data;
    if (data && request) {
        request->writes = true;
        codec_set_data(&request->out, request->xid, task->claim->path, data, ANY_VERSION);
        task_send(task, request);
    } else {
        free(request);
    }
    free(data);
    task_sent(task);
}

static void grant(struct zk_task *task) {
    struct acquiring *a = task->work;
    struct zk_claim *claim = task->claim;
    struct store_op *op = task->op;
    if (a->base_error != ZK_OK && a->base_error != ZK_NO_NODE) {
        task_fail(task, a->base_error);
        return;
    }
    uint64_t token = (uint64_t)claim->czxid + a->base;
    if (token < task->zk->host->token_floor) {
        raise_base(task);
        return;
    }
    if (token >= STORE_TOKEN_LIMIT) {
        withdraw(task, HF_BAD_STORE, error_format("the token would not be below 2^53"));
        return;
    }
    if (claim->base != a->base) {
        write_base(task);
        return;
    }
    op->token = token;
    op->lease_us = claim_lease_us(task, op->lease_us);
    claim_hold_until(claim, task->started_us + op->lease_us);
    zk_watch_clear(&task->zk->session, &claim->ahead);
    if (op->kind == STORE_PERMITS && claim->waited)
        announce_taken(claim, op);
    task_done(task, STORE_DONE);
}

static void queue(struct zk_task *task) {
    struct acquiring *a = task->work;
    const struct names_claim *own = own_of(task);
    struct store_op *op = task->op;
    bool is_head = names_holders(a->claims, a->count) == (size_t)(own - a->claims);
    int64_t timeout_us = zk_session_timeout_us(&task->zk->session);
    op->flags = (uint8_t)(is_head ? STORE_HEAD : 0);
    op->left_us = min(timeout_us, task->zk->host->max_lease_us);
    task->claim->waited = true;
    task_done(task, STORE_QUEUED);
}

static void watched(struct zk_task *task) {
    struct acquiring *a = task->work;
    struct zk_claim *claim = task->claim;
    const struct names_claim *own = own_of(task);
    bool has_left = a->error == ZK_NO_NODE || a->children_error == ZK_NO_NODE || !own;
    bool fits = own && (size_t)(own - a->claims) < names_holders(a->claims, a->count);
    if (!has_left && !fits && !(a->was_taken && !claim->ahead.of_children)) {
        queue(task);
        return;
    }
    zk_watch_clear(&task->zk->session, &claim->ahead);
    claim->woken = true;
    acquire_start(task);
}

/* Waits for the claim that is in the way. A watch that is set already stays. */
static void watch(struct zk_task *task, size_t own) {
    struct acquiring *a = task->work;
    struct zk_claim *claim = task->claim;
    size_t before = own - 1;
    bool first = own == names_holders(a->claims, a->count);
    bool of_children = task->op->kind == STORE_PERMITS && first;
    while (a->claims[own].weight == 1 && task->op->kind == STORE_LOCK && before > 0 &&
           a->claims[before].weight == 1 && a->claims[before].kind == STORE_LOCK)
        before--;
    char *path = of_children ? strdup(claim->lock)
                             : error_format("%s/%s", claim->lock, a->claims[before].node);
    if (path && claim->ahead.path && strcmp(path, claim->ahead.path) == 0) {
        free(path);
        queue(task);
        return;
    }
    a->error = a->children_error = ZK_OK;
    a->was_taken = false;
    task_step(task, watched);
    claim->ahead.of_children = of_children;
    task->no_memory |= !path || !zk_watch_set(&task->zk->session, &claim->ahead, path);
    if (!task->no_memory && of_children) {
        ask_children(task, true);
    } else if (!task->no_memory) {
        struct zk_request *request = task_request(task, acquire_answered, PART_WATCH);
        if (request) {
            codec_get_data(&request->out, request->xid, path, true);
            task_send(task, request);
        }
    }
    free(path);
    task_sent(task);
}

static bool is_other_kind(const struct names_claim *claim, const struct store_op *op) {
    return claim->is_unknown || claim->kind != op->kind || claim->capacity != op->capacity;
}

static char *describe_kind(const struct zk_task *task, const struct names_claim *claim) {
    return claim->is_unknown
               ? error_format("%s is not a claim of layout=%s", claim->node, task->zk->layout->word)
               : store_describe_kind((enum store_kind)claim->kind, claim->capacity);
}

/* What the list of claims means for this one. */
static void judge(struct zk_task *task) {
    struct acquiring *a = task->work;
    struct store_op *op = task->op;
    const struct names_claim *own = own_of(task);
    if (++a->rounds > ROUNDS_MAX) {
        task_refuse(task, HF_UNREACHABLE, error_format("other clients kept changing the lock"));
        return;
    }
    if (!own) {
        claim_forget_node(task->claim); /* somebody has deleted it */
        acquire_start(task);
        return;
    }
    size_t place = (size_t)(own - a->claims);
    const struct names_claim *first = a->claims;
    if (is_other_kind(first, op)) {
        withdraw(task, HF_WRONG_KIND, describe_kind(task, first));
    } else if (place < names_holders(a->claims, a->count)) {
        if (a->has_base)
            grant(task);
        else
            ask(task, true);
    } else if (op->flags & STORE_WAIT) {
        watch(task, place);
    } else {
        op->left_us = min(zk_session_timeout_us(&task->zk->session), task->zk->host->max_lease_us);
        op->flags = 0;
        withdraw(task, HF_BUSY, NULL);
    }
}

static void peek(struct zk_task *task);

/* Checks whether a claim that does not wait would be granted: creating it in vain costs two
 * writes. */
static void peeked(struct zk_task *task) {
    struct acquiring *a = task->work;
    struct store_op *op = task->op;
    uint64_t weight = op->weight;
    const struct names_claim *first = a->count ? a->claims : NULL;
    for (size_t i = 0; i < a->count; i++)
        weight += a->claims[i].weight;
    bool is_other = first && is_other_kind(first, op);
    if (weight <= op->capacity && !is_other) {
        a->peeked = true;
        acquire_start(task);
        return;
    }
    if (!a->caught_up) {
        a->caught_up = true;
        peek(task);
        return;
    }
    op->left_us = min(zk_session_timeout_us(&task->zk->session), task->zk->host->max_lease_us);
    op->flags = 0;
    task_refuse(task, is_other ? HF_WRONG_KIND : HF_BUSY,
                is_other ? describe_kind(task, first) : NULL);
}

static void peek(struct zk_task *task) {
    struct acquiring *a = task->work;
    a->count = 0;
    task_step(task, peeked);
    if (a->caught_up)
        task_catch_up(task);
    ask_children(task, false);
    task_sent(task);
}

static void acquire_start(struct zk_task *task) {
    struct acquiring *a = task->work;
    struct zk_claim *claim = task->claim;
    bool tries = !(task->op->flags & STORE_WAIT);
    a->children_error = a->base_error = a->error = ZK_OK;
    if (claim->path)
        ask(task, claim->woken || tries);
    else if (claim->may_exist)
        find(task);
    else if (tries && !a->peeked)
        peek(task);
    else
        create(task);
}

void zookeeper_acquire(struct zookeeper *zk, struct store_op *op) {
    if (op->flags & STORE_BARGE) {
        store_refuse(
            zk->host, op, HF_UNSUPPORTED,
            error_format("locks in ZooKeeper are granted in the order of the queue: nobody "
                         "can barge in"));
        return;
    }
    struct zk_claim *claim = claim_find(zk, op->seq);
    if (claim && claim->doomed) {
        store_refuse(zk->host, op, HF_UNREACHABLE,
                     error_format("the claim of an earlier request is still being deleted"));
        return;
    }
    /* After a renewal, two fifths of the session's timeout can be counted on: see session.c. */
    if (!zk_session_timeout_us(&zk->session))
        zk->session.wanted_timeout_us = op->lease_us * 5 / 2;
    struct zk_task *task = task_new(zk, op, acquire_start);
    if (!task)
        return;
    task->work = calloc(1, sizeof(struct acquiring));
    task->free_work = free_acquiring;
    task->claim = claim ? claim : claim_new(zk, op);
    if (task->claim)
        task->claim->task = task;
    if (task->work && task->claim)
        acquire_start(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}
