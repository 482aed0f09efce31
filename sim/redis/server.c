/* Commands of the connection and of the server: channels, scripts, and its state. */
#include "sim/redis/model.h"

#include <inttypes.h>
#include <string.h>

/* ---- The connection ---- */

void serve_auth(struct call *call) {
    const char *password = call->redis->config.password;
    if (call->count > 3) {
        answer_syntax_error(call);
        return;
    }
    if (call->count == 2 && !password) {
        answer_error(call->answer,
                     "ERR AUTH <password> called without any password configured for the default "
                     "user. Are you sure your configuration is correct?");
        return;
    }
    bool known = call->count == 2 || slice_compare(call->words[1], slice_of("default")) == 0;
    struct slice given = call->words[call->count - 1];
    if (!known || (password && slice_compare(given, slice_of(password)) != 0)) {
        answer_error(call->answer, "WRONGPASS invalid username-password pair or user is disabled.");
        return;
    }
    call->connection->authenticated = true;
    answer_status(call->answer, "OK");
}

void serve_ping(struct call *call) {
    if (call->count > 2) {
        answer_wrong_arity(call, "ping");
        return;
    }
    struct slice word = call->count == 2 ? call->words[1] : slice_of("");
    if (call->connection && call->connection->channel_count) {
        answer_array(call->answer, 2);
        answer_bulk(call->answer, slice_of("pong"));
        answer_bulk(call->answer, word);
    } else if (call->count == 2) {
        answer_bulk(call->answer, word);
    } else {
        answer_status(call->answer, "PONG");
    }
}

void serve_select(struct call *call) {
    int64_t database;
    if (!slice_to_integer(call->words[1], &database))
        answer_not_integer(call);
    else if (database < INT32_MIN || database > INT32_MAX)
        answer_error(call->answer, "ERR value is out of range, value must between %d and %d",
                     INT32_MIN, INT32_MAX);
    else if (database != 0) /* as a server with the setting "databases 1" */
        answer_error(call->answer, "ERR DB index is out of range");
    else
        answer_status(call->answer, "OK");
}

static void answer_unknown_subcommand(struct call *call, const char *command) {
    struct slice word = call->words[1];
    answer_error(call->answer, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                 (int)(word.size < 128 ? word.size : 128), word.bytes, command);
}

/* The name is checked and forgotten. */
void serve_client(struct call *call) {
    if (!slice_is(call->words[1], "setname")) {
        answer_unknown_subcommand(call, "CLIENT");
        return;
    }
    if (call->count != 3) {
        answer_wrong_arity(call, "client|setname");
        return;
    }
    for (size_t i = 0; i < call->words[2].size; i++) {
        if (call->words[2].bytes[i] < '!' || call->words[2].bytes[i] > '~') {
            answer_error(call->answer,
                         "ERR Client names cannot contain spaces, newlines or special characters.");
            return;
        }
    }
    answer_status(call->answer, "OK");
}

/* ---- Channels ---- */

static size_t find_channel(const struct model_connection *connection, struct slice name) {
    size_t place = 0;
    while (place < connection->channel_count &&
           slice_compare(connection->channels[place], name) != 0)
        place++;
    return place;
}

static void answer_subscription(struct call *call, const char *word, const struct slice *channel) {
    answer_array(call->answer, 3);
    answer_bulk(call->answer, slice_of(word));
    if (channel)
        answer_bulk(call->answer, *channel);
    else
        answer_nil(call->answer);
    answer_integer(call->answer, (int64_t)call->connection->channel_count);
}

void serve_subscribe(struct call *call) {
    struct model_connection *connection = call->connection;
    for (size_t i = 1; i < call->count; i++) {
        if (find_channel(connection, call->words[i]) == connection->channel_count) {
            connection->channels =
                bytes_allocate(connection->channels,
                               (connection->channel_count + 1) * sizeof(*connection->channels));
            connection->channels[connection->channel_count++] = slice_copy(call->words[i]);
        }
        answer_subscription(call, "subscribe", &call->words[i]);
    }
}

static void unsubscribe_all(struct call *call) {
    struct model_connection *connection = call->connection;
    if (!connection->channel_count)
        answer_subscription(call, "unsubscribe", NULL);
    while (connection->channel_count) {
        struct slice name = slice_copy(connection->channels[0]);
        model_unsubscribe(connection, 0);
        answer_subscription(call, "unsubscribe", &name);
        slice_free(name);
    }
}

void serve_unsubscribe(struct call *call) {
    struct model_connection *connection = call->connection;
    if (call->count == 1)
        unsubscribe_all(call);
    for (size_t i = 1; i < call->count; i++) {
        size_t place = find_channel(connection, call->words[i]);
        if (place < connection->channel_count)
            model_unsubscribe(connection, place);
        answer_subscription(call, "unsubscribe", &call->words[i]);
    }
}

void serve_publish(struct call *call) {
    const struct slice *words = call->words;
    struct text message = {NULL, 0, 0};
    int64_t receivers = 0;
    list_each(node, &call->redis->connections) {
        struct model_connection *to = container_of(node, struct model_connection, link);
        if (find_channel(to, words[1]) == to->channel_count)
            continue;
        if (receivers++ == 0) {
            answer_array(&message, 3);
            answer_bulk(&message, slice_of("message"));
            answer_bulk(&message, words[1]);
            answer_bulk(&message, words[2]);
        }
        call->redis->config.output(to->context, message.bytes, message.size);
    }
    text_free(&message);
    answer_integer(call->answer, receivers);
}

/* ---- Scripts ---- */

static bool read_key_count(struct call *call, size_t *ret_count) {
    int64_t count;
    if (!slice_to_integer(call->words[2], &count))
        answer_not_integer(call);
    else if (count > (int64_t)call->count - 3)
        answer_error(call->answer, "ERR Number of keys can't be greater than number of args");
    else if (count < 0)
        answer_error(call->answer, "ERR Number of keys can't be negative");
    else {
        *ret_count = (size_t)count;
        return true;
    }
    return false;
}

static void run_script(struct call *call, struct slice sha1, size_t keys) {
    scripts_run(call->redis->scripts, sha1, call->words + 3, call->count - 3, keys, call->answer);
}

void serve_evalsha(struct call *call) {
    struct slice sha1 = call->words[1];
    size_t keys = 0;
    if (sha1.size == SHA1_SIZE && !read_key_count(call, &keys))
        return;
    if (scripts_know(call->redis->scripts, sha1))
        run_script(call, sha1, keys);
    else
        answer_error(call->answer, "NOSCRIPT No matching script. Please use EVAL.");
}

void serve_eval(struct call *call) {
    char sha1[SHA1_SIZE + 1];
    size_t keys;
    if (read_key_count(call, &keys) &&
        scripts_load(call->redis->scripts, call->words[1], sha1, call->answer))
        run_script(call, slice_of(sha1), keys);
}

static void flush_scripts(struct call *call) {
    if (call->count == 3 && !slice_is(call->words[2], "sync") &&
        !slice_is(call->words[2], "async")) {
        answer_error(call->answer, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    scripts_forget(call->redis->scripts);
    answer_status(call->answer, "OK");
}

void serve_script(struct call *call) {
    struct slice word = call->words[1];
    char sha1[SHA1_SIZE + 1];
    if (slice_is(word, "load") && call->count == 3) {
        if (scripts_load(call->redis->scripts, call->words[2], sha1, call->answer))
            answer_bulk(call->answer, slice_of(sha1));
    } else if (slice_is(word, "exists") && call->count > 2) {
        answer_array(call->answer, call->count - 2);
        for (size_t i = 2; i < call->count; i++)
            answer_integer(call->answer, scripts_know(call->redis->scripts, call->words[i]));
    } else if (slice_is(word, "flush") && call->count <= 3) {
        flush_scripts(call);
    } else if (slice_is(word, "load") || slice_is(word, "exists") || slice_is(word, "flush")) {
        answer_wrong_arity(call, slice_is(word, "load")     ? "script|load"
                                 : slice_is(word, "exists") ? "script|exists"
                                                            : "script|flush");
    } else {
        answer_unknown_subcommand(call, "SCRIPT");
    }
}

/* ---- What it reports about itself ---- */

void serve_time(struct call *call) {
    struct text digits = {NULL, 0, 0};
    answer_array(call->answer, 2);
    text_format(&digits, "%" PRId64, call->redis->now_us / 1000000);
    answer_bulk(call->answer, (struct slice){digits.bytes, digits.size});
    digits.size = 0;
    text_format(&digits, "%" PRId64, call->redis->now_us % 1000000);
    answer_bulk(call->answer, (struct slice){digits.bytes, digits.size});
    text_free(&digits);
}

void serve_role(struct call *call) {
    if (call->redis->mode == MODEL_READONLY) {
        answer_array(call->answer, 5);
        answer_bulk(call->answer, slice_of("slave"));
        answer_bulk(call->answer, slice_of("127.0.0.1"));
        answer_integer(call->answer, 6379);
        answer_bulk(call->answer, slice_of("connected"));
        answer_integer(call->answer, 0);
    } else {
        answer_array(call->answer, 3);
        answer_bulk(call->answer, slice_of("master"));
        answer_integer(call->answer, 0);
        answer_array(call->answer, 0);
    }
}

/* The settings of redis.conf that matter to locks, at their defaults. */
static const char *setting(const struct model_redis *redis, size_t place, const char **ret_name) {
    static const char *const settings[][2] = {
        {"appendfsync", "everysec"},
        {"appendonly", "no"},
        {"maxmemory", "0"},
        {"maxmemory-policy", "noeviction"},
        {"min-replicas-to-write", "0"},
        {"save", "3600 1 300 100 60 10000"},
        {"stop-writes-on-bgsave-error", "yes"},
    };
    if (place >= sizeof(settings) / sizeof(settings[0]))
        return NULL;
    *ret_name = settings[place][0];
    bool is_full = redis->mode == MODEL_OOM && strcmp(*ret_name, "maxmemory") == 0;
    return is_full ? "1" : settings[place][1];
}

void serve_config(struct call *call) {
    const char *name, *value;
    if (!slice_is(call->words[1], "get")) {
        answer_unknown_subcommand(call, "CONFIG");
        return;
    }
    if (call->count < 3) {
        answer_wrong_arity(call, "config|get");
        return;
    }
    struct text items = {NULL, 0, 0};
    size_t count = 0;
    for (size_t i = 0; (value = setting(call->redis, i, &name)); i++) {
        bool asked = false;
        for (size_t j = 2; j < call->count; j++)
            asked |= slice_matches(slice_of(name), call->words[j]);
        if (asked) {
            answer_bulk(&items, slice_of(name));
            answer_bulk(&items, slice_of(value));
            count += 2;
        }
    }
    answer_array(call->answer, count);
    text_add(call->answer, items.bytes, items.size);
    text_free(&items);
}

static bool is_asked(const struct call *call, const char *section) {
    static const char *const all[] = {"default", "all", "everything"};
    bool asked = call->count == 1;
    for (size_t i = 1; i < call->count; i++) {
        asked |= slice_is(call->words[i], section);
        for (size_t j = 0; j < sizeof(all) / sizeof(all[0]); j++)
            asked |= slice_is(call->words[i], all[j]);
    }
    return asked;
}

static void add_section(const struct call *call, struct text *info, const char *section,
                        const char *lines) {
    if (is_asked(call, section))
        text_format(info, "%s# %s\r\n%s", info->size ? "\r\n" : "", section, lines);
}

/* Some lines of each section, in the server's format. */
void serve_info(struct call *call) {
    enum model_mode mode = call->redis->mode;
    struct text info = {NULL, 0, 0};
    add_section(call, &info, "Server", "redis_version:7.0.15\r\nredis_mode:standalone\r\n");
    if (is_asked(call, "Server"))
        text_format(&info, "run_id:%s\r\n", model_run_id(call->redis));
    add_section(call, &info, "Memory",
                mode == MODEL_OOM ? "maxmemory:1\r\nmaxmemory_policy:noeviction\r\n"
                                  : "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    add_section(call, &info, "Persistence",
                mode == MODEL_LOADING   ? "loading:1\r\nrdb_last_bgsave_status:ok\r\n"
                : mode == MODEL_MISCONF ? "loading:0\r\nrdb_last_bgsave_status:err\r\n"
                                        : "loading:0\r\nrdb_last_bgsave_status:ok\r\n");
    if (is_asked(call, "Persistence"))
        text_format(&info, "aof_enabled:0\r\n");
    add_section(call, &info, "Replication",
                mode == MODEL_READONLY
                    ? "role:slave\r\nmaster_link_status:up\r\nslave_read_only:1\r\n"
                    : "role:master\r\nconnected_slaves:0\r\n");
    add_section(call, &info, "Cluster", "cluster_enabled:0\r\n");
    answer_bulk(call->answer, (struct slice){info.bytes, info.size});
    text_free(&info);
}
