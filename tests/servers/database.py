"""Shared by the servers that are databases: the SQL on a store's page, clients that are sent one statement after the
other, and a server that several tests share, each with its own database."""
import contextlib
import re
import secrets
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from servers.process import Process

PAGES = Path(__file__).resolve().parents[2] / "docs/stores"


def documented(store, title):
    """The SQL block with this title on the store's page."""
    page = PAGES / f"{store}.md"
    block = re.search(rf"^<!-- {title} -->\n+```[^\n]*\n(.*?)^```", page.read_text(), re.M | re.S)
    assert block, f"{page} has no code block behind <!-- {title} -->"
    return block[1]


class Dialogue(Process, ABC):
    """A client program that is sent one statement after the other, so that a transaction can stay open between them."""

    def __init__(self, words, environment):
        self.words, self.environment, self.rows = words, environment, []

    def __enter__(self):
        self.launch(self.words, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.child.stdin.close()
        self.child.stdout.close()

    def tell(self, text):
        self.child.stdin.write(text)
        self.child.stdin.flush()

    @abstractmethod
    def ask(self, sql):
        """Sends a statement."""

    @abstractmethod
    def answer(self):
        """The error of the statement; its rows are then in `rows`."""

    def say(self, sql):
        self.ask(sql)
        return self.answer()


class Shared(ABC):
    """A server that several tests share, each with its own database.

    new_server: makes a server that is not shared. prefix: of the names of tables and functions. listens: which sessions
    listen. drop_all: the SQL that removes the schema. droppable: parts of it, each of which can be dropped.
    transaction: what claims of one transaction have in common. fill: makes the server report a full disk, until
    make_room.
    """

    new_server = None
    prefix = listens = drop_all = transaction = fill = make_room = ""
    droppable = ()
    writes_late = ()  # configuration with which a server writes to its disk only what it must
    fine = 0  # what a Dialogue returns for a statement without an error
    expire = ""  # an assignment for an UPDATE that makes a counter expire
    documented = None  # database.documented of the store
    connections = 2  # of a client that waits

    def __init__(self):
        self.server = self.new_server()
        self.locks, self.claims = f"{self.prefix}locks", f"{self.prefix}claims"

    @contextlib.contextmanager
    def fresh(self):
        """A new database: its name."""
        name = f"test_{secrets.token_hex(8)}"
        self.server.command(f"CREATE DATABASE {name}")
        yield name

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *problem):
        self.server.__exit__(*problem)

    def port(self):
        return self.server.port

    def seen(self, name):
        """How the name of a lock looks in a request."""
        return name

    @staticmethod
    def patient(url, timeout_ms=20000, scheme="lease"):
        """Gives the server much time to answer, unless the test says otherwise: a machine that runs many tests is
        busy."""
        return url + ("&" if "?" in url else "?") + f"timeout={timeout_ms}&connect_timeout={timeout_ms}&scheme={scheme}"

    def url(self, name, timeout_ms=20000, scheme="lease", **options):
        return self.patient(self.server.url(database=name, **options), timeout_ms, scheme)

    def ask(self, name, sql):
        return self.server.command(sql, database=name)

    @abstractmethod
    def deadlocks(self, name):
        """How many the server has seen, in this database at least."""

    @abstractmethod
    def waits_for_row(self, name):
        """Whether a client waits for a row in this database."""

    @abstractmethod
    def count_call(self, seq, op, number, expected=None, name="hits", life_us=0):
        """The statement of a client that counts."""

    @abstractmethod
    def cells(self, row):
        """The columns of a row of a Dialogue; None for NULL."""

    @abstractmethod
    def session(self, name):
        """A Dialogue with this database."""

    @abstractmethod
    def sessions(self, name, where="true"):
        """How many sessions clients have in this database."""

    @abstractmethod
    def end_sessions(self, name, where="true"):
        """Ends them; returns how many there were."""
