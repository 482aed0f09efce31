"""What the literature says: for each protocol and scenario the verdict to expect, and why, in a sentence or two.

The matrix compares what it sees with this, the report shows both, and docs/lab.md is made from it. A cell that does not
apply has no entry: the scenario itself says why it does not. An entry speaks for every place where the protocol runs;
one whose key also names a place speaks for that place alone: ("failover", "replicated").

The prose is for a reader who is new to the subject: what happens, in the active voice and in the order of time. It says
what goes wrong and not that something does; the verdict has said that already.
"""
from typing import NamedTuple


class Expected(NamedTuple):
    verdict: str
    why: str


def holds(why):
    return Expected("holds", why)


def fenced(why):
    return Expected("fenced", why)


def breaks(why):
    return Expected("breaks", why)


def stalls(why):
    return Expected("stalls", why)


CELLS = {
    "setnx": {
        "crash-holding": stalls("The key has no expiry, so it outlives its holder. Nobody can lock again until somebody "
                                "deletes it by hand."),
        "stranger": breaks("DEL does not ask who calls it. A client that never had the lock frees it, and the next one "
                           "enters beside the holder."),
    },
}


def expected(protocol, scenario, place):
    """None if the literature is silent, or the scenario does not apply."""
    cells = CELLS.get(protocol, {})
    return cells.get((scenario, place)) or cells.get(scenario)
