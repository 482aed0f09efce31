/* Acquire, renew, release, break: from operations to requests, and from results to outcomes. The
 * rules are in schema.sql; here its procedures are called, and nothing is decided beyond what they
 * answer. A renewal is plain SQL, since it can name any number of holds. */
#include "base/error.h"
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mysql_call(struct mysql *my, struct store_op *op, my_answered *answered,
                enum my_procedure procedure, char *arguments) {
    struct my_request *request = my_request_new(my, op, answered, arguments);
    if (request) {
        request->procedure = procedure;
        request->shares = procedure == MY_ACQUIRE || procedure == MY_RELEASE;
    }
    mysql_send(my, request, op);
}

/* ---- Acquire ---- */

static void acquire_answered(struct mysql *my, struct my_request *request,
                             const struct my_result *result, const char *why) {
    const char *values[SQL_ANSWER_COLUMNS];
    bool has_row = mysql_has_rows(result, SQL_ANSWER_COLUMNS) && result->rows == 1;
    for (unsigned i = 0; has_row && i < SQL_ANSWER_COLUMNS; i++)
        values[i] = my_value(result, 0, i);
    if (has_row && strcmp(values[SQL_ANSWER], "queued") == 0)
        mysql_expect_wakes(my);
    if (!has_row || !sql_acquire_answered(my->host, request->op, values))
        mysql_fail(my, request, result, why);
}

void mysql_acquire(struct mysql *my, struct store_op *op) {
    const struct store_host *host = my->host;
    const struct store_identity *who = &host->identity;
    int64_t wait_us = op->flags & STORE_WAIT ? host->wait_lease_us : 0;
    char *name = mysql_quote(op->name), *host_name = mysql_quote(who->host);
    char *command = mysql_quote(who->command), *label = mysql_quote(op->label), *arguments = NULL;
    if (name && host_name && command && label)
        arguments =
            mysql_write("%s\n%d\n%" PRIu32 "\n%" PRIu32 "\nX'%s'\n%" PRIu64 "\n%" PRId64
                        "\n%" PRId64 "\n%d\n%" PRIu64 "\n%" PRIu64 "\n%" PRId64 "\n%s\n%s\n%s",
                        name, op->kind, op->capacity, op->weight, my->client, op->seq, op->lease_us,
                        wait_us, (op->flags & STORE_BARGE) != 0, op->floor, host->token_floor,
                        who->pid, host_name, command, label);
    free(name);
    free(host_name);
    free(command);
    free(label);
    mysql_call(my, op, acquire_answered, MY_ACQUIRE, arguments);
}

/* ---- Release, break ---- */

/* If the reply to an earlier send was lost, that send may be why the claim is "not mine" now. */
void mysql_end(struct mysql *my, struct my_request *request, bool was_there) {
    store_complete(my->host, request->op,
                   was_there            ? STORE_DONE
                   : request->sends > 1 ? STORE_UNKNOWN
                                        : STORE_NOT_YOURS);
}

void mysql_ended(struct mysql *my, struct my_request *request, const struct my_result *result,
                 const char *why) {
    if (!mysql_has_rows(result, 1) || result->rows != 1) {
        mysql_fail(my, request, result, why);
        return;
    }
    mysql_end(my, request, my_number(result, 0, 0));
}

void mysql_release(struct mysql *my, struct store_op *op) {
    char *name = mysql_quote(op->name);
    char *arguments = name ? mysql_write("%s\nX'%s'\n%" PRIu64, name, my->client, op->seq) : NULL;
    free(name);
    mysql_call(my, op, mysql_ended, MY_RELEASE, arguments);
}

char *mysql_write_break(const struct mysql *my, const struct store_op *op) {
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&my->host->identity, by);
    char *name = mysql_quote(op->name), *breaker = mysql_quote(by), *why = mysql_quote(op->label);
    char *arguments = NULL;
    if (name && breaker && why)
        arguments = mysql_write("%s\n%" PRIu64 "\n%s\n%s", name, op->token, breaker, why);
    free(name);
    free(breaker);
    free(why);
    return arguments;
}

void mysql_break(struct mysql *my, struct store_op *op) {
    mysql_call(my, op, mysql_ended, MY_BREAK, mysql_write_break(my, op));
}

/* ---- Renew ---- */

static void renew_answered(struct mysql *my, struct my_request *request,
                           const struct my_result *result, const char *why) {
    struct sql_renewing *renewing = request->context;
    if (!mysql_has_rows(result, 1)) {
        free(renewing);
        mysql_fail(my, request, result, why);
        return;
    }
    for (size_t i = 0; i < result->rows; i++)
        sql_renewing_note(renewing, (uint64_t)my_number(result, i, 0));
    sql_renewing_finish(my->host, request->op, renewing);
}

/* Writes the numbers of the attempts with this lease, or of all (-1), with commas between them. */
static void list_seqs(FILE *out, const struct sql_renewing *renewing, int64_t lease_us) {
    const char *comma = "";
    for (size_t i = 0; i < renewing->count; i++) {
        const struct sql_renewed *renewal = &renewing->renewals[i];
        if (!renewal->seq || (lease_us >= 0 && renewal->lease_us != lease_us))
            continue;
        fprintf(out, "%s%" PRIu64, comma, renewal->seq);
        comma = ",";
    }
    fputs(*comma ? "" : "0", out); /* no attempt has this number */
}

static bool is_first_with_its_lease(const struct sql_renewing *renewing, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (renewing->renewals[i].lease_us == renewing->renewals[index].lease_us)
            return false;
    }
    return true;
}

/* One update for each length of lease, of which there are few, and then a query for those that
 * hold. An update finds only holds that have not ended, so all that exist afterwards were
 * renewed. */
static char *write_renewal(const struct mysql *my, const struct sql_renewing *renewing) {
    char *sql = NULL;
    size_t size;
    FILE *out = open_memstream(&sql, &size);
    if (!out)
        return NULL;
    for (size_t i = 0; i < renewing->count; i++) {
        int64_t lease_us = renewing->renewals[i].lease_us;
        if (!is_first_with_its_lease(renewing, i))
            continue;
        fprintf(out,
                "UPDATE holdfast_claims SET until_us = GREATEST(until_us, " MYSQL_NOW " + %" PRId64
                ") WHERE client = X'%s' AND state = 1 AND until_us > " MYSQL_NOW " AND seq IN (",
                lease_us, my->client);
        list_seqs(out, renewing, lease_us);
        fputs(");", out);
    }
    fprintf(out,
            "SELECT seq FROM holdfast_claims WHERE client = X'%s' AND state = 1 AND until_us "
            "> " MYSQL_NOW " AND seq IN (",
            my->client);
    list_seqs(out, renewing, -1);
    fputc(')', out);
    if (fclose(out) == 0)
        return sql;
    free(sql);
    return NULL;
}

void mysql_renew(struct mysql *my, struct store_op *op) {
    struct sql_renewing *renewing = sql_renewing_new(op);
    char *sql = renewing ? write_renewal(my, renewing) : NULL;
    struct my_request *request = my_request_new(my, op, renew_answered, sql);
    if (request)
        request->context = renewing;
    else
        free(renewing);
    mysql_expect_wakes(my);
    mysql_send(my, request, op);
}
