#!/usr/bin/env python3
"""Many clients at once: processes that are forked from one that has already loaded what they need.

    crowd.py PROTOCOL SETTINGS HOLD_S

SETTINGS is a list with the settings of each client. A client connects and reports that it is ready. When something
arrives on standard input, all of them lock; each keeps the lock for a moment and unlocks. They write the events of
client.py, each after the client's name.
"""
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from lab import catalogue  # noqa: E402
from lab.client import Client  # noqa: E402

PR_SET_PDEATHSIG = 1


class Lines:
    """Each line goes out in one write: the clients share a pipe, and their lines would mix."""

    def __init__(self, name):
        self.name, self.text = name, ""

    def write(self, text):
        self.text += text

    def flush(self):
        os.write(1, f"{self.name} {self.text}".encode())
        self.text = ""


def orders(gate, hold_s):
    os.read(gate, 1)  # returns when it is closed
    yield "lock"
    time.sleep(hold_s)
    yield "unlock"
    signal.pause()  # the kernel forgets what it counted when a connection ends


def main():
    protocol, every, hold_s = catalogue.protocols()[sys.argv[1]], json.loads(sys.argv[2]), float(sys.argv[3])
    gate, opener = os.pipe()
    for settings in every:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(opener)
            Client(protocol, settings, orders(gate, hold_s), Lines(settings["name"])).run()
            os._exit(0)
    sys.stdin.readline()
    os.close(opener)
    for _ in every:
        os.wait()


if __name__ == "__main__":
    main()
