/* Fencing: what a hold gives to the resource that checks its token. */
#include "client/client.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/fence_file.h"
#include "base/fence_sql.h"

enum { NAMES_MOST = 64 }; /* of one hold */

/* The names of a hold with their tokens. Those of a group are in the order of their names, so that
 * two transactions that check the same names do not deadlock. Returns how many there are. */
static size_t get_tokens(const hf_hold *hold, struct fence_token *ret_tokens) {
    if (hold->role != ROLE_GROUP) {
        ret_tokens[0] = (struct fence_token){hold->hold.op.name, hold->hold.op.token};
        return 1;
    }
    for (size_t i = 0; i < hold->more->member_count; i++) {
        const struct store_op *op = &hold->more->members[i].hold->hold.op;
        ret_tokens[i] = (struct fence_token){op->name, op->token};
    }
    return hold->more->member_count;
}

/* Whether the hold is held and its token fences. */
static int check_hold(hf_hold *hold) {
    int r = hf_check(hold, 0);
    if (r < 0)
        return r;
    return hf_hold_is_exclusive(hold)
               ? HF_OK
               : error_set(HF_WRONG_KIND, "\"%s\" is shared, and its token does not fence",
                           hf_hold_name(hold));
}

int hf_fence_token(hf_hold *hold, uint64_t *ret_token) {
    int r = check_hold(hold);
    if (r < 0)
        return r;
    if (!ret_token)
        return error_set(HF_BAD_ARGUMENT, "ret_token is NULL");
    *ret_token = hf_hold_token(hold);
    return HF_OK;
}

/* ---- A file ---- */

static int enter(struct fence_file *file, hf_hold *hold, const char *path) {
    struct fence_token tokens[NAMES_MOST];
    int r = check_hold(hold);
    if (r < 0)
        return r;
    if (!path)
        return error_set(HF_BAD_ARGUMENT, "path is NULL");
    r = fence_file_enter(file, path, ".fence", tokens, get_tokens(hold, tokens));
    if (r == HF_LOST)
        return error_set(HF_LOST, "token %llu of \"%s\" is refused (a later holder came with %llu)",
                         (unsigned long long)file->refused.token, file->refused.name,
                         (unsigned long long)file->seen);
    return r < 0 ? error_set(r, "%s", file->why) : HF_OK;
}

int hf_fence_open(hf_hold *hold, const char *path) {
    struct fence_file file;
    int cancelling = cancel_disable(), r = enter(&file, hold, path);
    if (r == HF_OK)
        fence_file_leave(&file);
    cancel_restore(cancelling);
    return r;
}

int hf_fence_check(hf_hold *hold, const char *path, int (*write)(void *arg), void *arg) {
    struct fence_file file;
    if (!write)
        return error_set(HF_BAD_ARGUMENT, "write is NULL");
    int cancelling = cancel_disable(), r = enter(&file, hold, path);
    if (r == HF_OK) {
        r = write(arg);
        fence_file_leave(&file);
    }
    cancel_restore(cancelling);
    return r;
}

int hf_fence_write(hf_hold *hold, const char *path, const void *data, size_t size) {
    struct fence_file file;
    if (!data && size)
        return error_set(HF_BAD_ARGUMENT, "data is NULL");
    int cancelling = cancel_disable(), r = enter(&file, hold, path);
    if (r == HF_OK) {
        r = fence_file_replace(&file, fence_file_base(path), data, size);
        if (r < 0)
            r = error_set(r, "%s", file.why);
        fence_file_leave(&file);
    }
    cancel_restore(cancelling);
    return r;
}

/* ---- A database ---- */

static void write_statement(struct fence_sql *sql, const struct fence_token *tokens, size_t count) {
    for (size_t i = 0; i < count; i++)
        fence_sql_add(sql, tokens[i].name, tokens[i].token);
    fence_sql_end(sql);
}

int hf_fence_sql(hf_hold *hold, hf_dialect dialect, char *ret_statement, size_t size) {
    struct fence_token tokens[NAMES_MOST];
    int r = check_hold(hold);
    if (r < 0)
        return r;
    if (!fence_sql_word((int)dialect))
        return error_set(HF_BAD_ARGUMENT, "no dialect has the number %d", (int)dialect);
    size_t count = get_tokens(hold, tokens);
    struct fence_sql measured = {.dialect = dialect};
    write_statement(&measured, tokens, count);
    if (!ret_statement || measured.length >= size)
        return error_set(HF_BAD_ARGUMENT, "the statement needs %zu bytes", measured.length + 1);
    struct fence_sql sql = {.dialect = dialect, .text = ret_statement, .size = size};
    write_statement(&sql, tokens, count);
    return HF_OK;
}
