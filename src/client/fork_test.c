/* A fork in the middle of everything. In the child, calls on handles return HF_FORKED, whatever the
 * parent's threads were doing; freeing a handle only frees memory; and the child may open clients
 * of its own. FAILURES.md 39. */
#include "support/fork_safely.h"

#include <dirent.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* TSan refuses threads in the child of a process with threads, unless told otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

enum { CHILD_PATIENCE_S = 30 };

static hf_client *open_client(void) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("memory:fork", NULL, &client), HF_OK);
    return client;
}

static hf_hold *get(hf_client *client, const char *name) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    hf_hold *hold = NULL;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

static void check_child(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        test_fail(__FILE__, __LINE__, "the child was ended by %s", strsignal(WTERMSIG(status)));
    CHECK_EQ_INT(status, 0);
}

static pid_t started(pid_t child) {
    CHECK(child >= 0);
    if (child == 0)
        alarm(CHILD_PATIENCE_S);
    return child;
}

static int count_fds(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* ---- Threads that do something all the time ---- */

struct busy {
    hf_client *client;
    atomic_bool stop;
    pthread_t threads[4];
};

static void *acquire_and_release(void *arg) {
    struct busy *busy = arg;
    while (!atomic_load(&busy->stop)) {
        hf_hold *hold;
        CHECK_EQ_INT(hf_acquire(busy->client, "busy", NULL, &hold), HF_OK);
        hf_hold_free(hold);
    }
    return NULL;
}

static void *open_and_close(void *arg) {
    struct busy *busy = arg;
    while (!atomic_load(&busy->stop))
        hf_client_close(open_client());
    return NULL;
}

static void start(struct busy *busy, void *(*work)(void *)) {
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&busy->threads[i], NULL, work, busy) == 0);
}

static void stop(struct busy *busy) {
    atomic_store(&busy->stop, true);
    for (size_t i = 0; i < 4; i++)
        pthread_join(busy->threads[i], NULL);
}

/* Sanitizers do not support threads in the child of a process with threads. TSan takes the child's
 * threads for the parent's and stops, and the allocators of both may be left locked by a thread
 * that does not exist in the child. So this program also runs without them. */
#ifdef __SANITIZE_THREAD__
enum { CHILD_MAY_HAVE_THREADS = false };
#else
enum { CHILD_MAY_HAVE_THREADS = true };
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHILD_MAY_ALLOCATE = false };
#else
enum { CHILD_MAY_ALLOCATE = true };
#endif

static void use_own_client(void) {
    hf_client *own = open_client();
    if (!CHILD_MAY_HAVE_THREADS) {
        hf_client_close(own);
        return;
    }
    hf_hold *hold = get(own, "busy");
    CHECK_EQ_INT(hf_check(hold, 0), HF_OK);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    hf_hold_free(hold);
    hf_client_close(own);
}

TEST(a_child_of_busy_threads_answers_and_opens_its_own) {
    struct busy busy = {.client = open_client()};
    hf_hold *held = get(busy.client, "held");
    start(&busy, acquire_and_release);
    for (int i = 0; i < 40; i++) {
        pid_t child = started(fork());
        if (child == 0) {
            hf_hold *hold;
            CHECK_EQ_INT(hf_check(held, 0), HF_FORKED);
            CHECK_EQ_INT(hf_acquire(busy.client, "busy", NULL, &hold), HF_FORKED);
            CHECK_EQ_INT(hf_process(busy.client), HF_FORKED);
            if (!CHILD_MAY_ALLOCATE)
                _exit(0);
            hf_hold_free(held);
            hf_client_close(busy.client);
            use_own_client();
            _exit(0);
        }
        check_child(child);
    }
    CHECK_EQ_INT(hf_check(held, 0), HF_OK);
    stop(&busy);
    hf_hold_free(held);
    hf_client_close(busy.client);
}

/* The list of memory spaces has its own mutex, which another thread may hold at the moment of the
 * fork. */
TEST(a_child_opens_while_the_parents_threads_open_and_close) {
    struct busy busy = {0};
    /* A fork of a sanitizer's memory takes long, and such a child does nothing. */
    int children = CHILD_MAY_ALLOCATE ? 200 : 10;
    start(&busy, open_and_close);
    for (int i = 0; i < children; i++) {
        pid_t child = started(fork());
        if (child == 0) {
            if (CHILD_MAY_ALLOCATE)
                hf_client_close(open_client());
            _exit(0);
        }
        check_child(child);
    }
    stop(&busy);
}

/* ---- What is freed in the child ---- */

/* The child ends with exit, where LeakSanitizer looks for what was lost. */
TEST(a_child_that_frees_its_handles_loses_no_memory) {
    int before = count_fds();
    hf_client *a = open_client();
    hf_hold *one = get(a, "one");
    CHECK(hf_hold_fd(one) >= 0);
    CHECK(strlen(hf_hold_owner(one)) > 0);
    hf_hold *again, *several;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.flags = HF_REENTRANT;
    hf_hold *first;
    CHECK_EQ_INT(hf_acquire(a, "again", &options, &first), HF_OK);
    CHECK_EQ_INT(hf_acquire(a, "again", &options, &again), HF_OK);
    const hf_want want[2] = {{sizeof(hf_want), "two", HF_EXCLUSIVE, 1, 1},
                             {sizeof(hf_want), "three", HF_EXCLUSIVE, 1, 1}};
    const hf_want *const wants[] = {&want[0], &want[1]};
    CHECK_EQ_INT(hf_acquire_all(a, wants, 2, NULL, &several), HF_OK);
    hf_call *waits, *granted, *looked;
    CHECK_EQ_INT(hf_acquire_start(a, "one", NULL, &waits), HF_OK);
    CHECK_EQ_INT(hf_acquire_start(a, "four", NULL, &granted), HF_OK);
    CHECK_EQ_INT(hf_call_wait(granted, HF_FOREVER), HF_OK);
    CHECK_EQ_INT(hf_list_start(a, "", NULL, 10, &looked), HF_OK);
    CHECK_EQ_INT(hf_call_wait(looked, HF_FOREVER), HF_OK);
    CHECK(hf_fd(a) >= 0);
    pid_t child = started(fork_safely());
    if (child == 0) {
        hf_call_free(waits);
        hf_call_free(granted);
        hf_call_free(looked);
        hf_hold_free(one);
        hf_hold_free(first);
        hf_hold_free(again);
        hf_hold_free(several);
        hf_client_close(a);
        CHECK_EQ_INT(count_fds(), before);
        exit(0);
    }
    check_child(child);
    hf_call_free(waits);
    hf_call_free(granted);
    hf_call_free(looked);
    hf_hold_free(one);
    hf_hold_free(first);
    hf_hold_free(again);
    hf_hold_free(several);
    hf_client_close(a);
    CHECK_EQ_INT(count_fds(), before);
}

/* The parent's descriptors are not disturbed: its epoll set is the same object as the child's
 * copy. Returns how the parent's hold ended: HF_OK if it was renewed. */
static int fork_and_close(hf_client *a, hf_client *b) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 3000;
    hf_hold *hold, *other;
    CHECK_EQ_INT(hf_acquire(a, "x", &options, &hold), HF_OK);
    pid_t child = started(fork_safely());
    if (child == 0) {
        hf_hold_free(hold);
        hf_client_close(a);
        hf_client_close(b);
        _exit(0);
    }
    check_child(child);
    options.wait_ms = 4500;
    int acquired = hf_acquire(b, "x", &options, &other), checked = hf_check(hold, 0);
    if (acquired == HF_OK)
        hf_hold_free(other);
    int released = hf_release(hold);
    hf_hold_free(hold);
    if (released == HF_OK) {
        CHECK_EQ_INT(acquired, HF_TIMEOUT); /* it is renewed */
        CHECK_EQ_INT(checked, HF_OK);
    }
    return released;
}

/* (It is tried again if the machine was too slow to renew in time: a hold that nobody renews is
 * lost each time.) */
TEST(a_child_that_closes_leaves_the_parents_client_at_work) {
    enum { TRIES = 5 };
    hf_client *a = open_client(), *b = open_client();
    int released = HF_LOST;
    for (int i = 0; i < TRIES && released == HF_LOST; i++)
        released = fork_and_close(a, b);
    CHECK_EQ_INT(released, HF_OK);
    hf_client_close(a);
    hf_client_close(b);
}

TEST(a_grandchild_is_forked_too) {
    hf_client *a = open_client();
    pid_t child = started(fork_safely());
    if (child == 0) {
        hf_client *own = open_client();
        pid_t grandchild = started(fork_safely());
        if (grandchild == 0) {
            CHECK_EQ_INT(hf_process(a), HF_FORKED);
            CHECK_EQ_INT(hf_process(own), HF_FORKED);
            use_own_client();
            CHECK_EQ_INT(hf_process(a), HF_FORKED);
            CHECK_EQ_INT(hf_process(own), HF_FORKED);
            _exit(0);
        }
        check_child(grandchild);
        CHECK_EQ_INT(hf_process(a), HF_FORKED);
        CHECK_EQ_INT(hf_process(own), HF_OK);
        hf_client_close(own);
        _exit(0);
    }
    check_child(child);
    CHECK_EQ_INT(hf_process(a), HF_OK);
    hf_client_close(a);
}
