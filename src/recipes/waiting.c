#include "recipes/waiting.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAUSE_FIRST_MS = 20, PAUSE_MOST_MS = 1000, STORE_WAIT_MS = 10000 };

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int waiting_begin(struct waiting *w, hf_client *client, const char *lock, int64_t wait_ms) {
    if (wait_ms < HF_FOREVER)
        return error_set(HF_BAD_ARGUMENT, "wait_ms is below HF_FOREVER");
    int64_t now = now_ms();
    bool limited = wait_ms >= 0 && wait_ms < INT64_MAX - now;
    *w = (struct waiting){.client = client, .lock = lock, .pause_ms = PAUSE_FIRST_MS};
    w->until_ms = limited ? now + wait_ms : INT64_MAX;
    w->first_answer_by_ms = limited ? INT64_MAX : now + STORE_WAIT_MS;
    w->once = wait_ms == 0;
    int r = hf_pause_start(client, &w->anchor);
    if (r == HF_OK)
        pthread_mutex_init(&w->mutex, NULL);
    return r;
}

void waiting_end(struct waiting *w) {
    hf_call_free(w->watch); /* waits while its callback runs */
    hf_call_free(w->anchor);
    pthread_mutex_destroy(&w->mutex);
}

int64_t waiting_left_ms(const struct waiting *w) {
    if (w->once || w->until_ms == INT64_MAX)
        return HF_FOREVER;
    int64_t left_ms = w->until_ms - now_ms();
    return left_ms > 0 ? left_ms : 0;
}

/* ---- Requests ---- */

/* Remembers whether the store answered. HF_PENDING if it did not. */
static int note(struct waiting *w, int result, const char *why) {
    if (result == HF_PENDING && w->answered)
        return HF_PENDING; /* the time was up before this answer; the last one counts */
    w->answered |= result == HF_OK || result == HF_MISMATCH;
    w->failure = result == HF_PENDING ? HF_UNKNOWN : result;
    snprintf(w->why, sizeof(w->why), "%s", why);
    return w->failure == HF_UNKNOWN || w->failure == HF_UNREACHABLE ? HF_PENDING : result;
}

int waiting_inspect(struct waiting *w, const char *name, hf_locks **ret_locks) {
    hf_call *call;
    int r = hf_inspect_start(w->client, name, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, waiting_left_ms(w));
    if (r == HF_OK)
        *ret_locks = hf_call_take_locks(call);
    r = note(w, r, hf_call_error(call));
    hf_call_free(call);
    return r;
}

int waiting_count(struct waiting *w, const char *name, const hf_count_options *options,
                  hf_counter *ret_counter) {
    hf_count_options own = HF_COUNT_OPTIONS_INIT;
    hf_call *call;
    if (options)
        own = *options;
    int r = hf_count_start(w->client, name, &own, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, waiting_left_ms(w));
    if (r == HF_OK || r == HF_MISMATCH)
        hf_call_counter(call, ret_counter);
    r = note(w, r, hf_call_error(call));
    hf_call_free(call);
    return r;
}

/* ---- Pauses ---- */

static void on_change(const hf_change *change, void *arg) {
    struct waiting *w = arg;
    if (change->lock && strcmp(change->lock->name, w->lock) != 0)
        return;
    pthread_mutex_lock(&w->mutex);
    w->changed = true;
    if (w->pause)
        hf_call_cancel(w->pause);
    pthread_mutex_unlock(&w->mutex);
}

/* Starts the watch if there can be one. After a watch has failed, there is no other. */
static void keep_watch(struct waiting *w) {
    if (w->watch && hf_call_status(w->watch) != HF_PENDING) {
        w->watch = hf_call_free(w->watch);
        w->lock = NULL;
    }
    if (!w->watch && w->lock && hf_client_store(w->client)->pushes &&
        hf_watch_start(w->client, w->lock, on_change, w, &w->watch) < 0)
        w->watch = NULL;
}

/* Sets the call that a change ends. Returns whether there was a change since the last time. */
static bool expect_change(struct waiting *w, hf_call *pause) {
    pthread_mutex_lock(&w->mutex);
    bool changed = w->changed;
    w->changed = false;
    w->pause = pause;
    pthread_mutex_unlock(&w->mutex);
    return changed;
}

static int pause_for(struct waiting *w, int64_t ms) {
    hf_call *pause;
    int r = hf_pause_start(w->client, &pause);
    if (r < 0)
        return r;
    r = expect_change(w, pause) ? HF_PENDING : hf_call_wait(pause, ms);
    expect_change(w, NULL);
    hf_call_free(pause);
    if (r != HF_PENDING && r != HF_CANCELLED)
        return r;
    r = hf_call_wait(w->anchor, 0); /* did a change end the pause, or the program? */
    return r == HF_PENDING ? HF_OK : r;
}

static int64_t give_up_at_ms(const struct waiting *w) {
    return w->answered ? w->until_ms : least(w->until_ms, w->first_answer_by_ms);
}

static int give_up(const struct waiting *w) {
    if (!w->failure)
        return error_set_text(HF_TIMEOUT, NULL);
    size_t size = strlen(hf_error_string(w->failure)); /* the text starts with it */
    return error_set_text(w->failure, strlen(w->why) > size + 2 ? w->why + size + 2 : NULL);
}

int waiting_pause(struct waiting *w, int64_t most_ms) {
    int64_t now = now_ms();
    if (now >= give_up_at_ms(w))
        return give_up(w);
    keep_watch(w);
    int64_t ms = least(least(w->pause_ms, most_ms), w->until_ms - now);
    w->pause_ms = least(2 * w->pause_ms, PAUSE_MOST_MS);
    return pause_for(w, ms);
}
