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
from servers.scene import PUPPET
from servers.suite import equal, main, test


def examine(cluster, **how):
    _, found, answer = doctor(patient(cluster.url(**how)))
    equal(answer["tier"], "strict")
    return found


@test
def three_members_over_tls_are_as_they_should_be():
    with Authority() as authority, Etcd(members=3, tls=authority) as cluster:
        found = examine(cluster)
        equal(severities(found), {"tokens": "note"})
        contains(found["version"]["found"], "etcd 3.")
        contains(found["members"]["found"], "3 voting members")
        equal({name for name in ("access", "alarms", "size") if name not in found}, set())


@test
def one_member_without_a_login_is_a_warning_and_a_full_one_a_problem():
    with Etcd(options=["--quota-backend-bytes", "200000"]) as cluster:
        equal(severities(examine(cluster)), {"tokens": "note", "members": "note", "access": "warning"})
        with contextlib.suppress(EtcdError):
            for number in range(200):
                cluster.command("put", f"filler{number}", "x" * 60000)
        found = examine(cluster)
        equal(found["alarms"]["severity"], "problem")
        contains(found["alarms"]["found"], "NOSPACE")


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


main()
