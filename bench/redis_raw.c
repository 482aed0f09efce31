/* See redis_raw.h. The requests are built by the store's own builder from the store's own
 * scripts. */
#include "redis_raw.h"

#include "result.h"

#include "store/redis/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PREFIX "holdfast:"
#define CHANNELS "holdfast:@"
#define LEASE_MS "30000"
#define WAIT_LEASE_MS "60000" /* nobody renews it */
#define PARTICULARS "12345 7 11 machinebench-redis"
#define ALL "2147483647" /* the capacity of a lock, and the weight of an exclusive hold */

/* ---- Connections ---- */

static char host[64];
static int port;

void raw_find_server(const char *url) {
    if (sscanf(url, "redis://%63[^:/]:%d", host, &port) != 2)
        result_die(url, "it must be redis://HOST:PORT, without a password");
}

const char *raw_url(int database) {
    static char url[128];
    snprintf(url, sizeof(url), "redis://%s:%d/%d", host, port, database);
    return url;
}

redisContext *raw_connect_to(const char *to_host, int to_port) {
    redisContext *to = redisConnect(to_host, to_port);
    if (!to || to->err)
        result_die("connect", to ? to->errstr : "no memory");
    return to;
}

redisContext *raw_connect(void) {
    return raw_connect_to(host, port);
}

redisContext *raw_subscribe(const char *channel) {
    redisContext *to = raw_connect();
    const char *const words[] = {"SUBSCRIBE", channel};
    struct raw_bytes request = raw_command(2, words);
    raw_do(to, &request);
    free(request.bytes);
    return to;
}

static redisReply *next_reply(redisContext *from) {
    void *reply = NULL;
    if (redisGetReply(from, &reply) != REDIS_OK)
        result_die("reply", from->errstr);
    redisReply *got = reply;
    if (got->type == REDIS_REPLY_ERROR)
        result_die("the server says", got->str);
    return got;
}

redisReply *raw_ask(redisContext *to, const struct raw_bytes *request) {
    redisAppendFormattedCommand(to, request->bytes, request->size);
    return next_reply(to);
}

void raw_do(redisContext *to, const struct raw_bytes *request) {
    freeReplyObject(raw_ask(to, request));
}

void raw_hear(redisContext *from, char *text, size_t size) {
    redisReply *reply = next_reply(from);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !reply->element[2]->str)
        result_die("message", "it makes no sense");
    snprintf(text, size, "%s", reply->element[2]->str);
    freeReplyObject(reply);
}

/* ---- Requests ---- */

static struct raw_bytes finish(struct command *command) {
    struct raw_bytes request;
    request.bytes = command_bytes(command, &request.size);
    if (!request.bytes)
        result_die("request", "no memory");
    command_free(command);
    return request;
}

struct raw_bytes raw_command(size_t count, const char *const *words) {
    struct command command = {0};
    command_start(&command);
    for (size_t i = 0; i < count; i++)
        command_add_text(&command, words[i]);
    return finish(&command);
}

static void load(redisContext *to, const char *script, size_t size, char ret_sha1[41]) {
    redisReply *reply = redisCommand(to, "SCRIPT LOAD %b", script, size);
    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != 40)
        result_die("SCRIPT LOAD", reply && reply->str ? reply->str : to->errstr);
    memcpy(ret_sha1, reply->str, 41);
    freeReplyObject(reply);
}

void raw_load(redisContext *to) {
    char sha1[41];
    for (int i = 0; i < REDIS_SCRIPTS; i++) {
        load(to, redis_scripts[i].text, redis_scripts[i].size, sha1);
        if (strcmp(sha1, redis_scripts[i].sha1) != 0)
            result_die(redis_scripts[i].name, "the server has another SHA-1 for it");
    }
}

static void load_once(void) {
    static bool loaded;
    if (loaded)
        return;
    redisContext *to = raw_connect();
    raw_load(to);
    loaded = true;
    redisFree(to);
}

static uint64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void add_texts(struct command *command, size_t count, const char *const *texts) {
    for (size_t i = 0; i < count; i++)
        command_add_text(command, texts[i]);
}

#define ADD_TEXTS(command, ...)                                                           \
    add_texts(command, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), \
              (const char *const[]){__VA_ARGS__})

/* The floor of a token is the wall clock's time, as the store sends it: a grant takes the short
 * path only if that has risen. All these times have the same number of digits. */
enum { FLOOR_DIGITS = 16 };

static void add_floor(struct command *command, char ret_floor[FLOOR_DIGITS + 1]) {
    snprintf(ret_floor, FLOOR_DIGITS + 1, "%" PRIu64, wall_us());
    command_add_text(command, ret_floor);
}

static void find_floor(struct raw_lock *lock, const char *floor) {
    lock->floor = memmem(lock->acquire.bytes, lock->acquire.size, floor, FLOOR_DIGITS);
}

void raw_raise_floor(struct raw_lock *lock) {
    char floor[FLOOR_DIGITS + 1];
    if (!lock->floor)
        return;
    snprintf(floor, sizeof(floor), "%" PRIu64, wall_us());
    memcpy(lock->floor, floor, FLOOR_DIGITS);
}

/* What follows is as in src/store/redis/claims.c. */

static struct raw_bytes release_of(const char *name, const char *id, const char *told) {
    struct command release = {0};
    command_start_script(&release, REDIS_RELEASE, 6);
    command_add_keys(&release, PREFIX, name, "KSQWHI");
    ADD_TEXTS(&release, id, CHANNELS, told);
    return finish(&release);
}

struct raw_lock raw_lock(const char *name, unsigned owner) {
    struct raw_lock lock;
    char id[64], floor[FLOOR_DIGITS + 1];
    load_once();
    snprintf(id, sizeof(id), "%032x-1", owner);
    snprintf(lock.channel, sizeof(lock.channel), CHANNELS "%.32s", id);
    struct command acquire = {0};
    command_start_script(&acquire, REDIS_ACQUIRE, 6);
    command_add_keys(&acquire, PREFIX, name, "KSQWHI");
    ADD_TEXTS(&acquire, id, LEASE_MS, WAIT_LEASE_MS);
    add_floor(&acquire, floor);
    ADD_TEXTS(&acquire, "0", "0", "rw", ALL, ALL, PARTICULARS, CHANNELS);
    lock.acquire = finish(&acquire);
    find_floor(&lock, floor);
    lock.release = release_of(name, id, "");
    return lock;
}

struct raw_lock raw_vote(const char *name, unsigned owner, const char *set) {
    struct raw_lock lock = {0};
    char id[64], floor[FLOOR_DIGITS + 1];
    snprintf(id, sizeof(id), "%032x-1", owner);
    struct command vote = {0};
    command_start_script(&vote, REDIS_VOTE, 7);
    command_add_keys(&vote, PREFIX, name, "KSQWHI");
    ADD_TEXTS(&vote, "{" PREFIX "}.set", id, LEASE_MS);
    add_floor(&vote, floor);
    ADD_TEXTS(&vote, "0", "0", "0", "rw", ALL, ALL, PARTICULARS, set, "60000", "1", "1");
    lock.acquire = finish(&vote);
    find_floor(&lock, floor);
    lock.release = release_of(name, id, name);
    return lock;
}

struct raw_lock raw_published_lock(const char *name) {
    static const char script[] = "if redis.call('get',KEYS[1]) == ARGV[1] then "
                                 "return redis.call('del',KEYS[1]) else return 0 end";
    char sha1[41];
    redisContext *to = raw_connect();
    load(to, script, sizeof(script) - 1, sha1);
    redisFree(to);
    const char *const set[] = {"SET", name, "0123456789abcdef0123456789abcdef",
                               "NX",  "PX", LEASE_MS};
    const char *const compare[] = {"EVALSHA", sha1, "1", name, set[2]};
    return (struct raw_lock){.acquire = raw_command(6, set), .release = raw_command(5, compare)};
}

void raw_lock_free(struct raw_lock *lock) {
    free(lock->acquire.bytes);
    free(lock->release.bytes);
}

bool raw_acquire(redisContext *to, struct raw_lock *lock) {
    raw_raise_floor(lock);
    redisReply *reply = raw_ask(to, &lock->acquire);
    const char *word = reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->str : "?";
    bool done = strcmp(word, "done") == 0;
    if (!done && strcmp(word, "queued") != 0)
        result_die("the server answers", word);
    freeReplyObject(reply);
    return done;
}

void raw_pair(redisContext *to, struct raw_lock *lock) {
    raw_raise_floor(lock);
    raw_do(to, &lock->acquire);
    raw_do(to, &lock->release);
}

void raw_pipelined_pairs(redisContext *to, struct raw_lock *locks, size_t count) {
    for (size_t i = 0; i < count; i++)
        raw_raise_floor(&locks[i]);
    for (int step = 0; step < 2; step++) {
        for (size_t i = 0; i < count; i++) {
            const struct raw_bytes *request = step ? &locks[i].release : &locks[i].acquire;
            redisAppendFormattedCommand(to, request->bytes, request->size);
        }
        for (size_t i = 0; i < count; i++)
            freeReplyObject(next_reply(to));
    }
}

long long raw_waiters(redisContext *to, const char *name) {
    struct command command = {0};
    command_start(&command);
    command_add_text(&command, "ZCARD");
    command_add_keys(&command, PREFIX, name, "Q");
    struct raw_bytes request = finish(&command);
    redisReply *reply = raw_ask(to, &request);
    long long count = reply->integer;
    freeReplyObject(reply);
    free(request.bytes);
    return count;
}

/* ---- What the server has done ---- */

static double number_after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    return at ? strtod(at + strlen(what), NULL) : 0;
}

static redisReply *info(redisContext *from, const char *section) {
    redisReply *reply = redisCommand(from, "INFO %s", section);
    if (!reply || reply->type != REDIS_REPLY_STRING)
        result_die("INFO", from->errstr);
    return reply;
}

int raw_server_pid(redisContext *from) {
    redisReply *reply = info(from, "server");
    int pid = (int)number_after(reply->str, "process_id:");
    freeReplyObject(reply);
    return pid;
}

struct raw_cost raw_cost(redisContext *from) {
    struct raw_cost cost = {0};
    redisReply *stats = info(from, "stats"), *cpu = info(from, "cpu");
    redisReply *commands = info(from, "commandstats");
    cost.reads = number_after(stats->str, "total_reads_processed:");
    cost.cpu_us =
        1e6 * (number_after(cpu->str, "used_cpu_sys:") + number_after(cpu->str, "used_cpu_user:"));
    cost.scripts = number_after(commands->str, "cmdstat_evalsha:calls=");
    const char *scripts = strstr(commands->str, "cmdstat_evalsha:");
    cost.scripts_us = scripts ? number_after(scripts, "usec=") : 0;
    cost.renewals = number_after(commands->str, "cmdstat_pexpire:calls=");
    freeReplyObject(stats);
    freeReplyObject(cpu);
    freeReplyObject(commands);
    return cost;
}

struct raw_cost raw_cost_each(redisContext *from, struct raw_cost before, double count) {
    struct raw_cost now = raw_cost(from);
    return (struct raw_cost){.reads = (now.reads - before.reads - 3) / count, /* without ours */
                             .scripts = (now.scripts - before.scripts) / count,
                             .scripts_us = (now.scripts_us - before.scripts_us) / count,
                             .renewals = (now.renewals - before.renewals) / count,
                             .cpu_us = (now.cpu_us - before.cpu_us) / count};
}
