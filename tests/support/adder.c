/* Clients that add to one counter at the same time: adder URL NAME CLIENTS ADDS, each ADDS times.
 *
 * Each client has a thread. If every addition of 1 happens once, each number from 1 to the sum is
 * the answer to one of them. The program prints the sum of all answers, which shows that. It ends
 * with status 1 at the first error. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS_MAX = 64 };

static const char *url, *name;
static long adds;
static atomic_llong answers;

static void check(int r, const char *what) {
    if (r == HF_OK)
        return;
    printf("%s: %s: %s\n", what, hf_error_name(r), hf_last_error());
    exit(1);
}

static void *add(void *unused) {
    hf_client *client;
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_ADD;
    options.number = 1;
    options.wait_ms = 60000;
    check(hf_client_open(url, NULL, &client), "open");
    for (long i = 0; i < adds; i++) {
        hf_counter counter = HF_COUNTER_INIT;
        check(hf_count(client, name, &options, &counter), "add");
        atomic_fetch_add(&answers, counter.value);
    }
    hf_client_close(client);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[CLIENTS_MAX];
    int clients = argc == 5 ? atoi(argv[3]) : 0;
    if (clients < 1 || clients > CLIENTS_MAX)
        return 2;
    url = argv[1];
    name = argv[2];
    adds = atol(argv[4]);
    for (int i = 0; i < clients; i++) {
        if (pthread_create(&threads[i], NULL, add, NULL) != 0)
            return 2;
    }
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    printf("%lld\n", (long long)atomic_load(&answers));
    return 0;
}
