"""holdfast ls, inspect, watch and break: who holds a lock, who waits, and what to do about it."""
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import time

import harness
from harness import (boot_ms, contains, equal, finish, is_free, main, matches, parent_of, read_line, run,
                     shell, start, test, wait_gone, wait_until, with_longer_leases)
from terminal import Terminal

# Must not reach a terminal unescaped, nor make JSON invalid: colours, titles, bells, HTML, quotes, text
# that changes direction, bytes that are not UTF-8.
NASTY = "a\x1b[31m\x07<b>\"'&\\ \u202eevil\u202c \udcff\udcc3 \t\u009b1m 注文 🔒"
COLUMNS = ["NAME", "KIND", "HOLDER", "WAITERS", "HELD FOR", "LEFT", "TOKEN"]
MANY = 100000


def hold(name, *options, program="sleep"):
    """Starts a process that holds a lock; returns when it does."""
    process = start("run", *options, name, "--", program, "1000")
    wait_until(lambda: look(name)["held"], f"{name!r} is held")
    return process


def wait_for(name, *options):
    """Starts a process that waits for it; returns when it is in the queue."""
    before = len(look(name)["waiters"])
    process = start("run", "-q", *options, name, "--", "sleep", "1000")
    wait_until(lambda: len(look(name)["waiters"]) > before, "it waits")
    return process


def look(name):
    return json.loads(run("inspect", "--json", name)[1])


def token_of(name):
    return look(name)["holders"][0]["token"]


def rows(text):
    return [line.split("\t") for line in text.splitlines()]


def raw(*words):
    """What holdfast prints, in bytes: stdout and stderr."""
    process = start(*words)
    out, err = process.communicate(timeout=harness.LIMIT_S)
    return out, err


def is_clean(data):
    """UTF-8 without anything that a terminal would act upon."""
    text = data.decode()  # or an error
    found = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u200b-\u200f]", text)
    assert not found, f"{found} in {text!r}"
    return text


# ---- ls ----


@test
def ls_shows_who_holds_and_who_waits():
    hold("deploy/web", "--label", "release 7")
    wait_for("deploy/web")
    hold("cache", "-p", "2/5")
    hold("index", "-s")
    start("run", "-s", "index", "--", "sleep", "1000")
    wait_until(lambda: len(look("index")["holders"]) == 2, "two read it")
    code, out, err = run("ls")
    equal((code, err), (0, ""))
    table = rows(out)
    equal(table[0], COLUMNS)
    equal([row[:2] for row in table[1:]],
          [["cache", "permits 2/5"], ["deploy/web", "exclusive"], ["index", "shared"]])
    matches(table[1][2], r"^\S+ pid \d+ \(sleep\)$")
    matches(table[2][2], r"^\S+ pid \d+ \(release 7\)$")
    matches(table[3][2], r"^\S+ pid \d+ \(sleep\) \+1$")
    equal([row[3] for row in table[1:]], ["0", "1", "0"])
    for row in table[1:]:
        matches(row[4], r"^\d+(ms|s)$")
        matches(row[5], r"^[12]\ds$")
    equal(table[2][6], token_of("deploy/web"))


@test
def ls_takes_a_prefix_that_is_no_pattern_and_only_those_that_are_waited_for():
    for name in ("a", "a/1", "a/2", "b", "%", "*"):
        hold(name)
    wait_for("a/2")
    names = lambda *words: [row[0] for row in rows(run("ls", *words)[1])[1:]]
    equal(names(), ["%", "*", "a", "a/1", "a/2", "b"])
    equal(names("a"), ["a", "a/1", "a/2"])
    equal(names("a/"), ["a/1", "a/2"])
    equal(names("*"), ["*"])
    equal(names("%"), ["%"])
    equal(names("nothing"), [])
    equal(names("-w"), ["a/2"])
    equal(names("b", "--waiting"), [])


@test
def ls_json_is_one_object_on_a_line():
    hold("a", "--label", "x")
    wait_for("a")
    hold("b", "-p", "3/4")
    lines = run("ls", "--json")[1].splitlines()
    a, b = map(json.loads, lines)
    equal((a["name"], a["held"], a["kind"], a["capacity"], a["broken"]), ("a", True, "exclusive", 1, None))
    equal((b["name"], b["kind"], b["capacity"], b["waiters"]), ("b", "permits", 4, []))
    holder, waiter = a["holders"][0], a["waiters"][0]
    equal((holder["label"], holder["command"], holder["kind"]), ("x", "sleep", "exclusive"))
    equal((type(holder["token"]), holder["token"]), (str, a["token"]))
    assert abs(holder["since_ms"] - time.time() * 1000) < 60000
    assert 10000 < holder["left_ms"] <= 30000
    equal((waiter["token"], b["holders"][0]["permits"]), (None, 3))
    equal(set(holder), {"owner", "host", "pid", "command", "label", "kind", "permits", "token",
                        "since_ms", "left_ms", "votes"})
    equal(set(a), {"name", "held", "kind", "capacity", "token", "holders", "waiters", "broken", "quorum", "nodes"})
    equal((a["quorum"], a["nodes"]), (0, []))
    equal(look("a")["holders"][0]["owner"], holder["owner"])


@test
def ls_fits_the_terminal():
    hold("a-rather-long-name/" + "x" * 60)
    hold("注文/" + "処" * 30)
    wait_for("注文/" + "処" * 30)
    for columns in (40, 100, 200):
        text = Terminal(harness.HOLDFAST, "ls", columns=columns, TERM="dumb").rest()
        lines = text.replace("\r", "").splitlines()
        equal(len(lines), 3)
        for line in lines:
            wide = sum(2 if ord(c) > 0x2e80 else 1 for c in line)
            assert wide <= columns, f"{wide} columns: {line!r}"
        contains(lines[0], "NAME")
        if columns >= 100:
            contains(lines[0], *COLUMNS)
            contains(lines[1], "…" if columns == 100 else "x" * 60)
            at = lines[0].index("TOKEN") + len("TOKEN")
            equal(len(lines[1]), at)  # in line with its title


@test
def colours_are_for_terminals_that_want_them():
    hold("x")
    wait_for("x")
    contains(Terminal(harness.HOLDFAST, "ls").rest(), "\x1b[1mNAME", "\x1b[33m1\x1b[m")
    assert "\x1b" not in Terminal(harness.HOLDFAST, "ls", NO_COLOR="1").rest()
    assert "\x1b" not in run("ls")[1]


# ---- inspect ----


@test
def inspect_tells_everything_about_a_lock():
    holder = hold("nightly", "--label", "the report")
    wait_for("nightly", "--label", "first")
    wait_for("nightly", "--label", "second")
    code, out, err = run("inspect", "nightly")
    equal((code, err), (0, ""))
    seen = look("nightly")
    matches(out, r"^nightly: held, exclusive\n")
    keeper = matches(out, r"  holder   \S+ pid (\d+) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+m?s\)\n")[1]
    equal(parent_of(int(keeper)), holder.pid)
    contains(out, "  command  sleep\n", "  label    the report\n",
             f"  token    {seen['token']}\n", "  queue    2 waiting\n")
    matches(out, r"  lease    [12]\ds left\n")
    matches(out, r"(?s)\n +1   \S+ pid \d+ \(first\) since .*\n +2   \S+ pid \d+ \(second\) since ")
    equal([waiter["label"] for waiter in seen["waiters"]], ["first", "second"])


@test
def inspect_says_with_its_exit_code_whether_a_lock_is_held():
    hold("x")
    equal(run("inspect", "-q", "x"), (0, "", ""))
    equal(run("inspect", "-q", "y"), (1, "", ""))
    equal(run("inspect", "y"), (1, "y: free, and not known to this store\n", ""))
    code, out, _ = run("inspect", "--json", "y")
    equal((code, json.loads(out)),
          (1, {"name": "y", "held": False, "kind": None, "capacity": None, "token": None,
               "holders": [], "waiters": [], "broken": None, "quorum": 0, "nodes": []}))
    equal(run("run", "y", "true")[0], 0)
    code, out, _ = run("inspect", "y")
    equal(code, 1)
    matches(out, r"^y: free; the last token was \d+\n$")
    equal(look("y")["kind"], "exclusive")


# ---- break ----


@test
def break_ends_the_hold_and_the_holder_learns_it():
    holder = hold("x", "--label", "stuck", "--report", "report")
    token = token_of("x")
    code, out, err = run("break", "x", "--token", token, "--yes", "--reason", "OPS-17: db1 is gone")
    equal((code, err), (0, ""))
    matches(out, r"^broke x, which was held by \S+ pid \d+ \(stuck\) for \S+; "
                 r"the holder is notified, but may go on for up to [12]\ds\n$")
    code, _, err = finish(holder)
    equal(code, 79)
    matches(err, r"the lock x was lost \(broken by \S+ pid \d+ \(holdfast break by [^)]*\): OPS-17: db1 is gone\); "
                 "the command was ended")
    report = json.loads(run("run", "y", "cat", "report")[1])
    equal((report["outcome"], report["cause"]), ("lost", "broken"))
    contains(report["cause_text"], "broken by ", ": OPS-17: db1 is gone")
    seen = look("x")
    equal((seen["held"], seen["broken"]["token"], seen["broken"]["reason"]),
          (False, token, "OPS-17: db1 is gone"))
    assert int(seen["token"]) > int(token)
    assert abs(seen["broken"]["at_ms"] - time.time() * 1000) < 60000
    matches(seen["broken"]["by"], r"^\S+ pid \d+ \(holdfast break by \S.*\)$")
    out = run("inspect", "x")[1]
    matches(out, r"  broken   \S+ \S+ by \S+ pid \d+ \(holdfast break by ")
    contains(out, f"  token    {token} was broken\n", "  reason   OPS-17: db1 is gone\n")


@test
def break_for_programs():
    hold("x")
    token = token_of("x")
    done = json.loads(run("break", "x", "--token", token, "-y", "--json")[1])
    equal((done["broken"], done["name"], done["token"]), (True, "x", token))
    equal(done["holder"]["command"], "sleep")
    equal(look("x")["broken"]["reason"], "")


@test
def break_with_another_token_does_nothing_and_tells_the_right_one():
    hold("it's")
    token = token_of("it's")
    code, out, err = run("break", "it's", "--token", "5", "--yes")
    equal((code, out), (79, ""))
    matches(err, r"^holdfast: did not break it's \(nobody holds it with token 5: it is held by \S+ pid "
            rf"\d+ \(sleep\) for \S+ with token {token}\); if you mean that one: holdfast break ")
    advice = matches(err, r"holdfast (break .*)\n")[1]
    equal(look("it's")["held"], True)
    equal(shell(f"holdfast {advice} --yes".replace("\\\\", "\\"))[0], 0)
    code, _, err = run("break", "it's", "--token", token, "--yes")
    equal((code, err), (79, "holdfast: did not break it's (nobody holds it); nothing to do\n"))


@test
def break_without_token_or_terminal_says_what_to_do():
    hold("x")
    token = token_of("x")
    code, _, err = run("break", "x", "--yes")
    equal(code, 64)
    contains(err, "--token is missing", f"holdfast break x --token {token}")
    contains(run("break", "y")[2], "nobody holds y")
    code, out, err = run("break", "x", "--token", token)
    equal((code, out), (64, ""))
    contains(err, "there is no terminal", "--yes")
    equal(run("break", "x", "--token", "0", "--yes")[0], 64)
    code, _, err = run("break", "x", "--token", "seven", "--yes")
    equal(code, 64)
    contains(err, "--token cannot be 'seven'")
    code, _, err = run("break", "x", "--token", token, "--yes", "--reason", "x" * 256)
    equal(code, 64)
    contains(err, "--reason has 256 bytes")
    equal(look("x")["held"], True)


@test
def break_asks_on_a_terminal():
    hold("x", "--label", "stuck\x1b[31m")
    words = (harness.HOLDFAST, "break", "x", "--token", token_of("x"))
    for answer in ("n\n", "\n", "\x04", "yess\n"):
        terminal = Terminal(*words)
        terminal.expect(r"x is held by \S+ pid \d+ \(stuck\\x1b\[31m\) for \S+, lease [12]\ds left\.\s")
        terminal.expect(r"Break it\? \[y/N\] ")
        terminal.type(answer)
        terminal.expect("x was not broken")
        equal(terminal.wait(), 1)
        equal(look("x")["held"], True)
    terminal = Terminal(*words)
    terminal.expect(r"Break it\? \[y/N\] ")
    terminal.type("y\n")
    terminal.expect(r"broke x, which was held by ")
    equal(terminal.wait(), 0)
    equal(look("x")["held"], False)


@test
def break_of_what_was_taken_by_another_meanwhile_does_nothing():
    holder = hold("x")
    terminal = Terminal(harness.HOLDFAST, "break", "x", "--token", token_of("x"))
    terminal.expect(r"Break it\? ")
    holder.terminate()
    finish(holder)
    hold("x", "--label", "next")
    terminal.type("y\n")
    terminal.expect(rf"did not break x .*next.* with token {token_of('x')}\)")
    equal(terminal.wait(), 79)
    equal(look("x")["held"], True)


# ---- watch ----


@test
def watch_in_a_pipe_tells_events():
    holder = hold("deploy/a")
    hold("other")
    watch = start("watch", "deploy/", "--every", "50ms")
    stamp = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    matches(read_line(watch.stdout), stamp + r"held     deploy/a · \S+ pid \d+ \(sleep\) · token \d+$")
    waiter = start("run", "-q", "deploy/a", "--label", "next", "--", "sleep", "1000")
    matches(read_line(watch.stdout), stamp + r"waiting  deploy/a · \S+ pid \d+ \(next\)$")
    impatient = wait_for("deploy/a")
    contains(read_line(watch.stdout), "waiting  deploy/a")
    impatient.terminate()
    matches(read_line(watch.stdout), stamp + r"left     deploy/a · \S+ pid \d+ \(sleep\)$")
    holder.terminate()
    matches(read_line(watch.stdout), stamp + r"released deploy/a · \S+ pid \d+ \(sleep\) · token \d+$")
    matches(read_line(watch.stdout), stamp + r"acquired deploy/a · \S+ pid \d+ \(next\) · token \d+$")
    run("break", "deploy/a", "--token", token_of("deploy/a"), "--yes", "--reason", "why not")
    matches(read_line(watch.stdout), stamp + r"broken   deploy/a · \S+ pid \d+ \(next\) · token \d+ · by "
            r"\S+ pid \d+ \(holdfast break by \S+\): why not$")
    finish(waiter)
    equal(watch.poll(), None)


def check_loss_is_told(ttl_s):
    holder = hold("x", "--ttl", f"{ttl_s}s")
    seen = look("x")["holders"][0]
    watch = start("watch", "--json", "--every", "2s")
    event = json.loads(read_line(watch.stdout))
    equal((event["event"], event["name"], event["party"]["token"]), ("held", "x", seen["token"]))
    equal(set(event), {"event", "at_ms", "exact", "name", "party"})
    event = json.loads(read_line(watch.stdout))
    equal((event["event"], event["reason"]), ("watching", None))
    holder.send_signal(signal.SIGSTOP)  # it would break the lock
    os.kill(seen["pid"], signal.SIGKILL)  # nobody renews it any more
    holder.kill()
    event = json.loads(read_line(watch.stdout))
    equal((event["event"], event["party"]["owner"]), ("lost", seen["owner"]))


@test
def watch_json_is_one_object_on_a_line_and_tells_losses():
    with_longer_leases(check_loss_is_told, leases=(4, 12, 24))
    watch = start("watch", "--json", "--every", "1h")  # so rarely that no poll comes before the announcement
    while json.loads(read_line(watch.stdout))["event"] != "watching":
        pass
    hold("y")
    event = json.loads(read_line(watch.stdout))
    equal((event["event"], event["exact"]), ("acquired", True))
    run("break", "y", "--token", token_of("y"), "--yes", "--reason", "r")
    event = json.loads(read_line(watch.stdout))
    equal((event["event"], event["reason"]), ("broken", "r"))
    contains(event["by"], "holdfast break by")


@test
def watch_ends_when_nobody_reads_it():
    hold("x")
    watch = start("watch", "--every", "50ms")
    contains(read_line(watch.stdout), "held")
    watch.stdout.close()
    wait_gone(watch.pid)


@test
def watch_on_a_terminal_is_a_live_table():
    holder = hold("first")
    terminal = Terminal(harness.HOLDFAST, "watch", "--every", "50ms", columns=100)
    terminal.expect(r"\x1b\[\?1049h")
    terminal.expect(r"\x1b\[H\S+ \S+ · locks · every 50ms · q quits\x1b\[K")
    terminal.expect(r"NAME\S* .* \S*TOKEN")
    terminal.expect(r"first +exclusive +\S+ pid \d+ \(sleep\) ")
    wait_for("first")
    terminal.expect(r"first +exclusive [^\n]*\x1b\[33m1\x1b\[m")
    hold("second")
    terminal.expect(r"second +exclusive ")
    terminal.resize(5, 100)
    terminal.expect(r"… and more that do not fit here")
    terminal.resize(24, 30)
    terminal.expect(r"· locks ·…\x1b\[K")
    holder.terminate()
    terminal.type("xyz")
    terminal.type("q")
    terminal.expect(r"\x1b\[\?25h\x1b\[\?1049l")
    equal(terminal.wait(), 0)


@test
def watch_gives_the_terminal_back_whatever_ends_it():
    """By then it has drawn twice, so it has waited once: GCC 12's ThreadSanitizer loses a signal that arrives while a
    thread prepares to block for the first time."""
    for end, code in ((lambda t: t.type("\x03"), 0), (lambda t: os.kill(t.pid, signal.SIGTERM), -15)):
        terminal = Terminal(harness.HOLDFAST, "watch", "nix", "--every", "10s")
        terminal.expect(r"no lock is held or waited for")
        terminal.resize(30, 100)
        terminal.expect(r"no lock is held or waited for")
        end(terminal)
        terminal.expect(r"\x1b\[\?25h\x1b\[\?1049l")
        equal(terminal.wait(), code)


@test
def watch_tells_events_on_a_terminal_that_cannot_draw():
    hold("x")
    terminal = Terminal(harness.HOLDFAST, "watch", TERM="dumb")
    terminal.expect(r"^\S+ \S+ held     x · ")


@test
def watch_can_be_stopped_and_goes_on():
    terminal = Terminal("bash", "--norc", "--noprofile", "-i")
    terminal.expect(r"\$ ")
    terminal.type("holdfast watch --every 50ms\n")
    terminal.expect(r"q quits")
    terminal.expect(r"q quits")  # it has waited once: see above
    terminal.type("\x1a")
    terminal.expect(r"\x1b\[\?1049l")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ ")
    terminal.type("stty -a; fg\n")
    terminal.expect(r" icanon [^$]* echo ")
    terminal.expect(r"\x1b\[\?1049h")
    terminal.expect(r"q quits")
    terminal.type("q")
    terminal.expect(r"\x1b\[\?1049l")
    terminal.type("echo code $?.\n")
    terminal.expect(r"code 0\.")


# ---- Everything that is printed is safe ----


@test
def what_others_chose_is_shown_safely_and_is_valid_json():
    program = f"{harness.folder}/{NASTY.replace('/', '')[:40]}"
    os.symlink("/bin/sleep", program)
    hold(NASTY, "--label", NASTY, program=program)
    watch = start("watch", "--every", "50ms")
    watch_json = start("watch", "--every", "50ms", "--json")
    is_clean((read_line(watch.stdout) + "\n").encode())
    event = json.loads(read_line(watch_json.stdout))
    contains(event["party"]["label"], "<b>", "\x1b[31m", "🔒")
    token = token_of(NASTY)
    shown = r"a\x1b[31m\x07<b>" + "\"'&\\\\ " + r"\xe2\x80\xaeevil\xe2\x80\xac \xff\xc3 \x09\xc2\x9b1m 注文 🔒"
    for words in (["ls"], ["inspect", NASTY], ["break", NASTY, "--token", "5", "--yes"],
                  ["break", NASTY]):
        out, err = raw(*words)
        contains(is_clean(out) + is_clean(err), shown)
    for words in (["ls", "--json"], ["inspect", "--json", NASTY],
                  ["break", NASTY, "--token", token, "--yes", "--json", "--reason", NASTY]):
        out, err = raw(*words)
        equal(err, b"")
        equal(json.loads(out.decode())["name"], NASTY.encode(errors="surrogateescape").decode(
            errors="replace"))
    out, _ = raw("inspect", NASTY)
    contains(is_clean(out), "  reason   " + shown)
    is_clean((read_line(watch.stdout) + "\n").encode())


# ---- Many ----


def fill(count):
    """Writes locks of another client into the store directly."""
    equal(run("ls")[0], 0)  # it makes the file
    database = sqlite3.connect(f"{harness.folder}/locks.db")
    until_us = boot_ms() * 1000 + 3600 * 1000000
    with database:
        database.executemany("INSERT INTO locks (name, kind, capacity, token, used_day)"
                             " VALUES (?, 2, 2147483647, 7, ?)",
                             ((f"many/{i:06}", int(time.time() / 86400)) for i in range(count)))
        database.execute("INSERT INTO claims SELECT name, 1, 1, 2147483647, ?, zeroblob(16), rowid_of, 7, ?,"
                         " 1, 1, 0, 0, 0, 0, 'host', 'command', 'label', 0 FROM"
                         " (SELECT name, row_number() OVER () AS rowid_of FROM locks)",
                         (until_us, int(time.time() * 1e6)))
    database.close()


def most_memory_kb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(matches(file.read(), r"VmHWM:\s+(\d+) kB")[1])


def processor_s():
    """The CPU time of the processes that we started, however busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@test
def with_a_hundred_thousand_locks_a_look_comes_at_once():
    fill(MANY)
    for words, expected in ((["ls", "many/0500"], 101), (["ls", "many/099999"], 2),
                            (["ls", "nothing"], 1), (["inspect", "many/050000"], 6)):
        before = processor_s()
        code, out, _ = run(*words)
        seconds = processor_s() - before
        equal((words, code, len(out.splitlines())), (words, 0, expected))
        assert seconds < 2, f"{words} took {seconds} s"


@test
def a_hundred_thousand_locks_are_listed_in_little_memory():
    fill(MANY)
    for words, expected in ((["ls"], MANY + 1), (["ls", "--json"], MANY)):
        process = start(*words, env=harness.environment(ASAN_OPTIONS="quarantine_size_mb=1"))
        count = 0
        kb = []
        with os.fdopen(os.dup(process.stdout.fileno()), "rb") as lines:
            for count, _ in enumerate(lines, 1):
                if count in (1000, MANY - 2000):  # it cannot run ahead by more than the pipe has room
                    kb.append(most_memory_kb(process.pid))
        equal((finish(process)[0], count), (0, expected))
        assert kb[1] < kb[0] + 16000, f"{words}: {kb[0]} KB at the start, {kb[1]} KB at the end"
        assert kb[1] < 200000, f"{words}: {kb[1]} KB"


# ---- Words ----


@test
def every_command_has_help_with_examples():
    for command in ("ls", "inspect", "watch", "break"):
        code, out, _ = run("help", command)
        equal((code, out), (0, run(command, "--help")[1]))
        contains(out, f"Usage: holdfast {command}", "Examples:\n", f"  holdfast {command}")
        assert max(map(len, out.splitlines())) <= 120
        contains(run("help")[1], f"  {command} ")


@test
def what_is_wrong_is_named():
    for words, hint in ((["ls", "--wating"], "did you mean --waiting?"),
                        (["ls", "a", "b"], "unexpected argument 'b'"),
                        (["inspect"], "missing argument"),
                        (["watch", "--every", "soon"], "--every cannot be 'soon'"),
                        (["watch", "--every", "1ms"], "--every must be at least 50ms"),
                        (["break", "x", "--tokn", "5"], "did you mean --token?"),
                        (["inspect", "x" * 256], "255 bytes")):
        code, out, err = run(*words)
        equal((words, code, out), (words, 64, ""))
        contains(err, "holdfast: ", hint)
    for command in (["ls"], ["inspect", "x"], ["watch"], ["break", "x", "--token", "1", "--yes"]):
        code, out, err = run(*command, "--url", f"sqlite:{harness.folder}/no/such.db")
        assert code in (69, 77, 78), (command, code, err)
        equal(out, "")
        matches(err, r"^holdfast: .*; .*\n$")


@test
def a_full_disk_is_reported():
    hold("x")
    with open("/dev/full", "wb") as full:
        for words in (["ls"], ["inspect", "x"], ["stores"], ["version"], ["--help"], ["acquire", "y", "--for", "1m"]):
            code, _, err = finish(start(*words, stdout=full))
            equal((code, err), (70, "holdfast: cannot write to standard output (No space left on "
                                "device)\n"))
    assert is_free("y"), "nobody knows which hold to release"


@test
def a_lock_whose_hold_nobody_reads_is_released():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        code, _, err = finish(start("acquire", "y", "--for", "1m", stdout=closed))
    equal((code, err), (70, "holdfast: cannot write to standard output (Broken pipe)\n"))
    assert is_free("y")


main()
