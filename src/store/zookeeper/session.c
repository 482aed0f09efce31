/* Design notes.
 *
 * Until when does the ensemble keep a session? Its leader alone decides. It ends a session when it
 * has not heard of it for the session's timeout T. An answer from the member that we are connected
 * to does not prove that the leader has: a member answers pings on its own. It notes which sessions
 * were active, and reports them when the leader pings it, which is twice in each tick. If it is cut
 * off, it keeps answering for syncLimit ticks, while the leader ends the session and gives its
 * locks to others. Nor does a request that is forwarded to the leader touch the session there.
 *
 * So we count from the anchor: the latest time for which we know that the leader has heard of
 * something that was sent then or later. There are two ways to know:
 *
 *  - A member that resumes a session asks the leader, which touches the session at once; a new
 *    session is a transaction. So an opened connection counts from its request.
 *  - Reports and forwarded requests go to the leader over one connection, in order. If an exchange
 *    with the member was over by the time t, and a write was sent T/2 or more after t and was
 *    answered, then the leader has pinged the member in between (a server's shortest timeout is two
 *    ticks, so T/2 has two pings), the report went ahead of the write, and the exchange counts from
 *    when it was sent.
 *
 * Both count only with a write that was answered on the same connection. (A sync is not a write: a
 * leader that has lost its majority still answers it.) A majority has such a write, so no other
 * leader was elected before it was sent; and a new leader starts with a whole timeout for every
 * session. So any leader, now or later, keeps the session until the anchor plus T.
 *
 * One case remains: a leader that does not ping a member for a whole tick and then continues as its
 * leader. The leader's pings are sent by a thread that does nothing else.
 *
 * Requests without a reply are returned when the connection is lost. Those that were never sent
 * wait for another connection until every member has been tried. */
#include "store/zookeeper/session.h"

#include "base/error.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PINGS = 20,        /* in a session's timeout */
    CONNECT_PARTS = 8, /* of the timeout, for one member */
    SILENCE_PARTS = 4, /* of the timeout, until a member that does not answer is abandoned */
    CONNECT_LEAST_US = 250000,
    WATCHES_SIZE = 65536 /* of the paths in one request */
};

static struct world *world_of(const struct zk_session *session) {
    return session->setup->world;
}

static int64_t now_us(const struct zk_session *session) {
    return world_now_us(world_of(session));
}

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static struct zk_request *first_of(struct list *list) {
    return list_empty(list) ? NULL : container_of(list->next, struct zk_request, link);
}

int64_t zk_session_timeout_us(const struct zk_session *session) {
    return session->id.id ? session->id.timeout_ms * INT64_C(1000) : 0;
}

int64_t zk_session_valid_until_us(const struct zk_session *session) {
    return session->anchor_us + zk_session_timeout_us(session);
}

/* ---- Requests ---- */

struct zk_request *zk_request_new(struct zk_session *session, zk_answered *answered, void *context,
                                  uint64_t part) {
    struct zk_request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    list_init(&request->link);
    request->answered = answered;
    request->context = context;
    request->part = part;
    request->xid = session->next_xid;
    session->next_xid = session->next_xid == INT32_MAX ? 1 : session->next_xid + 1;
    return request;
}

static void return_request(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    list_remove(&request->link);
    request->answered(request, header, in);
    codec_out_free(&request->out);
    free(request);
}

static void return_all(struct list *list) {
    struct list from;
    list_move(list, &from);
    struct zk_request *request;
    while ((request = first_of(&from)))
        return_request(request, NULL, NULL);
}

/* ---- The anchor ---- */

/* Exchanges that are close to the previous one are left out, so that the ring covers the
 * timeout. */
static void note_exchange(struct zk_session *session, int64_t sent_us) {
    struct zk_exchange *ring = session->exchanges;
    size_t count = session->exchange_count;
    int64_t apart_us = zk_session_timeout_us(session) / (ZK_EXCHANGES / 2);
    if (count && sent_us < ring[(count - 1) % ZK_EXCHANGES].sent_us + apart_us)
        return;
    ring[count % ZK_EXCHANGES] = (struct zk_exchange){sent_us, now_us(session)};
    session->exchange_count++;
}

/* A write that was sent at this time was answered. */
static void note_write(struct zk_session *session, int64_t sent_us) {
    int64_t before_us = sent_us - zk_session_timeout_us(session) / 2;
    session->anchor_us = max(session->anchor_us, session->greeted_us);
    for (size_t i = session->exchange_count; i > 0 && i + ZK_EXCHANGES > session->exchange_count;
         i--) {
        const struct zk_exchange *exchange = &session->exchanges[(i - 1) % ZK_EXCHANGES];
        if (exchange->answered_us <= before_us) {
            session->anchor_us = max(session->anchor_us, exchange->sent_us);
            return;
        }
    }
}

/* ---- Time ---- */

static bool is_wanted(const struct zk_session *session) {
    return !list_empty(&session->waiting) || (session->keeps && session->id.id);
}

static int64_t silence_us(const struct zk_session *session) {
    int64_t timeout_us = zk_session_timeout_us(session);
    return timeout_us ? min(session->setup->timeout_us, timeout_us / SILENCE_PARTS)
                      : session->setup->timeout_us;
}

/* When the oldest unanswered request will have waited too long. */
static int64_t silent_at_us(struct zk_session *session) {
    struct zk_request *first = first_of(&session->sent);
    int64_t since_us = first ? first->sent_us : WORLD_NEVER;
    if (session->pinged_us)
        since_us = min(since_us, session->pinged_us);
    if (session->state == ZK_GREETING || session->state == ZK_LOGGING_IN)
        since_us = session->greeted_us;
    return since_us == WORLD_NEVER ? WORLD_NEVER : since_us + silence_us(session);
}

static int64_t ping_at_us(const struct zk_session *session) {
    if (session->state != ZK_READY || session->pinged_us)
        return WORLD_NEVER;
    return session->last_sent_us + zk_session_timeout_us(session) / PINGS;
}

static void set_timer(struct zk_session *session) {
    int64_t at_us = WORLD_NEVER;
    if (session->state == ZK_DOWN && is_wanted(session))
        at_us = session->retry_at_us;
    if (session->state >= ZK_GREETING)
        at_us = min(silent_at_us(session), ping_at_us(session));
    list_each(node, &session->waiting)
        at_us = min(at_us, container_of(node, struct zk_request, link)->give_up_us);
    if (at_us == WORLD_NEVER)
        world_timer_clear(world_of(session), &session->timer);
    else if (!session->timer.node.place || at_us != session->timer.node.at)
        world_timer_set(world_of(session), &session->timer, at_us);
}

/* ---- Down ---- */

static void went_down(struct zk_session *session, int reason, const char *why) {
    bool was_ready = session->state == ZK_READY;
    session->state = ZK_DOWN;
    session->reason = reason;
    snprintf(session->why, sizeof(session->why), "%s", why ? why : "");
    session->peer = (session->peer + 1) % session->setup->peer_count;
    session->failures = was_ready ? 0 : session->failures + 1;
    session->retry_at_us = WORLD_NEVER; /* not yet: a caller may still read the old connection */
    return_all(&session->sent);
    if (session->failures >= session->setup->peer_count)
        return_all(&session->waiting);
    session->retry_at_us = now_us(session);
    if (was_ready)
        session->backoff.failures = 0;
    else if (session->failures % session->setup->peer_count == 0)
        session->retry_at_us += net_backoff_us(&session->backoff, world_of(session));
    set_timer(session);
}

static void break_off(struct zk_session *session, int reason, const char *why) {
    net_wire_close(&session->wire);
    went_down(session, reason, why);
}

static void clear_watches(struct zk_session *session) {
    for (struct map_node *node = map_first(&session->watches), *next; node; node = next) {
        next = map_after(&session->watches, node);
        zk_watch_clear(session, container_of(node, struct zk_watch, node));
    }
}

/* The ensemble has ended the session, or there never was one. */
static void forget(struct zk_session *session) {
    session->id = (struct codec_session){.last_zxid = session->id.last_zxid};
    session->anchor_us = 0;
    clear_watches(session);
    session->setup->ended(session->setup->context);
}

/* ---- Up ---- */

static bool send(struct zk_session *session, struct codec_out *out) {
    bool ok = !out->failed && net_wire_send(&session->wire, out->bytes, out->size) == HF_OK;
    session->last_sent_us = now_us(session);
    codec_out_free(out);
    return ok;
}

static void send_waiting(struct zk_session *session) {
    struct zk_request *request;
    while (session->state == ZK_READY && (request = first_of(&session->waiting))) {
        request->sent_us = now_us(session);
        if (!send(session, &request->out)) {
            session->reason = HF_NO_MEMORY;
            session->why[0] = 0;
            return_request(request, NULL, NULL);
            continue;
        }
        request->was_sent = true;
        list_remove(&request->link);
        list_append(&session->sent, &request->link);
    }
}

/* Sets the watches of the last connection again, in requests of limited size. */
static bool send_watches(struct zk_session *session) {
    const char **paths = calloc(session->watches.count + 1, sizeof(*paths));
    bool ok = paths != NULL;
    for (int of_children = 0; ok && of_children <= 1; of_children++) {
        size_t count = 0, size = 0;
        struct map_node *node = map_first(&session->watches);
        while (ok && (node || count)) {
            struct zk_watch *watch = node ? container_of(node, struct zk_watch, node) : NULL;
            if (watch && watch->of_children == of_children) {
                paths[count++] = watch->path;
                size += strlen(watch->path);
            }
            node = node ? map_after(&session->watches, node) : NULL;
            if (count && (!node || size > WATCHES_SIZE)) {
                struct codec_out out = {0};
                struct codec_paths list = {paths, count}, none = {0};
                codec_set_watches(&out, session->id.last_zxid, of_children ? none : list,
                                  of_children ? list : none);
                ok = send(session, &out);
                count = size = 0;
            }
        }
    }
    free(paths);
    return ok;
}

static void become_ready(struct zk_session *session) {
    if (!send_watches(session)) {
        break_off(session, HF_NO_MEMORY, NULL);
        return;
    }
    session->state = ZK_READY;
    session->failures = 0;
    session->backoff.failures = 0;
    send_waiting(session);
}

static void wire_opened(struct net_wire *wire) {
    struct zk_session *session = container_of(wire, struct zk_session, wire);
    struct codec_out out = {0};
    struct codec_session asked = session->id;
    session->is_new = !asked.id;
    if (session->is_new)
        asked.timeout_ms = (int32_t)min(session->wanted_timeout_us / 1000, INT32_MAX);
    codec_frames_start(&session->frames);
    session->state = ZK_GREETING;
    session->pinged_us = 0;
    session->exchange_count = 0;
    session->greeted_us = now_us(session);
    codec_connect(&out, &asked);
    if (send(session, &out))
        set_timer(session);
    else
        break_off(session, HF_NO_MEMORY, NULL);
}

static void log_in(struct zk_session *session) {
    struct codec_out out = {0};
    if (!session->setup->credentials) {
        become_ready(session);
        return;
    }
    session->state = ZK_LOGGING_IN;
    codec_auth(&out, "digest", session->setup->credentials);
    if (!send(session, &out))
        break_off(session, HF_NO_MEMORY, NULL);
}

static bool greeted(struct zk_session *session, struct codec_in *in) {
    struct codec_session granted = codec_connected(in);
    if (in->failed)
        return false;
    if (!granted.id) {
        if (!session->is_new)
            session->state = ZK_READY; /* the connection worked: not a failure to connect */
        forget(session);
        break_off(session, HF_UNREACHABLE, "the session has expired");
        return true;
    }
    granted.last_zxid = session->id.last_zxid;
    /* The timeout that is granted on resuming may not be the one that a new leader would know. */
    if (!session->is_new)
        granted.timeout_ms = (int32_t)min(granted.timeout_ms, session->id.timeout_ms);
    session->id = granted;
    if (session->is_new)
        session->anchor_us = session->greeted_us; /* it is a transaction */
    log_in(session);
    return true;
}

/* ---- Replies ---- */

static uint64_t hash_of(const char *path, size_t size) {
    return map_hash(path, size, 0);
}

static void dispatch_event(struct zk_session *session, const struct codec_event *event) {
    uint64_t hash = hash_of(event->path.bytes, event->path.size);
    for (struct map_node *node = map_find(&session->watches, hash), *next; node; node = next) {
        struct zk_watch *watch = container_of(node, struct zk_watch, node);
        next = map_find_next(node);
        bool same = strlen(watch->path) == event->path.size &&
                    memcmp(watch->path, event->path.bytes, event->path.size) == 0;
        bool fires =
            event->type == EVENT_DELETED || watch->of_children == (event->type == EVENT_CHILD);
        if (same && fires) {
            zk_watch_clear(session, watch);
            watch->fired(watch, (enum codec_event_type)event->type);
        }
    }
}

static bool answer_first(struct zk_session *session, const struct codec_header *header,
                         struct codec_in *in) {
    struct zk_request *request = first_of(&session->sent);
    if (!request || request->xid != header->xid)
        return false; /* it does not answer any request of ours */
    note_exchange(session, request->sent_us);
    if (request->writes && header->error == ZK_OK)
        note_write(session, request->sent_us);
    return_request(request, header, in);
    /* The next connection shows what became of the session. */
    if ((header->error == ZK_EXPIRED || header->error == ZK_MOVED) &&
        net_wire_is_open(&session->wire))
        break_off(session, HF_UNREACHABLE, codec_error_text(header->error));
    return true;
}

static bool logged_in(struct zk_session *session, const struct codec_header *header) {
    if (session->state != ZK_LOGGING_IN)
        return false;
    if (header->error != ZK_OK)
        break_off(session, HF_DENIED, codec_error_text(ZK_AUTH_FAILED));
    else
        become_ready(session);
    return true;
}

static bool handle(struct zk_session *session, struct codec_in *in) {
    if (session->state == ZK_GREETING)
        return greeted(session, in);
    struct codec_header header = codec_header(in);
    if (in->failed)
        return false;
    session->id.last_zxid = max(session->id.last_zxid, header.zxid);
    switch (header.xid) {
    case XID_EVENT: {
        struct codec_event event = codec_event(in);
        if (!in->failed && event.type >= EVENT_CREATED && event.type <= EVENT_CHILD)
            dispatch_event(session, &event);
        return !in->failed;
    }
    case XID_PING:
        if (session->pinged_us)
            note_exchange(session, session->pinged_us);
        session->pinged_us = 0;
        return true;
    case XID_AUTH:
        return logged_in(session, &header);
    case XID_SET_WATCHES:
        return true;
    default:
        return answer_first(session, &header, in);
    }
}

static void wire_received(struct net_wire *wire, const char *bytes, size_t size) {
    struct zk_session *session = container_of(wire, struct zk_session, wire);
    struct codec_in in;
    bool ok = codec_frames_feed(&session->frames, bytes, size);
    int r = 0;
    while (ok && net_wire_is_open(wire) && (r = codec_frames_next(&session->frames, &in)) > 0)
        ok = handle(session, &in);
    if ((!ok || r < 0) && net_wire_is_open(wire))
        break_off(session, HF_UNREACHABLE, "the server's answer is not ZooKeeper's protocol");
    else
        set_timer(session);
}

static void wire_closed(struct net_wire *wire, int reason, const char *why) {
    went_down(container_of(wire, struct zk_session, wire), reason, why);
}

static const struct net_wire_events events = {wire_opened, wire_received, wire_closed};

/* ---- The entry points ---- */

static void open_wire(struct zk_session *session) {
    struct world_peer *peer = &session->setup->peers[session->peer];
    int64_t share_us = zk_session_timeout_us(session) / CONNECT_PARTS;
    peer->timeout_us = session->setup->connect_timeout_us;
    if (share_us)
        peer->timeout_us = min(peer->timeout_us, max(share_us, CONNECT_LEAST_US));
    session->wire.stream.peer = peer;
    int r = net_wire_open(&session->wire);
    if (!r)
        session->state = ZK_CONNECTING;
    else
        went_down(session, r, NULL);
}

static void want(struct zk_session *session) {
    if (session->state == ZK_DOWN && is_wanted(session) && session->retry_at_us <= now_us(session))
        open_wire(session);
    set_timer(session);
}

void zk_session_submit(struct zk_session *session, struct zk_request *request) {
    list_append(&session->waiting, &request->link);
    send_waiting(session);
    want(session);
}

void zk_session_keep(struct zk_session *session, bool keep) {
    if (session->keeps != keep) {
        session->keeps = keep;
        want(session);
    }
}

static void give_up_overdue(struct zk_session *session) {
    int64_t now = now_us(session);
    list_each_safe(node, &session->waiting) {
        struct zk_request *request = container_of(node, struct zk_request, link);
        if (request->give_up_us <= now)
            return_request(request, NULL, NULL);
    }
}

static void timer_due(struct world_timer *timer) {
    struct zk_session *session = container_of(timer, struct zk_session, timer);
    int64_t now = now_us(session);
    if (session->state >= ZK_GREETING && silent_at_us(session) <= now) {
        char why[80];
        snprintf(why, sizeof(why), "no answer within %lld ms",
                 (long long)(silence_us(session) / 1000));
        break_off(session, HF_UNREACHABLE, why);
    } else if (ping_at_us(session) <= now) {
        struct codec_out out = {0};
        session->pinged_us = now;
        codec_ping(&out);
        send(session, &out); /* if there is no memory, no answer comes */
    }
    give_up_overdue(session);
    want(session);
}

int zk_session_init(struct zk_session *session, const struct zk_session_setup *setup) {
    session->setup = setup;
    session->reason = HF_UNREACHABLE;
    session->next_xid = 1;
    uint32_t chance;
    world_random(setup->world, &chance, sizeof(chance));
    session->peer = chance % setup->peer_count;
    list_init(&session->waiting);
    list_init(&session->sent);
    map_init(&session->watches);
    int r = net_wire_init(&session->wire, setup->world, setup->peers, setup->security, &events);
    if (r < 0)
        return r;
    r = world_timer_add(setup->world, &session->timer, timer_due);
    if (r < 0)
        net_wire_drop(&session->wire);
    return r;
}

void zk_session_close(struct zk_session *session, bool end) {
    if (end && session->state == ZK_READY) {
        struct codec_out out = {0};
        codec_close_session(&out, session->next_xid);
        send(session, &out);
        world_flush(world_of(session));
    }
    net_wire_drop(&session->wire);
    session->state = ZK_DOWN;
    session->reason = HF_CLOSED;
    snprintf(session->why, sizeof(session->why), "the client was closed");
    return_all(&session->sent);
    return_all(&session->waiting);
    codec_frames_free(&session->frames);
    clear_watches(session);
    map_free(&session->watches);
    world_timer_drop(world_of(session), &session->timer);
}

/* ---- Watches ---- */

bool zk_watch_set(struct zk_session *session, struct zk_watch *watch, const char *path) {
    zk_watch_clear(session, watch);
    watch->path = strdup(path);
    if (watch->path)
        map_add(&session->watches, &watch->node, hash_of(path, strlen(path)));
    return watch->path != NULL;
}

void zk_watch_clear(struct zk_session *session, struct zk_watch *watch) {
    if (watch->path)
        map_remove(&session->watches, &watch->node);
    free(watch->path);
    watch->path = NULL;
}
