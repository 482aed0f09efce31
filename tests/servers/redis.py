#!/usr/bin/env python3
"""Real Redis servers for tests, on loopback, each with its own port, unix socket and folder.

    with Redis(config=["appendonly yes"]) as server:
        server.command("SET", "key", "value")
        ... server.url() ... server.stop() ... server.cont() ... server.kill() ... server.restart()

    tests/servers/redis.py [--unix | --tls] [--acl] [--nodes N] -- program arguments

The second form runs a program with a server: every {url} in its arguments becomes the server's URL, every {port} its
port, and its exit status is passed on. With --acl the URL names the user whose rights docs/stores/redis.md recommends: the first
of the code block that follows its line "<!-- acl -->". With --tls the server accepts nothing else at its port, and the
URL names the CA of its certificate. With --nodes there are that many servers, and the URL names a new set of them. The
URL gives the servers much time to answer: a machine that runs many tests is busy.

Import it as servers.redis, with tests/ in sys.path: "redis" alone is also the name of a Python package.
"""
import argparse
import contextlib
import mmap
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.process import LIMIT_S, Process, reserve_port

REDIS_PORT = 6379  # somebody's real server may be there
ANSWER_S = 10
PATIENCE = "timeout=10000&connect_timeout=10000"  # of a program that may be slow, as may the servers beside it
PAGE = Path(__file__).resolve().parents[2] / "docs/stores/redis.md"


class RedisError(Exception):
    """An error reply of the server ('-'): str() is its text."""


class Connection:
    """Speaks RESP2. Replies are str, int, None, or lists of these; bytes that are not UTF-8 are kept as
    surrogates. read() waits for one more reply, such as a message of a channel. address: the path of a unix socket, or a
    port of this host. answer_s: how long connecting, and each reply, may take."""

    def __init__(self, address, answer_s=ANSWER_S):
        is_port = isinstance(address, int)
        self.socket = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX)
        self.socket.settimeout(answer_s)
        try:
            self.socket.connect(("127.0.0.1", address) if is_port else str(address))
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def command(self, *words):
        self.send(*words)
        return self.read()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode(errors="surrogateescape")
                 for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(parts))

    def read(self):
        reply = self.read_any()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def read_any(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode(errors="surrogateescape")
        if kind == b"+":
            return rest
        if kind == b"-":
            return RedisError(rest)
        if kind == b":":
            return int(rest)
        assert kind in b"$*", line
        if rest == "-1":
            return None
        if kind == b"*":
            return [self.read_any() for _ in range(int(rest))]
        return self.file.read(int(rest) + 2)[:-2].decode(errors="surrogateescape")


class Redis(Process):
    """config: lines of redis.conf, which come last and thus win. users: lines "user NAME RULES..." of the same;
    with users, nobody else gets in (except command()). password: that of the default user, who has all rights. clock:
    the path of clock_shim.so, to run the server by a clock that step_clock() and clock_rate() change. tls: a
    Certificate (certificates.py) for the port to be one of TLS, which asks for no client certificates."""

    def __init__(self, *, config=(), users=(), password=None, clock=None, tls=None):
        self.users = [shlex.split(user)[1:] for user in users]
        self.password = password or (secrets.token_hex(16) if users else None)
        self.config = [*config, *users]
        self.tls = tls
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        self.data = self.folder / "data"
        self.socket = self.folder / "redis.sock"
        self.log = self.folder / "log"
        self.clock = Clock(clock, self.folder / "clock") if clock else None
        self.reserved = reserve_port()
        while self.reserved.getsockname()[1] == REDIS_PORT:
            self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        self.reserved.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- Running it ----

    def start(self):
        """Returns when the server answers."""
        self.data.mkdir(exist_ok=True)
        self.socket.unlink(missing_ok=True)
        lines = ["bind 127.0.0.1", f"unixsocket {self.socket}", f"dir {self.data}", "daemonize no", 'save ""', "jemalloc-bg-thread no"]
        lines += self.port_lines()
        lines += [f"requirepass {self.password}"] if self.password else []
        (self.folder / "redis.conf").write_text("\n".join([*lines, *self.config]) + "\n")
        environment = os.environ | (self.clock.environment() if self.clock else {})
        with open(self.log, "ab") as log:
            self.launch(["redis-server", self.folder / "redis.conf"], env=environment,
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_ready()

    def port_lines(self):
        return [f"port {self.port}"] if not self.tls else [
            "port 0", f"tls-port {self.port}", f"tls-cert-file {self.tls.cert}", f"tls-key-file {self.tls.key}",
            f"tls-ca-cert-file {self.tls.ca}", "tls-auth-clients no"]

    def wait_ready(self):
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.command("PING")
            except (OSError, RedisError) as error:  # not listening yet; LOADING
                if not self.running() or time.monotonic() > until:
                    raise RuntimeError(f"redis-server: {error}\n{self.log.read_text()}") from error
            time.sleep(0.005)

    def restart(self, wipe=False):
        """Restarts it on the same port and folder, after an orderly shutdown if it runs; wipe: without its data."""
        if self.running():
            self.terminate()
        if wipe:
            shutil.rmtree(self.data)
        self.start()

    # ---- Talking to it ----

    def url(self, user=None, db=0, unix=False, port=None):
        """port: of a proxy in front of the server."""
        who = ""
        if user:
            password = self.password_of(user)
            who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "") + "@"
        if unix:
            return f"redis+unix://{who}{self.socket}" + (f"?db={db}" if db else "")
        if self.tls:
            return f"rediss://{who}127.0.0.1:{port or self.port}/{db}?ca={self.tls.ca}"
        return f"redis://{who}127.0.0.1:{port or self.port}/{db}"

    def password_of(self, user):
        rules = dict((name, rules) for name, *rules in self.users)[user]
        return next((rule[1:] for rule in rules if rule.startswith(">")), None)

    def connect(self):
        """A separate connection with all rights, for what command() cannot do: MULTI, SUBSCRIBE, SELECT."""
        connection = Connection(self.socket)
        if self.password:
            connection.command("AUTH", self.password)
        return connection

    def command(self, *words):
        """Runs one command over a new connection; an error raises RedisError."""
        with self.connect() as connection:
            return connection.command(*words)

    def info(self, section="default"):
        """INFO as a dict: {"redis_version": "7.0.15", ...}."""
        lines = self.command("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    # ---- Its clock ----

    def step_clock(self, seconds):
        self.clock.change(step_us=round(seconds * 1e6))

    def clock_rate(self, rate):
        self.clock.change(ppm=round((rate - 1) * 1e6))


class Clock:
    """The file that clock_shim.c reads: a count, then one line for each change ever made, the last of which is in
    effect. The shift from the host's clock is shift_us at since_us (CLOCK_MONOTONIC), and grows by ppm from
    there."""
    LINES_MOST = 1000

    def __init__(self, shim, path):
        self.shim = shutil.copy(shim, path.parent)  # the server's user may not be able to read the clone
        self.path = path
        path.write_bytes(bytes(8 * (1 + 3 * self.LINES_MOST)))
        with open(path, "r+b") as file:
            self.numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def environment(self):
        return {"LD_PRELOAD": self.shim, "HOLDFAST_CLOCK_FILE": str(self.path)}

    def change(self, step_us=0, ppm=None):
        count = self.numbers[0]
        assert count < self.LINES_MOST
        shift_us, since_us, old_ppm = self.numbers[3 * count - 2:3 * count + 1] if count else (0, 0, 0)
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        shift_us += (now_us - since_us) * old_ppm // 1000000 + step_us
        for place, number in enumerate((shift_us, now_us, old_ppm if ppm is None else ppm)):
            self.numbers[3 * count + 1 + place] = number
        self.numbers[0] = count + 1


# ---- As a command ----


def documented_users(page=PAGE, title="acl"):
    """The users in the page's code block after this title, as lines of redis.conf. The page may write "user NAME
    RULES..." or "[redis-cli] ACL SETUSER NAME RULES...", and go on in indented lines."""
    if not page.exists():
        sys.exit(f"{page} does not exist: --acl takes the rights from there")
    block = re.search(rf"^<!-- {title} -->\n+```[^\n]*\n(.*?)^```", page.read_text(), re.M | re.S)
    if not block:
        sys.exit(f"{page} has no code block that follows a line \"<!-- {title} -->\"")
    users = []
    for line in re.sub(r"\s*\\?\n[ \t]+", " ", block[1]).splitlines():
        user = re.match(r"(?:redis-cli\s+)?(?:acl\s+setuser|user)\s+(.+)", line, re.I)
        if user:
            users.append("user " + " ".join(shlex.split(user[1])))
        elif line.strip():
            sys.exit(f"{page}: this is not \"user NAME RULES...\": {line}")
    return users


def documented_user(addition):
    """The first user, with what the page adds to it under another title."""
    (user, *_), (more,) = documented_users(), documented_users(title=addition)
    assert user.split()[:2] == more.split()[:2], more
    return " ".join([user, *more.split()[2:]])


def patient(url):
    return url + ("&" if "?" in url else "?") + PATIENCE


def run_with_server(words, unix, users, tls):
    with contextlib.ExitStack() as stack:
        certificate = stack.enter_context(Authority()).issue("server") if tls else None
        server = stack.enter_context(Redis(users=users, tls=certificate))
        program = stack.enter_context(Process())
        url = server.url(user=users[0].split()[1] if users else None, unix=unix)
        program.launch([word.replace("{url}", patient(url)).replace("{port}", str(server.port)) for word in words])
        status = program.child.wait()
        return status if status >= 0 else 128 - status


def set_url(servers, options="", name="test"):
    """The URL of a set of these servers, which may be reached in several ways unless it has no name."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"quorum+redis://{hosts}?{options}" + (f"&id={name}" if name else "")


def run_with_set(words, count):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(count)]
        program = stack.enter_context(Process())
        url = patient(set_url(servers, "init=yes&node_timeout=10000"))
        program.launch([word.replace("{url}", url) for word in words])
        status = program.child.wait()
        return status if status >= 0 else 128 - status


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a Redis server.")
    parser.add_argument("--unix", action="store_true", help="a URL with the unix socket")
    parser.add_argument("--tls", action="store_true", help="a URL with TLS")
    parser.add_argument("--acl", action="store_true", help="as the user of docs/stores/redis.md")
    parser.add_argument("--nodes", type=int, help="a URL with a set of so many servers")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} and {port} become the server's")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if options.nodes:
        sys.exit(run_with_set(options.words, options.nodes))
    users = documented_users() if options.acl else []
    sys.exit(run_with_server(options.words, options.unix, users, options.tls))


if __name__ == "__main__":
    main()
