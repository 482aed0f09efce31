"""Lines on standard error: for a journal, for programs, and with -v."""
import json
import os
import sqlite3
import subprocess
import time

import harness
from harness import (contains, environment, equal, finish, main, matches, read_line, run, start, test,
                     with_longer_leases)


def hold(name):
    holder = start("run", name, "sh", "-c", "echo; exec sleep 1000")
    read_line(holder.stdout)


def run_in_journal(*words):
    """The exit code and what is written, when standard error is the stream that systemd names."""
    reader, writer = os.pipe()
    info = os.fstat(writer)
    env = environment(JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}")
    process = start(*words, env=env, stderr=writer)
    os.close(writer)
    code = finish(process)[0]
    with open(reader, encoding="utf-8") as file:
        return code, file.read()


# Commands, their exit code and level.
LINES = ((("run", "-n", "x", "true"), 75, "warning"),
         (("run", "y", "sh", "-c", "kill -KILL $$"), 137, "warning"),
         (("run", "y", "/no/such/command"), 127, "error"),
         (("run", "y", "--max-hold", "200ms", "sleep", "1000"), 124, "error"),
         (("run", "y", "--warn-after", "0", "sleep", "2"), 0, "warning"),
         (("run", "-v", "y", "true"), 0, "info"),
         (("run", "y", "--url", "sqlite:/no/such/folder/db", "true"), 69, "error"),
         (("acquire", "-n", "x", "--for", "1m"), 75, "warning"))
LEVELS = {"error": 3, "warning": 4, "info": 6}


@test
def every_line_names_the_lock():
    hold("x")
    for words, code, _ in LINES:
        actual, _, err = run(*words)
        equal((words, actual), (words, code))
        assert err, words
        for line in err.splitlines():
            matches(line, r"^holdfast: .*\b[xy]\b")


@test
def lines_for_a_journal_begin_with_their_priority():
    hold("x")
    for words, code, level in LINES:
        actual, err = run_in_journal(*words)
        equal((words, actual), (words, code))
        for line in err.splitlines():
            assert line.startswith(f"<{LEVELS[level]}>holdfast: "), line
    env = environment(JOURNAL_STREAM="1:2")  # somebody's stream, but not our standard error
    assert finish(start("run", "-n", "x", "true", env=env))[2].startswith("holdfast: ")


@test
def log_json_is_one_object_for_each_line():
    hold("x")
    before_ms = time.time() * 1000 - 1000
    for words, code, level in LINES:
        actual, _, err = run("--log", "json", *words)
        equal((words, actual), (words, code))
        for line in err.splitlines():
            found = json.loads(line)
            equal(list(found), ["at_ms", "level", "lock", "message"])
            equal((found["level"], found["lock"]), (level, words[words.index("x" if "x" in words else "y")]))
            assert before_ms < found["at_ms"] < time.time() * 1000 + 1000
            assert not found["message"].startswith("holdfast"), found
    code, out, err = run("--log=json", "run", "-n", "x", "--report", "report", "true")
    equal((code, out, json.loads(err)["message"]),
          (75, "", json.load(open(f"{harness.folder}/report", encoding="utf-8"))["message"]))
    assert json.loads(run("--log", "json", "ls", "--no-such")[2])["lock"] is None
    assert run_in_journal("--log", "json", "run", "-n", "x", "true")[1].startswith('<4>{"at_ms":')
    equal(run("--log", "xml", "ls")[0], 64)


@test
def log_is_a_setting_too():
    os.makedirs(f"{harness.folder}/config/holdfast")
    with open(f"{harness.folder}/config/holdfast/config", "w", encoding="utf-8") as file:
        file.write("log = json\n")
    hold("x")
    equal(json.loads(run("run", "-n", "x", "true")[2])["lock"], "x")
    contains(run("--log", "text", "run", "-n", "x", "true")[2], "holdfast: did not acquire x")


@test
def json_is_refused_where_it_means_nothing():
    for words in (("run", "x", "true"), ("acquire", "x", "--for", "1m"), ("release",), ("demo",), ("help",),
                  ("fence", "check", "file", "x", "1"), ("completion", "bash")):
        for line in (("--json", *words), (words[0], "--json", *words[1:])):
            code, out, err = run(*line)
            equal((line, code, out.replace("(exit 64)\n", "")), (line, 64, ""))
            contains(err, f"--json cannot be used with {words[0]}")
        assert "--json" not in run("help", words[0])[1].split("Options of every command")[1].split("\n\n")[0]
    for words in (("ls",), ("inspect", "x"), ("stores",), ("version",), ("config", "show"), ("doctor",)):
        json.loads(run(*words, "--json")[1] or "{}")
    contains(run("help")[1], "--json")


def check_failed_renewal(ttl_s):
    process = start("run", "-v", "--ttl", f"{ttl_s}s", "x", "sh", "-c", "echo; read line; exit 0",
                    stdin=subprocess.PIPE)
    read_line(process.stdout)
    contains(read_line(process.stderr), "acquired x (token ")
    store = sqlite3.connect(f"{harness.folder}/locks.db", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")
    matches(read_line(process.stderr), r"^holdfast: cannot renew x \(.+\); trying again, \d+s left$")
    store.close()
    while "renewed x again" not in (line := read_line(process.stderr)):
        contains(line, "cannot renew x")
    process.stdin.close()
    contains(read_line(process.stderr), "released x")
    equal(process.wait(timeout=harness.PATIENCE_S), 0)


@test
def a_renewal_that_fails_and_is_repeated_is_reported_with_v():
    with_longer_leases(check_failed_renewal, leases=(24, 57))


main()
