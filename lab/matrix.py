"""Plays many cells, several at a time: most of the time they wait.

Each cell is a separate process, forked from one that has the servers which cells share. So a cell that hangs can be
killed, with everything it started, and none of its effects reach the next one. Whenever the lab ends, it ends the
cells first and then the servers.
"""
import collections
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from lab import cell
from servers.disk import NotPermitted

LIMIT_S = 120  # of a cell
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1

Task = collections.namedtuple("Task", "scenario row number")


def gap(task, verdict, sentence):
    """What the matrix shows for a cell that was not played."""
    return {"scenario": task.scenario.name, "row": task.row.name, "protocol": task.row.protocol.name,
            "place": task.row.place.name, "verdict": verdict, "sentence": sentence}


class Shared:
    """The servers that cells share, each started when the first cell needs it, and what the protocols' clients need."""

    def __init__(self, stack):
        self.stack, self.running, self.failed, self.prepared = stack, {}, {}, set()

    def prepare(self, protocol):
        if protocol not in self.prepared:
            protocol.prepare(Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-lab-"))))
            self.prepared.add(protocol)

    def place(self, place):
        if place in self.failed:
            raise self.failed[place]
        if place not in self.running:
            try:
                self.running[place] = self.stack.enter_context(place())
            except Exception as error:
                self.failed[place] = error
                raise
        return self.running[place]


class Cell:
    """A task that is being played, by a child that sends its history through a pipe."""

    def __init__(self, task, place):
        self.task, self.until, self.data = task, time.monotonic() + LIMIT_S, b""
        parent = os.getpid()
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                os.close(self.pipe)
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
                if os.getppid() == parent:
                    self.send(theirs, self.play(place))
                    status = 0
            finally:
                os._exit(status)
        os.close(theirs)

    def play(self, place):
        try:
            return cell.play(self.task.scenario, self.task.row, place)
        except SystemExit:
            raise
        except NotPermitted as error:
            return gap(self.task, "gap", f"not permitted here: {error}")
        except BaseException:  # pylint: disable=broad-except # it is reported
            return gap(self.task, "error", traceback.format_exc())

    @staticmethod
    def send(pipe, history):
        data = json.dumps(history).encode()
        while data:
            data = data[os.write(pipe, data):]

    def read(self):
        """Whether it has ended."""
        piece = os.read(self.pipe, 65536)
        self.data += piece
        return not piece

    def result(self):
        self.end()
        return json.loads(self.data) if self.data else gap(self.task, "error", "the cell ended without a word")

    def end(self):
        """Ends it and what it started; may be repeated."""
        if self.pid:
            os.close(self.pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)
            self.pid = None


def end_on_signals():
    """Makes signals leave every `with` block. The first signal does that; later ones do not disturb it."""
    def end(number, _):
        for each in ENDING:
            signal.signal(each, lambda *_: None)
        sys.exit(128 + number)

    for number in ENDING:
        signal.signal(number, end)


@contextlib.contextmanager
def undisturbed():
    """Delays signals until after this."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


@contextlib.contextmanager
def folder_for_all():
    """Everything that the lab, its cells and their servers write is in one folder. So nothing is left even of a cell
    that got a signal after it had made a folder, but before it entered the `with` block that removes it."""
    with undisturbed(), tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
        os.chmod(folder, 0o711)  # some servers run as another user
        tempfile.tempdir = folder
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            tempfile.tempdir = None


def play(tasks, jobs):
    """Yields the result of each task, in the order in which they end."""
    waiting, cells = collections.deque(), []
    for task in tasks:
        if reason := task.scenario.why_not(task.row.protocol, task.row.place):
            yield gap(task, "n/a", reason)
        elif missing := task.row.missing(task.scenario.programs):
            yield gap(task, "gap", f"not installed: {' '.join(missing)}")
        else:
            waiting.append(task)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder_for_all())
        shared = Shared(stack)
        stack.callback(lambda: [cell.end() for cell in cells])
        while waiting or cells:
            while waiting and len(cells) < jobs:
                task = waiting.popleft()
                try:
                    shared.prepare(task.row.protocol)
                    place = None if task.scenario.harms else shared.place(task.row.place)
                    with undisturbed():
                        cells.append(Cell(task, place))
                except (RuntimeError, OSError, AssertionError, subprocess.CalledProcessError) as error:
                    yield gap(task, "error", f"the servers do not start: {error}")
            ready, _, _ = select.select([cell.pipe for cell in cells], [], [], 1)
            for each in list(cells):
                if (each.pipe in ready and each.read()) or time.monotonic() > each.until:
                    cells.remove(each)
                    yield each.result()
