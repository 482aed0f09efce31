/* An allocation that fails, at every index of everything that a program does with a lock: a clear
 * error, no leak (AddressSanitizer looks), no lock that stays held; and a release never needs
 * memory. */
#include "check.h"
#include "support/failing.h"
#include "support/virtual_world.h"

/* ---- Words of the tests ---- */

/* True if it was done; otherwise the error must be HF_NO_MEMORY. */
static bool done(int r) {
    if (r != HF_OK && r != HF_NO_MEMORY)
        test_fail(__FILE__, __LINE__, "%s: %s", hf_error_name(r), hf_last_error());
    CHECK(r == HF_OK || strstr(hf_last_error(), "out of memory"));
    return r == HF_OK;
}

static hf_client *witness;

/* Nothing is held: another client can take the lock at once. Nothing fails here. */
static void check_free(const char *name) {
    fail_pause();
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    hf_hold *hold;
    int r = hf_acquire(witness, name, &options, &hold);
    if (r != HF_OK)
        test_fail(__FILE__, __LINE__, "\"%s\" is not free: %s", name, hf_error_name(r));
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
    fail_resume();
}

static hf_client *open_unfailing(void) {
    fail_pause();
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:no-memory", NULL, &client), HF_OK);
    fail_resume();
    return client;
}

static void open_witness(void) {
    witness = open_unfailing();
}

static void count_loss(hf_hold *hold, void *count) {
    (void)hold;
    ++*(int *)count;
}

/* ---- Stories ---- */

static void open_and_close(void) {
    hf_client *client;
    if (done(hf_client_open("memory:no-memory", NULL, &client)))
        hf_client_close(client);
}

TEST(opening_a_client_survives_failed_allocations) {
    open_witness();
    fail_at_every_index(open_and_close);
    hf_client_close(witness);
}

static void check_bad_url(void) {
    hf_client *client;
    int r = hf_client_open("memory://user:secret@host/x?y=z", NULL, &client);
    CHECK(r == HF_BAD_URL || r == HF_NO_MEMORY);
    r = hf_client_open("nosuchstore:x", NULL, &client);
    CHECK(r == HF_NO_STORE || r == HF_NO_MEMORY);
}

TEST(a_bad_url_is_refused_despite_failed_allocations) {
    fail_at_every_index(check_bad_url);
}

static void acquire_renew_release(void) {
    hf_client *a = open_unfailing();
    hf_hold *hold;
    if (done(hf_acquire(a, "x", NULL, &hold))) {
        done(hf_renew(hold, 0));
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        hf_hold_owner(hold);
        int fd = hf_hold_fd(hold);
        CHECK(fd >= 0 || fd == HF_NO_MEMORY);
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        CHECK_EQ_INT(hf_release(hold), HF_OK); /* whatever fails */
        check_free("x");
        hf_hold_free(hold);
    }
    check_free("x");
    hf_client_close(a);
}

TEST(acquiring_renewing_and_releasing_survive_failed_allocations) {
    open_witness();
    fail_at_every_index(acquire_renew_release);
    hf_client_close(witness);
}

static void acquire_and_free(void) {
    static const hf_kind kinds[] = {HF_EXCLUSIVE, HF_SHARED, HF_PERMITS};
    hf_client *a = open_unfailing();
    hf_hold *hold;
    int losses = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.kind = kinds[i];
        options.label = "a label";
        options.on_lost = count_loss;
        options.on_lost_arg = &losses;
        if (done(hf_acquire(a, "x", &options, &hold)))
            hf_hold_free(hold);
        check_free("x");
    }
    CHECK_EQ_INT(losses, 0);
    hf_client_close(a);
}

TEST(every_kind_of_lock_survives_failed_allocations) {
    open_witness();
    fail_at_every_index(acquire_and_free);
    hf_client_close(witness);
}

/* More locks than there is memory reserved for at first. */
static void acquire_many(void) {
    enum { COUNT = 40 };
    hf_client *a = open_unfailing();
    hf_hold *holds[COUNT] = {NULL};
    char names[COUNT][8];
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        done(hf_acquire(a, names[i], NULL, &holds[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        if (holds[i])
            CHECK_EQ_INT(hf_check(holds[i], 0), HF_OK);
        if (i % 2 == 0 && holds[i])
            CHECK_EQ_INT(hf_release(holds[i]), HF_OK);
        hf_hold_free(holds[i]);
        check_free(names[i]);
    }
    hf_client_close(a);
}

TEST(many_locks_survive_failed_allocations) {
    open_witness();
    fail_at_every_index(acquire_many);
    hf_client_close(witness);
}

/* A count that fails for lack of memory changes nothing and returns an error. */
static void count_up(void) {
    enum { COUNT = 20 };
    hf_client *a = open_unfailing();
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_ADD;
    options.number = 1;
    hf_counter counter = HF_COUNTER_INIT;
    int64_t added = 0;
    char name[16];
    for (int i = 0; i < COUNT; i++) {
        options.expiry_ms = i % 2 ? 60000 : 0;
        snprintf(name, sizeof name, "counter-%d", i % 4 ? i : 0);
        added += done(hf_count(a, name, &options, NULL)) && i % 4 == 0;
    }
    hf_call *call;
    if (done(hf_count_start(a, "counter-0", &options, &call))) {
        added += done(hf_call_wait(call, HF_FOREVER));
        hf_call_free(call);
    }
    if (done(hf_count(a, "counter-0", NULL, &counter)))
        CHECK_EQ_INT(counter.value, added);
    hf_client_close(a);
}

TEST(counting_survives_failed_allocations) {
    fail_at_every_index(count_up);
}

static void reenter(void) {
    hf_client *a = open_unfailing();
    hf_hold *outer = NULL, *inner = NULL;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.flags = HF_REENTRANT;
    if (done(hf_acquire(a, "x", &options, &outer)) && done(hf_acquire(a, "x", &options, &inner))) {
        CHECK_EQ_INT(hf_release(outer), HF_OK);
        CHECK_EQ_INT(hf_check(inner, 0), HF_OK);
        CHECK_EQ_INT(hf_release(inner), HF_OK);
    }
    hf_hold_free(outer);
    hf_hold_free(inner);
    check_free("x");
    hf_client_close(a);
}

TEST(reentering_survives_failed_allocations) {
    open_witness();
    fail_at_every_index(reenter);
    hf_client_close(witness);
}

static void acquire_several(void) {
    hf_client *a = open_unfailing();
    hf_want want[3] = {HF_WANT_INIT, HF_WANT_INIT, HF_WANT_INIT};
    const hf_want *const wants[] = {&want[0], &want[1], &want[2]};
    want[0].name = "y";
    want[1].name = "x";
    want[2].name = "z";
    want[2].kind = HF_SHARED;
    hf_hold *hold;
    if (done(hf_acquire_all(a, wants, 3, NULL, &hold))) {
        done(hf_renew(hold, 0));
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        CHECK_EQ_INT(hf_release(hold), HF_OK);
        check_free("x");
        check_free("z");
        hf_hold_free(hold);
    }
    if (done(hf_acquire_all(a, wants, 3, NULL, &hold)))
        hf_hold_free(hold);
    check_free("x");
    check_free("y");
    check_free("z");
    hf_client_close(a);
}

TEST(several_names_at_once_survive_failed_allocations) {
    open_witness();
    fail_at_every_index(acquire_several);
    hf_client_close(witness);
}

static void wait_in_vain(void) {
    hf_client *a = open_unfailing();
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    hf_hold *hold;
    int r = hf_acquire(a, "taken", &options, &hold);
    CHECK(r == HF_BUSY || r == HF_NO_MEMORY);
    options.wait_ms = 1;
    r = hf_acquire(a, "taken", &options, &hold);
    CHECK(r == HF_TIMEOUT || r == HF_NO_MEMORY);
    options.kind = HF_PERMITS;
    r = hf_acquire(a, "taken", &options, &hold);
    CHECK(r == HF_WRONG_KIND || r == HF_NO_MEMORY);
    hf_call *call;
    options.kind = HF_EXCLUSIVE;
    if (done(hf_acquire_start(a, "taken", &options, &call))) {
        r = hf_call_cancel(call);
        CHECK_EQ_INT(r, HF_OK);
        r = hf_call_status(call);
        CHECK(r == HF_CANCELLED || r == HF_NO_MEMORY);
        CHECK(strlen(hf_call_error(call)) > 0);
        hf_call_free(call);
    }
    hf_client_close(a);
}

TEST(waiting_in_vain_survives_failed_allocations) {
    open_witness();
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(witness, "taken", NULL, &hold), HF_OK);
    fail_at_every_index(wait_in_vain);
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(witness, "taken", &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->waiter_count, 0);
    hf_locks_free(locks);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
    hf_client_close(witness);
}

static void look(void) {
    hf_client *a = open_unfailing();
    hf_locks *locks;
    if (done(hf_inspect(a, "taken", &locks))) {
        CHECK_EQ_INT(hf_locks_count(locks), 1);
        CHECK_EQ_INT(hf_locks_at(locks, 0)->holder_count, 1);
        hf_locks_free(locks);
    }
    if (done(hf_list(a, "", NULL, 10, &locks))) {
        CHECK_EQ_INT(hf_locks_count(locks), 1);
        hf_locks_free(locks);
    }
    int r = hf_break(a, "taken", 1, NULL);
    CHECK(r == HF_NOT_YOURS || r == HF_NO_MEMORY);
    hf_client_close(a);
}

TEST(inspecting_listing_and_breaking_survive_failed_allocations) {
    open_witness();
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(witness, "taken", NULL, &hold), HF_OK);
    fail_at_every_index(look);
    hf_hold_free(hold);
    hf_client_close(witness);
}

static void free_call(hf_call *call, void *count) {
    hf_call_free(call);
    ++*(int *)count;
}

static void call_without_blocking(void) {
    hf_client *a = open_unfailing();
    hf_call *call;
    hf_hold *hold = NULL;
    int told = 0;
    CHECK(hf_fd(a) >= 0);
    if (done(hf_acquire_start(a, "x", NULL, &call))) {
        if (hf_call_wait(call, HF_FOREVER) == HF_OK)
            hold = hf_call_take_hold(call);
        hf_call_free(call);
    }
    if (hold && done(hf_renew_start(hold, 0, &call))) {
        done(hf_call_wait(call, HF_FOREVER));
        hf_call_free(call);
    }
    if (hold && done(hf_release_start(hold, &call))) {
        CHECK_EQ_INT(hf_call_wait(call, HF_FOREVER), HF_OK);
        hf_call_free(call);
        check_free("x");
    }
    hf_hold_free(hold);
    if (done(hf_acquire_start(a, "x", NULL, &call)) &&
        !done(hf_call_notify(call, free_call, &told)))
        hf_call_free(call);
    CHECK_EQ_INT(hf_process(a), HF_OK);
    check_free("x");
    hf_client_close(a);
}

TEST(calls_that_do_not_block_survive_failed_allocations) {
    open_witness();
    fail_at_every_index(call_without_blocking);
    hf_client_close(witness);
}

struct seen {
    int changes, missed;
};

static void see(const hf_change *change, void *arg) {
    struct seen *seen = arg;
    seen->changes += change->lock != NULL;
    seen->missed += change->type == HF_CHANGE_MISSED;
}

/* Either the change is reported, or it is reported that one was missed. */
static void watch(void) {
    hf_client *a = open_unfailing();
    hf_call *call = NULL;
    hf_hold *hold = NULL;
    struct seen seen = {0};
    fail_pause();
    CHECK(hf_fd(a) >= 0);
    fail_resume();
    if (done(hf_watch_start(a, "watched", see, &seen, &call)) &&
        done(hf_acquire(witness, "watched", NULL, &hold)))
        CHECK_EQ_INT(hf_release(hold), HF_OK);
    CHECK_EQ_INT(hf_process(a), HF_OK);
    CHECK(!hold || seen.changes == 2 || seen.missed);
    CHECK(fail_happened() || (seen.changes == 2 && !seen.missed));
    hf_call_free(call);
    hf_hold_free(hold);
    hf_client_close(a);
}

TEST(watching_survives_failed_allocations) {
    open_witness();
    fail_at_every_index(watch);
    hf_client_close(witness);
}

static void close_while_holding(void) {
    hf_client *a = open_unfailing();
    hf_hold *hold = NULL;
    hf_call *call = NULL;
    done(hf_acquire(a, "x", NULL, &hold));
    done(hf_acquire_start(a, "x", NULL, &call));
    hf_client_close(a); /* must release, with memory or without */
    check_free("x");
    hf_hold_free(hold);
    hf_call_free(call);
}

TEST(closing_releases_holds_despite_failed_allocations) {
    open_witness();
    fail_at_every_index(close_while_holding);
    hf_client_close(witness);
}

/* ---- Renewal in the background, on the virtual clock ---- */

TEST(a_renewal_without_memory_is_tried_again) {
    hf_client *a = virtual_client("memory:", NULL);
    hf_hold *hold;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 9000;
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &hold), HF_OK);
    for (int i = 0; i < 100; i++) {
        fail_from_to(0, FAIL_TO_THE_END); /* like an outage of half a lease */
        virtual_pass_us(4500000);
        CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
        fail_pause();
        virtual_pass_us(4500000);
        CHECK_EQ_INT(hf_check(hold, 5000), HF_OK);
    }
    fail_from_to(0, FAIL_TO_THE_END);
    virtual_pass_us(20000000);
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    fail_pause();
    hf_hold_free(hold);
    hf_client_close(a);
}
