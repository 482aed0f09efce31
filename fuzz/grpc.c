/* Arbitrary bytes from a server, in any pieces, while calls and a stream wait for answers: each
 * call ends at most once, with a status, and an answer only if the status is OK. */
#include "store/etcd/grpc.h"

#include <assert.h>
#include <string.h>

enum { CALLS = 3 };

static void look_at(struct grpc_call *call, const uint8_t *bytes, size_t size) {
    volatile uint8_t sum = 0;
    (void)call;
    for (size_t i = 0; i < size; i++)
        sum = (uint8_t)(sum + bytes[i]);
}

static void drain(struct grpc *grpc) {
    const uint8_t *bytes;
    while (grpc_output(grpc, &bytes) > 0)
        ;
}

/* The first byte says how the rest is cut: in pieces of that many bytes, or (0) not at all. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct grpc_call calls[CALLS] = {{0}, {0}, {.message = look_at}}, *ended;
    struct grpc_request request = {
        .path = "/etcdserverpb.KV/Txn", .message = (const uint8_t *)"x", .size = 1};
    if (size < 1)
        return 0;
    struct grpc *grpc = grpc_new("etcd:2379");
    assert(grpc);
    for (int i = 0; i < CALLS; i++)
        assert(grpc_start(grpc, &calls[i], &request));
    drain(grpc);
    bool ok = true;
    for (size_t at = 1, piece; ok && at < size; at += piece) {
        piece = data[0] && data[0] < size - at ? data[0] : size - at;
        ok = grpc_feed(grpc, (const char *)data + at, piece);
        while ((ended = grpc_take_ended(grpc))) {
            assert(ended->status >= 0 && !ended->grpc && strlen(ended->why) < GRPC_WHY_SIZE);
            assert(ended->status == GRPC_OK || !ended->message || ended->status <= 999);
            if (ended->status == GRPC_OK)
                look_at(ended, ended->in.bytes, ended->in.size);
            grpc_cancel(ended);
        }
        drain(grpc);
    }
    grpc_free(grpc);
    for (int i = 0; i < CALLS; i++)
        grpc_cancel(&calls[i]);
    return 0;
}
