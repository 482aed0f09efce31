"""holdfast limit: what a limiter promises, on the embedded store, and how the command reports it."""
import json
import signal

from harness import contains, environment, equal, main, run, start, test
from servers import limits


def url():
    return environment()["HOLDFAST_URL"]


@test
def a_crowd_never_gets_more_through_than_the_rate():
    limits.a_crowd_never_gets_more_through_than_the_rate(url())


@test
def a_fixed_window_lets_more_through_around_its_end():
    limits.a_fixed_window_lets_more_through_around_its_end(url())


@test
def a_fixed_window_is_waited_for_by_the_command():
    """A slow machine gets a longer window, so that the third comes before its end."""
    for window in ("1s", "4s", "16s"):
        words = ("limit", window, "--fixed", "--rate", f"1/{window}")
        equal(run(*words)[0], 0)
        equal(run(*words)[0], 0)
        code, _, err = run(*words, "-n")
        if code:
            break
    equal(code, 75)
    contains(err, f"{window}: 1 in {window} have been let through; try again in ")


@test
def who_waits_is_let_through_in_order():
    limits.who_waits_is_let_through_in_order(url())


@test
def a_dead_waiter_does_not_block_the_others():
    limits.a_dead_waiter_does_not_block_the_others(url())


@test
def who_was_let_through_and_is_killed_gives_nothing_back():
    limits.who_was_let_through_and_is_killed_gives_nothing_back(url())


@test
def a_command_runs_when_it_is_let_through_and_its_exit_code_is_passed_on():
    equal(run("limit", "x", "--rate", "1/1h", "--", "sh", "-c", "echo ran; exit 7"), (7, "ran\n", ""))
    code, out, err = run("limit", "--rate=1/1h", "-n", "x", "echo", "ran")
    equal((code, out), (75, ""))
    contains(err, "x: 1 in 1h00m have been let through; try again in ")
    equal(run("limit", "x", "--rate", "1/1h", "-n", "-E", "3", "-q"), (3, "", ""))
    equal(run("limit", "x", "--rate", "1/1h", "-n", "-E", "0", "-q", "echo", "ran"), (0, "", ""))
    equal(run("limit", "y", "--rate", "1/1h", "nowhere/to/be/found")[0], 127)


@test
def how_long_to_wait_is_reported_to_programs():
    equal(json.loads(run("--json", "limit", "x", "--rate", "2/1h")[1]), {"name": "x", "passed": True, "wait_ms": 0})
    equal(run("limit", "x", "--rate", "2/1h")[0], 0)
    code, out, _ = run("--json", "limit", "x", "--rate", "2/1h", "-w", "3s")
    equal(code, 75)
    told = json.loads(out)
    equal(told["passed"], False)
    assert 3000000 < told["wait_ms"] <= 3600001, told


@test
def a_rate_that_makes_no_sense_is_refused():
    for rate in ("", "20", "/60s", "0/60s", "20/", "20/60x", "-1/60s", "20/0s", "5000000000/1s", "2/1s/3"):
        code, _, err = run("limit", "x", f"--rate={rate}")
        equal(code, 64)
        contains(err, f"--rate cannot be '{rate}'")
    contains(run("limit", "x", "--rate", "10001/1s")[2], "need --fixed")
    contains(run("limit", "x")[2], "missing --rate")
    contains(run("limit", "--rate", "1/1s")[2], "missing name")
    equal(run("limit", "x", "--rate", "1/1s", "-n", "-w", "1s")[0], 64)


@test
def another_rate_and_another_kind_of_use_are_refused_while_the_first_is_in_use():
    equal(run("limit", "x", "--rate", "1/1h")[0], 0)
    code, _, err = run("limit", "x", "--rate", "2/1h")
    equal(code, 78)
    contains(err, "it is permits out of 1")


@test
def a_window_may_be_longer_than_the_longest_lease():
    equal(run("limit", "x", "--rate", "1/24h")[0], 0)
    contains(run("limit", "x", "--rate", "1/24h", "-n")[2], "try again in ")
    contains(run("limit", "x", "--rate", "1/25h")[2], "a window is 10ms to 24h")
    equal(run("run", "y", "true")[0], 0)


@test
def a_wait_that_is_interrupted_leaves_the_queue():
    equal(run("limit", "x", "--rate", "1/1h")[0], 0)
    child = start("limit", "x", "--rate", "1/1h")
    limits.await_waiting(url(), "x", 1)
    child.send_signal(signal.SIGINT)
    equal(child.wait(), -signal.SIGINT)
    equal(limits.waiting(url(), "x"), 0)


@test
def a_store_that_keeps_no_permits_says_so():
    code, _, err = run("--url", "etcd://127.0.0.1:1", "limit", "x", "--rate", "1/1s")
    equal(code, 78)
    contains(err, "a lock cannot outlast its client")


main()
