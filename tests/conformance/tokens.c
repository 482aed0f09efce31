/* Tokens: they rise from grant to grant, whoever gets the lock and however the previous hold
 * ended. */
#include "suite.h"

static const uint64_t token_limit = UINT64_C(1) << 53;

static int64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* The largest token that the store remembers of `name`; 0 if it knows nothing. */
static uint64_t remembered_token(hf_client *client, const char *name) {
    hf_locks *locks = NULL;
    CHECK_IS(inspect(client, name, &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    uint64_t token = info ? info->token : 0;
    hf_locks_free(locks);
    return token;
}

BOTH_FORMS(tokens_rise_across_clients) {
    hf_client *of[] = {open_client(), open_client(), open_client()};
    const char *name = fresh_name("tokens");
    uint64_t token = 0;
    for (size_t i = 0; i < 30; i++) {
        hf_hold *hold = get(of[i * 7 % 3], name, as_exclusive(0));
        CHECK(hf_hold_token(hold) > token);
        token = hf_hold_token(hold);
        CHECK(token < token_limit);
        CHECK_EQ_INT(hf_hold_token_at(hold, 0), token);
        CHECK_EQ_INT(hf_hold_token_at(hold, 1), 0);
        CHECK_EQ_INT(remembered_token(of[0], name), token);
        let_go(hold);
    }
}

BOTH_FORMS(tokens_of_shared_holds_are_distinct_and_rise_too) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("shared");
    hf_hold *one = get(a, name, as_shared(0)), *two = get(b, name, as_shared(0));
    CHECK(hf_hold_token(two) > hf_hold_token(one));
    uint64_t token = hf_hold_token(two);
    let_go(one);
    let_go(two);
    hf_hold *writer = get(a, name, as_exclusive(0));
    CHECK(hf_hold_token(writer) > token);
    let_go(writer);
}

BOTH_FORMS(a_token_rises_after_a_lease_that_ended) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("expired");
    hf_hold *paused = get(a, name, for_only(as_exclusive(0), 200));
    hf_hold *next = get(b, name, as_exclusive(HF_FOREVER));
    CHECK(hf_hold_token(next) > hf_hold_token(paused));
    hf_hold_free(paused);
    let_go(next);
}

BOTH_FORMS(a_token_does_not_change_while_its_lock_is_held) {
    hf_client *a = open_client();
    const char *name = fresh_name("same");
    hf_hold *hold = get(a, name, as_exclusive(0));
    uint64_t token = hf_hold_token(hold);
    for (int i = 0; i < 5; i++)
        CHECK_IS(renew(hold, 0), HF_OK);
    CHECK_EQ_INT(hf_hold_token(hold), token);
    CHECK_EQ_INT(remembered_token(a, name), token);
    let_go(hold);
}

BOTH_FORMS(a_failed_acquire_does_not_lower_the_token) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("failed");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    CHECK(remembered_token(a, name) >= hf_hold_token(hold));
    let_go(hold);
}

BOTH_FORMS(tokens_are_not_below_the_floor_that_was_set) {
    hf_client *plain = open_client();
    const char *name = fresh_name("floor");
    hf_hold *before = get(plain, name, as_exclusive(0));
    uint64_t token = hf_hold_token(before),
             in_an_hour = (uint64_t)wall_us() + UINT64_C(3600) * 1000000;
    let_go(before);
    hf_client_options options =
        HF_CLIENT_OPTIONS_INIT; /* the floor may be the whole store's, even from another test */
    options.token_floor = token < in_an_hour ? in_an_hour : token + 1000000;
    hf_client *floored = open_client_with(&options);
    hf_hold *raised = get(floored, name, as_exclusive(0));
    CHECK(hf_hold_token(raised) >= options.token_floor);
    token = hf_hold_token(raised);
    let_go(raised);
    hf_hold *after = get(plain, name, as_exclusive(0));
    CHECK(hf_hold_token(after) > token);
    let_go(after);
}
