#!/usr/bin/env python3
"""The command with the toy store: command_test.py HOLDFAST PUPPET. It runs in the copy of the tree that has the store."""
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.scene import HOLDFAST
from servers.suite import equal, main, test


def holdfast(*words):
    return subprocess.run([HOLDFAST, "--url", "toy:", *words], capture_output=True, text=True, check=False)


@test
def the_command_uses_it():
    equal(holdfast("run", "x", "--", "sh", "-c", "echo $HOLDFAST_LOCK").stdout, "x\n")


@test
def what_it_lacks_is_refused_with_its_reason():
    done = holdfast("run", "-s", "x", "true")
    assert done.returncode and "a toy has exclusive locks only" in done.stderr, done


main()
