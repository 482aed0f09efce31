/* What the tests of streams share: servers on loopback and on unix sockets, and an owner that
 * records its stream's events. A server's side of a connection uses sendto and recvfrom, which no
 * test makes fail. */
#ifndef WORLD_STREAM_TEST_H
#define WORLD_STREAM_TEST_H

#include "check.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MS = 1000, SECOND = 1000 * MS };

/* ---- Servers ---- */

static inline int listen_on(const char *address, uint16_t port, int backlog, uint16_t *ret_port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(name);
    CHECK(inet_pton(AF_INET, address, &name.sin_addr) == 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, size) == 0 && listen(fd, backlog) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&name, &size) == 0);
    *ret_port = ntohs(name.sin_port);
    return fd;
}

static inline int serve(uint16_t *ret_port) {
    return listen_on("127.0.0.1", 0, 300, ret_port);
}

/* A port that nobody listens on. */
static inline uint16_t dead_port(void) {
    uint16_t port;
    close(serve(&port));
    return port;
}

static char folder[] = "/tmp/holdfast-stream-XXXXXX";
static char path[128];

static inline int bind_path(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/socket", folder);
    memcpy(name.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    return fd;
}

static inline void remove_path(void) {
    unlink(path);
    rmdir(folder);
}

static inline int take(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline void put_all(int fd, const char *bytes, size_t size) {
    for (ssize_t put; size; bytes += put, size -= (size_t)put) {
        put = sendto(fd, bytes, size, MSG_NOSIGNAL, NULL, 0);
        CHECK(put > 0);
    }
}

static inline void put(int fd, const char *text) {
    put_all(fd, text, strlen(text));
}

static inline void expect(int fd, const char *text) {
    char got[256] = "";
    CHECK(strlen(text) < sizeof(got));
    CHECK(recvfrom(fd, got, strlen(text), MSG_WAITALL, NULL, NULL) == (ssize_t)strlen(text));
    CHECK_EQ_STR(got, text);
}

static inline bool has_nothing(int fd) {
    char byte;
    return recvfrom(fd, &byte, 1, MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN;
}

static inline void reset(int fd) {
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    close(fd);
}

/* Connections, until the queue of a listener with a short backlog is so full that the next one
 * hangs. */
static inline void fill_queue(const char *address, uint16_t port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &name.sin_addr) == 1);
    for (int i = 0; i < 8; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0 || errno == EINPROGRESS);
    }
}

/* ---- An owner of a stream ---- */

struct owner {
    struct world_stream stream;
    struct world_peer peer;
    int opened, closed;
    size_t received;
    char bytes[256]; /* the last of what was received */
    char why[600];
    void (*on_opened)(struct owner *owner);
    void (*on_received)(struct owner *owner);
    void (*on_closed)(struct owner *owner);
    struct owner *other;
};

/* Set while the world dispatches: only then may an owner be called. */
static bool dispatching;

static inline void note_opened(struct world_stream *stream) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching);
    owner->opened++;
    if (owner->on_opened)
        owner->on_opened(owner);
}

static inline void note_received(struct world_stream *stream, const char *bytes, size_t size) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching && size > 0);
    owner->received += size;
    size_t kept = size < sizeof(owner->bytes) - 1 ? size : sizeof(owner->bytes) - 1;
    memcpy(owner->bytes, bytes + size - kept, kept);
    owner->bytes[kept] = 0;
    if (owner->on_received)
        owner->on_received(owner);
}

static inline void note_closed(struct world_stream *stream, const char *why) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching && !stream->state && *why);
    owner->closed++;
    snprintf(owner->why, sizeof(owner->why), "%s", why);
    if (owner->on_closed)
        owner->on_closed(owner);
    CHECK(strcmp(owner->why, why) == 0); /* `why` is valid during the call, whatever that does */
}

static const struct world_stream_events events = {note_opened, note_received, note_closed};

static inline void own(struct owner *owner, struct world *world, const char *host, uint16_t port) {
    *owner = (struct owner){
        .stream = {.world = world,
                   .events = &events,
                   .peer = &owner->peer,
                   .farthest = WORLD_PUBLIC},
        .peer = {.host = host, .port = port, .path = host ? NULL : path, .timeout_us = 50 * SECOND},
    };
}

static inline void open_it(struct owner *owner) {
    CHECK_EQ_INT(world_stream_open(&owner->stream), HF_OK);
}

static inline void close_it(struct owner *owner) {
    world_stream_close(&owner->stream);
    CHECK(!owner->stream.state);
}

static inline void reopen(struct owner *owner) {
    close_it(owner);
    open_it(owner);
}

static inline void say(struct owner *owner, const char *text) {
    CHECK_EQ_INT(world_stream_send(&owner->stream, text, strlen(text)), HF_OK);
}

static inline struct world *open_world(void) {
    struct world *world;
    CHECK_EQ_INT(world_open_real(&world), HF_OK);
    return world;
}

static inline void turn(struct world *world, int64_t at_most_us) {
    world_wait_for(world, at_most_us);
    dispatching = true;
    world_dispatch(world);
    dispatching = false;
    world_flush(world);
}

/* Waits for as long as it takes; a test that hangs is ended from outside. */
#define until(world, condition)       \
    do {                              \
        while (!(condition))          \
            turn(world, WORLD_NEVER); \
    } while (0)

static inline void quiet_turns(struct world *world) {
    for (int i = 0; i < 5; i++)
        turn(world, 5 * MS);
}

/* Connects the owner's stream to a listener. Returns the server's side. */
static inline int meet(struct owner *owner, int listener) {
    open_it(owner);
    until(owner->stream.world, owner->opened || owner->closed);
    CHECK_EQ_STR(owner->why, "");
    return take(listener);
}

/* ---- What several tests check ---- */

static inline void check_both_ways(struct owner *owner, int listener) {
    int server = meet(owner, listener);
    say(owner, "hello");
    world_flush(owner->stream.world);
    expect(server, "hello");
    put(server, "good day");
    until(owner->stream.world, owner->received == 8);
    CHECK_EQ_STR(owner->bytes, "good day");
    CHECK(owner->opened == 1 && owner->closed == 0);
    close_it(owner);
    char byte;
    CHECK_EQ_INT(recvfrom(server, &byte, 1, 0, NULL, NULL), 0);
    close(server);
    close(listener);
    world_close(owner->stream.world);
}

static inline void check_closed(struct owner *owner, const char *why) {
    until(owner->stream.world, owner->closed);
    CHECK_EQ_STR(owner->why, why);
    quiet_turns(owner->stream.world);
    CHECK_EQ_INT(owner->closed, 1);
}

static inline void check_unconnected(const char *host, uint16_t port, const char *why) {
    struct owner owner;
    struct world *world = open_world();
    own(&owner, world, host, port);
    open_it(&owner);
    check_closed(&owner, why);
    CHECK_EQ_INT(owner.opened, 0);
    world_close(world);
}

#endif
