/* Calls that do not block: completion exactly once, cancellation at every point of a call's life,
 * thousands in flight, and the end of the client under them. */
#include "suite.h"

static hf_call *start(hf_client *client, const char *name, hf_acquire_options options) {
    hf_call *call = NULL;
    CHECK_IS(noted(hf_acquire_start(client, name, &options, &call)), HF_OK);
    CHECK(call != NULL);
    return call;
}

/* A call that waits in the queue of `name`, as the `place`-th. */
static hf_call *start_queued(hf_client *client, const char *name, size_t place) {
    hf_call *call = start(client, name, as_exclusive(HF_FOREVER));
    AWAIT(are_waiting(client, name, place));
    CHECK_IS(hf_call_status(call), HF_PENDING);
    return call;
}

BOTH_FORMS(a_call_is_pending_until_it_completes) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("pending");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *call = start_queued(b, name, 1);
    CHECK_IS(hf_call_wait(call, 0), HF_PENDING);
    CHECK_IS(hf_call_wait(call, 20), HF_PENDING);
    CHECK(hf_call_take_hold(call) == NULL);
    CHECK_EQ_STR(hf_call_error(call), "");
    let_go(hold);
    CHECK_IS(outcome(call), HF_OK);
    CHECK_EQ_STR(hf_call_error(call), "");
    CHECK(hf_call_take_locks(call) == NULL);
    hold = hf_call_take_hold(call);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    CHECK(hf_call_take_hold(call) == NULL);
    hf_call_free(call);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    let_go(hold);
}

BOTH_FORMS(a_hold_that_was_not_taken_is_released_with_its_call) {
    hf_client *a = open_client();
    const char *name = fresh_name("untaken");
    hf_call *call = start(a, name, as_exclusive(0));
    CHECK_IS(outcome(call), HF_OK);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    hf_call_free(call);
    CHECK_IS(attempt(a, name, as_exclusive(PATIENCE_MS)), HF_OK);
}

BOTH_FORMS(a_call_keeps_a_pointer_and_the_text_of_its_failure) {
    hf_client *a = open_client();
    const char *name = fresh_name("data");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *call = start(a, name, as_exclusive(0));
    CHECK(hf_call_data(call) == NULL);
    CHECK_IS(hf_call_queue(call, &name), HF_OK);
    CHECK_IS(outcome(call), HF_BUSY);
    CHECK(hf_call_data(call) == &name);
    CHECK(strstr(hf_call_error(call), hf_error_string(HF_BUSY)));
    hf_call_free(call);
    let_go(hold);
}

static void *wait_for_grant(void *call) {
    CHECK_IS(hf_call_wait(call, HF_FOREVER), HF_OK);
    return NULL;
}

TEST(any_number_of_threads_may_wait_for_one_call) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("threads");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *call = start_queued(b, name, 1);
    pthread_t threads[5];
    for (size_t i = 0; i < 5; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_grant, call) == 0);
    let_go(hold);
    for (size_t i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    hf_call_free(call);
}

/* ---- Completion, once --------------------------------------------------------------------- */

static void count_completion(hf_call *call, void *count) {
    CHECK(hf_call_status(call) != HF_PENDING);
    atomic_fetch_add((atomic_int *)count, 1);
}

BOTH_FORMS(a_notice_comes_once) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("notice");
    atomic_int pending = 0, completed = 0, cancelled = 0;
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *first = start_queued(b, name, 1), *second = start_queued(b, name, 2);
    CHECK_IS(hf_call_notify(first, count_completion, &pending), HF_OK);
    CHECK_IS(hf_call_notify(second, count_completion, &cancelled), HF_OK);
    CHECK_IS(hf_call_notify(first, count_completion, &pending), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_cancel(second), HF_OK);
    AWAIT(atomic_load(&cancelled) == 1);
    CHECK_EQ_INT(atomic_load(&pending), 0);
    let_go(hold);
    AWAIT(atomic_load(&pending) == 1);
    CHECK_IS(hf_call_status(first), HF_OK);
    hf_call *third = start(a, name, as_exclusive(0));
    CHECK_IS(outcome(third), HF_BUSY);
    CHECK_IS(hf_call_notify(third, count_completion, &completed), HF_OK);
    AWAIT(atomic_load(&completed) == 1);
    CHECK_IS(hf_call_cancel(first), HF_OK);
    CHECK_IS(hf_call_status(first), HF_OK);
    hf_call_free(first);
    hf_call_free(second);
    hf_call_free(third);
    CHECK(hf_call_next(a) == NULL && hf_call_next(b) == NULL);
    close_client(a);
    close_client(b);
    CHECK_EQ_INT(atomic_load(&pending) + atomic_load(&completed) + atomic_load(&cancelled), 3);
}

/* A program that finds a call pending, asks for the descriptor and then waits for it must not wait
 * forever. */
TEST(a_descriptor_asked_for_after_the_completion_is_readable) {
    hf_client *a = open_client();
    hf_call *call = start(a, fresh_name("late"), as_exclusive(0));
    CHECK_IS(hf_call_wait(call, PATIENCE_MS), HF_OK);
    struct pollfd poll_fd = {.fd = hf_fd(a), .events = POLLIN};
    CHECK(poll_fd.fd >= 0);
    CHECK_EQ_INT(poll(&poll_fd, 1, PATIENCE_MS), 1);
    CHECK_IS(hf_process(a), HF_OK);
    hf_call_free(call);
}

TEST(completed_calls_are_handed_out_once) {
    form = LOOPING;
    hf_client *a = open_client();
    enum { COUNT = 20 };
    atomic_int notices = 0;
    const char *prefix = fresh_name("next");
    hf_call *calls[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        char name[NAME_SIZE + 16];
        snprintf(name, sizeof name, "%s/%zu", prefix, i);
        calls[i] = start(a, name, as_exclusive(0));
        CHECK_IS(hf_call_queue(calls[i], &calls[i]), HF_OK);
        CHECK_IS(hf_call_queue(calls[i], &calls[i]), HF_BAD_ARGUMENT);
    }
    int seen[COUNT] = {0};
    for (int left = COUNT; left > 0;) {
        hf_call *call = hf_call_next(a);
        if (!call) {
            CHECK(loop_once(PATIENCE_MS) > 0);
            continue;
        }
        CHECK_IS(hf_call_status(call), HF_OK);
        seen[(hf_call **)hf_call_data(call) - calls]++;
        left--;
    }
    CHECK(hf_call_next(a) == NULL);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(seen[i], 1);
        hf_call_free(calls[i]);
    }
    hf_call *waited = start(a, fresh_name("waited"), as_exclusive(0));
    CHECK_IS(hf_call_wait(waited, PATIENCE_MS), HF_OK);
    hf_call *freed = start(a, fresh_name("freed"), as_exclusive(0));
    CHECK_IS(hf_call_queue(freed, NULL), HF_OK);
    CHECK_IS(outcome(freed), HF_OK);
    hf_call_free(freed);
    hf_call *noticed = start(a, fresh_name("noticed"), as_exclusive(HF_FOREVER));
    int added = hf_call_notify(noticed, count_completion, &notices);
    CHECK_IS(added, HF_OK);
    AWAIT(atomic_load(&notices) == 1);
    CHECK(hf_call_next(a) == NULL);
    hf_call_free(waited);
    hf_call_free(noticed);
}

struct chain {
    hf_client *client;
    const char *name;
    atomic_int left;
};

/* Starts the next acquire from the callback of the previous one, and frees that. */
static void go_on(hf_call *call, void *arg) {
    struct chain *chain = arg;
    CHECK_IS(hf_call_status(call), HF_OK);
    hf_hold *hold = hf_call_take_hold(call);
    hf_call_free(call);
    CHECK_IS(hf_release(hold), HF_OK);
    hf_hold_free(hold);
    if (atomic_fetch_sub(&chain->left, 1) > 1) {
        call = start(chain->client, chain->name, as_exclusive(HF_FOREVER));
        CHECK_IS(hf_call_notify(call, go_on, chain), HF_OK);
    }
}

BOTH_FORMS(a_notice_may_start_the_next_call_and_free_its_own) {
    hf_client *a = open_client(), *b = open_client();
    int steps = 3 + times(97);
    struct chain chains[2] = {{a, fresh_name("chain"), steps}};
    chains[1] = (struct chain){b, chains[0].name, steps};
    for (size_t i = 0; i < 2; i++) {
        hf_call *call = start(chains[i].client, chains[i].name, as_exclusive(HF_FOREVER));
        CHECK_IS(hf_call_notify(call, go_on, &chains[i]), HF_OK);
    }
    AWAIT(atomic_load(&chains[0].left) == 0 && atomic_load(&chains[1].left) == 0);
    CHECK_IS(attempt(a, chains[0].name, as_exclusive(PATIENCE_MS)), HF_OK);
}

/* ---- Many --------------------------------------------------------------------------------- */

TEST(ten_thousand_acquires_may_be_in_flight) {
    form = LOOPING;
    hf_client *a = open_client(), *b = open_client();
    enum { NAMES_HELD = 100 };
    int count = times(10000);
    hf_hold *holds[NAMES_HELD];
    char names[NAMES_HELD][NAME_SIZE + 16];
    const char *prefix = fresh_name("flight");
    for (size_t i = 0; i < NAMES_HELD; i++) {
        snprintf(names[i], sizeof names[i], "%s/%zu", prefix, i);
        holds[i] = get(a, names[i], as_exclusive(0));
    }
    bool *is_done = calloc((size_t)count, sizeof *is_done);
    for (int i = 0; i < count; i++)
        CHECK_IS(
            hf_call_queue(start(b, names[i % NAMES_HELD], as_exclusive(HF_FOREVER)), &is_done[i]),
            HF_OK);
    for (size_t i = 0; i < NAMES_HELD; i++)
        let_go(holds[i]);
    for (int left = count; left > 0;) {
        hf_call *call = hf_call_next(b);
        if (!call) {
            CHECK(loop_once(PATIENCE_MS) > 0);
            continue;
        }
        CHECK_IS(hf_call_status(call), HF_OK);
        bool *done = hf_call_data(call);
        CHECK(!*done);
        *done = true;
        left--;
        hf_call_free(call); /* passes the lock on to the next */
    }
    for (size_t i = 0; i < NAMES_HELD; i++)
        CHECK_IS(attempt(a, names[i], as_exclusive(PATIENCE_MS)), HF_OK);
    free(is_done);
}

struct mixed {
    hf_client *client;
    const char *name;
    int rounds;
};

static void *lock_and_unlock(void *arg) {
    struct mixed *mixed = arg;
    hf_acquire_options options = as_exclusive(HF_FOREVER);
    for (int i = 0; i < mixed->rounds; i++) {
        hf_hold *hold;
        CHECK_IS(hf_acquire(mixed->client, mixed->name, &options, &hold), HF_OK);
        CHECK_IS(hf_release(hold), HF_OK);
        hf_hold_free(hold);
    }
    return NULL;
}

/* The thread that drives also completes the other's calls: the loop must be notified. */
TEST(one_client_may_be_used_in_both_ways_at_once) {
    form = LOOPING;
    struct mixed mixed = {open_client(), fresh_name("mixed"), times(500)};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, lock_and_unlock, &mixed) == 0);
    for (int i = 0; i < mixed.rounds; i++)
        let_go(get(mixed.client, mixed.name, as_exclusive(HF_FOREVER)));
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Cancelling --------------------------------------------------------------------------- */

BOTH_FORMS(a_call_may_be_cancelled_as_soon_as_it_was_started) {
    hf_client *a = open_client();
    const char *name = fresh_name("early");
    for (int i = 0; i < 50; i++) {
        hf_call *call = start(a, name, as_exclusive(HF_FOREVER));
        CHECK_IS(hf_call_cancel(call), HF_OK);
        int status = outcome(call);
        CHECK(status == HF_OK || status == HF_CANCELLED);
        CHECK_IS(hf_call_cancel(call), HF_OK);
        CHECK_IS(hf_call_status(call), status);
        hf_call_free(call);
    }
    CHECK_IS(attempt(a, name, as_exclusive(PATIENCE_MS)), HF_OK);
}

BOTH_FORMS(a_freed_call_gives_up_its_place) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("freed");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *call = start_queued(b, name, 1);
    struct ask *behind = queue_up(a, name, as_exclusive(HF_FOREVER), 2);
    hf_call_free(call);
    AWAIT(are_waiting(a, name, 1));
    let_go(hold);
    let_go(granted(behind));
}

/* The lock is handed over and the call cancelled before its client has looked: the next must get
 * it. */
BOTH_FORMS(who_cancels_what_was_handed_to_it_passes_it_on) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("passes-on");
    for (int i = 0; i < 20; i++) {
        hf_hold *hold = get(a, name, as_exclusive(PATIENCE_MS));
        hf_call *call = start_queued(b, name, 1);
        struct ask *behind = queue_up(a, name, as_exclusive(HF_FOREVER), 2);
        hf_hold_free(hold);
        hf_call_cancel(call);
        int status = outcome(call);
        CHECK(status == HF_CANCELLED || status == HF_OK);
        hf_call_free(call);
        let_go(granted(behind));
    }
}

static void *free_hold(void *hold) {
    hf_hold_free(hold);
    return NULL;
}

static void *cancel_call(void *call) {
    hf_call_cancel(call);
    return NULL;
}

/* Grant and cancel race on two threads: whichever wins, the lock does not stay held. */
TEST(a_cancel_may_race_the_grant) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("race");
    int outcomes[2] = {0};
    for (int i = 0; i < times(200); i++) {
        hf_hold *hold = get(a, name, as_exclusive(PATIENCE_MS));
        hf_call *call = start_queued(b, name, 1);
        pthread_t releaser, canceller;
        CHECK(pthread_create(&releaser, NULL, free_hold, hold) == 0);
        CHECK(pthread_create(&canceller, NULL, cancel_call, call) == 0);
        int status = hf_call_wait(call, PATIENCE_MS);
        CHECK(status == HF_OK || status == HF_CANCELLED);
        outcomes[status == HF_OK]++;
        pthread_join(releaser, NULL);
        pthread_join(canceller, NULL);
        CHECK_IS(hf_call_status(call), status);
        hf_call_free(call);
    }
    CHECK_IS(attempt(a, name, as_exclusive(PATIENCE_MS)), HF_OK);
    AWAIT(waiters(a, name) == 0); /* a release may still be on its way */
}

/* ---- Closing ------------------------------------------------------------------------------ */

static void expect_closed(hf_call *call, void *count) {
    CHECK_IS(hf_call_status(call), HF_CLOSED);
    atomic_fetch_add((atomic_int *)count, 1);
}

TEST(closing_completes_every_call_in_flight) {
    hf_client_options briefly = HF_CLIENT_OPTIONS_INIT;
    briefly.wait_lease_ms = PATIENCE_MS / 2; /* a busy store may not free them in a second */
    hf_client *a = open_client(), *b = open_client_with(&briefly);
    enum { CALLS_MOST = 50 };
    const size_t count = 10 + (size_t)times(CALLS_MOST - 10);
    const char *name = fresh_name("close");
    hf_hold *hold = get(a, name, as_exclusive(0));
    atomic_int notices = 0;
    hf_call *calls[CALLS_MOST];
    for (size_t i = 0; i < count; i++) {
        calls[i] = start(b, name, as_exclusive(HF_FOREVER));
        if (i % 2)
            CHECK_IS(hf_call_notify(calls[i], expect_closed, &notices), HF_OK);
    }
    AWAIT(are_waiting(a, name, count));
    close_client(b);
    CHECK_EQ_INT(atomic_load(&notices), (int)count / 2);
    AWAIT(waiters(a, name) == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK_IS(hf_call_status(calls[i]), HF_CLOSED);
        CHECK_IS(hf_call_wait(calls[i], HF_FOREVER), HF_CLOSED);
        CHECK(strlen(hf_call_error(calls[i])) > 0);
        CHECK(hf_call_take_hold(calls[i]) == NULL);
        hf_call_free(calls[i]);
    }
    let_go(hold);
}

BOTH_FORMS(closing_releases_what_completed_and_was_not_taken) {
    hf_client *a = open_client();
    bool is_in_time = false;
    int status = HF_BUSY;
    for (int i = 0; status == HF_BUSY && !is_in_time && may_try(i, LONG_TRIES); i++) {
        hf_client *b = open_client();
        const char *name = fresh_name("untaken");
        hf_call *call = start(b, name, as_exclusive(0));
        CHECK_IS(outcome(call), HF_OK);
        is_in_time = is_closed_in_time(b);
        status = attempt(a, name, as_exclusive(0));
        hf_call_free(call);
    }
    CHECK_IS(status, HF_OK);
}

static void *wait_until_closed(void *call) {
    CHECK_IS(hf_call_wait(call, HF_FOREVER), HF_CLOSED);
    return NULL;
}

TEST(closing_wakes_who_waits_for_a_call) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("wakes");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_call *calls[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        calls[i] = start_queued(b, name, i + 1);
        CHECK(pthread_create(&threads[i], NULL, wait_until_closed, calls[i]) == 0);
    }
    close_client(b);
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        hf_call_free(calls[i]);
    }
    let_go(hold);
}
