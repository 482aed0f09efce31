#!/usr/bin/env python3
"""The Redis servers of the tests: they run, obey, follow the clock that is set, and end with their test."""
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.process import Process
from servers.redis import Connection, Redis, RedisError, documented_users
from servers.suite import equal, main, test

SHIM = sys.argv[1]
PROGRAM = Path(__file__).resolve().parent / "redis.py"
SLACK_S = 5  # a loaded machine


def refused(text, function, *words):
    try:
        raise AssertionError(f"{words} gave {function(*words)}")
    except RedisError as error:
        assert text in str(error), error


def wait_gone(pid):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], 30)[0], f"{pid} still lives"
    os.close(fd)


# ---- The server ----


@test
def every_kind_of_reply_is_read():
    with Redis() as server:
        equal(server.command("SET", "key", b"\xff\r\n"), "OK")
        equal(server.command("GET", "key").encode(errors="surrogateescape"), b"\xff\r\n")
        equal(server.command("GET", "none"), None)
        equal(server.command("INCR", "number"), 1)
        equal(server.command("EVAL", "return {1, {'two'}, false, redis.error_reply('NO way')}", 0)[:3],
              [1, ["two"], None])
        refused("wrong number", server.command, "GET")
        equal(server.info("server")["tcp_port"], str(server.port))
        with Connection(server.port) as connection:
            equal(connection.command("GET", "number"), "1")
        with server.connect() as connection:
            equal(connection.command("SUBSCRIBE", "news"), ["subscribe", "news", 1])
            server.command("PUBLISH", "news", "none")
            equal(connection.read(), ["message", "news", "none"])


@test
def several_servers_run_at_once_on_loopback():
    with Redis() as one, Redis(config=["maxmemory 100mb"]) as two:
        assert one.port != two.port
        one.command("SET", "key", 1)
        equal(two.command("DBSIZE"), 0)
        equal(one.command("CONFIG", "GET", "bind"), ["bind", "127.0.0.1"])
        equal(two.command("CONFIG", "GET", "maxmemory"), ["maxmemory", str(100 << 20)])


@test
def a_stopped_server_is_silent_until_it_goes_on():
    with Redis() as server:
        server.stop()
        with server.connect() as connection:
            connection.send("PING")
            assert not select.select([connection.socket], [], [], 0.2)[0]
            server.cont()
            equal(connection.read(), "PONG")


@test
def a_restart_keeps_the_port_and_what_was_to_be_kept():
    with Redis(config=["appendonly yes", "appendfsync always"]) as server:
        port, run = server.port, server.info("server")["run_id"]
        server.command("SET", "key", "value")
        for end in (server.kill, server.terminate, server.stop, lambda: None):
            end()
            server.restart()
            equal((server.port, server.command("GET", "key")), (port, "value"))
        assert server.info("server")["run_id"] != run
        server.restart(wipe=True)
        equal(server.command("GET", "key"), None)


@test
def nothing_is_kept_unless_it_is_asked_for():
    with Redis() as server:
        server.command("SET", "key", "value")
        server.restart()
        equal(server.command("GET", "key"), None)
        equal(list(server.data.iterdir()), [])


@test
def users_have_their_rights_and_nobody_else_gets_in():
    with Redis(users=["user app on >s3c/ret ~app:* +get +set", "user two on nopass +@all"]) as server:
        equal(server.url(user="app", db=2), f"redis://app:s3c%2Fret@127.0.0.1:{server.port}/2")
        equal(server.url(user="app", unix=True), f"redis+unix://app:s3c%2Fret@{server.socket}")
        equal(server.url(user="two", port=1), "redis://two@127.0.0.1:1/0")
        server.password, password = None, server.password
        refused("NOAUTH", server.command, "PING")
        with server.connect() as connection:
            connection.command("AUTH", "app", "s3c/ret")
            connection.command("SET", "app:1", "value")
            refused("NOPERM", connection.command, "SET", "other", "value")
            refused("NOPERM", connection.command, "DEL", "app:1")
        server.password = password
        server.restart()
        equal(server.command("ACL", "WHOAMI"), "default")


@test
def a_server_that_cannot_start_says_why_and_leaves_nothing():
    server = Redis(config=["nonsense yes"])
    try:
        with server:
            raise AssertionError("it started")
    except RuntimeError as error:
        assert "nonsense" in str(error), error
    assert not server.folder.exists()


@test
def a_test_that_fails_ends_its_server():
    try:
        with Redis() as server:
            server.stop()
            raise KeyError
    except KeyError:
        assert not server.running() and not server.folder.exists()


@test
def a_test_that_is_killed_ends_its_server():
    script = "redis-cli -u '{url}' info server; echo process_id:$$; exec sleep 99"
    with tempfile.TemporaryDirectory() as folder, Process() as program:
        program.launch([PROGRAM, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                       env=os.environ | {"TMPDIR": folder})
        with program.child.stdout as lines:
            ids = (int(line.split(":")[1]) for line in lines if line.startswith("process_id:"))
            pids = [next(ids), next(ids)]  # the server's, the program's
        program.kill()
        for pid in pids:
            wait_gone(pid)


# ---- The command ----


def run(*words, **options):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False, **options)


@test
def a_program_runs_with_a_server_and_its_status_is_passed_on():
    done = run("--", "sh", "-c", "redis-cli -u $0 set key value; redis-cli -u $0 get key; exit 7", "{url}")
    equal((done.returncode, done.stdout), (7, "OK\nvalue\n"))
    equal(run("--", "sh", "-c", "kill -9 $$").returncode, 128 + signal.SIGKILL)
    assert run("--unix", "--", "echo", "<{url}>").stdout.startswith("<redis+unix:///"), done


@test
def the_documented_rights_are_taken_from_the_page():
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "redis.md"
        page.write_text("text\n\n<!-- acl -->\n```sh\nredis-cli ACL SETUSER app on '>password' \\\n    ~app:* +get\n"
                        "user two on nopass\n    +@all\n```\n```\nuser three on\n```\n")
        equal(documented_users(page), ["user app on >password ~app:* +get", "user two on nopass +@all"])
        for text in ("none", "<!-- acl -->\ntext\n```\nuser app on\n```\n", "<!-- acl -->\n```\nhello\n```\n"):
            page.write_text(text)
            try:
                raise AssertionError(documented_users(page))
            except SystemExit as end:
                assert "redis.md" in end.code, end.code


# ---- The clock ----


def skew_s(server):
    """How far the server's clock is ahead of ours."""
    seconds, us = map(int, server.command("TIME"))
    return seconds + us / 1e6 - time.time()


def near(actual, expected):
    assert abs(actual - expected) < SLACK_S, f"{actual} is not near {expected}"


def check_rate(server, rate):
    """Checks that the server's clock runs at this rate, as far as the times before and after each look at it
    show."""
    def look():
        asked = time.monotonic()
        seconds, us = map(int, server.command("TIME"))
        return asked, seconds + us / 1e6, time.monotonic()

    first_asked, first, first_told = look()
    time.sleep(0.5)
    asked, last, told = look()
    least, most = rate * (asked - first_told), rate * (told - first_asked)
    assert least - 0.05 < last - first < most + 0.05, f"{last - first} s, and not {least} to {most}"


@test
def TIME_follows_the_clock_that_is_stepped():
    with Redis(clock=SHIM) as server:
        near(skew_s(server), 0)
        server.step_clock(3600)
        near(skew_s(server), 3600)
        server.step_clock(-7200.5)
        near(skew_s(server), -3600.5)
        server.restart()
        near(skew_s(server), -3600.5)


@test
def keys_expire_by_the_clock_that_is_stepped():
    with Redis(clock=SHIM) as server:
        server.command("SET", "key", "value", "PX", 60000)
        server.step_clock(59 - SLACK_S)
        equal(server.command("GET", "key"), "value")
        server.step_clock(-3600)
        near(server.command("PTTL", "key") / 1000, 3600 + SLACK_S)
        server.step_clock(3600 + SLACK_S + 2)
        equal(server.command("GET", "key"), None)
        script = "redis.call('SET', 'key', 1, 'PX', 60000) return redis.call('PTTL', 'key')"
        # Now and then a millisecond ends between the two, but not each time.
        assert any(server.command("EVAL", script, 0) == 60000 for _ in range(10))


@test
def TIME_and_expiry_follow_the_rate():
    with Redis(clock=SHIM) as server:
        server.command("SET", "key", "value", "PX", 600000)
        start = time.monotonic()
        server.clock_rate(1000)
        while server.command("EXISTS", "key"):
            assert time.monotonic() - start < 30
        assert time.monotonic() - start > 0.5, "it expired too early"
        server.clock_rate(1)
        assert skew_s(server) > 590, "what it had gained is gone"
        check_rate(server, 1)
        server.clock_rate(0.5)
        check_rate(server, 0.5)


@test
def another_server_has_its_own_clock():
    with Redis(clock=SHIM) as one, Redis(clock=SHIM) as two:
        one.step_clock(1000)
        two.step_clock(-1000)
        near(skew_s(one) - skew_s(two), 2000)


main()
