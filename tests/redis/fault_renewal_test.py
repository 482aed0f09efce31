#!/usr/bin/env python3
"""The Redis store when renewals fail: fault_renewal_test.py HOLDFAST PUPPET."""
import contextlib
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import AOF, KINDS as KINDS_OF_SETS, new_set
from faults.scene import (KINDS, LONG_MS, PUPPET, SLACK_US, deadline_us, in_time, is_lost, keys, one_of, patient, puppets,
                          repeating, sleep_until, wait_until)
from servers import suite
from servers.proxy import Proxy
from servers.puppet import Puppet, boot_us
from servers.redis import Redis
from servers.suite import equal, main, test

suite.LIMIT_S = 240  # for scenarios that are played again


class Line:
    """A server or a set of them, a proxy for each, and a puppet at the other end. Each way to cut off the server, or
    a majority of the set, is a method; mend() ends it."""

    def __init__(self, count):
        self.stack, self.count = contextlib.ExitStack(), count

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Redis(config=AOF)) for _ in range(self.count)]
            ways = [stack.enter_context(Proxy(server.port)) for server in servers]
            url = servers[0].url(port=ways[0].port) if self.count == 1 else new_set(ways)
            self.puppet = stack.enter_context(Puppet(PUPPET, url))
            self.servers, self.proxies = (every[:self.count // 2 + 1] for every in (servers, ways))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def swallow(self):
        for proxy in self.proxies:
            proxy.blackhole()

    def swallow_replies(self):
        for proxy in self.proxies:
            proxy.drop("down")

    def hold_up(self):
        for proxy in self.proxies:
            proxy.hold("both")

    def refuse(self):
        for proxy in self.proxies:
            proxy.refuse()
            proxy.reset()

    def hang(self):
        for server in self.servers:
            server.stop()

    def kill(self):
        for server in self.servers:
            server.kill()

    def mend(self):
        for server, proxy in zip(self.servers, self.proxies):
            proxy.pass_all()
            if server.running():
                server.cont()
            else:
                server.restart()


CUTS = (Line.swallow, Line.swallow_replies, Line.hold_up, Line.refuse, Line.hang, Line.kill)
PLACES = {"a server": 1, "a majority of a set": 3}


def lines(stack, place):
    return {cut: stack.enter_context(Line(PLACES[place])) for cut in CUTS}


def kinds_of(place):
    """A set counts no permits."""
    return KINDS if PLACES[place] == 1 else KINDS_OF_SETS


@test(*PLACES)
@patient
def row_23_a_hold_survives_an_outage_of_half_its_lease(place):
    lease_ms, kinds = 12000, kinds_of(place)
    with contextlib.ExitStack() as stack:
        ends_us = {}
        for cut, line in lines(stack, place).items():
            for name in kinds:
                line.puppet.hold(name, name, kind=kinds[name][0], lease_ms=lease_ms)
            ends_us[line] = deadline_us(line.puppet, "exclusive")[0]
            cut(line)
        for line, end_us in ends_us.items():
            sleep_until(end_us - lease_ms * 1000 // 2)
            lost = [is_lost(line.puppet, name) for name in kinds]
            line.mend()
            in_time(end_us - lease_ms * 1000 // 3)
            equal(lost, [False] * 3)
        for line, end_us in ends_us.items():
            sleep_until(end_us + 200000)
            for name in kinds:
                equal(line.puppet.check(name), "OK")
                equal(is_lost(line.puppet, name), False)
                equal(line.puppet.release(name), "OK")
            line.puppet.quit()


@test(*PLACES)
@patient
def row_25_the_loss_is_reported_at_the_deadline_by_every_means(place):
    lease_ms = 4000
    kinds = kinds_of(place) | {"not-renewed": ("exclusive", "exclusive")}
    with contextlib.ExitStack() as stack:
        every = lines(stack, place)
        bounds = {}
        for cut, line in every.items():
            for name in kinds:
                line.puppet.hold(name, name, kind=kinds[name][0], lease_ms=lease_ms,
                                 flags="no_renew" if name == "not-renewed" else None)
                equal(line.puppet.fd_is_readable(name), False)
        for cut, line in every.items():
            cut(line)
        for line in every.values():
            for name in kinds:
                line.puppet.left(name)  # what was in flight has arrived
                bounds[line, name] = deadline_us(line.puppet, name)
        for (line, name), (least_us, most_us) in bounds.items():
            told_us = line.puppet.lost(name)
            assert told_us >= least_us, f"{name}: {(least_us - told_us) / 1e6} s too early"
            assert told_us <= most_us + SLACK_US, f"{name}: {(told_us - most_us) / 1e6} s too late"
            equal(line.puppet.check(name), "LOST")
            equal(line.puppet.left(name), 0)
            equal(line.puppet.fd_is_readable(name), True)
            assert not line.puppet.seen("lost", name), "it was told twice"
        for line in every.values():
            line.mend()
            for name in kinds:
                equal(line.puppet.release(name), "LOST")
                line.puppet.acquire(f"{name}-again", name, kind=kinds[name][1], wait_ms=-1)
                line.puppet.granted(f"{name}-again")
            line.puppet.quit()


@test(*PLACES)
def row_25_what_is_asked_for_while_the_store_is_gone_ends_in_time(place):
    """No call waits for longer than its limit."""
    with contextlib.ExitStack() as stack:
        every = lines(stack, place)
        for cut, line in every.items():
            line.puppet.hold("a", "a", lease_ms=LONG_MS)
            cut(line)
        started_us = boot_us()
        for line in every.values():
            line.puppet.acquire("b", "b")
            line.puppet.acquire("c", "c", wait_ms=1000)
            line.puppet.send("renew", "a", 0)
        for line in every.values():
            one_of(line.puppet.failed("b"), ("UNKNOWN", "UNREACHABLE"))
            one_of(line.puppet.failed("c"), ("UNKNOWN", "UNREACHABLE"))
            one_of(line.puppet.wait("renewed a").words[2], ("UNKNOWN", "UNREACHABLE"))
            line.puppet.send("release", "a")
        for line in every.values():
            one_of(line.puppet.wait("released a").words[2], ("UNKNOWN", "UNREACHABLE"))
        assert boot_us() - started_us < 5000000 + SLACK_US, "the default is 2 s for each answer"
        for line in every.values():
            line.mend()
        for line in every.values():  # locks whose acquire was not answered are released as soon as the store answers
            for name in ("a", "b", "c"):
                line.puppet.hold(f"{name}-again", name, wait_ms=-1, lease_ms=LONG_MS)
            line.puppet.quit()


@test
def row_24_nothing_acts_on_a_hold_that_was_released():
    """32 locks are taken, renewed by hand and automatically, and released at the same time, while connections break
    and scripts are forgotten, so that repeated requests overtake others."""
    names = [f"race{number}" for number in range(8)]
    with Redis() as server, Proxy(server.port) as proxy, puppets(2, server.url()) as near, \
            puppets(2, server.url(port=proxy.port)) as far, repeating(server, "SCRIPT", "FLUSH", every_s=0.02):
        every = near + far
        until, rounds, renewed = time.monotonic() + 5, 0, 0
        while time.monotonic() < until or rounds < 3:
            lease_ms = (30, 300, 3000)[rounds % 3]
            for number, puppet in enumerate(every):
                for name in names:
                    puppet.acquire(name, f"{name}-{number}", kind=("exclusive", "shared", "1/3")[rounds % 3], wait_ms=-1,
                                   lease_ms=lease_ms)
            told = {"OK", "UNKNOWN", "UNREACHABLE"} | ({"LOST"} if lease_ms < 3000 else set())
            for puppet in every:
                for name in names:
                    while puppet.wait(("acquired", name), ("failed", name)).words[0] == "failed":  # SHORT
                        puppet.acquire(name, f"{name}-{every.index(puppet)}", lease_ms=max(lease_ms, 300), wait_ms=-1,
                                       kind=("exclusive", "shared", "1/3")[rounds % 3])
                    puppet.send("renew", name, 0)
                    puppet.send("release", name)
                    puppet.send("renew", name, 0)
                if puppet in far:
                    proxy.reset()
            for puppet in every:
                for name in names:
                    one_of(puppet.wait(("released", name)).words[2], told)
                    for _ in range(2):
                        answer = puppet.wait(("renewed", name)).words[2]
                        one_of(answer, told | {"RELEASED", "LOST"})
                        renewed += answer == "OK"
                    puppet.free(name)
            for number, puppet in enumerate(every):
                puppet.inspect("none")  # everything it sent before has been done
                if puppet in near:
                    for name in names:
                        equal(server.command("EXISTS", keys(f"{name}-{number}")["K"]), 0)
            rounds += 1
        wait_until(lambda: not server.command("KEYS", "holdfast:*"), "the end of what connections lost")
        time.sleep(0.5)
        equal(server.command("KEYS", "holdfast:*"), [])
        for puppet in every:
            puppet.quit()


main()
