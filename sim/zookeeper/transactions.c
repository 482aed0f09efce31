/* What requests do: the leader's decisions, and the log. */
#include "sim/zookeeper/model.h"
#include "store/zookeeper/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EPHEMERAL = 1, SEQUENTIAL = 2, CONTAINER = 4, FLAGS_MAX = 4 };

static char *take_text(struct codec_in *in) {
    struct codec_text text = codec_text(in);
    return tree_text(text.bytes, text.size);
}

static void part_free(struct ensemble_part *part) {
    free(part->path);
    free(part->data);
    free(part->user);
}

/* ---- The log ---- */

struct ensemble_txn *log_new(struct ensemble *e, int32_t op) {
    if (e->log_count == e->log_room) {
        e->log_room = e->log_room ? 2 * e->log_room : 64;
        e->log = tree_allocate(e->log, e->log_room * sizeof(*e->log));
    }
    struct ensemble_txn *txn = &e->log[e->log_count++];
    *txn = (struct ensemble_txn){
        .zxid = ++e->zxid, .time_ms = e->now_us / 1000, .member = -1, .op = op};
    e->ahead.last_zxid = txn->zxid;
    return txn;
}

void log_cut(struct ensemble *e, size_t count) {
    while (e->log_count > count) {
        struct ensemble_txn *txn = &e->log[--e->log_count];
        for (size_t i = 0; i < txn->count; i++)
            part_free(&txn->parts[i]);
        free(txn->parts);
    }
}

static struct ensemble_part *add_part(struct ensemble_txn *txn, int32_t op) {
    txn->parts = tree_allocate(txn->parts, (txn->count + 1) * sizeof(*txn->parts));
    txn->parts[txn->count] = (struct ensemble_part){.op = op};
    return &txn->parts[txn->count++];
}

/* ---- Applying ---- */

static struct tree_node *apply_part(struct tree *tree, const struct ensemble_txn *txn,
                                    const struct ensemble_part *part) {
    struct tree_node *node = tree_find(tree, part->path);
    struct tree_change change = {.zxid = txn->zxid,
                                 .time_ms = txn->time_ms,
                                 .path = part->path,
                                 .data = part->data,
                                 .user = part->user,
                                 .owner = part->owner};
    if (part->op == OP_CREATE || part->op == OP_CREATE_PLAIN || part->op == OP_CREATE_CONTAINER)
        return tree_create(tree, &change);
    if (part->op == OP_SET_DATA)
        tree_set(node, &change);
    if (part->op == OP_DELETE && node)
        tree_delete(tree, node, txn->zxid);
    return part->op == OP_DELETE ? NULL : node;
}

bool txn_is_done(const struct ensemble_txn *txn) {
    for (size_t i = 0; i < txn->count; i++) {
        if (txn->parts[i].error)
            return false;
    }
    return !txn->error;
}

void txn_apply(struct tree *tree, const struct ensemble_txn *txn,
               void (*done)(void *context, const struct ensemble_part *part,
                            const struct tree_node *node),
               void *context) {
    bool is_done = txn_is_done(txn);
    for (size_t i = 0; i < txn->count && is_done; i++) {
        const struct tree_node *node = apply_part(tree, txn, &txn->parts[i]);
        if (done)
            done(context, &txn->parts[i], node);
    }
    tree->last_zxid = txn->zxid;
}

/* ---- Deciding ---- */

static bool is_path(const char *path) {
    if (path[0] != '/')
        return false;
    if (!path[1])
        return true;
    for (const char *at = path; *at; at++) {
        const char *next = at + 1;
        if (*at != '/')
            continue;
        if (!*next || *next == '/' || (next[0] == '.' && (!next[1] || next[1] == '/')) ||
            (next[0] == '.' && next[1] == '.' && (!next[2] || next[2] == '/')))
            return false;
    }
    return true;
}

static bool may_use(const struct tree_node *node, const char *user) {
    return !node->user || (user && strcmp(node->user, user) == 0);
}

static bool is_version(const struct tree_node *node, int32_t version) {
    return version == -1 || version == node->stat.version;
}

/* Everybody, or the creator. */
static int32_t take_acl(struct codec_in *in, const char *user, char **ret_user) {
    size_t count = codec_count(in);
    *ret_user = NULL;
    for (size_t i = 0; i < count && !in->failed; i++) {
        codec_int(in);
        char *scheme = take_text(in), *id = take_text(in);
        bool is_auth = strcmp(scheme, "auth") == 0;
        bool is_world = strcmp(scheme, "world") == 0 && strcmp(id, "anyone") == 0;
        free(scheme);
        free(id);
        if ((!is_auth && !is_world) || (is_auth && !user))
            return MODEL_INVALID_ACL;
        if (is_auth && !*ret_user)
            *ret_user = tree_text(user, strlen(user));
    }
    return count ? MODEL_OK : MODEL_INVALID_ACL;
}

static void add_number(char **path, const struct tree_node *parent) {
    size_t size = strlen(*path);
    *path = tree_allocate(*path, size + 16);
    snprintf(*path + size, 16, "%010d", (int)parent->stat.created);
}

static int32_t decide_create(struct ensemble *e, struct ensemble_part *part,
                             const struct request *request, struct codec_in *in) {
    part->path = take_text(in);
    part->data = take_text(in);
    int32_t acl_error = take_acl(in, request->user, &part->user);
    int32_t flags = codec_int(in);
    if (in->failed)
        return MODEL_MARSHALLING;
    if (flags < 0 || flags > FLAGS_MAX || !strrchr(part->path, '/'))
        return MODEL_BAD_ARGUMENTS;
    if (acl_error)
        return acl_error;
    const struct tree_node *parent = tree_parent(&e->ahead, part->path);
    if (!parent)
        return MODEL_NO_NODE;
    if (!may_use(parent, request->user))
        return MODEL_NO_AUTH;
    if (flags & SEQUENTIAL && flags != CONTAINER)
        add_number(&part->path, parent);
    if (!is_path(part->path))
        return MODEL_BAD_ARGUMENTS;
    if (tree_find(&e->ahead, part->path))
        return MODEL_NODE_EXISTS;
    if (parent->stat.owner && parent->stat.owner != TREE_CONTAINER)
        return MODEL_EPHEMERAL_PARENT;
    part->owner = flags == CONTAINER  ? TREE_CONTAINER
                  : flags & EPHEMERAL ? e->sessions[request->session].id
                                      : 0;
    return MODEL_OK;
}

static int32_t decide_delete(struct ensemble *e, struct ensemble_part *part,
                             const struct request *request, struct codec_in *in) {
    part->path = take_text(in);
    int32_t version = codec_int(in);
    const struct tree_node *parent = tree_parent(&e->ahead, part->path);
    const struct tree_node *node = tree_find(&e->ahead, part->path);
    if (!strrchr(part->path, '/') || strcmp(part->path, "/") == 0)
        return MODEL_BAD_ARGUMENTS;
    return !parent                           ? MODEL_NO_NODE
           : !may_use(parent, request->user) ? MODEL_NO_AUTH
           : !node                           ? MODEL_NO_NODE
           : !is_version(node, version)      ? MODEL_BAD_VERSION
           : node->child_count               ? MODEL_NOT_EMPTY
                                             : MODEL_OK;
}

/* A change of data, or a check of the version. */
static int32_t decide_node(struct ensemble *e, struct ensemble_part *part,
                           const struct request *request, struct codec_in *in) {
    part->path = take_text(in);
    part->data = part->op == OP_SET_DATA ? take_text(in) : NULL;
    int32_t version = codec_int(in);
    const struct tree_node *node = tree_find(&e->ahead, part->path);
    return !is_path(part->path)            ? MODEL_BAD_ARGUMENTS
           : !node                         ? MODEL_NO_NODE
           : !may_use(node, request->user) ? MODEL_NO_AUTH
           : !is_version(node, version)    ? MODEL_BAD_VERSION
                                           : MODEL_OK;
}

static int32_t decide(struct ensemble *e, struct ensemble_txn *txn, int32_t op,
                      const struct request *request, struct codec_in *in) {
    struct ensemble_part *part = add_part(txn, op);
    int32_t error = MODEL_UNIMPLEMENTED;
    if (op == OP_CREATE || op == OP_CREATE_PLAIN || op == OP_CREATE_CONTAINER)
        error = decide_create(e, part, request, in);
    else if (op == OP_DELETE)
        error = decide_delete(e, part, request, in);
    else if (op == OP_SET_DATA || op == OP_CHECK)
        error = decide_node(e, part, request, in);
    return part->error = in->failed ? MODEL_MARSHALLING : error;
}

/* Parts after one that fails are ignored. */
static void decide_multi(struct ensemble *e, struct ensemble_txn *txn,
                         const struct request *request, struct codec_in *in) {
    struct tree before = {0};
    bool failed = false;
    for (;;) {
        int32_t op = codec_int(in);
        bool done = codec_bool(in);
        codec_int(in);
        if (done || in->failed)
            break;
        int32_t error = decide(e, txn, op, request, in);
        struct ensemble_part *part = &txn->parts[txn->count - 1];
        if (failed) {
            part->error = MODEL_INCONSISTENT;
        } else if (error) {
            failed = true;
        } else if (op != OP_CHECK) {
            if (!before.count)
                tree_copy(&before, &e->ahead);
            apply_part(&e->ahead, txn, part);
        }
    }
    if (failed && before.count)
        tree_copy(&e->ahead, &before);
    tree_free(&before);
    e->ahead.last_zxid = txn->zxid;
}

void log_part(struct ensemble *e, struct ensemble_txn *txn, int32_t op, const char *path) {
    struct ensemble_part *part = add_part(txn, op);
    part->path = tree_text(path, strlen(path));
    apply_part(&e->ahead, txn, part);
}

void log_close_session(struct ensemble *e, struct ensemble_txn *txn, int session) {
    int64_t id = e->sessions[session].id;
    for (size_t i = 0; i < e->ahead.count;) {
        const struct tree_node *node = e->ahead.nodes[i];
        if (node->stat.owner == id)
            log_part(e, txn, OP_DELETE, node->path);
        else
            i++;
    }
    e->sessions[session].closed_at = e->log_count - 1;
}

static int32_t session_error(struct ensemble *e, const struct request *request) {
    struct session *session = &e->sessions[request->session];
    if (!session_is_alive(e, request->session))
        return MODEL_EXPIRED;
    if (session->owner >= 0 && session->owner != request->member)
        return MODEL_MOVED;
    session->owner = request->member;
    return MODEL_OK;
}

struct ensemble_txn *log_request(struct ensemble *e, const struct request *request) {
    struct session *session = &e->sessions[request->session];
    struct ensemble_txn *txn = log_new(e, request->op);
    struct codec_in in = {.at = (const unsigned char *)request->body, .left = request->size};
    txn->session = session->id;
    txn->member = request->member;
    txn->connection = request->connection;
    txn->xid = request->xid;
    if (request->op == OP_CREATE_SESSION) {
        session->created_at = e->log_count - 1;
        session->owner = request->member;
        session->expires_us = e->now_us + session->timeout_ms * INT64_C(1000);
    } else if (request->op == OP_CLOSE_SESSION) {
        if (session_is_alive(e, request->session))
            log_close_session(e, txn, request->session);
    } else if ((txn->error = session_error(e, request))) {
        return txn;
    } else if (request->op == OP_MULTI) {
        decide_multi(e, txn, request, &in);
    } else if (!(txn->error = decide(e, txn, request->op, request, &in))) {
        apply_part(&e->ahead, txn, txn->parts);
    }
    return txn;
}
