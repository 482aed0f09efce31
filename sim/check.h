/* The checkers. They see the grants that servers report, what the clients believe, and true
 * time. They know nothing of the plan's faults, nor of how a service stores its locks, and they
 * influence nothing.
 *
 * What each checker demands, by its name in reports:
 *   exclusion   the weight of clients that believe they hold a lock is never above its capacity
 *   validity    no client believes in more time than the server gives, or a quorum of servers
 *   tokens      successive grants of a name by a server have rising tokens, and so do successive
 *               exclusive holds in a set, unless counters were lost and the proposer's clock was
 *               behind
 *   fencing     a resource that refuses tokens below the largest it has seen takes no stale write
 *   order       no client is served before a waiter that came earlier; a set has no queue
 *   held        no client holds a lock that no server granted, or no quorum of servers
 *   ownership   no server renews what has ended or was lost
 *   once        every request completes
 *   progress    and it completes soon, once faults have ended
 *   told        a client that has renewed its hold soon learns that it was taken away, if that is
 *               promised
 *   calm        a waiter does not ask endlessly
 *   withheld    a released lock is soon free on every server that can be reached
 *   remains     nothing stays on a server but counters, and they expire
 *   counts      each step on a counter happens once, and in some order (counts.h)
 *   notices     a program is notified of a loss by each means once, in time, not before (notices.h)
 *
 * Exclusion and validity are promised while the server keeps what it acknowledged and clocks
 * run within their drift. check_forgot ends that promise for what was granted before. In a
 * set, f = 2Q - N - 1 servers may forget a grant, or give it less time than they said. Any number
 * may do so if they also forget that they vote in this set: they then abstain for as long as any
 * client may believe in what they granted.
 *
 * Of two holders, the later one must have the larger token. Which one is later? The one that asked
 * when the other already held the lock, whatever the clocks do; and the one that held it later,
 * while exclusion is promised to both. */
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
    bool gone;         /* and the server no longer has it */
    bool counter_lost; /* since it was granted */
    bool released;     /* or a release came that found nothing */
    bool denied;       /* a renewal was refused, or it was broken */
    int64_t broken_us; /* when, in true time; 0: it was not */
    int64_t at_us;     /* when it was last granted, in true time */
    int64_t until_us;  /* when it ends, by the server's clock */
    uint64_t token;
};

/* An attempt to acquire, as the servers see it; in a set, each ballot is one. */
struct attempt {
    char owner[LOCKS_OWNER_SIZE];
    int name;
    uint32_t weight, capacity;
    bool barges;
    bool lapsed; /* it was silent for longer than its wait lease: it may have lost its place */
    struct vote votes[SIM_SERVERS_MAX];
    uint64_t floor; /* that it last asked for */
    int64_t lease_us;
    int64_t given_up_us;    /* when its client gave it up, in true time; 0: not, or not known */
    uint64_t order;         /* of its grant among all of the name */
    uint64_t queued_order;  /* of its place in the queue; 0: it has none */
    int64_t waits_until_us; /* by the server's clock */
    /* When its client first held it, and when that client had asked for it, in true time; and its
     * token. 0: never. */
    int64_t held_us, asked_us;
    uint64_t held_token;
    /* What its client believes. */
    struct sim_machine *machine; /* NULL: it does not believe that it holds the lock */
    hf_hold *hold;
    int64_t deadline_us; /* when it was last checked */
    int64_t renewed_us;  /* when its client first had another deadline, in true time; 0: not yet */
    int64_t ends_us;     /* its last deadline while it was held, by its client's clock */
    bool lost_event;     /* there was an event of its loss */
};

/* Locks of one client that had an event when they were acquired, and none since of their end. */
enum { NOTICES_OPEN_MAX = 32 };
struct notices_lock {
    int name;
    uint64_t token;
};
struct notices {
    struct notices_lock open[NOTICES_OPEN_MAX];
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
    bool excused; /* its counter was lost and a clock was behind: tokens may have gone back */
    uint64_t resource_token;
    const struct attempt *resource_writer; /* the last */
    uint64_t resource_order;
};

struct check {
    const struct plan *plan;
    struct sim_net *net;
    int faults;        /* faults that are under way */
    int64_t fault_us;  /* when the last effect of a fault ended */
    bool clients_fail; /* some died, or paused */
    bool troubled;     /* there was a fault that may keep messages from arriving */
    enum verdict verdict;
    char what[256]; /* the first failure */
    struct check_name names[PLAN_NAMES_MAX];
    struct notices notices[PLAN_CLIENTS_MAX];
    struct attempt attempts[CHECK_ATTEMPTS_MAX];
    size_t attempt_count;
};

/* Keeps what is wrong, if it is the first failure. */
void check_fail(struct check *check, enum verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A server has executed a request. */
void check_reported(struct check *check, struct sim_server *server,
                    const struct service_report *report);

/* A client reports that it has acquired a lock, that it looks at its hold again, or that it no
 * longer holds it. The first returns the attempt. */
struct attempt *check_granted(struct check *check, struct sim_machine *machine, hf_hold *hold,
                              int name);
void check_looked(struct check *check, struct attempt *attempt);
void check_ended(struct check *check, struct attempt *attempt);
/* It writes to the resource that the lock guards, whether it still holds the lock or not. */
void check_wrote(struct check *check, struct attempt *attempt);
/* A program that does not use holdfast has got the lock. */
void check_foreign(struct check *check, int name);

/* The server has forgotten what it granted: of one name, or (-1) of all. */
void check_forgot(struct check *check, struct sim_server *server, int name,
                  enum service_forgotten what);
/* The server's clock was set back: what had ended may exist again. */
void check_time_went_back(struct check *check);

/* A fault begins or ends, and its effects last for another `felt_us`; `client`: a client dies or
 * pauses; `calm`: everything keeps working. */
void check_fault(struct check *check, bool begins, int64_t felt_us, bool client, bool calm);

/* At the end, after every lease has run out. */
void check_remains(struct check *check, struct sim_server *server);

#endif
