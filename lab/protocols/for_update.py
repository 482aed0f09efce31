"""SELECT … FOR UPDATE: the database's own lock on a row

Waiters wait in the database, which wakes them one after the other. The end of the holder's connection frees the row, so
a crash blocks nobody. But the lock belongs to the connection and not to the program. If only the connection is lost,
the next client gets the lock while the holder, which is not notified, goes on. If it is lost silently, the row stays
locked until the database gives up the connection, which takes hours by default. And programs have connection pools:
while the transaction is open, the pool can lend the same connection to another thread, which then has the lock as well.
"""
from lab.protocol import Protocol
from lab.talk.sql import PACKAGES, once, pool


class ForUpdate(Protocol):
    name = "for-update"
    title = "SELECT … FOR UPDATE"
    places = ("postgres", "mariadb")
    has_lease = True
    needs = PACKAGES
    follows = "insert"
    mends = "The database frees the lock when its holder's connection ends, and those who wait do not have to poll."
    mends_in = "crash-holding"

    def connect(self):
        self.sql = pool(self.url)
        once(self.sql, "CREATE TABLE IF NOT EXISTS row_locks (name VARCHAR(200) PRIMARY KEY)")
        if not self.sql("SELECT name FROM row_locks WHERE name = %s", self.key):  # MariaDB's INSERT waits for its holder
            once(self.sql, "INSERT INTO row_locks (name) VALUES (%s)", self.key)

    def lock(self):
        self.sql("BEGIN")
        self.sql("SELECT name FROM row_locks WHERE name = %s FOR UPDATE", self.key)

    def unlock(self):
        self.sql("COMMIT")
