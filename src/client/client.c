/* Opening and closing a client, and detecting a forked child. */
#include "client/client.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/url.h"
#include "world/epoch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_URL "sqlite:"

enum { CLOSE_PATIENCE_US = 1000000, HOST_NAME_SIZE = 256 };

/* ---- Entering and leaving ---- */

static bool is_forked(const hf_client *c) {
    return c->epoch != world_epoch();
}

bool client_lock(hf_client *c) {
    if (is_forked(c))
        return false;
    pthread_mutex_lock(&c->mutex);
    return true;
}

void client_unlock(hf_client *c) {
    pthread_mutex_unlock(&c->mutex);
}

int client_enter(hf_client *c) {
    if (!c)
        return error_set(HF_BAD_ARGUMENT, "the client is NULL");
    if (!client_lock(c))
        return error_set_text(HF_FORKED, NULL);
    if (c->closed) {
        client_unlock(c);
        return error_set_text(HF_CLOSED, NULL);
    }
    client_update_time(c);
    return HF_OK;
}

void client_ref(hf_client *c) {
    c->refs++;
}

/* In a forked child: keeps what is left of the parent's client reachable, so that leak checkers do
 * not report it. It cannot be freed, because a thread of the parent may have been in the middle of
 * changing the engine or the store. */
static void leave_behind(hf_client *c) {
    static _Atomic(hf_client *) left;
    c->left_behind = atomic_exchange(&left, c);
}

void client_unref(hf_client *c) {
    bool forked = is_forked(c);
    bool last = --c->refs == 0;
    if (!forked)
        pthread_mutex_unlock(&c->mutex);
    if (!last)
        return;
    if (forked) {
        leave_behind(c);
        return;
    }
    pthread_cond_destroy(&c->standby_cond);
    pthread_cond_destroy(&c->guard_cond);
    pthread_cond_destroy(&c->dispatcher_cond);
    pthread_cond_destroy(&c->ran);
    pthread_mutex_destroy(&c->mutex);
    free(c->identity);
    free(c);
}

/* A program built with an older header has a smaller struct: the fields that it lacks get their
 * defaults. One built with a newer header may have a larger struct, if it does not use the new
 * fields. */
int client_read_options(void *own, size_t own_size, const void *given) {
    enum { LEAST = 2 * sizeof(size_t), MOST = 4096 };
    if (!given)
        return HF_OK;
    size_t size;
    memcpy(&size, given, sizeof(size));
    if (size < LEAST || size > MOST)
        return error_set(HF_BAD_ARGUMENT,
                         "an option struct says that it has %zu bytes; was it initialised?", size);
    const char *bytes = given;
    for (size_t i = own_size; i < size; i++) {
        if (bytes[i])
            return error_set(HF_BAD_ARGUMENT, "an option was set that this version of the library "
                                              "does not have");
    }
    memcpy(own, given, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof(own_size));
    return HF_OK;
}

/* ---- Notifications from the store ---- */

static void completed(struct store_host *host, struct store_op *op) {
    hf_client *c = container_of(host, hf_client, host);
    list_append(&c->completed, &op->link);
}

static void wake(struct store_host *host, uint64_t seq) {
    hf_client *c = container_of(host, hf_client, host);
    client_from_store(c);
    engine_wake(&c->engine, seq);
    client_to_store(c);
}

static void gone(struct store_host *host, uint64_t seq) {
    hf_client *c = container_of(host, hf_client, host);
    client_from_store(c);
    client_take_completed(c); /* the grant that this ends may be among them */
    engine_gone(&c->engine, seq);
    client_to_store(c);
}

static void check(struct store_host *host, uint64_t seq) {
    hf_client *c = container_of(host, hf_client, host);
    client_from_store(c);
    client_take_completed(c);
    engine_check(&c->engine, seq);
    client_to_store(c);
}

static void forgot(struct store_host *host, store_concerns *concerns, void *context) {
    hf_client *c = container_of(host, hf_client, host);
    client_from_store(c);
    client_take_completed(c);
    engine_forgot(&c->engine, concerns, context);
    client_to_store(c);
}

static void changed(struct store_host *host, const struct store_change *change) {
    hf_client *c = container_of(host, hf_client, host);
    client_from_store(c);
    watch_changed(c, change);
    client_to_store(c);
}

static void timer_due(struct world_timer *timer) {
    hf_client *c = container_of(timer, hf_client, timer);
    client_from_store(c);
    client_update_time(c);
    client_tick(c);
    client_to_store(c);
}

/* ---- Opening ---- */

static int check_options(const hf_client_options *options) {
    int64_t most_ms = INT64_C(24) * 3600 * 1000;
    if (options->max_lease_ms < 1 || options->max_lease_ms > most_ms)
        return error_set(HF_BAD_ARGUMENT, "max_lease_ms is %" PRId64 ", not 1 to %" PRId64,
                         options->max_lease_ms, most_ms);
    if (options->wait_lease_ms < 1 || options->wait_lease_ms > most_ms)
        return error_set(HF_BAD_ARGUMENT, "wait_lease_ms is %" PRId64 ", not 1 to %" PRId64,
                         options->wait_lease_ms, most_ms);
    if (options->drift_ppm > 500000)
        return error_set(HF_BAD_ARGUMENT, "drift_ppm is %" PRIu32 ", not 0 to 500000",
                         options->drift_ppm);
    if (options->guard_pid < 0 && options->guard_pid != HF_LEASE_ONLY)
        return error_set(HF_BAD_ARGUMENT, "guard_pid is %" PRId64, options->guard_pid);
    if (options->store_wait_ms < HF_FOREVER || options->store_wait_ms > most_ms)
        return error_set(HF_BAD_ARGUMENT,
                         "store_wait_ms is %" PRId64 ", not HF_FOREVER or 0 to %" PRId64,
                         options->store_wait_ms, most_ms);
    if (options->token_floor >= STORE_TOKEN_LIMIT)
        return error_set(HF_BAD_ARGUMENT, "token_floor is not below 2^53");
    return HF_OK;
}

static int set_identity(hf_client *c, const hf_client_options *options) {
    const char *command = options->command ? options->command : program_invocation_short_name;
    size_t command_size = strlen(command) + 1;
    c->identity = malloc(HOST_NAME_SIZE + command_size);
    if (!c->identity)
        return error_set_text(HF_NO_MEMORY, NULL);
    if (gethostname(c->identity, HOST_NAME_SIZE) < 0)
        strcpy(c->identity, "?");
    c->identity[HOST_NAME_SIZE - 1] = 0;
    struct store_identity *who = &c->host.identity;
    who->host = c->identity;
    who->command = memcpy(c->identity + HOST_NAME_SIZE, command, command_size);
    who->pid = getpid();
    who->guard_pid = options->guard_pid;
    world_random(c->world, who->id, sizeof(who->id));
    return HF_OK;
}

static void init(hf_client *c, struct world *world, const hf_client_options *options) {
    c->refs = 1;
    c->epoch = world_epoch();
    c->world = world;
    c->loop_fd = c->signal_fd = -1;
    c->mutex = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; /* held for a moment only */
    client_init_cond(&c->standby_cond);
    client_init_cond(&c->guard_cond);
    client_init_cond(&c->dispatcher_cond);
    client_init_cond(&c->ran);
    list_init(&c->completed);
    list_init(&c->calls);
    list_init(&c->looks);
    map_init(&c->counts);
    list_init(&c->blocked);
    list_init(&c->notices);
    list_init(&c->done);
    world_bell_add(world, &c->bell, NULL);
    c->host.world = world;
    c->on_event = options->on_event;
    c->on_event_arg = options->on_event_arg;
    c->host.wait_lease_us = options->wait_lease_ms * 1000;
    c->host.max_lease_us = options->max_lease_ms * 1000;
    c->host.drift_ppm = options->drift_ppm;
    c->host.token_floor = options->token_floor;
    c->host.completed = completed;
    c->host.wake = wake;
    c->host.gone = gone;
    c->host.check = check;
    c->host.forgot = forgot;
    c->host.changed = changed;
    list_init(&c->watch_op.link);
    struct engine_config config = {
        .wait_lease_us = c->host.wait_lease_us,
        .max_lease_us = c->host.max_lease_us,
        .store_wait_us =
            options->store_wait_ms == HF_FOREVER ? ENGINE_NEVER : options->store_wait_ms * 1000,
        .drift_ppm = options->drift_ppm,
    };
    world_random(world, &config.random, sizeof(config.random));
    engine_init(&c->engine, &config);
}

/* Ends a client that has no store (any more). Drops the program's reference and the mutex. */
static void dismantle(hf_client *c) {
    engine_free(&c->engine);
    map_free(&c->counts);
    heap_free(&c->counts_due);
    notice_close_fds(c);
    world_close(c->world);
    c->world = NULL;
    c->closed = true;
    client_unref(c);
}

static int open_store(hf_client *c, const struct url *url) {
    const struct store_driver *driver;
    char *text = NULL;
    int r = store_find(url->scheme, &driver, &text);
    if (!r && c->host.token_floor && !(driver->capabilities & STORE_CAN_FLOOR)) {
        text = error_format("%s: has no token floor", driver->scheme);
        r = HF_UNSUPPORTED;
    }
    if (!r)
        r = driver->open(&c->host, url, &c->store, &text);
    if (!r)
        c->store_info = store_describe(url->scheme, c->store->driver);
    unsigned capabilities = r ? 0 : c->store->driver->capabilities;
    c->store_blocks = capabilities & STORE_BLOCKS && c->world->threads;
    c->engine.config.can_look = capabilities & STORE_CAN_LOOK;
    c->store_is_quick = capabilities & STORE_QUICK;
    if (r < 0)
        error_note_text(r, text);
    free(text);
    return r;
}

static int open_url(hf_client *c, const char *text) {
    struct url url;
    const char *why = NULL;
    int r = url_parse(text ? text : DEFAULT_URL, &url, &why);
    if (r < 0)
        return error_set_text(r, why);
    r = open_store(c, &url);
    url_free(&url);
    return r;
}

int client_open_in(struct world *world, const char *url, const hf_client_options *given,
                   hf_client **ret_client) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    int r = client_read_options(&options, sizeof(options), given);
    if (!r)
        r = check_options(&options);
    if (!r && !world_epoch_start())
        r = error_set(HF_SYSTEM, "cannot set up a page that fork wipes: %s", strerror(errno));
    hf_client *c = r < 0 ? NULL : calloc(1, sizeof(*c));
    if (!c) {
        world_close(world);
        return r < 0 ? r : error_set_text(HF_NO_MEMORY, NULL);
    }
    init(c, world, &options); /* no other thread knows the client yet: no mutex needed */
    r = set_identity(c, &options);
    if (!r && world_timer_add(world, &c->timer, timer_due) < 0)
        r = error_set_text(HF_NO_MEMORY, NULL);
    if (!r)
        r = open_url(c, url);
    if (r < 0) {
        pthread_mutex_lock(&c->mutex);
        dismantle(c);
        return r;
    }
    *ret_client = c;
    return HF_OK;
}

int hf_client_open(const char *url, const hf_client_options *options, hf_client **ret_client) {
    if (!ret_client)
        return error_set(HF_BAD_ARGUMENT, "ret_client is NULL");
    struct world *world;
    int cancelling = cancel_disable();
    int r = world_open_real(&world);
    if (r < 0)
        r = error_set(r, "%s", strerror(errno));
    else
        r = client_open_in(world, url, options, ret_client);
    cancel_restore(cancelling);
    return r;
}

const hf_store_info *hf_client_store(const hf_client *c) {
    return c ? &c->store_info : NULL;
}

/* ---- Closing ---- */

/* Ends everything that the store did not confirm. Operations that were never submitted get the same
 * outcome as those in flight. */
static void abandon(hf_client *c) {
    struct list *link;
    client_take_answers(c);
    while ((link = list_pop(&c->engine.out))) {
        struct store_op *op = container_of(link, struct store_op, link);
        store_complete(&c->host, op, STORE_UNKNOWN);
        client_take_answers(c);
    }
    engine_abandon(&c->engine);
    client_take_answers(c);
}

static void complete_looks(hf_client *c) {
    while (!list_empty(&c->looks)) {
        hf_call *call = container_of(c->looks.prev, hf_call, link); /* as in hf_client_cancel */
        if (call->count)
            count_end(call, HF_CLOSED, NULL);
        else
            call_complete(call, HF_CLOSED, NULL);
    }
}

/* In a forked child: frees only memory and the child's copies of descriptors. */
static void close_forked(hf_client *c) {
    if (!c->closed) {
        c->closed = true;
        notice_close_fds(c);
        world_close(c->world);
    }
    client_unref(c);
}

static void close_client(hf_client *c) {
    if (!client_lock(c)) {
        close_forked(c);
        return;
    }
    if (c->closed) {
        client_unlock(c);
        return;
    }
    client_update_time(c);
    c->closed = true;
    engine_shutdown(&c->engine);
    complete_looks(c);
    if (c->watch)
        watch_end(c->watch, HF_CLOSED, NULL);
    client_pump(c);
    client_drain(c, c->engine.now_us + CLOSE_PATIENCE_US);
    client_unlock(c);
    client_stop_standby(c);
    notice_stop(c);
    pthread_mutex_lock(&c->mutex);
    client_to_store(c);
    c->store->driver->close(c->store);
    client_from_store(c);
    abandon(c);
    if (notice_run_all(c)) /* events that report how abandoned holds ended */
        dismantle(c);
}

hf_client *hf_client_close(hf_client *c) {
    int cancelling = cancel_disable();
    if (c)
        close_client(c);
    cancel_restore(cancelling);
    return NULL;
}

const char *hf_version(void) {
    return HF_VERSION;
}
