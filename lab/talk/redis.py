"""A minimal Redis client: one call is one command, and returns its reply.

    redis = Redis(port)
    redis("SET", "key", "value")

A command whose connection was lost is sent again over a new one, as the usual client libraries do.
"""
import contextlib
import time

from servers.redis import Connection

ANSWER_S = 10  # for one reply
AGAIN_S = 10  # how long a command is repeated
PAUSE_S = 0.02


class Redis:
    def __init__(self, port, answer_s=ANSWER_S, again_s=AGAIN_S):
        """again_s=0: a command that fails is not sent again."""
        self.port, self.answer_s, self.again_s = port, answer_s, again_s
        self.connection = None

    def __call__(self, *words):
        until = time.monotonic() + self.again_s
        while True:
            try:
                self.connection = self.connection or Connection(self.port, self.answer_s)
                return self.connection.command(*words)
            except OSError:
                self.disconnect()
                if time.monotonic() >= until:
                    raise
            time.sleep(PAUSE_S)

    def disconnect(self):
        """A late reply must not be taken for that of the next command."""
        if self.connection:
            with contextlib.suppress(OSError):
                self.connection.__exit__()
        self.connection = None
