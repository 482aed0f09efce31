/* The model without a real server: what differential_test cannot do to a real one, and the
 * basics. */
#include "check.h"

#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"

#include <inttypes.h>

/* ---- A server and its clients ---- */

struct client {
    struct model_connection *connection;
    struct text heard;
};

static void client_heard(void *context, const char *bytes, size_t size) {
    struct client *client = context;
    text_add(&client->heard, bytes, size);
}

static uint64_t count_up(void *context) {
    return (*(uint64_t *)context)++;
}

static uint64_t counter;
static const struct model_config plain = {
    .output = client_heard, .random = count_up, .random_context = &counter};

static void client_connect(struct client *client, struct model_redis *redis) {
    client->connection = model_connect(redis, client);
}

static void client_end(struct client *client) {
    model_disconnect(client->connection);
    text_free(&client->heard);
    client->connection = NULL;
}

/* What it has received since the last call, with blanks for the ends of lines. */
static const char *heard(struct client *client) {
    static char text[4096];
    size_t size = 0;
    for (size_t i = 0; i < client->heard.size && size < sizeof(text) - 1; i++)
        if (client->heard.bytes[i] != '\r')
            text[size++] = client->heard.bytes[i] == '\n' ? ' ' : client->heard.bytes[i];
    text[size ? size - 1 : 0] = 0;
    client->heard.size = 0;
    return text;
}

/* The bytes of a request, from words that are separated by blanks; '_' stands for a blank in a
 * word. */
static struct text encode(const char *words) {
    struct text items = {NULL, 0, 0}, request = {NULL, 0, 0};
    size_t count = 0;
    for (; *words; count++) {
        size_t size = strcspn(words, " ");
        struct slice word = slice_copy((struct slice){words, size});
        for (char *c = (char *)(uintptr_t)word.bytes; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        answer_bulk(&items, word);
        slice_free(word);
        words += size + (words[size] == ' ');
    }
    answer_array(&request, count);
    text_add(&request, items.bytes, items.size);
    text_free(&items);
    return request;
}

static const char *ask(struct client *client, const char *words) {
    struct text request = encode(words);
    CHECK(model_feed(client->connection, request.bytes, request.size));
    text_free(&request);
    return heard(client);
}

/* ---- Commands ---- */

TEST(strings_are_set_and_read) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "GET a"), "$-1");
    CHECK_EQ_STR(ask(&client, "SET a one"), "+OK");
    CHECK_EQ_STR(ask(&client, "SET a two NX"), "$-1");
    CHECK_EQ_STR(ask(&client, "GET a"), "$3 one");
    CHECK_EQ_STR(ask(&client, "SETRANGE a 4 x"), ":5");
    CHECK_EQ_STR(ask(&client, "EXISTS a b a"), ":2");
    CHECK_EQ_STR(ask(&client, "DEL a b"), ":1");
    CHECK_EQ_STR(ask(&client, "HGET a f"), "$-1");
    client_end(&client);
    model_free(redis);
}

TEST(a_key_of_another_type_is_refused) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    static const char wrong[] =
        "-WRONGTYPE Operation against a key holding the wrong kind of value";
    client_connect(&client, redis);
    ask(&client, "SET s x");
    ask(&client, "HSET h f x");
    CHECK_EQ_STR(ask(&client, "HGET s f"), wrong);
    CHECK_EQ_STR(ask(&client, "ZADD h 1 x"), wrong);
    CHECK_EQ_STR(ask(&client, "GET h"), wrong);
    client_end(&client);
    model_free(redis);
}

TEST(empty_hashes_and_sorted_sets_vanish) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    struct model_key key;
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "HSET h b 1 a 2"), ":2");
    CHECK_EQ_STR(ask(&client, "HGETALL h"), "*4 $1 b $1 1 $1 a $1 2");
    CHECK_EQ_STR(ask(&client, "HDEL h a b c"), ":2");
    CHECK_EQ_STR(ask(&client, "ZADD z 2 x 1 y"), ":2");
    CHECK_EQ_STR(ask(&client, "ZRANGE z 0 -1 WITHSCORES"), "*4 $1 y $1 1 $1 x $1 2");
    CHECK_EQ_STR(ask(&client, "ZREM z x y"), ":2");
    CHECK(!model_key_at(redis, 0, &key));
    client_end(&client);
    model_free(redis);
}

TEST(what_it_does_not_know_it_refuses_with_words_of_its_own) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "SET a b GET"), "-ERR the model does not know this of SET: GET");
    CHECK_EQ_STR(ask(&client, "ZADD z NX 1 a"), "-ERR the model does not know this of ZADD: NX");
    CHECK_EQ_STR(ask(&client, "ZRANGE z 0 1 REV"),
                 "-ERR the model does not know this of ZRANGE: REV");
    CHECK_EQ_STR(ask(&client, "PEXPIRE a 1 GT"),
                 "-ERR the model does not know this of PEXPIRE: GT");
    CHECK_EQ_STR(ask(&client, "SCAN 17"), "-ERR the model does not know this of SCAN: 17");
    CHECK_EQ_STR(ask(&client, "LPUSH a b"),
                 "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' ");
    client_end(&client);
    model_free(redis);
}

/* ---- Time ---- */

TEST(a_key_is_there_until_its_last_millisecond_has_passed) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    model_set_time(redis, 1000999);
    CHECK_EQ_STR(ask(&client, "SET a x PX 5"), "+OK");
    CHECK_EQ_STR(ask(&client, "PTTL a"), ":5");
    model_set_time(redis, 1005999);
    CHECK_EQ_STR(ask(&client, "PTTL a"), ":0");
    model_set_time(redis, 1006000);
    CHECK_EQ_STR(ask(&client, "PTTL a"), ":-2");
    client_end(&client);
    model_free(redis);
}

TEST(a_key_that_nobody_came_upon_is_there_again_when_the_clock_goes_back) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    struct model_key key;
    client_connect(&client, redis);
    ask(&client, "SET a x PX 5");
    ask(&client, "SET b x PX 5");
    ask(&client, "SET c x PX 5");
    model_set_time(redis, 6000);
    CHECK_EQ_STR(ask(&client, "GET a"), "$-1");
    CHECK(model_key_at(redis, 0, &key) && key.expired && !model_find_key(redis, "b", &key));
    model_set_time(redis, 0);
    CHECK_EQ_STR(ask(&client, "EXISTS a b c"), ":2");
    model_set_time(redis, 6000);
    model_expire(redis);
    model_set_time(redis, 0);
    CHECK_EQ_STR(ask(&client, "EXISTS a b c"), ":0");
    client_end(&client);
    model_free(redis);
}

/* ---- Connections ---- */

TEST(requests_come_in_pieces_and_several_at_once) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    struct text requests = encode("SET a some_words"), second = encode("GET a");
    text_add(&requests, second.bytes, second.size);
    client_connect(&client, redis);
    for (size_t i = 0; i < requests.size; i++)
        CHECK(model_feed(client.connection, requests.bytes + i, 1));
    CHECK_EQ_STR(heard(&client), "+OK $10 some words");
    CHECK(model_feed(client.connection, requests.bytes, requests.size));
    CHECK_EQ_STR(heard(&client), "+OK $10 some words");
    CHECK(model_feed(client.connection, "*0\r\n", 4));
    CHECK_EQ_STR(heard(&client), "");
    text_free(&requests);
    text_free(&second);
    client_end(&client);
    model_free(redis);
}

TEST(who_speaks_no_redis_is_told_so_and_hung_up_on) {
    static const struct {
        const char *bytes, *answer;
    } wrongs[] = {
        {"GET a\r\n", "-ERR Protocol error: expected '*', got 'G'"},
        {"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'"},
        {"*x\r\n", "-ERR Protocol error: invalid multibulk length"},
        {"*99999999\r\n", "-ERR Protocol error: invalid multibulk length"},
        {"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"},
        {"*1\r\n$9999999999\r\n", "-ERR Protocol error: invalid bulk length"},
    };
    struct model_redis *redis = model_new(&plain);
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        struct client client = {NULL, {NULL, 0, 0}};
        client_connect(&client, redis);
        CHECK(!model_feed(client.connection, wrongs[i].bytes, strlen(wrongs[i].bytes)));
        CHECK_EQ_STR(heard(&client), wrongs[i].answer);
        client_end(&client);
    }
    model_free(redis);
}

TEST(a_message_goes_to_all_who_listen_before_the_answer_to_who_published_it) {
    struct model_redis *redis = model_new(&plain);
    struct client clients[3] = {{NULL, {NULL, 0, 0}}};
    for (size_t i = 0; i < 3; i++)
        client_connect(&clients[i], redis);
    CHECK_EQ_STR(ask(&clients[0], "SUBSCRIBE a b"),
                 "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2");
    CHECK_EQ_STR(ask(&clients[1], "SUBSCRIBE b"), "*3 $9 subscribe $1 b :1");
    CHECK_EQ_STR(ask(&clients[2], "EVAL return_redis.call('PUBLISH','b','hello') 0"), ":2");
    CHECK_EQ_STR(heard(&clients[0]), "*3 $7 message $1 b $5 hello");
    CHECK_EQ_STR(heard(&clients[1]), "*3 $7 message $1 b $5 hello");
    client_end(&clients[1]);
    CHECK_EQ_STR(ask(&clients[0], "UNSUBSCRIBE a"), "*3 $11 unsubscribe $1 a :1");
    CHECK_EQ_STR(ask(&clients[2], "PUBLISH b again"), ":1");
    CHECK_EQ_STR(ask(&clients[2], "PUBLISH a again"), ":0");
    CHECK_EQ_STR(ask(&clients[0], "PING"), "*3 $7 message $1 b $5 again *2 $4 pong $0 ");
    client_end(&clients[0]);
    client_end(&clients[2]);
    model_free(redis);
}

TEST(a_password_is_asked_for) {
    struct model_config config = plain;
    config.password = "secret";
    struct model_redis *redis = model_new(&config);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "GET a"), "-NOAUTH Authentication required.");
    CHECK_EQ_STR(ask(&client, "AUTH wrong"),
                 "-WRONGPASS invalid username-password pair or user is disabled.");
    CHECK_EQ_STR(ask(&client, "AUTH nobody secret"),
                 "-WRONGPASS invalid username-password pair or user is disabled.");
    CHECK_EQ_STR(ask(&client, "AUTH default secret"), "+OK");
    CHECK_EQ_STR(ask(&client, "GET a"), "$-1");
    client_end(&client);
    model_free(redis);
}

/* ---- Scripts ---- */

static const char script[] = "return_redis.call('SET',KEYS[1],ARGV[1])";
static const char sha1[] = "cf63a54c34e159e75e5a3fe4794bb2ea636ee005";

static bool knows(struct client *client) {
    char words[100];
    snprintf(words, sizeof(words), "EVALSHA %s 1 a b", sha1);
    return strcmp(ask(client, words), "+OK") == 0;
}

TEST(a_script_is_known_until_it_is_flushed_or_the_server_starts_again) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    char words[100];
    client_connect(&client, redis);
    snprintf(words, sizeof(words), "EVAL %s 1 a b", script);
    CHECK(!knows(&client));
    CHECK_EQ_STR(ask(&client, words), "+OK");
    CHECK(knows(&client));
    CHECK_EQ_STR(ask(&client, "SCRIPT FLUSH"), "+OK");
    CHECK(!knows(&client));
    ask(&client, words);
    client_end(&client);
    model_restart(redis, MODEL_KEEP_ALL);
    client_connect(&client, redis);
    CHECK(!knows(&client));
    CHECK_EQ_STR(ask(&client, "GET a"), "$1 b");
    client_end(&client);
    model_free(redis);
}

TEST(a_server_that_was_reset_looks_like_a_new_one) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    char words[100];
    client_connect(&client, redis);
    snprintf(words, sizeof(words), "EVAL %s 1 a b", script);
    ask(&client, words);
    model_save(redis);
    model_set_time(redis, 5);
    model_set_mode(redis, MODEL_READONLY);
    client_end(&client);
    model_reset(redis);
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "SCAN 0"), "*2 $1 0 *0");
    CHECK_EQ_STR(ask(&client, "TIME"), "*2 $1 0 $1 0");
    CHECK_EQ_STR(ask(&client, "SET a x"), "+OK");
    CHECK(!knows(&client));
    client_end(&client);
    model_restart(redis, MODEL_KEEP_SAVED);
    client_connect(&client, redis);
    CHECK_EQ_STR(ask(&client, "SCAN 0"), "*2 $1 0 *0");
    client_end(&client);
    model_free(redis);
}

TEST(a_script_leaves_nothing_to_the_next) {
    static const char *const scripts[] = {"x=1",    "_G.x=1",       "string.x=1", "redis.call=nil",
                                          "KEYS=1", "math.random()"};
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        char words[100];
        snprintf(words, sizeof(words), "EVAL %s 0", scripts[i]);
        CHECK_EQ_INT(ask(&client, words)[0], '-');
    }
    CHECK_EQ_STR(ask(&client, "EVAL return_{#KEYS,type(redis.call),type(string.x)} 0"),
                 "*3 :0 $8 function $3 nil");
    client_end(&client);
    model_free(redis);
}

/* ---- Faults ---- */

TEST(a_restart_keeps_what_it_is_told_to) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    ask(&client, "SET a old PX 10");
    ask(&client, "HSET h f v");
    ask(&client, "ZADD z 1.5 m");
    model_save(redis);
    ask(&client, "SET a new PX 10");
    ask(&client, "DEL h z");
    ask(&client, "SET b new");
    client_end(&client);

    model_restart(redis, MODEL_KEEP_ALL);
    CHECK_EQ_STR(model_find_string(redis, "a", NULL), "new");
    model_restart(redis, MODEL_KEEP_SOME); /* a and b: an even and an odd number */
    CHECK((model_find_string(redis, "a", NULL) != NULL) !=
          (model_find_string(redis, "b", NULL) != NULL));
    model_restart(redis, MODEL_KEEP_SAVED);
    CHECK_EQ_STR(model_find_string(redis, "a", NULL), "old");
    CHECK_EQ_STR(model_find_field(redis, "h", "f"), "v");
    CHECK(!model_find_string(redis, "b", NULL));
    model_set_time(redis, 11000);
    model_restart(redis, MODEL_KEEP_ALL);
    model_set_time(redis, 0);
    CHECK(!model_find_string(redis, "a", NULL)); /* had expired, so it was not loaded */
    CHECK_EQ_STR(model_find_field(redis, "h", "f"), "v");
    model_restart(redis, MODEL_KEEP_NONE);
    CHECK(!model_find_field(redis, "h", "f"));
    model_free(redis);
}

TEST(keys_are_evicted_by_name_or_at_random) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    ask(&client, "SET a x");
    ask(&client, "SET b x");
    ask(&client, "SET c x");
    CHECK(model_evict(redis, "b"));
    CHECK(!model_evict(redis, "b"));
    CHECK(model_evict(redis, NULL));
    CHECK_EQ_STR(ask(&client, "EXISTS a c"), ":1");
    model_flush_all(redis);
    CHECK(!model_evict(redis, NULL));
    client_end(&client);
    model_free(redis);
}

TEST(checkers_see_all_that_is_there) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    struct model_key key;
    struct model_field field;
    struct model_member member;
    size_t size;
    client_connect(&client, redis);
    ask(&client, "ZADD z 2 late 1 early");
    ask(&client, "SET a value PX 7");
    ask(&client, "HSET h f1 v1 f0 v0");
    CHECK(model_key_at(redis, 0, &key) && key.type == MODEL_STRING && key.expires_ms == 7);
    CHECK(model_key_at(redis, 1, &key) && key.type == MODEL_HASH && key.expires_ms == -1);
    CHECK(model_key_at(redis, 2, &key) && key.type == MODEL_SORTED_SET && key.size == 1);
    CHECK_EQ_STR(key.name, "z");
    CHECK(!model_key_at(redis, 3, &key));
    CHECK_EQ_STR(model_find_string(redis, "a", &size), "value");
    CHECK_EQ_INT(size, 5);
    CHECK(!model_find_string(redis, "h", NULL));
    CHECK(model_field_at(redis, "h", 1, &field) && field.name_size == 2);
    CHECK_EQ_STR(field.name, "f0");
    CHECK_EQ_STR(field.value, "v0");
    CHECK(!model_field_at(redis, "h", 2, &field) && !model_field_at(redis, "z", 0, &field));
    CHECK(model_member_at(redis, "z", 1, &member) && member.score == 2);
    CHECK_EQ_STR(member.name, "late");
    CHECK(!model_member_at(redis, "z", 2, &member));
    client_end(&client);
    model_free(redis);
}

/* ---- Modes: differential_test has them in full ---- */

TEST(a_script_that_wrote_is_not_stopped_halfway) {
    struct model_redis *redis = model_new(&plain);
    struct client client = {NULL, {NULL, 0, 0}};
    client_connect(&client, redis);
    model_set_mode(redis, MODEL_OOM);
    CHECK_EQ_STR(ask(&client, "SET a x"),
                 "-OOM command not allowed when used memory > 'maxmemory'.");
    CHECK_EQ_STR(ask(&client, "EVAL return_redis.pcall('SET','a','x').err 0"),
                 "$55 OOM command not allowed when used memory > 'maxmemory'.");
    CHECK_EQ_STR(ask(&client, "EVAL redis.call('DEL','a')_return_redis.call('SET','a','x') 0"),
                 "+OK");
    model_set_mode(redis, MODEL_READONLY);
    CHECK_EQ_STR(ask(&client, "GET a"), "$1 x");
    CHECK_EQ_STR(ask(&client, "DEL a"), "-READONLY You can't write against a read only replica.");
    model_set_mode(redis, MODEL_LOADING);
    CHECK_EQ_STR(ask(&client, "GET a"), "-LOADING Redis is loading the dataset in memory");
    CHECK_EQ_STR(ask(&client, "TIME"), "*2 $1 0 $1 0");
    client_end(&client);
    model_free(redis);
}
