#!/usr/bin/env python3
"""Our locks on ZooKeeper and those of others exclude each other, both ways: interop_test.py HOLDFAST PUPPET.

The others are Curator's InterProcessMutex and InterProcessReadWriteLock, and kazoo's Lock, ReadLock and WriteLock. For
each library there is a program in interop/ that handles one lock at a time. It reads lines and answers each with "yes"
or "no":

    acquire KIND PATH | wait KIND PATH | has | release

KIND is mutex, read or write. "has" asks the server whether the lock's node exists. "no" is also the answer if the
session has ended.
"""
import contextlib
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)
from servers import suite
from servers.history import History
from servers.process import LIMIT_S, Process
from servers.puppet import Puppet, boot_us
from servers.scene import HOLDFAST, LONG_MS, PUPPET, outcome, wait_until
from servers.suite import equal, main, test
from servers.zookeeper import JAVA, Nodes, Zookeeper, patient

suite.LIMIT_S = 150  # a session that is killed lives on for a while
LEASE_MS = 2400  # of our locks, and so of the session
SESSION_MS = 6000
CLASSES = Path(PUPPET).parent / "curator"
JARS = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar"  # these name the jars that they need

# Which of their kinds and which of ours exclude each other.
LAYOUTS = {
    "curator": {("mutex", "exclusive"): True},
    "curator-rw": {("write", "exclusive"): True, ("write", "shared"): True, ("read", "exclusive"): True,
                   ("read", "shared"): False},
    "kazoo": {("mutex", "exclusive"): True, ("write", "exclusive"): True, ("write", "shared"): True,
              ("read", "exclusive"): True, ("read", "shared"): False},
}


def compile_curator():
    """Compiles it once; several tests may do it at the same time."""
    source = HERE / "interop/Curator.java"
    if CLASSES.exists() and CLASSES.stat().st_mtime > source.stat().st_mtime:
        return
    with tempfile.TemporaryDirectory(dir=CLASSES.parent) as made:
        subprocess.run(["javac", "-proc:none", "-cp", JARS, "-d", f"{made}/new", source], check=True)
        with contextlib.suppress(OSError):
            CLASSES.rename(f"{made}/old")
        with contextlib.suppress(OSError):  # somebody else was faster
            Path(f"{made}/new").rename(CLASSES)


class Other(Process):
    """A client that is not holdfast."""

    def __init__(self, layout, server, session_ms=LONG_MS):
        if layout == "kazoo":
            program = ["/usr/bin/python3", "-B", HERE / "interop/kazoo_lock.py"]  # Debian's, with its packages
        else:
            options = JAVA[:JAVA.index("-cp")]
            program = [*options, "-cp", f"{CLASSES}:{JARS}", "org.apache.curator.framework.recipes.locks.Curator"]
        self.words = [*program, server.port, session_ms]

    def __enter__(self):
        self.launch(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        return self

    def __exit__(self, *_):
        self.kill()
        self.child.stdin.close()
        self.child.stdout.close()

    def send(self, *words):
        self.child.stdin.write(" ".join(words).encode() + b"\n")

    def answer(self):
        assert select.select([self.child.stdout], [], [], 2 * LIMIT_S)[0], f"{self.words} does not answer"
        line = self.child.stdout.readline().decode().strip()
        assert line in ("yes", "no"), f"{self.words} says {line!r} and ends with {self.child.wait(LIMIT_S)}"
        return line == "yes"

    def has_answered(self):
        return bool(select.select([self.child.stdout], [], [], 0)[0])

    def ask(self, *words):
        self.send(*words)
        return self.answer()


def url_of(layout, server, path="/app/locks"):
    return patient(server.url(path=path)) + f"&layout={layout}"


@contextlib.contextmanager
def meeting(layout):
    """A server, one of their clients and one of ours, and the nodes of the locks."""
    with Zookeeper() as server, Other(layout, server) as other, Puppet(PUPPET, url_of(layout, server)) as ours, \
            Nodes(server, "/app/locks") as nodes:
        yield server, other, ours, nodes


def tried(puppet, lock, kind):
    """The outcome of trying once; a granted lock is released."""
    puppet.acquire("try", lock, kind=kind)
    result = outcome(puppet, "try")
    if result == "OK":
        equal(puppet.release("try"), "OK")
        puppet.free("try")
    return result


# ---- Both ways ----


@test(*LAYOUTS)
def their_lock_excludes_ours_and_ours_excludes_theirs(layout):
    with meeting(layout) as (_, other, ours, nodes):
        for (theirs, our), excludes in LAYOUTS[layout].items():
            lock = f"{theirs}-{our}"
            path = f"/app/locks/{lock}"
            assert other.ask("acquire", theirs, path)
            equal(tried(ours, lock, our), "BUSY" if excludes else "OK")
            ours.acquire(lock, lock, kind=our, lease_ms=LONG_MS, wait_ms=-1)
            wait_until(lambda: len(nodes.claims(lock)) == 2, "ours")
            if excludes:
                equal(len(ours.inspect(lock)["waiters"]), 1)
                assert not ours.seen("acquired", lock)
            assert other.ask("release")
            ours.granted(lock)
            if excludes:
                assert not other.ask("acquire", theirs, path), (theirs, our)
            other.send("wait", theirs, path)
            wait_until(lambda: len(nodes.claims(lock)) == 2, "theirs")
            assert not (excludes and other.has_answered())
            equal(ours.renew(lock), "OK")
            equal(ours.release(lock), "OK")
            assert other.answer() and other.ask("release")
            equal(nodes.claims(lock), [])


@test
def a_lock_of_others_is_shown_and_can_be_broken():
    with meeting("kazoo") as (server, other, ours, nodes):
        assert other.ask("acquire", "mutex", "/app/locks/x")
        ours.acquire("x", "x", wait_ms=-1)
        wait_until(lambda: len(nodes.claims("x")) == 2, "ours")
        shown = subprocess.run([HOLDFAST, "inspect", "--json", "x"], check=True, stdout=subprocess.PIPE,
                               env=os.environ | {"HOLDFAST_URL": url_of("kazoo", server)}).stdout
        (holder,) = json.loads(shown)["holders"]
        equal((holder["label"], holder["pid"]), ("a kazoo client", 0))
        equal(ours.break_lock("x", holder["token"]), "OK")
        token = ours.granted("x").token
        assert token > int(holder["token"]), (token, holder)
        equal(ours.inspect("x")["broken"], int(holder["token"]))
        nodes.write("x", "theirs")
        equal(ours.break_lock("x", token), "OK")
        equal(nodes.read("x"), "theirs")


@test
def a_lock_of_another_kind_at_the_same_path_is_refused():
    """Curator's own mutex does not see its readers and writers either."""
    with meeting("curator") as (_, other, ours, nodes):
        assert other.ask("acquire", "write", "/app/locks/x")
        equal(tried(ours, "x", "exclusive"), "WRONG_KIND")
        ours.acquire("x", "x", wait_ms=-1)
        equal(ours.failed("x"), "WRONG_KIND")
        equal(len(nodes.claims("x")), 1)


@test
def the_node_of_a_lock_goes_away_but_not_under_a_kazoo_client():
    """A kazoo client makes it once, and then relies on it."""
    server = Zookeeper()
    server.java.insert(1, "-Dznode.container.checkIntervalMs=100")
    with server, Nodes(server, "/app/locks") as nodes:
        for layout in ("kazoo", "curator"):
            with Puppet(PUPPET, url_of(layout, server)) as one:
                one.hold(layout, layout)
                equal(one.release(layout), "OK")
        wait_until(lambda: not nodes.exists("curator"), "the container's end")
        assert nodes.exists("kazoo")


@test
def what_a_layout_has_not_is_refused():
    nobody = SimpleNamespace(url=lambda path: f"zookeeper://127.0.0.1:1{path}")
    for layout, kinds in {"curator": ("shared", "1/2"), "curator-rw": ("1/2",), "kazoo": ("1/2",)}.items():
        url = url_of(layout, nobody)
        with Puppet(PUPPET, url) as one:
            for kind in kinds:
                one.acquire(kind, "x", kind=kind)
                equal(one.failed(kind), "UNSUPPORTED")
        with Puppet(PUPPET) as one:
            one.send("open", url, None, None, None, 1)
            equal(one.wait("failed open", "opened").words[2:3], ["UNSUPPORTED"])
    with Puppet(PUPPET) as one:
        one.send("open", url_of("redis", nobody))
        equal(one.wait("failed open", "opened").words[2:3], ["BAD_URL"])


# ---- All of them ----


class Visitor(threading.Thread):
    """Takes the lock `x` several times. Once it is killed inside, and once while it waits."""

    TURNS = 8

    def __init__(self, client, kinds, killed_at, history):
        super().__init__(daemon=True)
        self.client, self.kinds, self.history = client.__enter__(), kinds, history
        self.random, self.killed_at, self.trouble = random.Random(killed_at), killed_at, None

    def run(self):
        try:
            for turn in range(self.TURNS):
                kind = self.random.choice(self.kinds)
                if turn == self.killed_at:
                    self.visit(turn, kind, until_killed=True)
                    self.start_again()
                    self.ask(turn, kind)
                    time.sleep(self.random.random() / 2)
                    self.start_again()
                else:
                    self.visit(turn, kind)
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error

    def visit(self, turn, kind, until_killed=False):
        self.ask(turn, kind)
        token = self.enter(turn)
        hold = self.history.granted("x", token, boot_us(), shared=kind in ("read", "shared"))
        time.sleep(self.random.random() / 20)
        asked_us = boot_us()
        if self.has(turn):
            hold["until_us"] = asked_us  # until then it was certainly inside
        if not until_killed:
            self.leave(turn)

    def start_again(self):
        self.client.__exit__()
        self.client.__enter__()


class OurVisitor(Visitor):
    def ask(self, turn, kind):
        self.client.acquire(turn, "x", kind=kind, lease_ms=LEASE_MS, wait_ms=-1)

    def enter(self, turn):
        return self.client.granted(str(turn), limit_s=4 * LIMIT_S).token

    def has(self, turn):
        return self.client.left(turn) > 0

    def leave(self, turn):  # it may be lost, on a busy machine
        self.client.release(turn)


class TheirVisitor(Visitor):
    def ask(self, turn, kind):
        self.client.send("wait", kind, "/app/locks/x")

    def enter(self, turn):
        assert self.client.answer()

    def has(self, turn):
        return self.client.ask("has")

    def leave(self, turn):
        self.client.ask("release")


@test(*LAYOUTS)
def row_17_never_two_inside_whoever_is_killed(layout):
    kinds = {"curator": (("mutex",), ("exclusive",)), "kazoo": (("mutex", "write"), ("exclusive",)),
             "curator-rw": (("read", "write"), ("shared", "exclusive"))}
    theirs, ours = kinds[layout]
    history = History()
    with Zookeeper() as server, contextlib.ExitStack() as stack:
        visitors = [TheirVisitor(Other(layout, server, SESSION_MS), theirs, 2, history),
                    TheirVisitor(Other(layout, server, SESSION_MS), theirs, Visitor.TURNS, history),
                    OurVisitor(Puppet(PUPPET, url_of(layout, server)), ours, 4, history),
                    OurVisitor(Puppet(PUPPET, url_of(layout, server)), ours, Visitor.TURNS, history)]
        stack.callback(lambda: [visitor.client.__exit__() for visitor in visitors])
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        equal([visitor.trouble for visitor in visitors if visitor.trouble], [])
    sure = history.check()
    print(f"# {sure} of {len(history.holds)} holds were certain")
    assert sure >= len(history.holds) / 2


compile_curator()
main()
