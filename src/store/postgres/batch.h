/* One request for the acquires, or the releases, of many threads. They share a transaction, and
 * with it the wait for the disk, and each takes the server a fraction of the time that it takes
 * alone. The server handles the simple cases: locks that are free, releases for which nobody waits.
 * It answers with what it has done, and each of the others is then sent alone. */
#ifndef POSTGRES_BATCH_H
#define POSTGRES_BATCH_H

#include "store/postgres/link.h"

struct pg_batch;
extern const struct pg_batch pg_acquire_batch, pg_release_batch;

/* Takes the members, which are all on the list. NULL: no memory; the list is then unchanged. */
struct pg_request *pg_batch_new(struct postgres *pg, const struct pg_batch *type,
                                struct list *members);

#endif
