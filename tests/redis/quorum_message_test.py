#!/usr/bin/env python3
"""The quorum store when messages are lost, late or repeated: quorum_message_test.py HOLDFAST PUPPET."""
import contextlib
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import (KINDS, MAJORITY, MINORITY, TIMEOUT_MS, all_voted, key, names_all, new_set, nodes, nothing_left,
                          proxies, votes, why)
from faults.scene import (LONG_MS, PUPPET, counter_of, is_lost, keys, left_ms_of, one_of, puppets, repeating,
                          script_calls, strand, value_of, wait_given_up, wait_until)
from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.suite import equal, main, test

PATIENCE_MS = 2000  # of a client whose requests are stranded: long enough for a busy machine to answer the others
LIMIT = 1 << 53


class Network:
    """A set; a puppet `far` that reaches each node through a proxy, one of `ways`, and waits this long for answers; and
    a puppet `near`. All are connected, and the nodes know the scripts."""

    def __init__(self, patience_ms=LONG_MS):
        self.patience_ms, self.stack = patience_ms, None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.servers = stack.enter_context(nodes())
            self.ways = stack.enter_context(proxies(self.servers))
            url = new_set(self.ways, min(self.patience_ms, TIMEOUT_MS), f"&timeout={self.patience_ms}")
            self.near = stack.enter_context(Puppet(PUPPET, new_set(self.servers)))
            self.far = stack.enter_context(Puppet(PUPPET, url))
            for kind in ("exclusive", "shared"):
                token = self.near.hold(kind, "warm-up", kind=kind).token
                self.near.renew(kind)
                self.near.break_lock("warm-up", token + 1)
                self.near.release(kind)
                self.near.inspect("warm-up")
                self.near.free(kind)
            self.far.hold("greeted", "warm-up", wait_ms=-1)
            wait_until(lambda: all_voted(self.servers, "warm-up"), "all votes")
            self.far.release("greeted")
            self.far.free("greeted")
            self.check_left("warm-up")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def lose_replies(self, count, name, *words):
        """Makes far do something with the lock of that name, which reaches all nodes; this many replies are lost."""
        dropped = [way.drop_reply_to(key(name)) for way in self.ways[:count]]
        self.far.send(*words)
        for event in dropped:
            assert event.wait(LIMIT_S)

    def hold_all(self, direction):
        for way in self.ways:
            way.hold(direction)

    def pass_all(self):
        for way in self.ways:
            way.pass_all()

    def let_late_arrive(self, ways=slice(None)):
        """Lets the requests stranded on these through, which is the only thing that happens now."""
        before = [script_calls(server) for server in self.servers[ways]]
        self.pass_all()
        for server, calls in zip(self.servers[ways], before):
            wait_until(lambda: script_calls(server) > calls, "what was late")

    def check_left(self, name):
        wait_until(lambda: nothing_left(self.servers, name), "nothing left")

    def forget_votes(self, *servers):
        """Makes the nodes know all scripts for holding and releasing, but not the one for voting: that takes two
        requests."""
        self.near.hold("last", "last")
        self.near.inspect("last")
        for server in servers:
            server.command("SCRIPT", "FLUSH")
        self.near.renew("last")
        self.near.release("last")
        self.near.inspect("last")
        self.near.free("last")


# ---- Lost replies ----


@test(1, MAJORITY, 5)
def row_17_an_acquire_whose_replies_were_lost_finds_its_own_grants(count):
    with Network() as net:
        for name, (kind, other) in KINDS.items():
            for way in net.ways[:count]:
                way.refuse()  # so that it is not repeated yet
            net.lose_replies(count, name, "acquire", name, name, kind, LONG_MS, 0)
            wait_until(lambda: all_voted(net.servers, name), "all votes")
            for way in net.ways[:count]:
                way.accept()
            token = net.far.granted(name).token
            net.far.inspect(name)  # all repeats have been done
            if count == 5:
                equal({counter_of(server, name) for server in net.servers}, {token})
            net.near.acquire(name, name, kind=other)
            equal(net.near.failed(name), "BUSY")
            equal(net.far.release(name), "OK")
            net.check_left(name)


@test(MAJORITY, 5)
def row_17_a_release_whose_replies_were_lost_does_not_say_lost(count):
    with Network() as net:
        for name, (kind, other) in KINDS.items():
            net.far.hold(name, name, kind=kind, lease_ms=LONG_MS)
            net.far.inspect(name)
            net.near.acquire(name, name, kind=other, lease_ms=LONG_MS, wait_ms=-1)
            net.near.inspect(name)
            net.lose_replies(count, name, "release", name)
            one_of(net.far.wait(("released", name)).words[2], ("OK", "UNKNOWN"))
            net.near.granted(name)
            net.far.inspect(name)  # its repeated releases are done
            equal(net.near.renew(name), "OK")
            equal(net.near.release(name), "OK")
            net.check_left(name)


@test(MAJORITY, 5)
def row_17_a_renewal_whose_replies_were_lost_is_repeated(count):
    with Network() as net:
        for name, (kind, _) in KINDS.items():
            net.far.hold(name, name, kind=kind, lease_ms=LONG_MS // 2)
            net.far.inspect(name)
            net.lose_replies(count, name, "renew", name, LONG_MS)
            equal(net.far.wait(("renewed", name)).words[2], "OK")
            assert net.far.left(name) > LONG_MS // 2
            equal(is_lost(net.far, name), False)


@test(MAJORITY, 5)
def row_17_a_break_whose_replies_were_lost_does_not_say_that_there_was_none(count):
    with Network() as net:
        for name, (kind, _) in KINDS.items():
            token = net.near.hold(name, name, kind=kind, lease_ms=LONG_MS).token
            net.near.inspect(name)
            net.lose_replies(count, name, "break", name, token, "to see")
            one_of(net.far.wait(("broke", name)).words[2], ("OK", "UNKNOWN"))
            equal(net.near.renew(name), "LOST")
            net.near.lost(name)
            net.check_left(name)


# ---- Late requests ----


@test(1, MINORITY)
def row_18_a_vote_that_comes_behind_its_release_is_given_back(count):
    """The node does not know the script of the vote, but that of the release. Meanwhile the ballot is lost."""
    with Network() as net:
        late = net.servers[:count]
        for name, (kind, other) in KINDS.items():
            before = net.near.hold(name, name, kind=kind, lease_ms=LONG_MS).token
            net.near.inspect(name)
            net.forget_votes(*late)
            net.near.stop()  # otherwise it would get its votes back
            for server, way in zip(late, net.ways):
                server.command("DEL", *(keys(name)[letter] for letter in "KHI"))  # the node can vote again
                way.hold("down")
            net.far.acquire(name, name, kind=other, lease_ms=LONG_MS)
            equal(net.far.failed(name), "BUSY")
            net.pass_all()
            for server in late:
                wait_until(lambda: counter_of(server, name) > before, "its vote")
                wait_until(lambda: value_of(server, name) is None, "that it is given back")
            net.near.cont()
            equal(net.near.renew(name), "OK")
            equal(net.near.release(name), "OK")
            net.check_left(name)


@test
def row_18_votes_that_arrive_after_everything_end_with_their_lease():
    lease_ms = 2000

    def counter_of_or_0(server, name):
        return int(server.command("HGET", keys(name)["S"], "t") or 0)

    with Network(PATIENCE_MS) as net:
        for name, (kind, other) in KINDS.items():
            for way in net.ways[:MAJORITY]:
                way.hold("up")
            net.far.acquire(name, name, kind=kind, lease_ms=lease_ms)
            for way in net.ways[:MAJORITY]:
                strand(way, key(name))
            one_of(net.far.failed(name), ("UNREACHABLE", "UNKNOWN"))
            for way in net.ways[:MAJORITY]:
                wait_given_up(way)
            net.far.inspect("none")  # its releases were over other connections
            net.check_left(name)
            before = [counter_of_or_0(server, name) for server in net.servers[:MAJORITY]]
            net.let_late_arrive(slice(MAJORITY))
            for server, counter in zip(net.servers, before):
                wait_until(lambda: counter_of_or_0(server, name) > counter, "what was late")
                assert left_ms_of(server, name) <= lease_ms
            net.near.hold(name, name, kind=other, lease_ms=LONG_MS, wait_ms=-1)


@test
def row_18_a_late_vote_does_not_shorten_a_lease():
    with Network(PATIENCE_MS) as net:
        for name, (kind, _) in KINDS.items():
            net.ways[0].hold("up")
            net.far.acquire(name, name, kind=kind, lease_ms=LONG_MS // 6, wait_ms=-1)
            strand(net.ways[0], key(name))
            token = net.far.granted(name).token
            wait_given_up(net.ways[0])
            # the first node may have voted again with the previous lease: its renewal is then yet to come
            wait_until(lambda: net.far.renew(name, LONG_MS) == "OK" and all_voted(net.servers, name) and
                       left_ms_of(net.servers[0], name) > LONG_MS // 2, "all votes, for the longer lease")
            net.far.inspect(name)  # nothing else is under way
            net.let_late_arrive(slice(1))
            assert left_ms_of(net.servers[0], name) > LONG_MS // 2, "the late vote shortened it"
            equal([party.token for party in net.near.inspect(name)["holders"]], [token])
            equal(net.far.release(name), "OK")
            net.check_left(name)


@test
def row_19_what_is_late_does_not_touch_the_next_owner():
    """Tries its releases and its renewals."""
    with Network(PATIENCE_MS) as net:
        names = {f"{what}-{name}": name for name in KINDS for what in ("release", "renew")}
        for lock, name in names.items():
            net.far.hold(lock, lock, kind=KINDS[name][0], lease_ms=3000, flags="no_renew")
        net.hold_all("up")
        for lock in names:
            net.far.send(*lock.split("-")[:1], lock, *([LONG_MS] if lock.startswith("renew") else []))
        for lock in names:
            if lock.startswith("release"):
                one_of(net.far.wait(("released", lock)).words[2], ("UNKNOWN", "UNREACHABLE", "LOST"))
        tokens = {lock: net.near.hold(lock, lock, kind=KINDS[name][1], lease_ms=LONG_MS // 2, wait_ms=-1).token
                  for lock, name in names.items()}
        net.near.inspect("none")
        before = {lock: votes(net.servers, lock) for lock in names}
        net.let_late_arrive()
        net.far.inspect("none")  # so everything before it has also been done
        for lock, token in tokens.items():
            equal(votes(net.servers, lock), before[lock])
            equal([party.token for party in net.near.inspect(lock)["holders"]], [token])
            for server in net.servers:
                assert left_ms_of(server, lock) <= LONG_MS // 2, "somebody else's renewal counted"
            equal(net.near.renew(lock), "OK")
            equal(net.near.check(lock), "OK")
            equal(net.near.release(lock), "OK")


# ---- Renewals ----


@test
def row_24_a_renewal_that_arrives_after_the_release_does_nothing():
    with Network(PATIENCE_MS) as net:
        for name, (kind, _) in KINDS.items():
            net.far.hold(name, name, kind=kind, lease_ms=LONG_MS)
            net.far.inspect(name)
            net.hold_all("up")
            net.far.send("renew", name, 0)
            for way in net.ways:
                strand(way, key(name))
            equal(net.far.wait(("renewed", name)).words[2], "UNKNOWN")
            for way in net.ways:
                wait_given_up(way)
            one_of(net.far.release(name), ("OK", "UNKNOWN"))
            net.check_left(name)
            net.let_late_arrive()
            equal(nothing_left(net.servers, name), True)


@test("before", "after")
def row_24_nothing_is_taken_again_for_a_hold_that_was_released(when):
    """A node has lost its vote. It reports this to a renewal, or is asked for the vote again, while the hold is being
    released."""
    with Network() as net:
        server, way = net.servers[0], net.ways[0]
        for name, (kind, _) in KINDS.items():
            net.far.hold(name, name, kind=kind, lease_ms=LONG_MS)
            net.far.inspect(name)
            net.forget_votes(server)
            server.command("DEL", *(keys(name)[letter] for letter in "KHI"))
            before = script_calls(server)
            if when == "before":
                way.hold("down")
                equal(net.far.renew(name), "OK")
                wait_until(lambda: script_calls(server) > before, "its word")
            else:
                way.delay(300, "down")
                equal(net.far.renew(name), "OK")
                wait_until(lambda: script_calls(server) > before + 1, "that it is asked for its vote")
            equal(net.far.release(name), "OK")
            way.pass_all()
            net.far.inspect(name)
            net.check_left(name)
            net.far.inspect(name)
            equal(nothing_left(net.servers, name), True)


@test
def row_24_nothing_acts_on_holds_that_were_released():
    """Locks are taken, renewed and released at the same time, while connections break and scripts are forgotten, so
    that repeated requests overtake others."""
    names = [f"race{number}" for number in range(6)]
    with nodes(3) as servers, proxies(servers) as ways, contextlib.ExitStack() as stack, \
            puppets(1, new_set(servers)) as near, puppets(2, new_set(ways)) as far:
        for server in servers:
            stack.enter_context(repeating(server, "SCRIPT", "FLUSH", every_s=0.02))
        every = near + far
        until, rounds = time.monotonic() + 5, 0
        while time.monotonic() < until or rounds < 3:
            kind = ("exclusive", "shared", "exclusive")[rounds % 3]
            for number, puppet in enumerate(every):
                for name in names:
                    puppet.acquire(name, f"{name}-{number}", kind=kind, wait_ms=-1, lease_ms=LONG_MS)
            for puppet in every:
                for name in names:
                    puppet.granted(name)
                    puppet.send("renew", name, 0)
                    puppet.send("release", name)
                    puppet.send("renew", name, 0)
                if puppet in far:
                    ways[rounds % 3].reset()
            for puppet in every:
                for name in names:
                    released = puppet.wait(("released", name)).words[2]
                    one_of(released, ("OK", "UNKNOWN"))
                    if released == "UNKNOWN":  # it is repeated; until then the lock may still be held
                        wait_until(lambda: nothing_left(servers, f"{name}-{every.index(puppet)}"), "nothing left")
                    for _ in range(2):
                        one_of(puppet.wait(("renewed", name)).words[2],
                               ("OK", "UNKNOWN", "UNREACHABLE", "RELEASED", "LOST"))
                    puppet.free(name)
            rounds += 1
        for number in range(len(every)):
            for name in names:
                wait_until(lambda: nothing_left(servers, f"{name}-{number}"), "nothing left")
        time.sleep(0.5)
        equal([server.command("KEYS", "holdfast:*") for server in servers], [[], [], []])
        for puppet in every:
            puppet.quit()


# ---- Tokens ----


def set_counters(servers, name, value):
    for server in servers:
        server.command("HSET", keys(name)["S"], "t", value)


@test("exclusive")
def row_44_tokens_near_2_to_the_53_are_exact(kind):
    with nodes() as servers, puppets(2, new_set(servers)) as (one, two):
        one.hold("a", "x", kind=kind)
        equal(one.release("a"), "OK")
        one.inspect("x")
        start = 9007199254740000
        set_counters(servers[1:], "x", start - 100)
        set_counters(servers[:1], "x", start)  # the others are raised to this, if it answers quickly
        token = one.hold("b", "x", kind=kind).token
        one_of(token, (start - 99, start + 1))
        one.inspect("x")
        equal(sum(counter_of(server, "x") == token for server in servers) >= MAJORITY, True)
        equal(one.inspect("x")["holders"][0].token, token)
        equal(one.release("b"), "OK")
        one.inspect("x")
        set_counters(servers, "x", start + 10)
        equal(one.hold("c", "x", kind=kind).token, start + 11)
        one.inspect("x")
        equal({server.command("HGET", keys("x")["S"], "t") for server in servers}, {str(start + 11)})
        equal(two.break_lock("x", start + 11, "to see"), "OK")
        equal(one.renew("c"), "LOST")
        assert two.hold("d", "x", kind=kind).token > start + 11


@test("exclusive", "shared")
def row_44_tokens_that_are_used_up_on_a_majority_are_an_error_that_leaves_nothing(kind):
    with nodes() as servers, puppets(2, new_set(servers)) as (one, two):
        one.hold("a", "x", kind=kind)
        equal(one.release("a"), "OK")
        one.inspect("x")
        set_counters(servers[:MINORITY], "x", LIMIT - 1)
        one.hold("b", "x", kind=kind)
        equal(one.release("b"), "OK")
        one.inspect("x")
        set_counters(servers[:MAJORITY], "x", LIMIT - 1)
        for wait_ms in (0, -1):
            two.acquire("c", "x", kind=kind, lease_ms=LONG_MS, wait_ms=wait_ms)
            error, text = why(two, "c")
            equal(error, "CLOCK")
            assert "used up" in text, text
            names_all(text, servers[:MAJORITY])
        wait_until(lambda: nothing_left(servers, "x"), "nothing left")


main()
