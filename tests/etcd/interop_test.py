#!/usr/bin/env python3
"""Our locks in etcd and those of `etcdctl lock` exclude each other, both ways: interop_test.py HOLDFAST PUPPET."""
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.etcd import Etcd, patient
from servers.process import LIMIT_S, Process
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, is_there, wait_until
from servers.suite import equal, main, test

shared = Etcd()
ROUNDS = int(os.environ.get("ROUNDS", 6))
WITNESS = """
import fcntl, sys, time
inside, troubles, entries = (open(path, "a") for path in sys.argv[1:])
try:
    fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which the death of a process releases, too
except BlockingIOError:
    troubles.write("two at a time ")
    sys.exit(1)
entries.write("x")
entries.flush()
time.sleep(0.05)
"""


class Other(Process):
    """`etcdctl lock NAME`, which holds the lock until it is ended."""

    def __init__(self, name, ttl=10, prefix="holdfast/"):
        self.words = shared.etcdctl("lock", "--ttl", ttl, prefix + name)

    def __enter__(self):
        self.launch(self.words, stdout=subprocess.PIPE, text=True, env=os.environ | {"ETCDCTL_API": "3"})
        return self

    def wait_held(self):
        """Its key, which it prints when it has the lock."""
        return self.child.stdout.readline().strip()


def keys_of(name):
    return shared.keys(f"holdfast/{name}/")


@test
def etcdctl_waits_for_each_kind_of_hold():
    with Puppet(PUPPET, patient(shared.url())) as one:
        for name, kind in {"a1": "exclusive", "a2": "shared", "a3": "1/3"}.items():
            one.hold(name, name, kind=kind, lease_ms=LONG_MS)
            with Other(name) as other:
                wait_until(lambda: len(keys_of(name)) == 2, "the other's place")
                time.sleep(0.3)
                assert other.running()
                key = next(key for key in keys_of(name) if "-" not in key)
                equal(one.release(name), "OK")
                equal(other.wait_held(), key)


@test
def a_waiter_follows_etcdctl_and_is_notified_when_it_ends():
    with Puppet(PUPPET, patient(shared.url()), wait_lease_ms=LONG_MS) as one:
        for name, kind in {"b1": "exclusive", "b2": "shared", "b3": "2/3"}.items():
            with Other(name) as other:
                other.wait_held()
                one.acquire(f"try-{name}", name, kind=kind)
                equal(one.failed(f"try-{name}"), "BUSY")
                one.acquire(name, name, kind=kind, wait_ms=-1)
                wait_until(lambda: len(one.inspect(name)["waiters"]) == 1, "the waiter")
                equal(len(one.inspect(name)["holders"]), 1)
                assert not is_there(one, name)
                other.child.send_signal(signal.SIGINT)  # it releases
                one.granted(name)
                equal(one.release(name), "OK")


@test
def who_barges_does_not_overtake_etcdctl():
    with Puppet(PUPPET, patient(shared.url())) as one:
        one.hold("reader", "c", kind="shared", lease_ms=LONG_MS)
        with Other("c") as other:
            wait_until(lambda: len(keys_of("c")) == 2, "the other's place")
            one.acquire("barger", "c", kind="shared", flags="barge")
            equal(one.failed("barger"), "BUSY")
            equal(one.release("reader"), "OK")
            other.wait_held()


@test
def a_killed_etcdctl_is_followed_when_its_lease_has_ended():
    with Puppet(PUPPET, patient(shared.url()), wait_lease_ms=LONG_MS) as one, Other("d", ttl=2) as other:
        other.wait_held()
        one.acquire("lock", "d", wait_ms=-1)
        wait_until(lambda: len(one.inspect("d")["waiters"]) == 1, "the waiter")
        other.kill()
        one.granted("lock")


@test
def a_break_frees_the_lock_of_an_etcdctl():
    with Puppet(PUPPET, patient(shared.url())) as one, Other("e", ttl=60) as other:
        other.wait_held()
        holder, = one.inspect("e")["holders"]
        equal(one.break_lock("e", holder.token), "OK")
        one.hold("lock", "e")


@test
def with_an_empty_prefix_both_have_the_same_names():
    with Puppet(PUPPET, patient(shared.url(options="prefix=")), wait_lease_ms=LONG_MS) as one:
        one.hold("first", "f", lease_ms=LONG_MS)
        with Other("f", prefix="") as other:
            wait_until(lambda: len(one.inspect("f")["waiters"]) == 1, "the other's place")
            equal(one.release("first"), "OK")
            assert other.wait_held().startswith("f/")
            one.acquire("second", "f", wait_ms=-1)
            wait_until(lambda: len(one.inspect("f")["waiters"]) == 1, "the waiter")
            other.child.send_signal(signal.SIGINT)
            one.granted("second")


@test
def etcdctl_waits_for_names_below_its_own_and_holdfast_does_not():
    with Puppet(PUPPET, patient(shared.url())) as one:
        one.hold("below", "g/a", lease_ms=LONG_MS)
        one.hold("above", "g", lease_ms=LONG_MS)
        equal(one.release("above"), "OK")
        with Other("g") as other:
            wait_until(lambda: len(keys_of("g")) == 2, "the other's place")
            equal(select.select([other.child.stdout], [], [], 0.5)[0], [])
            equal(one.release("below"), "OK")
            other.wait_held()
            one.hold("again", "g/a")


@test
def a_mixed_fleet_never_meets():
    """Half of them are etcdctl. Some are killed, at any time: etcdctl together with its command, which would otherwise
    go on."""
    folder = shared.folder / "witness"
    folder.mkdir()
    program, inside, troubles, entries = (folder / name for name in ("program", "inside", "troubles", "entries"))
    program.write_text(WITNESS)
    work = [sys.executable, program, inside, troubles, entries]
    ours = {"HOLDFAST_URL": patient(shared.url()), "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    chance = random.Random(17)

    def play(words, env, kill):
        for _ in range(ROUNDS):
            with Process() as visitor:
                visitor.launch(words, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if chance.random() < 0.2:
                    time.sleep(chance.random() / 2)
                    if visitor.running():
                        kill(visitor.pid, signal.SIGKILL)
                visitor.child.wait(2 * LIMIT_S)

    kinds = [([HOLDFAST, "run", "--ttl", "3s", "fleet", "--", *work], ours, os.kill),
             (shared.etcdctl("lock", "--ttl", "3", "holdfast/fleet", *work), {"ETCDCTL_API": "3"}, os.killpg)]
    threads = [threading.Thread(target=play, args=kinds[number % 2], daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
    assert not any(thread.is_alive() for thread in threads), "somebody does not finish"
    equal(troubles.read_text(), "")
    assert len(entries.read_text()) >= 2 * ROUNDS, "hardly anybody got in"


if __name__ == "__main__":
    with shared:
        main()
