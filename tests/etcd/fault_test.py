#!/usr/bin/env python3
"""The etcd store when connections, members, leases or disks fail: fault_test.py HOLDFAST PUPPET."""
import contextlib
import json
import secrets
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.disk import Disk, NotPermitted
from servers.etcd import Etcd, EtcdError
from servers.etcd import patient as slowly
from servers.faults import faults, holders
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet, boot_us
from servers.scene import (KINDS, LONG_MS, PUPPET, SLACK_US, TooSlow, deadline_us, hold_or_too_slow, is_lost, is_there,
                           one_of, patient, puppets, wait_until)
from servers.suite import equal, main, test
from support.tap import Skipped

suite.LIMIT_S = 240  # for scenarios that are played again
WAIT_LEASE_MS = 3000
shared = Etcd()  # for tests that leave it alone; each has its own prefix


class Place:
    """Where a test of servers.faults keeps its locks: its own prefix."""

    connections = 1  # a client uses one for everything

    @contextlib.contextmanager
    def fresh(self):
        yield fresh()

    def port(self):
        return shared.members[0].port

    def url(self, prefix, **options):
        return url_of(prefix, **options)

    def seen(self, name):
        return name


faults.add(Place())


def fresh():
    return f"{secrets.token_hex(8)}/"


def url_of(prefix, port=None, timeout_ms=None):
    times = f"timeout={timeout_ms}&connect_timeout={timeout_ms}" if timeout_ms else "timeout=20000&connect_timeout=20000"
    return shared.url(ports=port and [port], options=f"prefix={prefix}&{times}")


def lease_of(key, cluster=shared):
    """In hex, as etcdctl wants it."""
    answer = json.loads(cluster.command("get", key, "-w", "json"))
    return f"{answer['kvs'][0]['lease']:x}"


def waits(puppet, name, count=1):
    wait_until(lambda: len(puppet.inspect(name)["waiters"]) == count, "the waiters")


# ---- Pauses, messages ----


@test
@patient
def row_1_who_was_stopped_past_its_lease_has_lost_it_and_its_token_is_the_smaller():
    with puppets(2, url_of(fresh()), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        token = one.hold("lock", "lock", lease_ms=2000).token
        one.stop()
        assert two.hold("lock", "lock", wait_ms=-1).token > token
        one.cont()
        equal(one.check("lock"), "LOST")
        one.lost("lock")
        one_of(one.release("lock"), ("LOST", "NOT_YOURS"))
        equal(two.renew("lock"), "OK")


@test
def row_7_the_deadline_counts_from_the_request():
    prefix = fresh()
    with Proxy(shared.members[0].port) as proxy, Puppet(PUPPET, url_of(prefix, port=proxy.port)) as far:
        far.inspect("none")  # it is connected
        proxy.delay(1500, "down")
        asked_us = boot_us()
        far.acquire("lock", "lock", lease_ms=20000)
        grant = far.granted("lock")
        left_ms = far.left("lock")
        assert grant.at_us - asked_us >= 1500000
        assert left_ms * 1000 <= asked_us + 20000000 - grant.at_us, (left_ms, grant.at_us - asked_us)


@test
def row_2_a_grant_that_arrives_after_its_lease_is_not_used():
    prefix = fresh()
    with Proxy(shared.members[0].port) as proxy, \
            Puppet(PUPPET, url_of(prefix, port=proxy.port)) as one, Puppet(PUPPET, url_of(prefix)) as two:
        one.inspect("none")  # it is connected
        one.hold("first", "other", lease_ms=1500)  # it has a lease
        proxy.hold("down")
        one.acquire("a", "lock", lease_ms=1500)
        wait_until(lambda: holders(two, "lock"), "the grant")
        one.stop()
        token = two.hold("b", "lock", wait_ms=-1).token
        proxy.let_go()
        proxy.wait(lambda: proxy.held["down"] == 0)
        one.cont()
        one_of(one.failed("a"), ("SHORT", "BUSY"))
        equal(two.renew("b"), "OK")
        equal([party.token for party in two.inspect("lock")["holders"]], [token])


@test
@patient
def row_25_a_connection_that_goes_silent_frees_its_lock_after_the_lease_and_its_holder_is_notified():
    prefix = fresh()
    with Proxy(shared.members[0].port) as proxy, \
            Puppet(PUPPET, url_of(prefix), wait_lease_ms=WAIT_LEASE_MS) as near, \
            Puppet(PUPPET, url_of(prefix, port=proxy.port, timeout_ms=2000)) as far:
        token = far.hold("lock", "lock", lease_ms=5000).token
        near.acquire("lock", "lock", wait_ms=-1)
        waits(near, "lock")
        proxy.blackhole()
        earliest_us, _ = deadline_us(far, "lock")
        far.lost("lock")
        grant = near.granted("lock")
        assert grant.token > token and grant.at_us >= earliest_us, (grant, token, earliest_us)
        equal(far.check("lock"), "LOST")
        proxy.pass_all()
        equal(far.release("lock"), "LOST")
        equal(near.renew("lock"), "OK")


@test
@patient
def row_31_a_place_whose_lease_ended_is_not_a_lock():
    """The waiter is cut off until its place is gone; the lock goes to the next in the queue."""
    prefix = fresh()
    with Proxy(shared.members[0].port) as proxy, puppets(2, url_of(prefix), wait_lease_ms=WAIT_LEASE_MS) as (one, two), \
            Puppet(PUPPET, url_of(prefix, port=proxy.port, timeout_ms=1000), wait_lease_ms=WAIT_LEASE_MS) as far:
        one.hold("lock", "lock", lease_ms=LONG_MS)
        far.acquire("lock", "lock", wait_ms=-1)
        waits(one, "lock")
        proxy.blackhole()
        waits(one, "lock", 0)
        two.acquire("lock", "lock", wait_ms=-1)
        waits(one, "lock")
        proxy.pass_all()
        waits(one, "lock", 2)
        equal(one.release("lock"), "OK")
        token = two.granted("lock").token
        assert not is_there(far, "lock")
        equal(two.release("lock"), "OK")
        assert far.granted("lock").token > token


@test
def a_hand_off_is_one_event_however_many_wait():
    """Counts the events that the server has sent to watchers. If all waiters watched the holder, there would be a hundred
    for each."""
    count = 200
    with Etcd() as cluster, Puppet(PUPPET, slowly(cluster.url()), wait_lease_ms=LONG_MS) as one:
        one.hold("first", "lock", lease_ms=LONG_MS)
        for number in range(count):
            one.acquire(number, "lock", lease_ms=LONG_MS, wait_ms=-1)
        waits(one, "lock", count)
        before = cluster.members[0].metric("etcd_debugging_mvcc_events_total")
        holder = "first"
        for _ in range(count):
            one.send("release", holder)
            holder = one.wait("acquired").words[1]
        events = cluster.members[0].metric("etcd_debugging_mvcc_events_total") - before
        assert count <= events < 2 * count, events


# ---- What others do in etcd ----


@test(*KINDS)
def row_13_a_hold_whose_key_is_deleted_is_lost_at_once_and_no_other_is(kinds):
    prefix = fresh()
    with puppets(2, url_of(prefix)) as (one, two):
        token = one.hold("lock", "lock", kind=KINDS[kinds][0], lease_ms=LONG_MS).token
        one.hold("other", "other", lease_ms=LONG_MS)
        shared.command("del", "--prefix", prefix + "lock/")
        one.lost("lock", limit_s=LIMIT_S)  # long before its lease ends
        equal(one.renew("lock"), "LOST")
        equal(one.renew("other"), "OK")
        equal(shared.keys(prefix + "lock/"), [])
        assert two.hold("lock", "lock").token > token


@test
def row_13_a_revoked_lease_loses_all_its_holds():
    prefix = fresh()
    with puppets(2, url_of(prefix)) as (one, two):
        for lock in ("a", "b", "c"):
            one.hold(lock, lock, lease_ms=LONG_MS)
        one.hold("other", "other", lease_ms=LONG_MS // 2)
        key, = shared.keys(prefix + "a/")
        shared.command("lease", "revoke", lease_of(key))
        for lock in ("a", "b", "c"):
            one.lost(lock)
            two.hold(lock, lock)
        equal(one.renew("other"), "OK")
        one.hold("again", "again", lease_ms=LONG_MS)  # with another lease


@test("at the release", "behind it")
@patient
def row_22_a_watch_from_a_revision_that_was_compacted_is_repeated(where):
    """The watch for the holder's end is requested after the release, and after a compaction that swallowed it. etcd
    accepts a watch from exactly the compacted revision, but without what was deleted there."""
    with Etcd() as cluster, Proxy(cluster.members[0].port) as proxy, Puppet(PUPPET, slowly(cluster.url())) as one, \
            Puppet(PUPPET, slowly(cluster.url(ports=[proxy.port])), wait_lease_ms=300000) as two:  # it does not ask again
        two.inspect("none")  # it is connected
        one.hold("lock", "lock", lease_ms=LONG_MS)
        proxy.delay(1000, "down")
        two.acquire("lock", "lock", wait_ms=-1)
        waits(one, "lock")  # it will be notified in a second
        proxy.hold("up")
        proxy.delay(0, "down")
        until = time.monotonic() + 3
        while not proxy.held["up"]:  # the watch
            if time.monotonic() > until:
                raise TooSlow("it knew before")
            time.sleep(0.01)
        equal(one.release("lock"), "OK")
        if where == "behind it":
            cluster.command("put", "noise", "")
        cluster.command("compact", cluster.revision())
        proxy.let_go()
        two.granted("lock")


@test
def row_15_a_full_database_refuses_new_locks_and_keeps_those_that_are_held():
    with Etcd(options=["--quota-backend-bytes", "200000"]) as cluster, puppets(2, slowly(cluster.url())) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        with contextlib.suppress(EtcdError):
            for number in range(200):
                cluster.command("put", f"filler{number}", "x" * 60000)
        assert "NOSPACE" in cluster.command("alarm", "list")
        two.acquire("other", "other")
        equal(two.failed("other"), "STORE_FULL")
        equal(one.renew("lock"), "OK")
        equal(one.release("lock"), "OK")


# ---- Members ----


@test
def row_8_a_cluster_that_was_down_has_all_its_locks():
    with Etcd(members=3) as cluster, puppets(2, slowly(cluster.url()), wait_lease_ms=20000) as (one, two):
        tokens = {lock: one.hold(lock, lock, kind=KINDS[lock][0], lease_ms=LONG_MS).token for lock in KINDS}
        for lock, (_, kind) in KINDS.items():
            two.acquire(lock, lock, kind=kind, wait_ms=-1)
            waits(one, lock)
        for member in cluster.members:
            member.kill()
        for member in cluster.members:
            member.start()
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal", 2 * LIMIT_S)
            assert not is_there(two, lock), lock
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@test
@patient
def row_32_a_leader_that_is_stopped_or_killed_loses_no_lock():
    with Etcd(members=3) as cluster:
        url = cluster.url(options="timeout=3000&connect_timeout=6000")
        with puppets(2, url, wait_lease_ms=10000) as (one, two):
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            two.acquire("lock", "lock", wait_ms=-1)
            waits(one, "lock")
            for how in ("stop", "kill"):
                leader = cluster.leader()
                getattr(leader, how)()
                wait_until(lambda: one.renew("lock") == "OK", "a renewal", 2 * LIMIT_S)
                assert not is_there(two, "lock")
                if how == "stop":
                    leader.cont()
            equal(one.release("lock"), "OK")
            assert two.granted("lock").token > token


@test
@patient
def row_48_a_holder_that_is_cut_off_together_with_the_leader_is_notified_before_another_has_the_lock():
    """The leader does not notice that it was deposed: its election timeout is longer than the others'. So it keeps
    answering keep-alives, while the others give the lock to the waiter."""
    cluster = Etcd(members=3, separable=True)
    leader, *others = cluster.members
    leader.options = ["--election-timeout", "15000"]
    with cluster:
        cluster.make_leader(leader)
        near = cluster.url(ports=[leader.port], options="timeout=1000&connect_timeout=1000")
        far = cluster.url(ports=[member.port for member in others], options="timeout=3000&connect_timeout=6000")
        with Puppet(PUPPET, near) as one, Puppet(PUPPET, far, wait_lease_ms=20000) as two:
            token = hold_or_too_slow(one, "lock", "lock", lease_ms=6000).token
            two.acquire("lock", "lock", wait_ms=-1)
            waits(two, "lock")
            key, _ = cluster.keys()
            lease = lease_of(key, cluster)
            ends_us = [deadline_us(one, "lock")]
            cluster.cut(leader)

            def is_next():
                with contextlib.suppress(TooSlow):
                    ends_us.append(deadline_us(one, "lock"))
                return is_there(two, "lock")

            wait_until(is_next, "the next holder", 2 * LIMIT_S)
            grant = two.granted("lock")
            try:
                cluster.command("lease", "keep-alive", "--once", lease, members=[leader])
            except EtcdError as error:
                raise TooSlow("the leader has noticed it") from error
            least_us, most_us = ends_us[-1]
            assert least_us <= grant.at_us and grant.token > token, (grant, least_us, token)
            lost_us = one.lost("lock")
            assert lost_us <= most_us + SLACK_US, (lost_us, most_us)


@test
@patient
def row_48_a_leader_whose_disk_stalls_renews_nothing():
    """It still answers keep-alives, while the others elect another leader and count the lease down."""
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(Disk())
        except NotPermitted as error:
            raise Skipped(f"not permitted here: {error}") from error
        cluster = stack.enter_context(Etcd(members=3))
        leader, *others = cluster.members
        leader.move_to(disk)
        cluster.make_leader(leader)
        near = cluster.url(ports=[leader.port], options="timeout=1000&connect_timeout=1000")
        far = cluster.url(ports=[member.port for member in others], options="timeout=3000&connect_timeout=6000")
        one = stack.enter_context(Puppet(PUPPET, near))
        two = stack.enter_context(Puppet(PUPPET, far, wait_lease_ms=20000))
        hold_or_too_slow(one, "lock", "lock", lease_ms=6000)
        two.acquire("lock", "lock", wait_ms=-1)
        waits(two, "lock")
        time.sleep(1)  # by now the database has written its data; it is the log that must stall
        with disk.frozen():
            leader.begin_write()
            lost = one.wait(("lost", "lock"))
            grant = two.granted("lock", limit_s=2 * LIMIT_S)
            assert grant.at_us >= lost.at_us - SLACK_US, (grant, lost)


@test
def row_16_a_restored_snapshot_is_mended_by_a_token_floor():
    with Etcd() as cluster:
        with Puppet(PUPPET, slowly(cluster.url())) as one:
            one.hold("before", "lock")
            equal(one.release("before"), "OK")
            snapshot = cluster.save()
            for number in range(5):
                token = one.hold(number, "lock").token
                equal(one.release(number), "OK")
        with Puppet(PUPPET, slowly(cluster.url()), token_floor=token + 500) as three:
            three.hold("lock", "other")
            cluster.restore(snapshot)
            wait_until(lambda: three.inspect("other") is None, "its connection")
            assert three.hold("again", "lock").token >= token + 500, "its floor was restored, too"
            equal(three.release("again"), "OK")
        cluster.restore(snapshot)
        with Puppet(PUPPET, slowly(cluster.url())) as one:
            assert one.hold("lock", "lock").token <= token, "it was not restored"
            equal(one.release("lock"), "OK")
            with Puppet(PUPPET, slowly(cluster.url()), token_floor=token + 1000) as two:
                assert two.hold("lock", "lock").token >= token + 1000
                equal(two.release("lock"), "OK")
            assert one.hold("last", "lock").token > token + 1000


if __name__ == "__main__":
    with shared:
        main()
