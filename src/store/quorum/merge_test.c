/* What is seen of a lock in a set: its nodes side by side. */
#include "set_test.h"
#include "store/locks.h"

/* The node knows "x" with this token; and who has its vote, if somebody does. */
static void show(size_t node, uint64_t token, const hf_party *party) {
    static const uint8_t id[16] = {0xab};
    struct store_op *op = asked(node, STORE_INSPECT);
    op->locks = locks_new();
    CHECK(locks_add(op->locks, "x", STORE_LOCK, STORE_ALL, token));
    CHECK(!party || locks_add_party(op->locks, LOCKS_HOLDER, party, id, 1));
    answer(node, STORE_INSPECT, STORE_DONE);
}

/* Of five nodes so many deny the look, and the others are silent. */
static int look_that_is_denied_by(size_t denying) {
    set = (struct set){0};
    set_open();
    struct store_op op = {.type = STORE_INSPECT, .name = "x"};
    submit(&op);
    for (size_t node = 0; node < denying; node++) {
        struct store_op *refused = asked(node, STORE_INSPECT);
        refused->reason = HF_DENIED;
        refused->text = strdup("wrong password");
        answer(node, STORE_INSPECT, STORE_REFUSED);
    }
    pass_us(TIMEOUT_US);
    pass_us(5000 * MS);
    check_done(&op, STORE_REFUSED);
    free(op.text);
    set_close();
    return op.reason;
}

TEST(a_look_is_denied_only_if_so_many_nodes_deny_it_that_the_others_are_no_quorum) {
    CHECK_EQ_INT(look_that_is_denied_by(NODES), HF_DENIED);
    CHECK_EQ_INT(look_that_is_denied_by(3), HF_DENIED);
    CHECK_EQ_INT(look_that_is_denied_by(2), HF_UNREACHABLE); /* the others may come back */
}

TEST(the_nodes_are_shown_side_by_side) {
    set_open();
    struct store_op op = {.type = STORE_INSPECT, .name = "x"};
    submit(&op);
    show(1, 50, &(hf_party){.host = "here", .token = 50, .left_ms = 900});
    show(0, 50, &(hf_party){.host = "here", .token = 50, .left_ms = 800});
    show(2, 48, &(hf_party){.host = "here", .token = 48, .left_ms = 700});
    struct store_op *refused = asked(3, STORE_INSPECT);
    refused->reason = HF_UNREACHABLE;
    refused->text = strdup("connection refused");
    answer(3, STORE_INSPECT, STORE_REFUSED);
    CHECK_EQ_INT(op.outcome, 0); /* each node has its time */
    pass_us(TIMEOUT_US);
    check_done(&op, STORE_DONE);
    const hf_lock_info *info = hf_locks_at(op.locks, 0);
    CHECK_EQ_INT(info->holder_count, 1);
    CHECK_EQ_INT(info->holders[0]->votes, 3);
    CHECK_EQ_INT(info->holders[0]->token, 50);
    CHECK_EQ_INT(info->holders[0]->left_ms, 700);
    CHECK_EQ_INT(info->node_count, NODES);
    static const struct {
        const char *failure;
        uint64_t token;
        int64_t left_ms; /* 0: it has given no vote */
    } said[NODES] = {
        {"", 50, 800},
        {"", 50, 900},
        {"", 48, 700},
        {"connection refused", 0, 0},
        {"no answer within 50 ms", 0, 0},
    };
    for (size_t i = 0; i < NODES; i++) {
        const hf_node *node = info->nodes[i];
        CHECK_EQ_STR(node->name, set.quorum->nodes[i].name);
        CHECK_EQ_STR(node->failure, said[i].failure);
        CHECK_EQ_INT(node->token, said[i].token);
        CHECK_EQ_INT(node->holder_count, said[i].left_ms ? 1 : 0);
        if (said[i].left_ms) {
            CHECK_EQ_INT(node->holders[0]->left_ms, said[i].left_ms);
            CHECK_EQ_INT(node->holders[0]->token, said[i].token);
        }
    }
    hf_locks_free(op.locks);
    set_close();
}

TEST(a_node_that_forgot_the_lock_and_one_that_is_free_of_it_are_told_apart) {
    set_open();
    struct store_op op = {.type = STORE_INSPECT, .name = "x"};
    submit(&op);
    show(0, 50, &(hf_party){.host = "here", .token = 50});
    show(1, 50, &(hf_party){.host = "here", .token = 50});
    show(2, 50, NULL);
    for (size_t i = 3; i < NODES; i++) {
        asked(i, STORE_INSPECT)->locks = locks_new();
        answer(i, STORE_INSPECT, STORE_DONE);
    }
    check_done(&op, STORE_DONE);
    const hf_lock_info *info = hf_locks_at(op.locks, 0);
    CHECK_EQ_INT(info->holder_count, 0); /* two votes are not a hold, */
    CHECK_EQ_INT(info->waiter_count, 1);
    CHECK_EQ_INT(info->waiters[0]->votes, 2);
    CHECK_EQ_INT(info->waiters[0]->token, 0);
    CHECK_EQ_INT(info->nodes[0]->holders[0]->token, 50); /* but what each says is shown */
    CHECK_EQ_INT(info->nodes[2]->token, 50);
    CHECK_EQ_INT(info->nodes[3]->token, 0);
    for (size_t i = 2; i < NODES; i++) {
        CHECK_EQ_INT(info->nodes[i]->holder_count, 0);
        CHECK_EQ_STR(info->nodes[i]->failure, "");
    }
    hf_locks_free(op.locks);
    set_close();
}
