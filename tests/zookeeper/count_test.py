#!/usr/bin/env python3
"""Counters in a ZooKeeper ensemble: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import CLIENTS, add_up, add_up_while_replies_are_lost, wait
from servers.suite import equal, main, test
from servers.zookeeper import Ensemble, Nodes, Zookeeper, patient

shared = Zookeeper()  # for tests that leave it alone; each has its own chroot
QUICKLY = "?timeout=3000&connect_timeout=3000"


def read(path, server=shared):
    with Nodes(server, f"{path}/holdfast/counters") as nodes:
        return int(nodes.read("hits")) if nodes.exists("hits") else 0


@test
def sixteen_clients_add_up_exactly():
    total = add_up(patient(shared.url(path="/sum")), "hits")
    equal(read("/sum"), total)


@test
def row_17_an_addition_whose_reply_was_lost_happens_once():
    total = add_up_while_replies_are_lost(shared.port, lambda port: shared.url(port=port, path="/lost") + QUICKLY, "hits",
                                          "/holdfast/counted/")
    equal(read("/lost"), total)


@test
def additions_go_on_after_the_leader_was_killed():
    killed = []

    def kill_once():
        wait()
        reached = 0 if killed else read("", follower)
        if reached > 2 * CLIENTS:
            killed.append(reached)
            leader.crash()

    with Ensemble() as ensemble:
        leader, follower = ensemble.leader(), ensemble.followers()[0]
        total = add_up(ensemble.url() + QUICKLY, "hits", kill_once)
        with Nodes(follower, "/holdfast/counters") as nodes:
            nodes.write("hits", nodes.read("hits"))  # after this, it has everything that was done before
            equal(nodes.read("hits"), str(total))
    assert killed and killed[0] < total, killed


if __name__ == "__main__":
    with shared:
        main()
