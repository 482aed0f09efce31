#!/usr/bin/env python3
"""Counters in a MariaDB server: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import counting, run_adder
from servers.mariadb import MariaDB, Shared
from servers.suite import equal, main, test

store = Shared()
counting.add(store)


@test
def a_user_without_procedures_counts_too():
    with MariaDB() as server:
        server.command("CREATE USER plain@'%' IDENTIFIED BY 'word';"
                       "GRANT CREATE, ALTER, DROP, CREATE VIEW, SELECT, INSERT, UPDATE, DELETE ON locks.* TO plain@'%'")
        equal(run_adder(store.patient(server.url(user="plain:word")), "hits", 1, 3), 1 + 2 + 3)
        equal(server.command("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'locks'"), "0")


if __name__ == "__main__":
    with store:
        main()
