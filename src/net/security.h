/* How the connections of a store are protected, as its URL says: by TLS, or not at all.
 *
 * A URL asks for TLS by its scheme ("https" instead of "http"). The options ca, cert and key, which
 * are files, and server_name are for TLS. Without TLS, only this host and private networks are
 * connected to, unless the option plaintext=yes says that the path is safe. That rule applies to
 * every address that is connected to (wire.h), whether the URL, a name service or a server named
 * it. */
#ifndef NET_SECURITY_H
#define NET_SECURITY_H

#include "base/url.h"
#include "net/tls.h"

enum { NET_SCHEME_SIZE = 32 };

struct net_security {
    struct net_tls *tls; /* NULL: plaintext */
    bool exposed;        /* plaintext may also go to public addresses */
    char tls_scheme[NET_SCHEME_SIZE];
};

/* `tls_scheme` is the scheme of the same URL with TLS. It decides whether this one asks for TLS,
 * and messages recommend it. `protocols` are offered to the server (tls.h). HF_OK, HF_NO_MEMORY, or
 * HF_BAD_URL or HF_NO_STORE with malloc'd particulars. Call net_security_close in any case. */
int net_security_open(struct net_security *security, const struct url *url, const char *tls_scheme,
                      const char *const *protocols, char **ret_text);

/* To be called when all wires that use it are dropped. Accepts a zeroed one. */
void net_security_close(struct net_security *security);

#endif
