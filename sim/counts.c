#include "sim/counts.h"

#include "sim/service.h"

#include <inttypes.h>

enum { STEP_BITS = 2, LARGE_BIT = 42, ENOUGH_MS = 1000 };

void counts_init(struct counts *counts, struct check *check) {
    counts->check = check;
    counts->count = check->plan->count_count;
    for (int i = 0; i < counts->count; i++)
        counts->steps[i].plan = &check->plan->counts[i];
}

static int number_of(const struct counts *counts, const struct counts_step *step) {
    return (int)(step - counts->steps);
}

/* ---- What a value is made of ---- */

/* Every other step adds a large number: a value that is converted to a double somewhere is no
 * longer exact. */
static int first_bit_of(int number) {
    return number / 2 * STEP_BITS + (number % 2 ? LARGE_BIT : 0);
}

static int64_t amount_of(int number) {
    return INT64_C(1) << first_bit_of(number);
}

static int times_in(int64_t value, int number) {
    return (int)(value >> first_bit_of(number)) & ((1 << STEP_BITS) - 1);
}

/* Whether it is certain that it happened, or that it did not. */
static bool has_happened(const struct counts_step *step) {
    return step->state == COUNTS_ENDED && step->result == HF_OK && step->plan->op != HF_COUNT_GET;
}

static bool has_not_happened(const struct counts_step *step) {
    bool failed =
        step->state == COUNTS_ENDED && step->result != HF_OK && step->result != HF_UNKNOWN;
    return step->plan->op == HF_COUNT_GET || step->state == COUNTS_PLANNED || failed;
}

/* ---- Checks ---- */

/* Checks a value that was seen by a step that began at this time. */
static void check_value(const struct counts *counts, int64_t value, int64_t began_us) {
    int64_t rest = value;
    for (int i = 0; i < counts->count; i++) {
        const struct counts_step *step = &counts->steps[i];
        int times = times_in(value, i);
        rest -= times * amount_of(i);
        if (times > 1)
            check_fail(counts->check, VERDICT_SAFETY, "counts: step %d happened %d times", i,
                       times);
        if (times && has_not_happened(step) && !step->forgotten)
            check_fail(counts->check, VERDICT_SAFETY, "counts: step %d happened, but should not",
                       i);
        if (!times && has_happened(step) && !step->forgotten && step->since_us <= began_us)
            check_fail(counts->check, VERDICT_SAFETY, "counts: step %d is lost", i);
    }
    if (rest)
        check_fail(counts->check, VERDICT_SAFETY, "counts: nobody has added %" PRId64, rest);
}

/* Compares a value with those seen before it, since the server last forgot something. */
static void check_order(struct counts *counts, int64_t value) {
    for (int i = 0; i < counts->value_count; i++) {
        int64_t both = value & counts->values[i];
        if (both != value && both != counts->values[i])
            check_fail(counts->check, VERDICT_SAFETY,
                       "counts: it was both %" PRIx64 " and %" PRIx64, counts->values[i], value);
    }
    counts->values[counts->value_count++] = value;
}

static void check_life(const struct counts *counts, int64_t left_ms) {
    int64_t expiry_ms = counts->check->plan->count_expiry_ms;
    if ((left_ms < 0) != !expiry_ms || (left_ms > expiry_ms && !counts->went_back))
        check_fail(counts->check, VERDICT_SAFETY, "counts: it has %" PRId64 " ms left", left_ms);
}

/* ---- What happens ---- */

hf_count_options counts_begin(struct counts *counts, struct counts_step *step) {
    const struct counts_seen *seen = &counts->seen[step->plan->client];
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = step->plan->op;
    options.number = amount_of(number_of(counts, step));
    if (options.op == HF_COUNT_CAS) {
        options.expected = seen->value;
        options.expect_none = !seen->exists;
        options.number += seen->value;
    }
    options.expiry_ms = counts->check->plan->count_expiry_ms;
    options.wait_ms = step->plan->wait_ms;
    step->state = COUNTS_STARTED;
    step->since_us = counts->check->net->time->now_us;
    return options;
}

void counts_end(struct counts *counts, struct counts_step *step, int result,
                const hf_counter *answer) {
    bool is_answered = result == HF_OK || result == HF_MISMATCH;
    int64_t began_us = step->since_us;
    step->state = COUNTS_ENDED;
    step->result = result;
    step->since_us = counts->check->net->time->now_us;
    if (!is_answered && !counts->check->troubled && step->plan->wait_ms >= ENOUGH_MS)
        check_fail(counts->check, VERDICT_SAFETY, "counts: step %d fails without a fault: %s",
                   number_of(counts, step), hf_error_name(result));
    if (!is_answered || counts->torn)
        return;
    int64_t value = answer->exists ? answer->value : 0;
    counts->seen[step->plan->client] = (struct counts_seen){answer->exists, value};
    if (answer->exists)
        check_life(counts, answer->left_ms);
    if (has_happened(step) && times_in(value, number_of(counts, step)) != 1)
        check_fail(counts->check, VERDICT_SAFETY, "counts: step %d does not see itself",
                   number_of(counts, step));
    check_value(counts, value, began_us);
    if (!step->forgotten)
        check_order(counts, value);
}

void counts_forgot(struct counts *counts, bool torn) {
    counts->torn |= torn;
    counts->value_count = 0;
    for (int i = 0; i < counts->count; i++)
        counts->steps[i].forgotten |= counts->steps[i].state != COUNTS_PLANNED;
}

void counts_time_went_back(struct counts *counts) {
    counts->went_back = true;
}

void counts_finish(struct counts *counts, struct sim_server *server) {
    int64_t value = 0;
    bool ends = counts->check->plan->count_expiry_ms;
    if (!counts->count || counts->torn)
        return;
    sim_server_tell_time(server);
    server->service->type->find_counter(server->service, plan_counter_name, &value, &ends);
    check_value(counts, value, server->net->time->now_us);
    if (ends != !!counts->check->plan->count_expiry_ms)
        check_fail(counts->check, VERDICT_SAFETY, "counts: it %s", ends ? "ends" : "has no end");
}
