/* Machines and the network between them.
 *
 * A machine is where a client's process runs: a world (src/world/world.h) with its own clocks,
 * whose streams go through the simulated network. A server is a service (service.h) with its
 * own clock. Bytes take time, keep their order, and arrive, unless a connection is cut or a
 * direction is blocked. Blocked bytes wait, since TCP would send them again; a cut loses bytes that
 * were on their way. Bytes that a client sent before it closed a connection still arrive. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "base/list.h"
#include "sim/clock.h"
#include "sim/service.h"
#include "world/world.h"

enum { SIM_SERVERS_MAX = 5, SIM_MACHINES_MAX = 8 };

struct sim_net;

/* From one machine to one server. */
struct sim_link {
    struct sim_random random;
    int64_t latency_us; /* one way, at least */
    int64_t slow_us;    /* in addition, at present */
    bool up_blocked, down_blocked;
    bool lose_reply;  /* the next reply: the connection is cut instead */
    bool lose_pushes; /* messages that the client did not ask for do not arrive */
};

struct sim_server {
    struct sim_net *net;
    int index;
    struct service_host host;
    struct service *service;
    struct sim_clock wall;
    struct sim_server *speaker; /* whose clock counts: its own, or that of its ensemble */
    struct sim_event due;       /* when the service asked to be called */
    bool paused;                /* takes nothing in, and answers nothing */
    bool down;                  /* refuses connections */
    struct list pipes;
};

struct sim_machine {
    struct world world;
    struct sim_net *net;
    int index;
    struct sim_clock now, wall;
    struct sim_random random;
    struct list pipes, inbox;
    struct sim_event wakeup;
    bool paused;     /* what comes in waits */
    bool dead;       /* what goes out is dropped */
    int64_t dead_us; /* how long the client has waited since then, which takes no true time */
    void *context;
};

struct sim_net {
    struct sim_time *time;
    struct list pipes;
    struct sim_server servers[SIM_SERVERS_MAX];
    int server_count;
    bool has_ended; /* a server has ended a connection, which is still there */
    struct sim_link links[SIM_MACHINES_MAX][SIM_SERVERS_MAX];
    void (*run)(struct sim_machine *machine); /* something came, or a timer is due */
    /* A server has executed a client's request (service.h). */
    void (*executed)(struct sim_server *server, int machine, const char *line, bool minor);
};

/* A new machine, with its place in `net`. The client that gets its world closes it. */
struct sim_machine *sim_machine_new(struct sim_net *net, int index, const struct sim_clock *now,
                                    const struct sim_clock *wall, struct sim_random random);

/* Sets when the client must run again; after it has run. */
void sim_machine_schedule(struct sim_machine *machine);
void sim_machine_pause(struct sim_machine *machine);
void sim_machine_resume(struct sim_machine *machine);
/* The process is gone. Its world still has to be closed. */
void sim_machine_kill(struct sim_machine *machine);

/* The caller, which opens the service, fills in the rest of the server's `host`. */
void sim_server_init(struct sim_server *server, struct sim_net *net, int index);
/* Closes the connections that servers have ended; after something happened to one of them. */
void sim_net_end_connections(struct sim_net *net);
/* Frees the connections that are left. */
void sim_net_end(struct sim_net *net);
/* Tells the service the time: before something happens to it, and before it is looked at. */
void sim_server_tell_time(struct sim_server *server);
void sim_server_pause(struct sim_server *server);
void sim_server_resume(struct sim_server *server);
/* Cuts the connections of a machine (-1: of all); with `listening_only`, those that get pushes. */
void sim_server_cut(struct sim_server *server, int machine, bool listening_only);

/* Delays everything sent over the connections that a machine has now, until it is called with 0. */
void sim_machine_delay(struct sim_net *net, int machine, int server, int64_t us);

void sim_link_block(struct sim_net *net, int machine, int server, bool up, bool down);
void sim_link_unblock(struct sim_net *net, int machine, int server);

#endif
