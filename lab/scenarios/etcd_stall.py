"""The disk of etcd's leader stalls

Three servers, and the holder is connected to the leader. The leader's disk stops answering, so the leader hangs at its
next write. The other two elect a new leader, which ends the holder's lease and gives the lock to the next client. The
old one does not know that it was deposed: it keeps answering renewals from its memory.
"""
from lab.scenario import scenario
from lab.stage import TooSlow


@scenario("etcd-stall", places=("etcd",), at="etcd_cluster")
def play(stage):
    place = stage.place
    a, = stage.clients("A", ports=[place.leader.port])
    b, = stage.clients("B", ports=[member.port for member in place.others])
    a.lock()
    b.ask()
    if not a.work(1) or place.cluster.leader() is not place.leader:  # by then it has written everything it had to write
        raise TooSlow
    with place.disk.frozen():
        place.leader.begin_write()
        stage.note("the leader's disk stalls")
        a.work(2 * stage.patience_s, until=b.comes_in)
        if b.locked():
            b.write()
            a.work(2)
