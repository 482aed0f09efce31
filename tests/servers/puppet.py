"""A process of a program that uses holdfast (tests/support/puppet.c), controlled by a test.

    with Puppet(program, "sqlite:/tmp/locks.db") as one, Puppet(program, "sqlite:/tmp/locks.db") as two:
        one.acquire("a", "report")
        token = one.granted("a").token
        two.acquire("b", "report", wait_ms=5000)
        one.stop()
        assert two.granted("b").token > token
        one.cont()
        late_us = one.lost("a")

Acquires are only started. Their results, like all lines of the puppet, are kept until the test asks for them,
which waits if necessary. Every other command waits for its own line: to have it in flight, send() it and wait()
later. Times are CLOCK_BOOTTIME in us, noted by the puppet when it wrote the line.
"""
import collections
import os
import select
import subprocess
import time

from servers.process import LIMIT_S, Process

Line = collections.namedtuple("Line", "at_us words")
Grant = collections.namedtuple("Grant", "token left_ms at_us")
Party = collections.namedtuple("Party", "token pid left_ms")


def boot_us():
    """The present, on the clock of the puppets' lines."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Puppet(Process):
    """Without a URL nothing is opened: use open(). env: variables to add to this process' own."""

    def __init__(self, program, url=None, *, env=None, **options):
        self.program, self.url, self.options = program, url, options
        self.environment = os.environ | (env or {})
        self.lines = []  # that nobody has asked for yet
        self.rest = b""

    def __enter__(self):
        try:
            self.launch([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                        env=self.environment)
            if self.url is not None:
                self.open(self.url, **self.options)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        if self.child:
            self.child.stdin.close()
            self.child.stdout.close()

    # ---- Lines ----

    def send(self, *words):
        """None is "-": the default."""
        line = " ".join("-" if word is None else str(word) for word in words)
        self.child.stdin.write(line.encode(errors="surrogateescape") + b"\n")

    def wait(self, *starts, limit_s=LIMIT_S):
        """The words of the first line that begins with one of these starts and has not been returned yet. A
        start is a tuple of words, or a string of them."""
        starts = [start.split() if isinstance(start, str) else [str(word) for word in start]
                  for start in starts]
        until = time.monotonic() + limit_s
        while not (line := self.take(starts)):
            left = until - time.monotonic()
            assert left > 0 and select.select([self.child.stdout], [], [], left)[0], \
                f"in vain, after {limit_s} s: {starts}; there is {self.lines}"
            self.read()
        return line

    def seen(self, *start):
        """Whether such a line has already come. First ask for something that is sent later, such as left()."""
        return any(line.words[:len(start)] == list(start) for line in self.lines)

    def take(self, starts):
        for line in self.lines:
            if any(line.words[:len(start)] == start for start in starts):
                self.lines.remove(line)
                return line
        return None

    def read(self):
        """Reads what has arrived; blocks until something has."""
        data = os.read(self.child.stdout.fileno(), 65536)
        assert data, f"the puppet ended with {self.child.wait(LIMIT_S)}; there is {self.lines}"
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            at_us, *words = line.decode(errors="surrogateescape").split(" ")
            self.lines.append(Line(int(at_us), words))

    def ask(self, *words, answer):
        """Sends and waits for the answer; returns the words that follow the subject."""
        self.send(*words)
        return self.wait((answer, words[1])).words[2:]

    # ---- The client ----

    def open(self, url, max_lease_ms=None, wait_lease_ms=None, drift_ppm=None, token_floor=None):
        self.send("open", url, max_lease_ms, wait_lease_ms, drift_ppm, token_floor)
        line = self.wait("opened", "failed open")
        assert line.words == ["opened"], line

    def close(self):
        self.send("close")
        self.wait("closed")

    def quit(self):
        """Ends it in an orderly way; fails if that fails (a sanitizer found a leak)."""
        self.send("quit")
        status = self.child.wait(LIMIT_S)
        assert status == 0, f"the puppet ended with {status}"

    # ---- Acquiring ----

    def acquire(self, lock, name, kind="exclusive", lease_ms=None, wait_ms=0, flags=None, min_left_ms=None):
        """kind: mutex, read, write, "2/5", or all, with several names, and so several tokens, separated by commas;
        flags: "barge,no_renew"; wait_ms: -1 is forever."""
        self.send("acquire", lock, name, kind, lease_ms, wait_ms, flags, min_left_ms)

    def granted(self, lock, limit_s=LIMIT_S):
        line = self.wait(("acquired", lock), ("failed", lock), limit_s=limit_s)
        assert line.words[0] == "acquired", line
        return Grant(int(line.words[2]), int(line.words[3]), line.at_us)

    def failed(self, lock, limit_s=LIMIT_S):
        """How an acquire failed: "BUSY"."""
        line = self.wait(("acquired", lock), ("failed", lock), limit_s=limit_s)
        assert line.words[0] == "failed", line
        return line.words[2]

    def hold(self, lock, name, **options):
        """Acquires, and waits for the grant."""
        self.acquire(lock, name, **options)
        return self.granted(lock)

    def cancel(self, lock):
        """The result is in the line of the acquire."""
        self.send("cancel", lock)

    # ---- The hold ----

    def check(self, lock, need_ms=0):
        """"OK", "SHORT", "LOST", ..."""
        return self.ask("check", lock, need_ms, answer="checked")[0]

    def left(self, lock):
        return int(self.ask("left", lock, answer="left")[0])

    def renew(self, lock, lease_ms=0):
        """"OK", "LOST", ..."""
        return self.ask("renew", lock, lease_ms, answer="renewed")[0]

    def release(self, lock):
        """"OK", "LOST", ..."""
        return self.ask("release", lock, answer="released")[0]

    def lost(self, lock, limit_s=LIMIT_S):
        """Waits until the loss is reported; returns its time."""
        return self.wait(("lost", lock), limit_s=limit_s).at_us

    def why_lost(self, lock, limit_s=LIMIT_S):
        """Waits until the loss is reported; returns the cause that is reported to the program."""
        return " ".join(self.wait(("lost", lock), limit_s=limit_s).words[2:])

    def fd_is_readable(self, lock):
        return self.ask("fd", lock, answer="fd") == ["1"]

    def free(self, lock):
        self.ask("free", lock, answer="freed")

    # ---- Looking ----

    def break_lock(self, name, token, reason=""):
        """"OK", "NOT_YOURS", ..."""
        return self.ask("break", name, token, reason, answer="broke")[0]

    def inspect(self, name):
        """A dict: kind, capacity, token, holders and waiters (Party), broken (a token) and reason; None if the store
        knows nothing."""
        outcome, *words = self.ask("inspect", name, answer="inspected")
        assert outcome == "OK", words
        if not words:
            return None
        found = dict(word.split("=", 1) for word in words[:6])
        for key in ("kind", "capacity", "token"):
            found[key] = int(found[key])
        for key in ("holders", "waiters"):
            found[key] = [Party(*map(int, party.split(":"))) for party in found[key].split(",") if party]
        broken, reason = " ".join([found["broken"], *words[6:]]).split(":", 1)
        return found | {"broken": int(broken), "reason": reason}
