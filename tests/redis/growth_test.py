#!/usr/bin/env python3
"""The server's work for a lock does not grow with the number of waiters: growth_test.py HOLDFAST PUPPET."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import PUPPET, keys, wait_until, waiting
from servers.puppet import Puppet
from servers.redis import Redis
from servers.suite import main, test

FEW, MANY = 2, 500
LONG_MS = 1800000  # nobody asks again or renews meanwhile, and nothing expires
SLACK = 2  # once a second a script checks whether somebody watches


@contextlib.contextmanager
def server_and_client():
    with Redis() as server, Puppet(PUPPET, server.url(), max_lease_ms=LONG_MS, wait_lease_ms=LONG_MS) as puppet:
        yield server, puppet


def queue_up(puppet, server, count):
    """Holds the lock, and lets this many others wait for it, in order. Before that, a hand-off shows that the client is
    subscribed: when the subscription is confirmed, all waiters ask again, once."""
    puppet.hold("holder", "other", lease_ms=LONG_MS)
    puppet.acquire("waiter", "other", wait_ms=-1)
    wait_until(lambda: waiting(server, "other") == 1, "a waiter")
    puppet.release("holder")
    puppet.granted("waiter")
    puppet.release("waiter")
    puppet.hold("0", "name", lease_ms=LONG_MS)
    for number in range(count):
        puppet.acquire(number + 1, "name", wait_ms=-1)
    wait_until(lambda: waiting(server, "name") == count, f"{count} waiters")


def calls(server):
    """Commands that the server has run, including those of scripts; without PING, which is sent as time passes."""
    return sum(int(stats.split(",")[0].split("=")[1]) for name, stats in server.info("commandstats").items()
               if name not in ("cmdstat_info", "cmdstat_ping"))


def calls_of_a_hand_off(waiters):
    with server_and_client() as (server, puppet):
        queue_up(puppet, server, waiters)
        before = calls(server)
        puppet.release("0")
        puppet.granted("1")
        return calls(server) - before


@test
def a_hand_off_makes_as_many_commands_with_many_waiters_as_with_few():
    few, many = calls_of_a_hand_off(FEW), calls_of_a_hand_off(MANY)
    assert few > 0 and many <= few + SLACK, f"{few} commands with {FEW} waiters, {many} with {MANY}"


@test
def waiters_that_give_up_leave_nothing_behind():
    with server_and_client() as (server, puppet):
        queue_up(puppet, server, MANY)
        for number in range(MANY):
            puppet.cancel(number + 1)
        for number in range(MANY):
            assert puppet.failed(str(number + 1)) == "CANCELLED"
        left = {keys("name")["K"], keys("name")["S"], keys("other")["S"]}
        wait_until(lambda: set(server.command("KEYS", "*")) == left, "an empty queue")


main()
