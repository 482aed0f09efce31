#!/usr/bin/env python3
"""Runs bench-quorum with a set of five servers and npm's locks: quorum.py BENCH_QUORUM [ARGUMENT...]. The packages of
npm lie in the build directory, where the tests put them too."""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[0] = str(TESTS)
from servers import npm

bench, *arguments = sys.argv[1:]
try:
    os.environ["NODE_PATH"] = str(npm.install(Path(bench).resolve().parents[1] / "tests"))
except npm.NpmError as error:
    print(f"without npm's locks: {error}", flush=True)
with_set = TESTS / "servers/redis.py"
os.execv(with_set, [with_set, "--nodes", "5", "--", bench, "{url}", HERE / "quorum_peers.js", *arguments])
