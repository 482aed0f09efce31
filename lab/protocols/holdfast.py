"""holdfast, through its package for Python.

A lock has a lease that the library renews, an owner, and a token that is larger for every later holder. Waiters form a
queue, and the store wakes the first. Every request may be repeated after a lost reply, because it carries the number of
its attempt. A hold ends for its own program before the store may give the lock to somebody else. A pause that comes
between the program's last check and its write is beyond any lock; that is what the token is for.
"""
import holdfast

from lab.protocol import Protocol


class Holdfast(Protocol):
    name = "holdfast"
    title = "holdfast"
    places = ("sqlite", "redis", "replicated", "redlock", "postgres", "postgres-rows", "mariadb", "mariadb-rows",
              "zookeeper", "etcd")
    has_lease = True
    has_token = True
    always_says_where = True

    client = hold = None

    def connect(self):
        if not self.client:
            self.client = holdfast.open(self.url, wait_lease=max(3, self.lease_s))
            # It connects now, and not when it locks: with another lock, since the first lease decides how long a
            # ZooKeeper session is.
            self.client.acquire(f"hello-{self.id}", ttl=self.lease_s).release()

    def lock(self):
        self.hold = self.client.acquire(self.key, ttl=self.lease_s)
        return self.hold.token

    def unlock(self):
        if self.hold:  # without it there is nothing to release
            self.hold.release()

    def check(self):
        try:
            self.hold.check()
        except holdfast.Error:
            return False
        return True
