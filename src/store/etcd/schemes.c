#include "store/schemes.h"

#include "store/etcd/capabilities.h"

const struct store_scheme store_etcd_schemes[] = {
    {"etcds",
     "strict",
     "all who reach one etcd cluster, over TLS",
     NULL,
     ETCD_CAPABILITIES,
     {"etcd", "tls"}},
    {"etcd",
     "strict",
     "all who reach one etcd cluster, in plaintext",
     NULL,
     ETCD_CAPABILITIES,
     {"etcd"}},
    {0},
};
