"""SETNX + EXPIRE: the lock gets an end, in a second command.

EXPIRE makes Redis delete the key after some time, so the lock of a dead holder becomes free.

There is a moment between the two commands. A client that dies in it, or whose EXPIRE is lost, leaves a lock that never
ends. And any DEL still frees the lock, even a late one that hits the lock of the next holder.
"""
import math

from lab.protocol import Protocol
from lab.talk.redis import Redis


class SetnxExpire(Protocol):
    name = "setnx-expire"
    title = "SETNX, then EXPIRE"
    places = ("redis",)
    has_lease = True
    follows = "setnx"
    mends = "The lock of a holder that died becomes free after a while."
    mends_in = "crash-holding"

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while self.redis("SETNX", self.key, "locked") == 0:
            self.pause()
        self.redis("EXPIRE", self.key, math.ceil(self.lease_s))

    def unlock(self):
        self.redis("DEL", self.key)
