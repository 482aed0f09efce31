"""Curator's InterProcessMutex: ZooKeeper's recipe, as programs in Java use it. clients/Curator.java is the client.

Curator invented what kazoo took over: an id in the node's name, by which a node is found again whose creation was never
answered, and the advice to stop working when the connection is in doubt. So it has the same weak point: a heartbeat
that one server answers on its own.
"""
import subprocess

from lab import paths
from lab.protocol import Protocol
from servers.zookeeper import JAVA

SOURCE = paths.HERE / "clients/Curator.java"
RECIPES = "/usr/share/java/curator-recipes.jar"  # it names the others that it needs
JARS = f"{RECIPES}:/usr/share/java/slf4j-nop.jar"


class Curator(Protocol):
    name = "curator"
    title = "Curator's InterProcessMutex"
    places = ("zookeeper",)
    has_lease = True
    programs = {"javac": "default-jdk-headless", RECIPES: "libcurator-recipes-java"}
    follows = "zk-queue"
    mends = "A client recognises its own node, and stops when its connection is in doubt."
    mends_in = "lost-acquire"

    @classmethod
    def prepare(cls, folder):
        cls.classes = folder
        subprocess.run(["javac", "-proc:none", "-cp", JARS, "-d", folder, SOURCE], check=True)

    @classmethod
    def command(cls, settings):
        servers = ",".join(f"127.0.0.1:{port}" for port in settings["ports"])
        return [*JAVA[:JAVA.index("-cp")], "-cp", f"{cls.classes}:{JARS}", "Curator", servers, f"/{settings['key']}",
                round(settings["lease_s"] * 1000), settings["name"], settings["witness"]]
