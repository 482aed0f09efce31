#!/usr/bin/env python3
"""A small service that fences its resources, to copy from: GET and PUT of anything, kept in a SQLite database.

    fence_http_server.py DATABASE

It listens on a free port of this host, and prints its number. The convention:

    Fence-Name: report                 the name of the lock
    Fence-Token: 1794836176856260      the token of the hold

A request with these headers registers the token, also a GET: begin with one. If the service has seen a larger token for
the name, it answers 412 and does nothing. A PUT without them is answered with 428.

It also has what object stores have: a PUT with If-Match: ETAG or If-None-Match: * is answered with 412 if the resource
is not the one that was meant. As in S3, the ETag is the MD5 sum of the content.
"""
import hashlib
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OK, NO_CONTENT, NOT_FOUND, FAILED, REQUIRED = 200, 204, 404, 412, 428
TABLES = """
CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS resources (path TEXT PRIMARY KEY, content BLOB NOT NULL);
"""
REGISTER = """
INSERT INTO fences VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE token <= excluded.token
"""


def etag(content):
    return f'"{hashlib.md5(content).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.handle_with(lambda database, content: (OK, content) if content is not None else (NOT_FOUND, b""))

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))  # all of it, before the transaction begins

        def put(database, _):
            database.execute("INSERT OR REPLACE INTO resources VALUES (?, ?)", (self.path, data))
            return NO_CONTENT, data

        self.handle_with(put)

    def handle_with(self, act):
        """Checks and acts in one transaction, which is durable before the answer is sent."""
        database = sqlite3.connect(self.server.path, timeout=60, isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        row = database.execute("SELECT content FROM resources WHERE path = ?", (self.path,)).fetchone()
        content = row[0] if row else None
        status = self.check(database, content)
        if not status:
            status, content = act(database, content)
        database.execute("COMMIT")
        database.close()
        self.answer(status, content)

    def check(self, database, content):
        """None, or the status of a refusal."""
        name, token = self.headers["Fence-Name"], self.headers["Fence-Token"]
        if name and token:
            return None if database.execute(REGISTER, (name, int(token))).rowcount == 1 else FAILED
        if self.headers["If-Match"]:
            return None if content is not None and self.headers["If-Match"] == etag(content) else FAILED
        if self.headers["If-None-Match"] == "*":
            return None if content is None else FAILED
        return REQUIRED if self.command == "PUT" else None

    def answer(self, status, content):
        body = content if status == OK else b""
        self.send_response(status)
        if status in (OK, NO_CONTENT):
            self.send_header("ETag", etag(content))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(path):
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.path = path
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
