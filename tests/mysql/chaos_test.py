#!/usr/bin/env python3
"""The MySQL store under random faults for a while: chaos_test.py HOLDFAST PUPPET; see servers/chaos.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.chaos import SECONDS, Massacre, NetworkChaos, endure
from servers.mariadb import MariaDB, patient
from servers.proxy import Proxy
from servers.suite import main, test

KINDS = {"x": ("exclusive",), "y": ("shared", "exclusive", "exclusive")}


class Chaos(NetworkChaos):
    def __init__(self, *words):
        super().__init__(*words)
        self.faults += [self.crash, self.end_sessions]

    def crash(self):
        self.server.crash()
        self.pause(0, 0.5)
        self.server.start()

    def end_sessions(self):
        self.server.end_sessions(how=lambda: self.random.choice(["KILL", "KILL QUERY", "DO"]))


@test
def row_37_never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    with MariaDB(config=["--innodb-print-all-deadlocks"]) as server, Proxy(server.port) as proxy:
        endure(lambda players: Chaos(players, server, proxy),
               f"{server.url(port=proxy.port)}?timeout=600&connect_timeout=600", KINDS,
               last_url=patient(server.url()), wait_lease_ms=1500)
        assert "WE ROLL BACK" not in server.log.read_text(errors="replace"), server.log.read_text(errors="replace")


@test
def row_37_fifty_clients_of_whom_some_are_killed_again_and_again():
    with MariaDB(config=["--innodb-print-all-deadlocks"]) as server:
        endure(Massacre, patient(server.url()), KINDS, clients=50, seconds=SECONDS / 2, wait_lease_ms=1500)
        assert "WE ROLL BACK" not in server.log.read_text(errors="replace"), server.log.read_text(errors="replace")


main()
