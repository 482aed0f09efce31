/* Design notes.
 *
 * The programs of a history are workers, several in each client. They do their steps one after
 * the other through the public, non-blocking interface; nothing here calls into the engine or
 * the store. A client's process runs when its world has work for it (run), and then looks at each
 * worker.
 *
 * Faults begin and end at their times. After the last has ended, everything must finish: every
 * request completes, every client closes, and nothing but counters is left on the servers. */
#include "sim/history.h"

#include "client/client.h"
#include "sim/counts.h"
#include "sim/notices.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SECOND_US = 1000000,
    WALL_START_S = 1700000000, /* November 2023 */
    PATIENCE_S = 900,          /* of the progress checker, after the last fault */
    TRIES_MAX = 6,             /* of a worker, at one step */
    CLIENT_RANDOM = 2,
    LINK_RANDOM = 3,
    SERVICE_RANDOM = 4
};

enum worker_state { IDLE, ACQUIRING, HOLDING, RELEASING, FINISHED };

struct worker {
    struct client *client;
    int index;
    enum worker_state state;
    int step; /* in the plan; -1: none yet */
    int tries;
    int64_t since_us; /* when it entered its state */
    int64_t until_us; /* when it will leave it, if nothing else happens */
    struct sim_event due;
    struct sim_event watch; /* when it must have been notified of a loss */
    hf_call *call;
    hf_call *renewing; /* by hand, if at all */
    bool renewed_again;
    int handle_count; /* 2: it was entered again */
    struct notices_handle handles[2];
};

struct client {
    struct history *history;
    int index, lives;
    struct sim_machine *machine; /* NULL: its process is not running */
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
    struct sim_random service_random;
    struct history_result *result;
    bool story;
    int64_t back_us; /* how far servers' clocks were set back in total */
    struct counts counts;
    struct check check; /* last: most of it need not be cleared */
};

/* Histories run one after the other and share the services, which are slow to open. */
static struct history the_history;
static struct service *the_services[SIM_SERVERS_MAX];

/* ---- Where it runs ---- */

/* Clients write these values into the store, and a history must not depend on them. So these
 * replace the C library's functions. */
pid_t getpid(void) {
    return 4711;
}

int gethostname(char *name, size_t size) {
    snprintf(name, size, "sim");
    return 0;
}

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

/* Asks for what the step says. This handle is notified of a loss. */
static int ask(struct worker *worker, struct notices_handle *handle, hf_call **ret_call) {
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
    options.on_lost = notices_on_lost;
    options.on_lost_arg = handle;
    if (!step->other_weight)
        return hf_acquire_start(client, plan_name_text(step->name), &options, ret_call);
    int other = !step->name;
    hf_want one = {sizeof(one), plan_name_text(step->name), options.kind, options.permits,
                   options.capacity};
    hf_want two = {sizeof(two), plan_name_text(other), kind_of(plan, other, step->other_weight),
                   step->other_weight, plan->names[other].capacity};
    return hf_acquire_all_start(client, (const hf_want *const[]){&one, &two}, 2, &options,
                                ret_call);
}

static void start_acquire(struct worker *worker) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    tell(h, "client %d/%d asks for %s \"%s\"%s%s, lease %" PRId64 " ms, waits %" PRId64 " ms",
         worker->client->index, worker->index, kind_word(h->plan, step), plan_name_text(step->name),
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
        int64_t one_us = notices_look(&worker->handles[i]);
        next_us = one_us < next_us ? one_us : next_us;
    }
    if (next_us == INT64_MAX)
        sim_event_clear(&h->time, &worker->watch);
    else
        sim_event_set(&h->time, &worker->watch, next_us);
}

/* A process that pauses is notified when it continues. */
static void watch_due(struct sim_event *event) {
    enum { LATER_US = 100000 };
    struct worker *worker = container_of(event, struct worker, watch);
    struct client *client = worker->client;
    if (worker->state != HOLDING || !client->machine)
        return;
    if (client->machine->paused)
        sim_event_set(&client->history->time, event, client->history->time.now_us + LATER_US);
    else
        watch(worker);
}

/* Takes the hold of a call, of one name or of both. */
static void take(struct worker *worker, struct notices_handle *handle, hf_call *call) {
    struct history *h = worker->client->history;
    const struct plan_step *step = step_of(worker);
    struct sim_machine *machine = worker->client->machine;
    hf_hold *hold = hf_call_take_hold(call);
    if (handle != worker->handles) { /* entered again */
        *handle = worker->handles[0];
    } else if (step->other_weight) {
        handle->attempt_count = 2;
        handle->attempts[0] = check_granted(&h->check, machine, group_at(hold, 0), step->name);
        handle->attempts[1] = check_granted(&h->check, machine, group_at(hold, 1), !step->name);
    } else {
        handle->attempt_count = 1;
        handle->attempts[0] = check_granted(&h->check, machine, hold, step->name);
    }
    notices_begin(handle, machine, hold, step->wants_fd);
}

/* A program that has the lock enters it again, which takes no time. */
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
    struct notices_handle *handle = &worker->handles[0];
    take(worker, handle, worker->call);
    worker->call = hf_call_free(worker->call);
    worker->handle_count = 1;
    worker->renewed_again = false;
    h->result->grants++;
    tell(h, "client %d/%d has \"%s\" as %.8s-%s, token %" PRIu64 ", %" PRId64 " ms left",
         worker->client->index, worker->index, plan_name_text(step->name),
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

/* Releases one of two holds: the other still has the lock. */
static void leave_once(struct worker *worker) {
    struct history *h = worker->client->history;
    struct notices_handle *first = &worker->handles[0], *second = &worker->handles[1];
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

static void release(struct worker *worker) {
    struct history *h = worker->client->history;
    for_each_attempt(worker, check_wrote); /* a write that began while it held the lock */
    for (int i = 0; i < worker->handle_count; i++)
        notices_release(&worker->handles[i]);
    for_each_attempt(worker, check_ended);
    worker->renewing = hf_call_free(worker->renewing);
    sim_event_clear(&h->time, &worker->watch);
    tell(h, "client %d/%d lets go", worker->client->index, worker->index);
    struct notices_handle *last = &worker->handles[worker->handle_count - 1];
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
        if (worker->handles[0].notified || h->time.now_us >= worker->until_us) {
            h->result->losses++;
            tell(h, "client %d/%d learns that it has lost it", worker->client->index,
                 worker->index);
            release(worker);
        }
    } else if (h->time.now_us >= worker->until_us) {
        release(worker);
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

/* ---- Counters ---- */

static void start_count(struct client *client, struct counts_step *step) {
    struct history *h = client->history;
    hf_count_options options = counts_begin(&h->counts, step);
    static const char *const words[] = {
        [HF_COUNT_GET] = "reads", [HF_COUNT_ADD] = "adds", [HF_COUNT_CAS] = "exchanges"};
    tell(h, "client %d %s, step %d, %" PRIx64, client->index, words[options.op],
         (int)(step - h->counts.steps), options.op == HF_COUNT_GET ? 0 : options.number);
    if (hf_count_start(client->handle, plan_counter_name, &options, &step->call) < 0)
        check_fail(&h->check, VERDICT_SAFETY, "once: a count could not begin: %s", hf_last_error());
}

static void end_count(struct client *client, struct counts_step *step, int result) {
    struct history *h = client->history;
    hf_counter counter = HF_COUNTER_INIT;
    if (result == HF_OK || result == HF_MISMATCH)
        hf_call_counter(step->call, &counter);
    step->call = hf_call_free(step->call);
    h->result->counts += result == HF_OK;
    tell(h, "client %d is answered, step %d: %s, %" PRIx64, client->index,
         (int)(step - h->counts.steps), hf_error_name(result), counter.value);
    counts_end(&h->counts, step, result, &counter);
}

static void look_at_counts(struct client *client) {
    struct history *h = client->history;
    for (int i = 0; i < h->counts.count; i++) {
        struct counts_step *step = &h->counts.steps[i];
        if (step->plan->client != client->index || step->plan->left_out)
            continue;
        if (step->state == COUNTS_PLANNED && h->time.now_us >= step->plan->at_us)
            start_count(client, step);
        int r = step->call ? hf_call_status(step->call) : HF_PENDING;
        if (r != HF_PENDING)
            end_count(client, step, r);
    }
}

/* ---- Clients ---- */

static void look(struct client *client) {
    for (int i = 0; i < PLAN_WORKERS_MAX; i++)
        worker_look(&client->workers[i]);
    look_at_counts(client);
}

static void run(struct sim_machine *machine) {
    struct client *client = machine->context;
    hf_process(client->handle);
    look(client);
    hf_process(client->handle); /* sends what the workers began */
    look(client);
    sim_machine_schedule(machine);
}

static void count_due(struct sim_event *event) {
    struct counts_step *step = container_of(event, struct counts_step, due);
    struct client *client = &the_history.clients[step->plan->client];
    if (client->machine && !client->machine->paused)
        run(client->machine);
}

/* Includes those that should have started while there was no process. */
static void schedule_counts(struct client *client) {
    struct history *h = client->history;
    for (int i = 0; i < h->counts.count; i++) {
        struct counts_step *step = &h->counts.steps[i];
        int64_t at_us = step->plan->at_us;
        if (step->plan->client == client->index && !step->plan->left_out &&
            step->state == COUNTS_PLANNED)
            sim_event_set(&h->time, &step->due, at_us > h->time.now_us ? at_us : h->time.now_us);
    }
}

static void worker_due(struct sim_event *event) {
    struct worker *worker = container_of(event, struct worker, due);
    struct client *client = worker->client;
    if (client->machine && !client->machine->paused)
        run(client->machine);
}

static const char *url_of(const struct plan *plan) {
    static char url[250];
    const struct service_type *service = plan->service;
    if (plan->voter_count == 1)
        snprintf(url, sizeof(url), "%s://%.*s?%s", service->scheme, 3 * plan->server_count - 1,
                 "s0,s1,s2,s3,s4", service->url_options);
    else
        snprintf(url, sizeof(url),
                 "quorum+%s://s0,s1,%ss%d?%s&node_timeout=%" PRId64 "&quorum=%d&id=sim%s",
                 service->scheme, plan->server_count == 5 ? "s2,s3," : "",
                 plan->listed_twice ? 0 : plan->server_count - 1, service->url_options,
                 plan->node_timeout_ms, plan->quorum, plan->durable ? "&durable=yes" : "");
    return url;
}

static void on_event(const hf_event *event, void *arg) {
    struct client *client = arg;
    notices_event(&client->history->check, client->machine, event);
}

static void client_start(struct client *client) {
    struct history *h = client->history;
    const struct plan_client *plan = &h->plan->clients[client->index];
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.max_lease_ms = PLAN_MAX_LEASE_MS;
    options.wait_lease_ms = plan->wait_lease_ms;
    options.command = "sim";
    options.on_event = h->plan->events ? on_event : NULL;
    options.on_event_arg = client;
    client->machine = sim_machine_new(
        &h->net, client->index, &client->now, &client->wall,
        sim_random_of(h->plan->seed, CLIENT_RANDOM,
                      (uint64_t)client->index + UINT64_C(100) * (uint64_t)client->lives));
    client->machine->context = client;
    client->lives++;
    notices_clear(&h->check, client->machine);
    if (client_open_in(&client->machine->world, url_of(h->plan), &options, &client->handle) < 0) {
        fprintf(stderr, "sim: %s\n", hf_last_error());
        exit(70);
    }
}

/* The process ends, whatever it was doing. Nothing more from it reaches anybody. */
static void client_end(struct client *client) {
    sim_machine_kill(client->machine);
    notices_clear(&client->history->check, client->machine);
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
    for (int i = 0; i < client->history->counts.count; i++) {
        struct counts_step *step = &client->history->counts.steps[i];
        if (step->call && step->plan->client == client->index)
            end_count(client, step, HF_UNKNOWN);
    }
    client->machine = NULL;
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
            worker->handles[j] =
                (struct notices_handle){.check = &h->check, .events = h->plan->events};
        next_step(worker);
    }
    schedule_counts(client);
}

/* ---- Faults ---- */

static void restart(struct history *h, struct sim_server *server, enum service_keep keep) {
    sim_server_cut(server, -1, false);
    sim_server_tell_time(server);
    server->service->type->restart(server->service, keep);
    if (keep != SERVICE_KEEP_ALL)
        check_forgot(&h->check, server, -1,
                     keep == SERVICE_KEEP_NONE ? FORGOT_ALL : FORGOT_COUNTERS);
    if (keep != SERVICE_KEEP_ALL)
        counts_forgot(&h->counts, keep == SERVICE_KEEP_SOME);
}

/* Breaks the hold that has the server's last token. */
static void break_lock(struct history *h, struct sim_server *server,
                       const struct plan_fault *fault) {
    struct client *client = &h->clients[fault->client];
    const char *name = plan_name_text(fault->name);
    sim_server_tell_time(server);
    uint64_t token = server->service->type->last_token(server->service, name);
    hf_call *call;
    if (!token || !client->machine || client->machine->paused ||
        hf_break_start(client->handle, name, token, "sim", &call) < 0)
        return;
    hf_call_free(call); /* the result does not matter */
    sim_machine_schedule(client->machine);
}

static void step_server_clock(struct history *h, struct sim_server *server, int64_t by_us) {
    sim_clock_step(&server->wall, h->time.now_us, by_us);
    if (by_us > 0) {
        sim_server_tell_time(server);
        server->service->type->expire(server->service);
        /* Leases end early, and no promise covers that. */
        check_forgot(&h->check, server, -1, FORGOT_PARTS);
    } else {
        check_time_went_back(&h->check);
        counts_time_went_back(&h->counts);
        h->back_us -= by_us;
    }
}

static void client_fault(struct history *h, const struct plan_fault *fault, bool begins) {
    struct client *client = &h->clients[fault->client];
    if (fault->what->kind == FAULT_WALL) {
        sim_clock_step(&client->wall, h->time.now_us, begins ? -fault->amount * 1000 : 0);
        if (client->machine)
            client->machine->wall = client->wall;
    } else if (fault->what->kind == FAULT_PAUSE && client->machine) {
        if (begins)
            sim_machine_pause(client->machine);
        else
            sim_machine_resume(client->machine);
    } else if (fault->what->kind == FAULT_KILL && begins && client->machine) {
        client_end(client);
    } else if (fault->what->kind == FAULT_KILL && !begins && !client->machine) {
        client_start(client);
        for (int i = 0; i < PLAN_WORKERS_MAX; i++)
            if (client->workers[i].state != FINISHED)
                next_step(&client->workers[i]);
        schedule_counts(client);
    }
}

static void stand(struct sim_server *server, bool still) {
    if (server->service->type->stand) {
        sim_server_tell_time(server);
        server->service->type->stand(server->service, still);
    }
}

static void server_fault(struct history *h, struct sim_server *server,
                         const struct plan_fault *fault, bool begins) {
    struct sim_link *link = &h->net.links[fault->client][server->index];
    int machine = fault->client;
    switch (fault->what->kind) {
    case FAULT_CUT:
        if (begins)
            sim_server_cut(server, machine, false);
        break;
    case FAULT_LOSE_REPLY:
        link->lose_reply = begins;
        break;
    case FAULT_BLOCK_UP:
    case FAULT_BLOCK_DOWN:
    case FAULT_PARTITION:
        if (begins)
            sim_link_block(&h->net, machine, server->index, fault->what->kind != FAULT_BLOCK_DOWN,
                           fault->what->kind != FAULT_BLOCK_UP);
        else
            sim_link_unblock(&h->net, machine, server->index);
        if (!begins && fault->amount % 2)
            sim_server_cut(server, machine, false);
        break;
    case FAULT_SLOW:
        link->slow_us = begins ? fault->amount * 20 : 0;
        break;
    case FAULT_DELAY:
        sim_machine_delay(&h->net, machine, server->index, begins ? fault->amount * 200 : 0);
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
        stand(server, begins);
        break;
    case FAULT_RESTART_ALL:
    case FAULT_RESTART_NONE:
    case FAULT_RESTART_SOME:
        server->down = begins;
        if (begins)
            restart(h, server,
                    fault->what->kind == FAULT_RESTART_ALL    ? SERVICE_KEEP_ALL
                    : fault->what->kind == FAULT_RESTART_NONE ? SERVICE_KEEP_NONE
                                                              : SERVICE_KEEP_SOME);
        stand(server, begins);
        break;
    case FAULT_RESTART_SAVED:
        if (begins)
            server->service->type->save(server->service);
        else
            restart(h, server, SERVICE_KEEP_SAVED);
        break;
    case FAULT_STEP_FORWARD:
        if (begins)
            step_server_clock(h, server, fault->amount * 500);
        break;
    case FAULT_STEP_BACK:
        if (begins)
            step_server_clock(h, server, -fault->amount * 500);
        break;
    case FAULT_SLEW: /* the most that NTP does: +-500 ppm, which drift allows for */
        sim_clock_set_rate(&server->wall, h->time.now_us,
                           h->plan->server_ppm[server->index] +
                               (begins ? fault->amount % 1000 - 500 : 0));
        break;
    case FAULT_BREAK:
        if (begins)
            break_lock(h, server, fault);
        break;
    case FAULT_OWN:
        sim_server_tell_time(server);
        server->service->type->befall(server->service, fault->what->number, fault, begins);
        sim_net_end_connections(&h->net);
        break;
    case FAULT_WALL:
    case FAULT_PAUSE:
    case FAULT_KILL:
        break;
    }
}

static bool is_calm(const struct service_fault *fault) {
    return fault->calm || fault->kind == FAULT_BREAK || fault->kind == FAULT_WALL ||
           fault->kind == FAULT_SLEW;
}

static void change(struct history *h, const struct plan_fault *fault, bool begins) {
    int64_t settles_us = begins ? 0 : fault->what->settles_us;
    check_fault(
        &h->check, begins, fault->what->kind == FAULT_DELAY ? fault->amount * 200 : settles_us,
        fault->what->kind == FAULT_KILL || fault->what->kind == FAULT_PAUSE, is_calm(fault->what));
    if (fault->what->kind == FAULT_WALL || fault->what->kind == FAULT_PAUSE ||
        fault->what->kind == FAULT_KILL) {
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
        h->result->faults[fault->plan->what - h->plan->service->faults]++;
        tell(h, "*** %s (client %d, \"%s\", for %" PRId64 " ms, %s)",
             plan_fault_text(fault->plan->what), fault->plan->client,
             plan_name_text(fault->plan->name), fault->plan->for_us / 1000,
             servers_text(fault->plan->servers));
        fault->began = true;
        change(h, fault->plan, true);
        sim_event_set(&h->time, &fault->event, h->time.now_us + fault->plan->for_us);
        return;
    }
    tell(h, "*** over: %s", plan_fault_text(fault->plan->what));
    change(h, fault->plan, false);
}

/* ---- The history ---- */

static void server_executed(struct sim_server *server, int machine, const char *line, bool minor) {
    struct history *h = &the_history;
    h->result->requests++;
    if (h->story || !minor)
        tell(h, "    server %d: client %d %s", server->index, machine, line);
}

static struct sim_server *server_of(struct service_host *host) {
    return container_of(host, struct sim_server, host);
}

static void server_reports(struct service_host *host, const struct service_report *report) {
    check_reported(&the_history.check, server_of(host), report);
}

static void server_forgot(struct service_host *host, const char *name,
                          enum service_forgotten what) {
    check_forgot(&the_history.check, server_of(host), name ? plan_name_number(name) : -1, what);
    if (!name)
        counts_forgot(&the_history.counts, what != FORGOT_ALL);
}

static void server_serves_foreign(struct service_host *host, const char *name) {
    (void)host;
    check_foreign(&the_history.check, plan_name_number(name));
}

static void server_notes(struct service_host *host, const char *line) {
    (void)host;
    tell(&the_history, "%s", line);
}

static uint64_t server_random(struct service_host *host) {
    (void)host;
    return sim_random_next(&the_history.service_random);
}

static bool all_finished(const struct history *h) {
    for (int i = 0; i < h->plan->client_count; i++)
        for (int j = 0; j < PLAN_WORKERS_MAX; j++)
            if (h->clients[i].workers[j].state != FINISHED)
                return false;
    for (int i = 0; i < h->counts.count; i++)
        if (h->counts.steps[i].state != COUNTS_ENDED && !h->counts.steps[i].plan->left_out)
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

static void server_init(struct history *h, int index) {
    const struct plan *plan = h->plan;
    struct sim_server *server = &h->net.servers[index];
    sim_server_init(server, &h->net, index);
    server->host.report = server_reports;
    server->host.forgot = server_forgot;
    server->host.foreign = server_serves_foreign;
    server->host.note = server_notes;
    server->host.random = server_random;
    if (!the_services[index])
        the_services[index] = service_open(plan->service, &server->host);
    server->service = the_services[index];
    plan->service->reset(server->service);
    server->wall = (struct sim_clock){.shown_us = INT64_C(1000000) * WALL_START_S,
                                      .ppm = plan->server_ppm[index]};
    if (plan->voter_count == 1)
        return;
    sim_server_tell_time(server);
    plan->service->join(server->service, &(struct service_set){.server_count = plan->server_count,
                                                               .quorum = plan->quorum,
                                                               .number = index + 1,
                                                               .max_lease_ms = PLAN_MAX_LEASE_MS,
                                                               .durable = plan->durable});
}

/* Makes the servers the members of one ensemble, if the service has ensembles. */
static void unite_servers(struct history *h) {
    if (!h->plan->service->unite)
        return;
    for (int i = 0; i < h->plan->server_count; i++)
        h->net.servers[i].speaker = &h->net.servers[0];
    sim_server_tell_time(&h->net.servers[0]);
    h->plan->service->unite(the_services, h->plan->server_count);
}

static void start(struct history *h) {
    h->service_random = sim_random_of(h->plan->seed, SERVICE_RANDOM, 0);
    sim_time_init(&h->time);
    h->net.time = &h->time;
    h->net.server_count = h->plan->server_count;
    h->net.run = run;
    h->net.executed = server_executed;
    list_init(&h->net.pipes);
    for (int i = 0; i < h->plan->server_count; i++)
        server_init(h, i);
    unite_servers(h);
    h->check.plan = h->plan;
    h->check.net = &h->net;
    counts_init(&h->counts, &h->check);
    for (int i = 0; i < h->counts.count; i++)
        sim_event_add(&h->time, &h->counts.steps[i].due, count_due);
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
    return all_finished(h) && notices_complete(&h->check) &&
           h->time.now_us >= last_fault_us(h->plan);
}

static void live(struct history *h) {
    int64_t until_us = last_fault_us(h->plan) + PATIENCE_S * INT64_C(1000000);
    while (!h->check.verdict && !is_over(h))
        if (!sim_time_step(&h->time, until_us) && h->time.now_us >= until_us)
            break;
    if (!h->check.verdict && all_finished(h) && !notices_complete(&h->check))
        check_fail(&h->check, VERDICT_LIVENESS, "notices: there is no event of the end of a lock");
    if (!h->check.verdict && !all_finished(h))
        check_fail(&h->check, VERDICT_LIVENESS, "progress: somebody still waits after %d s",
                   PATIENCE_S);
}

static void finish(struct history *h) {
    for (int i = 0; i < h->plan->client_count; i++)
        if (h->clients[i].machine)
            client_end(&h->clients[i]);
    int64_t until_us = h->time.now_us + h->back_us + 2 * (PLAN_MAX_LEASE_MS + 26000) * 1000;
    while (sim_time_step(&h->time, until_us))
        ;
    for (int i = 0; i < h->plan->voter_count && !h->check.verdict; i++)
        check_remains(&h->check, &h->net.servers[i]);
    if (!h->check.verdict)
        counts_finish(&h->counts, &h->net.servers[0]);
    sim_net_end(&h->net);
    sim_time_free(&h->time);
}

void history_run(const struct plan *plan, bool story, struct history_result *ret_result) {
    struct history *h = &the_history;
    assert(plan->service->fault_count <= HISTORY_FAULTS_MAX);
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
