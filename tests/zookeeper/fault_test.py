#!/usr/bin/env python3
"""The ZooKeeper store when connections, members or nodes fail: fault_test.py HOLDFAST PUPPET."""
import re
import secrets
import shutil
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet, boot_us
from servers.scene import (KINDS, LONG_MS, PUPPET, SLACK_US, deadline_us, hold_or_too_slow, in_time, is_lost, one_of, outcome,
                           patient, puppets, sleep_until, sockets_of, wait_until)
from servers.suite import equal, main, test
from servers.zookeeper import Nodes, Zookeeper
from servers.zookeeper import patient as slowly

suite.LIMIT_S = 240  # for scenarios that are played again
shared = Zookeeper()  # for tests that leave the server alone


def fresh():
    return f"lock-{secrets.token_hex(8)}"


def claims(lock, server=shared):
    with Nodes(server) as nodes:
        return nodes.claims(lock)


def hold(puppet, lock, **options):
    """Takes the lock, under an id equal to its name; returns the token."""
    return puppet.hold(lock, lock, **options).token


def session_timeout_ms(lock, server=shared):
    """The timeout of the session that the lock's only claim belongs to."""
    session = next(part for part in server.word("dump").split("0x") if f"/{lock}/" in part).split(":")[0]
    return int(re.search(rf"sid=0x{session},.*?to=(\d+)", server.word("cons"))[1])


# ---- Sessions ----


@test
def what_is_asked_first_decides_how_long_a_session_lasts():
    first, later, looked = fresh(), fresh(), fresh()
    with Puppet(PUPPET, slowly(shared.url())) as one:
        hold(one, first, lease_ms=4000)
        hold(one, later, lease_ms=8000)
        equal((session_timeout_ms(first), session_timeout_ms(later)), (10000, 10000))
    with Puppet(PUPPET, slowly(shared.url())) as one:
        one.inspect(looked)
        hold(one, looked, lease_ms=4000)
        equal(session_timeout_ms(looked), 75000)


# ---- Messages ----


@test
@patient
def row_2_a_grant_that_arrives_after_its_lease_is_not_used():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as one, \
            Puppet(PUPPET, slowly(shared.url())) as two:
        hold_or_too_slow(one, "first", fresh(), lease_ms=1000)  # its session is a short one
        two.hold("before", lock)
        equal(two.release("before"), "OK")  # so the lock's node is there
        proxy.hold("down")
        one.acquire(lock, lock, lease_ms=1000, wait_ms=-1)
        wait_until(lambda: claims(lock), "the grant")
        one.stop()
        token = hold(two, lock, wait_ms=-1)  # the server did grant it to the first
        proxy.let_go()
        proxy.wait(lambda: proxy.held["down"] == 0)
        one.cont()
        assert not one.seen("acquired", lock)
        equal(two.renew(lock), "OK")
        equal([party.token for party in two.inspect(lock)["holders"]], [token])


@test(*KINDS)
def row_27_an_acquire_whose_reply_was_lost_finds_its_own_node(kinds):
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far, \
            Puppet(PUPPET, slowly(shared.url())) as near:
        far.inspect("none")  # it is connected
        for wait_ms in (0, -1):
            lock = fresh()
            hold(near, lock)
            equal(near.release(lock), "OK")  # so the lock's node is there
            proxy.refuse()  # so that it is not repeated yet
            dropped = proxy.drop_reply_to("host ")  # what a claim's data begin with
            far.acquire(lock, lock, kind=KINDS[kinds][0], lease_ms=LONG_MS, wait_ms=wait_ms)
            assert dropped.wait(LIMIT_S)
            wait_until(lambda: claims(lock), "the node")
            proxy.accept()
            far.granted(lock)
            equal(far.check(lock), "OK")
            equal(len(claims(lock)), 1)
            near.acquire(wait_ms, lock, kind=KINDS[kinds][1])
            equal(near.failed(wait_ms), "BUSY")
            equal(far.release(lock), "OK")
            equal(claims(lock), [])


@test
def row_27_an_attempt_that_is_given_up_without_an_answer_leaves_nothing():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far:
        hold(far, fresh(), lease_ms=LONG_MS)
        with Puppet(PUPPET, slowly(shared.url())) as near:
            hold(near, lock)
            equal(near.release(lock), "OK")  # so the lock's node is there
        dropped = proxy.drop_reply_to("host ")
        proxy.refuse()
        far.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=500)
        assert dropped.wait(LIMIT_S)
        one_of(outcome(far, lock), ("UNKNOWN", "TIMEOUT", "UNREACHABLE"))
        proxy.accept()
        wait_until(lambda: not claims(lock), "the node's end")


@test
def row_27_a_client_that_is_closed_before_its_claim_is_confirmed_leaves_nothing():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far:
        far.hold("before", lock, lease_ms=LONG_MS)  # so the lock's node is there, and the session is a long one
        equal(far.release("before"), "OK")
        proxy.hold("down")
        far.acquire("lock", lock, lease_ms=LONG_MS, wait_ms=-1)
        wait_until(lambda: claims(lock), "the claim")
        far.close()
        wait_until(lambda: not claims(lock), "the claim's end")


@test
@patient
def row_7_the_deadline_counts_from_the_request_for_the_session():
    lock, delay_us = fresh(), 1500000
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url())) as near, \
            Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far:
        hold(near, lock)
        equal(near.release(lock), "OK")  # so the lock's node is there
        proxy.delay(delay_us // 1000, "down")
        grant = far.hold("first", lock, lease_ms=6000, wait_ms=-1)
        asked_us = grant.at_us - 2 * delay_us  # or earlier: the answers for the session and for the claim were late
        proxy.delay(0, "down")
        far.hold("second", fresh(), lease_ms=LONG_MS, wait_ms=-1)  # it gets what is left of the session
        earliest_us, _ = deadline_us(far, "second")
        assert earliest_us <= asked_us + 6000000 * 5 // 2, (earliest_us, asked_us)


@test
def row_24_a_renewal_that_arrives_with_the_release_does_nothing():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far:
        for direction in ("up", "down"):
            hold(far, lock, lease_ms=LONG_MS)
            proxy.hold(direction)
            far.send("renew", lock, 0)
            proxy.wait(lambda: proxy.held[direction] > 0)
            far.send("release", lock)
            far.wait(f"renewed {lock} RELEASED")
            proxy.let_go()
            equal(far.wait(f"released {lock}").words[2], "OK")
            far.free(lock)
            equal(claims(lock), [])


@test
def row_29_a_release_whose_reply_was_lost_is_done():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far, \
            Puppet(PUPPET, slowly(shared.url())) as near:
        hold(far, lock, lease_ms=LONG_MS)
        dropped = proxy.drop_reply_to(lock)
        far.send("release", lock)
        assert dropped.wait(LIMIT_S)
        one_of(far.wait(f"released {lock}").words[2], ("OK", "UNKNOWN"))
        hold(near, lock)


@test
def row_29_a_release_that_did_not_arrive_is_repeated_until_it_does():
    lock = fresh()
    with Proxy(shared.port) as proxy, \
            Puppet(PUPPET, shared.url(port=proxy.port) + "?timeout=2000&connect_timeout=2000") as far:
        hold(far, lock, lease_ms=30000, wait_ms=-1)
        proxy.blackhole()
        equal(far.release(lock), "UNKNOWN")
        equal(len(claims(lock)), 1)
        proxy.pass_all()
        wait_until(lambda: not claims(lock), "the node's end")  # long before the session's


@test
@patient
def row_19_a_late_release_does_not_touch_the_next_owner():
    lock = fresh()
    with Puppet(PUPPET, slowly(shared.url())) as one, Puppet(PUPPET, slowly(shared.url())) as two:
        one.acquire(lock, lock, lease_ms=2000, flags="no_renew", wait_ms=-1)
        equal(outcome(one, lock), "OK")
        one.lost(lock)
        token = hold(two, lock, wait_ms=-1)
        one_of(one.release(lock), ("LOST", "NOT_YOURS"))
        equal([party.token for party in two.inspect(lock)["holders"]], [token])
        equal(two.renew(lock), "OK")


# ---- Connections and sessions ----


@test
@patient
def row_6_the_lease_allows_for_the_drift_since_the_session_was_last_known_to_be_kept():
    """That was half of its timeout ago, or more. So half of the session is left, and a quarter if clocks may differ by
    a half; the holder counts on half of that."""
    with Puppet(PUPPET, slowly(shared.url()), drift_ppm=500000) as one:
        hold_or_too_slow(one, "first", fresh(), lease_ms=3000)
        session_ms = 3000 * 5 // 2
        time.sleep(session_ms / 2 / 1000)
        grant = hold_or_too_slow(one, "lock", fresh(), lease_ms=3000, wait_ms=-1)
        assert grant.left_ms <= session_ms / 8, grant


@test
@patient
def row_23_a_lost_connection_costs_no_lock():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as far, \
            Puppet(PUPPET, slowly(shared.url())) as near:
        token = hold(far, lock, lease_ms=12000)
        near.acquire(lock, lock, wait_ms=-1)
        wait_until(lambda: len(claims(lock)) == 2, "the waiter")
        before_us, _ = deadline_us(far, lock)
        proxy.refuse()
        proxy.reset()
        time.sleep(2)
        proxy.accept()
        wait_until(lambda: far.left(lock) and deadline_us(far, lock)[0] > before_us + 1000000, "a renewal")
        assert not is_lost(far, lock)
        equal(far.release(lock), "OK")
        assert near.granted(lock).token > token


@test
@patient
def row_28_who_is_cut_off_knows_of_its_loss_before_another_is_granted_the_lock():
    lock = fresh()
    with Proxy(shared.port) as proxy, \
            Puppet(PUPPET, shared.url(port=proxy.port) + "?timeout=1000&connect_timeout=1000") as far, \
            Puppet(PUPPET, slowly(shared.url())) as near:
        token = hold_or_too_slow(far, lock, lock, lease_ms=3000).token
        near.acquire(lock, lock, wait_ms=-1)
        wait_until(lambda: len(claims(lock)) == 2, "the waiter")
        proxy.blackhole()
        far.left(lock)  # what was in flight has arrived
        least_us, most_us = deadline_us(far, lock)
        lost = far.wait(f"lost {lock}")
        assert least_us <= lost.at_us <= most_us + SLACK_US, (least_us, lost, most_us)
        grant = near.granted(lock)
        assert grant.token > token and grant.at_us >= lost.at_us, (grant, lost)
        proxy.pass_all()
        equal(far.release(lock), "LOST")
        equal(near.renew(lock), "OK")


@test
@patient
def row_1_who_was_stopped_past_its_session_finds_itself_lost():
    lock = fresh()
    with Puppet(PUPPET, slowly(shared.url())) as one, Puppet(PUPPET, slowly(shared.url())) as two:
        token = hold_or_too_slow(one, lock, lock, lease_ms=1000).token
        one.stop()
        grant = two.hold(lock, lock, wait_ms=-1)
        assert grant.token > token
        one.cont()
        equal(one.check(lock), "LOST")
        one.lost(lock)
        equal(two.renew(lock), "OK")


@test
def row_22_watches_move_to_the_next_connection():
    lock = fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url())) as near, \
            Puppet(PUPPET, slowly(shared.url(port=proxy.port)), wait_lease_ms=300000) as far:  # it does not ask again
        token = hold(near, lock, lease_ms=LONG_MS)
        far.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=-1)
        wait_until(lambda: len(claims(lock)) == 2, "the waiter")
        accepted = proxy.accepted
        proxy.reset()
        proxy.wait(lambda: proxy.accepted > accepted)
        equal(near.release(lock), "OK")
        assert far.granted(lock).token > token


@test
def row_40_connections_are_closed_on_exec():
    with Puppet(PUPPET, slowly(shared.url())) as one:
        hold(one, fresh())
        sockets = sockets_of(one.pid)
        assert sockets and all(sockets.values()), sockets


@test
def row_15_a_refusal_is_not_a_loss():
    lock = fresh()
    url = slowly(shared.url(login="somebody:secret@", path=f"/{fresh()}"))
    with Puppet(PUPPET, url) as one, Puppet(PUPPET, url.replace("somebody", "another")) as other:
        hold(one, lock, lease_ms=LONG_MS)
        other.acquire(lock, lock)
        equal(other.failed(lock), "DENIED")
        equal(one.renew(lock), "OK")
        equal(one.release(lock), "OK")


@test
def row_15_who_may_not_read_the_token_base_leaves_no_claim():
    lock, path = fresh(), f"/{fresh()}"
    with Puppet(PUPPET, slowly(shared.url(path=path))) as anybody, Nodes(shared, f"{path}/holdfast/locks") as nodes, \
            Puppet(PUPPET, slowly(shared.url(login="somebody:secret@", path=path)), token_floor=1 << 40) as owner:
        hold(anybody, fresh())  # it creates the nodes above, for all
        hold(owner, fresh())  # it creates the token base, for itself
        for wait_ms in (0, -1):
            anybody.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=wait_ms)
            equal(anybody.failed(lock), "DENIED")
            wait_until(lambda: not nodes.claims(lock), "the claim's end")


@test
@patient
def row_15_a_full_disk_ends_the_server_and_grants_nothing_twice():
    with Zookeeper() as server, Puppet(PUPPET, server.url() + "?timeout=1000&connect_timeout=1000") as one, \
            Puppet(PUPPET, slowly(server.url())) as two:
        token = hold_or_too_slow(one, "lock", "lock", lease_ms=2000).token
        two.inspect("lock")  # it has reached the server, so it waits for it
        server.fill()
        two.acquire("lock", "lock", wait_ms=3 * LIMIT_S * 1000)  # it was never answered, so it would not wait forever
        lost = one.wait("lost lock")
        wait_until(lambda: not server.running(), "the server's end")
        server.start()  # with room again
        grant = two.granted("lock", limit_s=2 * LIMIT_S)
        assert grant.token > token and grant.at_us >= lost.at_us, (grant, lost)


# ---- Queues ----


def wake_ups(server):
    """How many notices of deleted nodes the server has sent, and how many watches still wait for theirs."""
    values = dict(line.split("\t") for line in server.word("mntr").splitlines())
    return int(float(values["zk_sum_node_deleted_watch_count"])), int(values["zk_watch_count"])


@test
def each_hand_off_wakes_one_of_two_hundred_waiters():
    each = 10
    with Zookeeper() as server, puppets(20, slowly(server.url())) as waiting, \
            Puppet(PUPPET, slowly(server.url())) as first, Nodes(server) as nodes:
        hold(first, "lock", lease_ms=LONG_MS)
        for number, puppet in enumerate(waiting, 1):
            for lock in range(each):
                puppet.acquire(lock, "lock", lease_ms=LONG_MS, wait_ms=-1)
            wait_until(lambda: len(nodes.claims("lock")) == 1 + number * each, "the waiters")
        wait_until(lambda: wake_ups(server)[1] == 200, "their watches")
        equal(wake_ups(server)[0], 0)
        holder, held = first, "lock"
        for puppet in waiting:
            for lock in range(each):
                equal(holder.release(held), "OK")
                puppet.granted(str(lock))
                holder, held = puppet, lock
        equal(wake_ups(server), (200, 0))


# ---- Nodes ----


@test(*KINDS)
def row_13_a_deleted_node_is_reported_and_not_made_again(kinds):
    lock = fresh()
    with Puppet(PUPPET, slowly(shared.url())) as one, Nodes(shared) as nodes:
        hold(one, lock, kind=KINDS[kinds][0], lease_ms=6000)
        equal(one.renew(lock), "OK")  # from now on its node is watched
        assert nodes.delete(lock, nodes.claims(lock)[0])
        one.lost(lock)
        equal(one.check(lock), "LOST")
        equal(nodes.claims(lock), [])


@test
@patient
def row_13_a_node_deleted_during_a_renewal_costs_no_other_hold():
    """One request renews both holds. The notice that the first node is gone overtakes the answer, which says the
    same."""
    deleted, kept = fresh(), fresh()
    with Proxy(shared.port) as proxy, Puppet(PUPPET, slowly(shared.url(port=proxy.port))) as one, Nodes(shared) as nodes:
        hold(one, fresh(), lease_ms=LONG_MS)  # so that its session is a long one
        for lock in (deleted, kept):
            hold(one, lock, lease_ms=9000)
            equal(one.renew(lock), "OK")  # from now on its node is watched
        one.inspect("none")  # the watches are set
        until_us, _ = deadline_us(one, kept)
        one.stop()
        sleep_until(until_us - 5900000)  # both are due
        proxy.hold("up")
        one.cont()
        proxy.wait(lambda: proxy.held["up"] > len(deleted + kept))
        assert nodes.delete(deleted, nodes.claims(deleted)[0])
        one.lost(deleted)
        proxy.let_go()
        outcome = one.renew(kept)
        in_time(until_us)
        equal(outcome, "OK")
        assert not is_lost(one, kept)
        equal(one.release(kept), "OK")
        equal(nodes.claims(kept), [])


@test
def row_13_who_waits_and_finds_its_node_deleted_queues_up_again():
    lock = fresh()
    with puppets(2, slowly(shared.url())) as (one, two), Nodes(shared) as nodes:
        token = hold(one, lock, lease_ms=LONG_MS)
        two.acquire(lock, lock, wait_ms=-1)
        wait_until(lambda: len(nodes.claims(lock)) == 2, "the waiter")
        assert nodes.delete(lock, nodes.claims(lock)[1])
        equal(one.release(lock), "OK")
        assert two.granted(lock).token > token


@test
def row_30_tokens_rise_although_the_locks_node_was_deleted():
    lock = fresh()
    with Puppet(PUPPET, slowly(shared.url())) as one, Nodes(shared) as nodes:
        token = hold(one, lock)
        equal(one.release(lock), "OK")
        assert nodes.delete(lock)
        assert one.hold("again", lock).token > token
        assert nodes.claims(lock)[0].endswith("-0000000000")  # the numbers started again


@test
def row_16_a_raised_base_does_not_change_the_token_of_a_hold():
    path = f"/{fresh()}"
    with puppets(2, slowly(shared.url(path=path))) as (one, two):
        token = hold(one, "before")
        hold(one, "during")
        two.acquire("during", "during", wait_ms=-1)
        with Puppet(PUPPET, slowly(shared.url(path=path)), token_floor=token + 1000) as raising:
            hold(raising, "other")
        equal(one.release("during"), "OK")
        tokens = {"before": token, "during": two.granted("during").token, "after": hold(two, "after")}
        assert token < tokens["during"] < tokens["after"] and tokens["after"] > token + 1000, tokens
        for lock, token in tokens.items():
            found = two.inspect(lock)
            equal((found["token"], [party.token for party in found["holders"]]), (token, [token]))
            equal(two.break_lock(lock, token), "OK")


@test
def row_16_a_restored_copy_does_not_turn_tokens_back_below_a_floor():
    with Zookeeper() as server:
        with Puppet(PUPPET, slowly(server.url())) as one:
            hold(one, "lock")
            equal(one.release("lock"), "OK")
        server.kill()
        copy = server.folder / "copy"
        shutil.copytree(server.folder / "data", copy)
        server.restart()
        with Puppet(PUPPET, slowly(server.url())) as one:
            token = hold(one, "lock")
            equal(one.release("lock"), "OK")
        server.kill()
        shutil.rmtree(server.folder / "data")
        copy.rename(server.folder / "data")
        server.restart()
        with Puppet(PUPPET, slowly(server.url()), token_floor=token + 1000) as one, \
                Puppet(PUPPET, slowly(server.url())) as two:
            raised = hold(one, "lock")
            assert raised >= token + 1000, (raised, token)
            equal(one.release("lock"), "OK")
            assert hold(two, "lock") > raised  # without its own floor


if __name__ == "__main__":
    with shared:
        main()
