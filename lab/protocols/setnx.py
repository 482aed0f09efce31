"""SETNX + DEL: the first lock that people built on Redis.

SETNX creates the key only if it does not exist, in one atomic step. The client that creates it has the lock, until DEL.

The key says neither whose lock it is nor when it ends. If the holder dies, nobody can lock again; and anybody who calls
DEL frees it.
"""
from lab.protocol import Protocol
from lab.talk.redis import Redis


class Setnx(Protocol):
    name = "setnx"
    title = "SETNX + DEL"
    places = ("redis",)

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while self.redis("SETNX", self.key, "locked") == 0:
            self.pause()

    def unlock(self):
        self.redis("DEL", self.key)
