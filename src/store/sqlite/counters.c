/* Counters (rule 13 of store.h). Each operation runs in a transaction that sqlite.c begins and
 * commits.
 *
 * A commit whose outcome is unknown may reappear. So an operation that changes a counter stores its
 * answer in the same transaction, and a repeat finds it. One that changes nothing stores none.
 *
 * A counter outlives a reboot, so it expires by the wall clock. An answer need not, so it expires
 * by the clock that leases use. Each change also removes a few expired counters and answers, more
 * than it adds. */
#include "store/counts.h"
#include "store/sqlite/sqlite.h"

struct counter {
    struct counts_number number;
    int64_t until_us; /* wall clock; 0: no end */
};

static struct counter read_counter(struct session *s, const char *name, int64_t wall_us) {
    struct counter counter = {0};
    sqlite3_stmt *row = database_use(&s->db, SQL_READ_COUNTER, "si", name, wall_us);
    if (database_next(&s->db, row)) {
        counter.number = (struct counts_number){true, sqlite3_column_int64(row, 0)};
        counter.until_us = sqlite3_column_int64(row, 1);
        database_done(row);
    }
    return counter;
}

/* ---- Answers ---- */

/* If this is the repeat of an operation that has been done, copies its answer and returns true. */
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

/* ---- The operation ---- */

static void write_counter(struct session *s, const char *name, struct counts_number number,
                          int64_t until_us) {
    if (number.exists)
        database_run(&s->db,
                     database_use(&s->db, SQL_SET_COUNTER, "sii", name, number.value, until_us));
    else
        database_run(&s->db, database_use(&s->db, SQL_REMOVE_COUNTER, "s", name));
}

static void clean_up(struct session *s, int64_t now_us, int64_t wall_us) {
    database_run(&s->db, database_use(&s->db, SQL_END_COUNTERS, "i", wall_us));
    database_run(&s->db,
                 database_use(&s->db, SQL_END_ANSWERS, "ii", now_us, now_us + STORE_COUNT_KEPT_US));
}

enum store_outcome sqlite_count(struct session *s, struct store_op *op, int64_t now_us) {
    int64_t wall_us = s->wall_us;
    if (find_answer(s, op))
        return STORE_DONE;
    struct counter counter = read_counter(s, op->name, wall_us);
    struct counts_number before = counter.number, after;
    struct counts_answer answer = counts_step(op, before, &after);
    op->reason = answer.reason;
    if (answer.reason)
        return STORE_REFUSED;
    if (!before.exists && op->lease_us)
        counter.until_us = wall_us + op->lease_us;
    op->flags = (uint8_t)answer.flags;
    op->value = answer.value;
    op->life_us = counter.until_us ? counter.until_us - wall_us : -1;
    if (after.exists != before.exists || after.value != before.value) {
        write_counter(s, op->name, after, counter.until_us);
        keep_answer(s, op, now_us);
        clean_up(s, now_us, wall_us);
    }
    return STORE_DONE;
}
