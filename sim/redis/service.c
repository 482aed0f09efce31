/* The model of Redis as a service of the simulator (sim/service.h).
 *
 * Checkers see no keys and no scripts: this file knows where the store keeps what, and derives from
 * each request and its reply which grant was asked for, and which was made. */
#include "sim/service.h"
#include "base/list.h"
#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"
#include "store/locks.h"
#include "store/redis/scripts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_WORDS_MAX = 1024 };

struct redis_service {
    struct service base;
    struct model_redis *model;
    struct service_set set; /* server_count 0: it is in none */
    char said[256];         /* the beginning of its last reply */
};

struct redis_connection {
    struct service_connection base;
    struct model_connection *model;
    bool listens;
};

static struct redis_service *redis_of(const struct service *service) {
    return container_of(service, struct redis_service, base);
}

static struct redis_connection *connection_of(const struct service_connection *connection) {
    return container_of(connection, struct redis_connection, base);
}

/* ---- Keys ---- */

static const char set_key[] =
    "{holdfast:}.set"; /* in which a server keeps the set that it votes in */
static const char key_prefix[] = "holdfast:";

/* Each result is valid until the next call of its function. */
static const char *key_of(const char *name) {
    static char key[32];
    snprintf(key, sizeof(key), "%s%s", key_prefix, name);
    return key;
}

static const char *companion_of(const char *name, char letter) {
    static char key[40];
    snprintf(key, sizeof(key), "{%s%s}.%c", key_prefix, name, letter);
    return key;
}

static const char *name_of(const char *key) {
    return key + sizeof(key_prefix) - 1;
}

/* ---- Connections ---- */

static void model_said(void *context, const char *bytes, size_t size) {
    static const char message[] = "*3\r\n$7\r\nmessage\r\n";
    struct redis_connection *connection = context;
    struct redis_service *redis = redis_of(connection->base.service);
    bool pushed = size > sizeof(message) && memcmp(bytes, message, sizeof(message) - 1) == 0;
    if (!pushed) {
        size_t kept = size < sizeof(redis->said) ? size : sizeof(redis->said) - 1;
        memcpy(redis->said, bytes, kept);
        redis->said[kept] = 0;
    }
    if (connection->base.context)
        redis->base.host->send(connection->base.context, bytes, size, pushed);
}

static struct service_connection *redis_connect(struct service *service, void *context) {
    struct redis_connection *connection = bytes_allocate(NULL, sizeof(*connection));
    *connection = (struct redis_connection){.base = {service, context}};
    connection->model = model_connect(redis_of(service)->model, connection);
    return &connection->base;
}

static void redis_disconnect(struct service_connection *connection) {
    model_disconnect(connection_of(connection)->model);
    free(connection_of(connection));
}

static bool redis_listens(const struct service_connection *connection) {
    return connection_of(connection)->listens;
}

/* Asks as a separate client, which nobody sees, and returns the reply. */
static const char *ask(struct redis_service *redis, const char *const *words, size_t count) {
    struct text request = {NULL, 0, 0};
    answer_array(&request, count);
    for (size_t i = 0; i < count; i++)
        answer_bulk(&request, slice_of(words[i]));
    struct service_connection *connection = redis_connect(&redis->base, NULL);
    model_feed(connection_of(connection)->model, request.bytes, request.size);
    redis_disconnect(connection);
    text_free(&request);
    return redis->said;
}
#define ASK(redis, ...)                            \
    ask(redis, (const char *const[]){__VA_ARGS__}, \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* ---- Reports ---- */

static void report(struct redis_service *redis, const struct service_report *what) {
    redis->base.host->report(redis->base.host, what);
}

static uint64_t to_number(const char *word) {
    return strtoull(word, NULL, 10);
}

static int64_t ms_to_us(const char *word) {
    return strtoll(word, NULL, 10) * 1000;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* The word at this place, from 0, of an answer like {'done', '17'}; "" if there is none. A script's
 * strings have no line ends. */
static const char *word_of(const char *reply, int place) {
    const char *at = reply[0] == '*' ? reply : NULL;
    for (int i = 0; i < 2 + 2 * place && at; i++)
        at = strchr(at + 1, '\n');
    return at ? at + 1 : "";
}

static enum service_outcome outcome_of(const char *reply) {
    const char *word = word_of(reply, 0);
    return starts_with(word, "done")     ? SERVICE_GRANTED
           : starts_with(word, "queued") ? SERVICE_QUEUED
           : starts_with(word, "busy")   ? SERVICE_REFUSED
                                         : SERVICE_FAILED;
}

static uint64_t token_of(const char *reply) {
    return outcome_of(reply) == SERVICE_GRANTED ? to_number(word_of(reply, 1)) : 0;
}

/* `keys` are followed by the arguments that the script names. */
static void report_acquire(struct redis_service *redis, const char *const *keys,
                           const char *reply) {
    const char *const *arguments = keys + 6;
    report(redis, &(struct service_report){
                      .request = SERVICE_ACQUIRE,
                      .outcome = outcome_of(reply),
                      .name = name_of(keys[0]),
                      .owner = arguments[0],
                      .lease_us = ms_to_us(arguments[1]),
                      .wait_us = ms_to_us(arguments[2]),
                      .floor = to_number(arguments[3]),
                      .barges = strcmp(arguments[5], "1") == 0,
                      .capacity = (uint32_t)to_number(arguments[7]),
                      .weight = (uint32_t)to_number(arguments[8]),
                      .token = token_of(reply),
                  });
}

static void report_vote(struct redis_service *redis, const char *const *keys, const char *reply) {
    const char *const *arguments = keys + 7;
    report(redis, &(struct service_report){
                      .request = SERVICE_ACQUIRE,
                      .outcome = outcome_of(reply),
                      .name = name_of(keys[0]),
                      .owner = arguments[0],
                      .lease_us = ms_to_us(arguments[1]),
                      .floor = to_number(arguments[2]),
                      .retaken = to_number(arguments[3]),
                      .only_mine = strcmp(arguments[5], "1") == 0,
                      .capacity = (uint32_t)to_number(arguments[7]),
                      .weight = (uint32_t)to_number(arguments[8]),
                      .token = token_of(reply),
                  });
}

/* Reports the renewal of one hold, by the integer that is the answer, or begins it. */
static void report_renewal(struct redis_service *redis, const char *owner, const char *lease_ms,
                           const char *answer) {
    report(redis, &(struct service_report){
                      .request = SERVICE_RENEW,
                      .outcome = starts_with(answer, ":1\r\n")   ? SERVICE_GRANTED
                                 : starts_with(answer, ":0\r\n") ? SERVICE_REFUSED
                                                                 : SERVICE_FAILED,
                      .owner = owner,
                      .lease_us = ms_to_us(lease_ms),
                  });
}

/* An owner and a lease for each of the keys; and as many integers in the reply. */
static void report_renewals(struct redis_service *redis, size_t count, const char *const *keys,
                            const char *reply) {
    const char *answer = reply[0] == '*' ? strchr(reply, ':') : NULL;
    for (size_t i = 0; i < count && answer; i++, answer = strchr(answer + 1, ':'))
        report_renewal(redis, keys[count + 2 * i], keys[count + 2 * i + 1], answer);
}

static void report_release(struct redis_service *redis, const char *owner, const char *reply) {
    report(redis, &(struct service_report){
                      .request = SERVICE_RELEASE,
                      .outcome = strcmp(reply, ":1\r\n") == 0 ? SERVICE_GRANTED
                                 : reply[0] == ':'            ? SERVICE_REFUSED
                                                              : SERVICE_FAILED,
                      .owner = owner,
                  });
}

static void report_break(struct redis_service *redis, const char *key, const char *token,
                         const char *reply) {
    report(redis, &(struct service_report){
                      .request = SERVICE_BREAK,
                      .outcome = strcmp(reply, ":1\r\n") == 0 ? SERVICE_GRANTED : SERVICE_FAILED,
                      .name = name_of(key),
                      .token = to_number(token),
                  });
}

static void report_script(struct redis_service *redis, enum redis_script_id script,
                          const char *const *words, const char *reply) {
    const char *const *keys = words + 3;
    switch (script) {
    case REDIS_ACQUIRE:
        report_acquire(redis, keys, reply);
        break;
    case REDIS_VOTE:
        report_vote(redis, keys, reply);
        break;
    case REDIS_RENEW:
        report_renewals(redis, to_number(words[2]), keys, reply);
        break;
    case REDIS_RENEW_SHARE:
        report_renewal(redis, words[6], words[7], reply);
        break;
    case REDIS_RELEASE:
        report_release(redis, words[9], reply);
        break;
    case REDIS_BREAK:
        report_break(redis, words[3], words[9], reply);
        break;
    default:
        break;
    }
}

/* ---- Requests ---- */

static bool calls_script(size_t count, const char *const *words) {
    return count > 2 && starts_with(words[0], "EVAL");
}

/* The texts of scripts do not end with a NUL. */
static bool is_text_of(const struct redis_script *script, const char *word) {
    return strncmp(word, script->text, script->size) == 0 && !word[script->size];
}

static enum redis_script_id script_of(size_t count, const char *const *words) {
    bool by_sha1 = strcmp(words[0], "EVALSHA") == 0;
    for (int i = 0; i < REDIS_SCRIPTS && calls_script(count, words); i++) {
        const struct redis_script *script = &redis_scripts[i];
        if (by_sha1 ? strcmp(words[1], script->sha1) == 0 : is_text_of(script, words[1]))
            return (enum redis_script_id)i;
    }
    return REDIS_SCRIPTS;
}

/* The attempt's part of the owner id, which is the first argument, if any. */
static const char *attempt_of(size_t count, const char *const *words) {
    enum { CLIENT_SIZE = 32 };
    size_t first = count > 3 ? 3 + to_number(words[2]) : count;
    return first < count && strlen(words[first]) >= CLIENT_SIZE ? words[first] + CLIENT_SIZE : "";
}

/* Tells the story of a request, and reports it. */
static void executed(struct redis_connection *connection, size_t count, const char *const *words) {
    enum { REPLY_SIZE = 80 };
    struct redis_service *redis = redis_of(connection->base.service);
    enum redis_script_id script = script_of(count, words);
    char line[100 + REPLY_SIZE];
    char *at = line + snprintf(line, 100, "%s %s %.40s → ", words[0],
                               script < REDIS_SCRIPTS ? redis_scripts[script].name : "",
                               attempt_of(count, words));
    snprintf(at, REPLY_SIZE, "%s", redis->said);
    for (; *at; at++)
        *at = *at == '\r' || *at == '\n' ? ' ' : *at;
    redis->base.host->executed(connection->base.context, line, !starts_with(words[0], "EVAL"));
    if (count > 4)
        report_script(redis, script, words, redis->said);
}

/* A number up to the end of its line. */
static size_t take_size(const char **at) {
    size_t number = 0;
    for (; **at != '\r'; ++*at)
        number = 10 * number + (size_t)(**at - '0');
    *at += 2;
    return number;
}

/* Copies the words of the first request to `text`, each with a NUL after it. Returns its size. */
static size_t split_request(const char *bytes, size_t size, char *text, const char **words,
                            size_t *ret_count) {
    const char *at = bytes + 1;
    size_t count = take_size(&at);
    assert(bytes[0] == '*' && count > 0 && count <= REQUEST_WORDS_MAX);
    for (size_t i = 0; i < count; i++) {
        at++;
        size_t word_size = take_size(&at);
        memcpy(text, at, word_size);
        text[word_size] = 0;
        words[i] = text;
        text += word_size + 1;
        at += word_size + 2;
    }
    assert(at <= bytes + size);
    *ret_count = count;
    return (size_t)(at - bytes);
}

/* Requests come whole, as a client's write is one piece. */
static size_t redis_feed(struct service_connection *base, const char *bytes, size_t size) {
    struct redis_connection *connection = connection_of(base);
    struct redis_service *redis = redis_of(base->service);
    const char *words[REQUEST_WORDS_MAX];
    char *text = bytes_allocate(NULL, size + 1);
    size_t count, used = split_request(bytes, size, text, words, &count);
    connection->listens |= strcmp(words[0], "SUBSCRIBE") == 0;
    redis->said[0] = 0;
    model_feed(connection->model, bytes, used);
    executed(connection, count, words);
    free(text);
    return used;
}

/* ---- Life ---- */

static uint64_t model_random(void *context) {
    const struct redis_service *redis = context;
    return redis->base.host->random(redis->base.host);
}

static struct service *redis_open(void) {
    struct redis_service *redis = bytes_allocate(NULL, sizeof(*redis));
    *redis = (struct redis_service){0};
    redis->model = model_new(&(struct model_config){
        .output = model_said, .random = model_random, .random_context = redis});
    return &redis->base;
}

static void redis_reset(struct service *service) {
    struct redis_service *redis = redis_of(service);
    model_reset(redis->model);
    redis->set = (struct service_set){0};
}

static void redis_set_time(struct service *service, int64_t wall_us) {
    model_set_time(redis_of(service)->model, wall_us);
}

static void redis_expire(struct service *service) {
    model_expire(redis_of(service)->model);
}

static void redis_save(struct service *service) {
    model_save(redis_of(service)->model);
}

static void redis_restart(struct service *service, enum service_keep keep) {
    static const enum model_keep keeps[] = {
        [SERVICE_KEEP_ALL] = MODEL_KEEP_ALL,
        [SERVICE_KEEP_NONE] = MODEL_KEEP_NONE,
        [SERVICE_KEEP_SAVED] = MODEL_KEEP_SAVED,
        [SERVICE_KEEP_SOME] = MODEL_KEEP_SOME,
    };
    model_restart(redis_of(service)->model, keeps[keep]);
}

/* As `holdfast quorum init` left it, long ago. */
static void redis_join(struct service *service, const struct service_set *set) {
    struct redis_service *redis = redis_of(service);
    char which[60], number[12];
    redis->set = *set;
    snprintf(which, sizeof(which), "sim/%d/%d/%" PRId64 "%s", set->server_count, set->quorum,
             set->max_lease_ms, set->durable ? "/durable" : "");
    snprintf(number, sizeof(number), "%d", set->number);
    ASK(redis, "HSET", set_key, "f", which, "s", "0", "n", number, "r", model_run_id(redis->model));
}

/* ---- Its own faults ---- */

enum redis_fault {
    REDIS_FLUSH_ALL,
    REDIS_EVICT,
    REDIS_DELETE,
    REDIS_SCRIPT_FLUSH,
    REDIS_OOM,
    REDIS_READONLY,
    REDIS_MISCONF,
    REDIS_LOADING,
    REDIS_BUSY,
    REDIS_FOREIGN,
};

static const struct service_fault redis_faults[] = {
    {FAULT_CUT},
    {FAULT_LOSE_REPLY},
    {FAULT_BLOCK_UP},
    {FAULT_BLOCK_DOWN},
    {FAULT_PARTITION},
    {FAULT_SLOW},
    {FAULT_DELAY},
    {FAULT_LOSE_PUSHES},
    {FAULT_CUT_PUSHES},
    {FAULT_REFUSE},
    {FAULT_STALL},
    {FAULT_RESTART_ALL},
    {FAULT_RESTART_NONE},
    {FAULT_RESTART_SAVED},
    {FAULT_RESTART_SOME},
    {FAULT_OWN, REDIS_FLUSH_ALL, "somebody flushes everything"},
    {FAULT_OWN, REDIS_EVICT, "a key is evicted"},
    {FAULT_OWN, REDIS_DELETE, "somebody deletes a lock"},
    {FAULT_OWN, REDIS_SCRIPT_FLUSH, "the scripts are flushed"},
    {FAULT_OWN, REDIS_OOM, "the server is out of memory"},
    {FAULT_OWN, REDIS_READONLY, "the server is a replica"},
    {FAULT_OWN, REDIS_MISCONF, "the server cannot save"},
    {FAULT_OWN, REDIS_LOADING, "the server is loading"},
    {FAULT_OWN, REDIS_BUSY, "the server is busy with a script"},
    {FAULT_STEP_FORWARD},
    {FAULT_STEP_BACK},
    {FAULT_SLEW},
    {FAULT_WALL},
    {FAULT_PAUSE},
    {FAULT_KILL},
    {FAULT_OWN, REDIS_FOREIGN, "a client that is not holdfast takes the lock"},
    {FAULT_BREAK},
};

/* Evicts any of a lock's keys or, if the server votes, the key of its set. */
static void evict(struct redis_service *redis, const struct plan_fault *fault) {
    static const char letters[] = "ksqwhi.";
    const char *name = plan_name_text(fault->name);
    char letter = letters[fault->amount % (redis->set.server_count ? 7 : 6)];
    const char *key = letter == '.'   ? set_key
                      : letter == 'k' ? key_of(name)
                                      : companion_of(name, letter);
    char line[64];
    if (!model_evict(redis->model, key))
        return;
    snprintf(line, sizeof(line), "(%s)", key);
    redis->base.host->note(redis->base.host, line);
    redis->base.host->forgot(redis->base.host, name,
                             letter == 's' ? FORGOT_COUNTERS : FORGOT_PARTS);
}

static void delete_lock(struct redis_service *redis, const char *name) {
    if (model_evict(redis->model, key_of(name)))
        redis->base.host->forgot(redis->base.host, name, FORGOT_PARTS);
}

static const char foreign_value[] = "foreign";

static void take_as_foreign(struct redis_service *redis, const struct plan_fault *fault) {
    const char *name = plan_name_text(fault->name);
    char ttl_ms[24], line[64];
    snprintf(ttl_ms, sizeof(ttl_ms), "%" PRId64, fault->for_us / 1000 + fault->amount);
    if (strcmp(ASK(redis, "SET", key_of(name), foreign_value, "NX", "PX", ttl_ms), "+OK\r\n") != 0)
        return;
    snprintf(line, sizeof(line), "(it got \"%s\")", name);
    redis->base.host->note(redis->base.host, line);
    redis->base.host->foreign(redis->base.host, name);
}

/* Does it in one step, like the script of such clients. */
static void release_as_foreign(struct redis_service *redis, const char *name) {
    const char *value = model_find_string(redis->model, key_of(name), NULL);
    if (value && strcmp(value, foreign_value) == 0)
        ASK(redis, "DEL", key_of(name));
}

static void redis_befall(struct service *service, int number, const struct plan_fault *fault,
                         bool begins) {
    static const enum model_mode modes[] = {
        [REDIS_OOM] = MODEL_OOM,         [REDIS_READONLY] = MODEL_READONLY,
        [REDIS_MISCONF] = MODEL_MISCONF, [REDIS_LOADING] = MODEL_LOADING,
        [REDIS_BUSY] = MODEL_BUSY,
    };
    struct redis_service *redis = redis_of(service);
    switch ((enum redis_fault)number) {
    case REDIS_OOM:
    case REDIS_READONLY:
    case REDIS_MISCONF:
    case REDIS_LOADING:
    case REDIS_BUSY:
        model_set_mode(redis->model, begins ? modes[number] : MODEL_OK);
        break;
    case REDIS_FOREIGN:
        if (begins)
            take_as_foreign(redis, fault);
        else
            release_as_foreign(redis, plan_name_text(fault->name));
        break;
    case REDIS_FLUSH_ALL:
        if (begins) {
            model_flush_all(redis->model);
            service->host->forgot(service->host, NULL, FORGOT_ALL);
        }
        break;
    case REDIS_EVICT:
        if (begins)
            evict(redis, fault);
        break;
    case REDIS_DELETE:
        if (begins)
            delete_lock(redis, plan_name_text(fault->name));
        break;
    case REDIS_SCRIPT_FLUSH:
        if (begins)
            ASK(redis, "SCRIPT", "FLUSH");
        break;
    }
}

/* ---- For checkers ---- */

static int64_t redis_held_until_us(const struct service *service, const char *name,
                                   const char *owner) {
    const struct model_redis *model = redis_of(service)->model;
    struct model_key key;
    struct model_member member;
    const char *value = model_find_string(model, key_of(name), NULL);
    if (value && strcmp(value, owner) == 0 && model_find_key(model, key_of(name), &key))
        return key.expires_ms * 1000;
    const char *shares = companion_of(name, 'h');
    for (size_t i = 0; model_member_at(model, shares, i, &member); i++) {
        if (strcmp(member.name, owner) == 0)
            return (int64_t)member.score;
    }
    return INT64_MIN;
}

static const char *redis_holder(const struct service *service, const char *name) {
    return model_find_string(redis_of(service)->model, key_of(name), NULL);
}

static bool redis_is_reserved(const struct service *service, const char *name, const char *owner) {
    const struct model_redis *model = redis_of(service)->model;
    const char *value = model_find_string(model, key_of(name), NULL);
    return (value && value[0] == '?' && strcmp(value + 1, owner) == 0) ||
           model_find_field(model, companion_of(name, 'i'), owner);
}

static uint64_t redis_last_token(const struct service *service, const char *name) {
    const char *token = model_find_field(redis_of(service)->model, companion_of(name, 's'), "t");
    return token ? to_number(token) : 0;
}

static int64_t redis_abstains_until_us(const struct service *service) {
    const struct redis_service *redis = redis_of(service);
    const char *since = model_find_field(redis->model, set_key, "s");
    const char *run = model_find_field(redis->model, set_key, "r");
    bool restarted = !run || strcmp(run, model_run_id(redis->model)) != 0;
    if (!since || (restarted && !redis->set.durable))
        return INT64_MAX;
    return strtoll(since, NULL, 10) + redis->set.max_lease_ms * 1000;
}

static bool redis_find_counter(const struct service *service, const char *name, int64_t *ret_value,
                               bool *ret_ends) {
    const struct model_redis *model = redis_of(service)->model;
    struct model_key key;
    const char *value = model_find_string(model, key_of(name), NULL);
    if (!value || !model_find_key(model, key_of(name), &key))
        return false;
    *ret_value = strtoll(value, NULL, 10);
    *ret_ends = key.expires_ms >= 0;
    return true;
}

static const char *redis_remains(const struct service *service) {
    static char text[100];
    const struct redis_service *redis = redis_of(service);
    struct model_key key;
    for (size_t i = 0; model_key_at(redis->model, i, &key); i++) {
        bool is_state = key.size > 2 && strcmp(key.name + key.size - 2, ".s") == 0;
        bool is_answer = strstr(key.name, "}.a.");
        bool is_set = redis->set.server_count && strcmp(key.name, set_key) == 0;
        bool is_counter = strcmp(key.name, key_of(plan_counter_name)) == 0;
        if (!key.expired && !is_state && !is_answer && !is_set && !is_counter) {
            snprintf(text, sizeof(text), "%s stays behind", key.name);
            return text;
        }
        if ((is_state || is_answer) && key.expires_ms < 0) {
            snprintf(text, sizeof(text), "%s stays for ever", key.name);
            return text;
        }
    }
    return NULL;
}

extern const struct store_driver holdfast_store_driver;

const struct service_type service_redis = {
    .scheme = "redis",
    .url_options = "plaintext=yes&timeout=1000&connect_timeout=1000",
    .driver = &holdfast_store_driver,
    .faults = redis_faults,
    .fault_count = sizeof(redis_faults) / sizeof(redis_faults[0]),
    .open = redis_open,
    .reset = redis_reset,
    .set_time = redis_set_time,
    .expire = redis_expire,
    .save = redis_save,
    .restart = redis_restart,
    .join = redis_join,
    .befall = redis_befall,
    .connect = redis_connect,
    .disconnect = redis_disconnect,
    .feed = redis_feed,
    .listens = redis_listens,
    .held_until_us = redis_held_until_us,
    .holder = redis_holder,
    .is_reserved = redis_is_reserved,
    .last_token = redis_last_token,
    .abstains_until_us = redis_abstains_until_us,
    .find_counter = redis_find_counter,
    .remains = redis_remains,
};
