/* Several servers, played by the test: whom the store asks, whom it believes, and what it reports
 * as forgotten. */
#include "check.h"
#include "store/redis/command.h"
#include "support/fake_redis.h"

#include <stdlib.h>
#include <string.h>

#define NODE_A "*3\r\n$2\r\nna\r\n:7001\r\n$1\r\nA\r\n"
#define NODE_B "*3\r\n$2\r\nnb\r\n:7002\r\n$1\r\nB\r\n"
#define NODE_C "*3\r\n$2\r\nnc\r\n:7003\r\n$1\r\nC\r\n"
#define RANGE(first, last, node) "*3\r\n:" #first "\r\n:" #last "\r\n" node
#define DONE "*2\r\n$4\r\ndone\r\n$1\r\n7\r\n"

static struct rig rig;
static struct asked a, b;

/* Which of two names the engine would give up as lost. */
static bool lost_x, lost_z;
static int times_forgot;

static void note_forgot(struct store_host *host, store_concerns *concerns, void *context) {
    (void)host;
    times_forgot++;
    lost_x |= !concerns || concerns(context, "x");
    lost_z |= !concerns || concerns(context, "z");
}

static void begin(const char *url) {
    rig_open(&rig, url);
    rig.host.forgot = note_forgot;
    lost_x = lost_z = false;
    times_forgot = 0;
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
}

/* The open stream to a host; NULL: there is none. */
static struct fake_stream *stream_before_accept(const char *host) {
    fake_settle(rig.world);
    for (size_t i = fake_stream_count(rig.world); i-- > 0;) {
        struct fake_stream *stream = fake_stream(rig.world, i);
        if (stream->owner && strcmp(stream->owner->peer->host, host) == 0)
            return stream;
    }
    return NULL;
}

/* The same, accepted if it was not. */
static struct fake_stream *stream_to(const char *host) {
    struct fake_stream *stream = stream_before_accept(host);
    if (stream && !stream->accepted)
        fake_accept(stream);
    return stream;
}

/* Checks that the host is asked this, and answers for it. */
static void answers(const char *host, const char *command, const char *reply) {
    struct fake_stream *stream = stream_to(host);
    if (!stream) {
        test_fail(__FILE__, __LINE__, "nobody connects to %s", host);
        return;
    }
    const char *seen = next_command(stream);
    if (!seen || strncmp(seen, command, strlen(command)) != 0)
        test_fail(__FILE__, __LINE__, "%s is asked \"%s\", not \"%s\"", host, seen ? seen : "",
                  command);
    fake_answer_text(stream, reply);
    fake_settle(rig.world);
}

/* ---- Sentinel ---- */

static void name_master(const char *one, const char *two, const char *reply) {
    answers(one, "SENTINEL GET-MASTER-ADDR-BY-NAME orders", reply);
    answers(two, "SENTINEL GET-MASTER-ADDR-BY-NAME orders", reply);
}

#define M1 "*2\r\n$2\r\nm1\r\n$4\r\n6380\r\n"
#define M2 "*2\r\n$2\r\nm2\r\n$4\r\n6380\r\n"
#define IS_MASTER "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
#define IS_SLAVE "*2\r\n$5\r\nslave\r\n$2\r\nm2\r\n"

TEST(more_than_half_of_the_sentinels_are_enough_and_the_server_must_agree) {
    begin("redis+sentinel://s1,s2:7000,s3/orders/3?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    CHECK(stream_to("s2") && stream_to("s2")->owner->peer->port == 7000);
    name_master("s1", "s3", M1);
    CHECK(!stream_to("s2")); /* nobody waits for it */
    answers("m1", "SELECT 3", "+OK\r\n");
    answers("m1", "ROLE", IS_MASTER);
    answers("m1", "acquire holdfast:x", DONE);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(times_forgot, 0);
    over();
}

static void check_is_served_by_m1(void) {
    answers("m1", "ROLE", IS_MASTER);
    answers("m1", "acquire", DONE);
    CHECK_EQ_INT(a.completions, 1);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
}

TEST(sentinels_that_are_all_slow_are_waited_for_and_the_first_answer_decides) {
    begin("redis+sentinel://s1,s2,s3/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    CHECK(stream_to("s1") && stream_to("s2") && stream_to("s3"));
    fake_pass_us(rig.world, 1500000);
    CHECK_EQ_INT(a.completions, 0);
    answers("s2", "SENTINEL GET-MASTER-ADDR-BY-NAME orders", M1);
    check_is_served_by_m1();
    over();
}

TEST(a_sentinel_is_not_waited_for_longer_than_a_second_when_another_has_answered) {
    begin("redis+sentinel://s1,s2/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    answers("s1", "SENTINEL GET-MASTER-ADDR-BY-NAME orders", M1);
    fake_pass_us(rig.world, 900000);
    CHECK(!stream_to("m1"));
    fake_pass_us(rig.world, 100000);
    check_is_served_by_m1();
    over();
}

TEST(sentinels_that_stay_silent_are_reported_when_the_time_for_connecting_is_over) {
    begin("redis+sentinel://s1,s2/orders?plaintext=yes&connect_timeout=3000");
    ask_acquire(&rig, &a, "x", 0);
    CHECK(stream_to("s1") && stream_to("s2"));
    fake_pass_us(rig.world, 2900000);
    CHECK_EQ_INT(a.completions, 0);
    fake_pass_us(rig.world, 200000);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    over();
}

TEST(the_time_to_find_the_master_is_not_taken_from_the_time_for_the_answer) {
    begin("redis+sentinel://s1/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    CHECK(stream_to("s1"));
    fake_pass_us(rig.world, 1900000);
    answers("s1", "SENTINEL GET-MASTER-ADDR-BY-NAME orders", M1);
    answers("m1", "ROLE", IS_MASTER);
    fake_pass_us(rig.world, 500000);
    answers("m1", "acquire", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(a_server_that_is_no_master_gets_no_request_and_the_sentinels_are_asked_again) {
    begin("redis+sentinel://s1,s2,s3/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    name_master("s1", "s2", M1);
    answers("m1", "ROLE", IS_SLAVE);
    CHECK(!stream_to("m1"));
    fake_pass_us(rig.world, 20000);
    name_master("s1", "s2", M2);
    answers("m2", "ROLE", IS_MASTER);
    answers("m2", "acquire", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(times_forgot, 0); /* nothing had been granted elsewhere */
    over();
}

TEST(another_master_is_reported_before_anything_is_sent_to_it) {
    begin("redis+sentinel://s1,s2,s3/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    name_master("s1", "s2", M1);
    answers("m1", "ROLE", IS_MASTER);
    fake_settle(rig.world);
    fake_hang_up(stream_to("m1"), "it broke");
    fake_pass_us(rig.world, 20000);
    name_master("s1", "s2", M2);
    CHECK_EQ_INT(times_forgot, 0);
    answers("m2", "ROLE", IS_MASTER);
    CHECK_EQ_INT(times_forgot, 1);
    CHECK(lost_x && lost_z);
    answers("m2", "acquire", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(the_same_master_again_is_no_fail_over) {
    begin("redis+sentinel://s1,s2,s3/orders?plaintext=yes");
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    name_master("s1", "s2", M1);
    answers("m1", "ROLE", IS_MASTER);
    fake_settle(rig.world);
    fake_hang_up(stream_to("m1"), "it broke");
    fake_pass_us(rig.world, 20000);
    name_master("s1", "s2", M1);
    fake_pass_us(rig.world, 50000);
    answers("m1", "ROLE", IS_MASTER);
    answers("m1", "acquire", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(times_forgot, 0);
    over();
}

/* ---- Plaintext, where a server names another ---- */

#define FAR "203.0.113.5"

/* The world refuses addresses that are too far away (stream_test.c). The store must have set that
 * limit, and must then report that the URL is wrong. */
static void refuse_far(void) {
    struct fake_stream *far = stream_before_accept(FAR);
    CHECK(far && far->owner->farthest == WORLD_PRIVATE);
    far->owner->reach = WORLD_PUBLIC;
    fake_hang_up(far, FAR ":6380 is not a private address");
    fake_settle(rig.world);
}

TEST(a_master_beyond_private_networks_gets_nothing_in_plaintext) {
    begin("redis+sentinel://jo:hunter2@127.0.0.1/orders");
    ask_acquire(&rig, &a, "x", 0);
    answers("127.0.0.1", "SENTINEL", "*2\r\n$11\r\n" FAR "\r\n$4\r\n6380\r\n");
    refuse_far();
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_BAD_URL);
    CHECK(strstr(a.op.text, FAR) && strstr(a.op.text, "plaintext=yes"));
    over();
}

TEST(a_node_beyond_private_networks_gets_nothing_in_plaintext) {
    begin("redis+cluster://jo:hunter2@127.0.0.1");
    ask_acquire(&rig, &a, "x", 0);
    answers("127.0.0.1", "AUTH", "+OK\r\n");
    answers("127.0.0.1", "CLUSTER SLOTS",
            "*1\r\n" RANGE(0, 16383, "*3\r\n$11\r\n" FAR "\r\n:6380\r\n$1\r\nA\r\n"));
    refuse_far();
    CHECK_EQ_INT(a.op.reason, HF_BAD_URL);
    over();
}

TEST(a_node_that_MOVED_or_ASK_names_gets_nothing_in_plaintext_either) {
    for (int i = 0; i < 2; i++) {
        char error[64];
        snprintf(error, sizeof(error), "-%s %u " FAR ":6380\r\n", i ? "ASK" : "MOVED",
                 command_slot("holdfast:x", 10));
        begin("redis+cluster://127.0.0.1");
        ask_acquire(&rig, &a, "x", 0);
        answers("127.0.0.1", "CLUSTER SLOTS",
                "*1\r\n" RANGE(0, 16383, "*3\r\n$9\r\n127.0.0.1\r\n:6379\r\n$1\r\nA\r\n"));
        answers("127.0.0.1", "acquire holdfast:x", error);
        fake_pass_us(rig.world, 10000);
        refuse_far();
        over();
    }
}

/* ---- A Cluster ---- */

/* x is in the upper half of the slots and z in the lower one; A has the lower half, B the upper. */
static void begin_cluster(void) {
    begin("redis+cluster://seed?plaintext=yes");
    ask_acquire(&rig, &a, "x", STORE_WAIT);
    answers("seed", "CLUSTER SLOTS", "*2\r\n" RANGE(0, 8191, NODE_A) RANGE(8192, 16383, NODE_B));
}

static const char *host_of(const char *key) {
    return command_slot(key, strlen(key)) < 8192 ? "na" : "nb";
}

static const char *other_than(const char *host) {
    return strcmp(host, "na") == 0 ? "nb" : "na";
}

TEST(a_request_goes_to_the_node_of_its_slot) {
    begin_cluster();
    answers(host_of("holdfast:x"), "acquire holdfast:x", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK(!stream_to(other_than(host_of("holdfast:x")))); /* nobody needs it yet */
    over();
}

TEST(what_moved_is_asked_for_at_its_new_node_and_a_migration_is_no_loss) {
    begin_cluster();
    const char *from = host_of("holdfast:x");
    char moved[64];
    snprintf(moved, sizeof(moved), "-MOVED %u nc:7003\r\n", command_slot("holdfast:x", 10));
    answers(from, "acquire holdfast:x", moved);
    fake_pass_us(rig.world, 10000);
    /* C has taken over nearly all slots, but A and B still have some. */
    answers("nc", "CLUSTER SLOTS",
            "*4\r\n" RANGE(0, 1, NODE_A) RANGE(2, 8191, NODE_C) RANGE(8192, 16382, NODE_C)
                RANGE(16383, 16383, NODE_B));
    answers("nc", "acquire holdfast:x", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    CHECK_EQ_INT(times_forgot, 0);
    over();
}

TEST(a_promotion_is_a_loss_for_the_names_of_its_slots) {
    begin_cluster();
    const char *from = host_of("holdfast:x");
    CHECK(strcmp(from, host_of("holdfast:z")) != 0);
    stream_to(from);
    fake_hang_up(stream_to(from), "it died");
    fake_pass_us(rig.world, 10000);
    struct fake_stream *asked = stream_to(other_than(from));
    CHECK(asked);
    answers(other_than(from), "CLUSTER SLOTS",
            strcmp(from, "na") == 0 ? "*2\r\n" RANGE(0, 8191, NODE_C) RANGE(8192, 16383, NODE_B)
                                    : "*2\r\n" RANGE(0, 8191, NODE_A) RANGE(8192, 16383, NODE_C));
    CHECK_EQ_INT(times_forgot, 1);
    CHECK(lost_x && !lost_z);
    answers("nc", "acquire holdfast:x", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

/* B's replica takes over, and then gives some of its slots to A, before anybody looks. */
TEST(a_promotion_followed_by_a_migration_is_a_loss_too) {
    begin_cluster();
    CHECK(strcmp(host_of("holdfast:x"), "nb") == 0);
    stream_to("nb");
    fake_hang_up(stream_to("nb"), "it died");
    fake_pass_us(rig.world, 10000);
    answers("na", "CLUSTER SLOTS", "*2\r\n" RANGE(0, 16382, NODE_A) RANGE(16383, 16383, NODE_C));
    CHECK_EQ_INT(times_forgot, 1);
    CHECK(lost_x && !lost_z);
    over();
}

TEST(ask_sends_a_request_to_where_its_key_is_once_with_its_text) {
    begin_cluster();
    char ask[64];
    snprintf(ask, sizeof(ask), "-ASK %u nc:7003\r\n", command_slot("holdfast:x", 10));
    answers(host_of("holdfast:x"), "acquire holdfast:x", ask);
    answers("nc", "ASKING", "+OK\r\n");
    struct fake_stream *there = stream_to("nc");
    CHECK(memmem(there->bytes, there->size, "EVAL\r\n", 6) != NULL);
    fake_answer_text(there, DONE);
    fake_settle(rig.world);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    ask_acquire(&rig, &b, "x", 0);
    answers(host_of("holdfast:x"), "acquire holdfast:x", DONE);
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(a_release_that_must_try_again_does_with_one_key) {
    begin_cluster();
    const char *host = host_of("holdfast:x");
    answers(host, "acquire holdfast:x", DONE);
    ask_release(&rig, &b, "x");
    for (int i = 0; i < 3; i++) {
        answers(host, "release holdfast:x", "-TRYAGAIN Multiple keys request\r\n");
        CHECK_EQ_INT(b.completions, 0);
        fake_pass_us(rig.world, 60000);
    }
    answers(host, "release_one_key holdfast:x", ":0\r\n"); /* that proves nothing */
    CHECK_EQ_INT(b.completions, 0);
    for (int i = 0; i < 3; i++) {
        answers(host, "release holdfast:x", "-TRYAGAIN Multiple keys request\r\n");
        fake_pass_us(rig.world, 60000);
    }
    answers(host, "release_one_key holdfast:x", ":1\r\n");
    CHECK_EQ_INT(b.op.outcome, STORE_DONE);
    over();
}

TEST(who_must_try_again_for_too_long_is_refused_for_certain) {
    begin_cluster();
    for (int i = 0; i < 200 && !a.completions; i++) {
        struct fake_stream *stream = stream_to(host_of("holdfast:x"));
        if (*next_command(stream))
            fake_answer_text(stream, "-TRYAGAIN Multiple keys request\r\n");
        fake_pass_us(rig.world, 20000);
    }
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK_EQ_INT(a.op.reason, HF_UNREACHABLE);
    CHECK(strstr(a.op.text, "moved"));
    over();
}

TEST(a_node_has_the_time_for_connecting_to_say_who_serves_what) {
    begin("redis+cluster://seed?plaintext=yes&connect_timeout=3000");
    ask_acquire(&rig, &a, "x", 0);
    CHECK(stream_to("seed"));
    fake_pass_us(rig.world, 2500000);
    answers("seed", "CLUSTER SLOTS", "*1\r\n" RANGE(0, 16383, NODE_A));
    answers("na", "acquire holdfast:x", DONE);
    CHECK_EQ_INT(a.op.outcome, STORE_DONE);
    over();
}

TEST(nobody_who_can_be_asked_is_reported_with_the_reason) {
    begin("redis+cluster://seed?plaintext=yes");
    ask_acquire(&rig, &a, "x", 0);
    answers("seed", "CLUSTER SLOTS", "-ERR This instance has cluster support disabled\r\n");
    fake_pass_us(rig.world, 100000);
    CHECK_EQ_INT(a.op.outcome, STORE_REFUSED);
    CHECK(strstr(a.op.text, "cluster support disabled"));
    over();
}
