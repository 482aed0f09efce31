#!/usr/bin/env python3
"""What `holdfast doctor` finds in a MariaDB server: doctor_test.py HOLDFAST PUPPET CLOCK_SHIM."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.doctor import contains, doctor, severities
from servers.mariadb import REPLICATED, MariaDB, patient
from servers.scene import SHIM, puppets, wait_until
from servers.suite import equal, main, test


def examine(server, **options):
    _, found, answer = doctor(patient(server.url()), **options)
    return found, answer


@test
def a_server_with_the_usual_settings_is_strict():
    with MariaDB() as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({}, "strict"))
        contains(found["version"]["found"], "MariaDB 10.")
        equal(sorted(set(found) & {"durability", "replication", "procedures", "clock", "size"}),
              ["clock", "durability", "procedures", "replication", "size"])
        equal(server.command("SELECT COUNT(*) FROM holdfast_locks"), "0")
        with puppets(1, patient(server.url())) as (one,):
            for number, names in enumerate(("0 names", "1 name", "2 names")):
                equal(examine(server)[0]["size"]["found"], names)
                one.hold(f"lock{number}", f"lock{number}")


@test
def what_a_crash_may_take_is_best_effort():
    with MariaDB(config=["--innodb-flush-log-at-trx-commit=2"]) as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"durability": "warning"}, "best effort"))
        server.config = ["--skip-innodb-doublewrite"]
        server.restart()
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"durability": "problem"}, "best effort"))


@test
def a_log_of_statements_is_a_problem():
    with MariaDB(config=["--log-bin", "--binlog-format=MIXED"]) as server:
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({"replication": "note"}, "strict"))
        contains(found["replication"]["found"], "sync_binlog is 0")
        server.command("SET GLOBAL binlog_format = STATEMENT")
        equal(severities(examine(server)[0]), {"replication": "problem"})


@test
def an_asynchronous_replica_makes_locks_best_effort():
    with MariaDB(config=REPLICATED + ["--sync-binlog=1"]) as server, MariaDB(follows=server) as replica:
        wait_until(lambda: severities(examine(server)[0]) == {"replication": "warning"}, "the replica")
        found, answer = examine(server)
        equal(answer["tier"], "best effort")
        contains(found["replication"]["found"], "1 replica follows")
        server.command("SET GLOBAL rpl_semi_sync_master_timeout = 1; SET GLOBAL rpl_semi_sync_master_enabled = ON")
        found, answer = examine(server)
        equal((severities(found), answer["tier"]), ({}, "strict"))
        found, answer = examine(replica)
        equal(answer["error"], "HF_UNREACHABLE")
        contains(found["store"]["found"], "read only, or a replica")


@test
def a_version_without_skip_locked_is_a_problem():
    with MariaDB(config=["--version=10.5.28-MariaDB"]) as server:
        found, _ = examine(server)
        equal(severities(found), {"version": "problem"})
        contains(found["version"]["found"], "10.5.28")


@test
def a_user_without_procedures_is_told_what_that_costs():
    with MariaDB() as server:
        server.command("CREATE USER plain@'%' IDENTIFIED BY 'word';"
                       "GRANT CREATE, ALTER, DROP, CREATE VIEW, SELECT, INSERT, UPDATE, DELETE ON locks.* TO plain@'%'")
        _, found, _ = doctor(patient(server.url(user="plain:word")))
        equal(severities(found), {"procedures": "note"})


@test
def clocks_that_differ_are_a_warning():
    with MariaDB(clock=SHIM) as server:
        for step_s in (100, -200):
            server.clock.change(step_us=step_s * 1000000)
            found, _ = examine(server)
            equal(severities(found), {"clock": "warning"})
            contains(found["clock"]["found"], "ahead of" if step_s > 0 else "behind")


main()
