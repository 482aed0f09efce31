/* Reentrancy: the owner, a thread or a key, can enter again and is counted; everybody else is
 * excluded. */
#include "suite.h"

static hf_acquire_options again(hf_acquire_options options) {
    return with_flags(options, HF_REENTRANT);
}

static hf_acquire_options by_key(hf_acquire_options options, uint64_t key) {
    options.owner_key = key;
    return again(options);
}

BOTH_FORMS(a_thread_counts_up_what_it_has) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("reenter");
    hf_hold *outer = get(a, name, again(as_exclusive(0)));
    hf_hold *inner = get(a, name, again(as_exclusive(0)));
    hf_hold *third = get(a, name, again(as_exclusive(HF_FOREVER)));
    CHECK(outer != inner && inner != third);
    CHECK_EQ_INT(hf_hold_token(inner), hf_hold_token(outer));
    CHECK_EQ_INT(hf_hold_token(third), hf_hold_token(outer));
    CHECK_EQ_INT(holders(a, name), 1);
    CHECK_IS(release(outer), HF_OK); /* in any order, and each counts once even if it is repeated */
    CHECK_IS(release(outer), HF_OK);
    CHECK_IS(release(outer), HF_OK);
    CHECK_IS(hf_check(outer, 0), HF_RELEASED);
    CHECK_IS(hf_check(inner, 0), HF_OK);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    hf_hold_free(outer);
    let_go(inner);
    CHECK_IS(hf_check(third, 0), HF_OK);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_BUSY);
    let_go(third);
    CHECK_IS(attempt(b, name, as_exclusive(0)), HF_OK);
}

BOTH_FORMS(freeing_counts_down_too) {
    hf_client *a = open_client();
    const char *name = fresh_name("free");
    hf_hold *outer = get(a, name, again(as_exclusive(0)));
    hf_hold_free(get(a, name, again(as_exclusive(0))));
    CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
    hf_hold_free(outer);
    AWAIT(attempt(a, name, as_exclusive(0)) == HF_OK);
}

BOTH_FORMS(both_requests_must_want_reentrancy) {
    hf_client *a = open_client();
    const char *plain = fresh_name("plain"), *counted = fresh_name("counted");
    hf_hold *hold = get(a, plain, as_exclusive(0));
    CHECK_IS(attempt(a, plain, again(as_exclusive(0))), HF_BUSY);
    let_go(hold);
    hold = get(a, counted, again(as_exclusive(0)));
    CHECK_IS(attempt(a, counted, as_exclusive(0)), HF_BUSY);
    let_go(hold);
}

struct stranger {
    hf_client *client;
    const char *name;
    int as_thread, as_key, as_other_key;
};

static void *try_as_stranger(void *arg) {
    struct stranger *stranger = arg;
    hf_acquire_options thread = again(as_exclusive(0)), key = by_key(as_exclusive(0), 7),
                       other = by_key(as_exclusive(0), 8);
    hf_hold *hold;
    stranger->as_thread = hf_acquire(stranger->client, stranger->name, &thread, &hold);
    stranger->as_other_key = hf_acquire(stranger->client, stranger->name, &other, &hold);
    stranger->as_key = hf_acquire(stranger->client, stranger->name, &key, &hold);
    if (stranger->as_key == HF_OK)
        hf_hold_free(hold);
    return NULL;
}

static void be_stranger(struct stranger *stranger) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, try_as_stranger, stranger) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

TEST(another_thread_is_excluded) {
    hf_client *a = open_client();
    struct stranger stranger = {.client = a, .name = fresh_name("thread")};
    hf_hold *hold = get(a, stranger.name, again(as_exclusive(0)));
    be_stranger(&stranger);
    CHECK_IS(stranger.as_thread, HF_BUSY);
    CHECK_IS(stranger.as_key, HF_BUSY);
    for (uint64_t key = 1; key < 20; key++) /* however the library numbers its threads */
        CHECK_IS(attempt(a, stranger.name, by_key(as_exclusive(0), key)), HF_BUSY);
    let_go(hold);
}

TEST(a_key_is_the_same_owner_in_every_thread) {
    hf_client *a = open_client();
    struct stranger stranger = {.client = a, .name = fresh_name("key")};
    hf_hold *hold = get(a, stranger.name, by_key(as_exclusive(0), 7));
    be_stranger(&stranger);
    CHECK_IS(stranger.as_thread, HF_BUSY);
    CHECK_IS(stranger.as_other_key, HF_BUSY);
    CHECK_IS(stranger.as_key, HF_OK);
    CHECK_IS(attempt(a, stranger.name, again(as_exclusive(0))), HF_BUSY);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    let_go(hold);
}

BOTH_FORMS(a_key_of_another_client_is_another_owner) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("client");
    hf_hold *hold = get(a, name, by_key(as_exclusive(0), 7));
    CHECK_IS(attempt(b, name, by_key(as_exclusive(0), 7)), HF_BUSY);
    let_go(hold);
}

BOTH_FORMS(a_reader_does_not_become_a_writer) {
    hf_client *a = open_client();
    const char *name = fresh_name("upgrade");
    hf_hold *reader = get(a, name, again(as_shared(0)));
    CHECK_IS(attempt(a, name, again(as_exclusive(0))), HF_WRONG_KIND);
    CHECK_IS(attempt(a, name, again(as_exclusive(HF_FOREVER))), HF_WRONG_KIND);
    let_go(get(a, name, again(as_shared(0))));
    CHECK_IS(hf_check(reader, 0), HF_OK);
    let_go(reader);
}

BOTH_FORMS(permits_are_not_counted_up_beyond_what_is_held) {
    hf_client *a = open_client();
    const char *name = fresh_name("more");
    hf_hold *two = get(a, name, again(as_permits(2, 4, 0)));
    CHECK_IS(attempt(a, name, again(as_permits(3, 4, 0))), HF_BAD_WEIGHT);
    hf_hold *same = get(a, name, again(as_permits(2, 4, 0)));
    CHECK_EQ_INT(hf_hold_token(same), hf_hold_token(two));
    CHECK_IS(attempt(a, name, as_permits(2, 4, 0)), HF_OK);
    let_go(two);
    let_go(same);
}

BOTH_FORMS(the_loss_is_reported_to_every_hold_that_the_owner_has) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("lost");
    enum { COUNT = 4 };
    atomic_int losses[COUNT] = {0};
    hf_hold *holds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        hf_acquire_options options = telling(again(as_exclusive(0)), &losses[i]);
        holds[i] = get(a, name, breakable(options));
    }
    CHECK_IS(release(holds[0]), HF_OK); /* no longer the owner's, and so not reported */
    CHECK_IS(release(holds[2]), HF_OK);
    CHECK_IS(break_hold(b, name, hf_hold_token(holds[1])), HF_OK);
    AWAIT(hf_check(holds[1], 0) == HF_LOST && hf_check(holds[3], 0) == HF_LOST);
    AWAIT(atomic_load(&losses[1]) == 1 && atomic_load(&losses[3]) == 1);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_IS(release(holds[i]), i % 2 ? HF_LOST : HF_OK);
        hf_hold_free(holds[i]);
        CHECK_EQ_INT(atomic_load(&losses[i]), i % 2);
    }
    CHECK_IS(attempt(a, name, again(as_exclusive(0))), HF_OK);
}
