#!/usr/bin/python3
"""Fencing in ZooKeeper: it refuses a writer that has lost the lock without knowing it. Two workers write a report. The
first takes the lock and pauses for longer than it lasts, so the second gets the lock and writes. When the first goes on,
its transaction fails, because the second one has registered its token.

    fence_zookeeper.py LOCKS HOSTS

LOCKS is the URL of any store, HOSTS those of a ZooKeeper ensemble, such as 127.0.0.1:2181. It uses kazoo; other client
libraries have the same operations.

The node /NAME/fence has the largest token. To register a token is to write it there, on the condition that the node was
not changed since its token was read. That gives the node a new version, which each write then requires.
"""
import re
import subprocess
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError


class Refused(Exception):
    """A later holder has come: the lock is lost."""


def register(client, name, token):
    """Before the first read. Returns the version that each write requires."""
    client.ensure_path(f"/{name}/fence")
    while True:
        seen, stat = client.get(f"/{name}/fence")
        if seen and int(seen) > token:
            raise Refused(f"token {token} is refused")
        try:
            return client.set(f"/{name}/fence", str(token).encode(), version=stat.version).version
        except BadVersionError:
            pass  # somebody was faster


def write(client, name, version, data):
    transaction = client.transaction()
    transaction.check(f"/{name}/fence", version)
    transaction.set_data(f"/{name}/data", data)
    outcome, *_ = transaction.commit()
    if isinstance(outcome, BadVersionError):
        raise Refused("a later holder has come")
    assert outcome is True, outcome


def take_lock(locks):
    """For a second: whoever takes longer is as good as paused, since nobody renews the lock. Returns the token."""
    done = subprocess.run(["holdfast", "--url", locks, "acquire", "report", "--for", "1s"], stdout=subprocess.PIPE,
                          text=True, check=True)
    return int(re.search(r"HOLDFAST_TOKEN=(\d+)", done.stdout)[1])


def main(locks, hosts):
    client = KazooClient(hosts)
    client.start(timeout=30)
    client.ensure_path("/report/data")
    first = register(client, "report", take_lock(locks))
    second = register(client, "report", take_lock(locks))  # waits until the first one's second is over
    write(client, "report", second, b"by the second")
    print("second: has written")
    try:
        write(client, "report", first, b"by the first")
    except Refused as refused:
        print("first: was refused:", refused)
        return 0
    finally:
        client.stop()
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
