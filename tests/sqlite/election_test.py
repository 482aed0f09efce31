#!/usr/bin/env python3
"""Elections on the sqlite store: election_test.py HOLDFAST PUPPET; see servers/election.py."""
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.election import fail_over
from servers.suite import main, test


@test
def two_leaders_never_both_have_time_left():
    with tempfile.TemporaryDirectory(prefix="holdfast-election-") as folder:
        fail_over(lambda: f"sqlite:{folder}/locks.db")


main()
