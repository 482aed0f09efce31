/* Barriers: `parties` wait for each other.
 *
 * Design notes. A party has two holds with leases, so a party that dies no longer counts when they
 * end, and somebody else can take its place. The end of a lease must not undo what has happened, so
 * that is kept in a counter, "NAME/opened": how often the barrier has opened (the generation).
 *
 *     place   one of as many permits as there are parties, under the barrier's name
 *     mark    a shared hold of "NAME/there", whose label is the generation g that was read while
 *             the place was held
 *
 * A party that sees as many marks of g as there are parties sets the counter from g to g + 1, which
 * succeeds once. A party that sees a counter above g has passed, however late it looks.
 *
 * Nobody is left out: a party that has a place but no mark yet keeps the number of marks below that
 * of the parties, so the barrier does not open before that party has its mark. (It could open if
 * there were only marks: between the grant of a mark and the next look, a party does not know
 * whether its mark was counted.) Hence a mark counts only if its party still holds the place when
 * the mark is granted.
 *
 * A party that leaves releases both and waits until there is no mark of g. The next generation
 * needs all places, so it does not open before that.
 *
 * If the store has forgotten the counter, g is larger than the store's value, and the party starts
 * again. */
#include "recipes/waiting.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hf_barrier {
    hf_client *client;
    hf_call *anchor; /* keeps the client's memory */
    hf_hold *place, *mark;
    int64_t generation;
    bool is_first;  /* there is no counter yet */
    char label[32]; /* of this generation's marks */
    /* The names of the marks' lock and of the counter, which are stored after `name`. */
    char *marks, *opened;
    char name[];
};

/* ---- Looking ---- */

/* How often the barrier has opened. */
static int read_generation(struct waiting *w, const struct hf_barrier *b, hf_counter *ret) {
    *ret = (hf_counter)HF_COUNTER_INIT;
    return waiting_count(w, b->opened, NULL, ret);
}

/* How many marks of the generation there are. */
static int count_marks(struct waiting *w, const struct hf_barrier *b, uint32_t *ret_count) {
    hf_locks *locks;
    int r = waiting_inspect(w, b->marks, &locks);
    if (r < 0)
        return r;
    const hf_lock_info *lock = hf_locks_at(locks, 0);
    *ret_count = 0;
    for (size_t i = 0; lock && i < lock->holder_count; i++)
        *ret_count += strcmp(lock->holders[i]->label, b->label) == 0;
    hf_locks_free(locks);
    return HF_OK;
}

/* ---- Entering ---- */

static void give_up_place(struct hf_barrier *b) {
    b->mark = hf_hold_free(b->mark);
    b->place = hf_hold_free(b->place);
}

static bool is_there(const struct hf_barrier *b) {
    return b->place && b->mark && hf_check(b->place, 0) == HF_OK && hf_check(b->mark, 0) == HF_OK;
}

static hf_acquire_options asking(const struct waiting *w, const hf_barrier_options *options) {
    hf_acquire_options ask = HF_ACQUIRE_OPTIONS_INIT;
    ask.lease_ms = options->lease_ms;
    ask.wait_ms = w->once ? 0 : waiting_left_ms(w);
    return ask;
}

static int take_place(struct waiting *w, struct hf_barrier *b, const hf_barrier_options *options) {
    hf_acquire_options ask = asking(w, options);
    ask.kind = HF_PERMITS;
    ask.capacity = options->parties;
    return hf_acquire(b->client, b->name, &ask, &b->place);
}

static int set_mark(struct waiting *w, struct hf_barrier *b, const hf_barrier_options *options) {
    hf_acquire_options ask = asking(w, options);
    ask.kind = HF_SHARED;
    ask.label = b->label;
    return hf_acquire(b->client, b->marks, &ask, &b->mark);
}

/* Takes part in the current generation. HF_PENDING: the store is away, or was too slow. */
static int join(struct waiting *w, struct hf_barrier *b, const hf_barrier_options *options) {
    hf_counter now;
    int r = read_generation(w, b, &now); /* so that a store without counters grants nothing */
    if (!r)
        r = take_place(w, b, options);
    if (!r)
        r = read_generation(w, b, &now);
    if (r < 0)
        return r;
    b->generation = now.value;
    b->is_first = !now.exists;
    snprintf(b->label, sizeof(b->label), "generation %" PRId64, b->generation);
    r = set_mark(w, b, options);
    return r < 0 || is_there(b) ? r : HF_PENDING;
}

/* Opens the barrier, unless somebody else has. */
static int open_barrier(struct waiting *w, const struct hf_barrier *b, hf_counter *ret_now) {
    hf_count_options cas = HF_COUNT_OPTIONS_INIT;
    cas.op = HF_COUNT_CAS;
    cas.expected = b->generation;
    cas.expect_none = b->is_first;
    cas.number = b->generation + 1;
    int r = waiting_count(w, b->opened, &cas, ret_now);
    return r == HF_MISMATCH ? HF_OK : r;
}

/* HF_OK: the generation has changed. HF_PENDING: not yet. */
static int look(struct waiting *w, const struct hf_barrier *b, uint32_t parties, int64_t *ret_now) {
    hf_counter now;
    uint32_t present = 0;
    int r = read_generation(w, b, &now);
    if (r == HF_OK && now.value == b->generation)
        r = count_marks(w, b, &present);
    if (r == HF_OK && present >= parties)
        r = open_barrier(w, b, &now);
    *ret_now = now.value;
    return r < 0 || now.value != b->generation ? r : HF_PENDING;
}

/* Waits until the barrier opens. A party whose lease ended before that starts again. */
static int enter(struct waiting *w, struct hf_barrier *b, const hf_barrier_options *options) {
    for (;;) {
        int64_t now = 0;
        int r = b->mark ? HF_OK : join(w, b, options);
        if (r == HF_OK)
            r = look(w, b, options->parties, &now);
        if (r == HF_OK && now > b->generation)
            return HF_OK;
        if (r < 0 && r != HF_PENDING)
            return r;
        if (r == HF_OK || !is_there(b))
            give_up_place(b);
        r = waiting_pause(w, INT64_MAX);
        if (r < 0)
            return r;
    }
}

/* ---- The header's calls ---- */

static int read_options(const hf_barrier_options *given, hf_barrier_options *ret) {
    *ret = (hf_barrier_options)HF_BARRIER_OPTIONS_INIT;
    if (given && given->size < sizeof(given->size))
        return error_set(HF_BAD_ARGUMENT, "the size of the options is not set");
    if (given)
        memcpy(ret, given, given->size < sizeof(*ret) ? given->size : sizeof(*ret));
    if (ret->parties < 1)
        return error_set(HF_BAD_ARGUMENT, "parties is 0");
    return HF_OK;
}

static struct hf_barrier *barrier_new(hf_client *client, const char *name) {
    static const char there[] = "/there", opened[] = "/opened";
    size_t size = strlen(name) + 1;
    struct hf_barrier *b = calloc(1, sizeof(*b) + 3 * size + sizeof(there) + sizeof(opened));
    if (!b)
        return NULL;
    b->client = client;
    memcpy(b->name, name, size);
    b->marks = b->name + size;
    b->opened = b->marks + size + sizeof(there);
    sprintf(b->marks, "%s%s", name, there);
    sprintf(b->opened, "%s%s", name, opened);
    return b;
}

/* Waits until the barrier has opened. */
static int pass(hf_client *client, const char *name, const hf_barrier_options *options,
                hf_barrier **ret_barrier) {
    hf_barrier_options own;
    struct waiting waiting;
    int r = name ? read_options(options, &own) : error_set(HF_BAD_NAME, "it is NULL");
    if (r < 0)
        return r;
    struct hf_barrier *b = barrier_new(client, name);
    if (!b)
        return error_set_text(HF_NO_MEMORY, NULL);
    r = hf_pause_start(client, &b->anchor);
    if (!r)
        r = waiting_begin(&waiting, client, b->marks, own.wait_ms);
    if (!r) {
        r = enter(&waiting, b, &own);
        waiting_end(&waiting);
    }
    if (r < 0)
        hf_barrier_free(b);
    else
        *ret_barrier = b;
    return r;
}

int hf_barrier_wait(hf_client *client, const char *name, const hf_barrier_options *options) {
    hf_barrier *barrier;
    int r = pass(client, name, options, &barrier);
    if (r == HF_OK)
        hf_barrier_free(barrier);
    return r;
}

int hf_barrier_enter(hf_client *client, const char *name, const hf_barrier_options *options,
                     hf_barrier **ret_barrier) {
    hf_barrier *barrier;
    if (!ret_barrier)
        return error_set(HF_BAD_ARGUMENT, "ret_barrier is NULL");
    int r = pass(client, name, options, &barrier);
    if (r < 0)
        return r;
    r = hf_check(barrier->mark, 0);
    if (r == HF_OK)
        *ret_barrier = barrier;
    else
        hf_barrier_free(barrier); /* the others may have left already */
    return r;
}

hf_hold *hf_barrier_hold(const hf_barrier *barrier) {
    return barrier ? barrier->mark : NULL;
}

static int leave(struct waiting *w, struct hf_barrier *b) {
    for (;;) {
        uint32_t present = 0;
        int r = count_marks(w, b, &present);
        if (r == HF_OK && present == 0)
            return HF_OK;
        if (r == HF_OK || r == HF_PENDING)
            r = waiting_pause(w, INT64_MAX);
        if (r < 0)
            return r;
    }
}

/* Removes the mark. If the store does not confirm that in time, it is repeated in the
 * background. */
static int remove_mark(struct waiting *w, hf_hold *mark) {
    hf_call *call;
    int r = hf_release_start(mark, &call);
    if (r < 0)
        return r;
    r = hf_call_wait(call, waiting_left_ms(w));
    hf_call_free(call);
    return r == HF_LOST || r == HF_CANCELLED || r == HF_CLOSED ? r : HF_OK;
}

int hf_barrier_leave(hf_barrier *barrier, int64_t wait_ms) {
    struct waiting waiting;
    if (!barrier)
        return error_set(HF_BAD_ARGUMENT, "the barrier is NULL");
    int r = waiting_begin(&waiting, barrier->client, barrier->marks, wait_ms);
    if (r < 0)
        return r;
    r = remove_mark(&waiting, barrier->mark);
    barrier->place = hf_hold_free(barrier->place);
    if (r == HF_OK)
        r = leave(&waiting, barrier);
    waiting_end(&waiting);
    return r;
}

hf_barrier *hf_barrier_free(hf_barrier *b) {
    if (!b)
        return NULL;
    give_up_place(b);
    hf_call_free(b->anchor);
    free(b);
    return NULL;
}
