/* Streams of the real world, against servers that the tests open themselves: on loopback, and on unix sockets
 * in a folder of their own.
 *
 * The linker sends some calls of the library through here (--wrap, in tests/meson.build): to hand out chosen
 * addresses, to let a look-up hang, to count writes, and to make each call fail in its turn. */
#include "check.h"
#include "world/epoch.h"
#include "world/real.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/un.h>

/* TSan refuses to go on in the child of a process with threads, unless told otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

enum { MS = 1000, SECOND = 1000 * MS, NEVER = -1 };

/* ---- Calls that are counted, or fail ---- */

/* Only this thread's. */
static _Thread_local long calls, fail_at = NEVER;
static _Thread_local long sends;

static bool fails(int error) {
    if (fail_at == NEVER || calls++ != fail_at)
        return false;
    errno = error;
    return true;
}

#define WRAP(type, name, error, failure, parameters, arguments)    \
    type __real_##name parameters;                                 \
    type __wrap_##name parameters;                                 \
    type __wrap_##name parameters {                                \
        return fails(error) ? (failure) : __real_##name arguments; \
    }

WRAP(void *, malloc, ENOMEM, NULL, (size_t size), (size))
WRAP(void *, calloc, ENOMEM, NULL, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, ENOMEM, NULL, (void *memory, size_t size), (memory, size))
WRAP(int, socket, EMFILE, -1, (int family, int type, int protocol), (family, type, protocol))
WRAP(int, epoll_ctl, ENOSPC, -1, (int set, int what, int fd, struct epoll_event *event),
     (set, what, fd, event))
WRAP(ssize_t, recv, ENOMEM, -1, (int fd, void *bytes, size_t size, int flags),
     (fd, bytes, size, flags))
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg),
     (thread, attributes, start, arg))

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    sends++;
    return fails(ENOBUFS) ? -1 : __real_send(fd, bytes, size, flags);
}

/* A socket may by chance get the very port it connects to; here it always does. */
static bool connects_to_itself;

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
    if (connects_to_itself)
        CHECK(bind(fd, address, size) == 0);
    return fails(ENETUNREACH) ? -1 : __real_connect(fd, address, size);
}

/* ---- A name service ---- */

/* The name "chosen.test" has these addresses; "slow.test" has the first one, when it is released. */
static const char *chosen[4];
static sem_t slow_asked, slow_released, slow_answered;
static pthread_t asked_on;
static sigset_t asked_with;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

static int chosen_addresses(const char *service, const struct addrinfo *hints,
                            struct addrinfo **ret_found) {
    for (size_t i = 0; i < 4 && chosen[i]; i++) {
        int failure = __real_getaddrinfo(chosen[i], service, hints, ret_found);
        if (failure)
            return failure;
        ret_found = &(*ret_found)->ai_next; /* glibc frees node by node */
    }
    return 0;
}

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found) {
    if (!(hints->ai_flags & AI_NUMERICHOST)) {
        asked_on = pthread_self();
        pthread_sigmask(SIG_SETMASK, NULL, &asked_with);
    }
    if (strcmp(host, "chosen.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST))
        return chosen_addresses(service, hints, ret_found);
    if (strcmp(host, "slow.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
        sem_post(&slow_asked);
        while (sem_wait(&slow_released) < 0) {}
        int failure = __real_getaddrinfo("127.0.0.1", service, hints, ret_found);
        sem_post(&slow_answered);
        return failure;
    }
    return __real_getaddrinfo(host, service, hints, ret_found);
}

static void await(sem_t *semaphore) {
    while (sem_wait(semaphore) < 0)
        CHECK(errno == EINTR);
}

static void init_slow_names(void) {
    sem_init(&slow_asked, 0, 0);
    sem_init(&slow_released, 0, 0);
    sem_init(&slow_answered, 0, 0);
}

/* ---- Servers ---- */

static int listen_on(const char *address, uint16_t port, int backlog, uint16_t *ret_port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(name);
    CHECK(inet_pton(AF_INET, address, &name.sin_addr) == 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, size) == 0 && listen(fd, backlog) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&name, &size) == 0);
    *ret_port = ntohs(name.sin_port);
    return fd;
}

static int serve(uint16_t *ret_port) {
    return listen_on("127.0.0.1", 0, 300, ret_port);
}

/* A port that nobody listens on. */
static uint16_t dead_port(void) {
    uint16_t port;
    close(serve(&port));
    return port;
}

static char folder[] = "/tmp/holdfast-stream-XXXXXX";
static char path[128];

static int bind_path(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/socket", folder);
    memcpy(name.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    return fd;
}

static void remove_path(void) {
    unlink(path);
    rmdir(folder);
}

static int take(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static void put_all(int fd, const char *bytes, size_t size) {
    for (ssize_t put; size; bytes += put, size -= (size_t)put) {
        put = __real_send(fd, bytes, size, MSG_NOSIGNAL);
        CHECK(put > 0);
    }
}

static void put(int fd, const char *text) {
    put_all(fd, text, strlen(text));
}

static void expect(int fd, const char *text) {
    char got[256] = "";
    CHECK(strlen(text) < sizeof(got));
    CHECK(__real_recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text));
    CHECK_EQ_STR(got, text);
}

static bool has_nothing(int fd) {
    char byte;
    return __real_recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void reset(int fd) {
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    close(fd);
}

/* Connections, until the queue of a listener with a short backlog is so full that the next one hangs. */
static void fill_queue(const char *address, uint16_t port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &name.sin_addr) == 1);
    for (int i = 0; i < 8; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(__real_connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0 ||
              errno == EINPROGRESS);
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

static void note_opened(struct world_stream *stream) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching);
    owner->opened++;
    if (owner->on_opened)
        owner->on_opened(owner);
}

static void note_received(struct world_stream *stream, const char *bytes, size_t size) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching && size > 0);
    owner->received += size;
    size_t kept = size < sizeof(owner->bytes) - 1 ? size : sizeof(owner->bytes) - 1;
    memcpy(owner->bytes, bytes + size - kept, kept);
    owner->bytes[kept] = 0;
    if (owner->on_received)
        owner->on_received(owner);
}

static void note_closed(struct world_stream *stream, const char *why) {
    struct owner *owner = container_of(stream, struct owner, stream);
    CHECK(dispatching && !stream->state && *why);
    owner->closed++;
    snprintf(owner->why, sizeof(owner->why), "%s", why);
    if (owner->on_closed)
        owner->on_closed(owner);
    CHECK(strcmp(owner->why, why) == 0); /* it lives during the call, whatever the call does */
}

static const struct world_stream_events events = {note_opened, note_received, note_closed};

static void own(struct owner *owner, struct world *world, const char *host, uint16_t port) {
    *owner = (struct owner){
        .stream = {.world = world, .events = &events, .peer = &owner->peer},
        .peer = {.host = host, .port = port, .path = host ? NULL : path, .timeout_us = 50 * SECOND},
    };
}

static void open_it(struct owner *owner) {
    CHECK_EQ_INT(world_stream_open(&owner->stream), HF_OK);
}

static void close_it(struct owner *owner) {
    world_stream_close(&owner->stream);
    CHECK(!owner->stream.state);
}

static void reopen(struct owner *owner) {
    close_it(owner);
    open_it(owner);
}

static void say(struct owner *owner, const char *text) {
    CHECK_EQ_INT(world_stream_send(&owner->stream, text, strlen(text)), HF_OK);
}

static struct world *open_world(void) {
    struct world *world;
    CHECK_EQ_INT(world_open_real(&world), HF_OK);
    return world;
}

static void turn(struct world *world, int64_t at_most_us) {
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

static void quiet_turns(struct world *world) {
    for (int i = 0; i < 5; i++)
        turn(world, 5 * MS);
}

/* Opens it at a listener, and is the server's side. */
static int meet(struct owner *owner, int listener) {
    open_it(owner);
    until(owner->stream.world, owner->opened || owner->closed);
    CHECK_EQ_STR(owner->why, "");
    return take(listener);
}

/* ---- Bytes ---- */

static void check_both_ways(struct owner *owner, int listener) {
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
    CHECK_EQ_INT(recv(server, &byte, 1, 0), 0);
    close(server);
    close(listener);
    world_close(owner->stream.world);
}

TEST(bytes_go_both_ways_over_tcp) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    own(&owner, open_world(), "127.0.0.1", port);
    check_both_ways(&owner, listener);
}

TEST(bytes_go_both_ways_over_a_unix_socket) {
    struct owner owner;
    int listener = bind_path();
    CHECK(listen(listener, 5) == 0);
    own(&owner, open_world(), NULL, 0);
    check_both_ways(&owner, listener);
    remove_path();
}

static void check_ipv6(const char *host, struct sockaddr_in6 name) {
    socklen_t size = sizeof(name);
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, size) == 0);
    CHECK(listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&name, &size) == 0);
    struct owner owner;
    own(&owner, open_world(), host, ntohs(name.sin6_port));
    check_both_ways(&owner, listener);
}

/* To each address of this host, so that there are those with a zone among them, if it has any. */
TEST(bytes_go_both_ways_over_ipv6) {
    struct ifaddrs *all;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET6 || !(one->ifa_flags & IFF_UP))
            continue;
        char host[NI_MAXHOST];
        struct sockaddr_in6 name;
        memcpy(&name, one->ifa_addr, sizeof(name));
        CHECK(getnameinfo(one->ifa_addr, sizeof(name), host, sizeof(host), NULL, 0,
                          NI_NUMERICHOST) == 0);
        printf("# %s\n", host);
        check_ipv6(host, name);
    }
    freeifaddrs(all);
}

TEST(an_ipv6_address_is_told_from_its_port) {
    char why[200];
    uint16_t port = dead_port();
    struct owner owner;
    struct world *world = open_world();
    own(&owner, world, "::1", port);
    open_it(&owner);
    until(world, owner.closed);
    snprintf(why, sizeof(why), "cannot connect to [::1]:%u: ", port);
    CHECK(strncmp(owner.why, why, strlen(why)) == 0);
    world_close(world);
}

TEST(the_socket_is_tuned_and_stays_out_of_other_programs) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port), value = 0;
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int next = dup(listener); /* the descriptor that the socket gets */
    close(next);
    int server = meet(&owner, listener);
    socklen_t size = sizeof(value);
    CHECK(getsockopt(next, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0 && value);
    CHECK(getsockopt(next, SOL_SOCKET, SO_KEEPALIVE, &value, &size) == 0 && value);
    CHECK(getsockopt(next, IPPROTO_TCP, TCP_KEEPIDLE, &value, &size) == 0 && value == 10);
    CHECK(getsockopt(next, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size) == 0 && value == 30000);
    CHECK(fcntl(next, F_GETFD) & FD_CLOEXEC && fcntl(next, F_GETFL) & O_NONBLOCK);
    close(server);
    world_close(world);
}

TEST(what_was_queued_goes_out_in_one_write_at_the_flush) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    sends = 0;
    for (int i = 0; i < 1000; i++)
        say(&owner, "0123456789");
    CHECK(has_nothing(server));
    world_flush(world);
    CHECK_EQ_INT(sends, 1);
    static char got[10001];
    CHECK_EQ_INT(recv(server, got, sizeof(got), 0), 10000);
    world_flush(world); /* nothing is left to write */
    CHECK_EQ_INT(sends, 1);
    CHECK_EQ_INT(world_stream_send(&owner.stream, "", 0), HF_OK);
    world_flush(world);
    CHECK(has_nothing(server));
    close(server);
    world_close(world);
}

/* ---- A lot of bytes ---- */

enum { LOT = 10 * 1024 * 1024 };

static char pattern(size_t place) {
    return (char)(place * 31 + place / 253);
}

static struct {
    size_t at;
    bool wrong;
} lot;

static void check_lot(struct world_stream *stream, const char *bytes, size_t size) {
    (void)stream;
    for (size_t i = 0; i < size; i++)
        lot.wrong |= bytes[i] != pattern(lot.at++);
}

static const struct world_stream_events lot_events = {note_opened, check_lot, note_closed};

/* Echoes, through a small buffer of its own, until the client is gone. */
static void *echo(void *arg) {
    int fd = *(int *)arg;
    static char bytes[20000];
    for (ssize_t got; (got = __real_recv(fd, bytes, sizeof(bytes), 0)) > 0;)
        put_all(fd, bytes, (size_t)got);
    close(fd);
    return NULL;
}

/* The server does not read before everything was sent, so that most of it has to wait here. */
TEST(ten_MiB_each_way_arrive_although_the_server_is_slow) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.stream.events = &lot_events;
    int server = meet(&owner, listener);
    static char piece[10000];
    for (size_t at = 0; at < LOT;) {
        size_t size = LOT - at < sizeof(piece) ? LOT - at : sizeof(piece);
        for (size_t i = 0; i < size; i++)
            piece[i] = pattern(at++);
        CHECK_EQ_INT(world_stream_send(&owner.stream, piece, size), HF_OK);
        if (at % 7 == 0)
            turn(world, 0);
    }
    quiet_turns(world);
    CHECK(lot.at == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, echo, &server) == 0);
    until(world, lot.at == LOT);
    CHECK(!lot.wrong && owner.closed == 0);
    close_it(&owner);
    pthread_join(thread, NULL);
    world_close(world);
}

/* A wait that nothing ends would turn and turn if the kernel were still asked whether it takes more. */
TEST(a_stream_with_nothing_to_write_does_not_wake_the_world) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    static char piece[LOT];
    CHECK_EQ_INT(world_stream_send(&owner.stream, piece, LOT), HF_OK);
    world_flush(world);
    for (size_t got = 0; got < LOT;) {
        turn(world, 0);
        ssize_t more = __real_recv(server, piece, sizeof(piece), MSG_DONTWAIT);
        got += more > 0 ? (size_t)more : 0;
    }
    turn(world, 0);
    turn(world, 0);
    int64_t began_us = world_now_us(world);
    turn(world, 50 * MS);
    CHECK(world_now_us(world) - began_us >= 49 * MS);
    close(server);
    world_close(world);
}

/* ---- Ends ---- */

static void check_closed(struct owner *owner, const char *why) {
    until(owner->stream.world, owner->closed);
    CHECK_EQ_STR(owner->why, why);
    quiet_turns(owner->stream.world);
    CHECK_EQ_INT(owner->closed, 1);
}

TEST(a_server_that_closes_is_told_after_what_it_said) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    put(server, "bye");
    close(server);
    check_closed(&owner, "the server closed the connection");
    CHECK_EQ_STR(owner.bytes, "bye");
    world_close(world);
}

TEST(a_server_that_resets_is_told) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    reset(meet(&owner, listener));
    char why[200];
    snprintf(why, sizeof(why), "the connection to 127.0.0.1:%u broke: Connection reset by peer",
             port);
    check_closed(&owner, why);
    world_close(world);
}

/* As when a server has too many clients: it says so and goes, without waiting for what they ask. */
TEST(a_write_that_fails_is_told_after_what_the_server_said) {
    struct owner owner;
    int listener = bind_path();
    CHECK(listen(listener, 5) == 0);
    struct world *world = open_world();
    own(&owner, world, NULL, 0);
    int server = meet(&owner, listener);
    put(server, "too many clients");
    close(server);
    say(&owner, "a question");
    world_flush(world); /* EPIPE */
    say(&owner, "another");
    world_flush(world);
    CHECK_EQ_INT(owner.closed, 0);
    char why[200];
    snprintf(why, sizeof(why), "the connection to %s broke: Broken pipe", path);
    check_closed(&owner, why);
    CHECK_EQ_STR(owner.bytes, "too many clients");
    remove_path();
    world_close(world);
}

TEST(a_write_that_the_kernel_has_no_room_for_is_told) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    say(&owner, "a question");
    calls = 0;
    fail_at = 0;
    world_flush(world);
    fail_at = NEVER;
    char why[200];
    snprintf(why, sizeof(why), "the connection to 127.0.0.1:%u broke: No buffer space available",
             port);
    check_closed(&owner, why);
    close(server);
    world_close(world);
}

static void check_unconnected(const char *host, uint16_t port, const char *why) {
    struct owner owner;
    struct world *world = open_world();
    own(&owner, world, host, port);
    open_it(&owner);
    check_closed(&owner, why);
    CHECK_EQ_INT(owner.opened, 0);
    world_close(world);
}

TEST(a_connection_that_is_refused_is_told) {
    uint16_t port = dead_port();
    char why[200];
    snprintf(why, sizeof(why), "cannot connect to 127.0.0.1:%u: Connection refused", port);
    check_unconnected("127.0.0.1", port, why);
}

TEST(a_unix_socket_that_is_not_there_or_not_listening_is_told) {
    char why[200];
    int fd = bind_path();
    snprintf(why, sizeof(why), "cannot connect to %s: Connection refused", path);
    check_unconnected(NULL, 0, why);
    close(fd);
    unlink(path);
    snprintf(why, sizeof(why), "cannot connect to %s: No such file or directory", path);
    check_unconnected(NULL, 0, why);
    remove_path();
}

TEST(the_path_of_a_unix_socket_has_a_limit_and_all_of_it_may_be_used) {
    memset(path, 'a', 108);
    char why[300];
    snprintf(why, sizeof(why), "cannot connect: the path of a socket has 107 bytes at most: %s",
             path);
    check_unconnected(NULL, 0, why);
    path[107] = 0;
    snprintf(why, sizeof(why), "cannot connect to %s: No such file or directory", path);
    check_unconnected(NULL, 0, why);
}

TEST(a_socket_that_was_connected_to_itself_is_refused) {
    uint16_t port = dead_port();
    char why[200];
    snprintf(why, sizeof(why), "cannot connect to 127.0.0.1:%u: Connection refused", port);
    connects_to_itself = true;
    check_unconnected("127.0.0.1", port, why);
}

/* ---- Time ---- */

TEST(a_server_that_does_not_answer_is_given_up_at_its_time) {
    struct owner owner;
    uint16_t port;
    struct world *world = open_world();
    listen_on("127.0.0.1", 0, 0, &port);
    fill_queue("127.0.0.1", port);
    own(&owner, world, "127.0.0.1", port);
    owner.peer.timeout_us = 70 * MS;
    int64_t began_us = world_now_us(world);
    open_it(&owner);
    char why[200];
    snprintf(why, sizeof(why), "no answer from 127.0.0.1:%u within 70 ms", port);
    check_closed(&owner, why);
    CHECK(world_now_us(world) - began_us >= 70 * MS);
    world_close(world);
}

TEST(a_unix_socket_with_a_full_queue_is_waited_for) {
    struct owner first, second, third;
    int listener = bind_path();
    CHECK(listen(listener, 0) == 0);
    struct world *world = open_world();
    own(&first, world, NULL, 0);
    own(&second, world, NULL, 0);
    own(&third, world, NULL, 0);
    third.peer.timeout_us = 70 * MS;
    open_it(&first);
    until(world, first.opened);
    open_it(&second);
    open_it(&third);
    char why[200];
    snprintf(why, sizeof(why), "no answer from %s within 70 ms", path);
    check_closed(&third, why);
    CHECK(second.opened == 0 && second.closed == 0);
    close(take(listener));
    until(world, second.opened);
    remove_path();
    world_close(world);
}

/* ---- Names ---- */

TEST(a_name_is_looked_up_on_another_thread_without_signals) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "localhost", port);
    int server = meet(&owner, listener);
    CHECK(!pthread_equal(asked_on, pthread_self()));
    CHECK(sigismember(&asked_with, SIGINT) && sigismember(&asked_with, SIGUSR1));
    sigset_t own_signals;
    pthread_sigmask(SIG_SETMASK, NULL, &own_signals);
    CHECK(!sigismember(&own_signals, SIGUSR1));
    close(server);
    world_close(world);
}

TEST(a_name_is_looked_up_in_place_where_there_may_be_no_threads) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    world->threads = false;
    own(&owner, world, "localhost", port);
    int server = meet(&owner, listener);
    CHECK(pthread_equal(asked_on, pthread_self()));
    close(server);
    world_close(world);
}

/* Whatever the name service of this host makes of it, and if it is that it does not answer. */
TEST(a_name_that_does_not_exist_is_told) {
    struct owner owner;
    struct world *world = open_world();
    own(&owner, world, "nosuch.invalid", 1);
    owner.peer.timeout_us = 5 * SECOND;
    open_it(&owner);
    until(world, owner.closed);
    printf("# %s\n", owner.why);
    CHECK(strncmp(owner.why, "cannot look up \"nosuch.invalid\": ", 33) == 0);
    CHECK(strlen(owner.why) > 40);
    world_close(world);
}

TEST(the_next_address_is_tried_when_one_refuses) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.3";
    chosen[2] = "127.0.0.1";
    own(&owner, open_world(), "chosen.test", port);
    check_both_ways(&owner, listener);
}

TEST(the_next_address_is_tried_when_one_does_not_answer_in_its_share_of_the_time) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    listen_on("127.0.0.2", port, 0, &port);
    fill_queue("127.0.0.2", port);
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.1";
    struct world *world = open_world();
    own(&owner, world, "chosen.test", port);
    owner.peer.timeout_us = 3 * SECOND;
    int64_t began_us = world_now_us(world);
    open_it(&owner);
    until(world, owner.opened || owner.closed);
    int64_t passed_us = world_now_us(world) - began_us;
    /* A machine that stood still for longer than the second's share would not get to it. */
    CHECK(owner.opened ? passed_us >= 1400 * MS : passed_us >= 3 * SECOND);
    close(listener);
    world_close(world);
}

TEST(when_all_addresses_fail_the_last_error_and_their_number_are_told) {
    uint16_t port = dead_port();
    char why[200];
    chosen[0] = "127.0.0.2";
    chosen[1] = "127.0.0.3";
    chosen[2] = "127.0.0.1";
    snprintf(why, sizeof(why),
             "cannot connect to chosen.test:%u: Connection refused (the last of 3 addresses)",
             port);
    check_unconnected("chosen.test", port, why);
}

TEST(a_name_service_that_hangs_does_not_hold_up_a_stream) {
    struct owner slow, other;
    uint16_t port;
    int listener = serve(&port);
    init_slow_names();
    struct world *world = open_world();
    own(&slow, world, "slow.test", port);
    own(&other, world, "127.0.0.1", port);
    open_it(&slow);
    await(&slow_asked);
    int server = meet(&other, listener);
    put(server, "still here");
    until(world, other.received == 10);
    CHECK(slow.opened == 0 && slow.closed == 0);
    sem_post(&slow_released);
    until(world, slow.opened);
    close(server);
    world_close(world);
}

TEST(a_name_service_that_hangs_is_given_up_at_its_time) {
    struct owner owner;
    init_slow_names();
    struct world *world = open_world();
    own(&owner, world, "slow.test", 1);
    owner.peer.timeout_us = 50 * MS;
    open_it(&owner);
    check_closed(&owner, "cannot look up \"slow.test\": no answer within 50 ms");
    sem_post(&slow_released);
    await(&slow_answered);
    quiet_turns(world);
    CHECK(owner.closed == 1 && owner.opened == 0);
    world_close(world);
}

/* The answer comes before, while or after the stream, and then the world, are closed. */
TEST(closing_during_a_look_up_neither_waits_nor_leaves_anything_behind) {
    init_slow_names();
    for (int i = 0; i < 60; i++) {
        struct owner owner;
        struct world *world = open_world();
        own(&owner, world, "slow.test", 1);
        open_it(&owner);
        await(&slow_asked);
        if (i % 3 == 0)
            sem_post(&slow_released);
        if (i % 2)
            close_it(&owner);
        else if (i % 4 == 0)
            turn(world, 0);
        world_close(world);
        CHECK(!owner.stream.state);
        CHECK(owner.opened == 0 && owner.closed <= 1);
        if (i % 3)
            sem_post(&slow_released);
        await(&slow_answered);
    }
}

/* ---- Closing and opening in the middle of an event ---- */

TEST(a_stream_may_be_closed_in_each_of_its_events_and_is_silent_then) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.on_opened = close_it;
    close(meet(&owner, listener));
    quiet_turns(world);
    CHECK(owner.opened == 1 && owner.received == 0 && owner.closed == 0);

    own(&owner, world, "127.0.0.1", port);
    owner.on_received = close_it;
    int server = meet(&owner, listener);
    static char much[200000];
    put_all(server, much, sizeof(much));
    until(world, owner.received);
    size_t received = owner.received;
    close(server);
    quiet_turns(world);
    CHECK(owner.received == received && owner.closed == 0);

    own(&owner, world, "127.0.0.1", port);
    owner.on_closed = close_it;
    close(meet(&owner, listener));
    check_closed(&owner, "the server closed the connection");
    world_close(world);
}

TEST(a_stream_may_be_opened_again_when_it_opened) {
    struct owner owner;
    uint16_t port;
    serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.on_opened = reopen;
    open_it(&owner);
    until(world, owner.opened == 10);
    CHECK_EQ_INT(owner.closed, 0);
    world_close(world);
}

/* The server sends more than is read at once: the rest is not for the next connection. */
TEST(a_stream_may_be_opened_again_when_it_received) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.on_received = reopen;
    int server = meet(&owner, listener);
    static char much[200000];
    for (int i = 1; i < 10; i++) {
        owner.received = 0;
        put_all(server, much, sizeof(much));
        until(world, owner.opened == i + 1);
        CHECK(owner.received > 0 && owner.received <= 65536);
        close(server);
        server = take(listener);
    }
    world_close(world);
}

/* By the server, and then refused, again and again, each in a turn of its own. */
TEST(a_stream_may_be_opened_again_when_it_closed) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.on_closed = open_it;
    open_it(&owner);
    for (int i = 1; i < 10; i++) {
        until(world, owner.opened == i);
        close(take(listener));
        until(world, owner.closed == i);
    }
    close(listener);
    for (int closed = owner.closed; closed < 20; closed = owner.closed) {
        turn(world, WORLD_NEVER);
        CHECK(owner.closed <= closed + 1);
    }
    world_close(world);
}

TEST(nothing_is_told_of_a_stream_that_was_closed) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    open_it(&owner); /* connecting */
    close_it(&owner);
    close_it(&owner); /* once more does nothing */
    quiet_turns(world);
    own(&owner, world, "127.0.0.1", dead_port());
    open_it(&owner); /* failed */
    close_it(&owner);
    quiet_turns(world);
    close(take(listener)); /* of the first */
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    put(server, "not heard");
    say(&owner, "not said");
    world_wait_for(world, WORLD_NEVER);
    close_it(&owner); /* between the wait and the dispatch */
    turn(world, 0);
    quiet_turns(world);
    CHECK(owner.opened == 1 && owner.received == 0 && owner.closed == 0);
    world_close(world);
}

/* ---- Many ---- */

static void close_other(struct owner *owner) {
    if (owner->other)
        close_it(owner->other);
    owner->other = NULL;
}

TEST(many_streams_live_side_by_side_and_may_close_each_other) {
    enum { COUNT = 200 };
    static struct owner owners[COUNT];
    static int servers[COUNT];
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    for (int i = 0; i < COUNT; i++) {
        own(&owners[i], world, "127.0.0.1", port);
        servers[i] = meet(&owners[i], listener);
        say(&owners[i], "question");
    }
    world_flush(world);
    for (int i = 0; i < COUNT; i++) {
        expect(servers[i], "question");
        put(servers[i], "answer");
    }
    for (int i = 0; i < COUNT; i++)
        until(world, owners[i].received == 6);
    for (int i = 0; i < COUNT; i++) {
        owners[i].on_received = close_other;
        owners[i].other = &owners[i ^ 1];
        put(servers[i], "last");
    }
    for (int i = 0; i < COUNT; i += 2)
        until(world, owners[i].received + owners[i + 1].received == 16);
    quiet_turns(world);
    for (int i = 0; i < COUNT; i += 2)
        CHECK(owners[i].received + owners[i + 1].received == 16 &&
              !owners[i].stream.state != !owners[i + 1].stream.state);
    world_close(world);
}

/* ---- The end of a world, and forks ---- */

TEST(a_world_closes_the_streams_that_are_open) {
    struct owner open, connecting, failed;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&open, world, "127.0.0.1", port);
    own(&connecting, world, "127.0.0.1", port);
    own(&failed, world, "127.0.0.1", dead_port());
    int server = meet(&open, listener);
    say(&open, "not flushed");
    open_it(&connecting);
    open_it(&failed);
    world_close(world);
    CHECK(!open.stream.state && !connecting.stream.state && !failed.stream.state);
    CHECK(open.closed + connecting.closed + failed.closed == 0);
    char byte;
    CHECK_EQ_INT(recv(server, &byte, 1, 0), 0);
}

/* failures.md 39. The child has a look-up whose thread it has not got, besides. */
TEST(a_child_that_closes_its_copy_of_the_world_does_not_disturb_the_parent) {
    struct owner owner, slow;
    uint16_t port;
    int listener = serve(&port);
    init_slow_names();
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    own(&slow, world, "slow.test", port);
    int server = meet(&owner, listener);
    open_it(&slow);
    await(&slow_asked);
    say(&owner, "half");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        world_close(world);
        _exit(owner.stream.state || slow.stream.state);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say(&owner, " and half");
    world_flush(world);
    expect(server, "half and half");
    CHECK(has_nothing(server));
    put(server, "good day");
    until(world, owner.received == 8);
    sem_post(&slow_released);
    until(world, slow.opened);
    CHECK_EQ_INT(owner.closed, 0);
    world_close(world);
}

/* ---- Calls that fail ---- */

static int count_fds(void) {
    int count = 0;
    DIR *here = opendir("/proc/self/fd");
    CHECK(here != NULL);
    while (readdir(here))
        count++;
    closedir(here);
    return count;
}

static bool done(int r) {
    CHECK(r == HF_OK || r == HF_NO_MEMORY || r == HF_SYSTEM);
    return r == HF_OK;
}

static int serve_unfailing(uint16_t *ret_port) {
    long before = fail_at;
    fail_at = NEVER;
    int listener = serve(ret_port);
    fail_at = before;
    return listener;
}

/* Whatever fails, the owner gets to know, at once or by an event. */
static void say_and_hear(struct world *world, const char *host) {
    static char question[8 * 1024 * 1024]; /* more than the kernel takes at once */
    uint16_t port;
    int listener = serve_unfailing(&port), server = -1;
    struct owner owner;
    own(&owner, world, host, port);
    if (done(world_stream_open(&owner.stream)))
        until(world, owner.opened || owner.closed);
    if (owner.opened && !owner.closed &&
        done(world_stream_send(&owner.stream, question, sizeof(question)))) {
        world_flush(world);
        server = take(listener);
        put(server, "answer");
        until(world, owner.received || owner.closed);
        close(server);
    }
    CHECK(owner.closed <= 1);
    close_it(&owner);
    close(listener);
}

static void story(void) {
    struct world *world;
    if (!done(world_open_real(&world)))
        return;
    say_and_hear(world, "127.0.0.1");
    say_and_hear(world, "localhost");
    world_close(world);
}

TEST(each_call_that_fails_is_told_and_leaves_nothing_behind) {
    CHECK(world_epoch_start() != 0);
    int fds = count_fds();
    long index = 0;
    for (bool more = true; more; index++) {
        calls = 0;
        fail_at = index;
        story();
        more = calls > index;
        fail_at = NEVER;
        CHECK_EQ_INT(count_fds(), fds);
    }
    CHECK(index > 15);
    printf("# %ld calls\n", index - 1);
}
