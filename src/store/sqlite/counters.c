/* Counters (rule 13 of store.h). Each operation runs in a transaction that sqlite.c begins and
 * commits.
 *
 * A commit whose outcome is unknown may reappear, so what changed a counter writes its answer in
 * the same transaction, and a repeat finds it. An operation that changed nothing needs none.
 *
 * A counter outlives a reboot, so its expiry is by the wall clock. An answer does not have to: it
 * is kept by the clock that leases use. Each change also removes a few counters and answers whose
 * time is over, more than it adds. */
#include "store/sqlite/sqlite.h"

#include <stdlib.h>

/* What a change does, and what it answers with. */
struct counter {
    bool exists;
    int64_t value;
    int64_t until_us; /* wall clock; 0: no end */
};

static struct counter read_counter(struct session *s, const char *name, int64_t wall_us) {
    struct counter counter = {0};
    sqlite3_stmt *row = database_use(&s->db, SQL_READ_COUNTER, "si", name, wall_us);
    if (database_next(&s->db, row)) {
        counter.exists = true;
        counter.value = sqlite3_column_int64(row, 0);
        counter.until_us = sqlite3_column_int64(row, 1);
        database_done(row);
    }
    return counter;
}

static void describe(struct store_op *op, const struct counter *counter, int64_t wall_us) {
    op->flags = counter->exists ? 0 : STORE_ABSENT;
    op->value = counter->value;
    op->life_us = counter->until_us ? counter->until_us - wall_us : -1;
}

/* ---- Answers ---- */

/* Whether this is the repeat of an operation that has been done; then it has its answer. */
static bool find_answer(struct session *s, struct store_op *op) {
    sqlite3_stmt *row =
        database_use(&s->db, SQL_READ_ANSWER, "csu", s->host->identity.id, op->name, op->seq);
    if (!database_next(&s->db, row))
        return false;
    op->flags = (uint8_t)sqlite3_column_int(row, 0);
    op->value = sqlite3_column_int64(row, 1);
    op->life_us = sqlite3_column_int64(row, 2);
    database_done(row);
    return true;
}

static void keep_answer(struct session *s, const struct store_op *op, int64_t now_us) {
    database_run(&s->db, database_use(&s->db, SQL_KEEP_ANSWER, "csuiiii", s->host->identity.id,
                                      op->name, op->seq, (int64_t)op->flags, op->value, op->life_us,
                                      now_us + STORE_COUNT_KEPT_US));
}

/* ---- The operations ---- */

static void clean_up(struct session *s, int64_t now_us, int64_t wall_us) {
    database_run(&s->db, database_use(&s->db, SQL_END_COUNTERS, "i", wall_us));
    database_run(&s->db,
                 database_use(&s->db, SQL_END_ANSWERS, "ii", now_us, now_us + STORE_COUNT_KEPT_US));
}

static bool is_expected(const struct store_op *op, const struct counter *counter) {
    return op->flags & STORE_ABSENT ? !counter->exists
                                    : counter->exists && counter->value == op->expected;
}

/* Writes the value to the counter, which is created if there is none. */
static void set(struct session *s, const struct store_op *op, struct counter *counter,
                int64_t value, int64_t wall_us) {
    if (!counter->exists)
        counter->until_us = op->lease_us ? wall_us + op->lease_us : 0;
    counter->exists = true;
    counter->value = value;
    database_run(&s->db, database_use(&s->db, SQL_SET_COUNTER, "sii", op->name, counter->value,
                                      counter->until_us));
}

/* True if it changed the counter. */
static bool change(struct session *s, struct store_op *op, struct counter *counter, int64_t sum,
                   int64_t wall_us) {
    switch ((enum store_count)op->kind) {
    case STORE_COUNT_GET:
        describe(op, counter, wall_us);
        return false;
    case STORE_COUNT_ADD:
        set(s, op, counter, sum, wall_us);
        describe(op, counter, wall_us);
        return true;
    case STORE_COUNT_SWAP:
        describe(op, counter, wall_us);
        set(s, op, counter, op->number, wall_us);
        return true;
    case STORE_COUNT_CAS:
        if (!is_expected(op, counter)) {
            describe(op, counter, wall_us);
            op->flags |= STORE_MISMATCH;
            return false;
        }
        set(s, op, counter, op->number, wall_us);
        describe(op, counter, wall_us);
        return true;
    case STORE_COUNT_REMOVE:
        describe(op, counter, wall_us);
        database_run(&s->db, database_use(&s->db, SQL_REMOVE_COUNTER, "s", op->name));
        return counter->exists;
    }
    abort(); /* the client checks the operation */
}

enum store_outcome sqlite_count(struct session *s, struct store_op *op, int64_t now_us) {
    int64_t wall_us = world_wall_us(s->host->world), sum = 0;
    if (find_answer(s, op))
        return STORE_DONE;
    struct counter counter = read_counter(s, op->name, wall_us);
    if (op->kind == STORE_COUNT_ADD && __builtin_add_overflow(counter.value, op->number, &sum)) {
        op->reason = HF_RANGE;
        return STORE_REFUSED;
    }
    if (change(s, op, &counter, sum, wall_us)) {
        keep_answer(s, op, now_us);
        clean_up(s, now_us, wall_us);
    }
    return STORE_DONE;
}
