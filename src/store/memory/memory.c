/* The memory store: locks among the threads of one process, and the reference for the lock model.
 * Other stores are compared with this one, so it is simple rather than fast.
 *
 * A space is a set of names, shared by all clients of the process that open the same URL. A name
 * has at most one lock. A claim is somebody's place at it: WAITING in the queue, RESERVED (it is
 * this claim's turn, and it must ask again before its wait lease ends) or HELD. The weights of
 * reserved and held claims count as used. Claims end by release, by break, or by time. Nothing
 * watches the clock: the next request removes claims that have expired (sweep), and gives what that
 * frees to the waiters (advance). The host's clock is the store's clock.
 *
 * With lease_limit=MS in its URL a client is granted leases of that length at most, however long a
 * lease it asks for. This is for testing the negotiation of leases without a server that has such a
 * limit.
 *
 * Threads: one mutex for each space. A client calls with its own mutex held, so this code must
 * never call a client: a message for another client is put in its session's inbox, and its bell is
 * rung. */
#include "base/error.h"
#include "base/map.h"
#include "base/url.h"
#include "net/options.h"
#include "store/locks.h"
#include "store/memory/counters.h"
#include "store/memory/examine.h"
#include "store/schemes.h"
#include "store/voting.h"
#include "world/epoch.h"
#include "world/world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_LIMIT_MAX_MS 86400000

/* The spaces of a process. A forked child makes its own: its parent's may stay locked. */
struct spaces {
    uint64_t epoch;
    struct spaces *parents;
    pthread_mutex_t mutex;
    struct list list;
};

struct space {
    struct list link; /* in the spaces' list */
    struct spaces *spaces;
    unsigned users;
    pthread_mutex_t mutex;
    struct map locks, claims;
    struct list idle;   /* locks that nobody claims, the longest unused first */
    struct list voters; /* sessions that have joined a set */
    struct list watchers;
    struct counters counters;
    char *set; /* the name of the first set that a session joined; NULL: none did */
    uint64_t token_base;
    struct session *calling; /* whose operation is running: it reads its inbox itself */
    char name[];
};

/* The store of one client. Lives until it is closed and its last claim has ended. */
struct session {
    struct store store;
    struct store_host *host; /* NULL: closed */
    struct space *space;
    struct store_identity identity;
    struct world_bell bell;
    int64_t lease_limit_us;
    const struct store_set *set; /* NULL: it is not a node */
    struct list inbox;           /* claims that the client must be notified of */
    struct list voter;           /* in the space's voters */
    struct list freed;           /* names that were released, for its set */
    struct list watcher;         /* in the space's watchers, while it watches */
    struct list changes;         /* that its client must be notified of */
    bool missed_changes;         /* for lack of memory */
    size_t claims;
    char strings[]; /* of the identity */
};

struct lock {
    struct map_node by_name;
    struct list idle;
    struct list holders; /* held and reserved, the first to expire first */
    struct list queue;   /* waiting, first come, first served */
    uint64_t token;
    int64_t idle_since_us;
    uint32_t used, capacity;
    uint8_t kind;
    struct breaking *last_break; /* NULL: none */
    char name[];
};

struct breaking {
    int64_t at_us; /* wall clock */
    uint64_t token;
    char by[LOCKS_BREAKER_SIZE];
    char reason[];
};

enum claim_state { WAITING, RESERVED, HELD, BROKEN };

struct claim {
    struct map_node by_owner;
    struct list link;  /* in the lock's holders or queue */
    struct list inbox; /* in the session's */
    struct session *session;
    struct lock *lock;
    uint64_t seq, token;
    int64_t until_us; /* when the lease, or the wait lease, ends on the host's clock */
    int64_t since_us; /* wall clock */
    uint32_t weight;
    uint8_t state;
    bool barges;
    char label[];
};

static _Atomic(struct spaces *) all_spaces;

/* ---- Finding and making ---- */

static uint64_t owner_hash(const struct session *session, uint64_t seq) {
    return map_hash_number((uintptr_t)session ^ map_hash_number(seq));
}

static struct claim *find_claim(struct session *session, uint64_t seq) {
    uint64_t hash = owner_hash(session, seq);
    for (struct map_node *node = map_find(&session->space->claims, hash); node;
         node = map_find_next(node)) {
        struct claim *claim = container_of(node, struct claim, by_owner);
        if (claim->session == session && claim->seq == seq)
            return claim;
    }
    return NULL;
}

static struct lock *find_lock(struct space *space, const char *name) {
    uint64_t hash = map_hash(name, strlen(name), 0);
    for (struct map_node *node = map_find(&space->locks, hash); node; node = map_find_next(node)) {
        struct lock *lock = container_of(node, struct lock, by_name);
        if (strcmp(lock->name, name) == 0)
            return lock;
    }
    return NULL;
}

static struct lock *lock_new(struct space *space, const char *name, int64_t now_us) {
    size_t size = strlen(name) + 1;
    struct lock *lock = calloc(1, sizeof(*lock) + size);
    if (!lock)
        return NULL;
    memcpy(lock->name, name, size);
    list_init(&lock->holders);
    list_init(&lock->queue);
    lock->idle_since_us = now_us;
    list_append(&space->idle, &lock->idle);
    map_add(&space->locks, &lock->by_name, map_hash(name, size - 1, 0));
    return lock;
}

static void lock_free(struct space *space, struct lock *lock) {
    map_remove(&space->locks, &lock->by_name);
    list_remove(&lock->idle);
    free(lock->last_break);
    free(lock);
}

static bool is_unused(const struct lock *lock) {
    return list_empty(&lock->holders) && list_empty(&lock->queue);
}

static struct claim *claim_new(struct session *session, struct lock *lock,
                               const struct store_op *op) {
    size_t label_size = op->label ? strlen(op->label) + 1 : 1;
    struct claim *claim = calloc(1, sizeof(*claim) + label_size);
    if (!claim)
        return NULL;
    if (op->label)
        memcpy(claim->label, op->label, label_size);
    claim->session = session;
    claim->lock = lock;
    claim->seq = op->seq;
    claim->weight = op->weight;
    claim->barges = op->flags & STORE_BARGE;
    claim->since_us = world_wall_us(session->host->world);
    list_init(&claim->link);
    list_init(&claim->inbox);
    map_add(&session->space->claims, &claim->by_owner, owner_hash(session, op->seq));
    session->claims++;
    list_remove(&lock->idle);
    return claim;
}

static void session_free_if_done(struct session *session) {
    if (!session->host && session->claims == 0)
        free(session);
}

static void claim_free(struct claim *claim) {
    struct session *session = claim->session;
    list_remove(&claim->inbox);
    free(claim);
    session->claims--;
    session_free_if_done(session);
}

/* Removes the claim from its lock; does not free it. */
static void detach(struct claim *claim, int64_t now_us) {
    struct lock *lock = claim->lock;
    struct space *space = claim->session->space;
    if (claim->state != WAITING)
        lock->used -= claim->weight;
    list_remove(&claim->link);
    map_remove(&space->claims, &claim->by_owner);
    if (is_unused(lock)) {
        lock->idle_since_us = now_us;
        list_append(&space->idle, &lock->idle);
    }
}

static void end_claim(struct claim *claim, int64_t now_us) {
    detach(claim, now_us);
    claim_free(claim);
}

/* ---- Time, and whose turn it is ---- */

static void notify(struct claim *claim) {
    struct session *session = claim->session;
    if (session->host && list_empty(&claim->inbox)) {
        list_append(&session->inbox, &claim->inbox);
        if (session != session->space->calling)
            world_bell_ring(&session->bell);
    }
}

/* The name of a hold that ended, for a session to announce to its set. */
struct freed {
    struct list link;
    char name[];
};

/* Announces to the clients of a set that one of the set's holds has ended. It is a hint: without
 * memory it is dropped. */
static void announce(struct session *by, const char *name) {
    size_t size = strlen(name) + 1;
    struct space *space = by->space;
    if (!by->set)
        return;
    list_each(node, &space->voters) {
        struct session *session = container_of(node, struct session, voter);
        struct freed *freed = malloc(sizeof(*freed) + size);
        if (!freed)
            return;
        memcpy(freed->name, name, size);
        list_append(&session->freed, &freed->link);
        if (session != space->calling)
            world_bell_ring(&session->bell);
    }
}

/* ---- Watchers ---- */

struct change {
    struct list link;
    struct store_change change;
};

static bool add_party(struct hf_locks *locks, const struct claim *claim, int64_t now_us);
static bool add_break(struct hf_locks *locks, const struct breaking *last);

static struct change *change_new(const struct claim *claim, hf_change_type type, int64_t now_us) {
    const struct lock *lock = claim->lock;
    struct change *change = calloc(1, sizeof(*change));
    struct hf_locks *locks = locks_new();
    if (change && locks && locks_add(locks, lock->name, lock->kind, lock->capacity, lock->token) &&
        add_break(locks, type == HF_CHANGE_BROKEN ? lock->last_break : NULL) &&
        add_party(locks, claim, now_us)) {
        int64_t at_us = world_wall_us(claim->session->space->calling->host->world);
        change->change = (struct store_change){type, at_us, locks, NULL};
        return change;
    }
    hf_locks_free(locks);
    free(change);
    return NULL;
}

/* Reports what happens to a claim, before it ends, to all watchers. */
static void report(const struct claim *claim, hf_change_type type, int64_t now_us) {
    struct space *space = claim->session->space;
    list_each(node, &space->watchers) {
        struct session *session = container_of(node, struct session, watcher);
        struct change *change = change_new(claim, type, now_us);
        session->missed_changes |= !change;
        if (change)
            list_append(&session->changes, &change->link);
        if (session != space->calling)
            world_bell_ring(&session->bell);
    }
}

static void say(struct session *session, hf_change_type type, const char *text) {
    struct store_change change = {
        .type = type, .at_us = world_wall_us(session->host->world), .text = text};
    session->host->changed(session->host, &change);
}

static void hand_over_changes(struct session *session) {
    struct list *node;
    while ((node = list_pop(&session->changes))) {
        struct change *change = container_of(node, struct change, link);
        session->host->changed(session->host, &change->change);
        free(change);
    }
    if (!session->missed_changes)
        return;
    session->missed_changes = false;
    say(session, HF_CHANGE_MISSED, "out of memory");
    say(session, HF_CHANGE_WATCHING, NULL);
}

static void watch(struct session *session, struct store_op *op, int64_t now_us) {
    (void)now_us;
    list_append(&session->space->watchers, &session->watcher);
    store_complete(session->host, op, STORE_DONE);
    say(session, HF_CHANGE_WATCHING, NULL);
}

static void unwatch(struct session *session, struct store_op *op, int64_t now_us) {
    (void)now_us;
    list_remove(&session->watcher);
    store_complete(session->host, op, STORE_DONE);
}

/* Keeps the holders in the order of their ends. Equal leases need no search. */
static void place_among_holders(struct lock *lock, struct claim *claim) {
    list_remove(&claim->link);
    struct list *after = lock->holders.prev;
    while (after != &lock->holders &&
           container_of(after, struct claim, link)->until_us > claim->until_us)
        after = after->prev;
    list_insert_before(after->next, &claim->link);
}

static struct claim *first_of(struct list *list) {
    return list_empty(list) ? NULL : container_of(list->next, struct claim, link);
}

/* Ends the claims whose time has passed: all such holders, and those at the front of the queue. */
static void sweep(struct lock *lock, int64_t now_us) {
    struct claim *claim;
    while ((claim = first_of(&lock->holders)) && claim->until_us <= now_us)
        end_claim(claim, now_us);
    while ((claim = first_of(&lock->queue)) && claim->until_us <= now_us)
        end_claim(claim, now_us);
}

static bool fits(const struct lock *lock, uint32_t weight) {
    return weight <= lock->capacity - lock->used;
}

/* Reserves the lock for the waiters at the front of the queue, as many as fit, and wakes them. */
static void advance(struct lock *lock, int64_t now_us) {
    struct claim *claim;
    for (;;) {
        sweep(lock, now_us);
        claim = first_of(&lock->queue);
        if (!claim || !fits(lock, claim->weight))
            return;
        claim->state = RESERVED;
        lock->used += claim->weight;
        place_among_holders(lock, claim);
        notify(claim);
    }
}

/* Forgets counters that nobody has used for a week. */
static void forget_idle(struct space *space, int64_t now_us) {
    while (!list_empty(&space->idle)) {
        struct lock *lock = container_of(space->idle.next, struct lock, idle);
        if (now_us - lock->idle_since_us < STORE_COUNTER_IDLE_US)
            return;
        lock_free(space, lock);
    }
}

/* ---- The operations ---- */

/* The lock of the request, of its kind; NULL when the request has been refused. */
static struct lock *lock_for(struct session *session, struct store_op *op, int64_t now_us) {
    struct lock *lock = find_lock(session->space, op->name);
    if (!lock)
        lock = lock_new(session->space, op->name, now_us);
    if (!lock) {
        store_refuse(session->host, op, HF_NO_MEMORY, NULL);
        return NULL;
    }
    advance(lock, now_us);
    if (is_unused(lock)) {
        lock->kind = op->kind;
        lock->capacity = op->capacity;
    } else if (lock->kind != op->kind || lock->capacity != op->capacity) {
        store_refuse(session->host, op, HF_WRONG_KIND,
                     store_describe_kind(lock->kind, lock->capacity));
        return NULL;
    }
    return lock;
}

/* What the token of a grant depends on, besides the counter. */
struct terms {
    uint64_t floor, base;
    uint64_t retaken; /* the token of a hold whose vote was lost; 0: it is not a RETAKE */
    bool raises;      /* only if it is held already */
};

static int next_token(const struct claim *claim, const struct terms *terms, int64_t wall_us,
                      uint64_t *ret_token, char **ret_text) {
    bool repeats = claim->state == HELD;
    uint64_t counter = repeats ? claim->token : claim->lock->token;
    int r = terms->retaken ? store_check_retake(counter, terms->retaken, ret_text) : HF_OK;
    if (r < 0)
        return r;
    repeats |= counter && counter == terms->retaken;
    return store_next_token(counter, repeats, terms->floor, terms->base, wall_us, ret_token,
                            ret_text);
}

static int64_t grant_us(const struct session *session, int64_t asked_us) {
    return asked_us < session->lease_limit_us ? asked_us : session->lease_limit_us;
}

/* Grants the token and the lease. A claim that already holds gets its own again (rule 3). */
static void take(struct session *session, struct claim *claim, struct store_op *op,
                 const struct terms *terms, int64_t now_us) {
    struct lock *lock = claim->lock;
    bool repeats = claim->state == HELD;
    int64_t wall_us = world_wall_us(session->host->world);
    char *text = NULL;
    uint64_t token;
    int r = next_token(claim, terms, wall_us, &token, &text);
    if (r < 0) {
        end_claim(claim, now_us);
        advance(lock, now_us);
        store_refuse(session->host, op, r, text);
        return;
    }
    if (claim->state == WAITING)
        lock->used += claim->weight;
    if (!repeats)
        claim->since_us = wall_us;
    op->lease_us = grant_us(session, op->lease_us);
    if (!repeats || claim->until_us < now_us + op->lease_us)
        claim->until_us = now_us + op->lease_us; /* which may be earlier than its wait lease */
    claim->state = HELD;
    claim->token = token;
    if (lock->token < token)
        lock->token = token;
    place_among_holders(lock, claim);
    if (!repeats)
        report(claim, HF_CHANGE_ACQUIRED, now_us);
    list_remove(&claim->inbox);
    op->token = token;
    store_complete(session->host, op, STORE_DONE);
}

/* How long until the first lease ends, unless it is released before. */
static int64_t left_us(struct lock *lock, int64_t now_us) {
    struct claim *first = first_of(&lock->holders);
    return first ? first->until_us - now_us : 0;
}

/* Adds the claim at the end of the queue; a barging one goes before those that do not barge. */
static void queue_up(struct lock *lock, struct claim *claim) {
    struct list *before = &lock->queue;
    if (claim->barges) {
        before = lock->queue.next;
        while (before != &lock->queue && container_of(before, struct claim, link)->barges)
            before = before->next;
    }
    list_insert_before(before, &claim->link);
}

static void acquire_on(struct session *session, struct store_op *op, const struct terms *terms,
                       int64_t now_us) {
    struct lock *lock = lock_for(session, op, now_us);
    if (!lock)
        return;
    struct claim *claim = find_claim(session, op->seq);
    if (terms->raises && (!claim || claim->state != HELD)) {
        store_refuse(session->host, op, HF_NOT_YOURS, NULL);
        return;
    }
    bool may_take = claim && claim->state != WAITING;
    if (!may_take)
        may_take = fits(lock, op->weight) && (list_empty(&lock->queue) || op->flags & STORE_BARGE);
    if (!may_take && !(op->flags & STORE_WAIT)) {
        op->left_us = left_us(lock, now_us);
        store_refuse(session->host, op, HF_BUSY, NULL);
        return;
    }
    if (!claim && !(claim = claim_new(session, lock, op))) {
        store_refuse(session->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    if (may_take) {
        take(session, claim, op, terms, now_us);
        return;
    }
    claim->until_us = now_us + session->host->wait_lease_us;
    if (list_empty(&claim->link)) {
        queue_up(lock, claim);
        report(claim, HF_CHANGE_WAITING, now_us);
    }
    if (lock->queue.next == &claim->link)
        op->flags |= STORE_HEAD;
    op->left_us = left_us(lock, now_us);
    store_complete(session->host, op, STORE_QUEUED);
}

static void acquire(struct session *session, struct store_op *op, int64_t now_us) {
    struct terms terms = {.floor = op->floor, .base = session->space->token_base};
    forget_idle(session->space, now_us);
    acquire_on(session, op, &terms, now_us);
}

static void renew(struct session *session, struct store_op *op, int64_t now_us) {
    for (size_t i = 0; i < op->renewal_count; i++) {
        struct store_renewal *renewal = &op->renewals[i];
        if (!renewal->of)
            continue;
        struct claim *claim = find_claim(session, renewal->of->seq);
        if (!claim || claim->state != HELD || claim->until_us <= now_us) {
            renewal->outcome = STORE_NOT_YOURS;
            continue;
        }
        renewal->lease_us = grant_us(session, renewal->lease_us);
        if (claim->until_us < now_us + renewal->lease_us)
            claim->until_us = now_us + renewal->lease_us;
        place_among_holders(claim->lock, claim);
        renewal->outcome = STORE_DONE;
    }
    store_complete(session->host, op, STORE_DONE);
}

static bool end_hold(struct session *session, struct store_op *op, int64_t now_us) {
    struct lock *lock = find_lock(session->space, op->name);
    if (lock)
        sweep(lock, now_us);
    struct claim *claim = find_claim(session, op->seq);
    if (claim) {
        report(claim, claim->state == HELD ? HF_CHANGE_RELEASED : HF_CHANGE_LEFT, now_us);
        end_claim(claim, now_us);
    }
    if (lock)
        advance(lock, now_us);
    return claim;
}

static void release(struct session *session, struct store_op *op, int64_t now_us) {
    bool ended = end_hold(session, op, now_us);
    if (ended)
        announce(session, op->name);
    store_complete(session->host, op, ended ? STORE_DONE : STORE_NOT_YOURS);
}

static struct claim *holder_with(struct lock *lock, uint64_t token) {
    list_each(node, &lock->holders) {
        struct claim *claim = container_of(node, struct claim, link);
        if (claim->state == HELD && claim->token == token)
            return claim;
    }
    return NULL;
}

static struct breaking *breaking_new(struct session *session, const struct store_op *op) {
    size_t reason_size = op->label ? strlen(op->label) + 1 : 1;
    struct breaking *breaking = calloc(1, sizeof(*breaking) + reason_size);
    if (!breaking)
        return NULL;
    breaking->at_us = world_wall_us(session->host->world);
    breaking->token = op->token;
    locks_format_breaker(&session->identity, breaking->by);
    if (op->label)
        memcpy(breaking->reason, op->label, reason_size);
    return breaking;
}

static void break_hold(struct session *session, struct store_op *op, int64_t now_us) {
    struct lock *lock = find_lock(session->space, op->name);
    if (lock)
        sweep(lock, now_us);
    struct claim *claim = lock ? holder_with(lock, op->token) : NULL;
    if (!claim) {
        store_complete(session->host, op, STORE_NOT_YOURS);
        return;
    }
    struct breaking *breaking = breaking_new(session, op);
    if (!breaking) {
        store_refuse(session->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    free(lock->last_break);
    lock->last_break = breaking;
    report(claim, HF_CHANGE_BROKEN, now_us);
    lock->token++;
    detach(claim, now_us);
    claim->state = BROKEN;
    notify(claim);
    if (list_empty(&claim->inbox))
        claim_free(claim); /* its client is closed: nobody to notify */
    advance(lock, now_us);
    announce(session, op->name);
    store_complete(session->host, op, STORE_DONE);
}

/* ---- Voting ---- */

static struct terms terms_of(const struct store_vote *vote, uint64_t base) {
    switch (vote->type) {
    case STORE_RAISE:
        return (struct terms){.base = base > vote->token ? base : vote->token, .raises = true};
    case STORE_RETAKE:
        return (struct terms){.floor = vote->token, .base = base, .retaken = vote->token};
    default:
        return (struct terms){.floor = vote->op.floor, .base = base};
    }
}

/* A space exists as long as any client of the process uses it. So one without a set has forgotten
 * no votes, and votes at once. */
static void vote(struct session *session, struct store_op *op, int64_t now_us) {
    struct store_vote *vote = container_of(op, struct store_vote, op);
    struct space *space = session->space;
    struct terms terms = terms_of(vote, space->token_base);
    if (strcmp(session->set->name, space->set) != 0) {
        store_refuse_vote(session->host, vote, space->set, session->set->name);
        return;
    }
    forget_idle(space, now_us);
    acquire_on(session, op, &terms, now_us);
}

static void give_back(struct session *session, struct store_op *op, int64_t now_us) {
    store_complete(session->host, op, end_hold(session, op, now_us) ? STORE_DONE : STORE_NOT_YOURS);
}

/* ---- Looking ---- */

static bool add_party(struct hf_locks *locks, const struct claim *claim, int64_t now_us) {
    const struct store_identity *who = &claim->session->identity;
    hf_party party = {
        .host = who->host,
        .command = who->command,
        .label = claim->label,
        .pid = who->pid,
        .token = claim->state == HELD ? claim->token : 0,
        .weight = claim->weight,
        .since_ms = claim->since_us / 1000,
        .left_ms = (claim->until_us - now_us) / 1000,
    };
    enum locks_role role = claim->state == HELD ? LOCKS_HOLDER : LOCKS_WAITER;
    return locks_add_party(locks, role, &party, who->id, claim->seq);
}

static bool add_parties(struct hf_locks *locks, struct list *claims, int64_t now_us) {
    list_each(node, claims) {
        const struct claim *claim = container_of(node, struct claim, link);
        if (claim->until_us > now_us /* else dead, and still in the queue */ &&
            !add_party(locks, claim, now_us))
            return false;
    }
    return true;
}

static bool add_break(struct hf_locks *locks, const struct breaking *last) {
    return !last || locks_set_break(locks, &(struct locks_break){.at_us = last->at_us,
                                                                 .token = last->token,
                                                                 .by = last->by,
                                                                 .reason = last->reason});
}

static bool add_lock(struct hf_locks *locks, struct lock *lock, int64_t now_us) {
    return locks_add(locks, lock->name, lock->kind, lock->capacity, lock->token) &&
           add_break(locks, lock->last_break) && add_parties(locks, &lock->holders, now_us) &&
           add_parties(locks, &lock->queue, now_us);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct lock *const *)a)->name, (*(struct lock *const *)b)->name);
}

/* The locks in use that match, in the order of their names; false when there is no memory. */
static bool find_matching(struct space *space, const struct store_op *op, int64_t now_us,
                          struct lock ***ret_found, size_t *ret_count) {
    struct lock **found = calloc(space->locks.count + 1, sizeof(struct lock *));
    if (!found)
        return false;
    size_t count = 0, prefix_size = strlen(op->name);
    for (struct map_node *node = map_first(&space->locks); node;
         node = map_after(&space->locks, node)) {
        struct lock *lock = container_of(node, struct lock, by_name);
        advance(lock, now_us);
        if (!is_unused(lock) && strncmp(lock->name, op->name, prefix_size) == 0 &&
            (!op->after || strcmp(lock->name, op->after) > 0))
            found[count++] = lock;
    }
    qsort(found, count, sizeof(struct lock *), by_name);
    *ret_found = found;
    *ret_count = count;
    return true;
}

static bool look(struct session *session, struct store_op *op, int64_t now_us) {
    op->locks = locks_new();
    if (!op->locks)
        return false;
    if (op->type == STORE_INSPECT) {
        struct lock *lock = find_lock(session->space, op->name);
        if (lock)
            advance(lock, now_us);
        return !lock || add_lock(op->locks, lock, now_us);
    }
    struct lock **found;
    size_t count;
    bool ok = find_matching(session->space, op, now_us, &found, &count);
    if (!ok)
        return false;
    for (size_t i = 0; ok && i < count && i < op->limit; i++)
        ok = add_lock(op->locks, found[i], now_us);
    free(found);
    return ok;
}

static void inspect(struct session *session, struct store_op *op, int64_t now_us) {
    if (look(session, op, now_us)) {
        store_complete(session->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(session->host, op, HF_NO_MEMORY, NULL);
}

static void examine(struct session *session, struct store_op *op, int64_t now_us) {
    (void)now_us;
    memory_examine_space(session->host, op);
}

static void count(struct session *session, struct store_op *op, int64_t now_us) {
    counters_count(&session->space->counters, session->host, op, now_us);
}

/* ---- The driver ---- */

/* Notifies the client of what happened to its claims. */
static void empty_inbox(struct session *session) {
    struct list *node;
    while ((node = list_pop(&session->inbox))) {
        struct claim *claim = container_of(node, struct claim, inbox);
        if (claim->state == BROKEN) {
            session->host->gone(session->host, claim->seq);
            claim_free(claim);
        } else {
            session->host->wake(session->host, claim->seq);
        }
    }
    while ((node = list_pop(&session->freed))) {
        struct freed *freed = container_of(node, struct freed, link);
        session->set->freed(session->host, freed->name);
        free(freed);
    }
    hand_over_changes(session);
}

static void bell_rang(struct world_bell *bell) {
    struct session *session = container_of(bell, struct session, bell);
    pthread_mutex_lock(&session->space->mutex);
    empty_inbox(session);
    pthread_mutex_unlock(&session->space->mutex);
}

typedef void operate(struct session *session, struct store_op *op, int64_t now_us);

static void run(struct store *store, operate *operation, struct store_op *op) {
    struct session *session = container_of(store, struct session, store);
    struct space *space = session->space;
    pthread_mutex_lock(&space->mutex);
    space->calling = session;
    operation(session, op, world_host_us(session->host->world));
    space->calling = NULL;
    empty_inbox(session);
    pthread_mutex_unlock(&space->mutex);
}

static void memory_submit(struct store *store, struct store_op *op) {
    static operate *const operations[] = {
        [STORE_ACQUIRE] = acquire,  [STORE_RENEW] = renew,     [STORE_RELEASE] = release,
        [STORE_BREAK] = break_hold, [STORE_INSPECT] = inspect, [STORE_LIST] = inspect,
        [STORE_EXAMINE] = examine,  [STORE_WATCH] = watch,     [STORE_UNWATCH] = unwatch,
        [STORE_COUNT] = count,
    };
    run(store, operations[op->type], op);
}

static struct spaces *spaces_of_process(void) {
    struct spaces *present = atomic_load(&all_spaces);
    uint64_t epoch = world_epoch();
    if (present && present->epoch == epoch)
        return present;
    struct spaces *own = calloc(1, sizeof(*own));
    if (!own)
        return NULL;
    own->epoch = epoch;
    own->parents = present;
    pthread_mutex_init(&own->mutex, NULL);
    list_init(&own->list);
    if (atomic_compare_exchange_strong(&all_spaces, &present, own))
        return own;
    free(own);
    return present; /* another thread was first */
}

static struct space *space_find(struct spaces *spaces, const char *name) {
    list_each(node, &spaces->list) {
        struct space *space = container_of(node, struct space, link);
        if (strcmp(space->name, name) == 0)
            return space;
    }
    return NULL;
}

static struct space *space_new(struct spaces *spaces, const char *name) {
    size_t size = strlen(name) + 1;
    struct space *space = calloc(1, sizeof(*space) + size);
    if (!space)
        return NULL;
    memcpy(space->name, name, size);
    space->spaces = spaces;
    pthread_mutex_init(&space->mutex, NULL);
    map_init(&space->locks);
    map_init(&space->claims);
    map_init(&space->counters.by_name);
    list_init(&space->idle);
    list_init(&space->voters);
    list_init(&space->watchers);
    list_append(&spaces->list, &space->link);
    return space;
}

static struct space *space_join(const char *name) {
    struct spaces *spaces = spaces_of_process();
    if (!spaces)
        return NULL;
    pthread_mutex_lock(&spaces->mutex);
    struct space *space = space_find(spaces, name);
    if (!space)
        space = space_new(spaces, name);
    if (space)
        space->users++;
    pthread_mutex_unlock(&spaces->mutex);
    return space;
}

static void space_free(struct space *space) {
    list_remove(&space->link);
    for (struct map_node *node = map_first(&space->claims), *next; node; node = next) {
        next = map_after(&space->claims, node);
        end_claim(container_of(node, struct claim, by_owner), 0);
    }
    for (struct map_node *node = map_first(&space->locks), *next; node; node = next) {
        next = map_after(&space->locks, node);
        lock_free(space, container_of(node, struct lock, by_name));
    }
    map_free(&space->claims);
    map_free(&space->locks);
    counters_free(&space->counters);
    free(space->set);
    pthread_mutex_destroy(&space->mutex);
    free(space);
}

static void space_leave(struct space *space) {
    struct spaces *spaces = space->spaces;
    pthread_mutex_lock(&spaces->mutex);
    if (--space->users == 0)
        space_free(space);
    pthread_mutex_unlock(&spaces->mutex);
}

static void memory_close(struct store *store) {
    struct session *session = container_of(store, struct session, store);
    struct space *space = session->space;
    pthread_mutex_lock(&space->mutex);
    world_bell_drop(&session->bell);
    empty_inbox(session);
    list_remove(&session->voter);
    list_remove(&session->watcher);
    session->host = NULL;
    session_free_if_done(session);
    pthread_mutex_unlock(&space->mutex);
    space_leave(space);
}

static struct session *session_new(struct store_host *host) {
    const struct store_identity *who = &host->identity;
    size_t host_size = strlen(who->host) + 1, command_size = strlen(who->command) + 1;
    struct session *session = calloc(1, sizeof(*session) + host_size + command_size);
    if (!session)
        return NULL;
    session->host = host;
    session->identity = *who;
    session->identity.host = memcpy(session->strings, who->host, host_size);
    session->identity.command = memcpy(session->strings + host_size, who->command, command_size);
    list_init(&session->inbox);
    list_init(&session->voter);
    list_init(&session->freed);
    list_init(&session->watcher);
    list_init(&session->changes);
    return session;
}

static int memory_open(struct store_host *host, const struct url *url, struct store **ret_store,
                       char **ret_text) {
    int64_t limit_us = INT64_MAX;
    int r = net_option_ms(url, "lease_limit", LEASE_LIMIT_MAX_MS, &limit_us, ret_text);
    if (r < 0)
        return r;
    if (url->host_count || url->option_count > (url_option(url, "lease_limit") ? 1 : 0)) {
        *ret_text = error_format(
            "memory: takes a name and no other option than lease_limit, as in memory:jobs");
        return HF_BAD_URL;
    }
    struct session *session = session_new(host);
    if (!session)
        return HF_NO_MEMORY;
    session->lease_limit_us = limit_us;
    session->space = space_join(url->path);
    if (!session->space) {
        free(session);
        return HF_NO_MEMORY;
    }
    pthread_mutex_lock(&session->space->mutex);
    if (session->space->token_base < host->token_floor)
        session->space->token_base = host->token_floor;
    pthread_mutex_unlock(&session->space->mutex);
    session->store.driver = &store_memory;
    world_bell_add(host->world, &session->bell, bell_rang);
    *ret_store = &session->store;
    return HF_OK;
}

static int memory_join(struct store *store, const struct store_set *set, char **ret_text) {
    struct session *session = container_of(store, struct session, store);
    struct space *space = session->space;
    (void)ret_text;
    pthread_mutex_lock(&space->mutex);
    if (!space->set)
        space->set = strdup(set->name);
    if (space->set) {
        session->set = set;
        list_append(&space->voters, &session->voter);
    }
    pthread_mutex_unlock(&space->mutex);
    return session->set ? HF_OK : HF_NO_MEMORY;
}

static void memory_vote(struct store *store, struct store_vote *ballot) {
    run(store, vote, &ballot->op);
}

static void memory_give_back(struct store *store, struct store_op *op) {
    run(store, give_back, op);
}

/* It has no facts: its nodes are always on one host. */
static void memory_examine(struct store *store, struct store_op *op, struct store_facts *facts) {
    (void)facts;
    run(store, examine, op);
}

static const struct store_voting memory_voting = {
    .join = memory_join,
    .vote = memory_vote,
    .give_back = memory_give_back,
    .examine = memory_examine,
};

const struct store_driver store_memory = {
    .abi = STORE_ABI,
    .scheme = "memory",
    .tier = "timed",
    .capabilities = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE | STORE_CAN_LEASE_EACH |
                    STORE_CAN_FLOOR | STORE_CAN_LOOK | STORE_CAN_EXAMINE | STORE_QUICK |
                    STORE_CAN_PUSH | STORE_CAN_COUNT | STORE_CAN_KEEP,
    .voting = &memory_voting,
    .open = memory_open,
    .submit = memory_submit,
    .close = memory_close,
};
