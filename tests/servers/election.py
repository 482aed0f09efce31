"""Fail-overs of an election, forced by kill -9, SIGSTOP and cut connections, on any store: two leaders never both have
time left, and an observer sees each of them. Shared by the tests of several stores.

HOLDFAST_FAILOVERS is how many there are (6).
"""
import contextlib
import json
import os
import select
import subprocess
import time

from servers import suite
from servers.process import Process
from servers.puppet import boot_us
from servers.scene import HOLDFAST, PUPPET

ROUNDS = int(os.environ.get("HOLDFAST_FAILOVERS", 6))
LEADER = os.path.join(os.path.dirname(PUPPET), "leader")
CANDIDATES = 3
LEASE_MS = 1500
PATIENCE_S = 60
suite.LIMIT_S = 120 + 15 * ROUNDS


class Reader(Process):
    """A process whose lines are read as they come."""

    def launch_reading(self, words):
        self.launch(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        self.rest = b""

    def lines(self):
        """The lines that have arrived; none after its end."""
        while select.select([self.child.stdout], [], [], 0)[0]:
            data = os.read(self.child.stdout.fileno(), 65536)
            if not data:
                return
            *whole, self.rest = (self.rest + data).split(b"\n")
            yield from (line.decode() for line in whole)


class Candidate(Reader):
    def __init__(self, url, number, proxy=None):
        self.words = [LEADER, url, "leader", f"candidate {number}", str(LEASE_MS)]
        self.proxy, self.stopped = proxy, False

    def __enter__(self):
        self.launch_reading(self.words)
        return self

    def __exit__(self, *_):
        self.kill()
        self.child.stdout.close()


class Election:
    """The candidates, and what they have printed so far."""

    def __init__(self, candidates):
        self.candidates = candidates
        self.terms = {}  # token: {"by", "from", "until", "lost"}

    def read(self):
        for candidate in self.candidates:
            for line in candidate.lines():
                word, token, us = line.split()
                term = self.terms.setdefault(int(token), {"by": candidate, "until": 0, "lost": None})
                if word == "elected":
                    term["from"] = int(us)
                elif word == "until":
                    term["until"] = max(term["until"], int(us))
                else:
                    term["lost"] = int(us)

    def wait(self, condition, what):
        until = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < until, f"in vain: {what}; {self.terms}"
            time.sleep(0.01)
            self.read()
        return found

    def leader(self):
        """The latest term, if its leader has reported time left and no loss; else None."""
        token = max(self.terms, default=None)
        term = self.terms.get(token)
        return token if term and term["until"] and not term["lost"] and "dead" not in term else None

    def next_leader(self, after):
        return self.wait(lambda: (token := self.leader()) and token > after and token, "the next leader")

    def check(self):
        """Checks that nobody is elected while another has time left. A leader that was killed has none from then on."""
        ordered = sorted(self.terms)
        for before, after in zip(ordered, ordered[1:]):
            old, new = self.terms[before], self.terms[after]
            end = min(old["until"], old.get("dead", old["until"]))
            assert new["from"] >= end, f"{after} began {end - new['from']} us before {before} ended"


class Observer(Reader):
    """holdfast elect --observe: the tokens that it has printed."""

    def __init__(self, url):
        self.url, self.tokens = url, []

    def __enter__(self):
        self.launch_reading([HOLDFAST, "--url", self.url, "elect", "leader", "--observe", "--json"])
        return self

    def __exit__(self, *_):
        self.kill()
        self.child.stdout.close()

    def has_seen(self, token):
        self.tokens += [int(json.loads(line)["token"] or 0) for line in self.lines()]
        return token in self.tokens

    def check(self):
        led = [token for token in self.tokens if token]
        assert led == sorted(led), f"it saw an old leader after a new one: {led}"


# ---- Faults: each ends the term of the leader, and returns a function that ends the fault ----


def killed(election, token):
    term = election.terms[token]
    candidate = term["by"]
    at_us = boot_us()
    candidate.kill()
    election.read()  # the last lines it printed
    term["dead"] = at_us
    candidate.__enter__()
    return lambda: None


def stopped(election, token):
    candidate = election.terms[token]["by"]
    candidate.stop()
    return candidate.cont


def cut(election, token):
    proxy = election.terms[token]["by"].proxy
    proxy.hold("both")
    return proxy.let_go


def fail_over(url, open_proxy=None):
    """open_proxy() makes a proxy in front of the server, for one candidate; None: there is no connection to cut."""
    faults = [killed, stopped] + ([cut] if open_proxy else [])
    with contextlib.ExitStack() as stack:
        candidates = []
        for number in range(CANDIDATES):
            proxy = stack.enter_context(open_proxy()) if open_proxy else None
            its_url = url(proxy.port) if proxy else url()
            candidates.append(stack.enter_context(Candidate(its_url, number, proxy)))
        observer = stack.enter_context(Observer(url()))
        election = Election(candidates)
        token = election.next_leader(0)
        for number in range(ROUNDS):
            end_fault = faults[number % len(faults)](election, token)
            before, token = token, election.next_leader(token)
            election.wait(lambda: observer.has_seen(token), "the observer sees the new leader")
            end_fault()
            if "dead" not in election.terms[before]:
                election.wait(lambda: election.terms[before]["lost"], "the old leader is told")
        election.check()
        observer.check()
        assert len(election.terms) > ROUNDS
