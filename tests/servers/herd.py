"""Many clients that want one lock of a slow server (tests/support/herd.c), on any store."""
import os
import subprocess

from servers.process import Process
from servers.scene import PUPPET

CLIENTS, SECONDS = 80, 8
HELD = 20  # at least; it would be one to four if each waiter that asks kept the others waiting


def jostle(url, make_slow):
    """The lock goes from hand to hand. make_slow(): from now on, each request that writes a claim takes 25 ms more."""
    with Process() as herd:
        herd.launch([os.path.join(os.path.dirname(PUPPET), "herd"), f"{url}?connect_timeout=20000", CLIENTS, SECONDS],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = herd.child.stdout.readline()
        assert said == "ready\n", said
        make_slow()
        said = herd.child.communicate("\n")[0]
    print(f"# {said.strip()}")
    words = said.split()
    assert words[::2] == ["held", "failed"] and int(words[1]) >= HELD, said
