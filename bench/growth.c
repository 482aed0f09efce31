/* How costs grow: the same work with more names, waiters, holds, threads and processes. Each curve
 * should be flat or logarithmic.
 *
 *   names      a pair (acquire and release) of one of 10 to 1,000,000 names that the store knows
 *   waiters    a hand-off while 1 to 1,023 others wait for the same name: threads of one client,
 *              clients of one process, clients of eight processes
 *   holds      one renewal, while 10 to 100,000 holds are renewed by one client
 *   threads    pairs in a second, of 1 to 64 threads of one client, each with a name of its own
 *   processes  the same of 1 to 64 processes, each with a client
 *
 * on redis:, memory: and sqlite:. On redis:, the cost of the same requests sent by bare hiredis is
 * shown as well. All points of a curve take turns in each round.
 *
 * usage: bench-growth URL
 *
 * Give it a Redis server of its own on this host: token counters stay behind, in the databases 0 to
 * 6. */
#include "fleet.h"
#include "loads.h"
#include "redis_raw.h"
#include "result.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { POINTS_MAX = 8, SLICE_MS = 100, LABEL_SIZE = 64, ROUNDS_MOST = 7 };

static redisContext *info;

static int rounds(void) {
    return result_rounds() < ROUNDS_MOST ? result_rounds() : ROUNDS_MOST;
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- Stores ---- */

static char folder[] = "bench-growth-XXXXXX";

static const char *memory_space(int number) {
    static char url[LABEL_SIZE];
    snprintf(url, sizeof(url), "memory:growth-%d", number);
    return url;
}

static const char *sqlite_space(int number) {
    static char url[PATH_MAX + LABEL_SIZE], path[PATH_MAX];
    if (!getcwd(path, sizeof(path)))
        result_die("getcwd", strerror(errno));
    snprintf(url, sizeof(url), "sqlite:%s/%s/%d.db", path, folder, number);
    return url;
}

static const struct store {
    const char *name;
    const char *(*space)(int number); /* URLs of spaces that know nothing of each other's names */
    void (*visit_names)(struct fleet_member *member);
    bool is_shared; /* by processes */
    bool is_redis;
    int names, clients, holds; /* the most that are measured */
} stores[] = {
    {"redis", raw_url, load_visit_redis_names, true, true, 1000000, 1024, 100000},
    {"memory", memory_space, load_visit_names, false, false, 1000000, 1024, 100000},
    {"sqlite", sqlite_space, load_visit_names, true, false, 100000, 256, 10000},
};

enum { STORES = sizeof(stores) / sizeof(stores[0]) };

/* ---- Curves ---- */

struct curve {
    int count;
    double x[POINTS_MAX];
    struct fleet *fleets[POINTS_MAX], *bare[POINTS_MAX];
};

/* By point and round. */
typedef double values[POINTS_MAX][RESULT_ROUNDS_MAX];

struct slice {
    double us, steps, changes, cpu_us, scripts_us;
};

static double scripts_us(void) {
    return raw_cost(info).scripts_us;
}

/* (On a busy machine a slice may have to be longer, until something has happened.) */
static struct slice measure_slice(struct fleet *fleet) {
    fleet_go(fleet);
    double scripts = scripts_us();
    struct fleet_sample before = fleet_sample(fleet), after;
    do {
        pause_ms(result_slice_ns(SLICE_MS) / 1000000);
        after = fleet_sample(fleet);
    } while (after.steps == before.steps ||
             (before.changes > 0 && after.changes == before.changes));
    struct slice slice = {.us = after.us - before.us,
                          .steps = after.steps - before.steps,
                          .changes = after.changes - before.changes,
                          .cpu_us = after.cpu_us - before.cpu_us,
                          .scripts_us = scripts_us() - scripts};
    fleet_pause(fleet);
    return slice;
}

static void add_point(struct curve *curve, double x, const struct fleet_plan *plan,
                      const struct fleet_plan *bare) {
    curve->x[curve->count] = x;
    curve->fleets[curve->count] = fleet_start(plan);
    curve->bare[curve->count] = bare ? fleet_start(bare) : NULL;
    curve->count++;
}

static void end_fleets(struct curve *curve) {
    for (int i = 0; i < curve->count; i++) {
        fleet_end(curve->fleets[i]);
        if (curve->bare[i])
            fleet_end(curve->bare[i]);
    }
}

static const char *name_of(const char *what, const struct store *store) {
    static char name[LABEL_SIZE];
    snprintf(name, sizeof(name), "growth/%s/%s", what, store->name);
    return name;
}

static void report(const struct curve *curve, const struct result_curve *as, values *own,
                   values *bare) {
    for (int i = 0; i < curve->count; i++)
        result_point(as, curve->x[i], (*own)[i], bare ? (*bare)[i] : NULL, rounds());
}

/* ---- Names ---- */

static void measure_names_of(const struct store *store) {
    static values us;
    struct curve curve = {0};
    for (int names = 10; names <= result_scale(store->names, 100); names *= 10) {
        struct fleet_plan plan = {.url = store->space(curve.count + 1),
                                  .processes = 1,
                                  .threads = 1,
                                  .prepare = store->visit_names,
                                  .step = load_pair_of_many_names,
                                  .count = names};
        add_point(&curve, names, &plan, NULL);
    }
    for (int round = 0; round < rounds(); round++) {
        result_progress(name_of("names", store), round + 1, rounds());
        for (int i = 0; i < curve.count; i++) {
            struct slice slice = measure_slice(curve.fleets[i]);
            us[i][round] = slice.us / slice.steps;
        }
    }
    end_fleets(&curve);
    report(&curve,
           &(struct result_curve){.name = name_of("names", store),
                                  .title = "A pair of one of so many names",
                                  .x = "names",
                                  .unit = "us",
                                  .series = "holdfast"},
           &us, NULL);
}

static void measure_names(void) {
    for (int i = 0; i < STORES; i++)
        measure_names_of(&stores[i]);
}

/* ---- Waiters ---- */

struct hand_off {
    values us, cpu_us, scripts_us;
};

static void measure_hand_off(struct fleet *fleet, struct hand_off *ret, int i, int round) {
    struct slice slice = measure_slice(fleet);
    ret->us[i][round] = slice.us / slice.changes;
    ret->cpu_us[i][round] = slice.cpu_us / slice.changes;
    ret->scripts_us[i][round] = slice.scripts_us / slice.changes;
}

/* One or more processes; `bare` names the same without holdfast. */
static void measure_queue(const struct store *store, int processes, bool client_each,
                          const char *series, const char *bare) {
    static struct hand_off own, same;
    struct curve curve = {0};
    for (int members = 2; members <= result_scale(store->clients, 16);
         members *= members == 2 ? 2 : 4) {
        struct fleet_plan plan = {.url = store->space(0),
                                  .processes = processes < members ? processes : members,
                                  .client_each = client_each,
                                  .step = load_turn};
        plan.threads = members / plan.processes;
        struct fleet_plan without = {.processes = plan.processes,
                                     .threads = plan.threads,
                                     .prepare = load_bare_common_name,
                                     .step = load_bare_turn,
                                     .finish = load_bare_end};
        add_point(&curve, members - 1, &plan, bare ? &without : NULL);
    }
    for (int round = 0; round < rounds(); round++) {
        result_progress(name_of("waiters", store), round + 1, rounds());
        for (int i = 0; i < curve.count; i++) {
            measure_hand_off(curve.fleets[i], &own, i, round);
            if (bare)
                measure_hand_off(curve.bare[i], &same, i, round);
        }
    }
    end_fleets(&curve);
    struct result_curve as = {.x = "waiters", .unit = "us", .series = series, .reference = bare};
    as.name = name_of("waiters", store), as.title = "A hand-off while so many wait";
    report(&curve, &as, &own.us, &same.us);
    as.name = name_of("waiters-cpu", store), as.title = "CPU of the clients for a hand-off";
    report(&curve, &as, &own.cpu_us, &same.cpu_us);
    if (!store->is_redis)
        return;
    as.name = name_of("waiters-server", store);
    as.title = "Time in the server's scripts for a hand-off";
    report(&curve, &as, &own.scripts_us, &same.scripts_us);
}

static void measure_waiters(void) {
    for (int i = 0; i < STORES; i++) {
        const struct store *store = &stores[i];
        measure_queue(store, 1, false, "threads of one client", NULL);
        measure_queue(store, 1, true, "clients of one process",
                      store->is_redis ? "one process, bare" : NULL);
        if (store->is_shared)
            measure_queue(store, 8, true, "clients of 8 processes",
                          store->is_redis ? "8 processes, bare" : NULL);
    }
}

/* ---- Holds ---- */

/* Each hold is renewed once, while the program's thread sleeps. */
static void measure_renewals(const struct store *store, int holds, double *ret_cpu_us,
                             double *ret_scripts_us) {
    struct fleet_plan plan = {.url = store->space(0),
                              .processes = 1,
                              .threads = 1,
                              .prepare = load_hold_names,
                              .finish = load_release_names,
                              .count = holds};
    struct fleet *fleet = fleet_start(&plan);
    for (int round = 0; round < rounds(); round++) {
        result_progress(name_of("holds", store), round + 1, rounds());
        double scripts = scripts_us();
        struct fleet_sample before = fleet_sample(fleet);
        pause_ms(LOAD_LEASE_MS / 3);
        ret_cpu_us[round] = (fleet_sample(fleet).cpu_us - before.cpu_us) / holds;
        ret_scripts_us[round] = (scripts_us() - scripts) / holds;
    }
    fleet_end(fleet);
}

static void measure_holds_of(const struct store *store) {
    static values cpu, scripts;
    struct curve curve = {0};
    for (int holds = 10; holds <= result_scale(store->holds, 100); holds *= 10) {
        curve.x[curve.count] = holds;
        measure_renewals(store, holds, cpu[curve.count], scripts[curve.count]);
        curve.count++;
    }
    struct result_curve as = {.x = "holds", .unit = "us", .series = "holdfast"};
    as.name = name_of("holds", store), as.title = "CPU of the client for a renewal";
    report(&curve, &as, &cpu, NULL);
    if (!store->is_redis)
        return;
    as.name = name_of("holds-server", store);
    as.title = "Time in the server's scripts for a renewal";
    report(&curve, &as, &scripts, NULL);
}

static void measure_holds(void) {
    for (int i = 0; i < STORES; i++)
        measure_holds_of(&stores[i]);
}

/* ---- Threads and processes ---- */

static double rate_of(struct fleet *fleet) {
    struct slice slice = measure_slice(fleet);
    return slice.steps / slice.us * 1e6;
}

static void measure_rates(const struct store *store, bool of_threads) {
    static values own, bare;
    struct curve curve = {0};
    for (int count = 1; count <= result_scale(64, 2); count *= 2) {
        struct fleet_plan plan = {.url = store->space(0), .step = load_pair_of_own_name};
        struct fleet_plan same = {
            .prepare = load_bare_own_name, .step = load_bare_pair, .finish = load_bare_end};
        plan.processes = same.processes = of_threads ? 1 : count;
        plan.threads = same.threads = of_threads ? count : 1;
        add_point(&curve, count, &plan, store->is_redis ? &same : NULL);
    }
    const char *parties = of_threads ? "threads" : "processes";
    for (int round = 0; round < rounds(); round++) {
        result_progress(name_of(parties, store), round + 1, rounds());
        for (int i = 0; i < curve.count; i++) {
            own[i][round] = rate_of(curve.fleets[i]);
            if (store->is_redis)
                bare[i][round] = rate_of(curve.bare[i]);
        }
    }
    end_fleets(&curve);
    report(&curve,
           &(struct result_curve){.name = name_of(parties, store),
                                  .title = of_threads ? "Pairs of threads of one client"
                                                      : "Pairs of processes, a client each",
                                  .x = parties,
                                  .unit = "pairs/s",
                                  .series = "holdfast",
                                  .reference = store->is_redis ? "the same requests bare" : NULL},
           &own, &bare);
}

static void measure_threads(void) {
    for (int i = 0; i < STORES; i++)
        measure_rates(&stores[i], true);
}

static void measure_processes(void) {
    for (int i = 0; i < STORES; i++)
        if (stores[i].is_shared)
            measure_rates(&stores[i], false);
}

/* ---- */

/* A client has several descriptors. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw) {
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

int main(int argc, char **argv) {
    if (argc != 2)
        result_die("usage", "bench-growth URL");
    raw_find_server(argv[1]);
    allow_descriptors();
    if (!mkdtemp(folder))
        result_die(folder, strerror(errno));
    info = raw_connect();
    result_run((struct result_part[]){{"growth/names", measure_names},
                                      {"growth/waiters", measure_waiters},
                                      {"growth/holds", measure_holds},
                                      {"growth/threads", measure_threads},
                                      {"growth/processes", measure_processes}},
               5);
    redisFree(info);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}
