/* Several names at once: money moves between accounts, each of which has a lock. Four threads move
 * it in every direction and name the two accounts in any order. hf_acquire_all takes both or none,
 * in an order of its own, so nothing deadlocks and no money appears or vanishes. At the end one of
 * three names is busy, and an attempt on all three leaves nothing held. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { ACCOUNTS = 3, THREADS = 4, MOVES = 100, START = 1000 };

static const char *const names[ACCOUNTS] = {"account/ada", "account/bob", "account/cyd"};
static long balances[ACCOUNTS] = {START, START, START};
static hf_client *client;

static bool move(int from, int to, long amount) {
    hf_want a = HF_WANT_INIT, b = HF_WANT_INIT;
    a.name = names[from];
    b.name = names[to];
    const hf_want *wants[] = {&a, &b};
    hf_hold *hold;
    if (hf_acquire_all(client, wants, 2, NULL, &hold) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return false;
    }
    balances[from] -= amount;
    balances[to] += amount;
    bool released = hf_release(hold) == HF_OK;
    hf_hold_free(hold);
    return released;
}

static void *mover(void *arg) {
    const int first = *(const int *)arg;
    for (int i = 0; i < MOVES; i++) {
        int from = (first + i) % ACCOUNTS;
        if (!move(from, (from + 1 + i % 2) % ACCOUNTS, i))
            return NULL;
    }
    return client;
}

static bool move_with_threads(void) {
    pthread_t threads[THREADS];
    int first[THREADS];
    bool all = true;
    for (int i = 0; i < THREADS; i++) {
        first[i] = i;
        if (pthread_create(&threads[i], NULL, mover, &first[i]))
            return false;
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        all = all && result;
    }
    long sum = balances[0] + balances[1] + balances[2];
    printf("after %d moves %ld %ld %ld, together %ld\n", THREADS * MOVES, balances[0], balances[1],
           balances[2], sum);
    return all && sum == (long)ACCOUNTS * START;
}

/* Another client has the last of the three. */
static bool all_or_nothing(void) {
    hf_want wants[ACCOUNTS];
    const hf_want *pointers[ACCOUNTS];
    hf_hold *one, *all = NULL, *first;
    hf_acquire_options try_once = HF_ACQUIRE_OPTIONS_INIT;
    try_once.wait_ms = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        wants[i] = (hf_want)HF_WANT_INIT;
        wants[i].name = names[i];
        pointers[i] = &wants[i];
    }
    if (hf_acquire(client, names[ACCOUNTS - 1], NULL, &one) < 0)
        return false;
    int r = hf_acquire_all(client, pointers, ACCOUNTS, &try_once, &all);
    printf("all three: %s\n", r ? hf_last_error() : "acquired");
    bool nothing = r == HF_BUSY && hf_acquire(client, names[0], &try_once, &first) == HF_OK;
    if (nothing)
        hf_hold_free(first);
    hf_hold_free(one);
    hf_hold_free(all);
    return nothing;
}

int main(int argc, char **argv) {
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    bool right = move_with_threads() && all_or_nothing();
    hf_client_close(client);
    return right ? 0 : 1;
}
