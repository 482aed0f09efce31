/* Streams of the real world, against servers that the tests open themselves: what flows, how it
 * ends, and what an owner may do meanwhile.
 *
 * The linker sends some calls of the library through here (--wrap, in tests/meson.build): to count
 * writes and connections, to let a socket connect to itself, and to give a name several
 * addresses. */
#include "world/stream_test.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>

static long sends;

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    sends++;
    return __real_send(fd, bytes, size, flags);
}

/* A socket may by chance get the very port it connects to; here it always does. */
static bool connects_to_itself;
static int connects;

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
    connects++;
    if (connects_to_itself)
        CHECK(bind(fd, address, size) == 0);
    return __real_connect(fd, address, size);
}

/* "several" has a public address, which nobody may ever connect to, and those that a test adds
 * behind it. */
static const char *behind_public;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret) {
    if (strcmp(host, "several") != 0 || hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, service, hints, ret);
    int failure = __real_getaddrinfo("203.0.113.5", service, hints, ret);
    if (!failure && behind_public)
        failure = __real_getaddrinfo(behind_public, service, hints, &(*ret)->ai_next);
    return failure;
}

/* A thread that spins yields between checks. The server can be made to answer at the first
 * yield. */
static int yields, answers_at_yield = -1;
static bool others_want_the_core;

int __wrap_sched_yield(void);
int __wrap_sched_yield(void) {
    yields++;
    if (answers_at_yield >= 0)
        put(answers_at_yield, "!");
    answers_at_yield = -1;
    if (others_want_the_core)
        usleep(100);
    return 0;
}

/* ---- Bytes ---- */

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

/* Over each IPv6 address of this host, so that addresses with a zone are tried if there are any. */
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

TEST(an_ipv6_address_is_shown_in_brackets_beside_its_port) {
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

/* ---- Waiting for an answer ---- */

static void ask(struct owner *owner, int server) {
    yields = 0;
    say(owner, "?");
    world_flush(owner->stream.world);
    expect(server, "?");
}

TEST(an_answer_that_comes_at_once_is_not_slept_for) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    int spun = 0;
    yields = 0;
    quiet_turns(world); /* nothing was sent */
    CHECK_EQ_INT(yields, 0);
    ask(&owner, server);
    turn(world, 0); /* nor is there time for it */
    CHECK_EQ_INT(yields, 0);
    for (size_t i = 1; i <= 100; i++) {
        ask(&owner, server);
        answers_at_yield = server;
        world_wait_for(world, 1 * MS);
        answers_at_yield = -1;
        spun += yields > 0;
        if (!yields)
            put(server, "!");
        until(world, owner.received == i);
    }
    CHECK(spun > 0); /* and on an idle machine 100 */
    close(server);
    world_close(world);
}

static void check_that_it_sleeps(bool answers) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener), spun = 0;
    for (int i = 0; i < 126; i++) {
        ask(&owner, server);
        answers_at_yield = answers ? server : -1;
        turn(world, 1 * MS);
        spun += yields > 0;
    }
    CHECK_EQ_INT(spun, 7); /* 1, 2, 4, 8, 16, 32 were skipped in between, and then 64 */
    close(server);
    world_close(world);
}

TEST(a_slow_server_is_slept_for) {
    check_that_it_sleeps(false);
}

TEST(an_answer_is_slept_for_if_others_want_the_core) {
    others_want_the_core = true;
    check_that_it_sleeps(true);
    others_want_the_core = false;
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
    for (ssize_t got; (got = recvfrom(fd, bytes, sizeof(bytes), 0, NULL, NULL)) > 0;)
        put_all(fd, bytes, (size_t)got);
    close(fd);
    return NULL;
}

static void send_lot(struct world_stream *stream, size_t from, size_t to) {
    static char piece[10000];
    while (from < to) {
        size_t size = 0;
        while (size < sizeof(piece) && from < to)
            piece[size++] = pattern(from++);
        CHECK_EQ_INT(world_stream_send(stream, piece, size), HF_OK);
    }
}

/* The server reads nothing until 10 MiB have been sent, so most of them have to wait in the stream.
 * More is queued behind them while they go out. */
TEST(many_MiB_each_way_arrive_although_the_server_is_slow) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    owner.stream.events = &lot_events;
    int server = meet(&owner, listener);
    send_lot(&owner.stream, 0, LOT / 2);
    quiet_turns(world);
    send_lot(&owner.stream, LOT / 2, LOT);
    quiet_turns(world);
    CHECK(lot.at == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, echo, &server) == 0);
    for (size_t sent = LOT, echoed; lot.at < 3 * LOT; sent += echoed) {
        size_t before = lot.at;
        turn(world, WORLD_NEVER);
        echoed = lot.at - before;
        if (sent + echoed > 3 * LOT)
            echoed = 3 * LOT - sent;
        send_lot(&owner.stream, sent, sent + echoed);
        world_flush(world);
    }
    CHECK(!lot.wrong && owner.closed == 0);
    close_it(&owner);
    pthread_join(thread, NULL);
    world_close(world);
}

/* If the stream still watched for EPOLLOUT, the wait would return at once. */
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
        ssize_t more = recvfrom(server, piece, sizeof(piece), MSG_DONTWAIT, NULL, NULL);
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

TEST(the_end_of_a_connection_is_reported_after_what_the_server_sent) {
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

TEST(a_reset_connection_is_reported) {
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

/* Like a server with too many clients: it says so and closes, without waiting for requests. */
TEST(a_failed_write_is_reported_after_what_the_server_sent) {
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

/* More streams are ready than one wait returns. */
TEST(a_failed_write_is_reported_after_what_the_server_sent_among_many_streams) {
    enum { COUNT = 70 };
    static struct owner others[COUNT];
    static int servers[COUNT];
    struct owner owner;
    uint16_t port;
    int listener = serve(&port), unix_listener = bind_path();
    CHECK(listen(unix_listener, 5) == 0);
    struct world *world = open_world();
    own(&owner, world, NULL, 0);
    int server = meet(&owner, unix_listener);
    for (int i = 0; i < COUNT; i++) {
        own(&others[i], world, "127.0.0.1", port);
        servers[i] = meet(&others[i], listener);
    }
    for (int i = 0; i < COUNT; i++)
        put(servers[i], "first");
    put(server, "too many clients");
    close(server);
    say(&owner, "a question");
    world_flush(world);
    turn(world, 0);
    CHECK_EQ_INT(owner.closed, 1);
    CHECK_EQ_STR(owner.bytes, "too many clients");
    remove_path();
    world_close(world);
}

TEST(a_refused_connection_is_reported) {
    uint16_t port = dead_port();
    char why[200];
    snprintf(why, sizeof(why), "cannot connect to 127.0.0.1:%u: Connection refused", port);
    check_unconnected("127.0.0.1", port, why);
}

/* 203.0.113.0/24 is for documentation: nothing there may be connected to. */
static void check_too_far(const char *host, const char *words) {
    struct owner owner;
    own(&owner, open_world(), host, 6379);
    owner.stream.farthest = WORLD_PRIVATE;
    connects = 0;
    open_it(&owner);
    until(owner.stream.world, owner.closed);
    CHECK_EQ_INT(connects, 0);
    CHECK_EQ_INT(owner.opened, 0);
    CHECK_EQ_INT(owner.stream.reach, WORLD_PUBLIC);
    CHECK_EQ_STR(owner.why, words);
    world_close(owner.stream.world);
}

TEST(an_address_that_is_too_far_away_is_not_connected_to) {
    check_too_far("203.0.113.5", "203.0.113.5:6379 is not a private address");
    check_too_far("::ffff:203.0.113.5", "[::ffff:203.0.113.5]:6379 is not a private address");
    check_too_far("several",
                  "several:6379 has the address 203.0.113.5, which is not a private one");
}

TEST(of_a_names_addresses_those_that_are_near_enough_are_tried) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    behind_public = "127.0.0.1";
    own(&owner, open_world(), "several", port);
    owner.stream.farthest = WORLD_PRIVATE;
    connects = 0;
    check_both_ways(&owner, listener);
    CHECK_EQ_INT(connects, 1);
    CHECK_EQ_INT(owner.stream.reach, WORLD_THIS_HOST);
}

TEST(if_no_near_address_answers_the_failure_is_reported) {
    struct owner owner;
    behind_public = "127.0.0.1";
    own(&owner, open_world(), "several", dead_port());
    owner.stream.farthest = WORLD_PRIVATE;
    open_it(&owner);
    until(owner.stream.world, owner.closed);
    CHECK(strstr(owner.why, "Connection refused"));
    CHECK_EQ_INT(owner.stream.reach, WORLD_THIS_HOST);
    world_close(owner.stream.world);
}

TEST(a_unix_socket_that_is_missing_or_not_listening_is_reported) {
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

TEST(no_timer_is_left_of_a_stream_that_opened_or_was_closed) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    CHECK(world->timers.count == 0 && world->timer_count == 1);
    close_it(&owner);
    CHECK_EQ_INT(world->timer_count, 0);
    open_it(&owner); /* connecting */
    CHECK(world->timers.count == 1 && world->timer_count == 1);
    close_it(&owner);
    CHECK(world->timers.count == 0 && world->timer_count == 0);
    close(server);
    world_close(world);
}

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

/* The server sends more than is read at once: the next connection must not get the rest. */
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

/* The server closes the connection several times; then connecting is refused again and again. */
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
    until(world, owner.closed == 20);
    world_close(world);
}

/* Opening a unix socket that does not exist fails at once, but each failure is reported in its own
 * turn. */
TEST(a_stream_that_fails_again_and_again_does_not_hold_up_a_dispatch) {
    struct owner owner;
    close(bind_path());
    remove_path();
    struct world *world = open_world();
    own(&owner, world, NULL, 0);
    owner.on_closed = open_it;
    open_it(&owner);
    for (int closed = 0; closed < 20; closed = owner.closed) {
        turn(world, WORLD_NEVER);
        CHECK(owner.closed <= closed + 1);
    }
    world_close(world);
}

TEST(a_closed_stream_does_not_call_its_owner) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    open_it(&owner); /* connecting */
    close_it(&owner);
    close_it(&owner); /* closing again does nothing */
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

/* FAILURES.md 39. */
TEST(a_child_that_closes_its_copy_of_the_world_does_not_disturb_the_parent) {
    struct owner owner;
    uint16_t port;
    int listener = serve(&port);
    struct world *world = open_world();
    own(&owner, world, "127.0.0.1", port);
    int server = meet(&owner, listener);
    say(&owner, "half");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        world_close(world);
        _exit(owner.stream.state != NULL);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say(&owner, " and half");
    world_flush(world);
    expect(server, "half and half");
    CHECK(has_nothing(server));
    put(server, "good day");
    until(world, owner.received == 8);
    CHECK_EQ_INT(owner.closed, 0);
    world_close(world);
}
