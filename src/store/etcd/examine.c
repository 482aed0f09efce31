/* EXAMINE: what the cluster means for locks. It changes nothing: the writes that it measures delete
 * a key that does not exist, which still goes through the log.
 *
 * Each member of the URL is asked for its status, over a separate connection. About elections, etcd
 * reports only the raft term, which each election raises. So a change of leader is seen only if it
 * happens during the examination. */
#include "base/error.h"
#include "store/etcd/etcd.h"
#include "store/findings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WRITES = 10,
    SPREAD = 4,
    SMALL_DB = 100 << 20,
    TEXT_SIZE = 1200,
    TEXT_MAX = TEXT_SIZE - 100
};

struct version {
    int major, minor, patch;
};

struct member {
    struct examining *x;
    Etcd__StatusResponse *status; /* NULL: it did not answer */
};

struct examining {
    struct etcd *etcd;
    struct store_op *op;
    hf_examination *out;
    struct member *members; /* one for each host of the URL, and the one that was asked first */
    size_t count;
    size_t waiting; /* how many of them have not answered */
    uint64_t term;  /* at the last write; 0: none was answered */
    bool no_memory;
    int64_t began_us;
    int64_t us[WRITES];
    size_t writes;
};

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

static void examine_statuses(struct examining *x);

/* The status of the member that was asked first: without it, nothing is examined. */
static const Etcd__StatusResponse *first_status(const struct examining *x) {
    return x->members[x->etcd->host_count].status;
}

static void finish(struct examining *x) {
    struct etcd *etcd = x->etcd;
    struct store_op *op = x->op;
    if (!x->no_memory)
        examine_statuses(x);
    op->examination = x->out;
    if (x->out && x->writes)
        findings_measured(x->out, x->us, x->writes);
    bool no_memory = x->no_memory;
    for (size_t i = 0; i < x->count; i++) {
        if (x->members[i].status)
            etcd__status_response__free_unpacked(x->members[i].status, NULL);
    }
    free(x->members);
    free(x);
    if (!no_memory) {
        store_complete(etcd->host, op, STORE_DONE);
        return;
    }
    op->examination = hf_examination_free(op->examination);
    store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
}

static void ask(struct examining *x, const char *path, const ProtobufCMessage *request,
                etcd_answered *answered) {
    struct etcd_call *call = etcd_call_new(path, request, answered, x);
    x->began_us = etcd_now_us(x->etcd);
    if (call) {
        etcd_send(x->etcd, call, x->began_us + x->etcd->timeout_us);
        return;
    }
    x->no_memory = true;
    finish(x);
}

/* ---- Versions ---- */

/* Bugs in features that locks rely on, from etcd's change logs: the release of 3.4, 3.5 and 3.6 in
 * which each was fixed; 0: it never had the bug. */
static const struct bug {
    int mended[3];
    const char *effect;
} bugs[] = {
    {{8, 0, 0}, "members may come to differ if users log in, so two may hold a lock"},
    {{0, 3, 0}, "members may come to differ after a crash, so two may hold a lock"},
    {{0, 6, 0}, "members may come to differ after a crash while they are defragmented"},
    {{38, 23, 5}, "a member that is defragmented while it catches up may damage its data"},
    {{42, 28, 9},
     "a read may be stale when a leader was paused or replaced, so two may hold a lock"},
    {{31, 13, 0}, "a leader that was replaced may end leases that are alive, so locks are lost"},
    {{32, 14, 0}, "a crash in a compaction may move revisions back, and tokens with them"},
};

static struct version read_version(const char *text) {
    struct version version = {0};
    sscanf(text, "%d.%d.%d", &version.major, &version.minor, &version.patch);
    return version;
}

static bool is_older(const char *one, const char *other) {
    struct version a = read_version(one), b = read_version(other);
    return a.major != b.major   ? a.major < b.major
           : a.minor != b.minor ? a.minor < b.minor
                                : a.patch < b.patch;
}

static void examine_bugs(struct examining *x, const char *text, const struct version *version) {
    char effects[TEXT_SIZE] = "", fix[100];
    int mended = 0;
    for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
        int fixed = version->minor <= 6 ? bugs[i].mended[version->minor - 4] : 0;
        if (version->patch >= fixed)
            continue;
        error_append(effects, sizeof(effects), "%s%s", *effects ? "; " : "", bugs[i].effect);
        mended = fixed > mended ? fixed : mended;
    }
    snprintf(fix, sizeof(fix), "upgrade etcd to 3.%d.%d or later", version->minor, mended);
    if (*effects)
        ADD(x, HF_WARNING, "version", effects, fix, "etcd %s", text);
    else
        ADD(x, HF_FINE, "version", "it has no fault that is known to affect locks", "", "etcd %s",
            text);
}

/* Reports the version of the oldest member. */
static void examine_version(struct examining *x) {
    const char *text = first_status(x)->version;
    for (size_t i = 0; i < x->count; i++) {
        const Etcd__StatusResponse *status = x->members[i].status;
        if (status && is_older(status->version, text))
            text = status->version;
    }
    struct version version = read_version(text);
    if (version.major < 3 || (version.major == 3 && version.minor < 4))
        ADD(x, HF_PROBLEM, "version", "this store needs etcd 3.4 or later", "upgrade etcd",
            "etcd %s", text);
    else if (version.major == 3)
        examine_bugs(x, text, &version);
    else
        ADD(x, HF_NOTE, "version", "holdfast has not been tested with this version", "", "etcd %s",
            text);
}

/* ---- Members ---- */

static void examine_members(struct examining *x, const Etcd__MemberListResponse *members) {
    size_t voters = 0;
    for (size_t i = 0; i < members->n_members; i++)
        voters += !members->members[i]->is_learner;
    if (voters < 3)
        ADD(x, HF_NOTE, "members", "if one member fails, locks are out of reach until it is back",
            "run three or five members", "the cluster has %zu voting members", voters);
    else if (voters % 2 == 0)
        ADD(x, HF_NOTE, "members", "an even number survives no more failures than one member fewer",
            "run three or five members", "the cluster has %zu voting members", voters);
    else
        ADD(x, HF_FINE, "members", "locks stay available while a majority of the members is", "",
            "the cluster has %zu voting members", voters);
}

static const char *complaint_about(const Etcd__StatusResponse *status) {
    return !status              ? "does not answer"
           : status->is_learner ? "is a learner, which serves nobody"
           : !status->leader    ? "has no leader"
                                : NULL;
}

static void examine_serving(struct examining *x) {
    char text[TEXT_SIZE] = "";
    for (size_t i = 0; i < x->etcd->host_count; i++) {
        const struct world_peer *peer = &x->etcd->peers[i];
        const char *complaint = complaint_about(x->members[i].status);
        if (complaint && strlen(text) < TEXT_MAX)
            error_append(text, sizeof(text), "%s%s:%u %s", *text ? ", " : "", peer->host,
                         (unsigned)peer->port, complaint);
    }
    if (*text)
        ADD(x, HF_WARNING, "serving",
            "fewer of the other members may fail before locks are out of reach",
            "start them, look at their logs, or correct the URL", "%s", text);
    else
        ADD(x, HF_FINE, "serving", "each of them can serve this client", "",
            "all members of the URL serve");
}

static void examine_leader(struct examining *x) {
    const Etcd__StatusResponse *first = first_status(x);
    uint64_t last = x->term > first->raft_term ? x->term : first->raft_term;
    for (size_t i = 0; i < x->etcd->host_count; i++) {
        const Etcd__StatusResponse *status = x->members[i].status;
        last = status && status->raft_term > last ? status->raft_term : last;
    }
    if (last > first->raft_term)
        ADD(x, HF_WARNING, "leader",
            "requests wait for each election; a leader that changes often makes leases run out",
            "look for slow disks, lost heartbeats or a busy machine; see --election-timeout",
            "the leader changed while doctor looked: from raft term %" PRIu64 " to %" PRIu64,
            first->raft_term, last);
    else
        ADD(x, HF_FINE, "leader",
            "each election raises the term: if it is higher the next time, the leader has changed",
            "", "raft term %" PRIu64, last);
}

/* ---- The database ---- */

/* Reports the member that would gain most from defragmentation. */
static void examine_size(struct examining *x) {
    const Etcd__StatusResponse *worst = first_status(x);
    for (size_t i = 0; i < x->count; i++) {
        const Etcd__StatusResponse *status = x->members[i].status;
        if (status &&
            status->db_size - status->db_size_in_use > worst->db_size - worst->db_size_in_use)
            worst = status;
    }
    if (worst->db_size > SMALL_DB && worst->db_size_in_use < worst->db_size / SPREAD)
        ADD(x, HF_NOTE, "size",
            "the database is mostly empty pages, and may reach its quota although it is not full",
            "run etcdctl defrag on each member, one after the other",
            "%" PRId64 " MB, of which %" PRId64 " MB are in use", worst->db_size >> 20,
            worst->db_size_in_use >> 20);
    else
        ADD(x, HF_FINE, "size", "a lock that nobody holds or waits for leaves nothing behind", "",
            "the database has %" PRId64 " kB", worst->db_size >> 10);
}

static bool has_alarm(const struct examining *x, const char *name) {
    for (size_t i = 0; i < x->count; i++) {
        const Etcd__StatusResponse *status = x->members[i].status;
        for (size_t j = 0; status && j < status->n_errors; j++) {
            if (strstr(status->errors[j], name))
                return true;
        }
    }
    return false;
}

static void examine_alarms(struct examining *x) {
    if (has_alarm(x, "CORRUPT"))
        ADD(x, HF_PROBLEM, "alarms", "members disagree about the data: two may hold a lock",
            "restore the cluster, or replace the member that differs",
            "the CORRUPT alarm is raised");
    else if (has_alarm(x, "NOSPACE"))
        ADD(x, HF_PROBLEM, "alarms",
            "no lock can be acquired; holds are still renewed and released",
            "compact and defragment, then run etcdctl alarm disarm", "the NOSPACE alarm is raised");
    else
        ADD(x, HF_FINE, "alarms", "the cluster accepts writes", "", "no alarm is raised");
}

static void examine_statuses(struct examining *x) {
    examine_version(x);
    examine_serving(x);
    examine_leader(x);
    examine_alarms(x);
    examine_size(x);
}

/* ---- The client ---- */

static void examine_access(struct examining *x) {
    if (x->etcd->link.token)
        ADD(x, HF_FINE, "access", "the cluster asks for a user and a password", "",
            "logged in as %s", x->etcd->login.user);
    else if (x->etcd->security.tls)
        ADD(x, HF_FINE, "access", "any client that the cluster accepts over TLS can use its locks",
            "", "over TLS, without a login");
    else
        ADD(x, HF_WARNING, "access", "anybody who reaches the port can take and delete locks",
            "enable authentication, or client certificates (docs/stores/etcd.md)",
            "in plaintext, without a login");
}

static void examine_tokens(struct examining *x) {
    ADD(x, HF_NOTE, "tokens",
        "tokens are revisions: restoring an old snapshot of the cluster moves them back",
        "after restoring, open a client with a token_floor above the last token that was used",
        "the token base is %" PRIu64, x->etcd->base);
}

/* ---- Asking ---- */

static void write_once(struct examining *x);

static void written(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__DeleteRangeResponse *response =
        call->reason ? NULL
                     : etcd__delete_range_response__unpack(NULL, call->message_size, call->message);
    if (!response) { /* not permitted: nothing is measured */
        finish(x);
        return;
    }
    x->term = response->header ? response->header->raft_term : 0;
    etcd__delete_range_response__free_unpacked(response, NULL);
    x->us[x->writes++] = etcd_now_us(etcd) - x->began_us;
    write_once(x);
}

static void write_once(struct examining *x) {
    Etcd__DeleteRangeRequest request = ETCD__DELETE_RANGE_REQUEST__INIT;
    struct etcd_key key;
    if (x->writes == WRITES) {
        finish(x);
        return;
    }
    etcd_break_key(x->etcd, "", &key);
    request.key = etcd_bytes(&key);
    ask(x, "/etcdserverpb.KV/DeleteRange", &request.base, written);
}

static Etcd__StatusResponse *read_status(const struct etcd_call *call) {
    return call->reason ? NULL
                        : etcd__status_response__unpack(NULL, call->message_size, call->message);
}

static void member_answered(struct etcd *etcd, struct etcd_call *call) {
    struct member *member = call->context;
    struct examining *x = member->x;
    member->status = read_status(call);
    etcd_probe_done(etcd, (size_t)(member - x->members));
    if (--x->waiting == 0)
        write_once(x);
}

/* Asks each member of the URL. */
static void ask_members(struct examining *x) {
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    x->waiting = 1; /* until all are asked */
    for (size_t i = 0; i < x->etcd->host_count; i++) {
        struct etcd_call *call = etcd_call_new("/etcdserverpb.Maintenance/Status", &request.base,
                                               member_answered, &x->members[i]);
        x->members[i].x = x;
        x->no_memory |= !call || !etcd_probe(x->etcd, i, call);
        x->waiting += call && !x->no_memory;
        if (x->no_memory)
            break;
    }
    if (--x->waiting == 0)
        write_once(x);
}

static void members_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__MemberListResponse *response =
        call->reason ? NULL
                     : etcd__member_list_response__unpack(NULL, call->message_size, call->message);
    (void)etcd;
    if (response) {
        examine_members(x, response);
        etcd__member_list_response__free_unpacked(response, NULL);
    }
    ask_members(x);
}

static void base_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__MemberListRequest request = ETCD__MEMBER_LIST_REQUEST__INIT;
    Etcd__RangeResponse *response =
        call->reason ? NULL : etcd__range_response__unpack(NULL, call->message_size, call->message);
    if (response) { /* only a user who may use locks may read it */
        etcd_note_base(etcd, response);
        examine_tokens(x);
        etcd__range_response__free_unpacked(response, NULL);
    }
    ask(x, "/etcdserverpb.Cluster/MemberList", &request.base, members_answered);
}

static void status_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    struct etcd_key base;
    x->members[etcd->host_count].status = read_status(call);
    if (!x->members[etcd->host_count].status) {
        struct store_op *op = x->op;
        free(x->members);
        free(x);
        etcd_fail(etcd, op, call, false);
        return;
    }
    x->out = findings_new(etcd->store.driver->tier);
    x->no_memory = !x->out;
    if (x->no_memory) {
        finish(x);
        return;
    }
    examine_access(x);
    etcd_base_key(etcd, &base);
    request.key = etcd_bytes(&base);
    ask(x, "/etcdserverpb.KV/Range", &request.base, base_answered);
}

void etcd_examine(struct etcd *etcd, struct store_op *op) {
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct examining *x = calloc(1, sizeof(*x));
    struct member *members = calloc(etcd->host_count + 1, sizeof(*members));
    if (!x || !members) {
        free(x);
        free(members);
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    x->etcd = etcd;
    x->op = op;
    x->members = members;
    x->count = etcd->host_count + 1;
    ask(x, "/etcdserverpb.Maintenance/Status", &request.base, status_answered);
}
