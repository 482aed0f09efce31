"""holdfast demo: what it promises to show happens."""
import os
import re
import shutil

import harness
from harness import contains, environment, equal, main, run, test


def lines_in_order(text, *patterns):
    """Finds a line for each pattern, each after the one before."""
    at = 0
    for pattern in patterns:
        found = re.compile(f"^{pattern}$", re.MULTILINE).search(text, at)
        assert found, f"{pattern} is missing after {text[:at]!r} in {text!r}"
        at = found.end()
    return found


@test
def the_demo_shows_what_it_promises():
    temporary = f"{harness.folder}/temporary"
    os.mkdir(temporary)
    code, out, err = run("demo", env=environment(TMPDIR=temporary))
    equal((code, err), (0, ""))
    lines_in_order(out, "anna works", "ben works", "carla works", "dora works", r"  \$ kill -KILL \d+", "emil works",
                   "emil may write", "holdfast: token .* is refused .*", "anna may not", "exit code 124")
    held_by, = re.findall(r"waiting for deploy .* held by \S+ pid (\d+) .* 1st of 1 ", out)
    contains(out, f"$ kill -KILL {held_by}\n")
    equal(os.listdir(temporary), [])


@test
def a_demo_that_fails_says_so():
    code, _, err = run("demo", env=environment(TMPDIR="/nonexistent"))
    equal(code, 70)
    contains(err, "cannot run the demo (No such file or directory)")
    tools = f"{harness.folder}/tools"
    os.mkdir(tools)
    for name in ("sh", "cat", "rm", "grep", "head"):  # but not sleep
        os.symlink(shutil.which(name), f"{tools}/{name}")
    code, out, _ = run("demo", env=environment(PATH=tools, TMPDIR=harness.folder))
    equal(code, 127)
    contains(out, "1. Three contenders", "sleep: not found")
    equal([name for name in os.listdir(harness.folder) if "demo" in name], [])


main()
