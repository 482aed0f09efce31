#!/usr/bin/env python3
"""The PostgreSQL store under random faults for a while: chaos_test.py HOLDFAST PUPPET.

HOLDFAST_CHAOS_S says for how many seconds (15), HOLDFAST_CHAOS_SEED repeats the choices of a run; its times are the
machine's.
"""
import contextlib
import os
import random
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.history import History
from servers.player import Player, playing
from servers.postgres import Postgres, patient
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import PUPPET, puppets, wait_until
from servers.suite import main, test

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 15))
SEED = int(os.environ.get("HOLDFAST_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
COUNT = 8
KINDS = {"x": ("exclusive",), "y": ("exclusive", "exclusive", "shared")}
LEASE_MS = 2500
suite.LIMIT_S = int(SECONDS) + 150


class Chaos:
    """One fault after the other."""

    def __init__(self, server, proxy, players, seed):
        self.server, self.proxy, self.players, self.random = server, proxy, players, random.Random(seed)
        self.faults = (self.delay, self.hold, self.drop, self.reset, self.refuse, self.crash, self.terminate, self.stop,
                       self.kill)

    def pause(self, *seconds):
        time.sleep(self.random.choice(seconds))

    def some_direction(self):
        return self.random.choice(("up", "down", "both"))

    def play(self):
        fault = self.random.choice(self.faults)
        fault()
        self.proxy.pass_all()
        self.pause(0, 0.1, 0.5)
        return fault.__name__

    def delay(self):
        self.proxy.delay(self.random.choice((5, 50, 400)), self.some_direction())
        self.pause(0.5, 1)

    def hold(self):
        self.proxy.hold(self.some_direction())
        self.pause(0.1, 0.5, 2, 3)

    def drop(self):
        self.proxy.drop(self.some_direction())
        self.pause(0.1, 1, 3)

    def reset(self):
        for _ in range(self.random.choice((1, 20))):
            self.proxy.reset()
            self.pause(0.01, 0.05)

    def refuse(self):
        self.proxy.refuse()
        self.proxy.reset()
        self.pause(0.1, 1)

    def crash(self):
        self.server.crash()
        self.pause(0, 0.5)
        self.server.start()

    def terminate(self):
        self.server.command("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                            " WHERE application_name = 'holdfast' AND random() < 0.5")

    def stop(self):
        stopped = [player.puppet for player in self.random.sample(self.players, self.random.choice((1, 3)))]
        for puppet in stopped:
            puppet.stop()
        self.pause(0.1, 1, 3)
        for puppet in stopped:
            puppet.cont()

    def kill(self):
        player = self.random.choice(self.players)
        killed = player.puppet
        killed.kill()
        wait_until(lambda: player.puppet is not killed or player.trouble, "another puppet")


@test
def row_37_never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    print(f"# HOLDFAST_CHAOS_SEED={SEED}")
    history = History()
    with Postgres() as server, Proxy(server.port) as proxy, contextlib.ExitStack() as stack:
        url = f"{server.url(port=proxy.port)}?timeout=600&connect_timeout=600"
        players = [Player(Puppet(PUPPET, url, wait_lease_ms=1500).__enter__(), SEED + number, history, KINDS, LEASE_MS)
                   for number in range(COUNT)]
        stack.callback(lambda: [player.puppet.__exit__() for player in players])
        chaos = Chaos(server, proxy, players, SEED)
        with playing(players):
            until, played = time.monotonic() + SECONDS, []
            while time.monotonic() < until:
                played.append(chaos.play())
            print(f"# {' '.join(played)}")
        with puppets(1, patient(server.url())) as (one,):
            for name in KINDS:  # nothing is left there that outlives its lease
                hold = one.hold(name, name, kind=KINDS[name][0], wait_ms=-1)
                history.ask_left(history.granted(name, hold.token, hold.at_us), one, name)
        checked = history.check()
        print(f"# {checked} holds")
        assert checked > 3, "hardly anybody held anything"
        assert "deadlock detected" not in server.log.read_text(), server.log.read_text()


main()
