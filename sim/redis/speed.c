/* Measures the model: the simulator runs hundreds of thousands of histories, each with its own
 * server and tens of scripts. */
#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"
#include "store/redis/scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HISTORIES = 2000, CALLS = 50 };

struct client {
    struct model_connection *connection;
    bool unknown; /* the server does not know the script that was called last */
    size_t failed;
};

static void client_heard(void *context, const char *bytes, size_t size) {
    struct client *client = context;
    (void)size;
    client->unknown = strncmp(bytes, "-NOSCRIPT", 9) == 0;
    client->failed += bytes[0] == '-' && !client->unknown;
}

/* Three owners take, release and look at a lock in turn, so that some of them wait. */
static void send_call(struct client *client, enum redis_script_id script, int call, bool whole) {
    static const char *const keys[] = {"holdfast:a",     "{holdfast:a}.s", "{holdfast:a}.q",
                                       "{holdfast:a}.w", "{holdfast:a}.h", "{holdfast:a}.i"};
    static const char *const rest[] = {
        "10000",      "2000",       "1700000000000000",     "0",         "0", "0", "rw",
        "2147483647", "2147483647", "4711 4 7 hostcommand", "holdfast:@"};
    struct text request = {NULL, 0, 0};
    char owner[64];
    const struct redis_script *what = &redis_scripts[script];
    size_t args = script == REDIS_ACQUIRE ? 11 : script == REDIS_RELEASE ? 1 : 0;
    snprintf(owner, sizeof(owner), "%032x-%x", call / 3 % 3, 1);
    answer_array(&request, 10 + args);
    answer_bulk(&request, slice_of(whole ? "EVAL" : "EVALSHA"));
    answer_bulk(&request, whole ? (struct slice){what->text, what->size} : slice_of(what->sha1));
    answer_bulk(&request, slice_of("6"));
    for (size_t i = 0; i < 6; i++)
        answer_bulk(&request, slice_of(keys[i]));
    answer_bulk(&request, slice_of(owner));
    for (size_t i = 0; i < args; i++)
        answer_bulk(&request, slice_of(rest[script == REDIS_RELEASE ? 10 : i]));
    model_feed(client->connection, request.bytes, request.size);
    text_free(&request);
}

static void run_history(struct model_redis *redis, int calls, size_t *failed) {
    static const enum redis_script_id scripts[] = {REDIS_ACQUIRE, REDIS_ACQUIRE, REDIS_RELEASE,
                                                   REDIS_ACQUIRE, REDIS_LOOK};
    struct client client = {NULL, false, 0};
    client.connection = model_connect(redis, &client);
    for (int call = 0; call < calls; call++) {
        enum redis_script_id script = scripts[call % 5];
        model_set_time(redis, 1700000000000000 + call * 10000);
        send_call(&client, script, call, false);
        if (client.unknown)
            send_call(&client, script, call, true);
    }
    model_disconnect(client.connection);
    *failed += client.failed;
}

/* Time of the processor, so other programs on the machine do not matter. */
static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* For one history, on average. */
static double measure_us(bool reset, int calls) {
    static const struct model_config config = {.output = client_heard};
    struct model_redis *redis = model_new(&config);
    size_t failed = 0;
    double start_us = now_us();
    for (int i = 0; i < HISTORIES; i++) {
        if (reset) {
            model_reset(redis);
        } else {
            model_free(redis);
            redis = model_new(&config);
        }
        run_history(redis, calls, &failed);
    }
    double took_us = now_us() - start_us;
    model_free(redis);
    if (failed)
        exit(1);
    return took_us / HISTORIES;
}

int main(void) {
    double made_us = measure_us(false, 0), reset_us = measure_us(true, 0);
    double new_us = measure_us(false, CALLS), again_us = measure_us(true, CALLS);
    printf("a new server                      %7.1f us\n", made_us);
    printf("  and %d scripts, to be compiled  %7.1f us\n", CALLS, new_us);
    printf("a server that is reset            %7.1f us\n", reset_us);
    printf("  and %d scripts                  %7.1f us\n", CALLS, again_us);
    printf("  one of them                     %7.2f us\n", (again_us - reset_us) / CALLS);
}
