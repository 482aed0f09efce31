#!/usr/bin/env python3
"""The quorum store under random faults for a while: quorum_chaos_test.py HOLDFAST PUPPET; see servers/chaos.py. A node
keeps what it has acknowledged, unless it forgets everything. At most a minority is away at a time.
"""
import random
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import AOF, MINORITY, new_set, nodes, nothing_left, winner
from faults.scene import LONG_MS, History, one_of, puppets, wait_until
from servers import chaos
from servers.chaos import LEASE_MS, SEED, endure
from servers.redis import set_url
from servers.suite import equal, main, test

STORM = 50
KINDS = {"x": ("exclusive",), "y": ("shared", "shared", "exclusive")}
OPTIONS = {"max_lease_ms": 3000, "wait_lease_ms": 1500}  # a node that forgot does not vote for as long as the first


class Chaos(chaos.Chaos):
    def __init__(self, players, servers):
        super().__init__(players)
        self.servers = servers
        self.faults += [self.hang, self.hang, self.restart, self.restart, self.forget, self.flush]

    def minority(self):
        return self.random.sample(self.servers, self.random.randint(1, MINORITY))

    def hang(self):
        hung = self.minority()
        for server in hung:
            server.stop()
        self.pause(0.1, 1, 3)
        for server in hung:
            server.cont()

    def restart(self):
        killed = self.minority()
        for server in killed:
            server.kill()
        self.pause(0, 0.5, 2)
        for server in killed:
            server.restart()

    def forget(self):
        server = self.random.choice(self.servers)
        server.kill()
        server.restart(wipe=True)

    def flush(self):
        for server in self.minority():
            server.command("SCRIPT", "FLUSH")


def found_set(servers):
    """The first client of the set declares it as new."""
    with puppets(1, new_set(servers), **OPTIONS) as (one,):
        one.hold("first", "first", lease_ms=LEASE_MS)
        one.inspect("first")
        equal(one.release("first"), "OK")


@test
def never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with nodes(config=AOF) as servers:
        found_set(servers)
        endure(lambda players: Chaos(players, servers), set_url(servers, "node_timeout=300"), KINDS, clients=16, least=11,
               **OPTIONS)
        for name in KINDS:
            wait_until(lambda: nothing_left(servers, name), f"{name} to be free")


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
