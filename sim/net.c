#include "sim/net.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_WORDS_MAX = 1024 };
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

/* One connection. It goes when both ends have closed and nothing is on its way to the server: what a process
 * sent before its death still arrives. */
struct pipe {
    struct list of_node, of_server, of_net;
    struct sim_node *node; /* NULL: gone */
    int node_index;
    struct sim_server *server;
    struct world_stream *stream;         /* NULL: the client has closed it, or is gone */
    struct model_connection *connection; /* NULL: the server has not got it, or has it no more */
    struct list chunks[2];               /* on their way */
    struct sim_event arrival[2];
    struct sim_event patience; /* of the client, while it connects */
    struct list inbox;         /* at a server that is paused */
    int64_t last_us[2];        /* when what was sent last arrives */
    bool subscribed, cut;
    int64_t late_us; /* what it carries to the server comes later by this */
    char *out;       /* sent by the client and not flushed */
    size_t out_size, out_room;
};

static void *must(void *memory) {
    if (!memory) {
        fprintf(stderr, "sim: out of memory\n");
        exit(70);
    }
    return memory;
}

static struct sim_node *node_of(struct world *world) {
    return container_of(world, struct sim_node, world);
}

static struct sim_link *link_of(const struct pipe *pipe) {
    return &pipe->server->net->links[pipe->node_index][pipe->server->index];
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
        return; /* to nobody */
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
        model_disconnect(pipe->connection);
    pipe->connection = NULL;
    list_remove(&pipe->of_server);
}

static void pipe_free(struct pipe *pipe) {
    server_closes(pipe);
    list_remove(&pipe->of_node);
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
    if (!pipe->node)
        return false;
    list_each(node, &pipe->node->inbox) {
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

/* Whatever is on its way is lost; the client hears of it after a while, the server at once. */
static void cut(struct pipe *pipe, const char *why) {
    drop_chunks(&pipe->chunks[UP]);
    drop_chunks(&pipe->chunks[DOWN]);
    drop_chunks(&pipe->inbox);
    expect(pipe, UP);
    server_closes(pipe);
    put(pipe, DOWN, CLOSES, NULL, 0, why);
}

/* ---- The server's end ---- */

void sim_server_tell_time(struct sim_server *server) {
    model_set_time(server->model, sim_clock_read(&server->wall, server->net->time->now_us));
}

/* What a model says to a connection. */
void sim_server_says(void *context, const char *bytes, size_t size) {
    static const char message[] = "*3\r\n$7\r\nmessage\r\n";
    struct pipe *pipe = context;
    struct sim_link *link = link_of(pipe);
    bool pushed = size > sizeof(message) && memcmp(bytes, message, sizeof(message) - 1) == 0;
    if (!pushed)
        snprintf(pipe->server->said, sizeof(pipe->server->said), "%.*s", (int)size, bytes);
    if (pushed ? link->lose_pushes : pipe->cut)
        return;
    if (!pushed && link->lose_reply && !pipe->subscribed) {
        link->lose_reply = false;
        pipe->cut = true; /* when the model is done with what it does */
        return;
    }
    put(pipe, DOWN, BYTES, bytes, size, NULL);
}

/* Takes the first request of what was sent apart, in place: its words, each with a NUL behind it, are copied to
 * `text`. Returns its size. */
static size_t split_request(const char *bytes, size_t size, char *text, const char **words,
                            size_t *ret_count) {
    const char *at = bytes + 1;
    size_t count = strtoul(at, (char **)&at, 10);
    assert(bytes[0] == '*' && count > 0 && count <= REQUEST_WORDS_MAX);
    at += 2;
    for (size_t i = 0; i < count; i++) {
        size_t word_size = strtoul(at + 1, (char **)&at, 10);
        at += 2;
        memcpy(text, at, word_size);
        text[word_size] = 0;
        words[i] = text;
        text += word_size + 1;
        at += word_size + 2;
    }
    assert(at <= bytes + size);
    *ret_count = count;
    return (size_t)(at - bytes);
}

/* Requests come whole: a client's write is one chunk. They are served one by one, so that what each was
 * answered is known. */
static void serve(struct pipe *pipe, const char *bytes, size_t size) {
    struct sim_server *server = pipe->server;
    const char *words[REQUEST_WORDS_MAX] = {""};
    char *text = must(malloc(size + 1));
    for (size_t used; size && pipe->connection; bytes += used, size -= used) {
        size_t count;
        used = split_request(bytes, size, text, words, &count);
        pipe->subscribed |= strcmp(words[0], "SUBSCRIBE") == 0;
        server->said[0] = 0;
        model_feed(pipe->connection, bytes, used);
        server->net->executed(server, pipe->node_index, count, words, server->said);
        if (pipe->cut)
            cut(pipe, "Connection reset by peer");
        pipe->cut = false;
    }
    free(text);
}

static void server_takes(struct pipe *pipe, struct chunk *chunk) {
    struct sim_server *server = pipe->server;
    if (chunk->type == OPENS && server->down) {
        cut(pipe, "Connection refused");
    } else if (chunk->type == OPENS) {
        pipe->connection = must(model_connect(server->model, pipe));
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

void sim_server_resume(struct sim_server *server) {
    server->paused = false;
    list_each_safe(node, &server->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_server);
        while (!list_empty(&pipe->inbox))
            server_takes(pipe, container_of(list_pop(&pipe->inbox), struct chunk, link));
        free_if_done(pipe);
    }
}

void sim_server_cut(struct sim_server *server, int node_index, bool pushes_only) {
    list_each_safe(node, &server->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_server);
        if ((node_index < 0 || pipe->node_index == node_index) &&
            (!pushes_only || pipe->subscribed)) {
            cut(pipe, "Connection reset by peer");
            free_if_done(pipe);
        }
    }
}

void sim_server_init(struct sim_server *server, struct sim_net *net, int index,
                     struct model_redis *model) {
    server->net = net;
    server->index = index;
    server->model = model;
    server->paused = server->down = false;
    list_init(&server->pipes);
}

void sim_net_end(struct sim_net *net) {
    list_each_safe(node, &net->pipes)
        pipe_free(container_of(node, struct pipe, of_net));
}

void sim_node_delay(struct sim_net *net, int node_index, int server, int64_t us) {
    list_each(node, &net->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_net);
        if (pipe->node_index != node_index || pipe->server->index != server)
            continue;
        pipe->late_us = us;
        if (!us)
            continue; /* what is on its way stays late */
        list_each(on_its_way, &pipe->chunks[UP])
            container_of(on_its_way, struct chunk, link)->at_us += us;
        pipe->last_us[UP] += us;
        expect(pipe, UP);
    }
}

void sim_link_block(struct sim_net *net, int node_index, int server, bool up, bool down) {
    net->links[node_index][server].up_blocked |= up;
    net->links[node_index][server].down_blocked |= down;
    list_each(node, &net->pipes) {
        struct pipe *pipe = container_of(node, struct pipe, of_net);
        if (pipe->node_index == node_index && pipe->server->index == server) {
            expect(pipe, UP);
            expect(pipe, DOWN);
        }
    }
}

void sim_link_unblock(struct sim_net *net, int node_index, int server) {
    net->links[node_index][server].up_blocked = net->links[node_index][server].down_blocked = false;
    sim_link_block(net, node_index, server, false, false);
}

/* ---- The client's end ---- */

static void wake(struct sim_node *node) {
    if (!node->paused)
        sim_event_set(node->net->time, &node->wakeup, node->net->time->now_us);
}

static void arrived_down(struct sim_event *event) {
    struct pipe *pipe = container_of(event, struct pipe, arrival[DOWN]);
    struct chunk *chunk = container_of(list_pop(&pipe->chunks[DOWN]), struct chunk, link);
    expect(pipe, DOWN);
    list_append(&pipe->node->inbox, &chunk->link);
    wake(pipe->node);
}

static void patience_ended(struct sim_event *event) {
    struct pipe *pipe = container_of(event, struct pipe, patience);
    struct chunk *chunk = must(calloc(1, sizeof(*chunk)));
    chunk->pipe = pipe;
    chunk->type = CLOSES;
    chunk->why = "no answer";
    drop_chunks(&pipe->chunks[DOWN]);
    expect(pipe, DOWN);
    list_append(&pipe->node->inbox, &chunk->link);
    wake(pipe->node);
}

static int64_t node_now_us(struct world *world) {
    struct sim_node *node = node_of(world);
    return sim_clock_read(&node->now, node->net->time->now_us) + node->dead_us;
}

static int64_t node_wall_us(struct world *world) {
    struct sim_node *node = node_of(world);
    return sim_clock_read(&node->wall, node->net->time->now_us);
}

static void node_random(struct world *world, void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(sim_random_next(&node_of(world)->random) >> 24);
}

static void node_arm(struct world *world, int64_t at_us) {
    (void)at_us; /* the heap says it too */
    sim_node_schedule(node_of(world));
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

static void node_ring(struct world *world) {
    wake(node_of(world));
}

/* Only who closes the client of a dead process waits: it may wait as long as it likes. */
static void node_wait_for(struct world *world, int64_t at_most_us) {
    struct sim_node *node = node_of(world);
    if (at_most_us <= 0)
        return;
    assert(node->dead);
    node->dead_us += at_most_us;
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

static void node_dispatch(struct world *world) {
    struct sim_node *node = node_of(world);
    struct list *first;
    while ((first = list_pop(&node->inbox))) {
        struct chunk *chunk = container_of(first, struct chunk, link);
        struct pipe *pipe = chunk->pipe;
        client_takes(chunk);
        free(chunk);
        free_if_done(pipe);
    }
}

/* A server is named by its number. */
static int node_open_stream(struct world_stream *stream) {
    struct sim_node *node = node_of(stream->world);
    struct pipe *pipe = must(calloc(1, sizeof(*pipe)));
    pipe->node = node;
    pipe->node_index = node->index;
    pipe->server = &node->net->servers[atoi(stream->peer->host + 1)];
    pipe->stream = stream;
    list_init(&pipe->chunks[UP]);
    list_init(&pipe->chunks[DOWN]);
    list_init(&pipe->inbox);
    list_append(&node->pipes, &pipe->of_node);
    list_append(&pipe->server->pipes, &pipe->of_server);
    list_append(&node->net->pipes, &pipe->of_net);
    sim_event_add(time_of(pipe), &pipe->patience, patience_ended);
    sim_event_set(time_of(pipe), &pipe->patience, time_of(pipe)->now_us + stream->peer->timeout_us);
    sim_event_add(time_of(pipe), &pipe->arrival[UP], arrived_up);
    sim_event_add(time_of(pipe), &pipe->arrival[DOWN], arrived_down);
    stream->state = pipe;
    if (!node->dead)
        put(pipe, UP, OPENS, NULL, 0, NULL);
    return HF_OK;
}

static int node_send(struct world_stream *stream, const void *bytes, size_t size) {
    struct pipe *pipe = stream->state;
    if (pipe->out_size + size > pipe->out_room) {
        pipe->out_room = 2 * (pipe->out_size + size);
        pipe->out = must(realloc(pipe->out, pipe->out_room));
    }
    memcpy(pipe->out + pipe->out_size, bytes, size);
    pipe->out_size += size;
    return HF_OK;
}

static void node_flush(struct world *world) {
    struct sim_node *node = node_of(world);
    list_each(link, &node->pipes) {
        struct pipe *pipe = container_of(link, struct pipe, of_node);
        if (pipe->out_size && !node->dead)
            put(pipe, UP, BYTES, pipe->out, pipe->out_size, NULL);
        pipe->out_size = 0;
    }
}

static void node_close_stream(struct world_stream *stream) {
    struct pipe *pipe = stream->state;
    stream->state = NULL;
    pipe->stream = NULL;
    sim_event_clear(time_of(pipe), &pipe->patience);
    drop_chunks(&pipe->chunks[DOWN]);
    expect(pipe, DOWN);
    put(pipe, UP, CLOSES, NULL, 0, NULL);
}

static void node_close(struct world *world) {
    struct sim_node *node = node_of(world);
    drop_chunks(&node->inbox);
    list_each_safe(link, &node->pipes) {
        struct pipe *pipe = container_of(link, struct pipe, of_node);
        if (pipe->stream)
            node_close_stream(pipe->stream);
        list_remove(&pipe->of_node);
        pipe->node = NULL;
        free_if_done(pipe);
    }
    sim_event_drop(node->net->time, &node->wakeup);
    free(node);
}

static const struct world_ops node_ops = {
    .now_us = node_now_us,
    .host_us = node_now_us,
    .wall_us = node_wall_us,
    .random = node_random,
    .arm = node_arm,
    .watch = no_watch,
    .unwatch = no_unwatch,
    .ring = node_ring,
    .wait_for = node_wait_for,
    .dispatch = node_dispatch,
    .open_stream = node_open_stream,
    .send = node_send,
    .flush = node_flush,
    .close_stream = node_close_stream,
    .close = node_close,
};

static void woke(struct sim_event *event) {
    struct sim_node *node = container_of(event, struct sim_node, wakeup);
    if (!node->paused)
        node->net->run(node);
}

struct sim_node *sim_node_new(struct sim_net *net, int index, const struct sim_clock *now,
                              const struct sim_clock *wall, struct sim_random random) {
    struct sim_node *node = must(calloc(1, sizeof(*node)));
    world_init(&node->world, &node_ops);
    node->net = net;
    node->index = index;
    node->now = *now;
    node->wall = *wall;
    node->random = random;
    list_init(&node->pipes);
    list_init(&node->inbox);
    sim_event_add(net->time, &node->wakeup, woke);
    return node;
}

void sim_node_schedule(struct sim_node *node) {
    struct heap_node *first = heap_first(&node->world.timers);
    if (node->paused || node->dead)
        return;
    if (!list_empty(&node->inbox))
        wake(node);
    else if (first)
        sim_event_set(node->net->time, &node->wakeup, sim_clock_when(&node->now, first->at));
    else
        sim_event_clear(node->net->time, &node->wakeup);
}

void sim_node_pause(struct sim_node *node) {
    node->paused = true;
    sim_event_clear(node->net->time, &node->wakeup);
}

void sim_node_resume(struct sim_node *node) {
    node->paused = false;
    wake(node);
}

void sim_node_kill(struct sim_node *node) {
    node->dead = true;
    sim_event_clear(node->net->time, &node->wakeup);
}
