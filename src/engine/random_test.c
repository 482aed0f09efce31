/* Anything in any order: thousands of random steps, with a check after each of them of what must
 * always be true. The store answers, wakes and breaks at random; the program acquires, cancels,
 * renews, reenters and releases; time jumps, and answers come before or after the timers. The test
 * computes each hold's deadline on its own, from what was sent and answered.
 *
 * A failure names its seed: `engine-random_test SEED` runs only that one. */
#include "engine/story_test.h"

enum { SEEDS = 60, STEPS = 10000, ACTORS = 40 };

static uint64_t chance_state;

static uint64_t chance(uint64_t below) {
    chance_state += 0x9e3779b97f4a7c15u;
    return map_hash_number(chance_state) % below;
}

/* True with this probability, in percent. */
static bool percent(unsigned of_a_hundred) {
    return chance(100) < of_a_hundred;
}

static const char *maybe_text(void) {
    return percent(30) ? "particulars" : NULL;
}

static int64_t validity_us(int64_t lease_us) {
    return lease_us - lease_us / 100 - 2000;
}

/* ---- Somebody, at random ---- */

static struct actor *actors[ACTORS];

static struct actor *any_actor(void) {
    return actors[chance(ACTORS)];
}

static bool is_held_now(const struct actor *actor) {
    return actor && actor->hold &&
           (actor->hold->state == HOLD_HELD || actor->hold->state == HOLD_SUSPECT);
}

/* ---- What must always be true ---- */

static void check_heap(void) {
    struct heap *heap = &story.engine.due;
    for (size_t i = 1; i <= heap->count; i++) {
        REQUIRE(heap->nodes[i]->place == i, "a node of the heap does not know its place");
        REQUIRE(i == 1 || heap->nodes[i / 2]->at <= heap->nodes[i]->at, "the heap is out of order");
    }
}

static void check_actor(struct actor *actor, bool ticked) {
    struct hold *hold = actor->hold;
    if (actor->lost && !actor->lost_read) {
        actor->lost_read = 1;
        REQUIRE(actor->gone || actor->expected_D <= story.engine.now_us, "lost before its time");
    }
    if (!hold)
        return;
    bool waits_for_nothing = hold->state == HOLD_LOST;
    REQUIRE(actor->with_store || hold->due.place || waits_for_nothing,
            "a hold is stuck in state %d", hold->state);
    REQUIRE(actor->with_store == hold->in_flight, "who has the operation?");
    if (!is_held_now(actor))
        return;
    REQUIRE(hold->deadline_us == actor->expected_D, "the deadline is %lld, not %lld",
            (long long)hold->deadline_us, (long long)actor->expected_D);
    REQUIRE(!actor->gone, "held, although the store said that it is gone");
    REQUIRE(!ticked || hold->deadline_us > story.engine.now_us, "held after its deadline");
}

static void check_all(bool ticked) {
    size_t holds = 0, reentries = 0;
    for (int i = 0; i < ACTORS; i++) {
        if (!actors[i])
            continue;
        check_actor(actors[i], ticked);
        holds += actors[i]->hold != NULL;
        reentries += actors[i]->hold && actors[i]->hold->reentry;
    }
    REQUIRE(holds == story.engine.hold_count, "%zu holds are counted, not %zu",
            story.engine.hold_count, holds);
    REQUIRE(holds == story.engine.by_seq.count, "not every hold can be found");
    REQUIRE(reentries == story.engine.by_owner.count, "not every hold can be entered again");
    check_heap();
}

/* ---- The program ---- */

static void forget(struct actor *actor) {
    REQUIRE(!actor->pending, "a hold has ended, and somebody was not told");
    list_remove(&actor->link);
    free(actor->text);
    free(actor);
}

static void acquire_something(void) {
    static const char *const names[] = {"a", "b", "c", "d"};
    size_t place = chance(ACTORS);
    if (actors[place] && !actors[place]->ended)
        return;
    if (actors[place])
        forget(actors[place]);
    struct actor *actor = actors[place] = make(names[chance(4)]);
    struct scene *scene = scene_of(actor->hold);
    actor->hold->op.lease_us = percent(50) ? 30000000 : 20000 + (int64_t)chance(2000000);
    actor->hold->renews = percent(80);
    actor->hold->barges = percent(20);
    if (percent(30)) {
        scene->reentry.owner = (struct owner){chance(3), percent(50)};
        actor->hold->reentry = &scene->reentry;
    }
    int64_t give_up_us = percent(30)   ? TRY
                         : percent(50) ? FOREVER
                                       : story.engine.now_us + 1 + (int64_t)chance(5000000);
    must_start(story_go(actor, give_up_us, percent(10) ? (int64_t)chance(30000000) : 0));
}

static void release_something(void) {
    struct actor *actor = any_actor();
    if (actor && actor->acquiring && percent(10))
        story_release(actor, false);
    else if (actor && actor->hold && !actor->acquiring && actor->told[REQUEST_RELEASE].count < 7 &&
             actor->pending < 4)
        story_release(actor, percent(60) && actor->told[REQUEST_RELEASE].count < 3);
}

static void renew_something(void) {
    struct actor *actor = any_actor();
    if (actor && actor->hold && !actor->acquiring && actor->told[REQUEST_RENEW].count < 3 &&
        actor->pending < 4)
        story_renew(actor, percent(50) ? 30000 : 20 + (int64_t)chance(60000));
}

static void enter_something(void) {
    struct actor *actor = any_actor();
    if (!is_held_now(actor) || !actor->hold->reentry)
        return;
    struct hold *hold;
    int r = engine_reenter(&story.engine, &actor->hold->op, &actor->hold->reentry->owner, &hold);
    REQUIRE(r == HF_OK, "a hold does not serve for itself");
    REQUIRE(hold || engine_left_us(&story.engine, actor->hold) == 0, "it could not be entered");
    REQUIRE(!hold || engine_left_us(&story.engine, hold) > 0, "entered without time left");
}

static void cancel_something(void) {
    struct actor *actor = any_actor();
    if (actor && actor->acquiring) {
        story_cancel(actor);
    } else if (actor && actor->releasing) {
        engine_cancel(&story.engine, actor->releasing, HF_CANCELLED);
        settle();
    }
}

/* ---- The store ---- */

/* The lease that is granted if this one is asked for. */
static int64_t negotiated_us(int64_t asked_us) {
    return percent(80) ? asked_us : asked_us / 2 + (int64_t)chance((uint64_t)asked_us);
}

static void answer_acquire(struct store_op *op) {
    static const int reasons[] = {HF_UNREACHABLE, HF_UNREACHABLE, HF_WRONG_KIND, HF_DENIED};
    struct actor *actor = actor_of(op);
    int64_t now_us = story.engine.now_us, asked_us = actor->sent_us;
    bool waits = op->flags & STORE_WAIT;
    size_t told = actor->told[REQUEST_ACQUIRE].count;
    uint64_t kind = chance(100);
    op->left_us = percent(2) ? 99000000 : (int64_t)chance(60000000);
    if (kind < 45) {
        op->lease_us = negotiated_us(op->lease_us);
        actor->expected_D = asked_us + validity_us(op->lease_us);
        story_answer_done(actor, 1 + chance(1000000));
        if (actor->told[REQUEST_ACQUIRE].count > told &&
            actor->told[REQUEST_ACQUIRE].results[told] == HF_OK)
            REQUIRE(actor->expected_D > now_us, "granted without time left");
    } else if (kind < 75 && waits) {
        op->flags |= percent(50) ? STORE_HEAD : 0;
        story_answer(actor, STORE_QUEUED, 0, NULL);
    } else if (kind < 75) {
        story_answer(actor, STORE_REFUSED, HF_BUSY, maybe_text());
    } else if (kind < 90) {
        story_answer(actor, STORE_UNKNOWN, 0, maybe_text());
    } else {
        story_answer(actor, STORE_REFUSED, reasons[chance(4)], maybe_text());
    }
}

static void answer_renew(struct store_op *op) {
    int64_t asked_us = op->left_us; /* where story_test.h puts it */
    if (percent(30)) {
        complete(op, percent(50) ? STORE_UNKNOWN : STORE_REFUSED, HF_UNREACHABLE, maybe_text());
        return;
    }
    for (size_t i = 0; i < op->renewal_count; i++) {
        struct store_renewal *item = &op->renewals[i];
        item->outcome = percent(80) ? STORE_DONE : percent(50) ? STORE_UNKNOWN : STORE_NOT_YOURS;
        if (!item->of)
            continue;
        struct actor *actor = actor_of(item->of);
        item->lease_us = negotiated_us(item->lease_us);
        int64_t deadline_us = asked_us + validity_us(item->lease_us);
        bool in_time = story.engine.now_us < actor->expected_D; /* else lost: that is final */
        if (item->outcome == STORE_DONE && in_time && deadline_us > actor->expected_D)
            actor->expected_D = deadline_us;
        if (item->outcome == STORE_NOT_YOURS)
            actor->gone = true;
    }
    complete(op, STORE_DONE, 0, NULL);
}

static void answer_release(struct store_op *op) {
    static const enum store_outcome outcomes[] = {STORE_DONE, STORE_NOT_YOURS, STORE_UNKNOWN,
                                                  STORE_REFUSED};
    enum store_outcome outcome = outcomes[chance(4)];
    bool failed = outcome == STORE_UNKNOWN || outcome == STORE_REFUSED;
    complete(op, outcome, outcome == STORE_REFUSED ? HF_UNREACHABLE : 0,
             failed ? maybe_text() : NULL);
}

static void answer_something(void) {
    struct list *ops = list_empty(&story.fresh) || percent(20) ? &story.flying : &story.fresh;
    if (list_empty(ops))
        return;
    struct list *node = percent(70) ? ops->next : ops->prev;
    struct store_op *op = container_of(node, struct store_op, link);
    if (percent(10)) { /* that one has to wait */
        list_remove(node);
        list_append(&story.flying, node);
    } else if (op->type == STORE_ACQUIRE) {
        answer_acquire(op);
    } else if (op->type == STORE_RENEW) {
        answer_renew(op);
    } else {
        answer_release(op);
    }
}

static void say_something(void) {
    struct actor *actor = any_actor();
    if (!actor)
        return;
    if (percent(70)) {
        engine_wake(&story.engine, actor->seq);
    } else if (percent(30)) {
        actor->gone = is_held_now(actor) || actor->gone;
        engine_gone(&story.engine, actor->seq);
    } else {
        engine_check(&story.engine, actor->seq);
    }
    settle();
}

/* ---- Time ---- */

static bool time_passes(void) {
    int64_t due_us = engine_due_us(&story.engine);
    int64_t to_us = story.engine.now_us + (int64_t)chance(percent(20) ? 10000000 : 50000);
    if (percent(30) && due_us != ENGINE_NEVER)
        to_us = due_us;
    set_clock(percent(2) ? to_us - 100000 : to_us); /* now and then it goes back */
    if (percent(20))
        return false;
    for (int i = 0; engine_due_us(&story.engine) <= story.engine.now_us; i++) {
        REQUIRE(i < 1000, "something is due again and again");
        tick();
    }
    return true;
}

static void stay_silent(struct list *ops) {
    while (!list_empty(ops))
        complete(container_of(ops->next, struct store_op, link), STORE_UNKNOWN, 0, maybe_text());
}

/* The client is closed: every request finishes; the store answers some, and then no more. */
static void close_it(void) {
    engine_shutdown(&story.engine);
    settle();
    for (int i = 0; i < ACTORS; i++)
        REQUIRE(!actors[i] || !actors[i]->pending, "somebody was not told of the end");
    for (uint64_t i = chance(50); i; i--)
        answer_something();
    stay_silent(&story.flying);
    stay_silent(&story.fresh);
    engine_abandon(&story.engine);
    settle();
    REQUIRE(story.engine.hold_count == 0, "something was not abandoned");
}

static void run(unsigned long long seed) {
    story.seed = seed;
    chance_state = seed;
    memset(actors, 0, sizeof(actors));
    story_begin();
    for (int step = 0; step < STEPS; step++) {
        story.file = "step";
        story.line = step;
        uint64_t what = chance(100);
        bool ticked = false;
        if (what < 15)
            acquire_something();
        else if (what < 55)
            answer_something();
        else if (what < 80)
            ticked = time_passes();
        else if (what < 87)
            release_something();
        else if (what < 91)
            renew_something();
        else if (what < 94)
            enter_something();
        else if (what < 96)
            cancel_something();
        else
            say_something();
        check_all(ticked);
    }
    if (percent(50))
        close_it();
    for (int round = 0; round < 100 && story.engine.hold_count; round++)
        everybody_leaves();
    story_end();
}

TEST(random_steps_break_no_invariant) {
    if (test_args_count) {
        run(strtoull(test_args[0], NULL, 10));
        return;
    }
    for (unsigned long long seed = 1; seed <= SEEDS; seed++) {
        printf("# seed %llu\n", seed); /* in case the run ends without a message of ours */
        fflush(stdout);
        run(seed);
    }
}
