/* The recipes: leader election. */
#include "suite.h"

/* ---- Leader election ---- */

static hf_leader observed(hf_client *client, const char *name, uint64_t known) {
    hf_leader leader = HF_LEADER_INIT;
    CHECK_IS(noted(hf_observe(client, name, known, PATIENCE_MS, &leader)), HF_OK);
    return leader;
}

TEST(an_observer_sees_who_is_elected_and_who_resigns) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("leader");
    hf_leader leader = HF_LEADER_INIT;
    CHECK_IS(noted(hf_observe(b, name, 0, 0, &leader)), HF_TIMEOUT);
    hf_hold *hold = get(a, name, with_label(as_exclusive(0), "a:8080"));
    leader = observed(b, name, 0);
    CHECK(leader.token == hf_hold_token(hold));
    CHECK_EQ_STR(leader.value, "a:8080");
    CHECK_EQ_INT(leader.pid, getpid());
    CHECK(*leader.host);
    CHECK(leader.left_ms <= LONG_LEASE_MS);
    CHECK_IS(noted(hf_observe(b, name, leader.token, 50, &leader)), HF_TIMEOUT);
    CHECK(leader.token == hf_hold_token(hold)); /* untouched */
    let_go(hold);
    leader = observed(b, name, leader.token);
    CHECK(leader.token == 0 && !*leader.value && !*leader.host);
}

struct observer {
    hf_client *client;
    const char *name;
    uint64_t known;
    hf_leader leader;
    int result;
    atomic_bool is_done;
    pthread_t thread;
};

static void *observe_in_thread(void *arg) {
    struct observer *o = arg;
    o->leader = (hf_leader)HF_LEADER_INIT;
    o->result = hf_observe(o->client, o->name, o->known, HF_FOREVER, &o->leader);
    atomic_store(&o->is_done, true);
    return NULL;
}

static void start_observing(struct observer *o) {
    CHECK(pthread_create(&o->thread, NULL, observe_in_thread, o) == 0);
}

TEST(an_observer_waits_for_the_next_leader) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("next");
    hf_hold *first = get(a, name, with_label(as_exclusive(0), "first"));
    struct observer o = {.client = open_client(), .name = name, .known = hf_hold_token(first)};
    start_observing(&o);
    struct ask *ask = queue_up(b, name, with_label(as_exclusive(PATIENCE_MS), "second"), 1);
    CHECK(!atomic_load(&o.is_done));
    let_go(first);
    hf_hold *second = granted(ask);
    CHECK(pthread_join(o.thread, NULL) == 0);
    CHECK_IS(o.result, HF_OK);
    if (o.leader.token == 0) /* it looked in between */
        o.leader = observed(o.client, name, 0);
    CHECK(o.leader.token == hf_hold_token(second));
    CHECK_EQ_STR(o.leader.value, "second");
    let_go(second);
}

TEST(the_end_of_a_dead_leaders_lease_is_observed) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("silent");
    hf_hold *hold = get(a, name, for_only(as_exclusive(0), 1000));
    CHECK(observed(b, name, hf_hold_token(hold)).token == 0);
    CHECK_IS(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
}

TEST(a_shared_lock_has_no_leader) {
    hf_client *client = open_client();
    const char *name = fresh_name("shared");
    hf_hold *hold = get(client, name, as_shared(0));
    hf_leader leader = HF_LEADER_INIT;
    CHECK_IS(noted(hf_observe(client, name, 0, 0, &leader)), HF_WRONG_KIND);
    CHECK(strstr(failure, "no leader"));
    let_go(hold);
}

TEST(observing_ends_when_the_client_is_cancelled) {
    struct observer o = {.client = open_client(), .name = fresh_name("nobody")};
    start_observing(&o);
    AWAIT(hf_client_cancel(o.client) < 0 || atomic_load(&o.is_done));
    CHECK(pthread_join(o.thread, NULL) == 0);
    CHECK_IS(o.result, HF_CANCELLED);
}
