#!/usr/bin/env python3
"""The quorum store on real servers, and what may happen to them: quorum_test.py HOLDFAST PUPPET."""
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import (RENEWED_MS, TIMEOUT_MS, all_voted, key, names_all, new_set, nodes, nothing_left, proxies, votes, why,
                          winner)
from faults.scene import HOLDFAST, LONG_MS, PUPPET, counter_of, is_there, outcome, puppets, sleep_until, wait_until
from servers import suite
from servers.puppet import Puppet, boot_us
from servers.redis import Redis, set_url
from servers.suite import equal, main, test

suite.LIMIT_S = 240  # fifty clients may start slowly


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
def locks_work_while_a_minority_is_dead():
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
            assert "of 5 nodes granted it, and 3 are needed" in text, text  # as many as had answered before the third failed
            names_all(text, servers[:3])
            wait_until(lambda: votes(servers, "x") == [None, None], "nothing left")


@test
def silent_nodes_without_a_majority_end_with_the_wait():
    with nodes() as servers:
        for server in servers[:3]:
            server.stop()
        with puppets(1, new_set(servers, timeout_ms=100)) as (one,):
            one.acquire("a", "x", lease_ms=LONG_MS, wait_ms=1000)
            equal(one.failed("a"), "UNKNOWN")
            wait_until(lambda: votes(servers[3:], "x") == [None, None], "that it gave up")
            one.acquire("b", "x", lease_ms=LONG_MS)
            error, text = why(one, "b")
            equal(error, "UNREACHABLE")
            assert "no answer within" in text, text
            wait_until(lambda: votes(servers[3:], "x") == [None, None], "released on those that answer")
        for server in servers[:3]:
            server.cont()


@test
def a_release_reaches_a_node_that_was_stopped():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        one.hold("a", "x", lease_ms=LONG_MS)
        wait_until(lambda: all_voted(servers, "x"), "all nodes voted")
        servers[2].stop()
        equal(one.release("a"), "OK")
        servers[2].cont()
        wait_until(lambda: votes(servers, "x") == [None] * 5, "released everywhere")


# ---- Looking ----


def inspect(url, *words):
    return subprocess.run([HOLDFAST, "--url", url, "inspect", "x", *words], capture_output=True, text=True, check=False)


def inspect_with_one_silent(servers):
    """Tries again if the machine was so slow that other nodes were also silent."""
    for _ in range(20):
        done = inspect(set_url(servers, "node_timeout=1000"))
        if done.stdout.count("no answer within 1000 ms") <= 1:
            break
        print("# again: other nodes were silent, too", flush=True)
    return done


@test
def inspect_shows_the_nodes_side_by_side():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        token = one.hold("a", "x", lease_ms=LONG_MS).token
        wait_until(lambda: None not in votes(servers, "x"), "all nodes voted")
        one.stop()  # otherwise it would notice what happens to its votes, and get them back
        url = set_url(servers, f"node_timeout={TIMEOUT_MS}")
        info = json.loads(inspect(url, "--json").stdout)
        equal((info["quorum"], info["holders"][0]["votes"], info["holders"][0]["label"]), (3, 5, ""))
        equal([node["name"] for node in info["nodes"]], [f"127.0.0.1:{server.port}" for server in servers])
        for node in info["nodes"]:
            holder = node["holders"][0]
            equal((node["failure"], node["token"], holder["token"]), (None, str(token), str(token)))
            equal(holder["pid"], one.child.pid)
            assert 0 < holder["left_ms"] <= LONG_MS
        servers[0].command("DEL", key("x"))
        servers[1].command("HINCRBY", f"{{{key('x')}}}.s", "t", -5)
        servers[2].stop()
        done = inspect_with_one_silent(servers)
        equal(done.returncode, 0)
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("127.0.0.1:")]
        equal([row[1] for row in rows[:3]], ["nobody", rows[3][1], "no"])
        assert "votes    3 of 5, and 3 are needed" in done.stdout, done.stdout
        assert rows[1][-3:-1] == ["behind:", str(token - 5)], done.stdout
        assert "no answer within 1000 ms" in done.stdout, done.stdout
        servers[3].command("FLUSHALL")
        done = inspect_with_one_silent(servers)
        equal((done.returncode, done.stdout.splitlines()[0]), (1, "x: perhaps held: nobody is seen to have 3 votes"))
        assert "nobody: it does not know the lock" in done.stdout, done.stdout
        assert "2 of 5 votes" in done.stdout, done.stdout
        servers[2].cont()
        equal(inspect(url).returncode, 0)  # its vote is seen again
        servers[4].command("DEL", key("x"))
        done = inspect(url)
        equal((done.returncode, done.stdout.splitlines()[0]), (1, "x: not held: nobody is seen to have 3 votes"))
        done = subprocess.run([HOLDFAST, "--url", url, "ls"], capture_output=True, text=True, check=False)
        equal(done.stdout.splitlines()[1].split("\t")[2].split(" pid ")[0].split(": ")[0], "2 of 3 votes")


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
            assert "it is new or restarted" in text, text
            two.acquire("b2", "x", lease_ms=LONG_MS)
            assert two.failed("b2") in ("UNREACHABLE", "BUSY")
            equal(servers[0].command("EXISTS", key("y")), 0)


@test
def row_8_a_node_that_came_back_with_an_older_snapshot_does_not_vote():
    with nodes(3) as servers, puppets(1, new_set(servers)) as (founder,), \
            puppets(2, set_url(servers, f"node_timeout={TIMEOUT_MS}")) as (one, two):
        founder.hold("warm", "warm")
        wait_until(lambda: all_voted(servers, "warm"), "that all know the set")
        servers[1].command("SAVE")
        servers[2].command("SET", key("x"), "somebody else's")
        one.hold("a", "x", lease_ms=LONG_MS)
        servers[1].kill()
        servers[1].restart()  # it knows the set, and nothing of the lock
        equal(servers[1].command("EXISTS", key("x")), 0)
        servers[2].command("DEL", key("x"))
        two.acquire("b", "x", lease_ms=LONG_MS)
        equal(two.failed("b"), "BUSY")
        equal(servers[1].command("EXISTS", f"{{{key('x')}}}.s"), 0)
        equal(one.check("a"), "OK")


@test
def durable_nodes_vote_at_once_when_they_are_back():
    with contextlib.ExitStack() as stack:
        config = ["appendonly yes", "appendfsync always"]
        servers = [stack.enter_context(Redis(config=config)) for _ in range(3)]
        with puppets(2, new_set(servers, more="&durable=yes")) as (one, two):
            one.hold("a", "x", lease_ms=LONG_MS)
            wait_until(lambda: None not in votes(servers, "x"), "all nodes voted")
            for server in servers:
                server.kill()
                server.restart()
            two.acquire("b", "x", lease_ms=LONG_MS)
            equal(two.failed("b"), "BUSY")
            two.hold("c", "y", lease_ms=LONG_MS)
            equal(one.renew("a"), "OK")


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
        servers[1].stop()
        with subprocess.Popen([HOLDFAST, "--url", set_url(servers, "node_timeout=50"), "quorum", "init"],
                              stdout=subprocess.PIPE, text=True) as slowly:
            time.sleep(0.5)  # ten times as long as a server has to answer
            servers[1].cont()
            equal((slowly.stdout.read().count("votes"), slowly.wait()), (3, 0))
        servers[1].kill()
        done = subprocess.run([HOLDFAST, "--url", url, "quorum", "init"], capture_output=True, text=True, check=False)
        equal(done.returncode, 69)
        equal([line.split()[0] for line in done.stdout.splitlines()], ["ok", "missing", "ok"])
        assert f"127.0.0.1:{servers[1].port}" in done.stdout, done.stdout


@test
def row_20_other_sets_and_servers_listed_twice_are_refused():
    with nodes() as servers, puppets(1, new_set(servers, name=None)) as (one,):
        equal(one.hold("a", "x") is not None, True)
        equal(one.release("a"), "OK")
        with Redis() as another, puppets(1, new_set([servers[4], *servers[:4]], name=None)) as (same,):
            equal(same.hold("c", "x") is not None, True)  # in whichever order
            equal(same.release("c"), "OK")
            with puppets(1, new_set(servers, name=None).replace("127.0.0.1", "LocalHost")) as (spelled,):
                equal(spelled.hold("d", "x") is not None, True)
                equal(spelled.release("d"), "OK")
            for url in (new_set(servers, name="other"), new_set(servers, name=None, more="&quorum=4"),
                        new_set(servers[:3], name=None), new_set([*servers[:4], another], name=None)):
                with puppets(1, url) as (other,):
                    other.acquire("b", "x", wait_ms=1000)
                    error, text = why(other, "b")
                    equal(error, "BAD_URL")
                    assert "it votes in the set " in text, text
    with nodes(2) as servers, puppets(1, new_set([servers[0], servers[0], servers[1]])) as (one,):
        one.acquire("first", "x")  # two that differ may have granted it before the third answered
        if outcome(one, "first") == "OK":
            one.inspect("x")  # this waits for all
            equal(one.release("first"), "OK")
        one.acquire("a", "x", wait_ms=1000)
        error, text = why(one, "a")
        equal(error, "BAD_URL")
        assert "the same server as another" in text, text
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


@test
def readers_share_a_lock_and_a_writer_is_alone():
    with nodes() as servers, puppets(5, new_set(servers)) as (*readers, writer):
        for _ in range(3):
            tokens = [reader.hold("r", "x", kind="shared", lease_ms=LONG_MS, wait_ms=-1).token for reader in readers]
            writer.acquire("w", "x", kind="exclusive")
            equal(writer.failed("w"), "BUSY")
            writer.acquire("w", "x", kind="exclusive", lease_ms=LONG_MS, wait_ms=-1)
            for reader in readers:
                equal(reader.renew("r"), "OK")
                equal(is_there(writer, "w"), False)
                equal(reader.release("r"), "OK")
                reader.free("r")
            assert writer.granted("w").token > max(tokens)
            for reader in readers:
                reader.acquire("busy", "x", kind="shared")
                equal(reader.failed("busy"), "BUSY")
                reader.acquire("r", "x", kind="shared", lease_ms=LONG_MS, wait_ms=-1)
            equal([is_there(reader, "r") for reader in readers], [False] * 4)
            equal(writer.release("w"), "OK")
            writer.free("w")
            for reader in readers:  # all of them, although nobody releases
                reader.granted("r")
            for reader in readers:
                equal(reader.release("r"), "OK")
                reader.free("r")
        wait_until(lambda: nothing_left(servers, "x"), "nothing left")


@test("shared", "exclusive")
def a_reader_and_a_writer_never_both_have_it_though_each_has_some_votes(kind):
    """Each reaches two nodes, and they meet at the fifth, which votes for whoever comes first."""
    other = {"shared": "exclusive", "exclusive": "shared"}[kind]
    with nodes() as servers, proxies(servers) as ways, puppets(1, new_set(ways[:3] + servers[3:])) as (one,), \
            puppets(1, new_set(servers[:3] + ways[3:])) as (two,):
        for way in ways[:2] + ways[3:]:
            way.refuse()
        one.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        equal([vote is not None for vote in votes(servers, "x")], [False, False, True, True, True])
        two.acquire("b", "x", kind=other, lease_ms=LONG_MS)
        equal(two.failed("b"), "BUSY")
        wait_until(lambda: votes(servers[:2], "x") == [None, None], "its votes to be given back")
        equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        two.hold("b", "x", kind=other, lease_ms=LONG_MS, wait_ms=-1)


@test
def renewals_survive_the_loss_of_a_minority_and_not_of_a_majority():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        grant = one.hold("a", "x", lease_ms=RENEWED_MS)
        for server in servers[:2]:
            server.kill()
        sleep_until(grant.at_us + RENEWED_MS * 1000 * 3 // 2)
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
        wait_until(lambda: all_voted(servers, "x"), "all nodes voted")
        servers[0].command("DEL", key("x"))
        equal(one.renew("a"), "OK")
        wait_until(lambda: all_voted(servers, "x"), "taken again")
        equal({counter_of(server, "x") for server in servers}, {token})


@test
def nodes_that_were_away_at_first_are_taken_when_they_are_back_and_count_from_then_on():
    with nodes() as servers, puppets(1, new_set(servers)) as (one,):
        for server in servers[:2]:
            server.kill()
        one.hold("a", "x", lease_ms=LONG_MS)
        for server in servers[:2]:
            server.restart()
        wait_until(lambda: one.renew("a") == "OK" and all_voted(servers, "x"), "all votes")
        one.inspect("x")
        for server in servers[3:]:
            server.kill()
        equal(one.renew("a"), "OK")


main()
