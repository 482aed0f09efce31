/* The lock model: which holds of one name are compatible. */
#include "suite.h"

BOTH_FORMS(a_mutex_has_one_holder) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("mutex");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(hf_check(hold, 0), HF_OK);
    CHECK_EQ_STR(hf_hold_name(hold), name);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    let_go(hold);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_OK);
}

TEST(defaults_are_a_mutex_that_waits_and_is_renewed) {
    hf_client *a = open_client_with(NULL);
    const char *name = fresh_name("defaults");
    hf_hold *hold;
    CHECK_IS(hf_acquire(a, name, NULL, &hold), HF_OK);
    CHECK(hf_hold_left_ms(hold) > HF_DEFAULT_LEASE_MS / 2);
    CHECK(hf_hold_left_ms(hold) <= HF_DEFAULT_LEASE_MS);
    CHECK(hf_hold_is_exclusive(hold));
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    let_go(hold);
}

BOTH_FORMS(names_do_not_meet) {
    hf_client *a = open_client();
    hf_hold *one = get(a, fresh_name("one"), as_exclusive(0));
    hf_hold *two = get(a, fresh_name("two"), as_exclusive(0));
    let_go(one);
    let_go(two);
}

BOTH_FORMS(a_try_that_fails_leaves_nothing_in_the_queue) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("try");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    CHECK_EQ_INT(waiters(a, name), 0);
    let_go(hold);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_OK);
}

BOTH_FORMS(a_timed_wait_ends_in_time) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("timed");
    hf_hold *hold = get(a, name, as_exclusive(0));
    int64_t begin = now_ms();
    CHECK_IS(attempt_in_vain(b, name, as_exclusive(150)), HF_TIMEOUT);
    CHECK(now_ms() - begin >= 149);
    CHECK(now_ms() - begin < PATIENCE_MS);
    AWAIT(waiters(a, name) == 0);
    let_go(hold);
}

BOTH_FORMS(a_waiter_gets_the_lock_when_it_is_released) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("wait");
    hf_hold *hold = get(a, name, as_exclusive(0));
    struct ask *other = queue_up(b, name, as_exclusive(HF_FOREVER), 1);
    struct ask *own = queue_up(a, name, as_exclusive(PATIENCE_MS), 2);
    CHECK(!is_answered(other) && !is_answered(own));
    let_go(hold);
    let_go(granted(other));
    let_go(granted(own));
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_OK);
}

BOTH_FORMS(readers_share_and_a_writer_is_alone) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("rw");
    hf_hold *one = get(a, name, as_shared(0));
    hf_hold *two = get(b, name, as_shared(0));
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    let_go(one);
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    let_go(two);
    hf_hold *writer = get(a, name, as_exclusive(0));
    CHECK_IS(attempt(b, name, as_shared(0)), HF_BUSY);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    let_go(writer);
    CHECK_IS(attempt(b, name, as_shared(0)), HF_OK);
}

BOTH_FORMS(permits_are_counted_by_weight) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("permits");
    hf_hold *two = get(a, name, as_permits(2, 5, 0));
    hf_hold *more = get(b, name, as_permits(2, 5, 0));
    CHECK_IS(attempt(b, name, as_permits(2, 5, 0)), HF_BUSY);
    hf_hold *last = get(b, name, as_permits(1, 5, 0));
    CHECK_IS(attempt(a, name, as_permits(1, 5, 0)), HF_BUSY);
    let_go(two);
    CHECK_IS(attempt(b, name, as_permits(3, 5, 0)), HF_BUSY);
    CHECK_IS(attempt(b, name, as_permits(2, 5, 0)), HF_OK);
    let_go(more);
    let_go(last);
    hf_hold *all = get(b, name, as_permits(5, 5, 0));
    CHECK_IS(attempt(a, name, as_permits(1, 5, 0)), HF_BUSY);
    let_go(all);
}

BOTH_FORMS(a_name_may_change_its_kind_when_nobody_has_it) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("kinds");
    hf_acquire_options kinds[] = {as_exclusive(0), as_shared(0), as_permits(1, 3, 0),
                                  as_permits(3, 4, 0), as_exclusive(0)};
    uint64_t token = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hf_hold *hold = get(i % 2 ? a : b, name, kinds[i]);
        CHECK(hf_hold_token(hold) > token);
        token = hf_hold_token(hold);
        let_go(hold);
    }
}

BOTH_FORMS(only_all_of_a_lock_is_exclusive) {
    hf_client *a = open_client();
    struct {
        hf_acquire_options options;
        int is_exclusive;
    } cases[] = {
        {as_exclusive(0), 1},     {as_shared(0), 0},        {as_permits(2, 3, 0), 0},
        {as_permits(3, 3, 0), 1}, {as_permits(1, 1, 0), 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_hold *hold = get(a, fresh_name("exclusive"), cases[i].options);
        CHECK_EQ_INT(hf_hold_is_exclusive(hold), cases[i].is_exclusive);
        let_go(hold);
    }
}
