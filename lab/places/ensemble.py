"""Three ZooKeeper servers, each with its own network.

A server that is cut off from the others keeps serving its clients for ten seconds (syncLimit), as it does wherever
ZooKeeper is run with its example configuration.
"""
from lab.place import Place
from lab.places.zookeeper import OneZookeeper
from servers.zookeeper import Ensemble


class ThreeZookeepers(Place):
    name = "ensemble"
    title = "three ZooKeepers"
    programs = OneZookeeper.programs
    lease_s = OneZookeeper.lease_s

    def __enter__(self):
        self.servers = Ensemble(3, sync_limit=20, separable=True).__enter__()
        return self

    def __exit__(self, *_):
        self.servers.__exit__()

    @property
    def ports(self):
        return [member.port for member in self.servers.members]

    def url(self, ports):
        return "zookeeper://" + ",".join(f"127.0.0.1:{port}" for port in ports)
