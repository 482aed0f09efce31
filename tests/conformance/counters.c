/* Counters: each operation, expiry, ranges, and exact counts when many clients add at once. */
#include "suite.h"

enum { EXPIRY_MS = 600000 }; /* does not end while a test runs */

static int finish_count(int started, hf_call *call, hf_counter *ret_counter) {
    if (started < 0)
        return noted(started);
    int status = outcome(call);
    if (status < 0)
        snprintf(failure, sizeof failure, "%s", hf_call_error(call));
    int given = hf_call_counter(call, ret_counter);
    CHECK_IS(given, status == HF_MISMATCH ? HF_OK : status);
    CHECK(hf_call_free(call) == NULL);
    return status;
}

/* Counts in the form of the test. A failure must leave the counter untouched. */
static int count(hf_client *client, const char *name, hf_count_options options,
                 hf_counter *ret_counter) {
    if (form == BLOCKING)
        return noted(hf_count(client, name, &options, ret_counter));
    hf_call *call = NULL;
    int started = hf_count_start(client, name, &options, &call);
    return finish_count(started, call, ret_counter);
}

static hf_count_options counting(hf_count_op op, int64_t number) {
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = op;
    options.number = number;
    options.wait_ms = PATIENCE_MS;
    return options;
}

static hf_count_options expiring(hf_count_options options, int64_t expiry_ms) {
    options.expiry_ms = expiry_ms;
    return options;
}

static hf_count_options if_is(hf_count_options options, int64_t expected) {
    options.expected = expected;
    return options;
}

static hf_count_options if_none(hf_count_options options) {
    options.expect_none = 1;
    return options;
}

/* What an operation that must succeed answers. */
static hf_counter counted(hf_client *client, const char *name, hf_count_options options) {
    hf_counter counter = HF_COUNTER_INIT;
    CHECK_IS(count(client, name, options, &counter), HF_OK);
    return counter;
}

static hf_counter read_counter(hf_client *client, const char *name) {
    return counted(client, name, counting(HF_COUNT_GET, 0));
}

#define CHECK_COUNTER(actual, expected_value)              \
    do {                                                   \
        hf_counter check_counter = (actual);               \
        CHECK_EQ_INT(check_counter.exists, 1);             \
        CHECK_EQ_INT(check_counter.value, expected_value); \
    } while (0)

#define CHECK_NONE(actual)                      \
    do {                                        \
        hf_counter check_counter = (actual);    \
        CHECK_EQ_INT(check_counter.exists, 0);  \
        CHECK_EQ_INT(check_counter.value, 0);   \
        CHECK_EQ_INT(check_counter.left_ms, 0); \
    } while (0)

/* ---- Each operation ----------------------------------------------------------------------- */

BOTH_FORMS(a_counter_adds_up_what_all_clients_add) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("add");
    CHECK_NONE(read_counter(a, name));
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 3)), 3);
    CHECK_COUNTER(counted(b, name, counting(HF_COUNT_ADD, 4)), 7);
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, -20)), -13);
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 0)), -13);
    CHECK_COUNTER(read_counter(b, name), -13);
    CHECK_EQ_INT(read_counter(b, name).left_ms, -1);
    CHECK_NONE(read_counter(b, fresh_name("other")));
}

BOTH_FORMS(a_swapped_counter_answers_with_what_was_there) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("swap");
    CHECK_NONE(counted(a, name, counting(HF_COUNT_SWAP, 5)));
    CHECK_COUNTER(counted(b, name, counting(HF_COUNT_SWAP, -6)), 5);
    CHECK_COUNTER(read_counter(a, name), -6);
}

BOTH_FORMS(a_removed_counter_answers_with_what_was_there) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("remove");
    CHECK_NONE(counted(a, name, counting(HF_COUNT_REMOVE, 0)));
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 8)), 8);
    CHECK_COUNTER(counted(b, name, counting(HF_COUNT_REMOVE, 0)), 8);
    CHECK_NONE(read_counter(a, name));
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 1)), 1);
}

BOTH_FORMS(a_counter_is_set_only_if_it_is_as_expected) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("cas");
    hf_counter counter = HF_COUNTER_INIT;
    CHECK_IS(count(a, name, if_is(counting(HF_COUNT_CAS, 1), 0), &counter), HF_MISMATCH);
    CHECK_NONE(counter);
    CHECK_COUNTER(counted(a, name, if_none(counting(HF_COUNT_CAS, 10))), 10);
    CHECK_IS(count(b, name, if_none(counting(HF_COUNT_CAS, 11)), &counter), HF_MISMATCH);
    CHECK_COUNTER(counter, 10);
    CHECK_EQ_INT(counter.left_ms, -1);
    CHECK(strstr(failure, name) && strstr(failure, "it is 10"));
    CHECK_IS(count(b, name, if_is(counting(HF_COUNT_CAS, 11), 9), &counter), HF_MISMATCH);
    CHECK_COUNTER(counter, 10);
    CHECK_COUNTER(counted(b, name, if_is(counting(HF_COUNT_CAS, -11), 10)), -11);
    CHECK_COUNTER(read_counter(a, name), -11);
}

/* Where both would be in one place, the second one is refused. */
BOTH_FORMS(a_counter_and_a_lock_of_one_name_leave_each_other_alone) {
    hf_client *a = open_client();
    const char *name = fresh_name("both");
    hf_counter counter = HF_COUNTER_INIT;
    hf_hold *hold = get(a, name, as_exclusive(0));
    int r = count(a, name, counting(HF_COUNT_ADD, 2), &counter);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    let_go(hold);
    if (r == HF_WRONG_KIND) {
        CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 2)), 2);
        CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    } else {
        CHECK_IS(r, HF_OK);
        CHECK_COUNTER(counter, 2);
    }
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_REMOVE, 0)), 2);
    let_go(get(a, name, as_exclusive(0)));
}

BOTH_FORMS(a_counter_may_have_every_byte_in_its_name) {
    hf_client *a = open_client();
    const char *prefix = fresh_name("bytes");
    char name[256];
    snprintf(name, sizeof name, "%s ", prefix);
    for (size_t at = strlen(name), byte = 1; at < 255; at++, byte = byte < 255 ? byte + 1 : 1)
        name[at] = (char)byte;
    name[255] = 0;
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 1)), 1);
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 1)), 2);
    name[254] = 'x';
    CHECK_NONE(read_counter(a, name));
}

/* ---- Its range ---------------------------------------------------------------------------- */

BOTH_FORMS(a_counter_does_not_leave_its_range) {
    hf_client *a = open_client();
    const char *high = fresh_name("high"), *low = fresh_name("low");
    hf_counter counter = {sizeof counter, 7, 7, 7};
    CHECK_COUNTER(counted(a, high, counting(HF_COUNT_ADD, INT64_MAX)), INT64_MAX);
    CHECK_IS(count(a, high, counting(HF_COUNT_ADD, 1), &counter), HF_RANGE);
    CHECK_IS(count(a, high, counting(HF_COUNT_ADD, INT64_MAX), &counter), HF_RANGE);
    CHECK_COUNTER(read_counter(a, high), INT64_MAX);
    CHECK_COUNTER(counted(a, high, counting(HF_COUNT_ADD, -1)), INT64_MAX - 1);
    CHECK_COUNTER(counted(a, high, counting(HF_COUNT_ADD, INT64_MIN)), -2);
    CHECK_COUNTER(counted(a, low, counting(HF_COUNT_ADD, INT64_MIN)), INT64_MIN);
    CHECK_IS(count(a, low, counting(HF_COUNT_ADD, -1), &counter), HF_RANGE);
    CHECK_IS(count(a, low, counting(HF_COUNT_ADD, INT64_MIN), &counter), HF_RANGE);
    CHECK_COUNTER(read_counter(a, low), INT64_MIN);
    CHECK_COUNTER(counted(a, low, if_is(counting(HF_COUNT_CAS, INT64_MAX), INT64_MIN)), INT64_MAX);
    CHECK_COUNTER(counted(a, low, counting(HF_COUNT_SWAP, INT64_MIN)), INT64_MAX);
    CHECK_COUNTER(counted(a, low, counting(HF_COUNT_REMOVE, 0)), INT64_MIN);
    CHECK(counter.exists == 7 && counter.value == 7 && counter.left_ms == 7);
}

/* ---- Its expiry --------------------------------------------------------------------------- */

/* Each operation that creates a counter sets its expiry, and none that finds one changes it. */
BOTH_FORMS(the_expiry_is_set_when_a_counter_is_created_and_kept) {
    hf_client *a = open_client();
    const hf_count_options creating[] = {
        counting(HF_COUNT_ADD, 1),
        counting(HF_COUNT_SWAP, 1),
        if_none(counting(HF_COUNT_CAS, 1)),
    };
    for (size_t i = 0; i < sizeof creating / sizeof *creating; i++) {
        const char *name = fresh_name("expiry");
        int64_t before_ms = now_ms();
        counted(a, name, expiring(creating[i], EXPIRY_MS));
        const hf_count_options later[] = {
            counting(HF_COUNT_GET, 0),
            expiring(counting(HF_COUNT_ADD, 1), 1),
            expiring(counting(HF_COUNT_SWAP, 5), 2 * EXPIRY_MS),
            counting(HF_COUNT_ADD, 0), /* having no expiry is not changed either */
            expiring(if_is(counting(HF_COUNT_CAS, 6), 5), 1),
            counting(HF_COUNT_GET, 0),
        };
        for (size_t j = 0; j < sizeof later / sizeof *later; j++) {
            hf_counter counter = counted(a, name, later[j]);
            CHECK_EQ_INT(counter.exists, 1);
            CHECK(counter.left_ms > 0 && counter.left_ms <= EXPIRY_MS + 1000);
            CHECK(counter.left_ms >= EXPIRY_MS - (now_ms() - before_ms) - 1000);
        }
        CHECK_COUNTER(read_counter(a, name), 6);
    }
}

BOTH_FORMS(a_counter_without_expiry_does_not_get_one) {
    hf_client *a = open_client();
    const char *name = fresh_name("endless");
    CHECK_EQ_INT(counted(a, name, counting(HF_COUNT_ADD, 1)).left_ms, -1);
    CHECK_EQ_INT(counted(a, name, expiring(counting(HF_COUNT_ADD, 1), 1)).left_ms, -1);
    CHECK_EQ_INT(counted(a, name, expiring(counting(HF_COUNT_SWAP, 1), 1)).left_ms, -1);
    CHECK_EQ_INT(counted(a, name, expiring(if_is(counting(HF_COUNT_CAS, 9), 1), 1)).left_ms, -1);
    CHECK_COUNTER(read_counter(a, name), 9);
}

/* The next client to use the name then starts from nothing, with a new expiry. */
BOTH_FORMS(an_expired_counter_is_gone_and_not_before) {
    hf_client *a = open_client(), *b = open_client();
    enum { SHORT_MS = 400 };
    const char *name = fresh_name("gone");
    int64_t before_ms = now_ms();
    CHECK_COUNTER(counted(a, name, expiring(counting(HF_COUNT_ADD, 41), SHORT_MS)), 41);
    hf_counter counter;
    do {
        counter = read_counter(b, name);
        CHECK(counter.exists || now_ms() >= before_ms + SHORT_MS - 2);
        CHECK(now_ms() < before_ms + PATIENCE_MS);
        idle(before_ms);
    } while (counter.exists);
    CHECK_NONE(counter);
    CHECK_NONE(counted(a, name, counting(HF_COUNT_REMOVE, 0)));
    CHECK_IS(count(a, name, if_is(counting(HF_COUNT_CAS, 1), 41), &counter), HF_MISMATCH);
    CHECK_NONE(counter);
    counter = counted(a, name, counting(HF_COUNT_ADD, 1));
    CHECK_COUNTER(counter, 1);
    CHECK_EQ_INT(counter.left_ms, -1);
}

BOTH_FORMS(a_counter_removed_and_made_again_has_a_new_expiry) {
    hf_client *a = open_client();
    const char *name = fresh_name("again");
    CHECK(counted(a, name, expiring(counting(HF_COUNT_ADD, 1), EXPIRY_MS)).left_ms > 0);
    CHECK(counted(a, name, counting(HF_COUNT_REMOVE, 0)).left_ms > 0);
    CHECK_EQ_INT(counted(a, name, counting(HF_COUNT_ADD, 1)).left_ms, -1);
}

/* ---- Many at once ------------------------------------------------------------------------- */

enum { ADDERS = 16, SETTERS = 4, SETS = 5 };

/* Of each adder. HOLDFAST_TEST_ADDS=10000 is for an evening. */
static int adds(void) {
    const char *given = getenv("HOLDFAST_TEST_ADDS");
    return given ? atoi(given) : 10;
}

struct adder {
    hf_client *client;
    const char *name;
};

static void *add_many(void *arg) {
    const struct adder *adder = arg;
    hf_count_options options = counting(HF_COUNT_ADD, 1);
    int64_t last = 0;
    for (int i = 0; i < adds(); i++) {
        hf_counter counter = HF_COUNTER_INIT;
        CHECK_IS(noted(hf_count(adder->client, adder->name, &options, &counter)), HF_OK);
        CHECK(counter.value > last); /* each sum is handed out once, and in order */
        last = counter.value;
    }
    return NULL;
}

static void add_from_threads(hf_client *const *of, size_t count_of) {
    const char *name = fresh_name("many");
    pthread_t threads[ADDERS];
    struct adder adders[ADDERS];
    for (size_t i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){of[i % count_of], name};
        CHECK(pthread_create(&threads[i], NULL, add_many, &adders[i]) == 0);
    }
    for (size_t i = 0; i < ADDERS; i++)
        pthread_join(threads[i], NULL);
    CHECK_COUNTER(read_counter(of[0], name), (int64_t)ADDERS * adds());
}

TEST(threads_of_one_client_add_up_to_the_exact_sum) {
    hf_client *a = open_client();
    add_from_threads(&a, 1);
}

TEST(clients_add_up_to_the_exact_sum) {
    hf_client *of[ADDERS];
    for (size_t i = 0; i < ADDERS; i++)
        of[i] = open_client();
    add_from_threads(of, ADDERS);
}

/* When all of them try to set it, one succeeds each time. */
static void *cas_many(void *arg) {
    const struct adder *adder = arg;
    for (int i = 0; i < SETS; i++) {
        hf_counter counter = HF_COUNTER_INIT;
        int status = HF_MISMATCH;
        while (status == HF_MISMATCH) {
            hf_count_options options = if_is(counting(HF_COUNT_CAS, counter.value + 1), 0);
            options.expected = counter.value;
            options.expect_none = !counter.exists;
            status = noted(hf_count(adder->client, adder->name, &options, &counter));
        }
        CHECK_IS(status, HF_OK);
    }
    return NULL;
}

TEST(compare_and_set_from_many_clients_loses_nothing) {
    const char *name = fresh_name("setters");
    pthread_t threads[SETTERS];
    struct adder setters[SETTERS];
    for (size_t i = 0; i < SETTERS; i++)
        setters[i] = (struct adder){open_client(), name};
    for (size_t i = 0; i < SETTERS; i++)
        CHECK(pthread_create(&threads[i], NULL, cas_many, &setters[i]) == 0);
    for (size_t i = 0; i < SETTERS; i++)
        pthread_join(threads[i], NULL);
    CHECK_COUNTER(read_counter(setters[0].client, name), (int64_t)SETTERS * SETS);
}

/* ---- Calls that do not block -------------------------------------------------------------- */

/* All are started before the first is waited for. */
BOTH_FORMS(operations_of_a_client_on_a_counter_keep_their_order) {
    enum { CALLS = 50 };
    hf_client *a = open_client();
    const char *name = fresh_name("order");
    hf_call *calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
        hf_count_options options = i % 2 ? counting(HF_COUNT_ADD, 1) : counting(HF_COUNT_SWAP, i);
        CHECK_IS(hf_count_start(a, name, &options, &calls[i]), HF_OK);
    }
    for (int i = CALLS - 1; i >= 0; i--) {
        hf_counter counter = HF_COUNTER_INIT;
        CHECK_IS(finish_count(HF_OK, calls[i], &counter), HF_OK);
        if (i == 0)
            CHECK_NONE(counter);
        else
            CHECK_COUNTER(counter, i % 2 ? i : i - 1);
    }
    CHECK_COUNTER(read_counter(a, name), CALLS - 1);
}

BOTH_FORMS(a_cancelled_count_is_over_and_the_next_goes_on) {
    enum { CALLS = 10 };
    hf_client *a = open_client();
    const char *name = fresh_name("cancel");
    hf_count_options options = counting(HF_COUNT_ADD, 1);
    hf_call *calls[CALLS], *last;
    for (size_t i = 0; i < CALLS; i++) {
        CHECK_IS(hf_count_start(a, name, &options, &calls[i]), HF_OK);
        CHECK_IS(hf_call_cancel(calls[i]), HF_OK);
    }
    CHECK_IS(hf_count_start(a, name, &options, &last), HF_OK);
    CHECK_IS(outcome(last), HF_OK);
    int64_t added = 1;
    for (size_t i = 0; i < CALLS; i++) {
        hf_counter counter = HF_COUNTER_INIT;
        int status = hf_call_status(calls[i]);
        CHECK(status == HF_OK || status == HF_CANCELLED); /* it may have been done already */
        CHECK_IS(hf_call_counter(calls[i], &counter), status);
        added += status == HF_OK;
        CHECK(hf_call_free(calls[i]) == NULL);
    }
    hf_counter counter = HF_COUNTER_INIT;
    CHECK_IS(finish_count(HF_OK, last, &counter), HF_OK);
    CHECK(counter.value >= added && counter.value <= CALLS + 1);
}

TEST(a_count_may_be_freed_before_its_answer) {
    hf_client *a = open_client();
    const char *name = fresh_name("freed");
    hf_count_options options = counting(HF_COUNT_ADD, 1);
    for (int i = 0; i < 20; i++) {
        hf_call *call;
        CHECK_IS(hf_count_start(a, name, &options, &call), HF_OK);
        CHECK(hf_call_free(call) == NULL);
    }
    CHECK(counted(a, name, counting(HF_COUNT_ADD, 1)).value <= 21);
}

TEST(counts_of_a_closed_client_have_ended) {
    enum { CALLS = 20 };
    hf_client *a = open_client();
    const char *name = fresh_name("closed");
    hf_count_options options = counting(HF_COUNT_ADD, 1);
    hf_counter counter = HF_COUNTER_INIT;
    hf_call *calls[CALLS];
    for (size_t i = 0; i < CALLS; i++)
        CHECK_IS(hf_count_start(a, name, &options, &calls[i]), HF_OK);
    close_client(a);
    for (size_t i = 0; i < CALLS; i++) {
        int status = hf_call_status(calls[i]);
        CHECK(status == HF_OK || status == HF_CLOSED);
        CHECK_IS(hf_call_counter(calls[i], &counter), status);
        CHECK(hf_call_free(calls[i]) == NULL);
    }
}

/* ---- What is refused ---------------------------------------------------------------------- */

TEST(counts_with_bad_arguments_are_refused) {
    hf_client *a = open_client();
    const char *name = fresh_name("bad");
    hf_counter counter = HF_COUNTER_INIT, unprepared = {0};
    hf_call *call;
    const struct {
        hf_count_options options;
    } bad[] = {
        {{sizeof(hf_count_options), (hf_count_op)0, 0, 0, 0, 0, 1000}},
        {{sizeof(hf_count_options), (hf_count_op)6, 0, 0, 0, 0, 1000}},
        {{sizeof(hf_count_options), HF_COUNT_ADD, 1, 0, 0, -1, 1000}},
        {{sizeof(hf_count_options), HF_COUNT_ADD, 1, 0, 0, INT64_MAX, 1000}},
        {{sizeof(hf_count_options), HF_COUNT_ADD, 1, 0, 0, 0, 0}},
        {{sizeof(hf_count_options), HF_COUNT_ADD, 1, 0, 0, 0, -1}},
        {{sizeof(hf_count_options), HF_COUNT_ADD, 1, 0, 0, 0, 60001}},
        {{0, HF_COUNT_ADD, 1, 0, 0, 0, 1000}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_IS(hf_count(a, name, &bad[i].options, &counter), HF_BAD_ARGUMENT);
        CHECK_IS(hf_count_start(a, name, &bad[i].options, &call), HF_BAD_ARGUMENT);
    }
    CHECK_IS(hf_count(a, NULL, NULL, &counter), HF_BAD_NAME);
    CHECK_IS(hf_count(a, "", NULL, &counter), HF_BAD_NAME);
    CHECK_IS(hf_count(NULL, name, NULL, &counter), HF_BAD_ARGUMENT);
    CHECK_IS(hf_count(a, name, NULL, &unprepared), HF_BAD_ARGUMENT);
    CHECK(strstr(hf_last_error(), "was it initialised"));
    CHECK_IS(hf_count_start(a, name, NULL, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_counter(NULL, &counter), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire_start(a, fresh_name("lock"), NULL, &call), HF_OK);
    CHECK_IS(hf_call_counter(call, &counter), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_counter(call, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_wait(call, PATIENCE_MS), HF_OK);
    hf_call_free(call);
    CHECK_IS(hf_count(a, name, NULL, NULL), HF_OK); /* which reads it */
    CHECK_NONE(read_counter(a, name));
}

TEST(counts_in_a_forked_child_are_refused) {
    hf_client *a = open_client();
    const char *name = fresh_name("fork");
    hf_counter counter = HF_COUNTER_INIT;
    hf_count_options options = counting(HF_COUNT_ADD, 1);
    hf_call *call, *another;
    CHECK_IS(hf_count_start(a, name, &options, &call), HF_OK);
    pid_t child = fork_safely();
    if (child == 0) {
        CHECK_IS(hf_count(a, name, &options, &counter), HF_FORKED);
        CHECK_IS(hf_count_start(a, name, &options, &another), HF_FORKED);
        CHECK_IS(hf_call_counter(call, &counter), HF_FORKED);
        CHECK(hf_call_free(call) == NULL);
        exit(0); /* closes the client: see open_client */
    }
    check_child_ends_well(child);
    CHECK_IS(finish_count(HF_OK, call, &counter), HF_OK);
    CHECK_COUNTER(read_counter(a, name), 1);
}

TEST(counters_that_cannot_expire_refuse_an_expiry) {
    hf_client *a = open_client();
    const char *name = fresh_name("lasting");
    hf_counter counter = HF_COUNTER_INIT;
    CHECK_COUNTER(counted(a, name, counting(HF_COUNT_ADD, 1)), 1);
    CHECK_IS(count(a, name, expiring(counting(HF_COUNT_ADD, 1), EXPIRY_MS), &counter),
             HF_UNSUPPORTED);
    CHECK(strstr(failure, "no expiry"));
    CHECK_COUNTER(read_counter(a, name), 1);
}

TEST(a_store_without_counters_refuses_to_count) {
    hf_client *a = open_client();
    hf_counter counter = HF_COUNTER_INIT;
    hf_call *call;
    CHECK_IS(hf_count(a, fresh_name("none"), NULL, &counter), HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "has no counters"));
    CHECK_IS(hf_count_start(a, fresh_name("none"), NULL, &call), HF_UNSUPPORTED);
}
