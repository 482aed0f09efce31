/* Inside the model: the server, its connections, and how a command is called.
 *
 *    redis.c         the server's life, its connections, and what checkers see
 *    command.c       the table of commands, and who may call which when
 *    keys.c hashes.c sorted_sets.c server.c     the commands
 *    script.c        Lua
 *    keyspace.c bytes.c sha1.c                  what they stand on
 *
 * Where it differs from Redis 7.0, on purpose:
 *
 *  - What it does not know it refuses: commands and options that are not in the table, Lua's libraries beyond
 *    those of script.c, inline requests, databases other than 0. A store or script that came to need them fails.
 *  - SCAN returns all keys at once, in order. Redis promises neither more nor less.
 *  - HGETALL has the order in which fields came. In Redis that is so only while a hash is small; then
 *    it is any order, and nobody may rely on either.
 *  - Time stands still during a script. In Redis 7.0 what has expired is decided once for a script, too, but TIME
 *    and PTTL go on; that a script sees time pass is thus not modelled.
 *  - A transaction log, replicas and memory are not there: model_restart and model_set_mode say what they would do.
 */
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
    uint64_t run; /* how often it was started anew */
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
/* The same for a script; `*wrote` is whether it has called a command that writes, and is set by such. */
void model_serve_script(struct call *call, bool *wrote);

void answer_syntax_error(struct call *call);
void answer_not_integer(struct call *call);
/* An option that Redis may know. */
void answer_unknown_option(struct call *call, struct slice option);
void answer_wrong_arity(struct call *call, const char *command);

/* ---- keys.c ---- */

/* The key as clients see it: NULL if there is none, or its time has passed. */
struct entry *model_find(struct model_redis *redis, struct slice name);
/* The key words[1] in `*ret_entry`, NULL if there is none. False, and answered: it is of another type. */
bool model_find_typed(struct call *call, enum model_type type, struct entry **ret_entry);
bool model_has_expired(const struct model_redis *redis, const struct entry *entry);
void model_drop_if_empty(struct model_redis *redis, struct entry *entry);

/* ---- redis.c ---- */

void model_unsubscribe(struct model_connection *connection, size_t place);

/* ---- script.c ---- */

struct scripts *scripts_new(struct model_redis *redis);
void scripts_free(struct scripts *scripts);
/* As after SCRIPT FLUSH. What was compiled stays, for when the same text comes again. */
void scripts_forget(struct scripts *scripts);
bool scripts_know(const struct scripts *scripts, struct slice sha1);
/* False, and answered: it does not compile. */
bool scripts_load(struct scripts *scripts, struct slice text, char ret_sha1[SHA1_SIZE + 1],
                  struct text *answer);
/* One that is known. The first `key_count` of the words are KEYS, the others ARGV. */
void scripts_run(struct scripts *scripts, struct slice sha1, const struct slice *words,
                 size_t count, size_t key_count, struct text *answer);

/* ---- The commands ---- */

typedef void serve_command(struct call *call);
serve_command serve_auth, serve_client, serve_config, serve_del, serve_eval, serve_evalsha,
    serve_exists, serve_flushall, serve_get, serve_hdel, serve_hget, serve_hgetall, serve_hincrby,
    serve_hmget, serve_hset, serve_info, serve_pexpire, serve_ping, serve_pttl, serve_publish,
    serve_role, serve_scan, serve_script, serve_select, serve_set, serve_setrange, serve_subscribe,
    serve_time, serve_unsubscribe, serve_zadd, serve_zrange, serve_zrangebyscore, serve_zrank,
    serve_zrem, serve_zscore;

#endif
