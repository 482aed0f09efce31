"""ZooKeeper's recipe: a queue of ephemeral nodes, in which each client watches the node before its own.

Every client creates a node, to whose name ZooKeeper appends a rising number. The lowest number has the lock. A release
wakes one client, the next in line, however many wait.

The node's name does not say whose it is. So a client whose create was done, but never answered, cannot find its node:
it creates another, and waits behind itself forever.
"""
from lab.protocol import Protocol
from lab.talk.zookeeper import Session


class ZkQueue(Protocol):
    name = "zk-queue"
    title = "ZooKeeper, each watches its predecessor"
    places = ("zookeeper",)
    has_lease = True
    needs = {"kazoo": "python3-kazoo"}
    follows = "zk-herd"
    mends = "A release wakes only the next in line."
    mends_in = "herd"

    node = None

    def connect(self):
        self.zk = Session(self.ports, self.lease_s)
        self.folder = f"/{self.key}"
        self.zk.create(self.folder)

    def lock(self):
        path = self.zk.create(f"{self.folder}/lock-", ephemeral=True, sequence=True)
        self.node = path.removeprefix(f"{self.folder}/")
        while predecessor := self.predecessor():
            self.zk.wait_until_gone(f"{self.folder}/{predecessor}")
        self.session = self.zk.id

    def predecessor(self):
        queue = self.zk.children(self.folder)
        place = queue.index(self.node)
        return queue[place - 1] if place > 0 else None

    def unlock(self):
        if self.node:  # there is no other node that it could delete
            self.zk.delete(f"{self.folder}/{self.node}")

    def check(self):
        return self.zk.id in (self.session, None)  # while it is not connected, it cannot learn that its session is over
