"""SETNX + GET + GETSET: the value of the key is the deadline. For years this was the recipe in Redis' own manual.

SETNX stores the deadline together with the lock, so there is no moment without one. A client that finds a deadline that
has passed replaces it with GETSET, which returns the old value in the same step. Of several clients that try, only the
first gets the old deadline back, and has the lock.

Every client compares the deadline with its own clock, so all clocks must agree. The losers of GETSET have already
replaced the winner's deadline with theirs. And since a deadline does not say whose it is, all that a client can do
before it unlocks is look at its clock, as the manual demands.
"""
import time

from lab.protocol import Protocol
from lab.talk.redis import Redis


class Getset(Protocol):
    name = "getset"
    title = "SETNX, GET and GETSET"
    places = ("redis",)
    has_lease = True
    follows = "setnx-expire"
    mends = "The lock has an end from the first moment on, because its deadline is its value."
    mends_in = "crash-between"

    deadline = 0

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while not self.try_lock():
            self.pause()

    def try_lock(self):
        self.deadline = time.time() + self.lease_s
        if self.redis("SETNX", self.key, self.deadline) == 1:
            return True
        if not is_over(self.redis("GET", self.key)):
            return False
        self.deadline = time.time() + self.lease_s
        return is_over(self.redis("GETSET", self.key, self.deadline))

    def unlock(self):
        if not is_over(self.deadline):
            self.redis("DEL", self.key)


def is_over(deadline):
    """None: the key was deleted meanwhile."""
    return deadline is None or float(deadline) <= time.time()
