#include "support/tls_server.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(bool ok) {
    if (ok)
        return;
    ERR_print_errors_fp(stdout);
    fflush(stdout);
    abort();
}

static void add_extension(X509 *certificate, int which, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, which, value);
    must(extension && X509_add_ext(certificate, extension, -1));
    X509_EXTENSION_free(extension);
}

static X509 *make_certificate(EVP_PKEY *key, const char *names, int64_t from_s, int64_t until_s) {
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);
    must(X509_set_version(certificate, X509_VERSION_3) &&
         ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
         X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
                                    0) &&
         X509_set_issuer_name(certificate, name) && X509_set_pubkey(certificate, key) &&
         ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)from_s) &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)until_s));
    add_extension(certificate, NID_subject_alt_name, names);
    must(X509_sign(certificate, key, EVP_sha256()));
    return certificate;
}

void tls_server_open(struct tls_server *server, const char *names, int64_t from_s,
                     int64_t until_s) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    must(key);
    X509 *certificate = make_certificate(key, names, from_s, until_s);
    server->context = SSL_CTX_new(TLS_server_method());
    must(server->context && SSL_CTX_use_certificate(server->context, certificate) &&
         SSL_CTX_use_PrivateKey(server->context, key) &&
         SSL_CTX_set_session_id_context(server->context, (const unsigned char *)"test", 4));
    strcpy(server->ca, "/tmp/holdfast-tls-test-XXXXXX");
    int fd = mkstemp(server->ca);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert(file);
    must(PEM_write_X509(file, certificate));
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_size,
                           const unsigned char *offered, unsigned size, void *context) {
    const char *protocol = context;
    (void)ssl, (void)offered, (void)size;
    if (!protocol[0])
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = (const unsigned char *)protocol;
    *ret_size = (unsigned char)strlen(protocol);
    return SSL_TLSEXT_ERR_OK;
}

void tls_server_choose(struct tls_server *server, const char *protocol) {
    SSL_CTX_set_alpn_select_cb(server->context, protocol ? choose_protocol : NULL,
                               (void *)protocol);
}

void tls_server_close(struct tls_server *server) {
    SSL_CTX_free(server->context);
    unlink(server->ca);
}

struct tls_peer *tls_peer_new(struct tls_server *server) {
    struct tls_peer *peer = calloc(1, sizeof(*peer));
    peer->ssl = SSL_new(server->context);
    peer->in = BIO_new(BIO_s_mem());
    peer->out = BIO_new(BIO_s_mem());
    must(peer->ssl && peer->in && peer->out);
    BIO_set_mem_eof_return(peer->in, -1);
    SSL_set_bio(peer->ssl, peer->in, peer->out);
    SSL_set_accept_state(peer->ssl);
    return peer;
}

void tls_peer_free(struct tls_peer *peer) {
    if (peer)
        SSL_free(peer->ssl);
    free(peer);
}

/* Clears OpenSSL's error queue, which is shared by the whole thread: the client would take the
 * errors for its own. */
void tls_peer_feed(struct tls_peer *peer, const void *bytes, size_t size) {
    size_t taken;
    must(!size || BIO_write_ex(peer->in, bytes, size, &taken));
    for (;;) {
        ERR_clear_error();
        size_t got = 0;
        if (SSL_read_ex(peer->ssl, peer->said + peer->said_size,
                        sizeof(peer->said) - peer->said_size - 1, &got)) {
            peer->said_size += got;
            continue;
        }
        peer->failed |= SSL_get_error(peer->ssl, 0) != SSL_ERROR_WANT_READ;
        break;
    }
    ERR_clear_error();
}

void tls_peer_say(struct tls_peer *peer, const void *bytes, size_t size) {
    size_t taken;
    must(SSL_write_ex(peer->ssl, bytes, size, &taken) && taken == size);
}

char *tls_peer_take(struct tls_peer *peer, size_t *ret_size) {
    char *data;
    long size = BIO_get_mem_data(peer->out, &data);
    char *bytes = calloc(1, (size_t)size + 1);
    assert(bytes);
    if (size)
        memcpy(bytes, data, (size_t)size);
    (void)BIO_reset(peer->out);
    *ret_size = (size_t)size;
    return bytes;
}
