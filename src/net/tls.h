/* TLS as a filter of bytes. What came from the server goes in (feed) and what it said comes out (read); what is to
 * be said goes in (write) and what is to be sent comes out (pending, sent). It knows no socket, thread or clock,
 * for it is told the time, and nothing of Redis.
 *
 * It promises that nothing is said before the server has shown a certificate that is valid now, for the name
 * that was asked for, and from somebody who is trusted; there is no way to ask for less.
 *
 * It is a module (module.h) of its own, with one symbol, so that OpenSSL is loaded only where a URL asks for it. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_TLS_ABI 2
#define NET_TLS_MODULE "tls"
#define NET_TLS_MODULE_SYMBOL "holdfast_tls"

struct net_tls_settings {
    const char *name;       /* whom certificates must be for; NULL: for the host of each server */
    const char *ca;         /* a file or a folder with those who are trusted; NULL: the system's */
    const char *cert, *key; /* files with what shows who we are; NULL: nothing does */
};

/* Whom to trust, who we are, and the last sessions with each server, for connections to begin with. */
struct net_tls {
    const struct net_tls_module *module;
};

/* One connection. */
struct net_tls_channel {
    struct net_tls *tls;
    bool open;    /* the handshake is done: there may be writing */
    bool resumed; /* with a session of before */
    int reason;   /* it has failed, or ended: the hf_error, and a sentence */
    char why[480];
};

/* When the first certificate expires of the servers' that were seen and those above them, and our own: wall clock, in
 * microseconds. 0: none was seen yet, or there is none. */
struct net_tls_expiries {
    int64_t server_us, own_us;
};

struct net_tls_module {
    unsigned abi;
    /* HF_OK, HF_NO_MEMORY, or HF_BAD_URL with malloc'd particulars: a file that is missing or wrong. */
    int (*open)(const struct net_tls_settings *settings, struct net_tls **ret_tls, char **ret_text);
    /* When its channels have ended. */
    void (*close)(struct net_tls *tls);
    void (*expiries)(const struct net_tls *tls, struct net_tls_expiries *ret);

    /* Begins a connection to the server at this host, a name or an address, and port, at this time of the wall clock; then
     * there is something to send, or a reason why not. NULL: no memory. */
    struct net_tls_channel *(*start)(struct net_tls *tls, const char *host, uint16_t port,
                                     int64_t wall_us);
    void (*end)(struct net_tls_channel *channel);
    /* Takes bytes of the server's. False: no memory. */
    bool (*feed)(struct net_tls_channel *channel, const void *bytes, size_t size);
    /* What was said, of what was fed. Above 0: so many bytes. 0: nothing, until more is fed. Below 0: `reason` and
     * `why` tell. There may be something to send in each case. */
    int (*read)(struct net_tls_channel *channel, void *room, size_t size);
    /* When it is open. False: no memory, and then this connection is of no more use. */
    bool (*write)(struct net_tls_channel *channel, const void *bytes, size_t size);
    /* What is to be sent, until it is said that this was done. */
    size_t (*pending)(const struct net_tls_channel *channel, const char **ret_bytes);
    void (*sent)(struct net_tls_channel *channel);
};

#endif
