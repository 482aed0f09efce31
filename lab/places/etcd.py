"""One etcd server."""
from lab.place import Place
from servers.etcd import Etcd


class OneEtcd(Place):
    name = "etcd"
    title = "one etcd"
    programs = {"etcd": "etcd-server", "etcdctl": "etcd-client"}
    lease_s = 2.0  # etcd counts whole seconds; with one second, a lease would end on a machine that is merely busy

    def __enter__(self):
        self.cluster = Etcd().__enter__()
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()

    @property
    def ports(self):
        return [member.port for member in self.cluster.members]

    def url(self, ports):
        return self.cluster.url(ports=ports, options="prefix=")
