#!/usr/bin/env python3
"""The MySQL store when connections, the server or its clock fail: fault_test.py HOLDFAST PUPPET."""
import contextlib
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.mariadb import MariaDB, Session
from servers.mariadb import patient as slowly
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet, boot_us
from servers.redis import Clock
from servers.scene import (KINDS, LONG_MS, PUPPET, SHIM, deadline_us, gathering, is_lost, is_there, one_of, outcome,
                           patient, puppets, sockets_of, use_once, wait_until)
from servers.suite import equal, main, test

WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
MANY = [f"name-{number}" for number in range(12)]
shared = MariaDB()  # for tests that leave the server alone; each has a database of its own


@contextlib.contextmanager
def database():
    """A new one of the shared server: its name."""
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    yield name


def url_of(name, port=None, timeout_ms=None):
    url = shared.url(database=name, port=port)
    return f"{url}?timeout={timeout_ms}&connect_timeout={timeout_ms}" if timeout_ms else slowly(url)


def count(server, where, database_name="locks"):
    return int(server.command(f"SELECT count(*) FROM holdfast_claims WHERE {where}", database=database_name))


def waits(server, database_name="locks"):
    return count(server, "state = 3", database_name)


def token_in(name, lock):
    return int(shared.command(f"SELECT token FROM holdfast_locks WHERE name = '{lock}'", database=name))


def end_sessions(name, where="true", how="KILL"):
    """Of clients of this database; returns how many."""
    return shared.end_sessions(f"db = '{name}' AND {where}", lambda: how)


def listeners(name):
    return shared.sessions(f"db = '{name}' AND info LIKE '%GET_LOCK%'")


def hold_shortly(puppet, name):
    """Takes the lock for a lease that ends soon, and again if it was granted too late for that; returns it."""
    for number in range(20):
        puppet.acquire(number, name, lease_ms=1000, flags="no_renew", wait_ms=-1)
        if outcome(puppet, number) == "OK":
            return number
    raise AssertionError("the machine was too slow each time")


@contextlib.contextmanager
def many():
    """A database where MANY names have been used before; a proxy, and a puppet behind it."""
    with database() as name, Proxy(shared.port) as proxy, Puppet(PUPPET, url_of(name, port=proxy.port)) as far:
        use_once(far, MANY)
        yield name, proxy, far


def holders(name):
    return count(shared, "state = 1 AND name LIKE 'name-%'", name)


# ---- Requests that share a transaction ----


@test
def requests_that_have_gathered_share_a_transaction():
    with many() as (name, proxy, far):
        with gathering(proxy, far):
            for lock in MANY:
                far.acquire(lock, lock, lease_ms=LONG_MS)
        tokens = {lock: far.granted(lock).token for lock in MANY}
        equal(holders(name), len(MANY))
        equal(shared.command("SELECT COUNT(DISTINCT since_us) FROM holdfast_claims WHERE name LIKE 'name-%'", database=name), "1")
        for lock in MANY:
            equal(token_in(name, lock), tokens[lock])
            far.send("release", lock)
        for lock in MANY:
            equal(far.wait(("released", lock)).words[2], "OK")
        equal(holders(name), 0)


@test
def what_cannot_be_done_at_once_does_not_hold_up_the_others():
    held, locked, twice, new = MANY[0], MANY[1], MANY[2], "new"
    with many() as (name, proxy, far), Puppet(PUPPET, url_of(name)) as near, Session(shared) as locker:
        near.hold("held", held)
        equal(locker.say("BEGIN"), 0)
        equal(locker.say(f"SELECT 1 FROM {name}.holdfast_locks WHERE name = '{locked}' FOR UPDATE"), 0)
        with gathering(proxy, far):
            for lock in [*MANY, new]:
                far.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=-1)
            far.acquire("again", twice, wait_ms=-1)
        for lock in set(MANY) - {held, locked, twice, new}:
            far.granted(lock)
        equal(locker.say("COMMIT"), 0)
        for lock in (locked, twice, new):
            far.granted(lock)
        wait_until(lambda: waits(shared, name) == 2, "the waiters")
        equal(near.release("held"), "OK")
        far.granted(held)
        equal(far.release(twice), "OK")
        far.granted("again")


@test
def row_17_requests_that_shared_a_transaction_whose_reply_was_lost_are_done_once():
    with many() as (name, proxy, far), Puppet(PUPPET, url_of(name)) as near:
        with gathering(proxy, far):
            for lock in MANY:
                far.acquire(lock, lock, lease_ms=LONG_MS)
            dropped = proxy.drop_reply_to("holdfast_acquire_free")
        assert dropped.wait(LIMIT_S)
        tokens = {lock: far.granted(lock).token for lock in MANY}
        equal(holders(name), len(MANY))
        for lock in MANY:
            equal([party.token for party in near.inspect(lock)["holders"]], [tokens[lock]])
        equal(far.release("first"), "OK")
        far.free("first")
        with gathering(proxy, far):
            for lock in MANY:
                far.send("release", lock)
            dropped = proxy.drop_reply_to("holdfast_release_quiet")
        assert dropped.wait(LIMIT_S)
        for lock in MANY:
            one_of(far.wait(("released", lock)).words[2], ("OK", "UNKNOWN"))
        equal(holders(name), 0)


# ---- Messages ----


@test
def row_2_a_grant_that_arrives_after_its_lease_is_not_used():
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name, port=proxy.port)) as one, Puppet(PUPPET, url_of(name)) as two:
        one.inspect("none")  # it is connected
        proxy.hold("down")
        one.acquire("a", "lock", lease_ms=1500)
        proxy.wait(lambda: proxy.held["down"] > 0)
        one.stop()
        token = two.hold("b", "lock", wait_ms=-1).token  # the server did grant it to the first
        proxy.let_go()
        proxy.wait(lambda: proxy.held["down"] == 0)
        one.cont()
        equal(one.failed("a"), "SHORT")
        equal(two.renew("b"), "OK")
        equal([party.token for party in two.inspect("lock")["holders"]], [token])


@test(*KINDS)
def row_17_an_acquire_whose_reply_was_lost_finds_its_own_grant(kinds):
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name, port=proxy.port)) as far, Puppet(PUPPET, url_of(name)) as near:
        far.inspect("none")  # it is connected
        for wait_ms in (0, -1):
            lock = f"lock{wait_ms}"
            proxy.refuse()  # so that it is not repeated yet
            dropped = proxy.drop_reply_to(lock.encode().hex())
            far.acquire(lock, lock, kind=KINDS[kinds][0], lease_ms=LONG_MS, wait_ms=wait_ms)
            assert dropped.wait(LIMIT_S)
            wait_until(lambda: count(shared, "state = 1", name), "the grant")
            token = token_in(name, lock)
            proxy.accept()
            one_of(far.granted(lock).token - token, range(1 << 40))  # a repeat may raise it
            equal(far.check(lock), "OK")
            equal(len(near.inspect(lock)["holders"]), 1)
            near.acquire(lock, lock, kind=KINDS[kinds][1])
            equal(near.failed(lock), "BUSY")
            equal(far.release(lock), "OK")
            equal(count(shared, "true", name), 0)


@test
def row_17_a_release_whose_reply_was_lost_is_done():
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name, port=proxy.port)) as far, Puppet(PUPPET, url_of(name)) as near:
        far.hold("lock", "the-lock", lease_ms=LONG_MS)
        dropped = proxy.drop_reply_to(b"the-lock".hex())
        far.send("release", "lock")
        assert dropped.wait(LIMIT_S)
        one_of(far.wait("released lock").words[2], ("OK", "UNKNOWN"))
        near.hold("lock", "the-lock")


@test
def row_19_a_late_release_does_not_touch_the_next_owner():
    with database() as name, Puppet(PUPPET, url_of(name)) as one, Puppet(PUPPET, url_of(name)) as two:
        late = hold_shortly(one, "lock")
        one.lost(late)
        token = two.hold("b", "lock", wait_ms=-1).token
        one_of(one.release(late), ("LOST", "NOT_YOURS"))
        equal([party.token for party in two.inspect("lock")["holders"]], [token])
        equal(two.renew("b"), "OK")


@test
def row_22_a_lost_wake_up_is_repaired():
    with database() as name, puppets(2, url_of(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waits(shared, name), "the waiter")
        wait_until(lambda: end_sessions(name, "info LIKE '%GET_LOCK%'"), "somebody who listens")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@test
@patient
def row_34_a_connection_that_goes_silent_frees_its_lock_after_the_lease():
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name), wait_lease_ms=WAIT_LEASE_MS) as near, \
            Puppet(PUPPET, url_of(name, port=proxy.port, timeout_ms=3000)) as far:
        near.inspect("none")  # the schema is there
        token = far.hold("lock", "lock", lease_ms=6000).token
        near.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waits(shared, name), "the waiter")
        proxy.blackhole()
        earliest_us, _ = deadline_us(far, "lock")
        far.lost("lock")
        grant = near.granted("lock")
        assert grant.token > token and grant.at_us >= earliest_us, (grant, token, earliest_us)
        equal(far.check("lock"), "LOST")
        proxy.pass_all()
        equal(far.release("lock"), "LOST")
        equal(near.renew("lock"), "OK")


# ---- The server ----


@test
def row_35_a_lock_outlives_the_connections_of_its_holder():
    with database() as name, puppets(2, url_of(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = {lock: one.hold(lock, lock, kind=KINDS[lock][0], lease_ms=LONG_MS).token for lock in KINDS}
        for lock, (_, kind) in KINDS.items():
            two.acquire(lock, lock, kind=kind, wait_ms=-1)
        wait_until(lambda: waits(shared, name) == len(KINDS), "waiters")
        for _ in range(3):
            assert end_sessions(name) > 0
            for lock in KINDS:
                one_of(one.renew(lock), ("OK", "UNREACHABLE"))  # the server may end the next connection, too
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal")
            assert not is_lost(one, lock)
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@test
def row_8_a_crash_of_the_server_loses_no_lock():
    with MariaDB() as server, puppets(2, slowly(server.url()), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = {lock: one.hold(lock, lock, kind=KINDS[lock][0], lease_ms=LONG_MS).token for lock in KINDS}
        for lock, (_, kind) in KINDS.items():
            two.acquire(lock, lock, kind=kind, wait_ms=-1)
        wait_until(lambda: waits(server) == len(KINDS), "waiters")
        server.crash()
        server.start()
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal")
            assert not is_there(two, lock), lock
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@test
def row_13_what_is_deleted_is_reported_and_not_made_again():
    for what in ("DELETE FROM holdfast_claims", "DROP TABLE holdfast_claims, holdfast_locks"):
        with database() as name, Puppet(PUPPET, url_of(name)) as one, Puppet(PUPPET, url_of(name)) as two:
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            shared.command(what, database=name)
            wait_until(lambda: one.renew("lock") == "LOST", "the loss")
            one.lost("lock")
            equal(count(shared, "true", name), 0)
            assert two.hold("lock", "lock").token > token


@test
def row_13_what_was_dropped_is_made_again_at_once():
    with database() as name, Puppet(PUPPET, url_of(name)) as one:
        for number, what in enumerate(("TABLE holdfast_claims", "TABLE holdfast_locks", "PROCEDURE holdfast_acquire")):
            one.inspect("none")  # it is connected
            shared.command(f"DROP {what}", database=name)
            one.hold(number, "lock")
            equal(one.release(number), "OK")


@test
def a_request_that_was_given_up_leaves_no_session_behind():
    with database() as name, Puppet(PUPPET, url_of(name, timeout_ms=1000)) as one:
        one.hold("first", "lock")
        equal(one.release("first"), "OK")
        with subprocess.Popen(["mariadb", "--no-defaults", "-NBn", f"--socket={shared.socket}", "--user=root", name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
            locker.stdin.write("BEGIN; SELECT 1 FROM holdfast_locks FOR UPDATE;\n")
            locker.stdin.flush()
            equal(locker.stdout.readline(), "1\n")
            for number in range(3):
                one.acquire(number, "lock")
                one_of(one.failed(number), ("UNKNOWN", "UNREACHABLE", "TIMEOUT"))
            wait_until(lambda: len(shared.sessions(f"db = '{name}'")) <= 2, "the end of the sessions that were given up")
            locker.stdin.close()
            locker.wait(LIMIT_S)


@test
def no_request_waits_for_a_row_of_another_name():
    with database() as name, Puppet(PUPPET, url_of(name)) as one:
        for lock in ("a", "b", "d"):
            one.hold(lock, lock)
        equal(one.release("b"), "OK")
        with subprocess.Popen(["mariadb", "--no-defaults", "-NBn", f"--socket={shared.socket}", "--user=root", name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
            locker.stdin.write("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
                               "BEGIN; SELECT 1 FROM holdfast_locks WHERE name = 'b' FOR UPDATE;\n")
            locker.stdin.flush()
            equal(locker.stdout.readline(), "1\n")
            for lock in ("aa", "bb", "c", "e"):  # new names beside it
                one.hold(lock, lock)
                equal(one.release(lock), "OK")
            equal((one.renew("a"), one.renew("d"), one.release("a")), ("OK", "OK", "OK"))
            locker.stdin.close()
            locker.wait(LIMIT_S)


@test
def row_15_a_refusal_is_not_a_loss():
    refusals = {
        "UNREACHABLE": ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"),
        "DENIED": ("RENAME USER holder@'%' TO nobody@'%'", "RENAME USER nobody@'%' TO holder@'%'"),
    }
    with MariaDB() as server, Puppet(PUPPET, slowly(server.url())) as one, Puppet(PUPPET, slowly(server.url())) as two:
        one.hold("lock", "lock", lease_ms=LONG_MS)
        for number, (reason, (begin, end)) in enumerate(refusals.items()):
            server.command(begin)
            server.end_sessions()
            two.acquire(number, f"other{number}")
            equal(two.failed(number), reason)
            one_of(one.renew("lock"), (reason, "OK", "UNKNOWN"))  # never NOT_YOURS
            server.command(end)
            wait_until(lambda: one.renew("lock") == "OK", "a renewal")
        assert not is_lost(one, "lock")
        server.command("SET GLOBAL read_only = ON")  # of a session that goes on
        two.acquire("while", "other")
        equal(two.failed("while"), "UNREACHABLE")
        server.command("SET GLOBAL read_only = OFF")
        equal(one.release("lock"), "OK")


@test
def a_statement_that_is_killed_is_not_a_loss():
    with database() as name, puppets(2, url_of(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waits(shared, name), "the waiter")
        for _ in range(20):
            end_sessions(name, how="KILL QUERY")
            one_of(one.renew("lock"), ("OK", "UNKNOWN"))
        wait_until(lambda: one.renew("lock") == "OK", "a renewal")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@test
def a_user_without_procedures_gets_the_same_locks():
    with database() as name:
        shared.command(f"CREATE OR REPLACE USER plain@'%' IDENTIFIED BY 'word';"
                       f"GRANT CREATE, ALTER, SELECT, INSERT, UPDATE, DELETE ON {name}.* TO plain@'%'")
        url = slowly(shared.url(user="plain:word", database=name))
        with puppets(2, url, wait_lease_ms=LONG_MS) as (one, two):
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            two.acquire("lock", "lock", wait_ms=-1)
            wait_until(lambda: waits(shared, name) and len(listeners(name)) == 2, "the waiter")
            equal(one.release("lock"), "OK")
            grant = two.granted("lock")  # long before its wait lease
            assert grant.token > token
            equal(one.break_lock("lock", grant.token), "OK")
            two.lost("lock")
        equal(shared.command("SELECT COUNT(*) FROM information_schema.routines"
                             f" WHERE routine_schema = '{name}'"), "0")


@test
def row_22_a_waiter_whose_turn_it_is_is_woken_at_once():
    with database() as name, puppets(2, url_of(name), wait_lease_ms=LONG_MS) as (one, two):
        one.hold(0, "lock", lease_ms=LONG_MS)
        delays_us = []
        for number in range(1, 11):
            two.acquire(number, "lock", lease_ms=LONG_MS, wait_ms=-1)
            wait_until(lambda: waits(shared, name) and len(listeners(name)) == min(number, 2), "the waiter")
            began_us = boot_us()
            equal(one.release(number - 1), "OK")
            delays_us.append(two.granted(number).at_us - began_us)
            one, two = two, one
        # Without a wake-up the client looks each 5 s whose turn it is.
        assert sorted(delays_us)[len(delays_us) // 2] < 1000000, delays_us


@test
def row_40_connections_are_closed_on_exec():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        one.hold("a", "lock")
        two.acquire("b", "lock", wait_ms=-1)
        wait_until(lambda: len(sockets_of(two.pid)) == 2, "two connections")
        equal(set(sockets_of(two.pid).values()), {True})


@test
def row_16_a_restored_copy_does_not_turn_tokens_back():
    with MariaDB() as server, Puppet(PUPPET, slowly(server.url())) as one:
        one.hold("before", "lock")
        equal(one.release("before"), "OK")
        server.shut_down()
        copy = server.folder / "copy"
        shutil.copytree(server.data, copy)
        server.start()
        for number in range(3):
            token = one.hold(number, "lock").token
            equal(one.release(number), "OK")
        server.shut_down()
        server.restore(copy)
        server.start()
        assert int(server.command("SELECT token FROM holdfast_locks")) < token, "it was not restored"
        assert one.hold("after", "lock").token > token
        equal(one.release("after"), "OK")
        floor = token + 1000000000
        with Puppet(PUPPET, slowly(server.url()), token_floor=floor) as two:
            assert two.hold("lock", "lock").token >= floor
            equal(two.release("lock"), "OK")
        assert one.hold("last", "lock").token > floor


@test
def row_10_a_lock_that_the_server_has_forgotten_is_reported_at_once():
    with MariaDB() as server, Puppet(PUPPET, slowly(server.url())) as one:
        one.hold("kept", "kept", lease_ms=LONG_MS)
        equal(one.renew("kept"), "OK")  # from now on it listens
        server.shut_down()
        copy = server.folder / "copy"
        shutil.copytree(server.data, copy)
        server.start()
        one.hold("new", "new", lease_ms=LONG_MS)
        server.shut_down()
        server.restore(copy)
        server.start()
        one.lost("new", limit_s=LONG_MS / 1000 / 4)  # it is renewed only after a third of the lease
        assert not is_lost(one, "kept")
        equal(one.release("kept"), "OK")


@test
def two_who_make_the_schema_at_once_both_succeed():
    with database() as name, puppets(6, url_of(name)) as every:
        for puppet in every:
            puppet.acquire("lock", "lock", kind="shared")
        for puppet in every:
            puppet.granted("lock")


# ---- Clocks ----


@test
def row_4_a_clock_that_steps_forward_ends_leases_and_tokens_still_rise():
    with MariaDB(clock=SHIM) as server, puppets(2, slowly(server.url())) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.clock.change(step_us=LONG_MS * 2000)
        assert two.hold("lock", "lock").token > token
        equal(one.renew("lock"), "LOST")


@test
def row_5_a_clock_that_steps_back_is_an_error_of_its_own():
    with MariaDB(clock=SHIM) as server, puppets(2, slowly(server.url()), max_lease_ms=LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        server.clock.change(step_us=-LONG_MS * 60 * 1000)
        two.acquire("lock", "lock")
        equal(two.failed("lock"), "CLOCK")


if __name__ == "__main__":
    with shared:
        main()
