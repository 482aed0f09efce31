#!/usr/bin/env python3
"""The quorum store under random faults for a while: quorum_chaos_test.py HOLDFAST PUPPET.

HOLDFAST_CHAOS_S says for how many seconds (20), HOLDFAST_CHAOS_SEED repeats the choices of a run; its times are the
machine's. What a node acknowledged it keeps, unless it forgets everything. A minority is away at a time.
"""
import contextlib
import os
import random
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import AOF, MINORITY, new_set, nodes, nothing_left, winner
from faults.scene import LONG_MS, PUPPET, History, one_of, puppets, wait_until
from servers import suite
from servers.player import Player, playing
from servers.puppet import Puppet
from servers.redis import set_url
from servers.suite import equal, main, test

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 20))
SEED = int(os.environ.get("HOLDFAST_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
CLIENTS = 16
STORM = 50
KINDS = {"x": ("exclusive",), "y": ("shared", "shared", "exclusive")}
LEASE_MS = 2500
OPTIONS = {"max_lease_ms": 3000, "wait_lease_ms": 1500}  # who forgot does not vote for as long as the first
suite.LIMIT_S = int(SECONDS) + 150


class Chaos:
    """One fault after the other."""

    def __init__(self, servers, players, seed):
        self.servers, self.players, self.random = servers, players, random.Random(seed)
        self.faults = (self.hang, self.hang, self.restart, self.restart, self.forget, self.flush, self.stop, self.kill)

    def pause(self, *seconds):
        time.sleep(self.random.choice(seconds))

    def play(self):
        fault = self.random.choice(self.faults)
        fault(self.random.sample(self.servers, self.random.randint(1, MINORITY)))
        self.pause(0, 0.1, 0.5)
        return fault.__name__

    def hang(self, some):
        for server in some:
            server.stop()
        self.pause(0.1, 1, 3)
        for server in some:
            server.cont()

    def restart(self, some):
        for server in some:
            server.kill()
        self.pause(0, 0.5, 2)
        for server in some:
            server.restart()

    def forget(self, some):
        some[0].kill()
        some[0].restart(wipe=True)

    def flush(self, some):
        for server in some:
            server.command("SCRIPT", "FLUSH")

    def stop(self, _):
        stopped = [player.puppet for player in self.random.sample(self.players, self.random.choice((1, 4)))]
        for puppet in stopped:
            puppet.stop()
        self.pause(0.1, 1, 3)
        for puppet in stopped:
            puppet.cont()

    def kill(self, _):
        for player in self.random.sample(self.players, self.random.choice((1, 4))):
            killed = player.puppet
            killed.kill()
            wait_until(lambda: player.puppet is not killed or player.trouble, "another puppet")


def found_set(servers):
    """Its first client says that it is new."""
    with puppets(1, new_set(servers), **OPTIONS) as (one,):
        one.hold("first", "first", lease_ms=LEASE_MS)
        one.inspect("first")
        equal(one.release("first"), "OK")


@test
def never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    print(f"# HOLDFAST_CHAOS_SEED={SEED}")
    history = History()
    with nodes(config=AOF) as servers, contextlib.ExitStack() as stack:
        found_set(servers)
        url = set_url(servers, "node_timeout=300")
        players = [Player(Puppet(PUPPET, url, **OPTIONS).__enter__(), SEED + number, history, KINDS, LEASE_MS)
                   for number in range(CLIENTS)]
        stack.callback(lambda: [player.puppet.__exit__() for player in players])
        chaos = Chaos(servers, players, SEED)
        with playing(players):
            until, played = time.monotonic() + SECONDS, []
            while time.monotonic() < until:
                played.append(chaos.play())
            print(f"# {' '.join(played)}")
        with puppets(1, url, **OPTIONS) as (one,):
            for name, (*_, kind) in KINDS.items():  # nothing is left there that outlives its lease
                wait_until(lambda: nothing_left(servers, name), f"{name} to be free")
                hold = one.hold(name, name, kind=kind, lease_ms=LEASE_MS, wait_ms=-1)
                history.ask_left(history.granted(name, hold.token, hold.at_us), one, name)
        checked = history.check()
        print(f"# {checked} holds")
        assert checked > 10, "hardly anybody held anything"


@test
def row_21_fifty_clients_storm_one_name_while_nodes_come_and_go():
    chance, history = random.Random(SEED), History()
    with nodes(config=AOF) as servers, puppets(STORM, new_set(servers)) as crowd:
        for number, one in enumerate(crowd):
            one.acquire(number, "x", lease_ms=LONG_MS, wait_ms=-1)
        waiting = dict(enumerate(crowd))
        while waiting:
            number = winner(waiting)
            one = waiting.pop(number)
            grant = one.granted(number)
            hold = history.granted("x", grant.token, grant.at_us)
            history.ask_left(hold, one, number)
            server = chance.choice(servers)
            if not server.running():
                server.restart()
            elif sum(not other.running() for other in servers) < MINORITY:
                server.kill()
            history.ask_left(hold, one, number)
            equal([w for w in waiting if waiting[w].seen("acquired", str(w))], [])
            one_of(history.release(one, number, hold), ("OK", "UNKNOWN"))  # of those that voted, two may be dead
        for server in servers:
            if not server.running():
                server.restart()
        equal(history.check(), STORM)
        wait_until(lambda: nothing_left(servers, "x"), "it to be free on all nodes")
        for one in crowd:
            one.quit()


main()
