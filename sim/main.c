/* The simulator's command.
 *
 *    sim [-s SERVICE] [-q] [-e EDITION] SEED
 *                             one history, told as a story
 *    sim [-s SERVICE] [-q] [-e EDITION] -n COUNT [-f FIRST] [-j JOBS]
 *                             many, in several processes; what went wrong, how often, and how fast
 *
 * -s chooses the service (service.h) that the clients use, by its scheme. -e uses the plans of an
 * earlier edition, for seeds that were found with it. With -q all histories use the quorum store;
 * without it, one in four does, if the quorum store can use the service.
 *
 * A history that fails is made shorter by leaving out everything that is not needed for the
 * failure, and is then printed as a story. One in a hundred is run twice: the same seed must give
 * the same history. The digest of many is the sum of their hashes: if a change to the code leaves
 * the digest unchanged, it changed no history.
 *
 * Exit status: 0; 1 safety; 2 liveness; 3 a history that was not the same twice; 64 usage; 70 the
 * simulator itself failed. */
#include "sim/history.h"
#include "sim/service.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64, TWICE_EACH = 100, EXIT_NOT_SAME = 3, EXIT_USAGE = 64 };

static struct plan_choice main_choice = {.mix = PLAN_ANY, .edition = PLAN_EDITION};

struct job {
    uint64_t seed;   /* the one that is being run */
    uint64_t digest; /* the sum of the histories' hashes */
    uint64_t histories, requests, grants, losses, counts, events;
    double virtual_s;
    uint64_t faults[HISTORY_FAULTS_MAX];
    bool failed, not_same;
};

/* Shared by the processes. Each stops when it is past the first seed that fails, so which seed is
 * reported does not depend on how fast they are. */
struct jobs {
    _Atomic uint64_t end; /* the first seed that need not be run any more */
    struct job job[JOBS_MAX];
};

static void add(struct job *job, const struct history_result *result) {
    job->histories++;
    job->digest += result->hash;
    job->requests += result->requests;
    job->grants += result->grants;
    job->losses += result->losses;
    job->counts += result->counts;
    job->events += result->events;
    job->virtual_s += (double)result->lasted_us / 1e6;
    for (int i = 0; i < HISTORY_FAULTS_MAX; i++)
        job->faults[i] += result->faults[i];
}

static bool is_same(const struct plan *plan, const struct history_result *result) {
    struct history_result again;
    history_run(plan, false, &again);
    return again.hash == result->hash;
}

static void lower_end(struct jobs *jobs, uint64_t seed) {
    uint64_t end = jobs->end;
    while (seed < end && !atomic_compare_exchange_weak(&jobs->end, &end, seed))
        ;
}

static void run_job(struct jobs *jobs, struct job *job, uint64_t first, uint64_t stride) {
    for (uint64_t seed = first; seed < jobs->end; seed += stride) {
        struct plan plan;
        struct history_result result;
        job->seed = seed;
        plan_make(&plan, seed, &main_choice);
        history_run(&plan, false, &result);
        add(job, &result);
        job->failed = result.verdict;
        job->not_same = !job->failed && seed % TWICE_EACH == 0 && !is_same(&plan, &result);
        if (job->failed || job->not_same) {
            lower_end(jobs, seed);
            return;
        }
    }
}

/* ---- Shorter ---- */

static bool fails_alike(const struct plan *plan, const struct history_result *wanted) {
    struct history_result result;
    history_run(plan, false, &result);
    size_t word = strcspn(wanted->what, ":");
    return result.verdict == wanted->verdict && strncmp(result.what, wanted->what, word) == 0;
}

static bool leave_out(struct plan *plan, bool *left_out, const struct history_result *wanted) {
    if (*left_out)
        return false;
    *left_out = true;
    if (fails_alike(plan, wanted))
        return true;
    *left_out = false;
    return false;
}

static void shorten(struct plan *plan, const struct history_result *wanted) {
    bool shorter;
    do {
        shorter = false;
        for (int i = 0; i < plan->fault_count; i++)
            shorter |= leave_out(plan, &plan->faults[i].left_out, wanted);
        for (int i = plan->count_count; i > 0; i--)
            shorter |= leave_out(plan, &plan->counts[i - 1].left_out, wanted);
        for (int i = plan->step_count; i > 0; i--)
            shorter |= leave_out(plan, &plan->steps[i - 1].left_out, wanted);
    } while (shorter);
}

static int exit_code(enum verdict verdict) {
    return verdict == VERDICT_SAFETY ? 1 : verdict == VERDICT_LIVENESS ? 2 : 0;
}

static int tell_failure(uint64_t seed) {
    struct plan plan;
    struct history_result result;
    plan_make(&plan, seed, &main_choice);
    history_run(&plan, false, &result);
    printf("seed %" PRIu64 " fails: %s\n", seed, result.what);
    fflush(stdout); /* for people who do not want to wait for the rest */
    printf("the shortest history found that fails in this way:\n\n");
    shorten(&plan, &result);
    history_run(&plan, true, &result);
    return exit_code(result.verdict);
}

/* ---- Many ---- */

static void print_sum(const struct job *jobs, int count, double seconds) {
    struct job sum = {0};
    for (int i = 0; i < count; i++) {
        sum.histories += jobs[i].histories;
        sum.digest += jobs[i].digest;
        sum.requests += jobs[i].requests;
        sum.grants += jobs[i].grants;
        sum.losses += jobs[i].losses;
        sum.counts += jobs[i].counts;
        sum.virtual_s += jobs[i].virtual_s;
        for (int j = 0; j < HISTORY_FAULTS_MAX; j++)
            sum.faults[j] += jobs[i].faults[j];
    }
    printf("%" PRIu64 " histories in %.1f s, %.0f each second; %" PRIu64 " requests, %" PRIu64
           " grants, %" PRIu64 " losses, %" PRIu64 " counts, %.0f hours of virtual time\n",
           sum.histories, seconds, (double)sum.histories / seconds, sum.requests, sum.grants,
           sum.losses, sum.counts, sum.virtual_s / 3600);
    for (size_t i = 0; i < main_choice.service->fault_count; i++)
        printf("%10" PRIu64 "  %s\n", sum.faults[i],
               plan_fault_text(&main_choice.service->faults[i]));
    printf("digest %016" PRIx64 "\n", sum.digest);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A process that crashed has also stopped at a seed. */
static int reap(struct jobs *jobs, struct job *job, pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    if (status) {
        const char *how = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
                              ? "failed an assertion"
                              : "ended the simulator itself";
        printf("seed %" PRIu64 " %s\n", job->seed, how);
        lower_end(jobs, job->seed);
        return 1;
    }
    if (job->not_same) {
        printf("seed %" PRIu64 " did not give the same history twice\n", job->seed);
        return EXIT_NOT_SAME;
    }
    return 0;
}

static int run_many(uint64_t first, uint64_t count, int job_count) {
    struct jobs *jobs =
        mmap(NULL, sizeof(*jobs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[JOBS_MAX];
    double began_s = now_s();
    if (jobs == MAP_FAILED)
        return 70;
    jobs->end = first + count;
    for (int i = 0; i < job_count; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            return 70;
        if (pids[i] == 0) {
            run_job(jobs, &jobs->job[i], first + (uint64_t)i, (uint64_t)job_count);
            _exit(0);
        }
    }
    int code = 0;
    for (int i = 0; i < job_count; i++) {
        int failure = reap(jobs, &jobs->job[i], pids[i]);
        code = failure ? failure : code;
    }
    print_sum(jobs->job, job_count, now_s() - began_s);
    for (int i = 0; i < job_count && !code; i++) {
        if (jobs->job[i].failed && jobs->job[i].seed == jobs->end)
            code = tell_failure(jobs->end);
    }
    munmap(jobs, sizeof(*jobs));
    return code;
}

static int run_one(uint64_t seed) {
    struct plan plan;
    struct history_result result;
    plan_make(&plan, seed, &main_choice);
    history_run(&plan, true, &result);
    printf("\nhash %016" PRIx64 "\n", result.hash);
    return exit_code(result.verdict);
}

static int usage(void) {
    fprintf(stderr, "usage: sim [-s SERVICE] [-q] [-e EDITION] SEED\n"
                    "       sim [-s SERVICE] [-q] [-e EDITION] -n COUNT [-f FIRST] [-j JOBS]\n");
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    uint64_t count = 0, first = 1;
    int jobs = (int)sysconf(_SC_NPROCESSORS_ONLN), option;
    main_choice.service = service_find(NULL);
    while ((option = getopt(argc, argv, "n:f:j:s:e:q")) != -1) {
        if (option == 'n')
            count = strtoull(optarg, NULL, 10);
        else if (option == 'f')
            first = strtoull(optarg, NULL, 10);
        else if (option == 'j')
            jobs = atoi(optarg);
        else if (option == 'e')
            main_choice.edition = atoi(optarg);
        else if (option == 's')
            main_choice.service = service_find(optarg);
        else if (option == 'q')
            main_choice.mix = PLAN_SETS;
        else
            return usage();
    }
    if (jobs < 1 || jobs > JOBS_MAX || !main_choice.service)
        return usage();
    if (count)
        return run_many(first, count, jobs);
    return optind == argc - 1 ? run_one(strtoull(argv[optind], NULL, 10)) : usage();
}
