#!/usr/bin/env python3
"""Fencing in a PostgreSQL database: fence_test.py HOLDFAST PUPPET.

HOLDFAST_FENCE_ROUNDS is how often WRITERS writers are stopped past their leases (1).
"""
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.postgres import Postgres, PostgresError, Session, documented, patient
from servers.process import LIMIT_S
from servers.scene import HOLDFAST, PUPPET, wait_until
from servers.suite import equal, main, test

WRITER = os.path.join(os.path.dirname(PUPPET), "postgres-writer")  # it is built beside the puppet
ROUNDS = int(os.environ.get("HOLDFAST_FENCE_ROUNDS", 1))
WRITERS = 10
WRITTEN, REFUSED, AGAIN = 0, 3, 4  # how a writer ends
LEVELS = ("read_committed", "repeatable_read", "serializable")
FINE, STALE, CONFLICT = "00000", "ZF001", "40001"
suite.LIMIT_S = 60 + 30 * ROUNDS
shared = Postgres()  # each test has its own database


@contextlib.contextmanager
def database():
    """A new one with the schema, and with numbers to write: its name."""
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    equal(holdfast("run", "-n", "any", "--", "true", url=patient(shared.url(database=name))).returncode, 0)
    shared.command("CREATE TABLE numbers (name text PRIMARY KEY, value integer NOT NULL)", database=name)
    yield name


def holdfast(*words, url="sqlite:/nonexistent/locks", **options):
    keep = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return subprocess.run([HOLDFAST, "--url", url, *words], env=keep, capture_output=True, timeout=LIMIT_S, check=False,
                          **options)


def number(name, of="x"):
    return int(shared.command(f"SELECT value FROM numbers WHERE name = '{of}'", database=name))


# ---- Writers that are stopped past their leases ----


class Writer(contextlib.AbstractContextManager):
    def __init__(self, name, lock, how, stop="never", level="read_committed"):
        url = shared.url(database=name)
        # In its own process group: the kernel sends SIGHUP to a group with a stopped process when the last member whose
        # parent is in another group, such as the command of `run`, leaves it.
        self.child = subprocess.Popen([WRITER, patient(url), url, lock, how, stop, level], stdin=subprocess.DEVNULL,
                                      process_group=0)

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait(LIMIT_S)

    def wait_stopped(self):
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)

    def go_on(self):
        """How it ends."""
        self.child.send_signal(signal.SIGCONT)
        return self.child.wait(LIMIT_S)

    def waits_for_a_lock(self, name):
        return self.child.poll() is None and int(shared.command(
            f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND wait_event_type = 'Lock'"
            " AND query LIKE '%fence%'"))


def write_after(name, lock, old):
    """The old writer is stopped; another takes the lock when the lease ends, and writes."""
    old.wait_stopped()
    with Writer(name, lock, "fenced") as new:
        equal(new.child.wait(LIMIT_S), WRITTEN)


def ends_of_stale_writers(how, stop):
    """How writers end that continue after another has written."""
    locks = [f"lock-{at}" for at in range(WRITERS)]
    with database() as name, contextlib.ExitStack() as stack:
        shared.command("INSERT INTO numbers SELECT 'lock-' || i, 0 FROM generate_series(0, 99) i", database=name)
        old = {lock: stack.enter_context(Writer(name, lock, how, stop)) for lock in locks}
        for lock in locks:
            write_after(name, lock, old[lock])
        ends = [old[lock].go_on() for lock in locks]
        return ends, [number(name, lock) for lock in locks]


@test
def row_1_a_writer_that_was_stopped_past_its_lease_is_refused():
    for _ in range(ROUNDS):
        ends, numbers = ends_of_stale_writers("fenced", "first")
        equal(ends, [REFUSED] * WRITERS)
        equal(numbers, [1] * WRITERS)


@test
def without_the_check_it_overwrites_what_the_next_holder_wrote():
    ends, numbers = ends_of_stale_writers("blind", "later")
    equal(ends, [WRITTEN] * WRITERS)
    equal(numbers, [1] * WRITERS)  # twice 1 was added


@test(*LEVELS)
def a_writer_that_is_stopped_after_the_check_is_waited_for(level):
    with database() as name:
        shared.command("INSERT INTO numbers VALUES ('x', 0)", database=name)
        with Writer(name, "x", "fenced", "later", level) as old:
            old.wait_stopped()
            with Writer(name, "x", "fenced", level=level) as new:
                wait_until(lambda: new.waits_for_a_lock(name), "the next holder's check")
                equal(old.go_on(), WRITTEN)
                equal(new.child.wait(LIMIT_S), WRITTEN if level == "read_committed" else AGAIN)
        if level != "read_committed":
            with Writer(name, "x", "fenced", level=level) as again:
                equal(again.child.wait(LIMIT_S), WRITTEN)
        equal(number(name), 2)


# ---- The statement ----


def fence(token, of="x"):
    return f"SELECT holdfast.fence('{of}', {token})"


def begin(session, level="read_committed"):
    equal(session.say(f"BEGIN ISOLATION LEVEL {level.replace('_', ' ')}"), FINE)


def commit(session, *statements):
    """A transaction of these; returns the SQLSTATE of the last."""
    begin(session)
    states = [session.say(statement) for statement in statements]
    equal(session.say("COMMIT"), FINE)
    return states[-1]


@test(*LEVELS)
def a_smaller_token_is_refused_and_an_equal_one_is_not(level):
    with database() as name, Session(shared, database=name) as one:
        for token, state in ((7, FINE), (7, FINE), (6, STALE), (8, FINE), (7, STALE), (8, FINE)):
            begin(one, level)
            equal((token, one.say(fence(token))), (token, state))
            one.say("COMMIT")
        equal(commit(one, fence(1, of="another")), FINE)


@test(*LEVELS)
def a_snapshot_from_before_the_next_holders_write_is_no_way_around(level):
    with database() as name, Session(shared, database=name) as old, Session(shared, database=name) as new:
        for before in (1, None):  # the name has a row, or not
            if before:
                equal(commit(new, fence(before)), FINE)
            begin(old, level)
            equal(old.say("SELECT count(*) FROM numbers"), FINE)  # its snapshot, at the higher levels
            equal(commit(new, fence(3)), FINE)
            equal(old.say(fence(2)), STALE if level == "read_committed" else CONFLICT)
            equal(old.say("COMMIT"), FINE)
            equal(commit(old, fence(2)), STALE)
            equal(commit(new, "DELETE FROM holdfast.fences"), FINE)


@test(*LEVELS)
def an_older_holders_write_is_not_missed(level):
    with database() as name, Session(shared, database=name) as old, Session(shared, database=name) as new:
        equal(commit(old, fence(1)), FINE)
        begin(new, level)
        equal(new.say("SELECT count(*) FROM numbers"), FINE)
        equal(commit(old, fence(1), "INSERT INTO numbers VALUES ('x', 1)"), FINE)  # with the same token as before
        equal(new.say(fence(2)), FINE if level == "read_committed" else CONFLICT)


@test
def a_rollback_takes_the_token_back():
    with database() as name, Session(shared, database=name) as one:
        for statement in ("BEGIN", fence(9), "ROLLBACK", "BEGIN", fence(1), "SAVEPOINT here", fence(5), "ROLLBACK TO here",
                          "COMMIT"):
            equal((statement, one.say(statement)), (statement, FINE))
        equal(shared.command("SELECT token FROM holdfast.fences", database=name), "1")


@test
def a_number_that_is_no_token_is_refused():
    with database() as name, Session(shared, database=name) as one:
        for token in ("0", "-1", str(1 << 53), "NULL"):
            equal((token, one.say(fence(token))[:2]), (token, "23"))
        equal(shared.command("SELECT count(*) FROM holdfast.fences", database=name), "0")


@test
def a_schema_of_the_first_version_gets_it():
    with database() as name:
        shared.command("DROP FUNCTION holdfast.fence; DROP TABLE holdfast.fences;"
                       " COMMENT ON SCHEMA holdfast IS 'holdfast schema 1'", database=name)
        equal(holdfast("run", "-n", "any", "--", "true", url=patient(shared.url(database=name))).returncode, 0)
        shared.command(fence(1), database=name)


# ---- In scripts ----


@test
def fence_sql_prints_a_statement_that_means_the_name():
    names = (b"orders", b"it's", b"a\\b", b"$1 %s :x ?", "ü".encode(), b"\xff\n", b"x" * 255, b"'" * 255)
    with database() as name:
        for at, lock in enumerate(names, 1):
            done = holdfast("fence", "sql", "postgres", lock, str(at))
            equal((done.returncode, done.stderr), (0, b""))
            for quoting in ("on", "off"):
                shared.command(f"SET standard_conforming_strings = {quoting}; " + done.stdout.decode("ascii"), database=name)
            equal(shared.command(f"SELECT encode(name, 'hex') FROM holdfast.fences WHERE token = {at}", database=name),
                  lock.hex())


@test
def fence_sql_refuses_a_shared_hold_and_an_unknown_dialect():
    equal(holdfast("fence", "sql", "--shared", "postgres", "x", "7").returncode, 1)
    unknown = holdfast("fence", "sql", "oracle", "x", "7")
    equal((unknown.returncode, unknown.stdout), (64, b""))
    assert b"postgres" in unknown.stderr, unknown


# ---- What the page says ----


@test
def the_documented_rights_of_a_writer_are_enough_and_needed():
    with database() as name:
        shared.command("CREATE ROLE writer LOGIN")
        rights = documented("fence rights")

        def try_it():
            try:
                shared.command(f"{fence(1)}; {fence(2)}", user="writer", database=name)
                return True
            except PostgresError as error:
                assert "permission denied" in str(error), error
                return False

        assert not try_it()
        shared.command(rights, database=name)
        assert try_it()
        for right in ("SELECT", "INSERT", "UPDATE"):
            shared.command(f"REVOKE {right} ON holdfast.fences FROM writer", database=name)
            assert not try_it(), right
            shared.command(rights, database=name)


@test
def a_column_of_ones_own_refuses_an_old_token():
    with database() as name, Session(shared, database=name) as one:
        one.say("CREATE TABLE accounts (id integer PRIMARY KEY, balance integer, fence bigint NOT NULL DEFAULT 0)")
        one.say("INSERT INTO accounts VALUES (7, 0)")
        statement = documented("fence column").rstrip(";\n")
        for token, rows in ((5, 1), (6, 1), (5, 0), (6, 1)):
            equal((token, one.say(statement.replace(":token", str(token))), one.count), (token, FINE, rows))


with shared:
    main()
