"""The loser overwrites the winner's deadline

A died as the holder, and its lease is over. B sees that and asks for the lock, but its request is slow. Meanwhile C gets
the lock. Then B's request arrives. It comes too late to win, and must not shorten C's lease.
"""
from lab.scenario import scenario

LOOKS = {"getset": 2}  # requests before the one that takes a lock whose lease is over


@scenario("overwritten-deadline", places=("redis",), needs_lease=True, needs_holder=True)
def play(stage):
    stage.lease_s = 2
    a, b, c = stage.clients("A", "B", "C")
    a.lock()
    a.kill()
    stage.sleep(stage.lease_s)
    held = b.proxy.hold_after(LOOKS.get(stage.protocol.name, 0))
    b.ask()
    stage.wait_for(held.is_set, "a request of B")
    stage.note("B's request is slow")
    stage.sleep(0.5 * stage.lease_s)
    with stage.within_lease():
        c.lock()
        c.work(0.2)
        stage.note("B's request arrives")
        b.proxy.let_go()
        if b.locked(within=0.6 * stage.lease_s):
            b.work(0.2)
            c.write()
            return
        c.unlock()
    b.locked()
    b.unlock()
