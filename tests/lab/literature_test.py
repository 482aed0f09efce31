#!/usr/bin/env python3
"""The literature covers every cell, and the docs agree with it. The argument is the path of the library."""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]
os.environ["HOLDFAST_LIBRARY"] = os.path.abspath(sys.argv[1])
from lab import paths  # noqa: F401 # it finds the other packages
from lab import catalogue, literature
from lab.results import BAD
from servers.suite import equal, main, test

LONGEST = 330  # characters: a sentence or two, or three short ones


def cells():
    """The cells of the matrix that are played."""
    return [(row, scenario) for row in catalogue.rows().values() for scenario in catalogue.scenarios().values()
            if not scenario.why_not(row.protocol, row.place)]


@test
def something_is_known_of_every_cell():
    equal([f"{scenario.name}, {row.name}" for row, scenario in cells()
           if not literature.expected(row.protocol.name, scenario.name, row.place.name)], [])


@test
def nothing_is_known_of_a_cell_that_is_not_there():
    there = {(row.protocol.name, name) for row, scenario in cells()
             for name in (scenario.name, (scenario.name, row.place.name))}
    equal([(protocol, name) for protocol, entries in literature.CELLS.items() for name in entries
           if (protocol, name) not in there], [])


@test
def what_is_known_is_told_in_a_sentence_or_two():
    told = {expected.why for entries in literature.CELLS.values() for expected in entries.values()}
    equal([why for why in told if len(why) > LONGEST or not re.match(r"[A-Z`].*[.)]$", why)], [])


@test
def each_protocol_mends_what_it_was_made_for():
    """The previous protocol fails in that scenario, and this one does not."""
    known = {(row.protocol.name, scenario.name): literature.expected(row.protocol.name, scenario.name, row.place.name).verdict
             for row, scenario in cells()}
    wrong = [protocol.name for protocol in catalogue.protocols().values() if protocol.follows and (
        not protocol.mends or known.get((protocol.follows, protocol.mends_in)) not in BAD
        or known.get((protocol.name, protocol.mends_in)) in BAD)]
    equal(wrong, [])


@test
def the_docs_say_what_is_known():
    done = subprocess.run([ROOT / "docs/lab/make", "--check"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    main()
