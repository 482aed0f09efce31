/* The claims of this client: attempts that the ensemble may know, held or waiting. */
#include "base/error.h"
#include "store/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { RETRY_US = 1000000 }; /* after a deletion that failed */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Claims ---- */

struct zk_claim *claim_find(const struct zookeeper *zk, uint64_t seq) {
    /* The hash is a bijection, so equal hashes mean equal numbers. */
    struct map_node *node = map_find(&zk->claims, map_hash_number(seq));
    return node ? container_of(node, struct zk_claim, by_seq) : NULL;
}

static void own_fired(struct zk_watch *watch, enum codec_event_type type);
static void ahead_fired(struct zk_watch *watch, enum codec_event_type type);

struct zk_claim *claim_new(struct zookeeper *zk, const struct store_op *op) {
    struct zk_claim *claim = calloc(1, sizeof(*claim));
    if (!claim)
        return NULL;
    claim->lock = zookeeper_lock_path(zk, op->name);
    if (!claim->lock) {
        free(claim);
        return NULL;
    }
    claim->zk = zk;
    claim->seq = op->seq;
    claim->own = (struct zk_watch){.context = claim, .fired = own_fired};
    claim->ahead = (struct zk_watch){.context = claim, .fired = ahead_fired};
    names_format_claim(zk->layout, op, zk->host->identity.id, claim->prefix);
    map_add(&zk->claims, &claim->by_seq, map_hash_number(claim->seq));
    list_append(&zk->claim_list, &claim->link);
    zk_session_keep(&zk->session, true);
    return claim;
}

void claim_forget_node(struct zk_claim *claim) {
    zk_watch_clear(&claim->zk->session, &claim->own);
    zk_watch_clear(&claim->zk->session, &claim->ahead);
    free(claim->path);
    claim->path = NULL;
    claim->may_exist = false;
    claim->czxid = 0;
    claim->until_us = 0;
}

static void claim_drop(struct zk_claim *claim) {
    struct zookeeper *zk = claim->zk;
    claim_forget_node(claim);
    map_remove(&zk->claims, &claim->by_seq);
    list_remove(&claim->link);
    free(claim->lock);
    free(claim);
    zk_session_keep(&zk->session, !list_empty(&zk->claim_list));
}

void zookeeper_drop_claims(struct zookeeper *zk) {
    list_each_safe(node, &zk->claim_list)
        claim_drop(container_of(node, struct zk_claim, link));
}

static void watch_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zookeeper *zk = request->context;
    (void)in;
    struct zk_claim *claim = claim_find(zk, request->part);
    if (header && header->error == ZK_NO_NODE && claim && claim->own.path) {
        zk_watch_clear(&zk->session, &claim->own);
        own_fired(&claim->own, EVENT_DELETED);
    }
}

void claim_watch(struct zk_claim *claim) {
    struct zookeeper *zk = claim->zk;
    struct zk_request *request = zk_request_new(&zk->session, watch_answered, zk, claim->seq);
    if (request && zk_watch_set(&zk->session, &claim->own, claim->path)) {
        codec_get_data(&request->out, request->xid, claim->path, true);
        request->give_up_us = WORLD_NEVER;
        zk_session_submit(&zk->session, request);
    } else {
        free(request); /* the next renewal tries again */
    }
}

static void own_fired(struct zk_watch *watch, enum codec_event_type type) {
    struct zk_claim *claim = watch->context;
    struct store_host *host = claim->zk->host;
    uint64_t seq = claim->seq;
    if (type != EVENT_DELETED) {
        claim_watch(claim);
        return;
    }
    if (claim->task)
        return; /* it will find out */
    bool held = claim->until_us;
    claim_drop(claim);
    if (held)
        host->gone(host, seq);
    else
        host->wake(host, seq);
}

static void ahead_fired(struct zk_watch *watch, enum codec_event_type type) {
    struct zk_claim *claim = watch->context;
    (void)type;
    claim->woken = true;
    claim->zk->host->wake(claim->zk->host, claim->seq);
}

/* ---- Leases ---- */

/* Clients subtract the drift of clocks from the lease, but not from the time between the anchor and
 * their request: that is done here. */
int64_t claim_lease_us(const struct zk_task *task, int64_t asked_us) {
    const struct zk_session *session = &task->zk->session;
    int64_t left_us = zk_session_valid_until_us(session) - task->started_us;
    int64_t age_us = task->started_us - session->anchor_us;
    const struct store_host *host = task->zk->host;
    if (age_us > 0)
        left_us -= age_us * host->drift_ppm / 1000000;
    int64_t lease_us = min(min(asked_us, left_us), host->max_lease_us);
    return lease_us > 0 ? lease_us : 1;
}

static void expire_at(struct zookeeper *zk, int64_t at_us) {
    if (!zk->expiry.node.place || at_us < zk->expiry.node.at)
        world_timer_set(zk->host->world, &zk->expiry, at_us);
}

void claim_hold_until(struct zk_claim *claim, int64_t until_us) {
    if (until_us < claim->until_us)
        return; /* its owner relies on the time that it was given earlier */
    claim->until_us = until_us;
    expire_at(claim->zk, until_us);
}

void claim_end_later(struct zk_claim *claim) {
    struct zookeeper *zk = claim->zk;
    expire_at(zk, world_now_us(zk->host->world) + RETRY_US);
}

/* Ends holds that were not renewed although the session continues, and claims that could not be
 * deleted earlier. */
void zookeeper_expire(struct zookeeper *zk) {
    int64_t now_us = world_now_us(zk->host->world), next_us = WORLD_NEVER;
    list_each_safe(node, &zk->claim_list) {
        struct zk_claim *claim = container_of(node, struct zk_claim, link);
        bool is_over = claim->doomed || (claim->until_us && claim->until_us <= now_us);
        if (is_over && !claim->task)
            claim_end(claim);
        else if (claim->until_us)
            next_us = min(next_us, claim->until_us > now_us ? claim->until_us : now_us + 1000);
    }
    if (next_us != WORLD_NEVER)
        expire_at(zk, next_us);
}

/* ---- The session ---- */

/* The session has ended, and all nodes with it. Tasks that work on them start over. */
void zookeeper_ended(struct zookeeper *zk) {
    struct store_host *host = zk->host;
    list_each_safe(node, &zk->claim_list) {
        struct zk_claim *claim = container_of(node, struct zk_claim, link);
        bool held = claim->until_us;
        uint64_t seq = claim->seq;
        claim_forget_node(claim);
        if (!claim->task)
            claim_drop(claim);
        if (held)
            host->gone(host, seq);
        else
            host->wake(host, seq);
    }
}

/* `in` lists the claims on the lock, of which the last with this id counts. */
bool claim_found(struct zk_claim *claim, const struct codec_header *header, struct codec_in *in) {
    struct names_claim *claims = NULL;
    size_t count = 0;
    if (header->error == ZK_OK && names_read_claims(claim->zk->layout, in, &claims, &count) < 0)
        return false;
    claim->may_exist = false;
    for (size_t i = count; i-- > 0 && !claim->path && !claim->may_exist;) {
        if (claims[i].seq != claim->seq ||
            memcmp(claims[i].client, claim->zk->host->identity.id, sizeof(claims[i].client)) != 0)
            continue;
        claim->path = error_format("%s/%s", claim->lock, claims[i].node);
        claim->may_exist = !claim->path;
    }
    free(claims);
    return !claim->may_exist;
}

void claim_settle(struct zk_claim *claim) {
    claim->task = NULL;
    if (!claim->path && !claim->may_exist)
        claim_drop(claim);
}
