/* Design notes.
 *
 * States: DOWN → CONNECTING → LOGIN → GREETING (the session is prepared, the schema is found or
 * made) → READY, and from each back to DOWN. Connections are abandoned, and requests returned, as
 * in the link of the Redis store: a link that loses a connection that has been useful tries again
 * at once; otherwise it waits first. A request that was never sent is refused as soon as connecting
 * fails. A connection is abandoned when a request has waited on it for the whole timeout; a request
 * that is abandoned earlier keeps its place, so that results still match requests.
 *
 * With TLS, the server's first packet comes before the handshake, and nothing relies on its
 * contents: the login is sent only when the certificate has been verified.
 *
 * mysql.c says what an error means. An error that may leave a transaction open ends the connection,
 * which makes the server roll it back: until then nobody else could use the name. */
#include "store/mysql/link.h"

#include "base/error.h"
#include "store/mysql/batch.h"
#include "store/mysql/mysql.h"
#include "store/sql/sql.h"
#include "store/sql/turn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CREATE_US = 30000000, COM_QUERY = 3 };

static struct world *world_of(const struct my_link *link) {
    return link->my->host->world;
}

/* ---- Requests ---- */

struct my_request *my_request_new(struct mysql *my, struct store_op *op, my_answered *answered,
                                  char *sql) {
    struct my_request *request = sql ? calloc(1, sizeof(*request)) : NULL;
    if (!request) {
        free(sql);
        return NULL;
    }
    list_init(&request->link);
    list_init(&request->members);
    request->op = op;
    request->answered = answered;
    request->sql = sql;
    request->procedure = -1;
    request->give_up_us = world_now_us(my->host->world) + my->timeout_us;
    return request;
}

void my_request_free(struct my_request *request) {
    assert(list_empty(&request->members));
    list_remove(&request->link);
    free(request->sql);
    free(request);
}

static struct my_request *first_of(struct list *list) {
    return list_empty(list) ? NULL : container_of(list->next, struct my_request, link);
}

void my_request_end(struct mysql *my, struct my_request *request, const struct my_result *result,
                    int reason, const char *why) {
    list_remove(&request->link);
    request->reason = reason;
    if (request->answered)
        request->answered(my, request, result, why);
    my_request_free(request);
}

static void give_back(struct my_link *link, struct my_request *request,
                      const struct my_result *result, const char *why) {
    link->in_turn -= request->in_turn;
    my_request_end(link->my, request, result, link->reason, why);
}

/* ---- Time ---- */

static int64_t earliest(int64_t a_us, int64_t b_us) {
    return a_us < b_us ? a_us : b_us;
}

static int64_t first_give_up_us(struct list *requests) {
    int64_t at_us = WORLD_NEVER;
    list_each(node, requests) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (request->answered)
            at_us = earliest(at_us, request->give_up_us);
        if (request->answered && request->sends <= 1)
            break; /* those after it came later */
    }
    return at_us;
}

/* When the connection is abandoned if no answer comes. */
static int64_t silent_us(const struct my_link *link, const struct my_request *sent) {
    return sent->sent_us + link->my->timeout_us + sent->patience_us;
}

static void set_timer(struct my_link *link) {
    struct my_request *sent = first_of(&link->sent);
    int64_t at_us = first_give_up_us(&link->waiting);
    if (sent)
        at_us = earliest(at_us, first_give_up_us(&link->sent));
    if (sent && !link->ended)
        at_us = earliest(at_us, silent_us(link, sent));
    if (link->state == MY_DOWN && !link->is_over && (link->wanted || !list_empty(&link->waiting)))
        at_us = earliest(at_us, link->retry_at_us);
    if (link->state == MY_LOGIN || link->state == MY_GREETING)
        at_us = earliest(at_us, link->connect_by_us);
    if (at_us == WORLD_NEVER)
        world_timer_clear(world_of(link), &link->timer);
    else if (!link->timer.node.place || at_us < link->timer.node.at)
        world_timer_set(world_of(link), &link->timer, at_us);
}

/* ---- Down ---- */

/* Requests without a result go back to the front of those that wait. Those of the listener belong
 * to their session. */
static void take_back_sent(struct my_link *link) {
    while (!list_empty(&link->sent)) {
        struct my_request *last = container_of(link->sent.prev, struct my_request, link);
        list_remove(&last->link);
        if (last->answered && !link->listens) {
            list_insert_before(link->waiting.next, &last->link);
        } else {
            link->in_turn -= last->in_turn;
            my_request_free(last);
        }
    }
}

static void end_overdue(struct my_link *link, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    list_each_safe(node, &link->waiting) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (request->give_up_us <= now_us)
            give_back(link, request, NULL, why);
    }
}

static void refuse_unsent(struct my_link *link, const char *why) {
    list_each_safe(node, &link->waiting) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (!request->sends)
            give_back(link, request, NULL, why);
    }
}

static void give_back_all(struct my_link *link, const char *why) {
    struct my_request *request;
    while ((request = first_of(&link->waiting)))
        give_back(link, request, NULL, why);
}

static void end_session(struct my_link *link) {
    link->is_over = true;
    give_back_all(link, link->why);
    set_timer(link);
    link->ended(link);
}

static void went_down(struct my_link *link, int reason, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    bool was_of_use = link->state == MY_READY && link->heard;
    char text[sizeof(link->why)];
    snprintf(text, sizeof(text), "%s", why ? why : ""); /* it may be link->why */
    memcpy(link->why, text, sizeof(text));
    link->state = MY_DOWN;
    link->reason = reason;
    my_reader_clear(&link->reader);
    my_result_clear(&link->answer.result);
    link->answer = (struct my_answer){0};
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

void my_link_break(struct my_link *link, int reason, const char *why) {
    net_wire_close(&link->wire);
    went_down(link, reason, why);
}

/* ---- Sending ---- */

/* False: no memory; then nothing was sent. */
static bool send_query(struct my_link *link, const char *sql, size_t size) {
    char *packet = malloc(MY_HEADER + 1 + size);
    if (!packet)
        return false;
    my_write_header(packet, size + 1, 0);
    packet[MY_HEADER] = COM_QUERY;
    memcpy(packet + MY_HEADER + 1, sql, size);
    bool ok = net_wire_send(&link->wire, packet, MY_HEADER + 1 + size) == HF_OK;
    free(packet);
    return ok;
}

static bool send_request(struct my_link *link, const struct my_request *request) {
    if (request->procedure < 0)
        return send_query(link, request->sql, strlen(request->sql));
    char *sql = mysql_write_call(link->my, request->procedure, request->sql);
    bool ok = sql && send_query(link, sql, strlen(sql));
    free(sql);
    return ok;
}

static const struct store_op *op_in_turn(const struct list *node) {
    const struct my_request *request = container_of(node, struct my_request, link);
    return request->shares ? request->op : NULL;
}

/* Puts one request in the place of several, if there is memory for it. */
static void combine(struct my_link *link, struct list *requests, const struct my_batch *type) {
    bool are_several = requests->next != requests->prev;
    struct my_request *batch = are_several ? my_batch_new(link->my, type, requests) : NULL;
    if (batch)
        list_append(requests, &batch->link);
}

static void send_in_turn(struct my_link *link, struct list *requests) {
    struct my_request *request;
    while ((request = first_of(requests))) {
        list_remove(&request->link);
        list_append(&link->waiting, &request->link);
        request->shares = false;
        request->in_turn = true;
        link->in_turn++;
    }
}

static void begin_turn(struct my_link *link) {
    struct sql_turn turn;
    sql_turn_take(&turn, &link->waiting, op_in_turn);
    combine(link, &turn.releases, &my_release_batch);
    combine(link, &turn.acquires, &my_acquire_batch);
    send_in_turn(link, &turn.alone);
    send_in_turn(link, &turn.releases);
    send_in_turn(link, &turn.acquires);
}

static void send_waiting(struct my_link *link) {
    if (link->state == MY_READY && !link->in_turn)
        begin_turn(link);
    list_each_safe(node, &link->waiting) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (link->state != MY_READY || request->shares)
            continue;
        if (!send_request(link, request)) {
            link->reason = HF_NO_MEMORY;
            give_back(link, request, NULL, NULL);
            continue;
        }
        list_remove(&request->link);
        request->sends++;
        request->sent_us = world_now_us(world_of(link));
        list_append(&link->sent, &request->link);
    }
}

static void flusher_called(struct world_flusher *flusher) {
    struct my_link *link = container_of(flusher, struct my_link, flusher);
    send_waiting(link);
    set_timer(link);
}

/* Requests are sent at the next flush, with those that other threads submit until then. Those of
 * the listener belong to this session, and are sent at once. */
static void ask_to_send(struct my_link *link) {
    if (link->listens)
        send_waiting(link);
    else if (link->state == MY_READY && !list_empty(&link->waiting))
        world_flusher_ask(world_of(link), &link->flusher);
}

/* ---- The greeting ---- */

enum { SESSION, TURN, CREATE, CHECK };

#define ASK_VERSION                                                                   \
    "SELECT (SELECT table_comment FROM information_schema.tables"                     \
    " WHERE table_schema = DATABASE() AND table_name = 'holdfast_locks'), VERSION()," \
    " CAST(@@global.read_only AS CHAR), CONNECTION_ID()"
enum { COMMENT, READ_ONLY = 2, SESSION_NUMBER, VERSION_COLUMNS };
#define TURN_LOCK "CONCAT('holdfast.', MD5(DATABASE()))"

static void ask(struct my_link *link, int step, const char *sql, size_t size) {
    link->state = MY_GREETING;
    link->step = step;
    if (!send_query(link, sql, size))
        my_link_break(link, HF_NO_MEMORY, NULL);
}

/* A session that waits for a row, or keeps it, owns a user lock by which others find it. Nothing
 * that an administrator has set for idle transactions or long statements ends it. */
#define LASTING                                                                   \
    "SET SESSION wait_timeout = 28800 /*M!, idle_transaction_timeout = 0,"        \
    " idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0," \
    " max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */;"            \
    "DO GET_LOCK(CONCAT('holdfast.%s.', CONNECTION_ID()), 0);"

static const char no_proxy[] =
    "scheme=for-update needs sessions of the server itself, and there is a proxy in between: name "
    "the server itself in the URL, or leave out scheme=for-update";

/* A statement waits for a lock no longer than the client waits for its answer. So a session whose
 * client has gone does not keep waiting for another client to release a lock. */
static void prepare_session(struct my_link *link) {
    char sql[2048], lasting[512] = "";
    int seconds = (int)((link->my->timeout_us + 999999) / 1000000);
    if (link->ended)
        snprintf(lasting, sizeof(lasting), LASTING, link->my->client);
    int size = snprintf(sql, sizeof(sql),
                        "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES',"
                        " innodb_lock_wait_timeout = %d, lock_wait_timeout = %d,"
                        " group_concat_max_len = 100000;"
                        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;%s" ASK_VERSION,
                        seconds, seconds, lasting);
    ask(link, SESSION, sql, (size_t)size);
}

static void ready(struct my_link *link) {
    link->state = MY_READY;
    link->heard = false;
    if (link->listens)
        mysql_listen(link->my);
    ask_to_send(link);
}

/* The version of the schema; 0: there is none; -1: something else has that name. */
static int version_in(const struct my_result *result) {
    int version;
    if (my_is_null(result, 0, COMMENT) || !*my_value(result, 0, COMMENT))
        return 0;
    return sscanf(my_value(result, 0, COMMENT), "holdfast schema %d", &version) == 1 ? version : -1;
}

/* Lets the next client make the schema, and asks whether it is complete. */
static void end_turn(struct my_link *link) {
    static const char done[] = "DO RELEASE_LOCK(" TURN_LOCK ");" ASK_VERSION;
    ask(link, CHECK, done, sizeof(done) - 1);
}

/* Sends the next statement of the schema. One client at a time makes it. */
static void create_next(struct my_link *link) {
    const char *statement = link->statement, *end = strstr(statement, "\n//\n");
    if (!end) {
        end_turn(link);
        return;
    }
    link->statement = end + 4;
    ask(link, CREATE, statement, (size_t)(end - statement));
}

static bool is_read_only(const struct my_result *result) {
    const char *value = my_value(result, 0, READ_ONLY);
    return strcmp(value, "0") != 0 && strcmp(value, "OFF") != 0;
}

/* A proxy makes up its own number for the connection. */
static bool has_proxy(const struct my_link *link, const struct my_result *result) {
    return (uint32_t)my_number(result, 0, SESSION_NUMBER) != link->greeting.session;
}

static void read_version(struct my_link *link, const struct my_result *result) {
    static const char turn[] = "DO GET_LOCK(" TURN_LOCK ", 20);" ASK_VERSION;
    int version = version_in(result);
    char why[sizeof(link->why)];
    bool complete = version == MYSQL_SCHEMA && (!link->incomplete || link->step == CHECK);
    if (is_read_only(result)) {
        my_link_break(link, HF_UNREACHABLE,
                      "the server is read only, or a replica, and takes no locks");
    } else if (mysql_for_update(link->my) && has_proxy(link, result)) {
        my_link_break(link, HF_UNSUPPORTED, no_proxy);
    } else if (complete && link->step == TURN) { /* another client was first */
        end_turn(link);
    } else if (complete || link->listens) {
        ready(link);
    } else if (version > MYSQL_SCHEMA || version < 0) {
        snprintf(why, sizeof(why), "the table \"holdfast_locks\" is %s",
                 version < 0 ? "not that of holdfast" : "of a newer version of holdfast");
        my_link_break(link, HF_BAD_STORE, why);
    } else if (link->step == SESSION) {
        link->connect_by_us = world_now_us(world_of(link)) + CREATE_US;
        ask(link, TURN, turn, sizeof(turn) - 1);
    } else if (link->step == TURN) {
        link->statement = mysql_schema;
        create_next(link);
    } else {
        my_link_break(link, HF_DENIED, link->why);
    }
}

/* Whether the schema is complete is decided at the end: another client may have made a part of it,
 * and MariaDB can do without the procedures (statement.c). */
static void schema_made(struct my_link *link, const struct my_result *result) {
    if (result->error)
        snprintf(link->why, sizeof(link->why), "cannot create the schema: %s", result->text);
    create_next(link);
}

static void answered_greeting(struct my_link *link, const struct my_result *result) {
    char why[sizeof(link->why)];
    if (link->step == CREATE) {
        schema_made(link, result);
    } else if (!result->error && result->columns == VERSION_COLUMNS && result->rows == 1) {
        read_version(link, result);
    } else {
        snprintf(why, sizeof(why), "%s",
                 result->error ? result->text : "the server's answer makes no sense");
        my_link_break(link, result->error ? HF_UNREACHABLE : HF_BAD_STORE, why);
    }
}

/* ---- Results ---- */

/* The request was not done, and can be tried again. */
static void try_again(struct my_link *link, struct my_request *request) {
    request->sends--;
    list_insert_before(link->waiting.next, &request->link);
}

static void answered(struct my_link *link, const struct my_result *result) {
    struct my_request *request = first_of(&link->sent);
    enum my_fault fault = mysql_fault_of(result->error);
    bool misses = fault == MY_NO_TABLE && !link->incomplete;
    bool in_full =
        fault == MY_NO_PROCEDURE && request->procedure >= 0 && mysql_spells_out(link->my);
    char why[sizeof(result->text)];
    snprintf(why, sizeof(why), "%s", result->text);
    list_remove(&request->link);
    link->heard = true;
    if (link->listens || link->ended) {
        give_back(link, request, result, NULL);
        return;
    }
    link->incomplete = misses || (link->incomplete && result->error);
    if (request->answered && (fault == MY_CONFLICT || misses || in_full))
        try_again(link, request);
    else
        give_back(link, request, result, "the server's answer makes no sense");
    if (misses) /* somebody dropped it: the next connection makes it again */
        my_link_break(link, HF_BAD_STORE, "a table of holdfast is missing");
    else if (fault == MY_UNCLEAR)
        my_link_break(link, HF_UNREACHABLE, why);
}

/* False: the connection is no longer usable. */
static bool take_answer(struct my_link *link, const struct my_packet *packet) {
    enum my_step step = my_answer_take(&link->answer, packet);
    if (step == MY_GOES_ON)
        return true;
    struct my_result result = link->answer.result;
    link->answer = (struct my_answer){0};
    bool expected = link->state == MY_GREETING || !list_empty(&link->sent);
    if (step == MY_NO_MEMORY)
        my_link_break(link, HF_NO_MEMORY, NULL);
    else if (step == MY_BROKEN || !expected)
        my_link_break(link, HF_UNREACHABLE,
                      result.error ? result.text : "the server does not speak MySQL's protocol");
    else if (link->state == MY_GREETING)
        answered_greeting(link, &result);
    else
        answered(link, &result);
    my_result_clear(&result);
    return link->state >= MY_GREETING;
}

/* ---- The login ---- */

static void send_packet(struct my_link *link, const void *content, size_t size) {
    char header[MY_HEADER];
    my_write_header(header, size, link->number);
    if (net_wire_send(&link->wire, header, sizeof(header)) < 0 ||
        (size && net_wire_send(&link->wire, content, size) < 0))
        my_link_break(link, HF_NO_MEMORY, NULL);
}

static void refuse_plugin(struct my_link *link) {
    char why[sizeof(link->why)];
    snprintf(why, sizeof(why),
             "the server wants the user to log in with \"%s\", which holdfast does not know; "
             "mysql_native_password, caching_sha2_password and unix_socket work",
             link->greeting.plugin);
    my_link_break(link, HF_DENIED, why);
}

static void send_login(struct my_link *link) {
    const struct mysql *my = link->my;
    uint8_t proof[MY_PROOF_MAX];
    size_t size;
    /* An unknown plugin may only be the default for other users: the server will tell us. */
    int proof_size =
        my_prove(link->greeting.plugin, my->login.password, link->greeting.nonce, proof);
    char *packet = my_write_login(
        &link->greeting, my_capabilities(&link->greeting, my->security.tls), link->number,
        my->login.user, my->database, proof, proof_size < 0 ? 0 : (size_t)proof_size, &size);
    if (!packet || net_wire_send(&link->wire, packet, size) < 0)
        my_link_break(link, HF_NO_MEMORY, NULL);
    free(packet);
}

static bool take_greeting(struct my_link *link, const struct my_packet *packet) {
    struct my_result error = {0};
    if (packet->size && packet->bytes[0] == 0xff) { /* too many connections, for example */
        my_read_error(packet, &error);
        my_link_break(link, HF_UNREACHABLE, error.text);
        return false;
    }
    if (!my_read_greeting(packet, &link->greeting)) {
        my_link_break(link, HF_UNREACHABLE, "the server does not speak MySQL's protocol");
        return false;
    }
    link->greeted = true;
    link->number = (uint8_t)(packet->number + 1);
    return true;
}

/* The proof was not enough: the server wants the password itself. */
static void send_password(struct my_link *link) {
    const struct mysql *my = link->my;
    if (my->security.tls || my->peer.path)
        send_packet(link, my->login.password, strlen(my->login.password) + 1);
    else
        my_link_break(link, HF_DENIED,
                      "the server asks for the password itself, which is not sent without TLS");
}

static void take_login_answer(struct my_link *link, const struct my_packet *packet) {
    const struct mysql *my = link->my;
    uint8_t kind = packet->size ? packet->bytes[0] : 0xff, proof[MY_PROOF_MAX];
    struct my_result error = {0};
    link->number = (uint8_t)(packet->number + 1);
    if (kind == 0x00) {
        prepare_session(link);
    } else if (kind == 0x01 && packet->size == 2 && packet->bytes[1] == 3) {
        return; /* the proof was enough, and the answer follows */
    } else if (kind == 0x01 && packet->size == 2 && packet->bytes[1] == 4 && my->login.password) {
        send_password(link);
    } else if (kind == 0xfe && my_read_switch(packet, &link->greeting)) {
        int size = my_prove(link->greeting.plugin, my->login.password, link->greeting.nonce, proof);
        if (size < 0)
            refuse_plugin(link);
        else
            send_packet(link, proof, (size_t)size);
    } else {
        my_read_error(packet, &error);
        my_link_break(link, mysql_is_denied(error.error) ? HF_DENIED : HF_UNREACHABLE, error.text);
    }
}

/* ---- Events of the wire ---- */

static void take_packet(struct my_link *link, const struct my_packet *packet) {
    if (link->state >= MY_GREETING)
        take_answer(link, packet);
    else if (link->greeted)
        take_login_answer(link, packet);
    else if (take_greeting(link, packet))
        send_login(link);
}

static void wire_received(struct net_wire *wire, const char *bytes, size_t size) {
    struct my_link *link = container_of(wire, struct my_link, wire);
    struct my_packet packet;
    enum my_next next = MY_NONE;
    if (!my_reader_feed(&link->reader, bytes, size)) {
        my_link_break(link, HF_NO_MEMORY, NULL);
        return;
    }
    while (link->state >= MY_LOGIN && (next = my_reader_next(&link->reader, &packet)) == MY_PACKET)
        take_packet(link, &packet);
    if (link->state >= MY_LOGIN && next == MY_BAD_PACKET)
        my_link_break(link, HF_UNREACHABLE, "the server's answer is too long");
    ask_to_send(link);
    set_timer(link);
}

/* Nothing else is accepted before TLS: an attacker on the path could have inserted it. */
static void wire_before_tls(struct net_wire *wire, const char *bytes, size_t size) {
    struct my_link *link = container_of(wire, struct my_link, wire);
    struct my_packet packet;
    uint8_t request[MY_TLS_REQUEST_SIZE];
    if (!my_reader_feed(&link->reader, bytes, size)) {
        my_link_break(link, HF_NO_MEMORY, NULL);
        return;
    }
    if (my_reader_next(&link->reader, &packet) != MY_PACKET || !take_greeting(link, &packet))
        return;
    if (link->reader.at != link->reader.size || !my_offers_tls(&link->greeting)) {
        my_link_break(link, HF_UNREACHABLE, "the server does not offer TLS");
        return;
    }
    my_write_tls_request(my_capabilities(&link->greeting, true), link->number++, request);
    net_wire_start_tls(wire, request, sizeof(request));
}

static void wire_opened(struct net_wire *wire) {
    struct my_link *link = container_of(wire, struct my_link, wire);
    link->state = MY_LOGIN;
    if (link->greeted) /* before TLS */
        send_login(link);
    set_timer(link);
}

static void wire_closed(struct net_wire *wire, int reason, const char *why) {
    went_down(container_of(wire, struct my_link, wire), reason, why);
}

static const struct net_wire_events events = {wire_opened, wire_received, wire_closed,
                                              wire_before_tls};

/* ---- The entry points ---- */

void my_link_want(struct my_link *link) {
    int64_t now_us = world_now_us(world_of(link));
    bool wanted = link->wanted || !list_empty(&link->waiting);
    if (link->state == MY_DOWN && wanted && !link->is_over && link->retry_at_us <= now_us) {
        int r = net_wire_open(&link->wire);
        link->reason = r < 0 ? r : HF_UNREACHABLE;
        link->connect_by_us =
            now_us + link->my->peer.timeout_us * (link->listens ? SQL_LISTENER_PATIENCE : 1);
        link->greeted = false;
        if (!r) {
            link->state = MY_CONNECTING;
        } else if (link->ended) {
            end_session(link);
        } else {
            link->retry_at_us = now_us + net_backoff_us(&link->backoff, world_of(link));
            refuse_unsent(link, NULL);
        }
    }
    set_timer(link);
}

void my_link_submit(struct my_link *link, struct my_request *request) {
    list_append(&link->waiting, &request->link);
    ask_to_send(link);
    my_link_want(link);
}

void my_link_submit_first(struct my_link *link, struct my_request *request) {
    list_insert_before(link->waiting.next, &request->link);
    ask_to_send(link);
}

/* Abandons requests that were sent and whose time is over; they keep their places. */
static void give_up_overdue(struct my_link *link, int64_t now_us, const char *why) {
    list_each(node, &link->sent) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (!request->answered || request->give_up_us > now_us)
            continue;
        request->reason = HF_UNREACHABLE;
        request->answered(link->my, request, NULL, why);
        request->answered = NULL;
    }
}

static void timer_due(struct world_timer *timer) {
    struct my_link *link = container_of(timer, struct my_link, timer);
    int64_t now_us = world_now_us(world_of(link));
    struct my_request *sent = first_of(&link->sent);
    char why[80 + sizeof(link->why)];
    snprintf(why, sizeof(why), "no answer within %lld ms%s%s",
             (long long)(link->my->timeout_us / 1000), link->why[0] ? ": " : "", link->why);
    if ((link->state == MY_LOGIN || link->state == MY_GREETING) && link->connect_by_us <= now_us)
        my_link_break(link, HF_UNREACHABLE, "no answer in time to connect");
    else if (sent && !link->ended && silent_us(link, sent) <= now_us)
        my_link_break(link, HF_UNREACHABLE, why);
    else
        give_up_overdue(link, now_us, why);
    end_overdue(link, why);
    my_link_want(link);
}

int my_link_init(struct my_link *link, struct mysql *my) {
    link->my = my;
    link->reason = HF_UNREACHABLE;
    list_init(&link->waiting);
    list_init(&link->sent);
    world_flusher_init(&link->flusher, flusher_called);
    int r = net_wire_init(&link->wire, my->host->world, &my->peer, &my->security, &events);
    if (r < 0)
        return r;
    r = world_timer_add(my->host->world, &link->timer, timer_due);
    if (r < 0)
        net_wire_drop(&link->wire);
    return r;
}

/* Sends the releases that wait for their turn now: nobody will ask again. */
static void send_releases(struct my_link *link) {
    list_each(node, &link->waiting) {
        struct my_request *request = container_of(node, struct my_request, link);
        if (request->shares && request->op->type == STORE_RELEASE)
            request->shares = false;
    }
    send_waiting(link);
    world_flush(world_of(link));
}

void my_link_close(struct my_link *link) {
    if (link->state == MY_READY && !link->ended)
        send_releases(link);
    net_wire_drop(&link->wire);
    world_flusher_drop(&link->flusher);
    link->state = MY_DOWN;
    take_back_sent(link);
    give_back_all(link, "the client was closed");
    my_reader_clear(&link->reader);
    my_result_clear(&link->answer.result);
    world_timer_drop(world_of(link), &link->timer);
}
