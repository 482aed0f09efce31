/* holdfast bench: how fast locks are on this store, measured with real locks under names of our
 * own, and what follows for the user: the shortest sensible lease, how many locks a second, and
 * what limits them.
 *
 * Four cases, each for the same time. A case is a crew of threads that take turns with locks until
 * the time is up or a signal arrives; the main thread waits for either. */
#include "cli/cli.h"
#include "cli/look.h"
#include "cli/options.h"
#include "cli/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    FOR_DEFAULT_MS = 2000,
    CLIENTS_DEFAULT = 16,
    CLIENTS_MOST = 256,
    PREFIX_SIZE = 200,
    NAME_SIZE = 240,
    PATIENCE_MS = 10000, /* for a store that does not answer */
    LEASE_LEAST_MS = 1000,
    LEASE_ROUND_TRIPS = 30,
    STEP_MS = 20, /* between two looks at whether a crew has finished */
};

struct settings {
    int64_t for_ms, clients, ttl_ms;
    const char *prefix;
};

#define AT(field) offsetof(struct settings, field)
static const struct option options[] = {
    {0, OPTION_DURATION, "for", AT(for_ms), "DUR", "measure each case for this long (2s)"},
    {0, OPTION_NUMBER, "clients", AT(clients), "N", "how many threads or clients (16)"},
    {0, OPTION_DURATION, "ttl", AT(ttl_ms), "DUR", "lease (30s)", "30s"},
    {0, OPTION_TEXT, "prefix", AT(prefix), "PREFIX",
     "what the names of the locks begin with (bench-HOST-PID-)"},
    {0},
};
#undef AT

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int64_t cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void sleep_ns(int64_t ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

/* ---- Times ---- */

/* A histogram of times. Each power of two has 32 buckets, so a percentile is accurate to 3 %,
 * whatever the number of samples. */
enum { FINE_BITS = 5, FINE = 1 << FINE_BITS, BUCKETS = 64 * FINE };

struct times {
    uint32_t counts[BUCKETS];
    int64_t total;
};

static size_t bucket_of(int64_t ns) {
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    if (value < FINE)
        return (size_t)value;
    int shift = 63 - __builtin_clzll(value) - FINE_BITS;
    return (size_t)(shift + 1) * FINE + (size_t)((value >> shift) & (FINE - 1));
}

static int64_t bucket_start(size_t bucket) {
    if (bucket < FINE)
        return (int64_t)bucket;
    return (int64_t)(FINE + bucket % FINE) << (bucket / FINE - 1);
}

static void times_add(struct times *times, int64_t ns) {
    times->counts[bucket_of(ns)]++;
    times->total++;
}

static void times_merge(struct times *into, const struct times *from) {
    for (size_t i = 0; i < BUCKETS; i++)
        into->counts[i] += from->counts[i];
    into->total += from->total;
}

/* The time that `per_mille` of the samples did not exceed; 0 if there are no samples. */
static int64_t times_at(const struct times *times, int64_t per_mille) {
    int64_t left = (times->total * per_mille + 999) / 1000;
    for (size_t i = 0; i < BUCKETS; i++) {
        left -= times->counts[i];
        if (times->total && left <= 0)
            return bucket_start(i);
    }
    return 0;
}

/* ---- A crew ---- */

struct bench;

struct worker {
    struct bench *bench;
    int number;
    pthread_t thread;
    hf_client *client;
    char name[NAME_SIZE];
    struct times times;
    int64_t grants;
    int64_t changes; /* grants of a lock that another worker had before */
    int error;
    char why[1024];
};

struct bench {
    struct cli *cli;
    struct settings s;
    char prefix[PREFIX_SIZE];
    hf_client *clients[CLIENTS_MOST];
    int client_count;
    struct worker *workers;
    int worker_count;
    atomic_int running;
    atomic_bool over;
    atomic_int last; /* who had the lock last, if all want the same one */
    /* Hand-off: whose turn it is to ask, when the other began to release, and how long a holder
     * waits before it does, so that the other is in the queue by then. */
    sem_t turns[2];
    _Atomic int64_t release_ns;
    int64_t pause_ns;
    int signal; /* that ended the bench; 0: none */
};

/* What a case showed. */
struct outcome {
    struct times times;
    double rate;         /* grants a second */
    double cores;        /* that this process kept busy */
    int64_t least, most; /* grants of a worker */
};

static bool note(struct worker *w, int error) {
    if (error >= 0)
        return true;
    if (!atomic_exchange(&w->bench->over, true) || error != HF_CANCELLED) {
        w->error = error;
        snprintf(w->why, sizeof(w->why), "%s", hf_last_error());
    }
    return false;
}

static bool acquire(struct worker *w, hf_hold **ret_hold) {
    hf_acquire_options wanted = HF_ACQUIRE_OPTIONS_INIT;
    wanted.wait_ms = PATIENCE_MS + w->bench->s.for_ms;
    wanted.lease_ms = w->bench->s.ttl_ms;
    wanted.label = "holdfast bench";
    return note(w, hf_acquire(w->client, w->name, &wanted, ret_hold));
}

static bool release(struct worker *w, hf_hold *hold) {
    bool is_done = note(w, hf_release(hold));
    hf_hold_free(hold);
    return is_done;
}

/* Takes and releases the lock repeatedly, and records how long it took to get it. */
static void *take_turns(void *arg) {
    struct worker *w = arg;
    hf_hold *hold;
    while (!atomic_load(&w->bench->over)) {
        int64_t asked_ns = now_ns();
        if (!acquire(w, &hold))
            break;
        times_add(&w->times, now_ns() - asked_ns);
        w->grants++;
        w->changes += atomic_exchange(&w->bench->last, w->number) != w->number;
        if (!release(w, hold))
            break;
    }
    atomic_fetch_sub(&w->bench->running, 1);
    return NULL;
}

/* Two threads: each asks while the other has the lock, and records the time from the other's
 * release to its own grant. */
static void *hand_over(void *arg) {
    struct worker *w = arg;
    struct bench *b = w->bench;
    hf_hold *hold;
    for (;;) {
        while (sem_wait(&b->turns[w->number]) < 0)
            ;
        if (atomic_load(&b->over) || !acquire(w, &hold))
            break;
        int64_t since_ns = atomic_load(&b->release_ns);
        if (since_ns)
            times_add(&w->times, now_ns() - since_ns);
        w->grants++;
        bool was_last = atomic_load(&b->over);
        sem_post(&b->turns[!w->number]);
        if (!was_last)
            sleep_ns(b->pause_ns);
        atomic_store(&b->release_ns, now_ns());
        if (!release(w, hold))
            break;
    }
    sem_post(&b->turns[!w->number]);
    atomic_fetch_sub(&b->running, 1);
    return NULL;
}

/* ---- A case ---- */

/* The signals that end the bench. */
static sigset_t ending_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    return signals;
}

static void cancel_all(struct bench *b) {
    for (int i = 0; i < b->client_count; i++)
        hf_client_cancel(b->clients[i]);
}

/* Waits until the time is up, a worker has failed, or a signal arrives; then until all workers have
 * ended. A signal also ends their waits. */
static void wait_for_crew(struct bench *b, int64_t until_ns) {
    const sigset_t signals = ending_signals();
    const struct timespec step = {0, STEP_MS * 1000000};
    while (atomic_load(&b->running) > 0) {
        int number = sigtimedwait(&signals, NULL, &step);
        if (number > 0)
            b->signal = number;
        if (b->signal || now_ns() >= until_ns)
            atomic_store(&b->over, true);
        if (b->signal)
            cancel_all(b);
    }
}

static void sum_up(struct bench *b, bool is_contended, int64_t wall_ns, int64_t busy_ns,
                   struct outcome *ret) {
    int64_t count = 0;
    *ret = (struct outcome){.least = INT64_MAX};
    for (int i = 0; i < b->worker_count; i++) {
        struct worker *w = &b->workers[i];
        times_merge(&ret->times, &w->times);
        count += is_contended ? w->changes : w->grants;
        ret->least = w->grants < ret->least ? w->grants : ret->least;
        ret->most = w->grants > ret->most ? w->grants : ret->most;
    }
    ret->rate = (double)count * 1e9 / (double)wall_ns;
    ret->cores = (double)busy_ns / (double)wall_ns;
}

/* Reports why the crew failed, and returns the exit code; 0 if it did not. */
static int failure_of(struct bench *b) {
    char text[2048];
    for (int i = 0; i < b->worker_count; i++) {
        struct worker *w = &b->workers[i];
        if (!w->error || b->signal)
            continue;
        fail_text(text, sizeof(text), b->cli, w->error, w->why, "cannot go on measuring");
        fail_say("%s", text);
        return fail_exit_code(w->error);
    }
    return b->signal ? EXIT_BY_SIGNAL + b->signal : EXIT_SUCCESS;
}

enum { ONE_NAME = 1, ONE_CLIENT = 2 };

/* Plays a case with `count` workers. Returns the exit code; nonzero: the bench is over. */
static int play(struct bench *b, void *(*work)(void *), int count, int shape, struct outcome *ret) {
    b->workers = calloc((size_t)count, sizeof(*b->workers));
    if (!b->workers)
        return fail_error(b->cli, HF_NO_MEMORY, "cannot measure");
    b->worker_count = 0;
    atomic_store(&b->over, false);
    atomic_store(&b->running, 0);
    int64_t begun_ns = now_ns(), begun_cpu_ns = cpu_ns();
    for (int i = 0; i < count; i++) {
        struct worker *w = &b->workers[i];
        w->bench = b;
        w->number = i;
        w->client = b->clients[shape & ONE_CLIENT ? 0 : i];
        snprintf(w->name, sizeof(w->name), "%s%d", b->prefix, shape & ONE_NAME ? 0 : i);
        atomic_fetch_add(&b->running, 1);
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            atomic_fetch_sub(&b->running, 1);
            break;
        }
        b->worker_count++;
    }
    if (b->worker_count < count)
        atomic_store(&b->over, true);
    wait_for_crew(b, begun_ns + b->s.for_ms * 1000000);
    sum_up(b, work == take_turns && shape == ONE_NAME, now_ns() - begun_ns, cpu_ns() - begun_cpu_ns,
           ret);
    for (int i = 0; i < b->worker_count; i++)
        pthread_join(b->workers[i].thread, NULL);
    int code = failure_of(b);
    if (!code && b->worker_count < count)
        code = fail_error(b->cli, HF_SYSTEM, "cannot start that many threads");
    free(b->workers);
    return code;
}

/* ---- The verdict ---- */

struct results {
    struct outcome alone, many, contended, handoff;
};

struct verdict {
    int64_t lease_ms;
    const char *limit; /* a word for programs */
    char text[400];
};

/* "27 us", "0.21 ms", "1.3 s" */
static const char *shown(char ret[32], int64_t ns) {
    double us = (double)ns / 1e3, ms = us / 1e3;
    if (us < 100)
        snprintf(ret, 32, us < 10 ? "%.1f us" : "%.0f us", us);
    else if (ms < 1000)
        snprintf(ret, 32, ms < 10 ? "%.2f ms" : "%.0f ms", ms);
    else
        snprintf(ret, 32, "%.1f s", ms / 1000);
    return ret;
}

/* The processor, if this process kept most of it busy; the round trip, if more threads carried
 * more in proportion; else the store. */
static const char *limit_of(const struct bench *b, const struct results *r) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double in_proportion = r->alone.rate * (double)b->s.clients;
    if (r->many.cores >= 0.75 * (double)(cores < b->s.clients ? cores : b->s.clients))
        return "processor";
    return r->many.rate >= 0.5 * in_proportion ? "round trip" : "store";
}

static void judge(const struct bench *b, const struct results *r, struct verdict *ret) {
    static const struct {
        const char *limit, *text;
    } limits[] = {
        {"processor", "this host's processor is the limit"},
        {"round trip", "the round trip is the limit: more clients would get more locks"},
        {"store", "the store is the limit: more clients would not get more locks"},
    };
    char slow[32], lease[32];
    int64_t slow_ns = times_at(&r->many.times, 990);
    int64_t lease_ms = slow_ns * LEASE_ROUND_TRIPS / 1000000;
    ret->lease_ms = lease_ms < LEASE_LEAST_MS ? LEASE_LEAST_MS : (lease_ms + 999) / 1000 * 1000;
    ret->limit = limit_of(b, r);
    const char *why = "";
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        why = strcmp(limits[i].limit, ret->limit) == 0 ? limits[i].text : why;
    snprintf(ret->text, sizeof(ret->text),
             "use a lease of %s or more (99 of 100 acquires took up to %s, %" PRId64
             " at a time); this store handles %.0f locks a second; %s",
             text_duration(lease, sizeof(lease), ret->lease_ms), shown(slow, slow_ns), b->s.clients,
             r->many.rate, why);
}

static void print_row(const struct bench *b, const char *name, const char *what, const char *unit,
                      const struct outcome *o) {
    char median[32], slow[32], rate[48] = "";
    if (b->cli->json)
        return;
    if (*unit)
        snprintf(rate, sizeof(rate), "%.0f %s", o->rate, unit);
    printf("%-10s  %-34s %-20s  %s median, %s p99\n", name, what, rate,
           shown(median, times_at(&o->times, 500)), shown(slow, times_at(&o->times, 990)));
    fflush(stdout);
}

static void put(struct json *json, const char *key, const struct outcome *o) {
    json_object(json, key);
    json_number(json, "per_second", (int64_t)(o->rate + 0.5));
    json_number(json, "median_ns", times_at(&o->times, 500));
    json_number(json, "p99_ns", times_at(&o->times, 990));
    json_number(json, "samples", o->times.total);
    json_number(json, "least", o->least);
    json_number(json, "most", o->most);
    json_object_end(json);
}

static void print_json(const struct bench *b, const struct results *r,
                       const struct verdict *verdict) {
    struct json json = {.file = stdout};
    char store[1024];
    json_object(&json, NULL);
    json_string(&json, "store", store_shown(b->cli, store, sizeof(store)));
    json_number(&json, "for_ms", b->s.for_ms);
    json_number(&json, "clients", b->s.clients);
    put(&json, "alone", &r->alone);
    put(&json, "many_names", &r->many);
    put(&json, "contended", &r->contended);
    put(&json, "handoff", &r->handoff);
    json_number(&json, "shortest_lease_ms", verdict->lease_ms);
    json_number(&json, "locks_per_second", (int64_t)(r->many.rate + 0.5));
    json_string(&json, "limit", verdict->limit);
    json_string(&json, "verdict", verdict->text);
    json_object_end(&json);
    json_end(&json);
}

/* ---- The bench ---- */

static int measure(struct bench *b) {
    struct results r = {0};
    struct verdict verdict;
    char threads[64], clients[64];
    int count = (int)b->s.clients;
    snprintf(threads, sizeof(threads), "%d threads, a name for each", count);
    snprintf(clients, sizeof(clients), "%d clients, one name", count);
    int code = play(b, take_turns, 1, ONE_NAME | ONE_CLIENT, &r.alone);
    if (code)
        return code;
    print_row(b, "alone", "one client, one name", "locks/s", &r.alone);
    code = play(b, take_turns, count, ONE_CLIENT, &r.many);
    if (code)
        return code;
    print_row(b, "many names", threads, "locks/s", &r.many);
    code = play(b, take_turns, count, ONE_NAME, &r.contended);
    if (code)
        return code;
    print_row(b, "contended", clients, "hand-offs/s", &r.contended);
    b->pause_ns = 5000000 + 4 * times_at(&r.alone.times, 500);
    sem_init(&b->turns[0], 0, 1);
    sem_init(&b->turns[1], 0, 0);
    code = play(b, hand_over, 2, ONE_NAME, &r.handoff);
    if (code)
        return code;
    print_row(b, "hand-off", "from a release to the next holder", "", &r.handoff);
    judge(b, &r, &verdict);
    if (b->cli->json)
        print_json(b, &r, &verdict);
    else
        printf("\n%s\n", verdict.text);
    return EXIT_SUCCESS;
}

static bool refuse(void *arg, const hf_lock_info *info) {
    char safe[LOOK_NAME_SIZE];
    struct bench *b = arg;
    fail_say("there are locks whose names begin with %s, such as %s; choose another --prefix",
             b->prefix, text_safe(safe, sizeof(safe), info->name));
    b->prefix[0] = 0;
    return false;
}

/* Refuses if a name begins like ours, so that others' locks are not touched. */
static int check_names(struct bench *b) {
    int r = look_each(b->clients[0], b->prefix, refuse, b);
    if (r < 0)
        return fail_error(b->cli, r, "cannot check whether the names are free");
    return b->prefix[0] ? EXIT_SUCCESS : EXIT_USAGE;
}

static int open_clients(struct bench *b) {
    hf_client_options opts = HF_CLIENT_OPTIONS_INIT;
    opts.max_lease_ms = b->cli->max_lease_ms;
    for (b->client_count = 0; b->client_count < b->s.clients; b->client_count++) {
        int r = store_open(b->cli, &opts, &b->clients[b->client_count]);
        if (r < 0)
            return fail_exit_code(r);
    }
    return EXIT_SUCCESS;
}

static int check_settings(struct bench *b) {
    char host[65] = "host", safe[80];
    if (b->s.clients < 2 || b->s.clients > CLIENTS_MOST)
        return fail_usage("--clients is %" PRId64 "; it can be 2 to %d", b->s.clients,
                          CLIENTS_MOST);
    if (b->s.for_ms <= 0)
        return fail_usage("--for must be above 0");
    gethostname(host, sizeof(host) - 1);
    if (b->s.prefix && (!*b->s.prefix || strlen(b->s.prefix) >= PREFIX_SIZE))
        return fail_usage("--prefix cannot be '%s'; it can have 1 to %d bytes",
                          text_safe(safe, sizeof(safe), b->s.prefix), PREFIX_SIZE - 1);
    if (b->s.prefix)
        snprintf(b->prefix, sizeof(b->prefix), "%s", b->s.prefix);
    else
        snprintf(b->prefix, sizeof(b->prefix), "bench-%s-%ld-", host, (long)getpid());
    return fail_name(b->prefix);
}

/* Signals are for the main thread, which waits for them; every other thread inherits this. */
static void block_signals(void) {
    const sigset_t signals = ending_signals();
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static int run(struct cli *cli, int argc, char **argv) {
    static struct bench bench;
    struct bench *b = &bench;
    b->cli = cli;
    b->s = (struct settings){FOR_DEFAULT_MS, CLIENTS_DEFAULT, HF_DEFAULT_LEASE_MS, NULL};
    int r = options_parse_words(cli, &bench_command, &b->s, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    int code = check_settings(b);
    if (code)
        return code;
    block_signals();
    code = open_clients(b);
    if (!code)
        code = check_names(b);
    if (!code)
        code = measure(b);
    while (b->client_count > 0)
        hf_client_close(b->clients[--b->client_count]);
    return code;
}

const struct command bench_command = {
    .name = "bench",
    .summary = "measure how fast locks are on this store",
    .usage = "bench [options]",
    .options = options,
    .prints_json = true,
    .run = run,
    .details =
        "Measures with real locks, which it releases again:\n"
        "  alone       one client takes one lock that nobody else wants\n"
        "  many names  many threads of one client, each with a lock of its own\n"
        "  contended   many clients want one lock\n"
        "  hand-off    from the moment a holder calls release until the next one has the lock\n"
        "Then says how short a lease the store's response times allow, how many locks a second it\n"
        "handles, and what limits that: this host's processor, the round trip, or the store.\n"
        "\n"
        "The median and the 99th percentile are for the time to acquire. The names of the locks\n"
        "begin with bench-HOST-PID- or with --prefix; the bench refuses to start if such names\n"
        "exist. It loads the store: do not run it beside work that must be fast.\n"
        "\n"
        "--json: an object with a value for each case (per_second, median_ns, p99_ns), and\n"
        "shortest_lease_ms, locks_per_second, limit (processor, round trip or store), verdict.\n"
        "Later versions may add keys.\n"
        "\n"
        "Examples:\n"
        "  holdfast bench\n"
        "  holdfast --url redis://db.example bench --for 10s --clients 64\n",
};
