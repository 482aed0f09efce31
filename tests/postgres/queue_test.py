#!/usr/bin/env python3
"""How waiters ask, from the server's point of view: queue_test.py HOLDFAST PUPPET.

The clients are sessions that send what a holdfast client would. Locking the row of the name from another session shows
which requests need that row; an open transaction shows what happens to requests that arrive meanwhile."""
import contextlib
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.postgres import SCHEMA, Postgres, Session
from servers.scene import LONG_MS, wait_until
from servers.suite import equal, main, test

FINE, LOCK_TIMEOUT = "00000", "55P03"
ALL = 2147483647
KINDS = {"exclusive": (2, ALL, ALL, ALL), "shared": (2, ALL, ALL, 1), "permits": (3, 5, 4, 2)}  # last: of the last waiter


class Client(Session):
    """An attempt to have the lock."""

    def __init__(self, server, number, kind=2, capacity=ALL, weight=ALL):
        super().__init__(server)
        self.id, self.wants = str(number) * 32, f"{kind}::smallint, {capacity}, {weight}"

    def request(self, wait_ms=LONG_MS, barges=False, lease_ms=LONG_MS):
        return (f"SELECT answer, is_head FROM holdfast.acquire('lock', {self.wants}, '{self.id}', 1, {lease_ms * 1000}, "
                f"{wait_ms * 1000}, {barges}, 1, 0, 1, 'host', 'command', 'label')")

    def acquire(self, **options):
        """'done', 'queued', 'head' (queued, and the first), or the SQLSTATE."""
        self.ask(self.request(**options))
        return self.outcome()

    def outcome(self):
        state = self.answer()
        answer, is_head = self.rows[0].split("|") if state == FINE else (state, "")
        return "head" if is_head == "t" else answer

    def release(self):
        return f"SELECT holdfast.release('lock', '{self.id}', 1)"

    def left_ms(self):
        self.say("SELECT (extract(epoch FROM until - clock_timestamp()) * 1000)::int FROM holdfast.claims "
                 f"WHERE client = '{self.id}'")
        return int(self.rows[0]) if self.rows else None

    def set(self, what):
        equal(self.say(f"UPDATE holdfast.claims SET {what} WHERE client = '{self.id}'"), FINE)


@contextlib.contextmanager
def queue(kind="exclusive", **options):
    """A holder, and two waiters."""
    kind_number, capacity, weight, last_weight = KINDS[kind]
    with Postgres() as server, contextlib.ExitStack() as stack:
        server.command(SCHEMA.read_text())
        weights = (weight, weight, last_weight)
        clients = [stack.enter_context(Client(server, 1 + i, kind_number, capacity, weights[i])) for i in range(3)]
        equal([clients[0].acquire(), clients[1].acquire(), clients[2].acquire(**options)], ["done", "head", "queued"])
        yield server, *clients
        assert "deadlock" not in server.log.read_text(), server.log.read_text()


@contextlib.contextmanager
def row_locked(server, *impatient):
    """Another session has locked the row of the name, and these do not wait for it for long."""
    with Session(server) as locker:
        for client in impatient:
            client.say("SET lock_timeout = '200ms'")
        locker.say("BEGIN")
        locker.say("SELECT 1 FROM holdfast.locks FOR UPDATE")
        equal(locker.rows, ["1"])
        yield
        equal(locker.say("COMMIT"), FINE)


def wait_for_waiting(server, where="true"):
    """Waits until one of the sessions waits for another."""
    sql = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {where}"
    wait_until(lambda: server.command(sql) == "1", "that somebody waits")


# ---- Without the row ----


@test(*KINDS)
def a_waiter_behind_another_keeps_its_place_while_somebody_has_locked_the_row(kind):
    with queue(kind, wait_ms=LONG_MS // 2) as (server, _, _, last), row_locked(server, last):
        equal(last.acquire(), "queued")
        assert last.left_ms() > LONG_MS // 2
        equal(server.command("SELECT count(*) FROM holdfast.claims WHERE state = 3"), "2")


@test
def whoever_may_have_its_turn_waits_for_the_row():
    with queue() as (server, holder, first, last):
        with row_locked(server, first, last):
            equal(first.acquire(), LOCK_TIMEOUT)
            equal(last.acquire(barges=True), LOCK_TIMEOUT)
            equal(last.acquire(wait_ms=0), LOCK_TIMEOUT)
            last.say("SET default_transaction_isolation = 'repeatable read'")
            assert last.acquire() not in ("queued", LOCK_TIMEOUT)
            last.say("RESET default_transaction_isolation")
            for who in (holder, first, last):
                before = who.left_ms()
                who.set("until = clock_timestamp()")
                equal(last.acquire(), LOCK_TIMEOUT)
                who.set(f"until = clock_timestamp() + interval '{before} ms'")
            last.set("state = 2")
            equal(last.acquire(), LOCK_TIMEOUT)
            last.set("state = 3")
            equal(last.acquire(), "queued")


# ---- Late ----


@test
def who_asks_late_keeps_its_turn_if_nobody_has_taken_it():
    with queue() as (_, holder, first, last):
        first.set("until = clock_timestamp() + interval '1 s'")
        holder.say(holder.release())
        wait_until(lambda: first.left_ms() <= 0, "the end of its time")
        equal(first.acquire(), "done")
        equal(last.acquire(), "head")


@test
def who_asks_late_keeps_its_place_if_nobody_has_gone_past():
    with queue() as (_, _, first, last):
        first.set("until = clock_timestamp()")
        equal(first.acquire(), "head")
        first.set("until = clock_timestamp()")
        equal(last.acquire(), "head")
        equal(first.acquire(), "queued")


@test
def a_hold_begins_after_the_end_of_the_one_before_however_slow_the_server_is():
    with queue() as (server, holder, first, _):
        server.command("CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS "
                       "$$BEGIN PERFORM pg_sleep(2); RETURN NEW; END$$;"
                       "CREATE TRIGGER slowly BEFORE UPDATE OF until ON holdfast.claims FOR EACH ROW WHEN (OLD.state = 3) "
                       "EXECUTE FUNCTION slowly()")
        holder.set("until = clock_timestamp() + interval '1 s'")
        ended = server.command("SELECT until FROM holdfast.claims WHERE state = 1")
        equal(first.acquire(), "done")  # it asked before that, and was granted it after
        equal(server.command(f"SELECT count(*) FROM holdfast.claims WHERE state = 1 AND since >= '{ended}'"), "1")


# ---- At the same time ----


@test
def a_turn_that_comes_while_a_waiter_asks_is_taken():
    with queue() as (server, holder, first, last):
        holder.say("BEGIN")
        holder.say(first.release())
        holder.say(holder.release())
        last.ask(last.request())
        wait_for_waiting(server)
        equal(holder.say("COMMIT"), FINE)
        equal(last.outcome(), "done")


@test
def a_turn_comes_to_a_waiter_that_has_just_asked():
    with queue(wait_ms=1000) as (server, holder, first, last):
        last.say("BEGIN")
        equal(last.acquire(), "queued")
        time.sleep(1.1)  # what the others see has expired
        first.ask(first.release())
        wait_for_waiting(server)
        equal(last.say("COMMIT"), FINE)
        equal(first.answer(), FINE)
        holder.say(holder.release())
        equal(server.command("SELECT count(*) FROM holdfast.claims WHERE state = 2"), "1")
        equal(last.acquire(), "done")


@test
def an_attempt_that_asks_and_is_withdrawn_at_once_is_in_no_deadlock():
    """A client has lost a connection, and the server still executes a request that came over it. Meanwhile its turn
    comes."""
    with queue() as (server, holder, _, last), Session(server) as other:
        other.say("SELECT pg_backend_pid()")
        backend = other.rows[0]
        other.say("BEGIN")
        other.say("SELECT 1 FROM holdfast.locks FOR UPDATE")
        holder.say("BEGIN")
        holder.say(f"UPDATE holdfast.claims SET state = 2 WHERE client = '{last.id}'")
        last.ask(last.request())
        wait_for_waiting(server)
        equal(holder.say("COMMIT"), FINE)
        wait_for_waiting(server, f"{backend} = ANY(pg_blocking_pids(pid))")
        equal(other.say(last.release()), FINE)
        equal(other.say("COMMIT"), FINE)
        equal(last.outcome(), "queued")


main()
