#include "sim/plan.h"

#include "sim/clock.h"
#include "sim/service.h"

#include <string.h>

enum {
    PLAN = 1,
    PLAN_SET = 5,
    PLAN_MORE = 6,
    PLAN_COUNTING = 7,
    SECOND_US = 1000000,
    SET_STEPS_MAX = 6,
    SETS_ONE_IN = 4
};

/* Longer than the time since 1970: the wall clock of a client that is this far behind is
 * negative. */
static const int64_t LONG_AGO_US = INT64_C(4000000000000000);

const char plan_counter_name[] = "n";

const char *plan_name_text(int name) {
    static const char *const names[] = {"a", "b"};
    return names[name];
}

int plan_name_number(const char *text) {
    return strcmp(text, plan_name_text(0)) == 0 ? 0 : 1;
}

const char *plan_fault_text(const struct service_fault *fault) {
    static const char *const texts[] = {
#define X(name, text) text,
        PLAN_FAULTS(X)
#undef X
    };
    return fault->kind == FAULT_OWN ? fault->text : texts[fault->kind];
}

static void make_name(struct plan_name *name, struct sim_random *random) {
    switch (sim_random_below(random, 4)) {
    case 0:
        *name = (struct plan_name){STORE_LOCK, STORE_ALL, .shares = true};
        break;
    case 1:
        *name = (struct plan_name){STORE_PERMITS, (uint32_t)sim_random_between(random, 2, 4)};
        break;
    default:
        *name = (struct plan_name){STORE_LOCK, STORE_ALL};
    }
}

static void make_client(struct plan_client *client, struct sim_random *random) {
    static const int64_t wait_leases_ms[] = {600, 1500, 3000};
    client->now_ppm = sim_random_between(random, -3000, 3000);
    client->wall_off_us = sim_random_between(random, -2 * SECOND_US, 2 * SECOND_US);
    client->wait_lease_ms = wait_leases_ms[sim_random_below(random, 3)];
    client->latency_us = sim_random_between(random, 50, 3000);
}

static int64_t choose_hold_us(struct sim_random *random, int64_t lease_ms) {
    switch (sim_random_below(random, 3)) {
    case 0:
        return sim_random_between(random, 0, 5000);
    case 1:
        return sim_random_between(random, 0, lease_ms * 500);
    default: /* needs its renewals */
        return sim_random_between(random, lease_ms * 500, lease_ms * 3000);
    }
}

static uint32_t choose_weight(const struct plan_name *name, struct sim_random *random) {
    bool permits = name->kind == STORE_PERMITS;
    uint32_t most = permits ? name->capacity : name->shares ? 2 : 1;
    uint32_t weight = (uint32_t)sim_random_between(random, 1, most);
    return permits || weight < most ? weight : STORE_ALL;
}

static void make_step(struct plan *plan, struct plan_step *step, struct sim_random *random) {
    static const int64_t leases_ms[] = {200, 600, 1500, 4000};
    const struct plan_name *name;
    step->client = (uint8_t)sim_random_below(random, (uint64_t)plan->client_count);
    step->worker = (uint8_t)sim_random_below(random, PLAN_WORKERS_MAX);
    step->name = (uint8_t)sim_random_below(random, (uint64_t)plan->name_count);
    name = &plan->names[step->name];
    step->weight = choose_weight(name, random);
    step->after_us = sim_random_between(random, 0, sim_random_one_in(random, 3) ? 2000000 : 50000);
    step->lease_ms = leases_ms[sim_random_below(random, 4)];
    step->wait_ms = sim_random_one_in(random, 6)   ? 0
                    : sim_random_one_in(random, 4) ? sim_random_between(random, 50, 5000)
                                                   : HF_FOREVER;
    step->min_left_ms = sim_random_one_in(random, 8) ? step->lease_ms / 2 : 0;
    step->hold_us = choose_hold_us(random, step->lease_ms);
    step->cancel_us = sim_random_one_in(random, 10) ? sim_random_between(random, 1, 2000000) : 0;
    step->renew_ms = sim_random_one_in(random, 5) ? sim_random_between(random, 100, 5000) : 0;
    step->barges = sim_random_one_in(random, 12);
    step->renews = !sim_random_one_in(random, 5);
}

static void make_fault(struct plan *plan, struct plan_fault *fault,
                       const struct service_fault *what, struct sim_random *random) {
    fault->what = what;
    fault->at_us = sim_random_between(random, 0, 5 * SECOND_US);
    fault->for_us =
        sim_random_between(random, 1000, sim_random_one_in(random, 2) ? 500000 : 6000000);
    fault->client = (uint8_t)sim_random_below(random, (uint64_t)plan->client_count);
    fault->name = (uint8_t)sim_random_below(random, (uint64_t)plan->name_count);
    fault->servers = 1;
    fault->amount = sim_random_between(random, 1000, 20000);
}

/* A history has at most three kinds of faults, and each several times, so that there are histories
 * with a single kind. */
static void make_faults(struct plan *plan, struct sim_random *random) {
    const struct service_fault *kinds[3];
    size_t kind_count = sim_random_below(random, 4);
    for (size_t i = 0; i < kind_count; i++)
        kinds[i] = &plan->service->faults[sim_random_below(random, plan->service->fault_count)];
    plan->fault_count = kind_count ? (int)sim_random_between(random, 1, PLAN_FAULTS_MAX) : 0;
    for (int i = 0; i < plan->fault_count; i++)
        make_fault(plan, &plan->faults[i], kinds[sim_random_below(random, kind_count)], random);
}

/* A majority cannot count permits. */
static void forbid_permits(struct plan *plan) {
    for (int i = 0; i < plan->name_count; i++) {
        if (plan->names[i].kind == STORE_PERMITS)
            plan->names[i] = (struct plan_name){STORE_LOCK, STORE_ALL};
    }
    for (int i = 0; i < plan->step_count; i++) {
        if (!plan->names[plan->steps[i].name].shares)
            plan->steps[i].weight = STORE_ALL;
    }
}

static uint8_t choose_servers(int count, struct sim_random *random) {
    return (uint8_t)(sim_random_one_in(random, 4) ? sim_random_between(random, 1, (1 << count) - 1)
                                                  : 1 << sim_random_below(random, (uint64_t)count));
}

/* Turns a plan for one server into one for a set. Most faults affect one of its servers. A step
 * takes the simulator several times as long as with one server, so there are fewer. */
static void make_set(struct plan *plan, struct sim_random *random) {
    static const int64_t timeouts_ms[] = {20, 50, 200};
    int count = sim_random_one_in(random, 3) ? 5 : 3, majority = count / 2 + 1;
    plan->server_count = count;
    plan->quorum =
        sim_random_one_in(random, 4) ? (int)sim_random_between(random, majority, count) : majority;
    if (plan->step_count > SET_STEPS_MAX)
        plan->step_count = SET_STEPS_MAX;
    plan->node_timeout_ms = timeouts_ms[sim_random_below(random, 3)];
    plan->listed_twice = sim_random_one_in(random, 40);
    plan->durable = sim_random_one_in(random, 3);
    plan->far = sim_random_one_in(random, 4); /* an acquire takes much of a short lease */
    if (plan->far)
        plan->node_timeout_ms = 500;
    bool is_timeless = sim_random_one_in(random, 3); /* tokens come from counters alone */
    if (is_timeless) {
        for (int i = 0; i < plan->client_count; i++)
            plan->clients[i].wall_off_us -= LONG_AGO_US;
    }
    for (int i = 1; i < count; i++)
        plan->server_ppm[i] = sim_random_between(random, -3000, 3000);
    for (int i = 0; i < plan->fault_count; i++)
        plan->faults[i].servers = choose_servers(count, random);
    for (int i = 0; i < plan->step_count; i++) {
        struct plan_step *step = &plan->steps[i];
        if (step->lease_ms == 4000) /* here the longest that is allowed */
            step->lease_ms = PLAN_MAX_LEASE_MS;
        if (plan->far && step->lease_ms < 600)
            step->lease_ms = 600;
    }
    forbid_permits(plan);
}

/* Turns a plan for one server into one for an ensemble, mostly of several members. Most faults
 * affect one of them. */
static void make_ensemble(struct plan *plan, struct sim_random *random) {
    static const int counts[] = {1, 3, 3, 5};
    plan->server_count = counts[sim_random_below(random, 4)];
    for (int i = 0; i < plan->fault_count; i++)
        plan->faults[i].servers = choose_servers(plan->server_count, random);
}

/* Makes most leases at least as long as the service's shortest. A shorter one is granted for longer
 * than was asked for, and so hides errors. */
static void lengthen_leases(struct plan *plan) {
    for (int i = 0; i < plan->step_count; i++) {
        struct plan_step *step = &plan->steps[i];
        if (i % 4 && step->lease_ms < plan->service->least_lease_ms)
            step->lease_ms = plan->service->least_lease_ms;
    }
}

/* No client can barge where the order is fixed. */
static void forbid_barging(struct plan *plan) {
    for (int i = 0; i < plan->step_count; i++)
        plan->steps[i].barges = false;
}

/* What edition 2 adds. It has its own random numbers, so the rest of a plan stays the same. */
static void add_more(struct plan *plan, struct sim_random *random) {
    plan->events = sim_random_one_in(random, 2);
    for (int i = 0; i < plan->step_count; i++) {
        struct plan_step *step = &plan->steps[i];
        const struct plan_name *name = &plan->names[step->name];
        const struct plan_name *other = &plan->names[!step->name];
        step->wants_fd = sim_random_one_in(random, 4);
        step->reenters = sim_random_one_in(random, 8);
        step->renew_again_ms =
            sim_random_one_in(random, 8) ? sim_random_between(random, 100, 5000) : 0;
        if (name->kind == STORE_PERMITS && sim_random_one_in(random, 4))
            step->capacity = step->weight + (uint32_t)sim_random_below(random, 3);
        if (plan->name_count == 2 && !step->reenters && sim_random_one_in(random, 4))
            step->other_weight = choose_weight(other, random);
    }
}

/* What edition 3 adds, to some plans. Several steps of a client may be under way at once. */
static void add_counts(struct plan *plan, struct sim_random *random) {
    enum { HOUR_MS = 3600000 }; /* longer than a history, so the counter does not expire in it */
    if (!sim_random_one_in(random, 2) || !plan->service->find_counter || plan->voter_count > 1)
        return;
    bool ends = sim_random_one_in(random, 2);
    plan->count_expiry_ms = ends && !plan->service->counters_stay ? HOUR_MS : 0;
    plan->count_count = (int)sim_random_between(random, 2, PLAN_COUNTS_MAX);
    for (int i = 0; i < plan->count_count; i++) {
        struct plan_count *count = &plan->counts[i];
        count->client = (uint8_t)sim_random_below(random, (uint64_t)plan->client_count);
        count->op = sim_random_one_in(random, 6)   ? HF_COUNT_GET
                    : sim_random_one_in(random, 5) ? HF_COUNT_CAS
                                                   : HF_COUNT_ADD;
        count->at_us = sim_random_between(random, 0, 6 * SECOND_US);
        count->wait_ms = sim_random_one_in(random, 5) ? sim_random_between(random, 1, 500)
                                                      : sim_random_between(random, 1000, 30000);
    }
}

void plan_make(struct plan *plan, uint64_t seed, const struct plan_choice *choice) {
    struct sim_random random = sim_random_of(seed, PLAN, 0);
    struct sim_random set_random = sim_random_of(seed, PLAN_SET, 0);
    struct sim_random more_random = sim_random_of(seed, PLAN_MORE, 0);
    struct sim_random count_random = sim_random_of(seed, PLAN_COUNTING, 0);
    *plan = (struct plan){.seed = seed, .service = choice->service, .server_count = 1, .quorum = 1};
    plan->server_ppm[0] = sim_random_between(&random, -3000, 3000);
    plan->client_count = (int)sim_random_between(&random, 1, PLAN_CLIENTS_MAX);
    plan->name_count = sim_random_one_in(&random, 3) ? 2 : 1;
    for (int i = 0; i < plan->name_count; i++)
        make_name(&plan->names[i], &random);
    for (int i = 0; i < plan->client_count; i++)
        make_client(&plan->clients[i], &random);
    plan->step_count = (int)sim_random_between(&random, 2, PLAN_STEPS_MAX);
    for (int i = 0; i < plan->step_count; i++)
        make_step(plan, &plan->steps[i], &random);
    make_faults(plan, &random);
    bool is_set = sim_random_one_in(&set_random, SETS_ONE_IN) || choice->mix == PLAN_SETS;
    if (is_set && plan->service->join)
        make_set(plan, &set_random);
    plan->voter_count = plan->server_count;
    if (plan->service->unite)
        make_ensemble(plan, &set_random);
    lengthen_leases(plan);
    if (plan->service->driver->capabilities & STORE_IN_ORDER)
        forbid_barging(plan);
    for (int i = 0; i < plan->step_count; i++)
        plan->steps[i].capacity = plan->names[plan->steps[i].name].capacity;
    if (choice->edition > 1)
        add_more(plan, &more_random);
    if (choice->edition > 2)
        add_counts(plan, &count_random);
}
