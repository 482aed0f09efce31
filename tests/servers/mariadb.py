#!/usr/bin/env python3
"""Real MariaDB servers for tests, on loopback, each with its own port, unix socket and folder.

    with MariaDB(config=["--sync-binlog=1"]) as server:
        server.command("SELECT 1")
        ... server.url() ... server.stop() ... server.cont() ... server.crash() ... server.restart()

    tests/servers/mariadb.py [--unix | --tls] [--role] [--scheme SCHEME] [--config OPTION] -- program arguments

The second form runs a program with a server: every {url} in its arguments becomes the server's URL, and its exit
status is passed on. The URL gives the server much time to answer: a machine that runs many tests is busy. With --role, the
program's user has the documented rights, and no others; the schema is printed by the command, which lies in the folder
above the program's.

MariaDB refuses to run as root. So root runs it as nobody. The data of a new server is copied from a folder that is made
once.
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
from servers.process import LIMIT_S, Process, reserve_port
from servers.redis import Clock
from servers.template import template

DATABASE = "locks"
PASSWORD = "s3cret"
PATIENCE = "timeout=20000&connect_timeout=20000"
CONFIG = ["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=300", "--skip-ssl",
          "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M", "--innodb-fast-shutdown=2", "--aria-pagecache-buffer-size=1M",
          "--key-buffer-size=1M", "--performance-schema=OFF",
          "--innodb-flush-method=nosync"]  # a server that is killed loses nothing by this
REPLICATED = ["--log-bin=binlog", "--server-id=1"]


documented = functools.partial(database.documented, "mysql")


class MariaDBError(Exception):
    """An error of the server, or of the tool: str() is its text."""


def nobody():
    """The user who runs servers if the tests run as root; None: the user who runs the tests."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def as_user():
    user = nobody()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig", "KILL",
            "--"] if user else []  # a change of user resets the signal that a process gets when its parent dies


def program(name):
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")


def make_data(folder):
    done = subprocess.run([program("mariadb-install-db"), "--no-defaults", f"--datadir={folder}", "--skip-test-db",
                           "--auth-root-authentication-method=normal", "--innodb-log-file-size=4M",
                           *([f"--user={nobody().pw_name}"] if nobody() else [])],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise MariaDBError(done.stdout + done.stderr)


def version():
    return subprocess.run([program("mariadbd"), "--no-defaults", "--version"], capture_output=True, text=True,
                          check=True).stdout


class MariaDB(Process):
    """config: options to add. clock: the shim that can change its clock (servers.redis.Clock). tls: its certificate
    (servers.certificates). follows: makes this one a replica of that server, which has the options of REPLICATED;
    through: the port of a proxy by which it is reached."""

    def __init__(self, config=(), clock=None, tls=None, follows=None, through=None):
        self.config = list(config)
        self.follows, self.through = follows, through
        if follows:
            self.config += [*REPLICATED, "--server-id=2", "--read-only"]
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-mariadb-"))
        self.data, self.log, self.socket = self.folder / "data", self.folder / "log", self.folder / "socket"
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"} | {"LC_ALL": "C"}
        self.clock = Clock(clock, self.folder / "clock") if clock else None
        self.tls = tls
        if tls:
            self.config += ["--ssl", f"--ssl-cert={self.folder}/cert", f"--ssl-key={self.folder}/key"]

    def __enter__(self):
        try:
            self.create()
            self.start()
            if self.follows:
                self.follow()
                return self
            self.command(f"CREATE DATABASE {DATABASE}", database="mysql")
            self.command(f"CREATE USER holder@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO holder@'%'")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        self.reserved.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- Running it ----

    def own(self, *paths):
        if nobody():
            for path in paths:
                os.chown(path, nobody().pw_uid, nobody().pw_gid)

    def create(self):
        for name in ("cert", "key") if self.tls else ():
            shutil.copy(getattr(self.tls, name), self.folder / name)
            self.own(self.folder / name)
        shutil.copytree(template("mariadb", version(), make_data), self.data)
        self.own(self.folder, self.data, *self.data.rglob("*"))

    def start(self):
        """Returns when the server answers."""
        with open(self.log, "ab") as log:
            environment = self.environment | (self.clock.environment() if self.clock else {})
            self.launch([*as_user(), program("mariadbd"), "--no-defaults", *CONFIG, f"--datadir={self.data}",
                         f"--tmpdir={self.data}",  # which a server empties when it starts
                         f"--socket={self.socket}", f"--port={self.port}", f"--pid-file={self.folder}/pid", *self.config],
                        env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.command("SELECT 1", database="mysql")
            except MariaDBError as error:  # not listening yet; starting up
                if not self.running() or time.monotonic() > until:
                    raise RuntimeError(f"mariadbd: {error}\n{self.log.read_text()}") from error
            time.sleep(0.02)

    def follow(self):
        """Replicates from the first event of the server's log."""
        self.command(f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {self.through or self.follows.port},"
                     f" master_user = 'holder', master_password = '{PASSWORD}', master_use_gtid = slave_pos; START SLAVE",
                     database="mysql")

    def promote(self):
        """Makes a replica the primary; it then has what it had received."""
        self.command("STOP SLAVE IO_THREAD", database="mysql")
        until = time.monotonic() + LIMIT_S
        while "Slave has read all relay log" not in self.command("SHOW SLAVE STATUS", database="mysql"):
            assert time.monotonic() < until, self.command("SHOW SLAVE STATUS", database="mysql")
            time.sleep(0.02)
        self.command("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF", database="mysql")

    def shut_down(self):
        if self.running():
            self.child.send_signal(signal.SIGTERM)
            self.cont()
            self.child.wait(LIMIT_S)

    def crash(self):
        """kill -9, as if its host had lost power, except that the kernel keeps what it had."""
        self.kill()

    def restart(self):
        """Restarts it on the same port and folder."""
        self.shut_down()
        self.start()

    def restore(self, copy):
        """Replaces the data by a copy; the server must be shut down."""
        shutil.rmtree(self.data)
        copy.rename(self.data)
        self.own(self.data, *self.data.rglob("*"))

    # ---- Talking to it ----

    def url(self, user=f"holder:{PASSWORD}", unix=False, port=None, database=DATABASE, scheme="mysql"):
        """port: of a proxy in front of the server."""
        if unix:
            return f"{scheme}://{user}@/{database}?socket={self.socket}"
        return f"{scheme}://{user}@127.0.0.1:{port or self.port}/{database}"

    def command(self, sql, database=DATABASE, user="root", password=""):
        """The answer as the client prints it: a line for each row, tabs between columns."""
        done = subprocess.run(["mariadb", "--no-defaults", "-NBr", f"--socket={self.socket}", f"--user={user}",
                               f"--password={password}", database],
                              input=sql, env=self.environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise MariaDBError(done.stderr)
        return done.stdout.rstrip("\n")

    def make_role(self, holdfast, database=DATABASE):
        """Makes the user "app" with exactly the documented rights, in the schema that the command prints; returns the
        user."""
        printed = subprocess.run([holdfast, "schema", "--dialect", "mariadb"], capture_output=True, text=True, check=True,
                                 timeout=LIMIT_S).stdout
        self.command(printed, database=database)
        self.command(f"CREATE OR REPLACE USER app@'%' IDENTIFIED BY '{PASSWORD}';" + documented("rights"), database=database)
        return f"app:{PASSWORD}"

    def sessions(self, where="true"):
        """The numbers of the sessions of clients."""
        return self.command(f"SELECT id FROM information_schema.processlist WHERE user <> 'root' AND {where}").split()

    def end_sessions(self, where="true", how=lambda: "KILL"):
        """Ends them, or their statements; returns how many there were."""
        found = self.sessions(where)
        for number in found:
            with contextlib.suppress(MariaDBError):  # it may have ended
                self.command(f"{how()} {number}")
        return len(found)


class Session(database.Dialogue):
    """mariadb, as a client that is sent one statement after the other.

        with Session(server) as one:
            one.say("BEGIN")
            one.say("UPDATE t SET n = 1")   # the number of its error, 0 if there is none
            one.rows                        # of the last statement
    """

    def __init__(self, server, user="root", password="", database=DATABASE):  # pylint: disable=redefined-outer-name
        super().__init__(["mariadb", "--no-defaults", "-NBr", "--unbuffered", "--force", f"--socket={server.socket}",
                          f"--user={user}", f"--password={password}", database], server.environment)

    def ask(self, sql):
        """Only a statement that uses a table makes the server forget earlier errors."""
        forget = "SELECT 1 FROM information_schema.schemata WHERE false"
        self.tell(f"{sql};\nSHOW ERRORS;\n{forget};\nSELECT '@';\n")

    def answer(self):
        self.rows, error = [], 0
        for line in self.child.stdout:
            if line == "@\n":
                return error
            if line.startswith("Error\t"):
                error = int(line.split("\t")[1])
            else:
                self.rows.append(line.rstrip("\n"))
        raise MariaDBError(f"the client ended with {self.child.wait(LIMIT_S)}")


class Shared(database.Shared):
    new_server = MariaDB
    prefix = "holdfast_"
    transaction = "since_us"
    listens = "info LIKE '%GET_LOCK%'"
    drop_all = "DROP TABLE holdfast_claims, holdfast_locks"
    droppable = ("TABLE holdfast_claims", "TABLE holdfast_locks", "PROCEDURE holdfast_acquire")
    fill = ("CREATE TRIGGER full_disk BEFORE INSERT ON holdfast_claims FOR EACH ROW "
            "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'full'")
    make_room = "DROP TRIGGER full_disk"
    expire = "until_us = 1"
    documented = staticmethod(documented)

    def deadlocks(self, name):
        return int(self.server.command("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1])

    def waits_for_row(self, name):
        return self.server.command("SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
                                   f" ON p.id = t.trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND db = '{name}'") != "0"

    def count_call(self, seq, op, number, expected=None, name="hits", life_us=0):
        return (f"CALL holdfast_count('{name}', {op}, {number}, {'NULL' if expected is None else expected}, {life_us}, "
                f"X'{'11' * 16}', {seq})")

    def cells(self, row):
        return [None if cell == "NULL" else cell for cell in row.split("\t")]

    def seen(self, name):
        return name.encode().hex()

    def session(self, name):
        return Session(self.server, database=name)

    def sessions(self, name, where="true"):
        return len(self.server.sessions(f"db = '{name}' AND {where}"))

    def end_sessions(self, name, where="true", how="KILL"):
        return self.server.end_sessions(f"db = '{name}' AND {where}", lambda: how)


# ---- As a command ----


def patient(url):
    return url + ("&" if "?" in url else "?") + PATIENCE


def main():
    parser = argparse.ArgumentParser(description="Runs a program with a MariaDB server.")
    parser.add_argument("--unix", action="store_true", help="a URL with the unix socket")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--role", action="store_true", help="as a user with the documented rights")
    parser.add_argument("--config", action="append", default=[], metavar="OPTION", help="an option of the server")
    parser.add_argument("--scheme", default="lease", help="for-update, or lease")
    parser.add_argument("words", nargs="+", metavar="program", help="{url} and {database} become URLs, {socket} a path")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with Authority() as authority, \
            MariaDB(options.config, tls=authority.issue("server") if options.tls else None) as server, Process() as program_:
        how = {"user": server.make_role(Path(options.words[0]).resolve().parents[1] / "holdfast")} if options.role else {}
        url = server.url(unix=options.unix, scheme="mysqls" if options.tls else "mysql", **how)
        url += f"?ca={authority.ca}" if options.tls else ""
        store = f"{patient(url)}&scheme={options.scheme}"
        program_.launch([word.replace("{url}", store).replace("{database}", url).replace("{socket}", str(server.socket))
                         for word in options.words])
        status = program_.child.wait()
        sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
