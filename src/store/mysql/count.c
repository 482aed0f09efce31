/* COUNT: one step on a counter. The procedure in schema.sql decides, and recognises a repeat. */
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void count_answered(struct mysql *my, struct my_request *request,
                           const struct my_result *result, const char *why) {
    const char *values[SQL_COUNT_COLUMNS];
    bool has_row = mysql_has_rows(result, SQL_COUNT_COLUMNS) && result->rows == 1;
    for (unsigned i = 0; has_row && i < SQL_COUNT_COLUMNS; i++)
        values[i] = my_value(result, 0, i);
    if (!has_row || !sql_count_answered(my->host, request->op, values))
        mysql_fail(my, request, result, why);
}

void mysql_count(struct mysql *my, struct store_op *op) {
    char expected[24] = "NULL", *name = mysql_quote(op->name), *arguments = NULL;
    if (!(op->flags & STORE_ABSENT))
        snprintf(expected, sizeof(expected), "%" PRId64, op->expected);
    if (name)
        arguments = mysql_write("%s\n%d\n%" PRId64 "\n%s\n%" PRId64 "\nX'%s'\n%" PRIu64, name,
                                op->kind, op->number, expected, op->lease_us, my->client, op->seq);
    free(name);
    mysql_call(my, op, count_answered, MY_COUNT, arguments);
}
