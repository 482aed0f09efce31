/* The checkers. They see what the servers were asked and answered, what the clients believe, and true time; they
 * know nothing of the plan, and steer nothing.
 *
 * What they hold against a history, by name:
 *   exclusion   the weight of those who believe that they hold a lock is never above its capacity
 *   validity    nobody believes in more time than the server gives
 *   tokens      successive grants of a name have rising tokens, unless its counter was lost and the
 *               proposer's clock was behind
 *   fencing     a resource that takes no token below the largest it has seen never takes a stale write
 *   order       nobody is served before one who came earlier and still waits
 *   held        nobody holds what no server granted
 *   ownership   no server renews what has ended, or was lost
 *   once        every request completes
 *   progress    and, once nothing goes wrong any more, soon
 *   remains     nothing but counters, with an end to them, stays on a server
 *
 * Exclusion and validity are promised while the server keeps what it acknowledged and clocks run as they
 * should: check_forgot says when that ended for what was granted before. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "base/list.h"
#include "sim/net.h"
#include "sim/plan.h"
#include "store/locks.h"

#include <holdfast/holdfast.h>

enum verdict { VERDICT_OK, VERDICT_SAFETY, VERDICT_LIVENESS };

enum { CHECK_ATTEMPTS_MAX = 512 };

/* An attempt to acquire, as the server sees it. */
struct attempt {
    char owner[LOCKS_OWNER_SIZE];
    int name;
    uint32_t weight;
    bool barges, granted, ended;
    bool lapsed;      /* it once fell silent for longer than its wait lease: its place may be any */
    bool voided;      /* what was granted is no longer promised */
    bool gone;        /* and the server has it no more */
    int64_t until_us; /* by the server's clock, when what was granted ends */
    uint64_t token;
    uint64_t order;         /* of its grant among all of the name */
    uint64_t queued_order;  /* when it first got a place; 0: it has none */
    int64_t waits_until_us; /* by the server's clock */
    /* What its client believes. */
    struct sim_node *node; /* NULL: it does not believe that it holds it */
    hf_hold *hold;
    int64_t deadline_us; /* as last looked at */
};

struct check_name {
    uint64_t last_token, grants, queued;
    bool counter_lost;
    bool unordered;
    bool excused; /* tokens went back for the one reason that excuses it */
    uint64_t resource_token, resource_order;
};

struct check {
    const struct plan *plan;
    struct sim_net *net;
    enum verdict verdict;
    char what[256]; /* the first thing that was wrong */
    struct check_name names[PLAN_NAMES_MAX];
    struct attempt attempts[CHECK_ATTEMPTS_MAX];
    size_t attempt_count;
};

/* Notes what is wrong, if it is the first. */
void check_fail(struct check *check, enum verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A server has executed a request. */
void check_executed(struct check *check, struct sim_server *server, size_t count,
                    const char *const *words, const char *reply);

/* A client says that it has acquired, looks again at what it holds, holds no more. Returns the attempt. */
struct attempt *check_granted(struct check *check, struct sim_node *node, hf_hold *hold, int name);
void check_looked(struct check *check, struct attempt *attempt);
void check_ended(struct attempt *attempt);
/* It writes to what the lock guards, whether it still holds it or not. */
void check_wrote(struct check *check, const struct attempt *attempt);
/* Somebody who is not holdfast has got the lock. */
void check_foreign(struct check *check, int name);

/* The server has forgotten what it granted: of one name, or (-1) of all. */
enum forgotten {
    FORGOT_PARTS,    /* and maybe somebody's place in the queue */
    FORGOT_COUNTERS, /* and the counters, too */
    FORGOT_ALL,
};
void check_forgot(struct check *check, struct sim_server *server, int name, enum forgotten what);
/* The server's clock was set back: what had ended may look as if it had not. */
void check_time_went_back(struct check *check);

/* At the end, after every lease has run out. */
void check_remains(struct check *check, struct sim_server *server);

const char *check_name_of(int name); /* "a", "b" */
const char *check_key_of(int name);

#endif
