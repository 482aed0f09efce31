"""holdfast run: the command, its exit code, its environment, and the lock around it."""
import json
import os
import re
import signal
import subprocess

import harness
from harness import (HOLDFAST, boot_ms, contains, environment, equal, finish, is_free, main, matches, read_line,
                     run, start, test, wait_gone, wait_until, with_longer_leases)

HOLD = ("sh", "-c", "echo held; read line")


def hold(*words):
    """Starts a run that has the lock when this returns, and ends when its stdin does."""
    process = start("run", *words, "--", *HOLD, stdin=subprocess.PIPE)
    equal(read_line(process.stdout), "held")
    return process


def let_go(process):
    process.stdin.close()
    process.wait(timeout=harness.PATIENCE_S)


@test
def the_exit_code_is_that_of_the_command():
    equal(run("run", "x", "--", "true"), (0, "", ""))
    equal(run("run", "x", "--", "sh", "-c", "exit 42"), (42, "", ""))


@test
def a_command_ended_by_a_signal_is_128_and_the_signal():
    code, _, err = run("run", "x", "--", "sh", "-c", "kill -KILL $$")
    equal(code, 128 + signal.SIGKILL)
    contains(err, "holdfast: x: the command was ended by signal 9")


@test
def a_command_that_does_not_exist_is_127_and_one_that_cannot_run_126():
    code, _, err = run("run", "x", "--", "/no/such/command")
    equal(code, 127)
    contains(err, "holdfast: x: cannot run /no/such/command (No such file or directory)")
    code, _, err = run("run", "x", "--", "/etc/passwd")
    equal(code, 126)
    contains(err, "Permission denied")
    assert is_free("x")


@test
def standard_input_and_output_belong_to_the_command():
    text = "line\n" * 20000
    equal(run("run", "x", "--", "cat", input=text)[:2], (0, text))


@test
def a_reader_sees_the_output_end_when_the_command_closes_it():
    process = start("run", "x", "--", "sh", "-c", "echo one; exec >&-; read line",
                    stdin=subprocess.PIPE)
    equal(process.stdout.read(), b"one\n")
    equal(process.poll(), None)
    let_go(process)


@test
def the_command_inherits_nothing_but_the_three_standard_descriptors():  # row 40
    code, out, _ = run("run", "x", "--", "sh", "-c", "ls /proc/$$/fd")
    equal((code, out.split()), (0, ["0", "1", "2"]))


@test
def signals_are_as_they_were_found():
    """Except for 32 and 33, which belong to the C library: it resets them when it starts a thread."""
    look = ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")

    def seen(result):
        code, out, err = result
        return code, [int(mask, 16) & ~(3 << 31) for mask in re.findall(r"\t(\w+)$", out, re.MULTILINE)], err

    found = seen(run("run", "x", "--", *look))
    equal((found, len(found[1])), (seen(finish(harness.start_program(*look))), 2))


@test
def options_stand_before_and_behind_the_name_and_end_with_the_command():
    equal(run("run", "-n", "x", "-q", "echo", "-n", "-w")[:2], (0, "-w"))
    equal(run("run", "x", "echo", "-v")[:2], (0, "-v\n"))


@test
def a_string_goes_through_the_shell():
    equal(run("run", "x", "-c", "echo a; echo b | tr b c")[:2], (0, "a\nc\n"))


@test
def the_command_finds_the_lock_in_its_environment():
    _, out, _ = run("run", "my lock", "--also", "other", "--", "env")
    contains(out, "HOLDFAST_LOCK=my lock\n", "HOLDFAST_LOCK_1=other\n")
    tokens = [int(matches(out, rf"HOLDFAST_TOKEN{end}=(\d+)")[1]) for end in ("", "_1")]
    assert all(tokens)
    assert 10000 < int(matches(out, r"HOLDFAST_DEADLINE_MS=(\d+)")[1]) <= 30000


@test
def no_password_reaches_the_command():
    env = environment(HOLDFAST_URL="memory:?password=hunter2")
    code, out, err = run("run", "x", "--", "env", env=env)
    assert "hunter2" not in out + err, out + err
    code, _, err = run("--url", "redis://me:hunter2@db/0", "run", "x", "--", "true")
    equal(code, 64)
    contains(err, "a password in --url is refused")
    assert "hunter2" not in err


@test
def tokens_of_successive_runs_rise():
    tokens = [int(run("run", "x", "-c", "echo $HOLDFAST_TOKEN")[1]) for _ in range(5)]
    assert tokens == sorted(set(tokens)), tokens


@test
def not_acquired_is_75_or_what_was_asked_for():
    holder = hold("x")

    def is_told_who_holds_it():  # unless a slow machine does not find out in time
        code, _, err = run("run", "-n", "x", "--", "true")
        equal(code, 75)
        contains(err, "holdfast: did not acquire x (")
        return re.search(r"\(held by \S+ pid \d+ \(sh\) for ", err)

    wait_until(is_told_who_holds_it, "it says who holds it")
    equal(run("run", "-n", "-E", "3", "x", "--", "true")[0], 3)
    equal(run("run", "-n", "--skip-ok", "x", "--", "false"), (0, "", ""))
    equal(run("run", "-n", "-q", "x", "--", "true"), (75, "", ""))
    let_go(holder)


@test
def a_wait_ends_in_time():
    holder = hold("x")
    for wait_ms in (400, 3000, 10000):
        before = boot_ms()
        code = run("run", "-w", f"{wait_ms}ms", "x", "--", "true")[0]
        if code != 69:  # 69: the store's first answer came too late
            break
    equal(code, 75)
    assert wait_ms - 50 < boot_ms() - before < harness.PATIENCE_S * 1000
    let_go(holder)


@test
def who_waits_goes_on_when_the_lock_is_released_and_in_order():
    holder = hold("x")
    waiting = []
    for number in range(3):
        waiting.append(start("run", "x", "--", "sh", "-c", f"echo {number} >> order"))
        matches(read_line(waiting[-1].stderr), rf"waiting for x .* {number + 1}.. of {number + 1}")
    let_go(holder)
    equal([process.wait(timeout=harness.PATIENCE_S) for process in waiting], [0, 0, 0])
    equal(run("run", "x", "--", "cat", "order")[1], "0\n1\n2\n")


@test
def shared_holders_are_together_and_exclude_a_writer():
    one, two = hold("-s", "x"), hold("-s", "x")
    equal(run("run", "-n", "x", "--", "true")[0], 75)
    let_go(one)
    let_go(two)
    equal(run("run", "-n", "x", "--", "true")[0], 0)


@test
def permits_are_counted():
    one, two = hold("-p", "1/2", "x"), hold("-p", "1/2", "x")
    equal(run("run", "-n", "-p", "1/2", "x", "--", "true")[0], 75)
    let_go(one)
    equal(run("run", "-n", "-p", "1/2", "x", "--", "true")[0], 0)
    let_go(two)


@test
def several_names_are_held_together():
    holder = hold("a", "--also", "b")
    equal([run("run", "-q", "-n", name, "true")[0] for name in ("a", "b", "c")], [75, 75, 0])
    let_go(holder)
    assert is_free("a") and is_free("b")


@test
def runs_nest():
    equal(run("run", "a", "--", HOLDFAST, "run", "b", "--", "sh", "-c", "exit 9"), (9, "", ""))
    equal(run("run", "a", "--", HOLDFAST, "run", "-q", "-n", "a", "--", "true")[0], 75)


@test
def what_the_command_leaves_behind_keeps_the_lock():
    process = start("run", "-v", "x", "-c", "setsid sh -c 'echo $$; exec sleep 1000' & exit 6")
    daemon = int(read_line(process.stdout))
    while "stays held" not in read_line(process.stderr):
        pass
    assert not is_free("x")
    os.kill(daemon, signal.SIGKILL)
    equal(process.wait(timeout=harness.PATIENCE_S), 6)
    assert is_free("x")


def start_ignoring_term(max_hold_s):
    before = boot_ms()
    process = start("run", "x", "--max-hold", f"{max_hold_s}s", "--grace", "300ms", "-c",
                    "trap '' TERM; echo $$; while :; do sleep 1000; done")
    return process, int(read_line(process.stdout)), before, max_hold_s


@test
def max_hold_ends_even_who_ignores_term():
    process, pid, before, max_hold_s = with_longer_leases(start_ignoring_term, leases=(1, 4, 20))
    code, _, err = finish(process)
    equal(code, 124)
    contains(err, f"after {max_hold_s}s (--max-hold)")
    wait_gone(pid)
    assert max_hold_s * 1000 + 250 < boot_ms() - before < harness.PATIENCE_S * 1000
    assert is_free("x")


@test
def the_report_says_what_happened():
    run("run", "x\x1b\"\xff", "--report", "report", "-c", "exit 5")
    _, out, _ = run("run", "y", "cat", "report")
    report = json.loads(out)
    equal([report[key] for key in ("outcome", "exit_code", "names", "lost", "release", "command")],
          ["exited", 5, ["x\x1b\"\xff"], False, "released", {"started": True, "exit_code": 5}])
    assert int(report["token"]) > 0
    holder = hold("x")
    run("run", "-n", "x", "--report", "report", "--", "true")
    equal(json.loads(run("run", "y", "cat", "report")[1])["outcome"], "not-acquired")
    let_go(holder)


@test
def a_report_that_cannot_be_written_is_said_before_anything_is_done():
    code, out, err = run("run", "x", "--report", "/no/such/folder/report", "--", "echo", "ran")
    equal((code, out), (64, ""))
    contains(err, "cannot write /no/such/folder/report")


@test
def names_are_safe_on_the_terminal():
    holder = hold("a\x1b[31m\nb")
    code, _, err = run("run", "-n", "a\x1b[31m\nb", "--", "true")
    equal(code, 75)
    contains(err, r"a\x1b[31m\x0ab")
    assert "\x1b" not in err and err.count("\n") == 1, err
    let_go(holder)


@test
def wrong_words_name_the_nearest_right_one():
    for words, expected in (
            (("runn", "x"), "did you mean run?"),
            (("run", "x", "--max-hodl", "3s", "true"), "did you mean --max-hold?"),
            (("run", "x", "--ttl", "soon", "true"), "--ttl cannot be 'soon'"),
            (("run", "x", "--ttl", "1ms", "true"), "--ttl must be at least 1s"),
            (("run", "x", "--grace", "20s", "true"), "--grace must be at most half"),
            (("run", "x", "-p", "2", "true"), "it must be K/N"),
            (("run", "x", "--on-lost", "pray", "true"), "term, kill or ignore"),
            (("run", "x", "-n", "-w", "1s", "true"), "exclude each other"),
            (("run", "x"), "missing command"),
            (("run",), "missing lock name"),
            (("run", "x", "--wait", "1s", "-w2s", "true"), "--wait is given twice"),
            (("--url", "sqlite:/a", "run", "--url=sqlite:/b", "x", "true"), "--url is given twice"),
            (("--max-lease", "0", "run", "x", "true"), "--max-lease must be at least 1s"),
            (("run", "x", "--ttl", "61s", "true"), "--ttl must be at most 1m00s (--max-lease)"),
            (("run", "x", "-p", "3/2", "true"), "do not fit the capacity")):
        code, _, err = run(*words)
        equal((words, code), (words, 64))
        contains(err, "holdfast: ", expected)


@test
def a_store_that_is_not_there_is_78():
    code, _, err = run("--url", "nosuch:", "run", "x", "--", "true")
    equal(code, 78)
    contains(err, "holdfast stores")


@test
def a_lease_beyond_max_lease_is_reported_with_both_causes():
    """The holder permits itself longer leases than the client that asks."""
    code, _, err = run("--max-lease", "1h", "run", "--ttl", "30m", "x", "--", HOLDFAST, "run", "-n", "x", "true")
    equal(code, 78)
    contains(err, "max_lease is 60 s", "the holder has a longer max_lease", "a clock was set back", "--max-lease")


@test
def a_store_that_cannot_be_reached_is_69():
    for url, advice in (("sqlite:/no/such/folder/db", "does the folder exist"),
                        ("redis+unix:///no/such/folder/socket", "is the server running"),
                        ("redis://127.0.0.1:1", "is the server running")):
        for words in (("run", "-n", "x", "true"), ("ls",), ("acquire", "-n", "x", "--for", "1m")):
            code, _, err = run("--url", url, *words)
            equal((url, words, code), (url, words, 69))
            contains(err, f"holdfast: cannot reach {url}{' for x' if 'x' in words else ''} (", advice,
                     f"? try: holdfast doctor --url '{url}'\n")
        contains(run("--url", url, "doctor")[1], "fix: " + advice)


@test
def a_set_without_votes_is_69_and_says_how_a_new_one_begins():
    code, _, err = run("--url", "quorum+redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "run", "-n", "x", "true")
    equal(code, 69)
    contains(err, "for a new set: holdfast quorum init; are enough servers running and voting? try: holdfast doctor --url ")


@test
def a_wrong_url_is_answered_with_where_its_form_is():
    for url in ("redis", "redis://127.0.0.1:99999", "redis://127.0.0.1/x", "sqlite:/x?no=option"):
        code, _, err = run("--url", url, "run", "x", "true")
        equal((url, code), (url, 78))
        contains(err, "man holdfast (STORES)")


@test
def a_wrong_call_is_answered_in_its_own_words():
    for words, code, expected in ((("--min-left", "31s", "x", "true"), 64, "--min-left must be at most --ttl"),
                                  (("x", "-c", "true", "extra"), 64, "unexpected argument 'extra'"),
                                  (("--metrics-file", "no/m.prom", "x", "true"), 64, "--metrics-file needs a file"),
                                  (("x", "/dev/null"), 126, "is it executable?")):
        equal(run("run", *words)[0], code)
        contains(run("run", *words)[2], expected)


@test
def a_lock_that_excludes_nobody_is_warned_of():
    for words in (("run", "x", "true"), ("acquire", "x", "--for", "1s")):
        code, _, err = run("--url", "memory:", *words)
        equal(code, 0)
        contains(err, "a memory: lock excludes nobody here")
        equal(run("--url", "memory:", "-q", *words)[2], "")
        equal(run(*words)[2], "")


@test
def a_name_that_is_none_is_not_printed():
    for words in (("run", "N", "true"), ("run", "x", "--also", "N", "true"), ("acquire", "N", "--for", "1m"),
                  ("inspect", "N"), ("break", "N", "--token", "1", "--yes"), ("fence", "check", "file", "N", "1")):
        for name, expected in (("", "the name of the lock is empty"), ("x" * 256, "the name of the lock has 256 bytes")):
            code, out, err = run(*(name if word == "N" else word for word in words))
            equal((words, code, err.count("\n")), (words, 64, 1))
            contains(err, "holdfast: ", expected, "1 to 255 bytes")
            assert "xx" not in err + out.replace("(exit 64)", ""), err


@test
def an_unknown_kind_of_url_is_answered_with_those_that_there_are():
    code, _, err = run("--url", "http://example", "run", "x", "true")
    equal(code, 78)
    contains(err, '"http:" is not one of', "sqlite:", "rediss:")
    assert "package" not in err and ".so" not in err, err


@test
def help_version_and_stores_are_for_people_and_for_programs():
    code, out, _ = run("help", "run")
    equal(code, 0)
    contains(out, "Usage: holdfast run NAME", "--max-hold", "Examples:")
    equal(run("run", "--help")[:2], (0, out))
    code, out, err = run()
    equal((code, out, err.count("\n")), (64, run("help")[1], 1))
    contains(err, "missing command")
    equal(json.loads(run("--json", "version")[1])["version"], run("version")[1].split()[1])
    for word in ("--version", "-V"):
        equal(run(word), run("version"))
    stores = json.loads(run("stores", "--json")[1])
    contains([store["scheme"] for store in stores], "sqlite", "memory")
    by_scheme = {store["scheme"]: store for store in stores}
    capabilities = ("shared", "permits", "queue", "lease_each", "token_floor", "pushes", "barge", "keep")
    equal([by_scheme["quorum+redis"][key] for key in capabilities], [True, False, False, True, True, False, True, False])
    equal([by_scheme["zookeeper"][key] for key in capabilities], [True, True, True, False, True, False, False, False])
    equal(by_scheme["rediss"]["keep"], True)
    equal([by_scheme[scheme]["counts"] for scheme in ("memory", "quorum+redis")], [True, False])
    rows = [line.split() for line in run("stores")[1].splitlines()]
    contains(rows, "URL TIER LOCKS QUEUE LEASE FLOOR PUSH COUNT LIMIT FOR".split())
    contains([row[:8] for row in rows], "memory: timed exclusive, shared, permits yes hold yes".split())


@test
def modules_of_the_build_tree_are_found_and_missing_ones_are_told():
    stores = json.loads(run("stores", "--json")[1])
    equal([store["missing"] for store in stores if not store["available"]], [])
    contains(run("--url", "redis://127.0.0.1:1", "run", "x", "true")[2], "cannot connect to 127.0.0.1:1")
    env = environment(HOLDFAST_MODULE_PATH="/nonexistent")
    stores = json.loads(run("stores", "--json", env=env)[1])
    equal([store["scheme"] for store in stores if store["available"]], ["memory", "sqlite"])
    code, out, _ = run("stores", env=env)
    equal((code, out.count("holdfast-redis.so is not in /nonexistent;")), (0, 1))
    code, _, err = run("--url", "quorum+redis://a,b,c", "run", "x", "true", env=env)
    equal(code, 78)
    contains(err, "holdfast-redis.so is not in /nonexistent;")


@test
def what_help_says_has_examples():
    for command in ("acquire", "renew", "release", "fence", "demo", "stores", "version", "help"):
        contains(run("help", command)[1], f"Usage: holdfast {command}", "Examples:")


@test
def fence_refuses_a_token_below_the_largest_seen():
    equal(run("fence", "check", "file", "x", "7")[0], 0)
    equal(run("fence", "check", "file", "x", "7")[0], 0)
    code, _, err = run("fence", "check", "file", "x", "6")
    equal(code, 1)
    contains(err, "token 6 of x is refused")
    equal(run("fence", "check", "file", "y", "1")[0], 0)
    equal(run("fence", "check", "file", "x", "8")[0], 0)
    equal(run("fence", "check", "file", "x", "7")[0], 1)


@test
def fence_does_not_remember_what_is_no_token():
    equal(run("fence", "check", "file", "x", "7")[0], 0)
    for word in (str(1 << 53), str(1 << 63), str(1 << 70), "0", "7x", ""):
        code, _, err = run("fence", "check", "file", "x", word)
        equal((word, code), (word, 64))
        contains(err, f"TOKEN cannot be '{word}'")
    equal(run("fence", "check", "file", "x", "8")[0], 0)
    equal(run("fence", "check", "file", "x", str((1 << 53) - 1))[0], 0)


@test
def fence_refuses_a_shared_hold():  # row 45
    check = f'{HOLDFAST} fence check file "$HOLDFAST_LOCK" "$HOLDFAST_TOKEN"'
    equal(run("run", "x", "-c", check)[0], 0)
    equal(run("run", "-s", "x", "-c", check)[0], 1)
    equal(run("fence", "check", "--shared", "file", "x", "9000000000000000")[0], 1)


@test
def fence_refuses_every_name_of_a_shared_hold():
    check = f'{HOLDFAST} fence check file "$HOLDFAST_LOCK_2" "$HOLDFAST_TOKEN_2"'
    names = ("x", "--also", "y", "--also", "z")
    equal(run("run", *names, "-c", check)[0], 0)
    equal(run("run", "-s", *names, "-c", check)[0], 1)
    equal(run("run", "-p", "1/2", "p", "--also", "q", "--also", "r", "-c", check)[0], 1)
    # a lock that is taken inside does not change what the outer ones are
    inner = f'eval "$({HOLDFAST} acquire own --for-pid $$)"; {check}; code=$?; {HOLDFAST} release; exit $code'
    equal(run("run", "-s", *names, "-c", inner)[0], 1)
    equal(run("run", *names, "-c", inner)[0], 0)
    # and a run inside passes none of them on
    left = "env | grep -c '^HOLDFAST_[A-Z]*_[0-9]'"
    equal(run("run", "-s", *names, "--", HOLDFAST, "run", "own", "-c", left)[:2], (1, "0\n"))


main()
