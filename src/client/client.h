/* The client: where threads meet. One mutex guards a client with its engine; the store and its world
 * are called by one thread at a time (drive.c). Everything below knows nothing of threads.
 *
 *   client.c   opening, closing, forks
 *   drive.c    who waits for the outside, and works off what the engine and the store put out
 *   call.c     calls: what a program waits for, blocking or not
 *   hold.c     acquiring, checking, renewing, releasing
 *   group.c    several names at once
 *   look.c     inspect, list, break, examine
 *   event.c    what a program that asked for it is told of its locks
 *   notice.c   the program's callbacks, and hf_fd and hf_process for its own loop
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/list.h"
#include "engine/engine.h"
#include "store/store.h"
#include "world/world.h"

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>

/* A callback that is due. */
struct notice {
    struct list link;
    void (*run)(struct notice *notice);
};

/* A thread that waits for a call. */
struct waiter {
    struct list link;    /* in the client's `waiting` */
    struct list of_call; /* in the call's `waiters` */
    pthread_cond_t cond;
};

struct hf_client {
    uint64_t epoch;
    unsigned refs; /* the program's, one for each hold, call and thread that blocks */
    bool closed;
    pthread_mutex_t mutex;
    struct world *world;
    struct store *store;
    struct store_host host;
    struct engine engine;
    struct world_timer timer; /* for the engine */
    bool inside;              /* somebody calls the store or its world */
    bool store_blocks;        /* and does so without the mutex */
    bool store_is_quick;      /* and need not care for cancellation */
    struct list completed;    /* operations that the store has answered; of whoever is inside */
    struct list looks;        /* calls whose operation the store has */

    /* drive.c */
    struct waiter *driver; /* who waits for the world, or NULL */
    bool driver_waits;     /* in world_wait_for, without the mutex */
    struct list waiting;
    struct world_bell bell; /* to get the driver out of its wait */
    int64_t drove_us;       /* when somebody last drove */
    pthread_t keeper;
    pthread_cond_t keeper_cond;
    bool keeper_runs, keeper_sleeps, keeper_polls, keeper_stops;
    pthread_t guard;
    pthread_cond_t guard_cond;
    bool guard_runs;
    int64_t guarded_us; /* the guard will look at what is due then */

    /* notice.c */
    struct list notices;
    struct list done; /* calls for hf_call_next */
    struct notice *running;
    pthread_t runner;
    pthread_cond_t ran;
    pthread_t dispatcher;
    pthread_cond_t dispatcher_cond;
    bool dispatcher_runs, dispatcher_stops;
    int loop_fd, signal_fd; /* for hf_fd; -1: it was not called */
    bool signalled;

    /* event.c */
    void (*on_event)(const hf_event *event, void *arg);
    void *on_event_arg;
    uint64_t events_dropped; /* since the last that was told */

    char *identity;         /* host name and command */
    hf_client *left_behind; /* in a forked child: the next of those whose insides cannot be freed */
};

enum call_type { CALL_ACQUIRE, CALL_ACQUIRE_ALL, CALL_RENEW, CALL_RELEASE, CALL_LOOK };

struct hf_call {
    hf_client *client;
    enum call_type type;
    int result;               /* HF_PENDING until it is done */
    int so_far;               /* the worst of the requests that have finished */
    char *text;               /* particulars of the result */
    char *sentence;           /* for hf_call_error */
    struct request one;       /* of the engine: for one name … */
    struct request *requests; /* … or an array, for several */
    size_t request_count, pending;
    hf_hold *hold;           /* what is acquired, renewed, released: one reference is the call's */
    bool owns_hold;          /* acquired, and not taken yet */
    hf_call *joined;         /* CALL_RELEASE: other calls that wait for the same release */
    struct group_plan *plan; /* CALL_ACQUIRE_ALL: how to go on */
    struct store_op op;      /* CALL_LOOK */
    hf_locks *locks;
    hf_examination *examination;
    char *strings;       /* that the operation points to */
    struct list waiters; /* threads */
    struct list link;    /* in the client's `looks`, later in its `done` */
    struct notice notice;
    void (*notify)(hf_call *call, void *arg);
    void *data;
    bool queued;  /* for hf_call_next */
    bool started; /* by a _start: on the heap, else on the stack of who blocks */
    bool freed;   /* by the program, while the store still had the operation */
    bool op_in_flight;
};

enum hold_role {
    ROLE_ONE,    /* a lock */
    ROLE_ALIAS,  /* a lock entered again: its `other` is the hold that has it */
    ROLE_MEMBER, /* one of several: its `other` is the group, NULL when that was freed */
    ROLE_GROUP,
};

/* What has been told of a lock, and what is counted for it; times are the engine's. */
struct event_counts {
    int64_t asked_us, granted_us, let_go_us;
    int64_t deadline_us;     /* as it was when last told */
    int64_t least_margin_us; /* -1: none yet */
    uint64_t renewals;
    bool held; /* ACQUIRED was told, and its end was not */
};

/* What few holds need. */
struct hold_more {
    hf_hold *hold; /* whose this is */
    struct reentry reentry;
    struct notice lost_notice;
    void (*on_lost)(hf_hold *hold, void *arg);
    void *on_lost_arg;
    int lost_fd;         /* -1: not asked for */
    struct list aliases; /* of a hold that was entered again; in an alias, its place there */
    hf_hold *lost;       /* GROUP: the member that was lost first */
    size_t member_count;
    struct member *members; /* GROUP, in the order of their names */
    struct event_counts counts;
    char owner[64];
};

struct member {
    hf_hold *hold;
    size_t index;           /* in the order that the caller gave */
    struct request release; /* so that a release needs no memory */
};

struct hf_hold {
    struct hold hold; /* not in an alias or a group */
    hf_client *client;
    struct hold_more *more; /* NULL: none */
    hf_hold *other;         /* see enum hold_role */
    hf_call *releasing;     /* the call that does it */
    int result;             /* of the release */
    uint32_t refs;          /* the program's or the group's, the engine's, one for each alias */
    uint8_t role;           /* enum hold_role */
    bool released;          /* by the program: it has no more say */
    char text[];            /* name, label */
};

/* client.c */

/* Opens a client in a world, which it takes over also on failure. */
int client_open_in(struct world *world, const char *url, const hf_client_options *options,
                   hf_client **ret_client);

/* Takes the mutex and tells the engine the time. HF_FORKED or HF_CLOSED, with the text set, and then
 * nothing is taken. */
int client_enter(hf_client *client);

/* The same for what must work in a closed client too: false in a forked child. */
bool client_lock(hf_client *client);
void client_unlock(hf_client *client);

/* Counts on the memory of a client, under the mutex. The last one frees it; client_unref gives the
 * mutex back in either case. In a forked child both work without the mutex. */
void client_ref(hf_client *client);
void client_unref(hf_client *client);

/* Copies an option struct over the defaults in `own`. HF_OK, or HF_BAD_ARGUMENT with the text set. */
int client_read_options(void *own, size_t own_size, const void *given);

/* drive.c: all under the mutex. */
/* Works off what the engine has put out, and what the store answers. It may wait for a store that blocks. */
void client_pump(hf_client *client);
/* The same for calls that do not block: what would wait is left to the keeper. */
void client_post(hf_client *client);
/* Around each call of the store, by who is inside, and the other way round when the store calls. */
void client_to_store(hf_client *client);
void client_from_store(hf_client *client);
void client_take_completed(hf_client *client); /* by who is inside, too */
void client_take_answers(hf_client *client);
void client_tell_time(hf_client *client);
/* Blocks until the call is done or until_us. */
void client_await(hf_client *client, hf_call *call, int64_t until_us);
/* Drives until the engine has no holds left, or until_us, and nobody else waits or drives. */
void client_drain(hf_client *client, int64_t until_us);
void client_signal(hf_client *client, struct waiter *waiter);
/* The client's own threads. HF_OK, or HF_SYSTEM with the text set. */
int client_start_keeper(hf_client *client);
void client_stop_keeper(hf_client *client); /* without the mutex */
int client_start_thread(pthread_t *ret_thread, void *(*main)(void *), hf_client *client);
void client_init_cond(pthread_cond_t *cond);

/* call.c */
void call_init(hf_call *call, hf_client *client, enum call_type type);
/* The blocking form, of a call on the stack: pumps, waits and leaves the client. `r` is how the start
 * went; if that failed, its text is set and nothing waits. */
int call_block(hf_call *call, int r);
/* The other form: a call on the heap, to start (NULL, with the text set, when there is no memory), and
 * to hand out. Both leave the client when they fail; the second always. */
hf_call *call_new(hf_client *client, enum call_type type);
int call_hand_out(hf_call *call, int r, hf_call **ret_call);
/* Sets the result; wakes, notifies, queues for whoever is to know. Takes `text` over. */
void call_complete(hf_call *call, int result, char *text);
/* Particulars that say of which lock. Takes `text` over. */
char *call_text_for(const char *name, char *text);
/* A request of the engine, or the operation of a look, has come back. */
void call_request_finished(struct request *request);
void call_op_completed(struct store_op *op);

/* hold.c */
/* A name, or a part of one that may be empty (least 0). HF_OK, or HF_BAD_NAME with the text set. */
int hold_check_name(const char *name, const char *what, size_t least);
int hold_check_options(hf_client *client, const hf_acquire_options *given,
                       hf_acquire_options *ret_options);
/* A hold that can be acquired: the program's (or group's) reference is the caller's. Errors with text. */
int hold_new(hf_client *client, const char *name, const hf_acquire_options *options,
             hf_hold **ret_hold);
/* Starts to acquire until give_up_us (hold_give_up_us: for a wait_ms). If the hold's owner has the lock
 * already, the hold becomes an alias, and there is nothing to wait for. Errors with text. */
int hold_acquire(hf_hold *hold, struct request *request, int64_t give_up_us, int64_t min_left_us);
int64_t hold_give_up_us(const hf_client *client, int64_t wait_ms);
struct hold_more *hold_more(hf_hold *hold); /* NULL: no memory */
void hold_unref(hf_hold *hold);
int64_t hold_left_us(const hf_hold *hold); /* of the lock, or of the several */
void hold_had_news(struct hold *hold);     /* from the engine */
void hold_tell_lost(hf_hold *hold);        /* the program */
void hold_send_release(hf_hold *hold);     /* for the call in hold->releasing */
/* Lets go without waiting, if that was not done, and drops the program's (or group's) reference. */
void hold_drop(hf_hold *hold);

/* group.c */
void group_name_finished(hf_call *call, int result, char *text);
hf_hold *group_at(const hf_hold *group, size_t index); /* in the order given; NULL: none */
void group_lost(hf_hold *group, hf_hold *member);
void group_drop_members(hf_hold *group);
void group_release(hf_call *call, hf_hold *group);
void group_cancel_release(hf_hold *group);
int group_renew(hf_call *call, hf_hold *group, int64_t lease_us);

/* event.c: these do nothing for a client without on_event. */
void event_asked(hf_hold *hold);
void event_acquire_finished(hf_hold *hold, int result);
void event_news(hf_hold *hold, uint8_t news); /* enum hold_news */

/* notice.c */
int notice_prepare(hf_client *client); /* that somebody will run callbacks; errors with text */
void notice_add(hf_client *client, struct notice *notice, void (*run)(struct notice *));
void notice_drop(hf_client *client, struct notice *notice); /* and waits while it runs */
void notice_signal(hf_client *client); /* that there is something for the program's loop */
void notice_stop(hf_client *client);   /* without the mutex; runs what is left */
/* Here and now; the mutex is given back meanwhile. False, without it, in a child that one of them forked. */
bool notice_run_all(hf_client *client);
void notice_close_fds(hf_client *client);

#endif
