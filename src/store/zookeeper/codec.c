#include "store/zookeeper/codec.h"

#include <stdlib.h>
#include <string.h>

enum operation {
    OP_CREATE_PLAIN = 1,
    OP_DELETE = 2,
    OP_GET_DATA = 4,
    OP_SET_DATA = 5,
    OP_PING = 11,
    OP_GET_CHILDREN = 12, /* with the parent's stat */
    OP_CHECK = 13,
    OP_MULTI = 14,
    OP_CREATE = 15, /* answered with the node's stat */
    OP_CREATE_CONTAINER = 19,
    OP_AUTH = 100,
    OP_SET_WATCHES = 101,
    OP_CLOSE = -11,
};

enum { MODE_PERSISTENT = 0, MODE_EPHEMERAL_SEQUENTIAL = 3, MODE_CONTAINER = 4 };
enum { PERMISSIONS_ALL = 31 };

/* ---- Writing ---- */

void codec_out_free(struct codec_out *out) {
    if (out->bytes)
        explicit_bzero(out->bytes, out->size); /* a password may be in it */
    free(out->bytes);
    *out = (struct codec_out){0};
}

static void put(struct codec_out *out, const void *bytes, size_t size) {
    enum { FIRST_ROOM = 256 };
    if (out->failed)
        return;
    if (size > out->room - out->size) {
        size_t room = out->room ? out->room : FIRST_ROOM;
        while (room - out->size < size)
            room *= 2;
        char *grown = malloc(room);
        if (!grown) {
            out->failed = true;
            return;
        }
        if (out->bytes) {
            memcpy(grown, out->bytes, out->size);
            explicit_bzero(out->bytes, out->size);
        }
        free(out->bytes);
        out->bytes = grown;
        out->room = room;
    }
    if (size)
        memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void encode_int(unsigned char bytes[4], uint32_t value) {
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void put_int(struct codec_out *out, int32_t value) {
    unsigned char bytes[4];
    encode_int(bytes, (uint32_t)value);
    put(out, bytes, sizeof(bytes));
}

static void put_long(struct codec_out *out, int64_t value) {
    put_int(out, (int32_t)((uint64_t)value >> 32));
    put_int(out, (int32_t)((uint64_t)value & UINT32_MAX));
}

static void put_bool(struct codec_out *out, bool value) {
    unsigned char byte = value;
    put(out, &byte, 1);
}

static void put_bytes(struct codec_out *out, const void *bytes, size_t size) {
    put_int(out, (int32_t)size);
    put(out, bytes, size);
}

static void put_text(struct codec_out *out, const char *text) {
    put_bytes(out, text, strlen(text));
}

static void put_acl(struct codec_out *out, enum codec_acl acl) {
    put_int(out, 1);
    put_int(out, PERMISSIONS_ALL);
    put_text(out, acl == ACL_CREATOR ? "auth" : "world");
    put_text(out, acl == ACL_CREATOR ? "" : "anyone");
}

static void begin_frame(struct codec_out *out) {
    out->frame = out->size;
    put_int(out, 0); /* its length, once that is known */
}

static void end_frame(struct codec_out *out) {
    if (!out->failed)
        encode_int((unsigned char *)out->bytes + out->frame,
                   (uint32_t)(out->size - out->frame - 4));
}

static void begin(struct codec_out *out, int32_t xid, enum operation operation) {
    begin_frame(out);
    put_int(out, xid);
    put_int(out, operation);
}

/* ---- Requests ---- */

void codec_connect(struct codec_out *out, const struct codec_session *session) {
    begin_frame(out);
    put_int(out, 0); /* the version of the protocol */
    put_long(out, session->last_zxid);
    put_int(out, session->timeout_ms);
    put_long(out, session->id);
    put_bytes(out, session->password, sizeof(session->password));
    put_bool(out, false); /* not read only: a member that has lost the others is of no use */
    end_frame(out);
}

void codec_ping(struct codec_out *out) {
    begin(out, XID_PING, OP_PING);
    end_frame(out);
}

void codec_auth(struct codec_out *out, const char *scheme, const char *credentials) {
    begin(out, XID_AUTH, OP_AUTH);
    put_int(out, 0);
    put_text(out, scheme);
    put_text(out, credentials);
    end_frame(out);
}

static void put_paths(struct codec_out *out, struct codec_paths list) {
    put_int(out, (int32_t)list.count);
    for (size_t i = 0; i < list.count; i++)
        put_text(out, list.paths[i]);
}

void codec_set_watches(struct codec_out *out, int64_t last_zxid, struct codec_paths nodes,
                       struct codec_paths parents) {
    begin(out, XID_SET_WATCHES, OP_SET_WATCHES);
    put_long(out, last_zxid);
    put_paths(out, nodes);
    put_int(out, 0); /* for nodes that do not exist */
    put_paths(out, parents);
    end_frame(out);
}

void codec_close_session(struct codec_out *out, int32_t xid) {
    begin(out, xid, OP_CLOSE);
    end_frame(out);
}

static void create(struct codec_out *out, int32_t xid, enum operation operation, const char *path,
                   const char *data, enum codec_acl acl, int32_t mode) {
    begin(out, xid, operation);
    put_text(out, path);
    put_text(out, data);
    put_acl(out, acl);
    put_int(out, mode);
    end_frame(out);
}

void codec_create_claim(struct codec_out *out, int32_t xid, const char *path, const char *data,
                        enum codec_acl acl) {
    create(out, xid, OP_CREATE, path, data, acl, MODE_EPHEMERAL_SEQUENTIAL);
}

void codec_create(struct codec_out *out, int32_t xid, const char *path, const char *data,
                  enum codec_acl acl) {
    create(out, xid, OP_CREATE, path, data, acl, MODE_PERSISTENT);
}

void codec_create_container(struct codec_out *out, int32_t xid, const char *path,
                            enum codec_acl acl) {
    create(out, xid, OP_CREATE_CONTAINER, path, "", acl, MODE_CONTAINER);
}

void codec_delete(struct codec_out *out, int32_t xid, const char *path) {
    begin(out, xid, OP_DELETE);
    put_text(out, path);
    put_int(out, ANY_VERSION);
    end_frame(out);
}

void codec_get_data(struct codec_out *out, int32_t xid, const char *path, bool watch) {
    begin(out, xid, OP_GET_DATA);
    put_text(out, path);
    put_bool(out, watch);
    end_frame(out);
}

void codec_set_data(struct codec_out *out, int32_t xid, const char *path, const char *data,
                    int32_t version) {
    begin(out, xid, OP_SET_DATA);
    put_text(out, path);
    put_text(out, data);
    put_int(out, version);
    end_frame(out);
}

void codec_get_children(struct codec_out *out, int32_t xid, const char *path, bool watch) {
    begin(out, xid, OP_GET_CHILDREN);
    put_text(out, path);
    put_bool(out, watch);
    end_frame(out);
}

static void put_multi_header(struct codec_out *out, int32_t operation, bool done) {
    put_int(out, operation);
    put_bool(out, done);
    put_int(out, -1);
}

void codec_multi_begin(struct codec_out *out, int32_t xid) {
    begin(out, xid, OP_MULTI);
}

void codec_multi_check(struct codec_out *out, const char *path, int32_t version) {
    put_multi_header(out, OP_CHECK, false);
    put_text(out, path);
    put_int(out, version);
}

void codec_multi_create(struct codec_out *out, const char *path, const char *data,
                        enum codec_acl acl) {
    put_multi_header(out, OP_CREATE_PLAIN, false);
    put_text(out, path);
    put_text(out, data);
    put_acl(out, acl);
    put_int(out, MODE_PERSISTENT);
}

void codec_multi_delete(struct codec_out *out, const char *path) {
    put_multi_header(out, OP_DELETE, false);
    put_text(out, path);
    put_int(out, ANY_VERSION);
}

void codec_multi_set_data(struct codec_out *out, const char *path, const char *data,
                          int32_t version) {
    put_multi_header(out, OP_SET_DATA, false);
    put_text(out, path);
    put_text(out, data);
    put_int(out, version);
}

void codec_multi_end(struct codec_out *out) {
    put_multi_header(out, -1, true);
    end_frame(out);
}

/* ---- Frames ---- */

void codec_frames_free(struct codec_frames *frames) {
    free(frames->bytes);
    *frames = (struct codec_frames){0};
}

void codec_frames_start(struct codec_frames *frames) {
    frames->size = frames->taken = 0;
}

bool codec_frames_feed(struct codec_frames *frames, const char *bytes, size_t size) {
    enum { FIRST_ROOM = 4096 };
    if (frames->taken) {
        frames->size -= frames->taken;
        memmove(frames->bytes, frames->bytes + frames->taken, frames->size);
        frames->taken = 0;
    }
    if (size > frames->room - frames->size) {
        size_t room = frames->room ? frames->room : FIRST_ROOM;
        while (room - frames->size < size)
            room *= 2;
        char *grown = realloc(frames->bytes, room);
        if (!grown)
            return false;
        frames->bytes = grown;
        frames->room = room;
    }
    if (size)
        memcpy(frames->bytes + frames->size, bytes, size);
    frames->size += size;
    return true;
}

int codec_frames_next(struct codec_frames *frames, struct codec_in *ret_in) {
    size_t left = frames->size - frames->taken;
    if (left < 4)
        return 0;
    struct codec_in in = {.at = (const unsigned char *)frames->bytes + frames->taken, .left = left};
    int32_t size = codec_int(&in);
    if (size < 0 || size > CODEC_FRAME_MAX)
        return -1;
    if (in.left < (size_t)size)
        return 0;
    in.left = (size_t)size;
    frames->taken += 4 + in.left;
    *ret_in = in;
    return 1;
}

/* ---- Reading ---- */

static const unsigned char *take(struct codec_in *in, size_t size) {
    if (in->failed || size > in->left) {
        in->failed = true;
        return NULL;
    }
    const unsigned char *at = in->at;
    in->at += size;
    in->left -= size;
    return at;
}

int32_t codec_int(struct codec_in *in) {
    const unsigned char *at = take(in, 4);
    return at ? (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 |
                          at[3])
              : 0;
}

int64_t codec_long(struct codec_in *in) {
    uint64_t high = (uint32_t)codec_int(in), low = (uint32_t)codec_int(in);
    return in->failed ? 0 : (int64_t)(high << 32 | low);
}

bool codec_bool(struct codec_in *in) {
    const unsigned char *at = take(in, 1);
    return at && *at;
}

struct codec_text codec_text(struct codec_in *in) {
    int32_t size = codec_int(in);
    const unsigned char *at = size > 0 ? take(in, (size_t)size) : NULL;
    if (size < -1) /* -1 is Java's null */
        in->failed = true;
    return at ? (struct codec_text){(const char *)at, (size_t)size} : (struct codec_text){"", 0};
}

size_t codec_count(struct codec_in *in) {
    int32_t count = codec_int(in);
    if (count < -1 || (count > 0 && (size_t)count > in->left / 4))
        in->failed = true;
    return in->failed || count < 0 ? 0 : (size_t)count;
}

struct codec_header codec_header(struct codec_in *in) {
    struct codec_header header;
    header.xid = codec_int(in);
    header.zxid = codec_long(in);
    header.error = codec_int(in);
    return header;
}

struct codec_stat codec_stat(struct codec_in *in) {
    struct codec_stat stat;
    stat.czxid = codec_long(in);
    stat.mzxid = codec_long(in);
    stat.ctime_ms = codec_long(in);
    stat.mtime_ms = codec_long(in);
    stat.version = codec_int(in);
    stat.cversion = codec_int(in);
    stat.aversion = codec_int(in);
    stat.owner = codec_long(in);
    stat.data_size = codec_int(in);
    stat.child_count = codec_int(in);
    stat.pzxid = codec_long(in);
    return stat;
}

struct codec_event codec_event(struct codec_in *in) {
    struct codec_event event;
    event.type = codec_int(in);
    event.state = codec_int(in);
    event.path = codec_text(in);
    return event;
}

/* Servers before 3.4 do not send the last field, which says whether they are read only. */
struct codec_session codec_connected(struct codec_in *in) {
    struct codec_session session = {0};
    codec_int(in);
    session.timeout_ms = codec_int(in);
    session.id = codec_long(in);
    struct codec_text password = codec_text(in);
    if (password.size == sizeof(session.password))
        memcpy(session.password, password.bytes, password.size);
    else if (session.id)
        in->failed = true;
    if (session.timeout_ms <= 0)
        session.id = 0;
    return session;
}

int32_t codec_multi_result(struct codec_in *in, size_t *ret_index) {
    int32_t first = ZK_OK;
    *ret_index = 0;
    for (size_t i = 0; !in->failed; i++) {
        int32_t type = codec_int(in);
        bool done = codec_bool(in);
        codec_int(in); /* the error, which an error's body repeats */
        if (done)
            return in->failed ? ZK_OK : first;
        int32_t error = type == -1 ? codec_int(in) : ZK_OK;
        if (type == OP_CREATE_PLAIN)
            codec_text(in);
        else if (type == OP_SET_DATA)
            codec_stat(in);
        else if (type != -1 && type != OP_CHECK && type != OP_DELETE)
            in->failed = true;
        if (error != ZK_OK && error != ZK_INCONSISTENT && first == ZK_OK) {
            first = error;
            *ret_index = i;
        }
    }
    return ZK_OK;
}

const char *codec_error_text(int32_t error) {
    switch (error) {
    case ZK_UNIMPLEMENTED:
        return "the server is too old for this request";
    case ZK_NO_NODE:
        return "the node does not exist";
    case ZK_NO_AUTH:
        return "no permission for a node: its ACL is for somebody else";
    case ZK_BAD_VERSION:
        return "the node has changed meanwhile";
    case ZK_NODE_EXISTS:
        return "the node exists already";
    case ZK_EXPIRED:
        return "the session has expired";
    case ZK_INVALID_ACL:
        return "the server rejects the ACL: the login did not authenticate";
    case ZK_AUTH_FAILED:
        return "the server rejects the login";
    case ZK_MOVED:
        return "the session has moved to another member";
    case ZK_QUOTA:
        return "a quota is exhausted";
    case ZK_THROTTLED:
        return "the server is overloaded and throttles requests";
    default:
        return NULL;
    }
}
