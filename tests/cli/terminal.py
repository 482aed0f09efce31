"""A program on a terminal: a pty that a test types into and reads from."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import harness
from harness import with_path


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """A program on its own pty, as its controlling terminal."""

    def __init__(self, *words, rows=24, columns=80, **variables):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            set_size(0, rows, columns)
            os.chdir(harness.folder)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
            os.execvpe(words[0], words, with_path(**{"PS1": "$ ", "TERM": "xterm"} | variables))

    def resize(self, rows, columns):
        set_size(self.fd, rows, columns)

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=harness.PATIENCE_S):
        """Reads until the pattern matches; drops everything up to the end of the match."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            left = until - time.monotonic()
            ready = left > 0 and select.select([self.fd], [], [], left)[0]
            assert ready, f"no {pattern!r} in {self.text[-2000:]!r}"
            try:
                data = os.read(self.fd, 4096)
            except OSError:  # the other end was closed
                data = b""
            assert data, f"it ended without {pattern!r}: {self.text!r}"
            self.text += data.decode(errors="replace")
        self.text = self.text[found.end():]
        return found

    def rest(self):
        """What it prints until it ends."""
        try:
            while data := os.read(self.fd, 4096):
                self.text += data.decode(errors="replace")
        except OSError:  # the other end was closed
            pass
        return self.text

    def wait(self):
        """The exit code, once the program has ended."""
        fd = os.pidfd_open(self.pid)
        while not select.select([fd], [], [], 0)[0]:
            ready = select.select([fd, self.fd], [], [], harness.PATIENCE_S)[0]
            assert ready, "it does not end"
            try:
                if self.fd in ready:
                    os.read(self.fd, 4096)
            except OSError:
                select.select([fd], [], [], harness.PATIENCE_S)
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
