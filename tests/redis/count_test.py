#!/usr/bin/env python3
"""Counters in a Redis server: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import add_up, add_up_while_replies_are_lost, run_adder
from servers.process import LIMIT_S, Process
from servers.proxy import Proxy
from servers.redis import Redis
from servers.scene import HOLDFAST
from servers.suite import equal, main, test

KEY, LOCK = "holdfast:hits", "holdfast:lock"
KEPT_MS = 120000
MOST = (1 << 63) - 1


def holdfast(server, *words):
    return subprocess.run([HOLDFAST, "--url", server.url(), *map(str, words)], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)


def count(server, *words):
    done = holdfast(server, "count", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@test
def sixteen_clients_add_up_exactly():
    with Redis() as server:
        total = add_up(server.url(), "hits")
        equal(server.command("GET", KEY), str(total))


@test
def row_17_an_addition_whose_reply_was_lost_happens_once():
    with Redis() as server:
        run_adder(server.url(), "other", 1, 1)  # the server knows the script
        total = add_up_while_replies_are_lost(server.port, lambda port: server.url(port=port) + "?timeout=20000", "hits", KEY)
        equal(server.command("GET", KEY), str(total))


@test
def an_answer_that_was_not_kept_is_counted_again():
    """Shows that the test above can fail: here the repeat finds no answer."""
    with Redis() as server, Proxy(server.port) as proxy, Process() as adder:
        run_adder(server.url(), "other", 1, 1)
        proxy.hold("up")
        adder.launch([HOLDFAST, "--url", server.url(port=proxy.port), "count", "add", "hits"], stdout=subprocess.PIPE, text=True)
        proxy.wait(lambda: proxy.held["up"] > 0)
        proxy.refuse()  # so that it cannot be repeated yet
        lost = proxy.drop_reply_to(KEY)
        proxy.let_go()
        assert lost.wait(LIMIT_S)
        forget_answers(server)
        proxy.accept()
        equal(adder.child.communicate(timeout=LIMIT_S)[0].strip(), "2")
        equal(server.command("GET", KEY), "2")


def forget_answers(server):
    for key in server.command("KEYS", "*.a.*"):
        server.command("DEL", key)


@test
def other_clients_count_with_it():
    with Redis() as server:
        equal(count(server, "add", "hits", 5), "5")
        equal(server.command("INCR", KEY), 6)
        equal(server.command("INCRBY", KEY, 1 << 60), 6 + (1 << 60))
        equal(count(server, "get", "hits"), str(6 + (1 << 60)))
        server.command("SET", KEY, MOST, "PX", 3600000)
        equal(count(server, "cas", "hits", MOST, -1), "-1")
        assert 0 < server.command("PTTL", KEY) <= 3600000
        equal(count(server, "swap", "hits", 7), "-1")
        equal(server.command("GET", KEY), "7")
        equal(count(server, "rm", "hits"), "7")
        equal(server.command("EXISTS", KEY), 0)


@test
def what_is_no_number_is_left_as_it_is():
    with Redis() as server:
        for make in (["SET", KEY, "some text"], ["SET", KEY, "007"], ["HSET", KEY, "a", "b"]):
            server.command("DEL", KEY)
            server.command(*make)
            before = server.command("DUMP", KEY)
            for words in (["add", "hits"], ["get", "hits"], ["swap", "hits", 1], ["rm", "hits"]):
                done = holdfast(server, "count", *words)
                assert done.returncode and "so it is not a counter" in done.stderr, (make, words, done)
            equal(server.command("DUMP", KEY), before)


@test
def a_counter_is_not_in_the_list_of_locks():
    with Redis() as server:
        count(server, "add", "hits")
        server.command("SET", LOCK, "foreign", "PX", 60000)
        lines = holdfast(server, "ls").stdout
        assert "lock" in lines and "hits" not in lines, lines


@test
def a_client_that_is_killed_leaves_no_counter_without_its_end():
    """A client is killed after its request has gone out, at a different moment each time: a counter that exists has its
    expiry."""
    made = 0
    with Redis() as server, Proxy(server.port) as proxy:
        run_adder(server.url(), "other", 1, 1)
        for number in range(8):
            lost = proxy.drop_reply_to(f"holdfast:n{number}")
            with Process() as adder:
                words = [HOLDFAST, "--url", server.url(port=proxy.port), "count", "add", f"n{number}", "--expire", "1h"]
                adder.launch(words, stdout=subprocess.DEVNULL)
                assert lost.wait(LIMIT_S)
                adder.kill()
            left_ms = server.command("PTTL", f"holdfast:n{number}")
            assert left_ms == -2 or 0 < left_ms <= 3600000, left_ms
            made += left_ms > 0
    assert made, "none was made"


@test
def an_answer_is_kept_for_two_minutes():
    with Redis() as server:
        count(server, "add", "hits")
        [key] = server.command("KEYS", "*.a.*")
        assert key.startswith("{holdfast:hits}.a.holdfast:hits."), key
        assert KEPT_MS - LIMIT_S * 1000 < server.command("PTTL", key) <= KEPT_MS


@test
def a_server_that_is_full_still_reads_and_removes():
    with Redis() as server:
        count(server, "add", "hits", 3)
        server.command("CONFIG", "SET", "maxmemory", 1)
        done = holdfast(server, "count", "add", "hits")
        assert done.returncode and "maxmemory" in done.stderr, done
        equal(count(server, "get", "hits"), "3")
        equal(count(server, "rm", "hits"), "3")


main()
