/* A candidate that campaigns until it is killed: leader URL NAME VALUE LEASE_MS. It prints lines
 * that tests/servers/election.py compares, with times of CLOCK_BOOTTIME in us:
 *
 *     elected TOKEN AT      when it had learned of it
 *     until TOKEN DEADLINE  it has seen that this much time is left; again when that is longer
 *     lost TOKEN AT         on_lost was called
 */
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void say(const char *word, uint64_t token, int64_t us) {
    printf("%s %" PRIu64 " %" PRId64 "\n", word, token, us);
    if (fflush(stdout) != 0)
        exit(EXIT_FAILURE); /* the test has ended */
}

static void on_lost(hf_hold *hold, void *was_told) {
    say("lost", hf_hold_token(hold), now_us());
    atomic_store((atomic_bool *)was_told, true);
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* What a leader does: it checks whether it still leads, and relies on that for as long as the
 * library says. */
static void lead(hf_hold *hold) {
    int64_t deadline_us = 0;
    while (hf_check(hold, 0) == HF_OK) {
        int64_t before_us = now_us(), left_ms = hf_hold_left_ms(hold);
        if (left_ms > 0 && before_us + left_ms * 1000 > deadline_us + 5000) {
            deadline_us = before_us + left_ms * 1000;
            say("until", hf_hold_token(hold), deadline_us);
        }
        nap();
    }
}

int main(int argc, char **argv) {
    hf_client_options client_options = HF_CLIENT_OPTIONS_INIT;
    client_options.store_wait_ms = HF_FOREVER;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_client *client;
    atomic_bool was_told;
    if (argc != 5 || hf_client_open(argv[1], &client_options, &client) < 0) {
        fprintf(stderr, "leader URL NAME VALUE LEASE_MS: %s\n", hf_last_error());
        return EXIT_FAILURE;
    }
    options.label = argv[3];
    options.lease_ms = strtol(argv[4], NULL, 10);
    options.on_lost = on_lost;
    options.on_lost_arg = &was_told;
    for (;;) {
        hf_hold *hold;
        atomic_store(&was_told, false);
        if (hf_acquire(client, argv[2], &options, &hold) < 0) {
            fprintf(stderr, "%s\n", hf_last_error());
            continue;
        }
        say("elected", hf_hold_token(hold), now_us());
        lead(hold);
        while (!atomic_load(&was_told))
            nap(); /* once the hold is freed, on_lost is not called */
        hf_hold_free(hold);
    }
}
