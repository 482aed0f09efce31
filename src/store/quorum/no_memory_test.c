/* An allocation that fails, at every index of what a set of five memory stores does: each operation
 * completes once, nothing leaks (AddressSanitizer looks), and no vote is left behind that nobody
 * knows of. */
#define TEST_TIMEOUT_S 200
#include "base/url.h"
#include "set_test.h"
#include "store/findings.h"
#include "support/failing.h"

/* Runs a part in which no allocation may fail. */
static void unfailing(void (*part)(void)) {
    fail_pause();
    part();
    fail_resume();
}

static struct store *store;
static struct store_host other_host;
static struct store *other;

static struct store *open_set(struct store_host *host) {
    struct store *opened = NULL;
    struct url url;
    const char *why;
    char *text = NULL;
    set_host(host);
    if (url_parse("quorum+memory:a,b,c,d,e", &url, &why) == HF_OK) {
        int r = store_quorum.open(host, &url, &opened, &text);
        CHECK(r == HF_OK || r == HF_NO_MEMORY);
        CHECK((r == HF_OK) == (opened != NULL));
        url_free(&url);
    }
    free(text);
    return opened;
}

static void open_both(void) {
    store = open_set(&set.host);
    other = open_set(&other_host);
    other_host.identity.id[0] = 1;
    CHECK(store && other);
}

static void close_both(void) {
    store_quorum.close(store);
    store_quorum.close(other);
    world_close(set.host.world);
    world_close(other_host.world);
}

static void ask(struct store *at, struct store_op *op) {
    int before = set.completed;
    list_init(&op->link);
    op->outcome = 0;
    store_quorum.submit(at, op);
    CHECK_EQ_INT(set.completed, before + 1);
    CHECK(op->outcome);
    free(op->text);
    op->text = NULL;
}

/* Once there is memory again, another client gets the lock, at the latest when the lease is
 * over. */
static void check_free(void) {
    struct store_op op = mutex(1, 0);
    ask(other, &op);
    if (op.outcome != STORE_DONE) {
        virtual_suspend_us(LEASE_US);
        op = mutex(2, 0);
        ask(other, &op);
    }
    check_done(&op, STORE_DONE);
    op.type = STORE_RELEASE;
    ask(other, &op);
    check_done(&op, STORE_DONE);
}

static void open_story(void) {
    fail_pause();
    set_host(&set.host);
    struct url url;
    const char *why;
    CHECK_EQ_INT(url_parse("quorum+memory:a,b,c,d,e", &url, &why), HF_OK);
    struct store *opened = NULL;
    char *text = NULL;
    fail_resume();
    int r = store_quorum.open(&set.host, &url, &opened, &text);
    CHECK(r == HF_OK || r == HF_NO_MEMORY);
    if (!r)
        store_quorum.close(opened);
    free(text);
    url_free(&url);
    world_close(set.host.world);
}

static void lock_story(void) {
    unfailing(open_both);
    struct store_op hold = mutex(1, STORE_WAIT);
    ask(store, &hold);
    if (hold.outcome == STORE_DONE) {
        struct store_renewal renewal = {.of = &hold, .lease_us = hold.lease_us};
        struct store_op renew = {.type = STORE_RENEW, .renewals = &renewal, .renewal_count = 1};
        ask(store, &renew);
        CHECK(renew.outcome != STORE_DONE || renewal.outcome != STORE_NOT_YOURS);
        struct store_op loser = mutex(1, STORE_WAIT);
        ask(other, &loser);
        CHECK(loser.outcome != STORE_DONE);
        loser.type = STORE_RELEASE;
        ask(other, &loser);
    }
    hold.type = STORE_RELEASE;
    ask(store, &hold);
    if (hold.outcome == STORE_REFUSED)
        ask(store, &hold);
    unfailing(check_free);
    unfailing(close_both);
}

static void look_story(void) {
    unfailing(open_both);
    struct store_op hold = mutex(1, 0);
    ask(store, &hold);
    struct store_op look = {.type = STORE_INSPECT, .name = "x"};
    ask(store, &look);
    if (look.outcome == STORE_DONE)
        hf_locks_free(look.locks);
    struct store_op list = {.type = STORE_LIST, .name = "", .limit = 10};
    ask(store, &list);
    if (list.outcome == STORE_DONE)
        hf_locks_free(list.locks);
    struct store_op examine = {.type = STORE_EXAMINE};
    ask(store, &examine);
    if (examine.outcome == STORE_DONE)
        hf_examination_free(examine.examination);
    struct store_op breaks = {
        .type = STORE_BREAK, .name = "x", .token = hold.token, .label = "why"};
    ask(store, &breaks);
    unfailing(close_both);
}

/* The nodes answer with every fault that a set can find; the last two are silent. */
static void tell_of_nodes(void) {
    for (size_t i = 0; i < 3; i++) {
        struct store_op *op = asked(i, STORE_EXAMINE);
        *set.facts[i] = (struct store_facts){.uncertain_us = 1,
                                             .ahead_us = (int64_t)i * 1000 * MS,
                                             .up_us = 1,
                                             .node_id = 7,
                                             .local = true,
                                             .set_known = true,
                                             .set = "other"};
        snprintf(set.facts[i]->version, sizeof(set.facts[i]->version), "%zu", i);
        snprintf(set.facts[i]->run, sizeof(set.facts[i]->run), "%zu", i / 2);
        op->examination = findings_new("timed");
        CHECK(findings_add(op->examination, HF_NOTE, "size", "means", "fix", "it is %zu", i));
        answer(i, STORE_EXAMINE, STORE_DONE);
    }
}

static void examine_story(void) {
    set = (struct set){0};
    unfailing(set_open);
    struct store_op examine = {.type = STORE_EXAMINE};
    submit(&examine);
    if (!examine.outcome) {
        unfailing(tell_of_nodes);
        pass_us(TIMEOUT_US);
        pass_us(5000 * MS);
    }
    CHECK(examine.outcome == STORE_DONE || examine.reason == HF_NO_MEMORY);
    if (examine.outcome == STORE_DONE)
        hf_examination_free(examine.examination);
    unfailing(set_close);
    CHECK_EQ_INT(set.completed, 1);
}

TEST(opening_without_memory) {
    fail_at_every_index(open_story);
}

TEST(taking_renewing_losing_and_releasing_without_memory) {
    fail_at_every_index(lock_story);
}

TEST(looking_examining_and_breaking_without_memory) {
    fail_at_every_index(look_story);
}

TEST(comparing_nodes_without_memory) {
    fail_at_every_index(examine_story);
}
