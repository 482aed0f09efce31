"""A process that a test starts, stops, continues and ends, always by its pid.

Nothing outlives its test: a process that is started here is killed when its `with` block is left, however
that happens, and by the kernel (PR_SET_PDEATHSIG) when the test itself is killed. The kernel looks at the
thread that started it: start from the main thread, or from one that lives as long.
"""
import os
import signal
import socket
import subprocess

LIMIT_S = 30


class Process:
    child = None

    def launch(self, words, **options):
        """Starts it in its own process group, as shells do: a terminal's Ctrl-C and hang-up only reach the
        test."""
        assert not self.running(), f"{words[0]} runs already"
        self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *map(str, words)],
                                      process_group=0, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def pid(self):
        return self.child.pid

    def running(self):
        return self.child is not None and self.child.poll() is None

    def stop(self):
        """SIGSTOP; when this returns, none of its threads runs any more."""
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def cont(self):
        self.child.send_signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL; when this returns, the process is gone. May be repeated."""
        if self.running():
            self.child.kill()
            self.child.wait(LIMIT_S)

    def terminate(self):
        """SIGTERM; it must end within the limit. Returns its exit status."""
        if self.running():
            self.child.terminate()
            self.cont()  # if it is stopped
        return self.child.wait(LIMIT_S)


def reserve_port():
    """A socket that reserves a free loopback port without listening: connections are refused, and the
    kernel gives the port to nobody else, but a server that asks for exactly this port with SO_REUSEADDR,
    as servers do, may listen on it. So a server that restarts finds its port free."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved
