/* Breaking: an operator ends somebody's hold, by its token. */
#include "suite.h"

/* A store that cannot tell a holder at once does so at the next renewal: this makes that soon. */
static hf_acquire_options breakable(hf_acquire_options options) {
    options.lease_ms = 3000;
    return options;
}

BOTH_FORMS(a_broken_lock_is_lost_to_its_holder_and_goes_to_the_next) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("break");
    atomic_int losses = 0;
    hf_hold *hold = get(a, name, telling(as_mutex(0), &losses));
    int fd = hf_hold_fd(hold);
    struct ask *next = queue_up(b, name, as_mutex(HF_FOREVER), 1);
    CHECK_IS(break_hold(b, name, hf_hold_token(hold)), HF_OK);
    hf_hold *after = granted(next);
    CHECK(hf_hold_token(after) > hf_hold_token(hold));
    AWAIT(hf_check(hold, 0) == HF_LOST);
    AWAIT(atomic_load(&losses) == 1);
    AWAIT(is_readable(fd));
    CHECK_IS(renew(hold, 0), HF_LOST);
    CHECK_IS(release(hold), HF_LOST);
    hf_hold_free(hold);
    CHECK_IS(hf_check(after, 0), HF_OK);
    CHECK_IS(attempt(a, name, as_mutex(0)), HF_BUSY);
    let_go(after);
    CHECK_EQ_INT(atomic_load(&losses), 1);
}

BOTH_FORMS(a_break_with_another_token_does_nothing) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("wrong");
    hf_hold *before = get(a, name, as_mutex(0));
    uint64_t old = hf_hold_token(before);
    let_go(before);
    CHECK_IS(break_hold(b, name, old), HF_NOT_YOURS);
    hf_hold *hold = get(a, name, as_mutex(0));
    CHECK_IS(break_hold(b, name, old), HF_NOT_YOURS);
    CHECK(strstr(failure, hf_error_string(HF_NOT_YOURS)));
    CHECK_IS(break_hold(b, name, hf_hold_token(hold) + 1), HF_NOT_YOURS);
    CHECK_IS(break_hold(b, fresh_name("never"), 1), HF_NOT_YOURS);
    CHECK_IS(renew(hold, 0), HF_OK);
    CHECK_IS(attempt(b, name, as_mutex(0)), HF_BUSY);
    let_go(hold);
}

BOTH_FORMS(a_break_moves_the_token_on) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("moves");
    hf_hold *hold = get(a, name, breakable(as_mutex(0)));
    uint64_t token = hf_hold_token(hold);
    CHECK_IS(break_hold(b, name, token), HF_OK);
    CHECK_IS(break_hold(b, name, token), HF_NOT_YOURS);
    hf_locks *locks;
    CHECK_IS(inspect(b, name, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 1);
    CHECK(hf_locks_at(locks, 0)->token > token);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->holder_count, 0);
    uint64_t moved = hf_locks_at(locks, 0)->token;
    hf_locks_free(locks);
    hf_hold *next = get(b, name, as_mutex(0));
    CHECK(hf_hold_token(next) > moved);
    let_go(next);
    AWAIT(hf_check(hold, 0) == HF_LOST);
    hf_hold_free(hold);
}

BOTH_FORMS(a_break_ends_one_of_several_holders) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("one");
    hf_hold *one = get(a, name, breakable(as_reader(0)));
    hf_hold *two = get(b, name, breakable(as_reader(0)));
    CHECK_IS(break_hold(a, name, hf_hold_token(two)), HF_OK);
    CHECK_EQ_INT(holders(a, name), 1);
    AWAIT(hf_check(two, 0) == HF_LOST);
    CHECK_IS(renew(one, 0), HF_OK);
    CHECK_IS(attempt(b, name, as_writer(0)), HF_BUSY);
    hf_hold_free(two);
    let_go(one);
    CHECK_IS(attempt(b, name, as_writer(0)), HF_OK);
}
