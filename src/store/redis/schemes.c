#include "store/schemes.h"

#include "store/redis/capabilities.h"

#define REDIS \
    { "redis" }
#define REDIS_TLS \
    { "redis", "tls" }

const struct store_scheme store_redis_schemes[] = {
    {"rediss", "timed", "all who reach one Redis server, over TLS", NULL, REDIS_CAPABILITIES,
     REDIS_TLS},
    {"redis", "timed", "all who reach one Redis server, in plaintext", NULL, REDIS_CAPABILITIES,
     REDIS},
    {"redis+unix", "timed", "processes of one host, by a Redis server's socket", NULL,
     REDIS_CAPABILITIES, REDIS},
    {"rediss+sentinel", "best effort", "a Redis master that sentinels watch, over TLS", NULL,
     REDIS_CAPABILITIES, REDIS_TLS},
    {"redis+sentinel", "best effort", "a Redis master that sentinels watch, in plaintext", NULL,
     REDIS_CAPABILITIES, REDIS},
    {"rediss+cluster", "best effort", "a Redis Cluster, over TLS", NULL, REDIS_CLUSTER_CAPABILITIES,
     REDIS_TLS},
    {"redis+cluster", "best effort", "a Redis Cluster, in plaintext", NULL,
     REDIS_CLUSTER_CAPABILITIES, REDIS},
    {"quorum+rediss", "strict", "a majority of independent Redis servers (Redlock), over TLS",
     &store_quorum, 0, REDIS_TLS},
    {"quorum+redis", "strict", "a majority of independent Redis servers (Redlock), in plaintext",
     &store_quorum, 0, REDIS},
    {0},
};
