"""A Redis master with a replica, behind one address that follows the fail-over, as a virtual IP address or a name does."""
import contextlib

from lab.place import Place
from servers.proxy import Proxy
from servers.redis import Redis

LIMIT_MS = 9000
QUICK = ["repl-diskless-sync-delay 0", "repl-ping-replica-period 1"]


class Replicated(Place):
    name = "replicated"
    title = "a Redis master with a replica"
    programs = {"redis-server": "redis-server"}

    def __enter__(self):
        with contextlib.ExitStack() as starting:
            self.master = starting.enter_context(Redis(config=QUICK))
            self.replication = starting.enter_context(Proxy(self.master.port))
            self.replica = starting.enter_context(
                Redis(config=[*QUICK, f"replicaof 127.0.0.1 {self.replication.port}"]))
            self.address = starting.enter_context(Proxy(self.master.port))
            if not self.master.command("WAIT", 1, LIMIT_MS):
                raise RuntimeError("the replica does not get in step")
            self.running = starting.pop_all()
        return self

    def __exit__(self, *_):
        self.running.close()

    @property
    def ports(self):
        return [self.address.port]

    def url(self, ports):
        return f"redis://127.0.0.1:{ports[0]}?prefix="

    # ---- What happens to them ----

    def hold_replication(self):
        """From now on, what the master acknowledges no longer reaches the replica."""
        self.replication.hold("down")

    def fail_over(self):
        self.master.kill()
        self.replica.command("REPLICAOF", "NO", "ONE")
        self.address.server_port = self.replica.port
        self.address.reset()
