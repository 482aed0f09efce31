/* Several names at once. They are acquired one after the other, in the order of the names, with one
 * time limit. Two callers that want the same names meet at the first of them, so they never each
 * hold what the other waits for. If one cannot be acquired, those before it are released.
 *
 * The group is itself a hold; its members are ordinary holds and renewed like all others. The group
 * is lost with the first member that is lost. */
#include "client/client.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64 };

/* The state of an acquire of several names. */
struct group_plan {
    int64_t give_up_us, min_left_us;
    size_t taken; /* the number of members held */
};

/* ---- Acquiring ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct member *)a)->hold->text, ((const struct member *)b)->hold->text);
}

static int add_member(hf_hold *group, const hf_want *given, const hf_acquire_options *options) {
    hf_want want = HF_WANT_INIT;
    int r = client_read_options(&want, sizeof(want), given);
    if (r < 0)
        return r;
    hf_acquire_options own = *options;
    own.kind = want.kind;
    own.permits = want.permits;
    own.capacity = want.capacity;
    own.on_lost = NULL;
    r = hold_check_options(group->client, &own, &own);
    if (r < 0)
        return r;
    struct hold_more *more = group->more;
    struct member *member = &more->members[more->member_count];
    r = hold_new(group->client, want.name, &own, &member->hold);
    if (r < 0)
        return r;
    member->hold->role = ROLE_MEMBER;
    member->hold->other = group;
    member->index = more->member_count++;
    return HF_OK;
}

static int add_members(hf_hold *group, const hf_want *const *wants, size_t count,
                       const hf_acquire_options *options) {
    struct hold_more *more = hold_more(group);
    if (more)
        more->members = calloc(count, sizeof(*more->members));
    if (!more || !more->members)
        return error_set_text(HF_NO_MEMORY, NULL);
    int r = HF_OK;
    for (size_t i = 0; !r && i < count; i++)
        r = wants[i] ? add_member(group, wants[i], options)
                     : error_set(HF_BAD_ARGUMENT, "wants[%zu] is NULL", i);
    if (r < 0)
        return r;
    qsort(more->members, count, sizeof(*more->members), by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(more->members[i - 1].hold->text, more->members[i].hold->text) == 0)
            return error_set(HF_BAD_ARGUMENT, "the name \"%s\" is given twice",
                             more->members[i].hold->text);
    }
    return HF_OK;
}

static int group_new(hf_client *c, const hf_want *const *wants, size_t count,
                     const hf_acquire_options *options, hf_hold **ret_group) {
    if (!wants || count == 0 || count > NAMES_MAX)
        return error_set(HF_BAD_ARGUMENT, "%zu names were given; 1 to %d can be", count, NAMES_MAX);
    if (options->flags & (HF_REENTRANT | HF_KEEP))
        return error_set(HF_UNSUPPORTED, "HF_REENTRANT and HF_KEEP, for several names at once");
    hf_hold *group;
    int r = hold_new(c, "group", options, &group);
    if (r < 0)
        return r;
    group->role = ROLE_GROUP;
    r = add_members(group, wants, count, options);
    if (r < 0) {
        hold_drop(group);
        return r;
    }
    *ret_group = group;
    return HF_OK;
}

/* Starts to acquire the next name in the time that is left. */
static int take_next(hf_call *call) {
    struct group_plan *plan = call->plan;
    struct member *member = &call->hold->more->members[plan->taken];
    return hold_acquire(member->hold, &call->one, plan->give_up_us, plan->min_left_us);
}

static void end_plan(hf_call *call, int result, char *text) {
    free(call->plan);
    call->plan = NULL;
    call->owns_hold = result == HF_OK;
    if (result < 0) {
        hold_drop(call->hold);
        call->hold = NULL;
    }
    call_complete(call, result, text);
}

void group_name_finished(hf_call *call, int result, char *text) {
    struct hold_more *more = call->hold->more;
    const char *name = more->members[call->plan->taken].hold->text;
    event_acquire_finished(more->members[call->plan->taken].hold, result);
    if (more->lost) { /* an earlier one, while this one was waited for */
        free(text);
        text = NULL;
        result = HF_LOST;
        name = more->lost->text;
    }
    if (result == HF_OK && ++call->plan->taken < more->member_count) {
        int r = take_next(call);
        if (r == HF_OK)
            return;
        result = r;
    }
    int64_t left_us = result == HF_OK ? hold_left_us(call->hold) : 0;
    if (result == HF_OK && (left_us == 0 || left_us < call->plan->min_left_us)) {
        result = left_us ? HF_SHORT : HF_LOST; /* an earlier one, while others were waited for */
        name = more->members[0].hold->text;
        text = error_format("%" PRId64 " ms are left", left_us / 1000);
    }
    end_plan(call, result, result < 0 ? call_text_for(name, text) : text);
}

static int begin_acquire_all(hf_call *call, const hf_want *const *wants, size_t count,
                             const hf_acquire_options *given) {
    hf_client *c = call->client;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int r = client_read_options(&options, sizeof(options), given);
    if (r < 0)
        return r;
    options.kind = HF_EXCLUSIVE;
    r = hold_check_options(c, &options, &options);
    if (!r)
        r = group_new(c, wants, count, &options, &call->hold);
    if (r < 0)
        return r;
    call->plan = calloc(1, sizeof(*call->plan));
    if (!call->plan) {
        hold_drop(call->hold);
        return error_set_text(HF_NO_MEMORY, NULL);
    }
    call->plan->give_up_us = hold_give_up_us(c, options.wait_ms);
    call->plan->min_left_us = options.min_left_ms * 1000;
    r = take_next(call);
    if (r < 0) {
        free(call->plan);
        hold_drop(call->hold);
    }
    return r;
}

int hf_acquire_all(hf_client *c, const hf_want *const *wants, size_t count,
                   const hf_acquire_options *options, hf_hold **ret_hold) {
    if (!ret_hold)
        return error_set(HF_BAD_ARGUMENT, "ret_hold is NULL");
    int r = client_enter(c);
    if (r < 0)
        return r;
    hf_call call;
    call_init(&call, c, CALL_ACQUIRE_ALL);
    r = call_block(&call, begin_acquire_all(&call, wants, count, options));
    if (!r)
        *ret_hold = call.hold;
    return r;
}

int hf_acquire_all_start(hf_client *c, const hf_want *const *wants, size_t count,
                         const hf_acquire_options *options, hf_call **ret_call) {
    if (!ret_call)
        return error_set(HF_BAD_ARGUMENT, "ret_call is NULL");
    int r = client_enter(c);
    if (r < 0)
        return r;
    hf_call *call = call_new(c, CALL_ACQUIRE_ALL);
    return call ? call_hand_out(call, begin_acquire_all(call, wants, count, options), ret_call)
                : HF_NO_MEMORY;
}

/* ---- Losing, renewing, releasing ---- */

hf_hold *group_at(const hf_hold *group, size_t index) {
    for (size_t i = 0; i < group->more->member_count; i++) {
        if (group->more->members[i].index == index)
            return group->more->members[i].hold;
    }
    return NULL;
}

void group_lost(hf_hold *group, hf_hold *lost) {
    struct hold_more *more = group->more;
    if (!more->lost && !group->released)
        more->lost = lost;
}

/* The others are released only now: until the program is notified, it may be working under them. */
void group_report_lost(hf_hold *group) {
    struct hold_more *more = group->more;
    if (more->lost_reported || group->released)
        return;
    more->lost_reported = true;
    for (size_t i = 0; i < more->member_count; i++) {
        hf_hold *member = more->members[i].hold;
        if (member != more->lost && !member->released && member->hold.op.seq) {
            member->released = true;
            engine_release(&group->client->engine, &member->hold, NULL);
        }
    }
    hold_report_lost(group);
}

int group_renew(hf_call *call, hf_hold *group, int64_t lease_us) {
    struct hold_more *more = group->more;
    if (more->lost)
        return error_set_text(HF_LOST, more->lost->hold.failure_text);
    call->requests = calloc(more->member_count, sizeof(*call->requests));
    if (!call->requests) {
        call->requests = &call->one;
        return error_set_text(HF_NO_MEMORY, NULL);
    }
    call->hold = group;
    group->refs++;
    call->request_count = call->pending = more->member_count;
    for (size_t i = 0; i < more->member_count; i++) {
        struct hold *member = &more->members[i].hold->hold;
        call->requests[i].context = call;
        call->requests[i].type = REQUEST_RENEW;
        engine_renew(&group->client->engine, member, &call->requests[i],
                     lease_us ? lease_us : member->lease_us);
    }
    return HF_OK;
}

void group_release(hf_call *call, hf_hold *group) {
    struct hold_more *more = group->more;
    call->pending = 0;
    call->so_far = more->lost ? HF_LOST : HF_OK;
    for (size_t i = 0; i < more->member_count; i++) {
        struct member *member = &more->members[i];
        struct request *release = &member->release;
        if (release->context && release->result != HF_CANCELLED) {
            /* The call that this one takes over from has the answer; the hold may be gone. */
            if (call->so_far == HF_OK || release->result == HF_LOST)
                call->so_far = release->result;
            continue;
        }
        release->context = call;
        release->type = REQUEST_RELEASE;
        call->pending++;
        member->hold->released = true;
        engine_release(&group->client->engine, &member->hold->hold, release);
    }
}

void group_cancel_release(hf_hold *group) {
    for (size_t i = 0; i < group->more->member_count; i++) {
        struct request *request = &group->more->members[i].release;
        if (request->hold)
            engine_cancel(&group->client->engine, request, HF_CANCELLED);
    }
}

void group_drop_members(hf_hold *group) {
    struct hold_more *more = group->more;
    for (size_t i = 0; more && i < more->member_count; i++) {
        hf_hold *member = more->members[i].hold;
        member->other = NULL;
        if (!member->hold.op.seq)
            member->released = true; /* it was never acquired */
        hold_drop(member);
    }
}
