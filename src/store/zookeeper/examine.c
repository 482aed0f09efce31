/* What `holdfast doctor` is told: what the ensemble says about itself to every client. */
#include "base/error.h"
#include "store/findings.h"
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES = 5 };

struct examining {
    hf_examination *out;
    int32_t error;
    unsigned members, observers;
    int64_t us[WRITES], began_us;
    size_t writes;
};

static void free_examining(void *work) {
    struct examining *x = work;
    if (x)
        hf_examination_free(x->out);
    free(x);
}

/* ---- What it means ---- */

static bool add_members(struct examining *x) {
    if (!x->members)
        return findings_add(x->out, HF_NOTE, "members",
                            "if the server fails, locks are out of "
                            "reach until it is back",
                            "run three servers or five",
                            "one server, or its configuration is not shown to this client");
    if (x->members % 2 == 0)
        return findings_add(x->out, HF_NOTE, "members",
                            "an even number of voting members tolerates no more failures than one "
                            "member less",
                            "use an odd number", "%u voting members, %u observers", x->members,
                            x->observers);
    return findings_add(x->out, HF_FINE, "members",
                        "locks stay available while a majority of the members runs", "",
                        "%u voting members, %u observers", x->members, x->observers);
}

static bool add_session(struct examining *x, const struct zk_session *session) {
    int64_t timeout_ms = zk_session_timeout_us(session) / 1000;
    int64_t wanted_ms = session->wanted_timeout_us / 1000;
    if (timeout_ms < wanted_ms)
        return findings_add(
            x->out, HF_NOTE, "session",
            "leases above two fifths of the longest session timeout are cut, and renewed "
            "more often",
            "raise maxSessionTimeout on the servers if locks must survive longer "
            "outages",
            "the longest session timeout is %" PRId64 " ms", timeout_ms);
    return findings_add(x->out, HF_FINE, "session", "the servers grant the session timeout", "",
                        "%" PRId64 " ms were asked for, %" PRId64 " ms granted", wanted_ms,
                        timeout_ms);
}

static bool add_access(struct examining *x, const struct zookeeper *zk) {
    if (zk->acl == ACL_CREATOR)
        return findings_add(x->out, HF_FINE, "access", "only this user can change its locks", "",
                            "new nodes get an ACL for their creator");
    return findings_add(x->out, HF_WARNING, "access",
                        "everybody who reaches the servers can delete locks",
                        "put a user and a password into the URL", "the client does not log in");
}

/* ---- Asking ---- */

static void write_once(struct zk_task *task);

static void finish(struct zk_task *task) {
    struct examining *x = task->work;
    struct zookeeper *zk = task->zk;
    x->out = findings_new("strict");
    bool ok = x->out && add_members(x) && add_session(x, &zk->session) && add_access(x, zk);
    if (!ok) {
        task_refuse(task, HF_NO_MEMORY, NULL);
        return;
    }
    findings_measured(x->out, x->us, x->writes);
    task->op->examination = x->out;
    x->out = NULL;
    task_done(task, STORE_DONE);
}

static void written(struct zk_task *task) {
    struct examining *x = task->work;
    if (x->error) {
        task_fail(task, x->error);
        return;
    }
    x->us[x->writes++] = world_now_us(task->zk->host->world) - x->began_us;
    if (x->writes < WRITES)
        write_once(task);
    else
        finish(task);
}

static void write_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct examining *x = task->work;
    size_t index;
    if (task_has_reply(request, header))
        x->error = header->error ? header->error : codec_multi_result(in, &index);
    task_answered(task);
}

/* A transaction that changes nothing. */
static void write_once(struct zk_task *task) {
    struct examining *x = task->work;
    task_step(task, written);
    struct zk_request *request = task_request(task, write_answered, 0);
    x->began_us = world_now_us(task->zk->host->world);
    if (request) {
        request->writes = true;
        codec_multi_begin(&request->out, request->xid);
        codec_multi_check(&request->out, "/");
        codec_multi_end(&request->out);
        task_send(task, request);
    }
    task_sent(task);
}

/* Lines such as "server.1=host:2888:3888:participant;2181". */
static void note_config(struct examining *x, struct codec_text config) {
    char *text = strndup(config.bytes, config.size);
    for (char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        if (strncmp(line, "server.", 7) != 0)
            continue;
        if (strstr(line, ":observer"))
            x->observers++;
        else
            x->members++;
    }
    free(text);
}

static void config_answered(struct zk_request *request, const struct codec_header *header,
                            struct codec_in *in) {
    struct zk_task *task = request->context;
    if (task_has_reply(request, header) && header->error == ZK_OK)
        note_config(task->work, codec_text(in));
    task_answered(task);
}

static void examine_start(struct zk_task *task) {
    struct examining *x = task->work;
    *x = (struct examining){0};
    task_step(task, write_once);
    struct zk_request *request = task_request(task, config_answered, 0);
    if (request) {
        codec_get_data(&request->out, request->xid, "/zookeeper/config", false);
        task_send(task, request);
    }
    task_sent(task);
}

void zookeeper_examine(struct zookeeper *zk, struct store_op *op) {
    struct zk_task *task = task_new(zk, op, examine_start);
    if (!task)
        return;
    task->work = calloc(1, sizeof(struct examining));
    task->free_work = free_examining;
    if (task->work)
        examine_start(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}
