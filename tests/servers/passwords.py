"""Looks for passwords where a command that runs under a lock, or a reader of the output, could find them. For
tests whose first argument is HOLDFAST."""
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from servers.suite import LIMIT_S, equal

HOLDFAST = sys.argv[1]
PASSWORD, OTHER = "hunter2-hunter2", "swordfish-swordfish"

# What a command sees: its environment and descriptors, and what it can find out about its parent.
LOOK = "tr '\\0' '\\n' </proc/self/environ; ls -l /proc/self/fd; cat /proc/$PPID/environ /proc/$PPID/cmdline"


@contextlib.contextmanager
def secret_file(text=PASSWORD, mode=0o600):
    """A file with a password, open: (its path, its descriptor)."""
    with tempfile.TemporaryDirectory(prefix="holdfast-secrets-") as folder:
        path = Path(folder) / "pw"
        path.write_text(text + "\n")
        path.chmod(mode)
        with open(path) as file:
            yield path, file.fileno()


def holdfast(*words, fd=None, prefix=(), **env):
    """Runs the command: (exit code, stdout and stderr)."""
    env = {key: value for key, value in os.environ.items()
           if key == "PATH" or key.endswith("SAN_OPTIONS")} | \
        {"XDG_CONFIG_HOME": "/nowhere"} | {key: str(value) for key, value in env.items()}
    if fd is not None:
        os.lseek(fd, 0, os.SEEK_SET)
    done = subprocess.run([*prefix, HOLDFAST, *map(str, words)], pass_fds=[fd] if fd else [], env=env, check=False,
                          timeout=LIMIT_S, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def check_hidden(text):
    """Checks that there is no password, no variable that had one, no descriptor of its file."""
    found = re.search(rf"{PASSWORD}|{OTHER}|(?m:^PW2?=.|-> .*/pw$)", text.replace("\0", "\n"))
    assert not found, f"{found[0]!r} is in {text!r}"


def check_child(*words, **options):
    """Checks that the lock is taken, so the password was right, and that the command finds none."""
    code, out = holdfast("run", *words, "x", "--", "sh", "-c", LOOK, **options)
    equal((code, out), (0, out))
    check_hidden(out)


def places(path, fd, prefix=""):
    """The options of a URL that say where a password is, and what holdfast is given for each."""
    return ((f"{prefix}password_file={path}", {}), (f"{prefix}password_env=PW", {"PW": path.read_text().strip()}),
            (f"{prefix}password_fd={fd}", {"fd": fd}))
