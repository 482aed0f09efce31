/* Watching: what happens to all locks of the store, for a program that asked with hf_watch_start.
 *
 * The store reports changes (rule 11 in store.h). They wait in the order in which they came, and
 * one notice runs the program's function for them, one change at a time. So a change needs no
 * notice of its own, and a program that frees the watch has one notice to wait for.
 *
 * No change is dropped silently. If there is no memory for a change, or too many are waiting, it is
 * dropped, and MISSED and WATCHING take its place; both are part of the watch, so they need no
 * memory.
 *
 * The store gets one operation at a time. A program may end a watch and start another one while an
 * operation is in flight, so watches have numbers: what the store serves is compared with what is
 * wanted, and the next operation follows from that. */
#include "client/client.h"

#include "base/error.h"
#include "store/locks.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 10000 };

struct change {
    struct list link;
    hf_change change;
    struct hf_locks *locks; /* what `change` points to, or NULL */
    char *text;             /* the same */
};

struct watch {
    struct notice notice;
    hf_client *client;
    uint64_t number;
    void (*on_change)(const hf_change *change, void *arg);
    void *arg;
    struct list changes;
    size_t count;
    struct change missed, watching; /* for which there is always memory */
    bool live;                      /* the store's last report was WATCHING, not MISSED */
    char prefix[];
};

/* ---- The program's function ---- */

static void change_free(void *arg) {
    struct change *change = arg;
    hf_locks_free(change->locks);
    free(change->text);
    free(change);
}

static void forget_changes(struct watch *watch) {
    struct list *link;
    while ((link = list_pop(&watch->changes))) {
        struct change *change = container_of(link, struct change, link);
        if (change != &watch->missed && change != &watch->watching)
            change_free(change);
    }
    watch->count = 0;
}

/* Calls the program's function for the first change. The function may free the watch and may end
 * its thread. */
static void run_change(struct notice *notice) {
    struct watch *watch = container_of(notice, struct watch, notice);
    hf_client *c = watch->client;
    void (*on_change)(const hf_change *, void *) = watch->on_change;
    void *arg = watch->arg;
    if (!client_lock(c))
        return;
    struct list *link = list_pop(&watch->changes);
    struct change *change = link ? container_of(link, struct change, link) : NULL;
    bool is_own = change == &watch->missed || change == &watch->watching;
    hf_change own = change ? change->change : (hf_change){0};
    watch->count -= change ? 1 : 0;
    if (watch->count)
        notice_add(c, notice, run_change);
    client_unlock(c);
    if (is_own) {
        on_change(&own, arg);
    } else if (change) {
        pthread_cleanup_push(change_free, change);
        on_change(&change->change, arg);
        pthread_cleanup_pop(1);
    }
}

static void add(struct watch *watch, struct change *change) {
    watch->count -= list_empty(&change->link) ? 0 : 1;
    list_remove(&change->link);
    list_append(&watch->changes, &change->link);
    if (watch->count++ == 0)
        notice_add(watch->client, &watch->notice, run_change);
}

static void add_own(struct watch *watch, struct change *change, int64_t at_us) {
    change->change.at_ms = at_us / 1000;
    add(watch, change);
}

static void drop(struct watch *watch, int64_t at_us) {
    add_own(watch, &watch->missed, at_us);
    if (watch->live)
        add_own(watch, &watch->watching, at_us);
}

/* ---- What the store reports ---- */

static struct change *change_new(const struct store_change *from) {
    struct change *change = calloc(1, sizeof(*change));
    if (!change)
        return NULL;
    const hf_lock_info *lock = hf_locks_at(from->locks, 0);
    const hf_party *party = lock && lock->holder_count   ? lock->holders[0]
                            : lock && lock->waiter_count ? lock->waiters[0]
                                                         : NULL;
    list_init(&change->link);
    change->change = (hf_change){.size = sizeof(hf_change),
                                 .type = from->type,
                                 .at_ms = from->at_us / 1000,
                                 .lock = lock,
                                 .party = party,
                                 .text = ""};
    if (from->text && (change->text = strdup(from->text)))
        change->change.text = change->text;
    return change;
}

static bool concerns(const struct watch *watch, const struct store_change *change) {
    const hf_lock_info *lock = hf_locks_at(change->locks, 0);
    return !lock || strncmp(lock->name, watch->prefix, strlen(watch->prefix)) == 0;
}

void watch_changed(hf_client *c, const struct store_change *from) {
    struct watch *watch = c->watch ? c->watch->watch : NULL;
    if (!watch || !concerns(watch, from)) {
        hf_locks_free(from->locks);
        return;
    }
    if (!from->locks)
        watch->live = from->type == HF_CHANGE_WATCHING;
    if (from->type == HF_CHANGE_WATCHING) {
        add_own(watch, &watch->watching, from->at_us);
        return;
    }
    struct change *change = watch->count < WAITING_MAX ? change_new(from) : NULL;
    if (!change) {
        hf_locks_free(from->locks);
        drop(watch, from->at_us);
        return;
    }
    change->locks = from->locks;
    add(watch, change);
}

/* ---- What the store is asked for ---- */

/* Asks for what is wanted, if that is not what the store serves. */
static void settle(hf_client *c) {
    const struct watch *wanted = c->watch ? c->watch->watch : NULL;
    uint64_t number = wanted ? wanted->number : 0;
    if (c->watch_op_in_flight || c->closed || number == c->watch_served)
        return;
    bool stops = c->watch_served; /* one watch ends before the next starts */
    strcpy(c->watch_prefix, stops ? "" : wanted->prefix);
    c->watch_op =
        (struct store_op){.type = stops ? STORE_UNWATCH : STORE_WATCH, .name = c->watch_prefix};
    c->watch_sent = stops ? 0 : number;
    c->watch_op_in_flight = true;
    list_append(&c->engine.out, &c->watch_op.link);
}

void watch_op_completed(hf_client *c) {
    struct store_op *op = &c->watch_op;
    hf_call *call = c->watch && c->watch->watch->number == c->watch_sent ? c->watch : NULL;
    c->watch_op_in_flight = false;
    if (op->type == STORE_UNWATCH || op->outcome == STORE_DONE)
        c->watch_served = c->watch_sent;
    else if (call)
        watch_end(call, op->outcome == STORE_REFUSED ? op->reason : HF_UNKNOWN, op->text);
    else
        free(op->text);
    settle(c);
}

void watch_end(hf_call *call, int result, char *text) {
    hf_client *c = call->client;
    c->watch = NULL;
    call_complete(call, result, text);
    settle(c);
}

void watch_drop(hf_call *call) {
    forget_changes(call->watch);
    notice_drop(call->client, &call->watch->notice);
}

void watch_free(struct watch *watch) {
    if (watch)
        forget_changes(watch);
    free(watch);
}

/* ---- The header's call ---- */

static struct change own_change(hf_change_type type, const char *text) {
    return (struct change){
        .change = {.size = sizeof(hf_change), .type = type, .text = text},
    };
}

static struct watch *watch_new(hf_client *c, const char *prefix) {
    size_t size = strlen(prefix) + 1;
    struct watch *watch = calloc(1, sizeof(*watch) + size);
    if (!watch)
        return NULL;
    memcpy(watch->prefix, prefix, size);
    watch->client = c;
    watch->number = ++c->watches;
    watch->missed = own_change(HF_CHANGE_MISSED, "they came faster than they were taken");
    watch->watching = own_change(HF_CHANGE_WATCHING, "");
    list_init(&watch->missed.link);
    list_init(&watch->watching.link);
    list_init(&watch->changes);
    list_init(&watch->notice.link);
    return watch;
}

static int start(hf_call *call, const char *prefix,
                 void (*on_change)(const hf_change *change, void *arg), void *arg) {
    hf_client *c = call->client;
    if (c->watch)
        return error_set(HF_BAD_ARGUMENT, "the client is watching already");
    if (!c->store_info.pushes)
        return error_set(HF_UNSUPPORTED, "%s: does not announce changes", c->store_info.scheme);
    int r = notice_prepare(c);
    if (!r)
        r = client_start_standby(c);
    if (!r && !(call->watch = watch_new(c, prefix)))
        r = error_set_text(HF_NO_MEMORY, NULL);
    if (r < 0)
        return r;
    call->watch->on_change = on_change;
    call->watch->arg = arg;
    c->watch = call;
    settle(c);
    return HF_OK;
}

int hf_watch_start(hf_client *c, const char *prefix,
                   void (*on_change)(const hf_change *change, void *arg), void *arg,
                   hf_call **ret_call) {
    if (!ret_call || !on_change)
        return error_set(HF_BAD_ARGUMENT, "on_change or ret_call is NULL");
    int r = hold_check_name(prefix, "the prefix", 0);
    if (!r)
        r = client_enter(c);
    if (r < 0)
        return r;
    hf_call *call = call_new(c, CALL_WATCH);
    if (!call)
        return HF_NO_MEMORY;
    return call_hand_out(call, start(call, prefix ? prefix : "", on_change, arg), ret_call);
}
