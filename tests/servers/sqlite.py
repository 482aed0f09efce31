#!/usr/bin/env python3
"""A database for tests: a file in a folder that is made for it and removed.

    tests/servers/sqlite.py -- program arguments

It runs the program: every {url} in its arguments becomes the database's URL, every {folder} its folder, and its exit
status is passed on."""
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory(prefix="holdfast-sqlite-") as folder:
    url = f"sqlite:{folder}/locks.db"
    words = sys.argv[sys.argv.index("--") + 1:]
    sys.exit(subprocess.run([word.replace("{url}", url).replace("{folder}", folder) for word in words], check=False).returncode)
