#include "store/findings.h"
#include "store/redis/redis.h"

void redis_examine(struct redis *redis, struct store_op *op) {
    op->examination = findings_new(redis->store.driver->info.tier);
    if (op->examination)
        store_complete(redis->host, op, STORE_DONE);
    else
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
}
