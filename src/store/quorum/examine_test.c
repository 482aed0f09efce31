/* What the quorum store concludes from what its nodes say about themselves. The test plays the
 * nodes (set_test.h). */
#include "set_test.h"
#include "store/findings.h"

static struct store_op examine;

/* A sound node, which the test then spoils. */
static struct store_facts *sound(size_t node) {
    struct store_facts *facts = set.facts[node];
    *facts = (struct store_facts){.uncertain_us = 10 * MS,
                                  .up_us = INT64_C(3600000) * MS,
                                  .node_id = (int64_t)node + 100,
                                  .durable = true,
                                  .set_known = true,
                                  .set = "default/5/3/60000",
                                  .version = "7.0.15"};
    snprintf(facts->run, sizeof(facts->run), "run%zu", node);
    snprintf(facts->host, sizeof(facts->host), "db%zu", node);
    snprintf(facts->address, sizeof(facts->address), "10.0.0.%zu", node);
    return facts;
}

static void begin(void) {
    set_open();
    examine = (struct store_op){.type = STORE_EXAMINE};
    submit(&examine);
    for (size_t i = 0; i < NODES; i++)
        sound(i);
}

static struct store_facts *facts_of(size_t node) {
    return set.facts[node];
}

/* The node says this about itself. */
static void tell(size_t node, hf_severity severity, const char *id, const char *found) {
    struct store_op *op = asked(node, STORE_EXAMINE);
    op->examination = findings_new("timed");
    CHECK(op->examination);
    op->examination->write_us = ((int64_t)node + 1) * MS;
    op->examination->slowest_us = ((int64_t)node + 1) * 2 * MS;
    CHECK(findings_add(op->examination, severity, id, "means", "fix", "%s", found));
    answer(node, STORE_EXAMINE, STORE_DONE);
}

static void tell_all(size_t from) {
    for (size_t i = from; i < NODES; i++)
        tell(i, HF_FINE, "color", "it is red");
    check_done(&examine, STORE_DONE);
}

/* The n-th finding of that id; NULL: there are fewer. */
static const hf_finding *finding(const char *id, size_t n) {
    for (size_t i = 0; i < examine.examination->count; i++) {
        if (strcmp(examine.examination->findings[i]->id, id) == 0 && n-- == 0)
            return examine.examination->findings[i];
    }
    return NULL;
}

static void check_found(const char *id, hf_severity severity, const char *found) {
    CHECK(finding(id, 0));
    CHECK_EQ_INT(finding(id, 0)->severity, severity);
    CHECK_EQ_STR(finding(id, 0)->found, found);
}

static hf_severity worst(void) {
    hf_severity worst = HF_FINE;
    for (size_t i = 0; i < examine.examination->count; i++) {
        hf_severity one = examine.examination->findings[i]->severity;
        worst = one > worst ? one : worst;
    }
    return worst;
}

static void end(void) {
    hf_examination_free(examine.examination);
    set_close();
}

TEST(a_sound_set_is_strict_and_what_its_nodes_say_alike_is_reported_once) {
    begin();
    tell_all(0);
    CHECK_EQ_STR(examine.examination->tier, "strict");
    CHECK_EQ_INT(worst(), HF_FINE);
    check_found("color", HF_FINE, "all 5 nodes: it is red");
    check_found("vote", HF_FINE, "all 5 nodes: the server votes in the set default/5/3/60000");
    check_found("clocks", HF_FINE, "the clocks of 5 nodes differ by less than 0.03 s");
    check_found("durability", HF_FINE, "5 of 5 nodes keep all that they acknowledge");
    CHECK_EQ_INT(examine.examination->count, 5);         /* these, and "set" */
    CHECK_EQ_INT(examine.examination->write_us, 3 * MS); /* of the last that a quorum needs */
    CHECK_EQ_INT(examine.examination->slowest_us, 6 * MS);
    end();
}

TEST(what_differs_is_reported_with_the_names) {
    begin();
    tell(0, HF_FINE, "color", "it is red");
    tell(1, HF_WARNING, "color", "it is blue");
    tell(2, HF_FINE, "color", "it is red");
    tell(3, HF_NOTE, "color", "it is red");
    asked(4, STORE_EXAMINE)->text = strdup("it sleeps");
    answer(4, STORE_EXAMINE, STORE_UNKNOWN);
    check_done(&examine, STORE_DONE);
    CHECK_EQ_STR(finding("color", 0)->found, "n0, n2: it is red");
    CHECK_EQ_STR(finding("color", 1)->found, "n1: it is blue");
    CHECK_EQ_INT(finding("color", 1)->severity, HF_WARNING);
    CHECK_EQ_STR(finding("color", 2)->found, "n3: it is red");
    check_found("vote", HF_FINE,
                "all 4 nodes that answer: the server votes in the set default/5/3/60000");
    check_found("nodes", HF_WARNING, "4 of 5 nodes answer, and 4 vote");
    check_found("node", HF_WARNING, "n4 does not answer: it sleeps");
    end();
}

/* The nodes from this one on fail. */
static void fail_from(size_t node, int reason, const char *text) {
    for (size_t i = node; i < NODES; i++) {
        struct store_op *op = asked(i, STORE_EXAMINE);
        op->reason = reason;
        op->text = strdup(text);
        answer(i, STORE_EXAMINE, STORE_REFUSED);
    }
}

TEST(a_set_of_which_no_node_answers_fails_for_the_reason_that_its_nodes_give) {
    begin();
    fail_from(0, HF_UNREACHABLE, "connection refused");
    check_done(&examine, STORE_REFUSED);
    CHECK_EQ_INT(examine.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(examine.text, "all 5 nodes: connection refused");
    free(examine.text);
    end();
    set = (struct set){0};
    begin();
    fail_from(2, HF_DENIED, "wrong password");
    pass_us(TIMEOUT_US);
    CHECK_EQ_INT(examine.outcome, 0);
    pass_us(5000 * MS);
    check_done(&examine, STORE_REFUSED);
    CHECK_EQ_INT(examine.reason, HF_DENIED); /* two others are no quorum */
    CHECK_EQ_STR(examine.text,
                 "none of the 5 nodes could be examined; n0: no answer within 5000 ms; n1: no "
                 "answer within 5000 ms; n2: wrong password; n3: wrong password; n4: wrong "
                 "password");
    free(examine.text);
    end();
    set = (struct set){0};
    begin();
    pass_us(TIMEOUT_US);
    pass_us(5000 * MS);
    check_done(&examine, STORE_REFUSED);
    CHECK_EQ_INT(examine.reason, HF_UNREACHABLE);
    CHECK_EQ_STR(examine.text, "all 5 nodes: no answer within 5000 ms");
    free(examine.text);
    end();
}

TEST(what_one_node_says_is_reported_even_if_no_other_answers) {
    begin();
    tell(0, HF_NOTE, "color", "it is red");
    fail_from(1, HF_UNREACHABLE, "connection refused");
    check_done(&examine, STORE_DONE);
    check_found("nodes", HF_PROBLEM, "1 of 5 nodes answer, and 1 vote");
    check_found("color", HF_NOTE, "n0: it is red");
    for (size_t i = 1; i < NODES; i++)
        CHECK(finding("node", i - 1));
    end();
}

TEST(without_a_quorum_of_voters_there_is_a_problem) {
    begin();
    for (size_t i = 0; i < 3; i++)
        facts_of(i)->set[0] = 0;
    tell_all(0);
    check_found("nodes", HF_PROBLEM, "5 of 5 nodes answer, and 2 vote");
    check_found("vote", HF_WARNING, "n0, n1, n2: the server does not belong to a set");
    end();
}

TEST(each_way_not_to_vote_is_reported) {
    begin();
    facts_of(1)->silent_us = 41500 * MS;
    snprintf(facts_of(2)->set, sizeof(facts_of(2)->set), "other/5/3/60000");
    facts_of(4)->set_known = false;
    snprintf(set.quorum->nodes[4].why, sizeof(set.quorum->nodes[4].why), "it has no rights");
    tell_all(0);
    check_found("nodes", HF_PROBLEM, "5 of 5 nodes answer, and 2 vote");
    CHECK_EQ_STR(finding("vote", 0)->found,
                 "n0, n3: the server votes in the set default/5/3/60000");
    CHECK_EQ_STR(
        finding("vote", 1)->found,
        "n1: the server restarted, may have forgotten votes, and will not vote for another 42 s");
    CHECK(
        strstr(finding("vote", 2)->found, "n2: the server votes in the set other/5/3/60000, not"));
    CHECK_EQ_STR(finding("vote", 3)->found, "n4: the server does not vote: it has no rights");
    end();
}

TEST(clocks_are_compared_with_each_other_and_not_beyond_what_is_certain) {
    static const struct {
        int64_t ahead_us, uncertain_us;
        hf_severity severity;
    } cases[] = {{200 * MS, 10 * MS, HF_FINE},
                 {500 * MS, 10 * MS, HF_WARNING},
                 {500 * MS, 200 * MS, HF_FINE},
                 {-500 * MS, 10 * MS, HF_WARNING}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set = (struct set){0};
        begin();
        for (size_t n = 0; n < NODES; n++) /* that this host's clock is wrong does not matter */
            facts_of(n)->ahead_us = 70000 * MS;
        facts_of(3)->ahead_us += cases[i].ahead_us;
        facts_of(3)->uncertain_us = cases[i].uncertain_us;
        tell_all(0);
        CHECK_EQ_INT(finding("clocks", 0)->severity, cases[i].severity);
        if (cases[i].severity == HF_WARNING && cases[i].ahead_us > 0)
            CHECK_EQ_STR(finding("clocks", 0)->found,
                         "the clocks of the nodes differ by 0.50 s: n0 +0.00 s, n1 +0.00 s, n2 "
                         "+0.00 s, n3 +0.50 s, n4 +0.00 s");
        end();
    }
}

TEST(a_set_is_strict_if_no_more_nodes_are_weak_than_may_forget) {
    for (size_t weak = 0; weak < 4; weak++) {
        for (size_t quorum = 3; quorum <= NODES; quorum++) {
            set = (struct set){0};
            begin();
            set.quorum->quorum = quorum;
            for (size_t i = 0; i < weak; i++)
                facts_of(i)->durable = false;
            tell_all(0);
            bool strict = weak < 2 * quorum - NODES;
            CHECK_EQ_STR(examine.examination->tier, strict ? "strict" : "timed");
            CHECK_EQ_INT(finding("durability", 0)->severity, strict ? HF_FINE : HF_WARNING);
            end();
        }
    }
}

TEST(durability_is_judged_by_the_nodes_that_answer) {
    static const struct {
        size_t weak, silent, quorum;
        const char *tier;
        hf_severity severity;
        const char *found;
    } cases[] = {
        {0, 1, 3, "timed", HF_NOTE,
         "4 of 5 nodes are known to keep all that they acknowledge, and 5 must for the tier "
         "strict"},
        {1, 1, 3, "timed", HF_WARNING,
         "not known to keep all that they acknowledge: n0; and 0 may forget"},
        {1, 2, 4, "timed", HF_NOTE,
         "2 of 5 nodes are known to keep all that they acknowledge, and 3 must for the tier "
         "strict"},
        {1, 1, 4, "strict", HF_FINE, "3 of 5 nodes keep all that they acknowledge"},
        {3, 2, 4, "timed", HF_WARNING,
         "not known to keep all that they acknowledge: all 3 nodes that answer; and 2 may forget"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set = (struct set){0};
        begin();
        set.quorum->quorum = cases[i].quorum;
        for (size_t n = 0; n < NODES; n++)
            facts_of(n)->durable = n >= cases[i].weak && n < NODES - cases[i].silent;
        for (size_t n = 0; n < NODES - cases[i].silent; n++)
            tell(n, HF_FINE, "color", "it is red");
        fail_from(NODES - cases[i].silent, HF_UNREACHABLE, "connection refused");
        check_done(&examine, STORE_DONE);
        CHECK_EQ_STR(examine.examination->tier, cases[i].tier);
        check_found("durability", cases[i].severity, cases[i].found);
        CHECK(!finding("durability", 1));
        end();
    }
}

TEST(a_server_that_is_listed_twice_is_a_problem_and_so_is_a_copy) {
    begin();
    *facts_of(3) = *facts_of(1);
    facts_of(4)->node_id = facts_of(0)->node_id;
    tell_all(0);
    CHECK_EQ_INT(worst(), HF_PROBLEM);
    check_found("same-server", HF_PROBLEM, "n1, n3 are one server");
    CHECK_EQ_STR(finding("same-server", 1)->found,
                 "n0, n4 are the same node, according to their data");
    CHECK(!finding("same-server", 2));
    CHECK(!finding("same-host", 0)); /* which goes without saying */
    end();
    set = (struct set){0};
    begin();
    *facts_of(3) = *facts_of(1);
    facts_of(1)->local = facts_of(3)->local = facts_of(4)->local = true;
    tell_all(0);
    check_found("same-host", HF_WARNING, "n1, n4 are on this host");
    CHECK(!finding("same-host", 1));
    end();
}

TEST(nodes_on_one_host_are_reported) {
    begin();
    snprintf(facts_of(1)->host, sizeof(facts_of(1)->host), "db0");
    snprintf(facts_of(3)->address, sizeof(facts_of(3)->address), "10.0.0.2");
    tell_all(0);
    check_found("same-host", HF_PROBLEM, "n0, n1 are on one host");
    CHECK_EQ_INT(finding("same-host", 1)->severity, HF_WARNING);
    CHECK_EQ_STR(finding("same-host", 1)->found, "n2, n3 report the same address");
    CHECK(!finding("same-host", 2));
    end();
    set = (struct set){0};
    begin();
    for (size_t i = 0; i < NODES; i++) {
        facts_of(i)->local = true;
        snprintf(facts_of(i)->host, sizeof(facts_of(i)->host), "127.0.0.1");
    }
    tell_all(0);
    check_found("same-host", HF_WARNING, "all 5 nodes are on this host");
    CHECK(!finding("same-host", 1));
    end();
}

TEST(a_node_that_was_just_started_is_reported_unless_it_is_known_to_have_forgotten) {
    begin();
    for (size_t i = 0; i < NODES; i++)
        facts_of(i)->up_us = 59000 * MS;
    facts_of(0)->up_us = 61000 * MS;
    facts_of(1)->durable = false;
    facts_of(2)->silent_us = 1000 * MS;
    facts_of(3)->set[0] = 0;
    tell_all(0);
    check_found("restart", HF_NOTE,
                "n1, n4: the server was started less than max_lease (60 s) ago");
    CHECK(!finding("restart", 1));
    CHECK(!finding("durable", 0));
    end();
}

TEST(who_is_said_to_be_durable_and_is_not_is_a_problem) {
    begin();
    set.quorum->set.durable = true;
    facts_of(1)->durable = false;
    tell_all(0);
    check_found("durable", HF_PROBLEM,
                "n1: the server is not known to keep all that it acknowledges, although the "
                "URL says durable=yes");
    CHECK(!finding("durable", 1));
    end();
}

TEST(versions_that_differ_are_noted) {
    begin();
    snprintf(facts_of(2)->version, sizeof(facts_of(2)->version), "6.2.1");
    facts_of(3)->version[0] = 0; /* is not known */
    tell_all(0);
    check_found("versions", HF_NOTE,
                "the nodes have different versions: n0 has 7.0.15, n1 has 7.0.15, n2 has 6.2.1, "
                "n4 has 7.0.15");
    end();
}

TEST(nodes_that_tell_no_facts_are_judged_by_what_they_say) {
    begin();
    for (size_t i = 0; i < NODES; i++)
        *facts_of(i) = (struct store_facts){0};
    tell_all(0);
    CHECK_EQ_STR(examine.examination->tier, "timed");
    check_found("color", HF_FINE, "all 5 nodes: it is red");
    CHECK(!finding("vote", 0) && !finding("clocks", 0) && !finding("nodes", 0));
    end();
}

TEST(a_node_that_hangs_is_waited_for_and_then_told) {
    begin();
    for (size_t i = 0; i < NODES - 1; i++)
        tell(i, HF_FINE, "color", "it is red");
    pass_us(TIMEOUT_US);
    CHECK_EQ_INT(examine.outcome, 0);
    pass_us(5000 * MS);
    check_done(&examine, STORE_DONE);
    check_found("node", HF_WARNING, "n4 does not answer: no answer within 5000 ms");
    end();
}
