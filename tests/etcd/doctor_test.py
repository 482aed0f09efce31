#!/usr/bin/env python3
"""What `holdfast doctor` finds in an etcd cluster: doctor_test.py HOLDFAST PUPPET."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.doctor import contains, doctor, severities
from servers.etcd import Etcd, EtcdError, patient
from servers.puppet import Puppet
from servers.scene import PUPPET, wait_until
from servers.suite import equal, main, test


def examine(cluster, **how):
    _, found, answer = doctor(patient(cluster.url(**how)))
    equal(answer["tier"], "strict")
    return found


@test
def three_members_over_tls_are_as_they_should_be():
    with Authority() as authority, Etcd(members=3, tls=authority) as cluster:
        found = examine(cluster)
        contains(found.pop("version")["found"], "etcd 3.")  # src/store/etcd/examine_test.c shows what it means
        equal(severities(found), {"tokens": "note"})
        contains(found["members"]["found"], "3 voting members")
        contains(found["serving"]["found"], "all members")
        contains(found["leader"]["found"], "raft term")
        equal({name for name in ("access", "alarms", "size") if name not in found}, set())
        gone = cluster.members[1]
        gone.kill()
        found = examine(cluster)
        equal(found["serving"]["severity"], "warning")
        equal(found["serving"]["found"], f"127.0.0.1:{gone.port} does not answer")


@test
def one_member_without_a_login_is_a_warning_and_a_full_one_a_problem():
    with Etcd(options=["--quota-backend-bytes", "200000"]) as cluster:
        found = examine(cluster)
        del found["version"]
        equal(severities(found), {"tokens": "note", "members": "note", "access": "warning"})
        with contextlib.suppress(EtcdError):
            for number in range(200):
                cluster.command("put", f"filler{number}", "x" * 60000)
        found = examine(cluster)
        equal(found["alarms"]["severity"], "problem")
        contains(found["alarms"]["found"], "NOSPACE")


def is_learner(cluster, member):
    with contextlib.suppress(EtcdError):  # it does not listen yet
        return "true" in cluster.command("endpoint", "status", members=[member])
    return False


@test
def a_learner_in_the_url_is_named():
    with Etcd() as cluster, Etcd() as spare:
        learner, = spare.members
        learner.kill()
        learner.wipe()
        learner.cluster = cluster
        learner.name = "learner"
        cluster.command("member", "add", "learner", "--learner", "--peer-urls", learner.peer_address())
        voter, = cluster.members
        learner.start(["--initial-cluster", f"{voter.name}={voter.peer_address()},learner={learner.peer_address()}",
                       "--initial-cluster-state", "existing"])
        wait_until(lambda: is_learner(cluster, learner), "the learner")
        _, found, _ = doctor(patient(cluster.url(ports=[voter.port, learner.port])))
        equal(found["serving"]["found"], f"127.0.0.1:{learner.port} is a learner, which serves nobody")
        contains(found["members"]["found"], "1 voting members")


@test
def the_token_base_is_that_of_the_last_token_floor():
    with Etcd() as cluster:
        contains(examine(cluster)["tokens"]["found"], "the token base is 0")
        with Puppet(PUPPET, patient(cluster.url()), token_floor=1000000) as one:
            assert one.hold("lock", "lock").token >= 1000000
        contains(examine(cluster)["tokens"]["found"], "the token base is 99999")  # revisions are added to it


@test
def a_user_with_the_documented_rights_can_examine():
    with Etcd() as cluster:
        user = cluster.as_documented()
        found = examine(cluster, user=user)
        contains(found["access"]["found"], "holdfast")
        contains(found["alarms"]["found"], "no alarm")


main()
