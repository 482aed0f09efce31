#!/usr/bin/env python3
"""The code that plays the cells, tried with a cell that is not one of the lab's."""
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS.parent), str(TESTS)]
from lab import matrix
from servers.suite import equal, main, test


def task_of(play):
    """A task that calls this, in a cell."""
    protocol = Mock()  # it can be a member of a set
    protocol.name = "a-protocol"
    row = SimpleNamespace(name="a-row", protocol=protocol, place=SimpleNamespace(name="a-place"), missing=lambda _: [])
    scenario = SimpleNamespace(name="a-scenario", harms=True, programs={}, why_not=lambda *_: None)
    matrix.cell = SimpleNamespace(play=play)
    return matrix.Task(scenario, row, 0)


@test
def a_folder_is_removed_that_a_cell_left():
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        os.environ["TMPDIR"], tempfile.tempdir = folder, None

        def leave(*_):
            left = tempfile.mkdtemp(prefix="holdfast-lab-")
            Path(left, "data").touch()
            return left

        (left,) = matrix.play([task_of(leave)], 1)
        equal((Path(left).is_relative_to(folder), os.listdir(folder)), (True, []))


main()
