#!/usr/bin/env python3
"""The ZooKeeper store when members of an ensemble fail or are cut off: ensemble_test.py HOLDFAST PUPPET."""
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import (KINDS, LONG_MS, PUPPET, TooSlow, deadline_us, hold_or_too_slow, is_lost, patient, puppets,
                           wait_until)
from servers.suite import equal, main, test
from servers.zookeeper import Ensemble, Nodes
from servers.zookeeper import patient as slowly

suite.LIMIT_S = 240  # twelve servers at once may start slowly
QUICKLY = "?timeout=1000&connect_timeout=1000"


def proposals(leader):
    """How many proposals it has made."""
    return next(line for line in leader.word("mntr").splitlines() if line.startswith("zk_proposal_count\t"))


def claims(server, lock):
    with Nodes(server) as nodes:
        return nodes.claims(lock)


@test
@patient
def row_47_a_member_that_is_cut_off_with_its_client_does_not_keep_the_lock():
    """The member answers pings for another twenty ticks, but the leader ends the session after five seconds."""
    with Ensemble(sync_limit=20, separable=True) as ensemble:
        cut, leader = ensemble.followers()[0], ensemble.leader()
        with Puppet(PUPPET, cut.url() + QUICKLY) as far, Puppet(PUPPET, slowly(leader.url())) as near:
            token = hold_or_too_slow(far, "lock", "lock", lease_ms=2000).token
            near.acquire("lock", "lock", wait_ms=-1)
            wait_until(lambda: len(claims(leader, "lock")) == 2, "the waiter")
            time.sleep(3)  # so that only renewals keep the hold alive
            deadline_us(far, "lock")  # it is still held
            ensemble.cut(cut)
            lost = far.wait("lost lock")
            grant = near.granted("lock")
            assert grant.token > token and grant.at_us >= lost.at_us, (grant, lost)
            equal(near.renew("lock"), "OK")
            ensemble.heal()
            equal(far.release("lock"), "LOST")


@test("crash", "stop", "fill")
@patient
def row_23_holds_and_places_outlive_the_leader(fault):
    with Ensemble() as ensemble, puppets(2, ensemble.url() + "?timeout=3000&connect_timeout=3000") as (one, two):
        tokens = {lock: one.hold(lock, lock, kind=KINDS[lock][0], lease_ms=LONG_MS).token for lock in KINDS}
        for lock, (_, kind) in KINDS.items():
            two.acquire(lock, lock, kind=kind, wait_ms=-1)
            wait_until(lambda: len(claims(ensemble.members[0], lock)) == 2, "the waiter")
        leader = ensemble.leader()
        getattr(leader, fault)()
        others = [member for member in ensemble.members if member is not leader]
        # A renewal is a write: at the next one, a leader whose disk is full exits, or follows another.
        wait_until(lambda: one.renew("exclusive") in ("OK", "LOST") and any(other.mode() == "leader" for other in others),
                   "a renewal, and another leader", 3 * LIMIT_S)
        for lock, token in tokens.items():
            if is_lost(one, lock):
                raise TooSlow(f"{lock} is lost: the election took longer than a lease")
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@test
@patient
def row_47_a_member_that_lags_shows_no_claim_too_few():
    """A follower learns of everything a while after the leader has granted it."""
    with Ensemble(separable=True) as ensemble:
        behind, leader = ensemble.followers()[0], ensemble.leader()
        with Puppet(PUPPET, slowly(behind.url())) as far, Puppet(PUPPET, slowly(leader.url())) as near, \
                Nodes(behind) as nodes:
            ensemble.lag(400)
            token, was_behind = 0, False
            for turn, (one, two) in enumerate([(near, far), (far, near)] * 2):
                grant = one.hold(turn, "lock", lease_ms=LONG_MS, wait_ms=-1)
                was_behind |= not nodes.claims("lock")
                assert grant.token > token, (grant, token)
                token = grant.token
                two.acquire(f"try{turn}", "lock")
                equal(two.failed(f"try{turn}"), "BUSY")
                equal(one.release(turn), "OK")
            if not was_behind:
                raise TooSlow("by the time that it was asked, the member had caught up")


@test
@patient
def a_member_that_lags_calls_no_lock_busy_that_was_released_and_finds_every_hold():
    with Ensemble(separable=True) as ensemble:
        behind, leader = ensemble.followers()[0], ensemble.leader()
        with Puppet(PUPPET, slowly(behind.url())) as far, Puppet(PUPPET, slowly(leader.url())) as near, \
                Nodes(behind) as nodes:
            near.hold("first", "lock", lease_ms=LONG_MS)
            far.inspect("lock")  # it is connected
            wait_until(lambda: nodes.claims("lock"), "the claim")
            ensemble.lag(1000)
            equal(near.release("first"), "OK")
            is_behind = nodes.claims("lock")
            far.acquire("second", "lock", lease_ms=LONG_MS)
            far.granted("second")
            equal(far.release("second"), "OK")
            token = near.hold("third", "lock", lease_ms=LONG_MS, wait_ms=-1).token
            is_behind = is_behind and not nodes.claims("lock")
            equal([party.token for party in far.inspect("lock")["holders"]], [token])
            token = near.hold("fourth", "other", lease_ms=LONG_MS).token
            equal(far.break_lock("other", token), "OK")
            if not is_behind:
                raise TooSlow("by the time that it was asked, the member had caught up")


@test
@patient
def row_27_a_node_that_the_leader_is_still_deciding_on_is_not_created_again():
    with Ensemble(config=["forward_learner_requests_to_commit_processor_disabled=true"], separable=True) as ensemble:
        follower, leader = ensemble.followers()[0], ensemble.leader()
        with Proxy(follower.port) as first, Proxy(leader.port) as second, Nodes(leader) as nodes:
            second.refuse()
            url = slowly(f"zookeeper://127.0.0.1:{first.port},127.0.0.1:{second.port}")
            with Puppet(PUPPET, url) as client:
                client.hold("before", "lock", lease_ms=LONG_MS)
                equal(client.release("before"), "OK")  # so the lock's node exists
                ensemble.lag(1000)  # a decision takes this long
                before = proposals(leader)
                client.acquire("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
                wait_until(lambda: proposals(leader) != before, "the node's proposal")
                second.accept()
                first.refuse()
                first.reset()
                second.wait(lambda: second.bytes["down"] > 0)
                time.sleep(0.1)  # it has looked for its node
                if nodes.claims("lock"):
                    raise TooSlow("the leader has decided")
                client.granted("lock")
                equal(len(nodes.claims("lock")), 1)
                equal(client.release("lock"), "OK")
                equal(nodes.claims("lock"), [])


@test
@patient
def row_8_all_members_crash_and_the_lock_is_granted_once_they_are_back():
    with Ensemble() as ensemble, puppets(2, ensemble.url() + QUICKLY) as (one, two):
        token = hold_or_too_slow(one, "lock", "lock", lease_ms=2000).token
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: len(claims(ensemble.members[0], "lock")) == 2, "the waiter")
        for member in ensemble.members:
            member.crash()
        lost = one.wait("lost lock")
        for member in ensemble.members:
            member.start()
        ensemble.wait_ready()
        grant = two.granted("lock")
        assert grant.token > token and grant.at_us >= lost.at_us, (grant, lost)


os.environ["HOLDFAST_TEST_JOBS"] = "1"  # each has three servers, whose elections take long on a busy machine
main()
