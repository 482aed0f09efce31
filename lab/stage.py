"""What a scenario plays on: clients, each a process behind its own network, and the servers of a place.

Everything that happens is an event of the history. Those of clients carry the time at which the client noted them; all
processes share the host's CLOCK_MONOTONIC. Orders wait until they are done unless their name says otherwise: ask()
starts what lock() waits for.
"""
import contextlib
import itertools
import json
import os
import re
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
    """One client. proxies: its own network, one in front of each server that it knows; proxy is the first."""

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

    def take(self, line):
        """An event that it has written."""
        at_ns, what, *rest = line.split(" ", 2)
        event = self.stage.add(self.name, what, int(at_ns))
        if what == "locked":
            event["token"] = None if rest == ["-"] else rest[0]
        elif rest:
            event["text"] = rest[0]
        self.events.append(event)

    def wait(self, *whats, within=LIMIT_S):
        """The first event since the last order that is one of these; None: none came in time."""
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
        """Starts to lock."""
        self.order("lock")
        self.finish("asked")

    @property
    def inside(self):
        """Whether it has the lock, by its last report."""
        words = [event["what"] for event in self.events if event["what"] in ("locked", "unlocking", "lost", "died")]
        return words[-1:] == ["locked"]

    def comes_in(self, within=0):
        """Whether it has the lock, at the latest after this time (in s). If it does not, it keeps waiting."""
        if not self.inside:
            self.wait("locked", "failed", "died", within=within)
        return self.inside

    def locked(self, within=None):
        """The same, for a client that should have it by then: if it does not, the referee is notified."""
        came_in = self.comes_in(self.stage.patience_s if within is None else within)
        if not came_in and not any(event["what"] == "locked" for event in self.stage.events):
            raise TooSlow("nobody has had the lock yet, so nothing was in the way")
        if not came_in and not self.has_failed():
            self.stage.add(self.name, "waiting")
        return came_in

    def has_failed(self):
        """Whether the last order failed."""
        return any(event["what"] in ("failed", "died") for event in self.events[self.seen:])

    def lock(self, within=None):
        self.ask()
        return self.locked(within)

    def write(self):
        """"wrote" or "lost"."""
        self.order("write")
        return self.finish("wrote", "lost")

    def write_pausing(self):
        """Makes it check that it has the lock and stop before it writes. False: it knew that it had lost the lock."""
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
        """Writes every 50 ms, checking before each write. False: it noticed that it had lost the lock. until: it stops
        working when this is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if self.write() != "wrote":
                return False
            self.stage.sleep(0.05)
        return True

    def ask_unlock(self):
        """Starts to unlock."""
        self.order("unlock")
        self.finish("unlocking")

    def unlocked(self, within=None):
        event = self.wait("unlocked", "failed", "died", within=self.stage.patience_s if within is None else within)
        return bool(event) and event["what"] == "unlocked"

    def unlock(self):
        self.ask_unlock()
        return self.unlocked(LIMIT_S)

    def unlock_and_ask(self):
        """Unlocks, and starts to lock again without waiting for another order."""
        self.order("unlock\nlock")
        self.finish("asked")

    # ---- Faults ----

    def hold_after(self, count, direction="up"):
        """Its network lets this many requests pass, or replies ("down"), and holds from the next one on."""
        return self.proxy.hold_after(count, direction, self.proxies[1:])

    def comes_to(self, held, what):
        """Whether its network holds something before it reports that it is done. If it is done, nothing is held."""
        until = time.monotonic() + LIMIT_S
        while not held.is_set() and not self.wait(what, "failed", "died", within=0.01):
            if time.monotonic() > until:
                raise Failed(f"{self.name} is neither done nor held")
        if self.wait(what, within=0):
            self.pass_all()
            return False
        return held.is_set()

    def pass_all(self):
        """Its network is whole again, and delivers what it held."""
        for proxy in self.proxies:
            proxy.pass_all()

    def break_connections(self):
        """What its network held is lost, and so are its connections; the network is whole again."""
        for proxy in self.proxies:
            proxy.reset()
            proxy.pass_all()

    def crash(self):
        """It dies, and what its network held is lost; servers see its connections end."""
        self.kill()
        for proxy in self.proxies:
            proxy.reset()

    def lose_power(self):
        """It dies with its machine; servers do not notice."""
        self.stage.note(f"{self.name}'s machine loses power")
        for proxy in self.proxies:
            proxy.blackhole()
        self.kill()

    def stop(self):
        """Stops it, and everything it has started."""
        os.killpg(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.stage.add(self.name, "stopped")

    def cont(self):
        self.stage.add(self.name, "continued")
        os.killpg(self.pid, signal.SIGCONT)

    def kill_quietly(self):
        super().kill()

    def kill(self):
        at_ns = time.monotonic_ns()  # not later: others may learn of its death at once
        super().kill()
        self.stage.add(self.name, "died", at_ns)


class Crowd(Process):
    """Many clients, each of which gets the lock once (crowd.py). They have no separate networks."""
    name = "the crowd"

    def __init__(self, stage, count):
        self.stage, self.events, self.rest = stage, [], b""
        self.requests_of = {}  # each connection, by its address
        self.members = {name: Client(stage, name, stage.place.ports, False, False)
                        for name in (f"C{number}" for number in range(1, count + 1))}

    def start(self, hold_s, lease_s):
        """Returns when all of them are ready."""
        settings = json.dumps([member.settings() | {"lease_s": lease_s} for member in self.members.values()])
        with open(self.stage.folder / "crowd.err", "ab") as errors:
            self.launch([sys.executable, paths.HERE / "crowd.py", self.stage.protocol.name, settings, hold_s],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
        self.stage.selector.register(self.child.stdout, selectors.EVENT_READ, self)
        self.wait_for_each("ready")

    def __exit__(self, *_):
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.kill()
            self.child.stdin.close()
            self.child.stdout.close()

    def take(self, line):
        name, event = line.split(" ", 1)
        self.members[name].take(event)

    def wait_for_each(self, what):
        def every():
            return all(any(event["what"] == what for event in member.events) for member in self.members.values())

        self.stage.wait_for(lambda: every() or self.events, f"each of the crowd: {what}", 3 * LIMIT_S)
        if not every():
            raise Failed((self.stage.folder / "crowd.err").read_text())

    def ask(self):
        """Makes all of them start to lock."""
        self.child.stdin.write(b"go\n")
        self.wait_for_each("asked")

    @property
    def grants(self):
        """How many have had the lock."""
        return sum(event["what"] == "locked" for member in self.members.values() for event in member.events)

    def served(self, count):
        """Whether this many have had the lock, before nobody gets it for too long."""
        while self.grants < count:
            before, until = self.grants, time.monotonic() + self.stage.patience_s
            while self.grants == before:
                if time.monotonic() > until:
                    for member in self.members.values():
                        if not any(event["what"] == "locked" for event in member.events):
                            self.stage.add(member.name, "waiting")
                    return False
                self.stage.sleep(0.01)
        return True

    def requests(self):
        """How many requests they have sent to the servers so far: the kernel counts the packets with data of each
        connection, and a request is one packet. For a connection that has ended, the last count is used. None: there is
        no network."""
        ports = " or ".join(f"dport = :{port}" for port in self.stage.place.ports)
        if not ports:
            return None
        lines = subprocess.run(["ss", "-HOtinp", f"( {ports} )"], capture_output=True, text=True, check=True).stdout
        for line in lines.splitlines():
            pid, count = re.search(r"pid=(\d+)", line), re.search(r"data_segs_out:(\d+)", line)
            if pid and count and self.is_of_us(int(pid[1])):
                self.requests_of[line.split()[3]] = int(count[1])
        return sum(self.requests_of.values())

    def is_of_us(self, pid):
        """A member, or what it has started."""
        try:
            return os.getpgid(pid) == self.pid
        except ProcessLookupError:
            return False


class Stage:
    """A cell being played. place: running servers. shim: for clients with their own clock."""

    def __init__(self, protocol, place, key):
        self.protocol, self.place, self.key = protocol, place, key
        self.lease_s = place.lease_s
        self.patience_s = 3 * self.lease_s + 3  # after this, a lock that nobody has counts as never freed
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
        """Starts a client. ports: of the servers that it knows; all by default. network: whether it has its own, to
        be disturbed. clock: whether it has its own, to be changed."""
        client = Client(self, name, self.place.ports if ports is None else ports, network, clock)
        self.cast.append(client)
        client.start()
        self.stack.enter_context(client)
        return client

    def clients(self, *names, **options):
        """Starts clients, and returns when they are ready."""
        return self.ready([self.client(name, **options) for name in names])

    def crowd(self, count, hold_s, lease_s):
        """Starts many clients at once, which do nothing until they are told to lock."""
        crowd = Crowd(self, count)
        self.cast += crowd.members.values()
        self.stack.enter_context(crowd).start(hold_s, lease_s)
        self.start_ns = time.monotonic_ns()
        return crowd

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
            if not client.wait("ready", "failed", "died", within=2 * LIMIT_S):
                raise TooSlow
            if not client.wait("ready", within=0):
                raise Failed(f"{client.name}: {(self.folder / f'{client.name}.err').read_text()}")
        if len(self.cast) == len(every):
            self.start_ns = time.monotonic_ns()  # the history begins
        return every

    def new_clock(self):
        if not paths.shim():
            raise Failed("clock_shim.so is not there")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return Clock(paths.shim(), folder / "clock")

    # ---- What a scenario relies on ----

    def must_have_lease_left(self, holder):
        """Fails if it is not: whatever happens now might then be due to the end of its lease, and means nothing."""
        self.pump(0)
        locked = [event for event in holder.events if event["what"] == "locked"][-1]
        if self.protocol.has_lease and time.monotonic_ns() - locked["at_ns"] > 0.7e9 * self.lease_s:
            raise TooSlow(f"the lease of {holder.name} may be over")

    def must_stay_out(self, client, holder):
        """The client asks for the lock, which the holder has just got. It should not get in."""
        client.ask()
        if client.comes_in(self.lease_s / 2):
            self.must_have_lease_left(holder)

    def contend(self, holder, other, within):
        """The other asks for the lock that the holder still relies on. If it gets in, it works, and then the holder
        writes, too late; if not, its turn comes when the holder unlocks."""
        if other.lock(within):
            other.work(0.3)
            holder.write()
        else:
            holder.unlock()
            self.place.heal()
            other.locked()
        other.unlock()

    def next_inside(self, *clients):
        """Waits for the first of these that has the lock."""
        self.wait_for(lambda: any(client.inside for client in clients), "somebody inside", self.patience_s)
        return next(client for client in clients if client.inside)

    # ---- Time and events ----

    def pump(self, limit_s):
        """Reads what clients have written; waits at most this long for the first line."""
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
                client.take(line.decode(errors="replace"))

    def add(self, who, what, at_ns=None, **more):
        event = {"at_ns": at_ns or time.monotonic_ns(), "who": who, "what": what, **more}
        self.events.append(event)
        return event

    def note(self, text):
        """Records what happens apart from the clients, for the reader."""
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
        """What happens inside must take less than a lease, or it means nothing."""
        start = time.monotonic()
        yield
        if time.monotonic() - start >= self.lease_s:
            raise TooSlow

    # ---- The history ----

    def history(self):
        """What happened, in order, in seconds since the clients were ready."""
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
