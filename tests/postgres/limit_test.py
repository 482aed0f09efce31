#!/usr/bin/env python3
"""The rate limiter on PostgreSQL: limit_test.py HOLDFAST PUPPET; see servers/limits.py."""
import functools
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.limits import LONG, PROMISES, limit
from servers.postgres import Postgres, patient
from servers.suite import equal, main, test


def on_a_server(promise):
    @functools.wraps(promise)
    def run():
        with Postgres() as server:
            promise(patient(server.url()))

    return run


for each in PROMISES:
    test(on_a_server(each))


@test
def a_restart_forgets_nobody_who_was_let_through():
    with Postgres() as server:
        url = patient(server.url())
        equal(limit(url, "x", "--rate", LONG, "-n")[0], 0)
        server.restart()
        equal(limit(url, "x", "--rate", LONG, "-n")[0], 75)


main()
