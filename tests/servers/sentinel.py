#!/usr/bin/env python3
"""A master, its replicas and the sentinels that watch them, on loopback, for tests.

    with Sentinels() as scene:
        ... scene.url() ... scene.master.kill() ... scene.wait_for_switch() ... scene.sentinels[0].kill()

    tests/servers/sentinel.py -- program arguments

The second form runs a program with them: every {url} in its arguments becomes their URL.
"""
import argparse
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.process import LIMIT_S, Process
from servers.redis import Redis, RedisError

SERVICE = "orders"
DOWN_AFTER_MS = 1000


def wait_until(condition, what, limit_s=2 * LIMIT_S):
    until = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError, RedisError, ConnectionError):
            if condition():
                return
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.05)


def info(server, section):
    lines = server.command("INFO", section).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


class Sentinel(Redis):
    """One of them, which watches the master at a port."""

    def __init__(self, port, quorum, config=(), down_after_ms=DOWN_AFTER_MS):
        super().__init__(config=[f"sentinel monitor {SERVICE} 127.0.0.1 {port} {quorum}",
                                 f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
                                 f"sentinel failover-timeout {SERVICE} 4000",
                                 f"sentinel parallel-syncs {SERVICE} 1", *config])

    def start(self):
        self.data.mkdir(exist_ok=True)
        self.socket.unlink(missing_ok=True)
        path = self.folder / "redis.conf"
        if not path.exists():  # it writes down there what it knows
            lines = ["bind 127.0.0.1", f"port {self.port}", f"unixsocket {self.socket}", f"dir {self.data}",
                     "daemonize no", *self.config]
            path.write_text("\n".join(lines) + "\n")
        with open(self.log, "ab") as log:
            self.launch(["redis-server", path, "--sentinel"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.command("PING") == "PONG", "a sentinel")

    def names(self):
        """The port of the master that it names."""
        return int(self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


class Sentinels:
    """config: of the servers; sentinel_config: of the sentinels; the passwords: those that are in there. announce: called
    with an ExitStack and a server, says under which port everybody sees it (a proxy's)."""

    def __init__(self, *, replicas=1, sentinels=3, config=(), sentinel_config=(), announce=None,
                 down_after_ms=DOWN_AFTER_MS, server_password=None, sentinel_password=None):
        self.stack = contextlib.ExitStack()
        self.replica_count, self.sentinel_count = replicas, sentinels
        self.config, self.sentinel_config, self.announce = list(config), list(sentinel_config), announce
        self.down_after_ms = down_after_ms
        self.server_password, self.sentinel_password = server_password, sentinel_password
        self.servers, self.sentinels = [], []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        base = [*self.config, "repl-diskless-sync-delay 0", "repl-ping-replica-period 1", "repl-timeout 5"]
        for number in range(1 + self.replica_count):
            server = Redis(config=base)
            server.password = self.server_password
            if self.announce:
                server.config += ["replica-announce-ip 127.0.0.1",
                                  f"replica-announce-port {self.announce(self.stack, server)}"]
            if number:
                server.config.append(f"replicaof 127.0.0.1 {self.seen_port(self.servers[0])}")
            self.servers.append(self.stack.enter_context(server))
        for number in range(self.sentinel_count):
            sentinel = Sentinel(self.seen_port(self.servers[0]), self.sentinel_count // 2 + 1, self.sentinel_config,
                                self.down_after_ms)
            sentinel.password = self.sentinel_password
            self.sentinels.append(self.stack.enter_context(sentinel))
        wait_until(self.is_settled, "replicas in step and sentinels that know of each other")

    @staticmethod
    def seen_port(server):
        return next((int(line.split()[1]) for line in server.config if line.startswith("replica-announce-port")),
                    server.port)

    def is_settled(self):
        alive = [sentinel for sentinel in self.sentinels if sentinel.running()]
        if info(self.servers[0], "replication").get("connected_slaves") != str(self.replica_count):
            return False
        for sentinel in alive:
            flat = sentinel.command("SENTINEL", "MASTER", SERVICE)
            known = dict(zip(flat[::2], flat[1::2]))
            if int(known["num-slaves"]) < self.replica_count or known["flags"] != "master" or \
                    int(known["num-other-sentinels"]) < self.sentinel_count - 1:
                return False
        return all(info(server, "replication").get("master_link_status") == "up" for server in self.servers[1:])

    @property
    def master(self):
        """The server that the sentinels name."""
        port = next(sentinel for sentinel in self.sentinels if sentinel.running()).names()
        return next(server for server in self.servers if self.seen_port(server) == port)

    @property
    def replica(self):
        master = self.master
        return next(server for server in self.servers if server is not master)

    def wait_for_switch(self, old):
        """Until most of the sentinels name another master, and that is one; returns it."""
        def is_switched():
            named = [sentinel.names() for sentinel in self.sentinels if sentinel.running()]
            return all(port != self.seen_port(old) for port in named) and \
                self.master.command("ROLE")[0] == "master"
        wait_until(is_switched, "another master")
        return self.master

    def url(self, options="", user=None, password=None, database=None):
        login = f"{quote(user or '')}:{quote(password)}@" if password else ""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{hosts}/{SERVICE}" + (f"/{database}" if database else "") + options


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a master, a replica and three sentinels.")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} becomes their URL")
    words = parser.parse_args().words
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with Sentinels() as scene, Process() as program:
        program.launch([word.replace("{url}", scene.url()) for word in words])
        status = program.child.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
