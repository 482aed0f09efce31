/* The client: where threads meet. One mutex guards a client with its engine; the store and its
 * world are called by one thread at a time (drive.c). The layers below know nothing about threads.
 *
 *   client.c   opening, closing, forks
 *   drive.c    which thread waits for the store, and processes what it and the engine put out
 *   call.c     calls: what a program waits for, blocking or not
 *   hold.c     acquiring, checking, renewing, releasing
 *   fence.c    what a hold gives to the resource that checks its token
 *   group.c    several names at once
 *   look.c     inspect, list, break, examine, pause
 *   count.c    counters
 *   watch.c    hf_watch_start: what happens to all locks
 *   event.c    on_event: what happens to a program's locks
 *   notice.c   the program's callbacks, and hf_fd and hf_process for its own loop
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
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

/* A thread that is blocked in a call. */
struct blocked_thread {
    struct list link;          /* in the client's `blocked` */
    struct list of_call;       /* in the call's `blocked` */
    _Atomic uint32_t is_awake; /* or about to be; 0: it sleeps on this word */
};

/* Threads that are woken together, without the mutex. */
struct waking {
    _Atomic uint32_t *words[64];
    size_t count;
};

struct hf_client {
    uint64_t epoch;
    unsigned refs; /* the program's, one for each hold, call and thread that blocks */
    bool closed;
    pthread_mutex_t mutex;
    struct world *world;
    struct store *store;
    hf_store_info store_info;
    struct store_host host;
    struct engine engine;
    struct world_timer timer; /* for the engine */
    bool inside;              /* a thread is calling the store or its world */
    bool store_blocks;        /* it is called without the mutex */
    bool store_is_quick;      /* its calls have no cancellation point */
    struct list completed;    /* operations that the store has answered; for the thread inside */
    struct list calls;        /* that are pending */
    struct list looks;        /* calls whose operation is with the store, counts, pauses */

    /* count.c */
    struct map counts;      /* the first of each name: the others wait for it */
    struct heap counts_due; /* when to retry, or to give up */

    /* drive.c */
    struct blocked_thread *driver; /* the thread that waits for the world, or NULL */
    bool driver_waits;             /* in world_wait_for, without the mutex */
    bool driver_flushes;           /* the driver will flush soon, so others need not */
    struct waking *waking;         /* the threads that a driver will wake, or NULL */
    struct list blocked;           /* threads that may drive */
    struct blocked_thread closer;  /* the one that closes the client */
    struct world_bell bell;        /* interrupts the driver's wait */
    int64_t drove_us;              /* when a thread last drove */
    pthread_t standby;
    pthread_cond_t standby_cond;
    bool standby_runs, standby_sleeps, standby_polls, standby_stops;
    int64_t standby_wakes_us; /* when it will wake by itself, if it sleeps; or WORLD_NEVER */
    pthread_t guard;
    pthread_cond_t guard_cond;
    bool guard_runs;
    int64_t guarded_us; /* the guard waits for what is due at this time */

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
    bool processing; /* hf_process drives, and runs the callbacks next */

    /* event.c */
    void (*on_event)(const hf_event *event, void *arg);
    void *on_event_arg;
    uint64_t events_dropped; /* since the last that was delivered */

    /* watch.c */
    hf_call *watch; /* that is pending, or NULL */
    struct store_op watch_op;
    bool watch_op_in_flight;
    uint64_t watches, watch_sent, watch_served; /* numbers of watches: the last one started, the one
                                                   asked for, the one that is served (0: none) */
    char watch_prefix[256];                     /* which the operation points to */

    char *identity;         /* host name and command */
    hf_client *left_behind; /* in a forked child: the next client that cannot be freed */
};

enum call_type {
    CALL_ACQUIRE,
    CALL_ACQUIRE_ALL,
    CALL_RENEW,
    CALL_RELEASE,
    CALL_LOOK,
    CALL_COUNT,
    CALL_WATCH
};

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
    struct store_op op;      /* CALL_LOOK, CALL_COUNT */
    hf_locks *locks;
    hf_examination *examination;
    struct count *count;   /* CALL_COUNT */
    struct watch *watch;   /* CALL_WATCH */
    char *strings;         /* which the operation points to */
    struct list of_client; /* in the client's `calls` */
    struct list blocked;   /* threads */
    struct list link;      /* in the client's `looks`, later in its `done` */
    struct notice notice;
    void (*notify)(hf_call *call, void *arg);
    void *data;
    bool queued;  /* for hf_call_next */
    bool started; /* by a _start: on the heap, else on the blocked thread's stack */
    bool freed;   /* by the program, while the store still had the operation */
    bool op_in_flight;
};

enum hold_role {
    ROLE_ONE,    /* a lock */
    ROLE_ALIAS,  /* a lock entered again: its `other` is the hold that has it */
    ROLE_MEMBER, /* one of several: its `other` is the group, NULL when that was freed */
    ROLE_GROUP,
};

/* What the events of a lock report. Times are the engine's. */
struct event_counts {
    int64_t asked_us, granted_us, released_us;
    int64_t deadline_us;     /* as of the last event */
    int64_t least_margin_us; /* -1: none yet */
    uint64_t renewals;
    bool held; /* ACQUIRED was reported, and its end not yet */
};

/* What only a few holds need. */
struct hold_more {
    hf_hold *hold; /* whose this is */
    struct reentry reentry;
    struct notice lost_notice;
    void (*on_lost)(hf_hold *hold, void *arg);
    void *on_lost_arg;
    int lost_fd;         /* -1: not asked for */
    struct list aliases; /* of a hold that was entered again; in an alias, its place there */
    hf_hold *lost;       /* GROUP: the member that was lost first */
    bool lost_reported;  /* GROUP: and the program was notified */
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
    hf_call *releasing;     /* the call that waits for the release */
    int result;             /* of the release */
    uint32_t refs;          /* the program's or the group's, the engine's, one for each alias */
    uint8_t role;           /* enum hold_role */
    bool released;          /* by the program */
    char text[];            /* name, label */
};

/* client.c */

/* Opens a client in a world. Takes ownership of the world, also on failure. */
int client_open_in(struct world *world, const char *url, const hf_client_options *options,
                   hf_client **ret_client);

/* Takes the mutex and sets the engine's time. On failure HF_FORKED, HF_CLOSED or, if the client is
 * NULL, HF_BAD_ARGUMENT, with the text set and without the mutex. */
int client_enter(hf_client *client);

/* The same, for calls that must also work in a closed client: false in a forked child. */
bool client_lock(hf_client *client);
void client_unlock(hf_client *client);

/* References to the memory of a client, counted under the mutex. The last one frees it.
 * client_unref releases the mutex in either case. In a forked child both work without the mutex. */
void client_ref(hf_client *client);
void client_unref(hf_client *client);

/* Copies an option struct over the defaults in `own`. HF_OK, or HF_BAD_ARGUMENT with the text
 * set. */
int client_read_options(void *own, size_t own_size, const void *given);

/* drive.c: all under the mutex. */
/* Submits what the engine has put out, and processes what the store answers. May wait for a store
 * that blocks. */
void client_pump(hf_client *client);
/* The same for calls that do not block: the standby thread does what might block. */
void client_post(hf_client *client);
/* Release and retake the mutex if the store blocks. The thread inside calls the first before and
 * the second after each call of the store, and the other way round when the store calls back. */
void client_to_store(hf_client *client);
void client_from_store(hf_client *client);
void client_take_completed(hf_client *client); /* also by the thread inside */
void client_take_answers(hf_client *client);
void client_update_time(hf_client *client);
void client_tick(hf_client *client); /* does what is due */
/* Blocks until the call is done or until_us. */
void client_await(hf_client *client, hf_call *call, int64_t until_us);
/* Drives until the engine has no holds left or until_us, and then until no other thread waits or
 * drives. */
void client_drain(hf_client *client, int64_t until_us);
void client_signal(hf_client *client, struct blocked_thread *thread);
/* The client's own threads. HF_OK, or HF_SYSTEM with the text set. */
int client_start_standby(hf_client *client);
void client_stop_standby(hf_client *client); /* without the mutex */
int client_start_thread(pthread_t *ret_thread, void *(*main)(void *), hf_client *client);
void client_init_cond(pthread_cond_t *cond);

/* call.c */
void call_init(hf_call *call, hf_client *client, enum call_type type);
/* The blocking form, for a call on the stack: pumps, waits and leaves the client. `r` is the result
 * of starting it; if that is an error, its text is set and this returns at once. */
int call_block(hf_call *call, int r);
/* The other form: a call on the heap. call_new makes it (NULL, with the text set, if there is no
 * memory), and call_hand_out gives it to the program. call_new leaves the client if it fails,
 * call_hand_out always. */
hf_call *call_new(hf_client *client, enum call_type type);
int call_hand_out(hf_call *call, int r, hf_call **ret_call);
/* Sets the result, wakes the threads that wait, and notifies the program. Takes ownership of
 * `text`. */
void call_complete(hf_call *call, int result, char *text);
/* Puts the lock's name before the particulars. Takes ownership of `text`. */
char *call_text_for(const char *name, char *text);
/* A request of the engine, or the operation of a look, has come back. */
void call_request_finished(struct request *request);
void call_op_completed(struct store_op *op);
/* For a call that had its result before its operation came back: frees its memory if the program
 * has freed the call meanwhile. */
void call_free_if_left(hf_call *call);

/* hold.c */
/* A name, or a part of one that may be empty (least 0). HF_OK, or HF_BAD_NAME with the text set. */
int hold_check_name(const char *name, const char *what, size_t least);
int hold_check_options(hf_client *client, const hf_acquire_options *given,
                       hf_acquire_options *ret_options);
/* A hold to acquire. The caller gets the program's (or group's) reference. Errors with text. */
int hold_new(hf_client *client, const char *name, const hf_acquire_options *options,
             hf_hold **ret_hold);
/* Starts to acquire, until give_up_us (hold_give_up_us computes it from wait_ms). If the hold's
 * owner already has the lock, the hold becomes an alias, and there is nothing to wait for. Errors
 * with text. */
int hold_acquire(hf_hold *hold, struct request *request, int64_t give_up_us, int64_t min_left_us);
int64_t hold_give_up_us(const hf_client *client, int64_t wait_ms);
struct hold_more *hold_more(hf_hold *hold); /* NULL: no memory */
void hold_unref(hf_hold *hold);
int64_t hold_left_us(const hf_hold *hold); /* in a group: the least */
void hold_had_news(struct hold *hold);     /* from the engine */
void hold_report_lost(hf_hold *hold);      /* to the program */
void hold_send_release(hf_hold *hold);     /* for the call in hold->releasing */
/* Releases without waiting, if not yet released, and drops the program's (or group's) reference. */
void hold_drop(hf_hold *hold);

/* group.c */
void group_name_finished(hf_call *call, int result, char *text);
hf_hold *group_at(const hf_hold *group, size_t index); /* in the order given; NULL: none */
void group_lost(hf_hold *group, hf_hold *member);
void group_report_lost(hf_hold *group);
void group_drop_members(hf_hold *group);
void group_release(hf_call *call, hf_hold *group);
void group_cancel_release(hf_hold *group);
int group_renew(hf_call *call, hf_hold *group, int64_t lease_us);

/* count.c */
void count_op_completed(struct store_op *op);
void count_end(hf_call *call, int result, char *text); /* completes it; takes ownership of `text` */
void count_tick(hf_client *client);
int64_t count_due_us(const hf_client *client); /* ENGINE_NEVER: nothing is */
void count_free(struct count *count);          /* or NULL */

/* watch.c */
void watch_changed(hf_client *client, const struct store_change *change);
void watch_op_completed(hf_client *client);
void watch_end(hf_call *call, int result, char *text); /* completes it; takes ownership of `text` */
void watch_drop(hf_call *call);                        /* waits while its callback runs */
void watch_free(struct watch *watch);                  /* or NULL */

/* event.c: these do nothing for a client without on_event. */
void event_asked(hf_hold *hold);
void event_acquire_finished(hf_hold *hold, int result);
void event_news(hf_hold *hold, uint8_t news); /* enum hold_news */

/* notice.c */
int notice_prepare(hf_client *client); /* a thread to run callbacks; errors with text */
void notice_add(hf_client *client, struct notice *notice, void (*run)(struct notice *));
void notice_drop(hf_client *client, struct notice *notice); /* waits while it runs */
void notice_signal(hf_client *client); /* that the program's loop has something to do */
void notice_stop(hf_client *client);   /* without the mutex; runs what is left */
/* Runs the callbacks that are due, without the mutex. False, and the mutex is not held, in a child
 * that a callback has forked. */
bool notice_run_all(hf_client *client);
void notice_close_fds(hf_client *client);

#endif
