/* A model of an etcd cluster, of one member or several: bytes of gRPC go in, bytes come out, and
 * the caller sets the time. It supports what the store uses: transactions, deletes, leases and
 * watches.
 *
 * Raft is modelled by what it provides: a log of entries that a majority has, each with the term of
 * the leader that made it; each member has applied a prefix of it. A member that is cut off from
 * the others, whose disk stalls, or that stands still is not part of a majority. If the leader is
 * one of those, the others elect another after a while. The old one keeps taking itself for the
 * leader until it hears of that, or has heard from nobody for so long that it steps down, which it
 * does not do while its disk stalls. The times of leases are in the memory of the leader: it
 * answers keep-alives on its own, and a newly elected leader gives each lease its full time
 * again. */
#ifndef SIM_ETCD_CLUSTER_H
#define SIM_ETCD_CLUSTER_H

#include "sim/etcd/keys.h"

enum { CLUSTER_MEMBERS_MAX = KEYS_MEMBERS_MAX };

struct cluster;
struct cluster_connection;

struct cluster_config {
    /* Bytes for a client; `pushed`: there is no reply to a request in them. */
    void (*output)(void *connection, const char *bytes, size_t size, bool pushed);
    /* A request was answered. */
    void (*executed)(void *connection, const char *line, bool minor);
    void (*changed)(void *context, const struct keys_change *change);
    /* Something happened in the cluster itself. */
    void (*note)(void *context, const char *line);
    uint64_t (*random)(void *context);
    /* Asks for a call of cluster_act at this time (INT64_MAX: never), in place of the time that it
     * last asked for. */
    void (*wake_at)(void *context, int64_t us);
    void *context;
};

struct cluster *cluster_new(const struct cluster_config *config);
void cluster_free(struct cluster *cluster);
/* Makes it an empty cluster with this number of members, which has just elected a leader. There
 * must be no connections. */
void cluster_reset(struct cluster *cluster, int member_count);
void cluster_set_time(struct cluster *cluster, int64_t us);
/* Does what is due. */
void cluster_act(struct cluster *cluster);

struct cluster_connection *cluster_connect(struct cluster *cluster, int member, void *context);
void cluster_disconnect(struct cluster_connection *connection);
/* Takes bytes up to the end of the first request, which cluster_act carries out. */
size_t cluster_feed(struct cluster_connection *connection, const char *bytes, size_t size);

/* ---- Faults ---- */

enum cluster_trouble { CLUSTER_STILL = 1, CLUSTER_CUT_OFF = 2, CLUSTER_DISK_STALLS = 4 };
void cluster_trouble(struct cluster *cluster, int member, enum cluster_trouble what, bool begins);
/* The member has forgotten what was only in memory. It has no connections. */
void cluster_restart(struct cluster *cluster, int member);
void cluster_set_lag(struct cluster *cluster, int member, int64_t us);
void cluster_set_full(struct cluster *cluster, bool full);
/* These do something only if there is a leader with a majority. */
void cluster_move_leader(struct cluster *cluster);
void cluster_compact(struct cluster *cluster);
void cluster_delete(struct cluster *cluster, const ProtobufCBinaryData *name);
/* Revokes the lease of this key, with all its keys. */
void cluster_revoke(struct cluster *cluster, const ProtobufCBinaryData *name);
/* Puts PREFIX and a new lease of this length, as etcd's own locks are. Returns the lease; 0 if it
 * could not. */
int64_t cluster_put_leased(struct cluster *cluster, const char *prefix, int64_t ttl_s);
void cluster_revoke_lease(struct cluster *cluster, int64_t id);

/* ---- For inspection ---- */

/* Who leads, or -1. */
int cluster_leader(const struct cluster *cluster);
const struct keys *cluster_keys(const struct cluster *cluster);
/* When a lease may end, at the earliest. */
int64_t cluster_lease_ends_us(const struct cluster *cluster, int64_t id);

#endif
