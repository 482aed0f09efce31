#!/usr/bin/env python3
"""holdfast watch on Redis reports what happens as it happens: watch_test.py HOLDFAST PUPPET.

It polls so rarely here that whatever it sees was pushed."""
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import new_set, nodes
from faults.scene import puppets, wait_until
from servers.redis import Redis, documented_users
from servers.suite import equal, main, test
from servers.watch import (run, says_that_it_lost_its_connection_and_goes_on, sees_what_is_taken_and_released_between_two_polls,
                           watching)

KEY = "{holdfast:}.v"


@test("everything", "the documented user")
def what_is_taken_and_released_between_two_polls_is_reported(user):
    users = {"users": documented_users()} if user != "everything" else {}
    with Redis(**users) as server:
        url = server.url(user=users["users"][0].split()[1] if users else None)
        sees_what_is_taken_and_released_between_two_polls(url)


@test
def a_break_has_the_time_at_which_it_happened():
    with Redis() as server, puppets(2, server.url()) as (one, two):
        token = one.hold("h", "x").token
        with watching(server.url(), "--json") as watch:
            watch.expect("held", "x")
            watch.expect("watching")
            before_ms = int(time.time() * 1000)
            equal(two.break_lock("x", token, "it hangs"), "OK")
            after_ms = time.time() * 1000
            broken = watch.expect("broken", "x")
        equal((broken["exact"], broken["reason"], broken["party"]["token"]), (True, "it hangs", str(token)))
        assert before_ms <= broken["at_ms"] <= after_ms, broken


@test
def a_watch_that_loses_its_connection_says_so_and_goes_on():
    with Redis() as server:
        says_that_it_lost_its_connection_and_goes_on(
            server.url(),
            lambda: wait_until(lambda: server.command("PUBSUB", "NUMSUB", "holdfast:@watch")[1] == 2, "both watch"),
            lambda: server.command("CLIENT", "KILL", "TYPE", "pubsub"))


@test
def a_server_that_restarts_without_its_data_is_watched_again():
    with Redis() as server, watching(server.url(), "--json") as watch:
        watch.expect("watching")
        server.kill()
        watch.expect("missed")
        server.restart()
        watch.expect("watching")
        run(server.url(), "run", "x", "true")
        watch.expect("acquired", "x")
        watch.expect("released", "x")


@test
def a_watcher_that_is_killed_leaves_nothing_behind_for_long():
    with Redis() as server:
        with watching(server.url(), "--json") as watch:
            watch.expect("watching")
            assert 0 < server.command("PTTL", KEY) <= 10000
        wait_until(lambda: server.command("PUBSUB", "NUMSUB", "holdfast:@watch")[1] == 0, "the connection is gone")
        assert server.command("PTTL", KEY) <= 10000
        run(server.url(), "run", "x", "true")
        equal([key for key in server.command("KEYS", "*") if "x" not in key], [KEY])


@test
def what_nobody_announces_is_found_by_polls():
    """Covers a lease that ends, and clients other than holdfast."""
    with Redis() as server, watching(server.url(), "--json", every="50ms") as watch:
        watch.expect("watching")
        server.command("SET", "holdfast:x", "somebody", "PX", "3000")  # long enough for a poll to see it, even on a busy machine
        acquired, lost = watch.expect("acquired", "x"), watch.expect("lost", "x")
        equal((acquired["exact"], lost["exact"]), (False, False))


@test
def what_a_poll_has_found_is_not_reported_again_when_it_is_announced():
    """Polls and announcements use two connections: on a busy machine the announcement may come later."""
    with Redis() as server, puppets(1, server.url()) as (one,), server.connect() as other:
        with watching(server.url(), "--json", every="50ms") as watch:
            watch.expect("watching")
            other.command("SUBSCRIBE", "holdfast:@watch")
            one.hold("h", "x")
            watch.expect("acquired", "x")
            _, channel, announced = other.read()
            equal(announced[:2], "a ")
            server.command("DEL", "holdfast:x")
            equal(watch.expect("released", "x")["exact"], False)
            server.command("PUBLISH", channel, "r" + announced[1:])
            run(server.url(), "run", "y", "true")
            watch.expect("acquired", "y")


@test
def a_set_says_that_it_is_polled():
    with nodes() as servers:
        url = new_set(servers)
        with watching(url, "--json", every="50ms") as watch:
            assert "does not announce changes" in watch.expect("polling")["reason"]
        with watching(url, every="50ms") as watch:
            assert "what begins and ends between two polls is not seen" in watch.process.stderr.readline()
        assert all(server.command("EXISTS", KEY) == 0 for server in servers)


main()
