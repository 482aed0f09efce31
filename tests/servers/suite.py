"""Tests with real servers and processes, as TAP: a test is a function with @test, whose name says what it shows;
@test(url, ...) runs it once with each of the arguments. main() runs all of them, or those whose names contain the
words of the option `-t words`. A test fails by raising, and after LIMIT_S; it is skipped by raising Skipped."""
import signal
import sys
import traceback

from support.tap import Skipped, check, done

LIMIT_S = 60
tests = []


class TimeUp(BaseException):
    pass


def test(*arguments):
    def add(function, title=None):
        tests.append((title or function.__name__.replace("_", " "), function))
        return function

    if callable(arguments[0]):
        return add(arguments[0])

    def add_each(function):
        for argument in arguments:
            add(lambda argument=argument: function(argument), f"{function.__name__.replace('_', ' ')}: {argument}")
        return function

    return add_each


def equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def time_is_up(*_):
    raise TimeUp(f"not done after {LIMIT_S} s")


def run_one(function):
    """None, or what went wrong."""
    signal.alarm(LIMIT_S)
    try:
        function()
        return None
    except Skipped as reason:
        return reason
    except (Exception, TimeUp) as error:  # pylint: disable=broad-except
        return "".join(traceback.format_exception(error))
    finally:
        signal.alarm(0)


def main():
    signal.signal(signal.SIGALRM, time_is_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers and folders are cleaned up
    words = sys.argv[sys.argv.index("-t") + 1] if "-t" in sys.argv else ""
    for title, function in tests:
        if words in title:
            check(title, run_one(function))
    done()
