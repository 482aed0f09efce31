#!/usr/bin/env python3
"""The Redis store when the server refuses or hangs: fault_refusal_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (LONG_MS, PUPPET, deadline_us, hold_or_too_slow, in_time, is_lost, one_of, outcome, patient, puppets,
                          sleep_until, value_of, wait_until, waiting, warm_up)
from faults.troubles import CONFIG, TROUBLES
from servers import suite
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import equal, main, test

suite.LIMIT_S = 240  # for scenarios that are played again
LEASE_MS = 8000
WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
HELD = ("exclusive", "shared", "1/3")  # names and kinds


def ask_in_trouble(one, two, broken, errors):
    """Every operation has an outcome, and it is never that somebody else has taken the lock."""
    two.acquire("new", "new", lease_ms=LEASE_MS)
    two.acquire("waited-for", "waited-for", lease_ms=LEASE_MS, wait_ms=1500)
    two.send("break", "break", broken, "to see")
    for name in HELD:
        one.send("renew", name, 0)
    for name in ("release", "release-read"):
        one.send("release", name)
    kept = errors - {"STORE_FULL"}  # there is always room to renew and to release a hold
    for name in HELD:
        one_of(one.wait(("renewed", name)).words[2], {"OK"} | kept)
    for name in ("release", "release-read"):
        one_of(one.wait(("released", name)).words[2], {"OK"} | kept)
    one_of(two.wait("broke break").words[2], {"OK"} | errors)
    for name in ("new", "waited-for"):
        told = outcome(two, name)
        one_of(told, {"OK", "UNKNOWN"} | errors)
        if told == "OK":
            two.send("release", name)


@test(*TROUBLES)
@patient
def row_15_each_outcome_is_done_not_done_or_unknown_and_holds_survive(trouble):
    with Redis(config=CONFIG) as server, \
            puppets(3, server.url() + "?timeout=700", wait_lease_ms=WAIT_LEASE_MS) as (one, two, three):
        warm_up(server)
        for name in HELD:
            hold_or_too_slow(one, name, name, kind=name, lease_ms=LEASE_MS)
        ends_us = deadline_us(one, HELD[0])[0]
        three.acquire("waiter", "exclusive", wait_ms=-1)
        wait_until(lambda: waiting(server, "exclusive") == 1, "a waiter")
        hold_or_too_slow(one, "release", "release", lease_ms=LEASE_MS)
        hold_or_too_slow(one, "release-read", "release-read", kind="shared", lease_ms=LEASE_MS)
        broken = hold_or_too_slow(three, "break", "break", lease_ms=LEASE_MS).token
        with TROUBLES[trouble](server) as errors:
            ask_in_trouble(one, two, broken, errors)
            sleep_until(ends_us - LEASE_MS * 1000 // 2)  # so that automatic renewals are due and also fail
        in_time(ends_us - LEASE_MS * 1000 // 4)
        for name in HELD:  # these are renewed automatically
            wait_until(lambda: is_lost(one, name) or deadline_us(one, name)[0] > ends_us + 1000000, "a renewal")
            equal(is_lost(one, name), False)
        for name in ("new", "waited-for", "release", "release-read"):  # whatever is left there ends with its lease
            two.acquire(f"{name}-again", name, wait_ms=-1)
            two.granted(f"{name}-again")
        equal(is_lost(one, "exclusive"), False)
        wait_until(lambda: one.renew("exclusive") == "OK", "a renewal")
        equal(one.release("exclusive"), "OK")
        one_of(outcome(three, "waiter"), {"OK", "STORE_FULL"} if trouble == "OOM" else {"OK"})
        for puppet in (one, two, three):
            puppet.quit()


@test
def row_15_an_error_after_a_lost_reply_does_not_say_that_nothing_was_done():
    """The acquire was done and its reply lost; its repeat is refused. The granted lock must be released."""
    with Redis() as server, Proxy(server.port) as proxy, Puppet(PUPPET, server.url(port=proxy.port)) as one, \
            Puppet(PUPPET, server.url()) as two:
        warm_up(server)
        one.inspect("x")
        broken = two.hold("break", "y").token
        for send, told in ((("acquire", "a", "x", "exclusive", LONG_MS, 0), ("failed", "a")),
                           (("break", "y", broken, "to see"), ("broke", "y"))):
            dropped = proxy.drop_reply_to("holdfast:" + ("x" if told[1] == "a" else "y"))
            proxy.refuse()
            one.send(*send)
            assert dropped.wait(LIMIT_S)
            server.command("REPLICAOF", "127.0.0.1", 1)
            proxy.accept()
            equal(one.wait(told).words[2], "UNKNOWN")
            server.command("REPLICAOF", "NO", "ONE")
        wait_until(lambda: value_of(server, "x") is None, "its withdrawal")


main()
