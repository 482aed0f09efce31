/* What doctor finds in clusters that a test cannot set up: other versions, damage, a database that
 * is mostly empty. */
#include "store/etcd/etcd_test.h"

static struct rig rig;
static struct asked asked;

/* Examines a cluster of two members. */
static void examine(void) {
    rig_open(&rig, "etcd://a,b");
    fake_serve(rig.world, serve_etcd, NULL);
    ask_examine(&rig, &asked);
    fake_pass_us(rig.world, S);
    CHECK_EQ_INT(asked.completions, 1);
    CHECK_EQ_INT(asked.op.outcome, STORE_DONE);
}

static void over(void) {
    asked_clear(&asked);
    rig_close(&rig);
    server_stop();
}

static const hf_finding *find(const char *id) {
    for (size_t i = 0; i < asked.op.examination->count; i++) {
        const hf_finding *finding = asked.op.examination->findings[i];
        if (strcmp(finding->id, id) == 0)
            return finding;
    }
    CHECK(!"it was not found");
    return NULL;
}

static void check_found(const char *id, hf_severity severity, const char *words) {
    const hf_finding *finding = find(id);
    CHECK_EQ_INT(finding->severity, severity);
    CHECK(strstr(finding->found, words) || strstr(finding->means, words));
}

static void check_version(const char *version, hf_severity severity, const char *means,
                          const char *fix) {
    server_start();
    server.version = version;
    examine();
    check_found("version", severity, means);
    CHECK(strstr(find("version")->fix, fix));
    over();
}

TEST(a_version_is_judged_by_its_known_bugs) {
    check_version("3.3.27", HF_PROBLEM, "needs etcd 3.4", "upgrade");
    check_version("3.4.7", HF_WARNING, "if users log in", "3.4.42");
    check_version("3.4.23", HF_WARNING, "may end leases that are alive", "3.4.42");
    check_version("3.4.41", HF_WARNING, "a read may be stale", "3.4.42");
    check_version("3.4.42", HF_FINE, "no fault", "");
    check_version("3.5.2", HF_WARNING, "differ after a crash, so two", "3.5.28");
    check_version("3.5.5", HF_WARNING, "while they are defragmented", "3.5.28");
    check_version("3.5.13", HF_WARNING, "move revisions back", "3.5.28");
    check_version("3.5.28", HF_FINE, "no fault", "");
    check_version("3.6.4", HF_WARNING, "may damage its data", "3.6.9");
    check_version("3.6.9", HF_FINE, "no fault", "");
    check_version("3.7.0", HF_FINE, "no fault", "");
    check_version("4.0.0", HF_NOTE, "not been tested", "");
}

TEST(a_bug_that_is_mended_is_not_named) {
    server_start();
    server.version = "3.4.31";
    examine();
    CHECK(!strstr(find("version")->means, "may end leases"));
    CHECK(!strstr(find("version")->means, "if users log in"));
    over();
}

TEST(alarms_are_problems_and_corruption_is_the_worse) {
    server_start();
    server.alarm = "memberID:1 alarm:CORRUPT ";
    examine();
    check_found("alarms", HF_PROBLEM, "two may hold a lock");
    over();
    server_start();
    server.alarm = "memberID:1 alarm:NOSPACE ";
    examine();
    check_found("alarms", HF_PROBLEM, "no lock can be acquired");
    over();
}

TEST(a_database_of_empty_pages_should_be_defragmented) {
    server_start();
    server.db_size = INT64_C(400) << 20;
    server.db_size_in_use = INT64_C(90) << 20;
    examine();
    check_found("size", HF_NOTE, "400 MB, of which 90 MB are in use");
    over();
    server_start();
    server.db_size = INT64_C(400) << 20;
    server.db_size_in_use = INT64_C(110) << 20;
    examine();
    check_found("size", HF_FINE, "409600 kB");
    over();
}

TEST(a_member_without_a_leader_and_a_learner_do_not_serve) {
    server_start();
    server.has_no_leader = true;
    examine();
    check_found("serving", HF_WARNING, "a:2379 has no leader, b:2379 has no leader");
    over();
    server_start();
    server.is_learner = true;
    examine();
    check_found("serving", HF_WARNING, "a:2379 is a learner");
    over();
}

TEST(an_election_while_it_is_examined_is_seen) {
    server_start();
    examine();
    check_found("leader", HF_FINE, "raft term 3");
    check_found("serving", HF_FINE, "all members");
    over();
    server_start();
    server.elections = 1;
    examine();
    check_found("leader", HF_WARNING, "from raft term 4 to 6");
    over();
}

TEST(connections_to_examine_members_are_closed_when_they_have_answered) {
    server_start();
    examine();
    size_t open = 0;
    for (size_t i = 0; i < server.connection_count; i++)
        open += server.connections[i].stream->owner != NULL;
    CHECK_EQ_INT(server.connection_count, 3);
    CHECK_EQ_INT(open, 1);
    over();
}

TEST(a_store_may_be_closed_while_it_is_examined) {
    server_start();
    rig_open(&rig, "etcd://a,b");
    fake_serve(rig.world, serve_etcd, NULL);
    server.is_silent = true;
    ask_examine(&rig, &asked);
    rig_close_store(&rig);
    CHECK_EQ_INT(asked.completions, 1);
    over();
}

/* Only the member that the store is connected to answers. */
static void serve_first(struct fake_stream *stream) {
    if (!server.connection_count || server.connections[0].stream == stream)
        serve_etcd(stream);
    else if (!stream->accepted)
        fake_accept(stream);
    else
        stream->read = stream->written;
}

TEST(a_store_may_be_closed_while_members_are_asked) {
    server_start();
    rig_open(&rig, "etcd://a,b");
    fake_serve(rig.world, serve_first, NULL);
    ask_examine(&rig, &asked);
    CHECK_EQ_INT(asked.completions, 0);
    rig_close_store(&rig);
    CHECK_EQ_INT(asked.completions, 1);
    over();
}

TEST(members_that_do_not_answer_are_named) {
    server_start();
    rig_open(&rig, "etcd://a,b");
    fake_serve(rig.world, serve_first, NULL);
    ask_examine(&rig, &asked);
    fake_pass_us(rig.world, 20 * S);
    CHECK_EQ_INT(asked.op.outcome, STORE_DONE);
    check_found("serving", HF_WARNING, "a:2379 does not answer, b:2379 does not answer");
    over();
}
