#!/usr/bin/env python3
"""`holdfast lab`, with a few of its cells: what they show, and that nothing is left behind."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.suite import equal, main, test

suite.LIMIT_S = 240
HOLDFAST = os.path.abspath(sys.argv[1])
LIMIT_S = 200
EXIT_NOT_INSTALLED = 78

# The textbook cases, and holdfast beside them.
EXPECTED = {
    "crash-between": {"setnx-expire": "stalls", "set-lua": "holds", "holdfast@redis": "holds", "holdfast@sqlite": "n/a"},
    "stranger": {"setnx-expire": "breaks", "set-lua": "holds", "holdfast@redis": "holds", "holdfast@sqlite": "holds"},
    "pause": {"setnx-expire": "breaks", "set-lua": "breaks", "holdfast@redis": "fenced", "holdfast@sqlite": "fenced"},
}


def lab(*words, **options):
    """(exit code, stdout, stderr)"""
    done = subprocess.run([HOLDFAST, "lab", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def chosen(expected):
    rows = dict.fromkeys(row for cells in expected.values() for row in cells)
    return [*(f"--scenario={name}" for name in expected), *(f"--protocol={name}" for name in rows)]


@test
def flaws_show_and_holdfast_holds():
    code, out, errors = lab("matrix", "--json", *chosen(EXPECTED))
    found = {scenario: {} for scenario in EXPECTED}
    for result in map(json.loads, out.splitlines()):
        found[result["scenario"]][result["row"]] = result["verdict"]
    equal((found, code), (EXPECTED, 0))
    assert "12 of 12 cells" in errors, errors


@test
def a_client_in_java_and_one_with_a_process_of_its_own_are_stopped_in_the_middle():
    code, out, _ = lab("matrix", "--json", "--scenario=pause", "--protocol=curator", "--protocol=etcdctl")
    equal(({result["row"]: result["verdict"] for result in map(json.loads, out.splitlines())}, code),
          ({"curator": "breaks", "etcdctl": "breaks"}, 0))


@test
def one_cell_is_told_in_words():
    code, out, _ = lab("run", "stranger", "setnx")
    equal(code, 0)
    for words in ("B calls unlock, though it never had the lock", "C has the lock", "^ two at once", "stranger, setnx: BREAKS. "):
        assert words in out, out


@test
def a_pool_lends_the_lock_to_another_thread():
    code, out, errors = lab("run", "--json", "pool", "for-update")
    assert code == 0, errors
    result = json.loads(out)
    equal((result["actors"], result["verdict"]), (["A", "B"], "breaks"))


# ---- What is left ----


def processes(session):
    """The names of the processes in this session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, words = path.read_text().partition("(")[2].rsplit(")", 1)
            state, _, _, its_session, *_ = words.split()
            if int(its_session) == session and state not in "ZX":
                found.append(name)
    return sorted(found)


def wait_until(condition, what):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what()}"
        time.sleep(0.05)


@test("INT", "TERM", "KILL")
def nothing_is_left_of_a_lab_that_is_ended_by_a_signal(name):
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        words = ["matrix", "--json", "--repeat=5", "--scenario=long-work", "--protocol=set-lua", "--protocol=holdfast@redis"]
        with subprocess.Popen([HOLDFAST, "lab", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True, env=os.environ | {"TMPDIR": folder}) as started:
            # The lab, its cells and their clients, and a server.
            wait_until(lambda: "redis-server" in processes(started.pid) and len(processes(started.pid)) >= 6,
                       lambda: processes(started.pid))
            number = signal.Signals[f"SIG{name}"]
            started.send_signal(number)
            code = started.wait(LIMIT_S)
        wait_until(lambda: not processes(started.pid), lambda: processes(started.pid))
        if name != "KILL":
            equal((code, os.listdir(folder)), (128 + number, []))


# ---- What is missing ----


@contextlib.contextmanager
def path_without(program):
    """A PATH in which everything is found except this."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        for path in os.environ["PATH"].split(":"):
            for entry in os.scandir(path) if os.path.isdir(path) else ():
                with contextlib.suppress(FileExistsError):
                    os.symlink(entry.path, f"{folder}/{entry.name}")
        os.unlink(f"{folder}/{program}")
        yield os.environ | {"PATH": folder}


@test
def a_server_that_is_not_installed_leaves_a_gap_with_its_package():
    with path_without("redis-server") as environment:
        code, out, _ = lab("matrix", "--json", "--scenario=stranger", "--protocol=setnx", "--protocol=holdfast@sqlite",
                           env=environment)
        cells = {result["row"]: (result["verdict"], result["sentence"]) for result in map(json.loads, out.splitlines())}
        equal((cells["setnx"], cells["holdfast@sqlite"][0], code), (("gap", "not installed: redis-server"), "holds", 0))
        code, out, _ = lab("run", "stranger", "setnx", env=environment)
        equal((code, "not installed: redis-server" in out), (EXIT_NOT_INSTALLED, True))
        assert "(not installed: redis-server)" in lab("list", env=environment)[1]


main()
