/* What doctor finds out about several servers together: the sentinels and the replicas of their
 * master, or the nodes of a Cluster. examine.c does the asking. */
#ifndef REDIS_DEPLOYMENT_H
#define REDIS_DEPLOYMENT_H

#include "store/findings.h"
#include "store/redis/redis.h"

struct deployment {
    size_t sentinels, answering;         /* of those in the URL */
    int64_t known, quorum, min_replicas; /* -1: not known */
    const char *sentinel_user;
    int64_t masters_seen, replicas, lag_s, behind;   /* of the slowest replica */
    bool lacks_ping, lacks_subscribe, lacks_channel; /* at a sentinel */
    char *cluster_info, *cluster_nodes; /* as the server answers; NULL: not permitted */
};

void deployment_init(struct deployment *deployment);
void deployment_free(struct deployment *deployment);

/* Notes an answer to SENTINEL MASTER (NULL: none), or that the question is not permitted. */
void deployment_note_sentinel(struct deployment *deployment, const struct reply *reply,
                              bool is_refused);

/* Notes the INFO of a master. */
void deployment_note_info(struct deployment *deployment, const char *info);

/* False: no memory. */
bool deployment_report(const struct deployment *deployment, const struct redis_route *route,
                       hf_examination *to);

#endif
