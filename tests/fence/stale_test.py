#!/usr/bin/env python3
"""Writers that are stopped past their leases, in the middle of a read and a write, against each resource that checks
tokens: stale_test.py HOLDFAST PUPPET. (tests/postgres/fence_test.py does so for PostgreSQL.)

HOLDFAST_FENCE_ROUNDS says how often WRITERS of them are stopped (1). What checks a token is what users get: the calls of
the library, what the command prints, and the functions of the examples.
"""
import contextlib
import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tests")
sys.path += [str(ROOT / "examples"), "/usr/lib/python3/dist-packages"]  # kazoo is a package of Debian's
import fence_etcd
import fence_http
import fence_object_store
import fence_zookeeper
from kazoo.client import KazooClient
from servers import suite
from servers.etcd import Etcd
from servers.mariadb import MariaDB
from servers.mariadb import patient as patient_mysql
from servers.process import LIMIT_S, Process
from servers.redis import Redis
from servers.scene import HOLDFAST, LONG_MS, PUPPET, puppets
from servers.suite import equal, main, test
from servers.zookeeper import Zookeeper
from support.children import PR_SET_PDEATHSIG

WRITER = os.path.join(os.path.dirname(PUPPET), "fence-writer")  # which is built there, too
ROUNDS = int(os.environ.get("HOLDFAST_FENCE_ROUNDS", 1))
WRITERS = 10
WRITTEN, FAILED, REFUSED = 0, 1, 3  # how a writer ends
LEASE_MS = 2000
suite.LIMIT_S = 120 + 60 * ROUNDS


class Refused(Exception):
    pass


def holdfast(*words, **options):
    """Runs the command: what it prints, or Refused."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    done = subprocess.run([HOLDFAST, *map(str, words)], env=keep, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False,
                          **options)
    if done.returncode == 1:
        raise Refused
    equal(done.returncode, 0)
    return done.stdout.decode()


# ---- Resources ----
#
# Each has numbers with names. register() gives what write() takes besides the name and the number. begin() is the first part
# of a write and returns the rest of it. Resources are used in several processes: whatever they need, they open in each.


class Resource(contextlib.AbstractContextManager):
    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-stale-")))
        self.start()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        pass

    def begin(self, name, pass_, number):
        return lambda: self.write(name, pass_, number)


class CommandFile(Resource):
    """holdfast fence write, which is stopped while it reads its input."""

    def register(self, name, token):
        holdfast("fence", "check", self.folder / f"{name}.fence", name, token)
        return token

    def read(self, name):
        path = self.folder / name
        return int(path.read_text()) if path.exists() else 0

    def begin(self, name, token, number):
        process = Process()
        process.launch([HOLDFAST, "fence", "write", self.folder / name, name, token], stdin=subprocess.PIPE,
                       stderr=subprocess.DEVNULL)
        process.child.stdin.write(b"%07d" % (number // 10))
        process.child.stdin.flush()
        process.stop()

        def finish():
            process.cont()
            process.child.communicate(b"%d" % (number % 10), timeout=LIMIT_S)
            if process.child.returncode == 1:
                raise Refused
            equal(process.child.returncode, 0)

        return finish

    def write(self, name, token, number):
        self.begin(name, token, number)()

    def write_blindly(self, name, number):
        (self.folder / name).write_text(str(number))


class RedisScript(Resource):
    """holdfast fence redis, executed by redis-cli in a shell."""

    def start(self):
        self.server = self.stack.enter_context(Redis())

    def run(self, name, token, *words):
        arguments = holdfast("fence", "redis", "fences", name, token, *words)
        done = subprocess.run(["sh", "-c", f"redis-cli -e -s {self.server.socket} {arguments}"], check=False, timeout=LIMIT_S,
                              capture_output=True, text=True)
        if "FENCED" in done.stderr:
            raise Refused
        equal((done.returncode, done.stdout), (0, "OK\n"))

    def register(self, name, token):
        self.run(name, token)
        return token

    def read(self, name):
        return int(self.server.command("GET", name) or 0)

    def write(self, name, token, number):
        self.run(name, token, "SET", name, number)

    def write_blindly(self, name, number):
        self.server.command("SET", name, number)


class SqliteStatement(Resource):
    """holdfast fence sql sqlite."""

    def start(self):
        self.path = self.folder / "numbers.db"
        with self.connect() as database:
            database.execute(holdfast("schema", "--dialect", "sqlite"))
            database.execute("CREATE TABLE numbers (name PRIMARY KEY, value)")

    @contextlib.contextmanager
    def connect(self):
        database = sqlite3.connect(self.path, timeout=LIMIT_S, isolation_level=None)
        yield database
        database.close()

    def run(self, name, token, *more):
        with self.connect() as database:
            database.execute("BEGIN")
            try:
                database.execute(holdfast("fence", "sql", "sqlite", name, token))
            except sqlite3.IntegrityError as error:
                equal(str(error), "CHECK constraint failed: holdfast_token_is_stale")
                raise Refused from error
            for statement in more:
                database.execute(*statement)
            database.execute("COMMIT")

    def register(self, name, token):
        self.run(name, token)
        return token

    def read(self, name):
        with self.connect() as database:
            row = database.execute("SELECT value FROM numbers WHERE name = ?", (name,)).fetchone()
        return row[0] if row else 0

    def write(self, name, token, number):
        self.run(name, token, ("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (name, number)))

    def write_blindly(self, name, number):
        with self.connect() as database:
            database.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (name, number))


class MysqlStatement(Resource):
    """holdfast fence sql mysql."""

    def start(self):
        self.server = self.stack.enter_context(MariaDB())
        with puppets(1, patient_mysql(self.server.url())) as (one,):  # which makes the schema
            one.hold("any", "any")
        self.server.command("CREATE TABLE values_of (name VARCHAR(99) PRIMARY KEY, value INT) ENGINE = InnoDB")

    def run(self, name, token, more=""):
        guard = holdfast("fence", "sql", "mysql", name, token)
        try:
            self.server.command(f"BEGIN; {guard} {more} COMMIT")
        except Exception as error:
            assert "holdfast_token_is_stale" in str(error), error
            raise Refused from error

    def register(self, name, token):
        self.run(name, token)
        return token

    def read(self, name):
        return int(self.server.command(f"SELECT value FROM values_of WHERE name = '{name}'") or 0)

    def write(self, name, token, number):
        self.run(name, token, f"REPLACE INTO values_of VALUES ('{name}', {number});")

    def write_blindly(self, name, number):
        self.server.command(f"REPLACE INTO values_of VALUES ('{name}', {number})")


class EtcdTransaction(Resource):
    def start(self):
        self.server = self.stack.enter_context(Etcd())
        self.address = f"127.0.0.1:{self.server.members[0].port}"

    def register(self, name, token):
        fence_etcd.register(self.address, name, token)
        return token

    def read(self, name):
        return int(self.server.command("get", "--print-value-only", name) or 0)

    def write(self, name, token, number):
        fence_etcd.write(self.address, name, token, str(number))

    def write_blindly(self, name, number):
        self.server.command("put", name, number)


class ZookeeperVersion(Resource):
    def start(self):
        self.server = self.stack.enter_context(Zookeeper())

    @contextlib.contextmanager
    def connect(self):
        client = KazooClient(f"127.0.0.1:{self.server.port}", timeout=60)
        client.start(timeout=LIMIT_S)
        yield client
        client.stop()
        client.close()

    def register(self, name, token):
        with self.connect() as client:
            return fence_zookeeper.register(client, name, token)

    def read(self, name):
        with self.connect() as client:
            client.ensure_path(f"/{name}/data")
            return int(client.get(f"/{name}/data")[0] or 0)

    def write(self, name, version, number):
        with self.connect() as client:
            fence_zookeeper.write(client, name, version, str(number).encode())

    def write_blindly(self, name, number):
        with self.connect() as client:
            client.set(f"/{name}/data", str(number).encode())


class HttpHeader(Resource):
    def start(self):
        server = self.stack.enter_context(Process())
        server.launch([sys.executable, ROOT / "examples/fence_http_server.py", self.folder / "service.db"],
                      stdout=subprocess.PIPE)
        self.url = f"http://127.0.0.1:{int(server.child.stdout.readline())}/"

    def register(self, name, token):
        fence_http.read(self.url + name, name, token)
        return token

    def read(self, name):
        content, _ = fence_http.ask("GET", self.url + name, {}) or (b"0", None)
        return int(content)

    def write(self, name, token, number):
        fence_http.write(self.url + name, name, token, str(number).encode())

    def write_blindly(self, name, number):
        """A service that does not look at the order of tokens accepts any request that has one."""
        fence_http.write(self.url + name, f"nobody-{name}", 1, str(number).encode())


class ConditionalPut(HttpHeader):
    def register(self, name, token):
        return token, fence_object_store.register(self.url + name, token)[1]

    def read(self, name):
        content, _ = fence_http.ask("GET", self.url + name, {}) or (b"0\n0", None)
        return int(content.split(b"\n")[1] or 0)

    def write(self, name, ticket, number):
        fence_object_store.write(self.url + name, *ticket, str(number).encode())

    def write_blindly(self, name, number):
        super().write_blindly(name, f"0\n{number}")


RESOURCES = {
    "a file, by the command": CommandFile,
    "Redis": RedisScript,
    "SQLite": SqliteStatement,
    "MariaDB": MysqlStatement,
    "etcd": EtcdTransaction,
    "ZooKeeper": ZookeeperVersion,
    "HTTP": HttpHeader,
    "an object store": ConditionalPut,
}
REFUSALS = (Refused, fence_etcd.Refused, fence_http.Refused, fence_zookeeper.Refused)


# ---- Writers ----


class Writer:
    """A process that adds 1 to a number, and stops itself in the middle of that."""

    def __init__(self, resource, name, token):
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            end = FAILED
            try:
                end = self.add_one(resource, name, token)
            except REFUSALS:
                end = REFUSED
            finally:
                os._exit(end)

    @staticmethod
    def add_one(resource, name, token):
        """token: None if it does not check."""
        ticket = token and resource.register(name, token)
        number = resource.read(name) + 1
        finish = resource.begin(name, ticket, number) if token else lambda: resource.write_blindly(name, number)
        os.kill(os.getpid(), signal.SIGSTOP)
        finish()
        return WRITTEN

    def wait_stopped(self):
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        equal(found.si_code, os.CLD_STOPPED)

    def go_on(self):
        """How it ends."""
        os.kill(self.pid, signal.SIGCONT)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def is_unlocked(locks):
    """False if somebody was stopped inside a transaction. Nobody else can then write to the file, so no lease ends."""
    with contextlib.closing(sqlite3.connect(locks, timeout=1, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def stop_outside_transactions(process, locks):
    process.stop()
    while not is_unlocked(locks):
        process.cont()
        process.stop()


def ends_of_stale_writers(resource, checked, names):
    """How writers end that go on when another has written."""
    locks = resource.folder / "locks.db"
    with puppets(2, f"sqlite:{locks}") as (old, new):
        tokens = {name: old.hold(name, name, lease_ms=LEASE_MS, wait_ms=-1).token for name in names}
        writers = [Writer(resource, name, tokens[name] if checked else None) for name in names]
        for writer in writers:
            writer.wait_stopped()
        stop_outside_transactions(old, locks)
        for name in names:
            new.acquire(name, name, lease_ms=LONG_MS, wait_ms=-1)
        for name in names:
            ticket = resource.register(name, new.granted(name).token)  # when the lease has ended
            resource.write(name, ticket, resource.read(name) + 1)
        old.cont()
        return [writer.go_on() for writer in writers]


@test(*RESOURCES)
def row_1_a_writer_that_was_stopped_past_its_lease_is_refused(kind):
    with RESOURCES[kind]() as resource:
        for at in range(ROUNDS):
            names = [f"n{at}-{number}" for number in range(WRITERS)]
            equal(ends_of_stale_writers(resource, True, names), [REFUSED] * WRITERS)
            equal([resource.read(name) for name in names], [1] * WRITERS)
        print(f"# {kind}: {ROUNDS * WRITERS} of {ROUNDS * WRITERS} refused")
        # Without the check it overwrites what the next holder wrote: twice 1 was added.
        equal(ends_of_stale_writers(resource, False, ["blind"]), [WRITTEN])
        equal(resource.read("blind"), 1)


# ---- A file, by the library ----


class FileWriter(Process):
    def __init__(self, folder, name, how):
        self.launch([WRITER, f"sqlite:{folder}/locks.db", folder / name, name, how], stdin=subprocess.DEVNULL)

    def wait_stopped(self):
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        equal(found.si_code, os.CLD_STOPPED)

    def go_on(self):
        self.cont()
        return self.child.wait(LIMIT_S)


def stopped_file_writer(stack, folder, name, how):
    """A writer that stopped itself while a thread of its client was inside a transaction is replaced."""
    while True:
        writer = stack.enter_context(FileWriter(folder, name, how))
        writer.wait_stopped()
        if is_unlocked(folder / "locks.db"):
            return writer
        writer.kill()


def ends_of_stale_file_writers(folder, how, names):
    with contextlib.ExitStack() as stack:
        old = [stopped_file_writer(stack, folder, name, how) for name in names]
        new = [stack.enter_context(FileWriter(folder, name, "quick")) for name in names]
        equal([writer.child.wait(LIMIT_S) for writer in new], [WRITTEN] * len(names))
        return [writer.go_on() for writer in old]


@test
def row_1_a_file_refuses_a_writer_that_was_stopped_inside_hf_fence_write():
    with tempfile.TemporaryDirectory(prefix="holdfast-stale-") as folder:
        for at in range(ROUNDS):
            names = [f"n{at}-{number}" for number in range(WRITERS)]
            equal(ends_of_stale_file_writers(Path(folder), "fenced", names), [REFUSED] * WRITERS)
            equal([(Path(folder) / name).read_text() for name in names], ["1"] * WRITERS)
        print(f"# the library: {ROUNDS * WRITERS} of {ROUNDS * WRITERS} refused")
        equal(ends_of_stale_file_writers(Path(folder), "blind", ["blind"]), [WRITTEN])
        equal((Path(folder) / "blind").read_text(), "1")


main()
