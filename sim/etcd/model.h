/* What the files of the model share. */
#ifndef SIM_ETCD_MODEL_H
#define SIM_ETCD_MODEL_H

#include "base/list.h"
#include "sim/etcd/cluster.h"
#include "sim/etcd/front.h"

#define NEVER INT64_MAX

struct entry {
    uint64_t term;
    int64_t revision, compacted;
};

struct member {
    unsigned trouble; /* enum cluster_trouble */
    int leader;       /* that it knows of; -1: none */
    bool is_primary;  /* it leads, as far as it knows, and keeps the times of leases */
    size_t applied;   /* the last entry */
    int64_t lag_us;
    int64_t apply_us;   /* when it applies what there is */
    int64_t learn_us;   /* when it hears from the others again */
    int64_t alone_us;   /* when it gives up its leader, from which it hears nothing */
    int64_t streams_us; /* when it ends its streams, as it has no leader */
};

struct cluster_connection {
    struct list link;
    struct cluster *cluster;
    int member;
    void *context;
    struct front *front;
    bool has_reply;
};

struct cluster {
    struct cluster_config config;
    int64_t now_us;
    int member_count, leader; /* -1: none is elected */
    int64_t change_us;        /* when somebody is elected, or the leader is lost */
    struct member members[CLUSTER_MEMBERS_MAX];
    struct entry *log; /* from 1 */
    size_t last, room;
    uint64_t term;
    int64_t last_lease;
    bool is_full;
    struct keys keys;
    struct list connections, requests, watchers;
};

/* A random number. */
int64_t cluster_between(struct cluster *cluster, int64_t least, int64_t most);
/* The term of what the member has applied. */
uint64_t cluster_term_of(const struct cluster *cluster, int member);
int64_t cluster_revision_of(const struct cluster *cluster, int member);
bool cluster_is_still(const struct cluster *cluster, int member);
void cluster_fill_header(Etcd__Header *header, int member, uint64_t term);
/* Sends what is waiting for the client. */
void cluster_flush(struct cluster_connection *connection);

#endif
