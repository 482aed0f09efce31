"""TAP for test scripts: check(name, problem) reports one test, which passes if there is no problem, or
is skipped if the problem is a Skipped with the reason why it cannot be tried on this machine;
run(command) runs something and returns its output, or raises Failed with it; done() ends the
script."""
import subprocess
import sys

count = failures = 0


class Failed(Exception):
    pass


class Skipped(Exception):
    """Raised by a test that cannot be tried on this machine, with the reason."""


def need_rights_for(*command):
    """Skips the test if this machine does not permit a command, which must be harmless."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = done.stderr.splitlines() or [f"{command[0]} ended with {done.returncode}"]
        raise Skipped(f"not permitted here: {said[0]}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout}")
    return done.stdout


def check(name, problem):
    global count, failures
    count += 1
    if isinstance(problem, Skipped):
        print(f"ok {count} - {name} # SKIP {problem}", flush=True)
        return
    failures += bool(problem)
    print(f"{'not ok' if problem else 'ok'} {count} - {name}")
    for line in str(problem or "").splitlines():
        print("#", line)
    sys.stdout.flush()


def check_runs(name, function, *arguments):
    """A test that passes if the function returns nothing to complain about and nothing in it fails."""
    try:
        problem = function(*arguments)
    except (Failed, Skipped) as failure:
        problem = failure
    check(name, problem)


def done():
    print(f"1..{count}")
    sys.exit(1 if failures or not count else 0)
