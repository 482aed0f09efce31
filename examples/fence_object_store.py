#!/usr/bin/env python3
"""Fencing in an object store, which knows nothing of tokens but has conditional puts. Two workers write a report. The
first takes the lock and pauses for longer than it lasts, so the second gets the lock and writes. When the first goes on,
its put fails, because the object is no longer the one that it has seen.

    fence_object_store.py LOCKS DATABASE

LOCKS is the URL of any store. The object store is fence_http_server.py, which keeps its data in the file DATABASE.

The first line of the object has the token of its last writer. To register a token is to put the object again with that
token, on the condition that it has not changed since it was read (If-Match: ETAG, or If-None-Match: * for a new one).
Each write has the same condition. The token must be in the content: in S3 the ETag is a sum of the content, and does not
change with the metadata. Where each put gives the object a new generation, use that (x-goog-if-generation-match).
"""
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from fence_http import Refused, ask, take_lock


def put(url, token, data, condition):
    """The new ETag."""
    return ask("PUT", url, condition, b"%d\n%s" % (token, data))[1]


def register(url, token):
    """Before the first read. Returns the data, and the ETag that the next write requires."""
    while True:
        content, etag = ask("GET", url, {}) or (b"0\n", None)
        seen, data = content.split(b"\n", 1)
        if int(seen) > token:
            raise Refused(f"token {token} is refused: a later holder came with {int(seen)}")
        try:
            return data, put(url, token, data, {"If-Match": etag} if etag else {"If-None-Match": "*"})
        except Refused:
            pass  # somebody was faster


def write(url, token, etag, data):
    """The ETag that the next write requires."""
    return put(url, token, data, {"If-Match": etag})


def play(locks, url):
    first = take_lock(locks)
    _, etag_of_first = register(url, first)
    second = take_lock(locks)  # waits until the first one's second is over
    _, etag_of_second = register(url, second)
    write(url, second, etag_of_second, b"by the second")
    print("second: has written")
    try:
        write(url, first, etag_of_first, b"by the first")
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
