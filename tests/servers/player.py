"""A client that acquires, checks and releases locks while a test disturbs the servers and the puppets."""
import contextlib
import random
import threading
import time

from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.scene import one_of
from servers.suite import equal


class Player(threading.Thread):
    """Plays until it is told to finish; its puppet then also ends. kinds: those of each name. A puppet that is killed
    is replaced by another. `trouble` is what went wrong."""

    def __init__(self, puppet, seed, history, kinds, lease_ms):
        super().__init__(daemon=True)
        self.puppet, self.random, self.history = puppet, random.Random(seed), history
        self.kinds, self.lease_ms = kinds, lease_ms
        self.finish, self.trouble, self.turns, self.ends = False, None, 0, {}

    def run(self):
        try:
            while not self.finish:
                self.play_mortal(f"turn{self.turns}", self.random.choice(list(self.kinds)))
                self.turns += 1
            self.puppet.quit()
        except Exception as error:  # pylint: disable=broad-except
            self.trouble = error

    def play_mortal(self, lock, name):
        try:
            self.play(lock, name)
        except (AssertionError, OSError):
            if self.puppet.running():
                raise
            self.note("killed")
            self.puppet.__exit__()
            self.puppet = Puppet(self.puppet.program, self.puppet.url, **self.puppet.options).__enter__()

    def note(self, end):
        self.ends[end] = self.ends.get(end, 0) + 1

    def play(self, lock, name):
        kind = self.random.choice(self.kinds[name])
        wait_ms = self.random.choice((0, 3000, 20000, 20000))
        self.puppet.acquire(lock, name, kind=kind, lease_ms=self.lease_ms, wait_ms=wait_ms)
        line = self.puppet.wait(("acquired", lock), ("failed", lock), limit_s=2 * LIMIT_S)
        if line.words[0] == "failed":
            self.note(line.words[2])
            one_of(line.words[2], ("BUSY", "TIMEOUT", "SHORT", "UNKNOWN", "UNREACHABLE"))
            time.sleep(0.02)
            return
        hold = self.history.granted(name, int(line.words[2]), line.at_us, shared=kind == "shared")
        until = time.monotonic() + self.random.choice((0, 0.05, 0.3, 1, 4))
        while self.history.ask_left(hold, self.puppet, lock) > 0 and time.monotonic() < until:
            time.sleep(0.02)
        told = self.history.release(self.puppet, lock, hold)
        self.note(f"released {told}")
        one_of(told, ("OK", "LOST", "UNKNOWN", "UNREACHABLE"))
        self.puppet.free(lock)


@contextlib.contextmanager
def playing(players):
    """They play inside the block; then all finish, and nothing may have gone wrong."""
    for player in players:
        player.start()
    yield
    for player in players:
        player.finish = True
    for player in players:
        player.join(2 * LIMIT_S)
    ends = {}
    for player in players:
        for end, count in player.ends.items():
            ends[end] = ends.get(end, 0) + count
    print(f"# {sum(player.turns for player in players)} turns: {ends}")
    equal([player.trouble for player in players if player.trouble], [])
    assert not any(player.is_alive() for player in players), "somebody does not finish"
