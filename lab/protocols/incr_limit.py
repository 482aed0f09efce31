"""INCR, then EXPIRE: a rate limiter, from the page of INCR in Redis' manual.

The first client in a window creates the counter and gives it an end. A client that counts beyond the limit waits for
the next window. Here the limit is one.

It is SETNX and EXPIRE again. A client that dies between the two commands leaves a counter that never ends, and nobody
gets through any more. The manual says so on the same page, and puts both commands into one script.
"""
import math

from lab.protocol import Protocol
from lab.talk.redis import Redis


class IncrLimit(Protocol):
    name = "incr-limit"
    title = "INCR, then EXPIRE: a limiter"
    places = ("redis",)
    has_lease = True
    is_exclusive = False

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        """One pass."""
        while self.redis("INCR", self.key) > 1:
            self.pause()
        self.redis("EXPIRE", self.key, math.ceil(self.lease_s))

    def unlock(self):
        """Does nothing: the window ends on its own."""
