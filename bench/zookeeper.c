/* The ZooKeeper store beside its limits, in one run, each slice between two slices of the limit,
 * medians of rounds. What counts are the ratios.
 *
 * The limit is the store's own requests, sent on bare connections: create a sequential node,
 * list the children and read the token base at the same time, then delete the node. Beside that are
 * create, list and delete one after the other, Curator's InterProcessMutex and kazoo's Lock (one
 * client each, too).
 *
 * usage: bench-zookeeper URL
 *
 * Give it a server of its own that commits durably. */
#include "consensus.h"
#include "result.h"
#include "store/zookeeper/codec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION_MS = 120000 }; /* while others are measured, nobody sends pings */

struct raw {
    int fd;
    int32_t xid;
    struct codec_out out;
    struct codec_frames frames;
};

static void flush(struct raw *to) {
    if (to->out.failed ||
        send(to->fd, to->out.bytes, to->out.size, MSG_NOSIGNAL) != (ssize_t)to->out.size)
        result_die("send", strerror(errno));
    to->out.size = 0;
}

static void read_frame(struct raw *to, struct codec_in *ret) {
    char bytes[4096];
    while (codec_frames_next(&to->frames, ret) == 0) {
        ssize_t size = recv(to->fd, bytes, sizeof(bytes), 0);
        if (size <= 0 || !codec_frames_feed(&to->frames, bytes, (size_t)size))
            result_die("recv", size < 0 ? strerror(errno) : "the server hung up");
    }
}

/* The error of the next reply; of a create, `ret_path` is the node's. */
static int32_t read_reply(struct raw *to, char *ret_path, size_t size) {
    struct codec_in in;
    read_frame(to, &in);
    struct codec_header header = codec_header(&in);
    if (ret_path && header.error == ZK_OK) {
        struct codec_text path = codec_text(&in);
        snprintf(ret_path, size, "%.*s", (int)path.size, path.bytes);
    }
    return header.error;
}

static void must(int32_t error) {
    if (error != ZK_OK)
        result_die("a request", codec_error_text(error) ? codec_error_text(error) : "it failed");
}

struct raw *raw_connect(const char *host, uint16_t port) {
    struct raw *to = calloc(1, sizeof(*to));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct codec_in in;
    if (!to || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        result_die(host, "not an address");
    to->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(to->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (to->fd < 0 || connect(to->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        result_die(host, strerror(errno));
    codec_connect(&to->out, &(struct codec_session){.timeout_ms = SESSION_MS});
    flush(to);
    read_frame(to, &in);
    return to;
}

void raw_close(struct raw *to) {
    close(to->fd);
    codec_out_free(&to->out);
    codec_frames_free(&to->frames);
    free(to);
}

/* ---- Requests ---- */

static const char data[] = "{\"host\":\"here\",\"pid\":1,\"command\":\"bench\",\"lease\":30000}";

/* Creates the lock's node, unless it is there. */
static void make_lock(struct raw *to, const char *lock) {
    codec_create_container(&to->out, ++to->xid, lock, ACL_ANYBODY);
    flush(to);
    int32_t error = read_reply(to, NULL, 0);
    if (error != ZK_NODE_EXISTS)
        must(error);
}

/* False: there is no such lock yet. */
static bool is_there(int32_t error) {
    if (error != ZK_NO_NODE)
        must(error);
    return error == ZK_OK;
}

/* As the store does it: with the list and the token base, in one round trip. */
static bool take_together(struct raw *to, const char *lock, const char *claim, char *ret_path,
                          size_t size) {
    codec_create_claim(&to->out, ++to->xid, claim, data, ACL_ANYBODY);
    codec_get_children(&to->out, ++to->xid, lock, false);
    codec_get_data(&to->out, ++to->xid, "/holdfast/token-base", false);
    flush(to);
    int32_t error = read_reply(to, ret_path, size);
    read_reply(to, NULL, 0);
    read_reply(to, NULL, 0);
    return is_there(error);
}

static bool take_step_by_step(struct raw *to, const char *lock, const char *claim, char *ret_path,
                              size_t size) {
    codec_create_claim(&to->out, ++to->xid, claim, data, ACL_ANYBODY);
    flush(to);
    if (!is_there(read_reply(to, ret_path, size)))
        return false;
    codec_get_children(&to->out, ++to->xid, lock, false);
    flush(to);
    must(read_reply(to, NULL, 0));
    return true;
}

typedef bool take(struct raw *to, const char *lock, const char *claim, char *ret_path, size_t size);

static void pair(struct raw *to, const char *name, take *take_it) {
    char lock[80], claim[160], path[240];
    snprintf(lock, sizeof(lock), "/bare-%s", name);
    snprintf(claim, sizeof(claim), "%s/x-00112233445566778899aabbccddeeff-1-", lock);
    while (!take_it(to, lock, claim, path, sizeof(path)))
        make_lock(to, lock);
    codec_delete(&to->out, ++to->xid, path);
    flush(to);
    must(read_reply(to, NULL, 0));
}

static void same_pair(struct raw *to, const char *name) {
    pair(to, name, take_together);
}

static void one_by_one(struct raw *to, const char *name) {
    pair(to, name, take_step_by_step);
}

int main(int argc, char **argv) {
    const char *folder = getenv("BENCH_PEERS");
    char curator[400], kazoo[400];
    snprintf(curator, sizeof(curator), "%s/CuratorLocks.java", folder ? folder : ".");
    snprintf(kazoo, sizeof(kazoo), "%s/kazoo_locks.py", folder ? folder : ".");
    const struct consensus zookeeper = {
        .name = "zookeeper",
        .ways = {{"the same requests bare", same_pair},
                 {"create, list and delete bare, in turn", one_by_one}},
        .peers = {{"Curator",
                   "curator",
                   {"java", "-cp",
                    "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar", curator}},
                  {"kazoo", "kazoo", {"/usr/bin/python3", kazoo}}},
        .peer_count = 2,
    };
    return consensus_main(argc, argv, &zookeeper);
}
