/* The streams of the real world: connecting, address by address, then sending and receiving. A call
 * to a stream never calls its owner; only the world's dispatch does. So a stream that fails within
 * a call sets its timer to now. Nothing here waits.
 *
 * Design notes.
 *
 * Resolving and connecting share one deadline. Each address gets a share of the time that is left,
 * so that one that drops packets leaves time for the next. Time that an address does not use goes
 * to those after it.
 *
 * In each of its functions the owner may close the stream and open it again, and the new state may
 * be at the same address. So the owner's function is called last; after `received` the world is
 * asked whether the stream is still the one being read.
 *
 * A process may fork at any point in here, and the child then discards what it finds. So a pointer
 * is changed before its target is freed, and a descriptor is forgotten before it is closed. */
#include "world/real.h"

#include <assert.h>
#include <errno.h>
#include <holdfast/holdfast.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    READ_SIZE = 64 * 1024,
    READS_AT_ONCE = 4,
    OUT_ROOM_FIRST = 4096,
    OUT_ROOM_KEPT = 1024 * 1024, /* a larger buffer is freed when it is empty */
    RETRY_US = 10000,
    KEEPALIVE_IDLE_S = 10,
    KEEPALIVE_EVERY_S = 3,
    KEEPALIVE_COUNT = 3,
    UNACKNOWLEDGED_MS = 30000,
    WHY_SIZE = 512,
    PEER_SIZE = 300,
};

enum phase { LOOKING_UP, CONNECTING, OPEN, FAILED };

struct stream {
    struct world_stream *owner;
    struct real *real;
    struct list link;      /* in the world's streams */
    struct list unflushed; /* in the world's `unflushed`, or in none */
    enum phase phase;
    struct world_timer timer;
    struct world_watch watch; /* fd is -1 while there is no socket */

    int64_t deadline_us;
    struct lookup *lookup;
    struct addrinfo *found;         /* to be freed */
    const struct addrinfo *next;    /* to try */
    const struct addrinfo *refused; /* the last one that is too far away */
    int tried, error;               /* how many; the last one's error, 0: no answer in time */
    struct addrinfo unix_info;
    struct sockaddr_un unix_address;

    char *out;
    size_t out_begin, out_end, out_room;
    char why[WHY_SIZE]; /* the reason, if it fails now or at the next dispatch; else "" */
};

/* ---- Ending ---- */

static void close_socket(struct stream *s) {
    int fd = s->watch.fd;
    s->watch.fd = -1;
    if (fd >= 0)
        close(fd);
}

static void free_addresses(struct stream *s) {
    struct addrinfo *found = s->found;
    s->found = NULL;
    s->next = s->refused = NULL;
    if (found)
        freeaddrinfo(found);
}

static void forget_lookup(struct stream *s) {
    struct lookup *lookup = s->lookup;
    s->lookup = NULL;
    if (lookup)
        lookup_abandon(lookup);
}

/* Frees only memory and descriptors; see stream_discard_all. */
static void discard(struct stream *s) {
    s->owner->state = NULL;
    list_remove(&s->link);
    list_remove(&s->unflushed);
    forget_lookup(s);
    close_socket(s);
    free_addresses(s);
    free(s->out);
    free(s);
}

static void drop_socket(struct stream *s) {
    if (s->watch.fd >= 0)
        world_unwatch(&s->real->world, &s->watch);
    close_socket(s);
}

static void end(struct stream *s) {
    if (s->real->reading == s)
        s->real->reading = NULL;
    drop_socket(s);
    world_timer_drop(&s->real->world, &s->timer);
    discard(s);
}

void stream_close(struct world_stream *owner) {
    end(owner->state);
}

void stream_discard_all(struct real *real) {
    list_each_safe(node, &real->streams)
        discard(container_of(node, struct stream, link));
    free(real->bytes);
}

/* ---- Reasons ---- */

static void name_peer(const struct world_peer *peer, char text[static PEER_SIZE]) {
    if (!peer->host)
        snprintf(text, PEER_SIZE, "%s", peer->path);
    else if (strchr(peer->host, ':'))
        snprintf(text, PEER_SIZE, "[%s]:%u", peer->host, (unsigned)peer->port);
    else
        snprintf(text, PEER_SIZE, "%s:%u", peer->host, (unsigned)peer->port);
}

static long long timeout_ms(const struct stream *s) {
    return (long long)s->owner->peer->timeout_us / 1000;
}

__attribute__((format(printf, 2, 3))) static void explain(struct stream *s, const char *format,
                                                          ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->why, sizeof(s->why), format, arguments);
    va_end(arguments);
}

static void explain_broken(struct stream *s, int error) {
    char peer[PEER_SIZE];
    name_peer(s->owner->peer, peer);
    explain(s, "the connection to %s broke: %s", peer, strerror(error));
}

static void explain_refused(struct stream *s, const char *peer) {
    char address[NI_MAXHOST] = "?";
    getnameinfo(s->refused->ai_addr, s->refused->ai_addrlen, address, sizeof(address), NULL, 0,
                NI_NUMERICHOST);
    s->owner->reach = world_reach_of(s->refused->ai_addr);
    bool is_name = strcmp(address, s->owner->peer->host) != 0;
    if (is_name)
        explain(s, "%s has the address %s, which is not a private one", peer, address);
    else
        explain(s, "%s is not a private address", peer);
}

static void explain_unconnected(struct stream *s) {
    char peer[PEER_SIZE], several[48] = "";
    name_peer(s->owner->peer, peer);
    if (!s->tried && s->refused) {
        explain_refused(s, peer);
        return;
    }
    if (s->tried > 1)
        snprintf(several, sizeof(several), " (the last of %d addresses)", s->tried);
    if (s->error)
        explain(s, "cannot connect to %s: %s%s", peer, strerror(s->error), several);
    else
        explain(s, "no answer from %s within %lld ms%s", peer, timeout_ms(s), several);
}

/* Ends the stream and notifies its owner; only while the world dispatches. */
static void end_with_event(struct stream *s) {
    struct world_stream *owner = s->owner;
    char why[WHY_SIZE];
    memcpy(why, s->why, sizeof(why));
    end(s);
    owner->events->closed(owner, why);
}

/* The same, from anywhere: at the next dispatch. */
static void end_soon(struct stream *s) {
    world_timer_set(&s->real->world, &s->timer, world_now_us(&s->real->world));
}

/* ---- Connecting ---- */

static int begin_connecting(struct stream *s, const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int error = 0;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS)
        error = errno;
    s->watch.fd = fd;
    s->watch.events = EPOLLOUT;
    if (!error) {
        int r = world_watch(&s->real->world, &s->watch);
        error = r == HF_NO_MEMORY ? ENOMEM : r < 0 ? errno : 0;
    }
    if (error)
        close_socket(s);
    return error;
}

static int64_t share_of_time_us(const struct stream *s, int64_t now_us) {
    int addresses = 1;
    for (const struct addrinfo *other = s->next; other; other = other->ai_next)
        addresses++;
    return (s->deadline_us - now_us) / addresses;
}

static void wait_until(struct stream *s, int64_t until_us) {
    world_timer_set(&s->real->world, &s->timer,
                    until_us < s->deadline_us ? until_us : s->deadline_us);
}

/* Starts to connect to the next address that does not fail at once. A unix socket with a full queue
 * answers EAGAIN, and no event reports when that changes: it is retried until the deadline. */
static void connect_next(struct stream *s) {
    int64_t now_us = world_now_us(&s->real->world);
    s->phase = CONNECTING;
    while (s->next && now_us < s->deadline_us) {
        enum world_reach reach = world_reach_of(s->next->ai_addr);
        if (reach > s->owner->farthest) {
            s->refused = s->next;
            s->next = s->next->ai_next;
            continue;
        }
        s->owner->reach = reach;
        s->error = begin_connecting(s, s->next);
        if (s->error == EAGAIN && s->next->ai_family == AF_UNIX) {
            wait_until(s, now_us + RETRY_US);
            return;
        }
        s->next = s->next->ai_next;
        s->tried++;
        if (!s->error) {
            wait_until(s, now_us + share_of_time_us(s, now_us));
            return;
        }
    }
    s->phase = FAILED;
    explain_unconnected(s);
    end_soon(s);
}

static void try_another(struct stream *s, int error) {
    drop_socket(s);
    s->error = error;
    connect_next(s);
}

/* If no server listens, TCP may give a socket the same port that it connects to, and the socket
 * then connects to itself. It would echo what it is sent, and keep the server from starting
 * again. */
static bool is_its_own_peer(int fd) {
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 && own.ss_family != AF_UNIX &&
           own_size == peer_size && memcmp(&own, &peer, own_size) == 0;
}

static int connect_error(int fd) {
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return errno;
    return !error && is_its_own_peer(fd) ? ECONNREFUSED : error;
}

/* Small messages go out at once, and a server that vanished is noticed within half a minute. A
 * system that lacks one of these options is no failure. */
static void tune(int fd, const struct world_peer *peer) {
    static const struct {
        int level, name, value;
    } settings[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
    };
    for (size_t i = 0; peer->host && i < sizeof(settings) / sizeof(*settings); i++)
        (void)setsockopt(fd, settings[i].level, settings[i].name, &settings[i].value, sizeof(int));
}

static void connect_ended(struct stream *s) {
    int error = connect_error(s->watch.fd);
    if (!error && world_watch_change(&s->real->world, &s->watch, EPOLLIN) < 0)
        error = errno;
    if (error) {
        try_another(s, error);
        return;
    }
    s->phase = OPEN;
    world_timer_clear(&s->real->world, &s->timer);
    free_addresses(s);
    tune(s->watch.fd, s->owner->peer);
    s->owner->events->opened(s->owner);
}

/* ---- Bytes ---- */

/* False if the stream is gone afterwards. */
static bool read_in(struct stream *s, int reads_at_most) {
    struct real *real = s->real;
    ssize_t got = READ_SIZE;
    for (int i = 0; i < reads_at_most && got == READ_SIZE; i++) {
        got = recv(s->watch.fd, real->bytes, READ_SIZE, 0);
        if (got <= 0)
            break;
        real->reading = s;
        s->owner->events->received(s->owner, real->bytes, (size_t)got);
        if (real->reading != s)
            return false;
        real->reading = NULL;
    }
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return true;
    if (!*s->why && got == 0)
        explain(s, "the server closed the connection");
    else if (!*s->why)
        explain_broken(s, errno);
    end_with_event(s);
    return false;
}

/* Replaces the buffer rather than moving it with realloc; see the design notes. */
static bool make_room(struct stream *s, size_t size) {
    size_t used = s->out_end - s->out_begin, room = s->out_room;
    if (size <= room - s->out_end)
        return true;
    if (size > SIZE_MAX / 4 || used > SIZE_MAX / 4)
        return false;
    if (used + size <= room / 2) { /* moves fewer bytes than went out */
        memmove(s->out, s->out + s->out_begin, used);
    } else {
        for (room = room ? room * 2 : OUT_ROOM_FIRST; room < used + size;)
            room *= 2;
        char *old = s->out, *out = malloc(room);
        if (!out)
            return false;
        if (used)
            memcpy(out, old + s->out_begin, used);
        s->out = out;
        s->out_room = room;
        free(old);
    }
    s->out_begin = 0;
    s->out_end = used;
    return true;
}

int stream_send(struct world_stream *owner, const void *bytes, size_t size) {
    struct stream *s = owner->state;
    assert(s && s->phase == OPEN);
    if (!size || *s->why)
        return HF_OK; /* `closed` will follow */
    if (!make_room(s, size))
        return HF_NO_MEMORY;
    memcpy(s->out + s->out_end, bytes, size);
    s->out_end += size;
    if (list_empty(&s->unflushed) && !(s->watch.events & EPOLLOUT))
        list_append(&s->real->unflushed, &s->unflushed);
    return HF_OK;
}

static void all_is_out(struct stream *s) {
    s->out_begin = s->out_end = 0;
    if (s->out_room > OUT_ROOM_KEPT) {
        char *out = s->out;
        s->out = NULL;
        s->out_room = 0;
        free(out);
    }
}

static void break_soon(struct stream *s, int error) {
    explain_broken(s, error);
    end_soon(s);
}

/* What the kernel does not accept stays queued until it does. */
static void write_out(struct stream *s) {
    if (*s->why)
        return;
    ssize_t put = send(s->watch.fd, s->out + s->out_begin, s->out_end - s->out_begin, MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN && errno != EINTR) {
        break_soon(s, errno);
        return;
    }
    s->out_begin += put > 0 ? (size_t)put : 0;
    atomic_store_explicit(&s->real->sent, true, memory_order_relaxed);
    if (s->out_begin == s->out_end)
        all_is_out(s);
    uint32_t events = s->out_end ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (world_watch_change(&s->real->world, &s->watch, events) < 0)
        break_soon(s, errno);
}

void stream_flush(struct world *world) {
    struct list *node;
    while ((node = list_pop(&real_of(world)->unflushed)))
        write_out(container_of(node, struct stream, unflushed));
}

/* ---- What the world calls ---- */

static void socket_ready(struct world_watch *watch, uint32_t events) {
    struct stream *s = container_of(watch, struct stream, watch);
    if (s->phase == CONNECTING) {
        connect_ended(s);
        return;
    }
    if (events & EPOLLOUT)
        write_out(s);
    if (events & ~(uint32_t)EPOLLOUT)
        read_in(s, READS_AT_ONCE);
}

/* After a failed write there may still be something to read, and it often says why. */
static void timer_came(struct world_timer *timer) {
    struct stream *s = container_of(timer, struct stream, timer);
    switch (s->phase) {
    case LOOKING_UP:
        explain(s, "cannot look up \"%.255s\": no answer within %lld ms", s->owner->peer->host,
                timeout_ms(s));
        end_with_event(s);
        break;
    case CONNECTING:
        try_another(s, 0);
        break;
    case OPEN:
        if (read_in(s, INT_MAX))
            end_with_event(s);
        break;
    case FAILED:
        end_with_event(s);
        break;
    }
}

void stream_looked_up(struct real *real) {
    list_each(node, &real->streams) {
        struct stream *s = container_of(node, struct stream, link);
        const char *why = NULL;
        if (!s->lookup || !lookup_take(s->lookup, &s->found, &why))
            continue;
        s->lookup = NULL;
        s->next = s->found;
        if (s->found) {
            connect_next(s);
        } else {
            s->phase = FAILED;
            explain(s, "cannot look up \"%.255s\": %s", s->owner->peer->host, why);
            end_soon(s);
        }
    }
}

/* ---- Opening ---- */

static void begin_unix(struct stream *s, const char *path) {
    size_t length = strlen(path), most = sizeof(s->unix_address.sun_path) - 1;
    if (length > most) {
        s->phase = FAILED;
        explain(s, "cannot connect: the path of a socket has %zu bytes at most: %s", most, path);
        end_soon(s);
        return;
    }
    s->unix_address.sun_family = AF_UNIX;
    memcpy(s->unix_address.sun_path, path, length);
    s->unix_info = (struct addrinfo){.ai_family = AF_UNIX,
                                     .ai_addr = (struct sockaddr *)&s->unix_address,
                                     .ai_addrlen = sizeof(s->unix_address)};
    s->next = &s->unix_info;
    connect_next(s);
}

static int begin_host(struct stream *s, const struct world_peer *peer) {
    int r = lookup_literal(peer->host, peer->port, &s->found);
    if (r < 0)
        return r;
    s->next = s->found;
    if (s->found) {
        connect_next(s);
        return HF_OK;
    }
    world_timer_set(&s->real->world, &s->timer, s->deadline_us);
    return lookup_start(&s->real->looked_up, s->real->world.threads, peer->host, peer->port,
                        &s->lookup);
}

static struct stream *new_stream(struct world_stream *owner) {
    struct real *real = real_of(owner->world);
    if (!real->bytes)
        real->bytes = malloc(READ_SIZE);
    struct stream *s = real->bytes ? calloc(1, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    s->owner = owner;
    s->real = real;
    s->watch = (struct world_watch){.fd = -1, .fn = socket_ready};
    list_init(&s->unflushed);
    if (world_timer_add(owner->world, &s->timer, timer_came) < 0) {
        free(s);
        return NULL;
    }
    list_append(&real->streams, &s->link);
    owner->state = s;
    return s;
}

int stream_open(struct world_stream *owner) {
    assert(!owner->state);
    const struct world_peer *peer = owner->peer;
    int64_t now_us = world_now_us(owner->world);
    assert(peer->timeout_us >= 0 && peer->timeout_us < WORLD_NEVER - now_us);
    struct stream *s = new_stream(owner);
    if (!s)
        return HF_NO_MEMORY;
    s->deadline_us = now_us + peer->timeout_us;
    int r = HF_OK;
    if (peer->host)
        r = begin_host(s, peer);
    else
        begin_unix(s, peer->path);
    if (r < 0)
        end(s);
    return r;
}
