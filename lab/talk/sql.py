"""SQL, through Debian's drivers, so that a protocol is the same text on PostgreSQL and on MariaDB.

    sql = connect("postgres://postgres@127.0.0.1:5432/postgres")
    sql("SELECT version FROM locks WHERE name = %s", "orders")   # the rows
    sql("DELETE FROM locks WHERE name = %s", "orders")           # how many rows there were

Every statement is a separate transaction, until a BEGIN.
"""
import contextlib
import functools
from urllib.parse import urlsplit

PACKAGES = {"psycopg2": "python3-psycopg2", "pymysql": "python3-pymysql"}
CONFLICTS = ("23505", "42P07", "42710",  # PostgreSQL: the row exists, the table does, its type does
             1062, 1213)  # MariaDB: the row exists; a deadlock of two inserts that wait for a row that is being deleted


class Conflict(Exception):
    """Another client was faster."""


class Connection:
    def __init__(self, connection):
        self.connection = connection

    def __call__(self, statement, *values):
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(statement, values)
            except self.connection.Error as error:
                if getattr(error, "pgcode", error.args[0]) in CONFLICTS:
                    raise Conflict(error) from error
                raise
            return cursor.fetchall() if cursor.description else cursor.rowcount


def connect(url):
    where = urlsplit(url)
    if where.scheme == "postgres":
        import psycopg2  # pylint: disable=import-outside-toplevel # only one of the two may be installed
        connection = psycopg2.connect(host=where.hostname, port=where.port, user=where.username, dbname=where.path[1:])
        connection.autocommit = True
    else:
        import pymysql  # pylint: disable=import-outside-toplevel
        connection = pymysql.connect(host=where.hostname, port=where.port, user=where.username, password=where.password,
                                     database=where.path[1:], autocommit=True)
    return Connection(connection)


class Pool:
    """The connections of a program. Each statement runs on the one that was returned last, in the state that it was left
    in."""

    def __init__(self, url):
        self.url, self.idle = url, []

    def __call__(self, statement, *values):
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = connect(self.url)
        found = connection(statement, *values)
        self.idle.append(connection)  # unless it failed
        return found


pool = functools.cache(Pool)  # one for each program


def once(sql, statement, *values):
    """For statements that every client tries when it starts, but only the first one needs to do."""
    with contextlib.suppress(Conflict):
        sql(statement, *values)
