/* Counters. As with locks, the rules are in the script. A repeat is recognised by its seq, so that
 * the link may send a request again, and the client may submit an operation again. */
#include "base/error.h"
#include "store/redis/redis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_signed(struct redis *redis, int64_t number) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    command_add_text(&redis->command, text);
}

/* ---- The answer ---- */

/* Reads "VALUE LEFT", as the script writes it. */
static bool read_state(struct store_op *op, const char *text, unsigned flags) {
    int64_t value = 0, left_ms = -1;
    char *end;
    errno = 0;
    if (strncmp(text, "- ", 2) == 0) {
        flags |= STORE_ABSENT;
    } else {
        value = strtoll(text, &end, 10);
        if (end == text || *end != ' ')
            return false;
        left_ms = strtoll(end + 1, &end, 10);
        if (*end || errno || left_ms > INT64_MAX / 1000)
            return false;
    }
    op->flags = (uint8_t)flags;
    op->value = value;
    op->life_us = left_ms < 0 ? -1 : left_ms * 1000;
    return true;
}

/* Sets the outcome, and what goes with it. False: this is not an answer. */
static bool read_answer(struct store_op *op, const struct reply *answer) {
    static const char done[] = "done ", mismatch[] = "mismatch ";
    const char *text = answer->type == REPLY_STRING ? answer->text : "";
    op->outcome = STORE_REFUSED;
    if (strncmp(text, done, sizeof(done) - 1) == 0) {
        op->outcome = STORE_DONE;
        return read_state(op, text + sizeof(done) - 1, 0);
    } else if (strncmp(text, mismatch, sizeof(mismatch) - 1) == 0) {
        op->outcome = STORE_DONE;
        return read_state(op, text + sizeof(mismatch) - 1, STORE_MISMATCH);
    } else if (strcmp(text, "range") == 0) {
        op->reason = HF_RANGE;
    } else if (strcmp(text, "kind") == 0) {
        op->reason = HF_WRONG_KIND;
        op->text = error_format("its key is not a number, so it is not a counter");
    } else {
        op->outcome = STORE_UNKNOWN;
        return strcmp(text, "late") == 0;
    }
    return true;
}

/* ---- Replicas ----
 *
 * With wait_replicas, a step counts only once that many replicas have it. It cannot be undone, so
 * if fewer have it, the outcome is unknown. */

static void replicas_answered(struct redis *redis, struct redis_request *request,
                              const struct reply *reply, const char *why) {
    struct store_op *op = request->op;
    enum store_outcome outcome = op->outcome;
    if (!reply || reply->type != REPLY_INTEGER) {
        redis_explain(request, reply, why, &op->reason, &op->text);
        outcome = STORE_UNKNOWN;
    } else if ((uint64_t)reply->integer < redis->wait_replicas) {
        op->text =
            error_format("%" PRId64 " of the %" PRIu64 " replicas that wait_replicas asks for had "
                         "it after %" PRIu64 " ms",
                         reply->integer, redis->wait_replicas, redis->wait_timeout_ms);
        op->reason = HF_UNREACHABLE;
        outcome = STORE_UNKNOWN;
    }
    redis_request_free(request);
    store_complete(redis->host, op, outcome);
}

static void wait_for_replicas(struct redis *redis, struct redis_link *via, struct store_op *op) {
    struct redis_request *request = redis_new_wait(redis, op, replicas_answered, NULL);
    if (request) {
        link_submit(via, request);
        return;
    }
    op->reason = HF_NO_MEMORY;
    store_complete(redis->host, op, STORE_UNKNOWN);
}

/* ---- The request ---- */

static void count_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct store_op *op = request->op;
    struct redis_link *via = request->via;
    if (!reply || !read_answer(op, reply)) {
        redis_fail(redis, request, reply, why);
        return;
    }
    redis_request_free(request);
    bool changed = op->outcome == STORE_DONE && op->kind != STORE_COUNT_GET;
    if (changed && redis->wait_replicas)
        wait_for_replicas(redis, via, op);
    else
        store_complete(redis->host, op, op->outcome);
}

/* Appends this client's id to the key A, since each client has its own. */
static void append_client(struct redis *redis) {
    char owner[LOCKS_OWNER_SIZE];
    locks_format_owner(redis->host->identity.id, 0, owner);
    command_append(&redis->command, ".", 1);
    command_append(&redis->command, owner, strcspn(owner, "-"));
}

void redis_count(struct redis *redis, struct store_op *op) {
    static const char *const words[] = {
        [STORE_COUNT_GET] = "get", [STORE_COUNT_ADD] = "add",       [STORE_COUNT_SWAP] = "swap",
        [STORE_COUNT_CAS] = "cas", [STORE_COUNT_REMOVE] = "remove",
    };
    struct command *command = &redis->command;
    char seq[24];
    snprintf(seq, sizeof(seq), "%020" PRIu64, op->seq);
    command_start_script(command, REDIS_COUNT, 2);
    command_add_keys(command, redis->prefix, op->name, "KA");
    append_client(redis);
    command_add_text(command, seq);
    command_add_text(command, words[op->kind]);
    add_signed(redis, op->number);
    if (op->flags & STORE_ABSENT)
        command_add_text(command, "-");
    else
        add_signed(redis, op->expected);
    command_add_number(command, ((uint64_t)op->lease_us + 999) / 1000);
    command_add_number(command, STORE_COUNT_KEPT_US / 1000);
    struct redis_request *request =
        redis_new_request(redis, op, REDIS_COUNT, count_answered, NULL, 0);
    if (request)
        route_submit(redis, request);
    else
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
}
