#include "sim/plan.h"

#include "sim/clock.h"

enum { PLAN = 1, SECOND_US = 1000000 };

const char *plan_fault_name(enum fault_kind kind) {
    static const char *const names[] = {
#define X(name, text) #name,
        PLAN_FAULTS(X)
#undef X
    };
    return names[kind];
}

const char *plan_fault_text(enum fault_kind kind) {
    static const char *const texts[] = {
#define X(name, text) text,
        PLAN_FAULTS(X)
#undef X
    };
    return texts[kind];
}

static void make_name(struct plan_name *name, struct sim_random *random) {
    switch (sim_random_below(random, 4)) {
    case 0:
        *name = (struct plan_name){STORE_RW, STORE_ALL};
        break;
    case 1:
        *name = (struct plan_name){STORE_PERMITS, (uint32_t)sim_random_between(random, 2, 4)};
        break;
    default:
        *name = (struct plan_name){STORE_MUTEX, 1};
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

static void make_step(struct plan *plan, struct plan_step *step, struct sim_random *random) {
    static const int64_t leases_ms[] = {200, 600, 1500, 4000};
    const struct plan_name *name;
    step->client = (uint8_t)sim_random_below(random, (uint64_t)plan->client_count);
    step->worker = (uint8_t)sim_random_below(random, PLAN_WORKERS_MAX);
    step->name = (uint8_t)sim_random_below(random, (uint64_t)plan->name_count);
    name = &plan->names[step->name];
    step->weight = name->kind == STORE_RW ? (sim_random_one_in(random, 2) ? 1 : STORE_ALL)
                                          : (uint32_t)sim_random_between(random, 1, name->capacity);
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

static void make_fault(struct plan *plan, struct plan_fault *fault, enum fault_kind kind,
                       struct sim_random *random) {
    fault->kind = kind;
    fault->at_us = sim_random_between(random, 0, 5 * SECOND_US);
    fault->for_us =
        sim_random_between(random, 1000, sim_random_one_in(random, 2) ? 500000 : 6000000);
    fault->client = (uint8_t)sim_random_below(random, (uint64_t)plan->client_count);
    fault->name = (uint8_t)sim_random_below(random, (uint64_t)plan->name_count);
    fault->amount = sim_random_between(random, 1000, 20000);
}

/* A history has few kinds of faults, and those several times: so each kind gets to be alone, too. */
static void make_faults(struct plan *plan, struct sim_random *random) {
    enum fault_kind kinds[3];
    size_t kind_count = sim_random_below(random, 4);
    for (size_t i = 0; i < kind_count; i++)
        kinds[i] = (enum fault_kind)sim_random_below(random, FAULT_KINDS);
    plan->fault_count = kind_count ? (int)sim_random_between(random, 1, PLAN_FAULTS_MAX) : 0;
    for (int i = 0; i < plan->fault_count; i++)
        make_fault(plan, &plan->faults[i], kinds[sim_random_below(random, kind_count)], random);
}

void plan_make(struct plan *plan, uint64_t seed) {
    struct sim_random random = sim_random_of(seed, PLAN, 0);
    *plan = (struct plan){.seed = seed};
    plan->server_ppm = sim_random_between(&random, -3000, 3000);
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
}
