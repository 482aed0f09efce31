/* Voting: what a store must be able to do, beyond store.h, to be a node of a set, that is, one of
 * the stores that the quorum store combines. A driver without this table (store_driver.voting)
 * cannot be used for nodes.
 *
 * A node is opened like any store, and joins its set before its first operation. From then on it is
 * asked for locks only with `vote`, and for everything else like any store. Its rules, in addition
 * to those of store.h:
 *
 *  1. A node votes in one set only. It refuses to vote in another with HF_BAD_URL, because the
 *     client's URL names other servers, another quorum or another longest lease than the clients
 *     that came first.
 *  2. A node that has forgotten its set may also have forgotten its votes. It does not vote until
 *     the longest lease has passed (HF_UNREACHABLE), unless the set is new (`founds`).
 *  3. A vote never queues: it is granted, or refused with HF_BUSY.
 *  4. RAISE is granted only if the attempt has the node's vote already; otherwise it is refused
 *     with HF_NOT_YOURS. The token becomes `token` or stays larger, however far that is ahead of
 *     the node's clock.
 *  5. RETAKE is for a hold with the token `token` whose vote the node has lost. It is refused
 *     with HF_NOT_YOURS if the name's counter is above `token`, because somebody else may have
 *     held the lock since. If they are equal, `token` is granted again.
 *  6. A RELEASE or BREAK that ended a hold is announced to all clients of the set (`freed`). This
 *     is a hint, as WAKE is. A vote that is given back is not announced. */
#ifndef STORE_VOTING_H
#define STORE_VOTING_H

#include "store/store.h"

/* What a node knows about its set. It lives as long as the node. */
struct store_set {
    const char *name; /* which all clients must agree on; see store_compare_sets */
    bool founds;      /* the set is new: a node that belongs to none votes at once */
    bool durable;     /* the nodes keep what they acknowledged, even across a restart */
    void (*freed)(struct store_host *host, const char *name);
};

enum store_vote_type {
    STORE_GIVE,   /* as any ACQUIRE that does not wait */
    STORE_RAISE,  /* rule 4 */
    STORE_RETAKE, /* rule 5 */
};

/* A request for a vote. It is complete when `op` is. */
struct store_vote {
    struct store_op op; /* an ACQUIRE; `floor` is for GIVE only */
    enum store_vote_type type;
    uint64_t token;  /* RAISE, RETAKE */
    int64_t node_id; /* out, DONE: the node's own number, which identifies it; 0: none */
};

/* What a set compares among its nodes when it is examined. What a store does not know stays 0 or
 * "". */
struct store_facts {
    int64_t ahead_us, uncertain_us; /* its clock minus this host's; uncertain_us 0: unknown */
    int64_t up_us;                  /* since it was started, at most */
    int64_t node_id;                /* as in a vote */
    int64_t silent_us;              /* for how much longer it will not vote */
    bool durable;                   /* it keeps everything it has acknowledged */
    bool local;                     /* it is on this host */
    bool set_known;                 /* whether the next field is known: */
    char set[256];                  /* the set in which it votes; "": none yet */
    char run[64];                   /* identifies its process */
    char version[64];
    char host[256];   /* as in the URL */
    char address[64]; /* as it reports itself */
};

struct store_voting {
    /* On failure an hf_error and, maybe, malloc'd particulars; the store is then closed. */
    int (*join)(struct store *store, const struct store_set *set, char **ret_text);
    void (*vote)(struct store *store, struct store_vote *vote);
    /* `op` is a RELEASE that is not announced: of a vote that did not win, or that nobody wants any
     * more. */
    void (*give_back)(struct store *store, struct store_op *op);
    /* `op` is an EXAMINE. The store fills in `facts` before it completes it. */
    void (*examine)(struct store *store, struct store_op *op, struct store_facts *facts);
};

/* Rule 5: HF_OK, or HF_NOT_YOURS with malloc'd particulars. `counter` is the name's, or the token
 * of the vote that the attempt still has. If it is `token`, the grant is a repeat
 * (store_next_token). (voting.c) */
int store_check_retake(uint64_t counter, uint64_t token, char **ret_text);

/* For rule 1: refuses a vote in the set `ours`, because the node votes in `theirs`. (voting.c) */
void store_refuse_vote(struct store_host *host, struct store_vote *vote, const char *theirs,
                       const char *ours);

/* What differs in two names of sets, "id/servers/quorum/longest lease in ms[/durable]", for people:
 * malloc'd; maybe NULL. (voting.c) */
char *store_compare_sets(const char *theirs, const char *ours);

#endif
