"""Redlock: the lock is on a majority of five independent Redis servers, as its author published it in 2014.

A client asks the servers one after the other, and does not wait long for any of them. If a majority granted the lock, and
the time that this took leaves something of the lease, the client has the lock for the rest of it. If not, it unlocks
all of them, including those that did not answer, and tries again after a random time. So a server may die, and there is
no replica that could know less than its master.

A majority today must still be that majority tomorrow. A server that restarts empty, or whose clock jumps, votes a second
time. And a client that is paused after it has looked at its clock knows nothing of it; there is no token that would tell
its writes from those of the next holder. (Martin Kleppmann, "How to do distributed locking", 2016.)
"""
import random
import time

from lab.protocol import Protocol
from lab.protocols.set_lua import UNLOCK
from lab.talk.redis import Redis

NODE_S = 0.05  # the time that one server may take: far less than the lease
RETRY_S = 0.2
CLOCK_DRIFT = 0.01


class Redlock(Protocol):
    name = "redlock"
    title = "Redlock"
    places = ("redlock",)
    has_lease = True
    follows = "set-lua"
    mends = "No single server, and no fail-over, decides about the lock."
    mends_in = "failover"

    valid_until = 0

    def connect(self):
        self.servers = [Redis(port, answer_s=NODE_S, again_s=0) for port in self.ports]

    def lock(self):
        while not self.try_lock():
            self.unlock()
            time.sleep(random.uniform(0, RETRY_S))

    def try_lock(self):
        start = time.monotonic()
        granted = [ask(server, "SET", self.key, self.id, "NX", "PX", self.lease_ms) for server in self.servers]
        self.valid_until = start + self.lease_s - (self.lease_s * CLOCK_DRIFT + 0.002)
        return granted.count("OK") > len(self.servers) / 2 and self.check()

    def check(self):
        return time.monotonic() < self.valid_until

    def unlock(self):
        for server in self.servers:
            ask(server, "EVAL", UNLOCK, 1, self.key, self.id)


def ask(server, *words):
    """None: it did not answer in time."""
    try:
        return server(*words)
    except OSError:
        return None
