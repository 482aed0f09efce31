/* Memory for Lua. A script makes hundreds of small objects, and the garbage collector frees them in
 * bulk, which is the slow way through malloc. A pool keeps freed blocks in lists, one for each
 * size, and returns all of its memory at once when it is freed. Large blocks come from malloc. */
#ifndef MODEL_POOL_H
#define MODEL_POOL_H

#include <stddef.h>

struct pool;

struct pool *pool_new(void);
/* Frees it, and every block that came from it. */
void pool_free(struct pool *pool);
/* A lua_Alloc, whose first argument is the pool. Aborts if there is no memory. */
void *pool_allocate(void *pool, void *block, size_t old_size, size_t new_size);

#endif
