/* The claims on a name: what counts as one, and whose turn it is. */
#include "check.h"
#include "store/etcd/etcd.h"

enum { CLAIMS_MAX = 6, HELD = 1, BARGES = 2, FOREIGN = 4 };

#define OWNER "00112233445566778899aabbccddeeff"

/* ---- Claims as they are in etcd ---- */

static struct etcd etcd = {.prefix = (char *)"p/"};

struct given {
    int64_t create;
    unsigned flags;
    uint32_t kind, capacity, weight;
};

/* The keys that these claims have; the key of each ends with its place in the list. */
static struct {
    Etcd__KeyValue kvs[CLAIMS_MAX], *list[CLAIMS_MAX];
    char keys[CLAIMS_MAX][100];
    uint8_t values[CLAIMS_MAX][200];
} keys;

static void put_key(size_t index, const char *key, const void *value, size_t size) {
    Etcd__KeyValue *kv = keys.list[index] = &keys.kvs[index];
    etcd__key_value__init(kv);
    snprintf(keys.keys[index], sizeof keys.keys[index], "%s", key);
    memcpy(keys.values[index], value, size);
    kv->key = (ProtobufCBinaryData){strlen(key), (uint8_t *)keys.keys[index]};
    kv->value = (ProtobufCBinaryData){size, keys.values[index]};
}

static void put_claim(size_t index, const struct given *given) {
    Etcd__Claim claim = ETCD__CLAIM__INIT;
    char key[100];
    uint8_t value[200];
    claim.format = (char *)"holdfast";
    claim.kind = given->kind;
    claim.capacity = given->capacity;
    claim.weight = given->weight;
    claim.held = given->flags & HELD;
    claim.token_base = 1000;
    if (given->flags & FOREIGN)
        snprintf(key, sizeof key, "p/x/%zx", index + 0xabc);
    else
        snprintf(key, sizeof key, "p/x/%s" OWNER "-%zx", given->flags & BARGES ? "!" : "",
                 index + 1);
    put_key(index, key, value, etcd__claim__pack(&claim, value));
    keys.kvs[index].create_revision = given->create;
    keys.kvs[index].mod_revision = given->create + 5;
    keys.kvs[index].lease = (int64_t)index + 0xabc;
}

static struct claims read_all(size_t count) {
    Etcd__RangeResponse range = ETCD__RANGE_RESPONSE__INIT;
    struct claims claims;
    range.kvs = keys.list;
    range.n_kvs = count;
    CHECK(claims_read(&etcd, &range, strlen("p/x/"), &claims));
    return claims;
}

/* ---- What is a claim ---- */

TEST(a_claim_says_whose_it_is_and_its_token) {
    put_claim(0, &(struct given){.create = 7,
                                 .flags = HELD | BARGES,
                                 .kind = STORE_LOCK,
                                 .capacity = STORE_ALL,
                                 .weight = 1});
    struct claims claims = read_all(1);
    CHECK_EQ_INT(claims.count, 1);
    const struct claim *claim = &claims.list[0];
    CHECK(claim->seq == 1 && claim->barges && claim->client[0] == 0 && claim->client[15] == 0xff);
    CHECK_EQ_INT(claim->name_size, 1);
    CHECK(claim_is_held(claim) && claim_token(&etcd, claim) == 1000 + 7 + 5);
    claims_free(&claims);
}

TEST(other_keys_are_no_claims) {
    static const char *const others[] = {
        "p/x/" OWNER,        "p/x/" OWNER "-",
        "p/x/" OWNER "-1g",  "p/x/" OWNER "-12345678123456781",
        "p/x/a/" OWNER "-1", "p/x",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        put_key(i, others[i], "", 0);
    struct claims claims = read_all(sizeof others / sizeof *others);
    CHECK_EQ_INT(claims.count, 0);
    claims_free(&claims);
}

TEST(a_key_of_a_claim_with_another_value_is_none) {
    struct given zero_weight = {.kind = STORE_LOCK, .capacity = 5, .weight = 0},
                 heavy = {.kind = STORE_PERMITS, .capacity = 5, .weight = 6},
                 unknown = {.kind = 9, .capacity = 5, .weight = 1};
    put_claim(0, &zero_weight);
    put_claim(1, &heavy);
    put_claim(2, &unknown);
    put_key(3, "p/x/" OWNER "-4", "\xff\xff\xff", 3);
    struct claims claims = read_all(4);
    CHECK_EQ_INT(claims.count, 0);
    claims_free(&claims);
}

TEST(the_key_of_another_client_ends_with_its_lease) {
    put_claim(0, &(struct given){.create = 7, .flags = FOREIGN, .weight = 1});
    put_claim(1, &(struct given){.create = 8, .flags = FOREIGN, .weight = 1});
    keys.kvs[1].lease = 1; /* not the lease that its key names */
    struct claims claims = read_all(2);
    CHECK_EQ_INT(claims.count, 1);
    CHECK(!claims.list[0].value && claim_is_held(&claims.list[0]));
    CHECK_EQ_INT(claim_token(&etcd, &claims.list[0]), 7);
    claims_free(&claims);
}

/* ---- Whose turn it is ---- */

#define EXCLUSIVE STORE_LOCK, STORE_ALL, STORE_ALL
#define SHARED STORE_LOCK, STORE_ALL, 1
#define PERMITS(weight) STORE_PERMITS, 5, (weight)

/* The verdict on the claim with this index, or on one that has no key yet (-1). `blocker` is also
 * an index; -1: none. */
static void judge(const struct given *given, size_t count, int own, const struct given *wanted,
                  bool fits, bool is_head, int blocker) {
    for (size_t i = 0; i < count; i++)
        put_claim(i, &given[i]);
    struct claims claims = read_all(count);
    struct wish wish = {.kind = wanted->kind,
                        .capacity = wanted->capacity,
                        .weight = wanted->weight,
                        .barges = wanted->flags & BARGES,
                        .own = own < 0 ? NULL : &claims.list[own]};
    struct verdict verdict;
    CHECK_EQ_INT(claims.count, count);
    claims_judge(&claims, &wish, &verdict);
    CHECK_EQ_INT(verdict.fits, fits);
    CHECK_EQ_INT(verdict.is_head, is_head);
    CHECK(verdict.blocker == (blocker < 0 ? NULL : &claims.list[blocker]));
    claims_free(&claims);
}

TEST(who_waits_is_blocked_by_the_one_before) {
    struct given queue[] = {{7, HELD, EXCLUSIVE}, {9, 0, EXCLUSIVE}, {8, 0, EXCLUSIVE}};
    judge(queue, 3, 2, &queue[2], false, true, 0);
    judge(queue, 3, 1, &queue[1], false, false, 2);
    judge(queue, 3, -1, &(struct given){0, 0, EXCLUSIVE}, false, false, 1);
}

TEST(the_first_fits_when_nobody_holds) {
    struct given queue[] = {{9, 0, EXCLUSIVE}, {8, 0, EXCLUSIVE}};
    judge(queue, 2, 1, &queue[1], true, true, -1);
    judge(queue, 2, 0, &queue[0], false, true, 1);
}

TEST(readers_wait_for_the_last_writer_before_them) {
    struct given queue[] = {{1, HELD, SHARED}, {2, 0, EXCLUSIVE}, {3, 0, SHARED}, {4, 0, SHARED}};
    judge(queue, 1, -1, &queue[3], true, true, -1);
    judge(queue, 4, 3, &queue[3], false, false, 1);
    judge(queue, 4, 1, &queue[1], false, true, 0);
}

TEST(who_barges_goes_before_those_who_wait_and_after_holders) {
    struct given queue[] = {{1, HELD, EXCLUSIVE}, {2, 0, EXCLUSIVE}, {3, BARGES, EXCLUSIVE}};
    judge(queue, 3, 2, &queue[2], false, true, 0);
    judge(queue, 3, 1, &queue[1], false, false, 2);
}

TEST(a_foreign_lock_is_in_the_way_of_all_that_came_after_it) {
    struct given queue[] = {{5, FOREIGN, 0, 0, 1}, {4, 0, EXCLUSIVE}, {6, 0, EXCLUSIVE}};
    judge(queue, 3, 1, &queue[1], true, true, -1);
    judge(queue, 3, 2, &queue[2], false, false, 1);
    judge(queue, 1, -1, &(struct given){0, BARGES, EXCLUSIVE}, false, true, 0);
}

TEST(permits_fit_as_long_as_there_are_enough_and_nobody_waits) {
    struct given queue[] = {{1, HELD, PERMITS(2)}, {2, HELD, PERMITS(2)}, {3, 0, PERMITS(3)}};
    judge(queue, 2, -1, &(struct given){0, 0, PERMITS(1)}, true, true, 1);
    judge(queue, 2, -1, &(struct given){0, 0, PERMITS(2)}, false, true, 1);
    judge(queue, 3, -1, &(struct given){0, 0, PERMITS(1)}, false, false, 2);
}

TEST(the_kind_is_that_of_the_oldest) {
    struct given queue[] = {{1, HELD, PERMITS(2)}};
    struct claims claims;
    struct verdict verdict;
    put_claim(0, &queue[0]);
    claims = read_all(1);
    claims_judge(&claims, &(struct wish){.kind = STORE_LOCK, .capacity = STORE_ALL, .weight = 1},
                 &verdict);
    CHECK(verdict.other_kind == &claims.list[0]);
    claims_judge(&claims, &(struct wish){.kind = STORE_PERMITS, .capacity = 5, .weight = 1},
                 &verdict);
    CHECK(!verdict.other_kind);
    claims_free(&claims);
}
