"""The package is installed by one command from the tree, by make or by pip, without a network."""
import os
import subprocess
import sys

from harness import PACKAGE, ROOT, main, path_of, test

DEBIANS = "/usr/bin/python3"  # the distribution manages its packages
PROGRAM = """
import holdfast, importlib.metadata
with holdfast.open("memory:") as client, client.lock("job") as hold:
    print(holdfast.__file__, importlib.metadata.version("holdfast") == holdfast.__version__)
"""


def run(*words, **env):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in words], env=environment | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_installed(python, folder):
    assert os.path.exists(f"{folder}/holdfast/py.typed")
    assert run(python, "-c", PROGRAM, PYTHONPATH=folder) == f"{folder}/holdfast/__init__.py True\n"


@test
def make_installs_it_where_python_looks_for_packages():
    for python in dict.fromkeys([sys.executable, DEBIANS]):
        stage = path_of("stage")
        run("make", "-C", ROOT, "install-python", f"PYTHON={python}", f"DESTDIR={stage}")
        looks = run(python, "-c", "import sys; print(*sys.path, sep='\\n')").split("\n")
        found = [folder for folder in looks if folder and os.path.exists(f"{stage}{folder}/holdfast")]
        assert len(found) == 1, looks
        check_installed(python, stage + found[0])


@test
def pip_installs_it_from_the_tree():
    target = path_of("target")
    run(DEBIANS, "-m", "pip", "install", "-q", "--target", target, PACKAGE, PIP_NO_INDEX="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    check_installed(DEBIANS, target)


main()
