/* What `holdfast doctor` reports: what the ensemble tells every client about itself, and what its
 * members answer to four-letter words, as far as those are enabled. */
#include "base/error.h"
#include "store/findings.h"
#include "store/zookeeper/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES = 5, FEW_CONNECTIONS = 10, NAMES_SIZE = 300 };

struct examining {
    hf_examination *out;
    int32_t error;
    unsigned members, observers;
    struct words words;
    int64_t us[WRITES], began_us;
    size_t writes;
};

static void free_examining(void *work) {
    struct examining *x = work;
    if (!x)
        return;
    words_drop(&x->words);
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
                            "member fewer",
                            "use an odd number", "%u voting members, %u observer%s", x->members,
                            x->observers, x->observers == 1 ? "" : "s");
    return findings_add(x->out, HF_FINE, "members",
                        "locks stay available while a majority of the members runs", "",
                        "%u voting member%s, %u observer%s", x->members, x->members == 1 ? "" : "s",
                        x->observers, x->observers == 1 ? "" : "s");
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

static void append_member(char names[NAMES_SIZE], const struct world_peer *peer) {
    error_append(names, NAMES_SIZE, "%s%s:%u", *names ? ", " : "", peer->host, peer->port);
}

/* A member that runs answers every word, if only with "not in the whitelist". */
static bool add_silent(struct examining *x, const struct zk_session_setup *setup) {
    char silent[NAMES_SIZE] = "";
    for (size_t i = 0; i < setup->peer_count; i++) {
        const char *text = words_of(&x->words, i, WORDS_SRVR);
        if (!*text || strstr(text, "not currently serving"))
            append_member(silent, &setup->peers[i]);
    }
    if (!*silent)
        return findings_add(x->out, HF_FINE, "serving", "each of them can serve this client", "",
                            "all members of the URL serve");
    return findings_add(x->out, HF_WARNING, "serving",
                        "fewer of the other members may fail before locks are out of reach",
                        "start them, or correct the URL", "not serving: %s", silent);
}

/* ---- Versions ---- */

struct version {
    int major, minor, patch;
};

static bool read_version(const char *srvr, struct version *ret) {
    const char *text = strstr(srvr, "version: ");
    return text && sscanf(text, "version: %d.%d.%d", &ret->major, &ret->minor, &ret->patch) == 3;
}

static bool is_before(const struct version *version, int major, int minor, int patch) {
    return version->major != major   ? version->major < major
           : version->minor != minor ? version->minor < minor
                                     : version->patch < patch;
}

struct flaw {
    hf_severity severity;
    bool of_ensembles;
    const char *means, *fix;
};

static const struct flaw *flaw_of(const struct version *v) {
    static const struct flaw no_containers = {
        HF_PROBLEM, false, "this store needs ZooKeeper 3.5.3 or later, for container nodes",
        "upgrade ZooKeeper"};
    static const struct flaw ghosts = {
        HF_WARNING, false,
        "after a restart, a member may still show claims of sessions that have ended "
        "(ZOOKEEPER-3144), and such a lock is never free",
        "upgrade to ZooKeeper 3.8.5 or 3.9.4, or later"};
    static const struct flaw losses = {
        HF_WARNING, true,
        "after an election, a member may lose transactions that a majority had acknowledged "
        "(ZOOKEEPER-4785), including locks",
        "upgrade to ZooKeeper 3.8.5 or 3.9.4, or later, unless your distribution has the fix"};
    static const struct flaw holes = {
        HF_WARNING, true,
        "a member that was behind may pass on a history with a gap (ZOOKEEPER-4925), which affects "
        "locks as well",
        "upgrade to ZooKeeper 3.9.4 or later"};
    if (is_before(v, 3, 5, 3))
        return &no_containers;
    if (is_before(v, 3, 6, 0))
        return &ghosts;
    if (is_before(v, 3, 8, 5) || (!is_before(v, 3, 9, 0) && is_before(v, 3, 9, 2)))
        return &losses;
    return !is_before(v, 3, 9, 3) && is_before(v, 3, 9, 4) ? &holes : NULL;
}

/* Among the members that report their version, finds the one with the worst. */
static bool add_version(struct examining *x, const struct zk_session_setup *setup) {
    struct version worst = {0}, version;
    const struct flaw *flaw = NULL;
    for (size_t i = 0; i < setup->peer_count; i++) {
        if (!read_version(words_of(&x->words, i, WORDS_SRVR), &version))
            continue;
        const struct flaw *of_this = flaw_of(&version);
        if (of_this && of_this->of_ensembles && x->members < 2)
            of_this = NULL;
        if (!worst.major || (of_this && (!flaw || of_this->severity > flaw->severity))) {
            worst = version;
            flaw = of_this;
        }
    }
    if (!worst.major)
        return findings_add(x->out, HF_NOTE, "version", "cannot check for known bugs", "",
                            "the servers do not report their version");
    return findings_add(x->out, flaw ? flaw->severity : HF_FINE, "version",
                        flaw ? flaw->means : "no bug of this version is known that affects locks",
                        flaw ? flaw->fix : "", "ZooKeeper %d.%d.%d", worst.major, worst.minor,
                        worst.patch);
}

/* ---- Limits ---- */

/* Followers abandon a silent leader after syncLimit ticks; a single server has no followers. */
static bool add_ticks(struct examining *x, const struct zk_session *session, const char *conf) {
    int64_t tick_ms = words_number(conf, "tickTime="), sync = words_number(conf, "syncLimit=");
    int64_t least_ms = words_number(conf, "minSessionTimeout=");
    int64_t lease_ms = zk_session_timeout_us(session) / 1000 * 2 / 5;
    if (tick_ms <= 0)
        return findings_add(x->out, HF_NOTE, "ticks",
                            "leases cannot be compared with the servers' tick time and sync limit",
                            "permit conf in 4lw.commands.whitelist",
                            "the servers do not report their configuration");
    if (least_ms < 2 * tick_ms)
        return findings_add(
            x->out, HF_WARNING, "ticks",
            "if a member is cut off from its leader, a lock with a short lease may be held twice "
            "for a moment",
            "remove minSessionTimeout, or set it to two ticks or more",
            "minSessionTimeout is %" PRId64 " ms, and a tick is %" PRId64 " ms", least_ms, tick_ms);
    if (sync <= 0)
        return findings_add(x->out, HF_FINE, "ticks", "session timeouts are two ticks or more", "",
                            "a tick is %" PRId64 " ms", tick_ms);
    bool is_short = lease_ms <= sync * tick_ms;
    return findings_add(
        x->out, is_short ? HF_WARNING : HF_FINE, "ticks",
        is_short ? "when a leader falls silent, every hold is lost before another is elected"
                 : "locks with a longer lease outlast a leader that falls silent",
        is_short ? "lower tickTime or syncLimit, or raise maxSessionTimeout" : "",
        "a silent leader is given up after %" PRId64 " ms (syncLimit %" PRId64 ", tickTime %" PRId64
        " ms); the longest lease is %" PRId64 " ms",
        sync * tick_ms, sync, tick_ms, lease_ms);
}

static bool add_connections(struct examining *x, const char *conf) {
    int64_t most = words_number(conf, "maxClientCnxns=");
    if (most <= 0) /* it is not known, or there is no limit */
        return true;
    bool is_few = most < FEW_CONNECTIONS;
    return findings_add(x->out, is_few ? HF_NOTE : HF_FINE, "connections",
                        "each client keeps one connection open, and more from one address than "
                        "this are refused",
                        is_few ? "raise maxClientCnxns" : "",
                        "%" PRId64 " connection%s for each address", most, most == 1 ? "" : "s");
}

static bool add_limits(struct examining *x, const struct zookeeper *zk) {
    const char *conf = "";
    for (size_t i = 0; i < zk->setup.peer_count && words_number(conf, "tickTime=") < 0; i++)
        conf = words_of(&x->words, i, WORDS_CONF);
    return add_ticks(x, &zk->session, conf) && add_connections(x, conf);
}

/* ---- Asking ---- */

static void write_once(struct zk_task *task);

static void finish(struct zk_task *task) {
    struct examining *x = task->work;
    struct zookeeper *zk = task->zk;
    x->out = findings_new("strict");
    bool ok = x->out && add_version(x, &zk->setup) && add_members(x) && add_silent(x, &zk->setup) &&
              add_session(x, &zk->session) && add_limits(x, zk) && add_access(x, zk);
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
        codec_multi_check(&request->out, "/", ANY_VERSION);
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
    words_drop(&x->words);
    *x = (struct examining){0};
    task_step(task, write_once);
    words_ask(&x->words, task);
    struct zk_request *request = task_request(task, config_answered, 0);
    if (request) {
        codec_get_data(&request->out, request->xid, "/zookeeper/config", false);
        task_send(task, request);
    }
    task_sent(task);
}

static void examine_cancel(struct zk_task *task) {
    words_cancel(&((struct examining *)task->work)->words);
}

void zookeeper_examine(struct zookeeper *zk, struct store_op *op) {
    struct zk_task *task = task_new(zk, op, examine_start);
    if (!task)
        return;
    task->work = calloc(1, sizeof(struct examining));
    task->free_work = free_examining;
    task->cancel = task->work ? examine_cancel : NULL;
    if (task->work)
        examine_start(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}
