"""What a scenario plays on: clients, each a process behind a network of its own, and the servers of a place.

Everything that happens is an event of the history. Those of clients carry the time at which the client noted them; all
processes share the host's CLOCK_MONOTONIC. Orders are waited for unless their name says otherwise: ask() starts what
lock() waits for.
"""
import contextlib
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab import paths
from lab.witness import Witness
from servers.process import LIMIT_S, Process
from servers.proxy import Proxy
from servers.redis import Clock

numbers = itertools.count(1)


class TooSlow(Exception):
    """The machine was too slow for the scenario to mean anything: it is played again."""


class Failed(Exception):
    """The scenario could not be played."""


class Client(Process):
    """One client. proxies: its own network, one before each server that it knows; proxy is the first."""

    def __init__(self, stage, name, ports, has_proxies, has_clock):
        self.stage, self.name, self.events, self.rest = stage, name, [], b""
        self.seen = 0  # events that somebody has waited for
        self.proxies = [stage.stack.enter_context(Proxy(port)) for port in ports] if has_proxies else []
        self.ports = [proxy.port for proxy in self.proxies] or list(ports)
        self.clock = stage.new_clock() if has_clock else None

    @property
    def proxy(self):
        return self.proxies[0]

    def settings(self):
        stage = self.stage
        return {"name": self.name, "ports": self.ports, "url": stage.place.url(self.ports), "key": stage.key,
                "lease_s": stage.lease_s, "id": f"{self.name}-{os.getpid()}-{next(numbers)}",
                "witness": stage.witness.port, "threads": []}

    def start(self, threads=()):
        """threads: clients that live in the same process."""
        stage, settings = self.stage, self.settings()
        for thread in threads:
            orders, events = os.pipe(), os.pipe()
            settings["threads"].append(thread.settings() | {"orders": orders[0], "events": events[1]})
            thread.listen(open(orders[1], "wb", 0), open(events[0], "rb", 0))
        theirs = [end for thread in settings["threads"] for end in (thread["orders"], thread["events"])]
        words = stage.protocol.command(settings) or [sys.executable, paths.HERE / "client.py", stage.protocol.name,
                                                     json.dumps(settings)]
        errors = open(stage.folder / f"{self.name}.err", "ab")  # pylint: disable=consider-using-with # the child has it
        self.launch(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, pass_fds=theirs,
                    env=os.environ | (self.clock.environment() if self.clock else {}))
        errors.close()
        self.listen(self.child.stdin, self.child.stdout)
        for thread in threads:
            thread.child = self.child
        for end in theirs:
            os.close(end)

    def listen(self, orders, answers):
        self.orders, self.answers = orders, answers
        self.stage.selector.register(answers, selectors.EVENT_READ, self)

    def __exit__(self, *_):
        self.kill_quietly()
        if self.child:
            self.orders.close()
            self.answers.close()

    # ---- Orders ----

    def order(self, words):
        self.seen = len(self.events)
        with contextlib.suppress(BrokenPipeError):
            self.orders.write(f"{words}\n".encode())

    def wait(self, *whats, within=LIMIT_S):
        """The first event since the last order that is one of these; None: it did not come in time."""
        until = time.monotonic() + within
        while True:
            for event in self.events[self.seen:]:
                if event["what"] in whats:
                    return event
            if time.monotonic() >= until:
                return None
            self.stage.pump(until - time.monotonic())

    def finish(self, *whats):
        event = self.wait(*whats, "failed", "died")
        if not event:
            raise Failed(f"{self.name} does not answer")
        return event["what"]

    def ask(self):
        """Begins to lock."""
        self.order("lock")
        self.finish("asked")

    def locked(self, within=None):
        """Whether it has the lock, at the latest after this time (in s). One that has not goes on waiting."""
        event = self.wait("locked", "failed", "died", within=self.stage.patience_s if within is None else within)
        if not event:
            self.stage.add(self.name, "waiting")
        return bool(event) and event["what"] == "locked"

    def is_inside(self):
        """Whether it has got the lock that it asked for."""
        return bool(self.wait("locked", within=0))

    def lock(self, within=None):
        self.ask()
        return self.locked(within)

    def write(self):
        """"wrote" or "lost"."""
        self.order("write")
        return self.finish("wrote", "lost")

    def write_pausing(self):
        """Checks that it has the lock and is stopped before it writes. False: it knew that it had lost the lock."""
        self.order("write pausing")
        until = time.monotonic() + LIMIT_S
        while not self.wait("lost", "failed", "died", within=0.01):
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
                self.stage.add(self.name, "stopped")
                return True
            if time.monotonic() > until:
                raise Failed(f"{self.name} does not stop")
        return False

    def finish_write(self):
        return self.finish("wrote", "lost")

    def work(self, seconds, until=lambda: False):
        """Writes every 50 ms, checking before each write. False: it noticed that it had lost the lock. until: it ends its
        work when this is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if self.write() != "wrote":
                return False
            self.stage.sleep(0.05)
        return True

    def ask_unlock(self):
        """Begins to unlock."""
        self.order("unlock")
        self.finish("unlocking")

    def unlocked(self, within=None):
        event = self.wait("unlocked", "failed", "died", within=self.stage.patience_s if within is None else within)
        return bool(event) and event["what"] == "unlocked"

    def unlock(self):
        self.ask_unlock()
        return self.unlocked(LIMIT_S)

    # ---- Faults ----

    def stop(self):
        """It, and what it has started."""
        os.killpg(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.stage.add(self.name, "stopped")

    def cont(self):
        self.stage.add(self.name, "continued")
        os.killpg(self.pid, signal.SIGCONT)

    def kill_quietly(self):
        super().kill()

    def kill(self):
        super().kill()
        self.stage.add(self.name, "died")


class Stage:
    """A cell being played. place: running servers. shim: for clients with a clock of their own."""

    def __init__(self, protocol, place, key):
        self.protocol, self.place, self.key = protocol, place, key
        self.lease_s = place.lease_s
        self.patience_s = 3 * self.lease_s + 3  # after which a lock that nobody has counts as never freed
        self.events, self.cast, self.handoff_requests = [], [], None
        self.start_ns = time.monotonic_ns()
        self.stack, self.selector = contextlib.ExitStack(), selectors.DefaultSelector()
        self.witness = self.folder = None

    def __enter__(self):
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-lab-")))
        self.witness = self.stack.enter_context(Witness())
        return self

    def __exit__(self, *_):
        self.stack.close()
        self.selector.close()

    # ---- Clients ----

    def client(self, name, ports=None, network=True, clock=False):
        """Starts a client. ports: of the servers that it knows; all by default. network: of its own, to be disturbed.
        clock: of its own, to be changed."""
        client = Client(self, name, self.place.ports if ports is None else ports, network, clock)
        self.cast.append(client)
        client.start()
        self.stack.enter_context(client)
        return client

    def clients(self, *names, **options):
        """Starts clients, and returns when they are ready."""
        return self.ready([self.client(name, **options) for name in names])

    def threads(self, *names):
        """Starts clients that are threads of one program, and returns when they are ready. They share its network."""
        every = [Client(self, name, self.place.ports, False, False) for name in names]
        self.cast += every
        every[0].start(every[1:])
        for client in every:
            self.stack.enter_context(client)
        return self.ready(every)

    def ready(self, every):
        for client in every:
            if client.finish("ready") != "ready":
                raise Failed(f"{client.name}: {(self.folder / f'{client.name}.err').read_text()}")
        if len(self.cast) == len(every):
            self.start_ns = time.monotonic_ns()  # the history begins
        return every

    def new_clock(self):
        if not paths.shim():
            raise Failed("clock_shim.so is not there")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return Clock(paths.shim(), folder / "clock")

    # ---- Time and events ----

    def pump(self, limit_s):
        """Takes what clients have said; waits this long at most for the first word."""
        for key, _ in self.selector.select(max(0, limit_s)):
            client, piece = key.data, os.read(key.fd, 65536)
            if not piece:
                self.selector.unregister(key.fileobj)
                if client.child.wait(LIMIT_S) != -signal.SIGKILL:
                    self.add(client.name, "died")
                client.events.append({"what": "died"})
                continue
            *lines, client.rest = (client.rest + piece).split(b"\n")
            for line in lines:
                self.take(client, line.decode(errors="replace").split(" ", 2))

    def take(self, client, words):
        at_ns, what, rest = int(words[0]), words[1], words[2] if len(words) > 2 else None
        event = self.add(client.name, what, at_ns)
        if what == "locked":
            event["token"] = None if rest == "-" else rest
        elif rest:
            event["text"] = rest
        client.events.append(event)

    def add(self, who, what, at_ns=None, **more):
        event = {"at_ns": at_ns or time.monotonic_ns(), "who": who, "what": what, **more}
        self.events.append(event)
        return event

    def note(self, text):
        """What happens apart from the clients, for the reader."""
        self.add(None, "note", text=text)

    def sleep(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.pump(left)
            if not self.selector.get_map():
                time.sleep(max(0, until - time.monotonic()))

    def wait_for(self, condition, what, limit_s=LIMIT_S):
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                raise Failed(f"in vain: {what}")
            self.sleep(0.01)

    @contextlib.contextmanager
    def within_lease(self):
        """What happens within takes less than a lease, or it means nothing."""
        start = time.monotonic()
        yield
        if time.monotonic() - start >= self.lease_s:
            raise TooSlow

    # ---- The history ----

    def history(self):
        """What happened, in its order, in seconds since the clients were ready."""
        self.pump(0)
        events = list(self.events)
        for at_ns, who, grant, token, accepted in self.witness.writes:
            events.append({"at_ns": at_ns, "who": who, "what": "write", "grant": grant,
                           "token": None if token == "-" else token, "accepted": accepted})
        events = [event for event in events if event["what"] not in ("ready", "wrote")]
        for event in events:
            event["at"] = max(0, round((event.pop("at_ns") - self.start_ns) / 1e9, 6))
        events.sort(key=lambda event: event["at"])
        return {"protocol": self.protocol.name, "place": self.place.name, "lease_s": self.lease_s,
                "actors": [client.name for client in self.cast], "events": events,
                "has_token": self.protocol.has_token, "is_exclusive": self.protocol.is_exclusive,
                "requests_per_handoff": self.handoff_requests}
