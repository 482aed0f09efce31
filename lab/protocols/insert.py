"""INSERT to lock, DELETE to unlock: a table whose key is unique

Every program already has a database, so this is the first lock that many write: only one client can insert the row.
There is no waiting in the database, so a client that finds the row tries again after a while. A row has no owner, so
anybody can delete it, and no end, so the row of a client that crashed stays forever.
"""
from lab.protocol import Protocol
from lab.talk.sql import PACKAGES, Conflict, connect, once


class Insert(Protocol):
    name = "insert"
    title = "INSERT and DELETE"
    places = ("postgres", "mariadb")
    needs = PACKAGES

    def connect(self):
        self.sql = connect(self.url)
        once(self.sql, "CREATE TABLE IF NOT EXISTS insert_locks (name VARCHAR(200) PRIMARY KEY)")

    def lock(self):
        while not self.insert():
            self.pause()

    def insert(self):
        try:
            return self.sql("INSERT INTO insert_locks (name) VALUES (%s)", self.key)
        except Conflict:
            return False

    def unlock(self):
        self.sql("DELETE FROM insert_locks WHERE name = %s", self.key)
