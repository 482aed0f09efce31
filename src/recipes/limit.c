/* The rate limiter: permits that nobody releases.
 *
 * Each caller that is let through takes one of `rate` permits with a lease of `window_ms`, and
 * leaves it to that lease (HF_KEEP). The store grants a permit again when its lease has ended by
 * the store's clock, so no window of that length has more than `rate` grants in it. The queue, the
 * repeats after a lost reply, and what happens to waiters that die are those of any semaphore.
 *
 * A fixed window is a counter that expires: the first caller creates it, and all after `rate` are
 * refused until it is gone.
 *
 * A call of the library may be running while another thread closes the client, but none may start
 * after that. So the call of the acquire, which keeps the client's memory, is freed last. */
#include "base/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int read_options(const hf_limit_options *given, hf_limit_options *ret) {
    enum { LEAST = 2 * sizeof(size_t) };
    *ret = (hf_limit_options)HF_LIMIT_OPTIONS_INIT;
    if (!given)
        return HF_OK;
    if (given->size < LEAST || given->size > sizeof(*ret))
        return error_set(HF_BAD_ARGUMENT,
                         "hf_limit_options says that it has %zu bytes; was it initialised?",
                         given->size);
    memcpy(ret, given, given->size);
    return HF_OK;
}

/* ---- How long to wait ---- */

static int by_time(const void *a, const void *b) {
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return (first > second) - (first < second);
}

/* When the index-th permit comes back; without memory, the most that it can take. */
static int64_t ends_in_ms(const hf_lock_info *lock, size_t index, int64_t window_ms) {
    int64_t *left_ms = calloc(lock->holder_count, sizeof(*left_ms));
    if (!left_ms)
        return window_ms;
    for (size_t i = 0; i < lock->holder_count; i++)
        left_ms[i] = lock->holders[i]->left_ms;
    qsort(left_ms, lock->holder_count, sizeof(*left_ms), by_time);
    int64_t found_ms = left_ms[index];
    free(left_ms);
    return found_ms;
}

/* How long a caller that asks now has to wait if everyone who is already waiting goes first. */
static int64_t turn_in_ms(const hf_lock_info *lock, const hf_limit_options *options) {
    size_t held = lock->holder_count, ahead = held + lock->waiter_count;
    if (ahead < options->rate)
        return 0;
    size_t rounds = (ahead - options->rate) / options->rate;
    size_t index = (ahead - options->rate) % options->rate;
    int64_t first_ms =
        index < held ? ends_in_ms(lock, index, options->window_ms) : options->window_ms;
    return first_ms + (int64_t)rounds * options->window_ms;
}

static int refuse(const hf_limit_options *options, int error) {
    return error_set(error, "%" PRIu32 " in %" PRId64 " ms have been let through", options->rate,
                     options->window_ms);
}

/* ---- Limiting ---- */

static int64_t look_when(hf_client *client, const char *name, const hf_limit_options *options) {
    hf_locks *locks = NULL;
    int64_t wait_ms = options->window_ms;
    if (hf_inspect(client, name, &locks) == HF_OK && hf_locks_count(locks) > 0)
        wait_ms = turn_in_ms(hf_locks_at(locks, 0), options) + 1; /* not before it has ended */
    hf_locks_free(locks);
    return wait_ms;
}

static int take_permit(hf_client *client, const char *name, const hf_limit_options *options,
                       int64_t *ret_wait_ms) {
    hf_acquire_options permit = HF_ACQUIRE_OPTIONS_INIT;
    hf_call *call;
    permit.kind = HF_PERMITS;
    permit.capacity = options->rate;
    permit.lease_ms = options->window_ms;
    permit.wait_ms = options->wait_ms;
    permit.label = options->label;
    permit.flags = HF_NO_RENEW | HF_KEEP;
    if (options->rate > HF_LIMIT_RATE_MAX)
        return error_set(HF_BAD_WEIGHT, "rate is %" PRIu32 "; above %d use a fixed window",
                         options->rate, HF_LIMIT_RATE_MAX);
    int r = hf_acquire_start(client, name, &permit, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, HF_FOREVER);
    bool refused = r == HF_BUSY || r == HF_TIMEOUT;
    if (refused && ret_wait_ms)
        *ret_wait_ms = look_when(client, name, options);
    hf_call_free(call);
    return refused ? refuse(options, r) : r;
}

static int count_up(hf_client *client, const char *name, const hf_limit_options *options,
                    int64_t *ret_wait_ms) {
    hf_count_options add = HF_COUNT_OPTIONS_INIT;
    hf_counter window = HF_COUNTER_INIT;
    if (options->wait_ms != 0)
        return error_set(HF_BAD_ARGUMENT, "a fixed window has no queue, so wait_ms must be 0");
    if (options->rate == 0 || options->window_ms <= 0)
        return error_set(HF_BAD_ARGUMENT, "rate is %" PRIu32 ", and window_ms is %" PRId64,
                         options->rate, options->window_ms);
    add.op = HF_COUNT_ADD;
    add.number = 1;
    add.expiry_ms = options->window_ms;
    int r = hf_count(client, name, &add, &window);
    if (r < 0)
        return r;
    if (window.left_ms < 0)
        return error_set(HF_WRONG_KIND, "this name has a counter that does not expire");
    if (window.value <= options->rate)
        return HF_OK;
    if (ret_wait_ms)
        *ret_wait_ms = window.left_ms + 1;
    return refuse(options, HF_BUSY);
}

int hf_limit(hf_client *client, const char *name, const hf_limit_options *given,
             int64_t *ret_wait_ms) {
    hf_limit_options options;
    int r = read_options(given, &options);
    if (r < 0)
        return r;
    return options.fixed ? count_up(client, name, &options, ret_wait_ms)
                         : take_permit(client, name, &options, ret_wait_ms);
}
