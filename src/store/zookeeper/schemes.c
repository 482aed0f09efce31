#include "store/schemes.h"

#include "store/zookeeper/capabilities.h"

const struct store_scheme store_zookeeper_schemes[] = {
    {"zookeepers",
     "strict",
     "all who reach one ZooKeeper ensemble, over TLS",
     NULL,
     ZOOKEEPER_CAPABILITIES,
     {"zookeeper", "tls"}},
    {"zookeeper",
     "strict",
     "all who reach one ZooKeeper ensemble, in plaintext",
     NULL,
     ZOOKEEPER_CAPABILITIES,
     {"zookeeper"}},
    {0},
};
