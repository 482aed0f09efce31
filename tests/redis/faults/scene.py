"""What the fault tests of the Redis store share. They run as fault_..._test.py HOLDFAST PUPPET.

A test's name begins with its row of failures.md. Servers, proxies and puppets are those of tests/servers. No test
relies on the speed of the machine: where a scenario means something only within a lease, it says `in_time(...)`,
and one that was too slow for that is played again, by @patient.
"""
import contextlib
import functools
import os
import sys
import threading
import time

from servers.process import LIMIT_S
from servers.proxy import Mode
from servers.puppet import Puppet, boot_us
from servers.redis import RedisError
from servers.suite import equal

HOLDFAST, PUPPET = map(os.path.abspath, sys.argv[1:3])
SHIM = os.path.join(os.path.dirname(PUPPET), "clock_shim.so")  # which is built there, too
LONG_MS = 60000  # longer than a test may take
TIMES = 5  # that a scenario is played at most
SLACK_US = 3000000  # how late a loaded machine may be

# A holder and one who must wait for it, of each kind of lock.
KINDS = {"exclusive": ("exclusive", "exclusive"), "shared": ("shared", "exclusive"), "permits": ("2/3", "2/3")}


# ---- Time ----


class TooSlow(Exception):
    pass


def patient(function):
    """Plays a scenario again for which the machine was too slow."""

    @functools.wraps(function)
    def play(*arguments):
        for left in reversed(range(TIMES)):
            try:
                return function(*arguments)
            except TooSlow:
                if not left:
                    raise
        return None

    return play


def in_time(until_us):
    """Before this time (CLOCK_BOOTTIME), or the scenario means nothing."""
    if boot_us() >= until_us:
        raise TooSlow(f"{(boot_us() - until_us) / 1e6:.3f} s too late")


def wait_until(condition, what, limit_s=LIMIT_S):
    """Polls for what no event reports."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.01)


def sleep_until(at_us):
    time.sleep(max(0, at_us - boot_us()) / 1e6)


# ---- Puppets ----


@contextlib.contextmanager
def puppets(count, url, **options):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Puppet(PUPPET, url, **options)) for _ in range(count)]


def deadline_us(puppet, lock):
    """Between which times the hold's deadline is; it has not passed yet."""
    asked_us = boot_us()
    left_ms = puppet.left(lock)
    if not left_ms:
        raise TooSlow(f"{lock} is lost already")
    return asked_us + left_ms * 1000, boot_us() + (left_ms + 1) * 1000


def outcome(puppet, lock, limit_s=LIMIT_S):
    """Of an acquire: "OK", "BUSY", ..."""
    line = puppet.wait(("acquired", lock), ("failed", lock), limit_s=limit_s)
    return "OK" if line.words[0] == "acquired" else line.words[2]


def is_there(puppet, lock, limit_s=0.005):
    """If it has been granted by now, or will be very soon; it must not have failed."""
    with contextlib.suppress(AssertionError):
        puppet.lines.insert(0, puppet.wait(("acquired", lock), ("failed", lock), limit_s=limit_s))
    assert not puppet.seen("failed", str(lock)), puppet.lines
    return puppet.seen("acquired", str(lock))


def is_lost(puppet, lock):
    """Whether the loss has been reported by now."""
    puppet.left(lock)
    return puppet.seen("lost", lock)


def one_of(actual, expected):
    assert actual in expected, f"{actual!r} is not one of {expected!r}"


# ---- The server ----


def keys(name):
    """The keys of a lock, by their letters in state.lua."""
    return {"K": f"holdfast:{name}"} | {letter: f"{{holdfast:{name}}}.{letter.lower()}" for letter in "SQWHI"}


def value_of(server, name):
    return server.command("GET", keys(name)["K"])


def left_ms_of(server, name):
    return server.command("PTTL", keys(name)["K"])


def counter_of(server, name):
    return int(server.command("HGET", keys(name)["S"], "t"))


def waiting(server, name):
    return server.command("ZCARD", keys(name)["Q"])


def script_calls(server):
    """How many scripts the server has run."""
    stats = server.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{word}", "calls=0").split(",")[0].split("=")[1]) for word in ("evalsha", "eval"))


def warm_up(server):
    """The server knows the scripts from now on: a request has one reply."""
    with Puppet(PUPPET, server.url()) as puppet:
        for kind in ("exclusive", "shared"):
            token = puppet.hold("a", "warm-up", kind=kind).token
            puppet.renew("a")
            puppet.break_lock("warm-up", token + 1)
            puppet.release("a")
            puppet.free("a")
        puppet.inspect("warm-up")


def evict_all(server):
    """Of a server whose maxmemory-policy evicts. In one go: whoever asked in between would be refused."""
    with server.connect() as connection:
        words = ["CONFIG SET maxmemory 1", *["PING"] * 50, "DBSIZE", "CONFIG SET maxmemory 0"]
        connection.socket.sendall("".join(f"{line}\r\n" for line in words).encode())
        equal([connection.read() for _ in words], ["OK", *["PONG"] * 50, 0, "OK"])


@contextlib.contextmanager
def repeating(server, *words, every_s=0.002):
    """Gives the server a command again and again, whatever it answers, in a thread. Yields what counts how often."""
    counts, stop = [0], threading.Event()

    def run():
        with server.connect() as connection:
            while not stop.wait(every_s):
                with contextlib.suppress(RedisError):
                    connection.command(*words)
                counts[0] += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join(LIMIT_S)


# ---- The network ----


def strand(proxy, *texts):
    """When requests with these texts are held on their way up: they stay there, with their connections; what comes over
    new ones passes them."""

    def is_held():
        held = b"".join(piece or b"" for flow in proxy.flows_of("up") for _, piece in flow.pieces)
        return all(text.encode() in held for text in texts)

    with proxy.changed:
        proxy.wait(is_held)
        proxy.modes["up"] = Mode()


def wait_given_up(proxy):
    """When the client has closed a connection on which something is stranded: what it sends now goes over another."""
    proxy.wait(lambda: any(flow.ended and flow.pieces for flow in proxy.flows_of("up")))


def deafen(proxy, number):
    """From now on nothing reaches the client over its number-th connection; -1: the last."""
    with proxy.changed:
        proxy.connections[number].down.has_hole = True


# ---- What a lock guards ----


class Resource:
    """Refuses a token below the largest that it has seen."""

    def __init__(self):
        self.largest, self.written = 0, []

    def write(self, token, what):
        """True if it was written."""
        if token < self.largest:
            return False
        self.largest = token
        self.written.append(what)
        return True


class History:
    """Who held which lock, as far as that is certain: from when the puppet said "acquired" to the latest time for
    which it was told that time is left, or to when its release was sent. Times that the test notes before it asks,
    and puppets after they were answered, can only make this shorter."""

    def __init__(self):
        self.holds, self.lock = [], threading.Lock()

    def granted(self, name, token, at_us, shared=False):
        """A dict, to be changed by what follows."""
        hold = {"name": name, "token": token, "from_us": at_us, "until_us": 0, "shared": shared}
        with self.lock:
            self.holds.append(hold)
        return hold

    @staticmethod
    def ask_left(hold, puppet, lock):
        asked_us = boot_us()
        left_ms = puppet.left(lock)
        hold["asked"] = (*hold.get("asked", ())[-4:], (asked_us, left_ms))
        if left_ms > 0:
            hold["until_us"] = max(hold["until_us"], asked_us + left_ms * 1000)
        return left_ms

    @staticmethod
    def release(puppet, lock, *holds):
        for hold in holds:
            hold["release_us"] = boot_us()
            hold["until_us"] = min(hold["until_us"], hold["release_us"])
        told = puppet.release(lock)
        for hold in holds:
            hold["released"] = told
        return told

    def check(self):
        """Never two at a time, unless they share it; tokens of exclusive holds rise. Returns how many were compared."""
        sure = sorted((hold for hold in self.holds if hold["until_us"] > hold["from_us"]),
                      key=lambda hold: hold["from_us"])
        for number, hold in enumerate(sure):
            for later in sure[number + 1:]:
                if later["name"] != hold["name"] or later["shared"] and hold["shared"]:
                    continue
                assert later["from_us"] >= hold["until_us"], f"two at a time: {hold} {later}"
                if not later["shared"] and not hold["shared"]:
                    assert later["token"] > hold["token"], f"tokens do not rise: {hold} {later}"
        return len(sure)
