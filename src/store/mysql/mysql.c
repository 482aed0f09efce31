/* The store: its URL, opening and closing, and what the server's errors mean.
 *
 *    mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?OPTIONS]         mariadb:// is the same
 *    mysqls://...                                                   over TLS; mariadbs:// too
 *    mysql://USER@/DATABASE?socket=PATH
 *
 * Options are timeout and connect_timeout in ms, password_file, password_env and password_fd,
 * scheme, and those of net/security.h.
 *
 * A client has two links: commands, and the listener, whose session waits until it is woken
 * (listen.c). With scheme=for-update there is a link for each hold instead (sessions.c). */
#include "store/mysql/mysql.h"

#include "base/error.h"
#include "base/url.h"
#include "net/options.h"
#include "store/mysql/capabilities.h"
#include "store/sql/sql.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 3306, DEFAULT_TIMEOUT_MS = 2000, TIMEOUT_MAX_MS = 3600000 };

/* ---- Requests ---- */

void mysql_send(struct mysql *my, struct my_request *request, struct store_op *op) {
    if (request)
        my_link_submit(&my->commands, request);
    else
        store_refuse(my->host, op, HF_NO_MEMORY, NULL);
}

/* What the server's errors mean. With all of these, the request was rolled back. Any other error
 * proves nothing: it may come from a statement after the commit. */
static const struct {
    unsigned error;
    enum my_fault fault;
    int reason;
    const char *text; /* NULL: the server's own */
} errors[] = {
    {1205, MY_CONFLICT, 0, NULL}, /* a row was locked for too long */
    {1213, MY_CONFLICT, 0, NULL}, /* a deadlock, which Galera also reports for other reasons */
    {1146, MY_NO_TABLE, HF_BAD_STORE, NULL},
    {1305, MY_NO_PROCEDURE, HF_DENIED,
     "the procedures of holdfast are missing: let an "
     "administrator run `holdfast schema --dialect mysql`"},
    {1370, MY_NO_PROCEDURE, HF_DENIED, NULL}, /* EXECUTE */
    {1044, MY_REFUSED, HF_DENIED, NULL},      /* to a database */
    {1045, MY_REFUSED, HF_DENIED, NULL},      /* the login */
    {1049, MY_REFUSED, HF_DENIED, NULL},      /* no such database */
    {1130, MY_REFUSED, HF_DENIED, NULL},      /* from this host */
    {1142, MY_REFUSED, HF_DENIED, NULL},      /* to a table */
    {1143, MY_REFUSED, HF_DENIED, NULL},      /* to a column */
    {1227, MY_REFUSED, HF_DENIED, NULL},
    {1698, MY_REFUSED, HF_DENIED, NULL}, /* the login */
    {1290, MY_REFUSED, HF_UNREACHABLE, "the server is read only, or a replica, and takes no locks"},
    {1792, MY_REFUSED, HF_UNREACHABLE, "the session is read only, and takes no locks"},
    {1836, MY_REFUSED, HF_UNREACHABLE, "the server is read only, and takes no locks"},
    {1047, MY_REFUSED, HF_UNREACHABLE, NULL}, /* a node that is not part of its cluster */
    {1095, MY_REFUSED, HF_DENIED, NULL},      /* to end another's session */
    {1094, MY_REFUSED, HF_UNREACHABLE, NULL}, /* that session has ended */
    {1644, MY_REFUSED, HF_UNREACHABLE, NULL}, /* SIGNAL, in our own procedures */
    {1021, MY_REFUSED, HF_STORE_FULL, "the server's disk is full"},
    {1114, MY_REFUSED, HF_STORE_FULL, NULL},
};

enum { ERROR_COUNT = sizeof(errors) / sizeof(errors[0]) };

static size_t find_error(unsigned error) {
    size_t i = 0;
    while (i < ERROR_COUNT && errors[i].error != error)
        i++;
    return i;
}

enum my_fault mysql_fault_of(unsigned error) {
    size_t i = find_error(error);
    return !error ? MY_FINE : i < ERROR_COUNT ? errors[i].fault : MY_UNCLEAR;
}

bool mysql_is_denied(unsigned error) {
    size_t i = find_error(error);
    return i < ERROR_COUNT && errors[i].reason == HF_DENIED;
}

bool mysql_spells_out(struct mysql *my) {
    bool can = my->commands.greeting.is_mariadb && !my->spells_out;
    my->spells_out |= can;
    return can;
}

enum store_outcome mysql_explain(const struct my_request *request, const struct my_result *result,
                                 const char *why, int *ret_reason, char **ret_text) {
    size_t i = result && result->error ? find_error(result->error) : ERROR_COUNT;
    const char *text = result && result->error ? result->text : why;
    bool is_known = i < ERROR_COUNT;
    *ret_text = NULL;
    if (is_known && errors[i].text)
        *ret_text = error_format("%s", errors[i].text);
    else if (text && *text)
        *ret_text = error_format("%s%s", result && result->error ? "the server says: " : "", text);
    *ret_reason = is_known ? errors[i].reason : result ? HF_BAD_STORE : request->reason;
    /* The error is about this send. An earlier one, whose reply was lost, may have acted. */
    bool was_not_done = is_known ? request->sends <= 1 : !request->sends;
    return was_not_done ? STORE_REFUSED : STORE_UNKNOWN;
}

void mysql_fail(struct mysql *my, struct my_request *request, const struct my_result *result,
                const char *why) {
    struct store_op *op = request->op;
    enum store_outcome outcome = mysql_explain(request, result, why, &op->reason, &op->text);
    store_complete(my->host, op, outcome);
}

bool mysql_has_rows(const struct my_result *result, unsigned columns) {
    return result && !result->error && result->columns == columns;
}

/* ---- The URL ---- */

static bool copy(char **ret, const char *text) {
    *ret = strdup(text);
    return *ret;
}

static int refuse(char **ret_text, const char *why) {
    *ret_text = error_format("%s", why);
    return HF_BAD_URL;
}

static int read_place(struct mysql *my, const struct url *url, char **ret_text) {
    const char *socket = url_option(url, "socket");
    if (url->host_count != (socket ? 0 : 1))
        return refuse(ret_text,
                      "the URL names one host, or a socket: "
                      "mysql://user@host/database or mysql://user@/database?socket=/path");
    if (!url->path[0] || !url->path[1] || strchr(url->path + 1, '/'))
        return refuse(ret_text, "the URL names no database: mysql://user@host/database");
    if (!url->user)
        return refuse(ret_text, "the URL names no user: mysql://user@host/database");
    if (!copy(&my->database, url->path + 1) || (socket && !copy(&my->socket, socket)) ||
        (!socket && !copy(&my->server, url->hosts[0].host)))
        return HF_NO_MEMORY;
    my->peer.path = my->socket;
    my->peer.host = my->server;
    my->peer.port = socket || !url->hosts[0].port ? DEFAULT_PORT : url->hosts[0].port;
    return HF_OK;
}

/* A user may have no password, on a socket. */
static int read_login(struct mysql *my, const struct url *url, char **ret_text) {
    if (url->password || url_option(url, "password_file") || url_option(url, "password_env") ||
        url_option(url, "password_fd"))
        return net_login_read(&my->login, url, "", ret_text);
    return copy(&my->login.user, url->user) ? HF_OK : HF_NO_MEMORY;
}

static int check_options(const struct url *url, char **ret_text) {
    static const char *const known[] = {"timeout",       "connect_timeout",
                                        "password_file", "password_env",
                                        "password_fd",   "socket",
                                        "plaintext",     "ca",
                                        "cert",          "key",
                                        "server_name",   "scheme"};
    for (size_t i = 0; i < url->option_count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            found |= strcmp(url->options[i].key, known[k]) == 0;
        if (!found) {
            *ret_text = error_format("unknown option \"%s\"", url->options[i].key);
            return HF_BAD_URL;
        }
    }
    return HF_OK;
}

static int read_url(struct mysql *my, const struct url *url, char **ret_text) {
    bool is_mariadb = strncmp(url->scheme, "mariadb", 7) == 0;
    my->timeout_us = my->peer.timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    int r = check_options(url, ret_text);
    if (!r)
        r = net_option_ms(url, "timeout", TIMEOUT_MAX_MS, &my->timeout_us, ret_text);
    if (!r)
        r = net_option_ms(url, "connect_timeout", TIMEOUT_MAX_MS, &my->peer.timeout_us, ret_text);
    if (!r)
        r = read_place(my, url, ret_text);
    if (!r)
        r = read_login(my, url, ret_text);
    if (!r)
        r = net_security_open(&my->security, url, is_mariadb ? "mariadbs" : "mysqls", NULL,
                              ret_text);
    return r;
}

/* ---- The drivers: that of leases, and that of scheme=for-update ---- */

extern const struct store_driver holdfast_store_driver;
static const struct store_driver for_update_driver;

bool mysql_for_update(const struct mysql *my) {
    return my->store.driver == &for_update_driver;
}

typedef void operation(struct mysql *my, struct store_op *op);

static void mysql_submit(struct store *store, struct store_op *op) {
    static operation *const operations[] = {
        [STORE_ACQUIRE] = mysql_acquire, [STORE_RENEW] = mysql_renew,
        [STORE_RELEASE] = mysql_release, [STORE_BREAK] = mysql_break,
        [STORE_INSPECT] = mysql_look,    [STORE_LIST] = mysql_look,
        [STORE_EXAMINE] = mysql_examine, [STORE_COUNT] = mysql_count,
    };
    operations[op->type](container_of(store, struct mysql, store), op);
}

static void for_update_submit(struct store *store, struct store_op *op) {
    static operation *const operations[] = {
        [STORE_ACQUIRE] = mysql_session_acquire,
        [STORE_RENEW] = mysql_session_renew,
        [STORE_RELEASE] = mysql_session_release,
        [STORE_BREAK] = mysql_session_break,
        [STORE_INSPECT] = mysql_look,
        [STORE_LIST] = mysql_look,
        [STORE_EXAMINE] = mysql_examine,
        [STORE_COUNT] = mysql_count,
    };
    operations[op->type](container_of(store, struct mysql, store), op);
}

static void mysql_free(struct mysql *my) {
    net_login_clear(&my->login);
    net_security_close(&my->security);
    free(my->server);
    free(my->database);
    free(my->socket);
    free(my);
}

static void mysql_close(struct store *store) {
    struct mysql *my = container_of(store, struct mysql, store);
    sql_sessions_close(&my->sessions);
    my_link_close(&my->commands);
    my_link_close(&my->listener);
    mysql_free(my);
}

static int open_links(struct mysql *my) {
    int r = my_link_init(&my->commands, my);
    if (r < 0)
        return r;
    my->listener.listens = true;
    r = my_link_init(&my->listener, my);
    if (!r && (r = sql_sessions_open(&my->sessions, my->host, &mysql_sessions)) < 0)
        my_link_close(&my->listener);
    if (r < 0)
        my_link_close(&my->commands);
    return r;
}

static int mysql_open(struct store_host *host, const struct url *url, struct store **ret_store,
                      char **ret_text) {
    /* For the login's hashes. At exit, threads of the client may still use it. */
    bool has_crypto =
        OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    struct mysql *my = has_crypto ? calloc(1, sizeof(*my)) : NULL;
    if (!my)
        return HF_NO_MEMORY;
    my->host = host;
    for (size_t i = 0; i < sizeof(host->identity.id); i++)
        snprintf(my->client + 2 * i, 3, "%02X", host->identity.id[i]);
    bool is_for_update;
    int r = sql_read_scheme(host, url, &is_for_update, ret_text);
    my->store.driver = is_for_update ? &for_update_driver : &holdfast_store_driver;
    if (!r)
        r = read_url(my, url, ret_text);
    if (!r)
        r = open_links(my);
    if (r < 0) {
        mysql_free(my);
        return r;
    }
    *ret_store = &my->store;
    return HF_OK;
}

const struct store_driver holdfast_store_driver __attribute__((visibility("default"))) = {
    .abi = STORE_ABI,
    .scheme = "mysql",
    .tier = "strict",
    .port = DEFAULT_PORT,
    .capabilities = MYSQL_CAPABILITIES,
    .open = mysql_open,
    .submit = mysql_submit,
    .close = mysql_close,
};

static const struct store_driver for_update_driver = {
    .abi = STORE_ABI,
    .scheme = "mysql",
    .tier = "best effort",
    .port = DEFAULT_PORT,
    .capabilities = SQL_FOR_UPDATE_CAPABILITIES,
    .lacks = SQL_FOR_UPDATE_LACKS,
    .open = mysql_open,
    .submit = for_update_submit,
    .close = mysql_close,
};
