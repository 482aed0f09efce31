#!/usr/bin/env python3
"""MariaDB with a replica that is promoted when the primary fails, behind an address that moves with it: failover_test.py
HOLDFAST PUPPET."""
import contextlib
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.history import History
from servers.mariadb import REPLICATED, MariaDB, MariaDBError, patient
from servers.player import Player, playing
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import PUPPET, puppets, wait_until
from servers.suite import equal, main, test

VERY_LONG_MS = 600000  # nobody renews within the test
LEASE_MS = 20000  # longer than the fail-over takes
WAITS_FOR_REPLICA = ["--rpl-semi-sync-master-timeout=1000000", "--rpl-semi-sync-master-wait-point=AFTER_SYNC"]


def claims(server):
    """The names of locks that are held, as this server knows them."""
    with contextlib.suppress(MariaDBError):  # before there is a schema
        return set(server.command("SELECT name FROM holdfast_claims WHERE state = 1").split())
    return set()


def fail_over(primary, replica, address):
    primary.crash()
    address.refuse()
    replica.promote()
    address.server_port = replica.port
    address.accept()
    address.reset()


@test
def row_10_a_lock_that_the_promoted_replica_does_not_have_is_reported_at_once():
    with MariaDB(config=REPLICATED) as primary, Proxy(primary.port) as between, Proxy(primary.port) as address, \
            MariaDB(follows=primary, through=between.port) as replica, \
            puppets(2, patient(primary.url(port=address.port)), max_lease_ms=VERY_LONG_MS) as (one, two):
        kept = one.hold("kept", "kept", lease_ms=VERY_LONG_MS).token
        wait_until(lambda: claims(replica) == {"kept"}, "replication")
        equal(one.renew("kept"), "OK")  # after its first renewal, it notices if the server is a different one
        wait_until(lambda: primary.command("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK%'"
                                           " AND user = 'holder'") == "1", "the listener")
        between.blackhole()
        token = one.hold("gone", "gone", lease_ms=VERY_LONG_MS).token
        fail_over(primary, replica, address)
        one.lost("gone")
        equal(one.check("kept"), "OK")
        equal([party.token for party in two.inspect("kept")["holders"]], [kept])
        assert two.hold("gone", "gone").token > token
        equal(one.release("kept"), "OK")


@test
def row_10_nothing_is_lost_with_a_semi_synchronous_replica():
    history = History()
    with MariaDB(config=[*REPLICATED, *WAITS_FOR_REPLICA]) as primary, Proxy(primary.port) as address, \
            MariaDB(config=["--rpl-semi-sync-slave-enabled"], follows=primary) as replica, contextlib.ExitStack() as stack:
        primary.command("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        wait_until(lambda: primary.command("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").split()[1:] == ["1"],
                   "the replica")
        url = patient(primary.url(port=address.port))
        one = stack.enter_context(Puppet(PUPPET, url, max_lease_ms=VERY_LONG_MS))
        locks = {f"lock{number}" for number in range(5)}
        for lock in locks:
            one.hold(lock, lock, lease_ms=VERY_LONG_MS)
        players = [Player(Puppet(PUPPET, url).__enter__(), number, history, {"x": ("exclusive", "shared")}, LEASE_MS)
                   for number in range(4)]
        stack.callback(lambda: [player.puppet.__exit__() for player in players])
        with playing(players):
            time.sleep(2)
            fail_over(primary, replica, address)
            time.sleep(2)
            wait_until(lambda: history.over() > 3, "some who held it")
        assert history.check() > 3, "hardly anybody held anything"
        equal(claims(replica) & locks, locks)
        for lock in locks:
            equal(one.renew(lock), "OK")


@test
def a_replica_takes_no_locks_until_it_is_promoted():
    with MariaDB(config=REPLICATED) as primary, MariaDB(follows=primary) as replica:
        with puppets(1, patient(primary.url())) as (one,):
            one.hold("a", "lock")
            wait_until(lambda: claims(replica) == {"lock"}, "replication")
            with puppets(1, patient(replica.url())) as (two,):
                two.acquire("b", "lock")
                equal(two.wait("failed b").words[2], "UNREACHABLE")
        replica.promote()
        with puppets(1, patient(replica.url())) as (two,):
            two.acquire("b", "other")
            equal(two.wait("acquired b").words[0], "acquired")


main()
