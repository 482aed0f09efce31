#!/usr/bin/env python3
"""The quorum store on real servers, and what may happen to them: quorum_test.py HOLDFAST PUPPET.

Nodes are given all the time in the world (TIMEOUT_MS) where a node's silence must not be what decides, so that a
test is about what it says and not about the speed of the machine."""
import contextlib
import json
import select
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import HOLDFAST, LONG_MS, PUPPET, puppets, sleep_until, wait_until
from servers.puppet import Puppet, boot_us
from servers.redis import Redis, set_url
from servers.suite import equal, main, test

TIMEOUT_MS = 10000
LEASE_MS = 3000


@contextlib.contextmanager
def nodes(count=5):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Redis()) for _ in range(count)]


def new_set(servers, timeout_ms=TIMEOUT_MS, more=""):
    return set_url(servers, f"init=yes&node_timeout={timeout_ms}{more}")


def key(name):
    return f"holdfast:{name}"


def votes(servers, name):
    """For whom each node that runs has voted."""
    return [server.command("GET", key(name)) for server in servers if server.running()]


def why(puppet, lock):
    """How an acquire failed, and the text."""
    line = puppet.wait(("acquired", lock), ("failed", lock))
    equal(line.words[0], "failed")
    return line.words[2], " ".join(line.words[3:])


# ---- Nodes that are away ----


@test
def a_node_that_hangs_costs_nothing():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        one.hold("warm", "warm")
        servers[1].stop()
        began_us = boot_us()
        grant = one.hold("a", "x", lease_ms=LONG_MS)
        assert grant.at_us - began_us < TIMEOUT_MS * 1000, "it waited for the node"
        equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        servers[1].cont()


@test
def a_minority_may_be_dead():
    with nodes() as servers, puppets(2, new_set(servers)) as (one, two):
        last = one.hold("first", "x").token
        one.release("first")
        for dead in (1, 2):
            servers[dead].kill()
            token = two.hold(dead, "x", lease_ms=LONG_MS, wait_ms=-1).token
            assert token > last
            one.acquire(dead, "x")
            equal(one.failed(dead), "BUSY")
            equal(two.release(dead), "OK")
            last = token


@test
def without_a_majority_nothing_is_taken_and_nothing_left_behind():
    with nodes() as servers:
        for server in servers[:3]:
            server.kill()
        with puppets(1, new_set(servers)) as (one,):
            one.acquire("a", "x", lease_ms=LONG_MS, wait_ms=5000)
            error, text = why(one, "a")
            equal(error, "UNREACHABLE")
            assert "2 of 5 nodes granted it, and 3 are needed" in text, text
            for server in servers[:3]:
                assert f"127.0.0.1:{server.port}: " in text, text
            equal(votes(servers, "x"), [None, None])


@test
def silent_nodes_without_a_majority_end_with_the_wait():
    with nodes() as servers:
        for server in servers[:3]:
            server.stop()
        with puppets(1, new_set(servers, timeout_ms=100)) as (one,):
            one.acquire("a", "x", lease_ms=LONG_MS, wait_ms=1000)
            equal(one.failed("a"), "UNKNOWN")
            one.acquire("b", "x", lease_ms=LONG_MS)
            error, text = why(one, "b")
            equal(error, "UNREACHABLE")
            assert "no answer within 100 ms" in text, text
            wait_until(lambda: votes(servers[3:], "x") == [None, None], "released on those that answer")
        for server in servers[:3]:
            server.cont()


@test
def a_release_reaches_a_node_that_was_stopped():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        one.hold("a", "x", lease_ms=LONG_MS)
        wait_until(lambda: None not in votes(servers, "x"), "all nodes voted")
        servers[2].stop()
        equal(one.release("a"), "OK")
        servers[2].cont()
        wait_until(lambda: votes(servers, "x") == [None] * 5, "released everywhere")


# ---- Nodes that forget ----


@test
def row_8_a_node_that_forgot_does_not_vote():
    with nodes(3) as servers:
        with puppets(1, new_set(servers)) as (one,):
            one.hold("a", "x", lease_ms=LONG_MS)
        url = set_url(servers, f"node_timeout={TIMEOUT_MS}")
        with puppets(1, url) as (two,):
            for server in servers[:2]:
                server.restart(wipe=True)
            two.acquire("b", "y", lease_ms=LONG_MS)
            error, text = why(two, "b")
            equal(error, "UNREACHABLE")
            assert "it has forgotten its locks" in text and "holdfast quorum init" in text, text
            two.acquire("b2", "x", lease_ms=LONG_MS)
            assert two.failed("b2") in ("UNREACHABLE", "BUSY")
            equal(servers[0].command("EXISTS", key("y")), 0)


@test
def quorum_init_declares_the_set_on_each_node():
    with nodes(3) as servers:
        url = set_url(servers, f"node_timeout={TIMEOUT_MS}")
        with puppets(1, url) as (one,):
            one.acquire("a", "x")
            equal(one.failed("a"), "UNREACHABLE")
            done = subprocess.run([HOLDFAST, "--url", url, "quorum", "init", "--json"], capture_output=True, check=True)
            equal([node["votes"] for node in json.loads(done.stdout)], [True] * 3)
            one.hold("b", "x")
        servers[1].kill()
        done = subprocess.run([HOLDFAST, "--url", url, "quorum", "init"], capture_output=True, text=True, check=False)
        equal(done.returncode, 69)
        equal([line.split()[0] for line in done.stdout.splitlines()], ["ok", "missing", "ok"])
        assert f"127.0.0.1:{servers[1].port}" in done.stdout, done.stdout


@test
def row_20_other_sets_and_servers_listed_twice_are_refused():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        equal(one.hold("a", "x") is not None, True)
        equal(one.release("a"), "OK")
        for url, words in ((new_set(servers, more="&id=other"), "it votes in the set default/5/3/"),
                           (new_set(servers, more="&quorum=4"), "it votes in the set default/5/3/"),
                           (new_set(servers[:3]), "it votes in the set default/5/3/")):
            with puppets(1, url) as (other,):
                other.acquire("b", "x", wait_ms=1000)
                error, text = why(other, "b")
                equal(error, "BAD_STORE")
                assert words in text, text
    with nodes(2) as servers, puppets(1, new_set([servers[0], servers[0], servers[1]])) as (one,):
        for _ in range(100):  # it may be granted by the two, before the third turns out to be one of them
            one.acquire("a", "x", wait_ms=1000)
            line = one.wait(("acquired", "a"), ("failed", "a"))
            if line.words[0] == "failed":
                break
            equal(one.release("a"), "OK")
            one.free("a")
        equal(line.words[0:3:2], ["failed", "BAD_URL"])
        assert "the same server as another" in " ".join(line.words), line
        wait_until(lambda: votes(servers, "x") == [None, None], "nothing is left")


# ---- Many, and slow ones ----


@test
def row_21_fifty_clients_storm_one_name():
    with nodes() as servers, contextlib.ExitStack() as stack:
        url = new_set(servers)
        crowd = [stack.enter_context(Puppet(PUPPET, url)) for _ in range(50)]
        for number, one in enumerate(crowd):
            one.acquire(number, "x", lease_ms=LONG_MS, wait_ms=-1)
        waiting, last = dict(enumerate(crowd)), 0
        while waiting:
            number = winner(waiting)
            one = waiting.pop(number)
            token = one.granted(number).token
            assert token > last, f"{token} after {last}"
            last = token
            equal([w for w in waiting if waiting[w].seen("acquired", str(w))], [])
            equal(one.release(number), "OK")


def winner(waiting):
    """Who has it: one of them, sooner or later."""
    while True:
        for number, puppet in waiting.items():
            if puppet.seen("acquired", str(number)):
                return number
            assert not puppet.seen("failed", str(number)), puppet.lines
        files = {puppet.child.stdout: puppet for puppet in waiting.values()}
        for file in select.select(list(files), [], [], 30)[0]:
            files[file].read()


@test
def a_holder_that_sleeps_past_its_lease_is_fenced():
    with nodes() as servers, puppets(2, new_set(servers)) as (one, two):
        old = one.hold("a", "x", lease_ms=LEASE_MS)
        one.stop()
        new = two.hold("b", "x", lease_ms=LONG_MS, wait_ms=-1)
        one.cont()
        equal(one.check("a"), "LOST")
        one.lost("a")
        assert new.token > old.token
        equal(one.release("a"), "LOST")
        equal(two.check("b"), "OK")
        equal(two.renew("b"), "OK")


@test
def renewals_survive_the_loss_of_a_minority_and_not_of_a_majority():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        grant = one.hold("a", "x", lease_ms=LEASE_MS)
        for server in servers[:2]:
            server.kill()
        sleep_until(grant.at_us + 2 * LEASE_MS * 1000)
        equal(one.check("a"), "OK")
        servers[2].kill()
        killed_us = boot_us()
        lost_us = one.lost("a")
        equal(one.check("a"), "LOST")
        assert lost_us >= killed_us


@test
def a_node_that_comes_back_is_taken_again():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        token = one.hold("a", "x", lease_ms=LONG_MS).token
        wait_until(lambda: None not in votes(servers, "x"), "all nodes voted")
        servers[0].command("DEL", key("x"))
        equal(one.renew("a"), "OK")
        wait_until(lambda: None not in votes(servers, "x"), "taken again")
        equal({int(server.command("HGET", f"{{{key('x')}}}.s", "t")) for server in servers}, {token})


main()
