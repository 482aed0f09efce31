/* A toy: exclusive locks among the threads of one process. It keeps the rules of store.h and can do
 * nothing else: no queue, no shared holds, no permits, no inspection. The host's clock is the
 * store's clock. */
#include "store/toy/toy.h"
#include "store/store.h"
#include "world/world.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct toy {
    struct store store;
    struct store_host *host;
};

static struct lock {
    char name[256]; /* "": nobody has used this one yet */
    uint8_t owner[16];
    uint64_t seq, token;
    int64_t until_us;
} locks[10000];
static uint64_t token_base;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct lock *find(const char *name) {
    struct lock *lock = locks;
    while (lock->name[0] && strcmp(lock->name, name) != 0)
        lock++;
    assert(lock < locks + sizeof(locks) / sizeof(locks[0]) - 1); /* the last ends the search */
    strcpy(lock->name, name);
    return lock;
}

static bool is_mine(const struct toy *toy, const struct lock *lock, uint64_t seq, int64_t now_us) {
    return lock->seq == seq && lock->until_us > now_us &&
           memcmp(lock->owner, toy->host->identity.id, sizeof(lock->owner)) == 0;
}

/* Even a repeat never moves the end of a lease to an earlier time. */
static void extend(struct lock *lock, int64_t until_us) {
    if (lock->until_us < until_us)
        lock->until_us = until_us;
}

static void acquire(struct toy *toy, struct store_op *op, int64_t now_us) {
    struct lock *lock = find(op->name);
    bool repeats = is_mine(toy, lock, op->seq, now_us);
    enum store_outcome outcome = STORE_REFUSED;
    if (lock->until_us > now_us && !repeats) {
        op->reason = HF_BUSY;
        op->left_us = lock->until_us - now_us;
        op->flags |= STORE_HEAD; /* without a queue, every waiter is the head */
        outcome = op->flags & STORE_WAIT ? STORE_QUEUED : STORE_REFUSED;
    } else if ((op->reason = store_next_token(lock->token, repeats, op->floor, token_base,
                                              world_wall_us(toy->host->world), &op->token,
                                              &op->text)) == HF_OK) {
        memcpy(lock->owner, toy->host->identity.id, sizeof(lock->owner));
        lock->seq = op->seq;
        lock->token = op->token;
        extend(lock, now_us + op->lease_us);
        outcome = STORE_DONE;
    }
    store_complete(toy->host, op, outcome);
}

static void renew(struct toy *toy, struct store_op *op, int64_t now_us) {
    for (size_t i = 0; i < op->renewal_count; i++) {
        const struct store_op *of = op->renewals[i].of;
        bool mine = of && is_mine(toy, find(of->name), of->seq, now_us);
        if (mine)
            extend(find(of->name), now_us + op->renewals[i].lease_us);
        op->renewals[i].outcome = mine ? STORE_DONE : STORE_NOT_YOURS;
    }
    store_complete(toy->host, op, STORE_DONE);
}

static void release(struct toy *toy, struct store_op *op, int64_t now_us) {
    bool mine = is_mine(toy, find(op->name), op->seq, now_us);
    if (mine)
        find(op->name)->until_us = 0;
    store_complete(toy->host, op, mine ? STORE_DONE : STORE_NOT_YOURS);
}

static void break_hold(struct toy *toy, struct store_op *op, int64_t now_us) {
    struct lock *lock = find(op->name);
    bool breaks = lock->until_us > now_us && lock->token == op->token;
    if (breaks)
        lock->until_us = 0;
    store_complete(toy->host, op, breaks ? STORE_DONE : STORE_NOT_YOURS);
}

static void toy_submit(struct store *store, struct store_op *op) {
    static void (*const operations[])(struct toy *, struct store_op *, int64_t) = {
        [STORE_ACQUIRE] = acquire,
        [STORE_RENEW] = renew,
        [STORE_RELEASE] = release,
        [STORE_BREAK] = break_hold,
    };
    struct toy *toy = container_of(store, struct toy, store);
    pthread_mutex_lock(&mutex);
    operations[op->type](toy, op, world_host_us(toy->host->world));
    pthread_mutex_unlock(&mutex);
}

static void toy_close(struct store *store) {
    free(container_of(store, struct toy, store));
}

static int toy_open(struct store_host *host, const struct url *url, struct store **ret_store,
                    char **ret_text);

extern const struct store_driver holdfast_store_driver;
__attribute__((visibility("default"))) const struct store_driver holdfast_store_driver = {
    .abi = STORE_ABI,
    .scheme = "toy",
    .tier = "timed",
    .capabilities = TOY_CAPABILITIES,
    .lacks = "a toy has exclusive locks only",
    .open = toy_open,
    .submit = toy_submit,
    .close = toy_close,
};

static int toy_open(struct store_host *host, const struct url *url, struct store **ret_store,
                    char **ret_text) {
    (void)url;
    (void)ret_text;
    struct toy *toy = malloc(sizeof(*toy));
    if (!toy)
        return HF_NO_MEMORY;
    *toy = (struct toy){{&holdfast_store_driver}, host};
    pthread_mutex_lock(&mutex);
    token_base = token_base > host->token_floor ? token_base : host->token_floor;
    pthread_mutex_unlock(&mutex);
    *ret_store = &toy->store;
    return HF_OK;
}
