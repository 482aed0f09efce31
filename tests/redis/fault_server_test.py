#!/usr/bin/env python3
"""The Redis store when the server forgets: fault_server_test.py HOLDFAST PUPPET."""
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (KINDS, LONG_MS, evict_all, is_lost, is_there, keys, one_of, puppets, repeating, script_calls,
                          sleep_until, value_of, wait_until, waiting)
from servers.proxy import Proxy
from servers.redis import Redis
from servers.suite import equal, main, test

LEASE_MS = 9000
WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
AOF = ["appendonly yes", "appendfsync always"]


# ---- It forgets ----


@test
def row_8_a_restart_without_persistence_is_reported_and_waiters_go_on():
    with Redis() as server, puppets(2, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = {name: one.hold(name, name, kind=KINDS[name][0], lease_ms=LEASE_MS).token for name in KINDS}
        alone = one.hold("alone", "alone", lease_ms=LEASE_MS)
        for name, (_, kind) in KINDS.items():
            two.acquire(name, name, kind=kind, wait_ms=-1)
        wait_until(lambda: all(waiting(server, name) for name in KINDS), "waiters")
        server.kill()
        server.restart()
        for name in [*KINDS, "alone"]:
            one.lost(name)
            equal(one.check(name), "LOST")
        for name, token in tokens.items():
            assert two.granted(name).token > token, name
            equal(two.renew(name), "OK")
        equal(server.command("EXISTS", *keys("alone").values()), 0)
        equal(one.release("alone"), "LOST")
        equal(server.command("EXISTS", keys("alone")["K"]), 0)
        assert two.hold("alone", "alone").token > alone.token


@test
def row_9_tokens_rise_though_the_append_only_file_lost_its_tail():
    with Redis(config=AOF) as server, puppets(2, server.url()) as (one, two):
        equal(one.hold("a", "x").token, int(server.command("HGET", keys("x")["S"], "t")))
        equal(one.release("a"), "OK")
        file = next(server.data.glob("appendonlydir/*.incr.aof"))
        kept = file.stat().st_size
        for number in range(3):
            last = one.hold(number, "x", lease_ms=LEASE_MS).token
            if number < 2:
                equal(one.release(number), "OK")
        server.kill()
        os.truncate(file, kept + 25)  # in the middle of its last write
        server.restart()
        assert int(server.command("HGET", keys("x")["S"], "t")) < last, "nothing was lost"
        token = two.hold("b", "x").token
        assert token > last, f"{token} after {last}"
        one.lost(2)
        equal(one.release(2), "LOST")
        equal(two.renew("b"), "OK")


@test
def row_12_what_was_evicted_is_reported_at_the_next_renewal():
    with Redis(config=["maxmemory-policy allkeys-random"]) as server, \
            puppets(2, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = {name: one.hold(name, name, kind=KINDS[name][0], lease_ms=LEASE_MS).token for name in KINDS}
        one.hold("alone", "alone", lease_ms=LEASE_MS)
        for name, (_, kind) in KINDS.items():
            two.acquire(name, name, kind=kind, wait_ms=-1)
        wait_until(lambda: all(waiting(server, name) for name in KINDS), "waiters")
        evict_all(server)
        for name in [*KINDS, "alone"]:
            one.lost(name)
        equal(server.command("EXISTS", *keys("alone").values()), 0)
        for name, token in tokens.items():
            assert two.granted(name).token > token, name


# ---- Somebody deletes ----

# Which hold is lost with which key.
LOST_WITH = {"exclusive": {"K", "all"}, "shared": {"K", "H", "all"}, "1/3": {"K", "H", "all"}}


def delete(server, name, what):
    server.command(*(["FLUSHALL"] if what == "all" else ["DEL", keys(name)[what]]))


def tell_holders(holders, name, lost):
    """Each holder is notified of what happened to its hold."""
    for holder in holders:
        equal(holder.renew(name), "LOST" if lost else "OK")
        equal(holder.check(name), "LOST" if lost else "OK")
        if lost:
            holder.lost(name)  # soon, when the cause has been looked up
        else:
            equal(is_lost(holder, name), False)


def pass_on(waiters, name, tokens):
    """Each holder releases it, until all waiters have had it, one at a time."""
    left = list(waiters)
    while left:
        wait_until(lambda: any(is_there(waiter, name) for waiter in left), f"somebody who gets {name}")
        now = [waiter for waiter in left if is_there(waiter, name)]
        equal(len(now), 1)
        token = now[0].granted(name).token
        assert token > max(tokens), (token, tokens)
        tokens.append(token)
        equal(now[0].check(name), "OK")
        equal(now[0].release(name), "OK")
        left.remove(now[0])


@test("K", "S", "Q", "W", "H", "I", "all")
def row_13_what_is_deleted_is_reported_and_the_queue_goes_on(what):
    with Redis() as server, puppets(4, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every:
        holders, waiters = every[:2], every[2:]
        sets = {"exclusive": (holders[:1], "exclusive"), "shared": (holders, "exclusive"), "1/3": (holders, "3/3")}
        tokens = {}
        for kind, (having, wanted) in sets.items():
            tokens[kind] = [holder.hold(kind, kind, kind=kind, lease_ms=LEASE_MS).token for holder in having]
            for number, waiter in enumerate(waiters, 1):
                waiter.acquire(kind, kind, kind=wanted, lease_ms=LEASE_MS, wait_ms=-1)
                wait_until(lambda: waiting(server, kind) == number, "a waiter")
        holders[0].hold("alone", "alone", lease_ms=LEASE_MS)
        for kind in [*sets, "alone"]:
            delete(server, kind, what)
        before = script_calls(server)
        wait_until(lambda: script_calls(server) - before >= 3 * 2 * len(sets), "waiters that ask again")
        for kind, (having, wanted) in sets.items():
            lost = what in LOST_WITH[kind]
            if not lost:
                assert not any(is_there(waiter, kind) for waiter in waiters), f"two at a time: {kind}"
            tell_holders(having, kind, lost)
            for holder in having:
                equal(holder.release(kind), "LOST" if lost else "OK")
        for kind, (having, wanted) in sets.items():
            pass_on(waiters, kind, tokens[kind])
        tell_holders(holders[:1], "alone", what in LOST_WITH["exclusive"])
        equal(value_of(server, "alone") is None, what in LOST_WITH["exclusive"])
        for kind in sets:
            equal(value_of(server, kind), None)


@test("K", "S", "H", "I")
def row_13_a_break_after_a_deletion_is_reported_as_it_was(what):
    with Redis() as server, puppets(2, server.url()) as (one, two):
        for kind in ("exclusive", "shared"):
            token = one.hold(kind, kind, kind=kind).token
            delete(server, kind, what)
            told = two.break_lock(kind, token, "to see")
            one_of(told, ("OK", "NOT_YOURS"))
            held = one.renew(kind)
            equal(held, "LOST" if told == "OK" or what in LOST_WITH[kind] else "OK")


@test
def row_13_who_queues_again_after_a_deletion_is_not_overtaken_for_ever():
    """The queue is deleted; others come and go all the time."""
    with Redis() as server, puppets(4, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two, three, four):
        one.hold("a", "x", lease_ms=LONG_MS)
        two.acquire("b", "x", wait_ms=-1)
        wait_until(lambda: waiting(server, "x") == 1, "a waiter")
        server.command("DEL", keys("x")["Q"])
        for waiter in (three, four):
            waiter.acquire("c", "x", wait_ms=-1)
        wait_until(lambda: waiting(server, "x") == 3, "waiters")
        before = script_calls(server)
        wait_until(lambda: script_calls(server) - before >= 9, "waiters that ask again")
        equal(one.release("a"), "OK")
        asking = {three: "c", four: "c", two: "b"}
        for _ in range(10):
            wait_until(lambda: any(is_there(waiter, lock) for waiter, lock in asking.items()), "somebody who gets it")
            first = next(waiter for waiter, lock in asking.items() if is_there(waiter, lock))
            if first is two:
                return
            first.granted("c")
            equal(first.release("c"), "OK")
            first.free("c")
            first.acquire("c", "x", wait_ms=-1)
            first.inspect("x")  # by now it has asked
        raise AssertionError("it was overtaken in each of 10 turns")


# ---- It does not know the scripts ----


@test
def row_14_scripts_that_are_flushed_all_the_time_stop_nobody():
    with Redis() as server, puppets(6, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every:
        renewed = every[0].hold("renewed", "renewed", lease_ms=LEASE_MS)
        until = time.monotonic() + 4
        turns = 0
        with repeating(server, "SCRIPT", "FLUSH") as flushes:
            while time.monotonic() < until or turns < 2:
                for number, puppet in enumerate(every):
                    puppet.acquire("own", f"own{number}", kind=("exclusive", "shared", "1/3")[turns % 3])
                    puppet.acquire("common", "common", wait_ms=-1)
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
            sleep_until(renewed.at_us + LEASE_MS * 1000 * 5 // 4)
        assert flushes[0] > 10, flushes
        equal(is_lost(every[0], "renewed"), False)
        assert every[0].left("renewed") > 0 and renewed.token == every[0].inspect("renewed")["holders"][0].token


# ---- It comes back ----


@test
def a_restart_under_many_clients_is_no_storm():
    """The clients continue, and try to connect less often while it is away."""
    count, down_s = 16, 3
    with Redis(config=AOF) as server, Proxy(server.port) as proxy, \
            puppets(1, server.url()) as (one,), puppets(count, server.url(port=proxy.port)) as every:
        tokens = [one.hold("a", "x", lease_ms=LONG_MS).token]
        for puppet in every:
            puppet.acquire("b", "x", wait_ms=-1)
        wait_until(lambda: waiting(server, "x") == count, "waiters")
        proxy.wait(lambda: proxy.open == 2 * count)
        accepted = proxy.accepted
        server.kill()
        started = time.monotonic()
        time.sleep(down_s)
        server.restart()
        down_s = time.monotonic() - started
        tries = proxy.accepted - accepted
        # A connection waits for 10 to 20 ms, 20 to 40, ... 0.5 to 1 s: about 8 times in a second, then 2 in each.
        most = 2 * count * (8 + 2 * down_s)
        assert 2 * count * 3 < tries <= most, f"{tries} connections in {down_s:.1f} s, of {most:.0f}"
        wait_until(lambda: waiting(server, "x") == count, "waiters")
        equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        left = list(every)
        while left:
            now = [puppet for puppet in left if is_there(puppet, "b")]
            assert len(now) <= 1, "two at a time"
            for puppet in now:
                tokens.append(puppet.granted("b").token)
                equal(puppet.release("b"), "OK")
                left.remove(puppet)
        equal(tokens, sorted(set(tokens)))


@test
def a_restart_without_persistence_under_many_clients_lets_all_go_on():
    count = 16
    with Redis() as server, puppets(count, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every:
        every[0].hold("b", "x", lease_ms=LEASE_MS)
        for puppet in every[1:]:
            puppet.acquire("b", "x", wait_ms=-1)
        wait_until(lambda: waiting(server, "x") == count - 1, "waiters")
        for _ in range(3):
            server.kill()
            server.restart()
        every[0].lost("b")
        left = every[1:]
        while left:
            for puppet in [puppet for puppet in left if is_there(puppet, "b")]:
                one_of(puppet.release("b"), ("OK", "LOST"))  # to one of the restarts
                left.remove(puppet)


main()
