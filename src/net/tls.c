/* TLS with OpenSSL, over memory.
 *
 * Design notes.
 *
 * A resumed session skips the verification of certificates. So sessions are used for an hour after
 * the verification that they rest on, however many sessions have followed each other since. In TLS
 * 1.3 a session serves one connection, which brings the next session; a full handshake brings two.
 * In TLS 1.2 one session serves all connections. A session whose handshake failed is not tried
 * again.
 *
 * The end of a connection is not announced (close_notify). The protocols above say how long each
 * message is, so nobody can pass off a part as the whole, and a connection that is given up must
 * not be written to. OpenSSL is told that the end was announced, because it would drop the session
 * otherwise.
 *
 * OpenSSL must not clean up when the program exits, since other threads may still be renewing. Its
 * queue of errors is cleared before and after each step, so that no caller finds another one's
 * error. */
#include "net/tls.h"

#include "base/error.h"
#include "base/list.h"
#include "base/password.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BELIEVED_US (INT64_C(3600) * 1000000)

enum {
    SESSIONS_MAX = 4,
    SERVERS_MAX = 256, /* after that, the least recently used one is forgotten */
    NAME_SIZE = 256,
    PLACE_SIZE = NAME_SIZE + 8,
    NAMES_SIZE = 160,
    DATE_SIZE = 32,
    PROTOCOLS_SIZE = 256
};

/* What is remembered of a server. A session is used only for the place that it came from, since it
 * replaces that server's certificate. */
struct server {
    struct list link;
    char place[PLACE_SIZE]; /* "host:port" */
    struct session {
        SSL_SESSION *session;
        int64_t verified_us;  /* when the certificates behind it were verified */
    } sessions[SESSIONS_MAX]; /* the last is the newest */
    size_t session_count;
    int64_t expires_us; /* 0: not seen yet */
};

/* The client's side. */
struct client {
    struct net_tls tls;
    SSL_CTX *context;
    char name[NAME_SIZE]; /* that all certificates must be for; "": each server's host */
    const char *const *protocols;
    bool has_passphrase; /* the key has one */
    int64_t expires_us;  /* the client certificate; 0: there is none */
    struct list servers; /* the most recently used is the last */
    size_t server_count;
};

struct channel {
    struct net_tls_channel channel;
    char name[NAME_SIZE], place[PLACE_SIZE]; /* of its server */
    SSL *ssl;
    BIO *in, *out;
    int64_t wall_us;     /* when it started */
    int64_t verified_us; /* when the certificates behind its session were verified */
};

static struct client *client_of(const struct net_tls *tls) {
    return container_of(tls, struct client, tls);
}

static struct channel *channel_of(const struct net_tls_channel *channel) {
    return container_of(channel, struct channel, channel);
}

/* ---- Certificates, for people ---- */

static int64_t time_us(const ASN1_TIME *at) {
    struct tm parts;
    return at && ASN1_TIME_to_tm(at, &parts) ? (int64_t)timegm(&parts) * 1000000 : 0;
}

static void format_date(const ASN1_TIME *at, char text[DATE_SIZE]) {
    struct tm parts;
    if (!at || !ASN1_TIME_to_tm(at, &parts) ||
        !strftime(text, DATE_SIZE, "%Y-%m-%d %H:%M UTC", &parts))
        strcpy(text, "an unknown time");
}

/* Anybody may have written the texts in a certificate: only what is harmless on a terminal is
 * shown. */
static void append_name(char text[NAMES_SIZE], const unsigned char *bytes, int size) {
    size_t used = strlen(text);
    if (used && used + 2 < NAMES_SIZE)
        used += (size_t)sprintf(text + used, ", ");
    for (int i = 0; i < size && used + 1 < NAMES_SIZE; i++)
        text[used++] = (char)(bytes[i] > ' ' && bytes[i] < 0x7f ? bytes[i] : '?');
    text[used] = 0;
}

/* The names that a certificate is for. */
static void list_names(const X509 *certificate, char text[NAMES_SIZE]) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    text[0] = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        char address[INET6_ADDRSTRLEN];
        if (name->type == GEN_DNS) {
            append_name(text, ASN1_STRING_get0_data(name->d.dNSName),
                        ASN1_STRING_length(name->d.dNSName));
        } else if (name->type == GEN_IPADD) {
            int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
            if (inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), address,
                          sizeof(address)))
                append_name(text, (const unsigned char *)address, (int)strlen(address));
        }
    }
    GENERAL_NAMES_free(names);
    char subject[NAMES_SIZE];
    if (!text[0] && X509_NAME_oneline(X509_get_subject_name(certificate), subject, sizeof(subject)))
        append_name(text, (const unsigned char *)subject, (int)strlen(subject));
}

static void tell(struct channel *c, int reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell(struct channel *c, int reason, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(c->channel.why, sizeof(c->channel.why), format, values);
    va_end(values);
    c->channel.reason = reason;
}

static void tell_untrusted(struct channel *c, int error, const X509 *certificate) {
    char issuer[NAMES_SIZE] = "", text[NAMES_SIZE] = "";
    if (error == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT) {
        tell(c, HF_DENIED,
             "the server's certificate is self-signed, and not trusted here; if it is the right "
             "one, name a copy of it with ca=");
        return;
    }
    X509_NAME_oneline(X509_get_issuer_name(certificate), issuer, sizeof(issuer));
    append_name(text, (const unsigned char *)issuer, (int)strlen(issuer));
    tell(c, HF_DENIED,
         "the server's certificate comes from a CA that is not trusted here (%s); name the CA's "
         "file with ca=",
         text);
}

/* Why a certificate is refused. `depth` 0 is the server's own. */
static void tell_certificate(struct channel *c, int error, int depth, const X509 *certificate) {
    const char *whose = depth ? "a certificate above the server's" : "the server's certificate";
    char date[DATE_SIZE], names[NAMES_SIZE];
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        format_date(X509_get0_notAfter(certificate), date);
        tell(c, HF_DENIED, "%s expired at %s", whose, date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        format_date(X509_get0_notBefore(certificate), date);
        tell(c, HF_DENIED, "%s is not valid before %s, or this host's clock is wrong", whose, date);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        list_names(certificate, names);
        tell(c, HF_DENIED, "the server's certificate is not for %s, but for %s", c->name, names);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        tell_untrusted(c, error, certificate);
        break;
    case X509_V_ERR_OUT_OF_MEM:
        c->channel.reason = HF_NO_MEMORY;
        break;
    default:
        tell(c, HF_DENIED, "%s is refused: %s", whose, X509_verify_cert_error_string(error));
    }
}

/* OpenSSL calls this for each certificate; the first that is refused ends the handshake. */
static int certificate_seen(int ok, X509_STORE_CTX *checking) {
    const SSL *ssl = X509_STORE_CTX_get_ex_data(checking, SSL_get_ex_data_X509_STORE_CTX_idx());
    X509 *certificate = X509_STORE_CTX_get_current_cert(checking);
    int error = X509_STORE_CTX_get_error(checking);
    struct channel *c = SSL_get_app_data(ssl);
    if (!ok && certificate)
        tell_certificate(c, error, X509_STORE_CTX_get_error_depth(checking), certificate);
    else if (!ok)
        tell(c, HF_DENIED, "the server's certificate is refused: %s",
             X509_verify_cert_error_string(error));
    return ok;
}

/* ---- Failures ---- */

/* What the server may report when it ends a connection, and what can be wrong with the server. */
static const struct {
    int code; /* SSL_R_... */
    int reason;
    const char *why;
} failures[] = {
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, HF_DENIED,
     "the server asks for a client certificate (cert= and key=)"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, HF_DENIED, "the server refuses the client certificate"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, HF_DENIED,
     "the server refuses the client certificate: it is not meant for this use"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, HF_DENIED,
     "the server refuses the client certificate: it was revoked"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, HF_DENIED,
     "the server refuses the client certificate: it has expired"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, HF_DENIED, "the server refuses the client certificate"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, HF_DENIED,
     "the server refuses the client certificate: it does not trust the CA that it comes from"},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, HF_DENIED, "the server denies access to this client"},
    {SSL_R_TLSV1_UNRECOGNIZED_NAME, HF_DENIED,
     "the server has no certificate for the name that it is asked for (server_name=)"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, HF_UNREACHABLE,
     "the server speaks no TLS of version 1.2 or later"},
    {SSL_R_UNSUPPORTED_PROTOCOL, HF_UNREACHABLE,
     "the server speaks no TLS of version 1.2 or later"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, HF_DENIED,
     "the server refuses the handshake: it asks for a client certificate (cert= and key=), or "
     "has no cipher that is accepted here"},
    {SSL_R_TLSV1_ALERT_INSUFFICIENT_SECURITY, HF_DENIED,
     "the server has no cipher that is accepted here"},
    {SSL_R_WRONG_VERSION_NUMBER, HF_UNREACHABLE, "the server does not speak TLS at this port"},
    {SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, HF_UNREACHABLE,
     "the server speaks none of the protocols that this client offers"},
    {SSL_R_HTTP_REQUEST, HF_UNREACHABLE, "the server does not speak TLS at this port"},
};

static void explain(struct channel *c) {
    unsigned long error = ERR_peek_error();
    if (c->channel.reason)
        return; /* a certificate was refused */
    if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) {
        c->channel.reason = HF_NO_MEMORY;
        return;
    }
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == failures[i].code) {
            tell(c, failures[i].reason, "%s", failures[i].why);
            return;
        }
    }
    const char *text = ERR_reason_error_string(error);
    tell(c, HF_UNREACHABLE, "TLS failed: %s", text ? text : "OpenSSL gives no reason");
}

/* ---- Files ---- */

/* A key has a passphrase, and there is nobody to ask for it. */
static int no_passphrase(char *room, int size, int writing, void *context) {
    (void)room;
    (void)size;
    (void)writing;
    ((struct client *)context)->has_passphrase = true;
    return -1;
}

/* OpenSSL does not say why it cannot read a file. */
static int check_readable(const char *what, const char *path, char **ret_text) {
    if (access(path, R_OK) == 0)
        return HF_OK;
    *ret_text = error_format("cannot read %s %s: %s", what, path, strerror(errno));
    return HF_BAD_URL;
}

static int bad_file(const char *what, const char *path, char **ret_text) {
    unsigned long error = ERR_peek_error(); /* the first one is the cause */
    const char *why = ERR_reason_error_string(error);
    if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
        return HF_NO_MEMORY;
    *ret_text = error_format("%s %s cannot be used: %s", what, path, why ? why : "it is damaged");
    return HF_BAD_URL;
}

static int load_trusted(SSL_CTX *context, const char *path, char **ret_text) {
    struct stat status;
    if (!path)
        return SSL_CTX_set_default_verify_paths(context) ? HF_OK : HF_NO_MEMORY;
    int r = check_readable("the CA", path, ret_text);
    if (r < 0)
        return r;
    bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    int ok = is_folder ? SSL_CTX_load_verify_dir(context, path)
                       : SSL_CTX_load_verify_file(context, path);
    return ok ? HF_OK : bad_file("the CA", path, ret_text);
}

/* A key is a secret, like a password. */
static int check_secret(const char *key, char **ret_text) {
    char why[PASSWORD_WHY_SIZE];
    int fd = open(key, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return check_readable("the key", key, ret_text);
    bool is_secret = file_secrecy(fd, why) == FILE_IS_SECRET;
    close(fd);
    if (is_secret)
        return HF_OK;
    *ret_text = error_format("the key %s is refused (%s)", key, why);
    return HF_BAD_URL;
}

static int load_key(struct client *client, const char *cert, const char *key, char **ret_text) {
    SSL_CTX *context = client->context;
    int r = check_secret(key, ret_text);
    if (r < 0)
        return r;
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) &&
        SSL_CTX_check_private_key(context))
        return HF_OK;
    int error = ERR_GET_REASON(ERR_peek_error());
    if (client->has_passphrase)
        *ret_text =
            error_format("the key %s has a passphrase, which cannot be asked for here", key);
    else if (error == X509_R_KEY_VALUES_MISMATCH || error == X509_R_KEY_TYPE_MISMATCH)
        *ret_text = error_format("the key %s does not belong to the certificate %s", key, cert);
    else
        return bad_file("the key", key, ret_text);
    return HF_BAD_URL;
}

static int load_own(struct client *client, const struct net_tls_settings *settings,
                    char **ret_text) {
    const char *cert = settings->cert;
    if (!cert)
        return HF_OK;
    int r = check_readable("the certificate", cert, ret_text);
    if (!r && !SSL_CTX_use_certificate_chain_file(client->context, cert))
        r = bad_file("the certificate", cert, ret_text);
    if (!r)
        r = load_key(client, cert, settings->key, ret_text);
    if (!r)
        client->expires_us = time_us(X509_get0_notAfter(SSL_CTX_get0_certificate(client->context)));
    return r;
}

/* ---- Servers, and their sessions ---- */

static struct server *find_server(struct client *client, const char *place) {
    list_each(node, &client->servers) {
        struct server *server = container_of(node, struct server, link);
        if (strcmp(server->place, place) == 0)
            return server;
    }
    return NULL;
}

static void drop_session(struct server *server, size_t which) {
    SSL_SESSION_free(server->sessions[which].session);
    server->session_count--;
    memmove(&server->sessions[which], &server->sessions[which + 1],
            (server->session_count - which) * sizeof(server->sessions[0]));
}

static void drop_sessions(struct server *server) {
    while (server->session_count)
        drop_session(server, 0);
}

static void forget_server(struct client *client, struct server *server) {
    drop_sessions(server);
    list_remove(&server->link);
    client->server_count--;
    free(server);
}

/* The server to connect to; NULL: no memory. */
static struct server *get_server(struct client *client, const char *place) {
    struct server *server = find_server(client, place);
    if (!server) {
        server = calloc(1, sizeof(*server));
        if (!server)
            return NULL;
        if (client->server_count == SERVERS_MAX)
            forget_server(client, container_of(client->servers.next, struct server, link));
        strcpy(server->place, place);
        list_init(&server->link);
        client->server_count++;
    }
    list_remove(&server->link);
    list_append(&client->servers, &server->link);
    return server;
}

static bool serves_once(const SSL_SESSION *session) {
    return SSL_SESSION_get_protocol_version(session) >= TLS1_3_VERSION;
}

/* OpenSSL calls this when the server has sent a session. 1: it is ours to free. */
static int session_came(SSL *ssl, SSL_SESSION *session) {
    struct channel *c = SSL_get_app_data(ssl);
    struct server *server = find_server(client_of(c->channel.tls), c->place);
    if (!server)
        return 0;
    if (!serves_once(session))
        drop_sessions(server);
    else if (server->session_count == SESSIONS_MAX)
        drop_session(server, 0);
    server->sessions[server->session_count++] =
        (struct session){session, SSL_session_reused(ssl) ? c->verified_us : c->wall_us};
    return 1;
}

/* Uses the newest session that is not too old. After the clock has gone back, a session may seem to
 * come from the future: it is not used either. */
static void use_session(struct channel *c, struct server *server) {
    while (server->session_count) {
        size_t last = server->session_count - 1;
        struct session found = server->sessions[last];
        int64_t age_us = c->wall_us - found.verified_us;
        bool used = age_us >= 0 && age_us < BELIEVED_US && SSL_set_session(c->ssl, found.session);
        if (!used || serves_once(found.session))
            drop_session(server, last);
        if (used) {
            c->verified_us = found.verified_us;
            return;
        }
    }
}

/* ---- The client's side ---- */

/* In a certificate, names have no final dot, and addresses have no zone, which has a meaning only
 * on this host. OpenSSL treats an empty name as any name, and one with a leading dot as all names
 * below it. */
static bool read_name(const char *name, char ret[NAME_SIZE]) {
    size_t size = strchr(name, ':') ? strcspn(name, "%") : strlen(name);
    size -= size > 1 && name[size - 1] == '.';
    if (!size || size >= NAME_SIZE || name[0] == '.')
        return false;
    memcpy(ret, name, size);
    ret[size] = 0;
    return true;
}

/* ALPN has one list, with the length of each name before it. */
static int offer_protocols(struct client *client, const char *const *protocols) {
    unsigned char list[PROTOCOLS_SIZE];
    unsigned used = 0;
    client->protocols = protocols;
    for (; protocols && *protocols; protocols++) {
        size_t size = strlen(*protocols);
        assert(size > 0 && size < 256 && used + 1 + size <= sizeof(list));
        list[used] = (unsigned char)size;
        memcpy(list + used + 1, *protocols, size);
        used += (unsigned)size + 1;
    }
    return used && SSL_CTX_set_alpn_protos(client->context, list, used) ? HF_NO_MEMORY : HF_OK;
}

#define NO_NAME "\"%s\" is not a name that a certificate can have"

static int set_up(struct client *client, const struct net_tls_settings *settings, char **ret_text) {
    SSL_CTX *context = client->context = SSL_CTX_new(TLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION))
        return HF_NO_MEMORY;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, certificate_seen);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, session_came);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(context, client);
    int r = offer_protocols(client, settings->protocols);
    if (!r)
        r = load_trusted(context, settings->ca, ret_text);
    return r < 0 ? r : load_own(client, settings, ret_text);
}

static void close_tls(struct net_tls *tls) {
    struct client *client = client_of(tls);
    while (!list_empty(&client->servers))
        forget_server(client, container_of(client->servers.next, struct server, link));
    SSL_CTX_free(client->context);
    free(client);
}

extern const struct net_tls_module holdfast_tls;

static int open_tls(const struct net_tls_settings *settings, struct net_tls **ret_tls,
                    char **ret_text) {
    if (!OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL))
        return HF_NO_MEMORY;
    struct client *client = calloc(1, sizeof(*client));
    if (!client)
        return HF_NO_MEMORY;
    client->tls.module = &holdfast_tls;
    list_init(&client->servers);
    ERR_clear_error();
    int r = HF_OK;
    if (settings->name && !read_name(settings->name, client->name)) {
        *ret_text = error_format(NO_NAME, settings->name);
        r = HF_BAD_URL;
    }
    if (!r)
        r = set_up(client, settings, ret_text);
    ERR_clear_error();
    if (r < 0) {
        close_tls(&client->tls);
        return r;
    }
    *ret_tls = &client->tls;
    return HF_OK;
}

static void get_expiries(const struct net_tls *tls, struct net_tls_expiries *ret) {
    struct client *client = client_of(tls);
    *ret = (struct net_tls_expiries){.own_us = client->expires_us};
    list_each(node, &client->servers) {
        int64_t at_us = container_of(node, struct server, link)->expires_us;
        if (at_us && (!ret->server_us || at_us < ret->server_us))
            ret->server_us = at_us;
    }
}

/* ---- One connection ---- */

/* Sets the name that the certificate must be for, and the time at which it must be valid. */
static bool demand(struct channel *c) {
    X509_VERIFY_PARAM *demands = SSL_get0_param(c->ssl);
    struct in6_addr unused;
    X509_VERIFY_PARAM_set_time(demands, (time_t)(c->wall_us / 1000000));
    X509_VERIFY_PARAM_set_hostflags(demands, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (inet_pton(AF_INET, c->name, &unused) == 1 || inet_pton(AF_INET6, c->name, &unused) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(demands, c->name);
    return X509_VERIFY_PARAM_set1_host(demands, c->name, 0) &&
           SSL_set_tlsext_host_name(c->ssl, c->name);
}

static bool prepare(struct channel *c) {
    c->ssl = SSL_new(client_of(c->channel.tls)->context);
    c->in = BIO_new(BIO_s_mem());
    c->out = BIO_new(BIO_s_mem());
    if (!c->ssl || !c->in || !c->out) {
        BIO_free(c->in);
        BIO_free(c->out);
        return false;
    }
    BIO_set_mem_eof_return(c->in, -1); /* an empty BIO is not the end */
    SSL_set_bio(c->ssl, c->in, c->out);
    SSL_set_app_data(c->ssl, c);
    SSL_set_connect_state(c->ssl);
    return demand(c);
}

static void end_channel(struct net_tls_channel *channel) {
    struct channel *c = channel_of(channel);
    struct server *server = find_server(client_of(channel->tls), c->place);
    if (!channel->open && server)
        drop_sessions(server);
    if (c->ssl)
        SSL_set_shutdown(c->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(c->ssl);
    ERR_clear_error();
    free(c);
}

/* Notes when the first of the verified certificates expires. */
static void note_expiry(struct channel *c) {
    struct server *server = find_server(client_of(c->channel.tls), c->place);
    STACK_OF(X509) *chain = SSL_get0_verified_chain(c->ssl);
    if (!server)
        return;
    server->expires_us = INT64_MAX;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t at_us = time_us(X509_get0_notAfter(sk_X509_value(chain, i)));
        if (at_us < server->expires_us)
            server->expires_us = at_us;
    }
}

/* The protocol that the server chose, if it was offered: not every OpenSSL refuses another one. */
static const char *find_protocol(const struct channel *c) {
    const unsigned char *chosen;
    unsigned size;
    SSL_get0_alpn_selected(c->ssl, &chosen, &size);
    const char *const *each = client_of(c->channel.tls)->protocols;
    for (; size && each && *each; each++) {
        if (strlen(*each) == size && memcmp(*each, chosen, size) == 0)
            return *each;
    }
    return NULL;
}

static void shake_hands(struct channel *c) {
    int r = SSL_do_handshake(c->ssl);
    if (r == 1) {
        c->channel.open = true;
        c->channel.resumed = SSL_session_reused(c->ssl);
        c->channel.protocol = find_protocol(c);
        if (!c->channel.resumed)
            note_expiry(c);
    } else if (SSL_get_error(c->ssl, r) != SSL_ERROR_WANT_READ) {
        explain(c);
    }
}

/* False: no memory. */
static bool begin(struct channel *c, const char *host, uint16_t port) {
    struct client *client = client_of(c->channel.tls);
    if (!read_name(client->name[0] ? client->name : host, c->name)) {
        tell(c, HF_DENIED, NO_NAME, host);
        return true;
    }
    snprintf(c->place, sizeof(c->place), "%.255s:%u", host, (unsigned)port);
    struct server *server = get_server(client, c->place);
    if (!server || !prepare(c))
        return false;
    use_session(c, server);
    shake_hands(c);
    return !c->channel.reason;
}

static struct net_tls_channel *start_channel(struct net_tls *tls, const char *host, uint16_t port,
                                             int64_t wall_us) {
    struct channel *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->channel.tls = tls;
    c->wall_us = wall_us;
    ERR_clear_error();
    bool ok = begin(c, host, port);
    ERR_clear_error();
    if (ok)
        return &c->channel;
    end_channel(&c->channel);
    return NULL;
}

static bool feed(struct net_tls_channel *channel, const void *bytes, size_t size) {
    size_t taken;
    return BIO_write_ex(channel_of(channel)->in, bytes, size, &taken) && taken == size;
}

static int read_said(struct net_tls_channel *channel, void *room, size_t size) {
    struct channel *c = channel_of(channel);
    ERR_clear_error();
    size_t got = 0;
    if (!channel->open && !channel->reason)
        shake_hands(c);
    if (channel->open && !channel->reason && !SSL_read_ex(c->ssl, room, size, &got)) {
        int error = SSL_get_error(c->ssl, 0);
        if (error == SSL_ERROR_ZERO_RETURN)
            tell(c, HF_UNREACHABLE, "the server closed the connection");
        else if (error != SSL_ERROR_WANT_READ)
            explain(c);
    }
    ERR_clear_error();
    return channel->reason ? -1 : (int)got;
}

static bool write_said(struct net_tls_channel *channel, const void *bytes, size_t size) {
    size_t taken;
    ERR_clear_error();
    bool ok = SSL_write_ex(channel_of(channel)->ssl, bytes, size, &taken);
    ERR_clear_error();
    return ok;
}

static size_t pending(const struct net_tls_channel *channel, const char **ret_bytes) {
    char *bytes = NULL;
    long size = BIO_get_mem_data(channel_of(channel)->out, &bytes);
    *ret_bytes = bytes;
    return size > 0 ? (size_t)size : 0;
}

static void sent(struct net_tls_channel *channel) {
    (void)BIO_reset(channel_of(channel)->out);
}

const struct net_tls_module holdfast_tls __attribute__((visibility("default"))) = {
    .abi = NET_TLS_ABI,
    .open = open_tls,
    .close = close_tls,
    .expiries = get_expiries,
    .start = start_channel,
    .end = end_channel,
    .feed = feed,
    .read = read_said,
    .write = write_said,
    .pending = pending,
    .sent = sent,
};
