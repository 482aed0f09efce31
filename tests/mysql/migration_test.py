#!/usr/bin/env python3
"""Schemas of earlier versions, whose texts are in schemas/, and of later ones: migration_test.py HOLDFAST PUPPET."""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import run_adder
from servers.mariadb import MariaDB, Session, documented, patient
from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, outcome, puppets
from servers.suite import equal, main, test

SCHEMA = subprocess.run([HOLDFAST, "schema", "--dialect", "mariadb"], capture_output=True, text=True, check=True,
                        timeout=LIMIT_S).stdout
VERSION = re.search(r"holdfast schema \d+", SCHEMA)[0]
HOLDER, WAITER = "X'" + "11" * 16 + "'", "X'" + "22" * 16 + "'"


def make(server, old):
    server.command("DELIMITER //\n" + (Path(__file__).parent / f"schemas/{old}.sql").read_text())
    equal(version(server), f"holdfast schema {old}")


def version(server):
    return server.command("SELECT table_comment FROM information_schema.tables WHERE table_name = 'holdfast_locks'")


def acquire(client, wait_ms=0):
    """The statement of a client; every version has used this one."""
    return (f"CALL holdfast_acquire('lock', 2, 2147483647, 2147483647, {client}, 1, {LONG_MS * 1000}, {wait_ms * 1000}, 0, "
            "1, 0, 1, 'host', 'command', 'label')")


@test("1", "2", "3", "4", "5", "6")
def holds_and_places_outlive_a_migration_and_clients_that_are_connected_go_on(old):
    with MariaDB() as server, Session(server) as holder, Session(server) as waiter:
        make(server, old)
        holder.say(acquire(HOLDER))
        equal(holder.rows[0].split("\t")[0], "done")
        token = int(holder.rows[0].split("\t")[1])
        waiter.say(acquire(WAITER, LONG_MS))
        equal(waiter.rows[0].split("\t")[0], "queued")
        with puppets(4, patient(server.url())) as clients:  # all of them find the old schema
            for number, client in enumerate(clients):
                client.acquire("a", f"other{number}")
            equal([outcome(client, "a") for client in clients], ["OK"] * 4)
            equal(version(server), VERSION)
            equal(run_adder(patient(server.url()), "hits", 1, 1), 1)
            seen = clients[0].inspect("lock")
            equal([party.token for party in seen["holders"]], [token])
            equal(len(seen["waiters"]), 1)
            clients[1].acquire("b", "lock")
            equal(outcome(clients[1], "b"), "BUSY")
            holder.say(f"CALL holdfast_release('lock', {HOLDER}, 1)")
            equal(holder.rows, ["1"])
            waiter.say(acquire(WAITER, LONG_MS))
            answer, number = waiter.rows[0].split("\t")[:2]
            assert answer == "done" and int(number) > token, waiter.rows
            clients[1].acquire("c", "lock", wait_ms=-1)
            waiter.say(f"CALL holdfast_release('lock', {WAITER}, 1)")
            equal(outcome(clients[1], "c"), "OK")


@test
def who_may_not_bring_a_schema_up_to_date_is_refused_until_somebody_did():
    with MariaDB() as server:
        make(server, 1)
        server.command("CREATE USER app@'%' IDENTIFIED BY 'word';"
                       "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON *.* TO app@'%'")
        with Puppet(PUPPET, patient(server.url(user="app:word"))) as client:
            client.acquire("a", "lock")
            equal(outcome(client, "a"), "DENIED")
            server.command(SCHEMA)
            client.hold("b", "lock")


@test
def rights_must_be_granted_again_after_a_migration():
    with MariaDB() as server:
        server.command(SCHEMA + "CREATE USER app@'%' IDENTIFIED BY 'word';" + documented("rights"))
        server.command(SCHEMA)
        assert "EXECUTE" not in server.command("SHOW GRANTS FOR app@'%'"), "the docs say that they are lost"


@test
def a_schema_that_is_newer_or_not_ours_is_refused_and_left_alone():
    with MariaDB() as server:
        server.command("CREATE TABLE holdfast_locks (number INT)")
        for comment, words in (("holdfast schema 99", "of a newer version of holdfast"),
                               ("Fastened doors", "not that of holdfast")):
            server.command(f"ALTER TABLE holdfast_locks COMMENT = '{comment}'")
            done = subprocess.run([HOLDFAST, "run", "-n", "x", "--", "true"], capture_output=True, text=True, check=False,
                                  timeout=LIMIT_S, env=os.environ | {"HOLDFAST_URL": patient(server.url())})
            assert done.returncode and words in done.stderr, done
            equal((version(server), server.command("SHOW TABLES")), (comment, "holdfast_locks"))


main()
