#!/usr/bin/env python3
"""The Redis store over Sentinel: fault_sentinel_test.py HOLDFAST PUPPET. Rows 10 and 11 of FAILURES.md."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.scene import (LONG_MS, PUPPET, SLACK_US, TooSlow, is_lost, keys, last_deadline_us, one_of, patient, puppets,
                          value_of, wait_until, waiting)
from servers import suite
from servers.proxy import Proxy, owner_of
from servers.puppet import Puppet
from servers.sentinel import SERVICE, Sentinels, info
from servers.suite import equal, main, test

suite.LIMIT_S = 240
LIMIT_S = 90
WAIT_LEASE_MS = 3000


def hold_and_wait(scene, one, two, lease_ms=LONG_MS):
    """One holds x and y, two waits for x, and the replica has all of it. Returns the tokens."""
    tokens = [one.hold("x", "x", lease_ms=lease_ms).token, one.hold("y", "y", lease_ms=lease_ms).token]
    two.acquire("x", "x", wait_ms=-1)
    master, replica = scene.master, scene.replica
    wait_until(lambda: waiting(master, "x") == 1, "a waiter")
    wait_until(lambda: value_of(replica, "y") == value_of(master, "y") and waiting(replica, "x") == 1, "replication")
    return tokens


def role_of(server):
    """Its role; None while it disconnects its clients, as it does when its role changes."""
    try:
        return server.command("ROLE")[0]
    except OSError:
        return None


def lose_all_and_go_on(one, two, tokens):
    """The loss is reported, whatever the new master has; its release lets the waiter continue there."""
    for lock in ("x", "y"):
        assert "another server took over" in one.why_lost(lock, LIMIT_S)
        equal(one.check(lock), "LOST")
        equal(one.renew(lock), "LOST")
        equal(one.release(lock), "LOST")
    assert two.granted("x", LIMIT_S).token > tokens[0]
    equal(two.renew("x"), "OK")
    assert two.hold("y", "y", wait_ms=-1).token > tokens[1]


@test("killed", "stopped", "partitioned")
def row_10_a_fail_over_means_lost_also_where_the_lock_was_replicated(how):
    proxies = {}

    def announce(stack, server):
        proxies[server] = stack.enter_context(Proxy(server.port))
        return proxies[server].port

    with Sentinels(announce=announce if how == "partitioned" else None) as scene, \
            puppets(2, scene.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = hold_and_wait(scene, one, two)
        old = scene.master
        scene.hurry()
        if how == "killed":
            old.kill()
        elif how == "stopped":
            old.stop()
        else:
            proxies[old].blackhole()
        new = scene.wait_for_switch(old)
        lose_all_and_go_on(one, two, tokens)
        if how == "stopped":
            old.cont()
        elif how == "partitioned":
            proxies[old].pass_all()
        if how != "killed":
            wait_until(lambda: role_of(old) == "slave", "the old master as a replica", LIMIT_S)
        equal(two.renew("x"), "OK")
        equal(is_lost(two, "x"), False)
        equal(two.release("x"), "OK")
        equal(value_of(new, "x"), None)


@test("a master that stops without replicas", "a master that goes on")
@patient
def row_10_a_client_that_is_cut_off_with_the_old_master_loses_its_lock_by_the_deadline(which):
    """The cut-off client does not learn of the switch. Its hold ends at its deadline, or when it reaches the others
    again."""
    stops, proxies = which == "a master that stops without replicas", {}

    def announce(stack, server):
        proxies[server] = stack.enter_context(Proxy(server.port))
        return proxies[server].port

    config = ["min-replicas-to-write 1", "min-replicas-max-lag 3"] if stops else []
    with Sentinels(announce=announce, config=config) as scene, contextlib.ExitStack() as stack:
        ways = [stack.enter_context(Proxy(sentinel.port)) for sentinel in scene.sentinels]
        hosts = ",".join(f"127.0.0.1:{way.port}" for way in ways)
        inside = stack.enter_context(Puppet(PUPPET, f"redis+sentinel://{hosts}/{SERVICE}"))
        two = stack.enter_context(Puppet(PUPPET, scene.url(), wait_lease_ms=WAIT_LEASE_MS))
        token = hold_and_wait(scene, inside, two, lease_ms=8000 if stops else LONG_MS)[0]
        old = scene.master
        scene.hurry()
        for way in ways:
            way.blackhole()
        proxies[old].part(lambda address: owner_of(address, [inside]) is None)
        reached, good = inside.renew("x"), info(old, "replication").get("min_slaves_good_slaves", "1")
        if stops and good == "0":
            raise TooSlow("the master has noticed already")
        equal(reached, "OK")
        if stops:
            _, end_us = last_deadline_us(inside, "x")
            told_us = inside.lost("x", LIMIT_S)
            assert told_us <= end_us + SLACK_US, f"{(told_us - end_us) / 1e6} s too late"
        scene.wait_for_switch(old)
        if not stops:
            equal(inside.renew("x"), "OK")  # only its token distinguishes it from the next holder's
        for proxy in (*ways, proxies[old]):
            proxy.pass_all()
        if not stops:
            inside.lost("x", LIMIT_S)
        equal((inside.renew("x"), inside.release("x")), ("LOST", "LOST"))
        assert two.granted("x", LIMIT_S).token > token
        equal(two.renew("x"), "OK")


@test
def row_10_what_was_not_replicated_is_lost_and_not_made_again():
    with Sentinels(config=["replica-read-only no"]) as scene, \
            puppets(2, scene.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = hold_and_wait(scene, one, two)
        old, replica = scene.master, scene.replica
        for name in ("x", "y"):
            replica.command("DEL", *keys(name).values())
        scene.hurry()
        old.kill()
        scene.wait_for_switch(old)
        one.lost("x", LIMIT_S)
        assert two.granted("x", LIMIT_S).token > tokens[0]
        one.lost("y", LIMIT_S)
        equal(one.renew("y"), "LOST")
        equal(value_of(replica, "y"), None)
        equal(one.release("x"), "LOST")
        equal(two.renew("x"), "OK")


@test
def a_switch_by_hand_loses_all_locks_as_a_fail_over_does():
    with Sentinels() as scene, puppets(2, scene.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = hold_and_wait(scene, one, two)
        old = scene.master
        scene.sentinels[0].command("SENTINEL", "FAILOVER", SERVICE)
        scene.wait_for_switch(old)
        lose_all_and_go_on(one, two, tokens)


@test
def a_restart_of_the_master_loses_no_lock():
    with Sentinels(config=["appendonly yes", "appendfsync always"]) as scene, \
            puppets(2, scene.url(), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        hold_and_wait(scene, one, two)
        scene.master.restart()
        wait_until(lambda: one.renew("x") == "OK", "a renewal after the restart")
        equal(one.renew("y"), "OK")
        equal(is_lost(one, "x") or is_lost(one, "y"), False)
        equal(one.release("x"), "OK")
        two.granted("x", LIMIT_S)


@test
def a_replica_that_a_sentinel_names_is_not_used():
    """It answers READONLY in the middle of a connection, and then ROLE shows it."""
    with Sentinels() as scene, puppets(1, scene.url()) as (one,):
        one.hold("x", "x", lease_ms=LONG_MS)
        master, replica = scene.master, scene.replica
        master.command("REPLICAOF", "127.0.0.1", replica.port)
        one.acquire("y", "y")
        equal(one.failed("y", LIMIT_S), "UNREACHABLE")
        master.command("REPLICAOF", "NO", "ONE")
        wait_until(lambda: one.renew("x") in ("OK", "LOST"), "an answer")


@test
def without_sentinels_what_is_connected_goes_on_and_nothing_else():
    with Sentinels() as scene, puppets(1, scene.url()) as (one,):
        one.hold("x", "x", lease_ms=LONG_MS)
        master = scene.master
        for number, sentinel in enumerate(scene.sentinels):
            sentinel.kill()
            equal(one.renew("x"), "OK")
            one.hold(f"y{number}", f"y{number}")
            if number < 2:
                with Puppet(PUPPET, scene.url()) as another:
                    another.hold("z", f"z{number}")
        with Puppet(PUPPET, scene.url()) as another:
            another.acquire("z", "z")
            line = another.wait("failed z", limit_s=LIMIT_S)
            text = " ".join(line.words)
            assert line.words[2] == "UNREACHABLE" and all(f"127.0.0.1:{s.port}" in text for s in scene.sentinels), line
        master.command("CLIENT", "KILL", "TYPE", "normal")
        one.acquire("late", "late")
        one_of(one.failed("late", LIMIT_S), ("UNREACHABLE", "UNKNOWN"))
        scene.sentinels[1].restart()
        wait_until(lambda: one.renew("x") == "OK", "a renewal", LIMIT_S)
        equal(is_lost(one, "x"), False)


@test
def the_majority_of_the_answering_sentinels_decides():
    with Sentinels() as scene:
        liar = scene.sentinels[2]
        liar.command("SENTINEL", "REMOVE", SERVICE)
        liar.command("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", scene.replica.port, 1)
        with Puppet(PUPPET, scene.url()) as one:
            one.hold("x", "x")
            assert value_of(scene.master, "x")
        scene.sentinels[0].kill()
        with Puppet(PUPPET, scene.url()) as one:
            one.acquire("y", "y")
            line = one.wait("failed y", limit_s=LIMIT_S)
            assert "do not agree" in " ".join(line.words), line
        with Puppet(PUPPET, scene.url().replace(SERVICE, "nobody")) as one:
            one.acquire("y", "y")
            line = one.wait("failed y", limit_s=LIMIT_S)
            assert "know no master" in " ".join(line.words), line


@test
def a_sentinel_that_hangs_costs_nothing():
    with Sentinels() as scene:
        scene.sentinels[0].stop()
        with Puppet(PUPPET, scene.url()) as one:
            one.hold("x", "x")


@test
def servers_and_sentinels_have_passwords_of_their_own():
    password = "of-the-servers"
    with Sentinels(server_password=password, sentinel_password="of-the-sentinels") as scene:
        options = "?sentinel_password_env=HOLDFAST_TEST_PASSWORD"
        with Puppet(PUPPET, scene.url(options, password=password),
                    env={"HOLDFAST_TEST_PASSWORD": "of-the-sentinels"}) as one:
            one.hold("x", "x")
            equal(one.renew("x"), "OK")
        with Puppet(PUPPET, scene.url(password=password)) as one:
            one.acquire("x", "y")
            equal(one.failed("x", LIMIT_S), "DENIED")
        scene.sentinels[0].kill()
        with Puppet(PUPPET, scene.url(password=password)) as one:
            one.acquire("x", "y")
            equal(one.failed("x", LIMIT_S), "UNREACHABLE")  # this may be temporary
        with Puppet(PUPPET, scene.url(options), env={"HOLDFAST_TEST_PASSWORD": "of-the-sentinels"}) as one:
            one.acquire("x", "y")
            equal(one.failed("x", LIMIT_S), "DENIED")


# ---- WAIT ----


@test
def row_11_a_grant_that_too_few_replicas_have_is_released_again():
    with Sentinels() as scene, \
            Puppet(PUPPET, scene.url("?wait_replicas=1&wait_timeout=1900")) as careful, \
            Puppet(PUPPET, scene.url("?wait_replicas=2&wait_timeout=1500")) as too_careful, \
            Puppet(PUPPET, scene.url()) as other:
        for kind in ("exclusive", "shared", "1/2"):
            token = careful.hold("x", kind, kind=kind).token
            equal(careful.inspect(kind)["holders"][0].token, token)
            equal(careful.release("x"), "OK")
            careful.free("x")
            too_careful.acquire("x", kind, kind=kind)
            line = too_careful.wait("failed x", "acquired x", limit_s=LIMIT_S)
            assert line.words[2] == "UNREACHABLE" and "1 of the 2 replicas" in " ".join(line.words), line
            assert other.hold("x", kind, kind=kind).token > token
            equal(other.release("x"), "OK")
            other.free("x")


main()
