/* Acquire, renew, release, break: from operations to requests, and from results to outcomes. The
 * rules are in schema.sql; here its functions are called, and nothing is decided beyond what they
 * answer. */
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void send_in_turn(struct postgres *pg, struct pg_request *request, struct store_op *op) {
    if (request)
        request->shares = true;
    postgres_send(pg, request, op);
}

/* ---- Acquire ---- */

static void acquire_answered(struct postgres *pg, struct pg_request *request,
                             const PGresult *result, const char *why) {
    const char *values[SQL_ANSWER_COLUMNS];
    bool has_row = postgres_has_rows(result, SQL_ANSWER_COLUMNS) && PQntuples(result) == 1;
    for (int i = 0; has_row && i < SQL_ANSWER_COLUMNS; i++)
        values[i] = PQgetvalue(result, 0, i);
    if (has_row && strcmp(values[SQL_ANSWER], "done") == 0)
        postgres_granted(pg);
    if (has_row && strcmp(values[SQL_ANSWER], "queued") == 0)
        postgres_expect_wakes(pg);
    if (!has_row || !sql_acquire_answered(pg->host, request->op, values))
        postgres_fail(pg, request, result, why);
}

void postgres_acquire(struct postgres *pg, struct store_op *op) {
    const struct store_host *host = pg->host;
    int64_t wait_us = op->flags & STORE_WAIT ? host->wait_lease_us : 0;
    struct pg_request *request = pg_request_new(
        pg, op, acquire_answered,
        "SELECT * FROM holdfast.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
        "$14, $15)",
        "biiiciiifuuibbb", op->name, (int64_t)op->kind, (int64_t)op->capacity, (int64_t)op->weight,
        op->seq, op->lease_us, wait_us, (op->flags & STORE_BARGE) != 0, op->floor,
        host->token_floor, host->identity.pid, host->identity.host, host->identity.command,
        op->label);
    send_in_turn(pg, request, op);
}

/* ---- Release, break ----
 *
 * A release does not wait until its commit is on disk. If the server crashes at that moment, the
 * release is forgotten, and the lock becomes free when its lease ends, as if the holder had died.
 * Nothing else can happen: the log is written in order, and a later grant is reported only once it
 * is durable, also on the standbys that grants wait for. The release before it is then also
 * durable. If the release reserves the lock for the next waiter, that waiter's own request is the
 * grant. */

/* If the reply to an earlier send was lost, that send may be why the claim is "not mine" now. */
void postgres_end(struct postgres *pg, struct pg_request *request, bool was_there) {
    store_complete(pg->host, request->op,
                   was_there            ? STORE_DONE
                   : request->sends > 1 ? STORE_UNKNOWN
                                        : STORE_NOT_YOURS);
}

void postgres_ended(struct postgres *pg, struct pg_request *request, const PGresult *result,
                    const char *why) {
    if (!postgres_has_rows(result, 1) || PQntuples(result) != 1) {
        postgres_fail(pg, request, result, why);
        return;
    }
    postgres_end(pg, request, PQgetvalue(result, 0, 0)[0] == 't');
}

void postgres_release(struct postgres *pg, struct store_op *op) {
    send_in_turn(pg,
                 pg_request_new(pg, op, postgres_ended,
                                "SELECT holdfast.release($1, $2, $3) FROM " PG_NO_FLUSH, "bcu",
                                op->name, op->seq),
                 op);
}

void postgres_break(struct postgres *pg, struct store_op *op) {
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&pg->host->identity, by);
    postgres_send(pg,
                  pg_request_new(pg, op, postgres_ended, "SELECT holdfast.break($1, $2, $3, $4)",
                                 "bubb", op->name, op->token, by, op->label),
                  op);
}

/* ---- Renew ---- */

static void renew_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                           const char *why) {
    struct sql_renewing *renewing = request->context;
    if (!postgres_has_rows(result, 1)) {
        free(renewing);
        postgres_fail(pg, request, result, why);
        return;
    }
    for (int i = 0; i < PQntuples(result); i++)
        sql_renewing_note(renewing, strtoull(PQgetvalue(result, i, 0), NULL, 10));
    sql_renewing_finish(pg->host, request->op, renewing);
}

/* Writes "{1,2,3}": the numbers of those that have not ended, and their leases. */
static void list_renewals(const struct sql_renewing *renewing, char *seqs, char *leases) {
    size_t at = 0, lease_at = 0;
    for (size_t i = 0; i < renewing->count; i++) {
        const struct sql_renewed *renewal = &renewing->renewals[i];
        if (!renewal->seq)
            continue;
        at += (size_t)sprintf(seqs + at, "%c%" PRIu64, at ? ',' : '{', renewal->seq);
        lease_at += (size_t)sprintf(leases + lease_at, "%c%" PRId64, lease_at ? ',' : '{',
                                    renewal->lease_us);
    }
    strcpy(seqs + at, at ? "}" : "{}");
    strcpy(leases + lease_at, lease_at ? "}" : "{}");
}

void postgres_renew(struct postgres *pg, struct store_op *op) {
    enum { NUMBER_ROOM = 22 };
    size_t size = op->renewal_count * NUMBER_ROOM + 3;
    struct sql_renewing *renewing = sql_renewing_new(op);
    char *lists = malloc(2 * size);
    struct pg_request *request = NULL;
    postgres_expect_wakes(pg);
    if (renewing && lists) {
        list_renewals(renewing, lists, lists + size);
        request = pg_request_new(pg, op, renew_answered, "SELECT holdfast.renew($1, $2, $3)", "css",
                                 lists, lists + size);
    }
    free(lists);
    if (request)
        request->context = renewing;
    else
        free(renewing);
    postgres_send(pg, request, op);
}
