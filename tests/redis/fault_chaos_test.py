#!/usr/bin/env python3
"""The Redis store under random faults for a while: fault_chaos_test.py HOLDFAST PUPPET; see servers/chaos.py. The
server keeps what it has acknowledged: appendfsync always.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.chaos import NetworkChaos, endure
from servers.proxy import Proxy
from servers.redis import Redis
from servers.suite import main, test

KINDS = {"x": ("exclusive",), "y": ("exclusive",)}


class Chaos(NetworkChaos):
    def __init__(self, *words):
        super().__init__(*words)
        self.faults += [self.hang, self.restart, self.forget, self.silence]

    def hang(self):
        self.server.stop()
        self.pause(0.1, 1, 3)
        self.server.cont()

    def restart(self):
        self.server.kill()
        self.pause(0, 0.5)
        self.server.restart()

    def forget(self):
        self.server.command("SCRIPT", "FLUSH")

    def silence(self):
        self.server.command("CLIENT", "KILL", "TYPE", "pubsub")


@test
def never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with Redis(config=["appendonly yes", "appendfsync always"]) as server, Proxy(server.port) as proxy:
        endure(lambda players: Chaos(players, server, proxy), server.url(port=proxy.port) + "?timeout=600", KINDS,
               last_url=server.url(), wait_lease_ms=1500)


main()
