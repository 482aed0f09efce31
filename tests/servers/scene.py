"""Shared by the fault tests of all stores. They run as fault_..._test.py HOLDFAST PUPPET.

A test's name begins with its row of docs/FAILURES.md. No test relies on the speed of the machine: a scenario that means
something only within a lease calls `in_time(...)`, and if it was too slow for that, @patient plays it again.
"""
import contextlib
import functools
import os
import re
import sys
import time
from pathlib import Path

from servers.process import LIMIT_S
from servers.puppet import Puppet, boot_us

HOLDFAST, PUPPET = map(os.path.abspath, sys.argv[1:3])
SHIM = os.path.join(os.path.dirname(HOLDFAST), "lab/clock_shim.so")
LONG_MS = 60000  # longer than a test may take
TIMES = 5  # a scenario is played at most this often
SLACK_US = 3000000  # how late a loaded machine may be

# For each kind of lock, a holder and a waiter that must wait for it.
KINDS = {"exclusive": ("exclusive", "exclusive"), "shared": ("shared", "exclusive"), "permits": ("2/3", "2/3")}


# ---- Time ----


class TooSlow(Exception):
    pass


def patient(function):
    """Plays a scenario again if the machine was too slow for it."""

    @functools.wraps(function)
    def play(*arguments):
        for left in reversed(range(TIMES)):
            try:
                return function(*arguments)
            except TooSlow as error:
                if not left:
                    raise
                print(f"# again: {error}", flush=True)
        return None

    return play


def in_time(until_us):
    """It must be before this time (CLOCK_BOOTTIME), or the scenario means nothing."""
    if boot_us() >= until_us:
        raise TooSlow(f"{(boot_us() - until_us) / 1e6:.3f} s too late")


def wait_until(condition, what, limit_s=LIMIT_S):
    """Polls for a condition that no event reports. A slow check (some start a program) is made less often."""
    until = time.monotonic() + limit_s
    asked = time.monotonic()
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(min(max(0.01, time.monotonic() - asked), 0.25))
        asked = time.monotonic()


def sleep_until(at_us):
    time.sleep(max(0, at_us - boot_us()) / 1e6)


# ---- Puppets ----


@contextlib.contextmanager
def puppets(count, url, **options):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Puppet(PUPPET, url, **options)) for _ in range(count)]


def hold_or_too_slow(puppet, lock, name, **options):
    """Takes the lock that a @patient scenario begins with. If the store did not answer in time, the scenario is played
    again."""
    puppet.acquire(lock, name, **options)
    line = puppet.wait(("acquired", lock), ("failed", lock))
    if line.words[0] == "failed" and line.words[2] in ("SHORT", "UNREACHABLE", "UNKNOWN"):
        raise TooSlow(line)
    puppet.lines.insert(0, line)
    return puppet.granted(lock)


def use_once(puppet, names):
    """Takes and releases each of these locks, so that the store knows them; holds "spare" from then on."""
    for name in names:
        puppet.hold(name, name, lease_ms=LONG_MS)
        assert puppet.release(name) == "OK", name
        puppet.free(name)
    puppet.hold("spare", "spare", lease_ms=LONG_MS)


@contextlib.contextmanager
def gathering(proxy, puppet):
    """Requests made inside the block are sent together: until then, an acquire of "first" is under way. The puppet
    must have a hold, "spare"."""
    proxy.hold("up")
    puppet.acquire("first", "first")
    proxy.wait(lambda: proxy.held["up"] > 0)
    yield
    puppet.left("spare")  # it has read all that came before
    proxy.let_go()
    puppet.granted("first")


def deadline_us(puppet, lock):
    """The times between which the hold's deadline lies; it has not passed yet."""
    asked_us = boot_us()
    left_ms = puppet.left(lock)
    if not left_ms:
        raise TooSlow(f"{lock} is lost already")
    return asked_us + left_ms * 1000, boot_us() + (left_ms + 1) * 1000


def last_deadline_us(puppet, lock):
    """Waits for the end of a hold that is no longer renewed; returns the times between which its deadline was."""
    bounds = deadline_us(puppet, lock)
    with contextlib.suppress(TooSlow):
        while True:
            bounds = deadline_us(puppet, lock)
            time.sleep(0.02)
    return bounds


def outcome(puppet, lock, limit_s=LIMIT_S):
    """The outcome of an acquire: "OK", "BUSY", ..."""
    line = puppet.wait(("acquired", lock), ("failed", lock), limit_s=limit_s)
    return "OK" if line.words[0] == "acquired" else line.words[2]


def is_there(puppet, lock, limit_s=0.005):
    """Whether it has been granted by now, or will be very soon; it must not have failed."""
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


def sockets_of(pid):
    """Descriptors that are sockets: whether each closes on exec."""
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(fd).startswith("socket:"):
            flags = Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text()
            found[fd.name] = bool(int(re.search(r"flags:\s*(\d+)", flags)[1], 8) & os.O_CLOEXEC)
    return found
