#!/usr/bin/env python3
"""The process of one client: it obeys orders on its standard input, and writes what happened to its standard output.

    orders   lock | write | write pausing | unlock | quit
    events   TIME ready | asked | locked TOKEN | lost | wrote OK | wrote REFUSED | unlocking | unlocked | failed WORDS

TIME is CLOCK_MONOTONIC in ns. "locked" is noted after lock() has returned and "unlocking" before unlock() is called, so
the client was inside at least between the two. A client in another language obeys the same orders: see clients/.
"""
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from lab import paths  # noqa: E402 # it finds the other packages


class Client:
    def __init__(self, protocol, settings, orders, events):
        self.protocol, self.name = protocol(settings), settings["name"]
        self.orders, self.events = orders, events
        self.connected = False
        self.grants, self.token = 0, None
        self.witness = socket.create_connection(("127.0.0.1", settings["witness"])).makefile("rw")

    def say(self, *words):
        print(time.monotonic_ns(), *words, file=self.events, flush=True)

    def connect(self):
        if not self.connected:
            self.protocol.connect()
            self.connected = True

    def lock(self):
        self.say("asked")
        self.connect()
        self.token = self.protocol.lock()
        self.grants += 1
        self.say("locked", "-" if self.token is None else self.token)

    def write(self, pausing=False):
        if not self.protocol.check():
            self.say("lost")
            return
        if pausing:
            os.kill(0, signal.SIGSTOP)  # with everything it has started
        print("write", self.name, self.grants, "-" if self.token is None else self.token, file=self.witness, flush=True)
        self.say("wrote", self.witness.readline().strip())

    def unlock(self):
        self.say("unlocking")
        self.connect()
        self.protocol.unlock()
        self.say("unlocked")

    def obey(self, order):
        try:
            {"lock": self.lock, "write": self.write, "write pausing": lambda: self.write(pausing=True),
             "unlock": self.unlock}[order]()
        except Exception as error:  # pylint: disable=broad-except # whatever a driver raises: the program was notified
            self.connected = False
            self.say("failed", order, type(error).__name__, str(error).replace("\n", " "))

    def run(self):
        with contextlib.suppress(Exception):  # then lock() tries again, and says why it fails
            self.connect()
        self.say("ready")
        for line in self.orders:
            if line.strip() == "quit":
                break
            self.obey(line.strip())


def main():
    from lab import catalogue
    protocol, settings = catalogue.protocols()[sys.argv[1]], json.loads(sys.argv[2])
    for other in settings["threads"]:  # clients in the same program; each has pipes for its orders and events
        client = Client(protocol, other, open(other["orders"]), open(other["events"], "w"))
        threading.Thread(target=client.run, daemon=True).start()
    Client(protocol, settings, sys.stdin, sys.stdout).run()


if __name__ == "__main__":
    main()
