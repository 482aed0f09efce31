#!/usr/bin/env python3
"""holdfast doctor on a set of Redis servers: each finding is provoked, and is absent otherwise.
doctor_set_test.py HOLDFAST PUPPET
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.redis import Redis, documented_users, set_url
from servers.scene import HOLDFAST, SHIM
from servers.suite import equal, main, test

DURABLE = ["appendonly yes", "appendfsync always", "notify-keyspace-events Kg$xe"]
OF_HOST = {"clock-sync", "clock-rate", "round-trip", "lease"}  # what the command itself adds
ALWAYS = {("same-host", "warning"), ("restart", "note")}  # servers of a test are on loopback, and new
LIMIT_S = 30
SET_KEY = "{holdfast:}.set"


def holdfast(url, *words):
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as home:
        keep = {key: value for key, value in os.environ.items()
                if not key.startswith("HOLDFAST_")}
        return subprocess.run([HOLDFAST, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env=keep | {"HOLDFAST_URL": url, "HOME": home, "XDG_CONFIG_HOME": home})


class Found:
    """What doctor reports: the tier, and findings."""

    def __init__(self, url):
        done = holdfast(url, "doctor", "--json")
        equal(done.stderr, "")
        answer = json.loads(done.stdout)
        self.code, self.tier, self.write_us = done.returncode, answer["tier"], answer["write_us"]
        self.error = answer["error"]
        self.all = [finding for finding in answer["findings"] if finding["id"] not in OF_HOST]

    def wrong(self):
        """{(id, severity)} of findings that are not fine, without those that every test has."""
        return {(f["id"], f["severity"]) for f in self.all if f["severity"] != "ok"} - ALWAYS

    def of(self, name):
        return [finding["found"] for finding in self.all if finding["id"] == name]


@contextlib.contextmanager
def nodes(count=3, config=tuple(DURABLE), init=True, **more):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Redis(config=config, clock=SHIM, **more)) for _ in range(count)]
        if init:
            equal(holdfast(url_of(servers), "quorum", "init").returncode, 0)
        yield servers


def url_of(servers, user="", name="test"):
    url = set_url(servers, "node_timeout=10000", name)
    return url.replace("://", f"://{user}:{servers[0].password_of(user)}@") if user else url


def name_of(server):
    return f"127.0.0.1:{server.port}"


@test
def a_sound_set_is_strict_and_said_of_all_nodes_at_once():
    with nodes(5) as servers:
        found = Found(url_of(servers))
        equal((found.code, found.tier, found.wrong()), (1, "strict", set()))
        version = servers[0].info("server")["redis_version"]
        equal(found.of("version"), [f"all 5 nodes: the server is Redis {version}"])
        equal(found.of("vote"), ["all 5 nodes: the server votes in the set test/5/3/60000"])
        equal(found.of("same-host"), ["all 5 nodes are on this host"])
        equal(len(found.of("restart")), 1)
        assert found.write_us > 0
        assert len(found.all) <= 12, found.all


@test
def examining_changes_nothing():
    with nodes(init=False) as servers:
        def contents():
            return [server.command("KEYS", "*") for server in servers]

        equal(contents(), [[]] * 3)
        Found(url_of(servers))
        equal(contents(), [[]] * 3)
        holdfast(url_of(servers), "quorum", "init")
        before = contents(), [server.command("HGETALL", SET_KEY) for server in servers]
        Found(url_of(servers))
        equal((contents(), [server.command("HGETALL", SET_KEY) for server in servers]), before)


@test
def a_set_that_was_not_declared_is_a_problem_and_what_to_do_is_said():
    with nodes(init=False) as servers:
        found = Found(url_of(servers))
        equal((found.code, found.wrong()), (2, {("nodes", "problem"), ("vote", "warning")}))
        equal(found.of("nodes"), ["3 of 3 nodes answer, and 0 vote"])
        equal(found.of("vote"), ["all 3 nodes: the server does not belong to a set"])


@test
def a_node_that_forgot_is_in_quarantine_for_as_long_as_is_said():
    with nodes() as servers:
        servers[1].restart(wipe=True)
        found = Found(url_of(servers))
        equal(found.wrong(), {("nodes", "warning"), ("vote", "warning")})
        assert f"{name_of(servers[1])}: the server does not belong to a set" in found.of("vote"), found.of("vote")
        equal(holdfast(url_of(servers), "run", "-n", "x", "true").returncode, 0)  # which asks it for its vote
        found = Found(url_of(servers))
        equal(found.of("nodes"), ["3 of 3 nodes answer, and 2 vote"])
        said = [text for text in found.of("vote") if "forgotten" in text]
        equal(len(said), 1)
        assert said[0].startswith(f"{name_of(servers[1])}: "), said
        left_s = int(said[0].split(" for another ")[1].split()[0])
        assert 60 - LIMIT_S < left_s <= 60, said
        servers[1].step_clock(left_s + 1)
        equal(len([text for text in Found(url_of(servers)).of("vote") if "forgotten" in text]), 0)


@test
def a_node_of_another_set_is_named_with_both():
    with nodes() as servers:
        servers[2].command("HSET", SET_KEY, "f", "other/3/2/60000")
        found = Found(url_of(servers))
        equal((found.code, found.wrong()), (1, {("nodes", "warning"), ("vote", "warning")}))
        said = [text for text in found.of("vote") if name_of(servers[2]) in text]
        equal(len(said), 1)
        assert "other/3/2/60000" in said[0] and "test/3/2/60000" in said[0], said
        found = Found(url_of(servers, name="mine"))
        equal((found.code, found.of("nodes")), (2, ["3 of 3 nodes answer, and 0 vote"]))


@test((0.9, {("clocks", "warning")}), (0.05, set()))
def clocks_are_compared_with_each_other(case):
    """Less than a second from this host's clock, which alone is no finding about a node."""
    step_s, wrong = case
    with nodes() as servers:
        servers[0].step_clock(step_s)
        servers[1].step_clock(-step_s)
        found = Found(url_of(servers))
        equal(found.wrong(), wrong)
        for server, sign in zip(servers, "+-") if wrong else ():
            assert f"{name_of(server)} {sign}" in found.of("clocks")[0], found.of("clocks")


@test
def clocks_that_all_differ_from_this_hosts_agree():
    with nodes() as servers:
        for server in servers:
            server.step_clock(20)
        found = Found(url_of(servers))
        equal(found.wrong(), {("clock", "warning")})
        assert "differ by less than" in found.of("clocks")[0], found.of("clocks")


@test
def persistence_that_is_too_weak_makes_the_set_timed():
    with nodes() as servers:
        servers[1].command("CONFIG", "SET", "appendfsync", "everysec")
        found = Found(url_of(servers))
        equal((found.tier, found.wrong()),
              ("timed", {("durability", "warning"), ("persistence", "warning")}))
        equal(len(found.of("persistence")), 2)
        assert name_of(servers[1]) in found.of("durability")[0], found.of("durability")
    with nodes(config=()) as servers:
        found = Found(url_of(servers))
        equal(found.tier, "timed")
        equal(found.of("persistence"), ["all 3 nodes: nothing is kept on disk (no appendonly, no save)"])


@test
def a_server_that_is_listed_twice_is_found_before_any_vote():
    with nodes(2, init=False) as servers:
        found = Found(url_of([servers[0], servers[1], servers[0]]))
        equal(("same-server", "problem") in found.wrong(), True)
        equal(found.of("same-server"), [f"{name_of(servers[0])}, {name_of(servers[0])} are one server"])


@test
def a_copy_of_a_nodes_data_is_found():
    with nodes() as servers:
        equal(Found(url_of(servers)).of("same-server"), [])
        servers[2].command("HSET", SET_KEY, "n", servers[0].command("HGET", SET_KEY, "n"))
        found = Found(url_of(servers))
        equal((found.code, found.wrong()), (2, {("same-server", "problem")}))


@test
def a_node_that_hangs_or_is_down_is_named_with_the_reason():
    with nodes(5) as servers:
        servers[1].kill()
        servers[2].stop()
        found = Found(set_url(servers, "node_timeout=100"))
        servers[2].cont()
        equal((found.code, found.of("nodes")), (1, ["3 of 5 nodes answer, and 3 vote"]))
        equal([text.split()[0] for text in found.of("node")], [name_of(server) for server in servers[1:3]])
        assert "refused" in found.of("node")[0] and "no answer within" in found.of("node")[1], found.of("node")
        assert "all 3 nodes that answer: " in found.of("version")[0], found.of("version")


@test
def a_set_of_which_no_node_answers_is_unreachable_and_nothing_is_claimed_about_it():
    with nodes() as servers:
        for server in servers:
            server.kill()
        found = Found(url_of(servers))
        equal((found.code, found.tier, found.error), (69, None, "HF_UNREACHABLE"))
        equal(found.wrong(), {("store", "problem")})
        for server in servers:
            assert f"{name_of(server)}: cannot connect" in found.of("store")[0], found.of("store")
        assert "holdfast doctor" not in found.all[0]["fix"], found.all[0]


@test
def a_set_whose_nodes_all_refuse_the_password_is_denied():
    with nodes(init=False, users=["user somebody on >secret ~* &* +@all"]) as servers:
        found = Found(url_of(servers).replace("://", "://somebody:wrong@"))
        equal((found.code, found.tier, found.error), (77, None, "HF_DENIED"))
        equal(len(found.of("store")), 1)
        assert "all 3 nodes: " in found.of("store")[0] and "the password" in found.all[0]["fix"], found.all


@test
def nodes_that_answer_are_reported_even_if_they_are_no_quorum():
    with nodes() as servers:
        for server in servers[1:]:
            server.kill()
        found = Found(url_of(servers))
        equal((found.code, found.tier, found.of("nodes")), (2, "timed", ["1 of 3 nodes answer, and 1 vote"]))
        equal(found.of("durability"), ["1 of 3 nodes are known to keep all that they acknowledge, and 3 must for the tier strict"])
        equal(found.wrong(), {("nodes", "problem"), ("node", "warning"), ("durability", "note")})
        equal([text.split()[0] for text in found.of("node")], [name_of(server) for server in servers[1:]])


@test
def a_restart_is_reported_until_max_lease_is_over():
    with nodes() as servers:
        said = Found(url_of(servers)).of("restart")
        equal(said, ["all 3 nodes: the server was started less than max_lease (60 s) ago"])
        for server in servers:
            server.step_clock(61)  # so it is older, but not out of step with the others
        until = time.monotonic() + LIMIT_S
        while said := Found(url_of(servers)).of("restart"):  # INFO gives the time of the last tick
            assert time.monotonic() < until, said


@test
def the_right_to_the_sets_key_is_named_where_it_is_missing():
    user = documented_users()[0]
    name = user.split()[1]
    with nodes(init=False, users=[user]) as servers:
        found = Found(url_of(servers, user=name))
        equal(found.of("rights"), [f'all 3 nodes: the user "{name}" lacks +info ~{SET_KEY}'])
        for server in servers:
            server.command("ACL", "SETUSER", name, f"~{SET_KEY}", "+info")
        equal(holdfast(url_of(servers, user=name), "quorum", "init").returncode, 0)
        found = Found(url_of(servers, user=name))
        equal(found.of("rights"), [f'all 3 nodes: the user "{name}" has all permissions that are needed'])
        equal(found.of("vote"), ["all 3 nodes: the server votes in the set test/3/2/60000"])


main()
