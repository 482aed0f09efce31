#!/usr/bin/env python3
"""The Redis store under random faults for a while: fault_chaos_test.py HOLDFAST PUPPET.

HOLDFAST_CHAOS_S says for how many seconds (20), HOLDFAST_CHAOS_SEED repeats the choices of a run; its times are the
machine's. What the server acknowledged it keeps: appendfsync always.
"""
import os
import random
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import History, puppets
from servers import suite
from servers.player import Player, playing
from servers.proxy import Proxy
from servers.redis import Redis
from servers.suite import main, test

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 20))
SEED = int(os.environ.get("HOLDFAST_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
COUNT = 8
KINDS = {"x": ("exclusive",), "y": ("exclusive",)}
LEASE_MS = 2500
suite.LIMIT_S = int(SECONDS) + 150


class Chaos:
    """One fault after the other."""

    def __init__(self, server, proxy, every, seed):
        self.server, self.proxy, self.every, self.random = server, proxy, every, random.Random(seed)
        self.faults = (self.delay, self.hold, self.drop, self.reset, self.refuse, self.hang, self.restart, self.forget,
                       self.silence, self.stop)

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

    def stop(self):
        stopped = self.random.sample(self.every, self.random.choice((1, 3)))
        for puppet in stopped:
            puppet.stop()
        self.pause(0.1, 1, 3)
        for puppet in stopped:
            puppet.cont()


@test
def never_two_at_a_time_tokens_rise_and_all_finish_whatever_happens():
    print(f"# HOLDFAST_CHAOS_SEED={SEED}")
    history = History()
    with Redis(config=["appendonly yes", "appendfsync always"]) as server, Proxy(server.port) as proxy, \
            puppets(COUNT, server.url(port=proxy.port) + "?timeout=600", wait_lease_ms=1500) as every:
        chaos = Chaos(server, proxy, every, SEED)
        with playing([Player(puppet, SEED + number, history, KINDS, LEASE_MS) for number, puppet in enumerate(every, 1)]):
            until, played = time.monotonic() + SECONDS, []
            while time.monotonic() < until:
                played.append(chaos.play())
            print(f"# {' '.join(played)}")
        with puppets(1, server.url()) as (one,):
            for name in KINDS:  # nothing is left there that outlives its lease
                hold = one.hold(name, name, kind=KINDS[name][0], wait_ms=-1)
                history.ask_left(history.granted(name, hold.token, hold.at_us), one, name)
        checked = history.check()
        print(f"# {checked} holds")
        assert checked > 3, "hardly anybody held anything"


main()
