/* The stores that are built in. */
#ifndef STORE_DRIVERS_H
#define STORE_DRIVERS_H

#include "store/store.h"

extern const struct store_driver store_memory, store_quorum, store_sqlite;

#endif
