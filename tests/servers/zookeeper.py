#!/usr/bin/env python3
"""Real ZooKeeper servers for tests, on loopback, each with its own ports and folder.

    with Zookeeper() as server:
        ... server.url() ... server.stop() ... server.cont() ... server.crash() ... server.start()

    with Ensemble(3, separable=True) as ensemble:
        ... ensemble.url() ... ensemble.leader().crash() ... ensemble.cut(member) ... ensemble.lag(300) ... ensemble.heal()

    tests/servers/zookeeper.py [--ensemble] [--tls] [--login] [--layout NAME] -- program arguments

The last form runs a program with one server, or with an ensemble of three: every {url} in its arguments becomes the
URL, and the program's exit status is passed on. The URL gives the servers much time to answer: a machine that runs
many tests is busy.
"""
import argparse
import contextlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.process import LIMIT_S, Process, reserve_port
from servers.proxy import Proxy, owner_of

PATIENCE = "timeout=20000&connect_timeout=20000"
JARS = ["zookeeper", "slf4j-simple", "netty-codec", "netty-handler", "netty-transport", "netty-buffer", "netty-common",
        "netty-resolver", "netty-transport-native-epoll", "netty-transport-native-unix-common"]
JAVA = ["java", "-Xms48m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1",
        "-Xshare:auto", "-Djava.net.preferIPv4Stack=true", "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=0", "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NIOServerCnxnFactory",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dzookeeper.fastleader.maxNotificationInterval=1000",  # a server that waits for votes asks again; 60 s by default
        "-cp", ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS)]

class Zookeeper(Process):
    """One server. config: lines to add to its configuration. tls: a CA (servers.certificates) that gives it a
    certificate; its clients then use TLS, and need certificates if client_auth is "need"."""

    def __init__(self, config=(), tick_ms=500, tls=None, client_auth="none"):
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-zookeeper-"))
        self.log = self.folder / "log"
        self.reserved = [reserve_port()]
        self.port = self.reserved[0].getsockname()[1]
        self.config = [f"tickTime={tick_ms}", "maxClientCnxns=0", "4lw.commands.whitelist=*",
                       "minSessionTimeout=1000", "maxSessionTimeout=120000",
                       f"dataDir={self.folder}/data", *config]
        self.java = list(JAVA)
        self.tls = tls
        if tls:
            self.use_tls(client_auth)

    def __enter__(self):
        try:
            self.create()
            self.start()
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        for reserved in self.reserved:
            reserved.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create(self):
        (self.folder / "data").mkdir()

    def use_tls(self, client_auth):
        """Sets up TLS, which needs Netty, a PEM file with both key and certificate, and a separate port."""
        self.reserved.append(reserve_port())
        self.secure_port = self.reserved[-1].getsockname()[1]
        certificate = self.tls.issue("zookeeper")
        store = self.folder / "key.pem"
        store.write_text(Path(certificate.key).read_text() + Path(certificate.cert).read_text())
        self.config += [f"secureClientPort={self.secure_port}", "secureClientPortAddress=127.0.0.1",
                        f"ssl.keyStore.location={store}", f"ssl.trustStore.location={self.tls.ca}",
                        "ssl.trustStore.type=PEM", f"ssl.clientAuth={client_auth}"]
        self.java = [word.replace("NIOServerCnxnFactory", "NettyServerCnxnFactory") for word in self.java]

    def start(self):
        (self.folder / "zoo.cfg").write_text("\n".join([*self.config, f"clientPort={self.port}",
                                                        "clientPortAddress=127.0.0.1"]) + "\n")
        with open(self.log, "ab") as log:
            self.launch([*self.java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"],
                        cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def crash(self):
        """kill -9."""
        self.kill()

    def fill(self):
        """Makes its disk full from now on: no log file can grow. It notices when it writes."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def restart(self):
        self.kill()
        self.start()
        self.wait_ready()

    def wait_ready(self):
        until = time.monotonic() + 2 * LIMIT_S
        while not self.mode():
            if not self.running() or time.monotonic() > until:
                raise RuntimeError(f"zookeeper does not answer\n{self.log.read_text()}")
            time.sleep(0.05)

    def word(self, word):
        """The answer to one of its four-letter commands; "" if there is none."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return ""

    def mode(self):
        """standalone, leader, follower; "": it does not serve."""
        lines = [line for line in self.word("srvr").splitlines() if line.startswith("Mode: ")]
        return lines[0].removeprefix("Mode: ") if lines else ""

    def url(self, port=None, login="", path="", others=()):
        """port: of a proxy in front of the server. others: members of the same ensemble."""
        if self.tls:
            hosts = ",".join(f"localhost:{server.secure_port}" for server in (self, *others))
            return f"zookeepers://{login}{hosts}{path}?ca={self.tls.ca}"
        hosts = ",".join(f"127.0.0.1:{port}" for port in (port or self.port, *(other.port for other in others)))
        return f"zookeeper://{login}{hosts}{path}"


class Ensemble:
    """Several servers that elect a leader. separable: there are proxies between them, so that one can be cut off from
    the others while its clients still reach it."""

    def __init__(self, count=3, config=(), tick_ms=500, sync_limit=10, tls=None, separable=False):
        self.members = [Zookeeper(["initLimit=20", f"syncLimit={sync_limit}", *config], tick_ms, tls) for _ in range(count)]
        self.separable = separable
        self.proxies = []  # for each member, in front of its two ports for the others
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self.create()
            for member in self.members:
                member.start()
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.__exit__()
        self.stack.close()

    def create(self):
        ports = []  # of each member, two for the others
        for member in self.members:
            member.reserved += [reserve_port(), reserve_port()]
            ports.append([reserved.getsockname()[1] for reserved in member.reserved[-2:]])
            if self.separable:
                self.proxies.append([self.stack.enter_context(Proxy(port)) for port in ports[-1]])
        known = [[proxy.port for proxy in proxies] for proxies in self.proxies] or ports
        for number, member in enumerate(self.members, 1):
            member.create()
            (member.folder / "data/myid").write_text(str(number))
            for other in range(1, len(self.members) + 1):
                here, there = (ports if other == number else known)[other - 1]
                member.config.append(f"server.{other}=127.0.0.1:{here}:{there}")

    def wait_ready(self):
        """Waits until there is a leader, and every running member follows it."""
        for member in self.members:
            if member.running():
                member.wait_ready()

    def members_that(self, mode):
        """The leader, now or soon: a busy member may not answer at once."""
        until = time.monotonic() + LIMIT_S
        while not (found := [member for member in self.members if member.mode() == mode]):
            assert time.monotonic() < until, f"no {mode}"
        return found

    def leader(self):
        return self.members_that("leader")[0]

    def followers(self):
        return self.members_that("follower")

    def cut(self, member):
        """Cuts this member off from the others."""
        assert self.separable
        for other, proxies in zip(self.members, self.proxies):
            for proxy in proxies:
                if other is member:
                    proxy.blackhole()
                else:
                    proxy.part(lambda address: owner_of(address, [member]) is not None)

    def lag(self, lag_ms):
        """Delays what the leader sends to the others by this much."""
        self.proxies[self.members.index(self.leader())][0].delay(lag_ms, "down")

    def heal(self):
        for proxies in self.proxies:
            for proxy in proxies:
                proxy.pass_all()

    def url(self, login="", path=""):
        return self.members[0].url(login=login, path=path, others=self.members[1:])


# ---- As a client ----


class Nodes:
    """A session that looks at the nodes of a server, and deletes some. parent: of the locks."""

    CHILDREN, DELETE, EXISTS, GET, SET = 8, 2, 3, 4, 5

    def __init__(self, server, parent="/holdfast/locks"):
        self.parent = parent
        self.socket = socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
        self.exchange(struct.pack(">iqiqi16sb", 0, 0, 30000, 0, 16, bytes(16), 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.ask(-11, b"")
        self.socket.close()

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def exchange(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def ask(self, operation, body):
        """The error and the rest of the reply."""
        reply = self.exchange(struct.pack(">ii", 1, operation) + body)
        return struct.unpack(">i", reply[12:16])[0], reply[16:]

    @staticmethod
    def text(text):
        return struct.pack(">i", len(text.encode())) + text.encode()

    def claims(self, lock):
        """The nodes of the lock's holders and waiters, in order."""
        error, rest = self.ask(self.CHILDREN, self.text(f"{self.parent}/{lock}") + b"\0")
        names = []
        for _ in range(0 if error else struct.unpack(">i", rest[:4])[0]):
            size = struct.unpack(">i", rest[4:8])[0]
            names.append(rest[8:8 + size].decode())
            rest = rest[4 + size:]
        return sorted(names, key=lambda name: int(name[-10:]))

    def exists(self, lock):
        """The lock's own node."""
        return self.ask(self.EXISTS, self.text(f"{self.parent}/{lock}") + b"\0")[0] == 0

    def read(self, lock):
        """The data of the lock's own node."""
        error, rest = self.ask(self.GET, self.text(f"{self.parent}/{lock}") + b"\0")
        assert not error, f"{lock} has no node"
        return rest[4:4 + struct.unpack(">i", rest[:4])[0]].decode()

    def write(self, lock, data):
        error, _ = self.ask(self.SET, self.text(f"{self.parent}/{lock}") + self.text(data) + struct.pack(">i", -1))
        assert not error, f"{lock} has no node"

    def delete(self, lock, claim=""):
        """A claim, or the lock's own node."""
        path = f"{self.parent}/{lock}" + (f"/{claim}" if claim else "")
        return self.ask(self.DELETE, self.text(path) + struct.pack(">i", -1))[0] == 0


# ---- As a command ----


def patient(url):
    return url + ("&" if "?" in url else "?") + PATIENCE


def main():
    parser = argparse.ArgumentParser(description="Runs a program with ZooKeeper.")
    parser.add_argument("--ensemble", action="store_true", help="three servers")
    parser.add_argument("--tls", action="store_true", help="a URL with TLS")
    parser.add_argument("--login", action="store_true", help="a URL with a user and a password, and a chroot")
    parser.add_argument("--durable", action="store_true", help="it waits for its disk; one server")
    parser.add_argument("--layout", help="whose locks are shared; in a chroot")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} and {port} become the server's")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        tls = stack.enter_context(Authority()) if options.tls else None
        server = Ensemble(tls=tls) if options.ensemble else Zookeeper(tls=tls)
        if options.durable:
            server.java.insert(1, "-Dzookeeper.forceSync=yes")
            server.java.remove("-Dzookeeper.forceSync=no")
        stack.enter_context(server)
        program = stack.enter_context(Process())
        path = "/apps/one" if options.login or options.layout else ""
        url = patient(server.url(login="tester:secret@" if options.login else "", path=path))
        url += f"&layout={options.layout}" if options.layout else ""
        program.launch([word.replace("{url}", url).replace("{port}", str(getattr(server, "port", ""))) for word in options.words])
        status = program.child.wait()
        sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
