"""One ZooKeeper server."""
from lab.place import Place
from servers.zookeeper import Zookeeper


class OneZookeeper(Place):
    name = "zookeeper"
    title = "one ZooKeeper"
    programs = {"java": "default-jre-headless", "/usr/share/java/zookeeper.jar": "zookeeper"}
    lease_s = 4.0  # of sessions: shorter ones end on a machine that is only busy

    def __enter__(self):
        self.server = Zookeeper().__enter__()
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    @property
    def ports(self):
        return [self.server.port]

    def url(self, ports):
        return self.server.url(ports[0])
