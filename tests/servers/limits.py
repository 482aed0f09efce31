"""The rate limiter on any store, as processes use it: each caller is a separate `holdfast limit`.

The tests check times. A store that pushes reports when a caller got its permit, by the store's clock (`holdfast
watch`). A caller only knows between which times that was, so `excess` finds only what is certain: more callers than the
rate whose times all fit into one window. HOLDFAST_LIMIT_SECONDS is how long the crowd keeps asking."""
import collections
import contextlib
import json
import os
import subprocess
import sys
import threading
import time

from servers import suite
from servers.suite import equal
from servers.watch import watching

HOLDFAST = os.path.abspath(sys.argv[1])
CROWD = 16
SECONDS = float(os.environ.get("HOLDFAST_LIMIT_SECONDS", 4))
RATE, WINDOW_S = 10, 1
TICK_S = 0.002  # the times are cut to milliseconds, and a clock may be slewed
LONG = "1/1h"
PATIENCE_S = 40
suite.LIMIT_S = 60 + int(SECONDS)
Pass = collections.namedtuple("Pass", "pid asked through")  # a caller that was let through, and between which times


def command(*words):
    return [HOLDFAST, "limit", *map(str, words)]


def start(url, *words, **options):
    return subprocess.Popen(command(*words), env={**os.environ, "HOLDFAST_URL": url}, stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, **options)


def limit(url, *words):
    """(exit code, stderr)"""
    with start(url, *words) as child:
        err = child.communicate(timeout=PATIENCE_S)[1]
        return child.returncode, err


def waiting(url, name):
    done = subprocess.run([HOLDFAST, "--json", "inspect", name], env={**os.environ, "HOLDFAST_URL": url},
                          stdout=subprocess.PIPE, check=False)
    return len(json.loads(done.stdout)["waiters"]) if done.returncode == 0 else 0


def await_waiting(url, name, count):
    until = time.monotonic() + PATIENCE_S
    while waiting(url, name) != count:
        assert time.monotonic() < until, f"{count} do not wait"
        time.sleep(0.02)


@contextlib.contextmanager
def waiter(url, *words, **options):
    child = start(url, *words, **options)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


# ---- Times ----


def most_within(times, window_s):
    """The most of these times that lie in one window. A window begins at one of them, and excludes its end."""
    return max(sum(1 for time in times if first <= time < first + window_s) for first in times)


def excess(passes, rate, window_s):
    """Whether certainly more than `rate` were let through in a window."""
    return any(sum(1 for other in passes if one.asked <= other.asked and other.through < one.asked + window_s) > rate
               for one in passes)


def ask(url, *words):
    """A Pass; None if it was not let through."""
    asked = time.monotonic()
    with start(url, *words) as child:
        err = child.communicate(timeout=PATIENCE_S)[1]
    assert child.returncode in (0, 75), err
    return Pass(child.pid, asked, time.monotonic()) if child.returncode == 0 else None


def crowd(url, name):
    """All callers that were let through."""
    passes, until = [], time.monotonic() + SECONDS

    def work():
        while time.monotonic() < until:
            if found := ask(url, name, "--rate", f"{RATE}/{WINDOW_S}s", "-w", "5s"):
                passes.append(found)

    workers = [threading.Thread(target=work) for _ in range(CROWD)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return passes


# ---- What a limiter promises ----


def a_crowd_never_gets_more_through_than_the_rate(url):
    """A permit that arrives when its window is nearly over is given back, and lets nobody through."""
    with watching(url, "--json", "x") as watch:
        watch.expect("watching")
        passes = crowd(url, "x")
        pids, grants = {each.pid for each in passes}, []
        while len(grants) < len(passes):
            event = watch.next()
            assert event["event"] not in ("missed", "polling"), event
            if event["event"] == "acquired" and event["party"]["pid"] in pids:
                grants.append(event["party"]["since_ms"] / 1000)
    most = most_within(grants, WINDOW_S - TICK_S)
    print(f"# {len(passes)} were let through, at most {most} in {WINDOW_S} s")
    assert not excess(passes, RATE, WINDOW_S), passes
    assert most <= RATE, sorted(grants)
    assert len(grants) > RATE, "there was only one window"


def around_an_edge(url, name, window_s, *words):
    """Whether too many get through: one at the beginning of a window, then up to five before and after its
    end, where three are permitted."""
    rate = ("--rate", f"3/{window_s}s")
    passes = [ask(url, name, *rate, *words)]
    time.sleep(0.75 * window_s)
    until = time.monotonic() + 0.75 * window_s
    while len(passes) < 6 and time.monotonic() < until:
        if found := ask(url, name, "-n", *rate, *words):
            passes.append(found)
    return excess(passes, 3, window_s)


def a_fixed_window_lets_more_through_around_its_end(url):
    """Shows that the check can fail; the limiter passes it in the same scene. A slow machine gets longer windows."""
    assert not around_an_edge(url, "smooth", 2)
    assert any(around_an_edge(url, f"fixed{window_s}", window_s, "--fixed") for window_s in (2, 4, 8, 16))


def give_back(url, name):
    """Ends the one permit that was taken, so that waiters need not wait for its window."""
    env = {**os.environ, "HOLDFAST_URL": url}
    found = json.loads(subprocess.run([HOLDFAST, "--json", "inspect", name], env=env, stdout=subprocess.PIPE, check=True).stdout)
    subprocess.run([HOLDFAST, "break", "-y", name, "--token", str(found["holders"][0]["token"])], env=env, check=True)


def who_waits_is_let_through_in_order(url):
    read, write = os.pipe()
    with contextlib.ExitStack() as stack:
        equal(limit(url, "x", "--rate", LONG)[0], 0)
        for i in range(3):
            stack.enter_context(waiter(url, "x", "--rate", LONG, "--", "echo", str(i), stdout=write))
            await_waiting(url, "x", i + 1)
        os.close(write)
        lines = stack.enter_context(open(read, encoding="ascii"))
        for i in range(3):
            give_back(url, "x")
            equal(lines.readline(), f"{i}\n")


def a_dead_waiter_does_not_block_the_others(url):
    equal(limit(url, "x", "--rate", LONG)[0], 0)
    with waiter(url, "x", "--rate", LONG) as dead:
        await_waiting(url, "x", 1)
        with waiter(url, "x", "--rate", LONG) as alive:
            await_waiting(url, "x", 2)
            dead.kill()
            dead.wait()
            give_back(url, "x")
            equal(alive.wait(PATIENCE_S), 0)


def who_was_let_through_and_is_killed_gives_nothing_back(url):
    with waiter(url, "x", "--rate", LONG, "--", "sh", "-c", "echo; exec sleep 600", stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.kill()
        child.wait()
    code, err = limit(url, "x", "--rate", LONG, "-n")
    equal(code, 75)
    assert "1 in 1h00m have been let through; try again in " in err, err


PROMISES = (a_crowd_never_gets_more_through_than_the_rate, who_waits_is_let_through_in_order,
            a_dead_waiter_does_not_block_the_others, who_was_let_through_and_is_killed_gives_nothing_back)
