/* What doctor finds out about several servers together: the sentinels and the replicas of their
 * master, or the nodes of a Cluster. examine.c does the asking. */
#ifndef REDIS_DEPLOYMENT_H
#define REDIS_DEPLOYMENT_H

#include "store/findings.h"
#include "store/redis/redis.h"

struct deployment {
    size_t sentinels, answering;         /* of those in the URL */
    int64_t known, quorum, min_replicas; /* sentinels that they know of; -1: not known */
    const char *sentinel_user;
    int64_t masters_seen, replicas, lag_s, behind;   /* the slowest of them: since when, in bytes */
    bool lacks_ping, lacks_subscribe, lacks_channel; /* at a sentinel */
    char *cluster_info, *cluster_nodes; /* as the server says it; NULL: it may not be asked */
};

void deployment_init(struct deployment *deployment);
void deployment_free(struct deployment *deployment);

/* An answer to SENTINEL MASTER, or that this may not be asked; NULL: none. */
void deployment_note_sentinel(struct deployment *deployment, const struct reply *reply,
                              bool is_refused);

/* INFO of a master. */
void deployment_note_info(struct deployment *deployment, const char *info);

/* False: no memory. */
bool deployment_report(const struct deployment *deployment, const struct redis_route *route,
                       hf_examination *to);

#endif
