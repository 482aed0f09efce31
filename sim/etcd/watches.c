#include "sim/etcd/watches.h"

#include "store/etcd/grpc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct watcher {
    struct list link;
    struct cluster_connection *connection;
    struct front_stream *stream;
    int64_t id, next, sync_us; /* sync_us NEVER: it is not behind */
    bool no_puts;
    ProtobufCBinaryData first, end;
    uint8_t bytes[];
};

static void watcher_free(struct watcher *watcher) {
    list_remove(&watcher->link);
    free(watcher);
}

static void send_watch(struct cluster *cluster, struct front_stream *stream, int member,
                       Etcd__WatchResponse *response) {
    Etcd__Header *header = keys_memory(sizeof(*header));
    etcd__header__init(header);
    header->revision = cluster_revision_of(cluster, member);
    cluster_fill_header(header, member, cluster_term_of(cluster, member));
    response->header = header;
    size_t size = etcd__watch_response__get_packed_size(response);
    uint8_t *bytes = keys_memory(size + 1);
    etcd__watch_response__pack(response, bytes);
    front_send(stream, bytes, size);
}

static Etcd__Event *event_of(const struct keys_event *happened) {
    Etcd__Event *event = keys_memory(sizeof(*event));
    etcd__event__init(event);
    event->type = happened->deleted ? ETCD__EVENT__TYPE__DELETE : ETCD__EVENT__TYPE__PUT;
    event->kv = keys_kv(&happened->name, &(struct keys_version){.mod = happened->revision,
                                                                .create = happened->create,
                                                                .lease = happened->lease,
                                                                .value = happened->value});
    return event;
}

/* Sends a watcher what its member has applied since the last time. True: something was sent. If the
 * message was that the revision is compacted, the watcher is gone. What was deleted at exactly the
 * compacted revision is forgotten, although a watch from there on is accepted (etcd issue
 * 19179). */
static bool tell_watcher(struct cluster *cluster, struct watcher *watcher) {
    int member = watcher->connection->member;
    int64_t revision = cluster_revision_of(cluster, member);
    int64_t compacted = cluster->log[cluster->members[member].applied].compacted;
    Etcd__WatchResponse response = ETCD__WATCH_RESPONSE__INIT;
    bool is_behind = watcher->sync_us != NEVER;
    response.watch_id = watcher->id;
    watcher->sync_us = NEVER;
    if (watcher->next > revision)
        return false;
    keys_answer_begin();
    if (is_behind && watcher->next < compacted) {
        response.canceled = true;
        response.compact_revision = compacted;
        send_watch(cluster, watcher->stream, member, &response);
        watcher_free(watcher);
        return true;
    }
    const struct keys *keys = &cluster->keys;
    response.events = keys_memory((keys->event_count + 1) * sizeof(Etcd__Event *));
    for (size_t i = 0; i < keys->event_count; i++) {
        const struct keys_event *event = &keys->events[i];
        bool is_forgotten = is_behind && event->deleted && event->revision == compacted;
        if (event->revision >= watcher->next && event->revision <= revision && !is_forgotten &&
            !(watcher->no_puts && !event->deleted) &&
            keys_is_within(&event->name, &watcher->first, &watcher->end))
            response.events[response.n_events++] = event_of(event);
    }
    watcher->next = revision + 1;
    if (!response.n_events)
        return false;
    send_watch(cluster, watcher->stream, member, &response);
    return true;
}

void watches_tell(struct cluster *cluster, int member) {
    list_each_safe(node, &cluster->watchers) {
        struct watcher *watcher = container_of(node, struct watcher, link);
        struct cluster_connection *connection = watcher->connection;
        if (connection->member == member && watcher->sync_us == NEVER &&
            tell_watcher(cluster, watcher))
            cluster_flush(connection);
    }
}

static void create_watcher(struct cluster_connection *connection, struct front_stream *stream,
                           const Etcd__WatchCreateRequest *request) {
    struct cluster *cluster = connection->cluster;
    Etcd__WatchResponse response = ETCD__WATCH_RESPONSE__INIT;
    size_t first = request->key.len, end = request->range_end.len;
    struct watcher *watcher = calloc(1, sizeof(*watcher) + first + end);
    assert(watcher);
    if (first)
        memcpy(watcher->bytes, request->key.data, first);
    if (end)
        memcpy(watcher->bytes + first, request->range_end.data, end);
    watcher->first = (ProtobufCBinaryData){first, watcher->bytes};
    watcher->end = (ProtobufCBinaryData){end, watcher->bytes + first};
    watcher->connection = connection;
    watcher->stream = stream;
    watcher->id = request->watch_id;
    watcher->no_puts = request->n_filters > 0;
    int64_t revision = cluster_revision_of(cluster, connection->member);
    watcher->next = request->start_revision ? request->start_revision : revision + 1;
    watcher->sync_us =
        watcher->next > revision ? NEVER : cluster->now_us + cluster_between(cluster, 0, 100000);
    list_append(&cluster->watchers, &watcher->link);
    response.watch_id = watcher->id;
    response.created = true;
    keys_answer_begin();
    send_watch(cluster, stream, connection->member, &response);
}

static void cancel_watcher(struct cluster_connection *connection, struct front_stream *stream,
                           int64_t id) {
    Etcd__WatchResponse response = ETCD__WATCH_RESPONSE__INIT;
    list_each_safe(node, &connection->cluster->watchers) {
        struct watcher *watcher = container_of(node, struct watcher, link);
        if (watcher->stream != stream || watcher->id != id)
            continue;
        watcher_free(watcher);
        response.watch_id = id;
        response.canceled = true;
        keys_answer_begin();
        send_watch(connection->cluster, stream, connection->member, &response);
    }
}

void watches_drop(struct cluster *cluster, const struct front_stream *stream) {
    list_each_safe(node, &cluster->watchers) {
        struct watcher *watcher = container_of(node, struct watcher, link);
        if (watcher->stream == stream)
            watcher_free(watcher);
    }
}

void watches_asked(struct cluster_connection *connection, struct front_stream *stream,
                   const uint8_t *bytes, size_t size) {
    Etcd__WatchRequest *request = etcd__watch_request__unpack(NULL, size, bytes);
    assert(request);
    if (stream->wants_leader && connection->cluster->members[connection->member].leader < 0) {
        watches_drop(connection->cluster, stream);
        front_finish(stream, GRPC_UNAVAILABLE, "etcdserver: no leader");
    } else if (request->request_case == ETCD__WATCH_REQUEST__REQUEST_CREATE)
        create_watcher(connection, stream, request->create);
    else
        cancel_watcher(connection, stream, request->cancel->watch_id);
    connection->cluster->config.executed(
        connection->context,
        request->request_case == ETCD__WATCH_REQUEST__REQUEST_CREATE ? "watch" : "watch no more",
        true);
    etcd__watch_request__free_unpacked(request, NULL);
}

void watches_end_streams(struct cluster *cluster, int member) {
    struct list *node;
    struct watcher *watcher;
    do {
        watcher = NULL;
        for (node = cluster->watchers.next; node != &cluster->watchers && !watcher;
             node = node->next) {
            struct watcher *one = container_of(node, struct watcher, link);
            watcher = one->connection->member == member ? one : NULL;
        }
        if (watcher) {
            struct cluster_connection *connection = watcher->connection;
            struct front_stream *stream = watcher->stream;
            watches_drop(cluster, stream);
            front_finish(stream, GRPC_UNAVAILABLE, "etcdserver: no leader");
            cluster_flush(connection);
        }
    } while (watcher);
}

void watches_act(struct cluster *cluster) {
    list_each_safe(node, &cluster->watchers) {
        struct watcher *watcher = container_of(node, struct watcher, link);
        struct cluster_connection *connection = watcher->connection;
        if (!cluster_is_still(cluster, connection->member) && watcher->sync_us <= cluster->now_us &&
            tell_watcher(cluster, watcher))
            cluster_flush(connection);
    }
}

void watches_disconnect(const struct cluster_connection *connection) {
    list_each_safe(node, &connection->cluster->watchers) {
        struct watcher *watcher = container_of(node, struct watcher, link);
        if (watcher->connection == connection)
            watcher_free(watcher);
    }
}

int64_t watches_next_us(const struct cluster *cluster) {
    int64_t at_us = NEVER;
    list_each(node, &cluster->watchers) {
        const struct watcher *watcher = container_of(node, struct watcher, link);
        if (!cluster_is_still(cluster, watcher->connection->member) && watcher->sync_us < at_us)
            at_us = watcher->sync_us;
    }
    return at_us;
}
