"""What the tests of the Python package share: the package of this tree over the library that the first argument names.

A test is a function with @test; its name says what it shows. Each runs in its own process, with its own store (new_url)
in a fresh folder, and ends after LIMIT_S at the latest."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings/python"
LIBRARY = os.path.abspath(sys.argv[1])
sys.path[:0] = [str(PACKAGE), str(ROOT / "tests")]
os.environ |= {"HOLDFAST_LIBRARY": LIBRARY, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
from support.children import run_tests

LIMIT_S = 150
PATIENCE_S = 40  # for things that happen at once on a machine that is not busy

tests = []
folder = ""


def test(function):
    add_test(function.__name__.replace("_", " "), function)
    return function


def add_test(name, function):
    def run_there():
        global folder
        with tempfile.TemporaryDirectory(prefix="holdfast-python-") as folder:
            function()

    tests.append((name, run_there))


def path_of(name):
    return f"{folder}/{name}"


def new_url():
    """The URL of a store that other processes see."""
    return f"sqlite:{path_of('locks.db')}"


def main(limit_s=LIMIT_S):
    run_tests(tests, sys.argv[2] if len(sys.argv) > 2 else "", limit_s)


def raises(kind, function, *arguments, **options):
    """The exception of this kind that the call raises."""
    try:
        function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def start_python(script, *words, **options):
    """Another interpreter, with this script; its stdout is a pipe of lines."""
    return subprocess.Popen([sys.executable, "-c", script, *map(str, words)], text=True, stdout=subprocess.PIPE,
                            stdin=subprocess.PIPE, **options)
