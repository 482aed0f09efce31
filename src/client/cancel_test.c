/* Threads whose calls are cancelled by hf_client_cancel, and threads that end where they should
 * not: cancelled while they wait in the library, or ended by the callback that they run. Everything
 * else goes on: holds are renewed, losses are reported, clients close. */
#include "store/sqlite/sqlite_test.h"

#include <pthread.h>

static hf_client *open_memory(void) {
    hf_client *client = NULL;
    CHECK_IS(hf_client_open("memory:cancel", NULL, &client), HF_OK);
    return client;
}

static hf_client *(*const openers[])(void) = {open_memory, open_client};

enum { TRIES = 5 };

/* Releases a hold that must have been renewed. False if it was not, perhaps because the machine is
 * too slow: then it is tried again. A hold that nobody renews is lost each time. */
static bool release_renewed(hf_hold *hold, int tries) {
    int r = hf_check(hold, 0);
    if (!r)
        r = hf_release(hold);
    hf_hold_free(hold);
    if (r == HF_LOST && tries < TRIES)
        return false;
    CHECK_IS(r, HF_OK);
    return true;
}

/* ---- A thread that waits ---- */

struct thread {
    hf_client *client;
    const char *name;
    int64_t wait_ms;
    hf_call *call;
    int result;
    pthread_t id;
};

/* Waits for the lock in a call that blocks; the thread may be cancelled before and after, not in
 * it. */
static void *acquire_and_release(void *arg) {
    struct thread *thread = arg;
    hf_acquire_options options = lasting(thread->wait_ms, LONG_MS);
    hf_hold *hold = NULL;
    thread->result = hf_acquire(thread->client, thread->name, &options, &hold);
    if (hold)
        thread->result = hf_release(hold);
    hf_hold_free(hold);
    pthread_testcancel();
    return NULL;
}

static void start_waiting(struct thread *thread) {
    size_t before = waiters(thread->client, thread->name);
    CHECK(pthread_create(&thread->id, NULL, acquire_and_release, thread) == 0);
    AWAIT(waiters(thread->client, thread->name) == before + 1);
    AWAIT(sleeps_of_others() >= 0);
}

/* ---- hf_client_cancel ---- */

TEST(cancelling_a_client_ends_the_calls_that_its_threads_are_in) {
    enum { THREADS = 5 };
    for (size_t i = 0; i < 2; i++) {
        hf_client *client = openers[i](), *other = openers[i]();
        hf_hold *held = get_now(client, "held");
        hf_hold *awaited = get_now(other, "awaited");
        struct thread threads[THREADS];
        for (size_t j = 0; j < THREADS; j++) {
            threads[j] = (struct thread){client, "awaited", HF_FOREVER, NULL, 0, 0};
            start_waiting(&threads[j]);
        }
        CHECK_IS(hf_client_cancel(client), HF_OK);
        for (size_t j = 0; j < THREADS; j++) {
            CHECK(pthread_join(threads[j].id, NULL) == 0);
            CHECK_IS(threads[j].result, HF_CANCELLED);
        }
        AWAIT(waiters(other, "awaited") == 0);
        CHECK_IS(hf_check(held, 0), HF_OK);
        /* Calls that start later are not affected. */
        CHECK_IS(hf_release(awaited), HF_OK);
        hf_hold *again = get(client, "awaited", lasting(HF_FOREVER, LONG_MS));
        CHECK_IS(hf_release(again), HF_OK);
        hf_hold_free(again);
        hf_hold_free(awaited);
        hf_hold_free(held);
        hf_client_close(client);
        hf_client_close(other);
    }
}

TEST(cancelling_a_client_ends_the_calls_of_its_loop) {
    for (size_t i = 0; i < 2; i++) {
        hf_client *client = openers[i](), *other = openers[i]();
        hf_hold *held = get_now(other, "held"), *also = get_now(other, "also");
        hf_want wants[] = {HF_WANT_INIT, HF_WANT_INIT};
        hf_acquire_options options = lasting(HF_FOREVER, LONG_MS);
        hf_call *calls[2];
        wants[0].name = "free";
        wants[1].name = "held";
        CHECK_IS(hf_acquire_all_start(client, (const hf_want *const[]){&wants[0], &wants[1]}, 2,
                                      &options, &calls[0]),
                 HF_OK);
        CHECK_IS(hf_acquire_start(client, "also", &options, &calls[1]), HF_OK);
        for (size_t j = 0; j < 2; j++)
            CHECK_IS(hf_call_queue(calls[j], NULL), HF_OK);
        AWAIT(waiters(other, "held") == 1 && waiters(other, "also") == 1);
        CHECK_IS(hf_client_cancel(client), HF_OK);
        for (size_t j = 0; j < 2; j++) {
            hf_call *call = hf_call_next(client); /* at once, without a loop */
            CHECK(call);
            CHECK_IS(hf_call_status(call), HF_CANCELLED);
            hf_call_free(call);
        }
        CHECK_IS(hf_client_cancel(client), HF_OK); /* there is nothing to cancel */
        hf_hold_free(get(other, "free", lasting(HF_FOREVER, LONG_MS)));
        hf_hold_free(held);
        hf_hold_free(also);
        hf_client_close(client);
        hf_client_close(other);
    }
    CHECK_IS(hf_client_cancel(NULL), HF_BAD_ARGUMENT);
}

/* ---- Cancelled ---- */

static void check_cancelled(pthread_t thread) {
    void *ended = NULL;
    CHECK(pthread_join(thread, &ended) == 0);
    CHECK(ended == PTHREAD_CANCELED);
}

TEST(a_cancelled_waiter_finishes_its_call_and_stops_no_renewal) {
    int tries = 0;
    for (size_t i = 0; i < 2;) {
        hf_client *client = openers[i]();
        hf_hold *renewed = get(client, "renewed", lasting(0, LEASE_MS));
        hf_hold *held = get_now(client, "awaited");
        struct thread waits = {.client = client, .name = "awaited", .wait_ms = HF_FOREVER};
        start_waiting(&waits); /* it drives, for all threads */
        CHECK(pthread_cancel(waits.id) == 0);
        pause_ms(LEASE_MS * 2);
        i += release_renewed(renewed, ++tries);
        let_go(held);
        check_cancelled(waits.id);
        CHECK_IS(waits.result, HF_OK); /* it got the lock and released it */
        CHECK_IS(attempt(client, "awaited"), HF_OK);
        hf_client_close(client);
    }
}

static void *wait_for_call(void *arg) {
    struct thread *thread = arg;
    thread->result = hf_call_wait(thread->call, thread->wait_ms);
    pthread_testcancel();
    return NULL;
}

TEST(of_threads_that_wait_for_one_call_any_can_be_cancelled) {
    for (size_t i = 0; i < 2; i++) {
        hf_client *client = openers[i]();
        hf_hold *held = get_now(client, "awaited");
        hf_acquire_options options = lasting(HF_FOREVER, LONG_MS);
        hf_call *call = NULL;
        CHECK_IS(hf_acquire_start(client, "awaited", &options, &call), HF_OK);
        struct thread threads[3];
        for (size_t t = 0; t < 3; t++) {
            threads[t] = (struct thread){.call = call, .wait_ms = t == 1 ? LONG_MS : HF_FOREVER};
            CHECK(pthread_create(&threads[t].id, NULL, wait_for_call, &threads[t]) == 0);
        }
        AWAIT(sleeps_of_others() >= 0);
        pthread_cancel(threads[0].id);
        pthread_cancel(threads[1].id);
        let_go(held);
        check_cancelled(threads[0].id);
        check_cancelled(threads[1].id);
        CHECK(pthread_join(threads[2].id, NULL) == 0);
        for (size_t t = 0; t < 3; t++)
            CHECK_IS(threads[t].result, HF_OK);
        hf_call_free(call);
        hf_client_close(client);
    }
}

/* Busy threads are cancelled in the middle of whatever they do. */
static void *use_all_the_time(void *arg) {
    struct thread *thread = arg;
    for (;;)
        acquire_and_release(thread);
    return NULL;
}

TEST(threads_are_cancelled_at_any_time_and_nothing_stays_locked) {
    int tries = 0;
    for (size_t i = 0; i < 2;) {
        hf_client *client = openers[i]();
        hf_hold *renewed = get(client, "renewed", lasting(0, LEASE_MS));
        struct thread stays = {.client = client, .name = "busy", .wait_ms = HF_FOREVER};
        CHECK(pthread_create(&stays.id, NULL, use_all_the_time, &stays) == 0);
        for (int round = 0; round < 100; round++) {
            struct thread thread = {.client = client, .name = "busy", .wait_ms = HF_FOREVER};
            CHECK(pthread_create(&thread.id, NULL, use_all_the_time, &thread) == 0);
            nanosleep(&(struct timespec){.tv_nsec = round * 30000}, NULL);
            pthread_cancel(thread.id);
            check_cancelled(thread.id);
        }
        pthread_cancel(stays.id);
        check_cancelled(stays.id);
        i += release_renewed(renewed, ++tries);
        CHECK_IS(attempt(client, "busy"), HF_OK);
        hf_client_close(client);
    }
}

/* ---- Ended by a callback ---- */

static atomic_int calls;

static void end_thread(hf_hold *hold, void *arg) {
    (void)hold;
    (void)arg;
    atomic_fetch_add(&calls, 1);
    pthread_exit(NULL);
}

static void end_thread_too(hf_call *call, void *arg) {
    (void)call;
    end_thread(NULL, arg);
}

static void end_thread_at_losses(const hf_event *event, void *arg) {
    if (event->type == HF_EVENT_LOST)
        end_thread(NULL, arg);
}

static hf_hold *get_breakable(hf_client *client, const char *name) {
    hf_acquire_options options = lasting(0, LONG_MS);
    options.on_lost = end_thread;
    return get(client, name, options);
}

TEST(a_callback_that_ends_its_thread_stops_no_other_callback) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.on_event = end_thread_at_losses;
    hf_client *client = NULL;
    CHECK_IS(hf_client_open("memory:cancel", &options, &client), HF_OK);
    for (int i = 1; i <= 5; i++) {
        hf_hold *hold = get_breakable(client, "broken");
        CHECK_IS(hf_break(client, "broken", hf_hold_token(hold), NULL), HF_OK);
        AWAIT(atomic_load(&calls) == 2 * i); /* on_lost and on_event */
        hf_hold_free(hold);
    }
    hf_client_close(client);
}

/* Until a callback ends the thread. */
static void *process(void *client) {
    struct pollfd poll_fd = {.fd = hf_fd(client), .events = POLLIN};
    for (;;) {
        CHECK_EQ_INT(poll(&poll_fd, 1, PATIENCE_MS), 1);
        CHECK_IS(hf_process(client), HF_OK);
    }
}

TEST(a_callback_that_ends_the_thread_in_hf_process_stops_no_other_callback) {
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&calls, 0);
        hf_client *client = openers[i]();
        CHECK(hf_fd(client) >= 0);
        hf_hold *hold = get_breakable(client, "broken");
        hf_call *call = NULL;
        CHECK_IS(hf_break_start(client, "broken", hf_hold_token(hold), NULL, &call), HF_OK);
        CHECK_IS(hf_call_notify(call, end_thread_too, NULL), HF_OK);
        for (int done = 1; done <= 2; done++) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, process, client) == 0);
            pthread_join(thread, NULL);
            CHECK_EQ_INT(atomic_load(&calls), done);
        }
        hf_hold_free(hold);
        hf_call_free(call);
        hf_client_close(client);
    }
}
