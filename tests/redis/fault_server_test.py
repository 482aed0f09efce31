#!/usr/bin/env python3
"""The Redis store when the server forgets, refuses and hangs: fault_server_test.py HOLDFAST PUPPET CLOCK_SHIM."""
import contextlib
import itertools
import os
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (KINDS, LONG_MS, PUPPET, deadline_us, in_time, is_lost, keys, one_of, outcome, patient, puppets,
                          repeating, script_calls, sleep_until, value_of, wait_until, waiting, warm_up)
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet, boot_us
from servers.redis import Redis
from servers.suite import equal, main, test

LEASE_MS = 9000
WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
AOF = ["appendonly yes", "appendfsync always"]


# ---- It forgets ----


@test
def row_8_a_restart_without_persistence_is_told_and_waiters_go_on():
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
def row_9_an_append_only_file_without_its_tail():
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
        os.truncate(file, kept + 25)  # in the middle of what it wrote last
        server.restart()
        assert int(server.command("HGET", keys("x")["S"], "t")) < last, "nothing was lost"
        token = two.hold("b", "x").token
        assert token > last, f"{token} after {last}"
        one.lost(2)
        equal(one.release(2), "LOST")
        equal(two.renew("b"), "OK")


@test
def row_12_what_was_evicted_is_told_at_the_next_renewal():
    with Redis(config=["maxmemory-policy allkeys-random"]) as server, \
            puppets(2, server.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = {name: one.hold(name, name, kind=KINDS[name][0], lease_ms=LEASE_MS).token for name in KINDS}
        one.hold("alone", "alone", lease_ms=LEASE_MS)
        for name, (_, kind) in KINDS.items():
            two.acquire(name, name, kind=kind, wait_ms=-1)
        wait_until(lambda: all(waiting(server, name) for name in KINDS), "waiters")
        with server.connect() as connection:  # in one go: whoever asked in between would be refused
            words = [("CONFIG", "SET", "maxmemory", 1), *[("PING",)] * 50, ("CONFIG", "SET", "maxmemory", 0)]
            connection.socket.sendall(b"".join(" ".join(map(str, each)).encode() + b"\r\n" for each in words))
            equal([connection.read() for _ in words], ["OK", *["PONG"] * 50, "OK"])
        assert int(server.info("stats")["evicted_keys"]) >= 20, "not everything was evicted"
        for name in [*KINDS, "alone"]:
            one.lost(name)
        equal(server.command("EXISTS", *keys("alone").values()), 0)
        for name, token in tokens.items():
            assert two.granted(name).token > token, name


# ---- Somebody deletes ----

# Whose hold is gone with which key.
LOST_WITH = {"mutex": {"K", "all"}, "read": {"K", "H", "all"}, "1/3": {"K", "H", "all"}}


def delete(server, name, what):
    server.command(*(["FLUSHALL"] if what == "all" else ["DEL", keys(name)[what]]))


def tell_holders(holders, name, lost):
    """Each learns what became of its hold."""
    for holder in holders:
        equal(holder.renew(name), "LOST" if lost else "OK")
        equal(holder.check(name), "LOST" if lost else "OK")
        equal(is_lost(holder, name), lost)


def pass_on(waiters, name, tokens):
    """Whoever gets it lets it go, until all have had it, one at a time."""
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


def is_there(puppet, name):
    with contextlib.suppress(AssertionError):
        line = puppet.wait(("acquired", name), ("failed", name), limit_s=0.01)
        puppet.lines.append(line)
        equal(line.words[0], "acquired")
        return True
    assert not puppet.seen("failed", name), puppet.lines
    return False


@test("K", "S", "Q", "W", "H", "I", "all")
def row_13_what_is_deleted_is_told_and_the_queue_goes_on(what):
    with Redis() as server, puppets(4, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every:
        holders, waiters = every[:2], every[2:]
        sets = {"mutex": (holders[:1], "mutex"), "read": (holders, "write"), "1/3": (holders, "3/3")}
        tokens = {}
        for kind, (having, wanted) in sets.items():
            tokens[kind] = [holder.hold(kind, kind, kind=kind, lease_ms=LEASE_MS).token for holder in having]
            for number, waiter in enumerate(waiters, 1):
                waiter.acquire(kind, kind, kind=wanted, lease_ms=LEASE_MS, wait_ms=-1)
                wait_until(lambda: waiting(server, kind) == number, "a waiter")
        for kind in sets:
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
        for kind in sets:
            equal(value_of(server, kind), None)


@test("K", "S", "H", "I")
def row_13_a_break_after_a_deletion_is_told_as_it_was(what):
    with Redis() as server, puppets(2, server.url()) as (one, two):
        for kind in ("mutex", "read"):
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
        wait_until(lambda: waiting(server, "x") >= 2, "waiters")
        before = script_calls(server)
        wait_until(lambda: script_calls(server) - before >= 9, "waiters that ask again")
        equal(one.release("a"), "OK")
        for turn, waiter in zip(range(10), itertools.cycle((three, four))):
            if is_there(two, "b"):
                return
            waiter.granted("c")
            waiter.send("release", "c")
            waiter.wait("released c OK")
            waiter.free("c")
            waiter.acquire("c", "x", wait_ms=-1)
            before = script_calls(server)
            wait_until(lambda: script_calls(server) > before, "its question")
        raise AssertionError(f"it was overtaken in each of {turn + 1} turns")


# ---- It does not know the scripts ----


@test
def row_14_scripts_that_are_flushed_all_the_time_stop_nobody():
    with Redis() as server, puppets(6, server.url(), wait_lease_ms=WAIT_LEASE_MS) as every:
        renewed = every[0].hold("renewed", "renewed", lease_ms=3000)
        until = time.monotonic() + 4
        turns = 0
        with repeating(server, "SCRIPT", "FLUSH") as flushes:
            while time.monotonic() < until:
                for number, puppet in enumerate(every):
                    puppet.acquire("own", f"own{number}", kind=("mutex", "read", "1/3")[turns % 3])
                    puppet.acquire("common", "common", kind=("mutex", "write")[turns % 2], wait_ms=-1)
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
        assert flushes[0] > 10 and turns > 1, (flushes[0], turns)
        equal(is_lost(every[0], "renewed"), False)
        assert every[0].left("renewed") > 0 and renewed.token == every[0].inspect("renewed")["holders"][0].token


# ---- It refuses, or hangs ----


@contextlib.contextmanager
def out_of_memory(server):
    server.command("CONFIG", "SET", "maxmemory", 1)
    yield {"STORE_FULL"}
    server.command("CONFIG", "SET", "maxmemory", 0)


def wait_for_save(server, status):
    wait_until(lambda: (lambda info: info["rdb_bgsave_in_progress"] == "0"
                        and info["rdb_last_bgsave_status"] == status)(server.info("persistence")), "a save")


@contextlib.contextmanager
def cannot_save(server):
    (server.data / "dump.rdb").mkdir()
    server.command("CONFIG", "SET", "save", "3600 1000000")
    server.command("BGSAVE")
    wait_for_save(server, "err")
    yield {"UNREACHABLE"}
    (server.data / "dump.rdb").rmdir()
    server.command("BGSAVE")
    wait_for_save(server, "ok")


@contextlib.contextmanager
def is_a_replica(server):
    server.command("REPLICAOF", "127.0.0.1", 1)
    yield {"UNREACHABLE"}
    server.command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def is_loading(server):
    """It takes 20 ms for each key."""
    server.command("CONFIG", "SET", "loading-process-events-interval-bytes", 1024)
    server.command("EVAL", "for i = 1, 150 do redis.call('SET', 'junk' .. i, string.rep('x', 2000)) end", 0)
    server.command("CONFIG", "SET", "rdbcompression", "no")
    server.command("CONFIG", "SET", "key-load-delay", 20000)
    with server.connect() as connection:
        connection.send("DEBUG", "RELOAD")
        wait_until(lambda: server.info("persistence")["loading"] == "1", "loading")
        yield {"UNREACHABLE"}
        connection.socket.settimeout(LIMIT_S)
        equal(connection.read(), "OK")


@contextlib.contextmanager
def runs_a_script(server):
    with server.connect() as connection:
        connection.send("EVAL", "while true do end", 0)
        yield {"UNREACHABLE", "UNKNOWN"}
        wait_until(lambda: attempt(server, "SCRIPT", "KILL") == "OK", "the script's end")


def attempt(server, *words):
    with contextlib.suppress(Exception):
        return server.command(*words)
    return None


def is_paused(what):
    @contextlib.contextmanager
    def trouble(server):
        server.command("CLIENT", "PAUSE", 3000, what)  # which CLIENT UNPAUSE would wait for, too
        yield {"UNKNOWN", "UNREACHABLE"}
        server.command("PING")
        wait_until(lambda: attempt(server, "SETRANGE", "none", 0, "") == 0, "the end of the pause")

    return trouble


@contextlib.contextmanager
def is_stopped(server):
    server.stop()
    yield {"UNKNOWN", "UNREACHABLE"}
    server.cont()


TROUBLES = {"OOM": out_of_memory, "MISCONF": cannot_save, "READONLY": is_a_replica, "LOADING": is_loading,
            "BUSY": runs_a_script, "PAUSE WRITE": is_paused("WRITE"), "PAUSE ALL": is_paused("ALL"),
            "a hung server": is_stopped}


@test(*TROUBLES)
@patient
def row_15_each_outcome_is_done_not_done_or_unknown(trouble):
    """And who holds, holds: renewals are repeated until the trouble is over."""
    config = ["enable-debug-command yes", "busy-reply-threshold 100"]
    with Redis(config=config) as server, puppets(3, server.url() + "?timeout=700", wait_lease_ms=WAIT_LEASE_MS) as every:
        one, two, three = every
        warm_up(server)
        for name in ("mutex", "read", "1/3"):
            one.hold(name, name, kind=name, lease_ms=LEASE_MS)
        ends_us = deadline_us(one, "mutex")[0]
        two.acquire("waiter", "mutex", wait_ms=-1)
        wait_until(lambda: waiting(server, "mutex") == 1, "a waiter")
        for name in ("release", "release-read"):
            one.hold(name, name, kind="mutex" if name == "release" else "read", lease_ms=LEASE_MS)
        broken = two.hold("break", "break", lease_ms=LEASE_MS).token
        with TROUBLES[trouble](server) as errors:
            tell_while_in_trouble(every, broken, errors)
            # long enough for every renewal to be due, and to fail
            sleep_until(ends_us - LEASE_MS * 1000 // 2)
            equal([is_lost(one, name) for name in ("mutex", "read", "1/3")], [False] * 3)
            if trouble != "OOM":  # where it is refused a place that it asks for again
                assert not two.seen("failed", "waiter")
        in_time(ends_us)
        for name in ("mutex", "read", "1/3"):
            wait_until(lambda: one.renew(name) == "OK", "a renewal")
            equal(is_lost(one, name), False)
        in_time(ends_us)
        sleep_until(ends_us)
        for name in ("mutex", "read", "1/3"):
            equal(one.check(name), "OK")
        for name in ("release", "release-read", "new", "waited-for"):  # what was left there ends with its lease
            three.acquire(f"{name}-again", name, kind="write" if name == "release-read" else "mutex", wait_ms=-1)
            three.granted(f"{name}-again")
        equal(one.release("mutex"), "OK")
        one_of(outcome(two, "waiter"), {"OK", "STORE_FULL"} if trouble == "OOM" else {"OK"})
        for puppet in every:
            puppet.quit()


def tell_while_in_trouble(every, broken, errors):
    one, two, three = every
    three.acquire("new", "new", lease_ms=LEASE_MS)
    three.acquire("waited-for", "waited-for", lease_ms=LEASE_MS, wait_ms=1500)
    for name in ("mutex", "read", "1/3"):
        one.send("renew", name, 0)
    one.send("release", "release")
    one.send("release", "release-read")
    three.send("break", "break", broken, "to see")
    for name in ("mutex", "read", "1/3"):
        one_of(one.wait(("renewed", name)).words[2], {"OK"} | errors)
    for name in ("release", "release-read"):
        one_of(one.wait(("released", name)).words[2], {"OK"} | errors)
    one_of(three.wait("broke break").words[2], {"OK"} | errors)
    for name in ("new", "waited-for"):
        told = outcome(three, name)
        one_of(told, {"OK", "UNKNOWN"} | errors)
        if told == "OK":
            three.send("release", name)


@test
def row_15_an_error_after_a_lost_reply_does_not_say_that_nothing_was_done():
    """The acquire was done and its reply lost; its repeat is refused. What was granted must be let go again."""
    with Redis() as server, Proxy(server.port) as proxy, Puppet(PUPPET, server.url(port=proxy.port)) as one, \
            Puppet(PUPPET, server.url()) as two:
        warm_up(server)
        one.inspect("x")
        broken = two.hold("break", "y").token
        for send, told in ((("acquire", "a", "x", "mutex", LONG_MS, 0), ("failed", "a")),
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


# ---- It comes back ----


@test
def a_restart_under_many_clients_is_no_storm():
    """They go on, and their attempts to connect get fewer while it is away."""
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
        # A connection tries at 0, 10 to 20 ms, 20 to 40, ... up to 0.5 to 1 s: some 8 times in a second, 2 in each after it.
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
