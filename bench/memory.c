/* What a lock costs where no server is in the way: the memory store beside the machine's own locks.
 *
 *    pair      acquire, release and free of a lock that nobody else wants
 *    wake      from the start of a release until the waiter in another thread has the lock
 *    cores     threads on names of their own: how much more all cores do than one
 *    held      100,000 locks held for 30 s */
#include "result.h"

#include <errno.h>
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

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

/* CPU time, for code that does not sleep: other load on the machine then hardly matters. */
static int64_t cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
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

/* ---- An uncontended pair ---- */

enum { PAIRS = 20000 };

static double time_pairs(void *client) {
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++)
        pair(client, "name");
    return (double)(cpu_ns() - began) / PAIRS;
}

static void lock_and_unlock(pthread_mutex_t *mutex, int pairs) {
    for (int i = 0; i < pairs; i++) {
        pthread_mutex_lock(mutex);
        pthread_mutex_unlock(mutex);
    }
}

static double time_mutex(void *mutex) {
    int64_t began = cpu_ns();
    lock_and_unlock(mutex, PAIRS);
    return (double)(cpu_ns() - began) / PAIRS;
}

/* An allocation of the size of a hold: the least that any handle costs. */
static double time_malloc(void *unused) {
    (void)unused;
    int64_t began = cpu_ns();
    for (int i = 0; i < PAIRS; i++) {
        void *volatile memory = calloc(1, 320);
        free(memory);
    }
    return (double)(cpu_ns() - began) / PAIRS;
}

static double time_clock(void *unused) {
    (void)unused;
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
    const struct contender contenders[] = {
        {"a robust, shared mutex", time_mutex, &robust},
        {"holdfast", time_pairs, client},
        {"a plain mutex", time_mutex, &plain},
        {"calloc and free of 320 bytes", time_malloc, NULL},
        {"clock_gettime(CLOCK_BOOTTIME)", time_clock, NULL},
    };
    result_compare("memory/pair", "A free lock, one thread", "ns", contenders, 5);
    hf_client_close(client);
}

/* ---- Waking a waiter in another thread ---- */

enum { WAKES = 200, QUICK_WAKES = 5 };

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
    atomic_store(&wake->woke_ns, result_now_ns());
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
    atomic_store(&wake->woke_ns, result_now_ns());
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
        result_die("epoll", strerror(errno));
    atomic_store(&wake->woke_ns, result_now_ns());
}

static void signal_event(struct wake *wake) {
    if (eventfd_write(wake->event_fd, 1) < 0)
        result_die("eventfd", strerror(errno));
}

static void nothing(struct wake *wake) {
    (void)wake;
}

static void *wait_in_turns(void *arg) {
    struct wake *wake = arg;
    for (int i = 1; i <= result_scale(WAKES, QUICK_WAKES); i++) {
        while (atomic_load(&wake->turn) < i)
            sched_yield();
        wake->wait(wake);
    }
    return NULL;
}

static double time_wakes(void *arg) {
    struct wake *wake = arg;
    pthread_t thread;
    atomic_store(&wake->turn, 0);
    if (pthread_create(&thread, NULL, wait_in_turns, wake))
        result_die("thread", strerror(errno));
    for (int i = 1; i <= result_scale(WAKES, QUICK_WAKES); i++) {
        wake->prepare(wake);
        atomic_store(&wake->woke_ns, 0);
        atomic_store(&wake->turn, i);
        result_sleep_us(300); /* it sleeps by now */
        int64_t began = result_now_ns();
        wake->signal(wake);
        int64_t woke;
        while (!(woke = atomic_load(&wake->woke_ns)))
            sched_yield();
        result_time(woke - began);
        wake->hold = hf_hold_free(wake->hold);
    }
    pthread_join(thread, NULL);
    return result_median_us();
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
    struct wake one = {.holder = a,
                       .waiter = a,
                       .wait = wait_for_lock,
                       .prepare = hold_lock,
                       .signal = release_lock};
    struct wake two = one;
    two.waiter = b;
    const struct contender contenders[] = {
        {"a bare futex", time_wakes, &futex},
        {"holdfast, one client", time_wakes, &one},
        {"holdfast, a client each", time_wakes, &two},
        {"a bare eventfd and epoll", time_wakes, &epoll},
    };
    result_compare("memory/wake", "Release begun until the waiter in another thread has the lock",
                   "us", contenders, 4);
    close(event_fd);
    close(epoll_fd);
    hf_client_close(a);
    hf_client_close(b);
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
enum { BARE_PAIRS = 100, CORES_MAX = 64 };

static void *work(void *arg) {
    struct worker *worker = arg;
    while (!atomic_load(worker->go))
        sched_yield();
    for (; !atomic_load(worker->stop); worker->pairs++) {
        if (worker->client)
            pair(worker->client, worker->name);
        else
            lock_and_unlock(&worker->mutex, BARE_PAIRS);
    }
    return NULL;
}

enum form { BARE, ONE_CLIENT, CLIENT_EACH, SPACE_EACH };

static hf_client *client_for(enum form form, int index) {
    if (form == BARE || (form == ONE_CLIENT && index > 0))
        return NULL;
    char url[32];
    snprintf(url, sizeof(url), "memory:threads-%d", index);
    return open_client(form == SPACE_EACH ? url : "memory:threads");
}

/* Pairs in a second of all threads together. */
static double run_threads(int count, enum form form) {
    struct worker workers[CORES_MAX];
    hf_client *clients[CORES_MAX];
    atomic_bool go = false, stop = false;
    for (int i = 0; i < count; i++) {
        clients[i] = client_for(form, i);
        workers[i] = (struct worker){.client = form == ONE_CLIENT ? clients[0] : clients[i],
                                     .mutex = PTHREAD_MUTEX_INITIALIZER,
                                     .go = &go,
                                     .stop = &stop};
        snprintf(workers[i].name, sizeof(workers[i].name), "name-%d", i);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            result_die("thread", strerror(errno));
    }
    int64_t began = result_now_ns();
    atomic_store(&go, true);
    result_sleep_us(result_slice_ns(60) / 1000);
    atomic_store(&stop, true);
    long pairs = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    double seconds = (double)(result_now_ns() - began) / 1e9;
    for (int i = 0; i < count; i++)
        hf_client_close(clients[i]);
    return (double)pairs / seconds;
}

/* What threads on all cores do together, as a multiple of what one thread does alone. */
static double cores_slice(void *arg) {
    enum form form = *(enum form *)arg;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double alone = run_threads(1, form);
    return run_threads(cores < CORES_MAX ? (int)cores : CORES_MAX, form) / alone;
}

static void measure_cores(void) {
    enum form forms[] = {BARE, ONE_CLIENT, CLIENT_EACH, SPACE_EACH};
    const struct contender contenders[] = {
        {"a mutex each", cores_slice, &forms[0]},
        {"holdfast, one client", cores_slice, &forms[1]},
        {"holdfast, a client each", cores_slice, &forms[2]},
        {"holdfast, a client and a space each", cores_slice, &forms[3]},
    };
    result_compare("memory/cores", "A thread on each core, each with its own name",
                   "times one thread", contenders, 4);
}

/* ---- Many locks that are held ---- */

enum { HELD = 100000, HELD_S = 30 };

static char (*make_names(size_t count))[16] {
    char(*names)[16] = calloc(count, 16);
    for (size_t i = 0; i < count; i++)
        snprintf(names[i], 16, "order-%zu", i);
    return names;
}

static double used_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void measure_held(void) {
    int count = result_scale(HELD, 100), seconds = result_scale(HELD_S, 1), lost = 0;
    char(*names)[16] = make_names((size_t)count);
    hf_hold **holds = calloc((size_t)count, sizeof(hf_hold *));
    hf_client *client = open_client("memory:held");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 10000;
    double empty = used_bytes();
    for (int i = 0; i < count; i++)
        must(hf_acquire(client, names[i], &options, &holds[i]), "acquire");
    double held = used_bytes(), began = cpu_seconds();
    result_sleep_us(seconds * INT64_C(1000000));
    double cpu = cpu_seconds() - began;
    for (int i = 0; i < count; i++)
        lost += hf_check(holds[i], 0) != HF_OK;
    for (int i = 0; i < count; i++)
        hf_release(holds[i]);
    double released = used_bytes();
    for (int i = 0; i < count; i++)
        hf_hold_free(holds[i]);
    double freed = used_bytes();
    const char *title = "100,000 locks held for 30 s, lease 10 s";
    result_figure("memory/held", title, "CPU, of one core", "%", (double[]){cpu / seconds * 100},
                  1);
    result_figure("memory/held", title, "locks lost", "locks", (double[]){lost}, 1);
    result_figure("memory/held", title, "client and store, for each lock", "bytes",
                  (double[]){(held - empty) / count}, 1);
    result_figure("memory/held", title, "of that the client's", "bytes",
                  (double[]){(released - freed) / count}, 1);
    hf_client_close(client);
    free(holds);
    free(names);
}

/* ---- */

int main(void) {
    static const struct result_part parts[] = {
        {"memory/pair", measure_pair},
        {"memory/wake", measure_wake},
        {"memory/cores", measure_cores},
        {"memory/held", measure_held},
    };
    result_run(parts, sizeof(parts) / sizeof(parts[0]));
    return 0;
}
