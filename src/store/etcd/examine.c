/* EXAMINE: what the cluster does to locks. It changes nothing: the writes that it measures delete a
 * key that does not exist, which goes through the log all the same. */
#include "store/etcd/etcd.h"
#include "store/findings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES = 10, ALARM_NOSPACE = 1, ALARM_CORRUPT = 2, SPREAD = 4, SMALL_DB = 100 << 20 };

struct examining {
    struct etcd *etcd;
    struct store_op *op;
    hf_examination *out;
    bool no_memory;
    int64_t began_us;
    int64_t us[WRITES];
    size_t writes;
};

/* findings_add, with a note of whether it worked. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

static void finish(struct examining *x) {
    struct etcd *etcd = x->etcd;
    struct store_op *op = x->op;
    op->examination = x->out;
    if (x->out && x->writes)
        findings_measured(x->out, x->us, x->writes);
    bool no_memory = x->no_memory;
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

/* ---- What is found ---- */

/* Versions with faults in what locks rely on. */
static void examine_version(struct examining *x, const char *version) {
    int major = 0, minor = 0, patch = 0;
    sscanf(version, "%d.%d.%d", &major, &minor, &patch);
    if (major < 3 || (major == 3 && minor < 4))
        ADD(x, HF_PROBLEM, "version", "this store needs etcd 3.4 or later", "upgrade etcd",
            "etcd %s", version);
    else if (major == 3 && minor == 5 && patch < 6)
        ADD(x, HF_WARNING, "version",
            "members of 3.5.0 to 3.5.2 may lose data in a crash, and up to 3.5.5 members may come "
            "to "
            "differ: two may hold a lock",
            "upgrade to the last release of 3.5", "etcd %s", version);
    else
        ADD(x, HF_FINE, "version",
            "holdfast is tested with etcd 3.4; a keep-alive that only a deposed leader answered "
            "does "
            "not count",
            "", "etcd %s", version);
}

static void examine_members(struct examining *x, const Etcd__MemberListResponse *members) {
    size_t voters = 0;
    for (size_t i = 0; i < members->n_members; i++)
        voters += !members->members[i]->is_learner;
    if (voters < 3)
        ADD(x, HF_NOTE, "members", "if one member fails, locks are out of reach until it is back",
            "run three or five members", "the cluster has %zu voting members", voters);
    else if (voters % 2 == 0)
        ADD(x, HF_NOTE, "members", "an even number survives no more failures than one less",
            "run three or five members", "the cluster has %zu voting members", voters);
    else
        ADD(x, HF_FINE, "members", "locks stay available while a majority of the members is", "",
            "the cluster has %zu voting members", voters);
}

static void examine_size(struct examining *x, const Etcd__StatusResponse *status) {
    if (status->db_size > SMALL_DB && status->db_size_in_use < status->db_size / SPREAD)
        ADD(x, HF_NOTE, "size",
            "the database is mostly empty pages, and may reach its quota although it is not full",
            "run etcdctl defrag on each member, one after the other",
            "%" PRId64 " MB, of which %" PRId64 " MB are in use", status->db_size >> 20,
            status->db_size_in_use >> 20);
    else
        ADD(x, HF_FINE, "size", "a lock that nobody holds or waits for leaves nothing behind", "",
            "the database has %" PRId64 " kB", status->db_size >> 10);
}

static void examine_alarms(struct examining *x, const Etcd__AlarmResponse *alarms) {
    bool full = false, corrupt = false;
    for (size_t i = 0; i < alarms->n_alarms; i++) {
        full |= alarms->alarms[i]->alarm == ALARM_NOSPACE;
        corrupt |= alarms->alarms[i]->alarm == ALARM_CORRUPT;
    }
    if (corrupt)
        ADD(x, HF_PROBLEM, "alarms", "members disagree about the data: two may hold a lock",
            "restore the cluster, or replace the member that differs",
            "the CORRUPT alarm is raised");
    if (full)
        ADD(x, HF_PROBLEM, "alarms",
            "no lock can be acquired; holds are still renewed and released",
            "compact and defragment, then run etcdctl alarm disarm", "the NOSPACE alarm is raised");
    if (!corrupt && !full)
        ADD(x, HF_FINE, "alarms", "the cluster accepts writes", "", "no alarm is raised");
}

static void examine_access(struct examining *x) {
    if (x->etcd->link.token)
        ADD(x, HF_FINE, "access", "the cluster asks for a user and a password", "",
            "logged in as %s", x->etcd->login.user);
    else if (x->etcd->security.tls)
        ADD(x, HF_FINE, "access", "whoever the cluster accepts over TLS can use its locks", "",
            "over TLS, without a login");
    else
        ADD(x, HF_WARNING, "access", "whoever reaches the port can take and delete locks",
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
    if (call->reason) { /* it may not: then nothing is measured */
        finish(x);
        return;
    }
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

static void alarms_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__AlarmResponse *response =
        call->reason ? NULL : etcd__alarm_response__unpack(NULL, call->message_size, call->message);
    (void)etcd;
    if (response) { /* it takes root's rights, where there are any */
        examine_alarms(x, response);
        etcd__alarm_response__free_unpacked(response, NULL);
    }
    write_once(x);
}

static void members_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__AlarmRequest request = ETCD__ALARM_REQUEST__INIT;
    Etcd__MemberListResponse *response =
        call->reason ? NULL
                     : etcd__member_list_response__unpack(NULL, call->message_size, call->message);
    (void)etcd;
    if (response) {
        examine_members(x, response);
        etcd__member_list_response__free_unpacked(response, NULL);
    }
    ask(x, "/etcdserverpb.Maintenance/Alarm", &request.base, alarms_answered);
}

static void base_answered(struct etcd *etcd, struct etcd_call *call) {
    struct examining *x = call->context;
    Etcd__MemberListRequest request = ETCD__MEMBER_LIST_REQUEST__INIT;
    Etcd__RangeResponse *response =
        call->reason ? NULL : etcd__range_response__unpack(NULL, call->message_size, call->message);
    if (response) { /* it takes the right to use locks */
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
    Etcd__StatusResponse *response =
        call->reason ? NULL
                     : etcd__status_response__unpack(NULL, call->message_size, call->message);
    if (!response) {
        struct store_op *op = x->op;
        free(x);
        etcd_fail(etcd, op, call, false);
        return;
    }
    x->out = findings_new(etcd->store.driver->tier);
    x->no_memory = !x->out;
    if (x->out) {
        examine_version(x, response->version);
        examine_access(x);
        examine_size(x, response);
    }
    etcd__status_response__free_unpacked(response, NULL);
    if (x->no_memory) {
        finish(x);
        return;
    }
    etcd_base_key(etcd, &base);
    request.key = etcd_bytes(&base);
    ask(x, "/etcdserverpb.KV/Range", &request.base, base_answered);
}

void etcd_examine(struct etcd *etcd, struct store_op *op) {
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct examining *x = calloc(1, sizeof(*x));
    if (!x) {
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    x->etcd = etcd;
    x->op = op;
    ask(x, "/etcdserverpb.Maintenance/Status", &request.base, status_answered);
}
