/* INSPECT and LIST, each in one statement. They change nothing: expired claims are left out, and
 * the next request for the lock removes them. */
#include "store/locks.h"
#include "store/sqlite/sqlite.h"

#include <string.h>

static const char *text_of(sqlite3_stmt *row, int column) {
    const char *text = (const char *)sqlite3_column_text(row, column);
    return text ? text : "";
}

/* What follows the claim in a row: LOOK in database.c. */
enum {
    COLUMN_NAME = CLAIM_COLUMNS,
    COLUMN_KIND,
    COLUMN_CAPACITY,
    COLUMN_TOKEN,
    COLUMN_BROKEN_US,
    COLUMN_BROKEN_TOKEN,
    COLUMN_BROKEN_BY,
    COLUMN_BROKEN_REASON,
    COLUMN_HOST,
    COLUMN_COMMAND,
    COLUMN_LABEL,
};

static bool add_lock(struct hf_locks *locks, sqlite3_stmt *row) {
    struct locks_break last = {
        .at_us = sqlite3_column_int64(row, COLUMN_BROKEN_US),
        .token = (uint64_t)sqlite3_column_int64(row, COLUMN_BROKEN_TOKEN),
        .by = text_of(row, COLUMN_BROKEN_BY),
        .reason = text_of(row, COLUMN_BROKEN_REASON),
    };
    return locks_add(locks, text_of(row, COLUMN_NAME),
                     (enum store_kind)sqlite3_column_int(row, COLUMN_KIND),
                     (uint32_t)sqlite3_column_int64(row, COLUMN_CAPACITY),
                     (uint64_t)sqlite3_column_int64(row, COLUMN_TOKEN)) &&
           locks_set_break(locks, &last);
}

static bool add_party(struct hf_locks *locks, sqlite3_stmt *row, int64_t now_us) {
    enum claim_state state = (enum claim_state)sqlite3_column_int(row, 0);
    if (!state)
        return true; /* nobody */
    hf_party party = {
        .host = text_of(row, COLUMN_HOST),
        .command = text_of(row, COLUMN_COMMAND),
        .label = text_of(row, COLUMN_LABEL),
        .pid = sqlite3_column_int64(row, 8),
        .token = (uint64_t)sqlite3_column_int64(row, 6),
        .weight = (uint32_t)sqlite3_column_int64(row, 2),
        .since_ms = sqlite3_column_int64(row, 7) / 1000,
        .left_ms = (sqlite3_column_int64(row, 3) - now_us) / 1000,
    };
    uint8_t id[16] = {0};
    if (sqlite3_column_bytes(row, 4) == sizeof(id))
        memcpy(id, sqlite3_column_blob(row, 4), sizeof(id));
    return locks_add_party(locks, state == HELD ? LOCKS_HOLDER : LOCKS_WAITER, &party, id,
                           (uint64_t)sqlite3_column_int64(row, 5));
}

/* The names in order, each with its claims; stops after the limit, or after the last with the
 * prefix. */
static bool add_rows(struct session *s, struct hf_locks *locks, sqlite3_stmt *row,
                     const struct store_op *op, int64_t now_us) {
    size_t limit = op->type == STORE_LIST ? op->limit : 1, prefix_size = strlen(op->name);
    while (database_next(&s->db, row)) {
        const char *name = text_of(row, COLUMN_NAME);
        size_t count = hf_locks_count(locks);
        bool is_new = count == 0 || strcmp(hf_locks_at(locks, count - 1)->name, name) != 0;
        if (is_new && (count == limit || strncmp(name, op->name, prefix_size) != 0))
            return true;
        if ((is_new && !add_lock(locks, row)) || !add_party(locks, row, now_us))
            return false;
    }
    return true;
}

struct hf_locks *look_at_row(sqlite3_stmt *row, int64_t now_us) {
    struct hf_locks *locks = locks_new();
    if (locks && add_lock(locks, row) && add_party(locks, row, now_us))
        return locks;
    return hf_locks_free(locks);
}

enum store_outcome sqlite_look(struct session *s, struct store_op *op, int64_t now_us) {
    op->locks = locks_new();
    bool is_after = op->type == STORE_LIST && op->after && strcmp(op->after, op->name) > 0;
    sqlite3_stmt *row = op->type == STORE_INSPECT
                            ? database_use(&s->db, SQL_INSPECT, "si", op->name, now_us)
                            : database_use(&s->db, SQL_LIST, "sis", is_after ? op->after : op->name,
                                           now_us, op->after);
    bool ok = op->locks && add_rows(s, op->locks, row, op, now_us);
    if (row)
        database_done(row);
    if (!ok || s->db.failed)
        op->locks = hf_locks_free(op->locks);
    if (!ok)
        s->db.failed = SQLITE_NOMEM;
    return STORE_DONE;
}
