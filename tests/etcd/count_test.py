#!/usr/bin/env python3
"""Counters in an etcd cluster: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import base64
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import CLIENTS, add_up, add_up_while_replies_are_lost, wait
from servers.etcd import Etcd
from servers.suite import equal, main, test

shared = Etcd()  # for tests that leave it alone; each has its own prefix
KEY = b"\0count/hits"


def url_of(prefix, port=None, timeout_ms=20000):
    return shared.url(ports=port and [port], options=f"prefix={prefix}&timeout={timeout_ms}&connect_timeout={timeout_ms}")


def stored(prefix, cluster=shared):
    """What etcd has: the keys under the prefix, each with its value and its lease."""
    answer = json.loads(cluster.command("get", "--prefix", prefix, "-w", "json"))
    return {base64.b64decode(kv["key"])[len(prefix):]: (base64.b64decode(kv["value"]).decode(), kv.get("lease", 0))
            for kv in answer.get("kvs", [])}


@test
def sixteen_clients_add_up_exactly_and_only_their_answers_end():
    total = add_up(url_of("sum/"), "hits")
    keys = stored("sum/")
    equal(keys.pop(KEY), (str(total), 0))
    equal(len(keys), CLIENTS)
    assert all(lease for _, lease in keys.values()), keys


@test
def row_17_an_addition_whose_reply_was_lost_happens_once():
    total = add_up_while_replies_are_lost(shared.members[0].port, lambda port: url_of("lost/", port, 3000), "hits",
                                          "\0counted/hits", hang_up=False)
    equal(stored("lost/")[KEY][0], str(total))


@test
def additions_go_on_after_the_leader_was_killed():
    killed = []

    def kill_once():
        wait()
        reached = 0 if killed else int(stored("holdfast/", cluster).get(KEY, ("0",))[0])
        if reached > 2 * CLIENTS:
            killed.append(reached)
            cluster.leader().kill()

    with Etcd(members=3) as cluster:
        total = add_up(cluster.url(options="timeout=5000&connect_timeout=5000"), "hits", kill_once)
        equal(stored("holdfast/", cluster)[KEY][0], str(total))
    assert killed and killed[0] < total, killed


if __name__ == "__main__":
    with shared:
        main()
