/* Reports changes of locks to watchers: an additional watcher on the stream, for all keys of the
 * prefix.
 *
 * Design notes.
 *
 * etcd keeps its history, so nothing is missed while a connection is down: the watcher continues
 * from the last revision that was reported (watch.c says why not from the next one). Only if that
 * was compacted meanwhile, or if the cluster was restored from a backup and its revisions have gone
 * back, is something missing.
 *
 * A silent stream proves nothing: the member may be gone, or cut off from the others. So the
 * cluster is asked for its revision now and then, which a majority must confirm. The link abandons
 * a member that cannot answer.
 *
 * What an event means. A key that is written is a claim that waits or holds. A claim whose key is
 * deleted was released, has left the queue, or was broken; if it was broken, the record of the
 * break was written in the same transaction, right after the deletion. But etcd also deletes a key
 * when its lease ends, and its events do not say so. So when a hold is gone, etcd is asked about
 * its lease: if that is alive, the hold was released. Later changes wait for the answer, to keep
 * their order. If the lease is over, it was the lease that ended the hold, unless the event is old:
 * then the lease may have ended since, and the watcher reports that it does not know.
 *
 * Locks of etcd's own clients are left to polls: whether such a key holds the lock depends on other
 * keys. */
#include "base/error.h"
#include "store/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

enum { PROBE_US = 3000000, RETRY_US = 500000 };

/* A change to report. */
struct entry {
    struct list link;
    struct store_change change;
    bool is_asked; /* its lease is being asked for */
    bool is_old;
    bool is_unknown;
    bool is_void; /* there is nothing to report */
};

static struct entry *entry_at(struct list *node) {
    return container_of(node, struct entry, link);
}

/* ---- Reporting ---- */

static void say(struct etcd *etcd, hf_change_type type, const char *text) {
    struct store_change change = {
        .type = type, .at_us = world_wall_us(etcd->host->world), .text = text};
    etcd->host->changed(etcd->host, &change);
}

static void entry_free(struct entry *entry) {
    list_remove(&entry->link);
    hf_locks_free(entry->change.locks);
    free(entry);
}

static void report(struct etcd *etcd, struct entry *entry) {
    if (entry->is_unknown) {
        say(etcd, HF_CHANGE_MISSED, "it is not known how a hold ended");
        say(etcd, HF_CHANGE_WATCHING, NULL);
    } else if (!entry->is_void) {
        etcd->host->changed(etcd->host, &entry->change);
        entry->change.locks = NULL;
    }
    entry_free(entry);
}

static void report_known(struct etcd *etcd) {
    struct list *queue = &etcd->changes.queue;
    while (!list_empty(queue) && !entry_at(queue->next)->is_asked)
        report(etcd, entry_at(queue->next));
}

/* An entry whose lease is being asked for is freed with the answer. */
static void drop_queue(struct etcd *etcd) {
    list_each_safe(node, &etcd->changes.queue) {
        list_remove(node);
        if (!entry_at(node)->is_asked)
            entry_free(entry_at(node));
    }
}

/* Something is missing. */
static void fall_back(struct etcd *etcd, const char *why) {
    struct etcd_changes *changes = &etcd->changes;
    drop_queue(etcd);
    changes->next = 0;
    if (changes->is_live)
        say(etcd, HF_CHANGE_MISSED, why);
    changes->is_live = false;
}

/* ---- Events ---- */

static void time_answered(struct etcd *etcd, struct etcd_call *call) {
    struct entry *entry = call->context;
    int64_t seconds = 0;
    bool is_known = etcd_time_left(call, &seconds);
    entry->is_asked = false;
    entry->is_void = is_known && seconds <= 0 && !entry->is_old;
    entry->is_unknown = !is_known || (seconds <= 0 && entry->is_old);
    if (list_empty(&entry->link))
        entry_free(entry); /* the watch has ended, or has started again */
    else
        report_known(etcd);
}

static void ask_lease(struct etcd *etcd, struct entry *entry, int64_t lease) {
    struct etcd_call *call = etcd_ask_time(lease, time_answered, entry);
    entry->is_asked = call;
    entry->is_unknown = !call;
    if (call)
        etcd_send(etcd, call, etcd_now_us(etcd) + etcd->timeout_us);
}

/* The break that the next event reports, if it belongs to this name and the same transaction; to be
 * freed. */
static Etcd__Break *read_break(struct etcd *etcd, const Etcd__WatchResponse *response, size_t index,
                               const char *name) {
    const Etcd__KeyValue *gone = response->events[index]->kv,
                         *kv = index + 1 < response->n_events ? response->events[index + 1]->kv
                                                              : NULL;
    struct etcd_key key;
    etcd_break_key(etcd, name, &key);
    bool is_it = kv && kv->mod_revision == gone->mod_revision && kv->key.len == key.size &&
                 memcmp(kv->key.data, key.bytes, key.size) == 0;
    return is_it ? etcd__break__unpack(NULL, kv->value.len, kv->value.data) : NULL;
}

static hf_change_type type_of(const struct claim *claim, bool is_deleted) {
    if (is_deleted)
        return claim->value->held ? HF_CHANGE_RELEASED : HF_CHANGE_LEFT;
    return claim->value->held ? HF_CHANGE_ACQUIRED : HF_CHANGE_WAITING;
}

/* False: no memory. */
static bool fill(struct etcd *etcd, struct entry *entry, const struct claim *claim,
                 const char *name, const Etcd__Break *record) {
    struct store_change *change = &entry->change;
    bool holds = claim->value->held;
    change->at_us = record ? record->at_us : world_wall_us(etcd->host->world);
    if (record)
        change->type = HF_CHANGE_BROKEN;
    change->locks = locks_new();
    return change->locks &&
           locks_add(change->locks, name, (enum store_kind)claim->value->kind,
                     claim->value->capacity, claim_token(etcd, claim)) &&
           (!record || etcd_add_break(change->locks, record)) &&
           etcd_add_party(etcd, change->locks, claim, holds ? LOCKS_HOLDER : LOCKS_WAITER,
                          claim->value->lease_ms);
}

/* False: no memory. */
static bool add_change(struct etcd *etcd, const Etcd__WatchResponse *response, size_t index,
                       const struct claim *claim) {
    struct etcd_changes *changes = &etcd->changes;
    const Etcd__Event *event = response->events[index];
    bool is_deleted = event->type == ETCD__EVENT__TYPE__DELETE;
    if (!is_deleted && claim->value->token)
        return true; /* a hold has moved to another lease */
    char *name = error_format("%.*s", (int)claim->name_size,
                              (const char *)claim->kv->key.data + strlen(etcd->prefix));
    bool is_wanted = name && strncmp(name, changes->names, strlen(changes->names)) == 0;
    struct entry *entry = is_wanted ? calloc(1, sizeof(*entry)) : NULL;
    bool ok = name && (entry || !is_wanted);
    if (entry) {
        Etcd__Break *record = is_deleted ? read_break(etcd, response, index, name) : NULL;
        list_append(&changes->queue, &entry->link);
        entry->is_old = event->kv->mod_revision <= changes->old_until;
        entry->change.type = type_of(claim, is_deleted);
        entry->is_unknown = !fill(etcd, entry, claim, name, record);
        if (entry->change.type == HF_CHANGE_RELEASED && !entry->is_unknown)
            ask_lease(etcd, entry, claim->kv->lease);
        if (record)
            etcd__break__free_unpacked(record, NULL);
    }
    free(name);
    return ok;
}

/* False: what happened is not known, for lack of memory or because it was compacted. */
static bool read_event(struct etcd *etcd, const Etcd__WatchResponse *response, size_t index) {
    const Etcd__Event *event = response->events[index];
    bool is_deleted = event->type == ETCD__EVENT__TYPE__DELETE;
    Etcd__KeyValue *kv = is_deleted ? event->prev_kv : event->kv;
    Etcd__RangeResponse one = ETCD__RANGE_RESPONSE__INIT;
    struct claims claims;
    if (event->kv && event->kv->mod_revision < etcd->changes.next)
        return true; /* already reported */
    if (!event->kv || !kv)
        return false;
    one.kvs = &kv;
    one.n_kvs = 1;
    bool ok = claims_read(etcd, &one, 0, &claims);
    if (ok && claims.count && claims.list[0].value)
        ok = add_change(etcd, response, index, &claims.list[0]);
    claims_free(&claims);
    return ok;
}

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t last_revision(const Etcd__WatchResponse *response) {
    return response->events[response->n_events - 1]->kv->mod_revision;
}

static void probe(struct etcd *etcd);

void etcd_changes_came(struct etcd *etcd, const Etcd__WatchResponse *response) {
    struct etcd_changes *changes = &etcd->changes;
    if (response->canceled) {
        changes->watch = 0;
        fall_back(etcd, response->compact_revision ? "the history was compacted before it was read"
                                                   : response->cancel_reason);
        world_timer_set(etcd->host->world, &changes->timer, etcd_now_us(etcd) + RETRY_US);
        return;
    }
    if (response->created && !changes->is_live) {
        changes->is_live = true;
        say(etcd, HF_CHANGE_WATCHING, NULL);
    }
    bool ok = true;
    for (size_t i = 0; ok && i < response->n_events; i++)
        ok = read_event(etcd, response, i);
    if (ok && response->n_events) /* a revision never comes in two messages */
        changes->next = max(changes->next, last_revision(response) + 1);
    if (!response->n_events && !response->created && response->header)
        changes->next = response->header->revision + 1; /* nothing happened until then */
    report_known(etcd);
    if (ok)
        return;
    etcd_watch_cancel(etcd, changes->watch);
    changes->watch = 0;
    fall_back(etcd, "an event could not be read");
    probe(etcd);
}

/* ---- The watcher ---- */

static void begin(struct etcd *etcd) {
    struct etcd_changes *changes = &etcd->changes;
    Etcd__WatchCreateRequest create = ETCD__WATCH_CREATE_REQUEST__INIT;
    struct etcd_key range, end;
    etcd_key_set(etcd, &range, "", "", "");
    etcd_range_of(&range, &end);
    create.key = etcd_bytes(&range);
    create.range_end = etcd_bytes(&end);
    create.start_revision = changes->next - 1;
    create.progress_notify = true;
    create.prev_kv = true;
    changes->watch = etcd_watch_create(etcd, &create);
}

/* The cluster is at this revision, or further. */
static void note_revision(struct etcd *etcd, int64_t revision) {
    struct etcd_changes *changes = &etcd->changes;
    if (changes->next && revision + 1 < changes->asked_next) {
        if (changes->watch)
            etcd_watch_cancel(etcd, changes->watch);
        changes->watch = 0;
        fall_back(etcd, "revisions have gone back: a backup was restored");
    }
    if (changes->watch)
        return;
    changes->old_until = changes->next ? revision : 0;
    changes->next = changes->next ? changes->next : revision + 1;
    begin(etcd);
}

static int64_t revision_in(const struct etcd_call *call) {
    Etcd__RangeResponse *response =
        call->reason ? NULL : etcd__range_response__unpack(NULL, call->message_size, call->message);
    int64_t revision = response && response->header ? response->header->revision : 0;
    if (response)
        etcd__range_response__free_unpacked(response, NULL);
    return revision;
}

static struct etcd_call *revision_call(struct etcd *etcd, etcd_answered *answered, void *context) {
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    struct etcd_key base;
    etcd_base_key(etcd, &base);
    request.key = etcd_bytes(&base);
    return etcd_call_new("/etcdserverpb.KV/Range", &request.base, answered, context);
}

static void probed(struct etcd *etcd, struct etcd_call *call) {
    struct etcd_changes *changes = &etcd->changes;
    int64_t revision = revision_in(call);
    changes->is_asked = false;
    if (!changes->names)
        return;
    if (revision)
        note_revision(etcd, revision);
    world_timer_set(etcd->host->world, &changes->timer,
                    etcd_now_us(etcd) + (changes->watch ? PROBE_US : RETRY_US));
}

static void probe(struct etcd *etcd) {
    struct etcd_changes *changes = &etcd->changes;
    struct etcd_call *call = changes->is_asked ? NULL : revision_call(etcd, probed, NULL);
    if (!call) {
        world_timer_set(etcd->host->world, &changes->timer, etcd_now_us(etcd) + RETRY_US);
        return;
    }
    changes->is_asked = true;
    changes->asked_next = changes->next;
    etcd_send(etcd, call, etcd_now_us(etcd) + etcd->timeout_us);
}

static void timer_due(struct world_timer *timer) {
    struct etcd *etcd = container_of(timer, struct etcd, changes.timer);
    if (etcd->changes.names)
        probe(etcd);
}

void etcd_changes_lost(struct etcd *etcd) {
    struct etcd_changes *changes = &etcd->changes;
    changes->watch = 0;
    if (changes->names)
        world_timer_set(etcd->host->world, &changes->timer, etcd_now_us(etcd));
}

/* ---- The operations ---- */

static void watched(struct etcd *etcd, struct etcd_call *call) {
    struct etcd_changes *changes = &etcd->changes;
    struct store_op *op = call->context;
    int64_t revision = revision_in(call);
    if (!revision) {
        etcd_fail(etcd, op, call, false);
        return;
    }
    changes->names = strdup(op->name);
    if (!changes->names) {
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    store_complete(etcd->host, op, STORE_DONE);
    changes->asked_next = 0;
    note_revision(etcd, revision);
    world_timer_set(etcd->host->world, &changes->timer,
                    etcd_now_us(etcd) + (changes->watch ? PROBE_US : RETRY_US));
}

void etcd_watch_changes(struct etcd *etcd, struct store_op *op) {
    struct etcd_call *call = revision_call(etcd, watched, op);
    if (call)
        etcd_send(etcd, call, etcd_now_us(etcd) + etcd->timeout_us);
    else
        store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
}

static void stop(struct etcd *etcd) {
    struct etcd_changes *changes = &etcd->changes;
    drop_queue(etcd);
    if (changes->watch)
        etcd_watch_cancel(etcd, changes->watch);
    free(changes->names);
    changes->names = NULL;
    changes->watch = changes->next = 0;
    changes->is_live = false;
}

void etcd_unwatch_changes(struct etcd *etcd, struct store_op *op) {
    stop(etcd);
    store_complete(etcd->host, op, STORE_DONE);
}

int etcd_changes_init(struct etcd *etcd) {
    list_init(&etcd->changes.queue);
    return world_timer_add(etcd->host->world, &etcd->changes.timer, timer_due);
}

void etcd_changes_close(struct etcd *etcd) {
    stop(etcd);
    world_timer_drop(etcd->host->world, &etcd->changes.timer);
}
