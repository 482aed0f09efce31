/* A model of one Redis 7.0 server: it speaks the protocol, runs Lua scripts with a real Lua
 * 5.1, and knows the commands that the Redis store sends and those that its scripts call.
 *
 * It is pure: no thread, socket, file, clock or randomness of its own, and no global state.
 * The same calls in the same order give the same bytes. Its time is what model_set_time last set,
 * and stands still while a request is served. It refuses what it does not know, with an error that
 * no server has: it never guesses. differential_test compares it with a real server, byte for byte;
 * model.h says where the two may differ. It is for tests: it aborts if there is no memory.
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
    /* What the server sends: replies in the order of the requests, and messages of channels at
     * the moment they are published. Both are passed whole. `context` is the connection's. */
    void (*output)(void *context, const char *bytes, size_t size);
    /* For model_restart and model_evict. May be NULL if neither has to choose at random. */
    uint64_t (*random)(void *random_context);
    void *random_context;
    const char *password; /* of the user "default"; NULL: none is needed. Not copied */
};

/* A server with no keys, no scripts, and the time 0. */
struct model_redis *model_new(const struct model_config *config);

/* Also ends its connections. Takes NULL and returns NULL. */
struct model_redis *model_free(struct model_redis *redis);

/* Makes it what model_new returns, with the same configuration, in far less time: Lua and its
 * compiled scripts stay, which no client can notice. There must be no connections. */
void model_reset(struct model_redis *redis);

/* Sets the server's own clock, in microseconds since 1970, right or wrong; it may go back. An
 * expired key is invisible, but is deleted only when a request finds it, or by model_expire:
 * if the clock goes back before that, the key exists again, as in a real server. */
void model_set_time(struct model_redis *redis, int64_t wall_us);

/* Deletes expired keys, which a real server does in the background. */
void model_expire(struct model_redis *redis);

/* ---- Connections ---- */

struct model_connection *model_connect(struct model_redis *redis, void *context);

/* The client has sent this: a part of a request, one, or several. Returns false if it is not
 * the Redis protocol: the server has said so, and the caller disconnects. */
bool model_feed(struct model_connection *connection, const char *bytes, size_t size);

/* Frees the connection; takes NULL. */
void model_disconnect(struct model_connection *connection);

/* ---- Faults ---- */

enum model_keep {
    MODEL_KEEP_ALL,   /* as if every write were on the disk at once */
    MODEL_KEEP_NONE,  /* a server without persistence */
    MODEL_KEEP_SAVED, /* what there was at the last model_save, if there was one */
    MODEL_KEEP_SOME,  /* each key, or not, by `random` */
};

/* Keeps a copy of the data for MODEL_KEEP_SAVED: a snapshot, or the last sync of the log. */
void model_save(struct model_redis *redis);

/* Restarts the server. It forgets its scripts, and the keys that have expired. The mode stays.
 * There must be no connections: the caller has ended them, and knows what clients see of it. */
void model_restart(struct model_redis *redis, enum model_keep keep);

/* The run id, in 40 digits, which changes with each restart. Valid until the next call. */
const char *model_run_id(const struct model_redis *redis);

void model_flush_all(struct model_redis *redis);

/* Deletes this key, or a random one if `name` is NULL. Returns false if there is none. */
bool model_evict(struct model_redis *redis, const char *name);

/* A state in which a server refuses some requests, each in its own words. As in a real server, the
 * first three no longer stop a script once it has called a command that writes. */
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
 * Keys are in the order of their bytes. Keys and values end with a NUL that is not counted. What is
 * returned is valid until the next call that is not one of these. Looking deletes nothing. */

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

/* The key at this place, counted from 0. Returns false if there are fewer. */
bool model_key_at(const struct model_redis *redis, size_t place, struct model_key *ret_key);
/* Returns false if there is none, or it has expired. The functions below also require the right
 * type. */
bool model_find_key(const struct model_redis *redis, const char *name, struct model_key *ret_key);
const char *model_find_string(const struct model_redis *redis, const char *name, size_t *ret_size);
const char *model_find_field(const struct model_redis *redis, const char *name, const char *field);
/* Fields are in the order in which they came, members in the order of their scores. */
bool model_field_at(const struct model_redis *redis, const char *name, size_t place,
                    struct model_field *ret_field);
bool model_member_at(const struct model_redis *redis, const char *name, size_t place,
                     struct model_member *ret_member);

#endif
