#!/usr/bin/env python3
"""Runs node.js with a Redis server and npm's locks, which lie in the build directory, where the tests put them too:
node.py ADDON [ROUNDS]."""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[0] = str(TESTS)
from servers import npm

addon, *arguments = sys.argv[1:]
os.environ["NODE_PATH"] = str(npm.install(Path(addon).resolve().parent))
os.environ["HOLDFAST_ADDON"] = os.path.abspath(addon)
with_server = TESTS / "servers/redis.py"
os.execv(with_server, [with_server, "--", "node", HERE / "node.js", "{url}", "{port}", *arguments])
