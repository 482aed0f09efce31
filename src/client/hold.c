/* Holds: acquiring, checking, renewing, releasing.
 *
 * An hf_hold has one of four roles (client.h). It lives while the program or the engine needs it.
 * After an acquire that timed out, the engine may still have to release what the store granted
 * late; after hf_hold_free it may still be releasing. */
#include "client/client.h"

#include "base/cancel.h"
#include "base/error.h"
#include "store/locks.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 255, LABEL_MAX_BYTES = 255 };

/* ---- Arguments ---- */

int hold_check_name(const char *name, const char *what, size_t least) {
    if (!name && least > 0)
        return error_set(HF_BAD_NAME, "%s is NULL", what);
    size_t size = name ? strlen(name) : 0;
    if (size < least || size > NAME_MAX_BYTES)
        return error_set(HF_BAD_NAME, "%s has %zu", what, size);
    return HF_OK;
}

static int check_lease(hf_client *c, int64_t lease_ms) {
    int64_t max_ms = c->host.max_lease_us / 1000;
    if (lease_ms <= 0 || lease_ms > max_ms)
        return error_set(HF_BAD_LEASE, "it is %" PRId64 " ms, and max_lease is %" PRId64 " ms",
                         lease_ms, max_ms);
    if (engine_validity_us(&c->engine, lease_ms * 1000) <= 0)
        return error_set(HF_BAD_LEASE,
                         "nothing is left of %" PRId64 " ms after the allowance for "
                         "clock drift",
                         lease_ms);
    return HF_OK;
}

static int check_kind(hf_client *c, const hf_acquire_options *options) {
    unsigned needs = 0;
    switch (options->kind) {
    case HF_EXCLUSIVE:
        break;
    case HF_SHARED:
        needs = STORE_CAN_SHARE;
        break;
    case HF_PERMITS:
        if (options->permits == 0 || options->permits > options->capacity ||
            options->capacity >= STORE_ALL)
            return error_set(HF_BAD_WEIGHT, "%" PRIu32 " of %" PRIu32, options->permits,
                             options->capacity);
        needs = STORE_CAN_PERMITS;
        break;
    default:
        return error_set(HF_BAD_ARGUMENT, "no kind of lock has the number %d", (int)options->kind);
    }
    const struct store_driver *driver = c->store->driver;
    if (needs & ~driver->capabilities)
        return error_set(HF_UNSUPPORTED, "%s: has no %s%s%s", driver->scheme,
                         needs == STORE_CAN_SHARE ? "shared holds" : "permits",
                         driver->lacks ? ": " : "", driver->lacks ? driver->lacks : "");
    return HF_OK;
}

int hold_check_options(hf_client *c, const hf_acquire_options *given, hf_acquire_options *ret) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int r = client_read_options(&options, sizeof(options), given);
    if (!r)
        r = check_kind(c, &options);
    if (!r)
        r = check_lease(c, options.lease_ms);
    if (r < 0)
        return r;
    if (options.flags & ~(HF_BARGE | HF_REENTRANT | HF_NO_RENEW | HF_KEEP))
        return error_set(HF_BAD_ARGUMENT, "flags has unknown bits: 0x%x", options.flags);
    if (options.flags & HF_KEEP && !(c->store->driver->capabilities & STORE_CAN_KEEP))
        return error_set(HF_UNSUPPORTED, "%s: a lock cannot outlast its client",
                         c->store->driver->scheme);
    if (options.wait_ms < HF_FOREVER)
        return error_set(HF_BAD_ARGUMENT, "wait_ms is %" PRId64, options.wait_ms);
    if (options.min_left_ms < 0 || options.min_left_ms > options.lease_ms)
        return error_set(HF_BAD_ARGUMENT,
                         "min_left_ms is %" PRId64 ", and the lease is %" PRId64 " ms",
                         options.min_left_ms, options.lease_ms);
    size_t label_size = options.label ? strlen(options.label) : 0;
    if (label_size > LABEL_MAX_BYTES)
        return error_set(HF_BAD_ARGUMENT, "the label has %zu bytes; %d are allowed", label_size,
                         LABEL_MAX_BYTES);
    *ret = options;
    return HF_OK;
}

/* ---- Making and freeing ---- */

static void describe(struct store_op *op, const hf_acquire_options *options) {
    op->lease_us = options->lease_ms * 1000;
    op->kind = options->kind == HF_PERMITS ? STORE_PERMITS : STORE_LOCK;
    op->capacity = options->kind == HF_PERMITS ? options->capacity : STORE_ALL;
    op->weight = options->kind == HF_PERMITS  ? options->permits
                 : options->kind == HF_SHARED ? 1
                                              : STORE_ALL;
}

static struct owner owner_of(const hf_acquire_options *options) {
    static _Atomic uint64_t last_thread;
    static _Thread_local uint64_t this_thread;
    if (options->owner_key)
        return (struct owner){.key = options->owner_key};
    if (!this_thread)
        this_thread = atomic_fetch_add(&last_thread, 1) + 1;
    return (struct owner){.key = this_thread, .is_thread = true};
}

struct hold_more *hold_more(hf_hold *hold) {
    if (hold->more)
        return hold->more;
    struct hold_more *more = calloc(1, sizeof(*more));
    if (!more)
        return NULL;
    more->hold = hold;
    more->lost_fd = -1;
    list_init(&more->aliases);
    list_init(&more->lost_notice.link);
    return hold->more = more;
}

static int add_more(hf_hold *hold, const hf_acquire_options *options) {
    bool has_events = hold->client->on_event;
    if (!options->on_lost && !has_events && !(options->flags & HF_REENTRANT))
        return HF_OK;
    struct hold_more *more = hold_more(hold);
    if (!more)
        return error_set_text(HF_NO_MEMORY, NULL);
    more->on_lost = options->on_lost;
    more->on_lost_arg = options->on_lost_arg;
    if (options->flags & HF_REENTRANT) {
        more->reentry.owner = owner_of(options);
        hold->hold.reentry = &more->reentry;
    }
    hold->hold.watched = has_events;
    return options->on_lost || has_events ? notice_prepare(hold->client) : HF_OK;
}

int hold_new(hf_client *c, const char *name, const hf_acquire_options *options,
             hf_hold **ret_hold) {
    int r = hold_check_name(name, "it", 1);
    if (r < 0)
        return r;
    size_t name_size = strlen(name) + 1;
    size_t label_size = options->label ? strlen(options->label) + 1 : 0;
    hf_hold *hold = malloc(sizeof(*hold) + name_size + label_size);
    if (!hold)
        return error_set_text(HF_NO_MEMORY, NULL);
    memset(hold, 0, sizeof(*hold)); /* calloc is slow for small objects */
    struct store_op *op = &hold->hold.op;
    op->name = memcpy(hold->text, name, name_size);
    if (options->label)
        op->label = memcpy(hold->text + name_size, options->label, label_size);
    describe(op, options);
    list_init(&hold->hold.link);
    hold->hold.barges = options->flags & HF_BARGE;
    hold->hold.renews = !(options->flags & HF_NO_RENEW);
    hold->hold.keeps = options->flags & HF_KEEP;
    hold->client = c;
    hold->refs = 1;
    client_ref(c);
    r = add_more(hold, options);
    if (r < 0) {
        hold_unref(hold);
        return r;
    }
    *ret_hold = hold;
    return HF_OK;
}

static void free_memory(hf_hold *hold) {
    struct hold_more *more = hold->more;
    free(hold->hold.failure_text);
    if (more) {
        int cancelling = cancel_disable();
        if (more->lost_fd >= 0)
            close(more->lost_fd);
        cancel_restore(cancelling);
        free(more->members);
        free(more);
    }
    free(hold);
}

void hold_unref(hf_hold *hold) {
    if (--hold->refs > 0)
        return;
    hf_client *c = hold->client;
    if (hold->role == ROLE_ALIAS) {
        assert(hold->more);
        list_remove(&hold->more->aliases);
        hold_unref(hold->other);
    }
    free_memory(hold);
    c->refs--; /* never the last: the caller keeps the client alive */
}

/* ---- Acquiring ---- */

/* The hold that has the lock: for an alias the other, else itself. */
static hf_hold *target(hf_hold *hold) {
    return hold->role == ROLE_ALIAS ? hold->other : hold;
}

/* If the owner has the lock already, makes `hold` an alias of the hold that has it. */
static int reenter(hf_hold *hold, int64_t min_left_us) {
    struct engine *engine = &hold->client->engine;
    struct hold *found;
    int r = engine_reenter(engine, &hold->hold.op, &hold->more->reentry.owner, &found);
    if (r < 0)
        return error_set(r, "this owner holds it already, for less");
    if (!found)
        return HF_OK;
    hf_hold *holder = container_of(found, hf_hold, hold);
    holder->refs++;
    hold->role = ROLE_ALIAS;
    hold->other = holder;
    hold->hold.op.token = found->op.token; /* a copy: a forked child may free the holder first */
    hold->hold.op.weight = found->op.weight;
    list_append(&holder->more->aliases, &hold->more->aliases);
    int64_t left_us = engine_left_us(engine, found);
    if (left_us < min_left_us) {
        engine_release(engine, found, NULL);
        return error_set(HF_SHORT, "%" PRId64 " ms are left", left_us / 1000);
    }
    return HF_OK;
}

int64_t hold_give_up_us(const hf_client *c, int64_t wait_ms) {
    if (wait_ms == 0)
        return 0; /* a try */
    bool endless = wait_ms == HF_FOREVER || wait_ms > (ENGINE_NEVER - c->engine.now_us) / 1000;
    return endless ? ENGINE_NEVER : c->engine.now_us + wait_ms * 1000;
}

int hold_acquire(hf_hold *hold, struct request *request, int64_t give_up_us, int64_t min_left_us) {
    hf_client *c = hold->client;
    int r = client_start_standby(c);
    if (!r && hold->hold.reentry)
        r = reenter(hold, min_left_us);
    if (r < 0 || hold->role == ROLE_ALIAS)
        return r;
    request->type = REQUEST_ACQUIRE;
    request->give_up_us = give_up_us;
    request->min_left_us = min_left_us;
    r = engine_acquire(&c->engine, &hold->hold, request);
    if (r < 0)
        return error_set_text(r, NULL);
    event_asked(hold);
    hold->refs++; /* the engine's, until HOLD_ENDED */
    return HF_OK;
}

static int begin_acquire(hf_call *call, const char *name, const hf_acquire_options *given) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold = NULL;
    int r = hold_check_options(call->client, given, &options);
    if (!r)
        r = hold_new(call->client, name, &options, &hold);
    if (r < 0)
        return r;
    r = hold_acquire(hold, &call->one, hold_give_up_us(call->client, options.wait_ms),
                     options.min_left_ms * 1000);
    if (r < 0) {
        hold_unref(hold);
        return r;
    }
    call->hold = hold;
    if (hold->role == ROLE_ALIAS) {
        call->owns_hold = true;
        call_complete(call, HF_OK, NULL);
    }
    return HF_OK;
}

int hf_acquire(hf_client *c, const char *name, const hf_acquire_options *options,
               hf_hold **ret_hold) {
    if (!ret_hold)
        return error_set(HF_BAD_ARGUMENT, "ret_hold is NULL");
    int r = client_enter(c);
    if (r < 0)
        return r;
    hf_call call;
    call_init(&call, c, CALL_ACQUIRE);
    r = call_block(&call, begin_acquire(&call, name, options));
    if (!r)
        *ret_hold = call.hold;
    return r;
}

int hf_acquire_start(hf_client *c, const char *name, const hf_acquire_options *options,
                     hf_call **ret_call) {
    if (!ret_call)
        return error_set(HF_BAD_ARGUMENT, "ret_call is NULL");
    int r = client_enter(c);
    if (r < 0)
        return r;
    hf_call *call = call_new(c, CALL_ACQUIRE);
    return call ? call_hand_out(call, begin_acquire(call, name, options), ret_call) : HF_NO_MEMORY;
}

/* ---- News ---- */

/* The hold whose state is shown: for a group, the member that was lost, or else the first. */
static const hf_hold *shown(const hf_hold *hold) {
    if (hold->role == ROLE_GROUP)
        return hold->more->lost ? hold->more->lost : group_at(hold, 0);
    return hold->role == ROLE_ALIAS ? hold->other : hold;
}

/* Sets the text for a hold that is not held. */
static int set_error(const hf_hold *hold, int error) {
    const struct hold *one = &shown(hold)->hold;
    const char *why = error == HF_LOST && one->cause ? one->failure_text : NULL;
    return error_set(error, "\"%s\"%s%s", one->op.name, why ? ": " : "", why ? why : "");
}

static void run_on_lost(struct notice *notice) {
    struct hold_more *more = container_of(notice, struct hold_more, lost_notice);
    set_error(more->hold, HF_LOST);
    more->on_lost(more->hold, more->on_lost_arg);
}

void hold_report_lost(hf_hold *hold) {
    struct hold_more *more = hold->more;
    if (!more || hold->released)
        return;
    if (more->lost_fd >= 0)
        world_signal(more->lost_fd);
    if (more->on_lost)
        notice_add(hold->client, &more->lost_notice, run_on_lost);
}

static void was_lost(hf_hold *hold) {
    if (hold->role == ROLE_MEMBER) {
        if (hold->other)
            group_report_lost(hold->other);
        return;
    }
    hold_report_lost(hold);
    if (!hold->more)
        return;
    list_each(link, &hold->more->aliases)
        hold_report_lost(container_of(link, struct hold_more, aliases)->hold);
}

void hold_had_news(struct hold *engine_hold) {
    hf_hold *hold = container_of(engine_hold, hf_hold, hold);
    uint8_t news = engine_hold->news;
    engine_hold->news = 0;
    event_news(hold, news);
    if (news & (HOLD_WAS_LOST | HOLD_IS_GONE) && hold->role == ROLE_MEMBER && hold->other)
        group_lost(hold->other, hold);
    if (news & HOLD_WAS_LOST)
        was_lost(hold);
    if (news & HOLD_ENDED)
        hold_unref(hold);
}

/* ---- The state of a hold ---- */

int64_t hold_left_us(const hf_hold *hold) {
    const struct engine *engine = &hold->client->engine;
    if (hold->role != ROLE_GROUP)
        return engine_left_us(engine, hold->role == ROLE_ALIAS ? &hold->other->hold : &hold->hold);
    if (hold->more->lost)
        return 0;
    int64_t least_us = INT64_MAX;
    for (size_t i = 0; i < hold->more->member_count; i++) {
        int64_t of_member_us = engine_left_us(engine, &hold->more->members[i].hold->hold);
        least_us = of_member_us < least_us ? of_member_us : least_us;
    }
    return least_us;
}

/* The result of using a hold that was released. */
static int after_release(const hf_hold *hold) {
    return hold->result == HF_LOST ? HF_LOST : HF_RELEASED;
}

int hf_check(hf_hold *hold, int64_t need_ms) {
    if (!hold)
        return error_set(HF_BAD_ARGUMENT, "the hold is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    int64_t left = hold_left_us(hold);
    r = hold->released ? after_release(hold) : left == 0 ? HF_LOST : HF_OK;
    if (r < 0)
        set_error(hold, r);
    client_unlock(hold->client);
    if (r < 0)
        return r;
    if (left / 1000 < need_ms)
        return error_set(HF_SHORT, "%" PRId64 " ms are left", left / 1000);
    return HF_OK;
}

int64_t hf_hold_left_ms(hf_hold *hold) {
    if (!hold || client_enter(hold->client) < 0)
        return 0;
    int64_t left_ms = hold->released ? 0 : hold_left_us(hold) / 1000;
    client_unlock(hold->client);
    return left_ms;
}

uint64_t hf_hold_token(const hf_hold *hold) {
    return hf_hold_token_at(hold, 0);
}

uint64_t hf_hold_token_at(const hf_hold *hold, size_t index) {
    if (!hold)
        return 0;
    if (hold->role != ROLE_GROUP)
        return index == 0 ? hold->hold.op.token : 0;
    const hf_hold *member = group_at(hold, index);
    return member ? member->hold.op.token : 0;
}

int hf_hold_is_exclusive(const hf_hold *hold) {
    if (!hold)
        return 0;
    if (hold->role != ROLE_GROUP)
        return hold->hold.op.weight == hold->hold.op.capacity;
    for (size_t i = 0; i < hold->more->member_count; i++) {
        const struct store_op *op = &hold->more->members[i].hold->hold.op;
        if (op->weight != op->capacity)
            return 0;
    }
    return 1;
}

const char *hf_hold_name(const hf_hold *hold) {
    if (!hold)
        return "";
    if (hold->role != ROLE_GROUP)
        return hold->hold.op.name;
    bool locked = client_lock(hold->client);
    const char *name = shown(hold)->text;
    if (locked)
        client_unlock(hold->client);
    return name;
}

const char *hf_hold_owner(hf_hold *hold) {
    if (!hold || !client_lock(hold->client))
        return "";
    struct hold_more *more = hold_more(hold);
    const struct hold *first = &target(hold)->hold;
    if (hold->role == ROLE_GROUP)
        first = &group_at(hold, 0)->hold;
    if (more && !more->owner[0])
        locks_format_owner(hold->client->host.identity.id,
                           first->op.owner_seq ? first->op.owner_seq : first->op.seq, more->owner);
    client_unlock(hold->client);
    return more ? more->owner : "";
}

int hf_hold_fd(hf_hold *hold) {
    if (!hold)
        return error_set(HF_BAD_ARGUMENT, "the hold is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    struct hold_more *more = hold_more(hold);
    if (!more) {
        r = error_set_text(HF_NO_MEMORY, NULL);
    } else if (more->lost_fd < 0) {
        bool lost = !hold->released && hold_left_us(hold) == 0;
        more->lost_fd = eventfd(lost, EFD_CLOEXEC | EFD_NONBLOCK);
        if (more->lost_fd < 0)
            r = error_set(HF_SYSTEM, "eventfd: %s", strerror(errno));
    }
    int fd = r < 0 ? r : more->lost_fd;
    client_unlock(hold->client);
    return fd;
}

/* ---- Renewing ---- */

static int begin_renew(hf_call *call, hf_hold *hold, int64_t lease_ms) {
    if (hold->released)
        return set_error(hold, after_release(hold));
    if (lease_ms != 0) {
        int r = check_lease(hold->client, lease_ms);
        if (r < 0)
            return r;
    }
    if (hold->role == ROLE_GROUP)
        return group_renew(call, hold, lease_ms * 1000);
    call->hold = hold;
    hold->refs++;
    struct hold *renewed = &target(hold)->hold;
    call->one.type = REQUEST_RENEW;
    engine_renew(&hold->client->engine, renewed, &call->one,
                 lease_ms ? lease_ms * 1000 : renewed->lease_us);
    return HF_OK;
}

int hf_renew(hf_hold *hold, int64_t lease_ms) {
    if (!hold)
        return error_set(HF_BAD_ARGUMENT, "the hold is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    hf_call call;
    call_init(&call, hold->client, CALL_RENEW);
    r = call_block(&call, begin_renew(&call, hold, lease_ms));
    if (call.requests != &call.one)
        free(call.requests);
    return r;
}

int hf_renew_start(hf_hold *hold, int64_t lease_ms, hf_call **ret_call) {
    if (!hold || !ret_call)
        return error_set(HF_BAD_ARGUMENT, "the hold or ret_call is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    hf_call *call = call_new(hold->client, CALL_RENEW);
    return call ? call_hand_out(call, begin_renew(call, hold, lease_ms), ret_call) : HF_NO_MEMORY;
}

/* ---- Releasing ---- */

void hold_send_release(hf_hold *hold) {
    hf_call *call = hold->releasing;
    if (hold->role == ROLE_GROUP) {
        group_release(call, hold);
        return;
    }
    call->one.type = REQUEST_RELEASE;
    engine_release(&hold->client->engine, &target(hold)->hold, &call->one);
}

static int begin_release(hf_call *call, hf_hold *hold) {
    call->hold = hold;
    hold->refs++;
    if (hold->releasing) {
        call->joined = hold->releasing->joined;
        hold->releasing->joined = call;
        return HF_OK;
    }
    if (hold->released) {
        call_complete(call, hold->result, NULL);
        return HF_OK;
    }
    hold->released = true;
    hold->releasing = call;
    hold_send_release(hold);
    return HF_OK;
}

int hf_release(hf_hold *hold) {
    if (!hold)
        return error_set(HF_BAD_ARGUMENT, "the hold is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    hf_call call;
    call_init(&call, hold->client, CALL_RELEASE);
    return call_block(&call, begin_release(&call, hold));
}

int hf_release_start(hf_hold *hold, hf_call **ret_call) {
    if (!hold || !ret_call)
        return error_set(HF_BAD_ARGUMENT, "the hold or ret_call is NULL");
    int r = client_enter(hold->client);
    if (r < 0)
        return r;
    hf_call *call = call_new(hold->client, CALL_RELEASE);
    return call ? call_hand_out(call, begin_release(call, hold), ret_call) : HF_NO_MEMORY;
}

void hold_drop(hf_hold *hold) {
    hf_client *c = hold->client;
    if (hold->more)
        notice_drop(c, &hold->more->lost_notice);
    if (hold->role == ROLE_GROUP) {
        group_drop_members(hold);
    } else if (!hold->released && !c->closed) {
        client_update_time(c);
        engine_release(&c->engine, &target(hold)->hold, NULL);
    }
    hold->released = true;
    hold_unref(hold);
}

hf_hold *hf_hold_free(hf_hold *hold) {
    if (!hold)
        return NULL;
    hf_client *c = hold->client;
    if (!client_lock(c)) { /* in a forked child only the memory is ours */
        for (size_t i = 0; hold->role == ROLE_GROUP && i < hold->more->member_count; i++)
            hf_hold_free(hold->more->members[i].hold);
        free_memory(hold);
        client_unref(c);
        return NULL;
    }
    client_ref(c);
    hold_drop(hold);
    if (!c->closed)
        client_post(c);
    client_unref(c);
    return NULL;
}
