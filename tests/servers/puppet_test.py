#!/usr/bin/env python3
"""The puppet obeys its commands, on stores that need no server."""
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.puppet import Puppet, boot_us
from servers.suite import equal, main, test

PROGRAM = sys.argv[1]
folder = tempfile.TemporaryDirectory(prefix="holdfast-puppet-")
SQLITE = f"sqlite:{folder.name}/locks.db"
URLS = {"memory": "memory:", "sqlite": SQLITE}


@test("memory", "sqlite")
def one_process_holds_checks_renews_and_releases(store):
    with Puppet(PROGRAM, URLS[store]) as puppet:
        grant = puppet.hold("a", "hold", lease_ms=5000)
        assert grant.token > 0 and 0 < grant.left_ms <= 5000, grant
        assert abs(boot_us() - grant.at_us) < 30e6, grant
        equal(puppet.check("a", 1), "OK")
        equal(puppet.check("a", 50000), "SHORT")
        equal(puppet.renew("a", 20000), "OK")
        assert puppet.left("a") > 5000
        equal(puppet.fd_is_readable("a"), False)
        equal(puppet.release("a"), "OK")
        equal(puppet.check("a"), "RELEASED")
        puppet.free("a")
        puppet.quit()


@test("memory", "sqlite")
def a_lock_that_somebody_has_is_busy_until_it_is_freed(store):
    with Puppet(PROGRAM, URLS[store]) as puppet:
        token = puppet.hold("a", "busy").token
        puppet.acquire("b", "busy")
        equal(puppet.failed("b"), "BUSY")
        puppet.acquire("b", "busy", wait_ms=-1)
        puppet.free("a")
        assert puppet.granted("b").token > token
        puppet.quit()


@test("memory", "sqlite")
def several_names_are_taken_at_once(store):
    with Puppet(PROGRAM, URLS[store]) as puppet:
        token = puppet.hold("a", "second").token
        puppet.acquire("all", "third,second,first", kind="all", wait_ms=-1)
        equal(puppet.release("a"), "OK")
        tokens = puppet.wait("acquired all").words[2].split(",")
        equal(len(tokens), 3)
        assert int(tokens[1]) > token, (tokens, token)
        puppet.acquire("b", "first")
        equal(puppet.failed("b"), "BUSY")
        equal(puppet.release("all"), "OK")
        puppet.hold("b", "first")
        puppet.quit()


@test("memory", "sqlite")
def a_wait_is_cancelled_or_ended_by_close(store):
    with Puppet(PROGRAM, URLS[store]) as puppet:
        puppet.hold("a", "wait")
        puppet.acquire("b", "wait", wait_ms=-1)
        puppet.cancel("b")
        equal(puppet.failed("b"), "CANCELLED")
        puppet.acquire("c", "wait", wait_ms=-1)
        puppet.acquire("d", "wait", wait_ms=-1)
        puppet.free("d")
        puppet.close()
        equal(puppet.failed("c"), "CLOSED")
        equal(puppet.check("a"), "CLOSED")
        assert not puppet.seen("acquired", "d") and not puppet.seen("failed", "d"), puppet.lines
        puppet.quit()


@test("memory", "sqlite")
def a_broken_lock_is_reported_as_lost_and_shown(store):
    with Puppet(PROGRAM, URLS[store]) as puppet:
        token = puppet.hold("a", "broken").token
        puppet.acquire("b", "broken", wait_ms=-1)
        found = puppet.inspect("broken")
        equal([(party.token, party.pid) for party in found["holders"]], [(token, puppet.pid)])
        equal([party.token for party in found["waiters"]], [0])
        puppet.cancel("b")
        puppet.failed("b")
        started_us = boot_us()
        equal(puppet.break_lock("broken", token, "it hung for hours"), "OK")
        assert puppet.renew("a") == "LOST"
        assert started_us < puppet.lost("a") <= boot_us()
        equal(puppet.fd_is_readable("a"), True)
        found = puppet.inspect("broken")
        equal((found["holders"], found["broken"], found["reason"]), ([], token, "it hung for hours"))
        equal(puppet.break_lock("broken", token), "NOT_YOURS")
        puppet.quit()


@test("memory", "sqlite")
def kinds_flags_and_options_arrive(store):
    with Puppet(PROGRAM, URLS[store], max_lease_ms=40000, token_floor=4000000000000000) as puppet:
        assert puppet.hold("a", "kinds", kind="2/3").token >= 4000000000000000
        puppet.acquire("b", "kinds", kind="2/3")
        equal(puppet.failed("b"), "BUSY")
        puppet.hold("b", "kinds", kind="1/3")
        equal(puppet.inspect("kinds")["capacity"], 3)
        puppet.acquire("c", "kinds", kind="shared")
        equal(puppet.failed("c"), "WRONG_KIND")
        puppet.acquire("c", "kinds", lease_ms=50000)
        equal(puppet.failed("c"), "BAD_LEASE")
        puppet.acquire("c", "other", lease_ms=1000, min_left_ms=1000)
        equal(puppet.failed("c"), "SHORT")
        puppet.hold("c", "other", flags="reentrant")
        puppet.hold("d", "other", flags="barge,reentrant")
        puppet.hold("e", "short", lease_ms=2000, flags="no_renew")
        puppet.lost("e")  # nobody renewed it
        equal(puppet.inspect("unheard-of"), None)
        puppet.quit()


@test
def who_is_stopped_loses_its_lock_and_is_notified():
    with Puppet(PROGRAM, SQLITE) as one, Puppet(PROGRAM, SQLITE) as two:
        token = one.hold("a", "stopped", lease_ms=1000).token
        one.stop()
        two.acquire("b", "stopped", wait_ms=-1)
        grant = two.granted("b")
        assert grant.token > token
        one.cont()
        assert one.lost("a") > grant.at_us
        equal(one.check("a"), "LOST")
        one.quit()
        two.quit()


@test
def who_is_killed_holds_nothing():
    with Puppet(PROGRAM, SQLITE) as one, Puppet(PROGRAM, SQLITE) as two:
        one.hold("a", "killed", lease_ms=2000)
        two.acquire("b", "killed", wait_ms=-1)
        one.kill()
        two.granted("b")
        assert not one.running()


@test
def a_puppet_reports_a_store_that_cannot_be_opened():
    with Puppet(PROGRAM) as puppet:
        puppet.send("open", "nonsense:")
        equal(puppet.wait("failed open").words[2], "NO_STORE")
        puppet.quit()


@test
def a_puppet_ends_at_an_order_that_it_does_not_know():
    with Puppet(PROGRAM) as puppet:
        puppet.child.stdin.write(b"dance\n")
        try:
            puppet.wait("danced")
        except AssertionError as error:
            assert "ended with 2" in str(error), error
        else:
            raise AssertionError("it went on")


main()
