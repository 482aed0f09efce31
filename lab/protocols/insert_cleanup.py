"""INSERT and DELETE, and a job that deletes old rows

The usual repair of a lock that a crash leaves behind forever: the row says when it was inserted, and a job deletes the
rows that are older than any work should take. The job cannot tell a holder that is slow from one that is dead. It takes
the lock away from both, and the slow one does not notice; when it has finished, it deletes the row of its successor.
"""
import threading
import time

from lab.protocol import Protocol
from lab.talk.sql import PACKAGES, Conflict, connect, once


class InsertCleanup(Protocol):
    name = "insert-cleanup"
    title = "INSERT and DELETE, with a clean-up job"
    places = ("postgres", "mariadb")
    has_lease = True
    needs = PACKAGES
    follows = "insert"
    mends = "The row of a client that crashed is deleted once it is old enough."
    mends_in = "crash-holding"

    def connect(self):
        self.sql = connect(self.url)
        once(self.sql, "CREATE TABLE IF NOT EXISTS cleanup_locks (name VARCHAR(200) PRIMARY KEY,"
                      " since TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6))")
        threading.Thread(target=self.clean_up, args=(connect(self.url),), daemon=True).start()

    def lock(self):
        while not self.insert():
            self.pause()

    def insert(self):
        try:
            return self.sql("INSERT INTO cleanup_locks (name) VALUES (%s)", self.key)
        except Conflict:
            return False

    def unlock(self):
        self.sql("DELETE FROM cleanup_locks WHERE name = %s", self.key)

    def clean_up(self, sql):
        """The job. Every program that uses the table runs it, on a separate connection."""
        while True:
            sql("DELETE FROM cleanup_locks WHERE name = %s AND since < CURRENT_TIMESTAMP(6) - INTERVAL %s SECOND",
                self.key, str(self.lease_s))
            time.sleep(self.lease_s / 5)
