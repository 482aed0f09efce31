/* Leader election: three candidates, each a thread with a client of its own, as if on three hosts.
 * Whoever is elected does some steps as the leader, as long as it has the time for the next one,
 * and resigns. The main program observes, and prints each leader with its value and its token. */
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { CANDIDATES = 3, STEPS = 20, STEP_MS = 10, STEP_NEEDS_MS = 1000, WAIT_MS = 30000 };

static const char *url = "memory:";
static atomic_int leading; /* how many do at the moment */

static void on_lost(hf_hold *hold, void *value) {
    fprintf(stderr, "%s no longer leads %s: %s\n", (const char *)value, hf_hold_name(hold),
            hf_last_error());
}

/* Asks before each step whether there is enough time left for it. */
static bool lead(hf_hold *hold) {
    bool alone = atomic_fetch_add(&leading, 1) == 0;
    for (int i = 0; i < STEPS && hf_check(hold, STEP_NEEDS_MS) == HF_OK; i++)
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    atomic_fetch_sub(&leading, 1);
    return alone;
}

static void *campaign(void *value) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.label = value; /* what observers see */
    options.on_lost = on_lost;
    options.on_lost_arg = value;
    hf_client *client;
    hf_hold *hold;
    bool right = false;
    if (hf_client_open(url, NULL, &client) < 0)
        return NULL;
    if (hf_acquire(client, "scheduler", &options, &hold) == HF_OK) {
        right = lead(hold);
        hf_release(hold); /* resigns; the next one is elected at once */
        hf_hold_free(hold);
    }
    hf_client_close(client);
    return right ? value : NULL;
}

/* Prints the leaders until as many as there are candidates have led, and checks their tokens. */
static bool observe(hf_client *client) {
    hf_leader leader = HF_LEADER_INIT;
    uint64_t largest = 0;
    for (int seen = 0; seen < CANDIDATES;) {
        if (hf_observe(client, "scheduler", leader.token, WAIT_MS, &leader) < 0) {
            fprintf(stderr, "%s\n", hf_last_error());
            return false;
        }
        if (leader.token == 0)
            continue; /* nobody leads at the moment */
        printf("%s leads, with token %" PRIu64 "\n", leader.value, leader.token);
        if (leader.token <= largest)
            return false;
        largest = leader.token;
        seen++;
    }
    return true;
}

int main(int argc, char **argv) {
    static char values[CANDIDATES][16] = {"web1:8080", "web2:8080", "web3:8080"};
    pthread_t threads[CANDIDATES];
    hf_client *client;
    if (argc > 1)
        url = argv[1];
    if (hf_client_open(url, NULL, &client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    for (int i = 0; i < CANDIDATES; i++) {
        if (pthread_create(&threads[i], NULL, campaign, values[i]))
            return 1;
    }
    bool right = observe(client);
    for (int i = 0; i < CANDIDATES; i++) {
        void *result;
        pthread_join(threads[i], &result);
        right = right && result;
    }
    hf_client_close(client);
    return right ? 0 : 1;
}
