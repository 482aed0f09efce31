#!/usr/bin/env python3
"""A MariaDB server under contention: contention_test.py HOLDFAST PUPPET; see servers/contention.py."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.contention import contend
from servers.mariadb import MariaDB, MariaDBError
from servers.suite import equal, main, test


@test
def nobody_misses_a_wake_up_and_there_is_no_deadlock():
    with MariaDB(config=["--innodb-print-all-deadlocks"]) as server:
        def make_old():
            with contextlib.suppress(MariaDBError):  # before there is a schema
                server.command("".join(f"UPDATE holdfast_locks SET used_day = used_day - 100 WHERE name = 'old{number}';"
                                       for number in range(40)))

        contend(server.url(), make_old)
        equal(server.command("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1:], ["0"])
        assert b"WE ROLL BACK" not in server.log.read_bytes(), server.log.read_bytes()


main()
