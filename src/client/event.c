/* Events: what happens to a program's locks, for its on_event.
 *
 * This file turns the engine's news of a hold into events, with the counts kept in the hold's
 * `more`. An event is a notice like any other callback: events run in the order in which they
 * happened, and never on a thread that renews. An event for which there is no memory is dropped,
 * and the next one reports how many were dropped.
 *
 * The end of a lock is reported when the engine is done with it: only then is it known whether the
 * store confirmed the release. The time held counts until the program released it. */
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

struct event {
    struct notice notice;
    hf_client *client;
    hf_event event;
    char strings[]; /* name, text */
};

static const char *const causes[] = {
    "",
    [LOSS_EXPIRED] = "expired",
    [LOSS_GONE] = "gone",
    [LOSS_BROKEN] = "broken",
    [LOSS_FORGOTTEN] = "forgotten",
};

static struct event_counts *counts_of(const hf_hold *hold) {
    return hold->hold.watched ? &hold->more->counts : NULL;
}

static void run_event(struct notice *notice) {
    struct event *event = container_of(notice, struct event, notice);
    pthread_cleanup_push(free, event); /* the callback may end its thread */
    event->client->on_event(&event->event, event->client->on_event_arg);
    pthread_cleanup_pop(1);
}

static void emit(hf_hold *hold, hf_event_type type, int error) {
    hf_client *c = hold->client;
    const struct event_counts *counts = counts_of(hold);
    bool has_text = type == HF_EVENT_LOST || type == HF_EVENT_RENEWAL_FAILED;
    const char *text = has_text && hold->hold.failure_text ? hold->hold.failure_text : "";
    size_t name_size = strlen(hold->text) + 1, text_size = strlen(text) + 1;
    struct event *event = malloc(sizeof(*event) + name_size + text_size);
    if (!event) {
        c->events_dropped++;
        return;
    }
    int64_t until_us = counts->released_us ? counts->released_us : c->engine.now_us;
    bool granted = type != HF_EVENT_NOT_ACQUIRED;
    event->client = c;
    event->event = (hf_event){
        .size = sizeof(event->event),
        .type = type,
        .error = error,
        .name = memcpy(event->strings, hold->text, name_size),
        .token = granted ? hold->hold.op.token : 0,
        .wait_ms = (counts->granted_us - counts->asked_us) / 1000,
        .held_ms = granted ? (until_us - counts->granted_us) / 1000 : 0,
        .renewals = counts->renewals,
        .least_margin_ms = counts->least_margin_us < 0 ? -1 : counts->least_margin_us / 1000,
        .dropped = c->events_dropped,
        .cause = causes[type == HF_EVENT_LOST ? hold->hold.cause : 0],
        .text = memcpy(event->strings + name_size, text, text_size),
    };
    c->events_dropped = 0;
    list_init(&event->notice.link);
    notice_add(c, &event->notice, run_event);
}

void event_asked(hf_hold *hold) {
    struct event_counts *counts = counts_of(hold);
    if (counts)
        *counts =
            (struct event_counts){.asked_us = hold->client->engine.now_us, .least_margin_us = -1};
}

void event_acquire_finished(hf_hold *hold, int result) {
    struct event_counts *counts = counts_of(hold);
    if (!counts)
        return;
    counts->granted_us = hold->client->engine.now_us;
    counts->deadline_us = hold->hold.deadline_us;
    counts->held = result == HF_OK;
    emit(hold, counts->held ? HF_EVENT_ACQUIRED : HF_EVENT_NOT_ACQUIRED, result);
}

/* Notes how much time is left now. */
static void note_margin(struct event_counts *counts, int64_t now_us) {
    int64_t left_us = counts->deadline_us > now_us ? counts->deadline_us - now_us : 0;
    if (counts->least_margin_us < 0 || left_us < counts->least_margin_us)
        counts->least_margin_us = left_us;
}

static void renewed(hf_hold *hold, struct event_counts *counts) {
    note_margin(counts, hold->client->engine.now_us);
    counts->deadline_us = hold->hold.deadline_us;
    counts->renewals++;
    emit(hold, HF_EVENT_RENEWED, HF_OK);
}

static void lost(hf_hold *hold, struct event_counts *counts) {
    int64_t now_us = hold->client->engine.now_us;
    if (counts->deadline_us <= now_us)
        note_margin(counts, now_us); /* else it was broken, which says nothing about renewals */
    counts->held = false;
    emit(hold, HF_EVENT_LOST, HF_LOST);
}

static void ended(hf_hold *hold, struct event_counts *counts) {
    const struct store_op *op = &hold->hold.op;
    bool answered = op->type == STORE_RELEASE && !hold->hold.in_flight;
    bool kept = op->type == STORE_ACQUIRE && hold->hold.keeps;
    counts->held = false;
    if (answered && op->outcome == STORE_NOT_YOURS)
        emit(hold, HF_EVENT_LOST, HF_LOST); /* the release found it gone */
    else
        emit(hold, HF_EVENT_RELEASED,
             kept || (answered && op->outcome == STORE_DONE) ? HF_OK : HF_UNKNOWN);
}

void event_news(hf_hold *hold, uint8_t news) {
    struct event_counts *counts = counts_of(hold);
    if (!counts || !counts->held)
        return;
    if (news & HOLD_RENEWAL_FAILED)
        emit(hold, HF_EVENT_RENEWAL_FAILED, hold->hold.failure);
    if (news & HOLD_RENEWED)
        renewed(hold, counts);
    if (news & HOLD_RELEASED) {
        counts->released_us = hold->client->engine.now_us;
        note_margin(counts, counts->released_us);
    }
    if (news & HOLD_WAS_LOST)
        lost(hold, counts);
    else if (news & HOLD_ENDED)
        ended(hold, counts);
}
