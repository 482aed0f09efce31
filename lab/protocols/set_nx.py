"""SET NX PX: lock and lease in one command, which Redis has had since 2.6.12 (2013).

There is no longer a moment without an end, and only the server's clock decides when the lease is over.

But the value is the same for everybody. A holder that comes back after its lease deletes the lock of the next one.
"""
from lab.protocol import Protocol
from lab.talk.redis import Redis


class SetNx(Protocol):
    name = "set-nx"
    title = "SET NX PX + DEL"
    places = ("redis",)
    has_lease = True
    follows = "getset"
    mends = "One command sets the lock and its lease, and clients need no clocks."
    mends_in = "client-clocks"

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while self.redis("SET", self.key, "locked", "NX", "PX", self.lease_ms) is None:
            self.pause()

    def unlock(self):
        self.redis("DEL", self.key)
