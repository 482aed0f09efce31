/* What bench/redis.c and bench/quorum.c compare with: the requests of the Redis store, and smaller
 * ones, sent by bare hiredis in tight loops; and what the server says that it has done. Whatever
 * fails ends the program. */
#ifndef BENCH_REDIS_RAW_H
#define BENCH_REDIS_RAW_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The server of "redis://HOST:PORT…", for all that follows. */
void raw_find_server(const char *url);
redisContext *raw_connect(void);
redisContext *raw_connect_to(const char *host, int port);
/* The server's process. */
int raw_server_pid(redisContext *from);
redisContext *raw_subscribe(const char *channel);
/* The same server's URL with another database. */
const char *raw_url(int database);

struct raw_bytes {
    char *bytes;
    size_t size;
};

struct raw_bytes raw_command(size_t count, const char *const *words);

/* Sends, and waits for the reply, which is the caller's to free. */
redisReply *raw_ask(redisContext *to, const struct raw_bytes *request);
/* The same, without the reply; an error still ends the program. */
void raw_do(redisContext *to, const struct raw_bytes *request);
/* The next message of a subscription: its text, cut to `size`. */
void raw_hear(redisContext *from, char *text, size_t size);

/* One owner's requests for one name: byte for byte those of the store, except that the owner stays
 * the same. */
struct raw_lock {
    struct raw_bytes acquire, release;
    char *floor;      /* in acquire */
    char channel[64]; /* where the owner is notified that it is its turn */
};

struct raw_lock raw_lock(const char *name, unsigned owner);
/* The same for one server of a set, which must have been given the scripts (raw_load) and is told
 * that the set is new. */
struct raw_lock raw_vote(const char *name, unsigned owner, const char *set);
void raw_load(redisContext *to);
/* The published pair: SET NX PX, and the script that compares and deletes. */
struct raw_lock raw_published_lock(const char *name);
void raw_lock_free(struct raw_lock *lock);
/* Call this before each acquire that is not sent by these functions. */
void raw_raise_floor(struct raw_lock *lock);
void raw_pair(redisContext *to, struct raw_lock *lock);
/* One pair of each of the locks, all of their requests in flight at once. */
void raw_pipelined_pairs(redisContext *to, struct raw_lock *locks, size_t count);
/* Whether the lock was granted; otherwise its owner is in the queue and will be notified. */
bool raw_acquire(redisContext *to, struct raw_lock *lock);
/* How many wait for the name. */
long long raw_waiters(redisContext *to, const char *name);

/* What the server has done since it started. */
struct raw_cost {
    double reads;      /* of its sockets */
    double scripts;    /* that it ran, … */
    double scripts_us; /* … and their time */
    double renewals;   /* PEXPIRE */
    double cpu_us;
};

struct raw_cost raw_cost(redisContext *from);
/* From `before` to now, divided by `count`. */
struct raw_cost raw_cost_each(redisContext *from, struct raw_cost before, double count);

#endif
