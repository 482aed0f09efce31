#!/usr/bin/env python3
"""The etcd store under random faults for a while: chaos_test.py HOLDFAST PUPPET; see servers/chaos.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.chaos import NetworkChaos, endure
from servers.etcd import Etcd, patient
from servers.proxy import Proxy
from servers.suite import main, test

KINDS = {"x": ("exclusive",), "y": ("shared", "exclusive", "exclusive")}


class Chaos(NetworkChaos):
    """The clients reach one member through the proxy, and the others past it."""

    def __init__(self, *words):
        super().__init__(*words)
        self.faults += [self.crash, self.halt_leader]

    def crash(self):
        for member in self.random.sample(self.server.members, self.random.choice((1, 2, 3))):
            member.kill()
            self.pause(0, 0.5)
            member.start()

    def halt_leader(self):
        """A member that was replaced as the leader is not continued, but started again: before etcd 3.4.42 it may end
        leases that are alive (`doctor` warns of that), and then two really hold the lock."""
        leader = self.server.leader()
        leader.stop()
        is_replaced = self.random.random() < 0.7
        self.pause(*((0.5, 3) if is_replaced else (0.2, 0.6)))  # an election takes at least a second
        if is_replaced:
            leader.kill()
            leader.start()
        else:
            leader.cont()


@test
def row_48_never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with Etcd(members=3) as cluster, Proxy(cluster.members[0].port) as proxy:
        ports = [proxy.port, *(member.port for member in cluster.members[1:])]
        endure(lambda players: Chaos(players, cluster, proxy),
               cluster.url(ports=ports, options="timeout=1000&connect_timeout=1500"), KINDS,
               last_url=patient(cluster.url()), wait_lease_ms=1500)


main()
