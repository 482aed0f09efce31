/* An etcd over streams that lead to the test (support/rig.h): keys with revisions, leases that
 * never end, transactions and watches, as far as the store uses them. It accepts every login. The
 * test can make it silent or full, or make it refuse a kind of request. */
#ifndef ETCD_ETCD_TEST_H
#define ETCD_ETCD_TEST_H

#include "check.h"
#include "store/etcd/etcd.h"
#include "support/failing.h"
#include "support/rig.h"

#include <nghttp2/nghttp2.h>

/* Not every test uses every function. */
#pragma GCC diagnostic ignored "-Wunused-function"

enum { S = 1000000, EVENTS_MAX = 4000, CONNECTIONS_MAX = 4000, TERM = 3 };

/* Everything that was written, in order: the newest entry of a key is its present state. */
struct written {
    bool is_deleted;
    struct etcd_key key;
    uint8_t value[500];
    size_t size;
    int64_t create, mod, lease, before; /* the index of what it replaced; below 0: nothing */
};

struct connection;

struct request {
    struct request *next;
    struct connection *connection;
    int32_t stream;
    char path[64];
    uint8_t in[4000];
    size_t in_size;
    uint8_t *out; /* what is to be sent */
    size_t out_size;
    bool is_deferred, has_answer, is_stream;
    const char *status, *why; /* of the end; NULL: it has not ended */
    int64_t watches[16];      /* ids; 0: a free place */
    struct etcd_key from[16], to[16];
};

struct connection {
    struct fake_stream *stream;
    nghttp2_session *session;
    struct request *requests;
};

static struct server {
    struct written events[EVENTS_MAX];
    size_t count;
    int64_t revision, last_lease;
    struct connection connections[CONNECTIONS_MAX];
    size_t connection_count;
    bool is_silent;      /* it reads, and answers nothing */
    bool is_full;        /* it grants no lease, and executes no transaction that puts a key */
    const char *refused; /* requests whose path has this fail with this status and these words */
    const char *status, *why;
    bool refuses_once;
    size_t logins, txns, revoked;
    /* Its status. */
    const char *version; /* NULL: 3.4.23 */
    const char *alarm;   /* NULL: none */
    bool has_no_leader, is_learner;
    int64_t db_size, db_size_in_use, elections; /* elections: how many before each answer */
    int64_t compacted;          /* what was deleted at this revision is also forgotten */
    void (*before_watch)(void); /* is called before the next watcher is created; NULL: nothing */
    void (*on_grant)(void);
    bool loses_puts;    /* what puts a key is done, and not answered */
    unsigned overtakes; /* before this many transactions, another client adds 10 */
    bool delays_a_put;  /* the next transaction that puts a key is `late`, and not yet done */
    Etcd__TxnRequest *late;
} server;

/* ---- Keys ---- */

static int compare_keys(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size) {
    int r = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return r ? r : (a_size > b_size) - (a_size < b_size);
}

/* From `key` to `end`, or only `key`. */
static bool is_in(const struct etcd_key *at, ProtobufCBinaryData key, ProtobufCBinaryData end) {
    int r = compare_keys(at->bytes, at->size, key.data, key.len);
    if (!end.len)
        return r == 0;
    bool to_the_last = end.len == 1 && end.data[0] == 0;
    return r >= 0 && (to_the_last || compare_keys(at->bytes, at->size, end.data, end.len) < 0);
}

static bool is_newest(size_t index) {
    const struct etcd_key *key = &server.events[index].key;
    for (size_t i = index + 1; i < server.count; i++) {
        const struct etcd_key *other = &server.events[i].key;
        if (compare_keys(key->bytes, key->size, other->bytes, other->size) == 0)
            return false;
    }
    return true;
}

/* The next key of a range, from `index` on; server.count: none. */
static size_t next_in(size_t index, ProtobufCBinaryData key, ProtobufCBinaryData end) {
    while (index < server.count && (server.events[index].is_deleted || !is_newest(index) ||
                                    !is_in(&server.events[index].key, key, end)))
        index++;
    return index;
}

static struct written *write_event(ProtobufCBinaryData key, int64_t before) {
    CHECK(server.count < EVENTS_MAX && key.len <= ETCD_KEY_MAX);
    struct written *event = &server.events[server.count++];
    *event = (struct written){.key.size = key.len, .mod = server.revision, .before = before};
    memcpy(event->key.bytes, key.data, key.len);
    return event;
}

static void put(const Etcd__PutRequest *request) {
    size_t old = next_in(0, request->key, (ProtobufCBinaryData){0});
    bool is_new = old == server.count;
    struct written *event = write_event(request->key, is_new ? -1 : (int64_t)old);
    CHECK(request->value.len <= sizeof event->value);
    event->create = is_new ? server.revision : server.events[old].create;
    event->lease = request->lease;
    event->size = request->value.len;
    memcpy(event->value, request->value.data, event->size);
}

static bool delete_key(ProtobufCBinaryData key) {
    size_t old = next_in(0, key, (ProtobufCBinaryData){0});
    if (old == server.count)
        return false;
    write_event(key, (int64_t)old)->is_deleted = true;
    return true;
}

/* ---- Messages ---- */

static void answer(struct request *request, const void *message);
static void refuse(struct request *request, const char *status, const char *why);

static void refuse_as_full(struct request *request) {
    refuse(request, "8", "etcdserver: mvcc: database space exceeded");
}

static void kv_of(const struct written *event, Etcd__KeyValue *ret) {
    etcd__key_value__init(ret);
    ret->key = etcd_bytes(&event->key);
    ret->value = (ProtobufCBinaryData){event->size, (uint8_t *)event->value};
    ret->create_revision = event->create;
    ret->mod_revision = event->mod;
    ret->lease = event->lease;
}

static Etcd__Header *header_now(void) {
    static Etcd__Header header;
    etcd__header__init(&header);
    header.revision = server.revision;
    header.raft_term = TERM;
    return &header;
}

/* To be freed with free_range. */
static void read_range(const Etcd__RangeRequest *request, Etcd__RangeResponse *ret) {
    etcd__range_response__init(ret);
    ret->header = header_now();
    ret->kvs = calloc(server.count + 1, sizeof(*ret->kvs));
    for (size_t i = next_in(0, request->key, request->range_end); i < server.count;
         i = next_in(i + 1, request->key, request->range_end)) {
        ret->kvs[ret->n_kvs] = calloc(1, sizeof(Etcd__KeyValue));
        kv_of(&server.events[i], ret->kvs[ret->n_kvs++]);
    }
}

static void free_range(Etcd__RangeResponse *range) {
    for (size_t i = 0; i < range->n_kvs; i++)
        free(range->kvs[i]);
    free(range->kvs);
}

static bool compare(const Etcd__Compare *c, const struct written *event) {
    bool by_create = c->target == ETCD__COMPARE__TARGET__CREATE;
    int64_t is = !event ? 0 : by_create ? event->create : event->mod;
    int64_t than = by_create ? c->create_revision : c->mod_revision;
    return c->result == ETCD__COMPARE__RESULT__EQUAL     ? is == than
           : c->result == ETCD__COMPARE__RESULT__GREATER ? is > than
                                                         : is < than;
}

static bool is_true(const Etcd__Compare *c) {
    size_t i = next_in(0, c->key, c->range_end);
    if (i == server.count)
        return compare(c, NULL);
    for (; i < server.count; i = next_in(i + 1, c->key, c->range_end)) {
        if (!compare(c, &server.events[i]))
            return false;
    }
    return true;
}

static bool puts_a_key(const Etcd__TxnRequest *asked) {
    for (size_t i = 0; i < asked->n_success; i++) {
        if (asked->success[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT)
            return true;
    }
    return false;
}

/* Changes the number that the transaction is about to replace. */
static void overtake(const Etcd__TxnRequest *asked) {
    const Etcd__PutRequest *wanted = asked->success[0]->put;
    size_t old = next_in(0, wanted->key, (ProtobufCBinaryData){0});
    char number[24] = "";
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    memcpy(number, server.events[old].value, server.events[old].size);
    snprintf(number, sizeof(number), "%lld", strtoll(number, NULL, 10) + 10);
    request.key = wanted->key;
    request.value = (ProtobufCBinaryData){strlen(number), (uint8_t *)number};
    server.revision++;
    put(&request);
}

static void txn(struct request *request) {
    enum { OPS = 70 };
    static Etcd__ResponseOp ops[OPS], *list[OPS];
    static Etcd__RangeResponse ranges[OPS];
    static Etcd__PutResponse done = ETCD__PUT_RESPONSE__INIT;
    Etcd__TxnRequest *asked =
        etcd__txn_request__unpack(NULL, request->in_size - 5, request->in + 5);
    Etcd__TxnResponse response = ETCD__TXN_RESPONSE__INIT;
    CHECK(asked);
    if (server.is_full && puts_a_key(asked)) {
        refuse_as_full(request);
        etcd__txn_request__free_unpacked(asked, NULL);
        return;
    }
    if (server.delays_a_put && puts_a_key(asked)) {
        server.delays_a_put = false;
        server.late = asked;
        return;
    }
    server.txns++;
    if (server.overtakes && puts_a_key(asked)) {
        server.overtakes--;
        overtake(asked);
    }
    response.succeeded = true;
    for (size_t i = 0; i < asked->n_compare; i++)
        response.succeeded = response.succeeded && is_true(asked->compare[i]);
    size_t count = response.succeeded ? asked->n_success : asked->n_failure;
    Etcd__RequestOp **todo = response.succeeded ? asked->success : asked->failure;
    CHECK(count <= OPS);
    bool writes = false;
    for (size_t i = 0; i < count; i++)
        writes |= todo[i]->request_case != ETCD__REQUEST_OP__REQUEST_RANGE;
    server.revision += writes;
    for (size_t i = 0; i < count; i++) {
        etcd__response_op__init(&ops[i]);
        list[i] = &ops[i];
        if (todo[i]->request_case == ETCD__REQUEST_OP__REQUEST_RANGE) {
            read_range(todo[i]->range, &ranges[i]);
            ops[i].response_case = ETCD__RESPONSE_OP__RESPONSE_RANGE;
            ops[i].range = &ranges[i];
            continue;
        }
        if (todo[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT)
            put(todo[i]->put);
        else
            delete_key(todo[i]->delete_range->key);
        ops[i].response_case = ETCD__RESPONSE_OP__RESPONSE_PUT;
        ops[i].put = &done;
    }
    response.header = header_now();
    response.responses = list;
    response.n_responses = count;
    if (!server.loses_puts || !puts_a_key(asked))
        answer(request, &response);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE)
            free_range(&ranges[i]);
    }
    etcd__txn_request__free_unpacked(asked, NULL);
}

static void range(struct request *request) {
    Etcd__RangeRequest *asked =
        etcd__range_request__unpack(NULL, request->in_size - 5, request->in + 5);
    Etcd__RangeResponse response;
    CHECK(asked);
    read_range(asked, &response);
    answer(request, &response);
    free_range(&response);
    etcd__range_request__free_unpacked(asked, NULL);
}

static void delete_range(struct request *request) {
    Etcd__DeleteRangeRequest *asked =
        etcd__delete_range_request__unpack(NULL, request->in_size - 5, request->in + 5);
    Etcd__DeleteRangeResponse response = ETCD__DELETE_RANGE_RESPONSE__INIT;
    CHECK(asked);
    server.revision++;
    response.deleted = delete_key(asked->key);
    server.revision -= !response.deleted;
    response.header = header_now();
    answer(request, &response);
    etcd__delete_range_request__free_unpacked(asked, NULL);
}

static void grant_lease(struct request *request) {
    Etcd__LeaseGrantResponse response = ETCD__LEASE_GRANT_RESPONSE__INIT;
    if (server.is_full) {
        refuse_as_full(request);
        return;
    }
    Etcd__LeaseGrantRequest *asked =
        etcd__lease_grant_request__unpack(NULL, request->in_size - 5, request->in + 5);
    CHECK(asked);
    if (server.on_grant)
        server.on_grant();
    response.header = header_now();
    response.id = ++server.last_lease;
    response.ttl = asked->ttl > 60 ? asked->ttl : 60;
    answer(request, &response);
    etcd__lease_grant_request__free_unpacked(asked, NULL);
}

static void revoke_lease(struct request *request) {
    Etcd__LeaseRevokeResponse response = ETCD__LEASE_REVOKE_RESPONSE__INIT;
    server.revoked++;
    response.header = header_now();
    answer(request, &response);
}

/* A keep-alive and the question for the time have the same fields. */
static void keep_lease(struct request *request) {
    Etcd__LeaseKeepAliveRequest *asked =
        etcd__lease_keep_alive_request__unpack(NULL, request->in_size - 5, request->in + 5);
    Etcd__LeaseKeepAliveResponse response = ETCD__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    CHECK(asked);
    response.header = header_now();
    response.id = asked->id;
    response.ttl = 60;
    answer(request, &response);
    etcd__lease_keep_alive_request__free_unpacked(asked, NULL);
}

static void log_in(struct request *request) {
    Etcd__AuthenticateResponse response = ETCD__AUTHENTICATE_RESPONSE__INIT;
    response.token = (char *)"token";
    server.logins++;
    answer(request, &response);
}

static void tell_status(struct request *request) {
    static int64_t term = TERM;
    Etcd__StatusResponse response = ETCD__STATUS_RESPONSE__INIT;
    char *alarm = (char *)server.alarm;
    response.header = header_now();
    response.version = (char *)(server.version ? server.version : "3.4.23");
    response.leader = !server.has_no_leader;
    response.is_learner = server.is_learner;
    response.db_size = server.db_size;
    response.db_size_in_use = server.db_size_in_use;
    response.raft_term = (uint64_t)(term += server.elections);
    response.errors = &alarm;
    response.n_errors = server.alarm != NULL;
    answer(request, &response);
}

static void tell_nothing(struct request *request) {
    Etcd__MemberListResponse response = ETCD__MEMBER_LIST_RESPONSE__INIT;
    answer(request, &response);
}

/* ---- Watches ---- */

static void send_event(struct request *request, int64_t watch, const struct written *written) {
    Etcd__WatchResponse response = ETCD__WATCH_RESPONSE__INIT;
    Etcd__Event event = ETCD__EVENT__INIT, *events = &event;
    Etcd__KeyValue kv, before;
    kv_of(written, &kv);
    event.type = written->is_deleted ? ETCD__EVENT__TYPE__DELETE : ETCD__EVENT__TYPE__PUT;
    event.kv = &kv;
    if (written->before >= 0) {
        kv_of(&server.events[written->before], &before);
        event.prev_kv = &before;
    }
    response.header = header_now();
    response.watch_id = watch;
    response.events = &events;
    response.n_events = 1;
    answer(request, &response);
}

static void send_events(struct request *request, size_t from) {
    for (size_t i = from; i < server.count; i++) {
        for (size_t j = 0; j < 16; j++) {
            if (request->watches[j] && is_in(&server.events[i].key, etcd_bytes(&request->from[j]),
                                             etcd_bytes(&request->to[j])))
                send_event(request, request->watches[j], &server.events[i]);
        }
    }
}

static void watch(struct request *request, const Etcd__WatchRequest *asked) {
    Etcd__WatchResponse response = ETCD__WATCH_RESPONSE__INIT;
    bool creates = asked->request_case == ETCD__WATCH_REQUEST__REQUEST_CREATE;
    int64_t id = creates ? asked->create->watch_id : asked->cancel->watch_id;
    size_t place = 0;
    while (place < 16 && request->watches[place] != (creates ? 0 : id))
        place++;
    CHECK(place < 16);
    if (creates && server.before_watch) {
        void (*happens)(void) = server.before_watch;
        server.before_watch = NULL;
        happens();
    }
    response.header = header_now();
    response.watch_id = id;
    response.created = creates;
    response.canceled = !creates;
    answer(request, &response);
    request->watches[place] = 0;
    int64_t from = creates ? asked->create->start_revision : 0;
    if (creates && !from)
        from = server.revision + 1;
    if (creates && from < server.compacted) {
        response.created = false;
        response.canceled = true;
        response.compact_revision = server.compacted;
        answer(request, &response);
        return;
    }
    if (!creates)
        return;
    request->watches[place] = id;
    request->from[place].size = asked->create->key.len;
    request->to[place].size = asked->create->range_end.len;
    memcpy(request->from[place].bytes, asked->create->key.data, asked->create->key.len);
    if (asked->create->range_end.len)
        memcpy(request->to[place].bytes, asked->create->range_end.data, request->to[place].size);
    for (size_t i = 0; i < server.count; i++) {
        bool is_forgotten = server.events[i].is_deleted && server.events[i].mod == server.compacted;
        if (server.events[i].mod >= from && !is_forgotten &&
            is_in(&server.events[i].key, asked->create->key, asked->create->range_end))
            send_event(request, id, &server.events[i]);
    }
}

/* Reads the messages that have arrived completely. */
static void read_watch_requests(struct request *request) {
    while (request->in_size >= 5) {
        size_t size = (size_t)request->in[3] << 8 | request->in[4];
        if (request->in_size < size + 5)
            return;
        Etcd__WatchRequest *asked = etcd__watch_request__unpack(NULL, size, request->in + 5);
        CHECK(asked);
        watch(request, asked);
        etcd__watch_request__free_unpacked(asked, NULL);
        request->in_size -= size + 5;
        memmove(request->in, request->in + size + 5, request->in_size);
    }
}

static void tell_watchers(size_t from) {
    for (size_t i = 0; i < server.connection_count; i++) {
        if (!server.connections[i].stream->owner)
            continue;
        for (struct request *r = server.connections[i].requests; r; r = r->next) {
            if (r->is_stream)
                send_events(r, from);
        }
    }
}

/* ---- Requests ---- */

static nghttp2_nv nv(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)value,
                        .valuelen = strlen(value)};
}

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *room, size_t size,
                        uint32_t *flags, nghttp2_data_source *source, void *context) {
    struct request *request = source->ptr;
    (void)context;
    size_t given = request->out_size < size ? request->out_size : size;
    if (!given && !request->status) {
        request->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    request->out_size -= given;
    if (given) {
        memcpy(room, request->out, given);
        memmove(request->out, request->out + given, request->out_size);
    }
    if (!request->out_size && request->status) {
        nghttp2_nv trailers[] = {nv("grpc-status", request->status),
                                 nv("grpc-message", request->why)};
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, stream, trailers, 2);
    }
    return (ssize_t)given;
}

static void send_out(struct request *request) {
    nghttp2_session *session = request->connection->session;
    nghttp2_nv headers[] = {nv(":status", "200"), nv("content-type", "application/grpc")};
    nghttp2_data_provider source = {.source.ptr = request, .read_callback = read_out};
    if (!request->has_answer)
        nghttp2_submit_response(session, request->stream, headers, 2, &source);
    else if (request->is_deferred)
        nghttp2_session_resume_data(session, request->stream);
    request->has_answer = true;
    request->is_deferred = false;
}

static void answer(struct request *request, const void *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    request->out = realloc(request->out, request->out_size + size + 5);
    uint8_t *at = request->out + request->out_size;
    at[0] = 0;
    for (int i = 0; i < 4; i++)
        at[1 + i] = (uint8_t)(size >> (24 - 8 * i));
    protobuf_c_message_pack(message, at + 5);
    request->out_size += size + 5;
    if (!request->is_stream) {
        request->status = "0";
        request->why = "";
    }
    send_out(request);
}

static void refuse(struct request *request, const char *status, const char *why) {
    request->status = status;
    request->why = why;
    send_out(request);
}

static void serve_request(struct request *request) {
    static const struct {
        const char *path;
        void (*serve)(struct request *request);
    } methods[] = {
        {"KV/Txn", txn},
        {"KV/Range", range},
        {"KV/DeleteRange", delete_range},
        {"Lease/LeaseGrant", grant_lease},
        {"Lease/LeaseRevoke", revoke_lease},
        {"Lease/LeaseKeepAlive", keep_lease},
        {"Lease/LeaseTimeToLive", keep_lease},
        {"Auth/Authenticate", log_in},
        {"Maintenance/Status", tell_status},
        {"Cluster/MemberList", tell_nothing},
    };
    if (server.is_silent)
        return;
    if (server.refused && strstr(request->path, server.refused)) {
        server.refused = server.refuses_once ? NULL : server.refused;
        refuse(request, server.status, server.why);
        return;
    }
    size_t before = server.count, method = 0;
    while (!strstr(request->path, methods[method].path))
        CHECK(++method < sizeof(methods) / sizeof(methods[0]));
    methods[method].serve(request);
    tell_watchers(before);
}

static struct request *request_of(struct connection *connection, int32_t stream) {
    struct request *request = connection->requests;
    while (request && request->stream != stream)
        request = request->next;
    if (request)
        return request;
    request = calloc(1, sizeof(*request));
    request->connection = connection;
    request->stream = stream;
    request->next = connection->requests;
    connection->requests = request;
    return request;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
    struct request *request = request_of(context, frame->hd.stream_id);
    (void)session, (void)flags;
    if (name_size == 5 && memcmp(name, ":path", 5) == 0) {
        snprintf(request->path, sizeof(request->path), "%.*s", (int)value_size, value);
        request->is_stream = strstr(request->path, "Watch/Watch");
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t size, void *context) {
    struct request *request = request_of(context, stream);
    (void)session, (void)flags;
    CHECK(request->in_size + size <= sizeof(request->in));
    memcpy(request->in + request->in_size, bytes, size);
    request->in_size += size;
    if (request->is_stream && !server.is_silent)
        read_watch_requests(request);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    (void)session;
    bool has_content = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (has_content && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        serve_request(request_of(context, frame->hd.stream_id));
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *context) {
    struct connection *connection = context;
    (void)session, (void)error;
    for (struct request **at = &connection->requests; *at; at = &(*at)->next) {
        struct request *request = *at;
        if (request->stream != stream)
            continue;
        *at = request->next;
        free(request->out);
        free(request);
        break;
    }
    return 0;
}

/* ---- Connections ---- */

static struct connection *connection_of(struct fake_stream *stream) {
    for (size_t i = 0; i < server.connection_count; i++) {
        if (server.connections[i].stream == stream)
            return &server.connections[i];
    }
    nghttp2_session_callbacks *callbacks;
    CHECK(server.connection_count < CONNECTIONS_MAX);
    struct connection *connection = &server.connections[server.connection_count++];
    *connection = (struct connection){.stream = stream};
    CHECK_EQ_INT(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    CHECK_EQ_INT(nghttp2_session_server_new(&connection->session, callbacks, connection), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return connection;
}

/* The bytes that it has to send; to be freed. */
static char *take_output(struct connection *connection, size_t *ret_size) {
    const uint8_t *bytes;
    char *all = NULL;
    ssize_t size;
    *ret_size = 0;
    while ((size = nghttp2_session_mem_send(connection->session, &bytes)) > 0) {
        char *grown = realloc(all, *ret_size + (size_t)size);
        CHECK(grown);
        all = grown;
        memcpy(all + *ret_size, bytes, (size_t)size);
        *ret_size += (size_t)size;
    }
    return all;
}

/* For fake_serve. No allocation of the server itself fails. */
static void serve_etcd(struct fake_stream *stream) {
    if (!stream->accepted)
        fake_accept(stream);
    if (!stream->owner)
        return;
    fail_pause();
    connection_of(stream);
    size_t news = stream->written - stream->read;
    stream->read = stream->written;
    if (news)
        nghttp2_session_mem_recv(connection_of(stream)->session,
                                 (uint8_t *)stream->bytes + stream->read - news, news);
    for (size_t i = 0; i < server.connection_count; i++) {
        struct connection *connection = &server.connections[i];
        size_t size;
        if (!connection->stream->owner)
            continue;
        char *bytes = take_output(connection, &size);
        fail_resume();
        if (size)
            fake_answer(connection->stream, bytes, size);
        fail_pause();
        free(bytes);
    }
    fail_resume();
}

static void server_start(void) {
    server = (struct server){.revision = 1};
}

static void server_stop(void) {
    for (size_t i = 0; i < server.connection_count; i++) {
        struct connection *connection = &server.connections[i];
        while (connection->requests)
            on_close(NULL, connection->requests->stream, 0, connection);
        nghttp2_session_del(connection->session);
    }
    server.connection_count = 0;
}

#endif
