/* INSPECT and LIST. They change nothing. Everything is read in one transaction. Then etcd is asked
 * how much time each lease has left, in whole seconds; that is rounded up, but not above what the
 * claim asked for. */
#include "base/error.h"
#include "store/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

struct time_left {
    struct looking *job;
    int64_t id, seconds; /* below 0: not known */
};

struct looking {
    struct etcd *etcd;
    struct store_op *op;
    int64_t give_up_us;
    size_t pending;
    Etcd__TxnResponse *answer;
    struct claims claims;
    struct time_left *times;
    size_t time_count;
};

/* ---- What was found ---- */

static const uint8_t *name_of(const struct etcd *etcd, const struct claim *claim) {
    return claim->kv->key.data + strlen(etcd->prefix);
}

/* By bytes, as strcmp does. */
static int compare_names(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size) {
    int r = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return r ? r : (a_size > b_size) - (a_size < b_size);
}

static int by_turn(const void *left, const void *right, void *context) {
    const struct claim *a = left, *b = right;
    int r = compare_names(name_of(context, a), a->name_size, name_of(context, b), b->name_size);
    if (r)
        return r;
    bool a_waits = !claim_is_held(a), b_waits = !claim_is_held(b);
    if (a_waits != b_waits)
        return a_waits - b_waits;
    if (a_waits && a->barges != b->barges)
        return b->barges - a->barges;
    return (a->kv->create_revision > b->kv->create_revision) -
           (a->kv->create_revision < b->kv->create_revision);
}

static const Etcd__RangeResponse *range_at(const struct looking *job, size_t index) {
    static const Etcd__RangeResponse none = ETCD__RANGE_RESPONSE__INIT;
    const Etcd__TxnResponse *answer = job->answer;
    bool is_range = index < answer->n_responses &&
                    answer->responses[index]->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE;
    return is_range ? answer->responses[index]->range : &none;
}

static char *text_of(ProtobufCBinaryData bytes) {
    char *text = malloc(bytes.len + 1);
    if (text) {
        if (bytes.len)
            memcpy(text, bytes.data, bytes.len);
        text[bytes.len] = 0;
    }
    return text;
}

static Etcd__Break *find_break(const struct looking *job, const char *name) {
    const Etcd__RangeResponse *records = range_at(job, 1);
    struct etcd_key key;
    etcd_break_key(job->etcd, name, &key);
    for (size_t i = 0; i < records->n_kvs; i++) {
        const Etcd__KeyValue *kv = records->kvs[i];
        if (kv->key.len == key.size && memcmp(kv->key.data, key.bytes, key.size) == 0)
            return etcd__break__unpack(NULL, kv->value.len, kv->value.data);
    }
    return NULL;
}

bool etcd_add_break(struct hf_locks *locks, const Etcd__Break *record) {
    char *by = text_of(record->by), *reason = text_of(record->reason);
    struct locks_break last = {
        .at_us = record->at_us, .token = record->token, .by = by, .reason = reason};
    bool ok = by && reason && locks_set_break(locks, &last);
    free(by);
    free(reason);
    return ok;
}

static int64_t left_ms(const struct looking *job, const struct claim *claim) {
    int64_t asked_ms = claim->value ? claim->value->lease_ms : INT64_MAX;
    for (size_t i = 0; i < job->time_count; i++) {
        int64_t most_ms = (job->times[i].seconds + 1) * 1000;
        if (job->times[i].id == claim->kv->lease && job->times[i].seconds >= 0)
            return most_ms < asked_ms ? most_ms : asked_ms;
    }
    return claim->value ? asked_ms : 0;
}

bool etcd_add_party(const struct etcd *etcd, struct hf_locks *locks, const struct claim *claim,
                    enum locks_role role, int64_t left_ms) {
    Etcd__Claim foreign = ETCD__CLAIM__INIT;
    foreign.weight = STORE_ALL;
    const Etcd__Claim *value = claim->value ? claim->value : &foreign;
    char *host = text_of(value->host), *command = text_of(value->command),
         *label = text_of(value->label);
    hf_party party = {
        .host = host,
        .command = command,
        .label = label,
        .pid = value->pid,
        .token = claim_token(etcd, claim),
        .weight = value->weight,
        .since_ms = value->since_ms,
        .left_ms = left_ms,
    };
    bool ok = host && command && label &&
              locks_add_party(locks, role, &party, claim->client,
                              claim->value ? claim->seq : (uint64_t)claim->kv->lease);
    free(host);
    free(command);
    free(label);
    return ok;
}

/* The claims from `first` on that are at the same name. */
static size_t count_same(const struct looking *job, size_t first) {
    const struct claim *list = job->claims.list;
    size_t count = 1;
    while (first + count < job->claims.count &&
           compare_names(name_of(job->etcd, &list[first]), list[first].name_size,
                         name_of(job->etcd, &list[first + count]),
                         list[first + count].name_size) == 0)
        count++;
    return count;
}

/* Claims of one name, in order; none: the name is remembered only for its last break. */
static bool add_lock(struct looking *job, const char *name, const struct claim *claims,
                     size_t count) {
    Etcd__Break *record = find_break(job, name);
    const Etcd__Claim *first = NULL;
    uint64_t token = record ? record->token + 1 : 0; /* a break moves it on */
    int64_t oldest = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint64_t of_claim = claim_token(job->etcd, &claims[i]);
        token = claim_is_held(&claims[i]) && of_claim > token ? of_claim : token;
        first = first ? first : claims[i].value;
        oldest = claims[i].kv->create_revision < oldest ? claims[i].kv->create_revision : oldest;
    }
    bool ok = (!count && !record) ||
              locks_add(job->op->locks, name, first ? (enum store_kind)first->kind : STORE_LOCK,
                        first ? first->capacity : STORE_ALL, token);
    if (ok && record)
        ok = etcd_add_break(job->op->locks, record);
    for (size_t i = 0; ok && i < count; i++) { /* a foreign one holds if nobody came before it */
        bool holds =
            claims[i].value ? claims[i].value->held : claims[i].kv->create_revision == oldest;
        ok = etcd_add_party(job->etcd, job->op->locks, &claims[i],
                            holds ? LOCKS_HOLDER : LOCKS_WAITER, left_ms(job, &claims[i]));
    }
    if (record)
        etcd__break__free_unpacked(record, NULL);
    return ok;
}

static bool is_wanted(const struct looking *job, const char *name) {
    const struct store_op *op = job->op;
    return strncmp(name, op->name, strlen(op->name)) == 0 &&
           (!op->after || strcmp(name, op->after) > 0);
}

static bool add_all(struct looking *job) {
    struct store_op *op = job->op;
    op->locks = locks_new();
    if (!op->locks)
        return false;
    if (op->type == STORE_INSPECT)
        return add_lock(job, op->name, job->claims.list, job->claims.count);
    for (size_t i = 0, count; i < job->claims.count && hf_locks_count(op->locks) < op->limit;
         i += count) {
        const struct claim *claim = &job->claims.list[i];
        char *name =
            text_of((ProtobufCBinaryData){claim->name_size, (uint8_t *)name_of(job->etcd, claim)});
        count = count_same(job, i);
        bool ok = name && (!is_wanted(job, name) || add_lock(job, name, claim, count));
        free(name);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- Asking ---- */

static void looking_free(struct looking *job) {
    claims_free(&job->claims);
    if (job->answer)
        etcd__txn_response__free_unpacked(job->answer, NULL);
    free(job->times);
    free(job);
}

static void finish_if_done(struct looking *job) {
    struct etcd *etcd = job->etcd;
    struct store_op *op = job->op;
    if (--job->pending > 0)
        return;
    bool ok = add_all(job);
    looking_free(job);
    if (ok) {
        store_complete(etcd->host, op, STORE_DONE);
        return;
    }
    op->locks = hf_locks_free(op->locks);
    store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
}

static void time_answered(struct etcd *etcd, struct etcd_call *call) {
    struct time_left *time = call->context;
    (void)etcd;
    if (!etcd_time_left(call, &time->seconds))
        time->seconds = -1;
    finish_if_done(time->job);
}

static void ask_time(struct looking *job, int64_t lease) {
    for (size_t i = 0; i < job->time_count; i++) {
        if (job->times[i].id == lease)
            return;
    }
    struct time_left *time = &job->times[job->time_count++];
    *time = (struct time_left){.job = job, .id = lease, .seconds = -1};
    struct etcd_call *call = etcd_ask_time(lease, time_answered, time);
    if (!call)
        return;
    job->pending++;
    etcd_send(job->etcd, call, job->give_up_us);
}

static void looked(struct etcd *etcd, struct etcd_call *call) {
    struct looking *job = call->context;
    struct store_op *op = job->op;
    job->answer =
        call->reason ? NULL : etcd__txn_response__unpack(NULL, call->message_size, call->message);
    bool ok =
        job->answer &&
        claims_read(etcd, range_at(job, 0),
                    op->type == STORE_INSPECT ? strlen(etcd->prefix) + strlen(op->name) + 1 : 0,
                    &job->claims) &&
        (job->times = calloc(job->claims.count + 1, sizeof(*job->times)));
    if (!ok) {
        looking_free(job);
        etcd_fail(etcd, op, call, false);
        return;
    }
    qsort_r(job->claims.list, job->claims.count, sizeof(*job->claims.list), by_turn, etcd);
    job->pending = 1;
    for (size_t i = 0; i < job->claims.count; i++)
        ask_time(job, job->claims.list[i].kv->lease);
    finish_if_done(job);
}

void etcd_look(struct etcd *etcd, struct store_op *op) {
    struct looking *job = calloc(1, sizeof(*job));
    struct txn *txn = job ? txn_new(2) : NULL;
    struct etcd_key keys, keys_end, records, records_end;
    bool is_list = op->type == STORE_LIST;
    if (txn) {
        job->etcd = etcd;
        job->op = op;
        job->give_up_us = etcd_now_us(etcd) + etcd->timeout_us;
        etcd_key_set(etcd, &keys, "", op->name, is_list ? "" : "/");
        etcd_range_of(&keys, &keys_end);
        etcd_break_key(etcd, op->name, &records);
        etcd_end_of(&records, &records_end);
        txn_get(txn, true, &keys, &keys_end);
        txn_get(txn, true, &records, is_list ? &records_end : NULL);
    }
    struct etcd_call *call = txn ? txn_call(txn, looked, job) : NULL;
    if (call) {
        etcd_send(etcd, call, job->give_up_us);
        return;
    }
    free(job);
    store_refuse(etcd->host, op, HF_NO_MEMORY, NULL);
}
