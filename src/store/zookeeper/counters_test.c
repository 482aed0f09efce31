/* Which operations take effect, and only once; and what is left of answers and of counters. */
#include "store/zookeeper/zookeeper_test.h"

#define COUNTER "/holdfast/counters/x"

static struct rig rig;
static struct asked a, b;

static void connected(void) {
    server_start();
    rig_open(&rig, "zookeeper://a,b?timeout=1000");
    fake_serve(rig.world, serve_zookeeper, NULL);
}

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
    asked_clear(&b);
}

static void set_counter(const char *data) {
    struct node *node = find_node(COUNTER);
    CHECK(node);
    set_node(node, data);
}

static void check_counter(const char *data) {
    struct node *node = find_node(COUNTER);
    CHECK(node);
    CHECK_EQ_STR(node->data, data);
}

static void repeat(void) {
    a.op.flags = 0;
    rig_submit(&rig, &a);
    fake_pass_us(rig.world, 3 * S);
    CHECK_EQ_INT(a.completions, 1);
}

static int answers(void) {
    int count = 0;
    for (int i = 0; i < NODES_MAX; i++)
        count += is_child(&server.nodes[i], "/holdfast/counted");
    return count;
}

TEST(a_repeat_gets_the_first_answer_and_changes_nothing) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5 && a.op.life_us == -1);
    set_counter("70");
    repeat();
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5);
    check_counter("70");
    over();
}

TEST(a_lost_reply_is_made_up_for_by_a_repeat) {
    connected();
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    server.loses_multis = true;
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    fake_pass_us(rig.world, 3 * S);
    CHECK_EQ_INT(a.op.outcome, STORE_UNKNOWN);
    server.loses_multis = false;
    repeat();
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 6);
    check_counter("6");
    over();
}

TEST(a_mismatch_is_remembered_too) {
    connected();
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    ask_count(&rig, &a, "x", STORE_COUNT_CAS, 5); /* expects 0 */
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_MISMATCH && a.op.value == 1);
    set_counter("0");
    repeat();
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_MISMATCH && a.op.value == 1);
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

TEST(what_is_not_a_number_is_not_touched) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    set_counter("much");
    ask_count(&rig, &a, "x", STORE_COUNT_SWAP, 5);
    CHECK(a.op.outcome == STORE_REFUSED && a.op.reason == HF_WRONG_KIND);
    ask_count(&rig, &b, "x", STORE_COUNT_GET, 0);
    CHECK(b.op.outcome == STORE_REFUSED && b.op.reason == HF_WRONG_KIND);
    check_counter("much");
    over();
}

/* Otherwise a request that is under way could mistake the next counter for this one. */
TEST(a_removed_counter_leaves_its_node_and_its_version) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 5);
    ask_count(&rig, &a, "x", STORE_COUNT_REMOVE, 0);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 5);
    check_counter("");
    ask_count(&rig, &a, "x", STORE_COUNT_GET, 0);
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_ABSENT);
    ask_count(&rig, &a, "x", STORE_COUNT_ADD, 2);
    CHECK_EQ_INT(a.op.value, 2);
    CHECK(find_node(COUNTER) && find_node(COUNTER)->version == 2);
    over();
}

TEST(what_finds_no_counter_leaves_no_node) {
    connected();
    ask_count(&rig, &a, "x", STORE_COUNT_GET, 0);
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_ABSENT);
    ask_count(&rig, &a, "x", STORE_COUNT_REMOVE, 0);
    CHECK(a.op.outcome == STORE_DONE && a.op.flags == STORE_ABSENT);
    CHECK(!find_node(COUNTER));
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

/* What was read counts only if it is still true when the ensemble has agreed. */
TEST(a_read_is_confirmed) {
    connected();
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    server.overtakes = 1;
    ask_count(&rig, &a, "x", STORE_COUNT_GET, 0);
    CHECK(a.op.outcome == STORE_DONE && a.op.value == 11);
    over();
}

TEST(old_answers_are_removed_now_and_then) {
    enum { OLD = 100, AGE_MS = 3600000 };
    connected();
    ask_count(&rig, &b, "x", STORE_COUNT_ADD, 1);
    for (int i = 0; i < OLD; i++) {
        struct node *node;
        char path[PATH_SIZE];
        snprintf(path, sizeof(path), "/holdfast/counted/%032d-x", i);
        CHECK_EQ_INT(create_node(path, "1 0 0 1 0", 0, &node), ZK_OK);
    }
    server.now_ms += AGE_MS;
    for (int i = 0; i < 20 * 16 && answers() > 1; i++)
        ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
    CHECK_EQ_INT(answers(), 1);
    over();
}

TEST(answers_that_may_be_asked_for_stay) {
    connected();
    ask_count(&rig, &b, "other", STORE_COUNT_ADD, 1);
    server.now_ms += STORE_COUNT_KEPT_US / 1000;
    for (int i = 0; i < 10 * 16; i++)
        ask_count(&rig, &a, "x", STORE_COUNT_ADD, 1);
    CHECK_EQ_INT(answers(), 2);
    over();
}
