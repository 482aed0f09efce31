/* Sends requests to a store through its contract (store.h), without a client in between, and
 * records the answers. So a test can make requests that the client never makes in this order, or
 * never at all. */
#ifndef TESTS_CONTRACT_ASKER_H
#define TESTS_CONTRACT_ASKER_H

#include "base/url.h"
#include "check.h"
#include "store/store.h"
#include "world/epoch.h"
#include "world/world.h"

#include <stdbool.h>

enum { MS = 1000, SECOND = 1000 * MS, PATIENCE_US = 30 * SECOND, MAX_LEASE_US = 60 * SECOND };

struct asker {
    struct store_host host;
    struct store *store;
    int completed, wakes, gones, freed;
    uint64_t last_wake, last_gone;
    int watching, changes; /* changes of the name that was asked for */
    hf_change_type types[8];
    const char *watched;
};

static inline void note_completed(struct store_host *host, struct store_op *op) {
    (void)op;
    container_of(host, struct asker, host)->completed++;
}

static inline void note_wake(struct store_host *host, uint64_t seq) {
    struct asker *asker = container_of(host, struct asker, host);
    asker->wakes++;
    asker->last_wake = seq;
}

static inline void note_gone(struct store_host *host, uint64_t seq) {
    struct asker *asker = container_of(host, struct asker, host);
    asker->gones++;
    asker->last_gone = seq;
}

/* These tests renew when they choose to. */
static inline void ignore_check(struct store_host *host, uint64_t seq) {
    (void)host, (void)seq;
}

static inline void note_change(struct store_host *host, const struct store_change *change) {
    struct asker *asker = container_of(host, struct asker, host);
    const hf_lock_info *lock = hf_locks_at(change->locks, 0);
    asker->watching += change->type == HF_CHANGE_WATCHING;
    if (lock && strcmp(lock->name, asker->watched) == 0) {
        CHECK(asker->changes < 8);
        asker->types[asker->changes++] = change->type;
    }
    hf_locks_free(change->locks);
}

static inline void parse(const char *text, struct url *ret_url) {
    const char *why;
    CHECK_EQ_INT(url_parse(text, ret_url, &why), HF_OK);
}

static inline const struct store_driver *driver_of(const struct url *url) {
    const struct store_driver *driver;
    char *text = NULL;
    CHECK_EQ_INT(store_find(url->scheme, &driver, &text), HF_OK);
    return driver;
}

static inline struct asker *asker_new_in(struct world *world, int64_t wait_lease_us,
                                         uint64_t token_floor) {
    struct asker *asker = calloc(1, sizeof *asker);
    CHECK(asker != NULL && world_epoch_start());
    asker->host = (struct store_host){
        .world = world,
        .identity = {.host = "here", .command = "test", .pid = getpid()},
        .wait_lease_us = wait_lease_us,
        .max_lease_us = MAX_LEASE_US,
        .token_floor = token_floor,
        .completed = note_completed,
        .wake = note_wake,
        .gone = note_gone,
        .check = ignore_check,
        .changed = note_change,
    };
    world_random(world, asker->host.identity.id, sizeof asker->host.identity.id);
    return asker;
}

static inline struct asker *asker_open(struct world *world, const char *url_text,
                                       int64_t wait_lease_us, uint64_t token_floor) {
    struct asker *asker = asker_new_in(world, wait_lease_us, token_floor);
    struct url url;
    char *text = NULL;
    parse(url_text, &url);
    CHECK_EQ_INT(driver_of(&url)->open(&asker->host, &url, &asker->store, &text), HF_OK);
    url_free(&url);
    return asker;
}

static inline void asker_free(struct asker *asker) {
    asker->store->driver->close(asker->store);
    world_close(asker->host.world);
    free(asker);
}

/* Runs what is due in the asker's world, now or within this time. */
static inline void listen_for_us(struct asker *asker, int64_t us) {
    world_flush(asker->host.world);
    world_wait_for(asker->host.world, us);
    world_dispatch(asker->host.world);
}

static inline void submit(struct asker *asker, struct store_op *op) {
    list_init(&op->link);
    op->outcome = 0;
    op->reason = 0;
    asker->store->driver->submit(asker->store, op);
}

/* Submits the operation and waits for its outcome, which comes once. */
static inline enum store_outcome ask(struct asker *asker, struct store_op *op) {
    int before = asker->completed;
    submit(asker, op);
    int64_t until_us = world_now_us(asker->host.world) + PATIENCE_US;
    while (asker->completed == before) {
        CHECK(world_now_us(asker->host.world) < until_us);
        listen_for_us(asker, SECOND);
    }
    CHECK_EQ_INT(asker->completed, before + 1);
    free(op->text);
    op->text = NULL;
    return op->outcome;
}

static inline enum store_outcome release(struct asker *asker, const struct store_op *of) {
    struct store_op op = *of;
    op.type = STORE_RELEASE;
    return ask(asker, &op);
}

/* Asks for the lease in `of`, and stores the granted one there. */
static inline enum store_outcome renew(struct asker *asker, struct store_op *of) {
    struct store_renewal renewal = {.of = of, .lease_us = of->lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    CHECK_EQ_INT(ask(asker, &op), STORE_DONE);
    of->lease_us = renewal.lease_us;
    return renewal.outcome;
}

#endif
