/* The countdown latch: it counts those that are done. The counter only rises, so a latch that has
 * opened stays open, and everybody sees that, however late they look.
 *
 * It counts up, not down, so nobody has to set it before the first one is done. */
#include "recipes/waiting.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

enum { COUNT_WAIT_MOST_MS = 60000 };

static int read_options(const hf_latch_options *given, hf_latch_options *ret) {
    *ret = (hf_latch_options)HF_LATCH_OPTIONS_INIT;
    if (given && given->size < sizeof(given->size))
        return error_set(HF_BAD_ARGUMENT, "the size of the options is not set");
    if (given)
        memcpy(ret, given, given->size < sizeof(*ret) ? given->size : sizeof(*ret));
    if (ret->count < 1)
        return error_set(HF_BAD_ARGUMENT, "count is %" PRId64 ", not 1 or more", ret->count);
    return HF_OK;
}

int hf_latch_count_down(hf_client *client, const char *name, const hf_latch_options *options,
                        int64_t *ret_left) {
    hf_latch_options latch;
    hf_count_options add = HF_COUNT_OPTIONS_INIT;
    hf_counter done = HF_COUNTER_INIT;
    int r = read_options(options, &latch);
    if (r < 0)
        return r;
    add.op = HF_COUNT_ADD;
    add.number = 1;
    add.expiry_ms = latch.expiry_ms;
    add.wait_ms = latch.wait_ms < 0 || latch.wait_ms > COUNT_WAIT_MOST_MS ? COUNT_WAIT_MOST_MS
                  : latch.wait_ms > 0                                     ? latch.wait_ms
                                                                          : 1;
    r = hf_count(client, name, &add, &done);
    if (r == HF_OK && ret_left)
        *ret_left = done.value < latch.count ? latch.count - done.value : 0;
    return r;
}

static int await(struct waiting *w, const char *name, int64_t count) {
    for (;;) {
        hf_counter done = HF_COUNTER_INIT;
        int r = waiting_count(w, name, NULL, &done);
        if (r == HF_OK && done.value >= count)
            return HF_OK;
        if (r == HF_OK || r == HF_PENDING)
            r = waiting_pause(w, INT64_MAX);
        if (r < 0)
            return r;
    }
}

int hf_latch_await(hf_client *client, const char *name, const hf_latch_options *options) {
    hf_latch_options latch;
    struct waiting waiting;
    int r = read_options(options, &latch);
    if (!r)
        r = waiting_begin(&waiting, client, NULL, latch.wait_ms);
    if (r < 0)
        return r;
    r = await(&waiting, name, latch.count);
    waiting_end(&waiting);
    return r;
}
