#!/usr/bin/env python3
"""The PostgreSQL store when connections, the server or its clock fail: fault_test.py HOLDFAST PUPPET."""
import contextlib
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.postgres import Postgres
from servers.postgres import patient as slowly
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.redis import Clock
from servers.scene import (KINDS, LONG_MS, PUPPET, SHIM, deadline_us, gathering, is_lost, is_there, one_of, outcome,
                           patient, puppets, sockets_of, use_once, wait_until)
from servers.suite import equal, main, test

VERY_LONG_MS = 600000  # nobody renews within the test
WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
MANY = [f"name-{number}" for number in range(12)]
shared = Postgres()  # for tests that leave the server alone; each has a database of its own


@contextlib.contextmanager
def database():
    """A new one of the shared server: its name."""
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    yield name


def url_of(name, port=None, timeout_ms=None):
    url = shared.url(database=name, port=port)
    return f"{url}?timeout={timeout_ms}&connect_timeout={timeout_ms}" if timeout_ms else slowly(url)


def count(server, where, database_name="postgres"):
    return int(server.command(f"SELECT count(*) FROM holdfast.claims WHERE {where}", database=database_name))


def waits(server, database_name="postgres"):
    return count(server, "state = 3", database_name)


def token_in(name, lock):
    return int(shared.command(f"SELECT token FROM holdfast.locks WHERE name = '{lock}'", database=name))


def terminate(name, where="true"):
    """Ends the backends that serve clients of this database; returns how many."""
    return int(shared.command("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
                              f"datname = '{name}' AND application_name = 'holdfast' AND {where}"))


def sessions(name):
    return int(shared.command("SELECT count(*) FROM pg_stat_activity WHERE "
                              f"datname = '{name}' AND application_name = 'holdfast'"))


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
    return int(shared.command("SELECT count(DISTINCT name) FROM holdfast.claims WHERE state = 1 AND name LIKE 'name-%'",
                              database=name))


# ---- Requests that share a transaction ----


@test
def requests_that_have_gathered_share_a_transaction():
    with many() as (name, proxy, far):
        with gathering(proxy, far):
            for lock in MANY:
                far.acquire(lock, lock, lease_ms=LONG_MS)
        tokens = {lock: far.granted(lock).token for lock in MANY}
        equal(holders(name), len(MANY))
        equal(shared.command("SELECT count(DISTINCT xmin::text) FROM holdfast.claims WHERE name LIKE 'name-%'", database=name), "1")
        for lock in MANY:
            equal(token_in(name, lock), tokens[lock])
            far.send("release", lock)
        for lock in MANY:
            equal(far.wait(("released", lock)).words[2], "OK")
        equal(holders(name), 0)


@test
def what_cannot_be_done_at_once_does_not_hold_up_the_others():
    held, locked, twice, new = MANY[0], MANY[1], MANY[2], "new"
    with many() as (name, proxy, far), Puppet(PUPPET, url_of(name)) as near, \
            subprocess.Popen(["psql", "-XAtq", "-h", shared.folder, "-p", str(shared.port), "-U", "postgres", "-d", name],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
        near.hold("held", held)
        locker.stdin.write(f"BEGIN; SELECT 1 FROM holdfast.locks WHERE name = '{locked}' FOR UPDATE;\n")
        locker.stdin.flush()
        equal(locker.stdout.readline(), "1\n")
        with gathering(proxy, far):
            for lock in [*MANY, new]:
                far.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=-1)
            far.acquire("again", twice, wait_ms=-1)
        for lock in set(MANY) - {held, locked, twice, new}:
            far.granted(lock)
        locker.stdin.close()
        locker.wait(LIMIT_S)
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
            dropped = proxy.drop_reply_to("holdfast.acquire_free")
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
            dropped = proxy.drop_reply_to("holdfast.release_quiet")
        assert dropped.wait(LIMIT_S)
        for lock in MANY:
            one_of(far.wait(("released", lock)).words[2], ("OK", "UNKNOWN"))
        equal(holders(name), 0)


@test
def row_8_a_release_that_a_crash_undoes_ends_with_its_lease():
    """Its commit does not wait for the disk. In this server, nothing else writes it there for a while."""
    with Postgres(config=["wal_writer_delay = 10s"]) as server, puppets(2, slowly(server.url())) as (one, two):
        for number in range(5):
            token = one.hold(number, "lock", lease_ms=3000, wait_ms=-1).token
            equal(one.release(number), "OK")
            server.crash()
            server.start()
            if count(server, "true"):
                break
        else:
            raise AssertionError("each release was written at once")
        assert two.hold("b", "lock", wait_ms=-1).token > token


@test
def row_8_a_grant_makes_the_release_before_it_durable():
    with Postgres(config=["wal_writer_delay = 10s"]) as server, puppets(2, slowly(server.url())) as (one, two):
        one.hold("a", "lock", lease_ms=LONG_MS)
        equal(one.release("a"), "OK")
        token = two.hold("b", "lock", lease_ms=LONG_MS).token
        server.crash()
        server.start()
        wait_until(lambda: two.renew("b") == "OK", "a renewal")
        equal([party.token for party in one.inspect("lock")["holders"]], [token])


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
            dropped = proxy.drop_reply_to(lock)
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
        dropped = proxy.drop_reply_to("the-lock")
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
        wait_until(lambda: terminate(name, "query LIKE 'LISTEN%'"), "somebody who listens")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@test
def a_break_that_was_missed_is_reported_when_the_connection_is_back():
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name, port=proxy.port), max_lease_ms=VERY_LONG_MS) as far, \
            Puppet(PUPPET, url_of(name)) as near:
        token = far.hold("lock", "lock", lease_ms=VERY_LONG_MS).token
        proxy.refuse()
        terminate(name)
        equal(near.break_lock("lock", token), "OK")
        proxy.accept()
        far.lost("lock")


@test
def what_anybody_may_announce_ends_no_hold():
    with database() as name, puppets(2, url_of(name), max_lease_ms=VERY_LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=VERY_LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        equal(one.renew("lock"), "OK")  # from now on it listens
        wait_until(lambda: shared.command("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND "
                                          f"state = 'idle' AND datname = '{name}'") == "2", "both listen")
        for word in "wg":
            shared.command("SELECT pg_notify('holdfast_' || replace(client::text, '-', ''), '" + word +
                           "' || to_hex(seq)) FROM holdfast.claims", database=name)
        equal(one.renew("lock"), "OK")
        assert not one.seen("lost", "lock") and not two.seen("acquired", "lock")
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
            assert terminate(name) > 0
            for lock in KINDS:
                one_of(one.renew(lock), ("OK", "UNREACHABLE"))  # the server may end the next connection, too
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal")
            assert not is_lost(one, lock)
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@test
def row_8_a_crash_of_the_server_loses_no_lock():
    with Postgres() as server, puppets(2, slowly(server.url()), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
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
    for what in ("DELETE FROM holdfast.claims", "DROP SCHEMA holdfast CASCADE"):
        with database() as name, Puppet(PUPPET, url_of(name)) as one, Puppet(PUPPET, url_of(name)) as two:
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            shared.command(what, database=name)
            wait_until(lambda: one.renew("lock") == "LOST", "the loss")
            one.lost("lock")
            equal(count(shared, "true", name), 0)
            assert two.hold("lock", "lock").token > token


@test
def row_13_a_schema_that_was_dropped_is_made_again_at_once():
    with database() as name, Puppet(PUPPET, url_of(name)) as one:
        for number, what in enumerate(("SCHEMA holdfast CASCADE", "FUNCTION holdfast.tell", "TABLE holdfast.claims CASCADE")):
            one.inspect("none")  # it is connected
            shared.command(f"DROP {what}", database=name)
            one.hold(number, "lock")
            equal(one.release(number), "OK")


@test
def a_request_that_was_given_up_leaves_no_session_behind():
    with database() as name, Puppet(PUPPET, url_of(name)) as other, Puppet(PUPPET, url_of(name, timeout_ms=500)) as one:
        other.hold("first", "lock")  # it makes the schema, which may take longer
        equal(other.release("first"), "OK")
        other.close()
        with subprocess.Popen(["psql", "-XAtq", "-h", shared.folder, "-p", str(shared.port), "-U", "postgres", "-d", name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
            locker.stdin.write("BEGIN; SELECT 1 FROM holdfast.locks FOR UPDATE;\n")
            locker.stdin.flush()
            equal(locker.stdout.readline(), "1\n")
            for number in range(3):
                one.acquire(number, "lock")
                one_of(one.failed(number), ("UNKNOWN", "UNREACHABLE", "TIMEOUT"))
            wait_until(lambda: sessions(name) <= 2, "the end of the sessions that were given up")
            locker.stdin.close()
            locker.wait(LIMIT_S)


@test
def row_15_a_refusal_is_not_a_loss():
    refusals = {
        "UNREACHABLE": ("ALTER DATABASE {0} SET default_transaction_read_only = on",
                        "ALTER DATABASE {0} RESET default_transaction_read_only"),
        "BAD_STORE": ("ALTER DATABASE {0} SET default_transaction_isolation = serializable",
                      "ALTER DATABASE {0} RESET default_transaction_isolation"),
        "DENIED": ("ALTER DATABASE {0} SET role = other", "ALTER DATABASE {0} RESET role"),
    }
    with database() as name, Puppet(PUPPET, url_of(name)) as one, Puppet(PUPPET, url_of(name)) as two:
        shared.command("DO $$BEGIN CREATE ROLE other; EXCEPTION WHEN duplicate_object THEN END$$")
        one.hold("lock", "lock", lease_ms=LONG_MS)
        for number, (reason, (begin, end)) in enumerate(refusals.items()):
            shared.command(begin.format(name))
            terminate(name)
            two.acquire(number, f"other{number}")
            equal(two.failed(number), reason)
            one_of(one.renew("lock"), (reason, "OK", "UNKNOWN"))  # never NOT_YOURS
            shared.command(end.format(name))
            terminate(name)
            wait_until(lambda: one.renew("lock") == "OK", "a renewal")
        assert not is_lost(one, "lock")
        equal(one.release("lock"), "OK")


@test
def row_40_connections_are_closed_on_exec():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        one.hold("a", "lock")
        two.acquire("b", "lock", wait_ms=-1)
        wait_until(lambda: len(sockets_of(two.pid)) == 2, "two connections")
        equal(set(sockets_of(two.pid).values()), {True})


@test
def row_16_a_restored_copy_does_not_turn_tokens_back():
    with Postgres() as server, Puppet(PUPPET, slowly(server.url())) as one:
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
        assert int(server.command("SELECT token FROM holdfast.locks")) < token, "it was not restored"
        assert one.hold("after", "lock").token > token
        equal(one.release("after"), "OK")
        floor = token + 1000000000
        with Puppet(PUPPET, slowly(server.url()), token_floor=floor) as two:
            assert two.hold("lock", "lock").token >= floor
            equal(two.release("lock"), "OK")
        assert one.hold("last", "lock").token > floor


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
    with Postgres(clock=SHIM) as server, puppets(2, slowly(server.url())) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.clock.change(step_us=LONG_MS * 2000)
        assert two.hold("lock", "lock").token > token
        equal(one.renew("lock"), "LOST")


@test
def row_5_a_clock_that_steps_back_is_an_error_of_its_own():
    with Postgres(clock=SHIM) as server, puppets(2, slowly(server.url()), max_lease_ms=LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        server.clock.change(step_us=-LONG_MS * 60 * 1000)
        two.acquire("lock", "lock")
        equal(two.failed("lock"), "CLOCK")


if __name__ == "__main__":
    with shared:
        main()
