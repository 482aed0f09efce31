/* Design notes.
 *
 * The programs of a history are workers, several in each client, that do their steps one after the other through
 * the public, non-blocking interface; nothing here calls into the engine or the store. A client's process runs
 * when its world has something for it (run), and then each of its workers looks where it stands.
 *
 * Faults begin and end by themselves. When the last has ended, the rest must come to an end, too: each request
 * complete, each client close, and the server be left with nothing but counters. */
#include "sim/history.h"

#include "client/client.h"
#include "sim/told.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SECOND_US = 1000000,
    WALL_START_S = 1700000000, /* November 2023 */
    PATIENCE_S = 900,          /* of the progress checker, after the last fault */
    TRIES_MAX = 6,             /* of a worker, at one step */
    CLIENT_RANDOM = 2,
    LINK_RANDOM = 3,
    MODEL_RANDOM = 4
};

enum worker_state { IDLE, ACQUIRING, HOLDING, RELEASING, FINISHED };

struct worker {
    struct client *client;
    int index;
    enum worker_state state;
    int step; /* in the plan; -1: none yet */
    int tries;
    int64_t since_us; /* when it came to its state */
    int64_t until_us; /* when it will leave it, if nothing else happens */
    struct sim_event due;
    struct sim_event watch; /* when it must have been told of a loss */
    hf_call *call;
    hf_call *renewing; /* by hand, if at all */
    bool renewed_again;
    int handle_count; /* 2: it was entered again */
    struct handle handles[2];
};

struct client {
    struct history *history;
    int index, lives;
    struct sim_node *node; /* NULL: its process is not running */
    hf_client *handle;
    struct sim_clock now, wall;
    struct worker workers[PLAN_WORKERS_MAX];
};

struct fault {
    struct history *history;
    const struct plan_fault *plan;
    struct sim_event event;
    bool began;
};

struct history {
    const struct plan *plan;
    struct sim_time time;
    struct sim_net net;
    struct client clients[PLAN_CLIENTS_MAX];
    struct fault faults[PLAN_FAULTS_MAX];
    struct sim_random model_random;
    struct history_result *result;
    bool story;
    int64_t longest_back_us; /* by which the server's clock was set back, in sum */
    struct check check;      /* last: most of it need not be cleared */
};

/* One after the other; a model keeps its Lua for all histories of a process. */
static struct history the_history;
static struct model_redis *the_models[SIM_SERVERS_MAX];
static char said_to_sim[64]; /* what the model answered the simulator itself */

/* ---- The story ---- */

__attribute__((format(printf, 2, 3))) static void tell(struct history *h, const char *format, ...) {
    char line[400];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    size = size < (int)sizeof(line) ? size : (int)sizeof(line) - 1;
    h->result->events++;
    h->result->hash = map_hash(line, (size_t)size, h->result->hash + (uint64_t)h->time.now_us);
    if (h->story)
        printf("%10.6f  %s\n", (double)h->time.now_us / SECOND_US, line);
}

static const char *kind_word(const struct plan *plan, const struct plan_step *step) {
    if (plan->names[step->name].kind == STORE_PERMITS)
        return "permits of";
    return step->weight == 1 ? "a share of" : "the lock";
}

/* ---- Workers ---- */

static void worker_wait(struct worker *worker, enum worker_state state, int64_t for_us) {
    struct sim_time *time = &worker->client->history->time;
    worker->state = state;
    worker->since_us = time->now_us;
    worker->until_us = time->now_us + for_us;
    sim_event_set(time, &worker->due, worker->until_us);
}

static void next_step(struct worker *worker) {
    const struct plan *plan = worker->client->history->plan;
    worker->tries = 0;
    do
        worker->step++;
    while (worker->step < plan->step_count &&
           (plan->steps[worker->step].left_out ||
            plan->steps[worker->step].client != worker->client->index ||
            plan->steps[worker->step].worker != worker->index));
    if (worker->step == plan->step_count)
        worker->state = FINISHED;
    else
        worker_wait(worker, IDLE, plan->steps[worker->step].after_us);
}

static const struct plan_step *step_of(const struct worker *worker) {
    return &worker->client->history->plan->steps[worker->step];
}

static hf_kind kind_of(const struct plan *plan, int name, uint32_t weight) {
    if (plan->names[name].kind == STORE_PERMITS)
        return HF_PERMITS;
    return weight == 1 ? HF_SHARED : HF_EXCLUSIVE;
}

/* Asks for what the step says, with what is told to this handle. */
static int ask(struct worker *worker, struct handle *handle, hf_call **ret_call) {
    const struct plan *plan = worker->client->history->plan;
    const struct plan_step *step = step_of(worker);
    hf_client *client = worker->client->handle;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = kind_of(plan, step->name, step->weight);
    options.permits = step->weight;
    options.capacity = step->capacity;
    options.wait_ms = step->wait_ms;
    options.lease_ms = step->lease_ms;
    options.min_left_ms = step->min_left_ms;
    options.flags = (step->barges ? HF_BARGE : 0) | (step->renews ? 0 : HF_NO_RENEW) |
                    (step->reenters ? HF_REENTRANT : 0);
    options.owner_key = (uint64_t)worker->index + 1;
    options.on_lost = handle_on_lost;
    options.on_lost_arg = handle;
    if (!step->other_weight)
        return hf_acquire_start(client, check_name_of(step->name), &options, ret_call);
    int other = !step->name;
    hf_want one = {sizeof(one), check_name_of(step->name), options.kind, options.permits,
                   options.capacity};
    hf_want two = {sizeof(two), check_name_of(other), kind_of(plan, other, step->other_weight),
                   step->other_weight, plan->names[other].capacity};
    return hf_acquire_all_start(client, (const hf_want *const[]){&one, &two}, 2, &options,
                                ret_call);
}

static void start_acquire(struct worker *worker) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    tell(h, "client %d/%d asks for %s \"%s\"%s%s, lease %" PRId64 " ms, waits %" PRId64 " ms",
         worker->client->index, worker->index, kind_word(h->plan, step), check_name_of(step->name),
         step->other_weight ? " and the other" : "", step->barges ? ", barging" : "",
         step->lease_ms, step->wait_ms);
    if (ask(worker, &worker->handles[0], &worker->call) < 0)
        check_fail(&h->check, VERDICT_SAFETY, "once: an acquire could not begin: %s",
                   hf_last_error());
    worker_wait(worker, ACQUIRING, step->cancel_us ? step->cancel_us : PATIENCE_S * SECOND_US * 2);
}

/* After some failures a program tries again. */
static void acquire_failed(struct worker *worker, int error) {
    struct history *h = worker->client->history;
    tell(h, "client %d/%d does not get it: %s", worker->client->index, worker->index,
         hf_call_error(worker->call));
    worker->call = hf_call_free(worker->call);
    bool again = error == HF_UNREACHABLE || error == HF_UNKNOWN || error == HF_STORE_FULL ||
                 error == HF_SHORT || error == HF_WRONG_KIND || error == HF_LOST;
    if (again && ++worker->tries < TRIES_MAX)
        worker_wait(worker, IDLE, 200000 * worker->tries);
    else
        next_step(worker);
}

static void watch(struct worker *worker) {
    struct history *h = worker->client->history;
    int64_t next_us = INT64_MAX;
    for (int i = 0; i < worker->handle_count; i++) {
        int64_t one_us = handle_look(&worker->handles[i]);
        next_us = one_us < next_us ? one_us : next_us;
    }
    if (next_us == INT64_MAX)
        sim_event_clear(&h->time, &worker->watch);
    else
        sim_event_set(&h->time, &worker->watch, next_us);
}

/* A process that pauses is told nothing, and what it learns it learns when it goes on. */
static void watch_due(struct sim_event *event) {
    enum { LATER_US = 100000 };
    struct worker *worker = container_of(event, struct worker, watch);
    struct client *client = worker->client;
    if (worker->state != HOLDING || !client->node)
        return;
    if (client->node->paused)
        sim_event_set(&client->history->time, event, client->history->time.now_us + LATER_US);
    else
        watch(worker);
}

/* Takes the hold of a call, of one name or of both. */
static void take(struct worker *worker, struct handle *handle, hf_call *call) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    struct sim_node *node = worker->client->node;
    hf_hold *hold = hf_call_take_hold(call);
    if (handle != worker->handles) { /* entered again */
        *handle = worker->handles[0];
    } else if (step->other_weight) {
        handle->attempt_count = 2;
        handle->attempts[0] = check_granted(&h->check, node, group_at(hold, 0), step->name);
        handle->attempts[1] = check_granted(&h->check, node, group_at(hold, 1), !step->name);
    } else {
        handle->attempt_count = 1;
        handle->attempts[0] = check_granted(&h->check, node, hold, step->name);
    }
    handle_begin(handle, node, hold, step->wants_fd);
}

/* A program that has the lock enters it once more, which takes no time. */
static void enter_again(struct worker *worker) {
    struct history *h = worker->client->history;
    hf_call *call = NULL;
    int r = ask(worker, &worker->handles[1], &call);
    if (r == HF_OK)
        r = hf_call_status(call);
    if (r == HF_OK) {
        take(worker, &worker->handles[1], call);
        worker->handle_count = 2;
    } else {
        check_fail(&h->check, VERDICT_SAFETY, "once: a lock was not entered again: %s",
                   hf_error_name(r));
    }
    hf_call_free(call);
}

static void for_each_attempt(struct worker *worker,
                             void (*fn)(struct check *check, struct attempt *attempt)) {
    for (int i = 0; i < worker->handles[0].attempt_count; i++)
        fn(&worker->client->history->check, worker->handles[0].attempts[i]);
}

static void acquired(struct worker *worker) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    struct handle *handle = &worker->handles[0];
    take(worker, handle, worker->call);
    worker->call = hf_call_free(worker->call);
    worker->handle_count = 1;
    worker->renewed_again = false;
    h->result->grants++;
    tell(h, "client %d/%d has \"%s\" as %.8s-%s, token %" PRIu64 ", %" PRId64 " ms left",
         worker->client->index, worker->index, check_name_of(step->name),
         hf_hold_owner(handle->hold), hf_hold_owner(handle->hold) + 33, hf_hold_token(handle->hold),
         hf_hold_left_ms(handle->hold));
    for_each_attempt(worker, check_wrote);
    if (step->reenters && !h->check.verdict)
        enter_again(worker);
    if (step->renew_ms)
        hf_renew_start(handle->hold, step->renew_ms, &worker->renewing);
    worker_wait(worker, HOLDING, step->hold_us);
    watch(worker);
}

/* Leaves what was entered again: the other hold has it still. */
static void leave_once(struct worker *worker) {
    struct history *h = worker->client->history;
    struct handle *first = &worker->handles[0], *second = &worker->handles[1];
    int before = hf_check(second->hold, 0);
    hf_call *call = NULL;
    hf_release_start(first->hold, &call);
    int r = hf_call_status(call), after = hf_check(second->hold, 0);
    if (before == HF_OK &&
        (r != HF_OK || after != HF_OK || hf_check(first->hold, 0) != HF_RELEASED))
        check_fail(&h->check, VERDICT_SAFETY, "once: a lock that was entered again is left: %s, %s",
                   hf_error_name(r), hf_error_name(after));
    hf_call_free(call);
    first->hold = hf_hold_free(first->hold);
}

static void free_handles(struct worker *worker) {
    for (int i = 0; i < worker->handle_count; i++)
        worker->handles[i].hold = hf_hold_free(worker->handles[i].hold);
    worker->handle_count = 0;
}

static void let_go(struct worker *worker) {
    struct history *h = worker->client->history;
    for_each_attempt(worker, check_wrote); /* a write that was under way all the time */
    for (int i = 0; i < worker->handle_count; i++)
        handle_release(&worker->handles[i]);
    for_each_attempt(worker, check_ended);
    worker->renewing = hf_call_free(worker->renewing);
    sim_event_clear(&h->time, &worker->watch);
    tell(h, "client %d/%d lets go", worker->client->index, worker->index);
    struct handle *last = &worker->handles[worker->handle_count - 1];
    if (worker->handle_count == 2)
        leave_once(worker);
    if (hf_release_start(last->hold, &worker->call) < 0)
        check_fail(&h->check, VERDICT_SAFETY, "once: a release could not begin: %s",
                   hf_last_error());
    worker_wait(worker, RELEASING, PATIENCE_S * SECOND_US * 2);
}

static void hold_on(struct worker *worker) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    for_each_attempt(worker, check_looked);
    watch(worker);
    if (hf_check(worker->handles[0].hold, 0) != HF_OK) {
        if (worker->handles[0].told || h->time.now_us >= worker->until_us) {
            h->result->losses++;
            tell(h, "client %d/%d learns that it has lost it", worker->client->index,
                 worker->index);
            let_go(worker);
        }
    } else if (h->time.now_us >= worker->until_us) {
        let_go(worker);
    } else if (step->renew_again_ms && !worker->renewed_again &&
               h->time.now_us >= worker->since_us + step->hold_us / 2) {
        worker->renewed_again = true;
        worker->renewing = hf_call_free(worker->renewing);
        hf_renew_start(worker->handles[0].hold, step->renew_again_ms, &worker->renewing);
    }
}

static void worker_look(struct worker *worker) {
    struct history *h = worker->client->history;
    int r;
    switch (worker->state) {
    case IDLE:
        if (h->time.now_us >= worker->until_us)
            start_acquire(worker);
        break;
    case ACQUIRING:
        r = hf_call_status(worker->call);
        if (r == HF_OK) {
            acquired(worker);
        } else if (r != HF_PENDING) {
            acquire_failed(worker, r);
        } else if (h->time.now_us >= worker->until_us) {
            tell(h, "client %d/%d gives up", worker->client->index, worker->index);
            hf_call_cancel(worker->call);
            worker->until_us = INT64_MAX;
        }
        break;
    case HOLDING:
        hold_on(worker);
        break;
    case RELEASING:
        r = hf_call_status(worker->call);
        if (r == HF_PENDING)
            break;
        tell(h, "client %d/%d: the release was answered %s", worker->client->index, worker->index,
             hf_error_name(r));
        worker->call = hf_call_free(worker->call);
        free_handles(worker);
        next_step(worker);
        break;
    case FINISHED:
        break;
    }
}

/* ---- Clients ---- */

static void run(struct sim_node *node) {
    struct client *client = node->context;
    hf_process(client->handle);
    for (int i = 0; i < PLAN_WORKERS_MAX; i++)
        worker_look(&client->workers[i]);
    hf_process(client->handle); /* what the workers began goes out */
    for (int i = 0; i < PLAN_WORKERS_MAX; i++)
        worker_look(&client->workers[i]);
    sim_node_schedule(node);
}

static void worker_due(struct sim_event *event) {
    struct worker *worker = container_of(event, struct worker, due);
    struct client *client = worker->client;
    if (client->node && !client->node->paused)
        run(client->node);
}

static const char *url_of(const struct plan *plan) {
    static char url[200];
    if (plan->server_count == 1)
        return "redis://s0?plaintext=yes&timeout=1000&connect_timeout=1000";
    snprintf(url, sizeof(url),
             "quorum+redis://"
             "s0,s1,%ss%d?plaintext=yes&timeout=1000&connect_timeout=1000&node_timeout=%" PRId64
             "&quorum=%d&id=sim%s",
             plan->server_count == 5 ? "s2,s3," : "",
             plan->listed_twice ? 0 : plan->server_count - 1, plan->node_timeout_ms, plan->quorum,
             plan->durable ? "&durable=yes" : "");
    return url;
}

static void event_told(const hf_event *event, void *arg) {
    struct client *client = arg;
    told_event(&client->history->check, client->node, event);
}

static void client_start(struct client *client) {
    struct history *h = client->history;
    const struct plan_client *plan = &h->plan->clients[client->index];
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.max_lease_ms = PLAN_MAX_LEASE_MS;
    options.wait_lease_ms = plan->wait_lease_ms;
    options.command = "sim";
    options.on_event = h->plan->events ? event_told : NULL;
    options.on_event_arg = client;
    client->node = sim_node_new(
        &h->net, client->index, &client->now, &client->wall,
        sim_random_of(h->plan->seed, CLIENT_RANDOM,
                      (uint64_t)client->index + UINT64_C(100) * (uint64_t)client->lives));
    client->node->context = client;
    client->lives++;
    told_nothing(&h->check, client->node);
    if (client_open_in(&client->node->world, url_of(h->plan), &options, &client->handle) < 0) {
        fprintf(stderr, "sim: %s\n", hf_last_error());
        exit(70);
    }
}

/* The process ends, in whatever it was doing; nothing more of it reaches anybody. */
static void client_end(struct client *client) {
    sim_node_kill(client->node);
    told_nothing(&client->history->check, client->node);
    for (int i = 0; i < PLAN_WORKERS_MAX; i++) {
        struct worker *worker = &client->workers[i];
        if (worker->state == HOLDING)
            for_each_attempt(worker, check_ended);
    }
    hf_client_close(client->handle);
    for (int i = 0; i < PLAN_WORKERS_MAX; i++) {
        struct worker *worker = &client->workers[i];
        worker->call = hf_call_free(worker->call);
        worker->renewing = hf_call_free(worker->renewing);
        free_handles(worker);
        sim_event_clear(&client->history->time, &worker->due);
        sim_event_clear(&client->history->time, &worker->watch);
    }
    client->node = NULL;
}

static void client_init(struct history *h, int index) {
    struct client *client = &h->clients[index];
    const struct plan_client *plan = &h->plan->clients[index];
    client->history = h;
    client->index = index;
    client->now = (struct sim_clock){.shown_us = 1000 * SECOND_US, .ppm = plan->now_ppm};
    client->wall = (struct sim_clock){
        .shown_us = INT64_C(1000000) * WALL_START_S + plan->wall_off_us, .ppm = plan->now_ppm};
    for (int i = 0; i < h->plan->server_count; i++) {
        struct sim_link *link = &h->net.links[index][i];
        link->random =
            sim_random_of(h->plan->seed, LINK_RANDOM, (uint64_t)index + 100 * (uint64_t)i);
        link->latency_us = i ? sim_random_between(&link->random, 50, 3000) : plan->latency_us;
        if (h->plan->far)
            link->latency_us = sim_random_between(&link->random, 50, 60000);
    }
    client_start(client);
    for (int i = 0; i < PLAN_WORKERS_MAX; i++) {
        struct worker *worker = &client->workers[i];
        worker->client = client;
        worker->index = i;
        worker->step = -1;
        sim_event_add(&h->time, &worker->due, worker_due);
        sim_event_add(&h->time, &worker->watch, watch_due);
        for (int j = 0; j < 2; j++)
            worker->handles[j] = (struct handle){.check = &h->check, .events = h->plan->events};
        next_step(worker);
    }
}

/* ---- Faults ---- */

static void restart(struct history *h, struct sim_server *server, enum model_keep keep) {
    sim_server_cut(server, -1, false);
    sim_server_tell_time(server);
    model_restart(server->model, keep);
    if (keep != MODEL_KEEP_ALL)
        check_forgot(&h->check, server, -1, keep == MODEL_KEEP_NONE ? FORGOT_ALL : FORGOT_COUNTERS);
}

/* Any of a lock's keys or, of a server that votes, the one that says so. */
static void evict(struct history *h, struct sim_server *server, const struct plan_fault *fault) {
    static const char letters[] = "ksqwhi.";
    char key[64];
    char letter = letters[fault->amount % (h->plan->server_count > 1 ? 7 : 6)];
    if (letter == '.')
        snprintf(key, sizeof(key), "%s", check_set_key);
    else if (letter == 'k')
        snprintf(key, sizeof(key), "%s", check_key_of(fault->name));
    else
        snprintf(key, sizeof(key), "{%s}.%c", check_key_of(fault->name), letter);
    sim_server_tell_time(server);
    if (!model_evict(server->model, key))
        return;
    tell(h, "(%s)", key);
    check_forgot(&h->check, server, fault->name, letter == 's' ? FORGOT_COUNTERS : FORGOT_PARTS);
}

/* Says something to a server over a connection of its own, and returns the reply. */
static const char *say(struct sim_server *server, const char *bytes) {
    sim_server_tell_time(server);
    said_to_sim[0] = 0;
    struct model_connection *connection = model_connect(server->model, NULL);
    model_feed(connection, bytes, strlen(bytes));
    model_disconnect(connection);
    return said_to_sim;
}

static void take_as_foreign(struct history *h, struct sim_server *server,
                            const struct plan_fault *fault, bool takes) {
    char text[200], ttl[24];
    snprintf(ttl, sizeof(ttl), "%" PRId64, fault->for_us / 1000 + fault->amount);
    if (takes)
        snprintf(text, sizeof(text),
                 "*6\r\n$3\r\nSET\r\n$10\r\n%s\r\n$7\r\nforeign\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%"
                 "zu\r\n%s\r\n",
                 check_key_of(fault->name), strlen(ttl), ttl);
    else /* as unlock.lua would, in the one step that this is here */
        snprintf(text, sizeof(text), "*2\r\n$3\r\nDEL\r\n$10\r\n%s\r\n", check_key_of(fault->name));
    size_t size;
    const char *k = model_find_string(server->model, check_key_of(fault->name), &size);
    if (!takes && (!k || strcmp(k, "foreign") != 0))
        return;
    if (strcmp(say(server, text), "+OK\r\n") == 0) {
        tell(h, "(it got \"%s\")", check_name_of(fault->name));
        check_foreign(&h->check, fault->name);
    }
}

/* What is broken is the token that is the last at one of the servers. */
static void break_lock(struct history *h, struct sim_server *server,
                       const struct plan_fault *fault) {
    struct client *client = &h->clients[fault->client];
    sim_server_tell_time(server);
    char key[64];
    snprintf(key, sizeof(key), "{%s}.s", check_key_of(fault->name));
    const char *token = model_find_field(server->model, key, "t");
    hf_call *call;
    if (!token || !client->node || client->node->paused ||
        hf_break_start(client->handle, check_name_of(fault->name), strtoull(token, NULL, 10), "sim",
                       &call) < 0)
        return;
    hf_call_free(call); /* whatever comes of it */
    sim_node_schedule(client->node);
}

static void set_mode(struct sim_server *server, enum model_mode mode) {
    model_set_mode(server->model, mode);
}

static void step_server_clock(struct history *h, struct sim_server *server, int64_t by_us) {
    sim_clock_step(&server->wall, h->time.now_us, by_us);
    if (by_us > 0) {
        sim_server_tell_time(server);
        model_expire(server->model);
        check_forgot(&h->check, server, -1,
                     FORGOT_PARTS); /* leases end early: nobody promised otherwise */
    } else {
        check_time_went_back(&h->check);
        h->longest_back_us -= by_us;
    }
}

static void client_fault(struct history *h, const struct plan_fault *fault, bool begins) {
    struct client *client = &h->clients[fault->client];
    if (fault->kind == FAULT_WALL) {
        sim_clock_step(&client->wall, h->time.now_us, begins ? -fault->amount * 1000 : 0);
        if (client->node)
            client->node->wall = client->wall;
    } else if (fault->kind == FAULT_PAUSE && client->node) {
        if (begins)
            sim_node_pause(client->node);
        else
            sim_node_resume(client->node);
    } else if (fault->kind == FAULT_KILL && begins && client->node) {
        client_end(client);
    } else if (fault->kind == FAULT_KILL && !begins && !client->node) {
        client_start(client);
        for (int i = 0; i < PLAN_WORKERS_MAX; i++)
            if (client->workers[i].state != FINISHED)
                next_step(&client->workers[i]);
    }
}

static void server_fault(struct history *h, struct sim_server *server,
                         const struct plan_fault *fault, bool begins) {
    struct sim_link *link = &h->net.links[fault->client][server->index];
    int node = fault->client;
    switch (fault->kind) {
    case FAULT_CUT:
        if (begins)
            sim_server_cut(server, node, false);
        break;
    case FAULT_LOSE_REPLY:
        link->lose_reply = begins;
        break;
    case FAULT_BLOCK_UP:
    case FAULT_BLOCK_DOWN:
    case FAULT_PARTITION:
        if (begins)
            sim_link_block(&h->net, node, server->index, fault->kind != FAULT_BLOCK_DOWN,
                           fault->kind != FAULT_BLOCK_UP);
        else
            sim_link_unblock(&h->net, node, server->index);
        if (!begins && fault->amount % 2)
            sim_server_cut(server, node, false);
        break;
    case FAULT_SLOW:
        link->slow_us = begins ? fault->amount * 20 : 0;
        break;
    case FAULT_DELAY:
        sim_node_delay(&h->net, node, server->index, begins ? fault->amount * 200 : 0);
        break;
    case FAULT_LOSE_PUSHES:
        link->lose_pushes = begins;
        break;
    case FAULT_CUT_PUSHES:
        if (begins)
            sim_server_cut(server, -1, true);
        break;
    case FAULT_REFUSE:
        server->down = begins;
        if (begins)
            sim_server_cut(server, -1, false);
        break;
    case FAULT_STALL:
        if (begins)
            sim_server_pause(server);
        else
            sim_server_resume(server);
        break;
    case FAULT_RESTART_ALL:
    case FAULT_RESTART_NONE:
    case FAULT_RESTART_SOME:
        server->down = begins;
        if (begins)
            restart(h, server,
                    fault->kind == FAULT_RESTART_ALL    ? MODEL_KEEP_ALL
                    : fault->kind == FAULT_RESTART_NONE ? MODEL_KEEP_NONE
                                                        : MODEL_KEEP_SOME);
        break;
    case FAULT_RESTART_SAVED:
        if (begins)
            model_save(server->model);
        else
            restart(h, server, MODEL_KEEP_SAVED);
        break;
    case FAULT_FLUSH:
        if (begins) {
            model_flush_all(server->model);
            check_forgot(&h->check, server, -1, FORGOT_ALL);
        }
        break;
    case FAULT_EVICT:
        if (begins)
            evict(h, server, fault);
        break;
    case FAULT_DELETE:
        if (begins && model_evict(server->model, check_key_of(fault->name)))
            check_forgot(&h->check, server, fault->name, FORGOT_PARTS);
        break;
    case FAULT_SCRIPT_FLUSH:
        if (begins)
            say(server, "*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n");
        break;
    case FAULT_OOM:
        set_mode(server, begins ? MODEL_OOM : MODEL_OK);
        break;
    case FAULT_READONLY:
        set_mode(server, begins ? MODEL_READONLY : MODEL_OK);
        break;
    case FAULT_MISCONF:
        set_mode(server, begins ? MODEL_MISCONF : MODEL_OK);
        break;
    case FAULT_LOADING:
        set_mode(server, begins ? MODEL_LOADING : MODEL_OK);
        break;
    case FAULT_BUSY:
        set_mode(server, begins ? MODEL_BUSY : MODEL_OK);
        break;
    case FAULT_STEP_FORWARD:
        if (begins)
            step_server_clock(h, server, fault->amount * 500);
        break;
    case FAULT_STEP_BACK:
        if (begins)
            step_server_clock(h, server, -fault->amount * 500);
        break;
    case FAULT_SLEW: /* what NTP does at most, and drift allows for: +-500 ppm */
        sim_clock_set_rate(&server->wall, h->time.now_us,
                           h->plan->server_ppm[server->index] +
                               (begins ? fault->amount % 1000 - 500 : 0));
        break;
    case FAULT_FOREIGN:
        take_as_foreign(h, server, fault, begins);
        break;
    case FAULT_BREAK:
        if (begins)
            break_lock(h, server, fault);
        break;
    case FAULT_WALL:
    case FAULT_PAUSE:
    case FAULT_KILL:
    case FAULT_KINDS:
        break;
    }
}

static void change(struct history *h, const struct plan_fault *fault, bool begins) {
    check_fault(&h->check, begins, fault->kind == FAULT_DELAY ? fault->amount * 200 : 0,
                fault->kind == FAULT_KILL || fault->kind == FAULT_PAUSE);
    if (fault->kind == FAULT_WALL || fault->kind == FAULT_PAUSE || fault->kind == FAULT_KILL) {
        client_fault(h, fault, begins);
        return;
    }
    for (int i = 0; i < h->plan->server_count; i++) {
        if (fault->servers & 1 << i)
            server_fault(h, &h->net.servers[i], fault, begins);
    }
}

static const char *servers_text(unsigned servers) {
    static char text[40];
    size_t size = (size_t)snprintf(text, sizeof(text), "server");
    for (int i = 0; i < SIM_SERVERS_MAX; i++) {
        if (servers & 1u << i)
            size += (size_t)snprintf(text + size, sizeof(text) - size, " %d", i);
    }
    return text;
}

static void fault_due(struct sim_event *event) {
    struct fault *fault = container_of(event, struct fault, event);
    struct history *h = fault->history;
    if (!fault->began) {
        h->result->faults[fault->plan->kind]++;
        tell(h, "*** %s (client %d, \"%s\", for %" PRId64 " ms, %s)",
             plan_fault_text(fault->plan->kind), fault->plan->client,
             check_name_of(fault->plan->name), fault->plan->for_us / 1000,
             servers_text(fault->plan->servers));
        fault->began = true;
        change(h, fault->plan, true);
        sim_event_set(&h->time, &fault->event, h->time.now_us + fault->plan->for_us);
        return;
    }
    tell(h, "*** over: %s", plan_fault_text(fault->plan->kind));
    change(h, fault->plan, false);
}

/* ---- The history ---- */

static void executed(struct sim_server *server, int node, size_t count, const char *const *words,
                     const char *reply) {
    struct history *h = &the_history;
    h->result->requests++;
    if (h->story || strncmp(words[0], "EVAL", 4) == 0) {
        char line[80];
        snprintf(line, sizeof(line), "%s", reply);
        for (char *at = line; *at; at++)
            *at = *at == '\r' || *at == '\n' ? ' ' : *at;
        size_t first = count > 3 ? 3 + strtoul(words[2], NULL, 10) : count;
        const char *owner = first < count && strlen(words[first]) > 30 ? words[first] + 32 : "";
        tell(h, "    server %d: client %d %s %s %s → %s", server->index, node, words[0],
             check_script_of(count, words), owner, line);
    }
    check_executed(&h->check, server, count, words, reply);
}

static uint64_t model_random(void *context) {
    return sim_random_next(context);
}

static void model_says(void *context, const char *bytes, size_t size) {
    if (context)
        sim_server_says(context, bytes, size);
    else
        snprintf(said_to_sim, sizeof(said_to_sim), "%.*s", (int)size, bytes);
}

static bool all_finished(const struct history *h) {
    for (int i = 0; i < h->plan->client_count; i++)
        for (int j = 0; j < PLAN_WORKERS_MAX; j++)
            if (h->clients[i].workers[j].state != FINISHED)
                return false;
    return true;
}

static int64_t last_fault_us(const struct plan *plan) {
    int64_t last_us = 0;
    for (int i = 0; i < plan->fault_count; i++) {
        const struct plan_fault *fault = &plan->faults[i];
        if (!fault->left_out && fault->at_us + fault->for_us > last_us)
            last_us = fault->at_us + fault->for_us;
    }
    return last_us;
}

/* As `holdfast quorum init` left it, long ago. */
static void join_set(struct history *h, struct sim_server *server) {
    char text[300], set[40];
    snprintf(set, sizeof(set), "sim/%d/%d/%d%s", h->plan->server_count, h->plan->quorum,
             PLAN_MAX_LEASE_MS, h->plan->durable ? "/durable" : "");
    snprintf(text, sizeof(text),
             "*10\r\n$4\r\nHSET\r\n$%zu\r\n%s\r\n$1\r\nf\r\n$%zu\r\n%s\r\n$1\r\ns\r\n$1\r\n0\r\n"
             "$1\r\nn\r\n$1\r\n%d\r\n$1\r\nr\r\n$40\r\n%s\r\n",
             strlen(check_set_key), check_set_key, strlen(set), set, server->index + 1,
             model_run_id(server->model));
    say(server, text);
}

static void server_init(struct history *h, int index) {
    struct model_config config = {
        .output = model_says, .random = model_random, .random_context = &the_history.model_random};
    struct sim_server *server = &h->net.servers[index];
    if (!the_models[index])
        the_models[index] = model_new(&config);
    model_reset(the_models[index]);
    model_set_mode(the_models[index], MODEL_OK);
    sim_server_init(server, &h->net, index, the_models[index]);
    server->wall = (struct sim_clock){.shown_us = INT64_C(1000000) * WALL_START_S,
                                      .ppm = h->plan->server_ppm[index]};
    if (h->plan->server_count > 1)
        join_set(h, server);
}

static void start(struct history *h) {
    h->model_random = sim_random_of(h->plan->seed, MODEL_RANDOM, 0);
    sim_time_init(&h->time);
    h->net.time = &h->time;
    h->net.server_count = h->plan->server_count;
    h->net.run = run;
    h->net.executed = executed;
    list_init(&h->net.pipes);
    for (int i = 0; i < h->plan->server_count; i++)
        server_init(h, i);
    h->check.plan = h->plan;
    h->check.net = &h->net;
    for (int i = 0; i < h->plan->client_count; i++)
        client_init(h, i);
    for (int i = 0; i < h->plan->fault_count; i++) {
        struct fault *fault = &h->faults[i];
        *fault = (struct fault){.history = h, .plan = &h->plan->faults[i]};
        sim_event_add(&h->time, &fault->event, fault_due);
        if (!fault->plan->left_out)
            sim_event_set(&h->time, &fault->event, fault->plan->at_us);
    }
}

static bool is_over(const struct history *h) {
    return all_finished(h) && told_all(&h->check) && h->time.now_us >= last_fault_us(h->plan);
}

static void live(struct history *h) {
    int64_t until_us = last_fault_us(h->plan) + PATIENCE_S * INT64_C(1000000);
    while (!h->check.verdict && !is_over(h))
        if (!sim_time_step(&h->time, until_us) && h->time.now_us >= until_us)
            break;
    if (!h->check.verdict && all_finished(h) && !told_all(&h->check))
        check_fail(&h->check, VERDICT_LIVENESS, "told: there is no event of the end of a lock");
    if (!h->check.verdict && !all_finished(h))
        check_fail(&h->check, VERDICT_LIVENESS, "progress: somebody still waits after %d s",
                   PATIENCE_S);
}

static void finish(struct history *h) {
    for (int i = 0; i < h->plan->client_count; i++)
        if (h->clients[i].node)
            client_end(&h->clients[i]);
    int64_t until_us = h->time.now_us + h->longest_back_us + 2 * (PLAN_MAX_LEASE_MS + 26000) * 1000;
    while (sim_time_step(&h->time, until_us))
        ;
    for (int i = 0; i < h->plan->server_count && !h->check.verdict; i++)
        check_remains(&h->check, &h->net.servers[i]);
    sim_net_end(&h->net);
    sim_time_free(&h->time);
}

void history_run(const struct plan *plan, bool story, struct history_result *ret_result) {
    struct history *h = &the_history;
    *ret_result = (struct history_result){.hash = plan->seed};
    memset(h, 0, sizeof(*h) - sizeof(h->check));
    memset(&h->check, 0, offsetof(struct check, attempts));
    h->check.attempt_count = 0;
    h->plan = plan;
    h->story = story;
    h->result = ret_result;
    start(h);
    live(h);
    finish(h);
    tell(h, "%s", h->check.verdict ? h->check.what : "the end");
    ret_result->verdict = h->check.verdict;
    ret_result->lasted_us = h->time.now_us;
    snprintf(ret_result->what, sizeof(ret_result->what), "%s", h->check.what);
}
