"""Many threads of several processes that fight over a few locks (tests/support/contender.c), on any store.

HOLDFAST_CONTENTION is the number of acquires, HOLDFAST_CONTENTION_SEED repeats the choices of a run."""
import contextlib
import os
import random
import subprocess
import time

from servers import suite
from servers.process import Process
from servers.scene import PUPPET

ACQUIRES = int(os.environ.get("HOLDFAST_CONTENTION", 2000))
SEED = int(os.environ.get("HOLDFAST_CONTENTION_SEED", random.SystemRandom().randrange(1 << 31)))
PROCESSES, THREADS = 4, 8
LIMIT_S = 120 + ACQUIRES // 50
suite.LIMIT_S = LIMIT_S + 30
PATIENCE = "timeout=100000&connect_timeout=100000"  # longer than a contender waits: no new connection repairs anything


def contend(url, make_old):
    """Checks that every acquire and release succeeds, or was given up by its caller. make_old(): makes the server see
    the names that begin with "old" as unused for a long time."""
    print(f"# HOLDFAST_CONTENTION_SEED={SEED}")
    with contextlib.ExitStack() as stack:
        contenders = [stack.enter_context(Process()) for _ in range(PROCESSES)]
        for number, contender in enumerate(contenders):
            contender.launch([os.path.join(os.path.dirname(PUPPET), "contender"), f"{url}?{PATIENCE}", SEED + number * THREADS,
                              ACQUIRES // PROCESSES, THREADS], stdout=subprocess.PIPE, text=True)
        until = time.monotonic() + LIMIT_S
        while any(contender.running() for contender in contenders):
            assert time.monotonic() < until, "the contenders do not end"
            time.sleep(0.3)
            make_old()
        sums = {}
        for contender in contenders:
            said = contender.child.stdout.read()
            contender.child.stdout.close()
            assert contender.child.returncode == 0, said
            words = said.split()
            for word, number in zip(words[::2], map(int, words[1::2])):
                sums.setdefault(word, []).append(number)
    acquired, gave_up = sum(sums["acquired"]), sum(sums["gave_up"])
    print(f"# {acquired} acquired, {gave_up} gave up, the longest wait took {max(sums['longest_ms'])} ms")
    assert acquired > ACQUIRES // 3 and gave_up, "hardly anybody waited"
    suite.equal(acquired + gave_up, ACQUIRES // PROCESSES * PROCESSES)
