#!/usr/bin/env python3
"""The quorum store when processes stop and the clocks of nodes are wrong: quorum_time_test.py HOLDFAST PUPPET."""
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import (KINDS, MAJORITY, MINORITY, RENEWED_MS, TIMEOUT_MS, all_voted, names_all, new_set, nodes, nothing_left,
                          proxies, votes, why)
from faults.scene import (LONG_MS, PUPPET, SHIM, Resource, counter_of, deadline_us, in_time, is_lost, patient, puppets,
                          sleep_until, wait_until)
from servers.puppet import Puppet, boot_us
from servers.suite import equal, main, test

HOUR_S, DAY_S = 3600, 86400
WITHOUT_HURRY = f"&timeout={LONG_MS}"


def check_free(servers, puppet, name, kind="exclusive"):
    """Checks that it is free, on all nodes."""
    wait_until(lambda: nothing_left(servers, name), "nothing left")
    puppet.hold("free", name, kind=kind)
    equal(puppet.release("free"), "OK")


# ---- Pauses ----


@test(*KINDS)
def row_1_who_was_stopped_past_its_lease_is_notified_and_fenced_off(kinds):
    with nodes() as servers, puppets(2, new_set(servers)) as (one, two):
        kind, other = KINDS[kinds]
        resource = Resource()
        first = one.hold("a", "x", kind=kind, lease_ms=2000)
        assert resource.write(first.token, "first")
        one.stop()
        one.send("check", "a", 0)  # the very first thing that it does afterwards
        second = two.hold("b", "x", kind=other, lease_ms=LONG_MS, wait_ms=-1)
        assert second.token > first.token
        assert resource.write(second.token, "second")
        one.cont()
        equal(one.wait("checked a").words[2], "LOST")
        assert not resource.write(first.token, "too late")
        assert one.lost("a") > second.at_us
        equal(one.release("a"), "LOST")
        equal(two.check("b"), "OK")
        equal(two.renew("b"), "OK")


@test(1, MAJORITY, 5)
@patient
def row_2_grants_that_arrive_after_their_lease_are_not_used(late):
    """The replies of this many nodes wait until the lease is over. A single one is not needed."""
    with nodes() as servers, proxies(servers) as ways, Puppet(PUPPET, new_set(ways, more=WITHOUT_HURRY)) as one, \
            Puppet(PUPPET, new_set(servers)) as two:
        one.hold("warm-up", "warm-up")
        equal(one.release("warm-up"), "OK")
        one.inspect("warm-up")
        for way in ways[:late]:
            way.hold("down")
        asked_us = boot_us()
        one.acquire("a", "x", lease_ms=LONG_MS if late < MAJORITY else 1500)
        for way in ways[:late]:
            way.wait(lambda way=way: way.held["down"] > 0)
        if late < MAJORITY:
            one.granted("a")
            return
        one.stop()
        token = two.hold("b", "x", lease_ms=LONG_MS, wait_ms=-1).token  # all nodes did grant it to the first
        for way in ways:
            way.pass_all()
            way.wait(lambda way=way: way.held["down"] == 0)
        in_time(asked_us + TIMEOUT_MS * 1000)
        one.cont()
        equal(one.failed("a"), "SHORT")
        one.inspect("x")  # its withdrawals are done
        equal(two.renew("b"), "OK")
        equal([holder.token for holder in two.inspect("x")["holders"]], [token])


@test("exclusive", "shared")
def row_2_a_lease_counts_from_before_its_requests_were_sent(kinds):
    lease_ms, late_ms = 30000, 1500
    with nodes() as servers, proxies(servers) as ways, Puppet(PUPPET, new_set(ways, more=WITHOUT_HURRY)) as one:

        def be_late(*words):
            for way in ways[:MAJORITY]:
                way.hold("down")
            one.send(*words)
            for way in ways[:MAJORITY]:
                way.wait(lambda way=way: way.held["down"] > 0)
            time.sleep(late_ms / 1000)
            for way in ways:
                way.let_go()

        one.hold("first", "warm-up", kind=KINDS[kinds][0])
        one.renew("first")
        one.inspect("warm-up")
        be_late("acquire", "a", "x", KINDS[kinds][0], lease_ms, 0)
        assert one.granted("a").left_ms <= lease_ms - late_ms
        be_late("renew", "a", 2 * lease_ms)
        one.wait("renewed a OK")
        left_ms = one.left("a")
        assert left_ms <= 2 * lease_ms - late_ms, left_ms
        assert left_ms > lease_ms, "it was not renewed at all"


# ---- Clocks that step forward ----


@test(*KINDS)
def row_4_a_minority_whose_clock_steps_forward_changes_nothing(kinds):
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        kind, other = KINDS[kinds]
        token = one.hold("a", "x", kind=kind, lease_ms=LONG_MS).token
        wait_until(lambda: all_voted(servers, "x"), "all votes")
        one.stop()  # otherwise it would get its votes back
        for server in servers[:MINORITY]:
            server.step_clock(HOUR_S)
        equal(votes(servers[:MINORITY], "x"), [None] * MINORITY)
        one.cont()
        equal(one.renew("a"), "OK")  # nobody was there, so it takes them again
        wait_until(lambda: all_voted(servers, "x"), "all votes again")

        one.stop()
        for server in servers[:MINORITY]:
            server.step_clock(HOUR_S)
        two.acquire("b", "x", kind=other)
        equal(two.failed("b"), "BUSY")
        two.inspect("x")  # it has given them back
        one.cont()
        for _ in range(2):
            equal(one.renew("a"), "OK")
        one.inspect("x")
        for server in servers[:MINORITY]:  # row 26: somebody was there
            assert counter_of(server, "x") > token
        equal(votes(servers[:MINORITY], "x"), [None] * MINORITY)
        equal(one.check("a"), "OK")
        equal(is_lost(one, "a"), False)
        equal(one.release("a"), "OK")
        check_free(servers, two, "x", other)


@test(*KINDS)
def row_4_a_majority_whose_clock_steps_forward_ends_a_lease_and_tokens_still_rise(kinds):
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        kind, other = KINDS[kinds]
        resource = Resource()
        first = one.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        wait_until(lambda: all_voted(servers, "x"), "all votes")
        assert resource.write(first.token, "first")
        for server in servers[:MAJORITY]:
            server.step_clock(HOUR_S)
        second = two.hold("b", "x", kind=other, lease_ms=LONG_MS)
        assert second.token > first.token
        assert resource.write(second.token, "second")
        assert not resource.write(first.token, "too late")
        equal(one.renew("a"), "LOST")
        one.lost("a")
        equal(one.check("a"), "LOST")
        equal(two.renew("b"), "OK")
        equal(two.release("b"), "OK")
        assert one.hold("c", "x", kind=kind).token > second.token


# ---- Clocks that step back ----


@test(*KINDS)
def row_5_a_minority_whose_clock_steps_back_changes_nothing(kinds):
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        kind, other = KINDS[kinds]
        one.hold("a", "x", kind=kind, lease_ms=RENEWED_MS)
        wait_until(lambda: all_voted(servers, "x"), "all votes")
        for server in servers[:MINORITY]:
            server.step_clock(-HOUR_S)
        two.acquire("b", "x", kind=other)
        equal(two.failed("b"), "BUSY")
        equal(one.renew("a"), "OK")
        two.acquire("b", "x", kind=other, wait_ms=-1)
        one.kill()  # and its votes there stay for an hour
        two.granted("b")
        equal(two.renew("b"), "OK")
        equal(two.release("b"), "OK")


@test(*KINDS)
def row_5_clocks_that_step_back_are_an_error_of_their_own(kinds):
    with nodes(clock=SHIM) as servers, puppets(3, new_set(servers)) as (one, two, three):
        kind, other = KINDS[kinds]
        one.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        wait_until(lambda: all_voted(servers, "x"), "all votes")
        three.acquire("waiter", "x", kind=other, lease_ms=LONG_MS, wait_ms=-1)
        three.inspect("x")
        for server in servers:
            server.step_clock(-HOUR_S)
        equal(three.failed("waiter"), "CLOCK")
        for wait_ms in (0, -1):
            two.acquire("b", "x", kind=other, wait_ms=wait_ms)
            error, text = why(two, "b")
            equal(error, "CLOCK")
            assert "its holder's lease has 36" in text, text
        equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        check_free(servers, two, "x", other)


@test(*KINDS)
def row_5_votes_of_the_dead_that_do_not_end_are_reported(kinds):
    """A majority's clock steps back, and the holder dies: its votes end on the others only."""
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        kind, other = KINDS[kinds]
        one.hold("a", "x", kind=kind, lease_ms=2000)
        wait_until(lambda: all_voted(servers, "x"), "all votes")
        for server in servers[:MAJORITY]:
            server.step_clock(-HOUR_S)
        one.kill()
        wait_until(lambda: nothing_left(servers[MAJORITY:], "x"), "the end of the others")
        for wait_ms in (-1, 0):
            two.acquire("b", "x", kind=other, wait_ms=wait_ms)
            equal(two.failed("b"), "CLOCK")
            wait_until(lambda: nothing_left(servers[MAJORITY:], "x"), "its votes are given back")


@test(MINORITY, MAJORITY)
def row_5_clocks_that_are_days_behind_are_reported_where_tokens_would_need_them(count):
    with nodes(clock=SHIM) as servers, puppets(1, new_set(servers)) as (one,):
        first = one.hold("a", "old", lease_ms=LONG_MS)
        equal(one.release("a"), "OK")
        one.inspect("old")
        for server in servers[:count]:
            server.step_clock(-9 * DAY_S)
        one.acquire("b", "new", lease_ms=LONG_MS)
        if count == MINORITY:
            one.granted("b")
            equal(one.release("b"), "OK")
        else:
            error, text = why(one, "b")
            equal(error, "CLOCK")
            names_all(text, servers[:count])
        wait_until(lambda: nothing_left(servers, "new"), "nothing left")
        assert one.hold("c", "old").token > first.token


# ---- Clocks that run at another rate ----


@test
@patient
def row_6_no_two_holders_overlap_though_clocks_run_fast():
    """By 0.9 %; by default, clocks may differ by 1 %."""
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        for server in servers[:MAJORITY]:
            server.clock_rate(1.009)
        ends = {}
        for name, (kind, other) in KINDS.items():
            one.hold(name, name, kind=kind, lease_ms=8000, flags="no_renew")
            ends[name], _ = deadline_us(one, name)
            two.acquire(name, name, kind=other, lease_ms=LONG_MS, wait_ms=-1)
        for name, end_us in ends.items():
            grant = two.granted(name)
            assert grant.at_us >= end_us, f"{name}: {end_us - grant.at_us} us too early"
            assert one.lost(name)


@test
def row_6_a_minority_may_run_at_any_rate():
    with nodes(clock=SHIM) as servers, puppets(2, new_set(servers)) as (one, two):
        servers[0].clock_rate(5)
        servers[1].clock_rate(0.1)
        held_us = {name: one.hold(name, name, kind=kind, lease_ms=RENEWED_MS).at_us
                   for name, (kind, _) in KINDS.items()}
        for name, at_us in held_us.items():
            sleep_until(at_us + RENEWED_MS * 1000 * 3 // 2)
            two.acquire(name, name, kind=KINDS[name][1])
            equal(two.failed(name), "BUSY")
            equal(one.check(name), "OK")
            equal(is_lost(one, name), False)
            equal(one.release(name), "OK")


main()
