/* The quorum store: a lock that is held when a majority of N independent stores, the nodes, hold
 * it. It is Redlock, with fencing tokens; docs/REDLOCK.md has the arguments about Redlock and what
 * this store does about them, and models/quorum.pml shows why the tokens rise.
 *
 * It relies on two contracts only: each node is a store (store.h) that votes (voting.h).
 *
 *   open.c             the URL, and opening the nodes
 *   quorum.c           the driver, and breaking
 *   round.c            a request to all nodes at once, and the replies
 *   attempt.c          what is known of each attempt; who waits; which holds were ended by others
 *   ballot.c           acquiring
 *   renewing.c         renewing
 *   pending_release.c  releasing, also of votes from ballots that were lost
 *   merge.c            inspecting: what the nodes have, put together
 *   examine.c          examining: what nodes find about themselves, and what follows for the set
 * */
#ifndef QUORUM_QUORUM_H
#define QUORUM_QUORUM_H

#include "base/map.h"
#include "store/voting.h"
#include "world/world.h"

enum {
    QUORUM_NODES_MAX = 15,
    /* How long a majority may take when no lease runs meanwhile, and an early answer would only be
     * "unknown": releasing, breaking, listing. */
    QUORUM_PATIENCE_US = 2000000
};

struct node {
    struct quorum *quorum;
    size_t index;
    struct store_host host;
    struct store *store;
    int64_t node_id; /* its own number; 0: it has none */
    bool identified; /* it has voted, so node_id is known */
    bool met;        /* it has answered something */
    bool owed;       /* a release is pending there, and it has been silent since */
    size_t in_flight;
    int64_t silent_us; /* if something is in flight: since when it has not replied */
    /* The first ballot in which it was skipped, if it has not replied since; 0: none. */
    uint64_t skipped_since;
    char name[80]; /* for people: its host and port */
    char why[160]; /* why it did not vote the last time; "": it did */
};

struct quorum {
    struct store store;
    struct store_host *host;
    size_t node_count, quorum;
    int64_t node_timeout_us;
    uint64_t ballots;    /* how many there were, for their ids */
    struct list answers; /* completed operations of nodes, to be processed */
    bool busy;           /* between quorum_begin and quorum_finish, which processes them */
    bool ending;
    struct world_bell bell;
    struct list rounds;  /* undecided, by the time at which they must be decided */
    struct list retries; /* attempts that do not wait, whose votes were split: repeated soon */
    struct list pending_releases; /* releases that a node has not confirmed */
    size_t pending_release_count; /* in that list */
    struct list renewals;         /* rounds that renew, until all nodes have answered */
    struct map votes;             /* rounds that ask for votes, likewise, by their ballots */
    struct map attempts;          /* by their numbers */
    struct map asking;            /* those that do not have the lock, by the hash of its name */
    struct list woken;            /* those of them that will be woken soon, each at its own time */
    struct list released;         /* attempts whose release is not confirmed, oldest first */
    unsigned crowd;               /* how often votes were split, less how often a ballot was won */
    int64_t ballot_us;            /* how long a ballot usually takes */
    struct map ended;             /* holds that some nodes report as ended, by their ballots */
    struct world_timer timer;
    struct store_set set;
    char *set_name;      /* which all clients must agree on */
    struct node nodes[]; /* node_count */
};

/* An operation of one node. */
struct node_request {
    union {
        struct store_op op;
        struct store_vote vote; /* if it is an ACQUIRE */
    };
    struct store_facts *facts; /* EXAMINE: to be filled in */
    bool quiet;                /* RELEASE: give_back, which is not announced */
    struct node *node;
    struct round *round;
    bool in_flight;
    bool skipped; /* the node was not asked */
};

/* A request to all nodes. It is decided as soon as the answers allow, and at the latest after
 * node_timeout, plus whatever quorum_round_waits_on adds to it. Answers may come after that; it is
 * freed when nothing is in flight any more. */
struct round {
    struct list link; /* in the quorum's rounds, until it is decided */
    struct quorum *quorum;
    struct store_op *op;             /* completed when it is decided; then NULL */
    int64_t decide_by_us, within_us; /* as of the last request */
    size_t in_flight;
    bool waited;            /* already longer than node_timeout */
    bool kept;              /* it is not freed yet: it will be repeated, or is needed for `above` */
    struct map_node voting; /* in the quorum's votes, if it asks for votes */
    uint64_t ballot_id;     /* then the ballot's; else 0 */
    uint32_t above; /* nodes whose votes came late and with a larger token than the lock's */
    bool over;      /* the ballot was lost, or its hold has ended */
    uint32_t
        given_up; /* nodes that confirmed a release before they voted: such a vote is given back */
    void (*answered)(struct round *round, struct node_request *request);
    void (*decide)(struct round *round, bool time_is_up);
    void (*clear)(struct round *round); /* before it is freed; may be NULL */
    struct node_request *requests;      /* one for each node */
};

/* (round.c) Allocates `size` bytes that begin with a round, and its requests. NULL: no memory. */
void *quorum_round_new(struct quorum *quorum, struct store_op *op, size_t size);
/* Sends the request to one node, or to all. A node that is behind may be skipped: then its outcome
 * is UNKNOWN. Answers are never processed inside these calls. */
void quorum_round_ask(struct round *round, struct node_request *request);
void quorum_round_ask_all(struct round *round);
/* For texts that are stored after a round: the size of one (NULL: 0), and a copy of it at *at,
 * which moves on. */
size_t quorum_text_size(const char *text);
char *quorum_copy_text(char **at, const char *text);
/* The round asks for votes of this ballot. A vote that arrives after its release will be given
 * back. */
void quorum_round_votes(struct round *round, uint64_t ballot_id);
/* The next round after `round` that asks for votes of this ballot; the first, if `round` is NULL.
 * NULL: none. */
struct round *quorum_ballot_round(struct quorum *quorum, uint64_t ballot_id,
                                  const struct round *round);
/* True if the node's renewals of this hold do not count, because its vote had a larger token than
 * the lock. */
bool quorum_is_above_token(const struct node *node, uint64_t ballot_id);
/* The hold, or the ballot, has ended. */
void quorum_end_votes(struct quorum *quorum, uint64_t ballot_id);
/* It must be decided within this time from now. */
void quorum_round_await(struct round *round, int64_t within_us);
/* It is decided. Returns the operation, which the caller completes. */
struct store_op *quorum_round_decided(struct round *round);
void quorum_round_free_if_over(struct round *round);
/* For rounds that may take longer: they wait for all nodes until node_timeout, and then for up to
 * `longer_us` until enough of them have done it. True: it is still waiting. */
bool quorum_round_waits_on(struct round *round, bool time_is_up, size_t needed, int64_t longer_us);
size_t quorum_round_answers(const struct round *round); /* how many have done it */
/* For rounds that only read: they ignore single answers. */
void quorum_round_ignore(struct round *round, struct node_request *request);
/* The reason that most of the failed nodes give, if at least `least` of them do; else
 * HF_UNREACHABLE. */
int quorum_round_reason(const struct round *round, size_t least);
/* The same, if the nodes that give it leave too few others for a quorum. Otherwise the nodes that
 * are silent are the cause, and may come back. */
int quorum_round_final_reason(const struct round *round);
/* Why the node failed, in words; "": it did not, or somebody else holds the lock, or there is still
 * time. */
enum { REQUEST_FAILURE_SIZE = 400 };
const char *quorum_request_failure(const struct node_request *request,
                                   char ret[REQUEST_FAILURE_SIZE]);
/* `words`, then what went wrong at which node; malloc'd, maybe NULL. */
char *quorum_round_explain(const struct round *round, const char *words);

/* Around everything that sends requests to nodes. quorum_finish processes the answers. */
void quorum_begin(struct quorum *quorum);
void quorum_finish(struct quorum *quorum);
void quorum_completed(struct store_host *host, struct store_op *op); /* a node's host->completed */
void quorum_bell_rang(struct world_bell *bell);
void quorum_wake_by(struct quorum *quorum, int64_t at_us); /* the timer is due then, or earlier */

static inline int64_t quorum_now_us(const struct quorum *quorum) {
    return world_now_us(quorum->host->world);
}

/* (ballot.c) Notes which node this is, as its vote says. */
void quorum_on_reply(struct node_request *request);
/* True if the node is known not to be an earlier node under another name. Only then do its renewals
 * count. */
bool quorum_is_distinct(const struct quorum *quorum, const struct node *node);
void quorum_acquire(struct quorum *quorum, struct store_op *op);
/* For attempts that do not wait. The first schedules a repeat after retry_in_us; the second repeats
 * those that are due. */
void quorum_retry_later(struct quorum *quorum, struct store_op *op);
void quorum_retry_ballots(struct quorum *quorum);

/* (renewing.c) */
void quorum_renew(struct quorum *quorum, struct store_op *op);
void quorum_end_renewals(struct quorum *quorum,
                         uint64_t ballot_id); /* of a hold that is released */

/* (pending_release.c) */
void quorum_release(struct quorum *quorum, struct store_op *op);
/* Releases the votes of a lost ballot at all nodes but those that refused it. Completes `op` with
 * `result` when the nodes that had granted it have confirmed. False: no memory. */
bool quorum_take_back(struct quorum *quorum, struct store_op *op, enum store_outcome result,
                      uint32_t granted, uint32_t refused);
/* Releases votes that nobody wants any more, at one node or (NULL) at all. Nobody waits for that.
 * If there is no memory, they end with their leases. */
void quorum_give_back(struct quorum *quorum, const struct store_op *vote, const struct node *at);
void quorum_give_back_if_late(struct round *round, struct node_request *request);
/* Repeat releases that are due at nodes that have not confirmed them; return when the next is due,
 * or WORLD_NEVER; give up all of them. */
void quorum_retry_releases(struct quorum *quorum);
void quorum_retry_releases_at(struct node *node); /* which answers again */
int64_t quorum_next_release_us(const struct quorum *quorum);
void quorum_end_releases(struct quorum *quorum);

/* (attempt.c) What the set knows about an attempt, from its first ballot until it has nothing at
 * the nodes. */
struct quorum_attempt {
    struct map_node by_seq, by_name;
    uint64_t seq;
    uint64_t ballot_id; /* of the votes that it has or may have; 0: none */
    bool asks;          /* it does not have the lock */
    uint32_t refused;   /* by which nodes: it is woken if one of them announces a release */
    uint32_t freed;     /* by which nodes it was announced before their refusals arrived */
    uint8_t splits;     /* how often its votes were split */
    bool waits;         /* STORE_WAIT */
    bool shares;
    int64_t since_us;
    struct list woken; /* in the quorum's list, or in none */
    int64_t wake_at_us;
    struct list retry;   /* in the quorum's retries, or in none */
    struct store_op *op; /* while in the retries: the operation */
    int64_t retry_in_us, retry_at_us;
    struct list released; /* in the quorum's list, or in none */
    int64_t released_us;  /* when its first release was asked for */
};
struct quorum_attempt *quorum_attempt_find(struct quorum *quorum, uint64_t seq); /* NULL: none */
/* Starts a ballot of the attempt, with a new id. NULL: no memory. */
struct quorum_attempt *quorum_attempt_ask(struct quorum *quorum, const struct store_op *op);
void quorum_attempt_refused(struct quorum *quorum, uint64_t seq, const struct node *by);
void quorum_attempt_stop_asking(struct quorum *quorum, struct quorum_attempt *attempt);
/* Its release is being sent. The attempt is kept until that is confirmed, or the engine must have
 * given up. */
void quorum_attempt_released(struct quorum *quorum, struct quorum_attempt *attempt);
/* It has nothing at the nodes any more; `attempt` may be NULL. */
void quorum_attempt_end(struct quorum *quorum, struct quorum_attempt *attempt);
void quorum_attempts_clear(struct quorum *quorum);
void quorum_attempts_freed(struct quorum *quorum, const struct node *node, const char *name);
void quorum_wake_due(struct quorum *quorum);
/* A random delay, so that clients that ask for the same lock do not ask at once. Its range grows
 * with split votes. */
int64_t quorum_scatter_us(struct quorum *quorum);
/* The first is a node's host->gone. The second forgets what nodes reported about a hold that has
 * ended. */
void quorum_gone(struct store_host *host, uint64_t ballot_id);
void quorum_forget_gone(struct quorum *quorum, uint64_t ballot_id);

/* A ballot_id is the attempt's `seq` and, in its last bits, the ballot's number. */
enum { BALLOT_BITS = 24 };

/* (quorum.c) For open.c: the set's `freed`; fills in a node's host; starts; ends, and closes the
 * nodes that are open. */
void quorum_freed(struct store_host *host, const char *name);
void quorum_join(struct quorum *quorum, struct node *node);
int quorum_start(struct quorum *quorum);
void quorum_end(struct quorum *quorum);

/* (open.c) */
int quorum_open(struct store_host *host, const struct url *url, struct store **ret_store,
                char **ret_text);

/* (merge.c, examine.c) */
void quorum_look(struct quorum *quorum, struct store_op *op);
void quorum_examine(struct quorum *quorum, struct store_op *op);

#endif
