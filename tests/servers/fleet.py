"""A fleet: processes that keep taking one lock, each in its own way, and notice if two work at a time.

    play("database", server.folder, [by_holdfast, by_insert], kills=range(2))

A way is a function of the database's name, `work`, which it calls while it has the lock, and `finished`.
"""
import fcntl
import os
import random
import signal
import time

from servers.process import LIMIT_S
from servers.scene import wait_until
from servers.suite import equal

FLEET_S = float(os.environ.get("HOLDFAST_FLEET_S", 4))


def rest():
    """Pauses between two turns, so that the lock is free for a while, even for processes that ask less often."""
    time.sleep(random.choice((0.005, 0.05)))


class Member:
    """A process that keeps taking the lock in its own way, and is a witness: whichever process works has locked the
    file, and the kernel unlocks it when that process dies."""

    def __init__(self, way, name, folder, finish):
        self.way, self.turns = way, folder / f"{way.__name__}.turns"
        self.turns.touch()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                way(name, lambda: self.work(folder), lambda: os.path.exists(finish))
                status = 0
            except BaseException as error:  # pylint: disable=broad-except
                print(f"# {way.__name__}: {error!r}", flush=True)
            finally:
                os._exit(status)

    def work(self, folder):
        with open(folder / "witness", "ab") as witness:
            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if somebody else is at work
            time.sleep(random.choice((0, 0.001, 0.02)))
            with open(self.turns, "ab") as turns:
                turns.write(b".")

    def count(self):
        return self.turns.stat().st_size

    def kill_at_work(self):
        """Kills it when it has just worked, most likely with the lock still held; it is gone when this returns."""
        count = self.count()
        wait_until(lambda: self.count() > count, "its next turn")
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def wait(self):
        equal(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), 0)


def alive(members):
    return all(os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for member in members)


def play(name, folder, ways, kills=()):
    """kills: the numbers of the processes that are killed at work, one after the other, and start again."""
    folder = folder / name
    folder.mkdir()
    finish = folder / "finish"
    members = [Member(way, name, folder, finish) for way in ways]
    try:
        wait_until(lambda: all(member.count() for member in members) or not alive(members), "everybody's first turn",
                   2 * LIMIT_S)
        for number in kills:
            members[number].kill_at_work()
            members[number] = Member(ways[number], name, folder, finish)
            before = [member.count() for member in members]
            wait_until(lambda: all(member.count() > count for member, count in zip(members, before)),
                       "everybody's next turn", 2 * LIMIT_S)
        time.sleep(FLEET_S)
    finally:
        finish.touch()
    for member in members:
        member.wait()
    print("#", *(f"{member.way.__name__}: {member.count()}" for member in members))


def is_noticed(name, folder, ways):
    """Whether a process that does not respect the lock is noticed."""
    try:
        play(name, folder, ways)
    except AssertionError:
        return True
    return False
