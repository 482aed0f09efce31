#include "sim/etcd/keys.h"

#include "store/etcd/grpc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory ---- */

enum { ANSWER_SIZE = 1 << 20 };
static _Alignas(16) char answer_memory[ANSWER_SIZE];
static size_t answer_used;

void keys_answer_begin(void) {
    answer_used = 0;
}

void *keys_memory(size_t size) {
    void *memory = answer_memory + answer_used;
    answer_used += (size + 15) / 16 * 16;
    assert(answer_used <= ANSWER_SIZE);
    memset(memory, 0, size);
    return memory;
}

/* Makes room for one more. */
static void *grow(void *list, size_t count, size_t *room, size_t item_size) {
    if (count < *room)
        return list;
    *room = 2 * count + 8;
    list = realloc(list, *room * item_size);
    assert(list);
    return list;
}

static ProtobufCBinaryData copy(const ProtobufCBinaryData *bytes) {
    ProtobufCBinaryData copied = {bytes->len, malloc(bytes->len + 1)};
    assert(copied.data);
    if (bytes->len)
        memcpy(copied.data, bytes->data, bytes->len);
    return copied;
}

void keys_reset(struct keys *keys) {
    for (size_t i = 0; i < keys->count; i++) {
        for (size_t j = 0; j < keys->list[i].count; j++)
            free(keys->list[i].versions[j].value.data);
        free(keys->list[i].versions);
        free(keys->list[i].name.data);
    }
    keys->count = keys->event_count = keys->lease_count = 0;
    keys->revision = 1;
    keys->compacted = 0;
}

/* ---- Keys ---- */

static int compare(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b) {
    size_t both = a->len < b->len ? a->len : b->len;
    int r = both ? memcmp(a->data, b->data, both) : 0;
    return r ? r : (a->len > b->len) - (a->len < b->len);
}

bool keys_is_within(const ProtobufCBinaryData *name, const ProtobufCBinaryData *first,
                    const ProtobufCBinaryData *end) {
    if (!end->len)
        return compare(name, first) == 0;
    bool has_no_end = end->len == 1 && !end->data[0];
    return compare(name, first) >= 0 && (has_no_end || compare(name, end) < 0);
}

const struct keys_version *keys_version_at(const struct keys_key *key, int64_t revision) {
    for (size_t i = key->count; i > 0; i--) {
        const struct keys_version *version = &key->versions[i - 1];
        if (version->mod <= revision)
            return version->deleted ? NULL : version;
    }
    return NULL;
}

static struct keys_key *find_or_add(struct keys *keys, const ProtobufCBinaryData *name) {
    size_t at = 0;
    while (at < keys->count && compare(&keys->list[at].name, name) < 0)
        at++;
    if (at < keys->count && compare(&keys->list[at].name, name) == 0)
        return &keys->list[at];
    keys->list = grow(keys->list, keys->count, &keys->room, sizeof(*keys->list));
    memmove(keys->list + at + 1, keys->list + at, (keys->count - at) * sizeof(*keys->list));
    keys->count++;
    keys->list[at] = (struct keys_key){.name = copy(name)};
    return &keys->list[at];
}

static void add_version(struct keys *keys, struct keys_key *key,
                        const struct keys_version *version) {
    size_t room = key->count; /* keys have few versions */
    key->versions = grow(key->versions, key->count, &room, sizeof(*key->versions));
    key->versions[key->count++] = *version;
    keys->events = grow(keys->events, keys->event_count, &keys->event_room, sizeof(*keys->events));
    keys->events[keys->event_count++] = (struct keys_event){.revision = version->mod,
                                                            .deleted = version->deleted,
                                                            .name = key->name,
                                                            .value = version->value,
                                                            .create = version->create,
                                                            .lease = version->lease};
}

static void tell(struct keys *keys, const struct keys_change *change) {
    if (keys->changed)
        keys->changed(keys->context, change);
}

static void put(struct keys *keys, const Etcd__PutRequest *request, int64_t revision, bool in_txn) {
    struct keys_key *key = find_or_add(keys, &request->key);
    const struct keys_version *old = keys_version_at(key, INT64_MAX);
    struct keys_version version = {.mod = revision,
                                   .create = old ? old->create : revision,
                                   .lease = request->lease,
                                   .value = copy(&request->value)};
    add_version(keys, key, &version);
    keys->revision = revision;
    tell(keys, &(struct keys_change){.what = KEYS_PUT,
                                     .in_txn = in_txn,
                                     .name = key->name,
                                     .value = version.value,
                                     .revision = revision});
}

static int64_t delete_range(struct keys *keys, const ProtobufCBinaryData *first,
                            const ProtobufCBinaryData *end, int64_t revision, enum keys_why why,
                            bool in_txn) {
    int64_t deleted = 0;
    for (size_t i = 0; i < keys->count; i++) {
        struct keys_key *key = &keys->list[i];
        const struct keys_version *old = keys_version_at(key, INT64_MAX);
        if (!old || !keys_is_within(&key->name, first, end))
            continue;
        struct keys_change change = {KEYS_DELETED, why, in_txn, key->name, old->value, old->mod};
        add_version(keys, key, &(struct keys_version){.mod = revision, .deleted = true});
        keys->revision = revision;
        deleted++;
        tell(keys, &change);
    }
    if (!deleted)
        tell(keys, &(struct keys_change){
                       .what = KEYS_NOT_DELETED, .why = why, .in_txn = in_txn, .name = *first});
    return deleted;
}

/* ---- Answers ---- */

static Etcd__Header *new_header(int64_t revision) {
    Etcd__Header *header = keys_memory(sizeof(*header));
    etcd__header__init(header);
    header->revision = revision;
    return header;
}

Etcd__KeyValue *keys_kv(const ProtobufCBinaryData *name, const struct keys_version *version) {
    Etcd__KeyValue *kv = keys_memory(sizeof(*kv));
    etcd__key_value__init(kv);
    kv->key = *name;
    kv->create_revision = version->create;
    kv->mod_revision = version->mod;
    kv->value = version->value;
    kv->lease = version->lease;
    return kv;
}

static Etcd__RangeResponse *range(struct keys *keys, const Etcd__RangeRequest *request,
                                  int64_t revision) {
    Etcd__RangeResponse *response = keys_memory(sizeof(*response));
    etcd__range_response__init(response);
    response->kvs = keys_memory((keys->count + 1) * sizeof(Etcd__KeyValue *));
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_key *key = &keys->list[i];
        const struct keys_version *version = keys_version_at(key, revision);
        if (version && keys_is_within(&key->name, &request->key, &request->range_end))
            response->kvs[response->n_kvs++] = keys_kv(&key->name, version);
    }
    return response;
}

/* ---- Transactions ---- */

static bool is_true_of(const Etcd__Compare *compare, const struct keys_version *version) {
    bool of_create = compare->target == ETCD__COMPARE__TARGET__CREATE;
    int64_t is = !version ? 0 : of_create ? version->create : version->mod;
    int64_t wanted = of_create ? compare->create_revision : compare->mod_revision;
    switch (compare->result) {
    case ETCD__COMPARE__RESULT__GREATER:
        return is > wanted;
    case ETCD__COMPARE__RESULT__LESS:
        return is < wanted;
    default:
        return is == wanted;
    }
}

/* True of all keys of the range or, if it has none, of a key that does not exist. */
static bool is_true(struct keys *keys, const Etcd__Compare *compare, int64_t revision) {
    bool any = false;
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_version *version = keys_version_at(&keys->list[i], revision);
        if (!version || !keys_is_within(&keys->list[i].name, &compare->key, &compare->range_end))
            continue;
        any = true;
        if (!is_true_of(compare, version))
            return false;
    }
    return any || is_true_of(compare, NULL);
}

static bool all_read(Etcd__RequestOp *const *ops, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->request_case != ETCD__REQUEST_OP__REQUEST_RANGE)
            return false;
    }
    return true;
}

bool keys_is_read(const Etcd__TxnRequest *request) {
    return all_read(request->success, request->n_success) &&
           all_read(request->failure, request->n_failure);
}

bool keys_puts(const Etcd__TxnRequest *request) {
    for (size_t i = 0; i < request->n_success; i++) {
        if (request->success[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT)
            return true;
    }
    return false;
}

static bool has_its_leases(struct keys *keys, Etcd__RequestOp *const *ops, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool puts = ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT;
        int64_t id = puts ? ops[i]->put->lease : 0;
        const struct keys_lease *lease = id ? keys_find_lease(keys, id) : NULL;
        if (id && (!lease || lease->revoked))
            return false;
    }
    return true;
}

static Etcd__ResponseOp *carry_out(struct keys *keys, const Etcd__RequestOp *op, int64_t read_at,
                                   int64_t write_at) {
    Etcd__ResponseOp *response = keys_memory(sizeof(*response));
    etcd__response_op__init(response);
    switch (op->request_case) {
    case ETCD__REQUEST_OP__REQUEST_PUT:
        put(keys, op->put, write_at, true);
        response->response_case = ETCD__RESPONSE_OP__RESPONSE_PUT;
        response->put = keys_memory(sizeof(*response->put));
        etcd__put_response__init(response->put);
        break;
    case ETCD__REQUEST_OP__REQUEST_DELETE_RANGE:
        response->response_case = ETCD__RESPONSE_OP__RESPONSE_DELETE_RANGE;
        response->delete_range = keys_memory(sizeof(*response->delete_range));
        etcd__delete_range_response__init(response->delete_range);
        response->delete_range->deleted =
            delete_range(keys, &op->delete_range->key, &(ProtobufCBinaryData){0, NULL}, write_at,
                         KEYS_ASKED, true);
        break;
    default:
        response->response_case = ETCD__RESPONSE_OP__RESPONSE_RANGE;
        response->range = range(keys, op->range, keys->revision < write_at ? read_at : write_at);
    }
    return response;
}

/* Reports what it would have put if its conditions had been true. */
static void tell_not_put(struct keys *keys, const Etcd__TxnRequest *request) {
    for (size_t i = 0; i < request->n_success; i++) {
        const Etcd__RequestOp *op = request->success[i];
        if (op->request_case == ETCD__REQUEST_OP__REQUEST_PUT)
            tell(keys, &(struct keys_change){.what = KEYS_NOT_PUT,
                                             .name = op->put->key,
                                             .value = op->put->value,
                                             .revision = keys->revision});
    }
}

void keys_txn(struct keys *keys, const Etcd__TxnRequest *request, int64_t revision,
              struct keys_answer *ret) {
    bool succeeds = true;
    for (size_t i = 0; i < request->n_compare && succeeds; i++)
        succeeds = is_true(keys, request->compare[i], revision);
    Etcd__RequestOp **ops = succeeds ? request->success : request->failure;
    size_t count = succeeds ? request->n_success : request->n_failure;
    if (!has_its_leases(keys, ops, count)) {
        *ret = (struct keys_answer){GRPC_NOT_FOUND, "etcdserver: requested lease not found", NULL,
                                    NULL};
        return;
    }
    Etcd__TxnResponse *response = keys_memory(sizeof(*response));
    etcd__txn_response__init(response);
    response->succeeded = succeeds;
    response->responses = keys_memory((count + 1) * sizeof(Etcd__ResponseOp *));
    int64_t write_at = keys->revision + 1;
    for (size_t i = 0; i < count; i++)
        response->responses[response->n_responses++] = carry_out(keys, ops[i], revision, write_at);
    response->header = new_header(keys->revision == write_at ? write_at : revision);
    if (!succeeds)
        tell_not_put(keys, request);
    *ret = (struct keys_answer){.message = &response->base, .header = response->header, .why = ""};
}

void keys_delete(struct keys *keys, const Etcd__DeleteRangeRequest *request,
                 struct keys_answer *ret) {
    Etcd__DeleteRangeResponse *response = keys_memory(sizeof(*response));
    etcd__delete_range_response__init(response);
    response->deleted = delete_range(keys, &request->key, &(ProtobufCBinaryData){0, NULL},
                                     keys->revision + 1, KEYS_ASKED, false);
    response->header = new_header(keys->revision);
    *ret = (struct keys_answer){.message = &response->base, .header = response->header, .why = ""};
}

void keys_put(struct keys *keys, const char *name, const char *value, int64_t lease) {
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    request.key = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
    request.value = (ProtobufCBinaryData){strlen(value), (uint8_t *)value};
    request.lease = lease;
    put(keys, &request, keys->revision + 1, false);
}

void keys_delete_one(struct keys *keys, const ProtobufCBinaryData *name) {
    delete_range(keys, name, &(ProtobufCBinaryData){0, NULL}, keys->revision + 1, KEYS_REVOKED,
                 false);
}

/* ---- Leases ---- */

struct keys_lease *keys_find_lease(struct keys *keys, int64_t id) {
    for (size_t i = 0; i < keys->lease_count; i++) {
        if (keys->leases[i].id == id)
            return &keys->leases[i];
    }
    return NULL;
}

struct keys_lease *keys_grant(struct keys *keys, int64_t id, int64_t ttl_s, size_t index) {
    keys->leases = grow(keys->leases, keys->lease_count, &keys->lease_room, sizeof(*keys->leases));
    struct keys_lease *lease = &keys->leases[keys->lease_count++];
    *lease = (struct keys_lease){.id = id, .ttl_us = ttl_s * 1000000, .granted = index};
    for (int i = 0; i < KEYS_MEMBERS_MAX; i++)
        lease->ends_us[i] = INT64_MAX;
    return lease;
}

void keys_revoke(struct keys *keys, struct keys_lease *lease, size_t index, enum keys_why why) {
    int64_t revision = keys->revision + 1;
    lease->revoked = index;
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_version *version = keys_version_at(&keys->list[i], INT64_MAX);
        if (version && version->lease == lease->id)
            delete_range(keys, &keys->list[i].name, &(ProtobufCBinaryData){0, NULL}, revision, why,
                         false);
    }
}
