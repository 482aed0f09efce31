"""Whether the command reaches a store: it runs something under the lock "x"."""
import os
import subprocess

from servers.process import LIMIT_S
from servers.scene import HOLDFAST
from servers.suite import equal


def run(url, secret=None, flags=(), **env):
    """The command's output. secret: what can be read from descriptor 5; flags: for the command."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "PG"))}
    with_secret = ["bash", "-c", f'exec 5<<< "{secret}"; exec "$@"', "bash"] if secret else []
    return subprocess.run([*with_secret, HOLDFAST, "run", "-qn", *flags, "x", "--", "echo", "done"], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                          env=keep | {"HOLDFAST_URL": url, "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"} | env)


def works(url, **options):
    done = run(url, **options)
    equal((done.stdout, done.stderr), ("done\n", ""))


def fails(url, *words, **options):
    done = run(url, **options)
    equal(done.stdout, "")
    assert done.returncode, done
    for word in words:
        assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
