/* The shipped scripts in states that need a rare chain of events: some keys were lost, votes
 * came late, a counter is at its limits. The store's tests cover everything else that scripts
 * do. */
#include "check.h"

#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"
#include "store/redis/scripts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define START_US INT64_C(1700000000000000)
#define DAY_US INT64_C(86400000000)
#define LEASE_MS "5000"
#define ALL "2147483647"
#define A "0123456789abcdef0123456789abcdef-1"
#define B "0123456789abcdef0123456789abcdef-2"
#define C "fedcba9876543210fedcba9876543210-1"

static struct model_redis *redis;
static struct text heard;

static void server_heard(void *context, const char *bytes, size_t size) {
    (void)context;
    text_add(&heard, bytes, size);
}

static void begin(void) {
    static const struct model_config config = {.output = server_heard};
    redis = model_new(&config);
    model_set_time(redis, START_US);
}

static void over(void) {
    redis = model_free(redis);
    text_free(&heard);
}

/* Calls a script with the first `key_count` keys of the lock "a", or those of the counter. Returns
 * the answer as words. */
static const char *call(enum redis_script_id script, size_t key_count, const char *const *words) {
    static const char *const counter_keys[] = {"holdfast:n", "{holdfast:n}.a.holdfast:n.me"};
    static const char *const lock_keys[] = {"holdfast:a",     "{holdfast:a}.s", "{holdfast:a}.q",
                                            "{holdfast:a}.w", "{holdfast:a}.h", "{holdfast:a}.i",
                                            "{holdfast:}.set"};
    const char *const *keys = script == REDIS_COUNT ? counter_keys : lock_keys;
    static char answer[500];
    struct text request = {NULL, 0, 0};
    size_t count = 0, size = 0;
    char number[2] = {(char)('0' + key_count), 0};
    while (words[count])
        count++;
    answer_array(&request, 3 + key_count + count);
    answer_bulk(&request, slice_of("EVAL"));
    answer_bulk(&request, (struct slice){redis_scripts[script].text, redis_scripts[script].size});
    answer_bulk(&request, slice_of(number));
    for (size_t i = 0; i < key_count; i++)
        answer_bulk(&request, slice_of(keys[i]));
    for (size_t i = 0; i < count; i++)
        answer_bulk(&request, slice_of(words[i]));
    struct model_connection *connection = model_connect(redis, NULL);
    heard.size = 0;
    CHECK(model_feed(connection, request.bytes, request.size));
    model_disconnect(connection);
    text_free(&request);
    text_add(&heard, "", 1);
    for (char *line = strtok(heard.bytes, "\r\n"); line; line = strtok(NULL, "\r\n")) {
        if (*line != '*' && *line != '$')
            size += (size_t)snprintf(answer + size, sizeof(answer) - size, "%s%s", size ? " " : "",
                                     line);
    }
    return answer;
}

static const char *acquire_permits_of(const char *capacity, const char *owner, const char *weight,
                                      bool waits) {
    char kind[8];
    snprintf(kind, sizeof(kind), "p%s", capacity);
    return call(REDIS_ACQUIRE, 6,
                (const char *const[]){owner, LEASE_MS, waits ? "3000" : "0", "0", "0", "0", kind,
                                      capacity, weight, "", "channel:", NULL});
}

static const char *acquire_permits(const char *owner, const char *weight) {
    return acquire_permits_of("3", owner, weight, false);
}

static const char *vote(const char *owner, const char *floor, const char *below, bool reads) {
    return call(REDIS_VOTE, 7,
                (const char *const[]){owner, LEASE_MS, floor, below, "0", "0", "rw", ALL,
                                      reads ? "1" : ALL, "", "set", "60000", "1", "7", NULL});
}

static const char *release(const char *owner) {
    return call(REDIS_RELEASE, 6, (const char *const[]){owner, "channel:", "", NULL});
}

/* ---- Tokens ---- */

TEST(a_vote_that_came_late_and_above_is_not_lowered_when_it_is_taken_again) {
    begin();
    CHECK_EQ_STR(vote(A, "2", "0", false), "done 2 7");
    CHECK_EQ_STR(release(A), ":1");
    CHECK_EQ_STR(vote(B, "2", "0", false), "done 3 7");
    CHECK_EQ_STR(vote(B, "2", "2", false), "below 3"); /* the hold has 2, as elsewhere */
    CHECK_EQ_STR(vote(B, "3", "3", false), "done 3 7");
    CHECK_EQ_STR(release(B), ":1");
    CHECK_EQ_STR(vote(C, "0", "0", false), "done 4 7");
    over();
}

TEST(a_share_that_came_late_and_above_is_not_lowered_either) {
    begin();
    CHECK_EQ_STR(vote(A, "2", "0", true), "done 2 7");
    CHECK_EQ_STR(vote(B, "2", "0", true), "done 3 7");
    CHECK_EQ_STR(vote(B, "2", "2", true), "below 3");
    CHECK_EQ_STR(vote(B, "3", "3", true), "done 3 7");
    over();
}

TEST(a_break_ends_all_shares_that_have_the_token) {
    begin();
    CHECK_EQ_STR(vote(A, "2", "0", true), "done 2 7");
    CHECK_EQ_STR(vote(B, "0", "0", true), "done 3 7");
    CHECK_EQ_STR(vote(C, "0", "0", true), "done 4 7");
    CHECK_EQ_STR(vote(A, "4", "0", true), "done 4 7"); /* raised to what it has elsewhere */
    CHECK_EQ_STR(call(REDIS_BREAK, 6, (const char *const[]){"4", "", "", "channel:", "", NULL}),
                 ":1");
    CHECK_EQ_STR(release(A), ":0");
    CHECK_EQ_STR(release(C), ":0");
    CHECK_EQ_STR(release(B), ":1");
    over();
}

/* Takes and releases the lock, with a floor. Returns the token. */
static uint64_t token_after(uint64_t floor) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, floor);
    const char *answer = call(REDIS_ACQUIRE, 6,
                              (const char *const[]){A, LEASE_MS, "0", text, "0", "0", "rw", ALL,
                                                    ALL, "", "channel:", NULL});
    CHECK(strncmp(answer, "done ", 5) == 0);
    uint64_t token = strtoull(answer + 5, NULL, 10);
    CHECK_EQ_STR(release(A), ":1");
    return token;
}

/* A client proposes the larger of its clock and the number after the last token that it saw. */
TEST(a_counter_in_use_is_not_forgotten_whatever_the_time_is_for_clients) {
    static const struct {
        int64_t off_us;
        bool stands_still;
    } clocks[] = {
        {0, false}, {DAY_US / 2, false}, {-60000000, false}, {-8 * DAY_US, false}, {1, true}};
    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        begin();
        uint64_t last = token_after((uint64_t)(START_US + clocks[i].off_us));
        for (int64_t us = DAY_US / 7; us < 30 * DAY_US; us += DAY_US / 7) {
            model_set_time(redis, START_US + us);
            CHECK(model_find_field(redis, "{holdfast:a}.s", "t"));
            int64_t clock_us = START_US + clocks[i].off_us + (clocks[i].stands_still ? 0 : us);
            uint64_t floor = (uint64_t)clock_us > last ? (uint64_t)clock_us : last + 1;
            uint64_t token = token_after(floor);
            CHECK(token > last);
            last = token;
        }
        over();
    }
}

TEST(a_clock_that_runs_away_takes_tokens_no_further_than_a_day_ahead) {
    begin();
    for (int64_t ahead_us = 0; ahead_us < 5 * DAY_US; ahead_us += DAY_US / 7)
        CHECK(token_after((uint64_t)(START_US + ahead_us)) < START_US + DAY_US + 100);
    over();
}

/* ---- Keys that were lost ---- */

TEST(who_waits_for_a_hold_whose_state_was_lost_gets_it_after_the_release) {
    begin();
    CHECK_EQ_STR(acquire_permits(A, "3"), "done 1");
    CHECK(model_evict(redis, "{holdfast:a}.s"));
    CHECK_EQ_STR(acquire_permits_of("3", B, "3", true), "queued :5000 :0 :0");
    CHECK_EQ_STR(release(A), ":1");
    CHECK_EQ_STR(acquire_permits_of("3", B, "3", true), "done 1");
    CHECK_EQ_STR(release(B), ":1");
    CHECK_EQ_STR(acquire_permits_of("3", C, "3", true), "done 2");
    over();
}

/* A release learns from what it deletes whether somebody waits. */
TEST(a_release_of_a_hold_whose_state_was_lost_hands_on_to_who_waits) {
    for (int repeats = 0; repeats < 2; repeats++) {
        begin();
        CHECK_EQ_STR(acquire_permits(A, "3"), "done 1");
        CHECK(model_evict(redis, "{holdfast:a}.s"));
        if (repeats) /* so the state exists again; the token follows the floor, which is 0 here */
            CHECK_EQ_STR(acquire_permits(A, "3"), "done 0");
        CHECK_EQ_STR(acquire_permits_of("3", B, "3", true), "queued :5000 :0 :0");
        CHECK_EQ_STR(release(A), ":1");
        CHECK_EQ_STR(acquire_permits_of("3", C, "3", true), "queued :3000 :0 :0");
        CHECK_EQ_STR(acquire_permits_of("3", B, "3", true), "done 1");
        over();
    }
}

TEST(shares_whose_records_were_lost_count_as_all_permits) {
    begin();
    CHECK_EQ_STR(acquire_permits(A, "1"), "done 1");
    CHECK(model_evict(redis, "{holdfast:a}.s"));
    CHECK(model_evict(redis, "{holdfast:a}.i"));
    CHECK_EQ_STR(acquire_permits(B, "3"), "busy :5000 :0");
    CHECK_EQ_STR(acquire_permits(B, "1"), "busy :5000 :0");
    CHECK_EQ_STR(acquire_permits(A, "1"), "done 1"); /* a repeat restores its weight */
    CHECK_EQ_STR(acquire_permits(B, "3"), "busy :5000 :0");
    CHECK_EQ_STR(acquire_permits(B, "2"), "done 2");
    CHECK_EQ_STR(acquire_permits(C, "1"), "busy :5000 :0");
    CHECK_EQ_STR(release(A), ":1");
    CHECK_EQ_STR(acquire_permits(C, "1"), "done 3");
    over();
}

TEST(permits_are_not_used_up_by_shares_whose_records_were_lost) {
    begin();
    CHECK_EQ_STR(acquire_permits(A, "2"), "done 1");
    CHECK(model_evict(redis, "{holdfast:a}.i"));
    CHECK_EQ_STR(acquire_permits(B, "1"), "done 2");
    CHECK_EQ_STR(release(A), ":1");
    CHECK_EQ_STR(acquire_permits(A, "2"), "done 3");
    over();
}

TEST(a_queue_whose_kind_was_lost_is_not_served_as_another_kind) {
    begin();
    CHECK_EQ_STR(acquire_permits(A, "3"), "done 1");
    CHECK_EQ_STR(acquire_permits_of("3", B, "1", true), "queued :5000 :0 :0");
    CHECK(model_evict(redis, "{holdfast:a}.s"));
    CHECK_EQ_STR(acquire_permits_of("2", C, "1", true), "queued :5000 :0 :0");
    CHECK_EQ_STR(release(A), ":1");
    CHECK_EQ_STR(acquire_permits_of("2", C, "1", true), "done 1");
    CHECK_EQ_STR(acquire_permits_of("3", B, "1", true), "kind p2");
    over();
}

/* ---- Counters ---- */

#define MOST "9223372036854775807"
#define LEAST "-9223372036854775808"

static const char *count_for(const char *life_ms, const char *seq, const char *what,
                             const char *number, const char *expected) {
    return call(REDIS_COUNT, 2,
                (const char *const[]){seq, what, number, expected, life_ms, "120000", NULL});
}

static const char *count(const char *seq, const char *what, const char *number) {
    return count_for("0", seq, what, number, "0");
}

static void put(const char *value) {
    model_evict(redis, "holdfast:n");
    struct model_connection *connection = model_connect(redis, NULL);
    struct text request = {NULL, 0, 0};
    answer_array(&request, 3);
    answer_bulk(&request, slice_of("SET"));
    answer_bulk(&request, slice_of("holdfast:n"));
    answer_bulk(&request, slice_of(value));
    CHECK(model_feed(connection, request.bytes, request.size));
    text_free(&request);
    model_disconnect(connection);
}

TEST(a_counter_is_exact_up_to_its_limits) {
    begin();
    CHECK_EQ_STR(count("01", "add", "9007199254740993"), "done 9007199254740993 -1");
    CHECK_EQ_STR(count("02", "add", "2"), "done 9007199254740995 -1");
    CHECK_EQ_STR(count("03", "swap", MOST), "done 9007199254740995 -1");
    CHECK_EQ_STR(count("04", "add", "1"), "range");
    CHECK_EQ_STR(count("05", "get", "0"), "done " MOST " -1");
    CHECK_EQ_STR(count_for("0", "06", "cas", LEAST, MOST), "done " LEAST " -1");
    CHECK_EQ_STR(count("07", "add", "-1"), "range");
    CHECK_EQ_STR(count("08", "add", MOST), "done -1 -1");
    CHECK_EQ_STR(count("09", "add", LEAST), "range");
    CHECK_EQ_STR(count("10", "add", "1"), "done 0 -1");
    CHECK_EQ_STR(count("11", "add", LEAST), "done " LEAST " -1");
    over();
}

TEST(a_repeat_gets_the_same_answer_and_what_comes_late_does_nothing) {
    static const char *const whats[] = {"add", "swap", "cas", "remove"};
    begin();
    CHECK_EQ_STR(count("01", "add", "5"), "done 5 -1");
    CHECK_EQ_STR(count("01", "add", "5"), "done 5 -1");
    CHECK_EQ_STR(count_for("0", "02", "cas", "9", "4"), "mismatch 5 -1");
    CHECK_EQ_STR(count("00", "swap", "4"), "late");
    put("4"); /* by another client: a copy of the CAS must not find it */
    CHECK_EQ_STR(count_for("0", "02", "cas", "9", "4"), "mismatch 5 -1");
    put(MOST);
    CHECK_EQ_STR(count("03", "add", "1"), "range");
    put("1");
    CHECK_EQ_STR(count("03", "add", "1"), "range");
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ_STR(count("02", whats[i], "1"), "late");
    CHECK_EQ_STR(count("02", "get", "0"), "done 1 -1");
    CHECK_EQ_STR(count("04", "remove", "0"), "done 1 -1");
    CHECK_EQ_STR(count("04", "remove", "0"), "done 1 -1");
    CHECK_EQ_STR(count("05", "remove", "0"), "done - -2");
    over();
}

TEST(a_counter_gets_its_end_when_it_is_made_and_keeps_it) {
    begin();
    CHECK_EQ_STR(count_for("5000", "01", "add", "5", "0"), "done 5 5000");
    model_set_time(redis, 1700000001000000);
    CHECK_EQ_STR(count_for("9000", "02", "add", "1", "0"), "done 6 4000");
    CHECK_EQ_STR(count("03", "swap", "1"), "done 6 4000");
    CHECK_EQ_STR(count_for("0", "04", "cas", "2", "1"), "done 2 4000");
    model_set_time(redis, 1700000006000000);
    CHECK_EQ_STR(count("05", "get", "0"), "done - -2");
    CHECK_EQ_STR(count_for("0", "06", "cas", "1", "2"), "mismatch - -2");
    CHECK_EQ_STR(count_for("7000", "07", "cas", "3", "-"), "done 3 7000");
    CHECK_EQ_STR(count("08", "remove", "0"), "done 3 7000");
    CHECK_EQ_STR(count_for("7000", "09", "swap", "4", "0"), "done - -2");
    CHECK_EQ_STR(count("10", "get", "0"), "done 4 7000");
    over();
}

TEST(what_is_no_counter_is_left_as_it_is) {
    static const char *const values[] = {"",
                                         "x",
                                         "01",
                                         "-0",
                                         "+1",
                                         " 1",
                                         "1 ",
                                         "1.0",
                                         "1e3",
                                         "-",
                                         "0x1",
                                         "007",
                                         "9223372036854775808",
                                         "-9223372036854775809",
                                         "10000000000000000000",
                                         A};
    static const char *const whats[] = {"get", "add", "swap", "cas", "remove"};
    begin();
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        put(values[i]);
        for (size_t j = 0; j < 5; j++) {
            char seq[8];
            snprintf(seq, sizeof(seq), "%03zu", 5 * i + j);
            CHECK_EQ_STR(count(seq, whats[j], "1"), "kind");
            CHECK_EQ_STR(model_find_string(redis, "holdfast:n", NULL), values[i]);
        }
    }
    over();
}

TEST(a_replica_does_not_read_a_counter_and_a_full_server_does) {
    begin();
    CHECK_EQ_STR(count("01", "add", "5"), "done 5 -1");
    model_set_mode(redis, MODEL_READONLY);
    CHECK(strncmp(count("02", "get", "0"), "-READONLY", 9) == 0);
    CHECK(strncmp(count("01", "add", "5"), "-READONLY", 9) == 0); /* not even a repeat */
    model_set_mode(redis, MODEL_OOM);
    CHECK_EQ_STR(count("03", "get", "0"), "done 5 -1");
    CHECK_EQ_STR(count("01", "add", "5"), "done 5 -1");
    CHECK(strncmp(count("04", "add", "5"), "-OOM", 4) == 0);
    CHECK_EQ_STR(count("05", "remove", "0"), "done 5 -1");
    over();
}
