#!/usr/bin/env python3
"""Clients that know only SQL, beside holdfast, as docs/stores/postgres.md says: interop_test.py HOLDFAST PUPPET."""
import contextlib
import secrets
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.fleet import FLEET_S, is_noticed, play, rest
from servers.postgres import Postgres, Session, documented, patient
from servers.puppet import Puppet
from servers.scene import LONG_MS, PUPPET, one_of, wait_until
from servers.suite import equal, main, test

FINE, TAKEN = "00000", "23505"
KINDS = ("exclusive", "shared", "2/3")
LEASE_S = 6  # much longer than a member of the fleet works
suite.LIMIT_S = int(FLEET_S) + 150
shared = Postgres()  # each test has its own database

INSERT, RENEW, TAKE_OVER, DELETE = (documented(title).rstrip(";\n") for title in (
    "plain insert", "plain renewal", "plain take-over", "plain delete"))
FOR_UPDATE = [statement.strip() for statement in documented("plain for update").split(";") if statement.strip()]


@contextlib.contextmanager
def database():
    """A new one with the schema: its name, and a puppet."""
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    with Puppet(PUPPET, url_of(name)) as puppet:
        puppet.inspect("none")
        yield name, puppet


def url_of(name):
    return patient(shared.url(database=name))


def as_owner(statement, owner, version=0):
    """A statement of the page, for another owner and version."""
    return statement.replace("'job 7'", f"'{owner}'").replace("= 42", f"= {version}")


def versions(name):
    return [int(line) for line in shared.command("SELECT version FROM holdfast.plain", database=name).splitlines()]


def wait_for_waiter(name):
    wait_until(lambda: shared.command("SELECT count(*) FROM holdfast.claims WHERE state = 3", database=name) == "1",
               "the waiter")


def wait_for_blocked(name):
    """Waits until some session waits for a row lock."""
    wait_until(lambda: shared.command(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
                                      " AND wait_event_type = 'Lock'") == "1", "the request that waits")


def take_row(session):
    """Runs the statements of the page, up to the one that says whether the lock is free."""
    for statement in FOR_UPDATE:
        equal((statement, session.say(statement)), (statement, FINE))
        if "count" in statement:
            return session.rows == ["0"]
    raise AssertionError("the page has no statement that counts")


# ---- Insert, update, delete ----


@test(*KINDS)
def an_insert_and_holdfast_exclude_each_other(kind):
    with database() as (name, puppet), Session(shared, database=name) as plain:
        token = puppet.hold("a", "orders", kind=kind, lease_ms=LONG_MS).token
        equal(plain.say(INSERT), TAKEN)
        equal(puppet.release("a"), "OK")
        equal(plain.say(INSERT), FINE)
        assert versions(name)[0] > token
        puppet.acquire("b", "orders", kind=kind)
        one_of(puppet.failed("b"), ("BUSY", "WRONG_KIND"))
        equal((plain.say(DELETE), plain.count), (FINE, 1))
        assert puppet.hold("c", "orders", kind=kind).token > token


@test
def inserts_exclude_each_other_and_expire():
    with database() as (name, _), Session(shared, database=name) as one, Session(shared, database=name) as two:
        equal(one.say(INSERT.replace("30 seconds", "1 second")), FINE)
        wait_until(lambda: two.say(as_owner(INSERT, "job 8")) == FINE, "the end of the first")
        equal((one.say(DELETE), one.count), (FINE, 0))
        equal((two.say(as_owner(DELETE, "job 8")), two.count), (FINE, 1))


@test
def a_delete_wakes_whoever_waits_and_an_insert_does_not_overtake():
    with database() as (name, puppet), Session(shared, database=name) as plain:
        equal(plain.say(INSERT), FINE)
        puppet.acquire("a", "orders", lease_ms=LONG_MS, wait_ms=-1)
        wait_for_waiter(name)
        equal(plain.say(f"BEGIN; {DELETE}; COMMIT"), FINE)
        equal(plain.say(INSERT), TAKEN)
        puppet.granted("a")


@test
def a_row_without_an_end_is_shown_as_such_and_can_be_broken():
    with database() as (name, puppet), Session(shared, database=name) as plain:
        equal(plain.say("INSERT INTO holdfast.plain (name) VALUES ('orders')"), FINE)
        [party] = puppet.inspect("orders")["holders"]
        equal((party.left_ms, party.token), (-1, versions(name)[0]))
        puppet.acquire("a", "orders", wait_ms=-1)
        wait_for_waiter(name)
        equal(puppet.break_lock("orders", party.token), "OK")
        puppet.granted("a")


@test
def no_statement_on_plain_touches_a_hold_of_holdfast():
    with database() as (name, puppet), Session(shared, database=name) as plain:
        puppet.hold("a", "orders", lease_ms=LONG_MS)
        equal((plain.say("DELETE FROM holdfast.plain"), plain.count), (FINE, 0))
        equal((plain.say("UPDATE holdfast.plain SET owner = 'me'"), plain.count), (FINE, 0))
        equal(puppet.renew("a"), "OK")


@test
def an_update_counts_only_with_the_version_that_is_there():
    with database() as (name, _), Session(shared, database=name) as plain:
        equal(plain.say(INSERT), FINE)
        [version] = versions(name)
        equal((plain.say(as_owner(RENEW, "job 7", version)), plain.count), (FINE, 1))
        equal((plain.say(as_owner(RENEW, "job 7", version - 1)), plain.count), (FINE, 0))
        equal((plain.say(as_owner(TAKE_OVER, "job 8", version)), plain.count), (FINE, 0))  # it has not expired
        equal(versions(name), [version])
        shared.command("UPDATE holdfast.claims SET until = clock_timestamp()", database=name)
        equal((plain.say(as_owner(RENEW, "job 7", version)), plain.count), (FINE, 0))  # too late
        equal((plain.say(as_owner(TAKE_OVER, "job 8", version)), plain.count), (FINE, 1))
        assert versions(name)[0] > version
        equal((plain.say(as_owner(TAKE_OVER, "job 9", version)), plain.count), (FINE, 0))
        equal(plain.say("UPDATE holdfast.plain SET name = 'another'"), "0A000")


@test
def a_name_or_an_owner_that_holdfast_could_not_have_is_refused():
    with database() as (name, puppet), Session(shared, database=name) as plain:
        for lock, owner, state in (("''", "''", "22023"), ("repeat('x', 256)::bytea", "''", "22023"),
                                   ("'a\\000b'", "''", "22023"), ("NULL", "''", "23502"),
                                   ("'x'", "repeat('y', 256)", "22023"),
                                   ("repeat('x', 255)::bytea", "repeat('y', 255)", FINE)):
            insert = f"INSERT INTO holdfast.plain (name, owner) VALUES ({lock}, {owner})"
            equal((insert, plain.say(insert)), (insert, state))
        equal(len(puppet.inspect("x" * 255)["holders"]), 1)


@test
def the_documented_rights_of_a_plain_client_are_enough():
    with database() as (name, _):
        shared.command("CREATE ROLE plain LOGIN")
        with Session(shared, user="plain", database=name) as plain:
            equal(plain.say(INSERT), "42501")
            shared.command(documented("plain rights"), database=name)
            for statement in (INSERT, as_owner(RENEW, "job 7"), DELETE):
                equal((statement, plain.say(statement)), (statement, FINE))
            assert take_row(plain)


# ---- For update ----


@test(*KINDS)
def whoever_has_locked_the_row_and_found_nobody_is_alone(kind):
    with database() as (name, puppet), Session(shared, database=name) as plain:
        token = puppet.hold("a", "orders", kind=kind, lease_ms=LONG_MS).token
        assert not take_row(plain)
        equal(plain.say("ROLLBACK"), FINE)
        equal(puppet.release("a"), "OK")
        assert take_row(plain)
        puppet.acquire("b", "orders", kind=kind, wait_ms=-1)
        wait_for_blocked(name)
        equal(plain.say("COMMIT"), FINE)
        assert puppet.granted("b").token > token


@test
def so_are_they_and_the_holders_of_row_locks():
    with database() as (name, _), Puppet(PUPPET, url_of(name) + "&scheme=for-update") as puppet, \
            Session(shared, database=name) as plain:
        token = puppet.hold("a", "orders", lease_ms=LONG_MS).token
        equal(plain.say(INSERT), TAKEN)
        assert not take_row(plain)
        equal(plain.say("ROLLBACK"), FINE)
        equal(puppet.release("a"), "OK")
        assert take_row(plain)
        puppet.acquire("b", "orders", lease_ms=LONG_MS, wait_ms=-1)
        wait_for_blocked(name)
        equal(plain.say("COMMIT"), FINE)
        assert puppet.granted("b").token > token
        equal(puppet.release("b"), "OK")
        equal(plain.say(INSERT), FINE)
        puppet.acquire("c", "orders")
        equal(puppet.failed("c"), "WRONG_KIND")


@test
def a_row_lock_does_not_end_a_hold_and_dies_with_its_connection():
    with database() as (name, puppet), Session(shared, database=name) as two:
        with Session(shared, database=name) as one:
            assert take_row(one)  # of a name that nobody has used
            two.ask(INSERT)
            wait_for_blocked(name)
        equal(two.answer(), FINE)
        puppet.hold("a", "another", lease_ms=LONG_MS)
        with Session(shared, database=name) as three:
            equal(three.say("BEGIN; SELECT * FROM holdfast.locks WHERE name = 'another' FOR UPDATE"), FINE)
            equal(puppet.renew("a"), "OK")


@test
def a_claim_that_has_expired_is_nobody_to_whoever_locks_the_row():
    with database() as (name, puppet), Session(shared, database=name) as plain:
        puppet.hold("a", "orders", lease_ms=LONG_MS)
        puppet.kill()
        shared.command("UPDATE holdfast.claims SET until = clock_timestamp()", database=name)
        assert take_row(plain)


# ---- A fleet ----


def by_holdfast(name, work, finished):
    with Puppet(PUPPET, url_of(name)) as puppet:
        while not finished():
            puppet.hold("a", "orders", lease_ms=LEASE_S * 1000, wait_ms=-1)
            work()
            equal(puppet.release("a"), "OK")
            puppet.free("a")
            rest()


def by_insert(name, work, finished):
    with Session(shared, database=name) as plain:
        while not finished():
            state = plain.say(INSERT.replace("30 seconds", f"{LEASE_S} seconds"))
            if state == FINE:
                work()
                equal((plain.say(DELETE), plain.count), (FINE, 1))
            else:
                equal(state, TAKEN)
            rest()


def by_version(name, work, finished):
    """Renews before it works."""
    insert, delete = as_owner(INSERT, "job 8"), as_owner(DELETE, "job 8")
    with Session(shared, database=name) as plain:
        while not finished():
            if plain.say(insert.replace("30 seconds", f"{LEASE_S} seconds") + " RETURNING version") == FINE:
                renew = as_owner(RENEW, "job 8", plain.rows[0])
                equal((plain.say(renew), plain.count), (FINE, 1))
                work()
                equal((plain.say(delete), plain.count), (FINE, 1))
            rest()


def by_row_lock(name, work, finished):
    with Session(shared, database=name) as plain:
        while not finished():
            if take_row(plain):
                work()
                equal(plain.say("COMMIT"), FINE)
            else:
                equal(plain.say("ROLLBACK"), FINE)
            rest()


def of_no_use(name, work, finished):
    """A client that does not follow the page: it only looks."""
    with Session(shared, database=name) as plain:
        while not finished():
            equal(plain.say("SELECT count(*) FROM holdfast.claims WHERE name = 'orders' AND state < 3"), FINE)
            if plain.rows == ["0"]:
                time.sleep(0.01)
                work()


@test
def a_mixed_fleet_is_never_two_at_a_time_whoever_is_killed():
    with database() as (name, puppet):
        play(name, shared.folder, [by_holdfast, by_insert, by_version, by_row_lock], range(4))
        assert puppet.hold("last", "orders", wait_ms=-1).token


@test
def the_witness_notices_a_client_that_only_looks():
    with database() as (name, _):
        assert is_noticed(name, shared.folder, [by_holdfast, by_insert, of_no_use])


if __name__ == "__main__":
    with shared:
        main()
