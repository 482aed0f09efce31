/* Design notes.
 *
 * States: DOWN → CONNECTING → LOGIN (with a user) → READY, and from each back to DOWN. After a
 * failure the next member is tried, at once for the first round of all members and after a pause
 * (net/backoff.h) from then on. Only an answer ends a series of failures: a member that accepts
 * connections but cannot serve also counts as a failure.
 *
 * A call that was never sent is refused as soon as all members have failed, since nobody can have
 * acted on it. A call that was sent waits for the next connection until its time is over.
 *
 * A connection on which a call waited for the whole timeout is abandoned, even if other answers
 * come over it: a member whose disk stalls answers some requests, but never those that matter. */
#include "store/etcd/link.h"

#include "store/etcd/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls under way at the same time. More would only wait in the server. */
enum { SENT_MAX = 256 };

static struct etcd_call *call_at(struct list *node) {
    return container_of(node, struct etcd_call, link);
}

static struct etcd_call *call_of(struct grpc_call *grpc) {
    return container_of(grpc, struct etcd_call, grpc);
}

void etcd_call_free(struct etcd_call *call) {
    list_remove(&call->link);
    grpc_cancel(&call->grpc);
    explicit_bzero(call->bytes, call->size); /* a password may be in it */
    free(call);
}

struct etcd_call *etcd_call_new(const char *path, const ProtobufCMessage *request,
                                etcd_answered *answered, void *context) {
    size_t size = protobuf_c_message_get_packed_size(request);
    struct etcd_call *call = calloc(1, sizeof(*call) + size);
    if (!call)
        return NULL;
    list_init(&call->link);
    call->path = path;
    call->answered = answered;
    call->context = context;
    call->size = size;
    call->why = "";
    protobuf_c_message_pack(request, call->bytes);
    return call;
}

bool etcd_call_may_have_acted(const struct etcd_call *call) {
    bool refused = call->reason && call->status >= 0; /* the last time that it was sent */
    return call->sends > refused;
}

/* Returns the call, and frees it. */
static void return_call(struct etcd_link *link, struct etcd_call *call, int reason, int status,
                        const char *why) {
    list_remove(&call->link);
    call->reason = reason;
    call->status = status;
    call->why = why;
    call->answered(link->etcd, call);
    etcd_call_free(call);
}

/* ---- Time ---- */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Sets the timer to this time, or earlier; it then finds out what is due. */
static void wake_at(struct etcd_link *link, int64_t at_us) {
    if (!link->timer.node.place || at_us < link->timer.node.at)
        world_timer_set(link->world, &link->timer, at_us);
}

static void set_timer(struct etcd_link *link) {
    int64_t at_us = WORLD_NEVER;
    list_each(node, &link->waiting)
        at_us = min(at_us, call_at(node)->give_up_us);
    list_each(node, &link->sent)
        at_us =
            min(at_us, min(call_at(node)->give_up_us, call_at(node)->sent_us + link->timeout_us));
    if (link->state == ETCD_DOWN && !list_empty(&link->waiting))
        at_us = min(at_us, link->retry_at_us);
    if (at_us != WORLD_NEVER)
        wake_at(link, at_us);
}

/* ---- Down ---- */

static etcd_answered logged_in;

/* Takes a call that was sent, and has no answer, off its list. */
static void unsend(struct etcd_link *link, struct etcd_call *call) {
    list_remove(&call->link);
    grpc_cancel(&call->grpc);
    link->sent_count--;
}

static void take_back_sent(struct etcd_link *link) {
    while (!list_empty(&link->sent)) {
        struct etcd_call *last = call_at(link->sent.prev);
        unsend(link, last);
        if (last->answered == logged_in)
            etcd_call_free(last);
        else
            list_insert_before(link->waiting.next, &last->link);
    }
}

static void refuse_unsent(struct etcd_link *link) {
    list_each_safe(node, &link->waiting) {
        if (!call_at(node)->sends)
            return_call(link, call_at(node), link->reason, -1, link->why);
    }
}

static void went_down(struct etcd_link *link, int reason, const char *why) {
    bool was_ready = link->state == ETCD_READY;
    int64_t now_us = world_now_us(link->world);
    link->state = ETCD_DOWN;
    link->reason = reason;
    link->unfit = false;
    snprintf(link->why, sizeof(link->why), "%s", why ? why : hf_error_string(reason));
    if (was_ready && link == &link->etcd->link)
        etcd_watch_down(link->etcd);
    take_back_sent(link);
    grpc_free(link->grpc);
    link->grpc = NULL;
    link->failures++;
    link->peer = (link->peer + 1) % link->peer_count;
    link->wire.stream.peer = &link->peers[link->peer];
    bool tried_all = link->failures >= link->peer_count;
    link->retry_at_us = now_us + (tried_all ? net_backoff_us(&link->backoff, link->world) : 0);
    if (tried_all || reason == HF_DENIED || reason == HF_BAD_URL)
        refuse_unsent(link);
    wake_at(link, link->retry_at_us);
}

static void break_link(struct etcd_link *link, int reason, const char *why) {
    net_wire_close(&link->wire);
    went_down(link, reason, why);
}

/* ---- Up ---- */

static bool start(struct etcd_link *link, struct etcd_call *call) {
    int64_t now_us = world_now_us(link->world);
    struct grpc_request request = {.path = call->path,
                                   .token = link->token,
                                   .timeout_us = call->give_up_us - now_us,
                                   .message = call->bytes,
                                   .size = call->size};
    if (request.timeout_us <= 0 || !grpc_start(link->grpc, &call->grpc, &request))
        return false;
    call->sends++;
    call->sent_us = now_us;
    list_remove(&call->link);
    list_append(&link->sent, &call->link);
    link->sent_count++;
    wake_at(link, now_us + link->timeout_us);
    return true;
}

static void send_waiting(struct etcd_link *link) {
    list_each_safe(node, &link->waiting) {
        if (link->sent_count == SENT_MAX || !start(link, call_at(node)))
            break; /* what cannot be sent waits for an answer, or for the next connection */
    }
    etcd_link_flush(link);
}

void etcd_link_flush(struct etcd_link *link) {
    world_flusher_ask(link->world, &link->flusher);
}

void etcd_link_hang_up(struct etcd_link *link) {
    link->unfit = link->grpc;
}

static void flush(struct world_flusher *flusher) {
    struct etcd_link *link = container_of(flusher, struct etcd_link, flusher);
    const uint8_t *bytes;
    ptrdiff_t size = 0;
    bool ok = true;
    while (link->grpc && ok && (size = grpc_output(link->grpc, &bytes)) > 0)
        ok = net_wire_send(&link->wire, bytes, (size_t)size) == HF_OK;
    if (size < 0 || !ok) {
        link->unfit =
            true; /* the next event on the link closes it: this may be within a call of ours */
        world_timer_set(link->world, &link->timer, world_now_us(link->world));
    }
}

static void become_ready(struct etcd_link *link) {
    link->state = ETCD_READY;
    send_waiting(link);
    if (link == &link->etcd->link)
        etcd_watch_up(link->etcd);
}

/* ---- The login ---- */

static bool says(const struct etcd_call *call, const char *text) {
    return strstr(call->why, text);
}

static void logged_in(struct etcd *etcd, struct etcd_call *call) {
    struct etcd_link *link = call->context;
    (void)etcd;
    if (link->state != ETCD_LOGIN || call->status < 0)
        return;
    Etcd__AuthenticateResponse *response =
        call->reason ? NULL
                     : etcd__authenticate_response__unpack(NULL, call->message_size, call->message);
    free(link->token);
    link->token = response && response->token[0] ? strdup(response->token) : NULL;
    bool gave_none = response && !response->token[0];
    if (response)
        etcd__authenticate_response__free_unpacked(response, NULL);
    bool needs_none = call->status == GRPC_FAILED_PRECONDITION && says(call, "not enabled");
    if (link->token || needs_none)
        become_ready(link);
    else if (call->reason)
        break_link(link, call->status == GRPC_UNAVAILABLE ? HF_UNREACHABLE : HF_DENIED, call->why);
    else
        break_link(link, gave_none ? HF_DENIED : HF_NO_MEMORY,
                   gave_none ? "the server gave no token" : NULL);
}

static void log_in(struct etcd_link *link) {
    Etcd__AuthenticateRequest request = ETCD__AUTHENTICATE_REQUEST__INIT;
    request.name = link->login->user;
    request.password = link->login->password;
    struct etcd_call *call =
        etcd_call_new("/etcdserverpb.Auth/Authenticate", &request.base, logged_in, link);
    link->state = ETCD_LOGIN;
    free(link->token);
    link->token = NULL;
    if (call)
        call->give_up_us = world_now_us(link->world) + link->timeout_us;
    if (!call || !start(link, call)) {
        if (call)
            etcd_call_free(call);
        link->unfit = true;
    }
    etcd_link_flush(link);
}

/* Whether the server wants a login that may succeed: it does not know the token (any more), has
 * started to require one, or has changed its users since. */
static bool wants_login(const struct etcd_link *link, const struct etcd_call *call) {
    return link->login->user && call->logins < 2 && call->answered != logged_in &&
           (call->status == GRPC_UNAUTHENTICATED || says(call, "user name is empty") ||
            says(call, "revision of auth store is old"));
}

/* ---- Answers ---- */

static int reason_of(const struct etcd_call *call) {
    switch (call->status) {
    case GRPC_OK:
        return HF_OK;
    case GRPC_PERMISSION_DENIED:
    case GRPC_UNAUTHENTICATED:
        return HF_DENIED;
    case GRPC_INVALID_ARGUMENT:
        return says(call, "user name is empty") || says(call, "authentication failed")
                   ? HF_DENIED
                   : HF_BAD_STORE;
    case GRPC_RESOURCE_EXHAUSTED:
        return says(call, "space exceeded") ? HF_STORE_FULL : HF_UNREACHABLE;
    case GRPC_UNAVAILABLE:
    case GRPC_DEADLINE_EXCEEDED:
        return HF_UNREACHABLE;
    default:
        return HF_BAD_STORE;
    }
}

/* The member cannot serve now; another may. */
static bool is_unfit(const struct etcd_call *call) {
    return call->status == GRPC_UNAVAILABLE || call->status == GRPC_DEADLINE_EXCEEDED;
}

/* A request that ends by the server's own time-out, for example while a leader is elected, has no
 * distinct status: only its text says so. */
static int status_of(const struct etcd_call *call) {
    bool gave_up = call->grpc.status == GRPC_UNKNOWN &&
                   (says(call, "context deadline exceeded") || says(call, "context canceled"));
    return gave_up ? GRPC_DEADLINE_EXCEEDED : call->grpc.status;
}

static void call_ended(struct etcd_link *link, struct etcd_call *call) {
    int64_t now_us = world_now_us(link->world);
    call->why = call->grpc.why;
    call->status = status_of(call);
    if (wants_login(link, call)) {
        call->logins++;
        call->sends--; /* it was refused */
        unsend(link, call);
        list_append(&link->waiting, &call->link);
        if (link->state == ETCD_READY)
            log_in(link);
        return;
    }
    if (is_unfit(call)) {
        bool certainly_not = says(call, "no leader") || says(call, "learner");
        call->sends -= certainly_not;
        link->unfit = true;
        snprintf(link->why, sizeof(link->why), "%s", call->why);
        if (call->give_up_us > now_us && call->answered != logged_in) {
            unsend(link, call);
            list_append(&link->waiting, &call->link);
            return;
        }
    } else {
        link->failures = link->backoff.failures = 0;
    }
    call->message = call->grpc.in.bytes;
    call->message_size = call->grpc.in.size;
    link->sent_count--;
    return_call(link, call, reason_of(call), call->status, call->why);
}

static void take_ended(struct etcd_link *link) {
    struct grpc_call *ended;
    while (link->grpc && (ended = grpc_take_ended(link->grpc))) {
        if (ended->message)
            etcd_watch_ended(link->etcd);
        else
            call_ended(link, call_of(ended));
    }
}

static void wire_opened(struct net_wire *wire) {
    struct etcd_link *link = container_of(wire, struct etcd_link, wire);
    const struct world_peer *peer = wire->stream.peer;
    const char *protocol = net_wire_protocol(wire);
    if (wire->security->tls && (!protocol || strcmp(protocol, "h2") != 0)) {
        break_link(link, HF_UNREACHABLE, "the server does not offer HTTP/2, so it is not etcd");
        return;
    }
    char host[280];
    snprintf(host, sizeof(host), "%s:%u", peer->host, (unsigned)peer->port);
    link->grpc = grpc_new(host);
    if (!link->grpc)
        break_link(link, HF_NO_MEMORY, NULL);
    else if (link->login->user)
        log_in(link);
    else
        become_ready(link);
}

static void wire_received(struct net_wire *wire, const char *bytes, size_t size) {
    struct etcd_link *link = container_of(wire, struct etcd_link, wire);
    bool ok = grpc_feed(link->grpc, bytes, size);
    take_ended(link);
    if (!link->grpc)
        return; /* the login has failed */
    bool going = grpc_is_going(link->grpc);
    if (!ok || link->unfit || going) {
        char why[sizeof(link->why)];
        snprintf(why, sizeof(why), "%s",
                 !ok           ? "the server's answer is not gRPC"
                 : link->unfit ? link->why
                               : "the server is shutting down");
        break_link(link, HF_UNREACHABLE, why);
        return;
    }
    if (link->state == ETCD_READY)
        send_waiting(link);
    etcd_link_flush(link);
}

static void wire_closed(struct net_wire *wire, int reason, const char *why) {
    went_down(container_of(wire, struct etcd_link, wire), reason, why);
}

static const struct net_wire_events events = {wire_opened, wire_received, wire_closed};

/* ---- The entry points ---- */

static void open_if_wanted(struct etcd_link *link) {
    int64_t now_us = world_now_us(link->world);
    if (link->state != ETCD_DOWN || list_empty(&link->waiting) || link->retry_at_us > now_us)
        return;
    int r = net_wire_open(&link->wire);
    if (!r) {
        link->state = ETCD_CONNECTING;
        return;
    }
    link->reason = r;
    link->retry_at_us = now_us + net_backoff_us(&link->backoff, link->world);
}

void etcd_link_submit(struct etcd_link *link, struct etcd_call *call, int64_t give_up_us) {
    call->give_up_us = give_up_us;
    list_append(&link->waiting, &call->link);
    if (link->state == ETCD_READY)
        send_waiting(link);
    open_if_wanted(link);
    wake_at(link, link->state == ETCD_DOWN ? min(give_up_us, link->retry_at_us) : give_up_us);
}

/* Whether a call has waited on this connection for the whole timeout. */
static bool is_stuck(const struct etcd_link *link, int64_t now_us) {
    list_each(node, &link->sent) {
        if (call_at(node)->sent_us + link->timeout_us <= now_us)
            return true;
    }
    return false;
}

static void return_overdue(struct etcd_link *link, struct list *calls, const char *why) {
    int64_t now_us = world_now_us(link->world);
    list_each_safe(node, calls) {
        struct etcd_call *call = call_at(node);
        if (call->give_up_us > now_us)
            continue;
        if (calls == &link->sent)
            unsend(link, call);
        return_call(link, call, HF_UNREACHABLE, -1, why);
    }
}

static void timer_due(struct world_timer *timer) {
    struct etcd_link *link = container_of(timer, struct etcd_link, timer);
    char why[sizeof(link->why) + 80];
    snprintf(why, sizeof(why), "no answer within %lld ms%s%s", (long long)link->timeout_us / 1000,
             link->failures && link->why[0] ? ": " : "", link->failures ? link->why : "");
    return_overdue(link, &link->waiting, why);
    bool was_stuck = is_stuck(link, world_now_us(link->world));
    return_overdue(link, &link->sent, why);
    if (link->grpc && (was_stuck || link->unfit))
        break_link(link, HF_UNREACHABLE,
                   was_stuck ? "the server stopped answering" : "the connection failed");
    open_if_wanted(link);
    set_timer(link);
}

int etcd_link_init(struct etcd_link *link, struct etcd *etcd, const struct world_peer *peers,
                   size_t peer_count, const struct net_security *security) {
    link->etcd = etcd;
    link->world = etcd->host->world;
    link->peers = peers;
    link->peer_count = peer_count;
    link->reason = HF_UNREACHABLE;
    list_init(&link->waiting);
    list_init(&link->sent);
    world_flusher_init(&link->flusher, flush);
    int r = net_wire_init(&link->wire, link->world, peers, security, &events);
    if (r < 0)
        return r;
    r = world_timer_add(link->world, &link->timer, timer_due);
    if (r < 0)
        net_wire_drop(&link->wire);
    return r;
}

void etcd_link_close(struct etcd_link *link) {
    net_wire_drop(&link->wire);
    take_back_sent(link);
    grpc_free(link->grpc);
    link->grpc = NULL;
    link->state = ETCD_CONNECTING; /* forever: what is submitted now waits for the close */
    while (!list_empty(&link->waiting))
        return_call(link, call_at(link->waiting.next), HF_UNREACHABLE, -1, "the client was closed");
    world_flusher_drop(&link->flusher);
    world_timer_drop(link->world, &link->timer);
    if (link->token)
        explicit_bzero(link->token, strlen(link->token));
    free(link->token);
}
