/* A watch as a program uses it: on_change may free its watch and end its thread, a program that
 * does not keep up is notified, and once a watch is freed, on_change does not run. */
#include "check.h"

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { PATIENCE_MS = 30000, MANY = 6000 /* pairs: more changes than may wait */ };

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int await_ms = 0; !(condition); await_ms++, sleep_ms(1))                          \
            if (await_ms > PATIENCE_MS)                                                        \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

static hf_client *open_client(void) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:watched", NULL, &client), HF_OK);
    return client;
}

static void take_and_release(hf_client *client, const char *name) {
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(client, name, NULL, &hold), HF_OK);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
}

/* What a test's callback must do, and what it saw. */
struct story {
    hf_call *_Atomic call;
    atomic_int seen, changes, missed, watching;
    atomic_bool blocks, is_blocked;
    bool frees, exits;
    hf_change_type last;
    uint64_t token;
    bool in_order;
};

static void see(const hf_change *change, void *arg) {
    struct story *story = arg;
    if (change->lock) {
        story->in_order &= change->party->token >= story->token;
        story->token = change->party->token;
        story->changes++;
    }
    story->missed += change->type == HF_CHANGE_MISSED;
    story->watching += change->type == HF_CHANGE_WATCHING;
    story->last = change->type;
    while (story->blocks) {
        story->is_blocked = true;
        sleep_ms(1);
    }
    if (story->frees && change->lock)
        hf_call_free(atomic_exchange(&story->call, NULL));
    story->seen++;
    if (story->exits)
        pthread_exit(NULL);
}

static void watch(hf_client *client, const char *prefix, struct story *story) {
    hf_call *call;
    story->in_order = true;
    CHECK_EQ_INT(hf_watch_start(client, prefix, see, story, &call), HF_OK);
    story->call = call;
}

TEST(a_program_that_does_not_keep_up_is_notified) {
    static struct story story;
    hf_client *a = open_client(), *watching = open_client();
    CHECK(hf_fd(watching) >= 0); /* so changes are reported only in hf_process */
    watch(watching, "x", &story);
    for (int i = 0; i < MANY; i++)
        take_and_release(a, "x");
    AWAIT(hf_process(watching) == HF_OK && story.missed);
    CHECK_EQ_INT(story.missed, 1);
    CHECK_EQ_INT(story.last, HF_CHANGE_WATCHING);
    CHECK(story.changes >= 9999 && story.changes < 2 * MANY && story.in_order);
    int before = story.changes;
    take_and_release(a, "x");
    AWAIT(hf_process(watching) == HF_OK && story.changes == before + 2);
    CHECK_EQ_INT(story.missed, 1);
    hf_call_free(story.call);
    hf_client_close(watching);
    hf_client_close(a);
}

TEST(on_change_may_free_its_watch) {
    static struct story story = {.frees = true};
    hf_client *a = open_client(), *watching = open_client();
    watch(watching, "x", &story);
    AWAIT(story.watching);
    take_and_release(a, "x");
    AWAIT(story.changes && !story.call);
    take_and_release(a, "x");
    hf_client_close(watching);
    CHECK_EQ_INT(story.changes, 1);
    hf_client_close(a);
}

TEST(on_change_may_end_its_thread) {
    static struct story story = {.exits = true};
    hf_client *a = open_client(), *watching = open_client();
    watch(watching, "x", &story);
    AWAIT(story.watching);
    take_and_release(a, "x");
    AWAIT(story.changes == 2);
    hf_call_free(story.call);
    hf_client_close(watching);
    hf_client_close(a);
}

static void *free_watch(void *arg) {
    struct story *story = arg;
    hf_call_free(story->call);
    story->frees = true;
    return NULL;
}

TEST(once_a_watch_is_freed_on_change_does_not_run) {
    static struct story story = {.blocks = true};
    hf_client *a = open_client(), *watching = open_client();
    pthread_t thread;
    watch(watching, "x", &story);
    AWAIT(story.is_blocked);
    take_and_release(a, "x"); /* what waits is dropped */
    CHECK_EQ_INT(pthread_create(&thread, NULL, free_watch, &story), 0);
    sleep_ms(50);
    CHECK(!story.frees); /* it waits for the callback */
    story.blocks = false;
    CHECK_EQ_INT(pthread_join(thread, NULL), 0);
    CHECK_EQ_INT(story.seen, 1);
    take_and_release(a, "x");
    sleep_ms(50);
    CHECK_EQ_INT(story.seen, 1);
    hf_client_close(watching);
    hf_client_close(a);
}

TEST(watching_needs_a_function_a_prefix_that_can_be_one_and_a_call) {
    static struct story story;
    hf_client *a = open_client();
    hf_call *call = NULL;
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK_EQ_INT(hf_watch_start(a, "x", NULL, NULL, &call), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_watch_start(a, "x", see, &story, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_watch_start(NULL, "x", see, &story, &call), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_watch_start(a, long_name, see, &story, &call), HF_BAD_NAME);
    CHECK(call == NULL && story.seen == 0);
    hf_client_close(a);
}
