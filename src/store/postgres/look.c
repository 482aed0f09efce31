/* INSPECT and LIST, each in one statement. They change nothing: expired claims are left out, and
 * the next request for the lock removes them. */
#include "base/error.h"
#include "store/locks.h"
#include "store/postgres/postgres.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                \
    "l.name, l.kind, l.capacity, l.token, extract(epoch FROM l.broken_at) * 1000000,"          \
    " l.broken_token, l.broken_by, l.broken_reason,"                                           \
    " c.client, c.seq, c.state, c.token, c.weight, extract(epoch FROM c.since) * 1000,"        \
    " CASE WHEN isfinite(c.until) THEN extract(epoch FROM c.until - clock_timestamp()) * 1000" \
    " ELSE -1 END, c.pid, c.host, c.command, c.label"

enum {
    LOCK_NAME,
    LOCK_KIND,
    LOCK_CAPACITY,
    LOCK_TOKEN,
    BROKEN_US,
    BROKEN_TOKEN,
    BROKEN_BY,
    BROKEN_REASON,
    CLIENT,
    SEQ,
    STATE,
    TOKEN,
    WEIGHT,
    SINCE_MS,
    LEFT_MS,
    PID,
    HOST,
    COMMAND,
    LABEL,
    COLUMN_COUNT
};

static const char inspect_sql[] =
    "SELECT " COLUMNS " FROM holdfast.locks l LEFT JOIN holdfast.claims c"
    " ON c.name = l.name AND c.until > clock_timestamp()"
    " WHERE l.name = $1 ORDER BY c.state, c.ticket";

/* $1 is the prefix; $2 sorts after all that begins with it (NULL: nothing does); $3: after this
 * one. */
static const char list_sql[] =
    "SELECT " COLUMNS " FROM ("
    "SELECT * FROM holdfast.locks WHERE name >= $1 AND (name < $2 OR $2 = '') AND name > $3"
    " AND EXISTS (SELECT FROM holdfast.claims"
    " WHERE claims.name = locks.name AND until > clock_timestamp())"
    " ORDER BY name LIMIT $4) l"
    " JOIN holdfast.claims c ON c.name = l.name AND c.until > clock_timestamp()"
    " ORDER BY l.name, c.state, c.ticket";

static int64_t number(const PGresult *rows, int row, int column) {
    return strtoll(PQgetvalue(rows, row, column), NULL, 10); /* "" is 0 */
}

static int digit(char c) {
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

/* The bytes of a bytea, which the server sends as "\x" and hex digits; in place of those. */
static const char *bytes(const PGresult *rows, int row, int column) {
    char *text = PQgetvalue(rows, row, column);
    if (text[0] != '\\' || text[1] != 'x')
        return text; /* NULL is "", and this may have been here before */
    size_t size = strlen(text + 2) / 2;
    for (size_t i = 0; i < size; i++)
        text[i] = (char)(digit(text[2 + 2 * i]) << 4 | digit(text[3 + 2 * i]));
    text[size] = 0;
    return text;
}

static bool add_lock(struct hf_locks *locks, const PGresult *rows, int row, const char *name) {
    struct locks_break last = {
        .at_us = number(rows, row, BROKEN_US),
        .token = (uint64_t)number(rows, row, BROKEN_TOKEN),
        .by = bytes(rows, row, BROKEN_BY),
        .reason = bytes(rows, row, BROKEN_REASON),
    };
    return locks_add(locks, name, (enum store_kind)number(rows, row, LOCK_KIND),
                     (uint32_t)number(rows, row, LOCK_CAPACITY),
                     (uint64_t)number(rows, row, LOCK_TOKEN)) &&
           (!last.at_us || locks_set_break(locks, &last));
}

/* A uuid as it is written, with hyphens. */
static void read_client(const char *text, uint8_t ret_id[16]) {
    for (size_t i = 0; i < 16; i++) {
        text += *text == '-';
        ret_id[i] = *text ? (uint8_t)(digit(text[0]) << 4 | digit(text[1])) : 0;
        text += *text ? 2 : 0;
    }
}

static bool add_party(struct hf_locks *locks, const PGresult *rows, int row) {
    if (PQgetisnull(rows, row, CLIENT))
        return true; /* nobody */
    hf_party party = {
        .host = bytes(rows, row, HOST),
        .command = bytes(rows, row, COMMAND),
        .label = bytes(rows, row, LABEL),
        .pid = number(rows, row, PID),
        .token = (uint64_t)number(rows, row, TOKEN),
        .weight = (uint32_t)number(rows, row, WEIGHT),
        .since_ms = number(rows, row, SINCE_MS),
        .left_ms = number(rows, row, LEFT_MS),
    };
    uint8_t id[16];
    read_client(PQgetvalue(rows, row, CLIENT), id);
    return locks_add_party(locks, number(rows, row, STATE) == 1 ? LOCKS_HOLDER : LOCKS_WAITER,
                           &party, id, (uint64_t)number(rows, row, SEQ));
}

static bool add_rows(struct hf_locks *locks, const PGresult *rows) {
    bool ok = true;
    for (int row = 0; ok && row < PQntuples(rows); row++) {
        const char *name = bytes(rows, row, LOCK_NAME);
        size_t count = hf_locks_count(locks);
        if (count == 0 || strcmp(hf_locks_at(locks, count - 1)->name, name) != 0)
            ok = add_lock(locks, rows, row, name);
        ok = ok && add_party(locks, rows, row);
    }
    return ok;
}

static void look_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    struct store_op *op = request->op;
    if (!postgres_has_rows(result, COLUMN_COUNT)) {
        postgres_fail(pg, request, result, why);
        return;
    }
    op->locks = locks_new();
    if (op->locks && add_rows(op->locks, result)) {
        store_complete(pg->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
}

/* The first string of bytes that sorts after all that begin with the prefix, which is cut and
 * changed into it; "": there is none. */
static void end_of_prefix(char *prefix) {
    size_t size = strlen(prefix);
    while (size > 0 && (uint8_t)prefix[size - 1] == 0xff)
        size--;
    prefix[size] = 0;
    if (size > 0)
        prefix[size - 1] = (char)((uint8_t)prefix[size - 1] + 1);
}

void postgres_look(struct postgres *pg, struct store_op *op) {
    struct pg_request *request = NULL;
    if (op->type == STORE_INSPECT) {
        request = pg_request_new(pg, op, look_answered, inspect_sql, "b", op->name);
    } else {
        char *end = strdup(op->name);
        if (end) {
            end_of_prefix(end);
            request = pg_request_new(pg, op, look_answered, list_sql, "bbbi", op->name, end,
                                     op->after, (int64_t)op->limit);
        }
        free(end);
    }
    postgres_send(pg, request, op);
}
