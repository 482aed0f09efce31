/* The engine driven by hand, so that a test reads like a story:
 *
 *     STORY(a_woken_waiter_asks_at_once) {
 *         struct actor *a = acquire("x", FOREVER);
 *         expect_op(a, STORE_ACQUIRE);
 *         answer_queued(a, 5000, 0);
 *         at_ms(100);
 *         wake(a);
 *         expect_op(a, STORE_ACQUIRE);
 *     }
 *
 * There is one engine, a clock that stands still unless the story moves it, actors (somebody who
 * wants a lock, and the results they got) and a store that gives only the answers that the story
 * tells it to give.
 *
 * Everything that the engine says must be read: what was put out with expect_op or expect_renewal,
 * results with expect_acquired and the like, a loss with expect_lost. Anything unread at the end,
 * or at expect_nothing, is a failure. Then every actor releases, the store confirms everything, and
 * the engine must end with no hold. The harness also checks that no operation is put out twice
 * while the store has it, that every request finishes once, and that every hold ends once. Holds
 * and requests are freed at that moment, so AddressSanitizer catches later uses. */
#ifndef ENGINE_STORY_TEST_H
#define ENGINE_STORY_TEST_H

#include "check.h"
#include "support/failing.h"

#include "engine/engine.h"

#define FOREVER ENGINE_NEVER
#define TRY INT64_C(0)

enum {
    LEASE_MS = 30000,     /* of every hold, unless the story says otherwise */
    VALID_MS = 29698,     /* how long it is valid: minus 1 % and 2 ms */
    THIRD_MS = 10000,     /* when it is renewed */
    WAIT_LEASE_MS = 3000, /* of a place in the queue */
    STORE_WAIT_MS = 10000 /* for a store that never answered */
};
#define WALL_US INT64_C(1700000000000000) /* the time of day when a story starts */

/* A hold as the client has it; freed when the engine has ended it. */
struct scene {
    struct hold hold;
    struct reentry reentry;
    struct actor *actor;
};

/* Somebody who wants a lock, and the results they got. */
struct actor {
    struct list link;          /* in the story's actors */
    struct hold *hold;         /* NULL when it has ended */
    struct request *acquiring; /* pending */
    struct request *releasing; /* pending, the last one */
    struct told {
        int results[8];
        size_t count, read;
    } told[3];  /* by enum request_type */
    char *text; /* that came with the last result */
    unsigned lost, lost_read, ended, pending;
    bool with_store;    /* its operation */
    bool keep;          /* do not free the hold when it ends, as the client does for an alias */
    int64_t sent_us;    /* when its operation was put out */
    uint64_t seq;       /* its attempt id */
    int64_t expected_D; /* for random_test.c */
    bool gone;
};

struct story {
    struct engine engine;
    struct list actors, fresh, flying; /* operations with the store: not yet expected, expected */
    int64_t wall_us;                   /* added to the clock to get the wall clock */
    const char *file;
    int line;
    unsigned long long seed;
};

static struct story story;

/* Remembers the place in the test for the message of a failure. */
#define HERE(call) (story.file = __FILE__, story.line = __LINE__, call)

#define REQUIRE(condition, ...)                                                           \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            char require_text[200];                                                       \
            snprintf(require_text, sizeof(require_text), __VA_ARGS__);                    \
            test_fail(story.file, story.line, "%s (at %lld us, seed %llu)", require_text, \
                      (long long)story.engine.now_us, story.seed);                        \
        }                                                                                 \
    } while (0)

static inline void must(bool condition, const char *text) {
    REQUIRE(condition, "%s", text);
}

static inline void must_start(int r) {
    REQUIRE(r == HF_OK, "the engine could not start: %s", hf_error_name(r));
}

/* ---- What the engine puts out ---- */

static inline struct scene *scene_of(struct hold *hold) {
    return container_of(hold, struct scene, hold);
}

static inline struct actor *actor_of(const struct store_op *op) {
    return scene_of(container_of(op, struct hold, op))->actor;
}

static inline void take_op(struct store_op *op) {
    if (op->type == STORE_INSPECT) {
        /* not tracked: its hold may end before it */
    } else if (op->type == STORE_RENEW) {
        op->left_us = story.engine.now_us; /* unused until the answer: here, when it was sent */
    } else {
        struct actor *actor = actor_of(op);
        REQUIRE(!actor->with_store, "an operation was put out that the store already has");
        actor->with_store = true;
        actor->sent_us = story.engine.now_us;
    }
    list_append(&story.fresh, &op->link);
}

static inline void take_news(struct hold *hold) {
    struct actor *actor = scene_of(hold)->actor;
    uint8_t news = hold->news;
    hold->news = 0;
    if (news & HOLD_WAS_LOST)
        actor->lost++;
    REQUIRE(actor->lost <= 1, "a loss was told twice");
    if (!(news & HOLD_ENDED))
        return;
    REQUIRE(++actor->ended == 1, "a hold ended twice");
    REQUIRE(!actor->with_store, "a hold ended while the store has its operation");
    REQUIRE(!actor->pending, "a hold ended before its requests");
    if (!actor->keep) {
        free(hold->failure_text);
        free(scene_of(hold));
        actor->hold = NULL;
    }
}

static inline void take_finished(struct request *request) {
    struct actor *actor = request->context;
    struct told *told = &actor->told[request->type];
    REQUIRE(!request->hold, "a finished request still points to its hold");
    REQUIRE(told->count < sizeof(told->results) / sizeof(*told->results), "too many results");
    told->results[told->count++] = request->result;
    free(actor->text);
    actor->text = request->text;
    actor->pending--;
    if (request == actor->acquiring)
        actor->acquiring = NULL;
    if (request == actor->releasing)
        actor->releasing = NULL;
    free(request);
}

/* What the client does after each call into the engine. */
static inline void settle(void) {
    struct list *node;
    while ((node = list_pop(&story.engine.finished)))
        take_finished(container_of(node, struct request, link));
    while ((node = list_pop(&story.engine.out)))
        take_op(container_of(node, struct store_op, link));
    while ((node = list_pop(&story.engine.news)))
        take_news(container_of(node, struct hold, link));
}

/* ---- Time ---- */

static inline void set_clock(int64_t us) {
    engine_set_time(&story.engine, us, story.wall_us + us);
}

static inline void tick(void) {
    engine_tick(&story.engine);
    settle();
}

/* Time passes, and everything that becomes due is done at its time. */
static inline void story_at_us(int64_t us) {
    for (int i = 0; engine_due_us(&story.engine) <= us; i++) {
        REQUIRE(i < 100000, "something is due again and again");
        set_clock(engine_due_us(&story.engine));
        tick();
    }
    set_clock(us);
}
#define at_us(us) HERE(story_at_us(us))
#define at_ms(ms) HERE(story_at_us((ms)*INT64_C(1000)))

/* The process did not run until now. With the first, what became due is done now, late; with the
 * others, an answer of the store is processed before the process checks what is due. */
#define wakes_up_at_ms(ms) HERE((set_clock((ms)*INT64_C(1000)), tick()))
#define wakes_up_to_an_answer_at_us(us) HERE(set_clock(us))
#define wakes_up_to_an_answer_at_ms(ms) HERE(set_clock((ms)*INT64_C(1000)))

static inline int64_t for_ms(int64_t ms) {
    return story.engine.now_us + ms * 1000;
}

/* ---- What the program does ---- */

/* The story's own memory never fails. */
static inline void *story_alloc(size_t size) {
    fail_pause();
    void *memory = calloc(1, size);
    fail_resume();
    CHECK(memory != NULL);
    return memory;
}

/* An actor who has not asked yet, so that the story can change what it will ask for. */
static inline struct actor *make(const char *name) {
    struct actor *actor = story_alloc(sizeof(*actor));
    struct scene *scene = story_alloc(sizeof(*scene));
    scene->actor = actor;
    list_init(&scene->hold.link);
    actor->hold = &scene->hold;
    actor->hold->renews = true;
    actor->hold->op.name = name;
    actor->hold->op.kind = STORE_LOCK;
    actor->hold->op.capacity = actor->hold->op.weight = STORE_ALL;
    actor->hold->op.lease_us = LEASE_MS * INT64_C(1000);
    list_append(&story.actors, &actor->link);
    return actor;
}

static inline struct request *new_request(struct actor *actor, enum request_type type) {
    struct request *request = story_alloc(sizeof(*request));
    request->type = type;
    request->context = actor;
    actor->pending++;
    return request;
}

/* Asks. Returns the error of engine_acquire. */
static inline int story_go(struct actor *actor, int64_t give_up_us, int64_t min_left_us) {
    struct request *request = new_request(actor, REQUEST_ACQUIRE);
    request->give_up_us = give_up_us;
    request->min_left_us = min_left_us;
    int r = engine_acquire(&story.engine, actor->hold, request);
    if (r < 0) {
        free(request);
        free(scene_of(actor->hold));
        actor->hold = NULL;
        actor->pending--;
        actor->ended = 1;
        return r;
    }
    actor->acquiring = request;
    actor->seq = actor->hold->op.seq;
    settle();
    return HF_OK;
}
#define go(actor, give_up_us) HERE(must_start(story_go(actor, give_up_us, 0)))
#define go_for_at_least_ms(actor, ms) HERE(must_start(story_go(actor, FOREVER, (ms)*INT64_C(1000))))

static inline struct actor *story_acquire(const char *name, int64_t give_up_us) {
    struct actor *actor = make(name);
    must_start(story_go(actor, give_up_us, 0));
    return actor;
}
#define acquire(name, give_up_us) HERE(story_acquire(name, give_up_us))

static inline void story_cancel(struct actor *actor) {
    REQUIRE(actor->acquiring, "nobody waits for it");
    engine_cancel(&story.engine, actor->acquiring, HF_CANCELLED);
    settle();
}
#define cancel(actor) HERE(story_cancel(actor))

static inline void story_release(struct actor *actor, bool waits) {
    struct request *request = waits ? new_request(actor, REQUEST_RELEASE) : NULL;
    if (request)
        actor->releasing = request;
    engine_release(&story.engine, actor->hold, request);
    settle();
}
#define release(actor) HERE(story_release(actor, true))
#define release_without_waiting(actor) HERE(story_release(actor, false))

static inline struct request *story_renew(struct actor *actor, int64_t lease_ms) {
    struct request *request = new_request(actor, REQUEST_RENEW);
    engine_renew(&story.engine, actor->hold, request, lease_ms * 1000);
    settle();
    return request;
}
#define renew(actor, lease_ms) HERE(story_renew(actor, lease_ms))

/* ---- What the store does ---- */

static inline struct store_op *next_fresh(const char *wanted) {
    struct list *node = list_pop(&story.fresh);
    REQUIRE(node, "no %s was put out", wanted);
    list_append(&story.flying, node);
    return container_of(node, struct store_op, link);
}

static inline struct store_op *story_expect_op(struct actor *actor, int type, const char *wanted) {
    struct store_op *op = next_fresh(wanted);
    REQUIRE(op->type == type, "operation %d was put out, not %s", op->type, wanted);
    REQUIRE(actor_of(op) == actor, "%s was put out for somebody else", wanted);
    return op;
}
#define expect_op(actor, type) HERE(story_expect_op(actor, type, #type))

/* A RENEW of `count` holds. */
static inline struct store_op *story_expect_renewal(size_t count) {
    struct store_op *op = next_fresh("STORE_RENEW");
    REQUIRE(op->type == STORE_RENEW, "operation %d was put out, not a renewal", op->type);
    REQUIRE(op->renewal_count == count, "%zu holds were renewed, not %zu", op->renewal_count,
            count);
    return op;
}
#define expect_renewal(count) HERE(story_expect_renewal(count))

static inline void complete(struct store_op *op, enum store_outcome outcome, int reason,
                            const char *text) {
    list_remove(&op->link);
    if (op->type != STORE_RENEW && op->type != STORE_INSPECT)
        actor_of(op)->with_store = false;
    op->outcome = (uint8_t)outcome;
    op->reason = reason;
    if (text)
        op->text = strdup(text);
    engine_completed(&story.engine, op);
    settle();
}

static inline void story_answer(struct actor *actor, enum store_outcome outcome, int reason,
                                const char *text) {
    REQUIRE(actor->hold && actor->with_store, "there is nothing to answer");
    complete(&actor->hold->op, outcome, reason, text);
}

static inline void story_answer_done(struct actor *actor, uint64_t token) {
    actor->hold->op.token = token;
    story_answer(actor, STORE_DONE, 0, NULL);
}

static inline void story_answer_queued(struct actor *actor, int64_t left_ms, int flags) {
    actor->hold->op.left_us = left_ms * 1000;
    actor->hold->op.flags |= (uint8_t)flags;
    story_answer(actor, STORE_QUEUED, 0, NULL);
}

static inline void story_answer_busy(struct actor *actor, int64_t left_ms, int flags) {
    actor->hold->op.left_us = left_ms * 1000;
    actor->hold->op.flags |= (uint8_t)flags;
    story_answer(actor, STORE_REFUSED, HF_BUSY, NULL);
}

#define answer_done(actor, token) HERE(story_answer_done(actor, token))
/* Grants another lease than was asked for. */
#define answer_done_for(actor, token, lease_ms) \
    HERE(((actor)->hold->op.lease_us = (lease_ms)*INT64_C(1000), story_answer_done(actor, token)))
#define answer_queued(actor, left_ms, flags) HERE(story_answer_queued(actor, left_ms, flags))
#define answer_busy(actor, left_ms, flags) HERE(story_answer_busy(actor, left_ms, flags))
#define answer_refused(actor, reason) HERE(story_answer(actor, STORE_REFUSED, reason, NULL))
#define answer_refused_with(actor, reason, text) \
    HERE(story_answer(actor, STORE_REFUSED, reason, text))
#define answer_unknown(actor) HERE(story_answer(actor, STORE_UNKNOWN, 0, NULL))
#define answer_unknown_with(actor, text) HERE(story_answer(actor, STORE_UNKNOWN, 0, text))
#define answer_released(actor) HERE(story_answer(actor, STORE_DONE, 0, NULL))
#define answer_not_yours(actor) HERE(story_answer(actor, STORE_NOT_YOURS, 0, NULL))

/* A RENEW that the store has done: `outcome` for each of its holds. */
static inline void story_answer_renewal(struct store_op *op, enum store_outcome outcome) {
    for (size_t i = 0; i < op->renewal_count; i++)
        op->renewals[i].outcome = outcome;
    complete(op, STORE_DONE, 0, NULL);
}
#define answer_renewal(op, outcome) HERE(story_answer_renewal(op, outcome))
/* A RENEW that the store has not done, or whose outcome is unknown. */
#define fail_renewal(op, outcome, reason) HERE(complete(op, outcome, reason, NULL))

/* An INSPECT that asks why a hold is gone; its answer is `found`, which may be NULL. */
static inline struct store_op *story_expect_inquiry(void) {
    struct store_op *op = next_fresh("STORE_INSPECT");
    REQUIRE(op->type == STORE_INSPECT, "operation %d was put out, not an INSPECT", op->type);
    return op;
}
#define expect_inquiry() HERE(story_expect_inquiry())
#define answer_inquiry(op, found) HERE(((op)->locks = (found), complete(op, STORE_DONE, 0, NULL)))

#define wake(actor) HERE((engine_wake(&story.engine, (actor)->seq), settle()))
#define gone(actor) HERE((engine_gone(&story.engine, (actor)->seq), settle()))
#define check(actor) HERE((engine_check(&story.engine, (actor)->seq), settle()))
#define forgot(concerns) HERE((engine_forgot(&story.engine, (concerns), NULL), settle()))

/* ---- What was said ---- */

static inline void story_expect_told(struct actor *actor, enum request_type type, int result) {
    static const char *const types[] = {"the acquire", "the renewal", "the release"};
    struct told *told = &actor->told[type];
    REQUIRE(told->read < told->count, "%s has no result yet", types[type]);
    int actual = told->results[told->read++];
    REQUIRE(actual == result, "%s gave %s, not %s", types[type], hf_error_name(actual),
            hf_error_name(result));
}
#define expect_acquired(actor, result) HERE(story_expect_told(actor, REQUEST_ACQUIRE, result))
#define expect_renewed(actor, result) HERE(story_expect_told(actor, REQUEST_RENEW, result))
#define expect_released(actor, result) HERE(story_expect_told(actor, REQUEST_RELEASE, result))

static inline void story_expect_lost(struct actor *actor) {
    REQUIRE(actor->lost > actor->lost_read, "no loss was told");
    actor->lost_read++;
    REQUIRE(!actor->hold || engine_left_us(&story.engine, actor->hold) == 0, "lost, yet time left");
}
#define expect_lost(actor) HERE(story_expect_lost(actor))

static inline void story_expect_state(struct actor *actor, enum hold_state state) {
    REQUIRE(actor->hold, "the engine is done with the hold");
    REQUIRE(actor->hold->state == state, "the hold's state is %d, not %d", actor->hold->state,
            state);
}
#define expect_state(actor, state) HERE(story_expect_state(actor, state))
#define expect_over(actor) HERE(must((actor)->ended == 1, "the hold is not over"))
#define expect_not_over(actor) HERE(must((actor)->ended == 0, "the hold is over"))

static inline void story_expect_left(struct actor *actor, int64_t us) {
    int64_t left_us = engine_left_us(&story.engine, actor->hold);
    REQUIRE(left_us == us, "%lld us are left, not %lld", (long long)left_us, (long long)us);
}
#define expect_left_ms(actor, ms) HERE(story_expect_left(actor, (ms)*INT64_C(1000)))
#define expect_left_us(actor, us) HERE(story_expect_left(actor, us))

/* The story has read everything. */
static inline void story_expect_nothing(void) {
    static const char *const types[] = {"an acquire", "a renewal", "a release"};
    list_each(node, &story.fresh)
        REQUIRE(false, "operation %d was put out", container_of(node, struct store_op, link)->type);
    list_each(node, &story.actors) {
        struct actor *actor = container_of(node, struct actor, link);
        REQUIRE(actor->lost == actor->lost_read, "a loss was told");
        for (int type = 0; type < 3; type++) {
            struct told *told = &actor->told[type];
            REQUIRE(told->read == told->count, "%s has finished with %s", types[type],
                    hf_error_name(told->results[told->count - 1]));
        }
    }
}
#define expect_nothing() HERE(story_expect_nothing())

/* A hold that was granted just now. */
static inline struct actor *story_granted(struct actor *actor, uint64_t token) {
    must_start(story_go(actor, FOREVER, 0));
    story_expect_op(actor, STORE_ACQUIRE, "STORE_ACQUIRE");
    story_answer_done(actor, token);
    story_expect_told(actor, REQUEST_ACQUIRE, HF_OK);
    return actor;
}
#define held(name) HERE(story_granted(make(name), 7))
#define held_by(actor) HERE(story_granted(actor, 7))

/* ---- Beginning and end ---- */

static inline void story_begin(void) {
    static const struct engine_config config = {
        .wait_lease_us = WAIT_LEASE_MS * INT64_C(1000),
        .max_lease_us = 60000000,
        .store_wait_us = STORE_WAIT_MS * INT64_C(1000),
        .drift_ppm = 10000,
        .random = 1,
    };
    unsigned long long seed = story.seed;
    story = (struct story){.wall_us = WALL_US, .file = "the beginning", .seed = seed};
    engine_init(&story.engine, &config);
    list_init(&story.actors);
    list_init(&story.fresh);
    list_init(&story.flying);
    set_clock(0);
}

static inline void say_yes(struct store_op *op) {
    if (op->type == STORE_RENEW)
        story_answer_renewal(op, STORE_DONE);
    else if (op->type == STORE_INSPECT)
        complete(op, STORE_REFUSED, HF_UNREACHABLE, NULL);
    else if (op->type == STORE_ACQUIRE)
        story_answer_done(actor_of(op), 1);
    else
        complete(op, STORE_DONE, 0, NULL);
}

static inline void say_yes_to_all(struct list *ops) {
    while (!list_empty(ops))
        say_yes(container_of(ops->next, struct store_op, link));
}

/* Every actor releases, and the store answers: then the engine must have no hold. */
static inline void everybody_leaves(void) {
    for (int round = 0; story.engine.hold_count && round < 10; round++) {
        say_yes_to_all(&story.flying);
        say_yes_to_all(&story.fresh);
        list_each(node, &story.actors) {
            struct actor *actor = container_of(node, struct actor, link);
            if (actor->acquiring)
                story_cancel(actor);
            else if (actor->hold && !actor->ended)
                story_release(actor, false);
        }
        say_yes_to_all(&story.fresh);
        story_at_us(story.engine.now_us + 2000000);
    }
    say_yes_to_all(&story.flying); /* renewals whose holds are gone */
    say_yes_to_all(&story.fresh);
}

static inline void story_end(void) {
    everybody_leaves();
    REQUIRE(story.engine.hold_count == 0, "the engine still knows of %zu holds at the end",
            story.engine.hold_count);
    REQUIRE(story.engine.due.count == 0, "something is still due at the end");
    REQUIRE(story.engine.by_seq.count == 0, "a hold can still be found at the end");
    REQUIRE(story.engine.by_owner.count == 0, "a hold can still be entered at the end");
    struct list *node;
    while ((node = list_pop(&story.actors))) {
        struct actor *actor = container_of(node, struct actor, link);
        REQUIRE(!actor->pending, "somebody was never told");
        REQUIRE(actor->ended == 1, "a hold did not end once but %u times", actor->ended);
        if (actor->hold) {
            free(actor->hold->failure_text);
            free(scene_of(actor->hold));
        }
        free(actor->text);
        free(actor);
    }
    engine_free(&story.engine);
}

#define STORY(name)                      \
    static void story_told_##name(void); \
    TEST(name) {                         \
        story_begin();                   \
        story_told_##name();             \
        expect_nothing();                \
        story_end();                     \
    }                                    \
    static void story_told_##name(void)

#endif
