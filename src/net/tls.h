/* TLS as a filter of bytes. Bytes from the server go in (feed) and what it said comes out (read);
 * what the client says goes in (write) and the bytes to send come out (pending, sent). It knows
 * nothing about sockets, threads or clocks: the caller gives it the time.
 *
 * Promise: the client's data is not sent before the server has shown a certificate that is valid
 * now, is for the right name, and comes from a trusted CA. No setting weakens that.
 *
 * It is a separate module (base/module.h) with one symbol, so that OpenSSL is loaded only if a URL
 * asks for TLS. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_TLS_ABI 3
#define NET_TLS_MODULE "tls"
#define NET_TLS_MODULE_SYMBOL "holdfast_tls"

struct net_tls_settings {
    const char *name;       /* that certificates must be for; NULL: the host of each server */
    const char *ca;         /* a file or folder with the trusted CAs; NULL: the system's */
    const char *cert, *key; /* files with the client's certificate; NULL: it has none */
    /* Protocols to offer (ALPN), the best first, and NULL at the end; they must live as long as the
     * net_tls. NULL: none are offered. */
    const char *const *protocols;
};

/* The settings, and for each server the last sessions, which later connections resume. */
struct net_tls {
    const struct net_tls_module *module;
};

/* One connection. */
struct net_tls_channel {
    struct net_tls *tls;
    bool open;            /* the handshake is done: `write` is allowed */
    bool resumed;         /* from an earlier session */
    const char *protocol; /* of those offered, the one that the server chose; NULL: none of them */
    int reason;           /* it has failed, or ended: the hf_error, and a sentence */
    char why[480];
};

/* When the first certificate expires: of the servers seen so far and the CAs above them, and of the
 * client. Wall clock, in microseconds; 0: none was seen yet, or there is none. */
struct net_tls_expiries {
    int64_t server_us, own_us;
};

struct net_tls_module {
    unsigned abi;
    /* HF_OK, HF_NO_MEMORY, or HF_BAD_URL with malloc'd particulars: a file is missing or wrong. */
    int (*open)(const struct net_tls_settings *settings, struct net_tls **ret_tls, char **ret_text);
    /* After all its channels have ended. */
    void (*close)(struct net_tls *tls);
    void (*expiries)(const struct net_tls *tls, struct net_tls_expiries *ret);

    /* Starts a connection to the server at this host (a name or an address) and port, at this time
     * of the wall clock. There is then something to send, or `reason` is set. NULL: no memory. */
    struct net_tls_channel *(*start)(struct net_tls *tls, const char *host, uint16_t port,
                                     int64_t wall_us);
    void (*end)(struct net_tls_channel *channel);
    /* Takes bytes from the server. False: no memory. */
    bool (*feed)(struct net_tls_channel *channel, const void *bytes, size_t size);
    /* What the server said, in the bytes that were fed. Above 0: the number of bytes. 0: nothing
     * until more is fed. Below 0: see `reason` and `why`. In each case there may be something to
     * send. */
    int (*read)(struct net_tls_channel *channel, void *room, size_t size);
    /* Only when it is open. False: no memory, and the connection cannot be used any more. */
    bool (*write)(struct net_tls_channel *channel, const void *bytes, size_t size);
    /* The bytes to send; they stay until `sent` is called. */
    size_t (*pending)(const struct net_tls_channel *channel, const char **ret_bytes);
    void (*sent)(struct net_tls_channel *channel);
};

#endif
