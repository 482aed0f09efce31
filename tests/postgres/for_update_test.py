#!/usr/bin/env python3
"""The PostgreSQL store with scheme=for-update, where a hold is a row lock that ends with its connection:
for_update_test.py HOLDFAST PUPPET."""
import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from postgres.pooler import Pooler
from servers.doctor import doctor, severities
from servers.postgres import Postgres, Session, patient
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, deadline_us, is_there, one_of, puppets, wait_until
from servers.scene import patient as again_if_slow
from servers.suite import equal, main, test

WAIT_LEASE_MS = 1500
shared = Postgres()  # each test has a database of its own
KINDS = {"exclusive": ("exclusive", "exclusive"), "shared": ("shared", "exclusive"), "writer": ("exclusive", "shared")}


@contextlib.contextmanager
def database():
    name = f"test_{secrets.token_hex(8)}"
    shared.command(f"CREATE DATABASE {name}")
    yield name


def url_of(name, port=None, scheme="for-update", user="postgres"):
    return f"{patient(shared.url(database=name, port=port, user=user))}&scheme={scheme}"


def ask(name, sql):
    return shared.command(sql, database=name)


def backends(name, where="true"):
    """Of clients, by what they do."""
    return int(shared.command("SELECT count(*) FROM pg_stat_activity WHERE "
                              f"datname = '{name}' AND application_name = 'holdfast' AND {where}"))


def waiting(name):
    return backends(name, "wait_event_type = 'Lock'")


def terminate_holder(name):
    equal(ask(name, "SELECT count(pg_terminate_backend(backend)) FROM holdfast.sessions"), "1")


# ---- A hold ends with its connection ----


@test(*KINDS)
def a_holder_that_is_killed_is_succeeded_at_once(kinds):
    with database() as name, puppets(2, url_of(name)) as (one, two):
        token = one.hold("lock", "lock", kind=KINDS[kinds][0], lease_ms=LONG_MS).token
        two.acquire("lock", "lock", kind=KINDS[kinds][1], wait_ms=-1)
        wait_until(lambda: waiting(name) == 1, "the waiter")
        one.kill()
        assert two.granted("lock").token > token
        equal(len(two.inspect("lock")["holders"]), 1)


@test
def row_35_a_session_that_is_terminated_is_a_loss_that_is_reported_at_once():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiting(name) == 1, "the waiter")
        terminate_holder(name)
        one.lost("lock")
        assert two.granted("lock").token > token
        one_of(one.release("lock"), ("LOST", "NOT_YOURS"))
        equal(two.renew("lock"), "OK")


@test
@again_if_slow
def row_34_a_connection_that_goes_silent_frees_its_lock_after_the_lease():
    with database() as name, Proxy(shared.port) as proxy, Puppet(PUPPET, url_of(name)) as near, \
            Puppet(PUPPET, url_of(name, port=proxy.port)) as far:
        token = far.hold("lock", "lock", lease_ms=4000).token
        near.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiting(name) == 1, "the waiter")
        proxy.blackhole()
        earliest_us, _ = deadline_us(far, "lock")
        far.lost("lock")
        grant = near.granted("lock")
        assert grant.token > token and grant.at_us >= earliest_us, (grant, token, earliest_us)
        equal(far.check("lock"), "LOST")


@test
@again_if_slow
def row_1_who_was_stopped_past_its_lease_knows_it_at_once():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        token = one.hold("lock", "lock", lease_ms=2000).token
        deadline_us(one, "lock")
        one.stop()
        assert two.hold("lock", "lock", wait_ms=-1).token > token
        one.cont()
        equal(one.check("lock"), "LOST")


@test
def a_waiter_that_is_stopped_costs_its_wait_lease():
    with database() as name, puppets(3, url_of(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two, three):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        for number, puppet in enumerate((two, three), 1):
            puppet.acquire("lock", "lock", wait_ms=-1)
            wait_until(lambda: waiting(name) == number, "a waiter")
        two.stop()
        equal(one.release("lock"), "OK")
        three.granted("lock")
        two.cont()


@test
def a_crash_of_the_server_is_a_loss_that_is_reported():
    with Postgres() as server, puppets(2, patient(server.url()) + "&scheme=for-update") as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.crash()
        one.lost("lock")
        server.start()
        assert two.hold("lock", "lock").token > token


# ---- Tokens ----


@test
def row_37_a_token_is_drawn_only_while_the_row_is_locked():
    with database() as name, Puppet(PUPPET, url_of(name)) as one:
        token = one.hold("lock", "lock").token
        draw = "SELECT answer FROM holdfast.draw('{0}', 2147483647, '{1}', 1, {2}, 0, 0, 0, 0, '', '', '')"
        me = "00000000-0000-0000-0000-000000000001"
        ended = ask(name, "SELECT txid_current()")
        equal(ask(name, draw.format("other", me, ended)), "gone")
        equal(ask(name, draw.format("other", me, int(ended) + 1000000)), "gone")  # of a time before a restore
        equal(len(one.inspect("lock")["holders"]), 1)
        equal(one.inspect("other")["holders"], [])
        equal(one.release("lock"), "OK")
        assert one.hold("again", "lock").token > token


@test
def an_acquire_whose_token_was_not_answered_leaves_nothing_behind():
    with database() as name, Proxy(shared.port) as proxy, \
            Puppet(PUPPET, url_of(name, port=proxy.port)) as far, Puppet(PUPPET, url_of(name)) as near:
        far.inspect("none")  # it is connected
        dropped = proxy.drop_reply_to("draw")
        far.acquire("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
        assert dropped.wait(LIMIT_S)
        token = far.granted("lock").token
        equal([party.token for party in near.inspect("lock")["holders"]], [token])
        equal(far.release("lock"), "OK")
        assert near.hold("lock", "lock").token > token


# ---- Waiting ----


@test
def who_gives_up_waiting_leaves_the_servers_queue():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiting(name) == 1, "the waiter")
        two.cancel("lock")
        equal(two.failed("lock"), "CANCELLED")
        wait_until(lambda: waiting(name) == 0, "the end of its statement")
        assert "canceling statement due to user request" in shared.log.read_text()
        equal(one.release("lock"), "OK")


@test
def a_waiter_whose_session_is_terminated_asks_again():
    with database() as name, puppets(2, url_of(name)) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiting(name) == 1, "the waiter")
        shared.command("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                       f"datname = '{name}' AND wait_event_type = 'Lock'")
        wait_until(lambda: waiting(name) == 1, "the waiter again")
        assert not is_there(two, "lock")
        equal(one.release("lock"), "OK")
        two.granted("lock")


# ---- What is refused ----


@test("transaction", "statement")
def row_33_a_pooler_is_refused_with_the_reason(mode):
    with Postgres() as server, Pooler(server, mode) as pooler:
        url = patient(server.url(port=pooler.port)) + "&scheme=for-update"
        with Puppet(PUPPET, url) as one:
            def refused():
                one.acquire("lock", "lock")
                return one.failed("lock") == "UNSUPPORTED"
            wait_until(refused, "the pooler")


@test
def a_name_is_used_with_one_scheme_at_a_time():
    with database() as name, Puppet(PUPPET, url_of(name)) as row, Puppet(PUPPET, url_of(name, scheme="lease")) as lease:
        row.hold("lock", "lock")
        lease.acquire("lock", "lock")
        equal(lease.failed("lock"), "WRONG_KIND")
        token = row.inspect("lock")["holders"][0].token
        equal(row.release("lock"), "OK")
        assert lease.hold("again", "lock").token > token
        row.acquire("refused", "lock")
        equal(row.failed("refused"), "WRONG_KIND")
        equal(lease.release("again"), "OK")
        row.hold("last", "lock")


@test
def a_lease_that_ends_while_it_is_renewed_still_counts():
    """The renewal has found it in time, and commits later."""
    with database() as name, Puppet(PUPPET, url_of(name)) as row, Puppet(PUPPET, url_of(name, scheme="lease")) as lease, \
            Session(shared, database=name) as renewal:
        lease.hold("lock", "lock", lease_ms=LONG_MS, flags="no_renew")
        equal(renewal.say("UPDATE holdfast.claims SET until = clock_timestamp()"), "00000")  # it is over
        equal(renewal.say("BEGIN"), "00000")
        equal(renewal.say("UPDATE holdfast.claims SET until = clock_timestamp() + interval '1 hour'"), "00000")
        row.acquire("refused", "lock")
        equal(row.failed("refused"), "WRONG_KIND")
        equal(renewal.say("COMMIT"), "00000")


@test
def an_attempt_that_starts_again_is_in_its_new_session():
    with database() as name, Puppet(PUPPET, url_of(name)) as one, \
            Session(shared, database=name) as first, Session(shared, database=name) as second:
        one.inspect("none")  # there is a schema
        draw = ("SELECT answer FROM holdfast.draw('lock', 1, '00000000-0000-0000-0000-000000000001', 1, "
                "{0}, {1}, 0, 0, 0, '', '', '')")
        for session in first, second:  # whose transactions stay open
            session.say("BEGIN")
            session.say("SELECT txid_current(), pg_backend_pid()")
            xact, backend = session.rows[0].split("|")
            equal(ask(name, draw.format(xact, backend)), "done")
        equal(ask(name, "SELECT xact, backend FROM holdfast.sessions"), f"{xact}|{backend}")


@test
def who_may_not_end_the_holders_session_cannot_break_its_lock():
    with database() as name, Puppet(PUPPET, url_of(name)) as one:
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        shared.command("DO $$BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END$$")
        ask(name, "GRANT USAGE ON SCHEMA holdfast TO app")
        ask(name, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO app")
        with Puppet(PUPPET, url_of(name, user="app")) as other:
            equal(other.break_lock("lock", token), "DENIED")
            equal(one.check("lock"), "OK")
            shared.command("GRANT pg_signal_backend TO app")
            equal(other.break_lock("lock", token), "DENIED")  # a superuser's session
        with Puppet(PUPPET, url_of(name)) as same:
            equal(same.break_lock("lock", token), "OK")
        one.lost("lock")


def command(url, *words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "PG"))}
    return subprocess.run([HOLDFAST, "--url", url, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          env=environment | {"XDG_CONFIG_HOME": "/nonexistent"}, stdin=subprocess.DEVNULL)


@test
def what_outlives_its_client_is_not_protected_by_a_connection():
    with database() as name:
        done = command(url_of(name), "run", "lock", "--", "true")
        assert done.returncode and "ends with the connection" in done.stderr, done
        done = command(url_of(name, scheme="nonsense"), "ls")
        assert done.returncode and "scheme=nonsense" in done.stderr, done


@test
def the_doctor_says_that_a_lock_ends_with_its_connection():
    with database() as name:
        _, found, answer = doctor(url_of(name))
        equal(answer["tier"], "best effort")
        equal(severities(found)["scheme"], "warning")


if __name__ == "__main__":
    with shared:
        main()
