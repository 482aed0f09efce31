"""Sets of servers, for the tests of the quorum store.

Where a node's silence must not decide the result, nodes get plenty of time (TIMEOUT_MS), so that a test depends
on what a node answers and not on the speed of the machine."""
import contextlib
import select

from faults.scene import LONG_MS, keys, value_of, wait_until
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.redis import Redis, set_url
from servers.suite import equal

TIMEOUT_MS = 10000
RENEWED_MS = 9000  # a lease that even a busy machine renews in time
MINORITY, MAJORITY = 2, 3  # of five
AOF = ["appendonly yes", "appendfsync always"]  # a node keeps what it has acknowledged

# For each kind of lock that a set has, a holder and a waiter that must wait for it.
KINDS = {"exclusive": ("exclusive", "exclusive"), "shared": ("shared", "exclusive"),
         "excluded": ("exclusive", "shared")}


@contextlib.contextmanager
def nodes(count=5, **options):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Redis(**options)) for _ in range(count)]


@contextlib.contextmanager
def proxies(servers):
    """A proxy in front of each server."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Proxy(server.port)) for server in servers]


def new_set(servers, timeout_ms=TIMEOUT_MS, more="", name="test"):
    """The URL of a set of servers, or of the proxies in front of them, all of which vote at once."""
    return set_url(servers, f"init=yes&node_timeout={timeout_ms}{more}", name)


def key(name):
    return keys(name)["K"]


def votes(servers, name):
    """The owner that each running node has voted for."""
    return [value_of(server, name) for server in servers if server.running()]


def all_voted(servers, name):
    return None not in votes(servers, name)


def nothing_left(servers, name):
    return not any(server.command("EXISTS", *(keys(name)[letter] for letter in "KQWHI")) for server in servers
                   if server.running())


def why(puppet, lock):
    """How an acquire failed, and the text."""
    line = puppet.wait(("acquired", lock), ("failed", lock))
    equal(line.words[0], "failed")
    return line.words[2], " ".join(line.words[3:])


def names_all(text, servers):
    """The text mentions each of these."""
    for server in servers:
        assert f"127.0.0.1:{server.port}: " in text, text


def winner(waiting):
    """The index of the puppet that gets the lock: one of them does, sooner or later."""
    while True:
        for number, puppet in waiting.items():
            if puppet.seen("acquired", str(number)):
                return number
            assert not puppet.seen("failed", str(number)), puppet.lines
        files = {puppet.child.stdout: puppet for puppet in waiting.values()}
        for file in select.select(list(files), [], [], LIMIT_S)[0]:
            files[file].read()


# ---- A lock of each kind ----


def hold_all(puppet, servers, lease_ms=LONG_MS):
    """A lock of each kind, on all nodes; their tokens."""
    tokens = {name: puppet.hold(name, name, kind=kind, lease_ms=lease_ms).token for name, (kind, _) in KINDS.items()}
    wait_until(lambda: all(all_voted(servers, name) for name in KINDS), "all votes")
    return tokens


def take_all(puppet, tokens):
    """Each is free, and its next token is larger."""
    for name, token in tokens.items():
        grant = puppet.hold(f"{name}-next", name, kind=KINDS[name][1], lease_ms=LONG_MS, wait_ms=-1)
        assert grant.token > token, (name, grant.token, token)


def refuse_all(puppet):
    for name, (_, other) in KINDS.items():
        puppet.acquire(name, name, kind=other)
        equal(puppet.failed(name), "BUSY")
