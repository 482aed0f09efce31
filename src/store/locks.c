#include "store/locks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    hf_node info;
    hf_party **parties; /* info points to the same */
};

struct lock {
    hf_lock_info info;
    hf_party **parties[2]; /* by role; info points to the same */
    struct node **nodes;   /* info points to the same: a node starts with its hf_node */
    char *broken;          /* by whom and why: the strings of info, or NULL */
    char name[];
};

struct hf_locks {
    size_t count;
    struct lock **locks;
};

struct hf_locks *locks_new(void) {
    return calloc(1, sizeof(struct hf_locks));
}

/* The array with room for one more pointer behind `count`; NULL: no memory, and it is unchanged.
 * The size allocated is the next power of two. */
static void *with_room(void *array, size_t count) {
    bool is_full = (count & (count - 1)) == 0;
    return is_full ? realloc(array, (count ? count * 2 : 1) * sizeof(void *)) : array;
}

bool locks_add(struct hf_locks *locks, const char *name, enum store_kind kind, uint32_t capacity,
               uint64_t token) {
    size_t size = strlen(name) + 1;
    struct lock *lock = calloc(1, sizeof(*lock) + size);
    struct lock **array = lock ? with_room(locks->locks, locks->count) : NULL;
    if (!array) {
        free(lock);
        return false;
    }
    locks->locks = array;
    memcpy(lock->name, name, size);
    lock->info = (hf_lock_info){
        .size = sizeof(lock->info),
        .name = lock->name,
        .kind = kind == STORE_LOCK ? HF_EXCLUSIVE : HF_PERMITS,
        .capacity = capacity,
        .token = token,
        .broken_by = "",
        .broken_reason = "",
    };
    locks->locks[locks->count++] = lock;
    return true;
}

static const char digits[] = "0123456789abcdef";

char *locks_put_seq(char *end, uint64_t seq) {
    int first = seq ? (63 - __builtin_clzll(seq)) / 4 : 0;
    for (int digit = first; digit >= 0; digit--)
        *end++ = digits[seq >> 4 * digit & 15];
    *end = 0;
    return end;
}

void locks_format_owner(const uint8_t id[16], uint64_t seq, char ret_text[LOCKS_OWNER_SIZE]) {
    char *end = ret_text;
    for (int i = 0; i < 16; i++) { /* not by printf: every request to a server has one */
        *end++ = digits[id[i] >> 4];
        *end++ = digits[id[i] & 15];
    }
    *end++ = '-';
    locks_put_seq(end, seq);
}

/* Copies `text` to *end and moves that on. */
static const char *keep(char **end, const char *text) {
    char *kept = *end;
    *end = stpcpy(kept, text ? text : "") + 1;
    return kept;
}

static size_t size_of(const char *text) {
    return text ? strlen(text) + 1 : 1;
}

static hf_party *party_new(const hf_party *from, const char *owner) {
    size_t size = sizeof(hf_party) + size_of(owner) + size_of(from->host) + size_of(from->command) +
                  size_of(from->label);
    hf_party *party = malloc(size);
    if (!party)
        return NULL;
    *party = *from;
    party->size = sizeof(*party);
    char *end = (char *)(party + 1);
    party->owner = keep(&end, owner);
    party->host = keep(&end, from->host);
    party->command = keep(&end, from->command);
    party->label = keep(&end, from->label);
    return party;
}

bool locks_set_break(struct hf_locks *locks, const struct locks_break *last) {
    struct lock *lock = locks->locks[locks->count - 1];
    if (!last->at_us)
        return true;
    lock->broken = malloc(size_of(last->by) + size_of(last->reason));
    if (!lock->broken)
        return false;
    char *end = lock->broken;
    lock->info.broken_ms = last->at_us / 1000;
    lock->info.broken_token = last->token;
    lock->info.broken_by = keep(&end, last->by);
    lock->info.broken_reason = keep(&end, last->reason);
    return true;
}

void locks_format_breaker(const struct store_identity *who, char ret_text[LOCKS_BREAKER_SIZE]) {
    snprintf(ret_text, LOCKS_BREAKER_SIZE, "%s pid %" PRId64 " (%s)", who->host, who->pid,
             who->command);
}

void locks_set_quorum(struct hf_locks *locks, uint32_t quorum) {
    locks->locks[locks->count - 1]->info.quorum = quorum;
}

bool locks_add_node(struct hf_locks *locks, const char *name, const char *failure, uint64_t token) {
    struct lock *lock = locks->locks[locks->count - 1];
    struct node *node = malloc(sizeof(*node) + size_of(name) + size_of(failure));
    struct node **nodes = node ? with_room((void *)lock->nodes, lock->info.node_count) : NULL;
    if (!nodes) {
        free(node);
        return false;
    }
    char *end = (char *)(node + 1);
    *node = (struct node){.info = {.size = sizeof(node->info), .token = token}};
    node->info.name = keep(&end, name);
    node->info.failure = keep(&end, failure);
    nodes[lock->info.node_count++] = node;
    lock->nodes = nodes;
    lock->info.nodes = (const hf_node *const *)nodes;
    return true;
}

/* Adds a copy to an array of parties and its count. */
static bool append_party(hf_party ***parties, size_t *count, const hf_party *party,
                         const char *owner) {
    hf_party *copy = party_new(party, owner);
    hf_party **array = copy ? with_room((void *)*parties, *count) : NULL;
    if (!array) {
        free(copy);
        return false;
    }
    *parties = array;
    array[(*count)++] = copy;
    return true;
}

static bool add_party(struct hf_locks *locks, enum locks_role role, const hf_party *party,
                      const char *owner) {
    struct lock *lock = locks->locks[locks->count - 1];
    if (role == LOCKS_VOTE) {
        struct node *node = lock->nodes[lock->info.node_count - 1];
        bool ok = append_party(&node->parties, &node->info.holder_count, party, owner);
        node->info.holders = (const hf_party *const *)node->parties;
        return ok;
    }
    bool holds = role == LOCKS_HOLDER;
    if (holds && lock->info.kind == HF_EXCLUSIVE && party->weight < STORE_ALL)
        lock->info.kind = HF_SHARED;
    bool ok =
        append_party(&lock->parties[role],
                     holds ? &lock->info.holder_count : &lock->info.waiter_count, party, owner);
    lock->info.holders = (const hf_party *const *)lock->parties[LOCKS_HOLDER];
    lock->info.waiters = (const hf_party *const *)lock->parties[LOCKS_WAITER];
    return ok;
}

bool locks_add_party(struct hf_locks *locks, enum locks_role role, const hf_party *party,
                     const uint8_t id[16], uint64_t seq) {
    char owner[LOCKS_OWNER_SIZE], abbreviated[LOCKS_OWNER_SIZE];
    locks_format_owner(id, seq, owner);
    snprintf(abbreviated, sizeof(abbreviated), "%.8s-%" PRIx64, owner, seq);
    return add_party(locks, role, party, abbreviated);
}

bool locks_copy_party(struct hf_locks *locks, enum locks_role role, const hf_party *party) {
    return add_party(locks, role, party, party->owner);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct lock *const *)a)->info.name, (*(struct lock *const *)b)->info.name);
}

void locks_sort(struct hf_locks *locks) {
    if (locks->count)
        qsort(locks->locks, locks->count, sizeof(struct lock *), by_name);
}

size_t hf_locks_count(const hf_locks *locks) {
    return locks ? locks->count : 0;
}

const hf_lock_info *hf_locks_at(const hf_locks *locks, size_t index) {
    return index < hf_locks_count(locks) ? &locks->locks[index]->info : NULL;
}

static void free_all(hf_party **parties, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(parties[i]);
    free(parties);
}

hf_locks *hf_locks_free(hf_locks *locks) {
    if (!locks)
        return NULL;
    for (size_t i = 0; i < locks->count; i++) {
        struct lock *lock = locks->locks[i];
        free_all(lock->parties[LOCKS_HOLDER], lock->info.holder_count);
        free_all(lock->parties[LOCKS_WAITER], lock->info.waiter_count);
        for (size_t j = 0; j < lock->info.node_count; j++) {
            free_all(lock->nodes[j]->parties, lock->nodes[j]->info.holder_count);
            free(lock->nodes[j]);
        }
        free((void *)lock->nodes);
        free(lock->broken);
        free(lock);
    }
    free(locks->locks);
    free(locks);
    return NULL;
}
