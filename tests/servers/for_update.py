"""The tests of scheme=for-update, where a hold is a row lock that ends with its connection, on any database that has
this scheme.

    for_update.add(PostgresRows())

With such an object (Rows), a database says how to query it and how to end its sessions.
"""
import os
import subprocess
from abc import ABC, abstractmethod

from servers.doctor import doctor, severities
from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import (HOLDFAST, LONG_MS, PUPPET, deadline_us, is_there, one_of, patient, puppets, wait_until)
from servers.suite import Tests, equal

WAIT_LEASE_MS = 1500
KINDS = {"exclusive": ("exclusive", "exclusive"), "shared": ("shared", "exclusive"), "writer": ("exclusive", "shared")}

for_update = Tests()


class Rows(ABC):
    """A servers.database.Shared with what these tests need in addition."""

    draw = ""  # a part of the query that draws a token

    def url(self, name, scheme="for-update", **options):
        return super().url(name, scheme=scheme, **options)

    @abstractmethod
    def waiting(self, name):
        """How many sessions wait for a row."""

    @abstractmethod
    def end_holder(self, name):
        """Ends the session of the one holder."""

    @abstractmethod
    def end_waiter(self, name):
        """Ends the session of the one waiter."""

    def waits(self, name, count=1):
        wait_until(lambda: self.waiting(name) == count, f"{count} waiting")


def command(url, *words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "PG"))}
    return subprocess.run([HOLDFAST, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          env=environment | {"HOLDFAST_URL": url, "XDG_CONFIG_HOME": "/nonexistent"},
                          stdin=subprocess.DEVNULL)


# ---- A hold ends with its connection ----


@for_update.test(*KINDS)
def a_holder_that_is_killed_is_succeeded_at_once(rows, kinds):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        token = one.hold("lock", "lock", kind=KINDS[kinds][0], lease_ms=LONG_MS).token
        two.acquire("lock", "lock", kind=KINDS[kinds][1], wait_ms=-1)
        rows.waits(name)
        one.kill()
        assert two.granted("lock").token > token
        equal(len(two.inspect("lock")["holders"]), 1)


@for_update.test
def row_35_a_session_that_is_ended_is_a_loss_that_is_reported_at_once(rows):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        two.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        rows.end_holder(name)
        one.lost("lock")
        assert two.granted("lock").token > token
        one_of(one.release("lock"), ("LOST", "NOT_YOURS"))
        equal(two.renew("lock"), "OK")


@for_update.test
@patient
def row_34_a_connection_that_goes_silent_frees_its_lock_after_the_lease(rows):
    with rows.fresh() as name, Proxy(rows.port()) as proxy, Puppet(PUPPET, rows.url(name)) as near, \
            Puppet(PUPPET, rows.url(name, port=proxy.port)) as far:
        token = far.hold("lock", "lock", lease_ms=4000).token
        near.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        proxy.blackhole()
        earliest_us, _ = deadline_us(far, "lock")
        far.lost("lock")
        grant = near.granted("lock")
        assert grant.token > token and grant.at_us >= earliest_us, (grant, token, earliest_us)
        equal(far.check("lock"), "LOST")


@for_update.test
@patient
def row_1_who_was_stopped_past_its_lease_knows_it_at_once(rows):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        token = one.hold("lock", "lock", lease_ms=2000).token
        deadline_us(one, "lock")
        one.stop()
        assert two.hold("lock", "lock", wait_ms=-1).token > token
        one.cont()
        equal(one.check("lock"), "LOST")


@for_update.test
def a_waiter_that_is_stopped_costs_its_wait_lease(rows):
    with rows.fresh() as name, puppets(3, rows.url(name), wait_lease_ms=WAIT_LEASE_MS) as (one, two, three):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        for number, puppet in enumerate((two, three), 1):
            puppet.acquire("lock", "lock", wait_ms=-1)
            rows.waits(name, number)
        two.stop()
        equal(one.release("lock"), "OK")
        three.granted("lock")
        two.cont()


@for_update.test
def a_crash_of_the_server_is_a_loss_that_is_reported(rows):
    with rows.new_server() as server, puppets(2, rows.patient(server.url(), scheme="for-update")) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.crash()
        one.lost("lock")
        server.start()
        assert two.hold("lock", "lock").token > token


@for_update.test
def an_acquire_whose_token_was_not_answered_leaves_nothing_behind(rows):
    with rows.fresh() as name, Proxy(rows.port()) as proxy, \
            Puppet(PUPPET, rows.url(name, port=proxy.port)) as far, Puppet(PUPPET, rows.url(name)) as near:
        far.inspect("none")  # connects it
        dropped = proxy.drop_reply_to(rows.draw)
        far.acquire("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
        assert dropped.wait(LIMIT_S)
        token = far.granted("lock").token
        equal([party.token for party in near.inspect("lock")["holders"]], [token])
        equal(far.release("lock"), "OK")
        assert near.hold("lock", "lock").token > token


@for_update.test
def a_session_that_ended_while_nobody_needed_it_is_replaced(rows):
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as one:
        for number in range(3):
            one.hold(number, "lock")
            equal(one.release(number), "OK")
            rows.end_sessions(name)


# ---- Waiting ----


@for_update.test
def who_gives_up_waiting_leaves_the_servers_queue(rows):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        two.cancel("lock")
        equal(two.failed("lock"), "CANCELLED")
        rows.waits(name, 0)
        equal(one.release("lock"), "OK")


@for_update.test
def a_waiter_whose_session_is_ended_asks_again(rows):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        rows.end_waiter(name)
        rows.waits(name)
        assert not is_there(two, "lock")
        equal(one.release("lock"), "OK")
        two.granted("lock")


# ---- Refusals and reports ----


@for_update.test
def a_name_is_used_with_one_scheme_at_a_time(rows):
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as row, \
            Puppet(PUPPET, rows.url(name, scheme="lease")) as lease:
        row.hold("lock", "lock")
        lease.acquire("lock", "lock")
        equal(lease.failed("lock"), "WRONG_KIND")
        token = row.inspect("lock")["holders"][0].token
        equal(row.release("lock"), "OK")
        assert lease.hold("again", "lock").token > token
        row.acquire("refused", "lock")
        equal(row.failed("refused"), "WRONG_KIND")
        equal(lease.release("again"), "OK")
        row.hold("last", "lock", wait_ms=-1)  # the session that was refused may not have ended yet


@for_update.test
def what_outlives_its_client_is_not_protected_by_a_connection(rows):
    with rows.fresh() as name:
        done = command(rows.url(name), "run", "lock", "--", "true")
        assert done.returncode and "ends with the connection" in done.stderr, done
        done = command(rows.url(name, scheme="nonsense"), "ls")
        assert done.returncode and "scheme=nonsense" in done.stderr, done


@for_update.test
def the_doctor_says_that_a_lock_ends_with_its_connection(rows):
    with rows.fresh() as name:
        _, found, answer = doctor(rows.url(name))
        equal(answer["tier"], "best effort")
        equal(severities(found)["scheme"], "warning")


@for_update.test
def ls_and_inspect_show_holders_without_a_time(rows):
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        token = one.hold("lock", "lock", kind="shared").token
        other = two.hold("lock", "lock", kind="shared").token
        equal(sorted((party.token, party.left_ms) for party in one.inspect("lock")["holders"]),
              sorted([(token, -1), (other, -1)]))
        listed = command(rows.url(name), "ls").stdout
        assert "lock" in listed, listed
        one.kill()
        wait_until(lambda: [party.token for party in two.inspect("lock")["holders"]] == [other], "its end")
