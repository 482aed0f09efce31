/* Fails each allocation in turn that a store in an SQL database makes, with a real server: each
 * operation completes once, with a clear outcome, nothing leaks (AddressSanitizer checks), and no
 * lock stays held that nobody knows of. The store is linked into the test program, which is given a
 * URL for each scheme. */
#ifndef TESTS_SUPPORT_SQL_NO_MEMORY_H
#define TESTS_SUPPORT_SQL_NO_MEMORY_H

#include "contract/asker.h"
#include "store/findings.h"
#include "support/failing.h"

extern const struct store_driver holdfast_store_driver;

static const char *scheme;     /* of the test */
static struct asker *observer; /* whose memory does not run out */

static inline const char *url_of_test(void) {
    static char url[1000];
    CHECK(test_args_count == 1);
    snprintf(url, sizeof url, "%s?timeout=20000&connect_timeout=20000%s", test_args[0], scheme);
    return url;
}

/* NULL: no memory. */
static inline struct asker *open_store(const char *text) {
    struct world *world;
    struct url url;
    char *why = NULL;
    fail_pause();
    CHECK_EQ_INT(world_open_real(&world), HF_OK);
    struct asker *asker = asker_new_in(world, MAX_LEASE_US, 0);
    asker->watched = "";
    parse(text, &url);
    fail_resume();
    int r = holdfast_store_driver.open(&asker->host, &url, &asker->store, &why);
    fail_pause();
    CHECK(r == HF_OK || (r == HF_NO_MEMORY && fail_happened()));
    url_free(&url);
    free(why);
    if (r < 0) {
        world_close(world);
        free(asker);
        asker = NULL;
    }
    fail_resume();
    return asker;
}

static inline void close_store(struct asker *asker) {
    fail_pause();
    asker_free(asker);
    fail_resume();
}

/* A name of this test. */
static inline const char *the_name(void) {
    static char name[32];
    snprintf(name, sizeof name, "no memory %d", (int)getpid());
    return name;
}

static inline struct store_op make(enum store_op_type type, uint64_t seq, uint8_t flags) {
    return (struct store_op){.type = type,
                             .kind = STORE_LOCK,
                             .flags = flags,
                             .seq = seq,
                             .name = the_name(),
                             .label = "test",
                             .capacity = STORE_ALL,
                             .weight = STORE_ALL,
                             .lease_us = MAX_LEASE_US,
                             .limit = 10};
}

/* An operation that lacks memory reports this, or that its outcome is unknown, or that it was not
 * sent. */
static inline enum store_outcome try(struct asker *asker, struct store_op *op) {
    enum store_outcome outcome = ask(asker, op);
    bool is_clear =
        outcome == STORE_UNKNOWN || outcome == STORE_QUEUED || outcome == STORE_DONE ||
        (outcome == STORE_NOT_YOURS && op->type != STORE_ACQUIRE) ||
        (outcome == STORE_REFUSED &&
         (op->reason == HF_NO_MEMORY || op->reason == HF_UNREACHABLE || op->reason == HF_BUSY));
    if (!is_clear)
        test_fail(__FILE__, __LINE__, "operation %d: outcome %d, reason %d", (int)op->type,
                  (int)outcome, op->reason);
    /* (A server ends the session of a row lock if a slow machine lets it wait for too long.) */
    CHECK(fail_happened() || *scheme || outcome != STORE_UNKNOWN);
    return outcome;
}

/* Releases a lock that may be held, again until the answer is certain, as the engine does. A
 * refused release was not done. */
static inline void let_go_of(struct asker *asker, const struct store_op *hold) {
    bool is_held = hold->outcome == STORE_DONE;
    struct store_op op = *hold;
    op.type = STORE_RELEASE;
    for (int i = 0; i < 5; i++) {
        enum store_outcome outcome = try(asker, &op);
        CHECK(outcome != STORE_NOT_YOURS || !is_held || asker->gones);
        if (outcome == STORE_DONE || outcome == STORE_NOT_YOURS)
            return;
        is_held = is_held && outcome == STORE_REFUSED;
    }
    test_fail(__FILE__, __LINE__, "it cannot be released");
}

/* A row lock ends with its connection, which is closed and noticed a moment later. */
static inline void check_free(struct asker *asker) {
    fail_pause();
    struct store_op op = make(STORE_ACQUIRE, 1, 0);
    int64_t until_us = world_now_us(observer->host.world) + PATIENCE_US;
    while (ask(observer, &op) != STORE_DONE) {
        if (op.reason != HF_BUSY || !*scheme || world_now_us(observer->host.world) >= until_us)
            test_fail(__FILE__, __LINE__, "outcome %d, reason %d, after call %ld", op.outcome,
                      op.reason, fail_calls());
        listen_for_us(asker, MS);
        op = make(STORE_ACQUIRE, 1, 0);
    }
    op.type = STORE_RELEASE;
    CHECK_EQ_INT(ask(observer, &op), STORE_DONE);
    fail_resume();
}

static inline void renew_one(struct asker *asker, const struct store_op *hold) {
    struct store_renewal renewal = {.of = hold, .lease_us = hold->lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    if (try(asker, &op) == STORE_DONE)
        /* A row lock may have ended with its connection. */
        CHECK(renewal.outcome == STORE_DONE || renewal.outcome == STORE_UNKNOWN ||
              (*scheme && fail_happened()));
}

static inline void look(struct asker *asker) {
    static const enum store_op_type types[] = {STORE_INSPECT, STORE_LIST};
    for (int i = 0; i < 2; i++) {
        struct store_op op = make(types[i], 0, 0);
        op.name = types[i] == STORE_LIST ? "no" : op.name;
        if (try(asker, &op) == STORE_DONE)
            hf_locks_free(op.locks);
    }
    struct store_op op = {.type = STORE_EXAMINE};
    if (try(asker, &op) == STORE_DONE)
        hf_examination_free(op.examination);
}

/* Repeats a count that may have happened until it is certain. It must then have happened once. */
static inline void add_once(struct asker *asker) {
    static uint64_t last_seq;
    struct store_op op = {
        .type = STORE_COUNT, .kind = STORE_COUNT_ADD, .seq = 1, .name = the_name(), .number = 7};
    for (int i = 0; i < 5 && op.outcome != STORE_DONE; i++)
        try(asker, &op);
    CHECK(op.outcome == STORE_DONE && op.value == 7);
    fail_pause();
    op.kind = STORE_COUNT_REMOVE;
    op.seq = ++last_seq;
    CHECK_EQ_INT(ask(observer, &op), STORE_DONE);
    CHECK_EQ_INT(op.value, 7);
    fail_resume();
}

/* Somebody else holds the lock, and then hands it on. */
static inline void wait_for_it(struct asker *asker) {
    fail_pause();
    struct store_op theirs = make(STORE_ACQUIRE, 2, 0);
    CHECK_EQ_INT(ask(observer, &theirs), STORE_DONE);
    fail_resume();
    struct store_op op = make(STORE_ACQUIRE, 2, STORE_WAIT);
    enum store_outcome outcome = try(asker, &op);
    CHECK(outcome != STORE_DONE);
    fail_pause();
    theirs.type = STORE_RELEASE;
    CHECK_EQ_INT(ask(observer, &theirs), STORE_DONE);
    fail_resume();
    if (outcome == STORE_REFUSED)
        return;
    listen_for_us(asker, 20 * MS);
    try(asker, &op); /* its place is released in any case */
    let_go_of(asker, &op);
}

static inline void story(void) {
    struct asker *asker = open_store(url_of_test());
    if (!asker)
        return;
    struct store_op hold = make(STORE_ACQUIRE, 1, 0);
    enum store_outcome outcome = try(asker, &hold);
    if (outcome == STORE_DONE) {
        renew_one(asker, &hold);
        look(asker);
    }
    if (outcome != STORE_REFUSED)
        let_go_of(asker, &hold);
    check_free(asker);
    add_once(asker);
    wait_for_it(asker);
    check_free(asker);
    close_store(asker);
}

static inline void fail_everywhere(void (*each)(void), const char *of_scheme) {
    scheme = of_scheme;
    long index = 0;
    observer = open_store(url_of_test());
    for (; fail_next(FAIL_ONE); index++)
        each();
    close_store(observer);
    printf("# %ld allocations\n", index);
    CHECK(index > 20);
}

#endif
