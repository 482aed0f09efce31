/* The claims on a name, as they are in etcd, and whose turn it is.
 *
 * Claims queue in the order of their keys' create revisions. A claim that is held has its weight
 * for as long as it exists; those that wait are served in order, and those that barge come before
 * those that do not. So a claim fits if it fits together with all claims ahead of it. Locks of
 * etcd's own clients go by the create revision only: they wait for all claims that were created
 * before them, and block all that were created after them, even those that barge. */
#include "store/etcd/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

static int digit(uint8_t c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "32 hex digits - hex digits" */
static bool read_owner(const uint8_t *text, size_t size, struct claim *ret) {
    if (size < 34 || size > 32 + 1 + 16 || text[32] != '-')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (i != 32 && digit(text[i]) < 0)
            return false;
    }
    for (size_t i = 0; i < 16; i++)
        ret->client[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    ret->seq = 0;
    for (size_t i = 33; i < size; i++)
        ret->seq = ret->seq << 4 | (uint64_t)digit(text[i]);
    return true;
}

/* The lock of one of etcd's own clients: its key ends with its lease. */
static bool is_foreign(const Etcd__KeyValue *kv, const uint8_t *id, size_t size) {
    char lease[20];
    int length = snprintf(lease, sizeof(lease), "%llx", (unsigned long long)kv->lease);
    return kv->lease && size == (size_t)length && memcmp(lease, id, size) == 0;
}

static bool is_sound(const Etcd__Claim *value) {
    return strcmp(value->format, "holdfast") == 0 && value->weight > 0 &&
           value->weight <= value->capacity &&
           (value->kind == STORE_LOCK || value->kind == STORE_PERMITS);
}

/* If there is no memory, a claim must not be overlooked, or the lock would seem to be free. */
static void *allocate(void *no_memory, size_t size) {
    void *memory = malloc(size);
    *(bool *)no_memory |= !memory;
    return memory;
}

static void release(void *no_memory, void *memory) {
    (void)no_memory;
    free(memory);
}

/* False: it is not a claim, or there is no memory. */
static bool read_claim(const Etcd__KeyValue *kv, size_t prefix_size, size_t range_size,
                       struct claim *ret, bool *no_memory) {
    ProtobufCAllocator allocator = {allocate, release, no_memory};
    const uint8_t *slash = kv->key.len ? memrchr(kv->key.data, '/', kv->key.len) : NULL;
    size_t at = slash ? (size_t)(slash - kv->key.data) : 0; /* of the last slash */
    if (!slash || at <= prefix_size || (range_size && at + 1 != range_size))
        return false;
    const uint8_t *id = slash + 1;
    size_t size = kv->key.len - at - 1;
    *ret = (struct claim){.kv = kv, .name_size = at - prefix_size};
    ret->barges = size > 0 && id[0] == '!';
    if (!read_owner(id + ret->barges, size - ret->barges, ret))
        return is_foreign(kv, id, size);
    ret->value = etcd__claim__unpack(&allocator, kv->value.len, kv->value.data);
    if (ret->value && is_sound(ret->value))
        return true;
    if (ret->value)
        etcd__claim__free_unpacked(ret->value, NULL);
    ret->value = NULL;
    return false;
}

bool claims_read(struct etcd *etcd, const Etcd__RangeResponse *range, size_t range_size,
                 struct claims *ret) {
    size_t prefix_size = strlen(etcd->prefix);
    bool no_memory = false;
    *ret = (struct claims){.list = calloc(range->n_kvs + 1, sizeof(struct claim))};
    if (!ret->list)
        return false;
    for (size_t i = 0; i < range->n_kvs; i++)
        ret->count +=
            read_claim(range->kvs[i], prefix_size, range_size, &ret->list[ret->count], &no_memory);
    if (no_memory)
        claims_free(ret);
    return !no_memory;
}

void claims_free(struct claims *claims) {
    for (size_t i = 0; i < claims->count; i++) {
        if (claims->list[i].value)
            etcd__claim__free_unpacked(claims->list[i].value, NULL);
    }
    free(claims->list);
    *claims = (struct claims){0};
}

bool claim_is_held(const struct claim *claim) {
    return !claim->value || claim->value->held;
}

uint64_t claim_token(const struct etcd *etcd, const struct claim *claim) {
    if (!claim->value)
        return etcd->base + (uint64_t)claim->kv->create_revision;
    if (!claim->value->held)
        return 0;
    return claim->value->token ? claim->value->token
                               : claim->value->token_base + (uint64_t)claim->kv->mod_revision;
}

/* ---- Whose turn it is ---- */

static int64_t create_of(const struct claim *own) {
    return own ? own->kv->create_revision : INT64_MAX;
}

static bool is_ahead(const struct claim *claim, const struct wish *wish) {
    if (claim == wish->own)
        return false;
    if (claim->value && claim->value->held)
        return true;
    if (claim->value && claim->barges != wish->barges)
        return claim->barges;
    return claim->kv->create_revision < create_of(wish->own);
}

static uint64_t weight_of(const struct claim *claim) {
    return claim->value ? claim->value->weight : STORE_ALL;
}

/* Whether `a` comes after `b`, of two that are ahead. */
static bool is_later(const struct claim *a, const struct claim *b) {
    bool a_waits = !claim_is_held(a), b_waits = !claim_is_held(b);
    if (a_waits != b_waits)
        return a_waits;
    if (a_waits && a->barges != b->barges)
        return b->barges;
    return a->kv->create_revision > b->kv->create_revision;
}

/* A claim that shares a lock waits only for those that do not share it. */
static bool is_in_the_way(const struct claim *claim, const struct wish *wish) {
    bool shares = wish->kind == STORE_LOCK && wish->weight == 1;
    return !shares || weight_of(claim) != 1;
}

void claims_judge(const struct claims *claims, const struct wish *wish, struct verdict *ret) {
    uint64_t ahead = 0;
    const struct claim *oldest = NULL;
    *ret = (struct verdict){0};
    for (size_t i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->list[i];
        if (claim->value && claim != wish->own &&
            (!oldest || claim->kv->create_revision < oldest->kv->create_revision))
            oldest = claim;
        if (!is_ahead(claim, wish))
            continue;
        ahead += weight_of(claim);
        if (is_in_the_way(claim, wish) && (!ret->blocker || is_later(claim, ret->blocker)))
            ret->blocker = claim;
    }
    if (oldest && oldest->kv->create_revision < create_of(wish->own) &&
        (oldest->value->kind != wish->kind || oldest->value->capacity != wish->capacity))
        ret->other_kind = oldest;
    ret->fits = ahead + wish->weight <= wish->capacity;
    ret->is_head = ahead <= wish->capacity;
    ret->any = wish->kind == STORE_PERMITS && ret->blocker && ret->blocker->value &&
               ret->blocker->value->held;
}
