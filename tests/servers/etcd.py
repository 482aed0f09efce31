#!/usr/bin/env python3
"""Real etcd clusters for tests, of one member or several, on loopback, each with its own ports and folders.

    with Etcd(members=3, tls=authority) as cluster:
        cluster.command("put", "a", "b")
        ... cluster.url() ... cluster.leader().stop() ... cluster.members[0].kill() ... cluster.members[0].start()
        ... cluster.cut(cluster.leader()) ...

    tests/servers/etcd.py [--members N] [--tls] [--role] -- program arguments

The second form runs a program with a cluster: every {url} in its arguments becomes the cluster's URL, and its exit status
is passed on. The URL gives the cluster much time to answer: a machine that runs many tests is busy. With --role, the
program's user has the rights of docs/stores/etcd.md and no others.
"""
import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.process import LIMIT_S, Process, reserve_port
from servers.proxy import Proxy, owner_of

PATIENCE = "timeout=20000&connect_timeout=20000"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "stores" / "etcd.md"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a member that is killed loses nothing there


class EtcdError(Exception):
    """An error of etcdctl: str() is its text."""


class Member(Process):
    """One member of a cluster. It can be stopped, killed and started again, with its data."""

    def __init__(self, cluster, number):
        self.cluster, self.name = cluster, f"m{number}"
        self.folder = cluster.folder / self.name
        self.reserved, self.peer_reserved = reserve_port(), reserve_port()
        self.port, self.peer_port = self.reserved.getsockname()[1], self.peer_reserved.getsockname()[1]
        self.proxy = Proxy(self.peer_port) if cluster.separable else None  # in front of it, for the others
        self.options = []
        self.log = cluster.folder / f"{self.name}.log"

    def __exit__(self, *_):
        self.kill()
        self.reserved.close()
        self.peer_reserved.close()

    def address(self):
        return f"{'https' if self.cluster.certificate else 'http'}://127.0.0.1:{self.port}"

    def peer_address(self):
        """Where it listens."""
        return f"http://127.0.0.1:{self.peer_port}"

    def known_address(self):
        """Where the others look for it."""
        return f"http://127.0.0.1:{self.proxy.port}" if self.proxy else self.peer_address()

    def metric(self, name):
        with urllib.request.urlopen(f"{self.address()}/metrics", timeout=LIMIT_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        raise KeyError(name)

    def wipe(self):
        """Makes it join another cluster."""
        shutil.rmtree(self.folder)

    def move_to(self, disk):
        """Starts it again with its data on a servers.disk.Disk."""
        self.kill()
        shutil.move(self.folder, disk.mount / "data")
        self.folder = disk.mount / "data"
        self.start()

    def begin_write(self):
        """Starts a write through this member, without waiting for it."""
        subprocess.Popen(self.cluster.etcdctl("put", "noise", "noise", members=[self]), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, options=()):
        """Returns at once: one member of several does not answer while it is alone."""
        cluster = self.cluster
        words = ["etcd", "--name", self.name, "--data-dir", self.folder, "--log-level", "error", "--logger", "zap",
                 "--log-outputs", "stderr", "--listen-client-urls", self.address(), "--advertise-client-urls", self.address(),
                 "--listen-peer-urls", self.peer_address(), "--initial-advertise-peer-urls", self.known_address(),
                 "--initial-cluster", ",".join(f"{m.name}={m.known_address()}" for m in cluster.members),
                 "--initial-cluster-token", cluster.folder.name,
                 "--bcrypt-cost", "4",  # each client logs in, and by default that takes the server a tenth of a second
                 *cluster.options, *self.options, *options]
        if cluster.certificate:
            words += ["--cert-file", cluster.certificate.cert, "--key-file", cluster.certificate.key,
                      "--trusted-ca-file", cluster.certificate.ca, "--client-cert-auth"]
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("ETCD") and key != "LD_PRELOAD"}
        with open(self.log, "ab") as log:
            self.launch(words, env=environment, cwd=cluster.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class Etcd:
    """members: how many. tls: the Authority for certificates, of the members and of clients. options: of etcd. durable: on a
    disk. separable: members can be cut off from the others."""

    def __init__(self, members=1, tls=None, options=(), durable=False, separable=False):
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-etcd-", dir=None if durable else MEMORY))
        self.certificate = tls.issue("etcd") if tls else None
        self.mine = tls.issue("client") if tls else None
        # A lease is not shorter than one and a half times the time for an election. One member needs none.
        self.options = ["--heartbeat-interval", "10", "--election-timeout", "100"] if members == 1 else \
            ["--heartbeat-interval", "100", "--election-timeout", "1000"]
        self.options += options
        self.separable = separable
        self.stack = contextlib.ExitStack()
        self.members = []
        for number in range(members):
            self.members.append(Member(self, number))

    def __enter__(self):
        try:
            for member in self.members:
                if member.proxy:
                    self.stack.enter_context(member.proxy)
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
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_ready(self):
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.command("get", "ready")
            except EtcdError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"etcd: {error}\n{self.members[0].log.read_text()}") from error
            time.sleep(0.02)

    def url(self, ports=None, user=None, options=""):
        """ports: of proxies in front of the members."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports or [member.port for member in self.members])
        if self.mine:
            options = "&".join(filter(None, [f"ca={self.mine.ca}&cert={self.mine.cert}&key={self.mine.key}", options]))
        return f"etcd{'s' if self.mine else ''}://{user + '@' if user else ''}{hosts}{'?' if options else ''}{options}"

    def etcdctl(self, *words, members=None, user=None):
        """The words of a command."""
        words = ["--endpoints", ",".join(member.address() for member in members or self.members), *map(str, words)]
        if self.mine:
            words = ["--cacert", self.mine.ca, "--cert", self.mine.cert, "--key", self.mine.key, *words]
        return ["etcdctl", *(["--user", user] if user else []), *map(str, words)]

    def command(self, *words, **how):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCDCTL")}
        done = subprocess.run(self.etcdctl(*words, **how), env=environment | {"ETCDCTL_API": "3"}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise EtcdError(done.stdout + done.stderr)
        return done.stdout.rstrip("\n")

    def keys(self, prefix="holdfast/"):
        return self.command("get", "--prefix", "--keys-only", prefix).split()

    def revision(self):
        return json.loads(self.command("get", "none", "-w", "json"))["header"]["revision"]

    def save(self):
        """A snapshot, for `restore`."""
        snapshot = self.folder / "snapshot"
        self.command("snapshot", "save", snapshot)
        return snapshot

    def restore(self, snapshot):
        """Restores a cluster of one member: later writes are gone."""
        member, = self.members
        member.kill()
        member.wipe()
        self.command("snapshot", "restore", snapshot, "--data-dir", member.folder, "--name", member.name,
                     "--initial-cluster", f"{member.name}={member.peer_address()}",
                     "--initial-cluster-token", self.folder.name,
                     "--initial-advertise-peer-urls", member.peer_address())
        member.start()
        self.wait_ready()

    def leader(self):
        """The member that reports itself as the leader."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            for member in self.members:
                if not member.running():
                    continue
                try:
                    status = json.loads(self.command("endpoint", "status", "-w", "json", members=[member]))[0]["Status"]
                except (EtcdError, IndexError):
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return member
            time.sleep(0.05)
        raise AssertionError("nobody leads")

    def make_leader(self, member):
        until = time.monotonic() + 2 * LIMIT_S
        while (leader := self.leader()) is not member:
            assert time.monotonic() < until, f"{member.name} does not become the leader"
            with contextlib.suppress(EtcdError):
                identity = self.command("endpoint", "status", members=[member]).split(", ")[1]
                self.command("move-leader", identity, members=[leader])
            time.sleep(0.1)

    def cut(self, member):
        """Cuts this member off from the others; its clients still reach it."""
        for other in self.members:
            if other is member:
                other.proxy.blackhole()
            else:
                other.proxy.part(lambda address: owner_of(address, [member]) is not None)

    def as_documented(self):
        """Runs the commands of the page that make a user; returns its user:password."""
        for line in PAGE.read_text().split("<!-- role -->")[1].splitlines():
            words = shlex.split(line)
            if words[:1] == ["etcdctl"]:
                self.command(*words[1:])
        return "holdfast:secret"


def patient(url):
    return url + ("&" if "?" in url else "?") + PATIENCE


def main():
    parser = argparse.ArgumentParser(description="Runs a program with an etcd cluster.")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="over TLS, with client certificates")
    parser.add_argument("--role", action="store_true", help="as a user with the documented rights")
    parser.add_argument("--durable", action="store_true", help="with its data on a disk")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} becomes the cluster's URL, {port} the port of a member")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with Authority() as authority, \
            Etcd(options.members, authority if options.tls else None, durable=options.durable) as cluster, \
            Process() as program:
        user = cluster.as_documented() if options.role else None
        url = patient(cluster.url(user=user))
        program.launch([word.replace("{url}", url).replace("{port}", str(cluster.members[0].port)) for word in options.words])
        status = program.child.wait()
        sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
