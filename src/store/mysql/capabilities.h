/* What the MySQL store can do, for its driver and for the list of schemes, which exists even
 * without the module. */
#ifndef MYSQL_CAPABILITIES_H
#define MYSQL_CAPABILITIES_H

#include "store/store.h"

#define MYSQL_CAPABILITIES                                                          \
    (STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH | \
     STORE_CAN_FLOOR | STORE_CAN_LOOK | STORE_CAN_EXAMINE | STORE_CAN_COUNT | STORE_CAN_KEEP)

#endif
