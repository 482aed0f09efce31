/* Machines and the network between them.
 *
 * A node is a machine that runs a client: a world (src/world/world.h) with clocks of its own, whose streams go
 * through the simulated network. A server is a model Redis with a clock of its own. Bytes take time, keep
 * their order, and arrive, unless a connection is cut or a direction is blocked: what is blocked waits, as TCP
 * would send it again, and a cut loses what was on its way. What a client sent before it closed still
 * arrives. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "base/list.h"
#include "sim/clock.h"
#include "sim/model/redis.h"
#include "world/world.h"

enum { SIM_SERVERS_MAX = 5, SIM_NODES_MAX = 8 };

struct sim_net;

/* From one node to one server. */
struct sim_link {
    struct sim_random random;
    int64_t latency_us; /* one way, at least */
    int64_t slow_us;    /* more than that, at present */
    bool up_blocked, down_blocked;
    bool lose_reply;  /* of the next request that comes: the connection is cut instead */
    bool lose_pushes; /* what is published does not arrive */
};

struct sim_server {
    struct sim_net *net;
    int index;
    struct model_redis *model;
    struct sim_clock wall;
    bool paused; /* takes nothing in, and answers nothing */
    bool down;   /* refuses connections */
    struct list pipes;
    char said[256]; /* the beginning of its last reply */
};

struct sim_node {
    struct world world;
    struct sim_net *net;
    int index;
    struct sim_clock now, wall;
    struct sim_random random;
    struct list pipes, inbox;
    struct sim_event wakeup;
    bool paused; /* what comes in waits */
    bool dead;   /* what goes out goes nowhere, and its time is no longer anybody's */
    int64_t dead_us;
    void *context;
};

struct sim_net {
    struct sim_time *time;
    struct list pipes;
    struct sim_server servers[SIM_SERVERS_MAX];
    int server_count;
    struct sim_link links[SIM_NODES_MAX][SIM_SERVERS_MAX];
    void (*run)(struct sim_node *node); /* something came, or a timer is due */
    /* A server has executed a node's request. */
    void (*executed)(struct sim_server *server, int node, size_t count, const char *const *words,
                     const char *reply);
};

/* A new world, at the node's place in `net`; the client that gets it closes it. */
struct sim_node *sim_node_new(struct sim_net *net, int index, const struct sim_clock *now,
                              const struct sim_clock *wall, struct sim_random random);

/* After the client has run: when it must run again. */
void sim_node_schedule(struct sim_node *node);
void sim_node_pause(struct sim_node *node);
void sim_node_resume(struct sim_node *node);
/* The process is gone. Its world still has to be closed. */
void sim_node_kill(struct sim_node *node);

void sim_server_init(struct sim_server *server, struct sim_net *net, int index,
                     struct model_redis *model);
/* The output function of a model that is a server's. */
void sim_server_says(void *context, const char *bytes, size_t size);
/* Forgets the connections that are left. */
void sim_net_end(struct sim_net *net);
/* Tells the model the time; before it is looked at. */
void sim_server_tell_time(struct sim_server *server);
void sim_server_pause(struct sim_server *server);
void sim_server_resume(struct sim_server *server);
/* Cuts the connections of a node (-1: of all); with `pushes_only`, those that are subscribed. */
void sim_server_cut(struct sim_server *server, int node, bool pushes_only);

/* Whatever is sent over the connections that a node has now comes later by so much, until this is called with 0. */
void sim_node_delay(struct sim_net *net, int node, int server, int64_t us);

void sim_link_block(struct sim_net *net, int node, int server, bool up, bool down);
void sim_link_unblock(struct sim_net *net, int node, int server);

#endif
