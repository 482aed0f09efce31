#!/usr/bin/env python3
"""The Redis store when the server refuses or hangs: fault_refusal_test.py HOLDFAST PUPPET."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (LONG_MS, PUPPET, deadline_us, in_time, is_lost, one_of, outcome, patient, puppets,
                          sleep_until, value_of, wait_until, waiting, warm_up)
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import equal, main, test

LEASE_MS = 8000
WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
HELD = ("mutex", "read", "1/3")  # names and kinds


# ---- The troubles: each yields what may be told then, besides that it was done ----


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


# ---- The tests ----


def ask_in_trouble(one, two, broken, errors):
    """Every operation has an outcome, and it is not that somebody else has taken the lock."""
    two.acquire("new", "new", lease_ms=LEASE_MS)
    two.acquire("waited-for", "waited-for", lease_ms=LEASE_MS, wait_ms=1500)
    two.send("break", "break", broken, "to see")
    for name in HELD:
        one.send("renew", name, 0)
    for name in ("release", "release-read"):
        one.send("release", name)
    kept = errors - {"STORE_FULL"}  # there is always room to keep what one has, and to let it go
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
    config = ["enable-debug-command yes", "busy-reply-threshold 100"]
    with Redis(config=config) as server, \
            puppets(3, server.url() + "?timeout=700", wait_lease_ms=WAIT_LEASE_MS) as (one, two, three):
        warm_up(server)
        for name in HELD:
            one.hold(name, name, kind=name, lease_ms=LEASE_MS)
        ends_us = deadline_us(one, HELD[0])[0]
        three.acquire("waiter", "mutex", wait_ms=-1)
        wait_until(lambda: waiting(server, "mutex") == 1, "a waiter")
        one.hold("release", "release", lease_ms=LEASE_MS)
        one.hold("release-read", "release-read", kind="read", lease_ms=LEASE_MS)
        broken = three.hold("break", "break", lease_ms=LEASE_MS).token
        with TROUBLES[trouble](server) as errors:
            ask_in_trouble(one, two, broken, errors)
            sleep_until(ends_us - LEASE_MS * 1000 // 2)  # so that automatic renewals are due and fail, too
        in_time(ends_us - LEASE_MS * 1000 // 4)
        for name in HELD:  # which are renewed without being asked for
            wait_until(lambda: is_lost(one, name) or deadline_us(one, name)[0] > ends_us + 1000000, "a renewal")
            equal(is_lost(one, name), False)
        for name in ("new", "waited-for", "release", "release-read"):  # what was left there ends with its lease
            two.acquire(f"{name}-again", name, kind="write" if name == "release-read" else "mutex", wait_ms=-1)
            two.granted(f"{name}-again")
        equal(is_lost(one, "mutex"), False)
        equal(one.release("mutex"), "OK")
        one_of(outcome(three, "waiter"), {"OK", "STORE_FULL"} if trouble == "OOM" else {"OK"})
        for puppet in (one, two, three):
            puppet.quit()


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


main()
