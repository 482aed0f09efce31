/* A process with many clients that want one lock: herd URL CLIENTS SECONDS.
 *
 * It prints "ready" when each client is connected, reads a line, and then each client keeps taking
 * and releasing the lock. After SECONDS it prints "held 120 failed 3" and ends: how many acquires
 * succeeded, and how many did not. Wait leases are the default. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 200 };

static atomic_long held, failed;

static void check(int r, const char *what) {
    if (r == HF_OK)
        return;
    printf("%s: %s: %s\n", what, hf_error_name(r), hf_last_error());
    exit(1);
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Connects. */
static void *use_own_lock(void *arg) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold;
    char name[32];
    options.wait_ms = HF_FOREVER;
    snprintf(name, sizeof(name), "%p", arg);
    check(hf_acquire(arg, name, &options, &hold), "the first acquire");
    check(hf_release(hold), "the first release");
    hf_hold_free(hold);
    return NULL;
}

static void *use_the_lock(void *arg) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = HF_FOREVER;
    for (;;) {
        hf_hold *hold;
        if (hf_acquire(arg, "the lock", &options, &hold) != HF_OK) {
            failed++;
            pause_ms(100);
            continue;
        }
        held++;
        hf_release(hold);
        hf_hold_free(hold);
    }
    return NULL;
}

static void start_each(void *(*run)(void *), hf_client **clients, int count, pthread_t *threads) {
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, run, clients[i]) != 0)
            exit(1);
    }
}

int main(int argc, char **argv) {
    static hf_client *clients[CLIENTS_MAX];
    pthread_t threads[CLIENTS_MAX];
    int count = argc == 4 ? atoi(argv[2]) : 0;
    if (count < 1 || count > CLIENTS_MAX)
        return 2;
    for (int i = 0; i < count; i++)
        check(hf_client_open(argv[1], NULL, &clients[i]), "open");
    start_each(use_own_lock, clients, count, threads);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    puts("ready");
    fflush(stdout);
    getchar();
    start_each(use_the_lock, clients, count, threads);
    pause_ms(atol(argv[3]) * 1000);
    printf("held %ld failed %ld\n", held, failed);
    fflush(stdout);
    _exit(0); /* the threads go on */
}
