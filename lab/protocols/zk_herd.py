"""One ephemeral node of ZooKeeper is the lock, and every waiter watches it.

The client that creates the node has the lock. ZooKeeper deletes it when its creator's session ends, so a holder that
dies frees the lock, and no clocks are compared. All waiters are woken when the node is gone, and try again. That is
the herd: with a hundred waiters, each release wakes a hundred clients, and all but one of them go back to waiting.
Nobody knows who is next, so some client may never get its turn.
"""
from lab.protocol import Protocol
from lab.talk.zookeeper import Session


class ZkHerd(Protocol):
    name = "zk-herd"
    title = "ZooKeeper, all watch the lock"
    places = ("zookeeper",)
    has_lease = True
    needs = {"kazoo": "python3-kazoo"}

    def connect(self):
        self.zk = Session(self.ports, self.lease_s)
        self.node = f"/{self.key}"

    def lock(self):
        while not self.zk.create(self.node, ephemeral=True):
            self.zk.wait_until_gone(self.node)
        self.session = self.zk.id

    def unlock(self):
        self.zk.delete(self.node)

    def check(self):
        return self.zk.id in (self.session, None)  # while it is not connected, it cannot learn that its session is over
