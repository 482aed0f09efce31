/* Releasing and breaking what a set holds. */
#include "set_test.h"

/* The longest that a release or a break waits for nodes that are silent. */
static void pass_patience(void) {
    pass_us(TIMEOUT_US);
    pass_us(QUORUM_PATIENCE_US);
}

/* ---- What a quorum says ---- */

TEST(a_release_is_what_a_quorum_says) {
    static const struct {
        enum store_outcome says[NODES];
        enum store_outcome outcome;
    } cases[] = {
        {{STORE_DONE, STORE_DONE, STORE_DONE}, STORE_DONE},
        {{STORE_NOT_YOURS, STORE_NOT_YOURS, STORE_NOT_YOURS}, STORE_NOT_YOURS},
        {{STORE_DONE, STORE_DONE, STORE_NOT_YOURS, STORE_NOT_YOURS, STORE_UNKNOWN}, STORE_UNKNOWN},
    };
    for (size_t c = 0; c < 3; c++) {
        set = (struct set){0};
        set_open();
        struct store_op op = held(NODES);
        op.type = STORE_RELEASE;
        submit(&op);
        for (size_t i = 0; i < NODES && cases[c].says[i]; i++)
            answer(i, STORE_RELEASE, cases[c].says[i]);
        check_done(&op, cases[c].outcome);
        free(op.text);
        op.text = NULL;
        set_close();
    }
}

/* The repeat of a release finds nothing, perhaps because of the first release, whose answer was
 * lost. */
TEST(a_node_that_may_have_released_it_before_is_not_counted_as_one_that_lost_it) {
    set_open();
    struct store_op op = held(3), next = mutex(2, 0);
    refuse(3, HF_BUSY, LEASE_US);
    refuse(4, HF_BUSY, LEASE_US);
    op.type = STORE_RELEASE;
    submit(&op);
    submit(&next);
    answer(0, STORE_RELEASE, STORE_UNKNOWN);
    grant(0, 50); /* it is back, and asked to release again */
    answer(0, STORE_RELEASE, STORE_NOT_YOURS);
    answer(3, STORE_RELEASE, STORE_NOT_YOURS);
    answer(4, STORE_RELEASE, STORE_NOT_YOURS);
    confirm(1);
    CHECK_EQ_INT(op.outcome, 0);
    pass_patience(); /* node 2 is silent */
    check_done(&op, STORE_UNKNOWN);
    free(op.text);
    set_close();
    free(next.text);
}

/* The lock is no longer held, and an earlier answer could only be "unknown". */
TEST(a_release_and_a_break_may_take_longer_than_node_timeout) {
    for (int breaks = 0; breaks < 2; breaks++) {
        enum store_op_type type = breaks ? STORE_BREAK : STORE_RELEASE;
        set = (struct set){0};
        set_open();
        struct store_op op = held(NODES);
        op.type = type;
        submit(&op);
        answer(0, type, STORE_DONE);
        pass_us(TIMEOUT_US);
        pass_us(QUORUM_PATIENCE_US - MS);
        answer(1, type, STORE_DONE);
        CHECK_EQ_INT(op.outcome, 0);
        answer(2, type, STORE_DONE);
        check_done(&op, STORE_DONE);
        set_close();
    }
}

TEST(a_release_and_a_break_do_not_wait_for_ever_nor_for_nodes_that_are_known_to_fail) {
    for (int breaks = 0; breaks < 2; breaks++) {
        enum store_op_type type = breaks ? STORE_BREAK : STORE_RELEASE;
        for (int silent = 0; silent < 2; silent++) {
            set = (struct set){0};
            set_open();
            struct store_op op = held(NODES);
            op.type = type;
            submit(&op);
            for (size_t i = 0; i < NODES && !silent; i++)
                answer(i, type, STORE_UNKNOWN);
            if (silent)
                pass_patience();
            check_done(&op, STORE_UNKNOWN);
            CHECK(op.text);
            free(op.text);
            set_close();
        }
    }
}

TEST(a_break_is_done_when_what_is_left_is_no_quorum) {
    set_open();
    struct store_op op = {.type = STORE_BREAK, .name = "x", .token = 50, .label = "why"};
    submit(&op);
    CHECK_EQ_STR(asked(4, STORE_BREAK)->label, "why");
    answer(0, STORE_BREAK, STORE_DONE);
    answer(1, STORE_BREAK, STORE_NOT_YOURS);
    answer(2, STORE_BREAK, STORE_DONE);
    CHECK_EQ_INT(op.outcome, 0);
    answer(3, STORE_BREAK, STORE_DONE);
    check_done(&op, STORE_DONE);
    set_close();
}

/* ---- Releases that a node has not confirmed ---- */

/* A hold that is released while the nodes 3 and 4 are silent. */
static struct store_op released_without_3_and_4(void) {
    struct store_op op = held(3);
    op.type = STORE_RELEASE;
    submit(&op);
    for (size_t i = 0; i < 3; i++) {
        CHECK(is_announced(i));
        confirm(i);
    }
    check_done(&op, STORE_DONE);
    for (size_t i = 3; i < NODES; i++) {
        answer(i, STORE_ACQUIRE, STORE_UNKNOWN);
        answer(i, STORE_RELEASE, STORE_UNKNOWN);
        CHECK_EQ_INT(asked_count(i), 0);
    }
    return op;
}

/* Node 4 answers each release like this for longer than two leases. Returns how many there were. */
static int repeats_answered(enum store_outcome outcome) {
    int repeats = 0;
    for (int64_t us = 0; us < 130000 * MS; us += 100 * MS) {
        pass_us(100 * MS);
        CHECK_EQ_INT(asked_count(3), 0);
        if (asked_count(4)) {
            answer(4, STORE_RELEASE, outcome);
            repeats++;
        }
    }
    return repeats;
}

TEST(a_release_is_repeated_until_it_is_confirmed_or_every_lease_is_over) {
    set_open();
    released_without_3_and_4();
    pass_us(250 * MS);
    confirm(3);
    int repeats = repeats_answered(STORE_REFUSED);
    CHECK(repeats >= 5 && repeats <= 9); /* less and less often */
    CHECK_EQ_INT(set.quorum->pending_release_count, 0);
    set_close();
}

TEST(a_release_is_repeated_for_as_long_as_a_node_is_silent_and_when_it_is_heard_of_again) {
    set_open();
    struct store_op op = released_without_3_and_4();
    pass_us(250 * MS);
    confirm(3);
    int repeats = repeats_answered(STORE_UNKNOWN);
    CHECK(repeats >= 10 && repeats <= 14);
    CHECK_EQ_INT(asked_count(4), 0);
    struct store_op next = mutex(2, 0); /* node 4 may have received the first one only now */
    submit(&next);
    grant(4, 50);
    CHECK_EQ_INT(asked(4, STORE_RELEASE)->seq, op.owner_seq);
    confirm(4);
    pass_us(600000 * MS);
    CHECK_EQ_INT(set.quorum->pending_release_count, 0);
    free(next.text);
    set_close();
}

TEST(a_late_vote_is_given_back_only_if_it_came_behind_its_release) {
    set_open();
    struct store_op op = held(3);
    op.type = STORE_RELEASE;
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        confirm(i);
    grant(3, 50); /* its release comes after it */
    confirm(3);
    CHECK_EQ_INT(asked_count(3), 0);
    struct list *vote = list_pop(&set.nodes[4].asked); /* the release overtakes it */
    answer(4, STORE_RELEASE, STORE_NOT_YOURS);
    list_append(&set.nodes[4].asked, vote);
    grant(4, 50);
    confirm(4);
    CHECK_EQ_INT(asked_count(4), 0);
    set_close();
}

TEST(pending_releases_are_bounded) {
    set_open();
    for (uint64_t seq = 1; seq < 600; seq++) {
        struct store_op op = mutex(seq, 0);
        submit(&op);
        for (size_t i = 0; i < NODES; i++)
            i == 4 ? refuse(4, HF_UNREACHABLE, 0) : grant(i, 50);
        op.type = STORE_RELEASE;
        submit(&op);
        for (size_t i = 0; i < NODES; i++)
            answer(i, STORE_RELEASE, i == 4 ? STORE_REFUSED : STORE_DONE);
    }
    CHECK_EQ_INT(set.quorum->pending_release_count, 256);
    set_close();
}
