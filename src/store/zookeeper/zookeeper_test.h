/* A ZooKeeper server over streams that lead to the test (support/rig.h): nodes, sessions, one-time
 * watches, as far as the store uses them. Every login succeeds, and no session expires. The test
 * can make it silent. */
#ifndef ZOOKEEPER_ZOOKEEPER_TEST_H
#define ZOOKEEPER_ZOOKEEPER_TEST_H

#include "check.h"
#include "store/zookeeper/zookeeper.h"
#include "support/failing.h"
#include "support/rig.h"

#include <arpa/inet.h>

/* Not every test uses every function. */
#pragma GCC diagnostic ignored "-Wunused-function"

enum { S = 1000000, NODES_MAX = 200, WATCHES_MAX = 100, PATH_SIZE = 300, REPLY_SIZE = 60000 };
enum operation {
    CREATE_CONTAINER = 19,
    CREATE = 15,
    CREATE_PLAIN = 1, /* in a multi */
    DELETE = 2,
    GET_DATA = 4,
    SET_DATA = 5,
    GET_CHILDREN = 12,
    SYNC = 9,
    PING = 11,
    CHECK_VERSION = 13,
    MULTI = 14,
    AUTH = 100,
    SET_WATCHES = 101,
    CLOSE = -11,
};

struct node {
    char path[PATH_SIZE], data[500]; /* no path: it is gone */
    int64_t czxid, time_ms;
    int32_t version, next_number;
    bool is_ephemeral;
};

struct watch {
    char path[PATH_SIZE]; /* none: a free place */
    struct fake_stream *stream;
    bool of_children;
};

static struct server {
    struct node nodes[NODES_MAX];
    struct watch watches[WATCHES_MAX];
    int64_t zxid, now_ms;
    unsigned overtakes; /* before this many transactions, another client adds 10 */
    bool loses_multis;  /* they are done, and not answered */
    bool is_silent;     /* it reads, and answers nothing */
    bool is_expired;    /* it knows no session any more */
    char reply[REPLY_SIZE];
    size_t size; /* of the bytes for the stream that is being served */
    struct fake_stream *serving;
} server;

/* ---- Replies ---- */

static void put_int(int32_t value) {
    uint32_t bytes = htonl((uint32_t)value);
    CHECK(server.size + sizeof(bytes) <= REPLY_SIZE);
    memcpy(server.reply + server.size, &bytes, sizeof(bytes));
    server.size += sizeof(bytes);
}

static void put_long(int64_t value) {
    put_int((int32_t)(value >> 32));
    put_int((int32_t)value);
}

static void put_byte(char value) {
    server.reply[server.size++] = value;
}

static void put_text(const char *text, size_t size) {
    put_int((int32_t)size);
    CHECK(server.size + size <= REPLY_SIZE);
    memcpy(server.reply + server.size, text, size);
    server.size += size;
}

static size_t begin_frame(void) {
    put_int(0);
    return server.size;
}

static void end_frame(size_t began) {
    uint32_t size = htonl((uint32_t)(server.size - began));
    memcpy(server.reply + began - 4, &size, sizeof(size));
}

static size_t begin_reply(int32_t xid, int32_t error) {
    size_t began = begin_frame();
    put_int(xid);
    put_long(server.zxid);
    put_int(error);
    return began;
}

static void put_stat(const struct node *node) {
    put_long(node->czxid);
    put_long(node->czxid);
    put_long(node->time_ms);
    put_long(node->time_ms);
    put_int(node->version);
    put_int(0);
    put_int(0);
    put_long(node->is_ephemeral);
    put_int((int32_t)strlen(node->data));
    put_int(0);
    put_long(node->czxid);
}

/* ---- Nodes ---- */

static struct node *find_node(const char *path) {
    for (int i = 0; i < NODES_MAX; i++) {
        if (server.nodes[i].path[0] && strcmp(server.nodes[i].path, path) == 0)
            return &server.nodes[i];
    }
    return NULL;
}

static void parent_of(const char *path, char ret[PATH_SIZE]) {
    snprintf(ret, PATH_SIZE, "%s", path);
    *strrchr(ret, '/') = 0;
}

static bool is_child(const struct node *node, const char *path) {
    char parent[PATH_SIZE];
    if (!node->path[0])
        return false;
    parent_of(node->path, parent);
    return strcmp(parent, path) == 0;
}

/* Events go only to the stream that is being served; other watches are dropped. */
static void fire(const char *path, int type, bool of_children) {
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &server.watches[i];
        if (strcmp(watch->path, path) != 0 || watch->of_children != of_children)
            continue;
        watch->path[0] = 0;
        if (watch->stream != server.serving)
            continue; /* of a connection that was lost */
        size_t began = begin_reply(-1, 0);
        put_int(type);
        put_int(3);
        put_text(path, strlen(path));
        end_frame(began);
    }
}

static void add_watch(const char *path, bool of_children) {
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &server.watches[i];
        if (watch->path[0])
            continue;
        snprintf(watch->path, PATH_SIZE, "%s", path);
        watch->of_children = of_children;
        watch->stream = server.serving;
        return;
    }
    CHECK(false);
}

static int32_t create_node(const char *path, const char *data, int mode, struct node **ret) {
    char parent[PATH_SIZE];
    parent_of(path, parent);
    struct node *above = find_node(parent);
    if (parent[0] && !above)
        return ZK_NO_NODE;
    if (find_node(path))
        return ZK_NODE_EXISTS;
    for (int i = 0; i < NODES_MAX; i++) {
        struct node *node = &server.nodes[i];
        if (node->path[0])
            continue;
        *node = (struct node){
            .czxid = ++server.zxid, .time_ms = server.now_ms, .is_ephemeral = mode == 3};
        snprintf(node->path, PATH_SIZE, "%s", path);
        if (mode == 3)
            snprintf(node->path, PATH_SIZE, "%s%010d", path, above->next_number++);
        snprintf(node->data, sizeof(node->data), "%s", data);
        fire(parent, EVENT_CHILD, true);
        *ret = node;
        return ZK_OK;
    }
    CHECK(false);
    return ZK_OK;
}

static int32_t delete_node(const char *path) {
    char parent[PATH_SIZE], gone[PATH_SIZE];
    struct node *node = find_node(path);
    if (!node)
        return ZK_NO_NODE;
    snprintf(gone, sizeof(gone), "%s", path);
    parent_of(gone, parent);
    node->path[0] = 0;
    server.zxid++;
    fire(gone, EVENT_DELETED, false);
    fire(gone, EVENT_DELETED, true);
    fire(parent, EVENT_CHILD, true);
    return ZK_OK;
}

/* How many claims there are on a lock. */
static int claims_on(const char *name) {
    char path[PATH_SIZE];
    int count = 0;
    snprintf(path, sizeof(path), "/holdfast/locks/%s", name);
    for (int i = 0; i < NODES_MAX; i++)
        count += is_child(&server.nodes[i], path);
    return count;
}

/* ---- Requests ---- */

static void read_text(struct codec_in *in, char *ret, size_t size) {
    struct codec_text text = codec_text(in);
    snprintf(ret, size, "%.*s", (int)text.size, text.bytes);
}

static void skip_acl(struct codec_in *in) {
    for (size_t i = codec_count(in); i > 0; i--) {
        codec_int(in);
        codec_text(in);
        codec_text(in);
    }
}

static void serve_create(int32_t xid, struct codec_in *in) {
    char path[PATH_SIZE], data[500];
    struct node *node = NULL;
    read_text(in, path, sizeof(path));
    read_text(in, data, sizeof(data));
    skip_acl(in);
    int32_t error = create_node(path, data, codec_int(in), &node);
    size_t began = begin_reply(xid, error);
    if (node) {
        put_text(node->path, strlen(node->path));
        put_stat(node);
    }
    end_frame(began);
}

static void serve_get_data(int32_t xid, struct codec_in *in) {
    char path[PATH_SIZE];
    read_text(in, path, sizeof(path));
    struct node *node = find_node(path);
    size_t began = begin_reply(xid, node ? ZK_OK : ZK_NO_NODE);
    if (node) {
        put_text(node->data, strlen(node->data));
        put_stat(node);
    }
    end_frame(began);
    if (codec_bool(in) && node)
        add_watch(path, false);
}

static void serve_set_data(int32_t xid, struct codec_in *in) {
    char path[PATH_SIZE];
    read_text(in, path, sizeof(path));
    struct node *node = find_node(path);
    if (node) {
        read_text(in, node->data, sizeof(node->data));
        node->version++;
        node->time_ms = server.now_ms;
        server.zxid++;
    }
    size_t began = begin_reply(xid, node ? ZK_OK : ZK_NO_NODE);
    if (node)
        put_stat(node);
    end_frame(began);
    fire(path, EVENT_CHANGED, false);
}

static void serve_children(int32_t xid, struct codec_in *in) {
    char path[PATH_SIZE];
    int32_t count = 0;
    read_text(in, path, sizeof(path));
    struct node *node = find_node(path);
    for (int i = 0; i < NODES_MAX; i++)
        count += is_child(&server.nodes[i], path);
    size_t began = begin_reply(xid, node ? ZK_OK : ZK_NO_NODE);
    if (node)
        put_int(count);
    for (int i = 0; node && i < NODES_MAX; i++) {
        const struct node *child = &server.nodes[i];
        if (is_child(child, path))
            put_text(strrchr(child->path, '/') + 1, strlen(strrchr(child->path, '/') + 1));
    }
    if (node)
        put_stat(node);
    end_frame(began);
    if (codec_bool(in) && node)
        add_watch(path, true);
}

struct part {
    int32_t operation, version, error;
    char path[PATH_SIZE], data[500];
};

static void set_node(struct node *node, const char *data) {
    snprintf(node->data, sizeof(node->data), "%s", data);
    node->version++;
    node->time_ms = server.now_ms;
}

static int32_t do_part(const struct part *part) {
    struct node *node = find_node(part->path);
    if (part->operation == CREATE_PLAIN)
        return create_node(part->path, part->data, 0, &node);
    if (!node)
        return ZK_NO_NODE;
    if (part->version != ANY_VERSION && part->version != node->version)
        return ZK_BAD_VERSION;
    if (part->operation == SET_DATA)
        set_node(node, part->data);
    return part->operation == DELETE ? delete_node(part->path) : ZK_OK;
}

static void read_part(struct part *part, struct codec_in *in) {
    read_text(in, part->path, sizeof(part->path));
    if (part->operation == SET_DATA || part->operation == CREATE_PLAIN)
        read_text(in, part->data, sizeof(part->data));
    if (part->operation == CREATE_PLAIN)
        skip_acl(in);
    part->version = codec_int(in);
}

static void put_result(const struct part *part, bool is_done) {
    put_int(is_done ? part->operation : -1);
    put_byte(0);
    put_int(is_done ? 0 : -1);
    if (!is_done)
        put_int(part->error);
    else if (part->operation == SET_DATA)
        put_stat(find_node(part->path));
    else if (part->operation == CREATE_PLAIN)
        put_text(part->path, strlen(part->path));
}

static void overtake(const char *path) {
    struct node *node = find_node(path);
    char number[24];
    if (!node || !server.overtakes)
        return;
    server.overtakes--;
    snprintf(number, sizeof(number), "%lld", strtoll(node->data, NULL, 10) + 10);
    set_node(node, number);
}

/* All or nothing. */
static void serve_multi(int32_t xid, struct codec_in *in) {
    static struct part parts[300];
    static struct node before[NODES_MAX];
    size_t count = 0;
    bool is_done = true;
    for (;; count++) {
        parts[count].operation = codec_int(in);
        bool is_end = codec_bool(in);
        codec_int(in);
        if (is_end)
            break;
        read_part(&parts[count], in);
    }
    if (count)
        overtake(parts[0].path);
    server.zxid++;
    memcpy(before, server.nodes, sizeof(before));
    for (size_t i = 0; i < count; i++) {
        parts[i].error = is_done ? do_part(&parts[i]) : ZK_INCONSISTENT;
        is_done = is_done && parts[i].error == ZK_OK;
    }
    if (!is_done)
        memcpy(server.nodes, before, sizeof(before));
    if (server.loses_multis)
        return;
    size_t began = begin_reply(xid, ZK_OK);
    for (size_t i = 0; i < count; i++)
        put_result(&parts[i], is_done);
    put_int(-1);
    put_byte(1);
    put_int(-1);
    end_frame(began);
}

static void serve_set_watches(struct codec_in *in) {
    char path[PATH_SIZE];
    codec_long(in);
    end_frame(begin_reply(XID_SET_WATCHES, ZK_OK));
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = codec_count(in); i > 0; i--) {
            read_text(in, path, sizeof(path));
            add_watch(path, kind == 2);
            if (!find_node(path))
                fire(path, EVENT_DELETED, kind == 2);
        }
    }
}

static void serve_connect(void) {
    size_t began = begin_frame();
    put_int(0);
    put_int(server.is_expired ? 0 : 75000);
    put_long(server.is_expired ? 0 : 77);
    put_text("0123456789abcdef", 16);
    put_byte(0);
    end_frame(began);
    if (!server.is_expired)
        return;
    server.is_expired = false;
    for (int i = 0; i < NODES_MAX; i++) {
        if (server.nodes[i].is_ephemeral)
            server.nodes[i].path[0] = 0;
    }
}

static void serve_request(struct codec_in *in) {
    char path[PATH_SIZE];
    int32_t xid = codec_int(in), operation = codec_int(in), error;
    switch (operation) {
    case CREATE:
    case CREATE_CONTAINER:
        serve_create(xid, in);
        break;
    case DELETE: /* its event comes before the reply */
        read_text(in, path, sizeof(path));
        error = delete_node(path);
        end_frame(begin_reply(xid, error));
        break;
    case GET_DATA:
        serve_get_data(xid, in);
        break;
    case SET_DATA:
        serve_set_data(xid, in);
        break;
    case GET_CHILDREN:
        serve_children(xid, in);
        break;
    case MULTI:
        serve_multi(xid, in);
        break;
    case SET_WATCHES:
        serve_set_watches(in);
        break;
    case SYNC:
    case PING:
    case AUTH:
    case CLOSE:
        end_frame(begin_reply(xid, ZK_OK));
        break;
    default:
        CHECK_EQ_INT(operation, 0);
    }
}

/* For fake_serve. No allocation of the server itself fails. The store writes whole requests. */
static void serve_zookeeper(struct fake_stream *stream) {
    if (!stream->accepted)
        fake_accept(stream);
    if (!stream->owner)
        return;
    server.serving = stream;
    server.size = 0;
    while (stream->read < stream->written) {
        const unsigned char *at = (unsigned char *)stream->bytes + stream->read;
        struct codec_in in = {.at = at, .left = 4};
        size_t size = (size_t)codec_int(&in);
        CHECK(stream->read + 4 + size <= stream->written);
        in = (struct codec_in){.at = at + 4, .left = size};
        bool is_first = stream->read == 0;
        stream->read += 4 + size;
        if (server.is_silent)
            continue;
        if (is_first)
            serve_connect();
        else
            serve_request(&in);
        CHECK(!in.failed);
    }
    if (server.size)
        fake_answer(stream, server.reply, server.size);
}

static void server_start(void) {
    server = (struct server){.zxid = 100, .now_ms = 1700000000000};
}

#endif
