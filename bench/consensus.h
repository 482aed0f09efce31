/* A store in a consensus system beside the bare requests and other clients, in one run: what
 * bench/etcd.c and bench/zookeeper.c share. Each brings the requests, and says whom else to
 * measure. */
#ifndef BENCH_CONSENSUS_H
#define BENCH_CONSENSUS_H

#include <stddef.h>
#include <stdint.h>

/* A bare connection. */
struct raw;
struct raw *raw_connect(const char *host, uint16_t port);
void raw_close(struct raw *to);

/* Ways to take a lock that nobody else wants and to give it back. The first is the limit: the
 * store's own requests. */
struct raw_way {
    const char *what;
    void (*pair)(struct raw *to, const char *name);
};

/* Another client: a peer (process.h). */
struct consensus_peer {
    const char *what, *kind;
    const char *words[8]; /* the program; the server's port is added */
};

struct consensus {
    const char *name; /* of the store */
    struct raw_way ways[2];
    size_t peer_count;
    struct consensus_peer peers[2];
    const char *command[8]; /* what else runs a command under a lock; its first is NULL: nothing */
    const char *endpoint;   /* the option that tells it HOST:PORT */
    const char *command_name;
};

/* The whole program: URL. */
int consensus_main(int argc, char **argv, const struct consensus *consensus);

#endif
