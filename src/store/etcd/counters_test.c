/* Which operations take effect, and only once; and what becomes of a counter's lease. */
#include "store/etcd/etcd_test.h"

#define COUNTER "holdfast/\0count/x"

static struct rig rig;
static struct asked a, b;

static const ProtobufCBinaryData counter = {sizeof COUNTER - 1, (uint8_t *)COUNTER};

static void connected(void) {
    server_start();
    rig_open(&rig, "etcd://a,b?timeout=1000");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_count(&rig, &b, "other", STORE_COUNT_GET, 0); /* takes the first number */
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
}

static void over(void) {
    rig_close(&rig);
    server_stop();
    asked_clear(&a);
    asked_clear(&b);
}

static const struct written *find_counter(void) {
    size_t index = next_in(0, counter, (ProtobufCBinaryData){0});
    return index < server.count ? &server.events[index] : NULL;
}

static void check_counter(const char *value) {
    const struct written *found = find_counter();
    CHECK(found && found->size == strlen(value) && memcmp(found->value, value, found->size) == 0);
}

static void put_counter(const char *value, int64_t lease) {
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    request.key = counter;
    request.value = (ProtobufCBinaryData){strlen(value), (uint8_t *)value};
    request.lease = lease;
    server.revision++;
    put(&request);
}

static void ask_with_expiry(enum store_count what, int64_t number) {
    a = (struct asked){.op = {.type = STORE_COUNT,
                              .name = "x",
                              .seq = 1,
                              .kind = (uint8_t)what,
                              .number = number,
                              .lease_us = 500 * S}};
    list_init(&a.op.link);
    rig_submit(&rig, &a);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(a.completions, 1);
}

static void repeat(void) {
    a.op.flags = 0;
    rig_submit(&rig, &a);
    fake_settle(rig.world);
}

TEST(a_repeat_gets_the_first_answer_and_changes_nothing) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5 && a.op.life_us == -1);
    put_counter("70", 0);
    repeat();
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5);
    check_counter("70");
    over();
}

TEST(a_mismatch_is_remembered_too) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_CAS, 5); /* expects 0, and there is none */
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == (STORE_MISMATCH | STORE_ABSENT));
    put_counter("0", 0);
    repeat();
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == (STORE_MISMATCH | STORE_ABSENT));
    check_counter("0");
    over();
}

TEST(a_request_that_comes_after_a_later_one_does_nothing) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    CHECK_EQ_INT(b.op.value, 6);
    repeat();
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    check_counter("6");
    over();
}

/* The counter is the same as when the request was sent, but the answer is not. */
TEST(a_request_that_arrives_after_its_repeat_was_answered_does_nothing) {
    connected();
    server.delays_a_put = true;
    ask_with_expiry(STORE_COUNT_ADD, 5);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK(server.late && !find_counter());
    repeat();
    fake_pass_us(rig.world, S / 2);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5);
    server.revision++;
    CHECK(delete_key(counter));
    bool is_done = true;
    for (size_t i = 0; i < server.late->n_compare; i++)
        is_done = is_done && is_true(server.late->compare[i]);
    CHECK(!is_done);
    etcd__txn_request__free_unpacked(server.late, NULL);
    over();
}

TEST(what_is_not_a_number_is_not_touched) {
    connected();
    put_counter("much", 0);
    ask_count(&rig, &a, "x", STORE_COUNT_SWAP, 5);
    CHECK(a.op.outcome == STORE_REFUSED && a.op.reason == HF_WRONG_KIND);
    check_counter("much");
    ask_count(&rig, &b, "x", STORE_COUNT_GET, 0);
    CHECK(b.op.outcome == STORE_REFUSED && b.op.reason == HF_WRONG_KIND);
    over();
}

TEST(a_counter_is_created_with_its_lease_and_keeps_it) {
    connected();
    ask_with_expiry(STORE_COUNT_SWAP, 5);
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_ABSENT);
    CHECK(find_counter()->lease && !server.revoked);
    int64_t lease = find_counter()->lease;
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    CHECK(b.op.outcome == STORE_DONE && b.op.value == 6 && b.op.life_us > 0);
    CHECK_EQ_INT(find_counter()->lease, lease);
    check_counter("6");
    over();
}

static void create_meanwhile(void) {
    if (!find_counter())
        put_counter("40", 0);
}

TEST(a_lease_is_revoked_if_somebody_else_has_created_the_counter) {
    connected();
    server.on_grant = create_meanwhile;
    ask_with_expiry(STORE_COUNT_ADD, 2);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 42 && a.op.life_us == -1);
    check_counter("42");
    CHECK(!find_counter()->lease && server.revoked);
    over();
}

TEST(a_lease_is_left_alone_while_its_counter_may_exist) {
    connected();
    ask_count(&rig, &b, "other", STORE_COUNT_ADD, 1); /* so that there is a lease for answers */
    server.loses_puts = true;
    ask_with_expiry(STORE_COUNT_ADD, 2);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    CHECK(find_counter()->lease && !server.revoked);
    server.loses_puts = false;
    a.op.lease_us = 500 * S;
    repeat();
    fake_pass_us(rig.world, S / 2);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 2 && a.op.life_us > 0);
    CHECK(find_counter()->lease && !server.revoked);
    over();
}

/* Answers have a lease of four minutes, and need two of them. */
TEST(answers_share_a_lease_that_is_replaced_in_time) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
    int64_t first = server.last_lease;
    fake_pass_us(rig.world, 100 * S);
    ask_count(&rig, &a, "y", STORE_COUNT_ADD, 1);
    CHECK_EQ_INT(server.last_lease, first);
    fake_pass_us(rig.world, 25 * S);
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
    CHECK(server.last_lease != first);
    CHECK_EQ_INT(a.op.value, 2);
    over();
}

TEST(a_count_that_others_overtake_goes_on) {
    connected();
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    server.overtakes = 3;
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
    fake_pass_us(rig.world, S / 2);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 32);
    check_counter("32");
    over();
}
