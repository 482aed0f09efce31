"""A dead waiter at the head

B waits for the lock, and C behind it. B's machine loses power, so no server hears that it is gone. Then A unlocks. B can
do nothing with the lock; C must get it.
"""
from lab.scenario import scenario


@scenario("dead-waiter", needs_holder=True, needs_network=True)
def play(stage):
    a, b, c = stage.clients("A", "B", "C")
    a.lock()
    b.ask()
    stage.sleep(stage.lease_s / 10)
    c.ask()
    stage.sleep(stage.lease_s / 10)
    b.lose_power()
    stage.must_have_lease_left(a)
    a.unlock()
    if c.locked():
        c.write()
        c.unlock()
