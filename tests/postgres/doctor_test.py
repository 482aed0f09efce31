#!/usr/bin/env python3
"""What `holdfast doctor` finds in a PostgreSQL server: doctor_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.doctor import contains, doctor, severities
from servers.pgbouncer import Pooler
from servers.postgres import Postgres, Session, documented, patient
from servers.scene import SHIM, puppets, wait_until
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
        assert set(found) >= {"durability", "replication", "isolation", "connection", "clock", "size", "role", "rights"}


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


@test
def a_standby_that_follows_asynchronously_makes_it_best_effort():
    with Postgres(config=DURABLE) as server, Postgres(config=DURABLE, follows=server) as standby:
        wait_until(lambda: server.command("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1",
                   "the standby")
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"replication": "warning"}, "best effort"))
        contains(found["replication"]["found"], "1 standby follows asynchronously")
        server.config.append("synchronous_standby_names = '*'")
        server.restart()
        wait_until(lambda: server.command("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1",
                   "the standby again")
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({}, "strict"))
        contains(doctor(patient(standby.url()))[1]["store"]["found"], "session is read-only")
        found = doctor(patient(standby.url()) + "&target_session_attrs=any")[1]
        equal(found["role"]["severity"], "problem")


@test
def a_pooler_is_noted():
    with Postgres(config=DURABLE) as server, Pooler(server) as pooler:
        url = patient(server.url(port=pooler.port))
        wait_until(lambda: doctor(url)[2]["error"] is None, "the pooler")
        equal(severities(doctor(url)[1]), {"connection": "note"})


@test
def what_keeps_old_rows_is_a_warning():
    with Postgres(config=[*DURABLE, "autovacuum = off"], clock=SHIM) as server, Session(server) as old:
        examine(server)
        old.say("BEGIN")
        old.say("SELECT 1")
        server.clock.change(step_us=700 * 1000000)
        found, _ = examine(server)
        equal(severities(found), {"clock": "warning", "size": "warning"})
        contains(found["size"]["found"], "has been open for")
        old.say("COMMIT")
        server.clock.change(step_us=-700 * 1000000)
        server.command("INSERT INTO holdfast.locks (name, kind, capacity, used_day) SELECT ('n' || n)::bytea, 2, 1, 0 "
                       "FROM generate_series(1, 60000) n; DELETE FROM holdfast.locks")
        wait_until(lambda: severities(examine(server)[0]) == {"size": "warning"}, "the server has counted")
        contains(examine(server)[0]["size"]["found"], "dead rows")


@test
def each_right_that_is_missing_is_named():
    with Postgres(config=DURABLE) as server:
        url = patient(server.url(user=server.make_role()))
        equal(severities(doctor(url)[1]).get("rights"), None)
        for table, right in (("claims", "INSERT"), ("locks", "DELETE"), ("sessions", "SELECT"), ("watchers", "UPDATE")):
            server.command(f"REVOKE {right} ON holdfast.{table} FROM app")
            found = doctor(url)[1]
            equal(found["rights"]["severity"], "problem")
            contains(found["rights"]["found"], f"lacks {right} on {table}")
            server.command(documented("rights"))


main()
