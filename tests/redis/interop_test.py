#!/usr/bin/env python3
"""Our locks on Redis and those of others exclude each other, both ways: interop_test.py HOLDFAST PUPPET.

The others are redis-cli by hand with scripts/unlock.lua, Python's redis.lock, and npm's redlock (4 and 5) and
redis-semaphore. For each there is a program in interop/ that handles one lock at a time. It reads lines and
answers each with "yes" or "no":

    acquire KEY TTL_MS | wait KEY TTL_MS | extend TTL_MS | release

npm's packages are installed once, in the build directory (servers/npm.py).
"""
import collections
import contextlib
import functools
import json
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)
from servers import npm, scene
from servers.process import LIMIT_S, Process
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import equal, main, test

HOLDFAST, PUPPET = map(os.path.abspath, sys.argv[1:3])
UNLOCK = HERE.parents[1] / "scripts/unlock.lua"
KEY = "holdfast:x"  # of the lock x
OWNER = re.compile(r"[0-9a-f]{32}-[0-9a-f]+")
LONG_MS = 60000  # longer than a test may take
KINDS = ("exclusive", "shared", "1/3", "3/3")


# ---- The others ----


class Other(Process):
    """A client that is not holdfast."""
    PROGRAMS = {
        "redis-cli": ["sh", HERE / "interop/by_hand.sh"],
        "redis.lock": ["/usr/bin/python3", "-B", HERE / "interop/redis_lock.py"],  # Debian's, with its packages
        "redlock": ["node", HERE / "interop/clients.js", "redlock"],
        "redlock-4": ["node", HERE / "interop/clients.js", "redlock-4"],
        "redis-semaphore": ["node", HERE / "interop/clients.js", "redis-semaphore"],
    }

    def __init__(self, name, server):
        self.words = [*self.PROGRAMS[name], server.port]
        prefixes = {"redis-semaphore": "mutex:", "redis.lock": "", "redis-cli": ""}  # with plain names
        self.prefix = prefixes.get(name, "holdfast:")
        self.key = self.prefix + "x"
        self.url = f"{server.url()}?prefix={self.prefix}"

    def __enter__(self):
        assert self.words[0] != "node" or MODULES, TROUBLE
        self.launch(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                    env=os.environ | {"NODE_PATH": str(MODULES)})
        return self

    def __exit__(self, *_):
        self.kill()
        if self.child:
            self.child.stdin.close()
            self.child.stdout.close()

    def send(self, *words):
        self.child.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    def answer(self):
        assert select.select([self.child.stdout], [], [], LIMIT_S)[0], f"{self.words} does not answer"
        line = self.child.stdout.readline().decode().strip()
        assert line in ("yes", "no"), f"{self.words} says {line!r} and ends with {self.child.wait(LIMIT_S)}"
        return line == "yes"

    def has_answered(self):
        return bool(select.select([self.child.stdout], [], [], 0)[0])

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def acquire(self, ttl_ms=LONG_MS):
        """Tries once."""
        return self.ask("acquire", self.key, ttl_ms)

    def start_waiting(self, ttl_ms=LONG_MS):
        self.send("wait", self.key, ttl_ms)

    def extend(self, ttl_ms):
        return self.ask("extend", ttl_ms)

    def release(self):
        return self.ask("release")


# ---- What the tests say ----


each_other = test(*Other.PROGRAMS)


def wait_until(condition, what):
    """Polls for what no event reports."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.005)


def cli(server, *words):
    """What redis-cli answers."""
    return subprocess.run(["redis-cli", "-e", "-p", str(server.port), *map(str, words)], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=LIMIT_S, stdin=subprocess.DEVNULL).stdout.strip()


def lock_by_hand(server, value="unique", ttl_ms=LONG_MS):
    equal(cli(server, "SET", KEY, value, "NX", "PX", ttl_ms), "OK")


def unlock_by_hand(server, value):
    """True if that freed it."""
    return cli(server, "--eval", UNLOCK, KEY, ",", value) == "1"


def locks_by_hand(server):
    """Whether a client that follows the published pattern could lock; the lock is freed again."""
    if cli(server, "SET", KEY, "somebody", "NX", "PX", LONG_MS) != "OK":
        return False
    assert unlock_by_hand(server, "somebody")
    return True


def try_lock(puppet, kind="exclusive", lock="try"):
    """The outcome of trying once; a granted lock is released."""
    puppet.acquire(lock, "x", kind=kind)
    line = puppet.wait(("acquired", lock), ("failed", lock))
    if line.words[0] == "failed":
        return line.words[2]
    puppet.release(lock)
    puppet.free(lock)
    return "OK"


def owner_of(puppet, lock):
    return puppet.ask("owner", lock, answer="owner")[0]


def wait_for_waiters(puppet, count):
    wait_until(lambda: len((puppet.inspect("x") or {"waiters": []})["waiters"]) == count, f"{count} waiters")


class Monitor:
    """Counts the requests for a lock: in `ours` the script calls with an owner id, by owner; in `by_others` the
    commands of all others."""

    def __init__(self, server, key):
        self.connection, self.key = server.connect(), key
        self.connection.socket.settimeout(LIMIT_S)
        self.ours, self.by_others = collections.Counter(), 0

    def __enter__(self):
        equal(self.connection.command("MONITOR"), "OK")
        return self

    def __exit__(self, *arguments):
        self.connection.__exit__(*arguments)

    def read_until(self, condition):
        until = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < until, (self.ours, self.by_others)
            _, _, client, *words = shlex.split(self.connection.read())
            if client != "lua]" and self.key in words:
                owners = list(filter(OWNER.fullmatch, words))
                self.ours.update(owners)
                self.by_others += not owners


class Command(Process):
    """The holdfast command, in its own folder."""

    def __init__(self, server, *words, url=None):
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-interop-")
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("HOLDFAST_")}
        env |= {"HOLDFAST_URL": url or server.url(), "XDG_RUNTIME_DIR": self.folder.name, "LC_ALL": "C.UTF-8",
                "XDG_CONFIG_HOME": self.folder.name}
        self.launch([HOLDFAST, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)

    def __exit__(self, *_):
        self.kill()
        self.child.stdout.close()
        self.child.stderr.close()
        self.folder.cleanup()

    def end(self):
        """(exit code, stdout, stderr)"""
        out, err = self.child.communicate(timeout=LIMIT_S)
        return self.child.returncode, out, err


def holdfast(server, *words, url=None):
    with Command(server, *words, url=url) as command:
        return command.end()


# ---- Each of the others, both ways ----


@each_other
def their_lock_excludes_ours_until_they_release_it(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        token = ours.hold("first", "x").token
        equal(ours.release("first"), "OK")
        assert other.acquire()
        for kind in KINDS:
            equal(try_lock(ours, kind), "BUSY")
        ours.acquire("a", "x", wait_ms=-1)
        wait_for_waiters(ours, 1)
        assert not ours.seen("acquired", "a")
        assert other.release()
        assert ours.granted("a").token > token


@each_other
def our_lock_excludes_theirs_until_we_release_it(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        for kind in KINDS:
            ours.hold("a", "x", kind=kind, lease_ms=LONG_MS)
            assert not other.acquire(), kind
            equal(ours.release("a"), "OK")
            ours.free("a")
            assert other.acquire(), kind
            assert other.release()


@each_other
def their_waiter_gets_it_after_us(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        ours.hold("a", "x", lease_ms=LONG_MS)
        with Monitor(server, other.key) as monitor:
            other.start_waiting()
            monitor.read_until(lambda: monitor.by_others > 2)
        assert not other.has_answered()
        equal(ours.release("a"), "OK")
        assert other.answer()
        equal(try_lock(ours), "BUSY")


@each_other
def what_they_extend_excludes_us_for_longer(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        assert other.acquire(LONG_MS)
        ours.acquire("a", "x", wait_ms=-1)
        wait_for_waiters(ours, 1)
        server.command("PEXPIRE", other.key, LONG_MS // 2)
        assert other.extend(LONG_MS)
        wait_until(lambda: server.command("PTTL", other.key) > LONG_MS // 2, "an extension")
        equal(try_lock(ours), "BUSY")
        assert not ours.seen("acquired", "a")
        assert other.release()
        ours.granted("a")


@each_other
def what_we_renew_excludes_them_for_longer(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        ours.hold("a", "x", lease_ms=LONG_MS // 2)
        equal(ours.renew("a", LONG_MS), "OK")
        assert server.command("PTTL", other.key) > LONG_MS // 2
        assert not other.acquire()
        equal(ours.check("a"), "OK")


@each_other
def whoever_has_lost_it_to_us_does_not_free_ours(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        assert other.acquire()
        server.command("DEL", other.key)  # as if it had expired
        ours.hold("a", "x", lease_ms=LONG_MS)
        other.release()  # whatever it says to that
        equal(server.command("GET", other.key), owner_of(ours, "a"))
        equal(ours.renew("a"), "OK")
        assert not other.acquire()


@each_other
def what_we_have_lost_to_them_we_neither_renew_nor_free(name):
    with Redis() as server, Other(name, server) as other, Puppet(PUPPET, other.url) as ours:
        ours.hold("renewed", "x")
        server.command("DEL", other.key)
        assert other.acquire()
        theirs = server.command("GET", other.key)
        equal(ours.renew("renewed"), "LOST")
        ours.lost("renewed")
        equal(server.command("GET", other.key), theirs)
        assert other.release()

        ours.hold("released", "x")
        server.command("DEL", other.key)
        assert other.acquire()
        theirs = server.command("GET", other.key)
        equal(ours.release("released"), "LOST")
        equal(server.command("GET", other.key), theirs)
        assert other.release()


# ---- Waiters ----


@test
def only_the_first_in_our_queue_asks_again_and_again():
    """The other waiters ask when they arrive and when they can be notified, and then only to keep their places,
    which with this wait lease is after the end of the test."""
    wait_lease_ms = 5 * LONG_MS
    with Redis() as server, Monitor(server, KEY) as monitor, \
            Puppet(PUPPET, server.url(), wait_lease_ms=wait_lease_ms) as one, \
            Puppet(PUPPET, server.url(), wait_lease_ms=wait_lease_ms) as two:
        lock_by_hand(server)
        one.acquire("head", "x", wait_ms=-1)
        wait_for_waiters(one, 1)
        for lock in ("a", "b", "c"):
            two.acquire(lock, "x", wait_ms=-1)
        wait_for_waiters(one, 4)
        head, *behind = server.command("ZRANGE", "{%s}.q" % KEY, 0, -1)
        monitor.read_until(lambda: monitor.ours[head] >= 8)
        equal([owner for owner in behind if not 1 <= monitor.ours[owner] <= 2], [])
        assert unlock_by_hand(server, "unique")
        one.granted("head")
        equal(one.release("head"), "OK")
        two.granted("a")


@test
def whoever_moves_up_to_the_head_of_our_queue_asks_in_its_place():
    with Redis() as server, Puppet(PUPPET, server.url()) as one, Puppet(PUPPET, server.url()) as two, \
            Puppet(PUPPET, server.url()) as three:
        lock_by_hand(server)
        for count, puppet in enumerate((one, two, three), 1):
            puppet.acquire("a", "x", wait_ms=-1)
            wait_for_waiters(one, count)
        one.cancel("a")
        equal(one.failed("a"), "CANCELLED")
        two.kill()
        assert unlock_by_hand(server, "unique")
        three.granted("a")


@test
def handing_over_among_us_leaves_no_gap_for_others():
    """While one of our clients waits, the lock goes from one to the next in one step."""
    with Redis() as server, Puppet(PUPPET, server.url()) as one, Puppet(PUPPET, server.url()) as two:
        got, stop = [], threading.Event()
        one.hold("0", "x", lease_ms=LONG_MS)

        def try_and_try():
            with server.connect() as connection:
                while not stop.is_set():
                    got.append(connection.command("SET", KEY, "unique", "NX", "PX", LONG_MS))

        thread = threading.Thread(target=try_and_try)
        thread.start()
        try:
            holder, waiter = one, two
            for turn in range(1, 30):
                waiter.acquire(turn, "x", wait_ms=-1, lease_ms=LONG_MS)
                wait_for_waiters(holder, 1)
                equal(holder.release(turn - 1), "OK")
                waiter.granted(str(turn))
                holder, waiter = waiter, holder
        finally:
            stop.set()
            thread.join(LIMIT_S)
        assert got, "nobody tried"
        equal(set(got), {None})


@test
def a_waiter_gets_a_lock_of_others_that_expires():
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        lock_by_hand(server, ttl_ms=2000)
        ours.acquire("a", "x", wait_ms=-1)
        ours.granted("a")
        equal(server.command("GET", KEY), owner_of(ours, "a"))


@test
def a_lock_of_others_without_expiry_is_waited_for():
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        equal(cli(server, "SETNX", KEY, "1"), "1")
        equal(try_lock(ours), "BUSY")
        ours.acquire("a", "x", wait_ms=-1)
        wait_for_waiters(ours, 1)
        equal(server.command("TTL", KEY), -1)
        assert not ours.seen("acquired", "a")
        equal(cli(server, "DEL", KEY), "1")
        ours.granted("a")
        assert server.command("PTTL", KEY) > 0


@test("shared", "exclusive", "1/3", "3/3")
def every_kind_waits_for_a_lock_of_others(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        lock_by_hand(server)
        equal(try_lock(ours, kind), "BUSY")
        ours.acquire("a", "x", kind=kind, wait_ms=-1)
        wait_for_waiters(ours, 1)
        assert not ours.seen("acquired", "a")
        assert unlock_by_hand(server, "unique")
        ours.granted("a")
        assert not locks_by_hand(server)
        equal(ours.release("a"), "OK")
        assert locks_by_hand(server)


# ---- By the owner id ----


@test("exclusive")
def the_owner_id_that_a_holder_knows_frees_its_lock_by_hand(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        ours.hold("a", "x", kind=kind, lease_ms=6000)
        owner = owner_of(ours, "a")
        assert OWNER.fullmatch(owner), owner
        equal(server.command("GET", KEY), owner)
        assert unlock_by_hand(server, owner)
        ours.lost("a")  # by its next automatic renewal
        equal(ours.check("a"), "LOST")
        equal(ours.release("a"), "LOST")
        equal(server.command("EXISTS", KEY), 0)
        assert locks_by_hand(server)


@test
def a_waiter_gets_what_was_freed_by_hand():
    with Redis() as server, Puppet(PUPPET, server.url()) as one, Puppet(PUPPET, server.url()) as two:
        token = one.hold("a", "x", lease_ms=LONG_MS).token
        two.acquire("b", "x", wait_ms=-1)
        wait_for_waiters(one, 1)
        assert unlock_by_hand(server, owner_of(one, "a"))
        assert two.granted("b").token > token
        equal(one.renew("a"), "LOST")
        equal(two.renew("b"), "OK")


@test
def another_owner_id_frees_nothing():
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        ours.hold("a", "x", lease_ms=LONG_MS)
        owner = owner_of(ours, "a")
        for wrong in ("unique", owner[:-1], owner + "0", owner.upper() + " ", "=m", ""):
            assert not unlock_by_hand(server, wrong), wrong
        equal(server.command("GET", KEY), owner)
        equal(ours.renew("a"), "OK")


@test
def an_owner_id_of_the_past_frees_nothing():
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        ours.hold("a", "x")
        past = owner_of(ours, "a")
        equal(ours.release("a"), "OK")
        ours.hold("b", "x", lease_ms=LONG_MS)
        assert not unlock_by_hand(server, past)
        equal(ours.renew("b"), "OK")


# ---- What others do to our key ----


@test("shared", "1/3")
def deleting_a_shared_lock_takes_it_from_all_who_share_it(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as one, Puppet(PUPPET, server.url()) as two:
        one.hold("a", "x", kind=kind, lease_ms=6000)
        two.hold("b", "x", kind=kind, lease_ms=6000)
        assert not locks_by_hand(server)
        equal(cli(server, "DEL", KEY), "1")
        one.lost("a")
        two.lost("b")
        equal(server.command("EXISTS", KEY), 0)
        assert locks_by_hand(server)


@test("shared", "1/3")
def who_shared_a_deleted_lock_does_not_share_the_next(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as one, Puppet(PUPPET, server.url()) as two:
        one.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        equal(cli(server, "DEL", KEY), "1")
        two.hold("b", "x", kind=kind, lease_ms=LONG_MS)
        equal(one.renew("a"), "LOST")
        equal(one.release("a"), "LOST")
        equal(two.renew("b"), "OK")
        equal(len(two.inspect("x")["holders"]), 1)
        assert not locks_by_hand(server)


@test("exclusive", "shared", "1/3")
def whoever_overwrites_our_lock_has_it(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        ours.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        equal(cli(server, "SET", KEY, "unique", "PX", LONG_MS // 2), "OK")
        equal(ours.renew("a"), "LOST")
        equal(ours.release("a"), "LOST")
        equal(try_lock(ours, kind), "BUSY")
        equal(server.command("GET", KEY), "unique")
        assert server.command("PTTL", KEY) <= LONG_MS // 2


@test("exclusive", "shared")
def a_lock_whose_expiry_was_removed_has_one_again_after_a_renewal(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        ours.hold("a", "x", kind=kind, lease_ms=LONG_MS)
        equal(cli(server, "PERSIST", KEY), "1")
        equal(ours.renew("a"), "OK")
        assert 0 < server.command("PTTL", KEY) <= LONG_MS


MAKE = {"list": ["RPUSH", KEY, "v"], "hash": ["HSET", KEY, "f", "v"], "set": ["SADD", KEY, "v"],
        "zset": ["ZADD", KEY, 1, "v"], "stream": ["XADD", KEY, "*", "f", "v"]}


@test(*MAKE)
def a_key_of_another_type_is_refused_with_an_error_of_its_own(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        cli(server, *MAKE[kind])
        for wanted in ("exclusive", "shared", "1/3"):
            ours.acquire("a", "x", kind=wanted, wait_ms=-1)
            equal(ours.failed("a"), "BAD_STORE")
        code, _, err = holdfast(server, "run", "x", "true")
        equal(code, 78)
        assert "its key is not a string, so it is not a lock" in err, err
        code, _, err = holdfast(server, "inspect", "x")
        equal(code, 78)
        assert "its key is not a string, so it is not a lock" in err, err
        equal(server.command("TYPE", KEY), kind)
        equal(cli(server, "DEL", KEY), "1")
        ours.hold("a", "x")


@test("exclusive", "shared", "1/3")
def a_lock_that_becomes_a_key_of_another_type_is_lost(kind):
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        for lock, end in (("renewed", ours.renew), ("released", ours.release)):
            ours.hold(lock, "x", kind=kind, lease_ms=LONG_MS)
            cli(server, "DEL", KEY)
            cli(server, *MAKE["list"])
            equal(end(lock), "LOST")
            equal(server.command("LRANGE", KEY, 0, -1), ["v"])
            cli(server, "DEL", KEY)


@test
def a_lock_of_others_may_have_any_value():
    """Includes a value that looks like ours for shared locks, and bytes that are not text."""
    values = ["", "0", "=", "=m", "=rw", "=p3", "=p0", "=px", "=0123", "\udcff\udc80x", "nul\0", "a b\r\nc", "f" * 32, "f" * 33,
              "g" * 32 + "-1", "x" * 100000]
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        bad = []
        for value in values:
            for kind in KINDS:
                server.command("SET", KEY, value, "PX", LONG_MS)
                outcome = try_lock(ours, kind)
                if (outcome, server.command("GET", KEY)) != ("BUSY", value):
                    bad.append((value, kind, outcome))
        equal(bad, [])


# ---- The command ----


@test
def run_waits_for_a_lock_of_others_and_runs_after_it():
    with Redis() as server, Puppet(PUPPET, server.url()) as looker:
        lock_by_hand(server)
        with Command(server, "run", "x", "--", "redis-cli", "-p", server.port, "GET", KEY) as command:
            wait_for_waiters(looker, 1)
            assert command.running()
            equal(server.command("GET", KEY), "unique")
            assert unlock_by_hand(server, "unique")
            code, out, err = command.end()
            equal(code, 0)
            assert OWNER.fullmatch(out.strip()), (out, err)
        assert locks_by_hand(server)


@test
def run_does_not_wait_if_told_so_and_says_who_has_it():
    with Redis() as server:
        lock_by_hand(server)
        code, _, err = holdfast(server, "run", "-n", "x", "true")
        equal(code, 75)
        assert "(held by a client that is not holdfast · lease" in err, err


@test
@scene.patient
def run_ends_its_command_when_others_take_the_lock_away():
    with Redis() as server:
        with Command(server, "run", "--ttl", "6s", "x", "--", "sleep", LONG_MS) as command:
            wait_until(lambda: server.command("EXISTS", KEY) or not command.running(), "it is locked")
            assert unlock_by_hand(server, server.command("GET", KEY))
            lock_by_hand(server)
            code, _, err = command.end()
            equal(code, 79)
            if "(the store no longer has it)" in err:
                raise scene.TooSlow("the store was asked why, and did not answer soon")
            assert "(the store no longer has it: it was deleted there" in err, err
        equal(server.command("GET", KEY), "unique")


@test
def looking_shows_a_lock_of_others_as_such():
    with Redis() as server:
        lock_by_hand(server)
        code, out, _ = holdfast(server, "inspect", "--json", "x")
        equal(code, 0)
        (holder,) = json.loads(out)["holders"]
        equal((holder["label"], holder["token"], holder["pid"]), ("a client that is not holdfast", None, 0))
        assert 0 < holder["left_ms"] <= LONG_MS, holder
        code, out, _ = holdfast(server, "inspect", "x")
        equal(code, 0)
        assert "  holder   a client that is not holdfast\n  lease" in out, out
        code, out, _ = holdfast(server, "ls")
        equal(code, 0)
        assert re.search(r"^x\texclusive\ta client that is not holdfast\t", out, re.M), out


# ---- Without a prefix ----


@test
def without_a_prefix_a_name_is_the_key_itself():
    with Redis() as server, Puppet(PUPPET, f"{server.url()}?prefix=") as ours:
        ours.hold("a", "orders", lease_ms=LONG_MS)
        assert OWNER.fullmatch(server.command("GET", "orders"))
        equal(cli(server, "set", "orders", "theirs", "nx", "px", LONG_MS), "")
        ours.acquire("b", "orders", wait_ms=-1)
        equal(ours.release("a"), "OK")
        assert ours.granted("b").token
        equal(ours.release("b"), "OK")
        equal(sorted(server.command("KEYS", "*")), ["{orders}.s"])


@test
def without_a_prefix_looking_shows_locks_and_no_other_strings():
    with Redis() as server, Puppet(PUPPET, f"{server.url()}?prefix=") as ours:
        for i in range(50):
            server.command("SET", f"cache:{i}", "no lock")
        for i in range(250):  # more than a page of names that nobody uses now
            ours.hold("a", f"idle-{i:03}")
            equal(ours.release("a"), "OK")
            ours.free("a")
        for lock, name in enumerate(("orders", "{eu}orders", "x}y", "o{")):
            ours.hold(lock, name, lease_ms=LONG_MS)
        code, out, _ = holdfast(server, "ls", "--json", url=f"{server.url()}?prefix=")
        equal((code, sorted(json.loads(line)["name"] for line in out.splitlines())),
              (0, ["orders", "o{", "x}y", "{eu}orders"]))
        code, out, _ = holdfast(server, "ls", "--json", "o", url=f"{server.url()}?prefix=")
        equal(sorted(json.loads(line)["name"] for line in out.splitlines()), ["orders", "o{"])


@test
def without_a_prefix_names_like_our_own_keys_are_refused():
    with Redis() as server:
        for name in ("{x}.s", "{}.set", "{x}.anything"):
            code, _, err = holdfast(server, "run", name, "true", url=f"{server.url()}?prefix=")
            equal(code, 78)
            assert "with an empty prefix" in err, err
        equal(holdfast(server, "run", "x{y}.s", "true", url=f"{server.url()}?prefix=")[0], 0)


@test
def looking_does_not_say_that_a_lock_without_expiry_is_about_to_end():
    with Redis() as server:
        server.command("SET", KEY, "unique")
        for words in (["inspect", "x"], ["ls"]):
            code, out, _ = holdfast(server, *words)
            equal(code, 0)
            assert "a client that is not holdfast" in out and "0ms" not in out, out


@test
def looking_shows_nobody_but_the_other_who_took_our_lock():
    with Redis() as server, Puppet(PUPPET, server.url()) as ours:
        token = ours.hold("a", "x", lease_ms=LONG_MS).token
        equal(cli(server, "DEL", KEY), "1")
        lock_by_hand(server)
        found = ours.inspect("x")
        equal([(party.token, party.pid) for party in found["holders"]], [(0, 0)])
        equal(found["token"], token)
        equal(ours.break_lock("x", token), "NOT_YOURS")
        equal(server.command("GET", KEY), "unique")


# ---- All of them ----


class Visitor(threading.Thread):
    """Enters several times, and is always the only one inside."""
    TIMES = 5
    trouble = None

    def __init__(self, server, enter, leave):
        super().__init__(daemon=True)
        self.server, self.enter, self.leave = server, enter, leave

    def run(self):
        try:
            with self.server.connect() as connection:
                for _ in range(self.TIMES):
                    self.enter()
                    equal(connection.command("INCR", "inside"), 1)
                    connection.command("INCR", "visits")
                    equal(connection.command("DECR", "inside"), 0)
                    self.leave()
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error


@test
def of_all_kinds_of_clients_together_one_at_a_time_is_inside():
    names = [name for name in Other.PROGRAMS if name != "redis-semaphore"]  # it has another key
    with Redis() as server, contextlib.ExitStack() as stack:
        others = [stack.enter_context(Other(name, server)) for name in names]
        for other in others:
            other.key = KEY
        puppets = [stack.enter_context(Puppet(PUPPET, server.url())) for _ in range(2)]

        def enter_other(other):
            other.start_waiting()
            assert other.answer()

        def leave_other(other):
            assert other.release()

        def leave_ours(puppet):
            equal(puppet.release("a"), "OK")
            puppet.free("a")

        visitors = [Visitor(server, functools.partial(enter_other, other), functools.partial(leave_other, other))
                    for other in others]
        visitors += [Visitor(server, functools.partial(puppet.hold, "a", "x", wait_ms=-1),
                             functools.partial(leave_ours, puppet)) for puppet in puppets]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        equal([visitor.trouble for visitor in visitors if visitor.trouble], [])
        equal(server.command("GET", "visits"), str(Visitor.TIMES * len(visitors)))


try:
    MODULES, TROUBLE = npm.install(Path(PUPPET).parent), None
except npm.NpmError as error:  # tests that need no npm package still run
    MODULES, TROUBLE = None, error
main()
