/* The subscription: waiters are woken, lost holds are reported, and silence is noticed.
 * (FAILURES.md: 22) */
#include "check.h"
#include "support/fake_redis.h"

#define CHECK_COMMAND(stream, expected) CHECK_EQ_STR(next_command(stream), expected)
#define CHANNEL "holdfast:@00112233445566778899aabbccddeeff"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$42\r\n" CHANNEL "\r\n:1\r\n"
#define KEY_CHANNEL "__keyspace@0__:holdfast:"
#define KEY_SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$25\r\n" KEY_CHANNEL "x\r\n:2\r\n"
#define PONG "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
#define QUEUED "*4\r\n$6\r\nqueued\r\n:100\r\n:0\r\n:0\r\n"

enum { MS = 1000, S = 1000000 };

static struct rig rig;
static struct asked a, b;

/* Somebody waits, and so the second connection is being opened. */
static struct fake_stream *waiting(const char *url) {
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    fake_accept(fake_stream(rig.world, 0));
    fake_answer_text(fake_stream(rig.world, 0), QUEUED);
    CHECK_EQ_INT(a.op.outcome, STORE_QUEUED);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    return fake_stream(rig.world, 1);
}

static struct fake_stream *subscribed(void) {
    struct fake_stream *stream = waiting("redis://localhost");
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE " CHANNEL);
    fake_answer_text(stream, SUBSCRIBED);
    CHECK_EQ_INT(rig.woken_count, 1);
    rig.woken_count = 0;
    return stream;
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
}

static void message(struct fake_stream *stream, const char *text, size_t size) {
    char head[128];
    snprintf(head, sizeof(head), "*3\r\n$7\r\nmessage\r\n$42\r\n" CHANNEL "\r\n$%zu\r\n", size);
    fake_answer_text(stream, head);
    fake_answer(stream, text, size);
    fake_answer_text(stream, "\r\n");
}

static void key_message(struct fake_stream *stream, const char *name, const char *event) {
    char bytes[160];
    snprintf(bytes, sizeof(bytes),
             "*3\r\n$7\r\nmessage\r\n$%zu\r\n" KEY_CHANNEL "%s\r\n$%zu\r\n%s\r\n",
             strlen(KEY_CHANNEL) + strlen(name), name, strlen(event), event);
    fake_answer_text(stream, bytes);
}

#define MESSAGE(stream, literal) message(stream, literal, sizeof(literal) - 1)

/* ---- Who listens ---- */

static struct fake_stream *commands(void) {
    return fake_stream(rig.world, 0);
}

/* Acquires the lock. */
static void grant(struct asked *asked, const char *name) {
    ask_acquire(&rig, asked, name, 0);
    if (!commands()->accepted)
        fake_accept(commands());
    fake_answer_text(commands(), "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n");
    CHECK_EQ_INT(asked->op.outcome, STORE_DONE);
}

static void release(struct asked *asked, const struct asked *held) {
    make_acquire(asked, held->op.name, 0);
    asked->op.type = STORE_RELEASE;
    asked->op.seq = held->op.seq;
    rig_submit(&rig, asked);
    fake_settle(rig.world);
}

/* A lock has been held long enough for the client to subscribe; the server has not confirmed
 * yet. */
static struct fake_stream *listening(const char *url) {
    rig_open(&rig, url);
    grant(&a, "x");
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE " CHANNEL);
    return stream;
}

TEST(who_holds_for_a_moment_only_subscribes_to_nothing) {
    rig_open(&rig, "redis://localhost");
    for (int i = 0; i < 100; i++) {
        grant(&a, "x");
        fake_pass_us(rig.world, S / 2 - 1);
        release(&b, &a);
        fake_answer_text(commands(), ":1\r\n");
        asked_clear(&a);
        asked_clear(&b);
    }
    fake_pass_us(rig.world, 10 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    over();
}

TEST(who_holds_for_longer_subscribes_for_its_hold_may_be_broken) {
    rig_open(&rig, "redis://localhost");
    grant(&a, "x");
    fake_pass_us(rig.world, S - 1);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    fake_pass_us(rig.world, 1);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    over();
}

TEST(a_hold_is_checked_once_the_subscription_is_confirmed_for_it_may_have_come_too_late) {
    struct fake_stream *stream = listening("redis://localhost");
    CHECK_EQ_INT(rig.checked_count, 0);
    fake_answer_text(stream, SUBSCRIBED);
    CHECK_EQ_INT(rig.checked_count, 1);
    CHECK_EQ_INT(rig.checked[0], a.op.seq);
    fake_answer_text(stream, KEY_SUBSCRIBED);
    CHECK_EQ_INT(rig.checked_count, 1);
    over();
}

TEST(the_channel_of_a_held_key_is_listened_to_until_its_release) {
    struct fake_stream *stream = listening("redis://localhost");
    CHECK_COMMAND(stream, "SUBSCRIBE " KEY_CHANNEL "x");
    fake_answer_text(stream, SUBSCRIBED KEY_SUBSCRIBED);
    grant(&b, "y");
    fake_pass_us(rig.world, S);
    CHECK_COMMAND(stream, "SUBSCRIBE " KEY_CHANNEL "y");
    asked_clear(&b);
    release(&b, &a);
    CHECK_COMMAND(stream, "UNSUBSCRIBE " KEY_CHANNEL "x");
    CHECK_COMMAND(stream, "");
    over();
}

TEST(after_a_reconnection_the_keys_of_all_holds_are_listened_to_and_checked) {
    struct fake_stream *stream = listening("redis://localhost");
    fake_answer_text(stream, SUBSCRIBED KEY_SUBSCRIBED);
    rig.checked_count = 0;
    fake_hang_up(stream, "reset");
    fake_pass_us(rig.world, 20 * MS);
    stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE " CHANNEL);
    CHECK_COMMAND(stream, "SUBSCRIBE " KEY_CHANNEL "x");
    fake_answer_text(stream, SUBSCRIBED);
    CHECK_EQ_INT(rig.checked_count, 1);
    over();
}

/* A message about a key says neither whose hold it was nor when, so it decides nothing. */
TEST(what_happens_to_the_key_of_a_hold_has_it_checked) {
    static const char *const events[] = {"del", "expired", "evicted", "set", "rename_from"};
    struct fake_stream *stream = listening("redis://localhost");
    fake_answer_text(stream, SUBSCRIBED KEY_SUBSCRIBED);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        rig.checked_count = 0;
        key_message(stream, "x", events[i]);
        CHECK_EQ_INT(rig.checked_count, 1);
        CHECK_EQ_INT(rig.checked[0], a.op.seq);
    }
    rig.checked_count = 0;
    key_message(stream, "x", "expire"); /* which our own renewals do */
    key_message(stream, "xx", "del");
    key_message(stream, "", "del");
    CHECK_EQ_INT(rig.checked_count, 0);
    CHECK_EQ_INT(rig.gone_count, 0);
    over();
}

TEST(what_happens_to_the_key_after_the_release_is_nobody_s_business) {
    struct fake_stream *stream = listening("redis://localhost");
    fake_answer_text(stream, SUBSCRIBED KEY_SUBSCRIBED);
    rig.checked_count = 0;
    release(&b, &a);
    key_message(stream, "x", "del");
    CHECK_EQ_INT(rig.checked_count, 0);
    over();
}

/* As a set does, which does not wait for all votes. */
TEST(a_hold_that_was_released_before_its_grant_arrived_is_not_listened_for) {
    rig_open(&rig, "redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(commands());
    release(&b, &a);
    fake_answer_text(commands(), "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n:1\r\n");
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    fake_pass_us(rig.world, 10 * S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    over();
}

TEST(a_hold_that_a_renewal_did_not_find_is_no_longer_listened_for) {
    struct fake_stream *stream = listening("redis://localhost");
    CHECK_COMMAND(stream, "SUBSCRIBE " KEY_CHANNEL "x");
    fake_answer_text(stream, SUBSCRIBED KEY_SUBSCRIBED);
    ask_renew(&rig, &b, (struct asked *[]){&a}, 1);
    fake_answer_text(commands(), "*1\r\n:0\r\n");
    CHECK_COMMAND(stream, "UNSUBSCRIBE " KEY_CHANNEL "x");
    over();
}

TEST(who_may_not_listen_to_keys_still_has_its_own_channel) {
    struct fake_stream *stream = listening("redis://localhost");
    fake_answer_text(stream, SUBSCRIBED);
    fake_answer_text(stream,
                     "-NOPERM this user has no permissions to access one of the channels\r\n");
    CHECK(stream->owner);
    MESSAGE(stream, "g2a");
    CHECK_EQ_INT(rig.gone_count, 1);
    over();
}

TEST(the_key_s_channel_has_the_number_of_the_database_and_the_prefix) {
    rig_open(&rig, "redis://localhost/7?prefix=app:");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(commands());
    fake_answer_text(commands(), "+OK\r\n*2\r\n$4\r\ndone\r\n$1\r\n5\r\n");
    fake_pass_us(rig.world, S);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SELECT 7");
    fake_answer_text(stream, "+OK\r\n");
    CHECK_COMMAND(stream, "SUBSCRIBE app:@00112233445566778899aabbccddeeff");
    CHECK_COMMAND(stream, "SUBSCRIBE __keyspace@7__:app:x");
    over();
}

static char freed_name[16];

static void note_freed(struct store_host *host, const char *name) {
    (void)host;
    snprintf(freed_name, sizeof(freed_name), "%s", name);
}

TEST(without_a_prefix_the_channels_of_a_set_have_their_names_all_the_same) {
    rig_open(&rig, "redis://localhost?prefix=");
    rig_join(&rig, note_freed);
    grant(&a, "x");
    fake_pass_us(rig.world, S);
    struct fake_stream *stream = fake_last(rig.world);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE @00112233445566778899aabbccddeeff @votes");
    CHECK_COMMAND(stream, "SUBSCRIBE __keyspace@0__:x");
    fake_answer_text(stream, "*3\r\n$9\r\nsubscribe\r\n$6\r\n@votes\r\n:2\r\n");
    fake_answer_text(stream, "*3\r\n$7\r\nmessage\r\n$6\r\n@votes\r\n$1\r\nx\r\n");
    CHECK_EQ_STR(freed_name, "x");
    over();
}

TEST(the_channel_is_the_client_s_own_under_the_prefix) {
    rig_open(&rig, "redis://jo:secret@localhost/2?prefix=app:");
    ask_acquire(&rig, &a, "x", 0);
    for (size_t i = 0; i < 2; i++) {
        struct fake_stream *stream = fake_stream(rig.world, i);
        fake_accept(stream);
        CHECK_COMMAND(stream, "AUTH jo secret");
        CHECK_COMMAND(stream, "SELECT 2");
        CHECK_COMMAND(stream, "");
        fake_answer_text(stream, "+OK\r\n+OK\r\n");
        if (i == 0) {
            fake_answer_text(stream, "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n");
            fake_pass_us(rig.world, S);
        } else {
            CHECK_COMMAND(stream, "SUBSCRIBE app:@00112233445566778899aabbccddeeff");
        }
    }
    over();
}

/* ---- Messages ---- */

TEST(a_subscription_wakes_all_who_wait_for_it_may_have_come_too_late) {
    struct fake_stream *stream = waiting("redis://localhost");
    fake_accept(stream);
    CHECK_EQ_INT(rig.woken_count, 0);
    fake_answer_text(stream, SUBSCRIBED);
    CHECK_EQ_INT(rig.woken_count, 1);
    CHECK_EQ_INT(rig.woken[0], STORE_ALL_WAITING);
    over();
}

TEST(a_subscription_that_was_lost_is_restored_and_wakes_all_again) {
    struct fake_stream *stream = subscribed();
    fake_hang_up(stream, "reset");
    fake_pass_us(rig.world, 20 * MS);
    stream = fake_last(rig.world);
    CHECK(stream && !stream->accepted);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE " CHANNEL);
    CHECK_EQ_INT(rig.woken_count, 0);
    fake_answer_text(stream, SUBSCRIBED);
    CHECK_EQ_INT(rig.woken_count, 1);
    CHECK_EQ_INT(rig.woken[0], STORE_ALL_WAITING);
    over();
}

TEST(a_message_wakes_whom_it_names) {
    struct fake_stream *stream = subscribed();
    MESSAGE(stream, "w2a");
    CHECK_EQ_INT(rig.woken_count, 1);
    CHECK_EQ_INT(rig.woken[0], 0x2a);
    MESSAGE(stream, "wffffffffffffffff");
    CHECK(rig.woken[1] == UINT64_MAX);
    CHECK_EQ_INT(rig.gone_count, 0);
    over();
}

TEST(a_message_tells_whose_hold_is_gone) {
    struct fake_stream *stream = subscribed();
    MESSAGE(stream, "g2a");
    CHECK_EQ_INT(rig.gone_count, 1);
    CHECK_EQ_INT(rig.gone[0], 0x2a);
    CHECK_EQ_INT(rig.woken_count, 0);
    over();
}

TEST(messages_that_come_together_are_all_heard) {
    struct fake_stream *stream = subscribed();
    fake_answer_text(stream, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nw1\r\n"
                             "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\ng2\r\n*3\r\n$7\r\nmess");
    fake_answer_text(stream, "age\r\n$1\r\nc\r\n$2\r\nw3\r\n");
    CHECK_EQ_INT(rig.woken_count, 2);
    CHECK_EQ_INT(rig.woken[1], 3);
    CHECK_EQ_INT(rig.gone_count, 1);
    over();
}

TEST(garbage_that_is_well_formed_wakes_nobody) {
    struct fake_stream *stream = subscribed();
    static const char *const garbage[] = {
        ":1\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*3\r\n:1\r\n:2\r\n:3\r\n",
        "*1\r\n*1\r\n:1\r\n",
        "*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:5\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$-1\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\ng\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*0\r\n",
        PONG,
    };
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        fake_answer_text(stream, garbage[i]);
    CHECK_EQ_INT(rig.woken_count, 0);
    CHECK_EQ_INT(rig.gone_count, 0);
    CHECK(stream->owner);
    over();
}

/* Anybody may publish there. */
TEST(messages_that_are_none_of_ours_wake_nobody_and_end_nothing) {
    struct fake_stream *stream = subscribed();
    MESSAGE(stream, "w0");
    MESSAGE(stream, "gzzz");
    MESSAGE(stream, "g0");
    MESSAGE(stream, "g-1");
    MESSAGE(stream, "g 1");
    MESSAGE(stream, "g1\0001");
    MESSAGE(stream, "g2a ");
    MESSAGE(stream, "gfffffffffffffffff");
    MESSAGE(stream, "x1");
    MESSAGE(stream, "hello");
    MESSAGE(stream, "wx");
    CHECK_EQ_INT(rig.gone_count, 0);
    CHECK_EQ_INT(rig.woken_count, 0);
    over();
}

/* ---- Silence ---- */

TEST(a_silent_subscription_is_pinged_and_kept_while_it_answers) {
    struct fake_stream *stream = subscribed();
    for (int i = 0; i < 10; i++) {
        fake_pass_us(rig.world, 5 * S - 1);
        CHECK_COMMAND(stream, "");
        fake_pass_us(rig.world, 1);
        CHECK_COMMAND(stream, "PING");
        CHECK_COMMAND(stream, "");
        fake_answer_text(stream, PONG);
    }
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
    over();
}

TEST(messages_are_a_sign_of_life_too) {
    struct fake_stream *stream = subscribed();
    for (int i = 0; i < 10; i++) {
        fake_pass_us(rig.world, 4 * S);
        MESSAGE(stream, "w1");
    }
    CHECK_COMMAND(stream, "");
    over();
}

TEST(a_subscription_that_does_not_answer_a_ping_is_replaced) {
    struct fake_stream *stream = subscribed();
    fake_pass_us(rig.world, 7 * S - 1);
    CHECK(stream->owner);
    CHECK_COMMAND(stream, "PING");
    fake_pass_us(rig.world, 1);
    CHECK(!stream->owner);
    fake_pass_us(rig.world, 20 * MS);
    CHECK_EQ_INT(fake_stream_count(rig.world), 3);
    fake_accept(fake_last(rig.world));
    fake_answer_text(fake_last(rig.world), SUBSCRIBED);
    CHECK_EQ_INT(rig.woken_count, 1);
    over();
}

TEST(a_server_that_never_confirms_the_subscription_is_left) {
    struct fake_stream *stream = waiting("redis://localhost");
    fake_accept(stream);
    fake_pass_us(rig.world, 7 * S);
    CHECK(!stream->owner);
    over();
}

TEST(a_ping_for_which_there_is_no_memory_is_no_busy_loop) {
    struct fake_stream *stream = subscribed();
    fake_fail_send(rig.world, HF_NO_MEMORY);
    fake_pass_us(rig.world, 30 * S);
    fake_fail_send(rig.world, HF_OK);
    CHECK(!stream->owner || stream->size > 0);
    over();
}

/* ---- Servers that would make it spin ---- */

static const char *last_words;

static void say_and_hang_up(struct fake_stream *stream) {
    if (!stream->accepted)
        fake_accept(stream);
    if (stream->owner && *last_words)
        fake_answer_text(stream, last_words);
    if (stream->owner)
        fake_hang_up(stream, "the server hung up");
}

static void check_calm(const char *words) {
    last_words = words;
    struct fake_stream *stream = subscribed();
    fake_hang_up(stream, "reset");
    fake_serve(rig.world, say_and_hang_up, NULL);
    fake_pass_us(rig.world, 10 * S);
    CHECK(fake_stream_count(rig.world) < 50);
    CHECK(rig.woken_count < 50);
    over();
}

TEST(a_server_that_refuses_subscriptions_is_not_stormed) {
    check_calm("-NOPERM this user has no permissions to access one of the channels\r\n");
}

TEST(a_server_that_hangs_up_on_subscriptions_is_not_stormed) {
    check_calm("");
}

TEST(a_server_that_subscribes_and_hangs_up_is_not_stormed) {
    check_calm(SUBSCRIBED);
}

TEST(a_server_that_answers_subscriptions_with_garbage_is_not_stormed) {
    check_calm("?\r\n");
}

TEST(a_lost_subscription_costs_no_operation) {
    struct fake_stream *stream = subscribed();
    ask_release(&rig, &b, "x");
    fake_hang_up(stream, "reset");
    CHECK_EQ_INT(b.completions, 0);
    fake_answer_text(fake_stream(rig.world, 0), ":1\r\n");
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}
