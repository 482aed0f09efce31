/* Locks that are left to their leases: HF_KEEP. */
#include "suite.h"

static hf_acquire_options kept(hf_acquire_options options) {
    return with_flags(options, HF_KEEP);
}

BOTH_FORMS(a_kept_lock_outlasts_its_hold_and_its_client) {
    hf_client *a = open_client(), *b = open_client(), *c = open_client();
    const char *freed = fresh_name("freed"), *closed = fresh_name("closed");
    hf_hold_free(get(a, freed, kept(as_exclusive(0))));
    hf_hold *hold = get(b, closed, kept(as_exclusive(0)));
    close_client(b);
    hf_hold_free(hold);
    CHECK_IS(attempt(a, freed, as_exclusive(0)), HF_BUSY);
    CHECK_IS(attempt(c, freed, as_exclusive(0)), HF_BUSY);
    CHECK_IS(attempt(c, closed, as_exclusive(0)), HF_BUSY);
}

BOTH_FORMS(a_kept_lock_is_free_when_its_lease_ends) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("kept");
    int64_t begin = now_ms();
    hf_hold_free(get(a, name, kept(for_only(as_exclusive(0), 500))));
    let_go(get(b, name, as_exclusive(HF_FOREVER)));
    CHECK(now_ms() - begin >= 490);
}

BOTH_FORMS(a_kept_lock_can_be_released) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("released");
    let_go(get(a, name, kept(as_exclusive(0))));
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_OK);
}

BOTH_FORMS(a_kept_lock_that_nobody_took_from_its_call_stays_held) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("taken");
    hf_acquire_options options = kept(as_exclusive(0));
    hf_call *call;
    CHECK_IS(hf_acquire_start(a, name, &options, &call), HF_OK);
    CHECK_IS(outcome(call), HF_OK);
    hf_call_free(call);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
}

/* A lock that the caller never got must not stay held. */
BOTH_FORMS(a_wait_for_a_kept_lock_that_is_given_up_leaves_nothing) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("in-vain");
    hf_hold *hold = get(a, name, as_exclusive(0));
    CHECK_IS(attempt_in_vain(b, name, kept(as_exclusive(100))), HF_TIMEOUT);
    let_go(hold);
    let_go(get(a, name, as_exclusive(PATIENCE_MS)));
}

TEST(several_names_cannot_be_kept) {
    hf_client *a = open_client();
    hf_want want = HF_WANT_INIT;
    want.name = fresh_name("several");
    const hf_want *wants[] = {&want};
    hf_acquire_options options = kept(as_exclusive(0));
    hf_hold *hold;
    CHECK_IS(noted(hf_acquire_all(a, wants, 1, &options, &hold)), HF_UNSUPPORTED);
}

TEST(a_store_whose_locks_depend_on_their_client_refuses_to_keep_them) {
    hf_client *a = open_client();
    CHECK_IS(attempt(a, fresh_name("refused"), kept(as_exclusive(0))), HF_UNSUPPORTED);
    CHECK(strstr(failure, "a lock cannot outlast its client") != NULL);
}
