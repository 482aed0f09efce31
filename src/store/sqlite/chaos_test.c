/* Eight processes take locks of all kinds while some of them are killed and stopped at random, for
 * HOLDFAST_CHAOS_S seconds (8 unless it is set). The witness is memory that they share: at no time
 * are there two holders that exclude each other, both within their deadlines; tokens rise; some
 * worker always makes progress.
 *
 * A holder writes its deadline into its slot, then looks at the others' slots, and clears its own
 * before it releases. So of two that overlap, one sees the other. A worker that is about to be
 * killed is marked first: its slot no longer counts. */
#define TEST_TIMEOUT_S 3600
#include "store/sqlite/sqlite_test.h"

enum {
    WORKERS = 8,
    NAMES = 3,
    CAPACITY = 3,
    BRIEF_MS = 1000, /* a lease, and a wait lease */
    STALL_MS = 60000,
    ENOUGH = 50
};

static const char *const names[NAMES] = {"mutex", "read-write", "permits"};

/* What a worker says about itself, in one number, so that nobody reads half of it. */
struct slot {
    int64_t until_us; /* 0: holds nothing */
    int name;
    unsigned weight; /* of CAPACITY; an exclusive hold weighs all of it */
};

static long long pack(struct slot slot) {
    return (slot.until_us * NAMES + slot.name) * (CAPACITY + 1) + slot.weight;
}

static struct slot unpack(long long packed) {
    long long rest = packed / (CAPACITY + 1);
    return (struct slot){.until_us = rest / NAMES,
                         .name = (int)(rest % NAMES),
                         .weight = (unsigned)(packed % (CAPACITY + 1))};
}

struct witness {
    atomic_llong slots[WORKERS];
    atomic_bool doomed[WORKERS];
    atomic_ullong token[NAMES];
    atomic_long grants, losses, refusals;
    atomic_bool ends;
};

struct worker {
    struct witness *witness;
    int number;
    unsigned seed;
};

static int pick(unsigned *seed, int below) {
    return (int)((unsigned)rand_r(seed) % (unsigned)below);
}

static hf_acquire_options wish(int name, unsigned *seed) {
    hf_acquire_options options = lasting(5000, BRIEF_MS);
    options.kind = name == 0       ? HF_EXCLUSIVE
                   : name == 2     ? HF_PERMITS
                   : pick(seed, 2) ? HF_SHARED
                                   : HF_EXCLUSIVE;
    options.permits = name == 2 ? (uint32_t)pick(seed, CAPACITY) + 1 : 1;
    options.capacity = CAPACITY;
    return options;
}

/* A reader excludes writers but not readers: as if there were room for many of them. */
static unsigned weight_of(const hf_acquire_options *options) {
    return options->kind == HF_PERMITS  ? options->permits
           : options->kind == HF_SHARED ? 0
                                        : CAPACITY;
}

static void check_alone(struct worker *me, hf_hold *hold, int name, unsigned weight) {
    struct witness *w = me->witness;
    unsigned used = weight, readers = weight == 0;
    int64_t now = now_us();
    for (int i = 0; i < WORKERS; i++) {
        struct slot slot = unpack(atomic_load(&w->slots[i]));
        if (i == me->number || slot.name != name || slot.until_us <= now ||
            atomic_load(&w->doomed[i]))
            continue;
        used += slot.weight;
        readers += slot.weight == 0;
    }
    bool conflict = used > CAPACITY || (name == 1 && used > 0 && used + readers > CAPACITY);
    if (conflict && hf_check(hold, 0) == HF_OK && !atomic_load(&w->doomed[me->number]))
        test_fail(__FILE__, __LINE__, "%s has holders that exclude each other (%u used)",
                  names[name], used);
}

/* Tokens must rise. But once a hold is lost, a later holder may have recorded its larger token
 * before this check. */
static void check_token(struct worker *me, hf_hold *hold, int name) {
    unsigned long long token = hf_hold_token(hold), last = atomic_load(&me->witness->token[name]);
    if (!hf_hold_is_exclusive(hold))
        return;
    if (token <= last && hf_check(hold, 0) == HF_OK)
        test_fail(__FILE__, __LINE__, "%s: token %llu after %llu", names[name], token, last);
    while (last < token && !atomic_compare_exchange_weak(&me->witness->token[name], &last, token))
        ;
}

static void hold_a_while(struct worker *me, hf_hold *hold, int name, unsigned weight) {
    atomic_llong *slot = &me->witness->slots[me->number];
    int64_t until_us = now_us(); /* read before the time left, so not past the deadline */
    until_us += hf_hold_left_ms(hold) * 1000 - 1000;
    atomic_store(slot, pack((struct slot){until_us, name, weight}));
    check_alone(me, hold, name, weight);
    check_token(me, hold, name);
    if (pick(&me->seed, 2))
        pause_ms(pick(&me->seed, 10) ? pick(&me->seed, 10) : 200);
    check_alone(me, hold, name, weight);
    atomic_store(slot, 0);
}

static void work(void *arg) {
    struct worker *me = arg;
    struct witness *w = me->witness;
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.wait_lease_ms = BRIEF_MS;
    hf_client *client = NULL;
    int r;
    while ((r = hf_client_open(url_of(the_file()), &options, &client)) == HF_UNREACHABLE)
        ; /* a worker that was stopped in a transaction keeps the file locked */
    CHECK_IS(r, HF_OK);
    while (!atomic_load(&w->ends)) {
        int name = pick(&me->seed, NAMES);
        hf_acquire_options wanted = wish(name, &me->seed);
        hf_hold *hold = NULL;
        r = hf_acquire(client, names[name], &wanted, &hold);
        if (r == HF_TIMEOUT || r == HF_SHORT || r == HF_UNREACHABLE || r == HF_UNKNOWN) {
            atomic_fetch_add(&w->refusals, 1);
            continue;
        }
        CHECK_IS(r, HF_OK);
        atomic_fetch_add(&w->grants, 1);
        hold_a_while(me, hold, name, weight_of(&wanted));
        if (hf_release(hold) == HF_LOST)
            atomic_fetch_add(&w->losses, 1);
        hf_hold_free(hold);
    }
    hf_client_close(client);
}

static pid_t start_worker(struct worker *worker) {
    struct witness *w = worker->witness;
    atomic_store(&w->slots[worker->number], 0);
    atomic_store(&w->doomed[worker->number], false);
    worker->seed += 12345;
    return spawn(work, worker);
}

/* A worker that ended on its own has failed and reported why. */
static void check_alive(pid_t child) {
    if (waitpid(child, NULL, WNOHANG) == child)
        test_fail(__FILE__, __LINE__, "a worker has ended");
}

struct ring {
    struct witness *w;
    struct worker workers[WORKERS];
    pid_t children[WORKERS];
    int64_t wake_ms[WORKERS]; /* when to continue it; 0: it is not stopped */
    unsigned seed;
    int kills, stops;
};

static void resume_those_due(struct ring *ring) {
    for (int i = 0; i < WORKERS; i++) {
        if (ring->wake_ms[i] && now_ms() >= ring->wake_ms[i]) {
            kill(ring->children[i], SIGCONT);
            ring->wake_ms[i] = 0;
        }
        check_alive(ring->children[i]);
    }
}

static int stopped_count(const struct ring *ring) {
    int count = 0;
    for (int i = 0; i < WORKERS; i++)
        count += ring->wake_ms[i] != 0;
    return count;
}

/* A random worker; every other time one that holds a lock right now, if a few tries find one. */
static int pick_victim(struct ring *ring) {
    int victim = pick(&ring->seed, WORKERS);
    for (int i = pick(&ring->seed, 2) * 100000; i > 0; i--) {
        if (unpack(atomic_load(&ring->w->slots[victim])).until_us > now_us() &&
            !ring->wake_ms[victim])
            break;
        victim = (victim + 1) % WORKERS;
    }
    return victim;
}

static void do_harm(struct ring *ring) {
    int i = pick_victim(ring);
    /* Most stopped workers must find out on their own what they have lost. */
    if (pick(&ring->seed, ring->wake_ms[i] ? 8 : 2) == 0) {
        atomic_store(&ring->w->doomed[i], true);
        kill_hard(ring->children[i]);
        ring->wake_ms[i] = 0;
        ring->children[i] = start_worker(&ring->workers[i]);
        ring->kills++;
    } else if (!ring->wake_ms[i] && stopped_count(ring) < 3) {
        kill(ring->children[i], SIGSTOP);
        ring->wake_ms[i] = now_ms() + pick(&ring->seed, 2 * BRIEF_MS);
        ring->stops++;
    }
}

TEST(locks_exclude_whoever_is_killed_or_stopped) {
    const char *seconds = getenv("HOLDFAST_CHAOS_S");
    int64_t until_ms = now_ms() + (seconds ? atoi(seconds) : 8) * 1000;
    static struct ring ring;
    ring.w = shared(sizeof(*ring.w));
    ring.seed = (unsigned)now_us();
    printf("# seed %u\n", ring.seed);
    for (int i = 0; i < WORKERS; i++) {
        ring.workers[i] = (struct worker){ring.w, i, ring.seed + (unsigned)i};
        ring.children[i] = start_worker(&ring.workers[i]);
    }
    long grants = 0;
    for (int64_t moved_ms = now_ms(); now_ms() < until_ms || grants <= ENOUGH;
         pause_ms(10 + pick(&ring.seed, 80))) {
        resume_those_due(&ring);
        do_harm(&ring);
        if (atomic_load(&ring.w->grants) != grants)
            moved_ms = now_ms();
        grants = atomic_load(&ring.w->grants);
        CHECK(now_ms() - moved_ms < STALL_MS);
    }
    atomic_store(&ring.w->ends, true);
    for (int i = 0; i < WORKERS; i++) {
        kill(ring.children[i], SIGCONT);
        check_ends_well(ring.children[i]);
    }
    printf("# %ld grants, %ld lost, %ld refused, %d kills, %d stops\n", grants,
           atomic_load(&ring.w->losses), atomic_load(&ring.w->refusals), ring.kills, ring.stops);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM pragma_integrity_check WHERE"
                                   " integrity_check = 'ok'"),
                 1);
}
