/* Wake-ups. The database has no notifications, but a session can end another's wait: the client has
 * a second session that owns a user lock ("holdfast." and the client's id) and waits. A client that
 * hands a lock on finds that session by its user lock and ends its statement with KILL QUERY, as
 * the last step of its own request (wake.sql). The session then asks which of the client's attempts
 * are meant, and waits again.
 *
 * A statement that has not started cannot be killed, and a statement that is killed after its last
 * step succeeds. So the statement that waits first looks for attempts that the last query did not
 * find. (Two statements in one query would not do: if the kill comes between them, MariaDB drops
 * the second and answers nothing.)
 *
 * It waits for a second user lock, which the client's other session has. It does not use SLEEP: in
 * MariaDB all sleepers share a mutex, and each KILL QUERY of one can take two seconds if others go
 * to sleep or wake up at the same time.
 *
 * Wake-ups are hints: if one is lost, the waiter asks again anyway, at the latest a third of a wait
 * lease later. */
#include "store/mysql/mysql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAIT_S = 5, INTERRUPTED = 1317 };

/* The session has a problem: the next one is opened after a while. */
static void give_up(struct mysql *my, int reason, const char *why) {
    my->listener.heard = false;
    my_link_break(&my->listener, reason, why);
}

static void submit(struct mysql *my, char *sql, my_answered *answered, int64_t patience_us) {
    struct my_request *request = my_request_new(my, NULL, answered, sql);
    if (!request) {
        give_up(my, HF_NO_MEMORY, NULL);
        return;
    }
    request->patience_us = patience_us;
    request->give_up_us = INT64_MAX; /* its connection is abandoned, not the request */
    my_link_submit(&my->listener, request);
}

/* ---- Waiting ---- */

static void ask_for_turns(struct mysql *my);

static bool is_one(const struct my_result *result) {
    return mysql_has_rows(result, 1) && result->rows == 1 && my_number(result, 0, 0) == 1;
}

/* False: the session is no longer usable. */
static bool is_fine(struct mysql *my, const struct my_result *result, const char *why) {
    if (result && (!result->error || result->error == INTERRUPTED))
        return true;
    give_up(my, HF_UNREACHABLE, result ? result->text : why);
    return false;
}

/* If it gets the lock, the other session has ended. */
static void waited(struct mysql *my, struct my_request *request, const struct my_result *result,
                   const char *why) {
    (void)request;
    if (is_one(result))
        give_up(my, HF_UNREACHABLE, "the other session has ended");
    else if (is_fine(my, result, why))
        ask_for_turns(my);
}

/* Waits unless there are turns that are not among the known ones. MariaDB accepts a block, in which
 * the statement that waits keeps no table open. */
static char *write_wait(const struct mysql *my, const struct my_result *known) {
    char *sql = NULL;
    size_t size;
    bool has_blocks = my->listener.greeting.is_mariadb;
    FILE *out = open_memstream(&sql, &size);
    if (!out)
        return NULL;
    fprintf(out,
            "%s FROM holdfast_claims WHERE client = X'%s' AND state IN (2, 4)"
            " AND seq * 8 + state NOT IN (0",
            has_blocks ? "BEGIN NOT ATOMIC DECLARE turns INT; SELECT COUNT(*) INTO turns"
                       : "SELECT IF((SELECT COUNT(*)",
            my->client);
    for (size_t i = 0; i < known->rows; i++)
        fprintf(out, ",%" PRId64, my_number(known, i, 0) * 8 + my_number(known, i, 1));
    fprintf(out, ")%s, 2, GET_LOCK('holdfast.%s.w', %d))%s", has_blocks ? "; SELECT IF(turns" : ")",
            my->client, WAIT_S, has_blocks ? "; END" : "");
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return sql;
    free(sql);
    return NULL;
}

static void tell_turns(struct mysql *my, struct my_request *request, const struct my_result *result,
                       const char *why) {
    (void)request;
    if (!is_fine(my, result, why))
        return;
    if (!mysql_has_rows(result, 2)) { /* interrupted */
        ask_for_turns(my);
        return;
    }
    submit(my, write_wait(my, result), waited, WAIT_S * INT64_C(1000000));
    for (size_t i = 0; i < result->rows; i++) {
        uint64_t seq = (uint64_t)my_number(result, i, 0);
        if (my_number(result, i, 1) == 2)
            my->host->wake(my->host, seq);
        else
            my->host->gone(my->host, seq);
    }
}

static void ask_for_turns(struct mysql *my) {
    submit(my,
           mysql_write("SELECT seq, state FROM holdfast_claims"
                       " WHERE client = X'%s' AND state IN (2, 4)",
                       my->client),
           tell_turns, 0);
}

/* ---- Starting ---- */

/* The other session has the lock that this one waits for. Anything that happened before this was
 * missed. */
static void begin(struct mysql *my, struct my_request *request, const struct my_result *result,
                  const char *why) {
    (void)request;
    if (my->listener.state != MY_READY || !list_empty(&my->listener.sent))
        return; /* it has another connection now, and asks again */
    if (!result || result->error) {
        give_up(my, HF_UNREACHABLE, result ? result->text : why);
        return;
    }
    my->host->check(my->host, STORE_ALL_HELD);
    ask_for_turns(my);
}

static void prepare(struct mysql *my) {
    struct my_request *request =
        my_request_new(my, NULL, begin, mysql_write("DO GET_LOCK('holdfast.%s.w', 0)", my->client));
    if (request)
        my_link_submit(&my->commands, request);
    else
        give_up(my, HF_NO_MEMORY, NULL);
}

static void taken_over(struct mysql *my, struct my_request *request, const struct my_result *result,
                       const char *why) {
    (void)request, (void)why;
    if (is_one(result))
        prepare(my);
    else
        give_up(my, HF_UNREACHABLE, "an earlier session of this client is still open");
}

/* If the last connection was cut off, the server may not have noticed yet, and its session still
 * has the lock: that session is ended. */
static void owned(struct mysql *my, struct my_request *request, const struct my_result *result,
                  const char *why) {
    (void)request, (void)why;
    if (is_one(result))
        prepare(my);
    else
        submit(my,
               mysql_write("KILL IS_USED_LOCK('holdfast.%s'); SELECT GET_LOCK('holdfast.%s', 1)",
                           my->client, my->client),
               taken_over, 1000000);
}

void mysql_listen(struct mysql *my) {
    submit(my, mysql_write("SELECT GET_LOCK('holdfast.%s', 0)", my->client), owned, 0);
}

void mysql_expect_wakes(struct mysql *my) {
    if (my->listener.wanted)
        return;
    my->listener.wanted = my->commands.wanted = true;
    my_link_want(&my->listener);
}
