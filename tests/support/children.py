"""Runs the tests of a Python program as check.h runs those of a C program: each in its own process, several at
once, with their results as TAP in the order of the file.

A test fails by raising, or when its time is over, and is skipped by raising Skipped. Its output is printed above its
result. tests/run sets two variables: HOLDFAST_TEST_JOBS is how many tests run at once, and HOLDFAST_TEST_ONLY is the
whole name of the one test to run.
"""
import collections
import ctypes
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback

from support.tap import Skipped, check, done

PR_SET_PDEATHSIG = 1


class TimeUp(BaseException):
    pass


def limit(seconds):
    def time_is_up(*_):
        raise TimeUp(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, time_is_up)
    signal.alarm(seconds)


def problem_of(function, limit_s):
    """What is wrong with the test: None, a Skipped, or a text."""
    limit(limit_s)
    try:
        function()
        return None
    except Skipped as skipped:
        return skipped
    except (Exception, TimeUp):  # pylint: disable=broad-except
        return traceback.format_exc()
    finally:
        signal.alarm(0)


class Child:
    """The process of one test. It has files for what it prints and for its problem."""

    def __init__(self, name, function, limit_s):
        self.name, self.output, self.problem = name, tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.status = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.run(function, limit_s)
            finally:
                os._exit(1)

    def run(self, function, limit_s):
        """Runs in the child, which gets a SIGTERM when its parent dies, and then still cleans up."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        for stream in (1, 2):
            os.dup2(self.output.fileno(), stream)
        random.seed()
        pickle.dump(problem_of(function, limit_s), self.problem)
        self.problem.flush()
        sys.stdout.flush()
        os._exit(0)

    def report(self):
        for file in (self.output, self.problem):
            file.seek(0)
        print(self.output.read().decode(errors="replace"), end="")
        check(self.name, f"ended with {self.status}" if self.status else pickle.load(self.problem))
        self.output.close()
        self.problem.close()


def run_tests(tests, words, limit_s):
    """Runs those of the tests, (name, function), whose names contain the words, and ends the program."""
    only = os.environ.get("HOLDFAST_TEST_ONLY")
    jobs = int(os.environ.get("HOLDFAST_TEST_JOBS", 1))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    waiting = [test for test in tests if words in test[0] and only in (None, test[0])]
    started = collections.deque()  # and not yet reported
    while waiting or started:
        while waiting and sum(child.status is None for child in started) < jobs:
            started.append(Child(*waiting.pop(0), limit_s))
        if started[0].status is None:
            pid, status = os.wait()
            for child in started:
                if child.pid == pid:
                    child.status = status
        else:
            started.popleft().report()
    done()
