/* The server's side of TLS, in memory, for tests of the client's: a certificate that is its own CA,
 * and for each connection the received bytes, the bytes to send, and what the client said. The test
 * chooses names and times; nothing is secret. */
#ifndef TESTS_SUPPORT_TLS_SERVER_H
#define TESTS_SUPPORT_TLS_SERVER_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

struct tls_server {
    SSL_CTX *context;
    char ca[64]; /* the file with its certificate */
};

/* `names` as in subjectAltName: "DNS:db.example,IP:10.0.0.7"; the certificate is valid from and
 * until these seconds of the wall clock. The program ends when something fails. */
void tls_server_open(struct tls_server *server, const char *names, int64_t from_s, int64_t until_s);
/* Whatever the client offers (ALPN), the server chooses this protocol. NULL: it ignores the offer,
 * as it does at first. "": it refuses the connection. */
void tls_server_choose(struct tls_server *server, const char *protocol);
void tls_server_close(struct tls_server *server);

struct tls_peer {
    SSL *ssl;
    BIO *in, *out;
    char said[1 << 21]; /* by the client, and not taken yet */
    size_t said_size;
    bool failed;
};

struct tls_peer *tls_peer_new(struct tls_server *server);
void tls_peer_free(struct tls_peer *peer);
/* Takes what the client sent; `said` grows. */
void tls_peer_feed(struct tls_peer *peer, const void *bytes, size_t size);
void tls_peer_say(struct tls_peer *peer, const void *bytes, size_t size);
/* Takes out the bytes to send to the client; the caller frees them. */
char *tls_peer_take(struct tls_peer *peer, size_t *ret_size);

#endif
