#!/usr/bin/env python3
"""A master, its replicas and the sentinels that watch them, on loopback, for tests.

    with Sentinels() as scene:
        ... scene.url() ... scene.hurry() ... scene.master.kill() ... scene.wait_for_switch() ... scene.sentinels[0].kill()

    tests/servers/sentinel.py [--tls] [--acl] -- program arguments

The second form runs a program with them: every {url} in its arguments becomes their URL. --tls and --acl: as in
redis.py, and also for the sentinels.
"""
import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.process import LIMIT_S, Process
from servers.redis import Redis, RedisError, documented_user, documented_users, patient

SERVICE = "orders"
CALM_MS, HURRY_MS = 30000, 1000  # of silence: too long for a busy machine to cause a fail-over; short, so that one comes soon
PASSWORD = "HOLDFAST_TEST_PASSWORD"  # the variable


def wait_until(condition, what, limit_s=2 * LIMIT_S):
    until = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError, RedisError, ConnectionError):
            if condition():
                return
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.05)


def login_at_sentinels(user):
    """The options of a URL whose password is in a variable."""
    return f"?sentinel_user={quote(user)}&sentinel_password_env={PASSWORD}"


def info(server, section):
    lines = server.command("INFO", section).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


class Sentinel(Redis):
    """One sentinel, which watches a master: "127.0.0.1 6379"."""

    def __init__(self, master, quorum, config=(), **options):
        super().__init__(**options, config=[f"sentinel monitor {SERVICE} {master} {quorum}",
                                            f"sentinel down-after-milliseconds {SERVICE} {CALM_MS}",
                                            f"sentinel failover-timeout {SERVICE} 4000",
                                            f"sentinel parallel-syncs {SERVICE} 1", *config])

    def start(self):
        self.data.mkdir(exist_ok=True)
        self.socket.unlink(missing_ok=True)
        path = self.folder / "redis.conf"
        if not path.exists():  # it keeps its state there
            lines = ["bind 127.0.0.1", f"unixsocket {self.socket}", f"dir {self.data}", "daemonize no",
                     *self.port_lines(), *self.config]
            lines += [f"requirepass {self.password}"] if self.password else []
            path.write_text("\n".join(lines) + "\n")
        with open(self.log, "ab") as log:
            self.launch(["redis-server", path, "--sentinel"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.command("PING") == "PONG", "a sentinel")

    def names(self):
        """The port of the master that it names."""
        return int(self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


class Sentinels:
    """config: of the servers; sentinel_config: of the sentinels. users, tls: of the servers, as in Redis;
    sentinel_users: of the sentinels, which have the same tls. The passwords are those of the default users. announce:
    called with an ExitStack and a server, returns the port by which everybody sees it (a proxy's). host: the
    sentinels' name for the master."""

    def __init__(self, *, replicas=1, sentinels=3, config=(), sentinel_config=(), announce=None,
                 users=(), server_password=None, sentinel_users=(), sentinel_password=None, tls=None, host="127.0.0.1"):
        self.stack = contextlib.ExitStack()
        self.replica_count, self.sentinel_count = replicas, sentinels
        self.announce, self.tls, self.host = announce, tls, host
        self.server_password = server_password or (secrets.token_hex(16) if users else None)
        self.sentinel_password = sentinel_password or (secrets.token_hex(16) if sentinel_users else None)
        self.server_options = {"users": users, "password": self.server_password, "tls": tls}
        self.sentinel_options = {"users": sentinel_users, "password": self.sentinel_password, "tls": tls}
        both = ["tls-replication yes"] if tls else []
        self.config = [*config, *both, *([f"masterauth {self.server_password}"] if self.server_password else [])]
        self.sentinel_config = [*sentinel_config, *both]
        if self.server_password:
            self.sentinel_config.append(f"sentinel auth-pass {SERVICE} {self.server_password}")
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
        base = ["repl-diskless-sync-delay 0", "repl-ping-replica-period 1", "repl-timeout 5", *self.config]
        for number in range(1 + self.replica_count):
            server = Redis(config=base, **self.server_options)
            if self.announce:
                server.config += ["replica-announce-ip 127.0.0.1",
                                  f"replica-announce-port {self.announce(self.stack, server)}"]
            if number:
                server.config.append(f"replicaof 127.0.0.1 {self.seen_port(self.servers[0])}")
            self.servers.append(self.stack.enter_context(server))
        for number in range(self.sentinel_count):
            sentinel = Sentinel(f"{self.host} {self.seen_port(self.servers[0])}", self.sentinel_count // 2 + 1,
                                self.sentinel_config, **self.sentinel_options)
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

    def set_patience(self, ms):
        for sentinel in self.sentinels:
            if sentinel.running():
                sentinel.command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", ms)

    def hurry(self):
        """For a master that is about to fail: until wait_for_switch(), a short silence counts as a failure."""
        self.set_patience(HURRY_MS)

    def wait_for_switch(self, old):
        """Waits until most of the sentinels name another master, and it is one; returns it."""
        def is_switched():
            named = [sentinel.names() for sentinel in self.sentinels if sentinel.running()]
            return all(port != self.seen_port(old) for port in named) and \
                self.master.command("ROLE")[0] == "master"
        wait_until(is_switched, "another master")
        self.set_patience(CALM_MS)
        return self.master

    def url(self, options="", user=None, password=None, database=None):
        """user: one of the servers'."""
        password = self.servers[0].password_of(user) if user else password
        login = f"{quote(user or '')}:{quote(password)}@" if password else ""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        url = f"redis{'s' if self.tls else ''}+sentinel://{login}{hosts}/{SERVICE}" + (f"/{database}" if database else "")
        return url + (f"?ca={self.tls.ca}" + options.replace("?", "&", 1) if self.tls else options)


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a master, a replica and three sentinels.")
    parser.add_argument("--tls", action="store_true", help="all of them with TLS")
    parser.add_argument("--acl", action="store_true", help="as the users of docs/stores/redis.md")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} becomes their URL")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    users = [documented_user("acl: servers with sentinels")] if options.acl else []
    sentinel_users = documented_users(title="acl: sentinels") if options.acl else []
    with contextlib.ExitStack() as stack:
        tls = stack.enter_context(Authority()).issue("server") if options.tls else None
        scene = stack.enter_context(Sentinels(users=users, sentinel_users=sentinel_users, tls=tls))
        program = stack.enter_context(Process())
        url = scene.url(login_at_sentinels("holdfast") if options.acl else "", user="holdfast" if options.acl else None)
        password = {PASSWORD: scene.sentinels[0].password_of("holdfast")} if options.acl else {}
        program.launch([word.replace("{url}", patient(url)) for word in options.words], env=os.environ | password)
        status = program.child.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
