/* COUNT: one step on a counter. The function in schema.sql decides, and recognises a repeat. Its
 * commit waits for the disk, and for the standbys that grants wait for: no answer is forgotten once
 * it was given. */
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"

static void count_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                           const char *why) {
    const char *values[SQL_COUNT_COLUMNS];
    bool has_row = postgres_has_rows(result, SQL_COUNT_COLUMNS) && PQntuples(result) == 1;
    for (int i = 0; has_row && i < SQL_COUNT_COLUMNS; i++)
        values[i] = PQgetvalue(result, 0, i);
    if (!has_row || !sql_count_answered(pg->host, request->op, values))
        postgres_fail(pg, request, result, why);
}

void postgres_count(struct postgres *pg, struct store_op *op) {
    postgres_send(pg,
                  pg_request_new(pg, op, count_answered,
                                 "SELECT * FROM holdfast.count($1, $2, $3, CASE WHEN $4 THEN NULL "
                                 "ELSE $5::bigint END, $6, $7, $8)",
                                 "biifiicu", op->name, (int64_t)op->kind, op->number,
                                 (op->flags & STORE_ABSENT) != 0, op->expected, op->lease_us,
                                 op->seq),
                  op);
}
