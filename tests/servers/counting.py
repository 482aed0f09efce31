"""Clients that add to one counter at the same time (tests/support/adder.c), on any store, while replies are lost.

HOLDFAST_COUNTING is how often each of them adds; 10000 is the full scale."""
import contextlib
import os
import subprocess
import time

from servers import suite
from servers.process import Process
from servers.proxy import Proxy
from servers.scene import PUPPET

CLIENTS = 16
ADDS = int(os.environ.get("HOLDFAST_COUNTING", 40))
LIMIT_S = 120 + CLIENTS * ADDS // 20
suite.LIMIT_S = 2 * LIMIT_S + 60
POLL_S = 0.05


def wait():
    time.sleep(POLL_S)


def run_adder(url, name, clients, adds, while_running=wait):
    """The sum of all answers."""
    with Process() as adder:
        until = time.monotonic() + LIMIT_S
        adder.launch([os.path.join(os.path.dirname(PUPPET), "adder"), url, name, clients, adds], stdout=subprocess.PIPE,
                     text=True)
        while adder.running():
            assert time.monotonic() < until, "the clients do not end"
            while_running()
        said = adder.child.stdout.read()
        adder.child.stdout.close()
        assert adder.child.returncode == 0, said
    return int(said)


def add_up(url, name, while_running=wait):
    """The clients add to a counter that nobody else changes, and each sum on the way is the answer to exactly one of them.
    Returns the sum."""
    began = time.monotonic()
    answers = run_adder(url, name, CLIENTS, ADDS, while_running)
    total = CLIENTS * ADDS
    print(f"# {total / (time.monotonic() - began):.0f} additions a second")
    suite.equal(answers, total * (total + 1) // 2)
    return total


def add_up_while_replies_are_lost(port, url, name, request, hang_up=True):
    """The same through a proxy in front of `port`, at url(its port), which loses replies to requests that contain these
    bytes: one in eight together with its connection, and now and then all that are under way."""
    with Proxy(port) as proxy:
        lost = [proxy.drop_reply_to(request, hang_up=hang_up)]

        def lose():
            if not lost[-1].wait(POLL_S):
                return
            if len(lost) % 16 == 0:
                proxy.drop("down")
                wait()
                proxy.pass_all()
            lost.append(proxy.drop_reply_to(request, after=7, hang_up=hang_up))

        total = add_up(url(proxy.port), name, lose)
    print(f"# {len(lost) - 1} replies were lost")
    assert len(lost) > total // 100, "hardly any reply was lost"
    return total


# ---- Stores in SQL databases ----

GET, ADD, SWAP, CAS, REMOVE = range(1, 6)
MOST, LEAST = (1 << 63) - 1, -(1 << 63)
HOUR = 3600 * 1000000
counting = suite.Tests()


def value_of(store, place, name="hits"):
    return int(store.ask(place, f"SELECT value FROM {store.prefix}counters WHERE name = '{name}'"))


def answer_of(store, session):
    """The word and the value of the answer to the session's last statement."""
    suite.equal(session.answer(), store.fine)
    return tuple(store.cells(session.rows[0])[:2])


@contextlib.contextmanager
def counters(store):
    """A database, and a function that counts in it as a client would."""
    with store.fresh() as place, store.session(place) as session:
        run_adder(store.url(place), "other", 1, 1)  # this makes the schema

        def ask(seq, op, number=0, expected=None, **options):
            session.ask(store.count_call(seq, op, number, expected, **options))
            return answer_of(store, session)

        yield place, ask


@counting.test
def sixteen_clients_add_up_exactly(store):
    with store.fresh() as place:
        total = add_up(store.url(place), "hits")
        suite.equal(value_of(store, place), total)


@counting.test
def row_17_an_addition_whose_reply_was_lost_happens_once(store):
    with counters(store) as (place, _):
        total = add_up_while_replies_are_lost(store.port(), lambda port: store.url(place, port=port, timeout_ms=5000), "hits",
                                              f"{store.prefix}count")
        suite.equal(value_of(store, place), total)


@counting.test
def a_repeat_is_given_the_first_answer_and_what_comes_late_does_nothing(store):
    with counters(store) as (place, ask):
        suite.equal(ask(1, ADD, 7), ("done", "7"))
        suite.equal(ask(1, ADD, 7), ("done", "7"))
        suite.equal(ask(2, SWAP, MOST), ("done", "7"))
        suite.equal(ask(3, ADD, 1), ("range", str(MOST)))
        store.ask(place, f"UPDATE {store.prefix}counters SET value = 8")
        suite.equal(ask(3, ADD, 1), ("range", str(MOST)))
        suite.equal(ask(2, ADD, 1)[0], "late")
        suite.equal(ask(4, CAS, 9, 7), ("mismatch", "8"))
        suite.equal(ask(5, CAS, LEAST, 8), ("done", str(LEAST)))
        suite.equal(ask(4, CAS, 9, LEAST)[0], "late")
        suite.equal(ask(6, ADD, -1), ("range", str(LEAST)))
        suite.equal(ask(7, REMOVE), ("done", str(LEAST)))
        suite.equal(ask(7, REMOVE), ("done", str(LEAST)))
        suite.equal(ask(8, GET), ("done", None))
        suite.equal(ask(8, CAS, 9, 7), ("mismatch", None))
        suite.equal(ask(9, CAS, 9), ("done", "9"))


@counting.test
def two_sendings_of_one_request_happen_once_even_at_the_same_time(store):
    with counters(store) as (place, ask), store.session(place) as other, store.session(place) as one, store.session(place) as two:
        suite.equal(ask(1, ADD, 3), ("done", "3"))
        other.say("BEGIN")
        other.say(f"UPDATE {store.prefix}counters SET value = value + 10 WHERE name = 'hits'")
        for session in (one, two):
            session.ask(store.count_call(2, ADD, 5))
        suite.equal(other.say("COMMIT"), store.fine)
        suite.equal([answer_of(store, session) for session in (one, two)], [("done", "18")] * 2)
        suite.equal(value_of(store, place), 18)


@counting.test
def what_has_expired_is_removed_in_small_steps(store):
    with counters(store) as (place, ask):
        def rows():
            return [int(store.ask(place, f"SELECT count(*) FROM {store.prefix}{table} WHERE name <> 'other'"))
                    for table in ("counters", "answers")]

        for number in range(7):
            ask(1, ADD, 1, name=f"old{number}", life_us=HOUR)
        ask(1, ADD, 1, name="kept", life_us=HOUR)
        suite.equal(rows(), [8, 8])
        store.ask(place, f"UPDATE {store.prefix}answers SET minute = minute - 3 WHERE name LIKE 'old%'")
        store.ask(place, f"UPDATE {store.prefix}counters SET {store.expire} WHERE name LIKE 'old%'")
        left = []
        for number in range(3):
            ask(1, ADD, 1, name=f"new{number}")
            left.append(rows())
        suite.equal(left, [[5, 5], [3, 3], [4, 4]])
        suite.equal(ask(2, GET, name="kept"), ("done", "1"))


@counting.test
def programs_that_know_only_sql_read_and_add(store):
    with counters(store) as (place, ask):
        suite.equal(ask(1, ADD, 41), ("done", "41"))
        suite.equal(store.ask(place, store.documented("counter read")), "41")
        store.ask(place, store.documented("counter update"))
        suite.equal(ask(2, GET), ("done", "42"))
        ask(3, REMOVE)
        suite.equal(store.ask(place, store.documented("counter read")), "")
        for _ in range(2):
            store.ask(place, store.documented("counter insert"))
        suite.equal(ask(4, ADD, 5), ("done", "7"))
        store.ask(place, f"UPDATE {store.prefix}counters SET {store.expire} WHERE name = 'hits'")
        suite.equal(store.ask(place, store.documented("counter read")), "")
        store.ask(place, store.documented("counter update"))  # there is nothing to update
        suite.equal(ask(5, GET), ("done", None))
        store.ask(place, store.documented("counter insert"))
        suite.equal(ask(6, ADD, 5), ("done", "6"))


@counting.test
def row_8_what_was_counted_survives_a_crash(store):
    with store.new_server(config=store.writes_late) as server:
        for number in range(1, 4):
            suite.equal(run_adder(store.patient(server.url()), "hits", 1, 1), number)
            server.crash()
            server.start()
