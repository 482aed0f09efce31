#!/usr/bin/env python3
"""The Redis store when processes stop and clocks are wrong: fault_time_test.py HOLDFAST PUPPET."""
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (KINDS, LONG_MS, PUPPET, SHIM, Resource, deadline_us, keys, patient, puppets, value_of,
                          wait_until)
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import equal, main, test

HOUR_S, DAY_S = 3600, 86400


def patient_url(server, proxy):
    """The URL of a client that waits for answers as long as they take."""
    return f"{server.url(port=proxy.port)}?timeout={LONG_MS}"


# ---- Pauses ----


@test(*KINDS)
def row_1_who_was_stopped_past_its_lease_is_notified_and_fenced_off(kinds):
    with Redis() as server, puppets(2, server.url()) as (one, two):
        kind, other = KINDS[kinds]
        resource = Resource()
        first = one.hold("a", "x", kind=kind, lease_ms=2000)
        assert resource.write(first.token, "first")
        two.acquire("b", "x", kind=other, wait_ms=-1)
        one.stop()
        one.send("check", "a", 0)  # the very first thing that it does afterwards
        second = two.granted("b")
        assert second.token > first.token
        assert resource.write(second.token, "second")
        one.cont()
        equal(one.wait("checked a").words[2], "LOST")
        assert not resource.write(first.token, "too late")
        assert one.lost("a") > second.at_us
        equal(one.release("a"), "LOST")
        equal(two.renew("b"), "OK")
        equal(resource.written, ["first", "second"])


@test
def row_2_a_grant_that_arrives_after_its_lease_is_not_used():
    with Redis() as server, Proxy(server.port) as proxy, Puppet(PUPPET, patient_url(server, proxy)) as one, \
            Puppet(PUPPET, server.url()) as two:
        two.hold("warm-up", "x")
        two.release("warm-up")
        proxy.hold("down")
        one.acquire("a", "x", lease_ms=1500)
        proxy.wait(lambda: proxy.held["down"] > 0)
        one.stop()
        two.acquire("b", "x", wait_ms=-1)  # the server did grant it to the first
        token = two.granted("b").token
        proxy.let_go()
        proxy.wait(lambda: proxy.held["down"] == 0)
        one.cont()
        equal(one.failed("a"), "SHORT")
        equal(two.renew("b"), "OK")
        equal(two.inspect("x")["holders"][0].token, token)


@test(*KINDS)
def row_2_a_lease_counts_from_before_its_request_was_sent(kinds):
    with Redis() as server, Proxy(server.port) as proxy, Puppet(PUPPET, patient_url(server, proxy)) as one:
        lease_ms, late_ms = 30000, 1500

        def be_late(*words):
            proxy.hold("down")
            one.send(*words)
            proxy.wait(lambda: proxy.held["down"] > 0)
            time.sleep(late_ms / 1000)
            proxy.let_go()

        one.hold("first", "warm-up", kind=KINDS[kinds][0])
        one.renew("first")
        be_late("acquire", "a", "x", KINDS[kinds][0], lease_ms, 0)
        assert one.granted("a").left_ms <= lease_ms - late_ms
        be_late("renew", "a", 2 * lease_ms)
        one.wait("renewed a OK")
        left_ms = one.left("a")
        assert left_ms <= 2 * lease_ms - late_ms, left_ms
        assert left_ms > lease_ms, "it was not renewed at all"


# ---- The server's clock ----


@test(*KINDS)
def row_4_a_clock_that_steps_forward_ends_leases_and_tokens_still_rise(kinds):
    with Redis(clock=SHIM) as server, puppets(2, server.url()) as (one, two):
        kind, other = KINDS[kinds]
        resource = Resource()
        first = one.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        two.acquire("b", "x", kind=other, wait_ms=-1)
        assert resource.write(first.token, "first")
        server.step_clock(HOUR_S)
        second = two.granted("b")
        assert second.token > first.token
        assert resource.write(second.token, "second")
        assert not resource.write(first.token, "too late")
        equal(one.renew("a"), "LOST")
        one.lost("a")
        equal(one.check("a"), "LOST")
        equal(two.renew("b"), "OK")
        equal(two.release("b"), "OK")
        third = one.hold("c", "x", kind=kind)
        assert third.token > second.token


@test("shared", "1/3")
def row_4_shares_that_nobody_remembers_take_nothing_from_later_ones(kind):
    """A process that shares a lock dies, and the name stays unused for longer than its counter is kept."""
    with Redis(clock=SHIM) as server, puppets(3, server.url()) as (one, two, three):
        one.hold("a", "x", kind=kind, lease_ms=5000)
        one.kill()
        server.step_clock(9 * DAY_S)
        equal(server.command("EXISTS", *(keys("x")[letter] for letter in "KS")), 0)
        two.hold("b", "x", kind=kind, lease_ms=LONG_MS)
        three.acquire("c", "x", kind="exclusive" if kind == "shared" else "3/3")
        equal(three.failed("c"), "BUSY")
        equal(two.renew("b"), "OK")
        equal(two.release("b"), "OK")


@test(*KINDS)
def row_5_a_clock_that_steps_back_is_an_error_of_its_own(kinds):
    with Redis(clock=SHIM) as server, puppets(3, server.url()) as (one, two, three):
        kind, other = KINDS[kinds]
        one.hold("a", "x", kind=kind)
        three.acquire("waiter", "x", kind=other, wait_ms=-1)
        wait_until(lambda: len(two.inspect("x")["waiters"]) == 1, "a waiter")
        server.step_clock(-HOUR_S)
        equal(three.failed("waiter"), "CLOCK")
        for wait_ms in (0, -1):
            two.acquire("b", "x", kind=other, wait_ms=wait_ms)
            equal(two.failed("b"), "CLOCK")
        equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        two.hold("b", "x", kind=other)


@test
def row_5_a_foreign_holder_may_have_any_time_left():
    with Redis() as server, puppets(1, server.url()) as (one,):
        server.command("SET", keys("x")["K"], "somebody", "PX", HOUR_S * 1000)
        one.acquire("a", "x")
        equal(one.failed("a"), "BUSY")
        one.acquire("a", "x", wait_ms=-1)
        wait_until(lambda: len(one.inspect("x")["waiters"]) == 1, "a waiter")
        server.command("PEXPIRE", keys("x")["K"], 2 * HOUR_S * 1000)
        server.command("DEL", keys("x")["K"])
        one.granted("a")


@test
def row_5_a_clock_that_is_days_behind_is_reported_where_tokens_would_need_it():
    with Redis(clock=SHIM) as server, puppets(1, server.url()) as (one,):
        first = one.hold("a", "old", lease_ms=LONG_MS)
        equal(one.release("a"), "OK")
        server.step_clock(-9 * DAY_S)
        one.acquire("b", "new")
        equal(one.failed("b"), "CLOCK")
        equal(value_of(server, "new"), None)
        assert one.hold("c", "old").token > first.token


@test
@patient
def row_6_no_two_holders_overlap_though_the_clock_runs_fast():
    """By 0.9 %; by default, clocks may differ by 1 %."""
    names = [f"x{number}" for number in range(6)]
    kinds = list(KINDS.values()) * 2
    with Redis(clock=SHIM) as server, puppets(2, server.url()) as (one, two):
        server.clock_rate(1.009)
        ends = {}
        for name, (kind, other) in zip(names, kinds):
            one.hold(name, name, kind=kind, lease_ms=8000, flags="no_renew")
            two.acquire(name, name, kind=other, lease_ms=LONG_MS, wait_ms=-1)
            ends[name], _ = deadline_us(one, name)
        for name in names:
            grant = two.granted(name)
            assert grant.at_us >= ends[name], f"{name}: {ends[name] - grant.at_us} us too early"
            assert one.lost(name)


main()
