/* The quorum store: a lock that is held when a majority of N independent stores, the nodes, hold it. It is
 * Redlock, with fencing tokens; docs/REDLOCK.md says what was argued about that and what this does about it, and
 * models/quorum.pml shows why the tokens rise.
 *
 * It is made of the contract alone (store.h): each node is a store of its own kind, asked through `submit`.
 *
 *   quorum.c   the rounds: acquire, renew, release, break
 *   merge.c    what the nodes say when they are looked at or examined, put together
 *   open.c     the URL, and the nodes
 */
#ifndef QUORUM_QUORUM_H
#define QUORUM_QUORUM_H

#include "base/map.h"
#include "store/store.h"
#include "world/world.h"

enum { QUORUM_NODES_MAX = 15 };

struct node {
    struct quorum *quorum;
    size_t index;
    struct store_host host;
    struct store *store;
    int64_t number; /* by which it knows itself; 0: not heard yet */
    char name[80];  /* for people: its host and port */
};

struct quorum {
    struct store store;
    struct store_host *host;
    size_t node_count, quorum;
    int64_t node_timeout_us;
    struct list answers;  /* of nodes, to be worked off */
    bool busy;            /* somebody asks, and will work them off */
    bool ending;
    struct world_bell bell;
    struct list rounds;   /* undecided, the first to be decided first */
    struct list partings; /* releases that a node has not confirmed */
    struct map waiting;   /* attempts that were refused and will ask again, by their names */
    struct world_timer timer;
    char *set;   /* which all clients must name alike */
    bool founds; /* init=yes */
    struct node nodes[]; /* node_count */
};

/* One operation at one node. */
struct errand {
    struct store_op op;
    struct node *node;
    struct round *round;
    bool in_flight;
};

/* A question to all nodes. It is decided as soon as the answers allow, at the latest when a node has had its time;
 * what comes later finds it decided. It is freed when nothing of it is in flight any more. */
struct round {
    struct list link; /* in the quorum's rounds, until it is decided */
    struct quorum *quorum;
    struct store_op *op; /* to be completed; NULL: it is decided, or nobody asked */
    int64_t decide_by_us;
    size_t in_flight;
    void (*answered)(struct round *round, struct errand *errand);
    void (*decide)(struct round *round, bool time_is_up);
    bool (*kept)(const struct round *round); /* NULL: it is not */
    void (*free)(struct round *round);
    struct errand *errands; /* one for each node */
};

/* (quorum.c) A new round of `size` bytes, whose first field it is, with its errands behind it; NULL: no memory. */
void *round_new(struct quorum *quorum, struct store_op *op, size_t size);
/* Puts the question to a node, or to all that are not asked already. */
void round_ask(struct round *round, struct errand *errand);
void round_ask_all(struct round *round);
void round_decided(struct round *round); /* op has been completed */

/* (quorum.c) What open.c needs: fills in a node's host; starts; ends, with the nodes that are open. */
void quorum_join(struct quorum *quorum, struct node *node);
int quorum_start(struct quorum *quorum);
void quorum_end(struct quorum *quorum);

/* (open.c) */
int quorum_open(struct store_host *host, const struct url *url, struct store **ret_store,
                char **ret_text);

/* (merge.c) */
void quorum_look(struct quorum *quorum, struct store_op *op);
void quorum_examine(struct quorum *quorum, struct store_op *op);

#endif
