/* A service: a server that clients take locks from, as the simulator runs it. The simulator feeds
 * it bytes, tells it the time, restarts it, and injects other faults. Checkers see the grants that
 * it reports, and nothing of how it stores them.
 *
 * What a service promises:
 *
 *  - It is pure: no clock, thread, socket or randomness of its own. The same calls in the same
 *    order give the same bytes.
 *  - It executes the requests of a connection in order, one in each call of `feed`.
 *  - It reports every request that asks for, renews, releases or breaks a lock, right after the
 *    reply.
 *  - What it shows to checkers (`held_until_us` and the functions after it) is what its clients
 *    would find. Looking changes nothing.
 *  - It reports at once when it has forgotten something that it had acknowledged (`forgot`), unless
 *    the simulator took it away by restarting it.
 *
 * To add a service: a folder with its model, whose `struct service_type` service_FOLDER is the only
 * global symbol that others use, and a word in sim/meson.build. */
#ifndef SIM_SERVICE_H
#define SIM_SERVICE_H

#include "sim/plan.h"
#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- What a service tells the simulator ---- */

enum service_request { SERVICE_ACQUIRE, SERVICE_RENEW, SERVICE_RELEASE, SERVICE_BREAK };

enum service_outcome {
    SERVICE_FAILED,  /* an error, or an answer that changes nothing */
    SERVICE_GRANTED, /* what was asked for was done */
    SERVICE_QUEUED,  /* an acquire got a place in the queue, or kept it */
    SERVICE_REFUSED, /* held by others; for other requests: no longer the owner's */
};

/* A request and its outcome. Fields that a request does not have are 0. */
struct service_report {
    enum service_request request;
    enum service_outcome outcome;
    const char *name;  /* of a lock, as programs name it; NULL if the owner identifies it */
    const char *owner; /* who asks, in the form of store/locks.h; a break has none */
    uint32_t weight, capacity;
    int64_t lease_us; /* from now, by the server's clock */
    int64_t wait_us;  /* how long a place in the queue lasts */
    uint64_t token;   /* granted, or to be broken */
    uint64_t floor;   /* the least token that was acceptable */
    uint64_t retaken; /* the token of a hold that is taken again, which is granted again; or 0 */
    bool barges;      /* it skips the queue */
    bool only_mine;   /* it asks only for what it has already */
};

/* What was forgotten of locks that had been acknowledged. */
enum service_forgotten {
    FORGOT_PARTS,    /* holds, and maybe places in the queue */
    FORGOT_COUNTERS, /* and the counters of tokens */
    FORGOT_ALL,
};

/* The simulator, as one of its servers sees it. A connection's context is what it was made with. */
struct service_host {
    /* Bytes for a client: a reply, or something that it did not ask for (`pushed`). */
    void (*send)(void *context, const char *bytes, size_t size, bool pushed);
    /* The server closes a connection, after the bytes it has sent. `disconnect` follows. */
    void (*close)(void *context);
    /* Asks for `expire` to be called at this time. Only the last such request counts. */
    void (*arm)(struct service_host *host, int64_t at_us);
    /* A request was executed; `line` has the request and the answer. If it is `minor`, it appears
     * only in a story. */
    void (*executed)(void *context, const char *line, bool minor);
    void (*report)(struct service_host *host, const struct service_report *report);
    /* Of one name, or (NULL) of all. */
    void (*forgot)(struct service_host *host, const char *name, enum service_forgotten what);
    /* A program that does not use holdfast has got the lock. */
    void (*foreign)(struct service_host *host, const char *name);
    /* A line of the story. */
    void (*note)(struct service_host *host, const char *line);
    uint64_t (*random)(struct service_host *host);
};

/* ---- What the simulator does to a service ---- */

/* What a restart keeps. */
enum service_keep {
    SERVICE_KEEP_ALL,   /* as if every write were on the disk at once */
    SERVICE_KEEP_NONE,  /* no persistence */
    SERVICE_KEEP_SAVED, /* what there was at the last `save` */
    SERVICE_KEEP_SOME,  /* each item or not, at random */
};

/* The set of servers that one of them votes in. */
struct service_set {
    int server_count, quorum;
    int number; /* of this server, from 1 */
    int64_t max_lease_ms;
    bool durable;
};

/* A fault that a service may suffer. A generic fault is carried out by the simulator, and needs
 * only its kind. A fault of the service itself has a text and a number, which is passed to
 * `befall`. */
struct service_fault {
    enum fault_kind kind;
    int number;
    const char *text;
    bool calm;          /* everything keeps working */
    int64_t settles_us; /* how long its effects last after its end */
};

struct service_type;

/* One server, and one connection to it: the first members of the model's own structs. */
struct service {
    const struct service_type *type;
    struct service_host *host;
};
struct service_connection {
    struct service *service;
    void *context;
};

struct service_type {
    const char *scheme;                /* of the URL that clients open */
    const char *url_options;           /* that they need here */
    const struct store_driver *driver; /* the store that speaks to it */
    int64_t least_lease_ms;            /* it grants no shorter ones */
    /* How soon a client that has renewed its hold must know that it was taken away, while nothing
     * else goes wrong; 0: by its next renewal. */
    int64_t told_within_us;

    /* All faults that it may suffer, in an order that seeds rely on. */
    const struct service_fault *faults;
    size_t fault_count;

    /* ---- Life. Times are in microseconds, by the server's own clock, which may step. ---- */

    /* The caller is service_open, which fills in `struct service`. */
    struct service *(*open)(void);
    /* Resets it to the state that `open` returned. There are no connections. */
    void (*reset)(struct service *service);
    void (*set_time)(struct service *service, int64_t wall_us);
    /* Drops what has expired, as a server does from time to time, and does whatever else is due. */
    void (*expire)(struct service *service);
    void (*save)(struct service *service);
    /* There are no connections. */
    void (*restart)(struct service *service, enum service_keep keep);
    /* Makes these services the members of one ensemble, even if there is only one. To clients and
     * to checkers they are one service: the first one's clock counts, and only the first one
     * reports, arms and is looked at. NULL: the servers of this service know nothing of each
     * other. */
    void (*unite)(struct service *const *members, int count);
    /* A member of an ensemble stands still (it is stopped, or is down), or continues. NULL: this
     * does not affect the others. */
    void (*stand)(struct service *service, bool still);
    /* Makes it a voter of a set. NULL: this service cannot be one. */
    void (*join)(struct service *service, const struct service_set *set);
    /* One of its own faults begins, or ends. */
    void (*befall)(struct service *service, int number, const struct plan_fault *fault,
                   bool begins);

    /* ---- Connections ---- */

    struct service_connection *(*connect)(struct service *service, void *context);
    void (*disconnect)(struct service_connection *connection);
    /* Takes bytes up to the end of the first request, and executes it. Returns how many it took. */
    size_t (*feed)(struct service_connection *connection, const char *bytes, size_t size);
    /* Whether its client uses it only to receive notifications. */
    bool (*listens)(const struct service_connection *connection);

    /* ---- For checkers ---- */

    /* Until when this owner has the lock; INT64_MIN: it does not. */
    int64_t (*held_until_us)(const struct service *service, const char *name, const char *owner);
    /* The owner that has the lock exclusively; NULL: none that is known. */
    const char *(*holder)(const struct service *service, const char *name);
    /* Whether the lock, or a share of it, is reserved for this owner, which waits. */
    bool (*is_reserved)(const struct service *service, const char *name, const char *owner);
    /* The last token; 0: none is known. */
    uint64_t (*last_token)(const struct service *service, const char *name);
    /* Until when it does not vote in its set, because it may have forgotten its votes; INT64_MAX:
     * it has not been asked since it forgot. */
    int64_t (*abstains_until_us)(const struct service *service);
    /* Reads a counter, and whether it has an end; false: there is none. NULL: this service has no
     * counters. */
    bool (*find_counter)(const struct service *service, const char *name, int64_t *ret_value,
                         bool *ret_ends);
    bool counters_stay; /* they have no expiry */
    /* After all leases have ended: the problem with what is left, or NULL. */
    const char *(*remains)(const struct service *service);
};

/* The service with this scheme, or (NULL) the default; returns NULL if there is none. */
const struct service_type *service_find(const char *scheme);
struct service *service_open(const struct service_type *type, struct service_host *host);

#endif
