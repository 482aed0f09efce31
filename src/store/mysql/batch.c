/* See batch.h.
 *
 * The procedures take JSON, with a list for each member, made from the arguments that the member
 * would send alone; values that are the same for all are separate arguments. A member stays a
 * request, with its own time limit and its own count of sends, to which those of the batch are
 * added. So the meaning of an answer, or of no answer, is decided as for any other request. */
#include "store/mysql/batch.h"

#include "store/mysql/mysql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 16 };

struct my_batch {
    enum my_procedure procedure;
    /* The lines of a member's arguments that are in its list, and those that are the same for all;
     * each ends with -1. */
    int own[ARGUMENTS_MAX], same[ARGUMENTS_MAX];
    /* The server has done the member's request, and answered with this. */
    void (*done)(struct mysql *my, struct my_request *member, int64_t number);
};

static void granted(struct mysql *my, struct my_request *member, int64_t token) {
    member->op->token = (uint64_t)token;
    store_complete(my->host, member->op, STORE_DONE);
}

static void released(struct mysql *my, struct my_request *member, int64_t was_mine) {
    mysql_end(my, member, was_mine);
}

/* The lines are those of claims.c. */
const struct my_batch my_acquire_batch = {
    MY_ACQUIRE_FREE, {0, 1, 2, 3, 5, 6, 8, 9, 14, -1}, {4, 10, 11, 12, 13, -1}, granted};

const struct my_batch my_release_batch = {MY_RELEASE_QUIET, {0, 2, -1}, {1, -1}, released};

/* ---- Answers ---- */

/* The row of the result that is about this member; -1: there is none. Rows usually come in the
 * order of the members, so the search starts at `likely`. */
static long row_of(const struct my_result *result, size_t likely, const struct my_request *member) {
    size_t count = mysql_has_rows(result, 2) ? result->rows : 0;
    for (size_t i = 0; i < count; i++) {
        size_t row = (likely + i) % count;
        if ((uint64_t)my_number(result, row, 0) == member->op->seq)
            return (long)row;
    }
    return -1;
}

/* Members that were certainly not done are sent alone. So are the rest after an error, which may
 * concern all of them, or only the batch. */
static void batch_answered(struct mysql *my, struct my_request *batch,
                           const struct my_result *result, const char *why) {
    bool is_clear = result && mysql_fault_of(result->error) != MY_UNCLEAR;
    size_t likely = 0;
    while (!list_empty(&batch->members)) {
        struct my_request *member = container_of(batch->members.next, struct my_request, link);
        list_remove(&member->link);
        member->sends += batch->sends;
        if (!result) {
            my_request_end(my, member, NULL, batch->reason, why);
            continue;
        }
        long row = row_of(result, likely, member);
        if (row >= 0) {
            likely = (size_t)row + 1;
            batch->type->done(my, member, my_number(result, (size_t)row, 1));
            my_request_free(member);
        } else {
            member->sends -= is_clear;
            my_link_submit_first(&my->commands, member);
        }
    }
}

/* ---- Arguments ---- */

/* The line of that number, and its length. */
static const char *line_of(const char *lines, int number, int *ret_size) {
    for (; number > 0; number--)
        lines += strcspn(lines, "\n") + 1;
    *ret_size = (int)strcspn(lines, "\n");
    return lines;
}

/* X'6162' becomes "6162", and a number stays what it is. */
static void write_json(FILE *out, const char *line, int size) {
    bool is_bytes = line[0] == 'X';
    fprintf(out, is_bytes ? "\"%.*s\"" : "%.*s", is_bytes ? size - 3 : size,
            line + (is_bytes ? 2 : 0));
}

static void write_member(FILE *out, const struct my_batch *type, const struct my_request *member) {
    for (const int *own = type->own; *own >= 0; own++) {
        int size;
        const char *line = line_of(member->sql, *own, &size);
        fputc(own == type->own ? '[' : ',', out);
        write_json(out, line, size);
    }
    fputc(']', out);
}

static char *write_arguments(const struct my_batch *type, const struct list *members) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    list_each(node, members) {
        fputs(node == members->next ? "'[" : ",", out);
        write_member(out, type, container_of(node, struct my_request, link));
    }
    fputs("]'", out);
    const struct my_request *first = container_of(members->next, struct my_request, link);
    for (const int *same = type->same; *same >= 0; same++) {
        int length;
        const char *line = line_of(first->sql, *same, &length);
        fprintf(out, "\n%.*s", length, line);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

struct my_request *my_batch_new(struct mysql *my, const struct my_batch *type,
                                struct list *members) {
    struct my_request *batch =
        my_request_new(my, NULL, batch_answered, write_arguments(type, members));
    if (!batch)
        return NULL;
    batch->procedure = (int)type->procedure;
    batch->type = type;
    while (!list_empty(members)) {
        struct my_request *member = container_of(members->next, struct my_request, link);
        list_remove(&member->link);
        list_append(&batch->members, &member->link);
        member->shares = false;
        if (member->give_up_us < batch->give_up_us)
            batch->give_up_us = member->give_up_us;
    }
    return batch;
}
