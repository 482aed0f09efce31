#!/usr/bin/env python3
"""A MariaDB server under contention: contention_test.py HOLDFAST PUPPET; see servers/contention.py."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.contention import contend
from servers.herd import jostle
from servers.mariadb import MariaDB, MariaDBError
from servers.suite import equal, main, test

MAKE_SLOW = """CREATE TRIGGER slow_insert BEFORE INSERT ON holdfast_claims FOR EACH ROW DO SLEEP(0.025);
CREATE TRIGGER slow_update BEFORE UPDATE ON holdfast_claims FOR EACH ROW
    SET NEW.label = IF(NEW.until_us <> OLD.until_us AND SLEEP(0.025), NEW.label, NEW.label)"""


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


@test
def many_waiters_of_a_slow_server_do_not_hold_up_its_hand_offs():
    with MariaDB() as server:
        jostle(server.url(), lambda: server.command(MAKE_SLOW))


main()
