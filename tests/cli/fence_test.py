#!/usr/bin/env python3
"""holdfast fence: what a script's resource refuses. tests/fence shows that stale writers are refused."""
import os
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness
from harness import HOLDFAST, contains, equal, finish, main, run, shell, start, start_program, test

FORMS = (("check", "file"), ("write", "file"), ("redis", "key"), ("sql", "sqlite"))


def path(name):
    return os.path.join(harness.folder, name)


def text(name):
    with open(path(name), encoding="utf-8") as file:
        return file.read()


def write(content, token, name="x"):
    return run("fence", "write", "file", name, str(token), input=content)


@test
def write_replaces_the_file_unless_the_token_is_stale():
    equal(write("one\n", 7)[0], 0)
    equal((text("file"), text("file.fence")), ("one\n", "7 x\n"))
    equal(write("two\n", 7)[0], 0)
    code, out, err = write("stale\n", 6)
    equal((code, out), (1, ""))
    contains(err, "token 6 of x is refused (a later holder came with 7); the lock was lost: stop")
    equal(text("file"), "two\n")
    equal(write("other\n", 1, name="y")[0], 0)
    equal(sorted(os.listdir(harness.folder)), ["file", "file.fence"])


@test
def write_and_check_share_the_tokens():
    equal(run("fence", "check", "file.fence", "x", "8")[0], 0)
    equal(write("stale", 7)[0], 1)
    assert not os.path.exists(path("file"))
    equal(write("new", 8)[0], 0)


@test
def write_takes_any_bytes_and_none():
    data = bytes(range(256)) * 4096
    child = start("fence", "write", "file", "x", "7", stdin=subprocess.PIPE)
    child.communicate(data, timeout=harness.LIMIT_S)
    equal(child.returncode, 0)
    with open(path("file"), "rb") as file:
        equal(file.read() == data, True)
    equal(finish(start("fence", "write", "file", "x", "7"))[0], 0)
    equal(os.path.getsize(path("file")), 0)


@test
def who_waits_for_input_keeps_nobody_waiting():
    slow = start("fence", "write", "file", "x", "7", stdin=subprocess.PIPE)
    slow.stdin.write(b"slow")
    equal(write("quick", 8)[0], 0)
    equal(finish(slow, "er")[0], 1)
    equal(text("file"), "quick")


@test
def permissions_stay_and_links_are_not_followed():
    with open(path("file.fence"), "w", encoding="utf-8") as file:
        file.write("1 x\n")
    with open(path("victim"), "w", encoding="utf-8") as file:
        file.write("precious")
    os.chmod(path("file.fence"), 0o660)
    os.symlink("victim", path("file.fence.new"))
    equal(run("fence", "check", "file.fence", "x", "7")[0], 0)
    equal(text("victim"), "precious")
    equal(stat.S_IMODE(os.stat(path("file.fence")).st_mode), 0o660)
    os.symlink("victim", path("file"))
    code, _, err = write("new", 8)
    equal(code, 78)
    contains(err, "cannot replace file")
    equal(text("victim"), "precious")


@test
def what_cannot_be_used_is_named():
    code, _, err = run("fence", "write", "none/file", "x", "7", input="new")
    equal(code, 78)
    contains(err, "cannot open the folder of none/file (No such file or directory)")
    with open(path("file.fence"), "w", encoding="utf-8") as file:
        file.write("hello\n")
    code, _, err = write("new", 7)
    equal(code, 78)
    contains(err, "file.fence was not written by holdfast")


@test
def every_form_refuses_a_shared_hold():  # row 45
    for form in FORMS:
        fence = f'{HOLDFAST} fence {" ".join(form)} "$HOLDFAST_LOCK" "$HOLDFAST_TOKEN" </dev/null'
        equal((form, run("run", "x", "-c", fence)[0]), (form, 0))
        equal((form, run("run", "-s", "x", "-c", fence)[0]), (form, 1))


@test
def the_words_of_a_form_are_checked():
    for form in FORMS:
        equal((form, run("fence", *form, "x", "0")[0]), (form, 64))
        equal((form, run("fence", *form, "", "1")[0]), (form, 64))
        equal((form, run("fence", *form, "x")[0]), (form, 64))
    for form in ("check", "write", "sql"):
        code, _, err = run("fence", form, "sqlite", "x", "1", "more")
        equal((form, code), (form, 64))
        contains(err, "unexpected argument 'more'")
    contains(run("fence", "nonsense", "file", "x", "1")[2], "it can be check, write, redis or sql")


@test
def redis_prints_words_for_the_shell():
    words = ("SET", "it's", "-n", "a  b", "$HOME", "\\\n", "")
    code, out, _ = run("fence", "redis", "key", "it's", "7", *words)
    equal(code, 0)
    printed = subprocess.run(["sh", "-c", f"printf '%s\\0' {out}"], capture_output=True, text=True, check=True).stdout
    command, script, *rest = printed.split("\0")[:-1]
    equal((command, rest), ("EVAL", ["1", "key", "it's", "7", *words]))
    contains(script, "KEYS[1]")


@test
def redis_that_fails_makes_eval_fail():
    for words in ("--shared key x 7 SET a b", "key x no-token SET a b", "key x"):
        code, out, _ = shell(f'eval "echo went on $(holdfast fence redis {words})"')
        assert code and "went on" not in out, (words, code, out)


@test
def sql_knows_sqlite():
    script = """
        sqlite3 db 'CREATE TABLE t (v)'
        holdfast schema --dialect sqlite | sqlite3 db
        for token in 7 7 6 8 7; do
            guard=$(holdfast fence sql sqlite "it's" $token) &&
                sqlite3 -bail db "BEGIN; $guard INSERT INTO t VALUES ($token); COMMIT;" 2>/dev/null
        done
        sqlite3 db 'SELECT group_concat(v) FROM t'
    """
    equal(shell(script)[1], "7,7,8\n")


@test
def many_checks_at_the_same_time_do_not_fail():
    script = f'for i in $(seq 1 20); do {HOLDFAST} fence check file "$0" "$i" || exit; done'
    children = [start_program("bash", "-c", script, f"name{at}") for at in range(6)]
    equal([finish(child) for child in children], [(0, "", "")] * 6)
    equal(sorted(text("file").splitlines()), [f"20 name{at}" for at in range(6)])


main()
