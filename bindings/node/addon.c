/* The part of the Node package that is not JavaScript: the calls of the library, over Node-API.
 *
 * Everything happens on the thread of the event loop. Requests are only started here; the library's
 * one descriptor (hf_fd) is watched by the loop, and when it is readable, on_readable does the work
 * that is due and hands the results to JavaScript. So no thread of Node waits for a lock, and each
 * worker thread has its own clients on its own loop. There is no other state.
 *
 * A function that fails returns the library's error number, and lastError() returns its text. What
 * is started gets a callback, which is called once, with (number, text, value), never before the
 * function has returned. index.js makes promises and exceptions of this. */
#define NAPI_VERSION 8
#include <assert.h>
#include <holdfast/holdfast.h>
#include <node_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { NAMES_MOST = 64, NAME_SIZE = 260, TEXT_SIZE = 4096, PAGE = 1000 };

/* ---- Values ---- */

/* Node-API fails only if it is used wrongly, or a worker is being terminated: then nobody is left
 * who could be notified. */
#define MUST(call)                 \
    do {                           \
        napi_status status = call; \
        (void)status;              \
    } while (0)

static napi_value new_int(napi_env env, int64_t number) {
    napi_value value = NULL;
    MUST(napi_create_int64(env, number, &value));
    return value;
}

static napi_value new_bigint(napi_env env, int64_t number) {
    napi_value value = NULL;
    MUST(napi_create_bigint_int64(env, number, &value));
    return value;
}

static napi_value new_text(napi_env env, const char *text) {
    napi_value value = NULL;
    MUST(napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value));
    return value;
}

static napi_value new_bool(napi_env env, bool is_true) {
    napi_value value = NULL;
    MUST(napi_get_boolean(env, is_true, &value));
    return value;
}

static napi_value undefined(napi_env env) {
    napi_value value = NULL;
    MUST(napi_get_undefined(env, &value));
    return value;
}

static napi_value new_object(napi_env env) {
    napi_value value = NULL;
    MUST(napi_create_object(env, &value));
    return value;
}

static void set(napi_env env, napi_value object, const char *key, napi_value value) {
    MUST(napi_set_named_property(env, object, key, value));
}

static int64_t to_int(napi_env env, napi_value value) {
    int64_t number = 0;
    MUST(napi_get_value_int64(env, value, &number));
    return number;
}

static int64_t to_int_of_bigint(napi_env env, napi_value value) {
    int64_t number = 0;
    bool lossless;
    MUST(napi_get_value_bigint_int64(env, value, &number, &lossless));
    return number;
}

/* The text, cut to the buffer; NULL if it is no text. */
static const char *to_text(napi_env env, napi_value value, char *buffer, size_t size) {
    napi_valuetype type = napi_undefined;
    MUST(napi_typeof(env, value, &type));
    size_t length;
    return type == napi_string &&
                   napi_get_value_string_utf8(env, value, buffer, size, &length) == napi_ok
               ? buffer
               : NULL;
}

/* A text of any length, for the caller to free; NULL if it is no text, or there is no memory. */
static char *to_long_text(napi_env env, napi_value value) {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return NULL;
    char *text = malloc(length + 1);
    if (text)
        MUST(napi_get_value_string_utf8(env, value, text, length + 1, &length));
    return text;
}

static void *to_pointer(napi_env env, napi_value value) {
    void *pointer = NULL;
    MUST(napi_get_value_external(env, value, &pointer));
    return pointer;
}

static napi_value field(napi_env env, napi_value array, uint32_t index) {
    napi_value value = NULL;
    MUST(napi_get_element(env, array, index, &value));
    return value;
}

/* ---- Clients ---- */

struct pending;

struct client {
    napi_env env;
    hf_client *client;
    uv_poll_t *poll;
    napi_async_context context;
    napi_async_cleanup_hook_handle cleanup;
    struct pending *first; /* calls that have not completed */
    bool is_closing;       /* nothing is handed to JavaScript any more */
    int users;             /* the handle in JavaScript, the loop, and every hold and call */
};

struct hold {
    struct client *client;
    hf_hold *hold;
    napi_ref on_lost; /* weak once it is granted: the hold in JavaScript keeps the function */
};

enum kind { ACQUIRE, PLAIN, COUNT, LOOK };

/* A call that was started. It is freed when it has completed and JavaScript has forgotten it. */
struct pending {
    struct client *client;
    struct pending *next, **self; /* in the client's list */
    hf_call *call;                /* NULL: it has completed */
    enum kind kind;
    struct hold *hold; /* ACQUIRE: the future one */
    napi_ref callback;
    int users;
};

static void client_release(struct client *c) {
    if (--c->users == 0)
        free(c);
}

static void hold_free(struct hold *hold) {
    if (!hold)
        return;
    hf_hold_free(hold->hold);
    if (hold->on_lost)
        MUST(napi_delete_reference(hold->client->env, hold->on_lost));
    client_release(hold->client);
    free(hold);
}

static void finalize_hold(napi_env env, void *data, void *hint) {
    (void)env, (void)hint;
    hold_free(data);
}

static void finalize_client(napi_env env, void *data, void *hint) {
    (void)env, (void)hint;
    client_release(data);
}

/* A handle for JavaScript. A worker that is being terminated gets none: it is finalized at once. */
static napi_value new_external(napi_env env, void *data, napi_finalize finalize) {
    napi_value value;
    if (napi_create_external(env, data, finalize, NULL, &value) == napi_ok)
        return value;
    finalize(env, data, NULL);
    return undefined(env);
}

/* Runs in on_readable, or on another thread while the client is being closed. */
static void on_lost(hf_hold *lost, void *arg) {
    (void)lost;
    struct hold *hold = arg;
    napi_env env = hold->client->env;
    napi_value function = NULL, result;
    if (__atomic_load_n(&hold->client->is_closing, __ATOMIC_ACQUIRE))
        return;
    MUST(napi_get_reference_value(env, hold->on_lost, &function));
    if (!function)
        return; /* nobody has the hold any more */
    napi_value text = new_text(env, hf_last_error());
    MUST(napi_call_function(env, undefined(env), function, 1, &text, &result));
}

/* ---- What a call brings ---- */

static napi_value party_object(napi_env env, const hf_party *party) {
    napi_value object = new_object(env);
    set(env, object, "owner", new_text(env, party->owner));
    set(env, object, "host", new_text(env, party->host));
    set(env, object, "command", new_text(env, party->command));
    set(env, object, "label", new_text(env, party->label));
    set(env, object, "pid", new_int(env, party->pid));
    set(env, object, "token", new_int(env, (int64_t)party->token));
    set(env, object, "weight", new_int(env, party->weight));
    set(env, object, "since", new_int(env, party->since_ms));
    set(env, object, "left", new_int(env, party->left_ms));
    return object;
}

static napi_value party_array(napi_env env, const hf_party *const *parties, size_t count) {
    napi_value array = NULL;
    MUST(napi_create_array_with_length(env, count, &array));
    for (size_t i = 0; i < count; i++)
        MUST(napi_set_element(env, array, (uint32_t)i, party_object(env, parties[i])));
    return array;
}

static napi_value lock_object(napi_env env, const hf_lock_info *info) {
    static const char *const kinds[] = {"", "exclusive", "shared", "permits"};
    napi_value object = new_object(env);
    set(env, object, "name", new_text(env, info->name));
    set(env, object, "kind", new_text(env, kinds[info->kind]));
    set(env, object, "capacity", new_int(env, info->capacity));
    set(env, object, "token", new_int(env, (int64_t)info->token));
    set(env, object, "holders", party_array(env, info->holders, info->holder_count));
    set(env, object, "waiters", party_array(env, info->waiters, info->waiter_count));
    set(env, object, "brokenToken", new_int(env, (int64_t)info->broken_token));
    set(env, object, "brokenBy", new_text(env, info->broken_by));
    set(env, object, "brokenReason", new_text(env, info->broken_reason));
    return object;
}

static napi_value locks_array(napi_env env, hf_call *call) {
    hf_locks *locks = hf_call_take_locks(call);
    size_t count = hf_locks_count(locks);
    napi_value array = NULL;
    MUST(napi_create_array_with_length(env, count, &array));
    for (size_t i = 0; i < count; i++)
        MUST(napi_set_element(env, array, (uint32_t)i, lock_object(env, hf_locks_at(locks, i))));
    hf_locks_free(locks);
    return array;
}

static napi_value counter_object(napi_env env, hf_call *call) {
    hf_counter counter = HF_COUNTER_INIT;
    hf_call_counter(call, &counter);
    napi_value object = new_object(env);
    set(env, object, "exists", new_bool(env, counter.exists));
    set(env, object, "value", new_bigint(env, counter.value));
    set(env, object, "left", new_int(env, counter.left_ms));
    return object;
}

static napi_value hold_external(napi_env env, struct pending *p) {
    struct hold *hold = p->hold;
    p->hold = NULL;
    hold->hold = hf_call_take_hold(p->call);
    MUST(napi_reference_unref(env, hold->on_lost, NULL));
    return new_external(env, hold, finalize_hold);
}

static napi_value value_of(napi_env env, struct pending *p, int status) {
    if (p->kind == COUNT && (status == HF_OK || status == HF_MISMATCH))
        return counter_object(env, p->call);
    if (status != HF_OK)
        return undefined(env);
    switch (p->kind) {
    case ACQUIRE:
        return hold_external(env, p);
    case LOOK:
        return locks_array(env, p->call);
    default:
        return undefined(env);
    }
}

/* ---- Calls ---- */

static void pending_release(struct pending *p) {
    if (--p->users > 0)
        return;
    client_release(p->client);
    free(p);
}

static void finalize_pending(napi_env env, void *data, void *hint) {
    (void)env, (void)hint;
    pending_release(data);
}

/* While something is pending, the loop stays alive; a lock that is only held does not keep it. */
static void unlink_pending(struct pending *p) {
    struct client *c = p->client;
    *p->self = p->next;
    if (p->next)
        p->next->self = p->self;
    if (!c->first && c->poll)
        uv_unref((uv_handle_t *)c->poll);
}

/* Hands the result to JavaScript. */
static void complete(struct pending *p) {
    napi_env env = p->client->env;
    int status = hf_call_status(p->call);
    napi_value callback = NULL, result,
               values[] = {new_int(env, status), new_text(env, hf_call_error(p->call)),
                           value_of(env, p, status)};
    unlink_pending(p);
    MUST(napi_get_reference_value(env, p->callback, &callback));
    MUST(napi_delete_reference(env, p->callback));
    hf_call_free(p->call);
    p->call = NULL;
    hold_free(p->hold);
    MUST(napi_call_function(env, undefined(env), callback, 3, values, &result));
    pending_release(p);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    struct client *c = poll->data;
    napi_handle_scope scope;
    napi_callback_scope callbacks; /* promises go on when it is closed */
    hf_call *call;
    if (napi_open_handle_scope(c->env, &scope) != napi_ok)
        return;
    c->users++;
    if (napi_open_callback_scope(c->env, undefined(c->env), c->context, &callbacks) == napi_ok) {
        hf_process(c->client);
        while (!c->is_closing && (call = hf_call_next(c->client)))
            complete(hf_call_data(call));
        MUST(napi_close_callback_scope(c->env, callbacks));
    }
    MUST(napi_close_handle_scope(c->env, scope));
    client_release(c);
}

static struct pending *pending_new(struct client *c, enum kind kind, napi_value callback) {
    struct pending *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->client = c;
    p->kind = kind;
    p->users = 1;
    c->users++;
    MUST(napi_create_reference(c->env, callback, 1, &p->callback));
    return p;
}

static void pending_drop(struct pending *p) {
    MUST(napi_delete_reference(p->client->env, p->callback));
    hold_free(p->hold);
    pending_release(p);
}

/* Follows a call that was started, or drops it. Returns what JavaScript gets: a handle to cancel it
 * with, or the number of the error. */
static napi_value follow(struct pending *p, int r) {
    struct client *c = p->client;
    napi_env env = c->env;
    if (r == HF_OK)
        r = c->is_closing ? HF_CLOSED : hf_call_queue(p->call, p);
    if (r < 0) {
        hf_call_free(p->call);
        pending_drop(p);
        return new_int(env, r);
    }
    p->next = c->first;
    p->self = &c->first;
    if (p->next)
        p->next->self = &p->next;
    c->first = p;
    uv_ref((uv_handle_t *)c->poll);
    p->users++;
    return new_external(env, p, finalize_pending);
}

/* ---- Opening and closing ---- */

static void on_poll_closed(uv_handle_t *handle) {
    struct client *c = handle->data;
    MUST(napi_async_destroy(c->env, c->context));
    if (c->cleanup)
        MUST(napi_remove_async_cleanup_hook(c->cleanup));
    client_release(c);
    free(handle);
}

/* The loop no longer knows the client. */
static void stop_watching(struct client *c) {
    uv_poll_t *poll = c->poll;
    c->poll = NULL;
    uv_close((uv_handle_t *)poll, on_poll_closed);
}

/* Nobody is left who waits for them. */
static void drop_calls(struct client *c) {
    while (c->first) {
        struct pending *p = c->first;
        unlink_pending(p);
        hf_call_free(p->call);
        p->call = NULL;
        pending_drop(p);
    }
}

/* Ends everything at once; waits for the store, for a second at most. */
static void end_client(struct client *c) {
    if (!c->poll)
        return; /* it is being closed, or was */
    __atomic_store_n(&c->is_closing, true, __ATOMIC_RELEASE);
    stop_watching(c);
    hf_client_close(c->client);
    c->client = NULL;
    drop_calls(c);
}

/* The environment ends, for example that of a worker that is terminated. Node waits until the loop
 * has forgotten the client, which on_poll_closed reports. */
static void clean_up(napi_async_cleanup_hook_handle handle, void *arg) {
    (void)handle;
    end_client(arg);
}

/* end(client): for a program that exits. */
static napi_value client_end(napi_env env, napi_callback_info info) {
    napi_value value;
    size_t count = 1;
    MUST(napi_get_cb_info(env, info, &count, &value, NULL, NULL));
    end_client(to_pointer(env, value));
    return undefined(env);
}

struct closing {
    struct client *client;
    hf_client *library;
    napi_async_work work;
    napi_ref callback;
};

static void close_elsewhere(napi_env env, void *data) {
    (void)env;
    struct closing *closing = data;
    hf_client_close(closing->library);
}

static void after_close(napi_env env, napi_status status, void *data) {
    (void)status;
    struct closing *closing = data;
    napi_value callback = NULL, result;
    while (closing->client->first)
        complete(closing->client->first);
    client_release(closing->client);
    MUST(napi_get_reference_value(env, closing->callback, &callback));
    MUST(napi_delete_reference(env, closing->callback));
    MUST(napi_delete_async_work(env, closing->work));
    free(closing);
    MUST(napi_call_function(env, undefined(env), callback, 0, NULL, &result));
}

/* close(client, callback): waits for the store on another thread. */
static napi_value client_close(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    struct closing *closing = calloc(1, sizeof(*closing));
    if (!c->client || !closing) {
        free(closing);
        return new_int(env, c->client ? HF_NO_MEMORY : HF_CLOSED);
    }
    *closing = (struct closing){.client = c, .library = c->client};
    c->users++;
    __atomic_store_n(&c->is_closing, true, __ATOMIC_RELEASE);
    c->client = NULL;
    stop_watching(c);
    MUST(napi_create_reference(env, values[1], 1, &closing->callback));
    MUST(napi_create_async_work(env, NULL, new_text(env, "holdfast close"), close_elsewhere,
                                after_close, closing, &closing->work));
    MUST(napi_queue_async_work(env, closing->work));
    return new_int(env, HF_OK);
}

static int watch(struct client *c) {
    uv_loop_t *loop;
    int fd = hf_fd(c->client);
    if (fd < 0)
        return fd;
    c->poll = calloc(1, sizeof(*c->poll));
    if (!c->poll)
        return HF_NO_MEMORY;
    if (napi_get_uv_event_loop(c->env, &loop) != napi_ok || uv_poll_init(loop, c->poll, fd) < 0) {
        free(c->poll);
        c->poll = NULL;
        return HF_SYSTEM;
    }
    c->poll->data = c;
    c->users++;
    uv_poll_start(c->poll, UV_READABLE, on_readable);
    uv_unref((uv_handle_t *)c->poll);
    return HF_OK;
}

/* open(url or undefined, maxLease, waitLease, storeWait, tokenFloor, command): a handle, or the
 * number of the error. */
static napi_value client_open(napi_env env, napi_callback_info info) {
    napi_value values[6];
    size_t count = 6;
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    options.max_lease_ms = to_int(env, values[1]);
    options.wait_lease_ms = to_int(env, values[2]);
    options.store_wait_ms = to_int(env, values[3]);
    options.token_floor = (uint64_t)to_int(env, values[4]);
    struct client *c = calloc(1, sizeof(*c));
    if (!c)
        return new_int(env, HF_NO_MEMORY);
    c->env = env;
    c->users = 1;
    char *url = to_long_text(env, values[0]), *command = to_long_text(env, values[5]);
    options.command = command;
    int r = hf_client_open(url, &options, &c->client);
    free(url);
    free(command);
    if (!r)
        r = watch(c);
    if (r < 0) {
        hf_client_close(c->client);
        client_release(c);
        return new_int(env, r);
    }
    MUST(napi_async_init(env, NULL, new_text(env, "holdfast"), &c->context));
    MUST(napi_add_async_cleanup_hook(env, clean_up, c, &c->cleanup));
    return new_external(env, c, finalize_client);
}

/* ---- What is started ---- */

struct wants {
    hf_want wants[NAMES_MOST];
    const hf_want *list[NAMES_MOST];
    char names[NAMES_MOST][NAME_SIZE];
    size_t count;
};

/* An array of 1 to NAMES_MOST of [name, kind, permits, capacity]. */
static void read_wants(napi_env env, napi_value array, struct wants *ret) {
    uint32_t count = 0;
    MUST(napi_get_array_length(env, array, &count));
    assert(count >= 1 && count <= NAMES_MOST);
    ret->count = count;
    for (uint32_t i = 0; i < count; i++) {
        napi_value want = field(env, array, i);
        ret->wants[i] = (hf_want)HF_WANT_INIT;
        ret->wants[i].name = to_text(env, field(env, want, 0), ret->names[i], NAME_SIZE);
        ret->wants[i].kind = (hf_kind)to_int(env, field(env, want, 1));
        ret->wants[i].permits = (uint32_t)to_int(env, field(env, want, 2));
        ret->wants[i].capacity = (uint32_t)to_int(env, field(env, want, 3));
        ret->list[i] = &ret->wants[i];
    }
}

static int start_acquire(struct client *c, const struct wants *wants, hf_acquire_options *options,
                         hf_call **ret_call) {
    if (wants->count > 1)
        return hf_acquire_all_start(c->client, wants->list, wants->count, options, ret_call);
    options->kind = wants->wants[0].kind;
    options->permits = wants->wants[0].permits;
    options->capacity = wants->wants[0].capacity;
    return hf_acquire_start(c->client, wants->wants[0].name, options, ret_call);
}

/* acquire(client, wants, wait, ttl, minLeft, flags, ownerKey, label, onLost, callback) */
static napi_value acquire(napi_env env, napi_callback_info info) {
    napi_value values[10];
    size_t count = 10;
    char label[TEXT_SIZE];
    struct wants wants;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    read_wants(env, values[1], &wants);
    struct pending *p = pending_new(c, ACQUIRE, values[9]);
    struct hold *hold = calloc(1, sizeof(*hold));
    if (!p || !hold) {
        if (p)
            pending_drop(p);
        free(hold);
        return new_int(env, HF_NO_MEMORY);
    }
    c->users++;
    p->hold = hold;
    hold->client = c;
    MUST(napi_create_reference(env, values[8], 1, &hold->on_lost));
    options.wait_ms = to_int(env, values[2]);
    options.lease_ms = to_int(env, values[3]);
    options.min_left_ms = to_int(env, values[4]);
    options.flags = (unsigned)to_int(env, values[5]);
    options.owner_key = (uint64_t)to_int(env, values[6]);
    options.label = to_text(env, values[7], label, sizeof(label));
    options.on_lost = on_lost;
    options.on_lost_arg = hold;
    return follow(p, start_acquire(c, &wants, &options, &p->call));
}

/* renew(hold, ttl, callback), release(hold, callback) */
static napi_value renew(napi_env env, napi_callback_info info) {
    napi_value values[3];
    size_t count = 3;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct hold *hold = to_pointer(env, values[0]);
    struct pending *p = pending_new(hold->client, PLAIN, values[2]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(p, hf_renew_start(hold->hold, to_int(env, values[1]), &p->call));
}

static napi_value release(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct hold *hold = to_pointer(env, values[0]);
    struct pending *p = pending_new(hold->client, PLAIN, values[1]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(p, hf_release_start(hold->hold, &p->call));
}

/* count(client, name, op, number, expected or undefined, expiry, wait, callback) */
static napi_value count_once(napi_env env, napi_callback_info info) {
    napi_value values[8];
    size_t count = 8;
    char name[NAME_SIZE];
    napi_valuetype expected = napi_undefined;
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    MUST(napi_typeof(env, values[4], &expected));
    options.op = (hf_count_op)to_int(env, values[2]);
    options.number = to_int_of_bigint(env, values[3]);
    options.expect_none = expected != napi_bigint;
    options.expected = options.expect_none ? 0 : to_int_of_bigint(env, values[4]);
    options.expiry_ms = to_int(env, values[5]);
    options.wait_ms = to_int(env, values[6]);
    struct pending *p = pending_new(c, COUNT, values[7]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(p, hf_count_start(c->client, to_text(env, values[1], name, sizeof(name)),
                                    &options, &p->call));
}

/* inspect(client, name, callback) */
static napi_value inspect(napi_env env, napi_callback_info info) {
    napi_value values[3];
    size_t count = 3;
    char name[NAME_SIZE];
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    struct pending *p = pending_new(c, LOOK, values[2]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(
        p, hf_inspect_start(c->client, to_text(env, values[1], name, sizeof(name)), &p->call));
}

/* list(client, prefix, after or undefined, callback): a page of it */
static napi_value list(napi_env env, napi_callback_info info) {
    napi_value values[4];
    size_t count = 4;
    char prefix[NAME_SIZE], after[NAME_SIZE];
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    struct pending *p = pending_new(c, LOOK, values[3]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(p, hf_list_start(c->client, to_text(env, values[1], prefix, sizeof(prefix)),
                                   to_text(env, values[2], after, sizeof(after)), PAGE, &p->call));
}

/* breakHold(client, name, token, reason or undefined, callback) */
static napi_value break_hold(napi_env env, napi_callback_info info) {
    napi_value values[5];
    size_t count = 5;
    char name[NAME_SIZE], reason[TEXT_SIZE];
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct client *c = to_pointer(env, values[0]);
    struct pending *p = pending_new(c, PLAIN, values[4]);
    if (!p)
        return new_int(env, HF_NO_MEMORY);
    return follow(p, hf_break_start(c->client, to_text(env, values[1], name, sizeof(name)),
                                    (uint64_t)to_int(env, values[2]),
                                    to_text(env, values[3], reason, sizeof(reason)), &p->call));
}

/* cancel(call): its callback is still called. */
static napi_value cancel(napi_env env, napi_callback_info info) {
    napi_value value;
    size_t count = 1;
    MUST(napi_get_cb_info(env, info, &count, &value, NULL, NULL));
    struct pending *p = to_pointer(env, value);
    if (p->call)
        hf_call_cancel(p->call);
    return undefined(env);
}

/* ---- What is known at once ---- */

/* check(hold, need): 0 or the number of the error; left(hold) */
static napi_value check(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct hold *hold = to_pointer(env, values[0]);
    return new_int(env, hf_check(hold->hold, to_int(env, values[1])));
}

static napi_value left(napi_env env, napi_callback_info info) {
    napi_value value;
    size_t count = 1;
    MUST(napi_get_cb_info(env, info, &count, &value, NULL, NULL));
    return new_int(env, hf_hold_left_ms(((struct hold *)to_pointer(env, value))->hold));
}

/* token(hold, index) */
static napi_value token(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct hold *hold = to_pointer(env, values[0]);
    size_t index = (size_t)to_int(env, values[1]);
    return new_int(env, (int64_t)hf_hold_token_at(hold->hold, index));
}

/* fenceToken(hold): the token if it fences, or the number of the error, which is negative */
static napi_value fence_token(napi_env env, napi_callback_info info) {
    napi_value value;
    size_t count = 1;
    uint64_t found = 0;
    MUST(napi_get_cb_info(env, info, &count, &value, NULL, NULL));
    int r = hf_fence_token(((struct hold *)to_pointer(env, value))->hold, &found);
    return new_int(env, r < 0 ? r : (int64_t)found);
}

/* fenceSql(hold, dialect): the statement, or the number of the error */
static napi_value fence_sql(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    static const size_t size = (size_t)HF_FENCE_SQL_SIZE * NAMES_MOST;
    MUST(napi_get_cb_info(env, info, &count, values, NULL, NULL));
    struct hold *hold = to_pointer(env, values[0]);
    char *statement = malloc(size);
    if (!statement)
        return new_int(env, HF_NO_MEMORY);
    int r = hf_fence_sql(hold->hold, (hf_dialect)to_int(env, values[1]), statement, size);
    napi_value result = r < 0 ? new_int(env, r) : new_text(env, statement);
    free(statement);
    return result;
}

static napi_value last_error(napi_env env, napi_callback_info info) {
    (void)info;
    return new_text(env, hf_last_error());
}

static napi_value version(napi_env env, napi_callback_info info) {
    (void)info;
    return new_text(env, hf_version());
}

/* ---- The module ---- */

/* {"-1": ["BUSY", "the lock is held by somebody else"], ...} */
static napi_value errors(napi_env env) {
    napi_value object = new_object(env), pair;
#define ADD(name, number, sentence)                                \
    MUST(napi_create_array_with_length(env, 2, &pair));            \
    MUST(napi_set_element(env, pair, 0, new_text(env, #name)));    \
    MUST(napi_set_element(env, pair, 1, new_text(env, sentence))); \
    MUST(napi_set_property(env, object, new_int(env, number), pair));
    HF_ERROR_MAP(ADD)
#undef ADD
    return object;
}

NAPI_MODULE_INIT() {
    static const struct {
        const char *name;
        napi_callback call;
    } functions[] = {
        {"open", client_open},
        {"end", client_end},
        {"close", client_close},
        {"acquire", acquire},
        {"renew", renew},
        {"release", release},
        {"count", count_once},
        {"inspect", inspect},
        {"list", list},
        {"breakHold", break_hold},
        {"cancel", cancel},
        {"check", check},
        {"left", left},
        {"token", token},
        {"fenceToken", fence_token},
        {"fenceSql", fence_sql},
        {"lastError", last_error},
        {"version", version},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        napi_value function = NULL;
        MUST(napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].call, NULL,
                                  &function));
        set(env, exports, functions[i].name, function);
    }
    set(env, exports, "errors", errors(env));
    set(env, exports, "fenceRedis", new_text(env, HF_FENCE_REDIS));
    return exports;
}
