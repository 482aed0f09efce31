#!/usr/bin/env python3
"""Fencing over HTTP: a service refuses a writer that has lost the lock without knowing it. Two workers write a report.
The first takes the lock and pauses for longer than it lasts, so the second gets the lock and writes. When the first
goes on, its request is answered with 412, because the service has seen a larger token.

    fence_http.py LOCKS DATABASE

LOCKS is the URL of any store. The service is fence_http_server.py, which this program starts and which keeps its data in
the file DATABASE.
"""
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path


class Refused(Exception):
    """A later holder has come: the lock is lost."""


def ask(method, url, headers, data=None):
    """The answer: its content and its ETag. None: there is no such resource."""
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read(), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 412:
            raise Refused(f"{method} is refused: {error}") from error
        if error.code == 404:
            return None
        raise


def fence(name, token):
    return {"Fence-Name": name, "Fence-Token": str(token)}


def read(url, name, token):
    """This registers the token."""
    return ask("GET", url, fence(name, token))


def write(url, name, token, data):
    ask("PUT", url, fence(name, token), data)


def take_lock(locks):
    """For a second: whoever takes longer is as good as paused, since nobody renews the lock. Returns the token."""
    done = subprocess.run(["holdfast", "--url", locks, "acquire", "report", "--for", "1s"], stdout=subprocess.PIPE,
                          text=True, check=True)
    return int(re.search(r"HOLDFAST_TOKEN=(\d+)", done.stdout)[1])


def play(locks, url):
    first = take_lock(locks)
    read(url, "report", first)
    second = take_lock(locks)  # waits until the first one's second is over
    read(url, "report", second)
    write(url, "report", second, b"by the second")
    print("second: has written")
    try:
        write(url, "report", first, b"by the first")
    except Refused as refused:
        print("first:", refused)
        return 0
    return 1


def main(locks, database):
    program = Path(__file__).with_name("fence_http_server.py")
    with subprocess.Popen([sys.executable, program, database], stdout=subprocess.PIPE, text=True) as server:
        try:
            return play(locks, f"http://127.0.0.1:{int(server.stdout.readline())}/report")
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
