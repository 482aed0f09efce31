#!/usr/bin/env python3
"""The quorum store when nodes refuse or hang: quorum_refusal_test.py HOLDFAST PUPPET."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
from faults.nodes import (KINDS, MAJORITY, MINORITY, TIMEOUT_MS, hold_all, names_all, new_set, nodes, nothing_left,
                          refuse_all)
from faults.scene import LONG_MS, is_lost, one_of, puppets, wait_until
from faults.troubles import CONFIG, TROUBLES
from servers.puppet import boot_us
from servers.suite import equal, main, test

PASSING = {"LOADING", "PAUSE WRITE", "PAUSE ALL"}  # they end on their own, maybe too early


@contextlib.contextmanager
def trouble_on(servers, trouble):
    with contextlib.ExitStack() as stack:
        yield set().union(*(stack.enter_context(TROUBLES[trouble](server)) for server in servers))


@test(*TROUBLES)
def row_15_trouble_on_a_minority_changes_nothing(trouble):
    with nodes(config=CONFIG) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        with trouble_on(servers[:MINORITY], trouble):
            for name in KINDS:
                equal(one.renew(name), "OK")
            for name, (kind, _) in KINDS.items():
                two.hold(f"new-{name}", f"new-{name}", kind=kind, lease_ms=LONG_MS)
                equal(two.release(f"new-{name}"), "OK")
            refuse_all(two)
            for name in KINDS:
                equal(one.check(name), "OK")
                equal(one.release(name), "OK")
        for name in KINDS:
            for each in (name, f"new-{name}"):
                wait_until(lambda: nothing_left(servers, each), "nothing left")
        for puppet in (one, two):
            puppet.quit()


@test(*TROUBLES)
def row_15_trouble_on_a_majority_is_reported_in_time_and_loses_nothing(trouble):
    with nodes(config=CONFIG) as servers, puppets(2, new_set(servers)) as (one, two):
        hold_all(one, servers)
        with trouble_on(servers[:MAJORITY], trouble) as errors:
            began_us = boot_us()
            told = errors | ({"OK"} if trouble in PASSING else set())
            for name, wait_ms in (("new", 0), ("waited-for", 1000)):
                two.acquire(name, name, lease_ms=LONG_MS, wait_ms=wait_ms)
            for name in KINDS:
                one.send("renew", name, 0)
            for name in ("new", "waited-for"):
                line = two.wait(("acquired", name), ("failed", name)).words
                one_of("OK" if line[0] == "acquired" else line[2], told)
                if line[0] == "acquired":
                    equal(two.release(name), "OK")
                elif name == "new":  # (a client that stops waiting for an answer has none to report)
                    names_all(" ".join(line), servers[:MAJORITY])
            renewed = {"OK"} if trouble == "OOM" else told | {"UNKNOWN"}  # there is always room to keep a hold
            for name in KINDS:
                line = one.wait(("renewed", name)).words
                one_of(line[2], renewed)
                if line[2] != "OK":
                    names_all(" ".join(line), servers[:MAJORITY])
                equal(is_lost(one, name), False)
            assert boot_us() - began_us < 2 * TIMEOUT_MS * 1000
        for name in KINDS:
            equal(one.renew(name), "OK")
        refuse_all(two)
        for name in KINDS:
            equal(one.release(name), "OK")
        for name in ("new", "waited-for", *KINDS):
            wait_until(lambda: nothing_left(servers, name), "nothing left")
        for puppet in (one, two):
            puppet.quit()


main()
