#!/usr/bin/env python3
"""The referee: histories in, verdicts out. Each history with a flaw is paired with one that differs only in what
matters."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS.parent), str(TESTS), str(TESTS / "lab")]
from histories import history
from lab.referee import OVERTAKEN
from servers.suite import equal, main, test

ONE_BY_ONE = [(0, "A", "asked"), (0.1, "A", "locked 1"), (0.2, "A", "write 1"), (0.3, "A", "unlocking"),
              (0.3, "B", "asked"), (0.4, "B", "locked 2"), (0.5, "B", "write 2"), (0.6, "B", "unlocking")]


def judged(steps, **options):
    """The verdict, and the kinds of violations."""
    actors = sorted({who for _, who, _ in steps})
    found = history("a-protocol", "a-scenario", actors, sorted(steps), **options)
    return found["verdict"], [violation["kind"] for violation in found["violations"]]


@test
def one_after_the_other_holds():
    equal(judged(ONE_BY_ONE, has_token=True), ("holds", []))
    equal(judged(ONE_BY_ONE), ("holds", []))


@test
def two_at_once_break_a_lock_without_tokens():
    steps = [(0, "A", "asked"), (0.1, "A", "locked"), (0.2, "B", "asked"), (0.3, "B", "locked"), (0.5, "A", "unlocking")]
    equal(judged(steps), ("breaks", ["two at once"]))
    equal(judged([*steps[:-1], (0.25, "A", "unlocking")]), ("holds", []))


@test
def two_at_once_are_fenced_if_no_stale_write_was_accepted():
    steps = [(0.1, "A", "locked 1"), (0.3, "B", "locked 2"), (0.4, "B", "write 2"), (0.6, "A", "unlocking")]
    equal(judged(steps, has_token=True), ("fenced", ["two at once"]))
    equal(judged([*steps, (0.5, "A", "write 1 refused")], has_token=True),
          ("fenced", ["two at once", "stale write refused"]))


@test
def a_stale_write_that_was_accepted_breaks_any_lock():
    steps = [(0.1, "A", "locked 1"), (0.3, "B", "locked 2"), (0.4, "A", "write 1"), (0.6, "A", "unlocking")]
    equal(judged(steps, has_token=True), ("breaks", ["two at once", "stale write"]))


@test
def a_write_is_stale_also_when_the_next_holder_has_gone():
    steps = [(0.1, "A", "locked"), (0.2, "A", "lost"), (0.3, "B", "locked"), (0.4, "B", "unlocking"), (0.5, "A", "write")]
    equal(judged(steps), ("breaks", ["stale write"]))
    equal(judged([*steps[:-1], (0.25, "A", "write")]), ("holds", []))


@test
def a_token_that_does_not_rise_breaks_the_lock():
    steps = [(0.1, "A", "locked 5"), (0.2, "A", "write 5"), (0.3, "A", "unlocking"), (0.4, "B", "locked 4"),
             (0.5, "B", "write 4 refused")]
    equal(judged(steps, has_token=True), ("breaks", ["holder refused"]))


@test("died", "lost", "unlocking")
def one_that_is_no_longer_inside_may_be_followed(by):
    steps = [(0.1, "A", "locked"), (0.2, "A", by), (0.3, "B", "locked"), (0.4, "B", "unlocking")]
    equal(judged(steps), ("holds", []))


@test
def one_that_is_stopped_is_still_inside():
    steps = [(0.1, "A", "locked"), (0.2, "A", "stopped"), (0.3, "B", "locked"), (0.4, "B", "unlocking"),
             (0.5, "A", "continued")]
    equal(judged(steps), ("breaks", ["two at once"]))


@test
def one_that_waits_while_nobody_is_inside_is_stalled():
    steps = [(0.1, "A", "locked"), (0.2, "A", "died"), (0.2, "B", "asked"), (6, "B", "waiting")]
    equal(judged(steps), ("stalls", ["never freed"]))
    equal(judged([*steps[:-1], (2, "B", "waiting")]), ("holds", []))  # its lease may just have ended


@test
def one_that_waits_for_a_holder_is_not_stalled():
    steps = [(0.1, "A", "locked"), (0.2, "B", "asked"), (6, "B", "waiting"), (6.1, "A", "unlocking")]
    equal(judged(steps), ("holds", []))


def overtaken(others):
    """B waits while each of these gets the lock, asking for it after B."""
    steps = [(0, "B", "asked")]
    for number, who in enumerate(others, 1):
        steps += [(number, who, "asked"), (number + 0.1, who, "locked"), (number + 0.2, who, "unlocking")]
    return [*steps, (100, "B", "locked"), (101, "B", "unlocking")]


@test
def one_that_another_overtakes_again_and_again_is_starved():
    equal(judged(overtaken("A" * OVERTAKEN)), ("stalls", ["starved"]))
    equal(judged(overtaken("A" * (OVERTAKEN - 1))), ("holds", []))


@test
def one_that_many_overtake_once_is_not_starved():
    equal(judged(overtaken("CDEFGHIJKLMN")), ("holds", []))


@test
def those_who_asked_before_overtake_nobody():
    steps = [(0, "A", "asked"), *((number + part, "A", what) for number in range(1, 9) for part, what in (
        (0.1, "locked"), (0.2, "unlocking"), (0.3, "asked")))]
    equal(judged([*steps, (9, "B", "asked"), (9.1, "A", "locked"), (9.2, "A", "unlocking"), (9.3, "B", "locked")]),
          ("holds", []))


@test
def hand_offs_that_cost_requests_of_most_waiters_are_a_herd():
    steps = [(number / 1000, f"C{number}", "asked") for number in range(100)] + [(1, "C0", "locked"), (2, "C0", "unlocking")]
    equal(judged(steps, requests=60.0), ("stalls", ["herd"]))
    equal(judged(steps, requests=6.0), ("holds", []))
    equal(judged(steps, requests=None), ("holds", []))


@test
def what_breaks_is_worse_than_what_stalls():
    steps = [(0.1, "A", "locked"), (0.3, "B", "locked"), (0.4, "A", "died"), (0.4, "B", "died"), (0.4, "C", "asked"),
             (6, "C", "waiting")]
    equal(judged(steps), ("breaks", ["two at once", "never freed"]))


@test
def a_history_without_a_holder_shows_nothing():
    equal(judged([(0, "A", "asked"), (1, "A", "unlocking")])[0], "error")


main()
