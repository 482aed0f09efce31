#!/usr/bin/env python3
"""Counters in a MariaDB server: count_test.py HOLDFAST PUPPET; see servers/counting.py."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.counting import counting
from servers.mariadb import Shared
from servers.suite import main

store = Shared()
counting.add(store)

if __name__ == "__main__":
    with store:
        main()
