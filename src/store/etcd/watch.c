/* The one stream on which etcd reports what happens to keys.
 *
 * Each waiting attempt has a watcher on it, for the one claim that is in its way, and so does each
 * hold that lasts longer than a moment, for its own key. For waiters, an event is a hint. For a
 * hold, the end of its key is its own end: the key has a name that nobody else writes.
 *
 * Where a watcher starts. It should report what happened after the revision R that was read. But
 * etcd serves watchers of the past only ten times a second, and a waiter's turn may come sooner. So
 * the watcher of a waiter starts when it is created. If something was written between R and then,
 * which may have been the end of what it waits for, the attempt looks again.
 *
 * The watcher of a hold starts at R, and events of R are ignored: if the history is compacted at
 * exactly R + 1, etcd accepts a watch from there on and has forgotten the keys that R + 1 deleted.
 *
 * When the stream has ended, something may have been missed. When there is a connection again,
 * waiters are woken, and holds are checked; their next answers bring the new watchers. */
#include "store/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

enum { MOMENT_US = 1000000, PAUSE_US = 1000000, ANY = -1 };

/* ---- The stream ---- */

static struct etcd_attempt *attempt_watched_by(struct etcd *etcd, int64_t id) {
    struct map_node *node = map_find(&etcd->watchers, map_hash_number((uint64_t)id));
    return node ? container_of(node, struct etcd_attempt, by_watch) : NULL;
}

static void forget_watch(struct etcd *etcd, struct etcd_attempt *attempt) {
    if (attempt->watch)
        map_remove(&etcd->watchers, &attempt->by_watch);
    attempt->watch = 0;
}

static void forget_all(struct etcd *etcd) {
    etcd->missed |= etcd->watchers.count > 0;
    for (struct map_node *node; (node = map_first(&etcd->watchers));)
        forget_watch(etcd, container_of(node, struct etcd_attempt, by_watch));
    grpc_cancel(&etcd->watch);
    etcd_changes_lost(etcd);
}

static bool send_request(struct etcd *etcd, const Etcd__WatchRequest *request) {
    uint8_t bytes[2 * ETCD_KEY_MAX + 100];
    size_t size = etcd__watch_request__pack(request, bytes);
    bool ok = grpc_send(&etcd->watch, bytes, size);
    etcd_link_flush(&etcd->link);
    return ok;
}

void etcd_watch_cancel(struct etcd *etcd, int64_t watch) {
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCancelRequest cancel = ETCD__WATCH_CANCEL_REQUEST__INIT;
    cancel.watch_id = watch;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CANCEL;
    request.cancel = &cancel;
    send_request(etcd, &request); /* if there is no memory, its reports are ignored */
}

void etcd_watch_stop(struct etcd *etcd, struct etcd_attempt *attempt) {
    list_remove(&attempt->young);
    if (attempt->watch)
        etcd_watch_cancel(etcd, attempt->watch);
    forget_watch(etcd, attempt);
}

static void happened(struct etcd *etcd, struct etcd_attempt *attempt,
                     const Etcd__WatchResponse *response) {
    bool ended = false, is_news = false;
    for (size_t i = 0; i < response->n_events; i++) {
        const Etcd__Event *event = response->events[i];
        bool is_new = event->kv && event->kv->mod_revision > attempt->revision;
        is_news |= is_new;
        ended |= is_new && event->type == ETCD__EVENT__TYPE__DELETE;
    }
    if (attempt->queued && is_news) {
        attempt->is_woken = ended;
        etcd->host->wake(etcd->host, attempt->seq);
        etcd_watch_stop(etcd, attempt);
    } else if (attempt->held && ended) {
        attempt->until_us = 0;
        etcd_watch_stop(etcd, attempt);
        etcd->host->gone(etcd->host, attempt->seq);
    }
}

/* The server has dropped a watcher. If the revision that it should start at was compacted, asking
 * again helps; if watching is not permitted, it does not. */
static void cancelled(struct etcd *etcd, struct etcd_attempt *attempt, bool is_compacted) {
    forget_watch(etcd, attempt);
    if (is_compacted && attempt->queued)
        etcd->host->wake(etcd->host, attempt->seq);
    else if (is_compacted)
        etcd->host->check(etcd->host, attempt->seq);
}

/* The watcher of a waiter starts here: it does not report what happened before. */
static void created(struct etcd *etcd, struct etcd_attempt *attempt, const Etcd__Header *header) {
    if (attempt->queued && (!header || header->revision > attempt->revision))
        etcd->host->wake(etcd->host, attempt->seq);
}

static void message_came(struct grpc_call *call, const uint8_t *bytes, size_t size) {
    struct etcd *etcd = container_of(call, struct etcd, watch);
    Etcd__WatchResponse *response = etcd__watch_response__unpack(NULL, size, bytes);
    struct etcd_attempt *attempt = response ? attempt_watched_by(etcd, response->watch_id) : NULL;
    if (response && etcd->changes.watch && response->watch_id == etcd->changes.watch)
        etcd_changes_came(etcd, response);
    else if (attempt && response->canceled)
        cancelled(etcd, attempt, response->compact_revision > 0);
    else if (attempt && response->created)
        created(etcd, attempt, response->header);
    else if (attempt)
        happened(etcd, attempt, response);
    if (response)
        etcd__watch_response__free_unpacked(response, NULL);
}

static bool is_open(struct etcd *etcd) {
    if (etcd->watch.grpc)
        return true;
    if (etcd->link.state != ETCD_READY || etcd_now_us(etcd) < etcd->watch_from_us)
        return false;
    struct grpc_request request = {.path = "/etcdserverpb.Watch/Watch", .token = etcd->link.token};
    return grpc_start(etcd->link.grpc, &etcd->watch, &request);
}

int64_t etcd_watch_create(struct etcd *etcd, Etcd__WatchCreateRequest *create) {
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    if (!is_open(etcd))
        return 0;
    create->watch_id = ++etcd->last_watch;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CREATE;
    request.create = create;
    return send_request(etcd, &request) ? create->watch_id : 0;
}

static const int64_t from_now_on = 0; /* a start revision */

static void watch(struct etcd *etcd, struct etcd_attempt *attempt, ProtobufCBinaryData key,
                  ProtobufCBinaryData end, int64_t from) {
    Etcd__WatchCreateRequest create = ETCD__WATCH_CREATE_REQUEST__INIT;
    Etcd__WatchCreateRequest__Filter filter = ETCD__WATCH_CREATE_REQUEST__FILTER__NOPUT;
    create.key = key;
    create.range_end = end;
    create.start_revision = from;
    create.filters = &filter;
    create.n_filters = !attempt->sees_puts;
    attempt->watch = etcd_watch_create(etcd, &create);
    if (attempt->watch)
        map_add(&etcd->watchers, &attempt->by_watch, map_hash_number((uint64_t)attempt->watch));
}

/* ---- Whom to watch ---- */

static void watch_name(struct etcd *etcd, struct etcd_attempt *attempt) {
    struct etcd_key range = {.size = attempt->range_size}, end;
    memcpy(range.bytes, attempt->key.bytes, range.size);
    etcd_end_of(&range, &end);
    watch(etcd, attempt, etcd_bytes(&range), etcd_bytes(&end), from_now_on);
}

void etcd_watch_blocker(struct etcd *etcd, struct etcd_attempt *attempt,
                        const Etcd__KeyValue *blocker, bool puts, int64_t revision) {
    int64_t create = blocker ? blocker->create_revision : ANY;
    if (attempt->watch && attempt->watched_create == create)
        return;
    etcd_watch_stop(etcd, attempt);
    attempt->watched_create = create;
    attempt->revision = revision;
    attempt->sees_puts = blocker && puts;
    if (!blocker)
        watch_name(etcd, attempt);
    else if (blocker->key.len <= ETCD_KEY_MAX) /* otherwise it asks again now and then */
        watch(etcd, attempt, blocker->key, (ProtobufCBinaryData){0}, from_now_on);
}

static void watch_own(struct etcd *etcd, struct etcd_attempt *attempt, int64_t revision) {
    attempt->watched_create = 0;
    attempt->revision = revision;
    attempt->sees_puts = false;
    watch(etcd, attempt, etcd_bytes(&attempt->key), (ProtobufCBinaryData){0}, revision);
}

void etcd_watch_hold(struct etcd *etcd, struct etcd_attempt *attempt, int64_t revision) {
    if (attempt->watch && !attempt->watched_create)
        return;
    etcd_watch_stop(etcd, attempt);
    attempt->revision = revision;
    attempt->young_until_us = etcd_now_us(etcd) + MOMENT_US;
    if (list_empty(&etcd->young))
        world_timer_set(etcd->host->world, &etcd->young_timer, attempt->young_until_us);
    list_append(&etcd->young, &attempt->young);
}

void etcd_watch_again(struct etcd *etcd, struct etcd_attempt *attempt, int64_t revision) {
    if (attempt->held && !attempt->watch && list_empty(&attempt->young))
        watch_own(etcd, attempt, revision);
}

/* ---- What was missed ---- */

void etcd_watch_up(struct etcd *etcd) {
    if (!etcd->missed)
        return;
    etcd->missed = false;
    etcd->host->wake(etcd->host, STORE_ALL_WAITING);
    for (struct map_node *node = map_first(&etcd->attempts); node;
         node = map_after(&etcd->attempts, node)) {
        struct etcd_attempt *attempt = container_of(node, struct etcd_attempt, by_seq);
        if (attempt->held)
            etcd->host->check(etcd->host, attempt->seq);
    }
}

void etcd_watch_down(struct etcd *etcd) {
    forget_all(etcd);
}

void etcd_watch_ended(struct etcd *etcd) {
    forget_all(etcd);
    etcd->watch_from_us = etcd_now_us(etcd) + PAUSE_US;
    world_timer_set(etcd->host->world, &etcd->young_timer, etcd->watch_from_us);
}

static void timer_due(struct world_timer *timer) {
    struct etcd *etcd = container_of(timer, struct etcd, young_timer);
    int64_t now_us = etcd_now_us(etcd);
    if (etcd->link.state == ETCD_READY && etcd->watch_from_us <= now_us)
        etcd_watch_up(etcd);
    while (!list_empty(&etcd->young)) {
        struct etcd_attempt *attempt = container_of(etcd->young.next, struct etcd_attempt, young);
        if (attempt->young_until_us > now_us) {
            world_timer_set(etcd->host->world, timer, attempt->young_until_us);
            return;
        }
        list_remove(&attempt->young);
        watch_own(etcd, attempt, attempt->revision);
    }
}

int etcd_watch_init(struct etcd *etcd) {
    map_init(&etcd->watchers);
    list_init(&etcd->young);
    etcd->watch.message = message_came;
    return world_timer_add(etcd->host->world, &etcd->young_timer, timer_due);
}

void etcd_watch_close(struct etcd *etcd) {
    grpc_cancel(&etcd->watch);
    map_free(&etcd->watchers);
    world_timer_drop(etcd->host->world, &etcd->young_timer);
}
