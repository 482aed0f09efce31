/* What the ZooKeeper store can do, for its driver and for the list of schemes, which exists even
 * without the module. */
#ifndef ZOOKEEPER_CAPABILITIES_H
#define ZOOKEEPER_CAPABILITIES                                                                    \
    (STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE | STORE_CAN_FLOOR | STORE_OWN_TOKENS | \
     STORE_CAN_LOOK | STORE_CAN_EXAMINE | STORE_IN_ORDER | STORE_CAN_COUNT)

/* In the layouts of other libraries. */
#define ZOOKEEPER_FOREIGN_CAPABILITIES \
    (ZOOKEEPER_CAPABILITIES & ~(unsigned)(STORE_CAN_PERMITS | STORE_CAN_FLOOR | STORE_CAN_COUNT))

#endif
