#ifndef STORE_MEMORY_EXAMINE_H
#define STORE_MEMORY_EXAMINE_H

#include "store/store.h"

/* Completes an EXAMINE. */
void memory_examine_space(struct store_host *host, struct store_op *op);

#endif
