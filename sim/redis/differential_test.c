/* The model and a real server: the same random requests go to both, and all replies must be
 * the same (pair.h says how that can be exact).
 *
 *     differential_test [-t words] URL CLOCK [SEED]
 *
 * Each random test runs a fixed set of seeds and a new one each time, or only SEED if it is
 * given. */
#define TEST_JOBS_MOST 1 /* they share a server */
#include "check.h"

#include "sim/redis/pair.h"
#include "store/redis/scripts.h"

#include <inttypes.h>
#include <sys/random.h>

enum { STEPS = 1500 };

static struct pair *open_pair(uint64_t seed) {
    CHECK(test_args_count >= 2);
    return pair_open(test_args[0], test_args[1], seed);
}

static void run_seeds(void (*run)(struct pair *pair), uint64_t last) {
    uint64_t given = test_args_count > 2 ? strtoull(test_args[2], NULL, 10) : 0, fresh = 0;
    CHECK(getrandom(&fresh, sizeof(fresh), 0) == sizeof(fresh));
    if (!given)
        printf("# seeds 1 to %" PRIu64 ", and %" PRIu64 "\n", last, fresh);
    for (uint64_t i = 1; i <= (given ? 1 : last + 1); i++) {
        struct pair *pair = open_pair(given ? given : i <= last ? i : fresh);
        run(pair);
        pair_close(pair);
    }
}

/* ---- Time ---- */

/* Usually little time passes, sometimes much, and the clock may go back. */
static void pass_time(struct pair *pair) {
    int64_t us = 0;
    uint64_t kind = pair_below(pair, 100);
    if (kind < 30)
        us = (int64_t)pair_below(pair, 2000);
    else if (kind < 60)
        us = (int64_t)pair_below(pair, 10) * 1000;
    else if (kind < 75)
        us = (int64_t)pair_below(pair, 3000000);
    else if (kind < 77)
        us = (int64_t)pair_below(pair, 7200000) * 1000;
    else if (kind < 78)
        us = (int64_t)pair_below(pair, 12) * INT64_C(86400000000);
    else if (kind < 82)
        us = -(int64_t)pair_below(pair, 5000000);
    pair_set_time(pair, pair_now_us(pair) + us);
}

/* ---- Plain commands ---- */

static const char *const plain_keys[] = {"a", "b", "c", "d{x}", ""};
static const char *const plain_values[] = {
    "",    "0",  "1",     "-1",  "7",  "12", "x",    "some words", "1.5", "1e3",
    "inf", " 1", "01",    "nan", "-0", "+1", "-inf", "(2",         "0x1", "9223372036854775807",
    "(x",  "5",  "1e999", "0.1", "3"};

/* The form of requests: k a key, v a value, f a field or member, n a number, t a time in ms, s
 * a score. Other words stand for themselves; those after '?' are optional. */
static const char *const plain_shapes[] = {
    "GET k",
    "SET k v",
    "SET k v PX t",
    "SET k v NX PX t",
    "SET k v XX",
    "SET k v ?NX ?EX ?t ?KEEPTTL ?XX",
    "SET k v px v",
    "SET k v ?px",
    "DEL k",
    "DEL k k k",
    "EXISTS k k",
    "PTTL k",
    "PEXPIRE k t",
    "PEXPIRE k v",
    "PEXPIRE k n",
    "INCRBY k n",
    "INCRBY k v",
    "SET k n",
    "SETRANGE k n v",
    "SETRANGE k v v",
    "SETRANGE k 0 v",
    "HSET k f v",
    "HSET k f v f v",
    "HSET k f v f",
    "HGET k f",
    "HMGET k f f f",
    "HGETALL k",
    "HDEL k f",
    "HDEL k f f f",
    "HINCRBY k f n",
    "HINCRBY k f v",
    "HSET k f n",
    "HSET k f 9223372036854775800",
    "ZADD k s f",
    "ZADD k s f s f",
    "ZADD k v f",
    "ZADD k s f s",
    "ZREM k f",
    "ZREM k f f",
    "ZSCORE k f",
    "ZRANK k f",
    "ZRANGE k n n",
    "ZRANGE k n n WITHSCORES",
    "ZRANGE k 0 -1 withscores",
    "ZRANGE k v n ?bogus",
    "ZRANGEBYSCORE k s s",
    "ZRANGEBYSCORE k v v",
    "ZRANGEBYSCORE k -inf s WITHSCORES",
    "ZRANGEBYSCORE k ( s ?bogus",
    "TIME",
    "PING",
    "PING v",
    "PING v v",
    "SELECT 0",
    "SELECT v",
    "SELECT 99",
    "SCAN 0 COUNT 1000",
    "SCAN 0 MATCH p COUNT 1000",
    "SCAN 0 MATCH p TYPE T COUNT 1000",
    "SCAN 0 COUNT x",
    "SCAN 0 COUNT 0",
    "SCAN x",
    "SCAN 0 COUNT 1000 ?MATCH ?p ?TYPE ?T",
    "CLIENT SETNAME f",
    "CLIENT SETNAME v",
    "CLIENT bogus",
    "CLIENT SETNAME",

    "PUBLISH everybody v",
    "PUBLISH nobody v",
    "UNSUBSCRIBE",
    "UNSUBSCRIBE f f",
    "SCRIPT EXISTS v v",
    "SCRIPT FLUSH",
    "SCRIPT FLUSH v",
    "SCRIPT bogus",
    "SCRIPT LOAD",
    "SCRIPT",
    "EVALSHA v 0",
    "EVALSHA 0123456789012345678901234567890123456789 v",
    "EVALSHA v v",
    "AUTH v",
    "AUTH default v",
    "AUTH f v",
    "AUTH v v v",
    "FLUSHALL",
    "FLUSHALL SYNC",
    "FLUSHALL v",
    "BOGUS v v",
    "GET",
    "get k",
    "GET k k",
    "hget k",
    "time v",
    "",
    "SET k",
    "PEXPIRE k",
    "ZADD k",
    "CONFIG GET nothing",
    "CONFIG GET",
    "CONFIG bogus",
};

static void add_piece(struct pair *pair, struct request *request, const char *piece, size_t size) {
    static const char *const patterns[] = {"*",   "?",      "a*", "[ab]", "[^a]", "d{*",
                                           "\\a", "[b-d]*", "",   "[a",   "*x*"};
    static const char *const types[] = {"string", "hash", "zset", "list", "STRING"};
    static const int64_t times[] = {1, 2, 3, 10, 1000, 5000, 100000, 86400000};
    const char *word = NULL;
    if (size != 1)
        request_add(request, piece, size);
    else if (*piece == 'k')
        word = plain_keys[pair_chance(pair, 3) ? 4 : pair_below(pair, 4)];
    else if (*piece == 'v')
        word = pair_pick(pair, plain_values);
    else if (*piece == 'p')
        word = pair_pick(pair, patterns);
    else if (*piece == 'T')
        word = pair_pick(pair, types);
    else if (*piece == 'f')
        request_format(request, "f%d", (int)pair_below(pair, 5));
    else if (*piece == 'n')
        request_format(request, "%d", (int)pair_below(pair, 9) - 4);
    else if (*piece == 't')
        request_format(request, "%" PRId64, pair_pick(pair, times));
    else if (*piece == 's')
        request_format(request, "%.17g", (double)(int)pair_below(pair, 9) / 4 - 1);
    else
        request_add(request, piece, size);
    if (word)
        request_format(request, "%s", word);
}

static void make_plain(struct pair *pair, struct request *request) {
    const char *shape = pair_pick(pair, plain_shapes);
    request->bytes.size = request->count = 0;
    do {
        size_t size = strcspn(shape, " ");
        bool maybe = *shape == '?';
        if (!maybe || pair_chance(pair, 50))
            add_piece(pair, request, shape + maybe, size - maybe);
        shape += size + (shape[size] == ' ');
    } while (*shape);
}

/* Commands that empty everything come less often than the others. */
static bool is_drastic(const struct request *request) {
    return request->bytes.size >= 8 && memcmp(request->bytes.bytes, "FLUSHALL", 8) == 0;
}

static void ask_plain(struct pair *pair, struct request *request) {
    do
        make_plain(pair, request);
    while (is_drastic(request) && pair_chance(pair, 80));
    pair_ask(pair, request);
}

static void run_plain(struct pair *pair) {
    struct request request = {.count = 0};
    pair_ask_words(pair, "ROLE"); /* for a replica without its master, the real server says more */
    for (int step = 0; step < STEPS; step++) {
        if (pair_chance(pair, 50))
            pass_time(pair);
        ask_plain(pair, &request);
    }
    text_free(&request.bytes);
}

TEST(plain_commands_do_what_they_do_on_a_server) {
    run_seeds(run_plain, 6);
}

/* ---- The shipped scripts ---- */

enum { NAMES = 3, COUNTERS = 2, OWNERS = 7, TOKENS = 8 };

static const struct kind {
    const char *text;
    uint32_t capacity;
} kinds[] = {{"rw", 2147483647}, {"p5", 5}, {"p2", 2}};

/* Values that were seen, to ask for later. */
struct seen {
    char tokens[NAMES][TOKENS][32];
    size_t count[NAMES];
};

/* How often the scripts gave which answer: a run that misses an answer does not test it. */
static struct answer_count {
    enum redis_script_id script;
    const char *start; /* of the reply */
    size_t count;
} answers[] = {
    {REDIS_ACQUIRE, "*2\r\n$4\r\ndone", 0},
    {REDIS_ACQUIRE, "*4\r\n$6\r\nqueued", 0},
    {REDIS_ACQUIRE, "*3\r\n$4\r\nbusy", 0},
    {REDIS_ACQUIRE, "*2\r\n$4\r\nkind", 0},
    {REDIS_ACQUIRE, "*2\r\n$5\r\nclock", 0},
    {REDIS_ACQUIRE, "*2\r\n$5\r\nspent", 0},
    {REDIS_ACQUIRE, "-WRONGTYPE", 0},
    {REDIS_RELEASE, ":1", 0},
    {REDIS_RELEASE, ":0", 0},
    {REDIS_RENEW, "*1\r\n:1", 0},
    {REDIS_RENEW, "*2\r\n:1\r\n:0", 0},
    {REDIS_RENEW_SHARE, ":1", 0},
    {REDIS_RENEW_SHARE, ":0", 0},
    {REDIS_BREAK, ":1", 0},
    {REDIS_BREAK, ":0", 0},
    {REDIS_LOOK, "*6", 0},
    {REDIS_COUNT, "$9\r\ndone", 0},
    {REDIS_COUNT, "$13\r\nmismatch", 0},
    {REDIS_COUNT, "$4\r\nkind", 0},
    {REDIS_COUNT, "$4\r\nlate", 0},
    {REDIS_COUNT, "$5\r\nrange", 0},
};
enum { ANSWERS = sizeof(answers) / sizeof(answers[0]) };

struct locks_run {
    struct pair *pair;
    struct request request;
    struct seen seen;
    unsigned seq; /* of counts */
};

static void add_key(struct request *request, size_t name, char which) {
    if (which == 'K')
        request_format(request, "holdfast:%c", (int)('a' + name));
    else
        request_format(request, "{holdfast:%c}.%c", (int)('a' + name), which);
}

static void start_script(struct locks_run *run, enum redis_script_id script, size_t keys) {
    request_start(&run->request, "EVALSHA");
    request_format(&run->request, "%s", redis_scripts[script].sha1);
    request_format(&run->request, "%zu", keys);
}

static void add_lock_keys(struct request *request, size_t name) {
    for (const char *which = "Ksqwhi"; *which; which++)
        add_key(request, name, *which);
}

/* Two clients, each with several attempts, and one owner that is not holdfast's. */
static void add_owner(struct locks_run *run) {
    unsigned owner = (unsigned)pair_below(run->pair, OWNERS);
    if (owner == 0 && pair_chance(run->pair, 90))
        owner = 1;
    if (owner == 0)
        request_format(&run->request, "not ours");
    else
        request_format(&run->request, "%032x-%x", owner % 3, owner);
}

static void add_ms(struct locks_run *run) {
    static const unsigned times[] = {1, 2, 3, 10, 500, 2000, 2000, 10000, 60000, 3600000};
    request_format(&run->request, "%u", pair_pick(run->pair, times));
}

/* A token that is right, or was right, or never was. */
static void add_token(struct locks_run *run, size_t name) {
    size_t count = run->seen.count[name];
    uint64_t kind = pair_below(run->pair, 10);
    if (count && kind < 8) {
        size_t back = kind < 5 ? 1 : 1 + pair_below(run->pair, TOKENS);
        request_format(&run->request, "%s",
                       run->seen.tokens[name][(back > count ? 0 : count - back) % TOKENS]);
    } else if (kind == 8) {
        request_format(&run->request, "%" PRId64, pair_now_us(run->pair));
    } else {
        request_format(&run->request, "0");
    }
}

static void note_token(struct locks_run *run, size_t name, struct slice reply) {
    char *token = run->seen.tokens[name][run->seen.count[name] % TOKENS];
    if (sscanf(reply.bytes, "*2\r\n$4\r\ndone\r\n$%*d\r\n%31[0-9]", token) == 1)
        run->seen.count[name]++;
}

static void count_answer(enum redis_script_id script, struct slice reply) {
    for (size_t i = 0; i < ANSWERS; i++)
        answers[i].count += answers[i].script == script &&
                            strncmp(reply.bytes, answers[i].start, strlen(answers[i].start)) == 0;
}

/* EVALSHA, and EVAL with the text if the server does not know the script. */
static struct slice ask_script(struct locks_run *run, enum redis_script_id script) {
    struct slice reply = pair_ask(run->pair, &run->request);
    count_answer(script, reply);
    if (strncmp(reply.bytes, "-NOSCRIPT", 9) != 0)
        return reply;
    struct request whole = {.count = 0};
    request_start(&whole, "EVAL");
    request_add(&whole, redis_scripts[script].text, redis_scripts[script].size);
    for (size_t i = 2; i < run->request.count; i++) {
        size_t start = run->request.ends[i - 1];
        request_add(&whole, run->request.bytes.bytes + start, run->request.ends[i] - start);
    }
    reply = pair_ask(run->pair, &whole);
    count_answer(script, reply);
    text_free(&whole.bytes);
    return reply;
}

/* The client's clock: mostly right, sometimes some days off. */
static void add_floor(struct locks_run *run) {
    static const int64_t off_days[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -30, -1, 1, 2};
    int64_t day_us = INT64_C(86400000000), off_us = pair_pick(run->pair, off_days) * day_us;
    request_format(&run->request, "%" PRId64,
                   pair_now_us(run->pair) + off_us + (int64_t)pair_below(run->pair, 1000));
}

static void add_particulars(struct locks_run *run) {
    static const char *const labels[] = {
        "", " ", "night shift", "- % \"",
        "a long one, for which a hash of small values has no room"};
    request_format(&run->request, "4711 4 7 hostcommand%s", pair_pick(run->pair, labels));
}

/* Each name has a kind, which most requests ask for. */
static const struct kind *add_kind(struct locks_run *run, size_t name) {
    const struct kind *kind =
        pair_chance(run->pair, 3) ? &pair_pick(run->pair, kinds) : &kinds[name];
    request_format(&run->request, "%s", kind->text);
    request_format(&run->request, "%" PRIu32, kind->capacity);
    if (kind->capacity == 2147483647)
        request_format(&run->request, "%" PRIu32, pair_chance(run->pair, 30) ? kind->capacity : 1);
    else
        request_format(&run->request, "%u", 1 + (unsigned)pair_below(run->pair, kind->capacity));
    return kind;
}

static void ask_acquire(struct locks_run *run, size_t name) {
    static const char *const bases[] = {"0", "1690000000000000", "9007199254740992"};
    struct pair *pair = run->pair;
    start_script(run, REDIS_ACQUIRE, 6);
    add_lock_keys(&run->request, name);
    add_owner(run);
    add_ms(run);
    if (pair_chance(pair, 40))
        request_format(&run->request, "0");
    else
        add_ms(run);
    add_floor(run);
    request_format(&run->request, "%s", bases[pair_chance(pair, 3) ? 2 : pair_chance(pair, 80)]);
    request_format(&run->request, "%d", pair_chance(pair, 20));
    add_kind(run, name);
    add_particulars(run);
    request_format(&run->request, "holdfast:@");
    note_token(run, name, ask_script(run, REDIS_ACQUIRE));
}

static void ask_release(struct locks_run *run, size_t name) {
    start_script(run, REDIS_RELEASE, 6);
    add_lock_keys(&run->request, name);
    add_owner(run);
    request_format(&run->request, "holdfast:@");
    ask_script(run, REDIS_RELEASE);
}

static void ask_renew(struct locks_run *run, size_t name) {
    size_t count = 1 + pair_below(run->pair, NAMES);
    start_script(run, REDIS_RENEW, count);
    for (size_t i = 0; i < count; i++)
        add_key(&run->request, (name + i) % NAMES, 'K');
    for (size_t i = 0; i < count; i++) {
        add_owner(run);
        add_ms(run);
    }
    ask_script(run, REDIS_RENEW);
}

static void ask_renew_share(struct locks_run *run, size_t name) {
    start_script(run, REDIS_RENEW_SHARE, 3);
    for (const char *which = "Khi"; *which; which++)
        add_key(&run->request, name, *which);
    add_owner(run);
    add_ms(run);
    ask_script(run, REDIS_RENEW_SHARE);
}

static void ask_break(struct locks_run *run, size_t name) {
    start_script(run, REDIS_BREAK, 6);
    add_lock_keys(&run->request, name);
    add_token(run, name);
    request_format(&run->request, "somebody@somewhere");
    request_format(&run->request, "%s", pair_chance(run->pair, 50) ? "it was stuck" : "");
    request_format(&run->request, "holdfast:@");
    ask_script(run, REDIS_BREAK);
}

static void ask_look(struct locks_run *run, size_t name) {
    start_script(run, REDIS_LOOK, 6);
    add_lock_keys(&run->request, name);
    ask_script(run, REDIS_LOOK);
}

/* Most numbers are in order, some are repeats, and some are old. */
static void add_seq(struct locks_run *run) {
    unsigned kind = (unsigned)pair_below(run->pair, 10);
    run->seq += kind < 7;
    request_format(&run->request, "%020u", kind == 9 && run->seq ? run->seq - 1 : run->seq);
}

static void ask_count(struct locks_run *run, size_t name) {
    static const char *const whats[] = {"get", "add", "add", "add", "swap", "cas", "remove"};
    static const char *const numbers[] = {
        "0", "1", "-7", "1", "9007199254740993", "9223372036854775807", "-9223372036854775808"};
    start_script(run, REDIS_COUNT, 2);
    add_key(&run->request, name, 'K');
    add_key(&run->request, name, 'a');
    add_seq(run);
    request_format(&run->request, "%s", pair_pick(run->pair, whats));
    request_format(&run->request, "%s", pair_pick(run->pair, numbers));
    request_format(&run->request, "%s",
                   pair_chance(run->pair, 50) ? "-" : pair_pick(run->pair, numbers));
    if (pair_chance(run->pair, 50))
        request_format(&run->request, "0");
    else
        add_ms(run);
    add_ms(run);
    ask_script(run, REDIS_COUNT);
}

/* Another client changes the keys, or the server. */
static void interfere(struct locks_run *run, size_t name) {
    char which = name < NAMES ? "Ksqwhi"[pair_below(run->pair, 6)] : "Ka"[pair_below(run->pair, 2)];
    struct request *request = &run->request;
    uint64_t kind = pair_below(run->pair, 100);
    if (kind < 50) {
        request_start(request, "DEL");
        add_key(request, name, which);
    } else if (kind < 60) {
        request_start(request, "PEXPIRE");
        add_key(request, name, which);
        add_ms(run);
    } else if (kind < 80) {
        request_start(request, "SET"); /* a foreign lock, or a companion of the wrong type */
        add_key(request, name, kind < 75 ? 'K' : which);
        request_format(request, "foreign");
        if (kind < 70) {
            request_format(request, "PX");
            add_ms(run);
        }
    } else if (kind < 85) {
        request_start(request, "HSET");
        add_key(request, name, kind < 82 ? 'K' : which);
        request_format(request, "field");
        request_format(request, "value");
    } else if (kind < 98) {
        request_start(request, "SCRIPT");
        request_format(request, "FLUSH");
    } else {
        request_start(request, "FLUSHALL");
    }
    pair_ask(run->pair, request);
}

/* Compares all data: whatever the replies were, both must have the same at the end. */
static void compare_all(struct locks_run *run) {
    static const char *const reads[] = {"GET", "HGETALL", "PTTL"};
    struct request *request = &run->request;
    for (size_t name = 0; name < NAMES + COUNTERS; name++) {
        for (const char *which = name < NAMES ? "Ksqwhi" : "Ka"; *which; which++) {
            for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
                request_start(request, reads[i]);
                add_key(request, name, *which);
                pair_ask(run->pair, request);
            }
            request_start(request, "ZRANGE");
            add_key(request, name, *which);
            request_format(request, "0");
            request_format(request, "-1");
            request_format(request, "WITHSCORES");
            pair_ask(run->pair, request);
        }
    }
    pair_ask_words(run->pair, "SCAN 0 MATCH holdfast:* COUNT 1000 TYPE string");
}

static void ask_lock(struct locks_run *run) {
    static void (*const asks[])(struct locks_run *, size_t) = {
        ask_acquire, ask_acquire, ask_acquire, ask_acquire,     ask_release, ask_release,
        ask_release, ask_renew,   ask_renew,   ask_renew_share, ask_break,   ask_look};
    pair_pick(run->pair, asks)(run, pair_below(run->pair, NAMES));
    ask_count(run, NAMES + pair_below(run->pair, COUNTERS));
    if (pair_chance(run->pair, 3))
        interfere(run, pair_below(run->pair, NAMES + COUNTERS));
}

static struct locks_run start_locks(struct pair *pair) {
    char channel[64];
    for (unsigned client = 0; client < 3; client++) {
        snprintf(channel, sizeof(channel), "holdfast:@%032x", client);
        pair_subscribe(pair, channel);
    }
    return (struct locks_run){.pair = pair};
}

static void run_locks(struct pair *pair) {
    struct locks_run run = start_locks(pair);
    for (int step = 0; step < STEPS; step++) {
        pass_time(pair);
        ask_lock(&run);
        if (step % 100 == 99)
            compare_all(&run);
    }
    text_free(&run.request.bytes);
}

TEST(the_shipped_scripts_do_what_they_do_on_a_server) {
    run_seeds(run_locks, 12);
    for (size_t i = 0; i < ANSWERS && test_args_count <= 2; i++) {
        if (!answers[i].count)
            test_fail(__FILE__, __LINE__, "%s never answered %s",
                      redis_scripts[answers[i].script].name, answers[i].start);
    }
}

/* ---- A server that refuses ---- */

static void run_modes(struct pair *pair) {
    struct locks_run run = start_locks(pair);
    for (int step = 0; step < STEPS; step++) {
        pass_time(pair);
        if (pair_chance(pair, 5)) {
            enum model_mode mode = (enum model_mode)pair_below(pair, MODEL_MISCONF + 1);
            pair_set_mode(pair, mode);
        }
        if (pair_chance(pair, 80))
            ask_lock(&run);
        else
            ask_plain(pair, &run.request);
        if (step % 200 == 199)
            compare_all(&run);
    }
    text_free(&run.request.bytes);
}

TEST(a_server_that_is_full_or_cannot_save_or_is_a_replica_refuses_in_the_same_words) {
    run_seeds(run_modes, 6);
}

/* Every command, with arguments that it takes, and one script. */
static void ask_each_command(struct pair *pair) {
    static const char *const requests[] = {
        "GET a",
        "SET a b",
        "DEL a",
        "EXISTS a",
        "PTTL a",
        "PEXPIRE a 5",
        "SETRANGE a 0 x",
        "INCRBY a 1",
        "HSET h a b",
        "HGET h a",
        "HMGET h a",
        "HGETALL h",
        "HDEL h a",
        "HINCRBY h a 1",
        "ZADD z 1 a",
        "ZREM z a",
        "ZSCORE z a",
        "ZRANK z a",
        "ZRANGE z 0 -1",
        "ZRANGEBYSCORE z 0 1",
        "TIME",
        "PING",
        "SELECT 0",
        "SCAN 0 COUNT 1000",
        "CLIENT SETNAME a",
        "CONFIG GET nothing",
        "PUBLISH everybody x",
        "SCRIPT FLUSH",
        "SCRIPT EXISTS a",
        "SCRIPT LOAD return",
        "EVAL return 0",
        "EVALSHA x 0",
        "AUTH default x",
        "AUTH x",
        "UNSUBSCRIBE",
        "NOSUCH",
        "GET",
        "FLUSHALL",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        pair_ask_words(pair, requests[i]);
}

TEST(a_server_refuses_each_command_in_the_same_words) {
    struct pair *pair = open_pair(1);
    for (enum model_mode mode = MODEL_OK; mode <= MODEL_BUSY; mode++) {
        if (mode == MODEL_LOADING)
            continue;
        pair_set_mode(pair, mode);
        ask_each_command(pair);
    }
    pair_close(pair);
}

TEST(a_server_that_loads_refuses_each_command_in_the_same_words) {
    enum { KEYS = 300, SIZE = 2000 };
    struct pair *pair = open_pair(1);
    struct request request = {.count = 0};
    char value[SIZE];
    for (size_t i = 0; i < KEYS; i++) {
        for (size_t j = 0; j < SIZE; j++)
            value[j] = (char)pair_random(pair); /* incompressible */
        request_start(&request, "SET");
        request_format(&request, "key%zu", i);
        request_add(&request, value, SIZE);
        pair_ask(pair, &request);
    }
    pair_set_mode(pair, MODEL_LOADING);
    ask_each_command(pair);
    text_free(&request.bytes);
    pair_close(pair);
}

/* ---- What scripts see ---- */

static const char *const bindings[] = {
    /* What comes in, and what goes out. */
    "return KEYS",
    "return ARGV",
    "return {#KEYS, #ARGV, KEYS[3], ARGV[3]}",
    "return {KEYS[1] .. ARGV[2], #ARGV[2]}",
    "return",
    "return nil",
    "return true",
    "return false",
    "return {1.9, -1.9, 1e15, false, true, 'a', nil, 3}",
    "return {{}, {{}, 'x', {1, {2}}}}",
    "return 1e20",
    "return -1e20",
    "return 9007199254740993",
    "return 0/0",
    "return function() end",
    "return {ok = 'fine'}",
    "return {ok = 'two\\r\\nlines'}",
    "return {ok = 1, 2, 3}",
    "return {err = 'CODE text'}",
    "return {err = '-CODE text'}",
    "return {err = 'oneword'}",
    "return {err = 'two\\nlines'}",
    "return {err = 1}",
    "return {err = 'first', ok = 'second'}",
    "return {1, {err = 'inner error'}, {ok = 'inner status'}}",
    "return setmetatable({}, {__index = function() return 'm' end})",
    "return 'a\\0b'",
    /* Calls. */
    "return redis.call('SET', KEYS[1], ARGV[2])",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('GET', KEYS[2])",
    "return redis.call('GET', KEYS[2]) == false",
    "return type(redis.call('SET', KEYS[1], 'x')) .. redis.call('SET', KEYS[1], 'x').ok",
    "return redis.call('set', KEYS[1], 12)",
    "return redis.call('PING')",
    "return redis.call('HSET', KEYS[2], 'a', 1.5, 'b', 1e15, 'c', 1e17, 'd', 1e21, 'e', 0.1)",
    "return redis.call('HSET', KEYS[2], 'f', -0.0, 'g', 1/3)",
    "return redis.call('HGETALL', KEYS[2])",
    "return redis.call('HMGET', KEYS[2], 'a', 'none', 'g')",
    "return redis.call('HMGET', KEYS[2], 'none')[1] == false",
    "return redis.call('HSET', KEYS[2], 'h', 1/0, 'i', -1/0)",
    "return redis.call('HINCRBY', KEYS[2], 'n', 7) + 0.5",
    "return redis.call('DEL', KEYS[2])",
    "return redis.call('ZADD', KEYS[2], 1780000000000000.5, 'm', 1/0, 'n', -1e300, 'o', 0.1, 'p')",
    "return redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')",
    "return {redis.call('ZSCORE', KEYS[2], 'm'), redis.call('ZSCORE', KEYS[2], 'x')}",
    "return {redis.call('ZRANK', KEYS[2], 'm'), redis.call('ZRANK', KEYS[2], 'x')}",
    "return redis.call('PUBLISH', 'everybody', 'hello')",
    "for i = 1, 2 do redis.call('PUBLISH', 'everybody', i) end return 'both'",
    "return redis.call('TIME')",
    "return redis.call('EXISTS', unpack(KEYS))",
    /* Errors. */
    "return redis.call('HGET', KEYS[1], 'x')",
    "return redis.pcall('HGET', KEYS[1], 'x')",
    "return redis.pcall('HGET', KEYS[1], 'x').err",
    "return redis.call('NOSUCH')",
    "return redis.pcall('NOSUCH')",
    "return redis.call('GET')",
    "return redis.pcall('GET')",
    "return redis.call('HSET', KEYS[1], 'a', 'b', 'c')",
    "return redis.call('SET', KEYS[1], 'v', 'PX', 0)",
    "return redis.call('SUBSCRIBE', 'x')",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SCRIPT', 'FLUSH')",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.call({})",
    "return redis.call('GET', true)",
    "return redis.pcall('GET', nil)",
    "return redis.call(1)",
    "local e = redis.pcall('NOSUCH') return {e.err, tostring(e.source)}",
    "return tostring(redis.pcall('NOSUCH').ignore_error_stats_update)",
    "local ok, e = pcall(redis.call, 'NOSUCH') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, 'x') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, {1}) return {tostring(ok), type(e), e}",
    "local ok, e = pcall(function() error('x') end) return {tostring(ok), e}",
    "return {pcall(function() return 1, nil, 2 end)}",
    "\n\nerror('on the third line')",
    "local function f()\nerror('inside')\nend\n\nf()",
    "local function f()\nerror('of the caller', 2)\nend\n\nf()",
    "error('without a place', 0)",
    "error({err = 'CODE of a table'})",
    "error()",
    "error(nil)",
    "error(12)",
    "return nil + 1",
    "local t = nil\nt.x = 1",
    "return #nil",
    "return 'a' < 1",
    "return string.rep()",
    "return tonumber('1', 99)",
    "local t = setmetatable({}, {__index = function() error('in an index') end}) return t.x",
    "assert(false)",
    "assert(false, 'asserted')",
    "assert(nil, {err = 'TABLE asserted'})",
    "local function",
    "return )",
    "x = = 1",
    "return redis.error_reply('oneword')",
    "return redis.error_reply('TWO words')",
    "return redis.error_reply('-DASH words')",
    "return redis.error_reply('')",
    "return redis.error_reply()",
    "return redis.error_reply(1)",
    "return redis.error_reply('a b').err",
    "return redis.status_reply('fine')",
    "return redis.status_reply(1)",
    "return redis.sha1hex('')",
    "return redis.sha1hex('The quick brown fox jumps over the lazy dog')",
    "return redis.sha1hex(string.rep('x', 1000))",
    "local t = {} for i = 50, 70 do t[#t + 1] = redis.sha1hex(string.rep('x', i)) end return t",
    "return redis.sha1hex()",
    "return redis.sha1hex('a', 'b')",
    /* Nothing is left behind. */
    "x = 1",
    "return x",
    "_G.x = 1",
    "return _G.x",
    "KEYS = 1",
    "string.x = 1",
    "redis.call = 1",
    "math.pi = 3",
    "KEYS[1] = 'changed' return KEYS",
    "return KEYS",
    "function named() end",
    "return {type(print), 1}",
    "return type(dofile)",
    "return type(os)",
    "return type(debug)",
    /* The libraries. */
    "return {string.format('%.0f', 1780000000000001), string.format('%d', 3.7)}",
    "return {1e15 .. '', 2^53 .. ''}",
    "return {tostring(1e14), tostring(1e15), tostring(0.1), tostring(-0.0), tostring(1/3)}",
    "return {string.match('12 34 rest of it', '^(%d+) (%d+) (.*)$')}",
    "return {string.find('0af-1', '^%x+%-%x+$')}",
    "return {string.sub('abc', 2), ('x'):rep(3), #('a\\0b'), string.byte('a')}",
    "return {math.ceil(1.5), math.floor(-1.5), math.max(1, 5, 3), math.huge == 1/0}",
    "local t = {3, 1, 2} table.sort(t) table.insert(t, 9) return {table.concat(t, ','), unpack(t)}",
    "return {tonumber('0x10'), tonumber('1e3'), tonumber('x') == nil, tonumber(' 7 ')}",
    "return {select('#', 1, nil, nil), select(2, 'a', 'b')}",
    "return {next({}) == nil, type(next), rawequal(1, 1), rawget({7}, 1), _VERSION}",
    "return {xpcall(function() error('x') end, function(e) return 'handled ' .. e end)}",
    "local t = {} for i, v in ipairs(ARGV) do t[i] = v .. i end return t",
    "local sum = 0 for k, v in pairs({1, 2, 3}) do sum = sum + v end return sum",
};

TEST(scripts_see_what_they_see_on_a_server) {
    struct pair *pair = open_pair(1);
    struct request request = {.count = 0};
    for (size_t i = 0; i < sizeof(bindings) / sizeof(bindings[0]); i++) {
        request_start(&request, "EVAL");
        request_format(&request, "%s", bindings[i]);
        request_format(&request, "2");
        request_format(&request, "key");
        request_format(&request, "other");
        request_format(&request, "argument");
        request_add(&request, "a\0b", 3);
        pair_ask(pair, &request);
    }
    text_free(&request.bytes);
    pair_close(pair);
}
