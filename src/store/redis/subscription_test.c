/* The subscription: who waits is woken, who has lost its hold is told, and silence is noticed.
 * (failures.md: 22) */
#include "check.h"
#include "support/fake_redis.h"

#define CHECK_COMMAND(stream, expected) CHECK_EQ_STR(next_command(stream), expected)
#define CHANNEL "holdfast:@00112233445566778899aabbccddeeff"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$42\r\n" CHANNEL "\r\n:1\r\n"
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

#define MESSAGE(stream, literal) message(stream, literal, sizeof(literal) - 1)

TEST(who_does_not_wait_subscribes_to_nothing) {
    rig_open(&rig, "redis://localhost");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    fake_answer_text(fake_stream(rig.world, 0), "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n");
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(fake_stream_count(rig.world), 1);
    over();
}

TEST(who_renews_subscribes_for_its_hold_may_be_broken) {
    rig_open(&rig, "redis://localhost");
    make_acquire(&a, "x", 0);
    ask_renew(&rig, &b, (struct asked *[]){&a}, 1);
    CHECK_EQ_INT(fake_stream_count(rig.world), 2);
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
    make_acquire(&a, "x", 0);
    ask_renew(&rig, &b, (struct asked *[]){&a}, 1);
    struct fake_stream *stream = fake_stream(rig.world, 0);
    fake_accept(stream);
    CHECK_COMMAND(stream, "SUBSCRIBE @00112233445566778899aabbccddeeff @votes");
    fake_answer_text(stream, "*3\r\n$9\r\nsubscribe\r\n$6\r\n@votes\r\n:2\r\n");
    fake_answer_text(stream, "*3\r\n$7\r\nmessage\r\n$6\r\n@votes\r\n$1\r\nx\r\n");
    CHECK_EQ_STR(freed_name, "x");
    over();
}

TEST(the_channel_is_the_client_s_own_under_the_prefix) {
    rig_open(&rig, "redis://jo:secret@localhost/2?prefix=app:");
    make_acquire(&a, "x", 0);
    ask_renew(&rig, &b, (struct asked *[]){&a}, 1);
    for (size_t i = 0; i < 2; i++) {
        struct fake_stream *stream = fake_stream(rig.world, i);
        fake_accept(stream);
        CHECK_COMMAND(stream, "AUTH jo secret");
        CHECK_COMMAND(stream, "SELECT 2");
        CHECK_COMMAND(stream, "");
        fake_answer_text(stream, "+OK\r\n+OK\r\n");
        const char *command = next_command(stream);
        CHECK(strcmp(command, "SUBSCRIBE app:@00112233445566778899aabbccddeeff") == 0 ||
              strcmp(command, "renew app:x") == 0);
    }
    over();
}

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
