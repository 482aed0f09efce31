/* The recipes: leader election, latch, barrier. */
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
    CHECK_IS(noted(hf_observe(b, name, leader.token, 0, &leader)), HF_TIMEOUT);
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

/* ---- Latch ---- */

static hf_latch_options latch_of(int64_t count, int64_t wait_ms) {
    hf_latch_options options = HF_LATCH_OPTIONS_INIT;
    options.count = count;
    options.wait_ms = wait_ms;
    return options;
}

TEST(a_latch_opens_when_all_have_counted_down_and_stays_open) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("latch");
    hf_latch_options once = latch_of(2, 0), patient = latch_of(2, PATIENCE_MS);
    int64_t left = -1;
    CHECK_IS(noted(hf_latch_await(b, name, &once)), HF_TIMEOUT);
    CHECK_IS(noted(hf_latch_count_down(a, name, &patient, &left)), HF_OK);
    CHECK_EQ_INT(left, 1);
    CHECK_IS(noted(hf_latch_await(b, name, &once)), HF_TIMEOUT);
    CHECK_IS(noted(hf_latch_count_down(b, name, &patient, &left)), HF_OK);
    CHECK_EQ_INT(left, 0);
    CHECK_IS(noted(hf_latch_count_down(b, name, &patient, &left)), HF_OK); /* more than needed */
    CHECK_EQ_INT(left, 0);
    CHECK_IS(noted(hf_latch_await(a, name, &patient)), HF_OK);
    CHECK_IS(noted(hf_latch_await(b, name, &once)), HF_OK);
}

struct party {
    hf_client *client;
    const char *name;
    uint32_t parties;
    atomic_int *arrived; /* for each round */
    int rounds;
    hf_barrier *barrier;
    int result;
    atomic_bool is_done;
    pthread_t thread;
};

static hf_barrier_options barrier_of(uint32_t parties, int64_t wait_ms) {
    hf_barrier_options options = HF_BARRIER_OPTIONS_INIT;
    options.parties = parties;
    options.wait_ms = wait_ms;
    options.lease_ms = LONG_LEASE_MS;
    return options;
}

static void begin(struct party *party, void *(*run)(void *)) {
    CHECK(pthread_create(&party->thread, NULL, run, party) == 0);
}

static int end(struct party *party) {
    CHECK(pthread_join(party->thread, NULL) == 0);
    return party->result;
}

static void *await_latch(void *arg) {
    struct party *party = arg;
    hf_latch_options options = latch_of(1, HF_FOREVER);
    party->result = hf_latch_await(party->client, party->name, &options);
    atomic_store(&party->is_done, true);
    return NULL;
}

TEST(waiting_for_a_latch_ends_when_the_client_is_cancelled) {
    struct party party = {.client = open_client(), .name = fresh_name("latch")};
    begin(&party, await_latch);
    AWAIT(hf_client_cancel(party.client) < 0 || atomic_load(&party.is_done));
    CHECK_IS(end(&party), HF_CANCELLED);
}

/* ---- Barrier ---- */

static void *pass_barrier(void *arg) {
    struct party *party = arg;
    hf_barrier_options options = barrier_of(party->parties, PATIENCE_MS);
    for (int i = 0; i < party->rounds && party->result == HF_OK; i++) {
        atomic_fetch_add(&party->arrived[i], 1);
        party->result = noted(hf_barrier_wait(party->client, party->name, &options));
        CHECK(party->result < 0 || atomic_load(&party->arrived[i]) == (int)party->parties);
    }
    atomic_store(&party->is_done, true);
    return NULL;
}

TEST(a_barrier_opens_when_all_are_there_and_again) {
    enum { PARTIES = 3, ROUNDS = 3 };
    const char *name = fresh_name("barrier");
    atomic_int arrived[ROUNDS] = {0};
    struct party parties[PARTIES];
    for (int i = 0; i < PARTIES; i++) {
        parties[i] = (struct party){.client = open_client(),
                                    .name = name,
                                    .parties = PARTIES,
                                    .arrived = arrived,
                                    .rounds = ROUNDS};
        begin(&parties[i], pass_barrier);
    }
    for (int i = 0; i < PARTIES; i++)
        CHECK_IS(end(&parties[i]), HF_OK);
}

/* A call that waits for `wait_ms`. If the store is slower than that on a busy machine, the result
 * is a different one, and the call is tried with more time. */
#define CHECK_TIMES_OUT(call, least_ms)                                                      \
    do {                                                                                     \
        int timed_out = HF_UNKNOWN;                                                          \
        for (int64_t wait_ms = (least_ms); timed_out == HF_UNKNOWN && wait_ms < PATIENCE_MS; \
             wait_ms *= 8)                                                                   \
            timed_out = noted(call);                                                         \
        CHECK_IS(timed_out, HF_TIMEOUT);                                                     \
    } while (0)

static int barrier_wait_for(hf_client *client, const char *name, int64_t wait_ms) {
    hf_barrier_options options = barrier_of(2, wait_ms);
    return hf_barrier_wait(client, name, &options);
}

/* The dead party has its place and its mark, and does not renew them. */
TEST(a_dead_party_is_not_counted_once_its_lease_has_ended) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("barrier");
    char marks[2 * NAME_SIZE];
    snprintf(marks, sizeof marks, "%s/there", name);
    hf_hold *place = get(a, name, for_only(as_permits(1, 2, 0), 1000));
    hf_hold *mark = get(a, marks, with_label(for_only(as_shared(0), 1000), "generation 0"));
    AWAIT(holders(b, name) == 0 && holders(b, marks) == 0);
    CHECK_TIMES_OUT(barrier_wait_for(b, name, wait_ms), 300);
    AWAIT(holders(b, name) == 0 && holders(b, marks) == 0); /* it has given up its place */
    hf_hold_free(place);
    hf_hold_free(mark);
}

static bool is_there(hf_client *client, const char *name, size_t count) {
    return holders(client, name) == count;
}

static uint64_t token_of_holder(hf_client *client, const char *name) {
    hf_locks *locks = NULL;
    CHECK_IS(inspect(client, name, &locks), HF_OK);
    const hf_lock_info *lock = hf_locks_at(locks, 0);
    uint64_t token = lock && lock->holder_count ? lock->holders[0]->token : 0;
    hf_locks_free(locks);
    return token;
}

TEST(a_party_that_lost_its_place_takes_another) {
    hf_client *client = open_client();
    const char *name = fresh_name("barrier");
    atomic_int arrived[1] = {0};
    struct party a = {
        .client = open_client(), .name = name, .parties = 2, .arrived = arrived, .rounds = 1};
    struct party b = a;
    b.client = open_client();
    begin(&a, pass_barrier);
    AWAIT(is_there(client, name, 1));
    uint64_t token = token_of_holder(client, name);
    CHECK_IS(noted(hf_break(client, name, token, "as if its lease had ended")), HF_OK);
    AWAIT(token_of_holder(client, name) > token);
    begin(&b, pass_barrier);
    CHECK_IS(end(&a), HF_OK);
    CHECK_IS(end(&b), HF_OK);
}

static void *enter_barrier(void *arg) {
    struct party *party = arg;
    hf_barrier_options options = barrier_of(party->parties, PATIENCE_MS);
    party->result = noted(hf_barrier_enter(party->client, party->name, &options, &party->barrier));
    return NULL;
}

static void *leave_barrier(void *arg) {
    struct party *party = arg;
    party->result = noted(hf_barrier_leave(party->barrier, PATIENCE_MS));
    atomic_store(&party->is_done, true);
    return NULL;
}

/* Lets two parties enter together. */
static void enter_both(struct party *a, struct party *b, const char *name) {
    *a = (struct party){.client = open_client(), .name = name, .parties = 2};
    *b = *a;
    b->client = open_client();
    begin(a, enter_barrier);
    begin(b, enter_barrier);
    CHECK_IS(end(a), HF_OK);
    CHECK_IS(end(b), HF_OK);
    CHECK_IS(hf_check(hf_barrier_hold(a->barrier), 0), HF_OK);
}

TEST(who_entered_a_double_barrier_together_leaves_together) {
    struct party a, b;
    enter_both(&a, &b, fresh_name("double"));
    CHECK_TIMES_OUT(hf_barrier_leave(a.barrier, wait_ms), 100);
    begin(&a, leave_barrier);
    AWAIT(is_there(b.client, b.name, 1));
    CHECK(!atomic_load(&a.is_done));
    begin(&b, leave_barrier);
    CHECK_IS(end(&a), HF_OK);
    CHECK_IS(end(&b), HF_OK);
    CHECK(hf_barrier_free(a.barrier) == NULL);
    CHECK(hf_barrier_free(b.barrier) == NULL);
}

TEST(a_party_that_is_gone_does_not_keep_the_others_from_leaving) {
    struct party a, b;
    enter_both(&a, &b, fresh_name("double"));
    uint64_t token = hf_hold_token(hf_barrier_hold(b.barrier));
    CHECK_IS(noted(hf_break(a.client, hf_hold_name(hf_barrier_hold(b.barrier)), token,
                            "as if its lease had ended")),
             HF_OK);
    CHECK_IS(noted(hf_barrier_leave(a.barrier, PATIENCE_MS)), HF_OK);
    CHECK_IS(noted(hf_barrier_leave(b.barrier, PATIENCE_MS)), HF_LOST);
    hf_barrier_free(a.barrier);
    hf_barrier_free(b.barrier);
}

TEST(a_store_without_counters_refuses_latch_and_barrier) {
    hf_client *client = open_client();
    const char *name = fresh_name("refused");
    CHECK_IS(noted(hf_latch_count_down(client, name, NULL, NULL)), HF_UNSUPPORTED);
    CHECK_IS(noted(hf_latch_await(client, name, NULL)), HF_UNSUPPORTED);
    CHECK_IS(noted(hf_barrier_wait(client, name, NULL)), HF_UNSUPPORTED);
    CHECK(strstr(failure, "count"));
}
