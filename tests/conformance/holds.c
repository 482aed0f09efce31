/* The hold as an object: releasing, freeing, closing, and the callback that reports its loss. */
#include "suite.h"

BOTH_FORMS(a_release_may_be_repeated) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("again");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(release(hold), HF_OK);
    hf_hold *next = get(b, name, as_exclusive(0));
    CHECK_IS(release(hold), HF_OK);
    CHECK_IS(hf_check(hold, 0), HF_RELEASED);
    CHECK_IS(renew(hold, 0), HF_RELEASED);
    CHECK_EQ_INT(hf_hold_left_ms(hold), 0);
    hf_hold_free(hold);
    CHECK_IS(hf_check(next, 0), HF_OK);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    let_go(next);
}

BOTH_FORMS(a_hold_that_is_freed_is_released) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("freed");
    hf_hold *hold = get(a, name, as_exclusive(0));
    struct ask *waiter = queue_up(b, name, as_exclusive(HF_FOREVER), 1);
    CHECK(hf_hold_free(hold) == NULL);
    let_go(granted(waiter));
}

/* What the next clients get, which must be HF_OK if the store confirmed the close in time. */
static int close_with_holds(hf_client *b) {
    hf_client *a = open_client();
    const char *names[] = {fresh_name("close"), fresh_name("close")};
    atomic_int losses = 0;
    hf_hold *holds[] = {get(a, names[0], telling(as_exclusive(0), &losses)),
                        get(a, names[1], telling(as_shared(0), &losses))};
    int fd = hf_hold_fd(holds[0]);
    CHECK(fd >= 0);
    struct ask *waiter = queue_up(b, names[0], as_exclusive(PATIENCE_MS / 2), 1);
    bool is_in_time = is_closed_in_time(a);
    hf_hold *next = NULL;
    int statuses[2];
    if ((statuses[0] = answer(waiter, &next)) == HF_OK)
        let_go(next);
    statuses[1] = attempt(b, names[1], as_exclusive(0));
    for (size_t i = 0; i < 2 && is_in_time; i++)
        CHECK_IS(statuses[i], HF_OK);
    CHECK_IS(hf_hold_fd(holds[1]), HF_CLOSED);
    for (size_t i = 0; i < 2; i++) {
        CHECK_IS(hf_check(holds[i], 0), HF_CLOSED);
        CHECK_IS(hf_renew(holds[i], 0), HF_CLOSED);
        CHECK_IS(hf_release(holds[i]), HF_CLOSED);
        CHECK_EQ_INT(hf_hold_left_ms(holds[i]), 0);
        CHECK_EQ_STR(hf_hold_name(holds[i]), names[i]);
        CHECK(hf_hold_free(holds[i]) == NULL);
    }
    CHECK_EQ_INT(atomic_load(&losses), 0);
    return statuses[0] ? statuses[0] : statuses[1];
}

BOTH_FORMS(a_client_that_closes_releases_what_it_holds) {
    hf_client *b = open_client();
    int status = HF_BUSY;
    for (int i = 0; status != HF_OK && may_try(i, LONG_TRIES); i++)
        status = close_with_holds(b);
    CHECK_IS(status, HF_OK);
}

TEST(what_frees_takes_null) {
    CHECK(hf_client_close(NULL) == NULL);
    CHECK(hf_hold_free(NULL) == NULL);
    CHECK(hf_call_free(NULL) == NULL);
    CHECK(hf_locks_free(NULL) == NULL);
    CHECK_EQ_INT(hf_locks_count(NULL), 0);
}

BOTH_FORMS(owners_are_reported_in_full_only_to_who_acquired) {
    hf_client *a = open_client();
    const char *name = fresh_name("owner");
    hf_hold *one = get(a, name, as_shared(0)), *two = get(a, name, as_shared(0));
    CHECK(strlen(hf_hold_owner(one)) >= 32);
    CHECK(strcmp(hf_hold_owner(one), hf_hold_owner(two)) != 0);
    hf_locks *locks;
    CHECK_IS(inspect(a, name, &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    CHECK_EQ_INT(info->holder_count, 2);
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(info->holders[i]->owner);
        CHECK(length > 0 && length < 32);
    }
    CHECK(strcmp(info->holders[0]->owner, info->holders[1]->owner) != 0);
    hf_locks_free(locks);
    let_go(one);
    let_go(two);
}

/* ---- Threads ------------------------------------------------------------------------------ */

struct shared_hold {
    hf_hold *hold;
    atomic_int checked; /* how often it was found to be held, by all threads */
    int ended;          /* what it must return at the end */
};

static void *use_until_it_ends(void *arg) {
    struct shared_hold *shared = arg;
    hf_hold *hold = shared->hold;
    while (hf_check(hold, 0) == HF_OK) {
        int renewed = hf_renew(hold, 0);
        CHECK(renewed == HF_OK || renewed == shared->ended);
        CHECK(hf_hold_left_ms(hold) >= 0);
        CHECK(strlen(hf_hold_owner(hold)) > 0);
        int fd = hf_hold_fd(hold);
        CHECK(fd >= 0 || fd == HF_CLOSED);
        atomic_fetch_add(&shared->checked, 1);
    }
    CHECK_IS(hf_check(hold, 0), shared->ended);
    return NULL;
}

static void *release_it(void *hold) {
    CHECK_IS(hf_release(hold), HF_OK);
    return NULL;
}

enum { USERS = 4 };

static void start_users(struct shared_hold *shared, pthread_t *ret_threads) {
    for (size_t i = 0; i < USERS; i++)
        CHECK(pthread_create(&ret_threads[i], NULL, use_until_it_ends, shared) == 0);
    AWAIT(atomic_load(&shared->checked) > 100);
}

TEST(several_threads_may_use_and_release_one_hold) {
    hf_client *a = open_client();
    const char *name = fresh_name("threads");
    struct shared_hold shared = {.hold = get(a, name, as_exclusive(0)), .ended = HF_RELEASED};
    pthread_t users[USERS], releasers[USERS];
    start_users(&shared, users);
    for (size_t i = 0; i < USERS; i++)
        CHECK(pthread_create(&releasers[i], NULL, release_it, shared.hold) == 0);
    for (size_t i = 0; i < USERS; i++) {
        pthread_join(releasers[i], NULL);
        pthread_join(users[i], NULL);
    }
    hf_hold_free(shared.hold);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_OK);
}

TEST(a_hold_may_be_used_while_its_client_closes) {
    hf_client *b = open_client();
    bool is_in_time = false;
    int status = HF_BUSY;
    for (int i = 0; status == HF_BUSY && !is_in_time && may_try(i, LONG_TRIES); i++) {
        hf_client *a = open_client();
        const char *name = fresh_name("closes");
        struct shared_hold shared = {.hold = get(a, name, as_exclusive(0)), .ended = HF_CLOSED};
        pthread_t users[USERS];
        start_users(&shared, users);
        is_in_time = is_closed_in_time(a);
        for (size_t j = 0; j < USERS; j++)
            pthread_join(users[j], NULL);
        hf_hold_free(shared.hold);
        status = attempt(b, name, as_exclusive(0));
    }
    CHECK_IS(status, HF_OK);
}

/* ---- Callbacks ---------------------------------------------------------------------------- */

struct callback {
    hf_client *client;
    const char *name;
    atomic_bool has_begun, has_ended, may_end;
    hf_hold *regained;
    int released;
    pthread_t thread;
};

/* Frees the hold that it is called for, and gets the lock again: callbacks may block. */
static void regain(hf_hold *hold, void *arg) {
    struct callback *callback = arg;
    callback->released = hf_release(hold);
    hf_hold_free(hold);
    hf_acquire_options options = as_exclusive(HF_FOREVER);
    CHECK_IS(hf_acquire(callback->client, callback->name, &options, &callback->regained), HF_OK);
    atomic_store(&callback->has_ended, true);
}

BOTH_FORMS(a_callback_may_free_its_hold_and_call_the_library) {
    hf_client *a = open_client();
    struct callback callback = {.client = a, .name = fresh_name("regain")};
    hf_acquire_options options = for_only(as_exclusive(0), 200);
    options.on_lost = regain;
    options.on_lost_arg = &callback;
    hf_hold *hold = get(a, callback.name, options);
    (void)hold; /* it belongs to the callback */
    AWAIT(atomic_load(&callback.has_ended));
    CHECK_IS(callback.released, HF_LOST);
    CHECK_IS(hf_check(callback.regained, 0), HF_OK);
    let_go(callback.regained);
}

static void take_long(hf_hold *hold, void *arg) {
    (void)hold;
    struct callback *callback = arg;
    callback->thread = pthread_self();
    atomic_store(&callback->has_begun, true);
    AWAIT(atomic_load(&callback->may_end));
    atomic_store(&callback->has_ended, true);
}

static void *allow_soon(void *arg) {
    struct callback *callback = arg;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* so that the free starts to wait */
    atomic_store(&callback->may_end, true);
    return NULL;
}

TEST(freeing_a_hold_waits_for_its_callback) {
    hf_client *a = open_client();
    struct callback callback = {0};
    hf_acquire_options options = for_only(as_exclusive(0), 200);
    options.on_lost = take_long;
    options.on_lost_arg = &callback;
    hf_hold *hold = get(a, fresh_name("callback"), options);
    AWAIT(atomic_load(&callback.has_begun));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allow_soon, &callback) == 0);
    hf_hold_free(hold);
    CHECK(atomic_load(&callback.has_ended));
    CHECK(!pthread_equal(callback.thread, pthread_self()));
    pthread_join(thread, NULL);
}

/* (If the machine is too slow to renew in time, it tries again: a callback that stops renewals
 * stops them each time.) */
TEST(a_callback_that_blocks_does_not_stop_the_renewal_of_others) {
    hf_client *a = open_client();
    int status = HF_LOST;
    for (int i = 0; status == HF_LOST && may_try(i, TRIES); i++) {
        struct callback callback = {0};
        hf_acquire_options options = for_only(as_exclusive(0), 200);
        options.on_lost = take_long;
        options.on_lost_arg = &callback;
        hf_hold *ends = get(a, fresh_name("ends"), options);
        hf_acquire_options short_lease = as_exclusive(0);
        short_lease.lease_ms = LEASE_MS;
        hf_hold *kept = get(a, fresh_name("kept"), short_lease);
        AWAIT(atomic_load(&callback.has_begun));
        int64_t until = now_ms() + 3 * LEASE_MS / 2;
        AWAIT(now_ms() > until);
        status = hf_check(kept, 0);
        atomic_store(&callback.may_end, true);
        hf_hold_free(ends);
        hf_hold_free(kept);
    }
    CHECK_IS(status, HF_OK);
}

TEST(callbacks_run_in_hf_process_once_hf_fd_was_asked_for) {
    hf_client *a = open_client();
    int fd = hf_fd(a); /* before there is anything to lose */
    CHECK(fd >= 0);
    struct callback callback = {.may_end = true};
    hf_acquire_options options = for_only(as_exclusive(0), 200);
    options.on_lost = take_long;
    options.on_lost_arg = &callback;
    hf_hold *hold = get(a, fresh_name("process"), options);
    AWAIT(hf_check(hold, 0) == HF_LOST);
    CHECK(!atomic_load(&callback.has_begun));
    while (!atomic_load(&callback.has_ended)) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        CHECK_EQ_INT(poll(&poll_fd, 1, PATIENCE_MS), 1);
        CHECK_IS(hf_process(a), HF_OK);
    }
    CHECK(pthread_equal(callback.thread, pthread_self()));
    hf_hold_free(hold);
}
