#!/usr/bin/env python3
"""Fencing in etcd: it refuses a writer that has lost the lock without knowing it. Two workers write a report. The first
takes the lock and pauses for longer than it lasts, so the second gets the lock and writes. When the first goes on, its
transaction fails, because the second one's token is there.

    fence_etcd.py LOCKS ADDRESS

LOCKS is the URL of any store, ADDRESS that of an etcd server, such as 127.0.0.1:2379. The program speaks the JSON form
of etcd's protocol; every client library has the same transactions.

The key NAME/fence has the largest token, in 16 digits, so that etcd compares it as a number. To register a token is a
transaction that raises it. To write is one that requires it to be ours.
"""
import base64
import json
import re
import subprocess
import sys
import urllib.request


class Refused(Exception):
    """A later holder has come: the lock is lost."""


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def put(key, value):
    return {"requestPut": {"key": encoded(key), "value": encoded(value)}}


def txn(address, compare, success):
    """Whether the comparison held, and the change was made."""
    body = json.dumps({"compare": [compare], "success": [success]}).encode()
    with urllib.request.urlopen(f"http://{address}/v3/kv/txn", body, timeout=30) as answer:
        return json.load(answer).get("succeeded", False)


def register(address, name, token):
    """Before the first read."""
    key, mine = f"{name}/fence", put(f"{name}/fence", f"{token:016}")
    if txn(address, {"key": encoded(key), "target": "CREATE", "createRevision": "0"}, mine):
        return
    not_above = {"key": encoded(key), "target": "VALUE", "result": "LESS", "value": encoded(f"{token + 1:016}")}
    if not txn(address, not_above, mine):
        raise Refused(f"token {token} is refused")


def write(address, name, token, value):
    is_mine = {"key": encoded(f"{name}/fence"), "target": "VALUE", "value": encoded(f"{token:016}")}
    if not txn(address, is_mine, put(name, value)):
        raise Refused(f"token {token} is refused")


def take_lock(locks):
    """For a second: whoever takes longer is as good as paused, since nobody renews the lock. Returns the token."""
    done = subprocess.run(["holdfast", "--url", locks, "acquire", "report", "--for", "1s"], stdout=subprocess.PIPE,
                          text=True, check=True)
    return int(re.search(r"HOLDFAST_TOKEN=(\d+)", done.stdout)[1])


def main(locks, address):
    first = take_lock(locks)
    register(address, "report", first)
    second = take_lock(locks)  # waits until the first one's second is over
    register(address, "report", second)
    write(address, "report", second, "by the second")
    print("second: has written")
    try:
        write(address, "report", first, "by the first")
    except Refused as refused:
        print("first:", refused)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
