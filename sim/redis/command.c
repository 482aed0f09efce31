/* The table of commands, with the flags of Redis 7.0, and the checks before a command runs.
 * They are those of Redis' processCommand and scriptCall, in the same order and the same
 * words. */
#include "sim/redis/model.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    WRITES = 1,       /* CMD_WRITE */
    NEEDS_MEMORY = 2, /* CMD_DENYOOM */
    NO_SCRIPT = 4,    /* CMD_NOSCRIPT */
    WHEN_LOADING = 8, /* CMD_LOADING */
    WHEN_BUSY = 16,   /* CMD_ALLOW_BUSY */
    SUBSCRIBED = 32,  /* allowed on a connection that is subscribed */
    NO_AUTH = 64,     /* CMD_NO_AUTH */
    IS_PING = 128,
};

struct model_command {
    const char *name;
    int words; /* how many, with its name; if negative, at least that many */
    unsigned flags;
    serve_command *run;
};

/* Sorted by name. */
static const struct model_command commands[] = {
    {"auth", -2, NO_SCRIPT | WHEN_LOADING | WHEN_BUSY | NO_AUTH, serve_auth},
    {"client", -2, NO_SCRIPT | WHEN_LOADING, serve_client},
    {"config", -2, NO_SCRIPT | WHEN_LOADING, serve_config},
    {"del", -2, WRITES, serve_del},
    {"eval", -3, NO_SCRIPT, serve_eval},
    {"evalsha", -3, NO_SCRIPT, serve_evalsha},
    {"exists", -2, 0, serve_exists},
    {"flushall", -1, WRITES, serve_flushall},
    {"get", 2, 0, serve_get},
    {"hdel", -3, WRITES, serve_hdel},
    {"hget", 3, 0, serve_hget},
    {"hgetall", 2, 0, serve_hgetall},
    {"hincrby", 4, WRITES | NEEDS_MEMORY, serve_hincrby},
    {"hmget", -3, 0, serve_hmget},
    {"hset", -4, WRITES | NEEDS_MEMORY, serve_hset},
    {"incrby", 3, WRITES | NEEDS_MEMORY, serve_incrby},
    {"info", -1, WHEN_LOADING, serve_info},
    {"pexpire", -3, WRITES, serve_pexpire},
    {"ping", -1, SUBSCRIBED | IS_PING, serve_ping},
    {"pttl", 2, 0, serve_pttl},
    {"publish", 3, WHEN_LOADING, serve_publish},
    {"role", 1, NO_SCRIPT | WHEN_LOADING, serve_role},
    {"scan", -2, 0, serve_scan},
    {"script", -2, NO_SCRIPT, serve_script},
    {"select", 2, WHEN_LOADING, serve_select},
    {"set", -3, WRITES | NEEDS_MEMORY, serve_set},
    {"setrange", 4, WRITES | NEEDS_MEMORY, serve_setrange},
    {"subscribe", -2, NO_SCRIPT | WHEN_LOADING | SUBSCRIBED, serve_subscribe},
    {"time", 1, WHEN_LOADING, serve_time},
    {"unsubscribe", -1, NO_SCRIPT | WHEN_LOADING | SUBSCRIBED, serve_unsubscribe},
    {"zadd", -4, WRITES | NEEDS_MEMORY, serve_zadd},
    {"zrange", -4, 0, serve_zrange},
    {"zrangebyscore", -4, 0, serve_zrangebyscore},
    {"zrank", 3, 0, serve_zrank},
    {"zrem", -3, WRITES, serve_zrem},
    {"zscore", 3, 0, serve_zscore},
};

static const char oom[] = "OOM command not allowed when used memory > 'maxmemory'.";
static const char readonly[] = "READONLY You can't write against a read only replica.";
static const char misconf[] =
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "
    "disk. "
    "Commands that may modify the data set are disabled, because this instance is configured to "
    "report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). "
    "Please check the Redis logs for details about the RDB error.";

/* ---- Errors that many commands have ---- */

void answer_syntax_error(struct call *call) {
    answer_error(call->answer, "ERR syntax error");
}

void answer_not_integer(struct call *call) {
    answer_error(call->answer, "ERR value is not an integer or out of range");
}

void answer_unknown_option(struct call *call, struct slice option) {
    answer_error(call->answer, "ERR the model does not know this of %.*s: %.*s",
                 (int)call->words[0].size, call->words[0].bytes, (int)option.size, option.bytes);
}

void answer_wrong_arity(struct call *call, const char *command) {
    answer_error(call->answer, "ERR wrong number of arguments for '%s' command", command);
}

static void answer_unknown(struct call *call) {
    struct text args = {NULL, 0, 0};
    for (size_t i = 1; i < call->count && args.size < 128; i++)
        text_format(
            &args, "'%.*s' ",
            (int)(call->words[i].size < 128 - args.size ? call->words[i].size : 128 - args.size),
            call->words[i].bytes);
    struct slice name = call->words[0];
    answer_error(call->answer, "ERR unknown command '%.*s', with args beginning with: %.*s",
                 (int)(name.size < 128 ? name.size : 128), name.bytes, (int)args.size,
                 args.size ? args.bytes : "");
    text_free(&args);
}

/* ---- The checks ---- */

static int compare_name(const void *key, const void *item) {
    const struct slice *name = key;
    const struct model_command *command = item;
    int order = strncasecmp(name->bytes, command->name, name->size);
    return order ? order : -(command->name[name->size] != 0);
}

static const struct model_command *find_command(struct slice name) {
    if (memchr(name.bytes, 0, name.size))
        return NULL;
    return bsearch(&name, commands, sizeof(commands) / sizeof(commands[0]), sizeof(commands[0]),
                   compare_name);
}

static bool count_fits(const struct model_command *command, size_t count) {
    return command->words < 0 ? count >= (size_t)-command->words : count == (size_t)command->words;
}

static const char *refusal_by_mode(enum model_mode mode, unsigned flags) {
    switch (mode) {
    case MODEL_OK:
        break;
    case MODEL_OOM:
        return flags & NEEDS_MEMORY ? oom : NULL;
    case MODEL_READONLY:
        return flags & WRITES ? readonly : NULL;
    case MODEL_MISCONF:
        return flags & (WRITES | IS_PING) ? misconf : NULL;
    case MODEL_LOADING:
        return flags & WHEN_LOADING ? NULL : "LOADING Redis is loading the dataset in memory";
    case MODEL_BUSY:
        return flags & WHEN_BUSY ? NULL
                                 : "BUSY Redis is busy running a script. You can only call SCRIPT "
                                   "KILL or SHUTDOWN NOSAVE.";
    }
    return NULL;
}

/* The checks that Redis makes before it calls a command, in its order. */
static void check_and_run(struct call *call, const struct model_command *command) {
    const struct model_connection *connection = call->connection;
    enum model_mode mode = call->redis->mode;
    const char *by_mode = refusal_by_mode(mode, command->flags);
    if (!connection->authenticated && !(command->flags & NO_AUTH))
        answer_error(call->answer, "NOAUTH Authentication required.");
    else if (by_mode && mode < MODEL_LOADING)
        answer_error(call->answer, "%s", by_mode);
    else if (connection->channel_count && !(command->flags & SUBSCRIBED))
        answer_error(call->answer,
                     "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT "
                     "/ RESET are allowed in this context",
                     command->name);
    else if (by_mode)
        answer_error(call->answer, "%s", by_mode);
    else
        command->run(call);
}

void model_serve(struct call *call) {
    const struct model_command *command = find_command(call->words[0]);
    if (!command)
        answer_unknown(call);
    else if (!count_fits(command, call->count))
        answer_wrong_arity(call, command->name);
    else
        check_and_run(call, command);
}

void model_serve_script(struct call *call, bool *wrote) {
    const struct model_command *command = find_command(call->words[0]);
    const char *refusal = NULL;
    if (!command)
        refusal = "ERR Unknown Redis command called from script";
    else if (!count_fits(command, call->count))
        refusal = "ERR Wrong number of args calling Redis command from script";
    else if (command->flags & NO_SCRIPT)
        refusal = "ERR This Redis command is not allowed from script";
    else if (!*wrote) /* once it has written, it is not stopped halfway */
        refusal = refusal_by_mode(call->redis->mode, command->flags & ~(unsigned)IS_PING);
    if (refusal) {
        answer_error(call->answer, "%s", refusal);
        return;
    }
    *wrote |= command->flags & WRITES;
    command->run(call);
}
