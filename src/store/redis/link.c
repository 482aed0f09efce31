/* Design notes.
 *
 * States: DOWN → CONNECTING → GREETING → READY, and from each back to DOWN. A link that loses a
 * connection over which something came tries again at once. One that could not connect, or heard
 * nothing, waits first: otherwise a server that accepts and hangs up would make it spin.
 *
 * A request that was never sent is refused as soon as a connection fails, since the server
 * certainly did not act on it. One that was sent waits for the next connection until its time is
 * up.
 *
 * A request whose time is up comes back without a reply. Its connection is closed only when a
 * request has waited on that connection for the whole timeout. If requests that were sent again
 * could close the next connection as well, a slow link that is never idle would reconnect forever
 * without seeing a reply. A request that is given up earlier leaves a stand-in, so that replies
 * still match requests.
 *
 * All requests have the same timeout, so the first in each list is the first whose time is up. The
 * exceptions are requests that were sent again with the text of their script, and those behind a
 * stand-in (early_us). */
#include "store/redis/link.h"

#include "store/redis/command.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PING_US = 5000000 };

void redis_request_free(struct redis_request *request) {
    list_remove(&request->link);
    if (request->greets && request->bytes)
        explicit_bzero(request->bytes, request->size); /* a password may be in it */
    free(request->bytes);
    free(request);
}

void redis_ignore_reply(struct redis *redis, struct redis_request *request,
                        const struct reply *reply, const char *why) {
    (void)redis, (void)reply, (void)why;
    redis_request_free(request);
}

static struct world *world_of(const struct redis_link *link) {
    return link->setup->world;
}

static struct redis_request *first_of(struct list *list) {
    return list_empty(list) ? NULL : container_of(list->next, struct redis_request, link);
}

static void return_request(struct redis_link *link, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    list_remove(&request->link);
    request->reason = link->reason;
    request->answered(link->redis, request, reply, why);
}

/* ---- Time ---- */

static void set_timer(struct redis_link *link) {
    int64_t at_us = WORLD_NEVER;
    struct redis_request *sent = first_of(&link->sent), *waiting = first_of(&link->waiting);
    if (!sent)
        link->early_us = WORLD_NEVER;
    else
        at_us = sent->give_up_us < link->early_us ? sent->give_up_us : link->early_us;
    if (waiting && waiting->give_up_us < at_us)
        at_us = waiting->give_up_us;
    bool to_open = link->state == LINK_DOWN && (link->wanted || waiting);
    if (to_open && link->retry_at_us < at_us)
        at_us = link->retry_at_us;
    int64_t ping_us = link->heard_us + PING_US;
    ping_us += link->pinged ? link->setup->timeout_us : 0;
    if (link->state == LINK_READY && link->pushed && ping_us < at_us)
        at_us = ping_us;
    if (at_us == WORLD_NEVER)
        world_timer_clear(world_of(link), &link->timer);
    else if (!link->timer.node.place || at_us < link->timer.node.at)
        world_timer_set(world_of(link), &link->timer, at_us);
}

/* ---- Down ---- */

/* Requests whose time is up come back. */
static void end_overdue(struct redis_link *link, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    list_each_safe(node, &link->waiting) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (request->give_up_us <= now_us)
            return_request(link, request, NULL, why);
        else if (!request->sends)
            break; /* these are sorted by time */
    }
}

static void refuse_unsent(struct redis_link *link, const char *why) {
    list_each_safe(node, &link->waiting) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (!request->sends)
            return_request(link, request, NULL, why);
    }
}

/* Requests without a reply go back to the front of those that wait. */
static void take_back_sent(struct redis_link *link) {
    while (!list_empty(&link->sent)) {
        struct redis_request *last = container_of(link->sent.prev, struct redis_request, link);
        list_remove(&last->link);
        if (last->greets || last->stands_in)
            redis_request_free(last);
        else
            list_insert_before(link->waiting.next, &last->link);
    }
}

static void went_down(struct redis_link *link, int reason, const char *why) {
    int64_t now_us = world_now_us(world_of(link));
    bool was_ready = link->state == LINK_READY;
    link->state = LINK_DOWN;
    link->reason = reason;
    link->doubted = was_ready && !link->pushed && !link->wire.heard;
    snprintf(link->why, sizeof(link->why), "%s", why ? why : "");
    take_back_sent(link);
    if (link->guide)
        link->guide->down(link, why);
    if (was_ready && link->lost)
        link->lost(link, why);
    if (was_ready && link->heard) {
        link->backoff.failures = 0;
        link->retry_at_us = now_us;
    } else {
        link->retry_at_us = now_us + net_backoff_us(&link->backoff, world_of(link));
        refuse_unsent(link, why);
    }
    end_overdue(link, why);
    set_timer(link); /* not opened here: a caller may still read the old connection */
}

void link_break(struct redis_link *link, int reason, const char *why) {
    net_wire_close(&link->wire);
    went_down(link, reason, why);
}

/* ---- Up ---- */

static void send_waiting(struct redis_link *link) {
    struct redis_request *request;
    while ((request = first_of(&link->waiting))) {
        if (net_wire_send(&link->wire, request->bytes, request->size) < 0) {
            link->reason = HF_NO_MEMORY;
            return_request(link, request, NULL, NULL);
            continue;
        }
        list_remove(&request->link);
        request->sends++;
        request->sent_us = world_now_us(world_of(link));
        request->via = link;
        list_append(&link->sent, &request->link);
    }
}

bool link_send(struct redis_link *link, const char *bytes, size_t size) {
    assert(link->state == LINK_READY);
    return net_wire_send(&link->wire, bytes, size) == HF_OK;
}

static void become_ready(struct redis_link *link) {
    link->state = LINK_READY;
    link->heard_us = world_now_us(world_of(link));
    link->pinged = false;
    if (link->ready)
        link->ready(link);
    else
        send_waiting(link);
    set_timer(link);
}

/* Whether a part of the greeting has no answer yet. There may be other requests among those that
 * were sent, if the connection was in use before this greeting. */
static bool is_greeting(const struct redis_link *link) {
    list_each(node, &link->sent) {
        if (container_of(node, struct redis_request, link)->greets)
            return true;
    }
    return false;
}

static void greeting_answered(struct redis *redis, struct redis_request *request,
                              const struct reply *reply, const char *why) {
    struct redis_link *link = request->context;
    (void)redis, (void)why;
    redis_request_free(request);
    if (!reply)
        return; /* the lost connection is reported elsewhere */
    char *text = NULL;
    int r = link->setup->greeted(link, reply, &text);
    if (r < 0) {
        link->heard = false;
        link_break(link, r, text ? text : "");
        free(text);
    } else if (!is_greeting(link)) {
        become_ready(link);
    }
}

bool link_greet(struct redis_link *link, char *bytes, size_t size) {
    assert(link_is_connected(link));
    link->state = LINK_GREETING;
    struct redis_request *request = calloc(1, sizeof(*request));
    if (!request) {
        explicit_bzero(bytes, size);
        free(bytes);
        return false;
    }
    list_init(&request->link);
    request->bytes = bytes;
    request->size = size;
    request->answered = greeting_answered;
    request->context = link;
    request->greets = true;
    request->script = -1;
    request->sends = 1;
    request->sent_us = world_now_us(world_of(link));
    request->give_up_us = request->sent_us + link->setup->timeout_us;
    if (net_wire_send(&link->wire, bytes, size) < 0) {
        redis_request_free(request);
        return false;
    }
    list_append(&link->sent, &request->link);
    set_timer(link);
    return true;
}

static void wire_opened(struct net_wire *wire) {
    struct redis_link *link = container_of(wire, struct redis_link, wire);
    link->heard = false;
    link->early_us = WORLD_NEVER;
    link->state = LINK_GREETING;
    if (!reply_reader_start(&link->reader) || !link->setup->greet(link)) {
        link_break(link, HF_NO_MEMORY, NULL);
        return;
    }
    if (list_empty(&link->sent))
        become_ready(link);
    else
        set_timer(link);
}

/* ---- Replies ---- */

/* The server does not know the script (any more), and did nothing: the text of the script is
 * sent. */
static void send_whole_script(struct redis_link *link, struct redis_request *request) {
    size_t size;
    char *bytes = command_as_eval(request->bytes, request->size, request->script, &size);
    request->sends--;
    if (!bytes || net_wire_send(&link->wire, bytes, size) < 0) {
        free(bytes);
        link->reason = HF_NO_MEMORY;
        return_request(link, request, NULL, NULL);
        return;
    }
    free(bytes);
    request->sends++;
    request->sent_us = world_now_us(world_of(link));
    list_append(&link->sent, &request->link);
    if (request->give_up_us < link->early_us)
        link->early_us = request->give_up_us;
}

static bool answer_first(struct redis_link *link, const struct reply *reply) {
    struct redis_request *request = first_of(&link->sent);
    if (!request)
        return false; /* no request is waiting for a reply */
    link->heard = true;
    list_remove(&request->link);
    if (request->script >= 0 && reply_is_error(reply, "NOSCRIPT"))
        send_whole_script(link, request);
    else if (reply->type != REPLY_ERROR || request->stands_in || !link->guide ||
             !link->guide->turned || !link->guide->turned(link, request, reply))
        request->answered(link->redis, request, reply, NULL);
    return true;
}

static void wire_received(struct net_wire *wire, const char *bytes, size_t size) {
    struct redis_link *link = container_of(wire, struct redis_link, wire);
    bool ok = reply_reader_feed(&link->reader, bytes, size);
    struct reply *reply = NULL;
    link->why[0] = 0;
    link->pinged = false;
    if (link->pushed)
        link->heard_us = world_now_us(world_of(link));
    while (ok && net_wire_is_open(wire) && (ok = reply_reader_next(&link->reader, &reply)) &&
           reply) {
        if (link->pushed && link->state == LINK_READY)
            link->pushed(link, reply);
        else
            ok = answer_first(link, reply);
        reply_free(reply);
    }
    if (!ok && net_wire_is_open(wire)) {
        link->heard = false; /* wait before asking such a server again */
        link_break(link, HF_UNREACHABLE, "the server's answer is not Redis protocol, or too long");
    } else {
        set_timer(link);
    }
}

static void wire_closed(struct net_wire *wire, int reason, const char *why) {
    went_down(container_of(wire, struct redis_link, wire), reason, why);
}

static const struct net_wire_events events = {wire_opened, wire_received, wire_closed};

/* ---- The owner's calls ---- */

static void open_if_due(struct redis_link *link) {
    int64_t now_us = world_now_us(world_of(link));
    if (link->retry_at_us > now_us)
        return;
    int r = net_wire_open(&link->wire);
    link->reason = r < 0 ? r : HF_UNREACHABLE;
    if (!r) {
        link->state = LINK_CONNECTING;
    } else {
        link->retry_at_us = now_us + net_backoff_us(&link->backoff, world_of(link));
        refuse_unsent(link, NULL);
    }
}

void link_want(struct redis_link *link) {
    if (link->state == LINK_DOWN && (link->wanted || !list_empty(&link->waiting)))
        open_if_due(link);
    set_timer(link);
}

void link_submit(struct redis_link *link, struct redis_request *request) {
    list_append(&link->waiting, &request->link);
    if (link->state == LINK_READY)
        send_waiting(link);
    link_want(link);
}

static void ping(struct redis_link *link) {
    static const char bytes[] = "*1\r\n$4\r\nPING\r\n";
    int64_t silent_us = world_now_us(world_of(link)) - link->heard_us;
    if (link->pinged && silent_us >= PING_US + link->setup->timeout_us)
        link_break(link, HF_UNREACHABLE, "the server stopped answering");
    else if (silent_us >= PING_US && !link->pinged) {
        link->pinged = true;
        link_send(link, bytes, sizeof(bytes) - 1); /* if there is no memory, no answer comes */
    }
}

/* The request comes back; a stand-in keeps its place in the order of replies. False: no memory. */
static bool give_up(struct redis_link *link, struct redis_request *request, const char *why) {
    struct redis_request *stand_in = calloc(1, sizeof(*stand_in));
    if (!stand_in)
        return false;
    stand_in->answered = redis_ignore_reply;
    stand_in->stands_in = true;
    stand_in->script = -1;
    stand_in->sent_us = request->sent_us;
    stand_in->give_up_us = request->sent_us + link->setup->timeout_us;
    list_insert_before(&request->link, &stand_in->link);
    link->reason = HF_UNREACHABLE;
    return_request(link, request, NULL, why);
    return true;
}

/* The oldest request on this connection has had no reply for the whole timeout. */
static bool is_silent(struct redis_link *link, int64_t now_us) {
    struct redis_request *first = first_of(&link->sent);
    return first && first->sent_us + link->setup->timeout_us <= now_us;
}

/* Gives up requests that were sent and whose time is up. False: no memory. */
static bool give_up_overdue(struct redis_link *link, int64_t now_us, const char *why) {
    struct redis_request *first = first_of(&link->sent);
    if (!first || (first->give_up_us > now_us && link->early_us > now_us))
        return true;
    link->early_us = WORLD_NEVER;
    list_each_safe(node, &link->sent) {
        struct redis_request *request = container_of(node, struct redis_request, link);
        if (request->give_up_us <= now_us) {
            if (!give_up(link, request, why))
                return false;
        } else if (request->give_up_us < link->early_us) {
            link->early_us = request->give_up_us;
        }
    }
    return true;
}

static void timer_due(struct world_timer *timer) {
    struct redis_link *link = container_of(timer, struct redis_link, timer);
    int64_t now_us = world_now_us(world_of(link));
    char why[80 + sizeof(link->why)];
    snprintf(why, sizeof(why), "no answer within %lld ms%s%s",
             (long long)(link->setup->timeout_us / 1000), link->why[0] ? ": " : "", link->why);
    if (is_silent(link, now_us) || !give_up_overdue(link, now_us, why)) {
        link_break(link, HF_UNREACHABLE, why);
        link->why[0] = 0; /* it was just reported */
    }
    end_overdue(link, why);
    if (link->state == LINK_READY && link->pushed)
        ping(link);
    link_want(link);
}

int link_init(struct redis_link *link, const struct link_setup *setup,
              const struct world_peer *peer) {
    link->redis = setup->redis;
    link->setup = setup;
    link->reason = HF_UNREACHABLE;
    link->early_us = WORLD_NEVER;
    list_init(&link->waiting);
    list_init(&link->sent);
    int r = net_wire_init(&link->wire, setup->world, peer, setup->security, &events);
    if (r < 0)
        return r;
    r = world_timer_add(setup->world, &link->timer, timer_due);
    if (r < 0)
        net_wire_drop(&link->wire);
    return r;
}

void link_direct(struct redis_link *link, const struct world_peer *peer) {
    net_wire_close(&link->wire);
    link->wire.stream.peer = peer;
    link->state = LINK_DOWN;
    link->doubted = false;
    link->why[0] = 0;
    link->backoff.failures = 0;
    link->retry_at_us = world_now_us(world_of(link));
    take_back_sent(link);
    set_timer(link);
}

void link_rest(struct redis_link *link) {
    link_direct(link, link_peer(link));
    struct redis_request *request;
    while ((request = first_of(&link->waiting)))
        redis_request_free(request);
}

void link_close(struct redis_link *link) {
    net_wire_drop(&link->wire);
    link->state = LINK_DOWN;
    take_back_sent(link);
    struct redis_request *request;
    while ((request = first_of(&link->waiting)))
        return_request(link, request, NULL, "the client was closed");
    reply_reader_end(&link->reader);
    world_timer_drop(world_of(link), &link->timer);
}
