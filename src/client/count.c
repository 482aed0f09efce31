/* Counters: single operations of the store, without the engine, that are repeated until the store
 * has answered or their time is up.
 *
 * A client submits only one operation on a name at a time, so the store can recognise a repeat by
 * the last number that it has seen (rule 13 of store.h). Other operations on the name wait in a
 * ring behind the first. The first stays first until the store is done with it, even if the program
 * has cancelled or freed the call, or its time is up.
 *
 * Once an operation may have happened, a later refusal does not prove that it did not: perhaps only
 * the repeat was refused. The result is then HF_UNKNOWN. */
#include "client/client.h"

#include "base/error.h"
#include "net/backoff.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MAX_MS = STORE_COUNT_REPEAT_US / 1000 };
#define EXPIRY_MAX_MS (INT64_C(10) * 365 * 24 * 3600 * 1000)

struct count {
    hf_call *call;
    struct map_node by_name; /* in the client's `counts`, if it is the first of its name */
    struct list same_name;   /* a ring: those of the same name, in their order */
    struct heap_node due;    /* in the client's `counts_due`, until the call has its result */
    struct net_backoff backoff;
    int64_t give_up_us;
    bool expects_none, may_have_happened;
    hf_counter answer;
    char *failure; /* particulars of the last failure, or NULL */
    char name[];
};

void count_free(struct count *count) {
    if (count)
        free(count->failure);
    free(count);
}

/* ---- One at a time ---- */

static struct count *first_of(const hf_client *c, const char *name, uint64_t hash) {
    for (struct map_node *node = map_find(&c->counts, hash); node; node = map_find_next(node)) {
        struct count *count = container_of(node, struct count, by_name);
        if (strcmp(count->name, name) == 0)
            return count;
    }
    return NULL;
}

static void submit(struct count *count) {
    hf_call *call = count->call;
    call->op.flags = count->expects_none ? STORE_ABSENT : 0;
    call->op.reason = 0;
    call->op_in_flight = true;
    heap_set(&call->client->counts_due, &count->due, count->give_up_us);
    list_append(&call->client->engine.out, &call->op.link);
}

static void become_first(struct count *count, uint64_t hash) {
    map_add(&count->call->client->counts, &count->by_name, hash);
    submit(count);
}

static void enter(struct count *count) {
    hf_client *c = count->call->client;
    uint64_t hash = map_hash(count->name, strlen(count->name), 0);
    struct count *first = first_of(c, count->name, hash);
    heap_set(&c->counts_due, &count->due, count->give_up_us);
    if (first)
        list_append(&first->same_name, &count->same_name);
    else
        become_first(count, hash);
}

/* The store does not have the operation and will not get it again. */
static void leave(struct count *count) {
    hf_client *c = count->call->client;
    uint64_t hash = map_hash(count->name, strlen(count->name), 0);
    bool was_first = first_of(c, count->name, hash) == count;
    struct list *next = count->same_name.next;
    list_remove(&count->same_name);
    if (!was_first)
        return;
    map_remove(&c->counts, &count->by_name);
    if (next != &count->same_name)
        become_first(container_of(next, struct count, same_name), hash);
}

/* ---- Ending, and trying again ---- */

void count_end(hf_call *call, int result, char *text) {
    heap_remove(&call->client->counts_due, &call->count->due);
    call_complete(call, result, text);
    if (!call->op_in_flight)
        leave(call->count);
}

static void fail(hf_call *call, int result) {
    char *text = call->count->failure;
    call->count->failure = NULL;
    count_end(call, result, call_text_for(call->count->name, text));
}

static int unanswered(const hf_call *call) {
    return call->op_in_flight || call->count->may_have_happened ? HF_UNKNOWN : HF_UNREACHABLE;
}

int64_t count_due_us(const hf_client *c) {
    const struct heap_node *first = heap_first(&c->counts_due);
    return first ? first->at : ENGINE_NEVER;
}

void count_tick(hf_client *c) {
    while (count_due_us(c) <= c->engine.now_us) {
        struct count *count = container_of(heap_first(&c->counts_due), struct count, due);
        if (count->give_up_us <= c->engine.now_us)
            fail(count->call, unanswered(count->call));
        else
            submit(count);
    }
}

static void try_later(struct count *count) {
    hf_client *c = count->call->client;
    int64_t at_us = c->engine.now_us + net_backoff_us(&count->backoff, c->world);
    heap_set(&c->counts_due, &count->due, at_us < count->give_up_us ? at_us : count->give_up_us);
}

/* ADD and CAS answer with the counter as they have left it, so it exists. */
static void take_answer(struct count *count, const struct store_op *op) {
    bool leaves_one = op->kind == STORE_COUNT_ADD ||
                      (op->kind == STORE_COUNT_CAS && !(op->flags & STORE_MISMATCH));
    count->answer = (hf_counter){.size = sizeof(hf_counter)};
    if (!leaves_one && op->flags & STORE_ABSENT)
        return;
    count->answer.exists = 1;
    count->answer.value = op->value;
    count->answer.left_ms = op->life_us < 0 ? -1 : op->life_us / 1000;
}

/* The particulars of a mismatch. */
static char *describe(const struct count *count, const struct store_op *op) {
    if (!(op->flags & STORE_MISMATCH))
        return NULL;
    char *text = count->answer.exists ? error_format("it is %" PRId64, count->answer.value)
                                      : error_format("there is none");
    return call_text_for(count->name, text);
}

void count_op_completed(struct store_op *op) {
    hf_call *call = container_of(op, hf_call, op);
    struct count *count = call->count;
    call->op_in_flight = false;
    free(count->failure);
    count->failure = op->text;
    op->text = NULL;
    if (call->result != HF_PENDING) { /* cancelled meanwhile, or its time was up */
        leave(count);
        call_free_if_left(call);
    } else if (op->outcome == STORE_DONE) {
        take_answer(count, op);
        count_end(call, op->flags & STORE_MISMATCH ? HF_MISMATCH : HF_OK, describe(count, op));
    } else if (op->outcome == STORE_UNKNOWN) {
        count->may_have_happened = true;
        try_later(count);
    } else if (op->reason == HF_UNREACHABLE) {
        try_later(count);
    } else {
        assert(op->outcome == STORE_REFUSED);
        fail(call, count->may_have_happened ? HF_UNKNOWN : op->reason);
    }
}

/* ---- The header's calls ---- */

static int check_options(const hf_count_options *options) {
    if (options->op < HF_COUNT_GET || options->op > HF_COUNT_REMOVE)
        return error_set(HF_BAD_ARGUMENT, "no operation has the number %d", (int)options->op);
    if (options->wait_ms < 1 || options->wait_ms > WAIT_MAX_MS)
        return error_set(HF_BAD_ARGUMENT, "wait_ms is %" PRId64 ", not 1 to %d", options->wait_ms,
                         WAIT_MAX_MS);
    if (options->expiry_ms < 0 || options->expiry_ms > EXPIRY_MAX_MS)
        return error_set(HF_BAD_ARGUMENT, "expiry_ms is %" PRId64 ", not 0 to %" PRId64,
                         options->expiry_ms, EXPIRY_MAX_MS);
    return HF_OK;
}

static int check_supported(hf_client *c) {
    const struct store_driver *driver = c->store->driver;
    if (driver->capabilities & STORE_CAN_COUNT)
        return HF_OK;
    return error_set(HF_UNSUPPORTED, "%s: has no counters%s%s", driver->scheme,
                     driver->lacks ? ": " : "", driver->lacks ? driver->lacks : "");
}

static int check_ret(const hf_counter *ret_counter) {
    if (ret_counter && ret_counter->size < sizeof(*ret_counter))
        return error_set(HF_BAD_ARGUMENT,
                         "ret_counter says that it has %zu bytes; was it initialised?",
                         ret_counter->size);
    return HF_OK;
}

static int prepare(hf_call *call, const char *name, const hf_count_options *options) {
    hf_client *c = call->client;
    size_t size = strlen(name) + 1;
    struct count *count = calloc(1, sizeof(*count) + size);
    if (!count || !heap_reserve(&c->counts_due, c->counts_due.count + 1)) {
        free(count);
        return error_set_text(HF_NO_MEMORY, NULL);
    }
    call->count = count;
    count->call = call;
    count->give_up_us = c->engine.now_us + options->wait_ms * 1000;
    count->expects_none = options->op == HF_COUNT_CAS && options->expect_none;
    list_init(&count->same_name);
    call->op.type = STORE_COUNT;
    call->op.kind = (uint8_t)options->op;
    call->op.seq = ++c->engine.last_seq;
    call->op.name = memcpy(count->name, name, size);
    call->op.number = options->number;
    call->op.expected = options->expected;
    call->op.lease_us = options->expiry_ms * 1000;
    return HF_OK;
}

/* Starts the operation. `blocks`: the caller will wait for it. */
static int start(hf_client *c, const char *name, const hf_count_options *given, bool blocks,
                 hf_call **ret_call) {
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    int r = hold_check_name(name, "it", 1);
    if (!r)
        r = client_read_options(&options, sizeof(options), given);
    if (!r)
        r = check_options(&options);
    if (!r)
        r = client_enter(c);
    if (r < 0)
        return r;
    hf_call *call = call_new(c, CALL_COUNT);
    if (!call)
        return HF_NO_MEMORY;
    r = check_supported(c);
    if (!r && c->store_blocks && !blocks)
        r = client_start_standby(c); /* it submits the operation */
    if (!r)
        r = prepare(call, name, &options);
    if (!r) {
        list_append(&c->looks, &call->link);
        enter(call->count);
    }
    if (r < 0 || !blocks)
        return call_hand_out(call, r, ret_call);
    client_pump(c);
    *ret_call = call;
    client_unlock(c);
    return HF_OK;
}

int hf_count_start(hf_client *c, const char *name, const hf_count_options *options,
                   hf_call **ret_call) {
    if (!ret_call)
        return error_set(HF_BAD_ARGUMENT, "ret_call is NULL");
    return start(c, name, options, false, ret_call);
}

static void give_answer(const hf_call *call, hf_counter *ret_counter) {
    size_t size = ret_counter->size; /* a newer program's may be larger */
    *ret_counter = call->count->answer;
    ret_counter->size = size;
}

static bool has_answer(const hf_call *call) {
    return call->result == HF_OK || call->result == HF_MISMATCH;
}

int hf_call_counter(hf_call *call, hf_counter *ret_counter) {
    if (!call || !ret_counter)
        return error_set(HF_BAD_ARGUMENT, "the call or ret_counter is NULL");
    int r = check_ret(ret_counter);
    if (r < 0)
        return r;
    if (!client_lock(call->client))
        return error_set_text(HF_FORKED, NULL);
    if (call->type != CALL_COUNT)
        r = error_set(HF_BAD_ARGUMENT, "the call is not one of hf_count_start");
    else if (has_answer(call))
        give_answer(call, ret_counter);
    else
        r = call->result;
    client_unlock(call->client);
    return r;
}

int hf_count(hf_client *c, const char *name, const hf_count_options *options,
             hf_counter *ret_counter) {
    hf_call *call = NULL;
    int r = check_ret(ret_counter);
    if (!r)
        r = start(c, name, options, true, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, HF_FOREVER);
    if (ret_counter && has_answer(call))
        give_answer(call, ret_counter);
    hf_call_free(call);
    return r;
}
