/* Blocking calls from several threads on one client. Four threads count orders, which is safe only
 * one at a time. Each acquires the lock, checks it before each step of its work, and passes its
 * token to the resource with every write. Then the case that no lock can prevent: a holder that was
 * paused for too long and does not check. The resource remembers the largest token that it has
 * seen, and refuses the late write. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 10, STEPS = 5, STEP_MS = 100 };

/* The resource, which would be a database or a file. Its own mutex makes check and write one
 * step. */
static pthread_mutex_t resource = PTHREAD_MUTEX_INITIALIZER;
static uint64_t largest_token;
static long orders;

static long resource_read(void) {
    pthread_mutex_lock(&resource);
    long value = orders;
    pthread_mutex_unlock(&resource);
    return value;
}

static bool resource_write(uint64_t token, long value) {
    pthread_mutex_lock(&resource);
    bool accepted = token >= largest_token;
    if (accepted) {
        largest_token = token;
        orders = value;
    }
    pthread_mutex_unlock(&resource);
    return accepted;
}

/* The work under one hold, step by step; false if it had to stop. */
static bool count_orders(hf_hold *hold) {
    for (int step = 0; step < STEPS; step++) {
        if (hf_check(hold, STEP_MS) < 0)
            return false;
        if (!resource_write(hf_hold_token(hold), resource_read() + 1))
            return false;
    }
    return true;
}

static void *thread_main(void *client) {
    for (int round = 0; round < ROUNDS; round++) {
        hf_hold *hold;
        if (hf_acquire(client, "orders", NULL, &hold) < 0) {
            fprintf(stderr, "%s\n", hf_last_error());
            return NULL;
        }
        bool counted = count_orders(hold);
        bool released = hf_release(hold) == HF_OK;
        hf_hold_free(hold);
        if (!counted || !released)
            return NULL;
    }
    return client;
}

static bool count_with_threads(hf_client *client) {
    pthread_t threads[THREADS];
    bool all = true;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread_main, client))
            return false;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        all = all && result;
    }
    printf("%d threads have counted %ld orders, and should have counted %d\n", THREADS,
           resource_read(), THREADS * ROUNDS * STEPS);
    return all && resource_read() == THREADS * ROUNDS * STEPS;
}

/* Breaking the lock stands for a lease that ran out while the holder was paused. */
static bool stale_writer_is_refused(hf_client *client) {
    hf_hold *paused, *next;
    if (hf_acquire(client, "orders", NULL, &paused) < 0 ||
        hf_break(client, "orders", hf_hold_token(paused), NULL) < 0 ||
        hf_acquire(client, "orders", NULL, &next) < 0)
        return false;
    bool accepted = resource_write(hf_hold_token(next), 1000);
    bool refused = !resource_write(hf_hold_token(paused), 13);
    printf("the next holder's write is %s, the paused holder's %s; hf_check tells it: %s\n",
           accepted ? "accepted" : "refused", refused ? "refused" : "accepted",
           hf_error_string(hf_check(paused, 0)));
    bool told = hf_check(paused, 0) == HF_LOST;
    hf_hold_free(paused);
    hf_hold_free(next);
    return accepted && refused && told && resource_read() == 1000;
}

int main(int argc, char **argv) {
    hf_client *client;
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    bool right = count_with_threads(client) && stale_writer_is_refused(client);
    hf_client_close(client);
    return right ? 0 : 1;
}
