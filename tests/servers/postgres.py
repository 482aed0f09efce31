#!/usr/bin/env python3
"""Real PostgreSQL servers for tests, on loopback, each with its own port, unix socket and folder.

    with Postgres(config=["synchronous_commit = off"]) as server:
        server.command("SELECT 1")
        ... server.url() ... server.stop() ... server.cont() ... server.crash() ... server.restart()

    tests/servers/postgres.py [--unix|--tls|--pooler] [--role] [--scheme SCHEME] [--config LINE] -- program arguments

The second form runs a program with a server: every {url} in its arguments becomes the server's URL for holdfast,
{database} the one for libpq, and its exit status is passed on. The URL for holdfast gives the server much time to
answer: a machine that runs many tests is busy.

PostgreSQL refuses to run as root. So root runs it as nobody. The data of a new server is copied from a folder that is
made once.
"""
import argparse
import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import database
from servers.certificates import Authority
from servers.pgbouncer import Pooler
from servers.process import LIMIT_S, Process, reserve_port
from servers.redis import Clock
from servers.template import template

SCHEMA = Path(__file__).resolve().parents[2] / "src/store/postgres/schema.sql"
USER = "postgres"
PATIENCE = "timeout=20000&connect_timeout=20000"
CONFIG = ["listen_addresses = '127.0.0.1'", "max_connections = 200", "shared_buffers = '16MB'",
          "dynamic_shared_memory_type = mmap",  # files of its folder, which are removed with it
          "fsync = off"]  # a server that is killed loses nothing by this


class PostgresError(Exception):
    """An error of the server, or of the tool: str() is its text."""


documented = functools.partial(database.documented, "postgres")


@functools.cache
def programs():
    """The folder of initdb, postgres and psql. (The psql in Debian's PATH is a script that looks for the real one.)"""
    folders = [Path(folder) for folder in os.environ["PATH"].split(":")]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return next((folder / "initdb").resolve().parent for folder in folders if (folder / "initdb").exists())


def read_stat(pid):
    """The state of a process, the pid of its parent, and so on; [] if it is gone. Everybody may read that."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


class Postgres(Process):
    """config: lines to add to postgresql.conf. clock: the shim that can change its clock (servers.redis.Clock).
    follows: makes this one a standby of that server; through: the port of a proxy by which it is reached.
    """

    def __init__(self, config=(), clock=None, follows=None, through=None):
        self.config = list(config)
        self.follows = follows
        if follows:
            self.config.append(f"primary_conninfo = 'host=127.0.0.1 port={through or follows.port} user={USER}'")
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith("PG") and key != "LD_PRELOAD"} | {"LC_ALL": "C"}
        self.clock = Clock(clock, self.folder / "clock") if clock else None
        self.as_user = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self.as_user = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups",
                            "--pdeathsig", "QUIT", "--"]  # a change of user resets that

    def __enter__(self):
        try:
            self.create()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.shut_down(signal.SIGQUIT)
        self.reserved.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- Running it ----

    def create(self):
        if self.follows:
            self.run("pg_basebackup", "-D", self.data, "-h", self.follows.folder, "-p", str(self.follows.port), "-U", USER,
                     "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        else:
            made = template("postgres", str(programs()), self.make_data)
            subprocess.run(["cp", "-a", made, self.data], check=True)

    def make_data(self, folder):
        owner = self.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        self.run("initdb", "-D", folder, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions")

    def run(self, tool, *words):
        done = subprocess.run([*self.as_user, programs() / tool, *words],
                              env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PostgresError(done.stdout + done.stderr)

    def start(self):
        """Returns when the server answers."""
        lines = [*CONFIG, f"port = {self.port}", f"unix_socket_directories = '{self.folder}'", *self.config]
        (self.data / "postgresql.auto.conf").write_text("\n".join(lines) + "\n")
        with open(self.log, "ab") as log:
            environment = self.environment | (self.clock.environment() if self.clock else {})
            self.launch([*self.as_user, programs() / "postgres", "-D", self.data], env=environment,
                        cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_ready()

    def wait_ready(self):
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.command("SELECT 1")
            except PostgresError as error:  # not listening yet; starting up
                if not self.running() or time.monotonic() > until:
                    raise RuntimeError(f"postgres: {error}\n{self.log.read_text()}") from error
            time.sleep(0.02)

    def shut_down(self, number=signal.SIGINT):
        """SIGINT: in order, without waiting for clients. SIGQUIT: at once."""
        if self.running():
            self.child.send_signal(number)
            self.cont()
            self.child.wait(LIMIT_S)

    def crash(self):
        """kill -9 of every process of the server, as if its host had lost power, except that the kernel keeps what it
        had. All must be gone before the next start, which otherwise fails."""
        self.stop()  # so that it starts no other process meanwhile
        others = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if read_stat(pid)[1:2] == [str(self.pid)]]
        self.kill()
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(read_stat(pid)[:1] not in ([], ["Z"]) for pid in others):
            time.sleep(0.01)

    def restart(self):
        """Restarts it on the same port and folder."""
        self.shut_down()
        self.start()

    def use_tls(self, certificate):
        """Restarts it with this certificate, on everything except the unix socket."""
        owner = self.folder.stat()
        for name in ("cert", "key"):
            path = shutil.copy(getattr(certificate, name), self.folder / name)
            os.chown(path, owner.st_uid, owner.st_gid)
            os.chmod(path, 0o600)
        self.config += ["ssl = on", f"ssl_cert_file = '{self.folder}/cert'", f"ssl_key_file = '{self.folder}/key'"]
        (self.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all trust\n")
        self.restart()

    def make_role(self):
        """Makes a user with exactly the documented rights, and the schema that it needs; returns its name."""
        self.command(SCHEMA.read_text())
        self.command("CREATE ROLE app LOGIN;" + documented("rights"))
        return "app"

    def promote(self):
        """Makes a standby the primary; it then has what it had received."""
        self.command(f"SELECT pg_promote(true, {LIMIT_S})")

    def restore(self, copy):
        """Replaces the data by a copy; the server must be shut down."""
        owner = self.data.stat()
        shutil.rmtree(self.data)
        copy.rename(self.data)
        for path in [self.data, *self.data.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)

    # ---- Talking to it ----

    def url(self, user=USER, unix=False, port=None, database="postgres"):
        """port: of a proxy in front of the server."""
        if unix:
            return f"postgres://{user}@/{database}?host={self.folder}&port={self.port}"
        return f"postgres://{user}@127.0.0.1:{port or self.port}/{database}"

    def command(self, sql, user=USER, database="postgres"):
        """The answer as psql prints it: a line for each row, '|' between columns."""
        done = subprocess.run([programs() / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-p", str(self.port),
                               "-U", user, "-d", database, "-c", sql],
                              env=self.environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise PostgresError(done.stderr)
        return done.stdout.rstrip("\n")


class Session(database.Dialogue):
    """psql, as a client that is sent one statement after the other.

        with Session(server) as one:
            one.say("BEGIN")
            one.say("UPDATE t SET n = 1")   # the SQLSTATE: "00000"
            one.rows, one.count             # of the last statement
    """

    def __init__(self, server, user=USER, database="postgres"):  # pylint: disable=redefined-outer-name
        super().__init__([programs() / "psql", "-XAtq", "-h", server.folder, "-p", str(server.port), "-U", user, "-d", database],
                         server.environment)
        self.count = 0

    def ask(self, sql):
        self.tell(f"{sql};\n\\echo @ :SQLSTATE :ROW_COUNT\n")

    def answer(self):
        self.rows = []
        for line in self.child.stdout:
            if line.startswith("@ "):
                state, self.count = line.split()[1], int(line.split()[2])
                return state
            self.rows.append(line.rstrip("\n"))
        raise PostgresError(f"psql ended with {self.child.wait(LIMIT_S)}")


class Shared(database.Shared):
    new_server = Postgres
    prefix = "holdfast."
    transaction = "xmin::text"
    listens = "query LIKE 'LISTEN%'"
    drop_all = "DROP SCHEMA holdfast CASCADE"
    droppable = ("SCHEMA holdfast CASCADE", "FUNCTION holdfast.tell", "TABLE holdfast.claims CASCADE")
    fill = ("CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'full' USING ERRCODE = '53100'; "
            "END$$; CREATE TRIGGER full_disk BEFORE INSERT ON holdfast.claims FOR EACH ROW EXECUTE FUNCTION full_disk()")
    make_room = "DROP FUNCTION full_disk CASCADE"
    writes_late = ("wal_writer_delay = 10s",)
    fine = "00000"
    expire = "until = now()"
    documented = staticmethod(documented)

    def deadlocks(self, name):
        return int(self.server.command(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{name}'"))

    def waits_for_row(self, name):
        return self.sessions(name, "wait_event_type = 'Lock'")

    def count_call(self, seq, op, number, expected=None, name="hits", life_us=0):
        return (f"SELECT * FROM holdfast.count('{name}', {op}::smallint, {number}, {'NULL' if expected is None else expected}, "
                f"{life_us}, '{'1' * 32}', {seq})")

    def cells(self, row):
        return [cell or None for cell in row.split("|")]

    def session(self, name):
        return Session(self.server, database=name)

    def of_sessions(self, what, name, where):
        return int(self.server.command(f"SELECT count({what}) FROM pg_stat_activity WHERE "
                                       f"datname = '{name}' AND application_name = 'holdfast' AND {where}"))

    def sessions(self, name, where="true"):
        return self.of_sessions("*", name, where)

    def end_sessions(self, name, where="true"):
        return self.of_sessions("pg_terminate_backend(pid)", name, where)


# ---- As a command ----


def patient(url):
    return url + ("&" if "?" in url else "?") + PATIENCE


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a PostgreSQL server.")
    parser.add_argument("--unix", action="store_true", help="a URL with the unix socket")
    parser.add_argument("--config", action="append", default=[], metavar="LINE", help="a line for postgresql.conf")
    parser.add_argument("--scheme", default="lease", help="for-update, or lease")
    parser.add_argument("--role", action="store_true", help="as a user with the documented rights")
    parser.add_argument("--tls", action="store_true", help="over TLS, with a certificate that is verified")
    parser.add_argument("--pooler", action="store_true", help="through pgbouncer, which pools transactions")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} and {database} become URLs")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Postgres(config=options.config))
        user = server.make_role() if options.role else USER
        port = stack.enter_context(Pooler(server)).port if options.pooler else None
        url = server.url(user=user, unix=options.unix, port=port)
        store = f"{patient(url)}&scheme={options.scheme}"
        if options.tls:
            authority = stack.enter_context(Authority())
            server.use_tls(authority.issue("server"))
            store += f"&sslmode=verify-full&sslrootcert={authority.ca}"
        program = stack.enter_context(Process())
        program.launch([word.replace("{url}", store).replace("{database}", url) for word in options.words])
        status = program.child.wait()
        sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
