/* Design notes.
 *
 * States: DOWN → SEARCHING (names are looked up) → CONNECTING → GREETING (the schema is found or
 * made) → READY, and from each back to DOWN. Connections are abandoned, and requests returned, as
 * in the link of the Redis store: a link that loses a connection that has been useful tries again
 * at once; otherwise it waits first. A request that was never sent is refused as soon as connecting
 * fails. A connection is abandoned when a request has waited on it for the whole timeout; a request
 * that is abandoned earlier keeps its place, so that results still match requests.
 *
 * A result counts only when its sync has come back. Before that the server has executed the
 * statement, but not committed it.
 *
 * Only errors of severity ERROR are answers. FATAL ends the connection, possibly after the
 * commit. */
#include "store/postgres/link.h"

#include "base/error.h"
#include "store/postgres/batch.h"
#include "store/postgres/postgres.h"
#include "store/sql/sql.h"
#include "store/sql/turn.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { PING_US = 5000000, NUMBER_SIZE = 24 };

static struct world *world_of(const struct pg_link *link) {
    return link->pg->host->world;
}

/* ---- Requests ---- */

static size_t size_of_values(const char *types, va_list values) {
    size_t size = 0;
    for (; *types; types++) {
        if (*types == 'b' || *types == 's') {
            const char *text = va_arg(values, const char *);
            size += text ? strlen(text) + 1 : 1;
        } else if (*types == 'f') {
            (void)va_arg(values, int);
            size += NUMBER_SIZE;
        } else if (*types != 'c') {
            (void)va_arg(values, int64_t);
            size += NUMBER_SIZE;
        }
    }
    return size;
}

static const char *put(char **at, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

static const char *put_number(char **at, int64_t number) {
    char text[NUMBER_SIZE];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return put(at, text);
}

/* A request with room for `size` bytes of values. */
static struct pg_request *allocate(struct postgres *pg, pg_answered *answered, const char *sql,
                                   int count, size_t size) {
    assert(count <= PG_VALUES_MAX);
    struct pg_request *request = calloc(1, sizeof(*request) + size);
    if (!request)
        return NULL;
    list_init(&request->link);
    list_init(&request->members);
    request->answered = answered;
    request->sql = sql;
    request->count = count;
    request->give_up_us = world_now_us(pg->host->world) + pg->timeout_us;
    return request;
}

struct pg_request *pg_request_new(struct postgres *pg, struct store_op *op, pg_answered *answered,
                                  const char *sql, const char *types, ...) {
    va_list values;
    va_start(values, types);
    size_t size = size_of_values(types, values);
    va_end(values);
    struct pg_request *request = allocate(pg, answered, sql, (int)strlen(types), size);
    if (!request)
        return NULL;
    request->op = op;
    char *at = request->bytes;
    va_start(values, types);
    for (int i = 0; i < request->count; i++) {
        const char *text;
        switch (types[i]) {
        case 'c':
            request->values[i] = pg->client;
            break;
        case 'f':
            request->values[i] = va_arg(values, int) ? "t" : "f";
            break;
        case 'i':
        case 'u': /* below 2^63 */
            request->values[i] = put_number(&at, va_arg(values, int64_t));
            break;
        default:
            text = va_arg(values, const char *);
            request->values[i] = put(&at, text ? text : "");
            request->formats[i] = types[i] == 'b';
        }
        request->sizes[i] = (int)strlen(request->values[i]);
    }
    va_end(values);
    return request;
}

struct pg_request *pg_request_of(struct postgres *pg, pg_answered *answered, const char *sql,
                                 int count, const char *texts, size_t size) {
    struct pg_request *request = allocate(pg, answered, sql, count, size);
    if (!request)
        return NULL;
    const char *at = memcpy(request->bytes, texts, size);
    for (int i = 0; i < count; i++) {
        request->values[i] = at;
        request->sizes[i] = (int)strlen(at);
        at += strlen(at) + 1;
    }
    return request;
}

void pg_request_free(struct pg_request *request) {
    assert(list_empty(&request->members));
    list_remove(&request->link);
    PQclear(request->result);
    free(request);
}

static struct pg_request *first_of(struct list *list) {
    return list_empty(list) ? NULL : container_of(list->next, struct pg_request, link);
}

void pg_request_end(struct postgres *pg, struct pg_request *request, const PGresult *result,
                    int reason, const char *why) {
    list_remove(&request->link);
    request->reason = reason;
    if (request->answered)
        request->answered(pg, request, result, why);
    pg_request_free(request);
}

static void give_back(struct pg_link *link, struct pg_request *request, const PGresult *result,
                      const char *why) {
    link->in_turn -= request->in_turn;
    pg_request_end(link->pg, request, result, link->reason, why);
}

const char *pg_sqlstate(const PGresult *result) {
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    return state ? state : "";
}

/* ---- Time ---- */

static int64_t earliest(int64_t a_us, int64_t b_us) {
    return a_us < b_us ? a_us : b_us;
}

static int64_t first_give_up_us(struct list *requests) {
    int64_t at_us = WORLD_NEVER;
    list_each(node, requests) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (request->answered)
            at_us = earliest(at_us, request->give_up_us);
        if (request->answered && request->sends <= 1)
            break; /* those after it came later */
    }
    return at_us;
}

static void set_timer(struct pg_link *link) {
    struct postgres *pg = link->pg;
    struct pg_request *sent = first_of(&link->sent);
    int64_t at_us = first_give_up_us(&link->waiting);
    if (sent)
        at_us = earliest(at_us, first_give_up_us(&link->sent));
    if (sent && !link->ended)
        at_us = earliest(at_us, sent->sent_us + pg->timeout_us);
    if (link->state == PG_DOWN && !link->is_over && (link->wanted || !list_empty(&link->waiting)))
        at_us = earliest(at_us, link->retry_at_us);
    if (link->state == PG_SEARCHING || link->state == PG_GREETING)
        at_us = earliest(at_us, link->connect_by_us);
    if (link->state == PG_CONNECTING)
        at_us = earliest(at_us, link->target_by_us);
    if (link->state == PG_READY && link->wanted && !sent)
        at_us = earliest(at_us, link->heard_us + PING_US);
    if (at_us == WORLD_NEVER)
        world_timer_clear(world_of(link), &link->timer);
    else
        world_timer_set(world_of(link), &link->timer, at_us);
}

/* ---- The descriptor ---- */

static void unwatch(struct pg_link *link) {
    if (link->watched)
        world_unwatch(world_of(link), &link->watch);
    link->watched = false;
}

/* While it connects, libpq may close its socket and open another with the same number. */
static int watch_again(struct pg_link *link, uint32_t events) {
    unwatch(link);
    link->watch.fd = PQsocket(link->conn);
    link->watch.events = events;
    int r = world_watch(world_of(link), &link->watch);
    link->watched = r == HF_OK;
    return r;
}

/* ---- Down ---- */

static void clear_targets(struct pg_targets *targets) {
    for (size_t i = 0; i < targets->count; i++) {
        free(targets->list[i].host);
        free(targets->list[i].address);
        free(targets->list[i].port);
    }
    free(targets->list);
    *targets = (struct pg_targets){0};
}

static void disconnect(struct pg_link *link) {
    unwatch(link);
    world_lookup_stop(world_of(link), &link->lookup);
    world_flusher_drop(&link->flusher);
    PQfinish(link->conn);
    link->conn = NULL;
    clear_targets(&link->targets);
}

/* Requests without a result go back to the front of those that wait; those of the link that listens
 * end with their connection, since the link starts again on the next one. */
static void take_back_sent(struct pg_link *link) {
    while (!list_empty(&link->sent)) {
        struct pg_request *last = container_of(link->sent.prev, struct pg_request, link);
        list_remove(&last->link);
        PQclear(last->result);
        last->result = NULL;
        if (last->answered && !link->listens)
            list_insert_before(link->waiting.next, &last->link);
        else
            give_back(link, last, NULL, NULL);
    }
}

static void end_overdue(struct pg_link *link, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    list_each_safe(node, &link->waiting) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (request->give_up_us <= now_us)
            give_back(link, request, NULL, why);
    }
}

static void refuse_unsent(struct pg_link *link, const char *why) {
    list_each_safe(node, &link->waiting) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (!request->sends)
            give_back(link, request, NULL, why);
    }
}

static void give_back_all(struct pg_link *link, const char *why) {
    struct pg_request *request;
    while ((request = first_of(&link->waiting)))
        give_back(link, request, NULL, why);
}

static void end_session(struct pg_link *link) {
    link->is_over = true;
    give_back_all(link, link->why);
    set_timer(link);
    link->ended(link);
}

static void break_link(struct pg_link *link, int reason, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    bool was_of_use = link->state == PG_READY && link->heard;
    char text[sizeof(link->why)];
    snprintf(text, sizeof(text), "%s", why ? why : "");
    text[strcspn(text, "\n")] = 0; /* libpq's further lines have more details */
    disconnect(link);
    snprintf(link->why, sizeof(link->why), "%s", text);
    link->state = PG_DOWN;
    if (link->listens)
        postgres_watch_lost(link->pg, link->why);
    link->reason = reason;
    take_back_sent(link);
    if (link->ended) {
        end_session(link);
        return;
    }
    if (was_of_use) {
        link->backoff.failures = 0;
        link->retry_at_us = now_us;
    } else {
        link->retry_at_us = now_us + net_backoff_us(&link->backoff, world_of(link));
        refuse_unsent(link, link->why);
    }
    end_overdue(link, link->why);
    set_timer(link); /* it opens again from there */
}

/* ---- Sending ---- */

/* Makes libpq send what it has buffered, and sets what to wait for. */
static void flush(struct pg_link *link) {
    int left = PQflush(link->conn);
    if (left < 0 ||
        world_watch_change(world_of(link), &link->watch, left ? EPOLLIN | EPOLLOUT : EPOLLIN) < 0)
        break_link(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
}

static bool add_sync(PGconn *conn) {
#ifdef LIBPQ_HAS_SEND_PIPELINE_SYNC
    return PQsendPipelineSync(conn); /* this leaves the sending to `flush` */
#else
    return PQpipelineSync(conn);
#endif
}

/* False: the connection is no longer usable. */
static bool send_request(struct pg_link *link, struct pg_request *request) {
    if (!PQsendQueryParams(link->conn, request->sql, request->count, NULL, request->values,
                           request->sizes, request->formats, 0) ||
        !add_sync(link->conn)) {
        break_link(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
        return false;
    }
    list_remove(&request->link);
    request->sends++;
    request->sent_us = world_now_us(world_of(link));
    list_append(&link->sent, &request->link);
    return true;
}

static const struct store_op *op_in_turn(const struct list *node) {
    const struct pg_request *request = container_of(node, struct pg_request, link);
    return request->shares ? request->op : NULL;
}

/* Puts one request in the place of several, if there is memory for it. */
static void combine(struct pg_link *link, struct list *requests, const struct pg_batch *type) {
    bool are_several = requests->next != requests->prev;
    struct pg_request *batch = are_several ? pg_batch_new(link->pg, type, requests) : NULL;
    if (batch)
        list_append(requests, &batch->link);
}

static void send_in_turn(struct pg_link *link, struct list *requests) {
    struct pg_request *request;
    while ((request = first_of(requests))) {
        list_remove(&request->link);
        list_append(&link->waiting, &request->link);
        request->shares = false;
        request->in_turn = true;
        link->in_turn++;
    }
}

/* Releases come first: they do not wait for the disk. */
static void begin_turn(struct pg_link *link) {
    struct sql_turn turn;
    sql_turn_take(&turn, &link->waiting, op_in_turn);
    combine(link, &turn.releases, &pg_release_batch);
    combine(link, &turn.acquires, &pg_acquire_batch);
    send_in_turn(link, &turn.alone);
    send_in_turn(link, &turn.releases);
    send_in_turn(link, &turn.acquires);
}

static void send_waiting(struct pg_link *link) {
    if (link->state == PG_READY && !link->in_turn)
        begin_turn(link);
    list_each_safe(node, &link->waiting) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (link->state != PG_READY || (!request->shares && !send_request(link, request)))
            return;
    }
}

static void flusher_called(struct world_flusher *flusher) {
    struct pg_link *link = container_of(flusher, struct pg_link, flusher);
    send_waiting(link);
    if (link->state == PG_READY)
        flush(link);
    set_timer(link);
}

/* Requests are sent at the next flush, with those that other threads submit until then. */
static void ask_to_send(struct pg_link *link) {
    if (link->state == PG_READY && !list_empty(&link->waiting))
        world_flusher_ask(world_of(link), &link->flusher);
}

/* ---- The greeting ---- */

#define ASK_VERSION(settings)                                                                    \
    "SELECT pg_backend_pid(), obj_description(to_regnamespace('holdfast'), 'pg_namespace'),"     \
    " (SELECT count(set_config(name, value, false)) FROM pg_settings JOIN (VALUES " settings ")" \
    " AS wanted (name, value) USING (name))"

/* The last column makes the server end a request whose client has gone: otherwise, if somebody else
 * keeps a row locked, each abandoned connection would leave a session behind. Servers before 14
 * cannot do this. */
#define CHECKS_CLIENT "('client_connection_check_interval', '1000')"
static const char ask_version[] = ASK_VERSION(CHECKS_CLIENT);

/* A session may wait for a row, and keep it, for any time; but not for a client that is gone. */
static const char ask_version_of_session[] =
    ASK_VERSION(CHECKS_CLIENT
                ", ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'),"
                " ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),"
                " ('tcp_keepalives_count', '3')");

static const char no_pooler[] =
    "scheme=for-update needs sessions of the server itself, and there is a pooler in between: name "
    "the server itself in the URL, or leave out scheme=for-update";

static void ready(struct pg_link *link) {
    if (!PQenterPipelineMode(link->conn)) {
        break_link(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
        return;
    }
    link->state = PG_READY;
    link->heard_us = world_now_us(world_of(link));
    if (link->listens)
        postgres_listen(link->pg);
    else if (link->was_ready)
        postgres_restored(link->pg);
    link->was_ready = true;
    ask_to_send(link);
}

static void ask(struct pg_link *link, const char *sql) {
    link->state = PG_GREETING;
    if (!PQsendQuery(link->conn, sql))
        break_link(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
    else
        flush(link);
}

static void ask_for_version(struct pg_link *link) {
    ask(link, link->ended ? ask_version_of_session : ask_version);
}

/* The version of the schema; 0: there is none; -1: something else has that name. */
static int version_in(const PGresult *result) {
    int version;
    if (PQgetisnull(result, 0, 1))
        return 0;
    return sscanf(PQgetvalue(result, 0, 1), "holdfast schema %d", &version) == 1 ? version : -1;
}

static void greeted(struct pg_link *link, const PGresult *result) {
    char why[sizeof(link->why)];
    if (!postgres_has_rows(result, 3) || PQntuples(result) != 1) {
        break_link(link, HF_BAD_STORE, "the server's answer makes no sense");
        return;
    }
    int version = version_in(result);
    /* A pooler makes up its own number for the connection. */
    link->pg->pooled = atoi(PQgetvalue(result, 0, 0)) != PQbackendPID(link->conn);
    if (link->pg->pooled && postgres_for_update(link->pg)) {
        break_link(link, HF_UNSUPPORTED, no_pooler);
        return;
    }
    bool complete = version == POSTGRES_SCHEMA && (!link->incomplete || link->created);
    if (complete || link->listens) {
        ready(link);
    } else if (version > POSTGRES_SCHEMA || version < 0) {
        snprintf(why, sizeof(why), "the schema \"holdfast\" is %s",
                 version < 0 ? "not that of holdfast" : "of a newer version of holdfast");
        break_link(link, HF_BAD_STORE, why);
    } else if (link->created) {
        break_link(link, HF_DENIED, link->why);
    } else {
        link->creating = link->created = true;
        ask(link, postgres_schema);
    }
}

/* After a failure the link asks for the version again, since another client may have made the
 * schema meanwhile, as another user. */
static void schema_made(struct pg_link *link, const PGresult *result) {
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        snprintf(link->why, sizeof(link->why), "cannot create the schema \"holdfast\": %s",
                 text ? text : "");
    }
}

static void next_greeting(struct pg_link *link) {
    PGresult *result;
    while (link->state == PG_GREETING && !PQisBusy(link->conn)) {
        result = PQgetResult(link->conn);
        if (!result && link->creating) {
            link->creating = false;
            ask_for_version(link);
            return;
        }
        if (!result)
            return;
        if (link->creating) {
            schema_made(link, result);
        } else if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            break_link(link, HF_UNREACHABLE, PQresultErrorMessage(result));
        } else {
            PGresult *end = PQgetResult(link->conn); /* it has come with the result */
            assert(!end);
            greeted(link, result);
        }
        PQclear(result);
    }
}

/* ---- Results ---- */

static bool is_one_of(const char *state, const char *states) {
    return *state && strstr(states, state);
}

void pg_link_try_again(struct pg_link *link, struct pg_request *request) {
    request->sends--;
    PQclear(request->result);
    request->result = NULL;
    list_insert_before(link->waiting.next, &request->link);
    ask_to_send(link);
}

static void answer_first(struct pg_link *link) {
    struct pg_request *request = first_of(&link->sent);
    const char *state = pg_sqlstate(request->result);
    bool conflicts = is_one_of(state, "40001 40P01");
    bool misses = is_one_of(state, "3F000 42883 42P01") && !link->incomplete && !link->listens;
    list_remove(&request->link);
    link->heard = true;
    link->incomplete = misses || (link->incomplete && *state);
    if (request->answered && (conflicts || misses))
        pg_link_try_again(link, request);
    else
        give_back(link, request, request->result, "the server's answer makes no sense");
    if (misses) /* somebody dropped it: the next connection makes it again */
        break_link(link, HF_BAD_STORE, "the schema \"holdfast\" is incomplete");
}

/* False: the connection is no longer usable. */
static bool take_result(struct pg_link *link, PGresult *result) {
    struct pg_request *request = first_of(&link->sent);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        answer_first(link);
        return true;
    }
    bool is_error = PQresultStatus(result) == PGRES_FATAL_ERROR;
    if (is_error && (!severity || strcmp(severity, "ERROR") != 0)) {
        link->was_ended |= severity != NULL;
        break_link(link, HF_UNREACHABLE, PQresultErrorMessage(result));
        PQclear(result);
        return false;
    }
    PQclear(request->result);
    request->result = result;
    return true;
}

static void take_results(struct pg_link *link) {
    bool ended = false; /* the results of one request end with one NULL */
    while (link->state == PG_READY && !list_empty(&link->sent) && !PQisBusy(link->conn)) {
        PGresult *result = PQgetResult(link->conn);
        if (!result && ended)
            break;
        ended = !result;
        if (result && !take_result(link, result))
            return;
    }
    PGnotify *notify;
    while (link->state == PG_READY && (notify = PQnotifies(link->conn))) {
        postgres_notified(link->pg, notify->relname, notify->extra);
        PQfreemem(notify);
    }
}

static void receive(struct pg_link *link) {
    link->heard_us = world_now_us(world_of(link));
    bool ok = PQconsumeInput(link->conn);
    if (ok && link->state == PG_GREETING)
        next_greeting(link);
    else if (link->state == PG_READY)
        take_results(link); /* also those that came before the end */
    if (link->state >= PG_GREETING && (!ok || PQstatus(link->conn) == CONNECTION_BAD))
        break_link(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
    else
        ask_to_send(link);
}

/* ---- Connecting ---- */

/* Without TLS that verifies the server, it connects only to this host and to private networks. */
static const char *sslmode_for(const struct pg_link *link, const struct pg_target *target) {
    const struct postgres *pg = link->pg;
    enum world_reach reach = WORLD_THIS_HOST;
    if (target->address)
        world_reach_of_text(target->address, &reach);
    bool is_checked = strncmp(pg->sslmode, "verify-", 7) == 0;
    if (reach != WORLD_PUBLIC || is_checked || pg->exposed)
        return pg->sslmode;
    return strcmp(pg->sslmode, "prefer") == 0 ? "verify-full" : NULL;
}

static bool is_fatal(const PGresult *result) {
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

/* By default libpq prints notices. The end of an idle session comes as one. */
static void take_notice(void *context, const PGresult *notice) {
    struct pg_link *link = context;
    link->was_ended |= is_fatal(notice);
}

static void connect_next(struct pg_link *link, int reason, const char *why);

static void start_connecting(struct pg_link *link) {
    const struct postgres *pg = link->pg;
    const struct pg_target *target = &link->targets.list[link->target];
    const char *sslmode = sslmode_for(link, target);
    const char *keys[PG_PARAMETERS_MAX], *values[PG_PARAMETERS_MAX];
    size_t n = 0;
    if (!sslmode) {
        connect_next(link, HF_BAD_URL,
                     "the server's address is public: use sslmode=verify-full, or "
                     "plaintext=yes if the path is safe");
        return;
    }
    for (; n < pg->parameter_count; n++) {
        keys[n] = pg->keys[n];
        values[n] = pg->values[n];
    }
    const char *own[][2] = {{"host", target->host},
                            {"hostaddr", target->address},
                            {"port", target->port},
                            {"sslmode", sslmode}};
    for (size_t i = 0; i < 4; i++) {
        keys[n] = own[i][0];
        values[n++] = own[i][1] ? own[i][1] : "";
    }
    keys[n] = NULL;
    values[n] = NULL;
    int64_t now_us = world_now_us(world_of(link));
    link->state = PG_CONNECTING;
    link->target_by_us =
        now_us + (link->connect_by_us - now_us) / (int64_t)(link->targets.count - link->target);
    link->conn = PQconnectStartParams(keys, values, 0);
    if (link->conn)
        PQsetNoticeReceiver(link->conn, take_notice, link);
    if (!link->conn)
        connect_next(link, HF_NO_MEMORY, NULL);
    else if (PQstatus(link->conn) == CONNECTION_BAD)
        connect_next(link, HF_UNREACHABLE, PQerrorMessage(link->conn));
    else if (watch_again(link, EPOLLOUT) < 0)
        connect_next(link, HF_SYSTEM, NULL);
}

/* The target failed: tries the next one, if there is one. */
static void connect_next(struct pg_link *link, int reason, const char *why) {
    if (link->target + 1 >= link->targets.count) {
        break_link(link, reason, why);
        return;
    }
    unwatch(link);
    PQfinish(link->conn);
    link->conn = NULL;
    link->target++;
    start_connecting(link);
}

/* libpq has no error codes for a failure to connect. What the server said, if it answered, is in
 * the text. */
static int reason_for(const char *why) {
    static const char *const denied[] = {"authentication failed", "no password supplied",
                                         "pg_hba.conf",           "does not exist",
                                         "permission denied",     "certificate"};
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
        if (strstr(why, denied[i]) && !strstr(why, "No such file"))
            return HF_DENIED;
    }
    return HF_UNREACHABLE;
}

static void go_on_connecting(struct pg_link *link) {
    PostgresPollingStatusType next = PQconnectPoll(link->conn);
    if (next == PGRES_POLLING_FAILED) {
        const char *why = PQerrorMessage(link->conn);
        connect_next(link, reason_for(why), why);
    } else if (watch_again(link, next == PGRES_POLLING_WRITING ? EPOLLOUT : EPOLLIN) < 0) {
        connect_next(link, HF_SYSTEM, NULL);
    } else if (next == PGRES_POLLING_OK) {
        PQsetnonblocking(link->conn, 1);
        link->heard = link->creating = link->created = false;
        ask_for_version(link);
    }
}

static void watch_ready(struct world_watch *watch, uint32_t events) {
    struct pg_link *link = container_of(watch, struct pg_link, watch);
    if (link->state == PG_CONNECTING) {
        go_on_connecting(link);
    } else {
        if (events & EPOLLOUT)
            flush(link);
        if (link->state >= PG_GREETING)
            receive(link);
    }
    set_timer(link);
}

/* ---- Searching ---- */

static bool add_target(struct pg_link *link, const struct pg_target *host, const char *address) {
    struct pg_targets *targets = &link->targets;
    if (targets->count == targets->room) {
        size_t room = targets->room ? targets->room * 2 : 4;
        struct pg_target *list = realloc(targets->list, room * sizeof(*list));
        if (!list)
            return false;
        targets->list = list;
        targets->room = room;
    }
    struct pg_target *target = &targets->list[targets->count];
    *target = (struct pg_target){.host = strdup(host->host), .port = strdup(host->port)};
    if (address)
        target->address = strdup(address);
    targets->count++;
    return target->host && target->port && (!address || target->address);
}

static bool is_name(const struct pg_target *host) {
    enum world_reach reach;
    return !host->address && host->host[0] && host->host[0] != '/' && host->host[0] != '@' &&
           !world_reach_of_text(host->host, &reach);
}

/* Collects the addresses of all hosts, one name after the other. */
static void search(struct pg_link *link) {
    struct postgres *pg = link->pg;
    enum world_reach reach;
    for (; link->host < pg->host_count; link->host++) {
        const struct pg_target *host = &pg->hosts[link->host];
        if (is_name(host)) {
            int64_t left_us = link->connect_by_us - world_now_us(world_of(link));
            int r =
                world_look_up(world_of(link), &link->lookup, host->host, left_us > 1 ? left_us : 1);
            if (r < 0)
                break_link(link, r, NULL);
            return;
        }
        bool is_address = !host->address && world_reach_of_text(host->host, &reach);
        if (!add_target(link, host, is_address ? host->host : host->address)) {
            break_link(link, HF_NO_MEMORY, NULL);
            return;
        }
    }
    if (link->targets.count)
        start_connecting(link);
    else
        break_link(link, HF_UNREACHABLE, link->why);
}

static void looked_up(struct world_lookup *lookup, const char *const *addresses, size_t count,
                      const char *why) {
    struct pg_link *link = container_of(lookup, struct pg_link, lookup);
    const struct pg_target *host = &link->pg->hosts[link->host++];
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = add_target(link, host, addresses[i]);
    if (!count)
        snprintf(link->why, sizeof(link->why), "%s: %s", host->host, why);
    if (ok)
        search(link);
    else
        break_link(link, HF_NO_MEMORY, NULL);
    set_timer(link);
}

/* ---- The entry points ---- */

void pg_link_want(struct pg_link *link) {
    int64_t now_us = world_now_us(world_of(link));
    bool wanted = link->wanted || !list_empty(&link->waiting);
    if (link->state == PG_DOWN && wanted && !link->is_over && link->retry_at_us <= now_us) {
        link->state = PG_SEARCHING;
        link->connect_by_us =
            now_us + link->pg->connect_timeout_us * (link->listens ? SQL_LISTENER_PATIENCE : 1);
        link->host = link->target = 0;
        search(link);
    }
    set_timer(link);
}

void pg_link_submit(struct pg_link *link, struct pg_request *request) {
    assert(!link->is_over);
    list_append(&link->waiting, &request->link);
    ask_to_send(link);
    pg_link_want(link);
}

static void ping_answered(struct postgres *pg, struct pg_request *request, const PGresult *result,
                          const char *why) {
    (void)pg, (void)request, (void)result, (void)why;
}

/* Abandons requests that were sent and whose time is over; they keep their places. */
static void give_up_overdue(struct pg_link *link, int64_t now_us, const char *why) {
    list_each(node, &link->sent) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (!request->answered || request->give_up_us > now_us)
            continue;
        request->reason = HF_UNREACHABLE;
        request->answered(link->pg, request, NULL, why);
        request->answered = NULL;
    }
}

static void timer_due(struct world_timer *timer) {
    struct pg_link *link = container_of(timer, struct pg_link, timer);
    struct postgres *pg = link->pg;
    int64_t now_us = world_now_us(world_of(link));
    struct pg_request *sent = first_of(&link->sent);
    char why[80 + sizeof(link->why)];
    snprintf(why, sizeof(why), "no answer within %lld ms%s%s", (long long)(pg->timeout_us / 1000),
             link->why[0] ? ": " : "", link->why);
    if (link->state == PG_CONNECTING && link->target_by_us <= now_us)
        connect_next(link, HF_UNREACHABLE, "no answer in time to connect");
    else if ((link->state == PG_SEARCHING || link->state == PG_GREETING) &&
             link->connect_by_us <= now_us)
        break_link(link, HF_UNREACHABLE, "no answer in time to connect");
    else if (sent && !link->ended && sent->sent_us + pg->timeout_us <= now_us)
        break_link(link, HF_UNREACHABLE, why);
    else
        give_up_overdue(link, now_us, why);
    end_overdue(link, why);
    if (link->state == PG_READY && link->wanted && list_empty(&link->sent) &&
        link->heard_us + PING_US <= now_us) {
        struct pg_request *ping = pg_request_new(pg, NULL, ping_answered, "SELECT 1", "");
        link->heard_us = now_us;
        if (ping)
            pg_link_submit(link, ping);
    }
    pg_link_want(link);
}

int pg_link_init(struct pg_link *link, struct postgres *pg) {
    link->pg = pg;
    link->reason = HF_UNREACHABLE;
    link->watch.fn = watch_ready;
    link->lookup.done = looked_up;
    list_init(&link->waiting);
    list_init(&link->sent);
    world_flusher_init(&link->flusher, flusher_called);
    return world_timer_add(pg->host->world, &link->timer, timer_due);
}

/* Sends the releases that wait for their turn now: nobody will ask again. */
static void send_releases(struct pg_link *link) {
    list_each(node, &link->waiting) {
        struct pg_request *request = container_of(node, struct pg_request, link);
        if (request->shares && request->op->type == STORE_RELEASE)
            request->shares = false;
    }
    send_waiting(link);
    if (link->state == PG_READY)
        flush(link);
}

void pg_link_close(struct pg_link *link) {
    if (link->state == PG_READY && !link->ended)
        send_releases(link);
    disconnect(link);
    link->state = PG_DOWN;
    take_back_sent(link);
    give_back_all(link, "the client was closed");
    world_timer_drop(world_of(link), &link->timer);
}
