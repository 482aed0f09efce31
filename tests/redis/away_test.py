#!/usr/bin/env python3
"""A server that is away is waited for like a lock that is held: away_test.py HOLDFAST."""
import contextlib
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.redis import Redis
from servers.suite import LIMIT_S, equal, main, test

HOLDFAST = sys.argv[1]
UNREACHABLE = 69


def start(server, *words):
    return subprocess.Popen([HOLDFAST, *words[:1], "--url", server.url(), *words[1:]], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def never_started():
    """A server that is not running, with only its port reserved."""
    server = Redis()
    try:
        yield server
    finally:
        server.__exit__()


def finish(process):
    """(exit code, stdout, stderr)"""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def says_that_it_cannot_connect(process):
    line = process.stderr.readline()
    assert "waiting for x" in line and "the store cannot be reached: cannot connect to 127.0.0.1" in line, line


def seconds(function):
    before = time.monotonic()
    return function(), time.monotonic() - before


@test
def run_with_a_time_limit_waits_for_a_server_that_starts_later():
    server = Redis()
    waiting = start(server, "run", "-w", "50s", "x", "echo", "ran")
    says_that_it_cannot_connect(waiting)
    with server:
        equal(finish(waiting)[:2], (0, "ran\n"))


@test
def run_without_a_time_limit_waits_for_a_server_that_starts_later():
    server = Redis()
    waiting = start(server, "run", "--store-wait", "50s", "x", "echo", "ran")
    says_that_it_cannot_connect(waiting)
    with server:
        equal(finish(waiting)[:2], (0, "ran\n"))


@test
def acquire_waits_for_a_server_that_starts_later():
    server = Redis()
    waiting = start(server, "acquire", "-w", "50s", "--for", "1s", "x")
    says_that_it_cannot_connect(waiting)
    with server:
        code, out, _ = finish(waiting)
        equal(code, 0)
        assert "HOLDFAST_LOCK=x" in out or "HOLDFAST_LOCK='x'" in out, out


@test
def run_waits_on_while_the_server_is_restarted():
    with Redis() as server:
        holder = start(server, "run", "x", "sh", "-c", "echo held; exec sleep 60")
        equal(holder.stdout.readline(), "held\n")
        waiting = start(server, "run", "-w", "50s", "x", "echo", "ran")
        line = waiting.stderr.readline()
        assert "held by" in line, line
        server.kill()
        time.sleep(1)  # it asks, and cannot reach the server
        server.restart()  # which has forgotten the holder
        equal(finish(waiting)[:2], (0, "ran\n"))
        holder.kill()
        holder.communicate()


@test
def run_says_after_its_time_limit_why_the_server_cannot_be_reached():
    with never_started() as server:
        (code, _, err), took_s = seconds(lambda: finish(start(server, "run", "-w", "2s", "x", "true")))
        equal(code, UNREACHABLE)
        assert took_s >= 2, took_s
        assert f"cannot reach redis://127.0.0.1:{server.port}" in err and "Connection refused" in err, err
        (code, _, err), took_s = seconds(lambda: finish(start(server, "run", "--store-wait", "1s", "x", "true")))
        equal(code, UNREACHABLE)
        assert 1 <= took_s, took_s


@test
def run_that_does_not_wait_fails_at_once():
    with never_started() as server:
        for words in (("-n",), ("--store-wait", "0s")):
            code, _, err = finish(start(server, "run", *words, "x", "true"))
            equal(code, UNREACHABLE)
            assert "waiting" not in err and "Connection refused" in err, err


main()
