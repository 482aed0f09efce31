/* One request for the acquires, or the releases, of many threads; see batch.h of the PostgreSQL
 * store. */
#ifndef MYSQL_BATCH_H
#define MYSQL_BATCH_H

#include "store/mysql/link.h"

struct my_batch;
extern const struct my_batch my_acquire_batch, my_release_batch;

/* Takes the members, which are all on the list. NULL: no memory; the list is then unchanged. */
struct my_request *my_batch_new(struct mysql *my, const struct my_batch *type,
                                struct list *members);

#endif
