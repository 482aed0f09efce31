#include "sim/notices.h"

#include "client/client.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

static int64_t true_us(const struct notices_handle *handle) {
    return handle->check->net->time->now_us;
}

static void fail(const struct notices_handle *handle, const char *what) {
    const struct attempt *attempt = handle->attempts[0];
    check_fail(handle->check, VERDICT_SAFETY, "notices: %.8s-%s %s", attempt->owner,
               attempt->owner + 33, what);
}

/* The earliest deadline of its locks, in true time. When one of several names is lost, the others
 * are released; for those, the last deadline while they were held counts. */
static int64_t deadline_us(const struct notices_handle *handle) {
    int64_t first_us = INT64_MAX;
    for (int i = 0; i < handle->attempt_count; i++) {
        struct attempt *attempt = handle->attempts[i];
        const struct hold *hold = &attempt->hold->hold;
        if (hold->state != HOLD_RELEASING && hold->state != HOLD_OVER)
            attempt->ends_us = hold->deadline_us;
        first_us = attempt->ends_us < first_us ? attempt->ends_us : first_us;
    }
    return sim_clock_when(&handle->machine->now, first_us);
}

/* ---- Whether it is lost ---- */

static bool was_taken_away(const struct check *check, const struct attempt *attempt) {
    int denied = 0, servers = check->plan->voter_count - check->plan->listed_twice;
    for (int i = 0; i < check->plan->voter_count; i++)
        denied += attempt->votes[i].denied;
    return denied > servers - check->plan->quorum;
}

static bool may_be_lost(const struct notices_handle *handle) {
    for (int i = 0; i < handle->attempt_count; i++) {
        if (was_taken_away(handle->check, handle->attempts[i]))
            return true;
    }
    return true_us(handle) >= deadline_us(handle);
}

/* ---- Whether the program is notified ---- */

static bool is_readable(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

static bool had_event(const struct notices_handle *handle) {
    for (int i = 0; i < handle->attempt_count; i++) {
        if (handle->attempts[i]->lost_event)
            return true;
    }
    return false;
}

static void check_was_notified(const struct notices_handle *handle) {
    if (handle->notified != 1)
        fail(handle, "was lost, and on_lost was not called in time");
    else if (handle->fd >= 0 && !is_readable(handle->fd))
        fail(handle, "was lost, and its descriptor says nothing");
    else if (handle->events && !had_event(handle))
        fail(handle, "was lost, and there was no event in time");
}

static void check_not_notified(const struct notices_handle *handle) {
    if (handle->notified)
        fail(handle, "is held, and on_lost was called");
    else if (handle->fd >= 0 && is_readable(handle->fd))
        fail(handle, "is held, and its descriptor says that it is lost");
}

static void check_left(const struct notices_handle *handle) {
    int64_t left_ms = hf_hold_left_ms(handle->hold);
    if (hf_check(handle->hold, left_ms) != HF_OK || hf_check(handle->hold, left_ms + 1) != HF_SHORT)
        fail(handle, "has time left that hf_check does not know of");
}

int64_t notices_look(struct notices_handle *handle) {
    int64_t now_us = true_us(handle), ends_us = deadline_us(handle);
    bool is_held = hf_check(handle->hold, 0) == HF_OK;
    if (is_held && now_us >= ends_us)
        fail(handle, "is over, and hf_check says that it is held");
    else if (is_held && handle->lost_us)
        fail(handle, "is held again, and had been lost");
    else if (is_held)
        check_not_notified(handle);
    else if (!may_be_lost(handle))
        fail(handle, "is held, and hf_check says that it is lost");
    if (is_held)
        return ends_us + NOTICES_WITHIN_US;
    if (!handle->lost_us)
        handle->lost_us = now_us < ends_us ? now_us : ends_us;
    int64_t cause_us = handle->lost_us + NOTICES_CAUSE_US;
    int64_t due_us = (cause_us < ends_us ? cause_us : ends_us) + NOTICES_WITHIN_US;
    if (due_us < handle->lost_us + NOTICES_WITHIN_US)
        due_us = handle->lost_us + NOTICES_WITHIN_US;
    if (now_us < due_us)
        return due_us;
    check_was_notified(handle);
    return INT64_MAX;
}

void notices_begin(struct notices_handle *handle, struct sim_machine *machine, hf_hold *hold,
                   bool wants_fd) {
    handle->machine = machine;
    handle->hold = hold;
    handle->notified = 0;
    handle->lost_us = 0;
    handle->fd = wants_fd ? hf_hold_fd(hold) : -1;
    if (hf_check(hold, 0) == HF_OK)
        check_left(handle);
}

void notices_on_lost(hf_hold *hold, void *arg) {
    struct notices_handle *handle = arg;
    if (handle->machine->dead)
        return;
    if (hold != handle->hold || handle->notified++)
        fail(handle, "was lost, and on_lost was called more than once");
    else if (handle->attempts[0]->machine && !may_be_lost(handle))
        fail(handle, "is held, and on_lost was called");
}

void notices_release(struct notices_handle *handle) {
    bool is_held = hf_check(handle->hold, 0) == HF_OK;
    if (is_held)
        check_not_notified(handle);
}

/* ---- Events ---- */

static struct notices_lock *find_open(struct notices *notices, const hf_event *event) {
    for (size_t i = 0; i < notices->count; i++) {
        struct notices_lock *lock = &notices->open[i];
        if (lock->token == event->token && strcmp(plan_name_text(lock->name), event->name) == 0)
            return lock;
    }
    return NULL;
}

/* In a set, two readers of one client may have the same token: the event is then about one of them
 * that is lost. */
static void event_lost(struct check *check, struct sim_machine *machine, const hf_event *event) {
    bool is_held = false;
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *attempt = &check->attempts[i];
        if (attempt->machine != machine || attempt->held_token != event->token ||
            attempt->lost_event || strcmp(plan_name_text(attempt->name), event->name) != 0)
            continue;
        struct notices_handle handle = {
            .check = check, .machine = machine, .attempts = {attempt}, .attempt_count = 1};
        if (may_be_lost(&handle)) {
            attempt->lost_event = true;
            return;
        }
        is_held = true;
    }
    if (is_held)
        check_fail(check, VERDICT_SAFETY,
                   "notices: \"%s\" is held, and there is an event of its loss", event->name);
}

void notices_event(struct check *check, struct sim_machine *machine, const hf_event *event) {
    struct notices *notices = &check->notices[machine->index];
    struct notices_lock *open = find_open(notices, event);
    if (machine->dead || event->type == HF_EVENT_NOT_ACQUIRED)
        return;
    if (event->type == HF_EVENT_ACQUIRED) {
        if (notices->count < NOTICES_OPEN_MAX)
            notices->open[notices->count++] =
                (struct notices_lock){.name = plan_name_number(event->name), .token = event->token};
        return;
    }
    if (!open) {
        check_fail(
            check, VERDICT_SAFETY,
            "notices: an event %d of \"%s\", which had none of its being acquired, or of its "
            "end",
            event->type, event->name);
        return;
    }
    if (event->type == HF_EVENT_LOST)
        event_lost(check, machine, event);
    if (event->type == HF_EVENT_LOST || event->type == HF_EVENT_RELEASED)
        *open = notices->open[--notices->count];
}

void notices_clear(struct check *check, const struct sim_machine *machine) {
    check->notices[machine->index].count = 0;
}

bool notices_complete(const struct check *check) {
    for (int i = 0; i < check->plan->client_count; i++) {
        if (check->notices[i].count)
            return false;
    }
    return true;
}
