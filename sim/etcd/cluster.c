/* Design notes.
 *
 * A request is carried out in steps, each at its time (at_us). A read needs a leader with a
 * majority, at some time after it arrived; it is then answered from what its member has applied, as
 * soon as that is not older. A write is an entry of the log, and is answered when its member has
 * applied it. Without a leader that has a majority, both wait (`stuck`). When there is one again,
 * some writes turn out to be in the log and others to be lost, at random; a write waits for this
 * even if its client is gone. */
#include "sim/etcd/model.h"
#include "sim/etcd/watches.h"
#include "store/etcd/grpc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELECTION_US = 250000,         /* --election-timeout: how long a leader is not missed */
    TICK_US = 500000,             /* how often the leader looks for leases that have ended */
    STREAMS_US = 3 * ELECTION_US, /* how long streams outlive the leader */
    LEASE_LEAST_S = 1,            /* one and a half times ELECTION_US, in whole seconds */
    RETRY_US = 50000
};

enum rpc { TXN, DELETE_RANGE, LEASE_GRANT, LEASE_REVOKE, KEEP_ALIVE, LEASE_LEFT, WATCH, OTHER };

static const struct {
    const char *path, *name;
} rpcs[] = {
    [TXN] = {"/etcdserverpb.KV/Txn", "txn"},
    [DELETE_RANGE] = {"/etcdserverpb.KV/DeleteRange", "delete"},
    [LEASE_GRANT] = {"/etcdserverpb.Lease/LeaseGrant", "grant"},
    [LEASE_REVOKE] = {"/etcdserverpb.Lease/LeaseRevoke", "revoke"},
    [KEEP_ALIVE] = {"/etcdserverpb.Lease/LeaseKeepAlive", "keep-alive"},
    [LEASE_LEFT] = {"/etcdserverpb.Lease/LeaseTimeToLive", "time to live"},
    [WATCH] = {"/etcdserverpb.Watch/Watch", "watch"},
};

struct request {
    struct list link;
    struct cluster_connection *connection; /* NULL: nobody waits for its answer */
    struct front_stream *stream;
    int member;
    enum rpc rpc;
    int64_t at_us, until_us;
    bool stuck;
    bool is_lost;  /* the leader does not have it */
    size_t index;  /* of the entry that its member must apply before the answer; 0: not known yet */
    uint64_t term; /* of a keep-alive: of its answer */
    Etcd__TxnRequest *txn;
    /* The answer to a write. */
    bool is_done;
    int status;
    const char *why;
    ProtobufCMessage *answer;
    char line[60];
    size_t size;
    uint8_t message[];
};

/* ---- Chance ---- */

int64_t cluster_between(struct cluster *cluster, int64_t least, int64_t most) {
    uint64_t random = cluster->config.random(cluster->config.context);
    return least + (int64_t)(random % (uint64_t)(most - least + 1));
}

__attribute__((format(printf, 2, 3))) static void note(struct cluster *cluster, const char *format,
                                                       ...) {
    char line[80];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    cluster->config.note(cluster->config.context, line);
}

/* ---- The log ---- */

static bool is_able(const struct cluster *cluster, int member) {
    return !cluster->members[member].trouble;
}

static int able_count(const struct cluster *cluster) {
    int count = 0;
    for (int i = 0; i < cluster->member_count; i++)
        count += is_able(cluster, i);
    return count;
}

static bool has_majority(const struct cluster *cluster) {
    return able_count(cluster) > cluster->member_count / 2;
}

static bool works(const struct cluster *cluster) {
    return cluster->leader >= 0 && is_able(cluster, cluster->leader) && has_majority(cluster);
}

uint64_t cluster_term_of(const struct cluster *cluster, int member) {
    return cluster->log[cluster->members[member].applied].term;
}

int64_t cluster_revision_of(const struct cluster *cluster, int member) {
    return cluster->log[cluster->members[member].applied].revision;
}

static size_t add_entry(struct cluster *cluster) {
    if (cluster->last + 1 >= cluster->room) {
        cluster->room = 2 * cluster->room + 64;
        cluster->log = realloc(cluster->log, cluster->room * sizeof(*cluster->log));
        assert(cluster->log);
    }
    return ++cluster->last;
}

/* The change that was just carried out is the last entry. */
static void commit(struct cluster *cluster) {
    cluster->log[cluster->last] =
        (struct entry){cluster->term, cluster->keys.revision, cluster->keys.compacted};
    for (int i = 0; i < cluster->member_count; i++) {
        struct member *member = &cluster->members[i];
        int64_t at_us = cluster->now_us + cluster_between(cluster, 20, 500) + member->lag_us;
        if (is_able(cluster, i) && at_us < member->apply_us)
            member->apply_us = at_us;
    }
}

/* ---- Who leads ---- */

static void demote(struct cluster *cluster, int index) {
    struct member *member = &cluster->members[index];
    for (size_t i = 0; i < cluster->keys.lease_count && member->is_primary; i++)
        cluster->keys.leases[i].ends_us[index] = NEVER;
    member->is_primary = false;
}

static void follow(struct cluster *cluster, int index, int leader) {
    struct member *member = &cluster->members[index];
    if (member->leader == index && leader != index)
        demote(cluster, index);
    member->leader = leader;
    member->alone_us = NEVER;
    member->streams_us =
        leader < 0 ? cluster->now_us + STREAMS_US + cluster_between(cluster, 0, ELECTION_US)
                   : NEVER;
}

static void elect(struct cluster *cluster, int index) {
    demote(cluster, index); /* it may have led before */
    cluster->leader = index;
    cluster->term++;
    note(cluster, "(member %d leads, in term %" PRIu64 ")", index, cluster->term);
    add_entry(cluster);
    commit(cluster);
    for (int i = 0; i < cluster->member_count; i++) {
        if (is_able(cluster, i))
            follow(cluster, i, index);
    }
}

/* The leader has applied all that there was when it was elected. */
static void promote(struct cluster *cluster, int index) {
    cluster->members[index].is_primary = true;
    for (size_t i = 0; i < cluster->keys.lease_count; i++) {
        struct keys_lease *lease = &cluster->keys.leases[i];
        lease->ends_us[index] = cluster->now_us + lease->ttl_us + ELECTION_US;
    }
}

static int choose_able(struct cluster *cluster, int but) {
    int chosen;
    do
        chosen = (int)cluster_between(cluster, 0, cluster->member_count - 1);
    while (!is_able(cluster, chosen) || chosen == but);
    return chosen;
}

static void unstick(struct cluster *cluster);

/* The others no longer hear from the leader. A leader whose disk stalls, or that stands still,
 * remains leader as long as no other can be elected. */
static void lose_leader(struct cluster *cluster) {
    bool can_step_down =
        !(cluster->members[cluster->leader].trouble & (CLUSTER_STILL | CLUSTER_DISK_STALLS));
    for (int i = 0; i < cluster->member_count; i++) {
        if (is_able(cluster, i))
            follow(cluster, i, -1);
    }
    if (!has_majority(cluster) && !can_step_down)
        return;
    if (!has_majority(cluster))
        follow(cluster, cluster->leader, -1);
    note(cluster, "(nobody leads; it was member %d, in term %" PRIu64 ")", cluster->leader,
         cluster->term);
    cluster->leader = -1;
    if (has_majority(cluster))
        cluster->change_us = cluster->now_us + cluster_between(cluster, 5000, 100000);
}

static void change_leader(struct cluster *cluster) {
    cluster->change_us = NEVER;
    if (works(cluster))
        return;
    if (cluster->leader >= 0) {
        lose_leader(cluster);
    } else if (has_majority(cluster)) {
        elect(cluster, choose_able(cluster, -1));
        unstick(cluster);
    }
}

/* Which members can be part of a majority has changed. */
static void reconsider(struct cluster *cluster) {
    if (works(cluster)) {
        cluster->change_us = NEVER;
        unstick(cluster);
    } else if (cluster->change_us == NEVER && (cluster->leader >= 0 || has_majority(cluster))) {
        cluster->change_us =
            cluster->now_us + cluster_between(cluster, ELECTION_US, 19 * ELECTION_US / 10);
    }
}

/* ---- Answers ---- */

void cluster_flush(struct cluster_connection *connection) {
    char bytes[65536];
    const uint8_t *some;
    size_t size = 0, more;
    while ((more = front_output(connection->front, &some))) {
        assert(size + more <= sizeof(bytes));
        memcpy(bytes + size, some, more);
        size += more;
    }
    bool pushed = !connection->has_reply;
    connection->has_reply = false;
    if (size)
        connection->cluster->config.output(connection->context, bytes, size, pushed);
}

static void request_free(struct request *request) {
    list_remove(&request->link);
    if (request->txn)
        etcd__txn_request__free_unpacked(request->txn, NULL);
    if (request->answer)
        protobuf_c_message_free_unpacked(request->answer, NULL);
    free(request);
}

/* Answers with a message (or NULL), and frees it. */
static void reply(struct cluster *cluster, struct request *request, int status, const char *why,
                  const uint8_t *message, size_t size) {
    struct cluster_connection *connection = request->connection;
    char line[200];
    if (connection) {
        snprintf(line, sizeof(line), "%s%s → %s", rpcs[request->rpc].name, request->line,
                 status ? why : "done");
        if (message)
            front_send(request->stream, message, size);
        front_finish(request->stream, status, why);
        connection->has_reply = true;
        cluster->config.executed(connection->context, line,
                                 request->rpc == KEEP_ALIVE ||
                                     (request->txn && keys_is_read(request->txn)));
    }
    request_free(request);
    if (connection)
        cluster_flush(connection);
}

void cluster_fill_header(Etcd__Header *header, int member, uint64_t term) {
    header->member_id = (uint64_t)member + 1;
    header->raft_term = term;
}

static void reply_message(struct cluster *cluster, struct request *request,
                          const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = keys_memory(size + 1);
    protobuf_c_message_pack(message, bytes);
    reply(cluster, request, GRPC_OK, "", bytes, size);
}

/* ---- Writes ---- */

static void keep(struct request *request, const struct keys_answer *answer) {
    request->is_done = true;
    request->status = answer->status;
    request->why = answer->why;
    if (!answer->message)
        return;
    size_t size = protobuf_c_message_get_packed_size(answer->message);
    uint8_t *bytes = keys_memory(size + 1);
    protobuf_c_message_pack(answer->message, bytes);
    request->answer = protobuf_c_message_unpack(answer->message->descriptor, NULL, size, bytes);
    assert(request->answer);
}

static void refuse_full(struct request *request) {
    keep(request, &(struct keys_answer){.status = GRPC_RESOURCE_EXHAUSTED,
                                        .why = "etcdserver: mvcc: database space exceeded"});
}

static void carry_out_txn(struct cluster *cluster, struct request *request) {
    struct keys_answer answer;
    if (cluster->is_full && keys_puts(request->txn)) {
        refuse_full(request);
        return;
    }
    keys_txn(&cluster->keys, request->txn, cluster->keys.revision, &answer);
    keep(request, &answer);
    snprintf(request->line, sizeof(request->line), ", revision %" PRId64, cluster->keys.revision);
}

static void carry_out_delete(struct cluster *cluster, struct request *request) {
    struct keys_answer answer;
    Etcd__DeleteRangeRequest *message =
        etcd__delete_range_request__unpack(NULL, request->size, request->message);
    assert(message);
    keys_delete(&cluster->keys, message, &answer);
    keep(request, &answer);
    etcd__delete_range_request__free_unpacked(message, NULL);
}

static int64_t grant(struct cluster *cluster, int64_t ttl_s) {
    int64_t id = ++cluster->last_lease;
    ttl_s = ttl_s < LEASE_LEAST_S ? LEASE_LEAST_S : ttl_s;
    struct keys_lease *lease = keys_grant(&cluster->keys, id, ttl_s, cluster->last);
    int leader = cluster->leader;
    if (cluster->members[leader].is_primary)
        lease->ends_us[leader] = cluster->now_us + lease->ttl_us;
    return id;
}

static void carry_out_grant(struct cluster *cluster, struct request *request) {
    Etcd__LeaseGrantResponse response = ETCD__LEASE_GRANT_RESPONSE__INIT;
    Etcd__Header header = ETCD__HEADER__INIT;
    Etcd__LeaseGrantRequest *message =
        etcd__lease_grant_request__unpack(NULL, request->size, request->message);
    assert(message);
    int64_t wanted_s = message->ttl;
    etcd__lease_grant_request__free_unpacked(message, NULL);
    if (cluster->is_full) {
        refuse_full(request);
        return;
    }
    response.id = grant(cluster, wanted_s);
    response.ttl = keys_find_lease(&cluster->keys, response.id)->ttl_us / 1000000;
    response.header = &header;
    header.revision = cluster->keys.revision;
    keep(request, &(struct keys_answer){.message = &response.base, .why = ""});
    snprintf(request->line, sizeof(request->line), " of lease %" PRId64 ", %" PRId64 " s",
             response.id, response.ttl);
}

static void carry_out_revoke(struct cluster *cluster, struct request *request) {
    Etcd__LeaseRevokeResponse response = ETCD__LEASE_REVOKE_RESPONSE__INIT;
    Etcd__Header header = ETCD__HEADER__INIT;
    Etcd__LeaseRevokeRequest *message =
        etcd__lease_revoke_request__unpack(NULL, request->size, request->message);
    assert(message);
    struct keys_lease *lease = keys_find_lease(&cluster->keys, message->id);
    etcd__lease_revoke_request__free_unpacked(message, NULL);
    if (!lease || lease->revoked) {
        keep(request, &(struct keys_answer){.status = GRPC_NOT_FOUND,
                                            .why = "etcdserver: requested lease not found"});
        return;
    }
    keys_revoke(&cluster->keys, lease, request->index, KEYS_ASKED);
    response.header = &header;
    header.revision = cluster->keys.revision;
    keep(request, &(struct keys_answer){.message = &response.base, .why = ""});
}

static void carry_out(struct cluster *cluster, struct request *request) {
    keys_answer_begin();
    request->index = add_entry(cluster);
    request->stuck = false;
    if (request->rpc == TXN)
        carry_out_txn(cluster, request);
    else if (request->rpc == DELETE_RANGE)
        carry_out_delete(cluster, request);
    else if (request->rpc == LEASE_REVOKE)
        carry_out_revoke(cluster, request);
    else
        carry_out_grant(cluster, request);
    commit(cluster);
    request->at_us = NEVER; /* when its member has applied it */
    if (!request->connection)
        request_free(request);
}

/* ---- Reads ---- */

static void answer_read(struct cluster *cluster, struct request *request) {
    struct keys_answer answer;
    keys_answer_begin();
    keys_txn(&cluster->keys, request->txn, cluster_revision_of(cluster, request->member), &answer);
    cluster_fill_header(answer.header, request->member, cluster_term_of(cluster, request->member));
    reply_message(cluster, request, answer.message);
}

/* ---- Keep-alives ---- */

static bool knows(const struct member *member, const struct keys_lease *lease) {
    return lease && lease->granted <= member->applied &&
           !(lease->revoked && lease->revoked <= member->applied);
}

static void answer_kept(struct cluster *cluster, struct request *request, int64_t id,
                        int64_t ttl_us) {
    Etcd__LeaseKeepAliveResponse response = ETCD__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    Etcd__Header header = ETCD__HEADER__INIT;
    header.revision = cluster_revision_of(cluster, request->member);
    cluster_fill_header(&header, request->member, request->term);
    response.header = &header;
    response.id = id;
    response.ttl = ttl_us / 1000000;
    snprintf(request->line, sizeof(request->line), " of lease %" PRId64 ", %" PRId64 " s", id,
             response.ttl);
    keys_answer_begin();
    reply_message(cluster, request, &response.base);
}

/* The leader, as far as the member knows it, answers without asking the others. */
static void keep_alive(struct cluster *cluster, struct request *request) {
    int target = cluster->members[request->member].leader;
    request->at_us = cluster->now_us + RETRY_US;
    if (target < 0)
        return;
    const struct member *leader = &cluster->members[target];
    unsigned trouble = leader->trouble | cluster->members[request->member].trouble;
    bool is_reached = target == request->member ||
                      (!(trouble & CLUSTER_CUT_OFF) && !(leader->trouble & CLUSTER_STILL));
    if (!is_reached || !leader->is_primary)
        return;
    Etcd__LeaseKeepAliveRequest *message =
        etcd__lease_keep_alive_request__unpack(NULL, request->size, request->message);
    assert(message);
    int64_t id = message->id;
    etcd__lease_keep_alive_request__free_unpacked(message, NULL);
    struct keys_lease *lease = keys_find_lease(&cluster->keys, id);
    if (!knows(leader, lease)) {
        answer_kept(cluster, request, id, 0);
    } else if (lease->ends_us[target] > cluster->now_us) {
        lease->ends_us[target] = cluster->now_us + lease->ttl_us;
        answer_kept(cluster, request, id, lease->ttl_us);
    } /* a lease that has ended waits until its end is in the log */
}

static void answer_left(struct cluster *cluster, struct request *request) {
    Etcd__LeaseTimeToLiveResponse response = ETCD__LEASE_TIME_TO_LIVE_RESPONSE__INIT;
    Etcd__Header header = ETCD__HEADER__INIT;
    Etcd__LeaseTimeToLiveRequest *message =
        etcd__lease_time_to_live_request__unpack(NULL, request->size, request->message);
    assert(message);
    const struct keys_lease *lease = keys_find_lease(&cluster->keys, message->id);
    bool is_known = works(cluster) && knows(&cluster->members[cluster->leader], lease);
    header.revision = cluster_revision_of(cluster, request->member);
    cluster_fill_header(&header, request->member, cluster_term_of(cluster, request->member));
    response.header = &header;
    response.id = message->id;
    response.ttl = is_known ? (lease->ends_us[cluster->leader] - cluster->now_us) / 1000000 : -1;
    etcd__lease_time_to_live_request__free_unpacked(message, NULL);
    keys_answer_begin();
    reply_message(cluster, request, &response.base);
}

/* ---- Requests ---- */

static bool is_write(const struct request *request) {
    return request->rpc == DELETE_RANGE || request->rpc == LEASE_GRANT ||
           request->rpc == LEASE_REVOKE || (request->rpc == TXN && !keys_is_read(request->txn));
}

static void stick(const struct cluster *cluster, struct request *request) {
    request->stuck = true;
    request->is_lost = cluster->members[request->member].trouble & CLUSTER_CUT_OFF;
    request->at_us = NEVER;
}

/* The next step of a request, which is due. */
static void step(struct cluster *cluster, struct request *request) {
    bool can = works(cluster) && is_able(cluster, request->member);
    if (request->rpc == KEEP_ALIVE) {
        keep_alive(cluster, request);
    } else if (request->rpc == LEASE_LEFT) {
        answer_left(cluster, request);
    } else if (request->rpc == OTHER) {
        reply(cluster, request, 12, "unknown service", NULL, 0);
    } else if (!can) {
        stick(cluster, request);
    } else if (is_write(request)) {
        carry_out(cluster, request);
    } else {
        request->index = cluster->last;
        request->at_us = NEVER;
        if (cluster->members[request->member].applied >= request->index)
            answer_read(cluster, request);
    }
}

/* There is a leader with a majority again. Of the writes that had reached a member, some are in the
 * log. */
static void unstick(struct cluster *cluster) {
    list_each_safe(node, &cluster->requests) {
        struct request *request = container_of(node, struct request, link);
        bool is_there = cluster_between(cluster, 0, 1);
        if (!request->stuck || (request->connection && !is_able(cluster, request->member)))
            continue;
        if (is_write(request) && is_there && !request->is_lost) {
            carry_out(cluster, request);
        } else if (is_write(request)) {
            request->is_lost = true;
            if (!request->connection)
                request_free(request);
        } else if (is_there) {
            request->stuck = false;
            request->at_us = cluster->now_us;
        } else {
            reply(cluster, request, GRPC_UNAVAILABLE, "etcdserver: leader changed", NULL, 0);
        }
    }
}

/* The client has no more time for it; a write may still be carried out. */
static void give_up(struct cluster *cluster, struct request *request) {
    struct request *stays = NULL;
    if (request->stuck && is_write(request)) {
        size_t size = sizeof(*stays) + request->size;
        stays = malloc(size);
        assert(stays);
        memcpy(stays, request, size);
        stays->connection = NULL;
        stays->stream = NULL;
        stays->until_us = NEVER;
        stays->answer = NULL;
        list_init(&stays->link);
        list_insert_before(&request->link, &stays->link);
        request->txn = NULL;
    }
    reply(cluster, request, stays ? GRPC_UNAVAILABLE : GRPC_DEADLINE_EXCEEDED,
          stays ? "etcdserver: request timed out" : "context deadline exceeded", NULL, 0);
}

/* Nobody waits for its answer any more. */
static void forget(struct request *request) {
    request->connection = NULL;
    request->stream = NULL;
    if (is_write(request) && !request->is_done)
        request->until_us = NEVER;
    else
        request_free(request);
}

/* The term is the member's, as of now. */
static void answer_write(struct cluster *cluster, struct request *request) {
    struct {
        ProtobufCMessage base;
        Etcd__Header *header;
    } *answer = (void *)request->answer; /* all answers begin like this */
    if (!answer) {
        reply(cluster, request, request->status, request->why, NULL, 0);
        return;
    }
    keys_answer_begin();
    cluster_fill_header(answer->header, request->member, cluster_term_of(cluster, request->member));
    reply_message(cluster, request, &answer->base);
}

/* Answers the requests of this member that waited for an entry which it has now applied. */
static void answer_applied(struct cluster *cluster, int member) {
    list_each_safe(node, &cluster->requests) {
        struct request *request = container_of(node, struct request, link);
        if (request->member != member || !request->index ||
            request->index > cluster->members[member].applied)
            continue;
        if (request->is_done)
            answer_write(cluster, request);
        else
            answer_read(cluster, request);
    }
}

/* ---- Incoming requests ---- */

static enum rpc rpc_of(const char *path) {
    for (int i = 0; i < OTHER; i++) {
        if (strcmp(rpcs[i].path, path) == 0)
            return (enum rpc)i;
    }
    return OTHER;
}

static void message_came(void *context, struct front_stream *stream, const uint8_t *bytes,
                         size_t size) {
    struct cluster_connection *connection = context;
    struct cluster *cluster = connection->cluster;
    enum rpc rpc = rpc_of(stream->path);
    if (stream->finished)
        return;
    if (rpc == WATCH) {
        watches_asked(connection, stream, bytes, size);
        return;
    }
    struct request *request = calloc(1, sizeof(*request) + size);
    assert(request);
    request->connection = connection;
    request->stream = stream;
    request->member = connection->member;
    request->rpc = rpc;
    request->at_us = cluster->now_us + cluster_between(cluster, 20, 400);
    request->until_us = stream->timeout_us ? cluster->now_us + stream->timeout_us : NEVER;
    request->term = cluster_term_of(cluster, connection->member);
    request->size = size;
    if (size)
        memcpy(request->message, bytes, size);
    if (rpc == TXN) {
        request->txn = etcd__txn_request__unpack(NULL, size, bytes);
        assert(request->txn);
    }
    list_append(&cluster->requests, &request->link);
    if (stream->wants_leader && cluster->members[connection->member].leader < 0)
        reply(cluster, request, GRPC_UNAVAILABLE, "etcdserver: no leader", NULL, 0);
}

static void stream_closed(void *context, struct front_stream *stream) {
    struct cluster_connection *connection = context;
    watches_drop(connection->cluster, stream);
    list_each_safe(node, &connection->cluster->requests) {
        struct request *request = container_of(node, struct request, link);
        if (request->stream == stream)
            forget(request);
    }
}

static const struct front_events events = {message_came, stream_closed};

struct cluster_connection *cluster_connect(struct cluster *cluster, int member, void *context) {
    struct cluster_connection *connection = calloc(1, sizeof(*connection));
    assert(connection);
    connection->cluster = cluster;
    connection->member = member;
    connection->context = context;
    connection->front = front_new(&events, connection);
    list_append(&cluster->connections, &connection->link);
    return connection;
}

void cluster_disconnect(struct cluster_connection *connection) {
    watches_disconnect(connection);
    list_each_safe(node, &connection->cluster->requests) {
        struct request *request = container_of(node, struct request, link);
        if (request->connection == connection)
            forget(request);
    }
    list_remove(&connection->link);
    front_free(connection->front);
    free(connection);
}

/* ---- Time ---- */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* When the leader finds that the lease has ended. */
static int64_t found_us(const struct cluster *cluster, const struct keys_lease *lease) {
    int64_t ends_us = lease->revoked ? NEVER : lease->ends_us[cluster->leader];
    return ends_us == NEVER ? NEVER : (ends_us / TICK_US + 1) * TICK_US;
}

bool cluster_is_still(const struct cluster *cluster, int member) {
    return cluster->members[member].trouble & CLUSTER_STILL;
}

static int64_t next_us(const struct cluster *cluster) {
    int64_t at_us = cluster->change_us;
    for (int i = 0; i < cluster->member_count; i++) {
        const struct member *member = &cluster->members[i];
        at_us = min(at_us, min(min(member->apply_us, member->learn_us),
                               min(member->alone_us, member->streams_us)));
    }
    list_each(node, &cluster->requests) {
        const struct request *request = container_of(node, struct request, link);
        if (!request->connection || !cluster_is_still(cluster, request->member))
            at_us = min(at_us, min(request->at_us, request->until_us));
    }
    at_us = min(at_us, watches_next_us(cluster));
    for (size_t i = 0; i < cluster->keys.lease_count && works(cluster); i++)
        at_us = min(at_us, found_us(cluster, &cluster->keys.leases[i]));
    return at_us;
}

static void wake(struct cluster *cluster) {
    cluster->config.wake_at(cluster->config.context, next_us(cluster));
}

static void apply(struct cluster *cluster, int index) {
    struct member *member = &cluster->members[index];
    member->apply_us = member->learn_us = NEVER;
    member->applied = cluster->last;
    if (member->leader != cluster->leader)
        follow(cluster, index, cluster->leader); /* which sent it the entries */
    if (member->leader == index && cluster->leader == index && !member->is_primary &&
        cluster_term_of(cluster, index) == cluster->term)
        promote(cluster, index);
    answer_applied(cluster, index);
    watches_tell(cluster, index);
}

static void act_member(struct cluster *cluster, int index) {
    struct member *member = &cluster->members[index];
    int64_t now_us = cluster->now_us;
    if (member->learn_us <= now_us) {
        member->learn_us = NEVER;
        if (is_able(cluster, index))
            follow(cluster, index, cluster->leader);
    }
    if (member->alone_us <= now_us)
        follow(cluster, index, -1);
    if (member->apply_us <= now_us)
        apply(cluster, index);
    if (member->streams_us <= now_us) {
        member->streams_us = NEVER;
        watches_end_streams(cluster, index);
    }
}

static void act_requests(struct cluster *cluster) {
    list_each_safe(node, &cluster->requests) {
        struct request *request = container_of(node, struct request, link);
        if (request->connection && cluster_is_still(cluster, request->member))
            continue;
        if (request->until_us <= cluster->now_us)
            give_up(cluster, request);
        else if (request->at_us <= cluster->now_us)
            step(cluster, request);
    }
}

static void revoke(struct cluster *cluster, struct keys_lease *lease, enum keys_why why) {
    note(cluster, "(lease %" PRId64 " ends)", lease->id);
    keys_revoke(&cluster->keys, lease, add_entry(cluster), why);
    commit(cluster);
}

static void act_leases(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->keys.lease_count && works(cluster); i++) {
        struct keys_lease *lease = &cluster->keys.leases[i];
        if (found_us(cluster, lease) <= cluster->now_us)
            revoke(cluster, lease, KEYS_EXPIRED);
    }
}

void cluster_act(struct cluster *cluster) {
    if (cluster->change_us <= cluster->now_us)
        change_leader(cluster);
    for (int i = 0; i < cluster->member_count; i++)
        act_member(cluster, i);
    act_leases(cluster);
    act_requests(cluster);
    watches_act(cluster);
    wake(cluster);
}

size_t cluster_feed(struct cluster_connection *connection, const char *bytes, size_t size) {
    size_t used = front_feed(connection->front, bytes, size);
    cluster_flush(connection);
    wake(connection->cluster);
    return used;
}

/* ---- Faults ---- */

void cluster_trouble(struct cluster *cluster, int index, enum cluster_trouble what, bool begins) {
    struct member *member = &cluster->members[index];
    member->trouble = begins ? member->trouble | what : member->trouble & ~(unsigned)what;
    if (begins) {
        member->apply_us = member->learn_us = NEVER;
        bool notices = what == CLUSTER_CUT_OFF && member->leader >= 0;
        if (notices)
            member->alone_us =
                cluster->now_us + cluster_between(cluster, ELECTION_US, 2 * ELECTION_US);
        else if (what != CLUSTER_CUT_OFF)
            member->alone_us = NEVER;
    } else if (!member->trouble) {
        member->learn_us = cluster->now_us + cluster_between(cluster, 1000, 100000);
        member->apply_us = member->learn_us + member->lag_us;
        member->alone_us = NEVER;
    }
    reconsider(cluster);
    wake(cluster);
}

void cluster_restart(struct cluster *cluster, int index) {
    follow(cluster, index, -1);
    if (cluster->leader == index)
        cluster->leader = -1;
    reconsider(cluster);
    wake(cluster);
}

void cluster_set_lag(struct cluster *cluster, int member, int64_t us) {
    cluster->members[member].lag_us = us;
}

void cluster_set_full(struct cluster *cluster, bool full) {
    cluster->is_full = full;
}

void cluster_move_leader(struct cluster *cluster) {
    if (!works(cluster) || able_count(cluster) < 2)
        return;
    elect(cluster, choose_able(cluster, cluster->leader));
    wake(cluster);
}

void cluster_compact(struct cluster *cluster) {
    if (!works(cluster))
        return;
    cluster->keys.compacted = cluster->keys.revision;
    add_entry(cluster);
    commit(cluster);
    wake(cluster);
}

void cluster_delete(struct cluster *cluster, const ProtobufCBinaryData *name) {
    if (!works(cluster))
        return;
    add_entry(cluster);
    keys_delete_one(&cluster->keys, name);
    commit(cluster);
    wake(cluster);
}

void cluster_revoke(struct cluster *cluster, const ProtobufCBinaryData *name) {
    for (size_t i = 0; i < cluster->keys.count; i++) {
        const struct keys_key *key = &cluster->keys.list[i];
        const struct keys_version *version = keys_version_at(key, INT64_MAX);
        if (version && version->lease && key->name.len == name->len &&
            memcmp(key->name.data, name->data, name->len) == 0) {
            cluster_revoke_lease(cluster, version->lease);
            return;
        }
    }
}

int64_t cluster_put_leased(struct cluster *cluster, const char *prefix, int64_t ttl_s) {
    char name[100];
    if (!works(cluster) || !cluster->members[cluster->leader].is_primary)
        return 0;
    add_entry(cluster);
    int64_t id = grant(cluster, ttl_s);
    commit(cluster);
    add_entry(cluster);
    snprintf(name, sizeof(name), "%s%" PRIx64, prefix, (uint64_t)id);
    keys_put(&cluster->keys, name, "", id);
    commit(cluster);
    wake(cluster);
    return id;
}

void cluster_revoke_lease(struct cluster *cluster, int64_t id) {
    struct keys_lease *lease = keys_find_lease(&cluster->keys, id);
    if (!works(cluster) || !lease || lease->revoked)
        return;
    revoke(cluster, lease, KEYS_REVOKED);
    wake(cluster);
}

/* ---- For inspection ---- */

int cluster_leader(const struct cluster *cluster) {
    return cluster->leader;
}

const struct keys *cluster_keys(const struct cluster *cluster) {
    return &cluster->keys;
}

int64_t cluster_lease_ends_us(const struct cluster *cluster, int64_t id) {
    const struct keys_lease *lease = keys_find_lease((struct keys *)&cluster->keys, id);
    int leader = cluster->leader;
    bool is_counted = leader >= 0 && cluster->members[leader].is_primary;
    if (!lease)
        return NEVER;
    return is_counted ? lease->ends_us[leader] : cluster->now_us + lease->ttl_us;
}

/* ---- Life ---- */

struct cluster *cluster_new(const struct cluster_config *config) {
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    assert(cluster);
    cluster->config = *config;
    cluster->keys.changed = config->changed;
    cluster->keys.context = config->context;
    list_init(&cluster->connections);
    list_init(&cluster->requests);
    list_init(&cluster->watchers);
    cluster_reset(cluster, 1);
    return cluster;
}

void cluster_reset(struct cluster *cluster, int member_count) {
    struct list *node;
    while ((node = list_pop(&cluster->requests)))
        request_free(container_of(node, struct request, link));
    assert(list_empty(&cluster->connections));
    keys_reset(&cluster->keys);
    cluster->now_us = 0;
    cluster->member_count = member_count;
    cluster->leader = 0;
    cluster->change_us = NEVER;
    cluster->last = 0;
    cluster->term = 2;
    cluster->last_lease = 0x1000;
    cluster->is_full = false;
    for (int i = 0; i < CLUSTER_MEMBERS_MAX; i++)
        cluster->members[i] = (struct member){.applied = 1,
                                              .is_primary = i == 0,
                                              .apply_us = NEVER,
                                              .learn_us = NEVER,
                                              .alone_us = NEVER,
                                              .streams_us = NEVER};
    add_entry(cluster);
    cluster->log[1] = (struct entry){cluster->term, cluster->keys.revision, 0};
}

void cluster_free(struct cluster *cluster) {
    cluster_reset(cluster, 1);
    free(cluster->keys.list);
    free(cluster->keys.events);
    free(cluster->keys.leases);
    free(cluster->log);
    free(cluster);
}

void cluster_set_time(struct cluster *cluster, int64_t us) {
    cluster->now_us = us;
}
