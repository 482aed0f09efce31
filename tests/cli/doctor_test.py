"""holdfast doctor: each finding is made to happen, where that can be done."""
import json
import os
import signal
import sqlite3
import time

import harness
from harness import (contains, environment, equal, finish, main, read_line, run, start, start_program, start_unshared,
                     test, wait_gone)
from support.everyone import copy_for_everyone
from support.tap import need_rights_for

WORDS = ["ok", "note", "warning", "problem"]


def doctor(*words, holdfast=harness.HOLDFAST, **options):
    """(exit code, {id: severity}, the whole answer)."""
    code, out, err = finish(start_program(holdfast, "doctor", "--json", *words, **options))
    equal(err, "")
    answer = json.loads(out)
    equal(list(answer), ["url", "tier", "worst", "error", "ttl_ms", "write_us", "slowest_write_us",
                         "findings"])
    for finding in answer["findings"]:
        equal(list(finding), ["severity", "id", "found", "means", "fix"])
        assert finding["severity"] in WORDS and finding["found"] and finding["means"], finding
    worst = max((WORDS.index(finding["severity"]) for finding in answer["findings"]), default=0)
    equal(answer["worst"], WORDS[worst])
    if answer["error"] is None:
        equal(code, max(0, worst - 1))
    return code, {f["id"]: f["severity"] for f in answer["findings"]}, answer


def finding(answer, wanted):
    return next(f for f in answer["findings"] if f["id"] == wanted)


def database():
    return sqlite3.connect(f"{harness.folder}/locks.db", isolation_level=None)


# ---- Fine ----


@test
def a_new_store_is_fine():
    code, found, answer = doctor()
    equal((code, answer["tier"], answer["ttl_ms"]), (0, "timed", 30000))
    assert answer["url"] == environment()["HOLDFAST_URL"]
    assert 0 < answer["write_us"] <= answer["slowest_write_us"], answer
    for name in ("access", "free-space", "durability", "size", "log", "clock", "processes", "wake-ups",
                 "round-trip", "clock-rate"):
        equal((name, found[name]), (name, "ok"))


@test
def people_get_the_worst_first_with_its_fix():
    os.chmod(harness.folder, 0o700)
    run("run", "x", "true")
    os.chmod(f"{harness.folder}/locks.db", 0o660)
    code, out, err = run("doctor", "--ttl", "1ms")
    equal((code, err), (2, ""))
    lines = out.splitlines()
    contains(lines[0], f"sqlite:{harness.folder}/locks.db: timed")
    severities = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    equal(severities, sorted(severities, key=WORDS.index, reverse=True))
    contains(out, "fix: use a longer --ttl", "fix: if you do not want that: chmod 600")
    code, quiet, _ = run("doctor", "-q", "--ttl", "1ms")
    equal(code, 2)
    contains(quiet, "problem")
    assert "\nok" not in quiet and "\nnote" not in quiet, quiet
    assert len(run("doctor", "-v")[1]) > len(run("doctor")[1])


@test
def examining_changes_nothing():
    run("run", "x", "true")
    before = list(database().iterdump())
    doctor()
    equal(list(database().iterdump()), before)


# ---- The place ----


def mounted(options, script):
    """Runs a shell script in a new mount namespace, with a tmpfs at $M."""
    place = f"{harness.folder}/mount"
    os.mkdir(place)
    need_rights_for("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", place)
    text = f'mount -t tmpfs -o mode=0700,{options} tmpfs "$M" && ' + script
    return finish(start_program("unshare", "-m", "sh", "-c", text,
                                env=environment(M=place, H=harness.HOLDFAST)))


@test
def a_file_in_memory_is_gone_after_a_restart():
    code, out, _ = mounted("size=64m", '"$H" doctor --json --url "sqlite:$M/locks.db"')
    equal((code, finding(json.loads(out), "file-system")["severity"]), (0, "note"))
    contains(finding(json.loads(out), "file-system")["found"], "in memory (tmpfs)")


@test
def a_disk_that_is_nearly_full_is_a_warning_and_a_full_one_a_problem():
    code, out, _ = mounted("size=4m", '"$H" doctor --json --url "sqlite:$M/locks.db"')
    equal((code, finding(json.loads(out), "free-space")["severity"]), (1, "warning"))
    os.rmdir(f"{harness.folder}/mount")
    code, out, _ = mounted("size=4m", '"$H" run --url "sqlite:$M/locks.db" x true && '
                           'head -c 3500000 /dev/zero > "$M/fill"; '
                           '"$H" doctor --json --url "sqlite:$M/locks.db"')
    equal((code, finding(json.loads(out), "free-space")["severity"]), (2, "problem"))
    os.rmdir(f"{harness.folder}/mount")
    code, out, _ = mounted("size=4m,nr_inodes=6", '"$H" run --url "sqlite:$M/locks.db" x true; '
                           'for i in 1 2 3 4 5 6; do touch "$M/$i"; done 2>/dev/null; '
                           '"$H" doctor --json --url "sqlite:$M/locks.db"')
    answer = json.loads(out)
    contains(finding(answer, "free-space")["found"], "no room for more files")
    equal(code, 2)


@test
def a_disk_that_fills_up_while_it_is_examined_is_a_problem():
    code, out, _ = mounted("size=1m", '"$H" run --url "sqlite:$M/locks.db" x true; '
                           'cat /dev/zero > "$M/fill" 2>/dev/null; '
                           '"$H" doctor --json --url "sqlite:$M/locks.db"')
    assert code in (2, 69), (code, out)  # the log cannot be made, or cannot be written
    equal(json.loads(out)["worst"], "problem")


@test
def others_who_may_read_or_write_it_are_noted():
    run("run", "x", "true")
    for mode, words in ((0o644, "can be read by others"), (0o660, "can be written by group")):
        os.chmod(f"{harness.folder}/locks.db", mode)
        code, found, answer = doctor()
        equal((code, found["access"]), (0, "note"))
        contains(finding(answer, "access")["found"], words, f"{mode:04o}")


@test
def what_cannot_be_opened_is_a_problem_with_the_exit_code_of_its_error():
    for url, expected, error, words in (
            ("sqlite:/no/such/folder/db", 69, "HF_UNREACHABLE", "No such file"),
            ("nonsense:", 78, "HF_NO_STORE", "nonsense"),
            ("sqlite:/dev/null", 77, "HF_DENIED", "")):
        code, found, answer = doctor("--url", url)
        equal((code, found["store"], answer["error"], answer["tier"]), (expected, "problem", error, None))
        contains(finding(answer, "store")["found"], words)
        assert finding(answer, "store")["fix"]
        assert "clock-rate" in found  # what needs no store is still reported
    os.chmod(harness.folder, 0o777)
    code, _, answer = doctor()
    equal((code, answer["error"]), (77, "HF_DENIED"))
    contains(finding(answer, "store")["found"], "written to by everybody", "chmod o-w")


@test
def the_memory_of_one_process_is_a_warning():
    code, found, answer = doctor("--url", "memory:")
    equal((code, found["reach"], answer["tier"], answer["write_us"]), (1, "warning", "timed", -1))
    assert "round-trip" not in found


@test
def the_default_store_is_noted_and_made():
    env = environment(XDG_STATE_HOME=harness.folder + "/state")
    del env["HOLDFAST_URL"]
    if os.geteuid() == 0:  # root's default is for the whole host, so this runs as another user, in that user's folder
        holdfast = copy_for_everyone(harness.HOLDFAST, harness.folder)
        os.mkdir(env["XDG_STATE_HOME"])
        os.chown(env["XDG_STATE_HOME"], 1234, 1234)
        code, found, answer = doctor(env=env, holdfast=holdfast, user=1234, group=1234, extra_groups=[])
        contains(finding(answer, "default-store")["found"], "user 1234")
    else:
        code, found, answer = doctor(env=env)
    equal((code, found["default-store"], answer["url"]), (0, "note", None))
    contains(finding(answer, "file-system")["found"], env["XDG_STATE_HOME"])


# ---- The file ----


@test
def a_log_that_was_switched_off_is_a_warning():
    run("run", "x", "true")
    database().execute("PRAGMA journal_mode = DELETE")
    code, found, answer = doctor()
    equal((code, found["durability"]), (1, "warning"))
    contains(finding(answer, "durability")["found"], "journal_mode delete")


@test
def a_log_that_cannot_be_written_back_is_a_warning():
    run("run", "x", "true")
    reader = database()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM locks").fetchone()
    writer = database()
    writer.execute("PRAGMA synchronous = OFF")
    writer.execute("BEGIN")
    writer.execute("CREATE TABLE filler (text)")
    writer.execute("INSERT INTO filler VALUES (zeroblob(18000000))")
    writer.execute("COMMIT")
    code, found, answer = doctor()
    equal((code, found["log"]), (1, "warning"))
    contains(finding(answer, "log")["found"], "MB")


@test
def many_names_are_noted():
    run("run", "x", "true")
    writer = database()
    writer.execute("BEGIN")
    columns = writer.execute("SELECT * FROM locks").description
    row = dict(zip([column[0] for column in columns], writer.execute("SELECT * FROM locks").fetchone()))
    names = ", ".join(row)
    marks = ", ".join("?" * len(row))
    writer.executemany(f"INSERT INTO locks ({names}) VALUES ({marks})",
                       ((list((row | {"name": f"n{i}"}).values())) for i in range(200000)))
    writer.execute("COMMIT")
    before = time.monotonic()
    code, found, _ = doctor()
    equal((code, found["size"]), (0, "note"))
    assert time.monotonic() - before < harness.PATIENCE_S


@test
def a_process_that_keeps_the_file_locked_is_a_problem():
    run("run", "x", "true")
    writer = database()
    writer.execute("BEGIN IMMEDIATE")
    code, found, answer = doctor()
    equal((code, found["write"]), (2, "problem"))
    contains(finding(answer, "write")["found"], "locked")
    equal(answer["write_us"], -1)
    writer.execute("ROLLBACK")
    equal(doctor()[0], 0)


# ---- Time ----


@test
def tokens_ahead_of_the_clock_are_a_warning():
    run("run", "x", "true")
    ahead = int((time.time() + 3 * 86400) * 1e6)
    database().execute("UPDATE locks SET token = ?", (ahead,))
    code, found, answer = doctor()
    equal((code, found["clock"]), (1, "warning"))
    contains(finding(answer, "clock")["found"], "2 days ahead")


@test
def a_lease_that_is_short_for_the_store_is_a_warning_or_a_problem():
    run("run", "x", "true")
    _, found, answer = doctor("--ttl", "1ms")
    equal((found["round-trip"], found["lease"]), ("problem", "note"))
    contains(finding(answer, "round-trip")["fix"], "longer --ttl")
    _, found, _ = doctor("--ttl", "50s")
    equal(found["round-trip"], "ok")
    assert "lease" not in found
    equal(run("doctor", "--ttl", "0")[0], 64)


# ---- Processes ----


@test
def a_proc_of_another_pid_namespace_is_noted():
    done = finish(start_unshared("-pf", harness.HOLDFAST, "doctor", "--json"))
    equal(done[0], 0)
    equal(finding(json.loads(done[1]), "processes")["severity"], "note")


@test
def hidden_processes_of_others_are_noted():
    need_rights_for("unshare", "-m", "mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc")
    holdfast = copy_for_everyone(harness.HOLDFAST, harness.folder)
    os.mkdir(harness.folder + "/own")
    os.chown(harness.folder + "/own", 1234, 1234)
    script = ('mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 1234 --regid 1234 '
              '--clear-groups "$H" doctor --json --url "sqlite:$F/own/locks.db"')
    done = finish(start_program("unshare", "-m", "sh", "-c", script,
                                env=environment(H=holdfast, F=harness.folder)))
    equal((done[0], done[2]), (0, ""))
    contains(finding(json.loads(done[1]), "processes")["found"], "does not show other users' processes")


@test
def wake_ups_that_cannot_be_sent_are_a_warning():
    with open(f"{harness.folder}/locks.db-wake", "w", encoding="utf-8"):
        pass
    code, found, _ = doctor()
    equal((code, found["wake-ups"]), (1, "warning"))


@test
def sockets_of_killed_processes_are_counted():
    holder = start("run", "x", "sh", "-c", "echo; exec sleep 100")
    read_line(holder.stdout)
    while "0 programs" in finding(doctor()[2], "wake-ups")["found"]:  # it has not held it for long
        pass
    contains(finding(doctor()[2], "wake-ups")["found"], "1 programs listen for wake-ups; 0 sockets")
    keeper = int(open(f"/proc/{holder.pid}/task/{holder.pid}/children", encoding="utf-8").read().split()[0])
    os.kill(holder.pid, signal.SIGSTOP)  # it would clean up
    os.kill(keeper, signal.SIGKILL)
    wait_gone(keeper)
    contains(finding(doctor()[2], "wake-ups")["found"], "0 programs listen for wake-ups; 1 sockets")
    os.kill(holder.pid, signal.SIGCONT)
    finish(holder)


# ---- Strange things ----


@test
def a_path_full_of_escapes_is_safe_and_valid():
    folder = f"{harness.folder}/a\x1b[31m\"\\<b>ü"
    os.mkdir(folder)
    url = "sqlite:" + folder.replace("%", "%25") + "/locks.db"
    code, out, _ = finish(start("doctor", "--url", url))
    assert code in (0, 64, 78), code
    assert "\x1b" not in out, out
    code, out, _ = finish(start("doctor", "--json", "--url", url))
    json.loads(out)
    assert "\x1b" not in out, out


main()
