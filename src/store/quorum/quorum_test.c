/* The rounds of the quorum store, over nodes that the test plays (set_test.h). */
#include "set_test.h"
#include "store/locks.h"

/* ---- Acquire ---- */

TEST(a_majority_decides_and_a_node_that_hangs_costs_nothing) {
    set_open();
    struct store_op op = mutex(1, 0);
    int64_t began_us = virtual_now_us();
    submit(&op);
    for (size_t i = 0; i < NODES; i++)
        CHECK_EQ_INT(asked_count(i), 1); /* all at once */
    grant(4, 50);
    grant(1, 50);
    CHECK_EQ_INT(set.completed, 0);
    grant(2, 50);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(op.token, 50);
    CHECK_EQ_INT(virtual_now_us() - began_us, 0);
    grant(0, 50); /* later ones change nothing */
    pass_us(10 * TIMEOUT_US);
    CHECK_EQ_INT(set.completed, 1);
    set_close();
}

TEST(the_token_is_the_largest_that_was_counted_and_only_counted_nodes_are_raised) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    grant(0, 50);
    grant(1, 70);
    grant(2, 50);
    CHECK_EQ_INT(set.completed, 0);
    for (size_t i = 0; i < 3; i += 2) {
        struct store_vote *raise = asked_vote(i);
        CHECK_EQ_INT(raise->type, STORE_RAISE);
        CHECK_EQ_INT(raise->token, 70);
        CHECK_EQ_INT(raise->op.seq, quorum_attempt_find(set.quorum, 1)->ballot_id);
    }
    CHECK_EQ_INT(asked_count(1), 0);
    grant(3, 90); /* late, and larger: given back, since somebody may have held 80 meanwhile */
    confirm(3);
    grant(4, 60); /* late, and smaller: a spare */
    CHECK_EQ_INT(asked_count(4), 0);
    grant(0, 70);
    CHECK_EQ_INT(set.completed, 0);
    grant(2, 70);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(op.token, 70);
    set_close();
}

TEST(a_raise_that_fails_loses_the_ballot) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    grant(0, 50);
    grant(1, 70);
    grant(2, 70);
    grant(3, 70); /* a spare, which does not count */
    refuse(0, HF_NOT_YOURS, 0);
    for (size_t i = 0; i < 4; i++)
        confirm(i);
    check_done(&op, STORE_QUEUED);
    CHECK(op.left_us < 20 * MS);
    set_close();
}

TEST(what_was_lost_is_released_where_it_was_not_refused_before_it_is_reported) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    uint64_t ballot_id = asked(0, STORE_ACQUIRE)->seq;
    grant(0, 50);
    for (size_t i = 1; i < 4; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    CHECK_EQ_INT(asked(0, STORE_RELEASE)->seq, ballot_id);
    CHECK(!is_announced(0)); /* it wakes nobody */
    for (size_t i = 1; i < 4; i++)
        CHECK_EQ_INT(asked_count(i), 0);
    CHECK_EQ_INT(asked_count(4), 2); /* the silent one: the release comes after the vote */
    CHECK_EQ_INT(set.completed, 0);
    confirm(0);
    check_done(&op, STORE_QUEUED);
    set_close();
    CHECK_EQ_INT(set.completed, 1);
}

/* Two attempts that do not wait may have two votes each, and somebody else one. "Busy" would be
 * wrong for all of them. */
TEST(who_only_tries_does_so_again_when_votes_were_split) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    for (int tries = 1; tries <= 5; tries++) {
        CHECK_EQ_INT(set.completed, 0);
        grant(0, 50);
        for (size_t i = 1; i < 4; i++)
            refuse(i, HF_BUSY, 5000 * MS);
        grant(4, 50);
        confirm(0);
        confirm(4);
        for (int64_t us = 0; us < 700 * MS && !asked_count(0) && !set.completed; us += MS)
            pass_us(MS);
    }
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_BUSY);
    set_close();
}

TEST(who_only_tries_is_told_at_once_that_others_have_it) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_BUSY);
    set_close();
}

TEST(a_try_between_two_ballots_ends_with_the_client) {
    set_open();
    pass_us(60000 * MS);
    struct store_op op = mutex(1, 0);
    submit(&op);
    grant(0, 50);
    for (size_t i = 1; i < 4; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    confirm(0);
    CHECK_EQ_INT(set.completed, 0);
    set_close();
    CHECK_EQ_INT(set.completed, 1);
    CHECK_EQ_INT(op.reason, HF_BUSY);
    CHECK(op.left_us < 20 * MS); /* a duration, as in any other answer */
}

/* It is given back at its node only, even if that has to be repeated. */
TEST(a_vote_that_came_too_late_and_above_is_released_at_its_node_only) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    grant(3, 81);
    answer(3, STORE_RELEASE, STORE_UNKNOWN);
    pass_us(250 * MS);
    CHECK_EQ_INT(asked(3, STORE_RELEASE)->seq, op.owner_seq);
    for (size_t i = 0; i < 3; i++)
        CHECK_EQ_INT(asked_count(i), 0);
    set_close();
}

TEST(a_node_whose_vote_was_above_the_token_renews_nothing) {
    set_open();
    struct store_op hold = held(3);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op op = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&op);
    grant(3, 81); /* so it is given back, but after the renewal */
    answer_renewal(3, STORE_DONE);
    answer_renewal(0, STORE_DONE);
    answer_renewal(1, STORE_DONE);
    CHECK_EQ_INT(op.outcome, 0);
    answer_renewal(2, STORE_DONE);
    check_done(&op, STORE_DONE);
    CHECK_EQ_INT(renewal.outcome, STORE_DONE);
    hold.type = STORE_RELEASE;
    grant(4, 50);
    submit(&hold);
    CHECK_EQ_INT(set.quorum->votes.count, 0); /* the round is not kept any longer */
    set_close();
    free(hold.text);
}

TEST(a_vote_above_the_token_of_what_was_let_go_leaves_nothing_behind) {
    set_open();
    struct store_op op = held(3);
    op.type = STORE_RELEASE;
    submit(&op);
    grant(3, 81); /* its release is on the way */
    CHECK_EQ_INT(asked_count(3), 1);
    grant(4, 50);
    CHECK_EQ_INT(set.quorum->votes.count, 0);
    set_close();
    free(op.text);
}

TEST(nodes_that_were_never_met_have_more_time) {
    set_open();
    for (size_t i = 0; i < NODES; i++)
        set.quorum->nodes[i].met = i < 2;
    struct store_op op = mutex(1, 0);
    submit(&op);
    pass_us(2 * TIMEOUT_US);
    CHECK_EQ_INT(set.completed, 0);
    for (size_t i = 0; i < 3; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    struct store_op next = mutex(2, 0);
    submit(&next);
    pass_us(2 * TIMEOUT_US);
    check_done(&next, STORE_REFUSED);
    free(next.text);
    set_close();
}

TEST(each_ballot_has_a_number_of_its_own) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    uint64_t first = asked(0, STORE_ACQUIRE)->seq;
    for (size_t i = 1; i < NODES; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    check_done(&op, STORE_QUEUED);
    CHECK_EQ_INT(quorum_attempt_find(set.quorum, 1)->ballot_id, 0); /* the client has no votes */
    submit(&op);
    CHECK_EQ_INT(asked_count(0), 3); /* the first and its release are still under way */
    refuse(0, HF_BUSY, 5000 * MS);
    CHECK_EQ_INT(asked(0, STORE_RELEASE)->seq, first);
    confirm(0);
    CHECK(asked(0, STORE_ACQUIRE)->seq != first); /* the release does not affect the second */
    set_close();
    free(op.text);
}

TEST(split_votes_come_back_soon_and_less_and_less_so) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    int64_t longest_us = 0;
    for (int i = 0; i < 40; i++) {
        submit(&op);
        grant(0, 50);
        for (size_t n = 1; n < NODES; n++)
            n < 4 ? refuse(n, HF_BUSY, 9000 * MS) : (void)0;
        confirm(0);
        check_done(&op, STORE_QUEUED);
        CHECK(op.flags & STORE_HEAD);
        CHECK(op.left_us < (i ? 640 : 20) * MS);
        longest_us = op.left_us > longest_us ? op.left_us : longest_us;
        refuse(4, HF_BUSY, 0);
        confirm(4);
    }
    CHECK(longest_us > 20 * MS);
    set_close();
}

TEST(who_is_split_gives_way_without_waiting_for_nodes_that_are_away) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    for (size_t i = 3; i < NODES; i++)
        refuse(i, HF_UNREACHABLE, 0);
    struct store_op split = mutex(2, STORE_WAIT);
    submit(&split);
    grant(0, 51);
    CHECK_EQ_INT(asked_count(0), 0);
    refuse(1, HF_BUSY, 5000 * MS); /* 0 and 2 may grant it; 3 and 4 were away */
    confirm(0);
    check_done(&split, STORE_QUEUED);
    CHECK(split.left_us < 20 * MS);
    set_close();
}

TEST(who_finds_a_majority_away_waits_for_them_and_does_not_say_busy) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        refuse(i, HF_UNREACHABLE, 0);
    check_done(&op, STORE_REFUSED);
    free(op.text);
    op.text = NULL;
    for (size_t i = 3; i < NODES; i++) {
        refuse(i, HF_BUSY, 5000 * MS);
        confirm(i);
    }
    submit(&op);
    grant(3, 50);
    refuse(4, HF_BUSY, 5000 * MS);
    CHECK_EQ_INT(op.outcome, 0);
    pass_us(TIMEOUT_US);
    confirm(3);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_UNREACHABLE);
    free(op.text);
    set_close();
}

TEST(without_a_majority_it_is_not_busy_even_if_the_others_have_votes_of_it) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < 3; i++) {
        asked(i, STORE_ACQUIRE)->text = strdup("connection refused");
        refuse(i, HF_UNREACHABLE, 0);
    }
    check_done(&op, STORE_REFUSED);
    free(op.text);
    op.text = NULL;
    op.outcome = 0;
    set.completed = 0;
    submit(&op);
    for (size_t i = 3; i < NODES; i++) {
        refuse(i, HF_BUSY, 5000 * MS);
        confirm(i);
        refuse(i, HF_BUSY, 5000 * MS);
    }
    refuse(0, HF_UNREACHABLE, 0); /* 1 and 2 have not answered, and were away before */
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_UNREACHABLE);
    CHECK(strstr(op.text, "n2: no answer yet, and before that: connection refused"));
    free(op.text);
    set_close();
}

TEST(who_finds_it_busy_comes_back_when_a_quorum_may_be_free) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    refuse(0, HF_BUSY, 9000 * MS);
    refuse(1, HF_BUSY, INT64_C(70000000) * MS); /* a clock is wrong */
    refuse(2, HF_BUSY, 4000 * MS);
    check_done(&op, STORE_QUEUED);       /* nodes 3 and 4 alone are not a quorum; */
    CHECK_EQ_INT(op.left_us, 4000 * MS); /* with one more they may be */
    set_close();
}

/* FAILURES.md 5 */
TEST(clocks_without_which_there_is_no_quorum_are_reported_also_by_who_got_votes) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < 2; i++)
        grant(i, 50);
    for (size_t i = 2; i < NODES; i++)
        refuse(i, HF_BUSY, 3600000 * INT64_C(1000));
    for (size_t i = 0; i < 2; i++)
        confirm(i);
    check_done(&op, STORE_QUEUED);
    CHECK_EQ_INT(op.left_us, 3600000 * INT64_C(1000)); /* not the short delay after split votes */
    set_close();
}

TEST(a_word_of_a_node_that_refused_wakes_the_first_once) {
    set_open();
    struct store_op one = mutex(1, STORE_WAIT), two = mutex(2, STORE_WAIT);
    submit(&one);
    submit(&two);
    freed(3); /* arrives before its refusal, over the other connection */
    for (size_t i = 0; i < NODES; i++) {
        refuse(i, HF_BUSY, 5000 * MS);
        refuse(i, HF_BUSY, 5000 * MS);
    }
    check_done(&one, STORE_QUEUED);
    check_done(&two, STORE_QUEUED);
    CHECK_EQ_INT(set.wake_count, 0); /* it was decided before node 3 answered */
    freed(0);
    CHECK_EQ_INT(set.wake_count, 1);
    CHECK_EQ_INT(set.wakes[0], 1);
    freed(0);
    CHECK_EQ_INT(set.wakes[1], 2); /* the next announcement wakes the next attempt */
    freed(0);
    freed(1);
    freed(2);
    CHECK_EQ_INT(set.wake_count, 2);
    set_close();
}

TEST(a_word_that_overtakes_the_refusal_wakes_too) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    freed(0);
    CHECK_EQ_INT(set.wake_count, 0);
    for (size_t i = 0; i < 3; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    check_done(&op, STORE_QUEUED);
    pass_us(MS);
    CHECK_EQ_INT(set.wake_count, 1);
    set_close();
}

/* All nodes refuse. The last two do so after the ballot was lost, and also confirm its release. */
static void find_busy(struct store_op *op) {
    submit(op);
    for (size_t i = 0; i < NODES; i++)
        refuse(i, HF_BUSY, 9000 * MS);
    for (size_t i = 3; i < NODES; i++)
        confirm(i);
    check_done(op, STORE_QUEUED);
}

TEST(after_split_votes_a_word_wakes_at_a_time_of_ones_own) {
    set_open();
    struct store_op split = mutex(1, STORE_WAIT), busy = mutex(2, STORE_WAIT);
    for (int i = 0; i < 6; i++) {
        submit(&split);
        grant(0, 50);
        for (size_t n = 1; n < NODES; n++)
            refuse(n, HF_BUSY, 9000 * MS);
        confirm(0);
        confirm(4);
    }
    find_busy(&busy);
    freed(1);
    freed(2);
    CHECK_EQ_INT(set.wake_count, 0);
    pass_us(100 * MS);
    CHECK_EQ_INT(set.wake_count, 2); /* each once */
    CHECK_EQ_INT(set.wakes[0] + set.wakes[1], 3);
    for (uint64_t seq = 3; seq < 9; seq++) { /* ballots are won: then it is woken at once */
        struct store_op won = mutex(seq, 0);
        submit(&won);
        for (size_t i = 0; i < NODES; i++)
            grant(i, 50);
    }
    find_busy(&busy);
    freed(1);
    CHECK_EQ_INT(set.wake_count, 3);
    set_close();
}

TEST(what_failed_is_reported_with_the_names_of_the_nodes) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    grant(0, 50);
    for (size_t i = 1; i < 3; i++) {
        asked(i, STORE_ACQUIRE)->text = strdup("connection refused");
        refuse(i, HF_UNREACHABLE, 0);
    }
    CHECK_EQ_INT(asked_count(3), 1);
    pass_us(TIMEOUT_US); /* 3 and 4 are silent */
    confirm(0);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(op.text,
                 "1 of 5 nodes granted it, and 3 are needed; n1: connection refused; n2: "
                 "connection refused; n3: no answer within 50 ms; n4: no answer within 50 ms");
    free(op.text);
    set_close();
}

TEST(silent_nodes_are_asked_again_by_who_waits) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    grant(0, 50);
    pass_us(TIMEOUT_US);
    confirm(0);
    check_done(&op, STORE_UNKNOWN); /* the engine then asks again */
    CHECK(strstr(op.text, "n4: no answer within 50 ms"));
    free(op.text);
    set_close();
}

TEST(nodes_that_refuse_decide_also_before_the_others_have_answered) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < 3; i++)
        refuse(i, HF_UNREACHABLE, 0);
    check_done(&op, STORE_REFUSED); /* the same as if the others had answered first */
    CHECK_EQ_INT(op.reason, HF_UNREACHABLE);
    free(op.text);
    set_close();
}

/* A ballot of an attempt that waits: nodes 0 to 2 refuse the connection, and node 4, which is
 * behind, is not asked. */
static void ballot_without_4(struct store_op *op) {
    size_t before = asked_count(4);
    submit(op);
    CHECK_EQ_INT(asked_count(4), before);
    for (size_t i = 0; i < 3; i++)
        refuse(i, HF_UNREACHABLE, 0);
}

TEST(a_node_that_was_not_asked_because_it_refuses_connections_leaves_nothing_unknown) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < NODES; i++)
        refuse(i, HF_UNREACHABLE, 0);
    answer(3, STORE_RELEASE, STORE_REFUSED);
    check_done(&op, STORE_REFUSED);
    free(op.text);
    op.text = NULL;
    pass_us(TIMEOUT_US); /* node 4 has not answered the release: its store waits to connect */
    ballot_without_4(&op);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_UNREACHABLE);
    free(op.text);
    set_close();
}

TEST(a_node_that_may_have_acted_leaves_the_outcome_unknown) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op); /* node 4 gets it, hangs, and did not fail before */
    for (size_t i = 0; i < 4; i++)
        refuse(i, HF_UNREACHABLE, 0);
    check_done(&op, STORE_REFUSED); /* it was lost, whatever node 4 does */
    free(op.text);
    op.text = NULL;
    answer(3, STORE_RELEASE, STORE_REFUSED);
    pass_us(TIMEOUT_US);
    ballot_without_4(&op);
    check_done(&op, STORE_UNKNOWN);
    free(op.text);
    set_close();
    set = (struct set){0};
    set_open();
    op = mutex(1, STORE_WAIT);
    for (size_t i = 0; i < NODES; i++)
        snprintf(set.quorum->nodes[i].why, sizeof(set.quorum->nodes[i].why), "it failed before");
    submit(&op);
    answer(0, STORE_ACQUIRE, STORE_UNKNOWN); /* it was sent there, and the connection broke */
    for (size_t i = 1; i < 3; i++)
        refuse(i, HF_UNREACHABLE, 0);
    check_done(&op, STORE_UNKNOWN);
    free(op.text);
    set_close();
}

/* The node has voted, and was not asked to raise its vote. */
TEST(a_vote_that_is_not_raised_because_its_node_is_behind_leaves_the_outcome_unknown) {
    set_open();
    for (size_t i = 0; i < NODES; i++)
        set.quorum->nodes[i].met = false; /* so a ballot has more time than node_timeout */
    struct store_op op = mutex(1, STORE_WAIT), failed = mutex(2, 0), hangs = mutex(3, 0);
    submit(&op);
    grant(0, 50);
    submit(&failed);
    submit(&hangs);
    refuse(0, HF_UNREACHABLE, 0);
    pass_us(TIMEOUT_US); /* now node 0 is behind, and failed the last time */
    refuse(3, HF_UNREACHABLE, 0);
    grant(1, 51);
    grant(2, 51);
    CHECK(asked_vote(0)->type == STORE_GIVE && asked_count(0) == 1);
    pass_us(TIMEOUT_US);
    check_done(&op, STORE_UNKNOWN);
    set_close();
    free(op.text);
    free(failed.text);
    free(hangs.text);
}

TEST(a_vote_that_is_not_raised_because_its_node_is_behind_is_released_later) {
    set_open();
    struct store_op look = {.type = STORE_INSPECT, .name = "x"}, op = mutex(1, STORE_WAIT);
    submit(&look);
    for (size_t i = 1; i < NODES; i++) {
        asked(i, STORE_INSPECT)->locks = locks_new();
        answer(i, STORE_INSPECT, STORE_DONE);
    }
    struct store_op *slow = asked(0, STORE_INSPECT);
    list_remove(&slow->link); /* it hangs, while node 0 votes */
    for (size_t i = 0; i < NODES; i++)
        set.quorum->nodes[i].met = false; /* so a ballot has more time than node_timeout */
    submit(&op);
    grant(0, 50);
    pass_us(TIMEOUT_US); /* now node 0 is behind */
    refuse(3, HF_UNREACHABLE, 0);
    grant(1, 51);
    grant(2, 51);
    CHECK_EQ_INT(asked_count(0), 0); /* its vote is not raised */
    pass_us(10 * TIMEOUT_US);
    check_done(&op, STORE_UNKNOWN);
    slow->locks = locks_new();
    store_complete(&set.quorum->nodes[0].host, slow, STORE_DONE);
    pass_us(1000 * MS);
    CHECK(asked(0, STORE_RELEASE));
    set_close();
    hf_locks_free(look.locks);
    free(op.text);
}

TEST(a_minority_that_fails_does_not_matter) {
    set_open();
    struct store_op op = mutex(1, 0);
    submit(&op);
    refuse(0, HF_UNREACHABLE, 0); /* a node in quarantine has no vote */
    refuse(1, HF_BAD_STORE, 0);
    for (size_t i = 2; i < NODES; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    struct store_op busy = mutex(2, 0);
    submit(&busy);
    refuse(0, HF_WRONG_KIND, 0);
    for (size_t i = 1; i < 4; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    check_done(&busy, STORE_REFUSED);
    CHECK_EQ_INT(busy.reason, HF_BUSY);
    set_close();
}

TEST(what_most_nodes_say_is_the_reason) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    refuse(0, HF_UNREACHABLE, 0);
    refuse(1, HF_BAD_STORE, 0);
    grant(2, 50);
    refuse(3, HF_BAD_STORE, 0);
    confirm(2);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_BAD_STORE); /* another set */
    free(op.text);
    set_close();
}

TEST(one_server_under_two_names_is_refused) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    grant(0, 50);
    struct store_vote *same = asked_vote(3);
    same->op.token = 50;
    same->node_id = 100; /* as node 0 */
    answer(3, STORE_ACQUIRE, STORE_DONE);
    confirm(0);
    confirm(3);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(op.reason, HF_BAD_URL);
    CHECK_EQ_STR(op.text, "n3 is the same server as another of the set");
    free(op.text);
    set_close();
}

/* ---- What is known of attempts ---- */

static void answer_release(struct store_op *op, enum store_outcome outcome) {
    op->type = STORE_RELEASE;
    submit(op);
    for (size_t i = 0; i < NODES; i++)
        answer(i, STORE_RELEASE, outcome);
    free(op->text);
    op->text = NULL;
}

/* Three refusals decide; the votes that the other two may have given are taken back. */
static void refuse_all(struct store_op *op) {
    submit(op);
    for (size_t i = 0; i < NODES; i++)
        refuse(i, HF_BUSY, 5000 * MS);
    for (size_t i = 3; i < NODES; i++)
        answer(i, STORE_RELEASE, STORE_NOT_YOURS);
}

TEST(an_attempt_is_forgotten_when_it_has_nothing_at_the_nodes) {
    set_open();
    struct store_op op = held(NODES);
    answer_release(&op, STORE_DONE);
    CHECK_EQ_INT(set.quorum->attempts.count, 0);
    op = mutex(2, 0);
    refuse_all(&op);
    check_done(&op, STORE_REFUSED);
    CHECK_EQ_INT(set.quorum->attempts.count, 0);
    op = mutex(3, STORE_WAIT);
    refuse_all(&op);
    check_done(&op, STORE_QUEUED);
    CHECK_EQ_INT(set.quorum->attempts.count, 1);
    op.type = STORE_RELEASE;
    submit(&op);
    check_done(&op, STORE_NOT_YOURS);
    CHECK_EQ_INT(set.quorum->attempts.count, 0);
    op = held(NODES);
    struct store_renewal renewal = {.of = &op, .lease_us = op.lease_us};
    struct store_op renew = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
    submit(&renew);
    for (size_t i = 0; i < NODES; i++)
        answer_renewal(i, STORE_NOT_YOURS);
    CHECK_EQ_INT(renewal.outcome, STORE_NOT_YOURS);
    answer_release(&op, STORE_NOT_YOURS);
    CHECK_EQ_INT(set.quorum->attempts.count, 0);
    set_close();
}

/* The engine repeats a release that was not confirmed, for as long as a lease may last. */
TEST(an_attempt_whose_release_is_not_confirmed_is_known_until_nobody_repeats_it) {
    set_open();
    struct store_op op = held(NODES), next = mutex(2, 0);
    uint64_t ballot_id = op.owner_seq;
    answer_release(&op, STORE_REFUSED);
    check_done(&op, STORE_UNKNOWN);
    submit(&op);
    CHECK_EQ_INT(asked(0, STORE_RELEASE)->seq, ballot_id);
    for (int64_t us = 0; us <= 2 * set.host.max_lease_us + set.host.wait_lease_us;
         us += 1000 * MS) {
        for (size_t i = 0; i < NODES; i++) {
            while (asked_count(i))
                answer(i, STORE_RELEASE, STORE_REFUSED);
        }
        CHECK_EQ_INT(set.quorum->attempts.count, 1);
        pass_us(1000 * MS);
    }
    submit(&next);
    for (size_t i = 0; i < NODES; i++)
        grant(i, 50);
    answer_release(&next, STORE_DONE);
    CHECK_EQ_INT(set.quorum->attempts.count, 0);
    set_close();
    free(op.text);
}

/* ---- Nodes that hang ---- */

/* With the nodes 0 to 3, whatever 4 does. */
static struct store_op held_without_4(uint64_t seq) {
    struct store_op op = mutex(seq, 0);
    submit(&op);
    for (size_t i = 0; i < 4; i++)
        grant(i, 50);
    check_done(&op, STORE_DONE);
    return op;
}

static void release_without_4(struct store_op *op) {
    op->type = STORE_RELEASE;
    submit(op);
    for (size_t i = 0; i < 4; i++)
        confirm(i);
    check_done(op, STORE_DONE);
}

TEST(a_node_that_hangs_is_asked_no_more_until_it_answers) {
    set_open();
    struct store_op before = held_without_4(1);
    pass_us(TIMEOUT_US - 1);
    struct store_op last = held_without_4(2);
    CHECK_EQ_INT(asked_count(4), 2);
    pass_us(1);
    struct store_op after = held_without_4(3);
    release_without_4(&after);
    CHECK_EQ_INT(asked_count(4), 2);
    CHECK_EQ_INT(set.quorum->pending_release_count, 0); /* it was not asked for that one */
    release_without_4(&before);
    CHECK_EQ_INT(asked_count(4), 2);
    CHECK_EQ_INT(set.quorum->pending_release_count, 1); /* for this one it may have voted */
    grant(4, 50);                                       /* now it is given back */
    grant(4, 50);
    CHECK_EQ_INT(asked(4, STORE_RELEASE)->seq, before.owner_seq);
    confirm(4);
    CHECK_EQ_INT(asked(4, STORE_RELEASE)->seq, before.owner_seq); /* again: it answers */
    confirm(4);
    release_without_4(&last);
    confirm(4);
    pass_us(250 * MS);
    CHECK_EQ_INT(set.quorum->pending_release_count, 0);
    CHECK_EQ_INT(asked_count(4), 0);
    set_close();
}

TEST(nodes_are_asked_however_far_behind_if_the_others_are_no_quorum) {
    set_open();
    struct store_op op = mutex(1, STORE_WAIT);
    submit(&op);
    for (size_t i = 0; i < 2; i++)
        grant(i, 50);
    pass_us(TIMEOUT_US);
    for (size_t i = 0; i < 2; i++)
        confirm(i);
    check_done(&op, STORE_UNKNOWN);
    free(op.text);
    op.text = NULL;
    submit(&op);
    for (size_t i = 2; i < NODES; i++)
        CHECK_EQ_INT(asked_count(i), 3);
    for (size_t i = 2; i < NODES; i++) { /* it was this client that was paused */
        grant(i, 50);
        confirm(i);
        grant(i, 50);
    }
    check_done(&op, STORE_DONE);
    set_close();
}

/* ---- Loss, close ---- */

TEST(a_hold_is_gone_when_so_many_nodes_say_so_that_no_quorum_is_left) {
    set_open();
    struct store_op op = held(NODES);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ_INT(set.gone, 0);
        struct store_host *host = &set.quorum->nodes[i].host;
        host->gone(host, op.owner_seq);
        host->gone(host, op.owner_seq); /* a node counts once */
    }
    CHECK_EQ_INT(set.gone, 1);
    set_close();
}

TEST(a_node_that_has_doubts_ends_nothing_and_has_the_whole_hold_checked) {
    set_open();
    struct store_op op = held(NODES);
    for (size_t i = 0; i < NODES; i++) {
        struct store_host *host = &set.quorum->nodes[i].host;
        host->check(host, op.owner_seq);
    }
    CHECK_EQ_INT(set.checked, NODES);
    CHECK_EQ_INT(set.gone, 0);
    set_close();
}

TEST(closing_completes_everything_once) {
    set_open();
    struct store_op hold = held(3);
    struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
    struct store_op ops[] = {
        mutex(2, 0),
        mutex(3, STORE_WAIT),
        {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1},
        {.type = STORE_BREAK, .name = "x", .token = 50},
        {.type = STORE_INSPECT, .name = "x"},
        {.type = STORE_LIST, .name = "", .limit = 5},
        {.type = STORE_EXAMINE},
        mutex(1, 0),
    };
    enum { OPS = sizeof(ops) / sizeof(ops[0]) };
    ops[OPS - 1].type = STORE_RELEASE;
    for (size_t i = 0; i < OPS; i++)
        submit(&ops[i]);
    int before = set.completed;
    set_close();
    CHECK_EQ_INT(set.completed, before + OPS);
    for (size_t i = 0; i < OPS; i++) {
        CHECK(ops[i].outcome != 0);
        free(ops[i].text);
        if (ops[i].type == STORE_EXAMINE && ops[i].outcome == STORE_DONE)
            hf_examination_free(ops[i].examination);
    }
}

/* ---- The URL, and five memory stores behind the public calls ---- */

static int open_with(const char *url, const char *words) {
    hf_client *client = virtual_client(url, NULL);
    if (client)
        hf_client_close(client);
    else
        CHECK(strstr(hf_last_error(), words));
    return client ? HF_OK : HF_BAD_URL;
}

TEST(a_set_has_three_nodes_at_least_and_a_majority) {
    CHECK_EQ_INT(open_with("quorum+memory:a,b", "3 to 15 nodes"), HF_BAD_URL);
    CHECK_EQ_INT(open_with("quorum+memory:a,b,c?quorum=1", "quorum is not a number from 2 to 3"),
                 HF_BAD_URL);
    CHECK_EQ_INT(open_with("quorum+memory:a,b,c?quorum=3", ""), HF_OK);
    CHECK_EQ_INT(open_with("quorum+memory:a,b,c?node_timeout=0", "node_timeout"), HF_BAD_URL);
    CHECK_EQ_INT(open_with("quorum+memory:a,b,c?init=no", "init"), HF_BAD_URL);
    CHECK_EQ_INT(open_with("quorum+memory:a,b,c?other=1", "memory"), HF_BAD_URL);
}

TEST(permits_and_counters_are_refused_with_the_reason) {
    hf_client *client = virtual_client("quorum+memory:a,b,c", NULL);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = HF_PERMITS;
    options.capacity = 3;
    hf_hold *hold;
    CHECK_EQ_INT(hf_acquire(client, "x", &options, &hold), HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "no permits: a majority of nodes cannot count"));
    CHECK_EQ_INT(hf_count(client, "x", NULL, NULL), HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "no counters: a majority of nodes cannot count"));
    hf_client_close(client);
}

TEST(a_look_says_how_many_votes_each_has) {
    hf_client *client = virtual_client("quorum+memory:a,b,c", NULL);
    hf_client *one = virtual_client("memory:b", NULL);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    options.label = "nightly";
    hf_hold *taken, *hold;
    CHECK_EQ_INT(hf_acquire(one, "x", &options, &taken), HF_OK);
    CHECK_EQ_INT(hf_acquire(client, "x", &options, &hold), HF_OK);
    hf_locks *locks;
    CHECK_EQ_INT(hf_inspect(client, "x", &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    CHECK_EQ_INT(info->quorum, 2);
    CHECK_EQ_INT(info->holder_count, 1);
    CHECK_EQ_STR(info->holders[0]->label, "nightly");
    CHECK_EQ_INT(info->holders[0]->votes, 2);
    CHECK_EQ_INT(info->holders[0]->token, hf_hold_token(hold));
    CHECK_EQ_INT(info->waiter_count, 1);
    CHECK_EQ_STR(info->waiters[0]->label, "nightly");
    CHECK_EQ_INT(info->waiters[0]->votes, 1);
    CHECK_EQ_INT(info->node_count, 3);
    for (size_t i = 0; i < 3; i++) {
        const hf_party *who = i == 1 ? info->waiters[0] : info->holders[0];
        CHECK_EQ_INT(info->nodes[i]->holder_count, 1);
        CHECK_EQ_STR(info->nodes[i]->holders[0]->owner, who->owner);
    }
    hf_locks_free(locks);
    CHECK_EQ_INT(hf_list(client, "", NULL, 5, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->quorum, 2);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->holders[0]->votes, 2);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->node_count, 0);
    hf_locks_free(locks);
    hf_hold_free(hold);
    hf_hold_free(taken);
    hf_client_close(client);
    hf_client_close(one);
}

/* ---- A node that may have forgotten its votes ---- */

static struct store_host *forgot_host;
static store_concerns *forgot_concerns;
static void *forgot_context;

static void note_forgot(struct store_host *host, store_concerns *concerns, void *context) {
    forgot_host = host;
    forgot_concerns = concerns;
    forgot_context = context;
}

static bool is_x(void *context, const char *name) {
    (void)context;
    return strcmp(name, "x") == 0;
}

TEST(what_a_node_has_forgotten_is_reported_as_the_loss_of_the_sets_holds) {
    set_open();
    set.host.forgot = note_forgot;
    for (size_t i = 0; i < NODES; i++)
        quorum_join(set.quorum, &set.quorum->nodes[i]);
    held(NODES);
    int context;
    struct store_host *node = &set.quorum->nodes[1].host;
    node->forgot(node, is_x, &context);
    CHECK(forgot_host == &set.host); /* the client's, which a node must never call with its own */
    CHECK(forgot_concerns == is_x && forgot_context == &context);
    set_close();
}
