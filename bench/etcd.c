/* The etcd store beside its limits, in one run, each slice between two slices of the limit, medians
 * of rounds. What counts are the ratios.
 *
 * The limit is the store's own requests, sent on bare connections: a transaction and a keep-alive
 * of the lease at the same time, then a delete. Beside that are a key that is created and deleted
 * in transactions, which is no lock yet, and `etcdctl lock`.
 *
 * usage: bench-etcd URL
 *
 * Give it a server of its own that commits durably. */
#include "consensus.h"
#include "result.h"
#include "store/etcd/etcd.pb-c.h"
#include "store/etcd/grpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEASE_S = 60, VALUE_SIZE = 80 };

struct raw {
    int fd;
    struct grpc *grpc;
    int64_t lease;
};

static void start(struct raw *to, struct grpc_call *call, const char *path,
                  const ProtobufCMessage *message) {
    uint8_t bytes[1000];
    struct grpc_request request = {
        .path = path, .message = bytes, .size = protobuf_c_message_pack(message, bytes)};
    *call = (struct grpc_call){0};
    if (!grpc_start(to->grpc, call, &request))
        result_die(path, "it cannot be sent");
}

static void send_all(struct raw *to) {
    const uint8_t *bytes;
    ptrdiff_t size;
    while ((size = grpc_output(to->grpc, &bytes)) > 0) {
        if (send(to->fd, bytes, (size_t)size, MSG_NOSIGNAL) != size)
            result_die("send", strerror(errno));
    }
}

/* Waits until this number of calls are answered; the last of them is left for the caller. */
static struct grpc_call *finish(struct raw *to, int count) {
    struct grpc_call *call = NULL;
    while (count > 0) {
        char bytes[4096];
        send_all(to);
        ssize_t size = recv(to->fd, bytes, sizeof(bytes), 0);
        if (size <= 0 || !grpc_feed(to->grpc, bytes, (size_t)size))
            result_die("recv", size < 0 ? strerror(errno) : "the server hung up");
        for (struct grpc_call *ended; (ended = grpc_take_ended(to->grpc)); count--) {
            if (ended->status != GRPC_OK)
                result_die("a call", ended->why);
            if (call)
                grpc_cancel(call);
            call = ended;
        }
    }
    return call;
}

struct raw *raw_connect(const char *host, uint16_t port) {
    struct raw *to = calloc(1, sizeof(*to));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct grpc_call call;
    if (!to || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        result_die(host, "not an address");
    to->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(to->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (to->fd < 0 || connect(to->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        result_die(host, strerror(errno));
    to->grpc = grpc_new(host);
    if (!to->grpc)
        result_die(host, "no memory");
    request.ttl = LEASE_S;
    start(to, &call, "/etcdserverpb.Lease/LeaseGrant", &request.base);
    finish(to, 1);
    Etcd__LeaseGrantResponse *response =
        etcd__lease_grant_response__unpack(NULL, call.in.size, call.in.bytes);
    to->lease = response ? response->id : 0;
    if (response)
        etcd__lease_grant_response__free_unpacked(response, NULL);
    grpc_cancel(&call);
    return to;
}

void raw_close(struct raw *to) {
    grpc_free(to->grpc);
    close(to->fd);
    free(to);
}

/* ---- Requests ---- */

/* A transaction of up to two conditions that something was never written, and one operation. */
struct raw_txn {
    Etcd__TxnRequest request;
    Etcd__Compare compares[2], *compare_list[2];
    Etcd__RequestOp ops[3], *success, *failure[2];
    Etcd__PutRequest put;
    Etcd__DeleteRangeRequest del;
    Etcd__RangeRequest ranges[2];
    uint8_t value[VALUE_SIZE];
};

static ProtobufCBinaryData text(const char *bytes) {
    return (ProtobufCBinaryData){strlen(bytes), (uint8_t *)bytes};
}

static void txn_begin(struct raw_txn *txn) {
    memset(txn, 0, sizeof(*txn));
    etcd__txn_request__init(&txn->request);
    txn->request.compare = txn->compare_list;
    txn->request.success = &txn->success;
    txn->request.failure = txn->failure;
    txn->request.n_success = 1;
    txn->success = &txn->ops[0];
    etcd__request_op__init(&txn->ops[0]);
}

static void txn_if_none(struct raw_txn *txn, const char *key, const char *end) {
    Etcd__Compare *compare = &txn->compares[txn->request.n_compare];
    txn->compare_list[txn->request.n_compare++] = compare;
    etcd__compare__init(compare);
    compare->target = ETCD__COMPARE__TARGET__MOD;
    compare->target_union_case = ETCD__COMPARE__TARGET_UNION_MOD_REVISION;
    compare->key = text(key);
    compare->range_end = text(end);
}

static void txn_put(struct raw_txn *txn, const char *key, int64_t lease) {
    etcd__put_request__init(&txn->put);
    txn->ops[0].request_case = ETCD__REQUEST_OP__REQUEST_PUT;
    txn->ops[0].put = &txn->put;
    txn->put.key = text(key);
    txn->put.value = (ProtobufCBinaryData){VALUE_SIZE, txn->value};
    txn->put.lease = lease;
}

static void txn_else_get(struct raw_txn *txn, const char *key, const char *end) {
    size_t n = txn->request.n_failure++;
    Etcd__RequestOp *op = txn->failure[n] = &txn->ops[1 + n];
    etcd__request_op__init(op);
    etcd__range_request__init(&txn->ranges[n]);
    op->request_case = ETCD__REQUEST_OP__REQUEST_RANGE;
    op->range = &txn->ranges[n];
    txn->ranges[n].key = text(key);
    txn->ranges[n].range_end = text(end);
}

/* Nearly byte for byte what the store sends. */
static void same_pair(struct raw *to, const char *name) {
    char first[100], last[100], key[160];
    struct raw_txn txn;
    struct grpc_call grant, keep;
    Etcd__LeaseKeepAliveRequest alive = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    Etcd__DeleteRangeRequest del = ETCD__DELETE_RANGE_REQUEST__INIT;
    snprintf(first, sizeof(first), "raw/%s/", name);
    snprintf(last, sizeof(last), "raw/%s0", name);
    snprintf(key, sizeof(key), "%s00112233445566778899aabbccddeeff-1", first);
    txn_begin(&txn);
    txn_if_none(&txn, "raw/base", "");
    txn_if_none(&txn, first, last);
    txn_put(&txn, key, to->lease);
    txn_else_get(&txn, first, last);
    txn_else_get(&txn, "raw/base", "");
    alive.id = to->lease;
    start(to, &keep, "/etcdserverpb.Lease/LeaseKeepAlive", &alive.base);
    start(to, &grant, "/etcdserverpb.KV/Txn", &txn.request.base);
    grpc_cancel(finish(to, 2));
    del.key = text(key);
    start(to, &grant, "/etcdserverpb.KV/DeleteRange", &del.base);
    grpc_cancel(finish(to, 1));
}

static void create_and_delete(struct raw *to, const char *name) {
    char key[100];
    struct raw_txn txn;
    struct grpc_call call;
    snprintf(key, sizeof(key), "raw/%s", name);
    txn_begin(&txn);
    txn_if_none(&txn, key, "");
    txn_put(&txn, key, to->lease);
    start(to, &call, "/etcdserverpb.KV/Txn", &txn.request.base);
    grpc_cancel(finish(to, 1));
    txn_begin(&txn);
    etcd__delete_range_request__init(&txn.del);
    txn.ops[0].request_case = ETCD__REQUEST_OP__REQUEST_DELETE_RANGE;
    txn.ops[0].delete_range = &txn.del;
    txn.del.key = text(key);
    start(to, &call, "/etcdserverpb.KV/Txn", &txn.request.base);
    grpc_cancel(finish(to, 1));
}

int main(int argc, char **argv) {
    static const struct consensus etcd = {
        .name = "etcd",
        .ways = {{"the same requests bare", same_pair},
                 {"create and delete bare, no lock", create_and_delete}},
        .command = {"etcdctl", "lock", "x", "true"},
        .endpoint = "--endpoints",
        .command_name = "etcdctl lock x true",
    };
    setenv("ETCDCTL_API", "3", 1);
    return consensus_main(argc, argv, &etcd);
}
