#include "store/redis/deployment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16384, MASTERS_MAX = 1024, LAG_ODD_S = 5 };

static const char stricter[] =
    "for \"timed\": use one server without fail-over, with appendonly yes and appendfsync always "
    "(redis://); in any case pass tokens to whatever you write to. wait_replicas= makes a loss "
    "rarer, not impossible";

void deployment_init(struct deployment *d) {
    *d = (struct deployment){.known = -1, .quorum = -1, .min_replicas = -1};
}

void deployment_free(struct deployment *d) {
    free(d->cluster_info);
    free(d->cluster_nodes);
}

static int64_t field_of(const struct reply *reply, const char *key) {
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        if (reply_is(reply_at(reply, i), key))
            return reply_number(reply_at(reply, i + 1), -1);
    }
    return -1;
}

void deployment_note_sentinel(struct deployment *d, const struct reply *reply, bool is_refused) {
    if (!reply || (reply->type != REPLY_ARRAY && !is_refused))
        return;
    d->answering++;
    if (is_refused)
        return;
    int64_t others = field_of(reply, "num-other-sentinels"), quorum = field_of(reply, "quorum");
    if (others >= 0 && others + 1 > d->known)
        d->known = others + 1;
    if (quorum > d->quorum)
        d->quorum = quorum;
}

/* ---- Sentinels ---- */

static bool report_known(const struct deployment *d, hf_examination *to) {
    bool too_few = d->answering * 2 <= d->sentinels || d->known < 3;
    bool all = d->answering == d->sentinels;
    bool ok = findings_add(
        to, too_few || !all ? HF_WARNING : HF_FINE, "sentinels",
        too_few
            ? "fewer than three, or fewer than half of them, cannot agree on a new master when it "
              "matters"
            : "most of them agree on a new master, and notify everybody who holds or waits",
        too_few ? "run three sentinels, each on its own host, and list all of them in the URL"
        : all   ? ""
                : "find out why the others do not answer",
        "%zu of the %zu sentinels in the URL answer; they know of %" PRId64
        ", and a quorum of %" PRId64 " declares the master down",
        d->answering, d->sentinels, d->known, d->quorum);
    if (ok && d->known > (int64_t)d->sentinels)
        ok = findings_add(to, HF_NOTE, "sentinels-url", "those in the URL decide who the master is",
                          "name all of them", "there are %" PRId64 " sentinels, and %zu in the URL",
                          d->known, d->sentinels);
    return ok;
}

static bool report_sentinels(const struct deployment *d, hf_examination *to) {
    bool ok = d->known >= 0
                  ? report_known(d, to)
                  : findings_add(
                        to, d->answering < d->sentinels ? HF_WARNING : HF_NOTE, "sentinels",
                        "how many there are, and how many must agree, cannot be seen",
                        "permit it to the user who runs doctor, on each sentinel: +sentinel|master",
                        "%zu of the %zu sentinels in the URL answer; SENTINEL MASTER is not "
                        "permitted",
                        d->answering, d->sentinels);
    if (!ok || !(d->lacks_ping || d->lacks_subscribe || d->lacks_channel))
        return ok;
    char lacks[64], fix[400];
    snprintf(lacks, sizeof(lacks), "%s%s%s", d->lacks_subscribe ? " +subscribe" : "",
             d->lacks_channel ? " &+switch-master" : "", d->lacks_ping ? " +ping" : "");
    snprintf(fix, sizeof(fix), "ACL SETUSER %.255s%s, at each sentinel", d->sentinel_user, lacks);
    return findings_add(to, HF_WARNING, "sentinel-rights",
                        "a switch is noticed only when the old master's connection is lost", fix,
                        "the user \"%s\" of the sentinels lacks%s", d->sentinel_user, lacks);
}

/* The number after a word in a line: "offset=17". */
static int64_t number_in(const char *line, const char *word) {
    size_t length = strcspn(line, "\r\n");
    const char *found = strstr(line, word);
    return found && found < line + length ? strtoll(found + strlen(word), NULL, 10) : -1;
}

/* "slave0:ip=10.0.0.8,port=6379,state=online,offset=4711,lag=0" */
void deployment_note_info(struct deployment *d, const char *info) {
    const char *own = strstr(info, "\nmaster_repl_offset:");
    int64_t offset = own ? strtoll(strchr(own, ':') + 1, NULL, 10) : 0;
    for (const char *line = strstr(info, "\nslave"); line; line = strstr(line + 1, "\nslave")) {
        if (number_in(line + 1, "offset=") < 0)
            continue;
        int64_t lag_s = number_in(line + 1, "lag="), less = offset - number_in(line + 1, "offset=");
        d->replicas++;
        d->lag_s = lag_s > d->lag_s ? lag_s : d->lag_s;
        d->behind = less > d->behind ? less : d->behind;
    }
    d->masters_seen++;
}

static bool report_lag(const struct deployment *d, hf_examination *to) {
    bool is_odd = d->lag_s > LAG_ODD_S;
    return findings_add(
        to, is_odd ? HF_WARNING : HF_FINE, "replica-lag",
        is_odd ? "a fail-over now would lose what it has not received yet"
               : "a fail-over would lose little or nothing in the store, but every hold is still "
                 "reported as lost",
        is_odd ? "find out why it lags" : "",
        "%" PRId64 " replica%s, the slowest last seen %" PRId64 " s ago and %" PRId64
        " bytes behind",
        d->replicas, d->replicas == 1 ? "" : "s", d->lag_s, d->behind);
}

static bool report_min_replicas(bool has_slots, hf_examination *to) {
    return findings_add(
        to, HF_NOTE, "min-replicas",
        has_slots ? "a master that is cut off from the others keeps granting locks "
                    "for cluster-node-timeout, and its successor does not know them"
                  : "a master that is cut off from its replicas keeps granting "
                    "locks, and its successor does not know them",
        "set for example min-replicas-to-write 1 and min-replicas-max-lag 2: it then "
        "stops soon after it is cut off",
        "min-replicas-to-write is 0");
}

static bool report_replicas(const struct deployment *d, bool has_slots, hf_examination *to) {
    bool ok = true;
    if (!d->replicas && !has_slots) /* those of a Cluster are counted for each master */
        ok = findings_add(to, HF_WARNING, "replicas", "there is no server to fail over to",
                          "add a replica", "the master has no replica");
    if (ok && d->replicas)
        ok = report_lag(d, to);
    if (ok && d->replicas && d->min_replicas == 0)
        ok = report_min_replicas(has_slots, to);
    return ok;
}

/* ---- A Cluster ---- */

static int64_t info_number(const char *info, const char *key) {
    const char *found = strstr(info, key);
    return found ? strtoll(found + strlen(key), NULL, 10) : -1;
}

static bool report_state(const char *info, hf_examination *to) {
    int64_t assigned = info_number(info, "cluster_slots_assigned:");
    int64_t failing = info_number(info, "cluster_slots_fail:");
    bool is_well = strstr(info, "cluster_state:ok") && assigned == SLOTS && failing == 0;
    return findings_add(to, is_well ? HF_FINE : HF_PROBLEM, "cluster",
                        is_well ? "every name can be locked"
                                : "names in slots without a master cannot be locked or renewed",
                        is_well ? "" : "redis-cli --cluster check, and fix",
                        "the Cluster is %s; %" PRId64 " of %d slots are assigned, %" PRId64
                        " failing",
                        strstr(info, "cluster_state:ok") ? "up" : "down", assigned, SLOTS, failing);
}

struct tally {
    int64_t masters, alone, failing;
    size_t count;
    struct {
        char id[41];
        int64_t replicas;
    } of[MASTERS_MAX];
};

/* "id address flags master ping pong epoch link-state slots ..." */
static void count_line(struct tally *t, const char *line, bool is_replica_turn) {
    char id[41], flags[80], master[41];
    int used = 0;
    if (sscanf(line, "%40s %*s %79s %40s %*s %*s %*s %*s%n", id, flags, master, &used) != 3 ||
        !used)
        return;
    bool is_failing = strstr(flags, "fail") && !strstr(flags, "nofailover");
    if (!is_replica_turn) {
        t->failing += is_failing;
        if (strstr(flags, "master") && line[used] == ' ' && t->count < MASTERS_MAX) {
            t->masters++;
            strcpy(t->of[t->count].id, id);
            t->of[t->count++].replicas = 0;
        }
        return;
    }
    for (size_t i = 0; i < t->count && !is_failing; i++)
        t->of[i].replicas += strcmp(t->of[i].id, master) == 0;
}

static bool report_nodes(const char *nodes, hf_examination *to) {
    struct tally *t = calloc(1, sizeof(*t));
    if (!t)
        return false;
    for (int turn = 0; turn < 2; turn++) {
        for (const char *line = nodes; *line; line += strcspn(line, "\n"), line += *line == '\n')
            count_line(t, line, turn);
    }
    for (size_t i = 0; i < t->count; i++)
        t->alone += t->of[i].replicas == 0;
    bool ok =
        findings_add(to, t->failing ? HF_WARNING : HF_FINE, "nodes",
                     t->failing ? "other nodes have taken over their slots, or none has"
                                : "all known nodes answer each other",
                     t->failing ? "bring them back, or CLUSTER FORGET them" : "",
                     "%" PRId64 " master%s with slots; %" PRId64 " node%s failing", t->masters,
                     t->masters == 1 ? "" : "s", t->failing, t->failing == 1 ? "" : "s");
    ok = ok &&
         findings_add(to, t->alone ? HF_WARNING : HF_FINE, "replicas",
                      t->alone ? "if one of them dies, the names in its slots cannot be locked "
                                 "until it is back"
                               : "when a master dies, a replica takes over",
                      t->alone ? "add a replica to each master" : "",
                      "%" PRId64 " of %" PRId64 " masters %s no replica", t->alone, t->masters,
                      t->alone == 1 ? "has" : "have");
    free(t);
    return ok;
}

/* ---- Both ---- */

bool deployment_report(const struct deployment *d, const struct redis_route *route,
                       hf_examination *to) {
    bool ok = findings_add(
        to, HF_WARNING, "fail-over",
        "a server acknowledges a write before its replicas have it. So locks are lost in a "
        "fail-over: "
        "every affected holder is notified, and the next holder has a larger token",
        stricter, "this is %s: if a master fails, a replica takes over", route->kind->what);
    if (ok && !route->kind->has_slots)
        ok = report_sentinels(d, to);
    if (ok && d->masters_seen)
        ok = report_replicas(d, route->kind->has_slots, to);
    if (ok && d->cluster_info)
        ok = report_state(d->cluster_info, to);
    if (ok && d->cluster_nodes)
        ok = report_nodes(d->cluster_nodes, to);
    if (ok && route->kind->has_slots && !(d->cluster_info && d->cluster_nodes))
        ok = findings_add(to, HF_NOTE, "cluster-unseen",
                          "whether all slots are served, and each master has a replica, cannot be "
                          "seen",
                          "permit it to the user who runs doctor: +cluster|info +cluster|nodes",
                          "CLUSTER INFO or CLUSTER NODES is not permitted");
    return ok;
}
