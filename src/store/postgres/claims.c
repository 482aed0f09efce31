/* Acquire, renew, release, break: from operations to requests, and from results to outcomes. The
 * rules are in schema.sql; here its functions are called, and nothing is decided that they did not
 * say. */
#include "base/error.h"
#include "store/locks.h"
#include "store/postgres/postgres.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Acquire ---- */

enum { ANSWER, NUMBER, IS_HEAD, IN_USE_KIND, IN_USE_CAPACITY, ACQUIRE_COLUMNS };

struct answer {
    struct postgres *pg;
    struct store_op *op;
    const PGresult *row;
};

static int64_t number_of(const struct answer *a, int column) {
    return strtoll(PQgetvalue(a->row, 0, column), NULL, 10);
}

static void answered_done(const struct answer *a) {
    a->op->token = (uint64_t)number_of(a, NUMBER);
    postgres_granted(a->pg);
    store_complete(a->pg->host, a->op, STORE_DONE);
}

static void answered_queued(const struct answer *a) {
    a->op->left_us = number_of(a, NUMBER);
    if (PQgetvalue(a->row, 0, IS_HEAD)[0] == 't')
        a->op->flags |= STORE_HEAD;
    postgres_expect_wakes(a->pg);
    store_complete(a->pg->host, a->op, STORE_QUEUED);
}

static void answered_busy(const struct answer *a) {
    a->op->left_us = number_of(a, NUMBER);
    store_refuse(a->pg->host, a->op, HF_BUSY, NULL);
}

static void answered_kind(const struct answer *a) {
    store_refuse(a->pg->host, a->op, HF_WRONG_KIND,
                 store_describe_kind((enum store_kind)number_of(a, IN_USE_KIND),
                                     (uint32_t)number_of(a, IN_USE_CAPACITY)));
}

static void answered_clock(const struct answer *a) {
    store_refuse(a->pg->host, a->op, HF_CLOCK,
                 error_format("the client's clock proposes the token %" PRIu64
                              ", more than a day ahead of the server's clock, %" PRId64,
                              a->op->floor, number_of(a, NUMBER)));
}

static void answered_spent(const struct answer *a) {
    store_refuse(
        a->pg->host, a->op, HF_CLOCK,
        error_format("the name has used up its tokens, at %" PRId64, number_of(a, NUMBER)));
}

static const struct {
    const char *word;
    void (*handle)(const struct answer *answer);
} answers[] = {
    {"done", answered_done}, {"queued", answered_queued}, {"busy", answered_busy},
    {"kind", answered_kind}, {"clock", answered_clock},   {"spent", answered_spent},
};

static void acquire_answered(struct postgres *pg, struct pg_request *request,
                             const PGresult *result, const char *why) {
    struct answer answer = {pg, request->op, result};
    bool has_row = postgres_has_rows(result, ACQUIRE_COLUMNS) && PQntuples(result) == 1;
    for (size_t i = 0; has_row && i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (strcmp(PQgetvalue(result, 0, ANSWER), answers[i].word) == 0) {
            answers[i].handle(&answer);
            return;
        }
    }
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
    postgres_send(pg, request, op);
}

/* ---- Release, break ---- */

/* After an earlier sending whose reply was lost, "not mine" may be its own doing. */
static void ended(struct postgres *pg, struct pg_request *request, const PGresult *result,
                  const char *why) {
    if (!postgres_has_rows(result, 1) || PQntuples(result) != 1) {
        postgres_fail(pg, request, result, why);
        return;
    }
    store_complete(pg->host, request->op,
                   PQgetvalue(result, 0, 0)[0] == 't' ? STORE_DONE
                   : request->sends > 1               ? STORE_UNKNOWN
                                                      : STORE_NOT_YOURS);
}

void postgres_release(struct postgres *pg, struct store_op *op) {
    postgres_send(pg,
                  pg_request_new(pg, op, ended, "SELECT holdfast.release($1, $2, $3)", "bcu",
                                 op->name, op->seq),
                  op);
}

void postgres_break(struct postgres *pg, struct store_op *op) {
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&pg->host->identity, by);
    postgres_send(pg,
                  pg_request_new(pg, op, ended, "SELECT holdfast.break($1, $2, $3, $4)", "bubb",
                                 op->name, op->token, by, op->label),
                  op);
}

/* ---- Renew ---- */

/* The attempts that a renewal names, in the order of the operation's list; 0: it ended before. */
struct renewing {
    size_t count;
    uint64_t seqs[];
};

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void note_renewed(struct store_op *op, const struct renewing *asked, const PGresult *result,
                         uint64_t *renewed) {
    size_t count = (size_t)PQntuples(result);
    for (size_t i = 0; i < count; i++)
        renewed[i] = strtoull(PQgetvalue(result, (int)i, 0), NULL, 10);
    qsort(renewed, count, sizeof(*renewed), by_number);
    for (size_t i = 0; i < asked->count; i++) {
        if (!asked->seqs[i])
            continue;
        bool found = bsearch(&asked->seqs[i], renewed, count, sizeof(*renewed), by_number);
        op->renewals[i].outcome = found ? STORE_DONE : STORE_NOT_YOURS;
    }
}

static void renew_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                           const char *why) {
    struct renewing *asked = request->context;
    struct store_op *op = request->op;
    bool answered = postgres_has_rows(result, 1);
    uint64_t *renewed = answered ? calloc((size_t)PQntuples(result) + 1, sizeof(*renewed)) : NULL;
    if (answered && renewed)
        note_renewed(op, asked, result, renewed);
    free(asked);
    free(renewed);
    if (!answered) {
        postgres_fail(pg, request, result, why);
        return;
    }
    op->reason = renewed ? 0 : HF_NO_MEMORY;
    store_complete(pg->host, op, renewed ? STORE_DONE : STORE_UNKNOWN);
}

/* "{1,2,3}" of the numbers of those that have not ended, and of their leases. */
static void list_renewals(const struct store_op *op, struct renewing *ret, char *seqs,
                          char *leases) {
    size_t at = 0, lease_at = 0;
    ret->count = op->renewal_count;
    for (size_t i = 0; i < op->renewal_count; i++) {
        const struct store_op *of = op->renewals[i].of;
        ret->seqs[i] = of ? of->seq : 0;
        if (!of)
            continue;
        at += (size_t)sprintf(seqs + at, "%c%" PRIu64, at ? ',' : '{', ret->seqs[i]);
        lease_at += (size_t)sprintf(leases + lease_at, "%c%" PRId64, lease_at ? ',' : '{',
                                    op->renewals[i].lease_us);
    }
    strcpy(seqs + at, at ? "}" : "{}");
    strcpy(leases + lease_at, lease_at ? "}" : "{}");
}

void postgres_renew(struct postgres *pg, struct store_op *op) {
    enum { NUMBER_ROOM = 22 };
    size_t size = op->renewal_count * NUMBER_ROOM + 3;
    struct renewing *asked = calloc(1, sizeof(*asked) + op->renewal_count * sizeof(asked->seqs[0]));
    char *lists = malloc(2 * size);
    struct pg_request *request = NULL;
    postgres_expect_wakes(pg);
    if (asked && lists) {
        list_renewals(op, asked, lists, lists + size);
        request = pg_request_new(pg, op, renew_answered, "SELECT holdfast.renew($1, $2, $3)", "css",
                                 lists, lists + size);
    }
    free(lists);
    if (request)
        request->context = asked;
    else
        free(asked);
    postgres_send(pg, request, op);
}
