/* A model of one Redis 7.0 server, for the simulator: it speaks the protocol, runs Lua scripts with a real Lua
 * 5.1, and knows the commands that the redis store sends and those that its scripts call.
 *
 * It is pure: no thread, socket, file, clock or randomness of its own, and no global state. The same calls in the
 * same order give the same bytes. Time is what model_set_time said last, and stands still while a request
 * is served. What it does not know it refuses, with an error that no server has: it never guesses.
 * differential_test compares it with a real server, byte for byte; where the two may differ is said in
 * model.h. It is for tests: out of memory, it aborts.
 *
 * Nothing here may be called from within `output`. */
#ifndef MODEL_REDIS_H
#define MODEL_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_redis;
struct model_connection;

struct model_config {
    /* What the server sends: replies in the order of the requests, and messages of channels in the moment in
     * which they are published, both whole. `context` is the connection's. */
    void (*output)(void *context, const char *bytes, size_t size);
    /* For model_restart and model_evict; may be NULL where neither picks at random. */
    uint64_t (*random)(void *random_context);
    void *random_context;
    const char *password; /* of the user "default"; NULL: anybody may do anything. Not copied */
};

/* A server with no keys, no scripts, and the time 0. */
struct model_redis *model_new(const struct model_config *config);

/* Returns NULL; takes NULL. Ends the connections, too. */
struct model_redis *model_free(struct model_redis *redis);

/* Makes it what model_new returns, with the same configuration, in far less time: Lua and what it has compiled
 * stay, and no client can tell. There must be no connections. */
void model_reset(struct model_redis *redis);

/* The server's own clock, in microseconds since 1970, right or wrong; it may go back. A key whose time has passed
 * is as good as deleted, but is deleted only when a request comes upon it, or by model_expire: if the clock
 * goes back before that, the key is there again, as in a real server. */
void model_set_time(struct model_redis *redis, int64_t wall_us);

/* Deletes the keys whose time has passed, which a real server does in the background. */
void model_expire(struct model_redis *redis);

/* ---- Connections ---- */

struct model_connection *model_connect(struct model_redis *redis, void *context);

/* The client has sent this, which may be a part of a request, or several. False: that was no Redis protocol; the
 * server says so and hangs up. The caller disconnects. */
bool model_feed(struct model_connection *connection, const char *bytes, size_t size);

/* Frees the connection; takes NULL. */
void model_disconnect(struct model_connection *connection);

/* ---- What befalls it ---- */

enum model_keep {
    MODEL_KEEP_ALL,   /* as if every write were on the disk at once */
    MODEL_KEEP_NONE,  /* a server without persistence */
    MODEL_KEEP_SAVED, /* what there was at the last model_save, if there was one */
    MODEL_KEEP_SOME,  /* each key, or not, by `random` */
};

/* Notes what there is, for MODEL_KEEP_SAVED: as the server's snapshot, or its log's last sync. */
void model_save(struct model_redis *redis);

/* The server ends and starts again. Scripts are forgotten; so is what is kept but has expired. The mode stays.
 * There must be no connections: the caller, who knows what their clients see of this, has ended them. */
void model_restart(struct model_redis *redis, enum model_keep keep);

/* By which it knows this run of itself, in 40 digits. Good until the next call. */
const char *model_run_id(const struct model_redis *redis);

void model_flush_all(struct model_redis *redis);

/* Deletes this key, or any by `random` if `name` is NULL. False: there is none. */
bool model_evict(struct model_redis *redis, const char *name);

/* A state in which a server refuses requests, and others not, all in its own words. A script that has called a
 * command that writes is not stopped any more by the first three, as in a real server. */
enum model_mode {
    MODEL_OK,
    MODEL_OOM, /* at its maxmemory with the policy noeviction: commands that may need memory fail */
    MODEL_READONLY, /* a replica: commands that write fail, and expired keys are not deleted */
    MODEL_MISCONF,  /* it cannot save: commands that write fail, and PING */
    MODEL_LOADING,  /* all but a few commands fail */
    MODEL_BUSY,     /* with a slow script: all but AUTH fail */
};
void model_set_mode(struct model_redis *redis, enum model_mode mode);

/* ---- What is in it, for checkers ----
 *
 * Keys are in the order of their bytes, and end with a NUL that is not counted, as values do. What is returned
 * stays until the next call that is not one of these. Looking deletes nothing. */

enum model_type { MODEL_STRING, MODEL_HASH, MODEL_SORTED_SET };

struct model_key {
    const char *name;
    size_t size;
    enum model_type type;
    int64_t expires_ms; /* by the server's clock; -1: never */
    bool expired;       /* no client sees it */
};
struct model_field {
    const char *name, *value;
    size_t name_size, value_size;
};
struct model_member {
    const char *name;
    size_t size;
    double score;
};

/* The key of that place, from 0; false: there are not so many. */
bool model_key_at(const struct model_redis *redis, size_t place, struct model_key *ret_key);
/* False: there is none, or it has expired; so for the rest, which also want the right type. */
bool model_find_key(const struct model_redis *redis, const char *name, struct model_key *ret_key);
const char *model_find_string(const struct model_redis *redis, const char *name, size_t *ret_size);
const char *model_find_field(const struct model_redis *redis, const char *name, const char *field);
/* In the order in which the fields came, and in that of the scores. */
bool model_field_at(const struct model_redis *redis, const char *name, size_t place,
                    struct model_field *ret_field);
bool model_member_at(const struct model_redis *redis, const char *name, size_t place,
                     struct model_member *ret_member);

#endif
