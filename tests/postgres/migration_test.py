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
from servers.postgres import Postgres, Session, documented, patient
from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, outcome, puppets
from servers.suite import equal, main, test

SCHEMA = subprocess.run([HOLDFAST, "schema", "--dialect", "postgres"], capture_output=True, text=True, check=True,
                        timeout=LIMIT_S).stdout
VERSION = re.search(r"holdfast schema \d+", SCHEMA)[0]
HOLDER, WAITER = "1" * 32, "2" * 32


def version(server):
    return server.command("SELECT obj_description('holdfast'::regnamespace)")


def acquire(client, wait_ms=0, name="lock"):
    """The statement of a client; every version has used this one."""
    return ("SELECT answer, number FROM holdfast.acquire("
            f"'{name}', 2::smallint, 2147483647, 2147483647, '{client}', 1, {LONG_MS * 1000}, {wait_ms * 1000}, false, "
            "1, 0, 1, 'host', 'command', 'label')")


@test("1", "2", "3", "4", "5", "6", "7")
def holds_and_places_outlive_a_migration_and_clients_that_are_connected_go_on(old):
    with Postgres() as server, Session(server) as holder, Session(server) as waiter:
        server.command((Path(__file__).parent / f"schemas/{old}.sql").read_text())
        equal(version(server), f"holdfast schema {old}")
        holder.say(acquire(HOLDER))
        equal(holder.rows[0].split("|")[0], "done")
        waiter.say(acquire(WAITER, LONG_MS))
        with puppets(4, patient(server.url())) as clients:  # all of them find the old schema
            for number, client in enumerate(clients):
                client.acquire("a", f"other{number}")
            equal([outcome(client, "a") for client in clients], ["OK"] * 4)
            equal(version(server), VERSION)
            equal(run_adder(patient(server.url()), "hits", 1, 1), 1)
            token = int(holder.rows[0].split("|")[1])
            seen = clients[0].inspect("lock")
            equal([party.token for party in seen["holders"]], [token])
            equal(len(seen["waiters"]), 1)
            clients[1].acquire("b", "lock")
            equal(outcome(clients[1], "b"), "BUSY")
            holder.say(f"SELECT holdfast.renew('{HOLDER}', '{{1}}', '{{{LONG_MS * 1000}}}')")
            equal(holder.rows, ["1"])
            holder.say(f"SELECT holdfast.release('lock', '{HOLDER}', 1)")
            equal(holder.rows, ["t"])
            waiter.say(acquire(WAITER, LONG_MS))
            answer, number = waiter.rows[0].split("|")
            assert answer == "done" and int(number) > token, waiter.rows
            clients[1].acquire("c", "lock", wait_ms=-1)
            waiter.say(f"SELECT holdfast.release('lock', '{WAITER}', 1)")
            equal(outcome(clients[1], "c"), "OK")


@test
def only_the_owner_brings_a_schema_up_to_date_and_grants_the_new_rights():
    with Postgres() as server:
        server.command((Path(__file__).parent / "schemas/1.sql").read_text())
        server.command("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA holdfast TO app;"
                       "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.locks, holdfast.claims TO app")
        with Puppet(PUPPET, patient(server.url(user="app"))) as client:
            client.acquire("a", "lock")
            line = client.wait("failed a")
            assert line.words[2] == "DENIED", line
            server.command(SCHEMA)
            client.acquire("b", "lock")
            equal(outcome(client, "b"), "DENIED")
            server.command(documented("rights"))
            client.hold("c", "lock")


@test
def a_schema_that_is_newer_or_not_ours_is_refused_and_left_alone():
    with Postgres() as server:
        for comment, words in (("holdfast schema 99", "of a newer version of holdfast"),
                               ("Emergency telephones", "not that of holdfast")):
            server.command(f"CREATE SCHEMA IF NOT EXISTS holdfast; COMMENT ON SCHEMA holdfast IS '{comment}'")
            done = subprocess.run([HOLDFAST, "run", "-n", "x", "--", "true"], capture_output=True, text=True, check=False,
                                  timeout=LIMIT_S, env=os.environ | {"HOLDFAST_URL": patient(server.url())})
            assert done.returncode and words in done.stderr, done
            equal(version(server), comment)
            equal(server.command("SELECT count(*) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"), "0")


@test
def a_schema_is_made_again_beside_those_who_use_it():
    with Postgres() as server, Session(server) as user:
        server.command(SCHEMA)
        user.say("BEGIN")
        user.say(acquire(HOLDER))  # its transaction has written to all tables, and is still open
        server.command("SET lock_timeout = '5s';" + SCHEMA)
        equal(user.say("COMMIT"), "00000")


main()
