/* What happens to locks and claims: acquire, renew, release, break. Each runs in a transaction that
 * sqlite.c begins and commits. A statement that fails sets the database's `failed`, and then none
 * of it happened.
 *
 * This is memory.c in SQL, with one addition: a claim also ends when its process has certainly
 * ended (process.c). Finding that out costs system calls, so only clients that would have to wait
 * check it: the head of the queue checks the holders, and every other waiter checks the one just
 * before it. */
#include "store/locks.h"
#include "store/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT_MAX = 64 }; /* processes, in one operation */

#define DAY_US (INT64_C(24) * 3600 * 1000000)

/* ---- Reading ---- */

static void read_claim(sqlite3_stmt *row, struct claim *ret) {
    *ret = (struct claim){
        .state = (uint8_t)sqlite3_column_int(row, 0),
        .ticket = sqlite3_column_int64(row, 1),
        .weight = (uint32_t)sqlite3_column_int64(row, 2),
        .until_us = sqlite3_column_int64(row, 3),
        .seq = (uint64_t)sqlite3_column_int64(row, 5),
        .token = (uint64_t)sqlite3_column_int64(row, 6),
        .since_us = sqlite3_column_int64(row, 7),
        .written_us = sqlite3_column_int64(row, 14),
        .process = {.pid = sqlite3_column_int64(row, 8),
                    .started = (uint64_t)sqlite3_column_int64(row, 9),
                    .pid_space = (uint64_t)sqlite3_column_int64(row, 10),
                    .time_space = (uint64_t)sqlite3_column_int64(row, 11),
                    .guard_pid = sqlite3_column_int64(row, 12),
                    .guard_started = (uint64_t)sqlite3_column_int64(row, 13)},
    };
    const void *client = sqlite3_column_blob(row, 4);
    if (client && sqlite3_column_bytes(row, 4) == sizeof(ret->client))
        memcpy(ret->client, client, sizeof(ret->client));
}

/* The one claim that a statement finds; its state is 0 if there is none. */
static struct claim find(struct session *s, sqlite3_stmt *statement) {
    struct claim claim = {0};
    if (database_next(&s->db, statement)) {
        read_claim(statement, &claim);
        database_done(statement);
    }
    return claim;
}

static bool add_holder(struct session *s, const struct claim *claim) {
    struct lock *lock = &s->lock;
    if (lock->holder_count == lock->holder_room) {
        size_t room = lock->holder_room ? lock->holder_room * 2 : 8;
        struct claim *holders = realloc(lock->holders, room * sizeof(*holders));
        if (!holders) {
            s->db.failed = SQLITE_NOMEM;
            return false;
        }
        lock->holders = holders;
        lock->holder_room = room;
    }
    lock->holders[lock->holder_count++] = *claim;
    lock->used += claim->weight;
    return true;
}

static void read_lock_columns(struct lock *lock, sqlite3_stmt *row) {
    lock->token_base = (uint64_t)sqlite3_column_int64(row, CLAIM_COLUMNS);
    lock->exists = sqlite3_column_type(row, CLAIM_COLUMNS + 1) != SQLITE_NULL;
    lock->kind = (uint8_t)sqlite3_column_int(row, CLAIM_COLUMNS + 1);
    lock->capacity = (uint32_t)sqlite3_column_int64(row, CLAIM_COLUMNS + 2);
    lock->token = (uint64_t)sqlite3_column_int64(row, CLAIM_COLUMNS + 3);
    lock->used_day = sqlite3_column_int64(row, CLAIM_COLUMNS + 4);
    lock->is_watched = sqlite3_column_int(row, CLAIM_COLUMNS + 5);
}

/* Reads the lock, its holders and the first waiter, expired or not. */
static void read_lock(struct session *s, const char *name) {
    struct lock *lock = &s->lock;
    lock->name = name;
    lock->holder_count = 0;
    lock->used = 0;
    lock->first = (struct claim){0};
    sqlite3_stmt *row = database_use(&s->db, SQL_READ_LOCK, "s", name);
    bool is_first = true;
    while (database_next(&s->db, row)) {
        struct claim claim;
        if (is_first)
            read_lock_columns(lock, row);
        is_first = false;
        claim.state = (uint8_t)sqlite3_column_int(row, 0);
        if (claim.state)
            read_claim(row, &claim);
        if (claim.state == WAITING)
            lock->first = claim;
        if (claim.state == 0 || claim.state == WAITING || !add_holder(s, &claim)) {
            database_done(row);
            return;
        }
    }
}

/* ---- Ending, and whose turn it is ---- */

static void end_claim(struct session *s, const struct claim *claim) {
    struct claim *first = &s->lock.first;
    database_run(&s->db, database_use(&s->db, SQL_END_CLAIM, "sii", s->lock.name,
                                      (int64_t)claim->state, claim->ticket));
    if (claim->state == first->state && claim->ticket == first->ticket)
        first->state = 0;
}

static bool is_unused(const struct lock *lock) {
    return lock->holder_count == 0 && !lock->first.state;
}

static bool fits(const struct lock *lock, uint32_t weight) {
    return weight <= lock->capacity - lock->used;
}

static void reserve(struct session *s, const struct claim *waiter) {
    struct lock *lock = &s->lock;
    database_run(&s->db, database_use(&s->db, SQL_RESERVE, "si", lock->name, waiter->ticket));
    lock->used += waiter->weight;
    wake_note(s, waiter, NOTE_WAKE);
}

/* Reserves the lock for the waiters at the front of the queue, as many as fit, and notes to wake
 * them. The first of them may have been read with the lock. */
static void advance(struct session *s, int64_t now_us) {
    struct lock *lock = &s->lock;
    struct claim next = lock->first;
    lock->first.state = 0;
    for (; fits(lock, 1) && !s->db.failed; next.state = 0) {
        if (!next.state)
            next = find(s, database_use(&s->db, SQL_FIRST_WAITING, "s", lock->name));
        if (!next.state)
            return;
        if (claim_has_ended(&next, now_us))
            end_claim(s, &next);
        else if (fits(lock, next.weight))
            reserve(s, &next);
        else
            return;
    }
}

typedef bool ended_fn(struct session *s, const struct claim *claim, int64_t now_us);

static bool has_expired(struct session *s, const struct claim *claim, int64_t now_us) {
    (void)s;
    return claim_has_ended(claim, now_us);
}

/* The process whose death ends the claim. The guard counts only for a hold: nobody works under a
 * claim that still waits. */
static struct process process_of(const struct claim *claim) {
    struct process process = claim->process;
    if (claim->state != HELD)
        process.guard_pid = 0;
    return process;
}

static bool has_died(struct session *s, const struct claim *claim, int64_t now_us) {
    (void)now_us;
    struct process process = process_of(claim);
    return process_is_dead(&s->facts, &process);
}

/* Removes the holders for which `ended` is true, and the first waiter if it is true for that one.
 * Returns true if there were any: their share has then been handed on, and the lock must be read
 * again. */
static bool end_those(struct session *s, ended_fn *ended, int64_t now_us) {
    struct lock *lock = &s->lock;
    bool any = false;
    for (size_t i = 0; i < lock->holder_count && (i < LOOKED_AT_MAX || ended == has_expired); i++) {
        if (ended(s, &lock->holders[i], now_us)) {
            end_claim(s, &lock->holders[i]);
            lock->used -= lock->holders[i].weight;
            any = true;
        }
    }
    if (lock->first.state && ended(s, &lock->first, now_us)) {
        end_claim(s, &lock->first);
        any = true;
    }
    if (any)
        advance(s, now_us);
    return any && !s->db.failed;
}

/* Reads the lock after removing what has expired. */
static void load(struct session *s, const char *name, int64_t now_us) {
    do
        read_lock(s, name);
    while (!s->db.failed && end_those(s, has_expired, now_us));
}

static bool is_mine(struct session *s, const struct claim *claim, uint64_t seq) {
    return claim->seq == seq && memcmp(claim->client, s->host->identity.id, 16) == 0;
}

/* The claim of this client's attempt; its state is 0 if there is none. */
static struct claim own_claim(struct session *s, uint64_t seq) {
    struct lock *lock = &s->lock;
    for (size_t i = 0; i < lock->holder_count; i++) {
        if (is_mine(s, &lock->holders[i], seq))
            return lock->holders[i];
    }
    if (!lock->first.state || is_mine(s, &lock->first, seq))
        return lock->first;
    return find(
        s, database_use(&s->db, SQL_OWN_WAITING, "suc", lock->name, seq, s->host->identity.id));
}

static struct claim waiting_before(struct session *s, int64_t ticket) {
    return find(s, database_use(&s->db, SQL_WAITING_BEFORE, "si", s->lock.name, ticket));
}

/* Removes the claims of dead processes just in front of this claim, or of the place that a new one
 * would get: those of waiters, and if none is left in front of it, those of holders. True if there
 * were any. */
static bool bury_those_before(struct session *s, const struct claim *mine,
                              const struct store_op *op, int64_t now_us) {
    int64_t ticket = mine->state == WAITING    ? mine->ticket
                     : op->flags & STORE_BARGE ? 0
                                               : INT64_MAX;
    bool any = false;
    struct claim before = {0};
    for (int i = 0; i < LOOKED_AT_MAX && !s->db.failed; i++) {
        before = waiting_before(s, ticket);
        if (!before.state || !has_died(s, &before, now_us))
            break;
        end_claim(s, &before);
        any = true;
    }
    if (any)
        read_lock(s, s->lock.name); /* the first waiter may have been among them */
    if (!before.state && end_those(s, has_died, now_us))
        any = true;
    else if (any)
        advance(s, now_us);
    return any && !s->db.failed;
}

/* ---- Forgetting ---- */

static int64_t today(struct session *s) {
    return s->wall_us / DAY_US;
}

static void set_day(struct session *s, const char *name, int64_t day) {
    database_run(&s->db, database_use(&s->db, SQL_SET_DAY, "si", name, day));
}

/* Adding a name removes some that nobody has used for a week, with leftover claims on them, so that
 * there are never many more names than are in use. A counter ahead of the wall clock is kept: the
 * next token's floor would be below it. */
static void forget_some(struct session *s, int64_t now_us) {
    int64_t day = today(s);
    struct {
        char name[256];
        bool may_go;
    } old[4];
    size_t count = 0;
    sqlite3_stmt *row =
        database_use(&s->db, SQL_OLD_LOCKS, "i", day - STORE_COUNTER_IDLE_US / DAY_US);
    while (count < 4 && database_next(&s->db, row)) {
        const char *name = (const char *)sqlite3_column_text(row, 0);
        strncpy(old[count].name, name ? name : "", sizeof(old[count].name) - 1);
        old[count].name[sizeof(old[count].name) - 1] = 0;
        old[count++].may_go = sqlite3_column_int64(row, 1) < s->wall_us;
    }
    database_done(row);
    for (size_t i = 0; i < count; i++) {
        database_run(&s->db, database_use(&s->db, SQL_FORGET_CLAIMS, "si", old[i].name, now_us));
        if (old[i].may_go)
            database_run(&s->db, database_use(&s->db, SQL_FORGET_LOCK, "s", old[i].name));
        if (!old[i].may_go || sqlite3_changes(s->db.handle) == 0)
            set_day(s, old[i].name, day); /* in use: do not check it every time */
    }
}

/* ---- Acquire ---- */

/* Writes the lock as the request changes it. */
static void write_lock(struct session *s, const struct store_op *op, uint64_t token,
                       int64_t now_us) {
    struct lock *lock = &s->lock;
    int64_t day = today(s);
    if (!lock->exists) {
        forget_some(s, now_us);
        database_run(&s->db, database_use(&s->db, SQL_ADD_LOCK, "siiui", op->name,
                                          (int64_t)op->kind, (int64_t)op->capacity, token, day));
        return;
    }
    if (token > lock->token || lock->kind != op->kind || lock->capacity != op->capacity)
        database_run(&s->db, database_use(&s->db, SQL_GRANT, "siiu", op->name, (int64_t)op->kind,
                                          (int64_t)op->capacity,
                                          token > lock->token ? token : lock->token));
    if (lock->used_day != day)
        set_day(s, op->name, day);
}

/* Tickets of a name's claims differ. Barging claims have tickets below 0, so they come first. */
static int64_t next_ticket(struct session *s, const struct store_op *op) {
    bool barges = op->flags & STORE_BARGE;
    int64_t last = barges ? INT64_MIN / 2 : 0, limit = barges ? 0 : INT64_MAX;
    for (size_t i = 0; i < s->lock.holder_count; i++) {
        int64_t ticket = s->lock.holders[i].ticket;
        if (last < ticket && ticket < limit)
            last = ticket;
    }
    if (s->lock.first.state) {
        sqlite3_stmt *row = database_use(&s->db, SQL_LAST_TICKET, "si", s->lock.name, limit);
        if (database_next(&s->db, row)) {
            if (sqlite3_column_type(row, 0) != SQLITE_NULL && last < sqlite3_column_int64(row, 0))
                last = sqlite3_column_int64(row, 0);
            database_done(row);
        }
    }
    return last + 1;
}

static void add_claim(struct session *s, const struct store_op *op, struct claim *claim) {
    const struct store_identity *who = &s->host->identity;
    const struct process *self = &s->facts.self;
    int64_t guard_pid = op->flags & STORE_KEEP ? HF_LEASE_ONLY : self->guard_pid;
    claim->ticket = next_ticket(s, op);
    claim->since_us = s->wall_us;
    database_run(&s->db, database_use(&s->db, SQL_ADD_CLAIM, "siiiicuuiiuuuiusssi", op->name,
                                      (int64_t)claim->state, claim->ticket, (int64_t)op->weight,
                                      claim->until_us, who->id, op->seq, claim->token,
                                      claim->since_us, self->pid, self->started, self->pid_space,
                                      self->time_space, guard_pid, self->guard_started, who->host,
                                      who->command, op->label, claim->written_us));
}

static enum store_outcome refuse(struct store_op *op, int reason, char *text) {
    op->reason = reason;
    op->text = text;
    return STORE_REFUSED;
}

/* Grants the token and the lease. A claim that already holds gets the same again: a repeat. */
static enum store_outcome take(struct session *s, struct claim mine, struct store_op *op,
                               int64_t now_us) {
    struct lock *lock = &s->lock;
    bool repeats = mine.state == HELD;
    char *text = NULL;
    uint64_t token;
    int r = store_next_token(repeats ? mine.token : lock->token, repeats, op->floor,
                             lock->token_base, s->wall_us, &token, &text);
    if (r < 0) {
        if (mine.state) {
            end_claim(s, &mine);
            lock->used -= mine.state == WAITING ? 0 : mine.weight;
            advance(s, now_us);
        }
        return refuse(op, r, text);
    }
    write_lock(s, op, token, now_us);
    int64_t until_us = now_us + op->lease_us;
    if (!mine.state) {
        mine = (struct claim){
            .state = HELD, .until_us = until_us, .written_us = now_us, .token = token};
        add_claim(s, op, &mine);
    } else {
        if (repeats && until_us < mine.until_us)
            until_us = mine.until_us;
        database_run(&s->db, database_use(&s->db, SQL_TAKE, "siiiuii", op->name,
                                          (int64_t)mine.state, mine.ticket, until_us, token,
                                          repeats ? mine.since_us : s->wall_us, now_us));
        mine.state = HELD;
    }
    if (!repeats)
        changes_log(s, &mine, HF_CHANGE_ACQUIRED, now_us);
    op->token = token;
    return STORE_DONE;
}

/* How long until the first lease ends, if none of the holders releases earlier. */
static int64_t left_us(const struct lock *lock, int64_t now_us) {
    int64_t first_us = INT64_MAX;
    for (size_t i = 0; i < lock->holder_count; i++) {
        if (first_us > lock->holders[i].until_us)
            first_us = lock->holders[i].until_us;
    }
    return lock->holder_count ? first_us - now_us : 0;
}

/* Notes which processes the waiter must watch: that of the waiter just before it, or those of the
 * holders. */
static void note_those_before(struct session *s, const struct claim *before) {
    struct lock *lock = &s->lock;
    s->in_front_count = 0;
    if (before->state) {
        s->in_front[s->in_front_count++] = process_of(before);
        return;
    }
    for (size_t i = 0; i < lock->holder_count && s->in_front_count < WATCHES_EACH; i++)
        s->in_front[s->in_front_count++] = process_of(&lock->holders[i]);
}

static enum store_outcome queue(struct session *s, struct claim mine, struct store_op *op,
                                int64_t now_us) {
    struct lock *lock = &s->lock;
    int64_t until_us = now_us + s->host->wait_lease_us;
    if (mine.state) {
        database_run(&s->db, database_use(&s->db, SQL_KEEP_PLACE, "siii", op->name, mine.ticket,
                                          until_us, now_us));
    } else {
        wake_listen(s); /* before others can see the claim, and try to wake it */
        write_lock(s, op, lock->token, now_us);
        mine = (struct claim){.state = WAITING, .until_us = until_us, .written_us = now_us};
        add_claim(s, op, &mine);
        changes_log(s, &mine, HF_CHANGE_WAITING, now_us);
    }
    struct claim before = waiting_before(s, mine.ticket);
    if (!before.state)
        op->flags |= STORE_HEAD;
    note_those_before(s, &before);
    op->left_us = left_us(lock, now_us);
    return STORE_QUEUED;
}

static bool is_other_kind(const struct lock *lock, const struct store_op *op) {
    return !is_unused(lock) && (lock->kind != op->kind || lock->capacity != op->capacity);
}

/* Whether the request can take the lock now. A free lock takes the request's kind. */
static bool may_take(struct lock *lock, const struct store_op *op, const struct claim *mine) {
    if (is_other_kind(lock, op))
        return false;
    if (is_unused(lock))
        lock->capacity = op->capacity;
    return mine->state == HELD || mine->state == RESERVED ||
           (fits(lock, op->weight) && (!lock->first.state || op->flags & STORE_BARGE));
}

enum store_outcome claims_acquire(struct session *s, struct store_op *op, int64_t now_us) {
    struct lock *lock = &s->lock;
    struct claim mine;
    bool takes;
    do {
        load(s, op->name, now_us);
        mine = own_claim(s, op->seq);
        takes = may_take(lock, op, &mine);
    } while (!takes && !s->db.failed && bury_those_before(s, &mine, op, now_us));
    if (takes)
        return take(s, mine, op, now_us);
    if (is_other_kind(lock, op))
        return refuse(op, HF_WRONG_KIND, store_describe_kind(lock->kind, lock->capacity));
    if (op->flags & STORE_WAIT)
        return queue(s, mine, op, now_us);
    op->left_us = left_us(lock, now_us);
    return refuse(op, HF_BUSY, NULL);
}

/* ---- Renew, release, break ---- */

enum store_outcome claims_renew(struct session *s, struct store_op *op, int64_t now_us) {
    for (size_t i = 0; i < op->renewal_count; i++) {
        struct store_renewal *renewal = &op->renewals[i];
        const struct store_op *of = renewal->of; /* read once: the hold may end at any moment */
        if (!of)
            continue;
        database_run(&s->db,
                     database_use(&s->db, SQL_RENEW, "sucii", of->name, of->seq,
                                  s->host->identity.id, now_us + renewal->lease_us, now_us));
        renewal->outcome = sqlite3_changes(s->db.handle) ? STORE_DONE : STORE_NOT_YOURS;
    }
    return STORE_DONE;
}

/* The common case, without reading the lock: a hold that was taken today, and nobody watches. */
static bool release_quickly(struct session *s, const struct store_op *op, int64_t now_us) {
    database_run(&s->db, database_use(&s->db, SQL_END_HOLD, "sucii", op->name, op->seq,
                                      s->host->identity.id, now_us, today(s) * DAY_US));
    return !s->db.failed && sqlite3_changes(s->db.handle) > 0;
}

static bool is_claimed(struct session *s, const char *name) {
    sqlite3_stmt *row = database_use(&s->db, SQL_IS_CLAIMED, "s", name);
    bool claimed = database_next(&s->db, row);
    if (claimed)
        database_done(row);
    return claimed;
}

enum store_outcome claims_release(struct session *s, struct store_op *op, int64_t now_us) {
    struct lock *lock = &s->lock;
    if (release_quickly(s, op, now_us)) {
        if (is_claimed(s, op->name)) {
            load(s, op->name, now_us);
            if (lock->first.state)
                advance(s, now_us);
        }
        return STORE_DONE;
    }
    load(s, op->name, now_us);
    struct claim mine = own_claim(s, op->seq);
    bool queued = lock->first.state;
    if (!mine.state)
        return STORE_NOT_YOURS;
    changes_log(s, &mine, mine.state == HELD ? HF_CHANGE_RELEASED : HF_CHANGE_LEFT, now_us);
    end_claim(s, &mine);
    if (mine.state != WAITING)
        lock->used -= mine.weight;
    if (queued)
        advance(s, now_us);
    if (lock->used_day != today(s))
        set_day(s, op->name, today(s));
    return STORE_DONE;
}

static struct claim holder_with(const struct lock *lock, uint64_t token) {
    for (size_t i = 0; i < lock->holder_count; i++) {
        if (lock->holders[i].state == HELD && lock->holders[i].token == token)
            return lock->holders[i];
    }
    return (struct claim){0};
}

enum store_outcome claims_break(struct session *s, struct store_op *op, int64_t now_us) {
    struct lock *lock = &s->lock;
    load(s, op->name, now_us);
    struct claim broken = holder_with(lock, op->token);
    if (!broken.state)
        return STORE_NOT_YOURS;
    char breaker[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&s->host->identity, breaker);
    database_run(&s->db, database_use(&s->db, SQL_BREAK, "suiiuss", op->name, lock->token + 1,
                                      today(s), s->wall_us, op->token, breaker, op->label));
    changes_log(s, &broken, HF_CHANGE_BROKEN, now_us);
    end_claim(s, &broken);
    lock->used -= broken.weight;
    wake_note(s, &broken, NOTE_GONE);
    if (lock->first.state)
        advance(s, now_us);
    return STORE_DONE;
}

bool claims_is_held(struct session *s, uint64_t seq) {
    s->db.failed = s->db.handle ? 0 : SQLITE_CANTOPEN;
    sqlite3_stmt *row = database_use(&s->db, SQL_IS_HELD, "uc", seq, s->host->identity.id);
    bool held = database_next(&s->db, row);
    if (held)
        database_done(row);
    return held || s->db.failed;
}
