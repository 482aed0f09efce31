/* The store: its URL, opening and closing, and what its two links have in common.
 *
 *    postgres://[user[:password]@]host[:port],...[/database][?options]
 *
 * postgresql:// is the same. Everything that libpq accepts may be an option (host for the folder of
 * a unix socket, service, sslrootcert and so on), and libpq reads its environment variables and
 * files as always. Our own are timeout and connect_timeout in ms, password_file, password_env and
 * password_fd, and plaintext=yes.
 *
 * A client has two links: commands, and the one that listens to its channel. Wake-ups are hints:
 * when the second link is restored, all waiters of the client are woken and all holds checked,
 * since it may have missed something. A pooler does not pass notifications on; behind one, waiters
 * ask again now and then. If the client watches, the second link also listens for changes that
 * others make. */
#include "store/postgres/postgres.h"

#include "base/error.h"
#include "base/password.h"
#include "base/url.h"
#include "net/options.h"
#include "store/postgres/capabilities.h"
#include "store/sql/sql.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 5432, DEFAULT_TIMEOUT_MS = 2000, TIMEOUT_MAX_MS = 3600000, POLL_US = 300000 };

/* ---- Requests ---- */

void postgres_send(struct postgres *pg, struct pg_request *request, struct store_op *op) {
    if (request)
        pg_link_submit(&pg->commands, request);
    else
        store_refuse(pg->host, op, HF_NO_MEMORY, NULL);
}

/* What the server's errors mean: with all of them, the transaction was rolled back. A shorter code
 * stands for its class. Errors that are not in the table are passed on. */
static const struct {
    const char *state;
    int reason;
    const char *text;
} errors[] = {
    {"42501", HF_DENIED, NULL},
    {"25006", HF_UNREACHABLE, "the server is a standby, or read only, and takes no locks"},
    {"25000", HF_BAD_STORE, NULL}, /* the isolation level: see schema.sql */
    {"53100", HF_STORE_FULL, "the server's disk is full"},
    {"53", HF_UNREACHABLE, NULL},
    {"57", HF_UNREACHABLE, NULL},
    {"55P03", HF_UNREACHABLE, "the server's lock_timeout ended the request"},
    {"25P03", HF_UNREACHABLE, NULL},
};

static enum store_outcome explain_error(const PGresult *result, int *ret_reason, char **ret_text) {
    const char *state = pg_sqlstate(result), *text = NULL;
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    *ret_reason = HF_BAD_STORE;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strncmp(state, errors[i].state, strlen(errors[i].state)) == 0) {
            *ret_reason = errors[i].reason;
            text = errors[i].text;
            break;
        }
    }
    *ret_text = text ? error_format("%s", text)
                     : error_format("the server says: %s (%s)", message ? message : "", state);
    return STORE_REFUSED;
}

enum store_outcome postgres_explain(const struct pg_request *request, const PGresult *result,
                                    const char *why, int *ret_reason, char **ret_text) {
    if (result && PQresultStatus(result) == PGRES_FATAL_ERROR) {
        enum store_outcome outcome = explain_error(result, ret_reason, ret_text);
        /* The error is about this send. An earlier one, whose reply was lost, may have acted. */
        return request->sends > 1 ? STORE_UNKNOWN : outcome;
    }
    *ret_text = why && *why ? error_format("%s", why) : NULL;
    *ret_reason = result ? HF_BAD_STORE : request->reason;
    return request->sends ? STORE_UNKNOWN : STORE_REFUSED;
}

void postgres_fail(struct postgres *pg, struct pg_request *request, const PGresult *result,
                   const char *why) {
    struct store_op *op = request->op;
    enum store_outcome outcome = postgres_explain(request, result, why, &op->reason, &op->text);
    store_complete(pg->host, op, outcome);
}

bool postgres_has_rows(const PGresult *result, int columns) {
    return result && PQresultStatus(result) == PGRES_TUPLES_OK && PQnfields(result) == columns;
}

/* ---- Holds that may have ended ----
 *
 * A break is announced on the client's channel. Everything else that ends a hold (a standby that
 * was promoted without it, a restored copy, a break while nobody listened) also ends a connection.
 * So, once a connection has been restored, all holds are renewed at once. */

void postgres_granted(struct postgres *pg) {
    pg->commands.wanted = true;
}

void postgres_restored(struct postgres *pg) {
    pg->host->check(pg->host, STORE_ALL_HELD);
}

/* ---- Wake-ups ---- */

static void listening(struct postgres *pg, struct pg_request *request, const PGresult *result,
                      const char *why) {
    (void)request, (void)why;
    if (!result || PQresultStatus(result) != PGRES_COMMAND_OK)
        return;
    pg->host->wake(pg->host, STORE_ALL_WAITING);
    pg->host->check(pg->host, STORE_ALL_HELD);
}

/* The statement takes no parameters: the channel is in its text, which lives as long as the
 * store. */
static void listen_soon(struct postgres *pg) {
    struct pg_request *request = pg_request_new(pg, NULL, listening, pg->listen, "");
    pg->is_deaf = !request;
    if (request) {
        request->give_up_us = WORLD_NEVER; /* its connection is abandoned, not the request */
        pg_link_submit(&pg->listener, request);
    } else {
        world_timer_set(pg->host->world, &pg->poll, world_now_us(pg->host->world) + POLL_US);
    }
}

void postgres_listen(struct postgres *pg) {
    listen_soon(pg);
    postgres_watch_connected(pg);
}

void postgres_expect_wakes(struct postgres *pg) {
    if (pg->pooled) {
        int64_t at_us = world_now_us(pg->host->world) + net_jitter_us(pg->host->world, POLL_US);
        if (!pg->poll.node.place)
            world_timer_set(pg->host->world, &pg->poll, at_us);
    } else if (!pg->listener.wanted) {
        pg->listener.wanted = true;
        pg_link_want(&pg->listener);
    }
}

static void poll_due(struct world_timer *timer) {
    struct postgres *pg = container_of(timer, struct postgres, poll);
    if (pg->is_deaf && pg->listener.state == PG_READY)
        listen_soon(pg);
    pg->host->wake(pg->host, STORE_ALL_WAITING);
}

/* Anybody who may connect can send a notification, so it is a hint: the answer to a request
 * decides. */
void postgres_notified(struct postgres *pg, const char *channel, char *text) {
    if (strcmp(channel, "holdfast_watch") == 0) {
        postgres_watch_notified(pg, text);
        return;
    }
    bool is_number = text[0] && text[1] && strlen(text + 1) <= 16 &&
                     strspn(text + 1, "0123456789abcdef") == strlen(text + 1);
    uint64_t seq = is_number ? strtoull(text + 1, NULL, 16) : 0;
    if (seq && text[0] == 'w')
        pg->host->wake(pg->host, seq);
    else if (seq && text[0] == 'g')
        pg->host->check(pg->host, seq);
}

/* ---- The URL ---- */

static const char *const own_options[] = {"timeout",      "connect_timeout", "password_file",
                                          "password_env", "password_fd",     "plaintext",
                                          "scheme"};

static bool is_own(const char *key) {
    for (size_t i = 0; i < sizeof(own_options) / sizeof(own_options[0]); i++) {
        if (strcmp(own_options[i], key) == 0)
            return true;
    }
    return false;
}

/* A later parameter overrides an earlier one. */
static bool add_parameter(struct postgres *pg, const char *key, const char *value) {
    size_t n = pg->parameter_count;
    assert(n < PG_PARAMETERS_MAX - PG_TARGET_PARAMETERS);
    pg->keys[n] = strdup(key);
    pg->values[n] = strdup(value);
    pg->parameter_count++;
    return pg->keys[n] && pg->values[n];
}

/* The hosts of the URL, and their ports if it names any: lists with commas. */
static bool add_hosts(struct postgres *pg, const struct url *url) {
    char hosts[URL_LENGTH_MAX] = "", ports[URL_LENGTH_MAX] = "";
    bool has_port = false;
    for (size_t i = 0; i < url->host_count; i++) {
        const char *comma = i ? "," : "";
        unsigned port = url->hosts[i].port;
        error_append(hosts, sizeof(hosts), "%s%s", comma, url->hosts[i].host);
        error_append(ports, sizeof(ports), "%s%u", comma, port ? port : DEFAULT_PORT);
        has_port |= port != 0;
    }
    return (!*hosts || add_parameter(pg, "host", hosts)) &&
           (!has_port || add_parameter(pg, "port", ports));
}

static int read_password(struct postgres *pg, const struct url *url, char **ret_text) {
    struct password password;
    char why[PASSWORD_WHY_SIZE];
    int r = url->password ? 0 : password_read_named(url, "password", &password, why);
    if (r < 0) {
        *ret_text = error_format("%s", why);
        return HF_BAD_URL;
    }
    const char *text = r > 0 ? password.text : url->password;
    bool ok = !text || add_parameter(pg, "password", text);
    explicit_bzero(&password, sizeof(password));
    return ok ? HF_OK : HF_NO_MEMORY;
}

static int read_parameters(struct postgres *pg, const struct url *url, char **ret_text) {
    char user_timeout[24];
    int64_t silence_us = postgres_for_update(pg) ? pg->host->max_lease_us : pg->timeout_us;
    snprintf(user_timeout, sizeof(user_timeout), "%lld", (long long)silence_us / 1000);
    bool ok = add_parameter(pg, "fallback_application_name", "holdfast") &&
              add_parameter(pg, "tcp_user_timeout", user_timeout) &&
              add_parameter(pg, "target_session_attrs", "read-write") &&
              add_parameter(pg, "keepalives_idle", "10") &&
              add_parameter(pg, "keepalives_interval", "5") && add_hosts(pg, url) &&
              (!url->path[0] || !url->path[1] || add_parameter(pg, "dbname", url->path + 1)) &&
              (!url->user || add_parameter(pg, "user", url->user));
    for (size_t i = 0; ok && i < url->option_count; i++) {
        if (!is_own(url->options[i].key))
            ok = add_parameter(pg, url->options[i].key, url->options[i].value);
    }
    ok = ok && add_parameter(pg, "client_encoding", "UTF8") &&
         add_parameter(pg, "gssencmode", "disable"); /* Kerberos waits for its servers */
    return ok ? read_password(pg, url, ret_text) : HF_NO_MEMORY;
}

static const char *value_of(const PQconninfoOption *options, const char *key) {
    for (; options->keyword; options++) {
        if (strcmp(options->keyword, key) == 0)
            return options->val ? options->val : "";
    }
    return "";
}

/* The index-th of comma-separated values; if there is only one, that one. */
static char *nth(const char *list, size_t index, const char *otherwise) {
    if (strchr(list, ',')) {
        for (; index > 0 && *list; index--)
            list += strcspn(list, ",") + (list[strcspn(list, ",")] == ',');
    }
    size_t size = strcspn(list, ",");
    return size ? strndup(list, size) : strdup(otherwise);
}

static int read_hosts(struct postgres *pg, const PQconninfoOption *options) {
    const char *hosts = value_of(options, "host"), *addresses = value_of(options, "hostaddr");
    const char *ports = value_of(options, "port");
    size_t count = 1;
    for (const char *at = *addresses ? addresses : hosts; *at; at++)
        count += *at == ',';
    pg->hosts = calloc(count, sizeof(*pg->hosts));
    if (!pg->hosts)
        return HF_NO_MEMORY;
    pg->host_count = count;
    for (size_t i = 0; i < count; i++) {
        struct pg_target *host = &pg->hosts[i];
        host->host = nth(hosts, i, "");
        host->port = nth(ports, i, "5432");
        if (*addresses)
            host->address = nth(addresses, i, "");
        if (!host->host || !host->port || (*addresses && !host->address))
            return HF_NO_MEMORY;
    }
    snprintf(pg->sslmode, sizeof(pg->sslmode), "%s", value_of(options, "sslmode"));
    return HF_OK;
}

/* Asks libpq what it makes of the parameters, the environment and a service file. libpq only tells
 * this about a connection, so one is started with a wrong parameter: it fails before libpq
 * connects. */
static int expand(struct postgres *pg, char **ret_text) {
    size_t n = pg->parameter_count;
    const char *keys[PG_PARAMETERS_MAX], *values[PG_PARAMETERS_MAX];
    for (size_t i = 0; i < n; i++) {
        keys[i] = pg->keys[i];
        values[i] = pg->values[i];
    }
    keys[n] = values[n] = "gssencmode";
    keys[n + 1] = values[n + 1] = NULL;
    PGconn *probe = PQconnectStartParams(keys, values, 0);
    if (!probe)
        return HF_NO_MEMORY;
    const char *why = PQerrorMessage(probe);
    int r = HF_BAD_URL;
    if (strstr(why, "gssencmode")) {
        PQconninfoOption *options = PQconninfo(probe);
        r = options ? read_hosts(pg, options) : HF_NO_MEMORY;
        PQconninfoFree(options);
    } else {
        *ret_text = error_format("%.*s", (int)strcspn(why, "\n"), why);
    }
    PQfinish(probe);
    return r;
}

/* A host that is written as a public address is refused at once. */
static int check_hosts(const struct postgres *pg, char **ret_text) {
    bool is_weak = strncmp(pg->sslmode, "verify-", 7) != 0 && strcmp(pg->sslmode, "prefer") != 0;
    for (size_t i = 0; i < pg->host_count && is_weak && !pg->exposed; i++) {
        const char *address = pg->hosts[i].address ? pg->hosts[i].address : pg->hosts[i].host;
        enum world_reach reach;
        if (!world_reach_of_text(address, &reach) || reach != WORLD_PUBLIC)
            continue;
        *ret_text = error_format(
            "sslmode=%s to %.255s, which is not a private address, would let anybody on the "
            "network "
            "path change locks: use sslmode=verify-full, or add the option plaintext=yes if the "
            "path is safe",
            pg->sslmode, address);
        return HF_BAD_URL;
    }
    return HF_OK;
}

static int read_url(struct postgres *pg, const struct url *url, char **ret_text) {
    pg->timeout_us = pg->connect_timeout_us = INT64_C(1000) * DEFAULT_TIMEOUT_MS;
    int r = net_option_ms(url, "timeout", TIMEOUT_MAX_MS, &pg->timeout_us, ret_text);
    if (!r)
        r = net_option_ms(url, "connect_timeout", TIMEOUT_MAX_MS, &pg->connect_timeout_us,
                          ret_text);
    if (!r)
        r = net_option_yes(url, "plaintext", &pg->exposed, ret_text);
    if (!r)
        r = read_parameters(pg, url, ret_text);
    if (!r)
        r = expand(pg, ret_text);
    return r < 0 ? r : check_hosts(pg, ret_text);
}

/* ---- The drivers: that of leases, and that of scheme=for-update ---- */

extern const struct store_driver holdfast_store_driver;
static const struct store_driver for_update_driver;

bool postgres_for_update(const struct postgres *pg) {
    return pg->store.driver == &for_update_driver;
}

typedef void operation(struct postgres *pg, struct store_op *op);

static void postgres_submit(struct store *store, struct store_op *op) {
    static operation *const operations[] = {
        [STORE_ACQUIRE] = postgres_acquire, [STORE_RENEW] = postgres_renew,
        [STORE_RELEASE] = postgres_release, [STORE_BREAK] = postgres_break,
        [STORE_INSPECT] = postgres_look,    [STORE_LIST] = postgres_look,
        [STORE_EXAMINE] = postgres_examine, [STORE_WATCH] = postgres_watch,
        [STORE_UNWATCH] = postgres_unwatch, [STORE_COUNT] = postgres_count,
    };
    operations[op->type](container_of(store, struct postgres, store), op);
}

static void for_update_submit(struct store *store, struct store_op *op) {
    static operation *const operations[] = {
        [STORE_ACQUIRE] = postgres_session_acquire,
        [STORE_RENEW] = postgres_session_renew,
        [STORE_RELEASE] = postgres_session_release,
        [STORE_BREAK] = postgres_session_break,
        [STORE_INSPECT] = postgres_look,
        [STORE_LIST] = postgres_look,
        [STORE_EXAMINE] = postgres_examine,
        [STORE_COUNT] = postgres_count,
    };
    operations[op->type](container_of(store, struct postgres, store), op);
}

static void wipe(char *text) {
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

static void postgres_free(struct postgres *pg) {
    for (size_t i = 0; i < pg->parameter_count; i++) {
        free(pg->keys[i]);
        wipe(pg->values[i]);
    }
    for (size_t i = 0; i < pg->host_count; i++) {
        free(pg->hosts[i].host);
        free(pg->hosts[i].address);
        free(pg->hosts[i].port);
    }
    free(pg->hosts);
    free(pg);
}

static void postgres_close(struct store *store) {
    struct postgres *pg = container_of(store, struct postgres, store);
    sql_sessions_close(&pg->sessions);
    pg_link_close(&pg->commands);
    pg_link_close(&pg->listener);
    world_timer_drop(pg->host->world, &pg->poll);
    postgres_close_watch(pg);
    postgres_free(pg);
}

static int open_links(struct postgres *pg) {
    int r = world_timer_add(pg->host->world, &pg->poll, poll_due);
    if (r < 0)
        return r;
    r = postgres_open_watch(pg);
    if (!r && (r = pg_link_init(&pg->commands, pg)) < 0)
        postgres_close_watch(pg);
    if (!r && (r = pg_link_init(&pg->listener, pg)) < 0) {
        pg_link_close(&pg->commands);
        postgres_close_watch(pg);
    }
    if (r < 0)
        world_timer_drop(pg->host->world, &pg->poll);
    pg->listener.listens = true;
    if (!r) {
        r = sql_sessions_open(&pg->sessions, pg->host, &postgres_sessions);
        if (r < 0) {
            pg_link_close(&pg->commands);
            pg_link_close(&pg->listener);
            postgres_close_watch(pg);
            world_timer_drop(pg->host->world, &pg->poll);
        }
    }
    return r;
}

static int postgres_open(struct store_host *host, const struct url *url, struct store **ret_store,
                         char **ret_text) {
    /* libpq uses OpenSSL. At exit, threads of the client may still do so. */
    if (!OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL))
        return HF_NO_MEMORY;
    struct postgres *pg = calloc(1, sizeof(*pg));
    if (!pg)
        return HF_NO_MEMORY;
    pg->host = host;
    for (size_t i = 0; i < sizeof(host->identity.id); i++)
        snprintf(pg->client + 2 * i, 3, "%02x", host->identity.id[i]);
    snprintf(pg->listen, sizeof(pg->listen), "LISTEN holdfast_%s", pg->client);
    bool is_for_update;
    int r = sql_read_scheme(host, url, &is_for_update, ret_text);
    pg->store.driver = is_for_update ? &for_update_driver : &holdfast_store_driver;
    if (!r)
        r = read_url(pg, url, ret_text);
    if (!r)
        r = open_links(pg);
    if (r < 0) {
        postgres_free(pg);
        return r;
    }
    *ret_store = &pg->store;
    return HF_OK;
}

const struct store_driver holdfast_store_driver __attribute__((visibility("default"))) = {
    .abi = STORE_ABI,
    .scheme = "postgres",
    .tier = "strict",
    .port = DEFAULT_PORT,
    .capabilities = POSTGRES_CAPABILITIES,
    .open = postgres_open,
    .submit = postgres_submit,
    .close = postgres_close,
};

static const struct store_driver for_update_driver = {
    .abi = STORE_ABI,
    .scheme = "postgres",
    .tier = "best effort",
    .port = DEFAULT_PORT,
    .capabilities = SQL_FOR_UPDATE_CAPABILITIES,
    .lacks = SQL_FOR_UPDATE_LACKS,
    .open = postgres_open,
    .submit = for_update_submit,
    .close = postgres_close,
};
