#!/usr/bin/env python3
"""The Redis store on a Cluster: fault_cluster_test.py HOLDFAST PUPPET. Rows 10 and 46 of FAILURES.md.

HOLDFAST_CHAOS_S is how many seconds slots are moved back and forth under load (60).
"""
import os
import random
import re
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (LONG_MS, PUPPET, SLACK_US, History, TooSlow, is_lost, keys, last_deadline_us, one_of, patient, puppets,
                          value_of, wait_until, waiting)
from servers import suite
from servers.cluster import Cluster, slot_of
from servers.puppet import Puppet
from servers.redis import RedisError
from servers.sentinel import info
from servers.suite import equal, main, test

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 60))
LIMIT_S = 90
WAIT_LEASE_MS = 3000
CLIENTS = 32
suite.LIMIT_S = int(SECONDS) + 240


def slot(name):
    return slot_of(keys(name)["K"])


def name_at(cluster, node, but=()):
    """A name whose slot this node has."""
    return next(name for name in (f"n{number}" for number in range(1000))
                if name not in but and cluster.owner(slot(name)) is node)


def wait_for_replication(node):
    """Waits until its replica has confirmed everything written so far. (WAIT only knows what its own connection
    wrote.)"""
    written = int(node.info("replication")["master_repl_offset"])

    def confirmed():
        offset = re.search(r"offset=(\d+)", node.info("replication").get("slave0", ""))
        return offset and int(offset[1]) >= written
    wait_until(confirmed, "replication")


# ---- A node fails ----


@test("killed", "stopped")
def row_10_a_promotion_means_lost_for_its_slots_and_no_others(how):
    with Cluster() as cluster, puppets(2, cluster.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        old, other = cluster.nodes[1], cluster.nodes[2]
        lost, kept = name_at(cluster, old), name_at(cluster, other)
        token = one.hold("lost", lost, lease_ms=LONG_MS).token
        one.hold("kept", kept, lease_ms=LONG_MS)
        two.acquire("waits", lost, wait_ms=-1)
        wait_until(lambda: waiting(old, lost) == 1, "a waiter")
        wait_for_replication(old)
        cluster.hurry()
        if how == "killed":
            old.kill()
        else:
            old.stop()
        new = cluster.wait_for_promotion(slot(lost), old)
        one.lost("lost", LIMIT_S)
        equal(one.renew("lost"), "LOST")
        assert value_of(new, lost), "it was replicated"
        equal(one.release("lost"), "LOST")
        assert two.granted("waits", LIMIT_S).token > token
        if how == "stopped":
            old.cont()
        equal(two.renew("waits"), "OK")
        equal(one.renew("kept"), "OK")
        equal(is_lost(one, "kept") or is_lost(two, "waits"), False)
        equal(two.release("waits"), "OK")
        equal(one.release("kept"), "OK")


@test
@patient
def row_10_clients_that_are_cut_off_with_a_node_lose_its_locks_and_the_others_go_on():
    """Clients of the other nodes continue; clients of this one lose its locks, at their deadline at the latest."""
    with Cluster(proxied=True) as cluster, \
            puppets(3, cluster.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two, inside):
        old = cluster.nodes[1]
        first, kept = name_at(cluster, old), name_at(cluster, cluster.nodes[2])
        second = name_at(cluster, old, but=(first,))
        one.hold("kept", kept, lease_ms=LONG_MS)
        tokens = one.hold("first", first, lease_ms=LONG_MS).token, inside.hold("second", second, lease_ms=8000).token
        for name, lock in ((first, "first"), (second, "second")):
            two.acquire(lock, name, wait_ms=-1)
            wait_until(lambda name=name: waiting(old, name) == 1, "a waiter")
        wait_for_replication(old)
        cluster.hurry(4000)
        cluster.part([old, inside])
        reached = inside.renew("second")
        if "cluster_state:ok" not in old.command("CLUSTER", "INFO"):
            raise TooSlow("the node has noticed already")
        equal(reached, "OK")
        equal(is_lost(one, "first"), False)
        _, end_us = last_deadline_us(inside, "second")
        told_us = inside.lost("second", LIMIT_S)
        assert told_us <= end_us + SLACK_US, f"{(told_us - end_us) / 1e6} s too late"
        new = cluster.wait_for_promotion(slot(first), old)
        one.lost("first", LIMIT_S)
        equal((one.renew("first"), inside.renew("second")), ("LOST", "LOST"))
        assert value_of(new, first), "it was replicated"
        equal(one.release("first"), "LOST")
        for lock, token in zip(("first", "second"), tokens):
            assert two.granted(lock, LIMIT_S).token > token
        cluster.heal()
        wait_until(lambda: info(old, "replication")["role"] == "slave", "the old master as a replica", LIMIT_S)
        equal((inside.release("second"), inside.check("second")), ("LOST", "LOST"))
        equal((two.renew("first"), two.renew("second"), one.renew("kept")), ("OK", "OK", "OK"))
        equal(is_lost(two, "first") or is_lost(two, "second") or is_lost(one, "kept"), False)
        inside.acquire("again", second, wait_ms=-1)
        equal(two.release("second"), "OK")
        inside.granted("again", LIMIT_S)


@test
def row_10_what_was_not_replicated_is_lost_and_not_made_again():
    with Cluster(config=["replica-read-only no"]) as cluster, \
            puppets(2, cluster.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        old = cluster.nodes[0]
        first = name_at(cluster, old)
        second = name_at(cluster, old, but=(first,))
        tokens = [one.hold(name, name, lease_ms=LONG_MS).token for name in (first, second)]
        two.acquire("waits", first, wait_ms=-1)
        wait_until(lambda: waiting(old, first) == 1, "a waiter")
        wait_for_replication(old)
        cluster.replica_of(old).command("FLUSHALL")
        cluster.hurry()
        old.kill()
        new = cluster.wait_for_promotion(slot(first), old)
        one.lost(first, LIMIT_S)
        one.lost(second, LIMIT_S)
        assert two.granted("waits", LIMIT_S).token > tokens[0]
        equal(one.renew(second), "LOST")
        equal(value_of(new, second), None)
        equal(one.release(first), "LOST")
        equal(two.renew("waits"), "OK")


@test
def a_promotion_by_hand_loses_the_locks_of_its_slots():
    with Cluster() as cluster, puppets(1, cluster.url()) as (one,):
        old = cluster.nodes[0]
        name = name_at(cluster, old)
        one.hold("a", name, lease_ms=LONG_MS)
        cluster.replica_of(old).command("CLUSTER", "FAILOVER")
        cluster.wait_for_promotion(slot(name), old)
        one.lost("a", LIMIT_S)
        equal(one.release("a"), "LOST")
        one.hold("b", name, wait_ms=-1)


@test
def a_restart_of_a_node_loses_no_lock():
    with Cluster(config=["appendonly yes", "appendfsync always"]) as cluster, \
            puppets(1, cluster.url()) as (one,):
        old = cluster.nodes[1]
        name = name_at(cluster, old)
        one.hold("a", name, lease_ms=LONG_MS)
        old.restart()
        wait_until(lambda: one.renew("a") == "OK", "a renewal", LIMIT_S)
        equal(is_lost(one, "a"), False)
        equal(one.release("a"), "OK")


@test
def seeds_may_be_gone_once_the_others_are_known():
    with Cluster() as cluster, puppets(1, cluster.url(count=1)) as (one,):
        names = [name_at(cluster, node) for node in cluster.nodes[:3]]
        for name in names:
            one.hold(name, name, lease_ms=LONG_MS)
        old = cluster.nodes[0]
        cluster.hurry()
        old.kill()
        cluster.wait_for_promotion(slot(names[0]), old)
        one.lost(names[0], LIMIT_S)
        for name in names[1:]:
            equal(one.renew(name), "OK")
        with Puppet(PUPPET, cluster.url(count=1)) as another:
            another.acquire("a", "a")
            equal(another.failed("a", LIMIT_S), "UNREACHABLE")


@test
def a_server_that_is_no_cluster_is_reported():
    with Cluster(masters=3, replicas=0) as cluster, puppets(1, cluster.url()) as (one,):
        one.hold("a", "a")
        url = cluster.url().replace("redis+cluster", "redis").split(",")[0]
        with Puppet(PUPPET, url) as single:
            for number in range(20):
                single.acquire(number, f"n{number}")
            told = [" ".join(single.wait(("acquired", number), ("failed", number)).words) for number in range(20)]
            assert any("MOVED" in line for line in told), told


# ---- A slot migrates ----


@test("exclusive", "shared")
def row_46_while_a_slot_migrates_holds_are_renewed_and_released_and_others_wait(kind):
    with Cluster() as cluster, puppets(2, cluster.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        source, target = cluster.nodes[:2]
        name = name_at(cluster, source)
        token = one.hold("a", name, kind=kind, lease_ms=LONG_MS).token
        cluster.begin_move(slot(name), target)
        equal(one.renew("a"), "OK")
        if kind == "exclusive":
            source.command("MIGRATE", "127.0.0.1", target.port, keys(name)["K"], 0, 5000)
        else:
            cluster.move_keys(slot(name), source, target)
        equal(one.renew("a"), "OK")
        two.acquire("b", name, kind="exclusive" if kind == "shared" else kind, wait_ms=-1)
        if kind == "exclusive":
            equal(one.release("a"), "OK")
        equal(two.seen("acquired", "b"), False)
        cluster.move_keys(slot(name), source, target)
        cluster.end_move(slot(name), source, target)
        if kind == "shared":
            equal(one.renew("a"), "OK")
            equal(one.release("a"), "OK")
        line = two.wait("acquired b", "failed b", limit_s=LIMIT_S)
        if line.words[0] == "failed":  # it got no answer in time
            equal(line.words[2], "UNREACHABLE")
            two.acquire("b", name, kind="exclusive" if kind == "shared" else kind, wait_ms=-1)
            line = two.wait("acquired b", limit_s=LIMIT_S)
        assert int(line.words[2]) > token
        equal(is_lost(one, "a"), False)
        equal(cluster.owner(slot(name)), target)


class Mover(threading.Thread):
    """Moves slots from master to master and back."""

    def __init__(self, cluster, slots):
        super().__init__(daemon=True)
        self.cluster, self.slots, self.finish, self.moves, self.trouble = cluster, slots, False, 0, None

    def run(self):
        try:
            masters = self.cluster.nodes[:3]
            while not self.finish:
                one = random.choice(self.slots)
                owner = self.cluster.owner(one, masters[0])
                target = random.choice([node for node in masters if node is not owner])
                try:
                    source = self.cluster.begin_move(one, target)
                except RedisError:  # nodes learn of the previous move from each other
                    target.command("CLUSTER", "SETSLOT", one, "STABLE")
                    continue
                time.sleep(random.choice((0, 0.05, 0.3)))
                self.cluster.move_keys(one, source, target)
                time.sleep(random.choice((0, 0.05)))
                self.move_the_rest(one, source, target)
                self.moves += 1
                time.sleep(random.choice((0, 0.1, 0.5)))
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error

    def move_the_rest(self, one, source, target):
        """A source that again has keys refuses to give the slot away."""
        while not self.finish or self.cluster.owner(one, source) is not target:
            self.cluster.move_keys(one, source, target)
            try:
                target.command("CLUSTER", "SETSLOT", one, "NODE", target.id())
                source.command("CLUSTER", "SETSLOT", one, "NODE", target.id())
                break
            except RedisError:
                continue
        self.cluster.end_move(one, source, target)


class Player(threading.Thread):
    """Takes one lock or several, keeps them for a while, and releases them: this may fail only for lack of time."""

    def __init__(self, puppet, seed, names, history):
        super().__init__(daemon=True)
        self.puppet, self.random, self.names, self.history = puppet, random.Random(seed), names, history
        self.finish, self.trouble, self.ends = False, None, {}

    def run(self):
        try:
            turn = 0
            while not self.finish:
                self.play(f"turn{turn}", self.random.sample(self.names, self.random.choice((1, 1, 1, 2, 3))))
                turn += 1
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error

    def note(self, end):
        self.ends[end] = self.ends.get(end, 0) + 1

    def play(self, lock, names):
        kind = "all" if len(names) > 1 else "exclusive"
        self.puppet.acquire(lock, ",".join(names), kind=kind, lease_ms=20000, wait_ms=60000)
        line = self.puppet.wait(("acquired", lock), ("failed", lock), limit_s=2 * LIMIT_S)
        if line.words[0] == "failed":
            self.note(f"{kind} {line.words[2]}")
            one_of(line.words[2], ("TIMEOUT", "UNKNOWN", "UNREACHABLE"))
            return
        holds = [self.history.granted(name, int(token), line.at_us)
                 for name, token in zip(names, line.words[2].split(","), strict=True)]
        until = time.monotonic() + self.random.choice((0, 0.05, 0.3))
        while all(self.history.ask_left(hold, self.puppet, lock) > 0 for hold in holds) and time.monotonic() < until:
            time.sleep(0.02)
            equal(self.puppet.renew(lock), "OK")
        told = self.history.release(self.puppet, lock, *holds)
        self.note(f"{kind} released {told}")
        one_of(told, ("OK", "UNKNOWN", "UNREACHABLE"))
        equal(is_lost(self.puppet, lock), False)
        self.puppet.free(lock)


@test
def row_46_slots_that_migrate_under_load_lose_no_hold():
    history, names = History(), [f"busy{number}" for number in range(6)]
    with Cluster() as cluster, puppets(CLIENTS, cluster.url("?timeout=20000"), wait_lease_ms=WAIT_LEASE_MS) as every:
        kept = {puppet: puppet.hold("kept", f"kept{number}", lease_ms=30000) for number, puppet in enumerate(every)}
        slots = [slot(name) for name in names + [f"kept{number}" for number in range(len(every))]]
        players = [Player(puppet, number, names, history) for number, puppet in enumerate(every)]
        mover = Mover(cluster, slots)
        for thread in (*players, mover):
            thread.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not mover.trouble:
            time.sleep(0.1)
        mover.finish = True
        mover.join(LIMIT_S)
        for player in players:
            player.finish = True
        for player in players:
            player.join(2 * LIMIT_S)
        ends = {}
        for player in players:
            for end, count in player.ends.items():
                ends[end] = ends.get(end, 0) + count
        checked = history.check()
        print(f"# {mover.moves} moves, {checked} holds, {ends}")
        equal([thread.trouble for thread in (*players, mover) if thread.trouble], [])
        assert not any(thread.is_alive() for thread in (*players, mover)), "somebody does not finish"
        assert mover.moves > 3 and ends.get("exclusive released OK", 0) > 10 and ends.get("all released OK", 0) > 3, ends
        for puppet, grant in kept.items():
            equal(puppet.renew("kept"), "OK")
            equal(is_lost(puppet, "kept"), False)
        for puppet in every:
            puppet.quit()


main()
