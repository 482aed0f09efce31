/* A member's end of its clients' connections: greetings, reads, watches, and the order of
 * answers. */
#include "sim/zookeeper/model.h"
#include "store/zookeeper/codec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTED = 3 }; /* the state in an event */

static struct member *member_of(const struct ensemble_connection *connection) {
    return &connection->e->members[connection->member];
}

static struct ensemble_connection *find(const struct member *member, uint64_t id) {
    list_each(node, &member->connections) {
        struct ensemble_connection *connection =
            container_of(node, struct ensemble_connection, link);
        if (connection->id == id && !connection->is_closed)
            return connection;
    }
    return NULL;
}

/* ---- Life ---- */

struct ensemble_connection *ensemble_connect(struct ensemble *e, int member, void *context) {
    struct ensemble_connection *connection = tree_allocate(NULL, sizeof(*connection));
    *connection = (struct ensemble_connection){
        .e = e, .member = member, .id = ++e->last_connection, .context = context, .session = -1};
    list_init(&connection->requests);
    list_init(&connection->watches);
    list_append(&e->members[member].connections, &connection->link);
    return connection;
}

struct request *request_copy(const struct request *request) {
    struct request *copy = tree_allocate(NULL, sizeof(*copy) + request->size);
    memcpy(copy, request, sizeof(*copy) + request->size);
    list_init(&copy->link);
    copy->user = request->user ? tree_text(request->user, strlen(request->user)) : NULL;
    return copy;
}

void request_free(struct request *request) {
    if (request)
        free(request->user);
    free(request);
}

void ensemble_disconnect(struct ensemble_connection *connection) {
    struct list *node;
    while ((node = list_pop(&connection->requests)))
        request_free(container_of(node, struct request, link));
    while ((node = list_pop(&connection->watches)))
        free(container_of(node, struct watch, link));
    list_remove(&connection->link);
    free(connection->user);
    free(connection);
}

void connection_close(struct ensemble_connection *connection) {
    if (connection->is_closed)
        return;
    connection->is_closed = true;
    connection->e->config.events->close(connection->context);
}

void connections_close(struct member *member) {
    list_each(node, &member->connections)
        connection_close(container_of(node, struct ensemble_connection, link));
}

/* ---- Answers ---- */

static void send_frame(const struct ensemble_connection *connection, struct frame *frame,
                       bool pushed) {
    frame_end(frame);
    if (!connection->is_closed)
        connection->e->config.events->send(connection->context, frame->bytes, frame->size, pushed);
    frame_free(frame);
}

static void begin_reply(const struct ensemble_connection *connection, struct frame *frame,
                        int32_t xid, int32_t error) {
    frame_begin(frame);
    frame_header(frame, xid, member_of(connection)->tree.last_zxid, error);
}

static const char *op_word(int32_t op) {
    static const struct {
        int32_t op;
        const char *word;
    } words[] = {
        {OP_CREATE, "create"},
        {OP_CREATE_CONTAINER, "create container"},
        {OP_DELETE, "delete"},
        {OP_EXISTS, "exists"},
        {OP_GET_DATA, "get"},
        {OP_SET_DATA, "set"},
        {OP_PING, "ping"},
        {OP_GET_CHILDREN, "list"},
        {OP_MULTI, "multi"},
        {OP_AUTH, "auth"},
        {OP_SET_WATCHES, "set watches"},
        {OP_CREATE_SESSION, "open"},
        {OP_CLOSE_SESSION, "close"},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].op == op)
            return words[i].word;
    }
    return "?";
}

static void tell(const struct ensemble_connection *connection, int32_t op, const char *path,
                 int32_t error) {
    char line[200];
    const char *from = path && strlen(path) > 100 ? path + strlen(path) - 100 : path;
    snprintf(line, sizeof(line), "%s %s → %d", op_word(op), from ? from : "", (int)error);
    connection->e->config.events->executed(connection->context, line, op == OP_PING);
}

/* ---- Watches ---- */

static void add_watch(struct ensemble_connection *connection, const char *path, bool of_children) {
    list_each(node, &connection->watches) {
        struct watch *watch = container_of(node, struct watch, link);
        if (watch->of_children == of_children && strcmp(watch->path, path) == 0)
            return;
    }
    struct watch *watch = tree_allocate(NULL, sizeof(*watch) + strlen(path) + 1);
    watch->of_children = of_children;
    memcpy(watch->path, path, strlen(path) + 1);
    list_append(&connection->watches, &watch->link);
}

static void send_event(const struct ensemble_connection *connection, int32_t type,
                       const char *path) {
    struct frame frame = {0};
    frame_begin(&frame);
    frame_header(&frame, XID_EVENT, -1, 0);
    frame_int(&frame, type);
    frame_int(&frame, CONNECTED);
    frame_text(&frame, path);
    send_frame(connection, &frame, true);
}

static bool take_watch(struct ensemble_connection *connection, const char *path, bool of_children) {
    list_each_safe(node, &connection->watches) {
        struct watch *watch = container_of(node, struct watch, link);
        if (watch->of_children == of_children && strcmp(watch->path, path) == 0) {
            list_remove(node);
            free(watch);
            return true;
        }
    }
    return false;
}

/* Each client gets one event for what happened to a node. */
static void fire(struct member *member, const char *path, int32_t type) {
    list_each(node, &member->connections) {
        struct ensemble_connection *connection =
            container_of(node, struct ensemble_connection, link);
        bool of_node = type != EVENT_CHILD && take_watch(connection, path, false);
        bool of_children =
            (type == EVENT_CHILD || type == EVENT_DELETED) && take_watch(connection, path, true);
        if (of_node || of_children)
            send_event(connection, type, path);
    }
}

static void fire_part(struct member *member, const struct ensemble_part *part) {
    static const int32_t types[] = {[OP_CREATE] = EVENT_CREATED,
                                    [OP_CREATE_PLAIN] = EVENT_CREATED,
                                    [OP_CREATE_CONTAINER] = EVENT_CREATED,
                                    [OP_DELETE] = EVENT_DELETED,
                                    [OP_SET_DATA] = EVENT_CHANGED};
    const struct tree_node *parent = tree_parent(&member->tree, part->path);
    if (part->op == OP_CHECK)
        return;
    fire(member, part->path, types[part->op]);
    if (part->op != OP_SET_DATA)
        fire(member, parent->path, EVENT_CHILD);
}

static void set_watch(struct ensemble_connection *connection, const char *path, bool of_children,
                      int64_t since) {
    const struct tree_node *node = tree_find(&member_of(connection)->tree, path);
    if (!node)
        send_event(connection, EVENT_DELETED, path);
    else if ((of_children ? node->stat.pzxid : node->stat.mzxid) > since)
        send_event(connection, of_children ? EVENT_CHILD : EVENT_CHANGED, path);
    else
        add_watch(connection, path, of_children);
}

static void set_watches(struct ensemble_connection *connection, struct codec_in *in) {
    enum { NODES, MISSING, CHILDREN, LISTS };
    int64_t since = codec_long(in);
    for (int list = NODES; list < LISTS; list++) {
        size_t count = codec_count(in);
        for (size_t i = 0; i < count && !in->failed; i++) {
            struct codec_text text = codec_text(in);
            char *path = tree_text(text.bytes, text.size);
            if (list != MISSING)
                set_watch(connection, path, list == CHILDREN, since);
            else if (tree_find(&member_of(connection)->tree, path))
                send_event(connection, EVENT_CREATED, path);
            else
                add_watch(connection, path, false);
            free(path);
        }
    }
}

/* ---- Reads ---- */

static void put_children(struct frame *frame, const struct tree *tree,
                         const struct tree_node *parent) {
    frame_int(frame, parent->child_count);
    for (size_t i = 0; i < tree->count; i++) {
        const char *name = tree_child_name(parent, tree->nodes[i]);
        if (name)
            frame_text(frame, name);
    }
}

static void read_node(struct ensemble_connection *connection, const struct request *request,
                      struct codec_in *in) {
    const struct tree *tree = &member_of(connection)->tree;
    struct codec_text text = codec_text(in);
    char *path = tree_text(text.bytes, text.size);
    bool watch = codec_bool(in);
    const struct tree_node *node = tree_find(tree, path);
    int32_t error = in->failed ? MODEL_MARSHALLING
                    : !node    ? MODEL_NO_NODE
                    : node->user && (!connection->user || strcmp(node->user, connection->user) != 0)
                        ? MODEL_NO_AUTH
                        : MODEL_OK;
    struct frame frame = {0};
    begin_reply(connection, &frame, request->xid, error);
    if (!error && request->op == OP_GET_DATA)
        frame_text(&frame, node->data);
    if (!error && request->op == OP_GET_CHILDREN)
        put_children(&frame, tree, node);
    if (!error)
        frame_stat(&frame, node);
    if (watch && (!error || (request->op == OP_EXISTS && error == MODEL_NO_NODE)))
        add_watch(connection, path, request->op == OP_GET_CHILDREN);
    tell(connection, request->op, path, error);
    send_frame(connection, &frame, false);
    free(path);
}

static void execute(struct ensemble_connection *connection, const struct request *request) {
    struct codec_in in = {.at = (const unsigned char *)request->body, .left = request->size};
    struct frame frame = {0};
    switch (request->op) {
    case OP_EXISTS:
    case OP_GET_DATA:
    case OP_GET_CHILDREN:
        read_node(connection, request, &in);
        return;
    case OP_PING:
        begin_reply(connection, &frame, XID_PING, MODEL_OK);
        break;
    case OP_SET_WATCHES:
        set_watches(connection, &in);
        begin_reply(connection, &frame, request->xid, MODEL_OK);
        break;
    default:
        begin_reply(connection, &frame, request->xid, MODEL_UNIMPLEMENTED);
    }
    tell(connection, request->op, NULL, MODEL_OK);
    send_frame(connection, &frame, false);
}

/* ---- The order of answers ---- */

static bool goes_to_leader(int32_t op) {
    return op == OP_CREATE || op == OP_CREATE_CONTAINER || op == OP_DELETE || op == OP_SET_DATA ||
           op == OP_MULTI || op == OP_CREATE_SESSION || op == OP_CLOSE_SESSION;
}

/* Answers reads, up to the first request that the leader has to answer. */
static void drain(struct ensemble_connection *connection) {
    while (!list_empty(&connection->requests) && !connection->is_closed) {
        struct request *first = container_of(connection->requests.next, struct request, link);
        if (goes_to_leader(first->op))
            return;
        list_remove(&first->link);
        execute(connection, first);
        request_free(first);
    }
}

/* Answers the first request, which the leader has decided. */
static void finish_first(struct ensemble_connection *connection, struct frame *frame) {
    struct list *first = list_pop(&connection->requests);
    assert(first);
    send_frame(connection, frame, false);
    request_free(container_of(first, struct request, link));
    drain(connection);
}

static void forward(struct ensemble_connection *connection, const struct request *request) {
    struct message *message = message_new(SEND_REQUEST);
    message->connection = connection->id;
    message->session = request->session;
    message->request = request_copy(request);
    send_up(connection->e, connection->member, message);
}

/* ---- Greetings ---- */

static void password_of(int64_t session, char password[PASSWORD_SIZE]) {
    for (int i = 0; i < PASSWORD_SIZE; i++)
        password[i] = (char)(session >> (8 * (i % 8)) ^ i);
}

static void answer_greeting(struct ensemble_connection *connection, bool valid) {
    struct frame frame = {0};
    char password[PASSWORD_SIZE] = {0};
    int64_t id = valid ? connection->e->sessions[connection->session].id : 0;
    if (valid)
        password_of(id, password);
    frame_begin(&frame);
    frame_int(&frame, 0);
    frame_int(&frame, valid ? connection->timeout_ms : 0);
    frame_long(&frame, id);
    frame_bytes(&frame, password, sizeof(password));
    frame_bool(&frame, false);
    connection->is_greeted = valid;
    tell(connection, OP_CREATE_SESSION, NULL, valid ? MODEL_OK : MODEL_EXPIRED);
    send_frame(connection, &frame, false);
    if (valid)
        drain(connection);
    else
        connection_close(connection);
}

static void close_others(struct ensemble_connection *connection, int session) {
    list_each(node, &member_of(connection)->connections) {
        struct ensemble_connection *other = container_of(node, struct ensemble_connection, link);
        if (other != connection && other->session == session)
            connection_close(other);
    }
}

static void open_session(struct ensemble_connection *connection) {
    struct ensemble *e = connection->e;
    assert(e->session_count < SESSIONS_MAX);
    connection->session = e->session_count++;
    e->sessions[connection->session] = (struct session){
        .id = (int64_t)(connection->member + 1) << 56 | e->session_count,
        .timeout_ms = connection->timeout_ms,
        .created_at = NOWHERE,
        .closed_at = NOWHERE,
        .owner = -1,
    };
    struct request request = {.connection = connection->id,
                              .member = connection->member,
                              .session = connection->session,
                              .op = OP_CREATE_SESSION};
    forward(connection, &request);
}

static void resume_session(struct ensemble_connection *connection, int64_t id,
                           struct codec_text password) {
    char expected[PASSWORD_SIZE];
    int session = session_find(connection->e, id);
    password_of(id, expected);
    close_others(connection, session);
    if (session < 0 || password.size != sizeof(expected) ||
        memcmp(password.bytes, expected, sizeof(expected)) != 0) {
        answer_greeting(connection, false);
        return;
    }
    struct message *message = message_new(SEND_VALIDATE);
    message->connection = connection->id;
    message->session = session;
    send_up(connection->e, connection->member, message);
}

static void greet(struct ensemble_connection *connection, struct codec_in *in) {
    const struct ensemble_config *config = &connection->e->config;
    int32_t tick_ms = (int32_t)(config->tick_us / 1000);
    codec_int(in);
    int64_t seen_zxid = codec_long(in);
    int32_t timeout_ms = codec_int(in);
    int64_t id = codec_long(in);
    struct codec_text password = codec_text(in);
    connection->is_asked = true;
    if (in->failed || seen_zxid > member_of(connection)->tree.last_zxid) {
        connection_close(connection); /* its client would go back in time */
        return;
    }
    timeout_ms = timeout_ms < 2 * tick_ms ? 2 * tick_ms : timeout_ms;
    connection->timeout_ms = timeout_ms > 20 * tick_ms ? 20 * tick_ms : timeout_ms;
    if (id)
        resume_session(connection, id, password);
    else
        open_session(connection);
}

void connection_validated(struct ensemble *e, struct member *member, uint64_t id, int session,
                          bool valid) {
    struct ensemble_connection *connection = find(member, id);
    (void)e;
    if (!connection)
        return;
    connection->session = session;
    answer_greeting(connection, valid);
}

/* ---- Requests ---- */

static void log_in(struct ensemble_connection *connection, int32_t xid, struct codec_in *in) {
    struct frame frame = {0};
    codec_int(in);
    codec_text(in);
    struct codec_text credentials = codec_text(in);
    free(connection->user);
    connection->user = tree_text(credentials.bytes, credentials.size);
    frame_begin(&frame);
    frame_header(&frame, xid, 0, MODEL_OK);
    tell(connection, OP_AUTH, NULL, MODEL_OK);
    send_frame(connection, &frame, false);
}

static void take_request(struct ensemble_connection *connection, struct codec_in *in) {
    int32_t xid = codec_int(in), op = codec_int(in);
    if (op == OP_AUTH) {
        log_in(connection, xid, in);
        return;
    }
    struct request *request = tree_allocate(NULL, sizeof(*request) + in->left);
    *request = (struct request){.connection = connection->id,
                                .member = connection->member,
                                .session = connection->session,
                                .xid = xid,
                                .op = op,
                                .user = connection->user,
                                .size = in->left};
    if (in->left)
        memcpy(request->body, in->at, in->left);
    struct request *waiting = request_copy(request);
    list_append(&connection->requests, &waiting->link);
    session_touch(connection->e, connection->member, connection->session);
    if (goes_to_leader(op))
        forward(connection, request);
    free(request);
    drain(connection);
}

size_t ensemble_feed(struct ensemble_connection *connection, const char *bytes, size_t size) {
    struct codec_in in = {.at = (const unsigned char *)bytes, .left = size};
    size_t used = (size_t)codec_int(&in) + 4;
    assert(used <= size);
    in.left = used - 4;
    if (!member_serves(member_of(connection)))
        connection_close(connection);
    if (connection->is_closed)
        return used;
    if (!connection->is_asked)
        greet(connection, &in);
    else if (connection->is_greeted)
        take_request(connection, &in);
    else
        connection_close(connection); /* a client must wait for the greeting */
    return used;
}

/* ---- Transactions ---- */

struct applying {
    struct member *member;
    bool has_results; /* of a multi, which is answered here */
    struct frame results;
    const struct tree_node *last;
};

static void part_applied(void *context, const struct ensemble_part *part,
                         const struct tree_node *node) {
    struct applying *applying = context;
    struct frame *results = &applying->results;
    fire_part(applying->member, part);
    applying->last = node;
    if (!applying->has_results)
        return;
    frame_int(results, part->op);
    frame_bool(results, false);
    frame_int(results, 0);
    if (part->op == OP_CREATE_PLAIN)
        frame_text(results, node->path);
    if (part->op == OP_SET_DATA)
        frame_stat(results, node);
}

/* No part was done: each has the reason. */
static void put_errors(struct frame *results, const struct ensemble_txn *txn) {
    for (size_t i = 0; i < txn->count; i++) {
        frame_int(results, -1);
        frame_bool(results, false);
        frame_int(results, txn->parts[i].error);
        frame_int(results, txn->parts[i].error);
    }
}

static void answer(struct ensemble_connection *connection, const struct ensemble_txn *txn,
                   struct applying *applying) {
    struct frame frame = {0};
    if (txn->op == OP_CREATE_SESSION) {
        answer_greeting(connection, true);
        return;
    }
    if (txn->error == MODEL_MOVED) {
        connection_close(connection);
        return;
    }
    begin_reply(connection, &frame, txn->xid, txn->error);
    if (txn->op == OP_MULTI && !txn->error) {
        if (!txn_is_done(txn))
            put_errors(&applying->results, txn);
        frame_raw(&frame, applying->results.bytes, applying->results.size);
        frame_int(&frame, -1);
        frame_bool(&frame, true);
        frame_int(&frame, -1);
    } else if (!txn->error && applying->last && txn->op != OP_CLOSE_SESSION) {
        if (txn->op != OP_SET_DATA)
            frame_text(&frame, applying->last->path);
        frame_stat(&frame, applying->last);
    }
    tell(connection, txn->op, txn->count ? txn->parts[0].path : NULL,
         txn->error                          ? txn->error
         : txn->count && txn->op == OP_MULTI ? txn->parts[0].error
                                             : 0);
    finish_first(connection, &frame);
}

void connections_apply(struct ensemble *e, struct member *member, const struct ensemble_txn *txn) {
    struct ensemble_connection *connection =
        txn->member == member->number ? find(member, txn->connection) : NULL;
    struct applying applying = {.member = member, .has_results = connection && txn->op == OP_MULTI};
    txn_apply(&member->tree, txn, part_applied, &applying);
    if (connection)
        answer(connection, txn, &applying);
    frame_free(&applying.results);
    if (txn->op != OP_CLOSE_SESSION)
        return;
    list_each(node, &member->connections) {
        struct ensemble_connection *other = container_of(node, struct ensemble_connection, link);
        if (other->session >= 0 && e->sessions[other->session].id == txn->session)
            connection_close(other);
    }
}
