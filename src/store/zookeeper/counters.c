/* Counters: a node with the number in decimal digits, and for each client that changes it a node
 * with the client's last answer.
 *
 * ZooKeeper cannot add. So both nodes are read, and written in one transaction, provided that both
 * still have the versions that were read. If not, the step is decided again. A request whose reply
 * was lost is recognised by its number in the answer. Every operation except a read writes its
 * answer, even one that changes nothing. If one of its requests, or of an earlier operation's, is
 * still under way, it then finds a different version than it expects, and does nothing.
 *
 * A member may lag behind, and even a leader may have been deposed without knowing it. So nothing
 * that was read counts until the transaction, which a majority has to accept, has confirmed its
 * version. A read of the counter is also such a transaction, one that changes nothing. To confirm
 * that there is no node, it is created and deleted in the same step.
 *
 * If a node is created again, its versions start again, and a request that is under way must not
 * mistake it for the old one. So a counter that is removed leaves its node behind, empty.
 *
 * Answers are persistent nodes. Ephemeral ones would go when the session expires, and a repeat
 * after that would count twice. Now and then a client removes some that are so old that no repeat
 * can ask for them any more (sweep).
 *
 * Counters have no expiry: nodes with a time to live are off unless the ensemble enables them, and
 * such a node lives as long as it keeps being changed. */
#include "base/error.h"
#include "net/backoff.h"
#include "store/counts.h"
#include "store/locks.h"
#include "store/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_US = 1000, PAUSE_DOUBLINGS = 5 };
/* One in SWEEP_ONE_IN counts also sweeps: it looks at some answers, and removes those that are
 * older than SWEEP_AGE_MS. Nodes are dated by the clock of the leader at the time, so that age
 * leaves room for leaders whose clocks differ. */
enum { SWEEP_ONE_IN = 16, SWEEP_ANSWERS = 64, SWEEP_AGE_MS = 5 * STORE_COUNT_KEPT_US / 1000 };

enum part { PART_COUNTER, PART_ANSWER, PART_WRITE, PART_PARENT };

/* A node as it was found. */
struct node {
    char *path;
    int32_t error; /* ZK_OK, ZK_NO_NODE; another: it cannot be read */
    int32_t version;
};

struct counting {
    struct zk_task *task;
    struct world_timer timer;
    struct node counter, answers;
    struct counts_number before, after;
    bool is_number;
    struct counts_answer last, answer; /* the one that was found; the one to write */
    bool last_is_sound;
    int32_t error; /* of the transaction, and which of its operations failed */
    size_t failed;
    unsigned conflicts;
};

static void count_start(struct zk_task *task);

static void free_counting(void *work) {
    struct counting *c = work;
    if (!c)
        return;
    world_timer_drop(c->task->zk->host->world, &c->timer);
    free(c->counter.path);
    free(c->answers.path);
    free(c);
}

/* ---- Old answers ---- */

struct sweeping {
    char *own;   /* the path of this client's answer, just written: its time is now */
    char *paths; /* of others: SWEEP_ANSWERS at most, each with a NUL after it */
    size_t size, count;
    int64_t now_ms, times_ms[SWEEP_ANSWERS]; /* when they were written; 0: not known */
};

static void free_sweeping(void *work) {
    struct sweeping *s = work;
    free(s->own);
    free(s->paths);
    free(s);
}

static void stop_sweeping(struct zk_task *task) {
    task_done(task, STORE_DONE);
}

static void deleted_answered(struct zk_request *request, const struct codec_header *header,
                             struct codec_in *in) {
    (void)in;
    task_has_reply(request, header);
    task_answered(request->context);
}

static void delete_old(struct zk_task *task) {
    struct sweeping *s = task->work;
    const char *path = s->paths;
    task_step(task, stop_sweeping);
    for (size_t i = 0; i < s->count; i++, path += strlen(path) + 1) {
        bool is_old = s->times_ms[i] && s->times_ms[i] + SWEEP_AGE_MS < s->now_ms;
        struct zk_request *request = is_old ? task_request(task, deleted_answered, 0) : NULL;
        if (!request)
            continue;
        codec_delete(&request->out, request->xid, path);
        task_send(task, request);
    }
    task_sent(task);
}

static void time_answered(struct zk_request *request, const struct codec_header *header,
                          struct codec_in *in) {
    struct zk_task *task = request->context;
    struct sweeping *s = task->work;
    if (task_has_reply(request, header) && header->error == ZK_OK) {
        codec_text(in);
        int64_t time_ms = codec_stat(in).mtime_ms;
        if (request->part < s->count)
            s->times_ms[request->part] = time_ms;
        else
            s->now_ms = time_ms;
    }
    task_answered(task);
}

static void ask_time(struct zk_task *task, const char *path, uint64_t part) {
    struct zk_request *request = task_request(task, time_answered, part);
    if (!request)
        return;
    codec_get_data(&request->out, request->xid, path, false);
    task_send(task, request);
}

static void ask_times(struct zk_task *task) {
    struct sweeping *s = task->work;
    const char *path = s->paths;
    task_step(task, delete_old);
    ask_time(task, s->own, s->count);
    for (size_t i = 0; i < s->count; i++, path += strlen(path) + 1)
        ask_time(task, path, i);
    task_sent(task);
}

/* Chooses some of the answers, starting at a random one. */
static void choose(struct zk_task *task, struct codec_in *in) {
    struct sweeping *s = task->work;
    struct zookeeper *zk = task->zk;
    size_t count = codec_count(in), skipped = 0;
    uint64_t random;
    world_random(zk->host->world, &random, sizeof(random));
    if (count > SWEEP_ANSWERS)
        skipped = random % (count - SWEEP_ANSWERS + 1);
    for (size_t i = 0; i < count && s->count < SWEEP_ANSWERS && !in->failed; i++) {
        struct codec_text node = codec_text(in);
        size_t room = s->size + strlen(zk->root) + node.size + sizeof("/counted/");
        char *paths = i < skipped || in->failed ? NULL : realloc(s->paths, room);
        if (!paths)
            continue;
        s->paths = paths;
        s->size += (size_t)snprintf(paths + s->size, room - s->size, "%s/counted/%.*s", zk->root,
                                    (int)node.size, node.bytes) +
                   1;
        s->count++;
    }
}

static void listed(struct zk_request *request, const struct codec_header *header,
                   struct codec_in *in) {
    struct zk_task *task = request->context;
    if (task_has_reply(request, header) && header->error == ZK_OK)
        choose(task, in);
    task_answered(task);
}

/* Nobody waits for this; the next sweep removes what this one leaves. */
static void sweep(struct zookeeper *zk, const char *own) {
    struct sweeping *s = calloc(1, sizeof(*s));
    struct zk_task *task = s ? task_new(zk, NULL, stop_sweeping) : NULL;
    if (!task) {
        free(s);
        return;
    }
    task->work = s;
    task->free_work = free_sweeping;
    s->own = strdup(own);
    char *parent = error_format("%s/counted", zk->root);
    task_step(task, ask_times);
    task->no_memory |= !s->own || !parent;
    struct zk_request *request = task->no_memory ? NULL : task_request(task, listed, 0);
    if (request) {
        codec_get_children(&request->out, request->xid, parent, false);
        task_send(task, request);
    }
    free(parent);
    task_sent(task);
}

/* ---- The end ---- */

static void complete(struct zk_task *task, const struct counts_answer *given) {
    struct counting *c = task->work;
    struct zookeeper *zk = task->zk;
    struct store_op *op = task->op;
    struct counts_answer answer = *given;
    uint8_t random;
    world_random(zk->host->world, &random, sizeof(random));
    if (op->kind != STORE_COUNT_GET && random % SWEEP_ONE_IN == 0)
        sweep(zk, c->answers.path);
    task->op = NULL; /* it is completed here */
    task_done(task, STORE_DONE);
    counts_complete(zk->host, op, &answer, -1);
}

/* It was not done now, but an earlier request without a reply may have done it. */
static void give_up(struct zk_task *task, int reason, const char *why) {
    char *text = error_format("%s", why);
    if (!task->uncertain) {
        task_refuse(task, reason, text);
        return;
    }
    struct store_host *host = task->zk->host;
    struct store_op *op = task->op;
    task->op = NULL;
    task_done(task, STORE_UNKNOWN);
    op->reason = reason;
    op->text = text;
    store_complete(host, op, STORE_UNKNOWN);
}

/* ---- Parents ---- */

static void parents_created(struct zk_task *task) {
    struct counting *c = task->work;
    if (c->error == ZK_OK)
        count_start(task);
    else
        task_fail(task, c->error);
}

static void parent_answered(struct zk_request *request, const struct codec_header *header,
                            struct codec_in *in) {
    struct zk_task *task = request->context;
    struct counting *c = task->work;
    (void)in;
    /* A node above them may exist although we may not create it. */
    if (task_has_reply(request, header) && request->part == PART_PARENT &&
        header->error != ZK_NODE_EXISTS && c->error == ZK_OK)
        c->error = header->error;
    task_answered(task);
}

static void create_parent(struct zk_task *task, const char *path, enum part part) {
    struct zk_request *request = task_request(task, parent_answered, part);
    if (!request)
        return;
    request->writes = true;
    codec_create(&request->out, request->xid, path, "", task->zk->acl);
    task_send(task, request);
}

/* Creates the parents of both nodes, and everything above them, from the root down. */
static void create_parents(struct zk_task *task) {
    struct counting *c = task->work;
    char *counters = error_format("%s/counters", task->zk->root),
         *counted = error_format("%s/counted", task->zk->root);
    c->error = ZK_OK;
    task_step(task, parents_created);
    task->no_memory |= !counters || !counted;
    for (char *slash = task->no_memory ? NULL : strchr(counters + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        create_parent(task, counters, PART_COUNTER);
        *slash = '/';
    }
    if (!task->no_memory) {
        create_parent(task, counters, PART_PARENT);
        create_parent(task, counted, PART_PARENT);
    }
    free(counters);
    free(counted);
    task_sent(task);
}

/* ---- The transaction ---- */

static void pause_over(struct world_timer *timer) {
    task_answered(container_of(timer, struct counting, timer)->task);
}

static void cancel_pause(struct zk_task *task) {
    struct counting *c = task->work;
    if (!c->timer.node.place)
        return;
    world_timer_clear(task->zk->host->world, &c->timer);
    task->lost = true;
    task_answered(task);
}

/* Another client was faster. After the first time, clients pause, each for a random time, so that
 * they do not keep colliding. */
static void collided(struct zk_task *task) {
    struct counting *c = task->work;
    struct world *world = task->zk->host->world;
    unsigned doublings = c->conflicts < PAUSE_DOUBLINGS ? c->conflicts : PAUSE_DOUBLINGS;
    int64_t until_us = world_now_us(world) + net_jitter_us(world, PAUSE_US << doublings);
    if (++c->conflicts == 1) {
        count_start(task);
    } else if (until_us >= task->give_up_us) {
        give_up(task, HF_UNREACHABLE, "other clients kept changing the counter");
    } else {
        task_step(task, count_start); /* it is pending until the timer fires */
        world_timer_set(world, &c->timer, until_us);
    }
}

static void was_written(struct zk_task *task) {
    struct counting *c = task->work;
    bool creates = c->failed ? c->answers.error == ZK_NO_NODE : c->counter.error == ZK_NO_NODE;
    if (c->error == ZK_OK)
        complete(task, &c->answer);
    else if (c->error == ZK_NO_NODE && creates)
        create_parents(task);
    else if (c->error == ZK_NO_NODE || c->error == ZK_NODE_EXISTS || c->error == ZK_BAD_VERSION)
        collided(task);
    else
        task_fail(task, c->error);
}

/* Confirms the counter as it was found, or changes it. */
static void put_counter(struct counting *c, struct codec_out *out, enum codec_acl acl) {
    char number[COUNTS_NUMBER_SIZE] = "";
    bool changes =
        c->is_number && (c->after.exists != c->before.exists || c->after.value != c->before.value);
    if (c->after.exists)
        counts_write_number(c->after.value, number);
    if (c->counter.error == ZK_NO_NODE) {
        codec_multi_create(out, c->counter.path, number, acl);
        if (!c->after.exists)
            codec_multi_delete(out, c->counter.path);
    } else if (changes) {
        codec_multi_set_data(out, c->counter.path, number, c->counter.version);
    } else {
        codec_multi_check(out, c->counter.path, c->counter.version);
    }
}

static void put_answer(struct counting *c, struct codec_out *out, enum codec_acl acl) {
    char answer[COUNTS_ANSWER_SIZE];
    counts_write_answer(&c->answer, answer);
    if (c->answers.error == ZK_NO_NODE)
        codec_multi_create(out, c->answers.path, answer, acl);
    else
        codec_multi_set_data(out, c->answers.path, answer, c->answers.version);
}

static void count_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in);

static void write_both(struct zk_task *task) {
    struct counting *c = task->work;
    task_step(task, was_written);
    struct zk_request *request = task_request(task, count_answered, PART_WRITE);
    if (request) {
        request->writes = true;
        codec_multi_begin(&request->out, request->xid);
        put_counter(c, &request->out, task->zk->acl);
        if (task->op->kind != STORE_COUNT_GET)
            put_answer(c, &request->out, task->zk->acl);
        codec_multi_end(&request->out);
        task_send(task, request);
    }
    task_sent(task);
}

/* ---- What is there ---- */

static void decide(struct zk_task *task) {
    struct counting *c = task->work;
    c->answer = counts_step(task->op, c->before, &c->after);
    if (!c->is_number)
        c->answer = (struct counts_answer){.seq = task->op->seq, .reason = HF_WRONG_KIND};
}

static void were_read(struct zk_task *task) {
    struct counting *c = task->work;
    int32_t error = c->counter.error ? c->counter.error : c->answers.error;
    bool writes = task->op->kind != STORE_COUNT_GET;
    if (error != ZK_OK && error != ZK_NO_NODE) {
        task_fail(task, error);
    } else if (!c->last_is_sound) {
        give_up(task, HF_BAD_STORE, "this client's last answer cannot be read");
    } else if (c->counter.version == ANY_VERSION || c->answers.version == ANY_VERSION) {
        give_up(task, HF_BAD_STORE, "its node has been changed 2^32 times");
    } else if (writes && c->last.seq == task->op->seq) {
        complete(task, &c->last);
    } else if (writes && c->last.seq > task->op->seq) {
        task->uncertain = true;
        give_up(task, HF_OK, "this client has taken a later step");
    } else {
        decide(task);
        write_both(task);
    }
}

static void note_counter(struct counting *c, struct codec_text data) {
    c->before = (struct counts_number){.exists = data.size > 0};
    c->is_number = !data.size || counts_read_number(data.bytes, data.size, &c->before.value);
}

static void note_answer(struct counting *c, struct codec_text data) {
    c->last_is_sound = counts_read_answer(data.bytes, data.size, &c->last);
}

static void note_node(struct node *node, const struct codec_header *header, struct codec_in *in,
                      struct codec_text *ret_data) {
    node->error = header->error;
    if (header->error != ZK_OK)
        return;
    *ret_data = codec_text(in);
    node->version = codec_stat(in).version;
}

static void count_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct counting *c = task->work;
    struct codec_text data = {0};
    if (!task_has_reply(request, header)) {
        task_answered(task);
        return;
    }
    if (request->part == PART_COUNTER) {
        note_node(&c->counter, header, in, &data);
        note_counter(c, data);
    } else if (request->part == PART_ANSWER) {
        note_node(&c->answers, header, in, &data);
        if (header->error == ZK_OK)
            note_answer(c, data);
    } else {
        c->error = header->error ? header->error : codec_multi_result(in, &c->failed);
    }
    task->lost |= in->failed;
    task_answered(task);
}

static void read_node(struct zk_task *task, const struct node *node, enum part part) {
    struct zk_request *request = task_request(task, count_answered, part);
    if (!request)
        return;
    codec_get_data(&request->out, request->xid, node->path, false);
    task_send(task, request);
}

static void count_start(struct zk_task *task) {
    struct counting *c = task->work;
    c->counter.version = c->answers.version = 0;
    c->answers.error = ZK_OK;
    c->last = (struct counts_answer){0};
    c->last_is_sound = true;
    task_step(task, were_read);
    read_node(task, &c->counter, PART_COUNTER);
    if (task->op->kind != STORE_COUNT_GET)
        read_node(task, &c->answers, PART_ANSWER);
    task_sent(task);
}

/* ---- The operation ---- */

static bool make_paths(struct counting *c, const struct zookeeper *zk, const char *name) {
    char node[NAMES_LOCK_SIZE], owner[LOCKS_OWNER_SIZE];
    names_encode(name, node);
    locks_format_owner(zk->host->identity.id, 0, owner);
    c->counter.path = error_format("%s/counters/%s", zk->root, node);
    c->answers.path = error_format("%s/counted/%.32s-%s", zk->root, owner, node);
    return c->counter.path && c->answers.path;
}

void zookeeper_count(struct zookeeper *zk, struct store_op *op) {
    if (op->lease_us) {
        store_refuse(zk->host, op, HF_UNSUPPORTED,
                     error_format("counters in ZooKeeper have no expiry: its nodes with a time to "
                                  "live are off by default, and live on while they are changed"));
        return;
    }
    struct zk_task *task = task_new(zk, op, count_start);
    if (!task)
        return;
    struct counting *c = calloc(1, sizeof(*c));
    if (!c || world_timer_add(zk->host->world, &c->timer, pause_over) < 0) {
        free(c);
        task_refuse(task, HF_NO_MEMORY, NULL);
        return;
    }
    c->task = task;
    task->work = c;
    task->free_work = free_counting;
    task->cancel = cancel_pause;
    if (make_paths(c, zk, op->name))
        count_start(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}
