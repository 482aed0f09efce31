"""Shared by the fault tests of the Redis store, in addition to servers/scene.py, which all fault tests share."""
import contextlib
import threading

from servers.history import History
from servers.process import LIMIT_S
from servers.proxy import Mode
from servers.puppet import Puppet
from servers.redis import RedisError
from servers.scene import (HOLDFAST, KINDS, LONG_MS, PUPPET, SHIM, SLACK_US, TooSlow, deadline_us, hold_or_too_slow, in_time,
                           is_lost, is_there, last_deadline_us, one_of, outcome, patient, puppets, sleep_until, sockets_of,
                           wait_until)
from servers.suite import equal

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
    """Makes the server know the scripts, so that each request has one reply."""
    with Puppet(PUPPET, server.url()) as puppet:
        for kind in ("exclusive", "shared"):
            token = puppet.hold("a", "warm-up", kind=kind).token
            puppet.renew("a")
            puppet.break_lock("warm-up", token + 1)
            puppet.release("a")
            puppet.free("a")
        puppet.inspect("warm-up")


def evict_all(server):
    """For a server whose maxmemory-policy evicts. Done in one go: a request in between would be refused."""
    with server.connect() as connection:
        words = ["CONFIG SET maxmemory 1", *["PING"] * 50, "DBSIZE", "CONFIG SET maxmemory 0"]
        connection.socket.sendall("".join(f"{line}\r\n" for line in words).encode())
        equal([connection.read() for _ in words], ["OK", *["PONG"] * 50, 0, "OK"])


@contextlib.contextmanager
def repeating(server, *words, every_s=0.002):
    """Sends the server a command repeatedly, whatever it answers, in a thread. Yields the count."""
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
    """Waits until requests with these texts are held on their way up. They stay there, with their connections; requests
    over new connections overtake them."""

    def is_held():
        held = b"".join(piece or b"" for flow in proxy.flows_of("up") for _, piece in flow.pieces)
        return all(text.encode() in held for text in texts)

    with proxy.changed:
        proxy.wait(is_held)
        proxy.modes["up"] = Mode()


def wait_given_up(proxy):
    """Waits until the client has closed a connection on which something is stranded: it now sends over another one."""
    proxy.wait(lambda: any(flow.ended and flow.pieces for flow in proxy.flows_of("up")))


def deafen(proxy, number):
    """Lets nothing reach the client over its number-th connection from now on; -1: the last."""
    with proxy.changed:
        proxy.connections[number].down.has_hole = True


# ---- The resource that a lock guards ----


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
