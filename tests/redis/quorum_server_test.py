#!/usr/bin/env python3
"""The quorum store when nodes die and forget: quorum_server_test.py HOLDFAST PUPPET."""
import contextlib
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import (AOF, KINDS, MAJORITY, MINORITY, RENEWED_MS, TIMEOUT_MS, all_voted, hold_all, names_all, new_set, nodes,
                          nothing_left, refuse_all, take_all, votes, why)
from faults.scene import (LONG_MS, counter_of, deadline_us, evict_all, is_lost, is_there, keys, one_of, patient,
                          puppets, repeating, sleep_until, wait_until)
from servers.puppet import boot_us
from servers.redis import set_url
from servers.suite import equal, main, test

LEASE_MS = 3000


# ---- They die ----


@test
def without_a_majority_there_is_a_clear_error_and_nothing_is_left_when_they_are_back():
    with nodes(config=AOF) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        for server in servers[:MAJORITY]:
            server.kill()
        began_us = boot_us()
        for name, wait_ms in (("new", 0), ("waited-for", 1000)):
            two.acquire(name, name, lease_ms=LONG_MS, wait_ms=wait_ms)
            error, text = why(two, name)
            equal(error, "UNREACHABLE")
            names_all(text, servers[:MAJORITY])
        for name in KINDS:
            one.send("renew", name, 0)
            line = one.wait(("renewed", name)).words
            one_of(line[2], ("UNREACHABLE", "UNKNOWN"))
            names_all(" ".join(line), servers[:MAJORITY])
            equal(is_lost(one, name), False)
            one.send("release", name)
            equal(one.wait(("released", name)).words[2], "UNKNOWN")
        assert boot_us() - began_us < TIMEOUT_MS * 1000
        for server in servers[:MAJORITY]:
            server.restart()
        for name in ("new", "waited-for", *KINDS):
            wait_until(lambda: nothing_left(servers, name), "nothing left")
        for puppet in (one, two):
            puppet.quit()


@test
def what_was_released_is_free_on_nodes_that_come_back_with_their_data():
    with nodes(config=AOF) as servers, puppets(1, new_set(servers)) as (one,):
        hold_all(one, servers)
        for server in servers[:MINORITY]:
            server.kill()
        for name in KINDS:
            equal(one.release(name), "OK")
        for server in servers[:MINORITY]:
            server.restart()
        for name in KINDS:
            wait_until(lambda: nothing_left(servers, name), "nothing left")


@test
def row_23_a_majority_that_is_killed_and_comes_back_in_time_loses_nothing():
    with nodes(config=AOF) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        for server in servers[:MAJORITY]:
            server.kill()
        for server in servers[:MAJORITY]:
            server.restart()
        for name in KINDS:
            equal(one.renew(name), "OK")
        refuse_all(two)
        for name in KINDS:
            equal(one.release(name), "OK")


# ---- They come back empty ----


@test
def row_8_a_node_that_comes_back_empty_costs_nothing_and_does_not_vote():
    with nodes() as servers:
        with puppets(1, new_set(servers)) as (zero,):
            zero.hold("a", "first")
            wait_until(lambda: all_voted(servers, "first"), "all nodes are of the set")
        with puppets(2, set_url(servers, f"node_timeout={TIMEOUT_MS}")) as (one, two):
            hold_all(one, servers, RENEWED_MS)
            forgetful = servers[:MINORITY]
            for server in forgetful:
                server.restart(wipe=True)
            back_us = boot_us()
            two.hold("new", "new", lease_ms=LONG_MS)
            sleep_until(back_us + RENEWED_MS * 1000 * 3 // 2)
            refuse_all(two)
            for name in KINDS:
                equal(one.check(name), "OK")
                equal(is_lost(one, name), False)
            two.inspect("new")
            for name in ("new", *KINDS):
                equal(votes(forgetful, name), [None] * MINORITY)


@test(*KINDS)
@patient
def row_8_a_set_that_forgot_everything_votes_when_all_leases_are_over(kinds):
    kind, other = KINDS[kinds]
    with nodes(3) as servers:
        with puppets(1, new_set(servers), max_lease_ms=LEASE_MS) as (zero,):
            zero.hold("a", "first", lease_ms=LEASE_MS)
            wait_until(lambda: all_voted(servers, "first"), "all nodes are of the set")
        url = set_url(servers, f"node_timeout={TIMEOUT_MS}")
        with puppets(2, url, max_lease_ms=LEASE_MS) as (one, two):
            token = one.hold("a", "x", kind=kind, lease_ms=LEASE_MS, flags="no_renew").token
            ends_us, _ = deadline_us(one, "a")
            for server in servers:
                server.restart(wipe=True)
            two.acquire("b", "x", kind=other, lease_ms=LEASE_MS)
            while (line := two.wait("acquired b", "failed b")).words[0] == "failed":
                equal(line.words[2], "UNREACHABLE")
                assert "it is new or restarted" in " ".join(line.words), line
                two.acquire("b", "x", kind=other, lease_ms=LEASE_MS)
            assert line.at_us >= ends_us, f"{ends_us - line.at_us} us too early"
            assert int(line.words[2]) > token
            one.lost("a")


# ---- They lose something ----


def file_of(server):
    return next(server.data.glob("appendonlydir/*.incr.aof"))


def lose_tail(server, kept):
    """Cuts its file in the middle of what it wrote after that."""
    file = file_of(server)
    server.kill()
    assert file.stat().st_size > kept + 25
    os.truncate(file, kept + 25)
    server.restart()


@test
def row_9_a_node_whose_file_lost_its_tail_is_taken_again():
    with nodes(config=AOF) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        for name in KINDS:
            equal(one.release(name), "OK")
            one.free(name)
        one.inspect("none")
        kept = file_of(servers[0]).stat().st_size
        tokens = hold_all(one, servers)
        one.stop()  # it would notice that the server came back, and get its vote again
        lose_tail(servers[0], kept)
        equal([value for name in KINDS for value in votes(servers[:1], name)], [None] * len(KINDS))
        one.cont()
        for name in KINDS:
            equal(one.renew(name), "OK")
        wait_until(lambda: all(all_voted(servers, name) for name in KINDS), "all votes again")
        equal({name: counter_of(servers[0], name) for name in KINDS}, tokens)
        refuse_all(two)
        for name in KINDS:
            equal(one.release(name), "OK")
        take_all(two, tokens)


@test
def row_9_tokens_rise_though_all_files_lost_their_tails():
    with nodes(config=AOF) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        for name in KINDS:
            equal(one.release(name), "OK")
            one.free(name)
        one.inspect("none")
        kept = [file_of(server).stat().st_size for server in servers]
        tokens = hold_all(one, servers)
        one.stop()  # as above
        for server, size in zip(servers, kept):
            lose_tail(server, size)
        for name, token in tokens.items():
            assert max(counter_of(server, name) for server in servers) < token, "nothing was lost"
        take_all(two, tokens)
        one.cont()
        for name in KINDS:
            one.lost(name)
            equal(one.release(name), "LOST")
            equal(two.renew(f"{name}-next"), "OK")


FORGET = {
    "DEL": lambda server: server.command("DEL", *(keys(name)[letter] for name in KINDS for letter in "KHI")),
    "DEL with counters": lambda server: server.command("DEL", *(key for name in KINDS for key in keys(name).values())),
    "FLUSHALL": lambda server: server.command("FLUSHALL"),
    "eviction": evict_all,
}
EVICTS = ["maxmemory-policy allkeys-random"]


@test(*FORGET)
def rows_12_and_13_what_a_minority_forgot_is_taken_again(what):
    with nodes(config=EVICTS) as servers, puppets(2, new_set(servers)) as (one, two):
        tokens = hold_all(one, servers)
        one.stop()  # it checks its holds when it starts to listen
        for server in servers[:MINORITY]:
            FORGET[what](server)
        for name in KINDS:
            equal(votes(servers[:MINORITY], name), [None] * MINORITY)
        one.cont()
        for name in KINDS:
            equal(one.renew(name), "OK")
        wait_until(lambda: all(all_voted(servers, name) for name in KINDS), "all votes again")
        refuse_all(two)
        for name, token in tokens.items():
            equal({counter_of(server, name) for server in servers}, {token})
            equal(is_lost(one, name), False)
            equal(one.release(name), "OK")
        take_all(two, tokens)


@test(*FORGET)
def rows_12_and_13_what_a_majority_forgot_is_lost_and_not_made_again(what):
    with nodes(config=EVICTS) as servers, puppets(2, new_set(servers)) as (one, two):
        tokens = hold_all(one, servers, RENEWED_MS)  # renewals are automatic
        one.stop()  # as far as it can tell, they forget at the same time
        for server in servers[:MAJORITY]:
            FORGET[what](server)
        one.cont()
        for name in KINDS:
            one.lost(name)
            equal(one.check(name), "LOST")
            equal(one.fd_is_readable(name), True)
        one.inspect("none")
        for name in KINDS:
            wait_until(lambda: nothing_left(servers, name), "nothing left")
            equal(one.release(name), "LOST")
            equal(one.renew(name), "LOST")
        one.inspect("none")
        for name in KINDS:
            equal(nothing_left(servers, name), True)
        take_all(two, tokens)


@test
def row_14_scripts_that_are_flushed_all_the_time_stop_nobody():
    with nodes() as servers, contextlib.ExitStack() as stack, puppets(4, new_set(servers)) as every:
        every[0].hold("renewed", "renewed", lease_ms=RENEWED_MS)
        flushes = [stack.enter_context(repeating(server, "SCRIPT", "FLUSH", every_s=0.01)) for server in servers]
        until, turns = time.monotonic() + 4, 0
        while time.monotonic() < until or turns < 2:
            for number, puppet in enumerate(every):
                puppet.acquire("own", f"own{number}", kind=("exclusive", "shared")[turns % 2], lease_ms=LONG_MS)
                puppet.acquire("common", "common", lease_ms=LONG_MS, wait_ms=-1)
            for puppet in every:
                puppet.granted("own")
                equal(puppet.renew("own"), "OK")
                equal(puppet.release("own"), "OK")
            left = list(every)
            while left:
                for puppet in [puppet for puppet in left if is_there(puppet, "common")]:
                    puppet.granted("common")
                    equal(puppet.release("common"), "OK")
                    left.remove(puppet)
            for puppet in every:
                puppet.free("own")
                puppet.free("common")
            turns += 1
        assert min(count[0] for count in flushes) > 10, flushes
        equal(is_lost(every[0], "renewed"), False)
        for name in ("common", *(f"own{number}" for number in range(len(every)))):
            wait_until(lambda: nothing_left(servers, name), "nothing left")


main()
