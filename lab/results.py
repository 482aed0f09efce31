"""What the cells of a matrix say together: the protocols, in the chapters of their story, which of them fixes what, and
which cell says most about each. The report and docs/lab.md are made from this.
"""
import collections
import re
from types import SimpleNamespace

from lab import literature

PLAYED = ("holds", "fenced", "breaks", "stalls")
BAD = ("breaks", "stalls")

# A title, the places whose protocols are in it (those of holdfast are in the last, whatever their
# place), and the opening text.
CHAPTERS = (
    ("One Redis server", ("redis",),
     "Redis is fast and often there already, and its commands are atomic. The first locks were made of single commands, and "
     "each of them learnt something from the accidents of the one before."),
    ("Several Redis servers", ("replicated", "redlock"),
     "One server is one thing that can fail. A second copy of the lock helps only if the two agree on who has it."),
    ("A database", ("postgres", "mariadb"),
     "A database that holds the data can hold the lock as well. It is durable, and it has had locks of its own for decades."),
    ("ZooKeeper and etcd", ("zookeeper", "ensemble", "etcd", "etcd_cluster"),
     "These services agree on every change by majority vote. A lock belongs to a session or a lease, which ends when its "
     "client is no longer heard of."),
    ("What holds", None,
     "holdfast is the same lock on every store: an owner in each grant, a lease that is renewed in the background, steps that can "
     "be repeated after a lost reply, a queue (only a set of independent servers has none), and a token with every grant. What "
     "no lease can prevent, the token makes harmless."),
)


class Cell:
    """What was seen of a scenario with a row: one history, or several if it was repeated."""

    def __init__(self, row, scenario, histories):
        self.row, self.scenario, self.histories = row, scenario, histories
        counts = collections.Counter(history["verdict"] for history in histories)
        self.verdict, self.count = counts.most_common(1)[0]
        self.history = next(history for history in histories if history["verdict"] == self.verdict)
        self.id = re.sub(r"[^a-z0-9-]", "-", f"{row.name}-{scenario.name}")
        self.expected = literature.expected(row.protocol, scenario.name, row.place)

    @property
    def was_played(self):
        return self.verdict in PLAYED

    @property
    def is_bad(self):
        return self.verdict in BAD


class Results:
    """All cells, by the names of their rows and scenarios. Scenarios that affect most protocols come first.

    contents: the rows and scenarios, as `lab list --json` prints them."""

    def __init__(self, contents, histories):
        self.rows = [SimpleNamespace(**row) for row in contents["rows"]]
        self.scenarios = [SimpleNamespace(**scenario) for scenario in contents["scenarios"]]
        found = collections.defaultdict(list)
        for history in histories:
            found[history["row"], history["scenario"]].append(history)
        self.cells = {(row.name, scenario.name): Cell(row, scenario, found[row.name, scenario.name])
                      for row in self.rows for scenario in self.scenarios if found[row.name, scenario.name]}
        played = collections.Counter(cell.scenario.name for cell in self.cells.values() if cell.was_played)
        self.scenarios.sort(key=lambda scenario: -played[scenario.name])
        self.protocols = {}  # those that have cells, with their rows
        for row in self.rows:
            if self.of_row(row):
                self.protocols.setdefault(row.protocol, []).append(row)

    def of_row(self, row):
        return [self.cells[row.name, scenario.name] for scenario in self.scenarios
                if (row.name, scenario.name) in self.cells]

    def chapters(self):
        """(title, text, protocols with their rows)"""
        for title, places, text in CHAPTERS:
            protocols = {name: rows for name, rows in self.protocols.items() if is_in(places, rows[0])}
            if protocols:
                yield title, text, protocols

    # -- Of a protocol, wherever it runs --

    def cells_of(self, name, *verdicts):
        """Those with one of these verdicts, one for each scenario."""
        cells = [self.cell_of(name, scenario) for scenario in self.scenarios]
        return [cell for cell in cells if cell and cell.verdict in verdicts]

    def cell_of(self, name, scenario):
        """Where it fails in a scenario, or else any that was played."""
        cells = [self.cells.get((row.name, scenario.name)) for row in self.protocols.get(name, ())]
        return min((cell for cell in cells if cell and cell.was_played), key=lambda cell: not cell.is_bad, default=None)

    def successors(self, name):
        return [other for other, (row, *_) in self.protocols.items() if row.follows == name]

    def mended_by(self, name):
        """The cells in which the previous protocol failed and this one does not."""
        flaws = self.cells_of(self.protocols[name][0].follows, *BAD)
        cells = [self.cell_of(name, flaw.scenario) for flaw in flaws]
        return [cell for cell in cells if cell and not cell.is_bad]

    def telling(self, name):
        """The cells that say most about a protocol: the flaws for which it was replaced, or else another one, and what
        its token prevents; or else something that it withstands."""
        reasons = {self.protocols[other][0].mends_in for other in self.successors(name)}
        flaws = self.cells_of(name, *BAD)
        shown = [cell for cell in flaws if cell.scenario.name in reasons] or sorted(flaws, key=self.is_lesser)[:1]
        return shown + self.cells_of(name, "fenced")[:1] or self.cells_of(name, "holds")[:1]

    def is_lesser(self, flaw):
        """Two at once is worse than nobody, and a flaw that the previous protocol did not have says more."""
        before = self.cell_of(flaw.row.follows, flaw.scenario)
        return flaw.verdict == "stalls", bool(before and before.is_bad)


def is_in(places, row):
    """Whether a row belongs to the chapter of these places."""
    return row.protocol == "holdfast" if places is None else row.protocol != "holdfast" and row.place in places
