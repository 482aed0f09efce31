#!/usr/bin/env python3
"""The PostgreSQL store when connections, the server or its clock fail: fault_test.py HOLDFAST PUPPET. Failures that are
the same elsewhere are in servers/faults.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.faults import database_faults, faults
from servers.postgres import Postgres, Shared
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import LONG_MS, PUPPET, is_lost, one_of, puppets, wait_until
from servers.suite import equal, main, test

VERY_LONG_MS = 600000  # nobody renews within the test
store = Shared()
faults.add(store)
database_faults.add(store)


@test
def row_8_a_release_that_a_crash_undoes_ends_with_its_lease():
    """Its commit does not wait for the disk. In this server, nothing else flushes it for a while."""
    with Postgres(config=["wal_writer_delay = 10s"]) as server, puppets(2, store.patient(server.url())) as (one, two):
        for number in range(5):
            token = one.hold(number, "lock", lease_ms=3000, wait_ms=-1).token
            equal(one.release(number), "OK")
            server.crash()
            server.start()
            if server.command("SELECT count(*) FROM holdfast.claims") != "0":
                break
        else:
            raise AssertionError("each release was written at once")
        assert two.hold("b", "lock", wait_ms=-1).token > token


@test
def row_8_a_grant_makes_the_release_before_it_durable():
    with Postgres(config=["wal_writer_delay = 10s"]) as server, puppets(2, store.patient(server.url())) as (one, two):
        one.hold("a", "lock", lease_ms=LONG_MS)
        equal(one.release("a"), "OK")
        token = two.hold("b", "lock", lease_ms=LONG_MS).token
        server.crash()
        server.start()
        wait_until(lambda: two.renew("b") == "OK", "a renewal")
        equal([party.token for party in one.inspect("lock")["holders"]], [token])


# ---- Messages ----


@test
def a_break_that_was_missed_is_reported_when_the_connection_is_back():
    with store.fresh() as name, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(name, port=proxy.port), max_lease_ms=VERY_LONG_MS) as far, \
            Puppet(PUPPET, store.url(name)) as near:
        token = far.hold("lock", "lock", lease_ms=VERY_LONG_MS).token
        proxy.refuse()
        store.end_sessions(name)
        equal(near.break_lock("lock", token), "OK")
        proxy.accept()
        far.lost("lock")


@test
def what_anybody_may_announce_ends_no_hold():
    with store.fresh() as name, puppets(2, store.url(name), max_lease_ms=VERY_LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=VERY_LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        equal(one.renew("lock"), "OK")  # from now on it listens
        wait_until(lambda: store.sessions(name, "state = 'idle' AND query LIKE 'LISTEN%'") == 2, "both listen")
        for word in "wg":
            store.ask(name, f"SELECT pg_notify('holdfast_' || replace(client::text, '-', ''), '{word}' || to_hex(seq))"
                            " FROM holdfast.claims")
        equal(one.renew("lock"), "OK")
        assert not one.seen("lost", "lock") and not two.seen("acquired", "lock")
        equal(one.release("lock"), "OK")
        two.granted("lock")


# ---- The server ----


@test
def row_15_a_refusal_is_not_a_loss():
    refusals = {
        "UNREACHABLE": ("ALTER DATABASE {0} SET default_transaction_read_only = on",
                        "ALTER DATABASE {0} RESET default_transaction_read_only"),
        "BAD_STORE": ("ALTER DATABASE {0} SET default_transaction_isolation = serializable",
                      "ALTER DATABASE {0} RESET default_transaction_isolation"),
        "DENIED": ("ALTER DATABASE {0} SET role = other", "ALTER DATABASE {0} RESET role"),
    }
    with store.fresh() as name, Puppet(PUPPET, store.url(name)) as one, Puppet(PUPPET, store.url(name)) as two:
        store.server.command("DO $$BEGIN CREATE ROLE other; EXCEPTION WHEN duplicate_object THEN END$$")
        one.hold("lock", "lock", lease_ms=LONG_MS)
        for number, (reason, (begin, end)) in enumerate(refusals.items()):
            store.server.command(begin.format(name))
            store.end_sessions(name)
            two.acquire(number, f"other{number}")
            equal(two.failed(number), reason)
            one_of(one.renew("lock"), (reason, "OK", "UNKNOWN"))  # never NOT_YOURS
            store.server.command(end.format(name))
            store.end_sessions(name)
            wait_until(lambda: one.renew("lock") == "OK", "a renewal")
        assert not is_lost(one, "lock")
        equal(one.release("lock"), "OK")


if __name__ == "__main__":
    with store:
        main()
