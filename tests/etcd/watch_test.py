#!/usr/bin/env python3
"""holdfast watch on etcd reports what happens as it happens: watch_test.py HOLDFAST PUPPET."""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.doctor import contains
from servers.etcd import Etcd, patient
from servers.process import Process
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import PUPPET, wait_until
from servers.suite import equal, main, test
from servers.watch import run, sees_what_is_taken_and_released_between_two_polls, watching

shared = Etcd()  # for tests that leave it alone


def url_of(prefix, *ports, timeout_ms=20000):
    return shared.url(ports=ports, options=f"prefix={prefix}/&timeout={timeout_ms}&connect_timeout={timeout_ms}")


@test
def what_is_taken_and_released_between_two_polls_is_reported_to_the_documented_user():
    with Etcd() as cluster:
        sees_what_is_taken_and_released_between_two_polls(patient(cluster.url(user=cluster.as_documented())))


@test
def with_an_empty_prefix_too_and_other_keys_are_no_locks():
    with Etcd() as cluster:
        url = patient(cluster.url(options="prefix="))
        with watching(url, "--json") as watch:
            watch.expect("watching")
            cluster.command("put", "a/b", "c")
            cluster.command("del", "a/b")
            run(url, "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")


@test
def nothing_is_missed_when_the_connection_is_lost():
    near = url_of("reset")
    with Proxy(shared.members[0].port) as proxy, watching(url_of("reset", proxy.port), "--json") as watch:
        watch.expect("watching")
        proxy.refuse()
        proxy.reset()
        run(near, "run", "x", "true")
        run(near, "run", "y", "true")
        proxy.accept()
        for name in ("x", "y"):
            watch.expect("acquired", name)
            watch.expect("released", name)


@test
def a_connection_that_falls_silent_is_noticed_and_nothing_is_missed():
    near = url_of("silent")
    with Proxy(shared.members[0].port) as proxy:
        far = url_of("silent", proxy.port, shared.members[0].port, timeout_ms=2000)
        with watching(far, "--json") as watch:
            watch.expect("watching")
            run(near, "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")
            proxy.blackhole()
            run(near, "run", "y", "true")
            watch.expect("acquired", "y")
            watch.expect("released", "y")


@test
def a_hold_whose_end_is_read_after_its_lease_may_not_have_been_released():
    near = url_of("late")
    with Proxy(shared.members[0].port) as proxy, watching(url_of("late", proxy.port), "--json") as watch:
        watch.expect("watching")
        proxy.refuse()
        proxy.reset()
        with Puppet(PUPPET, near) as one:
            one.hold("x", "x", lease_ms=3000)
            key, = shared.keys("late/x/")
            lease = f"{json.loads(shared.command('get', key, '-w', 'json'))['kvs'][0]['lease']:x}"
            equal(one.release("x"), "OK")
        wait_until(lambda: "already expired" in shared.command("lease", "timetolive", lease), "the end of the lease")
        proxy.accept()
        watch.expect("acquired", "x")
        contains(watch.expect("missed")["reason"], "not known how a hold ended")
        watch.expect("watching")


@test
def history_that_was_compacted_before_it_was_read_is_missed():
    with Etcd() as cluster, Proxy(cluster.members[0].port) as proxy:  # compaction would also make other tests miss something
        near = patient(cluster.url())
        with watching(patient(cluster.url(ports=[proxy.port])), "--json") as watch:
            watch.expect("watching")
            proxy.refuse()
            proxy.reset()
            run(near, "run", "x", "true")
            cluster.command("compact", cluster.revision())
            proxy.accept()
            assert "compacted" in watch.expect("missed")["reason"]
            watch.expect("watching")
            run(near, "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")


@test
def a_release_at_the_very_revision_that_was_compacted_is_missed():
    with Etcd() as cluster, Proxy(cluster.members[0].port) as proxy, Puppet(PUPPET, patient(cluster.url())) as one, \
            watching(patient(cluster.url(ports=[proxy.port])), "--json") as watch:
        watch.expect("watching")
        one.hold("x", "x")
        watch.expect("acquired", "x")
        proxy.refuse()
        proxy.reset()
        equal(one.release("x"), "OK")
        cluster.command("compact", cluster.revision())
        proxy.accept()
        contains(watch.expect("missed")["reason"], "compacted")
        watch.expect("watching")


@test
def a_cluster_that_was_restored_from_a_backup_is_watched_again():
    with Etcd() as cluster:
        url = patient(cluster.url())
        snapshot = cluster.save()
        run(url, "run", "x", "true")
        with watching(url, "--json") as watch:
            watch.expect("watching")
            run(url, "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")
            cluster.restore(snapshot)
            assert "gone back" in watch.expect("missed")["reason"]
            watch.expect("watching")
            run(url, "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")


@test
def the_watch_goes_on_at_another_member():
    with Etcd(members=3) as cluster, watching(patient(cluster.url()), "--json") as watch:
        watch.expect("watching")
        for member in cluster.members[:2]:  # it is connected to the first, and then to the next
            member.kill()
            run(patient(cluster.url()), "run", "x", "true")
            watch.expect("acquired", "x")
            watch.expect("released", "x")
            member.start()


@test
def the_end_of_a_lease_is_no_release():
    url = url_of("lease")
    with watching(url, "--json") as watch:
        watch.expect("watching")
        with Puppet(PUPPET, url) as holder:
            holder.hold("x", "x", lease_ms=3000)
            holder.kill()
        watch.expect("acquired", "x")
        wait_until(lambda: not shared.keys("lease/"), "the end of the lease")
        run(url, "run", "y", "true")
        watch.expect("acquired", "y")
        watch.expect("released", "y")


@test
def a_lock_of_etcdctl_is_found_by_polls():
    with Process() as other, watching(url_of("etcdctl"), "--json", every="50ms") as watch:
        watch.expect("watching")
        other.launch(shared.etcdctl("lock", "etcdctl/x"), stdout=subprocess.DEVNULL, env=os.environ | {"ETCDCTL_API": "3"})
        equal(watch.expect("acquired", "x")["exact"], False)


if __name__ == "__main__":
    with shared:
        main()
