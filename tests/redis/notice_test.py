#!/usr/bin/env python3
"""The holder of a lock on Redis is notified as soon as somebody ends its hold: notice_test.py HOLDFAST PUPPET.

Leases are so long that it cannot be a renewal that notices: the first is due after ten minutes.
"""
import contextlib
import functools
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import MAJORITY, MINORITY, new_set, nodes
from faults.scene import KINDS, in_time, is_lost, keys, patient, puppets, script_calls, wait_until
from servers import suite
from servers.certificates import Authority
from servers.cluster import Cluster
from servers.puppet import boot_us
from servers.redis import Redis, documented_users
from servers.sentinel import Sentinels
from servers.suite import equal, main, test

LEASE_MS = 1800000
suite.LIMIT_S = 240  # Sentinels and a Cluster need their time
EVENTS = ["notify-keyspace-events KA"]


def channels(server, pattern):
    return server.command("PUBSUB", "CHANNELS", pattern)


def wait_listening(server, name=None):
    """Waits until a client listens on its own channel, or for changes of this lock's key."""
    pattern = f"__keyspace@0__:{keys(name)['K']}" if name else "holdfast:@*"
    wait_until(lambda: channels(server, pattern), f"a subscription to {pattern}")


# ---- A break ----


@contextlib.contextmanager
def one_server(unix=False, **options):
    with Redis(**options) as server:
        yield server.url(unix=unix, user=options["users"][0].split()[1] if "users" in options else None)


@contextlib.contextmanager
def one_with_tls():
    with Authority() as authority, one_server(tls=authority.issue("server")) as url:
        yield url


@contextlib.contextmanager
def several(kind):
    with kind() as scene:
        yield scene.url()


@contextlib.contextmanager
def a_set():
    with nodes() as servers:
        yield new_set(servers)


PLACES = {"a server": one_server, "a socket": lambda: one_server(unix=True), "TLS": one_with_tls,
          "the documented user": lambda: one_server(users=documented_users()), "Sentinel": lambda: several(Sentinels),
          "a Cluster": lambda: several(Cluster), "a set": a_set}


@test(*PLACES)
def a_break_is_reported_at_once(place):
    """The first is broken before the client listens, the others while it does."""
    with PLACES[place]() as url, puppets(2, url, max_lease_ms=LEASE_MS) as (one, two):
        for kind in ("exclusive", "shared", "exclusive"):
            token = one.hold(kind, kind, kind=kind, lease_ms=LEASE_MS).token
            equal(two.break_lock(kind, token, "to see"), "OK")
            one.lost(kind)
            equal(one.release(kind), "LOST")
            one.free(kind)


# ---- What others do to the key ----

DEEDS = {"DEL": ["DEL", "{}"], "EXPIRE": ["PEXPIRE", "{}", "1"], "SET": ["SET", "{}", "mine"],
         "RENAME": ["RENAME", "{}", "elsewhere"]}


@test(*DEEDS)
def what_is_done_to_the_key_is_reported_at_once_where_the_server_publishes_it(deed):
    with Redis(config=EVENTS, users=documented_users()) as server, \
            puppets(1, server.url(user="holdfast"), max_lease_ms=LEASE_MS) as (one,):
        one.hold("other", "other", lease_ms=LEASE_MS)
        for name, (kind, _) in KINDS.items():
            one.hold(name, name, kind=kind, lease_ms=LEASE_MS)
        for name in KINDS:
            wait_listening(server, name)
            do_to_key = functools.partial(server.command, *(word.format(keys(name)["K"]) for word in DEEDS[deed]))
            do_to_key()
            if deed == "EXPIRE":  # the renewal that came with listening may have been later, and kept the key
                wait_until(lambda: do_to_key() == 0, "an end of the key")
            one.lost(name)
        equal(one.check("other"), "OK")
        equal(one.release("other"), "OK")
        wait_until(lambda: not channels(server, "__keyspace@0__:*"), "nobody who listens to keys")


@test
def a_message_about_an_earlier_hold_ends_nothing():
    """The notice is published again. The hold is renewed at once, and stays."""
    with Redis() as server, puppets(1, server.url(), max_lease_ms=LEASE_MS) as (one,):
        for name, (kind, _) in KINDS.items():
            one.hold(name, name, kind=kind, lease_ms=LEASE_MS)
            wait_listening(server, name)
            for event in ("del", "expired"):
                before = script_calls(server)
                equal(server.command("PUBLISH", f"__keyspace@0__:{keys(name)['K']}", event), 1)
                wait_until(lambda: script_calls(server) > before, "a renewal")
                equal(one.check(name), "OK")
            equal(one.renew(name), "OK")
            equal(is_lost(one, name), False)


@test("minority", "majority")
def a_set_decides_by_its_quorum(which):
    """Votes that a minority lost are cast again; a lock that a majority lost is lost."""
    count = MINORITY if which == "minority" else MAJORITY
    with nodes(config=EVENTS) as servers, puppets(1, new_set(servers), max_lease_ms=LEASE_MS) as (one,):
        one.hold("a", "x", lease_ms=LEASE_MS)
        for server in servers:
            wait_listening(server, "x")
        one.stop()  # otherwise it would get the first votes back before the others are gone
        for server in servers[:count]:
            server.command("DEL", keys("x")["K"])
        one.cont()
        if which == "majority":
            one.lost("a")
        else:
            wait_until(lambda: all(server.command("EXISTS", keys("x")["K"]) for server in servers), "all votes")
            equal(one.check("a"), "OK")
            equal(is_lost(one, "a"), False)


# ---- Listening ----


@test
@patient
def who_holds_for_a_moment_only_does_not_listen():
    with Redis() as server, puppets(1, server.url()) as (one,):
        for _ in range(200):
            started_us = boot_us()
            one.hold("a", "x")
            equal(one.release("a"), "OK")
            in_time(started_us + 500000)
            one.free("a")
        equal(int(server.info("clients")["connected_clients"]), 2)  # one's, and this test's


main()
