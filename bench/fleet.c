/* See fleet.h. What the processes share is in one anonymous mapping: the state, on whose futex
 * members sleep between slices, and the counters, each in a cache line of its own. */
#include "fleet.h"

#include "result.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAUSED, RUNNING, OVER };

struct counter {
    _Alignas(64) atomic_long value;
};

struct shared {
    atomic_uint state;
    struct counter idle; /* members that are paused */
    struct counter changes;
    atomic_int last; /* the last holder */
    struct counter steps[];
};

struct fleet {
    struct fleet_plan plan;
    int members;
    struct shared *shared;
    size_t shared_size;
    pid_t processes[FLEET_PROCESSES_MAX];
    clockid_t cpu[FLEET_PROCESSES_MAX];
};

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static double clock_us(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) < 0)
        result_die("clock of a process", strerror(errno));
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* ---- In the processes ---- */

static unsigned wait_for_go(struct shared *shared) {
    unsigned state;
    atomic_fetch_add(&shared->idle.value, 1);
    while ((state = atomic_load(&shared->state)) == PAUSED)
        syscall(SYS_futex, &shared->state, FUTEX_WAIT, PAUSED, NULL, NULL, 0);
    return state;
}

static void *member_main(void *arg) {
    struct fleet_member *member = arg;
    struct shared *shared = member->fleet->shared;
    while (wait_for_go(shared) == RUNNING) {
        atomic_fetch_sub(&shared->idle.value, 1);
        do {
            member->plan->step(member);
            atomic_fetch_add(&shared->steps[member->index].value, 1);
        } while (atomic_load(&shared->state) == RUNNING);
    }
    return NULL;
}

/* Asks to be killed when the parent ends, which may already have happened. */
static void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

static bool has_own_client(const struct fleet_member *member) {
    const struct fleet_plan *plan = member->plan;
    return plan->url && (plan->client_each || member->index % plan->threads == 0);
}

static void init_member(struct fleet_member *member, struct fleet *fleet, int index,
                        hf_client *first) {
    *member = (struct fleet_member){.plan = &fleet->plan,
                                    .fleet = fleet,
                                    .index = index,
                                    .client = first,
                                    .random = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(index + 1)};
    if (has_own_client(member) && hf_client_open(fleet->plan.url, NULL, &member->client) < 0)
        result_die("open", hf_last_error());
    if (fleet->plan.prepare)
        fleet->plan.prepare(member);
}

static void run_process(struct fleet *fleet, int process) {
    int count = fleet->plan.threads;
    struct fleet_member *members = calloc((size_t)count, sizeof(*members));
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));
    if (!members || !threads)
        result_die("fleet", strerror(errno));
    for (int i = 0; i < count; i++)
        init_member(&members[i], fleet, process * count + i, members[0].client);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, member_main, &members[i]))
            result_die("thread", strerror(errno));
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        if (fleet->plan.finish)
            fleet->plan.finish(&members[i]);
    for (int i = 0; i < count; i++)
        if (has_own_client(&members[i]))
            hf_client_close(members[i].client);
    free(members);
    free(threads);
}

void fleet_note_holder(struct fleet_member *member) {
    struct shared *shared = member->fleet->shared;
    if (atomic_exchange(&shared->last, member->index) != member->index)
        atomic_fetch_add(&shared->changes.value, 1);
}

/* ---- In the process that measures ---- */

/* A process that has failed has said why. */
static void check_processes(const struct fleet *fleet) {
    for (int i = 0; i < fleet->plan.processes; i++)
        if (waitpid(fleet->processes[i], NULL, WNOHANG) != 0)
            exit(1);
}

static void await_idle(const struct fleet *fleet) {
    while (atomic_load(&fleet->shared->idle.value) < fleet->members) {
        pause_ms(1);
        check_processes(fleet);
    }
}

static void set_state(struct fleet *fleet, unsigned state) {
    atomic_store(&fleet->shared->state, state);
    syscall(SYS_futex, &fleet->shared->state, FUTEX_WAKE, fleet->members, NULL, NULL, 0);
}

struct fleet *fleet_start(const struct fleet_plan *plan) {
    struct fleet *fleet = calloc(1, sizeof(*fleet));
    if (!fleet)
        result_die("fleet", strerror(errno));
    fleet->plan = *plan;
    fleet->members = plan->processes * plan->threads;
    fleet->shared_size =
        sizeof(struct shared) + (size_t)fleet->members * sizeof(fleet->shared->steps[0]);
    fleet->shared =
        mmap(NULL, fleet->shared_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fleet->shared == MAP_FAILED)
        result_die("mmap", strerror(errno));
    atomic_store(&fleet->shared->last, -1);
    fflush(stdout);
    pid_t parent = getpid();
    for (int i = 0; i < plan->processes; i++) {
        pid_t process = fork();
        if (process == 0) {
            die_with(parent);
            run_process(fleet, i);
            exit(0);
        }
        if (process < 0 || clock_getcpuclockid(process, &fleet->cpu[i]))
            result_die("fork", strerror(errno));
        fleet->processes[i] = process;
    }
    await_idle(fleet);
    return fleet;
}

void fleet_go(struct fleet *fleet) {
    struct shared *shared = fleet->shared;
    long *before = calloc((size_t)fleet->members, sizeof(*before));
    if (!before)
        result_die("fleet", strerror(errno));
    for (int i = 0; i < fleet->members; i++)
        before[i] = atomic_load(&shared->steps[i].value);
    set_state(fleet, RUNNING);
    for (int i = 0; i < fleet->members; i++)
        while (atomic_load(&shared->steps[i].value) == before[i]) {
            pause_ms(1);
            check_processes(fleet);
        }
    free(before);
}

struct fleet_sample fleet_sample(const struct fleet *fleet) {
    struct fleet_sample sample = {.us = clock_us(CLOCK_MONOTONIC)};
    sample.changes = (double)atomic_load(&fleet->shared->changes.value);
    for (int i = 0; i < fleet->members; i++)
        sample.steps += (double)atomic_load(&fleet->shared->steps[i].value);
    for (int i = 0; i < fleet->plan.processes; i++)
        sample.cpu_us += clock_us(fleet->cpu[i]);
    return sample;
}

void fleet_pause(struct fleet *fleet) {
    atomic_store(&fleet->shared->state, PAUSED);
    await_idle(fleet);
}

void fleet_end(struct fleet *fleet) {
    set_state(fleet, OVER);
    for (int i = 0; i < fleet->plan.processes; i++) {
        int status;
        if (waitpid(fleet->processes[i], &status, 0) < 0 || status != 0)
            exit(1);
    }
    munmap(fleet->shared, fleet->shared_size);
    free(fleet);
}
