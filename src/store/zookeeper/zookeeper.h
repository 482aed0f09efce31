/* The ZooKeeper store: what its files share. */
#ifndef ZOOKEEPER_ZOOKEEPER_H
#define ZOOKEEPER_ZOOKEEPER_H

#include "net/login.h"
#include "store/store.h"
#include "store/zookeeper/names.h"
#include "store/zookeeper/session.h"

struct zookeeper;

/* A place in the queue of a lock, or a hold: an attempt that the ensemble may know. It exists until
 * its node is known to be gone. */
struct zk_claim {
    struct list link;
    struct map_node by_seq;
    struct zookeeper *zk;
    uint64_t seq;
    char *lock;                    /* the path of the lock's node */
    char *path;                    /* of the claim's own node; NULL: it is not known to exist */
    int64_t czxid;                 /* of that */
    uint64_t base;                 /* of tokens, as the node says */
    int64_t until_us;              /* held: until when it was renewed; 0: it is not held */
    char prefix[NAMES_CLAIM_SIZE]; /* of the name of its node */
    struct zk_watch own, ahead;    /* on its node; on what it waits for */
    struct zk_task *task;          /* the task that works on it; NULL: none */
    bool may_exist;                /* a create was sent and not answered */
    bool is_expected;              /* its owner knows that it may exist, and will release it */
    bool waited;                   /* it was in the queue */
    bool woken;                    /* what it waited for has happened */
    bool doomed;                   /* it must be deleted, even if its attempt asks again */
};

struct zookeeper {
    struct store store;
    struct store_host *host;
    struct zk_session session;
    struct zk_session_setup setup;
    struct net_security security;
    struct net_login login;
    char *credentials;
    const struct names_layout *layout;
    char *root;         /* "/chroot/holdfast"; in a foreign layout "/chroot" */
    uint64_t base;      /* of tokens, as it was last read */
    enum codec_acl acl; /* of new nodes */
    struct map claims;
    struct list claim_list;
    struct list tasks;
    struct world_timer expiry; /* of claims that are not renewed */
    bool is_closing;
};

/* ---- Tasks (task.c) ---- */

struct zk_task;
typedef void zk_step(struct zk_task *task);

/* An operation in progress. It is made of steps, each with some requests that are sent together.
 * When all of them have been answered, `next` is called. If one has no reply, `again` is called
 * instead, which starts over; or the operation fails, if its time is over or none of it was ever
 * sent. */
struct zk_task {
    struct list link;
    struct zookeeper *zk;
    struct store_op *op; /* NULL: nobody waits for it (any more) */
    struct zk_claim *claim;
    void *work; /* of the operation; free_work frees it */
    void (*free_work)(void *work);
    zk_step *next, *again;
    zk_step *cancel; /* ends what it waits for besides requests; NULL: nothing */
    int64_t started_us, give_up_us;
    unsigned pending; /* requests, and the step while it is being made */
    bool lost;        /* one of them had no reply */
    bool was_sent;    /* one of them, or an earlier one */
    bool uncertain;   /* an earlier one was sent and had no reply */
    bool no_memory;
};

/* NULL: no memory; the operation was refused. */
struct zk_task *task_new(struct zookeeper *zk, struct store_op *op, zk_step *again);
/* Each completes the operation, if there is one, and frees the task. */
void task_done(struct zk_task *task, enum store_outcome outcome);
void task_refuse(struct zk_task *task, int reason, char *text);
/* Fails by an error of the server that has no special meaning for this operation. */
void task_fail(struct zk_task *task, int32_t error);

/* A step: task_step, requests (each made by task_request, filled in, and passed to task_send), and
 * task_sent. */
void task_step(struct zk_task *task, zk_step *next);
struct zk_request *task_request(struct zk_task *task, zk_answered *answered, uint64_t part);
void task_send(struct zk_task *task, struct zk_request *request);
void task_sent(struct zk_task *task);
/* Later requests see everything that the ensemble has answered, or started, before. */
void task_catch_up(struct zk_task *task);
/* Each zk_answered of a task begins with the first (false: there is no reply), and ends with the
 * second. */
bool task_has_reply(struct zk_request *request, const struct codec_header *header);
void task_answered(struct zk_task *task);

/* ---- Claims (claims.c) ---- */

struct zk_claim *claim_find(const struct zookeeper *zk, uint64_t seq);
/* NULL: no memory. */
struct zk_claim *claim_new(struct zookeeper *zk, const struct store_op *op);
/* Its node is gone, and its watches with it. */
void claim_forget_node(struct zk_claim *claim);
/* No task works on it any more: it goes away if it has no node. */
void claim_settle(struct zk_claim *claim);
/* Looks for its node in the answer to a list of the lock's children. False: no memory. */
bool claim_found(struct zk_claim *claim, const struct codec_header *header, struct codec_in *in);
/* Watches its node, so that the owner is notified when somebody deletes it. */
void claim_watch(struct zk_claim *claim);
/* For how long a hold that was asked for when the task started may count on the session, if a lease
 * of `asked_us` was wanted. */
int64_t claim_lease_us(const struct zk_task *task, int64_t asked_us);
/* It is held until then. */
void claim_hold_until(struct zk_claim *claim, int64_t until_us);
/* Deletes it; nobody waits for that (release.c). */
void claim_end(struct zk_claim *claim);
/* The same after a moment, when it has failed: for lack of memory, or because the server refused
 * it. */
void claim_end_later(struct zk_claim *claim);

void zookeeper_ended(struct zookeeper *zk);  /* the session has */
void zookeeper_expire(struct zookeeper *zk); /* holds that were not renewed */
void zookeeper_drop_claims(struct zookeeper *zk);

/* ---- Operations ---- */

void zookeeper_acquire(struct zookeeper *zk, struct store_op *op);
void zookeeper_renew(struct zookeeper *zk, struct store_op *op);
void zookeeper_release(struct zookeeper *zk, struct store_op *op);

/* look.c */
void zookeeper_look(struct zookeeper *zk, struct store_op *op);
void zookeeper_break(struct zookeeper *zk, struct store_op *op);

/* counters.c */
void zookeeper_count(struct zookeeper *zk, struct store_op *op);

/* examine.c */
void zookeeper_examine(struct zookeeper *zk, struct store_op *op);

/* Paths, to be freed; NULL: no memory. */
char *zookeeper_lock_path(const struct zookeeper *zk, const char *name);
/* The parent of all locks. */
char *zookeeper_locks_path(const struct zookeeper *zk);
/* Not in a foreign layout. */
char *zookeeper_base_path(const struct zookeeper *zk);

#endif
