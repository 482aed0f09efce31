#!/usr/bin/env python3
"""The MySQL store when connections, the server or its clock fail: fault_test.py HOLDFAST PUPPET. Failures that are the
same elsewhere are in servers/faults.py."""
import shutil
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.faults import WAIT_LEASE_MS, database_faults, faults, waiters
from servers.mariadb import MariaDB, Shared
from servers.puppet import Puppet, boot_us
from servers.scene import LONG_MS, PUPPET, is_lost, one_of, puppets, wait_until
from servers.suite import equal, main, test

store = Shared()
faults.add(store)
database_faults.add(store)


def listeners(name):
    return store.sessions(name, store.listens)


@test
def no_request_waits_for_a_row_of_another_name():
    with store.fresh() as name, Puppet(PUPPET, store.url(name)) as one:
        for lock in ("a", "b", "d"):
            one.hold(lock, lock)
        equal(one.release("b"), "OK")
        with store.session(name) as locker:
            locker.say("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            locker.say("BEGIN")
            locker.say("SELECT 1 FROM holdfast_locks WHERE name = 'b' FOR UPDATE")
            equal(locker.rows, ["1"])
            for lock in ("aa", "bb", "c", "e"):  # new names beside it
                one.hold(lock, lock)
                equal(one.release(lock), "OK")
            equal((one.renew("a"), one.renew("d"), one.release("a")), ("OK", "OK", "OK"))


@test
def row_15_a_refusal_is_not_a_loss():
    refusals = {
        "UNREACHABLE": ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"),
        "DENIED": ("RENAME USER holder@'%' TO nobody@'%'", "RENAME USER nobody@'%' TO holder@'%'"),
    }
    with MariaDB() as server, puppets(2, store.patient(server.url())) as (one, two):
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
        server.command("SET GLOBAL read_only = ON")  # for a session that continues
        two.acquire("while", "other")
        equal(two.failed("while"), "UNREACHABLE")
        server.command("SET GLOBAL read_only = OFF")
        equal(one.release("lock"), "OK")


@test
def a_statement_that_is_killed_is_not_a_loss():
    with store.fresh() as name, puppets(2, store.url(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiters(one, "lock"), "the waiter")
        for _ in range(20):
            store.end_sessions(name, how="KILL QUERY")
            one_of(one.renew("lock"), ("OK", "UNKNOWN"))
        wait_until(lambda: one.renew("lock") == "OK", "a renewal")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@test
def a_user_without_procedures_gets_the_same_locks():
    with store.fresh() as name:
        store.server.command(f"CREATE OR REPLACE USER plain@'%' IDENTIFIED BY 'word';"
                             f"GRANT CREATE, ALTER, SELECT, INSERT, UPDATE, DELETE ON {name}.* TO plain@'%'")
        with puppets(2, store.url(name, user="plain:word"), wait_lease_ms=LONG_MS) as (one, two):
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            two.acquire("lock", "lock", wait_ms=-1)
            wait_until(lambda: waiters(one, "lock") and listeners(name) == 2, "the waiter")
            equal(one.release("lock"), "OK")
            grant = two.granted("lock")  # long before its wait lease
            assert grant.token > token
            equal(one.break_lock("lock", grant.token), "OK")
            two.lost("lock")
        equal(store.ask(name, "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE()"), "0")


@test
def row_22_a_waiter_whose_turn_it_is_is_woken_at_once():
    with store.fresh() as name, puppets(2, store.url(name), wait_lease_ms=LONG_MS) as (one, two):
        one.hold(0, "lock", lease_ms=LONG_MS)
        delays_us = []
        for number in range(1, 11):
            two.acquire(number, "lock", lease_ms=LONG_MS, wait_ms=-1)
            wait_until(lambda: waiters(one, "lock") and listeners(name) == min(number, 2), "the waiter")
            began_us = boot_us()
            equal(one.release(number - 1), "OK")
            delays_us.append(two.granted(number).at_us - began_us)
            one, two = two, one
        # Without a wake-up, the client checks every 5 s whose turn it is.
        assert sorted(delays_us)[len(delays_us) // 2] < 1000000, delays_us


@test
def row_10_a_lock_that_the_server_has_forgotten_is_reported_at_once():
    with MariaDB() as server, Puppet(PUPPET, store.patient(server.url())) as one:
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


if __name__ == "__main__":
    with store:
        main()
