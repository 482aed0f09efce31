#include "store/counts.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The step ---- */

static bool is_expected(const struct store_op *op, struct counts_number number) {
    return op->flags & STORE_ABSENT ? !number.exists
                                    : number.exists && number.value == op->expected;
}

/* The number that the answer reports. Sets HF_RANGE or STORE_MISMATCH in `answer`. */
static struct counts_number step(const struct store_op *op, struct counts_number before,
                                 struct counts_number *after, struct counts_answer *answer) {
    int64_t sum;
    switch ((enum store_count)op->kind) {
    case STORE_COUNT_GET:
        break;
    case STORE_COUNT_ADD:
        if (__builtin_add_overflow(before.exists ? before.value : 0, op->number, &sum))
            answer->reason = HF_RANGE;
        else
            *after = (struct counts_number){true, sum};
        return *after;
    case STORE_COUNT_SWAP:
        *after = (struct counts_number){true, op->number};
        break;
    case STORE_COUNT_CAS:
        if (is_expected(op, before))
            *after = (struct counts_number){true, op->number};
        else
            answer->flags |= STORE_MISMATCH;
        return *after;
    case STORE_COUNT_REMOVE:
        *after = (struct counts_number){0};
        break;
    }
    return before;
}

struct counts_answer counts_step(const struct store_op *op, struct counts_number before,
                                 struct counts_number *ret_after) {
    struct counts_answer answer = {.seq = op->seq};
    *ret_after = before;
    struct counts_number reported = step(op, before, ret_after, &answer);
    answer.flags |= reported.exists ? 0 : STORE_ABSENT;
    answer.value = reported.exists ? reported.value : 0;
    return answer;
}

/* ---- As text ---- */

void counts_write_number(int64_t value, char ret_text[COUNTS_NUMBER_SIZE]) {
    snprintf(ret_text, COUNTS_NUMBER_SIZE, "%" PRId64, value);
}

/* A number has one form only: whatever reads back differently is not one. */
bool counts_read_number(const void *bytes, size_t size, int64_t *ret_value) {
    char text[COUNTS_NUMBER_SIZE] = "", again[COUNTS_NUMBER_SIZE];
    if (!size || size >= sizeof(text))
        return false;
    memcpy(text, bytes, size);
    int64_t value = strtoll(text, NULL, 10);
    counts_write_number(value, again);
    if (strlen(again) != size || memcmp(again, bytes, size) != 0)
        return false;
    *ret_value = value;
    return true;
}

void counts_write_answer(const struct counts_answer *answer, char ret_text[COUNTS_ANSWER_SIZE]) {
    snprintf(ret_text, COUNTS_ANSWER_SIZE, "%" PRIu64 " %d %u %" PRId64 " %" PRId64, answer->seq,
             answer->reason, answer->flags, answer->value, answer->lease);
}

bool counts_read_answer(const void *bytes, size_t size, struct counts_answer *ret_answer) {
    char text[COUNTS_ANSWER_SIZE] = "", again[COUNTS_ANSWER_SIZE];
    if (!size || size >= sizeof(text))
        return false;
    memcpy(text, bytes, size);
    struct counts_answer answer = {0};
    char *at = text;
    answer.seq = strtoull(at, &at, 10);
    answer.reason = (int)strtol(at, &at, 10);
    answer.flags = (unsigned)strtoul(at, &at, 10);
    answer.value = strtoll(at, &at, 10);
    answer.lease = strtoll(at, &at, 10);
    counts_write_answer(&answer, again);
    if (strlen(again) != size || memcmp(again, bytes, size) != 0)
        return false;
    *ret_answer = answer;
    return true;
}

/* ---- The end ---- */

void counts_complete(struct store_host *host, struct store_op *op,
                     const struct counts_answer *answer, int64_t life_us) {
    if (answer->reason) {
        store_refuse(host, op, answer->reason,
                     answer->reason == HF_WRONG_KIND
                         ? error_format("its value is not a number, so it is not a counter")
                         : NULL);
        return;
    }
    op->flags = (uint8_t)answer->flags;
    op->value = answer->value;
    op->life_us = life_us;
    store_complete(host, op, STORE_DONE);
}
