/* A process whose threads fight over a few locks of each kind: contender URL SEED ACQUIRES THREADS.
 *
 * They acquire exclusively and shared, permits, several names at once, and names that have been
 * forgotten; they try, wait, give up, barge, renew and release. Nobody holds for more than moments,
 * and leases do not end while the program runs. So a wait that lasts PATIENT_MS has missed its
 * wake-up: the waiter's next request, which would repair that, comes later.
 *
 * It prints what happened in one line, "acquired 120 gave_up 30 longest_ms 81", and ends with
 * status 1 at the first unexpected error. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    PATIENT_MS = 60000,
    LEASE_MS = 1200000, /* also of a place in the queue, which is extended after a third of it */
    ROOM_LEASE_MS = 3000,
    THREADS_MAX = 64,
    ROOMS = 3,
};

static hf_client *client;
static atomic_long acquires_left, acquired, gave_up, longest_ms;

struct chance {
    unsigned seed;
};

static unsigned draw(struct chance *chance, unsigned below) {
    return (unsigned)rand_r(&chance->seed) / 7 % below;
}

static void check(int r, const char *what) {
    if (r == HF_OK)
        return;
    printf("%s: %s: %s\n", what, hf_error_name(r), hf_last_error());
    exit(1);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_us(unsigned us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

/* ---- What they ask for ---- */

/* A patient caller gets the lock; others may leave without it, even before the store has
 * answered. */
static int64_t draw_wait_ms(struct chance *chance) {
    static const int64_t choices[] = {0, 1, 5, 20, PATIENT_MS, PATIENT_MS, PATIENT_MS, PATIENT_MS};
    return choices[draw(chance, sizeof(choices) / sizeof(choices[0]))];
}

static int acquire_lock(struct chance *chance, hf_acquire_options *options, hf_hold **ret_hold) {
    static const char *const names[] = {"a", "b", "c"};
    options->kind = draw(chance, 3) ? HF_EXCLUSIVE : HF_SHARED;
    return hf_acquire(client, names[draw(chance, 3)], options, ret_hold);
}

static int acquire_permits(struct chance *chance, hf_acquire_options *options, hf_hold **ret_hold) {
    options->kind = HF_PERMITS;
    options->capacity = 4;
    options->permits = 1 + draw(chance, 4);
    return hf_acquire(client, "permits", options, ret_hold);
}

static int acquire_several(struct chance *chance, hf_acquire_options *options, hf_hold **ret_hold) {
    hf_want a = HF_WANT_INIT, b = HF_WANT_INIT, permits = HF_WANT_INIT;
    const hf_want *const wants[] = {&permits, &b, &a};
    a.name = "a";
    b.name = "b";
    b.kind = draw(chance, 2) ? HF_SHARED : HF_EXCLUSIVE;
    permits.name = "permits";
    permits.kind = HF_PERMITS;
    permits.capacity = 4;
    return hf_acquire_all(client, wants, 2 + draw(chance, 2), options, ret_hold);
}

/* The test makes these names old, so that they are forgotten and made again all the time. */
static int acquire_old(struct chance *chance, hf_acquire_options *options, hf_hold **ret_hold) {
    char name[16];
    snprintf(name, sizeof(name), "old%u", draw(chance, 40));
    return hf_acquire(client, name, options, ret_hold);
}

/* All processes share these, and renew them together. */
static int acquire_room(struct chance *chance, hf_acquire_options *options, hf_hold **ret_hold) {
    char name[16];
    snprintf(name, sizeof(name), "room%u", draw(chance, ROOMS));
    options->kind = HF_SHARED;
    return hf_acquire(client, name, options, ret_hold);
}

static int acquire_something(struct chance *chance, hf_acquire_options *options, hf_hold **ret) {
    static int (*const ways[])(struct chance *, hf_acquire_options *, hf_hold **) = {
        acquire_lock,    acquire_lock, acquire_lock, acquire_permits,
        acquire_several, acquire_old,  acquire_room,
    };
    return ways[draw(chance, sizeof(ways) / sizeof(ways[0]))](chance, options, ret);
}

/* ---- Threads ---- */

static void note_wait(long took_ms) {
    long longest = longest_ms;
    while (took_ms > longest && !atomic_compare_exchange_weak(&longest_ms, &longest, took_ms))
        continue;
}

static void fight_once(struct chance *chance) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold = NULL;
    options.wait_ms = draw_wait_ms(chance);
    options.lease_ms = LEASE_MS;
    options.flags = draw(chance, 10) ? 0 : HF_BARGE;
    long before_ms = now_ms();
    int r = acquire_something(chance, &options, &hold);
    note_wait(now_ms() - before_ms);
    if (options.wait_ms < PATIENT_MS && (r == HF_BUSY || r == HF_TIMEOUT || r == HF_UNKNOWN)) {
        gave_up++;
        return;
    }
    check(r, "acquire");
    acquired++;
    if (draw(chance, 4) == 0)
        check(hf_renew(hold, 0), "renew");
    if (draw(chance, 4) == 0)
        pause_us(draw(chance, 3000));
    check(hf_release(hold), "release");
    hf_hold_free(hold);
}

static void *fight(void *arg) {
    struct chance chance = {(unsigned)(size_t)arg};
    while (atomic_fetch_sub(&acquires_left, 1) > 0)
        fight_once(&chance);
    return NULL;
}

static void enter_rooms(hf_hold *ret_holds[ROOMS]) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = HF_SHARED;
    options.lease_ms = ROOM_LEASE_MS;
    for (int i = 0; i < ROOMS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "room%d", i);
        check(hf_acquire(client, name, &options, &ret_holds[i]), "acquire");
    }
}

int main(int argc, char **argv) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    pthread_t threads[THREADS_MAX];
    hf_hold *rooms[ROOMS];
    int count = argc == 5 ? atoi(argv[4]) : 0;
    if (count < 1 || count > THREADS_MAX) {
        fprintf(stderr, "usage: contender URL SEED ACQUIRES THREADS\n");
        return 2;
    }
    options.max_lease_ms = options.wait_lease_ms = LEASE_MS;
    acquires_left = atol(argv[3]);
    check(hf_client_open(argv[1], &options, &client), "open");
    enter_rooms(rooms);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, fight, (void *)(strtoul(argv[2], NULL, 10) + (size_t)i));
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ROOMS; i++) {
        hf_release(rooms[i]); /* it may have been lost on a busy machine */
        hf_hold_free(rooms[i]);
    }
    hf_client_close(client);
    printf("acquired %ld gave_up %ld longest_ms %ld\n", acquired, gave_up, longest_ms);
    return 0;
}
