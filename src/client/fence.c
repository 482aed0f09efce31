/* Fencing: what a hold gives to the resource that checks its token. */
#include "client/client.h"

#include "base/error.h"
#include "base/fence_sql.h"

/* The members of a group are in the order of their names, so that two transactions that check the
 * same names do not deadlock. */
static void write_statement(const hf_hold *hold, struct fence_sql *sql) {
    if (hold->role != ROLE_GROUP)
        fence_sql_add(sql, hold->hold.op.name, hold->hold.op.token);
    for (size_t i = 0; hold->role == ROLE_GROUP && i < hold->more->member_count; i++) {
        const struct store_op *op = &hold->more->members[i].hold->hold.op;
        fence_sql_add(sql, op->name, op->token);
    }
    fence_sql_end(sql);
}

int hf_fence_sql(hf_hold *hold, hf_dialect dialect, char *ret_statement, size_t size) {
    int r = hf_check(hold, 0);
    if (r < 0)
        return r;
    if (!fence_sql_word((int)dialect))
        return error_set(HF_BAD_ARGUMENT, "no dialect has the number %d", (int)dialect);
    if (!hf_hold_is_exclusive(hold))
        return error_set(HF_WRONG_KIND, "\"%s\" is shared, and its token does not fence",
                         hf_hold_name(hold));
    struct fence_sql measured = {.dialect = dialect};
    write_statement(hold, &measured);
    if (!ret_statement || measured.length >= size)
        return error_set(HF_BAD_ARGUMENT, "the statement needs %zu bytes", measured.length + 1);
    struct fence_sql sql = {.dialect = dialect, .text = ret_statement, .size = size};
    write_statement(hold, &sql);
    return HF_OK;
}
