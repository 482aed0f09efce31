/* Events: exact numbers on a clock that the test moves, each event once and in order, also with
 * threads, and how many were dropped for lack of memory. The unit is included, not linked, so that
 * only its allocations fail. */
#include "check.h"
#include "support/virtual_world.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static int allocations_left = INT_MAX;

static void *scarce_malloc(size_t size) {
    return allocations_left > 0 ? malloc(size) : NULL;
}

#define malloc scarce_malloc
#include "client/event.c" /* NOLINT(bugprone-suspicious-include) */
#undef malloc

enum { MS = 1000, LEASE_MS = 9000, VALID_MS = LEASE_MS - LEASE_MS / 100 - 2, MARGIN_MS = 5908 };

/* ---- What was reported ---- */

struct told {
    hf_event event;
    char name[64];
};

static struct told told[64];
static size_t told_count, checked;

static void take(const hf_event *event, void *arg) {
    CHECK(arg == told);
    CHECK(told_count < sizeof(told) / sizeof(*told));
    struct told *to = &told[told_count++];
    to->event = *event;
    snprintf(to->name, sizeof(to->name), "%s", event->name);
    CHECK_EQ_INT(event->size, sizeof(*event));
}

static hf_client *open_client(void) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.on_event = take;
    options.on_event_arg = told;
    hf_client *client = virtual_client("memory:events", &options);
    CHECK(client != NULL);
    return client;
}

static const hf_event *next(hf_event_type type, const char *name, int error) {
    CHECK(checked < told_count);
    const struct told *got = &told[checked++];
    CHECK_EQ_INT(got->event.type, type);
    CHECK_EQ_STR(got->name, name);
    CHECK_EQ_INT(got->event.error, error);
    return &got->event;
}

static void no_more(hf_client *client) {
    CHECK_EQ_INT(hf_process(client), HF_OK);
    CHECK_EQ_INT(told_count, checked);
}

static hf_acquire_options waiting(int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    options.wait_ms = wait_ms;
    return options;
}

static hf_hold *get(hf_client *client, const char *name) {
    hf_acquire_options options = waiting(HF_FOREVER);
    hf_hold *hold = NULL;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

static void let_go(hf_hold *hold) {
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
}

/* ---- A store that refuses some operations, or does not answer them ---- */

static struct store_driver refusing;
static void (*real_submit)(struct store *store, struct store_op *op);
static hf_client *refused_client;
static int refused_type = -1, unanswered_type = -1;

static void submit(struct store *store, struct store_op *op) {
    if (op->type == refused_type)
        store_refuse(&refused_client->host, op, HF_UNREACHABLE, NULL);
    else if (op->type == unanswered_type)
        store_complete(&refused_client->host, op, STORE_UNKNOWN);
    else
        real_submit(store, op);
}

static hf_client *open_refusing(void) {
    refused_client = open_client();
    refusing = *refused_client->store->driver;
    real_submit = refusing.submit;
    refusing.submit = submit;
    refused_client->store->driver = &refusing;
    return refused_client;
}

/* ---- One lock ---- */

TEST(a_lock_is_reported_from_its_grant_to_its_release) {
    hf_client *a = open_client();
    hf_hold *hold = get(a, "x");
    uint64_t token = hf_hold_token(hold);
    virtual_pass_us(7000 * MS);
    let_go(hold);
    hf_process(a);
    const hf_event *event = next(HF_EVENT_ACQUIRED, "x", HF_OK);
    CHECK_EQ_INT(event->token, token);
    CHECK_EQ_INT(event->wait_ms, 0);
    CHECK_EQ_INT(event->held_ms, 0);
    CHECK_EQ_INT(event->least_margin_ms, -1);
    event = next(HF_EVENT_RENEWED, "x", HF_OK);
    CHECK_EQ_INT(event->held_ms, 3000);
    CHECK_EQ_INT(event->renewals, 1);
    CHECK_EQ_INT(event->least_margin_ms, VALID_MS - 3000);
    event = next(HF_EVENT_RENEWED, "x", HF_OK);
    CHECK_EQ_INT(event->held_ms, 6000);
    CHECK_EQ_INT(event->renewals, 2);
    event = next(HF_EVENT_RELEASED, "x", HF_OK);
    CHECK_EQ_INT(event->token, token);
    CHECK_EQ_INT(event->held_ms, 7000);
    CHECK_EQ_INT(event->renewals, 2);
    CHECK_EQ_INT(event->least_margin_ms, MARGIN_MS); /* at a renewal; the release had more */
    CHECK_EQ_INT(event->dropped, 0);
    no_more(a);
    hf_client_close(a);
    CHECK_EQ_INT(told_count, checked);
}

TEST(the_wait_for_a_lock_is_counted) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x");
    hf_acquire_options options = waiting(HF_FOREVER);
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(b, "x", &options, &call), HF_OK);
    virtual_pass_us(1234 * MS);
    let_go(hold);
    CHECK_EQ_INT(hf_call_wait(call, HF_FOREVER), HF_OK);
    hf_process(b);
    hf_process(a);
    CHECK_EQ_INT(next(HF_EVENT_ACQUIRED, "x", HF_OK)->wait_ms, 1234); /* b asked first */
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    CHECK_EQ_INT(next(HF_EVENT_RELEASED, "x", HF_OK)->held_ms, 1234);
    hf_call_free(call); /* with its hold */
    hf_process(b);
    const hf_event *event = next(HF_EVENT_RELEASED, "x", HF_OK);
    CHECK_EQ_INT(event->held_ms, 0);
    CHECK_EQ_INT(event->wait_ms, 1234);
    CHECK_EQ_INT(event->least_margin_ms, VALID_MS);
    hf_client_close(a);
    hf_client_close(b);
    CHECK_EQ_INT(told_count, checked);
}

TEST(a_failed_acquire_says_why_and_after_how_long) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x"), *none;
    hf_acquire_options options = waiting(0);
    CHECK_EQ_INT(hf_acquire(b, "x", &options, &none), HF_BUSY);
    options.wait_ms = 2500;
    CHECK_EQ_INT(hf_acquire(b, "x", &options, &none), HF_TIMEOUT);
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(b, "x", &options, &call), HF_OK);
    hf_call_free(call);
    CHECK_EQ_INT(hf_acquire(b, "", &options, &none), HF_BAD_NAME); /* the store was not asked */
    hf_process(b);
    const hf_event *event = next(HF_EVENT_NOT_ACQUIRED, "x", HF_BUSY);
    CHECK_EQ_INT(event->wait_ms, 0);
    CHECK_EQ_INT(event->token, 0);
    event = next(HF_EVENT_NOT_ACQUIRED, "x", HF_TIMEOUT);
    CHECK_EQ_INT(event->wait_ms, 2500);
    CHECK_EQ_INT(event->held_ms, 0);
    CHECK_EQ_INT(event->least_margin_ms, -1);
    next(HF_EVENT_NOT_ACQUIRED, "x", HF_CANCELLED);
    no_more(b);
    hf_client_close(b);
    let_go(hold);
    hf_client_close(a);
}

/* ---- Renewals that fail, and losses ---- */

TEST(renewals_that_fail_shrink_the_margin) {
    hf_client *a = open_refusing();
    hf_hold *hold = get(a, "x");
    refused_type = STORE_RENEW;
    virtual_pass_us(6000 * MS);
    refused_type = -1;
    virtual_pass_us(2000 * MS);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    int failures = 0;
    const hf_event *event = NULL;
    for (; told[checked].event.type == HF_EVENT_RENEWAL_FAILED; failures++) {
        event = next(HF_EVENT_RENEWAL_FAILED, "x", HF_UNREACHABLE);
        CHECK_EQ_INT(event->renewals, 0);
        CHECK_EQ_INT(event->least_margin_ms, -1);
    }
    CHECK(failures >= 2 && event->held_ms >= 3000 && event->held_ms <= 6000);
    event = next(HF_EVENT_RENEWED, "x", HF_OK);
    CHECK(event->held_ms > 6000);
    int64_t margin_ms = VALID_MS - event->held_ms; /* both are rounded down to ms */
    CHECK(event->least_margin_ms == margin_ms || event->least_margin_ms == margin_ms - 1);
    CHECK_EQ_INT(event->renewals, 1);
    let_go(hold);
    hf_client_close(a);
}

TEST(a_lock_that_cannot_be_renewed_is_lost_once_at_its_deadline) {
    hf_client *a = open_refusing();
    hf_hold *hold = get(a, "x");
    refused_type = STORE_RENEW;
    virtual_pass_us(60000 * MS);
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    while (told[checked].event.type == HF_EVENT_RENEWAL_FAILED)
        checked++;
    const hf_event *event = next(HF_EVENT_LOST, "x", HF_LOST);
    CHECK_EQ_INT(event->held_ms, VALID_MS);
    CHECK_EQ_INT(event->least_margin_ms, 0);
    CHECK_EQ_INT(event->renewals, 0);
    no_more(a);
    hf_client_close(a);
    CHECK_EQ_INT(told_count, checked);
}

TEST(a_lock_that_was_broken_is_lost_once_and_its_margin_is_that_of_its_renewals) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *hold = get(a, "x");
    virtual_pass_us(4000 * MS);
    CHECK_EQ_INT(hf_break(b, "x", hf_hold_token(hold), NULL), HF_OK);
    virtual_pass_us(10 * MS);
    hf_hold_free(hold);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    next(HF_EVENT_RENEWED, "x", HF_OK);
    const hf_event *event = next(HF_EVENT_LOST, "x", HF_LOST);
    CHECK_EQ_INT(event->held_ms, 4000);
    CHECK_EQ_INT(event->least_margin_ms, MARGIN_MS);
    no_more(a);
    hf_client_close(a);
    hf_client_close(b);
    CHECK_EQ_INT(told_count, checked);
}

TEST(a_loss_that_only_the_release_finds_is_a_loss) {
    hf_client *a = open_client();
    hf_hold *hold = get(a, "x");
    virtual_step_host_us(20000 * MS); /* by the store's clock, the lease has ended */
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    next(HF_EVENT_LOST, "x", HF_LOST);
    no_more(a);
    hf_client_close(a);
}

/* ---- Ends that the store does not confirm ---- */

TEST(a_release_is_reported_when_the_store_has_confirmed_it) {
    hf_client *a = open_refusing();
    hf_hold *hold = get(a, "x");
    virtual_pass_us(1000 * MS);
    refused_type = STORE_RELEASE;
    CHECK_EQ_INT(hf_release(hold), HF_UNREACHABLE);
    virtual_pass_us(2000 * MS);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    no_more(a);
    refused_type = -1;
    virtual_pass_us(2000 * MS);
    hf_process(a);
    CHECK_EQ_INT(next(HF_EVENT_RELEASED, "x", HF_OK)->held_ms, 1000);
    no_more(a);
    hf_hold_free(hold);
    hf_client_close(a);
    CHECK_EQ_INT(told_count, checked);
}

TEST(a_release_that_may_have_been_done_unanswered_is_no_loss) {
    hf_client *a = open_refusing();
    hf_hold *hold = get(a, "x");
    unanswered_type = STORE_RELEASE;
    CHECK_EQ_INT(hf_release(hold), HF_UNKNOWN);
    unanswered_type = -1;
    virtual_step_host_us(20000 * MS); /* the repeated release finds nothing */
    virtual_pass_us(2000 * MS);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    next(HF_EVENT_RELEASED, "x", HF_UNKNOWN);
    no_more(a);
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(closing_the_client_reports_the_end_of_every_lock) {
    hf_client *a = open_refusing();
    hf_hold *kept = get(a, "kept"), *silent = get(a, "silent");
    hf_acquire_options options = waiting(HF_FOREVER);
    hf_call *call;
    CHECK_EQ_INT(hf_acquire_start(a, "kept", &options, &call), HF_OK);
    refused_type = STORE_RELEASE;
    CHECK_EQ_INT(hf_release(silent), HF_UNREACHABLE);
    hf_client_close(a);
    next(HF_EVENT_ACQUIRED, "kept", HF_OK);
    next(HF_EVENT_ACQUIRED, "silent", HF_OK);
    next(HF_EVENT_NOT_ACQUIRED, "kept", HF_CLOSED);
    bool kept_first = strcmp(told[checked].name, "kept") == 0;
    next(HF_EVENT_RELEASED, kept_first ? "kept" : "silent", HF_UNKNOWN);
    next(HF_EVENT_RELEASED, kept_first ? "silent" : "kept", HF_UNKNOWN);
    CHECK_EQ_INT(told_count, checked);
    hf_hold_free(kept);
    hf_hold_free(silent);
    hf_call_free(call);
}

/* ---- Several names, the same name again ---- */

TEST(each_of_several_names_has_its_own_events) {
    hf_client *a = open_client(), *b = open_client();
    hf_hold *other = get(b, "b"), *group;
    hf_want first = HF_WANT_INIT, second = HF_WANT_INIT;
    first.name = "b";
    second.name = "a";
    const hf_want *wants[] = {&first, &second};
    hf_acquire_options options = waiting(500);
    CHECK_EQ_INT(hf_acquire_all(a, wants, 2, &options, &group), HF_TIMEOUT);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "a", HF_OK);
    CHECK_EQ_INT(next(HF_EVENT_NOT_ACQUIRED, "b", HF_TIMEOUT)->wait_ms, 500);
    CHECK_EQ_INT(next(HF_EVENT_RELEASED, "a", HF_OK)->held_ms, 500);
    no_more(a);
    let_go(other);
    hf_process(b);
    checked = told_count;
    CHECK_EQ_INT(hf_acquire_all(a, wants, 2, &options, &group), HF_OK);
    CHECK_EQ_INT(hf_break(b, "a", hf_hold_token_at(group, 1), NULL), HF_OK);
    virtual_pass_us(10 * MS);
    CHECK_EQ_INT(hf_check(group, 0), HF_LOST);
    hf_hold_free(group);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "a", HF_OK);
    next(HF_EVENT_ACQUIRED, "b", HF_OK);
    next(HF_EVENT_LOST, "a", HF_LOST);
    next(HF_EVENT_RELEASED, "b", HF_OK);
    no_more(a);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_reentered_lock_has_the_events_of_one_lock) {
    hf_client *a = open_client();
    hf_acquire_options options = waiting(0);
    options.flags = HF_REENTRANT;
    hf_hold *outer, *inner;
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &outer), HF_OK);
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &inner), HF_OK);
    let_go(outer);
    hf_process(a);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    no_more(a);
    let_go(inner);
    hf_process(a);
    next(HF_EVENT_RELEASED, "x", HF_OK);
    no_more(a);
    hf_client_close(a);
}

TEST(a_lock_that_is_left_to_its_lease_counts_as_released) {
    hf_client *a = open_client();
    hf_acquire_options options = waiting(0);
    options.flags = HF_KEEP;
    hf_hold *freed, *closed;
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &freed), HF_OK);
    CHECK_EQ_INT(hf_acquire(a, "y", &options, &closed), HF_OK);
    virtual_pass_us(300 * MS);
    hf_hold_free(freed);
    hf_client_close(a);
    hf_hold_free(closed);
    next(HF_EVENT_ACQUIRED, "x", HF_OK);
    next(HF_EVENT_ACQUIRED, "y", HF_OK);
    CHECK_EQ_INT(next(HF_EVENT_RELEASED, "x", HF_OK)->held_ms, 300);
    next(HF_EVENT_RELEASED, "y", HF_OK);
}

/* ---- No memory, nobody who asked ---- */

TEST(events_for_which_there_is_no_memory_are_counted) {
    hf_client *a = open_client();
    hf_hold *hold = get(a, "x");
    allocations_left = 0;
    virtual_pass_us(7000 * MS);
    allocations_left = INT_MAX;
    let_go(hold);
    let_go(get(a, "y"));
    hf_process(a);
    CHECK_EQ_INT(next(HF_EVENT_ACQUIRED, "x", HF_OK)->dropped, 0);
    const hf_event *event = next(HF_EVENT_RELEASED, "x", HF_OK);
    CHECK_EQ_INT(event->dropped, 2);
    CHECK_EQ_INT(event->renewals, 2);
    CHECK_EQ_INT(next(HF_EVENT_ACQUIRED, "y", HF_OK)->dropped, 0);
    next(HF_EVENT_RELEASED, "y", HF_OK);
    no_more(a);
    hf_client_close(a);
}

TEST(without_on_event_a_hold_needs_no_memory_for_events) {
    hf_client *a = virtual_client("memory:quiet", NULL);
    hf_hold *hold = get(a, "x");
    CHECK(!hold->more && !hold->hold.watched);
    virtual_pass_us(7000 * MS);
    CHECK(!hold->more);
    let_go(hold);
    hf_client_close(a);
}

/* ---- Threads ---- */

enum { THREADS = 6, ROUNDS = 150, SHARED_NAMES = 3 };

struct tally {
    atomic_int acquired, not_acquired, ended, inside;
    atomic_int held[SHARED_NAMES];
};

/* Callbacks run one at a time, in order: between ACQUIRED and the end of a name there is no other.
 * They may call the library. */
static void count(const hf_event *event, void *arg) {
    struct tally *tally = arg;
    CHECK_EQ_INT(atomic_fetch_add(&tally->inside, 1), 0);
    atomic_int *held = &tally->held[event->name[0] - '0'];
    switch (event->type) {
    case HF_EVENT_ACQUIRED:
        CHECK_EQ_INT(atomic_fetch_add(held, 1), 0);
        atomic_fetch_add(&tally->acquired, 1);
        break;
    case HF_EVENT_NOT_ACQUIRED:
        atomic_fetch_add(&tally->not_acquired, 1);
        break;
    case HF_EVENT_RELEASED:
        CHECK_EQ_INT(atomic_fetch_sub(held, 1), 1);
        CHECK_EQ_INT(event->error, HF_OK);
        atomic_fetch_add(&tally->ended, 1);
        break;
    default:
        CHECK(!"nothing is lost or renewed here");
    }
    CHECK_EQ_INT(event->dropped, 0);
    atomic_fetch_sub(&tally->inside, 1);
}

struct worker {
    pthread_t thread;
    hf_client *client;
    int got, failed;
};

static void *work(void *arg) {
    struct worker *me = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char name[2] = {(char)('0' + i % SHARED_NAMES), 0};
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.wait_ms = i % 4 ? 20000 : 0;
        hf_hold *hold;
        if (hf_acquire(me->client, name, &options, &hold) < 0) {
            me->failed++;
            continue;
        }
        me->got++;
        if (i % 2)
            CHECK_EQ_INT(hf_release(hold), HF_OK);
        hf_hold_free(hold);
    }
    return NULL;
}

static void run_workers(hf_client *client, struct tally *tally, bool has_loop) {
    struct worker workers[THREADS] = {0};
    int got = 0, failed = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i].client = client;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    while (has_loop && atomic_load(&tally->ended) < THREADS * ROUNDS / 2) {
        struct pollfd loop = {.fd = hf_fd(client), .events = POLLIN};
        poll(&loop, 1, 10);
        hf_process(client);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        got += workers[i].got;
        failed += workers[i].failed;
    }
    hf_client_close(client);
    CHECK_EQ_INT(atomic_load(&tally->acquired), got);
    CHECK_EQ_INT(atomic_load(&tally->ended), got);
    CHECK_EQ_INT(atomic_load(&tally->not_acquired), failed);
}

static hf_client *open_real(struct tally *tally) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.on_event = count;
    options.on_event_arg = tally;
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:event-threads", &options, &client), HF_OK);
    return client;
}

TEST(with_many_threads_each_event_is_reported_once_and_in_order) {
    struct tally tally = {0};
    run_workers(open_real(&tally), &tally, false);
}

TEST(in_the_programs_own_loop_each_event_is_reported_once_and_in_order) {
    struct tally tally = {0};
    hf_client *client = open_real(&tally);
    CHECK(hf_fd(client) >= 0);
    run_workers(client, &tally, true);
}
