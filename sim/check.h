/* The checkers. They see what the servers were asked and answered, what the clients believe, and true time; they
 * know nothing of the plan, and steer nothing.
 *
 * What they hold against a history, by name:
 *   exclusion   the weight of those who believe that they hold a lock is never above its capacity
 *   validity    nobody believes in more time than the server gives, or a quorum of servers
 *   tokens      successive grants of a name have rising tokens, unless its counter was lost and the
 *               proposer's clock was behind; with a set also successive exclusive holds
 *   fencing     a resource that takes no token below the largest it has seen never takes a stale write
 *   order       nobody is served before one who came earlier and still waits; a set promises none
 *   held        nobody holds what no server granted, or no quorum of servers
 *   ownership   no server renews what has ended, or was lost
 *   once        every request completes
 *   progress    and, once nothing goes wrong any more, soon
 *   calm        who waits does not ask without end
 *   withheld    what was let go is soon free on every server that can be reached
 *   remains     nothing but counters, with an end to them, stays on a server
 *   told        a loss is told by each means, once, in time, and not before it (told.h)
 *
 * Exclusion and validity are promised while the server keeps what it acknowledged and clocks run as they
 * should: check_forgot says when that ended for what was granted before. Of a set, f = 2Q - N - 1 servers may
 * forget a grant, or give it less time than they said; and any number may, if they forget with it that
 * they vote in this set: then they do not, for as long as anybody may believe in what they granted.
 *
 * Which of two holders is the later one, by whose token? The one that asked when the other held already, whatever
 * clocks do; and the one that held later, while exclusion is promised to both. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "base/list.h"
#include "sim/net.h"
#include "sim/plan.h"
#include "store/locks.h"

#include <holdfast/holdfast.h>

enum verdict { VERDICT_OK, VERDICT_SAFETY, VERDICT_LIVENESS };

enum { CHECK_ATTEMPTS_MAX = 16384 };

/* What one server granted to an attempt. */
struct vote {
    bool granted;
    bool forgot;       /* it is no longer promised */
    bool gone;         /* and the server has it no more */
    bool counter_lost; /* since it was granted */
    bool released;     /* or a release came that found nothing */
    bool denied;       /* a renewal was refused, or it was broken */
    int64_t at_us;     /* when it was granted first, in true time */
    int64_t until_us;  /* by the server's clock, when what was granted ends */
    uint64_t token;
};

/* An attempt to acquire, as the servers see it; with a set, each ballot is one. */
struct attempt {
    char owner[LOCKS_OWNER_SIZE];
    int name;
    uint32_t weight, capacity;
    bool barges;
    bool lapsed; /* it once fell silent for longer than its wait lease: its place may be any */
    struct vote votes[SIM_SERVERS_MAX];
    uint64_t floor; /* that it proposed last */
    int64_t lease_us;
    int64_t let_go_us;      /* when its client gave it up, in true time; 0: not, or not known */
    uint64_t order;         /* of its grant among all of the name */
    uint64_t queued_order;  /* when it first got a place; 0: it has none */
    int64_t waits_until_us; /* by the server's clock */
    /* When its client came to hold it, and had asked for it, in true time, and with which token; 0: never. */
    int64_t held_us, asked_us;
    uint64_t held_token;
    /* What its client believes. */
    struct sim_node *node; /* NULL: it does not believe that it holds it */
    hf_hold *hold;
    int64_t deadline_us; /* as last looked at */
    int64_t ends_us;     /* while it was held, its deadline by its client's clock */
    bool lost_event;     /* which it was told by */
};

/* Locks of one client of whose beginning there was an event, and not of their end. */
enum { TOLD_OPEN_MAX = 32 };
struct told_lock {
    int name;
    uint64_t token;
};
struct told {
    struct told_lock open[TOLD_OPEN_MAX];
    size_t count;
};

/* The counter of a name, at one server. */
struct check_counter {
    uint64_t last_token;
    bool lost;
};

struct check_name {
    struct check_counter counters[SIM_SERVERS_MAX];
    uint64_t grants, queued;
    bool unordered;
    bool excused; /* tokens went back for the one reason that excuses it */
    uint64_t resource_token;
    const struct attempt *resource_writer; /* the last */
    uint64_t resource_order;
};

struct check {
    const struct plan *plan;
    struct sim_net *net;
    int faults;        /* that are under way */
    int64_t fault_us;  /* when what went wrong was last felt */
    bool clients_fail; /* some died, or paused */
    enum verdict verdict;
    char what[256]; /* the first thing that was wrong */
    struct check_name names[PLAN_NAMES_MAX];
    struct told told[PLAN_CLIENTS_MAX];
    struct attempt attempts[CHECK_ATTEMPTS_MAX];
    size_t attempt_count;
};

/* Notes what is wrong, if it is the first. */
void check_fail(struct check *check, enum verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A server has executed a request. */
void check_executed(struct check *check, struct sim_server *server, size_t count,
                    const char *const *words, const char *reply);

/* Which script a request calls: "vote", or "". */
const char *check_script_of(size_t count, const char *const *words);

/* A client says that it has acquired, looks again at what it holds, holds no more. Returns the attempt. */
struct attempt *check_granted(struct check *check, struct sim_node *node, hf_hold *hold, int name);
void check_looked(struct check *check, struct attempt *attempt);
void check_ended(struct check *check, struct attempt *attempt);
/* It writes to what the lock guards, whether it still holds it or not. */
void check_wrote(struct check *check, struct attempt *attempt);
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

/* Something goes wrong, or does so no longer, and is felt for so long; `client`: a client dies, or pauses. */
void check_fault(struct check *check, bool begins, int64_t felt_us, bool client);

/* At the end, after every lease has run out. */
void check_remains(struct check *check, struct sim_server *server);

const char *check_name_of(int name); /* "a", "b" */
const char *check_key_of(int name);
extern const char check_set_key[]; /* in which a server keeps the set that it votes in */

#endif
