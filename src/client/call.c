/* Calls: requests that a program has made and may wait for. A blocking function of the header
 * starts a call on the stack and waits for it; a _start function returns one on the heap. A call
 * completes exactly once, in call_complete: when its answer comes, it is cancelled or its client is
 * closed, whichever is first. */
#include "client/client.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

void call_init(hf_call *call, hf_client *c, enum call_type type) {
    *call = (hf_call){.client = c, .type = type, .result = HF_PENDING, .pending = 1};
    call->requests = &call->one;
    call->request_count = 1;
    call->one.context = call;
    list_append(&c->calls, &call->of_client);
    list_init(&call->blocked);
    list_init(&call->link);
    list_init(&call->notice.link);
    list_init(&call->op.link);
}

int call_block(hf_call *call, int r) {
    hf_client *c = call->client;
    client_ref(c);
    if (r == HF_OK) {
        client_pump(c);
        client_await(c, call, WORLD_NEVER);
        r = call->result;
        if (r < 0)
            error_note_text(r, call->text);
    }
    list_remove(&call->of_client);
    free(call->text);
    client_unref(c);
    return r;
}

hf_call *call_new(hf_client *c, enum call_type type) {
    hf_call *call = malloc(sizeof(*call));
    if (!call) {
        client_unlock(c);
        error_note_text(HF_NO_MEMORY, NULL);
        return NULL;
    }
    call_init(call, c, type);
    call->started = true;
    client_ref(c);
    return call;
}

static void free_memory(hf_call *call) {
    hf_locks_free(call->locks);
    hf_examination_free(call->examination);
    count_free(call->count);
    watch_free(call->watch);
    if (call->requests != &call->one)
        free(call->requests);
    free(call->strings);
    free(call->text);
    free(call->sentence);
    free(call);
}

/* Frees a call on the heap, and everything in it that was not taken out. Releases the mutex. */
static void free_and_unlock(hf_call *call) {
    hf_client *c = call->client;
    list_remove(&call->link);
    list_remove(&call->of_client);
    if (call->owns_hold)
        hold_drop(call->hold);
    client_post(c);
    free_memory(call);
    client_unref(c);
}

int call_hand_out(hf_call *call, int r, hf_call **ret_call) {
    if (r < 0) {
        free_and_unlock(call);
        return r;
    }
    client_post(call->client);
    *ret_call = call;
    client_unlock(call->client);
    return HF_OK;
}

/* ---- Completing ---- */

static void run_notify(struct notice *notice) {
    hf_call *call = container_of(notice, hf_call, notice);
    call->notify(call, call->data);
}

/* Notifies the program in the way it asked for, if it did. */
static void announce(hf_call *call) {
    hf_client *c = call->client;
    if (call->notify)
        notice_add(c, &call->notice, run_notify);
    else if (call->queued)
        list_append(&c->done, &call->link);
    notice_signal(c);
}

void call_complete(hf_call *call, int result, char *text) {
    assert(call->result == HF_PENDING && result != HF_PENDING);
    call->result = result;
    call->text = text;
    list_remove(&call->link);
    list_remove(&call->of_client);
    if (call->type == CALL_RENEW || call->type == CALL_RELEASE) {
        hold_unref(call->hold);
        call->hold = NULL;
    }
    list_each(link, &call->blocked)
        client_signal(call->client, container_of(link, struct blocked_thread, of_call));
    if (call->started)
        announce(call);
}

static void release_finished(hf_call *call, int result, char *text) {
    hf_hold *hold = call->hold;
    if (result == HF_CANCELLED && call->joined) {
        /* Only this call stops waiting: the next one takes over the release. */
        hold->releasing = call->joined;
        hold_send_release(hold);
        call_complete(call, result, text);
        return;
    }
    hold->result = result == HF_CANCELLED ? HF_UNKNOWN : result;
    hold->releasing = NULL;
    for (hf_call *joined = call->joined, *next; joined; joined = next) {
        next = joined->joined;
        call_complete(joined, result, text ? error_format("%s", text) : NULL);
    }
    call_complete(call, result, text);
}

char *call_text_for(const char *name, char *text) {
    char *longer = error_format("\"%s\"%s%s", name, text ? ": " : "", text ? text : "");
    free(text);
    return longer;
}

static void acquire_finished(hf_call *call, int result, char *text) {
    event_acquire_finished(call->hold, result);
    call->owns_hold = result == HF_OK;
    if (result < 0) {
        text = call_text_for(call->hold->text, text);
        hold_unref(call->hold);
        call->hold = NULL;
    }
    call_complete(call, result, text);
}

void call_request_finished(struct request *request) {
    hf_call *call = request->context;
    int result = request->result;
    char *text = request->text;
    request->text = NULL;
    if (call->type == CALL_ACQUIRE_ALL) {
        group_name_finished(call, result, text);
        return;
    }
    /* Of several results the worst counts: HF_LOST, or else the first error. */
    if (call->so_far == HF_OK || result == HF_LOST) {
        free(call->text);
        call->text = text;
        call->so_far = result;
    } else {
        free(text);
    }
    if (--call->pending > 0)
        return;
    text = call->text;
    if (call->type == CALL_ACQUIRE)
        acquire_finished(call, result, text);
    else if (call->type == CALL_RELEASE)
        release_finished(call, call->so_far, text);
    else
        call_complete(call, call->so_far, text);
}

static int result_of_look(const hf_call *call) {
    switch ((enum store_outcome)call->op.outcome) {
    case STORE_DONE:
        return HF_OK;
    case STORE_NOT_YOURS:
        return HF_NOT_YOURS;
    case STORE_REFUSED:
        return call->op.reason;
    default:
        return call->client->closed ? HF_CLOSED : HF_UNKNOWN;
    }
}

void call_free_if_left(hf_call *call) {
    if (!call->freed)
        return;
    call->client->refs--; /* never the last: the caller keeps the client alive */
    free_memory(call);
}

void call_op_completed(struct store_op *op) {
    hf_call *call = container_of(op, hf_call, op);
    call->op_in_flight = false;
    if (op->type == STORE_EXAMINE && op->outcome == STORE_DONE)
        call->examination = op->examination;
    else if (op->type != STORE_BREAK && op->outcome == STORE_DONE)
        call->locks = op->locks;
    if (call->result == HF_PENDING) {
        call_complete(call, result_of_look(call), op->text);
    } else {
        free(op->text); /* cancelled meanwhile */
        call_free_if_left(call);
    }
}

/* ---- The header's calls ---- */

int hf_call_status(hf_call *call) {
    if (!call)
        return error_set(HF_BAD_ARGUMENT, "the call is NULL");
    if (!client_lock(call->client))
        return error_set_text(HF_FORKED, NULL);
    int result = call->result;
    client_unlock(call->client);
    return result;
}

const char *hf_call_error(hf_call *call) {
    int result = hf_call_status(call);
    if (!call || result == HF_OK || result == HF_PENDING)
        return "";
    if (result == HF_FORKED || !call->text)
        return hf_error_string(result);
    client_lock(call->client);
    if (!call->sentence)
        call->sentence = error_format("%s: %s", hf_error_string(result), call->text);
    const char *sentence = call->sentence;
    client_unlock(call->client);
    return sentence ? sentence : hf_error_string(result);
}

int hf_call_wait(hf_call *call, int64_t wait_ms) {
    if (!call || wait_ms < HF_FOREVER)
        return error_set(HF_BAD_ARGUMENT, "the call is NULL, or wait_ms below HF_FOREVER");
    hf_client *c = call->client;
    if (!client_lock(c))
        return error_set_text(HF_FORKED, NULL);
    client_ref(c);
    int64_t until_us = WORLD_NEVER;
    if (call->result == HF_PENDING) {
        client_update_time(c);
        until_us = wait_ms ? hold_give_up_us(c, wait_ms) : c->engine.now_us;
    }
    client_await(c, call, until_us);
    int result = call->result;
    if (result < 0)
        error_note_text(result, call->text);
    client_unref(c);
    return result;
}

/* Completes the call without its answer. */
static void cancel(hf_call *call) {
    if (call->type == CALL_LOOK) {
        call_complete(call, HF_CANCELLED, NULL);
        return;
    }
    if (call->type == CALL_COUNT) {
        count_end(call, HF_CANCELLED, NULL);
        client_post(call->client);
        return;
    }
    if (call->type == CALL_WATCH) {
        watch_end(call, HF_CANCELLED, NULL);
        client_post(call->client);
        return;
    }
    if (call->type == CALL_RELEASE && call->hold->releasing != call) {
        hf_call **link = &call->hold->releasing->joined;
        while (*link != call)
            link = &(*link)->joined;
        *link = call->joined;
        call_complete(call, HF_CANCELLED, NULL);
        return;
    }
    client_update_time(call->client);
    if (call->type == CALL_RELEASE && call->hold->role == ROLE_GROUP)
        group_cancel_release(call->hold);
    for (size_t i = 0; i < call->request_count; i++) {
        if (call->requests[i].hold)
            engine_cancel(&call->client->engine, &call->requests[i], HF_CANCELLED);
    }
    client_post(call->client);
}

int hf_call_cancel(hf_call *call) {
    if (!call)
        return error_set(HF_BAD_ARGUMENT, "the call is NULL");
    if (!client_lock(call->client))
        return error_set_text(HF_FORKED, NULL);
    if (call->result == HF_PENDING)
        cancel(call);
    client_unlock(call->client);
    return HF_OK;
}

int hf_client_cancel(hf_client *c) {
    struct list calls;
    int r = client_enter(c);
    if (r < 0)
        return r;
    client_ref(c);
    list_move(&c->calls, &calls);
    while (!list_empty(&calls)) { /* last first: nobody moves up only to be cancelled next */
        struct list *last = calls.prev;
        list_remove(last);
        cancel(container_of(last, hf_call, of_client));
    }
    client_unref(c);
    return HF_OK;
}

hf_hold *hf_call_take_hold(hf_call *call) {
    if (!call || !client_lock(call->client))
        return NULL;
    hf_hold *hold = call->owns_hold ? call->hold : NULL;
    call->owns_hold = false;
    client_unlock(call->client);
    return hold;
}

hf_locks *hf_call_take_locks(hf_call *call) {
    if (!call || !client_lock(call->client))
        return NULL;
    hf_locks *locks = call->result == HF_OK ? call->locks : NULL;
    if (locks)
        call->locks = NULL;
    client_unlock(call->client);
    return locks;
}

hf_examination *hf_call_take_examination(hf_call *call) {
    if (!call || !client_lock(call->client))
        return NULL;
    hf_examination *examination = call->result == HF_OK ? call->examination : NULL;
    if (examination)
        call->examination = NULL;
    client_unlock(call->client);
    return examination;
}

/* Enters the client to ask for a notification. HF_OK with the mutex taken, or an error. */
static int enter_to_announce(hf_call *call) {
    if (!call)
        return error_set(HF_BAD_ARGUMENT, "the call is NULL");
    int r = client_enter(call->client);
    if (r < 0)
        return r;
    if (call->notify || call->queued)
        r = error_set(HF_BAD_ARGUMENT, "hf_call_notify or hf_call_queue was already called");
    else
        r = client_start_standby(
            call->client); /* if no lock was ever acquired, nobody else drives */
    if (r < 0)
        client_unlock(call->client);
    return r;
}

int hf_call_notify(hf_call *call, void (*fn)(hf_call *call, void *arg), void *arg) {
    if (!fn)
        return error_set(HF_BAD_ARGUMENT, "fn is NULL");
    int r = enter_to_announce(call);
    if (r < 0)
        return r;
    hf_client *c = call->client;
    r = notice_prepare(c);
    if (!r) {
        call->notify = fn;
        call->data = arg;
        if (call->result != HF_PENDING)
            announce(call);
    }
    client_unlock(c);
    return r;
}

int hf_call_queue(hf_call *call, void *data) {
    int r = enter_to_announce(call);
    if (r < 0)
        return r;
    call->queued = true;
    call->data = data;
    if (call->result != HF_PENDING)
        announce(call);
    client_unlock(call->client);
    return HF_OK;
}

void *hf_call_data(const hf_call *call) {
    return call ? call->data : NULL;
}

hf_call *hf_call_free(hf_call *call) {
    if (!call)
        return NULL;
    hf_client *c = call->client;
    if (!client_lock(c)) { /* in a forked child only the memory is ours */
        if (call->owns_hold)
            hf_hold_free(call->hold);
        free_memory(call);
        client_unref(c);
        return NULL;
    }
    notice_drop(c, &call->notice);
    call->notify = NULL;
    if (call->result == HF_PENDING)
        cancel(call);
    if (call->watch)
        watch_drop(call);
    if (call->op_in_flight) {
        call->freed = true; /* call_free_if_left frees the memory later */
        list_remove(&call->link);
        client_unlock(c);
    } else {
        free_and_unlock(call);
    }
    return NULL;
}

hf_call *hf_call_next(hf_client *c) {
    if (!c || !client_lock(c))
        return NULL;
    struct list *link = list_pop(&c->done);
    client_unlock(c);
    return link ? container_of(link, hf_call, link) : NULL;
}
