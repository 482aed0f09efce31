#!/usr/bin/env python3
"""What `holdfast doctor` finds in a PostgreSQL server: doctor_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.doctor import contains, doctor, severities
from servers.postgres import Postgres, patient
from servers.scene import SHIM, puppets
from servers.suite import equal, main, test

DURABLE = ["fsync = on"]


def examine(server, **options):
    _, found, answer = doctor(patient(server.url()), **options)
    return found, answer


@test
def a_server_with_the_usual_settings_is_strict():
    with Postgres(config=DURABLE) as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({}, "strict"))
        contains(found["version"]["found"], "PostgreSQL 1")
        with puppets(1, patient(server.url())) as (one,):
            for number, names in enumerate(("0 names", "1 name", "2 names")):
                equal(examine(server)[0]["size"]["found"], names)
                one.hold(f"lock{number}", f"lock{number}")
        equal(sorted(set(found) & {"durability", "replication", "isolation", "connection", "clock", "size"}),
              ["clock", "connection", "durability", "isolation", "replication", "size"])


@test
def what_a_crash_may_take_is_best_effort():
    with Postgres(config=[*DURABLE, "synchronous_commit = off"]) as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"durability": "warning"}, "best effort"))
    with Postgres() as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"durability": "problem"}, "best effort"))


@test
def an_isolation_level_that_refuses_every_lock_is_a_problem():
    with Postgres(config=[*DURABLE, "default_transaction_isolation = serializable"]) as server:
        equal(severities(examine(server)[0]), {"isolation": "problem"})


@test
def clocks_that_differ_are_a_warning():
    with Postgres(config=DURABLE, clock=SHIM) as server:
        for step_s in (100, -200):
            server.clock.change(step_us=step_s * 1000000)
            found, _ = examine(server)
            equal(severities(found), {"clock": "warning"})
            contains(found["clock"]["found"], "ahead of" if step_s > 0 else "behind")


main()
