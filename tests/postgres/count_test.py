#!/usr/bin/env python3
"""Counters in a PostgreSQL server: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import itertools
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import add_up, counting, run_adder, value_of
from servers.pgbouncer import Pooler
from servers.postgres import Postgres, Shared, documented
from servers.scene import wait_until
from servers.suite import equal, main, test

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
store = Shared()
counting.add(store)


@test("transaction", "statement")
def sixteen_clients_add_up_exactly_through_a_pooler(mode):
    with store.fresh() as name, Pooler(store.server, mode) as pooler:
        total = add_up(store.url(name, port=pooler.port), "hits")  # this waits for the pooler
        equal(value_of(store, name), total)


@test
def serialization_failures_are_repeated():
    with store.fresh() as name:
        store.ask(name, f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
        total = add_up(store.url(name), "hits")
        equal(value_of(store, name), total)


@test
def each_documented_right_is_needed():
    with Postgres() as server:
        user = server.make_role()
        url = store.patient(server.url(user=user))
        equal(run_adder(url, "hits", 1, 1), 1)
        for number, (table, right) in enumerate(itertools.product(("counters", "answers"), RIGHTS)):
            server.command(f"REVOKE {right} ON holdfast.{table} FROM {user}")
            try:
                raise RuntimeError(f"{right} on {table}: {run_adder(url, f'new{number}', 1, 1)}")
            except AssertionError as error:
                assert "DENIED" in str(error), error
            server.command(documented("rights"))


@test
def updates_leave_the_indexes_alone():
    with store.fresh() as name:
        add_up(store.url(name), "hits")
        hot = "SELECT sum(n_tup_hot_upd) * 1.0 / sum(n_tup_upd) FROM pg_stat_user_tables WHERE relname IN ('counters', 'answers')"
        wait_until(lambda: float(store.ask(name, hot) or 0) > 0.7, "most updates are HOT")


if __name__ == "__main__":
    with store:
        main()
