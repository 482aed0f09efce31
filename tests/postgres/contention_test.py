#!/usr/bin/env python3
"""A PostgreSQL server under contention: contention_test.py HOLDFAST PUPPET; see servers/contention.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.contention import contend
from servers.herd import jostle
from servers.postgres import Postgres
from servers.suite import equal, main, test


MAKE_OLD = """DO $$ BEGIN
    UPDATE holdfast.locks SET used_day = used_day - 100 WHERE name IN (
        SELECT name FROM holdfast.locks WHERE name >= 'old' AND name < 'ole' FOR UPDATE SKIP LOCKED);
EXCEPTION WHEN invalid_schema_name OR undefined_table THEN -- it is not there yet
END $$"""

MAKE_SLOW = """CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.025); RETURN NEW; END$$;
CREATE TRIGGER slowly BEFORE INSERT OR UPDATE OF until ON holdfast.claims FOR EACH ROW EXECUTE FUNCTION slowly()"""


@test
def nobody_misses_a_wake_up_and_there_is_no_deadlock():
    with Postgres() as server:
        contend(server.url(), lambda: server.command(MAKE_OLD))
        equal(server.command("SELECT sum(deadlocks) FROM pg_stat_database"), "0")
        assert "deadlock" not in server.log.read_text(), server.log.read_text()


@test
def many_waiters_of_a_slow_server_do_not_hold_up_its_hand_offs():
    with Postgres() as server:
        jostle(server.url(), lambda: server.command(MAKE_SLOW))


main()
