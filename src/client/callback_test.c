/* The program's callbacks. They may call the library, free their own object and block for as long
 * as they like; locks are still renewed. Once an object is freed, its callback is not running. */
#include "check.h"

#include <holdfast/holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { PATIENCE_MS = 30000 };

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int64_t await_until = now_ms() + PATIENCE_MS; !(condition); sleep_ms(1))          \
            if (now_ms() > await_until)                                                        \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

static hf_client *open_client(void) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:callbacks", NULL, &client), HF_OK);
    return client;
}

static hf_acquire_options with_wait(int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return options;
}

static hf_hold *get(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *hold = NULL;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

/* What a test's callback must do, and what it did. */
struct story {
    hf_client *client;
    hf_hold *hold;
    pthread_mutex_t mutex; /* the test holds it while the callback must block */
    atomic_int began, ended;
    bool frees;
};

static hf_acquire_options telling(void (*on_lost)(hf_hold *, void *), struct story *story) {
    hf_acquire_options options = with_wait(PATIENCE_MS);
    options.on_lost = on_lost;
    options.on_lost_arg = story;
    return options;
}

static void break_hold(hf_client *client, hf_hold *hold) {
    CHECK_EQ_INT(hf_break(client, hf_hold_name(hold), hf_hold_token(hold), NULL), HF_OK);
}

static void block(hf_hold *hold, void *arg) {
    struct story *story = arg;
    CHECK_EQ_INT(hf_check(hold, 0), HF_LOST);
    atomic_fetch_add(&story->began, 1);
    pthread_mutex_lock(&story->mutex);
    pthread_mutex_unlock(&story->mutex);
    if (story->frees)
        hf_hold_free(hold);
    atomic_fetch_add(&story->ended, 1);
}

/* (It is tried again if the machine was too slow to renew in time: a hold that nobody renews is
 * lost each time.) */
TEST(a_callback_that_blocks_stops_no_renewal) {
    enum { TRIES = 5 };
    hf_client *a = open_client(), *b = open_client();
    int r = HF_LOST;
    for (int i = 0; i < TRIES && r == HF_LOST; i++) {
        struct story story = {.mutex = PTHREAD_MUTEX_INITIALIZER, .frees = true};
        hf_acquire_options brief = with_wait(PATIENCE_MS);
        brief.lease_ms = 3000;
        hf_hold *kept = get(a, "kept", brief), *lost = get(a, "lost", telling(block, &story));
        pthread_mutex_lock(&story.mutex);
        break_hold(b, lost);
        AWAIT(atomic_load(&story.began) == 1);
        int64_t until_ms = now_ms() + 4500;
        while ((r = hf_check(kept, 0)) == HF_OK && now_ms() < until_ms)
            sleep_ms(100);
        CHECK_EQ_INT(atomic_load(&story.ended), 0);
        pthread_mutex_unlock(&story.mutex);
        AWAIT(atomic_load(&story.ended) == 1);
        if (r == HF_OK)
            r = hf_release(kept);
        hf_hold_free(kept);
    }
    CHECK_EQ_INT(r, HF_OK);
    hf_client_close(a);
    hf_client_close(b);
}

/* ---- Freeing ---- */

static void *free_it(void *arg) {
    struct story *story = arg;
    hf_hold_free(story->hold);
    CHECK_EQ_INT(atomic_load(&story->ended), 1);
    return NULL;
}

TEST(freeing_a_hold_waits_for_its_callback) {
    struct story story = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    hf_client *a = open_client(), *b = open_client();
    story.hold = get(a, "x", telling(block, &story));
    pthread_mutex_lock(&story.mutex);
    break_hold(b, story.hold);
    AWAIT(atomic_load(&story.began) == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_it, &story) == 0);
    sleep_ms(100);
    CHECK_EQ_INT(atomic_load(&story.ended), 0);
    pthread_mutex_unlock(&story.mutex);
    pthread_join(thread, NULL);
    hf_client_close(a);
    hf_client_close(b);
}

/* Callbacks run one at a time: while one blocks, the next is dropped with its hold and never
 * runs. */
TEST(a_freed_hold_gets_no_callback) {
    struct story first = {.mutex = PTHREAD_MUTEX_INITIALIZER, .frees = true};
    struct story second = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    hf_client *a = open_client(), *b = open_client();
    hf_hold *x = get(a, "x", telling(block, &first)), *y = get(a, "y", telling(block, &second));
    pthread_mutex_lock(&first.mutex);
    break_hold(b, x);
    AWAIT(atomic_load(&first.began) == 1);
    break_hold(b, y);
    AWAIT(hf_check(y, 0) == HF_LOST);
    hf_hold_free(y);
    pthread_mutex_unlock(&first.mutex);
    AWAIT(atomic_load(&first.ended) == 1);
    hf_client_close(a);
    CHECK_EQ_INT(atomic_load(&second.began), 0);
    hf_client_close(b);
}

/* A callback frees its object and goes on. A new object at the same address is another one. */
struct reuse {
    hf_client *client, *breaker;
    hf_call *next;
    atomic_bool was_freed;
    atomic_int told;
};

static void *free_next(void *arg) {
    struct reuse *reuse = arg;
    hf_call_free(reuse->next);
    atomic_store(&reuse->was_freed, true);
    return NULL;
}

static void free_and_wait_for_another(hf_call *call, void *arg) {
    struct reuse *reuse = arg;
    hf_call_free(call);
    pthread_t thread;
    CHECK_EQ_INT(hf_acquire_start(reuse->client, "next", NULL, &reuse->next), HF_OK);
    CHECK(pthread_create(&thread, NULL, free_next, reuse) == 0);
    AWAIT(atomic_load(&reuse->was_freed));
    pthread_join(thread, NULL);
    atomic_fetch_add(&reuse->told, 1);
}

TEST(freeing_waits_for_no_other_objects_callback) {
    struct reuse reuse = {.client = open_client()};
    for (int i = 0; i < 20; i++) {
        atomic_store(&reuse.was_freed, false);
        hf_call *call;
        CHECK_EQ_INT(hf_inspect_start(reuse.client, "x", &call), HF_OK);
        CHECK_EQ_INT(hf_call_notify(call, free_and_wait_for_another, &reuse), HF_OK);
        AWAIT(atomic_load(&reuse.told) == i + 1);
    }
    hf_client_close(reuse.client);
}

/* ---- Calling back into the library ---- */

static void take_again(hf_hold *hold, void *arg) {
    struct story *story = arg;
    CHECK_EQ_INT(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(story->client, "x", &locks), HF_OK);
    hf_locks_free(locks);
    story->hold = get(story->client, "x", telling(take_again, story));
    atomic_fetch_add(&story->began, 1);
}

TEST(a_callback_may_take_the_lock_again) {
    struct story story = {.client = open_client()};
    hf_client *b = open_client();
    story.hold = get(story.client, "x", telling(take_again, &story));
    for (int i = 1; i <= 30; i++) {
        hf_hold *hold = story.hold;
        CHECK_EQ_INT(hf_break(b, "x", hf_hold_token(hold), NULL), HF_OK);
        AWAIT(atomic_load(&story.began) == i);
    }
    CHECK_EQ_INT(hf_release(story.hold), HF_OK);
    hf_hold_free(story.hold);
    hf_client_close(story.client);
    hf_client_close(b);
}

static void release_and_free(hf_call *call, void *arg) {
    struct story *story = arg;
    CHECK_EQ_INT(hf_call_status(call), HF_OK);
    hf_hold *hold = hf_call_take_hold(call);
    hf_call_free(call);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
    atomic_fetch_add(&story->ended, 1);
}

TEST(a_thousand_calls_are_freed_in_their_callbacks) {
    enum { COUNT = 1000 };
    struct story story = {.client = open_client()};
    hf_client *b = open_client();
    hf_hold *hold = get(b, "x", with_wait(0));
    for (int i = 0; i < COUNT; i++) {
        hf_call *call;
        CHECK_EQ_INT(hf_acquire_start(story.client, "x", NULL, &call), HF_OK);
        CHECK_EQ_INT(hf_call_notify(call, release_and_free, &story), HF_OK);
    }
    hf_hold_free(hold);
    AWAIT(atomic_load(&story.ended) == COUNT);
    hf_client_close(story.client);
    hf_client_close(b);
}

static void count_closed(hf_call *call, void *arg) {
    struct story *story = arg;
    CHECK_EQ_INT(hf_call_status(call), HF_CLOSED);
    hf_hold *hold;
    hf_acquire_options options = with_wait(0);
    CHECK_EQ_INT(hf_acquire(story->client, "y", &options, &hold), HF_CLOSED);
    hf_call_free(call);
    sleep_ms(5);
    atomic_fetch_add(&story->ended, 1);
}

/* Closing runs the callbacks that are left before it returns. */
TEST(closing_waits_for_the_callbacks) {
    struct story story = {.client = open_client()};
    hf_client *b = open_client();
    hf_hold *hold = get(b, "x", with_wait(0));
    for (int i = 0; i < 10; i++) {
        hf_call *call;
        CHECK_EQ_INT(hf_acquire_start(story.client, "x", NULL, &call), HF_OK);
        CHECK_EQ_INT(hf_call_notify(call, count_closed, &story), HF_OK);
    }
    hf_client_close(story.client);
    CHECK_EQ_INT(atomic_load(&story.ended), 10);
    hf_hold_free(hold);
    hf_client_close(b);
}

/* ---- In the program's loop ---- */

static void note_thread(hf_hold *hold, void *arg) {
    struct story *story = arg;
    (void)hold;
    CHECK(pthread_equal(*(pthread_t *)(void *)story->client, pthread_self()));
    atomic_fetch_add(&story->began, 1);
}

TEST(after_hf_fd_callbacks_run_in_hf_process_only) {
    pthread_t self = pthread_self();
    struct story story = {.client = (hf_client *)(void *)&self};
    hf_client *a = open_client(), *b = open_client();
    struct pollfd fd = {.fd = hf_fd(a), .events = POLLIN};
    CHECK(fd.fd >= 0);
    hf_hold *hold = get(a, "x", telling(note_thread, &story));
    break_hold(b, hold);
    AWAIT(hf_check(hold, 0) == HF_LOST); /* the standby thread noticed */
    sleep_ms(20);
    CHECK_EQ_INT(atomic_load(&story.began), 0);
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
    CHECK_EQ_INT(hf_process(a), HF_OK);
    CHECK_EQ_INT(atomic_load(&story.began), 1);
    hf_hold_free(hold);
    hf_client_close(a);
    hf_client_close(b);
}

static void *process_too(void *arg) {
    struct story *story = arg;
    while (atomic_load(&story->ended) < 200) {
        struct pollfd fd = {.fd = hf_fd(story->client), .events = POLLIN};
        poll(&fd, 1, 10);
        CHECK_EQ_INT(hf_process(story->client), HF_OK);
    }
    return NULL;
}

TEST(two_threads_may_process_one_client) {
    struct story story = {.client = open_client()};
    CHECK(hf_fd(story.client) >= 0);
    for (int i = 0; i < 200; i++) {
        hf_call *call;
        CHECK_EQ_INT(hf_acquire_start(story.client, "x", NULL, &call), HF_OK);
        CHECK_EQ_INT(hf_call_notify(call, release_and_free, &story), HF_OK);
    }
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, process_too, &story) == 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    hf_client_close(story.client);
}

static void process_in_callback(hf_call *call, void *arg) {
    struct story *story = arg;
    hf_call_free(call);
    CHECK_EQ_INT(hf_process(story->client), HF_OK); /* does nothing: one callback at a time */
    atomic_fetch_add(&story->ended, 1);
}

TEST(a_callback_may_call_hf_process) {
    struct story story = {.client = open_client()};
    CHECK(hf_fd(story.client) >= 0);
    for (int i = 0; i < 3; i++) {
        hf_call *call;
        CHECK_EQ_INT(hf_inspect_start(story.client, "x", &call), HF_OK);
        CHECK_EQ_INT(hf_call_notify(call, process_in_callback, &story), HF_OK);
    }
    CHECK_EQ_INT(hf_process(story.client), HF_OK);
    CHECK_EQ_INT(atomic_load(&story.ended), 3);
    hf_client_close(story.client);
}
