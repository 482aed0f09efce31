/* Keys whose deletion goes wrong, and those that do not get the lease they should: the lease that
 * they share with other attempts must not keep them forever, and a hold must not be taken for lost.
 * The failures are rows 18, 24 and 29 of FAILURES.md. */
#include "store/etcd/etcd_test.h"

static struct rig rig;
static struct asked kept, a, b;

static void submit_renewal(struct asked *renewal, const struct asked *hold, int64_t lease_us) {
    *renewal = (struct asked){.op = {.type = STORE_RENEW, .renewal_count = 1}};
    renewal->renewals[0] = (struct store_renewal){.of = &hold->op, .lease_us = lease_us};
    renewal->op.renewals = renewal->renewals;
    list_init(&renewal->op.link);
    rig_submit(&rig, renewal);
}

static void renew(const struct asked *hold) {
    struct asked renewal;
    submit_renewal(&renewal, hold, 30 * S);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(renewal.completions, 1);
    asked_clear(&renewal);
}

/* A store that holds "kept", whose lease the attempts of the test share. */
static void connected(void) {
    server_start();
    rig_open(&rig, "etcd://a,b?timeout=1000");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_acquire(&rig, &kept, "kept", 0);
    CHECK_EQ_INT(kept.op.outcome, STORE_DONE);
}

static void over(void) {
    rig_close(&rig);
    server_stop();
    asked_clear(&kept);
    asked_clear(&a);
    asked_clear(&b);
}

static bool has_key(const char *name) {
    struct etcd_key key = {0}, end;
    key.size = (size_t)snprintf((char *)key.bytes, sizeof(key.bytes), "holdfast/%s/", name);
    etcd_end_of(&key, &end);
    return next_in(0, etcd_bytes(&key), etcd_bytes(&end)) < server.count;
}

/* A lock of etcd's own client at this name. */
static struct etcd_key take_as_another(const char *name) {
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    struct etcd_key key = {0};
    key.size = (size_t)snprintf((char *)key.bytes, sizeof(key.bytes), "holdfast/%s/1f", name);
    request.key = etcd_bytes(&key);
    request.value.data = (uint8_t *)"";
    request.lease = 0x1f;
    server.revision++;
    put(&request);
    return key;
}

static void release(struct asked *release, const struct asked *hold) {
    *release =
        (struct asked){.op = {.type = STORE_RELEASE, .name = hold->op.name, .seq = hold->op.seq}};
    list_init(&release->op.link);
    rig_submit(&rig, release);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(release->completions, 1);
}

/* The unanswered requests of the first connection are executed only now. */
static void take_late(const char *name) {
    CHECK(!has_key(name));
    for (struct request *late = server.connections[0].requests; late; late = late->next) {
        if (strstr(late->path, "KV/Txn"))
            serve_request(late);
    }
    CHECK(has_key(name));
}

static void check_keep_alives_delete(const char *name) {
    for (int i = 0; i < 5; i++) {
        fake_pass_us(rig.world, 15 * S);
        renew(&kept);
    }
    CHECK(!has_key(name));
    CHECK(has_key("kept"));
}

TEST(a_hold_that_was_not_renewed_is_deleted_although_the_first_deletion_was_lost) {
    connected();
    ask_acquire(&rig, &a, "ended", 0);
    fake_pass_us(rig.world, 20 * S);
    renew(&kept);
    fake_pass_us(rig.world, 11 * S);
    server.is_silent = true;
    renew(&kept);
    CHECK(has_key("ended"));
    server.is_silent = false;
    renew(&kept);
    CHECK(!has_key("ended"));
    CHECK(has_key("kept"));
    over();
}

TEST(a_place_whose_release_was_lost_is_deleted_with_the_next_keep_alive) {
    connected();
    take_as_another("x");
    take_as_another("y");
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    ask_acquire(&rig, &b, "y", STORE_WAIT);
    CHECK_EQ_INT(a.op.outcome, STORE_QUEUED);
    server.is_silent = true;
    struct asked lost;
    release(&lost, &a);
    CHECK_EQ_INT(lost.op.outcome, STORE_UNKNOWN);
    asked_clear(&lost);
    server.is_silent = false;
    fake_pass_us(rig.world, 3 * S);
    size_t before = server.count;
    rig_submit(&rig, &b); /* this keeps the lease of both */
    fake_settle(rig.world);
    CHECK_EQ_INT(b.op.outcome, STORE_QUEUED);
    CHECK_EQ_INT(server.count, before + 1);
    CHECK(server.events[before].is_deleted);
    over();
}

/* The first request is executed after the lock has been refused on another connection and is free
 * again. */
TEST(a_refused_attempt_that_takes_the_lock_late_is_deleted) {
    connected();
    struct etcd_key other = take_as_another("x");
    server.is_silent = true;
    ask_acquire(&rig, &a, "x", 0);
    server.is_silent = false;
    fake_hang_up(fake_last(rig.world), "reset");
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_BUSY);
    delete_key(etcd_bytes(&other));
    take_late("x");
    check_keep_alives_delete("x");
    over();
}

/* The first request asks for the lease of a hold, which "kept" also has. The place in the queue has
 * another one, which nobody keeps alive. */
TEST(a_released_place_that_takes_the_lock_late_is_deleted_whatever_its_lease) {
    connected();
    struct etcd_key other = take_as_another("x");
    struct asked done;
    server.is_silent = true;
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    server.is_silent = false;
    fake_hang_up(fake_last(rig.world), "reset");
    CHECK_EQ_INT(a.op.outcome, STORE_QUEUED);
    release(&done, &a);
    CHECK_EQ_INT(done.op.outcome, STORE_DONE);
    asked_clear(&done);
    delete_key(etcd_bytes(&other));
    take_late("x");
    check_keep_alives_delete("x");
    over();
}

/* There is a lease of the right length, used by another hold, but the key cannot be written. */
TEST(a_hold_whose_longer_lease_is_refused_is_still_held) {
    connected();
    make_acquire(&b, "long", 0);
    b.op.lease_us = 60 * S;
    rig_submit(&rig, &b);
    fake_settle(rig.world);
    ask_acquire(&rig, &a, "x", 0);
    server.is_full = true;
    struct asked renewal;
    submit_renewal(&renewal, &a, 60 * S);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(renewal.completions, 1);
    CHECK_EQ_INT(renewal.renewals[0].outcome, STORE_REFUSED);
    CHECK_EQ_INT(renewal.renewals[0].reason, HF_STORE_FULL);
    asked_clear(&renewal);
    submit_renewal(&renewal, &a, 30 * S);
    fake_pass_us(rig.world, 2 * S);
    CHECK_EQ_INT(renewal.renewals[0].outcome, STORE_DONE);
    asked_clear(&renewal);
    over();
}

/* The renewal takes several steps. The key is gone after the first of them. */
TEST(a_hold_may_be_released_while_a_renewal_lengthens_its_lease) { /* row 24 */
    connected();
    ask_acquire(&rig, &a, "x", 0);
    struct asked renewal, done;
    submit_renewal(&renewal, &a, 60 * S);
    release(&done, &a);
    CHECK_EQ_INT(done.op.outcome, STORE_DONE);
    CHECK_EQ_INT(renewal.completions, 1);
    CHECK_EQ_INT(renewal.renewals[0].outcome, STORE_NOT_YOURS);
    CHECK(!has_key("x"));
    asked_clear(&renewal);
    asked_clear(&done);
    over();
}
