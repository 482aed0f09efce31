/* Names of locks and claims as nodes, and who holds a lock. */
#include "store/zookeeper/names.h"

#include "check.h"

static const uint8_t client[16] = {0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static const struct names_layout *layout_of(const char *word) {
    const struct names_layout *layout = names_layouts;
    while (layout->word && strcmp(layout->word, word) != 0)
        layout++;
    CHECK(layout->word);
    return layout;
}

static struct codec_text text_of(const char *text) {
    return (struct codec_text){text, strlen(text)};
}

static void check_name(const char *name, const char *node) {
    char encoded[NAMES_LOCK_SIZE], decoded[256];
    names_encode(name, encoded);
    CHECK_EQ_STR(encoded, node);
    CHECK(names_decode(text_of(encoded), decoded));
    CHECK_EQ_STR(decoded, name);
}

TEST(a_name_stays_readable) {
    check_name("nightly-report:2024.05", "nightly-report:2024.05");
    check_name("a/b", "a%2fb");
    check_name("100%", "100%25");
    check_name("two words", "two%20words");
    check_name("\xc3\xa9", "%c3%a9");
    check_name(".", "%2e");
    check_name("..", "%2e%2e");
    check_name("...", "...");
}

TEST(every_byte_but_nul_can_be_in_a_name) {
    char name[256], encoded[NAMES_LOCK_SIZE], decoded[256];
    for (int i = 0; i < 255; i++)
        name[i] = (char)(i + 1);
    name[255] = 0;
    names_encode(name, encoded);
    CHECK(names_decode(text_of(encoded), decoded));
    CHECK_EQ_STR(decoded, name);
}

TEST(what_is_no_name_is_refused) {
    static const char *const nodes[] = {"", "%", "%2", "a%0", "%zz", "%00"};
    char decoded[256], longer[300];
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        CHECK(!names_decode(text_of(nodes[i]), decoded));
    memset(longer, 'x', sizeof(longer));
    CHECK(!names_decode((struct codec_text){longer, 256}, decoded));
    CHECK(names_decode((struct codec_text){longer, 255}, decoded));
}

TEST(a_claim_is_read_as_it_was_written) {
    struct store_op op = {.kind = STORE_PERMITS, .weight = 3, .capacity = 5, .seq = 0x1f};
    char node[NAMES_CLAIM_SIZE];
    struct names_claim claim;
    names_format_claim(names_layouts, &op, client, node);
    CHECK_EQ_STR(node, "p3of5-ab0102030405060708090a0b0c0d0e0f-1f-");
    CHECK(!names_parse_claim(names_layouts, text_of(node), &claim));
    strcat(node, "0000000042");
    CHECK(names_parse_claim(names_layouts, text_of(node), &claim));
    CHECK_EQ_INT(claim.kind, STORE_PERMITS);
    CHECK_EQ_INT(claim.weight, 3);
    CHECK_EQ_INT(claim.capacity, 5);
    CHECK_EQ_INT(claim.seq, 0x1f);
    CHECK_EQ_INT(claim.number, 42);
    CHECK(memcmp(claim.client, client, sizeof(client)) == 0);
    CHECK_EQ_STR(claim.node, node);
}

TEST(what_is_no_claim_is_refused) {
    static const char *const nodes[] = {
        "",
        "x",
        "x-1-2-3",
        "y-ab0102030405060708090a0b0c0d0e0f-1f-0000000042",
        "p6of5-ab0102030405060708090a0b0c0d0e0f-1f-0000000042",
        "p0of5-ab0102030405060708090a0b0c0d0e0f-1f-0000000042",
        "p1of5x-ab0102030405060708090a0b0c0d0e0f-1f-0000000042",
        "x-ab0102030405060708090a0b0c0d0e0-1f-0000000042",
        "x-ab0102030405060708090a0b0c0d0e0f--0000000042",
        "x-ab0102030405060708090a0b0c0d0e0f-1f-00x",
        "_c_6ca5-lock-0000000001",
    };
    struct names_claim claim;
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        CHECK(!names_parse_claim(names_layouts, text_of(nodes[i]), &claim));
}

#define CLIENT_HEX "ab0102030405060708090a0b0c0d0e0f"

TEST(in_a_foreign_layout_claims_have_the_names_that_the_library_gives_its_own) {
    static const struct {
        const char *layout;
        uint32_t weight;
        const char *node;
    } forms[] = {
        {"curator", STORE_ALL, "_c_" CLIENT_HEX "-1f-lock-"},
        {"curator-rw", STORE_ALL, "_c_" CLIENT_HEX "-1f-__WRIT__"},
        {"curator-rw", 1, "_c_" CLIENT_HEX "-1f-__READ__"},
        {"kazoo", STORE_ALL, CLIENT_HEX "-1f__lock__"},
        {"kazoo", 1, CLIENT_HEX "-1f__rlock__"},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct names_layout *layout = layout_of(forms[i].layout);
        struct store_op op = {
            .kind = STORE_LOCK, .capacity = STORE_ALL, .weight = forms[i].weight, .seq = 0x1f};
        char node[NAMES_CLAIM_SIZE];
        struct names_claim claim;
        names_format_claim(layout, &op, client, node);
        CHECK_EQ_STR(node, forms[i].node);
        strcat(node, "0000000042");
        CHECK(names_parse_claim(layout, text_of(node), &claim));
        CHECK(!claim.is_foreign && !claim.is_unknown);
        CHECK_EQ_INT(claim.kind, STORE_LOCK);
        CHECK_EQ_INT(claim.weight, forms[i].weight);
        CHECK_EQ_INT(claim.seq, 0x1f);
        CHECK_EQ_INT(claim.number, 42);
        CHECK(memcmp(claim.client, client, sizeof(client)) == 0);
    }
}

TEST(claims_of_other_libraries_are_recognised) {
    static const struct {
        const char *layout, *node;
        uint32_t weight; /* 0: not a claim */
        int32_t number;
        bool is_unknown;
    } claims[] = {
        {"curator", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-lock-0000000007", STORE_ALL, 7, 0},
        {"curator", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-lock--2147483648", STORE_ALL,
         INT32_MIN, 0},
        {"curator", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-__WRIT__0000000007", STORE_ALL, 7, 1},
        {"curator", "lock-0000000007", STORE_ALL, 7, 1},
        {"curator", "leases", 0, 0, 0},
        {"curator-rw", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-__WRIT__0000000007", STORE_ALL, 7,
         0},
        {"curator-rw", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-__READ__0000000007", 1, 7, 0},
        {"curator-rw", "_c_8e1e61b7-1d3a-4c0e-9d4c-5f0d1a2b3c4d-lock-0000000007", STORE_ALL, 7, 1},
        {"kazoo", "8e1e61b71d3a4c0e9d4c5f0d1a2b3c4d__lock__0000000007", STORE_ALL, 7, 0},
        {"kazoo", "8e1e61b71d3a4c0e9d4c5f0d1a2b3c4d__rlock__0000000007", 1, 7, 0},
        {"kazoo", "8e1e61b71d3a4c0e9d4c5f0d1a2b3c4d__lock__", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        struct names_claim claim;
        const struct names_layout *layout = layout_of(claims[i].layout);
        bool is_claim = names_parse_claim(layout, text_of(claims[i].node), &claim);
        CHECK_EQ_INT(is_claim, claims[i].weight > 0);
        if (!is_claim)
            continue;
        CHECK(claim.is_foreign);
        CHECK_EQ_INT(claim.is_unknown, claims[i].is_unknown);
        CHECK_EQ_INT(claim.weight, claims[i].weight);
        CHECK_EQ_INT(claim.number, claims[i].number);
        CHECK_EQ_STR(claim.node, claims[i].node);
    }
}

/* A list of claims as a server sends it. */
static struct codec_in listing(const char *const *kinds, const char *const *numbers, size_t count) {
    static unsigned char bytes[4096];
    size_t size = 4;
    memset(bytes, 0, sizeof(bytes));
    bytes[3] = (unsigned char)count;
    for (size_t i = 0; i < count; i++) {
        int length =
            snprintf((char *)bytes + size + 4, 128, "%s-%032d-1-%s", kinds[i], 0, numbers[i]);
        bytes[size + 3] = (unsigned char)length;
        size += 4 + (size_t)length;
    }
    return (struct codec_in){.at = bytes, .left = size};
}

static size_t holders(const char *const *kinds, size_t count) {
    static const char *const numbers[] = {"0000000001", "0000000002", "0000000003", "0000000004"};
    struct codec_in in = listing(kinds, numbers, count);
    struct names_claim *claims;
    size_t read;
    CHECK_EQ_INT(names_read_claims(names_layouts, &in, &claims, &read), HF_OK);
    CHECK_EQ_INT(read, count);
    size_t found = names_holders(claims, read);
    free(claims);
    return found;
}

TEST(those_hold_a_lock_that_fit_from_the_first_on) {
    CHECK_EQ_INT(holders(NULL, 0), 0);
    CHECK_EQ_INT(holders((const char *[]){"x", "x"}, 2), 1);
    CHECK_EQ_INT(holders((const char *[]){"s", "s", "x", "s"}, 4), 2);
    CHECK_EQ_INT(holders((const char *[]){"x", "s"}, 2), 1);
    CHECK_EQ_INT(holders((const char *[]){"p3of4", "p2of4", "p1of4"}, 3), 1); /* nobody overtakes */
    CHECK_EQ_INT(holders((const char *[]){"p1of4", "p2of4", "p1of4", "p1of4"}, 4), 3);
}

/* Otherwise the third would hold it, and the second as well once the first is gone. */
TEST(nobody_holds_a_lock_behind_a_claim_of_another_kind) {
    CHECK_EQ_INT(holders((const char *[]){"p2of4", "p1of1", "p1of4"}, 3), 1);
    CHECK_EQ_INT(holders((const char *[]){"s", "p1of4", "s"}, 3), 1);
}

TEST(the_order_survives_the_wrap_of_the_numbers) {
    static const char *const kinds[] = {"x", "x", "x"};
    static const char *const numbers[] = {"-2147483647", "2147483647", "-2147483648"};
    struct codec_in in = listing(kinds, numbers, 3);
    struct names_claim *claims;
    size_t count;
    CHECK_EQ_INT(names_read_claims(names_layouts, &in, &claims, &count), HF_OK);
    CHECK_EQ_INT(count, 3);
    CHECK(claims[0].number == INT32_MAX && claims[1].number == INT32_MIN);
    free(claims);
}
