#!/usr/bin/env python3
"""The statement that checks tokens, in a MariaDB database: fence_test.py HOLDFAST PUPPET. Stale writers are in tests/fence."""
import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.mariadb import PASSWORD, MariaDB, Session, documented, patient
from servers.process import LIMIT_S
from servers.scene import HOLDFAST, puppets, wait_until
from servers.suite import equal, main, test

FINE, STALE, DENIED = 0, 4025, 1142
shared = MariaDB()  # each test has its own locks


def fence(lock, token):
    """The statement, without its semicolon."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return subprocess.run([HOLDFAST, "fence", "sql", "mysql", lock, str(token)], env=keep, capture_output=True, check=True,
                          timeout=LIMIT_S).stdout.decode("ascii").rstrip(";\n")


def some_name():
    return f"lock-{secrets.token_hex(8)}"


@contextlib.contextmanager
def sessions(count, **options):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Session(shared, **options)) for _ in range(count)]


def add_one(session, guard, name):
    """Checks and reads, and returns what is then to be written."""
    equal(session.say("BEGIN"), FINE)
    equal(session.say(guard), FINE)
    equal(session.say(f"SELECT value FROM numbers WHERE name = '{name}'"), FINE)
    return f"UPDATE numbers SET value = {session.rows[0]} + 1 WHERE name = '{name}'"


def write(session, update):
    equal(session.say(update), FINE)
    equal(session.say("COMMIT"), FINE)


@test("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
def a_writer_that_is_stopped_after_the_check_is_waited_for(level):
    with sessions(2) as (old, new):
        name = some_name()
        shared.command(f"INSERT INTO numbers VALUES ('{name}', 0)")
        for session in (old, new):
            equal(session.say(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"), FINE)
        update = add_one(old, fence(name, 5), name)
        equal(new.say("BEGIN"), FINE)
        new.ask(fence(name, 6))
        wait_until(lambda: shared.command("SELECT count(*) FROM information_schema.processlist WHERE time_ms > 200"
                                          f" AND info LIKE 'INSERT%{name}%'") == "1", "the next holder's check")
        write(old, update)
        equal(new.answer(), FINE)
        equal(new.say(f"SELECT value FROM numbers WHERE name = '{name}'"), FINE)
        equal(new.rows, ["1"])


@test
def a_smaller_token_is_refused_and_an_equal_one_is_not():
    with sessions(1) as (one,):
        name = some_name()
        for mode in ("STRICT_ALL_TABLES", ""):
            equal(one.say(f"SET SESSION sql_mode = '{mode}'"), FINE)
            for token, error in ((7, FINE), (7, FINE), (6, STALE), (8, FINE), (7, STALE), (8, FINE)):
                equal((token, one.say(fence(name, token))), (token, error))
            equal(one.say(f"DELETE FROM holdfast_fences WHERE name = '{name}'"), FINE)


@test
def fence_sql_prints_a_statement_that_means_the_name():
    for at, lock in enumerate((b"orders", b"it's", b"a\\b", "ü".encode(), b"\xff\n", b"x" * 255, b"'" * 255), 1000):
        shared.command(fence(lock, at))
        equal(shared.command(f"SELECT HEX(name) FROM holdfast_fences WHERE token = {at}").lower(), lock.hex())


@test
def the_documented_rights_of_a_writer_are_enough():
    shared.command(f"CREATE USER writer@'%' IDENTIFIED BY '{PASSWORD}'")
    name = some_name()
    shared.command("GRANT SELECT ON numbers TO writer@'%'")
    with sessions(1, user="writer", password=PASSWORD) as (one,):
        equal(one.say(fence(name, 1)), DENIED)
        shared.command(documented("fence rights"))
        for token, error in ((1, FINE), (2, FINE), (1, STALE)):
            equal((token, one.say(fence(name, token))), (token, error))


if __name__ == "__main__":
    with shared:
        with puppets(1, patient(shared.url())) as (first,):
            first.inspect("none")  # this makes the schema
        shared.command("CREATE TABLE numbers (name VARCHAR(64) PRIMARY KEY, value INT NOT NULL)")
        main()
