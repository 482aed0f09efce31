#!/usr/bin/env python3
"""How waiters ask, from the server's point of view: queue_test.py HOLDFAST PUPPET.

The clients are sessions that send what a holdfast client would. Locking the row of the name from another session shows
which requests need that row; an open transaction shows what happens to requests that arrive meanwhile."""
import contextlib
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.mariadb import MariaDB, Session
from servers.process import LIMIT_S
from servers.scene import HOLDFAST, LONG_MS, wait_until
from servers.suite import equal, main, test

SCHEMA = subprocess.run([HOLDFAST, "schema", "--dialect", "mariadb"], capture_output=True, text=True, check=True,
                        timeout=LIMIT_S).stdout
LOCK_TIMEOUT = 1205
ALL = 2147483647
KINDS = {"exclusive": (2, ALL, ALL, ALL), "shared": (2, ALL, ALL, 1), "permits": (3, 5, 4, 2)}  # last: of the last waiter
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
LATER = f"{NOW} + {LONG_MS * 1000}"


class Client(Session):
    """An attempt to have the lock."""

    def __init__(self, server, number, kind=2, capacity=ALL, weight=ALL):
        super().__init__(server)
        self.id, self.wants = f"X'{str(number) * 32}'", f"{kind}, {capacity}, {weight}"

    def __enter__(self):
        super().__enter__()
        equal(self.say("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"), 0)
        return self

    def request(self, wait_ms=LONG_MS, barges=0):
        return (f"CALL holdfast_acquire('lock', {self.wants}, {self.id}, 1, {LONG_MS * 1000}, {wait_ms * 1000}, {barges}, "
                "1, 0, 1, 'host', 'command', 'label')")

    def acquire(self, **options):
        """'done', 'queued', 'head' (queued, and the first), or the number of the error."""
        self.ask(self.request(**options))
        return self.outcome()

    def outcome(self):
        error = self.answer()
        if error:
            return error
        answer, _, is_head = self.rows[0].split("\t")[:3]
        return "head" if answer == "queued" and is_head == "1" else answer

    def release(self):
        return f"CALL holdfast_release('lock', {self.id}, 1)"

    def left_ms(self):
        self.say(f"SELECT (until_us - {NOW}) DIV 1000 FROM holdfast_claims WHERE client = {self.id}")
        return int(self.rows[0]) if self.rows else None

    def set(self, what):
        equal(self.say(f"UPDATE holdfast_claims SET {what} WHERE client = {self.id}"), 0)


@contextlib.contextmanager
def queue(kind="exclusive", **options):
    """A holder, and two waiters."""
    kind_number, capacity, weight, last_weight = KINDS[kind]
    with MariaDB(config=["--innodb-print-all-deadlocks"]) as server, contextlib.ExitStack() as stack:
        server.command(SCHEMA)
        weights = (weight, weight, last_weight)
        clients = [stack.enter_context(Client(server, 1 + i, kind_number, capacity, weights[i])) for i in range(3)]
        equal([clients[0].acquire(), clients[1].acquire(), clients[2].acquire(**options)], ["done", "head", "queued"])
        yield server, *clients
        assert b"WE ROLL BACK" not in server.log.read_bytes(), server.log.read_bytes()


@contextlib.contextmanager
def row_locked(server, *impatient):
    """Another session has locked the row of the name, and these do not wait for it for long."""
    with Session(server) as locker:
        for client in impatient:
            client.say("SET innodb_lock_wait_timeout = 1")
        locker.say("BEGIN")
        locker.say("SELECT 1 FROM holdfast_locks WHERE name = 'lock' FOR UPDATE")
        equal(locker.rows, ["1"])
        yield
        equal(locker.say("COMMIT"), 0)


def wait_for_waiting(server):
    """Waits until one of the sessions waits for another."""
    sql = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    wait_until(lambda: server.command(sql) == "1", "that somebody waits")


# ---- Without the row ----


@test(*KINDS)
def a_waiter_behind_another_keeps_its_place_while_somebody_has_locked_the_row(kind):
    with queue(kind, wait_ms=LONG_MS // 2) as (server, _, _, last), row_locked(server, last):
        equal(last.acquire(), "queued")
        assert last.left_ms() > LONG_MS // 2
        equal(server.command("SELECT COUNT(*) FROM holdfast_claims WHERE state = 3"), "2")


@test
def whoever_may_have_its_turn_waits_for_the_row():
    with queue() as (server, holder, first, last):
        with row_locked(server, first, last):
            equal(first.acquire(), LOCK_TIMEOUT)
            equal(last.acquire(barges=1), LOCK_TIMEOUT)
            equal(last.acquire(wait_ms=0), LOCK_TIMEOUT)
            for who in (holder, first, last):
                who.set(f"until_us = {NOW}")
                equal(last.acquire(), LOCK_TIMEOUT)
                who.set(f"until_us = {LATER}")
            last.set("state = 2")
            equal(last.acquire(), LOCK_TIMEOUT)
            last.set("state = 3")
            equal(last.acquire(), "queued")


# ---- Late ----


@test
def who_asks_late_keeps_its_turn_if_nobody_has_taken_it():
    with queue() as (_, holder, first, last):
        equal(holder.say(holder.release()), 0)
        first.set(f"until_us = {NOW}")
        equal(first.acquire(), "done")
        equal(last.acquire(), "head")


@test
def who_asks_late_keeps_its_place_if_nobody_has_gone_past():
    with queue() as (_, _, first, last):
        first.set(f"until_us = {NOW}")
        equal(first.acquire(), "head")
        first.set(f"until_us = {NOW}")
        equal(last.acquire(), "head")
        equal(first.acquire(), "queued")


# ---- At the same time ----


@test
def a_turn_that_comes_while_a_waiter_asks_is_taken():
    with queue() as (server, holder, first, last):
        holder.say("BEGIN")  # what a release does
        holder.say(f"DELETE FROM holdfast_claims WHERE client = {holder.id}")
        holder.say(f"DELETE FROM holdfast_claims WHERE client = {first.id}")
        holder.say(f"UPDATE holdfast_claims SET state = 2 WHERE client = {last.id}")
        last.ask(last.request())
        wait_for_waiting(server)
        equal(holder.say("COMMIT"), 0)
        equal(last.outcome(), "done")


@test
def a_place_that_is_being_extended_is_not_taken_for_expired():
    with queue() as (server, _, first, last):
        last.set(f"until_us = {NOW}")
        last.say("BEGIN")  # as if it had asked in time
        last.set(f"until_us = {LATER}")
        first.ask(first.release())
        wait_for_waiting(server)
        equal(last.say("COMMIT"), 0)
        equal(first.answer(), 0)
        assert last.left_ms() is not None


main()
