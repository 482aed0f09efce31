#!/usr/bin/env python3
"""What locks cost a PostgreSQL server: cost_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.postgres import Postgres, patient
from servers.scene import LONG_MS, puppets, wait_until
from servers.suite import equal, main, test

PAIRS = 100


def updates(server, table):
    """How many updates there were, and how many of them were HOT: in the same page, without touching the
    indexes."""
    row = server.command(f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{table}'")
    return tuple(map(int, row.split("|")))


@test
def the_indexes_of_locks_do_not_grow():
    """(Except for the first use on a day: the day is in an index. A name that was added today has it
    already.)"""
    with Postgres() as server, puppets(2, patient(server.url())) as (one, two):
        for _ in range(PAIRS):
            one.hold("lock", "lock", lease_ms=LONG_MS)
            two.acquire("lock", "lock", wait_ms=-1)
            equal(one.release("lock"), "OK")
            two.granted("lock")
            equal(two.release("lock"), "OK")
            one.free("lock")
            two.free("lock")
        wait_until(lambda: updates(server, "locks")[0] >= 2 * PAIRS, "the server has counted")
        everything, hot = updates(server, "locks")
        equal(everything - hot, 0)


main()
