#!/usr/bin/env python3
"""Runs a program with a Redis server whose clock stands still:

    frozen_redis.py frozen_clock.so program arguments

{url} in the arguments becomes the server's URL, and {clock} the file with its time
(frozen_clock.c)."""
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from servers.process import Process
from servers.redis import Redis


def main():
    shim, *words = sys.argv[1:]
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    config = ["enable-debug-command local", "databases 1"]
    with Redis(clock=shim, config=config) as server, Process() as program:
        places = {"{url}": server.url(), "{clock}": str(server.clock.path)}
        program.launch([places.get(word, word) for word in words])
        status = program.child.wait()
        sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
