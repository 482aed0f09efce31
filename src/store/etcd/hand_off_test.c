/* A hand-off: a waiter that was woken takes the lock in one transaction, if nobody is ahead of it.
 * Also the watches that wake waiters, and those that notify a holder when its hold ends. */
#include "store/etcd/etcd_test.h"

static struct rig rig;
static struct asked holds, waits, last, again;

static void start(void) {
    server_start();
    rig_open(&rig, "etcd://a");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &holds, "x", 0);
    CHECK_EQ_INT(holds.op.outcome, STORE_DONE);
    ask_acquire(&rig, &waits, "x", STORE_WAIT);
    CHECK_EQ_INT(waits.op.outcome, STORE_QUEUED);
}

static void over(void) {
    rig_close(&rig);
    server_stop();
}

static void release(const struct asked *of) {
    static struct asked release;
    release = (struct asked){.op = {.type = STORE_RELEASE, .name = "x", .seq = of->op.seq}};
    list_init(&release.op.link);
    rig_submit(&rig, &release);
    fake_settle(rig.world);
    CHECK_EQ_INT(release.op.outcome, STORE_DONE);
}

/* Asks again, as a waiter that was woken does. */
static enum store_outcome ask_again(const struct asked *waiter) {
    CHECK_EQ_INT(rig.woken_count, 1);
    CHECK_EQ_INT(rig.woken[0], waiter->op.seq);
    make_acquire(&again, "x", STORE_WAIT);
    again.op.seq = waiter->op.seq;
    rig_submit(&rig, &again);
    fake_settle(rig.world);
    return again.op.outcome;
}

TEST(a_hand_off_is_one_transaction) {
    start();
    release(&holds);
    size_t before = server.txns;
    CHECK_EQ_INT(ask_again(&waits), STORE_DONE);
    CHECK_EQ_INT(server.txns, before + 1);
    CHECK(again.op.token > holds.op.token);
    over();
}

TEST(who_is_woken_because_one_in_front_has_left_waits_on) {
    start();
    ask_acquire(&rig, &last, "x", STORE_WAIT);
    CHECK_EQ_INT(last.op.outcome, STORE_QUEUED);
    release(&waits);
    CHECK_EQ_INT(ask_again(&last), STORE_QUEUED);
    over();
}

TEST(who_barges_in_before_it_asks_is_ahead) {
    start();
    release(&holds);
    ask_acquire(&rig, &last, "x", STORE_BARGE);
    CHECK_EQ_INT(last.op.outcome, STORE_DONE);
    CHECK_EQ_INT(ask_again(&waits), STORE_QUEUED);
    over();
}

TEST(a_place_that_has_ended_is_no_claim) {
    start();
    struct etcd_key place = {0};
    for (size_t i = 0; i < server.count; i++) /* the last that was written */
        place = server.events[i].key;
    server.revision++;
    delete_key(etcd_bytes(&place)); /* by etcd, with its lease */
    release(&holds);
    ask_acquire(&rig, &last, "x", 0);
    CHECK_EQ_INT(last.op.outcome, STORE_DONE);
    CHECK_EQ_INT(ask_again(&waits), STORE_QUEUED); /* it starts again, at the end of the queue */
    over();
}

/* ---- Deletions that a compaction has swallowed ---- */

static void delete_and_compact(void) {
    struct etcd_key holder = server.events[0].key;
    server.revision++;
    delete_key(etcd_bytes(&holder));
    server.compacted = server.revision;
}

static void write_something(void) {
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    request.key = (ProtobufCBinaryData){5, (uint8_t *)"noise"};
    request.value.data = (uint8_t *)"";
    server.revision++;
    put(&request);
}

static void start_with(void (*before_watch)(void)) {
    server_start();
    rig_open(&rig, "etcd://a");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &holds, "x", 0);
    CHECK_EQ_INT(holds.op.outcome, STORE_DONE);
    server.before_watch = before_watch;
}

TEST(a_waiter_is_woken_by_a_release_that_was_compacted_before_it_watched) {
    start_with(delete_and_compact);
    ask_acquire(&rig, &waits, "x", STORE_WAIT);
    fake_settle(rig.world);
    CHECK_EQ_INT(waits.op.outcome, STORE_QUEUED);
    CHECK_EQ_INT(ask_again(&waits), STORE_DONE);
    over();
}

/* Its watcher starts after a write, which might have been the end of the hold. */
TEST(a_waiter_that_watches_while_others_write_looks_again_once) {
    start_with(write_something);
    ask_acquire(&rig, &waits, "x", STORE_WAIT);
    fake_settle(rig.world);
    CHECK_EQ_INT(rig.woken_count, 1);
    server.before_watch = write_something;
    CHECK_EQ_INT(ask_again(&waits), STORE_QUEUED);
    fake_settle(rig.world);
    CHECK(server.before_watch); /* the watcher is still the same */
    rig.woken_count = 0;
    release(&holds);
    CHECK_EQ_INT(ask_again(&waits), STORE_DONE);
    over();
}

TEST(a_waiter_that_watches_before_others_write_is_not_woken_by_them) {
    start_with(NULL);
    ask_acquire(&rig, &waits, "x", STORE_WAIT);
    fake_settle(rig.world);
    write_something();
    fake_settle(rig.world);
    CHECK_EQ_INT(rig.woken_count, 0);
    over();
}

TEST(a_hold_that_is_deleted_in_its_first_second_is_reported_after_it) {
    start_with(NULL);
    struct etcd_key holder = server.events[0].key;
    server.revision++;
    delete_key(etcd_bytes(&holder));
    CHECK_EQ_INT(rig.gone_count, 0);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(rig.gone_count, 1);
    CHECK_EQ_INT(rig.gone[0], holds.op.seq);
    over();
}

TEST(a_hold_is_checked_if_its_deletion_was_compacted_before_it_was_watched) {
    start_with(NULL);
    delete_and_compact();
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(rig.checked_count, 1);
    CHECK_EQ_INT(rig.checked[0], holds.op.seq);
    over();
}
