"""The resource that the lock protects: it records every write, and whether the token check refuses it.

A client writes a line "write CLIENT GRANT TOKEN", TOKEN being "-" if the protocol has none, and gets the answer
"OK" or "REFUSED": a write with a token is checked as docs/fencing.md says, and refused if a larger one was seen
before.
"""
import socketserver
import threading
import time


class Witness:
    def __init__(self):
        self.writes = []  # (ns, client, grant, token, accepted)
        self.largest = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    self.wfile.write(outer.write(*line.decode().split()[1:]))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 200

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def write(self, client, grant, token):
        with self.lock:
            accepted = token == "-" or int(token) >= self.largest
            if token != "-":
                self.largest = max(self.largest, int(token))
            self.writes.append((time.monotonic_ns(), client, int(grant), token, accepted))
        return b"OK\n" if accepted else b"REFUSED\n"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
