"""Shared by the chaos tests: clients that play under random faults for a while, and what must still hold.

HOLDFAST_CHAOS_S is how many seconds it lasts. HOLDFAST_CHAOS_SEED repeats the choices of a run, but not its timing.
"""
import contextlib
import os
import random
import time

from servers import suite
from servers.history import History
from servers.player import Player, playing
from servers.puppet import Puppet
from servers.scene import PUPPET, puppets, wait_until

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", 20))
SEED = int(os.environ.get("HOLDFAST_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
LEASE_MS = 2500
suite.LIMIT_S = int(SECONDS) + 150


class Chaos:
    """Injects one fault after the other. A test adds those of its servers; `faults` may name one twice, to inject it more
    often."""

    def __init__(self, players):
        self.players, self.random = players, random.Random(SEED)
        self.faults = [self.stop, self.kill]

    def pause(self, *seconds):
        time.sleep(self.random.choice(seconds))

    def play(self):
        fault = self.random.choice(self.faults)
        fault()
        return fault.__name__

    def some(self):
        return self.random.sample(self.players, self.random.choice((1, 3)))

    def stop(self):
        stopped = [player.puppet for player in self.some()]
        for puppet in stopped:
            puppet.stop()
        self.pause(0.1, 1, 3)
        for puppet in stopped:
            puppet.cont()

    def kill(self):
        for player in self.some():
            killed = player.puppet
            killed.kill()
            wait_until(lambda: player.puppet is not killed or player.trouble, "another puppet")


class NetworkChaos(Chaos):
    """The same with a proxy in front of the server."""

    def __init__(self, players, server, proxy):
        super().__init__(players)
        self.server, self.proxy = server, proxy
        self.faults += [self.delay, self.hold, self.drop, self.reset, self.refuse]

    def play(self):
        played = super().play()
        self.proxy.pass_all()
        return played

    def some_direction(self):
        return self.random.choice(("up", "down", "both"))

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


class Massacre(Chaos):
    """kill -9, and nothing else."""

    def __init__(self, players):
        super().__init__(players)
        self.faults = [self.kill]


def endure(new_chaos, url, kinds, *, clients=8, seconds=SECONDS, least=4, last_url=None, **options):
    """Checks that there are never two holders at a time, tokens rise, all players finish, and nothing outlives its
    lease. new_chaos(players) makes the chaos; kinds: those of each name; least: with fewer holds than this, the run
    shows nothing; last_url: for the client that takes each lock at the end; options: of clients."""
    print(f"# HOLDFAST_CHAOS_SEED={SEED}")
    history = History()
    with contextlib.ExitStack() as stack:
        players = [Player(stack.enter_context(Puppet(PUPPET, url, **options)), SEED + number, history, kinds, LEASE_MS)
                   for number in range(clients)]
        stack.callback(lambda: [player.puppet.__exit__() for player in players])  # some have been replaced since the start
        chaos = new_chaos(players)
        with playing(players):
            until, played = time.monotonic() + seconds, []
            while time.monotonic() < until:
                played.append(chaos.play())
                chaos.pause(0, 0.1, 0.5)
            print(f"# {' '.join(played)}")
    with puppets(1, last_url or url, **options) as (one,):
        for name, (*_, kind) in kinds.items():
            hold = one.hold(name, name, kind=kind, lease_ms=LEASE_MS, wait_ms=-1)
            history.ask_left(history.granted(name, hold.token, hold.at_us, shared=kind == "shared"), one, name)
    checked = history.check()
    print(f"# {checked} holds")
    assert checked >= least, "hardly anybody held anything"
