#!/usr/bin/env python3
"""Elections on the Redis store: election_test.py HOLDFAST PUPPET; see servers/election.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.election import fail_over
from servers.proxy import Proxy
from servers.redis import Redis
from servers.suite import main, test


@test
def two_leaders_never_both_have_time_left():
    with Redis() as server:
        fail_over(lambda port=None: server.url(port=port) + "?timeout=600", lambda: Proxy(server.port))


main()
