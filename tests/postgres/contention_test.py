#!/usr/bin/env python3
"""A PostgreSQL server under contention: contention_test.py HOLDFAST PUPPET; see servers/contention.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.contention import contend
from servers.postgres import Postgres
from servers.suite import equal, main, test


MAKE_OLD = """DO $$ BEGIN
    UPDATE holdfast.locks SET used_day = used_day - 100 WHERE name IN (
        SELECT name FROM holdfast.locks WHERE name >= 'old' AND name < 'ole' FOR UPDATE SKIP LOCKED);
EXCEPTION WHEN invalid_schema_name OR undefined_table THEN -- it is not there yet
END $$"""


@test
def nobody_misses_a_wake_up_and_there_is_no_deadlock():
    with Postgres() as server:
        contend(server.url(), lambda: server.command(MAKE_OLD))
        equal(server.command("SELECT sum(deadlocks) FROM pg_stat_database"), "0")
        assert "deadlock" not in server.log.read_text(), server.log.read_text()


main()
