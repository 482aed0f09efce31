/* Input that is refused: each kind of mistake with its own error, and a text with the
 * particulars. */
#include "suite.h"

/* A text is the sentence of its code and something about this case. */
static void check_text(int code, const char *text, const char *particular) {
    const char *sentence = hf_error_string(code);
    if (!strstr(text, sentence) || strlen(text) <= strlen(sentence) ||
        (particular && !strstr(text, particular)))
        test_fail(__FILE__, __LINE__, "the text of %s is \"%s\", without \"%s\"",
                  hf_error_name(code), text, particular ? particular : "anything particular");
}

BOTH_FORMS(bad_options_are_refused) {
    hf_client *a = open_client();
    char too_long_label[257];
    memset(too_long_label, 'l', 256);
    too_long_label[256] = '\0';
    hf_acquire_options good = as_exclusive(0);
    struct {
        const char *what, *particular; /* what the text must name */
        hf_acquire_options options;
        int expected;
    } cases[] = {
        {"a lease of 0", "0", good, HF_BAD_LEASE},
        {"a negative lease", "-5", good, HF_BAD_LEASE},
        {"a lease just above max_lease", "60000", good, HF_BAD_LEASE},
        {"an endless lease", "60000", good, HF_BAD_LEASE},
        {"no permits", "0", as_permits(0, 3, 0), HF_BAD_WEIGHT},
        {"no capacity", "0", as_permits(1, 0, 0), HF_BAD_WEIGHT},
        {"more permits than there are", "4", as_permits(4, 3, 0), HF_BAD_WEIGHT},
        {"more permits than a number holds", NULL, as_permits(UINT32_MAX, 3, 0), HF_BAD_WEIGHT},
        {"no kind", "0", as_kind((hf_kind)0, 0), HF_BAD_ARGUMENT},
        {"an unknown kind", "5", as_kind((hf_kind)5, 0), HF_BAD_ARGUMENT},
        {"an unknown flag", NULL, with_flags(good, 0x80), HF_BAD_ARGUMENT},
        {"a negative wait", "-2", as_exclusive(-2), HF_BAD_ARGUMENT},
        {"a negative time left", "-1", good, HF_BAD_ARGUMENT},
        {"a struct of no size", NULL, good, HF_BAD_ARGUMENT},
        {"a label that is too long", "255", with_label(good, too_long_label), HF_BAD_ARGUMENT},
    };
    cases[0].options.lease_ms = 0;
    cases[1].options.lease_ms = -5;
    cases[2].options.lease_ms = 60001;
    cases[3].options.lease_ms = INT64_MAX;
    cases[12].options.min_left_ms = -1;
    cases[13].options.size = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = fresh_name("bad");
        int status = attempt(a, name, cases[i].options);
        if (status != cases[i].expected)
            test_fail(__FILE__, __LINE__, "%s is answered with %s, not %s", cases[i].what,
                      hf_error_name(status), hf_error_name(cases[i].expected));
        check_text(status, failure, cases[i].particular);
        CHECK_IS(attempt(a, name, as_exclusive(0)), HF_OK);
    }
}

BOTH_FORMS(bad_names_are_refused) {
    hf_client *a = open_client();
    char too_long[257];
    memset(too_long, 'n', 256);
    too_long[256] = '\0';
    const char *names[] = {"", too_long};
    for (size_t i = 0; i < 2; i++) {
        hf_locks *locks;
        const hf_want want = {sizeof want, names[i], HF_EXCLUSIVE, 1, 1};
        const hf_want *wants[] = {&want};
        hf_hold *hold;
        CHECK_IS(attempt(a, names[i], as_exclusive(0)), HF_BAD_NAME);
        check_text(HF_BAD_NAME, failure, i ? "255" : NULL);
        CHECK_IS(acquire_all(a, wants, 1, as_exclusive(0), &hold), HF_BAD_NAME);
        CHECK_IS(inspect(a, names[i], &locks), HF_BAD_NAME);
        CHECK_IS(break_hold(a, names[i], 1), HF_BAD_NAME);
    }
    hf_locks *locks;
    CHECK_IS(list(a, too_long, NULL, 10, &locks), HF_BAD_NAME);
}

BOTH_FORMS(a_name_in_use_as_another_kind_is_refused_with_what_it_is) {
    hf_client *a = open_client(), *b = open_client();
    struct {
        hf_acquire_options held, asked;
        const char *particular;
    } cases[] = {
        {as_exclusive(0), as_permits(1, 1, HF_FOREVER), "a lock"},
        {as_shared(0), as_permits(1, 2, 0), "a lock"},
        {as_permits(1, 3, 0), as_exclusive(HF_FOREVER), "3"},
        {as_permits(1, 3, 0), as_permits(1, 4, 0), "3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = fresh_name("other-kind");
        hf_hold *hold = get(a, name, cases[i].held);
        CHECK_IS(attempt(b, name, cases[i].asked), HF_WRONG_KIND);
        check_text(HF_WRONG_KIND, failure, cases[i].particular);
        CHECK_IS(hf_check(hold, 0), HF_OK);
        let_go(hold);
        cases[i].asked.wait_ms = 0;
        CHECK_IS(attempt(b, name, cases[i].asked), HF_OK);
    }
}

/* Only a client with the usual max_lease talks to the store: all clients of a store must have the
 * same. */
BOTH_FORMS(the_options_of_the_client_bound_its_leases) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    int64_t most_ms = options.max_lease_ms;
    options.max_lease_ms = 5000;
    hf_client *a = open_client(), *other = open_client_with(&options);
    const char *name = fresh_name("max-lease");
    hf_acquire_options asked = as_exclusive(0);
    asked.lease_ms = 5001;
    CHECK_IS(attempt(other, name, asked), HF_BAD_LEASE);
    check_text(HF_BAD_LEASE, failure, "5000");
    asked.lease_ms = most_ms + 1;
    CHECK_IS(attempt(a, name, asked), HF_BAD_LEASE);
    asked.lease_ms = most_ms;
    hf_hold *hold = get(a, name, asked);
    CHECK_IS(renew(hold, most_ms + 1), HF_BAD_LEASE);
    check_text(HF_BAD_LEASE, failure, "60001");
    CHECK_IS(renew(hold, -1), HF_BAD_LEASE);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    let_go(hold);
}

/* Extreme times are waited for or refused, and never wrap around. */
BOTH_FORMS(times_may_be_as_large_as_a_number_holds) {
    hf_client *a = open_client();
    const char *name = fresh_name("long-wait");
    hf_hold *hold = get(a, name, as_exclusive(INT64_MAX));
    struct ask *waiter = queue_up(a, name, as_exclusive(INT64_MAX), 1);
    let_go(hold);
    hold = granted(waiter);
    CHECK_IS(hf_check(hold, INT64_MAX), HF_SHORT);
    CHECK_IS(renew(hold, INT64_MAX), HF_BAD_LEASE);
    let_go(hold);
    hf_acquire_options options = as_exclusive(0);
    hf_call *call;
    CHECK_IS(hf_acquire_start(a, name, &options, &call), HF_OK);
    CHECK_IS(hf_call_wait(call, INT64_MAX), HF_OK);
    hf_call_free(call);
}

TEST(options_of_a_client_may_be_as_large_as_a_number_holds) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.max_lease_ms = INT64_MAX;
    options.wait_lease_ms = INT64_MAX;
    hf_client *client;
    int status = hf_client_open(suite_url(), &options, &client);
    if (status != HF_BAD_ARGUMENT) {
        CHECK_IS(status, HF_OK);
        hf_hold *hold;
        CHECK_IS(hf_acquire(client, fresh_name("large"), NULL, &hold), HF_OK);
        hf_hold_free(hold);
        hf_client_close(client);
    }
}

/* As in a program that was built with another version of the header. */
TEST(a_struct_of_another_version_is_understood) {
    struct {
        hf_acquire_options known;
        uint64_t unknown;
    } newer = {HF_ACQUIRE_OPTIONS_INIT, 0};
    hf_client *a = open_client();
    const char *name = fresh_name("version");
    hf_acquire_options older = HF_ACQUIRE_OPTIONS_INIT;
    older.size = offsetof(hf_acquire_options, flags);
    older.flags = ~0u; /* it is ignored */
    hf_hold *hold;
    CHECK_IS(hf_acquire(a, name, &older, &hold), HF_OK);
    let_go(hold);
    newer.known.size = sizeof newer;
    CHECK_IS(hf_acquire(a, name, &newer.known, &hold), HF_OK);
    let_go(hold);
    newer.unknown = 1;
    CHECK_IS(hf_acquire(a, name, &newer.known, &hold), HF_BAD_ARGUMENT);
}

BOTH_FORMS(a_page_has_a_sensible_size) {
    hf_client *a = open_client();
    hf_locks *locks;
    CHECK_IS(list(a, "", NULL, 0, &locks), HF_BAD_ARGUMENT);
    check_text(HF_BAD_ARGUMENT, failure, NULL);
    CHECK_IS(list(a, "", NULL, 1001, &locks), HF_BAD_ARGUMENT);
    check_text(HF_BAD_ARGUMENT, failure, "1000");
}

BOTH_FORMS(several_names_are_checked_before_any_is_taken) {
    hf_client *a = open_client();
    hf_want good = {sizeof good, fresh_name("good"), HF_EXCLUSIVE, 1, 1}, bad = good;
    const hf_want *wants[65];
    for (size_t i = 0; i < 65; i++)
        wants[i] = &good;
    hf_hold *hold;
    CHECK_IS(acquire_all(a, wants, 0, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    CHECK_IS(acquire_all(a, wants, 65, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    CHECK_IS(acquire_all(a, wants, 2, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    check_text(HF_BAD_ARGUMENT, failure, good.name);
    wants[1] = &bad;
    bad.name = fresh_name("bad");
    bad.kind = (hf_kind)9;
    CHECK_IS(acquire_all(a, wants, 2, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    bad.kind = HF_PERMITS;
    bad.permits = 2;
    CHECK_IS(acquire_all(a, wants, 2, as_exclusive(0), &hold), HF_BAD_WEIGHT);
    bad = good;
    bad.name = fresh_name("bad");
    bad.size = 0;
    CHECK_IS(acquire_all(a, wants, 2, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    bad.size = sizeof bad;
    hf_acquire_options reentrant = with_flags(as_exclusive(0), HF_REENTRANT);
    CHECK_IS(acquire_all(a, wants, 2, reentrant, &hold), HF_UNSUPPORTED);
    check_text(HF_UNSUPPORTED, failure, NULL);
    wants[1] = NULL;
    CHECK_IS(acquire_all(a, wants, 2, as_exclusive(0), &hold), HF_BAD_ARGUMENT);
    CHECK_IS(attempt(a, good.name, as_exclusive(0)), HF_OK);
}

TEST(null_is_refused) {
    hf_client *a = open_client();
    hf_hold *hold;
    hf_locks *locks;
    hf_call *call;
    const hf_want want = {sizeof want, "n", HF_EXCLUSIVE, 1, 1}, *wants[] = {&want};
    CHECK_IS(hf_client_open(suite_url(), NULL, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire(NULL, "n", NULL, &hold), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire(a, "n", NULL, NULL), HF_BAD_ARGUMENT);
    check_text(HF_BAD_ARGUMENT, hf_last_error(), NULL);
    CHECK_IS(hf_acquire(a, NULL, NULL, &hold), HF_BAD_NAME);
    CHECK_IS(hf_acquire_start(NULL, "n", NULL, &call), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire_start(a, "n", NULL, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire_all(NULL, wants, 1, NULL, &hold), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire_all(a, NULL, 1, NULL, &hold), HF_BAD_ARGUMENT);
    CHECK_IS(hf_acquire_all(a, wants, 1, NULL, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_inspect(NULL, "n", &locks), HF_BAD_ARGUMENT);
    CHECK_IS(hf_inspect(a, NULL, &locks), HF_BAD_NAME);
    CHECK_IS(hf_inspect(a, "n", NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_list(NULL, "", NULL, 10, &locks), HF_BAD_ARGUMENT);
    CHECK_IS(hf_list(a, "", NULL, 10, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_break(NULL, "n", 1, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_break(a, NULL, 1, NULL), HF_BAD_NAME);
    CHECK_IS(hf_check(NULL, 0), HF_BAD_ARGUMENT);
    CHECK_IS(hf_renew(NULL, 0), HF_BAD_ARGUMENT);
    CHECK_IS(hf_release(NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_hold_fd(NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_status(NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_wait(NULL, 0), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_cancel(NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_fd(NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_process(NULL), HF_BAD_ARGUMENT);
}

TEST(bad_clients_are_refused) {
    hf_client *const untouched = (hf_client *)(uintptr_t)1;
    hf_client *client = untouched;
    CHECK_IS(hf_client_open("", NULL, &client), HF_BAD_URL);
    check_text(HF_BAD_URL, hf_last_error(), NULL);
    CHECK_IS(hf_client_open("no scheme", NULL, &client), HF_BAD_URL);
    CHECK_IS(hf_client_open("nosuchstore://host", NULL, &client), HF_NO_STORE);
    check_text(HF_NO_STORE, hf_last_error(), "nosuchstore");
    const hf_client_options good = HF_CLIENT_OPTIONS_INIT;
    hf_client_options bad[] = {good, good, good, good, good};
    bad[0].size = 0;
    bad[1].max_lease_ms = 0;
    bad[2].max_lease_ms = -1;
    bad[3].wait_lease_ms = 0;
    bad[4].drift_ppm = 1000000; /* all of the lease */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_IS(hf_client_open(suite_url(), &bad[i], &client), HF_BAD_ARGUMENT);
        check_text(HF_BAD_ARGUMENT, hf_last_error(), NULL);
    }
    CHECK(client == untouched);
}

/* ---- Texts -------------------------------------------------------------------------------- */

TEST(every_error_has_a_name_and_a_sentence) {
#define CHECK_ERROR(error, number, sentence)           \
    CHECK_EQ_INT(HF_##error, number);                  \
    CHECK_EQ_STR(hf_error_name(number), "HF_" #error); \
    CHECK_EQ_STR(hf_error_string(number), sentence);
    HF_ERROR_MAP(CHECK_ERROR)
#undef CHECK_ERROR
    CHECK_EQ_STR(hf_error_name(HF_OK), "HF_OK");
    const int strange[] = {1, -1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        CHECK(strlen(hf_error_name(strange[i])) > 0);
        CHECK(strlen(hf_error_string(strange[i])) > 0);
    }
}

static void *read_last_error(void *ret_text) {
    snprintf(ret_text, 64, "%s", hf_last_error());
    return NULL;
}

TEST(the_last_error_is_of_this_thread) {
    hf_client *a = open_client();
    CHECK_EQ_STR(hf_last_error(), "");
    hf_hold *hold;
    CHECK_IS(hf_acquire(a, "", NULL, &hold), HF_BAD_NAME);
    CHECK(strlen(hf_last_error()) > 0);
    char text[64] = "unset";
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_last_error, text) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_STR(text, "");
}

BOTH_FORMS(busy_and_timeout_have_a_text) {
    hf_client *a = open_client();
    const char *name = fresh_name("texts");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    CHECK(strstr(failure, hf_error_string(HF_BUSY)));
    CHECK_IS(attempt_in_vain(a, name, as_exclusive(50)), HF_TIMEOUT);
    CHECK(strstr(failure, hf_error_string(HF_TIMEOUT)));
    let_go(hold);
}
