"""Failures that mean the same for several stores.

    faults.add(Somewhere())             # row_17 and so on, for any store with a server
    database_faults.add(Database())     # for stores in SQL databases

With such an object, a store says where a test keeps its locks: fresh() returns a new place for it, url(place) is its
URL, through `port` if that is a proxy's, and port() is the server's own. seen(name) is how a name looks in a request.
For a database, the object is also a servers.database.Shared.
"""
import contextlib
import shutil

from servers.process import LIMIT_S
from servers.proxy import Proxy
from servers.puppet import Puppet
from servers.scene import (KINDS, LONG_MS, PUPPET, SHIM, deadline_us, gathering, is_lost, is_there, one_of, outcome, patient,
                           puppets, sockets_of, use_once, wait_until)
from servers.suite import Tests, equal

WAIT_LEASE_MS = 1500  # a waiter asks again at a third of that
MANY = [f"name-{number}" for number in range(12)]

faults, database_faults = Tests(), Tests()


def holders(puppet, name):
    found = puppet.inspect(name)
    return found["holders"] if found else []


def waiters(puppet, name):
    found = puppet.inspect(name)
    return found["waiters"] if found else []


def hold_shortly(puppet, name):
    """Takes the lock with a lease that ends soon, and tries again if it was granted too late for that; returns it."""
    for number in range(20):
        puppet.acquire(number, name, lease_ms=1000, flags="no_renew", wait_ms=-1)
        if outcome(puppet, number) == "OK":
            return number
    raise AssertionError("the machine was too slow each time")


# ---- Messages ----


@faults.test(*KINDS)
def row_17_an_acquire_whose_reply_was_lost_finds_its_own_grant(store, kinds):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place, port=proxy.port)) as far, Puppet(PUPPET, store.url(place)) as near:
        far.hold("other", "other", lease_ms=LONG_MS)  # connects it, with a lease
        for wait_ms in (0, -1):
            lock = f"lock{wait_ms}"
            proxy.refuse()  # so that it is not repeated yet
            dropped = proxy.drop_reply_to(store.seen(lock), hang_up=False)
            far.acquire(lock, lock, kind=KINDS[kinds][0], lease_ms=LONG_MS, wait_ms=wait_ms)
            assert dropped.wait(LIMIT_S)
            wait_until(lambda: holders(near, lock), "the grant")
            token = holders(near, lock)[0].token
            proxy.accept()
            one_of(far.granted(lock).token - token, range(1 << 40))  # a repeat may raise it
            equal(far.check(lock), "OK")
            equal(len(holders(near, lock)), 1)
            near.acquire(lock, lock, kind=KINDS[kinds][1])
            equal(near.failed(lock), "BUSY")
            equal(far.release(lock), "OK")
            equal((holders(near, lock), waiters(near, lock)), ([], []))


@faults.test
def row_17_a_release_whose_reply_was_lost_is_done(store):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place, port=proxy.port)) as far, Puppet(PUPPET, store.url(place)) as near:
        far.hold("lock", "the-lock", lease_ms=LONG_MS)
        dropped = proxy.drop_reply_to(store.seen("the-lock"))
        far.send("release", "lock")
        assert dropped.wait(LIMIT_S)
        one_of(far.wait("released lock").words[2], ("OK", "UNKNOWN"))
        near.hold("lock", "the-lock")


@faults.test
def row_19_a_late_release_does_not_touch_the_next_owner(store):
    with store.fresh() as place, puppets(2, store.url(place)) as (one, two):
        late = hold_shortly(one, "lock")
        one.lost(late)
        token = two.hold("b", "lock", wait_ms=-1).token
        one_of(one.release(late), ("LOST", "NOT_YOURS"))
        equal([party.token for party in holders(two, "lock")], [token])
        equal(two.renew("b"), "OK")


@faults.test
def row_23_an_outage_shorter_than_the_lease_loses_nothing(store):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place)) as near, \
            Puppet(PUPPET, store.url(place, port=proxy.port, timeout_ms=2000)) as far:
        near.inspect("none")  # makes the schema, in a database
        far.hold("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
        proxy.refuse()
        proxy.reset()
        one_of(far.renew("lock"), ("UNREACHABLE", "UNKNOWN"))
        proxy.accept()
        wait_until(lambda: far.renew("lock") == "OK", "a renewal")
        assert not is_lost(far, "lock")
        equal(far.release("lock"), "OK")


@faults.test("up", "down")
def row_24_a_renewal_that_arrives_with_the_release_does_nothing(store, direction):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place, port=proxy.port)) as far, Puppet(PUPPET, store.url(place)) as near:
        far.hold("lock", "lock", lease_ms=LONG_MS)
        proxy.hold(direction)
        far.send("renew", "lock", 0)
        proxy.wait(lambda: proxy.held[direction] > 0)
        far.send("release", "lock")
        far.wait("renewed lock RELEASED")
        proxy.let_go()
        equal(far.wait("released lock").words[2], "OK")
        equal(holders(near, "lock"), [])
        near.hold("lock", "lock")


@faults.test
def row_40_connections_are_closed_on_exec(store):
    with store.fresh() as place, puppets(2, store.url(place)) as (one, two):
        one.hold("a", "lock", lease_ms=LONG_MS)
        two.acquire("b", "lock", wait_ms=-1)
        wait_until(lambda: len(waiters(one, "lock")) == 1, "the waiter")
        wait_until(lambda: len(sockets_of(two.pid)) >= store.connections, "its connections")
        equal(set(sockets_of(two.pid).values()), {True})


@database_faults.test
def row_2_a_grant_that_arrives_after_its_lease_is_not_used(store):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place, port=proxy.port)) as one, Puppet(PUPPET, store.url(place)) as two:
        one.inspect("none")  # it is connected
        proxy.hold("down")
        one.acquire("a", "lock", lease_ms=1500)
        proxy.wait(lambda: proxy.held["down"] > 0)
        one.stop()
        token = two.hold("b", "lock", wait_ms=-1).token  # the server did grant it to the first
        proxy.let_go()
        proxy.wait(lambda: proxy.held["down"] == 0)
        one.cont()
        equal(one.failed("a"), "SHORT")
        equal(two.renew("b"), "OK")
        equal([party.token for party in holders(two, "lock")], [token])


@database_faults.test
def row_22_a_lost_wake_up_is_repaired(store):
    with store.fresh() as place, puppets(2, store.url(place), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiters(one, "lock"), "the waiter")
        wait_until(lambda: store.end_sessions(place, store.listens), "somebody who listens")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@database_faults.test
@patient
def row_34_a_connection_that_goes_silent_frees_its_lock_after_the_lease(store):
    with store.fresh() as place, Proxy(store.port()) as proxy, \
            Puppet(PUPPET, store.url(place), wait_lease_ms=WAIT_LEASE_MS) as near, \
            Puppet(PUPPET, store.url(place, port=proxy.port, timeout_ms=3000)) as far:
        near.inspect("none")  # the schema is there
        token = far.hold("lock", "lock", lease_ms=6000).token
        near.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: waiters(near, "lock"), "the waiter")
        proxy.blackhole()
        earliest_us, _ = deadline_us(far, "lock")
        far.lost("lock")
        grant = near.granted("lock")
        assert grant.token > token and grant.at_us >= earliest_us, (grant, token, earliest_us)
        equal(far.check("lock"), "LOST")
        proxy.pass_all()
        equal(far.release("lock"), "LOST")
        equal(near.renew("lock"), "OK")


# ---- Requests that share a transaction ----


@contextlib.contextmanager
def many(store):
    """A database where MANY names have been used before; a proxy, and a puppet behind it."""
    with store.fresh() as place, Proxy(store.port()) as proxy, Puppet(PUPPET, store.url(place, port=proxy.port)) as far:
        use_once(far, MANY)
        yield place, proxy, far


def holder_count(store, place):
    return int(store.ask(place, f"SELECT count(*) FROM {store.claims} WHERE state = 1 AND name LIKE 'name-%'"))


@database_faults.test
def requests_that_have_gathered_share_a_transaction(store):
    with many(store) as (place, proxy, far):
        with gathering(proxy, far):
            for lock in MANY:
                far.acquire(lock, lock, lease_ms=LONG_MS)
        tokens = {lock: far.granted(lock).token for lock in MANY}
        equal(holder_count(store, place), len(MANY))
        equal(store.ask(place, f"SELECT count(DISTINCT {store.transaction}) FROM {store.claims} WHERE name LIKE 'name-%'"), "1")
        for lock in MANY:
            equal(int(store.ask(place, f"SELECT token FROM {store.locks} WHERE name = '{lock}'")), tokens[lock])
            far.send("release", lock)
        for lock in MANY:
            equal(far.wait(("released", lock)).words[2], "OK")
        equal(holder_count(store, place), 0)


@database_faults.test
def what_cannot_be_done_at_once_does_not_hold_up_the_others(store):
    held, locked, twice, new = MANY[0], MANY[1], MANY[2], "new"
    with many(store) as (place, proxy, far), Puppet(PUPPET, store.url(place)) as near, store.session(place) as locker:
        near.hold("held", held)
        locker.say("BEGIN")
        locker.say(f"SELECT 1 FROM {store.locks} WHERE name = '{locked}' FOR UPDATE")
        equal(locker.rows, ["1"])
        with gathering(proxy, far):
            for lock in [*MANY, new]:
                far.acquire(lock, lock, lease_ms=LONG_MS, wait_ms=-1)
            far.acquire("again", twice, wait_ms=-1)
        for lock in set(MANY) - {held, locked, twice, new}:
            far.granted(lock)
        locker.say("COMMIT")
        for lock in (locked, twice, new):
            far.granted(lock)
        wait_until(lambda: waiters(near, held) and waiters(near, twice), "the waiters")
        equal(near.release("held"), "OK")
        far.granted(held)
        equal(far.release(twice), "OK")
        far.granted("again")


@database_faults.test
def releases_that_wait_for_their_turn_are_sent_when_the_client_closes(store):
    with many(store) as (place, proxy, far):
        for lock in MANY:
            far.hold(lock, lock, lease_ms=LONG_MS)
        proxy.hold("down")  # no release is answered
        for lock in MANY:
            far.send("release", lock)
        far.close()
        wait_until(lambda: holder_count(store, place) == 0, "the releases")


@database_faults.test
def row_17_requests_that_shared_a_transaction_whose_reply_was_lost_are_done_once(store):
    with many(store) as (place, proxy, far), Puppet(PUPPET, store.url(place)) as near:
        with gathering(proxy, far):
            for lock in MANY:
                far.acquire(lock, lock, lease_ms=LONG_MS)
            dropped = proxy.drop_reply_to(f"{store.prefix}acquire_free")
        assert dropped.wait(LIMIT_S)
        tokens = {lock: far.granted(lock).token for lock in MANY}
        equal(holder_count(store, place), len(MANY))
        for lock in MANY:
            equal([party.token for party in holders(near, lock)], [tokens[lock]])
        equal(far.release("first"), "OK")
        far.free("first")
        with gathering(proxy, far):
            for lock in MANY:
                far.send("release", lock)
            dropped = proxy.drop_reply_to(f"{store.prefix}release_quiet")
        assert dropped.wait(LIMIT_S)
        for lock in MANY:
            one_of(far.wait(("released", lock)).words[2], ("OK", "UNKNOWN"))
        equal(holder_count(store, place), 0)


# ---- The server ----


def hold_and_wait(one, two):
    """One holds a lock of each kind, and the other waits for all; returns the tokens."""
    tokens = {lock: one.hold(lock, lock, kind=KINDS[lock][0], lease_ms=LONG_MS).token for lock in KINDS}
    for lock, (_, kind) in KINDS.items():
        two.acquire(lock, lock, kind=kind, wait_ms=-1)
    wait_until(lambda: all(waiters(one, lock) for lock in KINDS), "waiters")
    return tokens


@database_faults.test
def row_35_a_lock_outlives_the_connections_of_its_holder(store):
    with store.fresh() as place, puppets(2, store.url(place), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = hold_and_wait(one, two)
        for _ in range(3):
            assert store.end_sessions(place) > 0
            for lock in KINDS:
                one_of(one.renew(lock), ("OK", "UNREACHABLE"))  # the server may also end the next connection
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal")
            assert not is_lost(one, lock)
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@database_faults.test
def row_8_a_crash_of_the_server_loses_no_lock(store):
    with store.new_server() as server, puppets(2, store.patient(server.url()), wait_lease_ms=WAIT_LEASE_MS) as (one, two):
        tokens = hold_and_wait(one, two)
        server.crash()
        server.start()
        for lock, token in tokens.items():
            wait_until(lambda: one.renew(lock) == "OK", "a renewal")
            assert not is_there(two, lock), lock
            equal(one.release(lock), "OK")
            assert two.granted(lock).token > token


@database_faults.test
def row_15_a_full_disk_refuses_new_locks_and_keeps_those_that_are_held(store):
    with store.fresh() as place, puppets(2, store.url(place)) as (one, two):
        one.hold("held", "held", lease_ms=LONG_MS)
        store.ask(place, store.fill)
        two.acquire("lock", "lock")
        equal(two.failed("lock"), "STORE_FULL")
        equal(one.renew("held"), "OK")
        equal(one.release("held"), "OK")
        store.ask(place, store.make_room)
        two.hold("again", "lock")


@database_faults.test
def row_13_what_is_deleted_is_reported_and_not_made_again(store):
    for what in (f"DELETE FROM {store.claims}", store.drop_all):
        with store.fresh() as place, puppets(2, store.url(place)) as (one, two):
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            store.ask(place, what)
            wait_until(lambda: one.renew("lock") == "LOST", "the loss")
            one.lost("lock")
            equal(store.ask(place, f"SELECT count(*) FROM {store.claims}"), "0")
            assert two.hold("lock", "lock").token > token


@database_faults.test
def row_13_what_was_dropped_is_made_again_at_once(store):
    with store.fresh() as place, Puppet(PUPPET, store.url(place)) as one:
        for number, what in enumerate(store.droppable):
            one.inspect("none")  # it is connected
            store.ask(place, f"DROP {what}")
            one.hold(number, "lock")
            equal(one.release(number), "OK")


@database_faults.test
def a_request_that_was_given_up_leaves_no_session_behind(store):
    with store.fresh() as place, Puppet(PUPPET, store.url(place)) as other, \
            Puppet(PUPPET, store.url(place, timeout_ms=1000)) as one:
        other.hold("first", "lock")  # this makes the schema, which may take longer
        equal(other.release("first"), "OK")
        other.close()
        with store.session(place) as locker:
            locker.say("BEGIN")
            locker.say(f"SELECT 1 FROM {store.locks} FOR UPDATE")
            equal(locker.rows, ["1"])
            for number in range(3):
                one.acquire(number, "lock")
                one_of(one.failed(number), ("UNKNOWN", "UNREACHABLE", "TIMEOUT"))
            wait_until(lambda: store.sessions(place) <= 2, "the end of the sessions that were given up")


@database_faults.test
def a_deadlock_with_somebody_elses_statements_is_repeated(store):
    with store.fresh() as place, Puppet(PUPPET, store.url(place)) as one, store.session(place) as other:
        one.inspect("none")  # the schema is there
        store.ask(place, "CREATE TABLE many (number INT)")
        for lock in range(5):
            before = store.deadlocks(place)
            one.hold(lock, "lock", lease_ms=LONG_MS)
            other.say("BEGIN")
            other.say(f"INSERT INTO many VALUES {','.join(['(1)'] * 500)}")  # the session that has written less is rolled back
            other.say(f"SELECT 1 FROM {store.claims} WHERE name = 'lock' FOR UPDATE")
            one.send("release", lock)
            wait_until(lambda: store.waits_for_row(place), "the release waits")
            error = other.say(f"SELECT 1 FROM {store.locks} WHERE name = 'lock' FOR UPDATE")
            other.say("COMMIT")
            equal(one.wait(("released", lock)).words[2], "OK")
            wait_until(lambda: store.deadlocks(place) > before, "the server counts the deadlock")
            if error == store.fine:
                return
        raise AssertionError("the release was never rolled back")


@database_faults.test
def two_who_make_the_schema_at_once_both_succeed(store):
    with store.fresh() as place, puppets(6, store.url(place)) as every:
        for puppet in every:
            puppet.acquire("lock", "lock", kind="shared")
        for puppet in every:
            puppet.granted("lock")


@database_faults.test
def row_16_a_restored_copy_does_not_turn_tokens_back(store):
    with store.new_server() as server, Puppet(PUPPET, store.patient(server.url())) as one:
        one.hold("before", "lock")
        equal(one.release("before"), "OK")
        server.shut_down()
        copy = server.folder / "copy"
        shutil.copytree(server.data, copy)
        server.start()
        for number in range(3):
            token = one.hold(number, "lock").token
            equal(one.release(number), "OK")
        server.shut_down()
        server.restore(copy)
        server.start()
        assert int(server.command(f"SELECT token FROM {store.locks}")) < token, "it was not restored"
        assert one.hold("after", "lock").token > token
        equal(one.release("after"), "OK")
        floor = token + 1000000000
        with Puppet(PUPPET, store.patient(server.url()), token_floor=floor) as two:
            assert two.hold("lock", "lock").token >= floor
            equal(two.release("lock"), "OK")
        assert one.hold("last", "lock").token > floor


# ---- Clocks ----


@database_faults.test
def row_4_a_clock_that_steps_forward_ends_leases_and_tokens_still_rise(store):
    with store.new_server(clock=SHIM) as server, puppets(2, store.patient(server.url())) as (one, two):
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.clock.change(step_us=LONG_MS * 2000)
        assert two.hold("lock", "lock").token > token
        equal(one.renew("lock"), "LOST")


@database_faults.test
def row_5_a_clock_that_steps_back_is_an_error_of_its_own(store):
    with store.new_server(clock=SHIM) as server, \
            puppets(2, store.patient(server.url()), max_lease_ms=LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        server.clock.change(step_us=-LONG_MS * 60 * 1000)
        two.acquire("lock", "lock")
        equal(two.failed("lock"), "CLOCK")
