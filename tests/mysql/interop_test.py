#!/usr/bin/env python3
"""Clients that know only SQL, beside holdfast, as docs/stores/mysql.md says: interop_test.py HOLDFAST PUPPET."""
import contextlib
import secrets
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.fleet import FLEET_S, is_noticed, play, rest
from servers.mariadb import PASSWORD, MariaDB, Session, documented, patient
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, one_of, wait_until
from servers.suite import equal, main, test

FINE, TRY_AGAIN = 0, (1205, 1213)
KINDS = ("exclusive", "shared", "2/3")
LEASE_S = 6  # much longer than a member of the fleet works
suite.LIMIT_S = int(FLEET_S) + 150
shared = MariaDB()  # each test has its own database

SESSION, ACQUIRE, RENEW, RELEASE = (documented(title).rstrip(";\n") for title in (
    "plain session", "plain acquire", "plain renewal", "plain release"))
FOR_UPDATE = [statement.strip() for statement in documented("plain for update").split(";") if statement.strip()]


@contextlib.contextmanager
def database():
    """A new one with the schema: its name, and a puppet."""
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    with Puppet(PUPPET, url_of(name)) as puppet:
        puppet.inspect("none")
        yield name, puppet


def url_of(name, **options):
    return patient(shared.url(database=name, **options))


@contextlib.contextmanager
def plain_client(name, **options):
    with Session(shared, database=name, **options) as plain:
        equal(plain.say(SESSION), FINE)
        yield plain


def acquire(plain, owner="job 7", lease_s=30):
    """The token, or None."""
    statement = ACQUIRE.replace("job 7", owner).replace("30000000", f"{lease_s}000000")
    equal(plain.say(statement), FINE)
    word, number = plain.rows[0].split("\t")[:2]
    return int(number) if word == "done" else None


def renew(plain, owner="job 7"):
    equal(plain.say(RENEW.replace("job 7", owner) + "; SELECT ROW_COUNT()"), FINE)
    return plain.rows == ["1"]


def release(plain, owner="job 7"):
    equal(plain.say(RELEASE.replace("job 7", owner)), FINE)
    return plain.rows == ["1"]


def take_row(plain):
    """Runs the statements of the page, the last of which says whether the lock is free. If it is not, rolls back."""
    for statement in FOR_UPDATE:
        error = plain.say(statement)
        if error in TRY_AGAIN:
            break
        equal((statement, error), (statement, FINE))
    if error == FINE and plain.rows == ["0"]:
        return True
    equal(plain.say("ROLLBACK"), FINE)
    return False


def count(name, where):
    return int(shared.command(f"SELECT COUNT(*) FROM holdfast_claims WHERE {where}", database=name))


def wait_for_waiter(name):
    wait_until(lambda: count(name, "state = 3") == 1, "the waiter")


def wait_for_blocked(name):
    """Waits until some session waits for a row lock."""
    wait_until(lambda: shared.command("SELECT COUNT(*) FROM information_schema.innodb_trx JOIN information_schema.processlist"
                                      f" ON id = trx_mysql_thread_id WHERE db = '{name}' AND trx_state = 'LOCK WAIT'") == "1",
               "the request that waits")


def expire(name):
    shared.command("UPDATE holdfast_claims SET until_us = 1", database=name)


# ---- Calls ----


@test(*KINDS)
def a_call_and_holdfast_exclude_each_other(kind):
    with database() as (name, puppet), plain_client(name) as plain:
        token = puppet.hold("a", "orders", kind=kind, lease_ms=LONG_MS).token
        equal(acquire(plain), None)
        equal(puppet.release("a"), "OK")
        assert acquire(plain) > token
        puppet.acquire("b", "orders", kind=kind)
        one_of(puppet.failed("b"), ("BUSY", "WRONG_KIND"))
        assert renew(plain) and release(plain)
        assert puppet.hold("c", "orders", kind=kind).token > token


@test
def calls_exclude_each_other_and_expire():
    with database() as (name, _), plain_client(name) as one, plain_client(name) as two:
        assert acquire(one)
        equal(acquire(two, "job 8"), None)
        expire(name)
        assert acquire(two, "job 8")
        assert not renew(one) and not release(one)
        assert renew(two, "job 8") and release(two, "job 8")


@test
def a_release_wakes_whoever_waits_and_a_call_does_not_overtake():
    with database() as (name, _), plain_client(name) as plain, Puppet(PUPPET, url_of(name), wait_lease_ms=LONG_MS) as puppet:
        assert acquire(plain)
        puppet.acquire("a", "orders", lease_ms=LONG_MS, wait_ms=-1)
        wait_for_waiter(name)
        assert release(plain)
        equal(acquire(plain), None)
        puppet.granted("a")


@test
def a_call_is_shown_with_its_owner_and_can_be_broken():
    with database() as (name, puppet), plain_client(name) as plain:
        token = acquire(plain)
        equal([party.token for party in puppet.inspect("orders")["holders"]], [token])
        equal(puppet.break_lock("orders", token), "OK")
        assert not renew(plain) and not release(plain)


@test
def a_call_does_not_get_a_lock_that_is_held_with_for_update():
    with database() as (name, _), plain_client(name) as plain, Puppet(PUPPET, url_of(name) + "&scheme=for-update") as row:
        row.hold("a", "orders")
        equal(acquire(plain), None)
        equal(row.release("a"), "OK")
        assert acquire(plain)
        row.acquire("b", "orders")
        equal(row.failed("b"), "WRONG_KIND")


@test
def the_documented_rights_are_enough_for_plain_clients():
    with MariaDB() as server:
        server.make_role(HOLDFAST)
        server.command("".join(f"REVOKE EXECUTE ON PROCEDURE holdfast_{name} FROM app@'%';"
                               for name in ("break", "draw", "break_session")))
        with Session(server, user="app", password=PASSWORD) as plain:
            equal(plain.say(SESSION), FINE)
            assert acquire(plain) and renew(plain) and release(plain) and take_row(plain)


# ---- For update ----


@test(*KINDS)
def whoever_has_locked_the_row_and_found_nobody_is_alone(kind):
    with database() as (name, puppet), plain_client(name) as plain:
        token = puppet.hold("a", "orders", kind=kind, lease_ms=LONG_MS).token
        assert not take_row(plain)
        equal(puppet.release("a"), "OK")
        assert take_row(plain)
        puppet.acquire("b", "orders", kind=kind, wait_ms=-1)
        wait_for_blocked(name)
        equal(plain.say("COMMIT"), FINE)
        assert puppet.granted("b").token > token


@test
def a_row_lock_does_not_end_a_hold_and_dies_with_its_connection():
    with database() as (name, puppet), plain_client(name) as two:
        with plain_client(name) as one:
            assert take_row(one)  # of a name that nobody has used
            two.ask(ACQUIRE)
            wait_for_blocked(name)
        equal((two.answer(), two.rows[0].split("\t")[0]), (FINE, "done"))
        puppet.hold("a", "another", lease_ms=LONG_MS)
        with plain_client(name) as three:
            equal(three.say("BEGIN; SELECT * FROM holdfast_locks WHERE name = 'another' FOR UPDATE"), FINE)
            equal(puppet.renew("a"), "OK")


@test
def a_claim_that_has_expired_is_nobody_to_whoever_locks_the_row():
    with database() as (name, puppet), plain_client(name) as plain:
        puppet.hold("a", "orders", lease_ms=LONG_MS)
        puppet.kill()
        expire(name)
        assert take_row(plain)


@test
def a_row_lock_does_not_look_for_a_holder_with_for_update():
    with database() as (name, _), plain_client(name) as plain, Puppet(PUPPET, url_of(name) + "&scheme=for-update") as row:
        row.hold("a", "orders", lease_ms=LONG_MS)
        assert take_row(plain)  # as the page says


# ---- A fleet ----


def by_holdfast(name, work, finished):
    with Puppet(PUPPET, url_of(name)) as puppet:
        while not finished():
            puppet.hold("a", "orders", lease_ms=LEASE_S * 1000, wait_ms=-1)
            work()
            equal(puppet.release("a"), "OK")
            puppet.free("a")
            rest()


def by_call(name, work, finished):
    """Renews before it works. After a restart it has another owner: it does not know that it held the lock."""
    owner = f"job {secrets.token_hex(4)}"
    with plain_client(name) as plain:
        while not finished():
            if acquire(plain, owner, LEASE_S):
                assert renew(plain, owner)
                work()
                assert release(plain, owner)
            rest()


def by_row_lock(name, work, finished):
    with plain_client(name) as plain:
        while not finished():
            if take_row(plain):
                work()
                equal(plain.say("COMMIT"), FINE)
            rest()


def of_no_use(name, work, finished):
    """A client that does not follow the page: it only looks."""
    with plain_client(name) as plain:
        while not finished():
            equal(plain.say("SELECT COUNT(*) FROM holdfast_claims WHERE name = 'orders' AND state < 3"), FINE)
            if plain.rows == ["0"]:
                time.sleep(0.01)
                work()


@test
def a_mixed_fleet_is_never_two_at_a_time_whoever_is_killed():
    with database() as (name, puppet):
        play(name, shared.folder, [by_holdfast, by_call, by_row_lock], range(3))
        assert puppet.hold("last", "orders", wait_ms=-1).token


@test
def the_witness_notices_a_client_that_only_looks():
    with database() as (name, _):
        assert is_noticed(name, shared.folder, [by_holdfast, by_call, of_no_use])


if __name__ == "__main__":
    with shared:
        main()
