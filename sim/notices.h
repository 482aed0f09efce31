/* The checker of loss notices. A program is notified of a loss once by each means that it
 * asked for (on_lost, hf_hold_fd, hf_check, events): within NOTICES_WITHIN_US of the loss while its
 * process runs, and never before it. A lock is lost at its deadline. It is lost earlier only
 * if so many servers refused to renew it, or had it broken, that no quorum of them can still
 * have it.
 *
 * The checker uses the public header. It looks whenever a program runs, and when a notice is
 * overdue. */
#ifndef SIM_NOTICES_H
#define SIM_NOTICES_H

#include "sim/check.h"

/* The report of a loss that is noticed before the deadline may wait for its cause, but not longer
 * than NOTICES_CAUSE_US or the deadline. */
enum { NOTICES_WITHIN_US = 5000, NOTICES_CAUSE_US = 500000 };

/* A hold as the program sees it: of one name, of several, or of a lock that was entered again. */
struct notices_handle {
    struct check *check;
    struct sim_machine *machine;
    hf_hold *hold; /* NULL: none at present */
    struct attempt *attempts[PLAN_NAMES_MAX];
    int attempt_count;
    int fd;            /* -1: it was not asked for */
    unsigned notified; /* how often on_lost was called */
    int64_t lost_us;   /* when it was lost, in true time; 0: it is held */
    bool events;       /* its client has on_event */
};

/* The program has got a hold, and may want its descriptor. */
void notices_begin(struct notices_handle *handle, struct sim_machine *machine, hf_hold *hold,
                   bool wants_fd);
/* An on_lost, whose argument is the handle. */
void notices_on_lost(hf_hold *hold, void *arg);
/* Compares the notices with the facts. Returns the true time of the next look. */
int64_t notices_look(struct notices_handle *handle);
/* The program will now release it. It may still be notified of an earlier loss. */
void notices_release(struct notices_handle *handle);

/* An event of a client: each lock must have the events that the public header promises, in that
 * order. */
void notices_event(struct check *check, struct sim_machine *machine, const hf_event *event);
/* A client starts, or ends, and has no locks. */
void notices_clear(struct check *check, const struct sim_machine *machine);
/* Whether every lock whose acquisition was reported by an event also had one at its end. */
bool notices_complete(const struct check *check);

#endif
