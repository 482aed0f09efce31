/* Looking at locks, and breaking them: single operations of the store, without the engine. The
 * store may keep an operation for longer than the program waits for it, so these calls are on the
 * heap even if the program blocks. A pause is a look that asks nothing. */
#include "client/client.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_MAX_BYTES = 255, LIST_LIMIT = 1000 };

/* Copies the strings that the operation points to; they must outlive the caller's. */
static int keep_strings(hf_call *call) {
    struct store_op *op = &call->op;
    assert(op->name);
    const char **other = op->type == STORE_LIST ? &op->after : &op->label;
    size_t name_size = strlen(op->name) + 1, other_size = *other ? strlen(*other) + 1 : 0;
    call->strings = malloc(name_size + other_size);
    if (!call->strings)
        return error_set_text(HF_NO_MEMORY, NULL);
    op->name = memcpy(call->strings, op->name, name_size);
    if (*other)
        *other = memcpy(call->strings + name_size, *other, other_size);
    return HF_OK;
}

/* Starts the operation. `blocks`: the caller will wait for it. Always leaves the client. */
static int start(hf_client *c, const struct store_op *op, bool blocks, hf_call **ret_call) {
    hf_call *call = call_new(c, CALL_LOOK);
    if (!call)
        return HF_NO_MEMORY;
    int r = HF_OK;
    call->op = *op;
    bool examines = op->type == STORE_EXAMINE;
    if (!(c->store->driver->capabilities & (examines ? STORE_CAN_EXAMINE : STORE_CAN_LOOK)))
        r = error_set(HF_UNSUPPORTED, "%s: cannot be %s", c->store->driver->scheme,
                      examines ? "examined" : "inspected");
    if (!r)
        r = keep_strings(call);
    if (!r && c->store_blocks && !blocks)
        r = client_start_standby(c); /* it submits the operation */
    if (!r) {
        call->op_in_flight = true;
        list_append(&c->looks, &call->link);
        list_append(&c->engine.out, &call->op.link);
    }
    if (r < 0 || !blocks)
        return call_hand_out(call, r, ret_call);
    *ret_call = call;
    client_unlock(c);
    return HF_OK;
}

static int missing_ret_call(void) {
    return error_set(HF_BAD_ARGUMENT, "ret_call is NULL");
}

static int inspect(hf_client *c, const char *name, bool blocks, hf_call **ret_call) {
    int r = hold_check_name(name, "it", 1);
    if (!r)
        r = client_enter(c);
    struct store_op op = {.type = STORE_INSPECT, .name = name};
    return r < 0 ? r : start(c, &op, blocks, ret_call);
}

int hf_inspect_start(hf_client *c, const char *name, hf_call **ret_call) {
    return ret_call ? inspect(c, name, false, ret_call) : missing_ret_call();
}

static int list(hf_client *c, const char *prefix, const char *after, size_t limit, bool blocks,
                hf_call **ret_call) {
    if (limit == 0 || limit > LIST_LIMIT)
        return error_set(HF_BAD_ARGUMENT, "limit is %zu, not 1 to %d", limit, LIST_LIMIT);
    int r = hold_check_name(prefix, "the prefix", 0);
    if (!r)
        r = hold_check_name(after, "the name to continue after", 0);
    if (!r)
        r = client_enter(c);
    struct store_op op = {
        .type = STORE_LIST, .name = prefix ? prefix : "", .after = after, .limit = limit};
    return r < 0 ? r : start(c, &op, blocks, ret_call);
}

int hf_list_start(hf_client *c, const char *prefix, const char *after, size_t limit,
                  hf_call **ret_call) {
    return ret_call ? list(c, prefix, after, limit, false, ret_call) : missing_ret_call();
}

static int break_hold(hf_client *c, const char *name, uint64_t token, const char *reason,
                      bool blocks, hf_call **ret_call) {
    int r = hold_check_name(name, "it", 1);
    if (!r && token == 0)
        r = error_set(HF_BAD_ARGUMENT, "no hold has the token 0");
    size_t reason_size = reason ? strlen(reason) : 0;
    if (!r && reason_size > REASON_MAX_BYTES)
        r = error_set(HF_BAD_ARGUMENT, "the reason has %zu bytes; %d are allowed", reason_size,
                      REASON_MAX_BYTES);
    if (!r)
        r = client_enter(c);
    struct store_op op = {.type = STORE_BREAK, .name = name, .label = reason, .token = token};
    return r < 0 ? r : start(c, &op, blocks, ret_call);
}

int hf_break_start(hf_client *c, const char *name, uint64_t token, const char *reason,
                   hf_call **ret_call) {
    return ret_call ? break_hold(c, name, token, reason, false, ret_call) : missing_ret_call();
}

static int examine(hf_client *c, bool blocks, hf_call **ret_call) {
    int r = client_enter(c);
    struct store_op op = {.type = STORE_EXAMINE, .name = ""};
    return r < 0 ? r : start(c, &op, blocks, ret_call);
}

int hf_examine_start(hf_client *c, hf_call **ret_call) {
    return ret_call ? examine(c, false, ret_call) : missing_ret_call();
}

int hf_pause_start(hf_client *c, hf_call **ret_call) {
    if (!ret_call)
        return missing_ret_call();
    int r = client_enter(c);
    if (r < 0)
        return r;
    hf_call *call = call_new(c, CALL_LOOK);
    if (!call)
        return HF_NO_MEMORY;
    list_append(&c->looks, &call->link);
    return call_hand_out(call, HF_OK, ret_call);
}

/* The blocking form: waits for the call if it was started (r). */
static int finish(int r, hf_call *call, hf_locks **ret_locks) {
    if (r < 0)
        return r;
    r = hf_call_wait(call, HF_FOREVER);
    if (!r && ret_locks)
        *ret_locks = hf_call_take_locks(call);
    hf_call_free(call);
    return r;
}

int hf_inspect(hf_client *c, const char *name, hf_locks **ret_locks) {
    hf_call *call = NULL;
    if (!ret_locks)
        return error_set(HF_BAD_ARGUMENT, "ret_locks is NULL");
    int r = inspect(c, name, true, &call);
    return finish(r, call, ret_locks);
}

int hf_list(hf_client *c, const char *prefix, const char *after, size_t limit,
            hf_locks **ret_locks) {
    hf_call *call = NULL;
    if (!ret_locks)
        return error_set(HF_BAD_ARGUMENT, "ret_locks is NULL");
    int r = list(c, prefix, after, limit, true, &call);
    return finish(r, call, ret_locks);
}

int hf_break(hf_client *c, const char *name, uint64_t token, const char *reason) {
    hf_call *call = NULL;
    int r = break_hold(c, name, token, reason, true, &call);
    return finish(r, call, NULL);
}

int hf_examine(hf_client *c, hf_examination **ret_examination) {
    hf_call *call = NULL;
    if (!ret_examination)
        return error_set(HF_BAD_ARGUMENT, "ret_examination is NULL");
    int r = examine(c, true, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, HF_FOREVER);
    if (!r)
        *ret_examination = hf_call_take_examination(call);
    hf_call_free(call);
    return r;
}
