"""The holder's network falls silent until its session is over

Nothing gets through between the holder and ZooKeeper any more. The session ends, and with it the holder's node, so the
next client gets the lock. The holder cannot learn that its session is over until it is connected again.
"""
from lab.scenario import scenario
from lab.stage import TooSlow


@scenario("session-expiry", places=("zookeeper",))
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    b.ask()
    if not a.work(stage.lease_s / 2):
        raise TooSlow
    a.proxy.blackhole()
    stage.note("A's network falls silent")
    a.work(stage.patience_s, until=b.comes_in)
    if b.locked():
        b.write()
        a.work(2)
