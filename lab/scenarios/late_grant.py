"""A grant that comes too late

A asks for the lock and is paused before it has the answer. The lease begins and ends while the grant waits in A's
socket, and B gets the lock. Then A continues, and reads that it was granted the lock.
"""
from lab.scenario import scenario
from lab.stage import TooSlow

EARLIER = {"setnx-expire": 1, "redlock": 4}  # replies before the one that makes a client the holder


@scenario("late-grant", places=("redis", "redlock"), needs_lease=True, needs_holder=True)
def play(stage):
    stage.lease_s = 2
    a, b = stage.clients("A", "B")
    a.lock()
    a.unlock()  # this connects it
    held = a.hold_after(EARLIER.get(stage.protocol.name, 0), "down")
    a.ask()
    stage.wait_for(held.is_set, "an answer to A")
    stage.note("A is paused while the answer is under way")
    a.stop()
    if a.comes_in():
        raise TooSlow("A had the lock before it was stopped")
    a.pass_all()
    if b.lock():
        b.work(0.2)
    a.cont()
    if a.comes_in(within=stage.lease_s / 2):
        stage.must_have_lease_left(b)
        a.write()
    b.unlock()
    if a.locked():
        a.unlock()
