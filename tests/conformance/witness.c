/* Many threads on a few names, and a witness inside each lock that checks that it is never entered
 * by more than fit, and that tokens rise in the order of entry. */
#include "suite.h"

enum { EVERYBODY = 1 << 20 }; /* the weight of an exclusive hold for the witness */

struct witness {
    const char *name;
    hf_kind kind; /* HF_SHARED: some of its holders share it */
    uint32_t capacity;
    atomic_uint inside;
    _Atomic uint64_t token; /* of the last exclusive holder */
};

struct visitor {
    hf_client *client;
    struct witness *witnesses;
    size_t witness_count;
    unsigned seed;
    int rounds;
};

static unsigned roll(struct visitor *visitor, unsigned sides) {
    return (unsigned)rand_r(&visitor->seed) % sides;
}

static hf_acquire_options choose(struct visitor *visitor, struct witness *witness) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = witness->kind == HF_SHARED && !roll(visitor, 3) ? HF_EXCLUSIVE : witness->kind;
    options.capacity = witness->capacity;
    options.permits = 1 + roll(visitor, witness->capacity);
    options.wait_ms = roll(visitor, 2) ? HF_FOREVER : (int64_t)roll(visitor, 4);
    options.flags = roll(visitor, 16) || !hf_client_store(visitor->client)->barges ? 0 : HF_BARGE;
    return options;
}

/* Asks in one of two ways: with a call that blocks, or with one that is started and may be
 * cancelled. */
static int ask_somehow(struct visitor *visitor, struct witness *witness,
                       const hf_acquire_options *options, hf_hold **ret_hold) {
    if (roll(visitor, 4))
        return hf_acquire(visitor->client, witness->name, options, ret_hold);
    hf_call *call;
    int status = hf_acquire_start(visitor->client, witness->name, options, &call);
    CHECK_IS(status, HF_OK);
    if (roll(visitor, 3) == 0)
        hf_call_cancel(call);
    status = hf_call_wait(call, HF_FOREVER);
    if (status == HF_OK)
        *ret_hold = hf_call_take_hold(call);
    hf_call_free(call);
    return status;
}

static void be_inside(struct visitor *visitor, struct witness *witness, unsigned weight,
                      unsigned capacity, hf_hold *hold) {
    CHECK(atomic_fetch_add(&witness->inside, weight) + weight <= capacity);
    if (hf_hold_is_exclusive(hold)) {
        uint64_t token = hf_hold_token(hold);
        CHECK(token > atomic_load(&witness->token));
        atomic_store(&witness->token, token);
    }
    if (roll(visitor, 8) == 0)
        sched_yield();
    CHECK_IS(hf_check(hold, 0), HF_OK);
    atomic_fetch_sub(&witness->inside, weight);
}

static void visit(struct visitor *visitor) {
    struct witness *witness = &visitor->witnesses[roll(visitor, (unsigned)visitor->witness_count)];
    hf_acquire_options options = choose(visitor, witness);
    unsigned weight = options.kind == HF_EXCLUSIVE ? EVERYBODY
                      : options.kind == HF_PERMITS ? options.permits
                                                   : 1;
    hf_hold *hold;
    int status = ask_somehow(visitor, witness, &options, &hold);
    if (status != HF_OK) {
        /* UNKNOWN: a few ms are too short for the store's first answer. */
        CHECK(status == HF_CANCELLED ||
              (options.wait_ms != HF_FOREVER &&
               (status == HF_BUSY || status == HF_TIMEOUT || status == HF_UNKNOWN)));
        return;
    }
    be_inside(visitor, witness, weight, options.kind == HF_PERMITS ? witness->capacity : EVERYBODY,
              hold);
    if (roll(visitor, 4))
        CHECK_IS(hf_release(hold), HF_OK);
    hf_hold_free(hold);
}

static void *visit_thread(void *arg) {
    struct visitor *visitor = arg;
    for (int i = 0; i < visitor->rounds; i++)
        visit(visitor);
    return NULL;
}

static void let_them_visit(hf_client *const *shared, size_t shared_count, struct witness *witnesses,
                           size_t witness_count) {
    enum { THREADS = 16 };
    struct visitor visitors[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        visitors[i] = (struct visitor){shared[i % shared_count], witnesses, witness_count, i + 1,
                                       times(2000)};
        CHECK(pthread_create(&threads[i], NULL, visit_thread, &visitors[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < witness_count; i++) {
        CHECK_EQ_INT(atomic_load(&witnesses[i].inside), 0);
        /* Freed holds are released in the background. */
        AWAIT(holders(shared[0], witnesses[i].name) == 0 &&
              waiters(shared[0], witnesses[i].name) == 0);
        CHECK_IS(attempt(shared[0], witnesses[i].name, as_exclusive(PATIENCE_MS)), HF_OK);
        CHECK_EQ_INT(waiters(shared[0], witnesses[i].name), 0);
    }
}

TEST(sixteen_threads_of_four_clients_never_meet_where_they_must_not) {
    hf_client *shared[] = {open_client(), open_client(), open_client(), open_client()};
    struct witness witnesses[] = {
        {.name = fresh_name("mutex"), .kind = HF_EXCLUSIVE, .capacity = 1},
        {.name = fresh_name("mutex"), .kind = HF_EXCLUSIVE, .capacity = 1},
        {.name = fresh_name("shared"), .kind = HF_SHARED, .capacity = 1},
        {.name = fresh_name("permits"), .kind = HF_PERMITS, .capacity = 3},
        {.name = fresh_name("permits"), .kind = HF_PERMITS, .capacity = 10},
    };
    let_them_visit(shared, 4, witnesses, hf_client_store(shared[0])->permits ? 5 : 3);
}

TEST(sixteen_threads_of_one_client_never_meet_in_one_mutex) {
    hf_client *shared[] = {open_client()};
    struct witness witness = {.name = fresh_name("mutex"), .kind = HF_EXCLUSIVE, .capacity = 1};
    let_them_visit(shared, 1, &witness, 1);
}

/* ---- Holders that stay too long ------------------------------------------------------------ */

struct sleeper {
    hf_client *client;
    const char *name;
    pthread_mutex_t *mutex;
    uint64_t *largest_token;
    unsigned seed;
};

/* Sleeps past its lease every other time. Whenever it wakes, one of two things is true: it knows
 * that it has lost, or nobody with a larger token has been there. */
static void *sleep_inside(void *arg) {
    struct sleeper *sleeper = arg;
    hf_acquire_options options = for_only(as_exclusive(HF_FOREVER), 60);
    for (int i = 0; i < times(5); i++) {
        hf_hold *hold;
        int status = hf_acquire(sleeper->client, sleeper->name, &options, &hold);
        if (status == HF_SHORT)
            continue; /* this machine is slow */
        CHECK_IS(status, HF_OK);
        uint64_t token = hf_hold_token(hold);
        for (int step = 0; step < 3; step++) {
            pthread_mutex_lock(sleeper->mutex);
            if (token > *sleeper->largest_token)
                *sleeper->largest_token = token;
            else if (token < *sleeper->largest_token)
                CHECK_IS(hf_check(hold, 0), HF_LOST);
            pthread_mutex_unlock(sleeper->mutex);
            long pause_ms = rand_r(&sleeper->seed) % 45;
            nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
        }
        status = hf_release(hold);
        CHECK(status == HF_OK || status == HF_LOST);
        hf_hold_free(hold);
    }
    return NULL;
}

TEST(who_sleeps_past_its_lease_knows_it_before_another_has_been_there) {
    enum { THREADS = 4 };
    hf_client *shared[] = {open_client(), open_client()};
    const char *name = fresh_name("sleepers");
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    uint64_t largest_token = 0;
    struct sleeper sleepers[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        sleepers[i] = (struct sleeper){shared[i % 2], name, &mutex, &largest_token, i + 1};
        CHECK(pthread_create(&threads[i], NULL, sleep_inside, &sleepers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}
