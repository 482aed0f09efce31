/* The etcd store: what its files share.
 *
 *   etcd.c     the store: its URL, opening, closing, errors
 *   claims.c   acquire, release, break: what an attempt asks for, step by step
 *   queue.c    the claims on a name, as they are in etcd, and whose turn it is
 *   lease.c    the leases of this client, and renewals
 *   watch.c    the one stream on which etcd reports what happens to keys
 *   changes.c  reports changes of locks to watchers
 *   counters.c counters
 *   look.c     inspect and list
 *   examine.c  what doctor asks
 *   txn.c      transactions as messages
 *   link.c     the connection; grpc.c: gRPC as bytes
 *
 * Keys, all below the URL's prefix:
 *
 *   NAME/OWNER      an attempt: a place in the queue, or a hold; its value is a Claim (etcd.proto).
 *                   With '!' before OWNER if it barges. Any other key NAME/ID, where ID is
 *                   the key's lease in hex, is a lock of etcd's own clients.
 *   \0base          what is added to revisions to make tokens
 *   \0broken/NAME   the last break of a name, for a week
 *   \0count/NAME    a counter: the number in decimal digits
 *   \0counted/NAME/CLIENT   the last answer to this client, for a few minutes
 *
 * No name contains a NUL. */
#ifndef ETCD_ETCD_H
#define ETCD_ETCD_H

#include "base/map.h"
#include "base/url.h"
#include "store/etcd/etcd.pb-c.h"
#include "store/etcd/link.h"
#include "store/locks.h"
#include "store/store.h"

enum { ETCD_PREFIX_MAX = 50, ETCD_KEY_MAX = 400 };

struct etcd_key {
    size_t size;
    uint8_t bytes[ETCD_KEY_MAX];
};

/* A lease of this client. Attempts with leases of the same length share one. */
struct etcd_lease {
    struct list link;
    int64_t id;         /* 0: it is being granted */
    int64_t seconds;    /* that were asked for; the server may have given more */
    int64_t granted_us; /* when it was asked for */
    int64_t until_us;   /* when it may be over, if it is not kept alive */
    int64_t kept_us;    /* when the last keep-alive that succeeded was sent */
    bool is_over;       /* the server does not have it (any more) */
    struct list attempts;
    struct list waiting; /* steps that wait for it to be granted */
};

/* What this client knows of an attempt that may be in etcd. */
struct etcd_attempt {
    struct map_node by_seq;
    struct list link;         /* among those of its lease */
    struct etcd_lease *lease; /* NULL: nothing was written yet */
    uint64_t seq;
    int64_t until_us; /* when its own lease, or its place in the queue, ends */
    bool held, queued;
    unsigned users;           /* operations under way, with it or on it */
    struct map_node by_name;  /* while it is being released */
    bool is_released;         /* and only kept until its key is certainly gone */
    bool may_be_late;         /* a request that writes its key may still be under way */
    struct etcd_call *ending; /* deletes its key, and nobody waits for that; NULL: none */
    struct map_node by_watch;
    int64_t watch;          /* the id of its watcher; 0: none */
    int64_t watched_create; /* the key that is watched, by its create revision; 0: the own one */
    bool sees_puts;         /* it is watched for more than its end */
    int64_t create;         /* queued: the create revision of the own key */
    bool is_woken;          /* queued: what it waited for is gone */
    struct list young;      /* held for less than a moment */
    int64_t young_until_us;
    int64_t revision;  /* at which the keys were read: later events are news */
    size_t range_size; /* of the key's beginning, which all attempts at the name share */
    struct etcd_key key;
};

/* What is reported to a watcher of locks. */
struct etcd_changes {
    char *names;        /* those that begin with this; NULL: nobody watches */
    int64_t watch;      /* the id of its watcher; 0: none */
    int64_t next;       /* the first revision that was not reported; 0: not known */
    int64_t asked_next; /* the same, when the cluster was asked for its revision */
    int64_t old_until;  /* revisions up to this one are older than the watcher */
    bool is_asked, is_live;
    struct list queue; /* of changes, in order */
    struct world_timer timer;
};

struct etcd {
    struct store store;
    struct store_host *host;
    struct net_login login;
    struct net_security security;
    char *prefix;
    struct world_peer *peers;
    char **hosts;
    size_t host_count;
    int64_t timeout_us;
    struct etcd_link link;
    struct etcd_link **probes; /* to each member, once it was examined; NULL: none was */
    bool is_closing;
    struct map attempts; /* by seq */
    /* Requests on one connection are not executed in order. So operations on a name wait for its
     * releases that are under way. */
    struct map releasing;  /* attempts by the hash of the name */
    struct list held_back; /* operations */
    struct list leases;
    struct list late;      /* attempts that nobody wants, whose keys are to be deleted */
    uint64_t base;         /* of tokens, as far as it is known */
    int64_t base_revision; /* at which it was written; 0: there is none */
    bool floor_is_set;     /* the base is not below what token_floor asks for */
    struct grpc_call watch;
    struct map watchers; /* attempts by watch id */
    int64_t last_watch;
    int64_t watch_from_us; /* after a stream has failed: no other one before this */
    bool missed;           /* the stream has ended: something may have happened since */
    struct list young;
    struct world_timer young_timer;
    struct etcd_changes changes;
    struct list counting; /* counts that pause because others also change the counter */
};

/* ---- txn.c ---- */

enum { TXN_COMPARES = 4 };

struct txn_op {
    Etcd__RequestOp op;
    Etcd__RangeRequest range;
    Etcd__PutRequest put;
    Etcd__DeleteRangeRequest del;
};

struct txn {
    Etcd__TxnRequest request;
    Etcd__Compare compares[TXN_COMPARES], *compare_list[TXN_COMPARES];
    size_t used, room;
    Etcd__RequestOp **success, **failure;
    struct txn_op *ops;
};

/* A transaction with room for this number of operations. NULL: no memory. */
struct txn *txn_new(size_t room);
void txn_free(struct txn *txn);

ProtobufCBinaryData etcd_bytes(const struct etcd_key *key);

/* The first key after all that begin with `key`. */
void etcd_end_of(const struct etcd_key *key, struct etcd_key *ret_end);

/* The keys that begin with `key`: from it to `ret_end`. etcd accepts no empty key, so an empty one
 * becomes the first possible key. */
void etcd_range_of(struct etcd_key *key, struct etcd_key *ret_end);

/* Conditions on the create or mod revision of a key, or of each key in a range. */
void txn_if_create(struct txn *txn, const struct etcd_key *key, const struct etcd_key *end,
                   Etcd__Compare__Result result, int64_t revision);
void txn_if_mod(struct txn *txn, const struct etcd_key *key, const struct etcd_key *end,
                Etcd__Compare__Result result, int64_t revision);

/* What is done if all conditions are true, or (not `then`) if one is not. Keys must stay valid
 * until txn_call. */
void txn_get(struct txn *txn, bool then, const struct etcd_key *key, const struct etcd_key *end);
void txn_put(struct txn *txn, const struct etcd_key *key, const void *value, size_t size,
             int64_t lease);
void txn_delete(struct txn *txn, const struct etcd_key *key);

/* Makes a call of it and frees it. NULL: no memory; also if `txn` is NULL. */
struct etcd_call *txn_call(struct txn *txn, etcd_answered *answered, void *context);

/* ---- queue.c ---- */

struct claim {
    const Etcd__KeyValue *kv;
    Etcd__Claim *value; /* NULL: of another client than holdfast */
    uint64_t seq;       /* of the attempt, and of whom; not for foreign ones */
    uint8_t client[16];
    size_t name_size; /* of the name in its key, after the prefix */
    bool barges;
};

struct claims {
    struct claim *list;
    size_t count;
};

/* The claims among these keys. `range_size` is where the OWNER begins in the keys of the one name
 * that counts; 0: all names do. False: no memory. */
bool claims_read(struct etcd *etcd, const Etcd__RangeResponse *range, size_t range_size,
                 struct claims *ret);
void claims_free(struct claims *claims);

bool claim_is_held(const struct claim *claim);
uint64_t claim_token(const struct etcd *etcd, const struct claim *claim);

/* What an attempt wants, and its own claim, if it has one. */
struct wish {
    uint32_t kind, capacity, weight;
    bool barges;
    const struct claim *own; /* NULL: none */
};

struct verdict {
    const struct claim *other_kind; /* a claim with another kind or capacity; NULL: none */
    bool fits;
    bool is_head;                /* nobody waits in front of it */
    const struct claim *blocker; /* if it does not fit: whom to wait for */
    bool any;                    /* any holder that goes may make room: watch all of them */
};

void claims_judge(const struct claims *claims, const struct wish *wish, struct verdict *ret);

/* ---- etcd.c ---- */

void etcd_key_set(struct etcd *etcd, struct etcd_key *ret, const char *kind, const char *name,
                  const char *end);
void etcd_base_key(struct etcd *etcd, struct etcd_key *ret);
void etcd_break_key(struct etcd *etcd, const char *name, struct etcd_key *ret);
/* The keys of a counter, and of this client's last answer from it. */
void etcd_counter_keys(struct etcd *etcd, const char *name, struct etcd_key *ret_counter,
                       struct etcd_key *ret_answer);
void etcd_send(struct etcd *etcd, struct etcd_call *call, int64_t give_up_us);
int64_t etcd_now_us(const struct etcd *etcd);

/* Completes an operation whose call has failed: UNKNOWN if the server may have acted. */
void etcd_fail(struct etcd *etcd, struct store_op *op, const struct etcd_call *call,
               bool may_have_acted);

/* Sends a call to one of the URL's members, over a separate connection. False: no memory, or the
 * store is being closed; the call is freed. The second function is called when it was answered: the
 * connection is then no longer needed. */
bool etcd_probe(struct etcd *etcd, size_t host, struct etcd_call *call);
void etcd_probe_done(struct etcd *etcd, size_t host);

/* A release has been answered: starts the operations that waited for it. */
void etcd_resume(struct etcd *etcd);

/* ---- claims.c ---- */

void etcd_acquire(struct etcd *etcd, struct store_op *op);
void etcd_release(struct etcd *etcd, struct store_op *op);
void etcd_break(struct etcd *etcd, struct store_op *op);

/* The answer to a request for the base of tokens. */
void etcd_note_base(struct etcd *etcd, const Etcd__RangeResponse *range);

struct etcd_attempt *etcd_attempt_find(struct etcd *etcd, uint64_t seq);
void etcd_attempt_free(struct etcd *etcd, struct etcd_attempt *attempt);
/* Deletes its key, again with each keep-alive until that is confirmed, and then frees it. */
void etcd_attempt_end(struct etcd *etcd, struct etcd_attempt *attempt);

/* Gives a hold a longer lease. `done` reports the outcome; for STORE_REFUSED also why. False: no
 * memory. */
typedef void etcd_lengthened(struct etcd *etcd, void *context, size_t index, enum store_outcome how,
                             int reason);
bool etcd_lengthen(struct etcd *etcd, struct etcd_attempt *attempt, int64_t lease_us,
                   etcd_lengthened *done, void *context, size_t index);

/* ---- lease.c ---- */

/* An operation that waits for a lease. If there is none, `granted` is called with NULL, and with
 * the call that failed. */
struct etcd_tenant {
    struct list link;
    void (*granted)(struct etcd *etcd, struct etcd_tenant *tenant, struct etcd_lease *lease,
                    const struct etcd_call *failed);
};

int64_t etcd_seconds(int64_t lease_us);

/* Calls `granted` with a lease of this length that has at least `left_us` left and was not asked
 * for before `since_us`, now or later. */
void etcd_lease_get(struct etcd *etcd, struct etcd_tenant *tenant, int64_t seconds, int64_t left_us,
                    int64_t since_us, int64_t give_up_us);
void etcd_lease_free_all(struct etcd *etcd);
void etcd_lease_attach(struct etcd_lease *lease, struct etcd_attempt *attempt);
struct etcd_lease *etcd_lease_find(struct etcd *etcd, int64_t id);

/* Keeps the lease alive. `answered` is called with the call; see etcd_lease_kept. NULL: nobody
 * needs the answer. False: no memory. */
bool etcd_lease_keep(struct etcd *etcd, struct etcd_lease *lease, etcd_answered *answered,
                     void *context, int64_t give_up_us);
/* What the answer says: above 0: the term in which it was kept; 0: the lease is over; below 0: not
 * known. */
int64_t etcd_lease_kept(struct etcd *etcd, int64_t id, const struct etcd_call *call);

/* Whether it counts, together with a linearizable answer of this term. */
bool etcd_lease_counts(int64_t kept, uint64_t term);

void etcd_renew(struct etcd *etcd, struct store_op *op);

/* Asks how many seconds a lease has left. NULL: no memory. The answer is read with etcd_time_left;
 * false: it is not known. At or below 0: the lease is over. */
struct etcd_call *etcd_ask_time(int64_t lease, etcd_answered *answered, void *context);
bool etcd_time_left(const struct etcd_call *call, int64_t *ret_seconds);

/* ---- watch.c ---- */

int etcd_watch_init(struct etcd *etcd);
void etcd_watch_close(struct etcd *etcd);
/* Watches for the end of the claim that is in the way of a waiting attempt, or (`blocker` is NULL)
 * of any claim at the name. Wakes the attempt if that may already have happened since
 * `revision`. */
void etcd_watch_blocker(struct etcd *etcd, struct etcd_attempt *attempt,
                        const Etcd__KeyValue *blocker, bool puts, int64_t revision);
/* Watches for the end of a hold that existed at `revision`, if it lasts longer than a moment. */
void etcd_watch_hold(struct etcd *etcd, struct etcd_attempt *attempt, int64_t revision);
/* The hold was seen to exist at `revision`. */
void etcd_watch_again(struct etcd *etcd, struct etcd_attempt *attempt, int64_t revision);
void etcd_watch_stop(struct etcd *etcd, struct etcd_attempt *attempt);
/* Creates a watcher on the stream: sets its id in `create` and returns it. 0: it cannot be done
 * now. */
int64_t etcd_watch_create(struct etcd *etcd, Etcd__WatchCreateRequest *create);
void etcd_watch_cancel(struct etcd *etcd, int64_t watch);
/* Called when the link is connected, when it has lost its connection, and when the stream has
 * ended. */
void etcd_watch_up(struct etcd *etcd);
void etcd_watch_down(struct etcd *etcd);
void etcd_watch_ended(struct etcd *etcd);

/* ---- changes.c ---- */

int etcd_changes_init(struct etcd *etcd);
void etcd_changes_close(struct etcd *etcd);
void etcd_watch_changes(struct etcd *etcd, struct store_op *op);
void etcd_unwatch_changes(struct etcd *etcd, struct store_op *op);
/* Called by the stream: with messages of its watcher, and when the stream was lost. */
void etcd_changes_came(struct etcd *etcd, const Etcd__WatchResponse *response);
void etcd_changes_lost(struct etcd *etcd);

/* ---- counters.c ---- */

void etcd_count(struct etcd *etcd, struct store_op *op);
/* Completes the operations that pause. */
void etcd_counters_close(struct etcd *etcd);

/* ---- look.c, examine.c ---- */

/* Adds the owner of a claim, or the last break, to the lock that was added last. False: no
 * memory. */
bool etcd_add_party(const struct etcd *etcd, struct hf_locks *locks, const struct claim *claim,
                    enum locks_role role, int64_t left_ms);
bool etcd_add_break(struct hf_locks *locks, const Etcd__Break *record);

void etcd_look(struct etcd *etcd, struct store_op *op);
void etcd_examine(struct etcd *etcd, struct store_op *op);

#endif
