"""`holdfast watch` for tests: what it reports, event after event.

    with watching(url, "--json") as watch:
        watch.expect("watching")
        run(url, "run", "x", "true")
        watch.expect("acquired", "x")

By default it polls so seldom that no poll can be what saw something.
"""
import contextlib
import json
import os
import subprocess
import sys

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
