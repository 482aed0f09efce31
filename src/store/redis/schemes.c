#include "store/schemes.h"

enum { ONE_SERVER = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE, A_SET = STORE_CAN_SHARE };

#define REDIS \
    { "redis" }
#define REDIS_TLS \
    { "redis", "tls" }

const struct store_scheme store_redis_schemes[] = {
    {"rediss", "timed", "all who reach one Redis server, over TLS", ONE_SERVER, NULL, REDIS_TLS},
    {"redis", "timed", "all who reach one Redis server, in plaintext", ONE_SERVER, NULL, REDIS},
    {"redis+unix", "timed", "processes of one host, by a Redis server's socket", ONE_SERVER, NULL,
     REDIS},
    {"rediss+sentinel", "best effort", "a Redis master that sentinels watch, over TLS", ONE_SERVER,
     NULL, REDIS_TLS},
    {"redis+sentinel", "best effort", "a Redis master that sentinels watch, in plaintext",
     ONE_SERVER, NULL, REDIS},
    {"rediss+cluster", "best effort", "a Redis Cluster, over TLS", ONE_SERVER, NULL, REDIS_TLS},
    {"redis+cluster", "best effort", "a Redis Cluster, in plaintext", ONE_SERVER, NULL, REDIS},
    {"quorum+rediss", "strict", "a majority of independent Redis servers (Redlock), over TLS",
     A_SET, &store_quorum, REDIS_TLS},
    {"quorum+redis", "strict", "a majority of independent Redis servers (Redlock), in plaintext",
     A_SET, &store_quorum, REDIS},
    {0},
};
