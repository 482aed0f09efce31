"""One ZooKeeper server."""
from lab.place import OneServer
from servers.zookeeper import Zookeeper


class OneZookeeper(OneServer):
    name = "zookeeper"
    title = "one ZooKeeper"
    programs = {"java": "default-jre-headless", "/usr/share/java/zookeeper.jar": "zookeeper"}
    lease_s = 4.0  # of sessions: shorter ones end on a machine that is merely busy

    def new_server(self):
        return Zookeeper()
