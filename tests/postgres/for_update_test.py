#!/usr/bin/env python3
"""The PostgreSQL store with scheme=for-update: for_update_test.py HOLDFAST PUPPET. Tests for all databases are in
servers/for_update.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.pgbouncer import Pooler
from servers.for_update import Rows, for_update
from servers.postgres import Postgres, Shared
from servers.puppet import Puppet
from servers.scene import LONG_MS, PUPPET, puppets, wait_until
from servers.suite import equal, main, test


class PostgresRows(Rows, Shared):
    draw = "draw"

    def waiting(self, name):
        return self.sessions(name, "wait_event_type = 'Lock'")

    def end_holder(self, name):
        equal(self.ask(name, "SELECT count(pg_terminate_backend(backend)) FROM holdfast.sessions"), "1")

    def end_waiter(self, name):
        equal(self.end_sessions(name, "wait_event_type = 'Lock'"), 1)


rows = PostgresRows()
for_update.add(rows)


@test
def row_37_a_token_is_drawn_only_while_the_row_is_locked():
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as one:
        token = one.hold("lock", "lock").token
        draw = "SELECT answer FROM holdfast.draw('{0}', 2147483647, '{1}', 1, {2}, 0, 0, 0, 0, '', '', '')"
        me = "00000000-0000-0000-0000-000000000001"
        ended = rows.ask(name, "SELECT txid_current()")
        equal(rows.ask(name, draw.format("other", me, ended)), "gone")
        equal(rows.ask(name, draw.format("other", me, int(ended) + 1000000)), "gone")  # from before a restore
        equal(len(one.inspect("lock")["holders"]), 1)
        equal(one.inspect("other")["holders"], [])
        equal(one.release("lock"), "OK")
        assert one.hold("again", "lock").token > token


@test
def a_wait_that_is_given_up_is_cancelled():
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        two.cancel("lock")
        equal(two.failed("lock"), "CANCELLED")
        cancelled = "canceling statement due to user request"
        wait_until(lambda: cancelled in rows.server.log.read_text(), "the end of its statement")


@test
def a_lease_that_ends_while_it_is_renewed_still_counts():
    """The renewal has found it in time, and commits later."""
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as row, \
            Puppet(PUPPET, rows.url(name, scheme="lease")) as lease, rows.session(name) as renewal:
        lease.hold("lock", "lock", lease_ms=LONG_MS, flags="no_renew")
        equal(renewal.say("UPDATE holdfast.claims SET until = clock_timestamp()"), "00000")  # it is over
        equal(renewal.say("BEGIN"), "00000")
        equal(renewal.say("UPDATE holdfast.claims SET until = clock_timestamp() + interval '1 hour'"), "00000")
        row.acquire("refused", "lock")
        equal(row.failed("refused"), "WRONG_KIND")
        equal(renewal.say("COMMIT"), "00000")


@test
def an_attempt_that_starts_again_is_in_its_new_session():
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as one, \
            rows.session(name) as first, rows.session(name) as second:
        one.inspect("none")  # this makes the schema
        draw = ("SELECT answer FROM holdfast.draw('lock', 1, '00000000-0000-0000-0000-000000000001', 1, "
                "{0}, {1}, 0, 0, 0, '', '', '')")
        for session in first, second:  # whose transactions stay open
            session.say("BEGIN")
            session.say("SELECT txid_current(), pg_backend_pid()")
            xact, backend = session.rows[0].split("|")
            equal(rows.ask(name, draw.format(xact, backend)), "done")
        equal(rows.ask(name, "SELECT xact, backend FROM holdfast.sessions"), f"{xact}|{backend}")


@test("transaction", "statement")
def row_33_a_pooler_is_refused_with_the_reason(mode):
    with Postgres() as server, Pooler(server, mode) as pooler:
        with Puppet(PUPPET, rows.patient(server.url(port=pooler.port), scheme="for-update")) as one:
            def refused():
                one.acquire("lock", "lock")
                return one.failed("lock") == "UNSUPPORTED"
            wait_until(refused, "the pooler")


@test
def who_may_not_end_the_holders_session_cannot_break_its_lock():
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as one:
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        rows.server.command("DO $$BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END$$")
        rows.ask(name, "GRANT USAGE ON SCHEMA holdfast TO app")
        rows.ask(name, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO app")
        with Puppet(PUPPET, rows.url(name, user="app")) as other:
            equal(other.break_lock("lock", token), "DENIED")
            equal(one.check("lock"), "OK")
            rows.server.command("GRANT pg_signal_backend TO app")
            equal(other.break_lock("lock", token), "DENIED")  # a superuser's session
        with Puppet(PUPPET, rows.url(name)) as same:
            equal(same.break_lock("lock", token), "OK")
        one.lost("lock")


if __name__ == "__main__":
    with rows:
        main()
