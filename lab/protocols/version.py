"""UPDATE … WHERE, count the rows: a state and a version in a column

The lock is a row that always exists. A client reads it, and changes it only if nobody else has done so since: the
statement says which version it has seen, and the number of rows that it changed says who was first. The version rises
with every holder, so it is a fencing token, and only the holder of this version can unlock. But nothing ends a lock
whose holder has crashed.
"""
from lab.protocol import Protocol
from lab.talk.sql import PACKAGES, connect, once


class Version(Protocol):
    name = "version"
    title = "UPDATE … WHERE version ="
    places = ("postgres", "mariadb")
    has_token = True
    needs = PACKAGES
    follows = "insert"
    mends = "The lock has an owner, the one who knows its version, and the version is a fencing token."
    mends_in = "stranger"

    version = None  # of the lock when this client last had it

    def connect(self):
        self.sql = connect(self.url)
        once(self.sql, "CREATE TABLE IF NOT EXISTS version_locks (name VARCHAR(200) PRIMARY KEY,"
                      " is_locked INTEGER NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0)")
        once(self.sql, "INSERT INTO version_locks (name) VALUES (%s)", self.key)

    def lock(self):
        while not self.update():
            self.pause()
        return self.version

    def update(self):
        [[seen]] = self.sql("SELECT version FROM version_locks WHERE name = %s", self.key)
        self.version = seen + 1
        return self.sql("UPDATE version_locks SET is_locked = 1, version = %s WHERE name = %s AND version = %s AND is_locked = 0",
                        self.version, self.key, seen)

    def unlock(self):
        self.sql("UPDATE version_locks SET is_locked = 0 WHERE name = %s AND version = %s", self.key, self.version)
