#!/usr/bin/env python3
"""holdfast watch on PostgreSQL reports what happens as it happens: watch_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.postgres import Postgres, Session, documented, patient
from servers.scene import wait_until
from servers.suite import equal, main, test
from servers.watch import (run, says_that_it_lost_its_connection_and_goes_on, sees_what_is_taken_and_released_between_two_polls,
                           watching)

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'"


def watchers(server):
    return int(server.command("SELECT count(*) FROM holdfast.watchers WHERE until > clock_timestamp()"))


@test
def what_is_taken_and_released_between_two_polls_is_reported_to_the_documented_user():
    with Postgres() as server:
        run(patient(server.url()), "run", "x", "true")
        server.command("CREATE ROLE app LOGIN;" + documented("rights"))
        url = patient(server.url(user="app"))
        sees_what_is_taken_and_released_between_two_polls(url)


@test
def a_watch_that_loses_its_connection_says_so_and_goes_on():
    with Postgres() as server:
        url = patient(server.url())
        says_that_it_lost_its_connection_and_goes_on(
            url, lambda: wait_until(lambda: watchers(server) == 2, "both watch"), lambda: server.command(CUT))


@test
def a_watcher_that_was_forgotten_says_so_and_goes_on():
    with Postgres() as server:
        url = patient(server.url())
        with watching(url, "--json") as watch:
            watch.expect("watching")
            server.command("DELETE FROM holdfast.watchers")
            assert "forgot" in watch.expect("missed")["reason"]
            watch.expect("watching")
            equal(watchers(server), 1)


@test
def who_looked_before_the_watch_began_is_waited_for():
    """Its change, which is not announced, is done before the watch reports that it is complete."""
    with Postgres() as server, Session(server) as early:
        url = patient(server.url())
        run(url, "run", "x", "true")
        early.say("BEGIN")
        equal(early.say("INSERT INTO holdfast.plain (name, owner) VALUES ('early', 'job')"), "00000")
        with watching(url, "--json") as watch:
            wait_until(lambda: server.command("SELECT 1 FROM pg_stat_activity WHERE query ~ 'FROM pg_locks l'"
                                              " AND pid <> pg_backend_pid() LIMIT 1"), "the watcher waits")
            run(url, "run", "x", "true")  # it is not notified of this yet
            equal(early.say("COMMIT"), "00000")
            watch.expect("watching")
            equal(watch.expect("acquired", "early")["exact"], False)  # it looks again, and finds it
            run(url, "run", "x", "true")
            watch.expect("acquired", "x")


@test
def a_watcher_that_is_killed_leaves_nothing_behind_for_long():
    with Postgres() as server:
        url = patient(server.url())
        with watching(url, "--json") as watch:
            watch.expect("watching")
        equal(server.command("SELECT count(*) FROM holdfast.watchers WHERE until <= clock_timestamp() + interval '10 s'"), "1")
        server.command("UPDATE holdfast.watchers SET until = clock_timestamp()")  # instead of waiting
        with watching(url, "--json") as watch:
            watch.expect("watching")
            equal(server.command("SELECT count(*) FROM holdfast.watchers"), "1")


main()
