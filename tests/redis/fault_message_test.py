#!/usr/bin/env python3
"""The Redis store when messages are lost, late or repeated: fault_message_test.py HOLDFAST PUPPET."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (HOLDFAST, KINDS, LONG_MS, PUPPET, TooSlow, counter_of, deadline_us, deafen, hold_or_too_slow, is_lost,
                          is_there, keys, left_ms_of, one_of, patient, puppets, repeating, script_calls, sockets_of, strand,
                          value_of, wait_until, waiting, warm_up)
from servers.process import LIMIT_S, Process
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import equal, main, test

WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
PATIENCE_MS = 2000  # of a client whose requests are stranded: long enough for a busy machine to answer the others
LIMIT = 1 << 53


class Network:
    """A server; a puppet `far` that reaches it through a proxy and waits this long for answers; and a puppet `near`.
    """

    def __init__(self, patience_ms=LONG_MS):
        self.patience_ms = patience_ms

    def __enter__(self):
        self.server = Redis().__enter__()
        self.proxy = Proxy(self.server.port).__enter__()
        warm_up(self.server)
        self.far = Puppet(PUPPET, f"{self.server.url(port=self.proxy.port)}?timeout={self.patience_ms}",
                          wait_lease_ms=WAIT_LEASE_MS).__enter__()
        self.near = Puppet(PUPPET, self.server.url(), wait_lease_ms=WAIT_LEASE_MS).__enter__()
        self.far.inspect("none")  # it is connected
        return self

    def __exit__(self, *_):
        for thing in (self.far, self.near, self.proxy, self.server):
            thing.__exit__()

    def lose_reply(self, name, *words):
        """Makes far do something with the lock of that name: the request reaches the server, and its reply is lost."""
        dropped = self.proxy.drop_reply_to(keys(name)["K"])
        self.far.send(*words)
        assert dropped.wait(LIMIT_S)

    def let_late_arrive(self):
        """Lets the stranded request through, which is the only thing that happens now."""
        before = script_calls(self.server)
        self.proxy.pass_all()
        wait_until(lambda: script_calls(self.server) > before, "what was late")


# ---- Lost replies ----


@test(*KINDS)
def row_17_an_acquire_whose_reply_was_lost_finds_its_own_grant(kinds):
    with Network() as net:
        for wait_ms in (0, -1):
            name = f"x{wait_ms}"
            net.proxy.refuse()  # so that it is not repeated yet
            net.lose_reply(name, "acquire", name, name, KINDS[kinds][0], LONG_MS, wait_ms)
            token = counter_of(net.server, name)
            net.proxy.accept()
            equal(net.far.granted(name).token, token)
            equal(counter_of(net.server, name), token)
            equal([party.token for party in net.near.inspect(name)["holders"]], [token])
            net.near.acquire(name, name, kind=KINDS[kinds][1])
            equal(net.near.failed(name), "BUSY")
            equal(net.far.release(name), "OK")
            equal(net.server.command("EXISTS", *(keys(name)[letter] for letter in "KQWHI")), 0)


@test
def row_17_a_place_in_the_queue_whose_reply_was_lost_is_one_place():
    with Network() as net:
        net.near.hold("a", "x", lease_ms=LONG_MS)
        net.lose_reply("x", "acquire", "b", "x", "exclusive", LONG_MS, -1)
        wait_until(lambda: net.far.inspect("x")["waiters"], "a waiter")
        equal(waiting(net.server, "x"), 1)
        equal(net.near.release("a"), "OK")
        net.far.granted("b")
        equal(waiting(net.server, "x"), 0)
        equal(net.far.release("b"), "OK")
        equal(value_of(net.server, "x"), None)


@test(*KINDS)
def row_17_a_release_whose_reply_was_lost_does_not_say_lost(kinds):
    with Network() as net:
        for waited_for in (False, True):
            name = f"x{waited_for}"
            net.far.hold(name, name, kind=KINDS[kinds][0], lease_ms=LONG_MS)
            if waited_for:
                net.near.acquire(name, name, kind=KINDS[kinds][1], wait_ms=-1)
                wait_until(lambda: waiting(net.server, name) == 1, "a waiter")
            net.lose_reply(name, "release", name)
            one_of(net.far.wait(("released", name)).words[2], ("OK", "UNKNOWN"))
            if waited_for:
                net.near.granted(name)
                equal(net.near.renew(name), "OK")
            else:
                equal(value_of(net.server, name), None)


@test(*KINDS)
def row_17_a_renewal_whose_reply_was_lost_is_repeated(kinds):
    with Network() as net:
        net.far.hold("a", "x", kind=KINDS[kinds][0], lease_ms=LONG_MS // 2)
        net.lose_reply("x", "renew", "a", LONG_MS)
        equal(net.far.wait("renewed a").words[2], "OK")
        assert net.far.left("a") > LONG_MS // 2
        equal(is_lost(net.far, "a"), False)


@test(*KINDS)
def row_17_a_break_whose_reply_was_lost_does_not_say_that_there_was_none(kinds):
    with Network() as net:
        token = net.near.hold("a", "x", kind=KINDS[kinds][0], lease_ms=LONG_MS).token
        net.lose_reply("x", "break", "x", token, "to see")
        one_of(net.far.wait("broke x").words[2], ("OK", "UNKNOWN"))
        equal(net.near.renew("a"), "LOST")
        net.near.lost("a")
        found = net.near.inspect("x")
        equal((found["holders"], found["broken"]), ([], token))


# ---- Late requests ----


@test(*KINDS)
def row_18_an_acquire_that_arrives_after_its_withdrawal_ends_with_its_lease(kinds):
    lease_ms = 5000
    with Network(PATIENCE_MS) as net:
        net.near.hold("busy", "busy", kind=KINDS[kinds][0], lease_ms=LONG_MS)
        net.proxy.hold("up")
        for name in ("free", "busy"):
            net.far.acquire(name, name, kind=KINDS[kinds][1], lease_ms=lease_ms, wait_ms=0 if name == "free" else 300)
        before = script_calls(net.server)
        strand(net.proxy, "holdfast:free", "holdfast:busy")
        for name in ("free", "busy"):
            equal(net.far.failed(name), "UNKNOWN")
        wait_until(lambda: script_calls(net.server) >= before + 2, "the withdrawals")
        equal(value_of(net.server, "free"), None)
        net.let_late_arrive()
        wait_until(lambda: value_of(net.server, "free") and waiting(net.server, "busy"), "what was late")
        assert left_ms_of(net.server, "free") <= lease_ms
        net.near.hold("a", "free", kind=KINDS[kinds][0], wait_ms=-1)
        equal(net.near.release("busy"), "OK")
        net.near.hold("again", "busy", kind=KINDS[kinds][0], wait_ms=-1)  # a waiter that is gone blocks for its wait lease


@test(*KINDS)
def row_18_a_late_repeat_neither_shortens_a_lease_nor_changes_its_token(kinds):
    with Network(PATIENCE_MS) as net:
        net.proxy.hold("up")
        net.far.acquire("a", "x", kind=KINDS[kinds][0], lease_ms=LONG_MS // 6, wait_ms=-1)
        strand(net.proxy, "holdfast:x")
        token = net.far.granted("a").token
        equal(net.far.renew("a", LONG_MS), "OK")
        assert left_ms_of(net.server, "x") > LONG_MS // 2
        net.let_late_arrive()
        assert left_ms_of(net.server, "x") > LONG_MS // 2, "the late acquire shortened it"
        equal([party.token for party in net.near.inspect("x")["holders"]], [token])
        assert net.near.inspect("x")["holders"][0].left_ms > LONG_MS // 2

        net.proxy.hold("up")
        net.far.send("renew", "a", LONG_MS // 6)
        strand(net.proxy, "holdfast:x")
        equal(net.far.wait("renewed a").words[2], "UNKNOWN")
        equal(net.far.renew("a", LONG_MS), "OK")
        net.let_late_arrive()
        assert net.near.inspect("x")["holders"][0].left_ms > LONG_MS // 2, "the late renewal shortened it"
        equal(net.far.release("a"), "OK")


@test(*KINDS)
@patient
def row_19_what_is_late_does_not_touch_the_next_owner(kinds):
    """Tries its release, its renewal, and its repeated release."""
    with Network(PATIENCE_MS) as net:
        lease_ms = PATIENCE_MS + 1000
        for name in ("release", "renew"):
            hold_or_too_slow(net.far, name, name, kind=KINDS[kinds][0], lease_ms=lease_ms, flags="no_renew")
        net.proxy.hold("up")
        ends_us, _ = deadline_us(net.far, "release")
        net.far.send("release", "release")
        net.far.send("renew", "renew", LONG_MS)
        line = net.far.wait("released release")
        if line.at_us >= ends_us:
            raise TooSlow("its lease has ended")
        one_of(line.words[2], ("UNKNOWN", "UNREACHABLE"))
        tokens = {}
        for name in ("release", "renew"):
            net.near.acquire(name, name, kind=KINDS[kinds][1], lease_ms=LONG_MS // 2, wait_ms=-1)
            tokens[name] = net.near.granted(name).token
        values = [value_of(net.server, name) for name in tokens]
        before = script_calls(net.server)
        net.proxy.pass_all()
        wait_until(lambda: script_calls(net.server) >= before + 2, "what was late")
        net.far.inspect("none")  # so everything before it has also been done
        net.far.lost("renew")
        equal([value_of(net.server, name) for name in tokens], values)
        for name, token in tokens.items():
            equal([party.token for party in net.near.inspect(name)["holders"]], [token])
            assert left_ms_of(net.server, name) <= LONG_MS // 2, "somebody else's renewal counted"
            equal(net.near.renew(name), "OK")
        equal(net.far.release("renew"), "LOST")
        for name in tokens:
            equal(net.near.check(name), "OK")
            equal(net.near.release(name), "OK")


@test(*KINDS)
def row_24_a_renewal_that_arrives_after_the_release_does_nothing(kinds):
    with Network(PATIENCE_MS) as net:
        net.far.hold("a", "x", kind=KINDS[kinds][0], lease_ms=LONG_MS)
        net.proxy.hold("up")
        net.far.send("renew", "a", 0)
        strand(net.proxy, "holdfast:x")
        equal(net.far.wait("renewed a").words[2], "UNKNOWN")
        equal(net.far.release("a"), "OK")
        net.let_late_arrive()
        equal(net.server.command("EXISTS", *(keys("x")[letter] for letter in "KQWHI")), 0)


# ---- Lost wake-ups ----


@test
def row_22_who_waits_gets_its_turn_though_subscriptions_are_killed_all_the_time():
    with Redis() as server, puppets(4, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every, \
            repeating(server, "CLIENT", "KILL", "TYPE", "pubsub") as kills:
        tokens = []
        for turn in range(6):
            for puppet in every:
                puppet.acquire(turn, "x", wait_ms=-1)
            left = list(every)
            while left:
                for puppet in [puppet for puppet in left if is_there(puppet, turn)]:
                    tokens.append(puppet.granted(turn).token)
                    equal(puppet.release(turn), "OK")
                    left.remove(puppet)
        equal(tokens, sorted(set(tokens)))
        assert kills[0] > 10, kills


@test
def row_22_subscriptions_that_are_killed_at_once_are_restored_less_and_less_often():
    count, seconds = 4, 3
    with Redis() as server, Proxy(server.port) as proxy, puppets(count, server.url(port=proxy.port)) as every:
        every[0].hold("a", "x", lease_ms=LONG_MS)
        for puppet in every[1:]:
            puppet.acquire("b", "x", wait_ms=-1)
        with repeating(server, "CLIENT", "KILL", "TYPE", "pubsub"):
            proxy.wait(lambda: proxy.accepted > 2 * count)
            accepted, started = proxy.accepted, time.monotonic()
            time.sleep(seconds)
            tries, seconds = proxy.accepted - accepted, time.monotonic() - started
        most = count * (8 + 2 * seconds)  # as after a restart, but for one connection of each client
        assert tries <= most, f"{tries} connections in {seconds:.1f} s, of {most:.0f}"


@test
@patient
def row_22_who_waits_gets_its_turn_though_its_subscription_is_deaf():
    with Network() as net:
        net.near.hold("a", "x", lease_ms=LONG_MS)
        net.far.acquire("b", "x", wait_ms=-1)
        net.proxy.wait(lambda: net.proxy.open == 2)
        wait_until(lambda: net.server.command("PUBSUB", "CHANNELS"), "a subscription")
        net.far.inspect("x")
        deafen(net.proxy, -1)
        accepted, swallowed = net.proxy.accepted, net.proxy.swallowed["down"]
        equal(net.near.release("a"), "OK")
        net.far.granted("b")
        assert net.proxy.swallowed["down"] > swallowed, "it was not even woken in vain"
        if net.proxy.accepted != accepted:
            raise TooSlow("it has noticed, and has subscribed again, which wakes it")


@test
def row_22_a_break_is_reported_at_the_next_renewal_though_nobody_hears_of_it():
    with Network() as net:
        token = net.far.hold("a", "x", lease_ms=3000).token
        net.far.renew("a")
        net.proxy.wait(lambda: net.proxy.open == 2)
        wait_until(lambda: net.server.command("PUBSUB", "CHANNELS"), "a subscription")
        deafen(net.proxy, -1)
        equal(net.near.break_lock("x", token, "to see"), "OK")
        net.far.lost("a")
        equal(net.far.check("a"), "LOST")


# ---- Tokens ----


@test("exclusive", "3/3")
def row_44_tokens_near_2_to_the_53_are_exact(kind):
    with Redis() as server, puppets(2, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("a", "x", kind=kind)
        equal(one.release("a"), "OK")
        start = 9007199254740000
        server.command("HSET", keys("x")["S"], "t", start)
        for number in range(1, 4):
            token = one.hold(number, "x", kind=kind).token
            equal(token, start + number)
            equal(server.command("HGET", keys("x")["S"], "t"), str(token))
            equal(one.inspect("x")["holders"][0].token, token)
            if number == 2:
                equal(two.break_lock("x", token, "to see"), "OK")
                equal(one.renew(number), "LOST")
                start += 1  # a break also takes one
            else:
                equal(one.release(number), "OK")


@test("exclusive", "shared", "1/3")
def row_44_tokens_that_are_used_up_are_an_error_that_leaves_nothing(kind):
    with Redis() as server, puppets(2, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("a", "x", kind=kind)
        equal(one.release("a"), "OK")
        server.command("HSET", keys("x")["S"], "t", LIMIT - 2)
        equal(one.hold("last", "x", kind=kind).token, LIMIT - 1)
        if kind == "exclusive":
            two.acquire("waiter", "x", kind=kind, wait_ms=-1)
            wait_until(lambda: waiting(server, "x") == 1, "a waiter")
        equal(one.renew("last"), "OK")
        equal(one.release("last"), "OK")
        if kind == "exclusive":
            equal(two.failed("waiter"), "CLOCK")
        for wait_ms in (0, -1):
            two.acquire("b", "x", kind=kind, wait_ms=wait_ms)
            line = two.wait(("failed", "b"), ("acquired", "b"))
            equal(line.words[2], "CLOCK")
            assert "used up" in " ".join(line.words), line
        wait_until(lambda: not server.command("EXISTS", *(keys("x")[letter] for letter in "KQWHI")), "nothing left")


# ---- Descriptors ----


@test
def row_40_connections_are_closed_on_exec():
    with Redis() as server, puppets(2, server.url()) as (one, two):
        one.hold("a", "x")
        two.acquire("b", "x", wait_ms=-1)
        wait_until(lambda: len(sockets_of(two.pid)) == 2, "two connections")
        equal(set(sockets_of(two.pid).values()), {True})
        equal(one.renew("a"), "OK")
        wait_until(lambda: len(sockets_of(one.pid)) == 2, "two connections")
        equal(set(sockets_of(one.pid).values()), {True})


@test
def row_40_what_the_command_runs_has_none_of_its_descriptors():
    with Redis() as server, puppets(1, server.url()) as (one,), Process() as command, \
            tempfile.TemporaryDirectory(prefix="holdfast-fault-") as folder:
        one.hold("a", "x")
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("HOLDFAST_")}
        command.launch([HOLDFAST, "run", "x", "--", "sh", "-c", "echo $$; read line"], stdin=subprocess.PIPE,
                       stdout=subprocess.PIPE, env=env | {"HOLDFAST_URL": server.url(), "XDG_RUNTIME_DIR": folder,
                                                          "XDG_CONFIG_HOME": folder})
        with command.child.stdin, command.child.stdout:
            wait_until(lambda: waiting(server, "x") == 1, "it waits, and has both of its connections")
            equal(one.release("a"), "OK")
            child = int(command.child.stdout.readline())
            equal(sorted(os.listdir(f"/proc/{child}/fd")), ["0", "1", "2"])
            command.child.stdin.write(b"\n")
            command.child.stdin.flush()
            equal(command.child.wait(LIMIT_S), 0)


main()
