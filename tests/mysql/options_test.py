#!/usr/bin/env python3
"""Where the passwords of a MariaDB server come from: options_test.py HOLDFAST PUPPET."""
import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.mariadb import PASSWORD, MariaDB, patient
from servers.process import LIMIT_S
from servers.scene import HOLDFAST
from servers.suite import equal, main, test


def run(url, secret=None, **env):
    """Runs a command under the lock "x": what it says. secret: what can be read from the descriptor 5."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    words = ["bash", "-c", f'exec 5<<< "{secret}"; exec "$@"' if secret else 'exec "$@"', "bash",
             HOLDFAST, "run", "-n", "x", "--", "echo", "done"]
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                          env=keep | {"HOLDFAST_URL": patient(url), "HOME": "/nonexistent",
                                      "XDG_CONFIG_HOME": "/nonexistent"} | env)


def works(url, **options):
    done = run(url, **options)
    assert done.stdout == "done\n", done  # a slow machine may have said that it waits


def fails(url, word, **options):
    done = run(url, **options)
    equal(done.stdout, "")
    assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"


@test
def a_password_can_come_from_a_descriptor_a_variable_or_a_file():
    with MariaDB() as server:
        url = server.url(user="holder")
        works(f"{url}?password_fd=5", secret=PASSWORD)
        fails(f"{url}?password_fd=5", "Access denied", secret="wrong")
        fails(f"{url}?password_fd=5", "descriptor 5")  # which is not open
        works(f"{url}?password_env=SECRET", SECRET=PASSWORD)
        fails(f"{url}?password_env=SECRET", "SECRET")
        secret = server.folder / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        works(f"{url}?password_file={secret}")
        secret.chmod(0o644)
        fails(f"{url}?password_file={secret}", str(secret))


main()
