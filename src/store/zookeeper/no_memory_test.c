/* Fails each allocation in turn that the ZooKeeper store makes: each operation completes once, with
 * a clear outcome, nothing leaks (AddressSanitizer checks), nothing spins, and no claim stays
 * behind that nobody knows of. */
#define TEST_TIMEOUT_S 200
#include "store/zookeeper/zookeeper_test.h"

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
    rig_open(&rig, "zookeeper://jo:secret@a,b?timeout=2000");
    fake_serve(rig.world, serve_zookeeper, NULL);
    ask_acquire(&rig, &held, "held", 0);
    CHECK_EQ_INT(held.op.outcome, STORE_DONE);
    ask_acquire(&rig, &other, "other", 0);
    CHECK_EQ_INT(other.op.outcome, STORE_DONE);
    fail_resume();
}

/* Each operation has completed, at the latest when its time is over. */
static void check_completed(size_t count) {
    fake_pass_us(rig.world, 5 * S);
    for (size_t i = 0; i < count; i++) {
        const struct store_op *op = &asked[i].op;
        CHECK_EQ_INT(asked[i].completions, 1);
        CHECK(op->outcome != STORE_NOT_YOURS);
        CHECK(op->outcome != STORE_REFUSED || op->reason == HF_NO_MEMORY ||
              op->reason == HF_UNREACHABLE || op->reason == HF_BUSY);
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

/* A refused operation leaves nothing behind, once there is memory again. */
static void check_left_behind(const char *name, const struct asked *acquire) {
    fail_pause();
    fake_pass_us(rig.world, 5 * S);
    if (acquire->op.outcome == STORE_REFUSED)
        CHECK_EQ_INT(claims_on(name), 0);
    fail_resume();
}

static void over(void) {
    fail_pause();
    rig_close(&rig);
    asked_clear(&held);
    asked_clear(&other);
}

/* ---- Stories ---- */

static void open_and_close(void) {
    char *why;
    int r = rig_open_url(&rig, "zookeeper://jo:secret@localhost,[::1]:7000/chroot?timeout=5", &why);
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
    if (rig_open_url(&rig, "zookeeper://jo:secret@a,b?timeout=2000", &why) == HF_OK) {
        fake_serve(rig.world, serve_zookeeper, NULL);
        ask_acquire(&rig, &asked[0], "x", 0);
        fake_pass_us(rig.world, 5 * S);
        check_left_behind("x", &asked[0]);
        check_completed(1);
    }
    free(why);
    over();
}

TEST(connecting_and_the_first_lock_survive_failed_allocations) {
    fail_at_every_index(first_use);
}

static void acquire_and_release(void) {
    open_unfailing();
    ask_acquire(&rig, &asked[0], "x", STORE_WAIT);
    ask_acquire(&rig, &asked[1], "held", 0);
    ask_acquire(&rig, &asked[2], "other", STORE_WAIT);
    fake_pass_us(rig.world, 5 * S);
    CHECK(asked[1].op.outcome != STORE_DONE &&
          asked[2].op.outcome != STORE_DONE); /* they are held */
    check_left_behind("x", &asked[0]);
    release_as(&asked[3], &held);
    check_completed(4);
    fail_pause();
    fake_pass_us(rig.world, 5 * S);
    CHECK_EQ_INT(claims_on("held"), 0); /* a release is carried out, sooner or later */
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

static void wait_for_permits(void) {
    open_unfailing();
    make_acquire(&asked[0], "permits", STORE_WAIT);
    make_acquire(&asked[1], "permits", STORE_WAIT);
    for (int i = 0; i < 2; i++) {
        make_share(&asked[i]);
        asked[i].op.weight = 3;
        rig_submit(&rig, &asked[i]);
        fake_settle(rig.world);
    }
    fake_pass_us(rig.world, 5 * S);
    CHECK(asked[0].op.outcome != STORE_DONE || asked[1].op.outcome != STORE_DONE);
    check_completed(2);
    over();
}

TEST(waiting_for_permits_survives_failed_allocations) {
    fail_at_every_index(wait_for_permits);
}

static void renew(void) {
    open_unfailing();
    ask_renew(&rig, &asked[0], (struct asked *[]){&held, NULL, &other}, 3);
    fake_pass_us(rig.world, 5 * S);
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

static void look(void) {
    open_unfailing();
    ask_inspect(&rig, &asked[0], "held");
    ask_list(&rig, &asked[1], "", 10);
    check_completed(2);
    over();
}

TEST(looking_survives_failed_allocations) {
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
    ask_acquire(&rig, &asked[0], "x", STORE_WAIT);
    fake_pass_us(rig.world, 5 * S);
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
    ask_acquire(&rig, &asked[0], "x", STORE_WAIT);
    ask_acquire(&rig, &asked[1], "held", STORE_WAIT);
    server.is_silent = false;
    hang_up_all();
    ask_inspect(&rig, &asked[2], "other");
    check_completed(3);
    CHECK_EQ_INT(rig.gone_count, 0); /* the session continues */
    over();
}

TEST(lost_connections_survive_failed_allocations) {
    fail_at_every_index(lose_connections);
}

static void lose_the_session(void) {
    open_unfailing();
    server.is_expired = true;
    hang_up_all();
    fail_pause();
    fake_pass_us(rig.world, 60 * S);
    CHECK_EQ_INT(rig.gone_count, 2);
    fail_resume();
    ask_acquire(&rig, &asked[0], "held", STORE_WAIT);
    check_completed(1);
    over();
}

TEST(the_end_of_the_session_is_reported_despite_failed_allocations) {
    fail_at_every_index(lose_the_session);
}

static void count(void) {
    open_unfailing();
    ask_count(&rig, &asked[0], "x", STORE_COUNT_ADD, 1);
    ask_count(&rig, &asked[1], "x", STORE_COUNT_GET, 0);
    ask_count(&rig, &asked[2], "y", STORE_COUNT_REMOVE, 0);
    server.overtakes = 3;
    ask_count(&rig, &asked[3], "x", STORE_COUNT_ADD, 1);
    check_completed(4);
    over();
}

TEST(counting_survives_failed_allocations) {
    fail_at_every_index(count);
}

/* Counts so often that some of the counts look for old answers. */
static void count_often(void) {
    open_unfailing();
    for (int i = 0; i < 40; i++) {
        ask_count(&rig, &asked[0], "x", STORE_COUNT_ADD, 1);
        server.now_ms += 3600000;
        check_completed(1);
        ask_count(&rig, &asked[0], i % 2 ? "y" : "z", STORE_COUNT_ADD, 1);
        check_completed(1);
    }
    over();
}

TEST(removing_old_answers_survives_failed_allocations) {
    fail_at_every_index(count_often);
}

static void close_halfway(void) {
    open_unfailing();
    server.is_silent = true;
    ask_acquire(&rig, &asked[0], "x", STORE_WAIT);
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
