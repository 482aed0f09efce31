/* Fencing in Redis: the server refuses a writer that has lost the lock without knowing it. Two
 * workers write a report. The first takes the lock and pauses for longer than its lease, so the
 * second gets the lock and writes. When the first goes on, its command is refused, because the
 * server has seen a larger token.
 *
 *    fence_redis LOCKS PORT
 *
 * LOCKS is the URL of any store, PORT that of a Redis server on this host. */
#include <hiredis/hiredis.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    const char *name;
    redisContext *redis;
    hf_client *client;
    hf_hold *hold;
    char token[32];
};

/* Has the server check the token and execute a command, in one step. NULL: only the check. */
static bool run(const struct worker *w, const char *command, const char *key, const char *value) {
    const char *words[] = {"EVAL",   HF_FENCE_REDIS, "1", "report:fence", "report",
                           w->token, command,        key, value};
    redisReply *reply = redisCommandArgv(w->redis, command ? 9 : 6, words, NULL);
    bool done = reply && reply->type != REDIS_REPLY_ERROR;
    printf("%s: %s\n", w->name, reply ? reply->str : w->redis->errstr);
    freeReplyObject(reply);
    return done;
}

/* Takes the lock and registers the token. Only then may the worker read. */
static bool start(struct worker *w, const char *locks, int port) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    uint64_t token;
    options.lease_ms = 1000;
    options.flags = HF_NO_RENEW; /* as if the worker were paused from here on */
    w->redis = redisConnect("127.0.0.1", port);
    if (!w->redis || w->redis->err || hf_client_open(locks, NULL, &w->client) < 0 ||
        hf_acquire(w->client, "report", &options, &w->hold) < 0 ||
        hf_fence_token(w->hold, &token) < 0) {
        fprintf(stderr, "%s: %s\n", w->name, hf_last_error());
        return false;
    }
    snprintf(w->token, sizeof(w->token), "%" PRIu64, token);
    return run(w, NULL, NULL, NULL);
}

static void stop(struct worker *w) {
    hf_hold_free(w->hold);
    hf_client_close(w->client);
    if (w->redis)
        redisFree(w->redis);
}

int main(int argc, char **argv) {
    struct worker first = {.name = "first"}, second = {.name = "second"};
    if (argc != 3) {
        fprintf(stderr, "usage: fence_redis LOCKS PORT\n");
        return 64;
    }
    int port = atoi(argv[2]);
    /* The second waits until the first one's lease has ended. */
    bool right = start(&first, argv[1], port) && start(&second, argv[1], port);
    right = right && run(&second, "SET", "report", "by the second");
    right = right && !run(&first, "SET", "report", "by the first");
    stop(&first);
    stop(&second);
    return right ? 0 : 1;
}
