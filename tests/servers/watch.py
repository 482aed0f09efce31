"""`holdfast watch` for tests: its reports, one event after the other.

    with watching(url, "--json") as watch:
        watch.expect("watching")
        run(url, "run", "x", "true")
        watch.expect("acquired", "x")

By default it polls so rarely that whatever it sees was pushed. The scenarios at the end are the same for every store
that pushes.
"""
import contextlib
import json
import os
import select
import subprocess
import sys
import time

from servers.suite import equal

HOLDFAST = sys.argv[1]


def at(url):
    return {**os.environ, "HOLDFAST_URL": url}


class Watch:
    def __init__(self, url, *words, every="1h"):
        self.process = subprocess.Popen([HOLDFAST, "watch", "--every", every, *words], env=at(url), text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def next(self):
        return json.loads(self.process.stdout.readline())

    def expect(self, event, name=None):
        found = self.next()
        equal((found["event"], found.get("name")), (event, name))
        return found


@contextlib.contextmanager
def watching(url, *words, **options):
    watch = Watch(url, *words, **options)
    try:
        yield watch
    finally:
        watch.process.kill()
        watch.process.communicate()


def run(url, *words):
    subprocess.run([HOLDFAST, *words], env=at(url), check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ---- Scenarios ----


def sees_what_is_taken_and_released_between_two_polls(url):
    with watching(url, "--json") as watch, watching(url, "--json", "y") as other:
        watch.expect("watching")
        other.expect("watching")
        before_ms = int(time.time() * 1000)
        run(url, "run", "x", "true")
        acquired, released = watch.expect("acquired", "x"), watch.expect("released", "x")
        equal((acquired["exact"], released["exact"]), (True, True))
        equal(acquired["party"]["token"], released["party"]["token"])
        assert before_ms <= acquired["at_ms"] <= released["at_ms"] <= time.time() * 1000
        run(url, "run", "y", "true")
        other.expect("acquired", "y")
        other.expect("released", "y")


def says_that_it_lost_its_connection_and_goes_on(url, wait_for_both, cut):
    """`cut` cuts the connections of all watchers; `wait_for_both` returns when there are two."""
    with watching(url, "--json") as watch, watching(url) as text:
        watch.expect("watching")
        wait_for_both()
        run(url, "run", "x", "true")
        watch.expect("acquired", "x")
        watch.expect("released", "x")
        cut()
        assert watch.expect("missed")["reason"]
        watch.expect("watching")
        run(url, "run", "x", "true")
        watch.expect("acquired", "x")
        while not select.select([text.process.stderr], [], [], 2)[0]:  # it may not have been watching yet
            cut()
        line = text.process.stderr.readline()
        assert "events may be missing" in line, line
        assert "complete again" in text.process.stderr.readline()
