#!/usr/bin/env python3
"""PostgreSQL with a standby that is promoted when the primary fails: failover_test.py HOLDFAST PUPPET."""
import contextlib
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import add_up, run_adder, wait
from servers.history import History
from servers.player import Player, playing
from servers.postgres import Postgres, PostgresError, patient
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import PUPPET, puppets, wait_until
from servers.suite import equal, main, test

VERY_LONG_MS = 600000  # nobody renews within the test
LEASE_MS = 20000  # longer than the fail-over takes


def url_of(*servers):
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return patient(f"postgres://postgres@{hosts}/postgres")


def claims(server):
    """The names of locks that are held, as this server knows them."""
    with contextlib.suppress(PostgresError):  # before there is a schema
        return set(server.command("SELECT encode(name, 'escape') FROM holdfast.claims WHERE state = 1").split())
    return set()


@test
def row_10_a_lock_that_the_promoted_standby_does_not_have_is_reported_at_once():
    with Postgres() as primary, Proxy(primary.port) as proxy, Postgres(follows=primary, through=proxy.port) as standby, \
            puppets(2, url_of(primary, standby), max_lease_ms=VERY_LONG_MS) as (one, two):
        kept = one.hold("kept", "kept", lease_ms=VERY_LONG_MS).token
        wait_until(lambda: claims(standby) == {"kept"}, "replication")
        proxy.blackhole()
        token = one.hold("gone", "gone", lease_ms=VERY_LONG_MS).token
        primary.crash()
        standby.promote()
        one.lost("gone")
        equal(one.check("kept"), "OK")
        equal([party.token for party in two.inspect("kept")["holders"]], [kept])
        assert two.hold("gone", "gone").token > token
        equal(one.release("kept"), "OK")


@contextlib.contextmanager
def synchronous():
    """A primary, and a standby that it waits for."""
    with Postgres() as primary, Postgres(follows=primary) as standby:
        primary.config.append("synchronous_standby_names = '*'")
        primary.restart()
        wait_until(lambda: primary.command("SELECT sync_state FROM pg_stat_replication") == "sync", "the standby")
        yield primary, standby


@test
def row_10_nothing_is_lost_with_a_synchronous_standby():
    history = History()
    with synchronous() as (primary, standby), contextlib.ExitStack() as stack:
        url = url_of(primary, standby)
        one = stack.enter_context(Puppet(PUPPET, url, max_lease_ms=VERY_LONG_MS))
        locks = {f"lock{number}" for number in range(5)}
        for lock in locks:
            one.hold(lock, lock, lease_ms=VERY_LONG_MS)
        players = [Player(Puppet(PUPPET, url).__enter__(), number, history, {"x": ("exclusive", "shared")}, LEASE_MS)
                   for number in range(4)]
        stack.callback(lambda: [player.puppet.__exit__() for player in players])
        with playing(players):
            time.sleep(2)
            primary.crash()
            standby.promote()
            time.sleep(2)
            wait_until(lambda: history.over() > 3, "some who held it")
        assert history.check() > 3, "hardly anybody held anything"
        equal(claims(standby) & locks, locks)
        for lock in locks:
            equal(one.renew(lock), "OK")


@test
def row_10_clients_add_up_exactly_over_a_fail_over_to_a_synchronous_standby():
    value = "SELECT value FROM holdfast.counters WHERE name = 'hits'"
    with synchronous() as (primary, standby), Proxy(primary.port) as slow:
        run_adder(url_of(primary), "other", 1, 1)  # this makes the schema
        slow.delay(20)  # so that they are not done before the primary fails

        def fail_over():
            wait()
            if primary.running() and int(primary.command(value) or 0) > 100:
                primary.crash()
                standby.promote()

        total = add_up(url_of(slow, standby), "hits", fail_over)
        assert not primary.running(), "the primary did not fail"
        equal(int(standby.command(value)), total)


main()
