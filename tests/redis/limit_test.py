#!/usr/bin/env python3
"""The rate limiter on Redis: limit_test.py HOLDFAST PUPPET; see servers/limits.py."""
import functools
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.limits import LONG, PROMISES, limit
from servers.redis import Redis, patient
from servers.scene import SHIM
from servers.suite import equal, main, test


def try_it(url):
    return limit(url, "x", "--rate", LONG, "-n")


def on_a_server(promise):
    @functools.wraps(promise)
    def run():
        with Redis() as server:
            promise(patient(server.url()))

    return run


for each in PROMISES:
    test(on_a_server(each))


# ---- What breaks the promise ----


@test
def a_clock_that_is_set_forward_lets_the_rate_through_once_more():
    with Redis(clock=SHIM) as server:
        url = patient(server.url())
        equal(try_it(url)[0], 0)
        equal(try_it(url)[0], 75)
        server.step_clock(3601)
        equal(try_it(url)[0], 0)
        equal(try_it(url)[0], 75)


@test
def a_clock_that_is_set_back_lets_nobody_through_and_says_so():
    with Redis(clock=SHIM) as server:
        url = patient(server.url())
        equal(try_it(url)[0], 0)
        server.step_clock(-60)
        code, err = try_it(url)
        equal(code, 78)
        assert "a clock was set back" in err, err
        server.step_clock(60)
        equal(try_it(url)[0], 75)


@test
def a_server_that_forgets_its_data_lets_the_rate_through_once_more():
    with Redis() as server:
        url = patient(server.url())
        equal(try_it(url)[0], 0)
        equal(try_it(url)[0], 75)
        server.restart(wipe=True)
        equal(try_it(url)[0], 0)
        equal(try_it(url)[0], 75)


main()
