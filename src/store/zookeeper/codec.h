/* ZooKeeper's wire protocol, as far as locks need it. It knows no socket and no session: requests
 * become bytes, and bytes become frames, whose fields are read one after another.
 *
 * A frame is a length and a body. A request's body begins with a number that the reply repeats
 * (xid) and an operation; a reply's with the xid, the server's last transaction (zxid) and an error
 * code. Only the first frame of a connection, in each direction, has no such header.
 *
 * Nothing that a server sends is trusted: a frame is at most CODEC_FRAME_MAX bytes, every length
 * inside it is checked against what is left, and a missing field makes the rest of the frame
 * unreadable (`failed`), and has no other effect. */
#ifndef ZOOKEEPER_CODEC_H
#define ZOOKEEPER_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODEC_FRAME_MAX = 4 << 20, CODEC_PASSWORD_SIZE = 16 };

/* ---- Requests ---- */

/* Bytes to send; whole frames, unless `failed`: there was no memory. */
struct codec_out {
    char *bytes;
    size_t size, room;
    size_t frame; /* where the frame that is being written begins */
    bool failed;
};

void codec_out_free(struct codec_out *out);

enum codec_xid {
    XID_EVENT = -1,
    XID_PING = -2,
    XID_AUTH = -4,
    XID_SET_WATCHES = -8,
};

/* Who may use a new node: everybody, or only its creator (who has authenticated). */
enum codec_acl { ACL_ANYBODY, ACL_CREATOR };

enum codec_version { ANY_VERSION = -1 };

struct codec_session {
    int64_t last_zxid;
    int64_t id; /* 0: a new one */
    int32_t timeout_ms;
    char password[CODEC_PASSWORD_SIZE];
};

void codec_connect(struct codec_out *out, const struct codec_session *session);
void codec_ping(struct codec_out *out);
void codec_auth(struct codec_out *out, const char *scheme, const char *credentials);
/* Sets watches again, on nodes and on the children of nodes, and makes the server report what has
 * happened to them since `last_zxid`. */
struct codec_paths {
    const char *const *paths;
    size_t count;
};
void codec_set_watches(struct codec_out *out, int64_t last_zxid, struct codec_paths nodes,
                       struct codec_paths parents);
void codec_close_session(struct codec_out *out, int32_t xid);
/* An ephemeral node, to whose name the server adds a number of ten digits. */
void codec_create_claim(struct codec_out *out, int32_t xid, const char *path, const char *data,
                        enum codec_acl acl);
void codec_create(struct codec_out *out, int32_t xid, const char *path, const char *data,
                  enum codec_acl acl);
/* A node that the server removes some time after its last child has gone. */
void codec_create_container(struct codec_out *out, int32_t xid, const char *path,
                            enum codec_acl acl);
void codec_delete(struct codec_out *out, int32_t xid, const char *path);
void codec_get_data(struct codec_out *out, int32_t xid, const char *path, bool watch);
void codec_set_data(struct codec_out *out, int32_t xid, const char *path, const char *data,
                    int32_t version);
void codec_get_children(struct codec_out *out, int32_t xid, const char *path, bool watch);

/* Operations of which either all are done or none. */
void codec_multi_begin(struct codec_out *out, int32_t xid);
void codec_multi_check(struct codec_out *out, const char *path, int32_t version);
void codec_multi_create(struct codec_out *out, const char *path, const char *data,
                        enum codec_acl acl);
void codec_multi_delete(struct codec_out *out, const char *path);
void codec_multi_set_data(struct codec_out *out, const char *path, const char *data,
                          int32_t version);
void codec_multi_end(struct codec_out *out);

/* ---- Frames ---- */

/* Cuts a stream of bytes into frames. */
struct codec_frames {
    char *bytes;
    size_t size, room, taken;
};

void codec_frames_free(struct codec_frames *frames);

/* Forgets what was fed, for the next connection. */
void codec_frames_start(struct codec_frames *frames);

/* False: no memory. */
bool codec_frames_feed(struct codec_frames *frames, const char *bytes, size_t size);

/* A frame's body, while it is read. */
struct codec_in {
    const unsigned char *at;
    size_t left;
    bool failed;
};

/* 1: a frame, which is valid until the next call with these frames. 0: there is none yet. -1: the
 * length is wrong; so is everything after it. */
int codec_frames_next(struct codec_frames *frames, struct codec_in *ret_in);

/* ---- Replies ---- */

/* Text of a frame, without a NUL at its end. */
struct codec_text {
    const char *bytes;
    size_t size;
};

struct codec_header {
    int32_t xid;
    int64_t zxid;
    int32_t error;
};

struct codec_stat {
    int64_t czxid, mzxid, ctime_ms, mtime_ms;
    int32_t version, cversion, aversion;
    int64_t owner; /* the session of an ephemeral node; 0: it is not ephemeral */
    int32_t data_size, child_count;
    int64_t pzxid;
};

enum codec_event_type { EVENT_CREATED = 1, EVENT_DELETED, EVENT_CHANGED, EVENT_CHILD };

struct codec_event {
    int32_t type, state;
    struct codec_text path;
};

enum codec_error {
    ZK_OK = 0,
    ZK_INCONSISTENT = -2, /* undone because another of several operations failed */
    ZK_UNIMPLEMENTED = -6,
    ZK_NO_NODE = -101,
    ZK_NO_AUTH = -102,
    ZK_BAD_VERSION = -103,
    ZK_NODE_EXISTS = -110,
    ZK_EXPIRED = -112,
    ZK_INVALID_ACL = -114,
    ZK_AUTH_FAILED = -115,
    ZK_MOVED = -118,
    ZK_QUOTA = -125,
    ZK_THROTTLED = -127,
};

/* Words for people; NULL: a code that is not in the list. */
const char *codec_error_text(int32_t error);

int32_t codec_int(struct codec_in *in);
int64_t codec_long(struct codec_in *in);
bool codec_bool(struct codec_in *in);
struct codec_text codec_text(struct codec_in *in); /* none: an empty one */
/* The number of elements that follow, each of which has at least four bytes. */
size_t codec_count(struct codec_in *in);
struct codec_header codec_header(struct codec_in *in);
struct codec_stat codec_stat(struct codec_in *in);
struct codec_event codec_event(struct codec_in *in);
/* The answer to codec_connect; its id is 0 if the session has expired. */
struct codec_session codec_connected(struct codec_in *in);
/* The answer to several operations: the error of the first that failed, and its place; ZK_OK: none
 * did. */
int32_t codec_multi_result(struct codec_in *in, size_t *ret_index);

#endif
