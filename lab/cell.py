"""Plays one cell: a scenario with a protocol at a place."""
import contextlib
import itertools
import os

from lab import catalogue, paths
from lab.referee import judge
from lab.stage import Stage, TooSlow

TIMES = 5  # a cell is played at most this often, if the machine is too slow for it, or for anybody to get the lock
numbers = itertools.count(1)


def place_of(scenario, row):
    return catalogue.places()[scenario.at] if scenario.at else row.place


def play(scenario, row, place=None):
    """place: running servers; None: it starts its own, for a scenario that harms them. Returns the judged
    history. If it is played again, it gets a new lock."""
    for left in reversed(range(TIMES)):
        try:
            with contextlib.ExitStack() as stack:
                here = place or stack.enter_context(place_of(scenario, row)(paths.shim() if scenario.harms else None))
                key = f"{scenario.name}-{row.protocol.name}-{os.getpid()}-{next(numbers)}"
                stage = stack.enter_context(Stage(row.protocol, here, key))
                scenario.play(stage)
                history = judge(stage.history() | {"scenario": scenario.name, "row": row.name})
            if history["verdict"] != "error" or not left:
                return history
        except TooSlow:
            if not left:
                raise
    return None
