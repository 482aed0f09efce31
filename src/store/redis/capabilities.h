/* What the Redis store can do, for its driver and for the list of schemes, which exists without the
 * module. */
#ifndef REDIS_CAPABILITIES_H
#define REDIS_CAPABILITIES_H

#include "store/store.h"

#define REDIS_CAPABILITIES                                                                     \
    (STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH |            \
     STORE_CAN_FLOOR | STORE_CAN_LOOK | STORE_CAN_EXAMINE | STORE_CAN_PUSH | STORE_CAN_COUNT | \
     STORE_CAN_KEEP)

/* In a Cluster, the key that says whether somebody watches is in another slot than most locks. */
#define REDIS_CLUSTER_CAPABILITIES (REDIS_CAPABILITIES & ~(unsigned)STORE_CAN_PUSH)

#endif
