/* Transactions as messages: conditions, what to do if they are true, and what if not. */
#include "store/etcd/etcd.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct txn *txn_new(size_t room) {
    struct txn *txn = calloc(1, sizeof(*txn) + 2 * room * sizeof(Etcd__RequestOp *) +
                                    room * sizeof(struct txn_op));
    if (!txn)
        return NULL;
    etcd__txn_request__init(&txn->request);
    txn->room = room;
    txn->ops = (struct txn_op *)(txn + 1);
    txn->success = (Etcd__RequestOp **)(txn->ops + room);
    txn->failure = txn->success + room;
    txn->request.compare = txn->compare_list;
    txn->request.success = txn->success;
    txn->request.failure = txn->failure;
    return txn;
}

void txn_free(struct txn *txn) {
    free(txn);
}

ProtobufCBinaryData etcd_bytes(const struct etcd_key *key) {
    return (ProtobufCBinaryData){key->size, (uint8_t *)key->bytes};
}

void etcd_end_of(const struct etcd_key *key, struct etcd_key *ret_end) {
    *ret_end = *key;
    while (ret_end->size && ret_end->bytes[ret_end->size - 1] == 0xff)
        ret_end->size--;
    if (ret_end->size)
        ret_end->bytes[ret_end->size - 1]++;
    else
        *ret_end = (struct etcd_key){.size = 1}; /* etcd's sign for "to the last key" */
}

void etcd_range_of(struct etcd_key *key, struct etcd_key *ret_end) {
    etcd_end_of(key, ret_end);
    if (!key->size)
        *key = (struct etcd_key){.size = 1};
}

static Etcd__Compare *add_compare(struct txn *txn, const struct etcd_key *key,
                                  const struct etcd_key *end, Etcd__Compare__Result result) {
    size_t n = txn->request.n_compare++;
    assert(n < TXN_COMPARES);
    Etcd__Compare *compare = txn->compare_list[n] = &txn->compares[n];
    etcd__compare__init(compare);
    compare->key = etcd_bytes(key);
    compare->result = result;
    if (end)
        compare->range_end = etcd_bytes(end);
    return compare;
}

void txn_if_create(struct txn *txn, const struct etcd_key *key, const struct etcd_key *end,
                   Etcd__Compare__Result result, int64_t revision) {
    Etcd__Compare *compare = add_compare(txn, key, end, result);
    compare->target = ETCD__COMPARE__TARGET__CREATE;
    compare->target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
    compare->create_revision = revision;
}

void txn_if_mod(struct txn *txn, const struct etcd_key *key, const struct etcd_key *end,
                Etcd__Compare__Result result, int64_t revision) {
    Etcd__Compare *compare = add_compare(txn, key, end, result);
    compare->target = ETCD__COMPARE__TARGET__MOD;
    compare->target_union_case = ETCD__COMPARE__TARGET_UNION_MOD_REVISION;
    compare->mod_revision = revision;
}

static struct txn_op *add_op(struct txn *txn, bool then) {
    assert(txn->used < txn->room);
    struct txn_op *op = &txn->ops[txn->used++];
    etcd__request_op__init(&op->op);
    if (then)
        txn->success[txn->request.n_success++] = &op->op;
    else
        txn->failure[txn->request.n_failure++] = &op->op;
    return op;
}

void txn_get(struct txn *txn, bool then, const struct etcd_key *key, const struct etcd_key *end) {
    struct txn_op *op = add_op(txn, then);
    etcd__range_request__init(&op->range);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_RANGE;
    op->op.range = &op->range;
    op->range.key = etcd_bytes(key);
    if (end)
        op->range.range_end = etcd_bytes(end);
}

void txn_put(struct txn *txn, const struct etcd_key *key, const void *value, size_t size,
             int64_t lease) {
    struct txn_op *op = add_op(txn, true);
    etcd__put_request__init(&op->put);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_PUT;
    op->op.put = &op->put;
    op->put.key = etcd_bytes(key);
    op->put.value = (ProtobufCBinaryData){size, (uint8_t *)value};
    op->put.lease = lease;
}

void txn_delete(struct txn *txn, const struct etcd_key *key) {
    struct txn_op *op = add_op(txn, true);
    etcd__delete_range_request__init(&op->del);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_DELETE_RANGE;
    op->op.delete_range = &op->del;
    op->del.key = etcd_bytes(key);
}

struct etcd_call *txn_call(struct txn *txn, etcd_answered *answered, void *context) {
    struct etcd_call *call =
        txn ? etcd_call_new("/etcdserverpb.KV/Txn", &txn->request.base, answered, context) : NULL;
    txn_free(txn);
    return call;
}
