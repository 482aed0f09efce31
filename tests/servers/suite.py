"""Tests with real servers and processes, as TAP: a test is a function with @test, whose name says what it shows;
@test(url, ...) runs it once with each of the arguments. main() runs all of them, or those whose names contain the
words of the option `-t words`. A test fails by raising, and after LIMIT_S; it is skipped by raising Skipped."""
import functools
import sys

from support.children import run_tests

LIMIT_S = 60
tests = []


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


class Tests:
    """Tests that several programs run, each with its own server or store as the first argument:

        faults = Tests()

        @faults.test
        def who_waits_is_served(store):

    A program adds them to its own with faults.add(store).
    """

    def __init__(self):
        self.tests = []

    def test(self, *arguments):
        def add(function):
            self.tests.append((function, () if callable(arguments[0]) else arguments))
            return function

        return add(arguments[0]) if callable(arguments[0]) else add

    def add(self, subject):
        for function, arguments in self.tests:
            bound = functools.wraps(function)(functools.partial(function, subject))
            if arguments:
                test(*arguments)(bound)
            else:
                test(bound)


def equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def main():
    words = sys.argv[sys.argv.index("-t") + 1] if "-t" in sys.argv else ""
    run_tests(tests, words, LIMIT_S)
