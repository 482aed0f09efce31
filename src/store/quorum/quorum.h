/* The quorum store: a lock that is held when a majority of N independent stores, the nodes, hold it. It is
 * Redlock, with fencing tokens; docs/REDLOCK.md says what was argued about that and what this does about it, and
 * models/quorum.pml shows why the tokens rise.
 *
 * It is made of the contract alone (store.h): each node is a store of its own kind, asked through `submit`.
 *
 *   round.c    a question to all nodes, and its answers
 *   ballot.c   acquiring
 *   renewing.c
 *   pending_release.c  releasing, and what was lost
 *   quorum.c   the driver, and breaking
 *   attempt.c  who was refused and waits, and which holds were ended by others
 *   merge.c    what the nodes say when they are looked at, put together
 *   examine.c  what they say when they are examined, and what the set makes of it
 *   open.c     the URL, and the nodes
 */
#ifndef QUORUM_QUORUM_H
#define QUORUM_QUORUM_H

#include "base/map.h"
#include "store/voting.h"
#include "world/world.h"

enum { QUORUM_NODES_MAX = 15 };

struct node {
    struct quorum *quorum;
    size_t index;
    struct store_host host;
    struct store *store;
    int64_t node_id; /* by which it knows itself; 0: it has none */
    bool identified; /* it has voted, so node_id is known */
    bool met;        /* it has answered something */
    bool owed;       /* a release, by somebody who has had no word from it since */
    size_t in_flight;
    int64_t silent_us; /* since when it has said nothing, if something is in flight */
    uint64_t
        skipped_since; /* the first ballot for which it was not asked, and nothing was heard since; 0: none */
    char name[80]; /* for people: its host and port */
    char why[160]; /* why it did not vote the last time; "": it did */
};

struct quorum {
    struct store store;
    struct store_host *host;
    size_t node_count, quorum;
    int64_t node_timeout_us;
    uint64_t ballots;    /* that were held, for their numbers */
    struct list answers; /* of nodes, to be worked off */
    bool busy;           /* somebody asks, and will work them off */
    bool ending;
    struct world_bell bell;
    struct list rounds; /* undecided, the first to be decided first */
    struct list
        retries; /* attempts that do not wait, whose votes were split: they soon ask again */
    struct list pending_releases; /* releases that a node has not confirmed */
    size_t pending_release_count; /* in that list */
    struct list renewals;         /* rounds that renew, while a node has not answered */
    struct map votes;             /* rounds that ask for votes, likewise, by their marks */
    struct map attempts;          /* by their numbers */
    struct map asking;            /* those that do not have the lock, by the hash of its name */
    struct list released;         /* those whose release is not confirmed, the first one first */
    struct list woken;            /* those of them that will be woken, each at its time */
    unsigned crowd;               /* how often votes were split, less how often a ballot was won */
    int64_t ballot_us;            /* that a ballot takes, as a rule */
    struct map ended;             /* holds that some nodes say were ended, by their marks */
    struct world_timer timer;
    struct store_set set;
    char *set_name;      /* which all clients must agree on */
    struct node nodes[]; /* node_count */
};

/* One operation at one node. */
struct node_request {
    union {
        struct store_op op;
        struct store_vote vote; /* if it is an ACQUIRE */
    };
    struct store_facts *facts; /* EXAMINE: to be filled in */
    bool quiet;                /* RELEASE: it is not announced that the lock is free */
    struct node *node;
    struct round *round;
    bool in_flight;
    bool skipped; /* the node was not asked */
};

/* A question to all nodes. It is decided as soon as the answers allow, at the latest when a node has had its time;
 * what comes later finds it decided. It is freed when nothing of it is in flight any more. */
struct round {
    struct list link; /* in the quorum's rounds, until it is decided */
    struct quorum *quorum;
    struct store_op *op;             /* to be completed by whoever decides it */
    int64_t decide_by_us, within_us; /* (of the last asking) */
    size_t in_flight;
    bool waited;            /* longer than a node has for a vote */
    bool kept;              /* it is not freed: it will be asked again, or is kept for `above` */
    struct map_node voting; /* in the quorum's votes, if it asks for some */
    uint64_t ballot_id;     /* for this ballot; 0: it does not */
    uint32_t above;    /* nodes whose votes came late and above the token; it is kept for that */
    bool over;         /* what it asked for was lost, or let go */
    uint32_t given_up; /* by which nodes, before their votes came: those are given back */
    void (*answered)(struct round *round, struct node_request *request);
    void (*decide)(struct round *round, bool time_is_up);
    void (*clear)(struct round *round); /* before it is freed; NULL: nothing but texts is to be */
    struct node_request *requests;      /* one for each node */
};

/* (round.c) A new round of `size` bytes, whose first field it is, with its requests behind it; NULL: no memory. */
void *quorum_round_new(struct quorum *quorum, struct store_op *op, size_t size);
/* Puts the question to a node, or to all; a node that is behind may be skipped it, and has not answered then. Answers
 * are never worked off within. */
void quorum_round_ask(struct round *round, struct node_request *request);
void quorum_round_ask_all(struct round *round);
/* Room for texts behind a round: how much one takes, and a copy of it, NULL if it is; *at is moved on. */
size_t quorum_text_size(const char *text);
char *quorum_copy_text(char **at, const char *text);
/* It asks for votes: those that come behind their release will be given back. */
void quorum_round_votes(struct round *round, uint64_t ballot_id);
/* The next round that asks for votes of that ballot, or the first if `round` is NULL; NULL: there is none. */
struct round *quorum_ballot_round(struct quorum *quorum, uint64_t ballot_id,
                                  const struct round *round);
/* If what a node says to a renewal of this hold does not count, as its vote was above the token; and that the hold is
 * over, after which nobody asks. */
bool quorum_is_above_token(const struct node *node, uint64_t ballot_id);
void quorum_end_votes(struct quorum *quorum, uint64_t ballot_id);
/* Has it decided within this time from now. */
void quorum_round_await(struct round *round, int64_t within_us);
/* It is decided. Returns the operation, which is to be completed. */
struct store_op *quorum_round_decided(struct round *round);
void quorum_round_free_if_over(struct round *round);
/* Rounds that look have nothing to do with a single answer. They wait for all nodes, as long as those have time: it is
 * what each says that is of interest; and longer for as many as are needed, as a walk over many names takes its time.
 * True: it goes on waiting. */
void quorum_round_ignore(struct round *round, struct node_request *request);
size_t quorum_round_answers(const struct round *round);
bool quorum_round_waits_on(struct round *round, bool time_is_up, size_t needed, int64_t longer_us);
/* Why the node did not do what it was asked, in words; "": it did, another has it, or its time is not up. */
enum { REQUEST_FAILURE_SIZE = 400 };
const char *quorum_request_failure(const struct node_request *request,
                                   char ret[REQUEST_FAILURE_SIZE]);
/* What went wrong at which nodes, after some words; malloc'd, maybe NULL. */
char *quorum_round_explain(const struct round *round, const char *words);

/* Around everything that asks nodes: their answers are worked off at the end. */
void quorum_begin(struct quorum *quorum);
void quorum_finish(struct quorum *quorum);
void quorum_completed(struct store_host *host, struct store_op *op); /* a node's host->completed */
void quorum_bell_rang(struct world_bell *bell);
void quorum_wake_by(struct quorum *quorum,
                    int64_t at_us); /* sets the timer, if it is not earlier */

static inline int64_t quorum_now_us(const struct quorum *quorum) {
    return world_now_us(quorum->host->world);
}

/* (ballot.c) A vote says who the node is; and if what it says to a renewal counts. */
void quorum_on_reply(struct node_request *request);
bool quorum_is_distinct(const struct quorum *quorum, const struct node *node);
void quorum_acquire(struct quorum *quorum, struct store_op *op);
/* An attempt that does not wait asks again after its retry_in_us; and those whose time has come do. */
void quorum_retry_later(struct quorum *quorum, struct store_op *op);
void quorum_retry_ballots(struct quorum *quorum);

/* (renewing.c) */
void quorum_renew(struct quorum *quorum, struct store_op *op);
void quorum_end_renewals(struct quorum *quorum, uint64_t ballot_id); /* of a hold that is let go */

/* (pending_release.c) */
void quorum_release(struct quorum *quorum, struct store_op *op);
/* Takes a ballot back that was lost, on all nodes but those that refused it, and completes it with `result` when those
 * that had granted it have confirmed. False: no memory. */
bool quorum_take_back(struct quorum *quorum, struct store_op *op, enum store_outcome result,
                      uint32_t granted, uint32_t refused);
/* Nobody wants the votes of a ballot any more, or waits for their return: gives them back where `at` is, or on all
 * nodes. Without memory they are left to their leases. */
void quorum_give_back(struct quorum *quorum, const struct store_op *vote, const struct node *at);
void quorum_give_back_if_late(struct round *round, struct node_request *request);
/* Asks the nodes again that have not confirmed; when that is due next, or WORLD_NEVER; and no more. */
void quorum_retry_releases(struct quorum *quorum);
void quorum_retry_releases_at(struct node *node); /* which has been heard of again */
int64_t quorum_next_release_us(const struct quorum *quorum);
void quorum_end_releases(struct quorum *quorum);

/* (attempt.c) What the set knows of an attempt, from its first ballot until it has nothing at the nodes. */
struct quorum_attempt {
    struct map_node by_seq, by_name;
    uint64_t seq;
    uint64_t ballot_id; /* of the votes that it has or may have; 0: none */
    bool asks;          /* it does not have the lock */
    uint32_t refused;   /* by which nodes: a word of theirs that it is free wakes it */
    uint32_t freed;     /* by which nodes, before their refusal was heard */
    uint8_t splits;     /* of votes, since it began */
    bool waits;         /* and can be woken; else it only tries */
    bool shares;
    int64_t since_us;
    struct list woken; /* in the quorum's list, or in none */
    int64_t wake_at_us;
    struct list retry;   /* in the quorum's retries, or in none; */
    struct store_op *op; /* then the operation */
    int64_t retry_in_us, retry_at_us;
    struct list released; /* in the quorum's list, or in none */
    int64_t released_us;  /* when its first release was asked for */
};
struct quorum_attempt *quorum_attempt_find(struct quorum *quorum, uint64_t seq); /* NULL: none */
/* It begins a ballot, with a new id. NULL: no memory. */
struct quorum_attempt *quorum_attempt_ask(struct quorum *quorum, const struct store_op *op);
void quorum_attempt_refused(struct quorum *quorum, uint64_t seq, const struct node *by);
void quorum_attempt_stop_asking(struct quorum *quorum, struct quorum_attempt *attempt);
/* Its release goes out. It is kept until that is confirmed, or the engine must have given up. */
void quorum_attempt_released(struct quorum *quorum, struct quorum_attempt *attempt);
/* It has nothing at the nodes any more; `attempt` may be NULL. */
void quorum_attempt_end(struct quorum *quorum, struct quorum_attempt *attempt);
void quorum_attempts_clear(struct quorum *quorum);
void quorum_attempts_freed(struct quorum *quorum, const struct node *node, const char *name);
void quorum_wake_due(struct quorum *quorum);
/* A time of one's own among others who ask for the same: the more votes were split, the longer it may be. */
int64_t quorum_scatter_us(struct quorum *quorum);
/* A node's host->gone, and what is known of that when the hold has ended. */
void quorum_gone(struct store_host *host, uint64_t ballot_id);
void quorum_forget_gone(struct quorum *quorum, uint64_t ballot_id);

/* A ballot's ballot_id: the attempt's number, and the ballot's own. */
enum { BALLOT_BITS = 24 };

/* (quorum.c) What open.c needs: the set's `freed`; fills in a node's host; starts; ends, with the nodes that are open. */
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
