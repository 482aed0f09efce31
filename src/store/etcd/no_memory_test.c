/* Fails each allocation in turn that the etcd store makes, including those of libnghttp2 and
 * protobuf-c: each operation completes once, with a clear outcome, nothing leaks (AddressSanitizer
 * checks), nothing spins. */
#define TEST_TIMEOUT_S 200
#include "store/etcd/etcd_test.h"

#include <errno.h>

/* A call with an allocator does not fail here: the allocator does. */
ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t size,
                                                   const uint8_t *bytes);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t size,
                                                   const uint8_t *bytes);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t size,
                                                   const uint8_t *bytes) {
    return !allocator && fail_now(ENOMEM)
               ? NULL
               : __real_protobuf_c_message_unpack(descriptor, allocator, size, bytes);
}
FAILING_CALL(int, nghttp2_session_client_new, ENOMEM, NGHTTP2_ERR_NOMEM,
             (nghttp2_session * *ret, const nghttp2_session_callbacks *callbacks, void *context),
             (ret, callbacks, context))
FAILING_CALL(int32_t, nghttp2_submit_request, ENOMEM, NGHTTP2_ERR_NOMEM,
             (nghttp2_session * session, const nghttp2_priority_spec *priority,
              const nghttp2_nv *headers, size_t count, const nghttp2_data_provider *source,
              void *context),
             (session, priority, headers, count, source, context))

/* ---- Words of the tests ---- */

static struct rig rig;
static struct asked asked[6], held, other;

static void hang_up_all(void) {
    for (size_t i = fake_stream_count(rig.world); i-- > 0;) {
        if (fake_stream(rig.world, i)->owner)
            fake_hang_up(fake_stream(rig.world, i), "reset");
    }
}

/* Opens a store that holds "held" and "other". Allocations do not fail until that is done. */
static void open_unfailing(void) {
    fail_pause();
    server_start();
    rig_open(&rig, "etcd://jo:secret@a,b?timeout=2000");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &held, "held", 0);
    CHECK_EQ_INT(held.op.outcome, STORE_DONE);
    ask_acquire(&rig, &other, "other", 0);
    CHECK_EQ_INT(other.op.outcome, STORE_DONE);
    fake_pass_us(rig.world, 2 * S); /* they are watched */
    fail_resume();
}

/* Each operation has completed, at the latest when its time is over. */
static void check_completed(size_t count) {
    fake_pass_us(rig.world, 10 * S);
    for (size_t i = 0; i < count; i++) {
        const struct store_op *op = &asked[i].op;
        CHECK_EQ_INT(asked[i].completions, 1);
        CHECK(op->outcome != STORE_NOT_YOURS || op->type == STORE_RENEW);
        CHECK(op->outcome != STORE_REFUSED || op->reason == HF_NO_MEMORY ||
              op->reason == HF_UNREACHABLE || op->reason == HF_BAD_STORE || op->reason == HF_BUSY);
        CHECK(fail_happened() || op->outcome == STORE_DONE || op->outcome == STORE_QUEUED ||
              op->reason == HF_BUSY);
        asked_clear(&asked[i]);
    }
}

static void release_as(struct asked *release, const struct asked *hold) {
    *release =
        (struct asked){.op = {.type = STORE_RELEASE, .name = hold->op.name, .seq = hold->op.seq}};
    list_init(&release->op.link);
    rig_submit(&rig, release);
    fake_settle(rig.world);
}

/* A refused operation was certainly not done. */
static void check_refused(const struct asked *acquire) {
    struct etcd_key key = {0}, end;
    key.size =
        (size_t)snprintf((char *)key.bytes, sizeof(key.bytes), "holdfast/%s/", acquire->op.name);
    etcd_end_of(&key, &end);
    if (acquire->op.outcome == STORE_REFUSED)
        CHECK_EQ_INT(next_in(0, etcd_bytes(&key), etcd_bytes(&end)), server.count);
}

static void over(void) {
    fail_pause();
    rig_close(&rig);
    server_stop();
    asked_clear(&held);
    asked_clear(&other);
}

/* ---- Stories ---- */

static void open_and_close(void) {
    char *why;
    int r = rig_open_url(&rig, "etcd://jo:secret@localhost,[::1]:7000?prefix=app/&timeout=5", &why);
    CHECK(r == HF_OK || r == HF_NO_MEMORY);
    CHECK(!rig.store == (r != HF_OK));
    free(why);
    rig_close(&rig);
}

TEST(opening_a_store_survives_failed_allocations) {
    fail_at_every_index(open_and_close);
}

static void first_use(void) {
    char *why;
    server_start();
    if (rig_open_url(&rig, "etcd://jo:secret@a,b?timeout=2000", &why) == HF_OK) {
        fake_serve(rig.world, serve_etcd, NULL);
        ask_acquire(&rig, &asked[0], "x", 0);
        check_completed(1);
    }
    free(why);
    over();
}

TEST(connecting_and_logging_in_survive_failed_allocations) {
    fail_at_every_index(first_use);
}

static void acquire_and_release(void) {
    open_unfailing();
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_acquire(&rig, &asked[1], "held", 0);
    ask_acquire(&rig, &asked[2], "other", STORE_WAIT);
    fake_pass_us(rig.world, 10 * S);
    check_refused(&asked[0]);
    CHECK(asked[1].op.outcome != STORE_DONE &&
          asked[2].op.outcome != STORE_DONE); /* they are held */
    release_as(&asked[3], &held);
    CHECK(asked[3].op.outcome != STORE_REFUSED || asked[3].op.reason == HF_NO_MEMORY);
    check_completed(4);
    over();
}

TEST(acquiring_queueing_and_releasing_survive_failed_allocations) {
    fail_at_every_index(acquire_and_release);
}

static void hand_off(void) {
    open_unfailing();
    ask_acquire(&rig, &asked[0], "held", STORE_WAIT);
    uint64_t seq = asked[0].op.seq;
    release_as(&asked[1], &held);
    check_completed(2);
    make_acquire(&asked[0], "held", STORE_WAIT);
    asked[0].op.seq = seq;
    rig_submit(&rig, &asked[0]);
    check_completed(1);
    over();
}

TEST(a_hand_off_survives_failed_allocations) {
    fail_at_every_index(hand_off);
}

static void renew(void) {
    open_unfailing();
    ask_renew(&rig, &asked[0], (struct asked *[]){&held, NULL, &other}, 3);
    fake_pass_us(rig.world, 10 * S);
    CHECK_EQ_INT(asked[0].completions, 1);
    for (int i = 0; i < 3; i += 2) {
        enum store_outcome outcome = asked[0].renewals[i].outcome;
        CHECK(outcome != STORE_NOT_YOURS);
        CHECK(fail_happened() || outcome == STORE_DONE);
    }
    asked_clear(&asked[0]);
    over();
}

TEST(renewing_survives_failed_allocations) {
    fail_at_every_index(renew);
}

/* Asks for a longer lease than the hold has. */
static void lengthen(void) {
    open_unfailing();
    asked[0] = (struct asked){.op = {.type = STORE_RENEW}};
    asked[0].renewals[0] = (struct store_renewal){.of = &held.op, .lease_us = 50 * S};
    asked[0].op.renewals = asked[0].renewals;
    asked[0].op.renewal_count = 1;
    rig_submit(&rig, &asked[0]);
    fake_pass_us(rig.world, 10 * S);
    CHECK_EQ_INT(asked[0].completions, 1);
    CHECK(asked[0].renewals[0].outcome != STORE_NOT_YOURS);
    CHECK(fail_happened() || asked[0].renewals[0].outcome == STORE_DONE);
    asked_clear(&asked[0]);
    over();
}

TEST(a_longer_lease_survives_failed_allocations) {
    fail_at_every_index(lengthen);
}

static void look(void) {
    open_unfailing();
    ask_inspect(&rig, &asked[0], "held");
    ask_list(&rig, &asked[1], "", 10);
    ask_examine(&rig, &asked[2]);
    check_completed(3);
    over();
}

TEST(looking_and_examining_survive_failed_allocations) {
    fail_at_every_index(look);
}

static void break_one(void) {
    open_unfailing();
    ask_break(&rig, &asked[0], "held", held.op.token);
    check_completed(1);
    ask_inspect(&rig, &asked[0], "held");
    check_completed(1);
    over();
}

TEST(breaking_survives_failed_allocations) {
    fail_at_every_index(break_one);
}

static void raise_the_floor(void) {
    open_unfailing();
    rig.host.token_floor = 1000000;
    ask_acquire(&rig, &asked[0], "x", 0);
    CHECK(asked[0].op.outcome != STORE_DONE || asked[0].op.token >= 1000000);
    check_completed(1);
    over();
}

TEST(raising_the_floor_of_tokens_survives_failed_allocations) {
    fail_at_every_index(raise_the_floor);
}

static void lose_connections(void) {
    open_unfailing();
    server.is_silent = true;
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_acquire(&rig, &asked[1], "held", STORE_WAIT);
    server.is_silent = false;
    hang_up_all();
    ask_inspect(&rig, &asked[2], "other");
    check_completed(3);
    over();
}

TEST(lost_connections_survive_failed_allocations) {
    fail_at_every_index(lose_connections);
}

static void watch_locks(void) {
    open_unfailing();
    asked[0] = (struct asked){.op = {.type = STORE_WATCH, .name = ""}};
    list_init(&asked[0].op.link);
    rig_submit(&rig, &asked[0]);
    fake_pass_us(rig.world, 2 * S);
    bool is_on = asked[0].completions && asked[0].op.outcome == STORE_DONE;
    release_as(&asked[1], &held);
    hang_up_all();
    ask_acquire(&rig, &asked[2], "x", 0);
    check_completed(3);
    fail_pause();
    fake_pass_us(rig.world, 20 * S);
    /* However much failed, the report is complete once there is memory again. */
    size_t before = rig.change_count;
    ask_acquire(&rig, &asked[0], "y", 0);
    fake_pass_us(rig.world, S);
    CHECK(!is_on || (before && rig.changes[rig.change_count - 1] == HF_CHANGE_ACQUIRED &&
                     strncmp(rig.change, "y ", 2) == 0));
    asked_clear(&asked[0]);
    over();
}

TEST(watching_survives_failed_allocations) {
    fail_at_every_index(watch_locks);
}

static void count(void) {
    open_unfailing();
    ask_count(&rig, &asked[0], "x", STORE_COUNT_ADD, 1);
    ask_count(&rig, &asked[1], "x", STORE_COUNT_GET, 0);
    asked[2] = (struct asked){.op = {.type = STORE_COUNT,
                                     .kind = STORE_COUNT_SWAP,
                                     .name = "y",
                                     .seq = 1000000,
                                     .lease_us = 50 * S}};
    list_init(&asked[2].op.link);
    rig_submit(&rig, &asked[2]);
    fake_settle(rig.world);
    ask_count(&rig, &asked[3], "y", STORE_COUNT_GET, 0); /* the counter has an expiry */
    server.overtakes = 3;
    ask_count(&rig, &asked[4], "x", STORE_COUNT_ADD, 1);
    check_completed(5);
    over();
}

TEST(counting_survives_failed_allocations) {
    fail_at_every_index(count);
}

static void close_halfway(void) {
    open_unfailing();
    server.is_silent = true;
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_renew(&rig, &asked[1], (struct asked *[]){&held, &other}, 2);
    ask_list(&rig, &asked[2], "", 5);
    release_as(&asked[3], &held);
    ask_count(&rig, &asked[4], "x", STORE_COUNT_ADD, 1);
    rig_close_store(&rig);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ_INT(asked[i].completions, 1);
        asked_clear(&asked[i]);
    }
    over();
}

TEST(closing_completes_all_operations_despite_failed_allocations) {
    fail_at_every_index(close_halfway);
}
