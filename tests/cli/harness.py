"""What the tests of the command share: they drive the real binary, and speak TAP.

A test is a function with @test; it has no docstring, because its name says what it shows. Each runs with
its own store in a fresh folder and ends after LIMIT_S at the latest; it is skipped by raising Skipped.
Every process that it started carries a mark in its environment, and is killed by pid afterwards, whatever
happened.
"""
import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.children import run_tests
from support.tap import need_rights_for

LIMIT_S = 150
PATIENCE_S = 40  # for things that happen at once on a machine that is not busy
HOLDFAST = os.path.abspath(sys.argv[1])
BREAK = os.path.abspath(sys.argv[2])
DISK_SHIM = os.path.join(os.path.dirname(BREAK), "disk_shim.so")
MARK = "HOLDFAST_TEST_MARK"
PR_SET_CHILD_SUBREAPER = 36

tests = []
folder = ""

# The program that runs the tests may ignore signals (nohup does), and their children would inherit that.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def test(function):
    tests.append(function)
    return function


# ---- Processes ----


def environment(**changes):
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": f"sqlite:{folder}/locks.db", "XDG_RUNTIME_DIR": folder,
            "XDG_CONFIG_HOME": f"{folder}/config", MARK: folder,
            "LC_ALL": "C.UTF-8"}
    return env | changes


def start(*words, **options):
    """Starts holdfast with these words; stdout and stderr are pipes unless the options say otherwise."""
    return start_program(HOLDFAST, *words, **options)


def start_program(*words, env=None, **options):
    """Starts it in its own process group, as a shell starts its jobs. Otherwise our group could become
    orphaned when the command ends, and the kernel would send it SIGHUP if a process in it is stopped."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "stdin": subprocess.DEVNULL, "process_group": 0} | options
    return subprocess.Popen(words, env=env or environment(), cwd=folder, bufsize=0, **options)


def run(*words, input=None, env=None):
    """Runs holdfast to its end: (exit code, stdout, stderr)."""
    return finish(start(*words, env=env, stdin=subprocess.PIPE if input else subprocess.DEVNULL), input)


def shell(script, **variables):
    """Runs a shell script, in which holdfast is found."""
    return finish(start_program("bash", "-c", script, env=with_path(**variables)))


def start_unshared(flags, *words, **options):
    """Starts a program in new namespaces, as given by unshare(1)'s flags."""
    need_rights_for("unshare", flags, "true")
    return start_program("unshare", flags, *words, **options)


def with_path(**variables):
    return environment(PATH=os.path.dirname(HOLDFAST) + ":" + os.environ["PATH"], **variables)


def finish(process, input=None):
    """Waits for the end of a process: (exit code, stdout, stderr)."""
    out, err = process.communicate(input.encode() if input else None, timeout=LIMIT_S)
    return process.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(
        errors="replace")


def read_line(pipe, seconds=PATIENCE_S):
    """Reads one line from an unbuffered pipe, without the newline."""
    line = b""
    until = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        left = until - time.monotonic()
        assert left > 0 and select.select([pipe], [], [], left)[0], f"no line came, only {line!r}"
        byte = os.read(pipe.fileno(), 1)
        assert byte, f"the pipe ended after {line!r}"
        line += byte
    return line[:-1].decode(errors="replace")


def read_pids(process, count):
    return [int(read_line(process.stdout)) for _ in range(count)]


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def state_of(pid):
    """R, S, T, Z, ...; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def lives(pid):
    return state_of(pid) not in (None, "Z", "X")


def wait_gone(*pids, seconds=PATIENCE_S):
    """Waits on pidfds until none of the processes is alive."""
    until = time.monotonic() + seconds
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            left = max(0, until - time.monotonic())
            assert select.select([fd], [], [], left)[0], f"{pid} still lives"
        finally:
            os.close(fd)


def wait_until(condition, what, seconds=PATIENCE_S):
    """Polls often, for conditions that no event reports."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.005)


def pass_time(seconds):
    until_ms = boot_ms() + seconds * 1000
    wait_until(lambda: boot_ms() > until_ms, "time passes", seconds + PATIENCE_S)


def with_longer_leases(check, leases=(3, 9, 24)):
    """For things that must happen within a lease, or within --max-hold: a busy machine may be too slow, so a check
    that fails with 3 s is tried again with more. check(seconds) starts everything itself; each further try starts in
    an empty folder. If only the beginning of a test must be quick, that part is the check, and the test continues with
    what it returns."""
    for seconds in leases:
        try:
            return check(seconds)
        except (AssertionError, LookupError, OSError, ValueError) as error:  # what it looks for may be gone
            if seconds == leases[-1]:
                raise
            print(f"# again: with {seconds} s: {error!r}", flush=True)
            clean_up()
            os.mkdir(folder, 0o700)
    return None


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000000


def is_free(name):
    return run("run", "-q", "-n", name, "true")[0] == 0


def break_lock(name, token):
    done = subprocess.run([BREAK, environment()["HOLDFAST_URL"], name, token], capture_output=True,
                          timeout=LIMIT_S, env=environment())
    assert done.returncode == 0, done.stderr


# ---- Checks ----


def equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def contains(text, *words):
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


def matches(text, pattern):
    found = re.search(pattern, text)
    assert found, f"{text!r} does not match {pattern!r}"
    return found


# ---- The runner ----


def marked():
    """The processes that were started for the current test."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if f"{MARK}={folder}".encode() in file.read().split(b"\0"):
                    yield int(entry)
        except OSError:
            continue


def end_marked():
    for _ in range(100):
        pids = list(marked())
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not pids:
            break
        time.sleep(0.01)


def clean_up():
    end_marked()
    shutil.rmtree(folder, ignore_errors=True)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def in_folder(function):
    """Runs the test in its own folder, which is cleaned up afterwards."""
    def run_there():
        global folder
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        folder = tempfile.mkdtemp(prefix="holdfast-cli-")
        try:
            function()
        finally:
            clean_up()

    return function.__name__.replace("_", " "), run_there


def main():
    run_tests(map(in_folder, tests), sys.argv[3] if len(sys.argv) > 3 else "", LIMIT_S)
