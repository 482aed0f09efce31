"""Three etcd servers. The leader has a separate disk, so that it can stall."""
import contextlib

from lab.places.etcd import OneEtcd
from servers.disk import Disk
from servers.etcd import Etcd


class ThreeEtcds(OneEtcd):
    name = "etcd_cluster"
    title = "three etcds"
    programs = OneEtcd.programs | {"mkfs.ext4": "e2fsprogs"}
    lease_s = 3.0  # etcd grants no lease below 1.5 times the time for an election

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.disk = stack.enter_context(Disk())
            self.cluster = stack.enter_context(Etcd(members=3))
            self.leader.move_to(self.disk)
            self.cluster.make_leader(self.leader)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    @property
    def leader(self):
        return self.cluster.members[0]

    @property
    def others(self):
        return self.cluster.members[1:]
