"""A session with ZooKeeper, over kazoo's plain client.

kazoo keeps the session alive, and reconnects on its own. Requests are repeated until they are answered, as its manual
recommends.
"""
import contextlib
import threading


class Session:
    def __init__(self, ports, timeout_s):
        from kazoo import client, exceptions  # here, since it may not be installed
        self.exceptions = exceptions
        again = {"max_tries": -1, "max_delay": 0.5}  # kazoo's own delay is doubled until it is an hour
        self.kazoo = client.KazooClient(",".join(f"127.0.0.1:{port}" for port in ports), timeout=timeout_s,
                                        connection_retry=again, command_retry=again)
        self.kazoo.start(timeout=30)

    @property
    def id(self):
        """If it changes, the servers have ended the session, and there is a new one. None: it is not connected."""
        return self.kazoo.client_id and self.kazoo.client_id[0]

    def create(self, path, **flags):
        """Returns the node's path; None: the node exists already."""
        with contextlib.suppress(self.exceptions.NodeExistsError):
            return self.kazoo.retry(self.kazoo.create, path, **flags)

    def delete(self, path):
        with contextlib.suppress(self.exceptions.NoNodeError):  # perhaps by an earlier attempt, whose reply was lost
            self.kazoo.retry(self.kazoo.delete, path)

    def children(self, path):
        return sorted(self.kazoo.retry(self.kazoo.get_children, path))

    def wait_until_gone(self, path):
        """Watches a node. May return early: when the connection is lost, so is the watch."""
        gone = threading.Event()
        if self.kazoo.retry(self.kazoo.exists, path, watch=lambda _: gone.set()):
            gone.wait()
