"""kazoo's Lock: ZooKeeper's recipe, as programs in Python use it.

kazoo puts an id into the node's name, by which it finds its node again after a lost reply. Its manual says to stop
working when the connection is in doubt, and so does this client: it believes in its lock only while heartbeats are
answered. But a heartbeat is answered by the one server that the client is connected to, even if that server is cut off
from the others, which then end the session.
"""
from lab.protocol import Protocol
from lab.talk.zookeeper import Session


class Kazoo(Protocol):
    name = "kazoo"
    title = "kazoo's Lock"
    places = ("zookeeper",)
    has_lease = True
    needs = {"kazoo": "python3-kazoo"}
    follows = "zk-queue"
    mends = "A client recognises its own node, and stops when its connection is in doubt."
    mends_in = "lost-acquire"

    def connect(self):
        self.zk = Session(self.ports, self.lease_s)
        self.mutex = self.zk.kazoo.Lock(f"/{self.key}", self.id)

    def lock(self):
        self.mutex.acquire()
        self.session = self.zk.id

    def unlock(self):
        self.mutex.release()

    def check(self):
        return self.zk.id == self.session
