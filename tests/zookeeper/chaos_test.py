#!/usr/bin/env python3
"""The ZooKeeper store under random faults for a while: chaos_test.py HOLDFAST PUPPET; see servers/chaos.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.chaos import NetworkChaos, endure
from servers.proxy import Proxy
from servers.suite import main, test
from servers.zookeeper import Zookeeper, patient

KINDS = {"x": ("exclusive",), "y": ("shared", "exclusive", "exclusive")}


class Chaos(NetworkChaos):
    def __init__(self, *words):
        super().__init__(*words)
        self.faults.append(self.crash)

    def crash(self):
        self.server.crash()
        self.pause(0, 0.5)
        self.server.start()


@test
def row_17_never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with Zookeeper() as server, Proxy(server.port) as proxy:
        endure(lambda players: Chaos(players, server, proxy),
               f"{server.url(port=proxy.port)}?timeout=600&connect_timeout=600", KINDS,
               last_url=patient(server.url()))


main()
