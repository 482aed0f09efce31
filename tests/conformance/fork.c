/* After a fork, the child's handles return HF_FORKED and touch nothing of the parent's: FAILURES.md
 * 39. */
#include "suite.h"

/* ThreadSanitizer cannot follow new threads in the child of a process that had threads. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_MAY_HAVE_THREADS 0
#elif defined(__has_feature)
#define CHILD_MAY_HAVE_THREADS (!__has_feature(thread_sanitizer))
#else
#define CHILD_MAY_HAVE_THREADS 1
#endif

struct handles {
    hf_client *client;
    hf_hold *hold;
    hf_call *pending, *completed;
    const char *name;
};

static void use_in_child(struct handles *of) {
    hf_hold *hold;
    hf_locks *locks;
    hf_call *call;
    const hf_want want = {sizeof want, of->name, HF_EXCLUSIVE, 1, 1}, *wants[] = {&want};
    CHECK_IS(hf_check(of->hold, 0), HF_FORKED);
    CHECK_IS(hf_renew(of->hold, 0), HF_FORKED);
    CHECK_IS(hf_release(of->hold), HF_FORKED);
    CHECK_IS(hf_release_start(of->hold, &call), HF_FORKED);
    CHECK_IS(hf_hold_fd(of->hold), HF_FORKED);
    CHECK_EQ_INT(hf_hold_left_ms(of->hold), 0);
    CHECK_IS(hf_acquire(of->client, of->name, NULL, &hold), HF_FORKED);
    CHECK(strlen(hf_last_error()) > 0);
    CHECK_IS(hf_acquire_all(of->client, wants, 1, NULL, &hold), HF_FORKED);
    CHECK_IS(hf_acquire_start(of->client, of->name, NULL, &call), HF_FORKED);
    CHECK_IS(hf_inspect(of->client, of->name, &locks), HF_FORKED);
    CHECK_IS(hf_list(of->client, "", NULL, 10, &locks), HF_FORKED);
    CHECK_IS(hf_break(of->client, of->name, 1, NULL), HF_FORKED);
    CHECK_IS(hf_fd(of->client), HF_FORKED);
    CHECK_IS(hf_process(of->client), HF_FORKED);
    CHECK(hf_call_next(of->client) == NULL);
    CHECK_IS(hf_call_status(of->pending), HF_FORKED);
    CHECK_IS(hf_call_wait(of->pending, HF_FOREVER), HF_FORKED);
    CHECK_IS(hf_call_cancel(of->pending), HF_FORKED);
    CHECK(hf_call_take_hold(of->completed) == NULL);
    CHECK(hf_call_free(of->pending) == NULL);
    CHECK(hf_call_free(of->completed) == NULL);
    CHECK(hf_hold_free(of->hold) == NULL);
    CHECK(hf_client_close(of->client) == NULL);
}

/* With the memory store, the child has a separate world; elsewhere it sees the parent's lock. If
 * the machine is too slow to renew in time, it tries again. */
static void open_in_child(const char *name) {
    hf_client *own;
    CHECK_IS(hf_client_open(suite_url(), NULL, &own), HF_OK);
    hf_acquire_options options = as_exclusive(0);
    options.lease_ms = LEASE_MS;
    hf_hold *hold;
    int status = HF_LOST;
    for (int i = 0; status == HF_LOST && may_try(i, LONG_TRIES); i++) {
        CHECK_IS(hf_acquire(own, fresh_name("child"), &options, &hold), HF_OK);
        int64_t until = now_ms() + 3 * LEASE_MS / 2;
        AWAIT(now_ms() > until);
        status = hf_check(hold, 0);
        if (status == HF_OK)
            status = hf_release(hold);
        hf_hold_free(hold);
    }
    CHECK_IS(status, HF_OK);
    if (strncmp(suite_url(), "memory:", 7) != 0)
        CHECK_IS(hf_acquire(own, name, &options, &hold), HF_BUSY);
    hf_client_close(own);
}

/* The state of the parent's hold at the end. */
static int fork_and_check(hf_client *a, hf_client *b) {
    struct handles of = {.client = a, .name = fresh_name("fork")};
    hf_acquire_options options = as_exclusive(0);
    options.lease_ms = LEASE_MS;
    of.hold = get(a, of.name, options);
    options.wait_ms = HF_FOREVER;
    CHECK_IS(hf_acquire_start(a, of.name, &options, &of.pending), HF_OK);
    CHECK_IS(hf_acquire_start(a, fresh_name("other"), &options, &of.completed), HF_OK);
    CHECK_IS(hf_call_wait(of.completed, PATIENCE_MS), HF_OK);
    pid_t child = fork_safely();
    if (child == 0) {
        use_in_child(&of);
        if (CHILD_MAY_HAVE_THREADS)
            open_in_child(of.name);
        _exit(0);
    }
    check_child_ends_well(child);
    int checked = hf_check(of.hold, 0), other = attempt(b, of.name, as_exclusive(0));
    size_t waiting = waiters(b, of.name);
    int released = hf_release(of.hold);
    if (released == HF_OK) {
        CHECK_IS(checked, HF_OK);
        CHECK_IS(other, HF_BUSY);
        CHECK_EQ_INT(waiting, 1);
    }
    CHECK_IS(hf_call_wait(of.pending, PATIENCE_MS), HF_OK);
    hf_hold_free(of.hold);
    hf_call_free(of.pending);
    hf_call_free(of.completed);
    return released;
}

TEST(a_child_has_no_part_in_its_parents_locks) {
    hf_client *a = open_client(), *b = open_client();
    int status = HF_LOST;
    for (int i = 0; status == HF_LOST && may_try(i, LONG_TRIES); i++)
        status = fork_and_check(a, b);
    CHECK_IS(status, HF_OK);
}

struct worker {
    hf_client *client;
    const char *name;
    atomic_bool is_enough;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    while (!atomic_load(&worker->is_enough)) {
        hf_hold *hold;
        CHECK_IS(hf_acquire(worker->client, worker->name, NULL, &hold), HF_OK);
        hf_hold_free(hold);
    }
    return NULL;
}

/* Whichever mutex of the library the other threads hold at that moment, the child does not wait for
 * it. */
TEST(a_child_answers_whatever_the_parents_threads_were_doing) {
    struct worker worker = {.client = open_client(), .name = fresh_name("busy")};
    hf_hold *hold = get(worker.client, fresh_name("fork"), as_exclusive(0));
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &worker) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(PATIENCE_MS / 1000);
            CHECK_IS(hf_check(hold, 0), HF_FORKED);
            CHECK_EQ_INT(hf_process(worker.client), HF_FORKED);
            CHECK_EQ_INT(hf_release(hold), HF_FORKED);
            _exit(0);
        }
        check_child_ends_well(child);
    }
    atomic_store(&worker.is_enough, true);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    let_go(hold);
}
