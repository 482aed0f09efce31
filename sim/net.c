#include "sim/net.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum direction { UP, DOWN };
enum chunk_type { OPENS, BYTES, CLOSES };

struct chunk {
    struct list link;
    struct pipe *pipe;
    int64_t at_us;
    enum chunk_type type;
    const char *why;
    size_t size;
    char bytes[];
};

/* One connection. It is freed when both ends have closed it and nothing is on its way to the
 * server: bytes that a process sent before it died still arrive. */
struct pipe {
    struct list of_machine, of_server, of_net;
    struct sim_machine *machine; /* NULL: gone */
    int machine_index;
    struct sim_server *server;
    struct world_stream *stream;           /* NULL: the client has closed it, or is gone */
    struct service_connection *connection; /* NULL: not open yet at the server, or closed */
    struct list chunks[2];                 /* on their way */
    struct sim_event arrival[2];
    struct sim_event patience; /* of the client, while it connects */
    struct list inbox;         /* at a server that is paused */
    int64_t last_us[2];        /* when what was sent last arrives */
    bool cut;                  /* as soon as the request that is executed is done */
    bool closing;              /* likewise, by the server, after what it has sent */
    int64_t late_us;           /* added to what is on its way to the server */
    char *out;                 /* sent by the client and not flushed */
    size_t out_size, out_room;
};

static void *must(void *memory) {
    if (!memory) {
        fprintf(stderr, "sim: out of memory\n");
        exit(70);
    }
    return memory;
}

static struct sim_machine *machine_of(struct world *world) {
    return container_of(world, struct sim_machine, world);
}

static struct sim_link *link_of(const struct pipe *pipe) {
    return &pipe->server->net->links[pipe->machine_index][pipe->server->index];
}

static struct sim_time *time_of(const struct pipe *pipe) {
    return pipe->server->net->time;
}

/* ---- On the way ---- */

static bool is_blocked(const struct pipe *pipe, enum direction direction) {
    const struct sim_link *link = link_of(pipe);
    return direction == UP ? link->up_blocked : link->down_blocked;
}

static void expect(struct pipe *pipe, enum direction direction) {
    struct sim_event *event = &pipe->arrival[direction];
    if (list_empty(&pipe->chunks[direction]) || is_blocked(pipe, direction)) {
        sim_event_clear(time_of(pipe), event);
        return;
    }
    struct chunk *first = container_of(pipe->chunks[direction].next, struct chunk, link);
    sim_event_set(time_of(pipe), event, first->at_us);
}

static void put(struct pipe *pipe, enum direction direction, enum chunk_type type,
                const char *bytes, size_t size, const char *why) {
    if (direction == DOWN && !pipe->stream)
        return; /* nobody is there */
    struct chunk *chunk = must(malloc(sizeof(*chunk) + size));
    struct sim_link *link = link_of(pipe);
    int64_t at_us = time_of(pipe)->now_us + link->latency_us + link->slow_us +
                    sim_random_between(&link->random, 0, link->latency_us / 2) +
                    (direction == UP ? pipe->late_us : 0);
    if (at_us < pipe->last_us[direction])
        at_us = pipe->last_us[direction];
    pipe->last_us[direction] = at_us;
    *chunk = (struct chunk){.pipe = pipe, .at_us = at_us, .type = type, .why = why, .size = size};
    if (size)
        memcpy(chunk->bytes, bytes, size);
    list_append(&pipe->chunks[direction], &chunk->link);
    expect(pipe, direction);
}

static void drop_chunks(struct list *chunks) {
    struct list *node;
    while ((node = list_pop(chunks)))
        free(container_of(node, struct chunk, link));
}

static void server_closes(struct pipe *pipe) {
    if (pipe->connection)
        pipe->server->service->type->disconnect(pipe->connection);
    pipe->connection = NULL;
    list_remove(&pipe->of_server);
}

static void pipe_free(struct pipe *pipe) {
    server_closes(pipe);
    list_remove(&pipe->of_machine);
    list_remove(&pipe->of_net);
    drop_chunks(&pipe->chunks[UP]);
    drop_chunks(&pipe->chunks[DOWN]);
    drop_chunks(&pipe->inbox);
    sim_event_drop(time_of(pipe), &pipe->arrival[UP]);
    sim_event_drop(time_of(pipe), &pipe->arrival[DOWN]);
    sim_event_drop(time_of(pipe), &pipe->patience);
    free(pipe->out);
    free(pipe);
}

static bool in_inbox(const struct pipe *pipe) {
    if (!pipe->machine)
        return false;
    list_each(node, &pipe->machine->inbox) {
        if (container_of(node, struct chunk, link)->pipe == pipe)
            return true;
    }
    return false;
}

static void free_if_done(struct pipe *pipe) {
    if (!pipe->stream && !pipe->connection && list_empty(&pipe->chunks[UP]) &&
        list_empty(&pipe->inbox) && !in_inbox(pipe))
        pipe_free(pipe);
}

/* Loses what is on its way. The client notices after a while, the server at once. */
static void cut(struct pipe *pipe, const char *why) {
    drop_chunks(&pipe->chunks[UP]);
    drop_chunks(&pipe->chunks[DOWN]);
    drop_chunks(&pipe->inbox);
    expect(pipe, UP);
    server_closes(pipe);
    put(pipe, DOWN, CLOSES, NULL, 0, why);
}

/* ---- The server's end ---- */

static const struct service_type *type_of(const struct pipe *pipe) {
    return pipe->server->service->type;
}

void sim_server_tell_time(struct sim_server *server) {
    server->service->type->set_time(
        server->service, sim_clock_read(&server->speaker->wall, server->net->time->now_us));
}

static void server_sends(void *context, const char *bytes, size_t size, bool pushed) {
    struct pipe *pipe = context;
    struct sim_link *link = link_of(pipe);
    if (pushed ? link->lose_pushes : pipe->cut)
        return;
    if (!pushed && link->lose_reply && !type_of(pipe)->listens(pipe->connection)) {
        link->lose_reply = false;
        pipe->cut = pipe->server->net->has_ended = true;
        return;
    }
    put(pipe, DOWN, BYTES, bytes, size, NULL);
}

static void server_ends(void *context) {
    struct pipe *pipe = context;
    pipe->closing = pipe->server->net->has_ended = true;
}

/* The caller still needs the pipe that it `keeps`. */
static void end_connections(struct sim_net *net, const struct pipe *keeps) {
    if (!net->has_ended)
        return;
    net->has_ended = false;
    list_each_safe(node, &net->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_net);
        if (!pipe->cut && !pipe->closing)
            continue;
        if (pipe->cut) {
            cut(pipe, "Connection reset by peer");
        } else if (pipe->connection) {
            server_closes(pipe);
            put(pipe, DOWN, CLOSES, NULL, 0, "the server closed the connection");
        }
        pipe->cut = pipe->closing = false;
        if (pipe != keeps)
            free_if_done(pipe);
    }
}

static void server_executed(void *context, const char *line, bool minor) {
    struct pipe *pipe = context;
    pipe->server->net->executed(pipe->server, pipe->machine_index, line, minor);
}

static void serve(struct pipe *pipe, const char *bytes, size_t size) {
    for (size_t used; size && pipe->connection; bytes += used, size -= used) {
        used = type_of(pipe)->feed(pipe->connection, bytes, size);
        end_connections(pipe->server->net, pipe);
    }
}

static void server_takes(struct pipe *pipe, struct chunk *chunk) {
    struct sim_server *server = pipe->server;
    if (chunk->type == OPENS && server->down) {
        cut(pipe, "Connection refused");
    } else if (chunk->type == OPENS) {
        pipe->connection = type_of(pipe)->connect(server->service, pipe);
        put(pipe, DOWN, OPENS, NULL, 0, NULL);
    } else if (chunk->type == CLOSES) {
        server_closes(pipe);
    } else if (pipe->connection) {
        sim_server_tell_time(server);
        serve(pipe, chunk->bytes, chunk->size);
    }
    free(chunk);
}

static void arrived_up(struct sim_event *event) {
    struct pipe *pipe = container_of(event, struct pipe, arrival[UP]);
    struct chunk *chunk = container_of(list_pop(&pipe->chunks[UP]), struct chunk, link);
    if (pipe->server->paused)
        list_append(&pipe->inbox, &chunk->link);
    else
        server_takes(pipe, chunk);
    expect(pipe, UP);
    free_if_done(pipe);
}

void sim_server_pause(struct sim_server *server) {
    server->paused = true;
}

static struct pipe *first_with_inbox(const struct sim_server *server) {
    list_each(node, &server->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_server);
        if (!list_empty(&pipe->inbox))
            return pipe;
    }
    return NULL;
}

void sim_server_resume(struct sim_server *server) {
    struct pipe *pipe;
    server->paused = false;
    while ((pipe = first_with_inbox(server))) {
        server_takes(pipe, container_of(list_pop(&pipe->inbox), struct chunk, link));
        free_if_done(pipe);
    }
}

/* ---- What a service does on its own ---- */

void sim_net_end_connections(struct sim_net *net) {
    end_connections(net, NULL);
}

static void server_due(struct sim_event *event) {
    struct sim_server *server = container_of(event, struct sim_server, due);
    sim_server_tell_time(server);
    server->service->type->expire(server->service);
    sim_net_end_connections(server->net);
}

static void server_arms(struct service_host *host, int64_t at_us) {
    struct sim_server *server = container_of(host, struct sim_server, host);
    if (at_us == INT64_MAX)
        sim_event_clear(server->net->time, &server->due);
    else
        sim_event_set(server->net->time, &server->due, sim_clock_when(&server->wall, at_us));
}

static bool listens(const struct pipe *pipe) {
    return pipe->connection && type_of(pipe)->listens(pipe->connection);
}

void sim_server_cut(struct sim_server *server, int machine_index, bool listening_only) {
    list_each_safe(node, &server->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_server);
        if ((machine_index < 0 || pipe->machine_index == machine_index) &&
            (!listening_only || listens(pipe))) {
            cut(pipe, "Connection reset by peer");
            free_if_done(pipe);
        }
    }
}

void sim_server_init(struct sim_server *server, struct sim_net *net, int index) {
    server->net = net;
    server->index = index;
    server->speaker = server;
    server->host.send = server_sends;
    server->host.close = server_ends;
    server->host.arm = server_arms;
    server->host.executed = server_executed;
    server->paused = server->down = false;
    list_init(&server->pipes);
    sim_event_add(net->time, &server->due, server_due);
}

void sim_net_end(struct sim_net *net) {
    list_each_safe(node, &net->pipes)
        pipe_free(container_of(node, struct pipe, of_net));
    for (int i = 0; i < net->server_count; i++)
        sim_event_drop(net->time, &net->servers[i].due);
}

void sim_machine_delay(struct sim_net *net, int machine_index, int server, int64_t us) {
    list_each(node, &net->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_net);
        if (pipe->machine_index != machine_index || pipe->server->index != server)
            continue;
        pipe->late_us = us;
        if (!us)
            continue; /* what is on its way keeps its delay */
        list_each(on_its_way, &pipe->chunks[UP])
            container_of(on_its_way, struct chunk, link)->at_us += us;
        pipe->last_us[UP] += us;
        expect(pipe, UP);
    }
}

void sim_link_block(struct sim_net *net, int machine_index, int server, bool up, bool down) {
    net->links[machine_index][server].up_blocked |= up;
    net->links[machine_index][server].down_blocked |= down;
    list_each(node, &net->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_net);
        if (pipe->machine_index == machine_index && pipe->server->index == server) {
            expect(pipe, UP);
            expect(pipe, DOWN);
        }
    }
}

void sim_link_unblock(struct sim_net *net, int machine_index, int server) {
    net->links[machine_index][server].up_blocked = net->links[machine_index][server].down_blocked =
        false;
    sim_link_block(net, machine_index, server, false, false);
}

/* ---- The client's end ---- */

static void wake(struct sim_machine *machine) {
    if (!machine->paused)
        sim_event_set(machine->net->time, &machine->wakeup, machine->net->time->now_us);
}

static void arrived_down(struct sim_event *event) {
    struct pipe *pipe = container_of(event, struct pipe, arrival[DOWN]);
    struct chunk *chunk = container_of(list_pop(&pipe->chunks[DOWN]), struct chunk, link);
    expect(pipe, DOWN);
    list_append(&pipe->machine->inbox, &chunk->link);
    wake(pipe->machine);
}

static void patience_ended(struct sim_event *event) {
    struct pipe *pipe = container_of(event, struct pipe, patience);
    struct chunk *chunk = must(calloc(1, sizeof(*chunk)));
    chunk->pipe = pipe;
    chunk->type = CLOSES;
    chunk->why = "no answer";
    drop_chunks(&pipe->chunks[DOWN]);
    expect(pipe, DOWN);
    list_append(&pipe->machine->inbox, &chunk->link);
    wake(pipe->machine);
}

static int64_t machine_now_us(struct world *world) {
    struct sim_machine *machine = machine_of(world);
    return sim_clock_read(&machine->now, machine->net->time->now_us) + machine->dead_us;
}

static int64_t machine_wall_us(struct world *world) {
    struct sim_machine *machine = machine_of(world);
    return sim_clock_read(&machine->wall, machine->net->time->now_us);
}

static void machine_random(struct world *world, void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(sim_random_next(&machine_of(world)->random) >> 24);
}

static void machine_arm(struct world *world, int64_t at_us) {
    (void)at_us; /* it is also in the heap */
    sim_machine_schedule(machine_of(world));
}

static int no_watch(struct world *world, struct world_watch *watch) {
    (void)world;
    (void)watch;
    return HF_SYSTEM;
}

static void no_unwatch(struct world *world, struct world_watch *watch) {
    (void)world;
    (void)watch;
}

static void machine_ring(struct world *world) {
    wake(machine_of(world));
}

/* Only closing the client of a dead process waits. That takes no true time. */
static void machine_wait_for(struct world *world, int64_t at_most_us) {
    struct sim_machine *machine = machine_of(world);
    if (at_most_us <= 0)
        return;
    assert(machine->dead);
    machine->dead_us += at_most_us;
}

static void client_takes(struct chunk *chunk) {
    struct pipe *pipe = chunk->pipe;
    struct world_stream *stream = pipe->stream;
    if (!stream)
        return;
    sim_event_clear(time_of(pipe), &pipe->patience);
    if (chunk->type == OPENS) {
        stream->events->opened(stream);
    } else if (chunk->type == BYTES) {
        stream->events->received(stream, chunk->bytes, chunk->size);
    } else {
        drop_chunks(&pipe->chunks[DOWN]);
        expect(pipe, DOWN);
        stream->state = NULL;
        pipe->stream = NULL;
        stream->events->closed(stream, chunk->why);
        if (pipe->connection)
            put(pipe, UP, CLOSES, NULL, 0, NULL);
    }
}

static void machine_dispatch(struct world *world) {
    struct sim_machine *machine = machine_of(world);
    struct list *first;
    while ((first = list_pop(&machine->inbox))) {
        struct chunk *chunk = container_of(first, struct chunk, link);
        struct pipe *pipe = chunk->pipe;
        client_takes(chunk);
        free(chunk);
        free_if_done(pipe);
    }
}

/* A server's host name is "s" and its number. */
static int machine_open_stream(struct world_stream *stream) {
    struct sim_machine *machine = machine_of(stream->world);
    struct pipe *pipe = must(calloc(1, sizeof(*pipe)));
    pipe->machine = machine;
    pipe->machine_index = machine->index;
    pipe->server = &machine->net->servers[atoi(stream->peer->host + 1)];
    pipe->stream = stream;
    list_init(&pipe->chunks[UP]);
    list_init(&pipe->chunks[DOWN]);
    list_init(&pipe->inbox);
    list_append(&machine->pipes, &pipe->of_machine);
    list_append(&pipe->server->pipes, &pipe->of_server);
    list_append(&machine->net->pipes, &pipe->of_net);
    sim_event_add(time_of(pipe), &pipe->patience, patience_ended);
    sim_event_set(time_of(pipe), &pipe->patience, time_of(pipe)->now_us + stream->peer->timeout_us);
    sim_event_add(time_of(pipe), &pipe->arrival[UP], arrived_up);
    sim_event_add(time_of(pipe), &pipe->arrival[DOWN], arrived_down);
    stream->state = pipe;
    if (!machine->dead)
        put(pipe, UP, OPENS, NULL, 0, NULL);
    return HF_OK;
}

static int machine_send(struct world_stream *stream, const void *bytes, size_t size) {
    struct pipe *pipe = stream->state;
    if (pipe->out_size + size > pipe->out_room) {
        pipe->out_room = 2 * (pipe->out_size + size);
        pipe->out = must(realloc(pipe->out, pipe->out_room));
    }
    memcpy(pipe->out + pipe->out_size, bytes, size);
    pipe->out_size += size;
    return HF_OK;
}

static void machine_flush(struct world *world) {
    struct sim_machine *machine = machine_of(world);
    list_each(link, &machine->pipes) {
        struct pipe *pipe = container_of(link, struct pipe, of_machine);
        if (pipe->out_size && !machine->dead)
            put(pipe, UP, BYTES, pipe->out, pipe->out_size, NULL);
        pipe->out_size = 0;
    }
}

static void machine_close_stream(struct world_stream *stream) {
    struct pipe *pipe = stream->state;
    stream->state = NULL;
    pipe->stream = NULL;
    sim_event_clear(time_of(pipe), &pipe->patience);
    drop_chunks(&pipe->chunks[DOWN]);
    expect(pipe, DOWN);
    put(pipe, UP, CLOSES, NULL, 0, NULL);
}

static void machine_close(struct world *world) {
    struct sim_machine *machine = machine_of(world);
    drop_chunks(&machine->inbox);
    list_each_safe(link, &machine->pipes) {
        struct pipe *pipe = container_of(link, struct pipe, of_machine);
        if (pipe->stream)
            machine_close_stream(pipe->stream);
        list_remove(&pipe->of_machine);
        pipe->machine = NULL;
        free_if_done(pipe);
    }
    sim_event_drop(machine->net->time, &machine->wakeup);
    free(machine);
}

static const struct world_ops machine_ops = {
    .now_us = machine_now_us,
    .host_us = machine_now_us,
    .wall_us = machine_wall_us,
    .random = machine_random,
    .arm = machine_arm,
    .watch = no_watch,
    .unwatch = no_unwatch,
    .ring = machine_ring,
    .wait_for = machine_wait_for,
    .dispatch = machine_dispatch,
    .open_stream = machine_open_stream,
    .send = machine_send,
    .flush = machine_flush,
    .close_stream = machine_close_stream,
    .close = machine_close,
};

static void woke(struct sim_event *event) {
    struct sim_machine *machine = container_of(event, struct sim_machine, wakeup);
    if (!machine->paused)
        machine->net->run(machine);
}

struct sim_machine *sim_machine_new(struct sim_net *net, int index, const struct sim_clock *now,
                                    const struct sim_clock *wall, struct sim_random random) {
    struct sim_machine *machine = must(calloc(1, sizeof(*machine)));
    world_init(&machine->world, &machine_ops);
    machine->net = net;
    machine->index = index;
    machine->now = *now;
    machine->wall = *wall;
    machine->random = random;
    list_init(&machine->pipes);
    list_init(&machine->inbox);
    sim_event_add(net->time, &machine->wakeup, woke);
    return machine;
}

void sim_machine_schedule(struct sim_machine *machine) {
    struct heap_node *first = heap_first(&machine->world.timers);
    if (machine->paused || machine->dead)
        return;
    if (!list_empty(&machine->inbox))
        wake(machine);
    else if (first)
        sim_event_set(machine->net->time, &machine->wakeup,
                      sim_clock_when(&machine->now, first->at));
    else
        sim_event_clear(machine->net->time, &machine->wakeup);
}

void sim_machine_pause(struct sim_machine *machine) {
    machine->paused = true;
    sim_event_clear(machine->net->time, &machine->wakeup);
}

void sim_machine_resume(struct sim_machine *machine) {
    machine->paused = false;
    wake(machine);
}

void sim_machine_kill(struct sim_machine *machine) {
    machine->dead = true;
    sim_event_clear(machine->net->time, &machine->wakeup);
}
