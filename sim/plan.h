/* The script of a history, made from its seed: which clients ask for what and when, and what goes
 * wrong. A plan is plain data, so a failing history can be made shorter by leaving things out of
 * it. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PLAN_CLIENTS_MAX = 4,
    PLAN_WORKERS_MAX = 3,
    PLAN_NAMES_MAX = 2,
    PLAN_STEPS_MAX = 20,
    PLAN_FAULTS_MAX = 6,
    PLAN_COUNTS_MAX = 20,
    PLAN_SERVERS_MAX = 5,
    PLAN_MAX_LEASE_MS = 5000,
    PLAN_EDITION = 3 /* an earlier edition leaves out what was added since */
};

/* Faults that any service may suffer, carried out by the simulator: the network, processes, clocks,
 * restarts, an operator. X(name, text). FAULT_OWN stands for the faults that only one service
 * knows. */
#define PLAN_FAULTS(X)                                               \
    X(CUT, "a connection is cut")                                    \
    X(LOSE_REPLY, "a reply is lost with its connection")             \
    X(BLOCK_UP, "requests do not get through")                       \
    X(BLOCK_DOWN, "replies do not get through")                      \
    X(PARTITION, "nothing gets through")                             \
    X(SLOW, "a slow link")                                           \
    X(DELAY, "what was sent so far comes late")                      \
    X(LOSE_PUSHES, "wake-ups are lost")                              \
    X(CUT_PUSHES, "a subscription is cut")                           \
    X(REFUSE, "the server refuses connections")                      \
    X(STALL, "the server stalls")                                    \
    X(RESTART_ALL, "the server restarts with its data")              \
    X(RESTART_NONE, "the server restarts empty")                     \
    X(RESTART_SAVED, "the server will restart with its data of now") \
    X(RESTART_SOME, "the server restarts with some keys")            \
    X(STEP_FORWARD, "the server's clock is set forward")             \
    X(STEP_BACK, "the server's clock is set back")                   \
    X(SLEW, "the server's clock is slewed")                          \
    X(WALL, "a client's time of day is set")                         \
    X(PAUSE, "a client pauses")                                      \
    X(KILL, "a client is killed, and started again")                 \
    X(BREAK, "an operator breaks a lock")                            \
    X(OWN, NULL)

enum fault_kind {
#define X(name, text) FAULT_##name,
    PLAN_FAULTS(X)
#undef X
};

struct service_type;
struct service_fault;

/* Locks are called "a" and "b"; in a plan, 0 and 1. */
const char *plan_name_text(int name);
int plan_name_number(const char *text);
extern const char plan_counter_name[];

struct plan_name {
    enum store_kind kind;
    uint32_t capacity;
    bool shares; /* some want it shared */
};

struct plan_client {
    int64_t now_ppm; /* its clocks run fast by this: within what drift allows for */
    int64_t wall_off_us;
    int64_t wait_lease_ms;
    int64_t latency_us;
};

/* What one worker of a client does: it acquires a lock, holds it, and releases it. */
struct plan_step {
    bool left_out;
    uint8_t client, worker, name;
    uint32_t weight;
    int64_t after_us; /* since the worker's last step */
    int64_t lease_ms, wait_ms, min_left_ms;
    int64_t hold_us;
    int64_t cancel_us; /* give up after this time; 0: do not */
    int64_t renew_ms;  /* renew by hand for this time, as soon as it is held; 0: do not */
    bool barges, renews;
    /* Since edition 2: */
    int64_t renew_again_ms; /* the same, when half of the hold's time is over */
    uint32_t capacity;      /* of permits: the name's, or another */
    uint32_t other_weight;  /* of the other name, which is acquired with it; 0: it is not */
    bool reenters;          /* it is entered again, and released twice */
    bool wants_fd;
};

/* One step of a client on the counter. (Since edition 3.) */
struct plan_count {
    bool left_out;
    uint8_t client;
    hf_count_op op; /* GET, ADD or CAS */
    int64_t at_us, wait_ms;
};

struct plan_fault {
    bool left_out;
    const struct service_fault *what;
    int64_t at_us, for_us;
    uint8_t client, name;
    uint8_t servers; /* the servers that it affects, a bit for each */
    int64_t amount;
};

struct plan {
    uint64_t seed;
    const struct service_type *service;
    int server_count; /* 1, or the nodes of a set, or the members of an ensemble */
    int voter_count;  /* the servers that grant independently: an ensemble counts as one */
    int quorum;       /* of those */
    int64_t node_timeout_ms;
    bool far;          /* its servers are far from its clients */
    bool durable;      /* its clients declare that the servers forget nothing when they restart */
    bool listed_twice; /* by mistake, the URL also has the first server's name in the last place */
    bool events;       /* its clients have on_event */
    int64_t server_ppm[PLAN_SERVERS_MAX];
    int client_count, name_count, step_count, fault_count, count_count;
    struct plan_client clients[PLAN_CLIENTS_MAX];
    struct plan_name names[PLAN_NAMES_MAX];
    struct plan_step steps[PLAN_STEPS_MAX];
    struct plan_fault faults[PLAN_FAULTS_MAX];
    int64_t count_expiry_ms; /* of the counter; 0: it has no end */
    struct plan_count counts[PLAN_COUNTS_MAX];
};

/* Histories of one server and of sets, or of sets only. */
enum plan_mix { PLAN_ANY, PLAN_SETS };
/* `choice` says what kind of plans to make: it is the same for all histories of a run. */
struct plan_choice {
    const struct service_type *service;
    enum plan_mix mix;
    int edition;
};
void plan_make(struct plan *plan, uint64_t seed, const struct plan_choice *choice);

/* In the words of stories. */
const char *plan_fault_text(const struct service_fault *fault);

#endif
