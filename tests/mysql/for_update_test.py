#!/usr/bin/env python3
"""The MySQL store with scheme=for-update, on MariaDB: for_update_test.py HOLDFAST PUPPET. Tests for all databases are
in servers/for_update.py."""
import contextlib
import socket
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.for_update import Rows, command, for_update
from servers.mariadb import MariaDB, Shared, documented
from servers.puppet import Puppet
from servers.scene import LONG_MS, PUPPET, is_there, puppets, wait_until
from servers.suite import equal, main, test

WAITS = "info LIKE 'SELECT 1 FROM holdfast_rows%' AND info NOT LIKE '%SKIP%'"


class MariaDBRows(Rows, Shared):
    draw = "holdfast_draw"

    def waiting(self, name):
        return self.sessions(name, WAITS)

    def end_holder(self, name):
        self.server.command(f"KILL {self.ask(name, 'SELECT session FROM holdfast_sessions')}")

    def end_waiter(self, name):
        equal(self.end_sessions(name, WAITS), 1)


rows = MariaDBRows()
for_update.add(rows)


def waiting_query(name):
    """The number of the statement that waits; each has a different one."""
    return rows.server.command(f"SELECT query_id FROM information_schema.processlist WHERE db = '{name}' AND {WAITS}")


@test
def a_wait_that_the_server_ends_goes_on():
    with rows.fresh() as name, puppets(2, rows.url(name), wait_lease_ms=100) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS)
        two.acquire("lock", "lock", wait_ms=-1)
        rows.waits(name)
        first = waiting_query(name)
        wait_until(lambda: waiting_query(name) not in ("", first), "innodb_lock_wait_timeout")
        assert not is_there(two, "lock")
        equal(one.release("lock"), "OK")
        two.granted("lock")


@test
def row_37_a_token_that_is_drawn_too_late_is_not_used():
    with rows.fresh() as name, puppets(2, rows.url(name)) as (one, two):
        for puppet in (one, two):
            puppet.hold("before", "lock")
            equal(puppet.release("before"), "OK")
        with rows.session(name) as locker:
            equal((locker.say("BEGIN"), locker.say("SELECT 1 FROM holdfast_locks FOR UPDATE")), (0, 0))
            one.acquire("lock", "lock", wait_ms=-1)
            wait_until(lambda: drawing(name) == 1, "the draw of the first")
            with_row = rows.server.command("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx"
                                           " WHERE trx_state = 'RUNNING' AND trx_mysql_thread_id IN"
                                           f" ({','.join(rows.server.sessions(f'db = {name!r}'))})")
            rows.server.command(f"KILL {with_row}")
            two.acquire("lock", "lock", wait_ms=-1)
            equal(locker.say("COMMIT"), 0)
        wait_until(lambda: is_there(one, "lock") or is_there(two, "lock"), "a grant")
        first, second = (one, two) if is_there(one, "lock") else (two, one)
        token = first.granted("lock").token
        assert not is_there(second, "lock")
        equal(first.release("lock"), "OK")
        assert second.granted("lock").token > token


def drawing(name):
    return rows.sessions(name, "info LIKE '%holdfast_locks%' AND command = 'Query'")


@test
def a_lease_that_ends_while_it_is_renewed_still_counts():
    """The renewal has found it in time, and commits later."""
    with rows.fresh() as name, Puppet(PUPPET, rows.url(name)) as row, \
            Puppet(PUPPET, rows.url(name, scheme="lease")) as lease, rows.session(name) as renewal:
        lease.hold("lock", "lock", lease_ms=LONG_MS, flags="no_renew")
        equal(renewal.say("UPDATE holdfast_claims SET until_us = 1"), 0)  # it is over
        equal(renewal.say("BEGIN"), 0)
        equal(renewal.say("UPDATE holdfast_claims SET until_us = 9000000000000000"), 0)
        row.acquire("refused", "lock")
        equal(row.failed("refused"), "WRONG_KIND")
        equal(renewal.say("COMMIT"), 0)


class Numbering:
    """A stand-in for ProxySQL and MaxScale: a proxy that has its own numbers for its clients' sessions."""

    def __init__(self, port):
        self.server, self.listener = port, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.server))
                greeting = bytearray(server.recv(4096))
                at = greeting.index(0, 5) + 1  # after the version
                greeting[at:at + 4] = (123456).to_bytes(4, "little")
                client.sendall(greeting)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.copy, args=(source, target), daemon=True).start()

    @staticmethod
    def copy(source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


@test
def row_33_a_proxy_that_has_its_own_sessions_is_refused_with_the_reason():
    with rows.fresh() as name, Numbering(rows.server.port) as proxy:
        done = command(rows.url(name, port=proxy.port), "ls")
        assert done.returncode and "there is a proxy in between" in done.stderr, done
        with Puppet(PUPPET, rows.url(name, port=proxy.port)) as one:
            one.acquire("lock", "lock")
            equal(one.failed("lock"), "UNSUPPORTED")
        with Puppet(PUPPET, rows.url(name, port=proxy.port, scheme="lease")) as lease:
            lease.hold("lock", "lock")


@test
def who_may_not_end_the_holders_session_cannot_break_its_lock():
    with MariaDB() as server, Puppet(PUPPET, rows.patient(server.url(), scheme="for-update")) as one:
        token = one.hold("lock", "lock", lease_ms=LONG_MS).token
        server.command("CREATE USER app@'%' IDENTIFIED BY 'word';" + documented("rights"))
        url = rows.patient(server.url(user="app:word"), scheme="for-update")
        with Puppet(PUPPET, url) as other:
            other.hold("a", "other")
            equal((other.renew("a"), other.release("a")), ("OK", "OK"))
            equal(other.break_lock("lock", token), "DENIED")
            equal(one.check("lock"), "OK")
        server.command("GRANT CONNECTION ADMIN ON *.* TO app@'%'")
        with Puppet(PUPPET, url) as other:
            equal(other.break_lock("lock", token), "OK")
        one.lost("lock")


@test
def a_user_without_procedures_gets_the_same_locks():
    with rows.fresh() as name:
        rows.server.command(f"CREATE OR REPLACE USER plain@'%' IDENTIFIED BY 'word';"
                            f"GRANT CREATE, ALTER, SELECT, INSERT, UPDATE, DELETE ON {name}.* TO plain@'%'")
        with puppets(2, rows.url(name, user="plain:word")) as (one, two):
            token = one.hold("lock", "lock", lease_ms=LONG_MS).token
            two.acquire("lock", "lock", wait_ms=-1)
            rows.waits(name)
            equal(two.break_lock("lock", token), "OK")
            one.lost("lock")
            assert two.granted("lock").token > token


if __name__ == "__main__":
    with rows:
        main()
