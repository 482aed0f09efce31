/* Inside the model: the server, its connections, and how a command is called.
 *
 *    redis.c         the server's life, its connections, and what checkers see
 *    command.c       the table of commands, and the checks before a command runs
 *    keys.c hashes.c sorted_sets.c server.c     the commands
 *    script.c        Lua
 *    keyspace.c bytes.c sha1.c pool.c           the foundations
 *    service.c       the model as a service of the simulator
 *
 * It differs from Redis 7.0 on purpose:
 *
 *  - It refuses what it does not know: commands and options that are not in the table,
 *    libraries of Lua that are not in script.c, inline requests, databases other than 0. A store or
 *    a script that starts to need them fails.
 *  - SCAN returns all keys at once, in order. Redis promises neither more nor less.
 *  - HGETALL uses the order in which fields came. Redis has that order only while a hash is small;
 *    later the order is arbitrary, and nobody may rely on either.
 *  - Time stands still during a script. Redis 7.0 also decides once for each script what has
 *    expired, but TIME and PTTL keep running. The model does not let a script see time pass.
 *  - It has no transaction log, no replicas and no memory limit: model_restart and model_set_mode
 *    have the effects that they would have. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/list.h"
#include "sim/redis/keyspace.h"
#include "sim/redis/sha1.h"

struct scripts;

struct model_redis {
    struct model_config config;
    enum model_mode mode;
    int64_t now_us;
    uint64_t run; /* how often it was restarted */
    struct keyspace keys, saved;
    struct scripts *scripts;
    struct list connections; /* in the order in which they came */
    struct slice *words;     /* of the request that is served */
    size_t words_room;
    struct text answer; /* to it */
};

struct model_connection {
    struct list link;
    struct model_redis *redis;
    void *context;
    struct text input;
    bool authenticated;
    struct slice *channels; /* to which it is subscribed */
    size_t channel_count;
};

/* One call of a command, by a client or a script. */
struct call {
    struct model_redis *redis;
    struct model_connection *connection; /* NULL in a script */
    const struct slice *words;           /* the command's name, and its arguments */
    size_t count;
    struct text *answer;
};

/* ---- command.c ---- */

/* Serves a client's request: adds the answer, whatever it is. */
void model_serve(struct call *call);
/* The same for a script. `*wrote` says whether the script has called a command that writes,
 * and is set by one. */
void model_serve_script(struct call *call, bool *wrote);

void answer_syntax_error(struct call *call);
void answer_not_integer(struct call *call);
/* An option that Redis may know. */
void answer_unknown_option(struct call *call, struct slice option);
void answer_wrong_arity(struct call *call, const char *command);

/* ---- keys.c ---- */

/* The key as clients see it: NULL if there is none, or it has expired. */
struct entry *model_find(struct model_redis *redis, struct slice name);
/* Finds the key words[1]; `*ret_entry` is NULL if there is none. Returns false, and has
 * answered, if it is of another type. */
bool model_find_typed(struct call *call, enum model_type type, struct entry **ret_entry);
bool model_has_expired(const struct model_redis *redis, const struct entry *entry);
void model_drop_if_empty(struct model_redis *redis, struct entry *entry);

/* ---- redis.c ---- */

void model_unsubscribe(struct model_connection *connection, size_t place);

/* ---- script.c ---- */

struct scripts *scripts_new(struct model_redis *redis);
void scripts_free(struct scripts *scripts);
/* As after SCRIPT FLUSH. Compiled scripts stay, for the next time the same text comes. */
void scripts_forget(struct scripts *scripts);
bool scripts_know(const struct scripts *scripts, struct slice sha1);
/* Returns false, and has answered, if it does not compile. */
bool scripts_load(struct scripts *scripts, struct slice text, char ret_sha1[SHA1_SIZE + 1],
                  struct text *answer);
/* Runs a script that is known. The first `key_count` of the words are KEYS, the others ARGV. */
void scripts_run(struct scripts *scripts, struct slice sha1, const struct slice *words,
                 size_t count, size_t key_count, struct text *answer);

/* ---- The commands ---- */

typedef void serve_command(struct call *call);
serve_command serve_auth, serve_client, serve_config, serve_del, serve_eval, serve_evalsha,
    serve_exists, serve_flushall, serve_get, serve_hdel, serve_hget, serve_hgetall, serve_hincrby,
    serve_hmget, serve_hset, serve_incrby, serve_info, serve_pexpire, serve_ping, serve_pttl,
    serve_publish, serve_role, serve_scan, serve_script, serve_select, serve_set, serve_setrange,
    serve_subscribe, serve_time, serve_unsubscribe, serve_zadd, serve_zrange, serve_zrangebyscore,
    serve_zrank, serve_zrem, serve_zscore;

#endif
