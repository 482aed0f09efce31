"""A ZooKeeper server is cut off together with the holder

The holder's session is with one of three servers, a follower, which loses touch with the other two. The follower does
not notice for ten seconds, and keeps answering the holder's heartbeats. The leader no longer hears of the session, so
it ends it and gives the lock to the next client.
"""
from lab.scenario import scenario
from lab.stage import TooSlow


@scenario("zk-cut", places=("zookeeper",), at="ensemble")
def play(stage):
    servers = stage.place.servers
    follower = servers.followers()[0]
    a, = stage.clients("A", ports=[follower.port])
    b, = stage.clients("B", ports=[servers.leader().port])
    a.lock()
    b.ask()
    if not a.work(stage.lease_s / 2):
        raise TooSlow
    servers.cut(follower)
    stage.note("A's server is cut off from the two others")
    a.work(stage.patience_s, until=b.comes_in)
    if b.locked():
        b.write()
        a.work(2)
