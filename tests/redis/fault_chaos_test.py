#!/usr/bin/env python3
"""The Redis store under random faults for a while: fault_chaos_test.py HOLDFAST PUPPET.

HOLDFAST_CHAOS_S says for how many seconds (20), HOLDFAST_CHAOS_SEED repeats the choices of a run; its times are the
machine's. What the server acknowledged it keeps: appendfsync always.
"""
import os
import random
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import History, one_of, puppets
from servers import suite
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.redis import Redis
from servers.suite import equal, main, test

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 20))
SEED = int(os.environ.get("HOLDFAST_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
COUNT = 8
NAMES = ("x", "y")
LEASE_MS = 2500
suite.LIMIT_S = int(SECONDS) + 150


class Player(threading.Thread):
    """Takes locks, looks at them and lets them go, until it is told to finish. `trouble` is what went wrong."""

    def __init__(self, puppet, seed, history):
        super().__init__(daemon=True)
        self.puppet, self.random, self.history = puppet, random.Random(seed), history
        self.finish, self.trouble, self.turns, self.ends = False, None, 0, {}

    def run(self):
        try:
            while not self.finish:
                self.play(f"turn{self.turns}", self.random.choice(NAMES))
                self.turns += 1
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error

    def note(self, end):
        self.ends[end] = self.ends.get(end, 0) + 1

    def play(self, lock, name):
        kind = "write" if name == "y" else "mutex"
        wait_ms = self.random.choice((0, 3000, 20000, 20000))
        self.puppet.acquire(lock, name, kind=kind, lease_ms=LEASE_MS, wait_ms=wait_ms)
        line = self.puppet.wait(("acquired", lock), ("failed", lock), limit_s=2 * LIMIT_S)
        if line.words[0] == "failed":
            self.note(line.words[2])
            one_of(line.words[2], ("BUSY", "TIMEOUT", "SHORT", "UNKNOWN", "UNREACHABLE"))
            time.sleep(0.02)
            return
        hold = self.history.granted(name, int(line.words[2]), line.at_us)
        until = time.monotonic() + self.random.choice((0, 0.05, 0.3, 1, 4))
        while self.history.ask_left(hold, self.puppet, lock) > 0 and time.monotonic() < until:
            time.sleep(0.02)
        told = self.history.release(self.puppet, lock, hold)
        self.note(f"released {told}")
        one_of(told, ("OK", "LOST", "UNKNOWN", "UNREACHABLE"))
        self.puppet.free(lock)


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
        players = [Player(puppet, SEED + number, history) for number, puppet in enumerate(every, 1)]
        for player in players:
            player.start()
        until, played = time.monotonic() + SECONDS, []
        while time.monotonic() < until:
            played.append(chaos.play())
        for player in players:
            player.finish = True
        for player in players:
            player.join(2 * LIMIT_S)
        print(f"# {' '.join(played)}")
        ends = {}
        for player in players:
            for end, count in player.ends.items():
                ends[end] = ends.get(end, 0) + count
        print(f"# {sum(player.turns for player in players)} turns: {ends}")
        equal([player.trouble for player in players if player.trouble], [])
        assert not any(player.is_alive() for player in players), "somebody does not finish"
        for name in NAMES:  # nothing is left there that outlives its lease
            hold = every[0].hold(f"last-{name}", name, kind="write" if name == "y" else "mutex", wait_ms=-1)
            history.ask_left(history.granted(name, hold.token, hold.at_us), every[0], f"last-{name}")
        checked = history.check()
        print(f"# {checked} holds")
        assert checked > 3, "hardly anybody held anything"
        for puppet in every:
            puppet.quit()


main()
