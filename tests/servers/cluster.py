#!/usr/bin/env python3
"""A Redis Cluster on loopback for tests: three masters, each with a replica.

    with Cluster() as cluster:
        ... cluster.url() ... cluster.hurry() ... cluster.owner(slot).kill() ... cluster.move(slot, target)
    with Cluster(proxied=True) as cluster:
        ... cluster.part([node, client]) ... cluster.heal()

    tests/servers/cluster.py [--tls] [--acl] -- program arguments

The second form runs a program with it: every {url} in its arguments becomes its URL. --tls and --acl: as in redis.py.
"""
import argparse
import contextlib
import secrets
import signal
import sys
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.process import Process, reserve_port
from servers.proxy import Proxy, owner_of
from servers.redis import Redis, RedisError, documented_user, patient
from servers.sentinel import info, wait_until

SLOTS = 16384
CALM_MS, HURRY_MS = 30000, 1500  # of silence: too long for a busy machine to cause a fail-over; short, so that one comes soon


def slot_of(key):
    """Redis's hash slot: CRC16 of the {tag}, or of the whole key."""
    text = key.encode()
    start = text.find(b"{")
    end = text.find(b"}", start + 1) if start >= 0 else -1
    if end > start + 1:
        text = text[start + 1:end]
    crc = 0
    for byte in text:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc % SLOTS


class Node(Redis):
    """proxied: everybody else reaches it through proxies, whose ports it announces."""

    def __init__(self, config, proxied=False, **options):
        super().__init__(config=config, **options)
        self.bus, self.name = reserve_port(), None
        self.proxies = [Proxy(self.port), Proxy(self.bus_port)] if proxied else []
        self.config = ["cluster-enabled yes", f"cluster-node-timeout {CALM_MS}",
                       "cluster-config-file nodes.conf", f"cluster-port {self.bus.getsockname()[1]}",
                       "cluster-allow-replica-migration no", "cluster-migration-barrier 10",
                       "repl-diskless-sync-delay 0", "repl-ping-replica-period 1", *self.config]
        if proxied:
            self.config += ["cluster-announce-ip 127.0.0.1", f"cluster-announce-port {self.seen_port}",
                            f"cluster-announce-bus-port {self.seen_bus_port}"]

    def start(self):
        for proxy in self.proxies:
            if not proxy.thread.is_alive():
                proxy.__enter__()
        super().start()

    def __exit__(self, *_):
        super().__exit__()
        for proxy in self.proxies:
            proxy.__exit__()
        self.bus.close()

    @property
    def bus_port(self):
        return self.bus.getsockname()[1]

    @property
    def seen_port(self):
        return self.proxies[0].port if self.proxies else self.port

    @property
    def seen_bus_port(self):
        return self.proxies[1].port if self.proxies else self.bus_port

    def id(self):
        self.name = self.name or self.command("CLUSTER", "MYID")
        return self.name


class Cluster:
    """config, users, tls: of each node, as in Redis. proxied: part() and heal() work."""

    def __init__(self, *, masters=3, replicas=1, config=(), proxied=False, users=(), tls=None):
        self.stack, self.proxied, self.tls = contextlib.ExitStack(), proxied, tls
        self.master_count, self.replica_count, self.config = masters, replicas, list(config)
        self.options = {"users": users, "password": secrets.token_hex(16) if users else None, "tls": tls}
        self.config += [f"masterauth {self.options['password']}"] if users else []
        self.config += ["tls-cluster yes", "tls-replication yes"] if tls else []
        self.nodes = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def add_node(self):
        node = self.stack.enter_context(Node(self.config, self.proxied, **self.options))
        node.id()
        self.nodes.append(node)
        return node

    def start(self):
        for number in range(self.master_count * (1 + self.replica_count)):
            self.add_node().command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self.hurry()  # with a short timeout, a node also meets the others soon
        masters = self.nodes[:self.master_count]
        for number, master in enumerate(masters):
            first, end = (SLOTS * n // self.master_count for n in (number, number + 1))
            master.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for node in self.nodes[1:]:
            self.meet(node)
        wait_until(lambda: all(len(self.view(node)) == len(self.nodes) for node in self.nodes), "nodes that have met")
        for number, node in enumerate(self.nodes[self.master_count:]):
            node.command("CLUSTER", "REPLICATE", masters[number % self.master_count].id())
        wait_until(self.is_settled, "a Cluster that is well")
        self.set_patience(self.nodes, CALM_MS)

    def meet(self, node):
        self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.seen_port, node.seen_bus_port)

    @staticmethod
    def view(node):
        """{id: words of its line in CLUSTER NODES}"""
        return {line.split()[0]: line.split() for line in node.command("CLUSTER", "NODES").splitlines()
                if "handshake" not in line}

    def alive(self):
        return [node for node in self.nodes if node.running()]

    def is_settled(self):
        for node in self.alive():
            if "cluster_state:ok" not in node.command("CLUSTER", "INFO"):
                return False
            replication = info(node, "replication")
            if replication["role"] == "slave" and replication["master_link_status"] != "up":
                return False
        views = [{(words[0], words[2].replace("myself,", ""), words[3], " ".join(words[8:]))
                  for words in self.view(node).values()} for node in self.alive()]
        return all(view == views[0] for view in views)

    # ---- Slots and their owners ----

    def owner(self, slot, asked=None):
        """The master of a slot, as a node that runs sees it."""
        for first, last, master, *_ in (asked or self.alive()[0]).command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.id() == master[2])
        return None

    def replica_of(self, master):
        name = master.id()
        return next(node for node in self.alive() if self.view(node)[node.id()][3] == name)

    @staticmethod
    def set_patience(nodes, ms):
        for node in nodes:
            node.command("CONFIG", "SET", "cluster-node-timeout", ms)

    def hurry(self, ms=HURRY_MS):
        """For a node that is about to fail: this much silence counts as a failure, until wait_for_promotion()."""
        self.set_patience(self.alive(), ms)

    def wait_for_promotion(self, slot, old):
        """Waits until all running nodes agree that another one has the slot; returns it."""
        def is_promoted():
            others = [node for node in self.alive() if node is not old]
            owners = {self.owner(slot, node) for node in others}
            return len(owners) == 1 and owners != {old} and \
                all("cluster_state:ok" in node.command("CLUSTER", "INFO") for node in others)
        wait_until(is_promoted, "a promotion")
        self.set_patience([node for node in self.alive() if node is not old], CALM_MS)  # that one may be stopped
        return self.owner(slot, next(node for node in self.alive() if node is not old))

    # ---- Partition ----

    def part(self, inside):
        """Cuts these nodes and clients off from all others."""
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.part(lambda address, is_inside=node in inside:
                           (owner_of(address, inside) is not None) != is_inside)

    def heal(self):
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.pass_all()

    # ---- Migration ----

    def begin_move(self, slot, target):
        source = self.owner(slot)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id())
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id())
        return source

    def move_keys(self, slot, source, target):
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            for key in keys:
                source.command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    def end_move(self, slot, source, target):
        name = target.id()
        for node in (target, source, *(node for node in self.alive() if node not in (source, target))):
            with contextlib.suppress(RedisError):  # a replica
                node.command("CLUSTER", "SETSLOT", slot, "NODE", name)

    def move(self, slot, target):
        source = self.begin_move(slot, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)
        return source

    def url(self, options="", count=3, user=None):
        login = f"{quote(user)}:{quote(self.nodes[0].password_of(user))}@" if user else ""
        hosts = ",".join(f"127.0.0.1:{node.seen_port}" for node in self.nodes[:count])
        url = f"redis{'s' if self.tls else ''}+cluster://{login}{hosts}"
        return url + (f"?ca={self.tls.ca}" + options.replace("?", "&", 1) if self.tls else options)


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a Redis Cluster.")
    parser.add_argument("--tls", action="store_true", help="all of it with TLS")
    parser.add_argument("--acl", action="store_true", help="as the user of docs/stores/redis.md")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} becomes its URL")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    users = [documented_user("acl: a Cluster")] if options.acl else []
    with contextlib.ExitStack() as stack:
        tls = stack.enter_context(Authority()).issue("server") if options.tls else None
        cluster = stack.enter_context(Cluster(users=users, tls=tls))
        program = stack.enter_context(Process())
        url = cluster.url(user="holdfast" if users else None)
        program.launch([word.replace("{url}", patient(url)) for word in options.words])
        status = program.child.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
