/* Examining a set: what each node finds about itself, and what follows from the facts that the
 * nodes report.
 *
 * What the set knows about a node (whether it votes, whether it was just started) is added to that
 * node's own findings. A finding that several nodes share is reported once, after their names, so
 * that a report on five nodes is as easy to read as a report on one. None of this needs a vote.
 *
 * Nothing is concluded from the silence of a node, except that it does not vote. If none answers,
 * the examination fails, as that of a single store does. */
#include "base/error.h"
#include "store/findings.h"
#include "store/quorum/quorum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXAMINE_US = 5000000,
    SKEW_ODD_US = 300000,
    NAMES_SIZE = 500, /* of nodes in a sentence; truncated if too long */
};

struct examining {
    struct round round;
    struct store_facts facts[QUORUM_NODES_MAX];
    hf_examination *sum;
};

static bool has_answered(const struct examining *x, size_t node) {
    return x->round.requests[node].op.outcome == STORE_DONE;
}

static const struct node *node_of(const struct examining *x, size_t index) {
    return &x->round.quorum->nodes[index];
}

/* How many nodes may forget their votes unnoticed, without harm. */
static size_t may_forget(const struct quorum *q) {
    return 2 * q->quorum - q->node_count - 1;
}

/* ---- Words ---- */

/* "all 5 nodes", "all 4 nodes that answer", "a:6379, b:6379". */
static const char *names_of(const struct examining *x, uint32_t nodes, char ret[NAMES_SIZE]) {
    size_t count = x->round.quorum->node_count;
    uint32_t answering = 0;
    for (size_t i = 0; i < count; i++)
        answering |= has_answered(x, i) ? 1u << i : 0;
    ret[0] = 0;
    if (nodes == (1u << count) - 1) {
        error_append(ret, NAMES_SIZE, "all %zu nodes", count);
        return ret;
    }
    if (nodes == answering && __builtin_popcount(nodes) > 1) {
        error_append(ret, NAMES_SIZE, "all %d nodes that answer", __builtin_popcount(nodes));
        return ret;
    }
    for (size_t i = 0; i < count; i++) {
        if (nodes & 1u << i)
            error_append(ret, NAMES_SIZE, "%s%s", *ret ? ", " : "", node_of(x, i)->name);
    }
    return ret;
}

/* ---- Each node ---- */

static bool is_of_set(const struct examining *x, size_t node) {
    const struct store_facts *facts = &x->facts[node];
    return strncmp(facts->set, x->round.quorum->set.name, sizeof(facts->set) - 1) == 0;
}

/* Whether it would vote now, as far as is known. */
static bool votes(const struct examining *x, size_t node) {
    const struct store_facts *facts = &x->facts[node];
    bool founds = x->round.quorum->set.founds;
    if (!has_answered(x, node))
        return false;
    if (!facts->set_known)
        return !*node_of(x, node)->why;
    return *facts->set ? is_of_set(x, node) && (founds || facts->silent_us <= 0) : founds;
}

static bool add_other_set(hf_examination *own, const char *theirs, const char *ours) {
    char *difference = store_compare_sets(theirs, ours);
    bool ok = findings_add(own, HF_WARNING, "vote",
                           "it refuses to vote; other clients use it in another set, and locks of "
                           "the two sets do not exclude each other",
                           "use the same servers, quorum and max_lease in all clients; to change a "
                           "set: docs/stores/quorum.md",
                           "the server votes in the set %s, not in %s: %s", theirs, ours,
                           difference ? difference : "");
    free(difference);
    return ok;
}

static bool judge_vote(const struct examining *x, size_t index, hf_examination *own) {
    const struct store_facts *facts = &x->facts[index];
    const struct node *node = node_of(x, index);
    const char *set = x->round.quorum->set.name;
    const char *fewer = "the set can lose fewer nodes than it should";
    const char *init = "if it is certain that nobody holds a lock: holdfast quorum init";
    if (votes(x, index))
        return (!facts->set_known && !node->node_id) || /* nobody asked for its vote */
               findings_add(own, HF_FINE, "vote", "it is part of the set", "",
                            "the server votes in the set %s", set);
    if (!facts->set_known)
        return findings_add(own, HF_WARNING, "vote", fewer, init, "the server does not vote: %s",
                            node->why);
    if (!*facts->set)
        return findings_add(
            own, HF_WARNING, "vote",
            "it is new, or has forgotten its votes: it will not vote until max_lease "
            "has passed since it was first asked",
            "before the first lock of a set: holdfast quorum init; else wait",
            "the server does not belong to a set");
    if (!is_of_set(x, index))
        return add_other_set(own, facts->set, set);
    return findings_add(own, HF_WARNING, "vote", fewer, init,
                        "the server restarted, may have forgotten votes, and will not vote for "
                        "another %" PRId64 " s",
                        (facts->silent_us + 999999) / 1000000);
}

/* After a restart it does not vote for a while, unless the set is durable. If it is known not to
 * vote, that is reported elsewhere. */
static bool judge_restart(const struct examining *x, size_t index, hf_examination *own) {
    const struct store_facts *facts = &x->facts[index];
    const struct quorum *q = x->round.quorum;
    int64_t max_lease_us = q->host->max_lease_us;
    bool silent = facts->set_known && (!*facts->set || facts->silent_us > 0);
    if (!facts->up_us || facts->up_us > max_lease_us || silent)
        return true;
    return findings_add(
        own, HF_NOTE, "restart",
        q->set.durable ? "it votes at once, since durable=yes says that it forgot nothing"
                       : "it will not vote until max_lease has passed since it was first asked",
        "", "the server was started less than max_lease (%" PRId64 " s) ago",
        max_lease_us / 1000000);
}

static bool judge_durable(const struct examining *x, size_t index, hf_examination *own) {
    if (!x->round.quorum->set.durable || x->facts[index].durable)
        return true;
    return findings_add(
        own, HF_PROBLEM, "durable",
        "after a restart it may vote a second time while the first holder still works: "
        "two hold one lock",
        "set appendonly yes and appendfsync always; or remove durable=yes from the URL",
        "the server is not known to keep all that it acknowledges, although the URL says "
        "durable=yes");
}

static bool judge_node(const struct examining *x, size_t index) {
    hf_examination *own = x->round.requests[index].op.examination;
    return judge_vote(x, index, own) && judge_restart(x, index, own) &&
           judge_durable(x, index, own);
}

static bool add_silent(struct examining *x, const struct node_request *request) {
    char failure[REQUEST_FAILURE_SIZE];
    return findings_add(x->sum, HF_WARNING, "node", "it does not vote",
                        "start it, or look at its log", "%s does not answer: %s",
                        request->node->name, quorum_request_failure(request, failure));
}

/* ---- What several nodes share ---- */

static bool is_same(const hf_finding *a, const hf_finding *b) {
    return a->severity == b->severity && strcmp(a->id, b->id) == 0 &&
           strcmp(a->found, b->found) == 0 && strcmp(a->means, b->means) == 0 &&
           strcmp(a->fix, b->fix) == 0;
}

static bool says(const struct examining *x, size_t node, const hf_finding *finding) {
    const hf_examination *own = x->round.requests[node].op.examination;
    for (size_t i = 0; has_answered(x, node) && i < own->count; i++) {
        if (is_same(own->findings[i], finding))
            return true;
    }
    return false;
}

/* Adds a finding of a node with all nodes that share it, unless an earlier node has it. */
static bool add_alike(struct examining *x, size_t first, const hf_finding *finding) {
    char names[NAMES_SIZE];
    uint32_t nodes = 0;
    for (size_t i = 0; i < x->round.quorum->node_count; i++) {
        if (!says(x, i, finding))
            continue;
        if (i < first)
            return true;
        nodes |= 1u << i;
    }
    return findings_add(x->sum, finding->severity, finding->id, finding->means, finding->fix,
                        "%s: %s", names_of(x, nodes, names), finding->found);
}

/* Clocks that are right are reported for all nodes together. */
static bool is_told_by_set(const struct examining *x, size_t node, const hf_finding *finding) {
    return finding->severity == HF_FINE && strcmp(finding->id, "clock") == 0 &&
           x->facts[node].uncertain_us;
}

static bool add_nodes(struct examining *x) {
    bool ok = true;
    for (size_t i = 0; ok && i < x->round.quorum->node_count; i++) {
        const struct node_request *request = &x->round.requests[i];
        if (!has_answered(x, i)) {
            ok = add_silent(x, request);
            continue;
        }
        const hf_examination *own = request->op.examination;
        for (size_t j = 0; ok && j < own->count; j++)
            ok = is_told_by_set(x, i, own->findings[j]) || add_alike(x, i, own->findings[j]);
    }
    return ok;
}

/* ---- The set ---- */

/* How many nodes the set can lose, and how many it has lost. */
static bool add_counts(struct examining *x) {
    const struct quorum *q = x->round.quorum;
    size_t up = quorum_round_answers(&x->round), voters = 0;
    for (size_t i = 0; i < q->node_count; i++)
        voters += votes(x, i);
    bool ok =
        findings_add(x->sum, HF_FINE, "set", "two successive holders always have a node in common",
                     "to tolerate more, list more nodes or set quorum= higher",
                     "%zu nodes, of which %zu must agree: %zu may be down, and %zu may forget",
                     q->node_count, q->quorum, q->node_count - q->quorum, may_forget(q));
    if (ok && voters < q->node_count)
        ok = findings_add(x->sum, voters < q->quorum ? HF_PROBLEM : HF_WARNING, "nodes",
                          voters < q->quorum ? "no lock can be acquired"
                                             : "the set can lose fewer nodes than it should",
                          "see the finding for each node that does not vote",
                          "%zu of %zu nodes answer, and %zu vote", up, q->node_count, voters);
    return ok;
}

/* The nodes that answer, and are durable or are not. */
static uint32_t nodes_that_are(const struct examining *x, bool durable) {
    uint32_t nodes = 0;
    for (size_t i = 0; i < x->round.quorum->node_count; i++)
        nodes |= has_answered(x, i) && x->facts[i].durable == durable ? 1u << i : 0;
    return nodes;
}

static size_t durable_count(const struct examining *x) {
    return (size_t)__builtin_popcount(nodes_that_are(x, true));
}

/* How many nodes must be durable for the tier "strict". */
static size_t durable_needed(const struct quorum *q) {
    return q->node_count - may_forget(q);
}

static bool add_durability(struct examining *x) {
    const struct quorum *q = x->round.quorum;
    char names[NAMES_SIZE];
    uint32_t weak = nodes_that_are(x, false);
    size_t durable = durable_count(x), needed = durable_needed(q);
    if (durable >= needed)
        return findings_add(
            x->sum, HF_FINE, "durability", "restarts lose nothing that a lock needs", "",
            "%zu of %zu nodes keep all that they acknowledge", durable, q->node_count);
    if ((size_t)__builtin_popcount(weak) <= may_forget(q))
        return findings_add(x->sum, HF_NOTE, "durability",
                            "the tier counts as timed as long as the others do not answer",
                            "see the finding for each node that does not answer",
                            "%zu of %zu nodes are known to keep all that they acknowledge, and "
                            "%zu must for the tier strict",
                            durable, q->node_count, needed);
    return findings_add(
        x->sum, HF_WARNING, "durability",
        "a node does not vote for max_lease after a restart, so that no two hold one "
        "lock; but only clocks keep tokens rising if counters were lost: the tier is "
        "timed, not strict",
        "set appendonly yes and appendfsync always on each, or use a higher quorum=",
        "not known to keep all that they acknowledge: %s; and %zu may forget",
        names_of(x, weak, names), may_forget(q));
}

static int by_size(const void *a, const void *b) {
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

/* Less than 5 ms counts as 0, without a sign. */
static double seconds_of(int64_t us) {
    return us > -5000 && us < 5000 ? 0 : (double)us / 1e6;
}

/* Each node's clock was measured against this host's; here they are compared with each other. */
static bool add_clocks(struct examining *x) {
    int64_t ahead_us[QUORUM_NODES_MAX], uncertain_us = 0;
    char each[NAMES_SIZE] = "";
    size_t count = 0;
    for (size_t i = 0; i < x->round.quorum->node_count; i++) {
        if (!x->facts[i].uncertain_us)
            continue;
        ahead_us[count++] = x->facts[i].ahead_us;
        if (x->facts[i].uncertain_us > uncertain_us)
            uncertain_us = x->facts[i].uncertain_us;
    }
    if (count < 2)
        return true;
    qsort(ahead_us, count, sizeof(ahead_us[0]), by_size);
    int64_t spread_us = ahead_us[count - 1] - ahead_us[0], median_us = ahead_us[count / 2];
    if (spread_us - 2 * uncertain_us <= SKEW_ODD_US)
        return findings_add(x->sum, HF_FINE, "clocks",
                            "leases end at about the same time on all nodes, even if a clock is "
                            "corrected",
                            "", "the clocks of %zu nodes differ by less than %.2f s", count,
                            (double)(spread_us + 2 * uncertain_us) / 1e6 + 0.005);
    for (size_t i = 0; i < x->round.quorum->node_count; i++) {
        if (x->facts[i].uncertain_us)
            error_append(each, NAMES_SIZE, "%s%s %+.2f s", *each ? ", " : "", node_of(x, i)->name,
                         seconds_of(x->facts[i].ahead_us - median_us));
    }
    return findings_add(
        x->sum, HF_WARNING, "clocks",
        "leases are unaffected, since each node uses its own clock; but a step that "
        "corrects a clock ends its votes early, or keeps those of dead holders longer, "
        "and tokens depend on the clocks if counters were lost",
        "find out which is wrong, and slew it instead of stepping it (chrony)",
        "the clocks of the nodes differ by %.2f s: %s", (double)spread_us / 1e6, each);
}

static bool add_versions(struct examining *x) {
    char each[NAMES_SIZE] = "";
    const char *first = NULL;
    bool differ = false;
    for (size_t i = 0; i < x->round.quorum->node_count; i++) {
        const char *version = x->facts[i].version;
        if (!*version)
            continue;
        first = first ? first : version;
        differ |= strcmp(first, version) != 0;
        error_append(each, NAMES_SIZE, "%s%s has %s", *each ? ", " : "", node_of(x, i)->name,
                     version);
    }
    return !differ || findings_add(x->sum, HF_NOTE, "versions", "this is normal during an update",
                                   "use the same version on all nodes",
                                   "the nodes have different versions: %s", each);
}

/* ---- Nodes that are not independent ---- */

typedef bool likeness(const struct store_facts *a, const struct store_facts *b);

static bool is_one_process(const struct store_facts *a, const struct store_facts *b) {
    return *a->run && strcmp(a->run, b->run) == 0;
}

static bool is_one_node(const struct store_facts *a, const struct store_facts *b) {
    return a->node_id && a->node_id == b->node_id;
}

static bool is_this_host(const struct store_facts *a, const struct store_facts *b) {
    return a->local && b->local;
}

static bool is_one_host(const struct store_facts *a, const struct store_facts *b) {
    return !a->local && *a->host && strcmp(a->host, b->host) == 0;
}

static bool is_one_address(const struct store_facts *a, const struct store_facts *b) {
    return !a->local && !b->local && *a->address && strcmp(a->address, b->address) == 0 &&
           strcmp(a->host, b->host) != 0;
}

/* The same server as a node before it. */
static bool is_repeated(const struct examining *x, size_t node) {
    for (size_t i = 0; i < node; i++) {
        if (is_one_process(&x->facts[i], &x->facts[node]))
            return true;
    }
    return false;
}

/* Adds a finding for each group of nodes that are alike: their names, and in what. A server that is
 * listed twice has its own finding, and counts once in the others. */
static bool add_groups(struct examining *x, likeness *alike, hf_severity severity, const char *id,
                       const char *means, const char *fix, const char *found) {
    size_t count = x->round.quorum->node_count;
    uint32_t told = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        char names[NAMES_SIZE];
        uint32_t group = 1u << i;
        for (size_t j = i + 1; j < count; j++) {
            if (alike(&x->facts[i], &x->facts[j]) &&
                (alike == is_one_process || !is_repeated(x, j)))
                group |= 1u << j;
        }
        if (group != 1u << i && !(told & 1u << i) &&
            (alike == is_one_process || !is_repeated(x, i)))
            ok = findings_add(x->sum, severity, id, means, fix, "%s %s", names_of(x, group, names),
                              found);
        told |= group;
    }
    return ok;
}

static bool add_dependent(struct examining *x) {
    const char *together = "they fail together: the set tolerates fewer failures than it seems to";
    const char *apart = "put each node on its own host";
    return add_groups(x, is_one_process, HF_PROBLEM, "same-server",
                      "it would have several votes; locks are refused once that is noticed",
                      "list each server once", "are one server") &&
           add_groups(
               x, is_one_node, HF_PROBLEM, "same-server",
               "one has a copy of the other's data, including its votes; locks are refused, "
               "as if it were listed twice",
               "while nothing is locked, delete the key that ends in .set on one of them, then run "
               "holdfast quorum init",
               "are the same node, according to their data") &&
           add_groups(x, is_this_host, HF_WARNING, "same-host", together, apart,
                      "are on this host") &&
           add_groups(x, is_one_host, HF_PROBLEM, "same-host", together, apart,
                      "are on one host") &&
           add_groups(x, is_one_address, HF_WARNING, "same-host", together, apart,
                      "report the same address");
}

/* A lock takes as long as the slowest node of the fastest quorum. */
static void measure(struct examining *x) {
    const struct quorum *q = x->round.quorum;
    int64_t typical_us[QUORUM_NODES_MAX], slowest_us[QUORUM_NODES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < q->node_count; i++) {
        const hf_examination *own = has_answered(x, i) ? x->round.requests[i].op.examination : NULL;
        if (!own || own->write_us < 0)
            continue;
        typical_us[count] = own->write_us;
        slowest_us[count++] = own->slowest_us;
    }
    if (count < q->quorum)
        return;
    qsort(typical_us, count, sizeof(typical_us[0]), by_size);
    qsort(slowest_us, count, sizeof(slowest_us[0]), by_size);
    x->sum->write_us = typical_us[q->quorum - 1];
    x->sum->slowest_us = slowest_us[q->quorum - 1];
}

/* ---- The round ---- */

static bool put_together(struct examining *x) {
    bool is_strict = durable_count(x) >= durable_needed(x->round.quorum);
    x->sum = findings_new(is_strict ? "strict" : "timed");
    bool ok = x->sum;
    for (size_t i = 0; ok && i < x->round.quorum->node_count; i++)
        ok = !has_answered(x, i) || judge_node(x, i);
    if (!ok)
        return false;
    measure(x);
    return add_counts(x) && add_durability(x) && add_clocks(x) && add_versions(x) &&
           add_dependent(x) && add_nodes(x);
}

/* Why no node could be examined. A reason that all nodes share is reported once. */
static char *explain(const struct round *round) {
    size_t count = round->quorum->node_count, alike = 1;
    char first[REQUEST_FAILURE_SIZE], other[REQUEST_FAILURE_SIZE], words[80];
    quorum_request_failure(&round->requests[0], first);
    for (size_t i = 1; i < count; i++)
        alike += strcmp(first, quorum_request_failure(&round->requests[i], other)) == 0;
    if (alike == count)
        return error_format("all %zu nodes: %s", count, first);
    snprintf(words, sizeof(words), "none of the %zu nodes could be examined", count);
    return quorum_round_explain(round, words);
}

static void fail(struct round *round) {
    struct quorum *q = round->quorum;
    char *text = explain(round);
    int reason = quorum_round_final_reason(round);
    store_refuse(q->host, quorum_round_decided(round), reason, text);
}

static void examining_decide(struct round *round, bool time_is_up) {
    struct examining *x = container_of(round, struct examining, round);
    struct quorum *q = round->quorum;
    if (quorum_round_waits_on(round, time_is_up, q->node_count, EXAMINE_US))
        return;
    if (!quorum_round_answers(round)) {
        fail(round);
        return;
    }
    bool ok = put_together(x);
    struct store_op *op = quorum_round_decided(round);
    if (ok) {
        op->examination = x->sum;
        x->sum = NULL;
        store_complete(q->host, op, STORE_DONE);
    } else {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
    }
}

static void examining_clear(struct round *round) {
    struct examining *x = container_of(round, struct examining, round);
    for (size_t i = 0; i < round->quorum->node_count; i++) {
        if (has_answered(x, i))
            hf_examination_free(round->requests[i].op.examination);
    }
    hf_examination_free(x->sum);
}

void quorum_examine(struct quorum *q, struct store_op *op) {
    struct examining *x = quorum_round_new(q, op, sizeof(*x));
    if (!x) {
        store_refuse(q->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    x->round.answered = quorum_round_ignore;
    x->round.decide = examining_decide;
    x->round.clear = examining_clear;
    for (size_t i = 0; i < q->node_count; i++) {
        x->round.requests[i].op.type = STORE_EXAMINE;
        x->round.requests[i].facts = &x->facts[i];
    }
    quorum_round_ask_all(&x->round);
}
