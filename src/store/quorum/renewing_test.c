/* Renewing at a quorum of nodes, which the test plays: which nodes count, and what is retaken. */
#include "set_test.h"

static void check_retaken(size_t node, uint64_t token) {
    CHECK_EQ_INT(asked_vote(node)->type, STORE_RETAKE);
    CHECK_EQ_INT(asked_vote(node)->token, token);
}

TEST(a_quorum_renews_and_the_others_are_taken_again) {
    set_open();
    struct store_op hold = held(NODES);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    CHECK_EQ_INT(asked(0, STORE_RENEW)->renewals[0].of->seq, hold.owner_seq);
    answer_renewal(0, STORE_NOT_YOURS);
    for (size_t i = 1; i < 4; i++)
        answer_renewal(i, STORE_DONE);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_DONE);
    CHECK_EQ_INT(asked_vote(0)->op.seq, hold.owner_seq);
    check_retaken(0, 50);
    answer_renewal(4, STORE_NOT_YOURS); /* late */
    check_retaken(4, 50);
    set_close();
}

/* Until that lease ends, a quorum has the lock. Nodes that are not counted do not matter. */
TEST(the_lease_is_the_shortest_that_a_counted_node_granted) {
    set_open();
    struct store_op hold = mutex(1, STORE_WAIT);
    submit(&hold);
    asked(1, STORE_ACQUIRE)->lease_us = LEASE_US / 2;
    for (size_t i = 0; i < 3; i++)
        grant(i, 50);
    check_done(&hold, STORE_DONE);
    CHECK_EQ_INT(hold.lease_us, LEASE_US / 2);
    struct store_renewal renewal = {.of = &hold, .lease_us = LEASE_US};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        CHECK_EQ_INT(asked(i, STORE_RENEW)->renewals[0].lease_us, LEASE_US);
    asked(0, STORE_RENEW)->renewals[0].lease_us = LEASE_US / 4;
    answer_renewal(0, STORE_NOT_YOURS);
    asked(2, STORE_RENEW)->renewals[0].lease_us = LEASE_US / 3;
    answer_renewal(1, STORE_DONE);
    answer_renewal(2, STORE_DONE);
    grant(3, 50);
    answer_renewal(3, STORE_DONE);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_DONE);
    CHECK_EQ_INT(renewal.lease_us, LEASE_US / 3);
    set_close();
}

TEST(nodes_that_were_away_at_first_are_taken_when_they_are_back_and_count_from_then_on) {
    set_open();
    struct store_op hold = held(3);
    for (size_t i = 3; i < NODES; i++)
        answer(i, STORE_ACQUIRE, STORE_UNKNOWN);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        answer_renewal(i, STORE_DONE);
    answer_renewal(3, STORE_NOT_YOURS);
    answer_renewal(4, STORE_DONE); /* it had voted, and nobody knows which node it is */
    for (size_t i = 3; i < NODES; i++) {
        check_retaken(i, 50);
        grant(i, 50);
    }
    submit(&op);
    for (size_t i = 2; i < NODES; i++)
        answer_renewal(i, STORE_DONE);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_DONE);
    set_close();
}

TEST(nothing_is_taken_again_for_a_hold_that_was_let_go) {
    set_open();
    struct store_op hold = held(NODES);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        answer_renewal(i, STORE_DONE);
    check_done(&op, STORE_DONE);
    hold.type = STORE_RELEASE;
    submit(&hold);
    answer_renewal(3, STORE_NOT_YOURS);
    CHECK_EQ_INT(asked_count(3), 1);
    asked(3, STORE_RELEASE);
    set_close();
    free(hold.text);
}

TEST(a_hold_may_end_and_be_freed_while_it_is_renewed) {
    set_open();
    struct store_op *hold = malloc(sizeof(*hold));
    *hold = held(NODES);
    struct store_renewal *renewals = calloc(1, sizeof(*renewals));
    *renewals = (struct store_renewal){.of = hold, .lease_us = hold->lease_us};
    struct store_op *op = calloc(1, sizeof(*op));
    *op = (struct store_op){.type = STORE_RENEW, .renewals = renewals, .renewal_count = 1};
    submit(op);
    renewals->of = NULL;
    free(hold);
    CHECK_EQ_STR(asked(0, STORE_RENEW)->renewals[0].of->name, "x"); /* a node may look */
    for (size_t i = 0; i < 3; i++)
        answer_renewal(i, STORE_DONE);
    check_done(op, STORE_DONE);
    free(op);
    free(renewals);
    answer_renewal(3, STORE_NOT_YOURS);
    CHECK_EQ_INT(asked_count(3), 0);
    set_close();
}

TEST(a_hold_is_lost_only_when_a_quorum_cannot_be) {
    set_open();
    struct store_op hold = held(NODES);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    answer_renewal(0, STORE_NOT_YOURS);
    answer_renewal(1, STORE_NOT_YOURS);
    answer_renewal(2, STORE_DONE);
    CHECK_EQ_INT(op.outcome, 0);
    pass_us(TIMEOUT_US);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_UNKNOWN);
    free(op.text);
    op.text = NULL;
    answer_renewal(3, STORE_DONE);
    answer_renewal(4, STORE_DONE);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        answer_renewal(i, STORE_NOT_YOURS);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_NOT_YOURS);
    set_close();
}

/* Three nodes have forgotten their votes, so the hold is lost, but the program may still count on
 * the time that it had left. */
TEST(votes_of_a_lost_hold_stay_until_it_is_released) {
    set_open();
    struct store_op hold = held(NODES);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        answer_renewal(i, STORE_NOT_YOURS);
    CHECK_EQ_INT(set.gone, 1);
    answer_renewal(3, STORE_DONE);
    answer_renewal(4, STORE_DONE);
    pass_us(10 * TIMEOUT_US);
    for (size_t i = 0; i < NODES; i++)
        CHECK(list_empty(&set.nodes[i].asked));
    hold.type = STORE_RELEASE;
    submit(&hold);
    for (size_t i = 0; i < NODES; i++)
        answer(i, STORE_RELEASE, i < 3 ? STORE_NOT_YOURS : STORE_DONE);
    set_close();
}
