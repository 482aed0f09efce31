"""`etcdctl lock`: etcd's own lock, as scripts use it.

etcdctl puts a key with a lease, and waits until all older keys of the lock are gone. Then it prints its key and renews
the lease, until it is ended by a signal. It also ends when the lease does: so its user believes in the lock while the
process runs. etcdctl takes the answer to a renewal as proof that the lease lives. But a leader that was deposed, and has
not noticed yet, still gives that answer (etcd issue 15247).
"""
import subprocess

from lab.protocol import Protocol


class Etcdctl(Protocol):
    name = "etcdctl"
    title = "etcdctl lock"
    places = ("etcd",)
    has_lease = True

    etcdctl = None

    def connect(self):
        endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.words = ["setpriv", "--pdeathsig", "KILL", "--",  # it ends with this client
                      "etcdctl", "--endpoints", endpoints, "lock", "--ttl", str(round(self.lease_s)), self.key]

    def lock(self):
        self.etcdctl = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        if not self.etcdctl.stdout.readline():  # its key
            raise ConnectionError(f"etcdctl ended with {self.etcdctl.wait()}")

    def unlock(self):
        if self.etcdctl:  # without it there is nothing to end
            self.etcdctl.terminate()
            self.etcdctl.wait()

    def check(self):
        return self.etcdctl.poll() is None
