"""SET NX PX with an owner, GET, then DEL: the lock says whose it is.

The value is the client's own. Before a client deletes the key, it reads the value and compares.

Reading and deleting are two commands. The lease may end between them, and then DEL meets the lock of the next holder.
"""
from lab.protocol import Protocol
from lab.talk.redis import Redis


class GetDel(Protocol):
    name = "get-del"
    title = "SET NX PX with an owner, GET + DEL"
    places = ("redis",)
    has_lease = True
    follows = "set-nx"
    mends = "The value says whose lock it is, and only its owner deletes it."
    mends_in = "stranger"

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while self.redis("SET", self.key, self.id, "NX", "PX", self.lease_ms) is None:
            self.pause()

    def unlock(self):
        if self.redis("GET", self.key) == self.id:
            self.redis("DEL", self.key)
