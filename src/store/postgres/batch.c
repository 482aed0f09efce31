/* See batch.h.
 *
 * The functions of the schema take an array for each parameter that differs between the members,
 * made from the values that the members would send alone. A member stays a request, with its own
 * time limit and its own count of sends, to which those of the batch are added. So the meaning of
 * an answer, or of no answer, is decided as for any other request. */
#include "store/postgres/batch.h"

#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg_batch {
    const char *sql;
    /* Which of a member's values become parameters, in order. */
    struct {
        uint8_t value;
        bool is_same; /* for all members: no array */
    } parameters[PG_VALUES_MAX];
    int count;
    /* The server has done the member's request, and answered with this. */
    void (*done)(struct postgres *pg, struct pg_request *member, const char *value);
};

static void granted(struct postgres *pg, struct pg_request *member, const char *token) {
    member->op->token = strtoull(token, NULL, 10);
    postgres_granted(pg);
    store_complete(pg->host, member->op, STORE_DONE);
}

static void released(struct postgres *pg, struct pg_request *member, const char *was_mine) {
    postgres_end(pg, member, was_mine[0] == 't');
}

/* The values are those of claims.c. */
const struct pg_batch pg_acquire_batch = {
    "SELECT * FROM holdfast.acquire_free($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
    "$14)",
    {{0},
     {1},
     {2},
     {3},
     {4, true},
     {5},
     {6},
     {8},
     {9},
     {10, true},
     {11, true},
     {12, true},
     {13, true},
     {14}},
    14,
    granted};

const struct pg_batch pg_release_batch = {
    "SELECT released.* FROM holdfast.release_quiet($1, $2, $3) AS released, " PG_NO_FLUSH,
    {{0}, {1, true}, {2}},
    3,
    released};

/* ---- Answers ---- */

/* The row of the result that is about this member; -1: there is none. Rows usually come in the
 * order of the members, so the search starts at `likely`. */
static int row_of(const PGresult *result, int likely, const struct pg_request *member) {
    int count = postgres_has_rows(result, 2) ? PQntuples(result) : 0;
    for (int i = 0; i < count; i++) {
        int row = (likely + i) % count;
        if (strtoull(PQgetvalue(result, row, 0), NULL, 10) == member->op->seq)
            return row;
    }
    return -1;
}

static struct pg_request *take_member(struct pg_request *batch) {
    struct pg_request *member = container_of(batch->members.next, struct pg_request, link);
    list_remove(&member->link);
    return member;
}

/* An error concerns all of them, or only the batch: each is sent alone, to find out. */
static void batch_answered(struct postgres *pg, struct pg_request *batch, const PGresult *result,
                           const char *why) {
    int likely = 0;
    while (!list_empty(&batch->members)) {
        struct pg_request *member = take_member(batch);
        member->sends += batch->sends;
        if (!result) {
            pg_request_end(pg, member, NULL, batch->reason, why);
            continue;
        }
        int row = row_of(result, likely, member);
        if (row >= 0) {
            likely = row + 1;
            batch->type->done(pg, member, PQgetvalue(result, row, 1));
            pg_request_free(member);
        } else {
            pg_link_try_again(&pg->commands, member);
        }
    }
}

/* ---- Parameters ---- */

/* Bytes are written as hex digits; within an array, they are quoted. */
static void write_value(FILE *out, const struct pg_request *member, int value, bool in_array) {
    if (!member->formats[value]) {
        fputs(member->values[value], out);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    fputs(in_array ? "\"\\\\x" : "\\x", out);
    for (int i = 0; i < member->sizes[value]; i++) {
        uint8_t byte = (uint8_t)member->values[value][i];
        fputc_unlocked(digits[byte >> 4], out);
        fputc_unlocked(digits[byte & 15], out);
    }
    fputs(in_array ? "\"" : "", out);
}

/* "{1,2}" */
static void write_array(FILE *out, const struct list *members, int value) {
    char before = '{';
    list_each(node, members) {
        fputc(before, out);
        write_value(out, container_of(node, struct pg_request, link), value, true);
        before = ',';
    }
    fputc('}', out);
}

/* Each parameter ends with a zero. NULL: no memory. */
static char *write_parameters(const struct pg_batch *type, const struct list *members,
                              size_t *ret_size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_size);
    if (!out)
        return NULL;
    for (int i = 0; i < type->count; i++) {
        int value = type->parameters[i].value;
        if (type->parameters[i].is_same)
            write_value(out, container_of(members->next, struct pg_request, link), value, false);
        else
            write_array(out, members, value);
        fputc(0, out);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

struct pg_request *pg_batch_new(struct postgres *pg, const struct pg_batch *type,
                                struct list *members) {
    size_t size;
    char *text = write_parameters(type, members, &size);
    struct pg_request *batch =
        text ? pg_request_of(pg, batch_answered, type->sql, type->count, text, size) : NULL;
    free(text);
    if (!batch)
        return NULL;
    batch->type = type;
    while (!list_empty(members)) {
        struct pg_request *member = container_of(members->next, struct pg_request, link);
        list_remove(&member->link);
        list_append(&batch->members, &member->link);
        member->shares = false;
        if (member->give_up_us < batch->give_up_us)
            batch->give_up_us = member->give_up_us;
    }
    return batch;
}
