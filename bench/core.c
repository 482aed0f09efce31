/* What a lock costs where no server is in the way: the memory store, measured beside what the
 * machine's own locks cost. Absolute figures move with the machine and the minute; the ratios are
 * what counts. Each figure is the median of ROUNDS rounds, and in a round everything that is
 * compared takes its turn.
 *
 *    bench-core [part...]      parts: pair wake threads names held; all of them without arguments
 *    bench-core -p [part...]   pinned: all threads on one core */
#include <holdfast/holdfast.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 21 };

static void die(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, hf_last_error());
    exit(1);
}

static void must(int result, const char *what) {
    if (result < 0)
        die(what);
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* For code that does not sleep: what else the machine does then hardly matters. */
static int64_t cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

static hf_client *open_client(const char *url) {
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    return client;
}

static hf_hold *acquire(hf_client *client, const char *name) {
    hf_hold *hold;
    must(hf_acquire(client, name, NULL, &hold), "acquire");
    return hold;
}

/* The pair that a program pays for: acquire, release, free. */
static void pair(hf_client *client, const char *name) {
    hf_hold *hold = acquire(client, name);
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

static void heading(const char *text) {
    printf("\n%s\n", text);
}

static void row(const char *what, double value, const char *unit, double limit) {
    if (limit > 0)
        printf("  %-52s %10.1f %-8s %7.2f x\n", what, value, unit, value / limit);
    else
        printf("  %-52s %10.1f %s\n", what, value, unit);
}

/* ---- An uncontended pair ---- */

enum { PAIRS = 20000 };

static double time_pairs(hf_client *client) {
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++)
        pair(client, "name");
    return (double)(cpu_ns() - began) / PAIRS;
}

static double time_mutex(pthread_mutex_t *mutex, int pairs) {
    int64_t began = cpu_ns();
    for (int i = 0; i < pairs; i++) {
        pthread_mutex_lock(mutex);
        pthread_mutex_unlock(mutex);
    }
    return (double)(cpu_ns() - began) / pairs;
}

/* An allocation of the size of a hold: the least that any handle costs. */
static double time_malloc(void) {
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++) {
        void *volatile memory = calloc(1, 320);
        free(memory);
    }
    return (double)(cpu_ns() - began) / PAIRS;
}

static double time_clock(void) {
    struct timespec time;
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++)
        clock_gettime(CLOCK_BOOTTIME, &time);
    return (double)(cpu_ns() - began) / PAIRS;
}

static void measure_pair(void) {
    pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, robust;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    hf_client *client = open_client("memory:");
    double of_pair[ROUNDS], of_plain[ROUNDS], of_robust[ROUNDS], of_malloc[ROUNDS],
        of_clock[ROUNDS];
    time_pairs(client);
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < ROUNDS; i++) {
        of_plain[i] = time_mutex(&plain, PAIRS);
        of_pair[i] = time_pairs(client);
        of_robust[i] = time_mutex(&robust, PAIRS);
        of_malloc[i] = time_malloc();
        of_clock[i] = time_clock();
    }
    getrusage(RUSAGE_THREAD, &after);
    hf_client_close(client);
    heading("An uncontended pair (aim: 1000 ns at most)         median         to a robust mutex");
    double limit = median(of_robust, ROUNDS);
    row("acquire + release + free, memory:", median(of_pair, ROUNDS), "ns", limit);
    row("pthread mutex, robust and shared", limit, "ns", limit);
    row("pthread mutex", median(of_plain, ROUNDS), "ns", limit);
    row("calloc and free of 320 bytes", median(of_malloc, ROUNDS), "ns", limit);
    row("clock_gettime(CLOCK_BOOTTIME)", median(of_clock, ROUNDS), "ns", limit);
    printf("  the calling thread slept %ld times in %d pairs: no other thread is crossed\n",
           after.ru_nvcsw - before.ru_nvcsw, ROUNDS * PAIRS);
}

/* ---- Waking a waiter in another thread ---- */

enum { WAKES = 200 };

/* A thread that waits, is woken, and notes when it ran. */
struct wake {
    hf_client *holder, *waiter;
    atomic_uint word;
    int event_fd, epoll_fd;
    void (*wait)(struct wake *wake);
    void (*prepare)(struct wake *wake);
    void (*signal)(struct wake *wake);
    hf_hold *hold;
    atomic_int turn; /* of the waiter's rounds */
    _Atomic int64_t woke_ns;
};

static void wait_for_lock(struct wake *wake) {
    hf_hold *hold = acquire(wake->waiter, "woken");
    atomic_store(&wake->woke_ns, now_ns());
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

static void hold_lock(struct wake *wake) {
    wake->hold = acquire(wake->holder, "woken");
}

static void release_lock(struct wake *wake) {
    must(hf_release(wake->hold), "release");
}

static void wait_for_futex(struct wake *wake) {
    while (atomic_load(&wake->word) == 0)
        syscall(SYS_futex, &wake->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_store(&wake->woke_ns, now_ns());
}

static void clear_futex(struct wake *wake) {
    atomic_store(&wake->word, 0);
}

static void signal_futex(struct wake *wake) {
    atomic_store(&wake->word, 1);
    syscall(SYS_futex, &wake->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_for_event(struct wake *wake) {
    struct epoll_event event;
    eventfd_t value;
    if (epoll_wait(wake->epoll_fd, &event, 1, -1) != 1 || eventfd_read(wake->event_fd, &value) < 0)
        die("epoll");
    atomic_store(&wake->woke_ns, now_ns());
}

static void signal_event(struct wake *wake) {
    if (eventfd_write(wake->event_fd, 1) < 0)
        die("eventfd");
}

static void nothing(struct wake *wake) {
    (void)wake;
}

static void *wait_in_turns(void *arg) {
    struct wake *wake = arg;
    for (int i = 1; i <= WAKES; i++) {
        while (atomic_load(&wake->turn) < i)
            sched_yield();
        wake->wait(wake);
    }
    return NULL;
}

static double time_wakes(struct wake *wake) {
    static double samples[WAKES];
    pthread_t thread;
    atomic_store(&wake->turn, 0);
    if (pthread_create(&thread, NULL, wait_in_turns, wake))
        die("thread");
    for (int i = 1; i <= WAKES; i++) {
        wake->prepare(wake);
        atomic_store(&wake->woke_ns, 0);
        atomic_store(&wake->turn, i);
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL); /* it sleeps by now */
        int64_t began = now_ns();
        wake->signal(wake);
        int64_t woke;
        while (!(woke = atomic_load(&wake->woke_ns)))
            sched_yield();
        samples[i - 1] = (double)(woke - began) / 1000;
        wake->hold = hf_hold_free(wake->hold);
    }
    pthread_join(thread, NULL);
    return median(samples, WAKES);
}

static void measure_wake(void) {
    hf_client *a = open_client("memory:"), *b = open_client("memory:");
    int event_fd = eventfd(0, EFD_NONBLOCK), epoll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event);
    struct wake futex = {.wait = wait_for_futex, .prepare = clear_futex, .signal = signal_futex};
    struct wake epoll = {.wait = wait_for_event,
                         .prepare = nothing,
                         .signal = signal_event,
                         .event_fd = event_fd,
                         .epoll_fd = epoll_fd};
    struct wake lock = {.wait = wait_for_lock, .prepare = hold_lock, .signal = release_lock};
    double of_futex[ROUNDS], of_epoll[ROUNDS], of_one[ROUNDS], of_two[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        of_futex[i] = time_wakes(&futex);
        lock.holder = lock.waiter = a;
        of_one[i] = time_wakes(&lock);
        of_epoll[i] = time_wakes(&epoll);
        lock.waiter = b;
        of_two[i] = time_wakes(&lock);
    }
    close(event_fd);
    close(epoll_fd);
    hf_client_close(a);
    hf_client_close(b);
    heading("Release begun -> the waiter in another thread owns it    median      to a bare futex");
    double limit = median(of_futex, ROUNDS);
    row("two threads, one client", median(of_one, ROUNDS), "us", limit);
    row("two threads, a client each", median(of_two, ROUNDS), "us", limit);
    row("bare eventfd and epoll", median(of_epoll, ROUNDS), "us", limit);
    row("bare futex", limit, "us", limit);
}

/* ---- Threads on names of their own ---- */

struct worker {
    hf_client *client;
    char name[16];
    pthread_mutex_t mutex;
    atomic_bool *go, *stop;
    long pairs;
    pthread_t thread;
};

/* What a thread does by itself, without the library, for about as long as a pair takes. */
enum { BARE_PAIRS = 100 };

static void *work(void *arg) {
    struct worker *worker = arg;
    while (!atomic_load(worker->go))
        sched_yield();
    for (; !atomic_load(worker->stop); worker->pairs++) {
        if (worker->client)
            pair(worker->client, worker->name);
        else
            time_mutex(&worker->mutex, BARE_PAIRS);
    }
    return NULL;
}

enum form { BARE, ONE_CLIENT, CLIENT_EACH, SPACE_EACH, FORMS };

static hf_client *client_for(enum form form, int index) {
    if (form == BARE || (form == ONE_CLIENT && index > 0))
        return NULL;
    char url[32];
    snprintf(url, sizeof(url), "memory:threads-%d", index);
    return open_client(form == SPACE_EACH ? url : "memory:threads");
}

/* Pairs in a second of all threads together, in thousands. */
static double run_threads(int count, enum form form) {
    struct worker workers[8];
    hf_client *clients[8];
    atomic_bool go = false, stop = false;
    for (int i = 0; i < count; i++) {
        clients[i] = client_for(form, i);
        workers[i] = (struct worker){.client = form == ONE_CLIENT ? clients[0] : clients[i],
                                     .mutex = PTHREAD_MUTEX_INITIALIZER,
                                     .go = &go,
                                     .stop = &stop};
        snprintf(workers[i].name, sizeof(workers[i].name), "name-%d", i);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            die("thread");
    }
    int64_t began = now_ns();
    atomic_store(&go, true);
    nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    atomic_store(&stop, true);
    long pairs = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    double seconds = (double)(now_ns() - began) / 1e9;
    for (int i = 0; i < count; i++)
        hf_client_close(clients[i]);
    return (double)pairs / seconds / 1000;
}

static void measure_threads(void) {
    static const char *const forms[] = {"without the library", "one client",
                                        "a client each, one space", "a client and a space each"};
    static const int counts[] = {1, 2, 4, 8};
    static double rates[FORMS][4][ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        for (int j = 0; j < 4; j++)
            for (int form = 0; form < FORMS; form++)
                rates[form][j][i] = run_threads(counts[j], (enum form)form);
    printf("\nThreads on names of their own, %ld cores          thousand pairs/s       to one "
           "thread\n",
           sysconf(_SC_NPROCESSORS_ONLN));
    for (int form = 0; form < FORMS; form++) {
        double limit = median(rates[form][0], ROUNDS);
        for (int j = 0; j < 4; j++) {
            char what[64];
            snprintf(what, sizeof(what), "%d thread%s, %s", counts[j], j ? "s" : "", forms[form]);
            row(what, median(rates[form][j], ROUNDS), "k/s", limit);
        }
    }
}

/* ---- Many names ---- */

static char (*make_names(size_t count))[16] {
    char(*names)[16] = calloc(count, 16);
    for (size_t i = 0; i < count; i++)
        snprintf(names[i], 16, "order-%zu", i);
    return names;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double time_random_names(hf_client *client, char (*names)[16], size_t count) {
    static uint64_t state = 88172645463325252u;
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++)
        pair(client, names[next_random(&state) % count]);
    return (double)(cpu_ns() - began) / PAIRS;
}

static void measure_names(void) {
    static const size_t counts[] = {10, 1000, 100000, 1000000};
    static double times[4][ROUNDS];
    char(*names)[16] = make_names(counts[3]);
    hf_client *clients[4];
    for (int i = 0; i < 4; i++) {
        char url[32];
        snprintf(url, sizeof(url), "memory:names-%d", i);
        clients[i] = open_client(url);
        for (size_t j = 0; j < counts[i]; j++)
            pair(clients[i], names[j]); /* the store remembers its token from now on */
    }
    for (int i = 0; i < ROUNDS; i++)
        for (int j = 0; j < 4; j++)
            times[j][i] = time_random_names(clients[j], names, counts[j]);
    heading(
        "A pair on one of so many names, by chance               median            to ten names");
    double limit = median(times[0], ROUNDS);
    for (int i = 0; i < 4; i++) {
        char what[32];
        snprintf(what, sizeof(what), "%zu names", counts[i]);
        row(what, median(times[i], ROUNDS), "ns", limit);
    }
    for (int i = 0; i < 4; i++) {
        char what[64];
        snprintf(what, sizeof(what), "closing the store with %zu names, each", counts[i]);
        int64_t began = cpu_ns();
        hf_client_close(clients[i]);
        row(what, (double)(cpu_ns() - began) / (double)counts[i], "ns", 0);
        fflush(stdout);
    }
    free(names);
}

/* ---- Many locks that are held ---- */

enum { HELD = 100000, HELD_S = 30 };

static double used_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd);
}

static double resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1)
        die("statm");
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void measure_held(void) {
    char(*names)[16] = make_names(HELD);
    hf_hold **holds = calloc(HELD, sizeof(hf_hold *));
    malloc_trim(0);
    hf_client *client = open_client("memory:held");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 10000;
    double empty = used_bytes(), empty_rss = resident_bytes();
    for (int i = 0; i < HELD; i++)
        must(hf_acquire(client, names[i], &options, &holds[i]), "acquire");
    double held = used_bytes(), held_rss = resident_bytes();
    double began = cpu_seconds();
    nanosleep(&(struct timespec){.tv_sec = HELD_S}, NULL);
    double cpu = cpu_seconds() - began;
    int lost = 0;
    for (int i = 0; i < HELD; i++)
        lost += hf_check(holds[i], 0) != HF_OK;
    for (int i = 0; i < HELD; i++)
        hf_release(holds[i]);
    double released = used_bytes();
    for (int i = 0; i < HELD; i++)
        hf_hold_free(holds[i]);
    double freed = used_bytes();
    printf("\n%d locks held for %d s, lease 10 s (aim: 2 %% of a core, 300 bytes each)\n", HELD,
           HELD_S);
    row("CPU, of one core", cpu / HELD_S * 100, "%", 0);
    row("CPU in all", cpu * 1000, "ms", 0);
    row("locks that were lost meanwhile", lost, "", 0);
    row("bytes each, allocated", (held - empty) / HELD, "bytes", 0);
    row("  the hold: the client's, until freed", (released - freed) / HELD, "bytes", 0);
    row("  the claim: the store's, until released", (held - released) / HELD, "bytes", 0);
    row("  name and tables: the store's, while remembered", (freed - empty) / HELD, "bytes", 0);
    row("bytes each, resident", (held_rss - empty_rss) / HELD, "bytes", 0);
    hf_client_close(client);
    free(holds);
    free(names);
}

/* ---- */

static const struct part {
    const char *name;
    void (*measure)(void);
} parts[] = {{"pair", measure_pair},
             {"wake", measure_wake},
             {"threads", measure_threads},
             {"names", measure_names},
             {"held", measure_held}};

static bool is_wanted(const char *name, int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 0;
}

static void pin(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        die("sched_setaffinity");
}

int main(int argc, char **argv) {
    bool pinned = argc > 1 && strcmp(argv[1], "-p") == 0;
    if (pinned)
        pin();
    printf("placement: %s; medians of %d interleaved rounds\n",
           pinned ? "pinned to one core" : "default", ROUNDS);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (is_wanted(parts[i].name, argc - 1 - pinned, argv + 1 + pinned))
            parts[i].measure();
        fflush(stdout);
    }
    return 0;
}
