/* What an etcd cluster stores: keys with all their versions, and leases. It is a state machine:
 * entries of the log change it (keys_txn and the functions after it), and it reports what it did. A
 * member that is behind reads it at an earlier revision. */
#ifndef SIM_ETCD_KEYS_H
#define SIM_ETCD_KEYS_H

#include "store/etcd/etcd.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEYS_MEMBERS_MAX = 5 };

struct keys_version {
    int64_t mod, create, lease;
    bool deleted;
    ProtobufCBinaryData value;
};

struct keys_key {
    ProtobufCBinaryData name;
    struct keys_version *versions;
    size_t count;
};

struct keys_event {
    int64_t revision;
    bool deleted;
    ProtobufCBinaryData name, value;
    int64_t create, lease;
};

struct keys_lease {
    int64_t id, ttl_us;
    size_t granted, revoked;           /* the indices in the log; 0: not revoked */
    int64_t ends_us[KEYS_MEMBERS_MAX]; /* as each member counts it if it leads; INT64_MAX: not */
};

enum keys_why {
    KEYS_ASKED,   /* by a request */
    KEYS_EXPIRED, /* with its lease */
    KEYS_REVOKED, /* by an operator, with its lease or without */
};

/* Something that a transaction did to a key, or would have done. */
struct keys_change {
    enum { KEYS_PUT, KEYS_NOT_PUT, KEYS_DELETED, KEYS_NOT_DELETED } what;
    enum keys_why why;
    bool in_txn;
    ProtobufCBinaryData name, value; /* of a deleted one: what it had */
    int64_t revision;                /* of the change; of a deleted one: its last */
};

struct keys {
    struct keys_key *list; /* sorted */
    size_t count, room;
    struct keys_event *events;
    size_t event_count, event_room;
    struct keys_lease *leases;
    size_t lease_count, lease_room;
    int64_t revision, compacted;
    void (*changed)(void *context, const struct keys_change *change);
    void *context;
};

void keys_reset(struct keys *keys);

/* The answer to a request: a gRPC status with words for it, or a message. It is valid until the
 * next answer is made. */
struct keys_answer {
    int status;
    const char *why;
    ProtobufCMessage *message;
    Etcd__Header *header; /* of it */
};

bool keys_is_read(const Etcd__TxnRequest *request);
bool keys_puts(const Etcd__TxnRequest *request);
/* Executes the request. A request that only reads is executed at `revision`, which is not above the
 * present one. */
void keys_txn(struct keys *keys, const Etcd__TxnRequest *request, int64_t revision,
              struct keys_answer *ret);
void keys_delete(struct keys *keys, const Etcd__DeleteRangeRequest *request,
                 struct keys_answer *ret);
void keys_put(struct keys *keys, const char *name, const char *value, int64_t lease);
/* As an operator does it. */
void keys_delete_one(struct keys *keys, const ProtobufCBinaryData *name);

struct keys_lease *keys_grant(struct keys *keys, int64_t id, int64_t ttl_s, size_t index);
void keys_revoke(struct keys *keys, struct keys_lease *lease, size_t index, enum keys_why why);
struct keys_lease *keys_find_lease(struct keys *keys, int64_t id);

/* The version of a key at a revision; NULL: none. */
const struct keys_version *keys_version_at(const struct keys_key *key, int64_t revision);
bool keys_is_within(const ProtobufCBinaryData *name, const ProtobufCBinaryData *first,
                    const ProtobufCBinaryData *end);
Etcd__KeyValue *keys_kv(const ProtobufCBinaryData *name, const struct keys_version *version);

/* Memory for an answer, which lasts until keys_answer_begin. */
void keys_answer_begin(void);
void *keys_memory(size_t size);

#endif
