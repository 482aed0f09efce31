#!/usr/bin/env python3
"""The PostgreSQL store under random faults for a while: chaos_test.py HOLDFAST PUPPET; see servers/chaos.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.chaos import SECONDS, Massacre, NetworkChaos, endure
from servers.postgres import Postgres, patient
from servers.proxy import Proxy
from servers.suite import main, test

KINDS = {"x": ("exclusive",), "y": ("shared", "exclusive", "exclusive")}


class Chaos(NetworkChaos):
    def __init__(self, *words):
        super().__init__(*words)
        self.faults += [self.crash, self.terminate]

    def crash(self):
        self.server.crash()
        self.pause(0, 0.5)
        self.server.start()

    def terminate(self):
        self.server.command("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                            " WHERE application_name = 'holdfast' AND random() < 0.5")


@test
def row_37_never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with Postgres() as server, Proxy(server.port) as proxy:
        endure(lambda players: Chaos(players, server, proxy),
               f"{server.url(port=proxy.port)}?timeout=600&connect_timeout=600", KINDS,
               last_url=patient(server.url()), wait_lease_ms=1500)
        assert "deadlock detected" not in server.log.read_text(), server.log.read_text()


@test
def row_37_fifty_clients_of_whom_some_are_killed_again_and_again():
    with Postgres() as server:
        endure(Massacre, patient(server.url()), KINDS, clients=50, seconds=SECONDS / 2, wait_lease_ms=1500)
        assert "deadlock detected" not in server.log.read_text(), server.log.read_text()


main()
